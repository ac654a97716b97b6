"""Experiments on runs whose cause is known: the one that is named first tells it, and its result is
counted; a function that misbehaves and a checkpoint that does not fit are a line each.
"""

from __future__ import annotations

import json
import math
import random
import runpy
import shlex
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.cases import each_case
from tests.golden.sentences import says

import groupwise as gw
from groupwise.analysis import probing
from groupwise.analysis.grading import grades
from groupwise.analysis.probing import ProbeOptions, run_probe
from groupwise.cli.app import main
from groupwise.diagnostics import causes
from groupwise.diagnostics.causes import (
    CAUSES,
    KINDS,
    LEFT_OUT,
    Shown,
    contenders,
    in_question,
    regraded,
    resampled,
    rescored,
    weighed,
)
from groupwise.diagnostics.judge import judge
from groupwise.diagnostics.judgement import Cause, Certainty, Fact, Learning
from groupwise.diagnostics.signals import Evidence
from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.readers import run_record
from groupwise.readers.dumps import SPELLINGS
from groupwise.record.journal import encode_entry
from groupwise.record.run import (
    PROBES,
    RECORD_FILES,
    Meaning,
    ProbeResult,
    Probes,
    RunConfig,
    RunRecord,
    read_probes,
    rollouts_table,
    steps_table,
)

LIKELY = Cause(Certainty.LIKELY, ("x",), (), ("concentration",))
UNNAMED = Cause(rivals=("verifier", "harder_data", "concentration", "rate_too_large"))
GAINED = Cause(Certainty.POSSIBLE, ("x",), (), ("reward_hacking",), rivals=("overfitting",))
POSSIBLE = Cause(
    Certainty.POSSIBLE, ("x",), (), ("concentration",), rivals=("verifier", "harder_data", "router")
)
BROKEN = Cause(
    Certainty.LIKELY,
    ("x",),
    (),
    ("verifier",),
    rivals=("harder_data", "instability", "concentration"),
)
FUNCTIONS = """
import os, sys, time
def right(prompts, completions, answer, **more):
    print("said on the way")
    return [float(text == value) for text, value in zip(completions, answer)]
def hangs(**more): time.sleep(60)
def raises(**more): raise RuntimeError("first\\nsecond")
def short(**more): return [1.0]
def missing(completions, **more): return [None for _ in completions]
def leaves(**more): sys.exit(0)
def writes(**more): [os.write(place, b"[1]") for place in range(3, 9) if os.path.exists(f"/dev/fd/{place}")]
def leaves_a_child(completions, **more):
    if os.fork() == 0:
        os.setsid()
        time.sleep(30)
    return [1.0 for _ in completions]
def doubles(completions, **more):
    os.fork()
    return [1.0 for _ in completions]
def wholes(completions, answer, **more): return [float(type(one) is int) for one in answer]
async def awaits(completions, **more): return [1.0 for _ in completions]
"""


@pytest.fixture
def graders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "graders.py").write_text(FUNCTIONS)
    monkeypatch.chdir(tmp_path)
    return "graders"


@pytest.fixture
def misgraded_run(tmp_path: Path, graders: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that a broken verifier graded, beside `others.py`; this process grades it again."""
    monkeypatch.setattr("groupwise.analysis.probing.grades", graded_here)
    wrong_and_right(Path("others.py"))
    return run_of("verifier", tmp_path)[0]


def run_of(cause: str, folder: Path) -> tuple[Path, Path]:
    """A run that is right in 8 of 10 sums, from step 60 on in 1, or is graded so; and the sums."""
    draw, rollouts, sums = random.Random(3), [], {}
    for step in range(100):
        late = step >= 60
        for number in range(8):
            first, second = draw.randint(1, 99), draw.randint(1, 99)
            right = draw.random() < (0.1 if late and cause == "harder_data" else 0.8)
            lost = late and cause == "verifier" and draw.random() < 0.85
            prompt = f"{first}+{second}="
            sums[prompt] = str(first + second)
            rollouts.append(
                {
                    "step": step,
                    "prompt_id": number,
                    "prompt": prompt,
                    "completion": sums[prompt] if right else "0",
                    "reward": float(right and not lost),
                }
            )
    table = rollouts_table(rollouts)
    assert table is not None
    reward = table.group_by("step").agg(pl.col("reward").mean()).sort("step")["reward"]
    columns = {"reward": reward, "entropy": [0.5 + draw.random() / 50 for _ in range(100)]}
    meanings = tuple(Meaning(name, name, "") for name in columns)
    record = RunRecord("sums", steps_table(range(100), columns), table, meanings=meanings)
    data = folder / "sums.jsonl"
    rows = [{"prompt": prompt, "answer": answer} for prompt, answer in sums.items()]
    data.write_text("\n".join(map(json.dumps, rows)))
    return record.save(folder / cause), data


LISTED = [
    "The causes that remain: a broken verifier, harder data.",
    "",
    (
        "regrade grades logged completions again with your reward function: 256 "
        "completions, 3.0 s by the default estimate; it leaves 57 % of these causes on average."
    ),
    "  groupwise probe RUN regrade --function MODULE:NAME",
    "  a broken verifier, if the grades changed more than the completions",
    "  harder data, if the completions earn less by the same reward function",
    "  harder data, if on the earlier prompts the checkpoint lost less than half of the fall",
]


@each_case(
    ("cause", "outcome"), [("verifier", "GRADES_CHANGED"), ("harder_data", "ANSWERS_CHANGED")]
)
def test_grading_again_tells_who_changed_and_every_judgement_counts_it(
    cause: str, outcome: str, tmp_path: Path, graders: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run, data = run_of(cause, tmp_path)
    said = gw.open_run(run).judgement.cause
    assert (said.certainty, {*said.keys}) == (Certainty.CANNOT_TELL, {"verifier", "harder_data"})
    assert said.probe == KINDS["regrade"].command
    assert main(["probe", str(run), "--json"]) == 0
    first = json.loads(capsys.readouterr().out)["probes"][0]
    assert (first["probe"], first["timed"], first["seconds"]) == ("regrade", False, 3)
    assert main(["probe", str(run)]) == 0
    listed = capsys.readouterr().out.replace(str(run), "RUN").splitlines()
    assert listed[1:7] + listed[10:] == LISTED
    given = ["--function", f"{graders}:right", "--data", str(data), "--json"]
    assert main(["probe", str(run), *given]) == 0
    timed = json.loads(capsys.readouterr().out)["probes"][0]
    assert timed["timed"]
    assert timed["seconds"] != 3
    assert not (run / PROBES).exists()
    assert main(["probe", str(run), "regrade", *given]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["result"]["outcome"] == outcome
    last_cause = gw.open_run(run).judgement.cause
    assert (last_cause.certainty, last_cause.keys) == (Certainty.LIKELY, (cause,))
    assert "by probe regrade, seed 1, 256 completions" in last_cause.words
    assert document["judgement"]["cause"]["names"] == list(last_cause.names)
    assert {path.name for path in run.iterdir()} - {PROBES} == {*RECORD_FILES[:3]}
    said_now = said_by(["probe", str(run)], capsys)
    assert "The causes that remain: " + last_cause.names[0] in said_now
    assert "There are no causes to separate. Do: " in said_now


@each_case(
    ("cause", "expected"),
    [
        # two that tie, and what the log speaks less for
        (
            Cause(
                Certainty.CANNOT_TELL,
                keys=("verifier", "rate_too_large"),
                rivals=("harder_data", "concentration"),
            ),
            ("verifier", "rate_too_large"),
        ),
        # a cause that is only possible, and its rivals
        (
            Cause(Certainty.POSSIBLE, keys=("verifier",), rivals=("harder_data",)),
            ("verifier", "harder_data"),
        ),
        # none is named: two that remain, or one that nothing speaks for
        (Cause(rivals=("too_hard", "concentration")), ("too_hard", "concentration")),
        (Cause(rivals=("concentration",)), ()),
    ],
)
def test_the_causes_in_question_are_those_that_the_judgement_names(
    cause: Cause, expected: tuple[str, ...]
) -> None:
    assert in_question(cause) == expected
    assert {*expected} <= {*contenders(cause)}


def test_where_no_cause_is_named_and_one_remains_no_probe_is_offered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draw = random.Random(3)
    rows = "\n".join(f"{step},{0.3 + draw.gauss(0, 0.02)}" for step in range(100))
    (tmp_path / "flat.csv").write_text(f"step,reward\n{rows}\n")
    assert contenders(gw.judge(tmp_path / "flat.csv").cause) == ("concentration",)
    said = said_by(["probe", str(tmp_path / "flat.csv")], capsys)
    assert "The causes that remain: none." in said
    assert "There are no causes to separate." in said


def said_by(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    main(words)
    return capsys.readouterr().out


@each_case(
    ("name", "words"),
    [
        ("hangs", "within 0.5 s, got none"),
        ("raises", "got RuntimeError: first second: test"),
        ("short", "got 1 for 3 completions: test"),
        ("missing", "got 3 of 3 that are not numbers below 1e+15: test"),
        ("leaves", "got SystemExit: 0"),
        ("writes", "got none because its process ended with 0"),
        ("nothing", "got AttributeError"),
    ],
)
def test_a_function_that_misbehaves_is_one_line(name: str, words: str, graders: str) -> None:
    with pytest.raises(InvalidArgumentError) as raised:
        grades(
            f"{graders}:{name}", {"completions": ["a"] * 3}, seconds=0.5 if name == "hangs" else 20
        )
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.slow
@each_case("name", ["awaits", "leaves_a_child", "doubles"])
def test_a_function_may_be_a_coroutine_and_leave_processes(name: str, graders: str) -> None:
    begun = time.monotonic()
    assert grades(f"{graders}:{name}", {"completions": ["a", "b"]}, seconds=20).tolist() == [1, 1]
    assert time.monotonic() - begun < 15  # and not until the child ends


@each_case(
    ("words", "message"),
    [
        (["regrade", "--function", "graders"], "expected MODULE:NAME of a reward function"),
        (["regrade", "--function", "graders:right", "--data", "none.jsonl"], "got no such file"),
        (["regrade", "--function", "graders:right", "--data", "graders.py"], "got none: give JSON"),
        (["rescore", "--model", "x"], "expected a folder with a language model"),
    ],
)
def test_what_is_not_there_is_named_and_nothing_is_written(
    words: list[str],
    message: str,
    tmp_path: Path,
    graders: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run, _ = run_of("verifier", tmp_path)
    assert main(["probe", str(run), *words]) == 2
    assert message in capsys.readouterr().err
    assert not (run / PROBES).exists()


def test_an_experiment_that_was_made_is_said_and_not_named_again(
    tmp_path: Path, graders: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run, _ = run_of("verifier", tmp_path)
    own, rest = ["probe", str(run)], ["regrade", "--function", f"{graders}:awaits"]
    assert main([*own, *rest, "-n", "128"]) == 0
    answer = capsys.readouterr().out
    assert "It cannot tell: " in answer
    assert "More completions may decide it: -n 512." in answer
    assert "groupwise probe RUN resample" in answer
    listed = said_by(own, capsys)
    assert "\nIt cannot tell: " in listed
    assert "regrade grades" not in listed
    assert "resample samples" in listed
    assert "resample --model CHECKPOINT --function MODULE:NAME" in listed
    listed = said_by([*own, "--function", f"{graders}:awaits"], capsys)
    assert f"resample --model CHECKPOINT --function {graders}:awaits" in listed
    record = gw.open_run(run)
    assert record.probes is not None
    record.probes.add(replace(_result(), probe="resample"))
    left = said_by(own, capsys)
    assert "No remaining probe separates these causes. Log " in left
    assert gw.open_run(run).judgement.cause.probe == ""
    assert main([*own, *rest]) == 0  # by its name it may be made again


def wrong_and_right(path: Path) -> None:
    path.write_text(
        "def once(completions, **more):\n"
        "    return [float(text != '0') for text in completions]\n"
        "def alike(completions, **more): return [1.0 for _ in completions]\n"
        "def falls(completions, **more):\n"  # answers since the change come last
        "    half = len(completions) // 2\n"
        "    return [float(text != '0') for text in completions[:half]] + [0.0] * half\n"
    )


def graded_here(function: str, columns: dict[str, Any], *, seconds: float) -> np.ndarray:
    """What a function of a file gives, without a process of its own."""
    file, _, name = function.partition(":")
    return np.array(runpy.run_path(f"{file}.py")[name](**columns), dtype=float)


@each_case("tied", [("concentration", "verifier"), ("concentration", "too_hard")])
def test_an_outcome_that_says_something_of_all_other_causes_can_separate(
    tied: tuple[str, ...],
) -> None:
    """Changed grades are seldom where the policy has no entropy left; of the others nothing is
    said there.
    """
    bits = KINDS["regrade"].for_run(tied, reward_of("gone")).bits
    assert (bits > 0.3) == ("verifier" in tied)


def test_what_cannot_tell_is_replaced_by_what_came_later(tmp_path: Path) -> None:
    record = reward_of("gone")
    probes = Probes(tmp_path / "probes.jsonl", "", ())
    for rollouts in (64, 256):
        probes = probes.add(replace(_result(), outcome="", rollouts=rollouts))
    [latest] = causes.results_of(Evidence(replace(record, probes=probes))).values()
    assert latest.rollouts == 256


@each_case(
    ("functions", "cause"),
    [
        (["once", "falls"], "harder_data"),
        (["falls", "once"], "verifier"),
        (["once", "alike"], "verifier"),  # the second cannot tell
    ],
)
def test_a_later_result_of_a_probe_replaces_the_earlier_one(
    functions: list[str],
    cause: str,
    misgraded_run: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in functions:
        assert main(["probe", str(misgraded_run), "regrade", "--function", f"others:{name}"]) == 0
    capsys.readouterr()
    assert gw.open_run(misgraded_run).judgement.cause.keys == (cause,)
    listed = json.loads(said_by(["probe", str(misgraded_run), "--json"], capsys))["probes"]
    assert "regrade" not in [name["probe"] for name in listed]


def test_a_log_of_rewards_and_answers_without_prompts_is_told_to_log_prompts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.jsonl"
    rows = [
        {"step": t // 16, "completion": f"c{t}", "reward": float(t % 3 == 0)} for t in range(640)
    ]
    log.write_text("\n".join(map(json.dumps, rows)))
    assert main(["replay", str(log)]) == 2
    assert "got neither: log the completions with prompts and rewards" in capsys.readouterr().err
    unnamed = [{"prompt_id": 0} | row for row in rows]
    record = replace(reward_of("gone"), rollouts=rollouts_table(unnamed))
    kind = KINDS["regrade"].for_run(["verifier", "harder_data"], record)
    assert kind.missing == "completions with prompts and rewards"


def test_torn_groups_are_said_where_experiments_are_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.jsonl"
    rows = [
        {"step": t // 16, "prompt": f"p{t // 4}", "reward": float(t % 2), "entropy": 0.5}
        for t in range(960)
    ]
    log.write_text("\n".join(map(json.dumps, rows)))
    assert main(["replay", str(log), "--set", "group_size=8"]) == 2
    error = capsys.readouterr().err
    assert "expected whole groups in one row of the log, got 4 rollouts" in error
    listed = said_by(["probe", str(log), "--set", "group_size=8"], capsys)
    assert "Expected whole groups in one row of the log, got 4 rollouts" in listed
    assert "whole groups" not in said_by(["probe", str(log)], capsys)


def test_rollouts_that_were_left_out_are_asked_for_and_not_to_be_logged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "metrics.jsonl"
    log.write_text("\n".join(json.dumps({"step": t, "reward": float(t < 40)}) for t in range(60)))
    for name in ("rollouts", "dumped"):
        (tmp_path / name).mkdir()
        row = {"step": 1, "prompt": "1+1=", "completion": "2", "reward": 1.0}
        (tmp_path / name / "1.jsonl").write_text(f"{json.dumps(row)}\n" * 8)
    wanted = f"ive the path of the run's rollouts: {tmp_path / 'dumped'} or {tmp_path}/rollouts"
    assert wanted in said_by(["probe", str(tmp_path)], capsys)
    for words in (["replay", str(tmp_path)], ["probe", str(log), "regrade", "--function", "a:b"]):
        assert main(words) == 2
        error = capsys.readouterr().err
        assert wanted in error
        assert "log the completions" not in error


def test_a_log_of_which_nothing_can_be_told_is_told_what_to_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(json.dumps({"step": t, "reward": t / 9}) for t in range(4)))
    assert "Nothing can be decided yet: log at least 20 rows of the reward" in said_by(
        ["probe", str(log)], capsys
    )


def test_what_had_changed_already_is_not_of_before(graders: str) -> None:
    """The onset comes after the fall; the rows between are no answers of before."""
    rewards = [t % 8 < (2 if t < 32 else 0) for t in range(960)]
    rows = [
        {
            "step": t // 8,
            "prompt_id": 0,
            "prompt": f"p{t}",
            "completion": "x",
            "reward": float(paid),
        }
        for t, paid in enumerate(rewards)
    ]
    record = replace(reward_of("gone"), rollouts=rollouts_table(rows))
    judged = replace(judge(record), since_step=20, first_sign=None)
    result = run_probe(record, judged, "regrade", ProbeOptions(64, function=f"{graders}:awaits"))
    assert "in the log the same completions have 0.25 and 0.00" in result.message


def test_rollouts_without_completions_are_told_what_they_lack(
    tmp_path: Path, graders: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.jsonl"
    rows = [
        {"step": t // 16, "prompt": f"p{t // 4}", "reward": float(t % 2), "entropy": 0.5}
        for t in range(960)
    ]
    log.write_text("\n".join(map(json.dumps, rows)))
    assert main(["probe", str(log), "regrade", "--function", f"{graders}:right"]) == 2
    assert "got none with completion: log the completions with" in capsys.readouterr().err


@each_case(
    ("trainer", "setting"),
    [
        ("trl", "TRL: log_completions=True"),
        ("verl", "trainer.rollout_data_dir=FOLDER"),
        ("groupwise", "groupwise-lab train --set rollouts_every=1"),
    ],
)
def test_what_to_log_is_said_in_the_words_of_the_records_own_trainer(
    trainer: str, setting: str
) -> None:
    config = RunConfig().with_settings({"framework": trainer}, "the trainer")
    record = replace(RunRecord.empty("none"), config=config)
    with pytest.raises(InsufficientDataError, match=f"[(]{setting}[)]"):
        run_probe(record, judge(record), "regrade", ProbeOptions(16, function="graders:right"))


def test_the_command_that_is_named_has_what_was_typed(
    tmp_path: Path, graders: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run, _ = run_of("verifier", tmp_path)
    given = ["--column=reward=reward", "--set=group_size=1", f"--config={tmp_path / 'my set.json'}"]
    (tmp_path / "my set.json").write_text('{"group_size": 1}')
    said = said_by(["probe", str(run), *given], capsys)
    assert f"probe {run} {shlex.join(given)} regrade --function MODULE:NAME\n" in said


def test_answers_that_are_graded_no_more_earned_nothing(tmp_path: Path, graders: str) -> None:
    log = tmp_path / "log.jsonl"
    row = {"prompt": "p", "answer": "2", "entropy": 0.5}
    graded = [float(t % 3 == 2) if t < 400 else None for t in range(800)]
    rows = [
        row | {"step": t // 8, "completion": str(t % 3), "reward": earned}
        for t, earned in enumerate(graded)
    ]
    log.write_text("\n".join(map(json.dumps, rows)))
    record = run_record(log)
    judged = replace(judge(record), since_step=50)
    result = run_probe(record, judged, "regrade", ProbeOptions(64, function=f"{graders}:right"))
    assert result.outcome == "GRADES_CHANGED"
    assert "in the log the same completions have 0.25 and 0.00" in result.message


def test_whole_numbers_of_the_log_reach_the_function_as_such(tmp_path: Path, graders: str) -> None:
    log = tmp_path / "log.jsonl"
    row = {"prompt": "p", "completion": "x", "answer": 7}
    rows = [row | {"step": t // 8, "reward": float(t < 400)} for t in range(800)]
    log.write_text("\n".join(map(json.dumps, rows)))
    record = run_record(log)
    how = ProbeOptions(16, function=f"{graders}:wholes")
    result = run_probe(record, judge(record), "regrade", how)
    assert "fresh grades are 1.00 before and 1.00 after the change" in result.message


def test_the_table_of_experiments_is_sound() -> None:
    outcomes = [outcome for kind in KINDS.values() for outcome in kind.outcomes]
    assert len({outcome.fact for outcome in outcomes}) == len(outcomes)
    assert "logprobs" in SPELLINGS["log_probability"]
    assert KINDS["rescore"].log.endswith("in the column logprobs")
    for kind in KINDS.values():
        assert {*kind.causes, *kind.family} <= {*CAUSES}
        for cause in kind.causes:
            chances = kind.chances(cause)
            assert min(chances) >= 0
            assert sum(chances) == pytest.approx(1)


def test_the_gain_is_the_mutual_information_of_outcome_and_cause() -> None:
    kind = KINDS["resample"]
    assert kind.causes == ("concentration", "too_hard")
    rows = np.array([kind.chances("concentration"), kind.chances("too_hard")])
    mean = rows.mean(axis=0)
    expected = float((rows * np.log2(rows / mean)).sum() / 2)
    record = RunRecord.empty("none")
    assert kind.for_run(["concentration", "too_hard"], record).bits == pytest.approx(expected)
    # Of a third cause, as likely as they are, it is silent.
    three = kind.for_run(["concentration", "too_hard", "router"], record).bits
    assert three == pytest.approx(expected * 2 / 3)
    assert kind.for_run(["too_hard", "router"], record).bits == 0
    assert kind.for_run(["restart", "router"], record).bits == 0
    assert kind.for_run(["too_hard"], record).missing == kind.log


@each_case(
    ("cause", "expected"),
    [
        (Cause(Certainty.LIKELY, ("x",), (), ("sampler",)), KINDS["rescore"].causes),
        (Cause(Certainty.LIKELY, ("x",), (), ("verifier",)), ("verifier",)),
        (
            Cause(
                Certainty.POSSIBLE, ("x",), (), ("concentration",), rivals=("router", "too_hard")
            ),
            ("concentration", "too_hard"),
        ),
        (Cause(), ()),
    ],
)
def test_what_remains_of_a_cause(cause: Cause, expected: tuple[str, ...]) -> None:
    assert contenders(cause)[: len(expected)] == expected


@each_case(
    ("cause", "facts", "expected"),
    [
        # what goes with a cause, and a measurement that denies it
        (POSSIBLE, {Fact.GRADES_CHANGED}, {"verifier"}),
        (LIKELY, {Fact.GRADES_CHANGED}, {"verifier"}),
        (Cause(Certainty.LIKELY, ("x",), (), ("length",)), {Fact.PROMPTS_STAND}, {"harder_data"}),
        # another one denies that
        (POSSIBLE, {Fact.ANSWERS_CHANGED}, {"concentration", "harder_data"}),
        (POSSIBLE, {Fact.ANSWERS_CHANGED, Fact.PROMPTS_STAND}, {"harder_data"}),
        (POSSIBLE, {Fact.ANSWERS_CHANGED, Fact.ANSWERS_ALIKE}, {"concentration"}),
        (BROKEN, {Fact.ANSWERS_CHANGED}, {"harder_data", "instability", "concentration"}),
        (BROKEN, {Fact.ANSWERS_CHANGED, Fact.ANSWERS_ALIKE}, {"concentration"}),
        (BROKEN, {Fact.ANSWERS_CHANGED, Fact.PROMPTS_LOST}, {"instability"}),
        # what says nothing of it changes nothing
        (LIKELY, {Fact.ANSWERS_CHANGED}, set()),
        (Cause(), {Fact.GRADES_CHANGED}, set()),
        # where no cause is named, those that the change may have
        (UNNAMED, {Fact.GRADES_CHANGED}, {"verifier"}),
        (UNNAMED, {Fact.ANSWERS_CHANGED, Fact.PROMPTS_LOST}, {"rate_too_large"}),
        (UNNAMED, {Fact.ANSWERS_CHANGED, Fact.ANSWERS_ALIKE}, {"concentration", "rate_too_large"}),
        (
            UNNAMED,
            {Fact.ANSWERS_CHANGED, Fact.ANSWERS_ALIKE, Fact.EDGE_CROSSED},
            {"rate_too_large"},
        ),
        # a gain that is the function's, or the prompts'
        (GAINED, {Fact.GAIN_STANDS}, {"overfitting"}),
        (GAINED, {Fact.GAIN_GONE}, {"reward_hacking"}),
    ],
)
def test_a_measurement_outweighs_what_goes_with_a_cause(
    cause: Cause, facts: set[Fact], expected: set[str]
) -> None:
    chances = weighed(cause, facts)
    assert {key for key, chance in chances.items() if chance >= LEFT_OUT} == expected
    assert len(expected) != 1 or max(chances.values()) >= causes.LIKELY


def graded(
    before: list[float],
    after: list[float],
    fresh: tuple[list[float], list[float]],
    *,
    rose: bool = False,
) -> Shown:
    return regraded(np.array([before, fresh[0]]), np.array([after, fresh[1]]), rose=rose)


UP, DOWN = [1.0] * 24 + [0.0] * 8, [1.0] * 4 + [0.0] * 28


@each_case(
    ("fresh", "fact"),
    [
        ((UP, DOWN), Fact.ANSWERS_CHANGED),
        ((UP, UP), Fact.GRADES_CHANGED),  # the function of before
        ((DOWN, DOWN), Fact.GRADES_CHANGED),  # the function of since
        (([0.5] * 32, [0.5] * 32), None),  # another function
        (([3 * row - 1 for row in UP], [3 * row - 1 for row in DOWN]), Fact.ANSWERS_CHANGED),
    ],
)
def test_grades_of_both_sides(fresh: tuple[list[float], list[float]], fact: Fact | None) -> None:
    assert graded(UP, DOWN, fresh).fact is fact


def test_a_sample_that_lost_nothing_tells_of_grades_that_changed_alone() -> None:
    """Fewer right answers since than fresh grades find, and as many as before by the log."""
    assert graded(DOWN, DOWN, (DOWN, UP)).fact is Fact.GRADES_CHANGED
    assert graded(DOWN, DOWN, (DOWN, DOWN)).fact is None
    assert graded(DOWN, UP, (DOWN, DOWN)).fact is None
    assert resampled([["a", "b"]] * 8, 4, np.full(8, 0.3), -0.1).fact is None


@each_case("weight", [0.1, 3.0, 10.0])
def test_grades_in_other_units_are_those_of_the_log(weight: float) -> None:
    high, low = weight * np.array(UP), weight * np.array(DOWN)
    assert graded([*high], [*low], (UP, DOWN)).fact is Fact.ANSWERS_CHANGED
    assert graded([*high], [*low], (UP, UP)).fact is Fact.GRADES_CHANGED
    assert graded([*low], [*high], (DOWN, DOWN), rose=True).fact is Fact.GAIN_GONE


def test_a_judge_of_narrow_grades_is_no_other_unit() -> None:
    """Within 0 and 1 a spread says nothing of units, and a rise is no broken verifier."""
    soft = [0.4 + 0.2 * grade for grade in 4 * DOWN], [0.4 + 0.2 * grade for grade in 4 * UP]
    assert graded(4 * DOWN, 4 * UP, soft, rose=True).fact is Fact.GAIN_GONE
    nothing, three = [0.0] * 32, [3 * grade for grade in UP]
    assert graded(nothing, three, (nothing, UP), rose=True).fact is Fact.GAIN_STANDS
    assert graded(DOWN, UP, (nothing, [2 * grade for grade in UP]), rose=True).fact is not (
        Fact.GRADES_CHANGED
    )


def test_what_was_measured_names_a_cause_where_it_denies_all_rivals() -> None:
    cause = Cause(Certainty.LIKELY, ("x",), keys=("verifier",), rivals=("harder_data",))
    chances = weighed(cause, {Fact.SAMPLED_BY_REFERENCE})
    assert max(chances, key=lambda key: chances[key]) == "never_synchronised"


def test_an_answer_that_comes_again_is_that_of_its_step(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    rows = [
        {"step": t, "prompt": "1+1=", "completion": "2", "reward": t % 2, "logprobs": [-1.0 * t]}
        for t in range(1, 41)
    ]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    record = run_record(log)
    assert record.rollouts is not None
    [last] = probing._raw_rows(record, record.rollouts.filter(pl.col("step") == 40))
    assert last["logprobs"] == [-40.0]
    other = [row | {"step": 7, "global_step": row["step"]} for row in rows]
    log.write_text("".join(json.dumps(row) + "\n" for row in other))
    record = run_record(log, columns={"step": "global_step"})
    assert record.rollouts is not None
    [last] = probing._raw_rows(record, record.rollouts.filter(pl.col("step") == 40))
    assert "logprobs" in last


def test_a_flat_run_is_sampled_at_a_checkpoint_of_its_end() -> None:
    rows = [{"step": t, "prompt_id": 0, "prompt": "p", "reward": 0.0} for t in range(120)]
    record = replace(reward_of("stands"), rollouts=rollouts_table(rows))
    with pytest.raises(InvalidArgumentError, match="of the last steps, from 89 on, got one from"):
        run_probe(record, judge(record), "resample", ProbeOptions(64, model=Path("checkpoint-3")))


def test_a_gain_that_the_function_sees_and_that_it_does_not() -> None:
    assert graded(DOWN, UP, (DOWN, UP), rose=True).fact is Fact.GAIN_STANDS
    assert graded(DOWN, UP, (DOWN, DOWN), rose=True).fact is Fact.GAIN_GONE
    half = [1.0] * 14 + [0.0] * 18
    assert graded(DOWN, UP, (DOWN, half), rose=True).fact is None


def test_a_gain_is_held_against_a_function_that_goes_with_the_log_beyond_chance() -> None:
    """A loophole pays where the held-out function does not; of a fall it must be the same one."""
    rng = np.random.default_rng(5)
    held = rng.integers(0, 2, size=(2, 128)).astype(float)
    paid = np.where(rng.random((2, 128)) < 0.25, held, rng.random((2, 128)) < [[0.1], [0.9]])
    before, after = (np.stack([paid[place], held[place]]) for place in (0, 1))
    assert max(np.corrcoef(side)[0, 1] for side in (before, after)) < 0.5
    assert regraded(before, after, rose=True).fact is Fact.GAIN_GONE
    assert regraded(after, before).message.endswith("does not grade as the log does")
    other = np.stack([after[0], rng.permutation(after[1])])
    assert regraded(other, other, rose=True).fact is None


def test_few_answers_and_answers_that_never_earned() -> None:
    with pytest.raises(InsufficientDataError, match="got 3 and 32"):
        graded(UP[:3], DOWN, (UP[:3], DOWN))
    nothing = np.zeros(32)
    assert regraded(np.zeros((2, 0)), np.array([nothing, UP])).fact is Fact.GRADES_CHANGED
    assert regraded(np.zeros((2, 0)), np.array([nothing, nothing])).fact is Fact.GRADES_STAND


def test_answers_of_one_kind_and_of_many() -> None:
    assert resampled([["a"] * 15 + ["b"]] * 4, 2).fact is Fact.ANSWERS_ALIKE
    assert resampled([list("abcdefghijklmnop")] * 4, 1).fact is Fact.ANSWERS_VARIED
    assert resampled([list("abcdefghijklmnop")] * 4, 20).fact is None
    assert resampled([["a"] * 16] * 4, 64).fact is None  # one answer, and right


@each_case(
    ("answers", "now", "fact"),
    [
        ("abcd", 0.75, Fact.PROMPTS_STAND),
        ("abcd", 0.1, Fact.PROMPTS_LOST),
        ("aaaa", 0.1, Fact.ANSWERS_ALIKE),
        ("abcd", 0.5, None),  # between: half of the loss
    ],
)
def test_prompts_of_before_tell_the_policy_from_its_data(
    answers: str, now: float, fact: Fact | None
) -> None:
    then_P = np.tile([0.5, 1.0], 8)
    change_P = now - then_P + np.tile([-0.1, 0.1, 0.1, -0.1], 4)
    assert resampled([list(answers)] * 16, int(64 * now), change_P, 0.5).fact is fact


def test_what_each_prompt_lost_tells_of_few_prompts() -> None:
    """Noise of which prompts were drawn is in what they earned and in what they lost alike."""
    then_P = np.tile([0.25, 0.5, 0.0, 0.25], 4)
    assert resampled([["a", "b"]] * 16, 0, -then_P, then_P).fact is Fact.PROMPTS_LOST
    assert resampled([["a", "b"]] * 16, 0, 0 * then_P, then_P).fact is Fact.PROMPTS_STAND


@each_case(
    ("then", "late", "fresh", "learning", "fact", "value", "right"),
    [
        # Of .75 before and .5 since a third is lost: more than half of the fall.
        (0.75, 0.5, 0.5, Learning.FALLING, Fact.PROMPTS_LOST, -0.25, 50),
        # Prompts whose answers are all right again count where the reward fell, and else not.
        (1.0, 0.0, 1.0, Learning.FALLING, Fact.PROMPTS_STAND, 0.0, 100),
        (0.0, 0.0, 0.0, Learning.FLAT, None, 0.0, 0),  # nothing was ever right
    ],
)
def test_earlier_prompts_that_are_asked_again(
    then: float,
    late: float,
    fresh: float,
    learning: Learning,
    fact: Fact | None,
    value: float,
    right: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def rewards(mean: float, step: int) -> list[dict[str, Any]]:
        return [
            {"step": step, "prompt_id": n // 4, "prompt": f"{step} {n // 4}", "reward": value}
            for n, value in enumerate(np.tile(np.arange(4) < 4 * mean, 8).astype(float))
        ]

    record = RunRecord(
        "run",
        steps_table([1, 2, 3], {"reward": [then, late, late]}),
        rollouts_table([*rewards(then, 1), *rewards(late, 2), *rewards(late, 3)]),
    )
    judged = replace(judge(record), learning=learning, since_step=2)
    monkeypatch.setattr(
        probing,
        "_sampled",
        lambda _, prompts, each, __: [
            [f"{place} {n}" for n in range(each)] for place in range(len(prompts))
        ],
    )
    monkeypatch.setattr(
        probing,
        "_graded",
        lambda _, rows, *__, **___: np.resize(np.arange(4) < 4 * fresh, len(rows)).astype(float),
    )
    how = ProbeOptions(32, function="rewards:right", model=Path("checkpoint-3"))
    shown, count = probing._resample(record, judged, how)
    assert (shown.fact, count) == (fact, 32)
    assert shown.value.value == pytest.approx(value)
    assert f" {right} % are right" in shown.message
    assert "without" not in shown.message


def test_a_gap_behind_the_first_turn_is_that_of_another_history() -> None:
    rng = np.random.default_rng(0)
    turns = [np.repeat([0, 1, 2], 10)] * 64
    gap = [rng.normal(size=30) * np.where(turn > 0, 0.3, 0.001) for turn in turns]
    shown = rescored(gap, None, turns)
    assert shown.fact is Fact.GAP_AFTER_TURN
    assert "by turn)" in shown.message
    even = [rng.normal(size=30) * 0.3 for _ in turns]
    assert rescored(even, None, turns).fact is None


def test_the_gap_is_told_by_thirds_of_the_entropy() -> None:
    entropy = [np.array([2.0, 0.1, 0.5]), np.array([0.5, 2.2, 0.3])]
    gap = [np.array([-0.05, 0.01, 0.02]), np.array([0.04, 0.07, -0.03])]
    message = rescored(gap, None, None, [np.stack([-row, row]) for row in entropy]).message
    assert "(0.02, 0.03, 0.06 at entropies of 0.20, 0.50, 2.10 nats)" in message
    even = rescored(gap, None, None, [np.ones((2, 3))] * 2).message
    assert "(0.037 at entropies of 1.00 nats)" in even


def world(
    kind: str, seed: int = 0, *, lag: float = 0.1, noise: float = 0.02, top: float = 0.8
) -> tuple[list[np.ndarray], ...]:
    """Gaps of a sampler in a small exact world, 64 answers of 30 tokens of 20 words, the way to the
    reference, and the scores and entropies of the checkpoint.
    """
    rng = np.random.default_rng(seed)
    logit_TV = rng.normal(size=(1920, 20)) * 1.5
    way_TV = rng.normal(size=(1920, 20)) * 0.4

    def chances(share: float) -> np.ndarray:
        weight_TV = np.exp(logit_TV + share * way_TV)
        return np.asarray(weight_TV / weight_TV.sum(axis=1, keepdims=True))

    own_TV, first_TV = chances(0), chances(1)
    by_TV = {"first": first_TV, "older": chances(lag)}.get(kind, own_TV)
    if kind == "truncated":
        order = np.argsort(-own_TV, axis=1)
        ranked = np.take_along_axis(own_TV, order, axis=1)
        kept = ranked.cumsum(axis=1) - ranked < top
        by_TV = np.zeros_like(own_TV)
        np.put_along_axis(by_TV, order, ranked * kept, axis=1)
        by_TV /= by_TV.sum(axis=1, keepdims=True)
    if kind in ("colder", "warmer"):
        by_TV = own_TV ** {"colder": 1.4, "warmer": 0.8}[kind]
        by_TV /= by_TV.sum(axis=1, keepdims=True)
    if kind == "rounded":
        weight_TV = own_TV * np.exp(noise * rng.normal(size=own_TV.shape))
        by_TV = weight_TV / weight_TV.sum(axis=1, keepdims=True)
    token_T = (by_TV.cumsum(axis=1) < rng.random((1920, 1))).sum(axis=1)
    own_T, first_T, by_T = (
        np.log(values[np.arange(1920), token_T]) for values in (own_TV, first_TV, by_TV)
    )
    own_2T = np.stack([own_T, -(own_TV * np.log(own_TV)).sum(axis=1)])
    rows_4NL = np.stack([by_T - own_T, first_T - own_T, *own_2T]).reshape(4, 64, 30)
    return list(rows_4NL[0]), list(rows_4NL[1]), list(rows_4NL[2:].transpose(1, 0, 2))


@each_case(
    ("kind", "fact"),
    [
        ("first", Fact.SAMPLED_BY_REFERENCE),
        ("older", Fact.SAMPLED_BETWEEN),
        ("rounded", Fact.SAMPLED_ALIKE),
        ("truncated", Fact.SAMPLED_TRUNCATED),
        ("same", None),
    ],
)
def test_which_weights_sampled(kind: str, fact: Fact | None) -> None:
    gap, way, own = world(kind)
    assert rescored(gap, way, None, own).fact is fact
    alone = rescored(gap, None, None, own).fact
    assert alone is (fact if fact is Fact.SAMPLED_TRUNCATED else None)


@each_case("kind", ["colder", "warmer"])
def test_another_temperature_is_no_truncation_and_no_other_weights(kind: str) -> None:
    gap, way, own = world(kind)
    for towards in (None, way):
        shown = rescored(gap, towards, None, own)
        assert shown.fact is None
        assert shown.message.endswith("explains it: give --set temperature=T")


def test_a_sampler_that_stayed_far_behind_keeps_no_mass_and_is_the_reference() -> None:
    far = list(9 + np.random.default_rng(0).normal(size=(64, 30)))
    assert rescored(far, far).fact is Fact.SAMPLED_BY_REFERENCE
    assert rescored(far, None).fact is None


def test_without_a_reference_half_of_the_mass_is_no_truncation() -> None:
    """Weights that have sharpened since leave gaps of one sign too."""
    sharper = list(1 + 0.1 * np.random.default_rng(0).normal(size=(64, 30)))
    assert rescored(sharper, None).fact is None
    cut = list(0.2 + 0.02 * np.random.default_rng(0).normal(size=(64, 30)))
    assert rescored(cut, None).fact is Fact.SAMPLED_TRUNCATED


def test_weights_far_from_both_checkpoints_are_of_another_time() -> None:
    """Where the checkpoint moved much in the last updates, the first policy too explains what
    others sampled: most of the gap to it must be gone.
    """
    rng = np.random.default_rng(2)
    shared, other = 2 * rng.normal(size=(64, 30)), 1.2 * rng.normal(size=(64, 30))
    gap, way = list(shared + 1), list(shared + other + 1)
    assert rescored(gap, [shared_T + 1 for shared_T in shared]).fact is Fact.SAMPLED_BY_REFERENCE
    assert rescored(way, gap).fact is Fact.SAMPLED_BETWEEN
    again = rescored(way, gap, first=False)
    assert again.fact is None
    assert again.message.endswith("give the initial policy as --reference")


def test_two_checkpoints_that_are_one_are_refused() -> None:
    gap, way, _ = world("rounded")
    with pytest.raises(InvalidArgumentError, match="expected two checkpoints that differ"):
        rescored(gap, [0 * point for point in way])


def test_results_that_anybody_edited_are_left_out(tmp_path: Path) -> None:
    run, _ = run_of("verifier", tmp_path)
    kept = gw.open_run(run).probes
    assert kept is not None
    assert kept.path == run / PROBES
    good = {
        **dict.fromkeys(("probe", "outcome", "message", "date", "run", "arguments"), "x"),
        **dict.fromkeys(("value", "low", "high", "seconds"), 1.0),
        "rollouts": 64,
        "seed": 1,
        "step": None,
        "run": "",
    }
    bad: list[dict[str, Any]] = [
        {"probe": "regrade"},
        good | {"seed": True},
        good | {"value": math.inf},
        good | {"message": "x" * 5000},
        good | {"outcome": 3},
        good | {"run": "another"},
        good | {"step": []},
        good | {"seed": 1.5},
        good | {"rollouts": -3},
    ]
    lines = [b"notes of mine\n", *(encode_entry(entry) for entry in (*bad, good))]
    (run / PROBES).write_bytes(b"".join(lines))
    assert len(read_probes(run, "").results) == 1
    assert gw.open_run(run).judgement.cause.certainty is Certainty.CANNOT_TELL  # no probe of ours
    assert len(kept.add(_result()).results) == 1
    assert (run / PROBES).read_bytes().startswith(b"".join(lines))
    assert len(read_probes(run, "").results) == 2


def test_a_link_in_the_place_of_results_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, _ = run_of("verifier", tmp_path)
    (run / PROBES).symlink_to(tmp_path / "elsewhere")
    assert main(["probe", str(run), "regrade", "--function", "graders:right"]) == 2
    assert "which is a link" in capsys.readouterr().err
    assert not (tmp_path / "elsewhere").exists()


def _result(probe: str = "regrade", fact: Fact | None = None) -> ProbeResult:
    outcome = "" if fact is None else fact.name
    return ProbeResult(probe, outcome, "x", 0.0, 0.0, 0.0, 64, 1.0, 1, "")


def reward_of(kind: str) -> RunRecord:
    """A reward that stands at .08, or is gone within its first rows or later, and an entropy."""
    draw, begins = np.random.default_rng(2), {"stands": 120, "gone": 4, "late": 40}[kind]
    level = np.repeat([0.08 if kind == "stands" else 0.25, 0.02], [begins, 120 - begins])
    columns = {
        "reward": np.maximum(level + 0.02 * draw.standard_normal(120), 0.0),
        "entropy": 0.9 + 0.1 * draw.standard_normal(120),
    }
    meanings = tuple(Meaning(name, name, "") for name in columns)
    return RunRecord(kind, steps_table(range(120), columns), meanings=meanings)


@each_case(
    ("kind", "results", "cause"),
    [
        ("stands", [("resample", Fact.ANSWERS_VARIED)], "too_hard"),
        ("stands", [("resample", Fact.ANSWERS_ALIKE)], "concentration"),
        (
            "gone",
            [("regrade", Fact.ANSWERS_CHANGED), ("resample", Fact.PROMPTS_LOST)],
            "rate_too_large",
        ),
        (
            "gone",
            [("regrade", Fact.ANSWERS_CHANGED), ("resample", Fact.PROMPTS_STAND)],
            "harder_data",
        ),
        ("gone", [("regrade", Fact.GRADES_CHANGED)], "verifier"),
    ],
)
def test_a_probe_names_the_cause_that_the_log_does_not(
    kind: str, results: list[tuple[str, Fact]], cause: str
) -> None:
    record = reward_of(kind)
    before = judge(record).cause
    assert before.certainty is not Certainty.LIKELY
    assert cause in contenders(before)
    for number in range(len(results)):
        made = tuple(_result(*result) for result in results[: number + 1])
        last_cause = judge(replace(record, probes=Probes(Path(), "", made))).cause
        is_last = number == len(results) - 1
        assert (last_cause.certainty is Certainty.LIKELY) == is_last
    assert last_cause.keys == (cause,)


def test_a_result_is_credited_with_a_cause_of_this_change_of_which_it_speaks() -> None:
    record = reward_of("gone")
    outcome = _result("regrade", Fact.GRADES_CHANGED)
    others = (
        _result("rescore", Fact.SAMPLED_ALIKE),
        replace(_result("resample", Fact.ANSWERS_ALIKE), step=110),
    )
    cause = judge(replace(record, probes=Probes(Path(), "", (outcome, *others)))).cause
    assert (cause.certainty, cause.keys) == (Certainty.LIKELY, ("verifier",))
    says("analysis/probing/1", cause.by)
    both = _result("regrade", Fact.ANSWERS_CHANGED), _result("resample", Fact.PROMPTS_LOST)
    cause = judge(replace(record, probes=Probes(Path(), "", both))).cause
    assert cause.by.count("probe ") == 2


def test_the_cost_of_a_kick_is_that_of_steps_of_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is offered where the edge ties with another cause, as of a reward alone; of a broken
    verifier and harder data, which an entropy leaves, it tells nothing, whatever their rivals are.
    """
    record = reward_of("late")
    settings = {"framework": "groupwise", "group_size": 8, "prompts_per_step": 16}
    config = RunConfig().with_settings(settings, "--set")
    seconds = pl.Series("seconds", np.arange(120) * 2.5)
    timed = replace(record, steps=record.steps.with_columns(seconds), config=config)
    kick = KINDS["kick"].for_run(["instability", "verifier"], timed)
    assert (kick.rollouts, kick.seconds) == (16 * 128, 16 * 2.5)
    kick = KINDS["kick"].for_run(["instability", "verifier"], replace(record, config=config))
    assert (kick.rollouts, kick.seconds) == (16 * 128, KINDS["kick"].seconds)
    given = [f"--set={name}={value}" for name, value in settings.items()]
    watched = said_by(["probe", str(timed.save(tmp_path / "watched")), *given], capsys)
    assert "probe kick" not in watched
    assert judge(timed).cause.probe == ""
    alone = replace(timed, steps=timed.steps.drop("entropy"), meanings=timed.meanings[:1])
    run = alone.save(tmp_path / "run")
    listed = said_by(["probe", str(run), *given], capsys)
    assert "2,048 completions, 40.0 s by 16 steps of this run" in listed
    assert f"  groupwise-lab probe kick {run}\n" in listed
    assert judge(alone).cause.probe == "groupwise-lab probe kick RUN"


def test_answers_beside_the_logged_entropy() -> None:
    """At an entropy of .2 in all two answers are one with a chance of at least .8."""
    texts = [list("abcdefghijklmnop")] * 4
    shown = resampled(texts, 1, alike=0.8)
    assert shown.fact is None
    assert shown.message.endswith(
        "the same in 0 % of cases, by the logged entropy in at least 80 %: check that the "
        "checkpoint is of this run"
    )
    assert resampled(texts, 1, alike=0.3).fact is Fact.ANSWERS_VARIED
    assert resampled([["a"] * 15 + ["b"]] * 4, 2, alike=0.8).fact is Fact.ANSWERS_ALIKE


@each_case(("entropy", "doubted"), [(0.005, True), (0.9, False)])
def test_a_checkpoint_whose_answers_vary_beyond_the_logged_entropy_is_doubted(
    entropy: float, doubted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        {"step": t, "prompt_id": n, "prompt": f"p{n}", "reward": 0.0}
        for t in range(120)
        for n in range(2)
    ]
    record = reward_of("stands")
    steps = record.steps.with_columns(pl.lit(entropy).alias("entropy"))
    record = replace(record, steps=steps, rollouts=rollouts_table(rows))
    parts = [[f"answer {n}" for n in range(32)]] * 2
    monkeypatch.setattr("groupwise.analysis.probing._sampled", lambda *_: parts)
    result = run_probe(record, judge(record), "resample", ProbeOptions(64, model=Path("x")))
    assert ("check that the checkpoint is of this run" in result.message) == doubted


@each_case(("function", "fact"), [("", None), ("others:falls", Fact.ANSWERS_ALIKE)])
def test_equal_answers_since_a_fall_are_those_of_harder_prompts_too(
    function: str,
    fact: Fact | None,
    misgraded_run: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "groupwise.analysis.probing._sampled",
        lambda _record, prompts, each, _how: [["wrong"] * each] * len(prompts),
    )
    monkeypatch.setattr(
        "groupwise.analysis.probing._graded", lambda _record, rows, _how, **_: np.zeros(len(rows))
    )
    record = run_record(misgraded_run)
    how = ProbeOptions(64, function=function, model=Path("x"))
    result = run_probe(record, judge(record), "resample", how)
    assert result.outcome == (fact.name if fact else "")
    assert ("; give --function" in result.message) == (not function)


def test_what_more_answers_cannot_decide_is_not_advised(
    misgraded_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = ["probe", str(misgraded_run), "regrade", "--function", "others:alike"]
    assert "More completions may decide it: -n 512." in said_by([*own, "-n", "128"], capsys)
    assert "More completions" not in said_by([*own, "-n", "2000"], capsys)
    exact = [1e-8 * np.ones(30)] * 64
    for way in (None, [np.ones(30)] * 64):
        shown = rescored(exact, way)
        assert shown.message.endswith("the checkpoint sampled these tokens exactly")
        assert (shown.fact, shown.value.width) == (None, 0)


def test_a_probe_made_twice_is_listed_once_and_torn_groups_not_beside_what_reads_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {"step": t, "prompt_id": 0, "prompt": f"p{t}", "completion": f"{n}", "reward": float(n > 3)}
        for t in range(120)
        for n in range(4)
    ]
    table = rollouts_table(rows)
    assert table is not None
    record = replace(reward_of("gone"), rollouts=table)
    run = record.save(tmp_path / "run")
    listed = said_by(["probe", str(run), "--set", "group_size=8"], capsys)
    assert "regrade grades" in listed
    assert "whole groups" not in listed
    bare = replace(record, rollouts=table.drop("completion"))
    listed = said_by(["probe", str(bare.save(tmp_path / "bare")), "--set", "group_size=8"], capsys)
    assert "got 4 rollouts per prompt" in listed
    probes = gw.open_run(run).probes
    assert probes is not None
    probes.add(_result()).add(_result())
    assert said_by(["probe", str(run)], capsys).count("probe regrade, seed 1") == 1


def test_a_function_that_grades_all_alike_tells_nothing() -> None:
    fell, dead = np.repeat([1.0, 0.0], [50, 14]), np.zeros(64)
    shown = regraded(np.array([fell, dead]), np.array([dead, dead]))
    assert shown.fact is None
    assert shown.message.endswith("check that this reward function graded the log")


def test_a_journal_of_results_that_is_not_read_is_not_written(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    beside = tmp_path / f"log.jsonl.{PROBES}"
    beside.write_bytes(b"x" * ((1 << 20) + 1))
    with pytest.raises(InvalidArgumentError, match="move it away"):
        read_probes(log, "").add(ProbeResult("regrade", "", "", 0, 0, 0, 64, 1, 1, "2026-11-24"))
    assert beside.stat().st_size == (1 << 20) + 1


def test_answers_of_before_a_change_are_of_several_steps() -> None:
    """The best of them may have been luck, and a step of many prompts hold more than is drawn."""
    rows = [
        {"step": step, "prompt_id": place, "prompt": f"p{place}", "completion": f"{step}"}
        | {"reward": float(place % 4 == 0 and step < 60)}
        for step in range(90)
        for place in range(512)
    ]
    columns = {"reward": [0.25] * 60 + [0.0] * 30, "entropy": [0.5] * 90}
    record = RunRecord(
        "run",
        steps_table(range(90), columns),
        rollouts_table(rows),
        meanings=tuple(Meaning(name, name, "test") for name in columns),
    )
    seen: list[str] = []

    def graded(_: RunRecord, drawn: pl.DataFrame, __: ProbeOptions) -> np.ndarray:
        seen.extend(drawn["completion"].to_list())
        return drawn["reward"].to_numpy()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("groupwise.analysis.probing._graded", graded)
        run_probe(record, judge(record), "regrade", ProbeOptions(64, function="a:b"))
    before = {int(step) for step in seen if int(step) < 60}
    assert len(before) > 5
    assert min(before) >= 50
