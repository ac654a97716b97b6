r"""Groups of runs against the first of them: level, speed and first divergence, with one
false-alarm rate for all.

Every contrast with a p-value shares the rate by Holm's method: whatever is called different when
nothing differs is called so in at most 1 - level of all comparisons. Intervals are computed on the
whole line and cut to the range of the metric at the end, which leaves their coverage as it is
(`curves.within`). It opens no run and forms no groups.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from groupwise.comparison.contrasts import Setup, contrast, is_tested
from groupwise.comparison.curves import Curve, late_level, time_to, within
from groupwise.comparison.divergence import group_divergence, run_divergence
from groupwise.comparison.results import (
    Comparison,
    Contrast,
    Divergence,
    Measured,
    Pairing,
    Quantity,
    SeedNoise,
    missing,
)
from groupwise.comparison.seeds import seed_noise
from groupwise.errors import InvalidArgumentError
from groupwise.intervals import Interval, percent

Curves = Sequence[Sequence[Curve]]
QUANTITIES: tuple[Quantity, ...] = ("level", "speed")
_EARLY = 0.1
_MOVES = 5.0  # standard errors that a metric has to move by for a time to mean something


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """What is asked of the groups."""

    late: float = 0.25  # share of the common steps, at their end, whose mean is the level
    reach: float | None = None  # level that speed is the time to; None: half of the way
    effect: float | None = None  # smallest difference of levels that matters; None: the one found
    seed_deviation: float | None = None  # spread of seeds where it is known beforehand
    level: float = 0.95  # coverage of the intervals
    paired: bool = False  # whether run i of a group goes with run i of the first
    # whether the metric is to rise, as a reward is; then there is no time to a level that it falls
    # to
    rises: bool = False
    bounds: tuple[float, float] = (
        -math.inf,
        math.inf,
    )  # the range of the metric; infinite where it is not known

    def __post_init__(self) -> None:
        """Check the domains."""
        for name in ("late", "level"):
            if not 0 < getattr(self, name) < 1:
                raise InvalidArgumentError(
                    f"{name} is a share between 0 and 1; got {getattr(self, name):g}"
                )
        for name in ("effect", "seed_deviation"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise InvalidArgumentError(
                    f"{name.replace('_', ' ')} is a positive number; got {value:g}"
                )
        if self.reach is not None and not math.isfinite(self.reach):
            raise InvalidArgumentError(f"reach is a level of the metric; got {self.reach:g}")


def compare(groups: Curves, question: Question, rng: np.random.Generator) -> Comparison:
    """Compare every group with the first."""
    start, stop = _common_steps(groups)
    late_from = stop - question.late * (stop - start)
    level = [
        [late_level(run, late_from, stop, level=question.level) for run in group]
        for group in groups
    ]
    reach, speed = _speed(groups, level, start, stop, question, rng)
    measured: dict[Quantity, list[list[Measured]]] = {"level": level, "speed": speed}
    seeds = {
        quantity: seed_noise(values, level=question.level) for quantity, values in measured.items()
    }
    spans = {"level": question.bounds[1] - question.bounds[0], "speed": stop - start}
    setups = {
        quantity: _setup(quantity, seeds[quantity], question, spans[quantity])
        for quantity in QUANTITIES
    }
    pairings = _pairings(groups, measured, setups, question, rng)
    frozen = {
        quantity: tuple(tuple(group) for group in values) for quantity, values in measured.items()
    }
    frozen["level"] = tuple(
        tuple(
            dataclasses.replace(run, interval=within(run.interval, question.bounds))
            if run.usable
            else run
            for run in group
        )
        for group in level
    )
    return Comparison(
        pairings,
        frozen,
        seeds,
        float(late_from),
        float(stop),
        reach,
        question.level,
        question.paired,
        question.bounds,
    )


def _common_steps(groups: Curves) -> tuple[float, float]:
    """The first and the last step that all runs have."""
    if len(groups) < 2 or not all(groups):
        raise InvalidArgumentError(
            "a comparison needs at least two groups of at least one run each"
        )
    start = max(run.step_T[0] for group in groups for run in group)
    stop = min(run.step_T[-1] for group in groups for run in group)
    if not stop > start:
        raise InvalidArgumentError(
            f"the runs share no steps: one begins at step {start:g}, another ends at {stop:g}"
        )
    return start, stop


def not_compared(question: Question) -> Comparison:
    """The comparison of groups of which fewer than two have rows enough: no contrast, no window."""
    empty: dict[Quantity, tuple[tuple[Measured, ...], ...]] = {"level": (), "speed": ()}
    return Comparison(
        (),
        empty,
        {},
        math.nan,
        math.nan,
        math.nan,
        question.level,
        question.paired,
        question.bounds,
    )


def _speed(
    groups: Curves,
    level: Sequence[Sequence[Measured]],
    start: float,
    stop: float,
    question: Question,
    rng: np.random.Generator,
) -> tuple[float, list[list[Measured]]]:
    """The level to be reached, and the time of each run."""
    reach, falls = _target(groups, level, start, stop, question)
    if math.isnan(reach):
        moves = "rise" if question.rises else "move"
        none = missing(
            f"the metric does not {moves} by more than its noise, so there is no time to a level",
            level=question.level,
        )
        return math.nan, [[none for _ in group] for group in groups]
    sign = -1.0 if falls else 1.0
    turned = [
        [Curve(run.step_T, sign * run.value_T, sign * run.smooth_T) for run in group]
        for group in groups
    ]
    return reach, [
        [time_to(run, sign * reach, rng, last=stop, level=question.level) for run in group]
        for group in turned
    ]


def _target(
    groups: Curves,
    level: Sequence[Sequence[Measured]],
    start: float,
    stop: float,
    question: Question,
) -> tuple[float, bool]:
    """Half of the way from the common beginning to the nearest of the groups' late means that
    has moved; and whether it falls.
    """
    usable = [[run for run in row if run.usable] for row in level]
    late = [float(np.mean([run.value for run in row])) for row in usable if row]
    if not late:
        return math.nan, False
    early = _beginning(groups, start + _EARLY * (stop - start))
    goal = float(np.mean(late)) if question.reach is None else question.reach
    falls = not question.rises and goal < early
    if question.reach is not None:
        return question.reach, falls
    error = float(np.median([run.step_error for row in usable for run in row]))
    return early + _shortest_move(early, late, error, falls=falls) / 2, falls


def _shortest_move(early: float, late: Sequence[float], error: float, *, falls: bool) -> float:
    """The smallest of the moves from the beginning that is beyond noise, and beyond rounding;
    nan where there is none.
    """
    sign = -1 if falls else 1
    sizes = [sign * (end - early) for end in late]
    least = max(_MOVES * error, 1e-12 * abs(early))
    return sign * min((size for size in sizes if size > least), default=math.nan)


def _beginning(groups: Curves, until: float) -> float:
    """Mean over the runs of the mean of their rows up to a step, at least three."""
    return float(
        np.mean(
            [
                run.value_T[: max(3, int((run.step_T <= until).sum()))].mean()
                for group in groups
                for run in group
            ]
        )
    )


def _pairings(
    groups: Curves,
    measured: dict[Quantity, list[list[Measured]]],
    setups: dict[Quantity, Setup],
    question: Question,
    rng: np.random.Generator,
) -> tuple[Pairing, ...]:
    """Every group against the first, judged together."""
    asked = [
        (quantity, values[0], values[g])
        for g in range(1, len(groups))
        for quantity, values in measured.items()
    ]
    tests = sum(is_tested(first, second, setups[quantity]) for quantity, first, second in asked)
    setups = {
        quantity: dataclasses.replace(setup, tests=tests) for quantity, setup in setups.items()
    }
    raw = [
        contrast(quantity, first, second, setups[quantity], rng)
        for quantity, first, second in asked
    ]
    effects = {"level": question.effect, "speed": None}
    done = [
        judged(found, p, level=question.level, effect=effects[found.quantity], tests=tests)
        for found, p in zip(raw, holm([found.p_value for found in raw]), strict=True)
    ]
    pairings = []
    for g in range(1, len(groups)):
        contrasts = tuple(done[(g - 1) * len(QUANTITIES) : g * len(QUANTITIES)])
        parting = where_they_part(
            _divergence(groups[0], groups[g], question, share=len(groups) - 1), contrasts[0]
        )
        pairings.append(Pairing(0, g, contrasts, parting))
    return tuple(pairings)


def _setup(quantity: Quantity, seeds: SeedNoise, question: Question, span: float) -> Setup:
    """What a quantity is judged by: a time has no spread of seeds and no smallest difference in
    units of the metric.
    """
    if quantity == "speed":
        return Setup(question.level, question.paired, seeds, span=span)
    return Setup(
        question.level, question.paired, seeds, question.seed_deviation, question.effect, span=span
    )


def _divergence(
    first: Sequence[Curve], second: Sequence[Curve], question: Question, *, share: int
) -> Divergence:
    """Of two runs beyond step noise, of groups beyond seed noise; the rate is shared by all
    groups.
    """
    rate = (1 - question.level) / share
    if len(first) == 1 and len(second) == 1:
        return run_divergence(first[0], second[0], rate=rate)
    if min(len(first), len(second)) > 1:
        return group_divergence(first, second, rate=rate, paired=question.paired)
    said = "one group has one run: where it parts from the others beyond seed noise cannot be told"
    return Divergence("unavailable", said, rate, "seed_noise")


NAMES: dict[Quantity, str] = {"level": "late mean", "speed": "time to the level"}
_METHODS = {
    "welch": "Welch's t",
    "paired_t": "t of the pairs",
    "pooled_t": "t with the seed noise of all groups",
    "known_seed_noise": "the seed noise given",
    "rank_permutation": "relabelling of ranks",
}


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values by Holm's method; those that are not numbers stay and do not count.

    Source: Holm (1979), Scandinavian Journal of Statistics 6, 65-70.
    """
    known = sorted((p, i) for i, p in enumerate(p_values) if math.isfinite(p))
    out, running = list(p_values), 0.0
    for rank, (p, i) in enumerate(known):
        running = max(running, min(1.0, (len(known) - rank) * p))
        out[i] = running
    return out


def judged(
    found: Contrast, adjusted_p: float, *, level: float, effect: float | None, tests: int
) -> Contrast:
    """Give a contrast its status and its sentence."""
    status = found.status
    if status == "not_separable":
        inside = (
            effect is not None and -effect < found.difference.low and found.difference.high < effect
        )
        status = (
            "equivalent" if inside else "different" if adjusted_p < 1 - level else "not_separable"
        )
    found = dataclasses.replace(found, status=status, adjusted_p=adjusted_p)
    said = (
        f"The {NAMES[found.quantity]} "
        f"{_said(found, effect, f' after {tests} contrasts' if tests > 1 else '')}."
    )
    return dataclasses.replace(found, message=said)


def _said(found: Contrast, effect: float | None, after: str) -> str:
    """What a status says of its quantity; `after` tells how many contrasts share the false-alarm
    rate.
    """
    value, ranked = _value(found.difference), found.method == "rank_permutation"
    match found.status:
        case "different":
            chance = f"p {_p(found.adjusted_p)} by {_METHODS[found.method]}{after}"
            return (
                f"differs: {found.message} ({chance})"
                if ranked
                else f"differs beyond seed noise: {value}, {chance}"
            )
        case "equivalent":
            return f"is the same to within {_short(effect or 0)}: {value}"
        case "not_separable":
            chance = f"p {_p(found.adjusted_p)}{after}"
            return "is not separable from seed noise: " + (
                f"{found.message} ({chance})" if ranked else f"{value}, {chance}{_power(found)}"
            )
        case "seed_noise_unknown":
            real = (
                "the difference is real only if seeds of one setting differ by less than "
                f"{_short(found.largest_seed_deviation)}"
            )
            bound = (
                f": {real} (standard deviation)"
                if math.isfinite(found.largest_seed_deviation)
                else ""
            )
            noise = "step noise alone. With one seed each, seed noise is unknown"
            return f"differs by more than the noise of the steps: {value}, {noise}{bound}"
        case "within_step_noise":
            noise = "step noise alone; seed noise, unknown with one seed each, comes on top"
            return f"is not separable even from the noise of the steps: {value}, {noise}"
        case "unavailable":
            return f"cannot be compared: {found.message}"


def _power(found: Contrast) -> str:
    """What so many runs would find, and how many the difference takes."""
    if not (math.isfinite(found.minimum_detectable) or found.seeds_needed):
        return ""
    runs = (
        f"{found.runs[0]} pairs"
        if found.method == "paired_t"
        else f"{found.runs[0]} and {found.runs[1]} runs"
    )
    said = f". {runs} would find no difference that is possible"
    if math.isfinite(found.minimum_detectable):
        said = (
            f". {runs} would find a difference of {_short(found.minimum_detectable)} 8 times in 10"
        )
    return said + (
        f"; one of {_short(found.asked)} needs about {found.seeds_needed} a group"
        if found.seeds_needed
        else ""
    )


def where_they_part(found: Divergence, level: Contrast) -> Divergence:
    """Of curves whose late means differ, "no divergence" would be wrong: only the step at which
    they part cannot be told.
    """
    if found.status != "none" or level.status not in ("different", "seed_noise_unknown"):
        return found
    return dataclasses.replace(
        found,
        status="unavailable",
        message="The late means differ; from which step on cannot be told.",
    )


def _value(interval: Interval) -> str:
    """A signed value with its interval."""
    sign = "+" if interval.value >= 0 else ""
    if not interval.bounded:
        return f"{sign}{_short(interval.value)} ({percent(interval.level)} interval without limit)"
    return (
        f"{sign}{_short(interval.value)} ({percent(interval.level)} interval "
        f"{_short(interval.low)} to {_short(interval.high)})"
    )


def _short(value: float) -> str:
    """A number with three digits."""
    text = f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return text.replace("-", "−")


def _p(value: float) -> str:
    """A p-value."""
    return "< 0.0001" if value < 1e-4 else f"{value:.2g}"
