"""Many runs, each judged in a worker: one row a run, in a table that also says the next time
which runs have not changed.
"""

from __future__ import annotations

import hashlib
import io
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Self, get_type_hints

import polars as pl

from groupwise import __version__
from groupwise.analysis.charts import reward_heights
from groupwise.diagnostics.judge import judge
from groupwise.diagnostics.judgement import State
from groupwise.engine.engine import Engine, EngineError, Limits, Outcome
from groupwise.errors import (
    GroupwiseError,
    InvalidArgumentError,
    SeveralRunsError,
    UnreadableRunError,
)
from groupwise.files import write_whole
from groupwise.plain import Plain
from groupwise.readers import open_run
from groupwise.readers.find import runs_below
from groupwise.readers.follow import signature_of
from groupwise.wording import clean

UNREADABLE = "unreadable"
WORST_FIRST = (State.FAILING, State.FAILED, State.WARNING, UNREADABLE, State.CANNOT_TELL, State.OK)
ENDINGS = (".parquet", ".csv", ".jsonl")
MEMORY = (
    3 << 30
)  # bytes that the worker of a run may hold: at its limits a reader holds about two gigabytes
_LONGEST = 400
_BETWEEN_SAVES = 30.0  # seconds


@dataclass(frozen=True, slots=True)
class FleetRow(Plain):
    """One run of a fleet."""

    path: str  # of the log or folder
    part: str  # the run within it, where it holds several
    run: str  # its name
    state: str  # of the judgement, or unreadable
    headline: str  # of the judgement, or why there is none
    since_step: int | None  # from which a failure holds
    first_sign: str  # in words
    cause: str  # in words
    learning: str  # what the reward does
    do: str  # one line
    rows: int | None  # of the log
    last_step: int | None  # of the log
    reward: str  # heights of the reward in percent of its range, "-" where there is none
    # what the files were, and what judged them; "" where the run is to be judged again in any case
    seen: str

    @property
    def opened(self) -> str:
        """What opens the run."""
        return f"{self.path}#{self.part}" if self.part else self.path

    @property
    def heights(self) -> tuple[float | None, ...]:
        """The heights of the reward, from 0 to 1."""
        return tuple(None if cell == "-" else int(cell) / 100 for cell in self.reward.split())

    @classmethod
    def unreadable(cls, path: str, why: str, *, part: str = "", seen: str = "") -> Self:
        """Return the row of a run that was not judged."""
        name = clean(part or Path(path).name or path)
        return cls(
            path,
            part,
            name,
            UNREADABLE,
            clean(why, longest=_LONGEST),
            None,
            "",
            "",
            "",
            "",
            None,
            None,
            "",
            seen,
        )


_TYPES = {
    name: pl.String if hint is str else pl.Int64
    for name, hint in get_type_hints(FleetRow).items()
    if name in FleetRow.__dataclass_fields__
}
Save = Callable[[Sequence[FleetRow]], None]
Told = Callable[
    [str, int, int], None
]  # what is being done, how much of it is done, and of how much


@dataclass(frozen=True, slots=True)
class Judge:
    """Judges the runs of one path; it travels to the workers."""

    asked: Mapping[str, Any]  # columns, settings and config, as `open_run` takes them
    seconds: float  # that a run may take

    def __call__(self, path: str) -> list[FleetRow]:
        """Return a row for each run of a path."""
        seen = self.seen(path)
        try:
            return [self._row(path, "", seen)]
        except SeveralRunsError as several:
            return [self._row(path, part, seen) for part in several.names]

    def seen(self, path: str) -> str:
        """Return what the files of a path are now, and what judges them."""
        config = signature_of(self.asked["config"]) if self.asked.get("config") else ()
        told = repr(
            (
                __version__,
                sorted(self.asked.items(), key=str),
                config,
                self.seconds,
                signature_of(Path(path)),
            )
        )
        return hashlib.sha256(told.encode(errors="surrogatepass")).hexdigest()[:16]

    def _row(self, path: str, part: str, seen: str) -> FleetRow:
        """Judge the run of a path, or one of those of a file that holds several."""
        try:
            record = open_run(f"{path}#{part}" if part else path, **self.asked)
        except GroupwiseError as error:
            if isinstance(error, SeveralRunsError) and not part:
                raise
            return FleetRow.unreadable(path, str(error), part=part, seen=seen)
        found = judge(record)
        heights = reward_heights(record)
        return FleetRow(
            path,
            part,
            run=clean(record.name) or "unnamed run",
            state=found.state.value,
            headline=clean(found.headline, longest=_LONGEST),
            since_step=found.since_step,
            first_sign=""
            if found.first_sign is None
            else clean(f"step {found.first_sign.step:,}: {found.first_sign.words}"),
            cause=clean(found.cause.words, longest=_LONGEST),
            learning=found.learning.value,
            do=clean(found.do, longest=_LONGEST),
            rows=len(record.steps),
            last_step=found.last_step,
            reward=" ".join("-" if height is None else f"{100 * height:.0f}" for height in heights),
            seen=seen if found.ended else "",  # whether a run goes on is not in its files
        )


@dataclass(frozen=True, slots=True)
class Fleet(Plain):
    """How many runs stand."""

    KEYS: ClassVar[tuple[str, ...]] = ("counts", "judged", "runs")

    runs: tuple[FleetRow, ...]  # worst first
    judged: int  # paths that were read now; the others had not changed

    @property
    def counts(self) -> dict[str, int]:
        """How many runs are in each state that there is, worst first."""
        found = Counter(row.state for row in self.runs)
        return {str(state): found[state] for state in WORST_FIRST if found[state]}

    @property
    def states(self) -> list[State]:
        """The state of every run; of one that cannot be read, nothing can be told."""
        return [
            State.CANNOT_TELL if row.state == UNREADABLE else State(row.state) for row in self.runs
        ]


def judge_fleet(
    paths: Sequence[Path],
    asked: Mapping[str, Any],
    engine: Engine,
    *,
    known: Iterable[FleetRow] = (),
    seconds: float,
    without: Sequence[Path] = (),
    save: Save = lambda _rows: None,
    told: Told = lambda _doing, _done, _total: None,
) -> Fleet:
    """Judge the runs at and below paths, but those that have not changed since the `known` rows; a
    row each.

    `asked` is what `open_run` takes, `without` are files that are no run, and `save` keeps what is
    done so far: it is called now and then, where the work is interrupted, and at the end.
    """
    judges = Judge(asked, seconds)
    table: dict[str, list[FleetRow]] = {}
    for row in known:
        table.setdefault(row.path, []).append(row)

    @cache
    def unchanged(name: str) -> bool:
        return name in table and all(row.seen == judges.seen(name) for row in table[name])

    def known_run(path: Path) -> bool:
        return unchanged(str(path)) and any(row.state != UNREADABLE for row in table[str(path)])

    told("looking for runs", 0, len(paths))
    found = list(
        dict.fromkeys(str(run) for path in paths for run in runs_below(path, known_run, without))
    )
    rows = {name: table[name] for name in found if unchanged(name)}
    wanted = [name for name in found if name not in rows]
    done, saved = 0, time.monotonic()

    def take(outcome: Outcome) -> None:
        nonlocal done, saved
        rows[outcome.name] = outcome.value if outcome.done else [_ended(outcome, judges)]
        done += 1
        told(Path(outcome.name).name, done, len(wanted))
        if time.monotonic() - saved > _BETWEEN_SAVES:
            save(_worst_first(rows))
            saved = time.monotonic()

    try:
        engine.map(
            judges,
            {name: name for name in wanted},
            limits=Limits(seconds=seconds, memory=MEMORY),
            each=take,
        )
    except (KeyboardInterrupt, EngineError):
        save(_worst_first(rows))
        raise
    fleet = Fleet(_worst_first(rows), done)
    if all(row.state == UNREADABLE for row in fleet.runs):
        why = fleet.runs[0].headline
        raise UnreadableRunError(
            why if len(fleet.runs) == 1 else f"none of {len(fleet.runs):,} runs can be read; {why}"
        )
    save(fleet.runs)
    return fleet


def _ended(outcome: Outcome, judges: Judge) -> FleetRow:
    """Return the row of a path whose worker ended before it was judged."""
    why = (
        "expected a run that can be judged, but "
        f"{outcome.sentence.removeprefix(f'shard {outcome.name}: ')}"
    )
    return FleetRow.unreadable(outcome.name, why, seen=judges.seen(outcome.name))


def _worst_first(found: Mapping[str, list[FleetRow]]) -> tuple[FleetRow, ...]:
    """Return all rows, worst first, those of one state by their paths."""
    place = {str(state): number for number, state in enumerate(WORST_FIRST)}
    return tuple(
        sorted(
            (row for rows in found.values() for row in rows),
            key=lambda row: (place[row.state], row.path, row.part),
        )
    )


def read_table(path: Path) -> list[FleetRow]:
    """Return the rows of a table of a fleet; raise where a file is none."""
    try:
        frame = _frame(path)
        if frame.columns != list(_TYPES):
            raise ValueError("other columns")
        rows = [FleetRow(**row) for row in frame.iter_rows(named=True)]
    except (pl.exceptions.PolarsError, OSError, ValueError):
        raise InvalidArgumentError(
            f"expected a table of groupwise fleet in {path}, got another file, which is never "
            "written over: name another with -o"
        ) from None
    states = set(map(str, WORST_FIRST))
    return [
        row
        for row in rows
        if row.path and row.state in states and set(row.reward) <= set("0123456789- ")
    ]


def _frame(path: Path) -> pl.DataFrame:
    """Read a table by its ending; a text that is missing is empty."""
    if path.suffix == ".parquet":
        frame = pl.read_parquet(path)
    elif path.suffix == ".csv":
        frame = pl.read_csv(path, infer_schema=False).with_columns(
            pl.all().str.replace("^'([=+@-])", "$1")
        )
    else:
        frame = pl.read_ndjson(path, infer_schema_length=None)
    known = {name: kind for name, kind in _TYPES.items() if name in frame.columns}
    typed = frame.with_columns(pl.col(name).cast(kind) for name, kind in known.items())
    return typed.with_columns(
        pl.col(name).fill_null("") for name, kind in known.items() if kind == pl.String
    )


def write_table(path: Path, rows: Sequence[FleetRow]) -> None:
    """Write the rows of a fleet whole, over what was there."""
    told = [
        tuple(
            value.encode(errors="replace").decode() if isinstance(value, str) else value
            for value in astuple(row)
        )
        for row in rows
    ]
    frame = pl.DataFrame(told, schema=_TYPES, orient="row")
    content = io.BytesIO()
    if path.suffix == ".parquet":
        frame.write_parquet(content)
    elif path.suffix == ".csv":
        texts = (
            pl.col(pl.String).str.replace_all(r"\p{Cc}", " ").str.replace("^([=+@-])", "'$1")
        )  # a cell is no formula
        frame.with_columns(texts).write_csv(content)
    else:
        frame.write_ndjson(content)
    write_whole(path, content.getvalue(), force=True)
