"""Runs compared: each judged by itself, then held against the others.

The result is data, and an answer in words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from groupwise.analysis.compare_answer import TRAILING, ComparedGroup, ComparedRun, answered, noted
from groupwise.analysis.fitted import cut
from groupwise.analysis.run_groups import (
    RunGroup,
    differing_settings,
    grouped_by,
    named_apart,
    record_of_numbers,
    short_name,
    typed_groups,
)
from groupwise.analysis.siblings import Separation, outcome, separation
from groupwise.comparison.compare import Question, not_compared
from groupwise.comparison.compare import compare as compare_curves
from groupwise.comparison.curves import FEWEST_ROWS, Curve, curve
from groupwise.comparison.results import Comparison
from groupwise.diagnostics.judge import judge
from groupwise.diagnostics.judgement import Judgement
from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.plain import Said, frozen
from groupwise.record.run import RunRecord
from groupwise.series.metric import MetricSeries, metric_series
from groupwise.wording import clean

Run = RunRecord | str | Path | Sequence[float] | NDArray[Any]
# of the longest run: one that ends before is shown, and does not cut the others down to its steps
_SHORT = 0.5


@frozen
class RunComparison(Said):
    """Groups of runs with what was found.

    Args:
        metric: the log's own key, of the first run.
        groups: the groups, each run with its judgement.
        curves: of each group that is compared one curve a run.
        found: the comparison.
        answer: what it comes to, in a sentence or two.
        differing: settings in which the groups differ, besides those that sort them.
        notes: what to know besides.
        separates: the setting that separates the runs that learnt from those that did not, or None.

    Example:
        >>> print(compare([0.2, 0.8] * 20, [0.8, 0.2] * 20))
        run 2 cannot be told from run 1 beyond the noise of steps: 0.50 against 0.50 over steps
            30-40, difference 0.00 (−0.28 to 0.28).
    """

    KEYS = (
        "answer=sentence",
        "metric",
        "level=found.level",
        "late_from=found.late_from",
        "late_to=found.late_to",
        "reach=found.reach",
        "bounds=found.bounds",
        "groups",
        "seed_noise=found.seed_noise",
        "comparisons",
        "notes",
        "separates",
    )

    metric: str
    groups: tuple[ComparedGroup, ...]
    curves: tuple[tuple[Curve, ...], ...]
    found: Comparison
    answer: tuple[str, ...]
    differing: tuple[str, ...]
    notes: tuple[str, ...]
    separates: Separation | None = None

    def __str__(self) -> str:
        """The answer."""
        return self.sentence

    @property
    def sentence(self) -> str:
        """The answer in one line."""
        return " ".join(self.answer)

    def name(self, place: int) -> str:
        """Name of a group that is compared."""
        return next(group.name for group in self.groups if group.place == place)

    @property
    def comparisons(self) -> list[dict[str, Any]]:
        """The contrasts of every pair of groups."""
        return [
            {
                "first": self.name(pairing.first),
                "second": self.name(pairing.second),
                "contrasts": pairing.contrasts,
            }
            for pairing in self.found.pairings
        ]


def compare(
    *runs: Run | Sequence[Run],
    metric: str = "reward",
    by: str | None = None,
    baseline: str | None = None,
    until: float | None = None,
    question: Question | None = None,
) -> RunComparison:
    """Judge runs and compare them: did one fail, is the difference of the others real?

    Args:
        runs: each a record, a path, the values of a metric (at steps 1, 2, ...), or an array of two
            rows, steps and values; a list of them is one group. A path to a file of several runs
            stands for all of them.
        metric: a key of the logs, or a canonical quantity.
        by: a setting or a column whose values are the groups.
        baseline: the value of `by` that the others are compared with; by default the smallest.
        until: use nothing after this step.
        question: window, level to hold, coverage.

    Returns:
        The judgement of every run, contrasts of the groups with intervals, and the answer as
        sentences; `print` shows it.

    Raises:
        InvalidArgumentError: fewer than two runs, or groups that the arguments do not tell apart.
        InsufficientDataError: a group has no row of the metric.
        UnreadableRunError: a path holds no log that can be read.

    Example:
        >>> rise = [0.5 - 0.4 * 0.9**t + 0.01 * (-1) ** t for t in range(60)]
        >>> found = compare(rise, rise[:40] + [0.0] * 20)
        >>> [group.runs[0].judgement.state.value for group in found.groups]
        ['ok', 'failed']
        >>> print(found)
        run 2 failed, run 1 did not: run 2 ends at 0.00, run 1 ends at 0.50 (means of their last
            rows).
    """
    arguments = [_members(run) for run in runs]
    counted = iter(range(1, 1 + sum(map(len, arguments))))
    rows = [
        [record for run in row for record in _records(run, metric, f"run {next(counted)}", by)]
        for row in arguments
    ]
    groups = groups_of(rows, by, baseline)
    return compare_runs(groups, metric, question or Question(), until=until, sorted_by=by)


def groups_of(
    rows: Sequence[Sequence[RunRecord]], by: str | None, baseline: str | None
) -> list[RunGroup]:
    """Return groups as typed, of one row each run by itself, or by a setting."""
    every = named_apart([record for row in rows for record in row])
    if len(rows) < 2 and len(every) < 2:
        raise InvalidArgumentError(
            f"expected two runs or more, got {len(every)}: give A B, A1 A2 vs B1 B2, or a table of "
            "runs with --by COLUMN; in Python compare(a, b), or compare([a1, a2], [b1, b2])"
        )
    if by is not None:
        return grouped_by(every, by, baseline=baseline)
    named = iter(every)
    sizes = [1] * len(every) if len(rows) == 1 else map(len, rows)
    return typed_groups([list(islice(named, size)) for size in sizes])


def _members(run: Run | Sequence[Run]) -> list[Run]:
    """The runs of a list, or the one run; a list of numbers is the values of one."""
    several = isinstance(run, list | tuple) and not all(
        isinstance(item, int | float | np.number) for item in run
    )
    return list(cast("Sequence[Run]", run)) if several else [cast("Run", run)]


def _records(run: Run, metric: str, name: str, by: str | None) -> list[RunRecord]:
    """The records of what a user calls a run."""
    from groupwise.readers import open_runs

    if isinstance(run, RunRecord):
        return [run]
    if isinstance(run, str | Path):
        return open_runs(run, by=by or "")
    return [record_of_numbers(run, metric, name)]


def compare_runs(
    groups: Sequence[RunGroup],
    metric: str,
    question: Question,
    *,
    until: float | None = None,
    sorted_by: str | None = None,
    step: Callable[[str], None] = lambda _: None,
) -> RunComparison:
    """Judge every run, fit it, and compare the groups."""
    rows = [[_taken(record, metric, until, step) for record in group.runs] for group in groups]
    used = _leave_out(rows)
    _need_rows(rows, metric)
    compared = [[run for run in rows[g] if not run.left_out] for g in used]
    curves = tuple(map(_curves, compared))
    every = [run.series for row in compared or rows for run in row]
    question = _known_of(question, every)
    # The same runs give the same answer: what is drawn at random here is noise around given
    # curves.
    comparison = (
        compare_curves(curves, question, np.random.default_rng(20_240_501))
        if used
        else not_compared(question)
    )
    shown = _shown(groups, rows, used, comparison)
    differing, differ = differing_settings(groups, besides=[] if sorted_by is None else [sorted_by])
    notes = [*differ, *noted(shown, comparison)]
    notes += _key_notes({series.metric for series in every})
    separates = _separates([run for row in rows for run in row], sorted_by)
    answer = answered(shown, comparison)
    return RunComparison(
        every[0].metric,
        shown,
        curves,
        comparison,
        answer if separates is None else (*answer, separates.sentence),
        differing,
        tuple(notes),
        separates,
    )


def _separates(runs: Sequence[_Taken], *besides: str | None) -> Separation | None:
    """Return the setting, but for those that sort them, that separates runs that learnt from
    others.
    """
    settings = [
        {
            name: str(setting.value)
            for name, setting in run.record.config.known().items()
            if name not in ("seed", *besides)
        }
        for run in runs
    ]
    learnt = [outcome(run.judgement.state, run.judgement.learning) for run in runs]
    return separation(settings, learnt)


def _key_notes(keys: set[str]) -> list[str]:
    """Say under which keys the runs log the metric, where they are several."""
    listed = ", ".join(sorted(clean(key, longest=60) for key in keys))
    return [f"The runs log it under several keys: {listed}."] if len(keys) > 1 else []


def _need_rows(rows: Sequence[Sequence[_Taken]], metric: str) -> None:
    """Refuse a group of which no run logs the metric."""
    for row in rows:
        if not any(run.rows for run in row):
            what, name = clean(metric, longest=60), clean(row[0].record.name, longest=80)
            raise InsufficientDataError(
                f"expected rows of {what}, got none in {name}: give a run that logs it, or another "
                "metric with -m"
            )


def _known_of(question: Question, every: Sequence[MetricSeries]) -> Question:
    """The question with what the series know: which way is better, and the range of all."""
    ranges = [series.likely_bounds or (-math.inf, math.inf) for series in every]
    bounds = min(low for low, _ in ranges), max(high for _, high in ranges)
    return replace(question, rises=all(series.healthy == "up" for series in every), bounds=bounds)


@dataclass(slots=True, eq=False)
class _Taken:
    """One run as it goes into a comparison."""

    record: RunRecord  # up to the step that counts
    series: MetricSeries  # of the metric, on the clock of logged steps
    judgement: Judgement  # of the record
    window: float  # logged steps that a row averages over
    left_out: str = ""  # why it is not compared

    @property
    def rows(self) -> int:
        """Rows of the metric."""
        return len(self.series.value_T)

    @property
    def last_step(self) -> float:
        """The last step with a value."""
        return float(self.series.time_T[-1]) if self.rows else math.nan


def _taken(
    record: RunRecord, metric: str, until: float | None, step: Callable[[str], None]
) -> _Taken:
    """Take one run: its metric on the clock of logged steps, and its judgement."""
    step(record.name)
    cut_record = cut(record, until)
    judgement = judge(cut_record)
    column = judgement.metric if metric == "reward" and judgement.metric else metric
    series, updates = (
        metric_series(cut_record, column, clock="steps"),
        metric_series(cut_record, column),
    )
    spacing = float(np.median(np.diff(updates.time_T))) if updates.time_T.size > 1 else 1.0
    steps = float(np.median(np.diff(series.time_T))) if series.time_T.size > 1 else 1.0
    return _Taken(cut_record, series, judgement, max(1.0, series.window * steps / spacing))


def _leave_out(rows: Sequence[Sequence[_Taken]]) -> list[int]:
    """Say of runs why they are not compared, and return which groups are.

    Those with a run left, none where there is only one.
    """
    every = [run for row in rows for run in row]
    _say([run for run in every if run.rows < FEWEST_ROWS], "{run.rows} rows of {fewest} needed")
    longest = max((run.last_step for run in every if not run.left_out), default=math.nan)
    early = [
        run for run in every if run.last_step < _SHORT * longest
    ]  # the others would be cut down to their ends
    if len(_used(rows, early)) > 1:
        _say(early, "ends at step {run.last_step:,.0f}")
    used = _used(rows)
    return used if len(used) > 1 else []


def _say(runs: Sequence[_Taken], why: str) -> None:
    """Leave runs out for a reason, unless they are for another."""
    for run in runs:
        run.left_out = run.left_out or why.format(run=run, fewest=FEWEST_ROWS)


def _used(rows: Sequence[Sequence[_Taken]], without: Sequence[_Taken] = ()) -> list[int]:
    """Return which groups have a run that is not left out."""
    return [
        g
        for g, row in enumerate(rows)
        if any(not run.left_out and run not in without for run in row)
    ]


def _curves(row: Sequence[_Taken]) -> tuple[Curve, ...]:
    """The curves of a group's runs, each once.

    A run that comes again would count as a seed of its own that scatters not at all.
    """
    made: list[Curve] = []
    for run in row:
        series = run.series
        new = curve(
            series.time_T,
            series.value_T,
            variance_T=series.variance_T,
            window=run.window,
            smoothing=series.smoothing,
        )
        for other, earlier in zip(row, made, strict=False):
            if (
                np.array_equal(new.step_T, earlier.step_T)
                and np.array_equal(new.value_T, earlier.value_T)
                and np.ptp(new.value_T) > 0
            ):
                pair = (
                    f"{clean(other.record.name, longest=60)!r} and "
                    f"{clean(run.record.name, longest=60)!r}"
                )
                raise InvalidArgumentError(
                    f"expected runs of different seeds in a group; {pair} have the same values in "
                    "every row: leave out one"
                )
        made.append(new)
    return tuple(made)


def _shown(
    groups: Sequence[RunGroup],
    rows: Sequence[Sequence[_Taken]],
    used: Sequence[int],
    comparison: Comparison,
) -> tuple[ComparedGroup, ...]:
    """Every run with its judgement, and with what was measured of those that were compared."""
    shown = []
    for g, (group, row) in enumerate(zip(groups, rows, strict=True)):
        place = used.index(g) if g in used else None
        measured = (
            []
            if place is None
            else zip(
                comparison.measured["level"][place],
                comparison.measured["speed"][place],
                strict=True,
            )
        )
        each, runs = iter(measured), []
        for run in row:
            level, speed = (None, None) if run.left_out or place is None else next(each)
            label = group.name if len(row) == 1 else short_name(run.record.name)
            ends = run.judgement.now
            if ends is None or run.judgement.metric != run.series.metric:
                ends = float(run.series.value_T[-TRAILING:].mean()) if run.rows else math.nan
            runs.append(
                ComparedRun(
                    run.record.name,
                    label,
                    run.judgement,
                    run.rows,
                    run.last_step,
                    ends,
                    run.left_out,
                    level,
                    speed,
                )
            )
        shown.append(ComparedGroup(group.name, tuple(runs), place))
    return tuple(shown)
