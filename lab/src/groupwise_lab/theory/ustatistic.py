r"""The policy gradient of one group as a U-statistic of order two: closed form, general kernel,
Hoeffding's decomposition.

With scores $s_i$ and rewards $Z_i$ the leave-one-out gradient is the mean over pairs of $h(i,j) =
(s_i - s_j)(Z_i - Z_j)/2$. Everything here works for vectors, one entry a parameter. It estimates no
variance from data; that is `components`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from groupwise.arrays import Float, finite_array
from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.plain import frozen

Observation = TypeVar("Observation")


@frozen
class Hoeffding:
    """The two uncorrelated parts of the error of a leave-one-out gradient."""

    linear_D: Float  # the projection, which is the error of the oracle estimator
    degenerate_D: Float  # what is left; its mean given any one rollout is zero


def leave_one_out_gradient(score_GD: ArrayLike, reward_G: ArrayLike) -> Float:
    r"""Return the leave-one-out gradient of one group, or of many of the same size, in O(G).

    $U = \frac{1}{G-1}\sum_i s_i (Z_i - \bar Z)$, the mean over i of $s_i$ times the leave-one-out
    advantage $Z_i - \frac{1}{G-1}\sum_{j \ne i} Z_j$.

    Source: the paper's Lemma 1 (2603.01162).
    """
    score, reward = _group(score_GD, reward_G)
    centred = reward - reward.mean(axis=-1, keepdims=True)
    return np.asarray(np.matmul(centred[..., None, :], score)[..., 0, :] / (reward.shape[-1] - 1))


def gradient_kernel(first: tuple[ArrayLike, float], second: tuple[ArrayLike, float]) -> Float:
    r"""Return the kernel of two rollouts, $h = (s_1 - s_2)(Z_1 - Z_2)/2$; each is its score and its
    reward.

    Source: the paper's Lemma 1 (2603.01162).
    """
    (score_1, reward_1), (score_2, reward_2) = first, second
    return np.asarray(
        (np.asarray(score_1, dtype=float) - np.asarray(score_2, dtype=float))
        * (reward_1 - reward_2)
        / 2
    )


def u_statistic(
    kernel: Callable[..., ArrayLike], samples: Sequence[Observation], order: int
) -> Float:
    r"""Return the mean of a symmetric kernel over all subsets of the sample: the definition, in
    O(n^order).

    $U = \binom{n}{k}^{-1}\sum_{i_1 < \dots < i_k} h(x_{i_1}, \dots, x_{i_k})$

    Source: Hoeffding (1948), Annals of Mathematical Statistics 19, 293-325.
    """
    if order < 1:
        raise InvalidArgumentError(
            f"expected a kernel of at least one sample, got order {order}: give the number of its "
            "arguments"
        )
    if len(samples) < order:
        raise InsufficientDataError(
            f"expected at least {order} samples for a kernel of order {order}, got {len(samples)}: "
            "sample more"
        )
    values = [np.asarray(kernel(*subset), dtype=float) for subset in combinations(samples, order)]
    return np.asarray(np.mean(values, axis=0))


def hoeffding(
    score_GD: ArrayLike, reward_G: ArrayLike, value: float, gradient_D: ArrayLike
) -> Hoeffding:
    r"""Split the error of a leave-one-out gradient into the oracle's error and the degenerate part.

    With $e_i = Z_i - V$: $U - g = \frac1G\sum_i (s_i e_i - g) + \frac{1}{G(G-1)}\sum_{i \ne
    j}\zeta_2(i,j)$, $\zeta_2(i,j) = -(s_i e_j + s_j e_i)/2$.

    Source: the paper's proof of Theorem 2 for the projection, whose $2 h_1 = s e$ lacks $g$: it is
    $2 h_1 - g = s e$.
        The explicit degenerate part is derived here (lab/docs/theory/gradient.md).
    """
    score, reward = _group(score_GD, reward_G)
    gradient = finite_array("gradient_D", gradient_D, dimensions=1)
    if gradient.shape != score.shape[-1:]:
        raise InvalidArgumentError(
            f"expected a gradient of {score.shape[-1]} entries, got {gradient.shape[0]}: one a "
            "parameter"
        )
    size = reward.shape[-1]
    error = reward - value
    paired = np.matmul(error[..., None, :], score)[..., 0, :]
    crossed = score.sum(axis=-2) * error.sum(axis=-1)[..., None] - paired
    return Hoeffding(paired / size - gradient, -crossed / (size * (size - 1)))


def kernel_variances(oracle: ArrayLike, degenerate: ArrayLike) -> tuple[Float, Float]:
    r"""Return the variances of the classical formula, $\zeta_1 = \Sigma_o/4$ and $\zeta_2 =
    \Sigma_o/2 + (F\sigma^2 + g g^T)/2$.

    Source: derived here; checked by enumeration (tests/theory/test_ustatistic.py).
    """
    sigma = np.asarray(oracle, dtype=float)
    return sigma / 4, sigma / 2 + np.asarray(degenerate, dtype=float) / 2


def u_statistic_variance(zeta_1: ArrayLike, zeta_2: ArrayLike, group_size: ArrayLike) -> Float:
    r"""Return the variance of a U-statistic of order two, a number or a matrix.

    $Var(U) = \frac{2}{G(G-1)}[2(G-2)\zeta_1 + \zeta_2]$

    Source: Hoeffding (1948), Annals of Mathematical Statistics 19, 293-325.
    """
    size = np.asarray(group_size, dtype=float)
    if not (size >= 2).all():
        raise InsufficientDataError(
            f"expected groups of at least 2 rollouts, got {size.min():g}: a pair needs two"
        )
    return np.asarray(
        2
        * (2 * (size - 2) * np.asarray(zeta_1, dtype=float) + np.asarray(zeta_2, dtype=float))
        / (size * (size - 1))
    )


def _group(score_GD: ArrayLike, reward_G: ArrayLike) -> tuple[Float, Float]:
    """Scores and rewards of groups, checked."""
    score = finite_array("score_GD", score_GD, dimensions=max(2, np.ndim(score_GD)))
    reward = finite_array("reward_G", reward_G, dimensions=score.ndim - 1)
    if reward.shape != score.shape[:-1]:
        raise InvalidArgumentError(
            f"expected one reward a score, got {reward.shape} rewards for {score.shape} scores: "
            "one row a rollout"
        )
    if reward.shape[-1] < 2:
        raise InsufficientDataError(
            "expected groups of at least 2 rollouts, got 1: leave-one-out has nothing to compare "
            "it with"
        )
    return score, reward
