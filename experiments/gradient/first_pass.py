"""What scores of the output head alone say, which cost forward passes, beside those of all parameters, of the same rollouts.

    python experiments/gradient/first_pass.py [--groups 64] [--group-size 16]

prints the table of docs/theory/gradient.md ("A first pass"): policies of 0.1 million parameters from barely to well trained, 64 groups of
16. The last column has the squared lengths of scores in the space of logits and no products of different rollouts, as verl's proxy of the
variance has.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE.parent), str(HERE.parent / "u_statistic")]

import torch  # noqa: E402
from cells import print_table  # noqa: E402
from world import roll, start, world_task  # noqa: E402

from groupwise.estimators.components import components  # noqa: E402
from groupwise.scores.scores import score_gram  # noqa: E402
from groupwise.trainer.policy import Policy  # noqa: E402

ACCURACIES = (0.1, 0.3, 0.6, 0.9)


def lengths(policy: Policy, batch: dict[str, torch.Tensor]) -> np.ndarray:
    """Sum over tokens of |e_y - pi|^2."""
    with torch.no_grad():
        share = policy(batch["input_ids"])[:, :-1].double().softmax(-1)
    chosen = share.gather(-1, batch["input_ids"][:, 1:, None])[..., 0]
    return np.asarray(((1 - 2 * chosen + share.square().sum(-1)) * batch["completion_mask"][:, 1:]).sum(1))


def main() -> None:
    """Print the table."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--groups", type=int, default=64)
    asked.add_argument("--group-size", type=int, default=16)
    given = asked.parse_args()
    problems, rows = world_task().train, []
    for accuracy in ACCURACIES:
        policy = start(accuracy)
        chosen = np.random.default_rng(5).integers(len(problems), size=given.groups)
        rollouts = roll(policy, [problems[place] for place in chosen], given.group_size, torch.Generator().manual_seed(0))
        ids = torch.cat([rollouts.prompt_PL.repeat_interleave(given.group_size, 0), rollouts.sampled.completion_NL], 1)
        mask = rollouts.sampled.mask_NL.long()
        before = torch.zeros(len(ids), rollouts.prompt_PL.shape[1], dtype=torch.long)
        batch = {"input_ids": ids, "completion_mask": torch.cat([before, mask], 1), "attention_mask": torch.cat([before + 1, mask], 1)}
        reward, prompt = rollouts.reward_PG.reshape(-1), np.repeat(np.arange(given.groups), given.group_size)
        every = components(reward, prompt, gram_NN=score_gram(policy, batch).gram_NN)
        head = components(reward, prompt, gram_NN=score_gram(policy, batch, parameters="head.weight").gram_NN)
        length = components(reward, prompt, gram_NN=np.diag(lengths(policy, batch)))
        ratios = [f"{one.r.value / one.t.value:.2f}" for one in (every, head, length)]
        sizes = [one.group_size for one in (every, head)]
        rows.append([f"{accuracy:g}", *ratios, *(f"{size.value:.2f} ({size.low:.2f}-{size.high:.2f})" for size in sizes)])
    heads = ("R/T, all parameters", "the head's", "lengths alone", "G*, all parameters", "the head's")
    print_table("A first pass: 64 groups of 16", ("right at the start", *heads), rows)


if __name__ == "__main__":
    main()
