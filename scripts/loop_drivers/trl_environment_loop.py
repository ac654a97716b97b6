"""TRL's own loop with environments, on the model of random numbers that calls tools: TRL resets
them, puts what they say into the prompt, calls their methods and takes their rewards.

    python trl_environment_loop.py FOLDER one|two

With `one` there is no data set: the environment makes the prompts. With `two` each row names its
environment, and a reward of its own is known for the rollouts of one of them alone. Runs in the
environment of trl_loop.py (`make loops`).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from trl_loop import GROUP, settings, train
from trl_tools_loop import LONGEST, add, saved_model, turns


class Adder:
    """Adds, remembers the last sum, and is paid for it."""

    made = 0

    def __init__(self) -> None:
        self._last, self._task = 0, 0

    def reset(self, **_: Any) -> str:
        """Begin the next task; each group gets one."""
        Adder.made += 1
        self._last, self._task = 0, (Adder.made - 1) // GROUP
        return f"{self._task}+1="

    def add(self, a: int, b: int) -> int:
        """Add two small numbers.

        Args:
            a: The first number.
            b: The second number.
        """
        self._last = add(a, b)
        return self._last

    def get_reward(self) -> float:
        """The last sum, in tens."""
        return self._last / 10


class Room:
    """Says nothing and pays nothing: a door that is never locked."""

    def reset(self, **_: Any) -> None:
        """There is nothing to begin."""

    def look(self, direction: str) -> str:
        """Look somewhere.

        Args:
            direction: Where to look.
        """
        return f"nothing {direction}"


def main() -> None:
    """Make the trainer, and train."""
    import torch
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    folder, count = Path(sys.argv[1]), sys.argv[2]
    torch.manual_seed(0)
    torch.set_num_threads(1)
    chats = [[{"role": "user", "content": f"task {number}: "}] for number in range(64)]
    several: dict[str, Any] = {
        "reward_funcs": [turns],
        "train_dataset": Dataset.from_dict(
            {"prompt": chats, "environment": ["adder", "room"] * (len(chats) // 2)}
        ),
        "environment_factory": {"adder": Adder, "room": Room},
    }
    trainer = GRPOTrainer(
        model=str(saved_model(folder.with_name(folder.name + "-model"))),
        args=GRPOConfig(
            **settings(folder, max_completion_length=LONGEST, max_tool_calling_iterations=2)
        ),
        **(several if count == "two" else {"environment_factory": Adder}),
    )
    train(trainer, folder, settings={"group_size": GROUP, "kl_weight": 0.04}, lag=["refresh", 2])


if __name__ == "__main__":
    main()
