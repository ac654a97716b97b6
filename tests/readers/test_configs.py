"""Settings from YAML, JSON and a README, without running or unpickling anything."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cases import each_case

from groupwise.errors import UnreadableRunError
from groupwise.readers.configs import (
    config_of,
    parse_yaml,
    read_settings,
    readme_settings,
    settings_in,
)
from groupwise.record.run import RunConfig


def test_yaml_of_settings() -> None:
    text = """
# comment
model:
  name: "Qwen/Q#1"   # trailing
training:
  lr: 2.0e-5
  num_generations: 4
  flag: yes
  nothing: null
  list: ["a", "b"]
  deep:
    x: 'quoted: text'
after: 1
"""
    assert parse_yaml(text) == {
        "model/name": "Qwen/Q#1",
        "training/lr": 2e-5,
        "training/num_generations": 4,
        "training/flag": True,
        "training/nothing": None,
        "training/deep/x": "quoted: text",
        "after": 1,
    }


BLOCK_TEXT = """
system_prompt: |-
  Answer as follows.
  num_generations: 99
  learning_rate: 7
grpo:
  num_generations: 8
  learning_rate: 1e-6
"""
MERGED = "base: &base\n  learning_rate: 1e-6\n  seed: 4\ntraining:\n  <<: *base\n  seed: 5\n"


@each_case(
    ("text", "expected"),
    [
        (BLOCK_TEXT, {"group_size": 8, "learning_rate": 1e-6}),
        (BLOCK_TEXT.replace("|-", ">"), {"group_size": 8, "learning_rate": 1e-6}),
        (MERGED, {"learning_rate": 1e-6, "seed": 5}),
        ("training:\n  - num_generations: 9\nlr: 0.1\n", {"learning_rate": 0.1}),
        ("prompt: 'a\n  num_generations: 9'\nlr: '2e-5'\n", {"learning_rate": 2e-5}),
    ],
)
def test_only_the_settings_of_a_yaml_file_count(
    tmp_path: Path, text: str, expected: dict[str, object]
) -> None:
    (tmp_path / "c.yaml").write_text(text)
    assert read_settings(tmp_path / "c.yaml") == expected


NESTED_ALIASES = "a0: &a0 {x: 1}\n" + "".join(
    f"a{n}: &a{n} {{{', '.join(f'k{i}: *a{n - 1}' for i in range(9))}}}\n" for n in range(1, 10)
)
NESTED_MERGES = "a0: &a0 {x: 1}\n" + "".join(
    f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 10)
)


@each_case(
    "text",
    [
        "",
        "- a\n- b",
        "\t:\n",
        ": : :",
        "a" * 10_000,
        "key:value",
        "&x *y !!python/object:os.system",
        "a: !!python/object/apply:os.system [exit]",
        "- " * 50_000,
        "a: {" * 20_000,
        "a: 1\n" * 30_000,
        "a: 1\n\tb: 2",
        NESTED_ALIASES,
        NESTED_MERGES,
    ],
)
def test_yaml_of_anything_else_is_passed_over(text: str) -> None:
    assert parse_yaml(text) == {}


# As verl's configuration holds them: with the settings of what is off.
VERL: dict[str, object] = {
    "actor_rollout_ref/rollout/n": 4,
    "actor_rollout_ref/actor/qat/group_size": 16,
    "actor_rollout_ref/model/path": "org/Base",
    "actor_rollout_ref/actor/use_kl_loss": False,
    "actor_rollout_ref/actor/kl_loss_coef": 0.001,
    "algorithm/use_kl_in_reward": False,
    "algorithm/kl_ctrl/kl_coef": 0.05,
    "algorithm/adv_estimator": "grpo",
    "algorithm/norm_adv_by_std_in_grpo": True,
    "actor_rollout_ref/rollout/name": "vllm",
    "actor_rollout_ref/rollout/val_kwargs/temperature": 0,
}
EVERY_50 = {"checkpoint_interval": 50}
VERLS: dict[str, object] = {
    "group_size": 4,
    "model": "org/Base",
    "engine": "vllm",
    "loss": "grpo",
    "scale_rewards": "group",
}


@each_case(
    ("flat", "expected"),
    [
        ({"eval/temperature": 0.0, "temperature": 0.8}, {"temperature": 0.8}),
        ({"lora/num_generations": 9}, {}),
        ({"some/where/beta": 1.0, "training/beta": 0.04}, {"kl_weight": 0.04}),
        ({"num_generations/value": 8, "num_generations/desc": None}, {"group_size": 8}),
        ({"rollout_batch_size": 256, "group_size": 8}, {"group_size": 8, "prompts_per_step": 32}),
        ({"rollout_batch_size": 255, "group_size": 8}, {"group_size": 8}),
        (
            {"actor_rollout_ref/rollout/n": 1, "env/rollout/n": 4},  # of verl-agent's
            {"group_size": 4},
        ),
        (
            {"actor_rollout_ref/rollout/n": 5, "data/train_batch_size": 64},
            {"group_size": 5, "prompts_per_step": 64},
        ),
        (
            {
                "num_generations": 8,
                "per_device_train_batch_size": 8,
                "gradient_accumulation_steps": 4,
                "world_size": 2,
            },
            {"group_size": 8, "prompts_per_step": 8},
        ),
        (
            {"steps_per_generation": 8, "gradient_accumulation_steps": 4, "num_iterations": 2},
            {"refresh_interval": 4, "lag_kind": "refresh"},
        ),
        (
            {"steps_per_generation": 1, "gradient_accumulation_steps": 4},
            {"refresh_interval": 1, "lag_kind": "none"},
        ),
        ({"steps_per_generation": 3, "gradient_accumulation_steps": 2}, {}),
        (
            {
                "data/train_batch_size": 64,
                "actor_rollout_ref/actor/ppo_mini_batch_size": 16,
                "actor_rollout_ref/actor/ppo_epochs": 2,
                "critic/ppo_epochs": 1,
            },
            {
                "prompts_per_step": 64,
                "refresh_interval": 8,
                "lag_kind": "refresh",
                "updates_per_step": 8,
            },
        ),
        (
            {
                "data/train_batch_size": 64,
                "actor_rollout_ref/actor/ppo_mini_batch_size": 16,
                "actor_rollout_ref/actor/ppo_epochs": 2,
                "trainer/v1/trainer_mode": "separate_async",
            },
            {"prompts_per_step": 64},
        ),
        (
            {**VERL, "actor_rollout_ref/actor/use_kl_loss": True},
            {**VERLS, "kl_weight": 0.001, "kl_in": "loss"},
        ),
        (
            {**VERL, "algorithm/use_kl_in_reward": True},
            {**VERLS, "kl_weight": 0.05, "kl_in": "reward"},
        ),
        (VERL, {**VERLS, "kl_weight": 0.0, "kl_in": "none"}),
        (
            {**VERL, "algorithm/adv_estimator": "gae"},
            {
                **{name: VERLS[name] for name in VERLS if name != "scale_rewards"},
                "loss": "gae",
                "kl_weight": 0.0,
                "kl_in": "none",
            },
        ),
        (
            {
                **VERL,
                "algorithm/norm_adv_by_std_in_grpo": False,
                "actor_rollout_ref/actor/policy_loss/loss_mode": "gspo",
            },
            {**VERLS, "scale_rewards": "none", "loss": "gspo", "kl_weight": 0.0, "kl_in": "none"},
        ),
        (
            {
                f"{section}/value/{rest}": value
                for path, value in VERL.items()
                for section, _, rest in [path.partition("/")]
            },
            {**VERLS, "kl_weight": 0.0, "kl_in": "none"},
        ),
        ({"use_kl_loss": False, "kl_loss_coef": 0.1}, {"kl_weight": 0.0, "kl_in": "none"}),
        (
            {"use_kl_loss": False, "init_kl_coef": 0.1},
            {"kl_weight": 0.1},
        ),  # OpenRLHF's, in the reward
        ({"use_kl_loss": True, "kl_loss_coef": 0.1}, {"kl_weight": 0.1}),
        ({"group_size": "auto", "learning_rate": float("inf"), "seed": None, "lr": -1}, {}),
        ({"use_std_normalization": True}, {"scale_rewards": True}),
        (
            {"args/multi_objective_aggregation": "normalize_then_sum"},
            {"multi_objective_aggregation": "normalize_then_sum"},
        ),
        ({"multi_objective_aggregation": "other"}, {}),
        ({"args/max_completion_length": 512}, {"max_completion_length": 512}),
        (
            {"data/max_response_length": 1024, "actor_rollout_ref/rollout/response_length": 9},
            {"max_completion_length": 1024},
        ),
        (
            {"data/max_prompt_length": 64, "actor_rollout_ref/rollout/response_length": 9},
            {"max_completion_length": 9},
        ),
        ({"generate_max_len": 2048, "eval/max_new_tokens": 3}, {"max_completion_length": 2048}),
        ({"rollout_max_response_len": 300}, {"max_completion_length": 300}),
        ({"max_new_tokens": 0}, {}),
        ({"save_strategy": "steps", "save_steps": 50}, EVERY_50),
        ({"args/save_strategy": "IntervalStrategy.STEPS", "save_steps": 50}, EVERY_50),
        ({"args/save_strategy": "epoch", "args/save_steps": 50}, {}),
        ({"save_strategy": False, "save_steps": 50}, {}),  # YAML's "no"
        ({"save_steps": 0.1}, {}),  # of the run, whose end is not known
        ({"trainer/ckpt/interval": 50}, EVERY_50),
        ({**VERL, "trainer/save_freq": -1}, {**VERLS, "kl_weight": 0.0, "kl_in": "none"}),
    ],
)
def test_settings_under_our_names(flat: dict[str, object], expected: dict[str, object]) -> None:
    assert settings_in(flat) == expected


def test_readme_of_the_output(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(
        "This model is a fine-tuned version of [org/Base](https://x).\n- learning_rate: 5e-06\n- "
        "seed: 3\n\n- TRL: 0.26.2\n- Pytorch: 2.9\n"
    )
    assert readme_settings(tmp_path / "README.md") == {
        "learning_rate": 5e-06,
        "seed": 3,
        "framework": "trl",
        "framework_version": "0.26.2",
        "model": "org/Base",
    }


@each_case("content", [b"", b"\0\1\2", b"{broken", b"[1, 2]", b"hello", b"{" * 100_000])
def test_a_settings_file_that_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "c.json").write_bytes(content)
    with pytest.raises(UnreadableRunError):
        read_settings(tmp_path / "c.json")


def around(log: Path) -> RunConfig:
    """The settings that lie around a log."""
    return config_of(RunConfig(), log)


def test_what_the_user_gave_wins_over_files_and_files_over_the_log(tmp_path: Path) -> None:
    (tmp_path / "a.config.json").write_text(json.dumps({"group_size": 8, "seed": 1}))
    stated = (
        ({"group_size": 4, "lr": 0.5}, "the log"),
        ({"lr": 0.25, "rollout_batch_size": 32}, "its end"),
    )
    config = config_of(
        RunConfig().with_settings({"seed": 2}, "--set"), tmp_path / "a.jsonl", None, stated
    )
    assert {name: (setting.value, setting.source) for name, setting in config.known().items()} == {
        "seed": (2, "--set"),
        "group_size": (8, "a.config.json"),
        "learning_rate": (0.5, "the log"),
        "prompts_per_step": (4, "its end"),
    }


def test_only_files_of_the_same_run_count(tmp_path: Path) -> None:
    (tmp_path / "a.metrics.jsonl").write_text("{}")
    (tmp_path / "a.config.json").write_text(json.dumps({"group_size": 8}))
    (tmp_path / "config.json").write_text(json.dumps({"seed": 5}))
    (tmp_path / "b.config.json").write_text(json.dumps({"group_size": 99}))
    assert {
        name: setting.value
        for name, setting in around(tmp_path / "a.metrics.jsonl").known().items()
    } == {"group_size": 8}
    assert around(tmp_path / "metrics.jsonl").value("seed") == 5
    assert around(tmp_path / "c.metrics.jsonl").known() == {}


def test_damaged_files_around_a_log_do_no_harm(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b"\xff\0\xff")
    (tmp_path / "args.json").write_text("{")
    (tmp_path / "README.md").write_bytes(b"\0")
    assert around(tmp_path / "metrics.jsonl").known() == {}
