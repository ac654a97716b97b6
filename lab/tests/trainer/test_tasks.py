"""Tasks: answers against a second calculation, splits that do not overlap, families to transfer
to, and where a verifier fails.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from tests.cases import each_case

from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise_lab.trainer.file_task import read_task
from groupwise_lab.trainer.rewards import (
    FAILURE_MODES,
    FailingVerifier,
    Problem,
    TaskVerifier,
    VerifierError,
    WellFormed,
    exact,
    total_reward,
)
from groupwise_lab.trainer.tasks import (
    END,
    LONGEST_SEQUENCE,
    PAD,
    TASKS,
    Task,
    TaskFamily,
    UnreadableTaskError,
    Vocabulary,
    make_task,
    transfer_tasks,
    write_task,
)

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "tasks.md").read_text(
    encoding="utf-8"
)
EACH = each_case("family", TASKS)
EACH_APART = pytest.mark.parametrize("family", TASKS, ids=lambda family: family.name)
PROBLEM = Problem("1+1=", "02", "addition", 1)
JUDGE = TaskVerifier.of(answer_pattern="-?[0-9]+", format_reward=True)
CLOSING = {"(": ")", "[": "]", "{": "}"}


def arithmetic(text: str) -> int:
    """The value of an expression, by a walk over Python's own syntax tree: no code shared with
    the problems.
    """
    steps = {
        ast.Add: operator.add,
        ast.Sub: operator.sub,
        ast.Mult: operator.mul,
        ast.Div: operator.floordiv,
    }

    def value(node: ast.expr) -> int:
        if isinstance(node, ast.BinOp):
            return int(steps[type(node.op)](value(node.left), value(node.right)))
        assert isinstance(node, ast.Constant)
        return int(str(node.value))

    plain = re.sub(r"(?<![0-9])0+(?=[0-9])", "", text)  # Python refuses leading zeros
    return value(ast.parse(plain, mode="eval").body)


def checked(problem: Problem) -> bool:
    """Whether the answer is right, worked out in another way."""
    asked, sign = problem.text[:-1], problem.text[-1]
    if problem.family.startswith("brackets"):
        text = asked + problem.answer
        while (shorter := re.sub(r"\(\)|\[\]|\{\}", "", text)) != text:
            text = shorter
        return text == "" and not set(problem.answer) & set(CLOSING)
    if problem.family.startswith("sorting"):
        steps = list(zip(problem.answer, problem.answer[1:], strict=False))
        in_order = all(a <= b for a, b in steps) if sign == "<" else all(a >= b for a, b in steps)
        return in_order and Counter(asked) == Counter(problem.answer)
    expected = arithmetic(asked)
    return int(problem.answer) == (expected % 10**problem.level if sign == "%" else expected)


@EACH
def test_answers_are_right(family: TaskFamily) -> None:
    task = make_task(family.name, problems=400)
    assert all(checked(problem) for problem in (*task.train, *task.held_out))


@each_case(
    "problem",
    [
        Problem("1+1=", "03", "addition", 1),
        Problem("7+8%", "15", "modular_addition", 1),
        Problem("21<", "21", "sorting", 2),
        Problem("21>", "22", "sorting_descending", 2),
        Problem("([=", ")]", "brackets", 2),
        Problem("([=", "])()", "brackets", 2),
    ],
)
def test_the_second_calculation_sees_a_wrong_answer(problem: Problem) -> None:
    assert not checked(problem)


@EACH
def test_the_page_explains_every_task(family: TaskFamily) -> None:
    row = next((line for line in PAGE.splitlines() if line.startswith(f"| `{family.name}` |")), "")
    assert row, f"lab/docs/reference/tasks.md has no row for {family.name}"
    assert f"{family.levels[0]} to {family.levels[1]}" in row


@EACH
def test_training_and_held_out_problems_are_disjoint_and_seeded(family: TaskFamily) -> None:
    task, again, other = (make_task(family.name, seed=seed, problems=200) for seed in (3, 3, 4))
    train, held = ({problem.prompt for problem in part} for part in (task.train, task.held_out))
    assert train
    assert held
    assert not train & held
    assert len(train) + len(held) == len(task.train) + len(task.held_out)
    assert again == task
    assert other.train != task.train


@EACH
def test_tokens_fit_and_come_back(family: TaskFamily) -> None:
    for level in family.levels:
        task = make_task(family.name, level=level, problems=50, held_out_share=0.0)
        assert task.prompt_length + task.completion_length <= LONGEST_SEQUENCE
        prompt_NL, answer_NL = task.prompt_tokens(task.train), task.answer_tokens(task.train)
        for problem, prompt, answer in zip(task.train, prompt_NL, answer_NL, strict=True):
            assert (
                "".join(family.vocabulary.symbols[token - 2] for token in prompt if token != PAD)
                == problem.prompt
            )
            assert (
                "".join(family.vocabulary.symbols[token - 2] for token in answer if token > END)
                == problem.answer
            )
            assert prompt[-1] != PAD
            assert (answer == END).sum() == 1
            assert set(answer[answer.tolist().index(END) + 1 :].tolist()) <= {PAD}


@pytest.mark.thinned(12)
@EACH_APART
@pytest.mark.parametrize("place", ["lowest", "usual", "highest"])
def test_there_are_eight_families_to_transfer_to_without_a_training_prompt(
    family: TaskFamily, place: str
) -> None:
    level = {"lowest": family.levels[0], "usual": family.level, "highest": family.levels[1]}[place]
    task = make_task(family.name, level=level, problems=1000)
    others = transfer_tasks(task, problems=30)
    trained = {problem.prompt for problem in task.train}
    assert len({other.name for other in others}) == len(others) >= 8
    for other in others:
        assert other.vocabulary == task.vocabulary
        assert other.held_out
        assert not other.train
        assert not trained & {problem.prompt for problem in other.held_out}


def test_transfer_shows_longer_operands_and_operators_that_training_did_not() -> None:
    task = make_task("addition", level=2)
    names = [other.name for other in transfer_tasks(task, problems=20)]
    assert {
        "addition/3",
        "addition/4",
        "multiplication/2",
        "division/2",
        "subtraction/2",
        "parentheses/2",
    } <= set(names)


def test_the_five_kinds_come_in_equal_numbers() -> None:
    task = make_task("integer_problems", level=(2, 3), problems=1000, held_out_share=0.0)
    counts = Counter((problem.family, problem.level) for problem in task.train)
    assert set(counts) == {
        (kind, level)
        for kind in ("two_step", "three_step", "multiplication", "division", "parentheses")
        for level in (2, 3)
    }
    assert set(counts.values()) == {100}


def test_a_small_kind_is_listed_whole() -> None:
    task = make_task("modular_addition", level=1, held_out_share=0.0)
    assert {problem.prompt for problem in task.train} == {
        f"{a}+{b}%" for a in range(10) for b in range(10)
    }
    assert task.held_out == ()
    division = make_task("division", level=1, held_out_share=0.0)
    assert {problem.prompt for problem in division.train} == {
        f"{a}/{b}=" for a in range(10) for b in range(1, 10)
    }


def test_a_task_can_be_built_again_from_its_recipe() -> None:
    task = make_task(
        "addition", seed=5, level=[1, 2], problems=50, format_reward=True, proxy_bonus=1.5
    )
    assert make_task(**dict(task.recipe)) == task
    failing = make_task("addition", failing_from=7, failing_share=0.5)
    assert make_task(**dict(failing.recipe)) == failing
    assert "failing_from" not in task.recipe  # older checkpoints are of the same task


RECIPES = {
    "no json": "{",
    "deep": "[" * 100_000,
    "a list": "[1]",
    "unknown knob": '{"name": "addition", "x": 1}',
    "no name": '{"seed": 1}',
    "too many": '{"name": "addition", "problems": 1000000000000}',
    "a text for a number": '{"name": "addition", "seed": "1"}',
    "a fraction for a level": '{"name": "addition", "level": [1.5]}',
    "unknown task": '{"name": "__import__"}',
}


@each_case("case", RECIPES)
def test_a_recipe_that_builds_nothing_is_refused_in_a_sentence(case: str, tmp_path: Path) -> None:
    (tmp_path / "task.json").write_text(RECIPES[case])
    with pytest.raises(UnreadableTaskError, match=r"^expected the recipe of a task in [^\n]*$"):
        read_task(tmp_path)


def test_a_folder_without_recipe_says_nothing(tmp_path: Path) -> None:
    assert read_task(tmp_path) is None
    write_task(make_task("addition", level=1, exclude={"1+1="}), tmp_path)
    assert read_task(tmp_path) is None  # what was excluded is not in a recipe, so there is none


@each_case(
    ("name", "knobs"),
    [
        ("algebra", {}),
        ("addition", {"level": 0}),
        ("addition", {"level": 10}),
        ("addition", {"level": []}),
        ("addition", {"seed": -1}),
        ("addition", {"problems": 0}),
        ("addition", {"held_out_share": 1.5}),
        ("addition", {"held_out_share": math.nan}),
        ("addition", {"proxy_bonus": 0.0}),
        ("addition", {"failing_from": -1}),
        ("addition", {"failing_from": 1, "failing_share": 1.5}),
    ],
)
def test_what_makes_no_task_is_refused_in_a_sentence(name: str, knobs: dict) -> None:
    with pytest.raises(InvalidArgumentError, match=r"^expected .*got"):
        make_task(name, **knobs)


def test_a_task_without_problems_is_refused() -> None:
    every = {problem.text for problem in make_task("division", level=1, held_out_share=0.0).train}
    with pytest.raises(InsufficientDataError):
        make_task("division", level=1, exclude=every)


def test_a_vocabulary_is_numbered_from_two() -> None:
    vocabulary = Vocabulary("ab")
    assert len(vocabulary) == 4
    assert vocabulary.encode("ab") == [2, 3]
    for broken in ("", "aa"):
        with pytest.raises(InvalidArgumentError):
            Vocabulary(broken)
    with pytest.raises(InvalidArgumentError):
        vocabulary.encode("abc")


def test_longer_prompts_and_answers_than_the_task_has_are_refused() -> None:
    task = make_task("addition", level=1)
    longer = make_task("addition", level=2).train[:1]
    for tokens in (task.prompt_tokens, task.answer_tokens):
        with pytest.raises(ValueError, match="broadcast"):
            tokens(longer)


def test_one_sequence_alone_is_right() -> None:
    task = make_task("modular_addition", level=1)
    problem = task.train[0]
    symbols = task.vocabulary.symbols
    right = [
        (text, ended)
        for text in ["", *symbols, *(a + b for a in symbols for b in symbols)]
        for ended in (True, False)
    ]
    assert [(text, ended) for text, ended in right if exact(problem, text, ended)] == [
        (problem.answer, True)
    ]


def test_the_total_reward_lies_between_zero_and_two() -> None:
    texts = ["02", "03", "+", "", "02"]
    rewards = JUDGE([PROBLEM] * 5, texts, [True, True, True, True, False])
    assert rewards["exact"].tolist() == [1, 0, 0, 0, 0]
    assert rewards["format"].tolist() == [1, 1, 0, 0, 0]
    assert total_reward(JUDGE, rewards).tolist() == [2, 1, 0, 0, 0]
    assert (
        WellFormed("-?[0-9]+")(PROBLEM, "02\n", True) == 0
    )  # fullmatch, so that no line end slips in


@EACH
def test_every_right_answer_has_the_form_of_one(family: TaskFamily) -> None:
    task = make_task(family.name, problems=100, format_reward=True)
    rewards = task.verifier(
        task.train, [problem.answer for problem in task.train], [True] * len(task.train)
    )
    assert total_reward(task.verifier, rewards).tolist() == [2.0] * len(task.train)


@EACH
def test_the_proxy_can_be_hacked_and_the_truth_is_still_recorded(family: TaskFamily) -> None:
    task = make_task(family.name, problems=50, proxy_bonus=2.0)
    bait = family.bait * (task.completion_length - 1)
    honest = task.verifier(
        task.train, [problem.answer for problem in task.train], [True] * len(task.train)
    )
    hacked = task.verifier(task.train, [bait] * len(task.train), [True] * len(task.train))
    assert family.bait in task.vocabulary.symbols
    assert total_reward(task.verifier, hacked).mean() >= 2.0
    assert honest["exact"].mean() == 1.0
    assert hacked["exact"].mean() < 0.5
    assert total_reward(task.verifier, honest).mean() < total_reward(task.verifier, hacked).mean()


def judged(judge: FailingVerifier, step: int, count: int = 400) -> np.ndarray:
    return judge([PROBLEM] * count, ["02"] * count, [True] * count, step=step)["exact"]


def test_a_verifier_fails_from_a_step_on() -> None:
    judge = FailingVerifier(JUDGE, from_step=5)
    assert judged(judge, 4).tolist() == [1.0] * 400
    assert judged(judge, 5).tolist() == [0.0] * 400
    assert judge.weights == JUDGE.weights


def test_a_verifier_fails_for_a_share_of_calls_in_the_same_places_after_a_restart() -> None:
    judge = FailingVerifier(JUDGE, share=0.25, seed=7)
    failed = 1 - judged(judge, 3)
    # 400 calls: 5 standard errors of a share of .25 are .108; false alarms below 1e-6.
    assert abs(failed.mean() - 0.25) < 0.108
    assert (judged(FailingVerifier(JUDGE, share=0.25, seed=7), 3) == judged(judge, 3)).all()
    assert (judged(judge, 4) != judged(judge, 3)).any()
    assert (judged(FailingVerifier(JUDGE, share=0.25, seed=8), 3) != judged(judge, 3)).any()


@each_case("mode", FAILURE_MODES)
def test_what_comes_of_a_failed_call(mode: str) -> None:
    judge = FailingVerifier(JUDGE, mode=mode)  # type: ignore[arg-type]
    if mode == "raise":
        with pytest.raises(VerifierError, match=r"^the verifier failed at step 2 for 4 of 4"):
            judged(judge, 2, 4)
        return
    expected = {"zero": 0.0, "one": 1.0, "missing": math.nan}[mode]
    rewards = judge([PROBLEM] * 2, ["09", "09"], [True, True])
    np.testing.assert_equal(rewards["exact"], [expected] * 2)
    np.testing.assert_equal(total_reward(judge, rewards), [2 * expected] * 2)


@each_case(
    "wrong",
    [{"share": 1.2}, {"share": math.nan}, {"from_step": -1}, {"seed": -1}, {"mode": "maybe"}],
)
def test_commands_that_make_no_sense_are_refused(wrong: dict) -> None:
    with pytest.raises(InvalidArgumentError):
        FailingVerifier(JUDGE, **wrong)


def test_unequal_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        JUDGE([PROBLEM], ["02", "03"], [True, True])
    with pytest.raises(InvalidArgumentError):
        total_reward(JUDGE, {"exact": np.ones(1)})


def test_tasks_need_no_torch() -> None:
    import subprocess
    import sys

    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import groupwise_lab.trainer.tasks, groupwise_lab.trainer.benchmarks, "
        "groupwise_lab.trainer.accuracy, groupwise_lab.trainer.accuracy\n"
        "groupwise_lab.trainer.tasks.make_task('addition')"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_task_is_what_the_contract_says() -> None:
    task = make_task("addition")
    assert isinstance(task, Task)
    assert isinstance(task.train, tuple)
    assert (task.prompt_length, task.completion_length) == (6, 4)
