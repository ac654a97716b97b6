"""Hostile logs, each opened by `groupwise diagnose --json` in a process that the kernel bounds:
mutants of real files, and shapes.

    python scripts/fuzz.py                     # 3,000 mutants of ../shared/data and every shape;
    goes on where it was stopped python scripts/fuzz.py --only shapes       # the shapes alone
    python scripts/fuzz.py --seed 17           # one mutant again, with its traceback

A file passes where the command answers (0, 1 or 3) or refuses it in one line (2) within `MEMORY`
and `SECONDS`.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import io
import json
import os
import pickle
import random
import resource
import shutil
import signal
import sqlite3
import struct
import sys
import tempfile
import time
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
DATA = ROOT.parent / "shared" / "data"
MEMORY, SECONDS, WALL = 1 << 30, 10.0, 60  # bytes, of a processor, of a clock
SOUND = (0, 1, 2, 3)
_LARGEST = 1 << 21  # bytes of a real file that are mutated
ODD = (
    "NaN",
    "inf",
    "-inf",
    "1e308",
    "-1e308",
    "1e-320",
    "1e999",
    "9" * 400,
    "0",
    "-0.0",
    "null",
    "True",
    '""',
    "0x1p3",
    "१२",
    "1_000",
)
Shape = Callable[
    [Path], Path | None
]  # writes into a folder; the path to open, None where the machine has none


# What real logs become.


def _lines(content: bytes, change: Callable[[list[bytes]], None]) -> bytes:
    """Return a content after a change of its lines."""
    lines = content.splitlines(keepends=True) or [b""]
    change(lines)
    return b"".join(lines)


def flipped(content: bytes, draw: random.Random) -> bytes:
    """Some bytes of any value."""
    new = bytearray(content or b"x")
    for _ in range(draw.choice((1, 8, 200))):
        new[draw.randrange(len(new))] = draw.randrange(256)
    return bytes(new)


def cut(content: bytes, draw: random.Random) -> bytes:
    """A piece gone, at the end or within."""
    start, end = sorted(draw.choices(range(len(content) + 1), k=2))
    return content[:start] if draw.random() < 0.5 else content[:start] + content[end:]


def doubled(content: bytes, draw: random.Random) -> bytes:
    """Lines that come again, elsewhere."""

    def change(lines: list[bytes]) -> None:
        for _ in range(draw.choice((1, 20))):
            lines.insert(draw.randrange(len(lines) + 1), draw.choice(lines))

    return _lines(content, change)


def dropped(content: bytes, draw: random.Random) -> bytes:
    """Lines that are gone."""

    def change(lines: list[bytes]) -> None:
        lines[:] = [line for line in lines if draw.random() > 0.3]

    return _lines(content, change)


def shuffled(content: bytes, draw: random.Random) -> bytes:
    """Lines in another order."""
    return _lines(content, draw.shuffle)


def long_cell(content: bytes, draw: random.Random) -> bytes:
    """A cell of many characters at a separator."""
    at = _separator(content, draw)
    return (
        content[:at]
        + draw.choice((b"3.14", b"x ", b"[", b"{", b"\\", b"(", b"<td>", b"1,", b"'a': ")) * 50_000
        + content[at:]
    )


def odd_number(content: bytes, draw: random.Random) -> bytes:
    """Odd numbers where others stood."""
    for _ in range(draw.choice((1, 10))):
        at = _separator(content, draw)
        end = next(
            (
                place
                for place in range(at, min(at + 200, len(content)))
                if content[place] in b",}\n]\t |"
            ),
            at,
        )
        content = content[:at] + draw.choice(ODD).encode() + content[end:]
    return content


def _separator(content: bytes, draw: random.Random) -> int:
    """Return a place behind a separator near one that is drawn."""
    start = draw.randrange(len(content) + 1)
    places = [place for mark in b",:= \t" if (place := content.find(bytes([mark]), start)) >= 0]
    return min(places) + 1 if places else start


def recoded(content: bytes, draw: random.Random) -> bytes:
    """Another encoding, or another end of lines."""
    text = content.decode("utf-8", "replace")
    name = draw.choice(
        (
            "utf-16",
            "utf-16-le",
            "utf-16-be",
            "utf-32",
            "utf-8-sig",
            "cp037",
            "utf-7",
            "\r",
            "\r\n",
            "\0\n",
        )
    )
    return (
        text.replace("\n", name).encode()
        if "\n" in name or "\r" in name
        else text.encode(name, "replace")
    )


def merged(content: bytes, draw: random.Random) -> bytes:
    """Half of it within the other half."""
    at, middle = draw.randrange(len(content) + 1), len(content) // 2
    return content[:at][:middle] + content[middle:] + content[at:]


def zeroed(content: bytes, draw: random.Random) -> bytes:
    """A stretch of NUL bytes, as a lost block leaves it."""
    at = draw.randrange(len(content) + 1)
    return content[:at] + bytes(4096) + content[at + 4096 :]


CHANGES = (flipped, cut, doubled, dropped, shuffled, long_cell, odd_number, recoded, merged, zeroed)


def real_files() -> list[Path]:
    """Return the logs of the shared data, in one order."""
    return sorted(
        path for path in DATA.rglob("*") if path.is_file() and path.suffix not in (".md", ".tsv")
    )


def mutant(seed: int, home: Path, files: list[Path]) -> tuple[str, Path]:
    """Write the mutant of a seed; return what it is and where."""
    draw = random.Random(seed)
    source = draw.choice(files)
    with source.open("rb") as file:
        content = file.read(_LARGEST)
    name, hows = source.name, []
    if draw.random() < 0.1:  # its name over another's content
        name = draw.choice(files).name
        hows.append("swapped")
    for change in draw.sample(CHANGES, draw.choice((1, 1, 1, 2, 3))):
        content = change(content, draw)
        hows.append(change.__name__)
    path = home / name
    path.write_bytes(content)
    return f"{source.relative_to(DATA)}: {', '.join(hows)}", path


# What nobody logs.


def _of(name: str, content: bytes | str | Callable[[], bytes]) -> Shape:
    """Return the shape of one file."""

    def write(home: Path) -> Path:
        made = content() if callable(content) else content
        (home / name).write_bytes(made.encode() if isinstance(made, str) else made)
        return home / name

    return write


def _repeated(name: str, start: bytes, piece: bytes, size: int, end: bytes = b"") -> Shape:
    """Return the shape of a file with one piece again and again, as many bytes as are asked for."""

    def write(home: Path) -> Path:
        with (home / name).open("wb") as file:
            file.write(start)
            block = piece * max(1, (1 << 20) // len(piece))
            for _ in range(size // len(block)):
                file.write(block)
            file.write(end)
        return home / name

    return write


def _sparse(name: str, size: int, start: bytes = b"") -> Shape:
    """Return the shape of a file that is a hole behind its first bytes."""

    def write(home: Path) -> Path:
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.write(start)
            file.truncate(size)
        return path.parent if "/" in name else path

    return write


def _fifo(name: str) -> Shape:
    """Return the shape of a pipe that nobody writes to."""

    def write(home: Path) -> Path:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(home / name)
        return (home / name).parent if "/" in name else home / name

    return write


def _there(path: str) -> Shape:
    """Return the shape of a file that the system has."""
    return lambda _: Path(path) if os.path.lexists(path) else None


def _zip(
    name: str, inner: str, content: Callable[[], bytes], method: int = zipfile.ZIP_STORED
) -> Shape:
    """Return the shape of an archive."""

    def write(home: Path) -> Path:
        with zipfile.ZipFile(home / name, "w", method) as archive:
            archive.writestr(inner, content())
        return home / name

    return write


def _rows(count: int, row: Callable[[int], dict[str, Any]]) -> str:
    """Return rows as JSON lines."""
    return "".join(json.dumps(row(step)) + "\n" for step in range(1, count + 1))


def _rewards(*values: float) -> str:
    """Return a log of forty rewards."""
    return _rows(
        40,
        lambda step: {
            "step": step,
            "reward": values[step % len(values)],
            "loss": 0.1,
            "kl": values[-1],
        },
    )


def _journal(*bodies: bytes) -> bytes:
    """Return a journal of entries."""
    return b"".join(b"%08x %d %s\n" % (zlib.crc32(body), len(body), body) for body in bodies)


def _beside(name: str, shape: Shape) -> Shape:
    """Return the shape of a sound log with something hostile beside it."""

    def write(home: Path) -> Path:
        (home / "metrics.jsonl").write_text(_rewards(0.1, 0.3, 0.2))
        shape(home)
        if name:
            next(path for path in home.iterdir() if path.name != "metrics.jsonl").rename(
                home / name
            )
        return home / "metrics.jsonl"

    return write


def _database(cells: Callable[[], Iterator[tuple[int, str]]]) -> Shape:
    """Return the shape of trackio's database."""

    def write(home: Path) -> Path:
        with closing(sqlite3.connect(home / "trackio.db")) as database:
            database.execute(
                "CREATE TABLE metrics (id INTEGER PRIMARY KEY, step, run_name, metrics)"
            )
            database.executemany(
                "INSERT INTO metrics (step, run_name, metrics) VALUES (?, 'a', ?)", cells()
            )
            database.commit()
        return home / "trackio.db"

    return write


def _state(cell: str) -> str:
    """Return a checkpoint's history with a hostile cell in it."""
    return (
        '{"global_step": 2, "log_history": [{"step": 1, "reward": 0.5, "x": '
        + cell
        + '}, {"step": 2, "reward": 0.5}]}'
    )


def _notebook(text: str, kind: str = "text") -> str:
    """Return a notebook with one output."""
    output = {"text": text} if kind == "text" else {"data": {"text/html": text}}
    return json.dumps(
        {"nbformat": 4, "cells": [{"cell_type": "code", "source": "", "outputs": [output]}]}
    )


def _wide(columns: int, rows: int) -> str:
    """Return a table of so many columns."""
    return (
        "step,"
        + ",".join(map("c{}".format, range(columns)))
        + "\n"
        + "".join(f"{at}" + ",1" * columns + "\n" for at in range(rows))
    )


def _loop(home: Path) -> Path:
    """A folder that holds a link to itself."""
    (home / "run").mkdir()
    (home / "run" / "run").symlink_to(home / "run")
    return home / "run"


def _folders(home: Path) -> Path:
    """Ten thousand folders, each with a log."""
    for at in range(10_000):
        (home / f"r{at}").mkdir()
        (home / f"r{at}" / "metrics.jsonl").write_text('{"step": 1, "reward": 0}\n')
    return home


def _deep(home: Path) -> Path:
    """Folders within folders."""
    path = home
    for _ in range(300):
        path /= "a"
        path.mkdir()
    return home


MB = 1 << 20
RECORD = struct.pack("<Q", 1 << 62) + b"\0" * 4

SHAPES: dict[str, Shape] = {
    "60 MB of [],": _repeated("a.json", b"[", b"[],", 60 * MB, b"[]]"),
    "60 MB of {}, in an object": _repeated("a.json", b'{"rows": [', b"{},", 60 * MB, b"{}]}"),
    "60 MB of [], in one line": _repeated(
        "a.jsonl",
        b'{"step": 1, "reward": 1}\n{"step": 2, "x": [',
        b"[],",
        60 * MB,
        b'[]]}\n{"step": 3}\n',
    ),
    "60 MB of numbers in a list": _repeated(
        "a.json", b'{"step": 1, "reward": [', b"0,", 60 * MB, b"0]}"
    ),
    "60 MB of rows of one key": _repeated("a.json", b"[", b'{"":0},', 60 * MB, b"{}]"),
    "60 MB of short JSON lines": _repeated(
        "a.jsonl", b'{"step":1,"reward":1}\n', b'{"a":1}\n', 60 * MB
    ),
    "60 MB of empty lines": _repeated("a.jsonl", b'{"step":1,"reward":1}\n', b"\n", 60 * MB),
    "60 MB of commas": _repeated("a.csv", b"step,reward\n1,0\n", b",", 60 * MB),
    "60 MB of one-cell rows": _repeated("a.csv", b"step,reward\n", b"1,1\n", 60 * MB),
    "60 MB behind a quote": _repeated("a.csv", b'step,reward\n1,"', b"1,1\n", 60 * MB),
    "60 MB of emoji in JSON": _repeated(
        "a.json", b'{"rows": [{"step": 1, "x": "', "\U0001f600".encode(), 60 * MB, b'"}]}'
    ),
    "60 MB of emoji in a console": _repeated(
        "a.log", b"step 1: reward=0.5\n", "\U0001f600".encode(), 60 * MB, b"\n"
    ),
    "60 MB of verl's dashes": _repeated(
        "a.log", b"step:1 - critic/score/mean:0.5 - actor/lr:0.1", b" - a:1", 60 * MB, b"\n"
    ),
    "60 MB of verl's rows": _repeated(
        "a.log", b"", b"step:1 - critic/score/mean:0.5 - actor/lr:0.1\n", 60 * MB
    ),
    "60 MB of TRL's rows": _repeated("a.log", b"", b"{'loss': 0.1, 'reward': 0.5}\n", 60 * MB),
    "60 MB of printed rows": _repeated(
        "a.log", b"", b"Step 3/30 | loss=0.1 | reward=0.5\n", 60 * MB
    ),
    "60 MB of progress bars": _repeated(
        "a.log", b"{'loss': 0.1, 'reward': 0.5}\n", b" 10%|# | 3/30 [00:01<00:09]\r", 60 * MB
    ),
    "nested brackets": _of("a.json", "[" * 1_000_000),
    "nested brackets in a line": _of(
        "a.jsonl", '{"step": 1, "reward": ' + "[" * 1_000_000 + "\n" + _rewards(0.1)
    ),
    "nested braces in a console": _of(
        "a.log", "{'loss': 1, 'reward': " + "{'a': " * 200_000 + "\n"
    ),
    "nested objects": _of("a.json", '{"a":' * 100_000 + "1" + "}" * 100_000),
    "1 MB of digits in JSON": _of(
        "a.jsonl", '{"step": 1, "reward": ' + "9" * MB + "}\n" + _rewards(0.1)
    ),
    "1 MB of digits in a table": _of("a.csv", "step,reward\n1," + "9" * MB + "\n2,1\n3,1\n"),
    "1 MB of digits in a console": _of(
        "a.log", "step:1 - critic/score/mean:" + "9" * MB + "\n" + "step:2 - critic/score/mean:1\n"
    ),
    "1 MB of digits for a step": _of(
        "a.jsonl", _rewards(0.1) + '{"step": ' + "9" * MB + ', "reward": 1}\n'
    ),
    "1 MB of a key": _of(
        "a.jsonl", '{"step": 1, "' + "k" * MB + '": 1, "reward": 1}\n' + _rewards(0.1)
    ),
    "a million columns": _of("a.csv", lambda: _wide(1_000_000, 2).encode()),
    "a million keys": _of(
        "a.jsonl",
        lambda: _rows(
            2, lambda step: {"step": step, "reward": 1, **{f"k{at}": 1 for at in range(1_000_000)}}
        ).encode(),
    ),
    "2,000 columns of 8,000 rows": _of("a.csv", lambda: _wide(2000, 8000).encode()),
    "keys that differ in each row": _of(
        "a.jsonl",
        lambda: _rows(200_000, lambda step: {"step": step, f"k{step}": 1, "reward": 1}).encode(),
    ),
    "duplicate keys": _of(
        "a.jsonl",
        '{"step": 1, "reward": 1, ' + ", ".join(['"reward": 2'] * 100_000) + "}\n" + _rewards(0.1),
    ),
    "10,000 environments": _of(
        "a.jsonl",
        lambda: _rows(
            40,
            lambda step: {
                "step": step,
                "reward": 1,
                **{f"env/{at}/reward": 0.5 for at in range(10_000)},
            },
        ).encode(),
    ),
    "10,000 runs in a table": _of(
        "a.csv", "run,step,reward\n" + "".join(f"r{at // 4},{at % 4},0.5\n" for at in range(40_000))
    ),
    "rewards NaN": _of("a.jsonl", _rewards(float("nan"))),
    "rewards infinite": _of("a.jsonl", _rewards(float("inf"), float("-inf"))),
    "rewards of 1e308": _of("a.jsonl", _rewards(1e308, -1e308)),
    "rewards of 1e-320": _of("a.jsonl", _rewards(1e-320, 0.0)),
    "steps of 2**63": _of("a.jsonl", _rows(40, lambda step: {"step": step * 2**57, "reward": 1})),
    "steps far apart": _of(
        "a.jsonl", _rows(40, lambda step: {"step": step**9, "reward": step % 3})
    ),
    "a huge head": _of("a.log", "x" * 30_000_000 + "\nstep:1 - critic/score/mean:1\n"),
    "a long first line of a table": _of(
        "a.csv", "step,reward," + "x" * 30_000_000 + "\n1,1,1\n2,1,1\n"
    ),
    "a pickle of 40 MB of lists": _zip(
        "rollout_1.pt", "archive/data.pkl", lambda: b"\x80\x04(" + b"]" * (40 * MB) + b"l.samples"
    ),
    "a pickle of 40 MB of marks": _zip(
        "rollout_1.pt", "archive/data.pkl", lambda: b"\x80\x04" + b"(" * (40 * MB) + b"samples"
    ),
    "a pickle of 40 MB of dicts": _zip(
        "rollout_1.pt", "archive/data.pkl", lambda: b"\x80\x04" + b"}\x94" * (20 * MB) + b".samples"
    ),
    "a pickle that doubles its text": _zip(
        "rollout_1.pt",
        "archive/data.pkl",
        lambda: b"\x80\x02X\x08\0\0\0samplesx" + b"q\0h\0h\0\x86" * 1000 + b".",
    ),
    "a pickle that allocates": _zip(
        "rollout_1.pt",
        "archive/data.pkl",
        lambda: b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40) + b"samples",
    ),
    "a pickle with a far place in its memo": _zip(
        "rollout_1.pt", "archive/data.pkl", lambda: b"\x80\x02]r\xff\xff\xff\x0fX\7\0\0\0samples."
    ),
    "a pickle that calls": _zip(
        "rollout_1.pt", "archive/data.pkl", lambda: b"cos\nsystem\n(S'echo samples'\ntR."
    ),
    "a pickle alone": _of("rollout_1.pt", pickle.dumps({"samples": [1]})),
    "a zip of zeros": _zip("a.zip", "metrics.jsonl", lambda: bytes(200 * MB), zipfile.ZIP_DEFLATED),
    "a zip bomb as a dump": _zip(
        "rollout_1.pt",
        "archive/data.pkl",
        lambda: b"\x80\x04samples" + bytes(200 * MB),
        zipfile.ZIP_DEFLATED,
    ),
    "a zip of a million names": _of("rollout_1.pt", lambda: _names(300_000)),
    "a gzip of zeros": _of("a.jsonl.gz", lambda: gzip.compress(bytes(50 * MB))),
    "a sparse log of 3 GB": _sparse("a.jsonl", 3 << 30, b'{"step": 1, "reward": 1}\n'),
    "a sparse table of 3 GB": _sparse("a.csv", 3 << 30, b"step,reward\n1,1\n"),
    "a sparse console of 3 GB": _sparse("a.log", 3 << 30, b"step:1 - critic/score/mean:1\n"),
    "a sparse journal of 3 GB": _sparse(
        "run/journal.jsonl", 3 << 30, _journal(b'{"row":{"step":1,"reward":1}}')
    ),
    "a sparse event file of 3 GB": _sparse("events.out.tfevents.1.host", 3 << 30),
    "a sparse W&B file": _sparse("run.wandb", 1 << 30, b":W&B" + struct.pack("<HB", 0xBEE1, 0)),
    "a sparse W&B file of 3 GB": _sparse(
        "run.wandb", 3 << 30, b":W&B" + struct.pack("<HB", 0xBEE1, 0)
    ),
    "a sparse database": _sparse("trackio.db", 3 << 30, b"SQLite format 3\0"),
    "a sparse Parquet file": _sparse("a.parquet", 3 << 30, b"PAR1"),
    "a sparse checkpoint": _sparse("trainer_state.json", 3 << 30, b'{"log_history": ['),
    "a journal of one entry of [],": _of(
        "journal.jsonl",
        lambda: _journal(b'{"row":{"step":1,"reward":1},"x":[' + b"[]," * (10 * MB) + b"[]]}"),
    ),
    "a journal of a million rows": _of(
        "journal.jsonl",
        lambda: b"".join(_journal(b'{"row":{"step":%d,"reward":1}}' % at) for at in range(600_000)),
    ),
    "a journal of heads": _of("journal.jsonl", b"00000000 9 " * 3_000_000),
    "a journal of many keys": _of(
        "journal.jsonl",
        lambda: b"".join(
            _journal(b'{"row":{"step":%d,"k%d":1}}' % (at, at)) for at in range(200_000)
        ),
    ),
    "an event of a huge length": _of("events.out.tfevents.1.host", RECORD),
    "an event file of small records": _repeated(
        "events.out.tfevents.1.host", b"", b"\0" * 16, 60 * MB
    ),
    "W&B pieces without end": _repeated(
        "run.wandb", b":W&B" + struct.pack("<HB", 0xBEE1, 0), b"\1\2\3\4\0\0\1", 60 * MB
    ),
    "a database of [],": _database(
        lambda: ((at, '{"reward": 1, "x": [' + "[]," * 5_000_000 + "[]]}") for at in range(4))
    ),
    "a database of a million rows": _database(
        lambda: ((at, '{"reward": 1}') for at in range(600_000))
    ),
    "a checkpoint's history with [],": _of(
        "trainer_state.json", lambda: _state("[" + "[]," * 20_000_000 + "[]]").encode()
    ),
    "a checkpoint's history, deep": _of("trainer_state.json", _state("[" * 100_000)),
    "a notebook of [],": _repeated(
        "a.ipynb", b'{"nbformat": 4, "cells": [', b"[],", 60 * MB, b"[]]}"
    ),
    "a notebook of cells": _of(
        "a.ipynb",
        lambda: _notebook(
            "<table><tr><td>Step<td>reward" + "<tr><td>1<td>2" * 2_000_000, "html"
        ).encode(),
    ),
    "a notebook that prints": _of(
        "a.ipynb", lambda: _notebook("step 1: reward=0.5\n" * 1_000_000).encode()
    ),
    "a safetensors header of 2**60 bytes": _of(
        "model.safetensors", struct.pack("<Q", 1 << 60) + b"{" + b" " * 1000
    ),
    "a safetensors header of [],": _of(
        "model.safetensors", lambda: struct.pack("<Q", 60 * MB) + b'{"a": [' + b"[]," * (20 * MB)
    ),
    "a gguf header of 2**60 keys": _of(
        "model.gguf", b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 1 << 60) + b"\0" * 1000
    ),
    "settings of [],": _beside("config.json", _repeated("b.json", b"[", b"[],", 15 * MB, b"[]]")),
    "settings of YAML anchors": _beside(
        "config.yaml",
        _of(
            "b.yaml",
            "a: &a [x, x]\n"
            + "".join(
                f"{chr(98 + at)}: &{chr(98 + at)} [*{chr(97 + at)}, *{chr(97 + at)}]\n"
                for at in range(20)
            ),
        ),
    ),
    "settings of YAML brackets": _beside("config.yaml", _of("b.yaml", "a: " + "[" * 100_000)),
    "settings that are a pipe": _beside("config.json", _fifo("config.json")),
    "a pipe": _fifo("metrics.jsonl"),
    "a folder with a pipe": _fifo("run/metrics.jsonl"),
    "a journal that is a pipe": _fifo("run/journal.jsonl"),
    "/dev/zero": _there("/dev/zero"),
    "/dev/stdin": _there("/dev/stdin"),
    "/proc/kmsg": _there("/proc/kmsg"),
    "/proc/self/mem": _there("/proc/self/mem"),
    "/proc/self": _there("/proc/self"),
    "/sys/kernel": _there("/sys/kernel"),
    "a link to itself": _loop,
    "10,000 folders": _folders,
    "300 folders deep": _deep,
    "completions of one long text": _of(
        "rollouts.jsonl",
        lambda: _rows(
            8,
            lambda at: {"step": 1, "prompt": "p", "completion": "x" * 4_000_000, "reward": at % 2},
        ).encode(),
    ),
    "a million completions": _of(
        "rollouts.jsonl",
        lambda: _rows(
            600_000,
            lambda at: {
                "step": at // 1000,
                "prompt": f"p{at // 8}",
                "completion": "c",
                "reward": at % 2,
            },
        ).encode(),
    ),
    "a group of a million rewards": _of(
        "rollouts.jsonl",
        lambda: _rows(
            3, lambda at: {"step": at, "prompt": "p", "rewards": [0, 1] * 500_000}
        ).encode(),
    ),
    "a traceback without end": _of(
        "a.log", "Traceback (most recent call last):\n" + '  File "a.py", line 1, in f\n' * 500_000
    ),
    "escapes of a terminal": _of(
        "a.log", "\x1b[31m" * 1_000_000 + "step:1 - critic/score/mean:1\n"
    ),
}


def _names(count: int) -> bytes:
    """Return an archive of so many empty files."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for at in range(count):
            archive.writestr(f"{at}", b"")
    return held.getvalue()


# Opening them.


def opened(path: Path, *, trace: bool = False) -> dict[str, Any]:
    """Open a path by the command in a process of its own; return its code, memory, seconds and
    last words.
    """
    with tempfile.TemporaryFile("w+") as words:
        begun = time.monotonic()
        child = os.fork()
        if not child:
            _child(path, words, trace=trace)
        _, status, used = os.wait4(child, 0)
        words.seek(0)
        said = words.read(1 << 16)
    code = os.waitstatus_to_exitcode(status)
    seconds = used.ru_utime + used.ru_stime
    result = {
        "code": code,
        "memory": used.ru_maxrss * 1024,
        "seconds": round(seconds, 2),
        "wall": round(time.monotonic() - begun, 1),
    }
    return result | {
        "said": said[-2000:] if trace or code not in SOUND or "Traceback" in said else said[-300:]
    }


def load() -> None:
    """Load what the command loads, once for all children; nothing is run here, for the threads
    of Polars outlive no fork.
    """
    read, write = os.pipe()
    child = os.fork()
    if not child:
        with tempfile.TemporaryDirectory() as home, redirect_stdout(io.StringIO()):
            from groupwise.cli.app import main

            log = Path(home, "metrics.jsonl")
            log.write_text(_rewards(0.1, 0.3, 0.2))
            main(["diagnose", "--json", str(log)])
        with os.fdopen(write, "w") as names:
            names.write(" ".join(sys.modules))
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as names:
        for name in names.read().split():
            with suppress(Exception):
                importlib.import_module(name)
    os.waitpid(child, 0)


def _child(path: Path, words: Any, *, trace: bool) -> None:
    """Run the command on a path, bounded by the kernel at a margin above what is allowed, and
    end.
    """
    code = 71
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(words.fileno(), 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        resource.setrlimit(resource.RLIMIT_DATA, (4 * MEMORY, 4 * MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (4 * int(SECONDS), 4 * int(SECONDS) + 1))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.alarm(WALL)
        if trace:
            os.environ["GROUPWISE_DEBUG"] = "1"
        from groupwise.cli.app import main

        with redirect_stderr(words), redirect_stdout(io.StringIO()):
            code = int(main(["diagnose", "--json", str(path)]) or 0)
            words.flush()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:  # noqa: BLE001  whatever it was, the child ends here
        import traceback

        traceback.print_exc(file=words)
        words.flush()
    finally:
        os._exit(code & 0xFF)


def wrong(result: dict[str, Any]) -> str:
    """Return what is wrong with how the command ended, "" for nothing."""
    faults = []
    if result["code"] not in SOUND:
        faults.append(f"exit {result['code']}")
    if "Traceback (most recent call last)" in result["said"] and "got" not in result["said"]:
        faults.append("traceback")
    if result["memory"] > MEMORY:
        faults.append(f"{result['memory'] / 1e9:.2f} GB")
    if result["seconds"] > SECONDS:
        faults.append(f"{result['seconds']:.1f} s of processor")
    return ", ".join(faults)


def cases(
    only: str, first: int, last: int
) -> Iterator[tuple[str, Callable[[Path], tuple[str, Path | None]]]]:
    """Yield the name of each case and what writes it into a folder."""
    if only != "mutants":
        for name, shape in SHAPES.items():
            yield name, lambda home, shape=shape: ("", shape(home))  # type: ignore[misc]
    if only != "shapes" and DATA.is_dir():
        files = real_files()
        for seed in range(first, last):
            yield f"mutant {seed}", lambda home, seed=seed: mutant(seed, home, files)  # type: ignore[misc]


def run_case(
    name: str, write: Callable[[Path], tuple[str, Path | None]], *, trace: bool = False
) -> dict[str, Any] | None:
    """Write a case, open it and return what came of it; None where the machine has no such file."""
    home = Path(tempfile.mkdtemp(prefix="fuzz-"))
    try:
        about, path = write(home)
        if path is None:
            return None
        result = opened(path, trace=trace)
        return {"name": name, "about": about, **result}
    finally:
        shutil.rmtree(home, ignore_errors=True)


def table(results: list[dict[str, Any]]) -> str:
    """Return the counts, the largest memory and time, and each case that is wrong."""
    out = []
    for kind in ("shape", "mutant"):
        some = [
            result
            for result in results
            if result["name"].startswith("mutant ") == (kind == "mutant")
        ]
        if some:
            codes = ", ".join(
                f"{code}: {count}"
                for code, count in sorted(Counter(result["code"] for result in some).items())
            )
            memory, seconds = (
                max(some, key=lambda result: result[key]) for key in ("memory", "seconds")
            )
            out.append(
                f"{len(some)} {kind}s; exit codes {codes}; most memory "
                f"{memory['memory'] / 1e6:.0f} MB ({memory['name']}); most processor "
                f"{seconds['seconds']:.1f} s ({seconds['name']})"
            )
    faults = [result for result in results if wrong(result)]
    out += [
        (
            f"  {result['name']} {result['about']}: {wrong(result)}\n    "
            f"{result['said'].strip()[-600:]}"
        )
        for result in faults
    ]
    return "\n".join([*out, f"{len(faults)} of {len(results)} are wrong"])


def main() -> int:
    """Open every case that has no result yet; print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=("shapes", "mutants"), default="")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--last", type=int, default=3000)
    parser.add_argument("--seed", type=int, help="one mutant, with its traceback")
    parser.add_argument("--shape", help="the shapes whose name holds this, with their tracebacks")
    parser.add_argument(
        "--results",
        type=Path,
        default=ROOT / "build" / "fuzz.jsonl",
        help="what was opened before is read from here",
    )
    asked = parser.parse_args()
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    load()
    if asked.shape is not None or asked.seed is not None:
        for name, write in cases(
            "", asked.seed or 0, asked.seed + 1 if asked.seed is not None else 0
        ):
            if (asked.seed is not None and name == f"mutant {asked.seed}") or (
                asked.shape is not None and asked.shape in name
            ):
                print(
                    json.dumps(result := run_case(name, write, trace=True), indent=1),
                    wrong(result or {"code": 0, "said": "", "memory": 0, "seconds": 0}),
                )
        return 0
    asked.results.parent.mkdir(parents=True, exist_ok=True)
    done = {}
    if asked.results.is_file():
        done = {
            entry["name"]: entry
            for entry in map(json.loads, asked.results.read_text().splitlines())
        }
    results = []
    with asked.results.open("a") as kept:
        for name, write in cases(asked.only, asked.first, asked.last):
            result = done.get(name) or run_case(name, write)
            if result is None:
                continue
            if name not in done:
                kept.write(json.dumps(result) + "\n")
                kept.flush()
            if name not in done and wrong(result):
                print(f"{name} {result['about']}: {wrong(result)}", flush=True)
            results.append(result)
    print(table(results))
    return int(any(map(wrong, results)))


if __name__ == "__main__":
    sys.exit(main())
