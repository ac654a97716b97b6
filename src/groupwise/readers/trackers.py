"""trackio and MLflow: their SQLite databases, opened read-only, and MLflow's folders of text files.

A store of several runs is one log a run: the user says which. The statements are ours; nothing in a
file is executed.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from groupwise import limits
from groupwise.errors import GroupwiseError, UnreadableRunError
from groupwise.parsing import JsonObject, JsonView
from groupwise.readers.assemble import Log, Request, assemble
from groupwise.readers.configs import flatten, number_in, parse_yaml
from groupwise.readers.rows import RowStore, clean_key
from groupwise.readers.source import Peek, folders_in, json_in, noted, open_text, peek, shown
from groupwise.readers.steps import one_run
from groupwise.readers.trl import typed_completions, with_completions
from groupwise.record.run import RunRecord, Source
from groupwise.record.table import rollouts_table

_MAGIC = b"SQLite format 3\0"
_MOST_RUNS = 1000
Entry = tuple[float, float, str, float]


def sniff_database(seen: Peek) -> float:
    """Return the confidence that the file is a database of trackio or MLflow."""
    if not seen.head.startswith(_MAGIC):
        return 0.0
    try:
        with _opened(seen.path) as database:
            return 0.97 if _kind(database) else 0.0
    except UnreadableRunError:
        return 0.35  # the reader says what is wrong with it


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a database for reading only; whatever SQLite finds wrong becomes one sentence."""
    # Without a journal beside it the file is taken as it is, so that nothing is written even where
    # the folder could be.
    mode = "mode=ro" if path.with_name(path.name + "-wal").exists() else "mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?{mode}", uri=True)) as database:
            database.execute("PRAGMA trusted_schema = OFF")
            database.execute("PRAGMA query_only = ON")
            database.text_factory = _text
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, limits.LONGEST_LINE)
            deadline = time.process_time() + limits.seconds_for(path.stat().st_size)
            database.set_progress_handler(lambda: time.process_time() > deadline, 100_000)
            yield database
    except (sqlite3.Error, OverflowError, ValueError) as error:
        if isinstance(error, UnreadableRunError):
            raise
        reason = "".join(letter if letter.isprintable() else " " for letter in str(error))[:80]
        raise UnreadableRunError(
            f"expected a sound SQLite database, got {shown(path)} ({reason}): copy it again, with "
            "its -wal"
        ) from None


def _text(content: bytes) -> str:
    """Return a text of the database; bytes that are none become U+FFFD."""
    return content.decode("utf-8", "replace")


def _columns(database: sqlite3.Connection, table: str) -> set[str]:
    """Return the columns of a table; none where it is not there, or is a view or a module's,
    whose rows are computed.
    """
    if not database.execute(
        "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ? AND rootpage > 0", (table,)
    ).fetchone():
        return set()
    return {str(row[1]) for row in database.execute(f"PRAGMA table_info({table})")}


def _stored(path: Path, rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Yield rows as long as the files can hold them: a damaged tree may lead to its pages again
    and again.
    """
    beside = path.with_name(path.name + "-wal")
    left = path.stat().st_size + (beside.stat().st_size if beside.exists() else 0)
    for row in rows:
        left -= len(row) + sum(len(cell) for cell in row if isinstance(cell, str | bytes))
        if left < 0:
            raise sqlite3.DatabaseError("its pages hold more than its bytes")
        yield row


def _kind(database: sqlite3.Connection) -> str:
    """Return whose database it is, by the columns of its table of metrics."""
    columns = _columns(database, "metrics")
    if {"metrics", "step", "run_name"} <= columns:
        return "trackio"
    return "mlflow" if {"key", "value", "step", "run_uuid", "timestamp"} <= columns else ""


def read_database(path: Path, request: Request) -> RunRecord:
    """Read one run of a database."""
    with _opened(path) as database:
        kind = _kind(database)
        if not kind:
            raise UnreadableRunError(
                f"expected a database of trackio or MLflow, got {shown(path)} with other tables: "
                "export the run as CSV"
            )
        return (
            _read_trackio(path, database, request)
            if kind == "trackio"
            else _read_mlflow(path, database, request)
        )


def _read_trackio(path: Path, database: sqlite3.Connection, request: Request) -> RunRecord:
    """Read a run that trackio keeps: rows of metrics, completions in tables, the trainer's
    arguments.
    """
    names = [
        str(row[0])
        for row in database.execute(
            "SELECT DISTINCT run_name FROM metrics ORDER BY run_name LIMIT ?", (_MOST_RUNS,)
        )
    ]
    run = one_run(path, [clean_key(name) for name in names], request.chosen)
    original = next(name for name in names if clean_key(name) == run)
    query = "SELECT step, metrics FROM metrics WHERE run_name = ? ORDER BY rowid"
    cells = database.execute(query, (original,))
    store, tables, damaged = RowStore(), list[Any](), 0
    count = "SELECT COUNT(*) FROM metrics WHERE run_name = ?"
    left = database.execute(count, (original,)).fetchone()[0]
    for step, content in _stored(path, cells):
        left -= 1
        if store.share < 1 and left // 16 % 8:  # of so many an eighth, in stretches
            store.read += 1
            continue
        row = _object(content)
        damaged += row is None
        nested = [value for value in (row or {}).values() if isinstance(value, dict)]
        tables += [value["_value"] for value in nested if value.get("_type") == "trackio.table"]
        numbers = _numbers_in(row or {})
        if numbers is not None:
            store.add({**numbers, "step": step})
    notes = noted(
        damaged, "row is no whole JSON object and was", "rows are not whole JSON objects and were"
    )
    stated = ((_trackio_config(database, original), "trackio's table of settings"),)
    record = assemble(
        Log(store, path, "database", path.stat().st_size, notes, stated=stated, name=run),
        request,
    )
    return _with_tables(record, tables, path)


def _with_tables(record: RunRecord, tables: list[list[Any]], path: Path) -> RunRecord:
    """Return the record with the completions in trackio's tables."""
    table = _completions(tables)
    typed = None if table is None else typed_completions(table, texts=True)
    if typed is None or not len(typed):
        return record
    return with_completions(
        record, typed, (), (Source(f"{path}#completions", "completions", 0, len(typed)),)
    )


def _numbers_in(row: JsonView) -> JsonObject | None:
    """Return what a row logs besides tables and other nested values, None where that only times
    the program.
    """
    numbers = {key: value for key, value in row.items() if not isinstance(value, Mapping | list)}
    return None if all(key.startswith("profiling/") for key in numbers) else numbers


def _object(content: Any) -> JsonObject | None:
    """Return the JSON object in a cell, or None."""
    content_read = (
        json_in(content if isinstance(content, str) else _text(content))
        if isinstance(content, str | bytes)
        else None
    )
    return content_read if isinstance(content_read, dict) else None


def _trackio_config(database: sqlite3.Connection, run: str) -> JsonObject:
    """Return the arguments that trackio kept of a run, flattened."""
    if not {"run_name", "config"} <= _columns(database, "configs"):
        return {}
    config: JsonObject = {}
    for (content,) in database.execute(
        "SELECT config FROM configs WHERE run_name = ? ORDER BY rowid", (run,)
    ):
        config |= dict(flatten(_object(content) or {}))
    return config


def _completions(tables: list[list[Any]]) -> pl.DataFrame | None:
    """Return the completions of all tables, one a row, in the order in which they were logged."""
    lists = [table for table in tables if isinstance(table, list)]
    rows = [
        row
        for table in lists
        for row in table
        if isinstance(row, Mapping) and {"step", "prompt", "completion"} <= set(row)
    ]
    kept = []
    for row in rows:
        numbers = {
            str(key): float(value)
            for key, value in row.items()
            if isinstance(value, bool | int | float) and key not in ("step", "prompt", "completion")
        }
        step = row["step"]
        if isinstance(step, int | float) and step == step and abs(step) < 2**53:
            kept.append(
                {
                    "step": int(step),
                    "prompt_id": 0,
                    "prompt": row["prompt"],
                    "completion": row["completion"],
                    **numbers,
                }
            )
    table = rollouts_table(kept)
    return None if table is None else table.drop("prompt_id")


def _read_mlflow(path: Path, database: sqlite3.Connection, request: Request) -> RunRecord:
    """Read a run that MLflow keeps: one row a number."""
    titled = _columns(database, "runs") >= {"run_uuid", "name"}
    titles = dict(database.execute("SELECT run_uuid, name FROM runs").fetchall()) if titled else {}
    identities = [
        row[0]
        for row in database.execute(
            "SELECT DISTINCT run_uuid FROM metrics ORDER BY run_uuid LIMIT ?", (_MOST_RUNS,)
        )
    ]
    name, identity = _chosen_run(
        path, {run: titles.get(run) or run for run in identities}, request.chosen
    )
    query = (
        "SELECT timestamp, step, key, value FROM metrics WHERE run_uuid = ? ORDER BY timestamp, "
        "step"
    )
    entries = (
        (stamp, step, str(key), value)
        for stamp, step, key, value in _stored(path, database.execute(query, (identity,)))
    )
    store = RowStore.of(rows_of_entries(entries))
    parameters: JsonObject = {}
    if _columns(database, "params") >= {"key", "value", "run_uuid"}:
        parameters = dict(
            database.execute(
                "SELECT key, value FROM params WHERE run_uuid = ?", (identity,)
            ).fetchall()
        )
    log = Log(store, path, "database", path.stat().st_size, name=name)
    return _with_parameters(log, parameters, replace(request, chosen=name))


def _with_parameters(log: Log, parameters: Mapping[Any, Any], request: Request) -> RunRecord:
    """Return the record of a run of MLflow's, whose parameters are texts; "a/b" and "a.b" are
    paths.
    """
    settings = {str(key).replace(".", "/"): number_in(value) for key, value in parameters.items()}
    return assemble(replace(log, stated=((settings, "MLflow's parameters"),)), request)


def _chosen_run(path: Path, titles: Mapping[str, str], chosen: str) -> tuple[str, str]:
    """Return name and identity of the run to read: identity -> title, of which the later of two
    alike goes by its identity.
    """
    named: dict[str, str] = {}
    for identity, title in titles.items():
        name = clean_key(title)
        named[name if name not in named else clean_key(identity)] = identity
    if chosen in titles and chosen not in named:
        chosen = next(name for name, identity in named.items() if identity == chosen)
    name = one_run(path, named, chosen)
    return name, named[name]


def rows_of_entries(entries: Iterable[Entry]) -> Iterator[JsonObject]:
    """Yield one row for the numbers of one step that follow one another."""
    row: JsonObject = {}
    for stamp, step, key, value in entries:
        if row and (step != row["step"] or key in row):
            yield row
            row = {}
        if not row:
            row = {
                "step": step,
                "_timestamp": stamp / 1000.0 if isinstance(stamp, int | float) else None,
            }
        row[key] = value
    if row:
        yield row


_MOST = 10_000


def sniff_mlflow(path: Path) -> float:
    """Return the confidence that the folder is one of MLflow's, of one run or above several."""
    return 0.9 if any(True for _ in _runs(path)) else 0.0


def _runs(path: Path) -> Iterator[Path]:
    """Yield the folders of runs: the folder itself, or those one or two below it."""
    if is_mlflow_run(path):
        yield path
        return
    for inner in folders_in(path, _MOST):
        if is_mlflow_run(inner):
            yield inner
        elif (inner / "meta.yaml").is_file():
            yield from (run for run in folders_in(inner, _MOST) if is_mlflow_run(run))


def is_mlflow_run(path: Path) -> bool:
    """Return whether a folder of MLflow's is that of one run."""
    return (path / "metrics").is_dir() and (
        (path / "meta.yaml").is_file() or (path / "params").is_dir()
    )


def read_mlflow(path: Path, request: Request) -> RunRecord:
    """Read one run of an MLflow folder."""
    runs = {run.name: run for run in _runs(path)}
    name, identity = _chosen_run(
        path, {run: _title(home) for run, home in runs.items()}, request.chosen
    )
    home = runs[identity]
    entries, size, damaged = _entries(home / "metrics")
    store = RowStore.of(rows_of_entries(sorted(entries, key=lambda entry: (entry[0], entry[1]))))
    if not store.count:
        raise UnreadableRunError(
            f"expected numbers in {shown(home / 'metrics')}, got none: nothing has been logged yet"
        )
    small = {
        key: file for key, file in _files(home / "params").items() if file.stat().st_size < 1 << 16
    }
    parameters = {
        key: file.read_text(encoding="utf-8", errors="replace").strip()
        for key, file in small.items()
    }
    notes = tuple(noted(damaged, "line is damaged and was", "lines are damaged and were"))
    log = Log(store, home, "mlflow", size, notes, name=name)
    return _with_parameters(log, parameters, replace(request, chosen=name))


def _title(run: Path) -> str:
    """Return the name of a run as its meta.yaml gives it, else the folder's."""
    try:
        title = parse_yaml(peek(run / "meta.yaml").text).get("run_name")
    except GroupwiseError:
        title = None
    return str(title or run.name)


def _files(folder: Path) -> dict[str, Path]:
    """Return the files below a folder by name; folders are parts of the name."""
    return {
        file.relative_to(folder).as_posix(): file
        for file in sorted(folder.rglob("*"))[:_MOST]
        if file.is_file()
    }


def _entries(folder: Path) -> tuple[list[Entry], int, int]:
    """Return the numbers of all keys, the bytes read, and how many lines are not "time value" or
    "time value step".
    """
    entries: list[Entry] = []
    size = damaged = 0
    for key, file in _files(folder).items():
        size += file.stat().st_size
        with open_text(file, "utf-8") as lines:
            for cells in filter(None, map(str.split, lines)):
                try:
                    stamp, value, step = map(float, cells if len(cells) == 3 else (*cells, "0"))
                except ValueError:
                    damaged += 1
                else:
                    entries.append((stamp, step, key, value))
    return entries, size, damaged
