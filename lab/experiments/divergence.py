r"""From which step two runs differ: an e-process, whose false-alarm rate is that of the whole run.

The difference over its local spread is whitened by the noise of the runs' own residuals,
so that innovations $z_t$ are standard normal as long as the means agree. The bets $\exp(\delta z_t
- \delta^2/2)$, mixed over sizes $\delta$ and starting rows, make a supermartingale: it reaches
$1/\alpha$ with a chance of at most $\alpha$, whenever one looks (Ville). Several noises may fit the
residuals; all of them have to raise the alarm. It says that two curves differ, not that two
settings do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.polynomial.legendre import legvander

from groupwise.arrays import Float
from groupwise.comparison.curves import TAKEN, Curve, local_spread
from groupwise.forecasting.e_process import change_evidence
from groupwise.forecasting.noise import NoiseShape, noise_posterior
from groupwise.plain import Plain

FEWEST = 16
DRIFTS = (-2.0, -1.0, -0.5, -0.25, 0.25, 0.5, 1.0, 2.0)
_PLAUSIBLE = 0.03


@dataclass(frozen=True, slots=True)
class Divergence(Plain):
    """From where two curves differ."""

    KEYS: ClassVar = ("status", "message", "step", "seen", "false_alarm_rate=rate")
    status: Literal["diverged", "none", "unavailable"]
    message: str  # the status as a sentence
    rate: float  # false-alarm rate over the whole run
    step: float = math.nan  # first step of the divergence by maximum likelihood
    seen: float = math.nan  # step at which the evidence sufficed


def run_divergence(first: Curve, second: Curve, *, rate: float = 0.05) -> Divergence:
    """Look for the first divergence of two runs beyond the noise of their steps."""
    step, apart, residual = _together(first, second)
    if step.size < FEWEST:
        return Divergence(
            "unavailable",
            f"the runs share {step.size} rows; a divergence needs {FEWEST}",
            rate,
        )
    if not apart.any():
        return Divergence(
            "none",
            "The runs have the same values in every row that they share.",
            rate,
        )
    spread = local_spread(residual)
    if spread.max() == 0:
        return Divergence("unavailable", "the runs have no noise of steps to judge by", rate)
    shapes, scales = _plausible(step, residual / spread)
    scores = [
        innovations(apart / spread, shape) / scale
        for shape, scale in zip(shapes, scales, strict=True)
    ]
    evidence = np.min([log_evidence(score) for score in scores], axis=0)
    above = np.flatnonzero(evidence >= -math.log(rate))
    alarms = f"(false alarms over the whole run {100 * rate:g} %)"
    if not above.size:
        return Divergence("none", f"No divergence beyond the noise of the steps {alarms}.", rate)
    seen = int(above[0])
    onset = _onset(scores[0][: seen + 1])
    message = (
        f"The runs diverge from step {step[onset]:.0f}, seen by step {step[seen]:.0f} {alarms}. "
        "It is beyond the noise of the steps; two seeds of one setting may do the same."
    )
    return Divergence("diverged", message, rate, float(step[onset]), float(step[seen]))


def _together(first: Curve, second: Curve) -> tuple[Float, Float, Float]:
    """Steps that both have, difference of the values, difference of the residuals."""
    step, a, b = np.intersect1d(first.step_T, second.step_T, return_indices=True)
    return step, second.value_T[b] - first.value_T[a], second.residual[b] - first.residual[a]


def _plausible(step_T: Float, residual_T: Float) -> tuple[list[NoiseShape], list[float]]:
    """Shapes of noise that residuals allow, heaviest first, with a row's deviation by each."""
    gap = float(np.median(np.diff(step_T)))
    # The smooth curves took low frequencies out of the residuals; the restricted likelihood is told
    # so.
    columns = legvander(2 * np.sqrt((step_T - step_T[0]) / np.ptp(step_T)) - 1, TAKEN)
    noise = noise_posterior(step_T, np.ones(step_T.size), columns, residual_T, gap=gap)
    order = [
        e
        for e in np.argsort(-noise.weight_E)
        if noise.weight_E[e] >= _PLAUSIBLE * noise.weight_E[noise.best]
    ]
    return [noise.shapes[e] for e in order], [math.sqrt(float(noise.variance_E[e])) for e in order]


def innovations(value_T: Float, shape: NoiseShape) -> Float:
    """Whiten rows a gap apart: the Kalman filter of AR(1) plus white noise, variance 1."""
    white, state = 1 - shape.share, shape.share
    mean, variance = 0.0, state
    out = np.empty(len(value_T))
    for t, value in enumerate(value_T):
        total = variance + white
        surprise = value - mean
        out[t] = surprise / math.sqrt(total)
        mean, variance = mean + variance / total * surprise, variance * white / total
        mean, variance = (
            shape.correlation * mean,
            shape.correlation**2 * variance + (1 - shape.correlation**2) * state,
        )
    return out


def log_evidence(score_T: Float) -> Float:
    """Logarithm of the e-process of a shift of unknown size, sign and start; the sizes are ours."""
    return change_evidence(_log_bets(score_T))


def _log_bets(score_T: Float) -> Float:
    """Log likelihood ratio of a shift to none at each row, a column a size."""
    drift = np.array(DRIFTS)
    return np.asarray(np.outer(score_T, drift) - drift**2 / 2)


def _onset(score_T: Float) -> int:
    """Start of a shift that lasts to the last row, by maximum likelihood."""
    suffix = np.cumsum(_log_bets(score_T)[::-1], axis=0)[::-1]
    return int(suffix.max(axis=1).argmax())
