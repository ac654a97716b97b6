"""Whether runs differ: level, speed and plateau with step noise and seed noise apart, and the first divergence of two curves.

Takes arrays and returns frozen results; knows no log, no record and no trainer.
"""
