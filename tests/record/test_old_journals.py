"""Records that earlier versions wrote are read for ever: every value here was written down by
hand from what was recorded.
"""

from __future__ import annotations

import shutil
from math import copysign, inf
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.golden.sentences import says

from groupwise.analysis.components import load_components
from groupwise.record.recorder import Recorder, opened
from groupwise.record.run import Meaning, RunRecord, Source

V1 = Path(__file__).resolve().parents[1] / "fixtures" / "journals" / "v1"
"""A recorded TRL run (killed once after step 4, resumed after step 3 with larger groups, killed again while it wrote step 6); a saved
record with rollouts and one without; a saved record that a writer continued; components."""


def columns_of(table: pl.DataFrame | None) -> dict[str, list[Any]]:
    """Return a table as lists."""
    assert table is not None
    return table.to_dict(as_series=False)


STEPS: dict[str, list[Any]] = {
    "step": [1, 2, 3, 4, 5],
    "optimizer_updates": [1.0, 2.0, 3.0, 4.0, 5.0],
    "window": [1.0] * 5,
    "tokens": [100.0, 200.0, 300.0, 400.0, 500.0],
    "seconds": [0.125, 0.25, 0.375, 1.5, 1.625],
    "learning_rate": [1e-5 / step for step in (1, 2, 3, 4, 5)],
    "lag": [0.0] * 5,
    "reward": [1.375 / 3, 1.125 / 3, 0.875 / 3, 1.75 / 5, 1.25 / 5],
    "group_size": [2.0, 2.0, 2.0, 3.0, 3.0],
    "prompts": [2.0] * 5,
    "rewards/right/mean": [1 / 3, 1 / 3, 1 / 3, 0.4, 0.4],
    "rewards/brief/mean": [0.375, 0.125, -0.125, -0.125, -0.375],
    "reward_std_within_group": [
        0.875 / 2**0.5,
        0.125 / 2**0.5,
        1.125 / 2**0.5,
        0.6093882021503367,
        0.7814993887065393,
    ],
    "dead_group_share": [0.0] * 5,
    "missing_share": [0.25, 0.25, 0.25, 1 / 6, 1 / 6],
    "completions/mean_length": [2.5, 2.5, 2.5, 3.5, 3.5],
    "entropy": [1.0, 1 / 2, 1 / 3, 1 / 4, 1 / 5],
    "loss": [-0.0, None, None, None, None],
    "kl": [None, inf, None, None, None],
    "log/window": [3.0] * 5,
    "1e": [5e-324, 1e-323, 1.5e-323, 2e-323, 2.5e-323],
    "frac_reward_zero_std": [0.5] * 5,
    "eval_reward": [None, None, 0.25, None, None],
}
COMPLETIONS = [(1, 2), (3, 2), (4, 3), (5, 3)]
"""Step and group size of the rollouts: step 2 has none, step 4 those of the resumed run."""
ROLLOUTS: dict[str, list[Any]] = {
    "step": [step for step, size in COMPLETIONS for _ in range(2 * size)],
    "prompt_id": [0, 0, 1, 1] * 2 + [0, 0, 0, 1, 1, 1] * 2,
    "prompt": [f"Frage {n}: 2 + 2 = ?" for n in [0, 0, 1, 1] * 2 + [0, 0, 0, 1, 1, 1] * 2],
    "completion": [
        f"Schritt {step}, “Antwort” {n}\n\u2028é\0"
        for step, size in COMPLETIONS
        for n in range(2 * size)
    ],
    "reward": [
        None,
        0.0,
        1.125,
        0.25,
        None,
        0.0,
        -0.125,
        1.0,
        None,
        0.0,
        0.75,
        -0.125,
        0.0,
        1.125,
        None,
        1.0,
        -0.375,
        -0.25,
        0.875,
        0.0,
    ],
    "reward/right": [
        None,
        0.0,
        1.0,
        0.0,
        None,
        0.0,
        0.0,
        1.0,
        None,
        0.0,
        1.0,
        0.0,
        0.0,
        1.0,
        None,
        1.0,
        0.0,
        0.0,
        1.0,
        0.0,
    ],
    "reward/brief": [
        *[None, None, 0.25, 0.5, None, None, -0.25, 0.0],
        *[None, None, -0.5, -0.25, 0.0, 0.25, None, None, -0.75, -0.5, -0.25, 0.0],
    ],
    "advantage": [
        *[None, -0.0, -0.140625, -0.03125, None, -0.0, 0.015625, -0.125],
        *[
            None,
            -0.0,
            -0.09375,
            0.015625,
            -0.0,
            -0.140625,
            None,
            -0.125,
            0.046875,
            0.03125,
            -0.109375,
            -0.0,
        ],
    ],
    "length": [1.0, 2.0, 3.0, 4.0] * 2 + [1.0, 2.0, 3.0, 4.0, 5.0, 6.0] * 2,
}
SETTINGS = {
    "group_size": 3,
    "prompts_per_step": 2,
    "learning_rate": 1e-5,
    "learning_rate_schedule": "constant",
    "optimizer": "adamw_torch",
    "beta1": 0.9,
    "beta2": 0.999,
    "kl_weight": 0.0,
    "loss": "dapo",
    "importance_ratio": "token",
    "kl_in": "loss",
    "lag_kind": "none",
    "updates_per_step": 1.0,
    "logging_steps": 1,
    "scale_rewards": "group",
    "temperature": 0.7,
    "max_completion_length": 64,
    "model": "Qwen/Qwen2-0.5B é",
    "framework": "trl",
    "framework_version": "0.28.0",
    "smoothing": 1,
    "seed": 7,
}
QUANTITIES = {
    "group_size": "",
    "prompts": "",
    "reward_std_within_group": "reward_std_within_group",
    "dead_group_share": "dead_group_share",
    "missing_share": "",
    "lag": "staleness",
    "learning_rate": "learning_rate",
    "reward": "reward",
    "rewards/right/mean": "reward/right",
    "rewards/brief/mean": "reward/brief",
    "completions/mean_length": "completion_length",
    "entropy": "entropy",
    "loss": "loss",
    "kl": "kl",
    "frac_reward_zero_std": "dead_group_share",
    "eval_reward": "eval/reward",
}


def test_a_journal_of_trl() -> None:
    record = RunRecord.load(V1 / "trl")
    steps = columns_of(record.steps)
    assert list(steps) == list(STEPS)
    for name, values in STEPS.items():
        assert steps[name] == (
            values
            if name == "1e"
            else [value if value is None else pytest.approx(value, rel=1e-15) for value in values]
        )
    assert copysign(1, steps["loss"][0]) == -1
    assert columns_of(record.rollouts) == ROLLOUTS
    assert {name: setting.value for name, setting in record.config.known().items()} == SETTINGS
    assert {setting.source for setting in record.config.known().values()} == {
        "the rollouts, from step 4 on",
        "the trainer's arguments",
        "the model",
    }
    assert {meaning.column: meaning.quantity for meaning in record.meanings} == QUANTITIES
    resumed, changed, missing = record.notes
    says("record/old_journals/1", resumed)
    says("record/old_journals/2", changed)
    says("record/old_journals/3", missing)
    assert (record.name, record.sources) == (
        "trl run",
        (Source(str(V1 / "trl" / "journal.jsonl"), "journal", 28392, 5),),
    )


def test_a_recording_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    from groupwise.record.recorder import Identity

    folder = Path(shutil.copytree(V1 / "trl", tmp_path / "run"))
    said: list[str] = []
    recorder = opened(
        lambda place: Recorder(place, say=said.append),
        folder,
        5,
        said.append,
        Identity("0123456789abcdef"),
    )
    assert recorder is not None
    assert (recorder.folder, recorder.run["id"]) == (folder, "0123456789abcdef")
    recorder.append({"step": 6, "reward": 0.5, "group_size": 3.0})
    recorder.close()
    record = RunRecord.load(folder)
    assert record.steps["step"].to_list() == [1, 2, 3, 4, 5, 6]
    assert record.steps["reward"].to_list() == [*RunRecord.load(V1 / "trl").steps["reward"], 0.5]
    assert (columns_of(record.rollouts), said) == (ROLLOUTS, [])


def test_a_saved_record() -> None:
    record = RunRecord.load(V1 / "saved")
    assert columns_of(record.steps) == {
        "step": [10, 20, 40],
        "optimizer_updates": [10.0, 20.0, 20.0],
        "window": [10.0, 10.0, 20.0],
        "tokens": [10.0, 20.0, None],
        "seconds": [0.5, None, 1.5],
        "reward": [0.1, None, 0.3],
        "rewards / f / mean": [1.0, 2.0, -inf],
        "log/window": [9.0, 9.0, 9.0],
    }
    assert columns_of(record.rollouts) == {
        "step": [10, 10, 40],
        "prompt_id": [0, 0, 3],
        "prompt": ["p", "p", "q"],
        "completion": [None, "ü\n", ""],
        "reward": [1.0, None, 2.0**53],
        "reward/f": [None, -0.5, 0.0],
    }
    assert {
        name: (setting.value, setting.source) for name, setting in record.config.known().items()
    } == {
        name: (value, "README.md of the output")
        for name, value in (
            ("group_size", 8),
            ("kl_weight", 0.0),
            ("scale_rewards", "batch"),
            ("model", "tiny"),
            ("seed", -3),
        )
    }
    assert record.meanings == (
        Meaning("reward", "reward", "mean total reward"),
        Meaning("log/window", "", "unknown", ambiguous=True),
        Meaning("rewards / f / mean", "reward/f", "mean of f", unavailable=True),
    )
    assert (record.name, record.notes) == ("saved run", ("a note", "another"))
    assert record.sources == (
        Source("log.csv", "csv", 10, 3),
        Source("args.json", "configs", 4, 0, "settings"),
    )


def test_a_saved_record_without_rollouts() -> None:
    record = RunRecord.load(V1 / "saved_steps")
    assert (record.name, record.rollouts, record.config.known(), record.meanings) == (
        "steps only",
        None,
        {},
        (),
    )
    base = {
        "step": [1, 2],
        "optimizer_updates": [1.0, 2.0],
        "window": [1.0, 1.0],
        "tokens": [None, None],
        "seconds": [None, None],
    }
    assert columns_of(record.steps) == {**base, "reward": [0.5, 0.75]}


def test_a_saved_record_that_was_continued() -> None:
    record = RunRecord.load(V1 / "continued")
    assert columns_of(record.steps) == {
        "step": [10, 20, 30, 40],
        "optimizer_updates": [10.0, 20.0, 30.0, 40.0],
        "window": [10.0, 10.0, 1.0, 1.0],
        "tokens": [10.0, 20.0, None, None],
        "seconds": [0.5, None, None, None],
        "reward": [0.1, None, 0.2, 0.8],
        "rewards / f / mean": [1.0, 2.0, None, None],
        "log/window": [9.0, 9.0, None, None],
        "new": [None, None, 1.0, None],
    }
    assert columns_of(record.rollouts) == {
        "step": [10, 10, 30],
        "prompt_id": [0, 0, 5],
        "prompt": ["p", "p", None],
        "completion": [None, "ü\n", None],
        "reward": [1.0, None, 0.0],
        "reward/f": [None, -0.5, None],
        "length": [None, None, 3.0],
    }
    assert {
        name: (setting.value, setting.source) for name, setting in record.config.known().items()
    } == {"group_size": (4, "test")}
    assert record.meanings == (Meaning("new", "entropy", "of ours"),)
    assert (record.name, record.notes) == ("continued run", ("a note", "another", "a later note"))
    assert [source.reader for source in record.sources] == ["csv", "configs", "journal"]


def test_saved_components() -> None:
    # Its upper half is longer than it was: few prompts may hide a tail (lab gradient.md).
    interval = (-0.031000887807912783, 0.27403297779468766)
    saved = load_components(V1 / "components.json")
    estimate = saved.components
    assert saved.provenance == {"model": "tiny", "seed": 3, "aggregation": "sum"}
    assert (
        estimate.prompts,
        estimate.rollouts,
        estimate.left_out,
        estimate.method,
        estimate.zero_mean,
    ) == (
        6,
        48,
        0,
        "jackknife",
        True,
    )
    assert [estimate.vp.interval.low, estimate.vp.interval.high] == pytest.approx(
        interval, rel=1e-12
    )
    assert estimate.vp.value == pytest.approx(0.07662053271634033, rel=1e-12)
    assert estimate.t.value == pytest.approx(0.6496224143803792, rel=1e-12)
    assert estimate.r.value == pytest.approx(0.6813657405954551, rel=1e-12)
    assert estimate.gradient_norm2.value == pytest.approx(-0.0018952948591658345, rel=1e-11)
