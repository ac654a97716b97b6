"""The pages of derivations name only tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
NAMED = re.compile(r"`((?:lab/)?tests/[\w/]+\.py)::(test_\w+)`")


@pytest.mark.parametrize(("page", "least"), [("gradient.md", 20), ("dynamics.md", 12)])
def test_every_test_that_the_page_names_exists(page: str, least: int) -> None:
    named = NAMED.findall((ROOT / "lab" / "docs" / "theory" / page).read_text(encoding="utf-8"))
    assert len(named) > least
    missing = [
        f"{path}::{name}"
        for path, name in named
        if not (ROOT / path).is_file()
        or f"def {name}(" not in (ROOT / path).read_text(encoding="utf-8")
    ]
    assert missing == []


def test_every_baseline_is_on_the_page() -> None:
    from groupwise_lab.theory.mse import BASELINES

    text = (ROOT / "lab" / "docs" / "theory" / "gradient.md").read_text(encoding="utf-8")
    assert [baseline.name for baseline in BASELINES if f"| `{baseline.name}` |" not in text] == []
