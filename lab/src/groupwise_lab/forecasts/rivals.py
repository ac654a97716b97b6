"""What a person could take instead of our forecast: simple methods, and models of statsmodels where
it is installed.

Each foretells means over stretches of the rows to come. The last mean and smoothing by hand say
nothing of how far they may be off; a law fitted by least squares does by its parameters'
covariance, a model of time series by how it answers to surprises.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib.util import find_spec

import numpy as np
from scipy.optimize import least_squares
from scipy.special import ndtri

from groupwise.arrays import Float
from groupwise.forecasting.laws import Law, law_by_name
from groupwise.forecasting.observations import observe
from groupwise.forecasting.profile import fit_law
from groupwise.plain import frozen

SMOOTHING = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.45, 0.65, 0.9)


@frozen
class Stretches:
    """Stretches of the rows to come."""

    time_S: Float  # middle of each, in the clock of the log
    first_S: Float  # its first row, counted from 1 after the last row seen
    last_S: Float  # its last row

    @property
    def size(self) -> Float:
        """How many rows each has."""
        return self.last_S - self.first_S + 1


@frozen
class Rival:
    """What one method foretells of each stretch, normal where it has a deviation."""

    centre_S: Float
    deviation_S: Float | None = None

    def quantile(self, probability: float) -> Float:
        """Quantile of each mean."""
        assert self.deviation_S is not None
        return self.centre_S + float(ndtri(probability)) * self.deviation_S


def last_mean(_time_T: Float, value_T: Float, ahead: Stretches) -> Rival:
    """The mean of the last fifth."""
    return Rival(np.full(ahead.time_S.size, value_T[-max(5, value_T.size // 5) :].mean()))


def smoothing(_time_T: Float, value_T: Float, ahead: Stretches) -> Rival:
    """Simple exponential smoothing by the best of nine rates, from the mean of the first tenth
    on.
    """
    rate = np.array(SMOOTHING)
    level, squares = (
        np.full(rate.size, value_T[: max(3, value_T.size // 10)].mean()),
        np.zeros(rate.size),
    )
    for value in value_T:
        error = value - level
        squares, level = squares + error * error, level + rate * error
    return Rival(np.full(ahead.time_S.size, level[squares.argmin()]))


def _fitted_law(name: str) -> Callable[[Float, Float, Stretches], Rival]:
    """Unweighted bounded least squares of a law, with the covariance of its parameters as curve
    fitters report it.
    """

    def foretold(time_T: Float, value_T: Float, ahead: Stretches) -> Rival:
        law, origin = law_by_name(name), time_T[0]
        parameters, slope = _bounded_fit(law, time_T - origin, value_T)
        centre = law.curve(ahead.time_S - origin, **parameters)
        error = value_T - law.curve(time_T - origin, **parameters)
        noise = float(error @ error) / (value_T.size - len(parameters))
        there = law.jacobian(ahead.time_S - origin, **parameters)
        doubt = np.einsum("sp,pq,sq->s", there, np.linalg.pinv(slope.T @ slope), there)
        # The levels were held within one range of the data: what the linear covariance makes of
        # them goes no further.
        curve = np.clip(noise * doubt, 0, np.ptp(value_T) ** 2)
        return Rival(centre, np.sqrt(noise / ahead.size + curve))

    return foretold


def _bounded_fit(law: Law, time_T: Float, value_T: Float) -> tuple[dict[str, float], Float]:
    """Least squares with the levels held within one observed range of the data, as curve fitters
    do in practice; and its Jacobian.
    """
    reach = max(float(np.ptp(value_T)), 1e-9 * float(np.abs(value_T).max()), 1e-100)
    guess = fit_law(observe(time_T, value_T, smoothing=1), law).values
    span = float(time_T[-1])
    low = [value_T.min() - reach] * 2 + [
        axis.low * (span if axis.spans else 1) for axis in law.axes
    ]
    high = [value_T.max() + reach] * 2 + [
        axis.high * (span if axis.spans else 1) for axis in law.axes
    ]
    margin = 1e-6 * (np.array(high) - np.array(low))
    start = np.clip(
        [guess[name] for name in law.parameters], np.array(low) + margin, np.array(high) - margin
    )
    solution = least_squares(
        lambda p: law.curve(time_T, **dict(zip(law.parameters, p, strict=True))) - value_T,
        start,
        jac=lambda p: law.jacobian(time_T, **dict(zip(law.parameters, p, strict=True))),
        bounds=(low, high),
        x_scale=np.maximum(np.abs(start), margin),
    )
    return dict(zip(law.parameters, (float(v) for v in solution.x), strict=True)), np.asarray(
        solution.jac
    )


def ets_damped(_time_T: Float, value_T: Float, ahead: Stretches) -> Rival:
    """Exponential smoothing with a damped trend, its errors additive (Hyndman et al. 2008)."""
    from statsmodels.tsa.exponential_smoothing.ets import ETSModel

    rows = int(ahead.last_S[-1])
    fitted = ETSModel(value_T, trend="add", damped_trend=True).fit(disp=False)
    lasting = fitted.smoothing_level + fitted.smoothing_trend * np.cumsum(
        fitted.damping_trend ** np.arange(1.0, rows)
    )
    return _model(np.asarray(fitted.forecast(rows)), float(fitted.mse), lasting, ahead)


def theta(_time_T: Float, value_T: Float, ahead: Stretches) -> Rival:
    """The theta method: exponential smoothing with a drift of half the trend (Hyndman and Billah
    2003).
    """
    from statsmodels.tsa.forecasting.theta import ThetaModel

    rows = int(ahead.last_S[-1])
    fitted = ThetaModel(value_T, deseasonalize=False).fit()
    # statsmodels writes (1 + (1 - alpha)^2) where the variance of a step ahead grows by alpha^2.
    return _model(
        np.asarray(fitted.forecast(rows)),
        float(fitted.sigma2),
        np.full(rows - 1, fitted.params["alpha"]),
        ahead,
    )


def _model(mean_H: Float, noise: float, lasting_H: Float, ahead: Stretches) -> Rival:
    """Means and deviations over stretches, from how much of a surprise lasts into each row after
    it.
    """
    total = np.concatenate(
        [[0.0, 1.0], 1.0 + np.cumsum(lasting_H)]
    )  # what a surprise adds up to over its own row and the next ones
    mean, deviation = [], []
    for first, last in zip(ahead.first_S.astype(int), ahead.last_S.astype(int), strict=True):
        surprise = np.arange(1, last + 1)
        share = (total[last - surprise + 1] - total[np.maximum(first - surprise, 0)]) / (
            last - first + 1
        )
        mean.append(mean_H[first - 1 : last].mean())
        deviation.append(np.sqrt(noise * float(share @ share)))
    return Rival(np.array(mean), np.array(deviation))


Method = Callable[[Float, Float, Stretches], Rival]
SIMPLE: dict[str, Method] = {
    "last_mean": last_mean,
    "smoothing": smoothing,
    "power_law": _fitted_law("power_law"),
    "scalerl_sigmoid": _fitted_law("scalerl_sigmoid"),
}
MODELS: dict[str, Method] = {"ets_damped": ets_damped, "theta": theta}


def available() -> dict[str, Method]:
    """The methods that can be tried here."""
    return SIMPLE | (MODELS if find_spec("statsmodels") else {})


def foretold_by(method: Method, time_T: Float, value_T: Float, ahead: Stretches) -> Rival | None:
    """What a method foretells, None where it gives up on these rows."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter(
            "ignore"
        )  # of models that did not converge: what they say is scored as it is
        try:
            outlook = method(time_T, value_T, ahead)
        except (ValueError, ArithmeticError, np.linalg.LinAlgError):
            return None
    numbers = (
        [outlook.centre_S]
        if outlook.deviation_S is None
        else [outlook.centre_S, outlook.deviation_S]
    )
    return outlook if all(np.isfinite(values).all() for values in numbers) else None
