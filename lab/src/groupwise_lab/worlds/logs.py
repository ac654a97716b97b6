r"""Logs of simulated training runs as TRL and verl write them, each with its truth: label, cause,
first sign and onset.

A policy of ability $\theta_t$ solves prompt x with probability $1/(1+e^{d_x-\theta_t})$; $\theta_t$
follows a trend and a random walk. A step draws B prompts of G completions, each with a length, cut
off at the limit, and is graded by one to three reward functions; what is logged is counted from
these completions. A kind of run changes the world from a row on and nothing before. Batch, noise,
rewards, names of the columns, which of them are missing, severity and speed are drawn anew for each
seed. Nothing is fitted or judged here.

    record, truth = run_of("length_runaway", seed=3, rows=150)
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from numpy.random import Generator
from numpy.typing import NDArray

from groupwise.arrays import Columns, Float
from groupwise.errors import InvalidArgumentError
from groupwise.record.run import Meaning, RunConfig, RunRecord, steps_table
from groupwise_lab.worlds.runs import autoregressive_noise as autoregressive

Bool = NDArray[np.bool_]
Change = tuple[
    int, int, int
]  # steps: first and last that the first sign may be put at, and that of the onset


@dataclass(frozen=True, slots=True)
class Truth:
    """What is known of a simulated run."""

    kind: str
    # healthy, recovered, overfitting, slow, flat, stalled, cutoff, zero, format, hacking,
    # declining, harder, collapse, failure
    label: str
    causes: tuple[str, ...]  # the true one first; the others cannot be told from it by such a log
    signs: tuple[int, int] | None  # rows between which the first sign is seen
    onset: int | None  # row from which the reward is harmed, or what it stands for
    also: tuple[str, ...] = ()  # names of the cause that are as right
    stands: bool = (
        False  # whether a right answer is hardly likelier at the end than in the middle of the run
    )


@dataclass(slots=True)
class World:
    """A run at every step; a kind rewrites it."""

    window: int  # steps of a row
    prompts: int  # B
    group_size: int  # G
    spread: float  # standard deviation of the prompts' difficulty, logits
    ability: Float  # theta, logits
    held_out: Float  # the same on held-out prompts
    ease: Float  # of the step's prompts, logits
    formatted: Float  # probability of the right format
    log_length: Float  # of the median completion
    length_sd: float
    limit: float  # of the completion length, tokens
    entropy: Float  # nats a token
    gradient: Float  # norm where every group teaches
    kl: Float
    mismatch: Float  # of sampler and trainer, nats
    learning_rate: Float
    identical: Float  # share of groups whose completions are all the same
    false_zero: Float  # share of completions graded as if they were empty
    impossible: Float  # share of prompts that nobody solves
    bonus: Float  # share of wrong answers that earn the reward by a loophole
    rewards: str  # the reward functions: see _functions
    format_weight: float  # of the format beside the accuracy
    framework: str  # whose names the columns have: trl or verl
    kept: bool  # whether the completions are logged
    needs: set[str] = field(default_factory=set)  # quantities that are logged in any case
    hidden: set[str] = field(default_factory=set)  # quantities that are not logged
    lost: dict[str, tuple[int, float]] = field(
        default_factory=dict
    )  # quantity -> the step from which it is a number, or NaN

    @property
    def steps(self) -> int:
        """The number of steps."""
        return int(self.ability.size)

    def lower(self, loss: Float) -> None:
        """Take something off what is solved in training and held out."""
        self.ability, self.held_out = self.ability - loss, self.held_out - loss


def _ramp(world: World, onset: float, length: float) -> Float:
    """0 before the onset, then to 1 over a stretch, slowly at first and at last."""
    place = np.clip((np.arange(world.steps) - onset) / max(length, 1e-9), 0.0, 1.0)
    return np.asarray(place * place * (3 - 2 * place))


def _when(world: World, rng: Generator, low: float = 0.3, high: float = 0.75) -> int:
    """A step in the middle of the run."""
    return int(rng.uniform(low, high) * world.steps)


def _stretch(world: World, rng: Generator, low: float = 2, high: float = 25) -> float:
    """How many steps a change takes: rows, log-uniform."""
    return float(np.exp(rng.uniform(np.log(low), np.log(high)))) * world.window


def _ability_at(world: World, level: float, place: int) -> None:
    """Lift or lower the whole run so that its ability at a step is a given one."""
    shift = level - world.ability[place]
    world.lower(-shift)


def _ability_within(world: World, place: int, low: float, high: float = np.inf) -> None:
    """The same, so that it lies between two levels."""
    _ability_at(world, float(np.clip(world.ability[place], low, high)), place)


def _stands_at(world: World, rng: Generator, onset: int) -> None:
    """Training and held-out ability hover about where they are."""
    for value in (world.ability, world.held_out):
        value[onset:] = value[onset] + 0.05 * autoregressive(rng, world.steps, 1.0, 0.9)[onset:]


# --------------------------------------------------------------------------------------------------
# healthy kinds


def _steady(world: World, rng: Generator) -> None:
    """It learns."""


def _to_the_top(world: World, rng: Generator) -> None:
    """The reward comes to its top and stays; groups are all right, the entropy is spent."""
    place = np.arange(world.steps) / world.steps
    rise = rng.uniform(3.0, 6.0) * (1 - np.exp(-rng.uniform(6, 20) * place))
    world.lower(-rise)
    world.entropy *= np.exp(-rng.uniform(0.5, 2.0) * (1 - np.exp(-6 * place)))
    world.formatted = np.maximum(world.formatted, 1 - 0.3 * np.exp(-20 * place))


def _at_top_from_the_start(world: World, rng: Generator) -> None:
    """Nearly everything is solved from the first row."""
    noise = autoregressive(rng, world.steps, 0.1, 0.95)
    world.ability, world.held_out = rng.uniform(3.5, 5.5) + noise, rng.uniform(2.5, 4.5) + noise
    world.spread = float(rng.uniform(0.3, 1.0))
    world.formatted = np.full(world.steps, rng.uniform(0.97, 1.0))


def _one_function_zero(world: World, rng: Generator) -> None:
    """A strict reward function that hardly anything earns, throughout."""
    world.rewards, world.framework = (
        str(rng.choice(["accuracy+strict", "accuracy+format+strict"])),
        "trl",
    )
    world.needs |= {"reward/accuracy", "reward/strict_format"}


def _recovered_dip(world: World, rng: Generator) -> None:
    """The reward falls and comes back."""
    onset, down, back = (
        _when(world, rng, 0.25, 0.6),
        _stretch(world, rng, 1, 6),
        _stretch(world, rng, 2, 10),
    )
    _ability_at(world, max(world.ability[onset], 0.5), onset)
    shape = _ramp(world, onset, down) - _ramp(
        world, onset + down + _stretch(world, rng, 1, 4), back
    )
    world.ability -= rng.uniform(1.0, 5.0) * shape
    if rng.random() < 0.5:
        world.entropy *= np.exp(rng.uniform(0.1, 1.0) * shape)
        world.log_length += rng.uniform(-0.4, 0.4) * shape


def _slightly_harder_prompts(world: World, rng: Generator) -> None:
    """Harder prompts from a step on that hardly dent the reward, and are learnt."""
    onset = _when(world, rng)
    world.ease -= rng.uniform(0.1, 0.35) * (np.arange(world.steps) >= onset)


def _curriculum(world: World, rng: Generator) -> None:
    """Stages, each harder than the last: the reward is a saw-tooth, and rises."""
    stages = int(rng.integers(3, 6))
    stage = np.minimum(np.arange(world.steps) * stages // world.steps, stages - 1)
    within = np.arange(world.steps) * stages / world.steps - stage
    gain, drop = rng.uniform(0.8, 1.4), rng.uniform(0.5, 0.75)
    noise = autoregressive(rng, world.steps, 0.08, 0.95)
    world.ability = rng.uniform(-1.0, 0.2) + gain * (stage + np.minimum(within * 1.5, 1.0)) + noise
    world.ease = -drop * gain * stage
    world.held_out = world.ability - rng.uniform(1.0, 3.0)


def _restart(world: World, rng: Generator) -> None:
    """Resumed from a checkpoint some rows earlier: what was learnt since is learnt again, with a
    jolt of the optimizer.
    """
    onset = _when(world, rng)
    back = min(int(rng.integers(3, 12)) * world.window, onset)
    for name in ("ability", "held_out", "entropy", "log_length", "formatted", "kl"):
        old = getattr(world, name)
        setattr(world, name, np.concatenate([old[:onset], old[onset - back : world.steps - back]]))
    world.gradient[onset : onset + 2 * world.window] *= rng.uniform(1.5, 6.0)
    world.mismatch[onset : onset + 3 * world.window] *= rng.uniform(1.0, 2.0)


def _noisy_small_batches(world: World, rng: Generator) -> None:
    """4 to 16 completions a row."""
    world.prompts, world.group_size = (
        int(n) for n in ((1, 4), (1, 8), (2, 4), (2, 8), (4, 4), (2, 2))[rng.integers(6)]
    )


def _slow_learner(world: World, rng: Generator) -> None:
    """A small gain over the whole run, of large batches."""
    gain = rng.uniform(0.4, 0.8) * np.arange(world.steps) / world.steps
    noise = autoregressive(rng, world.steps, 0.03, 0.9)
    level = rng.uniform(-1.5, 0.5)
    world.ability, world.held_out = level + gain + noise, level - 0.2 + gain + noise
    world.prompts = int(rng.choice([64, 128]))


def _reasoning_grows(world: World, rng: Generator) -> None:
    """Answers get two to six times as long while the reward rises."""
    place = np.arange(world.steps) / world.steps
    growth = rng.uniform(0.7, 1.8) * (place if rng.random() < 0.5 else 1 - np.exp(-3 * place))
    world.log_length += growth
    # The limit is set so that few are cut off at the end.
    world.limit = float(np.exp(world.log_length.max() + rng.uniform(1.3, 3.0) * world.length_sd))
    extra = rng.uniform(0.5, 1.5) * place
    world.lower(-extra)


def _warm_up_and_decay(world: World, rng: Generator) -> None:
    """The learning rate rises over the first rows and falls to 0 at the end."""
    n, few = world.steps, max(int(rng.uniform(0.03, 0.15) * world.steps), 1)
    place = np.clip((np.arange(n) - few) / max(n - few, 1), 0, 1)
    shape = np.where(
        np.arange(n) < few,
        (np.arange(n) + 1) / few,
        0.5 + 0.5 * np.cos(np.pi * place) if rng.random() < 0.5 else 1 - place,
    )
    world.learning_rate = world.learning_rate[0] * shape
    gain = rng.uniform(1.0, 2.5) * np.cumsum(shape) / shape.sum()
    noise, start = autoregressive(rng, n, 0.08, 0.95), rng.uniform(-1.5, 0.0)
    world.ability, world.held_out = start + gain + noise, start - 0.2 + 0.9 * gain + noise
    world.needs |= {"learning_rate"}


def _epochs(world: World, rng: Generator) -> None:
    """The same prompts in the same order every epoch."""
    rows = int(rng.integers(5, max(world.steps // world.window // 4, 7)))
    ease = np.repeat(rng.uniform(0.3, 0.9) * rng.standard_normal(rows), world.window)
    world.ease = np.resize(ease - ease.mean(), world.steps)


def _alternating_sources(world: World, rng: Generator) -> None:
    """An easy and a hard data source in turn."""
    world.ease = np.resize(
        rng.uniform(0.3, 1.2) * np.repeat([1.0, -1.0], world.window), world.steps
    )


def _shorter_answers(world: World, rng: Generator) -> None:
    """Answers get to a half or a third as long while the reward rises."""
    world.log_length -= rng.uniform(0.5, 1.2) * (
        1 - np.exp(-rng.uniform(3, 8) * np.arange(world.steps) / world.steps)
    )


def _isolated_spikes(world: World, rng: Generator) -> None:
    """Now and then the gradient norm of one row is ten times as large, and nothing comes of it."""
    spikes = rng.random(world.steps) < rng.uniform(0.01, 0.05)
    world.gradient *= np.where(spikes, rng.uniform(4, 30, world.steps), 1.0)


def _asynchronous(world: World, rng: Generator) -> None:
    """Samples are a few updates old, and the mismatch stands at a higher level."""
    world.mismatch *= rng.uniform(3, 10)
    world.needs |= {"sampler_mismatch", "staleness"}


# --------------------------------------------------------------------------------------------------
# neither well nor ill


def _overfitting(world: World, rng: Generator) -> Change:
    """The training reward rises to the end; the held-out one stops at a peak, or falls a little."""
    onset = _when(world, rng, 0.3, 0.6)
    _ability_at(world, float(rng.uniform(0.0, 1.0)), onset)
    place = np.arange(world.steps) / world.steps
    rise = rng.uniform(1.0, 2.0) * np.maximum(place - place[onset], 0) / (1 - place[onset])
    peak = world.held_out[onset]
    world.held_out[:onset] -= rng.uniform(0.5, 1.0) * (1 - place[:onset] / place[onset])
    fall = rng.uniform(0.0, 0.25) * np.maximum(place - place[onset], 0) / (1 - place[onset])
    world.held_out[onset:] = (peak - fall + autoregressive(rng, world.steps, 0.03, 0.9))[onset:]
    world.ability += rise
    world.needs |= {"eval/reward"}
    return onset, world.steps - 1, onset


def _group_too_small(world: World, rng: Generator) -> Change:
    """Two completions a prompt, on prompts that are nearly all easy or hard: most groups teach
    nothing.
    """
    world.group_size, world.framework = 2 if rng.random() < 0.8 else 3, "trl"
    world.rewards = "accuracy"
    world.spread = float(rng.uniform(3.0, 6.0))
    world.ability = np.clip(world.ability, -1.5, 1.0)
    world.needs |= {"dead_group_share"}
    return 0, 0, 0


def _flat(world: World, rng: Generator) -> Change:
    """Nothing is learnt, below the top: a learning rate of 0, or too small to do anything."""
    n = world.steps
    world.learning_rate = np.full(n, 0.0 if rng.random() < 0.3 else 1e-9)
    level = rng.uniform(-2.0, 0.8)
    for name in ("entropy", "log_length", "formatted"):
        setattr(world, name, np.full(n, float(np.median(getattr(world, name)))))
    world.ability, world.held_out = np.full(n, level), np.full(n, level - 0.2)
    world.kl = np.full(n, 1e-5)
    return 0, 0, 0


def _cut_off(world: World, rng: Generator) -> Change:
    """Most completions reach the limit from the first row on, and little is learnt."""
    n = world.steps
    world.log_length = (
        np.full(n, np.log(world.limit))
        + world.length_sd * rng.uniform(0.2, 2.5)
        + autoregressive(rng, n, 0.05, 0.8)
    )
    level = rng.uniform(-1.0, 1.0)
    world.ability, world.held_out = (
        level + autoregressive(rng, n, 0.05, 0.9),
        level - 0.2 + autoregressive(rng, n, 0.05, 0.9),
    )
    world.formatted = np.full(n, rng.uniform(0.5, 0.95))
    world.needs |= {"truncated_share", "completion_length"}
    return 0, 0, 0


def _format_alone(world: World, rng: Generator) -> Change:
    """The format earns all of the reward; what is wanted is earned by almost nobody."""
    n = world.steps
    world.rewards, world.framework = "accuracy+format", "trl"
    world.ability = np.full(n, rng.uniform(-9.0, -6.0))
    world.held_out = world.ability.copy()
    world.formatted = 0.98 - rng.uniform(0.4, 0.9) * np.exp(-rng.uniform(4, 15) * np.arange(n) / n)
    world.spread = float(rng.uniform(0.3, 1.0))
    world.needs |= {"reward/accuracy", "reward/format"}
    return 0, n - 1, 0


def _zero_throughout(world: World, rng: Generator) -> Change:
    """Nothing ever earns a reward: the verifier accepts nothing, or the prompts are beyond the
    policy.
    """
    world.rewards = "accuracy"
    world.false_zero = np.ones(world.steps)
    world.ability = np.full(world.steps, rng.uniform(-3, 0))
    world.entropy = world.entropy[0] * np.exp(autoregressive(rng, world.steps, 0.05, 0.9))
    world.held_out = np.full(world.steps, -30.0)
    return 0, 0, 0


# --------------------------------------------------------------------------------------------------
# failures


def _policy_breaks(
    world: World, rng: Generator, onset: int, *, grow: float, wait: float, stretch: float
) -> Change:
    """Length first, then entropy, format and what is solved."""
    _ability_within(world, onset, 0.0)
    late = onset + wait
    world.log_length += grow * _ramp(world, onset, stretch)
    world.entropy *= np.exp(
        rng.uniform(np.log(2.0), np.log(6.0)) * _ramp(world, onset + 0.3 * wait, stretch)
    )
    loss = (float(world.ability[onset]) + rng.uniform(2.5, 6.0)) * _ramp(world, late, stretch)
    world.lower(loss)
    world.formatted *= 1 - rng.uniform(0.7, 1.0) * _ramp(world, late, stretch)
    world.kl *= np.exp(rng.uniform(1.0, 4.0) * _ramp(world, onset, stretch))
    world.gradient *= np.exp(rng.uniform(0.3, 2.5) * _ramp(world, onset, stretch))
    return onset, int(onset + 0.5 * stretch + 0.3 * wait), int(late + 0.3 * stretch)


def _length_runaway(world: World, rng: Generator) -> Change:
    """The policy runs away in length: answers grow to the limit or four to ten times as long,
    entropy up, format and reward gone.
    """
    onset, stretch = _when(world, rng), _stretch(world, rng)
    grow = np.log(rng.uniform(4, 10))
    if rng.random() < 0.7:
        world.limit = float(
            np.exp(world.log_length[onset] + rng.uniform(0.4, 0.9) * grow + 2 * world.length_sd)
        )
    else:
        world.limit = float(np.exp(world.log_length.max() + grow + 3))
    world.needs |= {"completion_length", "entropy"}
    return _policy_breaks(
        world, rng, onset, grow=float(grow), wait=_stretch(world, rng, 1, 10), stretch=stretch
    )


def _length_collapse(world: World, rng: Generator) -> Change:
    """The policy comes apart: answers of a few tokens, entropy up, reward gone."""
    onset = _when(world, rng)
    world.needs |= {"completion_length", "entropy"}
    return _policy_breaks(
        world,
        rng,
        onset,
        grow=-rng.uniform(1.2, 3.5),
        wait=_stretch(world, rng, 1, 4),
        stretch=_stretch(world, rng),
    )


def _policy_collapse(world: World, rng: Generator) -> Change:
    """The policy comes apart, its answers as long as before: entropy and KL up, gradients spike,
    reward gone.
    """
    onset, stretch = _when(world, rng), _stretch(world, rng)
    late = np.arange(world.steps) >= onset
    world.gradient *= np.where(
        (rng.random(world.steps) < 0.3) & late, rng.uniform(5, 100, world.steps), 1.0
    )
    world.needs |= {"entropy", "gradient_norm"}
    return _policy_breaks(
        world,
        rng,
        onset,
        grow=rng.uniform(-0.25, 0.25),
        wait=_stretch(world, rng, 1, 4),
        stretch=stretch,
    )


def _swings(world: World, rng: Generator) -> Change:
    """The reward swings ever wider, and gradients spike."""
    onset = _when(world, rng, 0.25, 0.5)
    since, left = np.maximum(np.arange(world.steps) - onset, 0), world.steps - onset
    _ability_within(world, onset, -0.3, 1.0)
    world.ability[onset:] = world.ability[onset]
    swing = np.minimum(0.5 * np.exp(since / (0.3 * left)), 3.0) * np.sin(
        2 * np.pi * since / rng.uniform(left / 10, left / 5)
    )
    world.ability += swing * (since > 0) + autoregressive(rng, world.steps, 0.05, 0.9)
    world.held_out[onset:] = world.ability[onset:] - 0.2
    world.gradient *= np.where(
        (rng.random(world.steps) < 0.15) & (since > 0), rng.uniform(5, 60, world.steps), 1.0
    )
    world.entropy *= np.exp(rng.uniform(0.1, 0.5) * _ramp(world, onset, left))
    world.needs |= {"entropy", "gradient_norm"}
    return onset, int(onset + 0.5 * left), int(onset + 0.5 * left)


def _numerics(world: World, rng: Generator) -> Change:
    """A column is not finite from a step on, or the gradient norm leaves all bounds; then the
    reward is 0.
    """
    onset = _when(world, rng, 0.25, 0.8)
    delay = int(rng.integers(0, 4)) * world.window
    broken = onset + delay
    _ability_within(world, onset, -0.5)
    if rng.random() < 0.35:
        world.gradient[onset:] *= 10.0 ** rng.uniform(4, 16, world.steps - onset)
        broken = onset + max(delay, world.window)
        world.entropy[broken:] = rng.choice([1e-4, 9.0]) * np.exp(
            0.1 * rng.standard_normal(world.steps - broken)
        )
    else:
        first = str(rng.choice(["gradient_norm", "loss", "kl"]))
        world.needs |= {first}
        world.lost[first] = (onset, np.nan)
        for name in ("gradient_norm", "loss", "entropy", "kl", "sampler_mismatch"):
            world.lost.setdefault(name, (broken, np.nan))
    world.false_zero[broken:] = 1.0
    world.held_out[broken:] = -30.0
    # "!!!!" to the limit, or an end at once.
    world.log_length[broken:] = np.log(world.limit) + 5 if rng.random() < 0.6 else np.log(2.0)
    world.needs |= {"gradient_norm"}
    return onset, onset, broken


def _verifier(world: World, rng: Generator) -> Change:
    """All completions, or scattered ones, are graded as wrong from one step to the next; the
    policy stays where it is.
    """
    onset = _when(world, rng)
    _ability_within(world, onset, 0.0)
    share = 1.0 if rng.random() < 0.4 else float(rng.uniform(0.5, 0.9))
    world.false_zero[onset:] = share
    world.ability[onset:] = world.ability[onset] + 0.3 * (
        world.ability[onset:] - world.ability[onset]
    )
    if rng.random() < 0.5:
        world.hidden |= {"eval/reward"}
    world.needs |= {"entropy", "completion_length"}
    world.kept = share < 1.0 and rng.random() < 0.5
    return onset, onset, onset


def _harder_data(world: World, rng: Generator) -> Change:
    """From a step on most prompts are beyond the policy: whole prompts fail, and answers stay as
    they were.
    """
    onset = _when(world, rng)
    _ability_within(world, onset, 0.3, 1.5)
    world.spread = float(rng.uniform(0.5, 1.2))
    world.impossible[onset:] = rng.uniform(0.45, 0.9)
    world.log_length[onset:] += rng.uniform(0.0, 0.15)
    world.ability[onset:] = world.ability[onset] + 0.3 * (
        world.ability[onset:] - world.ability[onset]
    )
    world.needs |= {"entropy", "completion_length"}
    world.kept = rng.random() < 0.5
    return onset, onset, onset


def _sampler(world: World, rng: Generator) -> Change:
    """Sampler and trainer drift apart; effective samples fall, and with them the reward."""
    onset, stretch = _when(world, rng, 0.2, 0.5), _stretch(world, rng, 15, 50)
    _ability_within(world, onset, 0.0)
    most = np.exp(rng.uniform(np.log(0.15), np.log(3.0)))
    world.mismatch *= (most / world.mismatch[onset]) ** _ramp(world, onset, stretch)
    seen = int(np.argmax(world.mismatch > 0.15 * most))
    late = onset + 0.6 * stretch
    loss = rng.uniform(1.5, 6.0) * _ramp(world, late, _stretch(world, rng, 5, 25))
    world.lower(loss)
    world.entropy *= np.exp(rng.uniform(-0.3, 0.7) * _ramp(world, late, stretch))
    world.gradient *= np.exp(rng.uniform(0.0, 1.5) * _ramp(world, late, stretch))
    world.needs |= (
        {"sampler_mismatch", "effective_sample_size"}
        if world.framework == "verl"
        else {"sampler_mismatch"}
    )
    return onset, seen, int(late + 5 * world.window)


def _concentration(world: World, rng: Generator) -> Change:
    """The entropy is spent below the top: each prompt has one answer, right or wrong, and the
    reward stands still.
    """
    onset, stretch = _when(world, rng, 0.25, 0.6), _stretch(world, rng, 10, 30)
    _ability_within(world, onset, -1.0, 0.8)
    world.entropy *= np.exp(-rng.uniform(3.5, 6.0) * _ramp(world, onset, stretch))
    world.identical = rng.uniform(0.9, 1.0) * _ramp(world, onset, stretch)
    _stands_at(world, rng, onset)
    world.needs |= {"entropy"}
    return onset, int(onset + 0.6 * stretch), int(onset + 0.5 * stretch)


def _degeneracy(world: World, rng: Generator) -> Change:
    """The completions of a group come out the same from a step on: a seed, a cache, a
    temperature of 0.
    """
    onset = _when(world, rng)
    _ability_within(world, onset, -1.0, 1.0)
    world.identical[onset:] = rng.uniform(0.95, 1.0)
    _stands_at(world, rng, onset)
    world.needs |= {"dead_group_share", "entropy"} if world.framework == "trl" else {"entropy"}
    world.kept = world.framework == "verl"
    return onset, onset, onset


def _hacking(world: World, rng: Generator) -> Change:
    """A loophole is found: wrong answers earn the reward, and the held-out reward stops or
    falls.
    """
    onset, stretch = _when(world, rng, 0.2, 0.6), _stretch(world, rng, 8, 40)
    _ability_within(world, onset, -2.0, 0.3)
    world.bonus = rng.uniform(0.5, 0.95) * _ramp(world, onset, stretch)
    fall = rng.uniform(0.0, 1.5) * _ramp(world, onset, 1.5 * stretch)
    world.held_out[onset:] = (
        world.held_out[onset] - fall + 0.08 * autoregressive(rng, world.steps, 1.0, 0.8)
    )[onset:]
    world.ability[onset:] = (
        world.ability[onset] + 0.2 * (world.ability[onset:] - world.ability[onset]) - fall[onset:]
    )
    world.log_length += rng.uniform(0.0, 0.6) * _ramp(world, onset, stretch)
    world.needs |= {"eval/reward"}
    return onset, int(onset + 0.6 * stretch), int(onset + 0.3 * stretch)


def _hacking_true_logged(world: World, rng: Generator) -> Change:
    """The reward is a proxy that rises; the true one is logged beside it, and stays or falls."""
    log = _hacking(world, rng)
    world.rewards, world.framework = "proxy", "trl"
    world.needs |= {"reward/proxy", "reward/true"}
    world.needs -= {"eval/reward"}
    world.hidden |= {"eval/reward"}
    return log


def _declining(world: World, rng: Generator) -> Change:
    """The reward goes down by and by, by a fifth to a half, and does not come back."""
    onset = _when(world, rng, 0.2, 0.5)
    _ability_at(world, float(rng.uniform(0.8, 2.0)), onset)
    fall = rng.uniform(1.2, 2.5) * _ramp(
        world, onset, (world.steps - onset) * rng.uniform(0.7, 1.2)
    )
    world.ability[onset:] = (
        world.ability[onset] + 0.05 * autoregressive(rng, world.steps, 1.0, 0.9)[onset:]
    )
    world.lower(fall)
    world.formatted = np.full(world.steps, float(world.formatted[-1]))
    return onset, int(onset + 0.5 * (world.steps - onset)), onset


# kind -> what it does to the world, its label, its cause
_HEALTHY: Mapping[str, Callable[[World, Generator], None]] = {
    "steady": _steady,
    "to_the_top": _to_the_top,
    "at_top_from_the_start": _at_top_from_the_start,
    "one_function_zero": _one_function_zero,
    "recovered_dip": _recovered_dip,
    "slightly_harder_prompts": _slightly_harder_prompts,
    "curriculum": _curriculum,
    "restart": _restart,
    "noisy_small_batches": _noisy_small_batches,
    "slow_learner": _slow_learner,
    "reasoning_grows": _reasoning_grows,
    "warm_up_and_decay": _warm_up_and_decay,
    "epochs": _epochs,
    "alternating_sources": _alternating_sources,
    "shorter_answers": _shorter_answers,
    "isolated_spikes": _isolated_spikes,
    "asynchronous": _asynchronous,
}
_ILL: Mapping[str, tuple[Callable[[World, Generator], Change], str, tuple[str, ...]]] = {
    "length_runaway": (_length_runaway, "collapse", ("length",)),
    "length_collapse": (_length_collapse, "collapse", ("instability",)),
    "policy_collapse": (_policy_collapse, "collapse", ("instability",)),
    "swings": (_swings, "failure", ("instability",)),
    "numerics": (_numerics, "collapse", ("numerics",)),
    "verifier_broken": (_verifier, "failure", ("verifier", "harder_data")),
    "harder_data": (_harder_data, "harder", ("harder_data", "verifier")),
    "sampler_mismatch": (_sampler, "failure", ("sampler",)),
    "concentration": (_concentration, "failure", ("concentration",)),
    "degeneracy": (_degeneracy, "failure", ("degeneracy",)),
    "hacking_held_out": (_hacking, "hacking", ("hacking",)),
    "hacking_true_logged": (_hacking_true_logged, "hacking", ("hacking",)),
    "format_alone": (_format_alone, "format", ("format",)),
    "zero_throughout": (_zero_throughout, "zero", ("verifier", "harder_data", "degeneracy")),
    "cut_off": (_cut_off, "cutoff", ("truncation",)),
    "flat": (_flat, "flat", ()),
    "group_too_small": (_group_too_small, "slow", ("group",)),
    "overfitting": (_overfitting, "overfitting", ("overfitting",)),
    "declining": (_declining, "declining", ()),
}
HEALTHY = tuple(_HEALTHY)
ILL = tuple(_ILL)
KINDS = (*HEALTHY, *ILL)


def run_of(kind: str, seed: int, *, rows: int | None = None) -> tuple[RunRecord, Truth]:
    """Simulate one run: its record and what is true of it."""
    if kind not in KINDS:
        raise InvalidArgumentError(
            f"expected a kind of run, got {kind[:60]!r}: use one of {', '.join(KINDS)}"
        )
    rng = np.random.default_rng([seed, zlib.crc32(kind.encode())])
    count = int(rng.choice([60, 100, 150, 250])) if rows is None else rows
    world = _world(
        rng, count, window=1 if kind == "noisy_small_batches" else int(rng.choice([1, 1, 1, 5]))
    )
    if kind in _HEALTHY:
        _HEALTHY[kind](world, rng)
        truth = Truth(
            kind,
            "recovered" if kind == "recovered_dip" else "healthy",
            (),
            None,
            None,
            stands=_stands(world),
        )
    else:
        change, label, causes = _ILL[kind]
        first, last, onset = (
            min(step, world.steps - 1) // world.window for step in change(world, rng)
        )
        if kind in ("verifier_broken", "harder_data") and world.kept:
            causes = causes[:1]
        if kind == "flat" and not world.learning_rate.any():
            label, causes = "stalled", ("rate",)
        # A gradient norm of 1e16 is numerics to one and instability to another.
        also = ("instability",) if kind == "numerics" and not world.lost else ()
        truth = Truth(kind, label, causes, (first, last), onset, also)
    return _logged(kind, seed, world, rng), truth


def _stands(world: World) -> bool:
    """Whether the chance of a right answer gained in the second half less than a tenth of what
    it gained in all.
    """
    node, weight = np.polynomial.hermite_e.hermegauss(15)
    chance = (
        1
        / (1 + np.exp(world.spread * node - (world.ability + world.ease)[:, None]))
        @ (weight / weight.sum())
    )
    n = world.steps
    part, ends = n // 6, n // 10
    since = float(chance[n - part :].mean() - chance[n // 2 : n // 2 + part].mean())
    return since < 0.1 * float(chance[n - ends :].mean() - chance[:ends].mean())


def _world(rng: Generator, rows: int, *, window: int) -> World:
    """A run that learns."""
    n = rows * window
    place = np.arange(n) / n
    ability = rng.uniform(-2.0, 0.5) + rng.uniform(1.0, 3.0) * (
        1 - np.exp(-rng.uniform(1.5, 8.0) * place)
    )
    ability = ability + autoregressive(rng, n, rng.uniform(0.03, 0.15), 1 - 0.05 / window)
    prompts, group_size = ((8, 8), (16, 4), (16, 8), (32, 8), (64, 4), (8, 16), (4, 8))[
        rng.integers(7)
    ]
    median = rng.uniform(np.log(60), np.log(800))
    length_sd = rng.uniform(0.2, 0.5)
    drift = rng.uniform(-0.4, 0.3)
    framework = "trl" if rng.random() < 0.6 else "verl"
    schedule = 1 - place if rng.random() < 0.4 else np.ones(n)
    return World(
        window=window,
        prompts=int(prompts),
        group_size=int(group_size),
        spread=float(rng.uniform(0.5, 2.0)),
        ability=ability,
        held_out=ability - rng.uniform(0.0, 0.4) * place - rng.uniform(0.0, 0.5),
        ease=np.zeros(n),
        formatted=0.97 - rng.uniform(0.02, 0.6) * np.exp(-rng.uniform(5, 30) * place),
        log_length=median + drift * place + autoregressive(rng, n, 0.05, 0.9),
        length_sd=float(length_sd),
        limit=float(
            2
            ** np.ceil(
                np.log2(np.exp(median + max(drift, 0.0) + rng.uniform(1.8, 4.0) * length_sd))
            )
        ),
        entropy=rng.uniform(0.15, 1.0)
        * rng.uniform(0.15, 0.9) ** place
        * np.exp(autoregressive(rng, n, 0.1, 0.95)),
        gradient=10.0 ** rng.uniform(-1.5, 0.7)
        * np.exp(rng.uniform(0.15, 0.45) * rng.standard_normal(n)),
        kl=10.0 ** rng.uniform(-3, -0.5)
        * place ** rng.uniform(0.5, 1.5)
        * np.exp(autoregressive(rng, n, 0.15, 0.8))
        + 1e-5,
        mismatch=10.0 ** rng.uniform(-4, -2.3) * np.exp(autoregressive(rng, n, 0.15, 0.8)),
        learning_rate=10 ** rng.uniform(-6.5, -4.5) * schedule,
        identical=np.zeros(n),
        false_zero=np.zeros(n),
        impossible=np.zeros(n),
        bonus=np.zeros(n),
        rewards=str(
            rng.choice(
                [
                    "accuracy",
                    "accuracy",
                    "signed",
                    "small",
                    "accuracy+format",
                    "accuracy+format",
                    "graded",
                    "three",
                ]
            )
        ),
        format_weight=float(rng.choice([0.1, 0.5, 1.0])),
        framework=framework,
        kept=bool(rng.random() < 0.15),
    )


@dataclass(frozen=True, slots=True)
class _DrawnCompletions:
    """The completions of a run, by step, prompt and completion."""

    reward: Float
    functions: Columns
    length: Float
    cut: Bool


def _functions(
    world: World, rng: Generator, right: Bool, formatted: Bool, earns: Bool
) -> tuple[dict[str, Float], dict[str, float]]:
    """The reward functions, and the weight of each in the total."""
    value, shape = earns.astype(np.float64), earns.shape
    if world.rewards == "signed":
        return {"accuracy": 2 * value - 1}, {"accuracy": 1.0}
    if world.rewards == "small":
        return {"accuracy": 0.1 * value}, {"accuracy": 1.0}
    if world.rewards == "accuracy+format":
        return {"accuracy": value, "format": formatted.astype(np.float64)}, {
            "accuracy": 1.0,
            "format": world.format_weight,
        }
    if world.rewards.endswith("+strict"):
        strict = rng.random(shape) < rng.choice([0.0, 0.0005, 0.002])
        parts = {"accuracy": value} | (
            {"format": formatted.astype(np.float64)} if "+format" in world.rewards else {}
        )
        return parts | {"strict_format": strict.astype(np.float64)}, dict.fromkeys(
            [*parts, "strict_format"], 0.5
        ) | {"accuracy": 1.0}
    if world.rewards == "graded":
        noise = np.clip(0.12 * rng.standard_normal(shape), -0.2, 0.2)
        return {"quality": np.where(earns, 0.8, 0.2) + noise}, {"quality": 1.0}
    if world.rewards == "three":
        form = formatted.astype(np.float64)
        functions = {
            "match_format": 3 * form,
            "format_parts": 3 * form - 1.5,
            "check_answer": 4 * value - 1.0,
        }
        return functions, dict.fromkeys(functions, 1.0)
    if world.rewards == "proxy":
        return {"proxy": value, "true": right.astype(np.float64)}, {"proxy": 1.0, "true": 0.0}
    return {"accuracy": value}, {"accuracy": 1.0}


def _draw(world: World, rng: Generator) -> _DrawnCompletions:
    """Draw the completions."""
    shape = (world.steps, world.prompts, world.group_size)
    step = (slice(None), None, None)
    hard = rng.normal(0.0, world.spread, shape[:2])[:, :, None]
    chance = 1 / (1 + np.exp(hard - (world.ability + world.ease)[step]))
    chance = np.where(rng.random((*shape[:2], 1)) < world.impossible[step], 0.0, chance)
    length = np.exp(world.log_length[step] + world.length_sd * rng.standard_normal(shape))
    luck, manner, trick = rng.random(shape), rng.random(shape), rng.random(shape)
    same = rng.random((*shape[:2], 1)) < world.identical[step]
    luck, manner, trick, length = (
        np.where(same, drawn[:, :, :1], drawn) for drawn in (luck, manner, trick, length)
    )
    cut = length >= world.limit
    length = np.clip(np.floor(length), 1, world.limit)
    right = (luck < chance) & ~cut
    formatted = (manner < world.formatted[step]) & ~cut
    earns = right | ((trick < world.bonus[step]) & ~cut)
    empty = rng.random(shape) < world.false_zero[step]
    functions, weights = _functions(world, rng, right, formatted & ~empty, earns & ~empty)
    if world.rewards == "graded":
        quality = np.where(empty, 0.0, functions["quality"])
        functions = {"quality": np.where(same, quality[:, :, :1], quality)}
    total = sum((weights[name] * value for name, value in functions.items()), np.zeros(shape))
    return _DrawnCompletions(total, functions, length, cut)


def _held_out(world: World, rng: Generator) -> Float:
    """The mean reward on held-out prompts at every few rows, by the same functions; NaN
    elsewhere.
    """
    n, prompts = world.steps, int(rng.choice([64, 128, 256, 500]))
    hard = rng.normal(0.0, world.spread, prompts)
    share = (1 / (1 + np.exp(hard[None, :] - world.held_out[:, None]))).mean(axis=1)
    right = rng.binomial(prompts, np.clip(share, 0, 1)) / prompts
    formatted = rng.binomial(prompts, np.clip(world.formatted, 0, 1)) / prompts
    every = int(rng.choice([1, 5, 10])) * world.window if n // world.window >= 60 else world.window
    due = np.arange(1, n + 1) % every == 0
    low, gain, of_format = {
        "signed": (-1.0, 2.0, 0.0),
        "small": (0.0, 0.1, 0.0),
        "graded": (0.2, 0.6, 0.0),
        "accuracy+format": (0.0, 1.0, world.format_weight),
        "accuracy+format+strict": (0.0, 1.0, 0.5),
        "three": (-2.5, 4.0, 6.0),
    }.get(world.rewards, (0.0, 1.0, 0.0))
    return np.where(due, low + gain * right + of_format * formatted, np.nan)


def _quantities(world: World, rng: Generator, drawn: _DrawnCompletions) -> dict[str, Float]:
    """What a trainer counts at every step, by canonical quantity; of the same quantity min and
    max have a suffix.
    """
    size, rollouts = world.group_size, drawn.reward[0].size
    spread = drawn.reward.std(axis=2, ddof=1)
    dead = (np.ptp(drawn.reward, axis=2) < 1e-9).mean(axis=1)
    noise = np.exp(0.03 * rng.standard_normal((4, world.steps)))
    weights = world.mismatch * np.exp(0.1 * rng.standard_normal(world.steps))
    flat = drawn.length.reshape(world.steps, -1)
    columns = {
        "reward": drawn.reward.mean(axis=(1, 2)),
        "reward_min": drawn.reward.min(axis=(1, 2)),
        "reward_max": drawn.reward.max(axis=(1, 2)),
        "reward_std_within_group": spread.mean(axis=1),
        "dead_group_share": dead,
        "completion_length": flat.mean(axis=1),
        "completion_length_min": flat.min(axis=1),
        "completion_length_max": flat.max(axis=1),
        "truncated_share": drawn.cut.mean(axis=(1, 2)),
        "entropy": world.entropy * noise[0],
        "gradient_norm": world.gradient * np.sqrt(1 - dead) * np.sqrt(8 / min(size, 8)),
        "kl": world.kl * noise[1],
        "loss": 0.02 * rng.standard_normal(world.steps) * np.sqrt(64 / rollouts),
        "learning_rate": world.learning_rate,
        "sampler_mismatch": weights,
        "effective_sample_size": np.exp(-2 * weights)
        * np.clip(1 - 0.01 * rng.exponential(1, world.steps), 0, 1),
        "clip_ratio": np.clip(0.002 * world.gradient / np.median(world.gradient) * noise[2], 0, 1),
        "staleness": np.clip(rng.normal(2.0, 0.3, world.steps), 0, None),
        "step_time": (20 + 0.05 * flat.max(axis=1)) * noise[3],
        "eval/reward": _held_out(world, rng),
    }
    for name, value in drawn.functions.items():
        columns[f"reward/{name}"] = value.mean(axis=(1, 2))
    for name, (start, level) in world.lost.items():
        columns[name] = np.where(np.arange(world.steps) >= start, level, columns[name])
    return columns


# quantity -> the key of TRL and of verl, and how often a log has it; "" where the framework has no
# such column
_KEYS: Mapping[str, tuple[str, str, float]] = {
    "reward": ("reward", "critic/score/mean", 1.0),
    "reward_min": ("", "critic/score/min", 0.9),
    "reward_max": ("", "critic/score/max", 0.9),
    "reward_std_within_group": ("reward_std", "", 0.9),
    "dead_group_share": ("frac_reward_zero_std", "", 0.8),
    "completion_length": ("completions/mean_length", "response_length/mean", 0.95),
    "completion_length_min": ("completions/min_length", "response_length/min", 0.8),
    "completion_length_max": ("completions/max_length", "response_length/max", 0.8),
    "truncated_share": ("completions/clipped_ratio", "response_length/clip_ratio", 0.85),
    "entropy": ("entropy", "actor/entropy", 0.85),
    "gradient_norm": ("grad_norm", "actor/grad_norm", 0.9),
    "kl": ("kl", "actor/kl_loss", 0.4),
    "loss": ("loss", "actor/pg_loss", 0.9),
    "learning_rate": ("learning_rate", "actor/lr", 0.9),
    "sampler_mismatch": ("sampling/sampling_logp_difference/mean", "rollout_corr/kl", 0.4),
    "effective_sample_size": ("", "rollout_corr/rollout_is_eff_sample_size", 0.3),
    "clip_ratio": ("clip_ratio/region_mean", "actor/pg_clipfrac", 0.7),
    "staleness": ("", "training/off_policy/trajectory_staleness/mean", 0.1),
    "step_time": ("step_time", "timing_s/step", 0.7),
    "eval/reward": ("eval_reward", "val-core/math/reward/mean@1", 0.5),
}


def _key(quantity: str, world: World) -> tuple[str, float]:
    """The name of a quantity in the log, and how often a log has it."""
    if quantity.startswith("reward/"):
        name = quantity.removeprefix("reward/")
        return (f"rewards/{name}/mean", 0.8) if world.framework == "trl" else ("", 0.0)
    trl, verl, share = _KEYS[quantity]
    return (trl if world.framework == "trl" else verl), share


def _logged(kind: str, seed: int, world: World, rng: Generator) -> RunRecord:
    """Draw the completions and log them as a trainer does."""
    drawn = _draw(world, rng)
    counted = _quantities(world, rng, drawn)
    columns: dict[str, Float] = {}
    meanings: list[Meaning] = []
    for quantity, value in counted.items():
        key, share = _key(quantity, world)
        there = (
            rng.random() < share
        )  # drawn in any case, so that what a kind needs moves nothing else
        if not key or quantity in world.hidden or not (there or quantity in world.needs):
            continue
        columns[key] = _means(value, world.window, alone=quantity in world.lost)
        meanings.append(Meaning(key, quantity, f"simulated {quantity}"))
    rows = world.steps // world.window
    step = (np.arange(rows) + 1) * world.window
    settings = {
        "group_size": world.group_size,
        "prompts_per_step": world.prompts,
        "framework": world.framework,
    }
    if rng.random() < 0.7:
        settings["max_completion_length"] = int(world.limit)
    if rng.random() < 0.5:
        settings |= {
            "learning_rate": float(world.learning_rate.max()),
            "logging_steps": world.window,
        }
    table = steps_table(step.tolist(), columns, window=np.full(rows, float(world.window)))
    rollouts = _rollouts(world, drawn) if world.kept else None
    config = RunConfig().with_settings(settings, "simulated")
    return RunRecord(f"{kind}-{seed}", table, rollouts, config=config, meanings=tuple(meanings))


def _means(value: Float, window: int, *, alone: bool) -> Float:
    """Means of windows; those of a column that ends have no value where one step of theirs has
    none.
    """
    table = value.reshape(-1, window)
    finite = np.isfinite(table)
    if alone:
        return np.asarray(table.mean(axis=1))
    with np.errstate(invalid="ignore"):
        return np.where(
            finite.any(axis=1),
            np.where(finite, table, 0.0).sum(axis=1) / np.maximum(finite.sum(axis=1), 1),
            np.nan,
        )


def _rollouts(world: World, drawn: _DrawnCompletions) -> pl.DataFrame:
    """The completions as a table; of a window the last step's."""
    last = slice(world.window - 1, None, world.window)
    reward = drawn.reward[last]
    rows, prompts, size = reward.shape
    return pl.DataFrame(
        {
            "step": np.repeat((np.arange(rows, dtype=np.int64) + 1) * world.window, prompts * size),
            "prompt_id": np.tile(np.repeat(np.arange(prompts, dtype=np.int64), size), rows),
            "reward": reward.ravel(),
            "length": drawn.length[last].ravel(),
        }
    )
