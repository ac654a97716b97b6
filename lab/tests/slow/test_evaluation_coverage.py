"""Coverage of the intervals of mean@n and of paired differences in simulated benchmarks; the table
that lab/docs/how-to/evaluate.md quotes.

    python -m pytest -m slow -s tests/slow/test_evaluation_coverage.py

3000 studies each: at .95 a standard error is .004, and 5 of them are never left by chance (below
1e-6).
"""

from __future__ import annotations

import numpy as np
import pytest

from groupwise_lab.trainer.accuracy import Answers, compare, mean_at

STUDIES = 3000
pytestmark = pytest.mark.slow


def answers(
    chance_P: np.ndarray,
    samples: int,
    rng: np.random.Generator,
    cluster_P: np.ndarray | None = None,
) -> Answers:
    return Answers(
        "b",
        rng.binomial(samples, chance_P),
        samples,
        np.arange(len(chance_P)) if cluster_P is None else cluster_P,
    )


@pytest.mark.parametrize(
    ("problems", "samples", "mean", "spread"),
    [
        (30, 1, 0.1, 0.5),
        (30, 4, 0.1, 0.5),
        (30, 16, 0.3, 0.3),
        (40, 4, 0.02, 0.2),
        (200, 4, 0.05, 0.3),
        (200, 4, 0.9, 1),
        (1000, 1, 0.5, 1),
    ],
)
def test_mean(problems: int, samples: int, mean: float, spread: float) -> None:
    rng = np.random.default_rng(0)
    chances = rng.beta(mean * spread, (1 - mean) * spread, (STUDIES, problems))
    covered = np.mean(
        [mean_at(answers(chance_P, samples, rng)).interval.covers(mean) for chance_P in chances]
    )
    print(f"mean@{samples}, {problems} problems, mean {mean}: {covered:.3f}")
    assert (
        covered > 0.95 - 0.02 - 0.015
    )  # .015: what a Wilson interval may fall short of its level by


def test_templates() -> None:
    rng = np.random.default_rng(1)
    cluster_P = np.repeat(np.arange(20), 20)
    chances = np.repeat(rng.beta(1, 1, (STUDIES, 20)), 20, axis=1)
    covered = np.mean(
        [mean_at(answers(chance_P, 1, rng, cluster_P)).interval.covers(0.5) for chance_P in chances]
    )
    print(f"20 templates of 20 variants: {covered:.3f}")
    assert covered > 0.95 - 0.02


@pytest.mark.parametrize("improved", [0.0, 0.1])
@pytest.mark.parametrize(("problems", "samples"), [(30, 1), (30, 4), (200, 1), (200, 4)])
def test_difference(problems: int, samples: int, improved: float) -> None:
    rng = np.random.default_rng(2)
    before = rng.beta(0.3, 0.7, (STUDIES, problems))
    after = np.where(rng.random(before.shape) < improved, 1.0, before)
    pairs = zip(before, after, strict=True)
    covered = np.mean(
        [
            compare(answers(a, samples, rng), answers(b, samples, rng)).difference.covers(
                0.7 * improved
            )
            for a, b in pairs
        ]
    )
    print(
        f"difference, {problems} problems, {samples} samples, {improved:.0%} improved: "
        f"{covered:.3f}"
    )
    assert covered > 0.95 - 0.02
