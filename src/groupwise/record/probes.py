"""What experiments on a run showed, in a journal of ours beside it, never in the log."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from groupwise.errors import InvalidArgumentError
from groupwise.files import beside
from groupwise.plain import Plain, frozen
from groupwise.record.journal import Journal, read_journal

FILE = "groupwise-probes.jsonl"
_LARGEST, _LONGEST = 1 << 20, 1000  # bytes of the journal, characters of a text
_MOST = 1e15  # of a number
_KINDS: dict[str, set[type]] = {
    "str": {str},
    "float": {float, int},
    "int": {int},
    "int | None": {int, type(None)},
}


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

    def add(self, result: ProbeResult) -> Probes:
        """Append a result to the journal."""
        if self.path.is_file() and self.path.stat().st_size > _LARGEST:
            raise InvalidArgumentError(
                f"expected {self.path} of at most {_LARGEST:,} bytes, got more, which is not read: "
                "move it away"
            )
        result = replace(result, run=self.run)
        with Journal(self.path, keep=_result) as journal:
            journal.append(result.as_dict())
        return replace(self, results=(*self.results, result))


def read_probes(log: Path, run: str) -> Probes:
    """Read the experiments beside a log, of one of its runs; what is damaged is left out."""
    path = beside(log, FILE)
    held = path.is_file() and path.stat().st_size <= _LARGEST
    results = read_journal(path, keep=_result).entries if held else []
    return Probes(path, run, tuple(result for result in results if result.run == run))


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
