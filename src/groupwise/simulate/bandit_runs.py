r"""Thousands of training runs of a softmax bandit at once, sampled or as their exact expectation: the judge of the dynamics.

Arms are the first axis and replicates the last, so that every operation runs along memory. Replicates come in blocks of 250, each with
its own stream of random numbers, one uniform number a rollout whatever the other settings: a seed gives the same runs to the last bit
for any size of the chunks, any number of workers, and, as common random numbers, for any learning rate, momentum, lag or weight.
It knows no estimator, no law and no record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from groupwise.arrays import checked_shape
from groupwise.errors import InvalidArgumentError
from groupwise.simulate.bandit_groups import ArmCounter, Index, arm_sum, drawn_arms, expectation_method, group_means
from groupwise.simulate.bandit_settings import Bandit, Float, Training
from groupwise.simulate.bandit_updates import Update
from groupwise.simulate.workers import Tick, run_parts, shared_array, usable_workers

BLOCK = 250
_WORKING_BYTES = 32_000_000
_KEPT_BYTES = 200_000_000
_MOST_BYTES = 2_000_000_000
_MOST_CHUNK = 8000

Quantity = Literal["value", "reward", "reward_std", "dead_share", "kl", "entropy"]
EXACT_QUANTITIES: tuple[Quantity, ...] = ("value", "kl", "entropy")


@dataclass(frozen=True, slots=True)
class BanditRuns:
    """What simulated runs left."""

    step_T: NDArray[np.int64]  # how many updates had been made before each record; the last is that after all of them
    # quantity -> array (T, S). "value": exact expected reward of the policy; "kl": exact divergence from the
    # reference, nats; "entropy": exact, nats; "reward": mean reward of the rollouts of the next update;
    # "reward_std": mean over its groups of the deviation within, ddof 1; "dead_share": share of its groups
    # whose rewards are all equal. Quantities of rollouts have no last record
    series: dict[Quantity, Float]
    logit_AS: Float  # parameters at the end
    method: str  # "sampled", or how the expectation was computed
    seed: int | None  # of the random numbers; None for the expectation
    chunk_size: int  # replicates that were stepped together

    @property
    def value(self) -> Float:
        """The exact expected reward, (T, S)."""
        return self.series["value"]


@dataclass(slots=True)
class _Plan:
    """What is recorded, when, and into what."""

    keep: tuple[Quantity, ...]
    every: int
    steps: int
    series: dict[Quantity, Float]


def simulate_bandit(
    bandit: Bandit,
    training: Training,
    *,
    steps: int,
    replicates: int = 1000,
    seed: int = 0,
    start_A: ArrayLike | None = None,
    keep: Sequence[Quantity] = ("value",),
    every: int = 1,
    precision: Literal["float32", "float64"] = "float64",
    chunk_size: int | None = None,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> BanditRuns:
    r"""Simulate independent training runs with sampled rollouts.

    $\hat g = \sum_a b_a(e_a - \pi) - \beta\nabla KL$, $b_a$ the mean over groups of $c_a w_a A_a/G$.
    """
    kept = _checked(steps=steps, replicates=replicates, every=every, keep=keep, known=get_args(Quantity))
    _check_run(seed, precision, chunk_size, workers)
    number = np.dtype(precision)
    start = _one_start(bandit, start_A, number)
    whole = -(-replicates // BLOCK) * BLOCK
    processes = usable_workers(workers)
    width = _chunk(chunk_size, bandit, training, number, share=-(-whole // processes), steps=steps)
    shared = processes > 1 and width < whole
    plan = _Plan(kept, every, steps, _empty(kept, steps, every, replicates, number, shared=shared))
    final_AS = shared_array((bandit.arms, replicates), number, shared=shared)

    def run(first: int, tick: Tick) -> None:
        columns = min(width, whole - first)
        update = Update(bandit, training, np.repeat(start, columns, axis=1))
        draws = _Draws(training, seed, range(first // BLOCK, (first + columns) // BLOCK))
        _run_chunk(update, plan, slice(first, min(first + columns, replicates)), draws, tick)
        final_AS[:, first : first + columns] = update.logit_AS[:, : replicates - first]

    run_parts(range(0, whole, width), run, workers=processes if shared else 1, total=steps * whole, progress=progress)
    return BanditRuns(_times(steps, every), plan.series, final_AS, "sampled", seed, width)


def expected_path(
    bandit: Bandit,
    training: Training,
    *,
    steps: int,
    start_AS: ArrayLike | None = None,
    learning_rate_S: ArrayLike | None = None,
    keep: Sequence[Quantity] = ("value",),
    every: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> BanditRuns:
    r"""Step the parameters with the expectation of the gradient given the parameters, which has no noise."""
    kept = _checked(steps=steps, replicates=1, every=every, keep=keep, known=EXACT_QUANTITIES)
    start = _start(bandit, start_AS, np.dtype(np.float64))
    rate_S = None if learning_rate_S is None else np.asarray(learning_rate_S, dtype=np.float64)
    if rate_S is not None and (rate_S.ndim != 1 or not np.isfinite(rate_S).all() or (rate_S <= 0).any()):
        raise InvalidArgumentError("expected a positive learning rate for each path: give learning_rate_S as one row of numbers")
    paths = max(start.shape[1], 1 if rate_S is None else len(rate_S))
    if start.shape[1] not in (1, paths) or (rate_S is not None and len(rate_S) not in (1, paths)):
        raise InvalidArgumentError(
            f"expected as many learning rates as starts, got {1 if rate_S is None else len(rate_S)} and {start.shape[1]}: "
            "give one of each for every path, or a single one for all"
        )
    plan = _Plan(kept, every, steps, _empty(kept, steps, every, paths, np.dtype(np.float64)))
    update = Update(bandit, training, np.array(np.broadcast_to(start, (bandit.arms, paths))), learning_rate_S=rate_S)

    def run(_first: int, tick: Tick) -> None:
        _run_chunk(update, plan, slice(0, paths), None, tick)

    run_parts((0,), run, workers=1, total=steps * paths, progress=progress)
    return BanditRuns(_times(steps, every), plan.series, update.logit_AS, expectation_method(bandit.arms, training), None, paths)


def drawn_arms_of(bandit: Bandit, training: Training, *, steps: int, seed: int = 0) -> NDArray[np.int64]:
    """Return the arms that the first replicate of `simulate_bandit` draws in its first updates, in the order of drawing."""
    _checked(steps=steps, replicates=1, every=1, keep=(), known=EXACT_QUANTITIES)
    _check_run(seed, "float64", None, None)
    update = Update(bandit, training, np.repeat(_start(bandit, None, np.dtype(np.float64)), BLOCK, axis=1))
    draws, counts = _Draws(training, seed, range(1)), _Counts(update)
    arm_TPG = np.empty((steps, training.prompts, training.group_size), np.int64)
    for step in range(steps):
        update.choose_sampling_policy()
        uniform_GPS = draws.next()
        arm_TPG[step] = drawn_arms(uniform_GPS[..., :1], update.sampling.threshold_AS[:, :1])[..., 0]
        counts.draw(uniform_GPS)
        update.apply(counts.count_APS)
    return arm_TPG


class _Draws:
    """The uniform 32-bit numbers of a chunk: each block of replicates has its own stream, read a few updates ahead."""

    def __init__(self, training: Training, seed: int, blocks: range) -> None:
        self._streams = [np.random.SFC64(np.random.SeedSequence(seed, spawn_key=(block,))) for block in blocks]
        self._shape = (training.group_size, training.prompts, BLOCK)
        self._each = training.group_size * training.prompts * BLOCK
        self._ahead = max(1, min(16, _WORKING_BYTES // (8 * self._each * len(blocks))))
        self._uniform_XGPS = np.empty((self._ahead, *self._shape[:2], BLOCK * len(blocks)), np.uint32)
        self._used = self._ahead

    def next(self) -> Index:
        """Return uniform_GPS of the next update; the array is used again a few updates later."""
        if self._used == self._ahead:
            for place, stream in enumerate(self._streams):
                # The halves of a 64-bit number, the low one first on any machine.
                word = np.asarray(stream.random_raw(self._ahead * self._each // 2)).astype("<u8", copy=False)
                self._uniform_XGPS[..., place * BLOCK : (place + 1) * BLOCK] = word.view("<u4").reshape(self._ahead, *self._shape)
            self._used = 0
        self._used += 1
        uniform_GPS: Index = self._uniform_XGPS[self._used - 1]
        return uniform_GPS


def _run_chunk(update: Update, plan: _Plan, columns: slice, draws: _Draws | None, tick: Tick) -> None:
    """Step one chunk through all its updates."""
    counts = None if draws is None else _Counts(update)
    pending = 0
    for step in range(plan.steps):
        recording = step % plan.every == 0
        if recording:
            _record(update, plan, step // plan.every, columns, EXACT_QUANTITIES)
        update.choose_sampling_policy()
        if counts is not None and draws is not None:
            counts.draw(draws.next())
            if recording:
                counts.record(plan, step // plan.every, columns)
            update.apply(counts.count_APS)
        else:
            update.apply(None)
        pending += update.columns
        if pending >= 200 * update.columns or step == plan.steps - 1:
            tick(pending)
            pending = 0
    _record(update, plan, -1, columns, EXACT_QUANTITIES)


class _Counts:
    """How often each arm came in each group of the present update."""

    def __init__(self, update: Update) -> None:
        training = update.training
        self._counter = ArmCounter(update.bandit.arms, training.group_size, (training.prompts, update.columns), update.number)
        self._update = update
        self.count_APS = self._counter.count_APS

    def draw(self, uniform_GPS: Index) -> None:
        """Count for one update."""
        self._counter.count(uniform_GPS, self._update.sampling.threshold_AS)

    def record(self, plan: _Plan, row: int, columns: slice) -> None:
        """Write what rollouts show, of the rewards without any KL term."""
        width, size = columns.stop - columns.start, self._update.training.group_size
        reward_A = self._update.bandit.reward_A
        reward_A11 = reward_A.astype(self.count_APS.dtype)[:, None, None]
        for name in plan.keep:
            if name == "reward":
                found_S = group_means(self.count_APS, reward_A11, size).mean(axis=0)
            elif name == "reward_std":
                found_S = _spread(self.count_APS, reward_A11, size).mean(axis=0)
            elif name == "dead_share":
                found_S = _dead(self.count_APS, reward_A, size).mean(axis=0)
            else:
                continue
            plan.series[name][row, columns] = found_S[:width]


def _spread(count_APS: Float, reward_A11: Float, size: int) -> Float:
    """Standard deviation of each group, ddof 1; 0 for a group of one."""
    distance_APS = reward_A11 - group_means(count_APS, reward_A11, size)
    variance_PS = arm_sum(count_APS, distance_APS**2) / count_APS.dtype.type(max(size - 1, 1))
    return np.sqrt(variance_PS, out=variance_PS)


def _dead(count_APS: Float, reward_A: NDArray[np.float64], size: int) -> NDArray[np.bool_]:
    """Whether all rewards of each group are equal."""
    dead_PS = np.zeros(count_APS.shape[1:], dtype=bool)
    for reward in np.unique(reward_A):
        dead_PS |= np.add.reduce(count_APS[reward_A == reward], axis=0) == size
    return dead_PS


def _record(update: Update, plan: _Plan, row: int, columns: slice, names: tuple[Quantity, ...]) -> None:
    """Write the exact quantities of the present policy."""
    width = columns.stop - columns.start
    for name in plan.keep:
        if name in names:
            plan.series[name][row, columns] = update.exact(name)[:width]


def _checked(*, steps: int, replicates: int, every: int, keep: Sequence[Quantity], known: tuple[Quantity, ...]) -> tuple[Quantity, ...]:
    """Refuse numbers below one and unknown quantities."""
    for what, value in (("number of steps", steps), ("number of replicates", replicates), ("distance of records", every)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise InvalidArgumentError(f"expected a {what} of at least 1, got {value}: give a whole number")
    strangers = [name for name in keep if name not in known]
    if strangers:
        raise InvalidArgumentError(f"expected quantities to keep, got {str(strangers[0])[:60]!r}: use some of {', '.join(known)}")
    return tuple(dict.fromkeys(keep))


def _check_run(seed: int, precision: str, chunk_size: int | None, workers: int | None) -> None:
    """Refuse what no run can have."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise InvalidArgumentError(f"expected a seed of at least 0, got {seed}: give a whole number")
    if precision not in ("float32", "float64"):
        raise InvalidArgumentError(f"expected a precision, got {str(precision)[:60]!r}: use float32 or float64")
    for what, value in (("chunk of at least 1 replicate", chunk_size), ("number of workers of at least 1", workers)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1):
            raise InvalidArgumentError(f"expected a {what}, got {value}: leave it out to have it chosen")


def _one_start(bandit: Bandit, start: ArrayLike | None, number: np.dtype[Any]) -> Float:
    """The logits at the start that all replicates share, as one column."""
    column = _start(bandit, start, number)
    if column.shape[1] != 1:
        raise InvalidArgumentError(f"expected one start for all replicates, got {column.shape[1]}: simulate each by itself")
    return column


def _start(bandit: Bandit, start: ArrayLike | None, number: np.dtype[Any]) -> Float:
    """The logits at the start as columns."""
    if start is None:
        return np.log(bandit.reference_A)[:, None].astype(number)
    logit = np.asarray(start)
    logit = checked_shape("the start", logit, dimensions=2 if logit.ndim == 2 else 1).astype(number)
    if len(logit) != bandit.arms or not np.isfinite(logit).all():
        raise InvalidArgumentError(f"expected {bandit.arms} finite logits at the start, got shape {logit.shape}: give one an arm")
    return logit if logit.ndim == 2 else logit[:, None]


def _chunk(asked: int | None, bandit: Bandit, training: Training, number: np.dtype[Any], *, share: int, steps: int) -> int:
    """Replicates of a chunk, in whole blocks: those asked for, else an equal part of one worker's share that is not too large."""
    # A fixed lag keeps, for each update of it, a policy, its thresholds and its rewards.
    kept = min(training.interval, steps) if training.lag == "fixed" else 0
    bytes_kept = kept * bandit.arms * (2 * number.itemsize + 4)
    if bytes_kept * BLOCK > _MOST_BYTES:
        raise InvalidArgumentError(
            f"expected a fixed lag whose policies fit into memory, got {kept} updates of {bandit.arms} arms: take a shorter lag"
        )
    if asked is not None:
        return -(-asked // BLOCK) * BLOCK
    bytes_each = number.itemsize * training.prompts * (3 * training.group_size + 5 * bandit.arms)
    most = max(BLOCK, min(_MOST_CHUNK, _WORKING_BYTES // bytes_each, _KEPT_BYTES // max(bytes_kept, 1)) // BLOCK * BLOCK)
    parts = -(-share // most)
    return -(-share // (parts * BLOCK)) * BLOCK


def _times(steps: int, every: int) -> NDArray[np.int64]:
    """Updates made before each record."""
    return np.append(np.arange(0, steps, every), steps)


def _empty(
    keep: tuple[Quantity, ...], steps: int, every: int, columns: int, number: np.dtype[Any], *, shared: bool = False
) -> dict[Quantity, Float]:
    """Arrays for the records; quantities of rollouts have no record after the last update."""
    rows = len(_times(steps, every))
    return {name: shared_array((rows if name in EXACT_QUANTITIES else rows - 1, columns), number, shared=shared) for name in keep}
