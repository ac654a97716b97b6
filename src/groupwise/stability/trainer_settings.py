"""The settings of a trainer as the user has them: texts or numbers, under dotted or slashed paths, turned into counts and flags.

Names and domains only; what they mean is in `trainer_lags`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from groupwise.errors import InvalidArgumentError

# Two-part names whose last part alone says nothing.
_PAIRS = {
    ("train", "batch_size"): "train_batch_size",
    ("rollout", "batch_size"): "rollout_batch_size",
    ("kl", "init_coef"): "init_kl_coef",
    ("kl", "use_loss"): "use_kl_loss",
    ("async_grpo", "enabled"): "async_grpo_enabled",
}


def by_leaf(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings under the last part of their paths, with underscores.

    Example:
        >>> by_leaf({"actor.ppo_epochs": 2, "--update-weights-interval": "1", "rollout.batch_size": 64})
        {'ppo_epochs': 2, 'update_weights_interval': '1', 'rollout_batch_size': 64}
    """
    found: dict[str, Any] = {}
    for path, value in settings.items():
        parts = [part.strip("- ").replace("-", "_").lower() for part in re.split(r"[./]", path)]
        name = _PAIRS.get((parts[-2], parts[-1]), parts[-1]) if len(parts) > 1 else parts[-1]
        if name in found and str(found[name]) != str(value):
            raise InvalidArgumentError(f"expected one value of {name[:60]}, got {found[name]!r} and {value!r}: give it once")
        found[name] = value
    return found


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one trainer, each taken in its own type.

    Example:
        >>> Settings("verl", {"ppo_epochs": "2"}).count("ppo_epochs")
        2
    """

    title: str  # of the trainer, for messages
    given: Mapping[str, Any]  # name -> value

    def count(self, name: str, *, least: int = 1) -> int:
        """Return a setting that is there as a whole number."""
        value = self.number(name)
        if value is None or value != int(value) or not least <= value < 1e6:
            raise self._refusal(name, f"a whole number of at least {least}")
        return int(value)

    def number(self, name: str) -> float | None:
        """Return a setting as a number of at least 0, or None where it is not given."""
        value = self.given.get(name)
        if value is None:
            return None
        try:
            found = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            found = math.nan
        if not (math.isfinite(found) and found >= 0):
            raise self._refusal(name, "a number of at least 0")
        return found

    def flag(self, name: str) -> bool | None:
        """Return a setting as yes or no, or None where it is not given."""
        value = self.given.get(name)
        if value is None:
            return None
        spelled = str(value).strip().lower()
        if spelled in {"true", "yes", "1", "on"}:
            return True
        if spelled in {"false", "no", "0", "off", "none", "null"}:
            return False
        raise self._refusal(name, "true or false")

    def word(self, name: str) -> str | None:
        """Return a setting as a word, "" where it says no or null, or None where it is not given."""
        value = self.given.get(name)
        if value is None:
            return None
        spelled = str(value).strip().lower()
        return "" if spelled in {"false", "no", "0", "off", "none", "null"} else spelled

    def _refusal(self, name: str, expected: str) -> InvalidArgumentError:
        """The error for a value outside its domain."""
        return InvalidArgumentError(f"expected {expected} for {name} of {self.title}, got {str(self.given.get(name))[:60]!r}")
