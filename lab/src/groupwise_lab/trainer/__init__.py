"""The embedded trainer: tasks whose truth is known, a small policy, GRPO in one readable file,
and what is measured on them.
"""
