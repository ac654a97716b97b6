"""The embedded run is what its README says, and a reader gets it right: two traps of TRL lie in
it.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import groupwise as gw
from groupwise import examples
from groupwise.cli.app import main
from groupwise.diagnostics.judgement import State
from groupwise.examples import EXAMPLES, HOME
from groupwise_lab.worlds.logs import run_of

STATES = {"healthy": State.OK, "truncated": State.WARNING}
EVALUATED = set(range(20, 301, 20))


@pytest.fixture(scope="module")
def embedded() -> Path:
    return examples.trl_run()


@pytest.fixture(scope="module")
def record(embedded: Path) -> gw.RunRecord:
    return gw.open_run(embedded)


def test_the_run_is_small_and_holds_no_weights_and_no_pickle(embedded: Path) -> None:
    files = [path for path in embedded.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 1_500_000
    assert {path.suffix for path in files} == {".md", ".json", ".parquet"}


def test_an_example_is_copied_once_and_never_over_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["example"]) == 0
    listed = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert listed == {name: example.about for name, example in EXAMPLES.items()}
    for name, example in EXAMPLES.items():
        assert main(["example", name]) == 0
        assert capsys.readouterr().out.endswith(f"Try: groupwise diagnose {example.path}\n")
        assert gw.judge(tmp_path / example.path).state is (STATES.get(name, State.FAILED))
    arguments = tmp_path / "trl_run" / "training_args.json"
    arguments.write_text("mine", encoding="utf-8")
    assert main(["example", "healthy"]) == 0
    assert arguments.read_text(encoding="utf-8") == "mine"


def test_an_example_that_there_is_not_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["example", "broken"]) == 2
    assert "got 'broken': choose one of healthy, failing, " in capsys.readouterr().err


def test_the_simulated_examples_are_what_the_simulator_makes() -> None:
    """The seeds are those of the pages' pictures."""
    seeds = {"length_runaway": 2, "hacking_true_logged": 5, "verifier_broken": 3}
    seeds |= {"sampler_mismatch": 4, "cut_off": 3}
    for kind, seed in seeds.items():
        shipped = gw.open_run(HOME / "runs" / kind)
        made = run_of(kind, seed, rows=150)[0]
        assert shipped.name == kind
        assert_frame_equal(shipped.steps, made.steps, check_exact=False, rel_tol=1e-9)


def test_no_path_and_no_token_of_the_machine_that_made_it_is_left(embedded: Path) -> None:
    arguments = json.loads((embedded / "training_args.json").read_text(encoding="utf-8"))
    assert arguments["output_dir"] == "."
    assert not [
        key for key, value in arguments.items() if isinstance(value, str) and value.startswith("/")
    ]
    assert "hub_token" not in arguments


def test_the_reward_rises(record: gw.RunRecord) -> None:
    reward = record.steps["reward"].to_numpy()
    assert len(reward) == 300
    assert reward[:20].mean() < 0.35
    assert reward[-20:].mean() > 0.7


def test_the_settings_are_found(record: gw.RunRecord) -> None:
    settings = {name: setting.value for name, setting in record.config.known().items()}
    wanted = {
        "group_size": 8,
        "prompts_per_step": 32,
        "kl_weight": 0.0,
        "framework_version": "1.16.0",
        "learning_rate": 5e-4,
    }
    assert wanted.items() <= settings.items()
    assert (
        settings.get("model") != "None"
    )  # TRL writes "fine-tuned version of [None]" for a model without a name


def test_completions_of_an_evaluation_are_not_taken_for_those_of_the_step(
    record: gw.RunRecord, embedded: Path
) -> None:
    """At a step with an evaluation the file holds the evaluation's completions: their mean is
    `eval_reward`.
    """
    raw = pl.concat(
        [pl.read_parquet(path) for path in sorted((embedded / "completions").glob("*.parquet"))]
    )
    total = raw.group_by("step").agg(
        (pl.col("correct") + 0.1 * pl.col("brief")).mean().alias("total")
    )
    both = record.steps.select("step", "reward", "eval_reward").join(total, on="step").sort("step")
    evaluation = np.isclose(both["total"].to_numpy(), both["eval_reward"].to_numpy(), atol=1e-5)
    assert set(both["step"].to_numpy()[evaluation].tolist()) == EVALUATED
    assert record.rollouts is not None
    assert not EVALUATED & set(record.rollouts["step"].unique().to_list())


def test_the_total_of_the_completions_is_the_logged_reward(record: gw.RunRecord) -> None:
    """The weights of the two rewards are 1 and 0.1."""
    assert record.rollouts is not None
    mean = record.rollouts.group_by("step").agg(pl.col("reward").mean().alias("mean"))
    both = record.steps.select("step", "reward").join(mean, on="step")
    assert len(both) >= 285
    np.testing.assert_allclose(
        both["mean"].to_numpy(), both["reward"].to_numpy(), atol=1e-5
    )  # the log is in single precision


def test_a_continuation_exists_to_score_forecasts_on() -> None:
    after = pl.read_csv(Path(__file__).parent / "data" / "trl_run_continued.csv")
    assert after["step"].to_list() == list(range(301, 601))
    assert after["reward"].tail(20).mean() == pytest.approx(0.86, abs=0.005)
