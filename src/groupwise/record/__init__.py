"""One run as data: steps, rollouts, settings, and the journal in which it is written."""
