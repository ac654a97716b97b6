"""Runs sorted into groups and compared: what is found as data and a chart.

Groups are as they were typed, or by a setting that is looked for in a run's configuration and then in its name, as `rho0.50_seed42`
says rho and seed. The mathematics of the comparison is in `comparison`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from os.path import commonprefix
from typing import Any

import numpy as np

from groupwise.analysis.charts import Chart, Line, Mark, Role, abscissae, averages, rounded
from groupwise.analysis.fitted import cut
from groupwise.comparison.compare import Question, compare
from groupwise.comparison.curves import Curve, curve
from groupwise.comparison.results import Comparison, Pairing, SeedNoise
from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.intervals import Interval, percent
from groupwise.plain import plain
from groupwise.record.run import RunRecord
from groupwise.record.settings import RULES
from groupwise.wording import clean, count, number

_LONGEST = 48


@dataclass(frozen=True, slots=True)
class RunGroup:
    """Runs of one setting."""

    name: str  # what they are called
    runs: tuple[RunRecord, ...]  # the runs


def setting_of(record: RunRecord, key: str) -> str | None:
    """Return what a run says of a setting."""
    value = record.config.value(key) if key in RULES else None
    if value is None:
        # After the key a number, or a word behind = or a dash: `lr=1e-5`, `seed42`, `loss-dapo`.
        number = r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"
        found = re.search(rf"(?:^|[^A-Za-z]){re.escape(key)}(?:[=_-]?({number})|[=-]([A-Za-z][\w.]*))", record.name)
        value = None if found is None else found[1] or found[2]
    return None if value is None else _plain(str(value))


def _plain(text: str) -> str:
    """A number in its shortest form, so that 0.50 and 0.5 are one setting; any other text as it is."""
    with suppress(ValueError):
        return f"{float(text):.12g}"
    return text


def _order(text: str) -> tuple[int, float, str]:
    """Numbers by size, then texts by alphabet."""
    with suppress(ValueError):
        return 0, float(text), text
    return 1, 0.0, text


def grouped_by(records: Sequence[RunRecord], key: str, *, baseline: str | None = None) -> list[RunGroup]:
    """Sort runs into groups by a setting."""
    found: dict[str, list[RunRecord]] = {}
    for record in records:
        value = setting_of(record, key)
        if value is None:
            raise InvalidArgumentError(
                f"--by {key[:40]} expects a setting that every run says in its settings or its name; "
                f"{clean(record.name, longest=60)!r} does not: name it in the run's name, or put groups apart with vs"
            )
        found.setdefault(value, []).append(record)
    if len(found) < 2:
        raise InvalidArgumentError(f"--by {key[:40]} expects runs that differ in it; all {len(records)} have {next(iter(found))[:40]}")
    order = sorted(found, key=_order)
    if baseline is not None:
        first = _plain(baseline)
        if first not in found:
            raise InvalidArgumentError(f"--baseline expects one of {', '.join(order)}; got {baseline[:40]!r}")
        order = [first, *(value for value in order if value != first)]
    return [RunGroup(clean(f"{key} {value}", longest=_LONGEST), tuple(found[value])) for value in order]


def typed_groups(records: Sequence[Sequence[RunRecord]]) -> list[RunGroup]:
    """Name groups of runs as they were typed."""
    names = [_common([record.name for record in row]) for row in records]
    groups = []
    for place, (name, row) in enumerate(zip(names, records, strict=True), start=1):
        own = name
        if len(name) < 2 or names.count(name) > 1:
            own = f"{name} ({place})" if len(row) == 1 else f"group {place}"
        groups.append(RunGroup(clean(own, longest=_LONGEST), tuple(row)))
    return groups


def _common(names: Sequence[str]) -> str:
    """What names begin with, without what stands before a seed's number."""
    prefix = commonprefix(names)  # noqa: RUF071 - of letters, not of folders
    return prefix if len(names) == 1 else re.sub(r"(?:[\W_]+(?:seed|s|run|r)?)?[\W_\d]*$", "", prefix)


def paired_by(groups: Sequence[RunGroup], key: str) -> list[RunGroup]:
    """Put the runs of every group into the order of the first, by a setting that pairs them."""
    values: list[dict[str, RunRecord]] = []
    for group in groups:
        own: dict[str, RunRecord] = {}
        for record in group.runs:
            value = setting_of(record, key)
            name = clean(record.name, longest=60)
            if value is None:
                raise InvalidArgumentError(f"--pair-by {key[:40]} expects a setting that every run says; {name!r} does not")
            if value in own:
                raise InvalidArgumentError(
                    f"--pair-by {key[:40]} expects one run of each value in a group; {value[:40]} comes twice, in {name!r}"
                )
            own[value] = record
        values.append(own)
    common = sorted(set.intersection(*(set(own) for own in values)), key=_order)
    if not common:
        raise InvalidArgumentError(f"--pair-by {key[:40]} expects values that all groups have; they share none")
    return [RunGroup(group.name, tuple(own[value] for value in common)) for group, own in zip(groups, values, strict=True)]


def unpaired_note(typed: Sequence[RunGroup], paired: Sequence[RunGroup], key: str) -> list[str]:
    """Say how many runs found no partner, if any."""
    left = [f"{len(b.runs)} of {len(a.runs)} of {a.name}" for a, b in zip(typed, paired, strict=True) if len(a.runs) > len(b.runs)]
    return [f"Pairs by {clean(key, longest=40)} leave runs out: kept are {', '.join(left)}."] if left else []


def differing_settings(groups: Sequence[RunGroup], *, besides: Sequence[str] = ()) -> list[str]:
    """Say in which known settings groups differ, and in which the runs of one group do."""
    between, within = [], []
    for name in RULES:
        if name in besides or name == "seed":
            continue
        values = [{str(record.config.value(name)) for record in group.runs if record.config.value(name) is not None} for group in groups]
        if any(len(own) > 1 for own in values):
            within.append(name)
        elif len(set.union(*values)) > 1:
            between.append(f"{name} ({'; '.join(clean(next(iter(own), 'unknown'), longest=40) for own in values)})")
    notes = [f"The groups differ in {', '.join(between)}: what is found may be due to any of them."] if between else []
    return notes + ([f"Runs of one group differ in {', '.join(within)}: that counts as seed noise here."] if within else [])


@dataclass(frozen=True, slots=True)
class RunComparison:
    """Groups of runs with what was found."""

    metric: str  # the log's own key, of the first run
    groups: tuple[RunGroup, ...]  # the groups
    curves: tuple[tuple[Curve, ...], ...]  # of each group one curve a run
    found: Comparison  # the comparison
    notes: tuple[str, ...]  # what to know

    def as_dict(self) -> dict[str, Any]:
        """The keys of `groupwise compare --json`."""
        found, names = self.found, [group.name for group in self.groups]
        groups = []
        for g, group in enumerate(self.groups):
            measured = [{quantity: values[g][i] for quantity, values in found.measured.items()} for i in range(len(group.runs))]
            groups.append({"name": group.name, "runs": [{"name": run.name, **own} for run, own in zip(group.runs, measured, strict=True)]})
        comparisons = [
            {
                "first": names[pairing.first],
                "second": names[pairing.second],
                "message": pairing.message,
                "contrasts": pairing.contrasts,
                "divergence": pairing.divergence,
            }
            for pairing in found.pairings
        ]
        shown: dict[str, Any] = plain(
            {
                "metric": self.metric,
                "level": found.level,
                "late_from": found.late_from,
                "late_to": found.late_to,
                "reach": found.reach,
                "paired": found.paired,
                "groups": groups,
                "seed_noise": found.seed_noise,
                "comparisons": comparisons,
                "notes": self.notes,
            }
        )
        return shown


def compare_runs(
    groups: Sequence[RunGroup],
    metric: str,
    question: Question,
    *,
    until: float | None = None,
    besides: Sequence[str] = (),
    notes: Sequence[str] = (),
    step: Callable[[str], None] | None = None,
) -> RunComparison:
    """Fit every run and compare the groups."""
    curves, columns, rising, span = [], [], True, 0.0
    for group in groups:
        row: list[Curve] = []
        for record in group.runs:
            if step is not None:
                step(record.name)
            columns.append(record.column(metric))
            run, rises, widest = _curve(cut(record, until), metric, question.level)
            span = max(span, widest)
            _refuse_copy(run, record, row, group)
            row.append(run)
            rising = rising and rises
        curves.append(tuple(row))
    # The same runs give the same answer: what is drawn at random here is noise around given curves and ways to relabel runs.
    question = replace(question, rises=rising, span=span)
    found = compare(curves, [group.name for group in groups], question, np.random.default_rng(20_240_501))
    told = [*notes, *differing_settings(groups, besides=besides), *_own_notes(groups, found, curves, sorted_by=besides)]
    if len(set(columns)) > 1:
        told.append(f"The runs log it under several keys: {', '.join(sorted({clean(c, longest=60) for c in columns}))}.")
    return RunComparison(columns[0], tuple(groups), tuple(curves), found, tuple(told))


def _refuse_copy(run: Curve, record: RunRecord, before: Sequence[Curve], group: RunGroup) -> None:
    """Raise where a run of a group comes again: it would count as a seed of its own that scatters not at all."""
    for other, known in zip(before, group.runs, strict=False):
        if np.array_equal(run.step_T, other.step_T) and np.array_equal(run.value_T, other.value_T) and np.ptp(run.value_T) > 0:
            pair = f"{clean(known.name, longest=60)!r} and {clean(record.name, longest=60)!r}"
            raise InvalidArgumentError(
                f"expected runs of different seeds in a group; {pair} have the same values in every row: leave out one"
            )


def _curve(record: RunRecord, metric: str, level: float) -> tuple[Curve, bool, float]:
    """The curve of one run, on the clock of logged steps, whether more of it is better, and the most that its values can differ by."""
    from groupwise.series.metric import metric_series

    series = metric_series(record, metric, clock="steps")
    updates = metric_series(record, metric)
    spacing = float(np.median(np.diff(updates.time_T))) if updates.time_T.size > 1 else 1.0
    steps = float(np.median(np.diff(series.time_T))) if series.time_T.size > 1 else 1.0
    window = max(1.0, series.window * steps / spacing)
    try:
        found = curve(series.time_T, series.value_T, variance_T=series.variance_T, window=window, smoothing=series.smoothing, level=level)
    except InsufficientDataError as error:
        raise InsufficientDataError(f"{clean(record.name, longest=80)}: {error}") from None
    low, high = series.likely_bounds or (-math.inf, math.inf)
    return found, series.healthy == "up", high - low


def _own_notes(groups: Sequence[RunGroup], found: Comparison, curves: Sequence[Sequence[Curve]], *, sorted_by: Sequence[str]) -> list[str]:
    """What to know of this comparison."""
    notes = []
    counts = [len(group.runs) for group in groups]
    methods = {contrast.method for pairing in found.pairings for contrast in pairing.contrasts}
    if max(counts) == 1 and len(groups) > 2 and not sorted_by:
        notes.append("Every run was taken as a setting of its own; runs of one setting are put together with vs or --by.")
    if "pooled_t" in methods:
        notes.append("Where a group has one run, the spread of seeds is taken from the groups that have more, as if it were the same.")
    if min(counts) == 2 and max(counts) > 2 and "welch" in methods:
        notes.append("With two runs in one group and more in the other, false alarms may exceed their rate where the two scatter more.")
    ends = [float(run.step_T[-1]) for row in curves for run in row]
    if max(ends) > 1.05 * min(ends):
        notes.append(f"The runs are compared up to step {number(min(ends))}, where the shortest ends.")
    return notes + _seed_notes(found.seed_noise["level"])


def _seed_notes(seeds: SeedNoise) -> list[str]:
    """How much runs of one setting differ through seeds and through the noise of their steps, where that is known."""
    if not seeds.freedom or not math.isfinite(seeds.step):
        return []
    deviation = seeds.deviation
    low, value, high = (number(end) for end in (deviation.low, deviation.value, deviation.high))
    interval = f"{percent(deviation.level)} interval {low} to {high}, {count(seeds.freedom, 'degree')} of freedom"
    through = f"{value} ({interval}) through seeds, {number(math.sqrt(seeds.step))} through the noise of their steps"
    return [f"Standard deviation of the late means of runs of one setting: {through}."]


def comparison_chart(comparison: RunComparison, pairing: Pairing) -> Chart:
    """Chart two groups: every run, the late level of each group with its interval, and where they part."""
    found = comparison.found
    runs: list[Line] = []
    levels: list[Line] = []
    sizes = set()
    roles: tuple[tuple[int, Role, Role], ...] = (
        (pairing.first, "first_run", "first_level"),
        (pairing.second, "second_run", "second_level"),
    )
    for g, run_role, level_role in roles:
        name = comparison.groups[g].name
        for run in comparison.curves[g]:
            x, y, size = averages(run.step_T, run.value_T, groups=40)
            sizes.add(size)
            runs.append(Line(clean(name), run_role, abscissae(x), rounded(y)))
        middle = _group_level(found, g)
        if math.isfinite(middle.value):
            value, low, high = (rounded([end, end]) for end in (middle.value, middle.low, middle.high))
            ends, band = (found.late_from, found.late_to), f"{percent(middle.level)} interval"
            levels.append(Line(clean(f"{name}, late mean"), level_role, ends, value, low, high, band))
    marks = [Mark(found.late_from, "late window")]
    if pairing.divergence.status == "diverged":
        marks.insert(0, Mark(pairing.divergence.step, "first divergence"))
    rows = f"means of {min(sizes)} rows" if max(sizes) > 1 else "single rows"
    source = "spread of the runs" if found.seed_noise["level"].freedom else "noise of the steps alone"
    caption = f"Each thin line is one run, {rows}; bands: {percent(found.level)} interval of a group's late mean by the {source}."
    key = clean(comparison.metric)
    return Chart("comparison", "Runs compared", "step", "metric", (*runs, *levels), tuple(marks), caption, wide=True, subject=key)


def _group_level(found: Comparison, g: int) -> Interval:
    """Late mean of one group with its interval: by the spread within groups, or step noise where no group has two runs."""
    from scipy.special import stdtrit

    runs, noise = [run for run in found.measured["level"][g] if run.usable], found.seed_noise["level"]
    if not runs:
        return Interval(math.nan, -math.inf, math.inf, found.level)
    if not noise.freedom:
        return runs[0].interval
    mean = float(np.mean([run.value for run in runs]))
    half = float(stdtrit(noise.freedom, 0.5 + found.level / 2)) * math.sqrt(max(noise.between, noise.step) / len(runs))
    return Interval(mean, mean - half, mean + half, found.level)
