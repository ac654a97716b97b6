"""A fit as ArviZ takes it: for each parameter draws of its confidence distribution, whose central
share is the interval of that coverage.

A fit by profile likelihood has no posterior. It has an interval at every level, and those are the
quantiles of a distribution; each parameter is drawn from its own, so that marginals hold and
correlations do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from groupwise.analysis.fitted import fit_metric
from groupwise.arrays import Float
from groupwise.errors import GroupwiseError, InsufficientDataError
from groupwise.intervals import Interval
from groupwise.record.run import RunRecord

LEVELS = (0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 0.95, 0.99)
DRAWS, _CHAINS = 2000, 4  # draws in all; ArviZ asks for chains
_SHOWN_LEVEL = 0.95
_ABOUT = (
    "Draws of confidence distributions of a profile-likelihood fit: the central 95 % are the 95 % "
    "interval; marginals alone."
)


def inference_data(record: RunRecord, metric: str, law: str | None) -> Any:
    """Return the fit of one metric as ArviZ's InferenceData: posterior, observed_data and
    constant_data.
    """
    try:
        import arviz as az
    except ImportError:
        az = None
    if not hasattr(az, "InferenceData"):
        raise GroupwiseError(
            "expected arviz 0.x, got none: pip install 'arviz<1', or use run.fit().as_dict()"
        )
    fits = [fit_metric(record, metric, level=level, law=law) for level in LEVELS]
    if fits[0].fit is None:
        raise InsufficientDataError(fits[0].problem)
    shown = fits[LEVELS.index(_SHOWN_LEVEL)].in_steps()
    intervals = {
        name: [one.by_law(None).parameters[name] for one in fits] for name in shown.parameters
    }
    drawn = {name: draws(found, seed) for seed, (name, found) in enumerate(intervals.items())}
    unlimited = sorted(name for name, draw in drawn.items() if draw is None)
    groups = {
        "posterior": {
            name: draw.reshape(_CHAINS, -1) for name, draw in drawn.items() if draw is not None
        },
        "observed_data": {metric: shown.value_T},
        "constant_data": {"curve": shown.curve_T, "low": shown.low_T, "high": shown.high_T},
    }
    about = {
        "law": shown.law,
        "status": shown.status,
        "message": shown.message,
        "about": _ABOUT,
        "not_limited": ", ".join(unlimited),
    }
    known = {
        "coords": {"step": shown.time_T},
        "dims": {key: ["step"] for key in (metric, "curve", "low", "high")},
    }
    made = az.from_dict(**groups, **known)
    made.attrs.update(about)
    return made


def draws(intervals: Sequence[Interval], seed: int = 0) -> Float | None:
    """Return draws whose central shares are the intervals of those coverages; None where the
    data leave an end open.
    """
    shares = np.array([interval.level for interval in intervals])
    low, high = (
        np.array([getattr(interval, end) for interval in intervals]) for end in ("low", "high")
    )
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        return None
    at = np.concatenate([(1 - shares[::-1]) / 2, [0.5], (1 + shares) / 2])
    quantile = np.maximum.accumulate(
        np.concatenate([low[::-1], [np.clip(intervals[0].value, low[0], high[0])], high])
    )
    drawn = np.interp((np.arange(DRAWS) + 0.5) / DRAWS, at, quantile)
    return np.asarray(np.random.default_rng(seed).permutation(drawn))
