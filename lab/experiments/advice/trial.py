"""The trial of advice: runs with a fault, their healthy twins, and the step of the first update.

    python lab/experiments/advice/trial.py [--seconds N] [--workers N]

The protocol is lab/docs/decisions/0012-the-trial-of-advice.md; `arms.py` runs the arms of both
populations. A piece that is done is one line of first_update.jsonl beside this file, written whole
at its end; the same command runs what is missing, in the protocol's order, and begins none when no
piece fits into the seconds that are left. Processes have one thread each.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import math
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

HERE = Path(__file__).resolve().parent
sys.path.extend(str(HERE.parent / name) for name in ("language_models", "u_statistic"))

import numpy as np
import torch
from faults import (
    LANGUAGE,
    SMALL,
    Fault,
    Member,
    faulty_settings,
    faulty_task,
    healthy_task,
    sharpness,
)
from following import Course
from small_model import DEVICE, held_out_reward, policy, settings

from groupwise.errors import InsufficientDataError
from groupwise.parsing import JsonObject, JsonView
from groupwise_lab.trainer.folder import NotFiniteError, TrainingStoppedError
from groupwise_lab.trainer.grpo import TrainingRun
from groupwise_lab.trainer.policy import Actor, Policy, policy_size
from groupwise_lab.trainer.settings import TrainSettings
from groupwise_lab.trainer.warm_up import default_cache, right_probability, warm_up

EVERY = 5  # updates between looks
FIRST_UPDATE = "first_update"
HELD_OUT = 512  # problems whose right answers' probability is the level of a small policy
STEADY = (
    2e-4  # learning rate of the language model's runs, after a rise over its first five updates
)
# Of the grid: 0.05 nats a completion in the first update, its rise, and what is run.
GRID_RATE, GRID_RAMP, GRID_SIZES, GRID_SEEDS = 1.8e-4, 10, (4, 8, 32), 6
PILOT, PILOT_SEED, PILOT_STEPS, LEAST_STEPS, RISE = "grid-pilot", 1000, 80, 25, 0.45


@dataclass(frozen=True)
class Horizon:
    """How long the runs of a population are, in updates."""

    last_look: int
    further: int  # updates of each arm from its fork on

    @property
    def steps(self) -> int:
        return self.last_look + self.further


HORIZONS = {SMALL: Horizon(80, 80), LANGUAGE: Horizon(15, 15)}


def start_small(member: Member) -> Policy:
    """A small transformer that is right one time in five."""
    task = healthy_task(replace(member, fault=None))
    made = Policy(policy_size("small"), vocabulary_size=len(task.vocabulary), seed=member.start)
    warm_up(made, task, accuracy=0.2, seed=member.start, cache=default_cache())
    return made


def settings_of(member: Member, steps: int) -> TrainSettings:
    """Those of the twin."""
    if member.population != SMALL:
        return settings(
            "adamw", STEADY, member.group_size, member.seed, steps, ramp_steps=min(EVERY, steps - 1)
        )
    given: JsonObject = {
        "rollouts_per_step": 256,
        "learning_rate": 5e-4,
        "optimizer": "adam",
        "advantage": "leave_one_out",
    }
    given |= {"importance_ratio": "token", "clip": 0.2, "evaluate_every": 0, "rollouts_every": 0}
    return TrainSettings(group_size=member.group_size, seed=member.seed, steps=steps, **given)


def level(actor: Actor, member: Member) -> float:
    """The true reward on held-out problems: exact for a small policy, the same random numbers
    each time for a language model.
    """
    task = healthy_task(replace(member, fault=None))
    language: Any = actor
    if not isinstance(actor, Policy):
        return held_out_reward(language, task)
    reached = right_probability(actor, task, task.held_out[:HELD_OUT])
    return reached if math.isfinite(reached) else 0.0


@dataclass(frozen=True)
class Snapshot:
    """A run between two updates, without the batches that wait for theirs."""

    step: int
    tensors: Mapping[str, torch.Tensor]
    about: JsonView
    faulty: bool  # whether the fault had begun

    @cached_property
    def mark(self) -> str:
        """What tells its parameters from others."""
        return hashlib.sha256(self.tensors["parameters"].cpu().numpy().tobytes()).hexdigest()[:8]


class Journey:
    """A run of a member, from its start or from a snapshot, with its fault, or without."""

    def __init__(
        self,
        member: Member,
        chosen: TrainSettings,
        *,
        fault: Fault | None,
        snapshot: Snapshot | None = None,
        course: Course | None = None,
    ) -> None:
        self.member, self.chosen, self.fault = member, chosen, fault
        self.actor: Actor = start_small(member) if member.population == SMALL else policy()
        self.course = course  # of settings and task; the fault is in it already
        self.faulty = snapshot is not None and snapshot.faulty and fault is not None
        self.run, self.ended = self._prepared(), ""
        self.row: JsonView = {}
        if snapshot is not None:
            self.run.restore(snapshot.tensors, snapshot.about)
            self._set_sharpness(snapshot)

    def _prepared(self) -> TrainingRun:
        """The loop of the trainer with what is wrong at present."""
        if self.course is not None:
            return TrainingRun(self.actor, self.course.task, self.course.settings, None)
        task = healthy_task(self.member)
        if not self.faulty or self.fault is None:
            return TrainingRun(self.actor, task, self.chosen, None)
        return TrainingRun(
            self.actor,
            faulty_task(self.member, task),
            faulty_settings(self.fault, self.chosen),
            None,
        )

    def _set_sharpness(self, snapshot: Snapshot) -> None:
        """Undo the scale of trained logits that a snapshot holds, or put it back where it holds
        none.
        """
        fault = self.member.fault
        if fault is not None and fault.kind == "spent_entropy" and snapshot.faulty:
            held = sharpness(self.actor).requires_grad
            if held != self.faulty:
                self._scale(fault.size["factor"] if self.faulty else 1 / fault.size["factor"])

    def _scale(self, factor: float) -> None:
        with torch.no_grad():
            sharpness(self.actor).mul_(factor)

    def _begin_fault(self) -> None:
        """Go on with the fault from here: rollouts that wait are drawn anew, with the same
        random numbers where they can be shared.
        """
        before, self.faulty = self.snapshot(), True
        self.run = self._prepared()
        self.run.restore(before.tensors, before.about)
        assert self.fault is not None
        if self.fault.kind == "spent_entropy":
            self._scale(self.fault.size["factor"])

    def advance(self) -> None:
        """Make one update; a run that the trainer refuses to go on with stays where it is."""
        if self.ended:
            return
        begins = self.course is None and self.fault is not None and not self.faulty
        if begins and self.fault is not None and self.run.step == self.fault.onset:
            self._begin_fault()
        try:
            self.row = self.run.advance()[0]
        except (TrainingStoppedError, NotFiniteError, InsufficientDataError) as error:
            self.ended = f"{type(error).__name__} at {self.run.step}"

    def snapshot(self) -> Snapshot:
        """What another run can be forked from."""
        tensors, about = self.run.state()
        kept = {
            name: tensor.clone() for name, tensor in tensors.items() if not name.startswith("batch")
        }
        fresh = {"waiting": [], "batches": self.run.step, "idle": 0}
        return Snapshot(self.run.step, kept, {**about, **fresh}, self.faulty)

    def measured(self) -> dict[str, float]:
        """Level, and the reward that is trained on and the entropy of the last update."""
        values = {"right": level(self.actor, self.member)}
        return values | {name: float(self.row.get(name) or 0.0) for name in ("reward", "entropy")}


def compact(values: Sequence[float]) -> list[int]:
    """Numbers in ten-thousandths."""
    return [round(1e4 * value) for value in values]


def whole_run(
    member: Member, steps: int, *, fault: Fault | None, chosen: TrainSettings | None = None
) -> JsonObject:
    """A run to its end: what it comes to at every look, in ten-thousandths, and the mark of its
    parameters there.
    """
    journey = Journey(member, settings_of(member, steps) if chosen is None else chosen, fault=fault)
    rows, marks = [journey.measured()], [journey.snapshot().mark]
    for step in range(1, steps + 1):
        journey.advance()
        if step % EVERY == 0:
            rows.append(journey.measured())
            marks.append(journey.snapshot().mark)
    columns = {f"{name}_1e4": compact([row[name] for row in rows]) for name in rows[0]}
    return {**columns, "marks": marks, "ended": journey.ended}


def forked(member: Member, chosen: TrainSettings, snapshot: Snapshot, updates: int) -> JsonObject:
    """The run from a snapshot without its fault."""
    journey = Journey(member, chosen, fault=None, snapshot=snapshot)
    right = [journey.measured()["right"]]
    for done in range(1, updates + 1):
        journey.advance()
        if done % EVERY == 0:
            right.append(journey.measured()["right"])
    return {"right_1e4": compact(right), "end": journey.snapshot().mark, "ended": journey.ended}


@dataclass(frozen=True)
class Piece:
    """What is run at one go."""

    name: str
    run: Callable[[JsonView], JsonObject]  # of the lines that are there; a worker's are pickled
    about: JsonView
    wanted: Callable[[JsonView], bool] = lambda _: True  # by the lines that are there


def whole(member: Member, fault: Fault | None, _: JsonView) -> JsonObject:
    """A twin, or a run with its fault."""
    return whole_run(member, HORIZONS[member.population].steps, fault=fault)


def base_piece(kind: str, member: Member, wanted: Callable[[JsonView], bool]) -> Piece:
    """A twin, whose `about` keeps the fault that it is without (where length is paid it has the
    longer limit too), or a run with its fault.
    """
    number, fault = (member.twin, None) if kind == "twin" else (member.number, member.fault)
    return Piece(f"{kind}-{number:03}", partial(whole, member, fault), asdict(member), wanted)


def grid_run(group_size: int, seed: int, steps: int) -> JsonObject:
    """A run of the larger of two behind three examples, at the rate that keeps the first update
    small.
    """
    member = Member(FIRST_UPDATE, seed, "larger_of_two", 3, 0, seed, group_size, seed, None)
    chosen = settings("adamw", GRID_RATE, group_size, seed, steps, ramp_steps=GRID_RAMP)
    return whole_run(member, steps, fault=None, chosen=chosen) | {"steps": steps}


def grid_steps(right_1e4: Sequence[int]) -> int:
    """Updates after which the pilot's mean of three looks lies a rise above its start; all of
    the pilot where it never does.
    """
    for place in range(LEAST_STEPS // EVERY, len(right_1e4)):
        if np.mean(right_1e4[place - 2 : place + 1]) - right_1e4[0] >= 1e4 * RISE:
            return EVERY * place
    return PILOT_STEPS


def grid_piece(group_size: int, seed: int, lines: JsonView) -> JsonObject:
    """A run as long as the pilot says; the pilot itself where it is not there yet."""
    steps = grid_steps(lines[PILOT]["right_1e4"]) if PILOT in lines else PILOT_STEPS
    return grid_run(group_size, seed, steps)


def pieces() -> Iterator[Piece]:
    """The pilot of the length, then whole seeds."""
    about = {"group_size": 8, "seed": PILOT_SEED}
    yield Piece(PILOT, partial(grid_piece, 8, PILOT_SEED), about)
    for seed in range(GRID_SEEDS):
        for size in GRID_SIZES:
            about = {"group_size": size, "seed": seed}
            run = partial(grid_piece, size, seed)
            yield Piece(f"grid-G{size}-seed{seed}", run, about, lambda lines: PILOT in lines)


def digest(every: Sequence[Piece]) -> str:
    """What tells one enumeration from another."""
    said = json.dumps([[piece.name, piece.about] for piece in every], sort_keys=True)
    return hashlib.sha256(said.encode()).hexdigest()[:16]


def processor() -> str:
    """The name of the processor: runs are alike bit for bit on one kind alone."""
    lines = (
        Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        if Path("/proc/cpuinfo").exists()
        else []
    )
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")),
        "unknown",
    )


def lines_of(path: Path) -> JsonObject:
    """The lines that are there, by piece; one that was torn counts as none."""
    lines = {}
    for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            line = json.loads(text)
            lines[line["piece"]] = line
        except (ValueError, TypeError, KeyError):
            continue
    return lines


def keep(path: Path, line: JsonView) -> None:
    """Add a line at one go, behind the end of a torn one."""
    torn = path.exists() and path.stat().st_size > 0 and not path.read_bytes().endswith(b"\n")
    text = ("\n" if torn else "") + json.dumps(line, separators=(",", ":")) + "\n"
    with path.open("ab", buffering=0) as file:
        file.write(text.encode())
        os.fsync(file.fileno())


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """One process a file."""
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit(
                f"expected {path.name} to be free, got another process that writes it: wait, or "
                "end that one"
            ) from None
        yield


def timed(piece: Callable[[JsonView], JsonObject], lines: JsonView) -> JsonObject:
    """Run a piece with one thread, and say where."""
    torch.set_num_threads(1)
    if DEVICE != "cpu":
        torch.use_deterministic_algorithms(mode=True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False
    began = time.monotonic()
    result = piece(lines)
    on = processor() if DEVICE == "cpu" else torch.cuda.get_device_name()
    seconds = round(time.monotonic() - began, 1)
    return {**result, "seconds": seconds, "processor": on, "torch": torch.__version__}


def run_open(every: Iterable[Piece], path: Path, *, seconds: float, workers: int = 1) -> int:
    """Run what is missing in order while its time lasts, as far as that is known, and return how
    many pieces were run.
    """
    end, took, count = time.monotonic() + seconds, dict[str, float](), 0
    running: dict[Any, Piece] = {}
    names = set(lines_of(path))

    def finish() -> int:
        ready = next(as_completed(running))
        piece = running.pop(ready)
        try:
            result = ready.result()
        except Exception:  # noqa: BLE001 - whatever it is: the other pieces are not lost for it
            traceback.print_exc()
            print(f"{piece.name} failed", flush=True)
            return 0
        took[piece.name.split("-")[0]] = result["seconds"]
        keep(path, {"piece": piece.name, **piece.about, **result})
        print(f"{piece.name}: {result['seconds']:.1f} s", flush=True)
        return 1

    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context) if workers > 1 else ThreadPoolExecutor(1)
    with alone(path), pool:
        for piece in every:
            if piece.name in names:
                continue
            if len(running) == workers:
                count += finish()
            lines = lines_of(path)
            if not piece.wanted(lines):
                continue
            if end - time.monotonic() <= took.get(piece.name.split("-")[0], 0.0):
                break
            names.add(piece.name)
            running[pool.submit(timed, piece.run, lines)] = piece
        while running:
            count += finish()
    return count


def main() -> None:
    """Run what is missing, or tell it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=3600.0,
        help="begin no piece that would end after so many (3600)",
    )
    parser.add_argument("--workers", type=int, default=1)
    asked = parser.parse_args()
    path = HERE / f"{FIRST_UPDATE}.jsonl"
    run_open(pieces(), path, seconds=asked.seconds, workers=asked.workers)


if __name__ == "__main__":
    main()
