"""Rollout files: one completion a row in JSON lines or Parquet, verl's folder of dumps, TRL's logged completions without their run.

The steps of the record are the means over these rollouts; losses, clocks and evaluations are not in such files and are not invented.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from groupwise.errors import GroupwiseError, InvalidArgumentError, UnreadableRunError
from groupwise.readers.assemble import Request, chosen_columns
from groupwise.readers.completions import completions_in, rewarded
from groupwise.readers.configs import recover
from groupwise.readers.dumps import dump_of, rows_of_dump
from groupwise.readers.fast_lines import SMALLEST, blocks, plan_of
from groupwise.readers.pickles import slime_samples, sniff_slime
from groupwise.readers.rollout_rows import (
    ADVANTAGE_KEYS,
    GROUP_KEYS,
    LENGTH_KEYS,
    REWARD_KEYS,
    STEP_KEYS,
    Layout,
    RolloutRows,
    function_names,
    grouped,
    layout_of,
    row_notes,
    steps_of,
)
from groupwise.readers.rows import RowStore, counted
from groupwise.readers.source import JsonReader, Peek, open_text, peek, shown
from groupwise.record.run import Meaning, RunConfig, RunRecord, Source
from groupwise.record.table import read_parquet, steps_table

Array = NDArray[np.float64]

_TEXT_BYTES = 1 << 28
_MOST_FILES = 100_000
_FIRST_ROWS = 20
_FIRST_TEXT = 1 << 20
_LONGEST_FIRST = 1 << 23
_DUMP = re.compile(r"(?:(?:train_data_|global_)?step[_-]?|slime_|rollout_(?:data_)?)?(\d{1,12})\.(?:jsonl|pt)|(\d{4,12})\.parquet")
_EPISODES = re.compile(r"step_(\d{1,12})")
_TRL_FILE = re.compile(r"completions_\d{1,12}\.parquet")
_CLOCKS = ("optimizer_updates", "tokens", "seconds")
_CHOSEN = "chosen: "
OURS = Layout("prompt", "completion", verl=False)


def sniff_rollouts(path: Path) -> float:
    """Return the confidence that the file holds one completion a row, with its prompt and its reward."""
    seen = peek(path)
    if seen.head.startswith(b"PAR1"):
        return 0.95 if _is_table(path) else 0.0
    if seen.head.startswith(b"PK"):
        return sniff_slime(path)
    if seen.binary or not seen.text.startswith("{"):
        return 0.0
    rows = _first_rows(path, seen)
    return 0.9 if dump_of(rows) or layout_of(rows) else 0.0


def _first_rows(path: Path, seen: Peek) -> list[dict[str, Any]]:
    """Return the first rows of JSON lines; an empty one stands for a line that is damaged."""
    reader, read = JsonReader(), 0
    rows: list[dict[str, Any]] = []
    with open_text(path, seen.encoding) as file:
        while len(rows) < _FIRST_ROWS and read < _FIRST_TEXT and (line := file.readline(_LONGEST_FIRST)):
            read += len(line)
            text = line.strip().lstrip("\ufeff")
            if text:
                rows.append(_loaded(text, reader) or {})
    return rows


def _loaded(text: str, reader: JsonReader) -> dict[str, Any] | None:
    """Return the object of one line, or None where it is none."""
    try:
        row = reader.loads(text)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def _schema(path: Path) -> Mapping[str, pl.DataType]:
    """Return the types of a Parquet file's columns, none where it is damaged."""
    try:
        return pl.read_parquet_schema(path)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError, RuntimeError):
        return {}


def _is_table(path: Path) -> bool:
    """Return whether a Parquet file holds rollouts, by the types of its columns."""
    schema = _schema(path)
    typical = _typical(schema)
    return _is_trl(path, schema) or bool(dump_of([typical])) or layout_of([typical]) is not None


def _typical(schema: Mapping[str, pl.DataType]) -> dict[str, Any]:
    """Return a row as the types of a table allow it: what a cell may hold, not what it does."""
    row: dict[str, Any] = {}
    for name, kind in schema.items():
        if kind == pl.Utf8:
            row[name] = ""
        elif isinstance(kind, pl.List) and isinstance(kind.inner, pl.Struct):
            row[name] = [{}]
        elif kind.is_numeric() or kind == pl.Boolean:
            row[name] = 0.0
        elif isinstance(kind, pl.Struct):
            row[name] = {field.name: 0.0 for field in kind.fields if field.dtype.is_numeric()}
    return row


def _is_trl(path: Path, schema: Mapping[str, pl.DataType]) -> bool:
    """Return whether a table is one of TRL's, whose reward functions are columns with names of their own."""
    if schema.get("prompt") != pl.Utf8 or schema.get("completion") != pl.Utf8 or "step" not in schema:
        return False
    numbers = {name for name, kind in schema.items() if kind.is_numeric() and name != "step"}
    own = bool(_TRL_FILE.fullmatch(path.name)) or not numbers & {"reward", "total_reward"}
    return "advantage" in numbers and len(numbers) > 1 and own


def sniff_rollout_folder(path: Path) -> float:
    """Return the confidence that the folder holds dumps of rollouts, one file a step."""
    files = _dumps(path) if path.is_dir() else []
    for file in files[:3]:
        try:
            if sniff_rollouts(file):
                return 0.9
        except GroupwiseError:
            continue
    return 0.0


def _dumps(folder: Path) -> list[Path]:
    """Return the files of a folder that are named as dumps, by step; those of the kind that is there more often."""
    try:
        files = [path for path, _ in zip(folder.iterdir(), range(_MOST_FILES), strict=False) if path.is_file()]
    except OSError as error:
        reason = error.strerror or str(error)
        raise UnreadableRunError(f"expected a folder that can be listed, got {reason} for {shown(folder)}: check it") from None
    lines = sorted((path for path in files if _DUMP.fullmatch(path.name)), key=lambda path: (_number(path), path.name))
    tables = sorted(path for path in files if _TRL_FILE.fullmatch(path.name))
    found = lines if len(lines) >= len(tables) else tables
    return found or _episodes(folder)


def _episodes(folder: Path) -> list[Path]:
    """Return prime-rl's files of training episodes below a folder, by step: of all rollouts, not only those trained on."""
    home = folder / "rollouts" if (folder / "rollouts").is_dir() else folder
    found = (inner / "train" / "all" / "traces.jsonl" for inner in home.glob("step_*") if _EPISODES.fullmatch(inner.name))
    return sorted((path for path in found if path.is_file()), key=_number)


def _number(path: Path) -> float:
    """Return the step that a file is named after, NaN for none."""
    match = _DUMP.fullmatch(path.name)
    if match is None and path.name == "traces.jsonl":
        match = next((found for part in reversed(path.parts) if (found := _EPISODES.fullmatch(part))), None)
    return float(next(group for group in match.groups() if group)) if match else float("nan")


def read_rollouts(path: Path, request: Request) -> RunRecord:
    """Read a file with one completion a row."""
    home = path.parent.parent if _TRL_FILE.fullmatch(path.name) and path.parent.name == "completions" else None
    return _read([path], path.name, request if home is None else _around(request, recover(path, home)))


def read_rollout_folder(path: Path, request: Request) -> RunRecord:
    """Read a folder of dumps, verl's `<step>.jsonl` or TRL's `completions_<step>.parquet`, one after the other."""
    files = _dumps(path)
    if not files:
        raise UnreadableRunError(f"expected files of rollouts in {shown(path)}, got none: give the folder with 1.jsonl, 2.jsonl, ...")
    home = path.parent if path.name == "completions" else path
    return _read(files, path.resolve().name, _around(request, recover(files[0], home)))


def _around(request: Request, config: RunConfig) -> Request:
    """Return the request with the settings found around the files under those that it has."""
    return dataclasses.replace(request, config=dataclasses.replace(config, **request.config.known()))


def _read(files: Sequence[Path], name: str, request: Request) -> RunRecord:
    """Read files of rollouts as one run."""
    if not request.columns and any(_is_trl(path, _schema(path)) for path in files[:3] if peek(path).head.startswith(b"PAR1")):
        return _trl_record(files, name, request)
    notes: list[str] = []
    size = sum(path.stat().st_size for path in files)
    rows = RolloutRows(texts=size <= _TEXT_BYTES)
    rewards = "reward" not in request.columns
    sources, verl = [], True
    for path in files:
        before = rows.store.count
        try:
            verl &= _add_file(rows, path, notes, rewarded=rewards, request=request)
        except UnreadableRunError:
            if len(files) == 1:
                raise
            notes.append(f"the file {shown(path)} is damaged or holds no rollouts and was left out")
            continue
        sources.append(Source(str(path), "rollouts", path.stat().st_size, rows.store.count - before))
    if not rows.store.count or not rows.store.names():
        raise UnreadableRunError(
            f"expected rollouts with rewards, got none in {shown(files[0])}: give rows with prompt, completion, reward"
        )
    if size > _TEXT_BYTES:
        notes.append(f"the completions take {size / 1e6:.0f} MB: their texts were left out")
    chosen = chosen_columns(rows.store, request.columns)
    table, reward = _table(rows, chosen, trusted=verl and rows.split_uids == rows.store.count, notes=notes)
    config = request.config
    if verl and not config.framework.known:
        config = config.with_settings({"framework": "verl"}, "the keys of the rollouts")
    return _record(name, table, config, reward, (*row_notes(rows), *notes), tuple(sources))


def _add_file(rows: RolloutRows, path: Path, notes: list[str], *, rewarded: bool, request: Request) -> bool:
    """Add the rows of one file; return whether they are verl's."""
    seen, group_size = peek(path), request.config.value("group_size")
    if seen.head.startswith(b"PAR1"):
        return _add_table(rows, path, rewarded=rewarded)
    if seen.head.startswith(b"PK"):
        return _add_dump(rows, slime_samples(path), "slime", path, group_size)
    first = _first_rows(path, seen)
    if dump := dump_of(first):
        reader = JsonReader()
        whole = (row for text in _lines(path, seen) if (row := _loaded(text, reader)) is not None)
        return _add_dump(rows, whole, dump, path, group_size)
    layout = layout_of(first, rewarded=rewarded)
    if layout is None:
        raise UnreadableRunError(f"expected rollouts in {shown(path)}, got other rows: give rows with prompt, completion and reward")
    reader, damaged, step, before = JsonReader(), 0, _number(path), rows.store.count
    for found in _objects(path, seen, layout, first, reader, texts=rows.texts, plain=not request.columns):
        if found is None:
            damaged += 1
        elif isinstance(found, pl.DataFrame):
            rows.add_table(found, layout, step)
        else:
            rows.add(found, layout, step)
    if damaged and rows.store.count == before:
        raise UnreadableRunError(f"expected one JSON object a line, got {counted(damaged, 'damaged line')} in {shown(path)}: repair it")
    if damaged:
        are = counted(damaged, "line is no whole JSON object and was", "lines are not whole JSON objects and were")
        notes.append(f"{are} left out of {shown(path)}")
    if reader.duplicates:
        notes.append(f"{counted(reader.duplicates, 'row gives', 'rows give')} a key twice in {shown(path)}: the last value counts")
    if seen.encoding == "latin-1":
        notes.append(f"the file {shown(path)} is not UTF-8 and was read as Latin-1")
    return layout.verl


def _objects(
    path: Path, seen: Peek, layout: Layout, first: list[dict[str, Any]], reader: JsonReader, *, texts: bool, plain: bool
) -> Iterator[dict[str, Any] | pl.DataFrame | None]:
    """Yield the object of each line, None for a damaged one; of a large file whole tables where its rows are plain."""
    plan = None
    if plain and layout.prompt and seen.encoding == "utf-8" and seen.size >= SMALLEST:
        wanted = frozenset((layout.prompt, *GROUP_KEYS, *((layout.completion,) if texts else ())))
        numbers = (*REWARD_KEYS, *ADVANTAGE_KEYS, *LENGTH_KEYS, *STEP_KEYS)
        plan = plan_of(first, wanted, "" if texts else layout.completion, numbers)
    if plan is None:
        yield from (_loaded(text, reader) for text in _lines(path, seen))
        return
    for table, lines in blocks(path, plan):
        if table is not None:
            yield table
        else:
            yield from (_loaded(text, reader) for line in lines if (text := line.strip().lstrip("\ufeff")))


def _add_dump(rows: RolloutRows, dumped: Iterator[Mapping[Any, Any]], dump: str, path: Path, group_size: int | None) -> bool:
    """Add the rows of one of the dumps that have to be taken apart; none of them is verl's."""
    for number, row in enumerate(dumped):
        try:
            completions = list(rows_of_dump(dump, row, number, group_size))
        except (KeyError, TypeError, AttributeError):
            rows.left_out += 1
            continue
        if dump == "nemo-rl" and group_size is None and completions[0]["prompt"] is None:
            raise InvalidArgumentError(f"expected the group size for {shown(path)}, which has no prompts: give --set group_size=G")
        for completion in completions:
            rows.add(completion, OURS, _number(path))
    return False


def _lines(path: Path, seen: Peek) -> Iterator[str]:
    """Yield the lines of a text that are not blank."""
    with open_text(path, seen.encoding) as file:
        for line in file:
            text = line.strip().lstrip("\ufeff")
            if text:
                yield text


def _add_table(rows: RolloutRows, path: Path, *, rewarded: bool) -> bool:
    """Add the rows of a Parquet table; return whether they are verl's."""
    table = read_parquet(path)
    typical = _typical(table.schema)
    if dump := dump_of([typical]):
        return _add_dump(rows, table.select(list(typical)).iter_rows(named=True), dump, path, None)
    wanted = list(typical)
    layout = layout_of([typical], rewarded=rewarded)
    if layout is None:
        raise UnreadableRunError(f"expected rollouts in {shown(path)}, got other columns: give prompt, completion and reward")
    decimals = [name for name, kind in table.schema.items() if kind.is_decimal()]
    for row in table.select(wanted).with_columns(pl.col(decimals).cast(pl.Float64)).iter_rows(named=True):
        rows.add(row, layout, _number(path))
    return layout.verl


def _table(rows: RolloutRows, chosen: Mapping[str, str], *, trusted: bool, notes: list[str]) -> tuple[pl.DataFrame, str]:
    """Return the rollouts with the record's columns and those that the user named, and what the reward is."""
    store = rows.store
    step = steps_of(rows, chosen.get("step"), notes)
    total = chosen.get("reward") or _first_filled(store, REWARD_KEYS)
    functions = function_names(store.names(), total)
    functions |= {column: name.removeprefix("reward/") for name, column in chosen.items() if name.startswith("reward/")}
    columns = {"reward": total} | {f"reward/{function}": column for column, function in functions.items()}
    columns |= {name: _first_filled(store, keys) for name, keys in (("advantage", ADVANTAGE_KEYS), ("length", LENGTH_KEYS))}
    others = {name: column for name, column in chosen.items() if name not in ("step", "reward") and not name.startswith("reward/")}
    columns |= {_CHOSEN + name: column for name, column in others.items()}
    known = np.isfinite(step)
    texts = [pl.Series("prompt", rows.prompt, dtype=pl.Utf8), pl.Series("completion", rows.completion, dtype=pl.Utf8)]
    numbers = [_finite(name, store.dense(column)) for name, column in columns.items() if column]
    table = pl.DataFrame([pl.Series("step", np.where(known, step, 0.0).astype(np.int64)), *texts, *numbers])
    if not known.all():
        notes.append(f"{counted(int((~known).sum()), 'row has', 'rows have')} no whole number as its step: left out")
    labels = {key: [name for name, keep in zip(rows.label_column(key), known, strict=True) if keep] for key in rows.labels}
    table = grouped(table.filter(pl.Series(known)), labels, notes, trusted=trusted)
    if not total:
        table = _summed(table, list(functions.values()), notes)
    missing = table["reward"].null_count()
    if missing and missing < len(table):
        notes.append(f"{counted(missing, 'reward is', 'rewards are')} missing or no finite number: left out of the means")
    if total and total != "reward":
        notes.append(f"the reward of a completion is the column {total}")
    return table, f"the column {total}" if total else "the sum of the reward functions"


def _first_filled(store: RowStore, keys: Sequence[str]) -> str:
    """Return the first key that at least half of the rows have, else the one that most have, "" for none."""
    counts = {key: len(store.sparse(key)[1]) for key in keys if key in store.names()}
    return next((key for key, count in counts.items() if 2 * count >= store.count), max(counts, key=lambda key: counts[key], default=""))


def _finite(name: str, values: Array) -> pl.Series:
    """Return a column in which what is no finite number is missing."""
    return pl.Series(name, np.where(np.isfinite(values), values, np.nan), dtype=pl.Float64).fill_nan(None)


def _summed(table: pl.DataFrame, functions: Sequence[str], notes: list[str]) -> pl.DataFrame:
    """Return the table with the plain sum of its reward functions as the reward, where the advantages do not contradict it."""
    base = [name for name in ("step", "prompt_id", "prompt", "completion", "advantage") if name in table.columns]
    usable = functions if not {*base, "reward"} & set(functions) else []
    plain = table.select(*base, *(pl.col(f"reward/{name}").alias(name) for name in usable))
    return table.with_columns(rewarded(plain, dict.fromkeys(usable, 1.0), notes, stated=False)["reward"])


def _trl_record(files: Sequence[Path], name: str, request: Request) -> RunRecord:
    """Return the record of TRL's logged completions without the log of their run."""
    rollouts, config, notes, sources = completions_in(files, request.config, {}, None)
    if rollouts is None or not len(rollouts):
        raise UnreadableRunError(f"expected completions in {shown(files[0])}, got none that can be read: copy the files again")
    notes += ("without the run's log the completions of an evaluation cannot be told from those of training: give the run's folder",)
    if not config.framework.known:
        config = config.with_settings({"framework": "trl"}, "the columns of the completions")
    return _record(name, rollouts, config, "the sum of the reward functions", notes, sources)


def _record(
    name: str, rollouts: pl.DataFrame, config: RunConfig, reward: str, notes: tuple[str, ...], sources: tuple[Source, ...]
) -> RunRecord:
    """Return the record whose steps are means over rollouts."""
    found = list(notes)
    rewards = [column for column in rollouts.columns if column == "reward" or column.startswith("reward/")]
    if not any(rollouts[column].count() for column in rewards):
        raise UnreadableRunError(f"expected rewards that are numbers, got none in {name[:80]}: name theirs with --column reward=NAME")
    config = _sized(rollouts, config, found)
    extra = [column for column in rollouts.columns if column.startswith(_CHOSEN)]
    clocks = [_CHOSEN + clock for clock in _CLOCKS if _CHOSEN + clock in extra]
    means = rewards + [column for column in extra if column not in clocks]
    steps = rollouts.group_by("step").agg(pl.col(means).mean(), pl.col(clocks).max()).sort("step")
    step = steps["step"].to_list()
    columns = {column.removeprefix(_CHOSEN): steps[column].to_numpy() for column in means}
    clock: dict[str, Any] = {
        column.removeprefix(_CHOSEN): _rising(column.removeprefix(_CHOSEN), steps[column].to_numpy()) for column in clocks
    }
    clock.setdefault("optimizer_updates", np.array(step, dtype=np.float64) * float(config.value("updates_per_step") or 1.0))
    record = RunRecord(
        name="".join(character for character in name if character.isprintable())[:160] or "rollouts",
        steps=steps_table(step, columns, **clock),
        rollouts=rollouts.drop(extra),
        config=config,
        meanings=tuple(_meaning(column, reward) for column in columns),
        sources=sources,
        notes=tuple(found),
    )
    try:
        record.validate()
    except InvalidArgumentError as error:
        raise UnreadableRunError(f"expected rollouts that make a sound record, got {name[:80]}: {error}") from None
    return record


def _meaning(column: str, reward: str) -> Meaning:
    """Return what a mean over the rollouts of a step is."""
    if column == "reward":
        return Meaning(column, "reward", f"mean reward ({reward}) over the file's rollouts of the step")
    if column.startswith("reward/"):
        title = column.removeprefix("reward/")
        return Meaning(column, column, f"mean of the reward function {title}, unweighted, over the file's rollouts of the step")
    return Meaning(column, column, f"{column}, as given with --column: mean over the file's rollouts of the step")


def _rising(name: str, values: Array) -> Array:
    """Return a clock that the user named; raise where it falls or is unknown."""
    if np.isfinite(values).all() and (np.diff(values) >= 0).all() and values[0] >= 0:
        return values
    raise InvalidArgumentError(f"expected a column that never falls for {name}, got one that does or has gaps: name another")


def _sized(rollouts: pl.DataFrame, config: RunConfig, notes: list[str]) -> RunConfig:
    """Return the settings with the group size where all groups have one, and note where they do not."""
    sizes = rollouts.group_by("step", "prompt_id").len()["len"].to_numpy()
    low, high, known = int(sizes.min()), int(sizes.max()), config.value("group_size")
    if low != high:
        notes.append(f"the groups have {low} to {high} completions")
    elif known is None and low > 1:
        return config.with_settings({"group_size": low}, "the groups of the rollouts")
    if known is not None and (low, high) != (known, known):
        notes.append(f"the group size {known} ({config.group_size.source}) is not that of the logged groups")
    return config
