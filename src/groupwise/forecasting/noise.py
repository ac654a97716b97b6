r"""The noise around a curve: white plus first-order autoregressive, on any grid of times, in O(n).

The covariance of one series is $\sigma^2\Sigma_\eta$, $\Sigma_\eta = \rho\,K_\phi + (1-\rho)\,D$:
$K_\phi$ the AR(1) correlation $\phi^{|t_i-t_j|}$, whose inverse is tridiagonal, $D$ the relative
sampling variances, $\eta = (\rho, \phi)$. By Woodbury's identity every product with $\Sigma^{-1}$
is one tridiagonal solve. How much an interval must widen because $\eta$ is itself estimated follows
from averaging over a grid of shapes. It knows no law and no curve.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.linalg.lapack import dpttrf, dpttrs
from scipy.special import stdtr

from groupwise.arrays import Float
from groupwise.plain import frozen

# Normal equations lose half of the digits.
NORMAL_EQUATIONS = 1 / np.sqrt(np.finfo(float).eps)


def rounding(value_T: Float, *, condition: float) -> float:
    """Sum of squares that rounding alone leaves of values when a smooth curve is taken off: a
    residual no larger is no noise.

    Each value is known to eps of its size, and the curve to eps of its range times the condition of
    the equations solved for it.
    """
    unit = (
        4
        * np.finfo(float).eps
        * (float(np.abs(value_T).max()) + condition * float(np.ptp(value_T)))
    )
    return float(value_T.size * unit**2)


# Correlation over one typical gap between rows, and the share of the variance that is correlated.
CORRELATIONS = (0.15, 0.35, 0.55, 0.7, 0.8, 0.88, 0.94, 0.98)
SHARES = (0.4, 0.75, 1.0)


@frozen
class NoiseShape:
    """The shape of a noise."""

    correlation: float  # of the AR(1) part over one gap
    share: float  # of the AR(1) part in the variance
    gap: float = 1.0  # the typical time between rows
    prior: float = 1.0  # prior weight

    def after(self, distance: Float) -> Float:
        """Correlation of the AR(1) part over a distance in time."""
        return self.correlation ** (distance / self.gap)

    @property
    def neighbour(self) -> float:
        """Correlation of the whole noise of one row with the next."""
        return self.share * self.correlation

    @property
    def free(self) -> int:
        """How many numbers this shape took to describe."""
        return 0 if self.share == 0 else 1 if self.share == 1 else 2


# Prior masses of white noise, of AR(1) plus white, and of AR(1) alone, and how the prior leans to
# long correlation: density (1 - phi)^-1/2. Chosen by simulation so that intervals at n = 50 hold
# their level for white noise and for AR(1) .8 alike (lab/docs/theory/fit.md): short series cannot
# tell the two apart, so the prior decides who is served.
PRIOR = (0.6, 0.1, 0.3)
LEAN = 0.5


@lru_cache(maxsize=64)
def noise_shapes(gap: float) -> tuple[NoiseShape, ...]:
    """The grid of shapes over which the noise is averaged; `gap` is the median time between
    rows.
    """
    edges = np.concatenate(
        [[0.0], (np.array(CORRELATIONS[1:]) + np.array(CORRELATIONS[:-1])) / 2, [1.0]]
    )
    mass = np.diff(edges) / (1 - np.array(CORRELATIONS)) ** LEAN
    mass /= mass.sum()
    shapes = [NoiseShape(0.0, 0.0, gap, PRIOR[0])]
    for phi, weight in zip(CORRELATIONS, mass, strict=True):
        for share in SHARES:
            prior = weight * (PRIOR[2] if share == 1 else PRIOR[1] / (len(SHARES) - 1))
            shapes.append(NoiseShape(phi, share, gap, prior))
    return tuple(shapes)


class Whitener:
    """Products with the inverse covariance of one noise shape, up to the scale."""

    __slots__ = ("_diagonal", "_off", "_share", "_white", "log_determinant")

    def __init__(self, time_M: Float, relative_variance_M: Float, shape: NoiseShape) -> None:
        """Factor the covariance; times strictly increase, variances are positive with mean 1."""
        self._share = shape.share
        self._white = 1 / ((1 - shape.share) * relative_variance_M) if shape.share < 1 else None
        self.log_determinant = -float(np.log(self._white).sum()) if self._white is not None else 0.0
        if shape.share == 0:
            return
        diagonal, off, log_state = _slow_precision(
            np.log(shape.correlation) * (np.diff(time_M) / shape.gap)
        )
        self._diagonal, self._off = diagonal / shape.share, off / shape.share
        self.log_determinant += float(log_state) + time_M.size * np.log(shape.share)
        if self._white is not None:
            self._diagonal, self._off, _ = dpttrf(self._diagonal + self._white, self._off)
            self.log_determinant += float(np.log(self._diagonal).sum())

    def apply(self, columns_MK: Float) -> Float:
        """Return Sigma^-1 times the columns."""
        if self._white is None:
            out = self._diagonal[:, None] * columns_MK
            out[1:] += self._off[:, None] * columns_MK[:-1]
            out[:-1] += self._off[:, None] * columns_MK[1:]
            return np.asarray(out)
        weighted = self._white[:, None] * columns_MK
        if self._share == 0:
            return np.asarray(weighted)
        solved, _ = dpttrs(self._diagonal, self._off, weighted)
        return np.asarray(weighted - self._white[:, None] * np.asarray(solved))

    def gram(self, columns_MK: Float) -> Float:
        """Return columns' Sigma^-1 columns."""
        return columns_MK.T @ self.apply(columns_MK)


def _slow_precision(log_phi: Float) -> tuple[Float, Float, Float]:
    """Diagonal and off-diagonal of the inverse AR(1) correlation and the log determinant of the
    correlation, from log phi of each gap.
    """
    innovation = -np.expm1(2 * log_phi)
    excess = 1 / innovation - 1
    diagonal = np.ones((*log_phi.shape[:-1], log_phi.shape[-1] + 1))
    diagonal[..., 1:] += excess
    diagonal[..., :-1] += excess
    return diagonal, -np.exp(log_phi) / innovation, np.log(innovation).sum(-1)


@frozen
class NoisePosterior:
    """What the residuals of a linearised model say about the noise."""

    shapes: tuple[NoiseShape, ...]  # the grid
    weight_E: Float  # posterior weight of each shape, sums to 1
    log_likelihood_E: Float  # maximised log likelihood of each shape, scale profiled out
    scale_EP: Float  # standard error of each parameter under each shape
    shift_EP: Float  # by how much each estimate moves under each shape
    variance_E: Float  # variance of one observation under each shape
    best: int  # index of the heaviest shape
    rows: int  # rows seen
    freedom: int  # rows minus parameters

    @property
    def best_shape(self) -> NoiseShape:
        """The heaviest shape."""
        return self.shapes[self.best]

    @property
    def variance(self) -> float:
        """Variance of one observation under the heaviest shape."""
        return float(self.variance_E[self.best])

    @property
    def errors(self) -> Float:
        """Standard error of each parameter under the heaviest shape."""
        return np.asarray(self.scale_EP[self.best])

    def aicc(self, mean_parameters: int) -> float:
        """Smallest corrected Akaike criterion over the noise shapes, every estimated number
        counted.
        """
        count = mean_parameters + 1 + np.array([shape.free for shape in self.shapes])
        spare = self.rows - count - 1
        correction = np.where(spare > 0, 2 * count * (count + 1) / np.maximum(spare, 1), np.inf)
        return float((-2 * self.log_likelihood_E + 2 * count + correction).min())

    def widening(self, level: float) -> Float:
        """Half-width of the interval of each parameter in standard errors of the heaviest shape.

        The interval of the mixture of t distributions over the shapes; it exceeds Student's
        quantile by what not knowing the noise costs. Derived by us.
        """
        keep = self.weight_E > 1e-4 * self.weight_E.max()
        weight = self.weight_E[keep, None] / (2 * self.weight_E[keep].sum())
        scale, shift = self.scale_EP[keep], self.shift_EP[keep] - self.shift_EP[self.best]
        own = self.errors
        target, low, high = (
            0.5 + level / 2,
            np.zeros_like(own),
            3 * (scale * 4 + np.abs(shift)).max(0),
        )
        for _ in range(15):
            middle = (low + high) / 2
            below = (
                weight
                * (
                    stdtr(self.freedom, (middle - shift) / scale)
                    + stdtr(self.freedom, (middle + shift) / scale)
                )
            ).sum(0)
            low, high = (
                np.where(below < target, middle, low),
                np.where(below < target, high, middle),
            )
        return np.asarray((low + high) / (2 * own))


def noise_posterior(
    time_M: Float,
    relative_variance_M: Float,
    columns_MP: Float,
    residual_M: Float,
    *,
    gap: float,
    floor: float = 0.0,
) -> NoisePosterior:
    r"""Weigh every noise shape by the restricted likelihood of the residuals; at or below `floor`
    they are rounding and have no shape.

    $\ell_R(\eta) = -\frac12\log|\Sigma_\eta| - \frac12\log|J'\Sigma_\eta^{-1}J| - \frac{n-p}{2}\log
    S^2_\eta$.
    """
    shapes = noise_shapes(gap)
    p, n = columns_MP.shape[1], time_M.size
    grams, log_determinant = _all_grams(
        time_M, relative_variance_M, np.column_stack([columns_MP, residual_M]), gap
    )
    inner, right = grams[:, :p, :p], grams[:, :p, p]
    inverse = np.linalg.inv(inner)
    shift = (inverse @ right[:, :, None])[:, :, 0]
    left = grams[:, p, p] - (right * shift).sum(1)
    rest = np.maximum(left, floor + 1e-300)
    freedom = max(n - p, 1)
    log_weight = np.log([shape.prior for shape in shapes])
    if left[0] > floor:
        log_weight -= 0.5 * (log_determinant + np.linalg.slogdet(inner)[1] + freedom * np.log(rest))
    else:
        log_weight[1:] = -np.inf
    weight = np.exp(log_weight - log_weight.max())
    scale = np.sqrt(np.diagonal(inverse, axis1=1, axis2=2) * rest[:, None] / freedom)
    likelihood = -0.5 * (log_determinant + n * np.log(rest / n) + n * (1 + np.log(2 * np.pi)))
    return NoisePosterior(
        shapes,
        weight / weight.sum(),
        likelihood,
        scale,
        shift,
        rest / freedom,
        int(weight.argmax()),
        n,
        freedom,
    )


def _all_grams(
    time_M: Float, relative_variance_M: Float, columns_MP: Float, gap: float
) -> tuple[Float, Float]:
    """Gram matrix and log determinant under every one of `noise_shapes`; those that mix AR(1)
    and white are solved in one call.
    """
    n, p = columns_MP.shape
    log_phi = np.log(CORRELATIONS)[:, None] * (np.diff(time_M) / gap)
    # AR(1) alone: innovations are independent.
    scale = np.sqrt(-np.expm1(2 * log_phi))[:, :, None]
    innovation_CMP = (columns_MP[1:] - np.exp(log_phi)[:, :, None] * columns_MP[:-1]) / scale
    alone = innovation_CMP.transpose(0, 2, 1) @ innovation_CMP + np.outer(
        columns_MP[0], columns_MP[0]
    )

    diagonal_CM, off_CM, log_state_C = _slow_precision(log_phi)
    share_S1 = np.array(SHARES[:-1])[:, None]
    white_SM = 1 / ((1 - share_S1) * relative_variance_M)
    diagonal = (diagonal_CM[:, None] / share_S1 + white_SM).ravel()
    # A zero at the end of each row of `off` decouples the stacked systems.
    off = np.zeros((len(CORRELATIONS), len(share_S1), n))
    off[:, :, :-1] = off_CM[:, None] / share_S1
    factor, lower, _ = dpttrf(diagonal, off.ravel()[:-1])
    weighted_PSM = columns_MP.T[:, None] * white_SM
    # The solver wants one column after another, which is how they lie here.
    right_PCSM = np.broadcast_to(weighted_PSM[:, None], (p, *off.shape)).copy()
    solved = dpttrs(factor, lower, right_PCSM.reshape(p, -1).T, overwrite_b=1)[0]
    solved_CSPM = solved.T.reshape(right_PCSM.shape).transpose(1, 2, 0, 3)
    weighted_SMP = weighted_PSM.transpose(1, 2, 0)
    mixed = columns_MP.T @ weighted_SMP - solved_CSPM @ weighted_SMP

    gram_CS = np.concatenate([mixed, alone[:, None]], 1)
    log_factor = (
        np.log(factor).reshape(off.shape).sum(2)
        + n * np.log(share_S1[:, 0])
        - np.log(white_SM).sum(1)
    )
    log_CS = log_state_C[:, None] + np.concatenate(
        [log_factor, np.zeros((len(CORRELATIONS), 1))], 1
    )
    white = (columns_MP / relative_variance_M[:, None]).T @ columns_MP
    log_white = np.log(relative_variance_M).sum(keepdims=True)
    return np.concatenate([white[None], gram_CS.reshape(-1, p, p)]), np.concatenate(
        [log_white, log_CS.ravel()]
    )


def correlations(value_T: Float) -> tuple[float, float]:
    """Return the autocorrelation at the first two lags."""
    power = float(value_T @ value_T)
    first, second = (float(value_T[lag:] @ value_T[:-lag]) / power for lag in (1, 2))
    return first, second


def moment_shape(residual_M: Float, *, gap: float) -> NoiseShape:
    """The shape on the grid that fits the first two residual autocorrelations: a place to start."""
    shapes = noise_shapes(gap)
    if residual_M @ residual_M <= 0 or residual_M.size < 6:
        return shapes[0]
    first, second = correlations(residual_M)
    if first < 2 / np.sqrt(residual_M.size):
        return shapes[0]
    distance = [
        (shape.neighbour - first) ** 2 + (shape.neighbour * shape.correlation - second) ** 2
        for shape in shapes
    ]
    return shapes[int(np.argmin(distance))]
