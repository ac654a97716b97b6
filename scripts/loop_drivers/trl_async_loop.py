"""TRL's AsyncGRPOTrainer on a model of random numbers: its own loop, queue, packing, loss and log.

    python trl_async_loop.py FOLDER

What needs a GPU is stood in for: a worker in this process fills the queue with groups of random
completions, no weights are sent, and attention is that of PyTorch in the place of a kernel's. Runs
in the environment of trl_loop.py (`make loops`).
"""

from __future__ import annotations

import queue
import random
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from trl_loop import GROUP, LONGEST, STEPS, SYMBOLS, saved_model, train

PROMPTS, SYNC = 4, 2


def attended(query: Any, key: Any, value: Any, ends: Any, ends_k: Any, *_: Any, **more: Any) -> Any:
    """Causal attention of each segment to its path, whose last tokens are its own."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    parts = []
    for number in range(len(ends) - 1):
        own, path = (slice(at[number], at[number + 1]) for at in (ends, ends_k))
        queries, keys, values = (
            part.transpose(0, 1) for part in (query[own], key[path], value[path])
        )
        seen = torch.ones(queries.shape[1], keys.shape[1], dtype=torch.bool)
        seen = seen.tril(keys.shape[1] - queries.shape[1])
        scale = more["softmax_scale"]
        parts.append(
            scaled_dot_product_attention(queries, keys, values, attn_mask=seen, scale=scale)
        )
    return torch.cat(parts, dim=1).transpose(0, 1)


class Worker:
    """Puts groups of random completions into the trainer's queue, under the live version."""

    def __init__(self) -> None:
        self.rollout_buffer: queue.Queue[Any] = queue.Queue()
        self.metrics_queue: queue.Queue[Any] = queue.Queue()
        self._draw, self._groups = random.Random(0), 0

    def start(self) -> None:
        """Fill the queue for the first time."""
        self._fill(0)

    def update_model_version(self, model_version: int) -> None:
        """Fill the queue for the updates until the next version."""
        self._fill(model_version)

    def stop(self) -> None:
        """Nothing runs."""

    def check_health(self, stale_after_s: float) -> None:
        """Nothing can crash."""

    def _fill(self, version: int) -> None:
        import numpy as np
        from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

        for _ in range(PROMPTS * (SYNC + 1)):
            prompt = [self._draw.randrange(10) for _ in range(3)]
            said = [
                [self._draw.randrange(len(SYMBOLS)) for _ in range(LONGEST)] for _ in range(GROUP)
            ]
            rewards = [sum(token < 10 for token in tokens) / LONGEST for tokens in said]
            mean, spread = np.mean(rewards), np.std(rewards)
            for tokens, reward in zip(said, rewards, strict=True):
                self.rollout_buffer.put(
                    RolloutSample(
                        prompt=[],
                        completion=[],
                        input_ids=np.array([*prompt, *tokens]),
                        completion_mask=np.array([0] * len(prompt) + [1] * len(tokens)),
                        old_log_probs=np.array([0.0] * len(prompt) + [-2.7] * len(tokens), "f4"),
                        advantage=float((reward - mean) / (spread + 1e-8)),
                        model_version=version,
                        group_id=self._groups,
                        metrics={"reward": reward, "reward_std": float(spread)},
                    )
                )
            self._groups += 1


def main() -> None:
    """Make the trainer, and train."""
    import torch
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl.experimental.async_grpo import (
        AsyncGRPOConfig,
        AsyncGRPOTrainer,
        async_grpo_trainer,
        packing,
    )

    folder = Path(sys.argv[1])
    torch.manual_seed(0)
    torch.set_num_threads(1)
    packing._flash_attn = lambda: SimpleNamespace(flash_attn_varlen_func=attended)
    async_grpo_trainer.get_peak_flops_per_device = lambda *_: None
    model = str(saved_model(folder.with_name(folder.name + "-model")))
    idle = dict.fromkeys(
        ("init_weight_transfer", "pause", "send_weights", "resume", "destroy"), lambda *_: None
    )
    trainer = AsyncGRPOTrainer(
        model=model,
        reward_funcs=[lambda completions, **_: [0.0] * len(completions)],
        args=AsyncGRPOConfig(
            output_dir=str(folder / "output"),
            per_device_train_batch_size=GROUP * PROMPTS,
            gradient_accumulation_steps=1,
            token_budget=-1,
            num_generations=GROUP,
            max_completion_length=LONGEST,
            weight_sync_steps=SYNC,
            max_staleness=4,
            max_steps=STEPS,
            logging_steps=1,
            save_steps=STEPS,
            report_to=[],
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            learning_rate=1e-3,
        ),
        train_dataset=Dataset.from_dict({"prompt": ["1+1="] * 64}),
        processing_class=AutoTokenizer.from_pretrained(model),
        rollout_worker=Worker(),
        weight_transfer=SimpleNamespace(**idle),
    )
    lag = ["fixed", (trainer.args.max_staleness + 1) * SYNC - 1]  # the largest allowed
    train(trainer, folder, settings={"group_size": GROUP}, lag=lag)


if __name__ == "__main__":
    main()
