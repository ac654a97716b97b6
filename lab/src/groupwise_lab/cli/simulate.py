"""The command `groupwise-lab simulate`: a training run whose truth is known, written as a record
that every other command reads.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from groupwise.cli.app import (
    numbers,
    print_json,
    print_lines,
    progress,
)
from groupwise.errors import InvalidArgumentError, OverwriteError

if TYPE_CHECKING:
    from groupwise_lab.simulate.softmax_bandit import Bandit

WORLDS = ("bandit",)
_MOST_STEPS = 1_000_000
_MOST_ROWS = 5_000_000


def simulate(
    world: str,
    *,
    output: Path,
    arms: int | None = None,
    rewards: str | None = None,
    reference: str | None = None,
    group_size: int = 8,
    prompts_per_step: int = 16,
    learning_rate: float = 0.1,
    momentum: float = 0.0,
    optimizer: str = "sgd",
    refresh_interval: int = 1,
    lag_kind: str | None = None,
    importance_ratio: str = "none",
    clip: float = 0.2,
    kl_weight: float = 0.0,
    kl_in: str = "loss",
    advantage: str = "leave_one_out",
    steps: int = 500,
    seed: int = 0,
    expected: bool = False,
    rollouts: int = 0,
    as_json: bool = False,
    force: bool = False,
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
