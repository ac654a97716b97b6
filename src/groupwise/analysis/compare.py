"""Runs compared: sorted into groups, each judged by itself, then held against the others; data,
and an answer in words.

Groups are typed or made by a setting, which is looked for in a run's configuration, then in a
column of its log that holds one value throughout, then in its name, as `rho0.50_seed42` says rho
and seed.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from os.path import commonprefix
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from groupwise.analysis.fleet import Separation, listing, outcome, separation
from groupwise.arrays import floats, median
from groupwise.comparison.compare import (
    FEWEST_ROWS,
    Comparison,
    Contrast,
    Curve,
    Measured,
    Question,
    SeedNoise,
    curve,
    group_comparison,
    not_compared,
)
from groupwise.diagnostics.judge import judge
from groupwise.diagnostics.judgement import Judgement
from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.intervals import percent
from groupwise.plain import Plain, Said, Words, frozen
from groupwise.record.run import RULES, RunRecord, cut, named_apart, steps_table
from groupwise.series.metric import MetricSeries, metric_series
from groupwise.wording import (
    alike,
    bare_name,
    clean,
    count,
    number,
    ranged,
    short,
)

_NUMBER = r"[+-]?(?<!\d)\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"
_LONGEST = 24  # characters of a name: a table of groups fits 80 columns


@frozen
class RunGroup:
    """Runs of one setting."""

    name: str  # what they are called
    runs: tuple[RunRecord, ...]  # the runs


def setting_of(record: RunRecord, key: str) -> str | None:
    """Return what a run says of a setting."""
    value = record.config.value(key) if key in RULES else None
    if value is None:
        value = _held(record, key)
    if value is None:
        # After the key a number, or a word behind = or a dash: `lr=1e-5`, `seed42`, `loss-dapo`.
        match = re.search(
            rf"(?:^|[^A-Za-z]){re.escape(key)}(?:[=_-]?({_NUMBER})|[=-]([A-Za-z][\w.]*))",
            record.name,
        )
        value = match and (match[1] or match[2])
    return None if value is None else _plain(str(value))


def _held(record: RunRecord, key: str) -> str | float | None:
    """The one value that a column of the log holds throughout, or None."""
    columns = [*record.metrics(), *record.labels]
    names = {name.strip().lower().replace(" ", "_"): name for name in reversed(columns)}
    column = names.get(key.strip().lower().replace(" ", "_"), "")
    if column in record.labels:
        return record.labels[column]
    if not column:
        return None
    values = record.steps[column].drop_nulls().unique()
    return float(values[0]) if len(values) == 1 else None


def _plain(text: str) -> str:
    """A number in its shortest form, so that 0.50 and 0.5 are one setting; else the text."""
    with suppress(ValueError):
        return f"{float(text):.12g}"
    return text


def _order(text: str) -> tuple[str, float, str]:
    """Numbers by size, then texts by alphabet and by the number at their end.

    So lr=5e-6, lr=1e-5.
    """
    with suppress(ValueError):
        return "", float(text), text
    words, end = re.fullmatch(rf"(.*?)({_NUMBER})?", text, re.DOTALL).groups()  # type: ignore[union-attr]
    return words or text, float(end or 0), text


def grouped_by(
    records: Sequence[RunRecord], key: str, *, baseline: str | None = None
) -> list[RunGroup]:
    """Sort runs into groups by a setting."""
    runs_by_value: dict[str, list[RunRecord]] = {}
    for record in records:
        value = setting_of(record, key)
        if value is None:
            raise InvalidArgumentError(
                "expected a setting to group by that every run has in its settings or its name, "
                f"got {key[:40]}, which {clean(record.name, longest=60)!r} does not have: add it "
                "to the run's name, or group the runs yourself"
            )
        runs_by_value.setdefault(value, []).append(record)
    if len(runs_by_value) < 2:
        values = [f"all {len(records)} have {value[:40]}" for value in runs_by_value]
        raise InvalidArgumentError(
            f"expected runs that differ in {key[:40]} to group by it, got "
            f"{''.join(values) or 'none'}: group by another setting"
        )
    order = sorted(runs_by_value, key=_order)
    if baseline is not None:
        first = _plain(baseline)
        if first not in runs_by_value:
            raise InvalidArgumentError(
                f"expected a baseline of {', '.join(order)}, got {baseline[:40]!r}: use one of them"
            )
        order.remove(first)
        order.insert(0, first)
    left = _LONGEST - 1 - max(map(len, order))
    key_name = clean(key, longest=max(left, 9))
    names = _told_apart(
        [
            f"{key_name} {value}" if re.fullmatch(_NUMBER, value) else name
            for value, name in zip(order, short_names(order), strict=True)
        ]
    )
    return [
        RunGroup(name, tuple(runs_by_value[value]))
        for name, value in zip(names, order, strict=True)
    ]


def short_names(names: Sequence[str]) -> list[str]:
    """Names without the endings of files, their middles left out where they are long; where that
    leaves two alike, what differs is kept.
    """
    whole = [bare_name(clean(name)) for name in names]
    half = (_LONGEST - 1) // 2
    short = [name if len(name) <= _LONGEST else f"{name[:half]}…{name[-half:]}" for name in whole]
    if len({*short}) == len({*whole}):
        return short
    again = [short.count(name) > 1 for name in short]
    start = max(len(commonprefix(list(itertools.compress(whole, again)))) - half // 2, 0)  # noqa: RUF071
    return [
        f"…{name[start : start + _LONGEST - 2]}…" if collides else own
        for name, own, collides in zip(whole, short, again, strict=True)
    ]


def _told_apart(names: Sequence[str]) -> list[str]:
    """Names with their number behind those that come twice."""
    return [
        f"{name} ({place})" if names.count(name) > 1 else name
        for place, name in enumerate(names, start=1)
    ]


def typed_groups(records: Sequence[Sequence[RunRecord]]) -> list[RunGroup]:
    """Name groups of runs as they were typed."""
    common = []
    for row in records:
        # of letters, not of folders
        prefix = commonprefix([record.name for record in row])  # noqa: RUF071
        if len(row) > 1:  # without the number at its end, and the word of a seed in front of that
            prefix = re.sub(r"(?<![\W_\d])[\W_\d]+$", "", prefix)
            prefix = re.sub(r"(?<![\W_])[\W_]+(?:seed|s|run|r)$", "", prefix)
        common.append(prefix)
    names = short_names(common)
    for place, (name, row) in enumerate(zip(common, records, strict=True)):
        if len(row) > 1 and (len(name) < 2 or common.count(name) > 1):
            names[place] = f"group {place + 1}"
    return [
        RunGroup(name, tuple(row)) for name, row in zip(_told_apart(names), records, strict=True)
    ]


def differing_settings(
    groups: Sequence[RunGroup], *, besides: Sequence[str | None] = ()
) -> tuple[Words, list[str]]:
    """Return the settings in which groups differ, and notes on them.

    And on those in which the runs of one group do.
    """
    between, within, untold, notes = dict[str, str](), [], [], []
    for name in RULES:
        if name in besides or name == "seed":
            continue
        values = [
            {
                str(value)
                for record in group.runs
                if (value := record.config.value(name)) is not None
            }
            for group in groups
        ]
        if any(len(own) > 1 for own in values):
            within.append(name)
        elif len(set.union(*values)) > 1:
            each = (clean(next(iter(own), "unknown"), longest=40) for own in values)
            between[name] = f"{name} ({'; '.join(each)})"
        elif any(values) and not all(values):
            untold.append(name)
    if between:
        listed = ", ".join(between.values())
        notes.append(f"The groups differ in {listed}: any of these may cause the result.")
    if within:
        notes.append(
            f"Runs within a group differ in {', '.join(within)}: this counts as seed noise."
        )
    if untold:
        notes.append(f"Not every group states {listing(untold)}: these may differ too.")
    return tuple(between), notes


def record_of_numbers(numbers: Any, metric: str, name: str) -> RunRecord:
    """Return a record of values of a metric, at steps 1, 2, ..., or of steps and values."""
    try:
        value = floats(numbers)
        len(value)
    except (TypeError, ValueError):
        raise InvalidArgumentError(
            f"expected a run, a path or numbers, got {type(numbers).__name__}: give one of them, "
            "or open_run(rows)"
        ) from None
    if value.ndim == 1:
        value = np.stack([np.arange(1.0, value.size + 1), value])
    if value.ndim != 2 or len(value) != 2:
        raise InvalidArgumentError(
            f"expected values, or steps and values, got an array of shape {value.shape}: give one "
            "or two rows"
        )
    step = value[0]
    if not (np.isfinite(step) & (np.abs(step) < 2**53) & (step == np.round(step))).all():
        raise InvalidArgumentError(
            "expected whole-number steps, got other numbers: give the steps of the log, or use "
            "fit(times, values) for another clock"
        )
    record = RunRecord(name, steps_table(step.astype(int).tolist(), {metric: value[1]}))
    record.validate()
    return record


TRAILING = 10  # rows at the end of a run whose mean is where a metric that is not judged ends


@frozen
class ComparedRun(Plain):
    """One run of a comparison."""

    KEYS = (
        "name state=judgement.state headline=judgement.headline since_step=judgement.since_step "
        "rows last_step ends_at left_out level speed held"
    )

    name: str  # as its log calls it
    label: str  # its name as it is shown
    judgement: Judgement  # of its log alone
    rows: int  # of the metric
    last_step: float  # of the metric; nan without rows
    ends_at: float  # where the judgement says that it is now, else mean of its last rows; or nan
    left_out: str = ""  # why it is shown and not compared; "" where it is compared
    level: Measured | None = None  # late mean; None where it is not compared
    # step from which it holds the level; None where it is not compared
    speed: Measured | None = None

    @property
    def held(self) -> bool | None:
        """Whether it holds the level by the end; None where that was not measured."""
        if self.speed is None or not self.speed.usable:
            return None
        return math.isfinite(self.speed.value)


@frozen
class ComparedGroup(Plain):
    """Runs of one setting in a comparison."""

    KEYS = "name runs"

    name: str  # what they are called
    runs: tuple[ComparedRun, ...]  # all of them
    place: int | None = None  # of the group among those compared; None where none of its runs is

    @property
    def failed(self) -> tuple[ComparedRun, ...]:
        """Its runs that failed."""
        return tuple(run for run in self.runs if run.judgement.alarm)

    @property
    def ends_at(self) -> float:
        """Mean of where its runs end."""
        return _mean([run.ends_at for run in self.runs])

    @property
    def level(self) -> float:
        """Mean of the late means of its runs; nan where none was measured."""
        return _mean([run.level.value for run in self.runs if run.level and run.level.usable])

    @property
    def times(self) -> list[float]:
        """Steps from which its runs hold the level, infinite where one does not by the end."""
        return [run.speed.value for run in self.runs if run.speed and run.speed.usable]


def shared_key(names: Sequence[str]) -> tuple[str, list[str]]:
    """Return the word that all names have before a number, and the numbers; or "", names."""
    split = [name.partition(" ") for name in names]
    if len({key for key, _, _ in split}) != 1 or not all(
        rest and rest[0] in "+-.0123456789" for _, _, rest in split
    ):
        return "", list(names)
    return split[0][0], [rest for _, _, rest in split]


def _mean(values: list[float]) -> float:
    """Mean of the finite values; nan without any."""
    finite = [value for value in values if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else math.nan


_TOO_FEW = "there are too few rows to separate a difference from noise"


def answered(groups: Sequence[ComparedGroup], comparison: Comparison, scales: Words = ()) -> Words:
    """The answer, a sentence or two: of a failure, if a run failed, and else of the difference, or
    of scales that differ.
    """
    failed = any(group.failed for group in groups)
    if len(groups) > 2:
        return (
            *(_failures(groups) if failed else ()),
            *(scales or _ranking(groups, comparison)),
            *_too_short(groups),
        )
    first, second = groups
    if failed:
        return *_failure(first, second), *scales
    return (
        (*(scales or difference_sentence(first, second, comparison)), *_too_short(groups))
        if comparison.pairings
        else (f"{_end(second, first)}; {_TOO_FEW}.",)
    )


def _too_short(groups: Sequence[ComparedGroup]) -> Words:
    """How many runs are shown and not compared."""
    runs = [run for group in groups for run in group.runs]
    out = sum(bool(run.left_out) for run in runs)
    return (
        (f"{out} of {len(runs)} runs {'is' if out == 1 else 'are'} too short to compare.",)
        if out
        else ()
    )


def _failure(a: ComparedGroup, b: ComparedGroup) -> Words:
    """Say of two groups of which a run failed who did, who did not, and where both end."""
    worse, other = (a, b) if len(a.failed) / len(a.runs) > len(b.failed) / len(b.runs) else (b, a)
    ends = _end(worse, other)
    if len(a.runs) == len(b.runs) == 1:
        which = "Both failed" if other.failed else f"{worse.name} failed and {other.name} did not"
        return (f"{which}: {ends}.",)
    return (
        f"{_share(worse)} of {worse.name} failed, against {_share(other)} of {other.name}: {ends}.",
    )


def _share(group: ComparedGroup) -> str:
    """How many runs of a group failed."""
    return f"{len(group.failed)} of {count(len(group.runs), 'run')}"


def _end(*groups: ComparedGroup) -> str:
    """Where groups end."""
    ends = " and ".join(f"{group.name} ends at {short(group.ends_at)}" for group in groups)
    return f"{ends} (means of the last rows)"


def _failures(groups: Sequence[ComparedGroup]) -> Words:
    """Which of many groups have runs that failed."""
    failed = [group for group in groups if group.failed]
    runs = sum(len(group.runs) for group in groups)
    names = [
        group.name + (f" ({len(group.failed)} of {len(group.runs)})" if len(group.runs) > 1 else "")
        for group in failed
    ]
    return (
        f"{sum(len(group.failed) for group in failed)} of {runs} runs failed: {_listed(names)}.",
    )


def _listed(names: Sequence[str]) -> str:
    """Names with commas, a key that all share once, the last ones counted where there are many."""
    key, own = shared_key(names)
    return f"{key} " * bool(key) + listing(own)


def _ranking(groups: Sequence[ComparedGroup], comparison: Comparison) -> Words:
    """Of many groups the highest, and, where none failed, those that differ from the first."""
    measured = [group for group in groups if math.isfinite(group.level)]
    if not measured:
        top = max(groups, key=lambda group: group.ends_at)
        return (f"{top.name} ends highest, at {short(top.ends_at)}; {_TOO_FEW}.",)
    best = max(measured, key=lambda group: group.level)
    level = number(best.level, digits=2)
    if all(group.level == best.level for group in measured):
        return (f"All are at {level} over {_window(comparison)}.",)
    highest = f"{best.name} is highest: {level} over {_window(comparison)}."
    if not any(group.failed for group in groups):
        return highest, _apart(groups, comparison)
    doubt = " One seed cannot show the best run."
    return (highest + doubt * (len(best.runs) == 1),)


def _apart(groups: Sequence[ComparedGroup], comparison: Comparison) -> str:
    """Which of many groups differ from the first."""
    compared = {group.place: group.name for group in groups if group.place is not None}
    levels = [
        (compared[pairing.second], pairing.contrasts[0].status) for pairing in comparison.pairings
    ]
    for status, beyond in (
        ("different", "seed noise"),
        ("seed_noise_unknown", "step noise (one seed each)"),
    ):
        names = [name for name, level in levels if level == status]
        if names:
            return (
                f"{_listed(names)} {'differs' if len(names) == 1 else 'differ'} from "
                f"{compared[0]} by more than {beyond}."
            )
    if all(level == "unavailable" for _, level in levels):
        return f"No run can be compared with {compared[0]}."
    none = "None" if len(compared) == len(groups) else "No compared run"
    return f"{none} differs from {compared[0]} by more than noise."


def _window(comparison: Comparison) -> str:
    """The steps whose mean is the level."""
    return f"steps {comparison.late_from:,.0f}-{comparison.late_to:,.0f}"


def difference_sentence(
    first: ComparedGroup, second: ComparedGroup, comparison: Comparison
) -> Words:
    """Whether the second of two groups differs from the first, and which holds the level sooner."""
    level, speed = comparison.pairings[0].contrasts
    faster = _faster(first, second, speed, comparison)
    return _level(first, second, level, comparison), *[faster] * bool(faster)


def _level(
    first: ComparedGroup, second: ComparedGroup, level: Contrast, comparison: Comparison
) -> str:
    """What the late means of two groups come to."""
    a, b = alike(first.level, second.level)
    raw = f"{b} against {a} over {_window(comparison)}"
    higher = (
        f"{second.name} is {'above' if level.difference.value > 0 else 'below'} {first.name}: {raw}"
    )
    ends = f"difference of {ranged(level.difference)}"
    within = f"{second.name} does not clearly differ from {first.name}: {raw}. The {ends} is within"
    match level.status:
        case "different":
            return f"{higher}. The {ends} exceeds seed noise."
        case "seed_noise_unknown":
            if not math.isfinite(level.largest_seed_deviation):
                return f"{higher}. The {ends} exceeds step noise; seed noise alone may cause it."
            scatter = (
                "it is real only if seeds scatter by less than "
                f"{number(level.largest_seed_deviation, digits=2)}"
            )
            return f"{higher}. The {ends} exceeds step noise. With one seed per group, {scatter}."
        case "not_separable":
            needed = (
                f" About {level.seeds_needed} runs per group would decide it."
                if level.seeds_needed
                else ""
            )
            # The interval is that of this difference alone; the answer allows for all that were
            # looked at.
            alone = level.difference.low > 0 or level.difference.high < 0
            allowed = (
                f" once all comparisons are counted (p = {number(level.adjusted_p, digits=2)})"
                if alone
                else ""
            )
            return f"{within} seed noise{allowed}.{needed}"
        case "within_step_noise":
            return f"{within} step noise."
        case "unavailable":
            return f"{_end(second, first)}. The late means cannot be compared: {level.message}."


def _faster(
    first: ComparedGroup, second: ComparedGroup, speed: Contrast, comparison: Comparison
) -> str:
    """Which of two groups holds the level sooner, where that is told; "" else."""
    held = [[math.isfinite(time) for time in group.times] for group in (first, second)]
    if not all(held):
        return ""
    reach = number(comparison.reach, digits=2)
    shares = [sum(row) / len(row) for row in held]
    if shares[0] != shares[1]:
        sooner, later = (first, second) if shares[0] > shares[1] else (second, first)
        if len(sooner.times) == len(later.times) == 1:
            return (
                f"{sooner.name} reaches and keeps {reach} from step {sooner.times[0]:,.0f} on; "
                f"{later.name} does not by step {comparison.late_to:,.0f}."
            )
        runs = [
            f"{sum(map(math.isfinite, group.times))} of {len(group.times)}"
            for group in (sooner, later)
        ]
        return (
            f"By step {comparison.late_to:,.0f}, {runs[0]} runs of {sooner.name} keep {reach}, "
            f"against {runs[1]} of {later.name}."
        )
    if speed.status not in ("different", "seed_noise_unknown") or min(shares) < 1:
        return ""
    sooner, later = (first, second) if speed.difference.value > 0 else (second, first)
    steps = [sum(group.times) / len(group.times) for group in (sooner, later)]
    return (
        f"{sooner.name} reaches and keeps {reach} from step {steps[0]:,.0f} on, {later.name} "
        f"from step {steps[1]:,.0f} on."
    )


def _comparison_notes(groups: Sequence[ComparedGroup], comparison: Comparison) -> list[str]:
    """What to know of a comparison besides its answer."""
    left_out = [
        f"{run.label} ({run.left_out})" for group in groups for run in group.runs if run.left_out
    ]
    notes = [f"These runs are shown but not compared: {', '.join(left_out)}."] if left_out else []
    if not comparison.pairings:
        return notes
    ends = [run.last_step for group in groups for run in group.runs if not run.left_out]
    if max(ends) > 1.05 * min(ends):
        notes.append(
            f"The runs are compared up to step {number(min(ends))}, where the shortest run ends."
        )
    return notes + _seed_notes(comparison.seed_noise["level"])


def _seed_notes(seeds: SeedNoise) -> list[str]:
    """Say how much runs of one setting differ through seeds and steps, where known."""
    if not seeds.freedom or not math.isfinite(seeds.step):
        return []
    deviation = seeds.deviation
    low, value, high = (number(end) for end in (deviation.low, deviation.value, deviation.high))
    interval = (
        f"{percent(deviation.level)} interval {low} to {high}, {count(seeds.freedom, 'degree')} of "
        "freedom"
    )
    through = f"{value} ({interval}) from seeds and {number(math.sqrt(seeds.step))} from step noise"
    return [f"The standard deviation of the late means among runs of one setting is {through}."]


RunLike = RunRecord | str | Path | Sequence[float] | NDArray[Any]
# of the longest run: one that ends before is shown, and does not cut the others down to its steps
_SHORT = 0.5


@frozen
class RunComparison(Said):
    """Groups of runs and how they differ.

    Args:
        metric: the log's own key, of the first run.
        groups: the groups, each run with its judgement.
        curves: of each group that is compared one curve a run.
        comparison: the tests.
        answer: what it comes to, in a sentence or two.
        differing: settings in which the groups differ, besides those that sort them.
        notes: what to know besides.
        separates: the setting that separates the runs that learnt from those that did not, or None.

    Example:
        >>> print(compare([0.2, 0.8] * 20, [0.8, 0.2] * 20))
        run 2 does not clearly differ from run 1: 0.50 against 0.50 over steps 30-40. The
            difference of 0.00 (−0.28 to 0.28) is within step noise.
    """

    KEYS = (
        "answer=sentence metric level=comparison.level late_from=comparison.late_from "
        "late_to=comparison.late_to reach=comparison.reach bounds=comparison.bounds groups "
        "seed_noise=comparison.seed_noise comparisons notes separates"
    )

    metric: str
    groups: tuple[ComparedGroup, ...]
    curves: tuple[tuple[Curve, ...], ...]
    comparison: Comparison
    answer: Words
    differing: Words
    notes: Words
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
            for pairing in self.comparison.pairings
        ]


def compare(
    *runs: RunLike | Sequence[RunLike],
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
        >>> comparison = compare(rise, rise[:40] + [0.0] * 20)
        >>> [group.runs[0].judgement.state.value for group in comparison.groups]
        ['ok', 'failed']
        >>> print(comparison)
        run 2 failed and run 1 did not: run 2 ends at 0.00 and run 1 ends at 0.50 (means of the
            last rows).
    """
    arguments = [_members(run) for run in runs]
    counted = itertools.count(1)
    rows = [
        [record for run in row for record in _records(run, metric, f"run {next(counted)}", by)]
        for row in arguments
    ]
    groups = run_groups(rows, by, baseline)
    return compare_runs(groups, metric, question or Question(), until=until, sorted_by=by)


def run_groups(
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
    return typed_groups([list(itertools.islice(named, size)) for size in sizes])


def _members(run: RunLike | Sequence[RunLike]) -> list[RunLike]:
    """The runs of a list, or the one run; a list of numbers is the values of one."""
    several = isinstance(run, list | tuple) and not all(
        isinstance(item, int | float | np.number) for item in run
    )
    return list(cast("Sequence[RunLike]", run)) if several else [cast("RunLike", run)]


def _records(run: RunLike, metric: str, name: str, by: str | None) -> list[RunRecord]:
    """The records of what a user calls a run."""
    from groupwise.readers.find import run_records

    if isinstance(run, RunRecord):
        return [run]
    if isinstance(run, str | Path):
        return run_records(run, by=by or "")
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
    parted = _parted(groups, rows) if metric == "reward" else ()
    if parted:
        rows = [[_measured(run.record, _HELD_OUT, run.judgement) for run in row] for row in rows]
    used = _leave_out(rows)
    for row, group in zip(rows, groups, strict=True):
        if not any(run.rows for run in row):
            what, name = clean(metric, longest=60), clean(group.runs[0].name, longest=80)
            raise InsufficientDataError(
                f"expected rows of {what}, got none in {name}: give one that logs it, or another -m"
            )
    compared = [[run for run in rows[g] if not run.left_out] for g in used]
    curves = tuple(map(_curves, compared))
    every = [run.series for row in compared or rows for run in row]
    ranges = [series.likely_bounds or (-math.inf, math.inf) for series in every]
    bounds = min(low for low, _ in ranges), max(high for _, high in ranges)
    rises = all(series.healthy == "up" for series in every)
    question = replace(question, rises=rises, bounds=bounds)
    # The same runs give the same answer: what is drawn at random here is noise around given
    # curves.
    comparison = (
        group_comparison(curves, question, np.random.default_rng(20_240_501))
        if used
        else not_compared(question)
    )
    shown = _shown(groups, rows, used, comparison)
    differing, differ = differing_settings(groups, besides=[sorted_by])
    notes = [*differ, *_comparison_notes(shown, comparison)]
    keys = sorted({clean(series.metric, longest=60) for series in every})
    if len(keys) > 1:
        notes.append(f"The runs log the metric under several keys: {', '.join(keys)}.")
    taken = [run for row in rows for run in row]
    settings = [
        {
            name: str(setting.value)
            for name, setting in run.record.config.known().items()
            if name not in ("seed", sorted_by)
        }
        for run in taken
    ]
    outcomes = [outcome(run.judgement.state, run.judgement.learning) for run in taken]
    separates = separation(settings, outcomes)
    answer = *answered(shown, comparison, _scales(groups, rows)), *parted
    return RunComparison(
        every[0].metric,
        shown,
        curves,
        comparison,
        (*answer, separates.sentence) if separates else answer,
        differing,
        tuple(notes),
        separates,
    )


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
    return _measured(cut_record, column, judgement)


def _measured(record: RunRecord, column: str, judgement: Judgement) -> _Taken:
    """Take a metric of a judged run."""
    series, updates = metric_series(record, column, clock="steps"), metric_series(record, column)
    steps, spacing = (
        median(np.diff(clock.time_T)) if clock.time_T.size > 1 else 1.0
        for clock in (series, updates)
    )
    return _Taken(record, series, judgement, max(1.0, series.window * steps / spacing))


_HELD_OUT = "eval/reward"
# Causes for which the reward is no measure of the policy.
_PARTED = {"reward_hacking", "overfitting"}


def _parted(groups: Sequence[RunGroup], rows: Sequence[Sequence[_Taken]]) -> Words:
    """Say of which groups the reward parted from the held-out one, where all runs log that."""
    names = []
    for group, row in zip(groups, rows, strict=True):
        for run in row:
            if not any(meaning.quantity == _HELD_OUT for meaning in run.record.meanings):
                return ()
        causes = [run.judgement.cause for run in row if run.judgement.state != "ok"]
        if any(_PARTED & {*cause.keys, *cause.rivals} for cause in causes):
            names.append(group.name)
    said = f"These are held-out rewards, from which the reward of {listing(names)} parted."
    return (said,) * bool(names)


def _scales(groups: Sequence[RunGroup], rows: Sequence[Sequence[_Taken]]) -> Words:
    """Say that levels are not comparable, where the ranges of rewards differ: those that are
    certain, and of several columns also the likely ones.
    """
    several = len({row[0].series.metric for row in rows}) > 1
    ranges = {}
    for group, (first, *_) in zip(groups, rows, strict=True):
        if ends := first.series.likely_bounds if several else first.series.bounds:
            ranges[ends] = f"{group.name}'s lies in {number(ends[0])} to {number(ends[1])}"
    said = f"The levels are not comparable: of the rewards {listing([*ranges.values()])}."
    return (said,) * (len(ranges) > 1)


def _leave_out(rows: Sequence[Sequence[_Taken]]) -> list[int]:
    """Say of runs why they are not compared, and return which groups are.

    Those with a run left, none where there is only one.
    """
    enough = []
    for run in (run for row in rows for run in row):
        if run.rows < FEWEST_ROWS:
            run.left_out = f"it has {run.rows} rows and needs {FEWEST_ROWS}"
        else:
            enough.append(run)
    longest = max((run.last_step for run in enough), default=math.nan)
    # the others would be cut down to their ends
    early = [run for run in enough if run.last_step < _SHORT * longest]
    if len(_used(rows, early)) > 1:
        for run in early:
            run.left_out = f"it ends at step {run.last_step:,.0f}"
    used = _used(rows)
    return used if len(used) > 1 else []


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
                pair = [repr(clean(twin.record.name, longest=60)) for twin in (other, run)]
                raise InvalidArgumentError(
                    f"expected runs of different seeds in a group; {' and '.join(pair)} have "
                    "the same values in every row: leave one of them out"
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
        levels, speeds = comparison.measured["level"], comparison.measured["speed"]
        measured = () if place is None else zip(levels[place], speeds[place], strict=True)
        each, runs, labels = iter(measured), [], [group.name]
        if len(row) > 1:
            labels = short_names([run.record.name for run in row])
        for run, label in zip(row, labels, strict=True):
            level, speed = (None, None) if run.left_out else next(each, (None, None))
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
