"""Settings in dataclasses are held to their names, whole numbers and intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np

from groupwise.errors import InvalidArgumentError

# What the trainer and the simulated bandit call alike.
LagName = Literal["none", "fixed", "refresh", "async"]
KlPlace = Literal["loss", "reward"]


def check_whole(name: str, value: object, least: int) -> None:
    """Refuse anything but a whole number of its range."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InvalidArgumentError(
            f"expected {name} to be a whole number of at least {least}; got {value}"
        )


def check_fields(
    settings: object, *, wholes: Mapping[str, int], numbers: Mapping[str, tuple[float, bool]]
) -> None:
    """Refuse settings outside their names, whole numbers or intervals.

    Of each number it is told what it lies below, and whether it is above 0 or may be 0. None passes
    where the field may be None.
    """
    for name, hint in get_type_hints(type(settings)).items():
        value = getattr(settings, name)
        if get_origin(hint) is Literal and value not in get_args(hint):
            raise InvalidArgumentError(
                f"expected {name} to be one of {', '.join(get_args(hint))}; got {str(value)[:60]!r}"
            )
        if value is None and NoneType in get_args(hint):
            continue
        if name in wholes:
            check_whole(name, value, wholes[name])
        if name in numbers:
            _check_number(name, value, *numbers[name])


# a row of a table
def _check_number(name: str, value: Any, below: float, above_zero: bool) -> None:  # noqa: FBT001
    """Refuse anything but a number of its interval."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number and 0 <= value < below) or (above_zero and value == 0):
        bounds = f"{'above' if above_zero else 'of at least'} 0" + (
            "" if math.isinf(below) else f" and below {below:g}"
        )
        raise InvalidArgumentError(f"expected {name} to be a number {bounds}; got {value}")
