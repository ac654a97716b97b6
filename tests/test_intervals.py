"""Values with intervals, and Wilson's interval of a proportion."""

from __future__ import annotations

import json
import math

import pytest
from scipy.optimize import brentq
from scipy.stats import binom, norm

from groupwise.errors import InvalidArgumentError
from groupwise.intervals import Interval, finite_or_none, wilson


def test_an_interval_covers_its_ends_and_nothing_beyond() -> None:
    interval = Interval(0.5, 0.2, 0.7)
    assert interval.covers(0.2)
    assert interval.covers(0.7)
    assert not interval.covers(0.7000001)
    assert not interval.covers(0.1999999)
    assert interval.width == pytest.approx(0.5)
    assert interval.level == 0.95


@pytest.mark.parametrize(("low", "high"), [(-math.inf, 1.0), (0.0, math.inf), (-math.inf, math.inf), (math.nan, 1.0)])
def test_a_missing_end_is_not_bounded_and_not_in_json(low: float, high: float) -> None:
    interval = Interval(0.5, low, high)
    assert not interval.bounded
    text = json.dumps(interval.as_dict(), allow_nan=False)
    assert "null" in text
    assert list(interval.as_dict()) == ["value", "low", "high", "level"]


def test_only_finite_numbers_are_kept() -> None:
    assert finite_or_none(1.5) == 1.5
    assert [finite_or_none(v) for v in (math.nan, math.inf, -math.inf)] == [None, None, None]


@pytest.mark.parametrize(("successes", "trials", "level"), [(9, 10, 0.95), (0, 20, 0.9), (20, 20, 0.99), (3.5, 7.2, 0.95)])
def test_wilson_inverts_the_score_test(successes: float, trials: float, level: float) -> None:
    """An end p satisfies |share - p| = z sqrt(p (1-p) / n)."""
    interval, z = wilson(successes, trials, level=level), norm.ppf(0.5 + level / 2)
    share = successes / trials

    def excess(p: float) -> float:
        return float((share - p) ** 2 - z**2 * p * (1 - p) / trials)

    assert interval.value == pytest.approx(share)
    if share > 0:
        assert interval.low == pytest.approx(brentq(excess, 1e-12, share - 1e-9), abs=1e-9)
    if share < 1:
        assert interval.high == pytest.approx(brentq(excess, share + 1e-9, 1 - 1e-12), abs=1e-9)
    assert 0 <= interval.low <= share <= interval.high <= 1


def test_wilson_covers_at_about_its_level() -> None:
    """Exact coverage at n = 50 over p from .1 to .9 stays within .91 and .99."""
    ends = [wilson(k, 50) for k in range(51)]
    for p in (0.1, 0.3, 0.5, 0.7, 0.9):
        assert 0.91 < sum(binom.pmf(k, 50, p) for k in range(51) if ends[k].covers(p)) < 0.99


@pytest.mark.parametrize(("successes", "trials"), [(1, 0), (-1, 5), (6, 5), (math.nan, 5), (1, math.nan)])
def test_impossible_counts_are_refused(successes: float, trials: float) -> None:
    with pytest.raises(InvalidArgumentError, match="a proportion needs 0 <= successes <= trials"):
        wilson(successes, trials)


@pytest.mark.parametrize("level", [0.0, 1.0, 2.0, math.nan])
def test_wilson_refuses_a_level_outside_zero_and_one(level: float) -> None:
    with pytest.raises(InvalidArgumentError):
        wilson(5, 10, level=level)
