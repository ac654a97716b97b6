"""What a check says: healthy, a finding, or that it cannot tell and what to log so that it can; and what it measures besides.

Four frozen results and the diagnosis that collects them. No statistic is computed here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from groupwise.intervals import Interval
from groupwise.plain import Plain, plain

Severity = Literal["info", "warning", "critical"]
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "critical")


@dataclass(frozen=True, slots=True)
class Healthy:
    """Nothing was found, and the check could have found it."""

    check: str  # its name
    message: str  # what was looked at, with the number
    evidence: Mapping[str, str] = field(default_factory=dict)  # facts for the verdict, by name; see `verdict.FEATURES`


@dataclass(frozen=True, slots=True)
class Unavailable(Plain):
    """The log does not hold what the check needs."""

    KEYS = ("check", "reason", "log_this")

    check: str  # its name
    reason: str  # why nothing can be said
    log_this: str  # what to log
    evidence: Mapping[str, str] = field(default_factory=dict)  # facts for the verdict that are known all the same


class _WithEnds(Plain):
    """A result whose value shows its ends and not its level."""

    __slots__ = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        shown = super().as_dict()
        if shown["value"] is not None:
            shown["value"] = {end: shown["value"][end] for end in ("value", "low", "high")}
        return shown


@dataclass(frozen=True, slots=True)
class Finding(_WithEnds):
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
        what: the number is, in a few words.
    """

    KEYS = ("check", "severity", "since_step", "value", "threshold", "message", "advice")

    check: str
    severity: Severity
    since_step: int | None
    value: Interval
    threshold: float
    message: str
    advice: str
    evidence: Mapping[str, str] = field(default_factory=dict)
    what: str = ""


Outcome = Healthy | Finding | Unavailable


@dataclass(frozen=True, slots=True)
class Measure(_WithEnds):
    """A number beside a check: it raises no alarm and changes no verdict."""

    check: str  # the check that it belongs to
    name: str  # of the number
    value: Interval | None  # with its interval; None where the log does not tell it
    message: str  # what it is, in a sentence; why there is none where there is none
    log_this: str = ""  # what to log to get it; "" where it is there


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause with its probability among those considered."""

    cause: str
    probability: float

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"cause": self.cause, "probability": round(self.probability, 4)}


@dataclass(frozen=True, slots=True)
class Diagnosis(Plain):
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
        return {
            "verdict": self.verdict,
            "causes": plain(self.causes),
            "findings": plain(self.findings),
            "healthy": [healthy.check for healthy in self.healthy],
            "unavailable": plain(self.unavailable),
            **({"evidence": plain(self.measures)} if evidence else {}),
        }


@dataclass(frozen=True, slots=True)
class Check:
    """One question asked of a run."""

    name: str  # as in the JSON
    title: str  # a few words
    run: Callable[[Any], Outcome]  # takes the evidence of a run and answers
    # each takes the same and gives numbers beside the answer
    measures: tuple[Callable[[Any], tuple[Measure, ...]], ...] = ()
