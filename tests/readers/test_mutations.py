"""Hostile logs: whatever is done to a valid one, a sound record or one of our errors comes back,
never anything else.
"""

from __future__ import annotations

import json
import os
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from groupwise.errors import GroupwiseError
from groupwise.readers import run_record
from groupwise.record.run import RecordWriter, RunConfig, RunRecord
from groupwise.record.table import steps_table

ROWS = [
    {
        "step": step,
        "reward": step / 10,
        "reward_std": 0.3,
        "completions/mean_length": 9.0,
        "loss": 0.1,
        "kl": float("nan"),
        "num_tokens": 9.0 * step,
    }
    for step in range(1, 9)
]
ODD = [
    "",
    "null",
    "NaN",
    "-Infinity",
    "1e999",
    "9" * 500,
    '"No log"',
    '"abc"',
    "[]",
    "{}",
    "true",
    "-1",
    "0.5",
    '{"a": [1, {"b": 2}]}',
    '"\\u0000"',
    "1e-320",
]


def state(rows: list[str]) -> str:
    return (
        '{"global_step": 8, "log_history": ['
        + ",\n".join(rows)
        + '], "logging_steps": 1, "max_steps": 8}'
    )


def cells(rows: list[str]) -> str:
    names = list(ROWS[0])
    table = [
        ",".join(str(json.loads(row).get(name, "")) for name in names)
        for row in rows
        if row.endswith("}") and _loads(row)
    ]
    return "\n".join([",".join(names), *table]) + "\n"


def _loads(row: str) -> bool:
    try:
        return isinstance(json.loads(row), dict)
    except ValueError:
        return False


def printed(rows: list[str]) -> str:
    python = (row.replace('"', "'").replace("NaN", "nan") for row in rows)
    return "".join(
        f"\r {at}%|# | {at}/8 [00:01<00:09]\r{row}\n" for at, row in enumerate(python, start=1)
    )


def notebook(rows: list[str]) -> str:
    body = "".join(
        "<tr>" + "".join(f"<td>{cell}</td>" for cell in line.split(",")) + "</tr>"
        for line in cells(rows).split("\n")
    )
    html = "<table>" + body.replace("<td>step</td>", "<th>Step</th>") + "</table>"
    return json.dumps(
        {
            "cells": [{"source": "x = 1,", "outputs": [{"data": {"text/html": [html]}}]}],
            "nbformat": 4,
        }
    )


def columns(rows: list[str]) -> str:
    return json.dumps({key: [row[key] for row in ROWS[: len(rows)]] for key in ROWS[0]})


FORMATS: dict[str, Callable[[list[str]], str]] = {
    "state": state,
    "csv": cells,
    "jsonl": "\n".join,
    "events": lambda rows: "\n".join(
        row[:-1] + f', "type": "{("eval", "train", "rollout")[at % 3]}"}}'
        for at, row in enumerate(rows)
    ),
    "json": lambda rows: "[" + ",".join(rows) + "]",
    "columns": columns,
    "runs": lambda rows: (
        '{"results": [{"tag": "a", "log": ['
        + ",".join(rows)
        + ']}, {"tag": "b", "trace": [1, 2, 3]}]}'
    ),
    "console": printed,
    "notebook": notebook,
    "yaml": lambda rows: "group_size: 8\ntraining:\n  lr: 1e-5\n  beta: 0.1\n  seed: 3\n",
}


def opened_or_refused(path: str) -> RunRecord | None:
    """The record, or None after one of our errors, whose message must be one sentence."""
    try:
        return run_record(path)
    except GroupwiseError as error:
        message = str(error)
    assert "\n" not in message
    assert len(message) < 1000
    return None


def survives(content: bytes, name: str = "log", suffix: str = "") -> None:
    """Open the content; a record must be sound, an error must be ours and one sentence."""
    with tempfile.TemporaryDirectory() as home:
        path = Path(home, name)
        path.write_bytes(content)
        record = opened_or_refused(f"{path}{suffix}")
    if record is not None:
        record.validate()
        assert record.metrics()
        assert all(text.isprintable() for text in (*record.notes, *record.steps.columns))
        for metric in record.metrics():
            assert record.column(metric) == metric


few = settings(
    max_examples=int(os.environ.get("GROUPWISE_EXAMPLES", "10")),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", sorted(FORMATS))
@few
@given(data=st.data())
def test_changed_bytes(name: str, data: st.DataObject) -> None:
    content = bytearray(FORMATS[name]([json.dumps(row) for row in ROWS]).encode())
    for _ in range(data.draw(st.integers(1, 8))):
        byte = data.draw(st.one_of(st.integers(0, 255), st.sampled_from(b'{}[]",:\n\r\0 #/-e9')))
        content[data.draw(st.integers(0, len(content) - 1))] = byte
    start, end = sorted(
        (data.draw(st.integers(0, len(content))), data.draw(st.integers(0, len(content))))
    )
    how = data.draw(st.sampled_from(["keep", "cut", "drop", "double"]))
    cut = {
        "keep": content,
        "cut": content[:end],
        "drop": content[:start] + content[end:],
        "double": content[:end] + content[start:],
    }[how]
    survives(bytes(cut))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", sorted(FORMATS))
@few
@given(data=st.data())
def test_changed_rows_and_values(name: str, data: st.DataObject) -> None:
    rows = [json.dumps(row) for row in ROWS] * data.draw(st.integers(1, 2))
    if data.draw(st.booleans()):
        random.Random(data.draw(st.integers(0, 99))).shuffle(rows)
    for at in data.draw(st.sets(st.integers(0, len(rows) - 1), max_size=4)):
        row = json.loads(rows[at])
        key = data.draw(st.one_of(st.sampled_from(list(ROWS[0])), st.text(max_size=5)))
        odd = data.draw(st.sampled_from(ODD))
        row.pop(key, None)
        rows[at] = json.dumps(row)[:-1] + f", {json.dumps(key)}: {odd}}}"
    survives(FORMATS[name](rows).encode(), suffix=data.draw(st.sampled_from(["", "", "#a", "#b"])))


@few
@given(
    content=st.one_of(st.binary(max_size=400), st.text(max_size=400).map(str.encode)),
    name=st.sampled_from(
        ["log", "a.csv", "a.jsonl", "a.json", "a.yaml", "a.ipynb", "a.log", "trainer_state.json"]
    ),
)
def test_anything_at_all(content: bytes, name: str) -> None:
    survives(content, name)


@few
@given(
    steps=st.lists(
        st.integers(-5, 30)
        | st.integers()
        | st.floats()
        | st.none()
        | st.booleans()
        | st.text(max_size=3),
        max_size=40,
    )
)
def test_any_steps(steps: list[object]) -> None:
    survives(
        "\n".join(
            json.dumps({"step": step, "reward": at}) for at, step in enumerate(steps)
        ).encode(),
        "a.jsonl",
    )


@few
@given(data=st.data())
def test_cut_parquet(data: st.DataObject) -> None:
    """Only cut or emptied at its ends: Polars itself aborts the process on some Parquet files
    with bytes changed inside.
    """
    with tempfile.TemporaryDirectory() as home:
        path = Path(home, "a.parquet")
        pl.DataFrame(ROWS).write_parquet(path)
        content = path.read_bytes()
    cut = data.draw(st.integers(0, len(content)))
    tail = data.draw(st.sampled_from([b"", b"\0" * 8, b"PAR1", b"\0" * (len(content) - cut)]))
    survives(content[:cut] + tail, "a.parquet")


@few
@given(data=st.data())
def test_changed_records(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home, "run")
        RunRecord(
            "x",
            steps_table([1, 2], {"a": [1, 2]}),
            config=RunConfig().with_settings({"seed": 1}, "x"),
        ).save(folder)
        with RecordWriter(folder, name="x") as writer:
            writer.append({"step": 3, "a": 1.0}, [{"prompt_id": 0, "reward": 1.0}])
        path = folder / data.draw(
            st.sampled_from(["record.json", "journal.jsonl", "steps.parquet"])
        )
        content = bytearray(path.read_bytes())
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
        path.write_bytes(content)
        record = opened_or_refused(str(folder))
    if record is not None:
        record.validate()
