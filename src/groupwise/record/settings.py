"""The settings of a run, each with the place where it was found, or unknown."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Any, get_type_hints

from groupwise.errors import InvalidArgumentError
from groupwise.plain import frozen


@frozen
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
Rule = tuple[Callable[[Any], Any], str]
"""What checks and converts a value, raising a ValueError where it cannot, and the values that are
expected, in words.
"""


def _number(value: Any) -> float:
    """Return a finite float; a bool is not a number here."""
    number = math.nan if isinstance(value, bool) else float(value)
    if not math.isfinite(number):
        raise ValueError
    return number


def _within(holds: Callable[[float], bool], expected: str) -> Rule:
    """Return the rule of a number for which a condition holds."""

    def check(value: Any) -> float:
        number = _number(value)
        if not holds(number):
            raise ValueError
        return number

    return check, expected


def _whole(least: float, expected: str) -> Rule:
    """Return the rule of an integer that is exact in double precision."""

    def check(value: Any) -> int:
        number = _number(value)
        if number != int(number) or number < least or abs(number) >= 2**53:
            raise ValueError
        return int(number)

    return check, expected


def _choice(*words: str, spelled: Mapping[str, str] | None = None) -> Rule:
    """Return the rule of one of a few words, which may be spelled otherwise too."""

    def check(value: Any) -> str:
        word = str(value).strip().lower()
        word = (spelled or {}).get(word, word)
        if word not in words:
            raise ValueError
        return word

    return check, f"{', '.join(words[:-1])} or {words[-1]}"


def _printable(value: Any) -> str:
    """Return a short text without control characters."""
    if not isinstance(value, str | int | float):
        raise ValueError
    cleaned = "".join(character for character in str(value) if character.isprintable()).strip()
    if not cleaned or len(cleaned) > 300:
        raise ValueError
    return cleaned


_COUNT = _whole(1, "a whole number of at least 1")
_TEXT: Rule = (_printable, "a text of 1 to 300 characters")
_DECAY = _within(lambda number: 0 <= number < 1, "a number in [0, 1)")
_POSITIVE = _within(lambda number: number > 0, "a number above 0")
_NOT_NEGATIVE = _within(lambda number: number >= 0, "a number of at least 0")
_SCALING = _choice(
    "group", "batch", "none", spelled={"true": "group", "false": "none"}
)  # True and False: TRL's older spelling


def check_setting(name: str, value: Any) -> Any:
    """Return `value` in the type of the setting `name`."""
    _check_name(name)
    rule, expected = RULES[name]
    try:
        return rule(value)
    except (ValueError, TypeError, OverflowError):
        raise InvalidArgumentError(
            f"expected {expected} for {name}, got {_said(value)!r}"
        ) from None


def _check_name(name: str) -> None:
    """Raise where there is no setting of a name."""
    if name not in RULES:
        raise InvalidArgumentError(
            f"expected a setting, got {name[:60]!r}: use one of {', '.join(RULES)}"
        )


def _said(value: Any) -> str:
    """Return a value as a short text; Python refuses to spell a number of thousands of digits."""
    try:
        return str(value)[:60]
    except ValueError:
        return "a number without bound"


@frozen
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
        importance_ratio: what the loss weighs stale rollouts by: none, exact or clipped; or as a
            trainer says it, token or sequence.
        kl_in: where the KL term is: none, reward (as stale as the rollouts) or loss (current).
        refresh_interval: optimiser updates between two generations of rollouts; of a fixed lag the
            lag itself.
        lag_kind: of the lag of the rollouts behind the policy: none, fixed, refresh or async.
        updates_per_step: optimiser updates of one step.
        logging_steps: steps that one logged row averages over.
        scale_rewards: the spread that advantages are divided by: group, batch or none.
        multi_objective_aggregation: order of summing the reward functions and normalising:
            sum_then_normalize or normalize_then_sum.
        temperature: of sampling.
        max_completion_length: tokens at which the sampler cut completions off.
        model: the model that was trained.
        lora_rank: rank of the adapter, where one is trained; 0 for all weights.
        engine: what sampled the rollouts (vllm, sglang, hf, ...).
        framework: trl, verl, unsloth, ...
        framework_version: its version.
        planned_steps: the step that the run is to end at.
        gpus: GPUs that the run takes, for training and sampling together.
        gpu_price: of one GPU for an hour, in any currency.
        smoothing: rows over which the log was averaged before it was written; 1 says that it is
            raw.
        seed: of the run.

    Example:
        >>> RunConfig().with_settings({"group_size": "8"}, "--set").value("group_size")
        8
    """

    group_size: Annotated[Setting, _COUNT] = UNKNOWN
    prompts_per_step: Annotated[Setting, _COUNT] = UNKNOWN
    learning_rate: Annotated[Setting, _NOT_NEGATIVE] = UNKNOWN
    learning_rate_schedule: Annotated[Setting, _TEXT] = UNKNOWN
    optimizer: Annotated[Setting, _TEXT] = UNKNOWN
    momentum: Annotated[Setting, _DECAY] = UNKNOWN
    beta1: Annotated[Setting, _DECAY] = UNKNOWN
    beta2: Annotated[Setting, _DECAY] = UNKNOWN
    kl_weight: Annotated[Setting, _NOT_NEGATIVE] = UNKNOWN
    loss: Annotated[Setting, _TEXT] = UNKNOWN
    importance_ratio: Annotated[Setting, _TEXT] = UNKNOWN
    kl_in: Annotated[Setting, _choice("none", "reward", "loss")] = UNKNOWN
    refresh_interval: Annotated[Setting, _COUNT] = UNKNOWN
    lag_kind: Annotated[Setting, _choice("none", "fixed", "refresh", "async")] = UNKNOWN
    updates_per_step: Annotated[Setting, _POSITIVE] = UNKNOWN
    logging_steps: Annotated[Setting, _COUNT] = UNKNOWN
    scale_rewards: Annotated[Setting, _SCALING] = UNKNOWN
    multi_objective_aggregation: Annotated[
        Setting, _choice("sum_then_normalize", "normalize_then_sum")
    ] = UNKNOWN
    temperature: Annotated[Setting, _NOT_NEGATIVE] = UNKNOWN
    max_completion_length: Annotated[Setting, _COUNT] = UNKNOWN
    model: Annotated[Setting, _TEXT] = UNKNOWN
    lora_rank: Annotated[Setting, _NOT_NEGATIVE] = UNKNOWN
    engine: Annotated[Setting, _TEXT] = UNKNOWN
    framework: Annotated[Setting, _TEXT] = UNKNOWN
    framework_version: Annotated[Setting, _TEXT] = UNKNOWN
    planned_steps: Annotated[Setting, _COUNT] = UNKNOWN
    gpus: Annotated[Setting, _COUNT] = UNKNOWN
    gpu_price: Annotated[Setting, _NOT_NEGATIVE] = UNKNOWN
    smoothing: Annotated[Setting, _COUNT] = UNKNOWN
    seed: Annotated[Setting, _whole(-math.inf, "a whole number")] = UNKNOWN

    def with_settings(self, settings: Mapping[str, Any], source: str) -> RunConfig:
        """Return a copy in which `settings` replace what was there; None changes nothing.

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
        checked = {
            name: Setting(check_setting(name, value), source)
            for name, value in settings.items()
            if value is not None
        }
        return replace(self, **checked)

    def known(self) -> dict[str, Setting]:
        """Return the settings that have a value, by name.

        Example:
            >>> RunConfig().known()
            {}
        """
        return {name: setting for name in RULES if (setting := getattr(self, name)).known}

    def unknown(self) -> tuple[str, ...]:
        """Return the names of the settings that no source gave.

        Example:
            >>> "group_size" in RunConfig().unknown()
            True
        """
        return tuple(name for name in RULES if not getattr(self, name).known)

    def value(self, name: str) -> Any | None:
        """Return the value of the setting `name`, or None where it is unknown.

        Raises:
            InvalidArgumentError: there is no such setting.

        Example:
            >>> RunConfig().value("group_size") is None
            True
        """
        _check_name(name)
        setting: Setting = getattr(self, name)
        return setting.value


RULES: dict[str, Rule] = {
    name: hint.__metadata__[0]
    for name, hint in get_type_hints(RunConfig, include_extras=True).items()
}
"""The rule of every setting, by its name."""
