"""Runs sorted into groups: as they were typed, or by what their settings or their names say of a setting.

A setting is looked for in the run's configuration, then in its name, as `rho0.50_seed42` says rho and seed. It opens no run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from groupwise.errors import InvalidArgumentError
from groupwise.record.run import RunRecord
from groupwise.record.settings import RULES
from groupwise.report.wording import clean

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
    try:
        return f"{float(text):.12g}"
    except ValueError:
        return text


def _order(text: str) -> tuple[int, float, str]:
    """Numbers by size, then texts by alphabet."""
    try:
        return 0, float(text), text
    except ValueError:
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
    for place, (name, row) in enumerate(zip(names, records, strict=True)):
        own = name if len(name) > 1 and names.count(name) == 1 else f"{name} ({place + 1})" if len(row) == 1 else f"group {place + 1}"
        groups.append(RunGroup(clean(own, longest=_LONGEST), tuple(row)))
    return groups


def _common(names: Sequence[str]) -> str:
    """What names begin with, without what stands before a seed's number."""
    if len(names) == 1:
        return names[0]
    first, last = min(names), max(names)
    same = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    prefix = first[:same]
    return re.sub(r"(?:[\W_]+(?:seed|s|run|r)?)?[\W_\d]*$", "", prefix)


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
    notes = []
    if between:
        notes.append(f"The groups differ in {', '.join(between)}: what is found may be due to any of them.")
    if within:
        notes.append(f"Runs of one group differ in {', '.join(within)}: that counts as seed noise here.")
    return notes
