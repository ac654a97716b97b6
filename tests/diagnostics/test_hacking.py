"""Reward hacking: rewards that move against each other, a gain that is not shared, overfitting,
units, and functions that part.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.cases import each_case
from tests.golden.sentences import says

from groupwise.diagnostics.hacking import (
    Pair,
    Parting,
    _deviation,
    _followed,
    _follows,
    _in_common,
    _leapt,
    _one_earns_all,
    _overfitting,
    _pace,
    _scales,
    _slow,
    _solved,
    _too_fresh,
    _uncoupled,
    coupling_of,
    few_of,
    pairs_of,
    parting_of,
    reward_hacking,
)
from groupwise.diagnostics.judge import judged
from groupwise.diagnostics.judgement import Certainty, Fact, Finding, State, Status
from groupwise.diagnostics.signals import Evidence
from groupwise.diagnostics.verifier import weights_of
from groupwise.intervals import Interval
from groupwise.record.run import Meaning, RunRecord, steps_table
from groupwise_lab.worlds.runs import simulated_run

NAMES = {
    "passes": "epoch",
    "reward": "reward",
    "held_out": "eval/reward",
    "length": "completion_length",
    "loss": "loss",
    "kl": "kl",
}
N = 100
ROW = np.arange(N)
UP = np.linspace(0.2, 0.8, N)


def noise(by: float = 0.01, seed: int = 0) -> NDArray[np.float64]:
    return np.asarray(by * np.random.default_rng(seed).standard_normal(N))


def evidence(**columns: Any) -> Evidence:
    given = {key: np.asarray(value, dtype=float) for key, value in columns.items()}
    meanings = tuple(Meaning(key, NAMES[key], "test") for key in given if key in NAMES)
    return Evidence(RunRecord("run", steps_table(range(1, N + 1), given), meanings=meanings))


def finding_of(**columns: Any) -> Finding:
    return reward_hacking(evidence(**columns))


def pair(train: Any, held: Any, train_noise: float = 0.01, held_noise: float = 0.01) -> Pair:
    value, other = np.asarray(train, dtype=float), np.asarray(held, dtype=float)
    return Pair(
        np.arange(1, len(value) + 1), value, other, train_noise, held_noise, "held-out reward"
    )


# The coupling.


def test_the_coupling_is_the_ratio_of_the_gains_with_fiellers_interval() -> None:
    """Of ten and ten rows with noises 0.1 and 0.2: errors 0.1·sqrt(2/10) and twice that; gains 1
    and 0.5.
    """
    couple = pair(np.repeat([0.0, 1.0], 10), np.repeat([0.2, 0.7], 10), 0.1, 0.2)
    coupling = coupling_of(couple, slice(0, 10), slice(10, 20))
    assert coupling is not None
    error = 0.1 * np.sqrt(0.2)
    g = (1.96 * error) ** 2
    half = 1.96 * np.sqrt((1 - g) * (2 * error) ** 2 + 0.25 * error**2) / (1 - g)
    assert coupling.value == pytest.approx(0.5, abs=1e-12)
    assert (coupling.low, coupling.high) == pytest.approx(
        (0.5 / (1 - g) - half, 0.5 / (1 - g) + half)
    )


@pytest.mark.parametrize(("gain", "there"), [(4.01, True), (3.99, False), (-4.01, True)])
def test_there_is_no_coupling_where_training_moved_by_less_than_four_errors(
    gain: float, there: bool
) -> None:
    error = 0.1 * np.sqrt(0.2)
    couple = pair(np.repeat([0.0, gain * error], 10), np.repeat([0.2, 0.7], 10), 0.1)
    assert (coupling_of(couple, slice(0, 10), slice(10, 20)) is not None) is there


@each_case(
    ("train", "held", "follows"),
    [
        ((0.0, 1.0), (0.2, 0.5), True),
        ((0.0, 1.0), (0.2, 0.46), True),  # .26 of the gain, with an interval of .009 on either side
        ((0.0, 1.0), (0.2, 0.458), False),
        ((0.9, 0.0), (0.5, 0.2), False),  # both fell
        ((0.0, 0.01), (0.2, 0.5), False),  # training did not move
    ],
)
def test_the_held_out_reward_follows_where_it_shares_a_quarter_of_a_gain_beyond_doubt(
    train: tuple[float, float], held: tuple[float, float], follows: bool
) -> None:
    assert _follows(pair(np.repeat(train, 30), np.repeat(held, 30))) is follows
    assert not _follows(None)


@each_case(("count", "few"), [(5, 1), (6, 2), (12, 2), (18, 3), (60, 10)])
def test_how_many_values_make_a_stretch(count: int, few: int) -> None:
    assert few_of(pair(np.arange(count), np.arange(count))) == few


# Against each other.


def test_what_moves_against_each_other_is_hacking() -> None:
    finding = finding_of(reward=UP + noise(), held_out=0.6 - 0.2 * ROW / N + noise(seed=1))
    assert (finding.status, finding.facts) == (Status.CRITICAL, (Fact.LOOPHOLE,))
    assert [sign.words for sign in finding.signs] == ["reward 0.20 → 0.78", "held-out 0.60 → 0.42"]
    assert [sign.signal for sign in finding.signs] == ["reward", "held_out"]
    assert finding.limit == 0.25


# Not shared, overfitting, a loophole.


@pytest.mark.parametrize(
    ("errors", "ended", "status"),
    [(2.0, True, Status.WARNING), (1.9, True, None), (2.0, False, None)],
)
def test_less_than_half_of_a_gain_asks_for_a_look_once_a_run_has_ended(
    errors: float, ended: bool, status: Status | None
) -> None:
    """Three tenths are shared, and half by 1.96 errors: of a run that goes on that is looked for
    too often.
    """
    train = UP - 0.2
    noise_of_one = (
        0.2
        * pair(train, train).gain_of_training(slice(0, 16), slice(84, 100))[0]
        / errors
        / np.sqrt(2 / 16)
    )
    told_of = _uncoupled(
        pair(train, 0.3 * train, 1e-9, noise_of_one), replace(evidence(reward=UP), ended=ended)
    )
    assert (None if told_of is None else told_of.status) is status


def test_a_gain_that_is_not_shared_is_hacking() -> None:
    finding = finding_of(reward=UP + noise(), held_out=0.3 + noise(seed=1))
    assert (finding.status, finding.facts) == (Status.CRITICAL, (Fact.LOOPHOLE,))
    assert finding.message.endswith(
        "the held-out reward gained −0.002 (−0.024 to 0.020) times as much as training over the "
        "whole log."
    )
    follows = finding_of(reward=UP + noise(), held_out=UP - 0.05 + noise(seed=1))
    assert follows.status == Status.NONE
    says("diagnostics/hacking/2", follows.message)
    assert follows.facts == ()


@pytest.mark.parametrize(("lost", "message"), [(0.0, "0.50 → 0.50"), (0.05, "0.49 → 0.46")])
def test_what_gained_first_and_stands_or_falls_a_little_is_overfitting(
    lost: float, message: str
) -> None:
    held = np.where(ROW < 40, 0.2 + 0.3 * ROW / 40, 0.5 - lost * (ROW - 40) / 60) + noise(
        0.005, seed=1
    )
    finding = finding_of(reward=UP + noise(), held_out=held)
    assert (finding.status, finding.facts) == (Status.INFO, (Fact.OVERFITTING,))
    assert finding.message.endswith(
        f"the training reward rises while the held-out reward is flat: {message}. This is what overfitting looks like."
    )
    answer = judged(evidence(reward=UP + noise(), held_out=held))
    assert answer.state is State.OK
    assert answer.headline.endswith("still learning; possible problem: overfitting")


@each_case(
    ("held", "step", "levels"),
    [
        ([0.50, 0.57, 0.59, 0.61, 0.63, 0.63, 0.63, 0.63], 4, "0.62 → 0.63"),  # it still gained
        ([0.50, 0.63, 0.63, 0.63, 0.63, 0.63, 0.63, 0.63], 2, "0.63 → 0.63"),
        ([0.50, 0.64, 0.64, 0.57, 0.57, 0.63, 0.63, 0.63], 2, "0.64 → 0.63"),  # back from a dip
    ],
)
def test_what_is_held_out_is_flat_from_behind_its_last_gain(
    held: list[float], step: int, levels: str
) -> None:
    finding = _overfitting(pair(np.linspace(0.4, 0.8, 8), held), 1, Interval(0.3, 0.2, 0.4))
    assert (finding.step, finding.status) == (step, Status.INFO)
    assert f"is flat: {levels}. " in finding.message


@pytest.mark.parametrize(
    ("train", "open_", "how"),
    [(ROW, "", "0.48 → 0.75"), (np.minimum(ROW, 40), "harder data", "0.45 → 0.44")],
)
def test_a_held_out_reward_that_lost_an_eighth_of_its_best_asks_for_a_look(
    train: NDArray[np.int64], open_: str, how: str
) -> None:
    """From .2 to .5 in forty rows, and down by .1 to the end; where training rises on at its pace
    it is learnt by heart, and where it stands either is open.
    """
    held = np.where(ROW < 40, 0.2 + 0.3 * ROW / 40, 0.5 - 0.1 * (ROW - 40) / 60) + noise(
        0.005, seed=1
    )
    given = evidence(reward=0.2 + 0.6 * train / (N - 1) + noise(), held_out=held)
    finding, answer = reward_hacking(given), judged(given)
    assert finding.status is Status.WARNING
    assert finding.value is not None
    assert finding.value.value == pytest.approx(-0.075, abs=0.003)  # of stretches of sixteen rows
    assert finding.message.startswith("held-out reward 0.49 → 0.41 since step ")
    assert finding.message.endswith(f", training reward at the same steps {how}")
    certainty = Certainty.CANNOT_TELL if open_ else Certainty.LIKELY
    assert (answer.state, answer.cause.certainty) == (State.WARNING, certainty)
    assert set(answer.cause.names) == {"overfitting", open_ or "overfitting"}
    ends = (
        "held-out reward 0.49 → 0.41: overfitting likely",
        f"training reward at the same steps {how}",
    )
    assert answer.headline.endswith(ends[bool(open_)])
    along = reward_hacking(evidence(reward=held + noise(), held_out=held))
    assert along.status is Status.NONE  # training lost as much


def test_what_gained_first_and_lost_more_than_half_of_it_by_and_by_is_overfitting() -> None:
    """Unless training has seen no prompt twice."""
    held = np.where(ROW < 40, 0.2 + 0.3 * ROW / 40, 0.5 - 0.3 * (ROW - 40) / 60) + noise(
        0.005, seed=1
    )
    finding = finding_of(reward=UP + noise(), held_out=held)
    assert (finding.status, finding.step) == (Status.WARNING, 43)  # where it was best
    assert finding.facts == (Fact.LEARNT_BY_HEART,)
    assert [sign.words for sign in finding.signs] == [
        "reward 0.46 → 0.78",
        "held-out 0.26 → 0.48 → 0.24 (best at step 43)",
    ]
    once = finding_of(reward=UP + noise(), held_out=held, passes=np.linspace(0.01, 0.9, N))
    assert once.facts == (Fact.HELD_OUT_FALLS_AS_TRAINING_RISES,)


def test_a_loophole_parts_the_two_within_a_few_rows_and_is_no_overfitting() -> None:
    held = np.where(ROW < 50, 0.2 + 0.2 * ROW / 50, 0.4) + noise(0.005, seed=1)
    finding = finding_of(
        reward=np.where(ROW < 50, 0.2 + 0.2 * ROW / 50, 0.9) + noise(), held_out=held
    )
    assert (finding.status, finding.step, finding.facts) == (
        Status.CRITICAL,
        50,
        (Fact.LOOPHOLE,),
    )


def test_a_training_that_keeps_its_pace_as_the_two_part_leaves_a_loophole_and_overfitting_open() -> (
    None
):
    """Both gain 0.01 a row up to row 50; training goes on at that pace for fifteen rows and
    stands then.
    """
    train, held = 0.1 + 0.01 * np.minimum(ROW, 65), 0.1 + 0.01 * np.minimum(ROW, 50)
    finding = finding_of(reward=train + noise(), held_out=held + noise(0.005, seed=1))
    assert (finding.status, finding.facts) == (Status.WARNING, (Fact.HELD_OUT_STANDS_AFTER_GAIN,))
    answer = judged(evidence(reward=train + noise(), held_out=held + noise(0.005, seed=1)))
    assert (answer.state, answer.cause.certainty, answer.cause.names) == (
        State.WARNING,
        Certainty.CANNOT_TELL,
        ("reward hacking", "overfitting"),
    )
    assert answer.headline.endswith("the two diverge")


def test_six_held_out_values_are_enough_to_see_that_a_gain_is_not_shared() -> None:
    given = pair([0.3, 0.5, 0.6, 0.8, 0.9, 0.9], [0.3, 0.5, 0.55, 0.55, 0.55, 0.55])
    finding = _uncoupled(given, evidence(reward=UP))
    assert finding is not None
    assert (finding.status, finding.facts) == (Status.WARNING, (Fact.HELD_OUT_STANDS_AFTER_GAIN,))
    assert _uncoupled(replace(given, held_M=given.train_M - 0.1), evidence(reward=UP)) is None


@pytest.mark.parametrize(
    ("value", "deviation"),
    [
        # The differences .27, .07, .03, .03 without the fall of .55: the root of .0796 / 8, in
        # Student's measure of three.
        ([0.26, 0.53, 0.60, 0.05, 0.02, 0.05], np.sqrt(0.0796 / 8) * 3.182446 / 1.959964),
        # A slope without noise has none, though its differences are .1.
        ([0.1, 0.2, 0.3, 0.4, 0.5], 0.0),
        (list(np.r_[np.full(4, 0.6), np.full(4, 0.1)]), 0.0),
    ],
)
def test_a_fall_of_few_held_out_values_is_no_noise_of_theirs(
    value: list[float], deviation: float
) -> None:
    assert _deviation(np.array(value)) == pytest.approx(deviation, rel=1e-3, abs=1e-12)


@each_case("rows", [30, 60, 100])
@each_case("scatter", [0.03, 0.08])
def test_six_held_out_values_do_not_hide_a_loophole(rows: int, scatter: float) -> None:
    held = np.full(rows, np.nan)
    held[np.linspace(0, rows - 1, 6).round().astype(int)] = [0.26, 0.53, 0.60, 0.05, 0.02, 0.05]
    train = np.linspace(0.32, 0.90, rows) + scatter * np.random.default_rng(rows).standard_normal(
        rows
    )
    meanings = tuple(Meaning(key, NAMES[key], "test") for key in ("reward", "held_out"))
    answer = judged(
        Evidence(
            RunRecord(
                "run",
                steps_table(range(rows), {"reward": train, "held_out": held}),
                meanings=meanings,
            )
        )
    )
    assert (answer.state, answer.cause.certainty, answer.cause.names) == (
        State.FAILED,
        Certainty.LIKELY,
        ("reward hacking",),
    )
    assert "held-out 0.56 → 0.035" in answer.headline


def test_a_verifier_that_gives_one_number_is_no_loophole_whatever_is_held_out() -> None:
    """A reward of .6 that is .5, or 1, in all rows since row 60, beside held-out rewards that
    rise, stand, or fall.
    """
    train = np.interp(ROW, [0, 60], [0.3, 0.6]) + noise(0.03)
    for stuck in (0.5, 1.0):
        for late in (0.6, 0.3, 0.1):
            held = np.interp(ROW, [0, 59, 60, 99], [0.3, 0.5, late, late]) + noise(0.02, seed=1)
            given = {"reward": np.where(ROW < 60, train, stuck), "length": 200 + noise(3.0, seed=2)}
            answer = judged(evidence(**given, held_out=held))
            alone = judged(evidence(**given))
            assert answer.cause == alone.cause
            said, _, graver = answer.headline.partition("; since step ")
            critical = [check.step for check in answer.checks if check.status is Status.CRITICAL]
            assert said == alone.headline
            assert not graver or int(graver.partition(" ")[0]) in critical
            assert answer.cause.names == ("a broken verifier",)


def test_a_held_out_share_near_its_top_cannot_follow_a_training_that_only_catches_up() -> None:
    """Of ten values; a held-out share of 0.6 could have followed, and did not."""
    train = np.repeat([0.95, 1.0], 5)
    for held, status in ((0.99, None), (0.6, Status.CRITICAL)):
        given = pair(train, np.full(10, held), 0.002, 0.008)
        coupling, finding = coupling_of(given, *given.ends), _uncoupled(given, evidence(reward=UP))
        assert coupling is not None
        assert coupling.high > 0.25  # over the whole log nothing is told
        assert (None if finding is None else finding.status) is status


def test_in_units_of_its_own_a_gain_that_was_shared_at_first_hides_no_loophole_since() -> None:
    """Both gain 0.3 up to row 30; there training leaps by 0.4 within four rows, and the held-out
    reward loses 0.15.
    """
    rows = np.arange(60)
    train, held = (
        np.interp(rows, [0, 30, 34, 59], [0.5, 0.8, *late]) for late in ([1.2, 1.2], [0.65, 0.65])
    )
    given = replace(pair(train, held), scale=0.8)
    coupling = coupling_of(given, *given.ends)
    assert coupling is not None
    assert coupling.high < 0.25
    assert held[-1] - held[0] > 0.1
    finding = _uncoupled(given, evidence(reward=UP))
    assert finding is not None
    assert (finding.status, finding.step) == (Status.CRITICAL, 30)


@pytest.mark.parametrize(("back", "status"), [(0.6, None), (0.9, Status.CRITICAL)])
def test_training_that_comes_back_from_a_dip_has_not_gained_on_the_held_out_reward(
    back: float, status: Status | None
) -> None:
    """Both rise to 0.6 by row 24; training alone falls to 0.3 for six rows, and comes back to
    0.6 or goes on to 0.9.
    """
    rows = np.arange(60)
    train = np.interp(rows, [0, 24, 30, 31, 36, 40, 59], [0.2, 0.6, 0.6, 0.3, 0.3, back, back])
    finding = _uncoupled(
        pair(train, np.interp(rows, [0, 24, 59], [0.2, 0.6, 0.6])), evidence(reward=UP)
    )
    assert (None if finding is None else finding.status) is status


@pytest.mark.parametrize(
    ("pace", "share", "status"),
    [
        (0.01, 0.0, Status.INFO),  # no faster than before: learnt by heart
        (0.016, 0.0, Status.WARNING),  # faster: a loophole is open
        (0.016, 0.2, Status.INFO),  # a fifth of it is shared beyond doubt
    ],
)
def test_what_parts_slowly_is_overfitting_where_training_is_no_faster_or_the_held_out_reward_still_gains(
    pace: float, share: float, status: Status
) -> None:
    """Both gain 0.01 a row up to row 40 of 100; training goes on at a pace, of which the
    held-out reward gets a share.
    """
    since = np.maximum(ROW - 40, 0)
    shared = 0.1 + 0.01 * np.minimum(ROW, 40)
    finding = _uncoupled(
        pair(shared + pace * since, shared + share * pace * since), evidence(reward=UP)
    )
    assert finding is not None
    assert finding.status is status


@each_case(
    ("after", "best", "held", "leapt"),
    [
        (0.9, 0.2, 0.2, True),
        (0.39, 0.2, 0.2, False),  # less than one and a half times the pace of before
        (0.9, 0.9, 0.2, False),  # it stood there before
        (0.9, 0.2, 0.55, False),  # half of the gain is shared
    ],
)
def test_training_leaps_to_a_height_of_its_own_and_faster_than_before(
    after: float, best: float, held: float, leapt: bool
) -> None:
    """Of 60 rows: 0.1 a stretch of ten up to 0.3 at row 30, then up to `after` within ten rows;
    the noise is a thousandth.
    """
    rows = np.arange(60)
    train = np.interp(rows, [0, 30, 40, 59], [0.0, 0.3, after, after])
    train[:5] = best
    given = pair(train, np.where(rows < 30, 0.2, held), 0.001, 0.001)
    assert _leapt(given, Parting(31, 31, 31, 10 / 59, 0.02)) is leapt
    assert not _leapt(
        given, Parting(31, 31, 31, 0.21, 0.02)
    )  # more than a fifth of the log is no leap


def test_the_pace_of_a_parting_by_hand() -> None:
    """Parted from row 30 to 40, in means of five rows: .17 from row 15 on, .27 from 25, .9 from
    40; fifteen rows after ten of before.
    """
    train = np.interp(np.arange(60), [0, 30, 40, 59], [0.0, 0.3, 0.9, 0.9])
    held = np.where(np.arange(60) < 35, 0.2, 0.4)
    pace = _pace(pair(train, held, 0.01, 0.02), Parting(31, 31, 31, 10 / 59, 0.02))
    assert pace is not None
    assert pace.high
    noise = 0.01 / np.sqrt(5)
    assert (pace.gain, pace.usual, pace.error) == pytest.approx(
        (0.63, 0.15, noise * np.sqrt(1 + 2.5**2 + 1.5**2))
    )
    assert pace.held == pytest.approx(0.2 + 1.96 * 0.02 * np.sqrt(2 / 5))
    assert _pace(pair(train, held), Parting(3, 3, 3, 10 / 59, 0.02)) is None
    peak = np.where(np.arange(60) < 5, 0.9 - 2.01 * noise, train)
    for before, high in ((peak, True), (peak + 0.02 * noise * (np.arange(60) < 5), False)):
        own = _pace(pair(before, held, 0.01, 0.02), Parting(31, 31, 31, 10 / 59, 0.02))
        assert own is not None
        assert own.high is high


@pytest.mark.parametrize(
    ("shortest", "pace", "slow"),
    [(0.16, 0.0157, True), (0.15, 0.0157, False), (0.16, 0.0158, False)],
)
def test_what_parts_slowly_and_no_faster_than_half_as_fast_again_is_slow(
    shortest: float, pace: float, slow: bool
) -> None:
    """.01 a row up to row 29 of 60, in means .17 and .27; fifteen rows on, .29 and thirteen
    times the pace, .225 is the most to gain.
    """
    train = 0.01 * np.minimum(np.arange(60), 29) + pace * np.maximum(np.arange(60) - 29, 0)
    assert (
        _slow(pair(train, np.full(60, 0.2), 1e-6, 1e-6), Parting(31, 31, 31, 10 / 59, shortest))
        is slow
    )


def test_a_training_that_comes_back_from_a_dip_has_not_leapt() -> None:
    """It stood at 0.3 to row 20, at 0.05 to row 30, and is back at 0.31 ten rows later; to 0.6
    it would have leapt.
    """
    rows = np.arange(60)
    for after, leapt in ((0.31, False), (0.6, True)):
        train = np.interp(
            rows, [0, 15, 20, 21, 30, 40, 59], [0.28, 0.3, 0.3, 0.05, 0.05, after, after]
        )
        assert (
            _leapt(pair(train, np.full(60, 0.2), 0.002, 0.01), Parting(31, 31, 31, 10 / 59, 0.02))
            is leapt
        )


def test_what_is_at_nothing_earns_nothing_however_large_its_weight() -> None:
    """The total is 100 f + g: f stays at a thousandth, and its noise moves the total more than
    the gain of g does.
    """
    f, g = np.abs(noise(0.002)), UP / 4 + noise(seed=1)
    finding = finding_of(**{"reward": 100 * f + g, "rewards/f/mean": f, "rewards/g/mean": g})
    assert (finding.status, finding.facts) == (Status.WARNING, (Fact.COLUMNS_PART,))
    assert [sign.signal for sign in finding.signs] == ["reward/g", "reward/f"]


@each_case(
    ("step", "ended", "fresh"),
    [(17, False, True), (16, False, False), (17, True, False), (None, False, False)],
)
def test_a_run_that_goes_on_has_parted_after_five_held_out_rewards(
    step: int | None, ended: bool, fresh: bool
) -> None:
    """Of twenty: four since step 17, five since step 16."""
    finding = Finding(Status.WARNING, "", step, check="reward_hacking")
    assert (
        _too_fresh(pair(UP[:20], UP[:20]), replace(evidence(reward=UP), ended=ended), finding)
        is fresh
    )


def test_where_the_two_parted_just_now_is_no_warning_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "groupwise.diagnostics.hacking._uncoupled",
        lambda *_: Finding(Status.WARNING, "parted", 97, check="reward_hacking"),
    )
    run = evidence(reward=UP + noise(), held_out=UP + noise(seed=1))
    assert reward_hacking(run).message == "parted"
    assert reward_hacking(replace(run, ended=False)).status == Status.NONE


def test_training_comes_to_the_held_out_reward_in_one_unit_alone() -> None:
    behind = pair(np.linspace(0.2, 0.6, N), np.full(N, 0.6))
    assert _followed(behind)
    assert not _followed(replace(behind, scale=2.0))


def test_the_range_of_where_two_part_is_that_of_four_fitted_numbers() -> None:
    """Mean, height, onset and length leave eight of twelve rows free."""
    gap = [-0.01, 0.04, 0.04, 0.01, 0.01, 0.14, 0.12, 0.12, 0.12, 0.18, 0.15, 0.15]
    parting = parting_of(pair(gap, np.zeros(12)))
    assert (parting.first, parting.step, parting.last) == (3, 6, 6)


def test_where_and_over_how_long_the_two_part() -> None:
    train = np.where(ROW < 50, 0.3, 0.9)
    at_once = parting_of(pair(train, np.full(N, 0.3)))
    assert (at_once.step, at_once.length, at_once.shortest) == (50, 0.02, 0.02)
    assert at_once.apart == 51
    assert at_once.first <= at_once.step <= at_once.last
    slowly = parting_of(pair(np.linspace(0.3, 0.9, N), np.full(N, 0.3)))
    assert (slowly.step, slowly.length, slowly.shortest) == (1, 1.0, 1.0)
    never = parting_of(pair(np.full(N, 0.3), np.full(N, 0.3)))
    assert (never.step, never.first, never.last, never.length, never.apart) == (1, 1, 1, 1.0, 1)


# Units.


@each_case(
    ("train", "held", "scales"),
    [
        ([0.2, 0.8], [0.1, 0.9], (1.0, 1.0)),
        ([20.0, 80.0], [0.1, 0.9], (100.0, 1.0)),
        ([0.2, 0.8], [10.0, 90.0], (1.0, 100.0)),
        ([2.0, 9.0], [0.1, 0.9], (1.0, 1.0)),  # a sum of functions
        ([20.0, 180.0], [0.1, 0.9], None),
        ([-20.0, 80.0], [0.1, 0.9], None),
        ([0.2, 0.8], [10.0, 900.0], None),
        ([20.0, 80.0], [10.0, 90.0], (1.0, 1.0)),
    ],
)
def test_per_cent_beside_a_share(
    train: list[float], held: list[float], scales: tuple[float, float] | None
) -> None:
    assert _scales(np.array(train), np.array(held)) == scales


def test_a_training_reward_in_units_of_its_own_is_brought_to_those_of_the_share() -> None:
    """Up to the best held-out stretch both have gained: what training gained there is what the
    share gained there.
    """
    train, held = -3 + 8 * ROW / N, 0.2 + 0.4 * ROW / N
    (coupled,) = pairs_of(evidence(reward=train + noise(0.1), held_out=held + noise(seed=1)))
    assert coupled.scale == pytest.approx(0.4 / 8, rel=0.02)
    assert (
        finding_of(reward=train + noise(0.1), held_out=held + noise(seed=1)).status is Status.NONE
    )
    # Where the held-out one never gained there is nothing to go by, and standing still is a
    # warning, falling an alarm.
    stands, falls = (
        finding_of(reward=train + noise(0.1), held_out=level + noise(seed=1))
        for level in (0.3, 0.5 - 0.2 * ROW / N)
    )
    assert (stands.status, falls.status) == (Status.WARNING, Status.CRITICAL)
    assert [sign.words for sign in stands.signs] == ["reward −2.99 → 4.72", "held-out 0.30 → 0.30"]


@each_case(
    ("train", "held", "scale"),
    [
        # Both gained up to the held-out best: 0.3 of a share there are 6 of the training's own
        # units; of 12 in all where one did not.
        ([0.0, 6.0, 12.0], [0.2, 0.5, 0.4], 0.05),
        ([0.0, 6.0, 12.0], [0.2, 0.1, 0.15], 1 / 12),
        ([6.0, 0.0, 12.0], [0.2, 0.5, 0.4], 1 / 12),
        # Gains within 1.64 standard errors are none: 0.1·sqrt(2/few) each.
        ([0.0, 6.0, 12.0], [0.2, 0.2 + 1.6 * 0.1 * np.sqrt(2 / 5), 0.2], 1 / 12),
        (
            [0.0, 6.0, 12.0],
            [0.2, 0.2 + 1.7 * 0.1 * np.sqrt(2 / 5), 0.2],
            1.7 * 0.1 * np.sqrt(2 / 5) / 6,
        ),
        # A training reward below 0 or above 1 alone is brought to another's units, and only to
        # those of a share.
        ([-1.0, 0.0, 1.0], [0.2, 0.5, 0.4], 0.3),
        ([0.0, 0.5, 1.0], [0.2, 0.5, 0.4], 1.0),
        ([0.0, 6.0, 12.0], [-0.2, 0.5, 0.4], 1.0),
        ([0.0, 6.0, 12.0], [0.2, 1.1, 0.4], 1.0),
    ],
)
def test_units_are_brought_together_by_the_gains_up_to_the_best_of_the_share(
    train: list[float], held: list[float], scale: float
) -> None:
    couple = pair(np.repeat(train, 10), np.repeat(held, 10), 0.1, 0.1)
    shared = _in_common(couple)
    assert few_of(couple) == 5
    assert shared.scale == pytest.approx(scale)
    assert shared.train_M == pytest.approx(scale * couple.train_M)
    assert shared.train_deviation == pytest.approx(scale * 0.1)


@each_case(
    ("held", "solved"),
    [
        ((0.86, 0.7), True),  # 0.14 was left, less than half of the 0.3 that training gained
        ((0.84, 0.7), False),
        ((0.5, 0.77), True),  # training has only caught up with it: above 0.95 of 0.8
        ((0.5, 0.75), False),
        ((0.5, 1.01), False),  # no share
        ((-0.01, 0.79), False),
    ],
)
def test_a_held_out_share_could_not_follow_where_it_was_nearly_solved(
    held: tuple[float, float], solved: bool
) -> None:
    couple = pair(np.repeat([0.5, 0.8], 10), np.repeat(held, 10))
    assert _solved(couple, few_of(couple)) is solved
    caught_up = held == (0.5, 0.77)
    # Of the same answers, or in other units, training catches up with nothing.
    assert [
        _solved(replace(couple, **more), few_of(couple))
        for more in ({"same": True}, {"scale": 2.0})
    ] == [solved and not caught_up] * 2


# Functions.


def test_a_function_whose_weight_is_rounding_is_looked_at_beside_the_total() -> None:
    """The total is the other function to the last digit but one: the sign of what is left of the
    weight of the task's own says nothing.
    """
    rng = np.random.default_rng(0)
    exact = np.where(ROW < 5, 0.25, 0.01) + 0.002 * rng.random(N)
    proxy = 2 - 1.2 * 0.8**ROW + 0.01 * rng.random(N)
    columns = {"rewards/exact/mean": exact, "rewards/proxy/mean": proxy}
    for sign in (-1, 1):
        total = proxy + sign * 1e-13 * exact
        log = evidence(reward=total, held_out=np.where(ROW % 5, np.nan, total), **columns)
        finding = reward_hacking(log)
        assert (finding.status, finding.facts) == (Status.WARNING, (Fact.COLUMNS_PART,))


def test_the_weights_of_a_sum_are_read_off_and_a_function_without_one_is_held_out() -> None:
    rewards, other = UP + noise(), 0.3 + noise(0.05, seed=2)
    columns = {"rewards/judge/mean": rewards, "rewards/true/mean": other}
    for total in (rewards + 0.5 * other, np.where(ROW == 40, np.nan, rewards + 0.5 * other)):
        assert weights_of(evidence(reward=total, **columns)) == {
            "judge": pytest.approx(1.0),
            "true": pytest.approx(0.5),
        }
    assert weights_of(evidence(reward=rewards * other, **columns)) == {}
    finding = finding_of(reward=rewards, **columns)
    assert (finding.status, finding.facts) == (Status.CRITICAL, (Fact.LOOPHOLE,))
    assert finding.signs[1].words == "true 0.29 → 0.29"


@pytest.mark.parametrize(
    ("earns", "nothing", "status", "told_as"),
    [
        (
            "judge",
            "correct",
            Status.WARNING,
            (
                "judge 0.24 → 0.75 while correct 0.007 → 0.0065: the function for the task earns "
                "nothing."
            ),
        ),
        (
            "judge",
            "brevity",
            Status.INFO,
            "judge 0.24 → 0.75 while brevity 0.007 → 0.0065: that function earns nothing.",
        ),
        (
            "format",
            "correct",
            Status.WARNING,
            (
                "reward 0.22 → 0.79 while correct 0.007 → 0.0065: the function for the task earns "
                "nothing."
            ),
        ),
    ],
)
def test_one_function_earns_all_while_another_that_counts_earns_nothing(
    earns: str, nothing: str, status: Status, told_as: str
) -> None:
    """What is wanted and stays at nothing is a warning, whatever earns."""
    rewards, other = UP + noise(), 0.005 + np.abs(noise(0.002, seed=3))
    finding = finding_of(
        **{
            "reward": rewards + other,
            f"rewards/{earns}/mean": rewards,
            f"rewards/{nothing}/mean": other,
        }
    )
    assert (finding.status, finding.message) == (status, told_as)
    assert finding.facts == ((Fact.COLUMNS_PART,) if status is Status.WARNING else ())
    assert [sign.signal for sign in finding.signs][1] == f"reward/{nothing}"


def test_a_function_that_falls_while_the_total_rises() -> None:
    rewards, other = UP + noise(), 0.5 - 0.3 * ROW / N + noise(seed=5)
    finding = finding_of(
        **{
            "reward": 2 * rewards + other,
            "rewards/judge/mean": 2 * rewards,
            "rewards/correct/mean": other,
        }
    )
    assert (finding.status, finding.step, finding.facts) == (
        Status.WARNING,
        5,  # where it began to fall, not where it is halfway down
        (Fact.COLUMNS_PART,),
    )
    assert finding.column == "judge"
    says("diagnostics/hacking/1", finding.message)
    level = finding_of(
        **{
            "reward": rewards + 2 * other,
            "rewards/judge/mean": rewards,
            "rewards/correct/mean": 2 * other,
        }
    )
    assert level.status is Status.NOT_LOGGED  # the total has not risen
    both = finding_of(
        **{
            "reward": rewards + other + 0.3 * ROW / N,
            "rewards/judge/mean": rewards,
            "rewards/correct/mean": other + 0.3 * ROW / N,
        }
    )
    assert both.status is Status.NOT_LOGGED


@pytest.mark.parametrize(("rows", "shown"), [(12, True), (11, False)])
def test_twelve_rows_show_that_one_function_earns_all(rows: int, shown: bool) -> None:
    rising, other = np.linspace(0.1, 0.9, rows), 0.005 + 0.002 * (-1.0) ** np.arange(rows)
    table = steps_table(
        range(1, rows + 1),
        {"reward": rising + other, "rewards/judge/mean": rising, "rewards/correct/mean": other},
    )
    evidence_of_log = Evidence(RunRecord("run", table))
    assert evidence_of_log.reward is not None
    assert (_one_earns_all(evidence_of_log) is not None) is shown


@each_case(
    ("accuracy", "length", "status"),
    [
        (0.45 + noise(0.03, seed=1), 1 + 3 * ROW / N, Status.WARNING),
        (0.45 + noise(0.03, seed=1), 1 + 0.4 * ROW / N, Status.NOT_LOGGED),  # no other answers
        (0.45 + 0.08 * ROW / N + noise(0.03, seed=1), 1 + 3 * ROW / N, Status.NOT_LOGGED),  # gains
        (0.95 + noise(0.01, seed=1), 1 + 3 * ROW / N, Status.NOT_LOGGED),  # no room
    ],
)
def test_another_function_that_is_paid_while_the_task_stands_and_answers_grow_is_a_hack(
    accuracy: NDArray[np.float64], length: NDArray[np.float64], status: Status
) -> None:
    columns = {"rewards/rm/mean": 3 * UP + noise(), "rewards/accuracy/mean": accuracy}
    given = evidence(reward=sum(columns.values()), length=200 * length, **columns)
    finding = reward_hacking(given)
    assert finding.status is status
    if status is Status.WARNING:
        assert finding.column == "rm"
        says("diagnostics/hacking/4", finding.message)
        assert "highest rm; close the loophole or lower its weight; " in judged(given).do


def test_a_held_out_accuracy_is_held_against_the_training_column_of_its_name() -> None:
    """Format is learnt and accuracy stands on both prompts: no loophole. One that training alone
    gains is.
    """

    def looked_at(accuracy: NDArray[np.float64]) -> Finding:
        held, form = 0.3 + noise(seed=2), 0.1 + 0.8 * np.minimum(ROW / 20, 1) + noise(seed=3)
        columns = {"rewards/accuracy/mean": accuracy, "rewards/format/mean": form}
        given = {"reward": accuracy + form, "eval_rewards/accuracy/mean": held, **columns}
        meant = (
            Meaning("reward", "reward", "test"),
            Meaning("eval_rewards/accuracy/mean", "eval/reward/accuracy", "test"),
        )
        return reward_hacking(
            Evidence(RunRecord("run", steps_table(range(1, N + 1), given), meanings=meant))
        )

    assert looked_at(0.3 + noise(seed=1)).status is Status.NONE
    hack = looked_at(UP + noise(seed=1))
    assert hack.status is Status.CRITICAL
    assert hack.signs[0].words == "accuracy 0.21 → 0.75"


def test_five_held_out_rewards_whose_noise_leaves_a_quarter_open_tell_nothing() -> None:
    held = np.full(N, np.nan)
    held[[9, 29, 49, 69, 89]] = [0.5, 0.56, 0.54, 0.5, 0.5]
    assert finding_of(reward=0.5 * UP + noise(0.02), held_out=held).status is Status.NONE


@pytest.mark.parametrize("missing", [0.1, 0.5])
def test_cells_that_are_missing_hide_no_function_that_stays_behind(missing: float) -> None:
    """A tenth of the cells, or half, each column's own: the weights are read off the rows that
    hold them all.
    """
    rng = np.random.default_rng(4)
    rewards, other = UP + noise(), 0.3 + noise(0.05, seed=2)
    holed = [
        np.where(rng.random(N) < missing, np.nan, column) for column in (rewards, rewards, other)
    ]
    columns = dict(zip(("reward", "rewards/judge/mean", "rewards/true/mean"), holed, strict=True))
    assert weights_of(evidence(**columns)) == (
        {} if missing > 0.2 else {"judge": pytest.approx(1.0), "true": pytest.approx(0.0)}
    )
    assert finding_of(**columns).status is (Status.NOT_LOGGED if missing > 0.2 else Status.CRITICAL)


def test_training_parts_from_the_held_out_reward_where_it_is_hacked() -> None:
    # Median error of 2 to 3 % of the run in lab/experiments/diagnosis/delay.csv; above 8 % in 14
    # runs less than once in 1,000.
    errors = []
    for seed in range(14):
        record, onset = simulated_run(
            "reward_hacking", np.random.default_rng([77, seed]), steps=200
        )
        pair = pairs_of(Evidence(record))[0]
        assert onset is not None
        errors.append(abs(parting_of(pair).step - onset) / 200)
    assert np.median(errors) < 0.08


def test_a_held_out_reward_that_may_yet_gain_is_not_said_to_overfit() -> None:
    """Both rise and flatten; that held-out rewards stand is neither sure nor what they do."""
    step = np.arange(200)
    looks = step % 10 == 9
    for seed in (21, 38):
        rng = np.random.default_rng(seed)
        train = 0.35 + 0.25 * (1 - np.exp(-step / 80)) + rng.normal(0, 0.02, 200)
        held_out = np.full(200, np.nan)
        rise = 0.21 + 0.1 * (1 - np.exp(-step[looks] / 60))
        held_out[looks] = rise + rng.normal(0, 0.03, looks.sum())
        names = {"reward": "reward", "eval/reward": "eval/reward/x"}
        record = RunRecord(
            "run",
            steps_table(range(200), {"reward": train, "eval/reward": held_out}),
            meanings=tuple(Meaning(column, name, "") for column, name in names.items()),
        )
        assert Fact.OVERFITTING not in reward_hacking(Evidence(record)).facts


@each_case(("ended", "status"), [(True, Status.WARNING), (False, Status.INFO)])
def test_a_wanted_score_at_nothing_is_waited_for_while_a_run_goes_on(
    ended: bool, status: Status
) -> None:
    """Form is learnt first: a correctness that has earned nothing yet may come."""
    given = {"reward": UP + noise(), "rewards/correct/mean": np.full(N, 0.0)}
    given["rewards/format/mean"] = given["reward"]
    evidence_ = evidence(**given)
    finding = reward_hacking(Evidence(evidence_.record, ended=ended))
    assert finding.status is status
    assert "the function for the task earns nothing" in finding.message


@each_case(("rows", "logged"), [(2, False), (3, True), (4, True), (5, None)])
def test_a_held_out_reward_of_few_rows_is_told_as_such(rows: int, logged: bool | None) -> None:
    """With five it is judged; one that is not there is asked for."""
    held = np.where(ROW % (N // rows) == 0, 0.5, np.nan)
    finding = finding_of(reward=0.5 + noise(), held_out=held)
    assert (finding.status is Status.NOT_LOGGED) is (logged is not None)
    if logged:
        says("diagnostics/hacking/3", finding.log, rows=f"has {np.isfinite(held).sum()}")
    elif logged is False:
        assert "prompts during training" in finding.log


@each_case(
    ("broken", "last", "falls"),
    [
        ("loss", 90, False),  # an update of NaN leaves no policy to evaluate
        ("loss", 60, True),  # it had fallen before
        ("kl", 90, True),  # a KL of NaN leaves the policy as it was
        (None, 90, True),
    ],
)
def test_what_is_held_out_falls_by_no_numbers_that_broke(
    broken: str | None, last: int, falls: bool
) -> None:
    held = np.where(ROW % 5 == 4, np.where(last > ROW, 0.3, 0.0) + noise(seed=1), np.nan)
    columns = {"loss": 0.1 + noise(seed=2), "kl": 0.1 + noise(seed=3)}
    if broken:
        columns[broken][89:] = np.nan
    finding = finding_of(reward=0.3 + noise(), held_out=held, **columns)
    assert (finding.facts == (Fact.HELD_OUT_FALLS_ALONE,)) is falls
