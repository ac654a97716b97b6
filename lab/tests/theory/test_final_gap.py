"""The limiting law of the gap: against Lyapunov's equation, the exact recursion of a quadratic,
runs, and its orders in G.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lab.tests.experiments.conftest import scripts_of
from scipy import linalg, stats
from tests.cases import each_case
from tests.enumeration import enumerate_groups

from groupwise.errors import InvalidArgumentError
from groupwise_lab.worlds.bandit import random_world

with scripts_of(Path(__file__).resolve().parents[2] / "experiments" / "u_statistic") as load_script:
    _script = load_script("final_gap")
CovarianceParts = _script.CovarianceParts
MatrixMoments = _script.MatrixMoments
compare_final_gaps = _script.compare_final_gaps
components_at_cost = _script.components_at_cost
cost_of_noise = _script.cost_of_noise
covariance_parts = _script.covariance_parts
limiting_gap = _script.limiting_gap
stationary_gap = _script.stationary_gap


def matrices(seed: int, dimensions: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """A curvature with eigenvalues between .5 and 3, and a covariance that does not commute with
    it.
    """
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.standard_normal((dimensions, dimensions)))[0]
    curvature = turn @ np.diag(np.linspace(0.5, 3, dimensions)) @ turn.T
    root = rng.standard_normal((dimensions, dimensions))
    return -curvature, root @ root.T / dimensions


def parts_of(seed: int) -> tuple[Any, np.ndarray]:
    """Parts of a bandit's gradient covariance, and a curvature; the moments by sums of this
    file.
    """
    world = random_world(
        np.random.default_rng(seed), prompts=6, arms=4, dimensions=3, rewards="binary"
    )
    exact = world.moments()
    centred = world.reward_PO - exact.value_P[:, None]
    moment = [
        np.einsum(
            "po,po,poi,poj->pij",
            world.probability_PO,
            centred**power,
            world.score_POD,
            world.score_POD,
        )
        for power in (0, 1, 2)
    ]
    moments = MatrixMoments(
        exact.value_P, exact.reward_variance_P, moment[0], moment[1], moment[2], exact.gradient_PD
    )
    parts = covariance_parts(moments, weight_P=world.weight_P)
    return parts, matrices(seed, 3)[0]


@each_case("seed", range(4))
def test_the_covariance_solves_lyapunovs_equation(seed: int) -> None:
    """(b Lambda - 1/2) Sigma + Sigma (b Lambda - 1/2) = b^2 Omega, solved by scipy."""
    hessian, noise = matrices(seed)
    b = 1.7
    drift = -b * hessian - np.eye(4) / 2
    sigma = linalg.solve_continuous_lyapunov(drift, b**2 * noise)
    root = linalg.sqrtm(sigma).real
    weights = np.linalg.eigvalsh(root @ -hessian @ root / 2)[::-1]
    gap = limiting_gap(hessian, noise, b)
    assert gap.weight_K == pytest.approx(weights, rel=1e-9)
    assert gap.mean == pytest.approx(np.trace(-hessian @ sigma) / 2)
    assert gap.mean == pytest.approx(float((cost_of_noise(hessian, b) * noise).sum()))
    assert gap.law.var() == pytest.approx(2 * (gap.weight_K**2).sum())


@each_case("b", [2.0, 3.0])
def test_the_corrected_factor_is_the_limit_of_the_exact_recursion_and_the_printed_one_is_not(
    b: float,
) -> None:
    hessian, noise = matrices(1)
    spread, steps = np.eye(4), 20_000
    for i in range(1, steps + 1):
        shrink = np.eye(4) + b / i * hessian
        spread = shrink @ spread @ shrink + (b / i) ** 2 * noise
    truth = steps * np.trace(-hessian @ spread) / 2
    assert limiting_gap(hessian, noise, b).mean == pytest.approx(truth, rel=3e-3)
    printed = limiting_gap(hessian, noise, b, factor="printed")
    assert printed.mean == pytest.approx(limiting_gap(hessian, noise, b).mean / b**2)
    assert abs(printed.mean / truth - 1) > 0.3


def test_flat_directions_cost_nothing() -> None:
    hessian, noise = matrices(2)
    turn = np.linalg.qr(np.random.default_rng(3).standard_normal((6, 6)))[0]
    wide_hessian, wide_noise = np.zeros((6, 6)), np.eye(6) * 0.2
    wide_hessian[:4, :4], wide_noise[:4, :4] = hessian, noise
    gap = limiting_gap(turn @ wide_hessian @ turn.T, turn @ wide_noise @ turn.T, 1.5)
    assert len(gap.curvature_K) == 4
    assert gap.weight_K == pytest.approx(limiting_gap(hessian, noise, 1.5).weight_K)
    assert gap.flat_noise == pytest.approx(0.4 / (0.4 + np.trace(noise)))


def test_noise_in_a_flat_direction_costs_something_where_the_curvature_changes_along_it() -> None:
    """J = -exp(-y) x^2 / 2 is flat in y; noise there moves the curvature of x, and the law, which
    leaves it out, is too low.

    8,000 runs of one seed. Were the law right, the mean would exceed it by five standard errors
    with probability 3e-7.
    """
    rng = np.random.default_rng(0)
    scale, offset, steps, place, flat = 1.5, 40, 1000, np.zeros(8000), np.zeros(8000)
    for i in range(1, steps + 1):
        step, curve = scale / (i + offset), np.exp(-flat)
        slope, along = -curve * place, curve * place**2 / 2
        noise, drift = 0.1 * rng.standard_normal(8000), 5 * rng.standard_normal(8000)
        place, flat = place + step * (slope + noise), flat + step * (along + drift)
    gap = (steps + offset) * np.exp(-flat) * place**2 / 2
    law = limiting_gap([[-1.0, 0.0], [0.0, 0.0]], np.diag([0.01, 25.0]), scale)
    assert gap.mean() - law.mean > 5 * gap.std() / np.sqrt(len(gap))
    assert gap.mean() > 1.1 * law.mean
    assert law.flat_noise == pytest.approx(0.9996, abs=5e-5)


def test_directions_without_noise_have_no_weight() -> None:
    gap = limiting_gap(-np.eye(3), np.diag([1.0, 0.0, 0.0]), 1.0)
    assert len(gap.weight_K) == 1
    silent = limiting_gap(-np.eye(2), np.zeros((2, 2)), 1.0)
    assert (silent.mean, float(silent.quantile(0.9))) == (0, 0)
    with pytest.raises(InvalidArgumentError, match="noise"):
        _ = silent.law


@pytest.mark.slow
def test_runs_follow_the_law() -> None:
    """Four thousand runs on a quadratic, 400 steps each: Kolmogorov-Smirnov; a right law fails
    with probability 1e-3 for a seed.
    """
    rng = np.random.default_rng(5)
    curvature, b = np.array([1.0, 2.5]), 1.4
    noise = np.array([[0.5, 0.2], [0.2, 0.8]])
    root = np.linalg.cholesky(noise)
    place = np.zeros((4_000, 2))
    for i in range(1, 401):
        place += b / i * (-place * curvature + rng.standard_normal(place.shape) @ root.T)
    scaled = 400 * (place**2 @ curvature) / 2
    gap = limiting_gap(-np.diag(curvature), noise, b)
    assert stats.kstest(scaled, gap.law.cdf).pvalue > 1e-3
    assert (
        stats.kstest(
            scaled, limiting_gap(-np.diag(curvature), noise, b, factor="printed").law.cdf
        ).pvalue
        < 1e-12
    )


@each_case("seed", range(3))
def test_parts_of_a_world_have_its_traces(seed: int) -> None:
    world = random_world(
        np.random.default_rng(seed), prompts=6, arms=4, dimensions=3, rewards="binary"
    )
    parts, _ = parts_of(seed)
    assert [
        np.trace(matrix) for matrix in (parts.between_DD, parts.first_DD, parts.second_DD)
    ] == pytest.approx([world.vp, world.t, world.r])


@each_case("group_size", [1, 2, 3])
def test_covariances_of_a_group_by_enumeration(group_size: int) -> None:
    """One prompt, all groups: the covariance of the estimator itself, written out here."""
    world = random_world(np.random.default_rng(7), prompts=1, arms=4, dimensions=3)
    exact = world.moments()
    groups = enumerate_groups(world, group_size)
    centred = world.reward_PO - exact.value_P[:, None]
    moment = [
        np.einsum(
            "po,po,poi,poj->pij", world.probability_PO, centred**k, world.score_POD, world.score_POD
        )
        for k in (0, 1, 2)
    ]
    parts = covariance_parts(
        MatrixMoments(
            exact.value_P,
            exact.reward_variance_P,
            moment[0],
            moment[1],
            moment[2],
            exact.gradient_PD,
        ),
        constant=0.2,
    )
    reward = groups.reward_MG
    baselines = {
        "oracle": np.full_like(reward, exact.value_P[0]),
        "fixed": np.full_like(reward, 0.2),
    }
    if group_size > 1:
        baselines["leave_one_out"] = (reward.sum(axis=1, keepdims=True) - reward) / (group_size - 1)
    for name, baseline in baselines.items():
        estimate = (groups.score_MGD * (reward - baseline)[:, :, None]).mean(axis=1)
        off = estimate - groups.mean(estimate)
        covariance = np.einsum("m,mi,mj->ij", groups.probability_M, off, off)
        assert parts.covariance(name, group_size, 1) == pytest.approx(covariance, abs=1e-12)


@each_case("seed", range(3))
def test_the_excess_of_leave_one_out_falls_as_one_over_g_times_g_less_one(seed: int) -> None:
    """The sum of the weights exactly; each weight to leading order, slope -1.00 +- .02 of the
    logarithms from G = 128 on.
    """
    parts, hessian = parts_of(seed)
    sizes = np.array([2, 4, 8, 16, 64, 128, 512, 2048])
    gaps = [
        compare_final_gaps(parts, hessian, 1.5, group_size=float(size), prompts=8) for size in sizes
    ]
    pairs = np.log(sizes * (sizes - 1.0))
    excess = np.array([gap.leave_one_out.mean - gap.oracle.mean for gap in gaps])
    assert np.diff(np.log(excess)) / np.diff(pairs) == pytest.approx(-1, abs=1e-4)
    differences = np.array([gap.weight_difference for gap in gaps])
    assert (differences > 0).all()
    slopes = np.diff(np.log(differences[5:]), axis=0) / np.diff(pairs[5:])[:, None]
    assert slopes == pytest.approx(-1, abs=0.02)


def test_what_holds_of_the_gradient_holds_of_the_final_gap() -> None:
    parts, hessian = parts_of(1)
    vp, t, r = components_at_cost(parts, cost_of_noise(hessian, 1.5))
    rollouts = 512.0
    for size in (2.0, 4.0, 16.0):
        gap = compare_final_gaps(parts, hessian, 1.5, group_size=size, prompts=rollouts / size)
        assert rollouts * gap.leave_one_out.mean == pytest.approx(vp * size + t + r / (size - 1))
        excess = gap.leave_one_out.mean / gap.oracle.mean - 1
        assert excess == pytest.approx(r / (size - 1) / (vp * size + t))
    best = 1 + np.sqrt(r / vp)
    costs = [
        compare_final_gaps(
            parts, hessian, 1.5, group_size=float(g), prompts=rollouts / g
        ).leave_one_out.mean
        for g in range(2, 65)
    ]
    assert abs(2 + int(np.argmin(costs)) - best) < 1.0 or best < 2


ONE = np.ones((1, 1))


@each_case(
    ("call", "sentence"),
    [
        (lambda: limiting_gap([[1.0, 0], [0, -1.0]], np.eye(2), 2.0), "negative semi-definite"),
        (lambda: limiting_gap([[0.0, 1], [0, -1.0]], np.eye(2), 2.0), "symmetric hessian_DD"),
        (lambda: limiting_gap([[0.0]], ONE, 2.0), "some curvature"),
        (lambda: limiting_gap([[-1.0]], ONE, 0.5), "above 1/"),
        (lambda: limiting_gap([[-1.0]], ONE, 0.4), "above 1/"),
        (lambda: limiting_gap([[np.nan]], ONE, 2.0), "finite"),
        (lambda: limiting_gap([[-1.0]], -ONE, 2.0), "negative eigenvalues"),
        (lambda: limiting_gap([[-1.0]], np.eye(2), 2.0), "1 x 1"),
        (
            lambda: limiting_gap(-np.eye(2), [[1.0, 0.5], [0.1, 1.0]], 2.0),
            "symmetric covariance_DD",
        ),
    ],
)
def test_bad_input_gets_a_sentence(call, sentence: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InvalidArgumentError, match=sentence) as caught:
        call()
    assert "\n" not in str(caught.value)


@each_case("step", [0.02, 0.3])
def test_a_constant_step_settles_where_the_recursion_does(step: float) -> None:
    """E x x^T stepped until it rests; for small steps the mean is a quarter of the step times
    the trace, whatever the curvature.
    """
    hessian, noise = matrices(3)
    spread, keep = np.zeros((4, 4)), np.eye(4) + step * hessian
    for _ in range(4000):
        spread = keep @ spread @ keep + step**2 * noise
    root = linalg.sqrtm(spread).real
    weights = stationary_gap(hessian, noise, step)
    assert weights == pytest.approx(
        np.linalg.eigvalsh(root @ -hessian @ root / 2)[::-1], rel=1e-6, abs=1e-12
    )
    assert weights.sum() == pytest.approx(step * np.trace(noise) / 4, rel=2 * step)


def test_a_cost_turns_parts_into_components() -> None:
    parts, hessian = parts_of(2)
    vp, t, r = components_at_cost(parts, cost_of_noise(hessian, 1.5))
    expected = limiting_gap(hessian, parts.covariance("leave_one_out", 4, 8), 1.5).mean
    assert (vp + t / 4 + r / 12) / 8 == pytest.approx(expected)


@each_case("step", [0.0, -1.0, 2.0, np.nan])
def test_a_constant_step_that_does_not_settle_gets_a_sentence(step: float) -> None:
    with pytest.raises(InvalidArgumentError, match="below 2 over the largest curvature"):
        stationary_gap([[-1.0]], ONE, step)
