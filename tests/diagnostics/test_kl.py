"""The KL to the reference: huge and staying so, or a leap, or as in health."""

from __future__ import annotations

import numpy as np
import pytest
from tests.golden.sentences import says

from groupwise.diagnostics.judge import judged
from groupwise.diagnostics.judgement import Fact, Status
from groupwise.diagnostics.numerics import divergence as check
from groupwise.diagnostics.numerics import left_at, rose_since
from groupwise.diagnostics.signals import Evidence
from groupwise.record.run import Meaning, RunRecord, steps_table

N = 150


def log(kl: np.ndarray, reward: np.ndarray | None = None) -> Evidence:
    columns = {"kl": kl} | ({} if reward is None else {"reward": reward})
    meanings = tuple(Meaning(key, key, "test") for key in columns)
    return Evidence(
        RunRecord("test", steps_table(range(1, len(kl) + 1), columns), meanings=meanings)
    )


def usual(seed: int, n: int = N) -> np.ndarray:
    """A KL that grows to half a nat with heavy-tailed noise."""
    return (
        0.5 * np.arange(1, n + 1) / n * np.exp(0.7 * np.random.default_rng(seed).standard_normal(n))
    )


def test_a_kl_that_grows_by_factors_left_its_level_before_it_was_huge() -> None:
    """.02 for 100 rows, then half as much again each: 3.9 nats after 13, .39 (halfway from a
    hundredth, in logarithms) after 8.
    """
    kl = 0.02 * 1.5 ** np.clip(np.arange(N) - 99, 0, 18)
    finding = check(log(kl))
    assert (finding.status, finding.step) == (Status.CRITICAL, 108)
    says("diagnostics/kl/1", finding.message)


def test_a_kl_that_runs_away_to_fifty_is_critical_with_its_step_and_numbers() -> None:
    kl = usual(0) + np.where(np.arange(N) < 80, 0, 50.0)
    finding = check(log(kl))
    assert (finding.status, finding.step, finding.limit, finding.facts) == (
        Status.CRITICAL,
        81,
        3.0,
        (Fact.KL_HUGE,),
    )
    says("diagnostics/kl/2", finding.message)
    assert finding.signs[0].words == "KL 0.27 → 50.4"


def test_a_kl_of_six_is_a_warning_and_critical_where_the_reward_fell() -> None:
    kl = usual(0) + np.where(np.arange(N) < 80, 0, 6.0)
    reward = 0.6 + 0.02 * np.random.default_rng(1).standard_normal(N)
    assert check(log(kl, reward)).status is Status.WARNING
    assert check(log(kl, np.where(np.arange(N) < 85, reward, 0.1))).status is Status.CRITICAL


def test_a_kl_that_is_huge_from_the_start_has_nothing_before() -> None:
    finding = check(log(np.full(N, 20.0)))
    assert (finding.step, finding.signs[0].before) == (1, None)
    says("diagnostics/kl/3", finding.message)


def test_one_leap_is_no_sign_and_is_said() -> None:
    kl = usual(2)
    kl[70] = 29.3
    finding = check(log(kl))
    assert (finding.status, finding.step) == (Status.NONE, None)
    assert "(maximum 29.3)" in finding.message


def test_what_is_not_logged_is_asked_for_and_few_rows_say_nothing() -> None:
    assert (
        check(Evidence(RunRecord("test", steps_table([1, 2], {"other": [1.0, 2.0]})))).status
        is Status.NOT_LOGGED
    )
    assert check(log(np.full(4, 50.0))).status is Status.NONE


@pytest.mark.slow
def test_healthy_runs_that_are_looked_at_after_every_third_row_stay_silent() -> None:
    for seed in range(30):
        kl = usual(seed)
        for rows in range(8, N + 1, 3):
            assert check(log(kl[:rows])).status is Status.NONE, (seed, rows)


def test_what_was_looked_at_is_said() -> None:
    says("diagnostics/kl/4", check(log(np.where(np.arange(N) < 75, 0.1, 0.4))).message)
    kl = np.full(N, 0.2)
    kl[[30, 70]] = 20.0, 30.0
    says("diagnostics/kl/5", check(log(kl)).message)


def test_a_kl_beyond_chance_is_a_warning_while_the_reward_rises() -> None:
    """Some trainers sum the KL over an answer: beside a reward that rose 50 nats have done no
    harm.
    """
    kl = usual(0) + np.where(np.arange(N) < 80, 0, 50.0)
    noise = 0.02 * np.random.default_rng(1).standard_normal(N)
    statuses = [
        check(log(kl, level + noise)).status
        for level in (np.full(N, 0.5), np.where(np.arange(N) < 85, 0.5, 0.7))
    ]
    assert statuses == [Status.CRITICAL, Status.WARNING]
    assert check(log(kl)).status is Status.CRITICAL


def test_the_reward_has_risen_where_it_is_three_errors_above_the_rows_before() -> None:
    """Rows of 0 and 1 by turns have a known scatter: held against it, levels 3.1 and 2.9 errors
    apart are on two sides of the limit.
    """
    for errors, rose in ((3.1, True), (2.9, False)):
        flat = np.resize([0.0, 1.0], N)
        reward = log(np.zeros(N), flat).reward
        assert reward is not None
        error = reward.deviation * np.sqrt(2 / 20)
        assert (
            rose_since(
                log(np.zeros(N), flat + np.where(np.arange(N) < 100, 0.0, errors * error)), 101
            )
            is rose
        )


def test_the_level_before_is_that_of_the_twenty_rows_before_it_left() -> None:
    """Two rows about .2 before 9; and of thirty the first ten stand elsewhere."""
    assert left_at(np.array([0.3, 0.1, 9.0, 11.0]), 2) == (2, 0.2, 10.0)
    assert left_at(np.repeat([0.4, 0.1, 9.0], [10, 20, 5]), 30) == (30, 0.1, 9.0)
    assert left_at(np.array([9.0, 11.0]), 0) == (0, None, 10.0)
    assert left_at(np.array([0.1, 0.1, 0.1, 2.0, 9.0]), 4) == (
        3,
        0.1,
        9.0,
    )  # .95 is halfway in logarithms
    assert left_at(np.array([0.1, 0.1, 0.1, 0.9, 9.0]), 4)[0] == 4


def test_a_kl_that_moved_with_a_fall_is_not_said_to_show_no_sign() -> None:
    fell = np.arange(N) >= 75
    record = log(np.where(fell, 0.5, 0.02) + 0.001 * np.arange(N) % 0.003, reward=0.8 - 0.7 * fell)
    judgement = judged(record)
    signs = [sign for sign in (judgement.first_sign, *judgement.then) if sign is not None]
    assert "kl" in {sign.signal for sign in signs}
    match = next(answer for answer in judgement.checks if answer.check == "divergence")
    assert match.status is Status.INFO
    assert "no sign" not in match.message.lower()
