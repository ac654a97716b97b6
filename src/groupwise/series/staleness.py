"""The lag and the momentum of a record: what a judgement of stability needs of the settings
besides the force.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from groupwise.errors import InvalidArgumentError
from groupwise.record.run import RunRecord

if TYPE_CHECKING:
    from groupwise.stability.mode import ImportanceRatio, KLTerm
    from groupwise.stability.trainers import TrainerLag


Optimizer = Literal["sgd", "adam"]
UNKNOWN_RATIO = "What the loss does about the lag is unknown: no importance ratio is counted on."
UNKNOWN_PLACE = (
    "Not known, and it would change the answer: where the KL term is. In the reward it keeps the "
    "whole force stale whatever the ratio; give it with --kl-in none, reward or loss."
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
    weight_D: tuple[float, ...] = ()  # mixture of lags behind a bound, or empty
    asked: tuple[str, ...] = ()  # settings that are unknown and would change it
    # share of the force that is as old as the rollouts; below 1 where a KL term in the loss is
    # current
    stale_share: float = 1.0
    ratio_known: bool = True  # whether the importance ratio is known; where not, none is counted on

    def __post_init__(self) -> None:
        """Refuse a fixed lag whose update matrix would be too large."""
        from groupwise.stability.lags import LONGEST_FIXED_LAG

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
    def left(self) -> tuple[LagSetting, ...]:
        """The lags that may remain after the loss's correction: this one, none, or both where
        ratio or KL term leave it open.
        """
        if (
            self.kind == "none"
            or self.kl_term == "reward"
            or (self.importance_ratio == "none" and self.ratio_known)
        ):
            return (self,)
        free = LagSetting("none", 1)
        return (
            (free,)
            if self.importance_ratio == "exact" and self.kl_term != "unknown"
            else (self, free)
        )


def setting_of_trainer(lag: TrainerLag) -> LagSetting:
    """Return the lag that a trainer's own settings amount to; an importance ratio that is
    unknown is not counted on.
    """
    notes = lag.said
    if lag.importance_ratio == "unknown":
        notes = (*notes, UNKNOWN_RATIO)
    ratio: ImportanceRatio = "none" if lag.importance_ratio == "unknown" else lag.importance_ratio
    known = lag.importance_ratio != "unknown"
    return LagSetting(
        lag.kind,
        lag.refresh_interval,
        ratio,
        lag.kl_term,
        notes,
        lag.weight_D,
        lag.asked,
        ratio_known=known,
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
    adam = (
        optimizer_of(str(name)) == "adam"
        if name is not None
        else momentum is None and beta1 is not None
    )
    value = beta1 if adam else momentum
    if value is None:
        wanted = "beta1" if adam else "momentum"
        how = (
            f"--set {wanted}=VALUE"
            if name is not None
            else "--set momentum=VALUE for SGD, --set beta1=VALUE for Adam"
        )
        raise UnknownSettingError(
            wanted,
            (
                f"expected the {wanted} of the optimiser, which the run does not say: give it with "
                f"{how}"
            ),
        )
    return float(value), adam


def lag_of(record: RunRecord) -> LagSetting:
    """Return the lag that a run's settings tell."""
    kind, interval = record.config.value("lag_kind"), record.config.value("refresh_interval")
    if kind is None:
        raise UnknownSettingError(
            "lag_kind",
            (
                "expected the kind of lag, which the run does not say: give it with --set "
                "lag_kind=none, fixed, refresh or async"
            ),
        )
    if kind == "none":
        return LagSetting("none", 1)
    if interval is None:
        raise UnknownSettingError(
            "refresh_interval",
            (
                "expected the refresh interval, which the run does not say: give it with --set "
                "refresh_interval=UPDATES"
            ),
        )
    framework = str(record.config.value("framework") or "").lower()
    kl = _kl_of(record, framework)
    # A trainer's own setting of this name says token or sequence: both are clipped ratios.
    ratio = record.config.value("importance_ratio")
    known: dict[str, ImportanceRatio] = {"none": "none", "exact": "exact", "clipped": "clipped"}
    if ratio in known:
        return LagSetting(str(kind), int(interval), known[str(ratio)], kl)
    if framework in {"trl", "verl", "unsloth"} and kind == "refresh":
        return LagSetting(str(kind), int(interval), "clipped", kl)
    return LagSetting(str(kind), int(interval), "none", kl, (UNKNOWN_RATIO,), ratio_known=False)


def _kl_of(record: RunRecord, framework: str) -> KLTerm:
    """Return where the KL term of a run is: as the settings say, nowhere at a weight of 0, in
    TRL's loss, else unknown.
    """
    weight, place = record.config.value("kl_weight"), record.config.value("kl_in")
    places: dict[str, KLTerm] = {"none": "none", "reward": "reward", "loss": "loss"}
    if place is not None and weight != 0:
        return places[str(place)]
    if weight == 0:
        return "none"
    return "loss" if weight is not None and framework in {"trl", "unsloth"} else "unknown"


def asking(names: tuple[str, ...]) -> str:
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
    current = "A KL term in the loss is current while the reward's part of the force is stale"
    return [
        (
            f"{current}: without --stale-share the whole force is taken as stale (in the two-armed "
            "bandit 1.04 of it is)."
        )
    ]
