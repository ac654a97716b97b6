"""SmolLM2-135M-Instruct with a LoRA adapter on the larger of two numbers: asked plainly, or behind
three examples.

The model is read from the folder `smollm2` in GROUPWISE_MODELS (`python scripts/fetch_model.py
smollm2` makes it). Its weights are in single precision, completions are cut at 14 tokens, the
strict verifier's reward is trained on, and every run of a format begins with the same adapter. It
chooses nothing that the scripts beside it vary.
"""

import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

HOME = Path(__file__).resolve().parent
sys.path += [str(HOME.parent / name) for name in ("u_statistic", "predictable_grpo", ".")]

from cells import (  # noqa: F401
    Cell,
    options,
    print_table,
    printed,
    refresh,
    run_and_show,
    run_asked,
    say_missing,
)
from common import Row, Rows, column, results_of, where  # noqa: F401

from groupwise.estimators.components import Components, components
from groupwise.gradients.language_models import load_language_model
from groupwise.gradients.scores import inner_products
from groupwise.parsing import JsonObject, JsonView
from groupwise_lab.trainer.credit import score_batch
from groupwise_lab.trainer.language_policy import LanguagePolicy, with_new_adapter
from groupwise_lab.trainer.rewards import Problem, total_reward
from groupwise_lab.trainer.settings import TrainSettings
from groupwise_lab.trainer.tasks import Task
from groupwise_lab.trainer.text_tasks import make_text_task

RESULTS = results_of(__file__)
FORMATS = {"zero_shot": 0, "three_examples": 3}  # worked examples before the question
RANK = 16
ROLLOUTS = 64  # N of a step
PAGE = "language-models.md"
DEVICE = os.environ.get("GROUPWISE_DEVICE", "cpu")
MEMORY = (2 if DEVICE == "cpu" else 40) * 10**9  # bytes of a pass
HELD_OUT = 48  # problems, four completions each: the same ones in every run


@dataclass(frozen=True)
class Rolled:
    """Completions of some problems and what they earned."""

    prompt_PL: torch.Tensor
    sampled: Any
    reward_N: np.ndarray


def policy(
    name: str = "smollm2",
    *,
    rank: int | None = RANK,
    seed: int = 0,
    device: str = DEVICE,
    checkpointing: bool = False,
) -> LanguagePolicy:
    """A model at the start, with a new adapter that changes nothing yet; all of its weights
    where the rank is None.
    """
    loaded = load_language_model(name, device=device)
    if rank is not None:
        loaded = with_new_adapter(loaded, rank, seed)
    return LanguagePolicy(loaded, checkpointing=checkpointing, memory_limit=MEMORY)


def task(
    form: str,
    *,
    name: str = "larger_of_two",
    verifier: str = "strict",
    completion_length: int | None = None,
) -> Task:
    """A task in one of the formats, the same split in all."""
    return make_text_task(
        name, examples=FORMATS[form], verifier=verifier, completion_length=completion_length
    )


def settings(
    optimizer: str, rate: float, group_size: int, seed: int, steps: int, **others
) -> TrainSettings:
    """The algorithm that the theory speaks of: leave-one-out advantages, sums over tokens, no
    division, no ratio, no clipping.
    """
    own = {
        "rollouts_per_step": ROLLOUTS,
        "micro_batch": max(32 if DEVICE == "cpu" else ROLLOUTS, group_size),
        "advantage": "leave_one_out",
        "importance_ratio": "none",
        "clip": None,
        "evaluate_every": 0,
        "rollouts_every": 0,
        "checkpoint_every": steps,
    }
    return TrainSettings(
        **own
        | {
            "group_size": group_size,
            "steps": steps,
            "learning_rate": rate,
            "seed": seed,
            "optimizer": optimizer,
        }
        | others
    )


def roll(
    actor: LanguagePolicy, world: Task, problems: Sequence[Problem], group_size: int, seed: int
) -> Rolled:
    """Sample and judge."""
    prompt_PL = actor.prompt_tokens(world, problems)
    sampled = actor.sample(
        prompt_PL, group_size, torch.Generator(DEVICE).manual_seed(seed), world.completion_length
    )
    texts, ended = actor.texts(world, sampled.completion_NL, sampled.mask_NL)
    repeated = [problem for problem in problems for _ in range(group_size)]
    return Rolled(
        prompt_PL, sampled, total_reward(world.verifier, world.verifier(repeated, texts, ended))
    )


def held_out_reward(actor: LanguagePolicy, world: Task) -> float:
    """Mean reward on the held-out problems, with the same random numbers each time."""
    return float(roll(actor, world, world.held_out[:HELD_OUT], 4, seed=0).reward_N.mean())


def measured(
    actor: LanguagePolicy,
    world: Task,
    *,
    prompts: int,
    group_size: int,
    seed: int,
    parameters: str | None = None,
) -> tuple[Components, Rolled]:
    """Components of the present policy, as a user measures them: from one sample of rollouts; of
    some parameters alone where told.
    """
    chosen = np.random.default_rng([seed, 5]).integers(len(world.train), size=prompts)
    rolled = roll(actor, world, [world.train[place] for place in chosen], group_size, seed)
    batch = score_batch(
        actor, rolled.prompt_PL, rolled.sampled.completion_NL, rolled.sampled.mask_NL
    )
    products = inner_products(
        actor.model, batch, seed=seed, memory_limit=MEMORY, parameters=parameters
    )
    return components(
        rolled.reward_N, np.repeat(np.arange(prompts), group_size), **products.arguments
    ), rolled


def components_row(estimated: Components, rolled: Rolled) -> JsonObject:
    """Components with their intervals, the mean reward and the share of groups with a signal, as
    a row of results.
    """
    reward_PG = rolled.reward_N.reshape(len(rolled.prompt_PL), -1)
    row = {
        "reward": float(reward_PG.mean()),
        "informative": float((reward_PG.min(1) < reward_PG.max(1)).mean()),
    }
    for name in ("vp", "t", "r", "gradient_norm2", "group_size"):
        estimate = getattr(estimated, name)
        interval = getattr(estimate, "interval", estimate)
        row |= {name: estimate.value, f"{name}_low": interval.low, f"{name}_high": interval.high}
    return row


def ranged(row: JsonView, name: str) -> str:
    """A number with its interval."""
    value, low, high = (float(row[key]) for key in (name, f"{name}_low", f"{name}_high"))
    if math.isinf(value):
        return f"no limit (at least {low:.3g})"
    return f"{value:.3g} ({low:.3g} to {'no limit' if math.isinf(high) else f'{high:.3g}'})"
