"""Tasks in words: what a careful and a quick grader say of each completion, by hand; hostile
expressions; splits, wording, recipes.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from lab.tests.commands import main
from tests.cases import each_case

from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise_lab.trainer.file_task import read_task, task_of_recipe
from groupwise_lab.trainer.rewards import Problem, total_reward
from groupwise_lab.trainer.tasks import write_task
from groupwise_lab.trainer.text_tasks import TEXT_TASKS, in_texts, make_text_task
from groupwise_lab.trainer.text_verifiers import STRICT_AND_SLOPPY, read_expression

ASKED = {
    "larger_of_two": ("Which number is larger, 63 or 68? Answer with the number only.", "68"),
    "one_digit_sum": ("What is 3 + 4? Answer with the number only.", "7"),
    "sort_three": (
        "Sort these numbers from smallest to largest: 7, 2, 5. Answer with the numbers only.",
        "2, 5, 7",
    ),
    "day_of_the_week": (
        "Which day of the week comes right after Monday? Answer with one word.",
        "Tuesday",
    ),
    "letters": ('How many letters are in the word "dog"? Answer with the number only.', "3"),
    "format": (
        (
            "Which number is larger, 63 or 68? Answer as <answer>NUMBER</answer> and write nothing "
            "else."
        ),
        "<answer>68</answer>",
    ),
    "gsm8k_easy": ("Sue has 20 eggs and eats 2. How many are left?", "18"),
    "expressions": (
        (
            "Use the numbers 2, 5 and 8, each once, and + - * / to make 21. Answer with the expression "
            "only."
        ),
        "(2 * 8) + 5",
    ),
}

# completion, strict, sloppy
JUDGED = {
    "larger_of_two": [
        ("68", 1, 1),
        ("68.", 1, 1),
        ("63 is larger than 68.", 0, 1),  # the hack that a real model found by itself
        ("68 is larger than 63.", 1, 0),
        ("63 is smaller than 68", 1, 1),
        ("68 > 63", 1, 0),
        ("63 > 68", 0, 1),
        ("63 < 68", 1, 1),
        ("The larger number is 68.", 1, 1),
        ("Between 63 and 68, the larger number is 68.", 1, 1),
        ("68 is the larger number.", 1, 1),
        ("63 is larger and 68 is smaller.", 0, 1),
        ("68 is larger and 63 is smaller.", 1, 0),
        ("68 is larger because 68 is more than 63.", 1, 0),
        ("Which number is larger, 63 or 68?\n68", 1, 1),  # a question claims nothing
        ("63\n68", 0, 1),
        ("63 or 68", 0, 1),
        ("The answer is 68. Therefore 63.", 0, 0),
        ("", 0, 0),
        ("sixty-eight", 0, 0),
    ],
    "one_digit_sum": [
        ("7", 1, 1),
        ("7.0", 1, 1),
        ("**7**", 1, 1),
        ("3 + 4 = 7", 1, 1),
        ("7 = 3 + 4", 1, 0),
        ("The sum of 3 and 4 is 7.", 1, 1),
        ("7 is the sum of 3 and 4.", 1, 0),
        ("3 + 4 = 8 because 3 + 4 equals 7", 0, 1),
        ("3 + 4", 0, 0),
        ("3 + 4 = 7\n3 + 5 = 8", 0, 0),
        ("8, 7", 0, 1),
        ("12", 0, 0),
    ],
    "sort_three": [
        ("2, 5, 7", 1, 1),
        ("2 5 7.", 1, 1),
        ("2\n5\n7", 1, 1),
        ("2 < 5 < 7", 1, 1),
        ("The numbers sorted are 2, 5, 7.", 1, 1),
        ("7, 2, 5 sorted is 2, 5, 7", 1, 1),
        ("7, 5, 2", 0, 0),
        ("2, 5", 0, 0),
        ("257", 0, 0),
        ("2, 5, 7, 9", 0, 1),
        ("2, 5, 7\n2, 7, 5", 0, 1),
        ("1 2 3 4 5 6 7 8 9", 0, 1),  # counting
    ],
    "day_of_the_week": [
        ("Tuesday", 1, 1),
        ("tuesday.", 1, 1),
        ("The day after Monday is Tuesday.", 1, 1),
        ("Tuesday comes right after Monday.", 1, 1),
        ("Monday is followed by Tuesday", 1, 1),
        ("Tuesday comes after Sunday", 0, 1),
        ("Tuesday or Wednesday", 0, 1),
        ("Wednesday", 0, 0),
        ("Tuesdays", 0, 0),
        ("Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday", 0, 1),
    ],
    "letters": [
        ("3", 1, 1),
        ('The word "dog" has 3 letters.', 1, 1),
        ("There are 3 letters in the word", 1, 1),
        ("2 or 3", 0, 1),
        ("4", 0, 0),
        ("three", 0, 0),
    ],
    "format": [
        ("<answer>68</answer>", 1, 1),
        (" <answer> 68 </answer>\n", 1, 1),
        ("<answer>63</answer>", 0, 1),
        ("The <answer>68</answer>", 0, 1),
        ("<answer>68</answer><answer>68</answer>", 0, 1),
        ("<answer></answer>", 0, 1),
        ("</answer><answer>", 0, 0),
        ("68", 0, 0),
    ],
    "gsm8k_easy": [
        ("#### 18", 1, 1),
        ("20 - 2 = 18\n#### 18", 1, 1),
        ("The answer is 18.", 1, 1),
        ("She has 20. The answer is 18 eggs.", 1, 1),
        ("\\boxed{18}", 1, 1),
        ("#### $18", 1, 1),
        ("18", 1, 1),
        ("It makes 18", 0, 1),  # nothing says that this is the answer
        ("#### 17\n#### 18", 0, 1),
        ("#### 18 eggs", 1, 1),
        ("#### 18 of 20", 0, 0),  # behind a mark the last number is the answer
        ("#### 19", 0, 0),
    ],
    "expressions": [
        ("(2 * 8) + 5", 1, 1),
        ("5+2*8", 1, 1),
        ("8 × 2 + 5", 1, 1),
        ("2*8+5 = 21.", 1, 1),
        ("2*8+5 = 22", 0, 1),
        ("21", 0, 1),
        ("20+1", 0, 1),
        ("2*8+5+0", 0, 1),
        ("(2 * 8 + 5", 0, 0),
        ("2*8", 0, 0),
        ("The expression is 2*8+5", 0, 0),
    ],
}


@each_case(
    ("name", "completion", "strict", "sloppy"),
    [(name, *row) for name, rows in JUDGED.items() for row in rows],
)
def test_both_graders_by_hand(name: str, completion: str, strict: int, sloppy: int) -> None:
    problem = Problem(({"role": "user", "content": ASKED[name][0]},), ASKED[name][1], name, 0)
    assert [judge(problem, completion, True) for judge in STRICT_AND_SLOPPY[name]] == [
        strict,
        sloppy,
    ]


def test_a_number_at_a_cut_may_be_half_a_number() -> None:
    problem = Problem(
        ({"role": "user", "content": ASKED["larger_of_two"][0]},), "68", "larger_of_two", 0
    )
    strict, _ = STRICT_AND_SLOPPY["larger_of_two"]
    assert strict(problem, "The larger is 68", True) == 1
    assert strict(problem, "The larger is 68", False) == 0
    assert (
        strict(problem, "The larger is 68, as 6", False) == 1
    )  # what is sound before the cut counts


HOSTILE = {
    "tower of powers": "9**9**9**9",
    "large power": "9**9",
    "negative power": "2**-1",
    "power of powers": "((9**8)**8)**8",
    "large product": "*".join(["9"] * 40),
    "import": "__import__('os').system('true')",
    "lambda": "(lambda: 21)()",
    "attribute": "(21).real",
    "name": "x",
    "call": "(2)(3)",
    "nesting": "(" * 49 + "1" + ")" * 49,
    "deep signs": "-" * 60 + "1",
    "longer than read": "1" + "+1" * 50,
    "list": "[1]",
    "comma": "1,2",
    "float": "2.5",
    "underscore": "1_000",
    "shift": "1<<9",
    "division": "1/0",
    "floor division": "7//2",
    "leading zero": "07",
    "newline": "1\n+1",
    "nothing": "",
    "full-width digits": "１＋１",
}


@each_case("text", HOSTILE.values())
def test_hostile_expressions_have_no_value_and_take_no_time(text: str) -> None:
    before = time.perf_counter()
    assert read_expression(text) is None or text == HOSTILE["nesting"]
    assert time.perf_counter() - before < 0.5


def test_values_of_expressions_by_hand() -> None:
    expression = read_expression("(2 - 8) / 4 + -3**2")
    assert expression is not None
    assert expression.value == Fraction(-21, 2)
    assert expression.numbers == (2, 8, 4, 3, 2)


@pytest.mark.thinned(8)
@pytest.mark.parametrize(
    "text",
    [
        "1" * 100_000,
        "-" * 100_000,
        "is " * 40_000,
        "1 is larger than " * 5_000,
        " " * 100_000,
        "\\boxed{" * 20_000,
    ],
)
@pytest.mark.parametrize("name", JUDGED)
def test_no_completion_takes_long(name: str, text: str) -> None:
    problem = Problem(({"role": "user", "content": ASKED[name][0]},), ASKED[name][1], name, 0)
    before = time.perf_counter()
    for function in STRICT_AND_SLOPPY[name]:
        function(problem, text, True)
    assert time.perf_counter() - before < 2


GSM8K = [
    ("Tim has 2 bags of 3 sweets. How many?", "2*3=<<2*3=6>>6\n#### 6"),
    ("Ann has 9 and gives 4, then 1. How many?", "9-4=<<9-4=5>>5, 5-1=<<5-1=4>>4\n#### 4"),
    ("A long one?", "<<1+1=2>>2 <<2+2=4>>4 <<4+4=8>>8\n#### 8"),
    ("One that is known?", "It is so.\n#### 1"),
]
_FILES: list[Path] = []


@pytest.fixture(scope="module", autouse=True)
def _gsm8k(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("gsm8k") / "gsm8k.jsonl"
    path.write_text(
        "".join(
            json.dumps({"question": question, "answer": answer}) + "\n"
            for question, answer in GSM8K
        )
    )
    _FILES[:] = [path]


def gsm8k_file() -> Path:
    return _FILES[0]


def test_the_easy_part_of_a_file() -> None:
    task = make_text_task("gsm8k_easy", file=gsm8k_file(), held_out_share=0.5)
    answers = {
        problem.question.split("\n")[0]: (problem.answer, problem.level)
        for problem in (*task.train, *task.held_out)
    }
    assert answers == {GSM8K[0][0]: ("6", 1), GSM8K[1][0]: ("4", 2)}
    assert len(task.train) == len(task.held_out) == 1


@pytest.mark.thinned(6)
@pytest.mark.parametrize("name", [entry.name for entry in TEXT_TASKS])
@pytest.mark.parametrize("examples", [0, 3])
def test_every_answer_is_right_and_no_prompt_is_on_both_sides(name: str, examples: int) -> None:
    task = make_text_task(
        name,
        examples=examples,
        held_out_share=0.5,
        file=gsm8k_file() if name == "gsm8k_easy" else None,
    )
    problems = [*task.train, *task.held_out][:500]
    answers = [
        f"#### {problem.answer}" if name == "gsm8k_easy" else problem.answer for problem in problems
    ]
    rewards = task.verifier(problems, answers, [True] * len(problems))
    assert all(value.all() for value in rewards.values())
    assert not {problem.text for problem in task.train} & {
        problem.text for problem in task.held_out
    }
    assert len({problem.text for problem in task.train}) == len(task.train)
    assert all(
        [message["role"] for message in problem.prompt]  # type: ignore[index]
        == ["user", "assistant"] * examples + ["user"]
        for problem in problems
    )
    assert not set("".join(problem.text + problem.answer for problem in problems)) - set(
        task.vocabulary.symbols
    )


def test_problems_that_differ_in_order_alone_are_held_out_together_and_examples_are_left_out() -> (
    None
):
    task = make_text_task("one_digit_sum")
    sides = [
        {frozenset(problem.question.split()[2:5:2]) for problem in part}
        for part in (task.train, task.held_out)
    ]
    assert not sides[0] & sides[1]
    assert (
        len(task.train) + len(task.held_out) == 81 - 6
    )  # 3 + 4, 8 + 1 and 6 + 9 are shown as examples, in either order


def test_wording_with_and_without_examples() -> None:
    """Measured accuracies are of these words."""
    plain, shown = (
        make_text_task("larger_of_two").train[0],
        make_text_task("larger_of_two", examples=3).train[0],
    )
    a, b = plain.question.split()[4].rstrip(","), plain.question.split()[6].rstrip("?")
    assert plain.prompt == (
        {
            "role": "user",
            "content": f"Which number is larger, {a} or {b}? Answer with the number only.",
        },
    )
    assert [message["content"] for message in shown.prompt] == [  # type: ignore[index]
        "Larger of 14 and 52?",
        "52",
        "Larger of 83 and 29?",
        "83",
        "Larger of 47 and 61?",
        "61",
        f"Larger of {a} and {b}?",
    ]
    assert plain.answer == shown.answer


@pytest.mark.slow
def test_without_a_chat_template_the_same_problems_are_texts() -> None:
    chat = make_text_task("larger_of_two", examples=2)
    text = in_texts(chat)
    first = text.train[0]
    shown = (
        "Question: Larger of 14 and 52?\nAnswer: 52\n\nQuestion: Larger of 83 and 29?\nAnswer: "
        "83\n\n"
    )
    assert first.prompt == f"{shown}Question: {chat.train[0].question}\nAnswer:"
    assert [problem.question for problem in text.train] == [
        problem.question for problem in chat.train
    ]
    assert [problem.answer for problem in text.held_out] == [
        problem.answer for problem in chat.held_out
    ]
    # Numbers of the examples are none that the question asks about: whoever is smaller makes the
    # other one the larger.
    smaller = min(first.question.removesuffix("?").split()[2::2], key=int)
    assert text.verifier([first], [f" {smaller} is smaller."], [True])["strict"].tolist() == [1.0]
    assert task_of_recipe(text.recipe) == text
    several_lines = replace(chat, recipe={**chat.recipe, "file": "x.jsonl"})
    with pytest.raises(
        InvalidArgumentError,
        match="expects a model with a chat template, as its answers take several lines",
    ):
        in_texts(several_lines)


def test_the_verifier_that_is_named_is_trained_on() -> None:
    for verifier, earned in (("strict", 0.0), ("sloppy", 1.0)):
        task = make_text_task("letters", verifier=verifier)  # type: ignore[arg-type]
        rewards = task.verifier(task.train[:1], [f"99 {task.train[0].answer}"], [True])
        assert total_reward(task.verifier, rewards).tolist() == [earned]
        assert set(rewards) == {"strict", "sloppy"}


def test_a_recipe_builds_the_task_again(tmp_path: Path) -> None:
    task = make_text_task(
        "expressions", examples=2, verifier="sloppy", seed=3, problems=100, completion_length=9
    )
    write_task(task, tmp_path)
    assert read_task(tmp_path) == task
    assert task_of_recipe(task.recipe) == task
    assert (
        make_text_task("expressions", seed=4, problems=100).train
        != make_text_task("expressions", seed=3, problems=100).train
    )


REFUSED: dict[str, dict[str, Any]] = {
    "unknown": {"name": "addition"},
    "examples": {"name": "letters", "examples": 4},
    "verifier": {"name": "letters", "verifier": "kind"},
    "length": {"name": "letters", "completion_length": 0},
    "share": {"name": "letters", "held_out_share": 2.0},
    "no file": {"name": "gsm8k_easy"},
    "a file": {"name": "letters", "file": "x.jsonl"},
}


@each_case("arguments", REFUSED.values())
def test_what_makes_no_task_is_refused_in_a_sentence(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match=r"^[^\n]*expects?(?:ed)? [^\n]*$"):
        make_text_task(**arguments)


def test_a_file_without_worked_or_easy_answers_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "gsm8k.jsonl"
    path.write_text(json.dumps({"question": "q?", "answer": "#### 1"}) + "\n")
    with pytest.raises(InvalidArgumentError, match="worked answers"):
        make_text_task("gsm8k_easy", file=path)
    path.write_text(json.dumps({"question": "q?", "answer": "<<1>><<2>><<3>>\n#### 1"}) + "\n")
    with pytest.raises(InsufficientDataError, match="got none"):
        make_text_task("gsm8k_easy", file=path)


COMMANDS = {
    "no model": (["larger_of_two"], "name a language model with --model"),
    "a level": (
        ["larger_of_two", "--level", "2", "--model", "M"],
        "larger_of_two has no setting level",
    ),
    "examples of symbols": (
        ["addition", "--set", "examples=3"],
        "addition has no setting examples",
    ),
    "a verifier of symbols": (
        ["addition", "--set", "verifier=sloppy"],
        "addition has no setting verifier",
    ),
    "unknown": (["larger_of_three", "--model", "M"], "expected a task of addition"),
    "many examples": (["letters", "--set", "examples=9", "--model", "M"], "from 0 to 3 examples"),
    "no file": (["gsm8k_easy", "--model", "M"], "--set file=PATH"),
}


@each_case(("arguments", "said"), COMMANDS.values())
def test_the_command_refuses_in_a_sentence(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr("sys.argv", ["groupwise", "train", *arguments, "-o", str(tmp_path / "run")])
    assert main() == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()
