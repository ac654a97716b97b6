"""What completions say: loops, degenerate signs, answers cut off and paid; prose, tables and
short answers stay silent.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.cases import each_case
from tests.golden.sentences import says

from groupwise.diagnostics.completions import repeats, repetition, truncated
from groupwise.diagnostics.judgement import Fact, Status
from groupwise.diagnostics.signals import Evidence
from groupwise.record.run import Meaning, RunConfig, RunRecord, Setting, rollouts_table, steps_table

SENTENCE = (
    "let x be the number of apples then we add seven and divide by three so that each gets an "
    "equal share of what is left"
)
WORDS = np.array(SENTENCE.split())
STEPS = 60


def prose(rng: np.random.Generator, words: int = 200) -> str:
    drawn = zip(
        rng.choice(WORDS, words),
        rng.integers(100, size=words).tolist(),
        rng.random(words) < 0.2,
        strict=True,
    )
    return " ".join(f"{word} {number}" if both else str(word) for word, number, both in drawn)


def log(
    rows: list[dict[str, object]], config: RunConfig | None = None, **columns: np.ndarray
) -> Evidence:
    steps = sorted({int(row["step"]) for row in rows})  # type: ignore[call-overload]
    return Evidence(
        RunRecord(
            "test",
            steps_table(steps, columns),
            rollouts=rollouts_table(rows),
            config=config or RunConfig(),
        )
    )


def completions(
    seed: int, loops_from: int | None = None, loop: str = "THINK THINK. ", steps: int = STEPS
) -> list[dict[str, object]]:
    rng = np.random.default_rng(seed)
    broken = steps if loops_from is None else loops_from
    return [
        {
            "step": step,
            "prompt_id": k,
            "completion": loop * 100 if step >= broken and k < 6 else prose(rng),
        }
        for step in range(steps)
        for k in range(8)
    ]


@pytest.mark.thinned(1)
@pytest.mark.parametrize(
    "loop", ["THINK THINK. ", "!!!!!!!", "<think>we add seven and divide by three so that\n"]
)
def test_completions_that_come_to_loop_have_their_step_and_share(loop: str) -> None:
    finding = repetition(log(completions(0, 40, loop)))
    assert (finding.status, finding.step, finding.facts) == (
        Status.WARNING,
        40,
        (Fact.TEXTS_REPEAT,),
    )
    says("diagnostics/texts/1", finding.message)
    says("diagnostics/texts/5", finding.signs[0].words)


def test_loops_from_the_start_are_told_and_no_alarm_where_the_reward_rises() -> None:
    rows = completions(1, 0)
    assert (repetition(log(rows)).status, repetition(log(rows)).step) == (Status.WARNING, 0)
    rising = np.linspace(0.1, 0.9, STEPS) + 0.01 * np.random.default_rng(2).standard_normal(STEPS)
    finding = repetition(log(rows, reward=rising))
    assert (finding.status, finding.facts) == (Status.INFO, ())


def test_one_step_of_loops_is_worth_knowing() -> None:
    finding = repetition(log(completions(3, 0, steps=1)))
    assert finding.status == Status.INFO
    says("diagnostics/texts/7", finding.message)


@pytest.mark.parametrize(
    ("length", "said"),
    [
        (200, "100 % of the checked completions repeat themselves, in 1 step."),
        (199, "No completion is long"),
    ],
)
def test_a_text_of_two_hundred_characters_is_long_enough(length: int, said: str) -> None:
    assert repetition(
        log([{"step": 0, "prompt_id": 0, "completion": "!" * length}])
    ).message.startswith(said)


def test_prose_tables_and_code_do_not_repeat_themselves() -> None:
    rng = np.random.default_rng(4)
    table = "\n".join(f"{row:4d} {row * row:6d} {row**3:8d}" for row in range(60))
    code = "\n".join(
        f"    if value[{k}] > limit: total += value[{k}] * {rng.integers(1000)}" for k in range(40)
    )
    assert not any(map(repeats, (prose(rng, 400), table, code)))
    assert repeats("wait, let me check that again. " * 50)


def test_a_share_that_the_trainer_logs_serves_without_texts() -> None:
    share = np.where(np.arange(STEPS) < 30, 0.02, 0.6)
    meanings = (Meaning("rollout/repetition_frac", "repetition_share", "test"),)
    finding = repetition(
        Evidence(
            RunRecord(
                "test",
                steps_table(range(STEPS), {"rollout/repetition_frac": share}),
                meanings=meanings,
            )
        )
    )
    assert (finding.status, finding.step) == (Status.WARNING, 30)
    says("diagnostics/texts/2", finding.message)


@pytest.mark.slow
def test_healthy_texts_stay_silent_at_every_step() -> None:
    rows = completions(5)
    for steps in range(1, STEPS + 1, 3):
        assert repetition(log([row for row in rows if row["step"] < steps])).status is Status.NONE  # type: ignore[operator]


def answers(cut: int, cut_paid: int, ended: int, ended_paid: int) -> list[dict[str, object]]:
    rows = [{"ended": 0.0, "reward": float(k < cut_paid)} for k in range(cut)]
    rows += [{"ended": 1.0, "reward": float(k < ended_paid)} for k in range(ended)]
    return [{"step": k % 4, "prompt_id": k % 8, **row} for k, row in enumerate(rows)]


def test_truncated_answers_that_are_paid_are_counted() -> None:
    finding = truncated(log(answers(128, 113, 0, 0)))
    assert (finding.status, finding.step, finding.facts) == (
        Status.WARNING,
        0,
        (Fact.TRUNCATED_PAID,),
    )
    says("diagnostics/texts/3", finding.message)
    says("diagnostics/texts/6", finding.signs[0].words)


@each_case(
    ("counts", "status"),
    [
        ((100, 90, 100, 30), Status.WARNING),
        ((100, 60, 100, 62), Status.NONE),  # no more than complete ones
        ((100, 5, 100, 60), Status.NONE),
        ((19, 19, 100, 10), Status.NONE),  # too few
    ],
)
def test_truncated_answers_are_held_against_complete_ones(
    counts: tuple[int, int, int, int], status: Status
) -> None:
    assert truncated(log(answers(*counts))).status is status


def test_the_limit_tells_what_was_cut_off() -> None:
    rows: list[dict[str, object]] = [
        {"step": 0, "prompt_id": k % 8, "length": 512.0, "reward": 1.0} for k in range(40)
    ]
    rows += [{"step": 0, "prompt_id": k % 8, "length": 100.0, "reward": 0.0} for k in range(40)]
    finding = truncated(log(rows, RunConfig(max_completion_length=Setting(512, "test"))))
    says("diagnostics/texts/4", finding.message)
    assert truncated(log(rows)).status is Status.NOT_LOGGED


def test_what_is_not_logged_is_asked_for() -> None:
    bare = Evidence(RunRecord("test", steps_table(range(5), {"reward": np.ones(5)})))
    assert [check(bare).status for check in (repetition, truncated)] == [Status.NOT_LOGGED] * 2
    assert all(check(bare).log for check in (repetition, truncated))


@pytest.mark.parametrize(("paid", "status"), [(22, Status.WARNING), (21, Status.NONE)])
def test_truncated_answers_are_paid_where_three_standard_errors_part_them_by_hand(
    paid: int, status: Status
) -> None:
    """Of 200 complete answers 60 earn, of 40 cut off 22: .25 apart, and three errors are .2464;
    of 21 they are .225 apart.
    """
    cut = [{"step": 1, "prompt_id": 0, "reward": float(i < paid), "ended": 0.0} for i in range(40)]
    whole = [{"step": 2, "prompt_id": 0, "reward": float(i < 60), "ended": 1.0} for i in range(200)]
    finding = truncated(
        Evidence(
            RunRecord(
                "run", steps_table([1, 2], {"reward": [0.5, 0.3]}), rollouts_table([*cut, *whole])
            )
        )
    )
    assert finding.status is status
