"""What a comparison knows of each run and group, and its answer in words."""

from __future__ import annotations

import math
from collections.abc import Sequence

from groupwise.comparison.results import Comparison, Contrast, Measured, SeedNoise
from groupwise.diagnostics.judgement import Judgement
from groupwise.intervals import percent
from groupwise.plain import Plain, frozen
from groupwise.wording import alike, count, number, ranged, short

TRAILING = 10  # rows at the end of a run whose mean is where a metric that is not judged ends


@frozen
class ComparedRun(Plain):
    """One run of a comparison."""

    KEYS = (
        "name",
        "state=judgement.state",
        "headline=judgement.headline",
        "since_step=judgement.since_step",
        "rows",
        "last_step",
        "ends_at",
        "left_out",
        "level",
        "speed",
        "held",
    )

    name: str  # as its log calls it
    label: str  # its name as it is shown
    judgement: Judgement  # of its log alone
    rows: int  # of the metric
    last_step: float  # of the metric; nan without rows
    ends_at: float  # where the judgement says that it is now, else mean of its last rows; or nan
    left_out: str = ""  # why it is shown and not compared; "" where it is compared
    level: Measured | None = None  # late mean; None where it is not compared
    speed: Measured | None = (
        None  # step from which it holds the level; None where it is not compared
    )

    @property
    def held(self) -> bool | None:
        """Whether it holds the level by the end; None where that was not measured."""
        if self.speed is None or not self.speed.usable:
            return None
        return math.isfinite(self.speed.value)


@frozen
class ComparedGroup(Plain):
    """Runs of one setting in a comparison."""

    KEYS = ("name", "runs")

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
        return _mean(
            [run.level.value for run in self.runs if run.level is not None and run.level.usable]
        )

    @property
    def times(self) -> list[float]:
        """Steps from which its runs hold the level, infinite where one does not by the end."""
        return [run.speed.value for run in self.runs if run.speed is not None and run.speed.usable]


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


_MOST_NAMED = 5


def answered(groups: Sequence[ComparedGroup], comparison: Comparison) -> tuple[str, ...]:
    """The answer, a sentence or two: of a failure, if a run failed, and else of the difference."""
    failed = any(group.failed for group in groups)
    if len(groups) > 2:
        return (
            *(_failures(groups) if failed else ()),
            *_ranking(groups, comparison),
            *_too_short(groups),
        )
    first, second = groups
    if failed:
        return _failure(first, second)
    return (
        (*difference(first, second, comparison), *_too_short(groups))
        if comparison.pairings
        else (f"{_end(second, first)}, too few rows to tell noise from a difference.",)
    )


def _too_short(groups: Sequence[ComparedGroup]) -> tuple[str, ...]:
    """How many runs are shown and not compared."""
    runs = [run for group in groups for run in group.runs]
    out = sum(bool(run.left_out) for run in runs)
    return (
        (f"{out} of {len(runs)} runs {'is' if out == 1 else 'are'} too short to compare.",)
        if out
        else ()
    )


def _failure(a: ComparedGroup, b: ComparedGroup) -> tuple[str, ...]:
    """Say of two groups of which a run failed who did, who did not, and where both end."""
    worse, other = (a, b) if len(a.failed) / len(a.runs) > len(b.failed) / len(b.runs) else (b, a)
    ends = _end(worse, other)
    if len(a.runs) == len(b.runs) == 1:
        which = "Both failed" if other.failed else f"{worse.name} failed, {other.name} did not"
        return (f"{which}: {ends}.",)
    return (f"{_share(worse)} of {worse.name} failed, {_share(other)} of {other.name}: {ends}.",)


def _share(group: ComparedGroup) -> str:
    """How many runs of a group failed."""
    return f"{len(group.failed)} of {count(len(group.runs), 'run')}"


def _end(*groups: ComparedGroup) -> str:
    """Where groups end."""
    ends = ", ".join(f"{group.name} ends at {short(group.ends_at)}" for group in groups)
    return f"{ends} (means of their last rows)"


def _failures(groups: Sequence[ComparedGroup]) -> tuple[str, ...]:
    """Which of many groups have runs that failed."""
    runs, failed = (
        sum(len(group.runs) for group in groups),
        [group for group in groups if group.failed],
    )
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
    more = len(own) - _MOST_NAMED
    return f"{key} " * bool(key) + ", ".join(
        own if more < 2 else [*own[:_MOST_NAMED], f"and {more} more"]
    )


def _ranking(groups: Sequence[ComparedGroup], comparison: Comparison) -> tuple[str, ...]:
    """Of many groups the highest, and, where none failed, those that differ from the first."""
    measured = [group for group in groups if math.isfinite(group.level)]
    if not measured:
        top = max(groups, key=lambda group: group.ends_at)
        return (
            (
                f"{top.name} ends highest, at {short(top.ends_at)}; too few rows to "
                "tell noise from a difference."
            ),
        )
    best = max(measured, key=lambda group: group.level)
    level = number(best.level, digits=2)
    if all(group.level == best.level for group in measured):
        return (f"All are at {level} over {_window(comparison)}.",)
    highest = f"{best.name} is highest: {level} over {_window(comparison)}."
    return (
        (highest,)
        if any(group.failed for group in groups)
        else (highest, _apart(groups, comparison))
    )


def _apart(groups: Sequence[ComparedGroup], comparison: Comparison) -> str:
    """Which of many groups differ from the first."""
    compared = {group.place: group.name for group in groups if group.place is not None}
    for status, beyond in (
        ("different", "seed noise"),
        ("seed_noise_unknown", "the noise of steps"),
    ):
        names = [
            compared[pairing.second]
            for pairing in comparison.pairings
            if pairing.contrasts[0].status == status
        ]
        if names:
            seeds = "" if status == "different" else " (one seed each)"
            return (
                f"Beyond {beyond}, {_listed(names)} {'differs' if len(names) == 1 else 'differ'} "
                f"from {compared[0]}{seeds}."
            )
    comparable = any(
        pairing.contrasts[0].status != "unavailable" for pairing in comparison.pairings
    )
    none = "None" if len(compared) == len(groups) else "None of those compared"
    return (
        f"{none} differs from {compared[0]} beyond noise."
        if comparable
        else f"None can be compared with {compared[0]}."
    )


def _window(comparison: Comparison) -> str:
    """The steps whose mean is the level."""
    return f"steps {comparison.late_from:,.0f}-{comparison.late_to:,.0f}"


def difference(
    first: ComparedGroup, second: ComparedGroup, comparison: Comparison
) -> tuple[str, ...]:
    """Whether the second of two groups differs from the first, and which holds the level sooner."""
    level, speed = comparison.pairings[0].contrasts
    levels = _level(first, second, level, comparison)
    faster = _faster(first, second, speed, comparison)
    return (levels, faster) if faster else (levels,)


def _level(
    first: ComparedGroup, second: ComparedGroup, level: Contrast, comparison: Comparison
) -> str:
    """What the late means of two groups come to."""
    a, b = alike(first.level, second.level)
    raw = f"{b} against {a} over {_window(comparison)}"
    higher = (
        f"{second.name} is {'above' if level.difference.value > 0 else 'below'} {first.name}: {raw}"
    )
    ends = f"difference {ranged(level.difference)}"
    match level.status:
        case "different":
            return f"{higher}, {ends}, beyond seed noise."
        case "seed_noise_unknown":
            if not math.isfinite(level.largest_seed_deviation):
                return f"{higher}, {ends}, beyond the noise of steps; one seed each may do as much."
            scatter = (
                "real only if seeds scatter by less than "
                f"{number(level.largest_seed_deviation, digits=2)}"
            )
            return f"{higher}, {ends}, beyond the noise of steps. One seed each: {scatter}."
        case "not_separable":
            needed = (
                f" About {level.seeds_needed} runs a group would tell."
                if level.seeds_needed
                else ""
            )
            # The interval is that of this difference alone; the answer allows for all that were
            # looked at.
            alone = level.difference.low > 0 or level.difference.high < 0
            allowed = (
                f", of one comparison; for all of them p is {number(level.adjusted_p, digits=2)}"
                if alone
                else ""
            )
            return (
                f"{second.name} cannot be told from {first.name} beyond seed noise: {raw}, "
                f"{ends}{allowed}.{needed}"
            )
        case "within_step_noise":
            return (
                f"{second.name} cannot be told from {first.name} beyond the noise of steps: {raw}, "
                f"{ends}."
            )
        case "unavailable":
            return f"{_end(second, first)}. The late mean cannot be compared: {level.message}."


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
                f"{sooner.name} holds {reach} from step {sooner.times[0]:,.0f}, {later.name} does "
                f"not by step {comparison.late_to:,.0f}."
            )
        shares_of = [
            f"{sum(map(math.isfinite, group.times))} of {len(group.times)} runs of {group.name}"
            for group in (sooner, later)
        ]
        return f"By step {comparison.late_to:,.0f}, {shares_of[0]} hold {reach}, {shares_of[1]}."
    if speed.status not in ("different", "seed_noise_unknown") or min(shares) < 1:
        return ""
    sooner, later = (first, second) if speed.difference.value > 0 else (second, first)
    steps = [sum(group.times) / len(group.times) for group in (sooner, later)]
    return (
        f"{sooner.name} holds {reach} from step {steps[0]:,.0f}, {later.name} from step "
        f"{steps[1]:,.0f}."
    )


def noted(groups: Sequence[ComparedGroup], comparison: Comparison) -> list[str]:
    """What to know of a comparison besides its answer."""
    left_out = [
        f"{run.label} ({run.left_out})" for group in groups for run in group.runs if run.left_out
    ]
    notes = [f"Shown and not compared: {', '.join(left_out)}."] if left_out else []
    if not comparison.pairings:
        return notes
    ends = [
        run.last_step
        for group in groups
        if group.place is not None
        for run in group.runs
        if not run.left_out
    ]
    if max(ends) > 1.05 * min(ends):
        notes.append(
            f"The runs are compared up to step {number(min(ends))}, where the shortest ends."
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
    through = (
        f"{value} ({interval}) through seeds, {number(math.sqrt(seeds.step))} through the noise of "
        "their steps"
    )
    return [f"Standard deviation of the late means of runs of one setting: {through}."]
