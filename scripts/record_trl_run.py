"""Record the embedded default: a real GRPO run of TRL on the CPU, of a tiny random model that
learns to add.

    python3 scripts/record_trl_run.py [--steps 300] [--output src/groupwise/examples/trl_run]

Run by a Python without TRL, it first builds `.venv-trl` and starts itself again in there. The model
is made here from random numbers, warmed up on worked answers until it is right one time in five,
and then trained by TRL's own `GRPOTrainer`. What TRL writes is kept as it is: the output's
README.md, the newest trainer_state.json and the completions (Parquet, one file a step, rewritten
into one file because each of hundreds of small files would mostly be its own footer). Beside them
lies training_args.json, TRL's `args.to_json_string()`.

It keeps no weights, no optimiser state and nothing pickled, and it measures nothing by itself.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from random import Random

    from datasets import Dataset
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv-trl"
REQUIREMENTS = (
    "torch==2.13.0",
    "trl==1.16.0",
    "transformers==5.23.0",
    "datasets==5.2.0",
    "accelerate==1.15.0",
    "rich",
)
SYMBOLS = [*"0123456789", "+", "=", ".", "<pad>", "<end>"]
PROMPTS_PER_STEP, GROUP_SIZE, MAX_ANSWER = 32, 8, 6
HELD_OUT = 32


def correct(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    """1 where the text before the first dot is the sum, else 0."""
    return [
        float(text.split(".")[0] == truth) for text, truth in zip(completions, answer, strict=True)
    ]


def brief(completions: list[str], **_: Any) -> list[float]:
    """1 for two characters, falling to 0 at the longest answer that is allowed."""
    return [1.0 - max(len(text) - 2, 0) / (MAX_ANSWER - 2) for text in completions]


def build_tokenizer() -> PreTrainedTokenizerFast:
    """One token a character."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(
        models.WordLevel(
            {symbol: number for number, symbol in enumerate(SYMBOLS)}, unk_token="<pad>"
        )
    )
    core.pre_tokenizer = pre_tokenizers.Split(Regex("<pad>|<end>|."), "isolated")
    core.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=core, padding_side="left", pad_token="<pad>", eos_token="<end>"
    )


def build_model(tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """Two layers of width 64 with random weights; transformers' default range of 0.02 leaves so
    small a model on a plateau.
    """
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=len(SYMBOLS),
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=16,
        max_position_embeddings=64,
        initializer_range=0.1,
        tie_word_embeddings=False,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    return Qwen3ForCausalLM(config)


def problems(seed: int) -> tuple[Dataset, Dataset]:
    """All sums of two two-digit numbers modulo 100, in a random order: those to train on and a
    few held out.
    """
    import random

    from datasets import Dataset

    pairs = [(a, b) for a in range(100) for b in range(100)]
    random.Random(seed).shuffle(pairs)
    rows = [{"prompt": f"{a:02d}+{b:02d}=", "answer": f"{(a + b) % 100:02d}"} for a, b in pairs]
    return Dataset.from_list(rows[HELD_OUT:]), Dataset.from_list(rows[:HELD_OUT])


def warm_up(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    rows: Dataset,
    *,
    target: float,
    seed: int,
) -> int:
    """Teach from worked answers, each with zero to three idle dots behind it, until sampling is
    right `target` of the time.
    """
    import random

    import torch

    draw = random.Random(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    prompts, answers = list(rows["prompt"]), list(rows["answer"])
    for step in range(2000):
        chosen = [draw.randrange(len(prompts)) for _ in range(256)]
        texts = [prompts[i] + answers[i] + "." * draw.randrange(4) + "<end>" for i in chosen]
        tokens = tokenizer(texts, return_tensors="pt", padding=True, padding_side="right")
        labels = tokens.input_ids.masked_fill(tokens.input_ids == tokenizer.pad_token_id, -100)
        labels[:, :6] = -100
        loss = model(
            input_ids=tokens.input_ids, attention_mask=tokens.attention_mask, labels=labels
        ).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 4 and sampled_accuracy(model, tokenizer, prompts, answers, draw) >= target:
            return step + 1
    raise SystemExit("the warm-up did not reach its target in 2,000 steps")


def sampled_accuracy(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    prompts: list[str],
    answers: list[str],
    draw: Random,
) -> float:
    """Share of right answers among 256 sampled at temperature 1."""
    import torch

    chosen = [draw.randrange(len(prompts)) for _ in range(256)]
    tokens = tokenizer([prompts[i] for i in chosen], return_tensors="pt").input_ids
    with torch.no_grad():
        for _ in range(2):
            logits = model(input_ids=tokens).logits[:, -1]
            tokens = torch.cat([tokens, torch.multinomial(logits.softmax(-1), 1)], dim=1)
    texts = tokenizer.batch_decode(tokens[:, 6:])
    return sum(text == answers[i] for text, i in zip(texts, chosen, strict=True)) / len(chosen)


def train(folder: Path, *, steps: int, seed: int) -> None:
    """Warm up, then hand over to TRL; its output goes to `folder`."""
    import warnings

    import torch
    from transformers import set_seed
    from trl import GRPOConfig, GRPOTrainer

    warnings.simplefilter(
        "ignore", FutureWarning
    )  # TRL and transformers warn about each other at every step
    torch.set_num_threads(1)
    set_seed(seed)
    tokenizer = build_tokenizer()
    model = build_model(tokenizer)
    train_rows, held_out = problems(seed)
    started = time.perf_counter()
    warm_steps = warm_up(model, tokenizer, train_rows, target=0.2, seed=seed)
    print(f"warm-up: {warm_steps} steps, {time.perf_counter() - started:.0f} s", flush=True)
    arguments = GRPOConfig(
        output_dir=str(folder),
        max_steps=steps,
        per_device_train_batch_size=PROMPTS_PER_STEP * GROUP_SIZE,
        per_device_eval_batch_size=HELD_OUT * GROUP_SIZE,
        num_generations=GROUP_SIZE,
        max_completion_length=MAX_ANSWER,
        learning_rate=5e-4,
        lr_scheduler_type="constant",
        reward_weights=[1.0, 0.1],
        logging_steps=1,
        eval_strategy="steps",
        eval_steps=20,
        save_strategy="steps",
        save_steps=steps,
        log_completions=True,
        num_completions_to_print=0,
        report_to="none",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        dataloader_pin_memory=False,
        disable_tqdm=True,
        seed=seed,
    )
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=[correct, brief],
        args=arguments,
        train_dataset=train_rows,
        eval_dataset=held_out,
        processing_class=tokenizer,
    )
    started = time.perf_counter()
    trainer.train()
    print(f"TRL: {steps} steps, {time.perf_counter() - started:.0f} s", flush=True)
    (folder / "training_args.json").write_text(arguments.to_json_string() + "\n", encoding="utf-8")


def keep(raw: Path, output: Path) -> None:
    """Copy what a reader of the run needs out of TRL's folder; the completions of all steps
    become one Parquet file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    newest = max(raw.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    shutil.rmtree(output, ignore_errors=True)
    (output / newest.name).mkdir(parents=True)
    shutil.copy(newest / "trainer_state.json", output / newest.name)
    shutil.copy(raw / "README.md", output)
    arguments = json.loads((raw / "training_args.json").read_text(encoding="utf-8"))
    del arguments["hub_token"]
    arguments = {
        key: "." if isinstance(value, str) and str(raw) in value else value
        for key, value in arguments.items()
    }
    (output / "training_args.json").write_text(
        json.dumps(arguments, indent=2, sort_keys=True) + "\n", encoding="utf-8"
    )
    files = sorted((raw / "completions").glob("completions_*.parquet"))
    table = pa.concat_tables(pq.read_table(file).replace_schema_metadata(None) for file in files)
    (output / "completions").mkdir()
    pq.write_table(
        table,
        output / "completions" / f"completions_{table['step'][-1].as_py():05d}.parquet",
        compression="zstd",
    )


def bootstrap() -> None:
    """Build the virtual environment with TRL in it and start again there."""
    python = VENV / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
        subprocess.run([str(VENV / "bin" / "pip"), "install", "-q", "uv"], check=True)
    answer = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", "global.find-links"],
        capture_output=True,
        text=True,
        check=False,
    )
    environment = {
        **os.environ,
        "UV_FIND_LINKS": os.environ.get("UV_FIND_LINKS", ",".join(answer.stdout.split())),
    }
    command = [
        str(VENV / "bin" / "uv"),
        "pip",
        "install",
        "-q",
        "--python",
        str(python),
        *REQUIREMENTS,
    ]
    subprocess.run(
        command, check=True, env={key: value for key, value in environment.items() if value}
    )
    os.execv(python, [str(python), *sys.argv])


def main() -> None:
    """Read the arguments, record, keep."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--output", type=Path, default=ROOT / "src" / "groupwise" / "examples" / "trl_run"
    )
    parser.add_argument(
        "--raw",
        type=Path,
        default=ROOT / "build" / "trl_run",
        help="folder that TRL itself writes to; emptied first",
    )
    arguments = parser.parse_args()
    if find_spec("trl") is None:
        if Path(sys.prefix) == VENV:
            raise SystemExit(f"{VENV} has no TRL in it: delete the folder and try again")
        bootstrap()
    os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    raw = arguments.raw.resolve()
    shutil.rmtree(raw, ignore_errors=True)
    train(raw, steps=arguments.steps, seed=arguments.seed)
    keep(raw, arguments.output)
    print(f"kept in {arguments.output}")


if __name__ == "__main__":
    main()
