"""Which column tells the step: counters are no metrics, and W&B's count of calls is no step of
training.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cases import each_case
from tests.readers.writers import event_file, wandb_file

from groupwise.readers import rows as rows_module
from groupwise.readers import run_record
from groupwise.readers.rows import STEP_KEYS, is_counter
from groupwise.record.run import RunRecord

Rows = Sequence[Mapping[str, Any]]


def slime_rows(rollouts: int, each: int, every: int = 5) -> list[dict[str, Any]]:
    """Rows as slime logs them: one a rollout, one an update, one an evaluation, each with a
    counter of its own.
    """
    rows: list[dict[str, Any]] = []
    for number in range(rollouts):
        rows.append(
            {
                "rollout/step": number,
                "rollout/raw_reward": 0.3 + number / 100,
                "rollout/response_len/mean": 300.0 + number,
            }
        )
        rows += [
            {
                "train/step": each * number + at,
                "train/pg_loss": 0.0,
                "train/entropy_loss": 0.5 - number / 1000,
            }
            for at in range(each)
        ]
        if number % every == 0:
            rows.append(
                {
                    "eval/step": number,
                    "eval/aime": 0.4 - number / 200,
                    "eval/aime-truncated_ratio": 0.02 + number / 100,
                }
            )
    return rows


def trl_rows(steps: int, every: int = 5) -> list[dict[str, Any]]:
    """Rows as transformers gives them to W&B, with those of a profiler before each."""
    rows: list[dict[str, Any]] = []
    for step in range(1, steps + 1):
        rows.append({"profiling/Time taken: generate": 3.0})
        rows.append(
            {
                "train/global_step": step,
                "train/reward": step / 100,
                "train/epoch": step / steps,
                "train/grad_norm": 0.1,
            }
        )
        if step % every == 0:
            rows.append(
                {"train/global_step": step, "eval/reward": step / 200, "train/epoch": step / steps}
            )
    return rows


def verl_rows(steps: int, prefix: str = "training/global_step") -> list[dict[str, Any]]:
    """Rows as a trainer gives them that passes its own step to W&B: the evaluation before
    training has no counter.
    """
    first = {"_step": 0, "val-core/gsm8k/acc/mean@1": 0.2}
    return [
        first,
        *(
            {"_step": step, prefix: step, "critic/score/mean": step / 100}
            for step in range(1, steps + 1)
        ),
    ]


def called(rows: Rows) -> list[dict[str, Any]]:
    """The rows with W&B's count of calls."""
    return [
        {"_step": number, "_timestamp": 1.7e9 + number} | dict(row)
        for number, row in enumerate(rows)
    ]


def as_csv(path: Path, rows: Rows) -> Path:
    """A history exported as a table: empty cells where a row lacks a key."""
    names = list(dict.fromkeys(key for row in rows for key in row))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)
    return path


def as_lines(path: Path, rows: Rows) -> Path:
    """A history exported as JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def views(folder: Path, rows: Rows) -> dict[str, RunRecord]:
    """One history of W&B, as its own file and as its exports."""
    wandb_file(folder / "run.wandb", rows, {})
    return {
        "wandb": run_record(folder / "run.wandb"),
        "csv": run_record(as_csv(folder / "history.csv", rows)),
        "jsonl": run_record(as_lines(folder / "history.jsonl", rows)),
    }


def held_out(record: RunRecord) -> dict[str, str]:
    """What is read as a reward on held-out prompts."""
    return {
        meaning.quantity: meaning.column
        for meaning in record.meanings
        if meaning.quantity.startswith("eval/reward")
    }


@each_case("kind", ["jsonl", "stated", "tensorboard", "wandb", "csv"])
def test_slimes_counters_are_no_metrics(tmp_path: Path, kind: str) -> None:
    rows = slime_rows(40, 2)
    stated = [
        {"step": row.get("rollout/step", row.get("eval/step", row.get("train/step"))), **row}
        for row in rows
    ]
    if kind == "tensorboard":
        record = run_record(event_file(tmp_path / "events.out.tfevents.1.host", stated))
    elif kind == "wandb":
        record = run_record(wandb_file(tmp_path / "run.wandb", called(rows), {}))
    elif kind == "csv":
        record = run_record(as_csv(tmp_path / "history.csv", called(rows)))
    else:
        record = run_record(as_lines(tmp_path / "log.jsonl", stated if kind == "stated" else rows))
    assert held_out(record) == {"eval/reward": "eval/aime"}
    assert not [name for name in record.metrics() if is_counter(name)]
    if kind != "stated":  # there the log itself puts updates and rollouts on one count
        assert record.steps["step"].to_list() == list(range(40))
        assert record.config.value("updates_per_step") == 2
        assert record.steps["train/entropy_loss"].to_list() == pytest.approx(
            [0.5 - number / 1000 for number in range(40)]
        )


def test_other_measures_of_an_evaluation_are_no_reward(tmp_path: Path) -> None:
    row = {
        "rollout/raw_reward": 0.5,
        "eval/aime": 0.3,
        "eval/aime-truncated_ratio": 0.1,
        "eval/aime-pass@4": 0.6,
    }
    row |= {
        "eval/aime/response_len/mean": 300.0,
        "eval/aime/truncated_ratio": 0.1,
        "eval/aime/repetition_frac": 0.01,
    }
    record = run_record(
        as_lines(tmp_path / "log.jsonl", [{"step": step, **row} for step in range(5)])
    )
    assert held_out(record) == {"eval/reward": "eval/aime"}
    read = {meaning.quantity for meaning in record.meanings}
    assert {
        "eval/truncated_share/aime",
        "eval/pass_at_k/aime",
        "eval/completion_length/aime",
    } <= read


@each_case("name", [key for key in STEP_KEYS if "/" in key and "max_steps" not in key])
def test_a_counter_beside_the_step_is_no_metric(tmp_path: Path, name: str) -> None:
    rows = [
        {
            "step": step,
            name: 7 * step,
            "eval/step": step,
            "rollout/raw_reward": 0.5,
            "eval/aime": 0.4,
        }
        for step in range(6)
    ]
    record = run_record(as_lines(tmp_path / "log.jsonl", rows))
    assert not {"eval/step", name} & {
        *record.metrics(),
        *(meaning.column for meaning in record.meanings),
    }


def test_a_counter_that_the_user_names_is_kept(tmp_path: Path) -> None:
    rows = [{"step": step, "train/step": 2 * step, "reward": 0.5} for step in range(6)]
    record = run_record(
        as_lines(tmp_path / "log.jsonl", rows), columns={"optimizer_updates": "train/step"}
    )
    assert record.steps["optimizer_updates"].to_list() == [0, 2, 4, 6, 8, 10]


def test_views_of_a_history_of_trl_agree(tmp_path: Path) -> None:
    shown = views(tmp_path, called(trl_rows(30)))
    for record in shown.values():
        assert record.steps["step"].to_list() == list(range(1, 31))
        assert record.steps["train/reward"].to_list() == pytest.approx(
            [step / 100 for step in range(1, 31)]
        )
        assert [
            step
            for step, value in record.steps.select("step", "eval/reward").iter_rows()
            if value is not None
        ] == [
            5,
            10,
            15,
            20,
            25,
            30,
        ]
        assert (
            "the step of a row is its train/global_step, or that of the next row with one"
            in record.notes
        )
        assert record.config.value("logging_steps") == shown["wandb"].config.value("logging_steps")


def test_an_evaluation_before_the_first_update_hides_no_count_of_updates(tmp_path: Path) -> None:
    rows = [{"grpo_step": 0, "eval/reward": 0.1}] + [
        {"grpo_step": step, "optimizer_step": 2 * step, "reward": step / 9} for step in range(1, 9)
    ]
    record = run_record(as_lines(tmp_path / "log.jsonl", rows))
    assert record.config.value("updates_per_step") == 2


@each_case(
    ("column", "keys"),
    [
        (
            "optimizer_updates",
            "optimizer_step, optimizer_steps, optimizer_updates, num_updates, gradient_step",
        ),
        (
            "tokens",
            (
                "num_tokens, tokens, total_tokens, num_input_tokens_seen, progress/total_tokens, "
                "progress/tokens"
            ),
        ),
        (
            "seconds",
            (
                "seconds, elapsed_s, elapsed, elapsed_seconds, wall_clock_sec, time/wall_clock_sec, "
                "wall_time, _runtime, Relative Time (Process)"
            ),
        ),
    ],
)
def test_what_counts_from_the_start_is_a_clock(column: str, keys: str, tmp_path: Path) -> None:
    counts = [40.0 * step + 7 for step in range(1, 13)]
    for key in keys.split(", "):
        rows = [
            {"train_step": step, key: count, "reward": step / 20}
            for step, count in enumerate(counts, 1)
        ]
        record = run_record(as_lines(tmp_path / "log.jsonl", rows))
        assert record.steps[column].to_list() == counts, key


def test_views_of_a_history_of_slime_agree(tmp_path: Path) -> None:
    for record in views(tmp_path, called(slime_rows(30, 3))).values():
        assert record.steps["step"].to_list() == list(range(30))
        assert record.steps["train/entropy_loss"].to_list() == pytest.approx(
            [0.5 - number / 1000 for number in range(30)]
        )
        assert record.config.value("updates_per_step") == 3
        assert any("3 optimiser updates per rollout" in note for note in record.notes)


@pytest.mark.parametrize("key", ["training/global_step", "trainer/global_step"])
def test_a_trainer_that_gives_wandb_its_step(tmp_path: Path, key: str) -> None:
    for record in views(tmp_path, verl_rows(12, key)).values():
        assert record.steps["step"].to_list() == list(range(13))
        assert record.steps["val-core/gsm8k/acc/mean@1"].to_list()[:2] == [0.2, None]


def test_slime_without_rows_of_training(tmp_path: Path) -> None:
    rows = called([row for row in slime_rows(20, 1) if "train/step" not in row])
    for record in views(tmp_path, rows).values():
        assert record.steps["step"].to_list() == list(range(20))
        assert record.steps["eval/aime"].drop_nulls().to_list() == pytest.approx(
            [0.4 - number / 200 for number in (0, 5, 10, 15)]
        )


def test_a_history_with_no_other_counter(tmp_path: Path) -> None:
    for record in views(
        tmp_path, [{"_step": step, "reward": step / 10} for step in range(6)]
    ).values():
        assert record.steps["step"].to_list() == list(range(6))


@pytest.mark.parametrize("key", ["globalStep", "Global step", "trainer.global_step", "iter_num"])
def test_a_counter_in_other_spellings(key: str, tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(
        "".join(json.dumps({key: 10 * row, "meanReward": row / 8}) + "\n" for row in range(1, 5))
    )
    record = run_record(tmp_path / "log.jsonl")
    assert (record.steps["step"].to_list(), record.column("reward")) == (
        [10, 20, 30, 40],
        "meanReward",
    )


def test_a_clock_that_falls_a_few_times_in_many_rows_is_one() -> None:
    for falls, clocked in ((4, True), (30, False)):
        epoch = np.arange(100) / 8 + 0.05
        epoch[100 - 3 * falls :: 3] -= 1.0
        rows = np.ones(100, dtype=bool)
        numbered, clock = rows_module._numbered(epoch, rows, rows)
        assert (clock is not None) is clocked
        assert (numbered.tolist() == list(range(1, 101))) is not clocked


@each_case("later", [range(10, 30), range(20, 30)])
def test_a_step_that_an_upgrade_renames_goes_on(later: Sequence[int], tmp_path: Path) -> None:
    """Whichever of both names more rows have; a counter of rows in between is of something else."""
    rows = [{"global_step" if at in later else "step": at, "reward": at / 32} for at in range(30)]
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run_record(log).steps["step"].to_list() == list(range(30))
    rows.insert(25, {"update": 900, "eval/reward": 0.5})
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run_record(log).steps["step"].to_list() == list(range(30))
