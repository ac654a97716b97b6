"""A reward function that is logged and has no weight: training that climbs as it falls, and what
such functions may do in health.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.cases import each_case

from groupwise.diagnostics.hacking import pairs_of, reward_hacking
from groupwise.diagnostics.judge import judge
from groupwise.diagnostics.judgement import Certainty, Finding, State, Status
from groupwise.diagnostics.signals import Evidence
from groupwise.record.run import Meaning, RunRecord, steps_table

N = 120
ROW = np.arange(N)
RISES = 0.2 + 0.6 / (1 + np.exp(-(ROW - 50) / 12))


def noisy(value: NDArray[np.float64], seed: int, rollouts: int = 64) -> NDArray[np.float64]:
    """The mean of so many answers that are right with a chance."""
    return np.asarray(
        np.random.default_rng(seed).binomial(rollouts, np.clip(value, 0, 1)) / rollouts
    )


def run(
    seed: int, trained: str = "sloppy", other: str = "strict", *, level: Any, held_out: Any = None
) -> RunRecord:
    """Training rises by one function while another, without weight, goes its own way."""
    train = noisy(RISES, seed)
    columns = {
        "reward": train,
        f"rewards/{trained}/mean": train,
        f"rewards/{other}/mean": noisy(np.asarray(level), seed + 1000),
    }
    meanings = [Meaning("reward", "reward", "test")]
    meanings += [
        Meaning(f"rewards/{name}/mean", f"reward/{name}", "test") for name in (trained, other)
    ]
    if held_out is not None:
        columns["eval"] = noisy(np.asarray(held_out), seed + 2000)
        meanings.append(Meaning("eval", "eval/reward", "test"))
    return RunRecord("run", steps_table(range(1, N + 1), columns), meanings=tuple(meanings))


def finding_of(record: RunRecord) -> Finding:
    return reward_hacking(Evidence(record))


FALLS = np.where(ROW < 40, RISES, np.maximum(RISES[40] - 0.008 * (ROW - 40), 0.02))


@each_case("seed", range(3))
@each_case("held_out", [None, np.full(N, 0.35), RISES])
def test_a_stricter_function_that_falls_as_training_climbs_is_told_with_both_numbers(
    seed: int, held_out: Any
) -> None:
    follows = held_out is RISES
    judgement = judge(run(seed, level=FALLS, held_out=held_out))
    # graded by the trained function it says nothing, by the true one it exonerates: which, the log
    # does not say
    if follows:
        assert (judgement.state, judgement.cause.certainty) == (State.WARNING, Certainty.POSSIBLE)
    else:
        assert (judgement.state, judgement.cause.certainty) == (State.FAILED, Certainty.LIKELY)
    assert judgement.cause.names == ("reward hacking",)
    assert judgement.first_sign is not None
    if held_out is None or follows:
        assert "reward 0." in judgement.headline
        assert "strict 0." in judgement.headline
        assert 15 <= judgement.first_sign.step <= 60


@pytest.mark.parametrize("seed", range(3))
def test_what_rises_along_at_half_the_pace_is_none(seed: int) -> None:
    for held_out in (None, RISES):
        assert finding_of(run(seed, level=0.5 * RISES, held_out=held_out)).status in (
            Status.NONE,
            Status.INFO,
        )


@each_case("seed", range(3))
@each_case(
    ("other", "level"),
    [
        ("format", np.full(N, 0.6)),  # it says how an answer looks
        ("format", 0.9 - 0.5 * RISES),
        (
            "politeness",
            np.full(N, 0.4),
        ),  # beside a function that says what is wanted it may grade anything
        ("judge", np.zeros(N)),  # it has never said anything
    ],
)
def test_a_function_that_stays_flat_beside_correctness_that_rises_is_none(
    seed: int, other: str, level: NDArray[np.float64]
) -> None:
    for held_out in (None, RISES):
        assert finding_of(
            run(seed, "correctness", other, level=level, held_out=held_out)
        ).status not in (
            Status.WARNING,
            Status.CRITICAL,
        )


@pytest.mark.parametrize("seed", range(3))
def test_beside_correctness_that_rises_one_that_falls_asks_for_a_look(seed: int) -> None:
    finding = finding_of(run(seed, "correctness", "strict", level=FALLS))
    assert finding.status is Status.WARNING
    assert [sign.words.split()[0] for sign in finding.signs] == ["reward", "strict"]


@each_case(
    ("falls_by", "status"),
    [(0.0, Status.CRITICAL), (0.05, Status.CRITICAL), (0.1, Status.NONE), (0.3, Status.NONE)],
)
def test_a_stricter_function_that_falls_while_training_stands_is_told_and_not_where_training_falls_along(
    falls_by: float, status: Status
) -> None:
    """Twenty rows in which both hold their level, ten in which the strict one is .3 lower and
    training by less than a quarter of it.
    """
    later, scatter = np.arange(30) >= 20, 0.04 * (-1.0) ** np.arange(30)
    train, strict = 0.75 - falls_by * later + scatter, 0.65 - 0.3 * later + scatter
    record = run(0, level=RISES)
    columns = {
        "reward": train,
        "rewards/sloppy/mean": train,
        "rewards/strict/mean": strict + 0.02 * np.sin(7 * np.arange(30)),
    }
    finding = finding_of(replace(record, steps=steps_table(range(1, 31), columns)))
    assert finding.status is status
    if status is Status.CRITICAL:
        assert finding.step in (20, 21)  # the last row of before, or the first since
        assert finding.value is None
        assert "while strict 0.6" in finding.message


def test_every_function_without_weight_is_looked_at_beside_the_held_out_reward() -> None:
    pairs = pairs_of(Evidence(run(0, level=FALLS, held_out=RISES)))
    assert [pair.name for pair in pairs] == ["held-out reward", "strict"]
    assert [(pair.same, pair.judges) for pair in pairs] == [(False, True), (True, True)]
    assert [
        pair.judges for pair in pairs_of(Evidence(run(0, "correctness", "strict", level=FALLS)))
    ] == [False]
    assert pairs_of(Evidence(run(0, "correctness", "format", level=FALLS))) == []


def test_eight_rows_show_a_function_without_weight() -> None:
    for rows, pairs in ((8, 1), (7, 0)):
        record = run(0, level=FALLS)
        assert len(pairs_of(Evidence(replace(record, steps=record.steps[35 : 35 + rows])))) == pairs


HEALTH = {
    "the same function, noise of its own": ("sloppy", "strict", RISES, None),
    "half the pace": ("sloppy", "strict", 0.5 * RISES, None),
    "half the pace, held out follows": ("sloppy", "strict", 0.5 * RISES, RISES),
    "format stays": ("correctness", "format", np.full(N, 0.6), None),
    "stays beside correctness": ("correctness", "politeness", np.full(N, 0.4), None),
    "stays, held out follows": ("sloppy", "strict", np.full(N, 0.4), RISES),
    "0 throughout": ("correctness", "judge", np.zeros(N), None),
}
ILL = {
    "falls by and by": ("sloppy", "strict", FALLS, None),
    "falls at once": ("sloppy", "strict", np.where(ROW < 50, RISES, 0.05), None),
    "falls, held out by the trained function": ("sloppy", "strict", FALLS, RISES),
    "gains, then stands": ("sloppy", "strict", np.minimum(RISES, RISES[45]), None),
    "falls beside correctness": ("correctness", "strict", FALLS, None),
}


@pytest.mark.slow
@pytest.mark.parametrize("rollouts", [16, 64])
def test_both_kinds_of_error(rollouts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """200 runs of each kind: told at the end, and for those in health at any of five looks on
    the way.
    """
    monkeypatch.setattr(noisy, "__defaults__", (rollouts,))
    runs, serious = 200, (Status.WARNING, Status.CRITICAL)
    for name, (trained, other, level, held_out) in {**HEALTH, **ILL}.items():
        records = [
            run(seed, trained, other, level=level, held_out=held_out)
            for seed in range(100, 100 + runs)
        ]
        end = [finding_of(record).status for record in records]
        looks = [
            any(
                reward_hacking(
                    Evidence(replace(record, steps=record.steps.head(rows)), ended=False)
                ).status
                in serious
                for rows in range(20, N, 20)
            )
            for record in (records if name in HEALTH else [])
        ]
        alarms, critical = sum(status in serious for status in end), end.count(Status.CRITICAL)
        print(
            f"{rollouts:3} rollouts, {name:40} told of {alarms:3} of {runs} ({critical} likely), "
            f"of {sum(looks)} on the way"
        )
        # What stands after a gain is seven times in ten told apart by 16 rollouts a row, always by
        # 64; what falls always.
        least = 0.6 if name == "gains, then stands" else 0.95
        assert alarms <= 0.02 * runs if name in HEALTH else alarms >= least * runs, name
        assert sum(looks) <= 0.05 * runs, name


def test_the_gap_of_two_rewards_of_the_same_answers_tells_more_than_their_own_noise() -> None:
    """Prompts of a row are easy or hard, for both alike; since row 40 a loophole pays half of
    what is wrong.
    """
    right = noisy(0.4 + 0.25 * np.tile([1.0, -1.0, -1.0, 1.0], N // 4), 0)
    paid = right + 0.5 * (1 - right) * np.clip((ROW - 40) / 10, 0, 1)
    columns = {"reward": paid, "rewards/proxy/mean": paid, "rewards/true/mean": right}
    meanings = [
        Meaning(key, key.removesuffix("/mean").replace("rewards/", "reward/"), "test")
        for key in columns
    ]
    finding = finding_of(
        RunRecord("run", steps_table(range(1, N + 1), columns), meanings=tuple(meanings))
    )
    assert (finding.status, finding.step) == (Status.WARNING, 40)
    assert finding.value is not None
    assert finding.value.high > 0.25
