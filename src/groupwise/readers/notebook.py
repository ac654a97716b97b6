"""What a training cell leaves in a Jupyter notebook: a progress table (Transformers' notebook
callback, Unsloth), or printed steps.

Only the cells' stored output is read; no cell is run.
"""

import ast
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from html import unescape
from itertools import compress
from pathlib import Path
from typing import Any

from groupwise import parsing
from groupwise.errors import UnreadableRunError
from groupwise.files import forms
from groupwise.parsing import JsonObject, JsonView, parse_json
from groupwise.readers.assemble import Log, Origin, Request, assemble
from groupwise.readers.configs import settings_in, with_found
from groupwise.readers.console import DictConsole, PrintedConsole, TrlConsole, VerlConsole
from groupwise.readers.rows import RowStore
from groupwise.readers.source import lines_of, peek, read_whole, shown
from groupwise.record.run import RunRecord
from groupwise.record.table import thinned

_TABLE, _ROW, _CELL, _TAG, _MAGIC = forms("table row notebook_cell tag magic")
_MOST_CODE = 1 << 20  # characters of a cell


def read_notebook(path: Path, request: Request) -> RunRecord:
    """Read the longest progress table among the notebook's stored outputs, else the steps that a
    cell printed.
    """
    seen = peek(path)
    written = read_whole(seen)
    try:
        notebook = parse_json(written, floats=True)
    except ValueError:
        raise UnreadableRunError(
            f"expected a notebook, got {shown(path)}, whose JSON is damaged or cut off: copy it "
            "again"
        ) from None
    parts = (part for html in _texts(notebook, "html") for part in _TABLE.split(html)[1:])
    # of a training's: a header with "Step" and rows below
    tables = [
        rows
        for rows in map(_ROW.split, parts)
        if len(rows) > 2 and "".join(_cells(rows[1])[:1]).lower() == "step"
    ]
    cells = list(_texts(notebook, "source"))
    settings = _arguments(cells) | (
        {"framework": "unsloth"} if any("unsloth" in code for code in cells) else {}
    )
    if not tables:
        return _printed(path, seen.size, notebook, request, settings)
    longest = max(tables, key=len)
    notes = ["the notebook table rounds values to six decimals and lacks some keys of the log"]
    if len(tables) > 1:
        notes.append(f"the notebook has {len(tables)} progress tables, and the longest was read")
    store, (_, head, *rows) = RowStore(), longest
    read = len(rows)
    while len(rows) > parsing.MOST_ROWS:
        rows = list(compress(rows, thinned(len(rows))))
    names = [name or f"column {number}" for number, name in enumerate(_cells(head), start=1)]
    store.add_cells(names, [*filter(None, map(_cells, rows))])
    store.read, store.share = read, len(rows) / read
    stated = ((settings, "the code of the notebook"),)
    return assemble(
        Log(store, path, "notebook", seen.size, notes, stated=stated, complete=False), request
    )


def _printed(
    path: Path, size: int, notebook: Any, request: Request, settings: JsonView
) -> RunRecord:
    """Read the steps that a cell printed: of all cells and all ways to print them the longest
    run.
    """
    records = []
    request = replace(
        request,
        config=with_found(request.config, settings_in(settings), "the code of the notebook"),
    )
    for text in _texts(notebook, "text"):
        for console in (VerlConsole, TrlConsole, DictConsole, PrintedConsole):
            feed = console()
            feed.take(lines_of(text)[: parsing.MOST_ROWS])
            feed.finish()
            with suppress(UnreadableRunError):
                records.append(feed.record(Origin(path, size), request))
    if not records:
        hint = (
            "print lines like step 1: reward=0.5, or give the log of the run"
            if any(_texts(notebook, "text"))
            else "run its cells"
        )
        raise UnreadableRunError(
            "expected a notebook with a training's progress table or printed steps, got none in "
            f"{shown(path)}: {hint}"
        )
    longest = max(records, key=lambda record: len(record.steps))
    return replace(
        longest, sources=tuple(replace(source, reader="notebook") for source in longest.sources)
    )


def _cells(row: str) -> list[str]:
    """Return the texts of the cells of a row."""
    inside = (cell.partition(">")[2].partition("</t")[0] for cell in _CELL.split(row)[1:])
    return [unescape(_TAG.sub("", text)).strip() for text in inside]


def _texts(notebook: Any, what: str) -> Iterator[str]:
    """Yield the HTML outputs, the printed texts or the code of the cells; whatever has another
    shape is passed over.
    """
    for cell in _objects(notebook, "cells"):
        if what == "source":
            yield _joined(cell.get("source"))
            continue
        for output in _objects(cell, "outputs"):
            data = output.get("data")
            if what == "text":
                yield _joined(output.get("text"))
            elif isinstance(data, Mapping) and "text/html" in data:
                yield _joined(data["text/html"])


def _objects(whole: Any, key: str) -> list[JsonView]:
    """Return the objects that another one lists under a key."""
    entries = whole.get(key) if isinstance(whole, Mapping) else None
    listed = entries if isinstance(entries, list) else []
    return [entry for entry in listed if isinstance(entry, Mapping)]


def _joined(text: Any) -> str:
    """Return a notebook's text, which is a string or a list of strings."""
    parts = text if isinstance(text, list) else [text]
    return "".join(part for part in parts if isinstance(part, str))


def _arguments(cells: Iterable[str]) -> JsonObject:
    """Return the literal keyword arguments of calls in the code, those of what is called GRPO
    before all others; no code is run.
    """
    calls = [call for code in cells for call in _calls(code)]
    arguments: JsonObject = {}
    for call in sorted(
        calls,
        key=lambda call: (
            "grpo" not in getattr(call.func, "id", getattr(call.func, "attr", "")).lower()
        ),
    ):
        for argument in call.keywords:
            with suppress(ValueError, TypeError):
                value = (
                    ast.literal_eval(argument.value)
                    if isinstance(argument.value, ast.Constant | ast.UnaryOp)
                    else None
                )
                if argument.arg and isinstance(value, int | float | str):
                    arguments.setdefault(argument.arg, value)
    return arguments


def _calls(code: str) -> list[ast.Call]:
    """Return the calls of a cell in their order, none where it is no Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(_MAGIC.sub(r"\1pass", code[:_MOST_CODE]))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
