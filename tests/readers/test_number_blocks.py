"""Lines of JSON that hold numbers alone are read many at once: the same rows, to the last bit, as line by line."""

from __future__ import annotations

import json
import math
import random
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from groupwise.readers.json_logs import JsonlFeed, numbers_of


def plain_row(rng: random.Random) -> dict[str, Any]:
    return {"step": rng.randrange(9), "a": rng.random(), "b": rng.uniform(-1e9, 1e9)}


ODD: tuple[dict[str, Any], ...] = (
    {"a": 0.5, "step": 1.0, "b": 2},
    {"step": 1.5, "a": None, "b": math.nan},
    {"step": 1, "a ": 2.0, "a": 3.0},
    {"step": 1.0, "x": {"y": 2.0}},
    {"step": 3.0, "a": "text", "b": "1.5"},
    {"step": 3.0, "data": {"q": 1.0}},
    {"step": 3.0, "metrics": {"q": 1.0}},
    {"train_runtime": 5.0, "step": 9.0, "b": 1.0},
    {},
)


def taken(lines: list[str], block: int) -> JsonlFeed:
    feed = JsonlFeed()
    for start in range(0, len(lines), block):
        feed.take(lines[start : start + block])
    return feed


def contents(feed: JsonlFeed) -> Any:
    store = feed._store
    cells = {name: [values.tobytes() for values in store.sparse(name)] for name in store.names()}
    return store.count, cells, store.texts, store.labels, store.unread, feed._damaged, feed._skipped, feed._reader.duplicates


@pytest.mark.parametrize("seed", range(40))
def test_many_lines_at_once_are_the_lines_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    odd = rng.choice([0.0, 0.0, 0.002, 0.2])
    rows = [rng.choice(ODD) if rng.random() < odd else plain_row(rng) for _ in range(400)]
    lines = [json.dumps(row) + "\n" for row in rows]
    if seed % 4 == 3:
        lines[200] = rng.choice(
            ['{"step": 1', "\n", '{"step":1,"step":2,"a":0.5,"b":1}\n', '{"step":1,"a":1,"b":2} x\n', "\ufeff" + lines[0]]
        )
    assert contents(taken(lines, 400)) == contents(taken(lines, 1))


def test_numbers_are_read_as_python_reads_them() -> None:
    rng = random.Random(1)
    texts = ["-0.0", "5e-324", "2.4703282292062328e-324", "1.7976931348623157e308", "9007199254740993", "0.1E5", "1e+5", "1e-400"]
    for _ in range(20_000):
        value = struct.unpack("d", struct.pack("Q", rng.getrandbits(64)))[0]
        if math.isfinite(value):
            texts.append(rng.choice([repr(value), f"{value:.25e}", f"{value:.6g}"]))
    found = numbers_of([f'{{"a":{text},"b":0.5}}\n' for text in texts])
    assert found is not None
    assert found["a"].tobytes() == struct.pack(f"{len(texts)}d", *map(float, texts))


@pytest.mark.parametrize("text", ["1e400", "NaN", "Infinity", "true", "null", "01", "1.", "123456789012345678901234567890", '"1"', "[1]"])
def test_what_is_no_number_of_json_is_left_to_the_line_by_line_reader(text: str) -> None:
    assert numbers_of([f'{{"a":{text}}}\n'] * 3) is None


@pytest.mark.parametrize(
    "lines",
    [
        ['{"a":1,"a":2}\n', '{"a" :1}\n'],  # as many colons after quotes as keys
        ['{"step":-0,"a":1}\n', '{"step":1,"a":-0 }\n'],
        ['{"a":1}{"a":2}\n', "\n"],  # as many objects as lines
        ['{"":1}\n', '{"":-0.5}\n'],
    ],
)
def test_lines_that_only_add_up_are_read_one_by_one(lines: list[str]) -> None:
    lines = lines * 40
    assert contents(taken(lines, len(lines))) == contents(taken(lines, 1))


def test_lines_with_texts_are_not_held_by_the_thousand() -> None:
    feed, held = JsonlFeed(), []

    def lines() -> Iterator[str]:
        for step in range(3000):
            held.append(step - feed.count)
            yield f'{{"step":{step},"completion":"text"}}\n'

    feed.take(lines())
    assert (feed.count, max(held) < 100) == (3000, True)
