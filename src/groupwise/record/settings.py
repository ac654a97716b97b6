"""The settings of a run, each with the place where it was found, or unknown.

`RunConfig` checks types and ranges and merges sources, later ones winning. It reads no file: `readers/configs.py` does.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from groupwise.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting and where it was found; a value of None is unknown.

    Example:
        >>> Setting(8, "--set").known
        True
    """

    value: Any | None = None
    source: str = "unknown"

    @property
    def known(self) -> bool:
        """Whether a source gave a value."""
        return self.value is not None


UNKNOWN = Setting()


def _number(value: Any) -> float:
    """Return `value` as a finite float; a bool is not a number here."""
    if isinstance(value, bool):
        raise ValueError
    number = float(value)
    if not math.isfinite(number):
        raise ValueError
    return number


def _count(value: Any) -> int:
    """Return `value` as a whole number of at least 1."""
    number = _number(value)
    if number != int(number) or not 1 <= number < 2**53:
        raise ValueError
    return int(number)


def _positive(value: Any) -> float:
    """Return `value` as a number above 0."""
    number = _number(value)
    if number <= 0:
        raise ValueError
    return number


def _non_negative(value: Any) -> float:
    """Return `value` as a number of at least 0."""
    number = _number(value)
    if number < 0:
        raise ValueError
    return number


def _decay(value: Any) -> float:
    """Return `value` as a number in [0, 1)."""
    number = _number(value)
    if not 0 <= number < 1:
        raise ValueError
    return number


def _whole(value: Any) -> int:
    """Return `value` as an integer that is exact in double precision."""
    number = _number(value)
    if number != int(number) or abs(number) >= 2**53:
        raise ValueError
    return int(number)


def _text(value: Any) -> str:
    """Return `value` as a short printable text without control characters."""
    if not isinstance(value, str | int | float):
        raise ValueError
    cleaned = "".join(character for character in str(value) if character.isprintable()).strip()
    if not cleaned or len(cleaned) > 300:
        raise ValueError
    return cleaned


def _scaling(value: Any) -> str:
    """Return one of group, batch, none; True and False are TRL's older spelling of group and none."""
    spelled = {"true": "group", "false": "none"}.get(str(value).strip().lower(), str(value).strip().lower())
    if spelled not in {"group", "batch", "none"}:
        raise ValueError
    return spelled


def _lag(value: Any) -> str:
    """Return a kind of lag between the policy that samples and the one that is updated."""
    spelled = str(value).strip().lower()
    if spelled not in {"none", "fixed", "refresh", "async"}:
        raise ValueError
    return spelled


def _aggregation(value: Any) -> str:
    """Return how several rewards become one advantage, as TRL names it."""
    spelled = str(value).strip().lower()
    if spelled not in {"sum_then_normalize", "normalize_then_sum"}:
        raise ValueError
    return spelled


def _place(value: Any) -> str:
    """Return where the KL term is."""
    spelled = str(value).strip().lower()
    if spelled not in {"none", "reward", "loss"}:
        raise ValueError
    return spelled


_Rule = tuple[Callable[[Any], Any], str]
_A_COUNT: _Rule = (_count, "a whole number of at least 1")
_A_TEXT: _Rule = (_text, "a text of 1 to 300 characters")
_A_DECAY: _Rule = (_decay, "a number in [0, 1)")

RULES: dict[str, _Rule] = {
    "group_size": _A_COUNT,
    "prompts_per_step": _A_COUNT,
    "learning_rate": (_non_negative, "a number of at least 0"),
    "learning_rate_schedule": _A_TEXT,
    "optimizer": _A_TEXT,
    "momentum": _A_DECAY,
    "beta1": _A_DECAY,
    "beta2": _A_DECAY,
    "kl_weight": (_non_negative, "a number of at least 0"),
    "loss": _A_TEXT,
    "importance_ratio": _A_TEXT,
    "kl_in": (_place, "none, reward or loss"),
    "refresh_interval": _A_COUNT,
    "lag_kind": (_lag, "none, fixed, refresh or async"),
    "updates_per_step": (_positive, "a number above 0"),
    "logging_steps": _A_COUNT,
    "scale_rewards": (_scaling, "group, batch or none"),
    "multi_objective_aggregation": (_aggregation, "sum_then_normalize or normalize_then_sum"),
    "temperature": (_non_negative, "a number of at least 0"),
    "max_completion_length": _A_COUNT,
    "model": _A_TEXT,
    "framework": _A_TEXT,
    "framework_version": _A_TEXT,
    "smoothing": _A_COUNT,
    "seed": (_whole, "a whole number"),
}


def check_setting(name: str, value: Any) -> Any:
    """Return `value` in the type of the setting `name`."""
    if name not in RULES:
        raise InvalidArgumentError(f"expected a setting, got {name[:60]!r}: use one of {', '.join(RULES)}")
    rule, expected = RULES[name]
    try:
        return rule(value)
    except (ValueError, TypeError, OverflowError):
        raise InvalidArgumentError(f"expected {expected} for {name}, got {str(value)[:60]!r}") from None


@dataclass(frozen=True, slots=True)
class RunConfig:
    """The settings of a run that the analysis uses; each is a `Setting`, unknown by default.

    Args:
        group_size: rollouts of one prompt (G).
        prompts_per_step: prompts of one logged optimisation step (B); a step has B * G rollouts.
        learning_rate: the peak, per optimiser update.
        learning_rate_schedule: its name (constant, linear, cosine, ...).
        optimizer: its name.
        momentum: of SGD, in [0, 1).
        beta1: of Adam, in [0, 1).
        beta2: of Adam, in [0, 1).
        kl_weight: weight of the KL term in the loss (TRL: beta).
        loss: its name (grpo, dapo, dr_grpo, ...).
        importance_ratio: what the loss weighs stale rollouts by: none, exact or clipped; or as a trainer says it, token or sequence.
        kl_in: where the KL term is: none, reward (as stale as the rollouts) or loss (current).
        refresh_interval: optimiser updates between two generations of rollouts; of a fixed lag the lag itself.
        lag_kind: of the lag of the rollouts behind the policy: none, fixed, refresh or async.
        updates_per_step: optimiser updates of one step.
        logging_steps: steps that one logged row averages over.
        scale_rewards: the spread that advantages are divided by: group, batch or none.
        multi_objective_aggregation: order of summing the reward functions and normalising: sum_then_normalize or normalize_then_sum.
        temperature: of sampling.
        max_completion_length: tokens at which the sampler cut completions off.
        model: the model that was trained.
        framework: trl, verl, unsloth, ...
        framework_version: its version.
        smoothing: rows over which the log was averaged before it was written; 1 says that it is raw.
        seed: of the run.

    Example:
        >>> RunConfig().with_settings({"group_size": "8"}, "--set").value("group_size")
        8
    """

    group_size: Setting = UNKNOWN
    prompts_per_step: Setting = UNKNOWN
    learning_rate: Setting = UNKNOWN
    learning_rate_schedule: Setting = UNKNOWN
    optimizer: Setting = UNKNOWN
    momentum: Setting = UNKNOWN
    beta1: Setting = UNKNOWN
    beta2: Setting = UNKNOWN
    kl_weight: Setting = UNKNOWN
    loss: Setting = UNKNOWN
    importance_ratio: Setting = UNKNOWN
    kl_in: Setting = UNKNOWN
    refresh_interval: Setting = UNKNOWN
    lag_kind: Setting = UNKNOWN
    updates_per_step: Setting = UNKNOWN
    logging_steps: Setting = UNKNOWN
    scale_rewards: Setting = UNKNOWN
    multi_objective_aggregation: Setting = UNKNOWN
    temperature: Setting = UNKNOWN
    max_completion_length: Setting = UNKNOWN
    model: Setting = UNKNOWN
    framework: Setting = UNKNOWN
    framework_version: Setting = UNKNOWN
    smoothing: Setting = UNKNOWN
    seed: Setting = UNKNOWN

    def with_settings(self, settings: Mapping[str, Any], source: str) -> RunConfig:
        """Return a copy in which `settings` replace what was there; a value of None changes nothing.

        Args:
            settings: name -> value; texts are converted to the type of the setting.
            source: where they come from, in words.

        Returns:
            The new configuration.

        Raises:
            InvalidArgumentError: an unknown name, or a value outside its domain.

        Example:
            >>> RunConfig().with_settings({"kl_weight": 0.04}, "README.md").kl_weight.source
            'README.md'
        """
        found = {name: Setting(check_setting(name, value), source) for name, value in settings.items() if value is not None}
        return dataclasses.replace(self, **found)

    def known(self) -> dict[str, Setting]:
        """Return the settings that have a value, by name.

        Example:
            >>> RunConfig().known()
            {}
        """
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if getattr(self, field.name).known}

    def value(self, name: str) -> Any | None:
        """Return the value of the setting `name`, or None where it is unknown.

        Raises:
            InvalidArgumentError: there is no such setting.

        Example:
            >>> RunConfig().value("group_size") is None
            True
        """
        if name not in RULES:
            raise InvalidArgumentError(f"expected a setting, got {name[:60]!r}: use one of {', '.join(RULES)}")
        setting: Setting = getattr(self, name)
        return setting.value
