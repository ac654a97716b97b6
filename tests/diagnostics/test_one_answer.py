"""Cause, checks and advice say one thing: each beside a log that looks alike and must not change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.cases import each_case

from groupwise.diagnostics.causes import CAUSES, contenders
from groupwise.diagnostics.judge import judge
from groupwise.diagnostics.judgement import Cause, Certainty, Fact, Judgement, Status
from groupwise.diagnostics.signals import Evidence
from groupwise.files import table_rows
from groupwise.pages.screen import actions_said
from groupwise.record.run import Meaning, RunConfig, RunRecord, steps_table

N = 150
ROW = np.arange(N)
LATE = 1 / (1 + np.exp((90 - ROW) / 3.0))  # 0, and 1 from row 100 on


def noise(seed: int, size: float = 1.0) -> Any:
    return size * np.random.default_rng(seed).standard_normal(N)


def record(settings: dict[str, Any] | None = None, **columns: Any) -> RunRecord:
    rows = max(np.size(column) for column in columns.values())
    named = {key: np.broadcast_to(value, rows) for key, value in columns.items()}
    meanings = tuple(Meaning(key, key, "test") for key in named)
    config = RunConfig().with_settings(settings or {}, "test")
    return RunRecord("test", steps_table(ROW[:rows] + 1, named), meanings=meanings, config=config)


def judged(settings: dict[str, Any] | None = None, **columns: Any) -> Judgement:
    return judge(record(settings, **columns), ended=True)


FALLS = 0.8 * (1 - LATE) + 0.02 + noise(0, 0.02)
APART: dict[str, Any] = {
    "reward": FALLS,
    "entropy": 0.3 * np.exp(1.5 * LATE) + noise(2, 0.005),
    "completion_length": 300 + noise(1, 5),
}


@pytest.mark.parametrize(("fallen", "status"), [(True, Status.INFO), (False, Status.NONE)])
def test_what_the_cause_goes_by_is_said_in_numbers_and_not_to_show_no_problem(
    fallen: bool, status: Status
) -> None:
    """The gradient norm grows ninefold, within its limit."""
    grown = np.exp(np.log(9) * LATE) + noise(3, 0.02)
    columns = APART if fallen else {key: column[:60] for key, column in APART.items()}
    judgement = judged(gradient_norm=grown[: len(columns["reward"])], **columns)
    assert judgement.cause.keys == (("instability",) if fallen else ())
    gradient = next(check for check in judgement.checks if check.check == "gradient")
    assert gradient.status is status
    assert "(maximum " in gradient.message


@each_case(
    ("settings", "column", "needless"),
    [
        ({}, {"clip_ratio": 0.0}, ["clip_high =0.28"]),
        ({}, {"clip_ratio": np.where(ROW == 40, 1e-4, 0.0)}, []),
        ({}, {"gradient_norm": 0.9}, ["clip_gradient =1"]),
        ({}, {"gradient_norm": np.where(ROW == 40, 1.5, 0.9)}, []),
        ({}, {"gradient_norm": np.where(ROW < 90, 0.9, np.inf)}, []),
        ({}, {"gradient_norm": 0.0}, []),  # nobody measured it
        ({"refresh_interval": 1}, {}, ["updates =1"]),
        ({"refresh_interval": 2}, {}, []),
        ({"refresh_interval": 2, "framework": "trl"}, {}, []),
        ({"lag_kind": "none"}, {}, ["updates =1"]),
        # What is not stated is the trainer's default: one update of TRL, several of verl.
        ({"framework": "trl"}, {}, ["updates =1"]),
        ({"framework": "trl"}, {"clip_ratio": np.where(ROW == 40, 1e-4, 0.0)}, []),
        ({"framework": "verl"}, {}, []),
    ],
)
def test_what_was_never_beyond_its_limit_needs_none(
    settings: dict[str, Any], column: dict[str, Any], needless: list[str]
) -> None:
    assert Evidence(record(settings, **APART, **column)).needless == ["clip", *needless]


@each_case(
    ("loss", "clips"),
    [("grpo_no_clip", True), ("unclipped", True), ("dapo", False), (None, False)],
)
def test_a_clip_is_advised_where_the_loss_says_that_it_has_none(
    loss: str | None, clips: bool
) -> None:
    judgement = judged({"loss": loss} if loss else {}, **APART)
    assert judgement.cause.keys == ("instability",)
    assert ("clip" in [action.kind for action in judgement.actions]) is clips
    assert ("clip the importance ratio" in judgement.do) is clips


def test_needless_actions_are_those_of_the_tables() -> None:
    taken = {entry for row in CAUSES.values() for entry in row.actions}
    assert {row["action"] for row in table_rows("diagnostics/needless.tsv")} <= taken
    for row in CAUSES.values():
        assert len(row.actions) <= len(row.do.split("; ")), row.key


@pytest.mark.parametrize("steps", [N, 60])
def test_the_line_and_its_actions_are_the_same_clauses(steps: int) -> None:
    judgement = judged(**{key: column[:steps] for key, column in APART.items()})
    said = [line.removeprefix("Do: ") for line in actions_said(judgement)]
    clauses = judgement.do.split("; ") if judgement.do else []
    assert len(said) == len(clauses)
    assert all(line.startswith(clause) for line, clause in zip(said, clauses, strict=True))


@pytest.mark.parametrize(("longer", "outweighed"), [(3.0, True), (1.0, False)])
def test_the_facts_of_the_cause_say_what_they_outweigh(longer: float, outweighed: bool) -> None:
    """A reward that is 0 at once looks like a verifier, unless the answers ran away with it; they
    had moved as far as the run began.
    """
    judgement = judged(
        reward=np.where(ROW >= 100, 0.0, 0.7 + noise(0, 0.02)),
        completion_length=np.where(ROW >= 99, longer, 1 + 29 * np.exp(-ROW / 9)) * (300 + noise(1)),
        entropy=0.3 + noise(2, 0.005),
    )
    verifier = next(check for check in judgement.checks if check.check == "verifier")
    assert verifier.status is Status.CRITICAL
    assert judgement.cause.keys == (("length",) if outweighed else ("verifier",))
    assert judgement.cause.outweighed == (("a broken verifier",) if outweighed else ())
    fact = Fact.LENGTH_RAN_AWAY if outweighed else Fact.REWARD_CONSTANT_AT_ONCE
    assert fact.value in judgement.cause.because


@pytest.mark.parametrize(("at", "keys"), [(1, "rate_too_large"), (14, "instability")])
def test_a_reward_that_is_lost_within_the_first_updates_is_of_the_rate(at: int, keys: str) -> None:
    """Nothing but the reward is logged: a verifier may have failed as well."""
    reward = np.where(at > ROW, 0.3 + noise(0, 0.02), 0.0)[:40]
    judgement = judged({"prompts_per_step": 32, "group_size": 8}, reward=reward)
    assert judgement.cause.certainty is Certainty.CANNOT_TELL
    assert judgement.cause.keys == ("verifier", keys)
    assert judgement.cause.log == ("entropy and completion length",)


@pytest.mark.parametrize(("level", "hard"), [(0.39, False), (0.02, True)])
def test_a_task_of_which_a_third_is_solved_is_not_asked_to_be_too_hard(
    level: float, hard: bool
) -> None:
    solved = np.random.default_rng(3).binomial(256, level, N) / 256
    judgement = judged({"prompts_per_step": 32, "group_size": 8}, reward=solved)
    assert ("too_hard" in contenders(judgement.cause)) is hard


def test_no_cause_is_asked_to_be_told_from_one_of_its_own_family() -> None:
    rivals = ("instability", "verifier")
    assert contenders(Cause(Certainty.POSSIBLE, keys=("shrinking",), rivals=rivals)) == (
        "shrinking",
        "verifier",
    )
    assert contenders(Cause(Certainty.POSSIBLE, keys=("length",), rivals=rivals)) == (
        "length",
        *rivals,
    )


@each_case(("quantity", "said"), [("reward/f", "; f gained"), ("eval/reward", "held-out")])
def test_what_grades_the_training_rollouts_again_is_not_held_out(quantity: str, said: str) -> None:
    rises = 0.15 + 0.4 * ROW / N
    rewards = {"reward": rises + noise(0, 0.01), quantity: 0.05 + noise(1, 0.005)}
    if quantity != "eval/reward":
        rewards["reward/g"] = rewards["reward"]
    finding = next(check for check in judged(**rewards).checks if check.check == "reward_hacking")
    assert finding.signs
    assert said in finding.message
    others = {"; f gained", "held-out"} - {said}
    assert not any(other in finding.message for other in others)
