"""One law fitted to one series: noise and curve in turn, then intervals.

`fit_law` is the engine; choosing among laws and saying what it means is in `fit`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from groupwise.curves import profile, search
from groupwise.curves.laws import Law
from groupwise.curves.noise import NoisePosterior, moment_shape, noise_posterior, noise_shapes
from groupwise.curves.observations import Observations
from groupwise.intervals import Interval

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LawFit:
    """A law at its best, with the noise around it."""

    law: Law  # the law
    point: tuple[float, ...]  # the best shape in the scale of the search, empty for the constant
    values: Mapping[str, float]  # parameters by name, in the order of `law.parameters`
    curve_M: FloatArray  # fitted mean of each block
    noise: NoisePosterior  # what the residuals say about the noise
    aicc: float  # corrected Akaike criterion, noise parameters counted
    centre: float  # constant that was taken off the values
    products: search.Gram | None  # inner products under the heaviest noise shape (None for the constant)


def fit_law(observations: Observations, law: Law, *, order: int | None = None) -> LawFit:
    """Fit one law by generalised least squares, noise shape and curve in turn."""
    centre = float(observations.value_M.mean())
    centred = observations.value_M - centre
    if not law.shapes:
        return _fit_constant(observations, law, centred, centre)
    order = law.nodes if order is None else order
    basis = observations.basis(order)
    whole = search.whole_box(law, observations.span)
    white = search.gram(observations, basis, centred, noise_shapes(observations.gap)[0])
    point = search.coarse_minimum(law, white, whole)
    residual = centred - basis[1] @ law.curve(white.nodes_K, **_values_at(law, white, whole, point))
    shape, noise = moment_shape(residual, gap=observations.gap), None
    for _ in range(3):
        products = search.gram(observations, basis, centred, shape) if shape.share > 0 else white
        point = search.minimum(law, products, whole, point)
        values = _values_at(law, products, whole, point)
        curve = basis[1] @ law.curve(products.nodes_K, **values)
        if noise is not None:
            # The curve has been fitted under the shape that this posterior favours; it hardly moves again.
            break
        noise = _noise(observations, basis[1] @ _nodal_jacobian(law, products.nodes_K, values), centred - curve)
        if noise.best_shape == shape:
            break
        shape = noise.best_shape
    assert noise is not None
    values = {**values, "plateau": values["plateau"] + centre, "start": values["start"] + centre}
    found = LawFit(law, point, values, curve + centre, noise, aicc_of(noise, centred.size, len(law.parameters)), centre, products)
    return found if _resolved(found, observations, order) else fit_law(observations, law, order=2 * order)


def _resolved(found: LawFit, observations: Observations, order: int) -> bool:
    """Whether the basis follows the curve to a twentieth of the scatter; a sharp bend needs more nodes."""
    if order >= 4 * found.law.nodes:
        return True
    error = observations.interpolation_error(lambda t: found.law.curve(t, **found.values), order)
    return error < 0.05 * float(np.sqrt(found.noise.variance_E[found.noise.best])) + 1e-9 * float(np.ptp(found.curve_M))


def _fit_constant(observations: Observations, law: Law, centred: FloatArray, centre: float) -> LawFit:
    """The constant: the generalised mean under the heaviest noise shape."""
    noise = _noise(observations, np.ones((centred.size, 1)), centred)
    level = centre + float(noise.shift_EP[noise.best, 0])
    curve = np.full(centred.size, level)
    return LawFit(law, (), {"plateau": level}, curve, noise, aicc_of(noise, centred.size, len(law.parameters)), centre, None)


def _values_at(law: Law, products: search.Gram, whole: search.Box, point: tuple[float, ...]) -> dict[str, float]:
    """Parameters, linear ones solved, at a point of the search."""
    shapes = whole.at(point)
    best = search.surface(law, products, *shapes)
    return {
        "plateau": float(best.plateau_Q[0]),
        "start": float(best.start_Q[0]),
        **{name: float(shape[0]) for name, shape in zip(law.shapes, shapes, strict=True)},
    }


def _nodal_jacobian(law: Law, nodes_K: FloatArray, values: Mapping[str, float]) -> FloatArray:
    """Jacobian at the nodes, columns scaled to one so that the algebra stays well conditioned."""
    jacobian = law.jacobian(nodes_K, **values)
    size = np.abs(jacobian).max(0)
    return np.asarray(jacobian[:, size > 0] / size[size > 0])


def _noise(observations: Observations, columns: FloatArray, residual: FloatArray) -> NoisePosterior:
    """The noise posterior with columns made orthonormal where they nearly coincide."""
    well = np.linalg.cond(columns.T @ columns) < 1e11
    independent = columns if well else orthonormal(columns)
    centred = observations.value_M - observations.value_M.mean()
    return noise_posterior(
        observations.time_M,
        observations.relative_variance_M,
        independent,
        residual,
        gap=observations.gap,
        floor=1e-14 * float(centred @ centred),
    )


def orthonormal(columns_MP: FloatArray) -> FloatArray:
    """An orthonormal basis of what the columns span, without the directions that coincide.

    Example:
        >>> orthonormal(np.ones((4, 2))).shape
        (4, 1)
    """
    left, singular, _ = np.linalg.svd(columns_MP, full_matrices=False)
    return np.asarray(left[:, singular > 1e-7 * singular[0]])


def aicc_of(noise: NoisePosterior, n: int, mean_parameters: int) -> float:
    """Smallest corrected Akaike criterion over the noise shapes, every estimated number counted."""
    count = mean_parameters + 1 + np.array([shape.free for shape in noise.shapes])
    spare = n - count - 1
    correction = np.where(spare > 0, 2 * count * (count + 1) / np.maximum(spare, 1), np.inf)
    return float((-2 * noise.log_likelihood_E + 2 * count + correction).min())


def intervals_of(
    found: LawFit, observations: Observations, *, level: float = 0.95, widening_P: FloatArray | None = None
) -> dict[str, Interval]:
    """Profile-likelihood intervals of the parameters and of what is derived from them."""
    widening = widening_of(found, level) if widening_P is None else widening_P
    if found.products is None:
        half = float(widening[0] * found.noise.scale_EP[found.noise.best, 0])
        value = found.values["plateau"]
        return {"plateau": Interval(value, value - half, value + half, level)}
    best_error = search.surface(found.law, found.products, *_shapes_at(found, observations)).error_Q[0]
    limits = best_error * (1 + widening**2 / found.noise.freedom)
    reach = float(widening.max() * np.sqrt(found.noise.variance_E[found.noise.best]))
    area = profile.region(found.law, found.products, observations.span, found.point, float(limits.max()), reach)
    out = {}
    for i, name in enumerate(("plateau", "start")):
        out[name] = _linear_interval(found, area, name, float(limits[i]), level)
    shape_limit = limits[2:]
    for i, name in enumerate(found.law.shapes):
        out[name] = _shape_interval(found.values[name], area, area.shapes[i], best_error, float(shape_limit[i]), level)
    if found.law.name == "oscillator":
        for name, (quantity, value) in _oscillator_derived(found.values, area).items():
            out[name] = _shape_interval(value, area, quantity, best_error, float(shape_limit.max()), level)
    return out


def _shapes_at(found: LawFit, observations: Observations) -> tuple[FloatArray, ...]:
    """Shape values at the best point."""
    return search.whole_box(found.law, observations.span).at(found.point)


def widening_of(found: LawFit, level: float) -> FloatArray:
    """Half-width of each parameter's interval in standard errors; one without a Jacobian column takes the largest."""
    count = len(found.law.parameters)
    factors = np.maximum(found.noise.widening(level), stdtrit(found.noise.freedom, 0.5 + level / 2))
    return factors if factors.size == count else np.full(count, factors.max())


def _linear_interval(found: LawFit, area: profile.Region, name: str, limit: float, level: float) -> Interval:
    """Interval of plateau or start."""
    assert found.products is not None
    best = found.values[name] - found.centre
    low, high = profile.linear_range(area, found.products, start=name == "start", best=best, largest_error=limit)
    return Interval(best + found.centre, low + found.centre, high + found.centre, level)


def _shape_interval(value: float, area: profile.Region, quantity: FloatArray, best: float, limit: float, level: float) -> Interval:
    """Interval of a function of the shapes."""
    low, high, below, above = profile.range_of(area, quantity, best, limit)
    positive = bool((quantity > 0).all())
    floor = 0.0 if positive else -np.inf
    return Interval(value, floor if below else min(low, value), np.inf if above else max(high, value), level)


def _oscillator_derived(values: Mapping[str, float], area: profile.Region) -> dict[str, tuple[FloatArray, float]]:
    """Derived quantities of the oscillator over the region and at the best point."""
    over = oscillator_quantities(*area.shapes)
    here = oscillator_quantities(np.array([values["natural_frequency"]]), np.array([values["damping_ratio"]]))
    return {name: (over[name], float(here[name][0])) for name in over}


def oscillator_quantities(natural_frequency: FloatArray, damping_ratio: FloatArray) -> dict[str, FloatArray]:
    r"""Time constants, period, overshoot and inflection of the oscillator.

    $\tau_{1,2} = 1/(\omega(\zeta \mp \sqrt{\zeta^2-1}))$, both $1/(\zeta\omega)$ when underdamped; period
    $2\pi/(\omega\sqrt{1-\zeta^2})$ and overshoot $e^{-\pi\zeta/\sqrt{1-\zeta^2}}$, infinite and 0 when overdamped. The slope is steepest at
    $\ln(\tau_1/\tau_2)/(1/\tau_2-1/\tau_1)$, at $\arccos(\zeta)/(\omega\sqrt{1-\zeta^2})$ when underdamped.

    Source: 2606.30789's closed forms; tau of the underdamped envelope is our continuation.

    Example:
        >>> oscillator_quantities(np.array([0.1]), np.array([1.0]))["tau1"].tolist()
        [10.0]
    """
    omega, zeta = natural_frequency, damping_ratio
    root = np.sqrt(np.maximum(zeta**2 - 1, 0.0))
    under = zeta < 1
    swing = np.sqrt(np.where(under, 1 - zeta**2, 1.0))
    # Both branches tend to 1/omega at critical damping, where each is 0/0.
    gap = np.maximum(2 * root, 1e-8)
    late = np.where(root > 1e-6, 2 * np.arcsinh(root) / gap, 1.0)
    early = np.where(swing > 1e-6, np.arccos(np.minimum(zeta, 1.0)) / np.maximum(swing, 1e-8), 1.0)
    return {
        "tau1": (zeta + root) / omega / np.where(under, zeta**2, 1.0),
        "tau2": 1 / (omega * (zeta + root)),
        "period": np.where(under, 2 * np.pi / (omega * swing), np.inf),
        "overshoot": np.where(under, np.exp(-np.pi * zeta / swing), 0.0),
        "inflection": np.where(under, early, late) / omega,
    }
