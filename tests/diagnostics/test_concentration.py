"""A spent entropy: what it needs beside it to be a failure, the lengths of its stretches, and texts
in its place.

Rows alternate about their level, so that means of even stretches are exact.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.cases import each_case
from tests.golden.sentences import says

from groupwise.diagnostics.completions import _settles, concentration
from groupwise.diagnostics.judgement import Fact, Finding, Status
from groupwise.diagnostics.signals import Evidence
from groupwise.record.run import Meaning, RunRecord, rollouts_table, steps_table

NAMES = {
    "reward": "reward",
    "entropy": "entropy",
    "dead": "dead_group_share",
    "spread": "reward_std_within_group",
    "gradient": "gradient_norm",
}
N = 120
ROW = np.arange(N)
SPENT = np.where(ROW < 60, 1.0, 0.02)


def about(level: Any, by: float = 0.002) -> NDArray[np.float64]:
    values = np.asarray(level, dtype=float)
    return np.asarray(values + by * (-1.0) ** np.arange(values.size))


def evidence(rows: Any = None, **columns: Any) -> Evidence:
    given = {key: np.asarray(value, dtype=float) for key, value in columns.items()}
    meanings = tuple(Meaning(key, NAMES[key], "test") for key in given)
    steps = steps_table(range(1, len(next(iter(given.values()))) + 1), given)
    return Evidence(RunRecord("run", steps, rollouts_table(rows or []), meanings=meanings))


def finding_of(rows: Any = None, **columns: Any) -> Finding:
    return concentration(evidence(rows, **columns))


def since(before: float, after: float) -> NDArray[np.float64]:
    return np.where(ROW < 60, before, after)


STANDS = about(np.full(N, 0.5))


@pytest.mark.parametrize(
    ("left", "gained", "status"),
    [
        (0.0171, 0.0, Status.INFO),
        (0.0170, 0.0, Status.WARNING),
        (0.001, 0.5, Status.INFO),
    ],  # a hundredth of e - 1 is .01718
)
def test_an_entropy_that_is_gone_asks_for_a_look_where_noisy_rows_show_no_gain(
    left: float, gained: float, status: Status
) -> None:
    reward = (
        0.3
        + 0.3 * np.random.default_rng(3).uniform(-1, 1, N)
        + gained * np.clip(ROW - 60, 0, None) / 60
    )
    finding = finding_of(reward=reward, entropy=since(1.0, left))
    assert (finding.status, finding.facts) == (status, (Fact.ENTROPY_LOW,))


@each_case(
    ("beside", "status"),
    [
        ({}, Status.WARNING),
        ({"dead": since(0.2, 0.51)}, Status.CRITICAL),
        ({"dead": since(0.2, 0.5)}, Status.WARNING),  # half of the groups teach
        ({"dead": since(0.8, 0.8)}, Status.WARNING),  # no more than before
        ({"spread": since(0.4, 0.19)}, Status.CRITICAL),
        ({"spread": since(0.4, 0.21)}, Status.WARNING),
        ({"gradient": since(1.0, 0.09)}, Status.CRITICAL),
        ({"gradient": since(1.0, 0.11)}, Status.WARNING),
        (
            {"spread": since(0.4, 0.3), "gradient": since(1.0, 0.01)},
            Status.WARNING,
        ),  # the spread says more
    ],
)
def test_a_spent_entropy_is_a_failure_where_the_groups_have_become_alike(
    beside: dict[str, Any], status: Status
) -> None:
    finding = finding_of(reward=STANDS, entropy=SPENT, **beside)
    assert (finding.status, finding.step) == (status, 61)
    says("diagnostics/concentration/1", finding.message)
    assert finding.facts == (Fact.ENTROPY_GONE if status is Status.CRITICAL else Fact.ENTROPY_LOW,)
    assert finding.value is not None
    assert (finding.value.value, finding.value.low, finding.value.high) == pytest.approx(
        [np.expm1(0.02) / np.expm1(1.0)] * 3
    )


def test_a_reward_that_fell_for_good_does_not_stand() -> None:
    finding = finding_of(reward=about(since(0.5, 0.03)), entropy=SPENT)
    says("diagnostics/concentration/2", finding.message)


@each_case(
    ("reward", "status", "stands"),
    [
        (about(np.full(N, 0.95)), Status.INFO, "with the reward at its maximum"),
        (about(np.full(N, 0.89)), Status.CRITICAL, "and the reward is flat"),
        (
            about(np.interp(ROW, [0, 60, 119], [0.3, 0.3, 0.5])),
            Status.WARNING,
            "and the reward is not seen to be flat",
        ),
        # Of a reward of unknown range that rose all prompts may earn the most where its rows
        # scatter no more than before.
        (
            np.interp(ROW, [0, 60, 119], [3.0, 5.0, 5.0]) + since(0.1, 0.09) * (-1.0) ** ROW,
            Status.WARNING,
            "and the reward is flat",
        ),
        (
            np.interp(ROW, [0, 60, 119], [3.0, 5.0, 5.0]) + since(0.1, 0.12) * (-1.0) ** ROW,
            Status.CRITICAL,
            "and the reward is flat",
        ),
        (about(np.full(N, 5.0), 0.1), Status.CRITICAL, "and the reward is flat"),
    ],
)
def test_a_spent_entropy_of_a_reward_that_has_arrived_or_still_moves(
    reward: Any, status: Status, stands: str
) -> None:
    finding = finding_of(reward=reward, entropy=SPENT, dead=since(0.2, 0.9))
    assert finding.status is status
    says("diagnostics/concentration/6", finding.message, stands=stands)


@pytest.mark.parametrize(("errors", "arrived"), [(3.01, True), (2.99, False)])
def test_a_reward_of_unknown_range_may_have_arrived_where_it_rose_by_three_errors(
    errors: float, arrived: bool
) -> None:
    """From the first eighth to the last, fifteen rows each, with a noise of 0.1 a row; in
    between it stands at the middle.
    """
    reward = np.repeat([3.0, 3.2, 3.4], [15, 90, 15])
    given = evidence(reward=reward)
    rewards = given.reward
    assert rewards is not None
    object.__setattr__(given, "reward", replace(rewards, deviation=0.4 / errors / np.sqrt(2 / 15)))
    assert (_settles(given, 61) <= 1) is arrived


@pytest.mark.parametrize(("times", "status"), [(1.0, Status.WARNING), (1.2, Status.CRITICAL)])
def test_a_reward_of_tenths_may_have_arrived_at_a_tenth(times: float, status: Status) -> None:
    """It rises from 0.04 to 0.098 and stands; one that goes beyond is far below its top of 1."""
    reward = about(times * np.minimum(0.04 + 0.0012 * ROW, 0.098), 0.0005)
    assert finding_of(reward=reward, entropy=SPENT, dead=since(0.3, 0.9)).status is status


def test_the_levels_of_an_entropy_are_those_of_its_first_fortieth_and_its_last_tenth() -> None:
    entropy = np.repeat([1.0, 0.9, 0.5], [3, 105, 12])
    finding = finding_of(reward=STANDS, entropy=entropy)
    assert finding.status == Status.NONE
    says("diagnostics/concentration/5", finding.message)


@pytest.mark.parametrize(("start", "spent"), [(0.02 * 20.5, True), (0.02 * 19.0, False)])
def test_an_entropy_is_spent_at_a_twentieth_of_what_it_could_buy(start: float, spent: bool) -> None:
    """What it buys is e^H - 1: of e^.02 - 1 = .0202 twenty times as much is .404, an entropy of
    .3393.
    """
    entropy = since(float(np.log1p(start)), 0.02)
    assert (finding_of(reward=STANDS, entropy=entropy).status is not Status.NONE) is spent


def test_seven_rows_of_entropy_tell_nothing() -> None:
    assert (
        finding_of(reward=STANDS[:7], entropy=np.linspace(1.0, 0.5, 7)).status is Status.NOT_LOGGED
    )
    assert finding_of(reward=STANDS[:8], entropy=np.linspace(1.0, 0.5, 8)).status is Status.NONE


def rollouts(alike: Any) -> list[dict[str, Any]]:
    """Four prompts a step with two completions each: of so many prompts they are the same text."""
    return [
        {
            "step": step + 1,
            "prompt_id": prompt,
            "reward": 0.5,
            "completion": "x" if prompt < count else f"{step} {prompt} {side}",
        }
        for step, count in enumerate(alike)
        for prompt in range(4)
        for side in range(2)
    ]


@pytest.mark.parametrize(("alike", "status"), [(3, Status.CRITICAL), (2, Status.WARNING)])
def test_answers_that_become_the_same_text_say_that_the_policy_is_spent(
    alike: int, status: Status
) -> None:
    assert (
        finding_of(
            rollouts(np.where(ROW < 60, 0, alike)),
            reward=STANDS,
            entropy=SPENT,
            dead=since(0.2, 0.2),
        ).status
        is status
    )


@pytest.mark.parametrize(("level", "status"), [(0.5, Status.CRITICAL), (0.95, Status.INFO)])
def test_texts_alone_tell_since_when_most_pairs_are_the_same(level: float, status: Status) -> None:
    finding = finding_of(rollouts(np.where(ROW < 60, 1, 3)), reward=about(np.full(N, level)))
    assert (finding.status, finding.step) == (status, 61)
    says("diagnostics/concentration/3", finding.message)
    assert finding.facts == (
        Fact.ENTROPY_GONE if status is Status.CRITICAL else Fact.ENTROPY_SPENT_AT_TOP,
    )
    assert (
        finding_of(rollouts(np.full(7, 3)), reward=about(np.full(7, level))).status
        is Status.NOT_LOGGED
    )
    few = finding_of(rollouts(np.repeat([1, 2], [108, 12])), reward=STANDS)
    says("diagnostics/concentration/4", few.message)


def test_the_entropy_of_the_sign_and_of_the_sentence_is_that_of_the_start() -> None:
    """It falls by and by: that of the rows just before is a third number."""
    entropy = about(np.interp(ROW, [0, 5, 60, 61, 119], [1.0, 1.0, 0.2, 0.02, 0.02]))
    finding = finding_of(entropy=entropy, reward=STANDS)
    (sign,) = finding.signs
    assert sign.words == "entropy 0.02 (was 1.00 at the start)"
    assert sign.before == pytest.approx(1.0, abs=0.01)
    assert finding.message.startswith("the entropy was 1.00 at the start and is 0.02 nats a token")
