"""`groupwise stability` of runs that `groupwise-lab simulate` made, whose force and threshold are
exact.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from lab.tests.commands import main

SIMULATED = "--reference .7,.3 --kl-weight .5 --momentum .9 --seed 1"
pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def answer(capsys: pytest.CaptureFixture[str], arguments: str) -> dict[str, Any]:
    assert main(["stability", *shlex.split(arguments), "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert isinstance(plain, dict)
    return plain


def simulated(capsys: pytest.CaptureFixture[str], name: str, arguments: str) -> str:
    assert main(["simulate", "bandit", "-o", name, *shlex.split(f"{SIMULATED} {arguments}")]) == 0
    return capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        (
            "--learning-rate .2135 --lag-kind refresh --refresh-interval 8 --prompts-per-step 32 "
            "--steps 300"
        ),
        (
            "--learning-rate .1188 --lag-kind async --refresh-interval 4 --prompts-per-step 32 "
            "--steps 400"
        ),
        (
            "--learning-rate .13 --lag-kind async --refresh-interval 4 --prompts-per-step 32 "
            "--steps 400 --seed 2"
        ),
    ],
)
def test_an_unstable_run_is_not_called_stable(
    capsys: pytest.CaptureFixture[str], arguments: str
) -> None:
    """On a limit cycle the frequency reads as a small force: .33 of the true one here, which
    once made a margin of 2.6.
    """
    simulated(capsys, "run", arguments)
    plain = answer(capsys, "run")
    assert plain["verdict"] == "open"
    assert any("still oscillates" in doubt for doubt in plain["doubts"])
    assert (
        plain["margin"]
        is plain["margin_interval"]
        is plain["stable"]
        is plain["max_learning_rate"]
        is None
    )
    assert plain["threshold"] > 0
    assert main(["stability", "run"]) == 0
    said = capsys.readouterr().out
    assert "Undecided, because the reward still oscillates" in " ".join(said.split())
    assert "No margin can be given" in said
    assert "Margin" not in said
    assert "not reliable here" in said


@pytest.mark.slow
def test_a_run_whose_ratio_leaves_no_lag(capsys: pytest.CaptureFixture[str]) -> None:
    """Force .02736, on-policy threshold 3.8, where the stale map once gave a force of half and a
    margin of 1. A law without a force describes this curve better, so that the margin is open.
    """
    simulated(
        capsys,
        "free",
        (
            "--learning-rate .15 --lag-kind fixed --refresh-interval 8 --importance-ratio exact "
            "--kl-in loss --prompts-per-step 64"
        ),
    )
    plain = answer(capsys, "free")
    assert (plain["importance_ratio"], plain["kl_term"], plain["lag"]) == ("exact", "loss", "none")
    assert plain["threshold"] == pytest.approx(3.8)
    assert (
        plain["effective_force"]["force"]["low"]
        < 0.02736
        < plain["effective_force"]["force"]["high"]
    )
    assert (plain["verdict"], plain["margin_interval"]) == ("open", None)
    assert any("removes the lag" in note for note in plain["notes"])
    both = answer(capsys, "free --set importance_ratio=clipped")
    assert (both["lag"], both["verdict"]) == ("fixed", "open")
    assert any("cover all of it and none of it" in note for note in both["notes"])
    stale = answer(capsys, "free --set kl_in=reward")
    assert (stale["lag"], stale["kl_term"]) == ("fixed", "reward")
    assert stale["threshold"] == pytest.approx(0.01394, rel=3e-3)


@pytest.mark.slow
def test_a_run_that_another_law_describes_better_is_answered(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = simulated(
        capsys,
        "run",
        "--learning-rate .015 --lag-kind refresh --refresh-interval 8 --prompts-per-step 64",
    )
    assert "learning rate x stiffness of the fastest mode is 0.002736.\n" in said
    plain = answer(capsys, "run")
    assert plain["law"] not in {"exponential", "oscillator"}
    assert plain["verdict"] == "stable"
    assert plain["margin_interval"]["low"] < 0.0339 / 0.002736 < plain["margin_interval"]["high"]
    assert any(
        "which has no restoring force. The force is estimated" in note for note in plain["notes"]
    )
