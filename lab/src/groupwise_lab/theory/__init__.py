"""What both papers state, as functions of arrays: each names its theorem, equation or figure."""
