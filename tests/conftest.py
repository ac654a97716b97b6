"""Fixtures shared by all tests: the real logs where this machine has them, and a small TRL run made on the spot."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real logs beside the repository; tests that need it are skipped where it is absent."""
    folder = REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no real logs at {folder}")
    return folder


def trl_row(step: int, **changes: float) -> dict[str, float]:
    """One training row as TRL logs it."""
    row = {
        "clip_ratio/high_mean": 0.0,
        "completions/mean_length": 20.0 + step,
        "completions/clipped_ratio": 0.25,
        "entropy": 2.0,
        "epoch": step / 100,
        "frac_reward_zero_std": 0.5,
        "grad_norm": 0.7,
        "learning_rate": 1e-4,
        "loss": 0.01,
        "num_tokens": 100.0 * step,
        "reward": 0.01 * step,
        "reward_std": 0.3,
        "rewards/brevity/mean": -0.01 * step,
        "rewards/check/mean": 0.02 * step,
        "rewards/check/std": 0.4,
        "step": step,
        "step_time": 2.0,
    }
    return row | changes


@pytest.fixture
def make_row() -> Callable[..., dict[str, float]]:
    """The maker of one TRL row."""
    return trl_row


@pytest.fixture
def write_state() -> Callable[..., Path]:
    """The writer of a trainer_state.json."""

    def write(path: Path, rows: Sequence[Mapping[str, Any]], logging_steps: float = 1) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        last = max((int(row["step"]) for row in rows if "step" in row), default=0)
        state = {"global_step": last, "log_history": list(rows), "logging_steps": logging_steps, "max_steps": 100}
        path.write_text(json.dumps(state, indent=2, sort_keys=True))
        return path

    return write


@pytest.fixture
def trl_run(tmp_path: Path, write_state: Callable[..., Path]) -> Path:
    """A run folder: two checkpoints, a README, completions of 3 steps with 2 groups of 4, and a file that must not be opened."""
    folder = tmp_path / "run"
    for last in (10, 20):
        write_state(folder / f"checkpoint-{last}" / "trainer_state.json", [trl_row(step) for step in range(1, last + 1)])
    (folder / "checkpoint-20" / "training_args.bin").write_bytes(b"PK\x03\x04 never opened")
    (folder / "README.md").write_text(
        "This model is a fine-tuned version of [tiny/Model-1](https://x).\n\n"
        "### Framework versions\n\n- TRL: 1.16.0\n- Transformers: 5.0.0\n"
    )
    (folder / "completions").mkdir()
    for step in (1, 2, 3):
        check = [1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0]
        brevity = [-0.1, -0.2, 0.0, -0.1, 0.0, 0.0, 0.0, 0.0]
        total = [a + b for a, b in zip(check, brevity, strict=True)]
        means = [sum(total[start : start + 4]) / 4 for start in (0, 4)]
        table = pl.DataFrame(
            {
                "step": [step] * 8,
                "prompt": ["4+2="] * 4 + ["7+1="] * 4,
                "completion": [f"c{number}" for number in range(8)],
                "check": check,
                "brevity": brevity,
                "advantage": [(total[number] - means[number // 4]) / 0.5 for number in range(8)],
            }
        )
        table.write_parquet(folder / "completions" / f"completions_{step:05d}.parquet")
    return folder
