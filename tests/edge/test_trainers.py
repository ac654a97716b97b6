"""From trainer settings to lags: held against loops that play the trainers' schedules, and the
page of the docs against the table.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cases import each_case

from groupwise.edge.threshold import LAGS, threshold
from groupwise.edge.trainers import (
    TRAINERS,
    lag_of_trainer,
    rule_of_trainer,
    takes,
)
from groupwise.errors import InvalidArgumentError
from groupwise.record.settings import RULES as SETTINGS

PAGE = Path(__file__).parents[2] / "docs" / "lags.md"
VERL = {"train_batch_size": 64, "ppo_mini_batch_size": 16, "ppo_epochs": 2}
ASYNC = {
    "staleness_threshold": 0.5,
    "trigger_parameter_sync_step": 4,
    "require_batches": 1,
    "ppo_epochs": 1,
}
WINDOW = ASYNC | {"staleness_threshold": 1}
SEPARATE = {"max_off_policy_threshold": 8, "parameter_sync_step": 4, "ppo_epochs": 1}
SLIME = {"num_steps_per_rollout": 4}
HRLF = {
    "rollout_batch_size": 32,
    "n_samples_per_prompt": 8,
    "train_batch_size": 128,
    "max_epochs": 1,
}
NEMO = {
    "num_prompts_per_step": 32,
    "num_generations_per_prompt": 16,
    "train_global_batch_size": 128,
}

TRL = {"num_iterations": 2, "steps_per_generation": 8, "gradient_accumulation_steps": 4}

# Every rule with settings that are neither trivial nor on an edge: kind, interval, ratio, KL term.
CASES: list[tuple[str, dict[str, Any], tuple[str, int, str, str]]] = [
    ("trl", TRL | {"beta": 0.04}, ("refresh", 4, "clipped", "loss")),
    (
        "trl",
        TRL | {"num_iterations": 1, "steps_per_generation": 4, "beta": 0},
        ("none", 1, "none", "none"),
    ),
    ("trl", {"max_staleness": 4, "weight_sync_steps": 2}, ("fixed", 9, "clipped", "none")),
    ("verl", VERL | {"use_kl_in_reward": True}, ("refresh", 8, "clipped", "reward")),
    ("verl", ASYNC | {"use_kl_loss": True, "rollout_is": "token"}, ("fixed", 5, "clipped", "loss")),
    (
        "verl",
        WINDOW | {"use_kl_loss": True, "bypass_mode": "false", "rollout_is": "null"},
        ("async", 4, "none", "loss"),
    ),
    (
        "verl",
        ASYNC | {"staleness_threshold": 0, "use_kl_loss": True},
        ("refresh", 4, "clipped", "loss"),
    ),
    ("verl", SEPARATE | {"bypass_mode": True}, ("fixed", 31, "clipped", "unknown")),
    ("verl", SEPARATE | {"ppo_epochs": 2}, ("fixed", 63, "unknown", "unknown")),
    ("prime-rl", {"max_off_policy_steps": 8}, ("fixed", 8, "clipped", "loss")),
    ("prime-rl", {"max_off_policy_steps": 0}, ("none", 1, "none", "loss")),
    (
        "openrlhf",
        HRLF | {"init_kl_coef": 0.01, "use_kl_loss": False},
        ("refresh", 2, "clipped", "reward"),
    ),
    ("openrlhf", HRLF | {"async_queue_size": 1, "init_kl_coef": 0}, ("async", 2, "none", "none")),
    ("openrlhf", HRLF | {"async_queue_size": 3, "init_kl_coef": 0}, ("fixed", 7, "none", "none")),
    (
        "slime",
        {"num_steps_per_rollout": 4, "kl_coef": 0, "use_kl_loss": False},
        ("refresh", 4, "clipped", "none"),
    ),
    (
        "slime",
        SLIME | {"update_weights_interval": 1, "use_tis": True, "kl_coef": 0.1},
        ("async", 4, "clipped", "reward"),
    ),
    (
        "slime",
        {"num_steps_per_rollout": 2, "update_weights_interval": 3},
        ("fixed", 7, "unknown", "unknown"),
    ),
    ("nemo-rl", NEMO | {"reference_policy_kl_penalty": 0.01}, ("refresh", 4, "clipped", "loss")),
    (
        "nemo-rl",
        NEMO | {"max_trajectory_age_steps": 1, "use_importance_sampling_correction": True},
        ("async", 4, "clipped", "unknown"),
    ),
    (
        "nemo-rl",
        NEMO | {"max_trajectory_age_steps": 2, "use_importance_sampling_correction": False},
        ("fixed", 11, "none", "unknown"),
    ),
    (
        "areal",
        {"max_head_offpolicyness": 2, "ppo_n_minibatches": 4, "kl_ctl": 0.1},
        ("fixed", 11, "clipped", "reward"),
    ),
    (
        "areal",
        {"max_head_offpolicyness": 0, "ppo_n_minibatches": 4, "kl_ctl": 0},
        ("refresh", 4, "clipped", "none"),
    ),
]


@each_case(("framework", "settings", "expected"), CASES)
def test_settings_tell_the_lag(
    framework: str, settings: dict[str, Any], expected: tuple[str, int, str, str]
) -> None:
    found = lag_of_trainer(framework, settings)
    assert (found.kind, found.refresh_interval, found.importance_ratio, found.kl_term) == expected
    assert found.notes
    # What is unknown is asked for, and only that.
    unknown = set(found.unknown_settings)
    ratio = {name for rule in TRAINERS for name in re.findall(r"(\w+):", rule.ratio)}
    kl = {name for rule in TRAINERS for name in re.findall(r"(\w+):", rule.kl_term)}
    assert bool(ratio & unknown) == (found.importance_ratio == "unknown")
    assert bool(kl & unknown) == (found.kl_term == "unknown")
    assert unknown <= ratio | kl


def test_every_rule_is_tried_above() -> None:
    tried = {rule_of_trainer(framework, settings).name for framework, settings, _ in CASES}
    assert tried == {entry.name for entry in TRAINERS}


@each_case("accumulation", [1, 2, 3, 4, 8])
@each_case("steps", [1, 2, 3, 4, 6, 8])
@each_case("iterations", [1, 2, 3])
def test_trl_is_what_its_loop_does(iterations: int, steps: int, accumulation: int) -> None:
    """Micro-steps played one by one: the largest number of updates between a generation and its
    use.
    """
    every, updates, generated, worst = iterations * steps, 0, 0, 0
    for micro in range(every * accumulation * 4):
        if micro % every == 0:
            generated = updates
        worst = max(worst, updates - generated)
        updates += (micro + 1) % accumulation == 0
    found = lag_of_trainer(
        "trl",
        {
            "num_iterations": iterations,
            "steps_per_generation": steps,
            "gradient_accumulation_steps": accumulation,
            "beta": 0,
        },
    )
    assert found.refresh_interval == worst + 1
    assert (found.kind == "none") == (worst == 0)


@each_case(("updates", "spacing"), [(1, 1), (4, 1), (2, 3), (1, 4), (3, 2)])
def test_slime_async_is_what_its_loop_does(updates: int, spacing: int) -> None:
    """`train_async.py` played: the next rollout starts before this one is trained on, weights go
    over every so many rollouts.
    """
    trained, sent, coming = 0, 0, 0
    lags: Counter[int] = Counter()
    for rollout in range(40 * spacing):
        present, coming = (
            coming,
            sent,
        )  # the policy of the rollout trained on now, and of the next one
        if rollout >= 4 * spacing:
            lags.update(trained + update - present for update in range(updates))
        trained += updates
        if (rollout + 1) % spacing == 0:
            sent = trained
    found = lag_of_trainer(
        "slime",
        {"num_steps_per_rollout": updates, "update_weights_interval": spacing, "use_tis": True},
    )
    if spacing == 1:
        assert found.kind == "async"
        assert set(lags) == set(range(updates, 2 * updates))
    else:
        assert (found.kind, found.refresh_interval) == ("fixed", max(lags))
        assert found.is_bound


@each_case("entry", TRAINERS)
def test_what_is_missing_is_asked_for_and_not_guessed(entry: Any) -> None:
    whole = next(
        settings
        for framework, settings, _ in CASES
        if rule_of_trainer(framework, settings).name == entry.name
    )
    assert set(entry.needs) <= set(whole)
    for name in entry.needs:
        with pytest.raises(InvalidArgumentError, match=name):
            lag_of_trainer(entry.name, {key: value for key, value in whole.items() if key != name})


@each_case(
    ("framework", "settings", "words"),
    [
        ("megatron", {}, "expected a trainer, got 'megatron'"),
        (
            "verl",
            VERL | {"ppo_mini_batch_size": 128},
            "ppo_mini_batch_size of at most train_batch_size",
        ),
        ("verl", VERL | {"ppo_epochs": 0}, "whole number of at least 1 for ppo_epochs"),
        ("verl", VERL | {"ppo_epochs": 1.5}, "whole number"),
        ("verl", VERL | {"ppo_epochs": 1_000_000}, "whole number"),
        ("verl", VERL | {"critic.ppo_epochs": 3}, "one value of ppo_epochs"),
        ("verl", VERL | {"use_kl_loss": "perhaps"}, "true or false"),
        ("slime", {"num_steps_per_rollout": 2, "kl_coef": -1}, "at least 0"),
    ],
)
def test_what_cannot_be_is_one_line(framework: str, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=re.escape(words)) as caught:
        lag_of_trainer(framework, settings)
    assert "\n" not in str(caught.value)


def test_a_trainers_settings_are_no_settings_of_a_run() -> None:
    """--set hands each name to one of the two."""
    for entry in TRAINERS:
        assert [name for name in entry.settings if name in SETTINGS] == []
        assert all(takes(entry.framework, name) for name in entry.settings)
    assert takes("verl", "actor_rollout_ref.actor.ppo_epochs")
    assert not takes("verl", "learning_rate")


def test_the_page_explains_every_kind_of_lag() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for lag in LAGS:
        assert f"| `{lag}` | " in text


@each_case(
    ("momentum", "pattern", "share"),
    [
        (0.0, [0, 1, 2, 2], 0.948),
        (0.0, [*range(9), *[8] * 6], 0.961),
        (0.5, [*range(9), *[8] * 6], 0.990),
        (0.9, [0, 1, 2, 2], 1.665),
    ],
)
def test_a_bound_is_nearly_the_worst_lag(momentum: float, pattern: list[int], share: float) -> None:
    """Lags that change in turn, by the product of single updates, over a fixed lag at their
    largest: about 5 % lower at worst here.
    """

    def radius(force: float) -> float:
        size = max(pattern) + 2
        whole = np.eye(size)
        for lag in pattern:
            update = np.diag(np.ones(size - 2), -1) if size > 2 else np.zeros((size - 1, size - 1))
            matrix = np.zeros((size, size))
            matrix[:-1, :-1] = update
            matrix[0, 0], matrix[0, -1], matrix[-1, -1] = 1.0, momentum, momentum
            matrix[0, lag] -= force
            matrix[-1, lag] -= force
            whole = matrix @ whole
        return float(np.abs(np.linalg.eigvals(whole)).max())

    bound = float(threshold("fixed", momentum, max(pattern)))
    forces = bound * np.linspace(0.5, 2, 1501)
    first = next(force for force in forces if radius(float(force)) > 1 + 1e-9)
    assert first / bound == pytest.approx(share, abs=2e-3)


def test_how_a_lag_follows_is_said_in_numbers() -> None:
    assert (
        lag_of_trainer("slime", {"num_steps_per_rollout": 4}).notes[-1]
        == "4 updates a generation, their importance ratio clipped: lags 0 to 3."
    )
    assert [
        lag_of_trainer("prime-rl", {"max_off_policy_steps": bound}).is_bound for bound in (0, 8)
    ] == [False, True]
    notes = lag_of_trainer("nemo-rl", NEMO | {"max_trajectory_age_steps": 2}).notes
    assert notes[0].startswith("Settings: max_trajectory_age_steps 2, num_prompts_per_step 32, ")
    assert notes[-1].startswith("Rollouts are at most 11 updates old; ")


@each_case(
    ("mode", "name"),
    [
        ("separate_async", "verl_separate_async"),
        ("zzz", "verl"),
        ("off", "verl"),
        (" YES", "verl_fully_async"),
    ],
)
def test_a_switch_selects_the_trainer_that_it_names(mode: str, name: str) -> None:
    assert rule_of_trainer("verl", {"trainer_mode": mode}).name == name
