"""What is said is done: each action changes what it names, in its order."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from lab.tests.experiments.conftest import scripts_of
from tests.cases import each_case

from groupwise.diagnostics.judgement import Action
from groupwise.files import table_rows
from groupwise_lab.trainer.rewards import FailingVerifier
from groupwise_lab.trainer.settings import TrainSettings
from groupwise_lab.trainer.tasks import LONGEST_SEQUENCE, make_task

with scripts_of(Path(__file__).resolve().parents[2] / "experiments" / "advice") as load:
    FOLLOWING = load("following")
_APPLY, Course, Changed, followed = (
    FOLLOWING._APPLY,
    FOLLOWING.Course,
    FOLLOWING.Changed,
    FOLLOWING.followed,
)

TASK = make_task("modular_addition", level=1)
SETTINGS = TrainSettings(
    group_size=8, rollouts_per_step=64, learning_rate=1e-3, lag_kind="fixed", refresh_interval=5
)
FAILING = FailingVerifier(TASK.verifier)


def course() -> Any:
    return Course(SETTINGS, replace(TASK, verifier=FAILING), TASK.verifier, TASK.train[:3])


def action(kind: str, *, factor: float | None = None, value: float | None = None) -> Action:
    return Action(kind, factor, value, (), "", "")


@each_case(
    ("kind", "size", "changed"),
    [
        ("rate", {"factor": 1 / 4}, {"learning_rate": 2.5e-4}),
        ("warm_up", {"value": 20}, {"ramp_steps": 20}),
        ("updates", {"value": 1}, {"lag_kind": "none", "refresh_interval": 1}),
        ("age", {"value": 1}, {"lag_kind": "none", "refresh_interval": 1}),
        ("synchronise", {"value": 1}, {"lag_kind": "none", "refresh_interval": 1}),
        ("group_size", {"factor": 2}, {"group_size": 16}),
        ("group_size", {"value": 5}, {"group_size": 4}),
        ("group_size", {"factor": 16}, {"group_size": 32}),  # two prompts are left
        ("prompts", {"factor": 2}, {"rollouts_per_step": 128}),
        ("precision", {}, {}),
        ("weights", {}, {}),
        ("clip_gradient", {"value": 1}, {"gradient_clip": 1}),
        ("clip_high", {"value": 0.28}, {"clip_high": 0.28}),
        ("reference", {"value": 0.001}, {"kl_weight": 0.001}),
    ],
)
def test_an_action_changes_the_setting_that_it_names(
    kind: str, size: dict[str, Any], changed: dict[str, Any]
) -> None:
    after = asdict(followed(course(), [action(kind, **size)]).settings)
    before = asdict(SETTINGS)
    assert {name: value for name, value in after.items() if value != before[name]} == changed


def test_actions_on_the_task_and_on_the_course() -> None:
    assert {*_APPLY} == {row["kind"] for row in table_rows("diagnostics/action_settings.tsv")}
    start = course()
    assert followed(start, []) is start
    longer = followed(start, [action("limit", factor=2.0)])
    assert longer.task.completion_length == 2 * TASK.completion_length
    for kind in ("reward", "verifier"):
        assert followed(start, [action(kind)]).task.verifier is TASK.verifier
    assert followed(start, [action("filter")]).task.train == TASK.train[:3]
    hard = replace(start, informative=(), easier=TASK.train[3:5])
    assert followed(hard, [action("filter")]).task.train == TASK.train[3:5]
    most = followed(start, [action("limit", factor=1e3)]).task
    assert most.completion_length + most.prompt_length == LONGEST_SEQUENCE
    assert followed(start, [action("restart", value=35)]).step == 35
    assert followed(start, [action("anew")]).step == 0
    assert followed(start, [action("stop")]).stopped
    both = followed(start, [action("verifier"), action("mask")]).task.verifier
    assert both == Changed(TASK.verifier, FOLLOWING.masked)
    problem = TASK.train[0]
    rewards = both([problem] * 2, [problem.answer] * 2, [True, False])
    assert all(np.isnan(reward_N).tolist() == [False, True] for reward_N in rewards.values())
    assert both.weights == TASK.verifier.weights


def test_prompts_are_filtered_where_no_verifier_is_to_be_mended() -> None:
    bare = course()
    both = followed(bare, [action("verifier"), action("filter")])
    assert both.task.train == bare.task.train != followed(bare, [action("filter")]).task.train


def test_without_problems_that_teach_nothing_is_filtered() -> None:
    bare = Course(SETTINGS, TASK, TASK.verifier)
    assert followed(bare, [action("filter")]).task.train == TASK.train
