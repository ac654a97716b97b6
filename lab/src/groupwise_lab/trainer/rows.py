"""What a step of training leaves in the record, and what is said of steps in which there was
nothing to learn from.

The columns carry the names of the quantities, and `MEANINGS` says what each is. Without a signal no
two rollouts of a group differ in reward: at the start that is a refusal, later a warning. It
changes no training.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from groupwise.errors import GroupwiseWarning, InsufficientDataError
from groupwise.parsing import JsonObject, JsonView
from groupwise.record.run import Meaning, Meanings

if TYPE_CHECKING:
    import polars as pl
    from torch import Tensor

    from groupwise_lab.trainer.credit import GradedRollouts
    from groupwise_lab.trainer.rewards import Problem
    from groupwise_lab.trainer.tasks import Task


MEANINGS: Meanings = (
    Meaning("reward", "reward", "mean reward of the rollouts of this update, without any KL term"),
    Meaning(
        "reward_std",
        "reward_std_within_group",
        "standard deviation of the rewards within a group, ddof 1, mean over the groups",
    ),
    Meaning("dead_share", "dead_group_share", "share of groups whose rewards are all equal"),
    Meaning("completion_length", "completion_length", "mean tokens of a completion, end included"),
    Meaning(
        "truncated_share", "truncated_share", "share of completions cut off at the length limit"
    ),
    Meaning(
        "entropy",
        "entropy",
        "mean entropy of the sampling policy over the tokens that it drew, nats",
    ),
    Meaning("kl", "kl", "KL divergence to the policy at the start, k3 estimate, nats a token"),
    Meaning("clip_ratio", "clip_ratio", "share of tokens whose importance ratio the clipping held"),
    Meaning("gradient_norm", "gradient_norm", "norm of the gradient before clipping"),
    Meaning(
        "loss",
        "loss",
        "the policy loss: near 0 on-policy by construction, it says nothing about learning",
    ),
    Meaning("learning_rate", "learning_rate", "learning rate of this update"),
    Meaning("lag", "staleness", "updates between the sampling of the rollouts and this one"),
    Meaning(
        "group_size",
        "group_size",
        (
            "rollouts of a prompt in this update, where the group size is adaptive; their number "
            "stays as it is"
        ),
    ),
    Meaning(
        "planned_group_size",
        "",
        "group size of least predicted error by the components measured so far",
    ),
    Meaning(
        "planned_excess",
        "",
        (
            "predicted error of the group size in use at the last measurement over that of the "
            "planned one, minus 1"
        ),
    ),
    Meaning(
        "running_vp",
        "",
        (
            "variance of the gradient between prompts, by the measurements so far, older ones "
            "counting less"
        ),
    ),
    Meaning("running_t", "", "first-order variance within prompts, likewise"),
    Meaning("running_r", "", "second-order part within prompts, likewise"),
    Meaning("probe_seconds", "", "seconds spent so far on measuring components, out of `seconds`"),
    Meaning("missing_share", "", "share of rollouts that the verifier gave no reward"),
    Meaning(
        "eval/reward",
        "eval/reward",
        "mean reward on held-out problems after this update, the same problems each time",
    ),
)


def meanings(names: tuple[str, ...]) -> Meanings:
    """Return the meanings of a run's columns."""
    parts = [
        Meaning(
            f"{place}rewards/{name}/mean",
            f"{place}reward/{name}",
            f"mean of the reward {name}, before its weight",
        )
        for name in names
        for place in ("", "eval/")
    ]
    return (*MEANINGS, *parts)


def step_row(judged: GradedRollouts, *, number: int, learning_rate: float, lag: int) -> JsonObject:
    """Return what the rollouts of a step tell."""
    reward_PG = judged.reward_N.reshape(len(judged.problems), -1)
    finite = np.isfinite(reward_PG)
    whole_PG = reward_PG[finite.all(1)]
    sampled = judged.sampled
    row: JsonObject = {
        "step": number,
        "reward": float(reward_PG[finite].mean()) if finite.any() else None,
    }
    row |= {
        f"rewards/{name}/mean": float(np.nanmean(part_N)) if np.isfinite(part_N).any() else None
        for name, part_N in judged.part_N.items()
    }
    if len(whole_PG):
        row["reward_std"] = float(whole_PG.std(axis=1, ddof=1).mean())
        row["dead_share"] = float((whole_PG.max(1) == whole_PG.min(1)).mean())
    if not finite.all():
        row["missing_share"] = float(1 - finite.mean())
    row["completion_length"] = float(sampled.mask_NL.sum(1).mean())
    row["truncated_share"] = 1.0 - float(np.mean(judged.ended_N))
    row["entropy"] = float(sampled.entropy_NL.sum() / sampled.mask_NL.sum())
    return row | {"learning_rate": learning_rate, "lag": lag}


def rollout_rows(
    judged: GradedRollouts, advantage_N: Tensor, shown: Callable[[Problem], str]
) -> list[JsonObject]:
    """Return a row a completion: the groups of a step are numbered in its order, so that a problem
    drawn twice makes two groups.

    Prompts are as the policy reads them, and the token that ended a completion stands beside its
    text: both are needed to score it anew.
    """
    size = len(judged.reward_N) // len(judged.problems)
    lengths, advantages = judged.sampled.mask_NL.sum(1).tolist(), advantage_N.tolist()
    parts = {f"reward/{name}": part_N.tolist() for name, part_N in judged.part_N.items()}
    rewards, prompts = judged.reward_N.tolist(), [shown(problem) for problem in judged.problems]
    last_N = (
        judged.sampled.completion_NL.gather(
            1, judged.sampled.mask_NL.sum(1, keepdim=True).long() - 1
        )
        .flatten()
        .tolist()
    )
    return [
        {
            "prompt_id": n // size,
            "problem": float(judged.problem_P[n // size]),
            "prompt": prompts[n // size],
            "completion": judged.text_N[n],
            "reward": rewards[n],
            "advantage": advantages[n],
            "length": lengths[n],
            "ended": float(judged.ended_N[n]),
            "end_token": float(last_N[n]) if judged.ended_N[n] else None,
            **{name: values[n] for name, values in parts.items()},
        }
        for n in range(len(rewards))
    ]


PATIENCE = 10  # steps in a row
_MOSTLY = 0.5  # share of completions cut off that is the likeliest reason for equal rewards


class IdleWarning(GroupwiseWarning):
    """A run goes on without a signal."""


def has_signal(judged: GradedRollouts) -> bool:
    """Return whether two rollouts of some group differ in reward; those without a reward count
    for nothing.
    """
    reward_PG = judged.reward_N.reshape(len(judged.problems), -1)
    finite_PG = np.isfinite(reward_PG)
    highest_P = np.where(finite_PG, reward_PG, -np.inf).max(1)
    return bool((highest_P > np.where(finite_PG, reward_PG, np.inf).min(1)).any())


def refusal(judged: GradedRollouts, task: Task, *, language: bool) -> InsufficientDataError:
    """Return what to say of a run that had no signal from its start."""
    reward_N = judged.reward_N[np.isfinite(judged.reward_N)]
    where = f"all {PATIENCE * len(judged.reward_N)} of the first {PATIENCE} steps on {task.name}"
    if not len(reward_N):
        return InsufficientDataError(
            f"expected rewards, got none for {where}: the verifier is silent; mend it and go on by "
            "--resume"
        )
    own, words = "data" in task.recipe, language and "level" not in task.recipe
    if reward_N.max() == reward_N.min():
        # Rewards by rule lie in [0, 1] before their weight; those of a user's function may lie
        # anywhere.
        function = own and ":" in task.recipe["reward"]
        low = function or reward_N[0] < sum(
            weight for weight in judged.weights.values() if weight > 0
        )
        easier = (
            "there is nothing to learn from; "
            f"{' or '.join(_easier(judged, task, language=language))}"
        )
        what = (
            easier
            if low
            else f"nothing is left to learn; take {'harder prompts' if words else 'a harder level'}"
        )
        return InsufficientDataError(
            f"expected rollouts that differ in reward, got {reward_N[0]:g} for {where}: {what}"
        )
    return InsufficientDataError(
        "expected rollouts of a group that differ in reward, got equal ones within every group "
        f"for {where}: there is nothing to learn from; take larger groups (-G), or "
        f"{'other prompts' if words else 'another level'}"
    )


def _easier(judged: GradedRollouts, task: Task, *, language: bool) -> list[str]:
    """Return what may help a policy whose completions all earn the same: what this task and this
    policy take, likeliest first.
    """
    ways, cut = [], 1 - float(np.mean(judged.ended_N))
    exact = task.recipe.get("reward") == "exact"
    if language and cut > (0 if exact else _MOSTLY):
        why = ", which exact takes for wrong" if exact else ""
        ways.append(
            f"raise --max-completion-length ({cut:.0%} of the completions were cut off at "
            f"{task.completion_length} tokens{why})"
        )
    if "data" in task.recipe:
        return [
            *ways,
            "take easier prompts",
            "mend the reward function" if ":" in task.recipe["reward"] else "take another --reward",
        ]
    if "examples" in task.recipe:
        return [
            *ways,
            "give worked examples (--set examples=3)"
            if not task.recipe["examples"]
            else "take another task",
            "a larger model",
        ]
    return [
        *ways,
        *([] if language else ["warm up further (--set warm_up=0.2)"]),
        "take an easier level",
    ]


def silence(judged: GradedRollouts) -> str:
    """Return what to say of a run whose verifier has fallen silent."""
    where = f"all {PATIENCE * len(judged.reward_N)} rollouts of the last {PATIENCE} steps"
    return (
        f"expected rewards, got none for {where}: the verifier is silent; mend it and go on by "
        "--resume"
    )


def warning(step: int, row: JsonView) -> IdleWarning:
    """Return what to say of a run that has lost its signal."""
    reward = row.get("reward")
    if reward is None:
        return IdleWarning(
            f"since step {step} no group has two rewards: nothing is learned; the verifier is "
            "silent"
        )
    sentence = (
        f"since step {step} every rollout of a group has the same reward, {reward:.3g} on average: "
        "nothing is learned"
    )
    if reward <= 0:
        return IdleWarning(
            f"{sentence}; the policy has collapsed or the verifier fails: go back to a checkpoint "
            "before, with a lower learning rate"
        )
    return IdleWarning(f"{sentence} any more")


def idle_since(steps: pl.DataFrame) -> int | None:
    """Return the step at which a run lost its signal for good."""
    logged = "dead_share" in steps.columns  # else no group had all its rewards
    idle_T = (
        steps["dead_share"].fill_null(1.0).to_numpy() == 1
        if logged
        else np.ones(len(steps), dtype=bool)
    )
    learning = np.flatnonzero(~idle_T)
    first = int(learning[-1]) + 1 if len(learning) else 0
    return int(steps["step"][first]) if len(steps) - first >= PATIENCE else None
