r"""From a trainer's own settings to the lag between the policy that sampled a rollout and the one
it updates.

`TRAINERS` is the table; every lag counts in optimiser updates. A bound on staleness becomes a fixed
lag at the bound, which is nearly the worst: lags that change below the bound can be about 5 % less
stable. What a trainer needs and was not given is asked for. No threshold is computed here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from groupwise.errors import InvalidArgumentError
from groupwise.plain import Plain

Kind = Literal["none", "fixed", "refresh", "async"]
Ratio = Literal["none", "exact", "clipped", "unknown"]
KlTerm = Literal["none", "reward", "loss", "unknown"]
Evidence = Literal["ran", "read", "documentation", "second-hand"]
_YES, _NO = {"true", "yes", "1", "on"}, {"false", "no", "0", "off", "none", "null"}
_LONGEST_WINDOW = 100_000
_OPENRLHF = ("rollout_batch_size", "n_samples_per_prompt")
_NEMO = ("num_prompts_per_step", "num_generations_per_prompt")

# Two-part names whose last part alone says nothing.
_PAIRS = {
    ("train", "batch_size"): "train_batch_size",
    ("rollout", "batch_size"): "rollout_batch_size",
    ("kl", "init_coef"): "init_kl_coef",
    ("kl", "use_loss"): "use_kl_loss",
    ("async_grpo", "enabled"): "async_grpo_enabled",
}


def by_leaf(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings under the last part of their paths, with underscores."""
    leaves: dict[str, Any] = {}
    for path, value in settings.items():
        parts = [part.strip("- ").replace("-", "_").lower() for part in re.split(r"[./]", path)]
        name = _PAIRS.get((parts[-2], parts[-1]), parts[-1]) if len(parts) > 1 else parts[-1]
        if name in leaves and str(leaves[name]) != str(value):
            raise InvalidArgumentError(
                f"expected one value of {name[:60]}, got {leaves[name]!r} and {value!r}: give it "
                "once"
            )
        leaves[name] = value
    return leaves


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one trainer, each taken in its own type."""

    title: str  # of the trainer, for messages
    given: Mapping[str, Any]  # name -> value

    def count(self, name: str, *, least: int = 1) -> int:
        """Return a setting that is there as a whole number."""
        value = self.number(name)
        if value is None or value != int(value) or not least <= value < 1e6:
            raise self._refusal(name, f"a whole number of at least {least}")
        return int(value)

    def number(self, name: str) -> float | None:
        """Return a setting as a number of at least 0, or None where it is not given."""
        value = self.given.get(name)
        if value is None:
            return None
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not (math.isfinite(number) and number >= 0):
            raise self._refusal(name, "a number of at least 0")
        return number

    def flag(self, name: str) -> bool | None:
        """Return a setting as yes or no, or None where it is not given."""
        spelled = self.word(name)
        if spelled and spelled not in _YES:
            raise self._refusal(name, "true or false")
        return None if spelled is None else bool(spelled)

    def word(self, name: str) -> str | None:
        """Return a setting as a word, "" where it says no or null, or None where it is not
        given.
        """
        value = self.given.get(name)
        spelled = str(value).strip().lower()
        return None if value is None else "" if spelled in _NO else spelled

    def _refusal(self, name: str, expected: str) -> InvalidArgumentError:
        """The error for a value outside its domain."""
        return InvalidArgumentError(
            f"expected {expected} for {name} of {self.title}, got "
            f"{str(self.given.get(name))[:60]!r}"
        )


@dataclass(frozen=True, slots=True)
class TrainerLag(Plain):
    """The lag of one run."""

    KEYS = (
        *("trainer", "lag=kind", "refresh_interval", "worst_case", "importance_ratio", "kl_term"),
        *("said=reasons", "asked=unknown_settings"),
    )

    trainer: str  # entry of `TRAINERS`
    kind: Kind
    refresh_interval: int  # R in updates; of a fixed lag the lag itself
    importance_ratio: Ratio  # what the loss does about the lag
    # where the KL penalty is: in the reward it is as stale as the rollouts, in the loss current
    kl_term: KlTerm
    reasons: tuple[str, ...]  # how it follows, in sentences
    unknown_settings: tuple[str, ...] = ()  # those that would change the answer
    # whether the settings only bound the lag; the kind is then that of the bound, nearly the worst
    # case
    worst_case: bool = False


@dataclass(frozen=True, slots=True)
class _Age:
    """How old the rollouts of an update are, and how that follows."""

    kind: Kind
    refresh_interval: int
    reasons: tuple[str, ...]
    worst_case: bool = False


def _block(updates: int, *reasons: str) -> _Age:
    """R updates on one generation."""
    if updates == 1:
        return _Age("none", 1, (*reasons, "One update a generation: on-policy."))
    more = (
        f"{updates} updates a generation, their importance ratio clipped: lags 0 to {updates - 1}."
    )
    return _Age("refresh", updates, (*reasons, more))


def _bound(lag: int, *reasons: str) -> _Age:
    """A lag whose largest value alone is in the settings."""
    if lag == 0:
        return _Age("none", 1, (*reasons, "The bound is 0: on-policy."))
    more = (
        f"Rollouts are at most {lag} updates old; how old they are is not in the settings. All of "
        "them at the bound is nearly the worst: lags that change below it can have a threshold "
        "about 5 % lower."
    )
    return _Age("fixed", lag, (*reasons, more), worst_case=True)


def _trl(settings: Settings) -> _Age:
    """TRL's GRPOTrainer: generates every steps_per_generation x num_iterations micro-steps; an
    update takes accumulation of them.
    """
    iterations, steps = settings.count("num_iterations"), settings.count("steps_per_generation")
    accumulation = settings.count("gradient_accumulation_steps")
    every = iterations * steps
    # Micro-step m belongs to update m // accumulation; a generation starts at best at the beginning
    # of one, at worst this far into it.
    into = accumulation - math.gcd(every, accumulation)
    updates = 1 + (into + every - 1) // accumulation
    how = (
        f"Settings: num_iterations {iterations} x steps_per_generation {steps} / "
        f"gradient_accumulation_steps {accumulation}."
    )
    reasons = [how]
    if every % accumulation and accumulation % every:
        reasons.append(
            f"Generations and updates do not end together: the lag of at most {updates - 1} is "
            f"taken as that of {updates} updates."
        )
    return _block(updates, *reasons)


def _trl_async(settings: Settings) -> _Age:
    """TRL's AsyncGRPOTrainer: drops samples older than max_staleness synchronisations as they
    leave the queue.
    """
    staleness, spacing = (
        settings.count("max_staleness", least=0),
        settings.count("weight_sync_steps"),
    )
    how = (
        f"Settings: max_staleness {staleness} synchronisations of weight_sync_steps {spacing}, and "
        f"{spacing - 1} updates at most since."
    )
    return _bound(
        (staleness + 1) * spacing - 1, how, "The ratio is to the sampling policy, and clipped."
    )


def _updates(settings: Settings, *factors: str, batch: str, epochs: str = "") -> tuple[int, str]:
    """Updates a generation, and how they follow: epochs x mini-batches of so many samples."""
    count = {name: settings.count(name) for name in (*([epochs] if epochs else []), *factors)}
    each = settings.count(batch)
    how = (
        f"Settings: {' x '.join(f'{name} {value}' for name, value in count.items())} / {batch} "
        f"{each}."
    )
    return max(
        1, count.get(epochs, 1) * -(-math.prod(count[name] for name in factors) // each)
    ), how


def _verl(settings: Settings) -> _Age:
    """Verl, synchronous: epochs x mini-batches of prompts."""
    batch, mini = settings.count("train_batch_size"), settings.count("ppo_mini_batch_size")
    if batch < mini:
        raise InvalidArgumentError(
            f"expected a ppo_mini_batch_size of at most train_batch_size, got {mini} of {batch}: "
            "both count prompts"
        )
    return _block(
        *_updates(settings, "train_batch_size", batch="ppo_mini_batch_size", epochs="ppo_epochs")
    )


def _verl_fully_async(settings: Settings) -> _Age:
    """Verl's fully asynchronous trainer: the rollouter may run staleness_threshold windows ahead
    of the synchronisation.
    """
    spacing, ahead = (
        settings.count("trigger_parameter_sync_step"),
        settings.number("staleness_threshold") or 0.0,
    )
    batches, epochs = settings.count("require_batches"), settings.count("ppo_epochs")
    window = spacing * batches * epochs
    how = (
        f"A window of trigger_parameter_sync_step {spacing} x require_batches {batches} x "
        f"ppo_epochs {epochs} = {window} updates."
    )
    if ahead == 0:
        return _block(window, how, "staleness_threshold 0: nothing is generated ahead.")
    if window * (1 + ahead) > _LONGEST_WINDOW:
        raise InvalidArgumentError(
            f"expected at most {_LONGEST_WINDOW} updates between two synchronisations, got "
            f"{window * (1 + ahead):g}"
        )
    lags = [update + window * math.ceil(ahead - update / window) for update in range(window)]
    more = (
        f"The queue may hold {ahead:g} windows more: lags of {min(lags)} to {max(lags)} updates "
        "where generation is fast enough."
    )
    if ahead == 1:
        return _Age("async", window, (how, more, "One window ahead: double-buffered."))
    return _bound(max(lags), how, more)


def _verl_separate_async(settings: Settings) -> _Age:
    """Verl's separate asynchronous trainer: a trajectory may span max_off_policy_threshold
    versions.
    """
    versions, spacing = (
        settings.count("max_off_policy_threshold"),
        settings.count("parameter_sync_step"),
    )
    epochs = settings.count("ppo_epochs")
    how = (
        f"Settings: max_off_policy_threshold {versions} versions of parameter_sync_step {spacing} "
        f"x ppo_epochs {epochs} updates."
    )
    return _bound(versions * spacing * epochs - 1, how)


def _prime_rl(settings: Settings) -> _Age:
    """prime-rl: one update a step; episodes older than max_off_policy_steps are dropped."""
    lag = settings.count("max_off_policy_steps", least=0)
    how = f"Settings: max_off_policy_steps {lag}, one update a step."
    return _bound(lag, how, "Ratios to the sampling policy are masked beyond their thresholds.")


def _openrlhf(settings: Settings) -> _Age:
    """OpenRLHF, synchronous."""
    return _block(*_updates(settings, *_OPENRLHF, epochs="max_epochs", batch="train_batch_size"))


def _openrlhf_async(settings: Settings) -> _Age:
    """OpenRLHF, asynchronous: a queue of whole generations."""
    updates, how = _updates(settings, *_OPENRLHF, epochs="max_epochs", batch="train_batch_size")
    queue = settings.count("async_queue_size")
    ratio = (
        "The ratio is to the policy at the start of a batch: the age of the rollouts before that "
        "is not corrected."
    )
    if queue == 1:
        return _Age(
            "async",
            updates,
            (
                how,
                ratio,
                "A queue of one: each generation is made while the one before it is trained on.",
            ),
        )
    more = f"At async_queue_size {queue} up to {queue} generations of {updates} updates ahead."
    return _bound(queue * updates + updates - 1, how, ratio, more)


def _slime(settings: Settings) -> _Age:
    """Slime's train.py."""
    updates = settings.count("num_steps_per_rollout")
    return _block(updates, f"Settings: num_steps_per_rollout {updates}.")


def _slime_async(settings: Settings) -> _Age:
    """Slime's train_async.py: the next rollout is generated while this one is trained on;
    weights go over every so many rollouts.
    """
    updates, spacing = (
        settings.count("num_steps_per_rollout"),
        settings.count("update_weights_interval"),
    )
    how = (
        f"Settings: num_steps_per_rollout {updates}, weights sent every update_weights_interval "
        f"{spacing} rollouts, one rollout ahead."
    )
    if spacing == 1:
        return _Age("async", updates, (how, "Double-buffered."))
    return _bound(updates * (spacing + 1) - 1, how)


def _nemo_rl(settings: Settings) -> _Age:
    """NeMo-RL, synchronous."""
    return _block(*_updates(settings, *_NEMO, batch="train_global_batch_size"))


def _nemo_rl_async(settings: Settings) -> _Age:
    """NeMo-RL, asynchronous: trajectories of at most max_trajectory_age_steps steps."""
    updates, how = _updates(settings, *_NEMO, batch="train_global_batch_size")
    age = settings.count("max_trajectory_age_steps", least=0)
    more = (
        f"At max_trajectory_age_steps {age} up to {age} steps, and up to {updates - 1} updates "
        "within one."
    )
    if age == 1:
        return _Age(
            "async", updates, (how, more, "At the bound it is double-buffered."), worst_case=True
        )
    return _bound(age * updates + updates - 1, how, more)


def _areal(settings: Settings) -> _Age:
    """AReaL: as many versions ahead as max_head_offpolicyness, each of ppo_n_minibatches
    updates.
    """
    ahead, updates = (
        settings.count("max_head_offpolicyness", least=0),
        settings.count("ppo_n_minibatches"),
    )
    how = (
        f"Settings: max_head_offpolicyness {ahead} versions of ppo_n_minibatches {updates} updates."
    )
    return _block(updates, how) if ahead == 0 else _bound(ahead * updates + updates - 1, how)


@dataclass(frozen=True, slots=True)
class TermRule:
    """How settings give the place of a term: that of the first setting that is on; unknown where
    none is and one was not given.
    """

    # setting, how it is read, and its place
    choices: tuple[tuple[str, Callable[[Settings, str], Any], str], ...] = ()
    otherwise: str = "none"  # where none is on
    # a setting that is needed, and switches the term off where it is 0
    weight: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The settings that are read."""
        return (*(name for name, _, _ in self.choices), *([self.weight] if self.weight else []))

    def place(self, settings: Settings) -> tuple[Any, tuple[str, ...]]:
        """Return the place, and the settings without which it is unknown."""
        weight = settings.number(self.weight) if self.weight else 1.0
        if weight == 0:
            return "none", ()
        values = [(name, read(settings, name), place) for name, read, place in self.choices]
        missing = tuple(name for name, value, _ in values if value is None)
        if self.weight and weight is None:
            return "unknown", (self.weight, *missing)
        for _, value, place in values:
            if value:
                return place, ()
        return ("unknown" if missing else self.otherwise), missing


_NONE, _LOSS, _CLIPPED = TermRule(), TermRule(otherwise="loss"), TermRule(otherwise="clipped")
_VERL_KL = TermRule(
    (("use_kl_in_reward", Settings.flag, "reward"), ("use_kl_loss", Settings.flag, "loss"))
)
# The ratio of verl reaches back to the sampling policy with bypass_mode, or with rollout_is.
_VERL_RATIO = TermRule(
    (("bypass_mode", Settings.flag, "clipped"), ("rollout_is", Settings.word, "clipped"))
)
_OPENRLHF_KL = TermRule(
    (("use_kl_loss", Settings.flag, "loss"),), otherwise="reward", weight="init_kl_coef"
)
_SLIME_KL = TermRule(
    (("kl_coef", Settings.number, "reward"), ("use_kl_loss", Settings.flag, "loss"))
)
_NEMO_KL = TermRule((("reference_policy_kl_penalty", Settings.number, "loss"),))


@dataclass(frozen=True, slots=True)
class TrainerRule:
    """How one trainer's settings give its lag."""

    name: str
    framework: str  # the name that a run's settings carry
    title: str  # as people call it
    age: Callable[[Settings], _Age]
    kl_term: TermRule
    # asked for where rollouts are older than their own generation; within one it is clipped
    ratio: TermRule
    lag: str  # what it comes to, in a phrase
    # the source of the rule: ran, read (its source), documentation, or second-hand
    evidence: Evidence
    version: str  # that was looked at
    needs: tuple[str, ...]  # settings without which nothing follows
    # settings whose presence says that it is this trainer of the framework; none for the
    # framework's usual one
    marks: tuple[str, ...] = ()
    # settings that say outright whether it is this trainer, by yes, no, or its own name
    switches: tuple[str, ...] = ()

    @property
    def settings(self) -> tuple[str, ...]:
        """Every setting that is read."""
        return tuple(
            dict.fromkeys(
                (*self.marks, *self.switches, *self.needs, *self.ratio.names, *self.kl_term.names)
            )
        )


TRAINERS: tuple[TrainerRule, ...] = (
    TrainerRule(
        "trl",
        "trl",
        "TRL's GRPOTrainer",
        _trl,
        TermRule((("beta", Settings.number, "loss"),)),
        _CLIPPED,
        (
            "refresh, R = num_iterations x steps_per_generation / gradient_accumulation_steps; "
            "none where that is at most 1"
        ),
        "read",
        "1.16.0",
        needs=("num_iterations", "steps_per_generation", "gradient_accumulation_steps"),
    ),
    TrainerRule(
        "trl_async",
        "trl",
        "TRL's AsyncGRPOTrainer",
        _trl_async,
        _NONE,
        _CLIPPED,
        "fixed at the bound, (max_staleness + 1) x weight_sync_steps - 1",
        "read",
        "1.16.0",
        needs=("max_staleness", "weight_sync_steps"),
        marks=("max_staleness", "weight_sync_steps"),
    ),
    TrainerRule(
        "verl",
        "verl",
        "verl",
        _verl,
        _VERL_KL,
        _CLIPPED,
        "refresh, R = ppo_epochs x train_batch_size / ppo_mini_batch_size",
        "read",
        "0.9.1",
        needs=("train_batch_size", "ppo_mini_batch_size", "ppo_epochs"),
    ),
    TrainerRule(
        "verl_fully_async",
        "verl",
        "verl's fully asynchronous trainer",
        _verl_fully_async,
        _VERL_KL,
        _VERL_RATIO,
        "R = trigger_parameter_sync_step x require_batches x ppo_epochs: refresh at "
        "staleness_threshold 0, async at 1, else fixed at the bound",
        "documentation",
        "0.9.1",
        needs=(
            "staleness_threshold",
            "trigger_parameter_sync_step",
            "require_batches",
            "ppo_epochs",
        ),
        marks=("staleness_threshold", "trigger_parameter_sync_step"),
        switches=("trainer_mode",),
    ),
    TrainerRule(
        "verl_separate_async",
        "verl",
        "verl's separate asynchronous trainer",
        _verl_separate_async,
        _VERL_KL,
        _VERL_RATIO,
        "fixed at the bound, max_off_policy_threshold x parameter_sync_step x ppo_epochs - 1",
        "read",
        "0.9.1",
        needs=("max_off_policy_threshold", "parameter_sync_step", "ppo_epochs"),
        marks=("max_off_policy_threshold", "parameter_sync_step"),
        switches=("trainer_mode",),
    ),
    TrainerRule(
        "prime_rl",
        "prime_rl",
        "prime-rl",
        _prime_rl,
        _LOSS,
        _CLIPPED,
        "fixed at the bound, max_off_policy_steps",
        "read",
        "0.8",
        needs=("max_off_policy_steps",),
    ),
    TrainerRule(
        "openrlhf",
        "openrlhf",
        "OpenRLHF",
        _openrlhf,
        _OPENRLHF_KL,
        _CLIPPED,
        "refresh, R = max_epochs x rollout_batch_size x n_samples_per_prompt / train_batch_size",
        "second-hand",
        "0.11",
        needs=(*_OPENRLHF, "train_batch_size", "max_epochs"),
    ),
    TrainerRule(
        "openrlhf_async",
        "openrlhf",
        "OpenRLHF, asynchronous",
        _openrlhf_async,
        _OPENRLHF_KL,
        _NONE,
        "async with R as above at async_queue_size 1, else fixed at the bound",
        "read",
        "0.11",
        needs=("async_queue_size", *_OPENRLHF, "train_batch_size", "max_epochs"),
        marks=("async_queue_size",),
        switches=("async_enable", "async_train"),
    ),
    TrainerRule(
        "slime",
        "slime",
        "slime",
        _slime,
        _SLIME_KL,
        _CLIPPED,
        "refresh, R = num_steps_per_rollout",
        "read",
        "0.3",
        needs=("num_steps_per_rollout",),
    ),
    TrainerRule(
        "slime_async",
        "slime",
        "slime's train_async.py",
        _slime_async,
        _SLIME_KL,
        TermRule((("use_tis", Settings.flag, "clipped"),)),
        "async, R = num_steps_per_rollout, at update_weights_interval 1, else fixed at the bound",
        "read",
        "0.3",
        needs=("num_steps_per_rollout", "update_weights_interval"),
        marks=("update_weights_interval",),
    ),
    TrainerRule(
        "nemo_rl",
        "nemo_rl",
        "NeMo-RL",
        _nemo_rl,
        _NEMO_KL,
        _CLIPPED,
        "refresh, R = num_prompts_per_step x num_generations_per_prompt / train_global_batch_size",
        "second-hand",
        "0.7",
        needs=(*_NEMO, "train_global_batch_size"),
    ),
    TrainerRule(
        "nemo_rl_async",
        "nemo_rl",
        "NeMo-RL, asynchronous",
        _nemo_rl_async,
        _NEMO_KL,
        TermRule((("use_importance_sampling_correction", Settings.flag, "clipped"),)),
        "async with R as above at max_trajectory_age_steps 1, else fixed at the bound",
        "documentation",
        "0.7",
        needs=("max_trajectory_age_steps", *_NEMO, "train_global_batch_size"),
        marks=("max_trajectory_age_steps",),
        switches=("async_grpo_enabled",),
    ),
    TrainerRule(
        "areal",
        "areal",
        "AReaL",
        _areal,
        TermRule((("kl_ctl", Settings.number, "reward"),)),
        _CLIPPED,
        "refresh, R = ppo_n_minibatches, at max_head_offpolicyness 0, else fixed at the bound",
        "documentation",
        "1.0",
        needs=("max_head_offpolicyness", "ppo_n_minibatches"),
    ),
)


def lag_of_trainer(framework: str, settings: Mapping[str, Any]) -> TrainerLag:
    """Return the lag that a trainer's settings amount to.

    Source: the sources and the documentation of the trainers; docs/lags.md says which was read in
    which version.
    """
    given = by_leaf(settings)
    entry = rule_of_trainer(framework, given)
    missing = [name for name in entry.needs if given.get(name) is None]
    if missing:
        raise InvalidArgumentError(
            f"expected {' and '.join(missing)} for {entry.title}, got no value: give "
            f"{'it' if len(missing) == 1 else 'each'} as --set NAME=VALUE"
        )
    read = Settings(entry.title, given)
    age = entry.age(read)
    kl_term, unknown = entry.kl_term.place(read)
    # Nothing is to be corrected on-policy, and what is left within one generation the loss clips.
    within: Ratio = "clipped" if age.kind == "refresh" else "none"
    ratio, more = entry.ratio.place(read) if age.kind in {"fixed", "async"} else (within, ())
    return TrainerLag(
        entry.name,
        age.kind,
        age.refresh_interval,
        ratio,
        kl_term,
        age.reasons,
        (*unknown, *more),
        age.worst_case,
    )


def takes(framework: str, name: str) -> bool:
    """Return whether a setting is part of what gives a trainer's lag."""
    leaf = next(iter(by_leaf({name: None})))
    return any(leaf in entry.settings for entry in _family(framework))


def rule_of_trainer(framework: str, settings: Mapping[str, Any]) -> TrainerRule:
    """Return the entry for a framework: the one whose marks are among the settings, else its
    usual one.
    """
    family = _family(framework)
    given = by_leaf(settings)
    marked = [entry for entry in family if _selected(entry, given)]
    return (marked or family)[0]


def _family(framework: str) -> list[TrainerRule]:
    """The entries of a framework, or the one that was named."""
    name = framework.strip().lower().replace("-", "_").replace(" ", "_")
    name = {"unsloth": "trl", "primerl": "prime_rl", "nemo": "nemo_rl", "nemorl": "nemo_rl"}.get(
        name, name
    )
    exact = [entry for entry in TRAINERS if entry.name == name and entry.framework != name]
    family = exact or [entry for entry in TRAINERS if entry.framework == name]
    if not family:
        names = ", ".join(dict.fromkeys(entry.framework for entry in TRAINERS))
        raise InvalidArgumentError(
            f"expected a trainer, got {framework[:60]!r}: use one of {names}, or give "
            "--set lag_kind=KIND --set refresh_interval=R"
        )
    return family


def _selected(entry: TrainerRule, given: Mapping[str, Any]) -> bool:
    """Whether settings select an entry that is not its framework's usual one: by a switch where
    there is one, else by a mark.
    """
    for switch in entry.switches:
        if given.get(switch) is not None:
            value = str(given[switch]).strip().lower()
            return value in _YES or f"{entry.framework}_{value}" == entry.name
    return any(given.get(mark) is not None for mark in entry.marks)
