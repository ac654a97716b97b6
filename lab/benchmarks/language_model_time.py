"""Seconds and memory of a real language model: an update, the scores, and how near a memory limit
is kept.

    GROUPWISE_MODELS=FOLDER python lab/benchmarks/language_model_time.py [--precision bfloat16] [--only
    25x64|96x64|25x512|limits]

SmolLM2 with an adapter of rank 16, completions of 14 tokens in groups of 16, on one thread, in
processor seconds of two repetitions. An update (sampling, loss, backward) of 64 rollouts behind
prompts of 25 and of 96 tokens, beside one that reads the prompt again for every rollout, as a
trainer without a shared prefix does; sketches of the scores beside forward and backward of that
same batch, of 512 rollouts too; what the process grew by under a memory limit. All take passes of
one group. It asserts nothing.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path += [str(ROOT / "experiments" / name) for name in ("language_models", "u_statistic")]

from small_model import task  # noqa: E402

from groupwise.gradients.language_models import load_language_model, models_home  # noqa: E402
from groupwise.gradients.scores import rollouts_of_a_pass, score_sketch, token_log_prob  # noqa: E402
from groupwise_lab.trainer.credit import score_batch  # noqa: E402
from groupwise_lab.trainer.language_policy import NO_TOKEN, LanguagePolicy, with_new_adapter  # noqa: E402

GROUP_SIZE, TOKENS, REPEATS = 16, 14, 2
CASES = (
    ("zero_shot", 25, 64),
    ("three_examples", 96, 64),
    ("zero_shot", 25, 512),
)  # format, tokens of a prompt, rollouts
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
    """Processor seconds of each repetition, the least first."""
    seconds = []
    for _ in range(REPEATS):
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return sorted(seconds)


def line_of(what: str, seconds: list[float], beside: list[float] | None = None) -> None:
    """Print the seconds, and their share of those that they are compared with."""
    ratio = (
        ""
        if beside is None
        else f"   {sum(seconds) / sum(beside):.2f} times that with prompts repeated"
    )
    print(
        f"  {what:40}" + "".join(f" {value:7.2f}" for value in seconds) + f" s{ratio}", flush=True
    )


def of_prompts(
    actor: LanguagePolicy, form: str, length: int, rollouts: int, precision: str
) -> None:
    """Print the figures behind prompts of so many tokens: the last ones of a format's, as what
    they say takes no time.
    """
    world = task(form, completion_length=TOKENS)
    prompt_PL = actor.prompt_tokens(world, world.train[: rollouts // GROUP_SIZE])[:, -length:]
    completion_NL = torch.empty(0)
    groups = range(rollouts // GROUP_SIZE)

    def sample() -> None:
        nonlocal completion_NL
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            completion_NL = actor.sample(
                prompt_PL, GROUP_SIZE, torch.Generator().manual_seed(0), TOKENS
            ).completion_NL

    def learn() -> None:
        for group in groups:
            rows = slice(GROUP_SIZE * group, GROUP_SIZE * (group + 1))
            with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
                found_NL = actor.log_probabilities(
                    prompt_PL[group : group + 1], completion_NL[rows]
                )
            found_NL.sum().backward()  # type: ignore[no-untyped-call]

    def repeat() -> None:
        for group in groups:
            part = {
                name: value[GROUP_SIZE * group : GROUP_SIZE * (group + 1)]
                for name, value in batch.items()
            }
            with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
                found_NL = token_log_prob(actor.model, part)
            found_NL.sum().backward()  # type: ignore[no-untyped-call]

    print(
        f"\n{rollouts} x {TOKENS} tokens behind prompts of {prompt_PL.shape[1]}, groups of "
        f"{GROUP_SIZE}; {precision}"
    )
    sampling = seconds(sample)
    batch = score_batch(actor, prompt_PL, completion_NL, torch.ones_like(completion_NL))
    again = seconds(repeat)
    line_of("loss and backward, prompts repeated", again)
    if rollouts == CASES[0][-1]:
        learning = seconds(learn)
        line_of("loss and backward, prompts once", learning, again)
        line_of("sampling", sampling)
        before, now = (
            [first + other for first, other in zip(sampling, part, strict=True)]
            for part in (again, learning)
        )
        line_of("update, prompts repeated", before)
        line_of("update, prompts once", now, before)
    if precision == "float32":
        line_of(
            "sketches of the scores",
            seconds(lambda: score_sketch(actor.model, batch, width=4096, micro_batch=GROUP_SIZE)),
            again,
        )


def of_limits(actor: LanguagePolicy, rollouts: int = 64) -> None:
    """Print what scoring adds to a fresh process behind the longer prompts, the smaller limit
    first: freed memory is not given back.
    """
    world = task("three_examples", completion_length=TOKENS)
    prompt_PL = actor.prompt_tokens(world, world.train[: rollouts // GROUP_SIZE])
    sampled = actor.sample(prompt_PL, GROUP_SIZE, torch.Generator().manual_seed(0), TOKENS)
    batch = score_batch(actor, prompt_PL, sampled.completion_NL, sampled.mask_NL)
    for limit in LIMITS:
        grown = growth(
            lambda limit=limit: score_sketch(actor.model, batch, width=4096, memory_limit=limit)  # type: ignore[misc]
        )
        many = rollouts_of_a_pass(actor.model, batch, memory_limit=limit)
        print(
            f"scores under a limit of {limit / 1e9:g} GB: {many} rollouts a pass, the process grew "
            f"by {grown / limit:.2f} of it"
        )


def main() -> None:
    """Print the figures of both formats."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    options.add_argument(
        "--only", default="", help="one case: tokens of a prompt x rollouts, or limits"
    )
    asked = options.parse_args()
    torch.set_num_threads(1)
    actor = LanguagePolicy(
        with_new_adapter(
            load_language_model(models_home() / "smollm2", precision=asked.precision), 16
        )
    )
    actor.ends = (NO_TOKEN,)  # no completion is shorter than asked for
    print(f"{torch.backends.cpu.get_cpu_capability()}; processor seconds of {REPEATS} repetitions")
    if asked.precision == "float32" and asked.only in "limits":
        of_limits(actor)
    for form, length, rollouts in CASES:
        if asked.only in f"{length}x{rollouts}":
            of_prompts(actor, form, length, rollouts, asked.precision)


if __name__ == "__main__":
    main()
