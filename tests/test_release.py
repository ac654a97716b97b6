"""What is published has one version."""

from __future__ import annotations

import importlib.util
import re
import runpy
import subprocess
from pathlib import Path

import pytest
import yaml

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


@pytest.mark.parametrize(("day", "tags"), [("unreleased", []), ("2026-12-01", ["v0.2.0"])])
def test_a_version_has_its_day_once_it_has_its_tag(day: str, tags: list[str]) -> None:
    check_day = runpy.run_path(str(SCRIPT))["check_day"]
    check_day(day, tags)
    with pytest.raises(SystemExit, match="expected the day of the release"):
        check_day("unreleased", ["v0.2.0"])


def test_actions_of_others_are_pinned_to_a_commit() -> None:
    """A tag can be moved by whoever owns it: each `uses:` names a commit, and its version."""
    files = [*(ROOT / ".github" / "workflows").iterdir(), ROOT / "action.yml"]
    uses = [line for file in files for line in file.read_text().splitlines() if "uses:" in line]
    assert len(uses) > 4
    pinned = re.compile(r" *- uses: [\w-]+/[\w-]+@[0-9a-f]{40}  # v[\d.]+")
    assert [line for line in uses if not pinned.fullmatch(line)] == []


def test_publishing_keeps_no_token_and_begins_at_a_tag(tmp_path: Path) -> None:
    """Only the job that uploads may ask for an identity, and what it uploads was built before."""
    text = (ROOT / ".github" / "workflows" / "publish.yml").read_text(encoding="utf-8")
    jobs = yaml.safe_load(text)["jobs"]
    assert "secrets." not in text
    assert [name for name, job in jobs.items() if "id-token" in job.get("permissions", {})] == [
        "publish"
    ]
    assert (jobs["publish"]["needs"], jobs["publish"]["environment"]) == ("build", "pypi")
    scripts = [step["run"] for step in jobs["build"]["steps"] if "run" in step]
    assert scripts[1:] == ["make release"]
    uploaded = next(step for step in jobs["build"]["steps"] if "upload-artifact" in str(step))
    assert uploaded["with"]["path"] == "build/release"
    for tag, code in (("v0.2.0", 0), ("main", 1), ("0.2.0", 1)):
        done = subprocess.run(
            ["bash", "-ec", scripts[0]],
            env={"GITHUB_REF_NAME": tag},
            cwd=tmp_path,
            capture_output=True,
            check=False,
        )
        assert done.returncode == code, tag


def test_the_changelog_has_short_lines_in_groups_by_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    _, *versions = re.split(r"^## ", text, flags=re.MULTILINE)
    order = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
    days = [re.match(r"\[\d+\.\d+\.\d+\] - (unreleased|\d{4}-\d\d-\d\d)\n", v) for v in versions]
    assert all(days)
    assert "unreleased" not in [day and day[1] for day in days[1:]]  # only the newest waits
    for version in versions:
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
