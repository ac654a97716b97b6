r"""What the baseline, the group size and the number of prompts buy in the final gap: GRPO beside the oracle and no baseline.

The covariance of a minibatch's gradient at the optimum is linear in what the components are: for leave-one-out it is
$\Omega = \frac1B[C_p + \frac{C_1}G + \frac{C_2}{G(G-1)}]$, and so is the mean of the limiting law. Its weights are not: they are
eigenvalues. It measures no component: those of traces are `estimators.components`', and matrices come from whoever has scores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from groupwise.arrays import finite_array
from groupwise.errors import InvalidArgumentError
from groupwise.intervals import percent
from groupwise.theory.suboptimality import Factor, LimitingGap, cost_of_noise, limiting_gap

Float = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class CovarianceParts:
    r"""The parts of the gradient's covariance at the optimum.

    Args:
        between_DD: $C_p = Cov(g(X))$ between prompts, with whatever gradient a regulariser adds.
        first_DD: $C_1 = E\,\Sigma_o(X)$, one rollout of the oracle.
        second_DD: $C_2 = E[F\sigma^2 + gg^T]$, the degenerate part of leave-one-out.
        offset_DD: $E[(V-c)^2F + 2(V-c)K]$ with $K = E[ss^Te|x]$, what a fixed baseline c adds to one rollout of the oracle; with c = 0,
            no baseline. None where it is not known: then nothing is said of a fixed one.

    Raises:
        InvalidArgumentError: matrices that are not square, of one size and finite.
    """

    between_DD: Float
    first_DD: Float
    second_DD: Float
    offset_DD: Float | None = None

    def __post_init__(self) -> None:
        """Refuse matrices of unlike size."""
        shape = np.shape(self.between_DD)
        for name in ("between_DD", "first_DD", "second_DD", "offset_DD")[: 3 if self.offset_DD is None else 4]:
            matrix = finite_array(name, getattr(self, name), dimensions=2)
            if matrix.shape != shape or shape[0] != shape[1]:
                raise InvalidArgumentError(f"expected square matrices of one size, got {matrix.shape} in {name} beside {shape}")
            object.__setattr__(self, name, matrix)

    def covariance(self, baseline: str, group_size: float, prompts: float) -> Float:
        """Return the covariance of a minibatch's gradient.

        Args:
            baseline: "leave_one_out", "oracle", or "fixed" for the constant of `offset_DD`.
            group_size: G.
            prompts: B.

        Returns:
            Omega, shape (D, D).

        Raises:
            InvalidArgumentError: another baseline, "fixed" without `offset_DD`, no prompts, or a group too small.

        Example:
            >>> one = np.ones((1, 1))
            >>> CovarianceParts(one, 2 * one, 6 * one, 0 * one).covariance("leave_one_out", 3, 2).tolist()
            [[1.3333333333333333]]
        """
        if baseline not in ("leave_one_out", "oracle", "fixed"):
            raise InvalidArgumentError(f"expected the baseline leave_one_out, oracle or fixed, got {baseline!r}")
        least = 2 if baseline == "leave_one_out" else 1
        if not (group_size >= least and prompts >= 1):
            raise InvalidArgumentError(
                f"expected at least {least} rollouts a group and 1 prompt, got {group_size:g} and {prompts:g}: leave-one-out needs two"
            )
        within = self.first_DD / group_size
        if baseline == "leave_one_out":
            within = within + self.second_DD / (group_size * (group_size - 1))
        elif baseline == "fixed":
            if self.offset_DD is None:
                raise InvalidArgumentError("expected offset_DD for a fixed baseline, got none: give it, or zeros for the oracle's constant")
            within = within + self.offset_DD / group_size
        return np.asarray((self.between_DD + within) / prompts)


def covariance_parts(
    value_P: ArrayLike,
    reward_variance_P: ArrayLike,
    fisher_PDD: ArrayLike,
    weighted_fisher_PDD: ArrayLike,
    second_moment_PDD: ArrayLike,
    gradient_PD: ArrayLike,
    *,
    added_gradient_PD: ArrayLike | None = None,
    constant: float = 0.0,
    weight_P: ArrayLike | None = None,
) -> CovarianceParts:
    r"""Return the parts from the moments of every prompt.

    Args:
        value_P: V(x), reward units.
        reward_variance_P: $\sigma^2(x)$.
        fisher_PDD: $F = E[ss^T|x]$.
        weighted_fisher_PDD: $K = E[ss^Te|x]$.
        second_moment_PDD: $E[ss^Te^2|x]$.
        gradient_PD: $g(x) = E[sZ|x]$, of the sampled reward.
        added_gradient_PD: a gradient without noise that is added to that of the sample, such as an exact KL term's.
        constant: c of the fixed baseline.
        weight_P: probability of each prompt, equal where left out.

    Returns:
        The parts.

    Raises:
        InvalidArgumentError: arrays that are not finite or do not fit.

    Example:
        >>> parts = covariance_parts([0.5], [0.25], [[[0.25]]], [[[0.0]]], [[[0.0625]]], [[0.25]])
        >>> parts.first_DD.tolist(), parts.second_DD.tolist(), parts.offset_DD.tolist()
        ([[0.0]], [[0.125]], [[0.0625]])

    Source: derived here (docs/theory/gradient.md, as matrices).
    """
    value = finite_array("value_P", value_P, dimensions=1)
    variance = finite_array("reward_variance_P", reward_variance_P, dimensions=1)
    fisher, weighted, second = (
        finite_array(name, matrix, dimensions=3)
        for name, matrix in (
            ("fisher_PDD", fisher_PDD),
            ("weighted_fisher_PDD", weighted_fisher_PDD),
            ("second_moment_PDD", second_moment_PDD),
        )
    )
    gradient = finite_array("gradient_PD", gradient_PD, dimensions=2)
    count, dimensions = gradient.shape
    expected = (count, dimensions, dimensions)
    if not (len(value) == len(variance) == count and fisher.shape == weighted.shape == second.shape == expected):
        raise InvalidArgumentError(f"expected moments of {count} prompts and {dimensions} parameters, got {fisher.shape} and {value.shape}")
    weight = np.full(count, 1 / count) if weight_P is None else finite_array("weight_P", weight_P, dimensions=1)
    outer = gradient[:, :, None] * gradient[:, None, :]
    whole = gradient if added_gradient_PD is None else gradient + finite_array("added_gradient_PD", added_gradient_PD, dimensions=2)
    centred = whole - weight @ whole
    off = (value - constant)[:, None, None]
    return CovarianceParts(
        between_DD=(weight[:, None] * centred).T @ centred,
        first_DD=np.tensordot(weight, second - outer, axes=1),
        second_DD=np.tensordot(weight, fisher * variance[:, None, None] + outer, axes=1),
        offset_DD=np.tensordot(weight, off**2 * fisher + 2 * off * weighted, axes=1),
    )


@dataclass(frozen=True, slots=True)
class GapComparison:
    """The limiting laws with three baselines, at one group size and number of prompts.

    Args:
        group_size: G.
        prompts: B.
        leave_one_out: GRPO without division by the deviation.
        oracle: the true value as baseline.
        fixed: a constant baseline, or none.
    """

    group_size: float
    prompts: float
    leave_one_out: LimitingGap
    oracle: LimitingGap
    fixed: LimitingGap

    @property
    def excess(self) -> float:
        """By what share the final gap of leave-one-out lies above the oracle's."""
        return self.leave_one_out.mean / self.oracle.mean - 1 if self.oracle.mean > 0 else math.inf

    @property
    def weight_difference(self) -> Float:
        """Weights of leave-one-out less those of the oracle, sorted both; missing ones are zero."""
        size = max(len(self.leave_one_out.weight_K), len(self.oracle.weight_K))
        both = [np.pad(gap.weight_K, (0, size - len(gap.weight_K))) for gap in (self.leave_one_out, self.oracle)]
        return np.asarray(both[0] - both[1])

    @property
    def status(self) -> str:
        """What the present group size costs in the end, in one sentence."""
        against = self.leave_one_out.mean / self.fixed.mean - 1
        word = "above" if against > 0 else "below"
        return (
            f"With groups of {self.group_size:g} the final gap is {percent(self.excess)} above that of an oracle baseline, "
            f"and {percent(abs(against))} {word} that of a fixed one."
        )


def compare_final_gaps(
    parts: CovarianceParts, hessian_DD: ArrayLike, step_constant: float, *, group_size: float, prompts: float, factor: Factor = "corrected"
) -> GapComparison:
    """Return the limiting laws of leave-one-out, the oracle and a fixed baseline.

    Args:
        parts: of the covariance.
        hessian_DD: at the optimum.
        step_constant: b.
        group_size: G, at least 2.
        prompts: B.
        factor: as in `limiting_gap`.

    Returns:
        The three laws.

    Raises:
        InvalidArgumentError: as `limiting_gap` and `CovarianceParts.covariance`.

    Example:
        >>> one = np.ones((1, 1))
        >>> compare_final_gaps(CovarianceParts(one, 2 * one, 6 * one, 4 * one), -one, 1.0, group_size=4, prompts=8).status
        'With groups of 4 the final gap is 33 % above that of an oracle baseline, and 20 % below that of a fixed one.'

    Source: the paper's Corollaries 9 and 10 (2603.01162), with the factor mended.
    """
    laws = {
        name: limiting_gap(hessian_DD, parts.covariance(name, group_size, prompts), step_constant, factor=factor)
        for name in ("leave_one_out", "oracle", "fixed")
    }
    return GapComparison(group_size, prompts, laws["leave_one_out"], laws["oracle"], laws["fixed"])


def projected_components(parts: CovarianceParts, hessian_DD: ArrayLike, step_constant: float) -> tuple[float, float, float]:
    r"""Return Vp, T and R as the final gap counts them: $\mathrm{tr}(CC_p)$, $\mathrm{tr}(CC_1)$, $\mathrm{tr}(CC_2)$.

    With them the expected gap after n steps is $[V_p' + T'/G + R'/(G(G-1))]/(Bn)$, so everything that is known of the gradient's error,
    the best group size $1 + \sqrt{R'/V_p'}$ included, holds of the final gap.

    Args:
        parts: of the covariance.
        hessian_DD: at the optimum.
        step_constant: b.

    Returns:
        Vp', T' and R', reward units.

    Raises:
        InvalidArgumentError: as `cost_of_noise`.

    Example:
        >>> one = np.ones((1, 1))
        >>> projected_components(CovarianceParts(one, 2 * one, 6 * one, 0 * one), -one, 1.0)
        (0.5, 1.0, 3.0)

    Source: derived here (docs/theory/final-gap.md).
    """
    return components_at_cost(parts, cost_of_noise(hessian_DD, step_constant))


def components_at_cost(parts: CovarianceParts, cost_DD: ArrayLike) -> tuple[float, float, float]:
    r"""Return $\mathrm{tr}(CC_p)$, $\mathrm{tr}(CC_1)$ and $\mathrm{tr}(CC_2)$ for any cost C of a unit of noise in each direction.

    Args:
        parts: of the covariance.
        cost_DD: C, from `cost_of_noise` or `cost_of_constant_step`.

    Returns:
        Vp', T' and R', reward units.

    Raises:
        InvalidArgumentError: a cost of another size.

    Example:
        >>> one = np.ones((1, 1))
        >>> components_at_cost(CovarianceParts(one, 2 * one, 6 * one, 0 * one), [[0.5]])
        (0.5, 1.0, 3.0)

    Source: derived here.
    """
    cost = finite_array("cost_DD", cost_DD, dimensions=2)
    if cost.shape != parts.between_DD.shape:
        raise InvalidArgumentError(f"expected a cost of shape {parts.between_DD.shape}, as the parts, got {cost.shape}")
    return (float((cost * parts.between_DD).sum()), float((cost * parts.first_DD).sum()), float((cost * parts.second_DD).sum()))


def excess_sentence(group_size: int, excess: tuple[float, float, float]) -> str:
    """Say what the present group size costs in final gap where only traces are known.

    At a constant small step the expected gap near the optimum is a quarter of the step times the gradient's mean squared error, so the
    excess over an oracle baseline is that of the error, if noise is spread over the directions with curvature as over all: traces cannot
    tell, and noise in flat directions counts in them.

    Args:
        group_size: G in use.
        excess: R/(G-1) over Vp G + T, its value and the ends of its interval; infinite ends are left out.

    Returns:
        One sentence.

    Example:
        >>> excess_sentence(8, (0.121, 0.09, 0.15))
        "Final gap: near its optimum, at a constant learning rate, groups of 8 leave it 12 % (9 % to 15 %) above an oracle baseline's,
        if noise is spread over the directions with curvature as over all."

    Source: derived here (docs/theory/final-gap.md).
    """
    value, low, high = excess
    known = math.isfinite(low) and math.isfinite(high) and high > low
    between = f" ({percent(max(low, 0.0))} to {percent(high)})" if known else ""
    return (
        f"Final gap: near its optimum, at a constant learning rate, groups of {group_size} leave it "
        f"{percent(value)}{between} above an oracle baseline's, if noise is spread over the directions with curvature as over all."
    )
