"""What error of the gradient costs in the end: bounds of the gap to the best policy, its limiting law, and that law's distribution.

Arrays in, frozen results out. It measures no gradient and knows no RunRecord.
"""
