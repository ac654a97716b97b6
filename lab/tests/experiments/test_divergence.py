"""Where two runs part: the e-process by enumeration, exact steps, rates in
simulation.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from divergence import DRIFTS, _together, innovations, log_evidence, run_divergence
from numpy.polynomial.legendre import legval
from numpy.typing import NDArray
from tests.cases import each_case

from groupwise.comparison.curves import Curve, local_spread
from groupwise.forecasting.noise import NoiseShape, noise_posterior

FloatArray = NDArray[np.float64]
ROWS = 80
STEP = np.arange(float(ROWS))


def run(step: FloatArray, value: FloatArray, smooth: FloatArray | None = None) -> Curve:
    return Curve(step, value, np.zeros(step.size) if smooth is None else smooth)


def noisy(
    rng: np.random.Generator, mean: FloatArray, *, correlation: float = 0.0, error: float = 0.1
) -> Curve:
    """A run of known mean: the smooth curve is the truth, the noise AR(1)."""
    noise = np.empty(len(mean))
    noise[0] = rng.normal(0, error)
    for t in range(1, len(mean)):
        noise[t] = correlation * noise[t - 1] + rng.normal(0, error * math.sqrt(1 - correlation**2))
    return run(np.arange(float(len(mean))), mean + noise, mean)


@pytest.mark.parametrize(
    "shape", [NoiseShape(0.7, 0.6), NoiseShape(0.5, 1.0), NoiseShape(0.0, 0.0)]
)
def test_innovations_are_white(shape: NoiseShape) -> None:
    """Against the inverse Cholesky factor of the covariance."""
    distance = np.abs(np.subtract.outer(np.arange(12), np.arange(12)))
    covariance = shape.share * shape.correlation**distance + (1 - shape.share) * np.eye(12)
    value = np.random.default_rng(8).normal(size=12)
    assert innovations(value, shape) == pytest.approx(
        np.linalg.solve(np.linalg.cholesky(covariance), value), abs=1e-12
    )


def test_the_evidence_by_enumeration() -> None:
    """Every start and every size written out: (1/8) sum over sizes of (1/n) sum over starts of
    the product of factors, and the rest.
    """
    score = np.array([0.3, -1.0, 2.0, 2.5, 0.1])
    n = score.size
    for t, found in enumerate(log_evidence(score)):
        total = (n - t - 1) / n
        for size in DRIFTS:
            factor = np.exp(size * score - size**2 / 2)
            total += sum(np.prod(factor[start : t + 1]) for start in range(t + 1)) / n / len(DRIFTS)
        assert found == pytest.approx(math.log(total), abs=1e-12)


def test_evidence_is_a_fair_bet() -> None:
    """Standard normal scores raise an alarm at 20 in at most 5 % of runs, looked at after every
    row.
    """
    rng, n = np.random.default_rng(9), 400
    alarms = sum(float(log_evidence(rng.normal(size=60)).max()) >= math.log(20) for _ in range(n))
    assert alarms / n < 0.05 + 3 * math.sqrt(0.05 * 0.95 / n)


@each_case("seed", range(4))
def test_a_divergence_is_where_its_definition_says(seed: int) -> None:
    """Every part by other code: spread, plausible noises, whitening, the least evidence of them,
    alarm and likeliest onset.
    """
    rng = np.random.default_rng(seed)
    first, second = (
        noisy(rng, np.zeros(ROWS), correlation=0.4),
        noisy(rng, np.where(STEP >= 40, 0.25, 0.0), correlation=0.4),
    )
    apart, residual = second.value_T - first.value_T, second.residual - first.residual
    spread = local_spread(residual)
    columns = np.column_stack([legval(2 * np.sqrt(STEP / 79) - 1, np.eye(4)[k]) for k in range(4)])
    noise = noise_posterior(STEP, np.ones(ROWS), columns, residual / spread, gap=1.0)
    plausible = [
        e for e in range(len(noise.shapes)) if noise.weight_E[e] >= 0.03 * noise.weight_E.max()
    ]
    assert len(plausible) > 1
    scores = {
        e: innovations(apart / spread, noise.shapes[e]) / math.sqrt(noise.variance_E[e])
        for e in plausible
    }
    evidence = np.min([log_evidence(score) for score in scores.values()], axis=0)
    above = [t for t in range(ROWS) if evidence[t] >= math.log(1 / 0.02)]
    found = run_divergence(first, second, rate=0.02)
    assert found.rate == 0.02
    if not above:
        assert (found.status, math.isnan(found.step)) == ("none", True)
        return
    score, seen = scores[noise.best][: above[0] + 1], above[0]
    best = max(
        ((size * score[s:] - size**2 / 2).sum(), -s) for s in range(seen + 1) for size in DRIFTS
    )
    assert (found.status, found.seen, found.step) == ("diverged", float(seen), float(-best[1]))
    assert (
        f"from step {-best[1]}, seen by step {seen} (false alarms over the whole run 2 %)"
        in found.message
    )


def test_what_two_runs_cannot_tell() -> None:
    step = np.arange(16.0)
    wave = np.where(step % 2, 1.0, -1.0)
    short = run_divergence(run(step[:15], wave[:15]), run(step, -wave))
    assert short.message == "the runs share 15 rows; a divergence needs 16"
    assert run_divergence(run(step, wave), run(step, -wave)).status == "none"
    silent = run_divergence(run(step, step, step), run(step, 2 * step, 2 * step))
    assert (silent.status, silent.message) == (
        "unavailable",
        "the runs have no noise of steps to judge by",
    )
    same = run_divergence(run(step, wave), run(step, wave))
    assert (same.status, same.message) == (
        "none",
        "The runs have the same values in every row that they share.",
    )


def test_rows_are_matched_by_their_steps() -> None:
    first = run(np.array([0.0, 1, 2, 3]), np.array([1.0, 2, 3, 4]), np.array([1.0, 1, 1, 1]))
    second = run(np.array([1.0, 2, 5]), np.array([10.0, 20, 30]), np.array([9.0, 9, 9]))
    step, apart, residual = _together(first, second)
    assert (step.tolist(), apart.tolist(), residual.tolist()) == (
        [1.0, 2.0],
        [8.0, 17.0],
        [0.0, 9.0],
    )


def test_runs_that_share_few_steps_cannot_be_told_apart() -> None:
    early, late = run(np.arange(10.0), np.zeros(10)), run(np.arange(7.5, 17.5), np.zeros(10))
    message = run_divergence(early, late).message
    assert message == "the runs share 0 rows; a divergence needs 16"


@pytest.mark.slow
@pytest.mark.parametrize("correlation", [0.0, 0.5])
def test_runs_of_one_mean_rarely_diverge_and_others_do(correlation: float) -> None:
    rng, n, alarms, onsets = np.random.default_rng(10), 80, 0, []
    mean = 0.8 - 0.6 * np.exp(-STEP / 20)
    bent = mean + np.where(STEP >= 40, 0.3, 0.0)
    for _ in range(n):
        first = noisy(rng, mean, correlation=correlation)
        alarms += (
            run_divergence(first, noisy(rng, mean, correlation=correlation)).status == "diverged"
        )
        parted = run_divergence(first, noisy(rng, bent, correlation=correlation))
        if parted.status == "diverged":
            onsets.append(parted.step)
    assert alarms / n < 0.05 + 3 * math.sqrt(0.05 * 0.95 / n)
    if correlation == 0:
        assert len(onsets) > 0.9 * n
        assert abs(float(np.median(onsets)) - 40) <= 2
