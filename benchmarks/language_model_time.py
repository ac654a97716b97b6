"""Seconds and memory of a real language model: an update, the scores, and how near a memory limit is kept.

    GROUPWISE_MODELS=FOLDER python benchmarks/language_model_time.py [--precision bfloat16] [--rollouts 64]

SmolLM2 with an adapter of rank 16, completions of 14 tokens in groups of 16, on one thread, in processor seconds, for the prompts of each
format: an update (sampling, loss, backward), beside one that reads the prompt again for every rollout, as a trainer without a shared
prefix does; sketches of the scores beside forward and backward of that same batch; what the process grew by under a memory limit.
It asserts nothing.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path += [str(ROOT / "experiments" / name) for name in ("language_models", "u_statistic")]

from small_model import FORMATS, models_home, task  # noqa: E402

from groupwise.scores.language_models import load_language_model  # noqa: E402
from groupwise.scores.scores import rollouts_of_a_pass, score_sketch, token_log_prob  # noqa: E402
from groupwise.trainer.credit import score_batch  # noqa: E402
from groupwise.trainer.language_policy import LanguagePolicy  # noqa: E402

GROUP_SIZE, TOKENS = 16, 14
PASS = 8  # rollouts of a plain pass: more fill no processor better
LIMITS = (1 * 10**9, 2 * 10**9)


def memory() -> float:
    """Bytes of this process now (Linux)."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return float(fields["VmRSS"].split()[0]) * 1024


def growth(work: Callable[[], object]) -> float:
    """The most bytes that the process grew by meanwhile."""
    before, most, over = memory(), [0.0], threading.Event()

    def watch() -> None:
        while not over.wait(0.005):
            most[0] = max(most[0], memory())

    watcher = threading.Thread(target=watch)
    watcher.start()
    work()
    over.set()
    watcher.join()
    return most[0] - before


def seconds(work: Callable[[], object]) -> list[float]:
    """Processor seconds of three repetitions, in order of size."""
    found = []
    for _ in range(3):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return sorted(found)


def told(what: str, found: list[float], beside: list[float] | None = None) -> None:
    """Print the least, the middle and the most, and the ratio of the middles."""
    ratio = "" if beside is None else f"   {found[1] / beside[1]:.2f} of the plain one"
    print(f"  {what:34} {found[0]:7.2f} {found[1]:7.2f} {found[2]:7.2f} s{ratio}")


def of_format(actor: LanguagePolicy, form: str, rollouts: int, precision: str) -> None:
    """Print the figures behind the prompts of one format."""
    world = task(form, completion_length=TOKENS)
    prompt_PL = actor.prompt_tokens(world, world.train[: rollouts // GROUP_SIZE])
    sampled: Any = None

    def sample() -> None:
        nonlocal sampled
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            sampled = actor.sample(prompt_PL, GROUP_SIZE, torch.Generator().manual_seed(0), TOKENS)

    def learn() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            found_NL = actor.log_probabilities(prompt_PL, sampled.completion_NL)
        (found_NL * sampled.mask_NL).sum().backward()

    def plain() -> None:
        for first in range(0, rollouts, PASS):
            part = {name: value[first : first + PASS] for name, value in batch.items()}
            token_log_prob(actor.model, part).sum().backward()  # type: ignore[no-untyped-call]

    print(f"\n{form}: {rollouts} x {TOKENS} tokens behind prompts of {prompt_PL.shape[1]}, groups of {GROUP_SIZE}; {precision}")
    sampling = seconds(sample)
    batch = score_batch(actor, prompt_PL, sampled.completion_NL, sampled.mask_NL)
    learning, again = seconds(learn), seconds(plain)
    told("sampling", sampling)
    told("loss and backward, prompts once", learning, again)
    told("loss and backward, prompts repeated", again)
    told("update", [one + other for one, other in zip(sampling, learning, strict=True)])
    if precision == "float32":
        told("sketches of the scores", seconds(lambda: score_sketch(actor.model, batch, width=4096, memory_limit=LIMITS[-1])), again)


def of_limits(actor: LanguagePolicy, rollouts: int) -> None:
    """Print what scoring adds to a fresh process behind the longer prompts, the smaller limit first: freed memory is not given back."""
    world = task("three_examples", completion_length=TOKENS)
    prompt_PL = actor.prompt_tokens(world, world.train[: rollouts // GROUP_SIZE])
    sampled = actor.sample(prompt_PL, GROUP_SIZE, torch.Generator().manual_seed(0), TOKENS)
    batch = score_batch(actor, prompt_PL, sampled.completion_NL, sampled.mask_NL)
    for limit in LIMITS:
        grown = growth(lambda limit=limit: score_sketch(actor.model, batch, width=4096, memory_limit=limit))  # type: ignore[misc]
        many = rollouts_of_a_pass(actor.model, batch, memory_limit=limit)
        print(f"scores under a limit of {limit / 1e9:g} GB: {many} rollouts a pass, the process grew by {grown / limit:.2f} of it")


def main() -> None:
    """Print the figures of both formats."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    options.add_argument("--rollouts", type=int, default=64)
    options.add_argument("--only", default="", help="the format, or limits")
    asked = options.parse_args()
    torch.set_num_threads(1)
    actor = LanguagePolicy(load_language_model(models_home() / "smollm2", lora=16, precision=asked.precision))
    print(f"{torch.backends.cpu.get_cpu_capability()}; least, median and most of three")
    if asked.precision == "float32" and asked.only in "limits":
        of_limits(actor, asked.rollouts)
    for form in (form for form in FORMATS if asked.only in form):
        of_format(actor, form, asked.rollouts, asked.precision)


if __name__ == "__main__":
    main()
