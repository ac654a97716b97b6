"""`groupwise watch --once` and `groupwise report`: one look, and the judgement and exit codes of
diagnose.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.cli.asked import refused
from tests.cli.test_cli_diagnose import BY_HAND, CODES
from tests.golden.sentences import says

import groupwise as gw
from groupwise.cli.app import main
from groupwise.diagnostics.judgement import Judgement, State
from groupwise.record.run import RecordWriter, RunRecord, has_ended

STATES = {
    "a.csv": State.OK,
    "b.csv": State.CANNOT_TELL,
    "c.csv": State.WARNING,
    "d.csv": State.FAILED,
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a log of each state, and a judge that goes by their names."""
    monkeypatch.chdir(tmp_path)

    def judge(record: RunRecord, *, ended: bool | None = None) -> Judgement:
        over, state = (
            has_ended(record) if ended is None else ended,
            STATES.get(record.name, State.FAILED),
        )
        return replace(
            BY_HAND,
            run=record.name,
            state=State.FAILING if state is State.FAILED and not over else state,
            ended=over,
        )

    for module in (
        "analysis.summary",
        "diagnostics.judge",
    ):  # the one that takes the name first: it must not load with ours
        monkeypatch.setattr(f"groupwise.{module}.judge", judge)
    for name in STATES:
        (tmp_path / name).write_text(
            "step,reward\n" + "".join(f"{step},{0.5 + 0.001 * step}\n" for step in range(1, 41))
        )
    return tmp_path


@pytest.mark.thinned(3)
@pytest.mark.parametrize("fail_on", ["warning", "failing"])
@pytest.mark.parametrize(("name", "state"), STATES.items())
def test_report_and_watch_once_end_as_diagnose_does(
    here: Path, capsys: pytest.CaptureFixture[str], name: str, state: State, fail_on: str
) -> None:
    code = CODES[state][fail_on == "failing"]
    assert main(["diagnose", name, "--fail-on", fail_on]) == code
    screen = capsys.readouterr().out
    assert main(["watch", name, "--once", "--fail-on", fail_on]) == code
    assert capsys.readouterr().out == screen
    assert main(["report", name, "--fail-on", fail_on]) == code
    assert capsys.readouterr().out == f"{screen}The page is groupwise-report.html\n"
    assert (here / "groupwise-report.html").exists()


@pytest.mark.usefixtures("here")
def test_of_several_runs_the_worst_counts(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["watch", "--once"], ["report", "--force"]):
        assert main([*command, "a.csv", "b.csv"]) == 3
        assert main([*command, "a.csv", "b.csv", "c.csv", "--fail-on", "failing"]) == 3
        assert main([*command, "a.csv", "b.csv", "d.csv", "--fail-on", "failing"]) == 1
        assert main([*command, "b.csv", "c.csv"]) == 1
    capsys.readouterr()


@pytest.mark.usefixtures("here")
def test_json_of_one_run_is_its_judgement_and_of_several_a_list(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["watch", "d.csv", "--once", "--json"]) == 1
    failed = replace(BY_HAND, state=State.FAILED).as_dict()
    assert json.loads(capsys.readouterr().out) == failed
    assert main(["watch", "d.csv", "--once", "--json", "--running"]) == 1
    assert json.loads(capsys.readouterr().out) == replace(BY_HAND, state=State.FAILING).as_dict()
    assert main(["watch", "d.csv", "a.csv", "--once", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {
        "runs": [{"run": "d.csv", **failed}, {"run": "a.csv", **BY_HAND.as_dict()}]
    }
    assert main(["report", "d.csv", "a.csv", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)["runs"]
    assert [run["judgement"] for run in document] == [
        replace(BY_HAND, state=State.FAILED).as_dict(),
        BY_HAND.as_dict(),
    ]
    assert not {"verdict", "diagnosis", "causes", "findings"} & set(document[0])


def test_what_cannot_be_used_ends_with_2_and_writes_nothing(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(path.name for path in here.iterdir())
    refused(capsys, "report", "nowhere.csv", "--fail-on", "failing")
    refused(capsys, "watch", "nowhere.csv", "--once", "--fail-on", "failing")
    assert "--fail-on expects warning or failing; got 'never'" in refused(
        capsys, "report", "a.csv", "--fail-on", "never"
    )
    assert "--json expects --once" in refused(capsys, "watch", "a.csv", "--json")
    assert "--running expects --once" in refused(capsys, "watch", "a.csv", "--running")
    refused(capsys, "report", "a.csv", "-m", "nope")
    assert sorted(path.name for path in here.iterdir()) == before


def test_a_report_of_a_record_that_is_being_written_is_of_a_run_that_goes_on(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with RecordWriter(here / "run") as writer:
        for step in range(40):
            writer.append({"step": step, "reward": 0.5})
        assert main(["report", "run"]) == 1
    assert capsys.readouterr().out.startswith("✗ FAILING  run  ")
    assert main(["report", "run", "--force"]) == 1
    assert capsys.readouterr().out.startswith("✗ FAILED  run  ")


# A reward that rose for 60 rows and has stood for 180: one that goes on may yet gain, one that has
# ended has arrived.
STOOD = [min(0.006 * row, 0.36) + random.Random(row).gauss(0, 0.01) for row in range(240)]


def test_an_ended_run_is_judged_alike_by_every_command_and_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run.csv").write_text(
        "step,reward\n" + "".join(f"{row},{reward}\n" for row, reward in enumerate(STOOD))
    )

    def answer_of(*words: str) -> dict[str, Any]:
        main([*words, "--json"])
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        return document

    alone = answer_of("diagnose", "run.csv")
    assert alone["state"] == "ok"
    says("cli/cli_watch_once/1", alone["headline"])
    assert (
        answer_of("watch", "run.csv", "--once")
        == answer_of("report", "run.csv")["runs"][0]["judgement"]
        == alone
    )
    assert gw.judge("run.csv").as_dict() == gw.open_run("run.csv").judgement.as_dict() == alone
    assert {
        run["headline"]
        for group in answer_of("compare", "run.csv", "run.csv")["groups"]
        for run in group["runs"]
    } == {alone["headline"]}
    assert main(["watch", "run.csv", "--once", "--running"]) == 0
    running = capsys.readouterr().out
    assert running.startswith(
        "✓ OK  run.csv  reward 0.034 → 0.36 in 239 steps, still learning\n  goes on     the run "
        "has not ended, so a new fall needs more rows to count"
    )


def test_rewards_beyond_any_unit_are_told_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run.csv").write_text(
        "step,reward\n" + "".join(f"{row},{row + 1}e150\n" for row in range(40))
    )
    for command in (["diagnose"], ["report", "--force"], ["watch", "--once"]):
        assert main([*command, "run.csv"]) == 3
        assert "? CANNOT TELL  run.csv  all rewards are beyond 1e100" in capsys.readouterr().out


def test_two_runs_of_one_name_go_by_their_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each command that shows several runs; a run that is alone keeps its name."""
    monkeypatch.chdir(tmp_path)
    rise = "".join(f"{step},{0.5 + 0.001 * step}\n" for step in range(1, 41))
    for seed in ("seed-1", "seed-2"):
        Path(seed).mkdir()
        Path(seed, "a.csv").write_text("step,reward\n" + rise)
    logs = ["seed-1/a.csv", "seed-2/a.csv"]
    for command in (["watch", "--once"], ["report", "-o", "page.html"], ["compare"]):
        assert main([*command, *logs]) == 0
        printed = capsys.readouterr().out
        assert ("seed-1" in printed, "seed-2" in printed, "a.csv" in printed) == (True, True, False)
    assert Path("page.html").read_text().replace("<wbr>", "").count("seed-1") >= 2
    gw.report(logs, "again.html")
    assert "seed-1" in Path("again.html").read_text()
    assert main(["report", *logs, "--json"]) == 0
    assert [run["run"] for run in json.loads(capsys.readouterr().out)["runs"]] == [
        "seed-1",
        "seed-2",
    ]
    assert main(["watch", "--once", logs[0]]) == 0
    assert "a.csv" in capsys.readouterr().out
