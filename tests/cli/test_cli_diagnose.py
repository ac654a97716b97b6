"""`groupwise diagnose`: exit codes, JSON and text.

The judgements are made by hand: what is judged how is tested with the judge.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cases import each_case
from tests.cli.asked import refused
from tests.golden.sentences import says

import groupwise as gw
from groupwise import examples
from groupwise.cli.app import exit_code, main
from groupwise.diagnostics.judgement import Finding, Judgement, State, Status
from groupwise.record.run import RecordWriter, RunRecord, has_ended

BY_HAND = Judgement(
    "demo", State.OK, "reward 0.2 → 0.8", checks=(Finding(Status.NONE, "holds", check="collapse"),)
)
CODES = {
    State.OK: (0, 0),
    State.WARNING: (1, 0),
    State.FAILING: (1, 1),
    State.FAILED: (1, 1),
    State.CANNOT_TELL: (3, 3),
}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.csv"
    path.write_text(
        "step,reward\n" + "".join(f"{step},{0.5 + 0.001 * step}\n" for step in range(1, 41))
    )
    return path


def judged_as(monkeypatch: pytest.MonkeyPatch, judgement: Judgement) -> list[bool]:
    """Let the judge say this; return the list of what it is told about the end of the run."""
    ends: list[bool] = []

    def judge(record: RunRecord, *, ended: bool | None = None) -> Judgement:
        ends.append(has_ended(record) if ended is None else ended)
        return judgement

    monkeypatch.setattr("groupwise.diagnostics.judge.judge", judge)
    return ends


@each_case("as_json", [False, True])
@each_case("state", State)
def test_exit_codes_follow_the_state(
    log: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    state: State,
    as_json: bool,
) -> None:
    judged_as(monkeypatch, replace(BY_HAND, state=state))
    shown = ["--json"] if as_json else []
    assert main(["diagnose", str(log), *shown]) == CODES[state][0]
    assert main(["diagnose", str(log), "--fail-on", "warning", *shown]) == CODES[state][0]
    assert main(["diagnose", str(log), "--fail-on", "watch", *shown]) == CODES[state][0]
    assert main(["diagnose", str(log), "--fail-on", "failing", *shown]) == CODES[state][1]
    assert capsys.readouterr().err == ""


def test_of_several_runs_the_worst_counts_and_cannot_tell_only_where_no_other_does() -> None:
    def code(*states: State, fail_on: str = "warning") -> int:
        return exit_code(states, fail_on=fail_on)

    assert code(State.OK, State.CANNOT_TELL) == 3
    assert code(State.CANNOT_TELL, State.WARNING, State.OK) == 1
    assert code(State.CANNOT_TELL, State.WARNING, State.OK, fail_on="failing") == 3
    assert code(State.OK, State.FAILED, State.CANNOT_TELL, fail_on="failing") == 1
    assert code(State.OK, State.OK) == 0


def test_a_log_that_is_none_or_a_wrong_argument_exits_2(
    tmp_path: Path, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "none.csv").write_text("\x00\x01")
    refused(capsys, "diagnose", str(tmp_path / "none.csv"))
    assert "--fail-on expects warning or failing; got 'ok'" in refused(
        capsys, "diagnose", str(log), "--fail-on", "ok"
    )
    assert "expected a step of the log" in refused(capsys, "diagnose", str(log), "--until", "0")


def test_a_dash_is_what_is_piped_in(
    log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with log.open() as piped:
        monkeypatch.setattr(sys, "stdin", piped)
        assert main(["diagnose", "-", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert main(["diagnose", str(log), "--json"]) == 0
    assert answer == json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("error", "code"), [(RuntimeError("x"), 70), (KeyboardInterrupt(), 130), (MemoryError(), 2)]
)
def test_what_ends_the_judge_ends_the_command(
    log: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("groupwise.diagnostics.judge.judge", broken)
    assert main(["diagnose", str(log), "--fail-on", "failing"]) == code
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 0 if code == 130 else 1)


def test_json_is_the_judgement_and_the_measures_where_asked(
    log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    judged_as(monkeypatch, BY_HAND)
    assert main(["diagnose", str(log), "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain == BY_HAND.as_dict()
    assert main(["diagnose", str(log), "--json", "-v"]) == 0
    more = json.loads(capsys.readouterr().out)
    remarks = more.pop("remarks")
    said = "settings; the judgement could use group_size, max_completion_length, "
    assert said in remarks[-1]
    assert remarks[-1].count(",") == 2
    assert more == BY_HAND.as_dict()


def test_json_has_the_exception_behind_the_last_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.log"
    path.write_text(
        "".join(f"step:{t} - critic/score/mean:0.{t} - actor/kl:0.01\n" for t in range(10, 40))
        + 'Traceback (most recent call last):\n  File "/home/zoe/train.py", line 88, in <module>\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    )
    main(["diagnose", str(path), "--json"])
    says("cli/cli_diagnose/1", json.loads(capsys.readouterr().out)["notes"][-1])
    main(["diagnose", str(path)])
    lines = capsys.readouterr().out.splitlines()
    assert "the log ends with an error at step 39: OutOfMemoryError" in " ".join(
        line.strip() for line in lines[:2]
    )
    assert "  likely      an error ended the run" in lines
    main(["diagnose", str(path), "--until", "30"])
    assert "error" not in capsys.readouterr().out


def test_a_run_is_judged_as_going_on_where_that_is_said_or_more_rows_follow(
    log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = judged_as(monkeypatch, BY_HAND)
    last = gw.open_run(log).steps["step"][-1]
    for words in ([], ["--running"], ["--until", f"{last - 1}"], ["--until", f"{last}"]):
        main(["diagnose", str(log), *words])
    assert asked == [True, False, False, True]
    assert capsys.readouterr().err == ""


def test_the_screen_has_the_reward_and_what_was_asked_for(
    log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    judged_as(monkeypatch, replace(BY_HAND, heights=(1.0,) * 40))
    main(["diagnose", str(log)])
    assert capsys.readouterr().out.splitlines() == [
        "✓ OK  demo  reward 0.2 → 0.8",
        f"  reward {40 * '█'}",
    ]
    monkeypatch.undo()
    main(["diagnose", str(log), "--why"])
    said = capsys.readouterr().out.splitlines()
    clear = next(line for line in said if line.startswith("  No sign of a problem in "))
    assert "; Reward collapse; " in clear
    assert said[-1].startswith("  The log lacks 31 settings; the judgement could use group_size, ")


def test_asked_why_it_says_how_the_log_was_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.csv").write_text(
        "step,reward\n"
        + "".join(f"{step},{'lost' if step == 3 else step / 20}\n" for step in range(1, 20))
    )
    main(["diagnose", str(tmp_path / "run.csv"), "--set", "group_size=8"])
    assert "lost" not in capsys.readouterr().out
    main(["diagnose", str(tmp_path / "run.csv"), "--set", "group_size=8", "--why"])
    *_, note, missing = capsys.readouterr().out.splitlines()
    assert note == "  1 cell with text counts as missing: reward (1)."
    assert missing.startswith(
        "  The log lacks 30 settings; the judgement could use max_completion_length, "
    )


def test_a_record_that_is_being_written_is_judged_as_one_that_goes_on(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    states = judged_as(monkeypatch, BY_HAND)
    with RecordWriter(tmp_path / "run") as writer:
        writer.append({"step": 1, "reward": 0.5})
        main(["diagnose", str(tmp_path / "run")])
    main(["diagnose", str(tmp_path / "run")])
    main(["diagnose", str(log)])
    assert states == [False, True, True]
    capsys.readouterr()


def test_the_recorded_run_is_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(examples.trl_run()), "--fail-on", "failing"]) == 0
    assert len(capsys.readouterr().out.splitlines()) <= 8


def test_a_reward_that_died_is_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "".join(
        f"{step},{0.8 + 0.01 * (-1) ** step if step < 60 else 0.0}\n" for step in range(1, 101)
    )
    (tmp_path / "dead.csv").write_text("step,reward\n" + rows)
    assert main(["diagnose", str(tmp_path / "dead.csv"), "--fail-on", "failing"]) == 1
    assert capsys.readouterr().out.startswith("✗ FAILED  dead.csv  ")


def test_three_rows_cannot_be_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log.csv").write_text("step,reward\n1,0.1\n2,0.2\n3,0.3\n")
    assert main(["diagnose", str(tmp_path / "log.csv")]) == 3
    assert capsys.readouterr().out.startswith("? CANNOT TELL  log.csv  ")


@pytest.mark.slow
def test_no_distribution_of_scipy_stats_is_loaded(tmp_path: Path) -> None:
    """It is most of what a short log would wait for.

    The log has what every tail is asked of: a swing, entropy, a held-out reward.
    """
    path = tmp_path / "log.csv"
    rows = (
        f"{t},{0.4 + 0.004 * t + 0.1 * (-1) ** (t // 5)},{1 - 0.01 * t},{0.4 + 0.001 * t},{t % 7}\n"
        for t in range(80)
    )
    path.write_text("step,reward,entropy,eval_reward,grad_norm\n" + "".join(rows))
    script = (
        f"import sys\nfrom groupwise.cli.app import main\nmain(['diagnose', {str(path)!r}, "
        "'--why'])\n"
    )
    script += "print([name for name in sys.modules if name.startswith('scipy.stats')])"
    out = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    assert out.splitlines()[-1] == "[]"


def test_a_second_run_is_sent_to_where_several_are_taken(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["diagnose", "one.csv", "other.csv"]) == 2
    assert "give several to groupwise compare A B, or fleet" in capsys.readouterr().err
    assert main(["diagnose", "--nothing"]) == 2
    assert "compare A B" not in capsys.readouterr().err
