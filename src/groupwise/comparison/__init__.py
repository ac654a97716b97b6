"""Whether runs differ: level and speed with step and seed noise apart."""
