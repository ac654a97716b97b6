"""A journal whose lines are known, and what must hold of it whatever one damage was done to it."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from groupwise.record.journal import read_journal, step_in
from groupwise.record.recorder import Recorder
from groupwise.record.run import JOURNAL, RunRecord

SIZE = 4


def step_of(number: int) -> tuple[dict[str, float], list[dict[str, object]]]:
    """A step whose every value follows from its number, so that a torn or mixed one shows."""
    row = {"step": number, "reward": number / 7, "seconds": float(number)}
    texts = (f"{number} “Antwort” é\n", '{"row":{"step":3}}', "00000000 2 {}", f"p{number}")
    return row, [
        {"prompt_id": n // 2, "completion": texts[n], "reward": float(n)} for n in range(SIZE)
    ]


@dataclass(frozen=True)
class Made:
    """A journal, and where its lines begin and end."""

    content: bytes
    ends: tuple[int, ...]  # one behind the line feed of each line
    steps: tuple[int | None, ...]  # what each line holds

    def line_at(self, place: int) -> int:
        """Which line holds a byte."""
        return bisect.bisect_right(self.ends, place)

    def without(self, *lines: int) -> list[int]:
        """The steps of all lines but some."""
        return [
            step
            for number, step in enumerate(self.steps)
            if step is not None and number not in lines
        ]


def made(folder: Path, steps: int) -> Made:
    """Record a run and return its journal."""
    recorder = Recorder(folder, say=lambda _: None)
    recorder.open()
    for number in range(1, steps + 1):
        recorder.append(*step_of(number))
    recorder.close()
    content = (folder / JOURNAL).read_bytes()
    lines = content.splitlines(keepends=True)
    ends = tuple(sum(map(len, lines[: number + 1])) for number in range(len(lines)))
    entries = read_journal(folder / JOURNAL).entries
    return Made(content, ends, tuple(map(step_in, entries)))


def steps_in(path: Path) -> tuple[list[int], int, int]:
    """The steps that a journal gives, and the lines and bytes of it that are damaged."""
    content = read_journal(path, keep=step_in)
    return (
        content.entries,
        sum(damaged.lines for damaged in content.damage),
        sum(damaged.bytes for damaged in content.damage),
    )


def goes_on(folder: Path, expected: Sequence[int], after: int) -> None:
    """A resumed run goes on behind what is there and shortens nothing that is damaged."""
    recorder = Recorder(folder, say=lambda _: None)
    recorder.open(after)
    recorder.append(*step_of(after + 1))
    recorder.close()
    record = RunRecord.load(folder)
    assert record.steps["step"].to_list() == [*expected, after + 1]
    assert record.steps["reward"].to_list() == [step / 7 for step in (*expected, after + 1)]
