"""The confusion study: what counts as right, how it goes on after a cut, its limits, and its
page against its tables.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import polars as pl
import pytest

from groupwise.diagnostics.judgement import Cause, Certainty, Judgement, State
from groupwise_lab.worlds.logs import HEALTHY, KINDS, Truth, run_of
from groupwise_lab.worlds.runs import simulated_run

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "experiments" / "diagnosis"
PAGE = ROOT / "docs" / "studies" / "diagnosis-experiments.md"
Loader = Callable[[str], ModuleType]
HARDER = Truth("harder_data", "harder", ("harder_data", "verifier"), (4, 6), 8)


@pytest.mark.parametrize(
    ("certainty", "names", "verdict"),
    [
        (Certainty.LIKELY, ("harder data",), "likely, right"),
        (Certainty.LIKELY, ("a broken verifier",), "likely, wrong"),
        (Certainty.POSSIBLE, ("harder data",), "possible, right"),
        (Certainty.POSSIBLE, ("a broken verifier",), "wrong, not likely"),
        (Certainty.CANNOT_TELL, ("a broken verifier", "harder data"), "between two, one right"),
        (Certainty.CANNOT_TELL, ("reward hacking", "overfitting"), "wrong, not likely"),
        (Certainty.NONE, (), "none"),
    ],
)
def test_what_a_cause_is_worth(
    load: Loader, certainty: Certainty, names: tuple[str, ...], verdict: str
) -> None:
    judgement = Judgement("made", State.FAILED, "made", cause=Cause(certainty, names))
    assert load("confusion").verdict_of(judgement, HARDER) == verdict


def test_a_name_that_is_as_right_counts(load: Loader) -> None:
    judgement = Judgement(
        "made",
        State.FAILED,
        "made",
        cause=Cause(Certainty.LIKELY, ("training became unstable (instability)",)),
    )
    exploded = Truth("numerics", "collapse", ("numerics",), (1, 1), 2, also=("instability",))
    assert load("confusion").verdict_of(judgement, exploded) == "likely, right"
    assert (
        load("confusion").verdict_of(
            judgement, Truth("numerics", "collapse", ("numerics",), (1, 1), 2)
        )
        == "likely, wrong"
    )


def test_rows_off_a_range(load: Loader) -> None:
    module, record = load("confusion"), run_of("steady", 0, rows=20)[0]
    steps = record.steps["step"].to_list()
    assert [
        module.rows_off(record, step, 4, 6)
        for step in (None, steps[1], steps[4], steps[5], steps[9])
    ] == [None, -3.0, 0.0, 0.0, 3.0]


def test_limits_by_hand(load: Loader) -> None:
    """None of 100: 1 - 0.025^(1/100); one of one: 0.025."""
    module = load("confusion")
    assert module.upper(0, 100) == pytest.approx(1 - 0.025**0.01)
    assert module.lower(1, 1) == pytest.approx(0.025)
    assert (module.lower(0, 9), module.upper(9, 9)) == (0.0, 1.0)


def test_a_study_goes_on_where_it_was_cut(load: Loader, tmp_path: Path) -> None:
    module, asked = load("confusion"), []
    tasks = module.tasks_of(("steady", "restart"), 2)
    assert [kind for kind, _ in tasks] == ["steady", "restart", "steady", "restart"]
    assert module.tasks_of(("steady",), 1, first=5) == [("steady", tasks[0][1] + 5)]

    def call(kind: str, seed: int) -> dict[str, object]:
        asked.append((kind, seed))
        return {"kind": kind, "seed": seed}

    path = tmp_path / "state.jsonl"
    path.write_text(json.dumps({"kind": "steady", "seed": tasks[0][1]}) + '\n{"kind": "rest')
    study = module.study(call, tasks, path, workers=1, seconds=60)
    assert asked == tasks[1:]
    assert len(study) == 4
    assert [json.loads(line)["kind"] for line in path.read_text().splitlines()] == [
        kind for kind, _ in tasks
    ]


@pytest.mark.slow
def test_every_kind_can_be_judged(load: Loader) -> None:
    module = load("confusion")
    for kind in KINDS:
        judgement = module.judged(kind, 0)
        assert judgement["state"] in ("ok", "warning", "failed", "cannot_tell")
        assert judgement["verdict"] in module.VERDICTS
    assert module.watched(HEALTHY[0], 0, rows=12)["alarm"] is None


@pytest.mark.parametrize("table", ["states", "causes", "calibration", "signs", "sequential"])
def test_the_page_has_the_tables(load: Loader, table: str) -> None:
    assert "\n".join(getattr(load("tables"), table)()) in PAGE.read_text(encoding="utf-8")


def test_rollouts_of_simulated_runs_are_those_of_the_steps() -> None:
    with_, without = (
        simulated_run(
            "policy_concentration", np.random.default_rng(9), steps=80, rollouts=rollouts
        )[0]
        for rollouts in (True, False)
    )
    assert with_.steps.equals(without.steps)
    assert with_.rollouts is not None
    with_.validate()
    groups = with_.rollouts.group_by("step", "prompt_id").agg(
        pl.col("reward").mean(), pl.col("reward").n_unique().alias("values")
    )
    steps = (
        groups.group_by("step")
        .agg(pl.col("reward").mean(), (pl.col("values") == 1).mean().alias("dead"))
        .sort("step")
    )
    assert np.allclose(steps["reward"], without.steps["reward"], atol=1e-12)
    assert np.allclose(steps["dead"], without.steps["frac_reward_zero_std"], atol=1e-12)
