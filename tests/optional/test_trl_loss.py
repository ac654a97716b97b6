"""Our loss against TRL's own code on the same batch: its trainers' `_compute_loss` is called on the
same policy, opened as a GPT-2.

TRL is not in the test environment, so this is skipped there, visibly. To run it: an environment
with torch and TRL,

    python3 -m venv .venv-trl && .venv-trl/bin/pip install -c constraints.txt -e '.[trl,test]'
    .venv-trl/bin/python -m pytest tests/optional/test_trl_loss.py -s

The gradient is compared, weight by weight, and the loss; rollouts are sampled by an older policy,
so that ratios differ from 1.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise_lab.trainer.presets import preset
from groupwise_lab.trainer.tasks import make_task

pytestmark = pytest.mark.filterwarnings(
    "ignore"
)  # what TRL and its libraries warn of among themselves
torch = pytest.importorskip("torch", reason="torch is not installed: see the head of this file")
pytest.importorskip("trl", reason="TRL is not installed: see the head of this file")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

GROUPS, SIZE = 6, 4


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A policy, rollouts of an older one, rewards, and the folder in which it opens as a GPT-2."""
    from groupwise_lab.trainer.checkpoints import save_policy
    from groupwise_lab.trainer.policy import Policy, policy_size

    task = make_task("addition", level=2)
    policy = Policy(policy_size("tiny"), vocabulary_size=len(task.vocabulary), seed=1)
    prompt = policy.prompt_tokens(task, task.train[:GROUPS])
    old = Policy(policy_size("tiny"), vocabulary_size=len(task.vocabulary), seed=1)
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in old.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=draw))
    sampled = old.sample(prompt, SIZE, draw, task.completion_length)
    reward = np.random.default_rng(0).integers(0, 2, (GROUPS, SIZE)).astype(np.float64)
    folder = save_policy(policy, tmp_path_factory.mktemp("policy") / "policy", task.vocabulary)
    reference = (
        sampled.log_probability_NL + 0.1 * torch.randn(sampled.mask_NL.shape, generator=draw)
    ) * sampled.mask_NL
    return {
        "task": task,
        "policy": policy,
        "prompt": prompt,
        "sampled": sampled,
        "reward": reward,
        "folder": folder,
        "reference": reference,
    }


def theirs(
    world: dict[str, Any], advantage: Any, folder: Path, *, rloo: bool = False, **options: Any
) -> tuple[float, dict[str, Any]]:
    """Loss and gradient by TRL."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    trl, datasets = import_module("trl"), import_module("datasets")
    model: Any = AutoModelForCausalLM.from_pretrained(world["folder"], dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(world["folder"])
    make, trainer = (trl.RLOOConfig, trl.RLOOTrainer) if rloo else (trl.GRPOConfig, trl.GRPOTrainer)
    arguments = make(
        output_dir=str(folder),
        use_cpu=True,
        bf16=False,
        report_to="none",
        per_device_train_batch_size=GROUPS * SIZE,
        num_generations=SIZE,
        max_completion_length=world["sampled"].mask_NL.shape[1],
        gradient_checkpointing=False,
        **options,
    )
    data = datasets.Dataset.from_list(
        [{"prompt": problem.prompt} for problem in world["task"].train[:GROUPS]]
    )
    loop = trainer(
        model=model,
        args=arguments,
        train_dataset=data,
        processing_class=tokenizer,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
    )
    model.eval()
    sampled = world["sampled"]
    prompt = world["prompt"].repeat_interleave(SIZE, 0)
    inputs = {
        "prompt_ids": prompt,
        "prompt_mask": torch.ones_like(prompt),
        "completion_ids": sampled.completion_NL,
        "completion_mask": sampled.mask_NL.long(),
        "advantages": advantage,
        "old_per_token_logps": sampled.log_probability_NL,
        "old_logps": (sampled.log_probability_NL * sampled.mask_NL).sum(1),
        "ref_per_token_logps": world["reference"],
        "num_items_in_batch": sampled.mask_NL.sum(),
    }
    loss = loop._compute_loss(model, inputs)
    loss.backward()
    return float(loss.detach()), {
        name: parameter.grad for name, parameter in model.named_parameters()
    }


def ours(world: dict[str, Any], advantage: Any, **options: Any) -> tuple[float, dict[str, Any]]:
    """Loss and gradient by the trainer."""
    from groupwise_lab.trainer.checkpoints import _TRANSPOSED, _names
    from groupwise_lab.trainer.grpo import policy_loss, token_weights
    from groupwise_lab.trainer.settings import TrainSettings

    settings = TrainSettings(group_size=SIZE, rollouts_per_step=GROUPS * SIZE, **options)
    policy, sampled = world["policy"], world["sampled"]
    policy.zero_grad()
    new = policy.log_probabilities(world["prompt"], sampled.completion_NL)
    weight = token_weights(sampled.mask_NL, settings.aggregation)
    reference = world["reference"] if settings.kl_weight else None
    loss: Any = policy_loss(
        new,
        sampled.log_probability_NL,
        advantage,
        sampled.mask_NL,
        weight,
        settings,
        reference_NL=reference,
    )
    loss.value.backward()
    names = _names(policy.size.layers)
    return float(loss.value.detach()), {
        names[name]: parameter.grad.T if name.endswith(_TRANSPOSED) else parameter.grad
        for name, parameter in policy.named_parameters()
    }


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "clipped, a mean a rollout": (
        {"aggregation": "sequence_mean", "clip": 0.05},
        {"loss_type": "grpo", "epsilon": 0.05},
    ),
    "clipped, a mean a token": (
        {"aggregation": "batch_token_mean", "clip": 0.05},
        {"loss_type": "dapo", "epsilon": 0.05},
    ),
    "clipped higher above": (
        {"aggregation": "batch_token_mean", "clip": 0.02, "clip_high": 0.3},
        {"loss_type": "bnpo", "epsilon": 0.02, "epsilon_high": 0.3},
    ),
    "one ratio a rollout": (
        {"aggregation": "sequence_mean", "importance_ratio": "sequence_mean", "clip": 0.05},
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 0.05},
    ),
    "KL in the loss": (
        {"aggregation": "sequence_mean", "kl_weight": 0.3, "kl_estimator": "k3"},
        {"loss_type": "grpo", "beta": 0.3, "use_bias_correction_kl": False, "epsilon": 0.2},
    ),
    "LOO, exact ratio clipped": (
        {"aggregation": "sum", "importance_ratio": "sequence", "clip": 0.05},
        {"rloo": True, "epsilon": 0.05},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_gradient_is_that_of_trl(name: str, world: dict[str, Any], tmp_path: Path) -> None:
    own, other = CASES[name]
    estimator = "rloo" if other.get("rloo") else "grpo"
    spec = preset("trl", estimator=estimator, version="1.16.0")
    advantage = spec.advantages(torch.tensor(world["reward"], dtype=torch.float32)).reshape(-1)
    options = dict(other)
    if options.get("beta"):
        options["beta"] = (
            # TRL would load the reference by name; it is given, so the weight is set afterwards
            0.0
        )
    value, gradient = ours(world, advantage, **own)
    expected, reference = _with_beta(world, advantage, tmp_path, other, options)
    assert value == pytest.approx(expected, abs=1e-6)
    largest = max(float(value.abs().max()) for value in reference.values())
    apart = max(float((gradient[key] - reference[key]).abs().max()) for key in reference)
    print(f"{name}: largest gradient {largest:.3g}, largest difference {apart:.2g}")
    assert apart < 1e-6 * max(1.0, largest)


def _with_beta(
    world: dict[str, Any],
    advantage: Any,
    folder: Path,
    other: dict[str, Any],
    options: dict[str, Any],
) -> tuple[float, dict[str, Any]]:
    """TRL's loss, with the weight of its KL term put in once the trainer is made."""
    trl = import_module("trl")
    if not other.get("beta"):
        return theirs(world, advantage, folder, **options)
    original = trl.GRPOTrainer._compute_loss

    def weighted(self: Any, model: Any, inputs: Any) -> Any:
        self.beta = other["beta"]
        return original(self, model, inputs)

    trl.GRPOTrainer._compute_loss = weighted
    try:
        return theirs(world, advantage, folder, **options)
    finally:
        trl.GRPOTrainer._compute_loss = original
