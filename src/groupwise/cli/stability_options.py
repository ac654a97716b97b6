"""What can be typed of a setting of `groupwise stability`: its numbers, its lag, and the constants of the rival rule.

Every value is checked here, in one line. Nothing is judged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from groupwise.errors import InvalidArgumentError

if TYPE_CHECKING:
    from groupwise.series.lag import LagSetting
    from groupwise.stability.map import StalenessRule

_PLACES = ("none", "reward", "loss")
_RATIOS = ("none", "exact", "clipped")
_LONGEST = 1_000_000
_MOST_MODES = 100
_WIDEST_SHARE = 100
_MOST_SHARES = 200


@dataclass(frozen=True, slots=True)
class Typed:
    """A setting as typed; None is not given."""

    learning_rate: float | None  # eta
    momentum: float | None  # mu, or beta1 of Adam
    stiffness: str | None  # one K, or several with commas
    refresh_interval: int | None  # updates between two generations; of a fixed lag the lag itself
    lag_kind: str | None  # none, fixed, refresh or async
    optimizer: str | None  # sgd or adam
    second_moment: float | None  # of Adam along the mode
    importance_ratio: str | None  # none, exact or clipped
    kl_in: str | None  # none, reward or loss
    trainer: str | None  # whose settings tell the lag
    stale_share: float | None = None  # share of the force that is stale
    lag_shares: str | None = None  # of the lags 0, 1, 2, ..., with commas: instead of a kind

    def __post_init__(self) -> None:
        """Check what needs no run."""
        for option, value in (("--learning-rate", self.learning_rate), ("--second-moment", self.second_moment)):
            if value is not None and not (math.isfinite(value) and value > 0):
                raise InvalidArgumentError(f"{option} expects a finite number above 0; got {value:g}")
        if self.momentum is not None and not 0 <= self.momentum < 1:
            raise InvalidArgumentError(f"--momentum expects a number of at least 0 and below 1; got {self.momentum:g}")
        if self.refresh_interval is not None and not 1 <= self.refresh_interval <= _LONGEST:
            raise InvalidArgumentError(f"--refresh-interval expects 1 to {_LONGEST:,} updates; got {self.refresh_interval}")
        for option, word, words in (("--importance-ratio", self.importance_ratio, _RATIOS), ("--kl-in", self.kl_in, _PLACES)):
            if word is not None and word not in words:
                raise InvalidArgumentError(f"{option} expects {', '.join(words[:-1])} or {words[-1]}; got {word[:60]!r}")
        if self.stale_share is not None and not (math.isfinite(self.stale_share) and abs(self.stale_share) <= _WIDEST_SHARE):
            raise InvalidArgumentError(f"--stale-share expects a number of at most {_WIDEST_SHARE} in size; got {self.stale_share:g}")
        self._check_names()

    def _check_names(self) -> None:
        """Check names, and that the lag is said once."""
        from groupwise.series.lag import optimizer_of
        from groupwise.stability.lags import lag_by_name

        if self.lag_kind is not None:
            lag_by_name(self.lag_kind)
        if self.optimizer is not None:
            optimizer_of(self.optimizer)
        said_twice = self.lag_kind is not None or self.refresh_interval is not None
        if self.trainer is not None and (said_twice or self.lag_shares is not None):
            raise InvalidArgumentError(
                "expected --trainer or --lag-kind with --refresh-interval, got both: a trainer's settings tell the lag"
            )
        if self.lag_shares is not None and said_twice:
            raise InvalidArgumentError("expected --lag-shares or --lag-kind with --refresh-interval, got both: the shares tell the lag")
        if self.lag_shares is not None and self.stale_share is not None:
            raise InvalidArgumentError("expected --lag-shares or --stale-share, got both: what is current has a lag of 0, the first share")

    def mixture(self) -> LagSetting | None:
        """Return the lag whose shares were typed, or None where none were."""
        from groupwise.series.lag import LagSetting
        from groupwise.stability.lags import shares

        if self.lag_shares is None:
            return None
        try:
            weight = [float(part) for part in self.lag_shares.split(",")]
        except ValueError:
            weight = []
        if not weight or len(weight) > _MOST_SHARES:
            raise InvalidArgumentError(
                f"--lag-shares expects 1 to {_MOST_SHARES} numbers with commas, shares of lags 0, 1, 2, ...; got {self.lag_shares[:60]!r}"
            )
        shares(weight)
        return self.answered(LagSetting("mixed", 1, weight_D=tuple(weight)))

    @property
    def adam(self) -> bool:
        """Whether Adam was named."""
        from groupwise.series.lag import optimizer_of

        return self.optimizer is not None and optimizer_of(self.optimizer) == "adam"

    def stiffnesses(self) -> list[float]:
        """Split the stiffnesses, stiffest first."""
        found = []
        for part in (self.stiffness or "").split(","):
            if not part.strip():
                raise InvalidArgumentError(f"--stiffness expects numbers above 0, with commas between several; got {self.stiffness!r}")
            try:
                value = float(part)
            except ValueError:
                value = math.nan
            if not (math.isfinite(value) and value > 0):
                raise InvalidArgumentError(
                    f"--stiffness expects numbers above 0, with commas between several; got {part.strip()[:60]!r}: "
                    "where it is not positive the fixed point is no stable one, and no learning rate makes it so"
                )
            found.append(value)
        if len(found) > _MOST_MODES:
            raise InvalidArgumentError(f"--stiffness expects at most {_MOST_MODES} modes; got {len(found)}")
        return sorted(found, reverse=True)

    def answered(self, lag: LagSetting) -> LagSetting:
        """Return a lag with what was typed of the loss in the place of what was found or asked."""
        from groupwise.series.lag import UNKNOWN_RATIO
        from groupwise.stability.trainers import KL_SETTINGS, RATIO_SETTINGS

        if self.importance_ratio is not None:
            asked = tuple(name for name in lag.asked if name not in RATIO_SETTINGS)
            notes = tuple(note for note in lag.notes if note != UNKNOWN_RATIO)
            lag = replace(lag, importance_ratio=self.importance_ratio, asked=asked, notes=notes, ratio_known=True)  # type: ignore[arg-type]
        if self.kl_in is not None:
            asked = tuple(name for name in lag.asked if name not in KL_SETTINGS)
            lag = replace(lag, kl_term=self.kl_in, asked=asked)  # type: ignore[arg-type]
        return lag if self.stale_share is None else replace(lag, stale_share=self.stale_share)


@dataclass(frozen=True, slots=True)
class Rival:
    """The constants of the rival rule as typed; None is not given."""

    horizon: float | None  # updates of the run
    update_norm: float | None  # norm of one update over the learning rate
    batch_radius: float | None  # distance over which a batch stays useful
    critical_radius: float | None  # distance to collapse

    def rule(self, staleness: int) -> StalenessRule | None:
        """Return the rule, or None where none of it was given."""
        from groupwise.stability.map import StalenessRule

        given = {"--horizon": self.horizon, "--update-norm": self.update_norm, "--batch-radius": self.batch_radius}
        given["--critical-radius"] = self.critical_radius
        values = [value for value in given.values() if value is not None]
        if not values:
            return None
        if len(values) < len(given):
            missing = [name for name, value in given.items() if value is None]
            raise InvalidArgumentError(f"expected all four constants of the rule of 2607.01083 or none, got no {' and no '.join(missing)}")
        return StalenessRule(float(staleness), *values)
