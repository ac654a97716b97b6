"""How much a foreign file may hold and take, and JSON that is refused where it would make more.

A file that goes beyond is read as far as it may, with a note, or refused with one sentence. What is
made is bounded, and not only the bytes that it is made of: values, cells, characters of a line.
Each number is far above what a real log needs; at any of them a command holds at most a gigabyte
and takes ten seconds of a processor.
"""

import json
from collections.abc import Mapping
from typing import Any

LARGEST_WHOLE = 1 << 26  # bytes of a file that cannot be streamed, as JSON
LARGEST_BLOCKS = 1 << 28  # bytes of a W&B file
LARGEST_SETTINGS = 1 << 24  # bytes of a file of settings
LARGEST_YAML = 1 << 17  # characters of YAML, which takes a second for each hundred thousand
LARGEST_VALUE = 1e100  # of a metric in size: the square of a larger one may be no number any more
LARGEST_COUNT = 2**53  # of a step or a setting that counts: beyond it not every whole number is one
MOST_ROWS = 60_000  # of a log that is read row by row, and steps of a run
MOST_LONG = 1 << 19  # rows of a table that is read by column, in which each row may name one metric
MOST_KEYS = 2000  # columns of a log
MOST_NAMES = 20_000  # keys of a row that are looked at, texts among them
# Bytes that a table of columns may unfold to, where these are so many times those of its file.
MOST_UNFOLDED, MOST_TIMES = 1 << 29, 64
MOST_CELLS = 1 << 23  # rows times columns of a table, missing ones included
LONGEST_LINE = 1 << 26  # bytes of one line
LONGEST_CELL = 1 << 20  # characters of one cell between commas
MOST_TEXT = (
    1 << 26
)  # characters of prompts that are kept as they are, and of the texts of a journal
MOST_HELD = 1 << 25
# bytes of dumps of rollouts whose texts are held in memory; those of larger ones are read where
# somebody looks
LARGEST_RECORD = 1 << 26  # bytes of one record of an event file
LARGEST_EVENT_TEXT = 1 << 22  # bytes of a text in an event file, where settings are
MOST_VALUES = 1 << 22  # values, keys and lists that one text makes, each of a hundred bytes at most
MOST_SETTINGS = 100_000  # of one file
MOST_ALIASES = 20  # of YAML, each of which unfolds what it names


def most_keys(rows: int) -> int:
    """Return how many columns a table of so many rows may have."""
    return min(MOST_KEYS, MOST_CELLS // max(1, rows))


def left_out(cells: int) -> str:
    """Return the note on cells of keys that were too many."""
    return f"the log exceeds {MOST_KEYS:,} keys or {MOST_CELLS:,} cells; cells left out: {cells:,}"


def read_in_part(rows: int, of: int) -> str:
    """Return what is said of a log with more rows than are read; "" where all are."""
    return f"{rows:,} of about {of:,} rows were read, in blocks" if of else ""


def seconds_for(size: int) -> float:
    """Return the CPU seconds that a database of so many bytes may take."""
    return 10 + size / 1e6


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
        super().__init__(f"more than {MOST_VALUES:,} values")


def check_values(text: str) -> None:
    """Raise where a JSON text would make more values than allowed."""
    if len(text) > MOST_VALUES and sum(
        map(text.count, _MADE)
    ) > MOST_VALUES < _marks_between_strings(text):
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
