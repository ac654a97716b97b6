"""The presets against the trainers themselves: TRL's and verl's own code is called, in float32, and
must give the same numbers up to the rounding of float32.

Neither trainer is in the test environment, so this is skipped there, visibly. To run it: an
environment with torch and TRL,

    python3 -m venv .venv-trl && .venv-trl/bin/pip install -c constraints.txt -e '.[trl,test]'
    .venv-trl/bin/python -m pytest lab/tests/optional/test_trainer_presets.py -s

and for verl, whose own requirements are heavy, one with `pip install --no-deps verl` and what
importing it asks for: numpy, omegaconf, hydra-core, ray, tensordict, transformers, codetiming,
orjson, packaging, psutil. The distance is printed in units of the last place of the largest advantage.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.cases import each_case

from groupwise_lab.trainer.presets import PRESETS, AdvantageSpec, preset
from groupwise_lab.trainer.several_rewards import several_advantages

pytestmark = pytest.mark.filterwarnings(
    "ignore"
)  # what the trainers and their libraries warn of among themselves
torch = pytest.importorskip("torch", reason="torch is not installed: see the head of this file")

GROUPS, SIZE, LENGTH = 6, 19, 11
LEVEL = 0.1  # of rewards that are all equal
MOST = 16  # units of the last place: sums of 19 float32 numbers in another order
TRL_SIZE = 16
PROMPTS = np.array(
    [f"uid-{i}" for i in np.random.default_rng(3).permutation(np.repeat(np.arange(GROUPS), SIZE))],
    dtype=object,
)
RAGGED = np.append(PROMPTS[:-2], ["lonely", "lonelier"])


def rewards(kind: str, seed: int, count: int = GROUPS * SIZE) -> Any:
    """Float32 rewards: 0 or 1, normal around a level, with tails so heavy that they have no
    variance, all equal, or so close together that every epsilon shows.
    """
    rng = np.random.default_rng(seed)
    values = {
        "binary": rng.integers(0, 2, count),
        "normal": 3 + rng.normal(size=count),
        "heavy": rng.standard_t(1.5, size=count),
        "equal": np.full(count, LEVEL),
        "close": 1e-5 * rng.normal(size=count),
    }[kind]
    return torch.tensor(values, dtype=torch.float32)


def ulps(ours: Any, theirs: Any) -> float:
    """Largest distance in units of the last place of the largest advantage."""
    assert ours.dtype == theirs.dtype
    a, b = ours.numpy(), theirs.numpy()
    assert np.isfinite(a).all()
    largest = np.abs(b).max()
    return float(np.abs(a - b).max() / np.spacing(max(largest, np.finfo(b.dtype).tiny)))


def rounding_of_equals(spec: AdvantageSpec) -> float:
    """What the mean of a group of equal rewards, off by its rounding, makes of them."""
    scale = spec.epsilon or 1.0
    if spec.whitening is not None:
        scale *= spec.whitening.epsilon ** (1 if spec.whitening.place == "outside" else 0.5)
    return SIZE * 2**-24 * LEVEL / scale


def token_mask(seed: int, count: int) -> Any:
    lengths = np.random.default_rng(seed).integers(1, LENGTH, count)
    return torch.tensor(np.arange(LENGTH) < lengths[:, None]).long()


def verl_tokens(reward: Any, mask: Any) -> Any:
    """The reward at the last token of each completion, as verl keeps it."""
    tokens = torch.zeros(mask.shape, dtype=reward.dtype)
    tokens[torch.arange(len(reward)), mask.sum(1) - 1] = reward
    return tokens


VERL = {spec.estimator: spec for spec in PRESETS if spec.framework == "verl" and not spec.until}


@pytest.mark.parametrize("labels", [PROMPTS, RAGGED], ids=["even", "ragged"])
@pytest.mark.parametrize("kind", ["binary", "normal", "heavy", "close", "equal"])
@pytest.mark.parametrize("name", sorted(VERL))
def test_verl_gives_the_same_numbers(name: str, kind: str, labels: Any) -> None:
    core = pytest.importorskip(
        "verl.trainer.ppo.core_algos", reason="verl is not installed: see the head of this file"
    )
    spec = VERL[name]
    if spec.singleton == "refused" and labels is RAGGED:
        pytest.skip("verl refuses a group of one here, and so do we")
    for seed in range(5):
        reward, mask = rewards(kind, seed), token_mask(seed, GROUPS * SIZE)
        config = {"norm_adv_by_std_in_grpo": True}
        estimator = core.get_adv_estimator_fn(name.removesuffix("_none"))
        extra = {"norm_adv_by_std_in_grpo": False} if name == "grpo_none" else {}
        theirs, _ = estimator(
            token_level_rewards=verl_tokens(reward, mask),
            response_mask=mask,
            index=labels,
            config=config,
            **extra,
        )
        ours = spec.advantages(reward, labels.astype(str), mask_NL=mask)
        theirs = theirs[torch.arange(len(reward)), mask.sum(1) - 1]
        distance = ulps(ours, theirs)
        print(f"verl {name} {kind} {len(set(labels))} groups: {distance:.3g} ulp")
        if kind == "equal":
            assert float((ours - theirs).abs().max()) <= rounding_of_equals(spec)
        else:
            assert distance <= MOST


@each_case("kind", ["binary", "normal", "heavy", "close"])
def test_verl_gives_the_same_numbers_for_several_rewards(kind: str) -> None:
    core = pytest.importorskip(
        "verl.trainer.ppo.core_algos", reason="verl is not installed: see the head of this file"
    )
    for seed in range(5):
        parts = torch.stack(
            [rewards(kind, seed), rewards("normal", seed + 50), rewards("heavy", seed + 70)]
        )
        mask, weight = token_mask(seed, GROUPS * SIZE), [1.0, 0.5, 0.3]
        names = ["right", "brief", "polite"]
        prompts = torch.zeros((len(mask), 3))
        theirs, _ = core.compute_gdpo_outcome_advantage(
            verl_tokens(parts[0], mask),
            mask,
            PROMPTS,
            config={"gdpo_reward_keys": names, "gdpo_reward_weights": weight},
            non_tensor_batch=dict(zip(names, parts.numpy(), strict=True)),
            batch={
                "prompts": prompts,
                "attention_mask": torch.cat([prompts + 1, mask], dim=1).long(),
            },
        )
        ours = several_advantages(
            preset("verl", estimator="gdpo"), parts, weight, PROMPTS.astype(str), mask_NL=mask
        )
        distance = ulps(ours, theirs[torch.arange(len(mask)), mask.sum(1) - 1])
        print(f"verl gdpo, three rewards, {kind}: {distance:.3g} ulp")
        assert distance <= MOST


@pytest.fixture(scope="module")
def recipe() -> Any:
    """The script that records the embedded run: it knows how to make a tiny model and a
    tokenizer.
    """
    path = Path(__file__).resolve().parents[3] / "scripts" / "record_trl_run.py"
    spec = importlib.util.spec_from_file_location("record_trl_run", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_trl(
    recipe: Any, folder: Path, kind: str, *, rloo: bool, several: bool, settings: dict[str, Any]
) -> list[tuple[Any, Any]]:
    """Rewards (one row a reward function) and advantages of four steps of a real trainer,
    float32.
    """
    os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    trl, transformers = importlib.import_module("trl"), importlib.import_module("transformers")

    transformers.set_seed(0)
    count, step = 4 * TRL_SIZE, SimpleNamespace(seed=0)

    def first(completions: list[str], **_: Any) -> list[float | None]:
        step.seed += 1
        values: list[float | None] = rewards(kind, step.seed, len(completions)).tolist()
        values[:TRL_SIZE] = [0.5] * TRL_SIZE  # whose mean has no rounding
        values[TRL_SIZE + 1] = None
        return values

    def second(completions: list[str], **_: Any) -> list[float | None]:
        values: list[float | None] = rewards("normal", step.seed + 50, len(completions)).tolist()
        values[TRL_SIZE + 1 : TRL_SIZE + 3] = [None, None]
        return values

    class Keep(transformers.TrainerCallback):  # type: ignore[name-defined,misc]
        seen: list[tuple[Any, Any]] = []  # noqa: RUF012

        def on_step_end(self, *_: Any, **__: Any) -> None:
            logs = trainer._logs
            parts = [
                torch.tensor(list(values), dtype=torch.float32)
                for values in logs["rewards"].values()
            ]
            self.seen.append(
                (torch.stack(parts), torch.tensor(list(logs["advantages"]), dtype=torch.float32))
            )

    config, kind_of_trainer = (
        (trl.RLOOConfig, trl.RLOOTrainer) if rloo else (trl.GRPOConfig, trl.GRPOTrainer)
    )
    tokenizer = recipe.build_tokenizer()
    trainer = kind_of_trainer(
        model=recipe.build_model(tokenizer),
        reward_funcs=[first, second] if several else [first],
        args=config(
            output_dir=str(folder),
            max_steps=4,
            per_device_train_batch_size=count,
            num_generations=TRL_SIZE,
            max_completion_length=2,
            beta=0.0,
            learning_rate=1e-9,
            report_to="none",
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            dataloader_pin_memory=False,
            disable_tqdm=True,
            save_strategy="no",
            **settings,
        ),
        train_dataset=recipe.problems(0)[0],
        processing_class=tokenizer,
        callbacks=[Keep()],
    )
    trainer.train()
    assert len(Keep.seen) == 4
    return Keep.seen


TRL_RUNS: dict[str, dict[str, Any]] = {
    "grpo": {"scale_rewards": "group"},
    "grpo_batch": {"scale_rewards": "batch"},
    "grpo_none": {"scale_rewards": "none"},
    "gdpo": {"multi_objective_aggregation": "normalize_then_sum", "reward_weights": [1.0, 0.3]},
    "rloo": {},
    "rloo_normalised": {"normalize_advantages": True},
}


@pytest.mark.parametrize("kind", ["binary", "normal", "heavy", "close"])
@pytest.mark.parametrize("name", TRL_RUNS)
def test_trl_gives_the_same_numbers(name: str, kind: str, recipe: Any, tmp_path: Path) -> None:
    trl = pytest.importorskip("trl", reason="TRL is not installed: see the head of this file")
    spec = preset("trl", estimator=name, version=trl.__version__)
    settings = TRL_RUNS[name]
    several = name in {"gdpo", "grpo"}
    if several:
        settings = {"reward_weights": [1.0, 0.3], **settings}
    worst = 0.0
    for parts, theirs in run_trl(
        recipe, tmp_path, kind, rloo=name.startswith("rloo"), several=several, settings=settings
    ):
        blocks = parts.reshape(len(parts), -1, TRL_SIZE)
        ours = (
            several_advantages(spec, blocks, [1.0, 0.3]) if several else spec.advantages(blocks[0])
        )
        assert float(theirs[TRL_SIZE + 1]) == 0.0
        worst = max(worst, ulps(ours.reshape(-1), theirs))
    print(f"trl {name} {kind}: {worst:.3g} ulp")
    assert worst <= MOST


@each_case("kind", ["binary", "normal", "heavy", "close", "equal"])
def test_the_asynchronous_trainer_of_trl_gives_the_same_numbers(kind: str) -> None:
    worker = pytest.importorskip(
        "trl.experimental.async_grpo.async_rollout_worker",
        reason="TRL is not installed: see the head of this file",
    )
    kinds = [
        item
        for item in vars(worker).values()
        if isinstance(item, type) and hasattr(item, "_score_group")
    ]
    assert len(kinds) == 1
    importlib.import_module("accelerate").PartialState(cpu=True)  # the worker's logger asks for it
    spec = preset("trl", estimator="async_grpo")
    for seed in range(20):
        values = rewards(kind, seed, 9).double().numpy()
        if seed % 2:
            values[3] = np.nan
        theirs = asyncio.run(kinds[0]._score_group(*asynchronous(values)))
        ours = spec.advantages(values[None])[0]
        distance = ulps(
            torch.tensor(ours),
            torch.tensor([sample.advantage for sample in theirs], dtype=torch.float64),
        )
        print(
            f"trl async_grpo {kind} {'one missing' if seed % 2 else 'complete'}: {distance:.3g} ulp"
        )
        if kind == "equal":
            assert max(abs(sample.advantage) for sample in theirs) <= 1e-7
            assert float(np.nanmax(np.abs(ours))) <= 1e-7
        else:
            assert distance <= MOST, (seed, distance)


def asynchronous(values: Any) -> tuple[Any, Any]:
    """What the worker's method reads of its object and of its group."""
    count = len(values)
    listed = [None if np.isnan(value) else float(value) for value in values]
    worker = SimpleNamespace(
        reward_funcs=[lambda **_: listed],
        reward_func_names=["score"],
        _env_reward_types=[],
        _provides_rollout_reward=False,
    )
    sequence = SimpleNamespace(input_ids=[1], completion_mask=[1], old_log_probs=[0.0])
    group = SimpleNamespace(
        prompts=["p"] * count,
        completions=["c"] * count,
        completions_ids=[[1]] * count,
        completions_sequences=[[sequence]] * count,
        reward_kwargs={},
        tool_call_counts=[0] * count,
        tool_failure_counts=[0] * count,
        env_rewards=[None] * count,
        rollout_rewards=[None] * count,
        model_version=0,
        group_id=0,
    )
    return worker, group


def test_every_preset_called_here_says_so_and_no_other() -> None:
    called = (
        {("verl", name) for name in VERL}
        | {("trl", name) for name in TRL_RUNS}
        | {("trl", "async_grpo")}
    )
    assert {
        (spec.framework, spec.estimator) for spec in PRESETS if spec.evidence == "called"
    } == called


def test_an_altered_epsilon_shows() -> None:
    reward = rewards("close", 0).reshape(GROUPS, SIZE)
    spec: AdvantageSpec = preset("verl")
    altered = replace(spec, epsilon=1.001e-6).advantages(reward)
    assert ulps(altered, spec.advantages(reward)) > MOST
