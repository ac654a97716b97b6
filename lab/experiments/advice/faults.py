"""What the trial of advice draws: members of two populations, and the fault that each of them is
given.

Everything follows from `SEED` and a member's number. A fault changes the settings, the task or the
sharpness of the policy from an update on, and nothing else; what it changes is taken back by
leaving it out. It trains nothing and reads no results.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from groupwise.errors import named
from groupwise.parsing import JsonView
from groupwise_lab.trainer.policy import Actor, Policy
from groupwise_lab.trainer.rewards import FailingVerifier, Problem, Rewards, WrappedVerifier
from groupwise_lab.trainer.settings import TrainSettings
from groupwise_lab.trainer.tasks import TASKS, Task, make_task
from groupwise_lab.trainer.text_tasks import make_text_task

SEED = 20
SMALL, LANGUAGE = "small", "language_model"
LEVELS = {"modular_addition": 2, "brackets": 6, "sorting": 5}
SEALED = "sorting"  # no result of it is looked at while rules are mended
# Tasks, and worked examples before.
FORMS = (("larger_of_two", 3), ("larger_of_two", 0), ("one_digit_sum", 0), ("sort_three", 3))
SIZES = (4, 8, 16)
STARTS = 4  # warm-ups of different seeds, a task
# Blocks of every kind on every task; the last update before which a fault begins.
BLOCKS, LEFT = 10, {SMALL: 40, LANGUAGE: 9}
RUNS = 3  # of a twin of the language model
# Times the longest answer: the limit where length is paid, as an answer needs room to grow.
STRETCH = 3

Draw = Callable[[np.random.Generator], dict[str, Any]]
RewardChange = Callable[[Rewards, Sequence[Problem], Sequence[str], Sequence[bool]], Rewards]


def ranged(low: float, high: float) -> Callable[[np.random.Generator], float]:
    """A number between two, even in its logarithm, to three digits."""
    return lambda rng: float(f"{math.exp(rng.uniform(math.log(low), math.log(high))):.3g}")


def share(low: float, high: float) -> Callable[[np.random.Generator], float]:
    """A number between two, even, to two places."""
    return lambda rng: round(float(rng.uniform(low, high)), 2)


def choice(*values: Any) -> Callable[[np.random.Generator], Any]:
    """One of some values."""
    return lambda rng: values[int(rng.integers(len(values)))]


def draws(**each: Callable[[np.random.Generator], Any]) -> Draw:
    """Numbers drawn in their order."""
    return lambda rng: {name: draw(rng) for name, draw in each.items()}


KINDS: Mapping[str, Draw] = {
    "rate": draws(factor=ranged(3, 30)),
    "lag": draws(
        lag_kind=choice("fixed", "refresh", "async"),
        refresh_interval=lambda rng: round(ranged(4, 32)(rng)),
    ),
    "small_groups": draws(group_size=choice(2)),
    "short_limit": draws(share=share(0.1, 0.6)),
    "noisy_verifier": draws(share=share(0.3, 0.95), mode=choice("zero", "one")),
    "broken_verifier": draws(mode=choice("zero", "one", "missing")),
    "loophole": draws(bonus=ranged(1.2, 6)),
    "spent_entropy": draws(
        factor=choice(2.0, 4.0, 8.0)
    ),  # powers of two: taken back without a rounding
    "hard_prompts": draws(harder=choice(1, 2)),
    "flat_reward": draws(share=share(0.8, 1)),
    "paid_length": draws(bonus=ranged(0.5, 3)),
}


@dataclass(frozen=True)
class Fault:
    """What is wrong with a run from an update on."""

    kind: str
    onset: int  # updates that are done before it begins
    size: JsonView


@dataclass(frozen=True)
class Member:
    """A run of a population: where it starts, its random numbers, and its fault; without it the
    same run is its twin.
    """

    population: str
    number: int
    task: str
    form: int  # level of a small task, worked examples of a text task
    start: int  # seed of the policy before training
    seed: int  # of prompts and sampling
    group_size: int
    twin: int  # number of the twin
    fault: Fault | None


def drawn_fault(kind: str, population: str, rng: np.random.Generator) -> Fault:
    """Half of the faults are there from the start."""
    late = bool(rng.integers(2))
    onset = int(rng.integers(1, LEFT[population] + 1))
    return Fault(kind, onset if late else 0, KINDS[kind](rng))


def small_member(number: int) -> Member:
    """A member of the population of the small transformer: every block has each kind on each
    task once, in a random order.
    """
    combinations = [(kind, task) for kind in KINDS for task in LEVELS]
    block, place = divmod(number, len(combinations))
    kind, task = combinations[
        np.random.default_rng([SEED, 0, block]).permutation(len(combinations))[place]
    ]
    rng = np.random.default_rng([SEED, 1, number])
    start, size = int(rng.integers(STARTS)), int(rng.choice(SIZES))
    return Member(
        SMALL,
        number,
        task,
        LEVELS[task],
        start,
        number,
        size,
        number,
        drawn_fault(kind, SMALL, rng),
    )


def language_member(number: int) -> Member:
    """A member of the population of the language model: three faults a twin, each kind twice and
    two of them a third time.
    """
    kinds = [
        kind
        for block in range(3)
        for kind in np.random.default_rng([SEED, 2, block]).permutation(list(KINDS))
    ]
    twin = number // RUNS
    forms = [
        FORMS[place]
        for block in range(2)
        for place in np.random.default_rng([SEED, 3, block]).permutation(len(FORMS))
    ]
    task, examples = forms[twin]
    rng = np.random.default_rng([SEED, 4, number])
    return Member(
        LANGUAGE,
        number,
        task,
        examples,
        0,
        twin,
        8,
        twin,
        drawn_fault(str(kinds[number]), LANGUAGE, rng),
    )


def members(population: str) -> list[Member]:
    """All of a population, in the order in which they are run."""
    if population == LANGUAGE:
        return [language_member(number) for number in range(24)]
    return [small_member(number) for number in range(BLOCKS * len(KINDS) * len(LEVELS))]


@dataclass(frozen=True)
class Changed(WrappedVerifier):
    """A verifier whose rewards are changed: one mark for all completions of some problems, a bonus
    for the share of a symbol in every part, or for length as a part of its own.
    """

    change: RewardChange
    paid: JsonView = field(default_factory=dict)  # weight of each part that is added

    @property
    def weights(self) -> Mapping[str, float]:
        return {**self.inner.weights, **self.paid}

    def __call__(
        self,
        problems: Sequence[Problem],
        completions: Sequence[str],
        ended: Sequence[bool],
        *,
        step: int = 0,
    ) -> Rewards:
        rewards = self.inner(problems, completions, ended, step=step)
        return self.change(rewards, problems, completions, ended)


def marks(problems: Sequence[Problem], seed: int) -> Any:
    """A number from 0 to 1 of each problem."""
    return np.array([zlib.crc32(f"{seed} {problem.text}".encode()) / 2**32 for problem in problems])


def faulty_settings(fault: Fault, settings: TrainSettings) -> TrainSettings:
    """The settings with the fault in them."""
    size = fault.size
    if fault.kind == "rate":
        return replace(settings, learning_rate=size["factor"] * settings.learning_rate)
    return replace(settings, **size) if fault.kind in {"lag", "small_groups"} else settings


def healthy_task(member: Member) -> Task:
    """The task of a member's twin."""
    if member.population != SMALL:
        return make_text_task(member.task, examples=member.form)
    task = make_task(member.task, level=member.form)
    paid = member.fault is not None and member.fault.kind == "paid_length"
    return replace(task, completion_length=STRETCH * task.completion_length) if paid else task


def faulty_task(member: Member, task: Task) -> Task:
    """The task with the member's fault in it."""
    fault, judge, length = member.fault, task.verifier, task.completion_length
    assert fault is not None
    size, small = fault.size, member.population == SMALL
    match fault.kind:
        case "short_limit":
            return replace(task, completion_length=max(1, math.floor(size["share"] * length)))
        case "noisy_verifier" | "broken_verifier":
            judge = FailingVerifier(
                judge, share=size.get("share", 1.0), mode=size["mode"], seed=member.seed
            )
        case "loophole":
            bait = named(member.task, TASKS, "a task").bait if small else "9"
            judge = Changed(
                judge,
                lambda rewards, _, texts, __: {
                    name: reward_N
                    + size["bonus"]
                    * np.array([text.count(bait) / max(1, len(text)) for text in texts])
                    for name, reward_N in rewards.items()
                },
            )
        case "paid_length":
            judge = Changed(
                judge,
                lambda rewards, _, texts, __: {
                    **rewards,
                    "length": np.array([min(1.0, len(text) / length) for text in texts]),
                },
                {"length": size["bonus"]},
            )
        case "flat_reward":
            judge = Changed(
                judge,
                lambda rewards, problems, *_: {
                    name: np.where(marks(problems, member.seed) < size["share"], 0.5, reward_N)
                    for name, reward_N in rewards.items()
                },
            )
        case "hard_prompts":
            hard = (
                make_task(member.task, level=member.form + size["harder"])
                if small
                else harder_text(size["harder"], member.form)
            )
            return replace(hard, held_out=task.held_out)
    return replace(task, verifier=judge)


def harder_text(harder: int, examples: int) -> Task:
    """A text task that SmolLM2 seldom does."""
    return make_text_task(("letters", "expressions")[harder - 1], examples=examples)


def sharpness(actor: Actor) -> Any:
    """The weights that multiply every logit: those of the head, or of a language model's last
    norm, which nothing trains.
    """
    language: Any = actor
    return (
        actor.head.weight
        if isinstance(actor, Policy)
        else language.model.get_base_model().model.norm.weight
    )
