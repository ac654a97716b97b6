"""Many shards on many workers: one contract, and three engines behind it."""
