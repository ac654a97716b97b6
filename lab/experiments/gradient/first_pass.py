"""What scores of the output head alone say, which cost forward passes, beside those of all
parameters, of the same rollouts.

    python lab/experiments/gradient/first_pass.py [--groups 64] [--group-size 16]
    GROUPWISE_MODELS=FOLDER python lab/experiments/gradient/first_pass.py --adapter [--updates 12]
    [--groups 8] [--group-size 8]

prints the tables of lab/docs/theory/gradient.md ("A first pass"): policies of 0.1 million
parameters from barely to well trained, 64 groups of 16; and a LoRA adapter of SmolLM2, new and
after some updates. One column has the squared lengths of scores in the space of logits and no
products of different rollouts, as verl's proxy of the variance has.
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path += [
    str(HERE.parent),
    str(HERE.parent / "u_statistic"),
    str(HERE.parent / "language_models"),
]

import torch
from cells import print_table
from common import arguments
from small_model import FORMATS, MEMORY, policy, roll, settings, task
from world import batch_of, start, world_task
from world import roll as roll_policy

from groupwise.estimators.components import components
from groupwise.scores.language_models import head_alone
from groupwise.scores.scores import inner_products, score_gram
from groupwise_lab.trainer.credit import score_batch
from groupwise_lab.trainer.grpo import train

WIDTH = 1 << 15  # of sketches of a large model's scores: inner products within 1 % of a trace
ACCURACIES = (0.1, 0.3, 0.6, 0.9)
Case = tuple[
    list[str], Any, dict[str, torch.Tensor], np.ndarray
]  # what it is called, the model, its rollouts and their rewards


def lengths(model, batch: dict[str, torch.Tensor]) -> np.ndarray:
    """Sum over tokens of |e_y - pi|^2, a few rollouts at a time."""
    found = []
    with torch.no_grad():
        for ids, mask in zip(
            batch["input_ids"].split(8), batch["completion_mask"].split(8), strict=True
        ):
            output = model(input_ids=ids)
            share = getattr(output, "logits", output)[:, :-1].double().softmax(-1)
            chosen = share.gather(-1, ids[:, 1:, None])[..., 0]
            found.append(((1 - 2 * chosen + share.square().sum(-1)) * mask[:, 1:]).sum(1))
    return np.asarray(torch.cat(found))


def policies(groups: int, group_size: int) -> Iterator[Case]:
    """Policies of ours, from barely to well trained."""
    problems = world_task().train
    for accuracy in ACCURACIES:
        model = start(accuracy)
        chosen = np.random.default_rng(5).integers(len(problems), size=groups)
        rolled = roll_policy(
            model,
            [problems[place] for place in chosen],
            group_size,
            torch.Generator().manual_seed(0),
        )
        yield [f"{accuracy:g}"], model, batch_of(rolled, group_size), rolled.reward_PG.reshape(-1)


def adapters(groups: int, group_size: int, updates: int) -> Iterator[Case]:
    """A LoRA adapter of SmolLM2 in both formats, new and after some updates."""
    for form in FORMATS:
        for steps in sorted({0, updates}):
            actor, world = policy(), task(form)
            if steps:
                with tempfile.TemporaryDirectory() as home:
                    train(
                        actor,
                        world,
                        settings("adamw", 3e-4, 8, 0, steps),
                        output=Path(home) / "run",
                    )
            chosen = np.random.default_rng(5).integers(len(world.train), size=groups)
            rolled = roll(actor, world, [world.train[place] for place in chosen], group_size, 0)
            batch = score_batch(
                actor, rolled.prompt_PL, rolled.sampled.completion_NL, rolled.sampled.mask_NL
            )
            yield (
                [form, str(steps), f"{rolled.reward_N.mean():.2f}"],
                actor.model,
                batch,
                rolled.reward_N,
            )


def row_of(case: Case, group_size: int, width: int | None) -> list[str]:
    """What all parameters, by sketches where there is a width, the head and the lengths say of
    the same rollouts.
    """
    names, model, batch, reward = case
    prompt = np.repeat(np.arange(len(reward) // group_size), group_size)
    every = components(
        reward, prompt, **inner_products(model, batch, width=width, memory_limit=MEMORY).arguments
    )
    head = components(
        reward,
        prompt,
        gram_NN=score_gram(model, batch, parameters=head_alone(model), memory_limit=MEMORY).gram_NN,
    )
    length = components(reward, prompt, gram_NN=np.diag(lengths(model, batch)))
    ratios = [f"{one.r.value / one.t.value:.2f}" for one in (every, head, length)]
    sizes = [one.group_size for one in (every, head)]
    print(names, *ratios, file=sys.stderr, flush=True)
    return [
        *names,
        *ratios,
        *(f"{size.value:.2f} ({size.low:.2f}-{size.high:.2f})" for size in sizes),
    ]


def main() -> None:
    """Print a table."""
    given = arguments(__doc__, groups=64, group_size=16, updates=0, adapter=False)
    found = (
        adapters(given.groups, given.group_size, given.updates)
        if given.adapter
        else policies(given.groups, given.group_size)
    )
    names = ["format", "updates", "reward"] if given.adapter else ["right at the start"]
    every = "the adapter's" if given.adapter else "all parameters"
    heads = (f"R/T, {every} | the head's | lengths alone | G*, {every} | the head's",)
    rows = [row_of(case, given.group_size, WIDTH if given.adapter else None) for case in found]
    print_table(
        f"A first pass: {given.groups} groups of {given.group_size}", (*names, *heads), rows
    )


if __name__ == "__main__":
    main()
