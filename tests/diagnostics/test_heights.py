"""The reward in a few heights: means of neighbouring rows, whatever is missing."""

from __future__ import annotations

import math

import pytest

from groupwise.diagnostics.judge import judge, reward_heights
from groupwise.diagnostics.signals import Evidence
from groupwise.record.run import RunRecord
from groupwise.record.table import steps_table


def heights(reward: list[float], **asked: int) -> tuple[float | None, ...]:
    record = RunRecord("demo", steps_table(range(len(reward)), {"reward": reward}))
    return reward_heights(Evidence(record), **asked)


def test_rows_are_averaged_and_scaled_from_0_to_the_top() -> None:
    assert heights([0.2, 0.4, 0.6, 0.6], cells=2) == pytest.approx((0.5, 1.0))
    assert heights([0.5, 0.5, 0.5]) == (1.0, 1.0, 1.0)  # one level keeps its height
    assert heights([-1.0, 0.0, 1.0]) == (0.0, 0.5, 1.0)
    assert heights([-2.0, -1.0]) == (0.0, 0.5)
    assert heights([0.0, 0.0]) == (0.0, 0.0)


def test_a_long_run_has_at_most_40_cells() -> None:
    assert len(heights([float(step) for step in range(1000)])) == 40


def test_rows_without_a_finite_reward_leave_a_gap() -> None:
    assert heights([0.5, math.nan, math.inf, 1.0]) == (0.5, None, None, 1.0)
    assert heights([math.nan, math.nan]) == ()
    assert judge(RunRecord("demo", steps_table([1], {"entropy": [1.0]}))).heights == ()


def test_the_reward_is_the_one_that_is_judged() -> None:
    """A reward on held-out prompts where there is no other, logged once in a while: its rows,
    without the gaps between them.
    """
    held_out = [math.nan if step % 3 else step / 12 for step in range(13)]
    record = RunRecord(
        "demo", steps_table(range(13), {"entropy": [1.0] * 13, "eval_reward": held_out})
    )
    assert judge(record).heights == (0.0, 0.25, 0.5, 0.75, 1.0)
