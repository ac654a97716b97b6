"""Event streams: JSON lines in which every row is one event with its numbers inside "metrics", and no step of its own.

An asynchronous trainer writes such rows as things happen; they are put in the order of the step that they belong to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from groupwise.errors import UnreadableRunError
from groupwise.readers.assemble import Log, Request, assemble
from groupwise.readers.rows import RowStore, counted
from groupwise.readers.source import JsonReader, open_text, peek, shown
from groupwise.readers.step_keys import STEP_KEYS
from groupwise.record.run import RunRecord

_LAST_NUMBER = re.compile(r"(?:^|\D)(\d{1,12})$")
_PLACES = ("partition_id", "batch_id", "rollout_id", "step_id")
_KEPT = ("ts", "timestamp", "elapsed_s", "elapsed")


def sniff_event_stream(path: Path) -> float:
    """Return the confidence that the file is a stream of events with their numbers inside "metrics"."""
    seen = peek(path)
    if seen.binary or not seen.text.startswith("{"):
        return 0.0
    reader, found, events = JsonReader(), 0, 0
    for line in seen.text.splitlines()[:20]:
        try:
            row = reader.loads(line)
        except ValueError:
            continue
        found += 1
        events += isinstance(row, Mapping) and _is_event(row)
    return 0.9 if events > 1 and events * 4 > found * 3 else 0.0


def _is_event(row: Mapping[str, Any]) -> bool:
    """Return whether a row is an event that tells its step by the name of what it belongs to, if at all."""
    named = isinstance(row.get("event"), str) and isinstance(row.get("metrics"), Mapping)
    return named and not any(key in row for key in STEP_KEYS)


def read_event_stream(path: Path, request: Request) -> RunRecord:
    """Read a stream of events; the step is the number at the end of `partition_id`, else the policy's version."""
    seen = peek(path)
    reader = JsonReader()
    rows: list[tuple[float, dict[str, Any]]] = []
    damaged = unplaced = 0
    with open_text(path, seen.encoding) as file:
        for line in file:
            if not line.strip():
                continue
            try:
                event = reader.loads(line.strip().lstrip("\ufeff"))
            except ValueError:
                event = None
            if not isinstance(event, Mapping) or not _is_event(event):
                damaged += 1
                continue
            step = _step(event)
            if step is None:
                unplaced += 1
            else:
                rows.append((step, _row(event, step)))
    if not rows:
        raise UnreadableRunError(f"expected events that belong to a step in {shown(path)}, got none: name their step partition_id")
    store = RowStore()
    for _, row in sorted(rows, key=lambda entry: entry[0]):
        store.add(row)
    notes = ["the events are put in the order of their steps, the numbers in their partition_id or the policy's version"]
    if unplaced:
        notes.append(f"{counted(unplaced, 'event')} of no step left out")
    if damaged:
        notes.append(f"{counted(damaged, 'line is no event and was', 'lines are no events and were')} left out")
    return assemble(Log(store, path, "events", seen.size, request.config, tuple(notes)), request)


def _step(event: Mapping[str, Any]) -> float | None:
    """Return the step that an event belongs to."""
    for key in _PLACES:
        value = event.get(key)
        match = _LAST_NUMBER.search(value) if isinstance(value, str) else None
        if match:
            return float(match[1])
        if isinstance(value, float):
            return value
    version = event.get("policy_version")
    return version if isinstance(version, float) and not any(event.get(key) for key in _PLACES) else None


def _row(event: Mapping[str, Any], step: float) -> dict[str, Any]:
    """Return the numbers of an event by name, with the phase in front of those that are not of training."""
    phase = str(event.get("phase") or event["event"])[:60]
    event_name = str(event["event"])[:60]
    front = "" if phase.startswith("train") else f"{event_name if event_name.startswith(phase) else phase}/"
    times = {key: event[key] for key in _KEPT if front == "" and isinstance(event.get(key), float)}
    return {"step": step} | times | {f"{front}{key}": value for key, value in event["metrics"].items()}
