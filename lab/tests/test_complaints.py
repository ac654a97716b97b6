"""Logs as users complained of them: the cause is named, and healthy logs that look alike are ok."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from complaints import ALIKE, CAUSES, Kind, log_of

from groupwise.diagnostics.judge import judge
from groupwise.diagnostics.judgement import Judgement, State
from groupwise.readers import open_run

SEEDS = 4


def judged(kind: Kind, trainer: str, seed: int, folder: Path) -> Judgement:
    """The judgement of the log as a file, as a user has it."""
    path = folder / f"{trainer}-{seed}.jsonl"
    path.write_text("\n".join(map(json.dumps, log_of(kind, trainer, seed))))
    return judge(open_run(path), ended=True)


@pytest.mark.parametrize("name", CAUSES)
def test_a_complaint_gets_its_cause(name: str, tmp_path: Path) -> None:
    """Of 20 logs a trainer 19 or 20 are right; a stale queue of young rollouts is left alone."""
    kind, trainers, words = CAUSES[name]
    looks = [(trainer, seed) for trainer in dict.fromkeys(trainers) for seed in range(SEEDS)]
    causes = [judged(kind, *look, tmp_path).cause for look in looks]
    right = sum(any(words in label for label in cause.names) for cause in causes)
    assert right >= len(looks) - len(looks) // SEEDS, [cause.names for cause in causes]


@pytest.mark.parametrize("name", ALIKE)
def test_a_healthy_log_that_looks_alike_is_ok(name: str, tmp_path: Path) -> None:
    kind, trainers = ALIKE[name]
    looks = [(trainer, seed) for trainer in dict.fromkeys(trainers) for seed in range(SEEDS)]
    assert {judged(kind, *look, tmp_path).state for look in looks} == {State.OK}
