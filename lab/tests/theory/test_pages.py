"""The pages of derivations: a test beside each statement (that it exists is tested with the other
pages), and every baseline of the code in the table.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

THEORY = Path(__file__).resolve().parents[2] / "docs" / "theory"
CITED = re.compile(r"`(?:lab/)?tests/[\w/]+\.py::test_\w+`")


@pytest.mark.parametrize(("page", "least"), [("gradient.md", 20), ("dynamics.md", 12)])
def test_a_page_names_tests(page: str, least: int) -> None:
    assert len(CITED.findall((THEORY / page).read_text(encoding="utf-8"))) > least


def test_every_baseline_is_on_the_page() -> None:
    from groupwise_lab.theory.mse import BASELINES

    text = (THEORY / "gradient.md").read_text(encoding="utf-8")
    assert [baseline.name for baseline in BASELINES if f"| `{baseline.name}` |" not in text] == []
