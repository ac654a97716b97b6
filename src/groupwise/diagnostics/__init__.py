"""Why a run is flat, falls or swings: a file for the checks of one subject, the cause in
`causes`, the one decision in `judge`. Limits stand beside the check that uses them;
`limits.tsv` lists them all, with unit, meaning and the rate that set each, and a test holds both
alike.
"""
