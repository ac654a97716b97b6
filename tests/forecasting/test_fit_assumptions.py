"""What a fit assumes of noise and learning rate, on rows that bear it out and on rows that do not."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from tests.cases import each_case

from groupwise.forecasting.fit import fit
from groupwise.plain import AssumptionStatus

HOLDS, VIOLATED, UNKNOWN = AssumptionStatus
ROWS = 200
RATE = np.full(ROWS, 1e-6)


def swinging(rng: np.random.Generator) -> np.ndarray:
    """AR(2) noise with a period of about ten rows."""
    value = rng.normal(size=ROWS)
    for row in range(2, ROWS):
        value[row] += 1.2 * value[row - 1] - 0.5 * value[row - 2]
    return value / 2


def correlated(rng: np.random.Generator) -> np.ndarray:
    value = rng.normal(size=ROWS)
    for row in range(1, ROWS):
        value[row] = 0.8 * value[row - 1] + 0.6 * value[row]
    return value


Noise = Callable[[np.random.Generator], np.ndarray]
KINDS: dict[str, tuple[Noise, AssumptionStatus, AssumptionStatus]] = {
    "white": (lambda rng: rng.normal(size=ROWS), HOLDS, HOLDS),
    "AR(1)": (correlated, HOLDS, HOLDS),
    "AR(2)": (swinging, HOLDS, VIOLATED),
    "growing": (lambda rng: rng.normal(size=ROWS) * np.linspace(0.4, 1.6, ROWS), VIOLATED, HOLDS),
}


@each_case("kind", list(KINDS))
def test_noise_is_told_by_its_size_and_by_its_memory(kind: str) -> None:
    noise, size, memory = KINDS[kind]
    time = np.arange(ROWS)
    value = 1 - np.exp(-time / 30) + 0.03 * noise(np.random.default_rng(3))
    result = fit(time, value, law="exponential", smoothing=1)
    checked = result.check_assumptions(RATE)
    assert [entry.status for entry in checked] == [size, memory, HOLDS]
    if size is VIOLATED:
        halves = np.split(result.residual_T, 2)
        first, last = (f"{np.sqrt((half**2).mean()):.3g}" for half in halves)
        assert f"about the curve by {first} in the first half, {last} in the second" in str(
            checked[0]
        )
        assert "variance_T=..." in str(checked[0])
    if memory is VIOLATED:
        assert "fit(time_T[::2], value_T[::2])" in str(checked[1])
        rows = result.residual_T
        lagged = np.column_stack([rows[1:-1], rows[:-2]])
        partial = np.linalg.lstsq(lagged, rows[2:])[0][1]  # of AR(2): that of lag 2
        shown = re.findall(r"at lag 2 is (-?\d*\.\d+)", str(checked[1]))
        assert [float(number) for number in shown] == pytest.approx([partial], abs=0.03)
        assert result.parameters["plateau"].covers(1.0)


def test_a_rate_that_changes_is_told_with_the_time_that_it_makes() -> None:
    time, rng = np.arange(ROWS), np.random.default_rng(4)
    rate = 1e-6 * (1 - time / ROWS)
    clock = np.cumsum(rate) / 1e-6
    value = 1 - np.exp(-clock / 20) + 0.01 * rng.normal(size=ROWS)
    result = fit(time, value)
    assert result.check_assumptions()[2].status is UNKNOWN
    assumptions = result.check_assumptions(rate)[2]
    assert assumptions.status is VIOLATED
    assert "it lies between 5e-09 and 1e-06" in assumptions.sentence
    assert "fit(numpy.cumsum(rate_T) / rate_T.max(), value_T)" in assumptions.sentence
    mended = fit(np.cumsum(rate) / rate.max(), value, law="exponential")
    assert mended.parameters["time_constant"].covers(20)


def test_few_rows_or_none_beside_the_curve_tell_nothing() -> None:
    few = fit(np.arange(12), np.random.default_rng(5).normal(size=12))
    still = fit(np.arange(40), np.full(40, 0.5))
    for result in (few, still):
        assert [entry.status for entry in result.check_assumptions()[:2]] == [UNKNOWN, UNKNOWN]
