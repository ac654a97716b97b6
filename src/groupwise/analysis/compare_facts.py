"""What a comparison knows of each run and of each group: how it was judged, where it ends, what was measured of it. Plain data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from groupwise.comparison.results import Measured
from groupwise.diagnostics.judgement import Judgement
from groupwise.plain import plain
from groupwise.wording import decimals_of

TRAILING = 10  # rows at the end of a run, whose raw mean is where it ends


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """One run of a comparison."""

    name: str  # as its log calls it
    label: str  # its name as it is shown
    judgement: Judgement  # of its log alone
    rows: int  # of the metric
    last_step: float  # of the metric; nan without rows
    ends_at: float  # raw mean of its last rows, `TRAILING` at most; nan without rows
    left_out: str = ""  # why it is shown and not compared; "" where it is compared
    level: Measured | None = None  # late mean; None where it is not compared
    speed: Measured | None = None  # step from which it holds the level; None where it is not compared

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        judged = self.judgement
        shown: dict[str, Any] = plain(
            {
                "name": self.name,
                "state": judged.state,
                "headline": judged.headline,
                "since_step": judged.since_step,
                "rows": self.rows,
                "last_step": self.last_step,
                "ends_at": self.ends_at,
                "left_out": self.left_out,
                "level": self.level,
                "speed": self.speed,
                "held": None if self.speed is None or not self.speed.usable else math.isfinite(self.speed.value),
            }
        )
        return shown


@dataclass(frozen=True, slots=True)
class ComparedGroup:
    """Runs of one setting in a comparison."""

    name: str  # what they are called
    runs: tuple[ComparedRun, ...]  # all of them
    place: int | None = None  # of the group among those compared; None where none of its runs is

    @property
    def failed(self) -> tuple[ComparedRun, ...]:
        """Its runs that failed."""
        return tuple(run for run in self.runs if run.judgement.alarm)

    @property
    def compared(self) -> tuple[ComparedRun, ...]:
        """Its runs that are compared."""
        return tuple(run for run in self.runs if not run.left_out)

    @property
    def ends_at(self) -> float:
        """Mean of where its runs end."""
        return _mean([run.ends_at for run in self.runs])

    @property
    def level(self) -> float:
        """Mean of the late means of its runs; nan where none was measured."""
        return _mean([run.level.value for run in self.runs if run.level is not None and run.level.usable])

    @property
    def times(self) -> list[float]:
        """Steps from which its runs hold the level, infinite where one does not by the end."""
        return [run.speed.value for run in self.runs if run.speed is not None and run.speed.usable]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"name": self.name, "runs": [run.as_dict() for run in self.runs]}


def shared_key(names: Sequence[str]) -> tuple[str, list[str]]:
    """Return the word that all names have before a number, and the numbers; "" and the names where they are not made so."""
    split = [name.partition(" ") for name in names]
    if len({key for key, _, _ in split}) != 1 or not all(rest and rest[0] in "+-.0123456789" for _, _, rest in split):
        return "", list(names)
    return split[0][0], [rest for _, _, rest in split]


def shown_decimals(values: Iterable[float]) -> int | None:
    """Return the decimals in which levels are written: those that tell them apart, three at most; None where none suit them."""
    decimals = decimals_of(value for value in values if math.isfinite(value))
    return None if decimals is None else min(decimals, 3)


def _mean(values: list[float]) -> float:
    """Mean of the finite values; nan without any."""
    finite = [value for value in values if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else math.nan
