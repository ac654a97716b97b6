"""`groupwise-lab sweep`: which trainings a file of settings asks for, each run once, and which
of them is best.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lab.tests.commands import main
from tests.cases import each_case

from groupwise.analysis.compare import compare
from groupwise.analysis.components import path_beside, save_components
from groupwise.engine.engine import Engine, Limits, ShardOutcome, ShardStatus
from groupwise.errors import GroupwiseError, InvalidArgumentError
from groupwise.estimators.best_group_size import Budget, plan_from_components
from groupwise.estimators.components import components
from groupwise.record.run import RunRecord
from groupwise.record.table import steps_table
from groupwise_lab.sweep import (
    JOURNAL,
    OWN,
    Foretold,
    Result,
    SweepTraining,
    _group_size,
    answer_of,
    record_of,
    sweep_of,
)

# A trainer of a user's own: its reward rises to a level that its settings name. It counts its
# starts.
TRAINER = """
import json, sys
folder, rate, size, seed, *rest = sys.argv[1:]
level = {"0.1": 0.5, "0.2": 0.8}[rate] - 0.02 * abs(int(size) - 8)
open(folder + "/../" + "starts.txt", "a").write(" ".join([rate, size, seed, *rest]) + "\\n")
if rate == "0.2" and size == "4" and len(rest) == 0:
    open(folder + "/half.txt", "w").write("as far as it came")
    sys.exit("no memory for this size")
with open(folder + "/log.jsonl", "w") as log:
    for step in range(60):
        noise = 0.01 * ((step * 7 + int(seed) * 3) % 11 - 5) / 5
        log.write(json.dumps({"step": step, "reward": level * (1 - 0.9**step) + noise}) + "\\n")
"""
PRINTS = """
import sys
for step in range(30):
    print({"loss": 0.1, "reward": 0.5 + float(sys.argv[1]) * 0.01 * step, "epoch": step / 30})
"""
SETTINGS: dict[str, Any] = {
    "command": [
        sys.executable,
        "train.py",
        "{folder}",
        "{learning_rate}",
        "{group_size}",
        "{seed}",
    ],
    "sweep": {"learning_rate": [0.1, 0.2], "group_size": [4, 8], "seed": [0, 1]},
}


BY_WORKERS = Engine.map


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run commands from this process, where a test is not about workers: each of them takes
    seconds to start.
    """

    def applied(
        _: Engine,
        function: Any,
        shards: dict[str, Any],
        *,
        cpus: int,
        gpus: int,
        limits: Limits,
        each: Any,
    ) -> None:
        for name, value in shards.items():
            try:
                each(ShardOutcome(name, ShardStatus.DONE, value=function(value), seconds=1.0))
            except GroupwiseError as error:
                each(ShardOutcome(name, ShardStatus.FAILED, sentence=f"shard {name}: {error}"))

    monkeypatch.setattr(Engine, "map", applied)


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """The writer of a file of settings, in a folder with a trainer."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(TRAINER)
    Path("prints.py").write_text(PRINTS)

    def settings(**changes: Any) -> None:
        kept = {key: value for key, value in {**SETTINGS, **changes}.items() if value is not None}
        Path("settings.yaml").write_text(json.dumps(kept))

    settings()
    return settings


def code_and_answer(capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, Any]:
    code = main(["sweep", "settings.yaml", "-o", "out", "--json", *more])
    out = capsys.readouterr()
    return code, json.loads(out.out) if out.out else out.err


def starts() -> list[str]:
    return Path("out/starts.txt").read_text().splitlines()


@pytest.mark.slow
def test_every_combination_is_trained_once_and_the_best_is_found(
    write: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    code, document = code_and_answer(capsys)
    assert code == 1  # two of eight had no memory
    assert [run["done"] for run in document["runs"]] == [True] * 4 + [False] * 2 + [True] * 2
    assert (
        document["runs"][4]["sentence"] == "its command ended with code 1: no memory for this size"
    )
    assert document["best"]["values"] == {"learning_rate": "0.2", "group_size": "8"}
    assert math.isclose(document["best"]["level"], 0.8, abs_tol=0.01)
    assert sorted(document["comparisons"]) == ["group_size", "learning_rate"]
    assert len(starts()) == 8
    assert code_and_answer(capsys)[1]["best"] == document["best"]
    assert len(starts()) == 10  # the two that failed, again
    write(resume=["--again"])
    assert code_and_answer(capsys)[0] == 0
    assert starts()[10:] == ["0.2 4 0 --again", "0.2 4 1 --again"]


def test_a_command_that_changed_is_run_again(
    write: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    write(sweep={"learning_rate": [0.1], "group_size": [8], "seed": [0, 1]})
    code_and_answer(capsys)
    write(
        sweep={"learning_rate": [0.1], "group_size": [8], "seed": [0, 1]},
        command=[*SETTINGS["command"], "more"],
    )
    code_and_answer(capsys)
    assert starts() == ["0.1 8 0", "0.1 8 1", "0.1 8 0 more", "0.1 8 1 more"]


def test_the_screen_says_the_best_first(
    write: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    write(sweep={"learning_rate": [0.1, 0.2], "seed": [0, 1]}, group_size=8)
    assert main(["sweep", "settings.yaml", "-o", "out"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(
        "Best of 2: learning_rate 0.2, at 0.797 in 2 runs. learning_rate 0.2 is above "
        "learning_rate 0.1: "
    )
    assert lines[1] == "4 of 4 trainings done."
    assert lines[3] == "By learning_rate:"


@pytest.mark.usefixtures("forked")
def test_by_workers_and_a_folder_that_a_shell_would_split(
    write: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "map", BY_WORKERS)
    write(sweep={"learning_rate": [0.1, 0.2]}, group_size=8, seed=0)
    assert (
        main(["sweep", "settings.yaml", "-o", "a folder; touch oops", "--workers", "2", "--json"])
        == 0
    )
    assert not Path("oops").exists()
    assert Path("a folder; touch oops/learning_rate=0.2/log.jsonl").is_file()


def test_what_a_command_prints_is_its_record_where_it_writes_none(
    write: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    write(command=f"{sys.executable} prints.py {{slope}}", sweep={"slope": [0.2, 1.0]})
    code, document = code_and_answer(capsys)
    assert (code, document["best"]["values"], document["notes"]) == (0, {"slope": "1"}, [])


def test_a_value_is_one_word_whatever_is_in_it(tmp_path: Path) -> None:
    sweep = sweep_of(
        {
            "command": "run --name={word} {word}",
            "sweep": {"word": ["a b; rm -rf $HOME", True, None, "{folder}"]},
        },
        tmp_path,
    )
    assert sweep.trainings[0].words == ("run", "--name=a b; rm -rf $HOME", "a b; rm -rf $HOME")
    assert [training.words[2] for training in sweep.trainings[1:]] == ["true", "null", "{folder}"]
    assert all(training.folder.parent == tmp_path for training in sweep.trainings)


def test_names_are_safe_and_their_own(tmp_path: Path) -> None:
    runs = [
        {"path": "../../etc"},
        {"path": "..-..-etc"},
        {"path": "."},
        {"path": "x" * 300},
        {"path": ".."},
    ]
    sweep = sweep_of({"command": "run {path}", "runs": runs}, tmp_path)
    names = [training.name for training in sweep.trainings]
    assert names[:2] == ["path=..-..-etc", "path=..-..-etc-2"]
    assert len(set(names)) == 5
    assert all(len(name) < 130 and "/" not in name and not name.startswith(".") for name in names)


def test_the_embedded_trainer_is_told_every_setting(tmp_path: Path) -> None:
    wanted = {
        "task": "addition",
        "steps": 5,
        "adaptive": {"mode": "advise"},
        "runs": [{"learning_rate": 0.001, "adaptive.every": 3}],
    }
    (training,) = sweep_of(wanted, tmp_path).trainings
    assert training.words[1:8] == (
        "-m",
        "groupwise_lab",
        "train",
        "addition",
        "-o",
        str(training.folder),
        "--resume",
    )
    assert training.words[9:] == (
        *(
            "--set",
            "steps=5",
            "--set",
            'adaptive={"mode": "advise"}',
            "--set",
            "learning_rate=0.001",
            "--set",
            "adaptive.every=3",
        ),
    )


@pytest.mark.slow
def test_components_beside_a_run_foretell_the_best_group_size(
    write: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    write(sweep={"group_size": [4, 8], "seed": [0, 1]}, learning_rate=0.1, prompts_per_step=8)
    assert code_and_answer(capsys)[1]["foretold"] == []
    rng = np.random.default_rng(1)
    score_ND, prompt_N = rng.normal(size=(384, 6)), np.repeat(np.arange(48), 8)
    pull_N = (score_ND * rng.normal(0.2, 0.8, size=(48, 6))[prompt_N]).sum(axis=1)
    estimate = components(
        (rng.random(384) < 1 / (1 + np.exp(-pull_N))).astype(float), prompt_N, score_ND=score_ND
    )
    save_components(estimate, path_beside(Path("out/group_size=8,seed=0")), provenance={})
    (foretold,) = code_and_answer(capsys)[1]["foretold"]
    plan = plan_from_components(estimate, Budget(64), present=8)
    assert foretold == {
        "setting": "group_size",
        "values": [plan.group_size],
        "low": plan.safe_sizes[0],
        "high": plan.safe_sizes[1],
        "best": "8",
    }


def test_what_an_adaptive_run_decided_is_foretold_too(tmp_path: Path) -> None:
    record = RunRecord("adaptive", steps_table(range(12), {"reward": [0.5] * 12}))
    for content, foretold in (
        ("[", None),
        ("[]", None),
        (json.dumps([{"best": 4}, {"best": 16}]), (16, 16, 16)),
    ):
        (tmp_path / "group-size-decisions.json").write_text(content)
        assert _group_size(record, tmp_path) == foretold


def test_what_was_foretold_is_said_beside_what_turned_out() -> None:
    foretold = Foretold("group_size", (5.0, 6.0, 6.0), 3.0, 9.0, "8")
    assert foretold.said == (
        "The safe group size by the components of the runs: 6 (3 to 9), 3 runs; the best that "
        "was trained is 8."
    )


def test_a_kill_leaves_what_was_done(
    write: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    write(sweep={"learning_rate": [0.1], "group_size": [8], "seed": [0, 1]})
    code_and_answer(capsys)
    journal = Path("out", OWN, JOURNAL)
    whole = journal.read_text().splitlines()
    journal.write_text(whole[0] + "\n" + whole[1][:40])
    code_and_answer(capsys)
    assert starts() == ["0.1 8 0", "0.1 8 1", "0.1 8 1"]


@each_case(
    ("changes", "said"),
    [
        ({"sweep": None}, "expected sweep or runs in the settings, got neither"),
        ({"runs": [{"a": 1}]}, "expected sweep or runs in the settings, got both"),
        ({"sweep": None, "runs": []}, "expected runs as a list of settings"),
        ({"sweep": {"learning_rate": 0.1}}, "expected lists of values under sweep"),
        ({"sweep": {"learning_rate": []}}, "expected lists of values under sweep"),
        (
            {"sweep": {"learning_rate": [[1]]}},
            "expected a number, a text or true or false for learning_rate; got '[1]'",
        ),
        (
            {"sweep": {"a": list(range(200)), "b": list(range(200))}},
            "expected at most 10,000 trainings, got 40,000",
        ),
        ({"learning_rate": 0.1}, "expected learning_rate in one place"),
        ({"command": "train"}, "expected {learning_rate} in the command, since it is swept"),
        (
            {"command": [*SETTINGS["command"], "{steps}"]},
            "expected a setting in the command, got {steps}: use one of learning_rate",
        ),
        ({"command": "train 'x"}, "expected command as a text or a list of words"),
        ({"command": ["/nowhere/train", *SETTINGS["command"][2:]]}, "0 of 8 trainings done. "),
        ({"command": None}, "expected group_size"),
    ],
)
def test_bad_settings_are_one_sentence(
    write: Callable[..., None], changes: Any, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if changes == {"command": None}:
        changes = {"command": None, "sweep": {"group_size": [0]}, "task": "addition"}
    write(**changes)
    code, err = code_and_answer(capsys)
    assert code == 2
    assert said in err
    assert err.count("\n") == 1


def test_a_folder_of_something_else_is_left_alone(
    write: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("out").mkdir()
    Path("out/mine.txt").write_text("mine")
    code, err = code_and_answer(capsys)
    assert code == 2
    assert "expected a new folder or one of a sweep" in err
    assert list(Path("out").iterdir()) == [Path("out/mine.txt")]


def test_a_missing_file_is_one_sentence(
    write: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", "nowhere.yaml", "-o", "out"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_record_says_what_it_was_trained_with(
    write: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    write(sweep={"learning_rate": [0.1], "group_size": [8], "seed": [0, 1]})
    code_and_answer(capsys)
    record = record_of(
        sweep_of(json.loads(Path("settings.yaml").read_text()), Path("out")).trainings[1]
    )
    assert record.labels == {"learning_rate": "0.1", "group_size": "8", "seed": "1"}


def test_too_many_is_refused_before_it_is_unfolded() -> None:
    with pytest.raises(InvalidArgumentError, match="at most 10,000"):
        sweep_of(
            {"command": "x", "sweep": {key: list(range(1000)) for key in "abcdefgh"}}, Path("out")
        )


@pytest.mark.slow
def test_a_sweep_says_of_its_best_what_compare_says_of_the_same_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs of .50 and .52, two of .70 and .68: pairs of seeds leave one degree of freedom,
    which tells nothing.
    """
    level = {("0.1", "0"): 0.50, ("0.1", "1"): 0.52, ("0.2", "0"): 0.70, ("0.2", "1"): 0.68}
    noise = 0.01 * (-1.0) ** np.arange(60)

    def record(training: SweepTraining) -> RunRecord:
        labels = {key: str(value) for key, value in training.values.items()}
        reward = level[labels["learning_rate"], labels["seed"]] + noise
        return RunRecord(training.name, steps_table(range(60), {"reward": reward}), labels=labels)

    monkeypatch.setattr("groupwise_lab.sweep.record_of", record)
    sweep = sweep_of(
        {
            "command": "true {learning_rate} {seed}",
            "sweep": {"learning_rate": [0.1, 0.2], "seed": [0, 1]},
        },
        tmp_path / "made",
    )
    results = [
        Result(training.name, training.values, done=True, sentence="", seconds=None)
        for training in sweep.trainings
    ]
    answer, compared = (
        answer_of(sweep, results, "reward"),
        compare([record(training) for training in sweep.trainings], by="learning_rate"),
    )
    assert answer.best is not None
    assert (
        answer.best.against_next
        == compared.answer[0]
        == answer.comparisons["learning_rate"].answer[0]
    )
    assert answer.best.against_next.endswith("exceeds seed noise.")
