"""Tasks for real language models: short questions in words whose answers a program can check, in
the messages of a chat or as a text.

A question is asked as it is, or in short behind up to three worked examples. Problems that differ
in the order of their numbers alone are held out together, and those of the examples are left out.
`text_verifiers` judges each completion strictly and sloppily; one of the two is trained on, and
both are recorded. GSM8K is read from a file of the user's: nothing is shipped.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations, permutations, product
from pathlib import Path
from typing import Any, Literal

import numpy as np

from groupwise.errors import InsufficientDataError, InvalidArgumentError, named
from groupwise.parsing import JsonView
from groupwise.plain import frozen
from groupwise_lab.trainer.benchmarks import BENCHMARKS, question_of, read_rows
from groupwise_lab.trainer.rewards import Problem, TaskVerifier, text_of_chat
from groupwise_lab.trainer.tasks import Task, Vocabulary, check_split
from groupwise_lab.trainer.text_verifiers import DAYS, STRICT_AND_SLOPPY

Strictness = Literal["strict", "sloppy"]
EXAMPLES = 3  # at most
_NUMBER_ONLY = "Answer with the number only."
_WORDS = (
    "cat dog house tree apple river stone cloud bread light music paper green happy table water "
    "bird sun moon star fish horse sheep mouse tiger garden window kitchen mountain forest island "
    "bridge castle village harbour market summer winter spring autumn morning evening yellow "
    "orange purple silver golden little gentle quiet simple strong bright narrow heavy pencil "
    "letter number picture story question answer doctor farmer sailor teacher brother sister "
    "mother father cousin friend neighbour stranger butter cheese pepper sugar honey lemon cherry "
    "banana potato carrot onion chair door floor wall roof clock lamp spoon knife plate basket "
    "bottle pocket button ribbon feather leather"
)


@frozen
class TextQuestion:
    """One question before it is put into messages."""

    key: Any  # questions of the same key are held out together
    wording: str  # as it is put without examples
    short: str  # as it is asked behind examples
    answer: str  # the right one, or one of them
    level: int = 0  # difficulty, where the task tells it


@frozen
class TextTask:
    """An entry of the registry."""

    name: str  # as `make_text_task` takes it
    meaning: str  # one line
    questions: Callable[
        [Path | None], Iterator[TextQuestion]
    ]  # all of them, from the user's file where there is one
    examples: tuple[
        tuple[Any, str, str], ...
    ]  # key, short question and answer of each worked example
    completion_length: int  # tokens, where none is asked for
    from_file: bool = False  # whether the questions come from a file of the user's


def _pairs(_file: Path | None) -> Iterator[TextQuestion]:
    """Ask for the larger of two numbers of two digits."""
    for a, b in permutations(range(10, 100), 2):
        question = f"Which number is larger, {a} or {b}? {_NUMBER_ONLY}"
        yield TextQuestion(frozenset((a, b)), question, f"Larger of {a} and {b}?", str(max(a, b)))


def _sums(_file: Path | None) -> Iterator[TextQuestion]:
    """Ask for the sum of two digits."""
    for a, b in product(range(1, 10), repeat=2):
        yield TextQuestion(
            frozenset((a, b)), f"What is {a} + {b}? {_NUMBER_ONLY}", f"{a} + {b} = ?", str(a + b)
        )


def _rows(_file: Path | None) -> Iterator[TextQuestion]:
    """Ask for three digits in order."""
    for row in permutations(range(1, 10), 3):
        shown = ", ".join(map(str, row))
        question = (
            f"Sort these numbers from smallest to largest: {shown}. Answer with the numbers only."
        )
        yield TextQuestion(
            frozenset(row), question, f"Sort {shown}", ", ".join(map(str, sorted(row)))
        )


def _days(_file: Path | None) -> Iterator[TextQuestion]:
    """Ask for the neighbour of a day of the week."""
    for (place, day), (word, step) in product(enumerate(DAYS), (("after", 1), ("before", -1))):
        question = f"Which day of the week comes right {word} {day}? Answer with one word."
        yield TextQuestion((word, day), question, f"Day {word} {day}?", DAYS[(place + step) % 7])


def _letters(_file: Path | None) -> Iterator[TextQuestion]:
    """Ask how many letters a word has."""
    for word in _WORDS.split():
        question = f'How many letters are in the word "{word}"? {_NUMBER_ONLY}'
        yield TextQuestion(word, question, f'Letters in "{word}"?', str(len(word)))


def _tagged(_file: Path | None) -> Iterator[TextQuestion]:
    """Ask for the larger of two numbers in tags."""
    for pair in _pairs(None):
        question = pair.wording.replace(
            _NUMBER_ONLY, "Answer as <answer>NUMBER</answer> and write nothing else."
        )
        yield TextQuestion(pair.key, question, pair.short, f"<answer>{pair.answer}</answer>")


_SIGNS = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def _expressions(_file: Path | None) -> Iterator[TextQuestion]:
    """Ask for an expression of three numbers that makes a target."""
    for row in combinations(range(1, 10), 3):
        given = f"{row[0]}, {row[1]} and {row[2]}"
        targets: dict[int, str] = {}
        for (a, b, c), (first, second) in product(permutations(row), product(_SIGNS, repeat=2)):
            written = f"({a} {first} {b}) {second} {c}"
            target = _SIGNS[second](_SIGNS[first](a, b), c)
            if 1 <= target <= 99:
                targets.setdefault(target, written)
        for target, written in targets.items():
            question = (
                f"Use the numbers {given}, each once, and + - * / to make {target}. Answer with "
                "the expression only."
            )
            yield TextQuestion(row, question, f"Make {target} from {given}", written)


def _gsm8k(file: Path | None) -> Iterator[TextQuestion]:
    """Ask the problems of GSM8K whose worked answers take one or two calculations."""
    assert file is not None
    entry, rows = named("gsm8k", BENCHMARKS, "a benchmark"), read_rows(file)
    steps_of_row = [str(row.get("answer", "")).count("<<") for row in rows]
    if not any(steps_of_row):
        raise InvalidArgumentError(
            f"expected worked answers of GSM8K in {file}, with <<...>>, got none: give the file as "
            "it was published"
        )
    for number, (row, steps) in enumerate(zip(rows, steps_of_row, strict=True)):
        if 1 <= steps <= 2:
            problem = question_of(entry, row, number, file)
            question = (
                f"{problem.text}\nThink step by step, and write the final number behind ####."
            )
            yield TextQuestion(problem.text, question, problem.text, problem.answer, steps)


_LARGER_EXAMPLES = tuple(
    (frozenset(pair), f"Larger of {pair[0]} and {pair[1]}?", str(max(pair)))
    for pair in ((14, 52), (83, 29), (47, 61))
)
_GSM8K_EXAMPLES = (
    (
        "",
        "Tom has 3 boxes with 4 pens each. How many pens does he have?",
        "3 boxes of 4 pens are 3 * 4 = 12 pens.\n#### 12",
    ),
    (
        "",
        "A book costs 7 dollars and a pen 2 dollars. What do a book and two pens cost?",
        "Two pens cost 2 * 2 = 4 dollars. With the book that is 7 + 4 = 11 dollars.\n#### 11",
    ),
    (
        "",
        "Ann picked 20 apples and ate 6. How many are left?",
        "20 - 6 = 14 apples are left.\n#### 14",
    ),
)

TEXT_TASKS: tuple[TextTask, ...] = (
    TextTask(
        "larger_of_two",
        "the larger of two numbers of two digits",
        _pairs,
        _LARGER_EXAMPLES,
        14,
    ),
    TextTask(
        "one_digit_sum",
        "the sum of two digits",
        _sums,
        (
            (frozenset((3, 4)), "3 + 4 = ?", "7"),
            (frozenset((8, 1)), "8 + 1 = ?", "9"),
            (frozenset((6, 9)), "6 + 9 = ?", "15"),
        ),
        14,
    ),
    TextTask(
        "sort_three",
        "three digits, smallest first",
        _rows,
        (
            (frozenset((7, 2, 5)), "Sort 7, 2, 5", "2, 5, 7"),
            (frozenset((3, 9, 1)), "Sort 3, 9, 1", "1, 3, 9"),
            (frozenset((8, 6, 4)), "Sort 8, 6, 4", "4, 6, 8"),
        ),
        16,
    ),
    TextTask(
        "day_of_the_week",
        "the day right after or before another",
        _days,
        (
            (("after", "Monday"), "Day after Monday?", "Tuesday"),
            (("before", "Friday"), "Day before Friday?", "Thursday"),
            (("after", "Saturday"), "Day after Saturday?", "Sunday"),
        ),
        14,
    ),
    TextTask(
        "letters",
        "how many letters a word has",
        _letters,
        (
            ("dog", 'Letters in "dog"?', "3"),
            ("house", 'Letters in "house"?', "5"),
            ("bird", 'Letters in "bird"?', "4"),
        ),
        14,
    ),
    TextTask(
        "format",
        "the larger of two numbers, in the tags that were asked for",
        _tagged,
        tuple((key, text, f"<answer>{answer}</answer>") for key, text, answer in _LARGER_EXAMPLES),
        20,
    ),
    TextTask(
        "gsm8k_easy",
        "the problems of GSM8K that take one or two calculations, from a file of yours",
        _gsm8k,
        _GSM8K_EXAMPLES,
        160,
        from_file=True,
    ),
    TextTask(
        "expressions",
        "an expression of three given numbers that makes a target",
        _expressions,
        (
            ((2, 3, 4), "Make 10 from 2, 3 and 4", "(2 * 3) + 4"),
            ((1, 5, 7), "Make 13 from 1, 5 and 7", "(1 + 5) + 7"),
            ((4, 6, 8), "Make 16 from 4, 6 and 8", "(6 - 4) * 8"),
        ),
        20,
    ),
)


def make_text_task(
    name: str,
    *,
    examples: int = 0,
    verifier: Strictness = "strict",
    seed: int = 0,
    problems: int = 10_000,
    held_out_share: float = 0.2,
    completion_length: int | None = None,
    file: str | Path | None = None,
) -> Task:
    """Build a task for a language model; the strict and the sloppy reward are both recorded, and
    `verifier` is trained on.
    """
    entry = named(name, TEXT_TASKS, "a task")
    length = entry.completion_length if completion_length is None else completion_length
    check_split(seed, problems, held_out_share)
    if not 0 <= examples <= EXAMPLES or verifier not in {"strict", "sloppy"} or length < 1:
        raise InvalidArgumentError(
            f"expected from 0 to {EXAMPLES} examples, the verifier strict or sloppy, and "
            f"completions of at least 1 token; got {examples}, {verifier!r} and {length}"
        )
    if entry.from_file != (file is not None):
        came = (
            "a file, got none: name one with --set file=PATH"
            if file is None
            else f"no file of questions, got {file}: leave it out"
        )
        raise InvalidArgumentError(f"{name} expects {came}")
    recipe = {
        "name": name,
        "examples": examples,
        "verifier": verifier,
        "seed": seed,
        "problems": problems,
    }
    recipe |= {
        "held_out_share": held_out_share,
        "completion_length": length,
        "file": None if file is None else str(file),
        "chat": True,
    }
    questions = _unseen(entry, file)
    sides = split(
        [question.key for question in questions],
        np.random.default_rng([seed, *name.encode()]),
        problems,
        held_out_share,
    )
    train, held_out = (
        [_problem(entry, questions[place], examples) for place in side] for side in sides
    )
    strict, sloppy = STRICT_AND_SLOPPY[name]
    weights = {"strict": float(verifier == "strict"), "sloppy": float(verifier == "sloppy")}
    return task_of_problems(
        name,
        train,
        held_out,
        length,
        TaskVerifier({"strict": strict, "sloppy": sloppy}, weights),
        recipe,
    )


def _unseen(entry: TextTask, file: str | Path | None) -> list[TextQuestion]:
    """Return the questions of a task that are none of its worked examples."""
    examples = {key for key, _, _ in entry.examples}
    unseen = [
        question
        for question in entry.questions(None if file is None else Path(file))
        if question.key not in examples
    ]
    if not unseen:
        raise InsufficientDataError(
            f"expected problems of {entry.name}, got none: give another file"
        )
    return unseen


def in_texts(task: Task) -> Task:
    """Return a task whose prompts are texts, for a model without a chat template; an answer is
    then one line.
    """
    if task.recipe["file"] is not None:
        raise InvalidArgumentError(
            f"{task.name} expects a model with a chat template, as its answers take several lines: "
            "take another"
        )
    chats: Any = [
        [(problem, problem.prompt) for problem in side] for side in (task.train, task.held_out)
    ]
    train, held_out = (
        [replace(problem, prompt=text_of_chat(messages)) for problem, messages in side]
        for side in chats
    )
    return task_of_problems(
        task.name,
        train,
        held_out,
        task.completion_length,
        task.verifier,
        {**task.recipe, "chat": False},
    )


def task_of_problems(
    name: str,
    train: Sequence[Problem],
    held_out: Sequence[Problem],
    length: int,
    verifier: Any,
    recipe: JsonView,
) -> Task:
    """Return a task whose symbols are the characters of its problems: a language model has
    tokens of its own.
    """
    every = (*train, *held_out)
    symbols = sorted({symbol for problem in every for symbol in problem.text + problem.answer})
    longest = max(len(problem.text) for problem in every)
    return Task(
        name,
        Vocabulary("".join(symbols)),
        tuple(train),
        tuple(held_out),
        longest,
        length,
        verifier,
        recipe,
    )


def split(
    keys: Sequence[Hashable], rng: np.random.Generator, problems: int, held_out_share: float
) -> tuple[list[int], list[int]]:
    """Return the places of at most so many problems in random order, and those of a share that
    is held out: one key is on one side.
    """
    order = rng.permutation(len(keys))[:problems].tolist()
    distinct = list(dict.fromkeys(keys[place] for place in order))
    held = set(distinct[: round(held_out_share * len(distinct))])
    return [place for place in order if keys[place] not in held], [
        place for place in order if keys[place] in held
    ]


def _problem(entry: TextTask, question: TextQuestion, examples: int) -> Problem:
    """Return a question as messages, behind worked examples where some are asked for."""
    turns = [text for _, example, answer in entry.examples[:examples] for text in (example, answer)]
    turns.append(question.short if examples else question.wording)
    messages = tuple(
        {"role": ("user", "assistant")[place % 2], "content": text}
        for place, text in enumerate(turns)
    )
    return Problem(messages, question.answer, entry.name, question.level)
