"""Lines that are read by column say what they say row by row, whatever stands in them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each_case

from groupwise.readers import columns
from groupwise.readers.columns import PlainRows
from groupwise.readers.json_logs import JsonlFeed
from groupwise.readers.source import lines_in

NUMBERS = st.one_of(st.floats(), st.integers(), st.booleans(), st.none())
TEXTS = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        ['a "quote"', "\\", '": "', "null", "12%", "5", "true", "[1]", '{"a": 1}', "\0", "\ud800"]
    ),
)
NESTED = st.one_of(
    st.lists(NUMBERS, max_size=3),
    st.dictionaries(st.sampled_from("ab"), NUMBERS | TEXTS, max_size=2),
    st.just([{"role": "x"}]),
)
KEYS = st.sampled_from(
    [
        "step",
        "reward",
        "loss",
        "a",
        "b",
        "type",
        "run",
        "null",
        'q"',
        "é",
        "train_runtime",
        "metrics",
        "data",
    ]
)
ROWS = st.dictionaries(KEYS, st.one_of(NUMBERS, NUMBERS, NUMBERS, TEXTS, NESTED), max_size=5)
ALIKE = st.fixed_dictionaries(
    {"step": st.integers(0, 9), "reward": st.floats()},
    optional={"type": TEXTS, "loss": NUMBERS, "late": NUMBERS},
)
ODD = st.sampled_from(
    [
        "",
        "  ",
        "no json",
        "5",
        "[1]",
        "null",
        '{"a": 1',
        '{"a": 1, "a": 2}',
        '{"a": 1}\r',
        '{"a":\r1}',
        "\x0b",
        '\ufeff{"a": 3}',
        '{"a": 01}',
        '{"a": 1, "a": null}',
        r'{"a": 1, "b": "\u0022\u0022", "null": 4}',
    ]
)


def lines(rows: list[Any], *, plain: bool, tight: bool) -> bytes:
    """JSON lines; a text stands for itself."""
    marks = (",", ":") if tight else (", ", ": ")
    written = [
        row if isinstance(row, str) else json.dumps(row, ensure_ascii=plain, separators=marks)
        for row in rows
    ]
    return "".join(line + "\n" for line in written).encode(errors="replace")


def content(feed: JsonlFeed) -> dict[str, Any]:
    """All that a feed took."""
    store = feed._store
    cells = {name: [part.tolist() for part in store.sparse(name)] for name in sorted(store.names())}
    kept = [sorted(part.items()) for part in (store.texts, store.labels, store.unread)]
    return {
        "cells": cells,
        "count": store.count,
        "kept": kept,
        "lines": (feed._damaged, feed._skipped),
    }


@given(
    st.lists(st.one_of(st.lists(ROWS | ODD, max_size=4), st.lists(ALIKE, max_size=6)), max_size=4),
    st.booleans(),
    st.booleans(),
)
def test_by_column_as_row_by_row(blocks: list[list[Any]], plain: bool, tight: bool) -> None:
    by_column, by_row = JsonlFeed(), JsonlFeed()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "_LEAST", 0)
        patch.setattr(columns, "_MOST_REFUSED", 99)
        for rows in blocks:
            block = lines(rows, plain=plain, tight=tight)
            by_column.take_block(block)
            by_row.take(lines_in(block))
    ours, theirs = content(by_column), content(by_row)
    assert str(ours) == str(theirs)  # NaN is itself


def block_of(rows: list[Any]) -> bytes:
    """Enough of such rows for a table."""
    return lines(
        rows * (1 + columns._LEAST // len(lines(rows, plain=True, tight=False))),
        plain=True,
        tight=False,
    )


def test_what_is_read_by_column() -> None:
    """Numbers, texts and gaps are; a key that comes later is learned; after that nothing is
    parsed twice.
    """
    plain = PlainRows()
    first = plain.table(
        block_of(
            [
                {"step": 1, "reward": 0.1, "type": 'a "b"'},
                {"b": 1, "step": 2, "a": 2, "reward": None},
            ]
        )
    )
    assert first is not None
    assert first.columns == ["step", "reward", "type", "b", "a"]
    assert first["reward"][:2].to_list() == [0.1, None]
    later = plain.table(block_of([{"step": 3, "late": 12345678901234567890}]))
    assert later is not None
    assert np.array_equal(later["late"].unique(), [12345678901234567890.0])


@each_case(
    "last",
    [
        {"a": {"b": 1}},
        {"a": [1, 2]},
        {"t": 5},
        {"t": [1]},
        {"t": {"b": 1}},
        '{"a": NaN}',
        '{"a": 1, "a": 2}',
        "x",
        {"t": "\ud800"},
        '{"a":\r1}',
        {"sum": 1},
    ],
)
def test_what_is_left_to_be_read_row_by_row(last: Any) -> None:
    rows = [{"a": 1.5, "t": "text"}]
    assert PlainRows().table(block_of(rows), without=("sum",)) is not None
    assert (
        PlainRows().table(block_of(rows) + lines([last], plain=True, tight=False), without=("sum",))
        is None
    )


@each_case(
    "later",
    [
        '{"a": 1, "null_share": 2}',  # a key that is new, and holds the word that is counted
        '{"a": 1, "a": null}',
        r'{"a": 1, "b": "\u0022\u0022", "new": 3}',
        '{"a": 1, "new": "nullnull"}',
    ],
)
def test_what_a_later_block_adds_or_doubles_is_not_dropped(
    later: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "_LEAST", 0)
    by_column, by_row = JsonlFeed(), JsonlFeed()
    for block in (
        lines(['{"a": 1, "b": "x", "c": null}'] * 3, plain=True, tight=False),
        lines([later] * 3, plain=True, tight=False),
    ):
        by_column.take_block(block)
        by_row.take(lines_in(block))
    assert str(content(by_column)) == str(content(by_row))


def test_keys_that_hold_null_in_some_rows_are_read_by_column(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(columns, "_LEAST", 0)
    block = lines(
        [{"a": 1, "b": None, "c": None}, {"a": 2, "b": 5, "c": None}] * 2, plain=True, tight=True
    )
    assert PlainRows().table(block) is not None


def test_marks_behind_backslashes() -> None:
    """Of n backslashes before a quotation mark an odd number makes it a letter."""
    block = b"{" + b"x".join(b"\\" * number + b'"' for number in range(40))
    assert columns._marks(block) == 20
    assert columns._marks(b"{" + b"\\" * 1000 + b'"') == -1
