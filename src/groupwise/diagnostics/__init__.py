"""Why a run is flat, falls or swings: a file for the checks of one subject, the cause in
`causes`, the one decision in `judge`. A limit is a constant of these
files; `limits.tsv` lists all of them, with unit, meaning and the rate that set each, is never read
by a check, and a test holds both alike.
"""
