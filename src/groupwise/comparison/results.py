"""What a comparison hands back: quantities of runs, contrasts; frozen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from groupwise.intervals import Interval
from groupwise.plain import Plain, frozen

Quantity = Literal["level", "speed"]
Status = Literal[
    "different", "not_separable", "seed_noise_unknown", "within_step_noise", "unavailable"
]
Method = Literal["welch", "pooled_t", "step_noise_alone", "none"]


def nothing(level: float = 0.95) -> Interval:
    """The interval of what is not known at all."""
    return Interval(math.nan, -math.inf, math.inf, level)


@frozen
class Measured(Plain):
    """One quantity of one run."""

    KEYS = ("*interval", "step_error", "problem")
    # the value, with what the noise of its steps leaves open; a time is infinite where the level is
    # not held by the end
    interval: Interval
    step_error: float  # standard error by the noise of the steps alone
    problem: str = ""  # why there is no value, or none to be compared; "" where there is

    @property
    def value(self) -> float:
        """The estimate."""
        return self.interval.value

    @property
    def usable(self) -> bool:
        """Whether there is a value to be compared, be it infinite."""
        return not self.problem and not math.isnan(self.value)


def missing(problem: str, *, level: float = 0.95) -> Measured:
    """Return a quantity that could not be measured, and why."""
    return Measured(nothing(level), math.nan, problem)


@frozen
class SeedNoise(Plain):
    """How much runs of one setting differ by their seeds, beyond the noise of their steps."""

    KEYS = ("deviation", "freedom", "step_deviation")
    deviation: Interval  # standard deviation of the runs' true values, with its interval
    freedom: int  # degrees of freedom that it rests on; 0 where every group has one run
    # variance of the measured values within the groups, seeds and steps together; nan without
    # freedom
    between: float
    step: float  # mean variance of a run's value by its steps alone

    @property
    def step_deviation(self) -> float:
        """Standard deviation of a run's value by its steps alone."""
        return math.sqrt(self.step)


@frozen
class Contrast(Plain):
    """One quantity of one group of runs against that of another."""

    quantity: Quantity  # level, or speed (a time: less is faster)
    status: Status  # what can be said
    message: str  # why it is unavailable, or how many runs hold the level; else ""
    # second minus first, with its interval; over step noise alone where seeds are unknown
    difference: Interval
    method: Method = "none"  # how the interval was made
    runs: tuple[int, int] = (0, 0)  # how many of each group took part
    # runs a group that would find this difference 8 times in 10; None: unknown
    seeds_needed: int | None = None
    p_value: float = math.nan  # two-sided, of no difference; nan where seed noise is unknown
    adjusted_p: float = math.nan  # after Holm, over all contrasts of the comparison
    freedom: float = math.nan  # degrees of freedom; nan without
    step_error: float = math.nan  # standard error of the difference by step noise alone
    # difference that so many runs would find 8 times in 10, beside the other contrasts; nan where
    # the metric cannot differ by so much
    minimum_detectable: float = math.nan
    largest_seed_deviation: float = (
        math.nan
    )  # with unknown seed noise, the spread of seeds up to which the difference would be real


@frozen
class Pairing:
    """One group held against the first."""

    first: int  # index of the group compared with
    second: int  # index of the group
    contrasts: tuple[Contrast, ...]  # level and speed, in this order


@frozen
class Comparison:
    """Groups of runs compared, each with the first."""

    pairings: tuple[Pairing, ...]  # one a group but the first
    measured: Mapping[
        Quantity, Sequence[Sequence[Measured]]
    ]  # quantity -> for each group one value a run
    seed_noise: Mapping[Quantity, SeedNoise]  # quantity -> spread of the seeds, from all groups
    late_from: float  # first step of the late window
    late_to: float  # last step that all runs have, up to which a level has to be held
    reach: float  # the level that speed is the time to; nan where there is none
    # coverage of the intervals; 1 minus it is the false-alarm rate of all contrasts together
    level: float
    bounds: tuple[
        float, float
    ]  # the range of the metric, which no interval leaves; infinite where it is not known
