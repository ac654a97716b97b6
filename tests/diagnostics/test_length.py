"""Truncation: by the logged share, by rows at one largest length, by the limit of the settings,
and by length alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.golden.sentences import says

from groupwise.diagnostics.completions import truncation as check
from groupwise.diagnostics.judgement import Fact, Finding, Status
from groupwise.diagnostics.signals import Evidence
from groupwise.record.run import Meaning, RunConfig, RunRecord, steps_table

NAMES = {"reward": "reward", "cut": "truncated_share", "length": "completion_length"}
N = 80
ROW = np.arange(N)


def finding_of(config: dict[str, Any] | None = None, **columns: Any) -> Finding:
    given = {key: np.asarray(value, dtype=float) for key, value in columns.items()}
    meanings = tuple(Meaning(key, NAMES[key], "test") for key in given)
    settings = RunConfig().with_settings(config or {}, "--set")
    table = steps_table(range(1, len(next(iter(given.values()))) + 1), given)
    return check(Evidence(RunRecord("run", table, config=settings, meanings=meanings)))


def noise(by: float, seed: int = 0) -> NDArray[np.float64]:
    return np.asarray(by * np.random.default_rng(seed).standard_normal(N))


def test_most_completions_cut_off_from_the_start() -> None:
    finding = finding_of(cut=np.full(N, 0.63))
    assert (finding.status, finding.step, finding.signs, finding.limit) == (
        Status.WARNING,
        None,
        (),
        0.5,
    )
    says("diagnostics/length/1", finding.message)
    assert finding.facts == (Fact.TRUNCATED_LIKELY,)


def test_answers_that_learnt_to_end_and_lost_it_are_told_from_that_step_on() -> None:
    """All are cut off at first, few from row 5 to 24, all since; a lucky row amid them is none."""
    ended = np.where((ROW >= 5) & (ROW < 25), 0.1, 0.98)
    finding = finding_of(cut=ended)
    assert (finding.step, [sign.step for sign in finding.signs]) == (26, [26])
    lucky = finding_of(cut=np.where(ROW == 2, 0.1, 0.98))
    assert (lucky.step, lucky.signs) == (None, ())
    assert "in the first 3 rows" in lucky.message


@pytest.mark.parametrize(("share", "ends"), [(0.97, False), (0.85, True)])
def test_a_stop_token_is_in_doubt_where_hardly_any_completion_ends(
    share: float, ends: bool
) -> None:
    """Where one in seven ends by itself there is one."""
    finding = finding_of(cut=share + noise(0.01), reward=0.5 + noise(0.01))
    assert (Fact.HARDLY_ANY_ENDS not in finding.facts) is ends
    since = finding_of(cut=np.where(ROW < 50, 0.1, share), reward=0.5 + noise(0.01))
    assert Fact.HARDLY_ANY_ENDS not in since.facts


def test_most_completions_cut_off_since_a_step() -> None:
    finding = finding_of(cut=np.where(ROW < 50, 0.1, 0.8))
    assert (finding.status, finding.step) == (Status.WARNING, 51)
    says("diagnostics/length/2", finding.message)
    assert [(sign.signal, sign.before, sign.words) for sign in finding.signs] == [
        ("truncated_share", 0.1, "80 % truncated (was 10 %)")
    ]
    assert finding.value is not None
    assert finding.value.value == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("cut", "length", "lost"),
    [
        (np.where(ROW < 50, 0.1, 1.0), np.where(ROW < 50, 300, 512), True),
        (np.where(ROW < 50, 0.1, 1.0), np.where(ROW < 50, 300, 128), False),  # a lower limit
        (np.where(ROW < 50, 0.1, 1.0), None, False),  # nothing tells it from one
        (np.where(ROW < 50, 0.1, 0.8), np.where(ROW < 50, 300, 480), False),  # one in five ends
        (np.clip((ROW - 20) / 40, 0.1, 1), 300 + 4 * ROW, False),  # answers grow by and by
        (np.where(ROW < 50, 0.4, 1.0), np.where(ROW < 50, 400, 512), False),  # many never ended
    ],
)
def test_completions_that_no_longer_end_from_one_row_to_the_next_have_lost_their_end(
    cut: Any, length: Any, lost: bool
) -> None:
    given = {} if length is None else {"length": length + noise(2.0)}
    finding = finding_of(cut=cut, reward=0.8 + noise(0.05), **given)
    assert (Fact.ENDS_LOST in finding.facts) is lost
    assert Fact.CUT_OFF_IN_MID_RUN in finding.facts


def test_the_share_before_is_the_mean_of_the_rows_that_the_sentence_names() -> None:
    before = [0.0, 0.1, 0.125, 0.225, 0.15]
    finding = finding_of(cut=[*np.zeros(27), *before, *np.ones(7), 0.6])
    assert finding.message == (
        "95 % of completions are truncated from step 33 on, 12 % in the 5 rows before"
    )
    (sign,) = finding.signs
    assert sign.before == pytest.approx(0.12)
    assert sign.after == pytest.approx(7.6 / 8)


@pytest.mark.parametrize(("late", "paid"), [(0.9, True), (0.21, False), (0.1, False)])
def test_truncated_answers_are_paid_where_complete_ones_cannot_earn_the_mean(
    late: float, paid: bool
) -> None:
    """Of 80 % that are truncated: .9 is paid to seven in eight of them."""
    finding = finding_of(
        cut=np.where(ROW < 50, 0.1, 0.8),
        reward=np.where(ROW < 50, 0.2, late) + np.clip(noise(0.02), -0.05, 0.05),
    )
    assert (Fact.TRUNCATED_PAID in finding.facts) is paid
    assert (
        finding.message.startswith(
            "truncated completions earn reward: the reward rose 0.21 → 0.90 "
        )
        is paid
    )
    assert Fact.TRUNCATED_LIKELY in finding.facts


@pytest.mark.parametrize(
    "cut", [np.full(N, 0.49), np.where(ROW == 40, 1.0, 0.1), np.where(ROW < 60, 0.8, 0.1)]
)
def test_fewer_than_half_at_the_end_are_no_sign(cut: Any) -> None:
    assert finding_of(cut=cut).status is Status.NONE


RISING = np.concatenate([np.full(12, 0.1) + 0.01 * (-1.0) ** np.arange(12), [0.2, 0.3, 0.4, 0.5]])


def test_answers_on_their_way_into_the_limit_as_the_reward_falls() -> None:
    wave = 0.01 * (-1.0) ** np.arange(16)
    finding = finding_of(cut=RISING, reward=0.6 + wave - (RISING - 0.1) / 2)
    assert (finding.status, finding.step, finding.facts) == (
        Status.WARNING,
        13,
        (Fact.CUT_AS_REWARD_FALLS,),
    )
    says("diagnostics/length/3", finding.message)
    assert (
        finding_of(cut=RISING, reward=0.6 + wave + (RISING - 0.1) / 2).status is Status.NONE
    )  # longer answers that pay
    assert finding_of(cut=RISING, reward=0.6 + wave).status is Status.NONE
    assert (
        finding_of(cut=0.1 + (RISING - 0.1) / 2, reward=0.7 - RISING / 2).status is Status.NONE
    )  # by .125 alone
    assert (
        finding_of(cut=[*RISING[:-2], 0.5, 0.2], reward=0.7 - RISING / 2).status is Status.NONE
    )  # it comes back


def test_the_message_of_no_sign_has_the_last_share() -> None:
    says("diagnostics/length/4", finding_of(cut=np.where(ROW < 60, 0.8, 0.1)).message)


@pytest.mark.parametrize(("every", "status"), [(3, Status.WARNING), (5, Status.NONE)])
def test_a_quarter_of_the_late_rows_at_one_largest_length(every: int, status: Status) -> None:
    """All completions of a row are cut off where its mean is the largest there is, over and
    over.
    """
    finding = finding_of(length=np.where(ROW % every == 0, 128.0, 60.0 + noise(10.0)))
    assert finding.status is status
    if status is Status.WARNING:
        says("diagnostics/length/5", finding.message)
        assert (finding.facts, finding.limit) == ((Fact.TRUNCATED_LIKELY,), 0.25)
        assert finding.value is not None
        assert finding.value.value == pytest.approx(13 / 40)


def test_a_limit_of_the_settings_that_the_mean_length_is_near() -> None:
    config = {"max_completion_length": 512}
    since = finding_of(config, length=np.where(ROW < 50, 300.0, 490.0) + noise(3.0))
    assert (since.status, since.step, since.facts) == (
        Status.WARNING,
        51,
        (Fact.TRUNCATED_POSSIBLE,),
    )
    says("diagnostics/length/6", since.message)
    start = finding_of(config, length=490.0 + noise(3.0))
    assert start.step is None
    says("diagnostics/length/9", start.message)
    assert finding_of(config, length=450.0 + noise(3.0)).status is Status.NONE  # below nine tenths
    # A limit that the lengths go beyond is none of this run.
    assert (
        finding_of({"max_completion_length": 400}, length=490.0 + noise(3.0)).status is Status.NONE
    )
    # And where the share is logged it is asked, not the limit.
    assert finding_of(config, length=490.0 + noise(3.0), cut=np.full(N, 0.2)).status is Status.NONE


def test_too_few_rows_and_no_column_are_said_to_be_missing() -> None:
    none, few = finding_of(reward=ROW), finding_of(cut=np.full(7, 0.9), reward=ROW[:7])
    for finding in (none, few):
        assert finding.status is Status.NOT_LOGGED
        says("diagnostics/length/8", finding.message)
        assert "completions/clipped_ratio" in finding.log
    assert finding_of(cut=np.full(8, 0.9)).status is not Status.NOT_LOGGED
