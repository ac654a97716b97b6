"""A fit as ArviZ takes it: the central shares of the draws are the intervals of those coverages,
and what is open is not drawn.
"""

from __future__ import annotations

import math
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from groupwise.analysis.inference_data import DRAWS, LEVELS, draws
from groupwise.api.run import run_of
from groupwise.errors import GroupwiseError, InsufficientDataError
from groupwise.intervals import Interval

REWARD = [0.8 - 0.6 * math.exp(-step / 40) + 0.02 * math.sin(7.3 * step) for step in range(1, 201)]


def normal_intervals(mean: float, deviation: float) -> list[Interval]:
    from scipy.stats import norm

    half = {level: deviation * float(norm.ppf(0.5 + level / 2)) for level in LEVELS}
    return [Interval(mean, mean - half[level], mean + half[level], level) for level in LEVELS]


def test_draws_of_normal_intervals_are_normal() -> None:
    drawn = draws(normal_intervals(2.0, 3.0))
    assert drawn is not None
    assert len(drawn) == DRAWS
    for interval in normal_intervals(2.0, 3.0):
        low, high = np.quantile(drawn, [(1 - interval.level) / 2, (1 + interval.level) / 2])
        assert (low, high) == pytest.approx((interval.low, interval.high), abs=0.05)
    assert float(np.mean(drawn)) == pytest.approx(2.0, abs=0.01)
    assert float(np.std(drawn)) == pytest.approx(
        3.0, rel=0.03
    )  # beyond the central 99 % nothing is drawn


def test_an_open_end_is_not_drawn() -> None:
    assert draws([*normal_intervals(0, 1)[:-1], Interval(0.0, -3.0, math.inf, 0.99)]) is None


def test_draws_of_two_parameters_are_in_no_common_order() -> None:
    first, second = draws(normal_intervals(0, 1), 1), draws(normal_intervals(0, 1), 2)
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.1  # type: ignore[arg-type]


def test_arviz_gets_the_intervals_of_the_fit() -> None:
    pytest.importorskip("arviz")
    found = run_of(REWARD)
    data, fit = found.to_arviz(law="exponential"), found.fit(law="exponential")
    for name, interval in fit.parameters.items():
        drawn = np.asarray(data["posterior"][name])
        assert np.quantile(drawn, [0.025, 0.975]) == pytest.approx(
            [interval.low, interval.high], rel=0.01
        ), name
    assert np.asarray(data["observed_data"]["reward"]) == pytest.approx(REWARD)
    assert np.asarray(data["constant_data"]["step"]).tolist() == list(range(1, 201))
    assert (data.attrs["law"], data.attrs["status"], data.attrs["not_limited"]) == (
        "exponential",
        fit.status,
        "",
    )


def test_too_few_rows_and_no_arviz_are_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    for missing in (None, SimpleNamespace()):  # ArviZ 1 has another shape
        monkeypatch.setitem(sys.modules, "arviz", missing)
        with pytest.raises(
            GroupwiseError, match=r"^expected arviz 0\.x, got none: pip install 'arviz<1', or use "
        ):
            run_of(REWARD).to_arviz()
    monkeypatch.setitem(sys.modules, "arviz", SimpleNamespace(InferenceData=object))
    with pytest.raises(InsufficientDataError):
        run_of([0.1, 0.2]).to_arviz()
