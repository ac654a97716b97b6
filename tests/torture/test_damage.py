"""Every byte of a journal flipped, every length cut: all undamaged steps are read, the damaged
are counted, a resume loses none.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.torture.journals import Made, goes_on, made, steps_in

STEPS = 200


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return made(tmp_path_factory.mktemp("made") / "run", STEPS)


def flipped(
    journal: Made, folder: Path, places: Iterable[tuple[int, int]], *, resume_each: int
) -> int:
    """Flip bits at places, one after another, and check each time; resume every so many times.

    Return how many were tried.
    """
    path, count = folder / "journal.jsonl", 0
    for count, (place, mask) in enumerate(places, start=1):
        changed = bytearray(journal.content)
        changed[place] ^= mask
        path.write_bytes(changed)
        line = journal.line_at(place)
        ends_it = place == journal.ends[line] - 1
        expected = journal.without(*([] if ends_it else [line]))
        steps, lines, size = steps_in(path)
        assert steps == expected, (place, mask)
        whole = journal.ends[line] - (journal.ends[line - 1] if line else 0) - 1
        broken_in_two = changed[place] == ord("\n")
        assert (lines, size) == (1, 1 if ends_it else whole - broken_in_two) or (
            broken_in_two and size == whole - 1 and lines <= 2
        )
        if count % resume_each == 0:
            goes_on(folder, expected, STEPS)
            assert path.read_bytes().startswith(bytes(changed))
    return count


def cut(journal: Made, folder: Path, lengths: Iterable[int], *, resume_each: int) -> int:
    """Cut the journal at lengths and check each time."""
    path, count = folder / "journal.jsonl", 0
    for count, length in enumerate(lengths, start=1):
        path.write_bytes(journal.content[:length])
        whole = [
            step
            for end, step in zip(journal.ends, journal.steps, strict=True)
            if step is not None and end <= length
        ]
        assert steps_in(path) == (whole, 0, 0), length
        if whole and count % resume_each == 0:
            goes_on(folder, whole, whole[-1])
            assert steps_in(path)[1] == 0
    return count


def test_a_sample_of_bytes_flipped(journal: Made, tmp_path: Path) -> None:
    draw = random.Random(1)
    feeds = [end - 1 for end in journal.ends]
    places = [
        0,
        *draw.sample(feeds, 8),
        feeds[-1],
        *(draw.randrange(len(journal.content)) for _ in range(90)),
    ]
    assert (
        flipped(
            journal,
            tmp_path,
            [(place, draw.choice([1, 8, 255])) for place in places],
            resume_each=10,
        )
        == 100
    )


def test_a_sample_of_lengths_cut(journal: Made, tmp_path: Path) -> None:
    draw = random.Random(2)
    assert (
        cut(
            journal,
            tmp_path,
            [0, *(draw.randrange(len(journal.content)) for _ in range(60))],
            resume_each=8,
        )
        == 61
    )


def test_a_stretch_that_is_zeroed_overwritten_or_lost(journal: Made, tmp_path: Path) -> None:
    draw, path = random.Random(3), tmp_path / "journal.jsonl"
    for number in range(60):
        start = draw.randrange(len(journal.content) - 1)
        end = min(start + draw.choice([2, 50, 512, 4096]), len(journal.content))
        filling = [bytes(end - start), draw.randbytes(end - start), b""][number % 3]
        changed = journal.content[:start] + filling + journal.content[end:]
        path.write_bytes(changed)
        hurt = range(journal.line_at(start), journal.line_at(end - 1) + 1)
        steps = steps_in(path)[0]
        assert set(journal.without(*hurt)) <= set(steps), (start, end)
        assert steps == sorted(set(steps))
        if steps and number % 10 == 0:
            goes_on(tmp_path, steps, STEPS)
            assert path.read_bytes().startswith(changed) or not filling


@pytest.mark.torture
def test_every_byte_flipped(journal: Made, tmp_path: Path) -> None:
    places = ((place, mask) for place in range(len(journal.content)) for mask in (255,))
    print(
        f"{flipped(journal, tmp_path, places, resume_each=100)} bytes flipped, one a time: every "
        "undamaged step read"
    )


@pytest.mark.torture
def test_every_bit_of_two_thousand_bytes_flipped(journal: Made, tmp_path: Path) -> None:
    chosen = random.Random(4).sample(range(len(journal.content)), 2000)
    places = ((place, 1 << bit) for place in chosen for bit in range(8))
    print(
        f"{flipped(journal, tmp_path, places, resume_each=100)} bits flipped, one a time: every "
        "undamaged step read"
    )


@pytest.mark.torture
def test_every_length_cut(journal: Made, tmp_path: Path) -> None:
    print(
        f"{cut(journal, tmp_path, range(len(journal.content) + 1), resume_each=100)} lengths cut: "
        "each whole step read, none called damaged"
    )
