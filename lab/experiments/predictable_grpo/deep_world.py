"""The transformer of the deep experiments: its fixed point, its modes, what linear theory says of
them, and training without noise.

The tiny policy on addition mod 10, warmed up to a mean reward of .3, with a KL weight of .5:
expected updates over all 100 problems and 381 completions each, in double precision. The fixed
point is kept in the cache of warm-ups. It draws no picture.
"""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from scipy.linalg import eigh
from torch import Tensor

sys.path.append(str(Path(__file__).resolve().parents[1]))  # common

from truth import ExactLoss, ExactWorld

from groupwise.arrays import Float
from groupwise_lab.trainer.policy import Policy, policy_size
from groupwise_lab.trainer.tasks import Task, make_task
from groupwise_lab.trainer.warm_up import default_cache, warm_up

KL_WEIGHT = 0.5
START = 0.3
ITERATIONS = 1000
GROUP = 8  # where completions are sampled, of every problem
torch.set_num_threads(1)


@dataclass(frozen=True)
class UpdateSettings:
    """How updates are made.

    Args:
        lag: none, refresh, fixed or async.
        momentum: mu.
        interval: R, updates.
    """

    lag: str
    momentum: float
    interval: int

    def sampled_at(self, update: int) -> int:
        """The update before which the policy stood that sampled for this one."""
        if self.lag == "none":
            return update
        if self.lag == "fixed":
            return max(update - self.interval, 0)
        block = update // self.interval - (1 if self.lag == "async" else 0)
        return max(block, 0) * self.interval


@dataclass(frozen=True)
class Deep:
    """The world with its fixed point.

    Args:
        world: with the KL term in the reward and no ratio.
        task: addition mod 10.
        policy: whose parameters `world` leaves alone.
        point_D: the fixed point.
        iterations: of the search for it.
    """

    world: ExactWorld
    task: Task
    policy: Policy
    point_D: Tensor
    iterations: int

    def with_loss(self, **changes: object) -> ExactWorld:
        """The same policy with another loss."""
        return ExactWorld(
            self.policy, self.task, self.task.train, replace(self.world.loss, **changes)
        )  # type: ignore[arg-type]


def deep_world(*, quick: bool = False) -> Deep:
    """Warm the policy up and find the fixed point, or read both from the cache."""
    task = make_task("modular_addition", level=1, held_out_share=0.0)
    policy = Policy(policy_size("tiny"), vocabulary_size=len(task.vocabulary))
    warm_up(policy, task, accuracy=START, cache=default_cache())
    policy = policy.double()
    world = ExactWorld(policy, task, task.train, ExactLoss(KL_WEIGHT, kl_in="reward"))
    iterations = 60 if quick else ITERATIONS
    point = cached(f"point-{iterations}", lambda: climbed(world, world.start_D, iterations).numpy())
    return Deep(world, task, policy, torch.as_tensor(point), iterations)


def cached(name: str, make: Callable[[], Float]) -> Float:
    """What was made before, from the cache of warm-ups; else made now and kept."""
    path = default_cache().parent / f"deep-{KL_WEIGHT}-{START}-{name}.npy"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}.partial.npy")
        np.save(partial, make())
        partial.replace(path)  # a run that is killed leaves no half of a file
    return np.asarray(np.load(path))


def climbed(world: ExactWorld, start_D: Tensor, iterations: int) -> Tensor:
    """The maximum of the objective, by L-BFGS."""
    parameter_D = start_D.clone().requires_grad_()
    search = torch.optim.LBFGS(
        [parameter_D],
        max_iter=iterations,
        history_size=50,
        line_search_fn="strong_wolfe",
        tolerance_grad=1e-9,
        tolerance_change=0,
    )

    def loss() -> Tensor:
        search.zero_grad()
        value = -world.objective(parameter_D)
        value.backward()  # type: ignore[no-untyped-call]
        return value

    search.step(loss)  # type: ignore[no-untyped-call]
    return parameter_D.detach()


def pull(world: ExactWorld, point_D: Tensor, *, part: str) -> Callable[[Float], Float]:
    """Products with minus the Jacobian of the expected update: in the present policy, in the one
    that sampled, or in both at once.
    """

    def product(vector: Float) -> Float:
        direction = torch.as_tensor(np.array(vector))
        parts = {"now": (False,), "stale": (True,), "both": (False, True)}[part]
        return -np.asarray(
            sum(world.change_of_update(point_D, direction, stale=stale).numpy() for stale in parts)
        )

    return product


@dataclass(frozen=True)
class Linear:
    """Both parts of the pull to the fixed point, in a few directions.

    Args:
        now_KK: of the present policy.
        stale_KK: of the one that sampled.
    """

    now_KK: Float
    stale_KK: Float

    def block(self, learning_rate: float, setting: UpdateSettings) -> Float:
        """What a block does to parameters and velocity (refresh), the parameters that sampled
        too (async), or an update to all (fixed).
        """
        size, momentum = len(self.now_KK), setting.momentum
        zero, identity = np.zeros((size, size)), np.eye(size)
        now, stale = learning_rate * self.now_KK, learning_rate * self.stale_KK
        if setting.lag == "fixed":
            depth = setting.interval
            whole = np.zeros((size * (depth + 2), size * (depth + 2)))
            blocks = {
                (0, 0): identity - now,
                (0, 1): momentum * identity,
                (0, depth + 1): -stale,
                (1, 0): -now,
                (1, 1): momentum * identity,
                (1, depth + 1): -stale,
                (2, 0): identity,
            }
            blocks |= {(row, row - 1): identity for row in range(3, depth + 2)}
            for (row, column), block in blocks.items():
                whole[row * size : (row + 1) * size, column * size : (column + 1) * size] += block
            return whole
        update = np.block(
            [
                [identity - now, momentum * identity, -stale],
                [-now, momentum * identity, -stale],
                [zero, zero, identity],
            ]
        )
        block = np.linalg.matrix_power(update, 1 if setting.lag == "none" else setting.interval)
        if setting.lag == "async":
            return np.vstack([block[: 2 * size], np.hstack([identity, zero, zero])])
        # What sampled is where the block began.
        return np.hstack([block[:, :size] + block[:, 2 * size :], block[:, size : 2 * size]])[
            : 2 * size
        ]

    def radius(self, learning_rate: float, setting: UpdateSettings) -> float:
        """The factor by which the fastest growing mode grows: a block for refresh and async, an
        update else.
        """
        return float(np.abs(np.linalg.eigvals(self.block(learning_rate, setting))).max())

    def growing(self, learning_rate: float, setting: UpdateSettings) -> tuple[Float, Float, Float]:
        """Position and velocity of the fastest growing mode, the position of length one, and the
        direction to watch it by.
        """
        size = len(self.now_KK)
        root_M, right_MM = np.linalg.eig(self.block(learning_rate, setting))
        first = int(np.abs(root_M).argmax())
        mode_M = right_MM[:, first]
        mode_M = mode_M / mode_M[np.abs(mode_M[:size]).argmax()]
        mode_M = mode_M / np.linalg.norm(mode_M[:size].real)
        dual_K = np.linalg.inv(right_MM)[first, :size]  # little of the other modes is seen along it
        dual_K = (dual_K / dual_K[np.abs(dual_K).argmax()]).real
        return mode_M[:size].real, mode_M[size : 2 * size].real, dual_K / np.linalg.norm(dual_K)

    def path(
        self,
        learning_rate: float,
        setting: UpdateSettings,
        position_K: Float,
        velocity_K: Float,
        updates: int,
    ) -> Float:
        """Positions before the first update and after each where linear theory is all there is;
        all older policies stood at the first.
        """
        along = [position_K]
        for update in range(updates):
            pull_K = self.now_KK @ along[-1] + self.stale_KK @ along[setting.sampled_at(update)]
            velocity_K = setting.momentum * velocity_K - learning_rate * pull_K
            along.append(along[-1] + velocity_K)
        return np.stack(along)

    def edge(self, setting: UpdateSettings, guess: float) -> float:
        """The smallest learning rate from which a mode grows; looked for from a tenth of a guess
        on, or lower, in steps of 4 %.
        """
        low = high = guess / 10
        while self.radius(low, setting) > 1 + 1e-9:
            if low < guess / 1e4:
                raise ValueError(
                    f"a mode grows at a learning rate of {low:.3g} already: no fixed point that "
                    "training stays at"
                )
            low = high = low / 2
        while self.radius(high, setting) <= 1 + 1e-9:
            low, high = high, 1.04 * high
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (
                (middle, high) if self.radius(middle, setting) <= 1 + 1e-9 else (low, middle)
            )
        return (low + high) / 2


def linear(world: ExactWorld, point_D: Tensor, basis_DK: Float) -> Linear:
    """Both Jacobians between orthonormal directions."""
    jacobians = []
    for part in ("now", "stale"):
        product = pull(world, point_D, part=part)
        jacobians.append(basis_DK.T @ np.stack([product(column) for column in basis_DK.T], axis=1))
    return Linear(jacobians[0], jacobians[1])


def symmetric(matrix: Float) -> Float:
    """Eigenvalues of a matrix that is symmetric but for rounding, largest first."""
    return eigh((matrix + matrix.T) / 2, eigvals_only=True)[::-1]


@dataclass(frozen=True)
class Path:
    """What was seen on a run.

    Args:
        along_TK: distance from the fixed point along each direction asked for, before the first
            update and after each.
        value_T: mean reward before each update.
        divergence_T: KL to the reference before each update, nats.
        end_D: parameters at the end.
    """

    along_TK: Float
    value_T: Float
    divergence_T: Float
    end_D: Tensor


def trained(
    world: ExactWorld,
    point_D: Tensor,
    setting: UpdateSettings,
    *,
    start_D: Tensor,
    learning_rate: float,
    updates: int,
    watch_DK: Float,
    held: bool = True,
    farthest: float = float("inf"),
    scale_D: Tensor | None = None,
    velocity_D: Tensor | None = None,
) -> Path:
    """Heavy-ball training on expected updates.

    Args:
        world: policy, task and loss.
        point_D: the fixed point.
        setting: of lag and momentum.
        start_D: parameters at the start; all older policies were there.
        learning_rate: eta.
        updates: how many.
        watch_DK: orthonormal directions.
        held: take what is left of the update at the fixed point off all updates, so that it is one
            exactly.
        farthest: end where any direction watched exceeds this.
        scale_D: what updates are multiplied by, coordinate by coordinate.
        velocity_D: at the start; 0 if there is none.

    Returns:
        What was seen.
    """
    watch = torch.as_tensor(watch_DK)
    rest_D = world.update(point_D)[0] if held else torch.zeros_like(point_D)
    now_D, velocity_D = (
        start_D.clone(),
        torch.zeros_like(start_D) if velocity_D is None else velocity_D,
    )
    seen = {}
    along, value, divergence = [(now_D - point_D) @ watch], [], []
    for update in range(updates):
        at = setting.sampled_at(update)
        step_D, seen[update] = world.update(now_D, seen[at] if at < update else None)
        seen.pop(update - 2 * setting.interval - 1, None)
        value.append(float(world.value(seen[update])))
        divergence.append(float(world.divergence(seen[update])))
        step_D = step_D - rest_D
        velocity_D = setting.momentum * velocity_D + learning_rate * (
            step_D if scale_D is None else scale_D * step_D
        )
        now_D = now_D + velocity_D
        along.append((now_D - point_D) @ watch)
        if not float(along[-1].abs().max()) < farthest:
            break
    return Path(torch.stack(along).numpy(), np.array(value), np.array(divergence), now_D)


def sampled_step(
    world: ExactWorld,
    now_D: Tensor,
    old_PO: Tensor | None,
    rng: np.random.Generator,
    group: int = GROUP,
) -> tuple[Tensor, Tensor, Tensor]:
    """The leave-one-out gradient of groups of all problems, drawn by the old policy or the
    present one; log-probabilities now; counts.
    """
    parameter_D = now_D.clone().requires_grad_()
    now_PO = world.log_probabilities(parameter_D)
    sampled_PO = now_PO.detach() if old_PO is None else old_PO
    share = sampled_PO.exp().numpy()
    count_PO = torch.as_tensor(
        rng.multinomial(group, share / share.sum(1, keepdims=True)), dtype=torch.float64
    )
    earned = world.reward_PO - world.loss.kl_weight * (sampled_PO - world.reference_PO)
    centred = (earned - (count_PO * earned).sum(1, keepdim=True) / group) * group / (group - 1)
    (step_D,) = torch.autograd.grad(
        (count_PO / group * centred * now_PO).sum(1).mean(), parameter_D
    )
    return step_D, now_PO.detach(), count_PO


def growth(series_T: Float) -> float:
    """The largest root of a linear recursion, order 2 and a constant, fitted to a series: its
    growth from one number to the next.
    """
    late = series_T[len(series_T) // 3 :] / np.abs(series_T).max()
    columns = np.stack([late[1:-1], late[:-2], np.full(len(late) - 2, np.abs(late).max())], axis=1)
    weight, *_ = np.linalg.lstsq(columns, late[2:], rcond=None)
    roots = np.roots([1.0, -weight[0], -weight[1]])
    if np.iscomplexobj(roots):
        return float(np.abs(roots[0]))
    # Of two real roots one may be no mode but the square of the other, where the world bends a
    # little: take the one that is seen.
    parts = np.stack(
        [*(root ** np.arange(len(late)) for root in roots), np.ones(len(late))], axis=1
    )
    share, *_ = np.linalg.lstsq(parts, late, rcond=None)
    return float(np.abs(roots[np.argmax(np.abs(share[:2] * roots ** (len(late) - 1)))]))


def bracketed(factor_S: Sequence[float], log_growth_S: Sequence[float]) -> tuple[float, float]:
    """The middle between the last factor of a rising series whose growth is below 0 and the next
    one, and half their distance.
    """
    below = np.asarray(log_growth_S) < 0
    last = int(below.sum()) - 1
    if not below[0] or below[-1] or not below[: last + 1].all():
        raise ValueError(
            f"growth {np.round(log_growth_S, 5).tolist()} at {list(factor_S)} times the predicted "
            "edge changes its sign not once"
        )
    return (factor_S[last] + factor_S[last + 1]) / 2, (factor_S[last + 1] - factor_S[last]) / 2


def crossing(factor_S: Sequence[float], log_growth_S: Sequence[float]) -> float:
    """Where a line through growth against the learning rate crosses 0."""
    slope, intercept = np.polyfit(np.log(np.asarray(factor_S)), np.asarray(log_growth_S), 1)
    return float(np.exp(-intercept / slope))
