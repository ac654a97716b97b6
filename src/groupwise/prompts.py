"""Prompts: a text, or the messages of a chat; how a record holds messages as text, and how a
model that knows no chat reads them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.parsing import parse_json

Prompt = str | Sequence[Mapping[str, Any]]
"""A text, or the messages of a chat."""


def prompt_text(prompt: Prompt) -> str:
    """Return a prompt as one text: messages as JSON."""
    return (
        prompt
        if isinstance(prompt, str)
        else json.dumps(list(prompt), ensure_ascii=False, default=str)
    )


def prompt_of(text: str) -> Prompt:
    """Return the messages of a prompt that was written as the JSON of a chat, and any other text
    as it is.
    """
    if not text.startswith("[{"):
        return text
    try:
        found = parse_json(text)
    except ValueError:
        return text
    return found if is_chat(found) else text


def text_of_chat(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return questions and answers as one text that ends where the next answer begins: for a
    model without a chat template.
    """
    told = {"user": "Question: {}\n", "assistant": "Answer: {}\n\n"}
    return (
        "".join(told[message["role"]].format(message["content"]) for message in messages)
        + "Answer:"
    )


def last_question(prompt: Prompt) -> str:
    """Return what a prompt asks: its last message, the last question of such a text, or the
    whole of another text.
    """
    if not isinstance(prompt, str):
        return str(prompt[-1]["content"])
    return prompt.rpartition("Question: ")[2].removesuffix("\nAnswer:")


def is_chat(value: object) -> bool:
    """Return whether a value is the messages of a chat."""
    return (
        isinstance(value, list | tuple)
        and bool(value)
        and all(isinstance(part, Mapping) and {"role", "content"} <= set(part) for part in value)
    )
