"""Logs as users complained of them: the cause is named, and healthy logs that look alike are ok."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from lab.tests.complaints import ALIKE, CAUSES, DOUBTFUL, UNNAMED, Kind, healthy, log_of

from groupwise.diagnostics.judge import judge
from groupwise.diagnostics.judgement import Certainty, Judgement, State
from groupwise.readers import run_record

SEEDS = 2


def judged(kind: Kind, trainer: str, seed: int, folder: Path) -> Judgement:
    """The judgement of the log as a file, as a user has it."""
    path = folder / f"{trainer}-{seed}.jsonl"
    path.write_text("\n".join(map(json.dumps, log_of(kind, trainer, seed))))
    return judge(run_record(path), ended=True)


@pytest.mark.thinned(8)
@pytest.mark.parametrize("name", CAUSES)
def test_a_complaint_gets_its_cause(name: str, tmp_path: Path) -> None:
    """Of 20 logs a trainer 19 or 20 are right; a stale queue of young rollouts is left alone."""
    kind, trainers, words = CAUSES[name]
    looks = [(trainer, seed) for trainer in dict.fromkeys(trainers) for seed in range(SEEDS)]
    causes = [judged(kind, *look, tmp_path).cause for look in looks]
    right = sum(any(words in label for label in cause.names) for cause in causes)
    assert right >= len(looks) - len(looks) // 4, [cause.names for cause in causes]


@pytest.mark.thinned(4)
@pytest.mark.parametrize("name", ALIKE)
def test_a_healthy_log_that_looks_alike_is_ok(name: str, tmp_path: Path) -> None:
    kind, trainers = ALIKE[name]
    looks = [(trainer, seed) for trainer in dict.fromkeys(trainers) for seed in range(SEEDS)]
    assert {judged(kind, *look, tmp_path).state for look in looks} == {State.OK}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", DOUBTFUL)
def test_what_looks_like_overfitting_is_not_said_to_be_it(name: str, tmp_path: Path) -> None:
    kind, trainers, words = DOUBTFUL[name]
    for trainer in trainers:
        for seed in range(SEEDS):
            cause = judged(kind, trainer, seed, tmp_path).cause
            right = any(words in label for label in cause.names)
            assert right or cause.certainty is not Certainty.LIKELY, (trainer, seed, cause.names)


@pytest.mark.parametrize("name", UNNAMED)
def test_what_looks_like_a_cause_does_not_name_it(name: str, tmp_path: Path) -> None:
    kind, trainers, words = UNNAMED[name]
    looks = [(trainer, seed) for trainer in trainers for seed in range(SEEDS)]
    names = [label for look in looks for label in judged(kind, *look, tmp_path).cause.names]
    assert not any(words in label for label in names)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        # of rows that are not finite to the end, as a trainer that skips such updates prints them
        ({"actor/pg_loss": np.nan, "actor/grad_norm": np.nan}, "numerical failure"),
        (
            {"training/rollout_actor_probs_pearson_corr": 0.62, "rollout_corr/kl": 0.004},
            "different experts",
        ),
    ],
)
def test_a_reward_that_goes_on_hides_nothing(
    columns: dict[str, float], words: str, tmp_path: Path
) -> None:
    rows = log_of(healthy, "verl", 3)
    late = [row | columns for row in rows[len(rows) * 3 // 4 :]]
    path = tmp_path / "verl.jsonl"
    early = (
        rows[: len(rows) * 3 // 4]
        if words == "numerical failure"
        else [row | columns for row in rows]
    )
    path.write_text(
        "\n".join(map(json.dumps, early + late if words == "numerical failure" else early))
    )
    judgement = judge(run_record(path), ended=True)
    assert judgement.state is not State.OK
    assert any(words in label for label in judgement.cause.names)


def test_advantages_that_are_no_number_in_any_row_are_groups_of_one(tmp_path: Path) -> None:
    path = tmp_path / "verl.jsonl"
    rows = [row | {"critic/advantages/min": np.nan} for row in log_of(healthy, "verl", 4)]
    path.write_text("\n".join(map(json.dumps, rows)))
    headline = judge(run_record(path), ended=True).headline
    assert headline.startswith(
        "the group size seems to be 1: critic/advantages/min is NaN in every row"
    )
