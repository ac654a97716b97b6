"""The trial of advice: each member's arms, and harm on its twin.

    python lab/experiments/advice/arms.py [--population small|language_model] [--seconds N]
    [--workers N] [--healthy] [--sealed] [--fresh CAUSE,...]
    [--numbers N,...] [--file FILE]

A member is run healthy and with its fault, and its log is judged every five updates; from the first
look at which the state is warning or worse one arm does what the panel says, one goes back to the
checkpoint of the best logged reward and divides the rate by 3, and one goes on without the fault.
Each is a line of `arms.jsonl` (twins: `healthy.jsonl`, unseen members: `fresh.jsonl`; the language
model's: `language_arms.jsonl`, `language_healthy.jsonl`). The fault lasts: who goes back has it at
once, but for the spent entropy, which going back undoes. What is missing is run; the lines of a
member are of one kind of processor, or are not compared.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import math
from collections.abc import Iterator, Set
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from faults import (
    LANGUAGE,
    RUNS,
    SEALED,
    SMALL,
    Member,
    faulty_settings,
    faulty_task,
    healthy_task,
    language_member,
    members,
    small_member,
)
from following import Course, followed
from trial import (
    EVERY,
    HERE,
    HORIZONS,
    Journey,
    Piece,
    Snapshot,
    base_piece,
    compact,
    forked,
    run_open,
    settings_of,
)

from groupwise.diagnostics import judgement
from groupwise.diagnostics.judge import judge
from groupwise.diagnostics.judgement import Action, Judgement, State
from groupwise.parsing import JsonObject, JsonView
from groupwise.record.run import RunRecord
from groupwise.record.table import steps_table
from groupwise_lab.trainer.rows import meanings
from groupwise_lab.trainer.tasks import make_task

PLACEBO = (Action("rate", 1 / 3, None, (), "", ""),)
TABLES = ("actions.tsv", "causes.tsv")
RECENT = 10  # updates whose groups say which problems teach
FRESH = 330  # the first member that nobody has seen


@dataclass
class Seen:
    """What a user has at a look: the log, the checkpoints, and which problems teach."""

    rows: list[JsonView] = field(default_factory=list)
    checkpoints: list[Snapshot] = field(default_factory=list)
    informative: list[list[Any]] = field(default_factory=list)  # of each update

    def add(self, journey: Journey) -> None:
        """Keep what an update logged."""
        self.rows.append(journey.row)
        batch = journey.run._last_batch
        assert batch is not None
        reward_PG = batch.judged.reward_N.reshape(len(batch.judged.problems), -1)
        differs_P = np.nanmax(reward_PG, axis=1, initial=-np.inf) > np.nanmin(
            reward_PG, axis=1, initial=np.inf
        )
        self.informative.append([batch.judged.problems[row] for row in np.flatnonzero(differs_P)])

    def record(self, course: Course) -> RunRecord:
        """What the panel sees."""
        names = dict.fromkeys(name for row in self.rows for name in row if name != "step")
        columns = {name: [row.get(name) for row in self.rows] for name in names}
        return RunRecord(
            "run",
            steps_table([row["step"] for row in self.rows], columns),
            meanings=[
                meaning
                for meaning in meanings(tuple(course.task.verifier.weights))
                if meaning.column in columns
            ],
            config=course.settings.run_config(max_completion_length=course.task.completion_length),
        )

    @property
    def best(self) -> int:
        """The checkpoint of the best mean reward over the updates since the one before."""
        means = [
            np.mean([row["reward"] or 0.0 for row in self.rows[end - EVERY : end]])
            for end in range(EVERY, len(self.rows) + 1, EVERY)
        ]
        return EVERY * (1 + int(np.argmax(means)))


def course_of(member: Member, *, faulty: bool) -> Course:
    """The settings and the task that a user has at the look."""
    chosen, task = settings_of(member, HORIZONS[member.population].steps), healthy_task(member)
    course, level = Course(chosen, task, task.verifier), member.form
    if faulty and member.fault is not None:
        wrong = faulty_task(member, task), faulty_settings(member.fault, chosen)
        course = replace(course, task=wrong[0], settings=wrong[1])
        level += member.fault.size.get("harder", 0)
    if member.population != SMALL:  # a text task has one level, and its context never ends it
        return replace(course, longest=math.inf)
    return replace(course, easier=make_task(member.task, level=max(level - 1, 1)).train)


def looked(member: Member, *, faulty: bool) -> tuple[Seen, Judgement] | None:
    """The run to its first alarm; None where there is none."""
    horizon = HORIZONS[member.population]
    chosen = settings_of(member, horizon.steps)
    journey = Journey(member, chosen, fault=member.fault if faulty else None)
    seen = Seen(checkpoints=[journey.snapshot()])
    for step in range(1, horizon.last_look + 1):
        journey.advance()
        if not journey.ended:
            seen.add(journey)
            if step % EVERY == 0:
                seen.checkpoints.append(journey.snapshot())
        if step % EVERY == 0 or journey.ended:  # a trainer that gave up leaves a log to judge
            record = seen.record(course_of(member, faulty=journey.faulty))
            judgement = judge(record, ended=journey.ended)
            if judgement.state not in (State.OK, State.CANNOT_TELL):
                return seen, judgement
        if journey.ended:
            break
    return None


def arm(member: Member, seen: Seen, course: Course) -> JsonObject:
    """The level every five updates of the further budget, on a course."""
    look = len(seen.rows)
    place = (look if course.step is None else min(course.step, look)) // EVERY
    first, snapshot = seen.checkpoints[0], seen.checkpoints[place]
    reference = {"reference": first.tensors["parameters"]}
    snapshot = replace(snapshot, tensors={**snapshot.tensors, **reference})
    settings = replace(
        course.settings, steps=max(course.settings.steps, course.settings.ramp_steps)
    )
    course = replace(course, settings=settings)
    journey = Journey(member, settings, fault=member.fault, snapshot=snapshot, course=course)
    right = [journey.measured()["right"]]
    for step in range(1, HORIZONS[member.population].further + 1):
        if not course.stopped:
            journey.advance()
        if step % EVERY == 0:
            right.append(journey.measured()["right"])
    return {"right_1e4": compact(right), "step": EVERY * place, "ended": journey.ended}


def piece(member: Member, *, faulty: bool, causes: Set[str] = frozenset()) -> JsonObject:
    """Both arms of a member, with what was said and when; the arms of some causes alone where
    they are named, "none" among them.
    """
    at_look = looked(member, faulty=faulty)
    if at_look is None:
        return {"look": None}
    seen, judgement = at_look
    if causes and not causes & {*(judgement.cause.keys or ("none",))}:
        return {"look": len(seen.rows), "causes": judgement.cause.keys}
    begun = faulty and member.fault is not None and len(seen.rows) > member.fault.onset
    recent = {prompt.text: prompt for some in seen.informative[-RECENT:] for prompt in some}
    course = replace(course_of(member, faulty=begun), informative=tuple(recent.values()))
    placebo = replace(followed(course, PLACEBO), step=seen.best)
    horizon, last = HORIZONS[member.population], seen.checkpoints[-1]
    chosen = settings_of(member, horizon.steps)
    undone = {"oracle": forked(member, chosen, last, horizon.further)} if begun else {}
    return {
        "look": len(seen.rows),
        "mark": last.mark,
        "state": judgement.state.value,
        "causes": judgement.cause.keys,
        "certainty": judgement.cause.certainty.value,
        "do": judgement.do,
        "actions": [
            {"kind": action.kind, "factor": action.factor, "value": action.value}
            for action in judgement.actions
        ],
        "followed": arm(member, seen, followed(course, judgement.actions)),
        "placebo": arm(member, seen, placebo),
        **undone,
    }


def version() -> str:
    """What tells the advice of one day from another's."""
    folder = Path(judgement.__file__).parent
    return hashlib.sha256(b"".join((folder / name).read_bytes() for name in TABLES)).hexdigest()[:8]


def arms_of(member: Member, causes: Set[str], _: JsonView, *, faulty: bool) -> JsonObject:
    """The line of a member, with the advice that was followed."""
    return {"advice": version(), **piece(member, faulty=faulty, causes=causes)}


def pieces_of(member: Member, *, faulty: bool, causes: Set[str] = frozenset()) -> Iterator[Piece]:
    """Twin, run and arms; where causes are named the arms first, and the others where they were
    run.
    """
    name = f"arms-{member.number:03}" if faulty else f"healthy-{member.twin:03}"
    run = partial(arms_of, member, causes, faulty=faulty)
    bases = [
        base_piece(kind, member, lambda lines: not causes or "followed" in lines.get(name, {}))
        for kind in (("twin", "run") if faulty else ("twin",))
    ]
    arms = Piece(name, run, {"number": member.number if faulty else member.twin})
    yield from [arms, *bases] if causes else [*bases, arms]


def main() -> None:
    """Run the members that are missing, in their order."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--population", choices=(SMALL, LANGUAGE), default=SMALL)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--healthy", action="store_true", help="the twins instead")
    parser.add_argument("--sealed", action="store_true", help="the sealed task instead")
    parser.add_argument("--fresh", default="", help="members nobody has seen, for these causes")
    parser.add_argument("--numbers", default="", help="these members alone, in their order")
    parser.add_argument("--file", default="", help="the lines' file where it is another")
    given = parser.parse_args()
    faulty, causes = not given.healthy, set(filter(None, given.fresh.split(",")))
    is_small = given.population == SMALL
    if causes and not is_small:
        parser.error(
            f"--fresh draws members of --population {SMALL}, got {given.population}: leave it out"
        )
    every = map(small_member, itertools.count(FRESH)) if causes else members(given.population)
    if given.numbers:
        draw = small_member if is_small else language_member
        every = map(draw, map(int, given.numbers.split(",")))
    pieces = (
        piece
        for member in every
        if (member.task == SEALED) is given.sealed
        and (faulty or is_small or member.number % RUNS == 0)
        for piece in pieces_of(member, faulty=faulty, causes=causes)
    )
    name = "fresh" if causes else "arms" if faulty else "healthy"
    name = name if is_small else f"language_{name}"
    path = HERE / (given.file or f"{name}.jsonl")
    run_open(pieces, path, seconds=given.seconds, workers=given.workers)


if __name__ == "__main__":
    main()
