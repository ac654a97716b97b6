r"""How many of a number of rollouts each prompt deserves: the allocation of least variance of the
gradient, over whole numbers.

With $n_x \ge 2$ rollouts of prompt x, the mean over prompts of their leave-one-out gradients has no
bias. Given the prompts its variance is $\frac1{B^2}\sum_x v_x(n_x)$ with $v_x(n) = \frac{T_o(x)}{n}
+ \frac{R(x)}{n(n-1)}$. It says nothing of which prompts to sample.
"""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import ArrayLike

from groupwise.arrays import Float, Whole, finite_array
from groupwise.errors import InvalidArgumentError

_FEWEST = 2  # rollouts of a prompt: a leave-one-out gradient takes two


def optimal_allocation(t_P: ArrayLike, r_P: ArrayLike, rollouts: int) -> Whole:
    r"""Return the rollouts of each prompt, at least two, for which the gradient's variance is
    least.

    The rollout after n saves $v_x(n) - v_x(n+1) = \frac{T_o(x)}{n(n+1)} +
    \frac{2R(x)}{(n-1)n(n+1)}$, which falls with n; so the optimum gives each rollout in turn to the
    prompt where it saves most (Fox 1966). Where all are many, $n_x \propto \sqrt{T_o(x)}$ (Neyman
    1934).

    Source: derived here from $Var(U|x)$ of lab/docs/theory/gradient.md.
    """
    t, r = finite_array("t_P", t_P, dimensions=1), finite_array("r_P", r_P, dimensions=1)
    if t.shape != r.shape or (t < 0).any() or (r < 0).any():
        raise InvalidArgumentError("expected a T and an R of at least 0 for every prompt")
    if rollouts < _FEWEST * len(t):
        raise InvalidArgumentError(
            f"expected at least {_FEWEST} rollouts for each of {len(t)} prompts, got {rollouts}: "
            "give more"
        )
    # Floats of Python, which are a third of numpy's work one by one.
    terms, given = list(zip(t.tolist(), r.tolist(), strict=True)), [_FEWEST] * len(t)
    # of equal savings the first prompt's
    waiting = [(-_saved(*term, _FEWEST), x) for x, term in enumerate(terms)]
    heapq.heapify(waiting)
    for _ in range(rollouts - sum(given)):
        _, x = waiting[0]
        given[x] += 1
        heapq.heapreplace(waiting, (-_saved(*terms[x], given[x]), x))
    return np.array(given, dtype=np.int64)


def _saved(t: float, r: float, n: int) -> float:
    """Return by how much the rollout after n lowers the variance of a prompt's gradient."""
    return t / (n * (n + 1)) + 2 * r / ((n - 1) * n * (n + 1))


def allocation_by_spread(variance_P: ArrayLike, rollouts: int) -> Whole:
    r"""Return the allocation by the variance $\sigma_x^2$ of each prompt's reward alone, as if
    every prompt's scores had one norm.

    Where a score is independent of its reward and $|g(x)|^2$ is small beside $S_2\sigma_x^2$, $T_o
    = R = S_2\sigma_x^2$ and $v_x(n) = \frac{S_2\sigma_x^2}{n-1}$, so that $n_x - 1 \propto
    \sigma_x$. Of a variance that is uncertain its mean is what counts: the variance of the gradient
    is linear in it.

    Source: derived here; the proportion is that of Neyman (1934), one rollout a prompt being spent
    on its baseline.
    """
    variance = finite_array("variance_P", variance_P, dimensions=1)
    return optimal_allocation(variance, variance, rollouts)


def shrunk_variance(squares_P: Float, count_P: Float) -> Float:
    r"""Return each prompt's variance, drawn towards that of all prompts by the weight of one
    rollout.

    $\tilde\sigma_x^2 = \frac{\sum_i (Z_i - \bar Z)^2 + \sigma_0^2}{m_x}$ with $\sigma_0^2$ the mean
    variance within prompts: a group whose rewards are equal does not show that they always are.
    """
    freedom = np.maximum(count_P - 1, 0)
    pooled = squares_P.sum() / max(float(freedom.sum()), 1.0)
    return np.asarray((squares_P + pooled) / (freedom + 1))
