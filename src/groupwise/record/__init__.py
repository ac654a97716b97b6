"""One run as data: its table of steps, its table of rollouts, its settings, and the journal in
which it is written.
"""
