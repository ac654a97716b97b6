"""The command `groupwise-lab simulate`: a training run whose truth is known, written as a record
that every other command reads.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from groupwise.cli.app import (
    argument,
    flag,
    numbers,
    option,
    print_json,
    print_lines,
    progress,
    whole,
)
from groupwise.errors import InvalidArgumentError, OverwriteError

if TYPE_CHECKING:
    from groupwise_lab.simulate.softmax_bandit import Bandit

WORLDS = ("bandit",)
_MOST_STEPS = 1_000_000
_MOST_ROWS = 5_000_000


def simulate(
    world: Annotated[str, argument("WORLD", "bandit: one prompt and a softmax policy.")],
    *,
    output: Annotated[
        Path, option("FOLDER", "Folder of the record that is written.", "--output", "-o")
    ],
    arms: Annotated[
        int | None, option("K", "The number of arms; by default as many as rewards, else 2.")
    ] = None,
    rewards: Annotated[
        str | None,
        option("R1,R2", "The reward of each arm; by default 1 for the last and 0 for the others."),
    ] = None,
    reference: Annotated[
        str | None,
        option("P1,P2", "The policy at the start and of the KL term; by default uniform."),
    ] = None,
    group_size: Annotated[int, option("G", "Rollouts of a group.")] = 8,
    prompts_per_step: Annotated[int, option("B", "Groups of an update.")] = 16,
    learning_rate: Annotated[float, option("E", "The learning rate, per update.")] = 0.1,
    momentum: Annotated[float, option("M", "The momentum of SGD, or beta1 of Adam.")] = 0.0,
    optimizer: Annotated[str, option("NAME", "sgd or adam.")] = "sgd",
    refresh_interval: Annotated[int, option("R", "Updates of one block, or of a fixed lag.")] = 1,
    lag_kind: Annotated[
        str | None, option("KIND", "none, fixed, refresh or async; by default refresh where R > 1.")
    ] = None,
    importance_ratio: Annotated[str, option("KIND", "none, exact or clipped.")] = "none",
    clip: Annotated[float, option("EPS", "The width of the clipped ratio.")] = 0.2,
    kl_weight: Annotated[float, option("BETA", "The weight of the KL term.")] = 0.0,
    kl_in: Annotated[
        str, option("PLACE", "loss (at the current policy) or reward (as stale as the rollouts).")
    ] = "loss",
    advantage: Annotated[
        str, option("NAME", "vanilla, full_group_mean, leave_one_out, std_normalised or batch_std.")
    ] = "leave_one_out",
    steps: Annotated[int, option("N", "The number of updates.", check=whole(1, _MOST_STEPS))] = 500,
    seed: Annotated[int, option("N", "Seed of the random numbers.", check=whole(0, 2**53 - 1))] = 0,
    expected: Annotated[
        bool, flag("--expected", "Step the exact expectation: no sampling noise.")
    ] = False,
    rollouts: Annotated[int, option("N", "Keep the rollouts of the first N steps.")] = 0,
    as_json: bool = False,
    force: Annotated[bool, flag("--force", "Replace a record that is there already.")] = False,
) -> None:
    """Simulate a training run whose truth is known, and write it as a record."""
    import numpy as np

    from groupwise_lab.simulate.bandit_record import bandit_record, plain_settings, truth
    from groupwise_lab.simulate.softmax_bandit import Training

    if world not in WORLDS:
        raise InvalidArgumentError(
            f"expected a world to simulate, got {world[:60]!r}: use {' or '.join(WORLDS)}"
        )
    if not 0 <= rollouts <= steps:
        raise InvalidArgumentError(
            f"--rollouts expects a whole number from 0 to the {steps} steps; got {rollouts}"
        )
    if expected and rollouts:
        raise InvalidArgumentError(
            "--rollouts expects a sampled run; with --expected there are no rollouts: leave one out"
        )
    bandit = _bandit(arms, rewards, reference, kl_weight)
    lag = lag_kind if lag_kind is not None else "none" if refresh_interval == 1 else "refresh"
    if lag == "none" and refresh_interval != 1:
        raise InvalidArgumentError(
            "expected --lag-kind fixed, refresh or async with --refresh-interval "
            f"{refresh_interval}; got none"
        )
    training = Training(
        learning_rate=learning_rate,
        group_size=group_size,
        prompts=prompts_per_step,
        momentum=momentum,
        optimizer=optimizer,  # type: ignore[arg-type]
        lag=lag,  # type: ignore[arg-type]
        interval=refresh_interval,
        ratio=importance_ratio,  # type: ignore[arg-type]
        clip=clip,
        kl_place=kl_in,  # type: ignore[arg-type]
        advantage=advantage,  # type: ignore[arg-type]
    )
    if rollouts * prompts_per_step * group_size > _MOST_ROWS:
        raise InvalidArgumentError(
            f"--rollouts expects at most {_MOST_ROWS} rollouts in all: keep fewer steps"
        )
    # A folder with something in it is refused before the work, not after it.
    if output.exists() and not force and (not output.is_dir() or any(output.iterdir())):
        raise OverwriteError(
            f"{output} exists already: choose another folder with -o, or replace a record with "
            "--force"
        )
    with (
        np.errstate(over="ignore", invalid="ignore"),
        progress(quiet=as_json) as show,
    ):  # an overflow is refused in a sentence
        record = bandit_record(
            bandit,
            training,
            output.name,
            steps=steps,
            seed=seed,
            expected=expected,
            rollouts=rollouts,
            progress=partial(show, "updates"),
        )
    record.save(output, force=force)
    facts = truth(bandit, training)
    last = float(record.steps["value"][-1])  # before the last update, as the record has it
    if as_json:
        settings = plain_settings(bandit, training, seed)
        print_json(
            {
                "folder": str(output),
                "steps": steps,
                "settings": settings,
                **facts,
                "last_value": last,
            }
        )
        return
    status = str(facts["status"])
    print_lines(
        f"Wrote {steps} steps to {output}: the exact expected reward went from "
        f"{facts['start_value']:.4g} to {last:.4g}.",
        f"{status[0].upper()}{status[1:]}.",
        f"Next: groupwise report {output}",
    )


def _bandit(
    arms: int | None, rewards: str | None, reference: str | None, kl_weight: float
) -> Bandit:
    """Return the bandit; without rewards the last arm is right and the others are wrong."""
    from groupwise_lab.simulate.softmax_bandit import bandit as make_bandit

    reward_A = None if rewards is None else numbers("--rewards", rewards, "0,0.5,1")
    count = arms if arms is not None else 2 if reward_A is None else len(reward_A)
    if reward_A is None:
        if not 2 <= count <= 1000:
            raise InvalidArgumentError(f"--arms expects a whole number from 2 to 1000; got {count}")
        reward_A = [0.0] * (count - 1) + [1.0]
    if len(reward_A) != count:
        raise InvalidArgumentError(
            f"--rewards expects {count} numbers, one an arm; got {len(reward_A)}: give as many, or "
            "leave out --arms"
        )
    reference_A = None if reference is None else numbers("--reference", reference, "0.2,0.8")
    return make_bandit(reward_A, reference_A=reference_A, kl_weight=kl_weight)
