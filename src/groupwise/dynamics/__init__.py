"""How mean reward moves: laws, noise, fits, forecasts and their scores.

Takes arrays and returns frozen results; knows no log, no record and no trainer.
"""
