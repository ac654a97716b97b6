"""Templates of prompts: what differs in numbers and names alone, and what merely looks alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from groupwise.prompts import prompt_of, prompt_text, templates

OTHERS = [
    "Three friends share a cake and want equal parts",
    "How many legs do five spiders have in total",
    "Find the area of a circle with a radius of 3",
    "Sort these words by the length of each of them",
]


def numbers(*texts: str) -> list[int]:
    return [int(number) for number in templates([*texts, *OTHERS])[: len(texts)]]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (
            "Mary has 12 apples and gives 3 of them to Tom",
            "Jean-Luc has 7 apples and gives 10.5 of them to Mary Ann",
        ),
        (
            "What is the remainder when $13^{13} + 5$ is divided by $6$?",
            "What is the remainder when $2004$ is divided by $11$?",
        ),
        (
            "Using the numbers [19, 36, 55], make an expression that equals 65",
            "Using the numbers [44, 19, 35, 7], make an expression that equals 98",
        ),
        ("Élodie achète 3 pommes et donne le reste", "Zoé achète 12 pommes et donne le reste"),
    ],
)
def test_numbers_and_names_are_slots(first: str, second: str) -> None:
    assert numbers(first, second) == [0, 0]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        # another thing
        (
            "Mary has 12 apples and gives 3 of them to Tom",
            "Mary has 12 pears and eats 3 of them with Tom",
        ),
        # formulas, alike in too few words
        ("Compute $\\sin 30^\\circ$.", "Compute $\\sin 45^\\circ$."),
        ("12 + 7 =", "15 + 3 ="),
    ],
)
def test_what_merely_looks_alike_stays_apart(first: str, second: str) -> None:
    assert numbers(first, second) == [0, 1]


def test_instructions_that_all_prompts_share_are_no_likeness() -> None:
    frame = "Solve the problem step by step. {} Put the answer into a box at the end."
    formulas = ["sin 30", "sin 45", "cos 30", "cos 60", "tan 60"]
    assert templates([frame.format(formula) for formula in formulas]).tolist() == [0, 1, 2, 3, 4]


def test_the_template_of_half_of_the_prompts_is_that_of_a_task() -> None:
    task = [
        f"Make {number} of the numbers {number + 1} and 3, using each once" for number in (4, 5)
    ]
    assert len(set(templates([*task, *task]).tolist())) == 2, "one text twice is one prompt"
    assert numbers(*task, task[0].replace("4", "6"), task[0].replace("4", "9")) == [0, 1, 2, 3]
    assert numbers(*task) == [0, 0]


def test_numbers_follow_the_order_of_appearance() -> None:
    texts = ["b is a word of its own here", "a is a letter", "b is a word of its own here"]
    texts += OTHERS
    assert templates(texts).tolist() == [0, 1, 0, 2, 3, 4, 5]
    assert templates([]).tolist() == []
    assert templates(["", ""]).dtype == np.intp


def test_time_is_linear_in_the_text() -> None:
    """A megabyte of slots, and of letters that might begin one."""
    hostile = ["A" * 500_000 + "1 " * 250_000, "a1" * 500_000, "#" * 1_000_000]
    assert templates(hostile).tolist() == [0, 1, 2]


def test_what_the_assistant_alone_says_is_its_text() -> None:
    asked = [{"role": "user", "content": "2+2="}]
    said = {"role": "assistant", "content": "4"}
    assert prompt_text([said]) == prompt_text([said | {"tool_calls": None}]) == "4"
    for messages in (
        asked,
        [*asked, said],
        [said, said],
        [said | {"reasoning_content": "two and two"}],
        [said | {"content": [{"type": "text", "text": "4"}]}],
    ):
        assert prompt_of(prompt_text(messages)) == prompt_of(messages) == messages


def test_a_key_that_only_other_messages_have_is_not_said() -> None:
    call = {"name": "add", "arguments": {"a": None, "b": 1, "c": None}}
    messages: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "name": None, "tool_calls": [call]},
        {"name": "add", "role": "tool", "content": ', "a": null', "tool_calls": None},
    ]
    assert prompt_of(prompt_text(messages)) == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"name": "add", "arguments": {"b": 1}}],
        },
        {"name": "add", "role": "tool", "content": ', "a": null'},
    ]
    said = '[{"a": 1, "b": null}]'
    assert prompt_text([{"role": "assistant", "content": said}]) == said
