"""TRL's states, run folders and completions."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.cases import each_case
from tests.golden.sentences import says

from groupwise.errors import UnreadableRunError
from groupwise.readers import run_record
from groupwise.record.run import RunRecord

Row = Callable[..., dict[str, float]]
Write = Callable[..., Path]


def values(record: RunRecord, column: str) -> list[float | None]:
    """One column of the steps."""
    return record.steps[column].to_list()


def weigh(run: Path, check: float, brevity: float) -> None:
    """Write advantages as if the reward functions had these weights."""
    for path in (run / "completions").iterdir():
        table = pl.read_parquet(path).with_columns(prompt_id=pl.int_range(pl.len()) // 4)
        total = table["check"] * check + table["brevity"] * brevity
        centred = (
            table.with_columns(total=total)
            .select(pl.col("total") - pl.col("total").mean().over("prompt_id"))
            .to_series()
        )
        table.with_columns(advantage=centred).drop("prompt_id").write_parquet(path)


class TestState:
    def test_rows_windows_tokens_and_seconds(
        self, tmp_path: Path, make_row: Row, write_state: Write
    ) -> None:
        rows = [make_row(step) for step in (1, 10, 20, 30)]
        record = run_record(write_state(tmp_path / "trainer_state.json", rows, 10))
        assert values(record, "step") == [1, 10, 20, 30]
        assert values(record, "optimizer_updates") == [1.0, 10.0, 20.0, 30.0]
        assert values(record, "window") == [1.0, 9.0, 10.0, 10.0]
        assert values(record, "tokens") == [100.0, 1000.0, 2000.0, 3000.0]
        assert values(record, "seconds") == [2.0, 20.0, 40.0, 60.0]
        assert record.config.value("logging_steps") == 10
        assert record.sources[0].reader == "trl"

    def test_any_name_and_keys_in_any_order(
        self, tmp_path: Path, make_row: Row, write_state: Write
    ) -> None:
        path = write_state(
            tmp_path / "x.trainer_state.json", [make_row(step) for step in (1, 2, 3)]
        )
        state = json.loads(path.read_text())
        (tmp_path / "y").write_text(
            json.dumps(
                {"logging_steps": 1, "stateful": {"a": [1]}, "log_history": state["log_history"]}
            )
        )
        for name in ("x.trainer_state.json", "y"):
            assert values(run_record(tmp_path / name), "step") == [1, 2, 3]

    def test_bare_nan_and_infinity(self, tmp_path: Path, make_row: Row, write_state: Write) -> None:
        rows = [make_row(1, kl=float("nan")), make_row(2, kl=float("inf"))]
        path = write_state(tmp_path / "trainer_state.json", rows)
        assert "NaN" in path.read_text()
        assert values(run_record(path), "kl") == [None, float("inf")]

    def test_evaluations_join_their_step_and_the_summary_goes(
        self, tmp_path: Path, make_row: Row, write_state: Write
    ) -> None:
        rows = [
            make_row(1),
            make_row(2),
            {"epoch": 0.02, "eval_reward": 0.9, "step": 2},
            {"eval_reward": 0.8, "step": 3},
        ]
        rows.append(
            {"epoch": 0.03, "step": 3, "train_runtime": 9.0, "train_loss": 0.1, "total_flos": 0.0}
        )
        record = run_record(write_state(tmp_path / "trainer_state.json", rows))
        assert values(record, "step") == [1, 2, 3]
        assert values(record, "eval_reward") == [None, 0.9, 0.8]
        assert values(record, "reward") == [0.01, 0.02, None]
        assert "train_runtime" not in record.metrics()
        (note,) = record.notes
        says("readers/trl/3", note)
        assert record.column("eval/reward") == "eval_reward"

    def test_a_resumed_run_is_not_doubled(
        self, tmp_path: Path, make_row: Row, write_state: Write
    ) -> None:
        rows = [make_row(step) for step in (1, 2, 3, 4)] + [
            make_row(step, reward=9.0) for step in (3, 4, 5)
        ]
        record = run_record(write_state(tmp_path / "trainer_state.json", rows))
        assert values(record, "reward") == [0.01, 0.02, 9.0, 9.0, 9.0]
        assert "restarted 1 time" in record.notes[0]

    @each_case(
        ("given", "expected"),
        [(0.05, 5), (0.001, 1), (10, 10), (2.0, 2), (0, 1), ("x", 1), (None, 1)],
    )
    def test_logging_steps_as_a_share(
        self, tmp_path: Path, make_row: Row, write_state: Write, given: float, expected: int
    ) -> None:
        record = run_record(
            write_state(tmp_path / "trainer_state.json", [make_row(1), make_row(2)], given)
        )
        assert record.config.value("logging_steps") == expected

    def test_cut_off_anywhere(self, tmp_path: Path, make_row: Row, write_state: Write) -> None:
        path = write_state(tmp_path / "trainer_state.json", [make_row(step) for step in (1, 2, 3)])
        whole = path.read_text()
        seen = set()
        for cut in range(1, len(whole), 29):
            path.write_text(whole[:cut])
            try:
                record = run_record(path)
            except UnreadableRunError:
                seen.add(0)
                continue
            seen.add(len(record.steps))
            assert values(record, "step") == list(range(1, len(record.steps) + 1))
            if cut < len(whole) - 2:
                assert "cut off or damaged" in " ".join(record.notes)
        assert seen == {0, 1, 2, 3}

    @each_case("history", ["[]", "[", '["a", 1]', '[{"train_runtime": 1.0, "step": 1}]', "[{}]"])
    def test_no_rows(self, tmp_path: Path, history: str) -> None:
        (tmp_path / "trainer_state.json").write_text(
            '{"global_step": 5, "log_history": ' + history + ', "logging_steps": 1}'
        )
        with pytest.raises(UnreadableRunError):
            run_record(tmp_path / "trainer_state.json")


class TestFolder:
    def test_the_newest_checkpoint_with_what_is_around_it(self, trl_run: Path) -> None:
        record = run_record(trl_run)
        assert values(record, "step") == list(range(1, 21))
        assert record.name == "run"
        assert record.config.framework_version.value == "1.16.0"
        assert record.config.framework_version.source == "README.md of the output"
        assert record.config.value("model") == "tiny/Model-1"
        assert record.config.value("prompts_per_step") is None
        meanings = {meaning.column: meaning for meaning in record.meanings}
        assert meanings["reward_std"].quantity == "reward_std_batch"
        assert meanings["clip_ratio/high_mean"].unavailable
        assert meanings["rewards/check/mean"].quantity == "reward/check"

    @pytest.mark.parametrize("inside", ["checkpoint-20", "checkpoint-20/trainer_state.json"])
    def test_a_checkpoint_finds_its_run(self, trl_run: Path, inside: str) -> None:
        record = run_record(trl_run / inside)
        assert record.config.value("framework_version") == "1.16.0"
        assert record.rollouts is not None

    def test_checkpoints_are_numbers_and_not_words(
        self, trl_run: Path, make_row: Row, write_state: Write
    ) -> None:
        write_state(
            trl_run / "checkpoint-100" / "trainer_state.json",
            [make_row(step) for step in range(1, 101)],
        )
        (trl_run / "checkpoint-900").mkdir()
        (trl_run / "checkpoint-last").mkdir()
        assert values(run_record(trl_run), "step")[-1] == 100

    def test_the_state_saved_at_the_end_is_the_newest(
        self, trl_run: Path, make_row: Row, write_state: Write
    ) -> None:
        write_state(trl_run / "trainer_state.json", [make_row(step) for step in range(1, 26)])
        assert values(run_record(trl_run), "step")[-1] == 25

    def test_a_damaged_newest_state_falls_back(self, trl_run: Path) -> None:
        (trl_run / "checkpoint-20" / "trainer_state.json").write_text('{"log_history": [{"lo')
        record = run_record(trl_run)
        assert values(record, "step")[-1] == 10
        assert "checkpoint-20/trainer_state.json could not be read" in record.notes[0]

    def test_a_folder_of_one_run_and_of_several(self, trl_run: Path) -> None:
        assert run_record(trl_run.parent).name == "run"
        shutil.copytree(trl_run, trl_run.parent / "second")
        with pytest.raises(UnreadableRunError, match=r"holds 2 \(run, second\)"):
            run_record(trl_run.parent)

    def test_settings_files_and_what_wins(self, trl_run: Path) -> None:
        (trl_run / "args.json").write_text(
            json.dumps(
                {
                    "num_generations": 4,
                    "beta": 0.04,
                    "per_device_train_batch_size": 4,
                    "gradient_accumulation_steps": 2,
                    "lr": "x",
                }
            )
        )
        (trl_run / "config.json").write_text(
            json.dumps({"architectures": ["X"], "temperature": 0.3, "num_generations": 99})
        )
        record = run_record(trl_run, settings={"kl_weight": "0.1"})
        config = record.config
        assert (
            config.value("group_size"),
            config.value("prompts_per_step"),
            config.value("kl_weight"),
        ) == (4, 2, 0.1)
        assert config.prompts_per_step.source == "args.json, assuming one process"
        assert (config.group_size.source, config.kl_weight.source) == ("args.json", "--set")
        assert config.value("temperature") is None
        says("readers/trl/1", config.learning_rate.source)


class TestCompletions:
    def test_groups_by_position(self, trl_run: Path) -> None:
        record = run_record(trl_run, settings={"group_size": "4"})
        rollouts = record.rollouts
        assert rollouts is not None
        assert rollouts["prompt_id"].to_list() == [0, 0, 0, 0, 1, 1, 1, 1] * 3
        assert rollouts["reward"].to_list()[:3] == [0.9, -0.2, 0.0]
        assert {"prompt", "completion", "reward/check", "reward/brevity", "advantage"} <= set(
            rollouts.columns
        )
        assert any("by position, 4 rows per group (--set)" in note for note in record.notes)
        assert len([source for source in record.sources if source.reader == "trl_completions"]) == 3

    def test_groups_by_runs_of_equal_prompts_tell_the_group_size(self, trl_run: Path) -> None:
        record = run_record(trl_run)
        assert record.rollouts is not None
        assert record.rollouts["prompt_id"].to_list() == [0, 0, 0, 0, 1, 1, 1, 1] * 3
        assert record.config.value("group_size") == 4
        says("readers/trl/2", record.config.group_size.source)
        assert any("a row of equal prompts" in note for note in record.notes)

    def test_a_group_size_that_does_not_fit_is_not_used(self, trl_run: Path) -> None:
        record = run_record(trl_run, settings={"group_size": "3"})
        assert record.rollouts is not None
        assert record.rollouts["prompt_id"].max() == 1
        assert any("form no groups of 3 " in note for note in record.notes)

    def test_weighted_functions_leave_the_total_unknown(self, trl_run: Path) -> None:
        weigh(trl_run, 0.1, 5.0)
        record = run_record(trl_run, settings={"group_size": "4"})
        assert record.rollouts is not None
        assert record.rollouts["reward"].null_count() == len(record.rollouts)
        assert any("contradict a total reward of check + brevity" in note for note in record.notes)

    def test_the_log_tells_the_weights(
        self, trl_run: Path, make_row: Row, write_state: Write
    ) -> None:
        weigh(trl_run, 1.0, 0.1)
        rows = []
        for step in range(1, 21):
            check, brevity = (step % 7) / 7, (step % 3) / 3
            changes = {
                "rewards/check/mean": check,
                "rewards/brevity/mean": brevity,
                "reward": check + 0.1 * brevity,
            }
            rows.append(make_row(step, **changes))
        write_state(trl_run / "checkpoint-20" / "trainer_state.json", rows)
        record = run_record(trl_run, settings={"group_size": "4"})
        assert record.rollouts is not None
        assert record.rollouts["reward"].to_list()[:2] == pytest.approx([0.99, -0.02])
        assert any(
            "is check + 0.1 brevity, as the mean rewards in the log show (the advantages agree)"
            in note
            for note in record.notes
        )

    def test_the_log_says_which_columns_are_rewards(self, trl_run: Path) -> None:
        for path in (trl_run / "completions").iterdir():
            pl.read_parquet(path).with_columns(extra=pl.lit(100.0), answer=pl.lit(3)).write_parquet(
                path
            )
        record = run_record(trl_run)
        assert record.rollouts is not None
        assert not {"reward/extra", "reward/answer"} & set(record.rollouts.columns)
        assert record.rollouts["reward"][0] == 0.9

    def test_a_function_that_the_log_does_not_name_is_missed_and_said(
        self, trl_run: Path, make_row: Row, write_state: Write
    ) -> None:
        rows = [
            {key: value for key, value in make_row(step).items() if "brevity" not in key}
            for step in (1, 2, 3)
        ]
        write_state(trl_run / "checkpoint-20" / "trainer_state.json", rows)
        record = run_record(trl_run)
        assert record.rollouts is not None
        assert record.rollouts["reward"].null_count() == 24
        assert any("contradict a total reward of 0.5 check:" in note for note in record.notes)

    def test_an_evaluations_completions_are_not_the_trainings(
        self, trl_run: Path, make_row: Row, write_state: Write
    ) -> None:
        path = trl_run / "completions" / "completions_00001.parquet"
        table = pl.read_parquet(path)
        mean = float(np.mean((table["check"] + table["brevity"]).to_numpy()))
        rows = [make_row(step, reward=mean if step == 1 else 0.123) for step in (1, 2, 3)]
        rows += [{"step": step, "eval_reward": mean} for step in (1, 2)]
        write_state(trl_run / "checkpoint-20" / "trainer_state.json", rows)
        record = run_record(trl_run, settings={"group_size": "4"})
        assert record.rollouts is not None
        assert record.rollouts["step"].unique().sort().to_list() == [1, 3]
        assert any("in 1 step with an evaluation" in note for note in record.notes)

    def test_missing_rewards_count_as_nothing_and_all_missing_as_unknown(
        self, trl_run: Path
    ) -> None:
        path = trl_run / "completions" / "completions_00001.parquet"
        table = pl.read_parquet(path).drop("advantage")
        nan = [float("nan")] * 2
        table = table.with_columns(
            check=pl.Series([*nan, 1.0] + [1.0] * 5),
            brevity=pl.Series([float("nan"), -0.5] + [0.0] * 6),
        )
        for old in (trl_run / "completions").iterdir():
            old.unlink()
        table.write_parquet(path)
        record = run_record(trl_run, settings={"group_size": "4"})
        assert record.rollouts is not None
        assert record.rollouts["reward"].to_list()[:3] == [None, -0.5, 1.0]

    def test_the_samplers_list_of_log_probabilities_is_no_reward_function(
        self, trl_run: Path
    ) -> None:
        path = trl_run / "completions" / "completions_00001.parquet"
        table = pl.read_parquet(path)
        table.with_columns(logprobs=pl.lit([-1.0, -2.0])).write_parquet(path)
        record = run_record(trl_run)
        assert record.rollouts is not None
        first = record.rollouts.filter(pl.col("step") == 1)
        assert first["log_probability"].to_list() == [-1.5] * len(table)
        assert first["reward"].null_count() == 0

    def test_damaged_and_foreign_files_are_left_out(self, trl_run: Path) -> None:
        (trl_run / "completions" / "completions_00002.parquet").write_bytes(b"PAR1 broken PAR1")
        pl.DataFrame({"a": [1]}).write_parquet(
            trl_run / "completions" / "completions_00003.parquet"
        )
        record = run_record(trl_run)
        assert record.rollouts is not None
        assert record.rollouts["step"].unique().to_list() == [1]
        assert sum("was left out" in note for note in record.notes) == 2

    def test_a_completions_file_without_numbers_is_refused(self, trl_run: Path) -> None:
        path = trl_run / "completions" / "completions_00001.parquet"
        pl.read_parquet(path).select("step", "prompt", "completion").write_parquet(path)
        with pytest.raises(UnreadableRunError, match="give the run's folder"):
            run_record(path)
