"""The lag between the policy that sampled a rollout and the one it updates, and what trainers do
that are told nothing.

`trainers.tsv` is the table of trainers; the page of the docs says from which of their settings the
lag follows. Every lag counts in optimiser updates. No threshold is computed here.
"""

from __future__ import annotations

from typing import Literal

from groupwise.edge.mode import ImportanceRatio, KLTerm
from groupwise.files import table_rows
from groupwise.plain import frozen

Kind = Literal["none", "fixed", "refresh", "async"]
TRAINERS = tuple(table_rows("edge/trainers.tsv"))


@frozen
class LagSetting:
    """The lag of the rollouts behind the policy, as a judgement of stability takes it."""

    kind: Kind
    refresh_interval: int  # R in updates; of a fixed lag the lag itself
    importance_ratio: ImportanceRatio = "none"  # what the loss does about the lag
    # where the KL penalty is: in the reward it is as stale as the rollouts, in the loss current
    kl_term: KLTerm = "unknown"
    is_bound: bool = False  # whether rollouts may be younger

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


def defaults_of(framework: str) -> dict[str, str]:
    """Return the settings of a framework's usual trainer where it is told nothing."""
    name = "trl" if framework == "unsloth" else framework
    usual = next((row["defaults"] for row in TRAINERS if row["framework"] == name), "")
    return dict(pair.split("=", 1) for pair in usual.split())
