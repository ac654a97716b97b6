"""Statistics of the policy gradient: advantages, the U-statistic, its variance components, and the group size they call for.

Arrays in, frozen results out. Nothing here knows a run record.
"""
