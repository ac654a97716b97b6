"""What users of Python call: a run as an object, and functions that take a run, a path or
arrays. It computes and draws nothing itself.
"""
