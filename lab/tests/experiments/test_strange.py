"""The study of strange worlds: worlds of one's own and drawn ones, and what a row says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "experiments" / "intervals"
Load = Callable[[str], ModuleType]


def test_a_drawn_world_is_that_of_its_seed(load: Load) -> None:
    """Even ones are right or wrong, odd ones have a noise; the same seed draws the same."""
    strange = load("strange")
    named, drawn = len(strange.WORLDS), []
    for _ in range(2):
        rng = np.random.default_rng([3, 1])
        for number in range(2):
            strange.draw_world(rng, number)
        drawn.append(dict(list(strange.WORLDS.items())[named:]))
        for name in drawn[-1]:
            del strange.WORLDS[name]
    assert list(drawn[0]) == list(drawn[1])
    first, second = (
        {name: make(np.random.default_rng(0)).moments().vp for name, (make, *_) in worlds.items()}
        for worlds in drawn
    )
    assert first == second
    assert next(iter(first)).startswith("0: difficulty")
    assert "lengths" in list(first)[1]


def test_a_row_counts_notes_and_coverage_of_draws(load: Load) -> None:
    strange = load("strange")
    row = strange.row_of("eight copies of eight prompts", 12, 5)
    assert row["noted"] == 1
    assert np.isnan(row["silent_vp"])
    row = strange.row_of("normal rewards", 12, 5)
    assert row["noted"] == 0
    for name in strange.NAMES:
        assert row[f"silent_{name}"] == row[f"covered_{name}"] >= 0.75
    assert 0.7 < row["width_t"] < 2


def test_a_file_of_ones_own_is_scored_alone_and_nothing_is_written(
    printed: Callable[..., str], tmp_path: Path
) -> None:
    results = FOLDER / "results.txt"
    before = results.read_bytes()
    own = tmp_path / "own.py"
    own.write_text(
        "import numpy as np\n"
        "from groupwise_lab.worlds.bandit import random_world\n"
        "WORLDS = {'mine': (lambda rng: random_world(rng, equal_weights=True), 12, 4, 1)}\n"
    )
    out = printed("strange", "--own", str(own), "--replicates", "6", "--processes", "1")
    assert len([line for line in out.splitlines() if line.startswith("| mine | 12 | 4 |")]) == 1
    assert "right or wrong" not in out
    assert results.read_bytes() == before


@pytest.mark.parametrize("kind", ["normal", "uniform", "t of 5", "rare bonus"])
def test_noises_are_centred_but_for_the_bonus(load: Load, kind: str) -> None:
    value = load("strange").NOISES[kind](np.random.default_rng(1), (400, 50))
    expected = 0.08 if kind == "rare bonus" else 0.0
    assert value.mean() == pytest.approx(expected, abs=0.03)
