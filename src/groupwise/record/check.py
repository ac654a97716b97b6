"""What of a record is sound and what is damaged, and a copy of all that is sound."""

from __future__ import annotations

import dataclasses
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupwise.errors import GroupwiseError, OverwriteError, UnreadableRunError
from groupwise.plain import Plain
from groupwise.record.journal import Damage, Journal, notes_on, read_journal
from groupwise.record.run import (
    JOURNAL,
    SAVED,
    JournalRows,
    RunRecord,
    description_in,
    description_of,
    is_record,
    load_saved,
)
from groupwise.wording import count


@dataclass(frozen=True, slots=True)
class Checked(Plain):
    """What of a record is sound."""

    record: str  # its folder
    sound: bool  # whether nothing of it is damaged
    steps: int  # how many steps can be read
    journal_bytes: int  # what is read of the journal; 0 where there is none
    torn_bytes: int  # of a last line that a kill left unfinished, which is no damage
    damage: tuple[Damage, ...]  # the damaged stretches of the journal
    # why the tables beside the journal cannot be read whole, "" where they can or there are none
    saved_problem: str
    notes: tuple[
        str, ...
    ]  # sentences on the record: what is damaged in it, and what had to be decided while reading it

    def lines(self) -> list[str]:
        """Return it in words."""
        said = [
            (
                f"The record is {'sound' if self.sound else 'damaged'}: "
                f"{count(self.steps, 'step')} can be read."
            )
        ]
        said += [f"In the tables: {self.saved_problem}."] if self.saved_problem else []
        said += [f"In the journal: {one.said()}." for one in self.damage]
        if self.torn_bytes:
            said.append(
                f"The last line was not finished ({count(self.torn_bytes, 'byte')}), as a kill "
                "leaves it: that is no damage."
            )
        told = {self.saved_problem, *notes_on(self.damage)}
        return [*said, *(f"Note: {note}." for note in self.notes if note not in told)]


def check_record(folder: Path) -> Checked:
    """Check a record: every line of its journal and the checksums of its tables; raise where
    none of its steps can be read.
    """
    record, problem = _saved(folder)
    rows = JournalRows(folder, record)
    rows.read()
    record, journal = rows.record(), rows.lines
    if not len(record.steps):
        lost = "; ".join(notes_on(journal.damage))
        why = (
            f"got {lost}: give an older copy of the record"
            if lost
            else "got none: nothing has been recorded yet"
        )
        raise UnreadableRunError(problem or f"expected a sound step in {folder / JOURNAL}, {why}")
    sound = not (problem or journal.damage)
    return Checked(
        str(folder),
        sound,
        len(record.steps),
        journal.end,
        journal.torn,
        tuple(journal.damage),
        problem,
        record.notes,
    )


def repaired(folder: Path, target: Path) -> Path:
    """Write all that is sound of a record to a new folder, with notes on what was damaged; the
    record stays as it is.
    """
    if target.exists() or target.is_symlink():
        raise OverwriteError(
            f"expected a new folder at {target}, got something that is there already: choose "
            "another"
        )
    if target.resolve().is_relative_to(folder.resolve()):
        raise OverwriteError(
            f"expected a folder beside the record, got {target}, which is in it: choose another"
        )
    partial = target.with_name(f".{target.name}.partial-{os.getpid()}")
    try:
        partial.mkdir(parents=True)
        record, problem = _saved(folder)
        if len(record.steps):
            notes = tuple(f"repaired: {note}" if note == problem else note for note in record.notes)
            dataclasses.replace(record, notes=notes).save(partial)
        if (folder / JOURNAL).is_file():
            _copy_journal(folder, partial)
        partial.rename(target)
    except OSError as error:
        raise GroupwiseError(
            f"expected to write {target}, got {error.strerror or error}: choose a folder that you "
            "can write"
        ) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target


def _copy_journal(folder: Path, target: Path) -> None:
    """Copy the sound entries of a journal, and say behind them what was lost."""
    last: dict[str, Any] = {}
    with Journal(target / JOURNAL) as journal:

        def copy(entry: dict[str, Any]) -> None:
            last.update({"about": description_in([entry]) or last.get("about")})
            journal.append(entry, sync=False)

        damage = notes_on(read_journal(folder / JOURNAL, keep=copy).damage)
        if damage:
            about = last.get("about") or description_of(folder.name)
            journal.append(
                {
                    "about": about
                    | {
                        "notes": [
                            *(about.get("notes") or ()),
                            *(f"repaired: {one}" for one in damage),
                        ]
                    }
                },
                sync=False,
            )
        journal.sync()


def _saved(folder: Path) -> tuple[RunRecord, str]:
    """Return what is sound of the tables of a record, and what is not, in a sentence."""
    if not is_record(folder):
        raise UnreadableRunError(
            f"expected a saved record in {folder}, got neither {SAVED} nor {JOURNAL}: give the "
            "folder of a record"
        )
    if not (folder / SAVED).is_file():
        return RunRecord.empty(folder.name), ""
    try:
        return load_saved(folder)
    except UnreadableRunError as error:
        return RunRecord.empty(folder.name), str(error)
