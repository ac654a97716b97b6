r"""One law fitted to one series, noise and curve in turn: the error surface, its lowest point, and
the profile-likelihood intervals that it gives.

For given shape values a law is linear in plateau and start, so these are solved exactly (variable
projection) and the weighted error $S^2$ is a function of at most two numbers. It is computed on a
grid over everything, and Gauss-Newton goes on from the best basin: nothing depends on a guess. Then
a grid closes in on the region $S^2 \le S^2_{min}(1 + q^2/\nu)$, and the interval of any quantity is
its range over that region. A parameter that the data do not limit is seen to run into the edge.
"""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
from scipy.special import stdtrit

from groupwise.arrays import Flags, Float
from groupwise.forecasting.laws import Law, oscillator_quantities
from groupwise.forecasting.observations import (
    NORMAL_EQUATIONS,
    NoisePosterior,
    NoiseShape,
    Observations,
    Whitener,
    moment_shape,
    noise_posterior,
    noise_shapes,
    rounding,
    unit_nodes,
)
from groupwise.intervals import Interval
from groupwise.plain import frozen

Point = tuple[float, ...]  # a number for each parameter of the shape
Axes = tuple[Float, ...]  # values of each of them


@frozen
class Gram:
    """Inner products, under one noise shape, of the basis at its nodes, the constant and the
    values (last).
    """

    nodes_K: Float
    inner: Float  # shape (K + 2, K + 2)

    @property
    def basis(self) -> Float:
        """Of the basis with itself."""
        return self.inner[:-2, :-2]

    @property
    def with_value(self) -> Float:
        """Of the basis with the values."""
        return self.inner[:-2, -1]


def gram(
    observations: Observations, basis: tuple[Float, Float], centred_M: Float, shape: NoiseShape
) -> Gram:
    """Inner products of everything a law can need, for one noise shape."""
    nodes, matrix = basis
    columns = np.column_stack([matrix, np.ones(centred_M.size), centred_M])
    return Gram(
        nodes, Whitener(observations.time_M, observations.relative_variance_M, shape).gram(columns)
    )


@frozen
class Surface:
    """The weighted error over shape values, the best linear parameters and their unit variances."""

    error_Q: Float
    plateau_Q: Float
    start_Q: Float
    plateau_variance_Q: Float
    start_variance_Q: Float


def surface(law: Law, products: Gram, *shapes_Q: Float) -> Surface:
    """Solve for plateau and start at each point of a grid of shape values."""
    return solved(products, law.decay(products.nodes_K, *(shape[:, None] for shape in shapes_Q)))


def solved(products: Gram, decay: Float) -> Surface:
    """Solve for plateau and start under each of a list of decays."""
    a, b = decay @ products.inner[:-2, -2], decay @ products.with_value
    c = np.vecdot(decay @ products.basis, decay)
    s, (y, square) = max(products.inner[-2, -2], 1e-300), products.inner[-2:, -1]
    determinant = s * c - a * a
    # A decay that is over before the first row, or that is as good as constant, says nothing about
    # both ends.
    solvable = (determinant > 1e-9 * s * c) & (c > 1e-10 * s)
    safe = np.where(solvable, determinant, 1.0)
    plateau = np.where(solvable, (c * y - a * b) / safe, y / s)
    drop = np.where(solvable, (s * b - a * y) / safe, 0.0)
    error = square - plateau * y - drop * b
    return Surface(
        # A perfect fit is perfect to rounding only.
        np.maximum(error, 1e-14 * square + 1e-300),
        plateau,
        plateau + drop,
        np.where(solvable, c / safe, np.inf),
        np.where(solvable, (c + s - 2 * a) / safe, np.inf),
    )


@frozen
class Box:
    """A parallelogram of axis values with its grid, in the scale of the search."""

    law: Law  # the law
    span: float  # length of the log
    low: Point  # lower ends
    high: Point  # upper ends
    # by how much the first axis moves with the second, about `pivot`, so that the grid follows a
    # valley
    shear: float = 0.0
    pivot: float = 0.0  # value of the second axis that does not move

    def points(self, counts: tuple[int, ...]) -> Axes:
        """The grid in the scale of the search, one array an axis, each of shape `counts`."""
        lines = [
            np.linspace(low, high, count)
            for low, high, count in zip(self.low, self.high, counts, strict=False)
        ]
        grid = list(np.meshgrid(*lines, indexing="ij"))
        if self.shear:
            whole = whole_box(self.law, self.span)
            # Beyond the edge of the search by one unit is far enough to be seen as outside.
            grid[0] = np.clip(
                grid[0] + self.shear * (grid[1] - self.pivot), whole.low[0] - 1, whole.high[0] + 1
            )
        return tuple(grid)

    def at(self, point: Point) -> Axes:
        """Shape values at one point in the scale of the search, each of length 1."""
        return self.shapes(tuple(np.array([p]) for p in point))

    def shapes(self, points: Axes) -> Axes:
        """Shape values at grid points, flattened."""
        axes = [axis.from_search(p.ravel()) for p, axis in zip(points, self.law.axes, strict=True)]
        return self.law.shapes_of(*axes)


@lru_cache(maxsize=64)
def whole_box(law: Law, span: float) -> Box:
    """All that is searched for a log of this length."""
    ends = [axis.ends(span) for axis in law.axes]
    return Box(law, span, tuple(low for low, _ in ends), tuple(high for _, high in ends))


def minimum(products: Gram, whole: Box, start: Point) -> Point:
    """Find the point of least error by Gauss-Newton with the linear part projected out."""
    best, error = start, np.inf
    for _ in range(25):
        covariance, direction = linearised(products, whole, best)
        before = error
        best, error = _best_trial(products, whole, best, covariance[2:, 2:], direction, error)
        if before - error <= 1e-6 * error:
            break
    return best


def coarse_minimum(products: Gram, whole: Box) -> Point:
    """The best point of a coarse grid whose first axis is then refined for each value of the
    second.

    The error has long valleys along the second axis, with several bottoms: each deserves its own
    first coordinate.
    """
    counts = (22, 14) if len(whole.low) == 2 else (60,)
    points = whole.points(counts)
    error = solved(
        products, _coarse_decay(whole.law, products.nodes_K.size, counts)
    ).error_Q.reshape(counts)
    if len(counts) == 1:
        return (float(points[0][error.argmin()]),)
    first, second = points[0][error.argmin(0), 0], points[1][0]
    offsets = np.linspace(-1, 1, 7) * (whole.high[0] - whole.low[0]) / (counts[0] - 1)
    for shrink in (1.0, 0.25):
        trial = (first + shrink * offsets[:, None]).clip(whole.low[0], whole.high[0])
        error = surface(
            whole.law, products, *whole.shapes((trial, np.broadcast_to(second, trial.shape)))
        ).error_Q.reshape(trial.shape)
        first = trial[error.argmin(0), np.arange(counts[1])]
    row = int(error.min(0).argmin())
    return float(first[row]), float(second[row])


@lru_cache(maxsize=32)
def _coarse_decay(law: Law, order: int, counts: tuple[int, ...]) -> Float:
    """The decays of the coarse grid: the same for every log, since nodes and time scales both
    count in its length.
    """
    whole = whole_box(law, 1.0)
    return law.decay(
        unit_nodes(order), *(shape[:, None] for shape in whole.shapes(whole.points(counts)))
    )


# The step lengths to try: Gauss-Newton first, then a few standard errors along and across the
# valley.
_STEPS = np.array([0.0, 1.0, 0.5, 0.2, 0.05, 1.6])
_AROUND = np.array([0.3, -0.3, 1.0, -1.0, 3.0, -3.0])


def _best_trial(
    products: Gram,
    whole: Box,
    best: Point,
    covariance: Float,
    direction: Point,
    error: float,
) -> tuple[Point, float]:
    """The best of a handful of steps from a point, all tried in one evaluation."""
    unit = np.sqrt(error / max(products.nodes_K.size, 1)) if np.isfinite(error) else 0.0
    deviation = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    valley = covariance[:, -1] / max(deviation[-1], 1e-30)
    moves = np.concatenate(
        [
            _STEPS[:, None] * np.array(direction),
            unit * _AROUND[:, None] * valley,
            unit * _AROUND[:, None] * deviation,
        ]
    )
    # Where the data say nothing about a coordinate its step is endless: it ends at the edge of the
    # search.
    moves = np.nan_to_num(moves, nan=0.0, posinf=1e6, neginf=-1e6)
    trial = tuple(
        np.clip(b + moves[:, i], low, high)
        for i, (b, low, high) in enumerate(zip(best, whole.low, whole.high, strict=True))
    )
    errors = surface(whole.law, products, *whole.shapes(trial)).error_Q
    i = int(errors.argmin())
    return tuple(float(t[i]) for t in trial), float(errors[i])


def linearised(products: Gram, whole: Box, point: Point) -> tuple[Float, Point]:
    """Unit covariance of (plateau, start, search coordinates) in the linear model at a point,
    and the Gauss-Newton step.
    """
    nodes = products.nodes_K
    here = [float(shape[0]) for shape in whole.at(point)]
    decay, slopes = whole.law.decay(nodes, *here), whole.law.slopes(nodes, *here)
    ones = np.ones(nodes.size)
    linear = np.stack([ones, decay])
    with_basis = linear @ products.basis
    normal = with_basis @ linear.T + 1e-12 * products.inner[-2, -2] * np.eye(2)
    level, drop = np.linalg.solve(normal, linear @ products.with_value)
    columns = np.concatenate(
        [np.stack([1 - decay, decay]), drop * (shapes_by_search(whole, point).T @ slopes)]
    )
    information = columns @ products.basis @ columns.T
    size = np.sqrt(np.maximum(np.diag(information), 1e-300))
    scaled = information / np.outer(size, size) + 1e-13 * np.eye(size.size)
    covariance = np.linalg.inv(scaled) / np.outer(size, size)
    gradient = columns @ (products.with_value - np.array([level, drop]) @ with_basis)
    return covariance, tuple(float(d) for d in (covariance @ gradient)[2:])


def shapes_by_search(whole: Box, point: Point) -> Float:
    """Derivatives of the shape values by the coordinates of the search, shape (shapes,
    coordinates).
    """
    h = 1e-6
    moved = [
        np.array([p] + [p + h * (i == j) for j in range(len(point))]) for i, p in enumerate(point)
    ]
    return np.array([(shape[1:] - shape[0]) / h for shape in whole.shapes(tuple(moved))])


@frozen
class Region:
    """The part of a law's parameter space that the data allow, on a grid fitted around it."""

    box: Box
    counts: tuple[int, ...]
    points: Axes
    shapes: Axes
    surface: Surface
    edge: Flags


def region(products: Gram, box: Box, best: Point, largest_error: float) -> Region:
    """Close in on the region where the error stays below `largest_error`, from a first box about
    the best point.
    """
    coarse, fine = ((14, 10), (24, 16)) if len(best) == 2 else ((60,), (96,))
    whole = whole_box(box.law, box.span)
    points, inside = _inside(products, box, coarse, largest_error)
    for grid in ((40, 28)[: len(best)], coarse):
        if not _leaks(box, points, inside):
            break
        # Far from an ellipse: look everywhere, then closer.
        box = whole if grid != coarse else _shrunk(box, inside, best)
        points, inside = _inside(products, box, grid, largest_error)
    box = _shrunk(box, inside, best)
    points = box.points(fine)
    shapes = box.shapes(points)
    return Region(
        box,
        fine,
        points,
        shapes,
        surface(whole.law, products, *shapes),
        _on_searched_edge(box, points, undamped=False),
    )


def ellipse_box(unit_covariance: Float, whole: Box, best: Point, reach: float) -> Box:
    """A generous parallelogram about the ellipse that a linear model would have, `reach`
    standard errors to each side.
    """
    covariance = unit_covariance[2:, 2:]
    if len(best) == 1:
        half, shear = [reach * np.sqrt(max(covariance[0, 0], 0.0))], 0.0
    else:
        shear = covariance[0, 1] / covariance[1, 1] if covariance[1, 1] > 0 else 0.0
        rest = covariance[0, 0] - shear * covariance[0, 1]
        half = [reach * np.sqrt(max(rest, 0.0)), reach * np.sqrt(max(covariance[1, 1], 0.0))]
    wide = [max(2.0 * h, 1e-6) for h in half]
    low = [max(b - h, w) for b, h, w in zip(best, wide, whole.low, strict=True)]
    high = [min(b + h, w) for b, h, w in zip(best, wide, whole.high, strict=True)]
    return Box(whole.law, whole.span, tuple(low), tuple(high), float(shear), best[-1])


def _inside(
    products: Gram, box: Box, counts: tuple[int, ...], largest_error: float
) -> tuple[Axes, Flags]:
    """A grid over a box, and which of its points lie in the region."""
    points = box.points(counts)
    errors = surface(box.law, products, *box.shapes(points)).error_Q
    return points, (errors <= largest_error).reshape(counts)


def _leaks(box: Box, points: Axes, inside: Flags) -> bool:
    """Whether the region reaches a side of the box that is not an edge of the whole search."""
    edge = _on_searched_edge(box, points)
    for i in range(inside.ndim):
        for side in (0, -1):
            if (np.take(inside, side, axis=i) & ~np.take(edge, side, axis=i)).any():
                return True
    return False


def _shrunk(box: Box, inside: Flags, best: Point) -> Box:
    """The smallest box of grid lines around the points inside and the best point, one cell
    wider.
    """
    low, high = [], []
    for i, centre in enumerate(best):
        line = np.linspace(box.low[i], box.high[i], inside.shape[i])
        cell = line[1] - line[0]
        within = line[inside.any(axis=tuple(j for j in range(inside.ndim) if j != i))]
        low.append(max(min(float(within.min(initial=centre)), centre) - cell, box.low[i]))
        high.append(min(max(float(within.max(initial=centre)), centre) + cell, box.high[i]))
    return Box(box.law, box.span, tuple(low), tuple(high), box.shear, box.pivot)


def ranges_of(
    region: Region, quantity_KQ: Float, error_at_best: float, largest_error_K: Float
) -> tuple[Float, Float, Flags, Flags]:
    """Ranges of functions of the shapes over {error <= largest_error}, and whether each runs into
    the edge below and above.

    Between a point inside and its neighbour outside the root of the excess error is close to
    linear: the crossing is interpolated in it.
    """
    wide = (-1, *[1] * len(region.counts))
    error, quantity = (
        region.surface.error_Q.reshape(1, *region.counts),
        quantity_KQ.reshape(-1, *region.counts),
    )
    inside = error <= largest_error_K.reshape(wide)
    root = np.sqrt(np.maximum(error - error_at_best, 0.0))
    limit = np.sqrt(np.maximum(largest_error_K - error_at_best, 0.0)).reshape(wide)
    low, high = _ends(quantity, inside)
    for axis in range(1, error.ndim):
        crossing, value = _crossings(
            np.moveaxis(root, axis, -1), np.moveaxis(quantity, axis, -1), limit
        )
        beyond = _ends(value, crossing)
        low, high = np.minimum(low, beyond[0]), np.maximum(high, beyond[1])
    edge = region.edge & inside
    reached = edge.reshape(len(edge), -1).any(1)
    finite = np.isfinite(low) & np.isfinite(high)
    slack = np.where(
        finite, 1e-6 * (1 + np.abs(np.where(finite, high, 0.0) - np.where(finite, low, 0.0))), 0.0
    )
    at_low, at_high = _ends(quantity, edge)
    return low, high, reached & (at_low <= low + slack), reached & (at_high >= high - slack)


def _ends(value: Float, among: Flags) -> tuple[Float, Float]:
    """The least and the largest of the values among some, a row each; endless the wrong way
    where there are none.
    """
    rows = (len(value), -1)
    low, high = (np.where(among, value, end).reshape(rows) for end in (np.inf, -np.inf))
    return low.min(1), high.max(1)


def _crossings(root: Float, quantity: Float, limit: Float) -> tuple[Flags, Float]:
    """Where the contour crosses the grid lines along the last axis, and the values of the
    quantity there.
    """
    near, far = root[..., :-1], root[..., 1:]
    crossing = (near <= limit) != (far <= limit)
    crossing &= np.isfinite(quantity[..., :-1]) & np.isfinite(quantity[..., 1:])
    first, second = (
        np.where(crossing, side, 0.0) for side in (quantity[..., :-1], quantity[..., 1:])
    )
    share = (limit - near) / np.where(crossing, far - near, 1.0)
    return crossing, first * (1 - share) + second * share


def _on_searched_edge(box: Box, points: Axes, *, undamped: bool = True) -> Flags:
    """Grid points that lie on the edge of the whole search, or beyond it; a swing that does not
    fade may count as one inside, since its frequency is that of one that hardly does.
    """
    whole = whole_box(box.law, box.span)
    edge = np.zeros(points[0].shape, dtype=bool)
    for i, values in enumerate(points):
        slack = 1e-9 * (whole.high[i] - whole.low[i])
        if undamped or box.law.axes[i].scale != "damping":
            edge |= values <= whole.low[i] + slack
        edge |= values >= whole.high[i] - slack
    return edge


def linear_ranges(
    region: Region, products: Gram, *, best: Sequence[float], largest_error: Sequence[float]
) -> Float:
    """Ranges of plateau and start over the region, a row each, their own uncertainty at each
    point included.
    """
    ends = [(which, sign, largest_error[which]) for which in (0, 1) for sign in (-1, 1)]
    coarse = [_furthest(region.surface, *end) for end in ends]
    # Bent valleys end in corners between grid points: look closer about the extremes.
    closer = [_neighbourhood(region, at) for _, at in coarse]
    points = tuple(
        np.concatenate([cell[axis].ravel() for cell in closer])
        for axis in range(len(region.counts))
    )
    near = surface(region.box.law, products, *region.box.shapes(points))
    size = near.error_Q.size // len(ends)
    reach = []
    for place, (end, (value, _)) in enumerate(zip(ends, coarse, strict=True)):
        which, sign, _ = end
        again, _ = _furthest(near, *end, among=slice(place * size, (place + 1) * size))
        reach.append(sign * max(sign * value, sign * again, sign * best[which]))
    return np.reshape(reach, (2, 2))


_ALL = slice(None)


def _furthest(
    values: Surface, which: int, sign: int, largest_error: float, *, among: slice = _ALL
) -> tuple[float, int]:
    """The end of the interval of plateau (0) or start (1) on one side over some points, and which
    point sets it.

    Where no point is inside, it is endless the other way.
    """
    slack = largest_error - values.error_Q[among]
    level, variance = (
        (values.start_Q, values.start_variance_Q)
        if which
        else (values.plateau_Q, values.plateau_variance_Q)
    )
    reach = np.full(slack.shape, -np.inf)
    inside = slack >= 0
    reach[inside] = sign * level[among][inside] + np.sqrt(slack[inside] * variance[among][inside])
    i = int(reach.argmax())
    return sign * float(reach[i]), i


def _neighbourhood(region: Region, index: int) -> Axes:
    """A small grid of one cell to each side of a point of the region's grid."""
    lines = []
    for points, count, low, high in zip(
        region.points, region.counts, region.box.low, region.box.high, strict=True
    ):
        cell = (high - low) / (count - 1)
        lines.append(points.ravel()[index] + cell * np.linspace(-1, 1, 5))
    grid = list(np.meshgrid(*lines, indexing="ij"))
    whole = whole_box(region.box.law, region.box.span)
    if len(grid) == 2:
        grid[0] = grid[0] + region.box.shear * (grid[1] - region.points[1].ravel()[index])
    return tuple(
        np.clip(g, low, high) for g, low, high in zip(grid, whole.low, whole.high, strict=True)
    )


@frozen
class LawFit:
    """A law at its best, with the noise around it."""

    whole: Box  # all that was searched
    point: Point  # the best shape in the scale of the search, empty for the constant
    values: Mapping[str, float]  # parameters by name, in the order of `law.parameters`
    curve_M: Float  # fitted mean of each block
    noise: NoisePosterior  # what the residuals say about the noise
    centre: float  # constant that was taken off the values
    aicc: float  # corrected Akaike criterion, noise parameters counted
    # inner products under the heaviest noise shape (None for the constant)
    products: Gram | None = None
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
    whole = whole_box(law, observations.span)
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
    white = gram(observations, basis, centred, noise_shapes(observations.gap)[0])

    def under(shape: NoiseShape) -> Gram:
        """Inner products under one shape of the noise."""
        return gram(observations, basis, centred, shape) if shape.share > 0 else white

    def at(products: Gram, point: Point) -> tuple[dict[str, float], Float]:
        """Parameters and curve at a point of the search."""
        values = _values_at(products, whole, point)
        return values, matrix @ law.curve(nodes, **values)

    point = coarse_minimum(white, whole)
    shape = moment_shape(centred - at(white, point)[1], gap=observations.gap)
    products = under(shape)
    point = minimum(products, whole, point)
    values, curve = at(products, point)
    noise = _noise(observations, matrix @ _scaled_jacobian(law, nodes, values), centred - curve)
    if (
        noise.best_shape is not shape
    ):  # fitted under the shape that the posterior favours, the curve hardly moves again
        products = under(noise.best_shape)
        point = minimum(products, whole, point)
        values, curve = at(products, point)
    values = {**values, "plateau": values["plateau"] + centre, "start": values["start"] + centre}
    covariance, _ = linearised(products, whole, point)
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


def _values_at(products: Gram, whole: Box, point: Point) -> dict[str, float]:
    """Parameters, linear ones solved, at a point of the search."""
    shapes = whole.at(point)
    best = surface(whole.law, products, *shapes)
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
        echoes=observations.echoes,
    )


def orthonormal(columns_MP: Float) -> Float:
    """An orthonormal basis of what the columns span, without the directions that coincide."""
    left, singular, _ = np.linalg.svd(columns_MP, full_matrices=False)
    return left[:, singular > 1e-7 * singular[0]]


def intervals_of(
    fit: LawFit, *, level: float, widening: Float | None = None
) -> dict[str, Interval]:
    """Profile-likelihood intervals of the parameters and of what is derived from them;
    `widening` as `widening_of` gives it.
    """
    widening = widening_of(fit, level) if widening is None else widening
    if fit.products is None or fit.covariance is None:
        half = float(widening[0] * fit.noise.errors[0])
        value = fit.values["plateau"]
        return {"plateau": Interval(value, value - half, value + half, level)}
    best_error = float(surface(fit.law, fit.products, *fit.whole.at(fit.point)).error_Q[0])
    limits = best_error * (1 + widening**2 / fit.noise.freedom)
    reach = float(widening.max() * np.sqrt(fit.noise.variance))
    box = ellipse_box(fit.covariance, fit.whole, fit.point, reach)
    area = region(fit.products, box, fit.point, float(limits.max()))

    out = {}
    linear = [fit.values[name] - fit.centre for name in ("plateau", "start")]
    ranges = linear_ranges(area, fit.products, best=linear, largest_error=limits[:2].tolist())
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
    low_K, high_K, below_K, above_K = ranges_of(area, over_KQ, best_error, limit_K)
    floor_K = np.where((over_KQ > 0).all(1), 0.0, -np.inf)
    low_K = np.where(below_K, floor_K, np.minimum(low_K, best_K))
    high_K = np.where(above_K, np.inf, np.maximum(high_K, best_K))
    for name, value, lowest, highest in zip(
        over, best_K.tolist(), low_K.tolist(), high_K.tolist(), strict=True
    ):
        out[name] = Interval(value, lowest, highest, level)
    return out


def _functions_of(law: Law, shapes: Axes) -> dict[str, Float]:
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
