"""Results as plain data for JSON: the encoder, and the base of results with `as_dict`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Any, ClassVar, TypeVar, dataclass_transform

Made = TypeVar("Made")
Words = tuple[str, ...]

FORMER_STATES = {"watch": "warning"}  # words of schema 1, accepted where a state is asked for


class Plain:
    """A result that shows itself as plain data.

    `KEYS` lists what is shown, in order and between blanks: "name" an attribute, "key=name" an
    attribute under another key (dots lead on, and of None to None), "*name"
    the keys of an attribute beside its own. Without it, every field of the dataclass is shown,
    behind the properties that `MORE` names.
    """

    __slots__ = ()
    KEYS: ClassVar[str] = ""
    MORE: ClassVar[str] = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        shown: dict[str, Any] = {}
        fields_of = getattr(type(self), "__dataclass_fields__", ())
        for entry in self.KEYS.split() or (*self.MORE.split(), *fields_of):
            key, _, name = entry.partition("=")
            if key.startswith("*"):
                shown |= plain(getattr(self, key[1:]))
            else:
                shown[key] = plain(_linked(self, name or key))
        return shown


def _linked(value: Any, names: str) -> Any:
    """Return what a path of attributes leads to; None where a link of it is None."""
    for name in names.split("."):
        value = None if value is None else getattr(value, name)
    return value


class Said(Plain):
    """A result whose `print` shows a sentence, and whose `repr` its class and sentence."""

    __slots__ = ()

    def __repr__(self) -> str:
        """The class and the sentence."""
        return f"{type(self).__name__}({str(self)!r})"


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(made: type[Made]) -> type[Made]:
    """Make a dataclass of slots that nothing changes; one that is said keeps its own `repr`."""
    return dataclass(frozen=True, slots=True, repr=not issubclass(made, Said))(made)


class AssumptionStatus(Enum):
    """Whether the data bear an assumption out."""

    HOLDS = "holds"
    VIOLATED = "violated"
    UNKNOWN = "unknown"


HOLDS, VIOLATED, UNKNOWN = AssumptionStatus


@frozen
class Assumption(Said):
    """One assumption of an estimate."""

    name: str
    status: AssumptionStatus
    sentence: str  # what was measured; of a violation also the line that mends it

    def __str__(self) -> str:
        """The sentence."""
        return self.sentence


Tested = tuple[AssumptionStatus, str]
"""Whether an assumption holds, and what was measured."""


def assumptions(judged: Mapping[str, Tested]) -> tuple[Assumption, ...]:
    """Return assumptions by their names."""
    return tuple(Assumption(name, *measured) for name, measured in judged.items())


def plain(value: Any) -> Any:
    """Turn results and containers into what `json.dumps` takes; NaN and infinity become None."""
    if isinstance(value, float):  # by far the most
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [
            entry if type(entry) is int else plain(entry) for entry in value
        ]  # steps by the thousand
    return _plain_object(value)


def _plain_object(value: Any) -> Any:
    """Turn a result, an array or anything else that is neither a scalar nor a container."""
    if hasattr(value, "as_dict"):
        return value.as_dict()
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    return plain(value.tolist()) if hasattr(value, "tolist") else str(value)


def to_json(value: Any, *, indent: int | None = None) -> str:
    """Write strict JSON in ASCII: no NaN, no infinity, no lone surrogate as such."""
    separators = (",", ":") if indent is None else (",", ": ")
    return json.dumps(plain(value), allow_nan=False, indent=indent, separators=separators)
