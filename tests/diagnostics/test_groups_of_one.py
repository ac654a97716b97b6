"""Groups of one: advantages that are the rewards row for row, settings that say so, and what
only looks alike.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cases import each_case
from tests.golden.sentences import says

from groupwise.diagnostics.judge import judge
from groupwise.diagnostics.judgement import Certainty, State, Status
from groupwise.diagnostics.signals import Evidence
from groupwise.diagnostics.zero_variance import groups_of_one, zero_variance_groups
from groupwise.readers import run_record
from groupwise.record.run import Meaning, RunConfig, RunRecord, steps_table
from groupwise.record.table import fewest_decimals, resolution_of

ROW = np.arange(60)
REWARD = 0.2 + 0.6 * (1 - np.exp(-ROW / 15)) + 0.05 * np.sin(3.7 * ROW)
KEYS = {
    "critic/score/mean": "reward",
    "critic/score/max": "reward_max",
    "critic/score/min": "reward_min",
    "critic/rewards/mean": "reward_after_kl",
    "critic/advantages/mean": "advantage",
    "critic/advantages/max": "advantage_max",
    "critic/advantages/min": "advantage_min",
    "reward_std": "reward_std_within_group",
}


def log(columns: dict[str, Any], **settings: Any) -> RunRecord:
    config = RunConfig().with_settings(settings, "test")
    digits = {
        key: fewest_decimals(np.asarray(values, dtype=float), 6) or 0
        for key, values in columns.items()
    }
    meanings = tuple(
        Meaning(key, KEYS[key], "test", resolution=resolution_of(digits[key])) for key in columns
    )  # as a reader has it
    return RunRecord(
        "run", steps_table(range(1, len(ROW) + 1), columns), config=config, meanings=meanings
    )


def status_and_message(columns: dict[str, Any], **settings: Any) -> tuple[Status, str]:
    finding = groups_of_one(Evidence(log(columns, **settings)))
    return finding.status, finding.message


MEANS = {"critic/score/mean": REWARD, "critic/advantages/mean": REWARD}


def test_advantages_that_are_the_rewards_are_in_the_headline_and_no_alarm() -> None:
    judgement = judge(log(MEANS))
    assert (judgement.state, judgement.cause.keys) == (State.WARNING, ("groups_of_one",))
    says("diagnostics/groups_of_one/1", judgement.headline)
    says("diagnostics/groups_of_one/2", judgement.do)
    assert (
        judge(
            log({"critic/score/mean": REWARD, "critic/advantages/mean": REWARD - REWARD.mean()})
        ).state
        is State.OK
    )


def test_the_ends_tell_where_long_answers_count_more_in_the_mean() -> None:
    ends = {
        f"critic/{name}/{end}": REWARD + at
        for name in ("score", "advantages")
        for end, at in (("max", 0.2), ("min", -0.2))
    }
    means = {"critic/score/mean": REWARD, "critic/advantages/mean": REWARD + 0.01 * np.cos(ROW)}
    assert status_and_message(means | ends) == (
        Status.WARNING,
        (
            "the group size is 1, so there is no baseline: critic/advantages/max equals "
            "critic/score/max in all 60 rows"
        ),
    )
    assert status_and_message(means)[0] is Status.NONE
    assert (
        status_and_message(means | ends | {"critic/advantages/min": REWARD - 0.3})[0] is Status.NONE
    )


def test_digits_that_are_not_printed_make_no_difference() -> None:
    assert (
        status_and_message(
            {"critic/score/mean": REWARD, "critic/advantages/mean": np.round(REWARD, 3)}
        )[0]
        is Status.WARNING
    )
    assert (
        status_and_message(
            {
                "critic/score/mean": np.round(REWARD, 3),
                "critic/advantages/mean": np.round(REWARD + 1e-3, 3),
            }
        )[0]
        is Status.NONE
    )
    assert (
        status_and_message({"critic/score/mean": ROW % 2, "critic/advantages/mean": (ROW + 1) % 2})[
            0
        ]
        is Status.NONE
    )


@pytest.mark.parametrize("loss", ["ppo", "reinforce"])
def test_where_no_groups_are_wanted_there_is_nothing_to_say(loss: str) -> None:
    assert status_and_message(MEANS, group_size=1, loss=loss)[0] is Status.NONE


@pytest.mark.parametrize(
    ("loss", "status", "asked"),
    [("gae", Status.NONE, False), ("PPO", Status.NONE, False), ("grpo", Status.NOT_LOGGED, True)],
)
def test_where_no_groups_are_wanted_neither_they_nor_their_size_are_asked_for(
    loss: str, status: Status, asked: bool
) -> None:
    record = log({"critic/score/mean": REWARD}, loss=loss)
    assert zero_variance_groups(Evidence(record)).status is status
    assert any("use group_size" in remark for remark in record.remarks()) is asked
    assert ("group_size" in record.config.unknown()) is asked
    # What a log has of groups is judged whatever the loss is called.
    alike = log({"critic/score/mean": REWARD, "reward_std": 0.0 * ROW}, loss=loss)
    assert "no reward differs" in zero_variance_groups(Evidence(alike)).message


def test_a_group_size_of_1_tells_it_alone() -> None:
    reward = {"critic/score/mean": REWARD}
    said = (Status.WARNING, "the group size is 1, so there is no baseline: it is set to 1 (test)")
    assert (
        status_and_message(reward, group_size=1)
        == status_and_message(reward, group_size=1, loss="grpo")
        == said
    )
    assert status_and_message(reward, group_size=8, loss="grpo")[0] is Status.NONE
    assert status_and_message(reward)[0] is Status.NOT_LOGGED


@each_case(
    ("reward", "advantage"),
    [
        ("reward_mean", "advantage_mean"),
        ("reward", "advantages/mean"),
        ("reward", "advantages"),
        ("train/reward", "train/advantage"),
    ],
)
def test_a_log_of_any_program_tells_it_by_its_advantages(
    tmp_path: Path, reward: str, advantage: str
) -> None:
    path = tmp_path / "log.jsonl"

    def state(advantage_T: np.ndarray) -> State:
        rows = zip(ROW.tolist(), REWARD.tolist(), advantage_T.tolist(), strict=True)
        lines = [json.dumps({"step": s, reward: r, advantage: a, "kl": 0.01}) for s, r, a in rows]
        path.write_text("\n".join(lines))
        return judge(run_record(path)).state

    assert state(REWARD) is State.WARNING
    assert state(REWARD - REWARD.mean()) is State.OK


@pytest.mark.parametrize("beside", [False, True])
def test_a_group_size_of_1_is_read_from_a_column_or_a_file_beside(
    tmp_path: Path, beside: bool
) -> None:
    size = {"num_generations": 1}
    (tmp_path / "metrics.jsonl").write_text(
        "\n".join(
            json.dumps({"step": s, "reward": r} | ({} if beside else size))
            for s, r in zip(ROW.tolist(), REWARD.tolist(), strict=True)
        )
    )
    if beside:
        (tmp_path / "config.json").write_text(json.dumps(size))
    assert judge(run_record(tmp_path)).headline.startswith(
        "the group size is 1, so there is no baseline"
    )


@pytest.mark.parametrize("other", ["critic/advantages/mean", "reward_std"])
def test_a_log_that_shows_a_baseline_is_believed_before_the_settings(other: str) -> None:
    """Trainers call other things n: Search-R1 samples n_agent rollouts of a prompt and says n =
    1.
    """
    assert (
        status_and_message(
            {"critic/score/mean": REWARD, other: 0.1 + 0.05 * np.sin(ROW)},
            group_size=1,
            loss="grpo",
        )[0]
        is Status.NONE
    )


def test_a_reward_that_never_moves_tells_nothing() -> None:
    assert status_and_message({key: np.zeros(60) for key in MEANS})[0] is Status.NONE


@each_case(("value", "status"), [(np.nan, Status.WARNING), (np.inf, Status.NOT_LOGGED)])
def test_advantages_without_a_number_and_infinite_ones(value: float, status: Status) -> None:
    columns = {"critic/score/mean": REWARD, "critic/advantages/mean": np.full(len(ROW), value)}
    assert status_and_message(columns)[0] is status


def test_advantages_of_0_are_groups_of_one_or_of_equal_rewards() -> None:
    zero = np.zeros(40)
    reward = 0.3 + 0.05 * np.sin(np.arange(40))
    columns = {"reward": reward, "advantage_max": zero, "advantage_min": zero}
    meant = tuple(Meaning(name, name, "test") for name in columns)
    judgement = judge(RunRecord("run", steps_table(range(40), columns), meanings=meant))
    assert (judgement.cause.certainty, judgement.cause.keys) == (
        Certainty.POSSIBLE,
        ("groups_of_one",),
    )
    mean = {"reward": reward, "advantage": zero}  # centred, as it should be
    meant = tuple(Meaning(name, name, "test") for name in mean)
    judgement = judge(RunRecord("run", steps_table(range(40), mean), meanings=meant))
    assert "groups_of_one" not in judgement.cause.keys
