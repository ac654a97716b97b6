r"""Profile-likelihood intervals, read from the error surface of a law.

A grid closes in on the region of the interval $S^2 \le S^2_{min}(1 + q^2/\nu)$; the interval of any quantity is its range
over that region. A parameter that the data do not limit is seen to run into the edge. The surface itself is in `search`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from groupwise.curves.laws import Law
from groupwise.curves.search import Box, Gram, Surface, linearised, surface, whole_box

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Region:
    """The part of a law's parameter space that the data allow, on a grid fitted around it."""

    box: Box
    counts: tuple[int, ...]
    points: tuple[FloatArray, ...]
    shapes: tuple[FloatArray, ...]
    surface: Surface
    edge: NDArray[np.bool_]


def region(
    law: Law,
    products: Gram,
    span: float,
    best: tuple[float, ...],
    largest_error: float,
    reach: float,
    *,
    counts: tuple[int, int] = (24, 16),
) -> Region:
    """Close in on the region where the error stays below `largest_error`."""
    whole = whole_box(law, span)
    coarse, fine = ((14, 10), counts) if len(law.axes) == 2 else ((60,), (4 * counts[0],))
    box = _ellipse_box(law, products, whole, best, reach)
    points, inside = _inside(law, products, box, coarse, largest_error)
    for grid in ((40, 28)[: len(best)], coarse):
        if not _leaks(box, points, inside):
            break
        # Far from an ellipse: look everywhere, then closer.
        box = Box(law, span, whole.low, whole.high) if grid != coarse else _shrunk(box, inside, best)
        points, inside = _inside(law, products, box, grid, largest_error)
    box = _shrunk(box, inside, best)
    points = box.points(fine)
    shapes = box.shapes(points)
    return Region(box, fine, points, shapes, surface(law, products, *shapes), _on_searched_edge(box, points))


def _ellipse_box(law: Law, products: Gram, whole: Box, best: tuple[float, ...], reach: float) -> Box:
    """A generous parallelogram about the ellipse that a linear model would have."""
    covariance = linearised(law, products, whole, best)[0][2:, 2:]
    if len(best) == 1:
        half, shear = [reach * np.sqrt(max(covariance[0, 0], 0.0))], 0.0
    else:
        shear = covariance[0, 1] / covariance[1, 1] if covariance[1, 1] > 0 else 0.0
        rest = covariance[0, 0] - shear * covariance[0, 1]
        half = [reach * np.sqrt(max(rest, 0.0)), reach * np.sqrt(max(covariance[1, 1], 0.0))]
    wide = [max(2.0 * h, 1e-6) for h in half]
    low = [max(b - h, w) for b, h, w in zip(best, wide, whole.low, strict=True)]
    high = [min(b + h, w) for b, h, w in zip(best, wide, whole.high, strict=True)]
    return Box(law, whole.span, tuple(low), tuple(high), float(shear), best[-1])


def _inside(
    law: Law, products: Gram, box: Box, counts: tuple[int, ...], largest_error: float
) -> tuple[tuple[FloatArray, ...], NDArray[np.bool_]]:
    """A grid over a box, and which of its points lie in the region."""
    points = box.points(counts)
    errors = surface(law, products, *box.shapes(points)).error_Q
    return points, (errors <= largest_error).reshape(counts)


def _leaks(box: Box, points: tuple[FloatArray, ...], inside: NDArray[np.bool_]) -> bool:
    """Whether the region reaches a side of the box that is not an edge of the whole search."""
    edge = _on_searched_edge(box, points)
    for i in range(inside.ndim):
        for side in (0, -1):
            if (np.take(inside, side, axis=i) & ~np.take(edge, side, axis=i)).any():
                return True
    return False


def _shrunk(box: Box, inside: NDArray[np.bool_], best: tuple[float, ...]) -> Box:
    """The smallest box of grid lines around the points inside and the best point, one cell wider."""
    low, high = [], []
    for i, centre in enumerate(best):
        line = np.linspace(box.low[i], box.high[i], inside.shape[i])
        cell = line[1] - line[0]
        within = line[inside.any(axis=tuple(j for j in range(inside.ndim) if j != i))]
        low.append(max(min(float(within.min(initial=centre)), centre) - cell, box.low[i]))
        high.append(min(max(float(within.max(initial=centre)), centre) + cell, box.high[i]))
    return Box(box.law, box.span, tuple(low), tuple(high), box.shear, box.pivot)


def range_of(found: Region, quantity_Q: FloatArray, error_at_best: float, largest_error: float) -> tuple[float, float, bool, bool]:
    """Range of a function of the shapes over {error <= largest_error}, and whether it runs into the edge below and above.

    Between a point inside and its neighbour outside the root of the excess error is close to linear: the crossing is
    interpolated in it.
    """
    error = found.surface.error_Q.reshape(found.counts)
    quantity = quantity_Q.reshape(found.counts)
    inside = error <= largest_error
    if not inside.any():
        return np.inf, -np.inf, False, False
    root = np.sqrt(np.maximum(error - error_at_best, 0.0))
    limit = np.sqrt(max(largest_error - error_at_best, 0.0))
    values = [quantity[inside]]
    for axis in range(error.ndim):
        values.extend(_crossings(np.moveaxis(root, axis, 0), np.moveaxis(quantity, axis, 0), limit))
    low, high = min(float(v.min()) for v in values if v.size), max(float(v.max()) for v in values if v.size)
    edge = found.edge & inside
    slack = 1e-6 * (1 + abs(high - low)) if np.isfinite(high - low) else 0.0
    at_edge = quantity[edge]
    below = bool(at_edge.size and at_edge.min() <= low + slack)
    above = bool(at_edge.size and at_edge.max() >= high - slack)
    return low, high, below, above


def _crossings(root: FloatArray, quantity: FloatArray, limit: float) -> list[FloatArray]:
    """Values of the quantity where the contour crosses the grid lines along the first axis."""
    near, far = root[:-1], root[1:]
    crossing = (near <= limit) != (far <= limit)
    crossing &= np.isfinite(quantity[:-1]) & np.isfinite(quantity[1:])
    share = (limit - near[crossing]) / (far[crossing] - near[crossing])
    return [quantity[:-1][crossing] * (1 - share) + quantity[1:][crossing] * share]


def _on_searched_edge(box: Box, points: tuple[FloatArray, ...]) -> NDArray[np.bool_]:
    """Grid points that lie on the edge of the whole search, or beyond it."""
    whole = whole_box(box.law, box.span)
    edge = np.zeros(points[0].shape, dtype=bool)
    for i, values in enumerate(points):
        slack = 1e-9 * (whole.high[i] - whole.low[i])
        edge |= (values <= whole.low[i] + slack) | (values >= whole.high[i] - slack)
    return edge


def linear_range(found: Region, products: Gram, *, start: bool, best: float, largest_error: float) -> tuple[float, float]:
    """Range of plateau or start over the region, its own uncertainty at each point included."""
    low, low_at = _furthest(found.surface, start=start, sign=-1, largest_error=largest_error)
    high, high_at = _furthest(found.surface, start=start, sign=1, largest_error=largest_error)
    for sign, at in ((-1, low_at), (1, high_at)):
        if at < 0:
            continue
        # Bent valleys end in corners between grid points: look closer about the extreme.
        closer = _neighbourhood(found, at)
        end, _ = _furthest(surface(found.box.law, products, *found.box.shapes(closer)), start=start, sign=sign, largest_error=largest_error)
        low, high = (min(low, end), high) if sign < 0 else (low, max(high, end))
    return min(low, best), max(high, best)


def _furthest(values: Surface, *, start: bool, sign: int, largest_error: float) -> tuple[float, int]:
    """The end of the interval on one side over some grid, and the index of the point that sets it (-1: none inside)."""
    slack = largest_error - values.error_Q
    level, variance = (values.start_Q, values.start_variance_Q) if start else (values.plateau_Q, values.plateau_variance_Q)
    reach = np.full(slack.shape, -np.inf)
    inside = slack >= 0
    reach[inside] = sign * level[inside] + np.sqrt(slack[inside] * variance[inside])
    i = int(reach.argmax())
    return (sign * float(reach[i]), i) if inside.any() else (-sign * np.inf, -1)


def _neighbourhood(found: Region, index: int) -> tuple[FloatArray, ...]:
    """A small grid of one cell to each side of a point of the region's grid."""
    lines = []
    for points, count, low, high in zip(found.points, found.counts, found.box.low, found.box.high, strict=True):
        cell = (high - low) / (count - 1)
        lines.append(points.ravel()[index] + cell * np.linspace(-1, 1, 5))
    grid = list(np.meshgrid(*lines, indexing="ij"))
    whole = whole_box(found.box.law, found.box.span)
    if len(grid) == 2:
        grid[0] = grid[0] + found.box.shear * (grid[1] - found.points[1].ravel()[index])
    return tuple(np.clip(g, low, high) for g, low, high in zip(grid, whole.low, whole.high, strict=True))
