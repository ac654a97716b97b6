"""The share of zero-variance groups beyond the size in use, against laws of difficulty written
out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from tests.cases import each_case

from groupwise.arrays import Float
from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.estimators.zero_variance import (
    ZeroVarianceShare,
    beta_share,
    zero_variance_of_columns,
    zero_variance_of_groups,
)
from groupwise.intervals import Interval, wilson

Law = list[tuple[Fraction, Fraction]]  # weight and pass rate
HALF = Fraction(1, 2)
LAWS: dict[str, Law] = {
    "one": [(Fraction(1), Fraction(3, 10))],
    "even": [(Fraction(1, 5), Fraction(k, 4)) for k in range(5)],
    "hard": [(Fraction(3, 4), Fraction(1, 50)), (Fraction(1, 4), Fraction(4, 5))],
    "ends": [
        (Fraction(2, 5), Fraction(0)),
        (Fraction(1, 5), Fraction(1)),
        (Fraction(2, 5), Fraction(1, 3)),
    ],
}


def exact(law: Law, size: int) -> Fraction:
    """The share of zero-variance groups by writing all outcomes of a group out."""
    return sum(
        (
            weight * math.prod(rate if right else 1 - rate for right in outcome)
            for weight, rate in law
            for outcome in ((True,) * size, (False,) * size)
        ),
        Fraction(0),
    )


def gained(row: ZeroVarianceShare) -> Interval:
    """The gain of a larger size, which is known there."""
    assert row.gained is not None
    return row.gained


@each_case("law", LAWS.values())
@each_case(("size", "other"), [(3, 6), (4, 8), (8, 16), (8, 32)])
def test_no_law_of_difficulty_escapes_the_interval(law: Law, size: int, other: int) -> None:
    """From the exact share and mean of a law, the share at another size."""
    share, mean = exact(law, size), sum((weight * rate for weight, rate in law), Fraction(0))
    seen = zero_variance_of_columns([float(share)] * 8, size, mean_T=[float(mean)] * 8)
    row = next(row for row in seen.shares if row.group_size == other)
    truth = float(exact(law, other))
    assert row.share.low - 1e-12 <= truth <= row.share.high + 1e-12
    assert gained(row).low <= float(share) - truth <= gained(row).high + 1e-12


def test_the_beta_law_by_polya_urns() -> None:
    """With a and b whole numbers a group is equal with the chance that an urn of a + b gives the
    same colour G times.
    """
    right, wrong, size = 2, 5, 6
    urn = sum(
        math.prod(Fraction(start + k, right + wrong + k) for k in range(size))
        for start in (right, wrong)
    )
    assert float(beta_share(right / 7, 7.0, size)) == pytest.approx(float(urn), rel=1e-10)


def test_a_log_of_mean_and_share_gives_back_its_beta_law() -> None:
    mean, strength, size = 0.3, 1.7, 4
    share = float(beta_share(mean, strength, size))
    outlook = zero_variance_of_columns([share] * 40, size, mean_T=[mean] * 40, groups=64)
    assert [row.group_size for row in outlook.shares] == [4, 8, 16]
    assert [row.share.value for row in outlook.shares] == pytest.approx(
        [float(beta_share(mean, strength, n)) for n in (4, 8, 16)], abs=1e-10
    )
    assert [gained(row).value for row in outlook.shares[1:]] == pytest.approx(
        [share - float(beta_share(mean, strength, n)) for n in (8, 16)], abs=1e-10
    )
    assert (outlook.groups, outlook.basis) == (2560, "shares")
    assert outlook.status.startswith(f"{100 * share:.0f} % (")


def test_the_limits_of_a_log_are_equally_hard_prompts_and_prompts_that_never_change() -> None:
    """Without a mean S(G') >= s^((G'-1)/(G-1)); of two rewards G = 2 leaves pq = (1 - s)/2."""
    share = [0.7, 0.72, 0.74] * 4
    rows = [
        zero_variance_of_columns(share, 2, mean_T=mean) for mean in (None, [0.3, 0.2, 0.25] * 4)
    ]
    low = rows[0].now.low
    pq = (1 - low) / 2
    assert rows[0].shares[1].share.low == pytest.approx(low**3, rel=1e-10)
    assert rows[1].shares[1].share.low == pytest.approx(1 - 4 * pq + 2 * pq**2, rel=1e-10)
    assert {row.shares[1].share.high for row in rows} == {rows[0].now.high}
    assert gained(rows[1].shares[1]).low == 0


def test_one_group_a_row_is_counted_like_rollouts() -> None:
    right = np.array([0, 1, 3, 4, 4, 2, 0, 0, 4, 1])
    reward = np.concatenate([np.arange(4) < count for count in right]).astype(float)
    rows = zero_variance_of_columns((right % 4 == 0).astype(float), 4, mean_T=right / 4, groups=1)
    assert rows == zero_variance_of_groups(reward, np.repeat(np.arange(10), 4))
    assert (rows.basis, rows.now.value) == ("rewards", 0.6)


def test_a_share_that_never_moves_has_the_interval_of_its_groups() -> None:
    """A quarter of 16 groups in each of four rows: 16 of 64."""
    assert zero_variance_of_columns([0.25] * 4, 4, groups=16).now == wilson(16, 64)


def test_rewards_of_many_values_and_other_scales() -> None:
    table = np.array(list(product([0, 1], repeat=4)), dtype=float)
    label = np.repeat(np.arange(16), 4)
    plain = zero_variance_of_groups(table.ravel(), label)
    assert zero_variance_of_groups(5 - 3 * table.ravel(), label).as_dict() == plain.as_dict()
    several = zero_variance_of_groups(
        [0, 0, 0, 1, 2, 3, 5, 5, 5, 7, 7, 8], np.repeat(np.arange(4), 3)
    )
    assert several.now.value == 0.5
    assert several.shares[1].share.value <= 0.5
    never = zero_variance_of_groups(
        np.random.default_rng(0).random(40), np.repeat(np.arange(10), 4)
    )
    assert [row.share.value for row in never.shares] == [0, 0, 0]


def test_no_group_with_variance_leaves_room_for_those_not_seen() -> None:
    outlook = zero_variance_of_groups(np.zeros(120), np.repeat(np.arange(30), 4))
    assert outlook.now.value == 1
    assert outlook.now.low == pytest.approx(30 / (30 + 1.959964**2), rel=1e-6)  # Wilson, 30 of 30
    assert gained(outlook.shares[1]).value == 0
    assert 0 < gained(outlook.shares[1]).high < gained(outlook.shares[2]).high < 1


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 8])
def test_intervals_cover_whatever_the_law(size: int) -> None:
    rng = np.random.default_rng(size)
    draws: tuple[Callable[[int], Float], ...] = (
        lambda n: rng.beta(0.4, 1.0, n),
        lambda n: np.where(rng.random(n) < 0.5, 0.05, 0.7),
        lambda n: rng.integers(3, size=n) / 2,
    )
    for draw in draws:
        rate = draw(400_000)
        truth = [float((rate**n + (1 - rate) ** n).mean()) for n in (2 * size, 4 * size)]
        covered = np.zeros(2)
        for _ in range(40):
            right = rng.binomial(size, draw(128))
            outlook = zero_variance_of_groups(
                (np.arange(size) < right[:, None]).ravel().astype(float),
                np.repeat(np.arange(128), size),
            )
            covered += [
                row.share.covers(value) and gained(row).covers(found_gain)
                for row, value, found_gain in zip(
                    outlook.shares[1:],
                    truth,
                    [float((rate**size + (1 - rate) ** size).mean()) - value for value in truth],
                    strict=True,
                )
            ]
        assert (covered >= 36).all()


@each_case(
    ("arguments", "error", "said"),
    [
        (([0.5], 1, None), InvalidArgumentError, "group size of at least 2, got 1"),
        (([np.nan], 4, None), InsufficientDataError, "in some row, got none"),
        (([1.5], 4, None), InvalidArgumentError, "equal_T between 0 and 1, got 1.5"),
        (([0.5], 4, [-1.0]), InvalidArgumentError, "mean_T between 0 and 1, got -1"),
    ],
)
def test_what_cannot_be_is_refused(arguments: tuple, error: type[Exception], said: str) -> None:
    share, size, mean = arguments
    with pytest.raises(error, match=said):
        zero_variance_of_columns(share, size, mean_T=mean)
