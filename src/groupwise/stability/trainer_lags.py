r"""From a trainer's own settings to the lag between the policy that sampled a rollout and the one it updates.

Every entry of `TRAINER_LAGS` counts in optimiser updates. A bound on staleness becomes a fixed lag at the bound, nearly the worst case.
What a trainer needs and was not told is asked for. No threshold is computed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from groupwise.errors import InvalidArgumentError
from groupwise.stability.trainer_rules import RULES, TrainerLag
from groupwise.stability.trainer_settings import Settings, by_leaf

Evidence = Literal["ran", "read", "documentation", "second-hand"]
__all__ = ["KL_SETTINGS", "RATIO_SETTINGS", "TRAINER_LAGS", "TrainerLag", "TrainerRule", "lag_of_trainer", "rule_of_trainer", "takes"]


@dataclass(frozen=True, slots=True)
class TrainerRule:
    """How one trainer's settings tell its lag."""

    name: str  # of the entry
    framework: str  # the name that a run's settings carry
    title: str  # as people call it
    # settings whose presence says that it is this trainer of the framework; none for the framework's usual one
    marks: tuple[str, ...]
    switches: tuple[str, ...]  # settings that say outright whether it is this trainer, by yes, no, or its own name
    needs: tuple[str, ...]  # settings without which nothing follows
    optional: tuple[str, ...]  # further settings that are read
    lag: str  # what it comes to, in a phrase
    evidence: Evidence  # the source of the rule: ran, read (its source), documentation, or second-hand
    version: str  # that was looked at

    @property
    def settings(self) -> tuple[str, ...]:
        """Every setting that is read."""
        return tuple(dict.fromkeys((*self.marks, *self.switches, *self.needs, *self.optional)))


def lag_of_trainer(framework: str, settings: Mapping[str, Any]) -> TrainerLag:
    """Return the lag that a trainer's settings amount to.

    Source: the sources and the documentation of the trainers; docs/lags.md says which was read in which version.

    Example:
        >>> found = lag_of_trainer("trl", {"num_iterations": 4, "steps_per_generation": 8, "gradient_accumulation_steps": 4})
        >>> found.kind, found.refresh_interval, found.importance_ratio
        ('refresh', 8, 'clipped')
    """
    given = by_leaf(settings)
    entry = rule_of_trainer(framework, given)
    missing = [name for name in entry.needs if given.get(name) is None]
    if missing:
        raise InvalidArgumentError(
            f"expected {' and '.join(missing)} for {entry.title}, got no value: give "
            f"{'it' if len(missing) == 1 else 'each'} as --set NAME=VALUE"
        )
    return RULES[entry.name](Settings(entry.title, given))


def takes(framework: str, name: str) -> bool:
    """Say whether a setting is one that tells a trainer's lag.

    Example:
        >>> takes("verl", "actor_rollout_ref.actor.ppo_epochs"), takes("verl", "learning_rate")
        (True, False)
    """
    leaf = next(iter(by_leaf({name: None})))
    return any(leaf in entry.settings for entry in _family(framework))


def rule_of_trainer(framework: str, settings: Mapping[str, Any]) -> TrainerRule:
    """Return the entry for a framework: the one whose marks are among the settings, else its usual one.

    Example:
        >>> rule_of_trainer("TRL", {"max_staleness": 4}).name
        'trl_async'
    """
    family = _family(framework)
    given = by_leaf(settings)
    marked = [entry for entry in family if _selected(entry, given)]
    return (marked or family)[0]


def _family(framework: str) -> list[TrainerRule]:
    """The entries of a framework, or the one that was named."""
    name = framework.strip().lower().replace("-", "_").replace(" ", "_")
    name = {"unsloth": "trl", "primerl": "prime_rl", "nemo": "nemo_rl", "nemorl": "nemo_rl"}.get(name, name)
    exact = [entry for entry in TRAINER_LAGS if entry.name == name and entry.framework != name]
    family = exact or [entry for entry in TRAINER_LAGS if entry.framework == name]
    if not family:
        known = ", ".join(dict.fromkeys(entry.framework for entry in TRAINER_LAGS))
        raise InvalidArgumentError(
            f"expected a trainer, got {framework[:60]!r}: use one of {known}, or give --lag-kind and --refresh-interval"
        )
    return family


def _selected(entry: TrainerRule, given: Mapping[str, Any]) -> bool:
    """Whether settings select an entry that is not its framework's usual one: by a switch where there is one, else by a mark."""
    for switch in entry.switches:
        if given.get(switch) is not None:
            value = str(given[switch]).strip().lower()
            return value in {"true", "yes", "1", "on"} or f"{entry.framework}_{value}" == entry.name
    return any(given.get(mark) is not None for mark in entry.marks)


RATIO_SETTINGS = frozenset({"bypass_mode", "rollout_is", "use_tis", "use_importance_sampling_correction"})
"""Settings that tell the importance ratio, and nothing else."""
_VERL_KL = ("use_kl_in_reward", "use_kl_loss")
KL_SETTINGS = frozenset({*_VERL_KL, "beta", "init_kl_coef", "kl_coef", "reference_policy_kl_penalty", "kl_ctl"})
"""Settings that tell where the KL term is, and nothing else."""
_OPENRLHF = ("rollout_batch_size", "n_samples_per_prompt", "train_batch_size", "max_epochs")
_NEMO = ("num_prompts_per_step", "num_generations_per_prompt", "train_global_batch_size")

TRAINER_LAGS: tuple[TrainerRule, ...] = (
    TrainerRule(
        "trl",
        "trl",
        "TRL's GRPOTrainer",
        (),
        (),
        ("num_iterations", "steps_per_generation", "gradient_accumulation_steps"),
        ("beta",),
        "refresh, R = num_iterations x steps_per_generation / gradient_accumulation_steps; none where that is at most 1",
        "read",
        "1.16.0",
    ),
    TrainerRule(
        "trl_async",
        "trl",
        "TRL's AsyncGRPOTrainer",
        ("max_staleness", "weight_sync_steps"),
        (),
        ("max_staleness", "weight_sync_steps"),
        (),
        "fixed at the bound, (max_staleness + 1) x weight_sync_steps - 1",
        "read",
        "1.16.0",
    ),
    TrainerRule(
        "verl",
        "verl",
        "verl",
        (),
        (),
        ("train_batch_size", "ppo_mini_batch_size", "ppo_epochs"),
        _VERL_KL,
        "refresh, R = ppo_epochs x train_batch_size / ppo_mini_batch_size",
        "read",
        "0.9.1",
    ),
    TrainerRule(
        "verl_fully_async",
        "verl",
        "verl's fully asynchronous trainer",
        ("staleness_threshold", "trigger_parameter_sync_step"),
        ("trainer_mode",),
        ("staleness_threshold", "trigger_parameter_sync_step", "require_batches", "ppo_epochs"),
        ("bypass_mode", "rollout_is", *_VERL_KL),
        "R = trigger_parameter_sync_step x require_batches x ppo_epochs: refresh at staleness_threshold 0, async at 1, "
        "else fixed at the bound, with the mixture",
        "documentation",
        "0.9.1",
    ),
    TrainerRule(
        "verl_separate_async",
        "verl",
        "verl's separate asynchronous trainer",
        ("max_off_policy_threshold", "parameter_sync_step"),
        ("trainer_mode",),
        ("max_off_policy_threshold", "parameter_sync_step", "ppo_epochs"),
        ("bypass_mode", "rollout_is", *_VERL_KL),
        "fixed at the bound, max_off_policy_threshold x parameter_sync_step x ppo_epochs - 1",
        "read",
        "0.9.1",
    ),
    TrainerRule(
        "prime_rl",
        "prime_rl",
        "prime-rl",
        (),
        (),
        ("max_off_policy_steps",),
        (),
        "fixed at the bound, max_off_policy_steps",
        "read",
        "0.8",
    ),
    TrainerRule(
        "openrlhf",
        "openrlhf",
        "OpenRLHF",
        (),
        (),
        _OPENRLHF,
        ("use_kl_loss", "init_kl_coef"),
        "refresh, R = max_epochs x rollout_batch_size x n_samples_per_prompt / train_batch_size",
        "second-hand",
        "0.11",
    ),
    TrainerRule(
        "openrlhf_async",
        "openrlhf",
        "OpenRLHF, asynchronous",
        ("async_queue_size",),
        ("async_enable", "async_train"),
        ("async_queue_size", *_OPENRLHF),
        ("use_kl_loss", "init_kl_coef"),
        "async with R as above at async_queue_size 1, else fixed at the bound",
        "read",
        "0.11",
    ),
    TrainerRule(
        "slime",
        "slime",
        "slime",
        (),
        (),
        ("num_steps_per_rollout",),
        ("kl_coef", "use_kl_loss"),
        "refresh, R = num_steps_per_rollout",
        "read",
        "0.3",
    ),
    TrainerRule(
        "slime_async",
        "slime",
        "slime's train_async.py",
        ("update_weights_interval",),
        (),
        ("num_steps_per_rollout", "update_weights_interval"),
        ("use_tis", "kl_coef", "use_kl_loss"),
        "async, R = num_steps_per_rollout, at update_weights_interval 1, else fixed at the bound, with the mixture",
        "read",
        "0.3",
    ),
    TrainerRule(
        "nemo_rl",
        "nemo_rl",
        "NeMo-RL",
        (),
        (),
        _NEMO,
        ("reference_policy_kl_penalty",),
        "refresh, R = num_prompts_per_step x num_generations_per_prompt / train_global_batch_size",
        "second-hand",
        "0.7",
    ),
    TrainerRule(
        "nemo_rl_async",
        "nemo_rl",
        "NeMo-RL, asynchronous",
        ("max_trajectory_age_steps",),
        ("async_grpo_enabled",),
        ("max_trajectory_age_steps", *_NEMO),
        ("use_importance_sampling_correction", "reference_policy_kl_penalty"),
        "async with R as above at max_trajectory_age_steps 1, else fixed at the bound",
        "documentation",
        "0.7",
    ),
    TrainerRule(
        "areal",
        "areal",
        "AReaL",
        (),
        (),
        ("max_head_offpolicyness", "ppo_n_minibatches"),
        ("kl_ctl",),
        "refresh, R = ppo_n_minibatches, at max_head_offpolicyness 0, else fixed at the bound",
        "documentation",
        "1.0",
    ),
)
