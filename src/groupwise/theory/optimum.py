r"""The group size of least error as a real number, and what another one costs.

Minimises $(V_p + T/G + R/(G(G-1)))(c + G)$, the error of the leave-one-out gradient times the cost of a group, where a prompt
costs as much as c rollouts. Integers, budgets and intervals are the planner's; nothing is estimated here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from groupwise.errors import InvalidArgumentError

Float = NDArray[np.float64]


def optimal_group_size(
    vp: ArrayLike,
    r: ArrayLike,
    *,
    t: ArrayLike = 0.0,
    cost_ratio: float = 0.0,
    prompt_set: float | None = None,
    rollouts: float | None = None,
) -> Float:
    r"""Return the group size G* of least error for a fixed budget.

    Without a cost of prompts $G^* = 1 + \sqrt{R/V_p}$; with one it is the root of
    $V_p = R(1+c)/(G-1)^2 + c(T-R)/G^2$, which lies between $1 + \sqrt{R(1+c)/V_p}$ and $1 + \sqrt{(R+cT)/V_p}$. Without
    replacement from P prompts $V_p$ becomes $V_p P/(P-1)$, and G is at least N/P.

    Args:
        vp: variance of the gradient between prompts.
        r: $E[S_2\sigma^2 + |g(X)|^2]$.
        t: mean variance of one rollout of the oracle estimator; matters only with a cost of prompts.
        cost_ratio: c, cost of a prompt in rollouts.
        prompt_set: P, where prompts are drawn without replacement from a set of P.
        rollouts: N = B G, where the set may be used up: then G is not below N/P.

    Returns:
        G*, a real number above 1, of the shape of the arguments together; infinity where prompts do not differ.

    Raises:
        InvalidArgumentError: a negative component or cost, a set of one prompt, or `rollouts` without `prompt_set`.

    Example:
        >>> float(optimal_group_size(1.0, 4.0)), float(optimal_group_size(1.0, 1.0, t=1.0, cost_ratio=8.0))
        (3.0, 4.0)

    Source: derived here (docs/theory/gradient.md); the paper's Theorem 7 has $\sqrt{c_3/c_1}$ with $c_3$ not given.
    """
    vp, t, r = np.broadcast_arrays(*(np.asarray(value, dtype=float) for value in (vp, t, r)))
    _check(vp, t, r, cost_ratio)
    if prompt_set is not None:
        if not prompt_set >= 2:
            raise InvalidArgumentError(f"expected a set of at least 2 prompts, got {prompt_set:g}: leave out `prompt_set`")
        vp = vp * (prompt_set / (prompt_set - 1))
    elif rollouts is not None:
        raise InvalidArgumentError("expected `prompt_set` along with `rollouts`: without a set the optimum does not depend on N")
    best = np.full(vp.shape, np.inf)
    differ = vp > 0
    best[differ] = _optimum(vp[differ], t[differ], r[differ], cost_ratio)
    return np.asarray(best if rollouts is None or prompt_set is None else np.maximum(best, rollouts / prompt_set))


def excess_over_optimum(vp: ArrayLike, t: ArrayLike, r: ArrayLike, group_size: ArrayLike, *, cost_ratio: float = 0.0) -> Float:
    r"""Return by what share the error of a group size lies above the least that any real one has, at the same budget.

    $[V_p + T/G + R/(G(G-1))](c+G)$ over its minimum, less 1; without a cost of prompts
    $\sqrt{R V_p}(f + 1/f - 2)/(V_p + T + 2\sqrt{R V_p})$ with $f = (G-1)/(G^*-1)$.

    Args:
        vp: variance of the gradient between prompts, positive.
        t: mean variance of one rollout of the oracle estimator.
        r: $E[S_2\sigma^2 + |g(X)|^2]$, positive.
        group_size: G, above 1.
        cost_ratio: c, cost of a prompt in rollouts.

    Returns:
        The excess, 0 at the optimum; .1 is 10 % more error, or as much as 10 % fewer rollouts.

    Raises:
        InvalidArgumentError: a component that is negative, vp or r of zero, or a group of one.

    Example:
        >>> excess_over_optimum(1.0, 961.0, 961.0, [16, 32, 64]).round(4).tolist()
        [0.0167, 0.0, 0.0159]

    Source: derived here (docs/theory/gradient.md).
    """
    vp, t, r, size = (np.asarray(value, dtype=float) for value in (vp, t, r, group_size))
    _check(vp, t, r, cost_ratio)
    if not ((vp > 0).all() and (r > 0).all() and (size > 1).all()):
        raise InvalidArgumentError("expected positive vp and r and groups above 1: without them there is no optimum to compare with")
    best = optimal_group_size(vp, r, t=t, cost_ratio=cost_ratio)
    return np.asarray(_cost(vp, t, r, size, cost_ratio) / _cost(vp, t, r, best, cost_ratio) - 1)


def _optimum(vp: Float, t: Float, r: Float, cost_ratio: float) -> Float:
    """Root by bisection of G - 1 between its two bounds, which are equal without a cost of prompts."""
    ends = np.sqrt(np.stack([r * (1 + cost_ratio), r + cost_ratio * t]) / vp)
    low, high = ends.min(axis=0), ends.max(axis=0)
    for _ in range(100 if cost_ratio else 0):
        middle = (low + high) / 2
        gain = r * (1 + cost_ratio) * (middle + 1) ** 2 + cost_ratio * (t - r) * middle**2
        past = vp * (middle * (middle + 1)) ** 2 > gain
        low, high = np.where(past, low, middle), np.where(past, middle, high)
    return np.asarray(1 + high)


def _cost(vp: Float, t: Float, r: Float, size: Float, cost_ratio: float) -> Float:
    """Error times cost of a group."""
    return np.asarray((vp + t / size + r / (size * (size - 1))) * (cost_ratio + size))


def _check(vp: Float, t: Float, r: Float, cost_ratio: float) -> None:
    """Refuse components and costs that cannot be."""
    if not ((vp >= 0).all() and (t >= 0).all() and (r >= 0).all() and cost_ratio >= 0):
        raise InvalidArgumentError("expected variance components and costs of at least 0: an estimate below zero is not one to plan with")
