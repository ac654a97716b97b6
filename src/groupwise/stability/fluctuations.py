r"""How far the mean reward of a settled run swings about its fixed point, and what its swings announce.

Gradient noise of variance $s^2$ a batch drives each mode; its stationary variance is temperature over stiffness, exactly a discrete
Lyapunov equation. $s^2$ is the error of the batch's gradient *along the mode*: traces over all parameters are far too large. It fits no
curve: slow and white parts of a log come from the fit's noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.intervals import Interval, finite_or_none
from groupwise.stability.stationary import stationary_covariance, stationary_variance

__all__ = [
    "EarlyWarning",
    "GroupSizeTest",
    "Swings",
    "early_warning",
    "group_size_test",
    "reward_band",
    "reward_band_of_modes",
    "stationary_covariance",
    "stationary_variance",
    "swings",
    "temperature_over_stiffness",
    "variance_ratio",
]


def temperature_over_stiffness(force: float, damping: float, *, learning_rate: float, noise_variance: float) -> float:
    r"""Return the leading-order variance, $\eta^2 s^2/(2 a\gamma) = \eta s^2/(2K\gamma)$.

    Source: arXiv 2606.30789 (fluctuation as a temperature that falls as 1/G); the constant is derived here.

    Example:
        >>> temperature_over_stiffness(0.1, 1.0, learning_rate=1.0, noise_variance=1.0)
        5.0
    """
    return learning_rate**2 * noise_variance / (2 * force * damping) if damping > 0 else math.inf


def reward_band(
    vp: float,
    t: float,
    r: float,
    *,
    group_size: int,
    prompts: int,
    force: float,
    momentum: float,
    learning_rate: float,
    gain: float,
    refresh_interval: int = 1,
    lag: str = "none",
    reward_variance: float = 0.0,
    value_variance: float = 0.0,
) -> tuple[float, float]:
    r"""Return the standard deviation of a settled run's true mean reward, and of the measured batch mean, with nothing fitted.

    $s^2 = (V_p + T/G + R/(G(G-1)))/B$ drives the mode; the reward moves by `gain` a unit of the mode's coordinate. The measured mean
    adds $\sigma^2/(BG)$ of rollouts and the prompts' $Var(V)/B$.

    Source: derived here: the link between arXiv 2603.01162 and 2606.30789.

    Example:
        >>> true, measured = reward_band(0, 1, 1, group_size=8, prompts=4, force=0.1, momentum=0.0, learning_rate=0.1, gain=0.2)
        >>> true == measured
        True
    """
    if group_size < 2 or prompts < 1:
        raise InvalidArgumentError(f"expected a group size of at least 2 and at least one prompt, got {group_size} and {prompts}")
    noise = _error_of_one_group(vp, t, r, group_size) / prompts
    mode = stationary_variance(
        force, momentum, learning_rate=learning_rate, noise_variance=max(noise, 0.0), refresh_interval=refresh_interval, lag=lag
    )
    true = gain**2 * mode
    return math.sqrt(true), math.sqrt(true + reward_variance / (prompts * group_size) + value_variance / prompts)


def reward_band_of_modes(
    gain_M: ArrayLike,
    force_M: ArrayLike,
    momentum: float,
    *,
    learning_rate: float,
    noise_covariance_MM: ArrayLike,
    refresh_interval: int = 1,
    lag: str = "none",
) -> float:
    r"""Return the standard deviation of a settled run's true mean reward where it shows several modes, $\sqrt{g^T C g}$.

    Source: derived here.

    Example:
        >>> round(reward_band_of_modes([0.2], [0.1], 0.0, learning_rate=1.0, noise_covariance_MM=[[1.0]]), 3)
        0.459
    """
    gain = np.asarray(gain_M, dtype=np.float64)
    if gain.shape != np.asarray(force_M).shape:
        raise InvalidArgumentError(f"expected one gain a mode, got shapes {gain.shape} and {np.asarray(force_M).shape}")
    covariance = stationary_covariance(
        force_M,
        momentum,
        learning_rate=learning_rate,
        noise_covariance_MM=noise_covariance_MM,
        refresh_interval=refresh_interval,
        lag=lag,
    )
    return math.sqrt(float(gain @ covariance @ gain)) if np.isfinite(covariance).all() else math.inf


def variance_ratio(vp: float, t: float, r: float, group_size: int, other: int) -> float:
    r"""Return by what the fluctuation's variance falls from one group size to another at fixed B: 1/G only if T alone counts.

    Source: derived here; $20(3+\rho)/(15+\rho)$ for 4 : 16 with $\rho = R/T$ and no part between prompts.

    Example:
        >>> variance_ratio(0.0, 1.0, 1.0, 4, 16)
        5.0
    """
    if min(group_size, other) < 2:
        raise InvalidArgumentError(f"expected group sizes of at least 2, got {min(group_size, other)}")
    return _error_of_one_group(vp, t, r, group_size) / _error_of_one_group(vp, t, r, other)


def _error_of_one_group(vp: float, t: float, r: float, size: float) -> float:
    """Variance of the gradient of one prompt with G rollouts."""
    return vp + t / size + r / (size * (size - 1))


@dataclass(frozen=True, slots=True)
class GroupSizeTest:
    """Fluctuations at several group sizes against 1/G and against the exact law."""

    exponent: Interval  # b of variance ~ G^-b, with its interval
    status: str  # a sentence
    # what the gradient's components lead to over these group sizes; NaN where they were not given
    expected_exponent: float = math.nan

    def as_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        plain = {"exponent": self.exponent.as_dict(), "expected_exponent": finite_or_none(self.expected_exponent)}
        return {**plain, "status": self.status}


def group_size_test(
    group_size_M: ArrayLike,
    variance_M: ArrayLike,
    rows_M: ArrayLike,
    *,
    components: tuple[float, float, float] | None = None,
    level: float = 0.95,
) -> GroupSizeTest:
    r"""Return the exponent b of $Var \propto G^{-b}$ from settled runs, to be held against 1.

    A variance from n effective rows has a relative error of $\sqrt{2/n}$; the fit weighs by it.

    Source: derived here. Known deviations: R/T, the part between prompts, and with division by the deviation the step itself.

    Example:
        >>> group_size_test([4, 16], [0.04, 0.01], [200, 200]).exponent.covers(1.0)
        True
    """
    from scipy.special import ndtri

    size, variance, rows = (np.asarray(values, dtype=np.float64) for values in (group_size_M, variance_M, rows_M))
    if not ((size > 1).all() and (variance > 0).all() and (rows > 0).all()):
        raise InvalidArgumentError("expected group sizes above 1, variances and numbers of rows above 0")
    if len(np.unique(size)) < 2:
        raise InsufficientDataError(f"expected runs at two or more group sizes, got {len(np.unique(size))}")
    weight = rows / 2
    x, y = np.log(size), np.log(variance)
    x = x - weight @ x / weight.sum()
    precision = float(weight @ x**2)
    slope, half = -float((weight * x) @ y) / precision, float(ndtri(0.5 + level / 2)) / math.sqrt(precision)
    exponent = Interval(slope, slope - half, slope + half, level)
    verdict = "agrees with 1/G" if exponent.covers(1.0) else "falls faster than 1/G" if exponent.low > 1 else "falls slower than 1/G"
    status = f"The variance goes as G^-{slope:.2f} ({exponent.low:.2f} to {exponent.high:.2f}): it {verdict}."
    if components is None:
        return GroupSizeTest(exponent, status)
    vp, t, r = components
    law = np.array([_error_of_one_group(vp, t, r, float(one)) for one in size])
    if not (np.isfinite(law) & (law > 0)).all():
        raise InvalidArgumentError("expected components whose error of the gradient is positive at every group size")
    expected = -float((weight * x) @ np.log(law)) / precision
    return GroupSizeTest(
        exponent,
        f"{status} The components lead to G^-{expected:.2f}, which {'agrees' if exponent.covers(expected) else 'differs'}.",
        expected,
    )


@dataclass(frozen=True, slots=True)
class Swings:
    """The swing of a run's true mean reward, after the sampling noise of its batches."""

    variance: Interval  # of the true mean reward, with its interval; low end not below 0
    sampling_variance: float  # what was taken off
    rows: float  # effective number of independent rows behind the variance, for `group_size_test`
    status: str  # a sentence

    def as_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        plain = {"variance": self.variance.as_dict(), "sampling_variance": self.sampling_variance, "rows": self.rows}
        return {**plain, "status": self.status}


def swings(residual_T: ArrayLike, *, sampling_variance: float, level: float = 0.95) -> Swings:
    r"""Return the variance of the true mean reward: that of the measured one less its sampling noise $\sigma^2/(BG) + Var(V)/B$.

    The sampling noise is independent from row to row, so it adds to the variance and to nothing else. The error of the variance is
    $\sqrt{2\sum_{|h|\le H}c_h^2/n}$, with the autocovariances $c_h$ up to the first that falls into noise.

    Source: derived here; Bartlett's formula for the error.

    Example:
        >>> noise = np.random.default_rng(1).standard_normal(2000)
        >>> swings(noise, sampling_variance=1.0).variance.covers(0.0)
        True
    """
    from scipy.special import ndtri

    residual = np.asarray(residual_T, dtype=np.float64)
    if residual.ndim != 1 or not np.isfinite(residual).all():
        raise InvalidArgumentError("expected a list of finite residuals, evenly spaced")
    if not (math.isfinite(sampling_variance) and sampling_variance >= 0):
        raise InvalidArgumentError(f"expected a sampling variance of at least 0, got {sampling_variance:g}")
    n = len(residual)
    if n < 50:
        raise InsufficientDataError(f"expected at least 50 rows of a settled run, got {n}")
    centred = residual - residual.mean()
    covariance = np.array([centred[: n - lag] @ centred[lag:] for lag in range(n // 4)]) / n
    noisy = np.abs(covariance) < 2 * covariance[0] / math.sqrt(n)
    # Two in a row below the noise: an oscillation crosses zero without having ended.
    ended = np.flatnonzero(noisy[:-1] & noisy[1:])
    reach = int(ended[0]) if len(ended) else len(covariance)
    error = math.sqrt(2 * float(covariance[0] ** 2 + 2 * covariance[1:reach] @ covariance[1:reach]) / n)
    # The mean was estimated too: its own variance is missing from that of the rows.
    total = covariance[0] + max(float(covariance[0] + 2 * covariance[1:reach].sum()), 0.0) / n
    value, half = float(total) - sampling_variance, float(ndtri(0.5 + level / 2)) * error
    swing = Interval(value, max(value - half, 0.0), value + half, level)
    status = f"The true mean reward swings by {math.sqrt(max(value, 0.0)):.3g} about its mean, of {math.sqrt(float(total)):.3g} measured."
    if value <= half:
        status = "The measured swings are no more than sampling noise allows: the true mean's cannot be told from none."
    return Swings(swing, sampling_variance, 2 * (max(value, 0.0) / error) ** 2 if error > 0 else 0.0, status)


@dataclass(frozen=True, slots=True)
class EarlyWarning:
    """Whether swings grow larger and slower along a run, as they do on the way to instability."""

    variance_trend: float  # Kendall's tau of the variance over windows
    correlation_trend: float  # Kendall's tau of the lag-1 correlation over windows
    # chance of trends as strong, or stronger, in a run that does not change (Bonferroni over both, one-sided)
    p_value: float
    windows: int  # how many
    status: str  # a sentence

    def as_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        trends = {"variance_trend": finite_or_none(self.variance_trend), "correlation_trend": finite_or_none(self.correlation_trend)}
        return {**trends, "p_value": self.p_value, "windows": self.windows, "status": self.status}


def early_warning(residual_T: ArrayLike, *, windows: int = 10, level: float = 0.05) -> EarlyWarning:
    """Test whether the residuals of a fitted mean swing wider or slower as the run goes on.

    Windows do not overlap, so that their ranks are exchangeable where nothing changes.

    Source: critical slowing down as in Scheffer et al. (2009), Nature 461; the test is ours.

    Example:
        >>> early_warning(np.random.default_rng(1).standard_normal(400)).p_value > 0.05
        True
    """
    from scipy.stats import kendalltau

    residual = np.asarray(residual_T, dtype=np.float64)
    residual = residual[np.isfinite(residual)]
    if windows < 5:
        raise InvalidArgumentError(f"expected at least 5 windows, got {windows}")
    if len(residual) < 20 * windows:
        raise InsufficientDataError(f"expected at least {20 * windows} rows for {windows} windows, got {len(residual)}")
    parts = np.array_split(residual, windows)
    spread = [float(part.var()) for part in parts]
    memory = [float(np.corrcoef(part[1:], part[:-1])[0, 1]) if part.std() > 0 else 0.0 for part in parts]
    tests = [kendalltau(np.arange(windows), values, alternative="greater") for values in (spread, memory)]
    trends = [float(test.statistic) if math.isfinite(test.statistic) else 0.0 for test in tests]
    chance = min(1.0, 2 * min(float(test.pvalue) if math.isfinite(test.pvalue) else 1.0 for test in tests))
    grows = [name for name, trend in zip(("wider", "slower"), trends, strict=True) if trend > 0]
    if chance < level:
        status = f"The reward swings {' and '.join(grows)} as the run goes on (p = {chance:.2g}): it may be moving towards instability."
    else:
        status = f"No growth of the swings can be told from chance (p = {chance:.2g})."
    return EarlyWarning(trends[0], trends[1], chance, windows, status)
