"""A rate that destroys the policy changes its answers as the reward goes; a verifier does not."""

from __future__ import annotations

import numpy as np
from tests.cases import each_case

from groupwise.diagnostics.judgement import Fact
from groupwise.diagnostics.numerics import pace
from groupwise.diagnostics.signals import Evidence
from groupwise.record.run import Meaning, RunRecord, steps_table

ROWS = 30


@each_case(
    ("name", "behaviour_T", "destroyed"),
    [
        # Half of it goes with the reward.
        ("entropy", np.where(np.arange(ROWS) < 2, 0.6, 0.3), True),
        # It goes by and by, as of a policy that learns the little that is left.
        ("entropy", np.linspace(0.6, 0.1, ROWS), False),
        # It halves within ten updates, too fast for that.
        ("entropy", np.maximum(0.6 - 0.04 * np.arange(ROWS), 0.2), True),
        ("entropy", np.full(ROWS, 0.6), False),
        ("truncated_share", np.where(np.arange(ROWS) < 2, 0.03, 0.9), True),
        ("truncated_share", np.minimum(0.1 * np.arange(ROWS), 0.9), True),
        ("truncated_share", np.full(ROWS, 0.9), False),
        # A twentieth and less is nothing.
        ("truncated_share", np.where(np.arange(ROWS) < 2, 0.001, 0.04), False),
    ],
)
def test_a_policy_is_destroyed_where_its_answers_change_as_the_reward_goes(
    name: str, behaviour_T: np.ndarray, destroyed: bool
) -> None:
    reward = np.where(np.arange(ROWS) < 2, 0.2, 0.03)
    reward += 0.005 * np.random.default_rng(0).standard_normal(ROWS)
    names = ("reward", name)
    run = RunRecord(
        "run",
        steps_table(range(1, ROWS + 1), {"reward": reward, name: behaviour_T}),
        meanings=tuple(Meaning(name, name, "test") for name in names),
    )
    assert (Fact.DESTROYED_AT_ONCE in pace(Evidence(run)).facts) is destroyed


def test_a_reward_that_came_back_to_half_was_not_destroyed() -> None:
    rows = 100
    reward = np.where(np.arange(rows) < 2, 0.2, np.where(np.arange(rows) < 85, 0.03, 0.12))
    entropy = np.where(np.arange(rows) < 2, 0.6, 0.3)
    for until, destroyed in ((85, True), (rows, False)):
        columns = {"reward": reward[:until], "entropy": entropy[:until]}
        run = RunRecord(
            "run",
            steps_table(range(1, until + 1), columns),
            meanings=tuple(Meaning(name, name, "test") for name in columns),
        )
        assert (Fact.DESTROYED_AT_ONCE in pace(Evidence(run)).facts) is destroyed


@each_case("rows", [2, 5, 11])
def test_a_behaviour_that_is_logged_in_few_rows_is_asked_for_those(rows: int) -> None:
    reward = np.where(np.arange(ROWS) < 2, 0.2, 0.03)
    reward += 0.005 * np.random.default_rng(0).standard_normal(ROWS)
    for logged in (slice(rows), slice(-rows, None)):
        entropy = np.full(ROWS, np.nan)
        entropy[logged] = np.linspace(0.6, 0.2, rows)
        run = RunRecord(
            "run",
            steps_table(range(1, ROWS + 1), {"reward": reward, "entropy": entropy}),
            meanings=tuple(Meaning(name, name, "test") for name in ("reward", "entropy")),
        )
        assert pace(Evidence(run)).message
