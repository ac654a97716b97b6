"""Speed of the variance components: beside one product of the same Gram matrix, and beside pairwise
u-statistics.

    make bench    (or: python -m pytest benchmarks/test_component_speed.py --benchmark-only -o
    addopts=)

The peer `u-stats` is measured where it is installed (`pip install u-stats`), else skipped visibly.
"""

from __future__ import annotations

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from groupwise.estimators.components import components, components_of_moments
from groupwise.estimators.moments import GroupMoments, moments_of_scores

ROLLOUTS, GROUP_SIZE = 4096, 8


def gram_batch() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """4,096 rollouts in 512 groups: Gram matrix, scores' weights, rewards, prompts."""
    rng = np.random.default_rng(1)
    score = rng.standard_normal((ROLLOUTS, 256))
    reward = rng.integers(2, size=ROLLOUTS).astype(float)
    return (
        score @ score.T,
        rng.standard_normal(ROLLOUTS),
        reward,
        np.repeat(np.arange(ROLLOUTS // GROUP_SIZE), GROUP_SIZE),
    )


@pytest.mark.benchmark(group="4,096 rollouts in 512 groups from a Gram matrix", min_rounds=30)
def test_components_with_intervals(benchmark: BenchmarkFixture) -> None:
    gram, _, reward, prompt = gram_batch()
    assert benchmark(lambda: components(reward, prompt, gram_NN=gram)).prompts == 512


@pytest.mark.benchmark(group="4,096 rollouts in 512 groups from a Gram matrix", min_rounds=30)
def test_one_product(benchmark: BenchmarkFixture) -> None:
    """The yardstick: K v once, which any method must at least read."""
    gram, vector, _, _ = gram_batch()
    assert benchmark(lambda: gram @ vector).shape == (ROLLOUTS,)


@pytest.mark.benchmark(group="4,096 rollouts in 512 groups from a Gram matrix")
def test_one_pairwise_u_statistic(benchmark: BenchmarkFixture) -> None:
    """The peer's simplest case: one mean over all pairs of the same matrix, no prompts, no
    components, no interval.
    """
    u_stats = pytest.importorskip("u_stats", reason="u-stats is not installed")
    u_stats.set_backend("numpy")
    gram, vector, _, _ = gram_batch()
    kernel = gram * np.outer(vector, vector)
    value = benchmark.pedantic(
        lambda: u_stats.ustat([kernel], "ij->"), rounds=3, iterations=1, warmup_rounds=1
    )  # type: ignore[no-untyped-call]
    assert value == pytest.approx((kernel.sum() - np.trace(kernel)) / (ROLLOUTS * (ROLLOUTS - 1)))


@pytest.mark.benchmark(group="4,096 rollouts in 512 groups from a Gram matrix")
def test_the_same_components_by_u_stats(benchmark: BenchmarkFixture) -> None:
    """The peer doing the same: Vp, T and R as U-statistics of each group, and the pairs across
    groups; no intervals.
    """
    u_stats = pytest.importorskip("u_stats", reason="u-stats is not installed")
    u_stats.set_backend("numpy")
    gram, _, reward, prompt = gram_batch()

    def run() -> np.ndarray:
        within, weight = np.zeros(3), np.empty(ROLLOUTS)
        for first in range(0, ROLLOUTS, GROUP_SIZE):
            rows = slice(first, first + GROUP_SIZE)
            block, value = gram[rows, rows], reward[rows]
            gap, norm = value[:, None] - value[None, :], np.diag(block).copy()
            own = u_stats.ustat([block, gap, gap], "ik,ij,kl->")
            within += [
                own,
                u_stats.ustat([norm, gap, gap], "i,ij,ik->") - own,
                u_stats.ustat([norm, gap**2 / 2], "i,jk->") + own,
            ]
            weight[rows] = (value - value.mean()) / (GROUP_SIZE - 1)
        groups = ROLLOUTS // GROUP_SIZE
        gradient = np.add.reduceat(
            np.add.reduceat(
                gram * np.outer(weight, weight), range(0, ROLLOUTS, GROUP_SIZE), axis=0
            ),
            range(0, ROLLOUTS, GROUP_SIZE),
            axis=1,
        )
        mean = within / groups
        return np.array([mean[0] - u_stats.ustat([gradient], "ij->"), mean[1], mean[2]])

    value = benchmark.pedantic(run, rounds=3, iterations=1, warmup_rounds=1)  # type: ignore[no-untyped-call]
    assert value == pytest.approx(components(reward, prompt, gram_NN=gram).estimate_C[:3], rel=1e-8)


@pytest.mark.benchmark(group="one million rollouts with 256-wide sketches, 20 batches of 50,000")
def test_a_million_rollouts(benchmark: BenchmarkFixture) -> None:
    """Twenty batches, of each of which the moments of its groups are kept, then the components."""
    rng = np.random.default_rng(1)
    sketch = rng.standard_normal((50_000, 256), dtype=np.float32)
    reward, prompt = (
        rng.integers(2, size=50_000).astype(float),
        np.repeat(np.arange(50_000 // GROUP_SIZE), GROUP_SIZE),
    )

    def run() -> int:
        parts = [moments_of_scores(sketch, reward, prompt) for _ in range(20)]
        return components_of_moments(GroupMoments.joined(parts)).rollouts

    assert benchmark.pedantic(run, rounds=3, iterations=1) == 1_000_000  # type: ignore[no-untyped-call]
