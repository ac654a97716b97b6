"""What users of Python call: a run as an object, and functions of a run, path or arrays.

It computes and draws nothing itself.
"""
