"""Speed of a replay, beside reading the record that it replays.

make bench    (or: python -m pytest benchmarks/test_replay_speed.py --benchmark-only -o addopts=)
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from groupwise.analysis.replay import replay_run
from groupwise.readers import run_record
from groupwise.record.run import RunRecord, steps_table

STEPS, GROUPS, SIZE, PROMPTS = 100, 125, 8, 5000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """100,000 rollouts with texts of prompts and lengths."""
    rng = np.random.default_rng(0)
    rate = 1 / (1 + np.exp(-rng.normal(0, 2, PROMPTS)))
    prompt = np.repeat(rng.integers(PROMPTS, size=STEPS * GROUPS), SIZE)
    rollouts = pl.DataFrame(
        {
            "step": np.repeat(np.arange(1, STEPS + 1), GROUPS * SIZE),
            "prompt_id": np.tile(np.repeat(np.arange(GROUPS), SIZE), STEPS),
            "prompt": [f"What is the answer to question {number}?" for number in prompt],
            "reward": (rng.random(len(prompt)) < rate[prompt]).astype(float),
            "length": rng.lognormal(6, 0.5, len(prompt)).round(),
        }
    )
    steps = steps_table(range(1, STEPS + 1), {"reward": np.full(STEPS, 0.5)})
    return RunRecord("made", steps, rollouts).save(tmp_path_factory.mktemp("replay") / "run")


@pytest.mark.benchmark(group="100,000 rollouts")
def test_replay(benchmark: BenchmarkFixture, folder: Path) -> None:
    record = run_record(folder)
    assert benchmark(lambda: replay_run(record)).replay is not None


@pytest.mark.benchmark(group="100,000 rollouts")
def test_read(benchmark: BenchmarkFixture, folder: Path) -> None:
    """The yardstick."""
    assert benchmark(lambda: run_record(folder)).rollouts is not None
