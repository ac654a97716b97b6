"""Whose record a folder holds, and with which of several a resumed run goes on.

A record has an identity: a number drawn when it begins, which trainers that can keep in their checkpoints, and the place of the run's
output, for those that cannot. It opens and writes nothing.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from groupwise.record.journal import decode_entry
from groupwise.record.run import JOURNAL, is_record

_MOST_SIBLINGS, _MOST_ASIDE = 20, 200


@dataclass(frozen=True, slots=True)
class Identity:
    """What tells a run from others."""

    id: str = ""  # of its record; "" where the run does not know it
    home: str = ""  # the place of its output as seen from the record, hashed; "" where it is not known

    def owns(self, other: Identity) -> bool:
        """Return whether a record with the identity `other` is this run's: by its number where the run knows it, else by the place."""
        return self.id == other.id if self.id else self.home == other.home

    def plain(self) -> dict[str, str]:
        """Return it as a record keeps it."""
        return {"id": self.id, "home": self.home}


def drawn() -> str:
    """Return the number of a record that begins."""
    return secrets.token_hex(8)


def home_of(output: str | Path, folder: Path) -> str:
    """Return the place of a run's output, hashed: seen from where the record lies, so that both may be moved together."""
    there, here = os.path.realpath(output), os.path.realpath(folder.absolute().parent)
    with suppress(ValueError):  # another drive
        there = os.path.relpath(there, here)
    return hashlib.sha256(os.fsencode(there)).hexdigest()[:16]


def identity_in(folder: Path) -> Identity | None:
    """Return the identity of the record in a folder; None where it has none or cannot be read."""
    found = None
    try:
        with (folder / JOURNAL).open("rb") as file:
            for line in file:
                if b'{"about":' in line[:48]:  # of all entries the shortest: those with rollouts need not be taken apart
                    found = decode_entry(line) or found
    except OSError:
        return None
    about = found.get("about") if found is not None else None
    run = about.get("run") if isinstance(about, dict) else None
    return Identity(str(run["id"]), str(run.get("home", ""))) if isinstance(run, dict) and run.get("id") else None


def siblings_of(folder: Path) -> list[Path]:
    """Return where a record may be written: its folder, and those beside it."""
    return [folder, *(folder.with_name(f"{folder.name}-{number}") for number in range(2, _MOST_SIBLINGS))]


def choices(folder: Path, run: Identity) -> list[tuple[Path, Identity | None]]:
    """Return where a resumed run may go on, the best place first."""
    found = [(place, identity_in(place), is_record(place)) for place in siblings_of(folder)]
    own = [(place, identity) for place, identity, _ in found if identity is not None and run.owns(identity)]
    if run.id and not own:
        aside = (folder.with_name(f"{folder.name}.before-{number}") for number in range(1, _MOST_ASIDE))
        own = [(place, identity) for place in aside if (identity := identity_in(place)) is not None and run.owns(identity)]
    free = [(place, identity) for place, identity, there in found if not there or (identity is None and not own)]
    return own + free
