r"""Whether a run should go on with the group size that it has, from measured components.

The size changes only where the present one's error exceeds another's by more than a threshold, even
at the lower end of the interval.
"""

from __future__ import annotations

import math

import numpy as np

from groupwise.arrays import Float
from groupwise.errors import InvalidArgumentError
from groupwise.estimators.best_group_size import (
    Budget,
    component_weights,
    error_of,
    safe_sizes,
    worst_excess,
)
from groupwise.estimators.components import Components
from groupwise.intervals import Interval, percent, ratio_interval, student_quantile
from groupwise.plain import Plain, frozen


@frozen
class VarianceEstimate:
    """Vp, T and R with what chance does to them."""

    vtr: Float  # a variance may come out negative
    covariance_CC: Float  # of these three
    prompts: float  # that they rest on; an effective number where some count less

    @classmethod
    def of(cls, components: Components) -> VarianceEstimate:
        """Return that of one measurement."""
        if components.prompts < 3:
            raise InvalidArgumentError(
                "expected at least three prompts with four rollouts each, got "
                f"{components.prompts}: measure more"
            )
        return cls(components.vtr, components.covariance_CC[:3, :3], float(components.prompts))


@frozen
class Decision(Plain):
    """What a look at the running components led to."""

    group_size: int  # to go on with
    prompts: int  # a step, with it
    present: int  # group size before
    best: int  # group size of least predicted error among those allowed
    # error of the present size over that of the one to change to, or of the best, minus 1; the
    # interval is of chance alone
    excess: Interval
    vp: float  # as measured
    t: float  # as measured
    r: float  # as measured
    measured_prompts: float  # effective number of prompts behind them
    reason: str  # a sentence

    @property
    def changes(self) -> bool:
        """Whether the group size is to change."""
        return self.group_size != self.present


def divisors(rollouts: int, lowest: int = 2, highest: int | None = None) -> tuple[int, ...]:
    """Return the group sizes within bounds that divide a number of rollouts."""
    most = rollouts if highest is None else min(highest, rollouts)
    return tuple(size for size in range(lowest, most + 1) if rollouts % size == 0)


def decide(
    estimate: VarianceEstimate,
    present: int,
    rollouts: int,
    *,
    lowest: int = 2,
    highest: int | None = None,
    threshold: float = 0.05,
    level: float = 0.95,
) -> Decision:
    r"""Hold the present group size against every other at the same number of rollouts.

    Only a size that no course of the run makes bad may be taken (`safe_sizes`): one whose error
    the present size's exceeds by more than the threshold, even at the lower end of the interval;
    that of least error where it is among them, otherwise that of the highest lower end. Where Vp
    cannot be told from zero that end is Fieller's, so that no huge group is taken because nothing
    spoke against it.

    Source: the error is derived in lab/docs/theory/gradient.md; the rule is ours.
    """
    sizes = divisors(rollouts, lowest, highest)
    if present not in sizes:
        raise InvalidArgumentError(
            f"expected a group size within {lowest} and {highest or rollouts} that divides "
            f"{rollouts}, got {present}: widen the bounds, or begin with another"
        )
    vp, t, r = np.maximum(estimate.vtr, 0.0).tolist()
    error = error_of(np.array([vp, t, r]), np.array(sizes), Budget(rollouts))
    best = sizes[int(np.argmin(error))]
    quantile = student_quantile(level, max(estimate.prompts - 1, 1.0))
    low = estimate.vtr[0] - quantile * math.sqrt(estimate.covariance_CC[0, 0])
    safe = safe_sizes(worst_excess(low, t, r, np.array(sizes), Budget(rollouts)), np.array(sizes))
    others = [size for size in sizes if size != present]
    excesses = {size: _excess(estimate, present, size, rollouts, level) for size in others}
    sure = [size for size in others if size in safe and excesses[size].low > threshold]
    size = best if best in sure else max(sure, key=lambda size: excesses[size].low, default=present)
    rival = size if size != present else best
    excess = excesses.get(rival, Interval(0.0, 0.0, 0.0, level))
    if not error.any():
        reason = f"No component is above zero: stay with {present}."
    elif rival == present:
        reason = f"G = {present} has the least predicted error of the sizes allowed: stay."
    else:
        reason = _comparison(present, rival, excess) + (
            f": stay, for nothing beyond the threshold of {percent(threshold)} is sure to be "
            "gained."
            if size == present
            else f": change to {size}, with {rollouts // size} prompts a step."
        )
    vp, t, r = estimate.vtr.tolist()
    return Decision(
        size, rollouts // size, present, best, excess, vp, t, r, estimate.prompts, reason
    )


def _excess(
    estimate: VarianceEstimate, present: int, other: int, rollouts: int, level: float
) -> Interval:
    """Error of the present size over that of another, minus 1.

    Components below zero count as zero in the value, not in the interval.
    """
    weight_CM = component_weights(np.array([present, other]), Budget(rollouts))
    own, theirs = (np.maximum(estimate.vtr, 0.0) @ weight_CM).tolist()
    value = own / theirs - 1 if theirs > 0 else 0.0 if own == 0 else math.inf
    raw_own, raw_theirs = (estimate.vtr @ weight_CM).tolist()
    ratio = ratio_interval(
        raw_own,
        raw_theirs,
        weight_CM.T @ estimate.covariance_CC @ weight_CM,
        student_quantile(level, max(estimate.prompts - 1, 1.0)),
        level=level,
    )
    return Interval(value, min(ratio.low - 1, value), max(ratio.high - 1, value), level)


def _comparison(present: int, rival: int, excess: Interval) -> str:
    upper = f"{1 + excess.high:.3g} times" if excess.bounded else "no limit"
    return (
        f"G = {present} has {1 + excess.value:.3g} times the error of G = {rival} "
        f"({1 + excess.low:.3g} to {upper}, {percent(excess.level)})"
    )
