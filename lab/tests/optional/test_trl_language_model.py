"""A real language model with an adapter: our loss and its gradient against TRL's own code on the
same batch, and seconds of an update.

TRL and the weights are not in the test environment, so this is skipped there, visibly. To run it:

    python3 -m venv .venv-trl && .venv-trl/bin/pip install -c constraints.txt -e '.[trl,hf,test]'
    python scripts/fetch_model.py smollm2 --folder MODELS/smollm2
    GROUPWISE_MODELS=MODELS .venv-trl/bin/python -m pytest tests/optional/test_trl_language_model.py
    -s
"""

from __future__ import annotations

import os
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from groupwise_lab.trainer.text_tasks import make_text_task

pytestmark = pytest.mark.filterwarnings(
    "ignore"
)  # what TRL and its libraries warn of among themselves
torch = pytest.importorskip("torch", reason="torch is not installed: see the head of this file")
pytest.importorskip("trl", reason="TRL is not installed: see the head of this file")
FOLDER = Path(os.environ.get("GROUPWISE_MODELS", "")) / "smollm2"
if not (FOLDER / "config.json").is_file():
    pytest.skip(
        "GROUPWISE_MODELS names no folder with smollm2: see the head of this file",
        allow_module_level=True,
    )
os.environ.setdefault("HF_HUB_OFFLINE", "1")

GROUPS, SIZE, LENGTH = 4, 4, 14


def loaded() -> Any:
    """The model with an adapter that is not the one at the start, so that every matrix of it has
    a gradient.
    """
    from groupwise.gradients.language_models import load_language_model
    from groupwise_lab.trainer.language_policy import with_new_adapter

    language_model = with_new_adapter(load_language_model(FOLDER), 16)
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in language_model.model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.01 * torch.randn(parameter.shape, generator=draw))
    return language_model


def trainer(
    model: Any,
    tokenizer: Any,
    folder: Path,
    reward: Any,
    groups: int = GROUPS,
    size: int = SIZE,
    **options: Any,
) -> Any:
    """TRL's trainer with the algorithm that is compared."""
    trl, datasets = import_module("trl"), import_module("datasets")
    arguments = trl.GRPOConfig(
        output_dir=str(folder),
        use_cpu=True,
        bf16=False,
        report_to="none",
        per_device_train_batch_size=groups * size,
        num_generations=size,
        max_completion_length=LENGTH,
        gradient_checkpointing=False,
        loss_type="grpo",
        scale_rewards="none",
        epsilon=0.2,
        beta=0.0,
        **options,
    )
    # As text: TRL's way with messages asks dill to pickle what it cannot.
    problems = make_text_task("larger_of_two").train[:64]
    texts = [
        tokenizer.apply_chat_template(
            list(problem.prompt), add_generation_prompt=True, tokenize=False
        )
        for problem in problems
    ]
    data = datasets.Dataset.from_list(
        [
            {"prompt": text, "answer": problem.answer}
            for text, problem in zip(texts, problems, strict=True)
        ]
    )
    return trl.GRPOTrainer(
        model=model,
        args=arguments,
        train_dataset=data,
        processing_class=tokenizer,
        reward_funcs=reward,
    )


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_the_loss_and_its_gradient_are_those_of_trl(precision: str, tmp_path: Path) -> None:
    """Apart by rounding alone, 2e-6 of the gradient's norm: in a double precision too
    transformers takes its norms in a single one.
    """
    from groupwise_lab.trainer.grpo import policy_loss, token_weights
    from groupwise_lab.trainer.language_policy import LanguagePolicy
    from groupwise_lab.trainer.settings import TrainSettings

    language_model = loaded()
    language_model.model.to(getattr(torch, precision))
    policy, task = LanguagePolicy(language_model), make_text_task("larger_of_two")
    prompt = policy.prompt_tokens(task, task.train[:GROUPS])
    sampled = policy.sample(prompt, SIZE, torch.Generator().manual_seed(1), LENGTH)
    assert float(sampled.mask_NL.sum(1).min()) < LENGTH  # completions of several lengths
    advantage = torch.randn(GROUPS * SIZE, generator=torch.Generator().manual_seed(2)).to(
        getattr(torch, precision)
    )
    parameters = {
        name: parameter
        for name, parameter in language_model.model.named_parameters()
        if parameter.requires_grad
    }

    def gradient(loss: Any) -> Any:
        return torch.cat(
            [part.flatten() for part in torch.autograd.grad(loss, list(parameters.values()))]
        )

    settings = TrainSettings(
        group_size=SIZE,
        rollouts_per_step=GROUPS * SIZE,
        aggregation="sequence_mean",
        importance_ratio="token",
    )
    new = policy.log_probabilities(prompt, sampled.completion_NL)
    weight = token_weights(sampled.mask_NL, settings.aggregation)
    value = policy_loss(new, new.detach(), advantage, sampled.mask_NL, weight, settings).value
    ours = gradient(value)
    loop = trainer(
        language_model.model,
        language_model.tokenizer,
        tmp_path,
        lambda completions, **_: [0.0] * len(completions),
    )
    language_model.model.eval()
    before = prompt.repeat_interleave(SIZE, 0)
    inputs = {
        "prompt_ids": before.clamp(min=0),
        "prompt_mask": policy.real(before),
        "completion_ids": sampled.completion_NL,
        "completion_mask": sampled.mask_NL.long(),
        "advantages": advantage,
        "old_per_token_logps": None,
        "num_items_in_batch": sampled.mask_NL.sum(),
    }
    expected = loop._compute_loss(language_model.model, inputs)
    theirs = gradient(expected)
    apart = float((ours - theirs).norm() / theirs.norm())
    norm = float(theirs.norm())
    print(
        f"{precision}: loss {float(value):.8f} and {float(expected):.8f}, gradients apart by "
        f"{apart:.2g} of their norm {norm:.3g}"
    )
    assert float(value) == pytest.approx(float(expected), rel=1e-6)
    assert apart < 1e-5


def test_seconds_of_an_update_beside_trl(tmp_path: Path) -> None:
    """Processor seconds of three updates of 8 x 8 rollouts of at most 14 tokens on one thread
    are printed, not asserted.
    """
    from groupwise_lab.trainer.grpo import train
    from groupwise_lab.trainer.language_policy import LanguagePolicy
    from groupwise_lab.trainer.settings import TrainSettings

    torch.set_num_threads(1)
    task, spent = make_text_task("larger_of_two"), []
    settings = TrainSettings(
        group_size=8,
        rollouts_per_step=64,
        steps=4,
        optimizer="adamw",
        learning_rate=1e-4,
        evaluate_every=0,
        rollouts_every=0,
    )
    train(
        LanguagePolicy(loaded()),
        task,
        settings,
        output=tmp_path / "ours",
        on_step=lambda *_: spent.append(time.process_time()),
    )
    ours = (spent[3] - spent[0]) / 3
    adapter, seen = loaded(), []

    def reward(completions: Any, answer: Any, **_: Any) -> Any:
        seen.append(time.process_time())
        return [
            float(right in completion)
            for completion, right in zip(completions, answer, strict=True)
        ]

    loop = trainer(
        adapter.model,
        adapter.tokenizer,
        tmp_path / "theirs",
        reward,
        8,
        8,
        max_steps=4,
        learning_rate=1e-4,
        temperature=1.0,
    )
    loop.train()
    theirs = (seen[3] - seen[0]) / 3
    print(f"seconds of an update: {ours:.1f} ours, {theirs:.1f} TRL's, {theirs / ours:.2f} times")
    assert len(seen) == 4
