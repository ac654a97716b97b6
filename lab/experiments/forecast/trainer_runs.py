"""Rewards of runs of the embedded trainer, which the forecaster's calibration has never seen.

    python lab/experiments/forecast/trainer_runs.py [--seeds 6] [--demo 20] [--steps 400]

Four tasks, each from a start of .2, and as many more seeds of the first as `make demo` is judged
on. One row a run, its rewards step by step, in the table `trainer_runs`; runs that are
there are not repeated, so that it can be stopped at any time. A minute a run.
"""

import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # common.py
from common import arguments, results_of

RESULTS = results_of(__file__)
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


def main() -> None:
    """Train what is missing, the seeds of all tasks by turns."""
    asked = arguments(__doc__, seeds=6, demo=20, steps=400)
    wanted = [(task, seed) for seed in range(asked.seeds) for task in TASKS]
    wanted += [(TASKS[0], seed) for seed in range(asked.seeds, asked.demo)]
    with tempfile.TemporaryDirectory() as cache:
        for (task, level), seed in wanted:
            name = f"{task}-{seed}"
            if any(row["run"] == name for row in RESULTS.texts("trainer_runs")):
                continue
            rewards = rewards_of(task, level, seed, asked.steps, Path(cache))
            RESULTS.add("trainer_runs", {"run": name, "rewards": " ".join(map(str, rewards))})
            print(f"{name}: {rewards[0]:.2f} to {rewards[-1]:.2f}", flush=True)


if __name__ == "__main__":
    main()
