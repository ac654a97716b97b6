"""The judge: the state by every path, the fact of each kind of run, what it cost, and what to
log where nothing can be told.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.cases import each_case
from tests.golden.sentences import says

from groupwise.cli.app import main
from groupwise.diagnostics.judge import _lost_all, judge
from groupwise.diagnostics.judgement import (
    Cause,
    Certainty,
    Cost,
    Judgement,
    Learning,
    State,
    Status,
)
from groupwise.diagnostics.learning import Progress
from groupwise.diagnostics.signals import Evidence
from groupwise.record.run import Meaning, RunConfig, RunRecord, rollouts_table, steps_table

Floats = NDArray[np.float64]
NAMES = {
    "reward": "reward",
    "spread": "reward_std_within_group",
    "entropy": "entropy",
    "held_out": "eval/reward",
    "length": "completion_length",
    "cut": "truncated_share",
    "gradient": "gradient_norm",
    "rate": "learning_rate",
    "loss": "loss",
    "dead": "dead_group_share",
}
N = 100
ROW = np.arange(N)


def noise(n: int = N, seed: int = 0, by: float = 0.01) -> Floats:
    return np.asarray(by * np.random.default_rng(seed).standard_normal(n))


def log(
    config: Any = None, rows: Any = None, steps: Any = None, seconds: Any = None, **columns: Any
) -> RunRecord:
    given = {key: np.asarray(value, dtype=float) for key, value in columns.items()}
    count = len(next(iter(given.values())))
    table = steps_table(range(1, count + 1) if steps is None else steps, given, seconds=seconds)
    meanings = tuple(Meaning(key, NAMES[key], "test") for key in given if key in NAMES)
    settings = RunConfig().with_settings(config or {}, "--set")
    return RunRecord("run", table, rollouts_table(rows or []), config=settings, meanings=meanings)


def fallen(rows: int = N) -> Floats:
    """Rewards at 0.8 to row 60, and nothing since."""
    return np.where(np.arange(rows) < 60, 0.8 + noise(rows), 0.0)


def status_of(judgement: Judgement, check: str) -> Status:
    return next(finding.status for finding in judgement.checks if finding.check == check)


TRAIN = np.linspace(0.2, 0.8, N) + noise()
PLATEAU = np.concatenate([np.linspace(0.1, 0.4, 40), np.full(160, 0.4)]) + noise(200)
LONG = np.arange(200)
RELAPSED = np.select([LONG < 60, LONG < 75, LONG < 140], [0.8, 0.1, 0.8], 0.55) + noise(200)
DIPPED = np.where((ROW >= 40) & (ROW < 50), 0.1, 0.8 + noise())


NO_NUMBER = "the reward has no finite value in any of 100 rows"


@each_case(
    ("columns", "state", "learning", "headline"),
    [
        (
            {"reward": TRAIN},
            State.OK,
            Learning.LEARNING,
            "reward 0.21 → 0.78 in 99 steps, still learning",
        ),
        ({"reward": 0.95 + noise()}, State.OK, Learning.AT_TOP, "reward 0.95, at its maximum"),
        (
            {"reward": 0.81 + noise()},
            State.OK,
            Learning.AT_TOP,
            "reward 0.81, near its likely maximum",
        ),
        (
            {"reward": np.minimum(np.linspace(0.2, 2.0, N), 0.95) + noise()},
            State.OK,
            Learning.AT_TOP,
            "reward 0.24 → 0.95, at its maximum",
        ),
        (
            {"reward": DIPPED},
            State.OK,
            Learning.RECOVERED,
            "reward 0.80, recovered from a mean of 0.10 about step 41",
        ),
        (
            {"reward": 0.3 + noise()},
            State.WARNING,
            Learning.FLAT,
            "nothing learnt in 99 steps: reward 0.30 → 0.30 (gain −0.0074 to 0.0084)",
        ),
        (
            {"reward": PLATEAU},
            State.OK,
            Learning.ARRIVED,
            "reward 0.14 → 0.40, no gain since step 51: perhaps its ceiling",
        ),
        (
            {"reward": np.where(ROW < 60, 0.8, 0.5) + noise()},
            State.WARNING,
            Learning.FALLING,
            "reward 0.81 → 0.50, lower since step 61",
        ),
        (
            {"reward": RELAPSED},
            State.WARNING,
            Learning.FALLING,
            "reward 0.80 → 0.55, lower since step 141",
        ),
        (
            {"reward": fallen()},
            State.FAILED,
            Learning.FALLING,
            "reward 0.80 → 0.00, collapsed at step 61",
        ),
        (
            {"reward": np.zeros(N)},
            State.FAILED,
            Learning.UNKNOWN,
            "the reward is 0 in all 100 rows, so no completion earns reward",
        ),
        (
            {"reward": TRAIN, "held_out": 0.3 + noise(seed=1)},
            State.FAILED,
            Learning.LEARNING,
            "reward 0.20 → 0.78, held-out 0.30 → 0.30: reward hacking likely",
        ),
        (
            {"reward": TRAIN, "cut": np.where(ROW < 60, 0.0, 0.75)},
            State.WARNING,
            Learning.LEARNING,
            (
                "75 % of completions are truncated from step 61 on, 0 % in the 5 rows before; "
                "reward 0.21 → 0.78 in 99 steps, still learning"
            ),
        ),
        (
            {"reward": 0.3 + noise(), "rate": np.zeros(N)},
            State.FAILED,
            Learning.FLAT,
            "the learning rate is 0 in all 100 rows: the policy cannot learn",
        ),
        (
            {"reward": 0.3 + noise(5)},
            State.CANNOT_TELL,
            Learning.UNKNOWN,
            "the log has 5 rows of reward, too few to judge the run",
        ),
        (
            {"reward": [0.3]},
            State.CANNOT_TELL,
            Learning.UNKNOWN,
            "the log has 1 row of reward, too few to judge the run",
        ),
        (
            {"reward": np.full(N, 0.5)},
            State.CANNOT_TELL,
            Learning.UNKNOWN,
            "the reward is 0.50 in all 100 rows, which cannot show whether the run learns",
        ),
        (
            {"entropy": TRAIN},
            State.CANNOT_TELL,
            Learning.UNKNOWN,
            "the log has no reward in 100 rows of 1 column, such as entropy",
        ),
        (
            {"reward_a": TRAIN, "reward_b": TRAIN, "reward_a_std": TRAIN},
            State.CANNOT_TELL,
            Learning.UNKNOWN,
            (
                "the log has reward_a and reward_b and no total reward: give --column reward=reward_a"
            ),
        ),
        (
            {"reward": np.full(N, np.nan), "entropy": TRAIN},
            State.CANNOT_TELL,
            Learning.UNKNOWN,
            NO_NUMBER,
        ),
        (
            {"reward": np.zeros(N), "spread": np.full(N, 0.4)},
            State.CANNOT_TELL,
            Learning.UNKNOWN,
            (
                "the mean reward is 0.00 in all rows although rewards differ (standard "
                "deviation 0.40): it was centred or ranked, or it is not what completions earned"
            ),
        ),
    ],
)
def test_the_state_and_the_fact_of_a_run(
    columns: dict[str, Any], state: State, learning: Learning, headline: str
) -> None:
    judgement = judge(log(**columns))
    assert (judgement.state, judgement.learning, judgement.headline) == (state, learning, headline)


@pytest.mark.parametrize(
    "columns",
    [
        {"reward": fallen()},
        {"reward": np.zeros(N)},
        {"reward": TRAIN, "held_out": 0.3 + noise(seed=1)},
    ],
)
def test_a_failure_of_a_run_that_goes_on_is_failing(columns: dict[str, Any]) -> None:
    record = log(**columns)
    assert (judge(record).state, judge(record, ended=False).state) == (State.FAILED, State.FAILING)
    assert judge(record, ended=False).alarm
    assert judge(record).headline == judge(record, ended=False).headline


def test_what_is_no_failure_is_no_alarm() -> None:
    for columns in ({"reward": TRAIN}, {"reward": PLATEAU}, {"entropy": TRAIN}):
        assert not judge(log(**columns)).alarm


def test_a_fall_of_a_run_that_goes_on_is_waited_for() -> None:
    """Twelve rows of a fall that may pass are a warning before they are an alarm; of a run that
    has ended they are one at once.
    """
    few = 0.8 + noise(72)
    few[60:] = 0.1 + noise(12)
    for rows, status in ((71, Status.WARNING), (72, Status.CRITICAL)):
        assert status_of(judge(log(reward=few[:rows]), ended=False), "collapse") is status
        assert status_of(judge(log(reward=few[:rows])), "collapse") is Status.CRITICAL
    says("diagnostics/judge/3", judge(log(reward=few)).headline)
    assert judge(log(reward=few), ended=False).state is State.FAILING


def test_a_run_that_goes_on_below_what_it_had_reached_is_not_told_to_learn_still() -> None:
    """A fall by a third is waited for 24 rows, and named from the third one on; one that came
    back is forgotten.
    """
    reward = np.concatenate([np.linspace(0.2, 0.8, 60), np.full(24, 0.5)]) + noise(84)
    for rows, words in (
        (63, "which may be a dip"),
        (72, "which may be a dip"),
        (83, "which may be a dip"),
        (84, "lower since step 61"),
    ):
        judgement = judge(log(reward=reward[:rows]), ended=False)
        assert judgement.headline.endswith(words), rows
        assert judgement.state is (State.WARNING if rows == 84 else State.OK)
    says("diagnostics/judge/1", judge(log(reward=reward[:72]), ended=False).headline)
    back = np.concatenate([reward[:72], 0.85 + noise(12)])
    assert "dip" not in judge(log(reward=back), ended=False).headline


def test_flat_and_few_rows_of_a_run_that_goes_on_are_open() -> None:
    for rows in (30, 59):
        judgement = judge(log(reward=0.3 + noise(rows)), ended=False)
        assert (judgement.state, judgement.learning) == (State.CANNOT_TELL, Learning.UNKNOWN)
        says("diagnostics/judge/8", judgement.headline, steps=rows - 1, rows=rows)
        assert judgement.not_logged[0] == "more rows of the reward"
    assert judge(log(reward=0.3 + noise(180)), ended=False).learning is Learning.FLAT


# A fall: signs in order, cause, what to do.


def test_a_fall_is_told_from_its_first_sign_on() -> None:
    """The length leads by five rows, the entropy follows by two; the reward falls in one row at
    step 61.
    """
    length = np.where(ROW < 55, 300.0, 500.0) + noise(seed=1, by=3.0)
    entropy = np.where(ROW < 62, 0.4, 0.9) + noise(seed=2)
    judgement = judge(log(reward=fallen(), length=length, entropy=entropy))
    assert (judgement.state, judgement.since_step) == (State.FAILED, 61)
    says("diagnostics/judge/4", judgement.headline)
    assert judgement.first_sign is not None
    assert (judgement.first_sign.signal, judgement.first_sign.step, judgement.first_sign.words) == (
        "completion_length",
        56,
        "length 301 → 499",
    )
    assert judgement.first_sign.before == pytest.approx(300, abs=3)
    assert judgement.first_sign.after == pytest.approx(500, abs=3)
    assert [(sign.signal, sign.step, sign.words) for sign in judgement.then] == [
        ("reward", 61, "reward 0.80 → 0.00"),
        ("entropy", 63, "entropy 0.40 → 0.90"),
    ]
    assert judgement.cause == Cause(Certainty.LIKELY, ("the policy ran away in length",))
    says("diagnostics/judge/2", judgement.do)
    assert judgement.cost == Cost(45, None, None, 100)


def test_a_slower_fall_names_both_its_ends() -> None:
    level = (
        np.concatenate([np.full(50, 0.8), np.linspace(0.8, 0.0, 12)[1:-1], np.zeros(40)]) + noise()
    )
    judgement = judge(log(reward=level))
    # the first row below, and the first at 0
    says("diagnostics/judge/7", judgement.headline)
    assert judgement.first_sign is not None
    assert (judgement.first_sign.signal, judgement.first_sign.step) == ("reward", 51)


@each_case(
    ("columns", "certainty", "names"),
    [
        (
            {},
            Certainty.CANNOT_TELL,
            ("a broken verifier", "training became unstable (instability)"),
        ),
        ({"entropy": 0.4 + noise(seed=3)}, Certainty.LIKELY, ("a broken verifier",)),
        (
            {"entropy": np.where(ROW < 60, 0.4, 0.9) + noise(seed=3)},
            Certainty.CANNOT_TELL,
            ("training became unstable (instability)", "the policy ran away in length"),
        ),
        (
            {
                "entropy": np.where(ROW < 60, 0.4, 0.9) + noise(seed=3),
                "length": 300 + noise(seed=4, by=3.0),
            },
            Certainty.LIKELY,
            ("training became unstable (instability)",),
        ),
        (
            {"length": np.where(ROW < 60, 300.0, 100.0) + noise(seed=4, by=3.0)},
            Certainty.LIKELY,
            ("training became unstable (instability) and completions shrank",),
        ),
        (
            {
                "gradient": np.where(ROW == 59, 1e6, 1.0) * np.exp(noise(by=0.1)),
                "length": 300 + noise(seed=4, by=3.0),
            },
            Certainty.LIKELY,
            ("numerical failure (the gradient exploded)",),
        ),
        (
            {"loss": np.where(ROW < 60, 0.01, np.nan), "gradient": np.where(ROW < 60, 0.5, np.nan)},
            Certainty.LIKELY,
            ("numerical failure, first in loss",),
        ),
    ],
)
def test_the_cause_of_a_fall_by_what_moved(
    columns: dict[str, Any], certainty: Certainty, names: tuple[str, ...]
) -> None:
    judgement = judge(log(reward=fallen(), **columns))
    assert judgement.state is State.FAILED
    assert (judgement.cause.certainty, judgement.cause.names) == (certainty, names)


# A reward without a known floor that is lost, and what success may look like.

FALLING = Progress(Learning.FALLING, 1.0, 0.0, None, 51, 99)


def lost(errors: float, share: float) -> Evidence:
    """A reward that falls by so many standard errors of its first and last ten rows, a row's
    noise being 1, and by a share of its level.
    """
    drop = errors * np.sqrt(2 / 10)
    evidence = Evidence(
        log(reward=np.where(ROW < 50, drop / share, drop / share - drop) - 50.0 * (ROW == 30))
    )
    assert evidence.reward is not None
    evidence.__dict__["reward"] = replace(evidence.reward, deviation=1.0)
    return evidence


@each_case(
    ("errors", "share", "certainty", "all_lost"),
    [
        (10.1, 0.61, Certainty.CANNOT_TELL, True),
        (9.9, 0.61, Certainty.CANNOT_TELL, False),
        (10.1, 0.59, Certainty.CANNOT_TELL, False),  # more than half of it is there
        (3.1, 0.3, Certainty.LIKELY, True),  # a likely cause needs less
        (2.9, 0.3, Certainty.LIKELY, False),
        (9.9, 0.59, Certainty.POSSIBLE, False),
        (-10.1, 0.61, Certainty.LIKELY, False),
    ],
)
def test_a_reward_of_unknown_floor_is_lost_beyond_doubt_or_for_a_likely_cause(
    errors: float, share: float, certainty: Certainty, all_lost: bool
) -> None:
    given = lost(errors, share)
    cause = Cause(certainty, ("a cause",))
    assert _lost_all(given, FALLING, cause) is all_lost
    # What is not falling is not lost, nor is a reward that is never below 0: of it half of the
    # height is known.
    assert not _lost_all(given, replace(FALLING, learning=Learning.FLAT), cause)
    assert not _lost_all(
        Evidence(log(reward=np.where(ROW < 50, 8.0, 0.2) + 0.01 * (-1.0) ** ROW)), FALLING, cause
    )


def test_a_lost_reward_of_unknown_floor_is_a_failure_though_no_check_is_sure() -> None:
    reward = np.where(ROW < 60, 0.5, -0.3) + noise(by=0.05)
    judgement = judge(log(reward=reward))
    assert {
        finding.status for finding in judgement.checks if finding.check in ("collapse", "verifier")
    } == {Status.WARNING}
    assert (judgement.state, judge(log(reward=reward), ended=False).state) == (
        State.FAILED,
        State.FAILING,
    )


RISES = np.linspace(0.3, 0.6, N) + noise()
PAUSES = np.minimum(np.linspace(0.35, 0.85, N), 0.6)


@pytest.mark.parametrize(
    ("check", "rises", "share", "entropy", "cause"),
    [
        (
            "zero_variance",
            RISES,
            0.97,
            0.4,
            "zero-variance groups (almost no group gives a gradient)",
        ),
        (
            "concentration",
            PAUSES + noise(by=0.1),
            0.6,
            0.004,
            "entropy collapse (the policy has lost its variety)",
        ),
    ],
)
def test_what_success_may_look_like_is_an_alarm_only_where_the_reward_does_not_rise(
    check: str, rises: Floats, share: float, entropy: float, cause: str
) -> None:
    for reward, state, certainty in (
        (rises, State.WARNING, Certainty.POSSIBLE),
        (0.4 + noise(), State.FAILED, Certainty.LIKELY),
    ):
        spent = np.where(ROW < 60, 0.4, entropy)
        judgement = judge(
            log(
                {"group_size": 8}, reward=reward, dead=np.where(ROW < 60, 0.1, share), entropy=spent
            )
        )
        # One severity for one run: what is only a warning is no critical check either.
        graded = Status.CRITICAL if state is State.FAILED else Status.WARNING
        assert status_of(judgement, check) is judgement.checks[0].status is graded
        assert (judgement.state, judgement.cause) == (state, Cause(certainty, (cause,)))


@pytest.mark.parametrize(
    ("share", "by", "sure"), [(0.6, 0.01, True), (0.6, 0.1, False), (0.97, 0.1, True)]
)
def test_a_reward_that_rose_stands_since_its_entropy_was_spent(
    share: float, by: float, sure: bool
) -> None:
    """The level stands from row 50 on: rows that scatter little show it, as do groups of which
    hardly any teaches.
    """
    entropy, dead = np.where(ROW < 60, 0.4, 0.004), np.where(ROW < 60, 0.1, share)
    judgement = judge(
        log({"group_size": 8}, reward=PAUSES + noise(by=by), dead=dead, entropy=entropy)
    )
    assert (judgement.learning, judgement.cause.names) == (
        Learning.ROSE,
        ("entropy collapse (the policy has lost its variety)",),
    )
    assert (judgement.state, judgement.cause.certainty) == (
        (State.FAILED, Certainty.LIKELY) if sure else (State.WARNING, Certainty.POSSIBLE)
    )


# Cost.


def test_cost_is_counted_from_the_first_sign() -> None:
    config = {"group_size": 8, "prompts_per_step": 4}
    judgement = judge(log(config, seconds=10.0 * ROW, reward=fallen()))
    assert judgement.cost == Cost(40, 40 * 32, 400.0, 100)
    unknown = dict.fromkeys(("tokens", "gpu_hours", "money"))
    assert judgement.as_dict()["cost"] == {
        "steps": 40,
        "rollouts": 1280,
        "seconds": 400.0,
        **unknown,
    }
    assert judgement.last_step == 100


def test_cost_counts_steps_and_not_rows() -> None:
    judgement = judge(log({"group_size": 8}, steps=range(0, 500, 5), reward=fallen()))
    assert judgement.cost == Cost(200, None, None, 500)
    assert (judgement.since_step, judgement.last_step) == (300, 495)


def test_seconds_with_gaps_are_counted_where_they_are_known() -> None:
    seconds = np.where(ROW % 2, np.nan, 10.0 * ROW)
    judgement = judge(log(seconds=seconds, reward=fallen()))
    assert judgement.cost is not None
    assert judgement.cost.seconds == 400.0  # from row 58 to 98
    none = judge(log(seconds=np.where(ROW == 70, 1.0, np.nan), reward=fallen()))
    assert none.cost == Cost(40, None, None, 100)


def test_a_failure_from_the_first_row_cost_the_whole_run() -> None:
    judgement = judge(log({"group_size": 4, "prompts_per_step": 2}, reward=np.zeros(N)))
    assert judgement.cost == Cost(100, 100 * 8, None, 100)


def test_what_is_no_failure_costs_nothing() -> None:
    assert judge(log(reward=TRAIN)).cost is None
    assert judge(log(reward=0.3 + noise())).cost is None


# What is not logged.


@pytest.mark.parametrize(
    ("alike", "do"),
    [
        (
            0.6,
            (
                "restart from step 51, near the best reward; lr ÷ 3; draw prompts that are sometimes "
                "right, as most groups have zero variance"
            ),
        ),
        (
            0.4,
            (
                "the log does not show why: compare 20 updates at lr ÷ 3 and lr × 3 on copies of "
                "the run"
            ),
        ),
        (None, "check whether rewards differ within groups, and read the best completions"),
    ],
)
def test_where_nothing_is_learnt_and_groups_are_alike_the_best_rows_are_gone_back_to(
    alike: float | None, do: str
) -> None:
    """The groups of the last quarter count: those of the first half all teach."""
    groups = {} if alike is None else {"dead": np.where(ROW < N // 2, 0.0, alike)}
    judgement = judge(log({"group_size": 8}, reward=0.5 + noise(), **groups))
    assert (judgement.state, judgement.learning, judgement.do) == (State.WARNING, Learning.FLAT, do)


def test_what_to_log_is_each_thing_once_and_no_thing_that_is_there() -> None:
    bare = judge(log(reward=TRAIN)).not_logged
    assert len(bare) == len(set(bare))
    assert any("held-out" in key for key in bare)
    full = judge(log(reward=TRAIN, held_out=TRAIN, entropy=np.linspace(1.0, 0.8, N))).not_logged
    assert set(full) < set(bare)
    assert not any("held-out" in key for key in full)


def test_the_plain_form_has_schema_2_and_its_keys() -> None:
    document = judge(log(reward=fallen())).as_dict()
    assert list(document) == [
        *("schema", "state", "headline", "since_step", "first_sign", "then", "cause", "learning"),
        *("do", "actions", "cost", "spent", "to_come", "not_logged", "checks", "notes"),
        "environments",
    ]
    assert (document["schema"], document["state"], document["learning"]) == (2, "failed", "falling")
    assert list(document["first_sign"]) == ["signal", "step", "before", "after"]
    assert list(document["cause"]) == ["certainty", "names", "log"]
    assert all(
        list(check) == ["check", "status", "step", "value", "limit", "message"]
        for check in document["checks"]
    )
    json.dumps(document, allow_nan=False)


# Bad input: a sentence, and what to log.


@each_case(
    ("columns", "headline", "log_first"),
    [
        (
            {"reward": [0.1, 0.2, 0.3]},
            "the log has 3 rows of reward, too few to judge the run",
            "at least 20 rows of the reward",
        ),
        (
            {"loss": np.linspace(0.1, 0.2, N)},
            f"the log has no reward in {N} rows of 1 column, such as loss",
            "the mean reward of each step",
        ),
        (
            {"reward": np.full(N, 0.7)},
            "the reward is 0.70 in all 100 rows, which cannot show whether the run learns",
            "completions with prompts and rewards",
        ),
        (
            {"reward": np.where(ROW < 5, 0.5, np.nan), "loss": TRAIN},
            "reward is missing, NaN or infinite from step 6 on (95 rows; 0.50 in the 5 rows before).",
            "at least 20 rows of the reward",
        ),
        (
            {"reward": np.full(N, np.nan), "loss": np.full(N, np.nan)},
            NO_NUMBER,
            "the mean reward of each step",
        ),
        ({"reward": np.full(N, np.inf)}, NO_NUMBER, "the mean reward of each step"),
    ],
)
def test_a_log_that_tells_nothing_says_so_and_what_to_log(
    columns: dict[str, Any],
    headline: str,
    log_first: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    record = log(**columns)
    judgement = judge(record)
    assert (judgement.state, judgement.headline) == (State.CANNOT_TELL, headline)
    assert judgement.not_logged[0].startswith(log_first)
    assert judgement.cause == Cause()
    assert (judgement.since_step, judgement.first_sign, judgement.cost) == (None, None, None)
    record.save(tmp_path / "run")
    assert main(["diagnose", str(tmp_path / "run")]) == 3
    assert headline.rstrip(".") in " ".join(capsys.readouterr().out.split())
    assert "more rows of the reward" not in judgement.not_logged[1:]  # said once


def test_gaps_and_restarts_are_no_failure() -> None:
    gaps = np.where(ROW % 3, np.nan, TRAIN)
    assert judge(log(reward=gaps)).state is State.OK
    again = steps_table([*range(1, 51), *range(101, 151)], {"reward": TRAIN})
    assert (
        judge(RunRecord("run", again, meanings=(Meaning("reward", "reward", "test"),))).state
        is State.OK
    )


def test_a_log_without_rows_is_told() -> None:
    judgement = judge(RunRecord("run", steps_table([], {})))
    assert (judgement.state, judgement.headline, judgement.last_step) == (
        State.CANNOT_TELL,
        "the log has no reward",
        None,
    )


def test_a_headline_that_is_not_the_critical_answer_names_that_too() -> None:
    """Truncation came first and explains a spent entropy: both are told, and no rise beside a
    reward that stands.
    """
    columns = {
        "reward": np.where(ROW < 20, -1.5, -1.0) + noise(by=0.05),
        "cut": np.where(ROW < 45, 0.0, 1.0),
        "entropy": np.where(ROW < 60, 0.8, 0.001),
        "dead": np.where(ROW < 60, 0.1, 0.6),
    }
    judgement = judge(log(**columns))
    critical = [answer for answer in judgement.checks if answer.status is Status.CRITICAL]
    assert [answer.check for answer in critical] == ["concentration"]
    says("diagnostics/judge/5", judgement.headline)


@each_case(("cut", "masked"), [(0.0, False), (0.3, True), (None, True)])
def test_truncated_completions_are_masked_only_where_some_are(
    cut: float | None, masked: bool
) -> None:
    """A policy that runs away in length: where the log says that nothing is cut off there is
    nothing to mask.
    """
    columns = {"reward": fallen(), "length": np.where(ROW < 58, 100.0, 300.0) + noise(by=1.0)}
    if cut is not None:
        columns["cut"] = np.where(ROW < 58, 0.0, cut)
    judgement = judge(log(**columns))
    (note,) = judgement.cause.names
    says("diagnostics/judge/6", note)
    assert ("mask truncated" in judgement.do) is masked
    assert ("mask" in {action.kind for action in judgement.actions}) is masked
