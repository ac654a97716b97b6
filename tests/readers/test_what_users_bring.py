"""Small logs by hand, each with one habit of the logs that users hand over: what opens, as which
runs, and with which settings.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cases import each_case
from tests.golden.sentences import says

from groupwise.diagnostics.judge import judge
from groupwise.diagnostics.judgement import Status
from groupwise.errors import UnreadableRunError
from groupwise.readers import run_record, source
from groupwise.readers.find import run_records
from groupwise.record.run import RecordWriter, RunRecord


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write rows as JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def settings(record: RunRecord) -> dict[str, Any]:
    """Return the known settings but those that every log has."""
    return {
        name: setting.value
        for name, setting in record.config.known().items()
        if name not in ("framework", "logging_steps")
    }


def rows(steps: int = 6, **constant: float) -> list[dict[str, Any]]:
    return [{"step": step, "reward": step / 10, **constant} for step in range(1, steps + 1)]


@each_case(
    ("log", "expected"),
    [
        (
            [row | {"lr": 2.0 ** -row["step"]} for row in rows()],
            {"learning_rate": 0.5, "learning_rate_schedule": "from 0.5 to 0.015625"},
        ),
        (
            [row | {"learning rate(param group 1)": "2e-5"} for row in rows()],
            {"learning_rate": 2e-5, "learning_rate_schedule": "constant"},
        ),
        (
            rows(group_size=8, num_questions=4, kl_coef=0.01),
            {"group_size": 8, "prompts_per_step": 4, "kl_weight": 0.01},
        ),
        (
            rows(num_generations=8, optimizer_updates_per_rollout_batch=4),
            {
                "group_size": 8,
                "refresh_interval": 4,
                "lag_kind": "refresh",
                "updates_per_step": 4.0,
            },
        ),
        (
            rows(
                rollout_batch_size=64, group_size=8, train_batch_size=16, epochs_per_rollout_batch=2
            ),
            {
                "group_size": 8,
                "prompts_per_step": 8,
                "refresh_interval": 8,
                "lag_kind": "refresh",
                "updates_per_step": 8.0,
            },
        ),
        ([row | {"optimizer_step": 3 * row["step"]} for row in rows()], {"updates_per_step": 3.0}),
        (rows(group=8, loss=0.0, beta=0.04), {}),  # columns that may be measured
        ([row | {"group_size": row["step"]} for row in rows()], {}),
    ],
)
def test_settings_come_from_columns(
    tmp_path: Path, log: list[dict[str, Any]], expected: dict[str, Any]
) -> None:
    assert settings(run_record(written(tmp_path / "log.jsonl", log))) == expected


def test_settings_stand_beside_the_rows(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(
        json.dumps(
            {
                "lr": 3e-5,
                "group": 8,
                "kl_beta": 0.1,
                "use_kl_loss": False,
                "reward_trace": [0.5, 1, 0.5],
            }
        )
    )
    record = run_record(tmp_path / "run.json")
    assert settings(record) == {
        "learning_rate": 3e-5,
        "group_size": 8,
        "kl_weight": 0.0,
        "kl_in": "none",
    }
    assert record.steps[record.column("reward")].to_list() == [0.5, 1, 0.5]


def test_the_journal_of_a_record_is_the_record(tmp_path: Path) -> None:
    with RecordWriter(tmp_path / "run") as writer:
        writer.append({"step": 1, "reward": 0.5})
    assert run_record(tmp_path / "run" / "journal.jsonl").steps["reward"].to_list() == [0.5]


def exported(run: str, level: float) -> list[dict[str, Any]]:
    """Rows of a tracker's export, one metric after the other, each at steps of its own."""
    rewards = [
        {"run_name": run, "metric": "reward", "step": step, "value": level * step}
        for step in range(1, 9)
    ]
    return [
        *rewards,
        *(
            {"run_name": run, "metric": "actor/entropy", "step": step, "value": 1 / step}
            for step in range(2, 9, 2)
        ),
    ]


LONG = [*exported("a", 0.5), *exported("b", 0.25)]


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_a_long_table_is_put_side_by_side_run_by_run(form: str, tmp_path: Path) -> None:
    path = tmp_path / f"export.{form}"
    if form == "jsonl":
        written(path, LONG)
    else:
        path.write_text(
            "\n".join([",".join(LONG[0]), *(",".join(map(str, row.values())) for row in LONG)])
        )
    runs = {record.name: record for record in run_records(path)}
    assert list(runs) == ["a", "b"]
    for name, level in (("a", 0.5), ("b", 0.25)):
        steps = runs[name].steps
        assert steps["step"].to_list() == list(range(1, 9))
        assert steps["reward"].to_list() == [level * step for step in range(1, 9)]
        assert steps["actor/entropy"].to_list() == [
            None if step % 2 else 1 / step for step in range(1, 9)
        ]


def test_a_table_with_a_name_and_a_value_beside_its_reward_is_not_long(tmp_path: Path) -> None:
    log = [row | {"name": f"row {row['step'] % 2}", "value": 0.25} for row in rows()]
    record = run_record(written(tmp_path / "log.jsonl", log))
    assert record.steps["reward"].to_list() == [row["reward"] for row in rows()]
    assert record.steps["value"].to_list() == [0.25] * 6


def test_phases_of_one_run_are_no_types_of_events(tmp_path: Path) -> None:
    log = [row | {"phase": "broad" if row["step"] < 4 else "focused"} for row in rows()]
    assert run_record(written(tmp_path / "log.jsonl", log)).steps["reward"].to_list() == [
        row["reward"] for row in rows()
    ]


def test_a_campaign_with_failed_entries_holds_the_others(tmp_path: Path) -> None:
    entries = [
        {"tag": f"r{n}", "status": "failed", "error": "out of memory", "steps": 30}
        for n in range(3)
    ]
    entries += [
        {
            "tag": "good",
            "status": "completed",
            "lr": 1e-5,
            "steps": 3,
            "reward_trace": [0.25, 0.5, 1.0],
        }
    ]
    for whole in (entries, {"wave": 1, "results": entries}):
        (tmp_path / "campaign.json").write_text(json.dumps(whole))
        record = run_record(tmp_path / "campaign.json")
        assert record.notes[0].startswith("no column is known as the step, so rows are counted")
        assert (record.name, record.steps[record.column("reward")].to_list()) == (
            "good",
            [0.25, 0.5, 1.0],
        )
        assert (
            "3 entries of the file have no log, for example failed runs: left out" in record.notes
        )


def test_restarts_at_the_first_step_replace_what_was_there_however_many(tmp_path: Path) -> None:
    log = [
        {"step": step, "reward": attempt + step / 10}
        for attempt, last in enumerate((1, 2, 1, 2, 3))
        for step in range(last + 1)
    ]
    record = run_record(written(tmp_path / "log.jsonl", log))
    assert record.steps["reward"].to_list() == [4.0, 4.1, 4.2, 4.3]


def notebook(path: Path, printed: str) -> Path:
    cell = {
        "cell_type": "code",
        "source": ["GRPOConfig(\n", "num_generations=8)"],
        "outputs": [{"output_type": "stream", "text": printed}],
    }
    path.write_text(json.dumps({"cells": [cell], "nbformat": 4}))
    return path


@pytest.mark.parametrize(
    "line",
    [
        "Step {step}/9 | loss=0.1 | reward={reward}",
        "step {step}: reward {reward} loss 0.1",
        "{{'loss': 0.1, 'reward': {reward}, 'reward_std': 0.1, 'completion_length': 3.0}}",
    ],
)
def test_a_notebook_whose_cell_printed_its_steps(line: str, tmp_path: Path) -> None:
    printed = "".join(line.format(step=step, reward=step / 10) + "\n" for step in range(1, 10))
    record = run_record(notebook(tmp_path / "run.ipynb", "Loading ...\n" + printed))
    assert record.steps["reward"].to_list() == [step / 10 for step in range(1, 10)]
    assert record.config.value("group_size") == 8
    with pytest.raises(
        UnreadableRunError, match=r"printed steps, got none.* print lines like step 1"
    ):
        run_record(notebook(tmp_path / "none.ipynb", "Loading ...\n"))


def test_a_run_whose_only_reward_is_the_held_out_one_has_it_as_its_reward(tmp_path: Path) -> None:
    log = [
        {"step": step, "loss": 0.1} | ({"val/accuracy": step / 10} if step % 3 == 0 else {})
        for step in range(10)
    ]
    record = run_record(written(tmp_path / "log.jsonl", log))
    assert record.column("reward") == "val/accuracy"
    assert "held-out" in (record.meaning("val/accuracy") or record.meanings[0]).definition
    both = run_record(written(tmp_path / "both.jsonl", [row | {"reward": 0.5} for row in log]))
    assert (both.column("reward"), both.column("eval/reward")) == ("reward", "val/accuracy")


@each_case(
    ("key", "quantity"),
    [
        ("reward_mean", "reward"),
        ("eval_score", "eval/reward"),
        ("zero_var_group_frac", "dead_group_share"),
        ("pg_clipfrac", "clip_ratio"),
        ("response_len_mean", "completion_length"),
        ("response_len_clip_ratio", "truncated_share"),
        ("success_rate", "reward"),
        ("grpo/frac_reward_zero_std", "dead_group_share"),
        ("batch/solver/fractions/too_easy", "all_right_share"),
        ("critic_score_mean", "reward"),
        ("response_length_clip_ratio", "truncated_share"),
        ("trunc_frac", "truncated_share"),
        ("trunc_rate", "truncated_share"),
        ("test/accuracy", "reward"),
    ],
)
def test_names_of_other_tools(key: str, quantity: str, tmp_path: Path) -> None:
    record = run_record(
        written(tmp_path / "log.jsonl", [{"step": step, key: step / 10} for step in range(1, 7)])
    )
    assert record.column(quantity if quantity != "eval/reward" else "reward") == key


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("batch/solver/fractions/too_easy", "batch/solver/fractions/too_hard"),  # rllm
        ("env/all/by_group/frac_all_good", "env/all/by_group/frac_all_bad"),  # Tinker
    ],
)
def test_groups_that_are_all_right_or_all_wrong_have_zero_variance(
    right: str, wrong: str, tmp_path: Path
) -> None:
    log = [
        {"step": step, "reward": 0.5, "env/all/reward/total": 0.5, right: 0.25, wrong: 0.5}
        for step in range(1, 61)
    ]
    record = run_record(written(tmp_path / "log.jsonl", log))
    assert record.steps[record.column("dead_group_share")].to_list() == [0.75] * 60
    assert (
        next(finding for finding in judge(record).checks if finding.check == "zero_variance").status
        is not Status.NOT_LOGGED
    )
    if right.startswith("batch"):  # what the trainer calls so itself stays
        logged = run_record(
            written(tmp_path / "own.jsonl", [row | {"zero_var_group_frac": 0.8} for row in log])
        )
        assert logged.column("dead_group_share") == "zero_var_group_frac"


def test_verls_logs_with_underlines_and_its_proxy_of_the_variance(tmp_path: Path) -> None:
    log = [
        {
            "step": step,
            "critic_score_mean": 0.5,
            "actor_entropy": 0.3,
            "val-core_gsm8k_acc_mean@1": 0.4,
            "variance_proxy_proxy3_pure_noise": 2.0,
        }
        for step in range(1, 5)
    ]
    record = run_record(written(tmp_path / "log.jsonl", log))
    assert record.config.value("framework") == "verl"
    names = {
        quantity: record.column(quantity)
        for quantity in ("reward", "entropy", "eval/reward", "gradient_noise")
    }
    assert names == {
        "reward": "critic_score_mean",
        "entropy": "actor_entropy",
        "eval/reward": "val-core_gsm8k_acc_mean@1",
        "gradient_noise": "variance_proxy_proxy3_pure_noise",
    }


def test_the_rewards_of_a_group_on_one_line_and_skipped_groups_on_their_own(tmp_path: Path) -> None:
    log: list[dict[str, Any]] = []
    for step in range(1, 4):
        log += [
            {
                "step": step,
                "prompt_id": n,
                "rewards": [0.0, 1.0, n, 1.0],
                "advantages": [-1, 1, 0, 1],
            }
            for n in (0, 1)
        ]
        log += [{"step": step, "prompt_id": 9, "skipped": "all rewards are equal"}]
    record = run_record(written(tmp_path / "groups.jsonl", log))
    assert record.rollouts is not None
    assert record.config.value("group_size") == 4
    assert record.steps["reward"].to_list() == [5 / 8] * 3
    assert (
        record.rollouts.filter(record.rollouts["step"] == 2)["prompt_id"].to_list()
        == [0] * 4 + [1] * 4
    )
    assert record.rollouts["advantage"].to_list()[:4] == [-1, 1, 0, 1]
    assert any("3 rows have neither" in note for note in record.notes) or any(
        "row" in note for note in record.notes
    )


def test_lines_without_a_name_are_groups_and_lists_of_lists_are_several(tmp_path: Path) -> None:
    plain = written(
        tmp_path / "plain.jsonl", [{"step": step, "rewards": [0, 1, 1]} for step in (1, 1, 2)]
    )
    nested = written(
        tmp_path / "nested.jsonl",
        [{"step": 1, "rewards": [[0, 1, 1], [1, 1, 1]]}, {"step": 2, "rewards": [[0, 1, 0]]}],
    )
    for path in (plain, nested):
        record = run_record(path)
        assert record.rollouts is not None
        assert record.rollouts["prompt_id"].to_list() == [0, 0, 0, 1, 1, 1, 0, 0, 0]


def test_a_step_that_lists_its_rewards_has_their_mean(tmp_path: Path) -> None:
    log = [
        {"step": step, "loss": 0.1, "grad_norm": 1.0, "rewards": [0, 1, 1, step]}
        for step in (1, 2, 3)
    ]
    record = run_record(written(tmp_path / "log.jsonl", log))
    assert record.steps[record.column("reward")].to_list() == [0.75, 1.0, 1.25]
    assert record.steps["grad_norm"].to_list() == [1.0] * 3


SAMPLES = [{"prompt": f"p{n // 2}", "completion": "c", "reward": float(n % 2)} for n in range(4)]


@pytest.mark.parametrize(
    "place",
    ["grpo_step_{step:06}/sample_rollouts.jsonl", "policy_{step}/train_{step}-group_0.jsonl"],
)
def test_a_folder_of_sample_rollouts(place: str, tmp_path: Path) -> None:
    for step in (2, 10, 3):
        (tmp_path / place.format(step=step)).parent.mkdir()
        written(tmp_path / place.format(step=step), SAMPLES)
    record = run_record(tmp_path)
    assert record.steps["step"].to_list() == [2, 3, 10]
    assert record.config.value("group_size") == 2
    written(tmp_path / "metrics.jsonl", rows())  # a log says more of a run
    assert run_record(tmp_path).sources[0].reader == "jsonl"


def test_the_step_of_a_rollout_is_the_number_of_its_partition(tmp_path: Path) -> None:
    log = [row | {"partition_id": f"tenant/run/train_{step}"} for step in (4, 5) for row in SAMPLES]
    assert run_record(written(tmp_path / "dump.jsonl", log)).steps["step"].to_list() == [4, 5]


def test_prime_rls_monitor_folder(tmp_path: Path) -> None:
    home = tmp_path / "monitors" / "file"
    (home / "traces").mkdir(parents=True)
    written(
        home / "metrics.jsonl",
        [
            {"step": step, "train/agg/all/a/reward/mean": step / 10, "optim/lr": 1e-6}
            for step in range(1, 6)
        ],
    )
    episodes = [
        {
            "group": {"id": "g"},
            "step": step,
            "traces": [{"rewards": {"right": 1.0}}, {"rewards": {"right": 0.0}}],
        }
        for step in (1, 2)
    ]
    written(home / "traces" / "stream.jsonl", episodes)
    record = run_record(tmp_path)
    assert (record.config.value("framework"), record.column("reward")) == (
        "prime-rl",
        "train/agg/all/a/reward/mean",
    )
    assert run_record(home / "traces" / "stream.jsonl").steps["reward"].to_list() == [0.5, 0.5]


def test_marins_log_of_one_lesson_has_its_reward_and_the_held_out_one(tmp_path: Path) -> None:
    log = [
        {
            "step": step,
            "inference.rollout/sums/avg_reward": step / 10,
            "inference.eval/sums/avg_reward": step / 20,
        }
        for step in range(6)
    ]
    run = run_record(written(tmp_path / "log.jsonl", log))
    read = {meaning.quantity: meaning.column for meaning in run.meanings}
    assert read == {
        "reward": "inference.rollout/sums/avg_reward",
        "eval/reward": "inference.eval/sums/avg_reward",
    }
    assert run.config.known()["framework"].value == "marin"


def test_held_out_scores_of_another_file_come_in_by_step(tmp_path: Path) -> None:
    log = written(tmp_path / "log.jsonl", rows())
    table = written(
        tmp_path / "scores.jsonl", [{"step": step, "accuracy": step / 20} for step in (2, 4, 99)]
    )
    checkpoints = {
        "baseline": {"avg_f": 0.0},
        "run/checkpoint_000002": {"avg_f": 0.1},
        "run/checkpoint_000004": {"avg_f": 0.2},
    }
    (tmp_path / "scores.json").write_text(json.dumps(checkpoints))
    for side, lost in ((str(table), 1), (f"{tmp_path / 'scores.json'}#avg_f", 1)):
        record = run_record(log, columns={"eval/reward": side})
        assert record.steps["eval/reward"].to_list() == [None, 0.1, None, 0.2, None, None]
        assert (record.column("eval/reward"), record.column("reward")) == ("eval/reward", "reward")
        assert any(
            f"{lost} of 3 values belong to steps that the log lacks" in note
            for note in record.notes
        )
    elsewhere = written(tmp_path / "elsewhere.jsonl", [{"step": 50, "accuracy": 0.1}])
    with pytest.raises(UnreadableRunError, match=r"give this file the step numbers of the log"):
        run_record(log, columns={"eval/reward": str(elsewhere)})


def test_what_was_not_found_is_named(tmp_path: Path) -> None:
    unknown = run_record(written(tmp_path / "log.jsonl", rows(group_size=8))).config.unknown()
    assert {"prompts_per_step", "learning_rate", "refresh_interval"} <= set(unknown)
    assert "group_size" not in unknown


@pytest.mark.parametrize(
    "whole",
    [
        {
            "lr": 1e-5,
            "runs": {"one": {"rewards": [0.1, 0.2, 0.3]}, "two": {"rewards": [0.2, 0.4, 0.6]}},
        },
        {"one": rows(3), "two": [row | {"reward": row["reward"] * 2} for row in rows(3)]},
    ],
    ids=["objects", "rows"],
)
def test_an_object_holds_runs_under_their_names(whole: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "runs.json").write_text(json.dumps(whole))
    runs = {record.name: record for record in run_records(tmp_path / "runs.json")}
    assert list(runs) == ["one", "two"]
    for name, factor in (("one", 1), ("two", 2)):
        assert runs[name].steps[runs[name].column("reward")].to_list() == pytest.approx(
            [0.1 * factor, 0.2 * factor, 0.3 * factor]
        )


def test_an_object_holds_training_and_evaluation_of_one_run(tmp_path: Path) -> None:
    whole = {
        "train": rows(4),
        "eval": [{"step": 2, "accuracy": 0.25}, {"step": 4, "accuracy": 0.5}],
    }
    (tmp_path / "run.json").write_text(json.dumps(whole))
    record = run_record(tmp_path / "run.json")
    assert record.steps[record.column("reward")].to_list() == [0.1, 0.2, 0.3, 0.4]
    assert record.steps[record.column("eval/reward")].to_list() == [None, 0.25, None, 0.5]


def test_the_rewards_of_steps_are_not_lost_for_a_shorter_list_of_rows(tmp_path: Path) -> None:
    whole = {"rewards": [0.1, 0.2, 0.3], "evaluations": [{"step": 3, "acc": 0.5}]}
    (tmp_path / "run.json").write_text(json.dumps(whole))
    assert run_record(tmp_path / "run.json").steps["rewards"].to_list() == [0.1, 0.2, 0.3]


def test_metrics_inside_the_rows_of_a_list_and_names_with_their_kind_in_brackets(
    tmp_path: Path,
) -> None:
    log = [
        {"step": step, "metrics": {"reward (mean)": step / 10, "reward (std)": 0.1}}
        for step in range(1, 5)
    ]
    (tmp_path / "run.json").write_text(json.dumps({"name": "x", "log": log}))
    record = run_record(tmp_path / "run.json")
    assert (record.column("reward"), record.column("reward_std_ambiguous")) == (
        "reward (mean)",
        "reward (std)",
    )


def test_groups_besides_those_that_teach_have_zero_variance(tmp_path: Path) -> None:
    record = run_record(
        written(tmp_path / "log.jsonl", [row | {"frac_groups_active": 0.75} for row in rows()])
    )
    assert record.steps[record.column("dead_group_share")].to_list() == [0.25] * 6


@each_case(
    ("each", "seconds"),
    [
        ([45.0] * 4, [45.0, 90.0, 135.0, 180.0]),  # one number in all rows is what each step took
        ([30.0, 29.0, 31.0, 28.0], [30.0, 59.0, 90.0, 118.0]),  # so is what falls as often as not
        ([10.0, 20.0, 30.0, 40.0], [10.0, 20.0, 30.0, 40.0]),  # a clock
        ([30.0, 30.1, 30.2, 30.3], None),  # hardly rises for its height: nobody can tell
    ],
)
def test_a_clocks_name_may_hold_what_each_step_took(
    tmp_path: Path, each: list[float], seconds: list[float] | None
) -> None:
    rows = [
        {"step": 1 + row, "reward": 0.1 * row, "seconds": value} for row, value in enumerate(each)
    ]
    steps = run_record(written(tmp_path / "log.jsonl", rows)).steps
    assert (steps["seconds"].to_list() if steps["seconds"].count() else None) == seconds


def test_tokens_of_each_step_add_up(tmp_path: Path) -> None:
    rows = [
        {"step": 1 + row, "critic/score/mean": 0.1 * row, "perf/total_num_tokens": 100 + row}
        for row in range(4)
    ]
    assert run_record(written(tmp_path / "log.jsonl", rows)).steps["tokens"].to_list() == [
        100,
        201,
        303,
        406,
    ]


def test_a_reward_after_its_penalty_is_the_reward_where_no_other_is(tmp_path: Path) -> None:
    record = run_record(
        written(
            tmp_path / "log.jsonl",
            [{"step": 1 + row, "critic/rewards/mean": 0.1 * row} for row in range(9)],
        )
    )
    assert record.column("reward") == "critic/rewards/mean"


def test_a_state_says_where_its_run_ends(tmp_path: Path) -> None:
    history = [{"step": 1 + row, "reward": 0.1 * row} for row in range(9)]
    path = tmp_path / "trainer_state.json"
    path.write_text(json.dumps({"global_step": 9, "max_steps": 40, "log_history": history}))
    assert run_record(path).config.value("planned_steps") == 40


def test_a_hidden_folder_is_no_run_of_the_folder_around_it(tmp_path: Path) -> None:
    for name in ("a", "b", ".sweep"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "trainer_state.json").write_text(
            json.dumps({"log_history": [{"step": 1, "reward": 0.5}]})
        )
    with pytest.raises(UnreadableRunError, match=r"holds 2 \(a, b\)"):
        run_record(tmp_path)


def test_logs_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    for name in ("a", "b", ".hidden"):
        (tmp_path / name).mkdir()
        written(
            tmp_path / name / "metrics.jsonl",
            [{"step": 1 + row, "reward": 0.1 * row} for row in range(9)],
        )
    with pytest.raises(UnreadableRunError, match=r"holds 2 \(a/metrics.jsonl, b/metrics.jsonl\)"):
        run_record(tmp_path)


@each_case(
    ("name", "text"),
    [
        ("run.jsonl", "".join(json.dumps(row) + "\n" for row in rows(9))),
        ("run.csv", "step,reward\n" + "".join(f"{step},0.{step}\n" for step in range(1, 10))),
        (
            "run.log",
            "".join(f"step:{step} - critic/score/mean:0.{step}\n" for step in range(1, 10)),
        ),
    ],
)
def test_a_log_behind_blank_lines(tmp_path: Path, name: str, text: str) -> None:
    for blank in (70_000, 2_000_000):
        (tmp_path / name).write_text(blank * "\n" + text)
        assert len(run_record(tmp_path / name).steps) == 9


def test_the_settings_of_verl_may_be_its_first_line(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(
        "{'actor_rollout_ref': {'actor': {'optim': {'lr': 1e-06}},\n"
        "                       'rollout': {'n': 8}},\n"
        " 'data': {'train_batch_size': 64}}\n"
        + "".join(f"step:{step} - critic/score/mean:0.{step}\n" for step in range(1, 10))
    )
    record = run_record(tmp_path / "run.log")
    assert record.sources[0].reader == "verl_console"
    assert record.config.value("group_size") == 8
    assert record.config.value("learning_rate") == 1e-6


@each_case(
    ("old", "new", "quantity"),
    [
        ("completion_length", "completions/mean_length", "completion_length"),
        ("rewards/correct", "rewards/correct/mean", "reward/correct"),
        ("reward", "train/reward", "reward"),
        ("response_length", "completions/mean_length", "completion_length"),
    ],
)
def test_a_column_that_an_upgrade_amid_the_run_renames_is_one(
    tmp_path: Path, old: str, new: str, quantity: str
) -> None:
    log = [{"step": step, "reward": 0.5, "loss": 0.1, old: step / 8} for step in range(1, 5)]
    log += [{"step": step, "loss": 0.1, new: step / 8} for step in range(5, 9)]
    record = run_record(written(tmp_path / "log.jsonl", log))
    assert record.steps[record.column(quantity)].to_list() == [step / 8 for step in range(1, 9)]
    (note,) = [note for note in record.notes if "is called" in note]
    says("readers/what_users_bring/2", note, old=old, new=new)
    # as far as a row has both, they are two
    log[4][old] = 7.0
    record = run_record(written(tmp_path / "log.jsonl", log))
    assert record.steps[old].null_count() == 3
    (note,) = [note for note in record.notes if "as two columns" in note]
    says("readers/what_users_bring/3", note, old=old, new=new, quantity=quantity)
    # what is logged beside the other to the end is not called otherwise
    log[7][old] = 7.0
    record = run_record(written(tmp_path / "log.jsonl", log))
    assert not any("stay apart" in note or "one column" in note for note in record.notes)


# What a stranger's table or console has around the numbers.

REWARDS = [(step, step / 20, 0.5) for step in range(1, 13)]


@each_case(
    ("name", "above", "cell", "column"),
    [
        (
            "run.tsv",
            "# run: a\n# rate: 1e-6, beta: 0\nstep\treward\tkl\n",
            "{}\t{}\t{}\n",
            "reward",
        ),
        ("savetxt.csv", "# step,reward,kl\n", "{},{},{}\n", "reward"),
        ("percent.csv", "step,reward (%),kl\n", "{},{},{}\n", "reward (%)"),
        ("monitor.csv", '#{"a": 1, "b": 2, "c": 3}\nstep,reward,kl\n', "{},{},{}\n", "reward"),
    ],
)
def test_a_table_below_comments_or_with_a_unit_behind_its_reward(
    tmp_path: Path, name: str, above: str, cell: str, column: str
) -> None:
    path = tmp_path / name
    path.write_text(above + "".join(cell.format(*row) for row in REWARDS))
    record = run_record(path)
    assert record.column("reward") == column
    assert record.steps[column].to_list() == [reward for _, reward, _ in REWARDS]
    assert record.steps["step"].to_list() == [step for step, _, _ in REWARDS]


def test_the_function_that_printed_a_line_is_no_step(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(
        "".join(
            f"2026-03-01 12:00:{step:02d}.123 | INFO     | train:step:88 - step={step} | "
            f"reward={reward} | kl={kl}\n"
            for step, reward, kl in REWARDS
        )
    )
    record = run_record(tmp_path / "run.log")
    assert record.steps["step"].to_list() == [step for step, _, _ in REWARDS]
    assert record.steps["reward"].to_list() == [reward for _, reward, _ in REWARDS]


@each_case(
    ("text", "said"),
    [
        ("version https://git-lfs.github.com/spec/v1\noid sha256:4d\nsize 9\n", "run git lfs pull"),
        ("<!DOCTYPE html><html><body>404</body></html>", "a web page"),
    ],
)
def test_what_a_download_left_in_place_of_a_log_is_named(
    tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "log.jsonl").write_text(text)
    with pytest.raises(UnreadableRunError, match=said):
        run_record(tmp_path / "log.jsonl")


def test_objects_behind_what_a_logger_puts_first_are_rows(tmp_path: Path) -> None:
    path = tmp_path / "driver.log"
    front = "[2026-03-19 08:11:47] [agentic_pipeline.py (611)] [INFO] [DRIVER 0 / 1][PID 2201]"
    lines = []
    for step in range(12):
        lines.append(f"{front} pipeline step {step} start...")
        row = {"system/step": step, "critic/score/mean": 0.25 + step / 64, "actor/lr": 1e-6}
        lines.append(f"{front} {json.dumps(row)}")
    path.write_text("\n".join(lines))
    record = run_record(path)
    assert record.steps["step"].to_list() == list(range(12))
    assert record.values(record.column("reward"))[4] == 0.3125


def test_groups_that_a_printed_output_calls_too_old_are_counted(tmp_path: Path) -> None:
    rows = [{"step": n, "env/all/reward/total": 0.4 + n / 200, "optim/lr": 4e-5} for n in range(40)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "config.json").write_text(
        json.dumps({"groups_per_batch": 16, "dataset_builder": {"group_size": 8}})
    )
    assert not run_record(tmp_path).steps.columns.count("printed/stale_groups")
    front = "2026-07-09 12:00:00 tinker_cookbook.rl.train:1018 [INFO] [training_loop]"
    said = [f"{front} Step {n}: Samples are too stale, skipping" for n in range(40)] * 8
    (tmp_path / "logs.log").write_text("\n".join(said))
    record = run_record(tmp_path)
    assert record.values("printed/stale_groups").tolist() == [8.0] * 40
    judgement = judge(record, ended=True)
    (note,) = judgement.cause.names
    says("readers/what_users_bring/1", note)
    assert "33 % of rollouts are discarded as too old" in judgement.headline


@pytest.mark.parametrize(("skipped", "named"), [(6, True), (1, False)])
def test_groups_that_are_too_old_are_held_against_those_that_shares_tell(
    skipped: int, named: bool, tmp_path: Path
) -> None:
    mixed = [8, 5, 9, 7, 6]
    group = "env/all/by_group/frac_all"
    rows = [
        {"step": n, "env/all/reward/total": 0.4 + n / 200, f"{group}_good": 2 / 12}
        | {f"{group}_bad": (10 - mixed[n % 5]) / 12}
        for n in range(40)
    ]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)))
    said = [f"Step {n}: Samples are too stale, skipping" for n in range(40)] * skipped
    (tmp_path / "logs.log").write_text("\n".join(said))
    names = judge(run_record(tmp_path), ended=True).cause.names
    assert ("discarding stale rollouts removes slow, hard prompts" in names) is named


def test_printed_outputs_are_looked_through_up_to_one_bound_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = "[training_loop] Step 3: Samples are too stale, skipping\n"
    for name in ("a.log", "b.log", "c.log"):
        (tmp_path / name).write_text(4 * line)
    assert source.skipped_beside(None, tmp_path) == {3: 12}
    monkeypatch.setattr(source, "_FIRST_PART", 6 * len(line))
    assert source.skipped_beside(None, tmp_path) == {3: 6}
