"""`groupwise stability`: every promised key, by numbers and by run; one line for every mistake;
nothing overwritten.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cases import each_case

from groupwise import examples
from groupwise.cli import app as cli
from groupwise.edge.mode import stability
from groupwise.forecasting.laws import oscillator_decay
from groupwise_lab.theory.oscillator import recursion

PROMISED = {
    "stable",
    "threshold",
    "rule_threshold",
    "margin",
    "max_learning_rate",
    "max_refresh_interval",
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with `run.csv`, a run of force 0.002."""
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path, recursion(0.002, 0.9, 299, refresh_interval=8, start=0.2, plateau=0.8))
    return tmp_path


def write_run(folder: Path, curve: np.ndarray) -> None:
    """Write a curve with noise as `run.csv`."""
    reward = curve + 0.005 * np.random.default_rng(1).standard_normal(300)
    (folder / "run.csv").write_text(
        "step,reward\n" + "".join(f"{i + 1},{value:.6f}\n" for i, value in enumerate(reward))
    )


RUN = "run.csv --set momentum=.9 --set lag_kind=refresh --set refresh_interval=8"


def answer(capsys: pytest.CaptureFixture[str], arguments: str) -> dict[str, Any]:
    assert cli.main(["stability", *shlex.split(arguments), "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    plain = json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert isinstance(plain, dict)
    return plain


def printed(capsys: pytest.CaptureFixture[str], arguments: str) -> str:
    assert cli.main(["stability", *shlex.split(arguments)]) == 0
    return capsys.readouterr().out


def test_settings_that_leave_both_sides_cannot_tell(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """prime-rl at its bound of 8: the lag may be less, and its ratio may leave none."""
    command = "run.csv --set momentum=.9 --set framework=prime-rl"
    plain = answer(capsys, command)
    assert set(plain) >= PROMISED
    assert plain["bounds"] == pytest.approx([0.01394, 3.8], rel=1e-3)
    assert plain["verdict"] == "stable"  # on both sides
    write_run(home, recursion(0.02, 0.9, 299, lag="none", start=0.2, plateau=0.8))
    plain = answer(capsys, command)
    assert plain["verdict"] == "open"
    assert any("its limit are those of the whole lag" in note for note in plain["notes"])


@pytest.mark.usefixtures("home")
def test_a_trainers_defaults_are_assumed(capsys: pytest.CaptureFixture[str]) -> None:
    plain = answer(capsys, "run.csv --set framework=trl")
    assert (plain["momentum"], plain["lag"], plain["optimizer"]) == (0.9, "none", "adam")
    assert any(
        "the defaults of trl are assumed: beta1 0.9, lag_kind none." in note
        for note in plain["notes"]
    )


@pytest.mark.usefixtures("home")
def test_a_run_tells_the_force(capsys: pytest.CaptureFixture[str]) -> None:
    plain = answer(capsys, RUN + " --set learning_rate=.05")
    assert set(plain) >= PROMISED
    force = plain["effective_force"]["force"]
    assert force["low"] < 0.002 < force["high"]
    assert force["level"] == 0.95
    assert plain["margin_interval"]["low"] < plain["margin"] < plain["margin_interval"]["high"]
    assert plain["threshold"] == pytest.approx(stability(0.002, 0.9, refresh_interval=8).threshold)
    assert any("no guarantee" in note for note in plain["notes"])
    assert plain["verdict"] == "stable"
    assert plain["doubts"] == []
    assert "As far as the log shows" in plain["said"]
    bare = answer(capsys, RUN)
    assert bare["max_learning_rate"] is None
    wide, narrow = (
        answer(capsys, f"{RUN} --level {level}")["effective_force"]["force"]
        for level in (0.99, 0.5)
    )
    assert wide["high"] - wide["low"] > narrow["high"] - narrow["low"]
    text = printed(capsys, RUN + " --set learning_rate=.05")
    assert (plain["state"], plain["headline"]) == (bare["state"], bare["headline"])
    assert " ".join(plain["headline"].split()) in " ".join(text.partition("Stability")[0].split())
    assert "no guarantee" in text
    assert "Limit of arXiv 2606.30789" in text


def test_the_embedded_run_needs_no_option(capsys: pytest.CaptureFixture[str]) -> None:
    plain = answer(capsys, shlex.quote(str(examples.trl_run())))
    assert plain["optimizer"] == "adam"
    assert plain["learning_rate"] > 0
    assert plain["max_learning_rate"] is None
    assert any("does not show the largest stable learning rate" in note for note in plain["notes"])
    assert plain["lag"] == "none"
    assert plain["verdict"] == "stable"


@pytest.mark.slow
@pytest.mark.usefixtures("home")
def test_a_curve_too_fast_for_its_momentum_has_no_margin(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An overdamped curve that no force gives: once a margin of 15.4 of zero width."""
    for ratio in (1.05, 1.5):
        curve = (
            0.8
            - 0.6 * oscillator_decay(np.arange(200.0), 0.3, ratio)
            + 0.01 * np.random.default_rng(2).standard_normal(200)
        )
        Path("fast.csv").write_text(
            "step,reward\n" + "".join(f"{i + 1},{value:.6f}\n" for i, value in enumerate(curve))
        )
        plain = answer(
            capsys,
            (
                "fast.csv --set momentum=.9 --set learning_rate=.05 --set optimizer=sgd "
                "--set lag_kind=refresh --set refresh_interval=8"
            ),
        )
        force = plain["effective_force"]["force"]
        assert plain["verdict"] == "open"
        assert force["high"] is None or plain["margin_interval"]["low"] < 1
        assert force["low"] < force["value"]


@pytest.mark.usefixtures("home")
def test_an_exact_ratio_with_the_kl_term_nobody_knows_where(
    capsys: pytest.CaptureFixture[str],
) -> None:
    exact = RUN + " --set importance_ratio=exact"
    plain = answer(capsys, exact)
    assert plain["bounds"] == pytest.approx([plain["threshold"], 3.8])
    assert any("--set kl_in=PLACE (none, reward or loss)" in note for note in plain["notes"])
    for place, bounds in (("loss", [3.8, 3.8]), ("reward", [plain["threshold"]] * 2)):
        document = answer(capsys, f"{exact} --set kl_in={place}")
        assert document["bounds"] == pytest.approx(bounds)
        assert not any("kl_in=" in note for note in document["notes"])


@pytest.mark.usefixtures("home")
def test_notes_come_once(capsys: pytest.CaptureFixture[str]) -> None:
    notes = answer(capsys, RUN + " --set kl_in=loss --set importance_ratio=clipped")["notes"]
    assert len(notes) == len(set(notes))


def refused(capsys: pytest.CaptureFixture[str], arguments: str) -> str:
    assert cli.main(["stability", *shlex.split(arguments)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "Traceback" not in err
    return err


@pytest.mark.usefixtures("home")
@each_case(
    ("arguments", "words"),
    [
        ("", "Missing argument 'RUN'"),
        ("run.csv --set momentum=1", "expected a number in [0, 1) for momentum, got '1'"),
        ("run.csv --set momentum=nan", "got 'nan'"),
        (RUN + " --level 1", "--level"),
        (
            "run.csv",
            "--set beta1=VALUE for Adam; --set lag_kind=KIND (none, fixed, refresh or async); ",
        ),
        (
            "run.csv --set momentum=.9",
            "expected lag_kind, refresh_interval, which the run does not",
        ),
        ("run.csv --set momentum=.9 --set lag_kind=refresh", "--set refresh_interval=UPDATES"),
        (RUN + " --metric nothing", "nothing"),
        (RUN + " --until 3", "got the constant level"),
        ("absent.csv --set momentum=.9", "absent.csv"),
    ],
)
def test_every_mistake_is_one_line(
    capsys: pytest.CaptureFixture[str], arguments: str, words: str
) -> None:
    assert words in refused(capsys, arguments)


def test_a_run_that_approaches_nothing_is_refused(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(home, np.full(300, 0.5))
    assert "got one that does not (flat): choose" in refused(capsys, RUN)
