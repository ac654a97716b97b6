"""Rewards by environment, task and seat: each is judged on its own, the worst first."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.cases import each_case

from groupwise.diagnostics.judge import judge
from groupwise.diagnostics.judgement import Environments, Judgement, State
from groupwise.diagnostics.signals import Evidence
from groupwise.diagnostics.verifier import environments_of
from groupwise.readers import run_record
from groupwise.record.run import Meaning, RunRecord
from groupwise.record.table import steps_table

ROWS = 160
Columns = dict[str, np.ndarray]
# Names of the total, of one environment or seat, and of what tells whose log it is.
TRAINERS = {
    "prime-rl": ("reward/all/mean", "reward/{}/mean", "entropy/all/mean"),
    "prime-rl agents": (
        "train/agg/all/all/reward/mean",
        "train/{}/all/all/reward/mean",
        "entropy/all/mean",
    ),
    "verl": ("critic/score/mean", "critic/score/{}/mean", "actor/pg_clipfrac"),
    "verl-agent": ("critic/score/mean", "episode/{}_success_rate", "actor/pg_clipfrac"),
    "nemo-rl": ("train/reward", "train/{}_env/reward", "train/token_mult_prob_error"),
    "nemo-gym": ("train/reward", "train/{}/reward/mean", "train/token_mult_prob_error"),
    "tinker": ("env/all/reward/total", "env/{}/reward/total", "optim/kl_sample_train_v1"),
    "open-instruct": ("scores", "objective/{}_correct_rate", "val/stop_rate"),
}
SEATS = {"seats": ("reward", "player_{}/reward", "note")}


def falling(rng: np.random.Generator) -> Columns:
    """Three environments, one of which is lost while the mean rises."""
    rises = 0.3 + 0.4 * np.linspace(0, 1, ROWS)
    lost = 0.5 / (1 + np.exp((np.arange(ROWS) - 90) / 4))
    return {
        name: level + rng.normal(0, 0.03, ROWS)
        for name, level in (("math", rises), ("code", rises - 0.1), ("games", lost))
    }


def judged(columns: Columns, trainer: str, folder: Path, *, total: bool = True) -> Judgement:
    """The judgement of the log of a trainer."""
    reward, each, mark = (TRAINERS | SEATS)[trainer]
    names = {each.format(name): values for name, values in columns.items()}
    if total:
        names |= {reward: np.mean([*columns.values()], axis=0) + np.linspace(0, 0.2, ROWS)}
    names |= {mark: np.full(ROWS, 0.002)}
    rows = [{"step": n, **{key: float(names[key][n]) for key in names}} for n in range(ROWS)]
    path = folder / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return judge(run_record(path), ended=True)


def environments(judgement: Judgement) -> Environments:
    assert judgement.environments is not None
    return judgement.environments


@each_case("trainer", TRAINERS)
def test_an_environment_that_falls_is_said_first(trainer: str, tmp_path: Path) -> None:
    judgement = judged(falling(np.random.default_rng(1)), trainer, tmp_path)
    each = environments(judgement)
    assert (judgement.state, each.count, each.fell, each.rose) == (State.WARNING, 3, 1, 2)
    assert each.worst[0].name == "games"
    assert abs(each.worst[0].before - 0.5) < 0.06
    assert abs(each.worst[0].after) < 0.03
    assert abs((each.worst[0].step or 0) - 90) < 12
    assert judgement.headline.startswith("environment games 0.5")
    assert judgement.headline.endswith("of 2 others, 2 rose.")
    assert judgement.cause.keys == ("environment",)
    shown = judgement.as_dict()["environments"]["worst"]
    assert [environment["course"] for environment in shown] == ["fell", "rose", "rose"]


def test_a_total_that_falls_with_one_environment_names_it(tmp_path: Path) -> None:
    columns = falling(np.random.default_rng(7))
    stands = {"math": 0.4 + 0.05 * columns["math"], "games": columns["games"]}
    judgement = judged(stands, "nemo-rl", tmp_path, total=False)
    assert environments(judgement).fell == 1
    rows = {**stands, "total": np.mean([*stands.values()], axis=0)}
    path = tmp_path / "total.jsonl"
    keys = {"math": "reward/math/mean", "games": "reward/games/mean", "total": "reward/all/mean"}
    mark = {"mismatch_kl/all/mean": 0.001}
    lines = [
        {"step": n, **mark, **{keys[name]: float(rows[name][n]) for name in keys}}
        for n in range(ROWS)
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    total = judge(run_record(path), ended=True)
    assert total.headline.startswith("reward 0.")
    assert "; environment games 0.5" in total.headline
    assert total.cause.keys == ("environment",)


def test_seats_that_win_from_each_other_are_no_loss(tmp_path: Path) -> None:
    columns = falling(np.random.default_rng(2))
    seats = {"0": columns["games"], "1": 1 - columns["games"]}
    judgement = judged(seats, "seats", tmp_path)
    assert (environments(judgement).fell, judgement.state) == (1, State.OK)
    lost = judged({"0": columns["games"], "1": columns["math"]}, "seats", tmp_path)
    assert (environments(lost).worst[0].kind, lost.state) == ("seat", State.WARNING)


def test_the_only_agents_of_environments_play_no_game_with_each_other(tmp_path: Path) -> None:
    """What one lost the others may have won by chance."""
    columns = falling(np.random.default_rng(8))
    rises = 0.3 + (0.5 - columns["games"]) / 2
    columns |= {"math": rises, "code": rises - 0.05}
    rows = [
        {f"train/{name}/all/policy/reward/mean": float(columns[name][n]) for name in columns}
        | {"step": n, "train/agg/all/all/reward/mean": 0.3 + n / 300, "mismatch_kl/all/mean": 0.001}
        for n in range(ROWS)
    ]
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    judgement = judge(run_record(path), ended=True)
    worst = environments(judgement).worst[0]
    assert (worst.kind, worst.name, judgement.state) == ("environment", "games", State.WARNING)


def test_all_that_fall_together_are_no_environment_of_their_own(tmp_path: Path) -> None:
    games = falling(np.random.default_rng(3))["games"]
    judgement = judged({"a": games, "b": games * 0.9, "c": games * 0.8}, "prime-rl", tmp_path)
    assert environments(judgement).fell == 3
    assert "environment" not in judgement.cause.keys


def test_environments_of_one_name_are_told_apart_by_their_columns(tmp_path: Path) -> None:
    columns = falling(np.random.default_rng(4))
    rows = [
        {
            "step": n,
            "reward/all/mean": 0.3 + n / 300,
            "entropy/all/mean": 0.4,
            "reward/games/mean": columns["games"][n],
            "train/games/all/reward/mean": columns["math"][n],
        }
        for n in range(ROWS)
    ]
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    each = environments(judge(run_record(path), ended=True))
    names = ["games (reward/games/mean)", "games (train/games/all/reward/mean)"]
    assert [prompt.name for prompt in each.worst] == names


def test_the_only_agent_of_an_environment_is_no_seat_beside_it(tmp_path: Path) -> None:
    columns = falling(np.random.default_rng(9))
    rows = [
        {"step": n, "train/agg/all/agent/reward/mean": 0.3 + n / 300, "mismatch_kl/all/mean": 0.001}
        | {
            f"train/{name}/all/{part}reward/mean": float(values[n])
            for name, values in columns.items()
            for part in ("", "agent/")
        }
        for n in range(ROWS)
    ]
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    judgement = judge(run_record(path), ended=True)
    assert environments(judgement).count == 3
    assert judgement.headline.endswith("of 2 others, 2 rose.")


def test_many_environments_stay_few_lines_and_rare_rows_are_no_fall(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    rare = {f"rare{n}": (rng.random(ROWS) < 0.05).astype(float) for n in range(300)}
    judgement = judged(rare, "prime-rl", tmp_path)
    each = environments(judgement)
    assert (each.count, each.fell, len(each.worst)) == (300, 0, 20)
    one_lost = judged(rare | falling(rng), "prime-rl", tmp_path)
    assert environments(one_lost).worst[0].name == "games"
    assert one_lost.headline.endswith("of 302 others, 8 rose.")


def test_an_environment_that_is_seldom_sampled_has_few_rows(tmp_path: Path) -> None:
    columns = falling(np.random.default_rng(6))
    columns["games"][np.arange(ROWS) % 20 > 0] = np.nan
    each = environments(judged(columns, "prime-rl", tmp_path))
    assert {prompt.name: prompt.course.value for prompt in each.worst}["games"] == "few rows"


@pytest.mark.parametrize(
    ("rows", "said"),
    [((5, 5), "2 with too few rows to tell"), ((40, 5), "0 fell, 0 rose, 1 with too few")],
)
def test_a_held_out_set_of_few_rows_is_not_said_to_stand(rows: tuple[int, int], said: str) -> None:
    steps = np.arange(1, 41)
    names = ["val/one", "val/two"]
    noise = np.random.default_rng(0).normal(0, 0.02, (2, 40))
    columns = {
        name: np.where(steps % (40 // many) == 0, 0.5 + noise[place], np.nan)
        for place, (name, many) in enumerate(zip(names, rows, strict=True))
    }
    table = steps_table(steps, {"reward": 0.5 + noise[0], **columns})
    meanings = tuple(Meaning(name, f"eval/reward/{name[4:]}", "test") for name in names)
    environments = environments_of(Evidence(RunRecord("made", table, meanings=meanings)))
    assert environments is not None
    assert environments.said.startswith(said)


@each_case("file", ["rollouts.jsonl", "rollouts.parquet"])
def test_rollouts_tell_the_reward_of_each_data_source(file: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    rows = [
        {
            "step": step,
            "prompt": f"{source.strip()} {step} {number // 4}",
            "completion": f"answer {rng.integers(10**9)}",
            "reward": float(rng.random() < chance),
            "data_source": source,
        }
        for step in range(100)
        for source, chance in (("math", 0.3 + step / 250), ("code", 0.6 if step < 60 else 0.02))
        for number in range(16)
    ]
    rows[0]["data_source"] = " math"  # as one name
    path = tmp_path / file
    if path.suffix == ".jsonl":
        path.write_text("\n".join(map(json.dumps, rows)))
    else:
        pl.DataFrame(rows).write_parquet(path)
    record = run_record(path)
    each = environments(judge(record, ended=True))
    assert (each.count, each.fell, each.worst[0].name) == (2, 1, "code")
    assert record.rollouts is not None
    assert "environment" not in record.rollouts.columns


def test_episodes_that_fail_from_the_first_row_on_are_told_by_their_level() -> None:
    rng = np.random.default_rng(0)
    reward = 0.3 + 0.3 * np.linspace(0, 1, ROWS) + rng.normal(0, 0.02, ROWS)
    for level, state in ((0.02, State.OK), (0.3, State.WARNING)):
        columns = {"reward": reward, "timeout_rate": level + rng.uniform(-0.01, 0.01, ROWS)}
        judgement = judge(RunRecord("run", steps_table(range(ROWS), columns)))
        assert judgement.state is state
        assert ("timeout_rate 30 %" in judgement.headline) == (state is State.WARNING)


@pytest.mark.parametrize(("to", "fall"), [(0.26, True), (0.51, False)])
def test_a_slow_loss_of_an_environment_of_one_prompt_a_row_is_no_noise(
    to: float, fall: bool, tmp_path: Path
) -> None:
    """Of 12 logs of 260 rows whose rows scatter by .19, told by the first and the last fifth."""
    fell = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        level = 0.52 - (0.52 - to) * np.clip((np.arange(260) - 60) / 140, 0, 1)
        wiki = np.clip(np.round(8 * (level + rng.normal(0, 0.19, 260))) / 8, 0, 1)
        math = 0.5 + 0.2 * np.linspace(0, 1, 260) + rng.normal(0, 0.05, 260)
        columns = {"train/wiki/all/reward/mean": wiki, "train/math/all/reward/mean": math}
        rows = [{"step": n, **{key: c[n] for key, c in columns.items()}} for n in range(260)]
        rows = [row | {"train/agg/all/reward/mean": float(math[n])} for n, row in enumerate(rows)]
        path = tmp_path / f"{seed}.jsonl"
        path.write_text("\n".join(map(json.dumps, rows)))
        each = environments_of(Evidence(run_record(path)))
        assert each is not None
        fell += each.fell
    assert (fell >= 11) if fall else not fell
