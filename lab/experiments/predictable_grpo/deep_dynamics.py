"""The reduced-order model against a network that learns: three sizes, two group sizes, three seeds,
and what inertia has to do with it.

    python lab/experiments/predictable_grpo/deep_dynamics.py [--quick] [--tables] [--workers 1]
    [--minutes 60] [--only TEXT]

runs what is missing, smallest first: policies taught a little of eleven kinds of sums (a start a
size); 400 updates of heavy-ball SGD (momentum .9, eta .0005) with leave-one-out advantages on
two-digit addition, 32 prompts with G = 4 or 16 rollouts; four times that rate; momentum varied at a
fixed eta/(1 - mu); the spread of short runs from one start, by G; and of every run the laws fitted
and a forecast from 40 %. Pieces are in results.txt; the tables of
lab/docs/studies/deep-dynamics.md are printed. Accuracies of held-out
problems and of ten families that are not trained on are exact: the probability of the one right
answer.
"""

import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "u_statistic"))  # the runner of cells

from cells import Cell, Rows, options, run_asked, say_missing
from deep_dynamics_pages import show
from note import RESULTS, column

PIECES, FITS = RESULTS.within("deep_dynamics"), RESULTS.within("deep_dynamics_fits")
SIZES, GROUPS, SEEDS = ("tiny", "small", "medium"), (4, 16), 3
PROMPTS, STEPS, MOMENTUM, RATE = 32, 400, 0.9, 0.0005
STARTS = {"warm": 0.10, "low": 0.04}  # accuracy over all kinds that the teaching stops at
MATCHED = {"medium": 0.155}
# of a size that learns the kinds in another order: here two-digit addition is as far as in the
# other sizes
EVERY, CHECKED = 40, 1000  # updates between exact accuracies, training problems behind them
REPLICATES, SHORT = 48, 10
CHECKS_ON = "tiny"  # the size on which momentum is varied and short runs are repeated


@cache
def world() -> tuple[Any, tuple[Any, ...], Any]:
    """Two-digit addition, the families to transfer to, and a mixture of both to teach at the
    start; no problem that is asked is taught.
    """
    from groupwise_lab.trainer.tasks import make_task, transfer_tasks

    task = make_task("addition", level=2)
    others = tuple(
        other for other in transfer_tasks(task, problems=300) if other.name != "addition/1"
    )  # its hundred sums are all asked
    asked = {problem.prompt for other in (*others, task) for problem in other.held_out}
    taught = list(task.train[:2000])
    for other in others:
        family, level = other.name.split("/")
        taught += make_task(
            family, level=int(level), seed=1, problems=2000, held_out_share=0.0, exclude=asked
        ).train
    random.Random(0).shuffle(taught)
    longest = (
        max(other.prompt_length for other in (task, *others)),
        max(other.completion_length for other in (task, *others)),
    )
    return (
        task,
        others,
        replace(task, train=tuple(taught), prompt_length=longest[0], completion_length=longest[1]),
    )


def start(size: str, kind: str = "warm"):
    """The policy that every run of a size begins with; from the cache after the first time."""
    from groupwise_lab.trainer.policy import Policy, policy_size
    from groupwise_lab.trainer.warm_up import default_cache, warm_up

    task, _, mixture = world()
    policy = Policy(policy_size(size), vocabulary_size=len(task.vocabulary), seed=0)
    accuracy = MATCHED.get(size, STARTS[kind]) if kind == "warm" else STARTS[kind]
    warm_up(policy, mixture, accuracy=accuracy, cache=default_cache())
    return policy


def values(policy, task, problems: Sequence[Any]):
    """V(x) of every problem: the probability of its right answer."""
    import torch

    answer_PL, mask_PL = policy.answer_tokens(task, problems)
    with torch.no_grad():
        return (
            (policy.log_probabilities(policy.prompt_tokens(task, problems), answer_PL) * mask_PL)
            .sum(1)
            .double()
            .exp()
            .numpy()
        )


def gradient(policy, task, problems: Sequence[Any]):
    """Gradient of the mean value, exact."""
    import torch

    answer_PL, mask_PL = policy.answer_tokens(task, problems)
    log_P = (
        policy.log_probabilities(policy.prompt_tokens(task, problems), answer_PL) * mask_PL
    ).sum(1)
    parts = torch.autograd.grad(log_P.exp().mean(), list(policy.parameters()))
    return torch.cat([part.reshape(-1) for part in parts]).double()


def exact_row(policy) -> dict[str, float]:
    """Mean, spread within and between prompts of the trained task, its held-out accuracy, and
    that of every other family.
    """
    task, others, _ = world()
    values_now = values(policy, task, task.train[:CHECKED])
    row = {
        "value": float(values_now.mean()),
        "within": float((values_now * (1 - values_now)).mean()),
        "between": float(values_now.var()),
        "held_out": float(values(policy, task, task.held_out[:CHECKED]).mean()),
    }
    return row | {
        other.name: float(values(policy, other, other.held_out).mean()) for other in others
    }


def begin(size: str, kind: str = "warm") -> Rows:
    """What a start knows, and how steep the value is there."""
    began = time.process_time()
    policy = start(size, kind)
    seconds = time.process_time() - began
    task = world()[0]
    norm2 = float(gradient(policy, task, task.train[:CHECKED]).square().sum())
    parameters = sum(parameter.numel() for parameter in policy.parameters())
    return [
        {
            "size": size,
            "start": kind,
            "parameters": parameters,
            "seconds": seconds,
            "gradient_norm2": norm2,
            **exact_row(policy),
        }
    ]


def curve(
    size: str,
    group_size: int,
    seed: int,
    *,
    kind: str = "warm",
    momentum: float = MOMENTUM,
    rate: float = RATE,
    steps: int = STEPS,
    families: bool = True,
) -> Rows:
    """One run: the mean reward of every update's batch, and exact accuracies every 40 updates."""
    from groupwise_lab.trainer.grpo import train
    from groupwise_lab.trainer.settings import TrainSettings

    policy, task = start(size, kind), world()[0]
    settings = TrainSettings(
        group_size=group_size,
        rollouts_per_step=PROMPTS * group_size,
        steps=steps,
        learning_rate=rate,
        optimizer="sgd",
        momentum=momentum,
        importance_ratio="none",
        clip=None,
        seed=seed,
        evaluate_every=0,
        rollouts_every=0,
        checkpoint_every=steps,
    )
    exact = exact_row(policy)
    rows = [{"step": 0, "reward": "", **exact}]

    def watch(step: int, row) -> None:
        later = exact_row(policy) if step % (EVERY if families else 100) == 0 else {}
        rows.append(
            {
                "step": step,
                "reward": round(float(row["reward"]), 5),
                **{name: later.get(name, "") for name in exact},
            }
        )

    with tempfile.TemporaryDirectory() as home:
        train(policy, task, settings, output=Path(home) / "run", on_step=watch)
    return rows


def fitted(run: str, group_size: int) -> Rows:
    """Laws fitted to one run's rewards, and its forecast from 40 %."""
    import numpy as np

    from groupwise.forecasting.fit import fit
    from groupwise_lab.forecasts.backtest import backtest

    rows = PIECES.read(run)
    rows_with_value = [row for row in rows if row["value"] != ""]
    at = np.array(column(rows_with_value, "step"), dtype=float)
    noise = [
        row["within"] / (PROMPTS * group_size) + row["between"] / PROMPTS for row in rows_with_value
    ]
    step_T = np.array(column(rows[1:], "step"), dtype=float)
    reward_T = np.array(column(rows[1:], "reward"), dtype=float)
    variance_T = np.interp(step_T, at, noise)
    given = {"variance_T": variance_T, "smoothing": 1, "healthy": "up"}
    every = fit(step_T, reward_T, **given)
    row = {"run": run, "law": every.law, "status": every.status}
    row |= {f"aicc_{candidate.law}": candidate.aicc for candidate in every.candidates} | {
        f"r2_{candidate.law}": candidate.r_squared for candidate in every.candidates
    }
    model = fit(step_T, reward_T, law="oscillator", **given)
    row |= {"r2": model.r_squared, "r2_adjusted": model.r_squared_explainable}
    row |= {f"oscillator_{name}": part.value for name, part in model.parameters.items()}
    plain = fit(step_T, reward_T, law="exponential", **given)
    for name, part in plain.parameters.items():
        row |= {
            f"exponential_{name}": part.value,
            f"exponential_{name}_low": part.low,
            f"exponential_{name}_high": part.high,
        }
    score = backtest(step_T, reward_T, from_share=0.4, smoothing=1, bounds=(0.0, 1.0))
    return [
        row
        | {f"error_{name}": value for name, value in score.errors.items()}
        | {"covered": score.covered, "windows": score.windows}
    ]


def spread(
    group_size: int,
    replicates: int = REPLICATES,
    steps: int = SHORT,
    size: str = CHECKS_ON,
    rate: float = RATE / 10,
) -> Rows:
    """Exact values after a few updates of plain SGD, many times from one start, and what components
    along the gradient predict.

    The rate is a tenth of a run's: at that of a run the steepest direction already turns back
    within ten updates.
    """
    import numpy as np
    import torch

    from groupwise_lab.trainer.grpo import train
    from groupwise_lab.trainer.settings import TrainSettings

    task = world()[0]
    begun = {name: tensor.clone() for name, tensor in start(size).state_dict().items()}
    policy = start(size)
    along = gradient(policy, task, task.train)
    norm2 = float(along.square().sum())
    projection = projected(policy, along / norm2**0.5)
    rows = []
    for replicate in range(replicates):
        policy.load_state_dict(begun)
        settings = TrainSettings(
            group_size=group_size,
            rollouts_per_step=PROMPTS * group_size,
            steps=steps,
            learning_rate=rate,
            optimizer="sgd",
            importance_ratio="none",
            clip=None,
            seed=5000 + replicate,
            evaluate_every=0,
            rollouts_every=0,
            checkpoint_every=steps,
        )
        with tempfile.TemporaryDirectory() as home:
            train(policy, task, settings, output=Path(home) / "run")
        moved = torch.cat([tensor.reshape(-1) for tensor in policy.parameters()]) - torch.cat(
            [begun[name].reshape(-1) for name, _ in policy.named_parameters()]
        )
        along_gradient = float(moved.detach().double() @ along) / norm2**0.5
        row = {
            "group_size": group_size,
            "replicate": replicate,
            "value": np.mean(values(policy, task, task.train[:CHECKED])),
            "along": along_gradient,
            "steps": steps,
            "rate": rate,
            "gradient_norm2": norm2,
        }
        rows.append(row | projection)
    return rows


def projected(policy, direction, *, groups: int = 512, group_size: int = 16) -> dict[str, float]:
    """Vp, T and R of scores along one direction, from one sample of rollouts."""
    import numpy as np
    import torch

    from groupwise.estimators.components import components

    task = world()[0]
    chosen = [
        task.train[place]
        for place in np.random.default_rng(7).integers(len(task.train), size=groups)
    ]
    prompt_PL = policy.prompt_tokens(task, chosen)
    sampled = policy.sample(
        prompt_PL, group_size, torch.Generator().manual_seed(7), task.completion_length
    )
    answer_PL, _ = policy.answer_tokens(task, chosen)
    right_N = (
        (sampled.completion_NL == answer_PL.repeat_interleave(group_size, 0))
        .all(1)
        .double()
        .numpy()
    )
    score_N = directional(policy, direction, prompt_PL, sampled)
    estimate = components(
        right_N, np.repeat(np.arange(groups), group_size), score_ND=score_N[:, None]
    )
    return {"vp": estimate.vp.value, "t": estimate.t.value, "r": estimate.r.value}


def directional(policy, direction, prompt_PL, sampled, step: float = 1e-2):
    """The score of every rollout along a direction, by a central difference."""
    import torch

    def moved(by: float):
        place = 0
        with torch.no_grad():
            for parameter in policy.parameters():
                part = direction[place : place + parameter.numel()].view_as(parameter)
                parameter.add_(part.to(parameter.dtype), alpha=by)
                place += parameter.numel()
            return (
                (policy.log_probabilities(prompt_PL, sampled.completion_NL) * sampled.mask_NL)
                .double()
                .sum(1)
            )

    ahead = moved(step)
    behind = moved(-2 * step)
    moved(step)
    return ((ahead - behind) / (2 * step)).numpy()


def run_name(size: str, group_size: int, seed: int, kind: str = "run") -> str:
    """Of a run."""
    return f"{kind}-{size}-G{group_size:02d}-seed{seed}"


def training_cells() -> list[Cell]:
    """Everything that trains, what is needed most and smallest first."""
    cells = [Cell(f"spread-G{group:02d}", spread, {"group_size": group}) for group in GROUPS]
    for size in SIZES:
        if size == SIZES[-1]:
            cells += momentum_cells() + run_cells(
                SIZES[:2], "fast", 4 * RATE
            )  # more noise of the gradient at four times the rate
        cells += [Cell(f"start-{size}", begin, {"size": size}), *run_cells((size,), "run", RATE)]
    return cells


def run_cells(sizes: Sequence[str], kind: str, rate: float) -> list[Cell]:
    """Runs of both group sizes from the common start."""
    return [
        Cell(
            run_name(size, group, seed, kind),
            curve,
            {"size": size, "group_size": group, "seed": seed, "rate": rate},
        )
        for size in sizes
        for seed in range(SEEDS)
        for group in reversed(GROUPS)
    ]


def momentum_cells() -> list[Cell]:
    """Momentum varied at a fixed eta/(1 - mu), from the common start and from a low one; at .9
    the former is a run of the first kind.
    """
    given = {"size": CHECKS_ON, "group_size": 16, "families": False}
    cells = []
    for kind, momenta in (("warm", (0.0, 0.99, 0.97, 0.5)), ("low", (0.0, 0.9))):
        cells += (
            [Cell(f"start-{CHECKS_ON}-low", begin, {"size": CHECKS_ON, "kind": "low"})]
            if kind == "low"
            else []
        )
        for seed in range(SEEDS):
            for momentum in momenta:
                rate = round(RATE / (1 - MOMENTUM) * (1 - momentum), 8)
                varied = {"seed": seed, "kind": kind, "momentum": momentum, "rate": rate}
                cells.append(
                    Cell(f"momentum-{kind}-mu{momentum:g}-seed{seed}", curve, given | varied)
                )
    return cells


def fit_cells() -> list[Cell]:
    """A fit for every run that is there."""
    names = [
        (run_name(size, group, seed), group)
        for size in SIZES
        for group in GROUPS
        for seed in range(SEEDS)
    ]
    names += [(cell.name, 16) for cell in momentum_cells() if cell.name.startswith("momentum")]
    there = PIECES.tables()
    return [
        Cell(name, fitted, {"run": name, "group_size": group})
        for name, group in names
        if name in there
    ]


def quick() -> None:
    """Everything once, as small as it gets."""
    STARTS["warm"] = 0.0005
    print(
        column(curve("tiny", 4, 0, steps=4, families=False), "step"), begin("tiny")[0]["parameters"]
    )
    print([sorted(row)[0] for row in spread(4, 2, 2, "tiny")])


def main() -> None:
    """Run what is missing; print what is there."""
    asked = options(__doc__)
    if asked.quick:
        quick()
        return
    run_asked(training_cells(), PIECES, asked)
    run_asked(fit_cells(), FITS, asked)
    show(PIECES.tables(), FITS.tables())
    say_missing(training_cells(), PIECES)


if __name__ == "__main__":
    main()
