"""`groupwise compare`: groups by `vs`, by a setting, in pairs; one line for every mistake; nothing overwritten."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise.analysis.compare import RunGroup, differing_settings, grouped_by, paired_by, setting_of, typed_groups
from groupwise.cli import app as cli
from groupwise.record.run import RunRecord, steps_table
from groupwise.record.settings import RunConfig

SWEEP = Path(os.environ.get("GROUPWISE_DATA", Path(__file__).resolve().parents[3] / "shared" / "data")) / "sweeps" / "qwen25_7b_rho_sweep"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two seeds of three settings; b is 0.2 above a, c is a again."""
    rng = np.random.default_rng(21)
    step = np.arange(1, 61)
    for name, end in (("a1", 0.5), ("b2", 0.7), ("c3", 0.5)):
        for seed in (1, 2, 3):
            value = end - 0.3 * np.exp(-step / 10) + rng.normal(0, 0.005) + rng.normal(0, 0.02, 60)
            rows = "\n".join(f"{t},{v:.6f}" for t, v in zip(step, value, strict=True))
            (tmp_path / f"lr{name[1]}_seed{seed}.csv").write_text(f"step,reward\n{rows}\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def answer(capsys: pytest.CaptureFixture[str], arguments: str) -> dict[str, Any]:
    assert cli.main(shlex.split(f"compare {arguments} --json")) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def refused(capsys: pytest.CaptureFixture[str], arguments: str) -> str:
    assert cli.main(shlex.split(f"compare {arguments}")) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


A, B, C = (" ".join(f"lr{i}_seed{s}.csv" for s in (1, 2, 3)) for i in (1, 2, 3))


@pytest.mark.usefixtures("home")
def test_single_runs_say_that_seeds_are_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "lr1_seed1.csv lr2_seed1.csv")
    level = found["comparisons"][0]["contrasts"][0]
    assert level["status"] == "seed_noise_unknown"
    assert level["p_value"] is None
    assert 0 < level["largest_seed_deviation"] < 0.2
    assert found["comparisons"][0]["divergence"]["status"] == "diverged"
    assert "nobody can say" in found["comparisons"][0]["message"]
    alike = answer(capsys, "lr1_seed1.csv lr3_seed1.csv --seed-deviation 0.005")
    assert alike["comparisons"][0]["contrasts"][0]["method"] == "known_seed_noise"


@pytest.mark.usefixtures("home")
def test_groups_by_vs_by_a_setting_and_in_pairs(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, f"{A} vs {B}")
    level = found["comparisons"][0]["contrasts"][0]
    assert (level["status"], level["method"], level["runs"]) == ("different", "welch", [3, 3])
    assert level["difference"]["low"] < 0.2 < level["difference"]["high"]
    assert [group["name"] for group in found["groups"]] == ["lr1", "lr2"]
    assert found["seed_noise"]["level"]["freedom"] == 4
    by = answer(capsys, f"{A} {B} {C} --by lr --baseline 3 --pair-by seed")
    assert [group["name"] for group in by["groups"]] == ["lr 3", "lr 1", "lr 2"]
    statuses = [pair["contrasts"][0]["status"] for pair in by["comparisons"]]
    assert statuses == ["not_separable", "different"]
    assert by["comparisons"][0]["contrasts"][0]["method"] == "paired_t"
    assert by["comparisons"][0]["contrasts"][0]["minimum_detectable"] > 0


@pytest.mark.usefixtures("home")
def test_text_and_figure(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    assert cli.main(shlex.split(f"compare {A} vs {C} -o pair.svg --effect 0.1")) == 0
    said = capsys.readouterr().out
    assert "lr3 against lr1" in said
    assert "Would find" in said
    drawing = (home / "pair.svg").read_text(encoding="utf-8")
    assert drawing.startswith("<svg")
    assert "late mean" in drawing
    assert "exists already" in refused(capsys, f"{A} vs {C} -o pair.svg")


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("lr1_seed1.csv", "two runs or more"),
        ("lr1_seed1.csv vs", "both sides"),
        ("lr1_seed1.csv lr2_seed1.csv --by rho", "does not"),
        ("lr1_seed1.csv lr1_seed2.csv --by lr", "differ in it"),
        ("lr1_seed1.csv vs lr2_seed1.csv --by lr", "leave out one"),
        ("lr1_seed1.csv lr2_seed1.csv --by lr --baseline 9", "--baseline expects"),
        ("lr1_seed1.csv lr2_seed1.csv --baseline 1", "no --by"),
        ("lr1_seed1.csv vs lr2_seed2.csv --pair-by seed", "share none"),
        ("lr1_seed1.csv lr1_seed1.csv vs lr2_seed1.csv --pair-by seed", "comes twice"),
        ("lr1_seed1.csv lr2_seed1.csv --late 1.5", "--late expects"),
        ("lr1_seed1.csv lr2_seed1.csv --effect -1", "positive number"),
        ("lr1_seed1.csv lr2_seed1.csv -o x.png", "ends in .svg"),
        ("lr1_seed1.csv lr2_seed1.csv lr3_seed1.csv -o x.svg", "two groups"),
        ("lr1_seed1.csv lr2_seed1.csv --until 5", "at least 12 rows"),
        ("lr1_seed1.csv lr2_seed1.csv -m nothing", "nothing"),
    ],
)
def test_mistakes_are_one_line(capsys: pytest.CaptureFixture[str], arguments: str, said: str) -> None:
    assert said in refused(capsys, arguments)


def named(name: str, **settings: object) -> RunRecord:
    return RunRecord(name, steps_table([1], {}), config=RunConfig().with_settings(settings, "test"))


def test_a_setting_is_found_in_config_then_in_the_name() -> None:
    assert setting_of(named("x_seed7", seed=3), "seed") == "3"
    assert setting_of(named("x_seed7"), "seed") == "7"
    assert setting_of(named("lr=1e-5,b"), "lr") == "1e-05"
    assert setting_of(named("loss-dapo"), "loss") == "dapo"
    assert setting_of(named("xrho0.5"), "rho") is None
    assert [g.name for g in grouped_by([named("k10"), named("k9")], "k")] == ["k 9", "k 10"]


def test_groups_are_named_after_what_their_runs_share() -> None:
    assert [g.name for g in typed_groups([[named("fast_seed1"), named("fast_seed2")], [named("slow_1"), named("slow_2")]])] == [
        "fast",
        "slow",
    ]
    assert [g.name for g in typed_groups([[named("a"), named("b")], [named("c"), named("d")]])] == ["group 1", "group 2"]
    assert [g.name for g in typed_groups([[named("run")], [named("run")]])] == ["run (1)", "run (2)"]


def test_pairs_keep_what_both_have() -> None:
    groups = [RunGroup("a", (named("a_seed1"), named("a_seed2"))), RunGroup("b", (named("b_seed2"),))]
    assert [[run.name for run in group.runs] for group in paired_by(groups, "seed")] == [["a_seed2"], ["b_seed2"]]


def test_other_differences_are_named() -> None:
    groups = [RunGroup("a", (named("a", group_size=8, seed=1),)), RunGroup("b", (named("b", group_size=16, seed=2),))]
    assert "group_size (8; 16)" in differing_settings(groups)[0]
    assert differing_settings(groups, besides=["group_size"]) == []


@pytest.mark.skipif(not SWEEP.is_dir(), reason=f"public logs are not at {SWEEP}")
def test_real_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    """Public runs of a sweep. Two settings of two seeds cannot be told apart, and two seeds of one setting differ beyond step noise."""
    runs = [SWEEP / f"rho{name}.log" for name in ("0.50_seed42", "0.50_seed44", "1.50_seed42", "1.50_seed43")]
    pair = answer(capsys, f"{runs[0]} {runs[1]} vs {runs[2]} {runs[3]}")["comparisons"][0]
    assert pair["contrasts"][0]["status"] == "not_separable"
    one = answer(capsys, f"{SWEEP / 'rho0.10_seed42.log'} {SWEEP / 'rho0.10_seed43.log'}")["comparisons"][0]
    assert one["contrasts"][0]["status"] == "seed_noise_unknown"
    assert one["contrasts"][0]["largest_seed_deviation"] < 0.3


@pytest.mark.usefixtures("home")
def test_a_run_given_twice_is_no_second_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert "same values in every row" in refused(capsys, "lr1_seed1.csv lr1_seed1.csv vs lr2_seed1.csv lr2_seed2.csv")


@pytest.mark.usefixtures("home")
def test_groups_of_a_setting_are_not_said_to_be_ungrouped(capsys: pytest.CaptureFixture[str]) -> None:
    one_each = "lr1_seed1.csv lr2_seed1.csv lr3_seed1.csv"
    hint = "Every run was taken as a setting of its own; runs of one setting are put together with vs or --by."
    assert hint in answer(capsys, one_each)["notes"]
    assert hint not in answer(capsys, f"{one_each} --by lr")["notes"]
