r"""The error surface of a law and its lowest point: variable projection.

For given shape values a law is linear in plateau and start, so these are solved exactly and the weighted error $S^2$ is a
function of at most two numbers. It is computed on a grid over everything, and Gauss-Newton goes on from the best basin:
nothing depends on a guess. What the surface says about intervals is in `profile`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from groupwise.curves.laws import Law
from groupwise.curves.noise import NoiseShape, Whitener
from groupwise.curves.observations import Observations, unit_nodes

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Gram:
    """Inner products, under one noise shape, of the basis, the constant and the values."""

    nodes_K: FloatArray
    basis_KK: FloatArray
    basis_one_K: FloatArray
    basis_value_K: FloatArray
    one_one: float
    one_value: float
    value_value: float

    def with_prior(self, level: float, weight: float) -> Gram:
        """Add one pseudo-observation of the plateau at `level`, worth `weight` observations of unit noise."""
        return replace(
            self,
            one_one=self.one_one + weight,
            one_value=self.one_value + weight * level,
            value_value=self.value_value + weight * level**2,
        )

    def without(self, column_MK: FloatArray) -> Gram:
        """Sweep out one further regressor given by its inner products with (basis, one, value, itself)."""
        k = self.nodes_K.size
        cross, with_one, with_value, own = column_MK[:k], column_MK[k], column_MK[k + 1], column_MK[k + 2]
        return Gram(
            self.nodes_K,
            self.basis_KK - np.outer(cross, cross) / own,
            self.basis_one_K - cross * with_one / own,
            self.basis_value_K - cross * with_value / own,
            self.one_one - with_one**2 / own,
            self.one_value - with_one * with_value / own,
            self.value_value - with_value**2 / own,
        )


def gram(observations: Observations, basis: tuple[FloatArray, FloatArray], centred_M: FloatArray, shape: NoiseShape) -> Gram:
    """Inner products of everything a law can need, for one noise shape."""
    nodes, matrix = basis
    columns = np.column_stack([matrix, np.ones(centred_M.size), centred_M])
    product = Whitener(observations.time_M, observations.relative_variance_M, shape).gram(columns)
    k = nodes.size
    return Gram(
        nodes,
        product[:k, :k],
        product[:k, k],
        product[:k, k + 1],
        float(product[k, k]),
        float(product[k, k + 1]),
        float(product[k + 1, k + 1]),
    )


@dataclass(frozen=True, slots=True)
class Surface:
    """The weighted error over shape values, the best linear parameters, their unit (co)variances, and the information's determinant."""

    error_Q: FloatArray
    plateau_Q: FloatArray
    start_Q: FloatArray
    plateau_variance_Q: FloatArray
    start_variance_Q: FloatArray
    covariance_Q: FloatArray
    determinant_Q: FloatArray


def surface(law: Law, products: Gram, *shapes_Q: FloatArray) -> Surface:
    """Solve for plateau and start at each point of a grid of shape values."""
    return solved(products, law.decay(products.nodes_K, *(shape[:, None] for shape in shapes_Q)))


def solved(products: Gram, decay: FloatArray) -> Surface:
    """Solve for plateau and start under each of a list of decays."""
    a, b = decay @ products.basis_one_K, decay @ products.basis_value_K
    c = ((decay @ products.basis_KK) * decay).sum(1)
    s, y = max(products.one_one, 1e-300), products.one_value
    determinant = s * c - a * a
    # A decay that is over before the first row, or that is as good as constant, says nothing about both ends.
    solvable = (determinant > 1e-9 * s * c) & (c > 1e-10 * s)
    safe = np.where(solvable, determinant, 1.0)
    plateau = np.where(solvable, (c * y - a * b) / safe, y / s)
    drop = np.where(solvable, (s * b - a * y) / safe, 0.0)
    error = products.value_value - plateau * y - drop * b
    infinite = np.inf
    return Surface(
        # A perfect fit is perfect to rounding only.
        np.maximum(error, 1e-14 * products.value_value + 1e-300),
        plateau,
        plateau + drop,
        np.where(solvable, c / safe, infinite),
        np.where(solvable, (c + s - 2 * a) / safe, infinite),
        np.where(solvable, (c - a) / safe, 0.0),
        np.where(solvable, determinant, 0.0),
    )


@dataclass(frozen=True, slots=True)
class Box:
    """A parallelogram of axis values with its grid, in the scale of the search."""

    law: Law  # the law
    span: float  # length of the log
    low: tuple[float, ...]  # lower ends
    high: tuple[float, ...]  # upper ends
    # by how much the first axis moves with the second, about `pivot`, so that the grid follows a valley
    shear: float = 0.0
    pivot: float = 0.0  # value of the second axis that does not move

    def points(self, counts: tuple[int, ...]) -> tuple[FloatArray, ...]:
        """The grid in the scale of the search, one array an axis, each of shape `counts`."""
        lines = [np.linspace(low, high, count) for low, high, count in zip(self.low, self.high, counts, strict=False)]
        grid = list(np.meshgrid(*lines, indexing="ij"))
        if self.shear:
            whole = whole_box(self.law, self.span)
            # Beyond the edge of the search by one unit is far enough to be seen as outside.
            grid[0] = np.clip(grid[0] + self.shear * (grid[1] - self.pivot), whole.low[0] - 1, whole.high[0] + 1)
        return tuple(grid)

    def at(self, point: tuple[float, ...]) -> tuple[FloatArray, ...]:
        """Shape values at one point in the scale of the search, each of length 1."""
        return self.shapes(tuple(np.array([p]) for p in point))

    def shapes(self, points: tuple[FloatArray, ...]) -> tuple[FloatArray, ...]:
        """Shape values at grid points, flattened."""
        axes = [axis.from_search(p.ravel()) for p, axis in zip(points, self.law.axes, strict=True)]
        return self.law.shapes_of(*axes)


@lru_cache(maxsize=64)
def whole_box(law: Law, span: float) -> Box:
    """All that is searched for a log of this length.

    Example:
        >>> from groupwise.curves.laws import law_by_name
        >>> len(whole_box(law_by_name("oscillator"), 100.0).low)
        2
    """
    ends = [axis.ends(span) for axis in law.axes]
    return Box(law, span, tuple(low for low, _ in ends), tuple(high for _, high in ends))


def minimum(law: Law, products: Gram, whole: Box, start: tuple[float, ...]) -> tuple[float, ...]:
    """Find the point of least error by Gauss-Newton with the linear part projected out."""
    best, error = start, np.inf
    for _ in range(25):
        covariance, direction = linearised(law, products, whole, best)
        before = error
        best, error = _best_trial(law, products, whole, best, covariance[2:, 2:], direction, error)
        if before - error <= 1e-6 * error:
            break
    return best


def coarse_minimum(law: Law, products: Gram, whole: Box) -> tuple[float, ...]:
    """The best point of a coarse grid whose first axis is then refined for each value of the second.

    The error has long valleys along the second axis, with several bottoms: each deserves its own first coordinate.
    """
    counts = (22, 14) if len(law.axes) == 2 else (60,)
    points = whole.points(counts)
    error = solved(products, _coarse_decay(law, products.nodes_K.size, counts)).error_Q.reshape(counts)
    if len(counts) == 1:
        return (float(points[0][error.argmin()]),)
    first, second = points[0][error.argmin(0), 0], points[1][0]
    offsets = np.linspace(-1, 1, 7) * (whole.high[0] - whole.low[0]) / (counts[0] - 1)
    for shrink in (1.0, 0.25):
        trial = (first + shrink * offsets[:, None]).clip(whole.low[0], whole.high[0])
        error = surface(law, products, *whole.shapes((trial, np.broadcast_to(second, trial.shape)))).error_Q.reshape(trial.shape)
        first = trial[error.argmin(0), np.arange(counts[1])]
    row = int(error.min(0).argmin())
    return float(first[row]), float(second[row])


@lru_cache(maxsize=32)
def _coarse_decay(law: Law, order: int, counts: tuple[int, ...]) -> FloatArray:
    """The decays of the coarse grid: the same for every log, since nodes and time scales both count in its length."""
    whole = whole_box(law, 1.0)
    return np.asarray(law.decay(unit_nodes(order), *(shape[:, None] for shape in whole.shapes(whole.points(counts)))))


# Gauss-Newton at several lengths, then steps of a few linear standard errors along the valley and across it.
_STEPS = np.array([0.0, 1.0, 0.5, 0.2, 0.05, 1.6])
_AROUND = np.array([0.3, -0.3, 1.0, -1.0, 3.0, -3.0])


def _best_trial(
    law: Law, products: Gram, whole: Box, best: tuple[float, ...], covariance: FloatArray, direction: tuple[float, ...], error: float
) -> tuple[tuple[float, ...], float]:
    """The best of a handful of steps from a point, all tried in one evaluation."""
    unit = np.sqrt(error / max(products.nodes_K.size, 1)) if np.isfinite(error) else 0.0
    deviation = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    valley = covariance[:, -1] / max(deviation[-1], 1e-30)
    moves = np.concatenate([_STEPS[:, None] * np.array(direction), unit * _AROUND[:, None] * valley, unit * _AROUND[:, None] * deviation])
    # Where the data say nothing about a coordinate its step is endless: it ends at the edge of the search.
    moves = np.nan_to_num(moves, nan=0.0, posinf=1e6, neginf=-1e6)
    trial = tuple(np.clip(b + moves[:, i], low, high) for i, (b, low, high) in enumerate(zip(best, whole.low, whole.high, strict=True)))
    errors = surface(law, products, *whole.shapes(trial)).error_Q
    i = int(errors.argmin())
    return tuple(float(t[i]) for t in trial), float(errors[i])


def linearised(law: Law, products: Gram, whole: Box, point: tuple[float, ...]) -> tuple[FloatArray, tuple[float, ...]]:
    """Unit covariance of (plateau, start, search coordinates) in the linear model at a point, and the Gauss-Newton step."""
    nodes = products.nodes_K
    here = [float(shape[0]) for shape in whole.at(point)]
    decay, slopes = law.decay(nodes, *here), law.slopes(nodes, *here)
    one = np.ones(nodes.size)
    linear = np.stack([one, decay])
    with_basis = linear @ products.basis_KK
    normal = with_basis @ linear.T + 1e-12 * products.one_one * np.eye(2)
    level, drop = np.linalg.solve(normal, linear @ products.basis_value_K)
    columns = np.concatenate([np.stack([1 - decay, decay]), drop * (shapes_by_search(whole, point).T @ slopes)])
    information = columns @ products.basis_KK @ columns.T
    size = np.sqrt(np.maximum(np.diag(information), 1e-300))
    scaled = information / np.outer(size, size) + 1e-13 * np.eye(size.size)
    covariance = np.linalg.inv(scaled) / np.outer(size, size)
    gradient = columns @ (products.basis_value_K - np.array([level, drop]) @ with_basis)
    return np.asarray(covariance), tuple(float(d) for d in (covariance @ gradient)[2:])


def shapes_by_search(whole: Box, point: tuple[float, ...]) -> FloatArray:
    """Derivatives of the shape values by the coordinates of the search, shape (shapes, coordinates)."""
    h = 1e-6
    moved = [np.array([p] + [p + h * (i == j) for j in range(len(point))]) for i, p in enumerate(point)]
    return np.array([(shape[1:] - shape[0]) / h for shape in whole.shapes(tuple(moved))])
