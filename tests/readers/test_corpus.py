"""A fuzzer over one log of every format: damaged anywhere, it gives a sound record or one sentence,
and says what it left out.

`GROUPWISE_EXAMPLES` sets the cases a format; the slow test runs 10,000 in all.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from tests.readers import writers

from groupwise.errors import GroupwiseError
from groupwise.readers import run_record
from groupwise.record.run import RunRecord

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures" / "readers"
CASES = int(os.environ.get("GROUPWISE_EXAMPLES", "8"))
LONGEST_SECONDS = 20.0
ROWS = [writers.hf_row(step) | {"step": float(step)} for step in range(1, 9)]
HISTORY = [
    {"_step": step, "train/global_step": step, **writers.hf_row(step)} for step in range(1, 9)
]

MADE: dict[str, Callable[[Path], Path]] = {
    "events.out.tfevents.1.host": lambda path: writers.event_file(
        path, ROWS, texts={"args/text_summary": '{"num_generations": 8}'}
    ),
    "run-abc.wandb": lambda path: writers.wandb_file(path, HISTORY, {"num_generations": 8}),
    "trackio.db": writers.trackio_database,
    "mlflow.db": writers.mlflow_database,
}
TEXTS = [
    "verl/console.log",
    "verl/legacy.log",
    "verl/file.jsonl",
    "verl/rollouts_v0/1.jsonl",
    "verl/rollouts_v1/1.jsonl",
    "trl/console.log",
    "trl/console_strings.log",
    "openrlhf/console.log",
    "swift/logging.jsonl",
    "swift/completions.jsonl",
    "prime_rl/metrics.jsonl",
    "prime_rl/rollouts/step_1/train/all/traces.jsonl",
    "nemo_rl/train_data_step1.jsonl",
    "nemo_rl/console.log",
    "art/history.jsonl",
    "areal/console.log",
    "skyrl/export.csv#a",
    "open_instruct/history.jsonl",
    "events/metrics.jsonl",
    "columns/metrics.json",
    "printed/console.log",
    "skyrl/console.log",
    "slime/console.log",
]
# Formats in which a row stands on a line, carries its step, and is known to be a row even where it
# is damaged.
LINES = [
    "verl/console.log",
    "verl/file.jsonl",
    "trl/console.log",
    "swift/logging.jsonl",
    "open_instruct/history.jsonl",
    "art/history.jsonl",
]
CHECKED = ["events.out.tfevents.1.host", "run-abc.wandb"]


def original(name: str, home: Path) -> Path:
    """A whole log of the format in a folder of its own."""
    path = home / Path(name.split("#", maxsplit=1)[0]).name
    if name in MADE:
        return MADE[name](path)
    shutil.copy(FIXTURES / name.split("#", maxsplit=1)[0], path)
    return path


def damaged(content: bytes, draw: random.Random) -> bytes:
    """The content with bytes changed, a piece dropped, doubled or moved, or its end cut off."""
    out = bytearray(content)
    for _ in range(draw.randint(1, 6)):
        at = draw.randrange(len(out))
        choices = [draw.randrange(256), *b"{}[]\",:\n\r\0 #/-e9()'|%="]
        how = draw.choice(["byte", "byte", "byte", "insert", "drop", "double", "cut", "swap"])
        end = min(len(out), at + draw.choice([1, 3, 20, 400]))
        if how == "byte":
            out[at] = draw.choice(choices)
        elif how == "insert":
            out[at:at] = bytes(draw.choice(choices) for _ in range(draw.randint(1, 9)))
        elif how == "drop":
            del out[at:end]
        elif how == "double":
            out[at:at] = out[at:end]
        elif how == "swap":
            piece = bytes(out[at:end])
            del out[at:end]
            place = draw.randrange(len(out) + 1)
            out[place:place] = piece
        else:
            del out[at:]
        if not out:
            return b"x"
    return bytes(out)


def outcome(path: str) -> RunRecord | None:
    """The record, or None after an error of ours, which is one sentence; nothing takes long."""
    began = time.monotonic()
    record, message = None, ""
    try:
        record = run_record(path)
    except GroupwiseError as error:
        message = str(error)
    assert record is not None or 10 < len(message) < 1000
    assert "\n" not in message
    assert time.monotonic() - began < LONGEST_SECONDS
    if record is not None:
        record.validate()
        assert record.metrics()
        assert all(text.isprintable() for text in (*record.notes, *record.steps.columns))
    return record


def run_corpus(name: str, home: Path, cases: int, seed: int) -> int:
    """Damage one log so many times; return how many of them still opened."""
    path = original(name, home)
    content, opened = path.read_bytes(), 0
    suffix = "#a" if name.endswith("#a") else ""
    for case in range(cases):
        path.write_bytes(damaged(content, random.Random(f"{name} {seed} {case}")))
        try:
            opened += outcome(f"{path}{suffix}") is not None
        except Exception as error:
            error.add_note(f"{name}, case {case} of seed {seed}")
            raise
    return opened


@pytest.mark.thinned(4)
@pytest.mark.parametrize("name", [*TEXTS, *MADE])
def test_damaged_logs(name: str, tmp_path: Path) -> None:
    run_corpus(name, tmp_path, CASES, 0)


@pytest.mark.slow
def test_ten_thousand_damaged_logs(tmp_path: Path) -> None:
    names = [*TEXTS, *MADE]
    cases = math.ceil(10_000 / len(names))
    opened = {}
    for name in names:
        home = tmp_path / name.replace("/", "_")
        home.mkdir()
        opened[name] = run_corpus(name, home, cases, 1)
    print(
        f"\n{cases * len(names)} damaged logs of {len(names)} formats, {sum(opened.values())} of "
        "them still opened"
    )
    assert sum(opened.values()) > cases


def rows(record: RunRecord | None) -> dict[int, dict[str, float | None]]:
    """Steps of a record with what they hold, clocks aside."""
    if record is None:
        return {}
    table = record.steps.select("step", *record.metrics())
    return {
        row.pop("step"): {key: value for key, value in row.items() if value is not None}
        for row in table.to_dicts()
    }


def silent_changes(before: RunRecord, after: RunRecord | None, touched: set[int]) -> list[str]:
    """What a damaged log changed at steps that were not touched without saying so in a note."""
    if after is None or set(after.notes) - set(before.notes):
        return []
    old, new = rows(before), rows(after)
    # A step of its own number may come in: a digit of the touched row's step was changed.
    lost = [f"step {step} is gone" for step in old if step not in new and step not in touched]
    return lost + [
        f"step {step} differs"
        for step in old
        if step in new and step not in touched and old[step] != new[step]
    ]


@pytest.mark.thinned(1)
@pytest.mark.parametrize("name", LINES)
def test_a_damaged_line_changes_no_other_row_in_silence(name: str, tmp_path: Path) -> None:
    path = original(name, tmp_path)
    before = run_record(path)
    lines = path.read_bytes().split(b"\n")
    for case in range(4 * CASES):
        draw = random.Random(f"{name} {case}")
        at = draw.choice([number for number, line in enumerate(lines) if len(line) > 60])
        line = damaged(lines[at], draw).replace(b"\n", b" ").replace(b"\r", b" ")
        path.write_bytes(b"\n".join([*lines[:at], line, *lines[at + 1 :]]))
        after = outcome(str(path))
        path.write_bytes(b"\n".join([*lines[:at], *lines[at + 1 :]]))
        without = rows(outcome(str(path)))
        touched = {step for step, row in rows(before).items() if without.get(step) != row}
        assert not silent_changes(before, after, touched), (case, line)


@pytest.mark.parametrize("name", CHECKED)
def test_where_there_are_checksums_no_value_changes_at_all(name: str, tmp_path: Path) -> None:
    path = original(name, tmp_path)
    content, before = path.read_bytes(), run_record(path)
    old = rows(before)
    for case in range(4 * CASES):
        draw = random.Random(f"{name} {case}")
        out = bytearray(content)
        for _ in range(draw.randint(1, 4)):
            out[draw.randrange(len(out))] ^= 1 << draw.randrange(8)
        path.write_bytes(out)
        after = outcome(str(path))
        new = rows(after)
        for step, row in new.items():
            assert set(row.items()) <= set(old[step].items()), (case, step)
        if after is not None and new != old:
            assert set(after.notes) - set(before.notes), case


def test_a_log_given_twice_is_read_once(tmp_path: Path) -> None:
    """Concatenated, interleaved and resumed logs: each step once, and a note that says so."""
    path = original("verl/console.log", tmp_path)
    whole = path.read_text()
    printed = [line for line in whole.splitlines() if "step:" in line]
    before = run_record(path).steps
    for text in (
        whole + whole,
        "\n".join(line for line in printed for _ in range(2)),
        whole + "\n".join(printed[5:]),
    ):
        path.write_text(text)
        record = run_record(path)
        assert record.steps["step"].to_list() == before["step"].to_list()
        assert record.steps["critic/score/mean"].equals(before["critic/score/mean"])
    assert any("restarted" in note for note in record.notes)
    json.dumps(record.notes)
    assert isinstance(record.steps, pl.DataFrame)
