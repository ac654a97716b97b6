"""JSON that strangers wrote, refused where it would make too much."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from groupwise import limits

JsonObject = dict[str, Any]  # or any other data by name
JsonView = Mapping[str, Any]  # one that is only read

_MADE = (
    ",",
    ":",
    "[",
    "{",
)  # each stands before, or behind, at least one of the values that a text makes
_BLANK = " \t\n\r"
_WINDOW = 1 << 20
_PLAIN, _FLOATS = json.JSONDecoder(), json.JSONDecoder(parse_int=float)  # NaN allowed


class NestingError(ValueError):
    """A text is nested more deeply than it can be read."""


class TooManyValuesError(ValueError):
    """A text holds more values than may be made of one."""

    def __init__(self) -> None:
        super().__init__(f"more than {limits.MOST_VALUES:,} values")


def check_values(text: str) -> None:
    """Raise where a JSON text would make more values than allowed."""
    if len(text) > limits.MOST_VALUES and sum(
        map(text.count, _MADE)
    ) > limits.MOST_VALUES < _marks_between_strings(text):
        raise TooManyValuesError


def _marks_between_strings(text: str) -> int:
    """Count what stands between the values of a JSON text, and not within its strings."""
    import numpy as np  # few texts are that long

    data = text.encode("latin-1", "replace").replace(b"\\\\", b"").replace(b'\\"', b"")
    is_mark = np.isin(np.arange(256), np.frombuffer("".join(_MADE).encode(), dtype=np.uint8))
    marks, quotes = 0, 0
    for start in range(0, len(data), _WINDOW):
        window = np.frombuffer(
            data, dtype=np.uint8, count=min(_WINDOW, len(data) - start), offset=start
        )
        quotes_N = quotes + np.cumsum(window == ord('"'))
        marks += int(np.count_nonzero(is_mark[window] & (quotes_N % 2 == 0)))
        quotes = int(quotes_N[-1])
    return marks


def parse_json(text: str | bytes, *, floats: bool = False) -> Any:
    """Return the value of a JSON text; raise a ValueError where it is damaged or too large."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "surrogatepass")
    check_values(text)
    text = text.strip(_BLANK)
    try:
        value, end = (_FLOATS if floats else _PLAIN).raw_decode(text)
    except RecursionError:
        raise NestingError from None
    if end != len(text):
        raise json.JSONDecodeError("Extra data", text, end)
    return value
