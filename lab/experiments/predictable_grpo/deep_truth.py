"""Truth beside estimates on addition mod 10: values, gradient and variance components by
enumeration, and by rollouts with their errors.

The tiny policy after its warm-up, 40 problems. `python deep_truth.py` measures (half a minute of
one core), `--tables` prints, `--quick` takes 10 problems.
"""

import time

import numpy as np
import torch
import truth as measure
from deep_pieces import Pieces
from deep_world import START
from note import options, print_table
from truth import OutcomeTree, outcome_log_probabilities, outcome_rewards

from groupwise.intervals import wilson
from groupwise_lab.trainer.adaptive import probe
from groupwise_lab.trainer.policy import Policy, policy_size
from groupwise_lab.trainer.tasks import make_task
from groupwise_lab.trainer.warm_up import default_cache, warm_up

TRUTH = Pieces("deep_truth", ("what",))


def add(
    what: str, truth: float, estimate: float, low: float, high: float, seconds: tuple[float, float]
) -> None:
    """One quantity: truth, estimate with its interval, processor seconds of each."""
    row = {"what": what, "truth": truth, "estimate": estimate, "low": low, "high": high}
    TRUTH.add(row | {"seconds_truth": seconds[0], "seconds_estimate": seconds[1]})


def measured(problem_count: int, rollouts: int) -> None:
    """Everything once."""
    task = make_task("modular_addition", level=1, held_out_share=0.0)
    policy = Policy(policy_size("tiny"), vocabulary_size=len(task.vocabulary))
    warm_up(policy, task, accuracy=START, cache=default_cache())
    problems, generator = task.train[:problem_count], torch.Generator().manual_seed(5)

    times = [time.process_time()]
    exact = measure.values(policy, task, problems)
    times.append(time.process_time())
    sampled = measure._values_by_rollouts(policy, task, problems, rollouts, generator)
    times.append(time.process_time())
    tree = OutcomeTree.of(tokens=len(task.vocabulary), completion_length=task.completion_length)
    with torch.no_grad():
        log_PO = outcome_log_probabilities(policy, policy.prompt_tokens(task, problems), tree)
    listed_P = (log_PO.exp().double().numpy() * outcome_rewards(task, problems, tree)).sum(1)
    times.append(time.process_time())
    spent = times[1] - times[0], times[2] - times[1]
    add(
        "mean of V(x)",
        exact.mean,
        sampled.mean,
        sampled.mean - 1.96 * sampled.mean_error,
        sampled.mean + 1.96 * sampled.mean_error,
        spent,
    )
    name = "largest difference of V(x), one pass against enumeration"
    add(name, 0.0, float(np.abs(listed_P - exact.value_P).max()), 0, 0, (times[3] - times[2], 0))
    inside = int((np.abs(sampled.value_P - exact.value_P) <= 1.96 * sampled.error_P).sum())
    share = wilson(inside, len(problems), level=0.95)  # rollouts of one problem are one trial
    add(
        "share of V(x) within 1.96 standard errors",
        0.95,
        inside / len(problems),
        share.low,
        share.high,
        (0, 0),
    )

    times = [time.process_time()]
    truth = measure.gradient(policy, task, problems)
    times.append(time.process_time())
    half = [
        measure._leave_one_out(policy, task, problems, rollouts // 2, generator) / len(problems)
        for _ in range(2)
    ]
    times.append(time.process_time())
    estimate_D = ((half[0] + half[1]) / 2).numpy()
    spent = times[1] - times[0], times[2] - times[1]
    add(
        "length of the gradient",
        float(np.linalg.norm(truth.gradient_D)),
        float(np.linalg.norm(estimate_D)),
        0,
        0,
        spent,
    )
    distance = float(np.linalg.norm(estimate_D - truth.gradient_D))
    add(
        "error of the gradient, as two halves say, as found",
        float((half[0] - half[1]).norm()) / 2,
        distance,
        0,
        0,
        (0, 0),
    )

    times = [time.process_time()]
    parts = measure.true_components(policy, task, problems)
    times.append(time.process_time())
    drawn = [
        problems[place]
        for place in torch.randint(len(problems), (64,), generator=generator).tolist()
    ]
    groups = probe(policy, task, drawn, 16, generator)
    times.append(time.process_time())
    for name in ("vp", "t", "r"):
        estimate = getattr(groups, name)
        spent = (times[1] - times[0], times[2] - times[1])
        add(
            name,
            getattr(parts, name),
            estimate.value,
            estimate.interval.low,
            estimate.interval.high,
            spent,
        )
    add(
        "best group size",
        parts.best_group_size,
        1 + (groups.r.value / groups.vp.value) ** 0.5,
        0,
        0,
        (0, 0),
    )


def main() -> None:
    """Measure once, and print."""
    asked = options(__doc__)
    if asked.quick:
        TRUTH.keep_in_memory()
    if not asked.tables and not TRUTH.has("best group size"):
        measured(*((10, 100) if asked.quick else (40, 1000)))
    lines = []
    for row in TRUTH.rows():
        interval = f" ({row['low']:.4g} to {row['high']:.4g})" if row["high"] > row["low"] else ""
        lines.append([f"{row['what']} | {row['truth']:.4g} | {row['estimate']:.4g}{interval}"])
        lines[-1] += [f"{row['seconds_truth']:.2f} | {row['seconds_estimate']:.2f}"]
    header = "what | truth | estimate (95 %) | processor s, truth | processor s, estimate"
    print_table(
        "Truth and estimate, 40 problems of addition mod 10, tiny policy, 1,000 rollouts a problem",
        header,
        lines,
    )


if __name__ == "__main__":
    main()
