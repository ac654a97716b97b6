"""Prompts: a text, or the messages of a chat, which a record holds as text; templates of texts."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from os.path import commonprefix
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from groupwise.parsing import parse_json

Prompt = str | Sequence[Mapping[str, Any]]
"""A text, or the messages of a chat."""
_SLOT = r"\p{Lu}[\p{L}\p{M}’'-]*|\d[\d.,:/%]*"  # a name, or a number
_SLOTS = r"#(?:[^\p{L}#]*#)+"  # with nothing but signs between
_WORD = r"\p{Han}|[\p{Ll}\p{Lo}]{2,}"
# keys without a value, which a table has where other messages have one
_UNSAID = re.compile(r', "(?!content")\w+": null|"(?!content")\w+": null, ')
# of a template: texts that share fewer are formulas, and alike by chance
_FEWEST_WORDS = 4


def prompt_text(prompt: Prompt) -> str:
    """Return a prompt or a completion as one text: messages as JSON, but what the assistant alone
    says as it is.
    """
    if isinstance(prompt, str):
        return prompt
    match messages := list(prompt):
        case [{"role": "assistant", "content": str(said), **more}] if not any(more.values()):
            return said
    return _UNSAID.sub("", json.dumps(messages, ensure_ascii=False, default=str))


def prompt_of(text: Prompt) -> Prompt:
    """Return the messages of a chat that was written as JSON, and what is none as it is."""
    if not isinstance(text, str) or not text.startswith("[{"):
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


def templates(texts: Sequence[str]) -> NDArray[np.intp]:
    """Number texts by their template: those that differ in numbers and in words with a capital
    alone have one number, from 0 on in order of appearance.

    What all texts begin and end with is no sign of likeness, and a template of half of them is that
    of a task: there each different text has a number of its own. The time is linear in the text.
    """
    first = len(commonprefix(texts))  # noqa: RUF071
    last = len(commonprefix([text[::-1] for text in texts]))  # noqa: RUF071
    wording = pl.Series([text[first : len(text) - last] for text in texts], dtype=pl.Utf8)
    wording = wording.str.replace_all(_SLOT, "#").str.replace_all(_SLOTS, "#")
    worded = (wording.str.count_matches(_WORD) >= _FEWEST_WORDS).to_list()
    times = Counter(wording)
    keys = [
        key if many and 2 * times[key] < len(texts) else text
        for key, many, text in zip(wording, worded, texts, strict=True)
    ]
    number_of = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    return np.array([number_of[key] for key in keys], dtype=np.intp)
