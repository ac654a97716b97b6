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

NUMBERS = (
    "--learning-rate 0.11 --momentum 0.9 --stiffness 0.182398 --refresh-interval 8 --lag-kind "
    "refresh"
)
PROMISED = {
    "stable",
    "threshold",
    "rule_threshold",
    "margin",
    "max_learning_rate",
    "max_refresh_interval",
}
TRL = (
    "--trainer trl --set num_iterations=2 --set steps_per_generation=4 --set "
    "gradient_accumulation_steps=4"
)
SETTING = "--learning-rate .01 --momentum .9 --stiffness 1"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with `run.csv`, a run of force 0.002."""
    monkeypatch.chdir(tmp_path)
    curve = recursion(0.002, 0.9, 299, refresh_interval=8, start=0.2, plateau=0.8)
    reward = curve + 0.005 * np.random.default_rng(1).standard_normal(300)
    (tmp_path / "run.csv").write_text(
        "step,reward\n" + "".join(f"{i + 1},{value:.6f}\n" for i, value in enumerate(reward))
    )
    return tmp_path


RUN = "run.csv --momentum .9 --lag-kind refresh --refresh-interval 8"


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


@each_case("lag", ["none", "fixed", "refresh", "async"])
@each_case("stiffness", [0.182398, 40.0])
def test_every_promised_key(capsys: pytest.CaptureFixture[str], lag: str, stiffness: float) -> None:
    arguments = (
        f"--learning-rate .11 --momentum .9 --stiffness {stiffness} --refresh-interval 8 "
        f"--lag-kind {lag}"
    )
    plain = answer(capsys, arguments)
    assert set(plain) >= PROMISED
    # By our own arithmetic: thresholds are of learning rate x stiffness, without a ratio; the
    # margin is threshold over present value.
    force = 0.11 * stiffness
    assert plain["margin"] == pytest.approx(plain["threshold"] / force)
    assert plain["stable"] is (force < plain["threshold"])
    assert plain["max_learning_rate"] == pytest.approx(plain["threshold"] / stiffness)
    assert plain["rule_threshold"] == pytest.approx(0.1 / (1 if lag == "none" else 8))
    assert plain["force"] == pytest.approx(force)
    longest = plain["max_refresh_interval"]
    assert longest is None if lag == "none" else longest >= 0
    assert plain["max_refresh_status"] in (
        {"not applicable"} if lag == "none" else {"exact", "none"}
    )


def test_settings_that_leave_both_sides_cannot_tell(capsys: pytest.CaptureFixture[str]) -> None:
    """prime-rl at its bound of 8: once "Unstable: 0.15 exceeds 0.0139"."""
    setting = "--learning-rate .05 --momentum .9 --trainer prime-rl --set max_off_policy_steps=8"
    plain = answer(capsys, setting + " --stiffness 3")
    assert plain["stable"] is None
    assert plain["deciding"] == ["lag", "importance_ratio"]
    assert plain["bounds"] == pytest.approx([0.01394, 3.8], rel=1e-3)
    text = printed(capsys, setting + " --stiffness 3")
    assert "Cannot tell: a force of 0.15 lies between 0.0139 and 3.8" in text
    assert "What decides: the lag, of which the settings give only the largest" in text
    assert answer(capsys, setting + " --stiffness 100")["stable"] is False


@pytest.mark.usefixtures("home")
def test_a_trainers_defaults_are_assumed(capsys: pytest.CaptureFixture[str]) -> None:
    plain = answer(capsys, "run.csv --set framework=trl")
    assert (plain["momentum"], plain["lag"], plain["optimizer"]) == (0.9, "none", "adam")
    assert any(
        "defaults of trl, since the run does not say them: beta1 0.9, lag_kind none." in note
        for note in plain["notes"]
    )


def test_the_numbers_of_the_theory(capsys: pytest.CaptureFixture[str]) -> None:
    for lag, expected in (
        ("refresh", 0.0339),
        ("fixed", 0.01394),
        ("async", 0.01023),
        ("none", 3.8),
    ):
        plain = answer(
            capsys,
            (
                "--learning-rate .05 --momentum .9 --stiffness .182398 --refresh-interval 8 "
                f"--lag-kind {lag}"
            ),
        )
        assert plain["threshold"] == pytest.approx(expected, rel=3e-3)


def test_of_several_modes_the_stiffest_decides(capsys: pytest.CaptureFixture[str]) -> None:
    plain = answer(
        capsys,
        (
            "--learning-rate .05 --momentum .9 --stiffness .18,3 --refresh-interval 8 --lag-kind "
            "refresh"
        ),
    )
    assert [mode["stable"] for mode in plain["modes"]] == [False, True]
    assert plain["stiffness"] == 3.0
    assert plain["stable"] is False


def test_adam_is_mapped_and_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    plain = answer(capsys, NUMBERS + " --optimizer adam --second-moment 4")
    assert plain["force"] == pytest.approx(0.1 * 0.11 * 0.182398 / 2)
    assert plain["max_learning_rate"] == pytest.approx(plain["threshold"] / (0.1 * 0.182398 / 2))
    assert any("heuristically" in note for note in plain["notes"])


def test_a_trainers_own_settings(capsys: pytest.CaptureFixture[str]) -> None:
    plain = answer(capsys, f"{TRL} {SETTING}")
    assert (
        plain["lag"],
        plain["refresh_interval"],
        plain["importance_ratio"],
        plain["kl_term"],
    ) == ("refresh", 2, "clipped", "unknown")
    assert plain["asked"] == ["beta"]
    assert plain["trainer"]["trainer"] == "trl"
    text = printed(capsys, f"{TRL} {SETTING} --set beta=0")
    assert "Not known" not in text
    loose = (
        f"--trainer slime --set num_steps_per_rollout=2 --set update_weights_interval=3 {SETTING}"
    )
    assert answer(capsys, loose)["asked"] == ["kl_coef", "use_kl_loss", "use_tis"]
    assert "Rollouts are at most 7 updates old" in printed(capsys, loose)


@pytest.mark.usefixtures("home")
def test_a_run_tells_the_force(capsys: pytest.CaptureFixture[str]) -> None:
    plain = answer(capsys, RUN + " --learning-rate .05")
    assert set(plain) >= PROMISED
    force = plain["effective_force"]["force"]
    assert force["low"] < 0.002 < force["high"]
    assert force["level"] == 0.95
    assert plain["margin_interval"]["low"] < plain["margin"] < plain["margin_interval"]["high"]
    assert plain["threshold"] == pytest.approx(stability(0.002, 0.9, refresh_interval=8).threshold)
    assert any("no guarantee of safety" in note for note in plain["notes"])
    assert plain["verdict"] == "stable"
    assert plain["doubts"] == []
    assert "as far as the log shows" in plain["said"]
    bare = answer(capsys, RUN)
    assert bare["max_learning_rate"] is None
    assert answer(capsys, RUN + " --set momentum=0.1")["momentum"] == 0.9, (
        "an option stands before a setting"
    )
    wide, narrow = (
        answer(capsys, f"{RUN} --level {level}")["effective_force"]["force"]
        for level in (0.99, 0.5)
    )
    assert wide["high"] - wide["low"] > narrow["high"] - narrow["low"]
    trained = answer(capsys, f"run.csv --momentum .9 {TRL} --set steps_per_generation=4")
    assert trained["refresh_interval"] == 2
    text = printed(capsys, RUN + " --learning-rate .05")
    assert (plain["state"], plain["headline"]) == (bare["state"], bare["headline"])
    assert " ".join(plain["headline"].split()) in " ".join(text.partition("Stability")[0].split())
    assert "no guarantee of safety" in text
    assert "Published rule" in text


def test_the_embedded_run_needs_no_option(capsys: pytest.CaptureFixture[str]) -> None:
    plain = answer(capsys, shlex.quote(str(examples.trl_run())))
    assert plain["optimizer"] == "adam"
    assert plain["learning_rate"] > 0
    assert plain["max_learning_rate"] is None
    assert any("no largest learning rate" in note for note in plain["notes"])
    assert plain["lag"] == "none"
    assert plain["verdict"] == "stable"


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
                "fast.csv --momentum .9 --learning-rate .05 --optimizer sgd --lag-kind refresh "
                "--refresh-interval 8"
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
    assert any("--set kl_in=none, reward or loss" in note for note in plain["notes"])
    for place, bounds in (("loss", [3.8, 3.8]), ("reward", [plain["threshold"]] * 2)):
        told = answer(capsys, f"{exact} --set kl_in={place}")
        assert told["bounds"] == pytest.approx(bounds)
        assert not any("kl_in=" in note for note in told["notes"])


def test_without_a_lag_no_interval_is_the_longest(capsys: pytest.CaptureFixture[str]) -> None:
    """At a force of .004 and momentum .9 a refresh every 68 updates is unstable: "any" would be
    wrong.
    """
    said = printed(capsys, "--learning-rate .004 --momentum .9 --stiffness 1 --lag-kind none")
    assert "not applicable" in said.split("Longest refresh interval")[1].split("\n")[0]


@pytest.mark.usefixtures("home")
def test_one_update_is_singular_and_notes_come_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert "refresh, 1 update " in printed(capsys, NUMBERS + " --refresh-interval 1") + " "
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
        (
            "",
            (
                "no --learning-rate, no --momentum, no --stiffness, no --lag-kind, no "
                "--refresh-interval"
            ),
        ),
        (NUMBERS + " --momentum 1", "--momentum expects a number of at least 0 and below 1; got 1"),
        (NUMBERS + " --momentum=-0.1", "below 1; got -0.1"),
        (NUMBERS + " --momentum nan", "got nan"),
        (NUMBERS + " --stiffness 0", "--stiffness expects numbers above 0"),
        (NUMBERS + " --stiffness=-2", "fixed point is no stable one"),
        (NUMBERS + " --stiffness 1,x", "got 'x'"),
        (NUMBERS + " --stiffness " + ",".join(["1"] * 101), "at most 100 modes"),
        (
            NUMBERS + " --refresh-interval 0",
            "--refresh-interval expects a whole number from 1 to 1,000,000; got 0",
        ),
        (NUMBERS + " --refresh-interval 2.5", "valid integer"),
        (NUMBERS + " --lag-kind weekly", "use one of none, fixed, refresh, async"),
        (NUMBERS + " --learning-rate 0", "--learning-rate expects a positive number; got 0"),
        (NUMBERS + " --learning-rate inf", "a positive number; got inf"),
        (
            NUMBERS + " --learning-rate 1e300 --stiffness 1e300",
            "largest number of the machine, got 1e+300 times 1e+300",
        ),
        (NUMBERS + " --stiffness 1,", "commas between them, as 0.5,20; got '' in '1,'"),
        (NUMBERS + " --optimizer muon", "maps to heavy ball"),
        (NUMBERS + " --optimizer adam", "no --second-moment"),
        (NUMBERS + " --second-moment 4", "Adam's"),
        (
            NUMBERS + " --optimizer adam --second-moment 0",
            "--second-moment expects a positive number",
        ),
        (NUMBERS + " --trainer trl", "got both"),
        (NUMBERS + " --set group_size=8", "--set with --trainer, or with a run"),
        (NUMBERS + " --column reward=x", "--column or --config"),
        (NUMBERS + " --level 1", "--level"),
        (
            f"--trainer trl {SETTING}",
            "expected num_iterations and steps_per_generation and gradient_accumulation_steps",
        ),
        (
            f"--trainer trl --set num_iteration=2 {SETTING}",
            "expected num_iterations",
        ),
        (f"--trainer megatron {SETTING}", "expected a trainer"),
        ("run.csv", "--set beta1=VALUE for Adam; --set lag_kind=none, fixed, refresh or async; "),
        ("run.csv --momentum .9", "expected lag_kind, refresh_interval, which the run does not"),
        ("run.csv --momentum .9 --lag-kind refresh", "--set refresh_interval=UPDATES"),
        (RUN + " --stiffness 1", "expected a run or --stiffness"),
        (RUN + " --second-moment 1", "expected a run or --second-moment"),
        (RUN + " --metric nothing", "nothing"),
        (RUN + " --until 3", "got the constant level"),
        ("absent.csv --momentum .9", "absent.csv"),
    ],
)
def test_every_mistake_is_one_line(
    capsys: pytest.CaptureFixture[str], arguments: str, words: str
) -> None:
    assert words in refused(capsys, arguments)
