"""Worlds in which the truth is known: prompts whose moments are sums, logs of simulated runs."""
