"""What is published has one version."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import groupwise_lab

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "release.py"


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
