"""Many runs, each judged in a worker: one row a run."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import astuple, fields, replace
from pathlib import Path, PurePath
from typing import Self

import polars as pl

from groupwise.analysis.charts import reward_heights
from groupwise.analysis.siblings import Separation, outcome, separation
from groupwise.diagnostics.judge import judge
from groupwise.diagnostics.judgement import State
from groupwise.engine.engine import Engine, Limits, Outcome
from groupwise.errors import (
    GroupwiseError,
    InvalidArgumentError,
    SeveralRunsError,
    UnreadableRunError,
)
from groupwise.files import first_bytes, write_whole
from groupwise.parsing import JsonView
from groupwise.plain import Plain, frozen
from groupwise.readers import open_run
from groupwise.readers.find import runs_below
from groupwise.wording import clean, shortest_paths

UNREADABLE = "unreadable"
WORST_FIRST = (State.FAILING, State.FAILED, State.WARNING, UNREADABLE, State.CANNOT_TELL, State.OK)
MEMORY = (
    3 << 30
)  # bytes that the worker of a run may hold: at its limits a reader holds about two gigabytes
_LONGEST = 400


@frozen
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
    settings: str = ""  # that are known, but for the seed: name=value

    @property
    def opened(self) -> str:
        """What opens the run."""
        return f"{self.path}#{self.part}" if self.part else self.path

    @property
    def heights(self) -> tuple[float | None, ...]:
        """The heights of the reward, from 0 to 1."""
        return tuple(None if cell == "-" else int(cell) / 100 for cell in self.reward.split())

    @classmethod
    def unreadable(cls, path: str, why: str, *, part: str = "") -> Self:
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
        )


_TYPES = {field.name: pl.String if field.type == "str" else pl.Int64 for field in fields(FleetRow)}
Progress = Callable[
    [str, int, int], None
]  # what is being done, how much of it is done, and of how much


@frozen
class Judge:
    """Judges the runs of one path; it travels to the workers."""

    options: JsonView  # columns, settings and config, as `open_run` takes them

    def __call__(self, path: str) -> list[FleetRow]:
        """Return a row for each run of a path."""
        try:
            return [self._row(path, "")]
        except SeveralRunsError as several:
            return [self._row(path, part) for part in several.names]

    def _row(self, path: str, part: str) -> FleetRow:
        """Judge the run of a path, or one of those of a file that holds several."""
        try:
            record = open_run(f"{path}#{part}" if part else path, **self.options)
        except GroupwiseError as error:
            if isinstance(error, SeveralRunsError) and not part:
                raise
            return FleetRow.unreadable(path, str(error), part=part)
        judgement = judge(record)
        heights = reward_heights(record)
        return FleetRow(
            path,
            part,
            run=clean(record.name) or "unnamed run",
            state=judgement.state.value,
            headline=clean(judgement.headline, longest=_LONGEST),
            since_step=judgement.since_step,
            first_sign=""
            if judgement.first_sign is None
            else clean(f"step {judgement.first_sign.step:,}: {judgement.first_sign.words}"),
            cause=clean(judgement.cause.words, longest=_LONGEST),
            learning=judgement.learning.value,
            do=clean(judgement.do, longest=_LONGEST),
            rows=len(record.steps),
            last_step=judgement.last_step,
            reward=" ".join("-" if height is None else f"{100 * height:.0f}" for height in heights),
            settings="; ".join(
                f"{name}={clean(setting.value)}"
                for name, setting in record.config.known().items()
                if name != "seed"
            ),
        )


@frozen
class Fleet(Plain):
    """How many runs stand."""

    MORE = ("counts", "separates")

    runs: tuple[FleetRow, ...]  # worst first

    @property
    def counts(self) -> dict[str, int]:
        """How many runs are in each state that there is, worst first."""
        number_of = Counter(row.state for row in self.runs)
        return {str(state): number_of[state] for state in WORST_FIRST if number_of[state]}

    @property
    def separates(self) -> Separation | None:
        """The setting that separates the runs that learnt from those that did not, or None."""
        entries = [[part.partition("=") for part in row.settings.split("; ")] for row in self.runs]
        return separation(
            [{name: value for name, equals, value in run if equals} for run in entries],
            [outcome(row.state, row.learning) for row in self.runs],
        )

    @property
    def states(self) -> list[State]:
        """The state of every run; of one that cannot be read, nothing can be told."""
        return [
            State.CANNOT_TELL if row.state == UNREADABLE else State(row.state) for row in self.runs
        ]


def judge_fleet(
    paths: Sequence[Path],
    options: JsonView,
    engine: Engine,
    *,
    seconds: float,
    without: Sequence[Path] = (),
    progress: Progress = lambda _doing, _done, _total: None,
) -> Fleet:
    """Judge the runs at and below paths; a row each.

    `options` are what `open_run` takes, `seconds` what a run may take, and `without` files that
    are no run.
    """
    progress("looking for runs", 0, len(paths))
    names = dict.fromkeys(str(run) for path in paths for run in runs_below(path, without))
    ended = itertools.count(1)
    outcomes = engine.map(
        Judge(options),
        {name: name for name in names},
        limits=Limits(seconds=seconds, memory=MEMORY),
        each=lambda outcome: progress(Path(outcome.name).name, next(ended), len(names)),
    )
    rows = [
        row
        for outcome in outcomes
        for row in (outcome.value if outcome.done else [_unjudged(outcome)])
    ]
    fleet = fleet_of(rows)
    if all(row.state == UNREADABLE for row in fleet.runs):
        why = fleet.runs[0].headline
        raise UnreadableRunError(
            why if len(fleet.runs) == 1 else f"none of {len(fleet.runs):,} runs can be read; {why}"
        )
    return fleet


def fleet_of(rows: Sequence[FleetRow]) -> Fleet:
    """Return the fleet of some rows, each named by as much of its path as tells them apart."""
    names = shortest_paths([PurePath(row.opened) for row in rows])
    return Fleet(
        _worst_first([replace(row, run=clean(name)) for row, name in zip(rows, names, strict=True)])
    )


def _unjudged(outcome: Outcome) -> FleetRow:
    """Return the row of a path whose worker ended before it was judged."""
    why = (
        "expected a run that can be judged, but "
        f"{outcome.sentence.removeprefix(f'shard {outcome.name}: ')}"
    )
    return FleetRow.unreadable(outcome.name, why)


def _worst_first(rows: Sequence[FleetRow]) -> tuple[FleetRow, ...]:
    """Return all rows, worst first, those of one state by their paths."""
    place = {str(state): number for number, state in enumerate(WORST_FIRST)}
    return tuple(sorted(rows, key=lambda row: (place[row.state], row.path, row.part)))


def check_table(path: Path) -> None:
    """Refuse a file that is there and is no table of a fleet."""
    header = ",".join(_TYPES).encode()
    if path.exists() and first_bytes(path, len(header)) != header:
        raise InvalidArgumentError(
            f"expected a table of groupwise fleet in {path}, got another file, which is never "
            "written over: name another with -o"
        )


def former_states(path: Path) -> dict[str, tuple[str, str | None]]:
    """Return of the runs of a table, by their whole paths, the state and since when it holds."""
    columns = ("path", "part", "state", "since_step")
    rows = pl.read_csv(path, columns=columns, infer_schema=False, truncate_ragged_lines=True)
    return {
        str(Path(f"{run}#{part}" if part else run).resolve()): (state, since)
        for run, part, state, since in rows.iter_rows()
    }


def write_table(path: Path, rows: Sequence[FleetRow]) -> None:
    """Write the rows of a fleet as CSV; no cell is a formula or steers a terminal."""
    cells = [
        tuple(
            value.encode(errors="replace").decode() if isinstance(value, str) else value
            for value in astuple(row)
        )
        for row in rows
    ]
    texts = pl.col(pl.String).str.replace_all(r"\p{Cc}", " ").str.replace("^([=+@-])", "'$1")
    frame = pl.DataFrame(cells, schema=_TYPES, orient="row").with_columns(texts)
    write_whole(path, frame.write_csv(), force=True)
