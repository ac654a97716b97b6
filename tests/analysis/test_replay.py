"""A run replayed: the answer, what it refuses, and what is left without rollouts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.cases import each_case
from tests.cli.asked import printed, refused
from tests.conftest import make_record
from tests.golden.sentences import says

from groupwise.analysis.replay import IN_PART, LOG_LENGTHS, PROXY, UNKNOWN, replay_run
from groupwise.api.run import run_of
from groupwise.errors import InsufficientDataError
from groupwise.estimators.replay import Choice
from groupwise.pages.tables import replay_grids
from groupwise.record.run import RunConfig, RunRecord, rollouts_table, steps_table
from groupwise.wording import number, share_ranged


def solved_run(**settings: int) -> RunRecord:
    """Twenty visits of 64 prompts: half of them are always right."""
    rng = np.random.default_rng(0)
    rows = [
        {
            "step": step,
            "prompt_id": prompt,
            "prompt": f"p{prompt}",
            "reward": float(prompt % 2 or rng.random() < 0.5),
            "length": 10.0 + prompt,
        }
        for step in range(1, 21)
        for prompt in range(64)
        for _ in range(4)
    ]
    columns = {"reward": np.full(20, 0.75)}
    return RunRecord(
        "made",
        steps_table(range(1, 21), columns, seconds=3600.0 * np.arange(1, 21)),
        rollouts_table(rows),
        RunConfig().with_settings(settings, "--set"),
    )


def test_the_answer_names_the_cheapest_rule_and_what_it_saves() -> None:
    replayed = replay_run(solved_run(gpus=8))
    assert replayed.cheapest is not None
    assert replayed.cheapest.choice in (Choice.SOLVED, Choice.FLAT)
    # prompts that are always right are skipped after their third visit
    assert replayed.cheapest.rollouts.value == pytest.approx((32 * 20 + 32 * 3) / 1280, abs=0.02)
    hours = (1 - replayed.cheapest.cost.value) * 160
    assert f", {hours:.3g} GPU-hours." in replayed.status
    assert "skipping " in str(replayed)
    assert len(replayed.status.split()) <= 60
    assert replayed.status.count(". ") == 0  # one sentence
    assert replayed.notes[:2] == (UNKNOWN, PROXY)
    assert replayed.replay is not None
    times = replayed.replay.dynamic.batches
    says("analysis/replay/1", replayed.notes[2], times=number(times))
    saved = {row[0]: row[3] for row in replay_grids(replayed)[0].rows}
    assert saved["Dynamic sampling"].startswith("0 % (0 % to 0 %), 0 ")
    assert saved["Skipping solved prompts"].startswith("43 % (25 % to 56 %), 68")
    drawn = {row[0]: row[2] for row in replay_grids(replayed)[0].rows}
    made = replayed.replay.rollouts
    assert drawn["Skipping solved prompts"] == f"{replayed.cheapest.rollouts.value * made:,.0f}"


def test_python_json_and_command_say_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = solved_run()
    folder = run.save(tmp_path / "run")
    plain = printed(capsys, "replay", str(folder), "--seed", "0")
    assert plain["status"] == str(run_of(run).replay())
    assert plain["replay"]["live_groups"] < plain["replay"]["groups"] == 1280
    assert [row["name"] for row in plain["replay"]["denominators"]] == [
        "per sequence",
        "per token",
        "constant",
    ]


def test_the_table_of_denominators_has_each_number_under_its_name() -> None:
    replayed = replay_run(solved_run())
    assert replayed.replay is not None
    table = replay_grids(replayed)[1]
    shown = {row[0]: dict(zip(table.head[1:], row[1:], strict=True)) for row in table.rows}
    for row in replayed.replay.denominators:
        assert shown[row.name.capitalize()] == {
            "Effective learning rate": share_ranged(row.rate),
            "Weight of the longest quarter": share_ranged(row.longest),
        }


def test_without_rollouts_the_share_of_zero_variance_groups_answers() -> None:
    replayed = replay_run(make_record(rollouts=False))
    assert replayed.replay is None
    assert "dynamic sampling needs" in str(replayed)
    assert "log the completions" in replayed.notes[-1]
    bare = replace(make_record(rollouts=False), meanings=())
    with pytest.raises(InsufficientDataError, match="expected rollouts with prompts"):
        replay_run(bare)


def test_without_lengths_or_names_the_notes_say_what_to_log() -> None:
    run = solved_run()
    assert run.rollouts is not None
    replayed = replay_run(replace(run, rollouts=run.rollouts.drop("length", "prompt")))
    assert replayed.replay is not None
    assert replayed.replay.denominators == ()
    assert {row.choice for row in replayed.replay.choices} == {
        Choice.SIZE,
        Choice.CONFORMAL,
    }
    assert replayed.notes[-1] == LOG_LENGTHS


def laid_out(row_of: Callable[[int, int], int], epochs: int = 1) -> pl.DataFrame:
    """Epochs of 160 groups of eight, in rows by the number of the prompt and the place in it."""
    draw, rows = np.random.default_rng(3), row_of(159, 7) + 1
    table = rollouts_table(
        [
            {
                "step": 1 + epoch * rows + row_of(prompt, place),
                "prompt_id": prompt,
                "prompt": f"p{prompt}",
                "reward": float(draw.random() < 0.5),
            }
            for epoch in range(epochs)
            for prompt in range(160)
            for place in range(8)
        ]
    )
    assert table is not None
    return table


def halves(prompt: int, place: int) -> int:
    """Two rows to 16 prompts, of each four rollouts in each."""
    return 2 * (prompt // 16) + place // 4


def unequal(prompt: int, place: int) -> int:
    """Two rows to 16 prompts, of each five rollouts and three."""
    return 2 * (prompt // 16) + (place > 4)


def half_torn(prompt: int, place: int) -> int:
    """Two rows to 16 prompts, of every other four rollouts in each."""
    return 2 * (prompt // 16) + prompt % 2 * (place // 4)


def stream(prompt: int, place: int) -> int:
    """Rows of twenty rollouts, wherever groups end."""
    return (8 * prompt + place) // 20


@each_case(
    ("made", "said"),
    [
        (solved_run(group_size=8), "got 4 rollouts per prompt"),
        (lambda _: laid_out(halves), "got 4 rollouts per prompt: log whole groups, or give"),
        (lambda _: laid_out(halves, 3), "got 4 rollouts per prompt"),
        (lambda _: laid_out(halves, 3).filter(pl.col("step") > 1), "got 4 rollouts per prompt"),
        (lambda _: laid_out(unequal, 3), "got 3 and 5 rollouts per prompt"),
        (lambda _: laid_out(half_torn, 3), "got 4 and 8 rollouts per prompt"),
        (lambda _: laid_out(stream, 3), "got 4 and 8 rollouts per prompt"),
        # each group of four in two rows, one behind the other
        (
            lambda rows: rows.filter(pl.col("step") <= 2).with_columns(
                (2 * pl.col("prompt_id") + pl.col("step")).alias("step")
            ),
            "expected whole groups in one row",
        ),
        (lambda rows: rows.unique(["step", "prompt_id"]), "got single ones"),
        (lambda rows: rows.with_columns(pl.lit(1.0).alias("reward")), "got none in 1,280"),
    ],
)
def test_what_cannot_be_replayed_is_refused_in_one_line(
    made: object, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = solved_run()
    assert run.rollouts is not None
    torn = replace(run, rollouts=made(run.rollouts)) if callable(made) else made
    assert isinstance(torn, RunRecord)
    assert said in refused(capsys, "replay", str(torn.save(tmp_path / "run")))


def test_groups_torn_in_a_file_are_refused_though_their_parts_are_of_one_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The size that the rows themselves say is no setting."""
    path = tmp_path / "rollouts.jsonl"
    laid_out(halves).with_columns(pl.lit("a").alias("completion")).write_ndjson(path)
    assert "got 4 rollouts per prompt" in refused(capsys, "replay", str(path))
    answer = printed(capsys, "replay", str(path), "--set", "group_size=4")
    assert "mixed rewards" in answer["status"]


def test_a_log_of_a_part_of_the_rollouts_says_so() -> None:
    run = solved_run(group_size=4, prompts_per_step=64)
    assert IN_PART not in replay_run(run).notes
    assert run.rollouts is not None
    part = replace(run, rollouts=run.rollouts.filter(pl.col("step") % 10 == 0))
    assert IN_PART in replay_run(part).notes


@each_case(
    ("rows", "settings"),
    [
        (laid_out(lambda prompt, _: prompt // 16, 3), {}),
        (laid_out(lambda prompt, _: prompt // 80, 3), {}),  # of two batches in turn
        (laid_out(lambda *_: 0, 5), {}),  # of one batch
        # of prompts drawn anew each time, of which most come back at once
        (laid_out(lambda *_: 0, 12).filter(pl.struct("step", "prompt").hash(1) % 10 < 7), {}),
        # said to be whole
        (laid_out(halves), {"group_size": 4}),
        # rollouts without a reward are left out
        (
            laid_out(lambda prompt, _: prompt // 16, 3)
            .gather_every(2, 1)
            .sample(fraction=0.9, seed=1),
            {},
        ),
    ],
)
def test_prompts_that_come_back_are_no_torn_groups(
    rows: pl.DataFrame, settings: dict[str, int]
) -> None:
    run = replace(solved_run(**settings), rollouts=rows)
    replayed = replay_run(run)
    assert replayed.replay is not None
    names = [row[0] for row in replay_grids(replayed)[0].rows]
    sizes = rows.group_by("step", "prompt_id").len()["len"]
    assert any("As logged" in name for name in names) == (sizes.n_unique() == 1)


def test_a_prompt_drawn_twice_in_one_row_tears_no_group() -> None:
    rng = np.random.default_rng(5)
    chosen_TP = [rng.choice(150, 16, replace=False) for _ in range(100)]
    chosen_TP[50][:2] = 7
    rows = pl.DataFrame(
        [
            {"step": step, "prompt_id": int(prompt), "prompt": f"p{prompt}"}
            | {"completion": "a", "reward": float(rng.random() < 0.4)}
            for step, chosen_P in enumerate(chosen_TP)
            for prompt in chosen_P
            for _ in range(8)
        ]
    )
    assert replay_run(replace(solved_run(), rollouts=rows)).replay is not None


def test_a_share_of_zero_variance_groups_without_their_size_asks_for_the_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.csv"
    rows = [f"{step},{0.5 + step % 3 / 50},{0.3 + step % 2 / 10}" for step in range(60)]
    log.write_text("\n".join(["step,reward,frac_reward_zero_std", *rows]))
    assert "got none: give --set group_size=G" in refused(capsys, "replay", str(log))
    plain = printed(capsys, "replay", str(log), "--set", "group_size=8")
    assert "dynamic sampling needs" in plain["status"]
