"""Writers of the trackers' own formats, by hand from their descriptions: they share no line with
the readers.

A checksum here goes bit by bit, a message is put together field by field; nothing is fast.
"""

from __future__ import annotations

import json
import sqlite3
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

REWARDS = [0.2 + 0.05 * step for step in range(1, 9)]


def crc32c(data: bytes) -> int:
    """The Castagnoli checksum, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17 & 0xFFFFFFFF)) + 0xA282EAD8) & 0xFFFFFFFF)


def varint(value: int) -> bytes:
    out = b""
    value &= (1 << 64) - 1
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number: int, value: int | float | bytes | str, *, single: bool = False) -> bytes:
    """One field: integers as varints, floats as 8 or 4 bytes, texts and bytes with their length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | (5 if single else 1)) + struct.pack(
            "<f" if single else "<d", value
        )
    content = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(content)) + content


def tfrecord(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + masked(length) + data + masked(data)


def event(step: int, tag: str, value: float | str | None, *, tensor: bool = False) -> bytes:
    """One event of TensorBoard: a number as `simple_value` or as a tensor, a text as a tensor."""
    if isinstance(value, str):
        content = field(8, field(1, 7) + field(8, value))
    elif tensor:
        content = field(8, field(1, 1) + field(4, struct.pack("<f", value or 0.0)))
    else:
        content = field(2, float(value or 0.0), single=True)
    return field(1, 1.7e9 + step) + field(2, step) + field(5, field(1, field(1, tag) + content))


def event_file(
    path: Path,
    rows: Sequence[Mapping[str, float]],
    *,
    texts: Mapping[str, str] | None = None,
    tensor: bool = False,
) -> Path:
    """An event file of rows with "step"."""
    out = tfrecord(field(1, 1.7e9) + field(3, "brain.Event:2"))
    for tag, text in (texts or {}).items():
        out += tfrecord(event(0, tag, text))
    for row in rows:
        for tag, value in row.items():
            if tag != "step":
                out += tfrecord(event(int(row["step"]), tag, value, tensor=tensor))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(out)
    return path


def wandb_file(path: Path, rows: Iterable[Mapping[str, Any]], config: Mapping[str, Any]) -> Path:
    """A .wandb file: records in blocks of 32 KB, those that do not fit into one split in pieces."""

    def items(values: Mapping[str, Any], key_field: int) -> bytes:
        return b"".join(
            field(1, field(key_field, key) + field(16, json.dumps(value)))
            for key, value in values.items()
        )

    records = [field(1, 1) + field(17, field(1, "abc") + field(4, items(config, 1)))]
    records += [
        field(1, number) + field(2, items(row, 2)) for number, row in enumerate(rows, start=2)
    ]
    return blocks_file(path, b":W&B" + struct.pack("<HB", 0xBEE1, 0), records)


def blocks_file(path: Path, out: bytes, records: Iterable[bytes]) -> Path:
    """Records in LevelDB's blocks of 32 KB behind a head of 7 bytes."""
    for record in records:
        rest, first = record, True
        while first or rest:
            left = 32768 - len(out) % 32768
            if left < 7:
                out += b"\0" * left
                continue
            piece, rest = rest[: left - 7], rest[left - 7 :]
            kind = (1 if first else 4) if not rest else (2 if first else 3)
            out += struct.pack("<IHB", zlib.crc32(bytes([kind]) + piece), len(piece), kind) + piece
            first = False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(out)
    return path


def swanlab_folder(home: Path, rows: Iterable[Mapping[str, float]]) -> Path:
    """What SwanLab 0.10 keeps of a run, local or offline: one record a number."""
    folder = home / "run-20261124_155255-g1a2vbew"
    records = [field(1, -1) + field(10, field(1, "p"))]  # which says whose the run is
    for step, row in enumerate(rows, start=1):
        time = field(1, 1_700_000_000 + step) + field(2, 500_000_000)
        for key, value in row.items():
            number = field(1, value) if value else b""  # a message leaves a 0 out
            scalar = field(1, key) + field(2, step) + field(3, 1) + field(4, time)
            records.append(field(1, step) + field(13, scalar + field(5, number)))
    blocks_file(folder / "run-g1a2vbew.swanlab", b":SWL" + struct.pack("<HB", 0xE1D6, 2), records)
    (folder / "files").mkdir()
    (folder / "files" / "config.yaml").write_text("num_generations:\n  desc: ''\n  value: 8\n")
    (folder / "logs" / "1").mkdir(parents=True)  # of a local run: keys by number
    (folder / "logs" / "1" / "1000.log").write_text('{"index": 1, "data": 0.31}\n' * 8)
    (folder / "files" / "swanlab-metadata.json").write_text('{"python": "3.11"}')
    return folder


def clearml_folder(home: Path, rows: Iterable[Mapping[str, float]]) -> Path:
    """What ClearML 2.1 keeps of an offline task: a list of events a line."""
    folder = home / "offline-b93a9d57"
    folder.mkdir(parents=True)
    lines = []
    for step, row in enumerate(rows, start=1):
        events = [
            {"timestamp": 1_700_000_000_000 + 1000 * step, "type": "training_stats_scalar"}
            | {"task": "offline-b93a9d57", "iter": step, "metric": key.partition("/")[0]}
            | {"variant": key.partition("/")[2], "value": value, "method": "get"}
            for key, value in row.items()
        ]
        lines.append(json.dumps(events))
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    message = {"timestamp": 1, "type": "log", "task": "t", "level": "info", "msg": "created"}
    (folder / "log.jsonl").write_text(json.dumps([message]) + "\n")
    setting = {"section": "General", "name": "num_generations", "value": "8", "type": "int"}
    task = {"hyperparams": {"General": {"num_generations": setting}}, "id": "offline-b93a9d57"}
    (folder / "task.json").write_text(json.dumps(task))
    return folder


def neptune_folder(home: Path, rows: Iterable[Mapping[str, float]]) -> Path:
    """What neptune 1.14 keeps of an offline run: one operation a line."""
    folder = home / ".neptune" / "offline" / "run__e91217b9"
    folder.mkdir(parents=True)
    path = ["parameters", "num_generations"]
    operations: list[dict[str, Any]] = [{"type": "AssignInt", "path": path, "value": 8}]
    for step, row in enumerate(rows, start=1):
        for key, value in row.items():
            point = {"value": value, "step": step, "ts": 1_700_000_000.0 + step}
            operations.append({"type": "LogFloats", "path": key.split("/"), "values": [point]})
        cpu = {"value": 7.0, "step": None, "ts": 1_700_000_000.0 + step}
        operations.append({"type": "LogFloats", "path": ["monitoring", "cpu"], "values": [cpu]})
    lines = [
        json.dumps({"obj": operation, "version": number, "at": 1.0})
        for number, operation in enumerate(operations, start=1)
    ]
    (folder / "data-1.log").write_text("\n".join(lines) + "\n")
    (folder / "metadata.json").write_text('{"mode": "offline"}')
    return folder


def tinker_folder(home: Path, rows: Sequence[Mapping[str, float]]) -> Path:
    """What tinker-cookbook 0.6's own logger leaves: JSON lines, and the same as rich's tables."""
    home.mkdir(parents=True)
    texts = []
    for step, row in enumerate(rows):
        lines = [f"│ {key:<30} │ {value:<9.6f} │" for key, value in row.items()]
        texts += [
            "tinker_cookbook.utils.ml_log:236 [INFO] Wrote metrics to metrics.jsonl",
            f"                    Step {step}                    ",
            "┏━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━┓",
            "┃ Metric                         ┃ Value     ┃",
            "┡━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━┩",
            *lines,
            "└────────────────────────────────┴───────────┘",
        ]
    (home / "logs.log").write_text("\n".join(texts) + "\n", encoding="utf-8")
    (home / "metrics.jsonl").write_text(
        "".join(json.dumps({"step": step, **row}) + "\n" for step, row in enumerate(rows))
    )
    (home / "config.json").write_text('{"group_size": 8}')
    (home / "code.diff").write_text("")
    return home


def hf_row(step: int) -> dict[str, float]:
    """One row of TRL as a tracker gets it."""
    return {
        "train/loss": 0.01 * step,
        "train/reward": REWARDS[step - 1],
        "train/reward_std": 0.3,
        "train/completions/mean_length": 40.0 + step,
        "train/rewards/correct/mean": REWARDS[step - 1],
        "train/frac_reward_zero_std": 0.25,
        "train/kl": 0.001,
    }


def trackio_database(path: Path, runs: Sequence[str] = ("main",), *, as_bytes: bool = True) -> Path:
    """trackio's database: rows of a trainer, of its profiler, and completions, whose step is
    inside.
    """
    with sqlite3.connect(path) as database:
        database.execute(
            "CREATE TABLE metrics (id INTEGER PRIMARY KEY, run_id TEXT, timestamp TEXT, run_name "
            "TEXT, step INTEGER, metrics TEXT)"
        )
        database.execute("CREATE TABLE configs (run_id TEXT, run_name TEXT, config TEXT)")
        for run in runs:
            database.execute(
                "INSERT INTO configs VALUES (?, ?, ?)",
                (run, run, json.dumps({"num_generations": 4, "adam_beta1": 0.9, "beta": 0.04})),
            )
            for step in range(1, 9):
                for at, row in (
                    (step, hf_row(step)),
                    (100 + step, {"profiling/Time taken: x": 0.1}),
                    (200 + step, completions(step)),
                ):
                    text = json.dumps(row)
                    values = (run, "t", run, at, text.encode() if as_bytes else text)
                    database.execute(
                        "INSERT INTO metrics (run_id, timestamp, run_name, step, metrics) VALUES "
                        "(?, ?, ?, ?, ?)",
                        values,
                    )
    database.close()
    return path


def completions(step: int) -> dict[str, Any]:
    """trackio's table of the completions of one step: two groups of four, `correct` as often as
    the log says.
    """
    rows = []
    for group in range(2):
        correct = [float(rollout * 0.25 < REWARDS[step - 1]) for rollout in range(4)]
        mean = sum(correct) / 4
        for rollout, value in enumerate(correct):
            row = {
                "step": step,
                "prompt": f"{step}+{group}=",
                "completion": str(rollout),
                "correct": value,
                "advantage": value - mean,
            }
            rows.append(row)
    return {"completions": {"_type": "trackio.table", "_value": rows}}


def mlflow_database(path: Path, runs: Sequence[str] = ("tidy",)) -> Path:
    """MLflow's database with one row a number."""
    with sqlite3.connect(path) as database:
        database.execute(
            "CREATE TABLE metrics (key TEXT, value REAL, timestamp INTEGER, run_uuid TEXT, step "
            "INTEGER, is_nan INTEGER)"
        )
        database.execute("CREATE TABLE params (key TEXT, value TEXT, run_uuid TEXT)")
        database.execute("CREATE TABLE runs (run_uuid TEXT, name TEXT)")
        for run in runs:
            database.execute("INSERT INTO runs VALUES (?, ?)", (f"id-{run}", run))
            database.execute(
                "INSERT INTO params VALUES ('actor_rollout_ref.rollout.n', '8', ?)", (f"id-{run}",)
            )
            for step in range(1, 9):
                for key, value in (
                    ("critic/score/mean", REWARDS[step - 1]),
                    ("val-core/gsm8k/acc/mean_at_1", 0.5),
                    ("actor/entropy", 0.4),
                ):
                    values = (key, value, 1_700_000_000_000 + 1000 * step, f"id-{run}", step)
                    database.execute("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, 0)", values)
    database.close()
    return path


def art_trajectories(path: Path) -> Path:
    """One of ART's Parquet files: trajectories with their messages."""
    messages = [{"role": "user", "content": "2+2="}, {"role": "assistant", "content": "4"}]
    rows = [
        {"group_index": group, "reward": float(at % 2), "metrics": "{}", "messages": messages}
        for group in range(2)
        for at in range(4)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    pl.DataFrame(rows).write_parquet(path)
    return path
