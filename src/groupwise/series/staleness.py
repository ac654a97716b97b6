"""The lag and the momentum of a record: what a judgement of stability needs of the settings
besides the force.
"""

from dataclasses import replace
from typing import Literal, cast

from groupwise.edge.mode import ImportanceRatio, KLTerm, LagKind, LagSetting, defaults_of
from groupwise.errors import InvalidArgumentError
from groupwise.plain import Words, frozen
from groupwise.record.run import RULES, RunConfig, RunRecord

Optimizer = Literal["sgd", "adam"]
UNKNOWN_PLACE = (
    "The location of the KL term is unknown and would change the answer. In the reward it keeps "
    "the full lag, whatever the importance ratio. Give it with --set kl_in=PLACE (none, reward or "
    "loss)."
)
CURRENT_TERM = (
    "A KL term in the loss is current while the rest of the gradient is as old as the rollouts. "
    "All of it is treated as old (in the two-armed bandit the old part is 1.04 times the whole)."
)


class UnknownSettingError(InvalidArgumentError):
    """Settings that are needed are unknown."""

    def __init__(self, *names: str, framework: str = "") -> None:
        requests = "; ".join(f"--set {RULES[name]['request']}" for name in names)
        default = "" if framework else "; or --set framework=NAME (trl, verl, ...) for its defaults"
        super().__init__(
            f"expected {', '.join(names)}, which the run does not state: give {requests}{default}"
        )
        self.names = names


def optimizer_of(name: str) -> Optimizer:
    """Return whether an optimiser is treated as SGD or as Adam."""
    spelled = name.strip().lower()
    if "adam" in spelled:
        return "adam"
    if "sgd" in spelled or spelled in {"momentum", "heavy_ball"}:
        return "sgd"
    raise InvalidArgumentError(
        f"expected an optimizer that maps to heavy ball, sgd or adam, got {name[:60]!r}: there "
        "is no rule for it"
    )


@frozen
class StabilitySetting:
    """What a judgement of stability needs of a run's settings."""

    momentum: float  # beta1 for Adam
    adam: bool
    lag: LagSetting
    assumption: str = ""  # which of the trainer's defaults are assumed

    @property
    def optimizer(self) -> Optimizer:
        """Adam, or SGD."""
        return "adam" if self.adam else "sgd"


def stability_setting(record: RunRecord) -> StabilitySetting:
    """Return momentum and lag of a run; what the run does not say is its trainer's default, and
    what has none is asked for at once.
    """
    config = record.config
    framework, optimizer = _framework_of(config), config.value("optimizer")
    defaults = defaults_of(framework)
    adam = optimizer is None or optimizer_of(str(optimizer)) == "adam"
    wanted = {"beta1"} if adam and _missing_of_momentum(config) else set()
    if config.value("lag_kind") is None:
        wanted |= {"lag_kind", "refresh_interval"}
    assumed = {name: default for name, default in defaults.items() if name in wanted}
    config = config.with_settings(assumed, f"the default of {framework}")
    missing = (*_missing_of_momentum(config), *_missing_of_lag(config))
    if missing:
        raise UnknownSettingError(*missing, framework=framework if defaults else "")
    momentum = config.value("momentum")
    adam = adam and (optimizer is not None or momentum is None)
    lag = lag_of(replace(record, config=config))
    listed = ", ".join(f"{name} {default}" for name, default in assumed.items())
    return StabilitySetting(
        float(cast("float", config.value("beta1") if adam else momentum)),
        adam,
        replace(lag, is_bound=assumed.get("lag_kind") == "fixed"),
        f"The run does not state some settings, so the defaults of {framework} are assumed: "
        f"{listed}. If the run used others, give them with --set NAME=VALUE."
        if assumed
        else "",
    )


def _framework_of(config: RunConfig) -> str:
    return str(config.value("framework") or "").lower().replace("-", "_")


def _missing_of_momentum(config: RunConfig) -> Words:
    name = config.value("optimizer")
    wanted = "beta1" if name is not None and optimizer_of(str(name)) == "adam" else "momentum"
    absent = config.value(wanted) is None
    return (wanted,) if absent and (name is not None or config.value("beta1") is None) else ()


def _missing_of_lag(config: RunConfig) -> Words:
    if config.value("lag_kind") == "none":
        return ()
    return tuple(name for name in ("lag_kind", "refresh_interval") if config.value(name) is None)


def lag_of(record: RunRecord) -> LagSetting:
    """Return the lag that a run's settings give."""
    config = record.config
    if missing := _missing_of_lag(config):
        raise UnknownSettingError(*missing)
    kind = cast("LagKind", config.value("lag_kind"))
    if kind == "none":
        return LagSetting("none", 1)
    framework = _framework_of(config)
    # A trainer's own setting of this name says token or sequence: both are clipped ratios.
    ratio = cast("ImportanceRatio", config.value("importance_ratio"))
    if ratio not in ("none", "exact", "clipped"):
        clips = framework in {"trl", "verl", "unsloth"} and kind == "refresh"
        ratio = "clipped" if clips else "unknown"
    interval = int(cast("int", config.value("refresh_interval")))
    return LagSetting(kind, interval, ratio, _kl_term_of(config, framework))


def _kl_term_of(config: RunConfig, framework: str) -> KLTerm:
    """The place of the KL term of a run: as the settings say, nowhere at a weight of 0, in TRL's
    loss, else unknown.
    """
    weight, place = config.value("kl_weight"), config.value("kl_in")
    if weight == 0:
        return "none"
    if place is not None:
        return cast("KLTerm", place)
    return "loss" if weight is not None and framework in {"trl", "unsloth"} else "unknown"


def kl_notes(lag: LagSetting) -> list[str]:
    """Return sentences on the place of the KL term, where it is unknown or current."""
    if lag.kind == "none":
        return []
    if lag.importance_ratio == "exact" and lag.kl_term == "unknown":
        return [UNKNOWN_PLACE]
    return [CURRENT_TERM] if lag.kl_term == "loss" else []
