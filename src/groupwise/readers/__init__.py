"""`open_run`: a path to a `RunRecord`, whatever wrote it; `READERS`: every format, chosen by
content and not by name.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, Unpack

import polars as pl

from groupwise.errors import (
    GroupwiseError,
    InvalidArgumentError,
    NothingYetError,
    SeveralRunsError,
    UnreadableRunError,
)
from groupwise.files import path_text
from groupwise.readers.assemble import Feed, Request, read_fed
from groupwise.readers.configs import parse_yaml, read_settings, settings_in, with_found
from groupwise.readers.console import (
    DictConsole,
    PrintedConsole,
    TrlConsole,
    VerlConsole,
    foreign_rows,
    sniff_dicts,
    sniff_printed,
    sniff_trl,
    sniff_verl,
)
from groupwise.readers.journals import JournalFeed, given_settings
from groupwise.readers.json_logs import (
    JsonlFeed,
    is_state,
    read_event_stream,
    read_json,
    sniff_event_stream,
    sniff_json,
    sniff_jsonl,
)
from groupwise.readers.keys import is_quantity, known_quantities
from groupwise.readers.kinds import check_kind
from groupwise.readers.notebook import read_notebook, sniff_notebook
from groupwise.readers.offline import read_offline, sniff_offline, sniff_offline_folder
from groupwise.readers.rollouts import (
    read_rollout_folder,
    read_rollouts,
    sniff_rollout_folder,
    sniff_rollouts,
)
from groupwise.readers.source import (
    first_lines,
    folders_in,
    inside,
    peek,
    shown,
    some_of,
    vocabulary,
)
from groupwise.readers.steps import no_part
from groupwise.readers.tables import CsvFeed, read_parquet_table, sniff_csv, sniff_parquet
from groupwise.readers.tensorboard import (
    read_events,
    read_events_folder,
    sniff_events,
    sniff_events_folder,
)
from groupwise.readers.tracebacks import last_beside
from groupwise.readers.trackers import read_database, read_mlflow, sniff_database, sniff_mlflow
from groupwise.readers.trl import read_folder, read_state, sniff_folder, sniff_state
from groupwise.readers.wandb_run import read_wandb, sniff_wandb
from groupwise.record.probes import read_probes
from groupwise.record.run import JOURNAL, Meaning, RunConfig, RunRecord, is_record

__all__ = [
    "READERS",
    "Located",
    "Reader",
    "Request",
    "locate",
    "open_run",
    "open_runs",
    "request_of",
    "said",
]

_BASE_NAMES = ("step", "optimizer_updates", "tokens", "seconds")
_LEAST_CONFIDENCE, _LEAST_IN_FOLDER, _LEAST_OF_YAML = 0.3, 0.4, 0.6
_LOG_ENDINGS = vocabulary("log_ending")
_NO_LOGS = vocabulary("no_log")
_MOST_FILES = 200
_PRINTS = ("printed", "printed_dicts", "trl_console", "verl_console")  # readers of what is printed
_NAME = re.compile(r"[A-Za-z_][\w/.@-]{2,80}")
_AIM = (
    "which holds aim's store, that only aim opens: save "
    "aim.Repo(FOLDER).query_metrics(QUERY).dataframe() as a CSV"
)
_SETTING = re.compile(r"(?m)^ *[A-Za-z_][\w.-]{1,60}: +[^\s#]")
# variance components that were saved beside the log they belong to
_OURS = '"groupwise-components"'


@dataclass(frozen=True, slots=True)
class Reader:
    """One format of a log."""

    name: str  # of the format
    sniff: Callable[
        [Any], float
    ]  # what the first bytes of a file say, or the path of a folder -> confidence in [0, 1]
    # path, request -> record, or None where it is read through its feed
    read: Callable[[Path, Request], RunRecord] | None
    folder: bool = False  # whether it reads a folder rather than a file
    binary: bool = False  # whether it reads files that are no text
    # makes what reads a log that grows line by line, or None where the format is only read whole
    feed: Callable[[], Feed] | None = None


def _read_record(path: Path, request: Request) -> RunRecord:
    """Read a saved record; the user's settings win over the saved ones."""
    if request.chosen:
        raise no_part(path, request.chosen)
    return given_settings(RunRecord.load(path), path, request)


READERS: tuple[Reader, ...] = (
    Reader("groupwise", is_record, _read_record, folder=True, feed=JournalFeed),
    Reader("trl_folder", sniff_folder, read_folder, folder=True),
    Reader("trl", sniff_state, read_state),
    Reader("notebook", sniff_notebook, read_notebook),
    Reader("verl_console", sniff_verl, None, feed=VerlConsole),
    Reader("trl_console", sniff_trl, None, feed=TrlConsole),
    Reader("printed_dicts", sniff_dicts, None, feed=DictConsole),
    Reader("printed", sniff_printed, None, feed=PrintedConsole),
    Reader("tensorboard", sniff_events, read_events, binary=True),
    Reader("tensorboard_folder", sniff_events_folder, read_events_folder, folder=True),
    Reader("wandb", sniff_wandb, read_wandb, binary=True),
    Reader("database", sniff_database, read_database, binary=True),
    Reader("mlflow", sniff_mlflow, read_mlflow, folder=True),
    Reader("offline", sniff_offline, read_offline, binary=True),
    Reader("offline_folder", sniff_offline_folder, read_offline, folder=True),
    Reader("rollouts", sniff_rollouts, read_rollouts, binary=True),
    Reader("rollout_folder", sniff_rollout_folder, read_rollout_folder, folder=True),
    Reader("parquet", sniff_parquet, read_parquet_table, binary=True),
    Reader("events", sniff_event_stream, read_event_stream),
    Reader("jsonl", sniff_jsonl, None, feed=JsonlFeed),
    Reader("csv", sniff_csv, None, feed=CsvFeed),
    Reader("json", sniff_json, read_json),
)


class Asked(TypedDict, total=False):
    """What may be asked of a log besides its path."""

    columns: Mapping[str, str] | None  # canonical name, or "step" -> the log's column
    settings: Mapping[str, str] | None
    config: Path | None  # a file with settings


def open_run(path: str | Path, **asked: Unpack[Asked]) -> RunRecord:
    """Read a run from whatever its trainer left: a path, or FILE#NAME of a file that holds
    several.
    """
    place, request = request_of(path, **asked)
    with said(place):
        return locate(place, request).read()


def open_runs(path: str | Path, *, by: str = "", **asked: Unpack[Asked]) -> list[RunRecord]:
    """Read every run of a path: the one, or all those of a file that holds several."""
    place, request = request_of(path, **asked)
    request = dataclasses.replace(request, by=by)
    with said(place):
        located = locate(place, request)
        try:
            return [located.read()]
        except SeveralRunsError as several:
            return [
                dataclasses.replace(
                    located, request=dataclasses.replace(located.request, chosen=name)
                ).read()
                for name in several.names
            ]


def request_of(path: str | Path, **asked: Unpack[Asked]) -> tuple[Path, Request]:
    """Return the path of a log and what is asked of it, checked."""
    columns = asked.get("columns") or {}
    _check_names(columns)
    place, chosen = _split(path)
    files = {
        name: (Path(file), column)
        for name, text in columns.items()
        for file, _, column in [text.partition("#")]
    }
    beside = {
        name: source
        for name, source in files.items()
        if name not in _BASE_NAMES and source[0].is_file()
    }
    own = {name: column for name, column in columns.items() if name not in beside}
    given = _given(asked.get("settings"), asked.get("config"))
    return place, Request(own, given, chosen, beside=beside)


@contextmanager
def said(place: Path) -> Iterator[None]:
    """Say in one sentence what the system or the depth of a log does not allow."""
    try:
        yield
    except RecursionError:
        raise UnreadableRunError(
            f"expected a log, got {shown(place)}, which is nested too deeply: flatten it"
        ) from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise UnreadableRunError(
            f"expected a log that can be read, got {reason} for {shown(place)}: check the path"
        ) from None


@dataclass(frozen=True, slots=True)
class Located:
    """A log that was found."""

    path: Path  # of the file or folder that its reader reads
    reader: Reader  # of its format
    request: Request  # what was asked for
    notes: tuple[str, ...] = ()  # what was decided to find it

    def read(self) -> RunRecord:
        """Read the log whole, with what stands in files beside it."""
        if self.reader.read is not None:
            record = self.reader.read(self.path, self.request)
        else:
            assert self.reader.feed is not None
            record = read_fed(self.reader.feed(), self.path, self.request)
        if not self.request.columns and self.reader.name != "groupwise" and record.rollouts is None:
            check_kind(record, self.path)
        record = dataclasses.replace(record, notes=(*record.notes, *self.notes))
        folder = self.path if self.reader.folder else self.request.home
        quoted = (
            last_beside(self.path, folder) if folder and self.reader.name != "groupwise" else ""
        )
        if quoted:
            note = f"beside the log stands a traceback: {quoted}"
            record = dataclasses.replace(record, notes=(*record.notes, note), error=quoted)
        for name, (path, column) in self.request.beside.items():
            record = _with_side_file(record, name, path, column)
        return dataclasses.replace(record, probes=read_probes(self.path, self.request.chosen))


def locate(place: Path, request: Request) -> Located:
    """Find the log at a path and the reader of its format: the file, or what a folder is or
    holds.
    """
    if place.name == JOURNAL and is_record(place.parent):
        place = place.parent
    if not place.is_dir():
        return _in_file(place, request)
    reader = best_reader(place)
    if reader is not None:
        beside = _beside_rollouts(place) if reader.name == "rollout_folder" else []
        unread = f"{some_of(beside)} beside the rollouts is not read: give its path"
        return Located(place, reader, request, (unread,) if beside else ())
    runs = _runs_in(place) or [log for inner in _folders_in(place) for log in _runs_in(inner)]
    runs = list({log.resolve(): log for log in runs}.values())  # "latest-run" is a link to one
    runs = [log for log in runs if log.parent not in runs]
    if not runs and ".aim" in (place.name, *(path.name for path in inside(place, _MOST_FILES))):
        raise UnreadableRunError(f"expected a run folder, got {shown(place)}, {_AIM}")
    if not runs:
        quoted = last_beside(None, place)
        hint = f"it stopped with {quoted}" if quoted else "give one with a trainer_state.json"
        raise NothingYetError(
            f"expected a run folder, got {shown(place)}, which holds no log: {hint}"
        )
    if len(runs) > 1:
        names, more = [path.name for path in runs], " or more" if len(runs) == _MOST_FILES else ""
        some = some_of(
            names
            if len(set(names)) == len(names)
            else [path.relative_to(place).as_posix() for path in runs],
            4,
        )
        raise UnreadableRunError(
            f"expected one run, got {shown(place)}, which holds {len(runs)}{more} ({some}): give "
            "the path of one, or ask groupwise fleet"
        )
    located = locate(
        runs[0], request if runs[0].is_dir() else dataclasses.replace(request, home=place)
    )
    others = [] if runs[0].is_dir() else [log.name for log in logs_in(runs[0].parent)]
    note = f"{some_of(sorted({*others} - {runs[0].name}))} beside it is of the same run: left out"
    return dataclasses.replace(
        located, notes=(*located.notes, *([note] if len(others) > 1 else ()))
    )


def _with_side_file(record: RunRecord, name: str, path: Path, column: str) -> RunRecord:
    """Return a record with a quantity from another file, as held-out scores of its checkpoints,
    by step.
    """
    side = open_run(path, columns={name: column} if column else None)
    found = column or next(
        (one for one in (name, "reward") if one in {meaning.quantity for meaning in side.meanings}),
        name,
    )
    found = side.column(found)
    scores = side.steps.select("step", pl.col(found).alias(name)).drop_nulls()
    lost = len(scores.join(record.steps, on="step", how="anti"))
    if lost == len(scores):
        raise UnreadableRunError(
            f"expected steps of {record.name[:60]} in {shown(path)}, got none of them: number its "
            "rows as the log does"
        )
    note = f"{name} is {found} of {path.name}" + (
        f"; {lost} of {len(scores)} values are of steps that the log lacks" if lost else ""
    )
    judged = side.meaning(found)
    meaning = Meaning(
        name, name, f"{name}, from {path.name}", resolution=judged.resolution if judged else 0.0
    )
    return dataclasses.replace(
        record,
        steps=record.steps.drop(name, strict=False).join(scores, on="step", how="left"),
        meanings=(*(one for one in record.meanings if one.quantity != name), meaning),
        sources=(*record.sources, *side.sources),
        notes=(*record.notes, note),
    )


def _check_names(columns: Mapping[str, str]) -> None:
    """Raise where a column is said to hold what groupwise does not know."""
    for name in columns:
        if name not in _BASE_NAMES and not is_quantity(name):
            allowed = ", ".join(
                (
                    *_BASE_NAMES,
                    *(quantity for quantity in known_quantities() if quantity not in _BASE_NAMES),
                )
            )
            raise InvalidArgumentError(
                f"expected a known name before = in --column, got {name[:60]!r}: use one of "
                f"{allowed}, or eval/..."
            )


def _split(path: str | Path) -> tuple[Path, str]:
    """Return the path and the run chosen behind "#"."""
    text = path_text(path, "log")
    if "\0" in text or not text:
        raise UnreadableRunError(
            "expected the path of a log, got one that no system allows: check it"
        )
    place = Path(text)
    if not os.path.lexists(place):
        for sign in reversed([at for at, letter in enumerate(text) if letter == "#" and at]):
            if os.path.lexists(text[:sign]):
                return Path(text[:sign]), text[sign + 1 :]
    return (
        place.resolve() if place.name in ("", "..") else place
    ), ""  # the folder one stands in has a name, and runs are called by it


def _given(settings: Mapping[str, str] | None, config: Path | None) -> RunConfig:
    """Return the settings that the user gave."""
    given = RunConfig()
    if config is not None:
        found = read_settings(Path(config))
        if not found:
            raise InvalidArgumentError(
                f"expected settings in {shown(Path(config))}, got none that is known: write "
                "group_size: 8"
            )
        given = with_found(given, found, f"--config {Path(config).name}")
    return given.with_settings(settings or {}, "--set")


def best_reader(path: Path, least: float = _LEAST_CONFIDENCE) -> Reader | None:
    """Return the reader that is most confident of a path, None where none is as confident as it
    must be.
    """
    seen = None if path.is_dir() else peek(path)
    fitting = [
        one
        for one in READERS
        if one.folder == (seen is None) and (one.binary or seen is None or not seen.binary)
    ]
    confidence, best = max(
        ((reader.sniff(seen or path), reader) for reader in fitting), key=lambda entry: entry[0]
    )
    beside = logs_in(path) if confidence >= least and best.name == "tensorboard_folder" else []
    # One log beside event files may be the console of their run; of several each is a run, as are
    # the event files.
    return (
        best
        if confidence >= least and sum("tfevents" not in file.name for file in beside) < 2
        else None
    )


def _in_file(path: Path, request: Request) -> Located:
    """Find a file with the reader that its content chooses."""
    seen, is_yaml = peek(path), path.suffix.lower() in (".yaml", ".yml")
    reader = best_reader(path, _LEAST_OF_YAML if is_yaml else _LEAST_CONFIDENCE)
    if seen.binary and reader is None:
        raise UnreadableRunError(f"expected a log, got {shown(path)}, {seen.binary}")
    if reader is None and (
        is_yaml or (len(_SETTING.findall(seen.text)) > 3 and settings_in(parse_yaml(seen.text)))
    ):
        raise UnreadableRunError(
            f"expected a log, got {shown(path)}, which holds settings: give the log, and this file "
            "with --config"
        )
    if reader is None:
        formats = ", ".join(entry.name for entry in READERS if not entry.folder)
        raise UnreadableRunError(
            f"expected a log ({formats}), got {shown(path)}, which is none of them: export the run "
            "as CSV"
        )
    return Located(path, reader, request, tuple(foreign_rows(seen, reader.name)))


def _runs_in(folder: Path) -> list[Path]:
    """Return the runs in a folder: their folders, and logs where there are several; else a log,
    else folders of rollouts.
    """
    kinds = {
        path: kind.name for path in folders_in(folder, _MOST_FILES) if (kind := best_reader(path))
    }
    runs, logs = [path for path, kind in kinds.items() if kind != "rollout_folder"], logs_in(folder)
    logs = own_logs(logs)
    return ([*runs, *logs] if len(logs) > 1 else runs or logs) or list(kinds)


def _beside_rollouts(folder: Path) -> list[str]:
    """Return the names of logs beside dumps of rollouts, whose own names hold their step."""
    files = [path for path in inside(folder, _MOST_FILES) if not re.search(r"\d", path.name)]
    return [path.name for path in files if named_as_log(path.name) and is_log(path)]


def logs_in(folder: Path) -> list[Path]:
    """Return the logs right inside a folder, by name."""
    return [
        path
        for path in inside(folder, _MOST_FILES)
        if named_as_log(path.name) and path.is_file() and is_log(path)
    ]


def own_logs(logs: Sequence[Path]) -> list[Path]:
    """Return logs of one folder but for rollouts beside a log, and for what the run of a table
    printed beside it, where most names of the table's first line stand.
    """
    logs = [log for log in logs if sniff_rollouts(peek(log)) == 0.0] or logs
    readers = [best_reader(log) for log in logs] if len(logs) == 2 else []
    prints = [reader is not None and reader.name in _PRINTS for reader in readers]
    if sum(prints) != 1:
        return list(logs)
    printed, table = logs if prints[0] else logs[::-1]
    keys, words = (
        set(_NAME.findall(text))
        for text in ("".join(first_lines(peek(table), 1)), peek(printed).text)
    )
    return [table] if len(keys) > 2 and 2 * len(keys & words) > len(keys) else list(logs)


def _folders_in(folder: Path) -> list[Path]:
    """Return the folders below one without a log, two deep, as prime-rl's monitors/file is."""
    below = folders_in(folder, _MOST_FILES)
    return [*below, *(path for inner in below for path in folders_in(inner, _MOST_FILES))]


def named_as_log(name: str) -> bool:
    """Return whether a file of this name may be the log of its folder."""
    name = name.lower()
    ours = name.startswith("fleet.")  # the list of the runs there
    return (
        (name.endswith(_LOG_ENDINGS) or "tfevents" in name)
        and not ours
        and not any(word in name for word in _NO_LOGS)
    )


def is_log(file: Path) -> bool:
    """Return whether a file that is named as a log is one by its content."""
    try:
        seen, reader = peek(file), best_reader(file, _LEAST_IN_FOLDER)
        state = reader is not None and reader.name == "json" and is_state(seen)
        return _OURS not in seen.text[:200] and reader is not None and not state
    except GroupwiseError:
        return False
