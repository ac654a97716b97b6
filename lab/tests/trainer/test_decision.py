"""The controller against every divisor tried, and its interval against chance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from groupwise.errors import InvalidArgumentError
from groupwise.estimators.best_group_size import Budget, safe_sizes, worst_excess
from groupwise.estimators.components import components
from groupwise_lab.trainer.decision import VarianceEstimate, decide, divisors


def sure(
    vp: float, t: float, r: float, *, prompts: float = 100.0, spread: float = 0.0
) -> VarianceEstimate:
    """Components whose estimate has this standard deviation."""
    return VarianceEstimate(np.array([vp, t, r]), spread**2 * np.eye(3), prompts)


def error_at(size: int, vp: float, t: float, r: float, rollouts: int) -> float:
    """A line of its own."""
    return (vp + t / size + r / (size * (size - 1))) / (rollouts / size)


@given(
    vp=st.floats(0.01, 10),
    t=st.floats(0, 100),
    r=st.floats(0, 1000),
    rollouts=st.sampled_from([12, 60, 128, 360]),
    place=st.integers(0, 50),
    threshold=st.floats(0, 1),
)
def test_what_is_certain_changes_for_the_best_divisor_beyond_the_threshold(
    vp: float, t: float, r: float, rollouts: int, place: int, threshold: float
) -> None:
    sizes = [size for size in range(2, rollouts + 1) if rollouts % size == 0]
    present = sizes[place % len(sizes)]
    decision = decide(sure(vp, t, r), present, rollouts, threshold=threshold)
    least = min(error_at(size, vp, t, r, rollouts) for size in sizes)
    assert error_at(decision.best, vp, t, r, rollouts) == pytest.approx(least, rel=1e-9)
    own, taken = error_at(present, vp, t, r, rollouts), decision.group_size
    worst = worst_excess(vp, t, r, np.array(sizes), Budget(rollouts))
    safe = safe_sizes(worst, np.array(sizes)).tolist()
    better = [own / error_at(size, vp, t, r, rollouts) - 1 for size in safe if size != present]
    if min(abs(excess - threshold) for excess in (*better, np.inf)) > 1e-9:
        assert decision.changes == any(excess > threshold for excess in better)
    rival = error_at(taken, vp, t, r, rollouts) if decision.changes else least
    assert decision.excess.value == pytest.approx(own / rival - 1, abs=1e-9)
    assert decision.prompts * taken == rollouts
    assert taken == present or taken in safe


def test_what_chance_may_have_made_changes_nothing() -> None:
    certain, doubtful = (
        decide(sure(1.0, 0.0, 9.0, prompts=16, spread=spread), 8, 512) for spread in (0.0, 1.0)
    )
    assert (certain.group_size, certain.best, doubtful.group_size, doubtful.best) == (4, 4, 8, 4)
    assert "change to 4, with 128 prompts a step" in certain.reason
    assert "stay, for nothing beyond the threshold of 5 % is sure to be gained" in doubtful.reason
    assert doubtful.excess.low < 0.05 < doubtful.excess.value == certain.excess.value


def test_bounds_hold_and_nothing_above_zero_changes_nothing() -> None:
    large = decide(sure(1.0, 0.0, 1e6), 8, 512, lowest=4, highest=64)
    assert (large.best, large.group_size) == (64, 16)  # 64 would be dear once prompts part
    assert decide(sure(1.0, 0.0, 0.0), 8, 512, lowest=4, highest=64).group_size == 4
    nothing = decide(sure(-1.0, -1.0, -1.0), 8, 512)
    assert (nothing.changes, nothing.reason) == (False, "No component is above zero: stay with 8.")


def test_a_huge_group_is_not_taken_because_nothing_was_seen_between_prompts() -> None:
    """Vp below zero by chance: the least error is predicted for one prompt a step, and 8 is
    surely better than 2.
    """
    spread = np.diag([1.0, 1.0, 100.0])
    estimate = VarianceEstimate(np.array([-0.5, 1.0, 100.0]), spread, 16.0)
    decision = decide(estimate, 2, 512)
    assert decision.best == 512
    assert 2 < decision.group_size < 32
    assert decision.reason.endswith(f"with {512 // decision.group_size} prompts a step.")
    assert decide(estimate, 8, 512).group_size == 8


@pytest.mark.slow
def test_the_interval_of_the_gain_covers_it() -> None:
    """1,000 draws at 95 %: the share has a standard error of .007, and the delta method's own
    error is small here (spread of 10 %).
    """
    rng = np.random.default_rng(1)
    true, hit = np.array([50.0, 200.0, 400.0]), 0
    expected = error_at(32, 50.0, 200.0, 400.0, 512) / error_at(4, 50.0, 200.0, 400.0, 512) - 1
    for _ in range(1000):
        drawn = true * (1 + 0.1 * rng.normal(size=3))
        prompts = 200.0
        estimate = VarianceEstimate(drawn, np.diag((0.1 * true) ** 2), prompts)
        decision = decide(estimate, 32, 512, lowest=4)
        assert decision.group_size == 4
        hit += decision.excess.covers(expected)
    assert 0.925 < hit / 1000 < 0.975


def test_the_gain_and_its_interval_by_hand() -> None:
    """Error of 32 over that of 4: the delta method on the logarithm with Student's quantile at
    the effective prompts less one.
    """
    covariance = np.diag([0.04, 1.0, 25.0]) + 0.1
    estimate = VarianceEstimate(np.array([2.0, 5.0, 60.0]), covariance, 50.0)
    decision = decide(estimate, 32, 512, level=0.9, lowest=4, highest=32)
    assert decision.measured_prompts == 50.0
    own, other = (
        np.array([1.0, 1 / size, 1 / (size * (size - 1))]) * size / 512 for size in (32, 4)
    )
    vtr = np.array([2.0, 5.0, 60.0])
    # 1 + sqrt(30) = 6.5, and the error of 8 is below that of 4; but only 4 is safe.
    assert (decision.best, decision.group_size) == (8, 4)
    ratio = vtr @ own / (vtr @ other)
    contrast = own / (vtr @ own) - other / (vtr @ other)
    factor = np.exp(stats.t.ppf(0.95, 49) * np.sqrt(contrast @ covariance @ contrast))
    excess = decision.excess
    assert (excess.value, excess.low, excess.high) == pytest.approx(
        (ratio - 1, ratio / factor - 1, ratio * factor - 1), rel=1e-10
    )
    assert (decision.prompts, decision.present, decision.vp, decision.t, decision.r) == (
        128,
        32,
        2.0,
        5.0,
        60.0,
    )
    assert list(decision.as_dict()) == [
        "group_size",
        "prompts",
        "present",
        "best",
        "excess",
        "vp",
        "t",
        "r",
        "measured_prompts",
        "reason",
    ]


def test_the_words_of_a_decision() -> None:
    surely = VarianceEstimate(np.array([1.0, 0.0, 9.0]), np.eye(3) / 100**2, 100.0)
    assert decide(surely, 32, 512).reason == (
        "G = 32 has 4.61 times the error of G = 4 (4.57 to 4.65 times, 95 %): change to 4, with "
        "128 prompts a step."
    )
    assert (
        decide(surely, 4, 512).reason
        == "G = 4 has the least predicted error of the sizes allowed: stay."
    )
    assert not decide(surely, 4, 512).changes
    assert divisors(128, 4, 32) == (4, 8, 16, 32)
    assert divisors(12) == (2, 3, 4, 6, 12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: decide(sure(1.0, 1.0, 1.0), 3, 512), "that divides 512, got 3"),
        (
            lambda: decide(sure(1.0, 1.0, 1.0), 4, 512, lowest=8, highest=16),
            "within 8 and 16 that divides 512, got 4",
        ),
        (
            lambda: VarianceEstimate.of(
                components([1.0, 0.0] * 4, [0] * 4 + [1] * 4, score_ND=np.eye(8))
            ),
            "at least three prompts",
        ),
    ],
)
def test_what_cannot_be_is_refused(call: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        call()
