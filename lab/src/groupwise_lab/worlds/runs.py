r"""Training runs as a trainer would log them, from a policy whose failures and their onset are
known.

Prompt x is solved with probability $p_x = 1/(1+e^{d_x-\theta_t})$; a step draws B prompts of G
rollouts and logs what a trainer logs of them. A failure changes the world from its onset on and
nothing before. Nothing is fitted or judged here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl
from numpy.random import Generator
from scipy.signal import lfilter

from groupwise.arrays import Float, Whole
from groupwise.errors import InvalidArgumentError
from groupwise.record.run import Meaning, RunConfig, RunRecord, steps_table

HEALTHY = (
    *(
        "trending",
        "saturated",
        "noisy",
        "small_groups",
        "windowed",
        "smoothed",
        "longer_answers",
        "wandering_entropy",
    ),
    *(
        "data_order",
        "alternating_sources",
        "single_groups",
        "length_penalty",
        "signed_reward",
        "small_reward",
        "harder_prompts",
    ),
)
FAILURES = (
    "verifier_failure",
    "reward_hacking",
    "advantage_degeneracy",
    "policy_concentration",
    "dynamical_instability",
)
SYMPTOMS = ("no_learning", "length_runaway", "collapse")


@dataclass(slots=True)
class RunState:
    """The state of a run at every step; a failure rewrites it from its onset on."""

    prompts: int  # B
    group_size: int  # G
    spread: float  # standard deviation of the prompts' difficulty, logits
    ability_T: Float  # theta, logits
    entropy_T: Float  # nats a token
    length_T: Float  # tokens
    truncated_T: Float  # share cut off
    gradient_T: Float  # norm that a step with every group live would have
    held_out_T: Float  # ability on held-out prompts, logits
    identical_T: Float  # share of groups whose rollouts are all the same
    false_zero_T: Float  # share of rollouts that the verifier grades 0 whatever they are
    bonus_T: Float  # share of the wrong rollouts that earn the reward by a loophole
    learning_rate: float = 1e-6  # of the log
    order_T: Float | float = 0.0  # ease of the step's prompts by the order of the data, logits


@dataclass(frozen=True, slots=True)
class SimulatedLog:
    """What a trainer would have logged, and the truth."""

    kind: str  # of the run
    step_R: Whole  # logged steps
    columns: Mapping[str, Float]  # key -> values by row
    window: int  # steps that a row averages
    onset: int | None  # step of the failure; None of a healthy run
    group_size: int  # G
    prompts: int  # B
    smoothed: int = 1  # rows of a moving average taken after logging
    # right answers of each group of each step, before any average
    right_TB: Whole = field(default_factory=lambda: np.empty((0, 0), dtype=np.int64))


def simulated_log(kind: str, rng: Generator, *, steps: int | None = None) -> SimulatedLog:
    """Simulate one run."""
    if kind not in (*HEALTHY, *FAILURES, *SYMPTOMS):
        raise InvalidArgumentError(
            f"expected a kind of run, got {kind[:60]!r}: use one of "
            f"{', '.join((*HEALTHY, *FAILURES, *SYMPTOMS))}"
        )
    count = int(rng.choice([80, 120, 200, 400])) if steps is None else steps
    world = _healthy_world(kind, rng, count)
    onset: int | None = None
    if kind in _BREAKS:
        place = int(rng.uniform(0.3, 0.7) * count)
        onset = 0 if kind == "no_learning" else place
        _BREAKS[kind](world, onset, rng)
    window, smoothed = (
        (int(rng.choice([5, 10])), 1)
        if kind == "windowed"
        else (1, 20 if kind == "smoothed" else 1)
    )
    if window > 1 and count // window < 30:
        world = _healthy_world(kind, rng, 40 * window)
    return _logged(kind, world, rng, window=window, smoothed=smoothed, onset=onset)


def _healthy_world(kind: str, rng: Generator, n: int) -> RunState:
    """A run that learns, settles, or stands at its top."""
    place = np.arange(n) / max(n - 1, 1)
    start, gain, speed = rng.uniform(-2.0, 0.5), rng.uniform(1.0, 3.0), rng.uniform(2.0, 8.0)
    deviation = 0.4 if kind == "noisy" else float(rng.uniform(0.02, 0.15))
    if kind == "saturated":
        start, gain = rng.uniform(2.5, 4.5), rng.uniform(0.0, 0.5)
    ability = (
        start + gain * (1 - np.exp(-speed * place)) + autoregressive_noise(rng, n, deviation, 0.9)
    )
    groups = (
        int(rng.choice([2, 3, 4]))
        if kind == "small_groups"
        else 4
        if kind == "noisy"
        else int(rng.choice([4, 8, 16]))
    )
    prompts = 2 if kind == "noisy" else int(rng.choice([8, 16, 32, 64]))
    if kind == "single_groups":
        groups, prompts = int(rng.choice([2, 4, 8])), 1
    first, last = rng.uniform(0.2, 1.2), rng.uniform(0.15, 0.9)
    wander = autoregressive_noise(rng, n, 0.35 if kind == "wandering_entropy" else 0.1, 0.95)
    length = rng.uniform(150, 600) * np.exp(
        rng.uniform(-0.5, 0.3) * place + autoregressive_noise(rng, n, 0.08, 0.8)
    )
    if kind in ("longer_answers", "length_penalty"):
        length = length * np.exp(rng.uniform(0.5, 1.5) * (1 - np.exp(-speed * place)))
    return RunState(
        prompts=prompts,
        group_size=groups,
        spread=float(rng.uniform(0.5, 2.0)),
        ability_T=ability,
        entropy_T=first * last**place * np.exp(wander),
        length_T=length,
        truncated_T=np.clip(
            rng.uniform(0.0, 0.1) * np.exp(autoregressive_noise(rng, n, 0.3, 0.5)), 0, 1
        ),
        gradient_T=rng.uniform(0.05, 2.0) * np.exp(0.35 * rng.standard_normal(n)),
        held_out_T=ability - rng.uniform(0.0, 0.4) * place,
        identical_T=np.zeros(n),
        false_zero_T=np.zeros(n),
        bonus_T=np.zeros(n),
        learning_rate=float(10 ** rng.uniform(-6.5, -4.5)),
        order_T=_order(kind, rng, n),
    )


def _order(kind: str, rng: Generator, n: int) -> Float | float:
    """Prompts in the same order every epoch, an easy and a hard data source in turn, or harder
    prompts from a step on.
    """
    if kind == "data_order":
        rows = int(rng.integers(5, max(n // 5, 6)))
        return np.resize(rng.uniform(0.5, 1.5) * rng.standard_normal(rows), n)
    if kind == "alternating_sources":
        return np.resize(rng.uniform(0.3, 2.0) * np.array([1.0, -1.0]), n)
    if kind == "harder_prompts":
        return np.where(np.arange(n) < rng.uniform(0.3, 0.7) * n, 0.0, -rng.uniform(0.7, 2.5))
    return 0.0


def _ramp(n: int, onset: int, length: float) -> Float:
    """0 before the onset, then to 1 over a stretch."""
    return np.clip((np.arange(n) - onset) / max(length, 1.0), 0.0, 1.0)


def _level(world: RunState, onset: int, rng: Generator) -> float:
    """Let the ability hover from the onset on, below the top; return where."""
    middle = float(np.clip(world.ability_T[onset], -1.0, 1.0))
    world.ability_T = world.ability_T - world.ability_T[onset] + middle
    hover = autoregressive_noise(rng, len(world.ability_T), 1.0, 0.9)
    world.ability_T[onset:] = middle + 0.05 * hover[onset:]
    return middle


def _break_verifier(world: RunState, onset: int, rng: Generator) -> None:
    """All rollouts, or most of them, are graded 0 from one step to the next; the policy stays
    where it is.
    """
    share = 1.0 if rng.random() < 0.5 else float(rng.uniform(0.5, 0.9))
    world.ability_T = np.maximum(world.ability_T, -0.5)
    world.false_zero_T[onset:] = share
    world.ability_T[onset:] = world.ability_T[onset] + 0.3 * (
        world.ability_T[onset:] - world.ability_T[onset]
    )


def _hack(world: RunState, onset: int, rng: Generator) -> None:
    """A loophole is found: wrong answers earn the reward, and the held-out ability stops or
    falls.
    """
    n = len(world.ability_T)
    # At the top of the reward a loophole has nothing left to earn.
    world.ability_T = world.ability_T - max(float(world.ability_T[onset]) - 0.7, 0.0)
    world.held_out_T = world.held_out_T - max(float(world.held_out_T[onset]) - 0.7, 0.0)
    level = world.ability_T[onset]
    world.bonus_T = np.maximum(
        world.bonus_T, rng.uniform(0.5, 0.95) * _ramp(n, onset, rng.uniform(0.1, 0.3) * n)
    )
    fall = rng.uniform(0.0, 1.5) * _ramp(n, onset, 0.3 * n)
    world.held_out_T[onset:] = (level - fall + 0.1 * autoregressive_noise(rng, n, 1.0, 0.8))[onset:]
    world.length_T = world.length_T * np.exp(rng.uniform(0.0, 0.6) * _ramp(n, onset, 0.3 * n))


def _degenerate(world: RunState, onset: int, rng: Generator) -> None:
    """The rollouts of a group come out the same: a seed, a cache, or a temperature of 0; nothing
    is learnt from there on.
    """
    n = len(world.ability_T)
    world.identical_T[onset:] = rng.uniform(0.95, 1.0)
    middle = _level(world, onset, rng)
    world.held_out_T[onset:] = middle + 0.05 * autoregressive_noise(rng, n, 1.0, 0.9)[onset:]


def _concentrate(world: RunState, onset: int, rng: Generator) -> None:
    """The entropy is spent: each prompt has one answer, right or wrong, and the reward stands
    still below the top.
    """
    n = len(world.ability_T)
    ramp = _ramp(n, onset, rng.uniform(0.1, 0.2) * n)
    world.entropy_T = world.entropy_T * np.exp(-rng.uniform(4.0, 7.0) * ramp)
    world.identical_T = np.maximum(world.identical_T, ramp * rng.uniform(0.93, 1.0))
    _level(world, onset, rng)
    world.held_out_T[onset:] = world.ability_T[onset:]


def _destabilise(world: RunState, onset: int, rng: Generator) -> None:
    """The reward swings ever wider, or the policy comes apart; gradients spike and the entropy
    rises.
    """
    n = len(world.ability_T)
    since = np.maximum(np.arange(n) - onset, 0)
    world.ability_T = (
        world.ability_T - world.ability_T[onset] + max(float(world.ability_T[onset]), 0.0)
    )
    left = n - onset
    if rng.random() < 0.5:
        period = rng.uniform(left / 10, left / 5)
        swing = (
            np.minimum(0.5 * np.exp(since / (0.3 * left)), 3.0)
            * np.sin(2 * np.pi * since / period)
            * (since > 0)
        )
        world.entropy_T = world.entropy_T * np.exp(0.3 * _ramp(n, onset, left))
    else:
        swing = -5.0 * _ramp(n, onset, 0.3 * left)
        world.entropy_T = world.entropy_T * np.exp(
            rng.uniform(1.2, 3.0) * _ramp(n, onset, 0.25 * left)
        )
        world.length_T = world.length_T * np.exp(
            rng.choice([-1.0, 1.0]) * _ramp(n, onset, 0.3 * left)
        )
    world.ability_T = world.ability_T + swing
    world.held_out_T[onset:] = world.ability_T[onset:]
    spikes = (rng.random(n) < 0.15) & (since > 0)
    world.gradient_T = world.gradient_T * np.where(spikes, rng.uniform(10, 100, n), 1.0)


def _stand_still(world: RunState, onset: int, rng: Generator) -> None:
    """A learning rate of 0, or so small that nothing moves."""
    n = len(world.ability_T)
    world.learning_rate = 0.0 if rng.random() < 0.5 else 1e-12
    for name in ("ability_T", "held_out_T", "entropy_T", "length_T"):
        setattr(world, name, np.full(n, float(getattr(world, name)[onset])))
    world.ability_T = np.clip(world.ability_T, -1.5, 1.5)
    world.entropy_T = world.entropy_T * (1 + 0.02 * rng.standard_normal(n))
    world.length_T = world.length_T * (1 + 0.03 * rng.standard_normal(n))


def _run_away(world: RunState, onset: int, rng: Generator) -> None:
    """Answers grow until most are cut off, and earn no more."""
    n = len(world.ability_T)
    ramp = _ramp(n, onset, 0.2 * n)
    world.length_T = world.length_T * np.exp(1.5 * ramp)
    world.truncated_T = np.clip(world.truncated_T + rng.uniform(0.7, 0.95) * ramp, 0, 1)
    world.ability_T[onset:] = world.ability_T[onset] - rng.uniform(0.0, 0.5) * ramp[onset:]


def _collapse(world: RunState, onset: int, rng: Generator) -> None:
    """The policy comes apart over a stretch: the reward goes to nothing, answers change."""
    n = len(world.ability_T)
    ramp = _ramp(n, onset, rng.uniform(0.03, 0.12) * n)
    world.ability_T = np.maximum(world.ability_T, -0.5) - 8.0 * ramp
    world.held_out_T[onset:] = world.ability_T[onset:]
    world.entropy_T = world.entropy_T * np.exp(rng.uniform(1.0, 3.0) * ramp)
    world.length_T = world.length_T * np.exp(rng.choice([-2.0, 1.0]) * ramp)


_BREAKS: Mapping[str, Callable[[RunState, int, Generator], None]] = {
    "verifier_failure": _break_verifier,
    "reward_hacking": _hack,
    "advantage_degeneracy": _degenerate,
    "policy_concentration": _concentrate,
    "dynamical_instability": _destabilise,
    "no_learning": _stand_still,
    "length_runaway": _run_away,
    "collapse": _collapse,
}


def _logged(
    kind: str,
    world: RunState,
    rng: Generator,
    *,
    window: int,
    smoothed: int,
    onset: int | None,
) -> SimulatedLog:
    """Draw the rollouts and log them as a trainer does."""
    n, groups, prompts = len(world.ability_T), world.group_size, world.prompts
    chance = 1 / (
        1
        + np.exp(
            rng.normal(0.0, world.spread, (n, prompts)) - (world.ability_T + world.order_T)[:, None]
        )
    )
    chance = (chance + (1 - chance) * world.bonus_T[:, None]) * (1 - world.false_zero_T[:, None])
    right = rng.binomial(groups, chance)
    same = rng.random((n, prompts)) < world.identical_T[:, None]
    right = np.where(same, groups * (rng.random((n, prompts)) < chance), right)
    share = right / groups
    zero_variance = ((right == 0) | (right == groups)).mean(axis=1)
    spread = np.sqrt(right * (groups - right) / (groups * max(groups - 1, 1))).mean(axis=1)
    live = np.sqrt(np.maximum(1 - zero_variance, 0.0))
    held = (
        rng.binomial(
            256,
            np.clip(
                (
                    1
                    / (1 + np.exp(rng.normal(0, world.spread, (n, 64)) - world.held_out_T[:, None]))
                ).mean(axis=1),
                0,
                1,
            ),
        )
        / 256
    )
    evaluated = np.where(np.arange(n) % max(n // 20, 1) == 0, held, np.nan)
    columns = {
        "reward": share.mean(axis=1),
        "reward_std": spread,
        "frac_reward_zero_std": zero_variance,
        "entropy": world.entropy_T * np.exp(0.05 * rng.standard_normal(n)),
        "grad_norm": world.gradient_T * live,
        "completions/mean_length": world.length_T * np.exp(0.05 * rng.standard_normal(n)),
        "completions/clipped_ratio": rng.binomial(
            prompts * groups, np.clip(world.truncated_T, 0, 1)
        )
        / (prompts * groups),
        "learning_rate": np.full(n, world.learning_rate),
        "eval_reward": evaluated,
    }
    _label(kind, columns, rng)
    rows = np.arange(n // window) * window
    means = {
        key: _window_means(value[: len(rows) * window], window) for key, value in columns.items()
    }
    if smoothed > 1:
        means = {
            key: value if key == "eval_reward" else _moved(value, smoothed)
            for key, value in means.items()
        }
    began = None if onset is None else onset + 1
    return SimulatedLog(
        kind,
        (rows + window).astype(np.int64),
        means,
        window,
        began,
        groups,
        prompts,
        smoothed,
        right.astype(np.int64),
    )


def _label(kind: str, columns: dict[str, Float], rng: Generator) -> None:
    """Give the rewards the grades -1 and 1, or 0 and .1, or beside them a penalty that grows
    with the answers.
    """
    if kind == "length_penalty":
        penalty = -columns["completions/mean_length"] / rng.uniform(1000, 4000)
        columns |= {"rewards/correct/mean": columns["reward"], "rewards/brevity/mean": penalty}
        weight = rng.uniform(0.05, 0.3)
        for key in ("reward", "eval_reward"):
            columns[key] = columns[key] + weight * penalty
        return
    scale, shift = {"signed_reward": (2.0, -1.0), "small_reward": (0.1, 0.0)}.get(kind, (1.0, 0.0))
    for key in ("reward", "eval_reward"):
        columns[key] = scale * columns[key] + shift
    columns["reward_std"] = scale * columns["reward_std"]


def _window_means(value_T: Float, window: int) -> Float:
    """Means of windows; of those without a value nan."""
    table = value_T.reshape(-1, window)
    finite = np.isfinite(table).sum(axis=1)
    with np.errstate(invalid="ignore"):
        return np.asarray(
            np.where(finite > 0, np.nansum(table, axis=1) / np.maximum(finite, 1), np.nan)
        )


def _moved(value_T: Float, width: int) -> Float:
    """Trailing moving average; the first rows average what is there."""
    total = np.concatenate([[0.0], np.cumsum(value_T)])
    last = np.arange(1, len(value_T) + 1)
    first = np.maximum(last - width, 0)
    return np.asarray((total[last] - total[first]) / (last - first))


def autoregressive_noise(rng: Generator, n: int, deviation: float, correlation: float) -> Float:
    """Draw stationary first-order autoregressive noise."""
    shocks = rng.standard_normal(n) * deviation
    shocks[1:] *= np.sqrt(1 - correlation**2)
    return np.asarray(lfilter([1.0], [1.0, -correlation], shocks))


_MEANINGS = {
    "reward": "reward",
    "reward_std": "reward_std_within_group",
    "frac_reward_zero_std": "dead_group_share",
    "entropy": "entropy",
    "grad_norm": "gradient_norm",
    "completions/mean_length": "completion_length",
    "completions/clipped_ratio": "truncated_share",
    "learning_rate": "learning_rate",
    "eval_reward": "eval/reward",
}


def simulated_run(
    kind: str, rng: Generator, *, steps: int | None = None, rollouts: bool = False
) -> tuple[RunRecord, int | None]:
    """Simulate one training run, healthy or with a failure, as a record."""
    log = simulated_log(kind, rng, steps=steps)
    record = record_of(log, log.columns)
    return (replace(record, rollouts=rollouts_of(log)) if rollouts else record), log.onset


def rollouts_of(log: SimulatedLog) -> pl.DataFrame:
    """Return the completions of a simulated log with their rewards: of each group the right ones
    first.
    """
    steps, prompts = log.right_TB.shape
    reward = np.arange(log.group_size) < log.right_TB[:, :, None]
    return pl.DataFrame(
        {
            "step": np.repeat(np.arange(1, steps + 1, dtype=np.int64), prompts * log.group_size),
            "prompt_id": np.tile(
                np.repeat(np.arange(prompts, dtype=np.int64), log.group_size), steps
            ),
            "reward": reward.astype(np.float64).ravel(),
        }
    )


def record_of(log: SimulatedLog, columns: Mapping[str, Float]) -> RunRecord:
    """Put columns of a simulated log into a record."""
    config = RunConfig().with_settings(
        {"group_size": log.group_size, "prompts_per_step": log.prompts, "smoothing": log.smoothed},
        "simulated",
    )
    table = steps_table(
        log.step_R.tolist(), columns, window=np.full(len(log.step_R), float(log.window))
    )
    meanings = tuple(
        Meaning(key, quantity, f"simulated {quantity}")
        for key, quantity in _MEANINGS.items()
        if key in columns
    )
    return RunRecord(log.kind, table, config=config, meanings=meanings)
