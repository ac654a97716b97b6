"""From a record to plain results: fitted, group size, stability, components, compare.

Nothing is drawn here.
"""
