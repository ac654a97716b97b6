"""Many shards on many workers: one contract, and three engines behind it that no other part can
tell apart.
"""
