"""Checks of a run while it trains: when they look at it, what they may cost, and whom their findings are told to.

The standard checks are those of `groupwise.diagnostics`, which load much when they first run: that is done before the first step. Findings
are told in the terminal and to the tracker in use (trackio, Weights & Biases).
"""

from __future__ import annotations

import math
import re
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from groupwise.errors import InvalidArgumentError
from groupwise.integrations.recorder import Say, reason_of
from groupwise.record.run import RunRecord
from groupwise.record.table import rollouts_table, steps_table

Severity = Literal["info", "warning", "critical"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
Checks = Callable[[RunRecord], Iterable[Any]]

_EVERY, _SHARE = 50, 0.02  # steps between two looks, and the share of the time that they may take, where no interval is asked for
_ROWS, _GROUPS, _SIZE = 60, 4, 4  # of the run that the checks are made ready with


@dataclass(frozen=True, slots=True)
class Alert:
    """One thing to tell."""

    check: str  # what found it
    severity: Severity
    message: str  # a sentence


def severity(name: str) -> Severity:
    """Return a severity by its name."""
    for known in SEVERITIES:
        if known == name:
            return known
    raise InvalidArgumentError(f"expected one of {', '.join(SEVERITIES)}, got {str(name)[:40]!r}: use one of these")


def alert_of(finding: Any) -> Alert:
    """Return a finding, which is anything or a mapping with `check`, `severity`, `message` and perhaps `advice`, as an alert."""
    if isinstance(finding, Alert):
        return finding

    def get(name: str) -> str:
        return str((finding.get(name) if isinstance(finding, dict) else getattr(finding, name, None)) or "")

    message, advice = get("message"), get("advice")
    between = "" if not (message and advice) else " " if message.rstrip().endswith((".", "!", "?", ":")) else ": "
    text = f"{message}{between}{advice}" or str(finding)
    return Alert(get("check") or "check", severity(get("severity") or "warning"), text)


def standard_checks(record: RunRecord) -> list[Any]:
    """Return what the checks of `groupwise.diagnostics` find."""
    from groupwise.diagnostics.former import diagnose

    return list(diagnose(record).findings)


def found_by(checks: Checks, record: RunRecord) -> tuple[Alert, ...]:
    """Run checks, and return what they find, the worst first; checks that fail and findings that cannot be read become alerts too."""
    alerts: list[Alert] = []
    try:
        for finding in checks(record):
            try:
                alerts.append(alert_of(finding))
            except Exception as error:  # noqa: BLE001 - a finding of the user's own may be anything
                unread = f"a finding cannot be read: {reason_of(error)[:300]}; it was {str(finding)[:200]}"
                alerts.append(Alert("checks", "warning", unread))
    except Exception as error:  # noqa: BLE001 - a check of the user's own may raise anything, and training goes on
        what = "not all was checked" if alerts else "nothing was checked"
        alerts.append(Alert("checks", "warning", f"the checks failed, so {what}: {reason_of(error)[:300]}"))
    return tuple(sorted(alerts, key=lambda alert: -SEVERITIES.index(alert.severity)))


class Alerts:
    """Tell each thing once, in the terminal and to the tracker in use."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._told: set[tuple[str, str, str]] = set()

    def tell(self, alert: Alert, step: int) -> None:
        """Tell of a finding, unless the same was told of at this severity before, be it with other numbers."""
        key = (alert.check, alert.severity, re.sub(r"[\d.,]*\d", "#", alert.message)[:80])
        if key in self._told:
            return
        self._told.add(key)
        self._say(f"{alert.severity} at step {step}, {alert.check}: {alert.message}")
        for send in (_to_trackio, _to_wandb):
            try:
                send(alert, step)
            except Exception as error:  # noqa: BLE001 - a tracker may be offline in any way, and training goes on
                self._say(f"the alert did not reach the tracker: {type(error).__name__}: {str(error)[:200]}")


def _to_trackio(alert: Alert, step: int) -> None:
    """Send an alert to trackio where a run of it is open."""
    trackio, variables = sys.modules.get("trackio"), sys.modules.get("trackio.context_vars")
    if trackio is None or not hasattr(trackio, "alert") or (variables is not None and variables.current_run.get() is None):
        return
    trackio.alert(title=alert.check, text=f"step {step}: {alert.message}", level=_level_of(alert, trackio))


def _to_wandb(alert: Alert, step: int) -> None:
    """Send an alert to Weights & Biases where a run of it is open."""
    wandb = sys.modules.get("wandb")
    if wandb is not None and getattr(wandb, "run", None) is not None:
        wandb.run.alert(title=alert.check, text=f"step {step}: {alert.message}", level=_level_of(alert, wandb))


def _level_of(alert: Alert, tracker: Any) -> Any:
    """Return the severity of an alert as a tracker names it."""
    return getattr(tracker.AlertLevel, {"info": "INFO", "warning": "WARN", "critical": "ERROR"}[alert.severity])


class LiveChecks:
    """When the checks look at the steps so far, and what they find."""

    def __init__(self, checks: Checks | Literal["standard"] | None, *, every: int | None, stop_on: Severity | None, say: Say) -> None:
        self.checks: Checks | None = standard_checks if checks == "standard" else checks
        self.every, self.stop_on, self.seconds = _EVERY if every is None else every, stop_on, 0.0
        self._spaced, self._latest = every is None, 0.0  # whether a look must be affordable, and what the latest took
        self._say, self._alerts = say, Alerts(say)

    def begin(self, *, last_step: int | None, here: bool) -> None:
        """Let the standard checks load what they need before the training begins, on the process that looks (`here`)."""
        self.seconds = self._latest = 0.0
        if self.checks is standard_checks and here and (last_step is None or last_step >= self.every):
            began = time.perf_counter()
            found_by(self.checks, _played())
            self._say(f"the checks were made ready before the first step, which took {time.perf_counter() - began:.1f} s")
        if self.stop_on and self.checks is None:
            self._say(f"stop_on={self.stop_on!r} will stop nothing: there are no checks")

    def due(self, step: int) -> bool:
        """Return whether there is a look after a step; alike on every process."""
        return self.checks is not None and step % self.every == 0

    def affordable(self, elapsed: float) -> bool:
        """Return whether a look that takes as long as the latest stays within its share of the time; one asked for expressly does."""
        return not self._spaced or self.seconds + self._latest <= _SHARE * elapsed

    def look(self, record: RunRecord, step: int) -> bool:
        """Run the checks, tell what they find, and return whether the training is to stop."""
        assert self.checks is not None
        stop = False
        for alert in found_by(self.checks, record):
            self._alerts.tell(alert, step)
            stop |= self.stop_on is not None and SEVERITIES.index(alert.severity) >= SEVERITIES.index(self.stop_on)
        return stop

    def took(self, seconds: float) -> None:
        """Count what a look cost."""
        self._latest = seconds
        self.seconds += seconds


def _played() -> RunRecord:
    """Return a short run of no meaning, long enough that every check has something to compute."""
    step = range(1, _ROWS + 1)
    names = ("reward", "entropy", "kl", "grad_norm", "reward_std_within_group", "dead_group_share", "completions/mean_length")
    columns = {name: [2 + math.sin(number * (place + 2)) for number in step] for place, name in enumerate(names)}
    rollouts = [
        {"step": number, "prompt_id": n // _SIZE, "prompt": "p", "completion": f"c{number * n % 7}", "reward": float(number * n % 3 == 0)}
        for number in step
        for n in range(_GROUPS * _SIZE)
    ]
    return RunRecord("", steps_table(list(step), columns), rollouts_table(rollouts))
