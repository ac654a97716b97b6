r"""Importance weights in numbers: the effective share of samples and the second moment, as far as the logged keys tell.

$E[w]^2/E[w^2]$ is the share of samples that count; of the mean and the largest weight alone $w^2 \le w\,w_{\max}$ gives at least
$E[w]/w_{\max}$, and a second moment of at most $E[w]\,w_{\max}$. Numbers beside `instability`; they raise no alarm.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from groupwise.diagnostics.findings import Measure
from groupwise.diagnostics.signals import Evidence, Signal, ends_of, signal_of
from groupwise.intervals import Interval

FloatArray = NDArray[np.float64]
NAME = "dynamical_instability"
ESS = r"(.*[/_.-])?(eff(ective)?_sample_size|ess)(_ratio|[/_]mean)?"
LOG = (
    "the importance weights: verl rollout_corr/rollout_is_eff_sample_size and chi2_token, open-instruct val/ratio_var, TRL with vLLM "
    "sampling/importance_sampling_ratio/{mean,max}"
)
# Names of importance weights; a second moment of something else, such as the optimiser's, is none of theirs.
_WEIGHT = r"(importance_sampling_ratio|rollout_is|probs_ratio|is_ratio|importance_ratio|importance_weights?|is_weights?|weights?)"
_MEAN = r".*(importance_sampling_ratio|rollout_is|probs_ratio|is_ratio|importance_ratio)[/_]mean"
_MOMENT = rf"(.*[/_.-])?{_WEIGHT}[/_]second_moment"


def measures(evidence: Evidence) -> tuple[Measure, ...]:
    """Return the effective share of samples and the second moment of the importance weights."""
    share, moment = _effective_share(evidence), _second_moment(evidence)
    if share is None and moment is None:
        return (Measure(NAME, "effective_samples", None, "nothing in the log tells how unlike the importance weights are", LOG),)
    return tuple(found for found in (share, moment) if found is not None)


def _effective_share(evidence: Evidence) -> Measure | None:
    """The effective share as logged, else from the second moment, else at least so much."""
    for signal in evidence.matching(ESS):
        if float(signal.value_T.max()) <= 1.0 + 1e-9 and float(signal.value_T.min()) >= 0.0:
            return _said(
                "effective_samples", signal, f"{signal.column}: the effective share of the samples under their weights is", (0.0, 1.0)
            )
    moments = moments_of(evidence)
    if moments is not None:
        mean, second, name = moments
        share = signal_of(name.column, name.step_T, mean**2 / np.maximum(second, 1e-300))
        return _said("effective_samples", share, f"from {name.column}: the effective share of the samples is", (0.0, 1.0))
    bound = _largest(evidence)
    if bound is None:
        return None
    mean, largest, name = bound
    share = signal_of(name.column, name.step_T, np.minimum(mean / np.maximum(largest, 1e-300), 1.0))
    low = float(share.value_T[ends_of(share)[1]].mean())
    said = f"{name.column} and the largest weight: at least {100 * low:.0f} % of the samples are effective"
    return Measure(NAME, "effective_samples", Interval(low, low, 1.0), said)


def _second_moment(evidence: Evidence) -> Measure | None:
    """The second moment as logged, else at most so much."""
    moments = moments_of(evidence)
    if moments is not None:
        _, second, name = moments
        signal = signal_of(name.column, name.step_T, second)
        return _said("weight_second_moment", signal, f"from {name.column}: the second moment of the importance weights is")
    bound = _largest(evidence)
    if bound is None:
        return None
    mean, largest, name = bound
    most = signal_of(name.column, name.step_T, mean * largest)
    high = float(most.value_T[ends_of(most)[1]].mean())
    low = float((mean**2)[ends_of(most)[1]].mean())
    said = f"{name.column} and the largest weight: the second moment of the importance weights is at most {high:.3g}"
    return Measure(NAME, "weight_second_moment", Interval(high, low, high), said)


def moments_of(evidence: Evidence) -> tuple[FloatArray, FloatArray, Signal] | None:
    r"""Return mean and second moment of the importance weights by row, and the column they come from.

    Of a $\chi^2$, a variance or a second moment alone the mean is 1; of a standard deviation it is the one logged beside it.
    """
    for signal in evidence.matching(r"(.*[/_])?(chi2_token|chi2_seq|ratio_var(iance)?)([/_]mean)?"):
        return np.ones(len(signal)), 1 + np.maximum(signal.value_T, 0.0), signal
    for signal in evidence.matching(_MOMENT):
        return np.ones(len(signal)), signal.value_T, signal
    for mean in evidence.matching(_MEAN):
        spread = evidence.matching(re.escape(mean.column.removesuffix("mean")) + "std")
        if spread:
            _, one, other = np.intersect1d(mean.step_T, spread[0].step_T, return_indices=True)
            if one.size >= 2:
                middle = mean.value_T[one]
                return middle, middle**2 + spread[0].value_T[other] ** 2, signal_of(mean.column, mean.step_T[one], middle)
    return None


def _largest(evidence: Evidence) -> tuple[FloatArray, FloatArray, Signal] | None:
    """Mean and largest weight by row."""
    for mean in evidence.matching(_MEAN):
        top = evidence.matching(re.escape(mean.column.removesuffix("mean")) + "max")
        if top:
            _, one, other = np.intersect1d(mean.step_T, top[0].step_T, return_indices=True)
            if one.size >= 2 and float(mean.value_T[one].min()) > 0:
                return mean.value_T[one], top[0].value_T[other], signal_of(mean.column, mean.step_T[one], mean.value_T[one])
    return None


def _said(name: str, signal: Signal, words: str, bounds: tuple[float, float] = (0.0, np.inf)) -> Measure:
    """A measure of the last rows."""
    value = signal.mean(ends_of(signal)[1])
    value = Interval(value.value, max(value.low, bounds[0]), min(value.high, bounds[1]))
    return Measure(NAME, name, value, f"{words} {value.value:.3g} ({value.low:.3g} to {value.high:.3g})")
