"""Which record a run writes to: its own, a new one, or one beside another run's.

A record has an identity: a number drawn when it begins, which some trainers keep in their
checkpoints, and the place of the run's output, for the others. `opened` decides by it. How steps
are written is in `recorder.py`; what a kill leaves on the disk, in `record/journal.py`.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from groupwise.errors import GroupwiseError
from groupwise.files import open_regular
from groupwise.plain import frozen
from groupwise.record.journal import SecondWriterError, decode_entry
from groupwise.record.recorder import Recorder, Say, reason_of
from groupwise.record.run import JOURNAL, is_record

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
    entry = None
    try:
        with open_regular(folder / JOURNAL) as file:
            for line in file:
                if (
                    b'{"about":' in line[:48]
                ):  # of all entries the shortest: those with rollouts need not be taken apart
                    entry = decode_entry(line) or entry
    except OSError:
        return None
    about = entry.get("about") if entry is not None else None
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
        if (identity := identity_in(place)) is not None and run.owns(identity)
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
    problem = f"the record in {folder} is that of another run" if another else ""
    for place, there in places:
        recorder = make(place)
        recorder.run = asdict(
            Identity(there.id if there is not None else secrets.token_hex(8), run.home)
        )
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
    while error is not None:
        if isinstance(error, OSError) and error.errno in _PASSING:
            return True
        error = error.__cause__ or error.__context__
    return False
