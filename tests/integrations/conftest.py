"""Fixtures of the tests of recordings."""

from __future__ import annotations

import pytest


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody wait for a record that is being written: the tests in which a killed run's worker lets go of it do wait."""
    monkeypatch.setattr("groupwise.record.journal._PATIENCE_SECONDS", 0.05)
