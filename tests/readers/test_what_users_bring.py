"""Small logs by hand, each with one habit of the logs that users hand over: what opens, as which runs, and with which settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from groupwise.readers import open_run
from groupwise.record.run import RecordWriter, RunRecord


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write rows as JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def settings(record: RunRecord) -> dict[str, Any]:
    """Return the known settings but those that every log has."""
    return {name: one.value for name, one in record.config.known().items() if name not in ("framework", "logging_steps")}


def rows(steps: int = 6, **constant: float) -> list[dict[str, Any]]:
    return [{"step": step, "reward": step / 10, **constant} for step in range(1, steps + 1)]


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ([row | {"lr": 2.0 ** -row["step"]} for row in rows()],
         {"learning_rate": 0.5, "learning_rate_schedule": "from 0.5 to 0.015625"}),
        ([row | {"learning rate(param group 1)": "2e-5"} for row in rows()],
         {"learning_rate": 2e-5, "learning_rate_schedule": "constant"}),
        (rows(group_size=8, num_questions=4, kl_coef=0.01), {"group_size": 8, "prompts_per_step": 4, "kl_weight": 0.01}),
        (rows(num_generations=8, optimizer_updates_per_rollout_batch=4),
         {"group_size": 8, "refresh_interval": 4, "lag_kind": "refresh", "updates_per_step": 4.0}),
        (rows(rollout_batch_size=64, group_size=8, train_batch_size=16, epochs_per_rollout_batch=2),
         {"group_size": 8, "prompts_per_step": 8, "refresh_interval": 8, "lag_kind": "refresh", "updates_per_step": 8.0}),
        ([row | {"optimizer_step": 3 * row["step"]} for row in rows()], {"updates_per_step": 3.0}),
        (rows(group=8, loss=0.0, beta=0.04), {}),  # columns that may be measured
        ([row | {"group_size": row["step"]} for row in rows()], {}),
    ],
    ids=["rate", "rate of a group", "counts", "updates of a batch", "parts of a batch", "updates counted", "measured", "not constant"],
)  # fmt: skip
def test_settings_come_from_columns(tmp_path: Path, log: list[dict[str, Any]], expected: dict[str, Any]) -> None:
    assert settings(open_run(written(tmp_path / "log.jsonl", log))) == expected


def test_settings_stand_beside_the_rows(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(
        json.dumps({"lr": 3e-5, "group": 8, "kl_beta": 0.1, "use_kl_loss": False, "reward_trace": [0.5, 1, 0.5]})
    )
    record = open_run(tmp_path / "run.json")
    assert settings(record) == {"learning_rate": 3e-5, "group_size": 8, "kl_weight": 0.0, "kl_in": "none"}
    assert record.steps[record.column("reward")].to_list() == [0.5, 1, 0.5]


def test_the_journal_of_a_record_is_the_record(tmp_path: Path) -> None:
    with RecordWriter(tmp_path / "run") as writer:
        writer.append({"step": 1, "reward": 0.5})
    assert open_run(tmp_path / "run" / "journal.jsonl").steps["reward"].to_list() == [0.5]
