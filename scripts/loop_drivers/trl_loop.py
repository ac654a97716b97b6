"""TRL's own loop on a model of random numbers; what its trainer keeps in memory is the truth.

    python trl_loop.py FOLDER

Runs in an environment of its own with one version of TRL (`make loops`).
"""

from __future__ import annotations

import importlib.metadata
import inspect
import json
import os
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "WANDB_MODE": "disabled", "CUDA_VISIBLE_DEVICES": ""}
SYMBOLS = [*"0123456789", "+", "=", ".", "<pad>", "<end>"]
GROUP, PROMPTS, STEPS, LONGEST = 4, 4, 8, 6


def digits(completions: list[str], **_: Any) -> list[float]:
    """The share of digits."""
    return [sum(letter.isdigit() for letter in text) / max(len(text), 1) for text in completions]


def brief(completions: list[str], **_: Any) -> list[float]:
    """1 for no answer, 0 for the longest."""
    return [1.0 - len(text) / LONGEST for text in completions]


def saved_model(folder: Path) -> Path:
    """A Llama and a tokenizer of one token a character, on the disk."""
    return saved(folder, SYMBOLS, "<pad>|<end>|.", positions=64, eos_token="<end>")


def saved(
    folder: Path, words: Sequence[str], pattern: str, *, positions: int, **special: Any
) -> Path:
    """A Llama of two narrow layers and a tokenizer of these words, on the disk."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    vocabulary = {word: number for number, word in enumerate(words)}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    core.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
    core.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        padding_side="left",
        pad_token="<pad>",
        model_input_names=["input_ids", "attention_mask"],
        **special,
    )
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=positions,
        initializer_range=0.1,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def settings(folder: Path, **own: Any) -> dict[str, Any]:
    """What this version of TRL accepts of the settings of a run of a few steps."""
    from trl import GRPOConfig

    wanted = {
        "output_dir": str(folder / "output"),
        "per_device_train_batch_size": GROUP * PROMPTS,
        "num_generations": GROUP,
        "max_steps": STEPS,
        "logging_steps": 1,
        "save_steps": STEPS,
        "report_to": [],
        "use_cpu": True,
        "bf16": False,
        "learning_rate": 1e-3,
        "beta": 0.04,
        "num_iterations": 2,
        "log_completions": True,
        "seed": 0,
        **own,
    }
    accepted = inspect.signature(GRPOConfig).parameters
    return {key: value for key, value in wanted.items() if key in accepted}


def main() -> None:
    """Make the trainer, and train."""
    import torch
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    folder = Path(sys.argv[1])
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = saved_model(folder.with_name(folder.name + "-model"))
    draw = random.Random(0)
    rows = [f"{draw.randrange(100):02d}+{draw.randrange(100):02d}=" for _ in range(64)]
    trainer = GRPOTrainer(
        model=str(model),
        reward_funcs=[digits, brief],
        args=GRPOConfig(**settings(folder, max_prompt_length=16, max_completion_length=LONGEST)),
        train_dataset=Dataset.from_dict({"prompt": rows}),
    )
    train(trainer, folder, settings={"group_size": GROUP, "kl_weight": 0.04}, lag=["refresh", 2])


def train(trainer: Any, folder: Path, **facts: Any) -> None:
    """Train with the callback, and write what the trainer logged beside what it wrote."""
    refused: list[str] = []
    try:
        from groupwise.integrations.trl import GroupwiseCallback

        trainer.add_callback(GroupwiseCallback(trainer, say=refused.append))
    except ImportError as error:
        refused.append(str(error))
    completions = sampled(trainer)
    trainer.train()
    history = [row for row in trainer.state.log_history if "loss" in row]
    of_trl = {
        "reward": ("reward",),
        "reward_std": ("reward_std",),
        "kl": ("kl",),
        "entropy": ("entropy",),
        "completion_length": ("completions/mean_length", "completion_length"),
        "truncated_share": ("completions/clipped_ratio",),
        "clip_ratio/low_mean": ("clip_ratio/low_mean",),
        "gradient_norm": ("grad_norm",),
        "loss": ("loss",),
        "tool_calls": ("tools/call_frequency",),
        "tool_failure_share": ("tools/failure_frequency",),
        "staleness": ("sample/staleness_mean",),
        "staleness_max": ("sample/staleness_max",),
    }
    keys = {key for row in history for key in row}
    of_trl |= {
        f"reward/{key.split('/')[1]}": (key,)
        for key in sorted(keys)
        if key.startswith("rewards/") and key.endswith("/mean")
    }
    recorded = any((folder / "output" / "groupwise").glob("*"))
    quantities = {
        name: [number(row.get(key)) for row in history]
        for name, own in of_trl.items()
        for key in own
        if key in keys
    }
    truth = {
        "version": importlib.metadata.version("trl"),
        "logs": {"output folder": "output"}
        | ({"callback's record": "output/groupwise"} if recorded else {}),
        "rows": len(history),
        "quantities": quantities,
        "said": refused,
        "completions": completions,
        **facts,
    }
    (folder / "truth.json").write_text(json.dumps(truth), encoding="utf-8")


def sampled(trainer: Any) -> list[Any]:
    """What the trainer takes its rewards of, in the versions that have a method for it."""
    completions: list[Any] = []
    judge = getattr(trainer, "_calculate_rewards", None)

    def watched(inputs: Any, prompts: Any, texts: list[Any], *more: Any) -> Any:
        completions.extend(texts)
        return judge(inputs, prompts, texts, *more)  # type: ignore[misc]

    if judge is not None:
        trainer._calculate_rewards = watched
    return completions


def number(value: float | None) -> float | None:
    """A number that the trainer logged; None for nan, which it logs where there is none."""
    return None if value is None or value != value else value


if __name__ == "__main__":
    main()
