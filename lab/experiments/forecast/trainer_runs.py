"""Rewards of runs of the embedded trainer, which the forecaster's calibration has never seen.

    python lab/experiments/forecast/trainer_runs.py [--seeds 6] [--demo 20] [--steps 400]

Four tasks, each from a start of .2, and as many more seeds of the first as `make demo` is judged
on. One column a run, one row a step, in results/trainer_runs.csv beside this file; runs that are
there are not repeated, so that it can be stopped at any time. A minute a run.
"""

from __future__ import annotations

import argparse
import csv
import os
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

PIECES = Path(__file__).resolve().parent / "results" / "trainer_runs.csv"
TASKS = (("modular_addition", 2), ("sorting", 4), ("brackets", 5), ("subtraction", 2))
START = 0.2


def rewards_of(task_name: str, level: int, seed: int, steps: int, cache: Path) -> list[float]:
    """The mean reward of every step of one run."""
    import torch

    torch.set_num_threads(1)
    from groupwise_lab.trainer.grpo import train
    from groupwise_lab.trainer.policy import Policy, policy_size
    from groupwise_lab.trainer.settings import TrainSettings
    from groupwise_lab.trainer.tasks import make_task
    from groupwise_lab.trainer.warm_up import warm_up

    task = make_task(task_name, level=level)
    policy = Policy(policy_size("small"), vocabulary_size=len(task.vocabulary), seed=seed)
    warm_up(policy, task, accuracy=START, cache=cache)
    settings = TrainSettings(
        steps=steps, seed=seed, evaluate_every=0, checkpoint_every=steps, rollouts_every=0
    )
    with tempfile.TemporaryDirectory() as folder:
        record = train(policy, task, settings, output=Path(folder) / "run")
    return [round(float(reward), 6) for reward in record.steps["reward"]]


def kept() -> dict[str, list[float]]:
    """The runs that are there, by name."""
    if not PIECES.exists():
        return {}
    with PIECES.open(newline="", encoding="utf-8") as file:
        return {name: [float(cell) for cell in cells] for name, *cells in csv.reader(file)}


def main() -> None:
    """Train what is missing, the seeds of all tasks by turns."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, usual in (("seeds", 6), ("demo", 20), ("steps", 400)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    asked = parser.parse_args()
    wanted = [(task, seed) for seed in range(asked.seeds) for task in TASKS]
    wanted += [(TASKS[0], seed) for seed in range(asked.seeds, asked.demo)]
    PIECES.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as cache:
        for (task, level), seed in wanted:
            name = f"{task}-{seed}"
            if name in kept():
                continue
            rewards = rewards_of(task, level, seed, asked.steps, Path(cache))
            with PIECES.open("a", newline="", encoding="utf-8") as file:
                csv.writer(file, lineterminator="\n").writerow([name, *rewards])
            print(f"{name}: {rewards[0]:.2f} to {rewards[-1]:.2f}", flush=True)


if __name__ == "__main__":
    main()
