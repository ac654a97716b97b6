r"""Every baseline's error at the same batch, from one set of estimated components: is leave-one-out worth changing?

The rows of docs/theory/gradient.md with estimated moments in them; each is a linear function of these, so each has an interval. It
compares errors of unnormalised gradients only: dividing by the group's deviation changes what is estimated, not only how well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from groupwise.arrays import Float
from groupwise.errors import InvalidArgumentError
from groupwise.estimators.components import QUANTITIES, Components
from groupwise.intervals import Interval, effective_freedom, student_quantile


@dataclass(frozen=True, slots=True)
class BaselineRow:
    """One baseline at one batch."""

    name: str  # of the baseline
    mse: Interval  # mean squared error of the batch's gradient, with interval
    ratio: Interval  # to the error of leave-one-out at the same mean step, with interval; below 1 is better
    note: str  # what it needs, or what the figure is

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"name": self.name, "mse": self.mse.as_dict(), "ratio": self.ratio.as_dict(), "note": self.note}


def compare_baselines(components: Components, group_size: int, prompts: int) -> tuple[BaselineRow, ...]:
    r"""Return the error of each baseline with B prompts of G rollouts, leave-one-out first.

    Args:
        components: as estimated.
        group_size: G, at least 2.
        prompts: B, at least 1.

    Returns:
        One row a baseline.

    Raises:
        InvalidArgumentError: a group size below 2 or no prompt.

    Example:
        >>> from groupwise.estimators.components import components
        >>> rng = np.random.default_rng(1)
        >>> score, reward = rng.normal(size=(512, 4)), rng.integers(2, size=512)
        >>> rows = compare_baselines(components(reward, np.repeat(np.arange(64), 8), score_ND=score), 8, 64)
        >>> [row.name for row in rows][:3]
        ['leave_one_out', 'oracle', 'full_group_mean']

    Source: the table of exact conditional variances, derived here (docs/theory/gradient.md); the oracle property is Corollary 4 of
    arXiv 2603.01162.
    """
    if group_size < 2 or prompts < 1:
        raise InvalidArgumentError(f"expected a group size of at least 2 and at least 1 prompt, got {group_size} and {prompts}")
    rows = _rows(components, group_size)
    reference = rows["leave_one_out"][0] / prompts
    made = []
    for name, (weight, bias, note) in rows.items():
        # A biased row is a shorter step: compared at the same length it is what it shortens.
        like = reference if bias.any() else weight / prompts
        made.append(BaselineRow(name, _value(components, weight / prompts + bias), _ratio(components, like, reference), note))
    return tuple(made)


def _rows(components: Components, group_size: int) -> dict[str, tuple[Float, Float, str]]:
    """Of each baseline the weights of the quantities in B times its error, those of its squared bias, and a note."""
    g = float(group_size)
    value, none = _of(components, "value"), _weights()
    second = {"score_norm2_reward2": 1.0, "within_gradient_norm2": -1.0}
    loo = _weights(vp=1.0, t=1 / g, r=1 / (g * (g - 1)))
    shift = _of(components, "kappa") / _of(components, "score_norm2") if _of(components, "score_norm2") > 0 else 0.0
    return {
        "leave_one_out": (loo, none, "unbiased; RLOO, and GRPO without division by the deviation but for the factor (G-1)/G"),
        "oracle": (_weights(vp=1.0, t=1 / g), none, "b = V(x), which nobody has: the bound for baselines when kappa is zero"),
        "full_group_mean": (
            ((g - 1) / g) ** 2 * loo,
            _weights(gradient_norm2=1 / g**2),
            "leave-one-out times (G-1)/G: a shorter step, the same once the learning rate makes up for it",
        ),
        "batch_mean": (
            _weights(vp=1.0, **_over(g, second, score_norm2_reward=-2 * value, score_norm2=value**2)),
            none,
            "one baseline for all prompts, taken as known; it cannot follow their difficulty",
        ),
        "vanilla": (_weights(vp=1.0, **_over(g, second)), none, "b = 0"),
        "variance_optimal": (
            _weights(vp=1.0, t=1 / g, kappa=-2 * shift / g, score_norm2=shift**2 / g),
            none,
            "b = V(x) + one shift for all prompts: at most this, a shift a prompt does better",
        ),
    }


def _over(group_size: float, *parts: dict[str, float], **more: float) -> dict[str, float]:
    """Weights of several parts, over G."""
    together: dict[str, float] = {}
    for part in (*parts, more):
        for name, weight in part.items():
            together[name] = together.get(name, 0.0) + weight / group_size
    return together


def _weights(**weights: float) -> Float:
    """Weights of all quantities."""
    vector = np.zeros(len(QUANTITIES))
    for name, weight in weights.items():
        vector[QUANTITIES.index(name)] += weight
    return vector


def _of(components: Components, name: str) -> float:
    """One estimate."""
    return float(components.estimate_C[QUANTITIES.index(name)])


def _quantile(components: Components, weight: Float) -> float:
    """Student's quantile for one combination."""
    pseudo = components.pseudo_PC
    return student_quantile(components.level, components.prompts - 1.0 if pseudo is None else effective_freedom(pseudo @ weight))


def _value(components: Components, weight: Float) -> Interval:
    """One combination with its interval."""
    value = float(weight @ components.estimate_C)
    if components.prompts < 3:
        return Interval(value, -math.inf, math.inf, components.level)
    half = _quantile(components, weight) * math.sqrt(max(float(weight @ components.covariance_CC @ weight), 0.0))
    return Interval(value, max(value - half, 0.0) if value > 0 else value - half, value + half, components.level)


def _ratio(components: Components, weight: Float, reference: Float) -> Interval:
    """The ratio of two errors by the delta method on its logarithm; unknown where one is not positive."""
    one, other = float(weight @ components.estimate_C), float(reference @ components.estimate_C)
    if not (one > 0 and other > 0 and components.prompts >= 3):
        return Interval(one / other if other > 0 else math.nan, 0.0, math.inf, components.level)
    contrast = weight / one - reference / other
    error = math.sqrt(max(float(contrast @ components.covariance_CC @ contrast), 0.0))
    factor = math.exp(min(_quantile(components, contrast) * error, 700.0))
    return Interval(one / other, one / other / factor, one / other * factor, components.level)
