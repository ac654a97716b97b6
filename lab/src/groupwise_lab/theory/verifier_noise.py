r"""What a verifier that errs does to the gradient: exactly, from the moments of the reward without
errors.

A reward Z of 0 or 1 is seen as Z' with $P(Z'=1|Z=0) = f_+$ and $P(Z'=0|Z=1) = f_-$, whatever else
the rollout is. With $\rho = 1 - f_+ - f_-$ and $v(Z)$ the variance that the errors add to one
rollout, $f_-(1-f_-)$ where it is right and $f_+(1-f_+)$ where it is wrong: $g' = \rho g$, $V_p' =
\rho^2V_p$, $T' = \rho^2T + E[|s|^2v(Z)]$, $R' = \rho^2R + E[S_2\,E[v(Z)|X]]$. So the best group
size can only grow. Errors that a text always meets with are another reward, and not here.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from groupwise.arrays import Columns, Float
from groupwise.errors import InvalidArgumentError
from groupwise.estimators.components import (
    QUANTITIES,
    Components,
    Sample,
    components_of_pseudo_values,
)
from groupwise.intervals import percent
from groupwise.plain import frozen


@frozen
class VerifierErrors:
    """How often a verifier errs; at shares whose sum reaches 1 the gradient vanishes or points
    the other way.
    """

    false_positive: float = 0.0  # share of wrong answers that it passes
    false_negative: float = 0.0  # share of right answers that it fails

    def __post_init__(self) -> None:
        """Check the rates."""
        for name, rate in (
            ("false positives", self.false_positive),
            ("false negatives", self.false_negative),
        ):
            if not 0 <= rate <= 1:
                raise InvalidArgumentError(
                    f"expected a share of {name} between 0 and 1, got {rate:g}: 0.05 is one in "
                    "twenty"
                )
        if not self.slope > 1e-9:
            raise InvalidArgumentError(
                "expected false positives and false negatives that sum to less than 1, got "
                f"{self.false_positive:g} and {self.false_negative:g}: such a verifier tells right "
                "from wrong no better than a coin, and nothing can be learned"
            )

    @property
    def slope(self) -> float:
        """What is left of the gradient, rho."""
        return 1 - self.false_positive - self.false_negative

    def added_variance(self, whole: Float, right: Float) -> Float:
        """Return the mean of v(Z) under weights that sum to `whole`, of which the right answers
        have `right`.
        """
        of_wrong = self.false_positive * (1 - self.false_positive)
        return of_wrong * (whole - right) + self.false_negative * (1 - self.false_negative) * right

    def __str__(self) -> str:
        """The rates in words."""
        return (
            f"a verifier that passes {percent(self.false_positive)} of wrong answers and fails "
            f"{percent(self.false_negative)} of right ones"
        )


def with_verifier_errors(components: Components, errors: VerifierErrors) -> Components:
    r"""Return the components as they would be under a verifier that errs, from those measured with
    one that does not.

    The reward is one of 0 and 1. Every quantity is linear in the measured ones, so estimates,
    pseudo-values and intervals follow.

    Source: derived here (lab/docs/theory/gradient.md).
    """
    if not components.zero_mean:
        raise InvalidArgumentError(
            "expected components whose scores have mean zero, got some without that assumption: "
            "measure them with it"
        )
    first, second = components.of("score_norm2_reward"), components.of("score_norm2_reward2")
    if abs(first - second) > 1e-6 * max(abs(first), abs(second), 1e-300):
        raise InvalidArgumentError(
            "expected components of a reward of 0 and 1, got another reward: errors of a verifier "
            "pass or fail an answer"
        )
    count = len(QUANTITIES)
    constant_C = np.array(
        list(_noisy(dict.fromkeys(QUANTITIES, np.zeros(1)), errors, np.ones(1)).values())
    )[:, 0]
    unit = _noisy(dict(zip(QUANTITIES, np.eye(count), strict=True)), errors, np.zeros(count))
    map_CC = np.array([unit[name] for name in QUANTITIES])
    pseudo_PC = components.pseudo_PC @ map_CC.T + constant_C
    facts = components.rollouts, components.left_out, components.zero_mean, components.cluster_P
    judged = components_of_pseudo_values(pseudo_PC, Sample(*facts), level=components.level)
    note = f"As under {errors}, if the rewards of the components had no errors."
    return replace(judged, notes=(*judged.notes, note))


def _noisy(plain: Columns, errors: VerifierErrors, constant: Float) -> dict[str, Float]:
    """Every quantity under errors, from those without; `one` is what a constant of 1 is."""
    rho, norm2, right = errors.slope, plain["score_norm2"], plain["score_norm2_reward"]
    noisy = {
        name: rho**2 * plain[name]
        for name in ("vp", "t", "r", "gradient_norm2", "within_gradient_norm2")
    }
    noisy["t"] = noisy["t"] + errors.added_variance(norm2, right)
    noisy["r"] = noisy["r"] + errors.added_variance(norm2, right - plain["kappa"])
    first = errors.false_positive * norm2 + rho * right
    return noisy | {
        "score_norm2": norm2,
        "kappa": rho * plain["kappa"],
        "score_norm2_reward": first,
        "score_norm2_reward2": first,
        "reward_variance": rho**2 * plain["reward_variance"]
        + errors.added_variance(constant, plain["value"]),
        "value": errors.false_positive * constant + rho * plain["value"],
        "score_mean_norm2": plain["score_mean_norm2"],
    }
