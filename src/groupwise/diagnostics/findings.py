"""What a check says: healthy, a finding, or that it cannot tell and what to log so that it can; and what it measures besides.

Four frozen results and the diagnosis that collects them. No statistic is computed here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from groupwise.intervals import Interval, finite_or_none

Severity = Literal["info", "warning", "critical"]
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "critical")


@dataclass(frozen=True, slots=True)
class Healthy:
    """Nothing was found, and the check could have found it."""

    check: str  # its name
    message: str  # what was looked at, with the number
    evidence: Mapping[str, str] = field(default_factory=dict)  # facts for the verdict, by name; see `verdict.FEATURES`


@dataclass(frozen=True, slots=True)
class Unavailable:
    """The log does not hold what the check needs."""

    check: str  # its name
    reason: str  # why nothing can be said
    log_this: str  # what to log
    evidence: Mapping[str, str] = field(default_factory=dict)  # facts for the verdict that are known all the same

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"check": self.check, "reason": self.reason, "log_this": self.log_this}


@dataclass(frozen=True, slots=True)
class Finding:
    """Something is wrong, or worth knowing.

    Args:
        check: its name.
        severity: info changes nothing, warning asks for a look, critical says that training is wasted.
        since_step: the step from which it holds; None where it holds throughout or has no place.
        value: the number it rests on, with its interval.
        threshold: what the number is held against.
        message: what was found, in a sentence.
        advice: what to do.
        evidence: facts for the verdict.
        reference: where the method comes from.
        what: the number is, in a few words.
    """

    check: str
    severity: Severity
    since_step: int | None
    value: Interval
    threshold: float
    message: str
    advice: str
    evidence: Mapping[str, str] = field(default_factory=dict)
    reference: str = ""
    what: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        value = {end: finite_or_none(getattr(self.value, end)) for end in ("value", "low", "high")}
        return {
            "check": self.check,
            "severity": self.severity,
            "since_step": self.since_step,
            "value": value,
            "threshold": finite_or_none(self.threshold),
            "message": self.message,
            "advice": self.advice,
        }


Outcome = Healthy | Finding | Unavailable


@dataclass(frozen=True, slots=True)
class Measure:
    """A number beside a check: it raises no alarm and changes no verdict."""

    check: str  # the check that it belongs to
    name: str  # of the number
    value: Interval | None  # with its interval; None where the log does not tell it
    message: str  # what it is, in a sentence; why there is none where there is none
    log_this: str = ""  # what to log to get it; "" where it is there

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        value = None if self.value is None else {end: finite_or_none(getattr(self.value, end)) for end in ("value", "low", "high")}
        return {"check": self.check, "name": self.name, "value": value, "message": self.message, "log_this": self.log_this}


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause with its probability among those considered."""

    cause: str
    probability: float

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"cause": self.cause, "probability": round(self.probability, 4)}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All that the checks say of one run, and the verdict.

    Args:
        run: its name.
        verdict: healthy, one of the five causes, several, or undetermined.
        sentence: the verdict in words.
        causes: most probable first; empty where nothing was found.
        findings: worst first.
        healthy: checks that found nothing.
        unavailable: checks that could not look.
        measures: numbers beside the checks, where they were asked for.
    """

    run: str
    verdict: str
    sentence: str
    causes: tuple[Cause, ...]
    findings: tuple[Finding, ...]
    healthy: tuple[Healthy, ...]
    unavailable: tuple[Unavailable, ...]
    measures: tuple[Measure, ...] = ()

    @property
    def worst(self) -> Severity | None:
        """The highest severity found, or None."""
        return self.findings[0].severity if self.findings else None

    def as_dict(self, *, evidence: bool = False) -> dict[str, Any]:
        """Plain data for JSON.

        Args:
            evidence: whether to add the numbers beside the checks.

        Returns:
            Verdict, causes, findings, healthy and unavailable; and evidence.
        """
        plain: dict[str, Any] = {
            "verdict": self.verdict,
            "causes": [cause.as_dict() for cause in self.causes],
            "findings": [finding.as_dict() for finding in self.findings],
            "healthy": [healthy.check for healthy in self.healthy],
            "unavailable": [missing.as_dict() for missing in self.unavailable],
        }
        return plain | {"evidence": [measure.as_dict() for measure in self.measures]} if evidence else plain


@dataclass(frozen=True, slots=True)
class Check:
    """One question asked of a run."""

    name: str  # as in the JSON
    title: str  # a few words
    run: Callable[[Any], Outcome]  # takes the evidence of a run and answers
    # each takes the same and gives numbers beside the answer
    measures: tuple[Callable[[Any], tuple[Measure, ...]], ...] = ()
