"""What the live page knows of its runs, as Prometheus reads it: text format 0.0.4, numbers of runs and no text of theirs but names.

What is not known has no sample: a missing number is none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from groupwise.diagnostics.judgement import State
from groupwise.errors import MissingMetricError
from groupwise.record.run import RunRecord
from groupwise.report.live_hub import Hub
from groupwise.wording import clean

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Each gauge with what it is; all begin with "groupwise_".
GAUGES = {
    "state": "1 for the state of the run, 0 for the others.",
    "ended": "1 where nothing writes to the run any more.",
    "step": "The newest step of the log.",
    "rows": "Rows of the log.",
    "metric": "The newest value of the metric that is watched.",
    "changed_timestamp_seconds": "When the log last changed.",
    "failed_since_step": "The step from which a failure holds.",
    "first_sign_step": "The step of the first sign of a failure.",
    "wasted_steps": "Steps since the first sign.",
    "wasted_rollouts": "Rollouts since the first sign.",
    "wasted_seconds": "Seconds since the first sign.",
}


def exposition(hub: Hub) -> str:
    """Return all gauges of all runs."""
    samples = [sample for index in range(len(hub.runs)) for sample in _samples(hub, index)]
    lines = []
    for name, about in GAUGES.items():
        found = [line for gauge, line in samples if gauge == name]
        lines += [f"# HELP groupwise_{name} {about}", f"# TYPE groupwise_{name} gauge", *found] if found else []
    return "\n".join([*lines, ""])


def _samples(hub: Hub, index: int) -> Iterator[tuple[str, str]]:
    """Yield the samples of one run, each with its gauge."""
    run, said = hub.runs[index], hub.state(index)
    judgement = (run.judged or {}).get("judgement") or {}
    sign, cost = judgement.get("first_sign") or {}, judgement.get("cost") or {}
    numbers = {
        "ended": said["ended"],
        "step": said["step"],
        "rows": said["rows"],
        "changed_timestamp_seconds": said["grew"] or None,
        "failed_since_step": judgement.get("since_step"),
        "first_sign_step": sign.get("step"),
        **{f"wasted_{unit}": cost.get(unit) for unit in ("steps", "rollouts", "seconds")},
    }
    for gauge, value in numbers.items():
        if value is not None:
            yield gauge, f"groupwise_{gauge}{_labels(run=said['name'])} {_number(value)}"
    if "state" in judgement:
        for state in State:
            yield "state", f"groupwise_state{_labels(run=said['name'], state=state.value)} {int(state.value == judgement['state'])}"
    newest = None if run.follower.record is None else _newest(run.follower.record, hub.metric)
    if newest is not None:
        yield "metric", f"groupwise_metric{_labels(run=said['name'], metric=hub.metric)} {_number(newest)}"


def _newest(record: RunRecord, metric: str) -> float | None:
    """Return the newest value of a metric that is a number."""
    try:
        column = record.steps[record.column(metric)]
    except MissingMetricError:
        return None
    known = [value for value in column.tail(100).to_list() if value is not None and math.isfinite(value)]
    return float(known[-1]) if known else None


def _number(value: float) -> str:
    """Write a number as Prometheus reads it, all digits kept."""
    return repr(float(value))


def _labels(**labels: str) -> str:
    """Write labels, what would end them escaped."""
    escaped = {name: clean(value).replace("\\", r"\\").replace('"', r"\"") for name, value in labels.items()}
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped.items()) + "}"
