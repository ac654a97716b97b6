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

from trl_loop import GROUP, PROMPTS, STEPS, train

LONGEST, LARGEST = 48, 5
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
    """A Llama of two narrow layers and a tokenizer of one token a character or call."""
    import trl
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = [*SPECIAL, *CALLS, *map(chr, range(32, 127)), "\n"]
    vocabulary = {word: number for number, word in enumerate(words)}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    whole = "|".join(map(re.escape, [*CALLS, *SPECIAL]))
    core.pre_tokenizer = pre_tokenizers.Split(Regex(rf"{whole}|[\s\S]"), "isolated")
    core.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        padding_side="left",
        pad_token="<pad>",
        eos_token="<|im_end|>",
        additional_special_tokens=["<|im_start|>"],
        model_input_names=["input_ids", "attention_mask"],
    )
    templates = Path(trl.__file__).parent / "chat_templates"
    tokenizer.chat_template = (templates / "qwen3.jinja").read_text(encoding="utf-8")
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=4096,
        initializer_range=0.1,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


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
    args = GRPOConfig(
        output_dir=str(folder / "output"),
        per_device_train_batch_size=GROUP * PROMPTS,
        num_generations=GROUP,
        max_completion_length=LONGEST,
        max_tool_calling_iterations=2,
        max_steps=STEPS,
        logging_steps=1,
        save_steps=STEPS,
        report_to=[],
        use_cpu=True,
        bf16=False,
        learning_rate=1e-3,
        beta=0.04,
        num_iterations=2,
        log_completions=True,
        seed=0,
    )
    trainer = GRPOTrainer(
        model=str(saved_model(folder.with_name(folder.name + "-model"))),
        reward_funcs=[turns],
        args=args,
        train_dataset=Dataset.from_dict({"prompt": rows}),
        tools=[add],
    )
    train(trainer, folder, settings={"group_size": GROUP, "kl_weight": 0.04}, lag=["refresh", 2])


if __name__ == "__main__":
    main()
