"""Why a run is flat, falls or swings: each check in a file of its own, the cause in `causes`,
the one decision in `judge`.
"""
