r"""What dividing by the group's deviation or mean does, exactly, for rewards 0 and 1 and groups of
any size.

With K of G rollouts right and $k = K/G$, the advantage is $(Z - k)/d_K$, zero where all are equal.
Then the gradient's mean is the true gradient times a slope that depends on V and G: the trainer
climbs another objective. Eps, ddof and both numerators are arguments. Rewards other than 0 and 1,
clipping and the KL term are not treated here.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from groupwise.arrays import Float
from groupwise.errors import InvalidArgumentError, named
from groupwise.plain import frozen


@frozen
class Normalisation:
    """What the centred reward is divided by, and the objective that this climbs as G grows."""

    name: str  # in reports and JSON
    divisor: Callable[
        [Float, int, int], Float
    ]  # function of k (share of right answers), G and ddof that returns $d_K$
    limit_objective: Callable[[Float], Float]  # function of V
    limit_slope: Callable[[Float], Float]  # its derivative


def _deviation(share: Float, group_size: int, ddof: int) -> Float:
    """Standard deviation of a group of zeros and ones."""
    return np.asarray(np.sqrt(share * (1 - share) * group_size / (group_size - ddof)))


NORMALISATIONS: tuple[Normalisation, ...] = (
    # by nothing: the policy gradient, whose objective is V
    Normalisation("none", lambda share, *_: np.ones_like(share), lambda v: v, np.ones_like),
    # by the group's deviation (2603.01162, appendix)
    Normalisation(
        "std", _deviation, lambda v: 2 * np.arcsin(np.sqrt(v)), lambda v: 1 / np.sqrt(v * (1 - v))
    ),
    # by the group's mean (2602.02710)
    Normalisation("mean", lambda share, *_: share, np.log, lambda v: 1 / v),
)


def normalisation_by_name(name: str) -> Normalisation:
    """Find a normalisation in `NORMALISATIONS`; InvalidArgumentError names them all where there
    is none.
    """
    return named(name, NORMALISATIONS, "a normalisation")


def expected_group_std(value: ArrayLike, group_size: int, *, ddof: int = 1) -> Float:
    r"""Return the mean of the deviation within a group, which lies below the true $\sqrt{V(1-V)}$.

    $E\sqrt{K(G-K)/(G(G-\mathrm{ddof}))}$, $K \sim Bin(G, V)$
    """
    _check(group_size, ddof, 0.0)
    share = np.arange(group_size + 1) / group_size
    return _binomial(_value(value), group_size) @ _deviation(share, group_size, ddof)


def normalised_slope(
    normalisation: str,
    value: ArrayLike,
    group_size: int,
    *,
    ddof: int = 1,
    eps: float = 0.0,
    leave_one_out: bool = False,
) -> Float:
    r"""Return the factor between the mean of the normalised gradient and the true one, $E[\hat g|x]
    = J_G'(V)\,g(x)$.

    $J_G'(V) = \frac{1}{V(1-V)}E[k(1-k)/d_K]$, times G/(G-1) with the leave-one-out numerator.

    Source: the paper's appendix for the limit of std; finite G is derived here
    (lab/docs/theory/gradient.md).
    """
    # Bin(G, V) at K over V(1-V) is Bin(G-2, V) at K-1 times G(G-1)/(K(G-K)): no division by zero at
    # V = 0 and 1.
    inner, pull = _pull(normalisation, group_size, ddof, eps, leave_one_out=leave_one_out)
    return _binomial(_value(value), group_size - 2) @ (
        pull * (group_size - 1) / (group_size * inner * (1 - inner))
    )


def normalised_objective(
    normalisation: str,
    value: ArrayLike,
    group_size: int,
    *,
    ddof: int = 1,
    eps: float = 0.0,
    leave_one_out: bool = False,
) -> Float:
    r"""Return the objective of one prompt that a normalised gradient climbs at this group size,
    zero at V = 0.

    $J_G(V) = \sum_{K=1}^{G-1}\frac{G}{K(G-K)}\frac{k(1-k)}{d_K} I_V(K, G-K)$, with the regularised
    incomplete beta function I.

    Source: derived here (lab/docs/theory/gradient.md).
    """
    from scipy.special import betainc

    v = _value(value)
    inner, pull = _pull(normalisation, group_size, ddof, eps, leave_one_out=leave_one_out)
    right = np.arange(1, group_size)
    return np.asarray(
        betainc(right, group_size - right, v[..., None])
        @ (pull / (group_size * inner * (1 - inner)))
    )


def _pull(
    name: str, group_size: int, ddof: int, eps: float, *, leave_one_out: bool
) -> tuple[Float, Float]:
    """Shares k strictly between 0 and 1, and k(1-k)/d there, which is what a group moves the
    policy by.
    """
    _check(group_size, ddof, eps)
    inner = np.arange(1, group_size) / group_size
    divisor = normalisation_by_name(name).divisor(inner, group_size, ddof) + eps
    numerator = group_size / (group_size - 1) if leave_one_out else 1.0
    return inner, numerator * inner * (1 - inner) / divisor


def _binomial(p: Float, trials: int) -> Float:
    """Probabilities of 0 to `trials` successes, along a new last axis."""
    from scipy.special import gammaln, xlog1py, xlogy

    count = np.arange(trials + 1)
    chosen = gammaln(trials + 1) - gammaln(count + 1) - gammaln(trials - count + 1)
    return np.asarray(
        np.exp(chosen + xlogy(count, p[..., None]) + xlog1py(trials - count, -p[..., None]))
    )


def _value(value: ArrayLike) -> Float:
    """Probabilities of reward 1, checked."""
    v = np.asarray(value, dtype=float)
    if not ((v >= 0) & (v <= 1)).all():
        raise InvalidArgumentError(
            f"expected values from 0 to 1, got {v.min():g} to {v.max():g}: these laws are for "
            "rewards 0 and 1"
        )
    return v


def _check(group_size: int, ddof: int, eps: float) -> None:
    """Refuse groups of one, other ddof than 0 and 1, and a negative eps."""
    if group_size < 2:
        raise InvalidArgumentError(
            f"expected at least 2 rollouts a group, got {group_size}: a group of one has no "
            "deviation"
        )
    if ddof not in (0, 1) or not eps >= 0:
        raise InvalidArgumentError(
            f"expected ddof 0 or 1 and eps of at least 0, got {ddof} and {eps}: take the trainer's "
            "own"
        )
