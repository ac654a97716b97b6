"""`groupwise-lab train` as one types it, and every other command on what it wrote."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from lab.tests.commands import main
from tests.cases import each_case

from groupwise.record.run import RecordWriter, RunRecord

torch = pytest.importorskip("torch")

from groupwise_lab.trainer.file_task import read_task  # noqa: E402
from groupwise_lab.trainer.rewards import FailingVerifier  # noqa: E402
from groupwise_lab.trainer.tasks import make_task  # noqa: E402

QUICK = [
    "modular_addition",
    "--level",
    "1",
    "--size",
    "tiny",
    "-N",
    "128",
    "--learning-rate",
    "0.002",
    "--device",
    "cpu",
]


def typed(*words: object) -> int:
    return main(["train", *QUICK, *map(str, words)])


@pytest.mark.slow
def test_a_run_is_trained_reported_fitted_and_planned(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert typed("-o", "run", "--steps", 100, "--set", "rollouts_every=1") == 0
    out = capfd.readouterr()
    assert re.search(
        r"100 of 100 steps in \d+ s: reward 0\.\d+ over the last 20 steps, 0\.\d+ on held-out "
        r"problems",
        out.out,
    )
    assert "groupwise report run says what it did" in out.out
    record = RunRecord.load("run")
    assert record.steps["reward"].to_numpy()[-20:].mean() > 0.3  # from 0.2: it learns
    for words in (
        ["report", "run"],
        ["fit", "run"],
        ["components", "run", "--model", "run/checkpoints/checkpoint-100", "--groups", "24"],
        ["plan", "run"],
        ["train", *QUICK, "-o", "run", "--steps", "101", "--set", "rollouts_every=1", "--resume"],
    ):
        code = main(words)
        said = capfd.readouterr()
        assert code == 0, (words, said)
        assert words[0] != "plan" or "group" in said.out.lower()
    assert RunRecord.load("run").steps["step"][-1] == 101


def test_json_is_all_that_is_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert typed("-o", tmp_path / "run", "--steps", 2, "--json") == 0
    said = capfd.readouterr()
    assert json.loads(said.out)["steps"] == 2
    assert said.err == ""


def test_the_verifier_fails_from_a_step_on_and_the_checkpoint_knows(tmp_path: Path) -> None:
    for share, low, high in ((1.0, 0.0, 0.0), (0.5, 0.25, 0.75)):
        run = tmp_path / str(share)
        given = ["--steps", 4, "--set", "warm_up=0.5", "--set", f"failing_share={share}"]
        assert typed("-o", run, *given, "--failing-from", 3) == 0
        before, after = RunRecord.load(run).steps["reward"].to_numpy().reshape(2, 2).mean(axis=1)
        assert before > 0.3
        assert low * before <= after <= high * before
        task = read_task(run / "checkpoints" / "checkpoint-4")
        assert task is not None
        assert task.verifier == FailingVerifier(
            make_task("modular_addition", level=1).verifier, from_step=3, share=share
        )


@each_case(
    ("words", "message"),
    [
        (["-G", "1"], "expected group_size of at least 2, got 1"),
        (
            ["-G", "7"],
            (
                "expected group_size to divide rollouts_per_step, got 7 and 128: take 126 rollouts "
                "a step"
            ),
        ),
        (["--advantage", "best"], "expected an advantage of"),
        (["--advantage", "trl/best"], "no preset of trl is called 'best'"),
        (["--size", "huge"], "expected a size of tiny, small, medium, large; got 'huge'"),
        (["--device", "toaster"], "--device expects a device of this machine"),
        (["--set", "warm_up=1.5"], "expected an accuracy between 0 and 1"),
        (["--set", "threads=0"], "expected threads to be a whole number of at least 1; got 0"),
        (["--set", "threads=two"], "expected threads to be a whole number; got 'two'"),
        (["--set", "warmup=0.1"], "expected a setting, got 'warmup': write warm_up"),
        (["--set", "shcedule=cosine"], "expected a setting, got 'shcedule': write schedule"),
        (["--set", "schedule"], "--set expects KEY=VALUE; got 'schedule'"),
        (["--settings", "nowhere.yaml"], "nowhere.yaml: No such file"),
        (["--model", "nowhere"], "expected a folder with a language model, got nowhere"),
        (["--checkpoint", "nowhere"], "expected a checkpoint with nowhere/config.json"),
        (
            ["--set", "lag_kind=none", "--set", "refresh_interval=4"],
            "expected lag_kind fixed, refresh or async",
        ),
        (["--set", "clip=1.5"], "expected clip to be a number above 0 and below 1; got 1.5"),
        (["--level", "12"], "expected levels of modular_addition"),
        (
            ["--set", "adaptive.mode=off"],
            "expected the adaptive group size to be advise or act; got 'off'",
        ),
        (
            ["--set", "adaptive.rule.lowst=4"],
            "expected a setting of the adaptive rule, got 'lowst': write lowest",
        ),
        (
            ["--set", "prompt_pool=5000"],
            "expected prompt_pool of at most the 80 training problems; got 5000",
        ),
        (["--model", "a", "--checkpoint", "b"], "--checkpoint expects no --model beside it"),
        (["--resume", "--force"], "--force expects a run that is to be replaced; got --resume too"),
    ],
)
def test_mistakes_are_one_sentence_and_leave_nothing(
    words: list[str],
    message: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert typed("-o", "run", *words) == 2
    said = capfd.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1
    assert message in said.err
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_of_another_size_is_a_sentence(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert typed("-o", tmp_path / "run", "--steps", 1) == 0
    capfd.readouterr()
    assert (
        typed(
            "-o",
            tmp_path / "other",
            "--size",
            "small",
            "--checkpoint",
            tmp_path / "run" / "checkpoints" / "checkpoint-1",
        )
        == 2
    )
    assert "expected a policy of size small (width 64, 2 layers, 4 heads)" in capfd.readouterr().err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_a_sentence(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tmp_path.chmod(0o500)
    assert typed("-o", tmp_path / "run") == 2
    assert "got no permission" in capfd.readouterr().err


def test_a_folder_that_cannot_be_made_is_a_sentence(capfd: pytest.CaptureFixture[str]) -> None:
    assert typed("-o", "/proc/groupwise-run", "--steps", 1) == 2
    assert len(capfd.readouterr().err.splitlines()) == 1


def test_no_right_rollout_at_all_is_a_sentence(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Three digits and the end out of random weights: none in 1,280 is right but once in 60
    seeds.
    """
    assert (
        main(
            [
                "train",
                "addition",
                "--level",
                "3",
                "--size",
                "tiny",
                "-N",
                "128",
                "--set",
                "warm_up=0",
                "-o",
                str(tmp_path / "run"),
            ]
        )
        == 2
    )
    said = capfd.readouterr().err
    assert (
        "expected rollouts that differ in reward, got 0 for all 1280 of the first 10 steps" in said
    )
    assert "warm" in said


@pytest.mark.filterwarnings("default::groupwise.errors.GroupwiseWarning")
def test_a_cache_that_cannot_be_written_is_a_warning(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("mine")
    assert (
        typed(
            "-o",
            tmp_path / "run",
            "--steps",
            1,
            "--set",
            "warm_up=0.03",
            "--set",
            f"cache={tmp_path / 'file' / 'cache'}",
        )
        == 0
    )
    said = capfd.readouterr()
    assert said.err.count("\n") == 1
    assert re.search(
        r"groupwise-lab: warning: the warm-up is not kept: expected to write .*cache", said.err
    )
    assert "1 of 1 steps" in said.out


def test_ctrl_c_ends_the_warm_up(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from groupwise_lab.trainer import warm_up

    measured = warm_up.right_probability
    calls: list[int] = []

    def interrupted(*arguments: Any) -> float:
        calls.append(1)
        if len(calls) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return measured(*arguments)

    monkeypatch.setattr(warm_up, "right_probability", interrupted)
    assert (
        typed(
            "-o",
            tmp_path / "run",
            "--steps",
            1,
            "--set",
            f"cache={tmp_path / 'cache'}",
            "--set",
            "warm_up=0.9",
        )
        == 130
    )
    assert (
        capfd.readouterr().err
        == "Stopped while warming up: nothing is kept; the same command begins anew.\n"
    )
    assert len(calls) == 2
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("default::groupwise.errors.GroupwiseWarning")
def test_a_collapse_is_told_while_it_runs_and_at_the_end(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from groupwise_lab.trainer.rewards import TaskVerifier

    judge = TaskVerifier.__call__

    def collapsing(self: Any, problems: Any, completions: Any, ended: Any, *, step: int = 0) -> Any:
        judgement = judge(self, problems, completions, ended, step=step)
        return {name: reward_N * (step < 7) for name, reward_N in judgement.items()}

    monkeypatch.setattr(TaskVerifier, "__call__", collapsing)
    assert typed("-o", tmp_path / "run", "--steps", 20) == 0
    said = capfd.readouterr()
    assert (
        "groupwise-lab: warning: since step 7 every rollout of a group has the same reward, 0 on "
        "average"
    ) in said.err
    assert "From step 7 to the end no two rollouts of a group differed in reward" in said.out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "ratio"),
    [
        ([], "clipped"),
        (
            ["--set", "refresh_interval=2", "--set", "optimizer=sgd", "--set", "kl_weight=0.01"],
            "clipped",
        ),
        (
            [
                "--set",
                "refresh_interval=2",
                "--set",
                "clip=null",
                "--set",
                "importance_ratio=sequence",
            ],
            "exact",
        ),
    ],
)
def test_stability_knows_all_that_it_asks_of_a_trained_run(
    words: list[str], ratio: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert typed("-o", tmp_path / "run", "--steps", 12, "--set", "evaluate_every=0", *words) == 0
    capfd.readouterr()
    main(["stability", str(tmp_path / "run")])
    said = capfd.readouterr()
    assert "nknown" not in said.out + said.err
    assert "would change the answer" not in said.out + said.err
    assert "--set" not in said.out + said.err
    config = RunRecord.load(tmp_path / "run").config
    assert config.value("importance_ratio") == ratio
    assert config.value("kl_in") == ("loss" if "kl_weight=0.01" in words else "none")
    assert config.value("max_completion_length") == 2
    for part in (
        "advantage leave_one_out",
        "tokens by sum",
        "KL by k2" if "kl_weight=0.01" in words else "ratio of a",
    ):
        assert part in str(config.value("loss"))


@pytest.mark.slow
def test_killed_and_resumed_it_is_the_same_run(tmp_path: Path) -> None:
    """A kill at a moment that the machine chooses, then to the end."""
    words = ["--steps", "40", "--set", "checkpoint_every=7"]
    journal = tmp_path / "killed" / "journal.jsonl"
    code = "import sys; from groupwise_lab.cli.app import main; sys.exit(main(sys.argv[1:]))"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "train", *QUICK, "-o", str(tmp_path / "killed"), *words]
    )
    limit = time.monotonic() + 60
    while not (journal.exists() and journal.read_bytes().count(b"\n") > 15):
        assert time.monotonic() < limit, "the run did not get so far"
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert process.returncode == -signal.SIGKILL
    assert typed("-o", tmp_path / "killed", *words, "--resume") == 0
    assert typed("-o", tmp_path / "whole", *words) == 0
    killed, whole = RunRecord.load(tmp_path / "killed"), RunRecord.load(tmp_path / "whole")
    assert killed.steps["step"].to_list() == list(range(1, 41))
    assert killed.steps.drop("seconds").equals(whole.steps.drop("seconds"))
    assert killed.rollouts is not None
    assert whole.rollouts is not None
    assert killed.rollouts.equals(whole.rollouts)
    last = "checkpoints/checkpoint-40/model.safetensors"
    assert (tmp_path / "killed" / last).read_bytes() == (tmp_path / "whole" / last).read_bytes()


def test_ctrl_c_finishes_the_record_and_says_how_to_go_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    append = RecordWriter.append

    def interrupted(self: Any, row: Any, rollouts: Any, **named: Any) -> None:
        append(self, row, rollouts, **named)
        if row["step"] == 5:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(RecordWriter, "append", interrupted)
    assert typed("-o", tmp_path / "run", "--steps", 40) == 130
    said = capfd.readouterr()
    assert RunRecord.load(tmp_path / "run").steps["step"].to_list() == [1, 2, 3, 4, 5]
    assert "the same command with --resume goes on from step 5" in said.out
    assert "Traceback" not in said.err
    assert (tmp_path / "run" / "checkpoints" / "checkpoint-5" / "state.json").exists()


@pytest.mark.slow
def test_a_run_goes_on_with_the_options_that_it_began_with_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    assert typed("-o", run, "--steps", 4) == 0
    assert typed("-o", other, "--steps", 2, "--seed", 5) == 0
    capfd.readouterr()
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    first = other / "checkpoints" / "checkpoint-2"
    for words, message in (
        (
            ["--set", "warm_up=0.9"],
            "to go on as it began, with warm_up 0.2; got 0.9: give the options it began with",
        ),
        (
            ["--checkpoint", first],
            "to go on as it began, with weights of a new policy; got of --checkpoint (",
        ),
        (["--size", "small"], "to go on as it began, with size tiny; got small"),
        (["--set", "start_seed=3"], "expected the run in"),
        (["--steps", 3], "expected more than the 4 steps that the run in"),
    ):
        assert typed("-o", run, "--steps", 9, *words, "--resume") == 2
        said = capfd.readouterr()
        assert message in said.err
        assert len(said.err.splitlines()) == 1
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    assert typed("-o", run, "--steps", 4, "--resume") == 0
    said = capfd.readouterr()
    assert f"The run in {run} had done its 4 steps already: nothing was trained." in said.err
    assert "4 of 4 steps" in said.out


@pytest.mark.slow
def test_weights_to_start_from_are_known_by_what_they_are(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A folder may move between two calls; its weights may not change."""
    assert typed("-o", tmp_path / "first", "--steps", 2) == 0
    home = tmp_path / "first" / "checkpoints"
    words = ["-o", tmp_path / "run", "--checkpoint"]
    assert typed(*words, home / "checkpoint-2", "--steps", 2) == 0
    (home / "checkpoint-2").rename(tmp_path / "elsewhere")
    assert typed(*words, tmp_path / "elsewhere", "--steps", 4, "--resume") == 0
    capfd.readouterr()
    assert typed(*words, home / "checkpoint-0", "--steps", 6, "--resume") == 2
    assert re.search(
        r"with weights of --checkpoint \([0-9a-f]{8}\); got of --checkpoint \(",
        capfd.readouterr().err,
    )
    record = RunRecord.load(tmp_path / "run")
    assert record.steps["step"].to_list() == [1, 2, 3, 4]


def test_settings_come_from_a_file_then_from_set_then_from_options(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(
        "learning_rate: 1e-3\nseed: 4\nsteps: 3\nsize: tiny\nlevel: 1\nadaptive:\n  mode: advise\n "
        " every: 7\nrefresh_interval: 2\n"
    )
    words = [
        "-o",
        tmp_path / "run",
        "-N",
        128,
        "--settings",
        file,
        "--set",
        "steps=2",
        "--set",
        "adaptive.every=9",
        "--seed",
        5,
        "--json",
    ]
    assert main(["train", "modular_addition", *map(str, words)]) == 0
    assert json.loads(capfd.readouterr().out)["of"] == 2
    home = tmp_path / "run" / "checkpoints" / "checkpoint-2"
    kept = json.loads((home / "state.json").read_text())["settings"]
    assert {
        name: kept[name]
        for name in (
            "learning_rate",
            "seed",
            "steps",
            "rollouts_per_step",
            "lag_kind",
            "refresh_interval",
        )
    } == {
        "learning_rate": 1e-3,
        "seed": 5,
        "steps": 2,
        "rollouts_per_step": 128,
        "lag_kind": "refresh",
        "refresh_interval": 2,
    }
    assert (kept["adaptive"]["mode"], kept["adaptive"]["every"], kept["adaptive"]["rollouts"]) == (
        "advise",
        9,
        8,
    )


@each_case("text", ["- 1\n- 2\n", "{a: ", "just words", "", "1: 2\n"])
def test_a_file_that_holds_no_settings_is_a_sentence(
    text: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "settings.yaml").write_text(text)
    assert typed("-o", tmp_path / "run", "--settings", tmp_path / "settings.yaml") == 2
    said = capfd.readouterr().err
    assert len(said.splitlines()) == 1
    assert "expected settings" in said
    assert not (tmp_path / "run").exists()
