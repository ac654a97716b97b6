r"""From a trainer's own settings to the lag between the policy that sampled a rollout and the one
it updates.

`trainers.tsv` is the table; every lag counts in optimiser updates. With R updates on a generation
that is made A generations ahead, the oldest rollouts are $\lceil (A + 1) R \rceil - 1$ updates old.
A bound on staleness becomes a fixed lag at the bound, which is nearly the worst: lags that change
below the bound can be about 5 % less stable. What a trainer needs and was not given is asked for.
No threshold is computed here.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from groupwise.edge.mode import ImportanceRatio, KLTerm
from groupwise.errors import InvalidArgumentError
from groupwise.files import table_rows
from groupwise.parsing import JsonObject, JsonView
from groupwise.plain import Plain

Kind = Literal["none", "fixed", "refresh", "async"]
_YES, _NO = {"true", "yes", "1", "on"}, {"false", "no", "0", "off", "none", "null"}
_LEVELS = {"token", "sequence"}  # of verl's rollout_is

# Two-part names whose last part alone says nothing.
_PAIRS = {
    ("train", "batch_size"): "train_batch_size",
    ("rollout", "batch_size"): "rollout_batch_size",
    ("kl", "init_coef"): "init_kl_coef",
    ("kl", "use_loss"): "use_kl_loss",
    ("async_grpo", "enabled"): "async_grpo_enabled",
}


def by_leaf(settings: JsonView) -> JsonObject:
    """Return settings under the last part of their paths, with underscores."""
    leaves: JsonObject = {}
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
class LagSetting(Plain):
    """The lag of the rollouts behind the policy, as a judgement of stability takes it."""

    KEYS = (
        *("trainer", "lag=kind", "refresh_interval", "worst_case=is_bound", "importance_ratio"),
        *("kl_term", "said=notes", "asked=unknown_settings"),
    )

    kind: Kind
    refresh_interval: int  # R in updates; of a fixed lag the lag itself
    importance_ratio: ImportanceRatio = "none"  # what the loss does about the lag
    # where the KL penalty is: in the reward it is as stale as the rollouts, in the loss current
    kl_term: KLTerm = "unknown"
    notes: tuple[str, ...] = ()  # how it follows
    unknown_settings: tuple[str, ...] = ()  # those that would change it
    is_bound: bool = False  # whether rollouts may be younger
    trainer: str = ""  # row of the table that it comes from, "" where settings tell it outright

    @property
    def longest(self) -> int:
        """The age of the oldest rollouts, in updates."""
        oldest = {"none": 0, "fixed": self.refresh_interval, "refresh": self.refresh_interval - 1}
        return oldest.get(self.kind, 2 * self.refresh_interval - 1)

    @property
    def remaining(self) -> tuple[LagSetting, ...]:
        """The lags that may remain after the loss's correction: this one, none, or both where
        ratio, KL term or a mere bound leave it open.
        """
        uncorrected = self.importance_ratio == "none" or self.kl_term == "reward"
        if self.kind == "none" or (uncorrected and not self.is_bound):
            return (self,)
        corrected = self.importance_ratio == "exact" and self.kl_term != "unknown"
        on_policy = LagSetting("none", 1)
        return (on_policy,) if corrected else (self, on_policy)


@dataclass(frozen=True, slots=True)
class TrainerRule:
    """How one trainer's settings give its lag; names stand beside one another with blanks."""

    name: str
    framework: str  # the name that a run's settings carry
    title: str  # as people call it
    epochs: str  # passes over the samples of a generation, "" for one
    samples: str  # the settings whose product is a generation, "" for one sample
    batch: str  # the samples of an update, "" for one
    ahead: str  # the generations that may be made ahead, "" for none
    # straddles: an update may take samples of two generations; own: the present generation counts
    # as ahead; doubled: with one ahead, the next is made while the present one is trained on
    queue: str
    # settings whose presence says that it is this trainer of the framework; none for the
    # framework's usual one
    marks: str
    # settings that say outright whether it is this trainer, by yes, no, or its own name
    switches: str
    # SETTING:WHERE, or SETTING:WHERE:OTHERWISE for where it is off too, and last where it is if
    # none of them is on
    kl_term: str
    # as kl_term: asked for where rollouts are older than their own generation; within one it is
    # clipped
    ratio: str
    note: str  # a sentence on it
    lag: str  # what it comes to, in a phrase
    evidence: str  # the source of the rule: ran, read (its source), documentation, or second-hand
    version: str  # that was looked at
    defaults: str  # AdamW's, and the lag of its own, unless it is told otherwise: NAME=VALUE

    @property
    def needs(self) -> tuple[str, ...]:
        """The settings without which nothing follows."""
        return tuple(f"{self.ahead} {self.epochs} {self.samples} {self.batch}".split())

    @property
    def settings(self) -> tuple[str, ...]:
        """Every setting that is read."""
        choices = re.findall(r"(?<!\w)(\w+):", f"{self.ratio} {self.kl_term}")
        return tuple(dict.fromkeys((*self.switches.split(), *self.needs, *choices)))

    def product(self, given: JsonView, names: str) -> int:
        """Return the product of some settings, each a whole number."""
        for name in names.split():
            value = self.number(given, name)
            if value != int(value) or not 1 <= value < 1e6:
                raise self._refusal(given, name, "a whole number of at least 1")
        return math.prod(int(float(given[name])) for name in names.split())

    def number(self, given: JsonView, name: str) -> float:
        """Return a setting as a number of at least 0; a word for yes is 1, one for no 0."""
        spelled = str(given[name]).strip().lower()
        if spelled in _YES | _LEVELS or spelled in _NO:
            return float(spelled not in _NO)
        try:
            number = float(spelled)
        except ValueError:
            number = math.nan
        if not 0 <= number < math.inf:
            raise self._refusal(given, name, "true or false, or a number of at least 0,")
        return number

    def _refusal(self, given: JsonView, name: str, expected: str) -> InvalidArgumentError:
        """The error for a value outside its domain."""
        return InvalidArgumentError(
            f"expected {expected} for {name} of {self.title}, got {str(given[name])[:60]!r}"
        )

    def place(self, given: JsonView, choices: str) -> tuple[Any, tuple[str, ...]]:
        """Return what the first choice that is on says, and the settings without which it is
        unknown.
        """
        otherwise, unknown = "none", []
        for choice in choices.split():
            name, colon, where = choice.partition(":")
            if not colon:
                otherwise = name
            elif given.get(name) is None:
                unknown.append(name)
            else:
                on, _, off = where.partition(":")
                if found := on if self.number(given, name) else off:
                    return found, ()
        return "unknown" if unknown else otherwise, tuple(unknown)

    def updates(self, given: JsonView) -> int:
        """Return the updates on one generation."""
        samples, batch = self.product(given, self.samples), self.product(given, self.batch)
        if self.queue == "straddles":
            # A generation starts at best at the beginning of an update, at worst this far into it.
            samples += batch - math.gcd(samples, batch)
        elif samples < batch:
            raise InvalidArgumentError(
                f"expected a {self.batch} of at most {self.samples.replace(' ', ' x ')}, got "
                f"{batch} of {samples}: an update takes samples of one generation"
            )
        return self.product(given, self.epochs) * -(-samples // batch)

    def lag_of(self, given: JsonView) -> LagSetting:
        """Return the lag that settings amount to."""
        updates = self.updates(given)
        ahead = (self.number(given, self.ahead) if self.ahead else 0.0) - (self.queue == "own")
        bound = math.ceil((ahead + 1) * updates) - 1
        kind: Kind = "refresh" if ahead == 0 else "fixed"
        if bound == 0:
            kind, updates, how = "none", 1, "On-policy."
        elif kind == "refresh":
            how = (
                f"{updates} updates a generation, their importance ratio clipped: lags 0 to "
                f"{bound}."
            )
        elif ahead == 1 and self.queue.startswith("doubled"):
            kind, how = "async", "One generation ahead: double-buffered."
        else:
            updates = bound
            how = (
                f"Rollouts are at most {bound} updates old; how old they are is not in the "
                "settings. All of them at the bound is nearly the worst: lags that change below "
                "it can have a threshold about 5 % lower."
            )
        kl_term, unknown = self.place(given, self.kl_term)
        # Nothing is to be corrected on-policy, and what is left within one generation the loss
        # clips.
        within = "clipped" if kind == "refresh" else "none"
        ratio, more = self.place(given, self.ratio if kind in ("fixed", "async") else within)
        settings = f"Settings: {', '.join(f'{name} {given[name]}' for name in self.needs)}."
        return LagSetting(
            kind,
            updates,
            ratio,
            kl_term,
            (settings, *([self.note] if self.note else []), how),
            (*unknown, *more),
            is_bound=kind == "fixed" or (kind == "async" and self.queue.endswith("bound")),
            trainer=self.name,
        )


TRAINERS = tuple(
    TrainerRule(**cells) for cells in table_rows(Path(__file__).with_name("trainers.tsv"))
)


def lag_of_trainer(framework: str, settings: JsonView) -> LagSetting:
    """Return the lag that a trainer's settings amount to.

    Source: the sources and the documentation of the trainers; docs/lags.md says which was read in
    which version.
    """
    given = by_leaf(settings)
    rule = rule_of_trainer(framework, given)
    missing = [name for name in rule.needs if given.get(name) is None]
    if missing:
        raise InvalidArgumentError(
            f"expected {' and '.join(missing)} for {rule.title}, got no value: give "
            f"{'it' if len(missing) == 1 else 'each'} as --set NAME=VALUE"
        )
    return rule.lag_of(given)


def defaults_of(framework: str) -> dict[str, str]:
    """Return the settings of a framework's usual trainer where it is told nothing."""
    name = "trl" if framework == "unsloth" else framework
    usual = next((rule.defaults for rule in TRAINERS if rule.name == name), "")
    return dict(pair.split("=", 1) for pair in usual.split())


def takes(framework: str, name: str) -> bool:
    """Return whether a setting is part of what gives a trainer's lag."""
    leaf = next(iter(by_leaf({name: None})))
    return any(leaf in rule.settings for rule in _family(framework))


def rule_of_trainer(framework: str, settings: JsonView) -> TrainerRule:
    """Return the rule for a framework: the one whose marks are among the settings, else its
    usual one.
    """
    family = _family(framework)
    given = by_leaf(settings)
    return next((rule for rule in family if _is_selected(rule, given)), family[0])


def _family(framework: str) -> list[TrainerRule]:
    """The rules of a framework, or the one that was named."""
    name = framework.strip().lower().replace("-", "_").replace(" ", "_")
    name = {"unsloth": "trl", "primerl": "prime_rl", "nemo": "nemo_rl", "nemorl": "nemo_rl"}.get(
        name, name
    )
    exact = [rule for rule in TRAINERS if rule.name == name and rule.framework != name]
    family = exact or [rule for rule in TRAINERS if rule.framework == name]
    if not family:
        names = ", ".join(dict.fromkeys(rule.framework for rule in TRAINERS))
        raise InvalidArgumentError(
            f"expected a trainer, got {framework[:60]!r}: use one of {names}, or give "
            "--set lag_kind=KIND --set refresh_interval=R"
        )
    return family


def _is_selected(rule: TrainerRule, given: JsonView) -> bool:
    """Whether settings select a rule that is not its framework's usual one: by a switch where
    there is one, else by a mark.
    """
    for switch in rule.switches.split():
        if given.get(switch) is not None:
            value = str(given[switch]).strip().lower()
            return value in _YES or f"{rule.framework}_{value}" == rule.name
    return any(given.get(mark) is not None for mark in rule.marks.split())
