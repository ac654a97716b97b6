"""The command `groupwise simulate`: a training run whose truth is known, written as a record that every other command reads.

The world is in `groupwise.simulate`; here options become its settings and its series become a record.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from groupwise.cli.options import counting, out_console, print_json
from groupwise.errors import InvalidArgumentError, OverwriteError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from groupwise.record.run import RunRecord
    from groupwise.simulate.softmax_bandit import Bandit, Training

WORLDS = ("bandit",)
_MOST_STEPS = 1_000_000
_MOST_ROWS = 5_000_000
_MEANINGS = {
    "reward": ("reward", "mean reward of the rollouts of this update, without any KL term"),
    "reward_std": ("reward_std_within_group", "standard deviation of the rewards within a group, ddof 1, mean over the groups"),
    "dead_share": ("dead_group_share", "share of groups whose rewards are all equal"),
    "kl": ("kl", "exact KL divergence of the policy before this update from the reference policy, nats"),
    "entropy": ("entropy", "exact entropy of the policy before this update, nats"),
    "value": ("", "exact expected reward of the policy before this update"),
}


@dataclass(frozen=True, slots=True)
class Wish:
    """What was typed about the bandit and its training."""

    arms: int | None  # how many, or None
    rewards: str | None  # numbers with commas, or None
    reference: str | None  # probabilities with commas, or None
    kl_weight: float  # beta
    lag_kind: str | None  # or None
    interval: int  # of the lag, updates
    settings: dict[str, Any]  # the other settings of `Training`, by name

    def bandit(self) -> Bandit:
        """Return the bandit; without rewards the last arm is right and the others are wrong."""
        from groupwise.simulate.softmax_bandit import bandit

        rewards = None if self.rewards is None else _numbers("--rewards", self.rewards)
        arms = self.arms if self.arms is not None else 2 if rewards is None else len(rewards)
        if rewards is None:
            if not 2 <= arms <= 1000:
                raise InvalidArgumentError(f"--arms expects a whole number from 2 to 1000; got {arms}")
            rewards = [0.0] * (arms - 1) + [1.0]
        if len(rewards) != arms:
            raise InvalidArgumentError(
                f"--rewards expects {arms} numbers, one an arm; got {len(rewards)}: give as many, or leave out --arms"
            )
        reference = None if self.reference is None else _numbers("--reference", self.reference)
        return bandit(rewards, reference_A=reference, kl_weight=self.kl_weight)

    def training(self) -> Training:
        """Return the training; an interval without a kind of lag is that of a refresh."""
        from groupwise.simulate.softmax_bandit import Training

        lag = self.lag_kind if self.lag_kind is not None else "none" if self.interval == 1 else "refresh"
        if lag == "none" and self.interval != 1:
            raise InvalidArgumentError(f"expected --lag-kind fixed, refresh or async with --refresh-interval {self.interval}; got none")
        return Training(lag=lag, interval=self.interval, **self.settings)  # type: ignore[arg-type]


def _numbers(option: str, text: str) -> list[float]:
    """Split numbers with commas between them."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InvalidArgumentError(f"{option} expects numbers with commas between them, as 0,0.5,1; got {text[:60]!r}") from None


def run(world: str, wish: Wish, *, steps: int, seed: int, expected: bool, rollouts: int, output: Path, force: bool, as_json: bool) -> None:
    """Simulate one run, save it as a record and print what is known of it."""
    if world not in WORLDS:
        raise InvalidArgumentError(f"expected a world to simulate, got {world[:60]!r}: use {' or '.join(WORLDS)}")
    _check_numbers(steps, seed, rollouts, expected=expected)
    bandit, training = wish.bandit(), wish.training()
    if rollouts * training.prompts * training.group_size > _MOST_ROWS:
        raise InvalidArgumentError(f"--rollouts expects at most {_MOST_ROWS} rollouts in all: keep fewer steps")
    # A folder with something in it is refused before the work, not after it.
    if output.exists() and not force and (not output.is_dir() or any(output.iterdir())):
        raise OverwriteError(f"{output} exists already: choose another folder with -o, or replace a record with --force")
    with np.errstate(over="ignore", invalid="ignore"):  # a run that overflows is refused in a sentence
        record = _record(bandit, training, output.name, steps=steps, seed=seed, expected=expected, rollouts=rollouts, quiet=as_json)
    record.save(output, force=force)
    summary = {"folder": str(output), "steps": steps, "settings": _settings(bandit, training, seed), **_truth(bandit, training)}
    summary["last_value"] = float(record.steps["value"][-1])  # before the last update, as the record has it
    if as_json:
        print_json(summary)
        return
    _print(summary)


def _check_numbers(steps: int, seed: int, rollouts: int, *, expected: bool) -> None:
    """Refuse counts outside their range."""
    if not 1 <= steps <= _MOST_STEPS:
        raise InvalidArgumentError(f"--steps expects a whole number from 1 to {_MOST_STEPS}; got {steps}")
    if not 0 <= seed < 2**53:
        raise InvalidArgumentError(f"--seed expects a whole number from 0 to 2^53 - 1; got {seed}")
    if not 0 <= rollouts <= steps:
        raise InvalidArgumentError(f"--rollouts expects a whole number from 0 to the {steps} steps; got {rollouts}")
    if expected and rollouts:
        raise InvalidArgumentError("--rollouts expects a sampled run; with --expected there are no rollouts: leave one out")


def _record(
    bandit: Bandit, training: Training, name: str, *, steps: int, seed: int, expected: bool, rollouts: int, quiet: bool
) -> RunRecord:
    """Run the simulation and return its record."""
    from groupwise.record.run import Meaning, RunRecord, rollouts_table, steps_table
    from groupwise.record.settings import RunConfig
    from groupwise.simulate.bandit_runs import drawn_arms_of, expected_path, simulate_bandit

    with counting(quiet=quiet, doing="updates") as tick:

        def progress(done: int, total: int) -> None:
            tick(steps * done // total, steps)  # it comes in replicate-steps, of which one run is some

        if expected:
            runs = expected_path(bandit, training, steps=steps, keep=("value", "kl", "entropy"), progress=progress)
            series = {"reward": runs.value[:-1, 0]}
        else:
            runs = simulate_bandit(bandit, training, steps=steps, replicates=1, seed=seed, keep=tuple(_MEANINGS), progress=progress)  # type: ignore[arg-type]
            series = {key: runs.series[key][:, 0] for key in ("reward", "reward_std", "dead_share")}
    series |= {key: runs.series[key][:-1, 0] for key in ("kl", "entropy", "value")}
    _refuse_overflow(runs.value[:, 0])
    texts = {**_MEANINGS, **({"reward": ("reward", "exact expected reward of the policy before this update")} if expected else {})}
    meanings = tuple(Meaning(key, *texts[key]) for key in series)
    table = None
    if rollouts:
        arm_TPG = drawn_arms_of(bandit, training, steps=rollouts, seed=seed)
        table = rollouts_table(
            [
                {"step": step + 1, "prompt_id": group, "prompt": "bandit", "completion": f"arm {arm}", "reward": bandit.reward_A[arm]}
                for step, arm_PG in enumerate(arm_TPG)
                for group, arm_G in enumerate(arm_PG)
                for arm in arm_G
            ]
        )
    notes = (
        f"a simulated softmax bandit; gradient: {runs.method}",
        "settings: " + json.dumps(_settings(bandit, training, seed)),
        str(_truth(bandit, training)["status"]),
    )
    config = RunConfig().with_settings(_known(bandit, training, seed), "groupwise simulate bandit")
    return RunRecord(name, steps_table(list(range(1, steps + 1)), series), table, config, meanings, (), notes)


def _refuse_overflow(value_T: NDArray[np.floating[Any]]) -> None:
    """Refuse a run whose parameters have left the numbers of the machine."""
    lost = ~np.isfinite(value_T)
    if lost.any():
        raise InvalidArgumentError(
            f"the parameters grew beyond any number in {int(lost.argmax())} updates: take a smaller --learning-rate, or smaller --rewards"
        )


def _known(bandit: Bandit, training: Training, seed: int) -> dict[str, Any]:
    """The settings that a record has a name for."""
    adam = training.optimizer == "adam"
    return {
        "group_size": training.group_size,
        "prompts_per_step": training.prompts,
        "learning_rate": training.learning_rate,
        "learning_rate_schedule": "constant",
        "optimizer": training.optimizer,
        "momentum": None if adam else training.momentum,
        "beta1": training.momentum if adam else None,
        "beta2": training.beta2 if adam else None,
        "kl_weight": bandit.kl_weight,
        "importance_ratio": training.ratio,
        "kl_in": training.kl_place if bandit.kl_weight > 0 else "none",
        "refresh_interval": training.interval,
        "lag_kind": training.lag,
        "updates_per_step": 1,
        "logging_steps": 1,
        "scale_rewards": {"std_normalised": "group", "batch_std": "batch"}.get(training.advantage, "none"),
        "temperature": 1.0,
        "model": f"softmax bandit with {bandit.arms} arms",
        "framework": "groupwise simulate",
        "smoothing": 1,
        "seed": seed,
    }


def _settings(bandit: Bandit, training: Training, seed: int) -> dict[str, Any]:
    """Every setting as plain data."""
    plain = {"rewards": bandit.reward_A.tolist(), "reference": bandit.reference_A.tolist(), "kl_weight": bandit.kl_weight, "seed": seed}
    return plain | dataclasses.asdict(training)


def _truth(bandit: Bandit, training: Training) -> dict[str, Any]:
    """What is known exactly: where the run starts, where it rests, and how stiff it is there."""
    from groupwise.simulate.softmax_bandit import exact_value, fixed_point

    start = exact_value(bandit, np.log(bandit.reference_A))
    try:
        rest = fixed_point(bandit, training)
    except InvalidArgumentError as error:
        return {"start_value": start, "fixed_point": None, "status": str(error)}
    modes = [{"stiffness": float(k), "visible": float(v)} for k, v in zip(rest.stiffness_M, rest.visible_M, strict=True)]
    found = {"value": rest.value, "policy": rest.policy_A.tolist(), "stiffness": rest.stiffness, "modes": modes}
    fastest = modes[0]["stiffness"]
    status = f"the fixed point has reward {rest.value:.5g}; learning rate x stiffness of the fastest mode is "
    status += f"{training.learning_rate * fastest:.4g}"
    if training.optimizer == "adam":
        status += f", which is not Adam's force: that is {1 - training.momentum:.4g} times as much over the root of its second moment"
    return {"start_value": start, "fixed_point": found, "status": status}


def _print(summary: dict[str, Any]) -> None:
    """Print the summary for a person."""
    console = out_console()
    status = str(summary["status"])
    went = f"the exact expected reward went from {summary['start_value']:.4g} to {summary['last_value']:.4g}"
    for line in (
        f"Wrote {summary['steps']} steps to {summary['folder']}: {went}.",
        f"{status[0].upper()}{status[1:]}.",
        f"Next: groupwise report {summary['folder']}",
    ):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
