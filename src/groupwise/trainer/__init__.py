"""The embedded trainer: tasks whose truth is known, a small policy, GRPO in one readable file, and what is measured on them.

Nothing is imported here; tasks, rewards, benchmark files and evaluation need no torch. It does not replace a trainer of large models.
"""
