"""Why a run is flat, falls or swings: a file for the checks of one subject, the cause in
`causes`, the one decision in `judge`.
"""
