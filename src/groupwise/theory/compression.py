r"""A hundred thousand weights replaced by some hundreds that give the same characteristic function where it is integrated.

$\log(1-2sw)$, as a function of w, is smooth wherever s keeps off the real axis beyond $1/(2\max w)$. On pieces of the weights
that shrink towards both ends it is a polynomial to rounding error, and a polynomial's sum over the weights of a piece is a sum over
its Chebyshev points with the degrees of freedom shared out. Those shares may be negative; they are no law by themselves.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from groupwise.theory.contour import Terms

Float = NDArray[np.float64]

WORTHWHILE = 1500  # weights; below, all are kept
POINTS = 24  # of each piece
PIECES = 60  # halvings towards the largest; towards the smallest as many as reach it, for lower tails live there


def compressed(terms: Terms) -> Terms:
    """Return terms whose K(s) is that of `terms` on every path; the same object where there is little to gain."""
    if len(terms.weight_K) <= WORTHWHILE:
        return terms
    parts = [_one_sign(terms, sign) for sign in (1.0, -1.0) if (terms.weight_K * sign > 0).any()]
    merged = np.concatenate(parts, axis=1)
    return Terms(merged[0], merged[1], merged[2]) if merged.shape[1] < len(terms.weight_K) else terms


def _one_sign(terms: Terms, sign: float) -> Float:
    """Weights, degrees and non-centralities of one sign, piece by piece."""
    chosen = terms.weight_K * sign > 0
    table = np.stack([terms.weight_K[chosen] * sign, terms.degrees_K[chosen], terms.noncentrality_K[chosen]])
    table = table[:, np.argsort(table[0])]
    largest = float(table[0, -1])
    down = 0.5 ** np.arange(1.0, 2 + max(0.0, np.log2(largest / float(table[0, 0]))))
    edges = np.unique(np.concatenate([largest * down, largest * (1 - 0.5 ** np.arange(1, PIECES))]))
    piece = np.searchsorted(edges, table[0], side="right")
    starts = np.flatnonzero(np.diff(piece, prepend=-1))
    parts = [_gathered(table[:, first:last]) for first, last in zip(starts, [*starts[1:], table.shape[1]], strict=True)]
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
