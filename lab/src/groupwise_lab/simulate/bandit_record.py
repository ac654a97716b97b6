"""A run of the bandit as a record that every other command reads, and what is known of it
exactly.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable

import numpy as np

from groupwise.errors import InvalidArgumentError
from groupwise.parsing import JsonObject
from groupwise.record.run import Meaning, RunConfig, RunRecord, rollouts_table, steps_table
from groupwise_lab.simulate.bandit_runs import (
    ROLLOUT_QUANTITIES,
    Records,
    drawn_arms_of,
    expected_path,
    simulate_bandit,
)
from groupwise_lab.simulate.softmax_bandit import Bandit, Training, exact_value, fixed_point

_MEANINGS = {
    "reward": ("reward", "mean reward of the rollouts of this update, without any KL term"),
    "reward_std": (
        "reward_std_within_group",
        "standard deviation of the rewards within a group, ddof 1, mean over the groups",
    ),
    "dead_share": ("dead_group_share", "share of groups whose rewards are all equal"),
    "kl": (
        "kl",
        "exact KL divergence of the policy before this update from the reference policy, nats",
    ),
    "entropy": ("entropy", "exact entropy of the policy before this update, nats"),
    "value": ("", "exact expected reward of the policy before this update"),
}


def bandit_record(
    bandit: Bandit,
    training: Training,
    name: str,
    *,
    steps: int,
    seed: int = 0,
    expected: bool = False,
    rollouts: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> RunRecord:
    """Simulate one run and return its record, with the rollouts of its first few steps where
    they are wanted.
    """

    def report(done: int, total: int) -> None:
        if progress is not None:
            progress(
                steps * done // total, steps
            )  # it comes in replicate-steps, of which one run is some

    if expected:
        runs = expected_path(
            bandit,
            training,
            steps=steps,
            progress=report,
            records=Records(("value", "kl", "entropy")),
        )
        series = {"reward": runs.value[:-1, 0]}
    else:
        kept = Records(("value", *ROLLOUT_QUANTITIES, "kl", "entropy"))
        runs = simulate_bandit(
            bandit, training, steps=steps, replicates=1, seed=seed, records=kept, progress=report
        )
        series = {key: runs.series[key][:, 0] for key in ROLLOUT_QUANTITIES}
    series |= {key: runs.series[key][:-1, 0] for key in ("kl", "entropy", "value")}
    lost = ~np.isfinite(runs.value[:, 0])
    if lost.any():
        raise InvalidArgumentError(
            f"the parameters grew beyond any number in {int(lost.argmax())} updates: take a "
            "smaller --learning-rate, or smaller --rewards"
        )
    texts = {
        **_MEANINGS,
        **(
            {"reward": ("reward", "exact expected reward of the policy before this update")}
            if expected
            else {}
        ),
    }
    meanings = tuple(Meaning(key, *texts[key]) for key in series)
    table = None
    if rollouts:
        arm_TPG = drawn_arms_of(bandit, training, steps=rollouts, seed=seed)
        table = rollouts_table(
            [
                {
                    "step": step + 1,
                    "prompt_id": group,
                    "prompt": "bandit",
                    "completion": f"arm {arm}",
                    "reward": bandit.reward_A[arm],
                }
                for step, arm_PG in enumerate(arm_TPG)
                for group, arm_G in enumerate(arm_PG)
                for arm in arm_G
            ]
        )
    notes = (
        f"a simulated softmax bandit; gradient: {runs.method}",
        "settings: " + json.dumps(plain_settings(bandit, training, seed)),
        str(truth(bandit, training)["status"]),
    )
    config = RunConfig().with_settings(
        _provenance(bandit, training, seed), "groupwise-lab simulate bandit"
    )
    return RunRecord(
        name, steps_table(list(range(1, steps + 1)), series), table, config, meanings, (), notes
    )


def _provenance(bandit: Bandit, training: Training, seed: int) -> JsonObject:
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
        "scale_rewards": {"std_normalised": "group", "batch_std": "batch"}.get(
            training.advantage, "none"
        ),
        "temperature": 1.0,
        "model": f"softmax bandit with {bandit.arms} arms",
        "framework": "groupwise-lab simulate",
        "smoothing": 1,
        "seed": seed,
    }


def plain_settings(bandit: Bandit, training: Training, seed: int) -> JsonObject:
    """Every setting as plain data."""
    plain = {
        "rewards": bandit.reward_A.tolist(),
        "reference": bandit.reference_A.tolist(),
        "kl_weight": bandit.kl_weight,
        "seed": seed,
    }
    return plain | dataclasses.asdict(training)


def truth(bandit: Bandit, training: Training) -> JsonObject:
    """What is known exactly: where the run starts, where it rests, and how stiff it is there."""
    start = exact_value(bandit, np.log(bandit.reference_A))
    try:
        rest = fixed_point(bandit, training)
    except InvalidArgumentError as error:
        return {"start_value": start, "fixed_point": None, "status": str(error)}
    modes = [
        {"stiffness": float(k), "visible": float(v)}
        for k, v in zip(rest.stiffness_M, rest.visible_M, strict=True)
    ]
    facts = {
        "value": rest.value,
        "policy": rest.policy_A.tolist(),
        "stiffness": rest.stiffness,
        "modes": modes,
    }
    fastest = modes[0]["stiffness"]
    status = (
        f"the fixed point has reward {rest.value:.5g}; learning rate x stiffness of the fastest "
        "mode is "
    )
    status += f"{training.learning_rate * fastest:.4g}"
    if training.optimizer == "adam":
        status += (
            f", which is not Adam's force: that is {1 - training.momentum:.4g} times as much over "
            "the root of its second moment"
        )
    return {"start_value": start, "fixed_point": facts, "status": status}
