"""What a step of training leaves in the record: one row of numbers, and one row a rollout.

The columns carry the names of the quantities, and `MEANINGS` says what each is. It computes nothing that training depends on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from groupwise.record.run import Meaning

if TYPE_CHECKING:
    from torch import Tensor

    from groupwise.trainer.credit import Judged

MEANINGS: tuple[Meaning, ...] = (
    Meaning("reward", "reward", "mean reward of the rollouts of this update, without any KL term"),
    Meaning("reward_std", "reward_std_within_group", "standard deviation of the rewards within a group, ddof 1, mean over the groups"),
    Meaning("dead_share", "dead_group_share", "share of groups whose rewards are all equal"),
    Meaning("completion_length", "completion_length", "mean tokens of a completion, end included"),
    Meaning("truncated_share", "truncated_share", "share of completions cut off at the length limit"),
    Meaning("entropy", "entropy", "mean entropy of the sampling policy over the tokens that it drew, nats"),
    Meaning("kl", "kl", "KL divergence to the policy at the start, k3 estimate, nats a token"),
    Meaning("clip_ratio", "clip_ratio", "share of tokens whose importance ratio the clipping held"),
    Meaning("gradient_norm", "gradient_norm", "norm of the gradient before clipping"),
    Meaning("loss", "loss", "the policy loss: near 0 on-policy by construction, it says nothing about learning"),
    Meaning("learning_rate", "learning_rate", "learning rate of this update"),
    Meaning("lag", "staleness", "updates between the sampling of the rollouts and this one"),
    Meaning(
        "group_size", "group_size", "rollouts of a prompt in this update, where the group size is adaptive; their number stays as it is"
    ),
    Meaning("planned_group_size", "", "group size of least predicted error by the components measured so far"),
    Meaning("planned_excess", "", "predicted error of the group size in use at the last measurement over that of the planned one, minus 1"),
    Meaning("running_vp", "", "variance of the gradient between prompts, by the measurements so far, older ones counting less"),
    Meaning("running_t", "", "first-order variance within prompts, likewise"),
    Meaning("running_r", "", "second-order part within prompts, likewise"),
    Meaning("probe_seconds", "", "seconds spent so far on measuring components, out of `seconds`"),
    Meaning("missing_share", "", "share of rollouts that the verifier gave no reward"),
    Meaning("eval/reward", "eval/reward", "mean reward on held-out problems after this update, the same problems each time"),
)


def meanings(names: tuple[str, ...]) -> tuple[Meaning, ...]:
    """Return the meanings of a run's columns."""
    parts = [
        Meaning(f"{place}rewards/{name}/mean", f"{place}reward/{name}", f"mean of the reward {name}, before its weight")
        for name in names
        for place in ("", "eval/")
    ]
    return (*MEANINGS, *parts)


def step_row(judged: Judged, *, number: int, learning_rate: float, lag: int) -> dict[str, Any]:
    """Return what the rollouts of a step tell."""
    reward_PG = judged.reward_N.reshape(len(judged.problems), -1)
    finite = np.isfinite(reward_PG)
    whole_PG = reward_PG[finite.all(1)]
    sampled = judged.sampled
    row: dict[str, Any] = {"step": number, "reward": float(reward_PG[finite].mean()) if finite.any() else None}
    row |= {
        f"rewards/{name}/mean": float(np.nanmean(part_N)) if np.isfinite(part_N).any() else None for name, part_N in judged.part_N.items()
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


def rollout_rows(judged: Judged, advantage_N: Tensor) -> list[dict[str, Any]]:
    """Return a row a completion: the groups of a step are numbered in its order, so that a problem drawn twice makes two groups."""
    size = len(judged.reward_N) // len(judged.problems)
    lengths, advantages = judged.sampled.mask_NL.sum(1).tolist(), advantage_N.tolist()
    parts = {f"reward/{name}": part_N.tolist() for name, part_N in judged.part_N.items()}
    rewards = judged.reward_N.tolist()
    return [
        {
            "prompt_id": n // size,
            "problem": float(judged.problem_P[n // size]),
            "prompt": judged.problems[n // size].prompt,
            "completion": judged.text_N[n],
            "reward": rewards[n],
            "advantage": advantages[n],
            "length": lengths[n],
            "ended": float(judged.ended_N[n]),
            **{name: values[n] for name, values in parts.items()},
        }
        for n in range(len(rewards))
    ]
