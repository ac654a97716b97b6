"""Scores of rollouts under a model: hooks, sketches and language models.

Torch is used here and in the trainer.
"""
