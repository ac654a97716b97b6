"""The judgement reaches the tracker that is in use, with a link that opens nothing by itself."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from tests.cases import each_case
from tests.golden.sentences import says

import groupwise as gw
from groupwise.integrations.sinks import PAGE, facts, shareable, tell

FAILED = gw.judge([0.5] * 30 + [0.0] * 30)


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module with what is used of MLflow, a run of it open."""
    module: Any = ModuleType("mlflow")
    module.tags, module.active_run = {}, SimpleNamespace
    module.set_tags = module.tags.update
    for name in ("trackio", "wandb"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "mlflow", module)
    return module


@each_case(
    ("page", "shown"),
    [
        ("http://127.0.0.1:8750/SECRET/", "http://127.0.0.1:8750/"),
        ("http://localhost:8750/SECRET/report/1?a=b#c", "http://localhost:8750/"),
        ("http://[::1]:8750/SECRET/", "http://[::1]:8750/"),
        ("http://127.0.1.1:8750/SECRET/", "http://127.0.1.1:8750/"),
        ("127.0.0.1:8750/SECRETbcdefghijklmnopqrstuv_-012/", "127.0.0.1:8750/"),
        (
            "https://hub.org/user/me/proxy/8750/SECRETbcdefghijklmnopqrstuv_-012/run",
            "https://hub.org/user/me/proxy/8750/",
        ),
        (
            "https://hub.org/a-project-of-thirty-two-letters/runs/7",
            "https://hub.org/a-project-of-thirty-two-letters/runs/7",
        ),
        (
            "https://user:SECRET@ci.example/runs/7/page.html?token=SECRET#SECRET",
            "https://ci.example/runs/7/page.html",
        ),
        ("runs/page.html", "runs/page.html"),
        ("", ""),
    ],
)
def test_a_link_is_handed_on_without_what_opens_it(page: str, shown: str) -> None:
    assert shareable(page) == shown
    assert "SECRET" not in shown


def test_an_open_run_of_mlflow_is_tagged(mlflow: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PAGE, "http://127.0.0.1:8750/SECRET/")
    assert tell(FAILED) == []
    assert mlflow.tags == {
        f"groupwise.{name}": value
        for name, value in facts(FAILED, "http://127.0.0.1:8750/").items()
    }
    assert mlflow.tags["groupwise.state"] == "failed"
    assert mlflow.tags["groupwise.since_step"] == "31"
    assert "SECRET" not in str(mlflow.tags)


def test_no_run_is_begun_and_a_tracker_that_fails_is_a_sentence(
    mlflow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow.active_run = lambda: None
    assert tell(FAILED) == []
    assert mlflow.tags == {}

    def broken() -> None:
        raise ConnectionError("no server\x1b[2J")

    mlflow.active_run = broken
    (note,) = tell(FAILED)
    says("integrations/sinks/1", note)


def test_what_a_judgement_does_not_say_is_no_tag() -> None:
    assert set(facts(gw.judge([0.5, 0.6]), "")) <= {"state", "headline", "cause", "do"}


@pytest.mark.parametrize("page", ["http://host:PORT/", "http://[bad/"])
def test_an_address_that_is_none_costs_the_alert_its_link_alone(
    page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PAGE, page)
    assert tell(FAILED) == []
