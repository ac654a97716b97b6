"""The stability threshold on a task too large to enumerate: addition mod 100, predicted from scores
of rollouts, then trained on groups.

The tiny policy, 10,000 problems, KL weight .5 in the reward, no importance ratio, each kind of lag
with R = 8, momentum .9, 32 prompts with 8 rollouts an update. First SGD learns from the warm start;
from where it ends, runs at multiples of the predicted edge. Pieces are written as they come.
`python deep_larger.py` runs what is missing (half an hour of one core for all), `--tables` prints,
`--quick` tries everything. All pieces are of one end of learning: it is made anew each time, and
where it is not the recorded one nothing is added.
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from itertools import product as combined
from typing import TypeVar

import numpy as np
import torch
from deep_pieces import Pieces
from deep_world import KL_WEIGHT, START, UpdateSettings
from note import options, print_table
from numpy import ndarray
from torch import Tensor
from truth import leading_modes, twice_differentiable

from groupwise.edge.mode import threshold
from groupwise.parsing import JsonObject
from groupwise_lab.trainer.policy import Policy, policy_size
from groupwise_lab.trainer.tasks import Task, make_task
from groupwise_lab.trainer.warm_up import default_cache, warm_up

LEARNING = Pieces("deep_larger_learning", ("update",))
SPECTRUM = Pieces("deep_larger_spectrum", ("where", "part"))
RUNS = Pieces("deep_larger_runs", ("lag", "factor", "seed"))
LAGS = ("refresh", "fixed", "async")
MOMENTUM, INTERVAL = 0.9, 8
GROUP, PROMPTS, SCORED, SAMPLES = 8, 32, 1536, 4
LEARN_UPDATES, LEARN_RATE, RUN_UPDATES = 240, 0.001, 160
FACTORS = (0.5, 2.0, 1.25, 0.8)
# Of mean rewards over 40 updates: what arithmetic in another order may change, and another sampler
# changes by ten times that.
SAME = 0.002
DrawnBatch = TypeVar("DrawnBatch")


@dataclass(frozen=True)
class RewardedGroups:
    """Groups with what they earned.

    Args:
        prompt_PL: tokens.
        completion_NL: tokens.
        mask_NL: 1 for those sampled.
        advantage_N: leave-one-out, of the reward with its KL term.
        value: mean reward.
        divergence: mean of log(pi/pi_ref), nats.
    """

    prompt_PL: Tensor
    completion_NL: Tensor
    mask_NL: Tensor
    advantage_N: Tensor
    value: float
    divergence: float


class Larger:
    """Task, policy and reference; the policy is changed in place."""

    def __init__(self, *, level: int = 2) -> None:
        self.task: Task = make_task("modular_addition", level=level, held_out_share=0.0)
        self.policy = Policy(policy_size("tiny"), vocabulary_size=len(self.task.vocabulary))
        warm_up(self.policy, self.task, accuracy=START, cache=default_cache())
        self.reference = copy.deepcopy(self.policy)
        self.parameters = list(self.policy.parameters())

    def flat(self) -> Tensor:
        """Parameters as one vector."""
        return torch.cat([parameter.detach().reshape(-1) for parameter in self.parameters])

    def stand_at(self, parameter_D: Tensor) -> None:
        """Put the parameters there."""
        with torch.no_grad():
            torch.nn.utils.vector_to_parameters(parameter_D.float(), self.parameters)

    def rollouts(self, prompts: int, generator: torch.Generator) -> RewardedGroups:
        """Sample groups of prompts that are drawn at random."""
        chosen = torch.randint(len(self.task.train), (prompts,), generator=generator).tolist()
        problems = [self.task.train[number] for number in chosen]
        prompt_PL = self.policy.prompt_tokens(self.task, problems)
        sampled = self.policy.sample(prompt_PL, GROUP, generator, self.task.completion_length)
        answer_PL, _ = self.policy.answer_tokens(self.task, problems)
        right_N = (sampled.completion_NL == answer_PL.repeat_interleave(GROUP, 0)).all(1).double()
        with torch.no_grad():
            reference_NL = self.reference.log_probabilities(prompt_PL, sampled.completion_NL)
        behind_N = ((sampled.log_probability_NL - reference_NL) * sampled.mask_NL).double().sum(1)
        earned_PG = (right_N - KL_WEIGHT * behind_N).view(prompts, GROUP)
        advantage_N = (
            (earned_PG - earned_PG.mean(1, keepdim=True)).reshape(-1) * GROUP / (GROUP - 1)
        )
        return RewardedGroups(
            prompt_PL,
            sampled.completion_NL,
            sampled.mask_NL,
            advantage_N,
            float(right_N.mean()),
            float(behind_N.mean()),
        )

    def log_probability(self, rollouts: RewardedGroups) -> Tensor:
        """Of each whole completion."""
        return (
            self.policy.log_probabilities(rollouts.prompt_PL, rollouts.completion_NL)
            * rollouts.mask_NL
        ).sum(1)


def batches(setting: UpdateSettings, draw: Callable[[], DrawnBatch]) -> Iterator[DrawnBatch]:
    """The batch of each update, drawn by the policy that `UpdateSettings.sampled_at` names."""
    waiting = [draw() for _ in range(setting.interval)] if setting.lag in ("fixed", "async") else []
    for update in count():
        if setting.lag == "fixed":
            waiting.append(draw())
        elif update % setting.interval == 0:
            waiting += [draw() for _ in range(setting.interval)]
        yield waiting.pop(0)


def trained(
    world: Larger,
    rate: float,
    updates: int,
    seed: int,
    *,
    setting: UpdateSettings,
    prompts: int,
    watch_D: Tensor | None = None,
) -> tuple[list[float], ...]:
    """Heavy-ball SGD from where the policy stands: mean reward, divergence and place along a
    direction, of each update.
    """
    generator = torch.Generator().manual_seed(seed)
    start_D, now_D = world.flat(), world.flat()
    velocity_D = torch.zeros_like(now_D)
    seen = ([], [], [])
    for batch in islice(batches(setting, lambda: world.rollouts(prompts, generator)), updates):
        log_N = world.log_probability(batch)
        parts = torch.autograd.grad((log_N * batch.advantage_N.to(log_N)).mean(), world.parameters)
        velocity_D = setting.momentum * velocity_D + rate * torch.cat(
            [part.reshape(-1) for part in parts]
        )
        now_D = now_D + velocity_D
        world.stand_at(now_D)
        along = 0.0 if watch_D is None else float((now_D - start_D) @ watch_D)
        for series, number in zip(seen, (batch.value, batch.divergence, along), strict=True):
            series.append(number)
        if not np.isfinite(along) or not torch.isfinite(now_D).all():
            break
    return seen


def products(
    world: Larger, rollouts: RewardedGroups, weight_N: Tensor
) -> Callable[[ndarray], ndarray]:
    """Products with the mean of weighted squares of scores."""
    with twice_differentiable():
        log_N = world.log_probability(rollouts)
        dummy_N = torch.ones_like(log_N, requires_grad=True)
        mixed = torch.autograd.grad(log_N, world.parameters, dummy_N, create_graph=True)

    def product(vector: ndarray) -> ndarray:
        places = torch.split(
            torch.as_tensor(vector, dtype=torch.float32), [part.numel() for part in mixed]
        )
        shaped = [place.view_as(part) for place, part in zip(places, mixed, strict=True)]
        (along_N,) = torch.autograd.grad(mixed, dummy_N, shaped, retain_graph=True)
        pulled = torch.autograd.grad(
            log_N,
            world.parameters,
            weight_N.to(along_N) * along_N / len(along_N),
            retain_graph=True,
        )
        return torch.cat([part.reshape(-1) for part in pulled]).double().numpy()

    return product


def spectrum(world: Larger, where: str, *, scored: int = SCORED) -> tuple[float, ndarray]:
    """The stiffest mode's eigenvalue in samples other than the one that found it, and its
    direction; pieces are written.
    """
    generator = torch.Generator().manual_seed(11)
    groups, *others = (world.rollouts(scored // GROUP, generator) for _ in range(1 + SAMPLES))
    size = len(world.flat())
    outside, direction = 0.0, np.zeros(size)
    for part in ("KL term alone, beta F", "all of the stale force"):
        first_N, *weights = (
            torch.full_like(batch.advantage_N, KL_WEIGHT)
            if "alone" in part
            else KL_WEIGHT - batch.advantage_N
            for batch in (groups, *others)
        )
        top = leading_modes(products(world, groups, first_N), size, 3, tolerance=1e-3)
        direction = top.vector_DK[:, 0]
        quotients = [
            float(direction @ products(world, *pair)(direction))
            for pair in zip(others, weights, strict=True)
        ]
        outside = np.mean(quotients)
        if not SPECTRUM.has(where, part):
            row = {
                "where": where,
                "part": part,
                "inside": float(top.value_K[0]),
                "outside": outside,
                "outside_error": float(np.std(quotients, ddof=1) / np.sqrt(SAMPLES)),
                "second": float(top.value_K[1]),
            }
            SPECTRUM.add(
                row | {"rollouts": scored, "value": np.mean([batch.value for batch in others])}
            )
    return outside, direction


def learned(world: Larger, *, quick: bool) -> Tensor:
    """Where training on policy from the warm start ends: the same as the pieces that are there."""
    updates = 16 if quick else LEARN_UPDATES
    spectrum(world, "warm start", scored=128 if quick else SCORED)
    value_T, divergence_T, _ = trained(
        world, LEARN_RATE, updates, 1, setting=UpdateSettings("none", 0.9, 1), prompts=2 * PROMPTS
    )
    recorded = {row["update"]: row["value"] for row in LEARNING.rows()}
    for at in range(0, updates, 40):
        part = slice(at, at + 40)
        row = {
            "update": at,
            "value": np.mean(value_T[part]),
            "divergence": np.mean(divergence_T[part]),
        }
        if abs(recorded.get(at, row["value"]) - row["value"]) > SAME:
            raise SystemExit(
                f"expected to learn as recorded, a mean reward of {recorded[at]:.4f} from update "
                f"{at}, got {row['value']:.4f}: the trainer or the machine is another, so delete "
                "deep_larger_*.csv and run all of it"
            )
        if at not in recorded:
            LEARNING.add(row)
    return world.flat().float()


def run_row(
    world: Larger,
    end_D: Tensor,
    direction: ndarray,
    stiffest: float,
    lag: str,
    factor: float,
    seed: int,
    updates: int,
) -> JsonObject:
    """One run from where learning ended."""
    world.stand_at(end_D)
    edge, setting = edge_of(lag, stiffest), UpdateSettings(lag, MOMENTUM, INTERVAL)
    watch_D = torch.as_tensor(direction, dtype=torch.float32)
    value_T, divergence_T, along_T = trained(
        world, factor * edge, updates, seed, setting=setting, prompts=PROMPTS, watch_D=watch_D
    )
    third = len(along_T) // 3
    early, late = np.array(along_T[:third]), np.array(along_T[-third:])
    return {
        "lag": lag,
        "factor": factor,
        "seed": seed,
        "learning_rate": factor * edge,
        "updates": len(along_T),
        "spread_early": float(early.std()),
        "spread_late": float(late.std()),
        "value_late": np.mean(value_T[-third:]),
        "value_lowest": np.min(np.convolve(value_T, np.ones(8) / 8, "valid")),
        "divergence": np.mean(divergence_T[-third:]),
    }


def edge_of(lag: str, stiffest: float) -> float:
    """The largest stable learning rate by the exact threshold."""
    return float(threshold(lag, MOMENTUM, INTERVAL)) / stiffest


def show() -> None:
    """All tables."""
    lines = [
        [f"{row['update']} | {row['value']:.3f} | {row['divergence']:.3f}"]
        for row in LEARNING.rows()
    ]
    print_table(
        f"SGD on addition mod 100, on policy, eta = {LEARN_RATE:g}, momentum .9, 64 prompts",
        "from update | mean reward of 40 | KL",
        lines,
    )
    lines = []
    for row in SPECTRUM.rows():
        lines.append(
            [
                (
                    f"{row['where']} | {row['part']} | {row['inside']:.1f} | "
                    f"{row['outside']:.1f} +- {row['outside_error']:.1f} | {row['second']:.1f}"
                )
            ]
        )
        edges = [
            edge_of("refresh", row["outside"] + sign * row["outside_error"]) for sign in (0, 1, -1)
        ]
        lines[-1].append("{:.3g} ({:.3g} to {:.3g})".format(*edges))
    header = (
        (
            "where | part | largest eigenvalue, in the sample that found it | "
            f"in {SAMPLES} others | second | edge of the learning rate, refresh"
        ),
    )
    print_table(f"Stiffness from scores of {SCORED} rollouts", header, lines)
    lines = []
    for row in sorted(
        RUNS.rows(), key=lambda row: (LAGS.index(row["lag"]), row["factor"], row["seed"])
    ):
        lines.append(
            [
                (
                    f"{row['lag']} | {row['factor']:g} | {row['seed']} | "
                    f"{row['learning_rate']:.3g} | {row['spread_early']:.3g}"
                )
            ]
        )
        lines[-1] += [
            (
                f"{row['spread_late']:.3g} | {row['value_late']:.3f} | "
                f"{row['value_lowest']:.3f} | {row['divergence']:.3f}"
            )
        ]
    header = (
        (
            "lag | over the edge | seed | learning rate | "
            "spread along the stiffest mode, first third | last third"
        ),
    )
    print_table(
        f"Runs from there, {RUN_UPDATES} updates",
        (*header, "mean reward, last third | lowest of 8 updates | KL"),
        lines,
    )


def run_missing(world: Larger, end_D: Tensor, direction: ndarray, stiffest: float) -> None:
    """All runs that are not there."""
    for lag, seed, factor in combined(LAGS, (1, 2, 3), FACTORS):
        if not RUNS.has(lag, factor, seed):
            RUNS.add(run_row(world, end_D, direction, stiffest, lag, factor, seed, RUN_UPDATES))


def main() -> None:
    """Run what is missing and print."""
    asked = options(__doc__)
    if not asked.tables:
        if asked.quick:
            for pieces in (LEARNING, SPECTRUM, RUNS):
                pieces.keep_in_memory()
        world = Larger(level=1 if asked.quick else 2)
        end_D = learned(world, quick=asked.quick)
        world.stand_at(end_D)
        stiffest, direction = spectrum(
            world, "after learning", scored=128 if asked.quick else SCORED
        )
        if asked.quick:
            RUNS.add(run_row(world, end_D, direction, stiffest, "async", FACTORS[0], 1, 16))
        else:
            run_missing(world, end_D, direction, stiffest)
    show()


if __name__ == "__main__":
    main()
