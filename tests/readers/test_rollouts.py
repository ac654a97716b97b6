"""Rollout files: recognised by content, grouped as their trainer grouped them, and never
mistaken for a log of steps.
"""

from __future__ import annotations

import json
import pickle
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.cases import each_case

from groupwise import parsing
from groupwise.analysis.components import sample_groups
from groupwise.diagnostics.judge import judge
from groupwise.errors import (
    GroupwiseError,
    InvalidArgumentError,
    MissingMetricError,
    UnreadableRunError,
)
from groupwise.prompts import prompt_of
from groupwise.readers import best_reader, rollouts, run_record, source
from groupwise.record.run import RunRecord

Rows = Sequence[dict[str, Any]]


def reward_of(step: int, prompt: int, rollout: int) -> float:
    return float((step * 7 + prompt * 3 + rollout * 5) % 4 == 0)


def verl_rows(
    step: int, *, uid: bool = True, prompts: int = 4, size: int = 6
) -> list[dict[str, Any]]:
    """One dump of verl: the newer form has uids, the older one extras of the reward."""
    rows = []
    for prompt in range(prompts):
        for rollout in range(size):
            score = reward_of(step, prompt, rollout)
            row = {
                "input": f"user\n{step}+{prompt}?",
                "output": f"#### {rollout}",
                "gts": "1",
                "score": score,
                "step": step,
            }
            rows.append(
                row
                | (
                    {"uid": f"0a_{prompt}-b1_{rollout}_0"}
                    if uid
                    else {"acc": score > 0, "pred": "1"}
                )
            )
    return rows


def plain_rows() -> list[dict[str, Any]]:
    return [
        {
            "step": 1 + at // 4,
            "prompt": f"p{at // 2 % 2}",
            "completion": f"c{at}",
            "reward": float(at % 2),
            "advantage": -0.5 + at % 2,
            "length": 3,
        }
        for at in range(8)
    ]


def write(path: Path, rows: Rows, *more: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "\n".join([json.dumps(row) for row in rows] + list(more)) + "\n", encoding="utf-8"
    )
    return path


def rollouts_of(record: RunRecord) -> pl.DataFrame:
    record.validate()
    assert record.rollouts is not None
    assert all(note.isprintable() for note in record.notes)
    return record.rollouts


def group_sizes(table: pl.DataFrame) -> list[int]:
    return table.group_by("step", "prompt_id", maintain_order=True).len()["len"].to_list()


class TestSniffing:
    @each_case(
        ("row", "reader"),
        [
            ({"prompt": "a", "completion": "b", "reward": 1}, "rollouts"),
            ({"question": "a", "response": "b", "acc": True}, "rollouts"),
            (
                {
                    "messages": [{"role": "user", "content": "a"}],
                    "output": [{"role": "assistant", "content": "b"}],
                    "score": "0.5",
                },
                "rollouts",
            ),
            ({"problem": "a", "generation": "b", "rewards": {"format": 1.0}}, "rollouts"),
            ({"prompt": "a", "completion": "b", "rewards/check": 0.5}, "rollouts"),
            ({"step": 1, "reward": 0.5, "loss": 0.1}, "jsonl"),
            (
                {"step": 1, "reward": 0.5, "prompt": "a sample", "completion": "b", "loss": 0.1},
                "jsonl",
            ),
            ({"prompt": "a", "reward": 0.5}, "jsonl"),
            ({"prompt": "a", "completion": "b", "verdict": "good"}, "jsonl"),
            ({"prompt": "a", "completion": "b", "reward": "good"}, "jsonl"),
            ({"prompt": "a", "completion": 7, "reward": 1}, "jsonl"),
        ],
    )
    def test_by_the_keys_of_the_rows(
        self, tmp_path: Path, row: dict[str, Any], reader: str
    ) -> None:
        chosen = best_reader(write(tmp_path / "any.jsonl", [row] * 3))
        assert chosen is not None
        assert chosen.name == reader

    def test_a_log_with_a_few_samples_stays_a_log(self, tmp_path: Path) -> None:
        rows = [{"step": step, "reward": step / 10, "entropy": 1.0} for step in range(1, 9)]
        path = write(
            tmp_path / "log.jsonl", [*rows, {"prompt": "a", "completion": "b", "reward": 1.0}]
        )
        assert run_record(path).sources[0].reader == "jsonl"

    def test_a_first_row_longer_than_the_head(self, tmp_path: Path) -> None:
        rows = plain_rows()
        rows[0]["completion"] = "long " * 40_000
        assert len(rollouts_of(run_record(write(tmp_path / "a.jsonl", rows)))) == 8


class TestVerl:
    @pytest.mark.parametrize("uid", [True, False], ids=["v1", "v0"])
    def test_a_folder_of_dumps(self, tmp_path: Path, uid: bool) -> None:
        for step in (1, 2, 10):
            write(tmp_path / "dumps" / f"{step}.jsonl", verl_rows(step, uid=uid))
        record = run_record(tmp_path / "dumps")
        table = rollouts_of(record)
        assert table["step"].unique(maintain_order=True).to_list() == [1, 2, 10]
        assert group_sizes(table) == [6] * 12
        assert table.filter(step=2, prompt_id=3)["prompt"].unique().to_list() == ["user\n2+3?"]
        expected = [
            float(np.mean([reward_of(step, p, r) for p in range(4) for r in range(6)]))
            for step in (1, 2, 10)
        ]
        assert record.steps["reward"].to_list() == pytest.approx(expected)
        assert (record.config.value("group_size"), record.config.value("framework")) == (6, "verl")
        assert [(Path(source.path).name, source.rows) for source in record.sources] == [
            ("1.jsonl", 24),
            ("2.jsonl", 24),
            ("10.jsonl", 24),
        ]
        assert "column score" in record.meanings[0].definition
        assert any(("column uid" if uid else "equal prompts") in note for note in record.notes)

    def test_a_uid_keeps_two_groups_of_one_prompt_apart(self, tmp_path: Path) -> None:
        rows = verl_rows(3)
        for row in rows:
            row["input"] = "the same"
        table = rollouts_of(run_record(write(tmp_path / "3.jsonl", rows)))
        assert group_sizes(table) == [6] * 4

    def test_a_uid_keeps_a_group_together_whose_contexts_differ(self, tmp_path: Path) -> None:
        rows = [row | {"input": f"{row['input']} turn {at}"} for at, row in enumerate(verl_rows(3))]
        assert group_sizes(rollouts_of(run_record(write(tmp_path / "3.jsonl", rows)))) == [6] * 4

    def test_the_steps_come_from_the_names_where_the_rows_lack_them(self, tmp_path: Path) -> None:
        for step in (9, 10):
            write(
                tmp_path / f"{step}.jsonl",
                [
                    {key: value for key, value in row.items() if key != "step"}
                    for row in verl_rows(step)
                ],
            )
        record = run_record(tmp_path)
        assert record.steps["step"].to_list() == [9, 10]
        assert any("names of the files" in note for note in record.notes)

    def test_a_damaged_dump_is_left_out(self, tmp_path: Path) -> None:
        for step in (1, 2):
            write(tmp_path / f"{step}.jsonl", verl_rows(step))
        (tmp_path / "3.jsonl").write_bytes(b"\x80\x04 never opened")
        (tmp_path / "4.jsonl").write_text("")
        record = run_record(tmp_path)
        assert record.steps["step"].to_list() == [1, 2]
        assert sum("was left out" in note for note in record.notes) == 2

    def test_a_log_wins_over_a_folder_of_dumps_beside_it(self, tmp_path: Path) -> None:
        write(tmp_path / "rollouts" / "1.jsonl", verl_rows(1))
        assert run_record(tmp_path).sources[0].reader == "rollouts"
        (tmp_path / "run.csv").write_text("step,reward\n1,0.5\n2,0.6\n")
        assert run_record(tmp_path).sources[0].reader == "csv"


class TestRows:
    def test_the_table(self, tmp_path: Path) -> None:
        record = run_record(write(tmp_path / "a.jsonl", plain_rows()))
        table = rollouts_of(record)
        assert table.columns == [
            "step",
            "prompt_id",
            "prompt",
            "completion",
            "reward",
            "advantage",
            "length",
        ]
        assert table["prompt_id"].to_list() == [0, 0, 1, 1] * 2
        assert table["completion"].to_list() == [f"c{at}" for at in range(8)]
        assert record.steps["reward"].to_list() == [0.5, 0.5]
        assert record.column("reward") == "reward"

    def test_rows_of_a_group_need_not_be_neighbours(self, tmp_path: Path) -> None:
        rows = plain_rows()
        table = rollouts_of(run_record(write(tmp_path / "a.jsonl", rows[::2] + rows[1::2])))
        assert table["step"].to_list() == [1] * 4 + [2] * 4
        assert table["prompt_id"].to_list() == [0, 0, 1, 1] * 2
        assert table.filter(step=1, prompt_id=0)["completion"].to_list() == ["c0", "c1"]

    def test_ragged_groups(self, tmp_path: Path) -> None:
        record = run_record(write(tmp_path / "a.jsonl", plain_rows()[:-1]))
        assert group_sizes(rollouts_of(record)) == [2, 2, 2, 1]
        assert record.config.value("group_size") is None
        assert "the groups have 1 to 2 completions" in record.notes

    def test_a_group_key_splits_equal_prompts_but_a_category_is_none(self, tmp_path: Path) -> None:
        rows = [
            {"prompt": "same", "completion": "c", "reward": 1.0, "group_id": at // 2}
            for at in range(6)
        ]
        assert group_sizes(rollouts_of(run_record(write(tmp_path / "a.jsonl", rows)))) == [2, 2, 2]
        rows = [
            {
                "prompt": f"p{at // 2}",
                "completion": "c",
                "reward": 1.0,
                "group": "algebra",
                "id": at,
            }
            for at in range(6)
        ]
        record = run_record(write(tmp_path / "b.jsonl", rows))
        assert group_sizes(rollouts_of(record)) == [2, 2, 2]
        assert any("column group combines different prompts" in note for note in record.notes)

    def test_reward_functions_and_their_sum(self, tmp_path: Path) -> None:
        rows = [
            row | {"rewards": {"check": row.pop("reward"), "format": 0.5}} for row in plain_rows()
        ]
        record = run_record(write(tmp_path / "a.jsonl", rows))
        table = rollouts_of(record)
        assert table["reward"].to_list() == [0.5, 1.5] * 4
        assert record.steps["reward/check"].to_list() == [0.5, 0.5]
        assert any(
            "check + format, the unweighted sum (the advantages agree)" in note
            for note in record.notes
        )
        for at, row in enumerate(rows):
            row["rewards"]["total"] = float(at)
        assert rollouts_of(run_record(write(tmp_path / "b.jsonl", rows)))["reward"].to_list() == [
            float(at) for at in range(8)
        ]

    def test_chat_messages_are_kept_as_json(self, tmp_path: Path) -> None:
        rows = [
            row | {"prompt": [{"role": "user", "content": row["prompt"] + " \u00e9"}]}
            for row in plain_rows()
        ]
        said = [row["completion"] for row in rows]
        for row in rows:
            row["completion"] = [{"role": "assistant", "content": row["completion"]}]
        record = run_record(write(tmp_path / "a.jsonl", rows))
        table = rollouts_of(record)
        assert json.loads(table["prompt"][0]) == rows[0]["prompt"]
        assert table["completion"].to_list() == said
        assert group_sizes(table) == [2] * 4
        assert "8 texts are lists of chat messages and kept as JSON text" in record.notes

    def test_what_is_missing_is_counted(self, tmp_path: Path) -> None:
        rows = plain_rows()
        rows[0]["reward"], rows[2]["reward"] = float("nan"), float("-inf")
        del rows[4]["completion"], rows[5]["reward"]
        rows += [
            {"summary": "done", "reward": 0.7},
            {"step": None, "prompt": "p0", "completion": "c", "reward": 1.0},
        ]
        record = run_record(write(tmp_path / "a.jsonl", rows, '{"prompt": "p', "[1, 2]"))
        table = rollouts_of(record)
        assert len(table) == 8
        assert table["reward"].null_count() == 3
        assert record.steps["reward"].to_list() == [1.0, 1 / 3]
        for words in (
            "3 rewards are missing",
            "1 row has no completion",
            "1 row has neither",
            "1 row has no whole-number step",
            "2 lines are not",
        ):
            assert any(note.startswith(words) for note in record.notes), words

    def test_interleaved_steps_are_put_together_and_said(self, tmp_path: Path) -> None:
        record = run_record(write(tmp_path / "a.jsonl", plain_rows() + plain_rows()))
        assert group_sizes(rollouts_of(record)) == [4] * 4
        assert any("are not contiguous" in note for note in record.notes)

    def test_prompts_above_the_limit_are_told_apart_by_their_hash(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = write(tmp_path / "a.jsonl", plain_rows())
        monkeypatch.setattr(parsing, "MOST_TEXT", 1)
        table = rollouts_of(run_record(path))
        assert group_sizes(table) == [2] * 4
        assert sorted(map(len, table["prompt"].unique())) == [2, 16]

    def test_a_record_is_saved_and_loaded(self, tmp_path: Path) -> None:
        record = run_record(write(tmp_path / "a.jsonl", plain_rows()))
        assert record.rollouts is not None
        loaded = run_record(record.save(tmp_path / "saved"))
        assert loaded.rollouts is not None
        assert loaded.rollouts.equals(record.rollouts)


@contextmanager
def left() -> Iterator[None]:
    """Completions of any file stay in it, a block being some 100 bytes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parsing, "MOST_HELD", 0)
        patch.setattr(source, "_BLOCK", 100)
        yield


def whole(path: Path) -> str:
    """All that is read of a path."""
    try:
        record = run_record(path)
        table = (
            record.steps if record.rollouts is None else record.with_completions(record.rollouts)
        )
        return str(
            (record.steps.to_dict(as_series=False), table.to_dict(as_series=False), record.notes)
        )
    except GroupwiseError as error:
        return str(error)


@each_case(
    "odd",
    [
        {"output": 'so, "a": {b}\n\u00e9 \U0001f600\u2028'},
        {"output": "\ud800"},
        {"output": None},
        {"output": [{"role": "user", "content": "a"}]},
        {"output": ["a"]},
        {"output": {"a": 1}},
        {"output": '["a"]'},
        {"output": '{"a": 1}'},
        {"output": '"so" it ends with \\'},
        {"output": '\\"'},
        {"gts": ["a"]},
        {"gts": "1_0"},
        {"gts": "nan"},
        {"output": 5, "more": 1},
        {"input": 5, "more": "a"},
        {"score": "1.0"},
        {"score": float("nan")},
        {"gts": "0.50"},
        {"gts": True},
        {"uid": 7},
        {"data_source": "math"},
        {"finish_reason": "length"},
        {"partition_id": "train_7"},
    ],
)
def test_rollouts_by_column_are_what_they_are_row_by_row(
    odd: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether one row of a file is odd, or each: read in blocks of a row, each is as the one."""
    for newer in (True, False):  # ids of prompts, and characters that are escaped
        rows = verl_rows(1, uid=newer, prompts=2, size=3)
        path = tmp_path / f"{newer}.jsonl"
        these = [row | (odd if at == 4 or newer else {}) for at, row in enumerate(rows)]
        text = "".join(json.dumps(row, ensure_ascii=newer) + "\n" for row in these)
        path.write_text(text, encoding="utf-8", errors="replace")
        by_column = whole(path)
        if not newer:
            with left():
                assert whole(path) == by_column
        with monkeypatch.context() as patch:
            patch.setattr(rollouts, "json_table", lambda _: None)
            assert whole(path) == by_column


def test_one_dump_that_is_called_after_a_step_is_not_the_folder_of_all_runs(
    tmp_path: Path,
) -> None:
    for name in ("a", "b"):
        write(tmp_path / name / "metrics.jsonl", [{"step": at, "reward": 0.5} for at in range(9)])
    write(tmp_path / "c" / "rollouts_step_1.jsonl", verl_rows(1))
    with pytest.raises(UnreadableRunError, match="which holds 3 "):
        run_record(tmp_path)


def test_the_dumps_of_training_are_one_run_without_those_of_an_evaluation(tmp_path: Path) -> None:
    """As xtuner names them."""
    for step in (1, 2, 3):
        write(tmp_path / f"train_rollout_{step}.jsonl", verl_rows(step))
        write(tmp_path / f"eval_rollout_{step}.jsonl", verl_rows(step))
    run = run_record(tmp_path)
    assert run.steps["step"].to_list() == [1, 2, 3]
    assert len(rollouts_of(run)) == 3 * 24


def test_a_dump_of_verl_is_read_by_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "1.jsonl", verl_rows(1))
    monkeypatch.setattr(rollouts.RolloutRows, "add", None)
    assert len(rollouts_of(run_record(path))) == 24
    with left():
        assert "####" in whole(path)


class TestLeft:
    """Completions that stay in their files are those that would be in memory."""

    @each_case("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
    def test_whatever_the_encoding(self, tmp_path: Path, encoding: str) -> None:
        rows = [row | {"completion": f"\u00e9 {at}"} for at, row in enumerate(plain_rows() * 3)]
        lines = [json.dumps(row, ensure_ascii=False) for row in rows]
        path = tmp_path / "a.jsonl"
        path.write_text("\n".join([*lines[:20], "broken", *lines[20:], "[1]\n"]), encoding=encoding)
        held = whole(path)
        with left():
            assert whole(path) == held
        assert held.count("\u00e9") == len(rows)

    @pytest.mark.parametrize("kind", ["folder", "groups", "parquet"])
    def test_of_several_files_and_of_a_dump_that_is_taken_apart(
        self, tmp_path: Path, kind: str
    ) -> None:
        home = tmp_path / "run"
        for step in range(1, 4):
            rows = verl_rows(step)
            if kind == "groups":
                rows = [
                    {
                        "step": step,
                        "prompt": f"p{at}",
                        "rewards": [0.0, 1.0],
                        "completions": [f"{step}a", f"{at}b"],
                    }
                    for at in range(5)
                ]
            write(home / f"{step}.jsonl", rows)
        path = home
        if kind == "parquet":
            path = tmp_path / "rollouts.parquet"
            pl.DataFrame(plain_rows()).write_parquet(path)
        held = whole(path)
        with left():
            assert whole(path) == held
        assert "completion" in held

    def test_what_is_judged_and_sampled_of_them_is_the_same(self, tmp_path: Path) -> None:
        for step in range(1, 6):
            rows = verl_rows(step, prompts=2)
            write(
                tmp_path / f"{step}.jsonl",
                [
                    row | {"output": "ha " * (100 * at % 700) + row["output"]}
                    for at, row in enumerate(rows)
                ],
            )
        held = run_record(tmp_path)
        with left():
            there = run_record(tmp_path)
            assert rollouts_of(there)["completion"].dtype == pl.Int64
            assert judge(there) == judge(held)
            ours, theirs = (
                sample_groups(record, 5, groups=3, steps=None, seed=1) for record in (there, held)
            )
        assert ours.rows.equals(theirs.rows)
        assert ours.longest == theirs.longest

    def test_they_are_read_where_somebody_looks(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Some rows in any order, what an expression makes of them, a record that is saved;
        another file in their place is refused.
        """
        path = write(tmp_path / "1.jsonl", verl_rows(1))
        monkeypatch.setattr(parsing, "MOST_HELD", 0)
        record = run_record(path)
        table = rollouts_of(record)
        assert table["completion"].dtype == pl.Int64
        some = record.with_completions(table[[7, 1, 7]], pl.col("completion").str.slice(-1))
        assert some["completion"].to_list() == ["1", "1", "1"]
        assert record.with_completions(table.clear())["completion"].dtype == pl.Utf8
        sent = pickle.loads(pickle.dumps(record))  # to a process that judges
        assert sent.with_completions(table).equals(record.with_completions(table))
        saved = run_record(record.save(tmp_path / "saved"))
        assert (
            rollouts_of(saved)["completion"].to_list()
            == record.with_completions(table)["completion"].to_list()
        )
        again = run_record(path)
        write(path, verl_rows(1)[:5])
        with pytest.raises(UnreadableRunError, match="open the run again"):
            again.with_completions(table)


class TestColumns:
    def test_the_user_names_the_columns(self, tmp_path: Path) -> None:
        rows = [
            row
            | {"mine": at / 8, "epoch_step": 5 + at // 4, "done": 10 * (1 + at // 4), "hits": 2.0}
            for at, row in enumerate(plain_rows())
        ]
        columns = {
            "reward": "mine",
            "step": "epoch_step",
            "tokens": "done",
            "reward/check": "hits",
            "entropy": "length",
        }
        record = run_record(write(tmp_path / "a.jsonl", rows), columns=columns)
        table = rollouts_of(record)
        assert record.steps["step"].to_list() == [5, 6]
        assert record.steps["reward"].to_list() == [0.1875, 0.6875]
        assert record.steps["tokens"].to_list() == [10.0, 20.0]
        assert record.steps["entropy"].to_list() == [3.0, 3.0]
        assert table["reward/check"].to_list() == [2.0] * 8
        assert "chosen" not in "".join(table.columns)

    def test_what_the_user_cannot_name(self, tmp_path: Path) -> None:
        path = write(
            tmp_path / "a.jsonl", [row | {"left": 1 - at} for at, row in enumerate(plain_rows())]
        )
        with pytest.raises(
            MissingMetricError, match="the log has step, reward, advantage, length, left"
        ):
            run_record(path, columns={"reward": "nope"})
        with pytest.raises(InvalidArgumentError, match="never decreases for tokens"):
            run_record(path, columns={"tokens": "left"})


class TestParquet:
    def test_a_table_of_rollouts(self, tmp_path: Path) -> None:
        messages = [
            row | {"prompt": [{"role": "user", "content": row["prompt"]}]} for row in plain_rows()
        ]
        for name, rows in (("a", plain_rows()), ("b", messages)):
            path = tmp_path / f"{name}.parquet"
            pl.DataFrame(rows).write_parquet(path)
            record = run_record(path)
            assert group_sizes(rollouts_of(record)) == [2] * 4
            assert record.steps["reward"].to_list() == [0.5, 0.5]

    def test_a_table_of_steps_is_none(self, tmp_path: Path) -> None:
        pl.DataFrame({"step": [1, 2], "reward": [0.1, 0.2], "prompt": ["a", "b"]}).write_parquet(
            tmp_path / "a.parquet"
        )
        assert run_record(tmp_path / "a.parquet").rollouts is None

    def test_trl_completions_alone(self, trl_run: Path) -> None:
        whole = run_record(trl_run).rollouts
        assert whole is not None
        opened = run_record(trl_run / "completions" / "completions_00002.parquet")
        all_steps = run_record(trl_run / "completions")
        for record, steps in ((opened, [2]), (all_steps, [1, 2, 3])):
            table = rollouts_of(record)
            assert record.steps["step"].to_list() == steps
            assert group_sizes(table) == [4, 4] * len(steps)
            assert table["reward"].to_list() == pytest.approx(
                [0.9, -0.2, 0.0, 0.9, 1.0, 1.0, 1.0, 1.0] * len(steps)
            )
            assert record.config.value("group_size") == 4
            assert record.steps["reward/check"].to_list() == [0.75] * len(steps)
            assert any("evaluation cannot be told" in note for note in record.notes)

    def test_completions_that_an_update_uses_again_count_once(self, trl_run: Path) -> None:
        first = pl.read_parquet(trl_run / "completions" / "completions_00003.parquet")
        for step in (4, 5):
            again = first.with_columns(step=pl.lit(step, dtype=pl.Int64))
            again.write_parquet(trl_run / "completions" / f"completions_0000{step}.parquet")
        for folder in (trl_run / "completions", trl_run):
            record = run_record(folder)
            assert len(rollouts_of(record)) == 24
            assert any(note.startswith("2 files repeat the completions") for note in record.notes)

    def test_prompts_of_trl_that_are_chats_tell_the_groups_apart(self, trl_run: Path) -> None:
        """As TRL 1.16 writes the messages of a run with tools; what the assistant alone says is its
        text, and other completions are their messages.
        """
        for file in (trl_run / "completions").iterdir():
            table = pl.read_parquet(file)
            asked = [[{"role": "user", "content": prompt}] for prompt in table["prompt"]]
            call = [{"type": "function", "function": {"name": "add", "arguments": {"a": 6}}}]
            said = [
                [{"role": "assistant", "content": text, "tool_calls": call if at % 2 else None}]
                + [{"role": "tool", "content": "7", "tool_calls": None}] * (at % 2)
                for at, text in enumerate(table["completion"])
            ]
            table.with_columns(
                prompt=pl.Series(asked), completion=pl.Series(said, strict=False)
            ).write_parquet(file)
        for place in (trl_run, trl_run / "completions"):
            record = run_record(place)
            assert record.config.value("group_size") == 4
            rows = rollouts_of(record)
            assert group_sizes(rows) == [4] * 6
            assert prompt_of(rows["prompt"][0]) == [{"role": "user", "content": "4+2="}]
            assert rows["completion"][0] == "c0"
            assert prompt_of(rows["completion"][1]) == [
                {"role": "assistant", "content": "c1", "tool_calls": call},
                {"role": "tool", "content": "7"},
            ]
        for file in (trl_run / "completions").iterdir():
            pl.read_parquet(file).with_columns(prompt=7).write_parquet(file)
        assert rollouts_of(run_record(trl_run))["prompt"].null_count() == 24

    def test_of_trl_completions_the_user_names_the_reward(self, trl_run: Path) -> None:
        record = run_record(trl_run / "completions", columns={"reward": "check"})
        assert rollouts_of(record)["reward"].to_list()[:8] == [
            1.0,
            0.0,
            0.0,
            1.0,
            1.0,
            1.0,
            1.0,
            1.0,
        ]
        assert group_sizes(rollouts_of(record)) == [4] * 6

    def test_damaged_files_among_trl_completions(self, trl_run: Path) -> None:
        (trl_run / "completions" / "completions_00001.parquet").write_bytes(b"PAR1 broken PAR1")
        assert run_record(trl_run / "completions").steps["step"].to_list() == [2, 3]
        with pytest.raises(UnreadableRunError):
            run_record(trl_run / "completions" / "completions_00001.parquet")


class TestHostile:
    def test_strings(self, tmp_path: Path) -> None:
        odd = [
            "\ud800",
            "\0",
            "\x1b[31m",
            "\u202e",
            "=1+1",
            "../../etc",
            "",
            "NaN",
            "\U0001f600" * 1000,
        ]
        rows = [
            {
                "prompt": text,
                "completion": text,
                "reward": 1.0,
                "uid": text,
                f"rewards/{text[:20]}": 1.0,
            }
            for text in odd
            for _ in range(2)
        ]
        table = rollouts_of(run_record(write(tmp_path / "a.jsonl", rows)))
        assert group_sizes(table) == [2] * len(odd)

    def test_numbers(self, tmp_path: Path) -> None:
        rows = plain_rows()
        rows[0]["step"], rows[1]["step"], rows[2]["step"] = 10**400, -1e308, 1.5
        path = write(
            tmp_path / "a.jsonl",
            rows,
            json.dumps(rows[3] | {"group": 10**400, "advantage": 10**400}),
        )
        assert len(rollouts_of(run_record(path))) == 6

    def test_no_reward_at_all(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.jsonl", [row | {"reward": float("nan")} for row in plain_rows()])
        with pytest.raises(UnreadableRunError, match=r"--column reward=NAME"):
            run_record(path)

    def test_nested_deeply(self, tmp_path: Path) -> None:
        deep = (
            '{"prompt": "p0", "completion": "c", "reward": 1.0, "extra": '
            + "[" * 100_000
            + "]" * 100_000
            + "}"
        )
        assert len(rollouts_of(run_record(write(tmp_path / "a.jsonl", plain_rows(), deep)))) == 8

    @settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
    @given(data=st.data())
    def test_changed_bytes(self, tmp_path: Path, data: st.DataObject) -> None:
        content = bytearray(("\n".join(map(json.dumps, verl_rows(1, prompts=2, size=2)))).encode())
        for _ in range(data.draw(st.integers(1, 8))):
            byte = data.draw(
                st.one_of(st.integers(0, 255), st.sampled_from(b'{}[]",:\n\r\0 #/-e9'))
            )
            content[data.draw(st.integers(0, len(content) - 1))] = byte
        path = tmp_path / "1.jsonl"
        path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
        held = whole(path)
        with left():
            assert whole(path) == held
        try:
            record = run_record(path)
        except GroupwiseError as error:
            message = str(error)
        else:
            record.validate()
            message = "".join(record.notes)
        assert message.isprintable()


@pytest.mark.parametrize(
    ("file", "rows", "size", "reward"),
    [
        ("leonopus_verl_raw_step1.jsonl", 64, 4, 0.203125),
        ("leonopus_twinkle_raw_train50_group0.jsonl", 4, 4, 1.0),
        ("cs336_raw_one_step.sample_rollouts.jsonl", 8, 8, 0.125),
    ],
)
def test_real_rollouts(shared_data: Path, file: str, rows: int, size: int, reward: float) -> None:
    record = run_record(shared_data / "rollouts" / file)
    table = rollouts_of(record)
    assert (len(table), group_sizes(table)) == (rows, [size] * (rows // size))
    assert record.steps["reward"].to_list() == [reward]
    assert table.group_by("step", "prompt_id").agg(pl.col("prompt").n_unique())[
        "prompt"
    ].unique().to_list() == [1]
    assert table["completion"].null_count() == 0


@pytest.mark.slow
def test_real_rollouts_without_texts_have_their_groups(shared_data: Path) -> None:
    for path in (shared_data / "rollouts").glob("*.slim.jsonl"):
        record = run_record(path)
        assert record.sources[0].reader == "rollouts"
        assert record.rollouts is not None
        assert record.config.value("group_size") in (2, 4, 8)


def test_a_run_of_verls_rollouts_is_fitted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from groupwise.cli.app import main

    rng = np.random.default_rng(7)
    for step in range(1, 61):
        rows = verl_rows(step)
        for row in rows:
            row["score"] = float(rng.random() < 0.9 - 0.7 * 0.95**step)
        write(tmp_path / "dumps" / f"{step}.jsonl", rows)
    assert main(["fit", str(tmp_path / "dumps"), "--metric", "reward"]) == 0
    assert "logged rollouts" in capsys.readouterr().out


@pytest.mark.thinned(8)
@pytest.mark.parametrize(
    ("more", "name", "expected"),
    [
        ({"entropy": 0.3}, "entropy", 0.3),
        ({"token_entropies": [0.1, 0.3]}, "entropy", 0.2),
        ({"logprobs": [-1, -2]}, "log_probability", -1.5),
        ({"logprob": -1.2}, "log_probability", -1.2),
        ({"num_tokens": 20}, "length", 20.0),
        ({"completion_tokens": 20}, "length", 20.0),
        ({"response_tokens": 20}, "length", 20.0),
        ({"truncated": True}, "ended", 0.0),
        ({"is_truncated": False}, "ended", 1.0),
        ({"finish_reason": "length"}, "ended", 0.0),
        ({"finish_reason": "max_tokens"}, "ended", 0.0),
        ({"finish_reason": "stop"}, "ended", 1.0),
        ({"ended": False}, "ended", 0.0),
        ({"reward_fns": {"acc": 1, "fmt": 0.5}}, "reward/fmt", 0.5),
        ({"acc_reward": 1, "format_reward": 0.5}, "reward/format", 0.5),
    ],
)
def test_what_was_logged_of_a_completion_is_kept(
    more: dict[str, Any],
    name: str,
    expected: float,
    tmp_path: Path,
) -> None:
    rows = [
        {key: row[key] for key in ("step", "prompt", "completion", "reward")}
        | more
        | {"mean_reward": 0.5}
        for row in plain_rows()
    ]
    table = rollouts_of(run_record(write(tmp_path / "log.jsonl", rows)))
    assert table[name].to_list() == pytest.approx([expected] * len(table))
    assert "reward/mean" not in table.columns


def test_what_was_logged_of_a_group_by_completion_is_kept(tmp_path: Path) -> None:
    group = {
        "prompt": "p",
        "rewards": [0.0, 1.0],
        "advantages": [-1.0, 1.0],
        "truncated": [True, False],
        "token_entropies": [[1, 3], [4]],
    }
    table = rollouts_of(
        run_record(write(tmp_path / "log.jsonl", [group | {"step": step} for step in range(1, 4)]))
    )
    assert table.select("advantage", "ended", "entropy").rows()[:2] == [
        (-1.0, 0.0, 2.0),
        (1.0, 1.0, 4.0),
    ]


LISTS = [[1.0], {"a": 1.0}, [{"role": "user", "content": "m"}]]
ODDS = st.one_of(
    st.none(), st.floats(-2, 2), st.sampled_from(["x", "5", "", "nan", 7, True, *LISTS])
)
OPTIONAL = {
    "step": st.integers(1, 3),
    "uid": st.sampled_from(["a_0_0", "a_1_0", "b_0_1", "c", 5]),
    "rewards/f": st.sampled_from([0.0, 1]),
    "gts": ODDS,
}
ROLLOUTS = st.fixed_dictionaries(
    {
        "input": st.sampled_from("pqr"),
        "output": st.text(max_size=4),
        "score": st.sampled_from([0.0, 1.0]),
    },
    optional=OPTIONAL,
)
CHANGED = st.tuples(st.sampled_from(["output", "input", "score", "uid", "id"]), ODDS)


@pytest.mark.slow
@example([{"input": "p", "output": "x", "score": 1.0}], [("output", None)])
@given(st.lists(ROLLOUTS, min_size=1, max_size=6), st.lists(CHANGED, max_size=2))
def test_rollouts_that_stay_in_their_file_are_those_in_memory(
    rows: list[dict[str, Any]], odd: list[tuple[str, Any]]
) -> None:
    changed = [rows[0] | {key: value} for key, value in odd]
    with tempfile.TemporaryDirectory() as home:
        path = Path(home, "1.jsonl")
        path.write_text("".join(json.dumps(row) + "\n" for row in rows * 3 + changed))
        in_memory = whole(path)
        with left():
            assert whole(path) == in_memory


def alone(step: int, prompt: int) -> dict[str, Any]:
    reward = float((step * prompt) % 3 == 0)
    return {"step": step, "prompt": f"q {step}-{prompt}", "completion": "so, 4", "reward": reward}


@each_case("name", ["run.csv", "run.jsonl", "run.parquet", "run.table.json"])
def test_prompts_with_one_completion_each_are_groups_of_one(tmp_path: Path, name: str) -> None:
    rows = [alone(step, prompt) for step in range(1, 30) for prompt in range(4)]
    table, path = pl.DataFrame(rows), tmp_path / name
    if name == "run.csv":
        table.write_csv(path)
    elif name == "run.parquet":
        table.write_parquet(path)
    elif name == "run.jsonl":
        table.write_ndjson(path)
    else:
        data = [list(row) for row in table.rows()]
        path.write_text(json.dumps({"columns": table.columns, "data": data}))
    record = run_record(path)
    assert len(rollouts_of(record)) == len(rows)
    assert judge(record).headline.startswith(
        "the group size is 1, so there is no baseline: it is set to 1"
    )


def test_one_completion_of_larger_groups_is_no_group_of_one(tmp_path: Path) -> None:
    """TRL's log_unique_prompts keeps one completion of each prompt."""
    rows = [
        alone(step, prompt) | {"advantage": (-1) ** prompt * 0.7}
        for step in range(1, 30)
        for prompt in range(4)
    ]
    record = run_record(write(tmp_path / "run.jsonl", rows))
    assert record.config.value("group_size") is None
    assert any("advantages show that there were more" in note for note in record.notes)
    assert not judge(record).headline.startswith("groups of one")
    folder = tmp_path / "completions"
    folder.mkdir()
    for step in range(1, 30):
        own = [row for row in rows if row["step"] == step]
        pl.DataFrame(own).rename({"reward": "accuracy"}).write_parquet(
            folder / f"completions_{step:05d}.parquet"
        )
    (tmp_path / "config.json").write_text('{"num_generations": 4}')
    assert rollouts_of(run_record(folder)).group_by("step", "prompt_id").len()["len"].max() == 1


def test_a_table_of_texts_between_commas_is_one_of_rollouts(tmp_path: Path) -> None:
    rows = [
        {
            "step": step,
            "question": f"what, {prompt}?",
            "response": f'first\nthen "{member}"',
            "score": member % 2,
        }
        for step in range(5)
        for prompt in range(3)
        for member in range(4)
    ]
    pl.DataFrame(rows).write_csv(tmp_path / "run.csv")
    record = run_record(tmp_path / "run.csv")
    assert record.config.value("group_size") == 4
    assert rollouts_of(record)["completion"][1] == 'first\nthen "1"'
    (tmp_path / "log.csv").write_text(
        "step,reward,prompt,completion\n" + "".join(f"{at},0.{at},{at},9\n" for at in range(9))
    )  # numbers of tokens are no texts
    assert run_record(tmp_path / "log.csv").rollouts is None


def test_every_name_of_an_environment_is_read_as_one(tmp_path: Path) -> None:
    names = [
        "data_source",
        "env_name",
        "env_id",
        "environment",
        "task_name",
        "task",
        "agent",
        "seat",
        "player",
    ]
    for name in names:
        path = tmp_path / f"{name}.jsonl"
        rows = (
            {"step": step, "prompt": "p", "completion": "c", "reward": number % 2, name: place}
            for step in range(1, 9)
            for place in ("chess", "go")
            for number in range(4)
        )
        path.write_text("\n".join(map(json.dumps, rows)))
        columns = run_record(path).steps.columns
        assert {"environment_reward/chess", "environment_reward/go"} <= set(columns), name


def test_a_group_size_that_is_not_that_of_the_groups_is_said(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl"
    rows = [{"step": n // 8, "prompt": f"p{n // 4}", "reward": n % 2} for n in range(32)]
    path.write_text("\n".join(map(json.dumps, rows)))
    for size, said in (("", 0), ("4", 0), ("8", 1)):
        given_settings = {"group_size": size} if size else {}
        notes = run_record(path, settings=given_settings).notes
        assert sum("differs from the logged groups" in note for note in notes) == said
