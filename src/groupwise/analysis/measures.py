"""The numbers beside the checks of a run, with their intervals: what they rest on, for who asks why."""

from __future__ import annotations

from groupwise.diagnostics import diversity, hacking, instability, margin, zero_variance
from groupwise.diagnostics.judgement import Measure
from groupwise.diagnostics.signals import Evidence
from groupwise.record.run import RunRecord

_MEASURES = (hacking.measures, zero_variance.measures, diversity.measures, margin.measures, instability.measures)


def measures_of(record: RunRecord) -> tuple[Measure, ...]:
    """Return every number beside a check, which may take a fit of the reward; one that cannot be measured says what to log."""
    evidence = Evidence(record)
    return tuple(one for measures in _MEASURES for one in measures(evidence))
