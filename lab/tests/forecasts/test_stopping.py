"""Slow starts told by likelihood, and where the plateau foreseen would have stopped a run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from lab.tests.experiments.conftest import scripts_of

from groupwise.errors import InsufficientDataError
from groupwise.forecasting.fit import fit
from groupwise_lab.forecasts.backtest import SHARES

with scripts_of(Path(__file__).resolve().parents[2] / "experiments" / "forecast") as load_script:
    _script, _stopping = load_script("claims"), load_script("stopping")
CLEARLY, of_clusters = _script.CLEARLY, _script.of_clusters
Stop = _stopping.Stop
slow_start = _stopping.slow_start
stop_at_plateau = _stopping.stop_at_plateau


def test_a_slow_start_is_told_by_likelihood() -> None:
    time = np.arange(120.0)
    noise = 0.01 * np.random.default_rng(1).standard_normal(120)
    logistic = 0.2 + 0.6 / (1 + np.exp(-(time - 50) / 8))
    assert slow_start(fit(time, logistic + noise)) > CLEARLY
    assert slow_start(fit(time, 0.8 - 0.6 * np.exp(-time / 20) + noise)) < 0


def test_a_run_stops_where_the_median_gains_less_than_a_twentieth_of_the_gain_so_far() -> None:
    """A rise from 0 to 1 in the first half: at 20 % the level is .4 and .3 more are foreseen, at
    40 % it is .8 and .03 are; .2 is lost. At 10 % nothing is foretold.
    """
    value = np.minimum(np.arange(100) / 50, 1.0)
    foreseen = {0.2: (0.4, 0.7), 0.4: (0.8, 0.83), 0.6: (1.0, 1.0)}

    def foretell(share: float) -> Any:
        if share not in foreseen:
            raise InsufficientDataError("expected rows that move")
        now, later = foreseen[share]
        return SimpleNamespace(
            n_train=100 * share,
            rivals={"last_mean": SimpleNamespace(centre_S=np.array([now]))},
            windows=SimpleNamespace(quantile=lambda _: np.array([0.0, later])),
        )

    first, unit = float(value[:10].mean()), float(value.std())
    stop = stop_at_plateau(value, foretell, (0.1, 0.2, 0.4, 0.6))
    assert stop.saved == pytest.approx(0.6)
    assert (stop.gain, stop.loss) == pytest.approx(((1 - first) / unit, 0.2 / unit))
    foreseen[0.4] = foreseen[0.6] = (0.8, 0.95)
    assert stop_at_plateau(value, foretell, SHARES) == Stop(0.0, stop.gain, 0.0)


def test_clusters_weigh_the_same() -> None:
    """Two runs of one cluster and one of another."""
    row = {"saved": 0.0, "gain": 2.0, "loss": 0.0}
    rows = [
        {"cluster": "a", "slow_start": 7.0, **row},
        {"cluster": "a", "slow_start": 5.0, **row},
        {"cluster": "b", "slow_start": -7.0, "saved": 0.6, "gain": 2.0, "loss": 1.0},
    ]
    head, lines = of_clusters(rows)
    assert head == "runs | clusters | slow start | none | saved | lost of the gain"
    assert lines == ["3 | 2 | 0.25 | 0.50 | 0.30 | 0.25"]
