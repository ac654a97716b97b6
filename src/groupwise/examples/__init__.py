"""Where the embedded example runs lie: real logs, small enough to travel with the package."""

from __future__ import annotations

from pathlib import Path


def trl_run() -> Path:
    """Return the folder of a GRPO run of TRL 1.16.0: a tiny model learns to add two-digit numbers
    on the CPU.

    300 steps of 32 prompts with 8 completions each, logged at every step, evaluated every 20, with
    every completion.
    """
    return Path(__file__).parent / "trl_run"
