"""The lag and the momentum of a record: what a judgement of stability needs of the settings
besides the force.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

from groupwise.errors import InvalidArgumentError
from groupwise.record.run import RunRecord

if TYPE_CHECKING:
    from groupwise.edge.mode import ImportanceRatio, KLTerm
    from groupwise.edge.trainers import TrainerLag


Optimizer = Literal["sgd", "adam"]
UNKNOWN_RATIO = "What the loss does about the lag is unknown: no importance ratio is counted on."
UNKNOWN_PLACE = (
    "Not known, and it would change the answer: where the KL term is. In the reward it keeps the "
    "whole force stale whatever the ratio; give it with --set kl_in=none, reward or loss."
)
UNKNOWN_KIND = (
    "expected the kind of lag, which the run does not say: give it with --set lag_kind=none, "
    "fixed, refresh or async"
)
UNKNOWN_INTERVAL = (
    "expected the refresh interval, which the run does not say: give it with --set "
    "refresh_interval=UPDATES"
)
CURRENT_TERM = (
    "A KL term in the loss is current while the reward's part of the force is stale: the whole "
    "force is taken as stale (in the two-armed bandit 1.04 of it is)."
)


class UnknownSettingError(InvalidArgumentError):
    """A setting that is needed is unknown."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


@dataclass(frozen=True, slots=True)
class LagSetting:
    """The lag of the rollouts behind the policy, as a judgement of stability takes it."""

    kind: str  # none, fixed, refresh or async
    refresh_interval: int  # R in updates
    importance_ratio: ImportanceRatio = "none"  # none, exact or clipped
    kl_term: KLTerm = "unknown"  # none, reward, loss or unknown
    notes: tuple[str, ...] = ()  # how it follows
    unknown_settings: tuple[str, ...] = ()  # those that would change it
    # share of the force that is as old as the rollouts; below 1 where a KL term in the loss is
    # current
    stale_share: float = 1.0
    ratio_known: bool = True  # where the ratio is not known, none is counted on

    def __post_init__(self) -> None:
        """Refuse a fixed lag whose matrix would be too large."""
        from groupwise.edge.spectrum import LONGEST_FIXED_LAG

        if self.kind == "fixed" and self.refresh_interval > LONGEST_FIXED_LAG:
            raise InvalidArgumentError(
                f"expected a fixed lag of at most {LONGEST_FIXED_LAG} updates, got "
                f"{self.refresh_interval}: the threshold falls as one over the lag from there"
            )

    @property
    def longest(self) -> int:
        """The age of the oldest rollouts, in updates."""
        oldest = {"none": 0, "fixed": self.refresh_interval, "refresh": self.refresh_interval - 1}
        return oldest.get(self.kind, 2 * self.refresh_interval - 1)

    @property
    def remaining(self) -> tuple[LagSetting, ...]:
        """The lags that may remain after the loss's correction: this one, none, or both where
        ratio or KL term leave it open.
        """
        uncorrected = self.importance_ratio == "none" and self.ratio_known
        if self.kind == "none" or self.kl_term == "reward" or uncorrected:
            return (self,)
        corrected = self.importance_ratio == "exact" and self.kl_term != "unknown"
        on_policy = LagSetting("none", 1)
        return (on_policy,) if corrected else (self, on_policy)


def setting_of_trainer(lag: TrainerLag) -> LagSetting:
    """Return the lag that a trainer's own settings amount to; an importance ratio that is
    unknown is not counted on.
    """
    unknown = lag.importance_ratio == "unknown"
    return LagSetting(
        lag.kind,
        lag.refresh_interval,
        "none" if unknown else cast("ImportanceRatio", lag.importance_ratio),
        lag.kl_term,
        (*lag.reasons, UNKNOWN_RATIO) if unknown else lag.reasons,
        lag.unknown_settings,
        ratio_known=not unknown,
    )


def optimizer_of(name: str) -> Optimizer:
    """Return whether an optimiser is treated as SGD or as Adam."""
    spelled = name.strip().lower()
    if "adam" in spelled:
        return "adam"
    if "sgd" in spelled or spelled in {"momentum", "heavy_ball"}:
        return "sgd"
    raise InvalidArgumentError(
        f"expected an optimizer that maps to heavy ball, sgd or adam, got {name[:60]!r}: no rule "
        "is known for it"
    )


def momentum_of(record: RunRecord) -> tuple[float, bool]:
    """Return the momentum of a run, beta1 for Adam, and whether it is Adam."""
    momentum, beta1 = record.config.value("momentum"), record.config.value("beta1")
    name = record.config.value("optimizer")
    adam = momentum is None and beta1 is not None
    if name is not None:
        adam = optimizer_of(str(name)) == "adam"
    value = beta1 if adam else momentum
    if value is not None:
        return float(value), adam
    wanted = "beta1" if adam else "momentum"
    how = f"--set {wanted}=VALUE"
    if name is None:
        how = "--set momentum=VALUE for SGD, --set beta1=VALUE for Adam"
    raise UnknownSettingError(
        wanted,
        f"expected the {wanted} of the optimiser, which the run does not say: give it with {how}",
    )


def lag_of(record: RunRecord) -> LagSetting:
    """Return the lag that a run's settings give."""
    kind, interval = record.config.value("lag_kind"), record.config.value("refresh_interval")
    if kind is None:
        raise UnknownSettingError("lag_kind", UNKNOWN_KIND)
    if kind == "none":
        return LagSetting("none", 1)
    if interval is None:
        raise UnknownSettingError("refresh_interval", UNKNOWN_INTERVAL)
    framework = str(record.config.value("framework") or "").lower()
    kl_term = _kl_term_of(record, framework)
    # A trainer's own setting of this name says token or sequence: both are clipped ratios.
    ratio: ImportanceRatio | None = record.config.value("importance_ratio")
    if ratio not in ("none", "exact", "clipped"):
        ratio = None
    if ratio is None and framework in {"trl", "verl", "unsloth"} and kind == "refresh":
        ratio = "clipped"
    return LagSetting(
        str(kind),
        int(interval),
        ratio or "none",
        kl_term,
        () if ratio else (UNKNOWN_RATIO,),
        ratio_known=ratio is not None,
    )


def _kl_term_of(record: RunRecord, framework: str) -> KLTerm:
    """The place of the KL term of a run: as the settings say, nowhere at a weight of 0, in TRL's
    loss, else unknown.
    """
    weight, place = record.config.value("kl_weight"), record.config.value("kl_in")
    if weight == 0:
        return "none"
    if place is not None:
        return cast("KLTerm", place)
    return "loss" if weight is not None and framework in {"trl", "unsloth"} else "unknown"


def request_for(names: tuple[str, ...]) -> str:
    """Return the sentence that asks for settings that are unknown and would change the answer."""
    return (
        f"Not known, and it would change the answer: {', '.join(names)}. Give "
        f"{'it' if len(names) == 1 else 'each'} with --set NAME=VALUE."
    )


def kl_notes(lag: LagSetting) -> list[str]:
    """Return sentences on the place of the KL term, where it is unknown or where it leaves a
    share of the force current.
    """
    if lag.kind != "none" and lag.importance_ratio == "exact" and lag.kl_term == "unknown":
        return [UNKNOWN_PLACE]
    if lag.kind == "none" or lag.kl_term != "loss" or lag.stale_share != 1:
        return []
    return [CURRENT_TERM]
