r"""Every baseline's error at the same batch, from one set of estimated components: is leave-one-out
worth changing?

The rows of lab/docs/theory/gradient.md with estimated moments in them; each is a linear function of
these, so each has an interval. It compares errors of unnormalised gradients only: dividing by the
group's deviation changes what is estimated, not only how well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from groupwise.arrays import Float
from groupwise.errors import InvalidArgumentError
from groupwise.estimators.components import Components, weights
from groupwise.intervals import Interval
from groupwise.plain import Plain


@dataclass(frozen=True, slots=True)
class BaselineRow(Plain):
    """One baseline at one batch."""

    name: str  # of the baseline
    mse: Interval  # mean squared error of the batch's gradient, with interval
    # to the error of leave-one-out at the same mean step, with interval; below 1 is better
    ratio: Interval
    note: str  # what it needs, or what the figure is


def compare_baselines(
    components: Components, group_size: int, prompts: int
) -> tuple[BaselineRow, ...]:
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
        >>> import numpy as np
        >>> from groupwise.estimators.components import components
        >>> rng = np.random.default_rng(1)
        >>> score, reward = rng.normal(size=(512, 4)), rng.integers(2, size=512)
        >>> rows = compare_baselines(
        ...     components(reward, np.repeat(np.arange(64), 8), score_ND=score), 8, 64
        ... )
        >>> [row.name for row in rows][:3]
        ['leave_one_out', 'oracle', 'full_group_mean']

    Source: the table of exact conditional variances, derived here (lab/docs/theory/gradient.md);
    the oracle property is Corollary 4 of arXiv 2603.01162.
    """
    if group_size < 2 or prompts < 1:
        raise InvalidArgumentError(
            f"expected a group size of at least 2 and at least 1 prompt, got {group_size} and "
            f"{prompts}"
        )
    rows = _rows(components, group_size)
    reference = rows["leave_one_out"][0] / prompts
    made = []
    for name, (weight, bias, note) in rows.items():
        # A biased row is a shorter step: compared at the same length it is what it shortens.
        like = reference if bias.any() else weight / prompts
        made.append(
            BaselineRow(
                name,
                _value(components, weight / prompts + bias),
                _ratio(components, like, reference),
                note,
            )
        )
    return tuple(made)


def _rows(components: Components, group_size: int) -> dict[str, tuple[Float, Float, str]]:
    """Of each baseline the weights of the quantities in B times its error, those of its squared
    bias, and a note.
    """
    g = float(group_size)
    value, norm2 = components.of("value"), components.of("score_norm2")
    shift = components.of("kappa") / norm2 if norm2 > 0 else 0.0
    none, leave_one_out = weights(), weights(vp=1.0, t=1 / g, r=1 / (g * (g - 1)))
    # Without a baseline T becomes E|s|^2 z^2 - E|g(X)|^2; a fixed one adds what is linear and what
    # is quadratic in it.
    vanilla = weights(vp=1.0, score_norm2_reward2=1 / g, within_gradient_norm2=-1 / g)
    batch_mean = vanilla + weights(score_norm2_reward=-2 * value / g, score_norm2=value**2 / g)
    return {
        "leave_one_out": (
            leave_one_out,
            none,
            "unbiased; RLOO, and GRPO without division by the deviation but for the factor (G-1)/G",
        ),
        "oracle": (
            weights(vp=1.0, t=1 / g),
            none,
            "b = V(x), which nobody has: the bound for baselines when kappa is zero",
        ),
        "full_group_mean": (
            ((g - 1) / g) ** 2 * leave_one_out,
            weights(gradient_norm2=1 / g**2),
            (
                "leave-one-out times (G-1)/G: a shorter step, the same once the learning rate "
                "makes up for it"
            ),
        ),
        "batch_mean": (
            batch_mean,
            none,
            "one baseline for all prompts, taken as known; it cannot follow their difficulty",
        ),
        "vanilla": (vanilla, none, "b = 0"),
        "variance_optimal": (
            weights(vp=1.0, t=1 / g, kappa=-2 * shift / g, score_norm2=shift**2 / g),
            none,
            "b = V(x) + one shift for all prompts: at most this, a shift a prompt does better",
        ),
    }


def _value(components: Components, weight: Float) -> Interval:
    """One combination with its interval."""
    value = float(weight @ components.estimate_C)
    if components.prompts < 3:
        return Interval(value, -math.inf, math.inf, components.level)
    half = components.quantile(weight) * components.standard_error(weight)
    return Interval(
        value, max(value - half, 0.0) if value > 0 else value - half, value + half, components.level
    )


def _ratio(components: Components, weight: Float, reference: Float) -> Interval:
    """The ratio of two errors by the delta method on its logarithm; unknown where one is not
    positive.
    """
    error, other = float(weight @ components.estimate_C), float(reference @ components.estimate_C)
    if not (error > 0 and other > 0 and components.prompts >= 3):
        return Interval(error / other if other > 0 else math.nan, 0.0, math.inf, components.level)
    contrast = weight / error - reference / other
    factor = math.exp(
        min(components.quantile(contrast) * components.standard_error(contrast), 700.0)
    )
    return Interval(error / other, error / other / factor, error / other * factor, components.level)
