r"""What a curve will be where no law is trusted: Gaussian processes, each weighed by what it says
of the rows seen.

A row is $y_i = \ell + f(t_i) + \sigma e_i$ with a level $\ell$ of which nothing is known, a curve
$f$ with one covariance $\sigma^2 k(t, t')$ of a fixed list, and noise of unknown size. Level and
size are integrated out, so that each covariance foretells a Student t. Time is counted in rows, and
each covariance stretches with the rows seen. Those of a mean that wanders, Brownian motion in plain
time, also foretell alone. Derived by us from standard parts (Rasmussen and Williams 2006, sections
2.7 and 5.4).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.special import ndtr

from groupwise.arrays import Flags, Float
from groupwise.plain import frozen

Kernel = Callable[[Float, Float], Float]  # covariance of the curve at two places, entry by entry

BLOCKS = 40
# Variance of the curve over the rows seen, in variances of the noise of a row.
_SIGNALS = 10.0 ** np.array([-2.0, -1.0, -0.3, 0.3, 1.0, 2.0])
_CLOCKS = (np.inf, 5.0, 50.0)  # rows after which time begins to count by its logarithm
_RATES = (1.0, 4.0)  # at which a trend is forgotten, in one over the rows seen
_APPROACHES = (
    0.1,
    0.2,
    0.4,
    0.8,
    1.6,
    3.2,
)  # time constants of an exponential approach, in the rows seen
_WALKS = (0.03, 0.3)  # share of a walk beside an approach
_SPELL = 0.08  # correlation time of slow noise, in the rows seen
_SLOW = (0.0, 0.3)  # its variance, in variances of the noise of a row
_LEAST = 0.001  # weight below which a covariance is left out, as a share of the largest
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(3)


@frozen
class Foresight:
    """What is foretold of several means: a mixture of Student t's."""

    weight_K: Float  # of each covariance that the rows leave, sums to 1
    mean_KS: Float
    scale_KS: Float
    freedom: int

    def part(self, some: slice) -> Foresight:
        """Of some of the means."""
        return replace(self, mean_KS=self.mean_KS[:, some], scale_KS=self.scale_KS[:, some])

    def quantile(self, probability: float) -> Float:
        """Quantile of each mean, by bisection."""
        reach = 30 * self.scale_KS
        low, high = (self.mean_KS - reach).min(0), (self.mean_KS + reach).max(0)
        for _ in range(26):
            middle = (low + high) / 2
            below = (
                self.weight_K @ student(self.freedom, (middle - self.mean_KS) / self.scale_KS)
                < probability
            )
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return np.asarray((low + high) / 2)


def student(freedom: int, t: Float) -> Float:
    """Distribution function of Student's t by Wallace's (1959) normal approximation, within .001
    from 5 degrees of freedom on.
    """
    normal = (8 * freedom + 1) / (8 * freedom + 3) * np.sqrt(freedom * np.log1p(t * t / freedom))
    return np.asarray(ndtr(np.copysign(normal, t)))


def foresee(
    row_T: Float, value_T: Float, at_S: Float, width_S: Float, count_S: Float
) -> tuple[Foresight, Foresight]:
    """Foretell means over stretches of rows, by every covariance and by those of a mean that
    wanders.

    Args:
        row_T: place of each row seen, in rows, from 0.
        value_T: the rows.
        at_S: middle of each stretch.
        width_S: its length in rows, 0 for a point.
        count_S: rows that are averaged there; inf for the curve itself, without noise.
    """
    block, count, within = _blocks(row_T, value_T)
    kernels, signal_KJ = covariances(row_T[-1] + 1)
    seen = np.stack([kernel(block[0][:, None], block[0]) for kernel in kernels])
    covariance = np.tensordot(signal_KJ, seen, 1) + np.diag(1 / count)
    freedom = value_T.size - 1
    ones, value = np.ones(count.size), block[1] - block[1].mean()
    solved = np.linalg.solve(covariance, np.stack([ones, value], 1))
    information, level = solved[:, :, 0] @ ones, solved[:, :, 0] @ value
    level = level / information
    # Rounding alone keeps rows from lying on a curve exactly.
    error = (
        np.maximum(solved[:, :, 1] @ value - level**2 * information, 0)
        + within
        + 1e-20 * float(value_T @ value_T)
        + 1e-300
    )
    root = np.diagonal(np.linalg.cholesky(covariance), axis1=1, axis2=2)
    likelihood = -np.log(root).sum(1) - 0.5 * (np.log(information) + freedom * np.log(error))
    walk = signal_KJ.sum(1) == signal_KJ[:, 0]  # in plain time, and without slow noise
    parts = [_weighed(likelihood, among) for among in (np.ones_like(walk), walk)]
    left = sum(parts) > 0
    ahead, own = _stretches(kernels, block[0], at_S, width_S)
    cross = np.tensordot(signal_KJ[left], ahead, 1)
    regression = np.linalg.solve(covariance[left], cross)
    unknown = (1 - regression.sum(1)) ** 2 / information[left, None]
    variance = signal_KJ[left] @ own - (cross * regression).sum(1) + unknown + 1 / count_S
    mean = (
        level[left, None]
        + np.einsum("kms,km->ks", regression, value - level[left, None])
        + block[1].mean()
    )
    scale = np.sqrt(np.maximum(variance, 1e-12) * (error[left] / freedom)[:, None])
    every, wandering = (Foresight(weight[left], mean, scale, freedom) for weight in parts)
    return every, wandering


def _weighed(likelihood_K: Float, among_K: Flags) -> Float:
    """Weight of each covariance among some, sums to 1."""
    weight = np.where(among_K, np.exp(likelihood_K - likelihood_K[among_K].max()), 0.0)
    weight[weight <= _LEAST] = 0.0
    return np.asarray(weight / weight.sum())


def _blocks(row_T: Float, value_T: Float) -> tuple[Float, Float, float]:
    """Mean place and mean value of each block, its count, and the squares that lie within
    blocks.
    """
    some = min(value_T.size, BLOCKS)
    start = np.arange(some) * value_T.size // some
    count = np.diff(np.append(start, value_T.size))
    block = np.add.reduceat(np.stack([row_T, value_T]), start, axis=1) / count
    rest = value_T - np.repeat(block[1], count)
    return block, count.astype(float), float(rest @ rest)


def covariances(seen: float) -> tuple[list[Kernel], Float]:
    """Kernels of unit size over the rows seen, and how much of each every covariance of the list
    has, shape (K, J).
    """
    walks = [_walk(clock, seen) for clock in _CLOCKS]
    trends = [_trend(clock, rate, seen) for clock in _CLOCKS for rate in _RATES]
    approaches = [_approach(part, seen) for part in _APPROACHES]
    kernels = [*walks, *trends, *approaches, _spell(_SPELL * seen)]
    unit = np.eye(len(kernels))
    moving = range(len(walks) + len(trends))
    free = [
        signal * unit[j] + slow * unit[-1] for j in moving for signal in _SIGNALS for slow in _SLOW
    ]
    lawful = [
        signal * (unit[len(moving) + j] + share * unit[0])
        for j in range(len(approaches))
        for signal in _SIGNALS
        for share in _WALKS
    ]
    return kernels, np.array(free + lawful)


def _warped(clock: float, row: Float, seen: float) -> Float:
    """Time that counts by its logarithm after some rows, 1 at the end of the rows seen."""
    return row / seen if np.isinf(clock) else np.log1p(row / clock) / np.log1p(seen / clock)


def _walk(clock: float, seen: float) -> Kernel:
    """Brownian motion in warped time."""
    return lambda a, b: np.minimum(_warped(clock, a, seen), _warped(clock, b, seen))


def _trend(clock: float, rate: float, seen: float) -> Kernel:
    """The integral of an Ornstein-Uhlenbeck velocity in warped time: a trend that is forgotten."""

    def kernel(a: Float, b: Float) -> Float:
        """Of unit variance at the end of the rows seen."""
        u, v = rate * _warped(clock, a, seen), rate * _warped(clock, b, seen)
        covariance = 2 * np.minimum(u, v) - 1 + np.exp(-u) + np.exp(-v) - np.exp(-np.abs(u - v))
        return np.asarray(covariance / (2 * (rate - 1 + np.exp(-rate))))

    return kernel


def _approach(constant: float, seen: float) -> Kernel:
    """An exponential approach of unknown height, of unit variance where the rows seen end."""

    def way(row: Float) -> Float:
        """Part of the way that is done."""
        return np.asarray(np.expm1(-row / (constant * seen)) / np.expm1(-1 / constant))

    return lambda a, b: way(a) * way(b)


def _spell(constant: float) -> Kernel:
    """Slow noise: good and bad spells of this length."""
    return lambda a, b: np.exp(-np.abs(a - b) / constant)


def _stretches(
    kernels: list[Kernel], row_M: Float, at_S: Float, width_S: Float
) -> tuple[Float, Float]:
    """Covariance of each stretch with each block, (J, M, S), and with itself, (J, S), under
    every kernel; by quadrature.
    """
    node = at_S[:, None] + width_S[:, None] / 2 * _NODES
    weight = _WEIGHTS / 2
    ahead = np.stack([kernel(row_M[:, None, None], node) @ weight for kernel in kernels])
    own = np.stack(
        [kernel(node[:, :, None], node[:, None, :]) @ weight @ weight for kernel in kernels]
    )
    return ahead, own
