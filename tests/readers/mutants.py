"""Mutants of every format and of the files beside a log, each from one number: `python mutants.py
FIRST LAST` opens them one by one.

A mutant keeps the truth (a torn tail, the last line twice, other line ends, marks, encodings,
orders of keys, a long first line): then every row that is read is a row that was written. Or it is
damaged in some other way: then a sound record comes, or one sentence.
"""

from __future__ import annotations

import json
import math
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
from tests.readers import writers

from groupwise.errors import GroupwiseError
from groupwise.readers import run_record
from groupwise.record.run import RecordWriter, RunRecord

CPU_SECONDS, MEMORY = 20, 2 << 30
ROWS: list[dict[str, Any]] = [
    {
        "step": step,
        "reward": step / 16,
        "reward_std": 0.3,
        "completions/mean_length": 9.0 + step,
        "loss": 0.1,
        "num_tokens": 9.0 * step,
    }
    for step in range(1, 13)
]
SETTINGS = {
    "num_generations": 8,
    "per_device_train_batch_size": 16,
    "gradient_accumulation_steps": 2,
    "steps_per_generation": 4,
    "learning_rate": 1e-5,
    "beta": 0.04,
    "temperature": 0.9,
    "world_size": 1,
}
README = "# model\n\n- TRL: 0.21.0\n- learning_rate: 1e-05\n- beta: 0.04\n- num_generations: 8\n"
ODD = [
    "",
    "null",
    "NaN",
    "-Infinity",
    "1e999",
    "9" * 500,
    '"No log"',
    "[]",
    "{}",
    "true",
    "-1",
    "0.5",
    "0",
    '{"a": [1, {"b": 2}]}',
    '"\\u0000"',
    '"\\ud800"',
    "1e-320",
    '"\u2028"',
    "0x" + "f" * 400,
    "!!python/object:os.system x",
    "*a",
    "2001-13-45",
    "'",
]
Files = dict[str, bytes]


def yaml(settings: dict[str, Any]) -> str:
    return "".join(f"{key}: {value}\n" for key, value in settings.items())


def text(kind: str, rows: list[dict[str, Any]], turned: bool = False) -> str:
    """Rows in one of the formats that are texts; `turned` gives the keys in the other order."""
    rows = [dict(reversed(row.items())) for row in rows] if turned else rows
    lines = [json.dumps(row) for row in rows]
    if kind == "csv":
        return (
            "\n".join(
                [
                    ",".join(rows[0]),
                    *(",".join(str(value) for value in row.values()) for row in rows),
                ]
            )
            + "\n"
        )
    if kind == "state":
        return (
            '{"global_step": 12, "log_history": [\n'
            + ",\n".join(lines)
            + '\n], "logging_steps": 1, "max_steps": 12}\n'
        )
    if kind == "columns":
        return json.dumps({key: [row[key] for row in rows] for key in rows[0]})
    if kind == "list":
        return "[" + ",\n".join(lines) + "]\n"
    if kind == "console":
        return "".join(
            f"\r {at}%|# | {at}/12 [00:01<00:09]\r{row!r}\n" for at, row in enumerate(rows, start=1)
        )
    if kind == "events":
        inner = [{key: value for key, value in row.items() if key != "step"} for row in rows]
        at = [f"train_{row['step']}" for row in rows]
        events = [
            {"event": "train", "partition_id": place, "metrics": row}
            for place, row in zip(at, inner, strict=True)
        ]
        return "\n".join(map(json.dumps, events)) + "\n"
    if kind == "rollouts":
        drawn = [
            {"step": row["step"], "prompt": f"p{at % 2}", "completion": "c", "reward": at % 2}
            for row in rows
            for at in range(4)
        ]
        return "\n".join(map(json.dumps, drawn)) + "\n"
    return "\n".join(lines) + "\n"


TEXTS = {
    "csv": "metrics.csv",
    "jsonl": "metrics.jsonl",
    "state": "trainer_state.json",
    "columns": "history.json",
    "list": "log.json",
    "console": "train.log",
    "events": "events.jsonl",
    "rollouts": "rollouts.jsonl",
}
BY_LINE = ("csv", "jsonl", "console", "events", "rollouts")
BESIDE = {
    "config.json": json.dumps(SETTINGS),
    "README.md": README,
    "args.yaml": yaml(SETTINGS),
    "metrics.config.json": json.dumps(SETTINGS),
}


def binary(kind: str, home: Path) -> Files:
    """The files of a log that is no text."""
    if kind == "tensorboard":
        writers.event_file(
            home / "events.out.tfevents.1700000000.host",
            ROWS,
            texts={"args/text_summary": json.dumps(SETTINGS)},
        )
    elif kind == "wandb":
        writers.wandb_file(home / "run.wandb", ROWS, SETTINGS)
    elif kind == "trackio":
        writers.trackio_database(home / "trackio.db")
    elif kind == "parquet":
        pl.DataFrame(ROWS).write_parquet(home / "a.parquet")
    else:
        with RecordWriter(home / "run", name="x") as writer:
            for row in ROWS:
                writer.append(
                    row, [{"prompt_id": at, "reward": 1.0, "completion": "c"} for at in range(2)]
                )
    return {
        path.relative_to(home).as_posix(): path.read_bytes()
        for path in home.rglob("*")
        if path.is_file()
    }


BINARIES = ("tensorboard", "wandb", "trackio", "parquet", "record")


def damaged(content: bytes, draw: random.Random) -> bytes:
    """Some bytes changed, or pieces cut, doubled, dropped, moved, or a value replaced by an odd
    one.
    """
    new = bytearray(content)
    how = draw.randrange(7)
    start, end = sorted(draw.choices(range(len(new) + 1), k=2))
    if how < 3:
        for _ in range(draw.randint(1, 8)):
            new[draw.randrange(len(new))] = draw.choice(
                [draw.randrange(256), *b'{}[]",:\n\r\0 #/-e9']
            )
    elif how == 3:
        new = new[:end]
    elif how == 4:
        new = new[:start] + new[end:]
    elif how == 5:
        new = new[:end] + new[start:]
    else:
        places = [at for at, byte in enumerate(new) if byte in b":,="] or [0]
        at = draw.choice(places) + 1
        stop = next((place for place in range(at, len(new)) if new[place] in b",}\n]"), len(new))
        new[at:stop] = draw.choice(ODD).encode("utf-8", "surrogatepass")
    return bytes(new)


def cut_parquet(content: bytes, draw: random.Random) -> bytes:
    """Cut or emptied at its ends: Polars itself aborts the process on some Parquet files with
    bytes changed inside.
    """
    cut = draw.randrange(len(content))
    return content[:cut] + draw.choice([b"", b"\0" * 8, b"PAR1", b"\0" * (len(content) - cut)])


def long_first(kind: str, content: str) -> str:
    """The same rows behind a first one of more than 64 KB."""
    if kind == "csv":
        lines = content.split("\n")[:-1]
        return "\n".join(
            f"{line},{'note' if at == 0 else 'x' * 70_000 if at == 1 else 'y'}"
            for at, line in enumerate(lines)
        )
    if kind == "console":
        return "x" * 70_000 + "\n" + content
    return content.replace('{"', '{"note": "' + "x" * 70_000 + '", "', 1)


KEEPING: dict[str, Callable[[str, str, random.Random], bytes]] = {
    "torn": lambda _kind, whole, draw: whole[: draw.randrange(1, len(whole))].encode(),
    "doubled": lambda _kind, whole, _draw: (whole + whole.splitlines(keepends=True)[-1]).encode(),
    "crlf": lambda _kind, whole, _draw: whole.replace("\n", "\r\n").encode(),
    "bom": lambda _kind, whole, _draw: whole.encode("utf-8-sig"),
    "utf-16": lambda _kind, whole, _draw: whole.encode("utf-16"),
    "turned": lambda kind, _whole, _draw: text(kind, ROWS, turned=True).encode(),
    "long": lambda kind, whole, _draw: long_first(kind, whole).encode(),
}


def seen(record: RunRecord) -> dict[int, tuple[object, ...]]:
    """Step -> what it says of the metrics that were written."""
    names = [
        name
        for name in ("reward", "completions/mean_length", "loss")
        if name in record.steps.columns
    ]
    return {row[0]: row[1:] for row in record.steps.select("step", *names).iter_rows()}


class WrongError(AssertionError):
    """A mutant that was read as it must not be."""


def check_truth(kind: str, how: str, content: bytes, home: Path) -> None:
    """Every row of a mutant that keeps the truth was written; of one that is whole, all of them
    are there.
    """
    path = home / TEXTS[kind]
    path.write_text(text(kind, ROWS), encoding="utf-8")
    whole = seen(run_record(path))
    path.write_bytes(content)
    try:
        record = run_record(path)
    except GroupwiseError as error:
        if how != "torn" and not (how == "long" and kind == "columns"):
            raise WrongError(f"{kind} {how} was refused: {error}") from None
        return
    outcome = seen(record)
    last = max(outcome, default=0)
    if kind == "rollouts" and how in (
        "torn",
        "doubled",
    ):  # means over the rollouts that are whole: of the last step some may be missing
        outcome.pop(last, None)
    wrong = {step: row for step, row in outcome.items() if not same(row, whole.get(step))}
    if wrong and not (how == "torn" and set(wrong) == {last} and notes_damage(record)):
        raise WrongError(f"{kind} {how}: rows {wrong} were never written")
    if how != "torn" and len(outcome) < len(whole) - (kind == "rollouts"):
        raise WrongError(f"{kind} {how}: {len(outcome)} of {len(whole)} rows")


def same(row: tuple[object, ...], other: tuple[object, ...] | None) -> bool:
    """Whether two rows say the same."""
    return (
        other is not None
        and len(row) == len(other)
        and all(a == b or (a is None and b is None) for a, b in zip(row, other, strict=True))
    )


def notes_damage(record: RunRecord) -> bool:
    """Whether the record's notes say that something is not whole."""
    return any(
        word in note
        for note in record.notes
        for word in ("cells than the header", "cut off", "whole", "damaged")
    )


def check_sound(path: Path) -> None:
    """A record is sound, an error is one sentence."""
    try:
        record = run_record(path)
    except GroupwiseError as error:
        message = str(error)
        if "\n" in message or len(message) > 1000:
            raise WrongError(f"no sentence: {message[:200]!r}") from None
        return
    record.validate()
    if not all(part.isprintable() for part in (*record.notes, *record.steps.columns)):
        raise WrongError(f"unprintable: {record.notes}")


def mutant(seed: int, home: Path) -> str:
    """Make and open one mutant; return what it is."""
    draw = random.Random(seed)
    if seed % 4 == 0:
        kind, how = draw.choice(sorted(TEXTS)), draw.choice(sorted(KEEPING))
        how = (
            "torn" if (kind, how) == ("columns", "doubled") else how
        )  # one line: twice it is no JSON
        check_truth(kind, how, KEEPING[how](kind, text(kind, ROWS), draw), home)
        return f"{kind} {how}"
    if seed % 4 == 1:
        return beside(draw, home)
    kind = draw.choice([*sorted(TEXTS), *BINARIES])
    if kind in TEXTS:
        files = {TEXTS[kind]: text(kind, ROWS).encode()}
    else:
        with tempfile.TemporaryDirectory() as made:
            files = binary(kind, Path(made))
    name = draw.choice(sorted(name for name, content in files.items() if content))
    files[name] = (cut_parquet if name.endswith(".parquet") else damaged)(files[name], draw)
    for each, content in files.items():
        (home / each).parent.mkdir(parents=True, exist_ok=True)
        (home / each).write_bytes(content)
    check_sound(home / "run" if kind == "record" else home / next(iter(files)))
    return f"{kind} damaged"


def beside(draw: random.Random, home: Path) -> str:
    """Mutate a file beside a log: the log's rows stay what they are, and settings that are whole
    are read.
    """
    kind = draw.choice(["csv", "jsonl", "state"])
    path = home / TEXTS[kind]
    path.write_text(text(kind, ROWS), encoding="utf-8")
    rows, name = seen(run_record(path)), draw.choice(sorted(BESIDE))
    how = draw.choice(["damaged", "damaged", "crlf", "bom", "utf-16"])
    content = BESIDE[name]
    (home / name).write_bytes(
        damaged(content.encode(), draw) if how == "damaged" else KEEPING[how]("", content, draw)
    )
    place = home if kind == "state" else path
    record = run_record(place)
    record.validate()
    if seen(record) != rows:
        raise WrongError(f"{name} {how} changed the rows of {path.name}")
    reads = name != "metrics.config.json" or kind != "state"
    if how != "damaged" and reads and not math.isclose(record.config.value("kl_weight") or 0, 0.04):
        raise WrongError(f"{name} {how}: the settings are not read: {record.notes}")
    return f"beside {name} {how}"


def main(first: int, last: int) -> int:
    """Open mutants; print each that is wrong, and what was seen."""
    wrong, slowest = 0, 0.0
    for seed in range(first, last):
        print("seed", seed, end="\r", flush=True, file=sys.stderr)
        begun = time.process_time()
        with tempfile.TemporaryDirectory() as home:
            try:
                mutant(seed, Path(home))
            except Exception as error:  # noqa: BLE001  every mutant is to be told, whatever it did
                wrong += 1
                print(f"mutant {seed}: {type(error).__name__}: {str(error)[:300]}", flush=True)
        took = time.process_time() - begun
        slowest = max(slowest, took)
        if took > CPU_SECONDS:
            wrong += 1
            print(f"mutant {seed}: {took:.0f} s of CPU", flush=True)
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if held > MEMORY:
        wrong += 1
        print(f"mutants {first} to {last - 1}: {held / 1e9:.1f} GB", flush=True)
    print(
        f"{last - first} mutants, {wrong} wrong, the slowest {slowest:.2f} s of CPU, "
        f"{held / 1e6:.0f} MB",
        flush=True,
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
