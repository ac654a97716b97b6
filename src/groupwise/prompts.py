"""Prompts: a text, or the messages of a chat, which a record holds as text."""

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
        messages = parse_json(text)
    except ValueError:
        return text
    return messages if is_chat(messages) else text


def is_chat(value: object) -> bool:
    """Return whether a value is the messages of a chat."""
    return (
        isinstance(value, list | tuple)
        and bool(value)
        and all(isinstance(part, Mapping) and {"role", "content"} <= set(part) for part in value)
    )
