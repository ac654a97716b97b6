"""What is published has one version."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

import groupwise_lab

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "scripts" / "release.py"


def test_packages_changelog_and_tag_have_one_version(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("release", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    release = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(release)
    assert release.agreed_version().count(".") == 2
    monkeypatch.setattr(groupwise_lab, "__version__", "9.9.9")
    with pytest.raises(SystemExit, match="expected one version"):
        release.agreed_version()


def test_actions_of_others_are_pinned_to_a_commit() -> None:
    """A tag can be moved by whoever owns it: each `uses:` names a commit, and its version."""
    files = [*(ROOT / ".github" / "workflows").iterdir(), ROOT / "action.yml"]
    uses = [line for file in files for line in file.read_text().splitlines() if "uses:" in line]
    assert len(uses) > 4
    pinned = re.compile(r" *- uses: [\w-]+/[\w-]+@[0-9a-f]{40}  # v[\d.]+")
    assert [line for line in uses if not pinned.fullmatch(line)] == []


def test_the_changelog_has_short_lines_in_groups_by_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    _, *versions = re.split(r"^## ", text, flags=re.MULTILINE)
    order = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
    for version in versions:
        assert re.match(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d\n", version)
        groups = re.findall(r"^### (.*)$", version, re.MULTILINE)
        assert len(groups) == len(set(groups))
        assert set(groups) <= set(order)
    entries = [line for line in text.splitlines() if line.startswith("- ")]
    assert [line for line in entries if len(line) > 120 or not line.endswith(".")] == []


def test_pages_that_name_a_tag_name_that_of_this_version() -> None:
    """Before it is published a page gives what works without a tag."""
    page = (ROOT / "docs" / "how-to" / "ci.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\bv(\d+\.\d+\.\d+)\b", page)) == {groupwise_lab.__version__}
    assert "rev: COMMIT" in page
