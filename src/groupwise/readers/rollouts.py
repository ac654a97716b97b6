"""Rollouts: one completion a row in JSON lines, CSV or Parquet, in one file or one a step, with or
without their trainer's own layout.

The keys that are understood are the lists at the top. The steps of the record are means over the
rollouts; losses, clocks and evaluations are not in such files and are not invented.
"""

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from groupwise import parsing
from groupwise.arrays import Float
from groupwise.errors import GroupwiseError, InvalidArgumentError, UnreadableRunError
from groupwise.files import forms, open_regular
from groupwise.parsing import JsonObject
from groupwise.plain import Words, frozen
from groupwise.prompts import prompt_text
from groupwise.readers.assemble import NamedColumns, Request, chosen_clocks, chosen_columns, sound
from groupwise.readers.configs import config_of, with_found
from groupwise.readers.dumps import DUMPS, GROUPS, SPELLED, SPELLINGS, DumpedRow, dump_of
from groupwise.readers.rows import RowStore, clean_key, first_of, parse_number, whole_steps
from groupwise.readers.source import (
    DAMAGED_LINES,
    Blocks,
    Notes,
    Peek,
    first_lines,
    inside,
    is_number,
    is_scalar,
    json_lines,
    lines_in,
    noted,
    peek,
    shown,
    some_of,
    vocabulary,
)
from groupwise.readers.tables import LAST_NUMBER, json_table, texts_and_numbers
from groupwise.readers.trl import completions_in, rebuilt, rewarded
from groupwise.record.run import Meaning, RunConfig, RunRecord, Source
from groupwise.record.table import UNREADABLE, Texts, read_parquet, steps_table
from groupwise.wording import count

PROMPT_KEYS = vocabulary("prompt")
COMPLETION_KEYS = vocabulary("completion")
REWARD_KEYS = vocabulary("reward")
GROUP_KEYS = vocabulary("group")
ENVIRONMENT_KEYS = vocabulary("environment")
_FEWEST_EACH = 20  # rollouts of an environment, in the mean: texts of tasks have fewer
# What may name a prompt of the data set: it is the same prompt at another step.
_PROMPT_NAMES = vocabulary("prompt_name")
STEP_KEYS = vocabulary("rollout_step")
FUNCTION_PREFIXES = vocabulary("function_prefix")
STEP_LOG_KEYS = vocabulary("only_of_a_step")

# of which a text is never a number
_TEXT_KEYS = frozenset(PROMPT_KEYS + COMPLETION_KEYS + GROUP_KEYS + ENVIRONMENT_KEYS)
_BY_TOKEN = frozenset(
    SPELLINGS["entropy"] + SPELLINGS["log_probability"]
)  # may be lists, of which the mean counts
_REASONS = ("finish_reason", "finish_reasons")
_CUT_OFF = ("length", "max_tokens")  # reasons to finish at the limit
# A column such as format_reward is what one function gave, one such as mean_reward is not.
_OF_A_FUNCTION = re.compile(r"(\w+)_rewards?")
_OF_NO_FUNCTION = frozenset(vocabulary("no_function"))
# verl appends the number of the rollout and of its output to the name of the group
_VERL_UID = r"(?s)^(.+)_\d{1,9}_\d{1,9}$"


@frozen
class Layout:
    """Where the rows of a file keep their texts."""

    prompt: str  # the key of the prompt
    completion: str  # the key of the completion
    verl: bool  # whether the rows are those of verl's rollout dump


BY_GROUPS = "the groups of the rollouts"  # which say the group size


def layout_of(rows: Iterable[DumpedRow], *, rewarded: bool = True) -> Layout | None:
    """Return where rows keep their texts, or None where most of them are no rollouts."""
    seen = [row for row in rows if isinstance(row, Mapping)]
    good = [
        row
        for row in seen
        if (_rewards(row) or not rewarded)
        and not any(_is_a_number(row.get(key)) for key in STEP_LOG_KEYS)
    ]
    prompt, completion = _most_used(good, PROMPT_KEYS), _most_used(good, COMPLETION_KEYS)
    both = sum(_is_text(row.get(prompt)) and _is_text(row.get(completion)) for row in good)
    if both and 2 * both >= len(seen):
        return Layout(
            prompt,
            completion,
            (prompt, completion) == ("input", "output") and all("score" in row for row in good),
        )
    return (
        Layout(prompt, "", verl=False)
        if 2 * len(good) >= len(seen) and _share_groups(good)
        else None
    )


def _share_groups(rows: list[DumpedRow]) -> bool:
    """Return whether rows without completions are rollouts all the same: some of one step share
    a prompt, or what names a group.
    """
    for key in GROUP_KEYS + PROMPT_KEYS:
        named = [(row.get(key), first_of(row, STEP_KEYS)) for row in rows]
        whole = [name for name in named if is_scalar(name[0]) and is_number(name[1])]
        if key != "id" and 2 * len(whole) >= len(rows) and len(set(whole)) < len(whole):
            return True
    return False


def _most_used(rows: list[DumpedRow], keys: Words) -> str:
    """Return the first key that holds a text in at least half of the rows, or the one that does
    so most often.
    """
    return _usual({key: sum(_is_text(row.get(key)) for row in rows) for key in keys}, len(rows))


def _usual(counts: dict[str, int], rows: int) -> str:
    """Return the first key that at least half of the rows have, else the one that most have."""
    return next(
        (key for key, count in counts.items() if count and 2 * count >= rows),
        max(counts, key=counts.__getitem__, default=""),
    )


def _is_rollout(row: DumpedRow, layout: Layout) -> bool:
    """Return whether a row holds a prompt or the name of a group, and a completion or a reward."""
    return (
        _is_text(row.get(layout.prompt)) or any(is_scalar(row.get(key)) for key in GROUP_KEYS)
    ) and (_is_text(row.get(layout.completion)) or _rewards(row))


def _rewards(row: DumpedRow) -> bool:
    """Return whether a row holds a number under a key of rewards, or numbers below one."""
    return any(
        any(map(_is_a_number, value.values()))
        if isinstance(value, Mapping) and f"{key}/" in FUNCTION_PREFIXES
        else _is_a_number(value) and (key in REWARD_KEYS or str(key).startswith(FUNCTION_PREFIXES))
        for key, value in row.items()
    )


def _is_a_number(value: Any) -> bool:
    """Return whether a cell holds a number, perhaps as a text."""
    return is_number(value) or (
        isinstance(value, str) and parse_number(value) is not None and value.strip() != ""
    )


def _is_text(value: Any) -> bool:
    """Return whether a cell holds a text or a list of chat messages."""
    return isinstance(value, str) or (
        isinstance(value, list) and value != [] and all(isinstance(part, Mapping) for part in value)
    )


class RolloutRows:
    """Rollouts by column, in the order in which they came.

    Attributes:
        store: the numbers.
        file_step: the step that each row's file is named after, NaN where it is not.
        environments: the environment, task or data source of each row, None where missing.
        labels: key -> what tells the groups apart, None where missing.
        over: rows that there is no room for.
        left_out: rows that are no rollouts.
        silent: rows without a completion.
        messages: texts that are lists of chat messages.
        texts: whether completions are kept; else each has a place, from 0.
    """

    _characters = 0
    over = left_out = silent = messages = 0

    def __init__(self, *, texts: bool = True) -> None:
        self.store = RowStore(parsing.MOST_LONG)
        self._completion: list[Any] = [[]]  # parts of the column: lists, and series of tables
        self._prompt: list[int | None] = []
        self._prompts: dict[str, int] = {}
        self._ends: list[int] = []
        self._again: list[Callable[[], pl.Series]] = []
        self.file_step: list[float] = []
        self.environments: list[str | None] = []
        self.labels: dict[str, list[str | None]] = {}
        self.texts = texts

    def add(self, row: DumpedRow, layout: Layout, file_step: float = math.nan) -> None:
        """Append one row, or count it as left out where it is no rollout."""
        if not _is_rollout(row, layout):
            self.left_out += 1
            return
        if self.store.count >= self.store.most():
            self.over += 1
            return
        prompt, completion = row.get(layout.prompt), row.get(layout.completion)
        self._prompt.append(self._number(self._text(prompt)))
        text = self._text(completion)
        self.silent += text is None
        self._completion[-1].append(text if self.texts or text is None else self.store.count)
        self.file_step.append(file_step if file_step == file_step else _partition(row))
        environments, groups, spelled = _named(tuple(row))
        named = (row[key] for key in environments if isinstance(row[key], str))
        self.environments.append(next(map(_sound, named), None))
        for key in groups:
            if is_scalar(row[key]):
                self.label_column(key).append(_label(row[key]))
        self.store.add(_cells_of(row, spelled))

    def add_table(self, table: pl.DataFrame, layout: Layout, file_step: float) -> bool:
        """Append rows by column where there is room and each holds both texts; return whether it
        does.
        """
        texts = {column.name for column in table if column.dtype == pl.String}
        start = self.store.count
        end = start + len(table)
        if (
            end > self.store.most(table.width)
            or "partition_id" in texts
            or not {layout.prompt, layout.completion} <= texts
        ):
            return False
        runs = table[layout.prompt].rle().struct
        for prompt, length in zip(runs.field("value"), runs.field("len"), strict=True):
            self._prompt += [self._number(prompt)] * length
        self._completion += [table[layout.completion] if self.texts else range(start, end), []]
        self.file_step += [file_step] * len(table)
        environments, groups, _ = _named(tuple(table.columns))
        named = next((key for key in environments if key in texts), None)
        self.environments.extend(table[named] if named else [None] * len(table))
        for key in groups:
            names = table[key]
            self.label_column(key).extend(names if key in texts else map(_label, names))
        for key in texts & {*_REASONS}:
            table = table.with_columns(pl.col(key).is_in(_CUT_OFF))
        kept = [column for column in table if column.name not in texts & _TEXT_KEYS]
        self.store.add_table(kept, len(table))
        return True

    def text_columns(self) -> pl.DataFrame:
        """Return prompt and completion of every row."""
        prompts = pl.Series(list(self._prompts), dtype=pl.Utf8)
        kind = pl.Utf8 if self.texts else pl.Int64
        parts = (pl.Series(part, dtype=kind) for part in self._completion)
        return pl.DataFrame(
            {
                "prompt": prompts.gather(pl.Series(self._prompt, dtype=pl.Int64)),
                "completion": pl.concat(parts),
            }
        )

    def left(self, again: Callable[[], pl.Series]) -> None:
        """Take down how the completions of the rows since the last such call are read again."""
        if not self.texts and self.store.count > max(self._ends, default=0):
            self._ends.append(self.store.count)
            self._again.append(again)

    def left_texts(self) -> Texts | None:
        """Return what reads the completions that were not kept, None where they were."""
        return None if self.texts else Texts(np.array(self._ends), tuple(self._again))

    def label_column(self, key: str) -> list[str | None]:
        """Return what tells the groups apart by one key, as long as the rows are many."""
        column = self.labels.setdefault(key, [])
        column.extend([None] * (self.store.count - len(column)))
        return column

    def _text(self, value: Any) -> str | None:
        """Return a cell as a text, chat messages as JSON; None where it is neither."""
        if not _is_text(value):
            return None
        try:
            text = prompt_text(value)
        except (RecursionError, ValueError):
            return None
        self.messages += text is not value and text.startswith("[{")
        return _sound(text)

    def _number(self, prompt: str | None) -> int | None:
        """Return the number of a prompt; where prompts are too long to keep, it is that of its
        hash.
        """
        if prompt is None:
            return None
        if prompt not in self._prompts and self._characters > parsing.MOST_TEXT:
            prompt = hashlib.blake2b(prompt.encode(), digest_size=8).hexdigest()
        if prompt not in self._prompts:
            self._characters += len(prompt)
        return self._prompts.setdefault(prompt, len(self._prompts))


def _label(value: str | float) -> str:
    """Return the name of a group."""
    return _sound(f"{value:.17g}" if isinstance(value, float) else str(value))


def _sound(text: str) -> str:
    """Return a text that can be stored."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _number_of(key: str, value: Any) -> Any:
    """Return what was logged of a completion as a number: the mean over its tokens, and whether
    it finished at the limit.
    """
    if key in _REASONS and isinstance(value, str):
        return float(value in _CUT_OFF)
    if key in _BY_TOKEN and isinstance(value, list) and value and all(map(is_number, value)):
        with suppress(OverflowError):
            return sum(value) / len(value)
    return value


@lru_cache(maxsize=64)
def _named(keys: tuple[Any, ...]) -> tuple[list[str], list[str], frozenset[str]]:
    """Return the keys of a row that may name its environment, those that may name its group, and
    those of what was logged of its completion.
    """
    environments, groups = (
        [key for key in names if key in keys] for names in (ENVIRONMENT_KEYS, GROUP_KEYS)
    )
    return environments, groups, SPELLED & frozenset(keys)


def _cells_of(row: DumpedRow, spelled: Iterable[str]) -> dict[Any, Any]:
    """Return the cells of a row besides its texts, with what was logged of its completion as
    numbers.
    """
    cells = {
        key: value for key, value in row.items() if key not in _TEXT_KEYS or not _is_text(value)
    }
    for key in spelled:
        if key in cells:
            cells[key] = _number_of(key, cells[key])
    return cells


def _partition(row: DumpedRow) -> float:
    """Return the number of the part of the run that a row belongs to, as Twinkle names it, NaN
    for none.
    """
    name = row.get("partition_id")
    match = LAST_NUMBER.search(name) if isinstance(name, str) else None
    return float(match[1]) if match else math.nan


def _rollout_steps(rows: RolloutRows, chosen: str | None, notes: Notes) -> Float:
    """Return the step of every row, NaN where it is unknown."""
    key = chosen or next(
        (
            key
            for key in STEP_KEYS
            if key in rows.store.names()
            and 2 * whole_steps(rows.store.sparse(key)[1]).sum() >= rows.store.count
        ),
        "",
    )
    file_step = np.array(rows.file_step)
    if key:
        own = rows.store.dense(key)
        step = np.where(whole_steps(own), own, file_step)
    else:
        step = file_step
        if not np.isfinite(step).any():
            notes.append(
                "no column is recognised as the step, so all rollouts count as step 1: name it "
                "with --column step=NAME"
            )
            return np.ones(rows.store.count)
        notes.append("the steps come from the names of the files or of the parts with the rows")
    finite = step[np.isfinite(step)]
    blocks = finite[np.append(True, np.diff(finite) != 0)] if len(finite) else finite
    if len(blocks) > len(np.unique(blocks)):
        notes.append("the rows of a step are not contiguous: all rows with one step were combined")
    return step


def grouped(
    table: pl.DataFrame, labels: Mapping[str, pl.Series], notes: Notes, *, trusted: bool
) -> pl.DataFrame:
    """Return a table with `prompt_id`, numbered by first appearance within the step, its rows
    sorted by step and group.

    Whole numbers that may name prompts of the data set are kept: they tell which prompt comes
    again. A key counts as the group's only where it never mixes prompts and puts at least two rows
    of a step together.
    """
    group_key = ""
    for key in GROUP_KEYS:
        names = labels.get(key)
        if names is None or names.null_count():
            continue
        groups = (
            table.select("step", "prompt")
            .with_columns(names)
            .group_by("step", "key")
            .agg(pl.col("prompt").drop_nulls().n_unique())
        )
        mixed = (groups["prompt"] > 1).any()
        if trusted or (not mixed and len(groups) < len(table)):
            group_key = key
            break
        if mixed and len(groups) < len(table):
            notes.append(
                f"the column {key} combines different prompts, so it does not identify the groups"
            )
    if group_key:
        table = table.with_columns(labels[group_key])
        notes.append(f"completions are grouped by the column {group_key}")
    else:
        table = table.with_columns(key=pl.col("prompt")).drop_nulls("key")
        notes.append(
            "completions are grouped by equal prompts within a step: one prompt makes one group"
        )
    named = (
        table["key"].cast(pl.Int64, strict=False)
        if group_key in _PROMPT_NAMES
        else pl.Series([None], dtype=pl.Int64)
    )
    first = pl.col("row").min().over("step", "key")
    number = first.rank("dense").over("step").cast(pl.Int64) - 1 if named.null_count() else named
    numbered = table.with_row_index("row").with_columns(prompt_id=number)
    front = ["step", "prompt_id"]
    numbered = numbered.select(*front, pl.exclude(*front, "row", "key"))
    return numbered.sort("step", "prompt_id", maintain_order=True)


def row_notes(rows: RolloutRows) -> Notes:
    """Return notes on rows and texts that are not as they should be."""
    why = "neither a prompt nor a group, or neither a completion nor a reward: left out"
    notes = noted(rows.left_out, "row has", "rows have", why)
    notes += noted(rows.silent, "row has", "rows have", "no completion, only rewards")
    notes += noted(
        rows.messages, "text is a list", "texts are lists", "of chat messages and kept as JSON text"
    )
    return notes


def function_names(names: Iterable[str], total: str) -> dict[str, str]:
    """Return the columns of reward functions, and what each function is called."""
    names_of: dict[str, str] = {}
    for name in names:
        prefix = next((prefix for prefix in FUNCTION_PREFIXES if name.startswith(prefix)), "")
        beside = _OF_A_FUNCTION.fullmatch(name) if total and not prefix else None
        part = (
            name.removeprefix(prefix)
            if prefix
            else beside[1]
            if beside and not _OF_NO_FUNCTION & {*beside[1].split("_")}
            else ""
        )
        function = clean_key(part) if part else ""
        if function and name != total and function != "total" and function not in names_of.values():
            names_of[name] = function
    return names_of


_MOST_FILES = 100_000
_FIRST_ROWS = 20
_DUMP, _STEP_IN_NAME, _TRL_FILE = forms("dump step_in_name trl_file")
_KINDS = (".jsonl", ".parquet")
_LOGS = vocabulary("ending_beside_rollouts")
_CLOCKS = vocabulary("clock")
_CHOSEN = "chosen: "
OURS = Layout("prompt", "completion", verl=False)


def sniff_rollouts(seen: Peek) -> bool:
    """Return whether the file holds one completion a row, with its prompt and its
    reward.
    """
    if seen.head.startswith(b"PAR1"):
        return _is_table(seen.path)
    rows = [] if seen.binary else _first_rows(seen)
    return bool(dump_of(rows)) or layout_of(rows) is not None


def _first_rows(seen: Peek) -> list[JsonObject]:
    """Return the first rows of JSON lines, or of a table of texts between commas; an empty one
    stands for a line that is damaged.
    """
    if seen.text.startswith("{"):
        return [row or {} for row in json_lines(first_lines(seen, _FIRST_ROWS))]
    names = set(re.split(r"[,;\t\r\"]+", seen.text.partition("\n")[0]))
    if names.isdisjoint(PROMPT_KEYS) or names.isdisjoint(COMPLETION_KEYS):
        return []
    rows = list(texts_and_numbers(first_lines(seen, _FIRST_ROWS)))
    layout = layout_of(rows)
    return rows if layout and layout.completion else []


def _schema(path: Path) -> Mapping[str, pl.DataType]:
    """Return the types of a Parquet file's columns, none where it is damaged."""
    try:
        open_regular(path).close()  # as in `read_parquet`
        return pl.read_parquet_schema(path)
    except UNREADABLE:
        return {}


def _is_table(path: Path) -> bool:
    """Return whether a Parquet file holds rollouts, by the types of its columns."""
    schema = _schema(path)
    typical = _typical(schema)
    return _is_trl(path, schema) or bool(dump_of([typical])) or layout_of([typical]) is not None


def _typical(schema: Mapping[str, pl.DataType]) -> JsonObject:
    """Return a row as the types of a table allow it: what a cell may hold, not what it does."""
    row: JsonObject = {}
    for name, kind in schema.items():
        if kind == pl.Utf8:
            row[name] = ""
        elif isinstance(kind, pl.List) and isinstance(kind.inner, pl.Struct):
            row[name] = [{}]
        elif kind.is_numeric() or kind == pl.Boolean:
            row[name] = 0.0
        elif isinstance(kind, pl.Struct):
            row[name] = {field.name: 0.0 for field in kind.fields if field.dtype.is_numeric()}
        elif name in _BY_TOKEN and isinstance(kind, pl.List) and kind.inner.is_numeric():
            row[name] = [0.0]
    return row


def _is_trl(path: Path, schema: Mapping[str, pl.DataType]) -> bool:
    """Return whether a table is one of TRL's, whose reward functions are columns with names of
    their own.
    """
    texts = map(_typical(schema).get, ("prompt", "completion"))
    numbers = {name for name, kind in schema.items() if kind.is_numeric() and name != "step"}
    own = bool(_TRL_FILE.fullmatch(path.name)) or not numbers & {"reward", "total_reward"}
    return own and numbers > {"advantage"} and "step" in schema and all(map(_is_text, texts))


def sniff_rollout_folder(path: Path) -> bool:
    """Return whether the folder holds dumps of rollouts, one file a step."""
    for file in _dumps(path)[:3]:
        with suppress(GroupwiseError):
            if sniff_rollouts(peek(file)):
                return True
    return False


def _dumps(folder: Path) -> list[Path]:
    """Return the files of a folder that are named as dumps, by step: of the kind that is there
    more often; else prime-rl's episodes of training, of all rollouts and not only those trained
    on; else, without a log beside them, files below it whose names tell their step.
    """
    files = [path for path in inside(folder, _MOST_FILES) if path.is_file()]
    named = [path for path in files if _DUMP.fullmatch(path.name)]
    dumps = max(([path for path in named if path.suffix == kind] for kind in _KINDS), key=len)
    if not dumps:
        home = folder / "rollouts" if (folder / "rollouts").is_dir() else folder
        dumps = list(islice(home.glob("step_*/train/all/traces.jsonl"), _MOST_FILES))
    if not dumps and not any(path.suffix.lower() in _LOGS for path in files):
        dumps = list(islice(folder.glob("*/*.jsonl"), _MOST_FILES))
    numbers = {path: number for path in dumps if (number := _number(path)) == number}
    if 2 * len(numbers) < len(dumps):  # files of many runs, of which one is called after a step
        return []
    return sorted(numbers, key=lambda path: (numbers[path], path.name))


def _number(path: Path) -> float:
    """Return the step that a file, or a folder above it, is named after, NaN for none."""
    match = (
        _DUMP.fullmatch(path.name)
        or _STEP_IN_NAME.search(path.name)
        or _STEP_IN_NAME.search("/".join(path.parts[-4:-1]))
    )
    return float(next(group for group in match.groups() if group)) if match else math.nan


def read_rollouts(path: Path, request: Request) -> RunRecord:
    """Read a file with one completion a row."""
    home = (
        path.parent.parent
        if _TRL_FILE.fullmatch(path.name) and path.parent.name == "completions"
        else None
    )
    return _read([path], path.name, home or request.home, request)


def read_rollout_folder(path: Path, request: Request) -> RunRecord:
    """Read a folder of dumps, verl's `<step>.jsonl` or TRL's `completions_<step>.parquet`, one
    after the other.
    """
    files = _dumps(path)
    home = path.parent if path.name == "completions" else path
    return _read(files, path.resolve().name, home, request)


def _read(files: Sequence[Path], name: str, home: Path | None, request: Request) -> RunRecord:
    """Read files of rollouts as one run, with the settings around the first."""
    notes: Notes = []
    request = replace(request, config=config_of(request.config, files[0], home, notes=notes))
    if not request.columns and any(_is_trl(path, _schema(path)) for path in files[:3]):
        return _trl_record(files, name, request, notes)
    rows = RolloutRows(texts=sum(path.stat().st_size for path in files) <= parsing.MOST_HELD)
    sources, verl = [], True
    for path in files:
        before = rows.store.count
        try:
            verl &= _add_file(rows, path, notes, request)
            rows.left(partial(_completions_in, path, request))
        except UnreadableRunError:
            if len(files) == 1:
                raise
            notes.append(f"the file {shown(path)} is damaged or has no rollouts and was left out")
            continue
        sources.append(
            Source(str(path), "rollouts", path.stat().st_size, rows.store.count - before)
        )
    of = rows.store.count + rows.over
    if rows.over and len(files) > 1:  # every other file then, the last among them
        record = _read(files[::-2][::-1], name, home, request)
        note = f"{len(record.sources)} of {len(files)} files were read, evenly spaced"
        return replace(
            record, sources=(replace(record.sources[0], note=note, of=of), *record.sources[1:])
        )
    if not rows.store.count or not rows.store.names():
        raise UnreadableRunError(
            f"expected rollouts with rewards, got none in {shown(files[0])}: give rows with "
            "prompt, completion, reward"
        )
    table, reward = _table(rows, request.columns, verl=verl, notes=notes)
    config = request.config
    if verl:
        config = with_found(config, {"framework": "verl"}, "the keys of the rollouts")
    if rows.over:
        note = f"only the first {rows.store.count:,} of its {of:,} rows were read"
        sources[0] = replace(sources[0], note=note, of=of)
    notes = [*row_notes(rows), *rows.store.left_out_notes(), *notes]
    return _record(name, table, config, reward, notes, sources, texts=rows.left_texts())


def _completions_in(path: Path, request: Request) -> pl.Series:
    """Read the completions of a file again."""
    rows = RolloutRows()
    _add_file(rows, path, [], request)
    return rows.text_columns()["completion"]


def _with_room(rows: RolloutRows, lines: Iterable[str]) -> Iterator[str]:
    """Yield lines as long as there is room for their rows, and count the others."""
    for line in lines:
        if rows.over:
            rows.over += 1
        else:
            yield line


@dataclass(slots=True)
class _Lines:
    """What reads the lines of a file, and those of one of its blocks again."""

    seen: Peek
    dump: str  # the trainer whose dump layout must be unpacked, or ""
    layout: Layout
    group_size: int | None
    taken: int = 0  # rows of a dump so far

    def add(self, rows: RolloutRows, block: bytes) -> int:
        """Add the rows of some lines; return how many lines are damaged."""
        table, step = None if self.dump else json_table(block), _number(self.seen.path)
        if table is not None and rows.add_table(table, self.layout, step):
            return 0
        lines = json_lines(_with_room(rows, lines_in(block)))
        if self.dump:
            dumped = list(enumerate(filter(None, lines), self.taken))
            self.taken += len(dumped)
            _add_dump(rows, dumped, self.dump, self.seen.path, self.group_size)
            return 0
        damaged = 0
        for row in lines:
            if row is None:
                damaged += 1
            else:
                rows.add(row, self.layout, step)
        return damaged

    def completions(self, start: int) -> pl.Series:
        """Read the completions again of the block that begins at a place of the file."""
        rows = RolloutRows()
        self.add(rows, next(iter(Blocks(self.seen, start)), b""))
        return rows.text_columns()["completion"]


def _add_file(rows: RolloutRows, path: Path, notes: Notes, request: Request) -> bool:
    """Add the rows of one file; return whether they are verl's."""
    seen, group_size = peek(path), request.config.value("group_size")
    rewarded = "reward" not in request.columns
    if seen.head.startswith(b"PAR1"):
        return _add_table(rows, path, rewarded=rewarded)
    first = _first_rows(seen)
    dump = dump_of(first)
    layout = OURS if dump else layout_of(first, rewarded=rewarded)
    if layout is None:
        raise UnreadableRunError(
            f"expected rollouts in {shown(path)}, got other rows: give rows with prompt, "
            "completion and reward"
        )
    damaged, before = 0, rows.store.count
    blocks, lines = Blocks(seen), _Lines(seen, dump, layout, group_size)
    if seen.text.startswith("{"):
        for block in blocks:
            damaged += lines.add(rows, block)
            rows.left(partial(lines.completions, blocks.start))
    else:
        for row in texts_and_numbers(_with_room(rows, blocks.lines())):
            rows.add(row, layout)
    if dump:
        return False
    if damaged and rows.store.count == before:
        raise UnreadableRunError(
            f"expected one JSON object a line, got {count(damaged, 'damaged line')} in "
            f"{shown(path)}: repair it"
        )
    notes += noted(damaged, *DAMAGED_LINES, f"left out of {shown(path)}")
    notes += blocks.notes()
    if seen.encoding == "latin-1":
        notes.append(f"the file {shown(path)} is not UTF-8 and was read as Latin-1")
    return layout.verl


def _add_dump(
    rows: RolloutRows,
    dumped: Iterable[tuple[int, DumpedRow]],
    dump: str,
    path: Path,
    group_size: int | None,
) -> bool:
    """Add the numbered rows of one of the dumps that have to be taken apart; none of them is
    verl's.
    """
    step = _number(path)
    for number, row in dumped:
        try:
            completions = list(DUMPS[dump][1](row))
        except (KeyError, TypeError, AttributeError):
            rows.left_out += 1
            continue
        for completion in completions:
            if dump == "nemo-rl" and completion["prompt"] is None:
                if group_size is None:
                    raise InvalidArgumentError(
                        f"expected the group size for {shown(path)}, which has no prompts, got "
                        "none: give --set group_size=G"
                    )
                completion["prompt"] = f"prompt {number // group_size}"
            if (
                dump == GROUPS and "prompt" not in completion
            ):  # a line is a group where it does not name its own
                named = next(
                    (completion[key] for key in GROUP_KEYS if key in completion and key != "group"),
                    f"line {number}",
                )
                completion["group"] = f"{named}{completion.get('group', '')}"
            rows.add(completion, OURS, step)
    return False


def _add_table(rows: RolloutRows, path: Path, *, rewarded: bool) -> bool:
    """Add the rows of a Parquet table; return whether they are verl's."""
    table = read_parquet(path)
    typical = _typical(table.schema)
    table = table.select(list(typical))
    if dump := dump_of([typical]):
        return _add_dump(rows, enumerate(table.iter_rows(named=True)), dump, path, None)
    layout = layout_of([typical], rewarded=rewarded)
    if layout is None:
        raise UnreadableRunError(
            f"expected rollouts in {shown(path)}, got other columns: give prompt, completion and "
            "reward"
        )
    decimals = [name for name, kind in table.schema.items() if kind.is_decimal()]
    step = _number(path)
    for row in table.with_columns(pl.col(decimals).cast(pl.Float64)).iter_rows(named=True):
        rows.add(row, layout, step)
    return layout.verl


def _table(
    rows: RolloutRows, asked: NamedColumns, *, verl: bool, notes: Notes
) -> tuple[pl.DataFrame, str]:
    """Return the rollouts with the record's columns and those that the user named, and what the
    reward is.
    """
    store, chosen = rows.store, chosen_columns(rows.store, asked)
    step = _rollout_steps(rows, chosen.get("step"), notes)
    total = chosen.get("reward") or _first_filled(store, REWARD_KEYS)
    functions, columns = _columns_of(store, chosen, total)
    texts = rows.text_columns()
    values = {name: store.dense(column) for name, column in columns.items() if column}
    truncated = values.pop("truncated", None)
    values |= {"ended": 1.0 - truncated} if truncated is not None and "ended" not in values else {}
    numbers = [
        pl.Series(name, np.where(np.isfinite(values_N), values_N, np.nan)).fill_nan(None)
        for name, values_N in values.items()
    ]
    usable = np.isfinite(step)
    table = pl.DataFrame(
        [pl.Series("step", np.where(usable, step, 0.0).astype(np.int64)), *texts, *numbers]
    ).with_columns(pl.Series("environment", rows.environments, dtype=pl.Utf8))
    notes += noted((~usable).sum(), "row has", "rows have", "no whole-number step: left out")
    kept = pl.Series(usable)
    labels = {
        key: pl.Series("key", rows.label_column(key), dtype=pl.Utf8).filter(kept)
        for key in rows.labels
    }
    uids = labels.get("uid", pl.Series(dtype=pl.Utf8)).str.extract(_VERL_UID)
    trusted = verl and len(uids) - uids.null_count() == kept.sum()
    table = grouped(
        table.filter(kept), {"uid": uids} if trusted else labels, notes, trusted=trusted
    )
    if not total:
        table = _summed(table, list(functions.values()), notes)
    missing = table["reward"].null_count()
    if missing < len(table):
        notes += noted(
            missing,
            "reward is",
            "rewards are",
            "missing, NaN or infinite, and left out of the means",
        )
    if total and total != "reward":
        notes.append(f"the reward of a completion is the column {total}")
    return table, f"the column {total}" if total else "the sum of the reward functions"


def _columns_of(
    store: RowStore, chosen: NamedColumns, total: str
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the reward functions by column, and the record's columns with those that they are
    taken from, "" for none.
    """
    functions = function_names(store.names(), total)
    functions |= {
        column: name.removeprefix("reward/")
        for name, column in chosen.items()
        if name.startswith("reward/")
    }
    columns = {"reward": total} | {
        f"reward/{function}": column for column, function in functions.items()
    }
    columns |= {name: _first_filled(store, keys) for name, keys in SPELLINGS.items()}
    own = {
        name: column
        for name, column in chosen.items()
        if name not in ("step", "reward") and not name.startswith("reward/")
    }
    return functions, columns | {_CHOSEN + name: column for name, column in own.items()}


def _first_filled(store: RowStore, keys: Sequence[str]) -> str:
    """Return the first key that at least half of the rows have, else the one that most have, ""
    for none.
    """
    return _usual(
        {key: len(store.sparse(key)[1]) for key in keys if key in store.names()}, store.count
    )


def _summed(table: pl.DataFrame, functions: Sequence[str], notes: Notes) -> pl.DataFrame:
    """Return the table with the plain sum of its reward functions as the reward, where the
    advantages do not contradict it.
    """
    base = [name for name in vocabulary("of_a_summed_reward") if name in table]
    usable = functions if not {*base, "reward"} & set(functions) else []
    plain = table.select(*base, *(pl.col(f"reward/{name}").alias(name) for name in usable))
    return table.with_columns(
        rewarded(plain, dict.fromkeys(usable, 1.0), notes, stated=False)["reward"]
    )


def _trl_record(
    files: Sequence[Path], name: str, request: Request, said: Sequence[str]
) -> RunRecord:
    """Return the record of TRL's logged completions without the log of their run."""
    typed, remarks, sources = completions_in(files)
    notes = [*said, *remarks]
    if typed is None or not len(typed):
        raise UnreadableRunError(
            f"expected completions in {shown(files[0])}, got none that can be read: "
            f"{some_of(notes)}"
        )
    rollouts, config = rebuilt(typed, request.config, {}, None, notes)
    notes.append(
        "without the run's log the completions of an evaluation cannot be told from those of "
        "training: give the run's folder"
    )
    config = with_found(config, {"framework": "trl"}, "the columns of the completions")
    return _record(name, rollouts, config, "the sum of the reward functions", notes, sources)


def _record(
    name: str,
    rollouts: pl.DataFrame,
    config: RunConfig,
    reward: str,
    notes: Notes,
    sources: Sequence[Source],
    texts: Texts | None = None,
) -> RunRecord:
    """Return the record whose steps are means over rollouts."""
    rewards = [column for column in rollouts.columns if re.match(r"reward(/|$)", column)]
    if not max(map(pl.Series.count, rollouts.select(rewards)), default=0):
        raise UnreadableRunError(
            f"expected rewards that are numbers, got none in {name[:80]}: name their column "
            "with --column reward=NAME"
        )
    config = _sized(rollouts, config, notes)
    chosen = [column for column in rollouts.columns if column.startswith(_CHOSEN)]
    clocks = [column for column in chosen if column.removeprefix(_CHOSEN) in _CLOCKS]
    means = rewards + [column for column in chosen if column not in clocks]
    steps = rollouts.group_by("step").agg(pl.col(means).mean(), pl.col(clocks).max()).sort("step")
    each = _by_environment(rollouts)
    if each is not None:
        steps, means = steps.join(each, on="step", how="left"), means + each.columns[1:]
    columns = {column.removeprefix(_CHOSEN): steps[column].to_numpy() for column in means}
    updates = steps["step"].to_numpy().astype(float) * (config.value("updates_per_step") or 1.0)
    named = {column.removeprefix(_CHOSEN): steps[column].to_numpy() for column in clocks}
    clock = {"optimizer_updates": updates} | chosen_clocks({name: name for name in named}, named)
    record = RunRecord(
        name=clean_key(name)[:160],
        texts=texts,
        steps=steps_table(steps["step"].to_list(), columns, **clock),
        rollouts=rollouts.drop(*chosen, "environment", strict=False),
        config=config,
        meanings=tuple(_meaning(column, reward) for column in columns),
        sources=tuple(sources),
        notes=tuple(notes),
    )
    return sound(record, name[:80])


def _by_environment(rollouts: pl.DataFrame) -> pl.DataFrame | None:
    """Return the mean reward of each environment by step; None where the rows do not tell them."""
    if "environment" not in rollouts:
        return None
    labelled = rollouts.drop_nulls("environment")
    names = labelled["environment"].unique().to_list()
    if not 1 < len(names) <= len(labelled) // _FEWEST_EACH:
        return None
    keys = {name: f"environment_reward/{clean_key(name)}" for name in names}
    labelled = labelled.with_columns(pl.col("environment").replace(keys))
    return labelled.pivot("environment", index="step", values="reward", aggregate_function="mean")


def _meaning(column: str, reward: str) -> Meaning:
    """Return what a mean over the rollouts of a step is."""
    front, _, function = column.partition("/")
    if column == "reward":
        text = f"mean reward ({reward}) over the rollouts of the step"
    elif front == "reward":
        text = (
            f"mean of the reward function {function} without its weight over the rollouts of a step"
        )
    elif front == "environment_reward":
        text = "mean reward of one environment over the rollouts of the step"
    else:
        text = f"{column} as given with --column, averaged over the rollouts of the step"
    return Meaning(column, column, text)


def _are_whole(rollouts: pl.DataFrame) -> bool:
    """Return whether completions without others of their prompt are groups of one: their
    advantages are 0 or the rewards.
    """
    if "advantage" not in rollouts:
        return True
    given, reward = pl.col("advantage"), pl.col("reward")
    alone = (given.abs() < 1e-6) | ((given - reward).abs() < 1e-6)
    return bool(rollouts.select(alone.all()).item())


def _sized(rollouts: pl.DataFrame, config: RunConfig, notes: Notes) -> RunConfig:
    """Return the settings with the group size where all groups have one, and note where they do
    not.
    """
    sizes = rollouts.group_by("step", "prompt_id").len()["len"].to_numpy()
    low, high, stated = int(sizes.min()), int(sizes.max()), config.value("group_size")
    if low != high:
        notes.append(f"the groups have {low} to {high} completions")
    elif stated is None and (low > 1 or _are_whole(rollouts)):
        return config.with_settings({"group_size": low}, BY_GROUPS)
    elif stated is None:
        notes.append(
            "the file has one completion per prompt, but the advantages show that there were "
            "more: the group size is unknown"
        )
    if stated is not None and (low, high) != (stated, stated):
        notes.append(
            f"the group size {stated} ({config.group_size.source}) differs from the logged groups"
        )
    return config
