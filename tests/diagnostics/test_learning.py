"""What a reward does: every branch of the one decision, its thresholds, and what a run that goes on
may still become.

Rows have a known noise: they alternate about their level, so that means of even stretches are
exact.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.cases import each_case
from tests.golden.sentences import says

from groupwise.diagnostics.falls import late_drop
from groupwise.diagnostics.judge import judged
from groupwise.diagnostics.judgement import Fact, Finding, Learning, State, Status
from groupwise.diagnostics.learning import (
    _climbs,
    _dip,
    _gain,
    _noise_of,
    near_top,
    progress_of,
    zero_learning_rate,
)
from groupwise.diagnostics.signals import Evidence, NoisyMetric, signal_of
from groupwise.record.run import Meaning, RunConfig, RunRecord, steps_table

NAMES = {
    "reward": "reward",
    "held_out": "eval/reward",
    "rate": "learning_rate",
    "least": "reward_min",
    "most": "reward_max",
    "dead": "dead_group_share",
    "cut": "truncated_share",
    "spread": "reward_std_within_group",
    "entropy": "entropy",
}


def evidence(
    *, ended: bool = True, config: dict[str, Any] | None = None, **columns: Any
) -> Evidence:
    given = {key: np.asarray(value, dtype=float) for key, value in columns.items()}
    length = len(next(iter(given.values())))
    meanings = tuple(Meaning(key, NAMES[key], "test") for key in given)
    settings = RunConfig().with_settings(config or {}, "--set")
    return Evidence(
        RunRecord(
            "run", steps_table(range(1, length + 1), given), config=settings, meanings=meanings
        ),
        ended=ended,
    )


def noisy(level: Any, by: float = 0.01, seed: int = 0) -> NDArray[np.float64]:
    values = np.asarray(level, dtype=float)
    return np.asarray(values + by * np.random.default_rng(seed).standard_normal(values.size))


def of_rows(
    value: Any, deviation: float, bounds: tuple[float, float] | None, *, ended: bool = True
) -> Evidence:
    """A run of rows whose noise is given."""
    values = np.asarray(value, dtype=float)
    own = evidence(reward=values, ended=ended)
    own.memo["reward_level"] = (
        NoisyMetric("reward", np.arange(1, values.size + 1), values, deviation, deviation, bounds),
        None,
    )
    own.memo["fall_of"] = None
    return own


def of_signal(
    value: Any, deviation: float, bounds: tuple[float, float] | None, *, ended: bool = True
) -> Learning:
    """What is decided of rows whose noise is given."""
    return progress_of(of_rows(value, deviation, bounds, ended=ended)).learning


def of_rows_at(level: float, deviation: float) -> Learning:
    """What is decided of forty rows at a level, whose noise is given."""
    given = of_rows(level + 1e-3 * (-1.0) ** np.arange(40), deviation, (0.0, 1.0))
    return progress_of(given).learning


# Rising.


# Rows that stand .1 above and below have no memory but the bias of its estimate, 3/400: their noise
# is .1·sqrt(400/397·1.0075/.9925), and of as many independent rows as 397·.9925/1.0075, 391,
# Student's quantile is 1.966.
ALTERNATES = 0.4 + 0.1 * np.tile([1.0, -1.0, -1.0, 1.0], 100)
NOISE, QUANTILE = (
    0.10113,
    1.966,
)  # of the interval; that of a rise, of 99.5 %, is 1.317 times as far


@pytest.mark.parametrize(("part", "rises"), [(1.34, True), (1.29, False)])
def test_a_gain_of_quarters_beyond_students_quantile_is_one(part: float, rises: bool) -> None:
    half = QUANTILE * NOISE * np.sqrt(2 / 100)
    value = ALTERNATES + np.repeat([0.0, part * half], [300, 100])
    gain, noise = _gain(
        NoisyMetric("reward", np.arange(400), value, 0.1, 0.1), slice(0, 100), slice(300, 400)
    )
    assert noise is rises
    assert (gain.low, gain.value, gain.high) == pytest.approx(
        ((part - 1) * half, part * half, (part + 1) * half), abs=0.01 * half
    )


@pytest.mark.parametrize(("part", "rises"), [(1.34, True), (1.29, False)])
def test_a_trend_beyond_students_quantile_is_a_gain(part: float, rises: bool) -> None:
    """In the square root of time: the quarters of such a trend differ by less than two of their
    errors.
    """
    time = np.sqrt(np.arange(400)) - np.sqrt(np.arange(400)).mean()
    value = ALTERNATES + part * QUANTILE * NOISE * time / np.sqrt(time @ time)
    level = NoisyMetric("reward", np.arange(400), value, 0.1, 0.1)
    assert level.score(slice(0, 100), slice(300, 400)) < 2.5
    assert _gain(level, slice(0, 100), slice(300, 400))[1] is rises


def test_the_noise_of_a_level_remembers_and_rests_on_fewer_rows() -> None:
    """What alternates by 0.1 has no memory; in blocks of ten it has one of 0.8, with its bias
    0.8175: slower by 1.8175/0.1825.
    """
    for block, noise, rows in (
        (1, NOISE, 391),
        (10, 0.1 * np.sqrt(400 / 397 * 1.8175 / 0.1825), 397 * 0.1825 / 1.8175),
    ):
        value = 0.4 + 0.1 * np.where(np.arange(400) // block % 2, -1.0, 1.0)
        assert _noise_of(NoisyMetric("reward", np.arange(400), value, 0.0, 0.0)) == pytest.approx(
            (noise, rows), rel=0.03
        )
    dipped = np.where(
        (np.arange(400) >= 200) & (np.arange(400) < 230), -2.0, ALTERNATES
    )  # what came back is no noise
    assert _noise_of(NoisyMetric("reward", np.arange(400), dipped, 0.0, 0.0))[0] == pytest.approx(
        NOISE, rel=0.02
    )


def test_slow_noise_around_a_level_is_no_learning_and_a_true_gain_in_it_is() -> None:
    """First-order noise of memory .8 and 1 standard deviation, 150 rows, of fifty runs: at most
    1 in 20; with a gain of 8 nearly all.
    """
    rng, runs = np.random.default_rng(7), 50
    rows = rng.standard_normal((runs, 350))
    for row in range(1, 350):
        rows[:, row] = 0.8 * rows[:, row - 1] + 0.6 * rows[:, row]
    still, gains = 5 + rows[:, 200:], 5 + rows[:, 200:] + np.linspace(0, 8, 150)
    learning = [
        [progress_of(evidence(reward=value)).learning is Learning.LEARNING for value in given]
        for given in (still, gains)
    ]
    assert sum(learning[0]) <= runs / 20
    assert sum(learning[1]) >= 0.95 * runs


@each_case(
    ("rows", "steep", "ended", "said"),
    [
        (300, 20.0, True, "in 299 steps; no clear gain since step 201"),
        (300, 20.0, False, "in 299 steps, still learning"),  # noise may hide a gain yet
        (300, 8.0, True, "in 299 steps, still learning"),
        (45, 20.0, True, "in 44 steps, still learning"),
    ],
)
def test_a_last_third_that_rises_by_less_than_its_error_is_not_still_learning(
    rows: int, steep: float, ended: bool, said: str
) -> None:
    """The whole second half rises beyond its noise: before it has levelled off."""
    course = 0.3 + 0.4 / (1 + np.exp(-steep * (np.linspace(0, 1, rows) - 0.5)))
    seen = evidence(reward=course + 0.03 * np.random.default_rng(0).standard_normal(rows))
    assert judged(replace(seen, ended=ended)).headline.endswith(said)


def test_the_noise_of_slow_rows_is_not_cut_short_by_those_that_lie_far() -> None:
    """Of memory .8 the noise of a row is 3 standard deviations; rows beyond 3 of them, which slow
    noise has together, are no dip.
    """
    rng = np.random.default_rng(7)
    rows = rng.standard_normal((60, 600))
    for row in range(1, 600):
        rows[:, row] = 0.8 * rows[:, row - 1] + 0.6 * rows[:, row]
    errors = [
        _noise_of(NoisyMetric("reward", np.arange(500), row, 0.0, 0.0))[0] for row in rows[:, 100:]
    ]
    assert np.mean(errors) / 3 == pytest.approx(1.0, abs=0.045)


def test_nine_rows_tell_nothing_and_noise_that_hides_all_that_was_left_neither() -> None:
    assert progress_of(evidence(reward=noisy(np.full(9, 0.3)))).learning is Learning.UNKNOWN
    assert progress_of(evidence(reward=noisy(np.full(19, 0.3)))).learning is Learning.UNKNOWN
    assert progress_of(evidence(reward=noisy(np.full(20, 0.3)))).learning is Learning.FLAT
    # Quarters of ten rows: with a noise of a row of .4 / 2.02 / sqrt(2/10) the limit of the gain is
    # all of .4.
    for part, learning in ((0.97, Learning.FLAT), (1.03, Learning.UNKNOWN)):
        by = part * 0.4 / 2.026 / np.sqrt(2 / 10)
        assert of_rows_at(0.6, by) is learning


def test_its_numbers_are_the_means_of_the_first_and_last_rows_and_its_gain_is_that_of_the_quarters() -> (
    None
):
    progress = progress_of(evidence(reward=noisy(np.linspace(0.2, 0.8, 80))))
    assert progress.learning is Learning.LEARNING
    assert progress.before == pytest.approx(0.2 + 0.6 * 1.5 / 79, abs=0.01)
    assert progress.after == pytest.approx(0.8 - 0.6 * 1.5 / 79, abs=0.01)
    assert progress.gain is not None
    assert progress.gain.value == pytest.approx(0.6 - 2 * 0.6 * 9.5 / 79, abs=0.01)
    assert (progress.steps, progress.since) == (79, None)


def test_a_gain_that_the_last_half_does_not_go_on_with_is_at_its_top() -> None:
    arrived = np.where(np.arange(80) < 30, 0.55 + np.arange(80) / 100, 0.85)
    progress = progress_of(evidence(reward=noisy(arrived)))
    assert (progress.learning, progress.since) == (Learning.AT_TOP, 41)
    # Before sixty rows noise may hide a gain.
    assert progress_of(evidence(reward=noisy(arrived[20:79]))).learning is Learning.ROSE


def test_a_long_plateau_below_the_top_is_told_since_its_beginning() -> None:
    level = np.concatenate([np.linspace(0.1, 0.4, 40), np.full(160, 0.4)])
    progress = progress_of(evidence(reward=noisy(level)))
    assert (progress.learning, progress.since) == (Learning.ARRIVED, 51)
    assert (
        progress_of(evidence(reward=noisy(level), ended=False)).learning is Learning.LEARNING
    )  # it may go on
    assert (
        progress_of(evidence(reward=noisy(level + 0.45))).learning is Learning.AT_TOP
    )  # at 0.85 it has arrived
    assert (
        progress_of(evidence(reward=noisy(level[:110]))).learning is Learning.ROSE
    )  # 83 rows of it are fewer than 90
    held = np.linspace(0.5, 0.8, 200)
    assert progress_of(evidence(reward=noisy(level), held_out=held)).learning is Learning.AT_TOP


@pytest.mark.parametrize("top", [0.3, 0.6])
def test_a_reward_that_stands_is_said_to_have_gained_nothing_since(top: float) -> None:
    row = np.arange(200)
    judgement = judged(evidence(reward=noisy(np.minimum(0.1 + (top - 0.1) * row / 50, top))))
    assert judgement.state is State.OK
    assert "no gain since step 51: perhaps its ceiling" in judgement.headline


@pytest.mark.parametrize(
    ("middle", "deviation", "learning"),
    [(0.6, 0.4, "arrived"), (0.6, 0.46, "rose"), (0.45, 0.4, "rose"), (0.45, 0.1, "learning")],
)
def test_noise_that_hides_half_of_a_gain_shows_no_plateau(
    middle: float, deviation: float, learning: str
) -> None:
    """From .2 to .6 in 200 rows, .324 by first tenth and last quarter: since row 50 at most 1.96
    errors, .157 or .180; or .1 more.
    """
    level = np.interp(np.arange(200), [0, 50, 200], [0.2, middle, 0.6])
    assert of_signal(level, deviation, (0.0, 1.0)).value == learning


@pytest.mark.parametrize(("rows", "learning", "since"), [(118, "rose", 60), (119, "arrived", 30)])
def test_ninety_rows_since_the_first_quarter_make_a_plateau(
    rows: int, learning: str, since: int | None
) -> None:
    """From .1 to .4 at row 25: of 118 rows 89 are left after the first quarter."""
    progress = progress_of(of_rows(np.where(np.arange(rows) < 25, 0.1, 0.4), 0.05, (0.0, 1.0)))
    assert (progress.learning.value, progress.since) == (learning, since)


def test_a_plateau_is_dated_by_where_the_rise_ended_and_not_by_the_quarter() -> None:
    """The rise from row 40 to 60 is half done at the first quarter; of the first ten rows that
    stand the middle is the date.
    """
    level = np.interp(np.arange(200), [0, 40, 60, 199], [0.3, 0.3, 0.55, 0.55])
    progress = progress_of(of_rows(level, 0.05, (0.0, 1.0)))
    assert progress.learning is Learning.ARRIVED
    assert progress.since is not None
    assert 58 <= progress.since <= 64


@pytest.mark.parametrize(("rise", "learning"), [(24, "flat"), (27, "arrived")])
def test_so_many_rows_that_brought_nothing_are_worth_a_look(rise: int, learning: str) -> None:
    """A reward that jumps at a row of 200 and stands since, dated five rows later: 85 % are
    170.
    """
    level = np.where(np.arange(200) < rise, 0.1, 0.4)
    assert progress_of(of_rows(level, 0.05, (0.0, 1.0))).learning.value == learning


def test_a_reward_that_fell_back_from_its_best_has_not_arrived() -> None:
    level = np.interp(np.arange(200), [0, 60, 100, 140, 199], [0.1, 0.5, 0.6, 0.45, 0.45])
    assert progress_of(of_rows(level, 0.05, (0.0, 1.0))).learning is not Learning.ARRIVED


@pytest.mark.parametrize(
    ("errors", "length", "learning"),
    [(3.5, 1.0, "falling"), (3.0, 1.0, "arrived"), (3.0, 2.0, "falling"), (2.5, 2.0, "arrived")],
)
def test_what_falls_back_by_little_needs_another_sign(
    errors: float, length: float, learning: str
) -> None:
    """From .6, where it stands for a hundred rows, by errors of the means of twenty rows."""
    lost = errors * 0.05 * np.sqrt(2 / 20)
    late = 0.6 - lost
    level = np.interp(np.arange(200), [0, 60, 160, 180, 199], [0.1, 0.6, 0.6, late, late])
    own = of_rows(level, 0.05, (0.0, 1.0))
    steps = own.record.steps.with_columns(tokens_each=np.where(np.arange(200) < 160, 1.0, length))
    meanings = (*own.record.meanings, Meaning("tokens_each", "completion_length", "test"))
    given = Evidence(replace(own.record, steps=steps, meanings=meanings))
    given.memo.update(own.memo)
    assert progress_of(given).learning.value == learning


@pytest.mark.parametrize(
    ("errors", "rows", "learning"),
    [(0.49, 120, "arrived"), (0.51, 120, "rose"), (0.0, 116, "rose")],
)
def test_sixty_rows_of_a_second_half_that_shows_no_gain_at_all_make_one_too(
    errors: float, rows: int, learning: str
) -> None:
    """It still rose in the second quarter; the thirds of the last sixty rows have an error of
    .05·sqrt(2/20).
    """
    level = np.repeat(
        [0.1, 0.3, 0.4, 0.4 + errors * 0.05 * np.sqrt(2 / 20)], [30, 30, rows - 80, 20]
    )
    progress = progress_of(of_rows(level, 0.05, (0.0, 1.0)))
    assert (progress.learning.value, progress.since) == (learning, rows // 2 + 1)


@each_case(
    ("lowest", "stages", "climbs"),
    [(0.5, 4, True), (0.35, 4, False), (0.6, 2, True), (0.6, 1, False), (0.8, 4, False)],
)
def test_a_reward_that_climbs_again_after_every_harder_stage_has_learnt(
    lowest: float, stages: int, climbs: bool
) -> None:
    """A saw-tooth up to 0.8; not where it loses more than half, never decreases, or where
    nothing is climbed.
    """
    rows = 200 // stages
    signal = signal_of(
        "reward", np.arange(1, 201), noisy(np.tile(np.linspace(lowest, 0.8, rows), stages))
    )
    assert _climbs(signal, 0.0) is climbs


def test_a_gain_of_quarters_is_not_told_by_ends_that_say_the_opposite() -> None:
    level = np.repeat([0.3, 0.35, 0.4, 0.45], 50)
    level[:10], level[-10:] = 0.5, 0.35
    progress = progress_of(evidence(reward=noisy(level)))
    assert progress.learning is Learning.ROSE  # its last ten rows are back where it began
    assert (progress.before, progress.after) == pytest.approx((0.34, 0.43), abs=0.005)


def test_a_curriculum_without_a_gain_in_all_is_learning_and_no_plateau() -> None:
    saw = noisy(
        np.concatenate([np.linspace(0.3, 0.5, rows) for rows in (40, 65, 55, 40)])
    )  # not as the order of an epoch comes round
    assert progress_of(evidence(reward=saw)).learning is Learning.LEARNING


# Standing.


@pytest.mark.parametrize(("level", "learning"), [(0.76, Learning.AT_TOP), (0.74, Learning.FLAT)])
def test_within_a_quarter_of_its_range_a_reward_that_stands_has_arrived(
    level: float, learning: Learning
) -> None:
    assert of_signal(np.full(80, level) + 1e-3 * np.tile([1, -1], 40), 0.1, (0.0, 1.0)) is learning


def test_near_the_top() -> None:
    steps, any_ = np.arange(40), evidence(reward=np.full(40, 0.5))
    assert near_top(any_, signal_of("a", steps, np.full(40, 0.5))) is None
    assert near_top(any_, signal_of("a", steps, np.full(40, 0.75), bounds=(0.0, 1.0))) is True
    assert near_top(any_, signal_of("a", steps, np.full(40, 0.74), bounds=(0.0, 1.0))) is False
    assert near_top(any_, signal_of("a", steps, np.full(40, 0.5), bounds=(-1.0, 1.0))) is True
    late = np.where(steps < 30, 0.1, 0.9)
    assert near_top(any_, signal_of("a", steps, late, bounds=(0.0, 1.0))) is True
    seldom = np.where(steps % 3 == 2, 0.05, 0.0)
    assert near_top(any_, signal_of("a", steps, seldom)) is False
    assert near_top(any_, signal_of("a", steps, 0.05 - seldom)) is None


@each_case(
    ("top", "spread", "near"),
    [
        (0.1, None, None),  # it may count by tenths
        (0.101, None, False),
        (0.1, 0.03, None),  # 0.08 + 0.03²/0.08 = 0.091
        (0.1, 0.041, False),  # 0.08 + 0.041²/0.08 = 0.101: a rollout has earned more than 0.1
    ],
)
def test_the_top_of_a_reward_that_never_left_a_tenth_is_not_known(
    top: float, spread: float | None, near: bool | None
) -> None:
    reward = np.where(np.arange(40) % 2, top, 0.16 - top)  # of mean 0.08
    own = (
        evidence(reward=reward)
        if spread is None
        else evidence(reward=reward, spread=np.full(40, spread))
    )
    assert own.reward is not None
    assert own.reward.bounds == (0.0, 1.0)
    assert near_top(own, own.reward) is near


def test_a_reward_that_counts_by_tenths_and_stands_after_its_gain_is_at_its_top() -> None:
    level = np.concatenate([np.linspace(0.02, 0.08, 40), np.full(160, 0.08)])
    assert progress_of(evidence(reward=noisy(level, by=0.001))).learning is Learning.AT_TOP
    log_evidence = evidence(
        reward=noisy(level, by=0.001), spread=np.full(200, 0.2)
    )  # as of right and wrong
    assert progress_of(log_evidence).learning is Learning.ARRIVED


def test_few_rows_of_a_run_that_has_ended_are_flat_from_twenty_on() -> None:
    value = 0.4 + 1e-3 * np.tile(
        [1.0, -1.0, 0.9, -0.9, 0.0], 4
    )  # a fifth of the rows at the largest value
    assert of_signal(value, 0.1, None) is Learning.FLAT
    assert of_signal(value[:19], 0.1, None) is Learning.UNKNOWN


def test_rows_exactly_at_the_largest_value_stand_at_a_ceiling() -> None:
    ceiling = np.where(np.arange(20) % 4 == 0, 0.4, 0.37 + 1e-4 * np.arange(20))
    assert of_signal(ceiling, 0.1, None) is Learning.AT_TOP  # five of twenty
    assert (
        of_signal(np.where(np.arange(20) == 0, 0.38, ceiling), 0.1, None) is Learning.FLAT
    )  # four
    assert (
        of_signal(ceiling - 0.1 * (ceiling < 0.4), 0.1, None) is Learning.FLAT
    )  # far below it in the mean
    assert of_signal(-ceiling, 0.1, None) is Learning.FLAT  # no height


@pytest.mark.parametrize(
    ("least", "learning"), [(0.6, Learning.RECOVERED), (0.66, Learning.AT_TOP)]
)
def test_a_dip_of_three_rows_that_loses_a_third_is_told(least: float, learning: Learning) -> None:
    rows = np.where((np.arange(60) >= 30) & (np.arange(60) < 33), least, 0.96) + 0.005 * (
        -1.0
    ) ** np.arange(60)
    progress = progress_of(evidence(reward=rows))
    assert progress.learning is learning
    if learning is Learning.RECOVERED:
        assert progress.since == 31
        assert progress.before == pytest.approx(least, abs=0.005)


@pytest.mark.parametrize(("scatter", "expected"), [(0.088, True), (0.089, False)])
def test_a_dip_of_three_rows_is_five_errors_deep(scatter: float, expected: bool) -> None:
    """From .96 to .6 and back: five errors of means of three rows, each of .088, are
    5·.088·sqrt(2/3) = .359.
    """
    rows = np.where((np.arange(60) >= 30) & (np.arange(60) < 33), 0.6, 0.96)
    dip = _dip(evidence(reward=rows), NoisyMetric("reward", np.arange(60), rows, scatter, scatter))
    assert (dip is not None) is expected
    if dip is not None:
        assert dip == pytest.approx((30, 0.6))


def test_the_range_of_a_sum_is_told_by_the_best_of_every_batch() -> None:
    """Where it is one number in a quarter of the rows; the last tenth of the range is its top,
    and the quarter before says nothing.
    """
    for level, near in ((1.9, True), (1.7, None), (1.4, False)):
        given = evidence(
            reward=np.full(40, level) + 0.01 * (-1.0) ** np.arange(40), most=np.full(40, 2.0)
        )
        assert given.reward is not None
        assert given.reward.bounds == (0.0, 2.0)
        assert near_top(given, given.reward) is near
    rarely = np.where(np.arange(40) < 9, 2.0, 1.9)
    unknown = evidence(reward=np.tile([1.5, 1.4], 20), most=rarely).reward
    assert unknown is not None
    assert unknown.bounds is None
    below = evidence(
        reward=np.tile([1.5, -0.4], 20), least=np.full(40, -1.0), most=np.full(40, 2.0)
    ).reward
    assert below is not None
    assert below.bounds == (-1.0, 2.0)


def test_a_run_that_goes_on_stands_after_sixty_rows_without_a_rise_and_after_thrice_that_anyway() -> (
    None
):
    rows = np.arange(180)
    sinks, rises = 0.4 - 1e-5 * rows, 0.4 + 1e-5 * rows
    assert of_signal(sinks[:60], 0.1, None, ended=False) is Learning.FLAT
    assert of_signal(sinks[:59], 0.1, None, ended=False) is Learning.UNKNOWN
    assert of_signal(rises[:179], 0.1, None, ended=False) is Learning.UNKNOWN
    assert of_signal(rises, 0.1, None, ended=False) is Learning.FLAT


@each_case("quarter", [1, 2])
@each_case(("errors", "learning"), [(3.01, Learning.UNKNOWN), (2.99, Learning.FLAT)])
def test_a_run_that_goes_on_and_once_stood_higher_has_begun_to_rise(
    quarter: int, errors: float, learning: Learning
) -> None:
    """Quarters of fifteen rows, with a noise of 0.1 a row; the last stands a little below the
    first.
    """
    level = np.repeat([0.5, 0.5, 0.5, 0.49], 15)
    level[15 * quarter : 15 * quarter + 15] += errors * 0.1 * np.sqrt(2 / 15)
    assert of_signal(level, 0.1, None, ended=False) is learning


def test_a_held_out_share_near_its_top_says_that_the_run_has_arrived() -> None:
    reward = noisy(np.full(80, 3.0))
    assert progress_of(evidence(reward=reward)).learning is Learning.FLAT
    assert (
        progress_of(evidence(reward=reward, held_out=noisy(np.full(80, 0.8)))).learning
        is Learning.AT_TOP
    )
    assert (
        progress_of(evidence(reward=reward, held_out=np.full(80, 1.0))).learning is Learning.AT_TOP
    )
    assert (
        progress_of(evidence(reward=reward, held_out=noisy(np.full(80, 0.7)))).learning
        is Learning.FLAT
    )
    assert (
        progress_of(evidence(reward=reward, held_out=noisy(np.full(80, 7.0)))).learning
        is Learning.FLAT
    )  # no share


def test_groups_that_nearly_all_earn_the_same_are_at_a_top_that_is_not_known() -> None:
    reward = noisy(np.full(80, 9.8), 0.02)
    assert progress_of(evidence(reward=reward, dead=np.full(80, 0.9))).learning is Learning.AT_TOP
    assert progress_of(evidence(reward=reward, dead=np.full(80, 0.7))).learning is Learning.FLAT
    assert (
        progress_of(evidence(reward=noisy(np.full(80, 9.8), 2.0), dead=np.full(80, 0.9))).learning
        is Learning.FLAT
    )


# Falling, back again, and nothing to tell.


def test_a_fall_for_good_a_decline_and_one_that_was_made_good() -> None:
    rows = np.arange(100)
    fell = progress_of(evidence(reward=noisy(np.where(rows < 60, 0.8, 0.1))))
    assert (fell.learning, fell.since, fell.gain) == (Learning.FALLING, 61, None)
    assert (fell.before, fell.after) == pytest.approx((0.8, 0.1), abs=0.01)
    risen = progress_of(evidence(reward=noisy(np.repeat([0.5, 0.8, 0.1], [45, 15, 40]))))
    assert risen.before == pytest.approx(0.8, abs=0.01)  # of the ten rows before it fell
    declined = progress_of(evidence(reward=noisy(np.where(rows < 60, 0.8, 0.5))))
    assert (declined.learning, declined.since) == (Learning.FALLING, 61)
    assert declined.before == pytest.approx(0.8, abs=0.02)
    assert declined.after == pytest.approx(0.5, abs=0.01)
    back = progress_of(evidence(reward=noisy(np.where((rows >= 40) & (rows < 50), 0.1, 0.8))))
    assert (back.learning, back.since) == (Learning.RECOVERED, 41)
    assert (back.before, back.after) == pytest.approx((0.1, 0.8), abs=0.01)


def test_nothing_can_be_said_without_rows_or_with_one_number() -> None:
    none = progress_of(evidence(rate=np.ones(20)))
    assert (none.learning, none.steps) == (Learning.UNKNOWN, 0)
    assert np.isnan(none.before)
    few = progress_of(evidence(reward=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]))
    assert (few.learning, few.before, few.after, few.steps) == (Learning.UNKNOWN, 0.1, 0.7, 6)
    same = progress_of(evidence(reward=np.full(30, 0.5)))
    assert (same.learning, same.before, same.after, same.steps) == (Learning.UNKNOWN, 0.5, 0.5, 29)


# The learning rate.


def finding_of(**given: Any) -> Finding:
    return zero_learning_rate(evidence(**given))


def test_a_learning_rate_of_zero() -> None:
    finding = finding_of(rate=np.zeros(30))
    assert (finding.status, finding.step, finding.facts) == (Status.CRITICAL, 1, (Fact.RATE_ZERO,))
    says("diagnostics/learning/1", finding.message)
    finding = finding_of(rate=np.where(np.arange(30) < 20, 1e-6, 0.0))
    assert (finding.status, finding.step) == (Status.CRITICAL, 21)
    says("diagnostics/learning/2", finding.message)
    finding = finding_of(reward=np.ones(30), config={"learning_rate": 0.0})
    assert finding.status == Status.CRITICAL
    says("diagnostics/learning/6", finding.message)


def rises(row: int, times: float, before: float = 1e-6, rows: int = 60) -> NDArray[np.float64]:
    """A rate that is so many times as large from a row on."""
    return before * np.where(np.arange(rows) < row, 1.0, times)


@each_case(
    ("given", "step"),
    [
        ({"rate": rises(30, 3.1)}, 31),
        ({"rate": rises(30, 2.9)}, None),
        ({"rate": rises(8, 10.0)}, 9),
        ({"rate": rises(7, 10.0)}, None),  # a warm-up in its first rows
        ({"rate": np.minimum(np.arange(1, 61) / 40, 1.0) * 1e-6}, None),  # and a long one
        ({"rate": np.where(np.arange(60) < 30, 0.0, 1e-6)}, None),  # that waits
        ({"rate": rises(20, 5.0) * rises(40, 5.0) * 1e6}, 41),  # the last of two
    ],
)
def test_a_rate_that_rises_at_once_in_mid_run(given: dict[str, Any], step: int | None) -> None:
    finding = finding_of(**given)
    assert (finding.step, finding.facts) == (step, () if step is None else (Fact.RATE_ROSE,))
    assert finding.status is (Status.NONE if step is None else Status.INFO)


@each_case(("row", "step"), [(25, 26), (44, None)])
def test_a_rate_that_rose_behind_a_fall_is_not_told(row: int, step: int | None) -> None:
    reward = noisy(np.where(np.arange(60) < 30, 0.6, 0.05))
    assert finding_of(reward=reward, rate=rises(row, 10.0)).step == step


def test_a_schedule_that_ends_at_zero_is_none() -> None:
    decays = 1e-6 * np.maximum(1 - np.arange(40) / 30, 0)
    assert finding_of(rate=decays).status is Status.NONE
    finding = finding_of(rate=np.append(decays, 0))  # over a quarter of the run is left at nothing
    assert (finding.status, finding.step, finding.facts) == (Status.WARNING, 31, (Fact.RATE_ZERO,))
    says("diagnostics/learning/3", finding.message)
    assert (
        finding_of(rate=np.where(np.arange(30) < 26, 1e-6, 0.0)).status is Status.NONE
    )  # four rows are too few
    assert finding_of(rate=np.where(np.arange(30) < 25, 1e-6, 0.0)).status is Status.CRITICAL
    says("diagnostics/learning/4", finding_of(rate=np.full(30, 1e-6)).message)
    assert finding_of(reward=np.ones(30)).status is Status.NOT_LOGGED
    assert finding_of(rate=np.zeros(2), reward=np.ones(2)).status is Status.NOT_LOGGED


@each_case(
    ("rows", "low", "learning", "headline"),
    [
        (120, 2, Learning.LEARNING, "reward 0.33 → 0.56 in 119 steps, still learning"),
        (120, 3, Learning.FALLING, "reward 0.68 → 0.30, lower since step 118"),
        (250, 3, Learning.FALLING, "reward 0.66 → 0.30, lower since step 248"),
        (250, 6, Learning.FALLING, "reward 0.66 → 0.30, lower since step 245"),
    ],
)
def test_the_last_three_rows_make_no_plateau_and_are_told(
    rows: int, low: int, learning: Learning, headline: str
) -> None:
    """A reward that learns to the end but for its last rows, which are at .3 again: it was
    "nothing learnt since step 60".
    """
    reward = (
        0.3
        + 0.4 * (1 - np.exp(-3 * np.arange(rows) / rows))
        + 0.03 * np.random.default_rng(0).standard_normal(rows)
    )
    reward[-low:] = 0.3 + 0.01 * (-1.0) ** np.arange(low)
    answer = judged(evidence(reward=reward))
    assert (answer.learning, answer.headline) == (learning, headline)
    assert answer.state is (State.OK if low < 3 else State.WARNING)


@each_case(
    ("rows", "low", "headline"),
    [
        (300, 6, "reward 0.74 → 0.30, lower since step 295"),
        (300, 60, "reward 0.75 → 0.49, lower since step 239"),  # more than a tenth fell back
    ],
)
def test_the_last_rows_that_are_lower_are_told_from_their_first(
    rows: int, low: int, headline: str
) -> None:
    """Stretches of a tenth of the rows told "0.75 → 0.59, lower since step 283" of six rows."""
    reward = 0.2 + 0.55 * np.minimum(np.arange(rows) / 120, 1)
    reward += 0.03 * np.random.default_rng(0).standard_normal(rows)
    reward[-low:] -= 0.45 if low < 10 else 0.25
    assert judged(evidence(reward=reward)).headline == headline


@each_case(
    ("seed", "rows", "gain", "said"),
    [
        (11, 500, 0.0, "nothing learnt in 499 steps: reward 0.0091 → "),
        (1, 1500, 0.05, "little learnt in 1,499 steps: reward −0.047 → 0.014 (gain 0.0064 to "),
        (11, 100, 0.2, "reward −0.083 → 0.11 in 99 steps, but 100 rows cannot separate learning"),
    ],
)
def test_a_reward_about_0_is_held_against_its_scatter(
    seed: int, rows: int, gain: float, said: str
) -> None:
    """Half of a level of 0 is no gain at all: not even 1,500 rows of noise could deny one."""
    noise = 0.3 * np.random.default_rng(seed).standard_normal(rows)
    reward = np.linspace(-gain / 2, gain / 2, rows) + noise
    assert judged(evidence(reward=reward)).headline.startswith(said)


@each_case(
    ("lost", "scatter", "row"),
    [
        (0.34, 0.05, 37),
        (0.33, 0.05, None),
        (0.4, 0.4 / 5.01 / np.sqrt(2 / 3), 37),
        (0.4, 0.1, None),
    ],
)
def test_a_late_drop_takes_a_third_of_the_height_and_five_errors(
    lost: float, scatter: float, row: int | None
) -> None:
    value = np.where(np.arange(40) < 37, 1.0, 1.0 - lost)
    level = NoisyMetric("reward", np.arange(40), value, scatter, scatter)
    drop = late_drop(level, 0.0)
    assert (drop and drop[0]) == row
    two = replace(level, step_T=level.step_T[:39], value_T=value[:39])
    assert late_drop(two, 0.0) is None


def test_later_rows_without_a_gain_are_not_said_to_learn() -> None:
    """Forty rows that rise to .79 by the tenth and stand: too few for a plateau, and no run that
    still learns, unless it goes on.
    """
    level = np.interp(np.arange(40), [0, 10, 39], [0.2, 0.6, 0.6])
    judgement = judged(evidence(reward=noisy(level)))
    assert judgement.learning is Learning.ROSE
    says("diagnostics/learning/5", judgement.headline)
    going = judged(evidence(reward=noisy(level), ended=False))
    assert going.learning is Learning.LEARNING
    rising = judged(evidence(reward=noisy(np.linspace(0.2, 0.6, 40))))
    assert rising.learning is Learning.LEARNING


@each_case(("wobble", "said"), [(0.0, "at its maximum"), (0.2, "near its likely maximum")])
def test_a_top_is_told_by_the_lower_limit_of_the_last_quarter(wobble: float, said: str) -> None:
    """Rows of .93 whose mean may be as low as .8 are near the top, whatever the last few are."""
    rows = 0.93 + wobble * np.tile([-1.0, 0.3, 0.4, 0.3], 15)
    for cut in (52, 56, 60):
        judgement = judged(evidence(reward=np.minimum(noisy(rows[:cut]), 1.0), ended=False))
        assert judgement.headline.endswith(said)


def test_a_top_that_several_batches_reached_is_not_half_of_it() -> None:
    """A reward of unknown range that stands at 8, of which single batches earn 32; the same with
    one such batch, which may be luck.
    """
    noise = np.random.default_rng(0).normal(scale=0.4, size=200)
    reward = 8 - 12 * np.exp(-np.arange(200) / 15) + noise
    for batches, learning in (([90, 120, 150, 180], Learning.ARRIVED), ([150], Learning.AT_TOP)):
        lucky = np.where(np.isin(np.arange(200), batches), 32.0, reward)
        assert progress_of(evidence(reward=lucky)).learning is learning


@pytest.mark.parametrize(
    ("by", "learning", "said"),
    [
        (0.03, Learning.ROSE, "reward 0.31 → 0.38 in 29 steps; no clear gain since step 16"),
        (0.05, Learning.UNKNOWN, "30 rows cannot separate learning from noise"),
        (0.08, Learning.FLAT, "(gain −0.061 to 0.16)"),
    ],
)
def test_rows_that_hide_a_gain_say_how_much_of_one_they_allow(
    by: float, learning: Learning, said: str
) -> None:
    answer = judged(evidence(reward=noisy(0.3 + 0.1 * np.arange(30) / 29, by)))
    assert answer.learning is learning
    assert answer.headline.endswith(said)


@pytest.mark.parametrize(
    ("rise", "said"),
    [
        (0.0, "nothing learnt in 99 steps: reward 0.40 → 0.40"),
        (0.3, "reward 0.41 → 0.69 in 99 steps, still learning"),
    ],
)
def test_what_the_reward_does_is_told_beside_truncation(rise: float, said: str) -> None:
    reward = noisy(0.4 + rise * np.arange(100) / 99)
    answer = judged(evidence(reward=reward, cut=noisy(np.full(100, 0.9))))
    message = "90 % of all completions are truncated, 90 % in the first 3 rows"
    assert answer.headline == f"{message}; {said}"


@each_case(
    ("gain", "by", "seed", "state", "said"),
    [
        (0.03, 0.025, 4, State.WARNING, "little learnt in 43 steps"),  # certain, and of no use
        (0.12, 0.13, 0, State.CANNOT_TELL, "44 rows cannot separate learning from noise"),
        (0.0, 0.13, 1, State.WARNING, "nothing learnt in 43 steps"),
        (0.0, 0.13, 0, State.WARNING, "no clear gain in 43 steps"),  # as much is often noise
    ],
)
def test_what_the_rows_do_not_decide_is_no_warning(
    gain: float, by: float, seed: int, state: State, said: str
) -> None:
    reward = noisy(0.5 + gain * np.arange(44) / 44, by, seed)
    answer = judged(evidence(reward=reward, least=np.zeros(44), most=np.ones(44)))
    assert answer.state is state
    assert said in answer.headline


@each_case(("entropy",), [(1.0,), (2.5,)])
def test_a_reward_that_goes_on_and_fell_is_not_said_to_learn(entropy: float) -> None:
    """It ends above its first rows and below its best ones, which may be a dip."""
    level = np.interp(np.arange(200), [0, 160, 170, 199], [0.3, 0.6, 0.6, 0.5])
    reward = noisy(level, 0.04)
    other = noisy(1.0 + (entropy - 1) * (np.arange(200) >= 170), 0.02)
    going = judged(evidence(reward=reward, entropy=other, ended=False))
    assert going.state is State.OK
    assert going.headline.endswith("which may be a dip")


@each_case(("rows",), [(150,), (170,)])
def test_a_reward_that_rises_to_the_end_is_still_learning(rows: int) -> None:
    level = np.interp(np.arange(rows), [0, 160], [0.3, 0.6])
    going = judged(evidence(reward=noisy(level, 0.04), ended=False))
    assert going.headline.endswith("still learning")


@each_case(("late", "goes_on"), [(0.12, True), (0.0, False)])
def test_a_trend_of_the_second_half_is_a_gain(late: float, goes_on: bool) -> None:
    """Slow waves hide it from the ends of the half."""
    half = np.interp(np.arange(200), [0, 60, 100, 199], [0.3, 0.5, 0.5, 0.5 + late])
    waves = 0.04 * np.sin(np.arange(200) / 200 * 14 * np.pi)
    answer = judged(evidence(reward=noisy(half + waves, 0.03)))
    assert answer.headline.endswith("still learning") is goes_on


def test_a_held_out_reward_tells_what_the_rows_leave_open() -> None:
    reward, held = noisy(0.5 + 0.12 * np.arange(44) / 44, 0.13), np.linspace(0.3, 0.6, 44)
    answer = judged(evidence(reward=reward, held_out=held, least=np.zeros(44), most=np.ones(44)))
    assert answer.state is State.OK
