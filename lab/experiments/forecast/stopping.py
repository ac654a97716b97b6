"""What a run could have saved by the forecast: sampling, had it stopped at the plateau foreseen;
and whether it began slowly, which a single exponential cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from groupwise.arrays import Float
from groupwise.errors import GroupwiseError
from groupwise.forecasting.results import FitResult
from groupwise_lab.forecasts.backtest import SHARES, Trial

Foretell = Callable[[float], Trial]
"""What is foretold from a share of a run's rows."""
SLACK = 0.05
"""Gain to come, as a share of the gain so far, below which a plateau is foreseen."""


def slow_start(fit: FitResult) -> float:
    """Return by how much AICc prefers a logistic, which begins slowly, to a single exponential,
    which does not.
    """
    aicc = {candidate.law: candidate.aicc for candidate in fit.candidates}
    return aicc["exponential"] - aicc["logistic"]


@dataclass(frozen=True, slots=True)
class Stop:
    """Where a forecast would have stopped a run."""

    saved: float  # share of the rows that were not sampled; 0 where no plateau was foreseen
    gain: float  # of the last tenth of the rows over the first, in deviations of the rows
    loss: float  # gain after the stop, in the same unit


def stop_at_plateau(value_T: Float, foretell: Foretell, shares: Sequence[float] = SHARES) -> Stop:
    """Return where a run stops that is foretold from rising shares of its rows: at the first from
    which the median foreseen gains less than `SLACK` of what was gained until then.
    """
    tenth = max(1, len(value_T) // 10)
    start, end = float(value_T[:tenth].mean()), float(value_T[-tenth:].mean())
    unit = float(np.std(value_T))
    for share in shares:
        try:
            trial = foretell(share)
        except GroupwiseError:
            continue  # nothing moved yet
        now = float(trial.rivals["last_mean"].centre_S[-1])
        if trial.windows.quantile(0.5)[-1] - now < SLACK * abs(now - start):
            return Stop(1 - trial.n_train / len(value_T), (end - start) / unit, (end - now) / unit)
    return Stop(0.0, (end - start) / unit, 0.0)
