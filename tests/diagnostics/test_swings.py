"""Swings: where they begin, and what they look like.

Sampling tests run on fixed random numbers; each states how often it would fail on others.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.cases import each_case
from tests.golden.sentences import says

from groupwise.diagnostics.falls import (
    DataOrder,
    _alternations,
    _closer,
    _line,
    _memory,
    onset_of,
    order_of,
    swing_of,
)
from groupwise.diagnostics.instability import (
    _apart,
    _swinging,
    _weights,
    moments_of,
    unstable_training,
)
from groupwise.diagnostics.judgement import Fact, Finding, Status
from groupwise.diagnostics.signals import Evidence, signal_of
from groupwise.record.run import Meaning, RunRecord, steps_table

N = 400
STEP = np.arange(N)


def swinging(seed: int, *, onset: int = 100, grows: bool = False) -> np.ndarray:
    rng = np.random.default_rng(seed)
    ability = -0.4 * np.exp(-STEP / 40) + 0.2
    height = 0.3 + 1.3 * np.maximum(STEP - onset, 0) / (N - onset) if grows else 1.2
    ability = ability + np.where(
        onset <= STEP, height * np.sin(2 * np.pi * (STEP - onset) / 30), 0.0
    )
    right = rng.binomial(128, 1 / (1 + np.exp(-ability)))
    return np.asarray(right / 128)


def finding(reward: np.ndarray) -> Finding:
    record = RunRecord(
        "test",
        steps_table(range(1, N + 1), {"reward": reward}),
        meanings=(Meaning("reward", "reward", "test"),),
    )
    return unstable_training(Evidence(record))


@pytest.mark.thinned(1)
@pytest.mark.parametrize("seed", range(8))
def test_a_constant_swing_keeps_swinging_and_begins_where_it_does(seed: int) -> None:
    # The worst of 20 such runs was off by 4 rows.
    answer = finding(swinging(seed))
    assert answer.status is Status.CRITICAL
    assert "keeps oscillating" in answer.message
    assert answer.step is not None
    assert abs(answer.step - 101) <= 12


def test_a_swing_from_the_start_begins_there() -> None:
    reward = 0.5 + 0.2 * np.sin(STEP / 4) + 0.04 * np.random.default_rng(1).standard_normal(N)
    assert onset_of(reward, 25.0) <= 12


def test_the_onset_of_a_line_without_noise_is_its_first_row() -> None:
    """A cosine that starts at its height: of a row before it and of one after it no line
    explains all.
    """
    assert onset_of(np.where(STEP >= 120, np.cos(2 * np.pi * (STEP - 120) / 20), 0.0), 20.0) == 120


@pytest.mark.slow
def test_a_change_of_scale_and_level_changes_nothing() -> None:
    reward = swinging(3)
    assert onset_of(reward, 30.0) == onset_of(5 - 2 * reward, 30.0)


def test_rows_are_averaged_over_half_of_the_rows_after_which_they_have_forgotten_their_sign() -> (
    None
):
    """A cosine of P rows comes back to 0 after P/4, and eight rows are left of each of its
    turns; five rows tell nothing.
    """
    for period, size in ((24, 3), (40, 5), (4, 1)):
        assert _memory(np.cos(2 * np.pi * np.arange(240) / period)) == size
    assert _memory(np.arange(5.0) ** 3) == 1


@pytest.mark.parametrize(
    ("left", "times"),
    [([2.0, 0.1, 2.0, -0.1, 2.0], 0), ([2.0, 0.1, -2.0, 0.0, 2.0, -2.0], 3), ([0.5, -0.5], 0)],
)
def test_a_series_alternates_only_from_beyond_a_level_to_beyond_its_negative(
    left: list[float], times: int
) -> None:
    assert _alternations(np.array(left), 1.0) == times


def test_the_chance_of_one_bin_by_hand() -> None:
    """Bin 8 of 20 holds 30, the others 1: P(F > 30) of 2 and 38 degrees of freedom is (1 +
    60/38)^-19, for 20 bins and two widths.
    """
    spectrum = np.ones(20)
    spectrum[8] = 30.0
    place, chance = _line(spectrum)
    assert place == 8
    assert chance == pytest.approx(40 * (98 / 38) ** -19.0)


def test_the_chance_of_three_bins_by_hand() -> None:
    """Bins 7 to 9 of 20 hold 30, the others 1: P(F > 10) of 6 and 34 degrees of freedom is that
    of two of 19 at odds of 30 to 17.
    """
    spectrum = np.ones(20)
    spectrum[7:10] = 9.0, 12.0, 9.0
    place, chance = _line(spectrum)
    assert place == 8
    p = 30 / 47
    assert chance == pytest.approx(
        40 * ((1 - p) ** 19 + 19 * p * (1 - p) ** 18 + 171 * p**2 * (1 - p) ** 17)
    )


@pytest.mark.parametrize(
    ("levels", "growth"), [((1.0, 1.0, 2.0), 2.0), ((0.5, 2.0, 1.0), 4.0), ((2.0, 1.0, 1.0), 1.0)]
)
def test_a_swing_grows_within_the_late_rows_or_since_the_early_ones(
    levels: tuple[float, float, float], growth: float
) -> None:
    """Of 100 rows the first 40 are early; of the late ones the first thirty are held against the
    last thirty. Ten rows a turn.
    """
    value = np.repeat(levels, [40, 30, 30]) * np.sin(2 * np.pi * np.arange(100) / 10)
    swing = swing_of(value, 1e-6)
    assert swing is not None
    assert (swing.growth, swing.amplitude) == pytest.approx((growth, max(levels[1:])), rel=0.1)
    assert swing.period == pytest.approx(10, rel=0.02)
    assert swing.row == 40


@each_case(("first", "expected"), [(0.46, True), (0.40, False), (2.8, True), (3.2, False)])
def test_the_order_of_the_data_has_one_profile_in_all_quarters(
    first: float, expected: bool
) -> None:
    """A profile of five rows of height 1 but for the first quarter: its coefficient on the mean
    of all is 4a/(a + 3), from .5 to 2.
    """
    value = np.repeat([first, 1.0, 1.0, 1.0], 25) * np.tile([2.0, -1.0, 0.0, 1.0, -2.0], 20)
    order = order_of(value)
    assert (order is not None) is expected
    if order is not None:
        assert order.period == 5
        assert order.profile_P == pytest.approx(
            (first + 3) / 4 * np.array([2.0, -1.0, 0.0, 1.0, -2.0]), abs=0.1
        )


def test_an_order_of_the_data_needs_five_turns_and_twenty_four_rows() -> None:
    for rows, period in ((24, 4), (23, None), (35, 7), (34, None)):
        profile = np.array([2.0, -1.0, 0.0, 1.0, -2.0, 3.0, -3.0])[-7 if rows > 30 else -4 :]
        order = order_of(np.resize(profile, rows))
        assert (None if order is None else order.period) == period
    assert order_of(np.ones(40)) is None


def signs(**columns: np.ndarray) -> Evidence:
    names = {"entropy": "entropy", "clipped": "clip_ratio"}
    meanings = tuple(Meaning(key, names[key], "test") for key in columns if key in names)
    return Evidence(RunRecord("test", steps_table(range(1, 81), columns), meanings=meanings))


def since(row: int, before: float, after: float) -> np.ndarray:
    return np.where(np.arange(80) < row, before, after)


@each_case(
    ("after", "fell", "step"),
    [
        (0.41, None, 51),  # without a fall four times what it was in the first third, to the end
        (0.39, None, None),
        (0.21, 53, 51),  # twice what it was before a fall, from two rows before it on
        (0.19, 53, None),
        (0.21, 60, 58),
        (0.21, 40, None),  # ten rows and more since the fall
    ],
)
def test_an_entropy_that_rose_says_that_the_policy_comes_apart(
    after: float, fell: int | None, step: int | None
) -> None:
    groups = _apart(signs(entropy=since(50, 0.1, after)), fell)
    assert (None if groups is None else groups.step) == step
    if groups is not None:
        assert groups.value is not None
        assert (groups.value.value, groups.value.low, groups.value.high) == pytest.approx(
            [after / 0.1] * 3
        )
        assert groups.limit == (4.0 if fell is None else 2.0)
        more = "" if fell is None else " as the reward fell"
        assert groups.message.endswith(f"token{more}")
        says("diagnostics/swings/1", groups.message.removesuffix(more), after=f"{after:.2f}")


def test_an_entropy_that_climbs_is_told_by_the_rows_about_its_step() -> None:
    """From .1 by and by to .3, then far up: at the first row beyond twice the usual it is .21."""
    row = np.arange(80)
    climbs = np.interp(row, [40, 60, 70], [0.1, 0.3, 3.0])
    rose = _apart(signs(entropy=climbs), 53)
    assert rose is not None
    (sign,) = rose.signs
    assert (sign.step, sign.words) == (52, "entropy 0.18 → 0.21 → 0.26")
    assert climbs[sign.step - 1] == pytest.approx(0.21)


@each_case(
    ("column", "before", "limit", "more"),
    [
        ("clipped", 0.01, 0.2, True),
        ("clipped", 0.1, 0.3, True),  # three times what it was in the first half
        ("chi2_token", 0.1, 1.0, True),  # a second moment of 2
        ("ess_ratio", 0.9, 0.5, False),
        (
            "ess",
            900.0,
            450.0,
            False,
        ),  # a count: half of what it was in the first quarter
    ],
)
def test_importance_weights_degenerate_beyond_a_limit(
    column: str, before: float, limit: float, more: bool
) -> None:
    for beyond in (True, False):
        run = signs(**{column: since(50, before, limit * (1.01 if beyond is more else 0.99))})
        weights = _weights(run, signal_of("reward", np.arange(1, 81), np.ones(80)), None)
        assert (None if weights is None else weights.step) == (51 if beyond else None)


def test_a_mean_and_a_standard_deviation_make_a_moment_of_the_rows_that_both_have() -> None:
    """The ratio is logged in every row but the second, its deviation in every second one."""
    row = np.arange(1.0, 81)
    mean, deviation = np.where(row == 2, np.nan, row), np.where(row % 2, np.nan, row / 8)
    made = moments_of(signs(**{"is_ratio/mean": mean, "is_ratio/std": deviation}))
    assert made is not None
    first, second, signal = made
    both = row[3::2]
    assert first.tolist() == both.tolist()
    assert second.tolist() == (both**2 * (1 + 1 / 64)).tolist()
    assert (signal.column, signal.step_T.tolist()) == ("is_ratio/mean", both.tolist())


def test_a_line_at_the_period_of_the_data_is_no_swing() -> None:
    reward = signal_of("reward", STEP, swinging(0, onset=0))
    profile = np.sin(2 * np.pi * np.arange(30) / 30)
    assert _swinging(reward, None) is not None
    assert _swinging(reward, DataOrder(30, profile, 0.5)) is None
    assert _swinging(reward, DataOrder(30 * 3, profile, 0.5)) is None  # a third of its period
    assert _swinging(reward, DataOrder(40, profile, 0.5)) is not None


def test_an_onset_lies_within_the_log() -> None:
    assert _closer(signal_of("reward", STEP[:20], np.ones(20)), 18, 4, 0.5) == 19


@each_case(
    ("wave", "epoch", "seen"),
    [
        ("sine", 0.0, True),
        ("sine", 1 / 80, True),  # a quarter of an epoch
        ("sine", 1 / 20, False),  # a period is an epoch
        ("saw", 0.0, False),  # prompts by difficulty
        ("random", 0.0, False),  # batches in one order
    ],
)
def test_a_swing_of_an_even_period_is_seen_and_an_order_of_the_data_is_not(
    wave: str, epoch: float, seen: bool
) -> None:
    """Fails on 1 % of other random numbers: Fisher's test passes 0.5 % of random profiles."""
    rng = np.random.default_rng(5)
    phase = np.arange(20) / 20
    profile = {
        "sine": np.sin(2 * np.pi * phase),
        "saw": 2 * phase - 1,
        "random": rng.standard_normal(20),
    }[wave]
    reward = 0.5 + 0.16 * np.resize(profile, N) + 0.03 * rng.standard_normal(N)
    columns = {"reward": reward, **({"epoch": epoch * STEP} if epoch else {})}
    meanings = tuple(Meaning(name, name, "test") for name in columns)
    record = RunRecord("test", steps_table(range(1, N + 1), columns), meanings=meanings)
    swing = unstable_training(Evidence(record))
    assert (swing.facts == (Fact.REWARD_COMES_ROUND,)) is seen
    assert (swing.status is Status.WARNING) is seen
    if seen:
        says("diagnostics/swings/2", swing.message)


@pytest.mark.parametrize("seed", range(6))
def test_slow_noise_is_no_swing_of_an_even_period(seed: int) -> None:
    """None of 600 others was one."""
    rng = np.random.default_rng(seed)
    slow = np.zeros(N)
    for row in range(1, N):
        slow[row] = 0.95 * slow[row - 1] + 0.03 * rng.standard_normal()
    assert finding(0.5 + slow).status is Status.NONE
