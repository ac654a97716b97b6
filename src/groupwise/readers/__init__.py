"""`run_record`: a path to a `RunRecord`, whatever wrote it; `READERS`: every format, chosen by
content; in a folder only files with the endings of logs are looked at.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from difflib import get_close_matches
from functools import lru_cache
from importlib import import_module
from itertools import chain, islice, permutations
from pathlib import Path
from typing import Any, TypedDict, Unpack

import polars as pl

from groupwise.errors import (
    GroupwiseError,
    InvalidArgumentError,
    NothingYetError,
    UnreadableRunError,
)
from groupwise.files import path_text, table_rows
from groupwise.plain import frozen
from groupwise.readers.assemble import Feed, NamedColumns, Request, check_kind, read_fed
from groupwise.readers.configs import parse_yaml, read_settings, settings_in, with_found
from groupwise.readers.keys import is_quantity, known_quantities, quantity_named
from groupwise.readers.rows import is_evaluation
from groupwise.readers.source import (
    Peek,
    first_lines,
    folders_in,
    inside,
    last_beside,
    last_lines,
    peek,
    shown,
    skipped_beside,
    some_of,
    vocabulary,
)
from groupwise.record.run import (
    JOURNAL,
    UNREAD,
    Meaning,
    RunConfig,
    RunRecord,
    Source,
    annotated,
    is_record,
    read_probes,
)

_BASE_NAMES = ("step", *vocabulary("clock"))
_LEAST_CONFIDENCE, _LEAST_IN_FOLDER, _LEAST_OF_YAML = 0.3, 0.4, 0.6
_LOG_ENDINGS = vocabulary("log_ending")
_NO_LOGS = vocabulary("no_log")
_OF_LOGS = vocabulary("of_a_log")
_CHECKPOINTS = vocabulary("checkpoint")
_MOST_FILES = 200
_EITHER = vocabulary("of_either")
_PRINTS, _BESIDE = vocabulary("reader_of_prints"), vocabulary("reader_beside_a_table")
_NAME, _DECIMALS = re.compile(r"[A-Za-z_][\w/.@-]{2,80}"), re.compile(r"\d\.\d{3,20}")
_KEY = re.compile(r'"([\w/.@-]{2,80})":')
_AIM = (
    "which holds aim's store, that only aim opens: call aim storage reindex there, then save "
    "aim.Repo(FOLDER).query_metrics().dataframe() as a CSV"
)
_SETTING = re.compile(r"(?m)^ *[A-Za-z_][\w.-]{1,60}: +[^\s#]")
# variance components that were saved beside the log they belong to
_OURS = '"groupwise-components"'


@frozen
class Reader:
    """One format of a log. What reads it is loaded when it is called."""

    name: str  # of the format
    takes: tuple[str, ...]  # what it reads: folders, files of text or of bytes
    most: float  # the largest confidence that `sniff` returns
    # in the name or the first bytes of a file, or the names in a folder: others load nothing
    mark: re.Pattern[str]
    # what the first bytes of a file say, or the path of a folder -> confidence in [0, 1], or what
    # is true of one of the format
    sniff: Callable[[Any], Any]
    # path, request -> record, or None where it is read through its feed
    read: Callable[[Path, Request], RunRecord] | None
    # makes what reads a log that grows line by line, or None where the format is only read whole
    feed: Callable[[], Feed] | None

    @property
    def folder(self) -> bool:
        """Whether it reads a folder rather than a file."""
        return "folder" in self.takes


def _later(place: str) -> Any:
    """Return a function, as room.module.name, that is loaded when it is called."""

    def call(*given: Any) -> Any:
        module, _, name = place.rpartition(".")
        return getattr(import_module(f"groupwise.{module}"), name)(*given)

    return call if place else None


_foreign_rows = _later("readers.console.foreign_rows")
_sniff_rollouts = _later("readers.rollouts.sniff_rollouts")
_is_state = _later("readers.tables.is_state")
# The surest first: of two that are as confident the first is taken.
READERS: tuple[Reader, ...] = tuple(
    Reader(
        row["name"],
        tuple(row["takes"].split()),
        float(row["most"]),
        re.compile(row["mark"]),
        _later(row["sniff"]) or bool,
        _later(row["read"]),
        _later(row["feed"]),
    )
    for row in table_rows("readers/readers.tsv")
)


class Asked(TypedDict, total=False):
    """What may be asked of a log besides its path."""

    columns: NamedColumns | None  # canonical name, or "step" -> the log's column
    settings: Mapping[str, str] | None
    config: Path | None  # a file with settings


def run_record(path: str | Path, **asked: Unpack[Asked]) -> RunRecord:
    """Read a run from whatever its trainer left: a path, or FILE#NAME of a file that holds
    several.
    """
    place, request = request_of(path, **asked)
    with reading_errors(place):
        return locate(place, request).read()


def request_of(path: str | Path, **asked: Unpack[Asked]) -> tuple[Path, Request]:
    """Return the path of a log and what is asked of it, checked."""
    columns = asked.get("columns") or {}
    _check_names(columns)
    place, chosen = _split(path)
    beside = {
        name: (Path(file), column)
        for name, text in columns.items()
        for file, _, column in [text.partition("#")]
        if name not in _BASE_NAMES and Path(file).is_file()
    }
    own = {name: column for name, column in columns.items() if name not in beside}
    return place, Request(
        own, _given(asked.get("settings"), asked.get("config")), chosen, beside=beside
    )


@contextmanager
def reading_errors(place: Path) -> Iterator[None]:
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


@frozen
class Located:
    """A log that was found."""

    path: Path  # of the file or folder that its reader reads
    reader: Reader  # of its format
    request: Request  # what was asked for
    notes: tuple[str, ...] = ()  # what was decided to find it

    def read(self) -> RunRecord:
        """Read the log whole, with what stands in files beside it."""
        if self.reader.read:
            record = self.reader.read(self.path, self.request)
        else:
            assert self.reader.feed
            record = read_fed(self.reader.feed(), self.path, self.request)
        folder = self.request.home or (self.path if self.reader.folder else None)
        if self.reader.name == "groupwise":
            folder = None
        elif record.rollouts is None:
            if not self.request.columns:
                check_kind(record, self.path)
            record = _with_rollouts(record, folder or self.path.parent, self.path)
        record = annotated(record, *self.notes)
        if folder:
            record = _with_skipped(record, skipped_beside(self.path, folder))
            if quoted := last_beside(self.path, folder):
                note = f"a traceback is beside the log: {quoted}"
                record = annotated(record, note, error=quoted)
        for name, (path, column) in self.request.beside.items():
            record = _with_side_file(record, name, path, column)
        return replace(record, probes=read_probes(self.path, self.request.chosen))


def locate(place: Path, request: Request) -> Located:
    """Find the log at a path and the reader of its format: the file, or what a folder is or
    holds.
    """
    if place.name == JOURNAL and is_record(place.parent):
        place = place.parent
    if not place.is_dir():
        return _in_file(place, request)
    reader = best_reader(place)
    dumps = are_rollouts(reader)
    if reader is None:
        runs = _runs_in(place)
    else:  # rollouts may be those of a run that lies beside them
        among = _runs_among(folders_in(place, _MOST_FILES) if dumps else ())
        runs = [run for run in among if not are_rollouts(best_reader(run))]
    if dumps and len(runs) == 1:
        located = locate(runs[0], request)
        return replace(located, request=replace(located.request, home=place))
    if reader and not runs:
        logs = logs_in(place) if dumps else ()
        beside = [log.name for log in logs if not re.search(r"\d", log.name)]
        unread = f"logs beside the rollouts were not read: {some_of(beside)} (give the path of one)"
        return Located(place, reader, request, (unread,) if beside else ())
    runs = list({log.resolve(): log for log in runs}.values())  # "latest-run" is a link to one
    if not runs and ".aim" in (place.name, *(path.name for path in inside(place, _MOST_FILES))):
        raise UnreadableRunError(f"expected a run folder, got {shown(place)}, {_AIM}")
    if not runs:
        quoted = last_beside(None, place)
        hint = f"the run stopped with {quoted}" if quoted else "give a folder with a log"
        raise NothingYetError(
            f"expected a run folder, got {shown(place)}, which holds no log: {hint}"
        )
    if len(runs) > 1:
        more = " or more" if len(runs) == _MOST_FILES else ""
        names = [path.relative_to(place).as_posix() for path in runs]
        raise UnreadableRunError(
            f"expected one run, got {shown(place)}, which holds {len(runs)}{more} "
            f"({some_of(names, 4)}): give the path of one run, or use groupwise fleet"
        )
    run = runs[0]
    located = locate(run, request) if run.is_dir() else _in_file(run, replace(request, home=place))
    home = run.parent
    others = [
        log.relative_to(home).as_posix()
        for folder in (home, *(() if run.is_dir() else folders_in(home, _MOST_FILES)))
        for log in logs_in(folder)
        if log != run and not are_rollouts(best_reader(log))
    ]
    note = f"of several logs {run.name} was read, and others were left out: {some_of(others)}"
    return replace(located, notes=(*located.notes, *([note] if others else ())))


def _with_skipped(record: RunRecord, skipped: Counter[int]) -> RunRecord:
    """Return a record with the groups of each step that were skipped as too old, where any were."""
    if not skipped:
        return record
    column = pl.Series("printed/stale_groups", [float(skipped[n]) for n in record.steps["step"]])
    meaning = Meaning(
        column.name,
        "stale_groups",
        "lines of the output beside the log that report groups skipped as too old",
    )
    return replace(
        record, steps=record.steps.with_columns(column), meanings=(*record.meanings, meaning)
    )


def _with_rollouts(record: RunRecord, folder: Path, log: Path) -> RunRecord:
    """Return a record with the rollouts of training in the one folder of them beside its log."""
    dumps = [
        inner
        for inner in folders_in(folder, _MOST_FILES)
        if not is_evaluation(f"{inner.name}/") and _holds_rollouts(inner)
    ]
    # Of several logs nobody knows whose they are.
    if len(dumps) != 1 or (log.parent == folder and {*own_logs(logs_in(folder))} - {log}):
        left = f"give the path of the run's rollouts: {' or '.join(map(str, dumps))}"
        sources = (*record.sources, Source(str(folder), UNREAD, 0, 0, left))
        return annotated(record, left, sources=sources) if dumps else record
    try:
        side = run_record(dumps[0])
    except GroupwiseError as error:  # the log is whole without them
        return annotated(record, f"the rollouts in {dumps[0].name}/ were left out: {error}")
    assert side.rollouts is not None
    rollouts = side.rollouts.join(record.steps, on="step", how="semi", maintain_order="left")
    note = (
        f"{len(rollouts):,} of {len(side.rollouts):,} rollouts in {dumps[0].name}/ have logged "
        "steps"
    )
    if rollouts.is_empty():
        return annotated(record, f"{note}, so all were left out")
    sources = (*record.sources, *side.sources)
    return annotated(
        record, *side.notes, note, rollouts=rollouts, sources=sources, texts=side.texts
    )


def _with_side_file(record: RunRecord, name: str, path: Path, column: str) -> RunRecord:
    """Return a record with a quantity from another file, as held-out scores of its checkpoints,
    by step.
    """
    side = run_record(path, columns={name: column} if column else None)
    held = {meaning.quantity for meaning in side.meanings}
    quantity = "reward" if "reward" in held and name not in held else name
    key = side.column(column or quantity)
    scores = side.steps.select("step", pl.col(key).alias(name)).drop_nulls()
    lost = len(scores.join(record.steps, on="step", how="anti"))
    if lost == len(scores):
        raise UnreadableRunError(
            f"expected steps of {record.name[:60]} in {shown(path)}, got none of them: give "
            "this file the step numbers of the log"
        )
    note = f"{name} is the column {key} of {path.name}" + (
        f"; {lost} of {len(scores)} values belong to steps that the log lacks" if lost else ""
    )
    judged = side.meaning(key)
    meaning = Meaning(
        name, name, f"{name}, from {path.name}", resolution=judged.resolution if judged else 0.0
    )
    return annotated(
        record,
        note,
        steps=record.steps.drop(name, strict=False).join(scores, on="step", how="left"),
        meanings=(*(old for old in record.meanings if old.quantity != name), meaning),
        sources=(*record.sources, *side.sources),
    )


def _check_names(columns: NamedColumns) -> None:
    """Raise where a column is said to hold what groupwise does not know."""
    for name in columns:
        if name not in _BASE_NAMES and not is_quantity(name):
            near = get_close_matches(name, {*_BASE_NAMES, *known_quantities()}, 5, 0.0)
            raise InvalidArgumentError(
                f"expected a known name before = in --column, got {name[:60]!r}: use one of "
                f"{', '.join(near)} (the nearest), or eval/..."
            )


def _split(path: str | Path) -> tuple[Path, str]:
    """Return the path and the run chosen behind "#"."""
    text = path_text(path, "log")
    if "\0" in text or not text:
        raise UnreadableRunError(
            "expected the path of a log, got an empty one or one with a NUL byte: check the path"
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
    if config:
        stated = read_settings(Path(config))
        if not stated:
            raise InvalidArgumentError(
                f"expected settings in {shown(Path(config))}, got no known setting: write "
                "lines such as group_size: 8"
            )
        given = with_found(given, stated, f"--config {Path(config).name}")
    return given.with_settings(settings or {}, "--set")


def _surest(place: Peek | Path) -> tuple[float, Reader | None]:
    """Return the reader that is most confident of a file's beginning or of a folder, and how
    confident it is.
    """
    if isinstance(place, Peek):
        kind, head = "bytes" if place.binary else "text", f"{place.path.name}\n{place.text}"
    else:
        kind, head = "folder", "\n".join(entry.name for entry in inside(place, _MOST_FILES))
    confidence, best = 0.0, None
    for reader in READERS:
        if reader.most > confidence and kind in reader.takes and reader.mark.search(head):
            sure = reader.sniff(place)
            sure = sure if isinstance(sure, float) else reader.most * bool(sure)
            if sure > confidence:
                confidence, best = sure, reader
    return confidence, best


# A folder's logs are asked for what they are at every turn: each beginning is looked at once.
_surest_of_file = lru_cache(maxsize=128)(_surest)


def best_reader(path: Path, least: float = _LEAST_CONFIDENCE) -> Reader | None:
    """Return the reader that is most confident of a path, None where none is as confident as it
    must be.
    """
    confidence, best = _surest(path) if path.is_dir() else _surest_of_file(peek(path))
    if best is None or confidence < least:
        return None
    # One log beside event files may be the console of their run; of several each is a run, as are
    # the event files.
    beside = logs_in(path) if best.name == "tensorboard_folder" else []
    return best if sum("tfevents" not in file.name for file in beside) < 2 else None


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
    return Located(
        path,
        reader,
        request,
        tuple(_foreign_rows(seen, reader.name) if reader.name in _PRINTS else ()),
    )


def _runs_in(folder: Path, below: int = 2) -> list[Path]:
    """Return the runs in a folder and so many folders below it, beside a log without checkpoints,
    evaluations and rollouts; of one log and one run, the run, or the log where both are files; else
    rollouts.
    """
    logs, inner = own_logs(logs_in(folder)), folders_in(folder, _MOST_FILES)
    runs = [
        run
        for run in _runs_among(inner, below - 1)
        if not (logs and (is_beside(run, folder) or are_rollouts(best_reader(run))))
    ]
    if len(logs) == len(runs) == 1:
        return runs if runs[0].is_dir() else logs
    return [*runs, *logs] or [path for path in inner if best_reader(path)]


def is_beside(run: Path, folder: Path) -> bool:
    """Return whether what lies below the folder of a log is a checkpoint or an evaluation."""
    place = run.relative_to(folder)
    return place.parts[0].startswith(_CHECKPOINTS) or is_evaluation(f"{place}/")


def _runs_among(folders: Iterable[Path], below: int = 0) -> Iterator[Path]:
    """Yield the folders that are runs, and the runs in those that no reader takes."""
    for path in folders:
        reader = best_reader(path)
        if reader is None:
            inner = _runs_in(path, below) if below >= 0 else []
            yield from (run for run in inner if not _is_data(run))
        elif not are_rollouts(reader):
            yield path


def _is_data(path: Path) -> bool:
    """Return whether a table's first line names neither a step nor a reward: prompts, mostly."""
    if path.suffix not in vocabulary("data_ending"):
        return False
    seen = peek(path)
    line = (seen.text if path.suffix == ".json" else first_lines(seen, 1)[0]).lower()
    names = _KEY.findall(line) or _NAME.findall(line)
    return not any(word in name for name in names for word in _OF_LOGS)


def are_rollouts(reader: Reader | None) -> bool:
    """Return whether a reader reads rollouts: of a folder or of a file."""
    return reader is not None and reader.name.startswith("rollout")


def _holds_rollouts(folder: Path) -> bool:
    """Return whether a folder holds rollouts: a file a step, or one file."""
    reader = best_reader(folder)
    logs = [] if reader else logs_in(folder)
    if len(logs) == 1:
        reader = best_reader(logs[0])
    return are_rollouts(reader)


def logs_in(folder: Path) -> list[Path]:
    """Return the logs right inside a folder, by name."""
    return [
        path
        for path in inside(folder, _MOST_FILES)
        if named_as_log(path.name) and path.is_file() and is_log(path)
    ]


def _ends(names: Iterable[str]) -> set[str]:
    """Return the last parts of names: what stands before them differs between programs."""
    return {name.rpartition("/")[2] for name in names}


def _quantities(names: Iterable[str]) -> set[str]:
    """Return the quantities that names are known for."""
    return {*map(quantity_named, names)} - {""}


def _decimals(log: Path) -> set[str]:
    """Return the decimals of a log's first and last lines."""
    lines = [*first_lines(peek(log), 20), *last_lines(log)[-3:]]  # the last may have no end
    return {*_DECIMALS.findall("\n".join(lines))}


def own_logs(logs: Sequence[Path]) -> list[Path]:
    """Return logs of one folder but for rollouts beside a log, for what the run of a table wrote
    beside it, where most names of the tables' first lines stand, for tables that share no
    quantity with the only one that holds a reward, and for what another format holds as well.
    """
    logs = [log for log in logs if not _sniff_rollouts(peek(log))] or logs
    if len(logs) < 2:
        return list(logs)
    prints = [log for log in logs if (reader := best_reader(log)) and reader.name in _BESIDE]
    heads = {
        log: {*_NAME.findall("".join(first_lines(peek(log), 1)))}.difference(_EITHER)
        for log in logs
        if log not in prints
    }
    pairs = [
        (log, other)
        for log, other in islice(permutations(heads, 2), _MOST_FILES)
        if log.suffix != other.suffix and _quantities(heads[log]) <= _quantities(heads[other])
    ]
    numbers = {log: _decimals(log) for log in {*chain(*pairs)}}
    parts = list[Path]()
    for log, other in pairs:
        less, more = numbers[log], numbers[other]
        if len(less) > 2 and (less < more or (less == more and log.name < other.name)):
            parts.append(log)
    own = {log: names for log, names in heads.items() if log not in parts}
    keys = _ends(name for names in own.values() for name in names)
    rewarded = [log for log, names in own.items() if "reward" in _quantities(names)]
    parts += [
        log
        for log in prints
        if rewarded and 2 * len(keys & _ends(_NAME.findall(peek(log).text))) > max(len(keys), 3)
    ]
    if len(rewarded) == 1:
        shared = own[rewarded[0]]
        parts += [log for log, names in own.items() if not _quantities(names & shared)]
    return [log for log in logs if log not in parts]


def is_attempt(run: Path, log: Path) -> bool:
    """Return whether a run below a log is another one: in the same format, with its reward and
    more of its quantities, and no copy.
    """
    with suppress(GroupwiseError):  # empty so far
        if best_reader(run) not in (None, best_reader(log)):
            return False
        below, above = (
            peek(max(logs_in(path), key=os.path.getsize) if path.is_dir() else path)
            for path in (run, log)
        )
        shared, others = (_quantities(_NAME.findall(seen.text)) for seen in (below, above))
        copied = below.text[: len(above.text)] == above.text[: len(below.text)]
        alike = best_reader(below.path) is best_reader(above.path)
        return alike and {"reward"} < shared & others and not copied
    return False


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
    with suppress(GroupwiseError):
        seen, reader = peek(file), best_reader(file, _LEAST_IN_FOLDER)
        state = reader is None or (reader.name == "json" and _is_state(seen))
        return not state and _OURS not in seen.text[:200]
    return False
