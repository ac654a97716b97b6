r"""Exact mean squared error of the policy gradient for every baseline, group size and number of
prompts.

Given a prompt: $e = Z - V$, $\sigma^2 = Var(Z)$, $S_2 = E|s|^2$, $\kappa = E|s|^2 e$, $T_o =
E|s|^2e^2 - |g(x)|^2$ and $R = S_2\sigma^2 + |g(x)|^2$. Over prompts: $V_p = E|g(X) - g|^2$, $T =
E\,T_o$, $R = E\,R(X)$. On-policy, no clipping, no division by a deviation (that is
`normalisation`). It estimates nothing from data and makes no plan.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields

import numpy as np
from numpy.typing import ArrayLike

from groupwise.arrays import Float
from groupwise.errors import InvalidArgumentError, named
from groupwise.plain import frozen
from groupwise_lab.theory.verifier_noise import VerifierErrors


@frozen
class PromptMoments:
    """What the laws need to know of each prompt."""

    value_P: Float  # V, reward units
    score_norm2_P: Float  # $S_2 = E|s|^2$
    reward_variance_P: Float  # $\sigma^2$, squared reward units
    kappa_P: Float  # $\kappa = E[|s|^2 e]$
    oracle_variance_P: (
        Float  # $T_o$, variance (trace) of one rollout with the true value as baseline
    )
    gradient_norm2_P: Float  # $|g(x)|^2$

    def __post_init__(self) -> None:
        """Refuse what cannot be moments."""
        for field in fields(self):
            array = np.asarray(getattr(self, field.name), dtype=float)
            least = -math.inf if field.name in {"value_P", "kappa_P"} else 0.0
            if array.shape != np.shape(self.value_P) or array.ndim != 1:
                raise InvalidArgumentError(
                    f"expected one number a prompt for every moment, got shape {array.shape} in "
                    f"{field.name}"
                )
            bad = ~(np.isfinite(array) & (array >= least))
            if bad.any():
                raise InvalidArgumentError(
                    "expected finite moments, none but value and kappa negative, got "
                    f"{array[bad][0]} in {field.name}"
                )
            object.__setattr__(self, field.name, array)

    @property
    def degenerate(self) -> Float:
        r"""Return $R(x) = S_2\sigma^2 + |g(x)|^2$ of every prompt."""
        return self.score_norm2_P * self.reward_variance_P + self.gradient_norm2_P


@frozen
class Baseline:
    r"""A row of the table of variances: what is subtracted from the reward, and what that does to
    the gradient.

    Every row is $b = \lambda c + (1-\lambda)\,b_{LOO}$ with a fixed part c, times a scale.
    """

    name: str  # in reports and JSON
    variance: str  # the formula of the within-prompt variance
    fixed_share: float | None  # $\lambda$; None where the caller gives it
    fixed_part: Callable[
        [PromptMoments, Float], Float
    ]  # function of the moments and of the reference that returns c
    full_mean: bool = (
        False  # whether the rollout itself is in its mean, which scales the gradient by (G-1)/G
    )
    smallest_group: int = 1  # the smallest G for which it exists

    def scale(self, group_size: float) -> float:
        """Return the factor by which the gradient's mean differs from the true one: 1 where
        unbiased.
        """
        return (group_size - 1) / group_size if self.full_mean else 1.0


def _reference(_: PromptMoments, reference: Float) -> Float:
    """The caller's own number."""
    return reference


def _variance_optimal(moments: PromptMoments, _: Float) -> Float:
    """The fixed baseline of least variance, V + kappa/S2; the value where the score is zero."""
    norm2 = moments.score_norm2_P
    return moments.value_P + np.divide(
        moments.kappa_P, norm2, out=np.zeros_like(norm2), where=norm2 > 0
    )


BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "vanilla",
        "[T_o + V^2 S2 + 2 V kappa] / G",
        1.0,
        lambda _, reference: np.zeros_like(reference),
    ),
    Baseline("constant", "[T_o + (V - c)^2 S2 + 2 (V - c) kappa] / G", 1.0, _reference),
    Baseline("oracle", "T_o / G", 1.0, lambda moments, _: moments.value_P),  # 2603.01162, Theorem 2
    Baseline("variance_optimal", "[T_o - kappa^2/S2] / G", 1.0, _variance_optimal),
    Baseline("leave_one_out", "T_o/G + R/(G(G-1))", 0.0, _reference, smallest_group=2),
    Baseline(
        "full_group_mean",
        "((G-1)/G)^2 [T_o/G + R/(G(G-1))], and squared bias |g(x)|^2/G^2",
        0.0,
        _reference,
        full_mean=True,
        smallest_group=2,
    ),
    # lam mu + (1 - lam) mean of the others
    Baseline(
        "shrunk",
        "[T_o + lam^2 (V - mu)^2 S2 + 2 lam (V - mu) kappa]/G + (1 - lam)^2 R/(G(G-1))",
        None,
        _reference,
        smallest_group=2,
    ),
)


def baseline_by_name(name: str) -> Baseline:
    """Find a baseline in `BASELINES`; InvalidArgumentError names them all where there is none."""
    return named(name, BASELINES, "a baseline")


@frozen
class Reference:
    """The number that a "constant" or "shrunk" baseline takes from elsewhere."""

    # of the constant c, or of the number mu shrunk towards; one, or one a prompt, reward units
    mean: ArrayLike = 0.0
    variance: ArrayLike = 0.0  # where it is an estimate, from data other than the group
    weight: float = 0.5  # lam, what it counts in a shrunk baseline


NO_REFERENCE = Reference()


def within_prompt_variance(
    baseline: str, moments: PromptMoments, group_size: float, *, reference: Reference = NO_REFERENCE
) -> Float:
    r"""Return the exact variance (trace) of a group's gradient given its prompt.

    $[T_o + \lambda^2 E(V-c)^2 S_2 + 2\lambda (V-Ec)\kappa]/G + (1-\lambda)^2 R/(G(G-1))$, times the
    squared scale.

    Source: derived here (lab/docs/theory/gradient.md); the paper's Theorem 2 and Proposition 3 give
    the leading order.
    """
    row = baseline_by_name(baseline)
    _at_least(group_size, row.smallest_group, f"the baseline {baseline}")
    share = reference.weight if row.fixed_share is None else row.fixed_share
    fixed = row.fixed_part(
        moments, np.broadcast_to(np.asarray(reference.mean, dtype=float), moments.value_P.shape)
    )
    spread = (
        np.asarray(reference.variance, dtype=float) if row.fixed_part is _reference else np.zeros(1)
    )
    error = moments.value_P - fixed
    variance = (
        moments.oracle_variance_P
        + share**2 * (error**2 + spread) * moments.score_norm2_P
        + 2 * share * error * moments.kappa_P
    )
    if share != 1:
        variance = variance + (1 - share) ** 2 * moments.degenerate / (group_size - 1)
    return np.asarray(row.scale(group_size) ** 2 * variance / group_size)


def squared_bias(baseline: str, moments: PromptMoments, group_size: float) -> Float:
    r"""Return the squared bias of a group's gradient given its prompt: $|g(x)|^2/G^2$ with the full
    group mean, else 0.

    Source: derived here; the scale is the paper's Lemma 1.
    """
    row = baseline_by_name(baseline)
    _at_least(group_size, row.smallest_group, f"the baseline {baseline}")
    return np.asarray((1 - row.scale(group_size)) ** 2 * moments.gradient_norm2_P)


def minibatch_mse(
    baseline: str,
    moments: PromptMoments,
    group_size: float,
    prompts: float,
    *,
    vp: float,
    weight_P: ArrayLike | None = None,
    prompt_set: float | None = None,
    reference: Reference = NO_REFERENCE,
) -> float:
    r"""Return the exact mean squared error of the gradient of a minibatch of B prompts and G
    rollouts a prompt.

    $c^2 V_p/B + E_X[\mathrm{row}]/B + (1-c)^2|g|^2$, with scale c = 1 but for the full group mean.

    Source: derived here (lab/docs/theory/gradient.md); the paper's Theorem 7 has its form with
    constants left open.
    """
    rows_P = within_prompt_variance(baseline, moments, group_size, reference=reference)
    weight = (
        np.full(rows_P.shape, 1 / rows_P.size)
        if weight_P is None
        else np.asarray(weight_P, dtype=float)
    )
    scale = baseline_by_name(baseline).scale(group_size)
    norm2 = float(weight @ moments.gradient_norm2_P) - vp
    between = float(between_prompts(vp, prompts, prompt_set=prompt_set))
    return float(scale**2 * between + weight @ rows_P / prompts + (1 - scale) ** 2 * norm2)


def between_prompts(vp: ArrayLike, prompts: ArrayLike, *, prompt_set: float | None = None) -> Float:
    r"""Return the error that comes from which prompts were drawn: $V_p/B$, or $V_p(P-B)/(B(P-1))$
    without replacement.

    Source: sampling from a finite population; see lab/docs/theory/gradient.md.
    """
    vp, count = np.asarray(vp, dtype=float), np.asarray(prompts, dtype=float)
    _at_least(count, 1, "a minibatch", what="prompts")
    if prompt_set is None:
        return np.asarray(vp / count)
    if not (count <= prompt_set).all():
        raise InvalidArgumentError(
            f"expected at most {prompt_set:g} prompts without replacement, got {count.max():g}: "
            "take fewer"
        )
    return np.asarray(vp * (prompt_set - count) / (count * max(prompt_set - 1, 1)))


def mse(
    vp: ArrayLike,
    t: ArrayLike,
    r: ArrayLike,
    group_size: ArrayLike,
    prompts: ArrayLike,
    *,
    prompt_set: float | None = None,
) -> Float:
    r"""Return the exact mean squared error of the leave-one-out gradient of a minibatch.

    $[V_p + T/G + R/(G(G-1))]/B$

    Source: derived here (lab/docs/theory/gradient.md).
    """
    size = np.asarray(group_size, dtype=float)
    _at_least(size, 2, "leave-one-out")
    count = np.asarray(prompts, dtype=float)
    between = between_prompts(vp, count, prompt_set=prompt_set)
    within = (np.asarray(t, dtype=float) + np.asarray(r, dtype=float) / (size - 1)) / (size * count)
    return np.asarray(between + within)


def oracle_excess(r: ArrayLike, group_size: ArrayLike, prompts: ArrayLike) -> Float:
    r"""Return what the leave-one-out gradient loses to the one that knows every prompt's value:
    $R/(B G(G-1))$, exactly.

    Source: derived here; the paper's Theorem 2 and Corollary 4 give O(1/(B G^2)).
    """
    size = np.asarray(group_size, dtype=float)
    _at_least(size, 2, "leave-one-out")
    return np.asarray(
        np.asarray(r, dtype=float) / (np.asarray(prompts, dtype=float) * size * (size - 1))
    )


def _at_least(
    number: ArrayLike, smallest: int, whose: str, *, what: str = "rollouts a group"
) -> None:
    """Refuse a count below the smallest with which something exists."""
    low = float(np.min(number))
    if not low >= smallest:
        raise InvalidArgumentError(
            f"expected at least {smallest} {what} for {whose}, got {low:g}: take more"
        )


def reward_band(
    components: tuple[float, float, float],
    unit_variance: float,
    *,
    group_size: int,
    prompts: int,
    gain: float,
    reward_variance: float = 0.0,
    value_variance: float = 0.0,
) -> tuple[float, float]:
    r"""Return the standard deviation of a settled run's true mean reward, and of the measured batch
    mean, with nothing fitted.

    $s^2 = (V_p + T/G + R/(G(G-1)))/B$ drives the mode; the reward moves by `gain` a unit of the
    mode's coordinate. The measured mean adds $\sigma^2/(BG)$ of rollouts and the prompts'
    $Var(V)/B$.

    Source: derived here: the link between arXiv 2603.01162 and 2606.30789.
    """
    true = gain**2 * max(float(mse(*components, group_size, prompts)), 0.0) * unit_variance
    return math.sqrt(true), math.sqrt(
        true + reward_variance / (prompts * group_size) + value_variance / prompts
    )


def variance_ratio(vp: float, t: float, r: float, group_size: int, other: int) -> float:
    r"""Return by what the fluctuation's variance falls from one group size to another at fixed B:
    1/G only if T alone counts.

    Source: derived here; $20(3+\rho)/(15+\rho)$ for 4 : 16 with $\rho = R/T$ and no part between
    prompts.
    """
    return float(mse(vp, t, r, group_size, 1) / mse(vp, t, r, other, 1))


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
    $V_p = R(1+c)/(G-1)^2 + c(T-R)/G^2$, which lies between $1 + \sqrt{R(1+c)/V_p}$ and $1 +
    \sqrt{(R+cT)/V_p}$. Without replacement from P prompts $V_p$ becomes $V_p P/(P-1)$, and G is at
    least N/P.

    Source: derived here (lab/docs/theory/gradient.md); the paper's Theorem 7 has $\sqrt{c_3/c_1}$
    with $c_3$ not given.
    """
    vp, t, r = np.broadcast_arrays(*(np.asarray(value, dtype=float) for value in (vp, t, r)))
    _check(vp, t, r, cost_ratio)
    if prompt_set is not None:
        if not prompt_set >= 2:
            raise InvalidArgumentError(
                f"expected a set of at least 2 prompts, got {prompt_set:g}: leave out `prompt_set`"
            )
        vp = vp * (prompt_set / (prompt_set - 1))
    elif rollouts is not None:
        raise InvalidArgumentError(
            "expected `prompt_set` along with `rollouts`: without a set the optimum does not "
            "depend on N"
        )
    best = np.full(vp.shape, np.inf)
    differ = vp > 0
    best[differ] = _optimum(vp[differ], t[differ], r[differ], cost_ratio)
    return np.asarray(
        best if rollouts is None or prompt_set is None else np.maximum(best, rollouts / prompt_set)
    )


def _optimum(vp: Float, t: Float, r: Float, cost_ratio: float) -> Float:
    """Root by bisection of G - 1 between its two bounds, which are equal without a cost of
    prompts.
    """
    ends = np.sqrt(np.stack([r * (1 + cost_ratio), r + cost_ratio * t]) / vp)
    low, high = ends.min(axis=0), ends.max(axis=0)
    for _ in range(100 if cost_ratio else 0):
        middle = (low + high) / 2
        gain = r * (1 + cost_ratio) * (middle + 1) ** 2 + cost_ratio * (t - r) * middle**2
        past = vp * (middle * (middle + 1)) ** 2 > gain
        low, high = np.where(past, low, middle), np.where(past, middle, high)
    return np.asarray(1 + high)


def _check(vp: Float, t: Float, r: Float, cost_ratio: float) -> None:
    """Refuse components and costs that cannot be."""
    if not ((vp >= 0).all() and (t >= 0).all() and (r >= 0).all() and cost_ratio >= 0):
        raise InvalidArgumentError(
            "expected variance components and costs of at least 0: an estimate below zero is not "
            "one to plan with"
        )


def noisy_moments(moments: PromptMoments, errors: VerifierErrors) -> PromptMoments:
    r"""Return the moments of every prompt as they are under a verifier that errs; with them every
    row of `BASELINES` holds.

    Source: derived here (lab/docs/theory/gradient.md).
    """
    rho, value, norm2 = errors.slope, moments.value_P, moments.score_norm2_P
    return PromptMoments(
        value_P=errors.false_positive + rho * value,
        score_norm2_P=norm2,
        reward_variance_P=rho**2 * moments.reward_variance_P
        + errors.added_variance(np.ones_like(value), value),
        kappa_P=rho * moments.kappa_P,
        oracle_variance_P=rho**2 * moments.oracle_variance_P
        + errors.added_variance(norm2, moments.kappa_P + value * norm2),
        gradient_norm2_P=rho**2 * moments.gradient_norm2_P,
    )
