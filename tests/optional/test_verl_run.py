"""verl's own loop on a processor, recorded: two updates a step, padding, groups, a KL term,
validation, and a run that resumes.

verl is not in the test environment, so this is skipped there, visibly. To run it (some minutes):
`make loops ONLY=verl-loop` once, which builds an environment, then

    .venv-verl/bin/python -m pip install pytest && .venv-verl/bin/python -m pytest
    tests/optional/test_verl_run.py
"""

from __future__ import annotations

import importlib.util
import json
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from groupwise.record.run import RunRecord

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
pytest.importorskip("verl", reason="verl is not installed: see the head of this file")
pytest.importorskip("ray", reason="ray is not installed: see the head of this file")

SCRIPT = Path(__file__).resolve().parent.parent.parent / "scripts" / "verl_cpu" / "train.py"


def logged(*paths: Path) -> dict[int, dict[str, Any]]:
    """What verl's own file logger wrote, by step; a validation before a resumed run adds to its
    step.
    """
    rows: dict[int, dict[str, Any]] = {}
    for line in chain.from_iterable(path.read_text().splitlines() for path in paths):
        row = json.loads(line)
        rows.setdefault(row["step"], {}).update(row["data"])
    return rows


def test_a_run_that_resumes_is_recorded_as_verl_logs_it(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("train", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    script.prepare(tmp_path)
    script.train(tmp_path, 2, "first")
    script.train(tmp_path, 4, "resumed")
    hold_against_verl(tmp_path)


def hold_against_verl(home: Path) -> None:
    record = RunRecord.load(home / "run" / "groupwise")
    config = {name: setting.value for name, setting in record.config.known().items()}
    assert (config["group_size"], config["prompts_per_step"], config["refresh_interval"]) == (
        4,
        8,
        2,
    )
    assert (config["kl_weight"], config["kl_in"], config["scale_rewards"]) == (
        0.01,
        "loss",
        "group",
    )
    assert (config["model"], config["engine"]) == (str(home / "model"), "hfcpu")
    steps = record.steps.filter(pl.col("reward").is_not_null())
    assert steps["step"].to_list() == [1, 2, 3, 4]
    assert steps["prompts"].to_list() == [8.0] * 4  # verl pads them to twelve
    assert steps["group_size"].to_list() == [4.0] * 4
    assert record.rollouts is not None
    assert record.rollouts.group_by("step", maintain_order=True).len().rows() == [
        (step, 32) for step in (1, 2, 3, 4)
    ]
    theirs = logged(home / "first.jsonl", home / "resumed.jsonl")
    for row in steps.iter_rows(named=True):
        own = record.rollouts.filter(pl.col("step") == row["step"])
        assert row["reward"] == pytest.approx(own["reward"].mean())
        alike = own.group_by("prompt_id").agg(pl.col("reward").n_unique())["reward"] == 1
        assert row["dead_group_share"] == pytest.approx(alike.mean())
        assert row["actor/entropy"] == pytest.approx(theirs[row["step"]]["actor/entropy"])
        assert row["actor/kl_loss"] == pytest.approx(theirs[row["step"]]["actor/kl_loss"])
    assert (np.diff(steps["seconds"].to_numpy()) > 0).all()
    validation = next(name for name in record.steps.columns if name.startswith("val-core/"))
    assert (
        record.steps.filter(pl.col("step") == 2)[validation].null_count() == 0
    )  # before the resumed run
