r"""Thousands of training runs of a softmax bandit at once, sampled or as their exact expectation:
the judge of the dynamics.

Arms are the first axis and replicates the last, so that every operation runs along memory, and a
replicate does not feel how many others are beside it. Replicates come in blocks of 250, each with
its own stream of random numbers, one uniform number a rollout whatever the other settings: a seed
gives the same runs to the last bit for any size of the chunks and, as common random numbers, for
any learning rate, momentum, lag or weight.

A group is a count vector $c$; the update's gradient is $\sum_a b_a (e_a - \pi)$ with $b_a$ the mean
over groups of $c_a w_a A_a / G$. The advantages are these lines' own: no estimator, no law and no
record is known here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from math import comb
from typing import Any, Literal, assert_never, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from groupwise.arrays import Whole, checked_shape, finite_array
from groupwise.errors import InvalidArgumentError
from groupwise.plain import frozen
from groupwise_lab.fields import check_whole
from groupwise_lab.simulate.softmax_bandit import Bandit, Real, Training

Whole32 = NDArray[np.uint32]

MOST_COUNT_VECTORS = 50_000
_MOST_NUMBERS = 4_000_000
_SLAB_BYTES = 1_000_000


def thresholds(policy_AS: Real) -> Whole32:
    """Return, for all arms but the last, the 32-bit number below which a uniform one means this arm
    or one before it.

    A probability is thus met to 3e-10; that is also how often the last arm is drawn where the
    policy leaves it out.
    """
    cumulated_AS = np.empty_like(policy_AS[:-1])
    cumulated_AS[0] = policy_AS[0]
    # np.cumsum along the first axis takes twenty times as long.
    for before, probability, after in zip(
        cumulated_AS[:-1], policy_AS[1:-1], cumulated_AS[1:], strict=True
    ):
        np.add(before, probability, out=after)
    cumulated_AS *= 2.0**32
    # The sum may have been rounded up to 1, and 2^32 is no 32-bit number.
    np.minimum(cumulated_AS, 4294967295.0, out=cumulated_AS)
    return cumulated_AS.astype(np.uint32)


class ArmCounter:
    """Counts how often each arm is drawn, in arrays that are used again."""

    def __init__(self, arms: int, group_size: int, shape: tuple[int, int]) -> None:
        """Set the arrays up."""
        whole = np.uint8 if group_size < 256 else np.uint32
        self.count_APS: Real = np.empty((arms, *shape))
        self._size = group_size
        self._below_APS = np.empty((arms - 1, *shape), whole)
        # As many rollouts at once as fit into the cache: few long operations let two threads run
        # side by side.
        slab = max(1, min(group_size, _SLAB_BYTES // self._below_APS.size))
        self._less_XAPS = np.empty((slab, arms - 1, *shape), bool)
        self._whole_APS = np.empty((arms, *shape), whole)

    def count(self, uniform_GPS: Whole32, threshold_AS: Whole32) -> Real:
        """Return count_APS, which the next call overwrites."""
        below, whole, threshold = self._below_APS, self._whole_APS, threshold_AS[:, None]
        slab = len(self._less_XAPS)
        for first in range(0, self._size, slab):
            part = uniform_GPS[first : first + slab, None]
            less = np.less(part, threshold, out=self._less_XAPS[: len(part)]).view(np.uint8)
            if first:
                below += np.add.reduce(less, axis=0, dtype=below.dtype)
            else:
                np.add.reduce(less, axis=0, dtype=below.dtype, out=below)
        whole[0] = below[0]
        np.subtract(below[1:], below[:-1], out=whole[1:-1])
        np.subtract(self._size, below[-1], out=whole[-1])
        self.count_APS[...] = whole
        return self.count_APS


def arm_sum(first_APS: Real, second_APS: Real) -> Real:
    """Sum products over arms; replicates are the innermost axis, so no column's sum depends on
    how many columns there are.
    """
    total: Real = np.add.reduce(first_APS * second_APS, axis=0)
    return total


def advantages(count_APS: Real, reward_APS: Real, training: Training) -> Real:
    r"""Return the advantage that a rollout of each arm has in each group.

    vanilla $r_a$; full_group_mean $r_a - \bar r$; leave_one_out $(r_a - \bar r)G/(G-1)$;
    std_normalised $(r_a - \bar r)/(s + \epsilon)$ with s of the group, ddof 1; batch_std the same
    with s of all groups of the update.
    """
    kind, size, groups = training.advantage, training.group_size, count_APS.shape[1]
    if kind == "vanilla":
        return np.broadcast_to(reward_APS, count_APS.shape)
    mean_PS = arm_sum(count_APS, reward_APS) / size
    centred_APS: Real = reward_APS - mean_PS
    if kind == "leave_one_out":
        centred_APS *= size / (size - 1)
    elif kind == "std_normalised":
        square_PS = arm_sum(count_APS, centred_APS * centred_APS)
        centred_APS /= np.sqrt(square_PS / (size - 1)) + training.deviation_floor
    elif kind == "batch_std":
        rollouts = size * groups
        distance_APS = reward_APS - mean_PS.mean(axis=0)
        square_S = arm_sum(count_APS, distance_APS * distance_APS).sum(axis=0)
        centred_APS /= np.sqrt(square_S / (rollouts - 1)) + training.deviation_floor
    return centred_APS


def importance_weight(ratio_AS: Real, advantage_APS: Real, training: Training) -> Real:
    """Return the weight of a rollout: its ratio, but of PPO's clipped surrogate 0 where clipping
    has flattened it.
    """
    ratio = ratio_AS[:, None]
    if training.ratio != "clipped":
        return ratio
    flat = np.where(advantage_APS > 0, ratio > 1 + training.clip, ratio < 1 - training.clip)
    return np.where(flat, 0.0, ratio)


def coefficients(
    count_APS: Real, reward_AS: Real, ratio_AS: Real | None, training: Training
) -> Real:
    r"""Return $b_a$, the mean over groups of $c_a w_a A_a/G$."""
    groups = count_APS.shape[1]
    advantage_APS = advantages(count_APS, reward_AS[:, None], training)
    weighted_APS = np.multiply(
        count_APS,
        advantage_APS,
        out=advantage_APS if training.centred and training.ratio != "clipped" else None,
    )
    if ratio_AS is not None:
        weighted_APS *= importance_weight(ratio_AS, advantage_APS, training)
    total_AS: Real = weighted_APS[:, 0] if groups == 1 else np.add.reduce(weighted_APS, axis=1)
    total_AS *= 1 / (training.group_size * groups)
    return total_AS


def expectation_method(arms: int, training: Training) -> str:
    """Say how the expectation of the coefficients is computed for this many arms."""
    if _is_linear(training):
        return "closed form"
    return f"enumeration of {_enumerated_vectors(arms, training)} count vectors"


def _is_linear(training: Training) -> bool:
    """Whether what a rollout counts is linear in the rewards."""
    return training.ratio != "clipped" and training.advantage in (
        "vanilla",
        "full_group_mean",
        "leave_one_out",
    )


def _enumerated_vectors(arms: int, training: Training) -> int:
    """How many count vectors the expectation is a sum over; raise where they are too many, or do
    not tell the whole batch.
    """
    vectors = comb(_enumerated_size(training) + arms - 1, arms - 1)
    distinct = (
        training.ratio != "clipped" or training.advantage != "batch_std" or training.prompts == 1
    )
    if not distinct or vectors > MOST_COUNT_VECTORS:
        raise InvalidArgumentError(
            f"expected groups whose outcomes can be counted, at most {MOST_COUNT_VECTORS:,} of "
            f"them and not clipped across a batch, got {vectors:,}: take fewer arms or rollouts, "
            "or a sampled run"
        )
    return vectors


def _enumerated_size(training: Training) -> int:
    """How many rollouts share one deviation."""
    return training.group_size * (training.prompts if training.advantage == "batch_std" else 1)


def expected_coefficients(
    policy_AS: Real, reward_AS: Real, ratio_AS: Real | None, training: Training
) -> Real:
    r"""Return the expectation of $b_a$ over groups drawn from the sampling policy.

    Closed form where the advantage is linear in the rewards: $\pi_a w_a r_a$ (vanilla), $\pi_a w_a
    (r_a - V)$ (leave-one-out), $(G-1)/G$ times that (full group mean). Else the sum over all count
    vectors.
    """
    if _is_linear(training):
        value_S = 0.0 if training.advantage == "vanilla" else (policy_AS * reward_AS).sum(axis=0)
        shrunk = (
            (training.group_size - 1) / training.group_size
            if training.advantage == "full_group_mean"
            else 1.0
        )
        linear_AS: Real = shrunk * policy_AS * (reward_AS - value_S)
        return linear_AS if ratio_AS is None else linear_AS * ratio_AS
    whole_AS = np.broadcast_to(reward_AS, policy_AS.shape)
    vectors = _enumerated_vectors(len(policy_AS), training)
    width = max(1, _MOST_NUMBERS // (len(policy_AS) * vectors))
    parts = []
    for first in range(0, policy_AS.shape[1], width):
        columns = slice(first, first + width)
        parts.append(
            _enumerated(
                policy_AS[:, columns],
                whole_AS[:, columns],
                None if ratio_AS is None else ratio_AS[:, columns],
                training,
            )
        )
    return np.concatenate(parts, axis=1)


def _enumerated(
    policy_AS: Real, reward_AS: Real, ratio_AS: Real | None, training: Training
) -> Real:
    """Sum over every count vector; for `batch_std` over those of the whole batch, whose groups
    are hypergeometric given the total.
    """
    size = _enumerated_size(training)
    count_AM, weight_M = count_vectors(policy_AS.shape[0], size)
    alone = Training(
        1.0, size, advantage="std_normalised", deviation_floor=training.deviation_floor
    )
    one_group = alone if training.advantage == "batch_std" else training
    advantage_AMS = advantages(
        np.repeat(count_AM[:, :, None], policy_AS.shape[1], axis=2), reward_AS[:, None], one_group
    )
    with np.errstate(divide="ignore"):
        log_policy_AS = np.maximum(np.log(policy_AS), -1e300 / size)
    probability_MS = np.exp(weight_M[:, None] + count_AM.T @ log_policy_AS)
    weighted_AMS = count_AM[:, :, None] * advantage_AMS * probability_MS
    if ratio_AS is not None:
        weighted_AMS *= importance_weight(ratio_AS, advantage_AMS, training)
    # E[c_pa (r_a - mean_p) | n] = (G-1)/(N-1) n_a (r_a - mean), for a group of G of the N rollouts.
    share = (
        size * (training.group_size - 1) / (training.group_size * (size - 1))
        if training.advantage == "batch_std"
        else 1.0
    )
    total_AS: Real = weighted_AMS.sum(axis=1) * (share / size)
    return total_AS


@lru_cache(maxsize=8)
def count_vectors(arms: int, size: int) -> tuple[Real, Real]:
    """Return every vector of counts that sums to the group size, as columns, and the logarithm
    of its multinomial coefficient.
    """
    from itertools import combinations

    from scipy.special import gammaln

    bars = np.array(list(combinations(range(size + arms - 1), arms - 1)), dtype=np.int64).reshape(
        -1, arms - 1
    )
    edges = np.concatenate(
        [np.full((len(bars), 1), -1), bars, np.full((len(bars), 1), size + arms - 1)], axis=1
    )
    count_MA = np.diff(edges, axis=1) - 1.0
    return np.ascontiguousarray(count_MA.T), gammaln(size + 1) - gammaln(count_MA + 1).sum(axis=1)


@frozen
class SamplingPolicy:
    """A policy as rollouts see it."""

    probability_AS: Real  # of each arm
    threshold_AS: Whole32  # what uniform numbers are compared with, for all arms but the last
    reward_AS: Real  # rewards, less the KL penalty of this policy where that is in the reward


class Update:
    """Replicates in training."""

    def __init__(
        self,
        bandit: Bandit,
        training: Training,
        logit_AS: Real,
        *,
        learning_rate_S: Real | None = None,
    ) -> None:
        """Start before the first update."""
        self.bandit, self.training = bandit, training
        self.logit_AS = logit_AS
        self.columns = logit_AS.shape[1]
        self._rate = training.learning_rate if learning_rate_S is None else learning_rate_S
        self._velocity_AS = np.zeros_like(logit_AS)
        self._square_AS = np.zeros_like(logit_AS) if training.optimizer == "adam" else None
        self._reward_A1: Real = bandit.reward_A[:, None]
        self._log_reference_A1: Real = np.log(bandit.reference_A)[:, None]
        self._done = 0
        self._kept: dict[int, SamplingPolicy] = {}
        self.policy_AS = np.empty_like(logit_AS)
        self._log_normaliser_S = np.empty_like(logit_AS[0])
        self._look()
        self.sampling = self._present()

    def _look(self) -> None:
        """Compute the present policy from the logits."""
        top_S = self.logit_AS.max(axis=0)
        np.exp(np.subtract(self.logit_AS, top_S, out=self.policy_AS), out=self.policy_AS)
        total_S = np.add.reduce(self.policy_AS, axis=0)
        self.policy_AS /= total_S
        self._log_normaliser_S = np.log(total_S, out=total_S)
        self._log_normaliser_S += top_S

    def _log_ratio(self) -> Real:
        """Logarithm of the present over the reference policy."""
        log_AS: Real = self.logit_AS - self._log_reference_A1
        log_AS -= self._log_normaliser_S
        return log_AS

    def _present(self) -> SamplingPolicy:
        """Return the present policy as rollouts would see it; a copy where it will be needed
        after the next update.
        """
        policy_AS = self.policy_AS if self.training.lag == "none" else self.policy_AS.copy()
        reward_AS = self._reward_A1
        if self.training.kl_place == "reward" and self.bandit.kl_weight:
            reward_AS = reward_AS - self.bandit.kl_weight * self._log_ratio()
        return SamplingPolicy(policy_AS, thresholds(policy_AS), reward_AS)

    def choose_sampling_policy(self) -> None:
        """Decide which parameters sample the rollouts of the next update."""
        lag, interval, done = self.training.lag, self.training.interval, self._done
        if lag == "none":
            self.sampling = self._present()
        elif lag == "fixed":
            self._kept[done] = self._present()
            self.sampling = self._kept[max(done - interval, 0)]
            self._kept.pop(done - interval, None)
        elif lag == "refresh":
            if done % interval == 0:
                self.sampling = self._present()
        elif lag == "async":
            if done % interval == 0:
                fresh = self._present()
                self.sampling = self._kept.get(0, fresh)
                self._kept[0] = fresh
        else:
            assert_never(lag)

    def apply(self, count_APS: Real | None) -> None:
        """Make one update."""
        ratio_AS = self._ratio()
        if count_APS is None:
            gradient_AS = expected_coefficients(
                self.sampling.probability_AS, self.sampling.reward_AS, ratio_AS, self.training
            )
        else:
            gradient_AS = coefficients(count_APS, self.sampling.reward_AS, ratio_AS, self.training)
        if ratio_AS is not None or not self.training.centred:
            gradient_AS -= np.add.reduce(gradient_AS, axis=0) * self.policy_AS
        if self.bandit.kl_weight and self.training.kl_place == "loss":
            pull_AS = self._log_ratio()
            pull_AS -= np.add.reduce(pull_AS * self.policy_AS, axis=0)
            pull_AS *= self.policy_AS
            pull_AS *= self.bandit.kl_weight
            gradient_AS -= pull_AS
        self._done += 1
        self._move(gradient_AS)
        self._look()

    def _ratio(self) -> Real | None:
        """Present over sampling probability, or None where all weights are 1; an arm that was
        never drawn has 1.
        """
        if self.training.ratio == "none" or self.training.lag == "none":
            return None
        sampled_AS = self.sampling.probability_AS
        return np.divide(
            self.policy_AS, sampled_AS, out=np.ones_like(sampled_AS), where=sampled_AS > 0
        )

    def _move(self, gradient_AS: Real) -> None:
        """Change the logits along the gradient; the array handed over is used up."""
        momentum = self.training.momentum
        if self._square_AS is None:
            gradient_AS *= self._rate
            self._velocity_AS *= momentum
            self._velocity_AS += gradient_AS
            self.logit_AS += self._velocity_AS
            return
        beta2 = self.training.beta2
        self._velocity_AS += (1 - momentum) * (gradient_AS - self._velocity_AS)
        self._square_AS += (1 - beta2) * (gradient_AS * gradient_AS - self._square_AS)
        root_AS = np.sqrt(self._square_AS / (1 - beta2**self._done)) + self.training.epsilon
        self.logit_AS += self._rate * (self._velocity_AS / (1 - momentum**self._done)) / root_AS

    def exact(self, name: str) -> NDArray[Any]:
        """Return the value, the KL divergence from the reference or the entropy of the present
        policy, one number a replicate.
        """
        if name == "value":
            per_arm_AS = self.policy_AS * self._reward_A1
        elif name == "kl":
            per_arm_AS = self.policy_AS * self._log_ratio()
        else:
            per_arm_AS = self.policy_AS * (self._log_normaliser_S - self.logit_AS)
        total_S: Real = np.add.reduce(per_arm_AS, axis=0)
        return total_S


BLOCK = 250
_WORKING_BYTES = 32_000_000
_KEPT_BYTES = 200_000_000
_MOST_BYTES = 2_000_000_000
_MOST_CHUNK = 8000
_TICK = 200  # updates between two words on the progress

BanditQuantity = Literal["value", "reward", "reward_std", "dead_share", "kl", "entropy"]
EXACT_QUANTITIES: tuple[BanditQuantity, ...] = ("value", "kl", "entropy")
ROLLOUT_QUANTITIES: tuple[BanditQuantity, ...] = ("reward", "reward_std", "dead_share")


@frozen
class Records:
    """What is recorded of each run."""

    keep: Sequence[BanditQuantity] = ("value",)  # quantities of `BanditRuns.series`
    every: int = 1  # updates between two records


_VALUES_ALONE = Records()


@frozen
class BanditRuns:
    """What simulated runs left."""

    # how many updates had been made before each record; the last is that after all of them
    step_T: Whole
    # quantity -> array (T, S). "value": exact expected reward of the policy; "kl": exact divergence
    # from the reference, nats; "entropy": exact, nats; "reward": mean reward of the rollouts of the
    # next update; "reward_std": mean over its groups of the deviation within, ddof 1; "dead_share":
    # share of its groups whose rewards are all equal. Quantities of rollouts have no last record
    series: dict[BanditQuantity, Real]
    logit_AS: Real  # parameters at the end
    method: str  # "sampled", or how the expectation was computed
    seed: int | None  # of the random numbers; None for the expectation
    chunk_size: int  # replicates that were stepped together

    @property
    def value(self) -> Real:
        """The exact expected reward, (T, S)."""
        return self.series["value"]


def simulate_bandit(
    bandit: Bandit,
    training: Training,
    *,
    steps: int,
    replicates: int = 1000,
    seed: int = 0,
    start_A: ArrayLike | None = None,
    records: Records = _VALUES_ALONE,
    progress: Callable[[int, int], None] | None = None,
) -> BanditRuns:
    r"""Simulate independent training runs with sampled rollouts.

    $\hat g = \sum_a b_a(e_a - \pi) - \beta\nabla KL$, $b_a$ the mean over groups of $c_a w_a
    A_a/G$.
    """
    check_whole("replicates", replicates, 1)
    check_whole("seed", seed, 0)
    start = _start(bandit, start_A)
    if start.shape[1] != 1:
        raise InvalidArgumentError(
            f"expected one start for all replicates, got {start.shape[1]}: simulate each by itself"
        )
    whole = -(-replicates // BLOCK) * BLOCK
    width = _chunk(bandit, training, replicates=whole, steps=steps)
    final_AS = np.empty((bandit.arms, replicates))
    runs = BanditRuns(
        *_to_record(records, steps, replicates, quantities=get_args(BanditQuantity)),
        final_AS,
        "sampled",
        seed,
        width,
    )
    for first in range(0, whole, width):
        columns = min(width, whole - first)
        update = Update(bandit, training, np.repeat(start, columns, axis=1))
        draws = _Draws(training, seed, range(first // BLOCK, (first + columns) // BLOCK))
        chunk = slice(first, min(first + columns, replicates))
        for done in _run_chunk(update, runs, chunk, draws):
            if progress is not None:
                progress(steps * first + done * columns, steps * whole)
        final_AS[:, chunk] = update.logit_AS[:, : replicates - first]
    return runs


def expected_path(
    bandit: Bandit,
    training: Training,
    *,
    steps: int,
    start_AS: ArrayLike | None = None,
    learning_rate_S: ArrayLike | None = None,
    records: Records = _VALUES_ALONE,
    progress: Callable[[int, int], None] | None = None,
) -> BanditRuns:
    r"""Step the parameters with the expectation of the gradient given the parameters, which has
    no noise.
    """
    start = _start(bandit, start_AS)
    rate_S = (
        None
        if learning_rate_S is None
        else finite_array("learning_rate_S", learning_rate_S, dimensions=1)
    )
    if rate_S is not None and (rate_S <= 0).any():
        raise InvalidArgumentError(
            f"expected a positive learning rate for each path, got {rate_S.min():g}: give one row "
            "of numbers"
        )
    paths = max(start.shape[1], 1 if rate_S is None else len(rate_S))
    if start.shape[1] not in (1, paths) or (rate_S is not None and len(rate_S) not in (1, paths)):
        raise InvalidArgumentError(
            "expected as many learning rates as starts, got "
            f"{1 if rate_S is None else len(rate_S)} and {start.shape[1]}: give one of each for "
            "every path, or a single one for all"
        )
    update = Update(
        bandit,
        training,
        np.array(np.broadcast_to(start, (bandit.arms, paths))),
        learning_rate_S=rate_S,
    )
    recorded = _to_record(records, steps, paths, quantities=EXACT_QUANTITIES)
    runs = BanditRuns(
        *recorded, update.logit_AS, expectation_method(bandit.arms, training), None, paths
    )
    for done in _run_chunk(update, runs, slice(0, paths), None):
        if progress is not None:
            progress(done * paths, steps * paths)
    return runs


def drawn_arms_of(bandit: Bandit, training: Training, *, steps: int, seed: int = 0) -> Whole:
    """Return the arms that the first replicate of `simulate_bandit` draws in its first updates,
    in the order of drawing.
    """
    check_whole("steps", steps, 1)
    check_whole("seed", seed, 0)
    update = Update(bandit, training, np.repeat(_start(bandit, None), BLOCK, axis=1))
    draws, counter = (
        _Draws(training, seed, range(1)),
        ArmCounter(bandit.arms, training.group_size, (training.prompts, BLOCK)),
    )
    arm_TPG = np.empty((steps, training.prompts, training.group_size), np.int64)
    for step in range(steps):
        update.choose_sampling_policy()
        uniform_GPS = draws.next()
        arm_TPG[step] = (
            (uniform_GPS[..., 0] >= update.sampling.threshold_AS[:, 0, None, None]).sum(axis=0).T
        )
        update.apply(counter.count(uniform_GPS, update.sampling.threshold_AS))
    return arm_TPG


class _Draws:
    """The uniform 32-bit numbers of a chunk: each block of replicates has its own stream, read a
    few updates ahead.
    """

    def __init__(self, training: Training, seed: int, blocks: range) -> None:
        self._streams = [
            np.random.SFC64(np.random.SeedSequence(seed, spawn_key=(block,))) for block in blocks
        ]
        self._shape = (training.group_size, training.prompts, BLOCK)
        self._each = training.group_size * training.prompts * BLOCK
        self._ahead = max(1, min(16, _WORKING_BYTES // (8 * self._each * len(blocks))))
        self._uniform_XGPS = np.empty(
            (self._ahead, *self._shape[:2], BLOCK * len(blocks)), np.uint32
        )
        self._used = self._ahead

    def next(self) -> Whole32:
        """Return uniform_GPS of the next update; the array is used again a few updates later."""
        if self._used == self._ahead:
            for place, stream in enumerate(self._streams):
                # The halves of a 64-bit number, the low one first on any machine.
                word = np.asarray(stream.random_raw(self._ahead * self._each // 2)).astype(
                    "<u8", copy=False
                )
                self._uniform_XGPS[..., place * BLOCK : (place + 1) * BLOCK] = word.view(
                    "<u4"
                ).reshape(self._ahead, *self._shape)
            self._used = 0
        self._used += 1
        uniform_GPS: Whole32 = self._uniform_XGPS[self._used - 1]
        return uniform_GPS


def _run_chunk(
    update: Update, runs: BanditRuns, columns: slice, draws: _Draws | None
) -> Iterator[int]:
    """Step one chunk through all its updates and write its records; yield now and then how many
    are done.
    """
    training, arms = update.training, update.bandit.arms
    counter = (
        None
        if draws is None
        else ArmCounter(arms, training.group_size, (training.prompts, update.columns))
    )
    record, steps = 0, int(runs.step_T[-1])
    for step in range(steps):
        update.choose_sampling_policy()
        count_APS = (
            None
            if draws is None or counter is None
            else counter.count(draws.next(), update.sampling.threshold_AS)
        )
        if step == runs.step_T[record]:
            _record(update, runs, record, columns, count_APS)
            record += 1
        update.apply(count_APS)
        if (step + 1) % _TICK == 0 or step == steps - 1:
            yield step + 1
    _record(update, runs, -1, columns, None)


def _record(
    update: Update, runs: BanditRuns, row: int, columns: slice, count_APS: Real | None
) -> None:
    """Write the exact quantities of the present policy, and what its rollouts show where there
    are some.
    """
    width = columns.stop - columns.start
    for name, series in runs.series.items():
        if name in EXACT_QUANTITIES:
            series[row, columns] = update.exact(name)[:width]
        elif count_APS is not None:
            series[row, columns] = _shown(
                name, count_APS, update.bandit.reward_A, update.training.group_size
            )[:width]


def _shown(name: BanditQuantity, count_APS: Real, reward_A: Real, size: int) -> Real:
    """What rollouts show of the rewards without any KL term: the mean over groups of their mean,
    deviation, or having equal rewards.
    """
    if name == "dead_share":
        equal_PS = np.zeros(count_APS.shape[1:], dtype=bool)
        for reward in np.unique(reward_A):
            equal_PS |= np.add.reduce(count_APS[reward_A == reward], axis=0) == size
        return np.asarray(equal_PS.mean(axis=0))
    reward_A11 = reward_A[:, None, None]
    found_PS = arm_sum(count_APS, reward_A11) / size
    if name == "reward_std":  # ddof 1; 0 for a group of one
        found_PS = np.sqrt(arm_sum(count_APS, (reward_A11 - found_PS) ** 2) / max(size - 1, 1))
    return np.asarray(found_PS.mean(axis=0))


def _to_record(
    records: Records, steps: int, columns: int, *, quantities: tuple[BanditQuantity, ...]
) -> tuple[Whole, dict[BanditQuantity, Real]]:
    """Return the updates made before each record, and arrays for them; quantities of rollouts
    have none after the last update.
    """
    check_whole("steps", steps, 1)
    check_whole("every", records.every, 1)
    strangers = [name for name in records.keep if name not in quantities]
    if strangers:
        raise InvalidArgumentError(
            f"expected quantities to keep, got {str(strangers[0])[:60]!r}: use some of "
            f"{', '.join(quantities)}"
        )
    step_T = np.append(np.arange(0, steps, records.every), steps)
    return step_T, {
        name: np.empty((len(step_T) - (name not in EXACT_QUANTITIES), columns))
        for name in records.keep
    }


def _start(bandit: Bandit, start: ArrayLike | None) -> Real:
    """The logits at the start as columns."""
    if start is None:
        return np.log(bandit.reference_A)[:, None]
    logit = np.asarray(start)
    logit = checked_shape("the start", logit, dimensions=2 if logit.ndim == 2 else 1).astype(
        np.float64
    )
    if len(logit) != bandit.arms or not np.isfinite(logit).all():
        raise InvalidArgumentError(
            f"expected {bandit.arms} finite logits at the start, got shape {logit.shape}: give one "
            "an arm"
        )
    return logit if logit.ndim == 2 else logit[:, None]


def _chunk(bandit: Bandit, training: Training, *, replicates: int, steps: int) -> int:
    """Replicates of a chunk, in whole blocks: an equal part of all that is not too large."""
    # A fixed lag keeps, for each update of it, a policy, its thresholds and its rewards.
    kept = min(training.interval, steps) if training.lag == "fixed" else 0
    bytes_kept = kept * bandit.arms * 20
    if bytes_kept * BLOCK > _MOST_BYTES:
        raise InvalidArgumentError(
            f"expected a fixed lag whose policies fit into memory, got {kept} updates of "
            f"{bandit.arms} arms: take a shorter lag"
        )
    bytes_each = 8 * training.prompts * (3 * training.group_size + 5 * bandit.arms)
    most = max(
        BLOCK,
        min(_MOST_CHUNK, _WORKING_BYTES // bytes_each, _KEPT_BYTES // max(bytes_kept, 1))
        // BLOCK
        * BLOCK,
    )
    parts = -(-replicates // most)
    return -(-replicates // (parts * BLOCK)) * BLOCK
