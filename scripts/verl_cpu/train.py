"""verl's own loop on a processor: a tiny random model, groups, two updates a step, padding, a KL
term, validation, a run that resumes.

    python3 scripts/verl_cpu/train.py [--folder build/verl] [--steps 4]

Run by a Python without verl, it first builds `.venv-verl` and starts itself again in there. No file
of verl is changed: a platform and a rollout are put into its registries (`cpu_platform.py`,
`cpu_rollout.py`), and groupwise attaches as it does anywhere. A first run ends after `--steps`, a
second one resumes from its checkpoint and does two more; then groupwise judges the record.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
VENV = ROOT / ".venv-verl"
REQUIREMENTS = (
    "torch==2.13.0",
    "ray==2.60.0",
    "transformers==5.10.4",
    "tensordict==0.10.0",
    "TransferQueue==0.1.11",
    "accelerate",
    "aiohttp",
    "cachetools",
    "codetiming",
    "datasets",
    "dill",
    "fastapi",
    "hydra-core",
    "msgspec",
    "numpy==2.4.6",
    "orjson",
    "packaging",
    "pandas",
    "peft",
    "psutil",
    "pyarrow>=19",
    "pybind11",
    "pylatexenc",
    "pyzmq",
    "tensorboard",
    "torchdata",
    "uvicorn",
)
PROMPTS, GROUP_SIZE, MINI_BATCH = (
    8,
    4,
    6,
)  # six do not divide eight: verl pads the batch to twelve prompts, two updates
KL_WEIGHT = 0.01
ACTOR, ROLLOUT, REFERENCE = (f"actor_rollout_ref.{part}" for part in ("actor", "rollout", "ref"))


def compute_score(
    data_source: str,  # noqa: ARG001
    solution_str: str,
    ground_truth: str,
    extra_info: Any = None,  # noqa: ARG001
    **_: Any,
) -> float:
    """1 where the text holds the letter e often enough, else 0."""
    return float(solution_str.count("e") >= 1 + int(ground_truth) // 2)


def prepare(home: Path) -> None:
    """Make a model of 92,000 parameters, a tokenizer of 300 tokens, and prompts."""
    import pandas as pd
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    home.mkdir(parents=True, exist_ok=True)
    core = Tokenizer(models.BPE())
    core.pre_tokenizer, core.decoder = (
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        decoders.ByteLevel(),
    )
    letters = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<pad>", "<eos>"], initial_alphabet=letters
    )
    core.train_from_iterator(["write words number the end"] * 10, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<eos>")
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}\n{% endfor %}"
    tokenizer.save_pretrained(home / "model")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
        max_position_embeddings=512,
    )
    LlamaForCausalLM(config).save_pretrained(home / "model")
    for name, numbers in (("train", range(40)), ("val", range(40, 47))):
        rows = [
            {
                "data_source": "letters",
                "prompt": [{"role": "user", "content": f"write {n % 10} words number {n}"}],
                "ability": "letters",
                "reward_model": {"style": "rule", "ground_truth": str(n % 10)},
                "extra_info": {"index": n},
            }
            for n in numbers
        ]
        pd.DataFrame(rows).to_parquet(home / f"{name}.parquet")


def overrides(home: Path, steps: int) -> list[str]:
    """Return what the run sets in verl's configuration."""
    return [
        "algorithm.adv_estimator=grpo",
        f"data.train_files={home}/train.parquet",
        f"data.val_files={home}/val.parquet",
        f"data.train_batch_size={PROMPTS}",
        "data.max_prompt_length=64",
        "data.max_response_length=24",
        "data.dataloader_num_workers=0",
        "data.seed=1",
        f"actor_rollout_ref.model.path={home}/model",
        "actor_rollout_ref.model.use_remove_padding=False",
        "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
        "actor_rollout_ref.model.enable_gradient_checkpointing=False",
        f"{ACTOR}.strategy=fsdp2",
        f"{ACTOR}.fsdp_config.strategy=fsdp2",
        f"{ACTOR}.fsdp_config.use_torch_compile=False",
        f"{ACTOR}.use_torch_compile=False",
        f"+{ACTOR}.fsdp_config.mixed_precision.param_dtype=fp32",
        f"{ACTOR}.ppo_mini_batch_size={MINI_BATCH}",
        f"{ACTOR}.ppo_micro_batch_size_per_gpu=8",
        f"{ACTOR}.optim.lr=1e-2",
        f"{ACTOR}.calculate_entropy=True",
        f"{ACTOR}.use_kl_loss=True",
        f"{ACTOR}.kl_loss_coef={KL_WEIGHT}",
        f"{REFERENCE}.strategy=fsdp2",
        f"{REFERENCE}.fsdp_config.strategy=fsdp2",
        f"{REFERENCE}.fsdp_config.use_torch_compile=False",
        f"{REFERENCE}.use_torch_compile=False",
        f"+{REFERENCE}.fsdp_config.mixed_precision.param_dtype=fp32",
        f"{REFERENCE}.log_prob_micro_batch_size_per_gpu=8",
        f"{ROLLOUT}.name=hfcpu",
        f"{ROLLOUT}.mode=async",
        f"{ROLLOUT}.n={GROUP_SIZE}",
        f"{ROLLOUT}.tensor_model_parallel_size=1",
        f"{ROLLOUT}.n_gpus_per_node=1",
        f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu=8",
        f"{ROLLOUT}.agent.num_workers=1",
        f"{ROLLOUT}.load_format=auto",
        f"{ROLLOUT}.calculate_log_probs=True",
        f"{ROLLOUT}.free_cache_engine=False",
        "reward.num_workers=1",
        f"reward.custom_reward_function.path={HERE}/train.py",
        "reward.custom_reward_function.name=compute_score",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
        "trainer.device=cpu",
        "trainer.n_gpus_per_node=1",
        "trainer.nnodes=1",
        f"trainer.total_training_steps={steps}",
        "trainer.total_epochs=9",
        "trainer.val_before_train=True",
        "trainer.test_freq=100",
        "trainer.save_freq=2",
        "trainer.logger=[console,file]",
        "trainer.project_name=groupwise",
        "trainer.experiment_name=letters",
        f"trainer.default_local_dir={home}/run",
        "trainer.resume_mode=auto",
        "ray_kwargs.ray_init.num_cpus=16",
        "+ray_kwargs.ray_init.num_gpus=1",
        "+ray_kwargs.ray_init.include_dashboard=False",
    ]


def train(home: Path, steps: int, name: str) -> None:
    """Run verl until a step; it goes on from its newest checkpoint where there is one."""
    quiet = {
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "OMP_NUM_THREADS": "2",
    }
    ours = {
        "VERL_USE_EXTERNAL_MODULES": "cpu_platform,groupwise.integrations.verl",
        "VERL_FILE_LOGGER_PATH": f"{home}/{name}.jsonl",
    }
    environment = {**os.environ, **quiet, **ours, "PYTHONPATH": found_here()}
    with (home / f"{name}.log").open("w") as log:
        command = [sys.executable, "-m", "verl.trainer.main_ppo", *overrides(home, steps)]
        done = subprocess.run(
            command, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=home, check=False
        )
    if done.returncode:
        tail = "".join(
            (home / f"{name}.log").read_text(errors="replace").splitlines(keepends=True)[-30:]
        )
        sys.exit(f"verl ended with {done.returncode}; the end of {home}/{name}.log:\n{tail}")


def found_here() -> str:
    """Return where Python finds the two modules beside this file, and groupwise."""
    return os.pathsep.join(
        filter(None, [str(HERE), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    )


def with_verl() -> None:
    """Start again in an environment that has verl, where this one has none."""
    if find_spec("verl") is not None:
        return
    python = VENV / "bin" / "python"
    if not any(VENV.glob("lib/*/site-packages/verl")):  # none, or one whose making was interrupted
        print(f"groupwise: making {VENV} (once, some minutes)", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)], check=True)
        pip = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        # Torch alone, and first: there it has no runtime of a GPU, of gigabytes; a machine that
        # cannot reach it asks its own index.
        index = ["--extra-index-url", "https://download.pytorch.org/whl/cpu", "--retries", "0"]
        subprocess.run([*pip, *index, REQUIREMENTS[0]], check=True)
        subprocess.run([*pip, *REQUIREMENTS, "-e", str(ROOT)], check=True)
        subprocess.run([*pip, "--no-deps", "verl==0.9.1"], check=True)
    os.execv(python, [str(python), __file__, *sys.argv[1:]])


def main() -> None:
    """Train, resume, and judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "build" / "verl", help="where the run is written"
    )
    parser.add_argument(
        "--steps", type=int, default=4, help="of the first run; the second does two more"
    )
    given = parser.parse_args()
    with_verl()
    home = given.folder.resolve()
    if (home / "run").exists():
        sys.exit(f"expected no run in {home}, got one: remove it, or choose another --folder")
    prepare(home)
    for steps, name in ((given.steps, "first"), (given.steps + 2, "resumed")):
        print(f"groupwise: verl trains to step {steps}", flush=True)
        train(home, steps, name)
    command = [sys.executable, "-m", "groupwise", "diagnose", str(home / "run" / "groupwise")]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": found_here()}, check=False)


if __name__ == "__main__":
    main()
