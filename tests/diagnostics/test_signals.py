"""Signals: means, changes and noise by hand; the e-process keeps its false-alarm rate over the
whole run, and places an onset.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.cases import each_case

from groupwise.arrays import median
from groupwise.diagnostics.signals import (
    Evidence,
    NoisyMetric,
    alarm,
    blocks,
    change_evidence,
    ends_of,
    evidence_start,
    gained_since,
    lowest_grade,
    rare_event_factors,
    signal_of,
    since_when,
    stands_since,
)
from groupwise.intervals import Interval
from groupwise.record.run import Meaning, RunRecord, rollouts_table, steps_table
from groupwise.wording import count


def test_the_factors_are_fair_at_the_edge_of_the_null() -> None:
    factors = np.exp(rare_event_factors(np.array([True, False]), 0.2))
    assert 0.2 * factors[0] + 0.8 * factors[1] == pytest.approx(1.0)


def test_the_process_starts_at_one_and_is_the_mixture_over_starts() -> None:
    factors = np.log(np.array([2.0, 0.5, 3.0]))
    # Starts at rows 1, 2 and 3, each with weight 1/3.
    expected = [(2 + 2) / 3, (2 * 0.5 + 0.5 + 1) / 3, (2 * 0.5 * 3 + 0.5 * 3 + 3) / 3]
    np.testing.assert_allclose(np.exp(change_evidence(factors)), expected, atol=1e-12)


def test_false_alarms_over_whole_runs_stay_below_the_rate() -> None:
    rng = np.random.default_rng(1)
    alarms = sum(
        alarm(rare_event_factors(rng.random(100) < 0.2, 0.2), rate=0.05) is not None
        for _ in range(2000)
    )
    assert alarms / 2000 <= 0.05


def test_an_onset_is_the_first_row_that_counts() -> None:
    event = np.array([False] * 30 + [True] * 10)
    at = alarm(rare_event_factors(event, 0.2), rate=0.005)
    assert at is not None
    assert (at.onset, at.lasts) == (30, True)
    assert evidence_start(np.array([0.0, 0.0, 1.0])) == 2
    last = alarm(np.array([0.0, 0.0, np.log(300)]), rate=0.02)  # the row that crosses counts
    assert last is not None
    assert (last.onset, last.lasts) == (2, True)


def test_nothing_is_no_alarm() -> None:
    assert alarm(np.empty(0), rate=0.01) is None


def test_an_alarm_is_where_the_process_crosses_and_nowhere_else() -> None:
    """Also where the bets that were won only just suffice."""
    rng = np.random.default_rng(2)
    alarms = 0
    for share in rng.uniform(0.0, 0.5, size=300):
        factors = rare_event_factors(rng.random(30) < share, 0.2)
        crossed = bool((change_evidence(factors) >= -np.log(0.02)).any())
        assert (alarm(factors, rate=0.02) is not None) == crossed
        alarms += crossed
    assert 30 < alarms < 270
    assert alarm(np.array([np.log(50.1)]), rate=0.02) is not None
    assert alarm(np.array([np.log(49.9)]), rate=0.02) is None


def test_the_median_is_that_of_numpy() -> None:
    rng = np.random.default_rng(3)
    for value in (rng.standard_normal(size) for size in range(1, 40)):
        assert median(value) == np.median(value)


def made(
    value: Any, deviation: float = 0.1, bounds: tuple[float, float] | None = None
) -> NoisyMetric:
    """Rows at steps 1, 2, 3 and so on, with a noise that is given."""
    values = np.asarray(value, dtype=float)
    return NoisyMetric("x", np.arange(1, values.size + 1), values, deviation, deviation, bounds)


def test_a_mean_and_a_change_have_their_normal_intervals() -> None:
    """Of 1, 2, 3 and 4: a mean of 2.5 with an error of .1/2; from the first two to the last two
    2 with an error of .1.
    """
    rows = made([1.0, 2.0, 3.0, 4.0])
    assert ends(rows.mean(slice(None))) == pytest.approx((2.5, 2.5 - 0.098, 2.5 + 0.098))
    assert ends(made([1.0, 2.0, 3.0, 4.0], bounds=(2.45, 2.55)).mean(slice(None))) == (
        2.5,
        2.45,
        2.55,
    )
    assert ends(rows.change(slice(0, 2), slice(2, 4))) == pytest.approx((2.0, 2 - 0.196, 2 + 0.196))
    assert rows.score(slice(0, 2), slice(2, 4)) == pytest.approx(20.0)
    assert rows.score(slice(3, 4), slice(0, 3)) == pytest.approx(-2 / (0.1 * np.sqrt(4 / 3)))
    assert rows.score(slice(0, 1), slice(0, 1)) == 0.0
    assert made([1.0, 2.0], 0.0).score(slice(1, 2), slice(0, 1)) == -np.inf


def test_rows_that_are_not_there_tell_nothing() -> None:
    nothing = made([1.0, 2.0]).change(slice(0, 0), slice(0, 2))
    assert (np.isnan(nothing.value), nothing.low, nothing.high) == (True, -np.inf, np.inf)
    assert made([1.0, 2.0]).score(slice(0, 2), slice(2, 2)) == 0.0
    assert np.isnan(made([1.0]).mean(slice(1, 1)).value)


def ends(value: Interval) -> tuple[float, float, float]:
    return value.value, value.low, value.high


def test_a_step_has_its_first_row() -> None:
    sparse = NoisyMetric("x", np.array([2, 4, 6]), np.zeros(3), 0.1, 0.1)
    assert [sparse.at(step) for step in (1, 2, 3, 4, 7)] == [0, 0, 1, 1, 3]


# The square root of the variance of a second difference of white noise times the median of a
# squared normal.
UNIT = np.sqrt(6 * 0.4549)


@each_case(
    ("value", "deviation", "scatter"),
    [
        ([1.0, -1.0] * 4, 4 / UNIT, 4 / UNIT),
        ([1.0, -1.0] * 2, 0.0, 4 / UNIT),  # of fewer than five rows the noise of a mean is not told
        ([1.0, -1.0, 1.0, -1.0, 1.0], 4 / UNIT, 4 / UNIT),
        (
            [1.0, 1.0, -1.0, -1.0] * 5,
            4 * np.sqrt(2) / UNIT,
            2 / UNIT,
        ),  # ten pairs: the noise is slow
        (([1.0, 1.0, -1.0, -1.0] * 5)[1:], 2 / UNIT, 2 / UNIT),  # nine pairs are too few
        (
            np.repeat([1.0, -1.0] * 5, 4),
            8 / UNIT,
            0.6 * np.sqrt(4 * 18 / 38 / 6),
        ),  # ten blocks of four
        (
            [0.0] * 5 + [1.0] + [0.0] * 4,
            0.0,
            0.6 * np.sqrt(6 / 8 / 6),
        ),  # one row of ten leaves second differences of 1, 2 and 1
        ([0.5, 0.7], 0.0, 0.0),
    ],
)
def test_the_noise_of_rows_by_hand(value: Any, deviation: float, scatter: float) -> None:
    values = np.asarray(value, dtype=float)
    signal = signal_of("x", np.arange(values.size), values)
    assert (signal.deviation, signal.scatter) == pytest.approx((deviation, scatter))
    least = signal_of("x", np.arange(values.size), values, sampling=9.0)
    assert (least.deviation, least.scatter) == (9.0, 9.0)


def test_the_ends_of_a_log_are_a_fifth_each_or_all_of_it() -> None:
    for rows, few in ((6, 3), (19, 3), (20, 4), (100, 20)):
        assert ends_of(made(np.zeros(rows))) == (slice(0, few), slice(rows - few, rows))
    assert ends_of(made(np.zeros(5))) == (slice(0, 5), slice(0, 5))


def test_blocks_hold_every_row_once() -> None:
    means, first = blocks(made(np.arange(10)), 3)
    assert (means.tolist(), first.tolist()) == ([1.0, 4.0, 7.5], [0, 3, 6])
    assert blocks(made([1.0, 3.0]), 5)[0].tolist() == [2.0]


def test_numbers_in_words() -> None:
    assert [count(1, "row"), count(2, "row"), count(1_000, "stretch", "stretches")] == [
        "1 row",
        "2 rows",
        "1,000 stretches",
    ]


def with_reward(signal: NoisyMetric) -> Evidence:
    """A run whose reward has a noise and a range that are given."""
    evidence = Evidence(
        RunRecord("run", steps_table(range(1, len(signal) + 1), {"reward": signal.value_T}))
    )
    vars(evidence)["reward"] = signal
    return evidence


@pytest.mark.parametrize(("errors", "gained"), [(2.01, True), (1.99, False)])
def test_a_reward_has_gained_since_a_step_by_two_errors_between_the_thirds_since(
    errors: float, gained: bool
) -> None:
    """Eleven rows since step 5 have thirds of three."""
    value = np.r_[np.full(4, 9.0), np.zeros(8), np.full(3, errors * 0.1 * np.sqrt(2 / 3))]
    assert gained_since(with_reward(made(value)), 5) is gained
    assert not gained_since(with_reward(made(value)), None)


@each_case(
    ("deviation", "bounds", "rows", "stands"),
    [
        (
            0.046,
            (0.0, 1.2),
            9,
            True,
        ),
        # the gain is .075 at most, with an error of .046·sqrt(2/3): .15 of the .5 that were left
        (0.048, (0.0, 1.2), 9, False),
        (0.046, (0.0, 1.2), 8, False),
        (
            0.046,
            None,
            9,
            True,
        ),  # where the top is not known what was gained before counts, here as much
        (0.048, None, 9, False),
    ],
)
def test_a_reward_stands_where_its_gain_is_little_of_what_was_left(
    deviation: float, bounds: tuple[float, float] | None, rows: int, stands: bool
) -> None:
    value = np.r_[np.full(6, 0.2), np.full(rows, 0.7)]
    assert stands_since(with_reward(made(value, deviation, bounds)), 7) is stands


def test_a_lowest_grade_is_shared_by_more_than_one_of_a_hundred_of_fifty_rollouts_and_more() -> (
    None
):
    for low, rest, level in ((1, 98, -1.0), (1, 99, None), (25, 25, -1.0), (25, 24, None)):
        rows = [
            {"step": 1, "prompt_id": i, "reward": -1.0 if i < low else 0.5 + i}
            for i in range(low + rest)
        ]
        assert (
            lowest_grade(
                RunRecord("run", steps_table([1], {"reward": [0.0]}), rollouts_table(rows))
            )
            == level
        )


@pytest.mark.parametrize(("rows", "since"), [(5, None), (6, 24)])
def test_an_event_that_was_rare_is_there_after_six_rows_of_thirty(
    rows: int, since: int | None
) -> None:
    """Each row wins .9/.2 = 4.5 times, one without it loses seven of eight: after five 88 of the
    200 that are asked for, after six 395.
    """
    assert since_when(np.arange(30) >= 30 - rows) == since


@pytest.mark.parametrize(("last", "still"), [((True, False), True), ((False, False), False)])
def test_an_event_is_there_to_the_end_where_half_of_the_last_rows_have_it(
    last: tuple[bool, bool], still: bool
) -> None:
    event = np.r_[np.zeros(20, bool), np.ones(18, bool), last]
    assert (since_when(event) is not None) is still
    assert since_when(event, still=False) == 20


@pytest.mark.parametrize("column", ["eval/reward", "answer_accuracy"])
def test_without_a_training_reward_the_held_out_one_or_an_accuracy_is_the_reward(
    column: str,
) -> None:
    value = np.linspace(0.1, 0.9, 20)
    rewards = Evidence(
        RunRecord("run", steps_table(range(1, 21), {column: value, "loss": value}))
    ).reward
    assert rewards is not None
    assert (rewards.column, rewards.value_T.tolist()) == (column, value.tolist())


def test_a_column_of_one_number_is_no_signal() -> None:
    for rows, is_seen in ((1, False), (2, True)):
        value = np.where(np.arange(20) < rows, 0.5, np.nan)
        record = RunRecord(
            "run",
            steps_table(range(1, 21), {"entropy": value}),
            meanings=(Meaning("entropy", "entropy", ""),),
        )
        assert (Evidence(record).quantity("entropy") is not None) is is_seen
