"""Whoever watches a run as it goes on says one thing of it, row for row: the judge, the live page,
the callback's line and its stop, and the alerts of trackers.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from groupwise.diagnostics.judge import judge
from groupwise.diagnostics.judgement import State
from groupwise.integrations.live_judgement import LiveJudgement
from groupwise.integrations.sinks import facts, title_of
from groupwise.pages.live_hub import live_view
from groupwise.pages.screen import head_of
from groupwise.record.run import Meaning, RunRecord
from groupwise.record.table import steps_table

BEFORE, LOST = 14, 6


def beginnings(interval: int, last: float) -> list[RunRecord]:
    """A run whose reward is lost, as it stands after each of its last rows."""
    rng = np.random.default_rng(3)
    reward = np.r_[0.85 + 0.02 * rng.standard_normal(BEFORE), last + 0.003 * rng.random(LOST)]
    table = steps_table([interval * (row + 1) for row in range(len(reward))], {"reward": reward})
    meanings = (Meaning("reward", "reward", "test"),)
    rows = range(BEFORE - 1, len(reward) + 1)
    return [RunRecord("run", table.head(count), meanings=meanings) for count in rows]


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("interval", "last"), [(10, 0.0), (1, 0.0), (10, 0.5), (50, 0.05)])
def test_all_who_watch_a_run_say_the_same_at_every_row(
    interval: int, last: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    alerts: list[dict[str, Any]] = []
    tracker = SimpleNamespace(
        run=SimpleNamespace(alert=lambda **alert: alerts.append(alert), summary={}),
        AlertLevel=SimpleNamespace(INFO="INFO", WARN="WARN", ERROR="ERROR"),
    )
    monkeypatch.setitem(sys.modules, "wandb", tracker)
    lines: list[str] = []
    watching = LiveJudgement(lines.append, every=1, stop_on="failing")
    states, before = [], None
    for record in beginnings(interval, last):
        step = int(record.steps["step"][-1])
        expected = judge(record, ended=False)
        page = live_view(record, "reward", 0.95, ended=False)
        judgement = page["judgement"]
        assert (judgement["state"], judgement["headline"], judgement["since_step"]) == (
            expected.state,
            expected.headline,
            expected.since_step,
        )
        assert page["head"] == head_of(expected.state)
        said = len(lines), len(alerts)
        stops = watching.look(record, step)
        assert stops == (expected.state is State.FAILING)
        changed = expected.state is not before and (before or expected.state is not State.OK)
        assert (len(lines) - said[0], len(alerts) - said[1]) == (int(bool(changed)),) * 2
        if changed:
            assert lines[-1].startswith(f"{title_of(expected.state)} at step {step}")
            assert expected.headline in lines[-1]
            assert expected.headline in alerts[-1]["text"]
            assert alerts[-1]["title"] == title_of(expected.state)
            since = "" if expected.since_step is None else str(expected.since_step)
            assert facts(expected, "").get("since_step", "") == since
        states.append(expected.state)
        before = expected.state
    # Two rows may be a batch without luck; from the third at a tenth of the level on it fails.
    failing = [State.FAILING] * (LOST - 2 if last < 0.1 else 0)
    assert [state for state in states if state is State.FAILING] == failing
    assert states[len(states) - len(failing) :] == failing
