r"""Tails and densities of weighted sums of chi-squares by one integral through the saddle point,
each with a bound of its error.

$P(Q > q) = \frac{1}{2\pi i}\int e^{K(s) - sq}\,ds/s$ with $K(s) = \sum_k
-\frac{d_k}{2}\log(1-2sw_k) + \frac{\lambda_kw_ks}{1-2sw_k}$ has all its singularities on the real
axis, so any path that crosses it between 0 and $1/(2\max w)$ will do. Ours is the hyperbola $s(u) =
c + A[\sin\varphi\,(\cosh u - 1) + i\cos\varphi\,\sinh u]$ through the saddle point c of $K(s) - sq
- \log s$: it bends towards where $e^{-sq}$ decays, and in u the trapezoidal rule converges
geometrically from one weight to a hundred thousand. The factor $e^{K(c)-cq}/c$ stands before the
integral, so far tails keep their relative precision; derived in lab/docs/theory/final-gap.md. It
checks no argument and knows no quantile: that is `chi_square_mixture`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from groupwise.arrays import Float

# of the hyperbola; below pi/4 less STRIP nothing grows along the path or the edges of the strip
ANGLE = 0.39
STRIP = 0.36  # half width in u of the strip in which the integrand is summed up for the bound
# times A: how far from the vertex the edges of the strip cross the axis, sin(STRIP) at most
CROSSING = 0.353
STEP = 0.075
EDGE_STEP = 2  # in steps: the edges only enter the bound
BLOCK = 32
LAST_NODE = 640
NEGLIGIBLE = -39.0  # natural logarithm, relative to the largest node
LARGEST_EXPONENT = 300.0
CLUSTER = 0.5  # points share a path while their distance times A is below this
MOST_ENTRIES = 1 << 20  # of an array nodes x weights


@dataclass(frozen=True, slots=True)
class Terms:
    """A mixture in the form that the integrals take: distinct weights, the largest in size 1."""

    weight_K: Float  # w, not zero, in units of the largest
    degrees_K: Float  # degrees of freedom
    noncentrality_K: Float  # sum of squared means

    @property
    def mirrored(self) -> Terms:
        """The law of -Q."""
        return Terms(-self.weight_K, self.degrees_K, self.noncentrality_K)

    @property
    def mean(self) -> float:
        """Expectation."""
        return float(self.weight_K @ (self.degrees_K + self.noncentrality_K))

    @property
    def variance(self) -> float:
        """Variance."""
        return float(2 * self.weight_K**2 @ (self.degrees_K + 2 * self.noncentrality_K))


@dataclass(frozen=True, slots=True)
class Tails:
    """P(Q > q) and the density at some points, as logarithms of a common factor and numbers of
    order 1.
    """

    log_factor_Q: Float  # natural logarithm of what everything below is multiplied with
    tail_Q: Float  # the upper tail over the factor
    tail_error_Q: Float  # bound of its error, in the same unit
    density_Q: Float  # the density over the factor
    density_error_Q: Float  # bound of its error


@dataclass(frozen=True, slots=True)
class _Vertex:
    """Where a path crosses the real axis, and what the integrand is there."""

    place: float
    width: float  # A of the path
    reach: float  # of the saddle, which A falls short of next to the branch point
    log_mgf: float
    log_size: float  # of the terms of log_mgf, which rounding is a share of
    slope_K: Float  # 2 w / (1 - 2 c w)
    excess_K: Float  # lambda / (2 (1 - 2 c w))


def upper_tails(terms: Terms, point_Q: Float) -> Tails:
    """Return the upper tail and the density at every point, in the order given.

    Points that lie close together share a path, so that a thousand points cost little more than
    thirty.
    """
    order = np.argsort(point_Q, kind="stable")
    sorted_Q = point_Q[order]
    result = np.empty((5, len(point_Q)))
    start = 0
    while start < len(sorted_Q):
        vertex, stop = _shared_vertex(terms, sorted_Q, start)
        result[:, order[start:stop]] = _best_path(terms, vertex, sorted_Q[start:stop])
        start = stop
    return Tails(*result)


def _shared_vertex(terms: Terms, sorted_Q: Float, start: int) -> tuple[_Vertex, int]:
    """Return the vertex of a path for the points from `start` on, and the first point that is
    too far for it.
    """
    first = float(sorted_Q[start])
    vertex = _vertex(terms, first)
    span = 2 * CLUSTER / vertex.reach
    while True:
        stop = int(np.searchsorted(sorted_Q, first + span, side="right"))
        half = float(sorted_Q[stop - 1] - first) / 2
        if half == 0:
            return vertex, stop
        middle = _vertex(terms, first + half, start=vertex.place)
        if middle.reach * half < 1.2 * CLUSTER:
            return middle, stop
        span = min(half, 2 * CLUSTER / middle.reach)


def _vertex(terms: Terms, point: float, *, start: float | None = None) -> _Vertex:
    """Find the saddle point of K(s) - s q - log s right of 0, to a tenth of its width: a path
    need not cross exactly there.
    """
    weight, degrees, noncentrality = terms.weight_K, terms.degrees_K, terms.noncentrality_K
    largest = float(weight.max())
    edge = 1 / (2 * largest) if largest > 0 else math.inf
    shift = terms.mean - point
    place = start or (-shift + math.hypot(shift, 2 * math.sqrt(terms.variance))) / (
        2 * terms.variance
    )
    if edge == math.inf:
        place = max(place, 1 / abs(point))
        # the solution is never below; next to zero Newton's way from 1 would be hundreds of steps
    log_odds = (
        math.log(place)
        if edge == math.inf
        else math.log(min(place, 0.9 * edge) / (edge - min(place, 0.9 * edge)))
    )
    low, high = -math.inf, math.inf
    for _ in range(200):
        place = math.exp(log_odds) if edge == math.inf else edge / (1 + math.exp(-log_odds))
        gap = edge / (1 + math.exp(log_odds)) if edge < math.inf else math.inf
        # Close to the edge 1 - 2cw would cancel for weights of its sign; the distance to the edge
        # is known to full precision.
        factor = 1 - 2 * place * weight
        if edge < math.inf:
            factor = np.where(weight > 0, (largest - weight) / largest + 2 * gap * weight, factor)
        # Slope and curvature in units of the place, which may be 1e170.
        ratio = place * weight / factor
        slope = float(ratio @ degrees + (ratio / factor) @ noncentrality) - point * place - 1
        curvature = float(2 * ratio**2 @ degrees + (4 * ratio**2 / factor) @ noncentrality) + 1
        if abs(slope) < 0.1 * math.sqrt(curvature):
            break
        low, high = (log_odds, high) if slope < 0 else (low, log_odds)
        step = slope / (curvature if edge == math.inf else curvature * gap / edge)
        log_odds -= min(max(step, -3.0), 3.0)
        if not low < log_odds < high:
            log_odds = (low + high) / 2
    # log1p where a weight hardly counts: 1e8 degrees of freedom would multiply the rounding of 1 -
    # 2cw.
    turn = 2 * place * weight
    near = np.abs(turn) < 0.5
    log_K = np.where(near, np.log1p(-np.where(near, turn, 0.0)), np.log(factor))
    excess_K, moved_K = 0.5 * noncentrality / factor, noncentrality * ratio
    log_mgf = float(-0.5 * log_K @ degrees + moved_K.sum())
    log_size = float(
        (np.where(near, 0.0, 1.0) + np.abs(log_K)) @ np.abs(degrees) / 2 + 2 * np.abs(moved_K).sum()
    )
    reach = place / math.sqrt(curvature)
    width = min(reach, 2 * gap)
    assert CROSSING * width < min(place, gap), (
        "an edge of the strip crosses the axis beyond a singularity"
    )
    return _Vertex(place, width, reach, log_mgf, log_size, 2 * ratio / place, excess_K)


def _best_path(terms: Terms, vertex: _Vertex, point_Q: Float) -> Float:
    """Integrate along the hyperbola that bends where exp(-sq) decays; with weights of both signs
    try the others, keep the best.
    """
    towards = math.copysign(ANGLE, float(point_Q[len(point_Q) // 2]))
    one_sign = bool((terms.weight_K > 0).all() or (terms.weight_K < 0).all())
    best: Float | None = None
    for angle in (towards,) if one_sign else (towards, -towards, 0.0):
        found = _integrate(terms, vertex, point_Q, angle)
        if best is None:
            best = found
        else:
            better = found[2] < best[2]
            best[:3, better] = found[:3, better]
            better = found[4] < best[4]
            best[3:, better] = found[3:, better]
        if (best[2] < 1e-12 * best[1]).all() and (best[4] < 1e-12 * best[3]).all():
            break
    assert best is not None
    return best


def _integrate(terms: Terms, vertex: _Vertex, point_Q: Float, angle: float) -> Float:
    """Tail, density and the bounds of both along one hyperbola, over exp(K(c) - cq)."""
    nodes = _nodes(terms, vertex, point_Q, angle)
    shift_J, exponent_J, size_J = _on_path(terms, vertex, nodes, angle, 0.0)
    angle_J = np.arange(nodes) * STEP
    speed_J = vertex.width * (
        math.cos(angle) * np.cosh(angle_J) - 1j * math.sin(angle) * np.sinh(angle_J)
    )
    speed_J[0] /= 2
    exponent_QJ = exponent_J - np.multiply.outer(point_Q, shift_J)
    exponent_QJ.real = np.minimum(
        exponent_QJ.real, LARGEST_EXPONENT
    )  # on a path of the wrong bend; its bound says so
    value_QJ = np.exp(exponent_QJ)
    tail_J = speed_J / (vertex.place + shift_J)
    density_Q, tail_Q = (value_QJ @ np.stack([speed_J, tail_J], axis=1)).real.T * STEP / math.pi
    # Rounding: every exponent carries an error of its own size times the precision.
    grain_QJ = (
        np.abs(value_QJ)
        * (8 + size_J + np.abs(np.multiply.outer(point_Q, shift_J)))
        * np.finfo(float).eps
    )
    weight_J2 = np.abs(np.stack([speed_J, tail_J], axis=1))
    error_Q2 = (grain_QJ @ weight_J2) * STEP / math.pi
    error_Q2 += _cut_off(np.abs(value_QJ), weight_J2, STEP)
    for side in (-STRIP, STRIP):
        error_Q2 += _strip(terms, vertex, point_Q, angle, nodes, side)
    log_factor_Q = vertex.log_mgf - vertex.place * point_Q
    grain_Q = np.finfo(float).eps * (vertex.log_size + np.abs(vertex.place * point_Q))
    return np.stack(
        [
            log_factor_Q,
            tail_Q,
            error_Q2[:, 1] + grain_Q * tail_Q,
            density_Q,
            error_Q2[:, 0] + grain_Q * density_Q,
        ]
    )


def _nodes(terms: Terms, vertex: _Vertex, point_Q: Float, angle: float) -> int:
    """How many nodes until nothing is left of the integrand at the points of both ends."""
    end_2 = point_Q[[0, -1]]
    largest = np.full(2, -np.inf)
    for first in range(0, LAST_NODE, BLOCK):
        node_J = first + np.array([BLOCK // 4, BLOCK // 2, 3 * BLOCK // 4, BLOCK - 1])
        shift_J, speed_J = _place(vertex, STEP * node_J.astype(float), angle, 0.0)
        real_J, _, _ = _log_mgf(terms, vertex, shift_J)
        log_size_2J = real_J + np.log(speed_J) - np.multiply.outer(end_2, shift_J.real)
        largest = np.maximum(largest, log_size_2J.max(axis=1))
        small_J = (log_size_2J < (largest + NEGLIGIBLE)[:, None]).all(axis=0)
        if small_J[-1]:
            return 1 + int(node_J[np.argmax(small_J)])
    return LAST_NODE


def _place(
    vertex: _Vertex, node_J: Float, angle: float, side: float
) -> tuple[NDArray[np.complex128], Float]:
    """Points s - c of the path, or of an edge of its strip, and |ds/du|."""
    sine, cosine = math.sin(angle - side), math.cos(angle - side)
    sinh_J, cosh_J = np.sinh(node_J), np.cosh(node_J)
    shift_J = vertex.width * (sine * cosh_J - math.sin(angle) + 1j * cosine * sinh_J)
    return shift_J, vertex.width * np.hypot(sine * sinh_J, cosine * cosh_J)


def _on_path(
    terms: Terms, vertex: _Vertex, nodes: int, angle: float, side: float
) -> tuple[NDArray[np.complex128], NDArray[np.complex128], Float]:
    """Points s - c, K(s) - K(c) there, and the size of the terms that were added up for it."""
    shift_J, _ = _place(vertex, STEP * np.arange(nodes, dtype=float), angle, side)
    real_J, imaginary_J, size_J = _log_mgf(terms, vertex, shift_J)
    return shift_J, real_J + 1j * imaginary_J, size_J


def _log_mgf(
    terms: Terms, vertex: _Vertex, shift_J: NDArray[np.complex128]
) -> tuple[Float, Float, Float]:
    """Real and imaginary part of K(s) - K(c), and the sum of the sizes of its terms."""
    out = np.empty((3, len(shift_J)))
    rows = max(1, MOST_ENTRIES // len(terms.weight_K))
    for first in range(0, len(shift_J), rows):
        part = slice(first, first + rows)
        real_JK = np.multiply.outer(shift_J[part].real, vertex.slope_K)
        imaginary_JK = np.multiply.outer(shift_J[part].imag, vertex.slope_K)
        square_JK = real_JK**2 + imaginary_JK**2
        norm_JK = square_JK - 2 * real_JK  # |1 - a t|^2 - 1
        log_JK = np.log1p(norm_JK)
        turn_JK = np.arctan2(imaginary_JK, 1 - real_JK)
        out[0, part] = -0.25 * log_JK @ terms.degrees_K
        out[1, part] = 0.5 * turn_JK @ terms.degrees_K
        out[2, part] = (0.25 * np.abs(log_JK) + 0.5 * np.abs(turn_JK)) @ np.abs(terms.degrees_K)
        if vertex.excess_K.any():
            norm_JK += 1
            out[0, part] += ((real_JK - square_JK) / norm_JK) @ vertex.excess_K
            out[1, part] += (imaginary_JK / norm_JK) @ vertex.excess_K
            out[2, part] += (np.sqrt(square_JK / norm_JK)) @ np.abs(vertex.excess_K)
    return out[0], out[1], out[2]


def _strip(
    terms: Terms, vertex: _Vertex, point_Q: Float, angle: float, nodes: int, side: float
) -> Float:
    """What the trapezoidal rule can be wrong by: the integral of |f| along an edge of the strip
    over exp(2 pi a / h) - 1.
    """
    node_J = STEP * np.arange(0, nodes + EDGE_STEP, EDGE_STEP, dtype=float)
    shift_J, speed_J = _place(vertex, node_J, angle, side)
    real_J, _, _ = _log_mgf(terms, vertex, shift_J)
    speed_J[0] /= 2
    weight_J2 = np.stack([speed_J, speed_J / np.abs(vertex.place + shift_J)], axis=1)
    with np.errstate(over="ignore", invalid="ignore"):
        value_QJ = np.exp(
            np.minimum(real_J - np.multiply.outer(point_Q, shift_J.real), LARGEST_EXPONENT)
        )
        total_Q2 = value_QJ @ weight_J2 * EDGE_STEP * STEP / math.pi + _cut_off(
            value_QJ, weight_J2, EDGE_STEP * STEP
        )
    return np.asarray(
        np.where(np.isfinite(total_Q2), total_Q2, np.inf) / math.expm1(2 * math.pi * STRIP / STEP)
    )


def _cut_off(size_QJ: Float, weight_J2: Float, step: float) -> Float:
    """What lies beyond the last node, continued as the geometric series in which the last ones
    fall; infinite where they rise.
    """
    back = min(8, size_QJ.shape[1] - 1)
    last_Q2 = size_QJ[:, -1:] * weight_J2[-1]
    before_Q2 = size_QJ[:, -1 - back, None] * weight_J2[-1 - back]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio_Q2 = np.where(last_Q2 > 0, (last_Q2 / before_Q2) ** (1 / back), 0.0)
        return np.asarray(
            np.where(ratio_Q2 < 1, last_Q2 / (1 - ratio_Q2), np.where(last_Q2 > 0, np.inf, 0.0))
            * step
            / math.pi
        )


WORTHWHILE = 1500  # weights; below, all are kept
POINTS = 24  # of each piece
# halvings towards the largest; towards the smallest as many as reach it, for lower tails live there
PIECES = 60


def compressed(terms: Terms) -> Terms:
    """Return terms whose K(s) is that of `terms` on every path; the same object where there is
    little to gain.
    """
    if len(terms.weight_K) <= WORTHWHILE:
        return terms
    parts = [_one_sign(terms, sign) for sign in (1.0, -1.0) if (terms.weight_K * sign > 0).any()]
    merged = np.concatenate(parts, axis=1)
    return (
        Terms(merged[0], merged[1], merged[2]) if merged.shape[1] < len(terms.weight_K) else terms
    )


def _one_sign(terms: Terms, sign: float) -> Float:
    """Weights, degrees and non-centralities of one sign, piece by piece."""
    chosen = terms.weight_K * sign > 0
    table = np.stack(
        [terms.weight_K[chosen] * sign, terms.degrees_K[chosen], terms.noncentrality_K[chosen]]
    )
    table = table[:, np.argsort(table[0])]
    largest = float(table[0, -1])
    down = 0.5 ** np.arange(1.0, 2 + max(0.0, np.log2(largest / float(table[0, 0]))))
    edges = np.unique(np.concatenate([largest * down, largest * (1 - 0.5 ** np.arange(1, PIECES))]))
    piece = np.searchsorted(edges, table[0], side="right")
    starts = np.flatnonzero(np.diff(piece, prepend=-1))
    parts = [
        _gathered(table[:, first:last])
        for first, last in zip(starts, [*starts[1:], table.shape[1]], strict=True)
    ]
    merged = np.concatenate(parts, axis=1)
    merged[0] *= sign
    return merged


def _gathered(table: Float) -> Float:
    """Share out the degrees of one piece over its Chebyshev points, by the barycentric formula."""
    if table.shape[1] <= POINTS:
        return table
    low, high = float(table[0, 0]), float(table[0, -1])
    angle_J = (2 * np.arange(POINTS) + 1) * np.pi / (2 * POINTS)
    node_J = (low + high) / 2 + (high - low) / 2 * np.cos(angle_J)
    bary_J = np.sin(angle_J) * (-1.0) ** np.arange(POINTS)
    distance_KJ = np.subtract.outer(table[0], node_J)
    distance_KJ[distance_KJ == 0] = 1e-300  # a weight on a point gives all to it
    share_KJ = bary_J / distance_KJ
    share_KJ /= share_KJ.sum(axis=1, keepdims=True)
    return np.stack([node_J, share_KJ.T @ table[1], share_KJ.T @ table[2]])
