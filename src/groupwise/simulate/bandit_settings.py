r"""What a simulated training run is: the bandit, and how it is trained.

One prompt with A arms, a softmax policy with a logit for each, a fixed reward for each, and a reference policy that a KL term pulls to.
Suffixes of all `bandit_*` modules: `A` arms, `S` replicates (independent runs), `T` records, `P` groups of one update, `M` count vectors.
It checks settings; it runs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from groupwise.arrays import finite_array
from groupwise.errors import InvalidArgumentError

Float = NDArray[np.floating[Any]]

AdvantageName = Literal["vanilla", "full_group_mean", "leave_one_out", "std_normalised", "batch_std"]
LagName = Literal["none", "fixed", "refresh", "async"]
RatioName = Literal["none", "exact", "clipped"]
OptimizerName = Literal["sgd", "adam"]
KlPlace = Literal["loss", "reward"]

_LARGEST_REWARD = 1e100
_MOST_LAG = 100_000
_MOST_ROLLOUTS = 65_536


@dataclass(frozen=True, slots=True)
class Bandit:
    r"""One prompt with A arms, $\pi_a \propto e^{l_a}$; the objective is $\sum_a\pi_a r_a - \beta\,KL(\pi\|\pi_{ref})$.

    Two arms with $\theta = l_1 - l_0$ are the one-parameter bandit, $p = \sigma(\theta)$: there $\dot\theta = 2p(1-p)[r_1 - r_0 -
    \beta(\theta - \theta_0)]$. Make one with `bandit`, which checks.
    """

    reward_A: NDArray[np.float64]  # reward of each arm, reward units
    reference_A: NDArray[np.float64]  # the reference policy, probabilities
    kl_weight: float = 0.0  # beta, reward units a nat

    @property
    def arms(self) -> int:
        """How many arms there are."""
        return len(self.reward_A)


def bandit(reward_A: ArrayLike, *, reference_A: ArrayLike | None = None, kl_weight: float = 0.0) -> Bandit:
    """Return a bandit whose arms and weights have been checked."""
    reward = finite_array("reward_A", reward_A, dimensions=1)
    arms = len(reward)
    if arms < 2:
        raise InvalidArgumentError(f"expected at least 2 arms, got {arms}: give one reward for each")
    if np.abs(reward).max() > _LARGEST_REWARD:
        raise InvalidArgumentError(f"expected rewards of at most {_LARGEST_REWARD:g} in size, got {_shown(reward)}: use a larger unit")
    if np.ptp(reward) == 0:
        raise InvalidArgumentError(f"expected rewards that differ, got {reward[0]:g} for every arm: with equal rewards nothing is learned")
    reference = np.full(arms, 1 / arms) if reference_A is None else finite_array("reference_A", reference_A, dimensions=1)
    if reference.shape != reward.shape or (reference <= 0).any() or abs(reference.sum() - 1) > 1e-9:
        raise InvalidArgumentError(
            f"expected {arms} positive probabilities that sum to 1 as the reference policy, got {_shown(reference)}: give one an arm"
        )
    if not (np.isfinite(kl_weight) and kl_weight >= 0):
        raise InvalidArgumentError(f"expected a KL weight of at least 0, got {kl_weight}: 0 leaves the term out")
    return Bandit(reward, reference, float(kl_weight))


def _shown(values: NDArray[np.float64]) -> str:
    """The first few numbers of a vector."""
    return ", ".join(f"{value:g}" for value in values[:6]) + (", ..." if len(values) > 6 else "")


@dataclass(frozen=True, slots=True)
class Training:
    r"""How the policy is trained; every update takes P groups of G rollouts from the sampling policy.

    SGD is heavy ball, $v \leftarrow \mu v + \eta\hat g$, $l \leftarrow l + v$. Adam has $\beta_1 = \mu$ and corrects both moments for
    their start at zero.
    """

    learning_rate: float  # eta, positive
    group_size: int = 8  # G, rollouts of a group
    prompts: int = 1  # P, groups of an update, all on the one prompt
    momentum: float = 0.0  # mu of heavy ball, or beta1 of Adam, in [0, 1)
    optimizer: OptimizerName = "sgd"  # "sgd" or "adam"
    beta2: float = 0.999  # of Adam, in [0, 1)
    epsilon: float = 1e-8  # of Adam, added to the root
    # which parameters sample. "none": the present ones; "fixed": those `interval` updates ago; "refresh": those
    # at the start of the block of `interval` updates; "async": those at the start of the block before it.
    # Before the first update, the first
    lag: LagName = "none"
    interval: int = 1  # updates, at least 1
    # importance weight of present over sampling policy: "none" (weight 1), "exact", or "clipped" as PPO's
    # surrogate
    ratio: RatioName = "none"
    clip: float = 0.2  # epsilon of PPO
    # "loss": the exact gradient of the KL of the present policy; "reward": $-\beta\ln(\pi_a/\pi_{ref,a})$ of
    # the sampling policy is added to the reward of every rollout, and is as stale as that
    kl_place: KlPlace = "loss"
    # what a rollout's score is multiplied by. The deviation of "std_normalised" is that of the group, of
    # "batch_std" that of all rewards of the update, both with ddof 1; `deviation_floor` is added to it
    advantage: AdvantageName = "leave_one_out"
    deviation_floor: float = 1e-4  # added to the deviation, reward units

    def __post_init__(self) -> None:
        """Refuse what is outside its domain, in a sentence."""
        _named("advantage", self.advantage, get_args(AdvantageName))
        _named("lag kind", self.lag, get_args(LagName))
        _named("importance ratio", self.ratio, get_args(RatioName))
        _named("optimizer", self.optimizer, get_args(OptimizerName))
        _named("place of the KL term", self.kl_place, get_args(KlPlace))
        _number("learning rate", self.learning_rate, "above 0", low_open=True)
        _number("momentum", self.momentum, "from 0 to below 1", high=1.0)
        _number("beta2", self.beta2, "from 0 to below 1", high=1.0)
        _number("epsilon", self.epsilon, "of at least 0")
        _number("clip", self.clip, "above 0 and below 1", low_open=True, high=1.0)
        _number("deviation floor", self.deviation_floor, "of at least 0")
        _whole("group size", self.group_size, 1 if self.advantage in ("vanilla", "full_group_mean") else 2)
        _whole("number of prompts a step", self.prompts, 1)
        if self.prompts * self.group_size > _MOST_ROLLOUTS:
            raise InvalidArgumentError(
                f"expected at most {_MOST_ROLLOUTS} rollouts an update, got {self.prompts} x {self.group_size}: take fewer prompts"
            )
        _whole("interval", self.interval, 1, most=_MOST_LAG)

    @property
    def centred(self) -> bool:
        """Whether the advantages of a group sum to zero, so that the score's mean does not matter."""
        return self.advantage != "vanilla"


def _named(what: str, name: str, names: tuple[str, ...]) -> None:
    """Refuse a name that is not among the known ones."""
    if name not in names:
        raise InvalidArgumentError(f"expected a known {what}, got {str(name)[:60]!r}: use one of {', '.join(names)}")


def _article(noun: str) -> str:
    """Return the article of a noun."""
    return "an" if noun[0] in "aeiou" else "a"


def _number(what: str, value: float, domain: str, *, low_open: bool = False, high: float = np.inf) -> None:
    """Refuse a number below zero, or zero where that is out, or at its upper end and beyond, or none at all."""
    if isinstance(value, bool) or not np.isfinite(value) or value < 0 or (low_open and value == 0) or value >= high:
        raise InvalidArgumentError(f"expected {_article(what)} {what} {domain}, got {value}")


def _whole(what: str, value: int, least: int, *, most: int | None = None) -> None:
    """Refuse anything but a whole number of its range."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InvalidArgumentError(f"expected {_article(what)} {what} of at least {least}, got {value}: give a whole number")
    if most is not None and value > most:
        raise InvalidArgumentError(f"expected {_article(what)} {what} of at most {most}, got {value}: older parameters are not kept")
