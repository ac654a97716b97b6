"""Signs: which signals moved about a change, from which row on, and in which words; limits where
they are certain.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.cases import each_case
from tests.golden.sentences import says

from groupwise.diagnostics.completions import truncation
from groupwise.diagnostics.judge import judged
from groupwise.diagnostics.judgement import Status
from groupwise.diagnostics.signals import (
    WATCHED,
    Evidence,
    NoisyMetric,
    Watched,
    arrow,
    levels_of,
    limit_of,
    moved,
    repeated_most,
    sign_of,
    signal_of,
    signs_about,
)
from groupwise.record.run import Meaning, RunConfig, RunRecord, steps_table
from groupwise.wording import short

N = 80
ROW = np.arange(N)
RATIO = Watched("entropy", "entropy", share=False, least=1.4)
SHARE = Watched("truncated_share", "truncated", share=True, least=0.1, up=True)
SPIKE = Watched("gradient_norm", "gradient norm", share=False, least=5.0, spike=True, up=True)


def signal(value: Any) -> NoisyMetric:
    values = np.asarray(value, dtype=float)
    return signal_of("x", np.arange(1, len(values) + 1), values)


def evidence(config: dict[str, Any] | None = None, **columns: Any) -> Evidence:
    given = {key: np.asarray(value, dtype=float) for key, value in columns.items()}
    names = {"held_out": "eval/reward"}
    meanings = tuple(Meaning(key, names.get(key, key), "test") for key in given)
    settings = RunConfig().with_settings(config or {}, "--set")
    return Evidence(
        RunRecord(
            "run",
            steps_table(range(1, len(next(iter(given.values()))) + 1), given),
            config=settings,
            meanings=meanings,
        )
    )


# Words.


@each_case(
    ("value", "said"),
    [
        (0.0, "0.00"),
        (0.894, "0.89"),
        (-0.001, "−0.001"),
        (0.0049, "0.0049"),
        (0.01, "0.01"),
        (0.078, "0.078"),
        (9.994, "9.99"),
        (12.34, "12.3"),
        (99.94, "99.9"),
        (100.0, "100"),
        (1234.5, "1,234"),
        (1e6, "1.0e+06"),
        (-2.5e7, "−2.5e+07"),
    ],
)
def test_a_level_in_words(value: float, said: str) -> None:
    assert short(value) == said


@each_case(
    ("values", "said"),
    [
        ((0.89, 0.0), "0.89 → 0.00"),
        ((0.1, 0.02), "0.10 → 0.02"),
        ((0.0991, 0.012), "0.099 → 0.012"),
        ((314.2, 454.0, 512.0), "314 → 454 → 512"),
        ((9.0, 10.04), "9 → 10"),
        ((1.0, 9.996), "1.00 → 10"),
        ((1234.4, 2.0), "1,234 → 2"),
        ((0.5, -0.001), "0.50 → −0.001"),
        ((0.001, 0.002), "0.001 → 0.002"),
        ((0.0, 0.0), "0.00 → 0.00"),
        ((1.0, 2e6), "1.00 → 2.0e+06"),
    ],
)
def test_levels_that_follow_each_other_are_written_as_each_is_alone(
    values: tuple[float, ...], said: str
) -> None:
    assert arrow(*values) == said


# Moves.


def test_a_level_that_moves_is_told_from_its_first_row_with_raw_numbers() -> None:
    value = np.where(ROW < 46, 0.4, 0.8)
    sign = sign_of(signal(value), RATIO, low=41, step=51)
    assert sign is not None
    assert (sign.signal, sign.step, sign.before, sign.after, sign.words) == (
        "entropy",
        47,
        0.4,
        0.8,
        "entropy 0.40 → 0.80",
    )


def test_the_level_since_a_move_is_that_of_a_twentieth_of_the_rows() -> None:
    """Of 79 rows it is three: two of them at .8; of 80 it is four."""
    value = np.where((ROW == 50) | (ROW == 51), 0.8, 0.4)
    for rows, after in ((79, 0.8), (80, 0.6)):
        sign = sign_of(signal(value[:rows]), RATIO, low=41, step=51)
        assert sign is not None
        assert sign.reached == pytest.approx(after)


def test_a_move_that_goes_on_is_told_with_three_levels() -> None:
    value = np.where(ROW < 50, 0.13, np.where(ROW < 53, 0.31, 0.54))
    sign = sign_of(signal(value), RATIO, low=41, step=51)
    assert sign is not None
    assert sign.step == 51
    says("diagnostics/signs/2", sign.words)


@pytest.mark.parametrize(
    ("levels", "said"),
    [
        ((53.0, 2.6, 4.5), "length 53 → 2.60 → 4.50"),  # beyond where it ends
        ((53.0, 4.3, 4.5), "length 53 → 4.50"),
        ((0.3, 0.51, 5.8), "length 0.30 → 0.51 → 5.80"),
        ((0.3, 5.5, 5.8), "length 0.30 → 5.80"),
        ((0.8, 0.0, 0.0), "length 0.80 → 0.00"),
    ],
)
def test_the_second_of_three_levels_is_that_of_the_step(
    levels: tuple[float, float, float], said: str
) -> None:
    assert moved("length", 1, *levels_of(*levels)).words == said


@each_case(
    ("after", "moved"),
    [(0.4 * 1.39, False), (0.4 * 1.41, True), (0.4 / 1.39, False), (0.4 / 1.41, True)],
)
def test_a_ratio_counts_from_its_least_on_either_side(after: float, moved: bool) -> None:
    assert (
        sign_of(signal(np.where(ROW < 50, 0.4, after)), RATIO, low=41, step=51) is not None
    ) is moved


@pytest.mark.parametrize(("after", "moved"), [(0.14, False), (0.16, True), (0.0, False)])
def test_a_share_counts_by_difference_and_only_upwards(after: float, moved: bool) -> None:
    sign = sign_of(signal(np.where(ROW < 50, 0.05, after)), SHARE, low=41, step=51)
    assert (sign is not None) is moved
    if sign is not None:
        says("diagnostics/signs/1", sign.words)


@pytest.mark.parametrize(("after", "moved"), [(0.002, False), (0.019, False), (0.03, True)])
def test_clipped_tokens_count_from_two_points_on(after: float, moved: bool) -> None:
    (clipped,) = (watched for watched in WATCHED if watched.quantity == "clip_ratio")
    sign = sign_of(signal(np.where(ROW < 50, 0.0004, after)), clipped, low=41, step=51)
    assert (sign is not None) is moved


def test_a_scatter_before_is_a_yardstick_and_what_comes_later_is_none() -> None:
    noisy = np.where(ROW % 2, 0.2, 0.8)
    late = np.where(ROW < 50, noisy, 1.0)
    assert sign_of(signal(late), RATIO, low=41, step=51) is None
    quiet = np.where(ROW < 50, 0.4, np.where(ROW % 2, 0.8, 4.0))
    assert sign_of(signal(quiet), RATIO, low=41, step=51) is not None


def test_a_move_is_followed_back_over_one_other_row_at_most() -> None:
    value = np.full(N, 0.4)
    value[44:] = 1.0
    value[46] = 0.4  # one row between
    sign = sign_of(signal(value), RATIO, low=41, step=51)
    assert sign is not None
    assert sign.step == 45
    value[47] = 0.4  # and two
    sign = sign_of(signal(value), RATIO, low=41, step=51)
    assert sign is not None
    assert sign.step == 49


def test_a_move_before_the_reach_is_told_from_where_it_began() -> None:
    sign = sign_of(signal(np.where(ROW < 40, 0.4, 0.8)), RATIO, low=46, step=51)
    assert sign is not None
    assert sign.step == 41


def test_a_spike_is_told_by_its_peak_just_before_the_change() -> None:
    value = np.full(N, 1.0)
    value[48] = 40.0
    sign = sign_of(signal(value), SPIKE, low=41, step=51)
    assert sign is not None
    assert (sign.step, sign.before, sign.after, sign.words) == (
        49,
        1.0,
        40.0,
        "gradient norm 1.00 → 40",
    )
    early = np.full(N, 1.0)
    early[40] = 40.0  # ten rows before is no sign of a problem
    assert sign_of(signal(early), SPIKE, low=31, step=51) is None
    small = np.full(N, 1.0)
    small[48] = 4.9
    assert sign_of(signal(small), SPIKE, low=41, step=51) is None


def test_a_single_row_of_a_level_must_go_twice_as_far_as_one_that_lasts() -> None:
    """The logarithms before scatter by 1.4826 ln 1.25 = .33: one row of 2.5 times the level,
    .92, is less than 4 of them, 4 times more.
    """
    for peak, seen in ((2.5, False), (4.0, True)):
        value = np.where(ROW % 2, 0.4, 0.4 * 1.25**2)
        value[48] = 0.5 * peak
        assert (sign_of(signal(value), RATIO, low=41, step=51) is not None) is seen


def test_a_single_row_is_the_farthest_on_the_side_that_is_a_sign() -> None:
    """An entropy of .4 and for one row .05; of a share that falls by .4 and rises by .3 the rise
    alone is asked for.
    """
    sign = sign_of(signal(np.where(ROW == 48, 0.05, 0.4)), RATIO, low=41, step=51)
    assert sign is not None
    assert sign.step == 49
    sign = sign_of(
        signal(np.where(ROW == 47, 0.1, np.where(ROW == 48, 0.8, 0.5))), SHARE, low=41, step=51
    )
    assert sign is not None
    assert sign.step == 49


def test_a_share_that_goes_on_growing_is_told_with_three_levels() -> None:
    sign = sign_of(
        signal(np.interp(ROW, [0, 44, 64, 80], [0.02, 0.02, 0.82, 0.82])), SHARE, low=41, step=51
    )
    assert sign is not None
    assert sign.step == 49
    says("diagnostics/signs/3", sign.words)


def test_over_a_slow_change_what_only_rises_is_looked_at_to_its_end() -> None:
    """Truncation that rises from row 30 on, halfway at 50, while the reward falls; a length that
    drifts no less says nothing.
    """
    slow = np.interp(ROW, [0, 30, 70, 80], [0.0, 0.0, 0.8, 0.8])
    given = evidence(reward=0.8 - slow, truncated_share=slow, completion_length=300 + 200 * slow)
    assert [sign.words for sign in signs_about(given, 31, reach=6)] == []
    assert [(sign.step, sign.words) for sign in signs_about(given, 31, reach=6, end=71)] == [
        (35, "80 % truncated (was 3 %) by step 71")
    ]


def test_a_level_that_was_reached_before_the_rows_of_the_reach_is_dated_where_it_began() -> None:
    """The entropy doubles at step 43; of a change at step 51 six rows before are looked at."""
    given = evidence(reward=np.where(ROW < 50, 0.8, 0.1), entropy=np.where(ROW < 42, 0.4, 0.9))
    assert [
        [sign.step for sign in signs_about(given, 51, reach=reach)] for reach in (6, 8, 9)
    ] == 3 * [[43]]


KL = Watched("kl", "KL", share=False, least=4.0, up=True)


@each_case(
    ("grows", "step", "words"),
    [
        (np.where(ROW < 50, 0.0, (ROW - 50) / 6), 54, "KL 0.056 → 5.38 by step 75"),
        (np.zeros(N), None, ""),  # it grows as it always did
        (np.where(ROW < 72, 0.0, 4.0), 73, "KL 0.071 → 4.18"),  # at once
    ],
)
def test_what_grows_by_factors_is_dated_where_it_leaves_its_band(
    grows: Any, step: int | None, words: str
) -> None:
    """A KL that grows from the first row on, and by factors from row 50 on; the change is at 74."""
    sign = sign_of(signal(0.001 * (ROW + 1) * np.exp(grows)), KL, low=68, step=74)
    assert (sign and sign.step) == step
    assert not words or (sign and sign.words == words)


def test_a_rise_that_came_back_meanwhile_is_not_where_the_last_one_began() -> None:
    """To a third of its height: rows 66 on are another move."""
    rise = np.interp(ROW, [0, 45, 58, 65, 73, 80], [0.0, 0.0, 2.0, 0.7, 3.5, 3.5])
    sign = sign_of(signal(0.1 * np.exp(rise)), RATIO, low=68, step=72)
    assert sign
    assert sign.step >= 66
    rise = np.interp(ROW, [0, 45, 58, 65, 73, 80], [0.0, 0.0, 1.6, 1.6, 3.5, 3.5])
    sign = sign_of(signal(0.1 * np.exp(rise)), RATIO, low=68, step=72)
    assert sign
    assert sign.step <= 52


def test_what_drifts_as_it_did_before_is_no_sign_and_what_leaps_or_ramps_as_far_is() -> None:
    """From row 36 on the entropy is lower by a fifth and loses 2 % a row; or as much as by the last
    row at once; or it ramps down to less within the rows before the change.
    """
    drift = np.where(ROW < 36, 1.0, 0.8 * 0.98 ** np.clip(ROW - 36, 0, None))
    assert sign_of(signal(drift), RATIO, low=41, step=51) is None
    sign = sign_of(signal(np.where(ROW < 48, 1.0, drift[55])), RATIO, low=41, step=51)
    assert sign is not None
    assert (sign.step, sign.words) == (49, f"entropy {arrow(1.0, drift[55])}")
    ramp = 0.965 ** np.clip(ROW - 36, 0, None)
    sign = sign_of(signal(ramp), RATIO, low=41, step=51)
    assert sign is not None
    assert (sign.step, sign.before) == (47, 1.0)


def test_of_one_step_the_reward_is_the_last_sign() -> None:
    """The last five rows lost half of it, with answers of a third of their length."""
    after, noise = ROW >= 75, 0.02 * np.random.default_rng(0).standard_normal(N)
    length = np.where(after, 90.0, 300.0)
    judgement = judged(evidence(reward=np.where(after, 0.4, 0.8) + noise, completion_length=length))
    assert [(sign.signal, sign.step) for sign in judgement.signs] == [
        ("completion_length", 76),
        ("reward", 76),
    ]


def test_nothing_has_no_ratio_and_too_few_rows_tell_nothing() -> None:
    assert sign_of(signal(np.where(ROW < 50, 0.0, 0.8)), RATIO, low=41, step=51) is None
    assert sign_of(signal(np.where(ROW < 1, 0.4, 0.8)), RATIO, low=1, step=2) is None
    assert (
        sign_of(signal(np.where(ROW < 2, 0.4, 0.8)), RATIO, low=1, step=3) is not None
    )  # two rows before are the fewest
    assert sign_of(signal(np.full(N, 0.4)), RATIO, low=41, step=500) is None


def test_signs_come_in_order_with_the_held_out_reward_among_them() -> None:
    signs = signs_about(
        evidence(
            reward=np.where(ROW < 50, 0.8, 0.1),
            entropy=np.where(ROW < 53, 0.4, 0.9),
            completion_length=np.where(ROW < 48, 300.0, 500.0),
            truncated_share=np.where(ROW < 50, 0.0, 0.6),
            held_out=np.where(ROW < 51, 0.6, 0.2),
            kl=np.full(N, 0.1),
        ),
        51,
        reach=6,
    )
    assert [(sign.signal, sign.step) for sign in signs] == [
        ("completion_length", 49),
        ("truncated_share", 51),
        ("held_out", 52),
        ("entropy", 54),
    ]
    assert [sign.words for sign in signs] == [
        "length 300 → 500 = limit",
        "60 % truncated (was 0 %)",
        "held-out reward 0.60 → 0.20",
        "entropy 0.40 → 0.90",
    ]
    assert len({quantity.quantity for quantity in WATCHED}) == len(WATCHED)


def test_a_held_out_reward_that_moved_by_less_than_a_twentieth_is_no_sign() -> None:
    for lost, signs in ((0.04, []), (0.06, ["held_out"])):
        held_out = np.where(ROW < 50, 0.6, 0.6 - lost)
        given = evidence(reward=np.where(ROW < 50, 0.8, 0.1), held_out=held_out)
        assert [sign.signal for sign in signs_about(given, 51, reach=6)] == signs


# Limits.


def test_a_length_at_its_limit_says_so() -> None:
    length = np.where(ROW < 48, 300.0, 512.0)
    signs = signs_about(
        evidence(reward=np.where(ROW < 50, 0.8, 0.1), completion_length=length), 51, reach=6
    )
    (note,) = [sign.words for sign in signs]
    says("diagnostics/signs/4", note)
    below = np.where(ROW < 48, 300.0, 500.0)
    config = {"max_completion_length": 512}
    signs = signs_about(
        evidence(config, reward=np.where(ROW < 50, 0.8, 0.1), completion_length=below), 51, reach=6
    )
    assert [sign.words for sign in signs] == ["length 300 → 500"]
    near = np.where(ROW < 48, 300.0, 502.0) + 0.1 * np.sin(ROW)
    signs = signs_about(
        evidence(config, reward=np.where(ROW < 50, 0.8, 0.1), completion_length=near), 51, reach=6
    )
    (note,) = [sign.words for sign in signs]
    says("diagnostics/signs/5", note)


def test_the_limit_is_the_length_of_rows_in_which_all_are_truncated() -> None:
    length = 300.0 + ROW
    cut = np.where(ROW < 70, 0.2, 1.0)
    assert (
        limit_of(evidence(completion_length=np.where(ROW < 70, length, 512.0), truncated_share=cut))
        == 512.0
    )
    # Two rows are too few, and rows of unlike length have no limit.
    two = np.where(ROW < 78, 0.2, 1.0)
    assert (
        limit_of(evidence(completion_length=np.where(ROW < 78, length, 512.0), truncated_share=two))
        is None
    )
    assert limit_of(evidence(completion_length=length, truncated_share=cut)) is None


def test_a_limit_of_the_settings_counts_where_no_length_goes_beyond() -> None:
    length = 300.0 + ROW  # to 379
    assert limit_of(evidence({"max_completion_length": 512}, completion_length=length)) == 512.0
    assert (
        limit_of(evidence({"max_completion_length": 376}, completion_length=length)) == 376.0
    )  # within 1 %
    assert limit_of(evidence({"max_completion_length": 375}, completion_length=length)) is None
    assert limit_of(evidence({"max_completion_length": 512}, reward=length)) == 512.0
    assert limit_of(evidence(completion_length=length)) is None
    assert limit_of(evidence(reward=length)) is None


@pytest.mark.parametrize(("rows", "limit"), [(7, None), (8, 512.0)])
def test_a_largest_length_that_a_tenth_of_the_rows_share_is_a_limit(
    rows: int, limit: float | None
) -> None:
    length = np.where(N - rows <= ROW, 512.0, 300.0 + 0.1 * ROW)
    assert repeated_most(signal(length)) == limit


def test_lengths_that_hardly_vary_have_no_limit() -> None:
    assert repeated_most(signal(np.where(ROW < 20, 470.0, 512.0))) is None
    assert repeated_most(signal(np.where(ROW < 20, 450.0, 512.0))) == 512.0
    short_log = np.concatenate([np.linspace(100, 200, 16), np.full(4, 512.0)])
    assert repeated_most(signal(short_log)) is None  # five rows at least
    assert repeated_most(signal(np.append(short_log, 511.6))) == 512.0


def test_the_last_of_three_levels_is_that_of_the_rows_just_after_the_move() -> None:
    """Row 40 stands at 1.1, nine rows at 2, the rest back at .5: of an eighth of the log since
    the move the median is 2.
    """
    value = np.r_[np.full(40, 0.5), 1.1, np.full(9, 2.0), np.full(30, 0.5)]
    sign = sign_of(signal(value), RATIO, low=38, step=41)
    assert sign is not None
    assert (sign.words, sign.before, sign.after) == (
        "entropy 0.50 → 1.10 → 2",
        0.5,
        2.0,
    )  # the same to a reader and in JSON


@pytest.mark.parametrize(("late", "never"), [(150.0, True), (160.0, False)])
def test_where_the_mean_length_is_far_below_the_limit_hardly_any_is_cut_off(
    late: float, never: bool
) -> None:
    """Of 1,024 tokens 150 in the mean leave no more than .146 of the answers at the limit; what
    they were before a policy changed says nothing.
    """
    length = np.where(ROW < 40, 300.0, late)
    assert evidence({"max_completion_length": 1024}, completion_length=length).never_cut is never
    assert not evidence({}, completion_length=length).never_cut
    ran = np.where((ROW >= 45) & (ROW < 60), 1000.0, length)  # away, and came back short
    assert not evidence({"max_completion_length": 1024}, completion_length=ran).never_cut
    cut = np.where(ROW < 40, 0.0, 0.1)
    logged = {"completion_length": length, "truncated_share": cut}
    assert not evidence({"max_completion_length": 1024}, **logged).never_cut


@pytest.mark.parametrize(("later", "signs"), [(0.3, ["held_out"]), (0.9, [])])
def test_a_held_out_reward_is_a_sign_where_it_falls_and_none_where_it_rises(
    later: float, signs: list[str]
) -> None:
    held = np.where(ROW < 36, 0.6, later) + 0.005 * (-1.0) ** ROW
    given = evidence(reward=np.where(ROW < 40, 0.7, 0.2), held_out=held)
    assert [sign.signal for sign in signs_about(given, 41, reach=20)] == signs


@pytest.mark.parametrize(("share", "status"), [(0.0, Status.NONE), (0.25, Status.WARNING)])
def test_most_completions_truncated_over_a_whole_run_of_small_batches(
    share: float, status: Status
) -> None:
    finding = truncation(evidence(truncated_share=np.where(ROW % 2 == 0, 0.875, share)))
    assert finding.status is status
    assert status is Status.NONE or finding.message.startswith(
        "56 % of all completions are truncated"
    )
