"""The rules of the trainers: how each one's settings tell the lag of its rollouts, counted in optimiser updates.

A bound on staleness becomes a fixed lag at the bound, which is nearly the worst: lags that change below the bound can be about 5 % less
stable. A known pattern that is none of the four kinds also gives its mixture. Which rule is whose is in `trainer_lags`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from groupwise.errors import InvalidArgumentError
from groupwise.stability.trainer_settings import Settings

Kind = Literal["none", "fixed", "refresh", "async"]
Ratio = Literal["none", "exact", "clipped", "unknown"]
KlTerm = Literal["none", "reward", "loss", "unknown"]
_LONGEST_WINDOW, _LONGEST_MIXTURE = 100_000, 1_000


@dataclass(frozen=True, slots=True)
class TrainerLag:
    """The lag of one run."""

    trainer: str  # entry of the registry that told it
    kind: Kind  # none, fixed, refresh or async
    refresh_interval: int  # R in updates; of a fixed lag the lag itself
    importance_ratio: Ratio  # what the loss does about the lag: none, exact, clipped, or unknown
    kl_term: KlTerm  # where the KL penalty is: none, reward (as stale as the rollouts), loss (current), or unknown
    said: tuple[str, ...]  # how it follows, in sentences
    asked: tuple[str, ...] = ()  # settings that are unknown and change the answer
    # share of the lags 0, 1, ..., where their pattern is known and none of the four kinds; else empty
    weight_D: tuple[float, ...] = ()
    # whether the settings only bound the lag; the kind is then that of the bound, nearly the worst case
    worst_case: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "trainer": self.trainer,
            "lag": self.kind,
            "refresh_interval": self.refresh_interval,
            "weights": list(self.weight_D),
            "worst_case": self.worst_case,
            "importance_ratio": self.importance_ratio,
            "kl_term": self.kl_term,
            "said": list(self.said),
            "asked": list(self.asked),
        }


def _block(trainer: str, updates: int, *, kl: KlTerm, said: tuple[str, ...], asked: tuple[str, ...] = ()) -> TrainerLag:
    """The lag of R updates on one generation, whose ratio is clipped where there are several."""
    if updates == 1:
        return TrainerLag(trainer, "none", 1, "none", kl, (*said, "One update a generation: on-policy."), asked)
    more = f"{updates} updates a generation, their importance ratio clipped: lags 0 to {updates - 1}."
    return TrainerLag(trainer, "refresh", updates, "clipped", kl, (*said, more), asked)


def _bound(trainer: str, lag: int, *, ratio: Ratio, kl: KlTerm, said: tuple[str, ...], asked: tuple[str, ...] = ()) -> TrainerLag:
    """A lag of which only the largest value is known."""
    if lag == 0:
        return TrainerLag(trainer, "none", 1, "none", kl, (*said, "The bound is 0: on-policy."), asked)
    more = (
        f"Rollouts are at most {lag} updates old; how old they are is not in the settings. All of them at the bound is nearly the worst: "
        "lags that change below it can have a threshold about 5 % lower."
    )
    return TrainerLag(trainer, "fixed", lag, ratio, kl, (*said, more), asked, worst_case=True)


def _kl_in_loss(settings: Settings, name: str) -> tuple[KlTerm, tuple[str, ...]]:
    """Where the KL term is, if its weight alone decides; and what to ask."""
    weight = settings.number(name)
    return ("unknown", (name,)) if weight is None else ("loss" if weight > 0 else "none", ())


def _trl(settings: Settings) -> TrainerLag:
    """TRL's GRPOTrainer: generates every steps_per_generation x num_iterations micro-steps; an update takes accumulation of them."""
    iterations, steps = settings.count("num_iterations"), settings.count("steps_per_generation")
    accumulation = settings.count("gradient_accumulation_steps")
    every = iterations * steps
    # Micro-step m belongs to update m // accumulation; a generation starts at best at the beginning of one, at worst this far into it.
    into = accumulation - math.gcd(every, accumulation)
    updates = 1 + (into + every - 1) // accumulation
    said: tuple[str, ...] = (
        f"Settings: num_iterations {iterations} x steps_per_generation {steps} / gradient_accumulation_steps {accumulation}.",
    )
    if every % accumulation and accumulation % every:
        said += (f"Generations and updates do not end together: the lag of at most {updates - 1} is taken as that of {updates} updates.",)
    kl, asked = _kl_in_loss(settings, "beta")
    return _block("trl", updates, kl=kl, said=said, asked=asked)


def _trl_async(settings: Settings) -> TrainerLag:
    """TRL's AsyncGRPOTrainer: drops samples older than max_staleness synchronisations as they leave the queue."""
    staleness, spacing = settings.count("max_staleness", least=0), settings.count("weight_sync_steps")
    lag = staleness * spacing + spacing - 1
    said = (
        f"Settings: max_staleness {staleness} synchronisations of weight_sync_steps {spacing}, and {spacing - 1} updates at most since.",
    )
    return _bound("trl_async", lag, ratio="clipped", kl="none", said=(*said, "The ratio is to the sampling policy, and clipped."))


def _verl_updates(settings: Settings) -> tuple[int, str]:
    """Updates a step of verl: epochs x mini-batches."""
    batch, mini, epochs = settings.count("train_batch_size"), settings.count("ppo_mini_batch_size"), settings.count("ppo_epochs")
    if batch < mini:
        raise InvalidArgumentError(f"expected a ppo_mini_batch_size of at most train_batch_size, got {mini} of {batch}: both count prompts")
    return epochs * -(-batch // mini), f"Settings: ppo_epochs {epochs} x train_batch_size {batch} / ppo_mini_batch_size {mini}."


def _verl_kl(settings: Settings) -> tuple[KlTerm, tuple[str, ...]]:
    """Verl's KL term: in the reward or in the loss."""
    reward, loss = settings.flag("use_kl_in_reward"), settings.flag("use_kl_loss")
    if reward:
        return "reward", ()
    if loss:
        return "loss", ()
    asked = tuple(name for name, value in (("use_kl_in_reward", reward), ("use_kl_loss", loss)) if value is None)
    return ("unknown" if asked else "none"), asked


def _verl_ratio(settings: Settings) -> tuple[Ratio, tuple[str, ...]]:
    """Whether verl's ratio reaches back to the sampling policy: with bypass_mode, or with rollout_is; and what to ask."""
    bypass, rollout_is = settings.flag("bypass_mode"), settings.word("rollout_is")
    if bypass or rollout_is:
        return "clipped", ()
    asked = tuple(name for name, value in (("bypass_mode", bypass), ("rollout_is", rollout_is)) if value is None)
    return ("unknown" if asked else "none"), asked


def _verl(settings: Settings) -> TrainerLag:
    """Verl, synchronous."""
    updates, how = _verl_updates(settings)
    kl, asked = _verl_kl(settings)
    return _block("verl", updates, kl=kl, said=(how,), asked=asked)


def _verl_fully_async(settings: Settings) -> TrainerLag:
    """Verl's fully asynchronous trainer: the rollouter may run staleness_threshold windows ahead of the synchronisation."""
    spacing, ahead = settings.count("trigger_parameter_sync_step"), settings.number("staleness_threshold") or 0.0
    batches, epochs = settings.count("require_batches"), settings.count("ppo_epochs")
    window = spacing * batches * epochs
    kl, asked = _verl_kl(settings)
    said: tuple[str, ...] = (
        f"A window of trigger_parameter_sync_step {spacing} x require_batches {batches} x ppo_epochs {epochs} = {window} updates.",
    )
    if ahead == 0:
        return _block("verl_fully_async", window, kl=kl, said=(*said, "staleness_threshold 0: nothing is generated ahead."), asked=asked)
    if window * (1 + ahead) > _LONGEST_WINDOW:
        raise InvalidArgumentError(f"expected at most {_LONGEST_WINDOW} updates between two synchronisations, got {window * (1 + ahead):g}")
    lags = [update + window * math.ceil(ahead - update / window) for update in range(window)]
    ratio, more = _verl_ratio(settings)
    asked = (*asked, *more)
    said += (f"The queue may hold {ahead:g} windows more: lags of {min(lags)} to {max(lags)} updates where generation is fast enough.",)
    if ahead == 1:
        return TrainerLag("verl_fully_async", "async", window, ratio, kl, (*said, "One window ahead: double-buffered."), asked)
    found = _bound("verl_fully_async", max(lags), ratio=ratio, kl=kl, said=said, asked=asked)
    return _with_weights(found, lags)


def _verl_separate_async(settings: Settings) -> TrainerLag:
    """Verl's separate asynchronous trainer: a trajectory may span max_off_policy_threshold versions."""
    versions, spacing = settings.count("max_off_policy_threshold"), settings.count("parameter_sync_step")
    epochs = settings.count("ppo_epochs")
    kl, asked = _verl_kl(settings)
    said = (f"Settings: max_off_policy_threshold {versions} versions of parameter_sync_step {spacing} x ppo_epochs {epochs} updates.",)
    ratio, more = _verl_ratio(settings)
    return _bound("verl_separate_async", versions * spacing * epochs - 1, ratio=ratio, kl=kl, said=said, asked=(*asked, *more))


def _prime_rl(settings: Settings) -> TrainerLag:
    """prime-rl: one update a step; episodes older than max_off_policy_steps are dropped."""
    lag = settings.count("max_off_policy_steps", least=0)
    said = (
        f"Settings: max_off_policy_steps {lag}, one update a step.",
        "Ratios to the sampling policy are masked beyond their thresholds.",
    )
    return _bound("prime_rl", lag, ratio="clipped", kl="loss", said=said)


def _openrlhf_updates(settings: Settings) -> tuple[int, str]:
    """Updates a generation of OpenRLHF: epochs x mini-batches of samples."""
    prompts, samples = settings.count("rollout_batch_size"), settings.count("n_samples_per_prompt")
    batch, epochs = settings.count("train_batch_size"), settings.count("max_epochs")
    how = f"Settings: max_epochs {epochs} x rollout_batch_size {prompts} x n_samples_per_prompt {samples} / train_batch_size {batch}."
    return max(1, epochs * -(-prompts * samples // batch)), how


def _openrlhf_kl(settings: Settings) -> tuple[KlTerm, tuple[str, ...]]:
    """OpenRLHF's KL term: in the reward unless use_kl_loss."""
    weight, loss = settings.number("init_kl_coef"), settings.flag("use_kl_loss")
    if weight == 0:
        return "none", ()
    asked = tuple(name for name, value in (("init_kl_coef", weight), ("use_kl_loss", loss)) if value is None)
    return ("unknown", asked) if asked else ("loss" if loss else "reward", ())


def _openrlhf(settings: Settings) -> TrainerLag:
    """OpenRLHF, synchronous."""
    updates, how = _openrlhf_updates(settings)
    kl, asked = _openrlhf_kl(settings)
    return _block("openrlhf", updates, kl=kl, said=(how,), asked=asked)


def _openrlhf_async(settings: Settings) -> TrainerLag:
    """OpenRLHF, asynchronous: a queue of whole generations."""
    updates, how = _openrlhf_updates(settings)
    kl, asked = _openrlhf_kl(settings)
    queue = settings.count("async_queue_size")
    said: tuple[str, ...] = (
        how,
        "The ratio is to the policy at the start of a batch: the age of the rollouts before that is not corrected.",
    )
    if queue == 1:
        more = "A queue of one: each generation is made while the one before it is trained on."
        return TrainerLag("openrlhf_async", "async", updates, "none", kl, (*said, more), asked)
    said += (f"At async_queue_size {queue} up to {queue} generations of {updates} updates ahead.",)
    return _bound("openrlhf_async", queue * updates + updates - 1, ratio="none", kl=kl, said=said, asked=asked)


def _slime_kl(settings: Settings) -> tuple[KlTerm, tuple[str, ...]]:
    """Slime's KL term: kl_coef shapes the reward, use_kl_loss adds it to the loss."""
    shaping, loss = settings.number("kl_coef"), settings.flag("use_kl_loss")
    if shaping:
        return "reward", ()
    if loss:
        return "loss", ()
    asked = tuple(name for name, value in (("kl_coef", shaping), ("use_kl_loss", loss)) if value is None)
    return ("unknown" if asked else "none"), asked


def _slime(settings: Settings) -> TrainerLag:
    """Slime's train.py."""
    updates = settings.count("num_steps_per_rollout")
    kl, asked = _slime_kl(settings)
    return _block("slime", updates, kl=kl, said=(f"Settings: num_steps_per_rollout {updates}.",), asked=asked)


def _slime_async(settings: Settings) -> TrainerLag:
    """Slime's train_async.py: the next rollout is generated while this one is trained on; weights go over every so many rollouts."""
    updates, spacing = settings.count("num_steps_per_rollout"), settings.count("update_weights_interval")
    kl, asked = _slime_kl(settings)
    corrected = settings.flag("use_tis")
    ratio: Ratio = "unknown" if corrected is None else "clipped" if corrected else "none"
    asked = (*asked, "use_tis") if corrected is None else asked
    said = (
        f"Settings: num_steps_per_rollout {updates}, weights sent every update_weights_interval {spacing} rollouts, one rollout ahead.",
    )
    if spacing == 1:
        return TrainerLag("slime_async", "async", updates, ratio, kl, (*said, "Double-buffered."), asked)
    lags = [updates + update for update in range(updates * spacing)]
    return _with_weights(_bound("slime_async", max(lags), ratio=ratio, kl=kl, said=said, asked=asked), lags)


def _nemo_updates(settings: Settings) -> tuple[int, str]:
    """Updates a step of NeMo-RL: samples over the batch of one update."""
    prompts, samples = settings.count("num_prompts_per_step"), settings.count("num_generations_per_prompt")
    batch = settings.count("train_global_batch_size")
    how = f"Settings: num_prompts_per_step {prompts} x num_generations_per_prompt {samples} / train_global_batch_size {batch}."
    return max(1, -(-prompts * samples // batch)), how


def _nemo_rl(settings: Settings) -> TrainerLag:
    """NeMo-RL, synchronous."""
    updates, how = _nemo_updates(settings)
    kl, asked = _kl_in_loss(settings, "reference_policy_kl_penalty")
    return _block("nemo_rl", updates, kl=kl, said=(how,), asked=asked)


def _nemo_rl_async(settings: Settings) -> TrainerLag:
    """NeMo-RL, asynchronous: trajectories of at most max_trajectory_age_steps steps."""
    updates, how = _nemo_updates(settings)
    age = settings.count("max_trajectory_age_steps", least=0)
    kl, asked = _kl_in_loss(settings, "reference_policy_kl_penalty")
    corrected = settings.flag("use_importance_sampling_correction")
    ratio: Ratio = "unknown" if corrected is None else "clipped" if corrected else "none"
    asked = (*asked, "use_importance_sampling_correction") if corrected is None else asked
    said: tuple[str, ...] = (
        how,
        f"At max_trajectory_age_steps {age} up to {age} steps, and up to {updates - 1} updates within one.",
    )
    if age == 1:
        said += ("At the bound it is double-buffered.",)
        return TrainerLag("nemo_rl_async", "async", updates, ratio, kl, said, asked, worst_case=True)
    return _bound("nemo_rl_async", age * updates + updates - 1, ratio=ratio, kl=kl, said=said, asked=asked)


def _areal(settings: Settings) -> TrainerLag:
    """AReaL: as many versions ahead as max_head_offpolicyness, each of ppo_n_minibatches updates."""
    ahead, updates = settings.count("max_head_offpolicyness", least=0), settings.count("ppo_n_minibatches")
    kl, asked = _kl_in_loss(settings, "kl_ctl")
    kl = "reward" if kl == "loss" else kl
    said = (f"Settings: max_head_offpolicyness {ahead} versions of ppo_n_minibatches {updates} updates.",)
    if ahead == 0:
        return _block("areal", updates, kl=kl, said=said, asked=asked)
    return _bound("areal", ahead * updates + updates - 1, ratio="clipped", kl=kl, said=said, asked=asked)


def _with_weights(found: TrainerLag, lags: list[int]) -> TrainerLag:
    """Add the shares of lags whose pattern is known."""
    if max(lags) > _LONGEST_MIXTURE:
        return found
    weight = [0.0] * (max(lags) + 1)
    for lag in lags:
        weight[lag] += 1 / len(lags)
    more = "Where generation never falls behind, the lags follow a known pattern, whose mixture is given beside the fixed lag at the bound."
    return replace(found, weight_D=tuple(weight), said=(*found.said, more))


RULES: dict[str, Callable[[Settings], TrainerLag]] = {
    "trl": _trl,
    "trl_async": _trl_async,
    "verl": _verl,
    "verl_fully_async": _verl_fully_async,
    "verl_separate_async": _verl_separate_async,
    "prime_rl": _prime_rl,
    "openrlhf": _openrlhf,
    "openrlhf_async": _openrlhf_async,
    "slime": _slime,
    "slime_async": _slime_async,
    "nemo_rl": _nemo_rl,
    "nemo_rl_async": _nemo_rl_async,
    "areal": _areal,
}
