"""Whether runs differ: level, speed and plateau with step noise and seed noise apart, and the
first divergence of two curves.
"""
