r"""Final answers: where they stand in a text, when two are the same, hostile texts in bounded
time, math-verify behind a limit.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import each_case

from groupwise.errors import GroupwiseError, InvalidArgumentError
from groupwise_lab.trainer.benchmarks import extract_answer, is_right, normalised, number_of
from groupwise_lab.trainer.worker import MathVerify


@each_case(
    ("text", "answer"),
    [
        (r"so \boxed{7}", "7"),
        (r"\boxed{1} no, \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        (r"\boxed{\text{a {b} c}} and \boxed{unclosed", r"\text{a {b} c}"),
        (r"\fbox{3} 4", "3"),
        (r"\boxed {5}", "5"),
        ("work 1\n#### 1,200\nmore", "1,200"),
        ("#### 1\n#### 2", "2"),
        ("The answer is 12.", "12"),
        ("The final Answer: **x + 1**", "x + 1"),
        ("İİİ answer is x", "x"),
        ("The answer is 1. No, the ANSWER: y", "y"),
        ("The answer is 18 dollars (3 x 6).", "18"),
        ("The answer is $1,234 for 3 days.", "1,234"),
        ("The answer is $18 a day for 3 days.", "18"),
        ("The answer is 18. That is 3 x 6.", "18"),
        ("The answer is 3 + 4 = 7", "3 + 4 = 7"),
        ("The answer is 2 and 3", "2 and 3"),
        ("The answer is 2 x + 1", "2 x + 1"),
        ("in 2 to 3-4", "4"),
        ("3 - -4", "-4"),
        ("3 + 4 = 7 dollars", "7"),
        ("cost $1,234.50 a day", "1,234.50"),
        ("no number", None),
        ("", None),
        ("####", None),
        (r"\boxed{}", ""),
    ],
)
def test_where_the_answer_stands(text: str, answer: str | None) -> None:
    assert extract_answer(text) == answer


@each_case(
    ("text", "number"),
    [
        ("025", Fraction(25)),
        ("-1.50", Fraction(-3, 2)),
        (".5", Fraction(1, 2)),
        ("10,\\!080", Fraction(10080)),
        ("1,450,000", Fraction(1450000)),
        ("1,2", None),
        (r"\frac43", Fraction(4, 3)),
        (r"\dfrac{17}{50}", Fraction(17, 50)),
        (r"-\frac{\pi}{6}", None),
        (r"137 \frac{1}{2}", Fraction(275, 2)),
        (r"5.4 \text{ cents}", Fraction(27, 5)),
        (r"90^\circ", Fraction(90)),
        (r"\$18.90", Fraction(189, 10)),
        ("4.5e33", Fraction(45 * 10**32)),
        (r"4.5 \times 10^{-3}", Fraction(9, 2000)),
        ("1/0", None),
        ("1e9999999", None),
        ("9" * 100, None),
        ("x", None),
        ("٣", None),
    ],
)
def test_what_is_a_number(text: str, number: Fraction | None) -> None:
    assert number_of(text) == number


@each_case(
    ("gold", "given", "kind", "right"),
    [
        ("18", "18.0", "number", True),
        ("18", "$18 per day", "number", True),
        ("18", "18 of 20", "number", False),
        ("0.6666666667", "2/3", "number", True),
        ("0.67", "2/3", "number", False),
        ("5:45", "5:45", "number", True),
        ("Mrs. Hilt", "mrs hilt", "number", True),
        ("Yes", "No", "number", False),
        ("18", "eighteen", "number", False),
        ("?", "!", "number", False),
        ("025", "25", "math", True),
        (r"\frac{1}{2}", "0.5", "math", True),
        ("x+1", "x + 1", "math", True),
        ("x+1", "1+x", "math", None),
        (r"\text{east}", "east", "math", True),
        ("1, 200", "1200", "math", False),
        ("1200", "1, 200", "math", False),
        ("1,200", "1200", "math", True),
        ("(1,200)", "(1200)", "math", False),
        ("(1,200)", "(1, 200)", "math", True),
        ("(1,2)", "(2,1)", "math", False),
        ("1; 2", "2, 1", "math", True),
        ("1; 2", "2 and 1", "math", True),
        ("1; 2", r"\{1.0, 2\}", "math", True),
        ("1; 2", "1, 3", "math", False),
        ("1; 1", "1, 2", "math", False),
        ("1; 2", "1", "math", False),
        ("1; 2", "(1,2)", "math", None),
        ("1,200; 3", "3, 1200", "math", True),
        ("x; 2", "2, y", "math", None),
        ("x, y", "y,x", "math", True),
        ("-4", "3-4", "number", False),
        ("4", "3-4", "number", True),
        ("2", None, "math", False),
        ("2", "  ", "math", False),
        ("2", "x" * 5000, "math", False),
    ],
)
def test_when_an_answer_is_right(
    gold: str, given: str | None, kind: str, right: bool | None
) -> None:
    assert is_right(gold, given, kind=kind) is right  # type: ignore[arg-type]


def test_a_tolerance_is_relative() -> None:
    assert is_right("3e8", "299990000", tolerance=1e-4) is True
    assert is_right("3e8", "299900000", tolerance=1e-4) is False
    assert is_right("0", "0.0001", tolerance=0.5) is False


@given(st.text(max_size=300))
@settings(deadline=None)
def test_any_text_is_read_without_an_error(text: str) -> None:
    answer = extract_answer(text)
    normalised(text)
    assert is_right("7", answer, kind="number") in (True, False)
    assert is_right(text or "x", answer) in (True, False, None)


@each_case(
    "text",
    [
        "\\boxed{" * 30_000,
        "{" * 200_000 + "\\boxed{1",
        "1" * 200_000,
        "1," * 100_000,
        "1,111" * 40_000 + "x",
        "-" * 200_000,
        "answer is " * 20_000,
        "\\text{" * 30_000,
        "\\frac" * 40_000,
        " " * 200_000 + "x",
        "#" * 200_000,
        "." * 200_000,
        "1." * 100_000,
    ],
)
def test_hostile_texts_take_no_time(text: str) -> None:
    start = time.process_time()
    is_right("7", extract_answer(text), kind="number")
    is_right(text, text[::-1])
    number_of(text)
    assert (
        time.process_time() - start < 2
    )  # 0.1 s at most where it was written; a pattern that backtracks takes minutes


math_verify = pytest.mark.skipif(
    "not __import__('importlib.util').util.find_spec('math_verify')", reason="needs math-verify"
)


@pytest.fixture(scope="module")
def judge() -> Iterator[MathVerify]:
    pytest.importorskip("math_verify")
    with closing(MathVerify(limit=20)) as judge_of_answers:
        yield judge_of_answers


@pytest.mark.parametrize(
    ("gold", "given", "same"),
    [
        ("x+1", "1+x", True),
        ("p - q", "p + q", False),
        (r"\left( 3, \frac{\pi}{2} \right)", r"(3, \pi/2)", True),
        (r"\{1,2\}", r"\{2,1\}", True),
        ("x=5", "5", True),
        (r"3\sqrt{13}", r"\sqrt{117}", True),
        ("x", "__import__('os').abort()", False),
    ],
)
def test_mathematics_is_compared(judge: MathVerify, gold: str, given: str, same: bool) -> None:
    assert judge(gold, given) is same
    assert is_right(gold, given, same=judge) is same


@math_verify
def test_a_question_that_takes_too_long_is_undecided_and_the_next_is_answered(
    judge: MathVerify,
) -> None:
    judge("x+1", "1+x")  # so that starting does not count
    limit, judge.limit = judge.limit, 1.0
    start = time.perf_counter()
    assert judge("9^{9^{9^{9}}}", "9^{9^{9^{8}}}") is None
    assert time.perf_counter() - start < 20
    judge.limit = limit
    assert judge.timeouts == 1
    assert judge("a+b", "b+a") is True


@math_verify
def test_the_process_ends_with_the_block() -> None:
    with closing(MathVerify(limit=20)) as judge:
        assert judge("a+b", "b+a") is True
        process = judge._worker._process
        assert process is not None
        assert process.poll() is None
    assert process.poll() is not None


def test_what_makes_no_judge_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidArgumentError):
        MathVerify(limit=0)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(GroupwiseError, match="pip install"):
        MathVerify()


def test_several_right_answers_of_a_file_stay_several() -> None:
    from groupwise.errors import named
    from groupwise_lab.trainer.benchmarks import BENCHMARKS, question_of

    row = {"problem": "Which two?", "final_answer": ["1", "200"]}
    answer = question_of(named("olympiadbench", BENCHMARKS, "a benchmark"), row).answer
    assert is_right(answer, "1200") is False
    assert is_right(answer, r"200 \text{ and } 1") is True
