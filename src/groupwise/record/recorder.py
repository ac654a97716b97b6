"""The record of a run that is training, and which record a run writes to: nothing that goes wrong
here stops the training.

Each finished step is appended. A full disk is said once, and what could not be written waits in
memory until it can be. A new run moves an older record aside and never overwrites it. After a kill
every step that was appended is there (`record/journal.py`).

A record has an identity: a number drawn when it begins, which some trainers keep in their
checkpoints, and the place of the run's output, for the others. `opened` decides by it.
"""

from __future__ import annotations

import errno
import hashlib
import math
import os
import re
import secrets
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from groupwise.arrays import Columns
from groupwise.errors import GroupwiseError, InvalidArgumentError, one_sentence
from groupwise.files import open_regular
from groupwise.parsing import JsonObject, JsonView
from groupwise.plain import frozen
from groupwise.record.journal import (
    Journal,
    JournalGoneError,
    SecondWriterError,
    decode_entry,
    notes_on,
)
from groupwise.record.run import (
    JOURNAL,
    Meanings,
    RecordWriter,
    RunConfig,
    RunRecord,
    checked_row,
    description_in,
    is_record,
    standing_steps,
    with_notes,
    without_rollouts,
)
from groupwise.record.table import (
    BASE_COLUMNS,
    Odd,
    columns_of,
    readable_cells,
    rollouts_table,
    steps_of_rows,
)
from groupwise.wording import clean, count

UNEVEN = "uneven_group_share"  # the column of the share of groups whose size is not that of most

FOLDER = "groupwise"
_WAITING_WITH_ROLLOUTS, _WAITING = 200, 20_000
RECENT = 64
_GOES_ON = "the group size keeps changing: the column group_size has it for each step"
# of the group size that are noted: each note is written with all that stand before it
_MOST_CHANGES = 20
# a record that cannot be opened is not tried again before this many times what the last try took
_SHARE = 20

Say = Callable[[str], None]
Measure = Callable[[Columns, RunConfig], Meanings]
RolloutDicts = Sequence[Mapping[str, Any]]


def to_terminal(sentence: str) -> None:
    """Print a sentence where the progress bar does not take it for its own."""
    print(f"groupwise: {sentence}", file=sys.stderr, flush=True)


def guarded(say: Say) -> Say:
    """Return what says a sentence and never raises.

    A terminal that is gone costs the sentence, not the training.
    """

    def said(sentence: str) -> None:
        with suppress(Exception):
            say(sentence)

    return said


def each_once(say: Say) -> Say:
    """Return `say` such that it says each sentence once."""
    sentences = set[str]()

    def said(sentence: str) -> None:
        if sentence not in sentences:
            sentences.add(sentence)
            say(sentence)

    return said


def reason_of(error: Exception) -> str:
    """Return an error as the beginning of a sentence; one that is not ours, with its kind."""
    return (
        str(error)
        if isinstance(error, GroupwiseError)
        else f"{type(error).__name__}: {str(error)[:300]}"
    )


class Failures:
    """No failure ends the training; each is reported once.

    After many in a row the last report says that recording stops.
    """

    def __init__(self, say: Say, most: float = math.inf) -> None:
        self.in_a_row, self._say, self._most, self._reasons_said = 0, say, most, set[str]()

    @property
    def too_many(self) -> bool:
        """Whether nothing is to be tried any more."""
        return self.in_a_row >= self._most

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Catch what is raised inside."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever it is, the training goes on
            self.in_a_row += 1
            reason = reason_of(error)
            if self.too_many or reason not in self._reasons_said:
                self._reasons_said.add(reason)
                self._say(
                    f"recording failed: {reason}; training goes "
                    f"on{', not recorded any further' if self.too_many else ''}"
                )


class Recorder:
    """Append the steps of a run that trains.

    Every failure after `open` is a sentence, not an exception.
    """

    _uneven = False
    _meanings: Meanings = ()
    _failing = _dropped = False
    _writer: RecordWriter | None = None
    _syncer: _Syncer | None = None

    def __init__(
        self,
        folder: Path,
        *,
        name: str = "",
        config: RunConfig | None = None,
        meanings_of: Measure | None = None,
        recent: int = RECENT,
        say: Say = to_terminal,
    ) -> None:
        self.folder, self.config, self.notes = folder, config or RunConfig(), list[str]()
        self.rows: list[JsonObject] = []
        self.run: dict[
            str, str
        ] = {}  # what tells this run from others, written into the record: `opened` sets it
        self._given, self._after, self._pending, self._next_try = self.config, 0, False, 0.0
        self._name, self._meanings_of, self._say = name or folder.name, meanings_of, guarded(say)
        self._columns: set[str] = set()
        self._odd_columns: set[str] = set()  # of which it was said
        self._recent: deque[tuple[int, RolloutDicts]] = deque(maxlen=recent)
        self._waiting: deque[tuple[JsonView, RolloutDicts | None]] = deque()
        self._confirmed: list[int] = []

    def open(self, after: int = 0) -> None:
        """Open the record, and go on with it after a step."""
        standing, about = self._older(after) if is_record(self.folder) else ([], {})
        kept = [row for row in standing if row["step"] <= after]
        self.rows = kept + [
            row for row in self.rows if row["step"] > after
        ]  # those that wait, where it could not be opened before
        self._confirmed = [row["step"] for row in kept]
        self._take_up(kept, about)
        self._writer = RecordWriter(
            self.folder, name=self._name, config=self.config, meanings=self._meanings
        )
        self._writer.run = self.run or self._writer.run
        self._syncer, self._pending = _Syncer(self._writer), False
        self._syncer.start()
        last = standing[-1]["step"] if standing else min(after, 0)
        if last > after:
            self.note(f"resumed after step {after}: steps {after + 1} to {last} will be replaced")
        elif last < after:
            self.note(
                f"resumed after step {after}: steps {last + 1} to {after} are missing in the record"
            )
        else:
            self._describe()
        self._columns = {name for row in self.rows for name in row}

    def wait(self, after: int = 0) -> None:
        """Keep the steps in memory, and try to open the record as they come."""
        self._after, self._pending, self._failing = after, True, True

    def _older(self, after: int) -> tuple[list[JsonObject], JsonView]:
        """Return the rows of the record that is there and its words; a new run moves it aside."""
        path = self.folder / JOURNAL
        if not path.exists():
            self._move_aside()
            return [], {}
        with Journal(
            path, keep=without_rollouts
        ) as journal:  # held while it is looked at: nobody writes it now
            rows = [entry["row"] for entry in standing_steps(journal.entries)]
            if after <= 0:
                if rows:
                    self._move_aside()
                return [], {}
            for damage in notes_on(journal.damage):
                self._say(
                    f"the record in {self.folder} is damaged: {damage}; it goes on after the damage"
                )
        return rows, description_in(journal.entries)

    def _take_up(self, kept: Sequence[JsonView], about: JsonView) -> None:
        """Go on with the notes of the record, and with the group size that its rows end with.

        Where it changed among them.
        """
        after = kept[-1]["step"] if kept else 0
        before = [
            str(note) for note in about.get("notes") or () if _step_of_change(str(note)) <= after
        ]
        self.notes = list(dict.fromkeys((*before, *self.notes)))
        self._uneven = any(row.get(UNEVEN) for row in self.rows)
        sizes = [(row["step"], size) for row in self.rows if (size := _size_of(row))]
        changed = [later for earlier, later in pairwise(sizes) if later[1] != earlier[1]]
        self.config = self._given if not changed else _resized(self._given, *changed[-1])
        self._update_meanings()

    def _update_meanings(self) -> None:
        """Say anew what the columns mean, of which a step may have brought more."""
        if self._meanings_of and self.rows:
            columns = {
                name: values
                for name, values in columns_of(self.rows).items()
                if name not in BASE_COLUMNS
            }
            self._meanings = self._meanings_of(columns, self.config)

    def _move_aside(self) -> None:
        """Give the folder of another run a new name."""
        number = 1
        while (aside := self.folder.with_name(f"{self.folder.name}.before-{number}")).exists():
            number += 1
        expected = f"to move the older record in {self.folder} aside"
        with one_sentence(expected, "move it, or choose another folder"):
            self.folder.rename(aside)
        self._say(f"{self.folder} held the record of an earlier run: it is now in {aside}")

    def append(self, row: JsonView, rollouts: RolloutDicts | None = None) -> None:
        """Write one step; one that comes again replaces what was there from it on."""
        try:
            row = checked_row(self._readable([row])[0][0])
        except Exception as error:  # noqa: BLE001 - a row of whatever kind costs itself and no more
            self._say(f"a step is not recorded: {reason_of(error)}")
            return
        step = row["step"]
        self._changes(row)
        _drop_from(step, self.rows, lambda old: old["step"])
        self.rows.append(dict(row))
        _drop_from(step, self._recent, lambda old: old[0])
        if rollouts:
            self._recent.append((step, rollouts))
        if self._writer is None and not self._pending:
            return
        _drop_from(step, self._waiting, lambda old: old[0]["step"])
        self._waiting.append((row, rollouts))
        self._write()
        if self._columns < (columns := self._columns | set(row)):
            self._columns = columns
            self._describe()

    def _changes(self, row: JsonView) -> None:
        """Note a group size other than before.

        What was planned and fitted for the old one no longer holds.
        """
        step, size = row["step"], _size_of(row)
        if row.get(UNEVEN) and not self._uneven:
            self._uneven = True
            self.note(
                f"groups have several sizes from step {step} on: the column group_size has the "
                "median of each step, and the setting stays"
            )
        if not size:
            return
        before = next(
            (
                old_size
                for old in reversed(self.rows)
                if old["step"] < step and (old_size := _size_of(old))
            ),
            None,
        )
        if not before or size == before:
            return
        sentence = f"the group size changed from {before:g} to {size:g} at step {step}"
        if sentence in self.notes:
            return
        self.config = _resized(self.config, step, size)
        if sum(_step_of_change(note) > 0 for note in self.notes) < _MOST_CHANGES:
            self.note(sentence)
        elif _GOES_ON not in self.notes:
            self.note(_GOES_ON)

    def _write(self) -> None:
        """Write all that waits; a failure is said once, and it goes on waiting."""
        if self._writer is None and not self._reopened():
            self._trouble("")
            return
        assert self._writer
        while self._waiting:
            try:
                self._writer.append(*self._waiting[0], sync=False)
            except JournalGoneError as error:
                if not self._begun_anew(error):
                    self._trouble("")
                    return
                continue
            except Exception as error:  # noqa: BLE001
                # a step that can never be written is not to hold up those behind it
                if isinstance(error, GroupwiseError | OSError) and not isinstance(
                    error, InvalidArgumentError
                ):
                    self._trouble(str(error))
                    return
                row, rollouts = self._waiting[0]
                readable, is_odd = self._readable(rollouts or ())
                if is_odd:
                    self._waiting[0] = row, readable
                    continue
                self._say(f"a step is not recorded: {reason_of(error)}")
            else:
                step = self._waiting[0][0]["step"]
                _drop_from(step, self._confirmed, int)
                self._confirmed.append(step)
            self._waiting.popleft()
        if self._failing:
            self._failing = False
            self._describe()  # what could not be said while there was no room
            self._say(
                f"the record in {self.folder} can be written again: the steps that waited are in it"
            )
        if self._syncer:
            self._syncer.due = True
            if self._syncer.problem:
                self._say(
                    f"the disk did not confirm the record in {self.folder}: "
                    f"{self._syncer.problem}; training goes on"
                )
                self._syncer.problem = ""

    def _readable(self, rows: RolloutDicts) -> tuple[list[JsonObject], bool]:
        """Return rows with None for what cannot be recorded, and whether there was any.

        It is told once a column.
        """
        odd = Odd()
        readable = [readable_cells(row, odd) for row in rows]
        for name in sorted({name for _, name in odd} - self._odd_columns):
            self._odd_columns.add(name)
            self._say(
                f"{clean(name, longest=60)!r} contains values that are not numbers or texts: "
                "these cells are missing in the record"
            )
        return readable, bool(odd)

    def _begun_anew(self, error: JournalGoneError) -> bool:
        """Begin a record that was deleted again, with the rows in memory; return whether."""
        self._let_go()
        self._say(
            f"{error}; training goes on, and the record starts again with the steps so far and "
            "only the newest completions"
        )
        rollouts = dict(self._recent)
        self._waiting = deque((row, rollouts.get(row["step"])) for row in self.rows)
        self._after, self._pending, self._failing, self._next_try = (
            self.rows[0]["step"] - 1,
            True,
            True,
            0.0,
        )
        self._confirmed = []
        return self._reopened()

    def _reopened(self) -> bool:
        """Try to open the record that could not be opened; return whether that worked."""
        began = time.monotonic()
        if began < self._next_try:
            return False
        try:
            self.open(self._after)
        except (GroupwiseError, OSError, ValueError):
            self._next_try = time.monotonic() + _SHARE * (time.monotonic() - began)
        return self._writer is not None

    @property
    def written(self) -> int:
        """How many steps of `rows` are in the record, and not only in memory."""
        return len(self._confirmed)

    @property
    def seconds(self) -> float:
        """The clock of the last step, 0 before the first."""
        return float(self.rows[-1].get("seconds") or 0.0) if self.rows else 0.0

    def _trouble(self, reason: str) -> None:
        """Say once that steps wait, and keep within bounds what does."""
        if not self._failing:
            self._failing = True
            self._say(f"{reason}; training goes on, and the steps wait in memory")
        if len(self._waiting) > _WAITING_WITH_ROLLOUTS:
            index = len(self._waiting) - _WAITING_WITH_ROLLOUTS - 1
            self._waiting[index] = (self._waiting[index][0], None)
            if not self._dropped:
                self._dropped = True
                self.notes.append(
                    "writing failed for a long time: rollouts of some steps are missing"
                )
        while len(self._waiting) > _WAITING:
            self._waiting.popleft()

    def note(self, sentence: str) -> None:
        """Keep a sentence with the record, and say it."""
        self.notes.append(sentence)
        self._say(sentence)
        self._describe()

    def _describe(self) -> None:
        """Write settings, meanings and notes as they are now."""
        self._update_meanings()
        if self._writer is None:
            return
        try:
            self._writer.describe(self.config, self._meanings, self.notes)
        except (GroupwiseError, OSError, ValueError) as error:
            self._trouble(str(error))

    def snapshot(self) -> RunRecord:
        """Return the steps so far, and the rollouts of the latest, as a record."""
        odd = Odd()
        steps = steps_of_rows(self.rows, odd)
        rollouts = rollouts_table(
            [{**rollout, "step": number} for number, some in self._recent for rollout in some], odd
        )
        notes = tuple(self.notes)
        return with_notes(
            RunRecord(self._name, steps, rollouts, self.config, self._meanings, (), notes), (), odd
        )

    def close(self) -> None:
        """Write what waits, describe the whole, and let go of the record."""
        if self._writer is None and not self._pending:
            return
        self._next_try = 0.0
        self._write()
        self._describe()
        if self._waiting:
            self._say(
                f"{count(len(self._waiting), 'step')} could not be written to {self.folder}"
                f"{self._rescued()}"
            )
            self._waiting.clear()
        self._let_go()
        self._pending = False

    def _let_go(self) -> None:
        """Close the record."""
        if self._syncer:
            self._syncer.finish()
        if self._writer:
            self._writer.close()
        self._writer, self._syncer = None, None

    def _rescued(self) -> str:
        """Write what waits to a temporary folder, and return what became of it."""
        saved = 0
        try:
            folder = Path(tempfile.mkdtemp(prefix="groupwise-")) / self.folder.name
            with RecordWriter(folder, name=self._name, config=self.config) as writer:
                for row, rollouts in self._waiting:
                    writer.append(row, rollouts)
                    saved += 1
                writer.describe(self.config, self._meanings, self.notes)
        except (GroupwiseError, OSError, ValueError):
            pass
        if not saved:
            return " and are lost"
        return (
            f": {'they' if saved == len(self._waiting) else f'the first {saved} of them'} are in "
            f"{folder}"
        )


class _Syncer(threading.Thread):
    """Wait for the disk beside the training.

    A step takes milliseconds there that the training need not spend.
    """

    def __init__(self, writer: RecordWriter) -> None:
        super().__init__(name="groupwise-sync", daemon=True)
        self.due, self._ended, self.problem, self._writer = False, threading.Event(), "", writer

    def run(self) -> None:
        """Look once a second whether anything was appended, and sync it.

        To be woken by each append would cost the training more.
        """
        while not self._ended.wait(1.0):
            if self.due:
                self.due = False
                self._sync()

    def finish(self) -> None:
        """Sync a last time and end."""
        self._ended.set()
        self.join()
        self._sync()

    def _sync(self) -> None:
        """Sync once; a failure is kept to be said by the training's own thread."""
        try:
            self._writer.sync()
        except OSError as error:
            self.problem = error.strerror or str(error)
        except ValueError:
            self.problem = "the record was closed"


def _drop_from(step: int, entries: list[Any] | deque[Any], step_of: Callable[[Any], int]) -> None:
    """Drop the entries of a step that comes again, and those after it."""
    while entries and step_of(entries[-1]) >= step:
        entries.pop()


def _size_of(row: JsonView) -> int | None:
    """Return the group size of a step, None where it is not one or not known."""
    size = row.get("group_size")
    return int(size) if size and not row.get(UNEVEN) and float(size).is_integer() else None


def _resized(config: RunConfig, step: int, size: int) -> RunConfig:
    """Return the settings with the group size of the rollouts."""
    return config.with_settings({"group_size": size}, f"the rollouts, from step {step} on")


def _step_of_change(note: str) -> int:
    """Return the step at which a note says that the group size changed; 0 for other notes."""
    match = re.fullmatch(r"the group size changed from \S+ to \S+ at step (\d+)", note)
    return int(match[1]) if match else 0


_MOST_SIBLINGS, _MOST_ASIDE = 20, 200
_PASSING = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EIO,
    errno.ESTALE,
    errno.ETIMEDOUT,
}  # failures that come and go, as a full disk


@frozen
class Identity:
    """What tells a run from others."""

    id: str = ""  # the number of its record; "" where the run does not know it
    # the place of its output as seen from the record, hashed; "" where it is not known
    home: str = ""

    def owns(self, other: Identity) -> bool:
        """Return whether a record is this run's: by a number it knows, else by place."""
        return self.id == other.id if self.id else self.home == other.home


def home_of(output: str | Path, folder: Path) -> str:
    """Return the place of a run's output relative to its record's, hashed.

    Both may be moved together.
    """
    there, here = os.path.realpath(output), os.path.realpath(folder.absolute().parent)
    with suppress(ValueError):  # another drive
        there = os.path.relpath(there, here)
    return hashlib.sha256(os.fsencode(there)).hexdigest()[:16]


def identity_in(folder: Path) -> Identity | None:
    """Return the identity of the record in a folder; None where there is none to read."""
    entry: JsonView = {}
    try:
        with open_regular(folder / JOURNAL) as file:
            for line in file:
                if (
                    b'{"about":' in line[:48]
                ):  # of all entries the shortest: those with rollouts need not be taken apart
                    entry = decode_entry(line) or entry
    except OSError:
        return None
    about = entry.get("about")
    run = about.get("run") if isinstance(about, dict) else None
    return (
        Identity(str(run["id"]), str(run.get("home", "")))
        if isinstance(run, dict) and run.get("id")
        else None
    )


def _choices(folder: Path, after: int, run: Identity) -> list[tuple[Path, Identity | None]]:
    """Return where a run may go on: records of its own, then places with none of any identity.

    One that begins, or knows nothing of itself, takes the places in their order.
    """
    if after <= 0 or not (run.id or run.home):
        return [(place, None) for place in _places(folder)]
    own = _owned(_places(folder), run)
    if run.id and not own:
        own = _owned(
            [
                folder.with_name(f"{folder.name}.before-{number}")
                for number in range(1, _MOST_ASIDE)
            ],
            run,
        )
    free = [
        place
        for place in _places(folder)
        if not is_record(place) or (not own and identity_in(place) is None)
    ]
    return [*own, *((place, identity_in(place)) for place in free)]


def _owned(places: Sequence[Path], run: Identity) -> list[tuple[Path, Identity | None]]:
    """Return the places that hold a record of this run."""
    return [
        (place, identity)
        for place in places
        if (identity := identity_in(place)) and run.owns(identity)
    ]


def _places(folder: Path) -> list[Path]:
    """Return where a record may be written: its folder, and those beside it."""
    return [
        folder,
        *(folder.with_name(f"{folder.name}-{number}") for number in range(2, _MOST_SIBLINGS)),
    ]


def opened(
    make: Callable[[Path], Recorder],
    folder: Path,
    after: int,
    say: Say,
    run: Identity | None = None,
) -> Recorder | None:
    """Open a record that goes on after a step (0: a beginning); None where none can be written.

    A resumed run goes on with its own record; one beside it is begun where the folder holds another
    run's or somebody is writing it.
    """
    run = run or Identity()
    places = _choices(folder, after, run)
    another = is_record(folder) and folder not in [place for place, _ in places[:1]]
    problem = f"the record in {folder} belongs to another run" if another else ""
    for place, there in places:
        recorder = make(place)
        recorder.run = asdict(Identity(there.id if there else secrets.token_hex(8), run.home))
        try:
            recorder.open(after)
        except SecondWriterError as error:
            problem = problem or str(error)
            continue
        except (GroupwiseError, OSError) as error:
            if _will_pass(error):
                recorder.wait(after)
                say(f"{reason_of(error)}; training goes on, and the steps wait in memory")
                return recorder
            problem = problem or reason_of(error)
            break
        if problem:
            say(f"{problem}; training goes on, recorded in {place}")
        return recorder
    say(f"{problem}; training goes on without a record")
    return None


def _will_pass(error: BaseException | None) -> bool:
    """Return whether a failure is one of those that come and go."""
    while error:
        if isinstance(error, OSError) and error.errno in _PASSING:
            return True
        error = error.__cause__ or error.__context__
    return False
