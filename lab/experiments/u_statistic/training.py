"""One training run of this folder: the library's own loop, with the exact accuracy on held-out
problems every ten steps.

Nothing of the run is kept but its rows. It chooses no settings.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cells import Rows
from world import exact_values, start, world_task

from groupwise.parsing import JsonView
from groupwise_lab.trainer.credit import Ingredients
from groupwise_lab.trainer.grpo import train
from groupwise_lab.trainer.policy import Policy
from groupwise_lab.trainer.settings import TrainSettings

EVERY = 10
START = 0.25  # accuracy that the warm-up stops at
# training problems whose accuracy is followed, or those of the pool; all 2,000 held-out ones are
CHECKED = 2000
Observer = Callable[[int, Policy], dict[str, Any] | None]


def settings_of(
    algorithm: str, rollouts: int, group_size: int, seed: int, steps: int, rate: float, **others
) -> TrainSettings:
    """The algorithm that is analysed (sgd), or the one that people run (adam).

    Args:
        algorithm: sgd: leave-one-out advantages, plain SGD; adam: TRL's group-normalised
            advantages, Adam.
        rollouts: N a step.
        group_size: G.
        seed: of prompts and sampling.
        steps: updates.
        rate: learning rate.
        others: further settings.
    """
    own = {"optimizer": "sgd", "advantage": "leave_one_out"}
    if algorithm == "adam":
        own = {"optimizer": "adam", "advantage": "trl/grpo/1.16.0"}
    return TrainSettings(
        **{
            **own,
            "group_size": group_size,
            "rollouts_per_step": rollouts,
            "steps": steps,
            "learning_rate": rate,
            "seed": seed,
            "importance_ratio": "none",
            "clip": None,
            "evaluate_every": 0,
            "rollouts_every": 0,
            "checkpoint_every": steps,
            **others,
        }
    )


def run(
    settings: TrainSettings,
    *,
    watch: Observer | None = None,
    ingredients: Ingredients | None = None,
    kept: Sequence[str] = (),
    accuracy: float = START,
) -> Rows:
    """Train from the common start; rows of step, accuracies, processor seconds spent in
    training, and columns kept of the record.
    """
    task, policy = world_task(), start(accuracy)
    trained = task.train[: settings.prompt_pool or CHECKED]
    rows = []
    spent = 0.0
    began = time.process_time()

    def measure(step: int, logged: JsonView) -> None:
        nonlocal spent, began
        spent += time.process_time() - began
        held_out = exact_values(policy, task.held_out).mean()
        # The accuracy on the training problems is asked for at the end only.
        train_accuracy = (
            exact_values(policy, trained).mean() if step > settings.steps - 3 * EVERY else ""
        )
        row = {"step": step, "held_out": held_out, "train": train_accuracy}
        row |= {"gradient_norm": float(logged.get("gradient_norm") or 0), "seconds": spent} | {
            name: logged.get(name, "") for name in kept
        }
        rows.append(row | ((watch(step, policy) or {}) if watch is not None else {}))
        began = time.process_time()

    measure(0, {})
    with tempfile.TemporaryDirectory() as home:
        train(
            policy,
            task,
            settings,
            output=Path(home) / "run",
            on_step=lambda step, row: measure(step, row) if step % EVERY == 0 else None,
            ingredients=ingredients,
        )
    return rows
