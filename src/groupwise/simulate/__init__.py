"""Worlds in which the truth is known exactly, the judge: no estimator, no law and no fit is imported."""
