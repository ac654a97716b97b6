"""TRL's own loop with a tool, on a model of random numbers: two of its tokens are whole calls, of
which one fails, so that TRL parses, runs and answers real ones.

    python trl_tools_loop.py FOLDER

Runs in the environment of trl_loop.py (`make loops`).
"""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path
from typing import Any

from trl_loop import GROUP, saved, settings, train

LONGEST, LARGEST = 160, 5
CALLS = [
    f'<tool_call>\n{{"name": "add", "arguments": {{"a": {first}, "b": 1}}}}\n</tool_call>'
    for first in (LARGEST - 1, LARGEST + 1)
]
SPECIAL = ["<pad>", "<|im_start|>", "<|im_end|>"]


def add(a: int, b: int) -> int:
    """Add two small numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    if a > LARGEST:
        raise ValueError(f"expected a number of at most {LARGEST}, got {a}")
    return a + b


def turns(completions: list[list[dict[str, Any]]], **_: Any) -> list[float]:
    """A tenth for each message."""
    return [len(messages) / 10 for messages in completions]


def saved_model(folder: Path) -> Path:
    """A Llama and a tokenizer of one token a character or call, with Qwen's template of chats."""
    import trl

    whole = "|".join(map(re.escape, [*CALLS, *SPECIAL]))
    template = Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja"
    return saved(
        folder,
        [*SPECIAL, *CALLS, *map(chr, range(32, 127)), "\n"],
        rf"{whole}|[\s\S]",
        positions=4096,
        eos_token="<|im_end|>",
        additional_special_tokens=["<|im_start|>"],
        chat_template=template.read_text(encoding="utf-8"),
    )


def main() -> None:
    """Make the trainer, and train."""
    import torch
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    folder = Path(sys.argv[1])
    torch.manual_seed(0)
    torch.set_num_threads(1)
    draw = random.Random(0)
    rows = [[{"role": "user", "content": f"{draw.randrange(100)}+1="}] for _ in range(64)]
    trainer = GRPOTrainer(
        model=str(saved_model(folder.with_name(folder.name + "-model"))),
        reward_funcs=[turns],
        args=GRPOConfig(
            **settings(folder, max_completion_length=LONGEST, max_tool_calling_iterations=2)
        ),
        train_dataset=Dataset.from_dict({"prompt": rows}),
        tools=[add],
    )
    train(trainer, folder, settings={"group_size": GROUP, "kl_weight": 0.04}, lag=["refresh", 2])


if __name__ == "__main__":
    main()
