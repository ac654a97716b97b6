"""What both papers state of the final policy and of a verifier that errs, as functions of
arrays.
"""
