r"""Baselines with a memory: a prompt's value carried over from the steps in which it was seen before.

The advantage is the reward above what the earlier steps say about the prompt. No rollout of the present group enters, so given the
past the baseline is fixed and nothing is biased, however bad the guess; and a group of one is enough. Both kinds have one life: ask for
`advantages` of a step, then `update` with its rewards. Neither saves itself, and neither looks at the policy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np

from groupwise.arrays import Float
from groupwise.errors import InvalidArgumentError
from groupwise.estimators.rollout_groups import Array, RolloutGroups, rollout_groups, to_numpy


class DynamicBaseline(ABC):
    """What both kinds share: an unseen prompt takes the value of all prompts, and the past alone is asked."""

    def __init__(self, *, prior_rollouts: float = 4.0, initial: float = 0.0) -> None:
        if not 0 <= prior_rollouts < np.inf or not np.isfinite(initial):
            raise InvalidArgumentError(
                f"expected prior_rollouts of 0 or more and a finite initial value, got {prior_rollouts} and {initial}: 4 and 0 will do"
            )
        self.prior_rollouts = float(prior_rollouts)
        self.initial = float(initial)
        self._last_step = -np.inf

    def values(self, prompt: Any, *, step: float) -> Float:
        """Return the value of every prompt as the earlier steps have it, float64, reward units."""
        labels, place = np.unique(to_numpy(prompt), return_inverse=True)
        count, total = self._everyone(step)
        everyone = total / count if count > 0 else self.initial
        value_P = np.full(len(labels), everyone)
        for i, label in enumerate(labels.tolist()):
            count, total = self._one(label, step)
            if count > 0:
                value_P[i] = (total + self.prior_rollouts * everyone) / (count + self.prior_rollouts)
        return value_P[place]

    def advantages(self, reward: Array, prompt: Any, *, step: float) -> Array:
        """Return the rewards above their prompts' values."""
        groups = self._groups(reward, prompt)
        if step <= self._last_step:
            raise InvalidArgumentError(
                f"expected a step after {self._last_step:g}, the last that this baseline was updated with, got {step:g}: "
                "ask for the advantages first and update after, or they are biased"
            )
        value_N = self.values(groups.label_N, step=step).reshape(tuple(groups.reward.shape))
        return groups.reward - groups.matched("value", value_N)

    def update(self, reward: Array, prompt: Any, *, step: float) -> None:
        """Take in the rewards of a step."""
        groups = self._groups(reward, prompt)
        if step < self._last_step:
            raise InvalidArgumentError(f"expected steps in order, got {step:g} after {self._last_step:g}: sort them first")
        labels, place = np.unique(groups.label_N, return_inverse=True)
        count_P = np.bincount(place).astype(np.float64)
        total_P = np.bincount(place, weights=to_numpy(groups.flat).astype(np.float64))
        self._take(dict(zip(labels.tolist(), zip(count_P.tolist(), total_P.tolist(), strict=True), strict=True)), step)
        self._last_step = step

    def _groups(self, reward: Array, prompt: Any) -> RolloutGroups:
        """The rewards with their labels, which a rectangle needs here too."""
        if prompt is None:
            raise InvalidArgumentError("expected prompt labels, got none: a value is carried over by the label of its prompt")
        return rollout_groups(reward, prompt)

    @abstractmethod
    def _everyone(self, step: float) -> tuple[float, float]:
        """Weight and weighted sum of all rewards seen."""

    @abstractmethod
    def _one(self, label: Hashable, step: float) -> tuple[float, float]:
        """Weight and weighted sum of one prompt's rewards."""

    @abstractmethod
    def _take(self, sums: dict[Hashable, tuple[float, float]], step: float) -> None:
        """Take in count and sum of each prompt's rewards in one step."""


class RunningBaseline(DynamicBaseline):
    r"""A mean of the prompt's earlier rewards whose weight decays with every visit.

    $V = (S + k \bar V)/(W + k)$ with $S \leftarrow \rho S + \sum_i z_i$, $W \leftarrow \rho W + G$ at every visit, and $\bar V$ the same
    mean over all prompts, which decays with every step.

    Source: derived here.

    Example:
        >>> baseline = RunningBaseline(decay=0.5, prior_rollouts=0)
        >>> baseline.update([[1.0, 0.0]], ["a"], step=1)
        >>> baseline.advantages([[1.0, 1.0], [1.0, 0.0]], ["a", "new"], step=2).tolist()
        [[0.5, 0.5], [0.5, -0.5]]
    """

    def __init__(self, *, decay: float = 0.9, prior_rollouts: float = 4.0, initial: float = 0.0) -> None:
        super().__init__(prior_rollouts=prior_rollouts, initial=initial)
        if not 0 <= decay <= 1:
            raise InvalidArgumentError(f"expected a decay between 0 and 1, got {decay}: 0.9 remembers about ten visits")
        self.decay = float(decay)
        self._sums: dict[Hashable, tuple[float, float]] = {}
        self._total = (0.0, 0.0)

    def _everyone(self, step: float) -> tuple[float, float]:  # noqa: ARG002 - the memory counts visits, not steps
        return self._total

    def _one(self, label: Hashable, step: float) -> tuple[float, float]:  # noqa: ARG002
        return self._sums.get(label, (0.0, 0.0))

    def _take(self, sums: dict[Hashable, tuple[float, float]], step: float) -> None:  # noqa: ARG002
        for label, new in sums.items():
            old = self._sums.get(label, (0.0, 0.0))
            self._sums[label] = (self.decay * old[0] + new[0], self.decay * old[1] + new[1])
        count, total = (sum(new[i] for new in sums.values()) for i in (0, 1))
        self._total = (self.decay * self._total[0] + count, self.decay * self._total[1] + total)


@dataclass(frozen=True, slots=True)
class _Visit:
    """Count and sum of rewards seen in one step."""

    step: float
    count: float
    total: float


class KernelBaseline(DynamicBaseline):
    r"""A mean of the prompt's earlier rewards, weighted by how few steps ago they were.

    $V(t) = \frac{\sum_{u<t} K(\frac{t-u}{h}) \sum_i z_{ui} + k\bar V(t)}{\sum_{u<t} K(\frac{t-u}{h})\, G_u + k}$ with Epanechnikov's
    $K(x) = 1 - x^2$ below 1 and 0 above; of each prompt no more than h steps are kept.

    Source: derived here: the kernel mean of Nadaraya and Watson, of the past only.

    Example:
        >>> baseline = KernelBaseline(bandwidth=10, prior_rollouts=0)
        >>> baseline.update([[1.0, 0.0]], ["a"], step=1)
        >>> baseline.advantages([[1.0, 1.0]], ["a"], step=2).tolist()
        [[0.5, 0.5]]
    """

    def __init__(self, *, bandwidth: float = 100.0, prior_rollouts: float = 4.0, initial: float = 0.0) -> None:
        super().__init__(prior_rollouts=prior_rollouts, initial=initial)
        if not 0 < bandwidth < np.inf:
            raise InvalidArgumentError(f"expected a positive bandwidth in steps, got {bandwidth}: 100 looks back a hundred steps")
        self.bandwidth = float(bandwidth)
        self._visits: dict[Hashable, deque[_Visit]] = {}
        self._all: deque[_Visit] = deque()

    def _everyone(self, step: float) -> tuple[float, float]:
        return self._smooth(self._all, step)

    def _one(self, label: Hashable, step: float) -> tuple[float, float]:
        return self._smooth(self._visits.get(label, ()), step)

    def _smooth(self, visits: Any, step: float) -> tuple[float, float]:
        """Weight and weighted sum of some visits."""
        weights = [(max(1 - ((step - visit.step) / self.bandwidth) ** 2, 0.0), visit) for visit in visits]
        return sum(weight * visit.count for weight, visit in weights), sum(weight * visit.total for weight, visit in weights)

    def _take(self, sums: dict[Hashable, tuple[float, float]], step: float) -> None:
        for label, (count, total) in sums.items():
            self._keep(self._visits.setdefault(label, deque()), _Visit(step, count, total))
        self._keep(self._all, _Visit(step, sum(new[0] for new in sums.values()), sum(new[1] for new in sums.values())))

    def _keep(self, visits: deque[_Visit], visit: _Visit) -> None:
        """Add a visit and forget those that no later step can see."""
        visits.append(visit)
        while visits[0].step <= visit.step - self.bandwidth:
            visits.popleft()


def history(reward: Array, prompt: Any = None, *, baseline: DynamicBaseline, step: float) -> Array:
    r"""The reward above what earlier steps say about its prompt.

    $A_i = z_i - \hat V(x; \text{steps before } t)$

    Source: derived here.

    Example:
        >>> history([[1.0, 0.0]], ["a"], baseline=RunningBaseline(initial=0.5), step=1).tolist()
        [[0.5, -0.5]]
    """
    return baseline.advantages(reward, prompt, step=step)
