"""What is told while a run trains, and where: the tracker in use (trackio, Weights & Biases) and the terminal.

`found_by` runs the checks of `groupwise.diagnostics`, or the caller's own, on the steps so far. It judges nothing by itself.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from groupwise.errors import InvalidArgumentError
from groupwise.integrations.recorder import Say, reason_of
from groupwise.record.run import RunRecord

Severity = Literal["info", "warning", "critical"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
Checks = Callable[[RunRecord], Iterable[Any]]
DIAGNOSTICS = "groupwise.diagnostics"


@dataclass(frozen=True, slots=True)
class Alert:
    """One thing to tell."""

    check: str  # what found it
    severity: Severity  # info, warning or critical
    message: str  # a sentence


def severity(name: str) -> Severity:
    """Return a severity by its name."""
    for known in SEVERITIES:
        if known == name:
            return known
    raise InvalidArgumentError(f"expected one of {', '.join(SEVERITIES)}, got {str(name)[:40]!r}: use one of these")


def alert_of(finding: Any) -> Alert:
    """Return a finding as an alert: anything, or a mapping, with `check`, `severity`, `message` and perhaps `advice`."""
    if isinstance(finding, Alert):
        return finding
    get = finding.get if isinstance(finding, dict) else lambda name, default=None: getattr(finding, name, default)
    message = _together(str(get("message") or ""), str(get("advice") or ""))
    return Alert(str(get("check") or "check"), severity(str(get("severity") or "warning")), message or str(finding))


def _together(message: str, advice: str) -> str:
    """Return a message and an advice as one text: after a sentence another one, after other words behind a colon."""
    if not (message and advice):
        return message or advice
    return f"{message}{' ' if message.rstrip().endswith(('.', '!', '?', ':')) else ': '}{advice}"


def standard_checks() -> Checks | None:
    """Return the checks of `groupwise.diagnostics`, or None in a version without them.

    Its `diagnose(record)` is taken where there is one, with `findings`; else every entry of `CHECKS`, a function of a record or an object
    with `run(record)`, that returns a finding, several, or nothing.
    """
    if importlib.util.find_spec(DIAGNOSTICS) is None:
        return None
    module = importlib.import_module(DIAGNOSTICS)
    diagnose = getattr(module, "diagnose", None)
    if callable(diagnose):
        return lambda record: list(getattr(diagnose(record), "findings", ()))
    checks = tuple(getattr(module, "CHECKS", ()))
    return (lambda record: [finding for check in checks for finding in _run(check, record)]) if checks else None


def _run(check: Any, record: RunRecord) -> list[Any]:
    """Return what one check finds: those of its results that have a severity."""
    result = check(record) if callable(check) else check.run(record)
    results = result if isinstance(result, list | tuple) else [result]
    return [one for one in results if getattr(one, "severity", None) in SEVERITIES]


def found_by(checks: Checks, record: RunRecord) -> tuple[Alert, ...]:
    """Run checks on the steps so far; checks that fail, and a finding that cannot be read, become alerts about themselves."""
    alerts: list[Alert] = []
    try:
        alerts.extend(_told_anyway(finding) for finding in checks(record))
    except Exception as error:  # noqa: BLE001 - a check of the user's own may raise anything, and training goes on
        what = "not all was checked" if alerts else "nothing was checked"
        alerts.append(Alert("checks", "warning", f"the checks failed, so {what}: {reason_of(error)[:300]}"))
    return tuple(sorted(alerts, key=lambda alert: -SEVERITIES.index(alert.severity)))


def _told_anyway(finding: Any) -> Alert:
    """Return a finding as an alert; one that cannot be read as an alert that says so."""
    try:
        return alert_of(finding)
    except Exception as error:  # noqa: BLE001 - a finding of the user's own may be anything
        return Alert("checks", "warning", f"a finding cannot be read: {reason_of(error)[:300]}; it was {str(finding)[:200]}")


def _stem(message: str) -> str:
    """Return what a message is about: its beginning without numbers, which change from look to look."""
    return re.sub(r"[\d.,]*\d", "#", message)[:80]


class Alerts:
    """Tell each thing once to everybody who listens."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._told: set[tuple[str, str, str]] = set()

    def tell(self, alert: Alert, step: int) -> None:
        """Tell of a finding, unless the same was told of at this severity before, be it with other numbers."""
        key = (alert.check, alert.severity, _stem(alert.message))
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
    """Send to trackio where a run of it is open."""
    trackio = sys.modules.get("trackio")
    if trackio is None or not hasattr(trackio, "alert"):
        return
    variables = sys.modules.get("trackio.context_vars")
    if variables is not None and variables.current_run.get() is None:
        return
    level = {"info": "INFO", "warning": "WARN", "critical": "ERROR"}[alert.severity]
    trackio.alert(title=alert.check, text=f"step {step}: {alert.message}", level=getattr(trackio.AlertLevel, level))


def _to_wandb(alert: Alert, step: int) -> None:
    """Send to Weights & Biases where a run of it is open."""
    wandb = sys.modules.get("wandb")
    if wandb is None or getattr(wandb, "run", None) is None:
        return
    level = {"info": "INFO", "warning": "WARN", "critical": "ERROR"}[alert.severity]
    wandb.run.alert(title=alert.check, text=f"step {step}: {alert.message}", level=getattr(wandb.AlertLevel, level))
