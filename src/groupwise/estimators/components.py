r"""The variance components of the policy gradient: Vp between prompts, T at first order, R at second, each with its interval.

They answer what group size and batch are worth: a batch of B prompts with G rollouts has mean squared error
$(V_p + T/G + R/(G(G-1)))/B$. Everything is estimated without bias from the inner products of scores; prompts are the independent
units. It plans nothing and draws nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from groupwise.arrays import Float, finite_array
from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.estimators.moments import MOMENTS, TOO_SMALL, GroupMoments, moments_of_gram, moments_of_scores
from groupwise.intervals import (
    Interval,
    bootstrap_interval,
    effective_freedom,
    finite_or_none,
    mean_interval,
    percent,
    ratio_interval,
    student_quantile,
)

Method = Literal["jackknife", "bootstrap"]
LARGEST = 1e60
"""Of an estimate or a pseudo-value: the intervals need fourth powers. What is not zero has to be larger than 1/LARGEST likewise."""


def components(
    reward_N: ArrayLike,
    prompt_N: ArrayLike,
    *,
    score_ND: ArrayLike | None = None,
    gram_NN: ArrayLike | None = None,
    metric_D: ArrayLike | None = None,
    zero_mean: bool = True,
    level: float = 0.95,
    method: Method = "jackknife",
    rng: np.random.Generator | None = None,
) -> Components:
    r"""Estimate Vp, T and R from rollouts: B prompts with four or more rollouts each, groups of any size.

    $\widehat{|g(x)|^2}$ averages $\langle h(i,j), h(k,l)\rangle$ over all four different rollouts, with
    $h(i,j) = \tfrac12 (s_i - s_j)(z_i - z_j)$; $\widehat{|g|^2}$ averages inner products of gradients across prompts; then
    $V_p = \overline{|g(x)|^2} - |g|^2$, $T = \overline{|s|^2 e^2} - \overline{|g(x)|^2}$,
    $R = \overline{S_2\sigma^2} + \overline{|g(x)|^2}$.

    Args:
        reward_N: one reward a rollout.
        prompt_N: the label of its prompt.
        score_ND: scores or sketches of them; or
        gram_NN: their inner products.
        metric_D: weights of a diagonal metric (with scores only).
        zero_mean: whether E[s|x] = 0; see `moments_of_scores`.
        level: coverage of the intervals.
        method: jackknife (corrected for skewness) or bootstrap (of the t statistic), both over prompts.
        rng: for the bootstrap.

    Returns:
        The components with intervals, the best group size, and what they were computed from.

    Raises:
        InvalidArgumentError: neither or both of scores and Gram matrix, shapes that do not fit, a Gram matrix that is not symmetric,
            NaN or infinity, numbers so large or so small that their products are not.
        InsufficientDataError: fewer than two prompts with four rollouts.

    Example:
        >>> rng = np.random.default_rng(1)
        >>> score, reward = rng.normal(size=(512, 4)), rng.integers(2, size=512)
        >>> found = components(reward, np.repeat(np.arange(64), 8), score_ND=score)
        >>> found.prompts, found.t.interval.covers(1.0)
        (64, True)

    Source: quantities of arXiv 2603.01162, sections 3 and 4; the estimators are derived here (docs/theory/gradient.md).
    """
    if (score_ND is None) == (gram_NN is None):
        raise InvalidArgumentError(
            "expected either score_ND or gram_NN: give the scores (or sketches) or their inner products, one of the two"
        )
    if score_ND is not None:
        moments = moments_of_scores(score_ND, reward_N, prompt_N, metric_D=metric_D, zero_mean=zero_mean)
    else:
        if metric_D is not None:
            raise InvalidArgumentError("expected no metric_D with gram_NN: apply the metric when the inner products are taken")
        assert gram_NN is not None
        moments = moments_of_gram(gram_NN, reward_N, prompt_N, zero_mean=zero_mean)
    return components_of_moments(moments, level=level, method=method, rng=rng)


def components_of_moments(
    moments: GroupMoments, *, level: float = 0.95, method: Method = "jackknife", rng: np.random.Generator | None = None
) -> Components:
    """Estimate the components from the moments of groups, of one batch or of several that were added up.

    Example:
        >>> rng = np.random.default_rng(1)
        >>> prompt = np.repeat(np.arange(8), 8)
        >>> halves = [moments_of_scores(rng.normal(size=(64, 3)), rng.normal(size=64), prompt) for _ in range(2)]
        >>> components_of_moments(halves[0] + halves[1]).prompts
        16
    """
    return components_of_pseudo_values(
        pseudo_values(moments),
        rollouts=int(moments.size_P.sum()),
        left_out=moments.left_out,
        zero_mean=moments.zero_mean,
        level=level,
        method=method,
        rng=rng,
    )


def components_of_pseudo_values(
    pseudo_PC: Float,
    *,
    rollouts: int,
    left_out: int,
    zero_mean: bool,
    level: float = 0.95,
    method: Method = "jackknife",
    rng: np.random.Generator | None = None,
) -> Components:
    r"""Estimate the components from what each prompt says: the mean of its pseudo-values, with the covariance of that mean.

    $\hat\theta = \bar\theta_p$, $\widehat{Cov} = \frac{1}{P(P-1)}\sum_p (\theta_p - \hat\theta)(\theta_p - \hat\theta)^\top$.

    Source: Tukey (1958).

    Example:
        >>> pseudo = np.random.default_rng(1).normal(1.0, 0.1, size=(16, len(QUANTITIES)))
        >>> components_of_pseudo_values(pseudo, rollouts=128, left_out=0, zero_mean=True).prompts
        16
    """
    if method not in {"jackknife", "bootstrap"}:
        raise InvalidArgumentError(f"expected the method jackknife or bootstrap, got {method!r}")
    if method == "bootstrap" and rng is None:
        raise InvalidArgumentError("expected rng with the bootstrap: give numpy.random.default_rng(SEED)")
    pseudo = pseudo_PC
    refuse_extremes(pseudo)
    prompts = len(pseudo)
    covariance = np.cov(pseudo, rowvar=False) / prompts if prompts > 2 else np.full((pseudo.shape[1],) * 2, np.nan)
    if method == "bootstrap":
        assert rng is not None
        intervals = [bootstrap_interval(column, rng, level=level) for column in pseudo.T]
    else:
        intervals = [mean_interval(column, level=level) for column in pseudo.T]
    return assemble(
        pseudo.mean(axis=0),
        covariance,
        intervals,
        prompts=prompts,
        rollouts=rollouts,
        left_out=left_out,
        method=method,
        zero_mean=zero_mean,
        pseudo_PC=pseudo,
    )


def refuse_extremes(value_C: Float) -> None:
    """Refuse numbers whose powers overflow, or underflow to a zero that would be taken for the truth."""
    if not np.isfinite(value_C).all() or np.abs(value_C).max() > LARGEST:
        raise InvalidArgumentError("expected rewards and scores whose products can be added up, got an overflow: divide them by a constant")
    if 0 < np.abs(value_C[..., QUANTITIES.index("r")]).max() < 1 / LARGEST:
        raise InvalidArgumentError(f"{TOO_SMALL}, got rewards and scores whose products underflow: multiply them by a constant")


def pseudo_values(moments: GroupMoments) -> Float:
    r"""Jackknife pseudo-values of all quantities, one row a prompt; their mean is the estimate.

    $P\hat\theta - (P-1)\hat\theta_{(-p)}$; for a mean over prompts it is the prompt's own moment.

    Source: Tukey (1958); |g|^2 as a ratio of sums over pairs of prompts, derived here.
    """
    prompts = len(moments.size_P)
    pairs, total = float(moments.partners_P.sum()), float(moments.cross_P.sum())
    if prompts < 2 or pairs < 2:
        raise InsufficientDataError(
            f"expected at least two prompts with four rollouts each, got {prompts}: one prompt says nothing of the variance between prompts"
        )
    theta = total / pairs
    left = pairs - 2 * moments.partners_P
    # With two prompts nothing is left of a pair once one is gone; the estimate stands, its interval does not.
    without = np.divide(total - 2 * moments.cross_P, left, out=np.full(prompts, theta), where=left > 0)
    gradient = prompts * theta - (prompts - 1) * without
    # A ratio's pseudo-values scatter about a value that is off by O(1/P^2): the estimate itself is put in their middle.
    gradient += theta - gradient.mean()
    within, oracle, remainder = moments.moment_PC[:, :3].T
    return np.column_stack([within - gradient, oracle, remainder, gradient, within, moments.moment_PC[:, 3:]])


def assemble(
    estimate_C: Float,
    covariance_CC: Float,
    intervals: list[Interval],
    *,
    prompts: int,
    rollouts: int,
    left_out: int,
    method: str,
    zero_mean: bool,
    pseudo_PC: Float | None,
) -> Components:
    """Put estimates, intervals and sentences together."""
    error = np.sqrt(np.maximum(np.diag(covariance_CC), 0.0))  # a variance may come out as minus a rounding error
    found = {
        name: _estimate(name, intervals[column], float(error[column]), prompts) for column, name in enumerate(QUANTITIES) if name in MEANING
    }
    found["score_reward_variance"] = _score_reward_variance(estimate_C, covariance_CC, prompts, intervals[0].level)
    level = intervals[0].level
    return Components(
        vp=found.pop("vp"),
        t=found.pop("t"),
        r=found.pop("r"),
        gradient_norm2=found.pop("gradient_norm2"),
        others=found,
        group_size=best_group_size(estimate_C, covariance_CC, pseudo_PC, prompts, level),
        prompts=prompts,
        rollouts=rollouts,
        left_out=left_out,
        method=method,
        zero_mean=zero_mean,
        estimate_C=estimate_C,
        covariance_CC=covariance_CC,
        pseudo_PC=pseudo_PC,
        notes=tuple(_notes(estimate_C, error, prompts, left_out, zero_mean=zero_mean)),
    )


def best_group_size(estimate_C: Float, covariance_CC: Float, pseudo_PC: Float | None, prompts: int, level: float) -> Interval:
    """1 + sqrt(R/Vp), through the interval of the ratio."""
    vp, r = float(estimate_C[0]), float(estimate_C[2])
    if prompts < 3:
        return Interval(math.inf if vp <= 0 else 1 + math.sqrt(max(r, 0.0) / vp), 1.0, math.inf, level)
    quantile = contrast_quantile(pseudo_PC, np.array([1 / vp if vp > 0 else 1.0, 0.0, -1 / r if r > 0 else 0.0]), prompts, level)
    pick = np.ix_([2, 0], [2, 0])
    ratio = ratio_interval(r, vp, covariance_CC[pick], quantile, level=level)
    return Interval(1 + math.sqrt(ratio.value), 1 + math.sqrt(ratio.low), 1 + math.sqrt(ratio.high), level)


def contrast_quantile(pseudo_PC: Float | None, weight: Float, prompts: int, level: float) -> float:
    """Student's quantile for a combination of Vp, T and R, with the freedom that its pseudo-values have."""
    freedom = prompts - 1.0 if pseudo_PC is None else effective_freedom(pseudo_PC[:, :3] @ weight)
    return student_quantile(level, freedom)


def _score_reward_variance(estimate_C: Float, covariance_CC: Float, prompts: int, level: float) -> Estimate:
    """E[S2 sigma2] = R - E|g(X)|^2, with a t interval."""
    contrast = np.zeros(len(estimate_C))
    contrast[QUANTITIES.index("r")], contrast[QUANTITIES.index("within_gradient_norm2")] = 1.0, -1.0
    value, error = (
        float(contrast @ estimate_C),
        math.sqrt(max(float(contrast @ covariance_CC @ contrast), 0.0)) if prompts > 2 else math.nan,
    )
    half = student_quantile(level, prompts - 1) * error if prompts > 2 else math.inf
    return _estimate("score_reward_variance", Interval(value, value - half, value + half, level), error, prompts)


def _estimate(name: str, interval: Interval, error: float, prompts: int) -> Estimate:
    """One quantity with its sentence."""
    symbol = {"vp": "Vp", "t": "T", "r": "R", "gradient_norm2": "|g|^2"}.get(name, name)
    text = f"{symbol} = {interval.value:.4g} ({interval.low:.4g} to {interval.high:.4g}, {percent(interval.level)}, {prompts} prompts)"
    signed = name in {"kappa", "value", "score_mean_norm2"}
    if interval.bounded and interval.covers(0.0) and not signed:
        text += f": not distinguishable from zero{_enough(interval, error, prompts)}"
    elif interval.high < 0 and not signed:
        text += ": below zero, where no such quantity lies; chance, or rewards and scores that do not belong together"
    elif not interval.bounded:
        text += ": too few prompts for an interval; three are the least"
    return Estimate(symbol, MEANING[name], interval, error, prompts, text)


def _enough(interval: Interval, error: float, prompts: int) -> str:
    """How many prompts would tell the value from zero, were it as large as estimated, or as the interval allows."""
    size = interval.value if interval.value > 0 else interval.high
    if not (size > 0 and error > 0):
        return ""
    needed = math.ceil(prompts * (student_quantile(interval.level, max(prompts - 1, 1)) * error / size) ** 2)
    supposed = "it is as large as estimated" if interval.value > 0 else f"it is as large as {size:.3g}"
    return f"; if {supposed}, about {max(needed, prompts + 1):,} prompts would show it"


def _notes(estimate_C: Float, error: Float, prompts: int, left_out: int, *, zero_mean: bool) -> list[str]:
    """What to know before the numbers are used."""
    notes = []
    if left_out:
        notes.append(
            f"{left_out:,} rollouts were left out because their groups have fewer than four; "
            "nothing is biased if the size of a group has nothing to do with its prompt."
        )
    mean = QUANTITIES.index("score_mean_norm2")
    # Four standard errors: a false alarm in 30,000 for a normal statistic, and far fewer than one in 100 with its tails.
    if zero_mean and prompts > 2 and estimate_C[mean] > 4 * error[mean] > 0:
        notes.append(
            "The scores do not average to zero within prompts, as a policy's own scores do: were the rollouts sampled at another "
            "temperature or with top-p, or divided by their length? Do without the assumption: zero_mean=False, --any-mean in a command."
        )
    return notes


def projected_components(
    score_ND: ArrayLike,
    reward_N: ArrayLike,
    prompt_N: ArrayLike,
    direction_RD: ArrayLike,
    *,
    zero_mean: bool = True,
    level: float = 0.95,
) -> tuple[Components, ...]:
    r"""Components of the gradient along given directions: those of the scores $\langle s, u\rangle$, one result a direction.

    The noise that moves the reward is the part along the reward's gradient, not the trace over all parameters.

    Source: derived here; docs/theory/gradient.md, "Along a direction".

    Example:
        >>> rng = np.random.default_rng(1)
        >>> found = projected_components(rng.normal(size=(64, 3)), rng.normal(size=64), np.repeat(np.arange(8), 8), np.eye(3)[:2])
        >>> len(found)
        2
    """
    score = finite_array("score_ND", score_ND, dimensions=2)
    direction = finite_array("direction_RD", direction_RD, dimensions=2)
    length = np.linalg.norm(direction, axis=1, keepdims=True)
    if direction.shape[1] != score.shape[1] or not (length > 0).all():
        raise InvalidArgumentError(f"expected directions of {score.shape[1]} numbers, not all of them zero, got shape {direction.shape}")
    projected = score @ (direction / length).T
    return tuple(
        components(reward_N, prompt_N, score_ND=column[:, None], zero_mean=zero_mean, level=level)
        for column in np.ascontiguousarray(projected.T)
    )


QUANTITIES = ("vp", "t", "r", "gradient_norm2", "within_gradient_norm2", *MOMENTS[3:])
"""What is estimated, in the order of `Components.estimate_C`: the three components, |g|^2, E|g(X)|^2, then the other moments of groups."""

MEANING = {
    "vp": "variance of the gradient between prompts, E|g(X) - g|^2",
    "t": "variance within prompts that one rollout of the oracle would have, E T_o(X)",
    "r": "second-order part within prompts, E[S2 sigma2 + |g(X)|^2]",
    "gradient_norm2": "squared length of the gradient, |g|^2",
    "within_gradient_norm2": "mean squared length of a prompt's own gradient, E|g(X)|^2",
    "score_reward_variance": "E[S2 sigma2]",
    "score_norm2": "mean squared length of a score, E S2",
    "kappa": "E[|s|^2 e], how the length of a score goes with its reward",
    "reward_variance": "variance of the reward within a prompt, E sigma2",
    "value": "mean reward",
    "score_mean_norm2": "squared length of the scores' mean within a prompt, 0 for the policy's own scores",
}


@dataclass(frozen=True, slots=True)
class Estimate:
    """One estimated quantity.

    Example:
        >>> interval = Interval(1.3, 1.1, 1.5)
        >>> Estimate("T", "first order", interval, 0.1, 64, "T = 1.3").value
        1.3
    """

    symbol: str  # its short name
    meaning: str  # what it is, in words
    interval: Interval  # value with interval; a variance may come out negative, and is handed over as it came
    standard_error: float  # of the value, by the jackknife over prompts; not a number with fewer than three prompts
    n: int  # prompts
    status: str  # a sentence

    @property
    def value(self) -> float:
        """The estimate itself."""
        return self.interval.value

    @property
    def distinguishable(self) -> bool:
        """Whether the interval lies above zero: below it lies no variance, only chance."""
        return self.interval.low > 0

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        error = finite_or_none(self.standard_error)
        return {**self.interval.as_dict(), "standard_error": error, "n": self.n, "meaning": self.meaning, "status": self.status}


@dataclass(frozen=True, slots=True)
class Components:
    """The variance components of one policy, on one distribution of prompts.

    Args:
        vp: E|g(X) - g|^2.
        t: E T_o(X).
        r: E R(X).
        gradient_norm2: |g|^2.
        others: further quantities by name.
        group_size: the best group size with free prompts and exact division, 1 + sqrt(R/Vp), at least 1.
        prompts: groups used.
        rollouts: rollouts in them.
        left_out: rollouts in groups of fewer than four.
        method: how the intervals were made.
        zero_mean: whether the scores were taken to have mean zero, given the prompt.
        estimate_C: all quantities, in the order of `QUANTITIES`.
        covariance_CC: of those estimates.
        pseudo_PC: jackknife pseudo-values, one row a prompt; None where only sums were kept.
        notes: sentences on what to know before the numbers are used.
    """

    vp: Estimate
    t: Estimate
    r: Estimate
    gradient_norm2: Estimate
    others: dict[str, Estimate]
    group_size: Interval
    prompts: int
    rollouts: int
    left_out: int
    method: str
    zero_mean: bool
    estimate_C: Float
    covariance_CC: Float
    pseudo_PC: Float | None
    notes: tuple[str, ...]

    @property
    def level(self) -> float:
        """Coverage of the intervals."""
        return self.vp.interval.level

    @property
    def status(self) -> str:
        """What the numbers say, in one sentence."""
        interval = self.group_size
        if not math.isfinite(interval.value):
            return (
                f"The variance between prompts cannot be told from zero with {self.prompts} prompts, so no group size is too large; "
                f"at least {interval.low:.3g} pays."
            )
        upper = f"{interval.high:.3g}" if math.isfinite(interval.high) else "no upper limit"
        span = f"({interval.low:.3g} to {upper}, {percent(interval.level)})"
        return f"The best group size for a fixed number of rollouts is {interval.value:.3g} {span}."

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "vp": self.vp.as_dict(),
            "t": self.t.as_dict(),
            "r": self.r.as_dict(),
            "gradient_norm2": self.gradient_norm2.as_dict(),
            **{name: estimate.as_dict() for name, estimate in self.others.items()},
            "group_size": self.group_size.as_dict(),
            "prompts": self.prompts,
            "rollouts": self.rollouts,
            "left_out": self.left_out,
            "method": self.method,
            "zero_mean": self.zero_mean,
            "status": self.status,
            "notes": list(self.notes),
        }
