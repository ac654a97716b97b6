"""The commands `plan` and `components`: keys that are promised, one line for every mistake, no
hostile file obeyed, nothing overwritten.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cases import each_case
from tests.cli.asked import printed, refused
from tests.golden.sentences import says

from groupwise.analysis.components import Measurement, SavedComponents, path_beside, save_components
from groupwise.analysis.plan import NOT_LOGGED
from groupwise.cli import app as cli
from groupwise.estimators.components import components
from groupwise.readers import run_record
from groupwise.series.metric import zero_variance_outlook

GROUPS, SIZE, WIDTH = 48, 8, 6


def rollouts(seed: int = 1) -> dict[str, np.ndarray[Any, Any]]:
    """Scores and right-or-wrong rewards of 48 groups of 8; prompts differ, so Vp is well above
    zero.
    """
    rng = np.random.default_rng(seed)
    score, prompt = rng.normal(size=(GROUPS * SIZE, WIDTH)), np.repeat(np.arange(GROUPS), SIZE)
    pull = (score * rng.normal(0.2, 0.8, size=(GROUPS, WIDTH))[prompt]).sum(axis=1)
    reward = (rng.random(len(prompt)) < 1 / (1 + np.exp(-pull))).astype(float)
    return {"score_ND": score, "reward_N": reward, "prompt_N": prompt}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with `saved.json`, and a run `run.csv` of 40 steps without
    completions.
    """
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "saved.json")
    (tmp_path / "run.csv").write_text(
        "step,reward\n" + "".join(f"{step},{step / 40:.4f}\n" for step in range(1, 41))
    )
    return tmp_path


def save(place: Path, facts: Mapping[str, object] | None = None) -> Path:
    """Save components of made rollouts."""
    made = rollouts()
    estimate = components(made["reward_N"], made["prompt_N"], score_ND=made["score_ND"])
    return save_components(estimate, place, provenance=facts or {}, force=True)


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run a command and return what it printed for people."""
    assert cli.main(arguments) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "nan" not in out
    return out


def test_a_plan_from_data_says_what_it_is_from(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    answer = printed(capsys, "plan", "saved.json", "--budget", "512", "--group-size", "4")
    for name in ("vp", "t", "r"):
        assert {"value", "low", "high"} <= set(answer["components"][name])
        assert (
            answer["components"][name]["low"]
            < answer["components"][name]["value"]
            < answer["components"][name]["high"]
        )
    low, high = answer["safe_sizes"]
    assert low <= answer["group_size"] <= high
    assert answer["present"]["group_size"] == 4
    text = shown(capsys, "plan", "saved.json", "--budget", "512", "--group-size", "4")
    assert text.index("is safe for a whole run") < text.index("Extra error now")
    assert "in use" in text


def test_the_level_of_a_plan_is_that_of_its_components_or_another(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    narrow, wide = (
        printed(capsys, "plan", "saved.json", "--budget", "512", *more)["components"]["t"]
        for more in ((), ("--level", "0.99"))
    )
    assert (narrow["level"], wide["level"]) == (0.95, 0.99)
    assert wide["low"] < narrow["low"] < narrow["high"] < wide["high"]


def test_a_run_is_planned_from_what_lies_beside_it(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    save(path_beside(here / "run.csv"))
    answer = printed(
        capsys, "plan", "run.csv", "--set", "group_size=4", "--set", "prompts_per_step=64"
    )
    assert answer["budget"]["amount"] == 256
    assert answer["present"]["group_size"] == 4
    assert any("64 prompts x 4 rollouts = 256 completions" in note for note in answer["notes"])
    settings = ("--set", "group_size=4", "--set", "prompts_per_step=64")
    other = printed(capsys, "plan", "run.csv", *settings, "--group-size", "16")
    assert (other["budget"]["amount"], other["present"]["group_size"]) == (256, 16)
    small = printed(
        capsys,
        "plan",
        "run.csv",
        "--set",
        "group_size=16",
        "--set",
        "prompts_per_step=64",
        "--budget",
        "8",
    )
    assert "present" not in small
    assert any("exceeds this budget" in note for note in small["notes"])


def test_a_group_size_that_is_given_is_the_runs_own(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    given = printed(capsys, "plan", "run.csv", "--group-size", "4")
    assert given == printed(capsys, "plan", "run.csv", "--set", "group_size=4")
    assert given["batch"]["group_size"] == 4


def test_a_run_without_components_is_answered_from_its_rewards(
    capsys: pytest.CaptureFixture[str], here: Path, trl_run: Path
) -> None:
    text = shown(capsys, "plan", str(trl_run))
    budgeted = shown(capsys, "plan", str(trl_run), "--budget", "64")
    assert (
        budgeted.replace(
            " 64 rollouts buy 16 groups of 4, the size to take without components.", ""
        )
        == text
    )
    assert budgeted != text
    answer = printed(capsys, "plan", str(trl_run))
    outlook = zero_variance_outlook(run_record(trl_run))
    assert outlook is not None
    assert answer["zero_variance"] == outlook.as_dict()
    assert answer["batch"]["said"] in text
    assert text.startswith(answer["status"])
    assert text.endswith(
        f"For a safe group size: groupwise components {shlex.quote(str(trl_run))} --model CHECKPOINT\n"
    )
    headings = [line for line in text.splitlines() if not line.startswith(" ")]
    assert (
        sum(any(letter.isalpha() for letter in word) for line in headings for word in line.split())
        <= 60
    )


def test_components_that_leave_no_safe_size_are_said_and_rewards_are_shown(
    capsys: pytest.CaptureFixture[str], trl_run: Path
) -> None:
    rng = np.random.default_rng(1)
    score, reward = rng.normal(size=(24, 4)), np.arange(24) < 2  # one prompt of six teaches
    few = components(reward, np.repeat(np.arange(6), 4), score_ND=score)
    save_components(few, path_beside(trl_run), provenance={}, force=True)
    assert cli.main(["plan", str(trl_run)]) == 0
    out, err = capsys.readouterr()
    assert err.startswith("groupwise: expected T and R above zero, got a value that 6 prompts")
    assert "For a safe group size" in out


def test_a_run_that_collapsed_is_said_to_have_before_its_group_size_is_planned(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    rows = [f"{step},{0.8 + 0.01 * (-1) ** step if step < 40 else 0.0}\n" for step in range(60)]
    Path("fallen.csv").write_text("step,reward\n" + "".join(rows))
    text = shown(capsys, "plan", "fallen.csv", "--set", "group_size=8")
    assert text.splitlines()[:2] == [
        "✗ FAILED  fallen.csv  reward 0.80 → 0.00, collapsed at step 40",
        NOT_LOGGED,
    ]
    answer = printed(capsys, "plan", "fallen.csv")
    assert answer["state"] == "failed"
    says("cli/cli_gradient/2", answer["headline"])
    says("cli/cli_gradient/1", answer["failure"])


def test_a_run_that_stands_needs_attention_before_its_group_size_is_planned(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    rows = [f"{step},{0.4 + 0.01 * (-1) ** step}\n" for step in range(60)]
    Path("stands.csv").write_text("step,reward\n" + "".join(rows))
    first, second = shown(capsys, "plan", "stands.csv", "--set", "group_size=8").splitlines()[:2]
    assert first.startswith("Fix the run first. WARNING: Nothing learnt in 59 steps")
    assert second == NOT_LOGGED


def test_a_run_that_logged_no_groups_says_what_to_log(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    text = shown(capsys, "plan", "run.csv", "--set", "group_size=8")
    assert text.splitlines()[:2] == [
        NOT_LOGGED,
        ("One step is 8 rollouts a prompt; give --set prompts_per_step=B."),
    ]
    assert printed(capsys, "plan", "run.csv")["zero_variance"] is None


@each_case(
    ("arguments", "words"),
    [
        (["plan", "--budget", "64"], "Missing argument 'RUN|FILE'"),
        (["plan", "saved.json"], "--budget is missing"),
        (["plan", "saved.json", "--budget", "nan"], "--budget expects a whole number from 1"),
        (["plan", "saved.json", "--budget", "inf"], "to 1,000,000,000,000; got inf"),
        (
            ["plan", "run.csv", "--budget", "-3"],
            "--budget expects a whole number from 1 to 1,000,000,000,000; got -3",
        ),
        (["plan", "saved.json", "--budget", "1"], "raise it"),
        (["plan", "saved.json", "--budget", "1e300"], "to 1,000,000,000,000; got 1e+300"),
        (["plan", "saved.json", "--budget", "64", "--group-size", "1"], "between 2 and 64"),
        (["plan", "saved.json", "--budget", "64", "--level", "95"], "--level"),
        (["plan", "saved.json", "--budget", "64", "--set", "group_size=8"], "which is no run"),
        (["plan", "nowhere.csv", "--budget", "64"], "nowhere.csv"),
        (["components", "nowhere.csv"], "nowhere.csv"),
        (["components", "run.csv"], "expected --model CHECKPOINT"),
        (["components", "run.csv", "--groups", "8"], "--groups needs --model"),
        (["components", "run.csv", "-o", "x.json"], "expected --model CHECKPOINT"),
        (["components", "saved.json", "--model", "m"], "which holds components already"),
        (["components", "saved.json", "--steps", "1:2"], "which holds components already"),
        (["components", "saved.json", "--any-mean"], "--any-mean needs --model"),
        (["components", "saved.json", "--seed", "-1"], "--seed"),
        (["components", "run.csv", "--model", "m", "--aggregation", "max"], "sequence_mean"),
        (
            ["components", "run.csv", "--model", "m", "--groups", "1"],
            "--groups expects a whole number of at least 2; got 1",
        ),
        (["components", "run.csv", "--model", "m", "--sketch-width", "0"], "--sketch-width"),
        (["components", "run.csv", "--model", "m", "--steps", "9:1"], "100:200"),
        (["components", "run.csv", "--model", "m", "--steps", "x"], "100:200"),
        (["plan", "run.csv", "--set", "loss=ppo"], "got ppo, which has no groups (--set): plan a"),
        (["replay", "run.csv", "--set", "loss=ppo"], "got ppo, which has no groups (--set): plan"),
    ],
)
def test_every_mistake_is_one_line(
    capsys: pytest.CaptureFixture[str], here: Path, arguments: list[str], words: str
) -> None:
    before = sorted(here.iterdir())
    assert words in refused(capsys, *arguments)
    assert sorted(here.iterdir()) == before


def test_a_negative_component_is_handed_over_with_what_would_tell_it_from_zero(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    """Rewards that have nothing to do with the scores: Vp is zero, and seed 5 puts its estimate
    below.
    """
    rng = np.random.default_rng(5)
    reward, score = rng.normal(size=96), rng.normal(size=(96, 4))
    idle = components(reward, np.repeat(np.arange(12), 8), score_ND=score)
    save_components(idle, here / "idle.json", provenance={})
    answer = printed(capsys, "components", "idle.json")
    assert answer["vp"]["value"] < 0
    assert "not different from zero within its error" in answer["vp"]["status"]
    assert "prompts would show it" in answer["vp"]["status"]
    assert "does not differ from zero within its error" in shown(capsys, "components", "idle.json")
    planned = printed(capsys, "plan", "idle.json", "--budget", "64")
    assert planned["status"].startswith("No single group size is safe for a whole run")
    assert "The group size of the smallest error cannot be estimated" in planned["status"]
    assert any("prompts would show it" in note for note in planned["notes"])


def test_saved_components_are_shown_and_nothing_is_written(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    save(here / "saved.json", {"model": "checkpoint-300"})
    before = {path.name: path.read_bytes() for path in here.iterdir()}
    answer = printed(capsys, "components", "saved.json")
    assert {
        "vp",
        "t",
        "r",
        "gradient_norm2",
        "group_size",
        "prompts",
        "rollouts",
        "method",
        "status",
        "notes",
    } <= set(answer)
    assert answer["method"] == "jackknife"
    assert "These components were measured with model checkpoint-300." in shown(
        capsys, "components", "saved.json"
    )
    assert {path.name: path.read_bytes() for path in here.iterdir()} == before


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A stand-in for the measurement, which needs a model: it notes how it was called."""
    calls: list[dict[str, Any]] = []

    def measure_run(
        record: object, how: Measurement, progress: Callable[[int, int], None], spread: object
    ) -> SavedComponents:
        assert spread is None  # no engine was asked for
        calls.append(asdict(how))
        progress(1, 2)
        made = rollouts()
        return SavedComponents(
            components(made["reward_N"], made["prompt_N"], score_ND=made["score_ND"]),
            {"model": how.model.name},
        )

    monkeypatch.setattr("groupwise.analysis.components.measure_run", measure_run)
    return calls


def test_measured_components_are_written_beside_the_run_and_found_there(
    capsys: pytest.CaptureFixture[str], trl_run: Path, measured: list[dict[str, Any]]
) -> None:
    command = [
        "components",
        str(trl_run),
        "--model",
        "ckpt",
        "--adapter",
        "lora",
        "--groups",
        "9",
        "--steps",
        "1:2",
        "--seed",
        "4",
    ]
    command += [
        "--aggregation",
        "sequence_mean",
        "--layers",
        "q_proj",
        "--layers",
        "v_proj",
        "--sketch-width",
        "64",
    ]
    answer = printed(capsys, *command)
    assert answer["file"] == str(path_beside(trl_run))
    assert answer["provenance"] == {"model": "ckpt"}
    call = measured[0]
    assert (call["model"], call["adapter"], call["groups"], call["steps"], call["seed"]) == (
        Path("ckpt"),
        Path("lora"),
        9,
        (1, 2),
        4,
    )
    assert (call["aggregation"], call["sketch_width"]) == ("sequence_mean", 64)
    assert call["layers"] == ("q_proj", "v_proj")
    assert call["level"] == 0.95
    planned = printed(capsys, "plan", str(trl_run), "--budget", "64")
    assert planned["components"]["vp"]["value"] == answer["vp"]["value"]
    assert planned["present"]["group_size"] == 4


def test_any_mean_goes_with_a_model_too(
    capsys: pytest.CaptureFixture[str], trl_run: Path, measured: list[dict[str, Any]]
) -> None:
    command = ["components", str(trl_run), "--model", "ckpt", "--force"]
    for option, expected in (([], None), (["--any-mean"], False), (["--zero-mean"], True)):
        printed(capsys, *command, *option)
        assert measured[-1]["zero_mean"] is expected
    assert "--any-mean" in refused(capsys, "components", str(trl_run), "--any-mean")


def test_what_no_estimate_can_be_is_a_damaged_file(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    plain = json.loads(save(here / "saved.json").read_text())
    for change in (
        {"estimate": [0.0] * 3 + [1e308] + [0.0] * (len(plain["estimate"]) - 4)},
        {"pseudo_values": [[1e308] * len(plain["estimate"])] * GROUPS},
    ):
        (here / "bad.json").write_text(json.dumps({**plain, **change}))
        for command in (["components", "bad.json"], ["plan", "bad.json", "--budget", "64"]):
            assert "damaged file" in refused(capsys, *command)


def test_nothing_is_measured_where_the_result_could_not_be_written(
    capsys: pytest.CaptureFixture[str], trl_run: Path, measured: list[dict[str, Any]]
) -> None:
    place = path_beside(trl_run)
    place.write_text("mine")
    command = ["components", str(trl_run), "--model", "ckpt"]
    assert "--force" in refused(capsys, *command)
    assert "not replaced even with --force" in refused(capsys, *command, "--force")
    assert place.read_text() == "mine"
    assert "does not exist" in refused(capsys, *command, "-o", str(trl_run / "no" / "x.json"))
    assert "--force" in refused(capsys, *command, "-o", str(trl_run / "README.md"), "--force")
    assert measured == []
    place.unlink()
    save(place)
    assert cli.main([*command, "--force"]) == 0
    assert len(measured) == 1


def test_a_damaged_file_of_components_is_a_sentence(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    plain = json.loads(save(here / "saved.json").read_text())
    for change in (
        {"covariance": [[None] * len(row) for row in plain["covariance"]]},
        {"pseudo_values": [[None] * len(row) for row in plain["pseudo_values"]]},
        {"estimate": [1, 2]},
        {"version": 99},
        {"prompts": 1},
    ):
        (here / "bad.json").write_text(json.dumps({**plain, **change}))
        assert "bad.json" in refused(capsys, "plan", "bad.json", "--budget", "64")


def test_a_file_of_components_cannot_style_the_terminal(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    save(
        here / "saved.json",
        {"model": "[bold red]x[/] \x1b[2J", "\x1b]8;;evil": "y", "nested": {"a": [1]}},
    )
    text = shown(capsys, "components", "saved.json")
    assert "[bold red]x[/]" in text
    assert "\x1b" not in text
    assert "nested" not in text
