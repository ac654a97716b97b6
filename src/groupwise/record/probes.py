"""What experiments on a run showed, in a file of ours beside it: a line each, never in the log."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from groupwise.errors import GroupwiseError
from groupwise.files import beside, first_bytes, write_whole
from groupwise.parsing import parse_json
from groupwise.plain import Plain, to_json

FILE = "groupwise-probes.jsonl"
_LARGEST, _LONGEST = 1 << 20, 1000  # bytes of the file, characters of a text


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Probes:
    """The experiments on a run, the oldest first, and the file that holds them."""

    path: Path
    run: str
    results: tuple[ProbeResult, ...]

    def add(self, result: ProbeResult) -> Probes:
        """Append a result to the file, which is written whole or left as it is."""
        held = (first_bytes(self.path, _LARGEST) or b"") if self.path.exists() else b""
        line = to_json(replace(result, run=self.run)) + "\n"
        if (held and not _results(held)) or len(held) + len(line) > _LARGEST:
            raise GroupwiseError(
                f"expected results of probes in {self.path}, got another or a full file: move it "
                "away"
            )
        write_whole(self.path, held.decode(errors="replace") + line, force=True)
        return replace(self, results=(*self.results, replace(result, run=self.run)))


def read_probes(log: Path, run: str) -> Probes:
    """Read the experiments beside a log, of one of its runs; what is damaged is left out."""
    path = beside(log, FILE)
    try:
        held = (first_bytes(path, _LARGEST) or b"") if path.exists() else b""
    except OSError:
        held = b""
    return Probes(path, run, tuple(one for one in _results(held) if one.run == run))


def _results(held: bytes) -> list[ProbeResult]:
    """The results that lines hold."""
    results = []
    for line in held.splitlines():
        try:
            results.append(_result(parse_json(line)))
        except (ValueError, TypeError, KeyError):
            continue
    return results


def _result(entry: Any) -> ProbeResult:
    """Make a result of data that anybody may have edited."""
    result = ProbeResult(**entry)
    texts = (result.probe, result.outcome, result.message, result.date, result.run)
    numbers = (result.value, result.low, result.high, result.seconds, result.seed, result.rollouts)
    for text in (*texts, result.arguments):
        if len(text) > _LONGEST or not isinstance(text, str):
            raise ValueError("text")
    for number in (*numbers, result.step or 0):
        if type(number) not in (int, float) or not abs(number) < math.inf:
            raise ValueError("number")
    return result
