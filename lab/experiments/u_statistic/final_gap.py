r"""The limiting law of the gap to the best policy: from curvature, step constant and gradient
covariance to a sum of chi-squares.

Steps b/i towards an optimum with Hessian $-\Lambda$, where the gradient of a minibatch has
covariance $\Omega$: then $\sqrt n(\theta_n - \theta^*) \to N(0,\Sigma)$ with $\Sigma_{jk} =
b^2\Omega_{jk}/(b(\lambda_j+\lambda_k) - 1)$ in the eigenbasis of $\Lambda$, and $n\Delta_n \to
\sum_k w_k\chi^2_1$ with w the eigenvalues of $\frac12\Sigma^{1/2}\Lambda\Sigma^{1/2}$. It estimates
no Hessian and no covariance, and it knows no finite n: that is `bounds`.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from groupwise.arrays import Float, finite_array
from groupwise.errors import InvalidArgumentError
from groupwise.plain import frozen
from groupwise_lab.theory.chi_square_mixture import ChiSquareMixture

Factor = Literal["corrected", "printed"]

RANK_TOLERANCE = 1e-10  # of the largest curvature: smaller ones count as none
NEGLIGIBLE_WEIGHT = 1e-14  # of the largest weight: rounding of an eigenvalue that is zero


@frozen
class LimitingGap:
    r"""The limiting law of $n\Delta_n$."""

    # the weights of the chi-squares, falling, in reward units; as many as the curvature has
    # directions with noise
    weight_K: Float
    curvature_K: Float  # eigenvalues of $\Lambda$ on its range, falling
    # share of the trace of $\Omega$ that lies in directions without curvature; the law leaves it
    # out, which is right as long as the curvature elsewhere stays the same along them
    flat_noise: float

    @property
    def law(self) -> ChiSquareMixture:
        """The law itself, in the shape of a `scipy.stats` distribution; InvalidArgumentError
        where there is no noise.
        """
        if not len(self.weight_K):
            raise InvalidArgumentError(
                "expected noise in some direction with curvature, got none: n times the gap tends "
                "to 0"
            )
        return ChiSquareMixture(self.weight_K)

    @property
    def mean(self) -> float:
        r"""$E[n\Delta_n] \to \sum_k w_k = \sum_k b^2\lambda_k\Omega_{kk}/(4b\lambda_k - 2)$."""
        return float(self.weight_K.sum())

    def quantile(self, probability: ArrayLike) -> Float:
        """Return quantiles of the law; 0 throughout where there is no noise."""
        return (
            self.law.ppf(probability)
            if len(self.weight_K)
            else np.zeros_like(np.asarray(probability, dtype=float))
        )


def limiting_gap(
    hessian_DD: ArrayLike,
    covariance_DD: ArrayLike,
    step_constant: float,
    *,
    factor: Factor = "corrected",
) -> LimitingGap:
    r"""Return the limiting law of n times the gap, with steps b/i.

    $\Sigma_{jk} = b^2\Omega_{jk}/(b(\lambda_j+\lambda_k)-1)$ on the range of $\Lambda$; the weights
    are the eigenvalues of $\frac12\Sigma^{1/2}\Lambda\Sigma^{1/2}$.

    Source: the paper's Theorem 8 (2603.01162) with the factor $b^2$ that its covariance lacks,
    derived here (lab/docs/theory/final-gap.md).
    """
    curvature_K, basis_DK = _curvature(hessian_DD)
    covariance = _covariance(covariance_DD, len(basis_DK))
    _check_step(
        step_constant,
        1 / (2 * float(curvature_K[-1])),
        math.inf,
        "above 1/(2 x smallest curvature)",
    )
    noise_KK = basis_DK.T @ covariance @ basis_DK
    scale = step_constant**2 if factor == "corrected" else 1.0
    spread_KK = scale * noise_KK / (step_constant * np.add.outer(curvature_K, curvature_K) - 1)
    weight_K = _weights(curvature_K, spread_KK)
    total = float(np.trace(covariance))
    flat = 1 - float(np.trace(noise_KK)) / total if total > 0 else 0.0
    kept = weight_K > NEGLIGIBLE_WEIGHT * max(float(weight_K[0]), 0.0)
    return LimitingGap(weight_K[kept], curvature_K, min(max(flat, 0.0), 1.0))


def cost_of_noise(hessian_DD: ArrayLike, step_constant: float) -> Float:
    r"""Return the matrix C with which the mean of the limiting law is $\mathrm{tr}(C\Omega)$.

    $C = \sum_k \frac{b^2\lambda_k}{4b\lambda_k - 2} v_kv_k^T$: what a unit of gradient variance in
    each direction costs in the end.

    Source: derived here, from the trace of the paper's Theorem 8 with its factor mended.
    """
    curvature_K, basis_DK = _curvature(hessian_DD)
    _check_step(
        step_constant,
        1 / (2 * float(curvature_K[-1])),
        math.inf,
        "above 1/(2 x smallest curvature)",
    )
    cost_K = step_constant**2 * curvature_K / (4 * step_constant * curvature_K - 2)
    return np.asarray((basis_DK * cost_K) @ basis_DK.T)


def stationary_gap(hessian_DD: ArrayLike, covariance_DD: ArrayLike, step: float) -> Float:
    r"""Return the weights of the law of the gap itself, once a constant step has forgotten its
    start.

    $S_{jk} = \eta^2\Omega_{jk}/(1 - (1-\eta\lambda_j)(1-\eta\lambda_k))$ on the range of $\Lambda$,
    so the expected gap is $\sum_k\frac{\eta\Omega_{kk}}{2(2-\eta\lambda_k)}$: for small steps
    $\frac\eta4$ times the mean squared error of the gradient in the directions with curvature,
    however large that is.

    Source: derived here: the exact stationary covariance of the linear recursion; a law of
    chi-squares as far as that is Gaussian.
    """
    curvature_K, basis_DK = _curvature(hessian_DD)
    _check_step(step, 0.0, 2 / float(curvature_K[0]), "below 2 over the largest curvature")
    noise_KK = basis_DK.T @ _covariance(covariance_DD, len(basis_DK)) @ basis_DK
    keep_K = 1 - step * curvature_K
    return _weights(curvature_K, step**2 * noise_KK / (1 - np.multiply.outer(keep_K, keep_K)))


def _curvature(hessian_DD: ArrayLike) -> tuple[Float, Float]:
    """Eigenvalues of minus the Hessian on its range, falling, and their directions."""
    hessian = _symmetric("hessian_DD", hessian_DD)
    value_D, vector_DD = np.linalg.eigh(-hessian)
    largest = float(np.abs(value_D).max())
    if largest == 0:
        raise InvalidArgumentError(
            "expected a Hessian with some curvature, got zeros: without any the gap has no such law"
        )
    if value_D[0] < -RANK_TOLERANCE * largest:
        raise InvalidArgumentError(
            f"expected a negative semi-definite Hessian, got an eigenvalue of {-value_D[0]:.3g} "
            "above 0: this point is no maximum"
        )
    kept = value_D > RANK_TOLERANCE * largest
    return value_D[kept][::-1], vector_DD[:, kept][:, ::-1]


def _covariance(covariance_DD: ArrayLike, dimensions: int) -> Float:
    """A covariance of the right size, or a sentence."""
    covariance = _symmetric("covariance_DD", covariance_DD)
    if len(covariance) != dimensions:
        raise InvalidArgumentError(
            f"expected a covariance of {dimensions} x {dimensions}, as the Hessian, got "
            f"{covariance.shape}"
        )
    least = float(np.linalg.eigvalsh(covariance)[0])
    if least < -1e-8 * float(np.abs(covariance).max()):
        raise InvalidArgumentError(
            f"expected a covariance without negative eigenvalues, got {least:.3g}: it is no "
            "covariance"
        )
    return covariance


def _symmetric(name: str, matrix_DD: ArrayLike) -> Float:
    """A matrix that equals its transpose but for rounding."""
    matrix = finite_array(name, matrix_DD, dimensions=2)
    if matrix.shape[0] != matrix.shape[1] or not np.allclose(
        matrix, matrix.T, rtol=0, atol=1e-8 * np.abs(matrix).max(initial=0)
    ):
        raise InvalidArgumentError(
            f"expected a symmetric {name}, got shape {matrix.shape} or unequal halves: average it "
            "with its transpose"
        )
    return np.asarray((matrix + matrix.T) / 2)


def _weights(curvature_K: Float, spread_KK: Float) -> Float:
    """Weights of the law, falling, where the error has this covariance along the directions."""
    root_K = np.sqrt(curvature_K)
    # Lambda^(1/2) Sigma Lambda^(1/2) has the eigenvalues of Sigma^(1/2) Lambda Sigma^(1/2), and
    # needs no root of Sigma.
    return np.asarray(
        np.linalg.eigvalsh(root_K[:, None] * spread_KK * root_K / 2)[::-1], dtype=np.float64
    )


def _check_step(step: float, low: float, high: float, where: str) -> None:
    """Refuse a step, or a step constant, with which there is no law of the gap."""
    if not low < step < high:
        bound = low if math.isinf(high) else high
        raise InvalidArgumentError(
            f"expected a step {where} = {bound:g}, got {step:g}: the iterates do not settle, or "
            "slower than 1/n"
        )


@frozen
class CovarianceParts:
    """The parts of the gradient's covariance at the optimum."""

    between_DD: (
        Float  # $C_p = Cov(g(X))$ between prompts, with whatever gradient a regulariser adds
    )
    first_DD: Float  # $C_1 = E\,\Sigma_o(X)$, one rollout of the oracle
    second_DD: Float  # $C_2 = E[F\sigma^2 + gg^T]$, the degenerate part of leave-one-out
    # $E[(V-c)^2F + 2(V-c)K]$ with $K = E[ss^Te|x]$, what a fixed baseline c adds to one rollout of
    # the oracle; with c = 0, no baseline
    offset_DD: Float

    def covariance(self, baseline: str, group_size: float, prompts: float) -> Float:
        """Return the covariance of a minibatch's gradient with the baseline leave_one_out,
        oracle or fixed.
        """
        within = self.first_DD / group_size
        if baseline == "leave_one_out":
            within = within + self.second_DD / (group_size * (group_size - 1))
        elif baseline == "fixed":
            within = within + self.offset_DD / group_size
        return np.asarray((self.between_DD + within) / prompts)


@frozen
class MatrixMoments:
    """The moments of every prompt that the covariance is made of."""

    value_P: Float  # V(x), reward units
    reward_variance_P: Float  # $\sigma^2(x)$
    fisher_PDD: Float  # $F = E[ss^T|x]$
    weighted_fisher_PDD: Float  # $K = E[ss^Te|x]$
    second_moment_PDD: Float  # $E[ss^Te^2|x]$
    gradient_PD: Float  # $g(x) = E[sZ|x]$, of the sampled reward


def covariance_parts(
    moments: MatrixMoments,
    *,
    added_gradient_PD: ArrayLike | None = None,
    constant: float = 0.0,
    weight_P: ArrayLike | None = None,
) -> CovarianceParts:
    r"""Return the parts of $\Omega$ from the moments of every prompt.

    Source: derived here (lab/docs/theory/gradient.md, as matrices); the $\Omega$ of the paper's
    Theorem 8 (2603.01162).
    """
    gradient, count = moments.gradient_PD, len(moments.value_P)
    weight = (
        np.full(count, 1 / count)
        if weight_P is None
        else finite_array("weight_P", weight_P, dimensions=1)
    )
    outer = gradient[:, :, None] * gradient[:, None, :]
    whole = (
        gradient
        if added_gradient_PD is None
        else gradient + finite_array("added_gradient_PD", added_gradient_PD, dimensions=2)
    )
    centred = whole - weight @ whole
    off = (moments.value_P - constant)[:, None, None]
    return CovarianceParts(
        between_DD=(weight[:, None] * centred).T @ centred,
        first_DD=np.tensordot(weight, moments.second_moment_PDD - outer, axes=1),
        second_DD=np.tensordot(
            weight, moments.fisher_PDD * moments.reward_variance_P[:, None, None] + outer, axes=1
        ),
        offset_DD=np.tensordot(
            weight, off**2 * moments.fisher_PDD + 2 * off * moments.weighted_fisher_PDD, axes=1
        ),
    )


@frozen
class GapComparison:
    """The limiting laws with three baselines, at one group size and number of prompts."""

    leave_one_out: LimitingGap  # GRPO without division by the deviation
    oracle: LimitingGap  # the true value as baseline
    fixed: LimitingGap  # a constant baseline, or none

    @property
    def weight_difference(self) -> Float:
        """Weights of leave-one-out less those of the oracle, sorted both; missing ones are zero."""
        size = max(len(self.leave_one_out.weight_K), len(self.oracle.weight_K))
        both = [
            np.pad(gap.weight_K, (0, size - len(gap.weight_K)))
            for gap in (self.leave_one_out, self.oracle)
        ]
        return np.asarray(both[0] - both[1])


def compare_final_gaps(
    parts: CovarianceParts,
    hessian_DD: ArrayLike,
    step_constant: float,
    *,
    group_size: float,
    prompts: float,
    factor: Factor = "corrected",
) -> GapComparison:
    """Return the limiting laws of leave-one-out, the oracle and a fixed baseline.

    Source: the paper's Corollaries 9 and 10 (2603.01162), with the factor mended.
    """
    covariances = (
        parts.covariance(name, group_size, prompts) for name in ("leave_one_out", "oracle", "fixed")
    )
    return GapComparison(
        *(
            limiting_gap(hessian_DD, covariance, step_constant, factor=factor)
            for covariance in covariances
        )
    )


def components_at_cost(parts: CovarianceParts, cost_DD: ArrayLike) -> tuple[float, float, float]:
    r"""Return $\mathrm{tr}(CC_p)$, $\mathrm{tr}(CC_1)$ and $\mathrm{tr}(CC_2)$ for any cost C of a
    unit of noise in each direction.

    With C of `cost_of_noise` the expected gap after n steps b/i is $[V_p' + T'/G +
    R'/(G(G-1))]/(Bn)$, so everything that is known of the gradient's error, the best group size $1
    + \sqrt{R'/V_p'}$ included, holds of the final gap.
    """
    cost = np.asarray(cost_DD, dtype=float)
    return (
        float((cost * parts.between_DD).sum()),
        float((cost * parts.first_DD).sum()),
        float((cost * parts.second_DD).sum()),
    )
