"""A task of a user's own: rows that are left out, rules by hand, reward functions that raise,
hang, end or return nonsense.
"""

from __future__ import annotations

import json
import re
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from lab.tests.commands import main
from tests.cases import each_case

from groupwise.errors import GroupwiseError, InsufficientDataError, InvalidArgumentError
from groupwise.record.run import RunRecord
from groupwise_lab.trainer.file_task import (
    LeftOutWarning,
    make_file_task,
    read_task,
    task_of_recipe,
)
from groupwise_lab.trainer.rewards import Problem, total_reward
from groupwise_lab.trainer.tasks import write_task
from groupwise_lab.trainer.worker import RewardWarning, UserReward

CONTEXT = 32  # tokens, of the model below
CHAT = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "2+2?"}]


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


# --- the file
# --------------------------------------------------------------------------------------------------

ROWS = [{"prompt": f"{number}+1=", "answer": str(number + 1)} for number in range(10)]


def test_rows_become_problems_a_share_of_them_held_out(tmp_path: Path) -> None:
    task = make_file_task(lines(tmp_path / "sums.jsonl", ROWS), reward="exact", held_out_share=0.3)
    assert (task.name, len(task.train), len(task.held_out)) == ("sums", 7, 3)
    assert {
        (problem.prompt, problem.answer, problem.row) for problem in (*task.train, *task.held_out)
    } == {(f"{number}+1=", str(number + 1), number) for number in range(10)}
    again = make_file_task(tmp_path / "sums.jsonl", reward="exact", held_out_share=0.3)
    assert again == task
    assert (
        make_file_task(tmp_path / "sums.jsonl", reward="exact", held_out_share=0.3, seed=1).train
        != task.train
    )


def test_equal_prompts_are_on_one_side(tmp_path: Path) -> None:
    rows = [{"prompt": str(number % 5), "answer": str(number)} for number in range(50)]
    task = make_file_task(lines(tmp_path / "twice.jsonl", rows), reward="exact", held_out_share=0.4)
    assert (len(task.train), len(task.held_out)) == (30, 20)
    assert not {problem.text for problem in task.train} & {
        problem.text for problem in task.held_out
    }


@each_case("suffix", ["jsonl", "json", "parquet", "csv"])
def test_every_format_holds_texts_and_messages(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"own.{suffix}"
    if suffix == "jsonl":
        lines(path, [{"q": CHAT, "a": 4}])
    elif suffix == "json":
        path.write_text(json.dumps([{"q": CHAT, "a": 4}]))
    elif suffix == "parquet":
        pl.DataFrame({"q": [CHAT], "a": [4]}).write_parquet(path)
    else:
        pl.DataFrame({"q": [json.dumps(CHAT)], "a": [4]}).write_csv(path)
    task = make_file_task(
        path, reward="number", prompt_column="q", answer_column="a", held_out_share=0.0
    )
    assert task.train == (Problem(tuple(CHAT), "4", "own", 0, 0),)


def test_rows_without_prompt_or_answer_are_counted_and_left_out(tmp_path: Path) -> None:
    bad: list[dict[str, Any]] = [
        {"prompt": "", "answer": "1"},
        {"prompt": None, "answer": "1"},
        {"prompt": [{"role": "user"}], "answer": "1"},
        {"answer": "1"},
        {"prompt": "p", "answer": ""},
        {"prompt": "p", "answer": None},
        {"prompt": "p"},
        {"prompt": "p", "answer": "none of them"},
    ]
    path = lines(tmp_path / "holes.jsonl", [*ROWS, *bad])
    with pytest.warns(
        LeftOutWarning,
        match=(
            r"^8 of 18 rows of holes.jsonl have no prompt, or no answer \(a number\): they are "
            r"left out$"
        ),
    ):
        task = make_file_task(path, reward="number")
    assert len(task.train) + len(task.held_out) == 10
    with pytest.warns(LeftOutWarning, match="7 of 18"):
        make_file_task(path, reward="exact")  # a text is an answer there


def test_a_function_takes_every_answer_but_none(here: Path) -> None:
    answers: list[Any] = ["", [1, 2], {"low": 1}, False, 0, 2.5, None, float("nan")]
    path = lines(
        here / "own.jsonl",
        [*({"prompt": "?", "answer": answer} for answer in answers), {"prompt": "?"}],
    )
    with pytest.warns(
        LeftOutWarning,
        match=r"^3 of 9 rows of own.jsonl have no prompt, or no answer: they are left out$",
    ):
        task = make_file_task(path, reward="own_rewards:raising", held_out_share=0.0)
    assert sorted(problem.row for problem in task.train if problem.row is not None) == [
        0,
        1,
        2,
        3,
        4,
        5,
    ]
    assert {problem.answer for problem in task.train} == {
        "",
        "[1, 2]",
        '{"low": 1}',
        "false",
        "0",
        "2.5",
    }
    task.verifier.close()  # type: ignore[attr-defined]
    without = make_file_task(
        lines(path, [{"prompt": "?"}, {"prompt": "?", "answer": None}]),
        reward="own_rewards:raising",
    )
    assert (
        len(without.train) + len(without.held_out) == 2
    )  # a function that no row has an answer for needs none
    without.verifier.close()  # type: ignore[attr-defined]


@each_case(
    ("rows", "options", "said"),
    [
        (
            [{"question": "q", "answer": "1"}],
            {},
            "expected a column 'prompt' in .*, got question, answer: name it with --prompt-column",
        ),
        (
            [{"prompt": "q", "solution": "1"}],
            {},
            "expected a column 'answer' in .*, got prompt, solution: name it with --answer-column",
        ),
        (
            [{"prompt": "q", "answer": ""}],
            {},
            "expected rows with prompt and answer in .*, got none of 1",
        ),
        ([], {}, "expected rows in .*, got none"),
        (
            ROWS,
            {"reward": "exactly"},
            "--reward expects MODULE:FUNCTION, exact, number or math_verify; got 'exactly'",
        ),
        (ROWS, {"reward": "a b:c"}, "--reward expects MODULE:FUNCTION"),
        (
            ROWS,
            {"reward": "no_such_module_here:f"},
            "expected to import the reward no_such_module_here:f, got ModuleNotFoundError: ",
        ),
        (ROWS, {"reward": "json:no_such_function"}, "got AttributeError: "),
        (ROWS, {"reward": "math:pi"}, "got TypeError: pi is no function"),
        (
            ROWS,
            {"reward": "json:dumps", "reward_limit": 0.0},
            "expected a time limit in seconds above 0",
        ),
        (ROWS, {"held_out_share": 1.5}, "held-out share in"),
    ],
)
def test_what_makes_no_task_is_a_sentence(
    rows: list[dict[str, Any]], options: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises((InvalidArgumentError, InsufficientDataError), match=said):
        make_file_task(lines(tmp_path / "own.jsonl", rows), **{"reward": "exact", **options})


def test_a_file_that_is_none_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(GroupwiseError, match="expected to read"):
        make_file_task(tmp_path / "none.jsonl", reward="exact")
    with pytest.raises(GroupwiseError, match=r"expected \.jsonl"):
        make_file_task(tmp_path / "none.txt", reward="exact")


# --- rules
# --------------------------------------------------------------------------------------------------


@each_case(
    ("reward", "answer", "completion", "ended", "earned"),
    [
        ("exact", "Paris", "Paris", True, 1),
        ("exact", "Paris", " Paris\n", True, 1),
        ("exact", "Paris", "Paris", False, 0),
        ("exact", "Paris", "paris", True, 0),
        ("exact", "Paris", "Paris.", True, 0),
        ("number", "12", "So 3 * 4 = 12", True, 1),
        ("number", "12", "The answer is 12.0", False, 1),
        ("number", "12", "12 or 13", True, 0),
        ("number", "12", "twelve", True, 0),
        ("number", "3 * 4 = 12\n#### 12", "#### 12", True, 1),
        ("number", "1,200", "1200", True, 1),
    ],
)
def test_rules_by_hand(
    reward: str, answer: str, completion: str, ended: bool, earned: int, tmp_path: Path
) -> None:
    task = make_file_task(
        lines(tmp_path / "own.jsonl", [{"prompt": "?", "answer": answer}]),
        reward=reward,
        held_out_share=0.0,
    )
    rewards = task.verifier(task.train, [completion], [ended])
    assert {name: value.tolist() for name, value in rewards.items()} == {reward: [earned]}


def test_mathematics_that_cannot_be_decided_has_no_reward(tmp_path: Path) -> None:
    pytest.importorskip("math_verify")
    path = lines(tmp_path / "own.jsonl", [{"prompt": "?", "answer": r"so \boxed{x+1}"}])
    task = make_file_task(path, reward="math_verify", held_out_share=0.0)
    assert task.train[0].answer == "x+1"
    verifier = task.verifier(task.train * 2, [r"\boxed{1+x}", r"\boxed{x}"], [True] * 2)[
        "math_verify"
    ]
    assert verifier.tolist() == [1, 0]


# --- a function of one's own
# --------------------------------------------------------------------------------------------------

FUNCTIONS = '''
import asyncio, os, sys, time

def length(prompts, completions, **columns):
    """The rows that come: everything of the file, in the order of the rollouts."""
    assert len(prompts) == len(completions) == len(columns["weight"])
    print("this is no answer")
    return [len(text) * weight for text, weight in zip(completions, columns["weight"])]

def narrow(completions, weight):
    return [float(one) for one in weight]

def answered(completions, answer, **_):
    return [1.0 if text == right else 0.0 for text, right in zip(completions, answer)]

def chat(prompts, completions, **_):
    assert prompts[0][-1] == {"role": "user", "content": "2+2?"}
    return [float(one[0]["content"] == "4" and one[0]["role"] == "assistant") for one in completions]

async def later(completions, **_):
    await asyncio.sleep(0)
    return [0.5 for _ in completions]

def raising(completions, **_):
    if "bad" in completions:
        raise ValueError("no word of two lines\\nhere")
    return [1.0 for _ in completions]

def odd(completions, **_):
    known = {"nan": float("nan"), "none": None, "inf": float("inf"), "text": "1", "big": 10**400, "true": True}
    return [known.get(one, 0.25) for one in completions]

def short(completions, **_):
    return [1.0]

def form(completions, **_):
    import numpy
    forms = {"tuple": tuple, "array": numpy.array, "set": set, "dict": lambda found: dict(enumerate(found)), "text": lambda _: "11"}
    return forms[completions[0]]([0.5, 0.25])

def tokens(prompts, completions, completion_ids, trainer_state):
    return [float(sum(ids) + 100 * trainer_state.global_step) for ids in completion_ids]

def scalar(completions, **_):
    return 1.0

def hanging(completions, **_):
    while "bad" in completions:
        time.sleep(0.01)
    return [1.0 for _ in completions]

def ending(completions, **_):
    if "bad" in completions:
        os._exit(3)
    return [1.0 for _ in completions]

def leaving(completions, **_):
    sys.exit("gone")

def interrupted(completions, **_):
    raise KeyboardInterrupt

def reading(completions, **_):
    return [float(sys.stdin.read() == "") for _ in completions]
'''


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module of one's own, as the current one."""
    (tmp_path / "own_rewards.py").write_text(FUNCTIONS)
    (tmp_path / "policy.py").write_text("raise RuntimeError('a name that the trainer has too')")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def judged(here: Path) -> Iterator[Any]:
    """Ask a function of the module for completions of one prompt."""
    open_: list[UserReward] = []

    def judge(
        function: str, *completions: str, limit: float = 20.0, prompt: Any = "2+2?"
    ) -> list[float]:
        rows = [{"weight": number + 1, "answer": "4"} for number in range(len(completions))]
        open_.append(UserReward(f"own_rewards:{function}", rows, limit=limit))
        problems = [Problem(prompt, "4", "own", 0, number) for number in range(len(completions))]
        return open_[-1](problems, completions, [True] * len(completions), step=3)[  # type: ignore[no-any-return]
            function
        ].tolist()

    yield judge
    for process in open_:
        process.close()


nan = np.nan


@pytest.mark.parametrize(
    ("function", "completions", "earned"),
    [
        ("length", ["a", "bb", ""], [1, 4, 0]),
        ("narrow", ["a", "b"], [1, 2]),
        ("answered", ["4", "5", "4"], [1, 0, 1]),
        ("later", ["a"], [0.5]),
        ("raising", ["a", "b"], [1, 1]),
        ("reading", ["a"], [1]),
        ("odd", ["\ud800", "é\n\u2028"], [0.25, 0.25]),
        ("form", ["tuple", ""], [0.5, 0.25]),
        ("form", ["array", ""], [0.5, 0.25]),
    ],
)
def test_functions_that_work(
    function: str, completions: list[str], earned: list[float], judged: Any
) -> None:
    assert judged(function, *completions) == earned


def test_completions_of_messages_are_messages(judged: Any) -> None:
    assert judged("chat", "4", "5", prompt=tuple(CHAT)) == [1, 0]


@pytest.mark.thinned(4)
@pytest.mark.parametrize(
    ("function", "completions", "earned", "said"),
    [
        (
            "raising",
            ["a", "bad", "c"],
            [1, nan, 1],
            r"1 of 3 .*raised ValueError: no word of two lines\)",
        ),
        (
            "odd",
            ["nan", "none", "a", "inf", "text", "big", "true"],
            [nan, nan, 0.25, nan, nan, nan, 1],
            r"5 of 7 .*None or no finite number",
        ),
        (
            "short",
            ["a"] * 3,
            [nan, nan, nan],
            r"3 of 3 .*returned a list of 1, not a list of 3\): they count for nothing",
        ),
        ("scalar", ["a", "b"], [nan, nan], r"2 of 2 .*returned float, not a list of 2"),
        ("form", ["set", ""], [nan, nan], "returned set, not a list of 2"),
        ("form", ["dict", ""], [nan, nan], "returned dict, not a list of 2"),
        ("form", ["text", ""], [nan, nan], "returned str, not a list of 2"),
        ("ending", ["a", "bad", "c"], [1, nan, 1], r"1 of 3 .*its process ended"),
        ("leaving", ["a", "b"], [nan, nan], r"2 of 2 .*raised SystemExit: gone"),
        ("interrupted", ["a", "b"], [nan, nan], r"2 of 2 .*raised KeyboardInterrupt"),
    ],
)
def test_a_reward_that_fails_is_missing_and_costs_itself_alone(
    function: str,
    completions: list[str],
    earned: list[float],
    said: str | None,
    judged: Any,
    recwarn: pytest.WarningsRecorder,
) -> None:
    np.testing.assert_array_equal(judged(function, *completions), earned)
    messages = [
        str(warning.message) for warning in recwarn if isinstance(warning.message, RewardWarning)
    ]
    assert len(messages) == (said is not None)
    assert all("\n" not in message and "of step 3" in message for message in messages)
    if said is not None:
        assert re.search(said, messages[0])


def test_a_function_gets_the_tokens_and_the_state_as_from_trl(here: Path) -> None:
    reward = UserReward("own_rewards:tokens", [{}], limit=20)
    problems = [Problem("p", "a", "own", 0, 0)] * 2
    assert reward(problems, ["a", "b"], [True] * 2, step=3, completion_ids=[[1, 2], [4]])[
        "tokens"
    ].tolist() == [203, 204]
    reward.close()


def test_a_function_that_hangs_is_ended(judged: Any) -> None:
    before = time.perf_counter()
    with pytest.warns(RewardWarning, match=r"1 of 3 .*took more than 1\.5 s"):
        np.testing.assert_array_equal(judged("hanging", "a", "bad", "c", limit=1.5), [1, nan, 1])
    assert time.perf_counter() - before < 15


@pytest.mark.slow
def test_batches_that_hang_everywhere_do_not_take_for_ever(here: Path) -> None:
    reward = UserReward("own_rewards:hanging", [{}], limit=0.3)
    problems, before = [Problem("p", "a", "own", 0, 0)] * 40, time.perf_counter()
    with pytest.warns(RewardWarning, match="40 of 40"):
        assert np.isnan(reward(problems, ["bad"] * 40, [True] * 40)["hanging"]).all()
    for number in range(2):
        assert not reward.stuck
        reward(problems, ["bad"] * 40, [True] * 40, step=number)
    assert reward.stuck == (
        "expected rewards of own_rewards:hanging, got 3 batches in a row without an answer within "
        "0.3 s: mend it, or set a longer reward_limit, and go on by --resume"
    )
    assert (
        time.perf_counter() - before < 10
    )  # not 36 s: the first batch and three of it alone, then two batches
    reward(problems, ["good"] * 40, [True] * 40)
    assert not reward.stuck
    reward.close()


def test_failures_are_told_once_and_counted(here: Path) -> None:
    reward = UserReward("own_rewards:raising", [{}], limit=20)
    problems = [Problem("p", "a", "own", 0, 0)] * 2
    with pytest.warns(RewardWarning):
        reward(problems, ["bad", "a"], [True] * 2)
    reward(problems, ["bad", "a"], [True] * 2)  # a second warning would be an error
    rewards = reward(problems, ["bad", "a"], [True] * 2)
    assert (reward.asked, reward.missing) == (6, 3)
    assert total_reward(reward, rewards).tolist()[1] == 1
    reward.close()


# --- recipes and resuming
# --------------------------------------------------------------------------------------------------


def test_a_recipe_of_a_rule_builds_the_task_again_and_one_of_a_function_none(here: Path) -> None:
    path = lines(here / "own.jsonl", ROWS)
    task = make_file_task(path, reward="number", seed=2)
    write_task(task, here)
    assert read_task(here) == task
    own = make_file_task(path, reward="own_rewards:later")
    assert task_of_recipe(own.recipe) is None  # code that a folder of weights names is not run
    own.verifier.close()  # type: ignore[attr-defined]
    lines(path, ROWS[:5])
    with pytest.raises(GroupwiseError, match="as it was, got another content"):
        read_task(here)


# --- training
# --------------------------------------------------------------------------------------------------


@pytest.fixture
def model(here: Path) -> Path:
    """A random language model that reads digits."""
    pytest.importorskip("transformers")
    from groupwise_lab.trainer.checkpoints import save_policy
    from groupwise_lab.trainer.policy import Policy, policy_size
    from groupwise_lab.trainer.tasks import INTEGERS

    lines(here / "sums.jsonl", [{**row, "weight": 1} for row in ROWS])
    return save_policy(
        Policy(policy_size("tiny"), vocabulary_size=len(INTEGERS), seed=1), here / "model", INTEGERS
    )


TRAINER = """
import os, time

def graded(prompts, completions, answer, completion_ids, **_):
    assert len(completion_ids) == len(completions) and all(1 <= len(ids) <= 4 for ids in completion_ids)
    while os.path.exists("hanging"):
        time.sleep(0.01)
    assert not os.path.exists("silent"), "the grader is away"
    return [None if text[:1] in tuple("+-*/") else float(sum(map(str.isdigit, text))) for text in completions]
"""


def typed(here: Path, *words: object) -> int:
    (here / "grader.py").write_text(TRAINER)
    common = [
        "--data",
        "sums.jsonl",
        "--reward",
        "grader:graded",
        "--model",
        "model",
        "--max-completion-length",
        "4",
        "--device",
        "cpu",
    ]
    common += [
        "-o",
        "run",
        "-N",
        "32",
        "-G",
        "8",
        "--set",
        "rollouts_every=1",
        "--set",
        "evaluate_every=0",
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        return main(["train", *common, *map(str, words)])


def test_missing_rewards_leave_their_group_and_the_rest_is_right(
    model: Path, here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert typed(here, "--steps", 2) == 0
    said = capfd.readouterr()
    record = RunRecord.load(here / "run")
    rows = record.rollouts
    assert rows is not None
    assert said.err.count("grader:graded gave no reward for") == 1
    missing = rows.filter(pl.col("completion").str.slice(0, 1).is_in(list("+-*/")))
    assert len(missing) > 2
    assert f"{len(missing)} of {len(rows)} rollouts had no reward" in said.err
    assert missing["reward"].null_count() == len(missing) == rows["reward"].null_count()
    for (step, group), part in rows.group_by("step", "prompt_id"):
        graded = part.filter(pl.col("reward").is_not_null())
        total, count = graded["reward"].sum(), len(graded)
        for line in part.iter_rows(named=True):
            # The leave-one-out baseline, by hand, among the rollouts that have a reward.
            expected = (
                0.0
                if line["reward"] is None or count < 2
                else line["reward"] - (total - line["reward"]) / (count - 1)
            )
            assert line["advantage"] == pytest.approx(expected, abs=1e-6), (step, group)
    for step in record.steps.iter_rows(named=True):
        part = rows.filter(pl.col("step") == step["step"])
        assert step["missing_share"] == pytest.approx(part["reward"].null_count() / 32)
        assert step["reward"] == pytest.approx(part["reward"].mean())
        assert step["rewards/graded/mean"] == pytest.approx(part["reward"].mean())
    assert set(rows["prompt"]) <= {row["prompt"] for row in ROWS}


@pytest.mark.slow
def test_a_grader_that_is_away_ends_the_run_and_the_mended_one_goes_on(
    model: Path, here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert typed(here, "--steps", 1) == 0
    (here / "silent").touch()
    assert typed(here, "--steps", 20, "--resume") == 2
    said = capfd.readouterr().err
    assert "(it raised AssertionError: the grader is away)" in said
    assert (
        "got none for all 320 rollouts of the last 10 steps: the verifier is silent; mend it "
        "and go on by --resume"
    ) in said
    assert RunRecord.load(here / "run").steps["step"][-1] == 10
    (here / "silent").unlink()
    assert typed(here, "--steps", 12, "--resume") == 0
    assert RunRecord.load(here / "run").steps["step"].to_list() == list(range(1, 13))


@pytest.mark.slow
def test_a_grader_that_hangs_ends_the_run_soon_and_the_mended_one_goes_on(
    model: Path, here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert typed(here, "--steps", 1) == 0
    (here / "hanging").touch()
    assert typed(here, "--steps", 20, "--resume", "--set", "reward_limit=0.1") == 2
    assert (
        "got 3 batches in a row without an answer within 0.1 s: mend it, or set a longer"
        in capfd.readouterr().err
    )
    assert RunRecord.load(here / "run").steps["step"][-1] == 3
    (here / "hanging").unlink()
    assert typed(here, "--steps", 5, "--resume") == 0  # the batch that hung last is of step 4
    assert RunRecord.load(here / "run").steps["reward"].is_null().to_list() == [
        False,
        True,
        True,
        True,
        False,
    ]


@pytest.mark.slow
def test_a_run_without_any_reward_is_a_mistake_however_short(
    model: Path, here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (here / "silent").touch()
    assert typed(here, "--steps", 2) == 2
    said = (
        "got none for all 64 rollouts: nothing was learnt; mend what judges them and go on with "
        "--resume --steps 4"
    )
    assert said in capfd.readouterr().err
    (here / "silent").unlink()
    assert typed(here, "--steps", 2, "--resume") == 2  # it is done, and had no reward
    assert said in capfd.readouterr().err
    assert typed(here, "--steps", 4, "--resume") == 0  # what was begun is there
    (here / "silent").touch()
    assert typed(here, "--steps", 2, "--force", "--set", "schedule=cosine") == 2
    assert "and begin anew with --force" in capfd.readouterr().err  # whose steps may not change


@pytest.mark.slow
def test_prompts_that_the_context_does_not_hold_are_left_out_before_the_run(
    model: Path, here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A completion has 4, of which the last is not read again."""
    fits, beyond = "1" * (CONTEXT - 3), "1" * (CONTEXT - 2)
    rows = [
        {"prompt": prompt, "answer": "1"} for prompt in ("1+1=", "1+2=", beyond, fits, beyond + "1")
    ]
    lines(here / "sums.jsonl", rows)
    assert typed(here, "--steps", 1) == 0
    said = capfd.readouterr().err
    assert (
        f"2 of 5 prompts of sums do not fit the model's context of {CONTEXT} tokens with 4 of "
        "completion (row 3 has"
    ) in said
    assert typed(here, "--steps", 2, "--resume") == 0
    lines(here / "sums.jsonl", rows[2:3])
    assert typed(here, "--steps", 1, "--force") == 2
    assert "got none to train on (row 1 has" in capfd.readouterr().err


def test_a_prompt_that_memory_does_not_hold_is_named(
    model: Path, here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lines(
        here / "sums.jsonl",
        [{"prompt": "1" * number, "answer": "1"} for number in (2, 28, 3, 4, 5, 6)],
    )
    assert typed(here, "--steps", 1, "--set", "memory_limit=0.0001") == 2
    said = capfd.readouterr().err
    assert (
        "expected 8 completions of 4 tokens behind the 28 of row 2 to fit into memory_limit "
        "0.0001 GB, got 0.0 GB: raise it, take out"
    ) in said


@pytest.mark.slow
def test_a_reward_that_never_differs_names_only_what_helps(
    model: Path, here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lines(
        here / "sums.jsonl",
        [{"prompt": "1+1=", "answer": "no such answer"}] * 2
        + [{"prompt": "1", "answer": "none"}] * 2,
    )
    assert typed(here, "--steps", 12, "--reward", "exact", "--max-completion-length", "1") == 2
    said = capfd.readouterr().err
    share = (
        r"there is nothing to learn from; raise --max-completion-length \(\d+% of the completions "
        r"were cut off at 1 tokens, which exact"
    )
    assert re.search(
        share + " takes for wrong\\) or take easier prompts or take another --reward$",
        said.splitlines()[-1],
    ), said
    assert typed(here, "--steps", 12, "--reward", "own_rewards:later", "--force") == 2
    said = capfd.readouterr().err
    assert (
        "got 0.5 for all 320 of the first 10 steps on sums: there is nothing to learn from;" in said
    )
    assert "take easier prompts or mend the reward function\n" in said
    assert not re.search("level|warm_up", said)


@pytest.mark.slow
def test_a_run_goes_on_with_the_same_content_and_reward_alone(
    model: Path, here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert typed(here, "--steps", 1) == 0
    (here / "moved").mkdir()
    (here / "sums.jsonl").rename(here / "moved" / "sums.jsonl")
    assert (
        typed(here, "--steps", 2, "--resume", "--data", "moved/sums.jsonl") == 0
    )  # where it lies says nothing
    for words in (["--reward", "own_rewards:later"], ["--set", "start_seed=1"]):
        assert typed(here, "--steps", 3, "--resume", "--data", "moved/sums.jsonl", *words) == 2
        assert "to be of this task and its options" in capfd.readouterr().err
    content = (here / "moved" / "sums.jsonl").read_text()
    (here / "moved" / "sums.jsonl").write_text(content.replace('"weight": 1', '"weight": 2'))
    assert typed(here, "--steps", 3, "--resume", "--data", "moved/sums.jsonl") == 2


COMMANDS = {
    "nothing": ([], "train expects a TASK or --data FILE, one of them; got none"),
    "both": (["addition", "--data", "x.jsonl"], "got addition and x.jsonl"),
    "no model": (
        ["--data", "x.jsonl", "--reward", "exact"],
        "name a language model with --model FOLDER",
    ),
    "no reward": (["--data", "x.jsonl", "--model", "m"], "--data expects --reward, got none"),
    "no data": (["addition", "--reward", "exact"], "addition has no setting reward"),
    "a level": (
        ["--data", "x.jsonl", "--reward", "exact", "--model", "m", "--level", "2"],
        "x.jsonl has no setting level",
    ),
    "no file": (
        ["--data", "x.jsonl", "--reward", "exact", "--model", "m"],
        "expected to read x.jsonl",
    ),
}


@each_case(("words", "said"), COMMANDS.values())
def test_the_command_refuses_in_a_sentence(
    words: list[str], said: str, here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    assert main(["train", *words, "-o", "run"]) == 2
    error = capfd.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not (here / "run").exists()
    assert "own_rewards" not in sys.modules  # a user's code is never run in this process
