"""`groupwise compare`: groups by `vs`, by a setting, in pairs; one line for every mistake;
nothing overwritten.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cases import each_case
from tests.golden.sentences import says

from groupwise.cli import app as cli


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two seeds of three settings; b is 0.2 above a, c is a again."""
    rng = np.random.default_rng(21)
    step = np.arange(1, 61)
    for name, end in (("a1", 0.5), ("b2", 0.7), ("c3", 0.5)):
        for seed in (1, 2, 3):
            value = end - 0.3 * np.exp(-step / 10) + rng.normal(0, 0.005) + rng.normal(0, 0.02, 60)
            rows = "\n".join(f"{t},{v:.6f}" for t, v in zip(step, value, strict=True))
            (tmp_path / f"lr{name[1]}_seed{seed}.csv").write_text(
                f"step,reward\n{rows}\n", encoding="utf-8"
            )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def answer(capsys: pytest.CaptureFixture[str], arguments: str) -> dict[str, Any]:
    assert cli.main(shlex.split(f"compare {arguments} --json")) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def refused(capsys: pytest.CaptureFixture[str], arguments: str) -> str:
    assert cli.main(shlex.split(f"compare {arguments}")) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


A, B, C = (" ".join(f"lr{i}_seed{s}.csv" for s in (1, 2, 3)) for i in (1, 2, 3))


@pytest.mark.usefixtures("home")
def test_what_a_table_leaves_out_is_called_what_it_is(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = home / "lr1_seed1.csv"
    names = [f"run{number}.csv" for number in range(11)]
    for name in names:
        (home / name).write_bytes(first.read_bytes())
    assert cli.main(["compare", *names]) == 0
    assert capsys.readouterr().out.endswith("\n2 more runs: --why\n")


@pytest.mark.usefixtures("home")
def test_single_runs_say_that_seeds_are_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    document = answer(capsys, "lr1_seed1.csv lr2_seed1.csv")
    level = document["comparisons"][0]["contrasts"][0]
    assert level["status"] == "seed_noise_unknown"
    assert level["p_value"] is None
    assert 0 < level["largest_seed_deviation"] < 0.2
    assert (
        "With one seed per group, it is real only if seeds scatter by less than "
        in document["answer"]
    )


@pytest.mark.slow
@pytest.mark.usefixtures("home")
def test_groups_by_vs_and_by_a_setting(capsys: pytest.CaptureFixture[str]) -> None:
    document = answer(capsys, f"{A} vs {B}")
    level = document["comparisons"][0]["contrasts"][0]
    assert (level["status"], level["method"], level["runs"]) == ("different", "welch", [3, 3])
    assert level["difference"]["low"] < 0.2 < level["difference"]["high"]
    assert [group["name"] for group in document["groups"]] == ["lr1", "lr2"]
    assert document["seed_noise"]["level"]["freedom"] == 4
    by = answer(capsys, f"{A} {B} {C} --by lr --baseline 3")
    assert [group["name"] for group in by["groups"]] == ["lr 3", "lr 1", "lr 2"]
    statuses = [pair["contrasts"][0]["status"] for pair in by["comparisons"]]
    assert statuses == ["not_separable", "different"]
    assert by["comparisons"][0]["contrasts"][0]["minimum_detectable"] > 0


def lines(capsys: pytest.CaptureFixture[str], arguments: str) -> list[str]:
    """What the command prints: in 80 columns, and without --why in 60 words."""
    assert cli.main(shlex.split(f"compare {arguments}")) == 0
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 80
    if "--why" not in arguments:
        assert sum(bool(re.search("[A-Za-z]", word)) for word in said.split()) <= 60
    return [line.strip() for line in said.splitlines() if line.strip()]


@pytest.mark.usefixtures("home")
def test_text(capsys: pytest.CaptureFixture[str]) -> None:
    said = lines(capsys, f"{A} vs {C}")
    assert said[0].startswith("lr3 does not clearly differ from lr1: 0.507 against 0.497")
    assert [" ".join(line.split()[:3]) for line in said[3:7:3]] == ["reward state last", "lr3 3 ok"]


@pytest.mark.usefixtures("home")
def test_asked_why_it_prints_judgements_tests_and_notes(capsys: pytest.CaptureFixture[str]) -> None:
    short, long = lines(capsys, f"{A} vs {B}"), lines(capsys, f"{A} vs {B} --why")
    assert long[: len(short)] == short
    assert (
        sum(line.startswith(f"lr{i}_seed{s}: ") for line in long for i in (1, 2) for s in (1, 2, 3))
        == 6
    )
    assert "lr2 against lr1" in long
    assert any(line.startswith("late mean") and " different " in line for line in long)
    assert any(line.startswith("· The standard deviation of the late means") for line in long)


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One table: two engines with two seeds each, of which those of sglang collapse at step 40;
    no column is called run.
    """
    rng = np.random.default_rng(5)
    rows = ["engine,seed,step,reward"]
    for engine in ("vllm", "sglang"):
        for seed in (1, 2):
            value = 0.98 - 0.6 * np.exp(-np.arange(1, 81) / 8) + rng.normal(0, 0.01, 80)
            value[39:] = 0.0 if engine == "sglang" else value[39:]
            rows += [f"{engine},{seed},{t},{v:.5f}" for t, v in enumerate(value, start=1)]
    (tmp_path / "runs.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("table")
def test_a_table_of_runs_is_compared_by_a_column(capsys: pytest.CaptureFixture[str]) -> None:
    """A failure with one engine only is the answer, with raw means; the same by seed, and each
    run by itself.
    """
    document = answer(capsys, "runs.csv --by engine --baseline vllm")
    assert re.fullmatch(
        r"2 of 2 runs of sglang failed, against 0 of 2 runs of vllm: sglang ends at 0\.00 and vllm "
        r"ends at 0\.98 \(means of the last rows\)\.",
        document["answer"],
    )
    assert [
        (group["name"], [run["name"] for run in group["runs"]]) for group in document["groups"]
    ] == [
        ("vllm", ["1/vllm", "2/vllm"]),
        ("sglang", ["1/sglang", "2/sglang"]),
    ]
    states = [[run["state"] for run in group["runs"]] for group in document["groups"]]
    assert states == [["ok", "ok"], ["failed", "failed"]]
    assert lines(capsys, "runs.csv --by engine")[0].startswith(
        "2 of 2 runs of sglang failed, against 0 of 2 runs of vllm: "
    )
    assert [group["name"] for group in answer(capsys, "runs.csv --by seed")["groups"]] == [
        "seed 1",
        "seed 2",
    ]


def test_a_failure_is_the_answer(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """0.94 against 0.00, the second of which fell at step 60 of 200."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    step = np.arange(1, 201)
    for name, end in (("held", 201), ("fell", 60)):
        value = np.where(
            step < end, 0.94 - 0.5 * np.exp(-step / 10) + rng.normal(0, 0.03, 200), 0.0
        ).clip(0, 1)
        rows = "\n".join(f"{t},{v:.4f}" for t, v in zip(step, value, strict=True))
        (tmp_path / f"{name}.csv").write_text(f"step,reward\n{rows}\n", encoding="utf-8")
    said = " ".join(lines(capsys, "held.csv fell.csv"))
    assert said.startswith(
        "fell failed and held did not: fell ends at 0.00 and held ends at 0.94 (means of the last rows)."
    )
    assert "not by 200" in said
    document = answer(capsys, "fell.csv held.csv")
    assert [group["runs"][0]["held"] for group in document["groups"]] == [False, True]
    contrast = document["comparisons"][0]["contrasts"][0]["difference"]
    assert 0.8 < contrast["low"] < contrast["value"] < contrast["high"] <= 1.0
    cut = answer(capsys, "fell.csv held.csv --until 50")
    assert [group["runs"][0]["state"] for group in cut["groups"]] == ["ok", "ok"]


@pytest.mark.usefixtures("home")
def test_a_run_that_ends_early_does_not_cut_the_others_down(
    capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    """Of three runs the one of 18 rows that ends at step 20 of 60 is shown and not compared; of
    two it is compared as far as it goes.
    """
    text = (home / "lr2_seed1.csv").read_text(encoding="utf-8").splitlines()
    (home / "short.csv").write_text("\n".join((text[0], *text[3:21])) + "\n", encoding="utf-8")
    (home / "tiny.csv").write_text("\n".join(text[:9]) + "\n", encoding="utf-8")
    document = answer(capsys, "short.csv lr1_seed1.csv lr2_seed1.csv")
    assert document["late_to"] == 60
    assert [group["runs"][0]["left_out"] for group in document["groups"]] == [
        "it ends at step 20",
        "",
        "",
    ]
    assert document["answer"].endswith("1 of 3 runs is too short to compare.")
    assert document["comparisons"][0]["first"] == "lr1_seed1"
    assert answer(capsys, "short.csv lr1_seed1.csv")["late_to"] == 20
    raw = answer(capsys, "tiny.csv lr1_seed1.csv")
    assert raw["answer"].endswith(
        "(means of the last rows); there are too few rows to separate a difference from noise."
    )
    assert raw["comparisons"] == []
    assert len(lines(capsys, "tiny.csv lr1_seed1.csv --why")) > 4


@pytest.mark.usefixtures("home")
@each_case(
    ("arguments", "said"),
    [
        ("lr1_seed1.csv", "two runs or more"),
        ("lr1_seed1.csv vs", "both sides"),
        ("lr1_seed1.csv lr2_seed1.csv --by rho", "does not"),
        ("lr1_seed1.csv lr1_seed2.csv --by lr", "runs that differ in lr"),
        ("lr1_seed1.csv vs lr2_seed1.csv --by lr", "leave one of them out"),
        (
            "lr1_seed1.csv lr2_seed1.csv --by lr --baseline 9",
            "expected a baseline of 1, 2, got '9'",
        ),
        ("lr1_seed1.csv lr2_seed1.csv --baseline 1", "no --by"),
        ("lr1_seed1.csv lr2_seed1.csv --late 1.5", "--late expects"),
        ("lr1_seed1.csv lr2_seed1.csv -o x.svg", "No such option"),
        ("lr1_seed1.csv lr2_seed1.csv -m nothing", "nothing"),
    ],
)
def test_mistakes_are_one_line(
    capsys: pytest.CaptureFixture[str], arguments: str, said: str
) -> None:
    assert said in refused(capsys, arguments)


@pytest.mark.slow
def test_real_seeds(capsys: pytest.CaptureFixture[str], shared_data: Path) -> None:
    """Public runs of a sweep.

    Two settings of two seeds cannot be told apart, and two seeds of one setting differ beyond step
    noise.
    """
    sweep = shlex.quote(str(shared_data / "sweeps" / "qwen25_7b_rho_sweep"))
    runs = [
        f"{sweep}/rho{name}.log"
        for name in ("0.50_seed42", "0.50_seed44", "1.50_seed42", "1.50_seed43")
    ]
    pair = answer(capsys, f"{runs[0]} {runs[1]} vs {runs[2]} {runs[3]}")["comparisons"][0]
    assert pair["contrasts"][0]["status"] == "not_separable"
    document = answer(capsys, f"{sweep}/rho0.10_seed42.log {sweep}/rho0.10_seed43.log")[
        "comparisons"
    ][0]
    assert document["contrasts"][0]["status"] == "seed_noise_unknown"
    assert document["contrasts"][0]["largest_seed_deviation"] < 0.3


@pytest.mark.usefixtures("home")
def test_a_run_given_twice_is_no_second_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert "'lr1_seed1.csv' and 'lr1_seed1.csv' have the same values in every row" in refused(
        capsys, "lr1_seed1.csv lr1_seed1.csv vs lr2_seed1.csv lr2_seed2.csv"
    )


@pytest.mark.slow
def test_real_runs_that_failed_and_a_level_that_one_side_never_holds(
    capsys: pytest.CaptureFixture[str], shared_data: Path
) -> None:
    hard = shlex.quote(str(shared_data / "hard"))
    said = lines(capsys, f"{hard}/rho0.70_seed43.log {hard}/rho0.30_seed43.log")
    says("cli/cli_compare/1", said[0])
    says("cli/cli_compare/2", said[1])
    groups = [
        " ".join(f"{hard}/{name}_g4s_seed{seed}.step_stats.json" for seed in (44, 45))
        for name in ("drgrpo", "tasa")
    ]
    said = lines(capsys, f"{groups[0]} vs {groups[1]}")
    assert "By step 199, 2 of 2 runs of tasa_g4s keep 0.41, against 0 of 2 of drgrpo_g4s." in said
    document = answer(capsys, f"{groups[0]} vs {groups[1]}")
    assert [[run["held"] for run in group["runs"]] for group in document["groups"]] == [
        [False, False],
        [True, True],
    ]
    difference = document["comparisons"][0]["contrasts"][0]["difference"]
    assert -1 <= difference["low"] < difference["high"] == 1


@pytest.mark.thinned(1)
@pytest.mark.parametrize(
    ("file", "by", "groups"),
    [
        ("grpo_learning_rate_eval_points.csv", "label", 9),
        ("grpo_learning_rate_eval_points.csv", "learning_rate", 9),
        ("grpo_off_policy_eval_points.csv", "role", 2),
        ("grpo_off_policy_eval_points.csv", "phase", 2),
        ("grpo_off_policy_eval_points.csv", "epochs_per_rollout_batch", 5),
        ("grpo_off_policy_eval_points.csv", "run", 12),
    ],
)
def test_real_tables_of_runs(
    capsys: pytest.CaptureFixture[str], shared_data: Path, file: str, by: str, groups: int
) -> None:
    table = shlex.quote(str(shared_data / "hard" / file))
    lines(capsys, f"{table} --by {by}")
    assert len(answer(capsys, f"{table} --by {by}")["groups"]) == groups
