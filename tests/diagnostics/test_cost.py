"""What a run cost, by hand: steps, rollouts, tokens, hours of GPUs and money, spent, since the
first sign, and to come.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cases import each_case
from tests.golden.sentences import says

from groupwise.diagnostics.judge import judge
from groupwise.diagnostics.judgement import NO_CLOCK, NO_GPUS, Cost, State, cost_since, cost_to_come
from groupwise.readers import run_record
from groupwise.record.run import RunConfig, RunRecord
from groupwise.record.table import steps_table

STEPS = np.arange(1, 101)
SETTINGS = {
    "group_size": 8,
    "prompts_per_step": 4,
    "gpus": 16,
    "gpu_price": 2.5,
    "planned_steps": 150,
}


def record(settings: dict[str, Any] | None = None, **clocks: Any) -> RunRecord:
    reward = np.where(STEPS <= 60, 0.8, 0.0) + 0.01 * (-1.0) ** STEPS
    config = RunConfig().with_settings(SETTINGS if settings is None else settings, "--set")
    return RunRecord(
        "made", steps_table(STEPS.tolist(), {"reward": reward}, **clocks), config=config
    )


def test_a_failure_by_hand() -> None:
    """A minute a step until step 50, then two; 1,000 tokens a step; the reward is lost at step
    61.
    """
    seconds = np.where(STEPS <= 50, 60.0 * STEPS, 3000 + 120.0 * (STEPS - 50))
    judgement = judge(record(tokens=1000.0 * STEPS, seconds=seconds))
    assert (judgement.state, judgement.since_step) == (State.FAILED, 61)
    assert judgement.cost is not None
    assert (
        judgement.cost.steps,
        judgement.cost.rollouts,
        judgement.cost.seconds,
        judgement.cost.tokens,
    ) == (
        40,
        40 * 32,
        4800.0,
        40_000.0,
    )
    assert judgement.cost.gpu_hours == pytest.approx(40 * 120 / 3600 * 16)
    assert judgement.cost.money == pytest.approx(40 * 120 / 3600 * 16 * 2.5)
    assert judgement.spent is not None
    assert (
        judgement.spent.steps,
        judgement.spent.rollouts,
        judgement.spent.tokens,
        judgement.spent.seconds,
    ) == (
        100,
        3200,
        100_000.0,
        9000.0,
    )
    assert judgement.to_come is not None  # at the pace of the newer half
    assert (
        judgement.to_come.steps,
        judgement.to_come.rollouts,
        judgement.to_come.tokens,
        judgement.to_come.seconds,
    ) == (50, 1600, 50_000.0, 6000.0)
    assert judgement.to_come.money == pytest.approx(6000 / 3600 * 16 * 2.5)
    assert judgement.cost.parts == (
        "40 of 100 steps (40 %) since the first sign",
        "1,280 rollouts",
        "80 min",
        "40 k tokens",
    )
    says("diagnostics/cost/1", judgement.gpu_hours)


@each_case(
    ("clock", "seconds"),
    [
        ({"step_time": [10, 10, 10, 10]}, 40.0),  # of each step, the first included
        ({"step_time": [60, 10, 10, 10]}, 90.0),  # which compiles
        ({"elapsed": [10, 20, 30, 40]}, 40.0),  # since the run began
        ({"elapsed": [75, 85, 95, 105]}, 105.0),  # which took a minute to load the model
        ({"elapsed": [0, 10, 20, 30]}, 40.0),  # since the first row: a usual row stands in for it
        ({"timestamp": [1.7e9, 1.7e9 + 10, 1.7e9 + 20, 1.7e9 + 30]}, 40.0),  # of the day: the same
        (
            {
                "timestamp": [1.7e9, 1.7e9 + 10, 1.7e9 + 20, 1.7e9 + 30],
                "step_time": [25, 10, 10, 10],
            },
            55.0,
        ),  # which that says
        (
            {"env/all/reward/total": [0.1, 0.2, 0.3, 0.4], "time/total": [20, 10, 10, 10]},
            50.0,
        ),  # Tinker's name
        ({"wall_time": [1.7e9, 1.7e9 + 10, 1.7e9 + 20, 1.7e9 + 30]}, 40.0),
        ({"elapsed": [5010, 5020, 5030, 5040]}, 40.0),  # since a start that this log does not hold
        ({"elapsed": [None, 20, 30, 40]}, 40.0),  # two steps until the first row that has it
        ({"step_time": [None, 10, 10, 10]}, 40.0),
        ({"elapsed": [10, None, None, None]}, None),
    ],
)
def test_the_first_row_took_its_time_too(
    clock: dict[str, list[float | None]], seconds: float | None, tmp_path: Path
) -> None:
    log = tmp_path / "run.jsonl"
    rows = [
        {
            "step": 1 + row,
            "reward": 0.1 * row,
            **{name: values[row] for name, values in clock.items()},
        }
        for row in range(4)
    ]
    log.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    record = run_record(log)
    cost = cost_since(record, None)
    assert cost is not None
    assert (cost.steps, cost.seconds) == (4, seconds)
    assert record.steps["seconds"].max() < 1e4  # type: ignore[operator] # and no time since 1970


def test_an_evaluation_before_the_training_takes_no_time_of_a_step(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    rows = [
        {"step": 0, "eval_reward": 0.1},
        *({"step": step, "reward": 0.1 * step, "step_time": 10} for step in (1, 2, 3)),
    ]
    log.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    cost = cost_since(run_record(log), None)
    assert cost is not None
    assert cost.seconds == 30.0


@each_case(("lacks", "seconds"), [(None, 200.0), (2, 200.0), (30, None)])
def test_time_that_rows_lack_is_left_out_and_a_row_of_validation_alone_is_no_step(
    lacks: int | None, seconds: float | None, tmp_path: Path
) -> None:
    log = tmp_path / "run.jsonl"
    rows: list[dict[str, float]] = [
        {"step": step, "reward": 0.02 * step, "step_time": 10, "step_tokens": 500}
        for step in range(1, 41)
    ]
    if lacks:
        del rows[lacks - 1]["step_time"]
    rows.append({"step": 41, "val_reward": 0.5})
    log.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    cost, after = (cost_since(run_record(log), step) for step in (21, 41))
    assert cost is not None
    assert (cost.steps, cost.of_steps, cost.seconds) == (20, 40, seconds)
    assert after is None


def test_what_is_not_known_is_none_and_never_a_number() -> None:
    cost = cost_since(record({}), 61)
    assert cost == Cost(40, None, None, 100)
    (note,) = cost.parts
    says("diagnostics/cost/2", note)
    assert cost_since(record({"gpus": 4, "gpu_price": 1.0}), None) == Cost(
        100, None, None, 100, missing=NO_CLOCK
    )
    assert cost_since(record({"gpu_price": 1.0}, seconds=3600.0 * STEPS), None) == Cost(
        100, None, 360_000.0, 100, missing=NO_GPUS
    )
    hours = cost_since(record({"gpus": 4}, seconds=3600.0 * STEPS), 100)
    assert hours is not None
    assert (hours.gpu_hours, hours.money) == (4.0, None)
    assert cost_since(RunRecord.empty("made"), None) is None


@pytest.mark.parametrize("planned", [None, 50, 100])
def test_nothing_is_to_come_where_no_plan_says_so_or_it_is_done(planned: int | None) -> None:
    assert cost_to_come(record({} if planned is None else {"planned_steps": planned})) is None
    assert cost_to_come(RunRecord.empty("made")) is None


def test_clocks_of_one_row_have_no_pace() -> None:
    once = np.where(STEPS == 70, 1.0, np.nan)
    assert cost_to_come(record(tokens=once, seconds=once)) == Cost(50, 1600, missing=NO_CLOCK)
