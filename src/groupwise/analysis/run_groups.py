"""Runs sorted into groups, as typed or by a setting, and what the groups differ in.

A setting is looked for in a run's configuration, then in a column of its log that holds one value
throughout, then in its name, as `rho0.50_seed42` says rho and seed. Nothing is compared here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from os.path import commonprefix
from pathlib import PurePath
from typing import Any

import numpy as np

from groupwise.errors import InvalidArgumentError
from groupwise.plain import frozen
from groupwise.record.run import RunRecord, steps_table
from groupwise.record.settings import RULES
from groupwise.wording import clean, shortest_paths

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
        value = None if match is None else match[1] or match[2]
    return None if value is None else _plain(str(value))


def _held(record: RunRecord, key: str) -> str | float | None:
    """The one value that a column of the log holds throughout, or None."""
    wanted = key.strip().lower().replace(" ", "_")
    for column in record.metrics():
        if column.strip().lower().replace(" ", "_") == wanted:
            values = record.steps[column].drop_nulls().unique()
            return float(values[0]) if len(values) == 1 else None
    return next(
        (
            text
            for column, text in record.labels.items()
            if column.strip().lower().replace(" ", "_") == wanted
        ),
        None,
    )


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
                f"--by {key[:40]} expects a setting that every run says in its settings or its "
                f"name; {clean(record.name, longest=60)!r} does not: name it in the run's name, or "
                "put groups apart with vs"
            )
        runs_by_value.setdefault(value, []).append(record)
    if not runs_by_value:
        raise InvalidArgumentError(
            f"--by {key[:40]} expects runs that differ in it; none can be read"
        )
    if len(runs_by_value) < 2:
        raise InvalidArgumentError(
            f"--by {key[:40]} expects runs that differ in it; all {len(records)} have "
            f"{next(iter(runs_by_value))[:40]}"
        )
    order = sorted(runs_by_value, key=_order)
    if baseline is not None:
        first = _plain(baseline)
        if first not in runs_by_value:
            raise InvalidArgumentError(
                f"--baseline expects one of {', '.join(order)}; got {baseline[:40]!r}"
            )
        order = [first, *(value for value in order if value != first)]
    left = _LONGEST - 1 - max(map(len, order))
    key_name = clean(key) if len(key) <= left else clean(key)[: max(left - 1, 8)] + "…"
    names = _told_apart(
        [
            f"{key_name} {value}" if re.fullmatch(_NUMBER, value) else short_name(value)
            for value in order
        ]
    )
    return [
        RunGroup(name, tuple(runs_by_value[value]))
        for name, value in zip(names, order, strict=True)
    ]


def short_name(name: str) -> str:
    """A run's name without the ending of its file, its middle left out where it is long."""
    cleaned = re.sub(r"(?<=\w)(\.[A-Za-z_]{2,12}){1,2}$", "", clean(name))
    half = (_LONGEST - 1) // 2
    return cleaned if len(cleaned) <= _LONGEST else f"{cleaned[:half]}…{cleaned[-half:]}"


def named_apart(records: Sequence[RunRecord]) -> Sequence[RunRecord]:
    """Return runs that go by their paths where two of them have one name."""
    places = [_home_of(record) for record in records if record.sources]
    if not len({record.name for record in records}) < len(records) == len(set(places)):
        return records
    names = shortest_paths(places)
    return [replace(record, name=name) for record, name in zip(records, names, strict=True)]


def _home_of(record: RunRecord) -> PurePath:
    """Return the folder that a run is called by, or its log."""
    log = PurePath(record.sources[0].path)
    return next((folder for folder in log.parents if folder.name == record.name), log)


def _told_apart(names: Sequence[str]) -> list[str]:
    """Names with their number behind those that come twice."""
    return [
        f"{name} ({place})" if names.count(name) > 1 else name
        for place, name in enumerate(names, start=1)
    ]


def _unnumbered(name: str) -> str:
    """A name without the number at its end and the word of a seed in front of that."""
    return re.sub(
        r"(?<![\W_])[\W_]+(?:seed|s|run|r)$", "", re.sub(r"(?<![\W_\d])[\W_\d]+$", "", name)
    )


def typed_groups(records: Sequence[Sequence[RunRecord]]) -> list[RunGroup]:
    """Name groups of runs as they were typed."""
    common = []
    for row in records:
        # of letters, not of folders
        prefix = commonprefix([record.name for record in row])  # noqa: RUF071
        # Without what stands before a seed's number.
        common.append(prefix if len(row) == 1 else _unnumbered(prefix))
    lost = [
        len(row) > 1 and (len(name) < 2 or common.count(name) > 1)
        for name, row in zip(common, records, strict=True)
    ]
    names = [
        f"group {place}" if lost[place - 1] else short_name(name)
        for place, name in enumerate(common, start=1)
    ]
    return [
        RunGroup(name, tuple(row)) for name, row in zip(_told_apart(names), records, strict=True)
    ]


def differing_settings(
    groups: Sequence[RunGroup], *, besides: Sequence[str] = ()
) -> tuple[tuple[str, ...], list[str]]:
    """Return the settings in which groups differ, and notes on them.

    And on those in which the runs of one group do.
    """
    between, listed, within = [], [], []
    for name in RULES:
        if name in besides or name == "seed":
            continue
        values = [
            {
                str(record.config.value(name))
                for record in group.runs
                if record.config.value(name) is not None
            }
            for group in groups
        ]
        if any(len(own) > 1 for own in values):
            within.append(name)
        elif len(set.union(*values)) > 1:
            between.append(name)
            listed.append(
                f"{name} "
                f"({'; '.join(clean(next(iter(own), 'unknown'), longest=40) for own in values)})"
            )
    notes = (
        [f"The groups differ in {', '.join(listed)}: what is found may be due to any of them."]
        if between
        else []
    )
    return tuple(between), notes + (
        [f"Runs of one group differ in {', '.join(within)}: that counts as seed noise here."]
        if within
        else []
    )


def record_of_numbers(numbers: Any, metric: str, name: str) -> RunRecord:
    """Return a record of values of a metric, at steps 1, 2, ..., or of steps and values."""
    try:
        value = np.asarray(numbers, dtype=float)
        len(value)
    except (TypeError, ValueError):
        raise InvalidArgumentError(
            f"expected a run, a path or numbers, got {type(numbers).__name__}: give one of them"
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
            "expected whole steps, got others: give the steps of the log, and fit(times, values) "
            "for another clock"
        )
    record = RunRecord(name, steps_table(step.astype(int).tolist(), {metric: value[1]}))
    record.validate()
    return record
