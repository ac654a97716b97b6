"""mlx-lm-lora's own loop on a model of random numbers; its callback of statistics is the truth.

python mlx_lm_lora_loop.py FOLDER
"""

from __future__ import annotations

import importlib.metadata
import json
import random
import sys
from pathlib import Path
from typing import Any

SYMBOLS = [*"0123456789", "+", "=", ".", "<pad>", "<end>"]
GROUP, STEPS, LONGEST = 4, 8, 6


def digits(completions: list[str], **_: Any) -> list[float]:
    """The share of digits."""
    return [sum(letter.isdigit() for letter in text) / LONGEST for text in completions]


def brief(completions: list[str], **_: Any) -> list[float]:
    """1 for no answer, 0 for the longest."""
    return [1.0 - len(text) / LONGEST for text in completions]


class Tokenizer:
    """One token a character."""

    eos_token_id, pad_token_id, bos_token_id = 14, 13, None
    eos_token, vocab_size = "<end>", len(SYMBOLS)
    eos_token_ids = (14,)

    def encode(self, text: str, **_: Any) -> list[int]:
        letters = [text] if text in SYMBOLS else text
        return [SYMBOLS.index(letter) for letter in letters]

    def decode(self, ids: list[int], **_: Any) -> str:
        return "".join(SYMBOLS[number] for number in ids if number < 13)


def main() -> None:
    """Train, what is printed into a file and what is reported into the truth."""
    import mlx.core as mx
    import mlx.optimizers as optimizers
    from mlx_lm.models.llama import Model, ModelArgs
    from mlx_lm_lora.trainer.grpo_trainer import GRPOTrainingArgs, train_grpo

    folder = Path(sys.argv[1])
    mx.random.seed(0)
    model = Model(
        ModelArgs(
            model_type="llama",
            hidden_size=32,
            num_hidden_layers=2,
            intermediate_size=64,
            num_attention_heads=2,
            rms_norm_eps=1e-5,
            vocab_size=len(SYMBOLS),
        )
    )
    mx.eval(model.parameters())
    reported: list[dict[str, float]] = []

    class Callback:
        def on_train_loss_report(self, info: dict[str, float]) -> None:
            reported.append(info)

        def on_val_loss_report(self, info: dict[str, float]) -> None:
            del info

    draw, tokenizer = random.Random(0), Tokenizer()
    texts = [f"{draw.randrange(100):02d}+{draw.randrange(100):02d}=" for _ in range(16)]
    examples = [(tokenizer.encode(text), [1], text, "1") for text in texts]
    args = GRPOTrainingArgs(
        batch_size=4,
        iters=STEPS,
        steps_per_report=1,
        steps_per_save=100,
        max_seq_length=32,
        adapter_file=str(folder / "adapters.safetensors"),
        group_size=GROUP,
        max_completion_length=LONGEST,
        beta=0.1,
        epsilon=0.2,
        temperature=1.0,
        top_k=0,
    )
    printed, errors = sys.stdout, sys.stderr
    with (folder / "console.txt").open("w", encoding="utf-8") as out:
        sys.stdout = sys.stderr = out
        train_grpo(
            model=model,
            ref_model=None,
            tokenizer=tokenizer,
            optimizer=optimizers.Adam(learning_rate=1e-3),
            train_dataset=examples,
            reward_funcs=[digits, brief],
            args=args,
            training_callback=Callback(),
            end_answer_token="<end>",
        )
    sys.stdout, sys.stderr = printed, errors
    of_mlx = {
        "reward": "train_total_rewards_mean",
        "reward_std_within_group": "train_grouped_rewards_std",
        "kl": "train_kl",
        "completion_length": "train_average_generated_tokens",
        "truncated_share": "train_hit_max_tokens_ratio",
        "loss": "train_loss",
        "learning_rate": "learning_rate",
    }
    truth = {
        "version": importlib.metadata.version("mlx-lm-lora"),
        "logs": {"console": "console.txt"},
        "rows": STEPS,
        "quantities": {name: [float(row[key]) for row in reported] for name, key in of_mlx.items()},
        "settings": {"group_size": GROUP},  # the console does not print it
    }
    (folder / "truth.json").write_text(json.dumps(truth), encoding="utf-8")


if __name__ == "__main__":
    main()
