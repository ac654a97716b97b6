"""Every real log in three folders: it opens as the manifest says, or is refused with one
sentence.
"""

from __future__ import annotations

import csv
import json
import re
import runpy
from pathlib import Path

import pytest
from tests.cases import each_case

from groupwise.errors import UnreadableRunError
from groupwise.readers import run_record
from groupwise.record.run import RunRecord

# What is no log of one run, by its path, and the words of the message that say so.
SETTINGS, SUMMARY = (
    r"which holds settings.*give the log, and this file with --config",
    r"a summary or something else and no rows of steps",
)
NO_METRIC, SEVERAL = r"neither steps nor a known metric", r"which holds \d+ runs: add one of #"
REFUSED = {
    "MANIFEST.md": r"expected rows such as .*, got none",
    "hard/LABELS.tsv": NO_METRIC,
    "*.config.json": SETTINGS,
    "*.run_summary.json": SETTINGS,
    "trl/*.training_metadata.json": SETTINGS,
    "sweeps/*.yaml": SETTINGS,
    "other/tinkerlab_p2_length_bias_qwen3_8b.json": SETTINGS,  # the ends of several runs, no steps
    # one score; those of the checkpoints open, by step
    "*.baseline_avg_heldout_f_g_scores.json": SUMMARY,
    "*B__g__Easy.avg_heldout_f_g_scores.json": SUMMARY,
    # one accuracy on held-out questions
    "sweeps/qwen25_7b_rho_sweep/eval_rho*.log": r"none of them|got none",
    "sweeps/tinkerlab_llama33_70b_seeds.json": SEVERAL,
    "sweeps/tinkerlab_wave6_ablations.json": SEVERAL,
    "hard/grpo_off_policy_eval_points.csv": SEVERAL,
    "hard/grpo_learning_rate_eval_points.csv": SEVERAL,
    "rollouts/tinkerlab_p1b_*": NO_METRIC,  # pass@k of a fixed policy
    "benchmarks/*.jsonl": NO_METRIC,
    "benchmarks/*.parquet": r"expected rows with numbers, got none",
    "hard/qwen_gaokao2023en.test.jsonl": NO_METRIC,
    "verl/verlmaze_crash_before_step1.log": r"rows such as .*, got none .* NotImplementedError \(reward_score/__init__.py, line 37\)",
    "hard/formats/FACTS.tsv": NO_METRIC,
    "hard/formats/agent_opd__run-dq9a4cex.wandb": r"has no reward and looks like fine-tuning",
    "hard/formats/deepclima__logging.jsonl": r"has no reward and looks like fine-tuning",
    "hard/formats/fairrlvr__run-uqd89a8t.wandb": r"has no reward and looks like profiling",
    "hard/formats/*batch_std.log": r"expected rows such as .*, got none .* OutOfMemoryError",
    "hard/formats/cotcompress__*": r"holds 4 runs",
    "wandb/*/run-6h0pio98.wandb": r"wait for its first row",
    "tensorboard/wordle4070/*.lara_TUF.27716.0": r"wait for its first row",
}


PARTS = 5


def test_each_reason_of_a_refusal_is_that_of_a_file(shared_data: Path) -> None:
    files = [path.relative_to(shared_data) for path in shared_data.rglob("*") if path.is_file()]
    assert len(files) > 190
    assert [pattern for pattern in REFUSED if not any(file.match(pattern) for file in files)] == []


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_every_file_opens_or_is_refused_with_a_sentence(shared_data: Path, part: int) -> None:
    """Those of a part."""
    files = [path for path in sorted(shared_data.rglob("*")) if path.is_file()]
    for path in files[part::PARTS]:
        why = [pattern for pattern in REFUSED if path.relative_to(shared_data).match(pattern)]
        if why:
            with pytest.raises(UnreadableRunError, match=r"^expected [^\n]{20,400}\Z") as caught:
                run_record(path)
            assert re.search(REFUSED[why[0]], str(caught.value)), (path, str(caught.value))
            continue
        record = run_record(path)
        record.validate()
        assert record.metrics(), path
        assert all(note.isprintable() for note in record.notes), path


@each_case(
    ("file", "reader", "rows", "last", "window", "reward"),
    [
        (
            "trl/imjonezz_llama31_8b_gsm8k_G6.trainer_state.json",
            "trl",
            250,
            250,
            1.0,
            1.3333333730697632,
        ),
        ("trl/wordle_qwen05b_4090_ckpt400.trainer_state.json", "trl", 400, 400, 1.0, None),
        ("trl/qwen35_9b_rho0.70_seed44.step_logs.json", "json", 40, 200, 5.0, 0.0125),
        ("trl/juncylu_qwen25vl3b_dapo_120531.run_terminal.md", "trl_console", 49, 490, 10.0, 2.6),
        ("sweeps/qwen25_7b_rho_sweep/rho0.10_seed42.log", "trl_console", 40, 200, 5.0, 0.925),
        ("sweeps/qwen35_9b_g4/drgrpo_g4s_seed42.step_stats.json", "json", 200, 199, 1.0, None),
        (
            "sweeps/cs336_shibuki/grpo_off_policy_sweep/broad_e2_tb64.metrics.jsonl",
            "jsonl",
            41,
            40,
            1.0,
            None,
        ),
    ],
)
def test_steps_windows_and_rewards(
    shared_data: Path,
    file: str,
    reader: str,
    rows: int,
    last: int,
    window: float,
    reward: float | None,
) -> None:
    record = run_record(shared_data / file)
    assert (record.sources[0].reader, len(record.steps), record.steps["step"][-1]) == (
        reader,
        rows,
        last,
    )
    assert record.steps["window"].unique().to_list() == [window]
    if reward is not None:
        assert record.steps[record.column("reward")].drop_nulls()[-1] == pytest.approx(reward)


def test_a_later_checkpoint_continues_the_earlier(shared_data: Path) -> None:
    early, late = (
        run_record(shared_data / "trl" / f"wordle_qwen05b_4090_ckpt{last}.trainer_state.json")
        for last in (300, 400)
    )
    assert late.steps.head(300).select(early.steps.columns).equals(early.steps)


def test_old_keys_are_within_groups(shared_data: Path) -> None:
    record = run_record(shared_data / "trl" / "imjonezz_llama31_8b_gsm8k_G6.trainer_state.json")
    assert record.column("reward_std_within_group") == "reward_std"
    assert record.column("completion_length") == "completion_length"
    assert record.column("reward/correctness_reward_func") == "rewards/correctness_reward_func"


def test_a_notebook_and_its_table_agree(shared_data: Path) -> None:
    for notebook in (shared_data / "other" / "unsloth_nb").glob("*.training_cell.ipynb"):
        table = notebook.with_name(notebook.name.replace(".training_cell.ipynb", ".table.csv"))
        assert run_record(notebook).steps.equals(run_record(table).steps)


def test_event_streams_keep_evaluations_apart_and_count_updates(shared_data: Path) -> None:
    record = run_record(
        shared_data
        / "sweeps"
        / "cs336_shibuki"
        / "grpo_off_policy_sweep"
        / "broad_e2_tb64.metrics.jsonl"
    )
    assert record.steps["optimizer_updates"][-1] == 320.0
    assert record.steps["eval/reward"].drop_nulls().len() == 9
    assert record.steps["reward"].null_count() == 1
    assert (record.config.value("group_size"), record.config.value("prompts_per_step")) == (8, 32)


def test_a_step_of_several_groups_is_their_mean(shared_data: Path) -> None:
    path = shared_data / "sweeps" / "qwen35_9b_g4" / "drgrpo_g4s_seed42.step_stats.json"
    rows = [row["mean_reward"] for row in json.loads(path.read_text()) if row["step"] == 7]
    record = run_record(path)
    assert record.steps["mean_reward"][7] == pytest.approx(sum(rows) / len(rows))
    assert "at most 4 per step" in record.notes[0]


def test_a_reward_that_was_never_written(shared_data: Path) -> None:
    record = run_record(
        shared_data / "sweeps" / "qwen35_9b_gates_g2" / "rho0.70_seed42.csd_logs.json"
    )
    assert len(record.steps) == 200
    meaning = record.meaning("reward_mean")
    assert meaning is not None
    assert meaning.unavailable
    assert record.column("p") == "p"


@pytest.mark.slow
def test_console_and_rollouts_of_one_run_agree(shared_data: Path) -> None:
    """verl printed the mean score of the 64 rollouts that it dumped: equal to the last digit,
    for both are sums of 0 and 1.
    """
    console = run_record(shared_data / "verl" / "leonopus_qwen3_4b_gsm8k_G4_full125.log")
    dump = run_record(shared_data / "rollouts" / "leonopus_verl_qwen3_4b_run1.slim.jsonl")
    assert console.steps["step"].to_list() == dump.steps["step"].to_list() == list(range(1, 126))
    printed, counted = (
        console.steps[console.column("reward")].to_list(),
        dump.steps[dump.column("reward")].to_list(),
    )
    assert printed == pytest.approx(counted, abs=1e-12)
    assert (console.config.value("group_size"), console.config.value("prompts_per_step")) == (4, 16)
    assert dump.rollouts is not None
    assert dump.rollouts.group_by("step", "prompt_id").len()["len"].unique().to_list() == [4]


def test_settings_that_verl_printed(shared_data: Path) -> None:
    smoke = run_record(
        shared_data / "verl" / "leonopus_qwen3_4b_smoke1_v4.log"
    )  # a warning stands in the middle of its configuration
    assert (
        smoke.config.value("learning_rate"),
        smoke.config.value("kl_in"),
        smoke.config.value("group_size"),
    ) == (1.7e-5, "none", 4)
    first = run_record(
        shared_data / "verl" / "verldata_Qwen2.5-0.5B-bsz256_2-prompt1024-resp512-0.567.log"
    )
    assert (
        first.config.value("kl_in"),
        first.config.value("kl_weight"),
        first.config.value("updates_per_step"),
    ) == ("reward", 0.001, 4)
    assert first.steps[first.column("eval/reward")].drop_nulls().max() == 0.579


def test_an_offline_run_of_wandb_and_its_event_file(shared_data: Path) -> None:
    record = run_record(shared_data / "wandb" / "actionr1_offline-run-20250406_213620-zmt4w4as")
    assert (
        len(record.steps),
        record.config.value("group_size"),
        record.config.value("kl_weight"),
    ) == (61, 8, 0.04)
    assert record.column("reward_std_within_group") == "train/reward_std"
    events = run_record(next((shared_data / "tensorboard").glob("actionr1*")))
    assert (len(events.steps), events.config.value("framework")) == (60, "trl")


@pytest.mark.slow
def test_a_folder_of_restarts_is_the_last_run(shared_data: Path) -> None:
    folder = shared_data / "tensorboard" / "wordle4070"
    record, last = run_record(folder), run_record(max(folder.iterdir()))
    assert len(record.steps) == 300
    assert record.steps["train/reward"].equals(last.steps["train/reward"])
    assert any("second run in the same log" in note for note in record.notes)


def test_an_asynchronous_trainers_events(shared_data: Path) -> None:
    path = shared_data / "other" / "leonopus_twinkle_qwen3_4b_run1.metrics.jsonl"
    events = [json.loads(line) for line in path.read_text().splitlines()]
    rewards = {
        event["partition_id"]: event["metrics"]["reward"]
        for event in events
        if event["event"] == "train_step_done"
    }
    record = run_record(path)
    assert (record.sources[0].reader, len(record.steps)) == ("events", 125)
    assert sorted(record.steps["reward"].to_list()) == sorted(rewards.values())
    assert record.steps["reward"][7] == next(
        value for key, value in rewards.items() if key.endswith("train_7")
    )
    assert record.steps[record.column("dead_group_share")].is_between(0, 1).all()


def test_one_run_of_a_sweep(shared_data: Path) -> None:
    record: RunRecord = run_record(
        f"{shared_data}/sweeps/tinkerlab_wave6_ablations.json#w6_temp0.2_r32_b2"
    )
    assert len(record.steps) == 30
    assert record.config.value("temperature") == 0.2
    assert record.config.value("group_size") == 8


def test_the_tables_cells_are_kept(shared_data: Path) -> None:
    path = shared_data / "other" / "unsloth_nb" / "gpt-oss-_20B_-GRPO.table.csv"
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    record = run_record(path)
    assert record.steps["rewards / speed_check / std"].to_list() == [
        float(row["rewards / speed_check / std"]) for row in rows
    ]


@pytest.mark.slow
def test_the_facts_of_every_run(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At least 97 % of the facts that the logs hold are as `scripts/check_readers.py` parses
    them by itself.
    """
    script = Path(__file__).resolve().parents[2] / "scripts" / "check_readers.py"
    monkeypatch.setattr("sys.argv", [script.name, "--data", str(shared_data)])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_path(str(script), run_name="__main__")
