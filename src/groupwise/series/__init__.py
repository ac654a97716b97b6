"""From a record to arrays and plain facts: one metric over time, what its groups and rollouts
say, and its lag.
"""
