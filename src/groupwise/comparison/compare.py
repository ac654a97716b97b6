r"""Groups of runs against the first of them, with one false-alarm rate for all.

Every contrast with a p-value shares the rate by Holm's method: whatever is called different when
nothing differs is called so in at most 1 - level of all comparisons. Intervals are computed on the
whole line and cut to the range of the metric at the end, which leaves their coverage as it is
(`curves.within`). It opens no run and forms no groups.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from groupwise.comparison.contrasts import Setup, contrast, is_tested
from groupwise.comparison.curves import Curve, late_level, time_to, within
from groupwise.comparison.results import Comparison, Contrast, Measured, Pairing, Quantity, missing
from groupwise.comparison.seeds import seed_noise
from groupwise.errors import InvalidArgumentError
from groupwise.plain import frozen

Curves = Sequence[Sequence[Curve]]
QUANTITIES: tuple[Quantity, ...] = ("level", "speed")
_EARLY = 0.1
_MOVES = 5.0  # standard errors that a metric has to move by for a time to mean something


@frozen
class Question:
    """What is asked of the groups."""

    late: float = 0.25  # share of the common steps, at their end, whose mean is the level
    reach: float | None = None  # level that speed is the time to; None: half of the way
    level: float = 0.95  # coverage of the intervals
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
        quantity: Setup(question.level, seeds[quantity], span=spans[quantity])
        for quantity in QUANTITIES
    }
    pairings = _pairings(groups, measured, setups, question)
    measured["level"] = [
        [
            replace(run, interval=within(run.interval, question.bounds)) if run.usable else run
            for run in group
        ]
        for group in level
    ]
    return Comparison(
        pairings,
        measured,
        seeds,
        float(late_from),
        float(stop),
        reach,
        question.level,
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
    return Comparison(
        (),
        {"level": (), "speed": ()},
        {},
        math.nan,
        math.nan,
        math.nan,
        question.level,
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
    """Half of the way to the nearest late mean that has moved; and whether it falls."""
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
    """The smallest move from the beginning that is beyond noise and rounding; nan for none."""
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
) -> tuple[Pairing, ...]:
    """Every group against the first, judged together."""
    requests = [
        (quantity, values[0], values[g])
        for g in range(1, len(groups))
        for quantity, values in measured.items()
    ]
    tests = sum(is_tested(first, second, setups[quantity]) for quantity, first, second in requests)
    setups = {quantity: replace(setup, tests=tests) for quantity, setup in setups.items()}
    raw = [
        contrast(quantity, first, second, setups[quantity]) for quantity, first, second in requests
    ]
    adjusted = holm([contrast_made.p_value for contrast_made in raw])
    done = [with_status(*each, level=question.level) for each in zip(raw, adjusted, strict=True)]
    pairings = []
    for g in range(1, len(groups)):
        contrasts = tuple(done[(g - 1) * len(QUANTITIES) : g * len(QUANTITIES)])
        pairings.append(Pairing(0, g, contrasts))
    return tuple(pairings)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values by Holm's method; those that are not numbers stay and do not count.

    Source: Holm (1979), Scandinavian Journal of Statistics 6, 65-70.
    """
    finite = sorted((p, i) for i, p in enumerate(p_values) if math.isfinite(p))
    out, running = list(p_values), 0.0
    for rank, (p, i) in enumerate(finite):
        running = max(running, min(1.0, (len(finite) - rank) * p))
        out[i] = running
    return out


def with_status(contrast: Contrast, adjusted_p: float, *, level: float) -> Contrast:
    """Say of a contrast whether it is beyond noise, by the p-value that counts all of them."""
    status = contrast.status
    if status == "not_separable" and adjusted_p < 1 - level:
        status = "different"
    return replace(contrast, status=status, adjusted_p=adjusted_p)
