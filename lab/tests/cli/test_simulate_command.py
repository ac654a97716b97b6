"""`groupwise-lab simulate`: what it writes can be read, fitted and reported on; what cannot be
done is a sentence.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from lab.tests import commands as cli
from tests.cases import each_case

from groupwise.record.run import RunRecord
from groupwise_lab.simulate.bandit_runs import Records, simulate_bandit
from groupwise_lab.simulate.softmax_bandit import Training, bandit

OPTIONS = [
    "--reference",
    ".7,.3",
    "--kl-weight",
    ".5",
    "--momentum",
    ".9",
    "--learning-rate",
    ".05",
    "--refresh-interval",
    "8",
]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main(["simulate", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


@pytest.mark.usefixtures("home")
def test_the_record_holds_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        cli.main(
            [
                "simulate",
                "bandit",
                "-o",
                "run",
                *OPTIONS,
                "--steps",
                "60",
                "--rollouts",
                "5",
                "--seed",
                "3",
                "--json",
            ]
        )
        == 0
    )
    said = json.loads(capsys.readouterr().out)
    record = RunRecord.load("run")
    training = Training(0.05, prompts=16, momentum=0.9, lag="refresh", interval=8)
    runs = simulate_bandit(
        bandit([0, 1], reference_A=[0.7, 0.3], kl_weight=0.5),
        training,
        steps=60,
        replicates=1,
        seed=3,
        records=Records(("reward", "value", "kl")),
    )
    assert np.array_equal(record.steps["reward"].to_numpy(), runs.series["reward"][:, 0])
    assert np.array_equal(record.steps["value"].to_numpy(), runs.value[:-1, 0])
    assert record.steps["step"].to_list() == list(range(1, 61))
    assert record.rollouts is not None
    mean = (
        record.rollouts.group_by("step", maintain_order=True)
        .agg(pl.col("reward").mean())["reward"]
        .to_numpy()
    )
    np.testing.assert_allclose(mean, runs.series["reward"][:5, 0], atol=1e-12)
    assert record.rollouts.group_by("step", "prompt_id").len()["len"].unique().to_list() == [8]
    assert record.column("reward_std_within_group") == "reward_std"
    assert record.column("dead_group_share") == "dead_share"
    settings = {
        name: record.config.value(name)
        for name in (
            "group_size",
            "prompts_per_step",
            "momentum",
            "refresh_interval",
            "kl_weight",
            "seed",
        )
    }
    assert settings == {
        "group_size": 8,
        "prompts_per_step": 16,
        "momentum": 0.9,
        "refresh_interval": 8,
        "kl_weight": 0.5,
        "seed": 3,
    }
    assert said["fixed_point"]["stiffness"] == pytest.approx(0.182398, abs=1e-6)
    assert said["settings"]["lag"] == "refresh"
    assert record.config.value("lag_kind") == "refresh"


@pytest.mark.slow
@pytest.mark.usefixtures("home")
def test_fit_and_report_run_on_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["simulate", "bandit", "-o", "run", *OPTIONS, "--steps", "120"]) == 0
    assert "Next: groupwise report run" in capsys.readouterr().out
    assert cli.main(["fit", "run", "--json"]) == 0
    fit = json.loads(capsys.readouterr().out)
    assert fit["n"] == 120
    assert cli.main(["report", "run"]) == 0
    page = Path("groupwise-report.html").read_text(encoding="utf-8")
    assert "A simulated softmax bandit; gradient: sampled" in page


@pytest.mark.usefixtures("home")
def test_expected_adam_many_arms(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "--arms",
        "5",
        "--expected",
        "--optimizer",
        "adam",
        "--momentum",
        ".9",
        "--learning-rate",
        ".02",
        "--steps",
        "300",
        "--json",
    ]
    assert cli.main(["simulate", "bandit", "-o", "run", *arguments]) == 0
    said = json.loads(capsys.readouterr().out)
    record = RunRecord.load("run")
    assert record.steps["reward"].to_list() == record.steps["value"].to_list()
    assert said["fixed_point"] is None
    assert "no fixed point without a KL term" in said["status"]
    assert record.config.value("beta1") == 0.9
    assert record.config.value("momentum") is None
    assert said["last_value"] > 0.9


@pytest.mark.usefixtures("home")
def test_nothing_is_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["simulate", "bandit", "-o", "run", "--steps", "20"]) == 0
    capsys.readouterr()
    assert "--force" in refused(capsys, "bandit", "-o", "run", "--steps", "20")
    assert cli.main(["simulate", "bandit", "-o", "run", "--steps", "30", "--force"]) == 0
    assert len(RunRecord.load("run").steps) == 30
    capsys.readouterr()
    Path("other").mkdir()
    Path("other/file").write_text("mine")
    assert "not a record" in refused(capsys, "bandit", "-o", "other", "--steps", "20", "--force")
    assert Path("other/file").read_text() == "mine"


@pytest.mark.usefixtures("home")
@each_case(
    ("arguments", "words"),
    [
        (["casino"], "bandit"),
        (["bandit", "--rewards", "1,1"], "rewards that differ"),
        (["bandit", "--rewards", "1,x"], "numbers separated by commas"),
        (["bandit", "--arms", "3", "--rewards", "1,0"], "3 numbers"),
        (["bandit", "--arms", "1"], "from 2 to 1000"),
        (["bandit", "--momentum", "1"], "momentum to be a number of at least 0 and below 1"),
        (["bandit", "--refresh-interval", "0"], "interval to be a whole number of at least 1"),
        (["bandit", "--lag-kind", "sometimes"], "none, fixed, refresh, async"),
        (
            ["bandit", "--lag-kind", "none", "--refresh-interval", "4"],
            "--lag-kind fixed, refresh or async",
        ),
        (["bandit", "--steps", "0"], "--steps"),
        (["bandit", "--seed", "-1"], "--seed"),
        (["bandit", "--rollouts", "600"], "--rollouts"),
        (["bandit", "--rollouts", "5", "--expected"], "no rollouts"),
        (["bandit", "--kl-weight", "-1"], "KL weight"),
        (["bandit", "--reference", ".5,.6"], "sum to 1"),
        (["bandit", "--advantage", "best"], "leave_one_out"),
        (["bandit", "--rewards", "nan,1"], "finite numbers"),
        (["bandit", "--rewards", "1e308,-1e308", "--steps", "20"], "at most 1e+100"),
        (
            ["bandit", "--rewards", "1e99,-1e99", "--learning-rate", "1e300", "--steps", "20"],
            "take a smaller --learning-rate",
        ),
        (
            [
                "bandit",
                "--expected",
                "--rewards",
                "1e99,-1e99",
                "--learning-rate",
                "1e300",
                "--steps",
                "20",
            ],
            "take a smaller --learning-rate",
        ),
        (["bandit", "--steps", "2000000"], "from 1 to 1,000,000"),
        (["bandit", "--rollouts", "50000", "--steps", "50000"], "at most 5000000 rollouts"),
        (["bandit", "--learning-rate", "0"], "learning_rate to be a number above 0"),
        (["bandit", "--group-size", "1"], "group_size to be a whole number of at least 2"),
        (["bandit", "--prompts-per-step", "0"], "prompts to be a whole number of at least 1"),
        (["bandit", "--optimizer", "lion"], "sgd, adam"),
        (["bandit", "--importance-ratio", "some"], "none, exact, clipped"),
        (["bandit", "--kl-in", "prompt"], "loss, reward"),
        (["bandit", "--clip", "0"], "clip to be a number above 0"),
        (["bandit", "--kl-weight", "nan"], "KL weight"),
        (
            [
                "bandit",
                "--arms",
                "1000",
                "--lag-kind",
                "fixed",
                "--refresh-interval",
                "9000",
                "--steps",
                "9000",
            ],
            "fit into memory",
        ),
        (["bandit", "--steps", "many"], "--steps"),
    ],
)
def test_what_cannot_be_simulated_is_a_sentence(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert words in refused(capsys, *arguments, "-o", "run")
    assert not Path("run").exists()


@pytest.mark.usefixtures("home")
def test_the_record_says_what_the_loss_does_about_the_lag() -> None:
    for place, ratio in (("loss", "exact"), ("reward", "none")):
        options = ["--kl-in", place, "--importance-ratio", ratio, "--steps", "5", "--force"]
        assert cli.main(["simulate", "bandit", "-o", "run", *OPTIONS, *options]) == 0
        config = RunRecord.load("run").config
        assert (config.value("kl_in"), config.value("importance_ratio")) == (place, ratio)
    assert (
        cli.main(["simulate", "bandit", "-o", "free", "--learning-rate", ".05", "--steps", "5"])
        == 0
    )
    assert RunRecord.load("free").config.value("kl_in") == "none"


@pytest.mark.usefixtures("home")
def test_adams_force_is_not_learning_rate_times_stiffness(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert (
        cli.main(
            ["simulate", "bandit", "-o", "run", *OPTIONS, "--optimizer", "adam", "--steps", "5"]
        )
        == 0
    )
    assert (
        "which is not Adam's force: that is 0.1 times as much over the root of its second moment"
        in capsys.readouterr().out
    )


@pytest.mark.usefixtures("home")
def test_an_interval_of_no_update_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "expected interval to be a whole number of at least 1; got 0" in refused(
        capsys, "bandit", "-o", "run", "--lag-kind", "refresh", "--refresh-interval", "0"
    )
