"""One law fitted to one series: noise and curve in turn, then intervals.

`fit_law` is the engine; choosing among laws is in `fit`, and what they say together in `status`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from scipy.special import stdtrit

from groupwise.arrays import Float
from groupwise.forecasting import profile
from groupwise.forecasting.laws import Law, oscillator_quantities
from groupwise.forecasting.noise import (
    NORMAL_EQUATIONS,
    NoisePosterior,
    NoiseShape,
    moment_shape,
    noise_posterior,
    noise_shapes,
    rounding,
)
from groupwise.forecasting.observations import Observations
from groupwise.intervals import Interval
from groupwise.plain import frozen


@frozen
class LawFit:
    """A law at its best, with the noise around it."""

    whole: profile.Box  # all that was searched
    point: tuple[float, ...]  # the best shape in the scale of the search, empty for the constant
    values: Mapping[str, float]  # parameters by name, in the order of `law.parameters`
    curve_M: Float  # fitted mean of each block
    noise: NoisePosterior  # what the residuals say about the noise
    centre: float  # constant that was taken off the values
    aicc: float  # corrected Akaike criterion, noise parameters counted
    # inner products under the heaviest noise shape (None for the constant)
    products: profile.Gram | None = None
    covariance: Float | None = (
        # of plateau, start and the search's coordinates in the linear model there, for unit
        # variance
        None
    )

    @property
    def law(self) -> Law:
        """The law."""
        return self.whole.law

    def at(self, time_T: Float) -> Float:
        """Return the fitted mean at any times."""
        return self.law.curve(time_T, **self.values)


def fit_law(observations: Observations, law: Law, *, order: int | None = None) -> LawFit:
    """Fit one law by generalised least squares, noise shape and curve in turn."""
    centre = float(observations.value_M.mean())
    centred = observations.value_M - centre
    whole = profile.whole_box(law, observations.span)
    if not law.shapes:
        noise = _noise(observations, np.ones((centred.size, 1)), centred)
        level = centre + float(noise.shift_EP[noise.best, 0])
        return LawFit(
            whole,
            (),
            {"plateau": level},
            np.full(centred.size, level),
            noise,
            centre,
            noise.aicc(1),
        )
    order = law.nodes if order is None else order
    nodes, matrix = basis = observations.basis(order)
    white = profile.gram(observations, basis, centred, noise_shapes(observations.gap)[0])

    def under(shape: NoiseShape) -> profile.Gram:
        """Inner products under one shape of the noise."""
        return profile.gram(observations, basis, centred, shape) if shape.share > 0 else white

    def at(products: profile.Gram, point: tuple[float, ...]) -> tuple[dict[str, float], Float]:
        """Parameters and curve at a point of the search."""
        values = _values_at(products, whole, point)
        return values, matrix @ law.curve(nodes, **values)

    point = profile.coarse_minimum(white, whole)
    shape = moment_shape(centred - at(white, point)[1], gap=observations.gap)
    products = under(shape)
    point = profile.minimum(products, whole, point)
    values, curve = at(products, point)
    noise = _noise(observations, matrix @ _scaled_jacobian(law, nodes, values), centred - curve)
    if (
        noise.best_shape != shape
    ):  # fitted under the shape that the posterior favours, the curve hardly moves again
        products = under(noise.best_shape)
        point = profile.minimum(products, whole, point)
        values, curve = at(products, point)
    values = {**values, "plateau": values["plateau"] + centre, "start": values["start"] + centre}
    covariance, _ = profile.linearised(products, whole, point)
    fit = LawFit(
        whole,
        point,
        values,
        curve + centre,
        noise,
        centre,
        noise.aicc(len(law.parameters)),
        products,
        covariance,
    )
    return (
        fit if _resolved(fit, observations, order) else fit_law(observations, law, order=2 * order)
    )


def _resolved(fit: LawFit, observations: Observations, order: int) -> bool:
    """Whether the basis follows the curve to a twentieth of the scatter; a sharp bend needs more
    nodes.
    """
    if order >= 4 * fit.law.nodes:
        return True
    error = observations.interpolation_error(fit.at, order)
    return error < 0.05 * math.sqrt(fit.noise.variance) + 1e-9 * float(np.ptp(fit.curve_M))


def _values_at(
    products: profile.Gram, whole: profile.Box, point: tuple[float, ...]
) -> dict[str, float]:
    """Parameters, linear ones solved, at a point of the search."""
    shapes = whole.at(point)
    best = profile.surface(whole.law, products, *shapes)
    named = {name: float(shape[0]) for name, shape in zip(whole.law.shapes, shapes, strict=True)}
    return {"plateau": float(best.plateau_Q[0]), "start": float(best.start_Q[0]), **named}


def _scaled_jacobian(law: Law, nodes_K: Float, values: Mapping[str, float]) -> Float:
    """Jacobian at the nodes, columns scaled to one so that the algebra stays well conditioned."""
    jacobian = law.jacobian(nodes_K, **values)
    size = np.abs(jacobian).max(0)
    return np.asarray(jacobian[:, size > 0] / size[size > 0])


def _noise(observations: Observations, columns: Float, residual: Float) -> NoisePosterior:
    """The noise posterior with columns made orthonormal where they nearly coincide."""
    well = np.linalg.cond(columns.T @ columns) < 1e11
    return noise_posterior(
        observations.time_M,
        observations.relative_variance_M,
        columns if well else orthonormal(columns),
        residual,
        gap=observations.gap,
        floor=rounding(observations.value_M, condition=NORMAL_EQUATIONS),
    )


def orthonormal(columns_MP: Float) -> Float:
    """An orthonormal basis of what the columns span, without the directions that coincide."""
    left, singular, _ = np.linalg.svd(columns_MP, full_matrices=False)
    return left[:, singular > 1e-7 * singular[0]]


def intervals_of(
    fit: LawFit, *, level: float = 0.95, widening: Float | None = None
) -> dict[str, Interval]:
    """Profile-likelihood intervals of the parameters and of what is derived from them;
    `widening` as `widening_of` gives it.
    """
    widening = widening_of(fit, level) if widening is None else widening
    if fit.products is None or fit.covariance is None:
        half = float(widening[0] * fit.noise.errors[0])
        value = fit.values["plateau"]
        return {"plateau": Interval(value, value - half, value + half, level)}
    best_error = float(profile.surface(fit.law, fit.products, *fit.whole.at(fit.point)).error_Q[0])
    limits = best_error * (1 + widening**2 / fit.noise.freedom)
    reach = float(widening.max() * np.sqrt(fit.noise.variance))
    box = profile.ellipse_box(fit.covariance, fit.whole, fit.point, reach)
    area = profile.region(fit.products, box, fit.point, float(limits.max()))

    out = {}
    linear = [fit.values[name] - fit.centre for name in ("plateau", "start")]
    ranges = profile.linear_ranges(
        area, fit.products, best=linear, largest_error=limits[:2].tolist()
    )
    for name, (low, high) in zip(("plateau", "start"), (ranges + fit.centre).tolist(), strict=True):
        out[name] = Interval(fit.values[name], low, high, level)

    over = _functions_of(fit.law, area.shapes)
    if fit.law.name == "oscillator":
        # At the edge of the search it may as well never fade.
        faint = over["damping_ratio"] <= fit.law.axes[1].low * (1 + 1e-9)
        over["damping_ratio"] = np.where(faint, 0.0, over["damping_ratio"])
        over |= {name: np.where(faint, np.inf, over[name]) for name in ("tau1", "tau2")}
    best_K = np.concatenate(list(_functions_of(fit.law, fit.whole.at(fit.point)).values()))
    limit_K = np.full(len(over), limits[2:].max())
    limit_K[: len(fit.law.shapes)] = limits[2:]
    over_KQ = np.stack(list(over.values()))
    low_K, high_K, below_K, above_K = profile.ranges_of(area, over_KQ, best_error, limit_K)
    floor_K = np.where((over_KQ > 0).all(1), 0.0, -np.inf)
    low_K = np.where(below_K, floor_K, np.minimum(low_K, best_K))
    high_K = np.where(above_K, np.inf, np.maximum(high_K, best_K))
    for name, value, lowest, highest in zip(
        over, best_K.tolist(), low_K.tolist(), high_K.tolist(), strict=True
    ):
        out[name] = Interval(value, lowest, highest, level)
    return out


def _functions_of(law: Law, shapes: tuple[Float, ...]) -> dict[str, Float]:
    """The shapes by name, and what is derived from them alone."""
    values = dict(zip(law.shapes, shapes, strict=True))
    return values | oscillator_quantities(*shapes) if law.name == "oscillator" else values


def widening_of(fit: LawFit, level: float) -> Float:
    """Half-width of each parameter's interval in standard errors; one without a Jacobian column
    takes the largest.
    """
    count = len(fit.law.parameters)
    factors = np.maximum(fit.noise.widening(level), stdtrit(fit.noise.freedom, 0.5 + level / 2))
    return factors if factors.size == count else np.full(count, factors.max())
