"""The pictures of the laboratory's pages: each is drawn from tables of results, and shown."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "experiments"
Loader = Callable[[str], ModuleType]


def test_every_picture_is_drawn_and_shown(load: Loader) -> None:
    pages = (ROOT / "docs").rglob("*.md")
    shown = {
        name
        for page in pages
        for name in re.findall(r"\]\(\.\./img/([\w-]+)\.svg\)", page.read_text(encoding="utf-8"))
    }
    kept = {path.stem for path in (ROOT / "docs" / "img").glob("*")}
    assert shown == kept == set(load("pictures").curves())


@pytest.mark.slow
def test_every_curve_has_points(load: Loader) -> None:
    pictures = load("pictures")
    for picture in ("dynamics-boundary", "deep-learning-rate", "final-gap-order"):
        for curve in pictures.curves()[picture]:
            points = pictures.points(curve["tables"], curve["query"])
            assert len(points) >= 2, curve["label"]
            assert np.isfinite(points.to_numpy()).all(), curve["label"]


def test_points_average_over_the_tables_of_all_seeds(
    load: Loader, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pictures = load("pictures")
    monkeypatch.setattr(pictures, "HERE", tmp_path)
    (tmp_path / "study").mkdir()
    results = pictures.Results(tmp_path / "study" / "results.txt").within("part")
    results.write("run-seed0", [{"step": 0, "reward": 0.5}, {"step": 1, "reward": ""}])
    results.write("run-seed1", [{"step": 0, "reward": 1.0}, {"step": 1, "reward": 0.25}])
    results.write("other", [{"step": 0, "reward": 9.0}])
    query = "SELECT step x, AVG(reward) y FROM self GROUP BY step ORDER BY step"
    assert pictures.points("study/part/run-*", query).rows() == [(0, 0.75), (1, 0.25)]


@pytest.mark.slow
def test_the_same_numbers_give_the_same_file(
    load: Loader, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    pictures = load("pictures")
    monkeypatch.setattr(pictures, "PICTURES", tmp_path)
    texts = []
    for _ in range(2):
        pictures.draw("noise-scale", pictures.curves()["noise-scale"])
        texts.append((tmp_path / "noise-scale.svg").read_text(encoding="utf-8"))
    assert texts[0] == texts[1]
    assert "noise scale, rollouts as independent" in texts[0]
    assert not re.search(r'="[^"]*\d\.\d\d', texts[0])
