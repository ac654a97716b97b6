"""Simulated ties: the commands tell them, and the page has what they came to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "experiments" / "probe"
PAGE = ROOT / "docs" / "studies" / "diagnosis-experiments.md"
Loader = Callable[[str], ModuleType]


def first_run(ties: ModuleType, cause: str) -> dict[str, Any]:
    row: dict[str, Any] = next(ties.runs(cause))
    return row


def test_the_commands_tell_a_tie(load: Loader) -> None:
    row = first_run(load("ties"), "precision")
    assert row["right"]
    assert row["likely"]
    assert row["cost"] < 0.03


def test_a_sampler_that_does_nothing_wrong_is_no_cause(
    load: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    ties = load("ties")
    drawn = ties.answers
    monkeypatch.setattr(
        ties, "answers", lambda sampler, rng, longest, **_: drawn(sampler, rng, longest)
    )
    row = first_run(ties, "precision")
    assert not row["right"]
    assert not row["likely"]


@pytest.mark.filterwarnings("ignore::groupwise_lab.trainer.rows.IdleWarning")
@pytest.mark.slow
@pytest.mark.parametrize("cause", ["verifier", "too_hard", "edge", "noise"])
def test_every_kind_of_tie_is_made(load: Loader, cause: str) -> None:
    ties = load("ties")
    row = first_run(ties, cause)
    assert row["right"]
    assert row["likely"] == (cause != "noise")  # which a kick only clears of the edge


def test_the_page_has_what_the_ties_came_to(load: Loader) -> None:
    ties = load("ties")
    rows = ties.RESULTS.texts("ties")
    assert [row["cause"] for row in rows] == list(ties.TIES)
    page = PAGE.read_text(encoding="utf-8").split("## Ties")[1].split("\n## ")[0]
    for row in rows:
        assert f"| {' | '.join(row.values()).replace('_', ' ')} |" in page
    total = {name: sum(int(row[name]) for row in rows) for name in ("runs", "right", "likely")}
    assert f"{total['right']} of {total['runs']} rightly" in page
    assert f"likely and right in {total['likely']}" in page
    guide = (ROOT.parent / "docs" / "how-to" / "probe.md").read_text(encoding="utf-8")
    assert f"{total['right']} of {total['runs']} simulated" in guide
