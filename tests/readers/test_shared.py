"""Every real log in three folders: it opens as the manifest says, or is refused with one sentence."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from groupwise.errors import UnreadableRunError
from groupwise.readers import open_run
from groupwise.record import RunRecord

FOLDERS = ("trl", "other/unsloth_nb", "sweeps")
REFUSED = (
    "config.json", "run_summary.json", ".yaml", "training_metadata.json", "tinkerlab_llama33_70b_seeds.json",
    "tinkerlab_wave6_ablations.json",
)  # fmt: skip


def is_refused(path: Path) -> bool:
    return path.name.endswith(REFUSED) or path.name.startswith("eval_rho")


def test_every_file_opens_or_is_refused_with_a_sentence(shared_data: Path) -> None:
    files = [path for folder in FOLDERS for path in sorted((shared_data / folder).rglob("*")) if path.is_file()]
    assert len(files) > 100
    for path in files:
        if is_refused(path):
            with pytest.raises(UnreadableRunError, match=r"^expected [^\n]{20,400}\Z"):
                open_run(path)
            continue
        record = open_run(path)
        record.validate()
        assert record.metrics(), path
        assert all(note.isprintable() for note in record.notes), path


@pytest.mark.parametrize(
    ("file", "reader", "rows", "last", "window", "reward"),
    [
        ("trl/imjonezz_llama31_8b_gsm8k_G6.trainer_state.json", "trl", 250, 250, 1.0, 1.3333333730697632),
        ("trl/wordle_qwen05b_4090_ckpt400.trainer_state.json", "trl", 400, 400, 1.0, None),
        ("trl/qwen35_9b_rho0.70_seed44.step_logs.json", "json", 40, 200, 5.0, 0.0125),
        ("trl/juncylu_qwen25vl3b_dapo_120531.run_terminal.md", "trl_console", 49, 490, 10.0, 2.6),
        ("sweeps/qwen25_7b_rho_sweep/rho0.10_seed42.log", "trl_console", 40, 200, 5.0, 0.925),
        ("sweeps/qwen35_9b_g4/drgrpo_g4s_seed42.step_stats.json", "json", 200, 199, 1.0, None),
        ("sweeps/cs336_shibuki/grpo_off_policy_sweep/broad_e2_tb64.metrics.jsonl", "jsonl", 41, 40, 1.0, None),
    ],
)
def test_steps_windows_and_rewards(
    shared_data: Path, file: str, reader: str, rows: int, last: int, window: float, reward: float | None
) -> None:
    record = open_run(shared_data / file)
    assert (record.sources[0].reader, len(record.steps), record.steps["step"][-1]) == (reader, rows, last)
    assert record.steps["window"].unique().to_list() == [window]
    if reward is not None:
        assert record.steps[record.column("reward")].drop_nulls()[-1] == pytest.approx(reward)


def test_a_later_checkpoint_continues_the_earlier(shared_data: Path) -> None:
    early, late = (open_run(shared_data / "trl" / f"wordle_qwen05b_4090_ckpt{last}.trainer_state.json") for last in (300, 400))
    assert late.steps.head(300).select(early.steps.columns).equals(early.steps)


def test_old_keys_are_within_groups(shared_data: Path) -> None:
    record = open_run(shared_data / "trl" / "imjonezz_llama31_8b_gsm8k_G6.trainer_state.json")
    assert record.column("reward_std_within_group") == "reward_std"
    assert record.column("completion_length") == "completion_length"
    assert record.column("reward/correctness_reward_func") == "rewards/correctness_reward_func"


def test_a_notebook_and_its_table_agree(shared_data: Path) -> None:
    for notebook in (shared_data / "other" / "unsloth_nb").glob("*.training_cell.ipynb"):
        table = notebook.with_name(notebook.name.replace(".training_cell.ipynb", ".table.csv"))
        assert open_run(notebook).steps.equals(open_run(table).steps)


def test_event_streams_keep_evaluations_apart_and_count_updates(shared_data: Path) -> None:
    record = open_run(shared_data / "sweeps" / "cs336_shibuki" / "grpo_off_policy_sweep" / "broad_e2_tb64.metrics.jsonl")
    assert record.steps["optimizer_updates"][-1] == 320.0
    assert record.steps["eval/reward"].drop_nulls().len() == 9
    assert record.steps["reward"].null_count() == 1
    assert (record.config.value("group_size"), record.config.value("prompts_per_step")) == (8, 32)


def test_a_step_of_several_groups_is_their_mean(shared_data: Path) -> None:
    path = shared_data / "sweeps" / "qwen35_9b_g4" / "drgrpo_g4s_seed42.step_stats.json"
    rows = [row["mean_reward"] for row in json.loads(path.read_text()) if row["step"] == 7]
    record = open_run(path)
    assert record.steps["mean_reward"][7] == pytest.approx(sum(rows) / len(rows))
    assert "up to 4 rows a step" in record.notes[0]


def test_a_reward_that_was_never_written(shared_data: Path) -> None:
    record = open_run(shared_data / "sweeps" / "qwen35_9b_gates_g2" / "rho0.70_seed42.csd_logs.json")
    assert len(record.steps) == 200
    meaning = record.meaning("reward_mean")
    assert meaning is not None
    assert meaning.unavailable
    assert record.column("p") == "p"


def test_one_run_of_a_sweep(shared_data: Path) -> None:
    record: RunRecord = open_run(f"{shared_data}/sweeps/tinkerlab_wave6_ablations.json#w6_temp0.2_r32_b2")
    assert len(record.steps) == 30
    assert record.config.value("temperature") == 0.2
    assert record.config.value("group_size") == 8


def test_the_tables_cells_are_kept(shared_data: Path) -> None:
    path = shared_data / "other" / "unsloth_nb" / "gpt-oss-_20B_-GRPO.table.csv"
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    record = open_run(path)
    assert record.steps["rewards / speed_check / std"].to_list() == [float(row["rewards / speed_check / std"]) for row in rows]
