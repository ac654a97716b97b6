"""From a record to arrays: one metric over time, and what its groups and rollouts say."""
