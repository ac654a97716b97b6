"""Which prompt deserves which share of the rollouts: against an enumeration of all allocations
and of all outcomes of each.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from groupwise.errors import InvalidArgumentError
from groupwise.estimators.allocation import (
    allocation_by_spread,
    optimal_allocation,
    shrunk_variance,
)
from groupwise_lab.theory.ustatistic import leave_one_out_gradient
from groupwise_lab.worlds.bandit import BanditWorld, random_world

ROLLOUTS = 12


def allocations(prompts: int, rollouts: int) -> list[tuple[int, ...]]:
    """Every way to give each prompt two rollouts at least."""
    return [
        one
        for one in itertools.product(range(2, rollouts + 1), repeat=prompts)
        if sum(one) == rollouts
    ]


def enumerated(world: BanditWorld, x: int, size: int) -> float:
    """The variance of a prompt's leave-one-out gradient, from every group that can come."""
    groups = world.enumerate_groups(size, prompt=x)
    return float(groups.variance(leave_one_out_gradient(groups.score_MGD, groups.reward_MG)))


@pytest.mark.parametrize("seed", [1, 2, 4])
def test_no_other_allocation_has_less_variance_over_all_outcomes(seed: int) -> None:
    world = random_world(
        np.random.default_rng(seed), prompts=3, arms=2, dimensions=3, rewards="binary"
    )
    variance = {
        (x, size): enumerated(world, x, size) for x in range(3) for size in range(2, ROLLOUTS - 3)
    }
    every = {
        one: sum(variance[x, size] for x, size in enumerate(one))
        for one in allocations(3, ROLLOUTS)
    }
    exact = world.moments()
    found = tuple(
        optimal_allocation(exact.oracle_variance_P, exact.degenerate_P, ROLLOUTS).tolist()
    )
    assert every[found] == pytest.approx(min(every.values()), rel=1e-9)
    assert len(set(found)) > 1  # prompts differ, and equal shares are not the answer
    assert every[found] < every[4, 4, 4]


def test_it_is_the_best_of_all_for_any_components() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        t, r = rng.exponential(size=4) * rng.integers(0, 2, 4), rng.exponential(size=4)
        every = [
            sum(t[x] / n + r[x] / (n * (n - 1)) for x, n in enumerate(one))
            for one in allocations(4, 14)
        ]
        found = optimal_allocation(t, r, 14)
        assert found.sum() == 14
        assert (t / found + r / (found * (found - 1))).sum() == pytest.approx(min(every), rel=1e-12)


def test_by_rewards_alone_each_gets_one_and_a_share_by_its_spread() -> None:
    variance = np.array([0.25, 0.09, 0.01, 0.0])
    found = allocation_by_spread(variance, 905)
    np.testing.assert_allclose(found[:3] - 1, 900 * np.sqrt(variance[:3]) / 0.9, atol=1)
    assert found[3] == 2
    assert found.sum() == 905


def test_a_group_of_equal_rewards_is_not_taken_for_one_without_variance() -> None:
    """By hand: squares 2 and 0 in groups of 4 and 2; within prompts 2/4 on average."""
    np.testing.assert_allclose(
        shrunk_variance(np.array([2.0, 0.0]), np.array([4.0, 2.0])), [2.5 / 4, 0.5 / 2]
    )
    assert (shrunk_variance(np.zeros(3), np.full(3, 8.0)) == 0).all()


def test_what_cannot_be_allocated_is_a_sentence() -> None:
    with pytest.raises(InvalidArgumentError, match="at least 2 rollouts for each of 3"):
        optimal_allocation([1, 1, 1], [1, 1, 1], 5)
    with pytest.raises(InvalidArgumentError, match="at least 0"):
        optimal_allocation([-1.0], [1.0], 5)
