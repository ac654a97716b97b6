"""Runs in several tables of one folder, and folders of several runs that look like them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.cases import each_case

from groupwise.errors import GroupwiseError, UnreadableRunError
from groupwise.readers import run_record
from groupwise.readers.find import runs_below

STEPS = list(range(1, 21))
REWARD = [0.2 + 0.02 * step for step in STEPS]
KL = [0.001 * step for step in STEPS]


def table(path: Path, head: str, *columns: Sequence[float], mark: str = ",") -> None:
    """Write a table: a line of names where there is one, and a line a step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [mark.join(map(str, cells)) for cells in zip(*columns, strict=True)]
    path.write_text("".join(f"{row}\n" for row in ([head] if head else []) + rows))


def lines(path: Path, **columns: Sequence[float]) -> None:
    """Write JSON lines."""
    rows = [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def named_by_the_file(home: Path) -> None:
    for name, values in (("train/reward", REWARD), ("train/kl", KL), ("eval/reward", KL)):
        path = home / "plots" / "metrics" / f"{name}.tsv"
        table(path, f"step\t{path.stem}", STEPS, values, mark="\t")


def without_names(home: Path) -> None:
    for name, values in (("train/reward", REWARD), ("train/kl", KL)):
        table(home / "run" / "scalars" / f"{name}.csv", "", STEPS, values)


def charts_of_tensorboard(home: Path) -> None:
    for tag, values in (("train_reward", REWARD), ("train_kl", KL)):
        path = home / f"run-grpo_1-tag-{tag}.csv"
        table(path, "Wall time,Step,Value", [1.7e9 + step for step in STEPS], STEPS, values)


def rows_without_steps(home: Path) -> None:
    lines(home / "rollouts.jsonl", reward=REWARD, reward_std=KL, response_length=STEPS)
    lines(home / "updates.jsonl", kl=KL)
    lines(home / "val_metrics.jsonl", epoch=[0, 10], accuracy=[0.1, 0.2])
    printed = (home / "rollouts.jsonl").read_text().replace('"', "'")
    (home / "log.txt").write_text(
        "".join(f"[INFO] Rollouts: {row}\n" for row in printed.split("\n"))
    )


def points_of_metrics(home: Path) -> None:
    metrics = {
        name: {"steps": STEPS, "values": values, "timestamps": ["2025-11-29T19:00:00"] * len(STEPS)}
        for name, values in (("train/reward", REWARD), ("train/kl", KL))
    }
    (home / "1").mkdir()
    (home / "1" / "metrics.json").write_text(json.dumps(metrics, indent=2))
    (home / "1" / "run.json").write_text('{"status": "COMPLETED", "host": {"name": "n1"}}')
    (home / "1" / "config.json").write_text('{"group_size": 16}')


LAYOUTS = [
    named_by_the_file,
    without_names,
    charts_of_tensorboard,
    points_of_metrics,
]


@pytest.mark.parametrize("write", LAYOUTS, ids=lambda write: write.__name__)
def test_several_tables_of_a_folder_are_one_run(
    tmp_path: Path, write: Callable[[Path], None]
) -> None:
    write(tmp_path)
    record = run_record(tmp_path)
    column = {meaning.quantity: meaning.column for meaning in record.meanings}
    assert record.steps["step"].to_list()[-20:] == STEPS
    assert record.steps[column["reward"]].to_list()[-20:] == REWARD
    assert record.steps[column["kl"]].to_list()[-20:] == KL
    assert len(runs_below(tmp_path)) == 1


def test_of_tables_without_a_common_name_the_one_with_the_reward_is_read(tmp_path: Path) -> None:
    """As RL4LMs writes them, none of which has a step; the others are named."""
    rows_without_steps(tmp_path)
    record = run_record(tmp_path)
    assert record.steps["reward"].to_list() == REWARD
    assert record.notes[-1].endswith(": log.txt, updates.jsonl, val_metrics.jsonl")
    assert len(runs_below(tmp_path)) == 1
    rolled: dict[str, Any] = {"reward": REWARD, "reward_std": KL, "response_length": STEPS}
    rolled["memory_gb"] = KL
    lines(tmp_path / "rollouts.jsonl", **rolled)
    lines(tmp_path / "updates.jsonl", kl=KL, memory_gb=KL)  # which tells no quantity
    assert run_record(tmp_path).steps["reward"].to_list() == REWARD
    lines(tmp_path / "updates.jsonl", kl=KL, reward_std=KL)
    with pytest.raises(UnreadableRunError, match="holds 2"):
        run_record(tmp_path)


def runs_named_by_the_file(home: Path) -> None:
    for name in ("lr_1e-6", "lr_3e-6"):
        table(home / f"{name}.csv", "step,value", STEPS, REWARD)


def rewards_of_two_runs(home: Path) -> None:
    for name in ("reward_a", "reward_b"):
        table(home / f"{name}.csv", "step,value", STEPS, REWARD)


def charts_of_two_runs(home: Path) -> None:
    charts_of_tensorboard(home)
    path = home / "run-grpo_2-tag-train_reward.csv"
    table(path, "Wall time,Step,Value", STEPS, STEPS, KL)


def runs_with_the_same_column(home: Path) -> None:
    for name in ("reward", "kl"):
        table(home / f"{name}.csv", "step,reward", STEPS, REWARD)


def runs_in_folders_of_metrics(home: Path) -> None:
    for run in ("small", "large"):
        for name in ("reward", "kl"):
            table(home / "metrics" / run / f"{name}.csv", "step,value", STEPS, REWARD)


def runs_of_two_programs(home: Path) -> None:
    lines(home / "a.jsonl", step=STEPS, reward=REWARD, kl=KL)
    columns: dict[str, Sequence[float]] = {"critic/score/mean": REWARD, "actor/kl_loss": KL}
    lines(home / "b.jsonl", step=STEPS, **columns)


def a_resumed_run(home: Path) -> None:
    for number, part in enumerate((slice(0, 10), slice(10, 20))):
        lines(home / f"log_{number}.jsonl", step=STEPS[part], reward=REWARD[part], kl=KL[part])


def evaluations_of_two_runs(home: Path) -> None:
    for name in ("a", "b"):
        lines(home / f"{name}.jsonl", step=STEPS, reward=REWARD)
        lines(home / f"eval_{name}.jsonl", step=STEPS, reward=REWARD)


@each_case(
    "write",
    [
        runs_named_by_the_file,
        rewards_of_two_runs,
        charts_of_two_runs,
        runs_with_the_same_column,
        runs_of_two_programs,
        a_resumed_run,
        evaluations_of_two_runs,
    ],
)
def test_tables_of_several_runs_are_no_parts_of_one(
    tmp_path: Path, write: Callable[[Path], None]
) -> None:
    write(tmp_path)
    with pytest.raises(UnreadableRunError, match=r"^expected one run, got .*, which holds \d \("):
        run_record(tmp_path)
    assert len(runs_below(tmp_path)) > 1


def test_folders_of_the_same_metrics_are_runs(tmp_path: Path) -> None:
    runs_in_folders_of_metrics(tmp_path)
    with pytest.raises(GroupwiseError):
        run_record(tmp_path)
    assert run_record(tmp_path / "metrics" / "small").steps["reward"].to_list() == REWARD


@pytest.mark.parametrize("beside", ["", "plots/x.csv"])
def test_a_single_table_of_a_metric_is_a_log_and_beside_one_it_is_named(
    tmp_path: Path, beside: str
) -> None:
    """A table named after its column, alone or in a folder of metrics beside a log."""
    table(tmp_path / ("log.csv" if beside else "reward.csv"), "step,reward", STEPS, REWARD)
    if beside:
        (tmp_path / beside).parent.mkdir()
        table(tmp_path / beside, "step,x", STEPS, KL)
    record = run_record(tmp_path)
    assert record.steps["reward"].to_list() == REWARD
    assert any("plots/x.csv" in note for note in record.notes) == bool(beside)


def test_runs_by_name_that_are_points_stay_runs(tmp_path: Path) -> None:
    points = {"steps": STEPS, "values": REWARD}
    (tmp_path / "runs.json").write_text(json.dumps({"run_a": points, "run_b": points}))
    with pytest.raises(UnreadableRunError, match="holds 2 runs"):
        run_record(tmp_path / "runs.json")
