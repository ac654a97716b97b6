"""Rollouts per second of the training loop, beside TRL's GRPOTrainer on the same policy, task,
group size and optimiser in the same run.

One warmed-up policy is written as a GPT-2 folder and trained by both in turn, one thread each:
Adam, 5e-4, advantages over the std of the group, token ratio with clipping, 512 rollouts a step in
groups of 8, the same exact reward. Nobody writes completions; our loop writes its record. Seconds
are the processor's, so that what else the machine does falls on nobody. TRL needs an environment of
its own: GROUPWISE_TRL_PYTHON names its Python, else `.venv-trl` of scripts/record_trl_run.py.

    python -m pytest benchmarks/test_trainer_speed.py --benchmark-only -s -o
    addopts="--import-mode=importlib"
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

torch = pytest.importorskip("torch")

from groupwise_lab.trainer.checkpoints import load_policy, save_policy  # noqa: E402
from groupwise_lab.trainer.grpo import train  # noqa: E402
from groupwise_lab.trainer.policy import Policy, policy_size  # noqa: E402
from groupwise_lab.trainer.settings import TrainSettings  # noqa: E402
from groupwise_lab.trainer.tasks import Task, make_task  # noqa: E402
from groupwise_lab.trainer.warm_up import warm_up  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
TRL = Path(os.environ.get("GROUPWISE_TRL_PYTHON", ROOT / ".venv-trl" / "bin" / "python"))
GROUP, ROLLOUTS, STEPS, SKIPPED, ROUNDS = 8, 512, 25, 5, 3
pytestmark = [
    pytest.mark.benchmark(group="512 rollouts of modular addition, 0.1 M parameters"),
    pytest.mark.filterwarnings("ignore"),
]

# Run by TRL's Python: prints the median seconds of a step. It shares with us the folder of the
# policy and the rows of the task.
PEER = """
import json, os, sys, time
os.environ["HF_HUB_OFFLINE"] = "1"
import torch
torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
given = json.loads(sys.argv[1])
rows = json.load(open(given["rows"]))
tokenizer = AutoTokenizer.from_pretrained(given["policy"])
model = AutoModelForCausalLM.from_pretrained(given["policy"], dtype=torch.float32)
def exact(completions, answer, **_):
    return [float(text == truth) for text, truth in zip(completions, answer)]
class Clock(TrainerCallback):
    times = []
    def on_step_end(self, *_, **__):
        self.times.append(time.process_time())
arguments = GRPOConfig(
    output_dir=given["output"], use_cpu=True, bf16=False, report_to="none", per_device_train_batch_size=given["rollouts"],
    num_generations=given["group"], max_completion_length=given["length"], gradient_checkpointing=False, learning_rate=5e-4,
    lr_scheduler_type="constant", max_grad_norm=0.0, max_steps=given["steps"], beta=0.0, epsilon=0.2, temperature=1.0, top_k=0, top_p=1.0,
    logging_steps=given["steps"], save_strategy="no", disable_tqdm=True, dataloader_pin_memory=False, loss_type="dapo")
trainer = GRPOTrainer(model=model, args=arguments, train_dataset=Dataset.from_list(rows), processing_class=tokenizer, reward_funcs=exact,
    callbacks=[Clock()])
trainer.train()
times = Clock.times[given["skipped"]:]
gaps = sorted(b - a for a, b in zip(times, times[1:]))
print("SECONDS", gaps[len(gaps) // 2], trainer.state.log_history[-2].get("reward"))
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What everybody trains on."""
    return made(tmp_path_factory.mktemp("world"))


def made(home: Path) -> dict[str, Any]:
    """The task, the folder of a warmed-up policy, and the task's rows for TRL."""
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    task = make_task("modular_addition", level=2)
    policy = Policy(policy_size("small"), vocabulary_size=len(task.vocabulary))
    warm_up(policy, task, accuracy=0.2)
    rows = home / "rows.json"
    rows.write_text(
        json.dumps([{"prompt": problem.prompt, "answer": problem.answer} for problem in task.train])
    )
    return {
        "home": home,
        "task": task,
        "policy": save_policy(policy, home / "policy", task.vocabulary),
        "rows": rows,
    }


def ours(world: dict[str, Any], name: str, *, as_language_model: bool = False) -> float:
    """Median seconds of a step of our loop."""
    task: Task = world["task"]
    actor: Any = load_policy(world["policy"])
    if as_language_model:
        from groupwise.gradients.language_models import load_language_model
        from groupwise_lab.trainer.language_policy import LanguagePolicy

        actor = LanguagePolicy(load_language_model(world["policy"]))
    settings = TrainSettings(
        group_size=GROUP,
        rollouts_per_step=ROLLOUTS,
        steps=STEPS,
        advantage="std_normalised",
        aggregation="batch_token_mean",
        evaluate_every=0,
        rollouts_every=0,
        checkpoint_every=STEPS,
    )
    times: list[float] = []
    train(
        actor,
        task,
        settings,
        output=world["home"] / name,
        force=True,
        on_step=lambda step, row: times.append(time.process_time()),
    )
    return statistics.median(
        b - a for a, b in zip(times[SKIPPED:], times[SKIPPED + 1 :], strict=False)
    )


def theirs(world: dict[str, Any]) -> float:
    """Median seconds of a step of TRL's trainer."""
    given = {
        "policy": str(world["policy"]),
        "rows": str(world["rows"]),
        "output": str(world["home"] / "trl"),
        "rollouts": ROLLOUTS,
        "group": GROUP,
        "length": world["task"].completion_length,
        "steps": STEPS,
        "skipped": SKIPPED,
    }
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(TRL), "-c", PEER, json.dumps(given)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=600, check=False
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("SECONDS")]
    assert lines, done.stderr[-2000:]
    print(f"TRL: reward at the end {lines[-1].split()[2]}")
    return float(lines[-1].split()[1])


def peak() -> float:
    """Arithmetic of one thread in large products of single precision, operations a second."""
    matrix = torch.randn(1024, 1024)
    best = min(timed(lambda: matrix @ matrix) for _ in range(10))
    return 2 * 1024**3 / best


def timed(call: Any) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def operations(world: dict[str, Any]) -> float:
    """Multiplications and additions of a step's products with weights: each token once forward to
    sample it, once forward and twice backward to learn from it; the prompt once for its group."""
    task: Task = world["task"]
    named = load_policy(world["policy"]).named_parameters()
    weights = sum(
        parameter.numel()
        for name, parameter in named
        if parameter.ndim == 2 and not name.startswith(("token", "position"))
    )
    tokens = ROLLOUTS // GROUP * task.prompt_length + ROLLOUTS * (task.completion_length - 1)
    return 2.0 * weights * tokens * 4


def test_step(benchmark: BenchmarkFixture, world: dict[str, Any]) -> None:
    """Seconds of 25 steps of our loop with everything around them."""
    benchmark.pedantic(ours, (world, "bench"), rounds=2)  # type: ignore[no-untyped-call]


@pytest.mark.skipif(not TRL.exists(), reason=f"no TRL at {TRL}: see the head of this file")
def test_ratio(benchmark: BenchmarkFixture, world: dict[str, Any]) -> None:
    """Everybody in turn, round after round: five times TRL's rollouts a second is the least,
    eight the goal.
    """
    rounds: list[tuple[float, float, float]] = []

    def once() -> None:
        rounds.append(
            (ours(world, "ours"), ours(world, "as-gpt2", as_language_model=True), theirs(world))
        )

    benchmark.pedantic(once, rounds=ROUNDS)  # type: ignore[no-untyped-call]
    own, wrapped, trl = (statistics.median(column) for column in zip(*rounds, strict=True))
    least = min(timing for timing, _, _ in rounds)
    print(f"\nrollouts per processor second: ours {ROLLOUTS / own:,.0f}, TRL {ROLLOUTS / trl:,.0f}")
    print(
        f"our loop on transformers' GPT-2: {ROLLOUTS / wrapped:,.0f}, {trl / wrapped:.1f} times TRL"
    )
    ratios = [there / here for here, _, there in rounds]
    print(f"ours over TRL, round by round: {', '.join(f'{ratio:.1f}' for ratio in ratios)}")
    print(f"share of the arithmetic limit of one thread: {operations(world) / peak() / least:.0%}")
    assert statistics.median(ratios) >= 5
