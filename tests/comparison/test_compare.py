"""Groups of runs compared: windows, levels to reach, shared rates and sentences, on runs whose
numbers are known exactly.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.cases import each_case

from groupwise.comparison.compare import (
    Comparison,
    Contrast,
    Curve,
    Measured,
    Question,
    curve,
    group_comparison,
    holm,
    late_level,
    minimum_detectable,
    with_status,
)
from groupwise.errors import InvalidArgumentError
from groupwise.intervals import Interval

ROWS = 81
STEP = np.arange(float(ROWS))


def exactly(*values: float, error: float = 0.0) -> list[Measured]:
    return [
        Measured(Interval(value, value - 1.96 * error, value + 1.96 * error), error)
        for value in values
    ]


def ramp(end: float, pace: float = 40.0, start: float = 0.0) -> Curve:
    """From the start to the end in so many steps, without noise, and flat from there."""
    value = start + (end - start) * np.minimum(STEP / pace, 1.0)
    return Curve(STEP, value, value)


def compared(*groups: list[Curve], question: Question | None = None) -> Comparison:
    return group_comparison(groups, question or Question(), np.random.default_rng(1))


FIRST, SECOND = [ramp(0.6), ramp(0.62), ramp(0.61)], [ramp(0.8), ramp(0.83), ramp(0.82)]


def test_level_and_speed_of_exact_runs() -> None:
    """The last quarter of steps 0 to 80.

    Half of the way to the first group's .61 from the mean of the first nine rows.
    """
    comparison = compared(FIRST, SECOND)
    early = np.mean([run.value_T[:9].mean() for run in (*FIRST, *SECOND)])
    assert (comparison.late_from, comparison.late_to, comparison.level) == (60.0, 80.0, 0.95)
    assert comparison.reach == pytest.approx((early + 0.61) / 2)
    level, speed = comparison.pairings[0].contrasts
    assert [pairing.quantity for pairing in (level, speed)] == ["level", "speed"]
    assert level.difference.value == pytest.approx(2.45 / 3 - 0.61)
    for run, measured in zip(SECOND, comparison.measured["speed"][1], strict=True):
        assert measured.value == np.flatnonzero(run.value_T >= comparison.reach)[0] - 0.5
    assert comparison.seed_noise["level"].deviation.value == pytest.approx(
        math.sqrt((np.var([0.6, 0.62, 0.61]) * 3 + np.var([0.8, 0.83, 0.82]) * 3) / 4)
    )
    assert (comparison.pairings[0].first, comparison.pairings[0].second) == (0, 1)


def test_only_the_steps_that_all_runs_have_are_compared() -> None:
    """One run begins at 10, another ends at 60: the last fifth of what is left is 50 to 60."""
    late = Curve(STEP[10:], FIRST[0].value_T[10:], FIRST[0].smooth_T[10:])
    short = Curve(STEP[:61], SECOND[0].value_T[:61], SECOND[0].smooth_T[:61])
    comparison = compared([late, *FIRST[1:]], [short, *SECOND[1:]], question=Question(late=0.2))
    assert (comparison.late_from, comparison.late_to) == (50.0, 60.0)
    assert comparison.measured["level"][0][1].value == pytest.approx(FIRST[1].value_T[50:61].mean())


def test_the_level_to_reach_is_half_way_to_the_nearest_group_that_moved() -> None:
    """Of .61, .82 and a group that stays where it begins, the first; falling, the highest end."""
    still = [ramp(0.0), ramp(0.01)]
    comparison = compared(still, SECOND, FIRST)
    early = np.mean([run.value_T[:9].mean() for run in (*still, *SECOND, *FIRST)])
    assert comparison.reach == pytest.approx((early + 0.61) / 2)
    down = [[ramp(end, start=1.0) for end in ends] for ends in ((0.5, 0.52), (0.3, 0.32))]
    falling = compared(*down)
    early = np.mean([run.value_T[:9].mean() for row in down for run in row])
    assert falling.reach == pytest.approx((early + 0.51) / 2)
    reached = down[0][0].value_T <= falling.reach
    assert falling.measured["speed"][0][0].value == np.flatnonzero(reached)[0] - 0.5


def test_a_metric_that_is_to_rise_has_no_time_to_a_level_it_falls_to() -> None:
    down = [[ramp(end, start=1.0) for end in ends] for ends in ((0.5, 0.52), (0.3, 0.32))]
    comparison = compared(*down, question=Question(rises=True))
    assert math.isnan(comparison.reach)
    said = "the metric does not rise by more than its noise, so speed cannot be measured"
    assert {run.problem for group in comparison.measured["speed"] for run in group} == {said}
    flat = [[ramp(0.2, start=0.2)], [ramp(0.2, start=0.2)]]
    assert "does not move by more" in compared(*flat).measured["speed"][0][0].problem


def test_the_level_to_reach_may_be_given() -> None:
    comparison = compared(FIRST, SECOND, question=Question(reach=0.3))
    assert comparison.reach == 0.3
    assert (
        comparison.measured["speed"][0][0].value == np.flatnonzero(FIRST[0].value_T >= 0.3)[0] - 0.5
    )
    down = [[ramp(0.2, start=1.0), ramp(0.1, start=1.0)]] * 2
    assert (
        compared(*down, question=Question(reach=0.6)).measured["speed"][0][0].value == 19.5
    )  # row 20 is at .6
    assert math.isinf(
        compared(FIRST, SECOND, question=Question(reach=0.7)).measured["speed"][0][0].value
    )


def test_a_move_counts_from_five_standard_errors_on() -> None:
    """Noise of .1 on steps of a rise by .1, or by 1: errors of late means of about .02."""
    rng = np.random.default_rng(2)

    def runs(size: float) -> list[Curve]:
        return [
            Curve(STEP, size * STEP / 80 + rng.normal(0, 0.1, ROWS), size * STEP / 80)
            for _ in range(2)
        ]

    small, large = [runs(0.1) for _ in range(2)], [runs(1.0) for _ in range(2)]
    errors = [late_level(run, 60, 80).step_error for group in small for run in group]
    assert 5 * float(np.median(errors)) > 0.1
    assert math.isnan(compared(*small).reach)
    assert compared(*large).reach == pytest.approx(0.5, abs=0.06)


def test_contrasts_share_the_false_alarm_rate() -> None:
    """Four tests of two groups against the first: Holm's p-values, and what would be found at 1
    - .05/4.
    """
    groups = [FIRST, SECOND, [ramp(0.62), ramp(0.61), ramp(0.63)]]
    comparison = compared(*groups)
    every = [contrast for pairing in comparison.pairings for contrast in pairing.contrasts]
    assert [contrast.adjusted_p for contrast in every] == pytest.approx(
        holm([contrast.p_value for contrast in every])
    )
    level = every[0]
    half = level.difference.high - level.difference.value
    error = half / stats.t.ppf(0.975, level.freedom)
    assert level.minimum_detectable == pytest.approx(
        minimum_detectable(error, level.freedom, level=1 - 0.05 / 4)
    )
    assert [pairing.second for pairing in comparison.pairings] == [1, 2]


def test_what_is_asked_reaches_the_contrasts() -> None:
    """The range is of levels; a time has the common steps for a range."""
    question = Question(level=0.9, bounds=(0.61, 0.83))
    comparison = compared(FIRST, SECOND, question=dataclasses.replace(question, bounds=(0.0, 1.0)))
    level, speed = comparison.pairings[0].contrasts
    narrow = compared(FIRST, SECOND, question=question).pairings[0].contrasts[0]
    assert narrow.difference.low == level.difference.low
    assert narrow.difference.high == pytest.approx(min(level.difference.high, 0.22))
    assert (level.difference.level, speed.difference.level) == (0.9, 0.9)


def learned(rng: np.random.Generator, seed: float, end: float = 0.8, pace: float = 15.0) -> Curve:
    return curve(STEP, end + seed - 0.6 * np.exp(-STEP / pace) + rng.normal(0, 0.05, ROWS))


@pytest.mark.slow
def test_a_comparison_finds_level_and_speed_where_they_differ() -> None:
    rng = np.random.default_rng(13)
    seeds = rng.normal(0, 0.01, (2, 4))
    same = group_comparison(
        [[learned(rng, s) for s in row] for row in seeds], Question(rises=True), rng
    ).pairings[0]
    assert {c.status for c in same.contrasts} == {"not_separable"}
    slow = [
        [learned(rng, s, pace=pace) for s in row]
        for row, pace in zip(seeds, (8.0, 20.0), strict=True)
    ]
    slower = group_comparison(slow, Question(rises=True), rng).pairings[0].contrasts[1]
    assert slower.status == "different"
    assert slower.difference.value > 2
    high = [
        [learned(rng, s, end=end) for s in row] for row, end in zip(seeds, (0.7, 0.8), strict=True)
    ]
    higher = group_comparison(high, Question(rises=True), rng).pairings[0]
    assert higher.contrasts[0].status == "different"
    assert higher.contrasts[0].difference.covers(0.1)


@each_case(
    ("asked", "said"),
    [
        ({"late": 0.0}, "late is a share between 0 and 1; got 0"),
        ({"late": 1.0}, "late is a share between 0 and 1; got 1"),
        ({"level": 1.0}, "level is a share between 0 and 1; got 1"),
        ({"reach": math.inf}, "reach has to be a level of the metric; got inf"),
    ],
)
def test_questions_outside_their_domain_are_refused(asked: dict, said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        Question(**asked)


def test_what_cannot_be_compared_is_refused() -> None:
    later = Curve(STEP + 1000, FIRST[0].value_T, FIRST[0].smooth_T)
    with pytest.raises(
        InvalidArgumentError, match="share no steps: one begins at step 1000, another ends at 80"
    ):
        compared(FIRST[:1], [later])
    for groups in ([FIRST], [FIRST, []]):
        with pytest.raises(InvalidArgumentError, match="two groups of at least one run each"):
            compared(*groups)


# Statuses


def test_holm_is_the_textbook() -> None:
    """Values of R's p.adjust(c(.01, .02, .03, .005), 'holm'), worked by hand; what is no number
    stays and does not count.
    """
    assert holm([0.01, 0.02, 0.03, 0.005]) == pytest.approx([0.03, 0.04, 0.04, 0.02])
    assert holm([0.01, math.nan, 0.04]) == pytest.approx([0.02, math.nan, 0.04], nan_ok=True)
    assert holm([0.6, 0.7]) == [1.0, 1.0]


def contrast_of(difference: tuple[float, float, float], **fields: Any) -> Contrast:
    start = Contrast(
        "level",
        "not_separable",
        "",
        Interval(*difference),
        p_value=0.01,
        method="welch",
        runs=(3, 4),
    )
    return dataclasses.replace(start, **fields)


def test_a_difference_is_told_below_the_rate_and_not_at_it() -> None:
    contrast = contrast_of((0.1, 0.0, 0.2))
    assert with_status(contrast, 0.0999, level=0.9).status == "different"
    assert with_status(contrast, 0.1, level=0.9).status == "not_separable"
    assert with_status(contrast, 0.02, level=0.9).adjusted_p == 0.02
    alone = contrast_of((0.1, 0.0, 0.2), status="seed_noise_unknown")
    assert with_status(alone, math.nan, level=0.9).status == "seed_noise_unknown"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seeds", "rows", "successes"),
    [
        (2, 40, 0.97),
        pytest.param(3, 40, 0.97, marks=pytest.mark.slow),
        pytest.param(3, 40, 0.5, marks=pytest.mark.slow),
    ],
)
def test_cut_intervals_keep_their_coverage_and_the_test_its_false_alarms(
    seeds: int, rows: int, successes: float
) -> None:
    """Two groups of one setting, rewards that are means of 8 zeros and ones near the top or in the
    middle: 200 comparisons.

    Every interval lies within -1 to 1, covers nought in at least 95 %, and the level is called
    different in at most 5 %, each but for three standard errors of a proportion.
    """
    rng, n, covered, alarms = np.random.default_rng(31), 200, 0, 0
    step = np.arange(float(rows))

    def run() -> Curve:
        mean = float(np.clip(successes + rng.normal(0, 0.02), 0.0, 1.0))
        return Curve(step, rng.binomial(8, mean, rows) / 8, np.full(rows, mean))

    for _ in range(n):
        groups = [[run() for _ in range(seeds)] for _ in range(2)]
        level = (
            group_comparison(groups, Question(rises=True, bounds=(0.0, 1.0)), rng)
            .pairings[0]
            .contrasts[0]
        )
        assert -1 <= level.difference.low <= level.difference.value <= level.difference.high <= 1
        covered += level.difference.covers(0.0)
        alarms += level.status == "different"
    slack = 3 * math.sqrt(0.05 * 0.95 / n)
    assert covered / n > 0.95 - slack
    assert alarms / n < 0.05 + slack
