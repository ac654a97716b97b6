"""Hostile cells and lines: what a reader takes grows with their length and no faster."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.cases import each_case

from groupwise.errors import GroupwiseError
from groupwise.files import forms
from groupwise.readers import run_record

# Characters of which four times as many take a pattern that goes by their square seconds, and
# seconds that do not count.
SHORT, NOISE = 25_000, 0.02
CELLS: dict[str, Callable[[int], str]] = {
    "digits": lambda size: "3." + "1" * size,
    "digits and a letter": lambda size: "1" * size + " x x x",
    "dots": lambda size: "1" + "." * size + "!",
    "blanks": lambda size: "1" + " " * size + "!",
    "slime": lambda size: "rollout 1: {'rollout/a': 1} " * (size // 28) + "!",
    "rows": lambda size: "{'reward': 1, " * (size // 14),
    "pairs": lambda size: "step:1 - a:1 - " * (size // 15),
    "bars": lambda size: "1%| | 1/2 [" * (size // 11),
    "brackets": lambda size: "([" * (size // 2),
    "quotes": lambda size: "'a': 'b" * (size // 7),
}
FORMATS: dict[str, Callable[[str], str]] = {
    "log.csv": lambda cell: (
        "step,reward,text\n" + "".join(f'{step},0.5,"{cell}"\n' for step in (1, 2))
    ),
    "log.jsonl": lambda cell: "".join(
        json.dumps({"step": step, "reward": 0.5, "text": cell}) + "\n" for step in (1, 2)
    ),
    "run.log": lambda cell: (
        f"{{'reward': 0.5, 'loss': 0.1}}\n{cell}\nstep:1 - critic/score/mean:0.5 - "
        f"actor/kl:{cell}\n{cell}\n"
    ),
    "run.txt": lambda cell: (
        f"step:1 - critic/score/mean:0.5\nrollout 1: {{'rollout/raw_reward': 0.5}}\n{cell}\n"
    ),
}


def seconds(path: Path, times: int = 1) -> float:
    """Processor seconds to open a file or to refuse it, the least of some times."""
    taken = []
    for _ in range(times):
        start = time.process_time()
        with suppress(GroupwiseError):
            run_record(path)
        taken.append(time.process_time() - start)
    return min(taken)


@pytest.mark.slow
@each_case("name", FORMATS)
def test_four_times_the_length_takes_at_most_eight_times_as_long(name: str, tmp_path: Path) -> None:
    slow = {}
    for kind, cell in CELLS.items():
        short, long = (tmp_path / f"{size}" / name for size in (SHORT, 4 * SHORT))
        for path, size in ((short, SHORT), (long, 4 * SHORT)):
            path.parent.mkdir(exist_ok=True)
            path.write_text(FORMATS[name](cell(size)))
        if seconds(long) > 8 * seconds(short) + NOISE and (
            seconds(long) > 8 * seconds(short, 3) + NOISE
        ):  # not for a moment's noise
            slow[kind] = (seconds(short), seconds(long))
    assert slow == {}


def test_a_pair_is_looked_for_in_words_of_hyphens_in_little_time() -> None:
    pair, taken = next(forms("pair")), {}
    for mark in "-.":
        times = []
        for _ in range(5):
            start = time.process_time()
            assert not pair.findall(f"a{mark}" * 2 * SHORT)
            times.append(time.process_time() - start)
        taken[mark] = min(times)
    assert taken["-"] < 50 * taken["."]  # some 16 as it is, 170 where each hyphen begins a name
