"""The settings of a training run: one frozen object that checks itself, with what each means in
units.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Literal, get_args

from groupwise.errors import InvalidArgumentError
from groupwise.parsing import JsonObject, JsonView
from groupwise.plain import Plain, frozen
from groupwise_lab.fields import KlPlace, LagName, check_fields, check_whole
from groupwise_lab.trainer.controller import ControllerRule

if TYPE_CHECKING:
    from groupwise.record.run import RunConfig

OptimizerName = Literal["sgd", "adam", "adamw"]
ScheduleName = Literal["constant", "linear", "cosine"]
RatioName = Literal["none", "token", "sequence", "sequence_mean"]
AggregationName = Literal["sum", "sequence_mean", "batch_token_mean"]
KlEstimator = Literal["k2", "k3"]
OrderName = Literal["independent", "epochs"]
PrecisionName = Literal["float32", "bfloat16"]
AdaptiveName = Literal["advise", "act"]

_MOST_LAG = 10_000
# Of each number: what it lies below, and whether it is above 0 or may be 0.
_NUMBERS: dict[str, tuple[float, bool]] = {
    **dict.fromkeys(("learning_rate", "epsilon", "clip_high", "gradient_clip"), (math.inf, True)),
    **dict.fromkeys(("weight_decay", "kl_weight"), (math.inf, False)),
    **dict.fromkeys(("momentum", "beta1", "beta2"), (1, False)),
    "clip": (1, True),
}
# The least of each whole number.
_WHOLES: dict[str, int] = {
    **dict.fromkeys(("group_size", "rollouts_per_step"), 2),
    **dict.fromkeys(
        ("steps", "refresh_interval", "prompt_pool", "micro_batch", "evaluation_problems"), 1
    ),
    **dict.fromkeys(("checkpoint_every", "checkpoints_kept"), 1),
    **dict.fromkeys(("ramp_steps", "seed", "evaluate_every", "rollouts_every"), 0),
}


def _checked_fields(kind: type, given: object, what: str) -> JsonObject:
    """Return the settings given, or refuse the first that the class does not have and name the
    nearest that it has.
    """
    if not isinstance(given, Mapping):
        raise InvalidArgumentError(
            f"expected a table with a value for every {what}; got {str(given)[:60]!r}"
        )
    names = [field.name for field in dataclasses.fields(kind)]
    for name in given:
        if name not in names:
            near = get_close_matches(str(name), names, 1)
            raise InvalidArgumentError(
                f"expected a {what}, got {str(name)[:60]!r}: "
                + (f"write {near[0]}" if near else f"use one of {', '.join(names)}")
            )
    return dict(given)


@frozen
class AdaptiveSettings:
    """How the group size follows the components that are measured while a run goes on; the
    rollouts of a step stay as many.
    """

    mode: AdaptiveName = "advise"  # advise (say what would be done, and change nothing) or act
    every: int = 25  # steps between measurements, the first before step 1
    prompts: int = (
        16  # of one measurement, at least 3; drawn for it alone, with random numbers of their own
    )
    rollouts: int = 8  # of each, at least 4
    rule: ControllerRule = field(default_factory=ControllerRule)  # threshold, fading and bounds

    @classmethod
    def from_mapping(cls, given: JsonView) -> AdaptiveSettings:
        """Return the settings that a part of a settings file names."""
        checked = _checked_fields(cls, given, "setting of the adaptive group size")
        if "rule" in checked and not isinstance(checked["rule"], ControllerRule):
            rule = _checked_fields(ControllerRule, checked["rule"], "setting of the adaptive rule")
            try:
                checked["rule"] = ControllerRule(**rule)
            except TypeError:
                raise InvalidArgumentError(
                    f"expected numbers in the rule of the adaptive group size; got {str(rule)[:60]}"
                ) from None
        return cls(**checked)

    def __post_init__(self) -> None:
        """Refuse what is outside its domain."""
        if self.mode not in get_args(AdaptiveName):
            raise InvalidArgumentError(
                f"expected the adaptive group size to be advise or act; got {str(self.mode)[:60]!r}"
            )
        for name, least in (("every", 1), ("prompts", 3), ("rollouts", 4)):
            check_whole(f"{name} of the adaptive group size", getattr(self, name), least)


@frozen
class TrainSettings(Plain):
    r"""How a policy is trained.

    A step is one optimiser update on `rollouts_per_step` rollouts: N of them, N/G prompts times G.
    The same N and number of steps for another G is the same exposure: as many rollouts of each
    prompt on average.
    """

    group_size: int = 8  # G, rollouts of a prompt; at least 2, divides `rollouts_per_step`
    rollouts_per_step: int = 512  # N
    steps: int = 600  # optimiser updates
    learning_rate: float = 5e-4  # eta, the peak, per update
    # of the learning rate after its rise: constant, or linear or cosine from the peak at its first
    # update to what would be 0 one update after the last
    schedule: ScheduleName = "constant"
    ramp_steps: int = 0  # updates over which the learning rate rises from 0
    # sgd (heavy ball with `momentum`: $v \leftarrow \mu v + \eta g$), adam (decay in the gradient)
    # or adamw (decoupled decay)
    optimizer: OptimizerName = "adam"
    momentum: float = 0.0  # mu of sgd
    beta1: float = 0.9  # of Adam
    beta2: float = 0.999  # of Adam
    # of Adam, added to the root; above 0, because a parameter without a gradient is divided by it
    # alone
    epsilon: float = 1e-8
    weight_decay: float = 0.0  # per unit of learning rate
    # a name of `groupwise_lab.trainer.advantages.ADVANTAGES`, or FRAMEWORK/ESTIMATOR[/VERSION] of a
    # preset, as trl/grpo/1.16.0
    advantage: str = "leave_one_out"
    advantage_value: float | None = None  # the number of the advantage constant, reward units
    # of present over sampling policy: none (plain policy gradient), token, sequence (the exact
    # ratio, the product over tokens) or sequence_mean (the geometric mean over tokens, GSPO's)
    importance_ratio: RatioName = "token"
    # epsilon of PPO's clipping of the ratio, below and, unless `clip_high` is given, above; None
    # leaves the ratio alone
    clip: float | None = 0.2
    clip_high: float | None = None  # epsilon above
    # of token losses: sum (the theory's score), sequence_mean, or batch_token_mean (TRL's dapo)
    aggregation: AggregationName = "sum"
    kl_weight: float = (
        0.0  # beta of the KL divergence to the policy at the start, reward units a nat
    )
    kl_in: KlPlace = (
        "loss"  # loss (at the present policy) or reward (at the sampling policy, as stale as that)
    )
    # in the loss: k2 (half the squared log-ratio of the completion: on-policy its gradient is that
    # of the KL) or k3 (a term a token, as in TRL)
    kl_estimator: KlEstimator = "k2"
    # which parameters sampled the rollouts of an update: none (the present ones), fixed (those
    # `refresh_interval` updates ago), refresh (those at the start of the block of so many updates)
    # or async (those at the start of the block before)
    lag_kind: LagName = "none"
    refresh_interval: int = 1  # K_ref, updates
    gradient_clip: float | None = None  # largest norm of the gradient; None does not clip
    # independent (uniform draws from the pool, with replacement) or epochs (a new permutation of
    # the pool each pass)
    prompt_order: OrderName = "independent"
    prompt_pool: int | None = None  # use only the first so many training problems; all where None
    micro_batch: int | None = None  # rollouts of one pass, whole groups; all where None
    precision: PrecisionName = (
        "float32"  # of the passes through the policy: float32, or bfloat16 under autocast
    )
    seed: int = 0  # of prompts and sampling
    evaluate_every: int = 20  # steps between evaluations on held-out problems; 0 for none
    evaluation_problems: int = 128  # held-out problems, four rollouts each
    checkpoint_every: int = 50  # steps between checkpoints; `--resume` goes back to the last one
    checkpoints_kept: int | None = (
        None  # how many of the latest to keep beside the first; all where None
    )
    rollouts_every: int = (
        5  # steps between those whose rollouts are recorded; 1 records all, 0 none
    )
    # group sizes that follow measured components, from `group_size` on; None keeps it
    adaptive: AdaptiveSettings | None = None

    @classmethod
    def from_mapping(cls, given: JsonView) -> TrainSettings:
        """Return the settings that a settings file names; those it leaves out have their defaults,
        and a key that is none is refused.

        A number may be written as text, since YAML reads 5e-4 as one.
        """
        checked = _checked_fields(cls, given, "training setting")
        for name in _NUMBERS:
            if isinstance(checked.get(name), str):
                with suppress(ValueError):  # what is no number is refused with the others
                    checked[name] = float(checked[name])
        if not isinstance(checked.get("adaptive"), AdaptiveSettings | None):
            checked["adaptive"] = AdaptiveSettings.from_mapping(checked["adaptive"])
        return cls(**checked)

    def __post_init__(self) -> None:
        """Refuse what is outside its domain, in a sentence."""
        if not isinstance(self.advantage, str):
            raise InvalidArgumentError(
                f"expected the name of an advantage; got {str(self.advantage)[:60]!r}"
            )
        if self.group_size == 1:
            raise InvalidArgumentError(
                "expected group_size of at least 2, got 1: a group of one has nobody to be "
                "compared with"
            )
        check_fields(self, wholes=_WHOLES, numbers=_NUMBERS)
        self._check_together()

    def _check_together(self) -> None:
        """Refuse settings that do not fit each other."""
        if self.rollouts_per_step % self.group_size:
            near = max(
                self.group_size, round(self.rollouts_per_step / self.group_size) * self.group_size
            )
            raise InvalidArgumentError(
                f"expected group_size to divide rollouts_per_step, got {self.group_size} and "
                f"{self.rollouts_per_step}: take {near} rollouts a step"
            )
        if self.adaptive is not None and self.group_size not in self.adaptive.rule.sizes(
            self.rollouts_per_step
        ):
            rule = self.adaptive.rule
            raise InvalidArgumentError(
                f"expected group_size within the bounds of the adaptive one, {rule.lowest} and "
                f"{rule.highest or self.rollouts_per_step}; got {self.group_size}: widen them, or "
                "begin with another"
            )
        if self.micro_batch is not None and self.micro_batch % self.group_size:
            raise InvalidArgumentError(
                f"expected micro_batch to hold whole groups of {self.group_size}; got "
                f"{self.micro_batch}"
            )
        if self.lag_kind == "none" and self.refresh_interval != 1:
            raise InvalidArgumentError(
                "expected lag_kind fixed, refresh or async with refresh_interval "
                f"{self.refresh_interval}; got none: name the kind of lag"
            )
        if self.refresh_interval > _MOST_LAG:
            raise InvalidArgumentError(
                f"expected refresh_interval of at most {_MOST_LAG}; got {self.refresh_interval}"
            )
        if self.clip_high is not None and self.clip is None:
            raise InvalidArgumentError(
                "expected clip with clip_high, got none: give both, or neither"
            )
        if self.momentum and self.optimizer != "sgd":
            raise InvalidArgumentError(
                f"expected optimizer sgd with momentum {self.momentum:g}; got {self.optimizer}: "
                "its own is beta1"
            )
        self._check_effect()
        if self.ramp_steps >= self.steps > 1:
            raise InvalidArgumentError(
                f"expected ramp_steps below the {self.steps} steps; got {self.ramp_steps}"
            )

    def _check_effect(self) -> None:
        """Refuse what was set and would change nothing."""
        kl = "kl_weight above 0"
        wanted = {
            "advantage_value": (self.advantage == "constant", "advantage constant", self.advantage),
            "kl_in": (self.kl_weight > 0, kl, "0"),
            "kl_estimator": (
                self.kl_weight > 0 and self.kl_in == "loss",
                f"{kl} and kl_in loss",
                f"{self.kl_weight:g} and {self.kl_in}",
            ),
            "clip_high": (self.importance_ratio != "none", "an importance_ratio", "none"),
            **dict.fromkeys(
                ("beta1", "beta2", "epsilon"),
                (self.optimizer != "sgd", "optimizer adam or adamw", "sgd"),
            ),
        }
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        for name, (works, with_what, got) in wanted.items():
            value = getattr(self, name)
            if not works and value != defaults[name]:
                raise InvalidArgumentError(
                    f"expected {with_what} with {name} {value}; got {got}: it would change "
                    "nothing, leave it out"
                )
        if self.importance_ratio == "none" and self.clip not in {None, defaults["clip"]}:
            raise InvalidArgumentError(
                f"expected an importance_ratio with clip {self.clip:g}; got none: it would change "
                "nothing, leave it out"
            )

    def check_pool(self, problems: int) -> None:
        """Refuse a pool of more prompts than there are."""
        if self.prompt_pool is not None and self.prompt_pool > problems:
            raise InvalidArgumentError(
                f"expected prompt_pool of at most the {problems} training problems; got "
                f"{self.prompt_pool}"
            )

    @property
    def prompts_per_step(self) -> int:
        """B, the groups of a step."""
        return self.rollouts_per_step // self.group_size

    def learning_rate_at(self, step: int) -> float:
        """Return the learning rate of an update."""
        if step <= self.ramp_steps:
            return self.learning_rate * step / self.ramp_steps
        done = (step - self.ramp_steps - 1) / max(1, self.steps - self.ramp_steps)
        share = {
            "constant": 1.0,
            "linear": 1 - done,
            "cosine": 0.5 * (1 + math.cos(math.pi * done)),
        }[self.schedule]
        return self.learning_rate * share

    def run_config(self, *, model: str = "", max_completion_length: int | None = None) -> RunConfig:
        """Return the settings as a record keeps them."""
        from groupwise import __version__
        from groupwise.record.run import RunConfig

        adam = self.optimizer != "sgd"
        acts = (
            self.adaptive is not None and self.adaptive.mode == "act"
        )  # then the column group_size tells
        settings: JsonObject = {
            "group_size": None if acts else self.group_size,
            "prompts_per_step": None if acts else self.prompts_per_step,
            "learning_rate": self.learning_rate,
            "learning_rate_schedule": self.schedule,
            "optimizer": self.optimizer,
            "momentum": None if adam else self.momentum,
            "beta1": self.beta1 if adam else None,
            "beta2": self.beta2 if adam else None,
            "kl_weight": self.kl_weight,
            "importance_ratio": self._ratio(),
            "kl_in": self.kl_in if self.kl_weight else "none",
            "max_completion_length": max_completion_length,
            "refresh_interval": self.refresh_interval,
            "lag_kind": self.lag_kind,
            "updates_per_step": 1,
            "logging_steps": 1,
            "temperature": 1.0,
            "framework": "groupwise",
            "framework_version": __version__,
            "loss": self._loss(),
            "smoothing": 1,
            "seed": self.seed,
            "model": model or None,
        }
        if self.advantage in {"std_normalised", "batch_std", "leave_one_out", "full_group_mean"}:
            settings["scale_rewards"] = {"std_normalised": "group", "batch_std": "batch"}.get(
                self.advantage, "none"
            )
        return RunConfig().with_settings(settings, "the trainer")

    def _ratio(self) -> str:
        """What the loss does about a lag, as a judgement of stability asks."""
        if self.importance_ratio == "none":
            return "none"
        if self.clip is not None:
            return "clipped"
        return "exact" if self.importance_ratio == "sequence" else self.importance_ratio

    def _loss(self) -> str:
        """The loss in words: advantage, ratio and its clipping, what is done with the tokens'
        losses, estimator of a KL term.
        """
        parts = ["policy gradient", f"advantage {self.advantage}"]
        if self.importance_ratio != "none":
            high = self.clip if self.clip_high is None else self.clip_high
            held = (
                "unclipped"
                if self.clip is None or high is None
                else f"clipped to {1 - self.clip:g} to {1 + high:g}"
            )
            parts += [f"ratio of a {self.importance_ratio} {held}"]
        parts += [f"tokens by {self.aggregation}"]
        return ", ".join(
            [*parts, f"KL by {self.kl_estimator}"]
            if self.kl_weight and self.kl_in == "loss"
            else parts
        )
