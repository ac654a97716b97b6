"""Many runs, each judged in a worker: one row a run, and which setting separates those that learnt
from those that did not.

How often luck would separate them is said as well. A separation is no cause: what differs along
with the setting, and luck, separate runs too.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, fields, replace
from itertools import accumulate
from pathlib import Path, PurePath
from typing import Self

import polars as pl

from groupwise.diagnostics.judge import judge
from groupwise.diagnostics.judgement import UNREADABLE, WORST_FIRST, Learning, State
from groupwise.engine.engine import Engine, Limits
from groupwise.errors import (
    GroupwiseError,
    InvalidArgumentError,
    SeveralRunsError,
    UnreadableRunError,
)
from groupwise.files import first_bytes, write_whole
from groupwise.intervals import percent
from groupwise.parsing import JsonView
from groupwise.plain import Plain, Words, frozen
from groupwise.readers import run_record
from groupwise.readers.find import runs_below
from groupwise.wording import clean, count, shortest_paths

_FEWEST = 2  # runs on each side
_MOST_LUCK = 0.5  # what luck would do more often is not reported
_MOST_NAMED, _MOST_WORDS = 5, 64  # values in a sentence, and of a setting of words
_FAILED = (State.FAILING, State.FAILED, Learning.FLAT, Learning.FALLING)


@frozen
class Separation(Plain):
    """A setting of which no run that learnt shares a value with one that did not."""

    MORE = "sentence"

    setting: str
    learnt: int  # runs
    learnt_with: Words  # values, numbers in order
    not_learnt: int
    not_learnt_with: Words
    settings_tried: int  # in which the runs differ
    chance: float  # that luck alone separates the runs by one of these; an upper bound
    also: Words  # other settings that separate them

    @property
    def sentence(self) -> str:
        """The counts and the chance."""
        others = f" (other settings that separate them: {listing(self.also)})" if self.also else ""
        return (
            f"The {self.learnt} runs with {self.setting} {listing(self.learnt_with)} learnt, and "
            f"the {self.not_learnt} with {listing(self.not_learnt_with)} failed or did not{others}."
            f" Chance alone would give this with a probability of at most {percent(self.chance)}; "
            f"the search tried {count(self.settings_tried, 'setting')}."
        )


def outcome(state: str, learning: str) -> bool | None:
    """Whether a run learnt, by its judgement; None where that cannot be told."""
    if state in _FAILED or learning in _FAILED:
        return False
    return learning not in ("", Learning.UNKNOWN) or None


def separation(
    settings: Sequence[Mapping[str, str]], learnt: Sequence[bool | None]
) -> Separation | None:
    """Return the setting that separates the runs that learnt from the others with the least
    chance of luck; None with fewer than two on a side, or where luck does it as often as not.
    """
    successes, failures = learnt.count(True), learnt.count(False)
    if min(successes, failures) < _FEWEST:
        return None
    runs = [
        (values, success)
        for values, success in zip(settings, learnt, strict=True)
        if success is not None
    ]
    shared = sorted(set.intersection(*({*values} for values, _ in runs)))
    tried = [name for name in shared if len({values[name] for values, _ in runs}) > 1]
    separations = []
    for name in tried:
        results = [(values[name], success) for values, success in runs]
        order, numeric = _ordered({value for value, _ in results})
        seen = {*results}
        won = tuple(value for value in order if (value, True) in seen)
        lost = tuple(value for value in order if (value, False) in seen)
        first = order.index(won[0])
        near = won == tuple(order[first : first + len(won)])
        if not {*won} & {*lost} and (near if numeric else len(order) <= _MOST_WORDS):
            runs_of = Counter(value for value, _ in results)
            ways = _splits([runs_of[value] for value in order], successes, numeric=numeric)
            chance = len(tried) * ways / math.comb(len(runs), successes)
            separations.append((chance, name, won, lost))
    if not separations or min(separations)[0] > _MOST_LUCK:
        return None
    chance, best, won, lost = min(separations)
    also = tuple(name for _, name, _, _ in separations if name != best)
    return Separation(best, successes, won, failures, lost, len(tried), chance, also)


def _ordered(values: set[str]) -> tuple[list[str], bool]:
    """Return numbers in their order, or words, and whether they are numbers."""
    with suppress(ValueError):
        return sorted(values, key=float), True
    return sorted(values), False


def _splits(sizes: Sequence[int], successes: int, *, numeric: bool) -> int:
    """Return in how many ways the runs of some values, which are neighbours where they are
    numbers, are so many.
    """
    if numeric:
        ends = {0, *accumulate(sizes)}
        return sum(end + successes in ends for end in ends)
    ways = [1] + [0] * successes
    for size in sizes:
        for total in range(successes, size - 1, -1):
            ways[total] += ways[total - size]
    return ways[successes]


def listing(texts: Sequence[str]) -> str:
    """Texts with commas, those beyond the first counted."""
    named = ", ".join(clean(text, longest=40) for text in texts[:_MOST_NAMED])
    more = len(texts) - _MOST_NAMED
    return f"{named} and {more} more" if more > 0 else named


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
RunsDone = Callable[
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
            record = run_record(f"{path}#{part}" if part else path, **self.options)
        except GroupwiseError as error:
            if isinstance(error, SeveralRunsError) and not part:
                raise
            return FleetRow.unreadable(path, str(error), part=part)
        judgement = judge(record)
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
            reward=" ".join(
                "-" if height is None else f"{100 * height:.0f}" for height in judgement.heights
            ),
            settings="; ".join(
                f"{name}={clean(setting.value)}"
                for name, setting in record.config.known().items()
                if name != "seed"
            ),
        )


@frozen
class Fleet(Plain):
    """How many runs stand."""

    MORE = "counts separates"

    runs: tuple[FleetRow, ...]  # worst first

    @property
    def counts(self) -> dict[str, int]:
        """The number of runs in each state, worst first."""
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
    progress: RunsDone = lambda _doing, _done, _total: None,
) -> Fleet:
    """Judge the runs at and below paths; a row each.

    `options` are what `open_run` takes, `seconds` what a run may take, and `without` files that
    are no run, as tables of a fleet are none.
    """
    progress("looking for runs", 0, len(paths))
    below = [(path, run) for path in paths for run in runs_below(path, without)]
    names = dict.fromkeys(str(run) for path, run in below if run == path or not _is_table(run))
    ended = itertools.count(1)
    outcomes = engine.map(
        Judge(options),
        {name: name for name in names},
        limits=Limits(seconds=seconds, memory=MEMORY),
        each=lambda outcome: progress(Path(outcome.name).name, next(ended), len(names)),
    )
    rows = list[FleetRow]()
    for judged in outcomes:
        why = (
            "expected a run that can be judged, but "
            f"{judged.sentence.removeprefix(f'shard {judged.name}: ')}"
        )
        rows += judged.value if judged.done else [FleetRow.unreadable(judged.name, why)]
    fleet = fleet_of(rows)
    if all(row.state == UNREADABLE for row in fleet.runs):
        why = fleet.runs[0].headline
        raise UnreadableRunError(
            why
            if len(fleet.runs) == 1
            else f"none of the {len(fleet.runs):,} runs can be read; {why}"
        )
    return fleet


def fleet_of(rows: Sequence[FleetRow]) -> Fleet:
    """Return the fleet of some rows, worst first, those of one state by their paths, each named
    by as much of its path as tells them apart.
    """
    names = shortest_paths([PurePath(row.opened) for row in rows])
    place = {str(state): number for number, state in enumerate(WORST_FIRST)}
    named = (replace(row, run=clean(name)) for row, name in zip(rows, names, strict=True))
    return Fleet(tuple(sorted(named, key=lambda row: (place[row.state], row.path, row.part))))


def _is_table(path: Path) -> bool:
    """Whether a path is a table of a fleet."""
    header = ",".join(_TYPES).encode()
    return path.is_file() and first_bytes(path, len(header)) == header


def check_table(path: Path) -> None:
    """Refuse a file that is there and is no table of a fleet."""
    if path.exists() and not _is_table(path):
        raise InvalidArgumentError(
            f"expected a table written by groupwise fleet in {path}, got another file, which is "
            "never overwritten: choose another name with -o"
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
