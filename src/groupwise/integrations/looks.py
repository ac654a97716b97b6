"""Looks of the checks at a run that trains: when there is one, what it may cost, and what is told of what it finds.

The checks of `groupwise.diagnostics` load much when they are first run: that is done before the first step. It knows no trainer.
"""

from __future__ import annotations

import math
import time
from typing import Literal

from groupwise.integrations.alerts import SEVERITIES, Alerts, Checks, Severity, found_by, standard_checks
from groupwise.integrations.recorder import Say
from groupwise.record.run import RunRecord, rollouts_table, steps_table

_SHARE, _EVERY = 0.02, 50
_ROWS, _GROUPS, _SIZE = 60, 4, 4


class Looks:
    """When the checks look at the steps so far, and what they find."""

    def __init__(self, checks: Checks | Literal["standard"] | None, *, every: int | None, stop_on: Severity | None, say: Say) -> None:
        self.every, self.stop_on, self.seconds = _EVERY if every is None else every, stop_on, 0.0
        self._checks, self._spaced, self._latest, self._say = checks, every is None, 0.0, say
        self._alerts, self._wanted = Alerts(say), checks is not None  # the latter is the same on every process

    @property
    def there(self) -> bool:
        """Whether there are checks."""
        return self._checks is not None

    def begin(self, *, last_step: int | None, here: bool) -> None:
        """Get ready for a training: find the standard checks, and let them load what they need."""
        self.seconds = self._latest = 0.0
        if self._checks == "standard":
            self._checks = standard_checks()
            if self._checks is None:
                self._say("this version has no groupwise.diagnostics: no checks are run; hand over your own with checks=")
            elif here and (last_step is None or last_step >= self.every):
                began = time.perf_counter()
                found_by(self._checks, _played())
                self._say(f"the checks were made ready before the first step, which took {time.perf_counter() - began:.1f} s")
        if self.stop_on and self._checks is None:
            self._say(f"stop_on={self.stop_on!r} will stop nothing: there are no checks")

    def due(self, step: int) -> bool:
        """Return whether there is a look after a step; alike on every process."""
        return self._wanted and step % self.every == 0

    def affordable(self, elapsed: float) -> bool:
        """Return whether a look that costs what the last did keeps within its share of the time; asked for expressly, it is affordable."""
        return callable(self._checks) and (not self._spaced or self.seconds + self._latest <= _SHARE * elapsed)

    def look(self, record: RunRecord, step: int) -> bool:
        """Run the checks and tell what they find."""
        assert callable(self._checks)
        stop = False
        for alert in found_by(self._checks, record):
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
