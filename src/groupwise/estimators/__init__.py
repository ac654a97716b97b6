"""Statistics of the policy gradient: advantages, the moments of groups, variance components, and
the group size they call for.
"""
