"""What `GroupwiseCallback` costs a step of TRL: steps without it and with it, in turn in one run.

    python benchmarks/callback_time.py [--blocks 6] [--groups 8] [--completion-length 16] [--wall]

Run by a Python with TRL (see tests/optional/test_trl_callback.py). One trainer takes steps of two
kinds in blocks of ten that alternate, so that whatever else the machine does falls on all of them
alike; a share is the median over neighbouring blocks, with the middle half of them, in processor
seconds and by the clock on the wall, where waiting for the disk shows too. The model is tiny and
random: a step takes a fraction of a second, and no real run can have a smaller one, so these shares
are upper bounds. It prints; it asserts nothing.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
SIZE, BLOCK = 8, 10
KINDS = ("without", "recording")


def make_trainer(folder: str, steps: int, groups: int, length: int) -> Any:
    """TRL's trainer on the model of the embedded run."""
    transformers, trl = importlib.import_module("transformers"), importlib.import_module("trl")

    spec = importlib.util.spec_from_file_location(
        "record_trl_run", ROOT / "scripts" / "record_trl_run.py"
    )
    assert spec is not None
    assert spec.loader is not None
    recipe = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(recipe)
    transformers.set_seed(0)
    tokenizer = recipe.build_tokenizer()

    def digits(completions: list[str], **_: Any) -> list[float]:
        return [
            sum(character.isdigit() for character in text) / max(len(text), 1)
            for text in completions
        ]

    args = trl.GRPOConfig(
        output_dir=folder,
        max_steps=steps,
        per_device_train_batch_size=groups * SIZE,
        num_generations=SIZE,
        max_completion_length=length,
        learning_rate=1e-6,
        logging_steps=1,
        report_to="none",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        dataloader_pin_memory=False,
        disable_tqdm=True,
        save_strategy="no",
        beta=0.0,
    )
    return trl.GRPOTrainer(
        model=recipe.build_model(tokenizer),
        reward_funcs=[digits],
        args=args,
        train_dataset=recipe.problems(0)[0],
        processing_class=tokenizer,
    )


def clocks() -> tuple[float, float]:
    """Processor seconds of this process, and seconds of the clock."""
    return time.process_time(), time.perf_counter()


class Blocks:
    """Switches the callback off and on by blocks of steps, and takes the time of each step."""

    def __init__(self, callback: Any, blocks: int) -> None:
        self.callback, self.blocks, self.seconds = (
            callback,
            blocks,
            dict[str, list[tuple[float, float]]]((kind, []) for kind in KINDS),
        )
        self._begun, self._done = (0.0, 0.0), -1

    def __getattr__(self, name: str) -> Any:
        if name.startswith("on_"):
            return lambda *_, **__: None
        raise AttributeError(name)

    def kind(self, step: int) -> str:
        """The kind of the block that a step is in; the first block warms up."""
        return KINDS[(step // BLOCK) % len(KINDS)]

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.switch(0)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._begun = clocks()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The row is written at the log, which comes after this: the next step's begin is the
        end of this one.
        """

    def switch(self, step: int) -> None:
        """Make the coming steps of their kind."""
        kind = self.kind(step)
        self.callback._active = kind != "without"
        if kind == "without":
            self.callback._watch.end()
        else:
            self.callback._watch.begin()

    def next_step(self, done: int) -> None:
        """Take the time of the step that is done, and switch where a block ends."""
        if done <= self._done:
            return
        self._done, now = done, clocks()
        if done >= len(KINDS) * BLOCK:
            self.seconds[self.kind(done)].append((now[0] - self._begun[0], now[1] - self._begun[1]))
        if (done + 1) % BLOCK == 0:
            self.switch(done + 1)
        self._begun = clocks()


def main() -> None:
    """Run, and print the shares."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument(
        "--blocks", type=int, default=6, help="blocks of each kind, after the first"
    )
    parser.add_argument("--groups", type=int, default=8, help=f"of {SIZE} rollouts in a step")
    parser.add_argument("--completion-length", type=int, default=16)
    parser.add_argument("--wall", action="store_true", help="inside the callback by the wall too")
    arguments = parser.parse_args()
    os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    import torch

    from groupwise.integrations.trl import GroupwiseCallback

    torch.set_num_threads(1)
    steps = len(KINDS) * BLOCK * (arguments.blocks + 1)
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(folder, steps, arguments.groups, arguments.completion_length)
        trainer.callback_handler.callbacks = [
            callback
            for callback in trainer.callback_handler.callbacks
            if type(callback).__name__ != "PrinterCallback"
        ]
        callback = GroupwiseCallback(trainer, check_every=0, say=lambda _: None)
        if not arguments.wall:  # what it takes itself, whoever else is on the processor
            callback._clock = time.thread_time
        blocks = Blocks(callback, arguments.blocks)
        trainer.add_callback(callback)
        trainer.add_callback(blocks)
        own = trainer._maybe_log_save_evaluate

        def logged(*given: Any, **named: Any) -> Any:
            result = own(*given, **named)
            blocks.next_step(trainer.state.global_step - 1)
            return result

        trainer._maybe_log_save_evaluate = logged
        trainer.train()
    steps_ms = {}
    for number, clock in enumerate(("processor", "wall")):
        seconds = {
            kind: np.array(values)[:, number].reshape(-1, BLOCK).sum(axis=1)
            for kind, values in blocks.seconds.items()
        }
        step = 1000 * float(np.median(seconds["without"])) / BLOCK
        steps_ms[clock] = step
        print(
            f"{clock}: {step:.0f} ms a step without the callback ({arguments.groups} groups of {SIZE}, up to "
            f"{arguments.completion_length} tokens)"
        )
        for kind in KINDS[1:]:
            share = seconds[kind] / seconds["without"] - 1
            low, middle, high = np.quantile(share, [0.25, 0.5, 0.75])
            print(
                f"  {kind}: {middle:+.1%} (middle half {low:+.1%} to {high:+.1%}, {len(share)} "
                f"blocks of {BLOCK} steps)"
            )
    clock = "wall" if arguments.wall else "processor"
    step = steps_ms[clock]
    own_ms = 1000 * callback.record_seconds / max(BLOCK * (arguments.blocks + 1), 1)
    print(f"inside the callback, {clock}: recording {own_ms:.1f} ms a step ({own_ms / step:.2%})")


if __name__ == "__main__":
    main()
