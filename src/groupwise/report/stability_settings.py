"""What a run's settings say of momentum and lag, under the name that the report has for it.

All of it is in `diagnostics.stability_settings`, which the checks use too. It adds nothing.
"""

from groupwise.diagnostics.stability_settings import (
    UNKNOWN_PLACE,
    UNKNOWN_RATIO,
    LagSetting,
    Optimizer,
    UnknownSettingError,
    asking,
    kl_notes,
    lag_of,
    momentum_of,
    optimizer_of,
    setting_of_trainer,
)

__all__ = [
    "UNKNOWN_PLACE",
    "UNKNOWN_RATIO",
    "LagSetting",
    "Optimizer",
    "UnknownSettingError",
    "asking",
    "kl_notes",
    "lag_of",
    "momentum_of",
    "optimizer_of",
    "setting_of_trainer",
]
