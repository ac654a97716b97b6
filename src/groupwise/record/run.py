"""One run as data: steps, rollouts, settings, each with the place where it was found, and what
every column means.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, field, fields, replace
from difflib import get_close_matches
from itertools import chain, compress
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from groupwise import parsing
from groupwise.arrays import Float
from groupwise.errors import (
    InvalidArgumentError,
    MissingMetricError,
    OverwriteError,
    UnreadableRunError,
    one_sentence,
)
from groupwise.files import beside, open_regular, table_rows
from groupwise.parsing import JsonObject, JsonView, parse_json
from groupwise.plain import Plain, Words, frozen
from groupwise.record.journal import (
    Journal,
    LineReader,
    being_written,
    journal_lines,
    notes_on,
    read_journal,
    step_in,
)
from groupwise.record.table import (
    BASE_COLUMNS,
    Odd,
    Texts,
    check_rollouts,
    check_steps,
    mended,
    newest,
    odd_notes,
    plain_number,
    read_parquet,
    rollouts_table,
    rows_that_stand,
    sound_text,
    stacked,
    step_entry,
    steps_of_rows,
    steps_table,
    thinned,
)
from groupwise.wording import clean, count, shortest_paths


@frozen
class Setting:
    """One setting and where it was found; a value of None is unknown.

    Example:
        >>> Setting(8, "--set").known
        True
    """

    value: Any | None = None
    source: str = "unknown"

    @property
    def known(self) -> bool:
        """Whether a source gave a value."""
        return self.value is not None

    @property
    def given(self) -> bool:
        """Whether the user gave it, in place of what the log says."""
        return self.source == "--set"


UNKNOWN = Setting()
_UNGROUPED = frozenset(row["loss"] for row in table_rows("record/ungrouped_losses.tsv"))
# By which checks go, those first of which most make use.
_JUDGED_BY = ("group_size", "max_completion_length", "prompts_per_step", "learning_rate", "loss")
# Of each setting the kind of its values, their bounds or words, and what is expected, in words.
RULES = {row["setting"]: row for row in table_rows("record/settings.tsv")}


def _number(value: Any, rule: Mapping[str, str]) -> float:
    """Return a number within the bounds of a rule; a bool is none here."""
    number = math.nan if isinstance(value, bool) else float(value)
    if float(rule["least"]) <= number and float(rule["above"]) < number < float(rule["below"]):
        return number
    raise ValueError


def _whole(value: Any, rule: Mapping[str, str]) -> int:
    """Return a whole number within the bounds of a rule."""
    number = _number(value, rule)
    if not number.is_integer():
        raise ValueError
    return int(number)


def _word(value: Any, rule: Mapping[str, str]) -> str:
    """Return one of the words of a rule, some of which may be spelled otherwise too."""
    word = str(value).strip().lower()
    word = dict(pair.split("=") for pair in rule["spelled"].split()).get(word, word)
    if word not in rule["words"].split():
        raise ValueError
    return word


def _text(value: Any, _: Mapping[str, str]) -> str:
    """Return a short text without control characters."""
    if not isinstance(value, str | int | float):
        raise ValueError
    cleaned = "".join(filter(str.isprintable, str(value))).strip()
    if not cleaned or len(cleaned) > 300:
        raise ValueError
    return cleaned


_CHECKS = {"number": _number, "whole": _whole, "word": _word, "text": _text}


def _setting_value(name: str, value: Any) -> Any:
    """Return `value` in the type of the setting `name`."""
    _check_name(name)
    rule = RULES[name]
    try:
        return _CHECKS[rule["kind"]](value, rule)
    except (ValueError, TypeError, OverflowError):
        raise InvalidArgumentError(
            f"expected {rule['expected']} for {name}, got {_said(value)!r}"
        ) from None


def _check_name(name: str) -> None:
    """Raise where there is no setting of a name."""
    if name not in RULES:
        raise InvalidArgumentError(
            f"expected a setting, got {name[:60]!r}: use one of {', '.join(RULES)}"
        )


def _said(value: Any) -> str:
    """Return a value as a short text; Python refuses to spell a number of thousands of digits."""
    try:
        return str(value)[:60]
    except ValueError:
        return "a number without bound"


@frozen
class RunConfig:
    """The settings of a run that the analysis uses; each is a `Setting`, unknown by default.

    Args:
        group_size: rollouts of one prompt (G).
        prompts_per_step: prompts of one logged optimisation step (B); a step has B * G rollouts.
        learning_rate: the peak, per optimiser update.
        learning_rate_schedule: its name (constant, linear, cosine, ...).
        optimizer: its name.
        momentum: of SGD, in [0, 1).
        beta1: of Adam, in [0, 1).
        beta2: of Adam, in [0, 1).
        kl_weight: weight of the KL term in the loss (TRL: beta).
        loss: its name (grpo, dapo, dr_grpo, ...).
        importance_ratio: what the loss weighs stale rollouts by: none, exact or clipped; or as a
            trainer says it, token or sequence.
        kl_in: where the KL term is: none, reward (as stale as the rollouts) or loss (current).
        refresh_interval: optimiser updates between two generations of rollouts; of a fixed lag the
            lag itself.
        lag_kind: of the lag of the rollouts behind the policy: none, fixed, refresh or async.
        updates_per_step: optimiser updates of one step.
        logging_steps: steps that one logged row averages over.
        scale_rewards: the spread that advantages are divided by: group, batch or none.
        multi_objective_aggregation: order of summing the reward functions and normalising:
            sum_then_normalize or normalize_then_sum.
        temperature: of sampling.
        max_completion_length: tokens at which the sampler cut completions off.
        model: the model that was trained.
        lora_rank: rank of the adapter, where one is trained; 0 for all weights.
        engine: what sampled the rollouts (vllm, sglang, hf, ...).
        framework: trl, verl, unsloth, ...
        framework_version: its version.
        planned_steps: the step that the run is to end at.
        checkpoint_interval: steps from one checkpoint to the next.
        gpus: GPUs that the run takes, for training and sampling together.
        gpu_price: of one GPU for an hour, in any currency.
        smoothing: rows over which the log was averaged before it was written; 1 says that it is
            raw.
        seed: of the run.

    Example:
        >>> RunConfig().with_settings({"group_size": "8"}, "--set").value("group_size")
        8
    """

    group_size: Setting = UNKNOWN
    prompts_per_step: Setting = UNKNOWN
    learning_rate: Setting = UNKNOWN
    learning_rate_schedule: Setting = UNKNOWN
    optimizer: Setting = UNKNOWN
    momentum: Setting = UNKNOWN
    beta1: Setting = UNKNOWN
    beta2: Setting = UNKNOWN
    kl_weight: Setting = UNKNOWN
    loss: Setting = UNKNOWN
    importance_ratio: Setting = UNKNOWN
    kl_in: Setting = UNKNOWN
    refresh_interval: Setting = UNKNOWN
    lag_kind: Setting = UNKNOWN
    updates_per_step: Setting = UNKNOWN
    logging_steps: Setting = UNKNOWN
    scale_rewards: Setting = UNKNOWN
    multi_objective_aggregation: Setting = UNKNOWN
    temperature: Setting = UNKNOWN
    max_completion_length: Setting = UNKNOWN
    model: Setting = UNKNOWN
    lora_rank: Setting = UNKNOWN
    engine: Setting = UNKNOWN
    framework: Setting = UNKNOWN
    framework_version: Setting = UNKNOWN
    planned_steps: Setting = UNKNOWN
    checkpoint_interval: Setting = UNKNOWN
    gpus: Setting = UNKNOWN
    gpu_price: Setting = UNKNOWN
    smoothing: Setting = UNKNOWN
    seed: Setting = UNKNOWN

    def with_settings(self, settings: Mapping[str, Any], source: str) -> RunConfig:
        """Return a copy in which `settings` replace what was there; None changes nothing.

        Args:
            settings: name -> value; texts are converted to the type of the setting.
            source: where they come from, in words.

        Returns:
            The new configuration.

        Raises:
            InvalidArgumentError: an unknown name, or a value outside its domain.

        Example:
            >>> RunConfig().with_settings({"kl_weight": 0.04}, "README.md").kl_weight.source
            'README.md'
        """
        checked = {
            name: Setting(_setting_value(name, value), source)
            for name, value in settings.items()
            if value is not None
        }
        return replace(self, **checked)

    def known(self) -> dict[str, Setting]:
        """Return the settings that have a value, by name.

        Example:
            >>> RunConfig().known()
            {}
        """
        return {name: setting for name in RULES if (setting := getattr(self, name)).known}

    def unknown(self) -> Words:
        """Return the names of the settings that no source gave: the group size is none of those
        of a loss without groups.

        Example:
            >>> "group_size" in RunConfig().unknown()
            True
        """
        return tuple(
            name
            for name in RULES
            if not (getattr(self, name).known or (name == "group_size" and self.without_groups))
        )

    def value(self, name: str) -> Any | None:
        """Return the value of the setting `name`, or None where it is unknown.

        Raises:
            InvalidArgumentError: there is no such setting.

        Example:
            >>> RunConfig().value("group_size") is None
            True
        """
        _check_name(name)
        setting: Setting = getattr(self, name)
        return setting.value

    @property
    def without_groups(self) -> bool:
        """Whether the loss wants no groups, as that of PPO (`ungrouped_losses.tsv`).

        Example:
            >>> RunConfig().without_groups
            False
        """
        return str(self.loss.value).lower() in _UNGROUPED


__all__ = [
    "BASE_COLUMNS",
    "Meaning",
    "RecordWriter",
    "RunConfig",
    "RunRecord",
    "Setting",
    "Source",
    "rollouts_table",
    "steps_table",
]

FORMAT = "groupwise-record"
UNREAD = "unread"
VERSION = 1
PROBES = "groupwise-probes.jsonl"
_LARGEST, _LONGEST = 1 << 20, 1000  # bytes of the journal, characters of a text
_MOST = 1e15  # of a number
_KINDS: dict[str, set[type]] = {
    "str": {str},
    "float": {float, int},
    "int": {int},
    "int | None": {int, type(None)},
}
COMPANIONS = (
    "checkpoints",
    "groupwise-components.json",
    "group-size-decisions.json",
    PROBES,
)  # files beside a journal that stay untouched
_HELD = 1 << 24  # bytes of entries that wait to become rows of the tables
_RESTORE = "save the record again, or use a copy of it"
RECORD_FILES = _STEPS, ROLLOUTS, SAVED, JOURNAL, _TORN = (
    "steps.parquet",
    "rollouts.parquet",
    "record.json",
    "journal.jsonl",
    "journal.jsonl.torn",
)


@frozen
class Meaning:
    """What one column of `steps` holds.

    Args:
        column: the log's own key, unchanged.
        quantity: the canonical name (reward, reward/<function>, reward_std_within_group,
            dead_group_share, entropy, ...), "" where unknown.
        definition: a sentence: exactly what it is in that framework and version.
        ambiguous: whether the log cannot tell which of several definitions holds.
        unavailable: whether it is logged but carries nothing.
        resolution: half a unit of the last printed digit, in the column's unit: a value v stands
            for v plus or minus that. 0 where the numbers are exact.

    Example:
        >>> Meaning(
        ...     "kl", "kl", "mean KL divergence to the reference policy, nats a token"
        ... ).ambiguous
        False
    """

    column: str
    quantity: str
    definition: str
    ambiguous: bool = False
    unavailable: bool = False
    resolution: float = 0.0


Meanings = tuple[Meaning, ...]


@frozen
class Source:
    """One file that was read.

    Args:
        path: as given or found.
        reader: the reader's name; `UNREAD` of rollouts beside the log that were left out.
        bytes: size of the file.
        rows: rows that were taken from it.
        note: anything to know about it.
        of: rows that it holds, about so many, where it has more than are read, which `note` says;
            0 of another.

    Example:
        >>> Source("log.csv", "table", 120, 3).rows
        3
    """

    path: str
    reader: str
    bytes: int
    rows: int
    note: str = ""
    of: int = 0


@frozen
class RunRecord:
    """One run: steps, rollouts where known, settings, meanings, and where all of it came from.

    Args:
        name: of the run.
        steps: one row a logged step. Columns: step (Int64, strictly increasing), optimizer_updates
            (cumulative), window (updates that the row averages over), tokens and seconds
            (cumulative, null where unknown), then one Float64 column a logged key. Missing and NaN
            are null.
        rollouts: one row a completion: step, prompt_id (a group is (step, prompt_id)), and those of
            prompt, completion, reward, reward/<function>, advantage, length that exist; or None.
            Where `texts` is there, completion is a whole number that `with_completions` reads the
            text of.
        config: the settings.
        meanings: one a column of `steps`, where known.
        sources: the files read.
        notes: sentences on what had to be decided while reading.
        labels: column of texts -> the one text that all rows of the run share.
        texts: the completions that stay in their files, as those of large dumps do; None where they
            are in `rollouts`.
        error: the exception that ended its program, where the log or an output beside it shows one.
        probes: the experiments on the run, and the file beside it that holds them; None where it
            was read from no file.

    Example:
        >>> record = RunRecord("demo", steps_table([1, 2], {"reward": [0.1, 0.2]}))
        >>> record.metrics()
        ('reward',)
    """

    name: str
    steps: pl.DataFrame
    rollouts: pl.DataFrame | None = None
    config: RunConfig = field(default_factory=RunConfig)
    meanings: Meanings = ()
    sources: tuple[Source, ...] = ()
    notes: Words = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    texts: Texts | None = field(default=None, repr=False, compare=False)
    error: str = ""
    probes: Probes | None = field(default=None, repr=False, compare=False)

    def remarks(self, asked: Sequence[str] = ()) -> Words:
        """Return what reading the log had to decide, and last how many settings were not found,
        with those that matter: three that are asked for, or that checks go by.
        """
        unknown = self.config.unknown()
        matter = [name for name in dict.fromkeys((*asked, *_JUDGED_BY)) if name in unknown][:3]
        said = f"The log lacks {count(len(unknown), 'setting')}"
        if matter:
            said += f"; the judgement could use {', '.join(matter)} (--set NAME=VALUE)"
        return (*self.notes, said) if unknown else self.notes

    @property
    def in_part(self) -> str:
        """What is said of a log with more rows than are read, "" of any other."""
        return next((source.note for source in self.sources if source.of), "")

    @property
    def unread(self) -> str:
        """Which rollouts beside the log were left out, and what to do; "" for none."""
        return next((source.note for source in self.sources if source.reader == UNREAD), "")

    def metrics(self) -> Words:
        """Return the log's own keys, in the order of the table."""
        return tuple(name for name in self.steps.columns if name not in BASE_COLUMNS)

    def values(self, column: str) -> Float:
        """Return the numbers of a column of the steps, nan where there is none."""
        return self.steps[column].cast(pl.Float64).to_numpy()

    def column(self, name: str) -> str:
        """Return the log's own key for `name`: a key, a quantity, or a forgiving spelling.

        Args:
            name: what the user calls it.

        Returns:
            A column of `steps`.

        Raises:
            MissingMetricError: nothing fits; the message lists the nearest.

        Example:
            >>> RunRecord("demo", steps_table([1], {"rewards / f / mean": [0.5]})).column(
            ...     "rewards/f/mean"
            ... )
            'rewards / f / mean'
        """
        keys = self.metrics()
        if name in keys:
            return name
        columns = self._called(name)
        if columns:
            return max(columns, key=self._usefulness)
        near = ", ".join(get_close_matches(name, keys, 12, 0.0))
        raise MissingMetricError(
            f"expected a metric of {self.name}, got {name[:80]!r}: the log has "
            f"{f'{len(keys)}, nearest first: {near}' if keys else 'none'}"
        )

    def _called(self, name: str) -> list[str]:
        """Return the columns that a name may mean: by quantity, else a forgiving spelling."""
        keys, spelled = self.metrics(), _spelling(name)
        meanings = [
            meaning for meaning in self.meanings if meaning.quantity and meaning.column in keys
        ]
        return (
            [meaning.column for meaning in meanings if meaning.quantity == name]
            or [key for key in keys if _spelling(key) in (spelled, f"{spelled}/mean")]
            or [meaning.column for meaning in meanings if _spelling(meaning.quantity) == spelled]
        )

    def meaning(self, column: str) -> Meaning | None:
        """Return what the column means, or None where nothing is known of it."""
        return next((meaning for meaning in self.meanings if meaning.column == column), None)

    def _usefulness(self, column: str) -> tuple[bool, bool, int]:
        """Rank columns of one quantity: informative, unambiguous, full ones first."""
        meaning = self.meaning(column)
        count = len(self.steps) - self.steps[column].null_count()
        return (
            meaning is None or not meaning.unavailable,
            meaning is None or not meaning.ambiguous,
            count,
        )

    def validate(self) -> None:
        """Check the invariants of both tables.

        Raises:
            InvalidArgumentError: one of them does not hold.

        Example:
            >>> RunRecord("demo", steps_table([1], {})).validate()
        """
        check_steps(self.steps)
        strangers = [
            meaning.column for meaning in self.meanings if meaning.column not in self.steps
        ]
        if strangers:
            raise InvalidArgumentError(
                f"expected meanings of columns of the steps table, got one of {strangers[0]!r}, "
                "which it lacks: drop it"
            )
        if self.rollouts is not None:
            check_rollouts(self.rollouts, left=self.texts is not None)

    def with_completions(self, rows: pl.DataFrame, *made: pl.Expr) -> pl.DataFrame:
        """Return some of the rollouts with their completions, also where these stay in their files.

        Args:
            rows: rows of `rollouts`, in any order.
            made: expressions of the rows and their texts, the column completion, that are wanted;
                the texts themselves where none is given.

        Returns:
            The same rows with texts.

        Raises:
            UnreadableRunError: a file is no longer there, or is another.

        Example:
            >>> rows = rollouts_table([{"step": 1, "prompt_id": 0, "completion": "x = 4"}])
            >>> record = RunRecord("demo", steps_table([1], {"reward": [0.5]}), rows)
            >>> record.with_completions(record.rollouts, pl.col("completion").str.slice(-1))[
            ...     "completion"
            ... ].to_list()
            ['4']
        """
        if not isinstance(rows, pl.DataFrame):
            raise InvalidArgumentError(
                f"expected rows of rollouts, got {type(rows).__name__}: filter that Polars table, "
                "which a log without completions lacks"
            )
        if self.texts is None or rows.schema.get("completion") != pl.Int64:
            return rows.with_columns(made)
        return self.texts.read(rows, made or [pl.col("completion")])

    def save(self, folder: str | Path, *, force: bool = False) -> Path:
        """Write the record as Parquet and JSON: the folder appears whole or not at all.

        Args:
            folder: a path that does not exist yet, or an empty folder.
            force: replace a record that is there already; other files are never replaced.

        Returns:
            The folder.

        Raises:
            OverwriteError: something is there already.
            GroupwiseError: the folder cannot be written.

        Example:
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as home:
            ...     saved = RunRecord("demo", steps_table([1], {"reward": [0.5]})).save(
            ...         home + "/demo"
            ...     )
            ...     RunRecord.load(saved).name
            'demo'
        """
        self.validate()
        target = Path(folder)
        _check_target(target, force=force)
        partial = target.parent / f".{target.name}.partial-{os.getpid()}"
        try:
            expected = f"to write the record to {target}"
            with one_sentence(expected, "choose a folder that you can write"):
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.rmtree(partial, ignore_errors=True)
                partial.mkdir()
                self._write(partial)
                _replace(target, partial)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return target

    def _write(self, folder: Path) -> None:
        """Write the files of the record into a folder and wait until they are on the disk."""
        self.steps.write_parquet(folder / _STEPS)
        if self.rollouts is not None:
            self.with_completions(self.rollouts).write_parquet(folder / ROLLOUTS)
        about = description_of(self.name, self.config, self.meanings) | {
            "sources": [asdict(source) for source in self.sources],
            "notes": list(self.notes),
            "labels": dict(self.labels),
            "checksums": {path.name: _checksum(path) for path in sorted(folder.iterdir())},
        }
        (folder / SAVED).write_text(json.dumps(about, indent=1), encoding="utf-8")
        for path in folder.iterdir():
            with path.open("r+b") as file:
                os.fsync(file.fileno())

    @classmethod
    def empty(cls, name: str) -> RunRecord:
        """Return a record without steps."""
        return cls(name, steps_table([], {}))

    @classmethod
    def load(cls, folder: str | Path) -> RunRecord:
        """Read a saved record, or one that a `RecordWriter` is still appending to.

        Whole steps only, none twice.

        Args:
            folder: as given to `save` or to `RecordWriter`.

        Returns:
            The record.

        Raises:
            UnreadableRunError: the folder holds no record, or a damaged one.
        """
        home = Path(folder)
        if not is_record(home):
            raise UnreadableRunError(
                f"expected a saved record in {home}, got neither {SAVED} nor {JOURNAL}: give the "
                "folder of a record"
            )
        rows = JournalRows(home)
        rows.read()
        record = rows.record()
        try:
            record.validate()
        except InvalidArgumentError as error:
            raise UnreadableRunError(f"expected a sound record in {home}: {error}") from None
        return record


class RecordWriter(AbstractContextManager["RecordWriter"]):
    """Append the steps of a run as it goes; a kill at any moment leaves the steps appended so far.

    A step that comes again (a run resumed from a checkpoint) replaces what was there from that step
    on.

    Args:
        folder: made where missing; an existing journal in it is continued.
        name: of the run; the folder's name where empty.
        config: the settings.
        meanings: of the columns.

    Raises:
        OverwriteError: the folder holds something other than a record.
        GroupwiseError: the folder cannot be written.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as home:
        ...     with RecordWriter(home + "/run") as writer:
        ...         writer.append({"step": 1, "reward": 0.5})
        ...     RunRecord.load(home + "/run").steps["reward"].to_list()
        [0.5]
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        name: str = "",
        config: RunConfig | None = None,
        meanings: Sequence[Meaning] = (),
    ) -> None:
        """Open or continue the journal in `folder`."""
        _check_target(home := Path(folder), force=True, beside=COMPANIONS)
        with one_sentence(f"to make the folder {home}", "choose one that you can write"):
            home.mkdir(parents=True, exist_ok=True)
        self._journal = Journal(
            home / JOURNAL, keep=lambda entry: entry if "about" in entry else None
        )
        self._name, self._about = name or home.name, description_in(self._journal.entries)
        self.run: dict[str, str] = (
            self._about.get("run") or {}
        )  # what tells this run from others: it stays, and so do the notes
        try:
            self.describe(config or RunConfig(), meanings, self._about.get("notes") or ())
        except BaseException:
            # nobody has this writer, so nobody else would let go of the folder
            self._journal.close()
            raise

    def describe(
        self, config: RunConfig, meanings: Sequence[Meaning] = (), notes: Sequence[str] = ()
    ) -> None:
        """Say anew what holds for the whole record, where it is not what was said last.

        Args:
            config: the settings.
            meanings: of the columns.
            notes: sentences on the run.
        """
        about = (
            description_of(self._name, config, meanings)
            | ({"notes": list(notes)} if notes else {})
            | ({"run": self.run} if self.run else {})
        )
        if about != self._about:
            self._journal.append({"about": about})
            self._about = about

    def append(
        self, step_row: JsonView, rollouts: Sequence[JsonView] | None = None, *, sync: bool = True
    ) -> None:
        """Write one step and its rollouts; both are on the disk, or neither.

        Args:
            step_row: "step" (a whole number), any of the base columns, and the logged keys: numbers
                or None.
            rollouts: one mapping a completion, with "prompt_id" and any of the columns of
                `RunRecord.rollouts`.
            sync: whether to wait for the disk; without, `sync` does it.

        Raises:
            InvalidArgumentError: a value is not a number, or the step is missing.
            GroupwiseError: it could not be written; the record is as it was.
        """
        self._journal.append(step_entry(checked_row(step_row), rollouts), sync=sync)

    def sync(self) -> None:
        """Wait until all that was appended is on the disk."""
        self._journal.sync()

    def close(self) -> None:
        """Close the journal; `RunRecord.load` reads it at any time, also before."""
        self._journal.close()

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()


def checked_row(row: JsonView) -> JsonObject:
    """Return the row of a step with plain numbers; raise where it holds something else."""
    step = row.get("step")
    if isinstance(step, bool) or not isinstance(step, int | np.integer) or abs(int(step)) >= 2**63:
        raise InvalidArgumentError(
            f"expected a whole number for step, got {str(step)[:40]!r}: give the step of the row"
        )
    return {str(key): plain_number(key, value) for key, value in row.items() if key != "step"} | {
        "step": int(step)
    }


def without_rollouts(entry: JsonView) -> JsonObject | None:
    """Return what of an entry of a journal is no completion, None where that is nothing."""
    return {name: entry[name] for name in ("row", "about") if name in entry} or None


def has_ended(record: RunRecord) -> bool:
    """Return whether a run is over, as far as is known: no process writes a journal of it."""
    return not any(
        source.reader == "journal" and being_written(Path(source.path)) for source in record.sources
    )


def cut(record: RunRecord, until: float | None) -> RunRecord:
    """Return the run as it stood at step `until`."""
    if until is None:
        return record
    steps = record.steps.filter(pl.col("step") <= until)
    if len(steps) == 0:
        first, last = record.steps["step"][0], record.steps["step"][-1]
        raise InvalidArgumentError(
            f"expected a step of the log, {first} to {last}, for until, got {until:g}: use a later "
            "one"
        )
    rollouts = None if record.rollouts is None else record.rollouts.filter(pl.col("step") <= until)
    error = record.error if len(steps) == len(record.steps) else ""
    return replace(record, steps=steps, rollouts=rollouts, error=error)


def is_record(folder: Path) -> bool:
    """Return whether the folder holds a saved record or the journal of one."""
    return (folder / SAVED).is_file() or (folder / JOURNAL).is_file()


@frozen
class ProbeResult(Plain):
    """One experiment on a run, and what came of it."""

    probe: str  # its name
    outcome: str  # the fact that it shows, "" where it cannot tell
    message: str  # the same with its numbers
    value: float  # the number that it rests on, with its 95 % interval
    low: float
    high: float
    rollouts: int
    seconds: float
    seed: int
    date: str
    step: int | None = None  # of the change that it asks about
    run: str = ""  # which run of a file that holds several
    arguments: str = ""  # as they were typed


@frozen
class Probes:
    """The experiments on a run, the oldest first, and the journal that holds them."""

    path: Path
    run: str
    results: tuple[ProbeResult, ...]

    @property
    def log(self) -> Path:
        """The log that they are about."""
        whole = self.path.name == PROBES
        return self.path.parent if whole else self.path.with_suffix("").with_suffix("")

    def add(self, result: ProbeResult) -> Probes:
        """Append a result to the journal."""
        if self.path.is_file() and self.path.stat().st_size > _LARGEST:
            raise InvalidArgumentError(
                f"expected {self.path} of at most {_LARGEST:,} bytes, got a larger file: "
                "move it away"
            )
        result = replace(result, run=self.run)
        with Journal(self.path, keep=_result) as journal:
            journal.append(result.as_dict())
        return replace(self, results=(*self.results, result))


def read_probes(log: Path, run: str) -> Probes:
    """Read the experiments beside a log, of one of its runs; what is damaged is left out."""
    path = beside(log, PROBES)
    held = path.is_file() and path.stat().st_size <= _LARGEST
    results = read_journal(path, keep=_result).entries if held else []
    return Probes(path, run, tuple(result for result in results if result.run == run))


def named_apart(records: Sequence[RunRecord]) -> Sequence[RunRecord]:
    """Return runs that go, where two of them have one name, by what differs in their paths."""
    names = [record.name for record in records]
    twice = [names.count(name) > 1 for name in names]
    places = [record.probes.log if record.probes else Path(record.name) for record in records]
    ends = iter(shortest_paths([place.absolute() for place in compress(places, twice)]))
    return [
        replace(record, name=clean(next(ends))) if again else record
        for record, again in zip(records, twice, strict=True)
    ]


def _result(entry: Any) -> ProbeResult | None:
    """Make a result of data that anybody may have edited; None of what is none."""
    kinds = {field.name: _KINDS[str(field.type)] for field in fields(ProbeResult)}
    if {*entry} != {*kinds} or any(type(entry[name]) not in kinds[name] for name in kinds):
        return None
    result = ProbeResult(**entry)
    sound = all(
        len(value) <= _LONGEST if isinstance(value, str) else abs(value or 0) < _MOST
        for value in entry.values()
    )
    return result if sound and min(result.seed, result.rollouts, result.step or 0) >= 0 else None


def _spelling(name: str) -> str:
    """Return the name as the forgiving comparison sees it."""
    return re.sub(r"[\s\-]+", "_", "/".join(map(str.strip, name.lower().split("/"))))


def description_of(name: str, config: RunConfig, meanings: Iterable[Meaning]) -> JsonObject:
    """Return what a record says of itself, as plain data."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "name": name,
        "config": {
            key: {"value": setting.value, "source": setting.source}
            for key, setting in config.known().items()
        },
        "meanings": [asdict(meaning) for meaning in meanings],
    }


def _parsed_meaning(entry: JsonView) -> Meaning:
    """Return the meaning that a record holds; those of old records have no resolution."""
    resolution = float(entry.get("resolution", 0.0))
    if not 0 <= resolution < math.inf:
        raise InvalidArgumentError(f"expected a resolution of 0 or more, got {resolution:g}")
    return Meaning(
        **{**entry, "column": sound_text(str(entry["column"])), "resolution": resolution}
    )


def parse_about(about: Any, home: Path) -> RunRecord:
    """Return what plain data that anybody may have edited says of a record, without its tables."""
    try:
        if about["format"] != FORMAT or about["version"] != VERSION:
            raise UnreadableRunError(
                f"expected {FORMAT} version {VERSION} in {home}, got {str(about['format'])[:40]} "
                f"version {str(about['version'])[:10]}: use the groupwise that wrote it"
            )
        config = RunConfig()
        for key, setting in about["config"].items():
            config = config.with_settings({key: setting["value"]}, str(setting["source"]))
        return replace(
            RunRecord.empty(str(about["name"])),
            config=config,
            meanings=tuple(map(_parsed_meaning, about["meanings"])),
            sources=tuple(Source(**entry) for entry in about.get("sources", [])),
            notes=tuple(map(str, about.get("notes", []))),
        )
    except (KeyError, TypeError, ValueError, AttributeError, InvalidArgumentError) as error:
        reason = str(error)[:120]
        raise UnreadableRunError(
            f"expected the description of a record in {home}, got a damaged one ({reason}): save "
            "the run again from its log"
        ) from None


def load_saved(home: Path) -> RunRecord:
    """Read the Parquet and JSON of a saved record; completions that are lost are noted."""
    if (home / SAVED).stat().st_size > parsing.LARGEST_WHOLE:
        most = f"{parsing.LARGEST_WHOLE / 1e6:.0f} MB"
        raise UnreadableRunError(
            f"expected JSON of at most {most} in {home / SAVED}, got more: {_RESTORE}"
        )
    try:
        about = parse_json((home / SAVED).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UnreadableRunError(
            f"expected JSON in {home / SAVED}, got {str(error)[:80]}: {_RESTORE}"
        ) from None
    record = parse_about(about, home)
    sums, labels = about.get("checksums"), about.get("labels")
    if not isinstance(sums, dict) or _STEPS not in sums:
        raise UnreadableRunError(f"expected a table of steps in {home}, got none: {_RESTORE}")
    steps, rollouts, notes = _sound_table(home / _STEPS, sums), None, record.notes
    if ROLLOUTS in sums:
        try:
            rollouts = _sound_table(home / ROLLOUTS, sums)
        except UnreadableRunError:
            lost = f"{ROLLOUTS} is missing or was changed later, so its completions were left out"
            notes = (*notes, lost)
    texts = (
        {str(key): str(text) for key, text in labels.items()} if isinstance(labels, dict) else {}
    )
    return replace(record, steps=steps, rollouts=rollouts, notes=notes, labels=texts)


def _checksum(path: Path) -> int:
    """Return the CRC-32 of a file."""
    total = 0
    with open_regular(path) as file:
        while piece := file.read(1 << 20):
            total = zlib.crc32(piece, total)
    return total


def _sound_table(path: Path, checksums: JsonView) -> pl.DataFrame:
    """Read a table of a saved record once its checksum is right.

    Damaged Parquet can end the whole process inside its decoder.
    """
    with one_sentence(f"the table {path}", _RESTORE, kind=UnreadableRunError):
        damaged = _checksum(path) != checksums[path.name]
    if damaged:
        raise UnreadableRunError(
            f"expected the table {path} as it was saved, got another or a damaged one: {_RESTORE}"
        )
    return read_parquet(path)


def _rollouts_in(entry: JsonView) -> list[JsonObject]:
    """Return the completions of an entry of a journal, with its step."""
    rollouts, step = entry.get("rollouts"), entry["row"]["step"]
    if not isinstance(rollouts, list):
        return []
    completions = [rollout for rollout in rollouts if isinstance(rollout, dict)]
    for completion in completions:
        completion["step"] = step
    return completions


def standing_steps(entries: Iterable[JsonView]) -> list[JsonView]:
    """Return those entries of a journal that hold a step which no later entry replaces."""
    steps = [(step, entry) for entry in entries if (step := step_in(entry)) is not None]
    stands = rows_that_stand(np.array([step for step, _ in steps], dtype=np.int64))
    return [entry for (_, entry), whether in zip(steps, stands, strict=True) if whether]


def description_in(entries: Sequence[JsonView]) -> JsonObject:
    """Return what a journal says last of its record; nothing where it says nothing."""
    return next(
        (entry["about"] for entry in reversed(entries) if isinstance(entry.get("about"), dict)), {}
    )


class JournalRows:
    """The record of a journal, line after line.

    Some megabytes wait to become rows of the tables, and of more completions than memory has room
    for the newest are kept.
    """

    def __init__(self, home: Path) -> None:
        """Begin with what was saved beside the journal."""
        self.path, self.lines, self.taken = home / JOURNAL, LineReader(), 0
        self._record = load_saved(home) if (home / SAVED).is_file() else RunRecord.empty(home.name)
        self._odd, self._about, self._held = Odd(), dict[str, Any](), 0
        self._saved, self._is_thinned = len(self._record.steps), False
        self._entries: list[JsonObject] = []

    def read(self) -> None:
        """Take all lines of the journal, as far as there is one."""
        for line in journal_lines(self.path):
            self.take(line)

    def take(self, line: bytes) -> None:
        """Take one line."""
        for entry in self.lines.take(line):
            self.taken += "row" in entry
            self._entries.append(entry)
        self._held += len(line)
        if self._held > _HELD:
            self._settle()

    def _settle(self) -> None:
        """Make rows of the entries that wait; steps that come again replace those before."""
        standing = standing_steps(self._entries)
        self._about = description_in(self._entries) or self._about
        self._entries, self._held = [], 0
        if not standing:
            return
        rows, is_long = [entry["row"] for entry in standing], len(standing) > parsing.MOST_ROWS
        if is_long:  # a row that will not stay need not become cells
            rows = list(compress(rows, thinned(len(rows))))
        steps = steps_of_rows(rows, self._odd)
        rollouts = rollouts_table([*chain.from_iterable(map(_rollouts_in, standing))], self._odd)
        is_before, rollouts_before = pl.col("step") < steps["step"][0], self._record.rollouts
        if rollouts_before is not None:
            rollouts_before = rollouts_before.filter(is_before)
        steps_before = self._record.steps.filter(is_before)
        self._saved = min(self._saved, len(steps_before))
        most = min(parsing.MOST_ROWS, parsing.MOST_CELLS // steps.width)
        if len(steps_before) + len(standing) > most:
            self._is_thinned = True
            steps_before = steps_before.filter(thinned(len(steps_before)))
            if not is_long:
                steps = steps.filter(thinned(len(steps)))
        self._record = replace(
            self._record,
            steps=stacked([steps_before, steps], self._odd),
            rollouts=newest(stacked([rollouts_before, rollouts], self._odd), self._odd),
        )

    def record(self) -> RunRecord:
        """Return the record so far, with notes on what is damaged and what is odd in it."""
        self._settle()
        record, sources = self._record, self._record.sources
        if self._about:
            stated = parse_about(self._about, self.path.parent)
            record = annotated(
                record,
                *stated.notes,
                name=_title(stated.name, self.path.parent.name),
                config=stated.config,
                meanings=stated.meanings or record.meanings,
            )
        if self.path.is_file():
            rows = len(record.steps) - self._saved
            of = self.taken if self._is_thinned else 0
            note = parsing.read_in_part(len(record.steps), of)
            sources = (*sources, Source(str(self.path), "journal", self.lines.end, rows, note, of))
        record = replace(record, sources=sources)
        return with_notes(record, notes_on(self.lines.damage), Odd(self._odd))


def _title(own: str, folder: str) -> str:
    """Return the name of a run; one word alone says less than the name of a folder in several."""
    several = re.search(r"[^\W_][_.-][^\W_]", folder)
    return folder if several and own.isalpha() else own


def annotated(record: RunRecord, *notes: str, **fields: Any) -> RunRecord:
    """Return a record with more notes, and perhaps other fields."""
    return replace(record, notes=(*record.notes, *notes), **fields)


def with_notes(record: RunRecord, damage: Iterable[str], odd: Odd) -> RunRecord:
    """Return the record with a sound clock, with the meanings of its columns alone, and with notes
    on what is odd in it.
    """
    steps = mended(record.steps, odd)
    meanings = tuple(meaning for meaning in record.meanings if meaning.column in steps)
    return replace(
        record,
        steps=steps,
        meanings=meanings,
        notes=tuple(dict.fromkeys((*record.notes, *damage, *odd_notes(odd)))),
    )


def _check_target(target: Path, *, force: bool, beside: Iterable[str] = ()) -> None:
    """Raise where writing a record to `target` would touch something that must stay."""
    with one_sentence(f"a folder to write at {target}", "choose another"):
        if not target.exists() and not target.is_symlink():
            return
        inside = (
            {path.name for path in target.iterdir()}
            if target.is_dir() and not target.is_symlink()
            else None
        )
    if inside is None or inside - {*RECORD_FILES, *beside}:
        raise OverwriteError(
            f"expected a new folder at {target}, got something that is not a record: choose another"
        )
    if inside and not force:
        raise OverwriteError(
            f"expected a new folder at {target}, got a record that is there already: choose "
            "another, or replace it with --force, in Python force=True"
        )


def _replace(target: Path, partial: Path) -> None:
    """Put the finished folder where the old one is.

    A whole one is there at every moment but one rename.
    """
    if not target.exists():
        partial.rename(target)
        return
    retired = target.parent / f".{target.name}.retired-{os.getpid()}"
    shutil.rmtree(retired, ignore_errors=True)
    target.rename(retired)
    partial.rename(target)
    shutil.rmtree(retired, ignore_errors=True)
