"""Worlds in which the truth is known exactly: the judge.

Imports no estimator, no law and no fit.
"""
