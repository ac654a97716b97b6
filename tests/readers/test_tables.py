"""Generic logs: what opens, what is decided on the way, and what is refused with a sentence."""

from __future__ import annotations

import ast
import inspect
import json
import math
import os
import random
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.cases import each_case
from tests.golden.sentences import says
from tests.readers.bounded import run_bounded

from groupwise import parsing
from groupwise.diagnostics.judge import judge
from groupwise.errors import (
    GroupwiseError,
    InvalidArgumentError,
    MissingMetricError,
    SeveralRunsError,
    UnreadableRunError,
)
from groupwise.files import table_rows
from groupwise.readers import READERS, run_record, tables
from groupwise.readers.assemble import Origin, Request
from groupwise.readers.source import lines_in
from groupwise.readers.tables import JsonlFeed, json_table
from groupwise.record.run import RunRecord


def opened(path: Path, content: str | bytes, **options: Any) -> RunRecord:
    """Write a log and open it."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    record = run_record(path, **options)
    record.validate()
    return record


def values(record: RunRecord, column: str) -> list[float | None]:
    """One column of the steps."""
    return record.steps[column].to_list()


def lines(*rows: dict[str, Any]) -> str:
    """Rows as lines of JSON."""
    return "\n".join(map(json.dumps, rows))


STEPS = range(1, 7)


@each_case(
    ("name", "content", "notes"),
    [
        (
            "list.json",
            json.dumps([*({"step": step, "reward": step / 8} for step in STEPS), 5, "x"]),
            ["2 elements of the list are not rows"],
        ),
        (
            "export.csv",
            "Step,a - reward,a - reward__MIN\n" + "\n".join(f"{step},0.5,0" for step in STEPS),
            ["this is a table exported from W&B: the bounds of averages (__MIN, __MAX)"],
        ),
        (
            "twice.jsonl",
            lines(*({"step": step, "reward": step / 8 + at} for step in STEPS for at in (0, 1, 2))),
            ["several rows of one step were averaged, at most 3 per step (reward)"],
        ),
        (
            "long.jsonl",
            lines(
                *(
                    {"step": step, "metric": metric, "value": step / 8}
                    for step in STEPS
                    for metric in ("reward", "loss")
                )
            ),
            ["each row holds one metric, so the metrics of a step were combined"],
        ),
        (
            "events.jsonl",
            lines(
                {"a": 1},
                *({"event": "x", "partition_id": f"at_{n}", "metrics": {"r": n}} for n in STEPS),
                {"event": "x", "metrics": {"reward": 1.0}},
                {"event": "x", "metrics": {"reward": 1.0}},
            ),
            ["the events were sorted by step", "2 events have no step", "1 line is not an event"],
        ),
    ],
)
def test_what_was_decided_on_the_way_is_noted(
    tmp_path: Path, name: str, content: str, notes: list[str]
) -> None:
    made = opened(tmp_path / name, content).notes
    assert [note[: len(said)] for said, note in zip(notes, made, strict=True)] == notes


class TestCsv:
    def test_plain(self, tmp_path: Path) -> None:
        record = opened(tmp_path / "a.csv", "step,reward\n1,0.5\n2,0.75\n")
        assert (values(record, "step"), values(record, "reward")) == ([1, 2], [0.5, 0.75])
        assert values(record, "optimizer_updates") == [1.0, 2.0]
        assert record.notes == ()
        assert record.sources[0].reader == "csv"

    @each_case("name", ["a.csv", "a.txt", "a", "a.json"])
    def test_content_decides_and_not_the_name(self, tmp_path: Path, name: str) -> None:
        assert values(opened(tmp_path / name, "step,reward\n1,0.5\n2,0.75\n"), "reward") == [
            0.5,
            0.75,
        ]

    @each_case(
        "content",
        [
            b"\xef\xbb\xbfstep,reward\r\n1,0.5\r\n2,0.75\r\n",
            "step,reward\n1,0.5\n2,0.75\n".encode("utf-16"),
            b"step;reward\n1;0,5\n2;0,75\n",
            b"step\treward\n1\t0.5\n2\t0.75\n",
            b'"step","reward"\n"1","0.5"\n"2","0.75"\n',
            b"step,reward\n1,0.5\n\n\n2,0.75",
            b"step,reward\n1,0.5\nstep,reward\n2,0.75\n",
            b" Step , reward \n1, 0.5\n2, 0.75\n",
        ],
    )
    def test_dialects(self, tmp_path: Path, content: bytes) -> None:
        record = opened(tmp_path / "a.csv", content)
        assert (values(record, "step"), values(record, "reward")) == ([1, 2], [0.5, 0.75])

    def test_latin_1_is_noted(self, tmp_path: Path) -> None:
        record = opened(tmp_path / "a.csv", "step,précision\n1,0.5\n2,1\n".encode("latin-1"))
        assert record.metrics() == ("précision",)
        assert "Latin-1" in record.notes[0]

    def test_no_log_cells_and_texts(self, tmp_path: Path) -> None:
        record = opened(
            tmp_path / "a.csv", "Step,reward,note\n1,No log,a\n2,0.5,b\n3,oops,c\n4,nan,\n5,inf,d\n"
        )
        assert values(record, "reward") == [None, 0.5, None, None, float("inf")]
        assert record.metrics() == ("reward",)
        (note,) = record.notes
        says("readers/tables/1", note)
        more = opened(tmp_path / "b.csv", "Step,reward\n1,0.5\n2,oops\n3,none so far\n4,0.75\n")
        (note,) = more.notes
        says("readers/tables/2", note)

    def test_ragged_rows_are_noted(self, tmp_path: Path) -> None:
        record = opened(tmp_path / "a.csv", "step,reward,kl\n1,0.5\n2,0.75,0.1,9\n")
        assert values(record, "kl") == [None, 0.1]
        assert "2 rows have more or fewer cells" in record.notes[0]

    def test_rows_that_gain_a_cell_without_a_new_header_are_set_aside(self, tmp_path: Path) -> None:
        before = "step,reward,kl\n" + "".join(f"{step},0.5,0.01\n" for step in range(1, 5))
        wider = "".join(f"{step},0.5,0.2,0.01\n" for step in range(5, 9))
        record = opened(tmp_path / "a.csv", before + wider)
        assert values(record, "kl") == [0.01] * 4
        assert record.notes[0].startswith("the last 4 rows have more cells than the header")
        for content, steps in (
            (before + wider + "9,0.5,0.01\n", 9),  # odd rows, after which the table goes on
            (before + wider.replace(",0.2,0.01", ",0.01,"), 8),  # a comma at the end
            (before + "step,reward,std,kl\n" + wider, 8),
        ):
            record = opened(tmp_path / "a.csv", content)
            assert len(record.steps) == steps
            assert not any("the last" in note for note in record.notes)

    def test_duplicate_columns_carry_a_number(self, tmp_path: Path) -> None:
        record = opened(tmp_path / "a.csv", "step,reward,reward\n1,0.5,0.1\n2,0.75,0.2\n")
        assert values(record, "reward (2)") == [0.1, 0.2]
        assert "an earlier name and got a number" in record.notes[0]

    def test_huge_numbers(self, tmp_path: Path) -> None:
        record = opened(tmp_path / "a.csv", f"step,reward\n1,{10**400}\n2,{2**70}\n{10**30},3\n")
        assert values(record, "reward") == [float("inf"), 2.0**70]
        assert "1 row with a step of 2^53 or more" in record.notes[0]

    def test_one_row_and_nothing_but_nan(self, tmp_path: Path) -> None:
        assert values(opened(tmp_path / "a.csv", "step,reward\n1,0.5\n"), "reward") == [0.5]
        assert values(opened(tmp_path / "b.csv", "step,reward\n1,nan\n2,nan\n"), "reward") == [
            None,
            None,
        ]

    def test_the_decimal_of_a_cell_is_kept_exactly(self, tmp_path: Path) -> None:
        assert values(
            opened(tmp_path / "a.csv", "step,reward\n1,0.1234567890123456\n"), "reward"
        ) == [0.1234567890123456]

    def test_a_column_of_control_characters(self, tmp_path: Path) -> None:
        record = opened(tmp_path / "a.csv", "step,rew\x1b[31mard,reward\n1,0.5,1\n2,0.5,1\n")
        assert all(name.isprintable() for name in record.steps.columns)


class TestColumns:
    def test_the_user_names_the_step_and_the_reward(self, tmp_path: Path) -> None:
        record = opened(
            tmp_path / "a.csv",
            "n,score_x\n10,0.5\n20,0.75\n",
            columns={"step": "n", "reward": "score_x"},
        )
        assert values(record, "step") == [10, 20]
        assert record.column("reward") == "score_x"

    def test_the_users_name_wins_over_the_guess(self, tmp_path: Path) -> None:
        record = opened(
            tmp_path / "a.csv", "step,reward,mine\n1,0.5,1\n2,0.75,2\n", columns={"reward": "Mine"}
        )
        assert [meaning.column for meaning in record.meanings if meaning.quantity == "reward"] == [
            "mine"
        ]

    def test_a_column_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(MissingMetricError, match="the log has step, reward"):
            opened(tmp_path / "a.csv", "step,reward\n1,0.5\n", columns={"step": "iteration"})

    @each_case(
        ("name", "nearest"),
        [
            ("nope", ""),
            ("", ""),
            ("Reward", "reward, "),
            ("reward/", "reward, "),
            ("rward", "reward, "),
            ("eval/nope", ""),
            ("kl_mean", ""),
            ("group_size", ""),
            ("token", "tokens, "),
            ("stp", "step, "),
        ],
    )
    def test_a_name_that_is_not_known(self, tmp_path: Path, name: str, nearest: str) -> None:
        with pytest.raises(
            InvalidArgumentError,
            match=rf"got {name!r}: use one of {nearest}[\w/<>]+(, [\w/<>]+){{3,4}} \(the nearest\), or eval/",
        ) as caught:
            opened(tmp_path / "a.csv", "step,reward\n1,0.5\n", columns={name: "reward"})
        assert "\n" not in str(caught.value)

    @each_case(
        "name",
        [
            "reward/f",
            "eval/reward",
            "kl",
            "dead_group_share",
            "completion_length_max",
            "clip_ratio/high",
        ],
    )
    def test_every_quantity_is_a_name(self, tmp_path: Path, name: str) -> None:
        record = opened(tmp_path / "a.csv", "step,mine\n1,0.5\n", columns={name: "mine"})
        assert record.column(name) == "mine"

    @pytest.mark.parametrize("name", ["tokens", "seconds", "optimizer_updates"])
    def test_the_user_names_a_clock(self, tmp_path: Path, name: str) -> None:
        text = "step,reward,mine,falls\n1,0.5,7,2\n2,0.75,9,1\n"
        assert values(opened(tmp_path / "a.csv", text, columns={name: "mine"}), name) == [7.0, 9.0]
        with pytest.raises(InvalidArgumentError, match="never decreases"):
            opened(tmp_path / "a.csv", text, columns={name: "falls"})

    def test_no_step_column_counts_the_rows(self, tmp_path: Path) -> None:
        record = opened(tmp_path / "a.csv", "reward,kl\n0.5,1\n0.75,2\n")
        assert values(record, "step") == [1, 2]
        assert "--column step=NAME" in record.notes[0]

    def test_neither_steps_nor_a_known_metric(self, tmp_path: Path) -> None:
        with pytest.raises(UnreadableRunError, match="neither steps nor a known metric"):
            opened(tmp_path / "a.csv", "question,answer\n1,2\n2,4\n")


class TestOrder:
    def log(self, path: Path, steps: list[int], **options: Any) -> RunRecord:
        rows = "".join(
            json.dumps({"step": step, "reward": float(place)}) + "\n"
            for place, step in enumerate(steps)
        )
        return opened(path / "a.jsonl", rows, **options)

    def test_a_restart_keeps_what_the_continued_run_wrote(self, tmp_path: Path) -> None:
        record = self.log(tmp_path, [*range(1, 21), *range(16, 31)])
        assert values(record, "step") == list(range(1, 31))
        assert values(record, "reward")[14:16] == [14.0, 20.0]
        (note,) = record.notes
        says("readers/tables/3", note)

    def test_a_crash_before_the_restart_point_was_passed(self, tmp_path: Path) -> None:
        record = self.log(tmp_path, [*range(1, 21), 16, 17])
        assert values(record, "step") == list(range(1, 18))

    def test_two_runs_in_one_log_take_the_last(self, tmp_path: Path) -> None:
        record = self.log(tmp_path, [*range(1, 21), *range(1, 16)])
        assert values(record, "reward") == [float(place) for place in range(20, 35)]
        assert "second run" in record.notes[0]
        assert "20 rows before it are left out" in record.notes[0]

    def test_rows_out_of_order_are_sorted(self, tmp_path: Path) -> None:
        record = self.log(tmp_path, [3, 1, 2, 6, 5, 4])
        assert values(record, "reward") == [1.0, 2.0, 0.0, 5.0, 4.0, 3.0]
        assert "sorted" in record.notes[0]

    def test_a_late_evaluation_is_no_restart(self, tmp_path: Path) -> None:
        rows = [{"step": step, "reward": 0.1 * step} for step in range(1, 11)]
        rows.insert(8, {"step": 5, "eval_reward": 0.9})
        record = opened(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))
        assert values(record, "step") == list(range(1, 11))
        assert values(record, "eval_reward")[4] == 0.9
        assert record.notes == ()

    def test_a_step_logged_again_at_the_end_keeps_its_last_values(self, tmp_path: Path) -> None:
        record = self.log(tmp_path, [1, 2, 3, 3])
        assert values(record, "reward") == [0.0, 1.0, 3.0]
        (note,) = record.notes
        says("readers/tables/4", note)

    def test_micro_batches_are_averaged_and_the_window_stays(self, tmp_path: Path) -> None:
        record = self.log(tmp_path, [0, 0, 1, 1, 2, 2])
        assert values(record, "reward") == [0.5, 2.5, 4.5]
        assert values(record, "window") == [1.0, 1.0, 1.0]
        assert "at most 2 per step" in record.notes[0]

    def test_averaged_where_half_of_the_steps_have_several_rows(self, tmp_path: Path) -> None:
        assert values(self.log(tmp_path, [0, 0, 1, 1, 2, 3]), "reward") == [0.5, 2.5, 4.0, 5.0]
        assert values(self.log(tmp_path, [0, 0, 1, 2, 3, 4]), "reward") == [1.0, 2.0, 3.0, 4.0, 5.0]

    @each_case("number", [math.nan, math.inf])
    def test_a_mean_with_a_number_that_is_not_finite_is_none(
        self, tmp_path: Path, number: float
    ) -> None:
        rows = [{"step": row // 2, "reward": float(row)} for row in range(8)]
        rows[5]["reward"] = number
        record = opened(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))
        assert np.isfinite(record.values("reward")).tolist() == [True, True, False, True]

    @each_case("name", ["a.jsonl", "a.csv"])
    def test_a_row_that_lacks_the_key_is_none_of_the_mean(self, tmp_path: Path, name: str) -> None:
        rows = [{"step": row // 2, "reward": float(row)} for row in range(8)]
        if name == "a.csv":
            cells = [f"{row['step']},{'' if row is rows[5] else row['reward']}" for row in rows]
            text = "\n".join(["step,reward", *cells])
        else:
            del rows[5]["reward"]
            text = "\n".join(map(json.dumps, rows))
        assert values(opened(tmp_path / name, text), "reward") == [0.5, 2.5, 4.0, 6.5]

    def test_many_restarts_of_a_long_log_are_quick(self, tmp_path: Path) -> None:
        steps: list[int] = []
        for start in range(0, 20_000, 10):
            steps += range(start, start + 15)
        assert len(self.log(tmp_path, steps).steps) == 20_005

    @each_case("name", ["step", "when"])
    @each_case("spacing", [0.5, 0.25, 0.1])
    def test_fractional_steps_are_numbered_and_stay_as_the_clock(
        self, tmp_path: Path, name: str, spacing: float
    ) -> None:
        rows = "".join(f"{spacing * row},{row}\n" for row in range(8))
        record = opened(
            tmp_path / "a.csv",
            f"{name},reward\n{rows}",
            columns={"step": "when"} if name == "when" else {},
        )
        assert values(record, "step") == list(range(1, 9))
        assert values(record, "reward") == [float(row) for row in range(8)]
        assert values(record, "optimizer_updates") == [spacing * row for row in range(8)]
        assert "numbered 1 to 8" in " ".join(record.notes)

    def test_fractional_steps_of_a_restarted_run(self, tmp_path: Path) -> None:
        record = opened(
            tmp_path / "a.csv", "step,reward\n0.5,1\n1,2\n1.5,3\n2,4\n1.5,5\n2,6\n2.5,7\n"
        )
        assert (values(record, "reward"), values(record, "step")) == (
            [1.0, 2.0, 5.0, 6.0, 7.0],
            [1, 2, 3, 4, 5],
        )
        assert values(record, "optimizer_updates") == [0.5, 1.0, 1.5, 2.0, 2.5]

    def test_fractional_numbers_that_fall_are_no_clock(self, tmp_path: Path) -> None:
        rows = "".join(
            f"{number},{place}\n"
            for place, number in enumerate([3.5, 1.25, 2.75, 0.5, 3.25, 1.5, 2.25, 0.25])
        )
        record = opened(tmp_path / "a.csv", f"n,reward\n{rows}", columns={"step": "n"})
        assert values(record, "reward") == [float(place) for place in range(8)]
        assert values(record, "optimizer_updates") == [float(step) for step in range(1, 9)]
        assert "decrease too often to be a clock" in " ".join(record.notes)
        assert "are the clock" not in " ".join(record.notes)

    def test_negative_fractional_steps_are_no_clock(self, tmp_path: Path) -> None:
        record = opened(tmp_path / "a.csv", "step,reward\n-1,0\n-0.5,1\n0,2\n0.5,3\n")
        assert values(record, "optimizer_updates") == [1.0, 2.0, 3.0, 4.0]
        assert "are the clock" not in " ".join(record.notes)

    def test_huge_steps_are_left_out_for_the_true_reason(self, tmp_path: Path) -> None:
        record = self.log(tmp_path, [10**15 * row for row in range(12)] + [2**53 - 1])
        assert len(record.steps) == 11
        (note,) = record.notes
        says("readers/tables/5", note)
        with pytest.raises(UnreadableRunError, match=r"below 2\^53"):
            self.log(tmp_path, [10**17, 2 * 10**17])

    def test_a_single_fractional_step_is_left_out(self, tmp_path: Path) -> None:
        rows = "".join(f"{step},1\n" for step in [*range(1, 20), 19.5, 20])
        record = opened(tmp_path / "a.csv", f"step,reward\n{rows}")
        assert len(record.steps) == 20
        (note,) = record.notes
        says("readers/tables/11", note)


class TestJson:
    def test_a_list_of_rows_with_a_summary(self, tmp_path: Path) -> None:
        rows = [
            {"step": 1, "reward": 0.5},
            {"step": 2, "reward": 0.75},
            {"step": 2, "train_runtime": 9.0, "train_loss": 0.1},
        ]
        record = opened(tmp_path / "a.json", json.dumps(rows))
        assert values(record, "reward") == [0.5, 0.75]
        (note,) = record.notes
        says("readers/tables/6", note)

    @each_case(
        "content",
        [
            {"step": [1, 2], "reward": [0.5, 0.75]},
            {
                "config": {"lr": 1},
                "history": [{"step": 1, "reward": 0.5}, {"step": 2, "reward": 0.75}],
            },
            {"2": {"reward": 0.75}, "1": {"reward": 0.5}},
            {"metrics": {"step": [1, 2], "reward": [0.5, 0.75]}, "name": "x"},
        ],
    )
    def test_shapes(self, tmp_path: Path, content: dict[str, Any]) -> None:
        record = opened(tmp_path / "a.json", json.dumps(content))
        assert (values(record, "step"), values(record, "reward")) == ([1, 2], [0.5, 0.75])

    def test_settings_beside_the_rows(self, tmp_path: Path) -> None:
        content = {"group_size": 8, "lr": 1e-5, "rows": [{"step": 1, "reward": 0.5}]}
        record = opened(tmp_path / "a.json", json.dumps(content))
        assert (record.config.value("group_size"), record.config.value("learning_rate")) == (
            8,
            1e-5,
        )

    def test_several_runs_are_chosen_by_name(self, tmp_path: Path) -> None:
        runs = [
            {
                "tag": f"seed{n}",
                "seed": n,
                "group_size": 4,
                "reward_trace": [0.1 * n, 0.2 * n, 0.3 * n],
            }
            for n in (1, 2)
        ]
        path = tmp_path / "a.json"
        path.write_text(json.dumps({"lr": 0.1, "results": runs}))
        with pytest.raises(UnreadableRunError, match=r"holds 2 runs: add one of #seed1, #seed2"):
            run_record(path)
        with pytest.raises(UnreadableRunError, match="seed9"):
            run_record(f"{path}#seed9")
        record = run_record(f"{path}#seed2")
        assert values(record, "reward_trace") == [0.2, 0.4, 0.6]
        assert (record.name, record.config.value("group_size"), record.config.value("seed")) == (
            "seed2",
            4,
            2,
        )

    def test_a_cut_off_list_keeps_its_whole_rows(self, tmp_path: Path) -> None:
        text = json.dumps([{"step": step, "reward": step / 10} for step in range(1, 11)])
        record = opened(tmp_path / "a.json", text[:-20])
        assert values(record, "step") == list(range(1, 10))
        assert "cut off or damaged after row 9" in record.notes[0]

    @each_case(
        "text",
        [
            '{"step": [1, 2], "rew',
            '[{"step": 1, "rew',
            "[",
            "{",
            "[1, 2, 3]",
            "[[1, 2]]",
            '["a"]',
            "{}",
            "[]",
            "[{}]",
        ],
    )
    def test_damaged_or_empty(self, tmp_path: Path, text: str) -> None:
        with pytest.raises(UnreadableRunError):
            opened(tmp_path / "a.json", text)

    @each_case(
        "text",
        [
            "[" * 100_000,
            '{"a":' * 100_000,
            '[{"a":' + "[" * 50_000,
            '{"a": 1}\n{"b":' + "[" * 99_999,
        ],
    )
    def test_nested_too_deeply(self, tmp_path: Path, text: str) -> None:
        with pytest.raises(GroupwiseError):
            opened(tmp_path / "a.json", text)

    def test_settings_are_no_log(self, tmp_path: Path) -> None:
        with pytest.raises(
            UnreadableRunError, match=r"holds settings .learning_rate, group_size.*--config"
        ):
            opened(tmp_path / "a.json", json.dumps({"learning_rate": 1e-5, "group_size": 8}))
        with pytest.raises(UnreadableRunError, match=r"holds settings.*--config"):
            opened(
                tmp_path / "a.yaml",
                "model: x\ntraining:\n  num_generations: 4\n  lr: 1e-5\n  bf16: true\n",
            )

    def test_numbers_of_every_kind(self, tmp_path: Path) -> None:
        text = (
            '[{"step": 1, "a": NaN, "b": -Infinity, "c": "0.5", "d": true, "e": null, "f": [1], '
            '"g": {"h": {"i": 7}}, "j": '
        )
        text += "9" * 5000 + "}]"
        record = opened(tmp_path / "a.json", text)
        row = record.steps.row(0, named=True)
        assert (row["a"], row["b"], row["c"], row["d"], row["g/h/i"], row["j"]) == (
            None,
            float("-inf"),
            0.5,
            1.0,
            7.0,
            float("inf"),
        )
        assert not {"e", "f"} & set(row)

    def test_of_a_key_twice_the_last_counts(self, tmp_path: Path) -> None:
        record = opened(
            tmp_path / "a.jsonl",
            '{"step": 1, "reward": 1, "reward": 2}\n{"step": 2, "reward": 3}\n',
        )
        assert values(record, "reward") == [2.0, 3.0]

    def test_thousands_of_keys_are_bounded(self, tmp_path: Path) -> None:
        rows = [
            {"step": step, "reward": 1.0, **{f"k{step}_{n}": 1.0 for n in range(50)}}
            for step in range(42)
        ]
        record = opened(tmp_path / "a.json", json.dumps(rows))
        assert len(record.metrics()) < 2001
        assert "exceeds 2,000 keys" in record.notes[-1]


class TestJsonLines:
    def test_series_of_x_and_y_by_title_are_a_table(self, tmp_path: Path) -> None:
        """As ClearML gives a task's scalars; of two tasks it is not one run."""
        step = list(range(1, 9))
        series = {"reward": {"name": "reward", "x": step, "y": [n / 9 for n in step]}}
        series["kl"] = {"name": "kl", "x": step, "y": [0.1] * 8}
        (tmp_path / "scalars.json").write_text(json.dumps({"train": series}))
        record = run_record(tmp_path / "scalars.json")
        assert record.steps["step"].to_list() == step
        assert record.metrics() == ("reward", "kl")
        (tmp_path / "scalars.json").write_text(json.dumps({"task a": series, "task b": series}))
        with pytest.raises(UnreadableRunError):
            run_record(tmp_path / "scalars.json")

    def test_a_column_of_rows_that_are_left_out_alone_is_none(self, tmp_path: Path) -> None:
        """The mean over an epoch, in a row without a step, was a column of nothing but NaN."""
        rows = [{"step": n, "reward": n / 9, "kl": np.nan} for n in range(1, 9)]
        lines = [json.dumps(row) for row in [*rows, {"epoch": 1, "avg_advantage": 1e-9}]]
        (tmp_path / "log.jsonl").write_text("\n".join(lines))
        assert run_record(tmp_path / "log.jsonl").metrics() == ("reward", "kl")

    def test_damaged_lines_are_counted(self, tmp_path: Path) -> None:
        good = [json.dumps({"step": step, "reward": step}) for step in (1, 3, 4)]
        record = opened(
            tmp_path / "a.jsonl", "\n".join([good[0], '{"step": 2, "rew', "hello", *good[1:]])
        )
        assert values(record, "step") == [1, 3, 4]
        (note,) = record.notes
        says("readers/tables/7", note)

    def test_one_damaged_line_is_singular(self, tmp_path: Path) -> None:
        record = opened(
            tmp_path / "a.jsonl", '{"step": 1, "reward": 1}\n{"st\n{"step": 2, "reward": 1}\n'
        )
        (note,) = record.notes
        says("readers/tables/8", note)

    def test_mostly_damaged_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(UnreadableRunError, match="2 damaged lines"):
            opened(tmp_path / "a.jsonl", '{"step": 1, "reward": 1}\n{"st\n{"st\n')

    def test_one_line(self, tmp_path: Path) -> None:
        assert values(opened(tmp_path / "a.jsonl", '{"step": 7, "reward": 1}'), "step") == [7]

    def test_events_of_several_types_become_one_row_a_step(self, tmp_path: Path) -> None:
        rows: list[dict[str, Any]] = [{"type": "eval", "step": 0, "reward": 0.1}]
        for step in (1, 2):
            rows.append({"type": "rollout", "step": step, "reward": 0.2 * step, "seconds": 1.0})
            rows += [
                {
                    "type": "train",
                    "step": step,
                    "optimizer_step": 2 * step - 1 + n,
                    "loss": float(n),
                    "lr": 0.1,
                }
                for n in (0, 1)
            ]
            rows.append({"type": "done", "step": step, "seconds": 5.0, "lr": 0.2})
        record = opened(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))
        assert values(record, "step") == [0, 1, 2]
        assert values(record, "reward") == [None, 0.2, 0.4]
        assert values(record, "eval/reward") == [0.1, None, None]
        assert values(record, "loss") == [None, 0.5, 0.5]
        assert values(record, "optimizer_updates")[1:] == [2.0, 4.0]
        assert (values(record, "train/lr")[1], values(record, "done/lr")[1]) == (0.1, 0.2)
        assert record.column("reward") == "reward"

    def test_a_file_loggers_data(self, tmp_path: Path) -> None:
        rows = [
            {"step": step, "data": {"critic/score/mean": 0.1 * step, "actor/entropy": 1.0}}
            for step in (1, 2, 3)
        ]
        record = opened(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))
        assert record.column("reward") == "critic/score/mean"

    def test_seeds_in_one_file_are_refused_and_can_be_chosen(self, tmp_path: Path) -> None:
        rows: list[dict[str, Any]] = [
            {"seed": seed, "step": step, "reward": seed + step / 10}
            for step in range(1, 5)
            for seed in (1, 2)
        ]
        path = tmp_path / "a.jsonl"
        with pytest.raises(UnreadableRunError, match=r"2 runs: add one of #1, #2"):
            opened(path, "\n".join(map(json.dumps, rows)))
        rows = [{**row, "run": f"r{row['seed']}", "seed": 0} for row in rows]
        with pytest.raises(UnreadableRunError, match="#r1"):
            opened(path, "\n".join(map(json.dumps, rows)))
        assert values(run_record(f"{path}#r2"), "reward") == [2.1, 2.2, 2.3, 2.4]
        with pytest.raises(UnreadableRunError, match="r9"):
            run_record(f"{path}#r9")
        (tmp_path / "b.csv").write_text(
            "seed,step,reward\n"
            + "".join(f"{row['run'][1]},{row['step']},{row['reward']}\n" for row in rows)
        )
        assert values(run_record(f"{tmp_path / 'b.csv'}#1"), "reward") == [1.1, 1.2, 1.3, 1.4]

    def test_clocks(self, tmp_path: Path) -> None:
        rows = [
            {"step": step, "reward": 0.1, "num_tokens": 100 * step, "_timestamp": 1e9 + 60 * step}
            for step in (1, 2, 3)
        ]
        record = opened(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))
        assert values(record, "tokens") == [100.0, 200.0, 300.0]
        assert values(record, "seconds") == [
            60.0,
            120.0,
            180.0,
        ]  # a time of day does not tell how long the first row took

    def test_updates_per_step(self, tmp_path: Path) -> None:
        rows = "\n".join(json.dumps({"step": step, "reward": 0.1}) for step in (1, 2, 3))
        record = opened(tmp_path / "a.jsonl", rows, settings={"updates_per_step": "4"})
        assert values(record, "optimizer_updates") == [4.0, 8.0, 12.0]
        assert record.config.updates_per_step.source == "--set"


class TestRefused:
    @each_case(
        ("content", "words"),
        [
            (b"", "empty"),
            (b" \n\n", "empty"),
            (random.Random(0).randbytes(4096), "binary"),
            (b"\x1f\x8b" + b"a" * 99, "gzip"),
            (b"\x28\xb5\x2f\xfd" + b"a" * 99, "a zstd archive: decompress it first, with zstd -d"),
            (b"\x80\x04" + b"a" * 99, "never opened"),
            (b"PK\x03\x04aa", "zip"),
            (b"SQLite format 3\0", "SQLite"),
            (b"PAR1 nothing", "Parquet"),
            (b"hello world\n", "none of them"),
            (b"\0" * 100, "binary"),
            (b"step,reward\n", "no"),
            (b"a,b\nx,y\n", "none of them"),
        ],
    )
    def test_a_sentence_says_why(self, tmp_path: Path, content: bytes, words: str) -> None:
        with pytest.raises(UnreadableRunError, match=words) as caught:
            opened(tmp_path / "log", content)
        assert "\n" not in str(caught.value)
        assert str(caught.value).startswith("expected ")

    @each_case("path", ["", "nowhere.csv", "a\0b", "x" * 5000])
    def test_no_such_path(self, path: str) -> None:
        with pytest.raises(UnreadableRunError):
            run_record(path)

    def test_no_permission(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "a.csv"
        path.write_text("step,reward\n1,2\n")

        def refuse(*_: object, **__: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "open", refuse)
        with pytest.raises(UnreadableRunError, match="no permission"):
            run_record(path)

    def test_loops_pipes_and_devices(self, tmp_path: Path) -> None:
        (tmp_path / "loop").symlink_to(tmp_path / "loop")
        os.mkfifo(tmp_path / "pipe")
        for path in (tmp_path / "loop", tmp_path / "pipe", Path("/dev/zero")):
            with pytest.raises(UnreadableRunError):
                run_record(path)

    def test_folders_without_a_log(self, tmp_path: Path) -> None:
        with pytest.raises(UnreadableRunError, match="holds no log"):
            run_record(tmp_path)
        (tmp_path / "config.json").write_text('{"lr": 1}')
        (tmp_path / "self").symlink_to(tmp_path)
        with pytest.raises(UnreadableRunError, match="holds no log"):
            run_record(tmp_path)

    def test_a_folder_with_one_log_opens_and_with_two_asks(self, tmp_path: Path) -> None:
        (tmp_path / "metrics.jsonl").write_text(
            '{"step": 1, "reward": 1}\n{"step": 2, "reward": 2}\n'
        )
        (tmp_path / "config.yaml").write_text("group_size: 8\nlearning_rate: 1e-5\n")
        record = run_record(tmp_path)
        assert (record.config.value("group_size"), record.config.group_size.source) == (
            8,
            "config.yaml",
        )
        (tmp_path / "other.csv").write_text("step,reward\n1,2\n")
        with pytest.raises(UnreadableRunError, match=r"holds 2 \(metrics.jsonl, other.csv\)"):
            run_record(tmp_path)

    def test_settings_of_the_user(self, tmp_path: Path) -> None:
        path = tmp_path / "a.csv"
        path.write_text("step,reward\n1,2\n")
        (tmp_path / "mine.yaml").write_text("num_generations: 4\nbeta: 0.04\n")
        record = run_record(path, config=tmp_path / "mine.yaml", settings={"group_size": "16"})
        assert (record.config.value("group_size"), record.config.value("kl_weight")) == (16, 0.04)
        assert record.config.kl_weight.source == "--config mine.yaml"
        with pytest.raises(InvalidArgumentError, match="expected a setting"):
            run_record(path, settings={"G": "16"})
        with pytest.raises(UnreadableRunError):
            run_record(path, config=tmp_path / "gone.yaml")
        (tmp_path / "none.yaml").write_text("color: blue\n")
        with pytest.raises(InvalidArgumentError, match="no known setting"):
            run_record(path, config=tmp_path / "none.yaml")


def test_settings_of_a_file_that_goes_with_the_log(tmp_path: Path) -> None:
    (tmp_path / "run7.config.json").write_text('{"group_size": 8}')
    record = opened(tmp_path / "run7.metrics.csv", "step,reward\n1,0.5\n", settings={"seed": "3"})
    assert (record.config.group_size.value, record.config.group_size.source) == (
        8,
        "run7.config.json",
    )
    assert record.config.value("seed") == 3


def test_a_saved_record_opens(tmp_path: Path) -> None:
    record = opened(tmp_path / "a.csv", "step,reward\n1,0.5\n")
    again = run_record(record.save(tmp_path / "saved"), settings={"group_size": "8"})
    assert (values(again, "reward"), again.config.value("group_size")) == ([0.5], 8)


def test_a_parquet_table_opens(tmp_path: Path) -> None:
    opened(tmp_path / "a.csv", "step,reward\n1,0.5\n2,0.75\n").steps.write_parquet(
        tmp_path / "steps.parquet"
    )
    assert values(run_record(tmp_path / "steps.parquet"), "reward") == [0.5, 0.75]


def test_every_reader_has_a_name_and_a_sniff() -> None:
    assert len({reader.name for reader in READERS}) == len(READERS)
    for reader in READERS:
        assert callable(reader.sniff)


def test_no_sniff_is_surer_than_the_table_says_and_the_surest_comes_first() -> None:
    """What may be surer than all before it is asked; what is listed too low never would be."""
    rows = list(table_rows(Path(tables.__file__).with_name("readers.tsv")))
    most = [float(row["most"]) for row in rows]
    assert most == sorted(most, reverse=True)
    for row in rows:
        if not row["sniff"]:  # its mark tells
            continue
        module, _, name = row["sniff"].rpartition(".")
        sniff = getattr(import_module(f"groupwise.{module}"), name)
        tree = ast.parse(inspect.getsource(sniff))
        written = [
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, float)
        ]
        most_of = float(row["most"])  # also of one that says yes or no
        assert most_of == max(written, default=most_of), row["name"]


def test_columns_of_cells_that_are_no_plain_numbers_are_named(tmp_path: Path) -> None:
    (tmp_path / "run.csv").write_text(
        "step,reward,tokens,model\n" + "\n".join(f'{t},0.{t},"{t},000",qwen' for t in range(1, 9))
    )
    record = run_record(tmp_path / "run.csv")
    (note,) = record.notes
    says("readers/tables/9", note)
    (tmp_path / "shares.csv").write_text(
        "step,accuracy\n" + "\n".join(f"{t},{t}.5pp" for t in range(1, 9))
    )
    with pytest.raises(UnreadableRunError, match=r"accuracy such as '1\.5pp': write plain numbers"):
        run_record(tmp_path / "shares.csv")


@each_case("name", ["reward", "reward_pct", "truncated", "truncated (%)"])
@each_case("ending", ["csv", "jsonl"])
def test_cells_in_percent_are_shares(name: str, ending: str, tmp_path: Path) -> None:
    rows = [{"step": t, name: f"{t}4.2%", "kl": 0.01} for t in range(1, 9)]
    path = tmp_path / f"a.{ending}"
    path.write_text(
        "\n".join(map(json.dumps, rows))
        if ending == "jsonl"
        else "\n".join([",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)])
    )
    assert run_record(path).steps[name].to_list() == pytest.approx(
        [t / 10 + 0.042 for t in range(1, 9)]
    )


def test_numbers_inside_metrics_keep_their_names(tmp_path: Path) -> None:
    rows = [
        {"event": "train_step", "step": t, "metrics": {"reward_mean": t / 8, "loss": 0.5}}
        for t in range(1, 9)
    ]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    record = run_record(tmp_path / "log.jsonl")
    assert record.steps[record.column("reward")].to_list() == [t / 8 for t in range(1, 9)]
    (tmp_path / "log.jsonl").write_text("\n".join(json.dumps(row | {"loss": 1.0}) for row in rows))
    record = run_record(tmp_path / "log.jsonl")
    assert (record.steps["loss"][0], record.steps["metrics/loss"][0]) == (1.0, 0.5)


class TestNuls:
    """A text with a few NUL bytes, as a crashed disk or NCCL leaves them, is read without them."""

    ROWS = "".join(
        json.dumps({"step": step, "reward": step / 8, "loss": 0.5}) + "\n" for step in range(1, 41)
    )
    PRINTED = "".join(
        f"step:{step} - critic/score/mean:{step / 8} - actor/pg_loss:0.5\n" for step in range(1, 41)
    )
    TEXTS = {  # noqa: RUF012
        "a.jsonl": ROWS,
        "a.json": f"[{','.join(ROWS.splitlines())}]",
        "a.csv": "step,reward,loss\n"
        + "".join(f"{step},{step / 8},0.5\n" for step in range(1, 41)),
        "a.log": PRINTED,
        "trainer_state.json": json.dumps(
            {"log_history": [json.loads(line) for line in ROWS.splitlines()]}
        ),
    }

    @each_case("file", TEXTS)
    def test_a_few_are_left_out(self, tmp_path: Path, file: str) -> None:
        whole = self.TEXTS[file].encode()
        plain = opened(tmp_path / file, whole)
        third = len(whole) // 3
        damaged = opened(
            tmp_path / file,
            b"\0".join([whole[:third], whole[third : 2 * third], whole[2 * third :], b""]),
        )
        assert damaged.steps.equals(plain.steps)
        assert damaged.notes == plain.notes

    def test_a_hole_behind_the_first_rows(self, tmp_path: Path) -> None:
        lines = self.ROWS.encode().splitlines(keepends=True) * 200
        record = opened(
            tmp_path / "a.jsonl", b"".join([*lines[:4000], b"\0" * 200_000, *lines[4000:]])
        )
        assert values(record, "reward") == [step / 8 for step in range(1, 41)]

    @pytest.mark.parametrize("content", [b"\0" * 100, b"ab\0" * 50, b"\xff\xfa\0" + b"a" * 300])
    def test_what_is_really_binary_is_refused(self, tmp_path: Path, content: bytes) -> None:
        with pytest.raises(UnreadableRunError, match="binary"):
            opened(tmp_path / "a.log", content)


@each_case(
    "text",
    [
        # blanks part the columns
        (
            "  step   reward     kl\n     1     0.25   1e-3\n     2      0.5   2e-3\n     3      "
            "0.5   2e-3\n"
        ),
        "step,my-reward,my-reward_timestamp,my-kl,my-kl_timestamp\n1,0.25,17,1e-3,17\n2,0.5,18,2e-3,18\n3,0.5,19,2e-3,19\n",
        # words that begin with a capital letter
        "metricName,metricValue,step\nreward,0.25,1\nkl,1e-3,1\nreward,0.5,2\nkl,2e-3,2\nreward,0.5,3\nkl,2e-3,3\n",
        (
            "# Results\n\nOf a run.\n\n| step | reward | kl |\n|---:|---|---|\n| 1 | 0.25 | 1e-3 "
            "|\n| 2 | 0.5 | 2e-3 |\n| 3 | 0.5 | 2e-3 |\n"
        ),
    ],
)
def test_tables_of_other_tools(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.txt").write_text(text)
    record = run_record(tmp_path / "run.txt")
    assert record.steps["step"].to_list() == [1, 2, 3]
    assert [record.steps[record.column(name)].to_list() for name in ("reward", "kl")] == [
        [0.25, 0.5, 0.5],
        [0.001, 0.002, 0.002],
    ]


def test_a_chart_that_tensorboard_exported_is_called_by_its_file(tmp_path: Path) -> None:
    (tmp_path / "run-mine-tag-train_reward.csv").write_text(
        "Wall time,Step,Value\n17.5,1,0.25\n18.5,2,0.5\n"
    )
    record = run_record(tmp_path / "run-mine-tag-train_reward.csv")
    assert (record.column("reward"), record.steps["train_reward"].to_list()) == (
        "train_reward",
        [0.25, 0.5],
    )


def test_texts_with_tables_in_them_are_cells(tmp_path: Path) -> None:
    (tmp_path / "run.csv").write_text(
        'step,reward,note\n1,0.25,"a\n| step | x |\n|---|---|\n| 1 | 2 |"\n2,0.5,b\n'
    )
    assert run_record(tmp_path / "run.csv").steps["reward"].to_list() == [0.25, 0.5]


def test_a_text_with_a_table_of_something_else_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "NOTES.md").write_text(
        "# Runs\n\n| file | steps | why |\n|---|---|---|\n| a | 300 | x |\n| b | see below | y "
        "|\n| c | 2 | z |\n"
    )
    with pytest.raises(UnreadableRunError, match="got none"):
        run_record(tmp_path / "NOTES.md")


@each_case(
    ("before", "after"),
    [("[", "]"), ('{"a": ', "}"), ('[{"step": 1, "reward": 0.5}, ', "]"), ('{"rows": [', "]}")],
)
def test_json_that_is_nested_too_deeply_is_said_to_be(
    before: str, after: str, tmp_path: Path
) -> None:
    path = tmp_path / "log.json"
    path.write_text(before + "[" * 100_000 + "]" * 100_000 + after)
    with pytest.raises(UnreadableRunError, match="which is nested too deeply: flatten it"):
        run_record(path)


@each_case(("before", "words"), [(2, ""), (30, "last of 2 runs: 40 of 70 rows were read")])
def test_a_log_of_two_runs_says_how_much_of_it_is_read(
    before: int, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "log.jsonl"
    rows = [{"step": step, "reward": 0.5} for step in [*range(before), *range(40)]]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    record = run_record(path)
    assert record.in_part == words
    assert judge(record).headline.endswith(words)


def held(feed: JsonlFeed) -> tuple[Any, ...]:
    """What a feed has taken so far, and what it says of it."""
    store = feed.store
    cells = {name: np.nan_to_num(store.dense(name), nan=-9.0).tolist() for name in store.names()}
    texts = store.texts, store.labels, store.unread, store.decimals
    try:
        notes = feed.record(Origin(Path("a"), 1), Request()).notes
    except UnreadableRunError as error:
        return store.read, cells, texts, [str(error)]
    return store.read, cells, texts, list(notes)


@each_case(
    "second",
    [
        '{"step": 2, "reward": -1e-300}\r\n',
        '\n {"reward": 0.25, "step": 12345678901234567890} \n\n',
        '{"step": 2, "reward": 1e400}',
        '{"step": 2, "reward": NaN}',
        '{"step": 2, "reward": Infinity}',
        '{"step": 2, "reward": null}',
        '{"step": 2, "reward": true}',
        '{"step": 2, "reward": "0.5"}',
        '{"step": 2, "reward": [1, 0]}',
        '{"step": 2, "reward": {"mean": 1}}',
        '{"step": 2}',
        '{"step": 2, "reward": 1, "loss": 2}',
        '{"step": 2, "reward": 1, "reward": 2}',
        '{"step": 2, "step": 3}',
        '{"step": 2, "rew',
        '{"step": 2, "reward": 1}{"step": 3, "reward": 1}',
        '{"step": 2, "reward": 1}\r{"step": 3, "reward": 1}',
        "[2, 3]",
        '{"step": 2, "reward": 1, "train_runtime": 3}',
        '{"step": 2, "reward": 1}\0',
    ],
)
def test_json_lines_by_column_are_what_they_are_row_by_row(second: str) -> None:
    block = f'{{"step": 1, "reward": 0.1}}\n{second}\n{{"step": 9, "reward": 0.3}}\n'.encode()
    by_column, by_row = JsonlFeed(), JsonlFeed()
    by_column.take_block(block)
    by_row.take(lines_in(block))
    assert held(by_column) == held(by_row)


ODD_TEXTS = [  # JSON of a cell, and perhaps of further ones, in a column of texts
    r'"a, \"b\": {c}\n\u00e9 \ud83d\ude00"',
    r'"\ud800"',
    r'"\u0022\u003a", "more": 1',
    r'"\u0000"',
    '5, "more": 1',
    '5, "more": "a:"',
    '["a", "b:"], "more": 1',
    '{"b": "c"}',
    'null, "more": 1',
    '"a", "at": "b"',
    '"a\tb"',
    '"\rb"',
    '"0.50"',
    '"nan"',
    '"1_0"',
    '"12%"',
    '"12 ms"',
]


@each_case("odd", ODD_TEXTS)
def test_texts_by_column_are_what_they_are_row_by_row(odd: str) -> None:
    cells = ['"a"', odd, '"b"']
    rows = "".join(
        f'{{"step": {at}, "on": true, "at": {cell}, "reward": 0.5}}\n'
        for at, cell in enumerate(cells)
    )
    by_column, by_row = JsonlFeed(), JsonlFeed()
    by_column.take_block(rows.encode())
    by_row.take(lines_in(rows.encode()))
    assert held(by_column) == held(by_row)


def test_json_lines_without_room_for_all_are_read_by_column_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parsing, "MOST_ROWS", 8000)
    lines = [b'{"step": %d, "reward": 0.5, "at": "a"}\n' % step for step in range(30_000)]
    blocks = [b"".join(lines[start : start + 5000]) for start in range(0, 30_000, 5000)]
    by_column, by_row = JsonlFeed(), JsonlFeed()
    for block in blocks:
        with monkeypatch.context() as patch:
            patch.setattr(by_column, "take", None)
            by_column.take_block(block)
        with monkeypatch.context() as patch:
            patch.setattr(tables, "json_table", lambda _: None)
            by_row.take_block(block)
    by_column.take_newest()
    by_row.take_newest()
    assert 1000 < by_column.store.count < 8000
    assert held(by_column) == held(by_row)


def test_no_long_line_comes_to_polars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polars.read_ndjson", None)
    row = b'{"step": 1, "x": [%s0]}\n' % (b"0," * parsing.MOST_VALUES)
    assert json_table(b'{"step": 1}\n' + row) is None


def test_a_quotation_mark_in_a_key_hides_no_number_in_a_text() -> None:
    keys = rb'{"a\"b": 1, "c\"d": 2, "t": %s, "u": %s}'
    rows = [keys % cells for cells in ((b'"x"', b'"y"'), (b"5", b"6"))]
    assert json_table(b"\n".join(rows)) is None


@each_case(
    ("cell", "is_text"),
    [
        (b'["a"]', False),
        (b'{"a": 1}', False),
        (b"5", False),
        (rb'"[\"a\"]"', True),
        (rb'"{\"a\": 1}"', True),
        (rb'"[a]"', True),
        (rb'"a\\"', True),
        (rb'"\\\""', True),
        (rb'"\"a\": \\"', True),
    ],
)
def test_what_only_looks_like_a_text_is_not_read_by_column(cell: bytes, is_text: bool) -> None:
    table = json_table(b'{"t": "x", "n": 1}\n{"t": ' + cell + b', "n": 2}\n')
    assert (table is not None) == is_text
    assert table is None or table["t"].to_list() == ["x", json.loads(cell)]
    assert json_table(b'{"t": "x", "n": 1}\n{"t": ' + cell + b', "n": 2, "m": 3}\n') is None


MEANS = """
import sys
from groupwise.readers import run_record
steps = run_record(sys.argv[1]).steps
for name in sys.argv[2:]:
    print(name, *map(float.hex, steps[name]))
"""


def test_a_mean_over_rows_of_a_step_has_the_same_digits_whatever_the_threads(
    tmp_path: Path,
) -> None:
    """Polars adds the parts of a group as its threads come to them, unless the group is whole."""
    rng = np.random.default_rng(0)
    names = ["reward", *(f"metric_{number}" for number in range(30))]
    rows = [
        {"step": step} | dict(zip(names, map(float, rng.normal(size=len(names))), strict=True))
        for step in range(125)
        for _ in range(16)
    ]
    path = tmp_path / "run.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    ran = run_bounded(MEANS, [str(path), *names])
    assert ran.code == 0, ran.printed
    read = dict(line.split(maxsplit=1) for line in ran.printed.splitlines() if "0x" in line)
    for name in names:
        parts = [[row[name] for row in rows if row["step"] == step] for step in range(125)]
        assert read[name].split() == [(sum(part) / 16).hex() for part in parts]


def test_json_lines_of_the_same_numbers_are_read_by_column(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = JsonlFeed()
    monkeypatch.setattr(feed, "take", None)
    feed.take_block(b'{"step": 1, "reward": 1}\n{"step": 2, "reward": 0.5}\n')
    assert feed.store.dense("reward").tolist() == [1.0, 0.5]


def test_a_header_amid_a_table_names_the_columns_from_there_on(tmp_path: Path) -> None:
    """As a program writes that was replaced amid a run and appends to the same file."""
    old = "".join(f"{step},0.25,0.01\n" for step in range(1, 5))
    new = "".join(f"{step},0.5,1.5,0.02\n" for step in range(5, 9))
    text = f"step,reward,kl\n{old}step,reward,entropy,kl\n{new}step,reward,entropy,kl\n"
    (tmp_path / "run.csv").write_text(text)
    record = run_record(tmp_path / "run.csv")
    assert values(record, "reward") == [0.25] * 4 + [0.5] * 4
    assert values(record, "kl") == [0.01] * 4 + [0.02] * 4
    assert values(record, "entropy") == [None] * 4 + [1.5] * 4
    (note,) = record.notes
    says("readers/tables/10", note)


@pytest.mark.parametrize(
    ("kept", "total"),
    [("filter/num_groups_kept", "filter/num_groups_total"), ("groups_used", "groups_sampled")],
)
def test_counts_of_groups_tell_the_share_without_variance(
    kept: str, total: str, tmp_path: Path
) -> None:
    rows = [{"step": step, "reward": 0.4, kept: 24, total: 32} for step in range(1, 11)]
    record = opened(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))
    dead = next(meaning for meaning in record.meanings if meaning.quantity == "dead_group_share")
    assert dead.column == f"1 - {kept} / {total}"
    assert record.steps[dead.column].to_list() == [0.25] * 10


def test_an_empty_cell_between_tabs_keeps_its_column(tmp_path: Path) -> None:
    path = tmp_path / "run.tsv"
    path.write_text("step\treward\tkl\n1\t0.5\t0.1\n2\t\t0.2\n3\t0.7\t0.3\n")
    steps = run_record(path).steps
    assert (steps["reward"].to_list(), steps["kl"].to_list()) == ([0.5, None, 0.7], [0.1, 0.2, 0.3])


def test_blanks_part_columns_where_each_line_has_a_number_for_each_name() -> None:
    names, *rows = [line.split() for line in ("step reward kl", "1 0.5 0.1", "2 0.6 0.2", "3 0")]
    assert tables._is_aligned([names, *rows])
    assert not tables._is_aligned([names, [*rows[0], "7"], *rows[1:]])


PRINTED = (
    "Collecting trl, 2.1 MB\n[INFO] device: cuda; seed: 1; x\n"
    "/lib/x.py:12: FutureWarning: a is old, b is new\n  warnings.warn(\n\n"
)


@each_case(("mark", "suffix"), [(",", "csv"), ("\t", "tsv"), (";", "csv")])
def test_what_a_program_printed_above_a_table_is_left_out_and_counted(
    mark: str, suffix: str, tmp_path: Path
) -> None:
    rows = [("step", "reward", "loss"), *((at, at / 32, 0.5) for at in range(12))]
    table = "".join(mark.join(map(str, row)) + "\n" for row in rows)
    record = opened(tmp_path / f"log.{suffix}", PRINTED + table)
    assert record.steps["reward"].to_list() == [at / 32 for at in range(12)]
    assert record.notes[0] == "5 lines above the table are no rows and were left out"
    assert opened(tmp_path / f"log.{suffix}", table).notes == ()


@each_case(
    ("table", "steps"),
    [
        ("run,step,reward\na,none,bad\na,2,0.5\na,3,0.5\n", [2, 3]),  # the first row holds texts
        ("step,reward\n1,0.5,more\n2,0.5\nstep,reward\n3,0.5\n", [1, 2, 3]),  # a later header
    ],
)
def test_the_names_of_a_table_are_no_printed_lines(
    table: str, steps: list[int], tmp_path: Path
) -> None:
    record = opened(tmp_path / "log.csv", table)
    assert record.steps["step"].to_list() == steps
    assert not any("above the table" in note for note in record.notes)


def test_what_a_program_printed_above_json_lines_is_left_out_and_counted(tmp_path: Path) -> None:
    rows = "".join(f'{{"step": {at}, "reward": 0.5}}\n' for at in range(3))
    record = opened(tmp_path / "log.jsonl", PRINTED * 2 + rows)
    assert record.notes == ("8 lines are not complete JSON objects and were left out",)
    assert record.steps["step"].to_list() == [0, 1, 2]
    for text in (PRINTED, rows + PRINTED):  # no row at all, and more that is none behind them
        with pytest.raises(UnreadableRunError):
            opened(tmp_path / "log.jsonl", text)


def _chart(path: Path, key: str, runs: list[str], values: list[float]) -> None:
    """A chart of several runs as W&B exports it: a row a step, with the bounds of averages."""
    names = [f"{run} - {key}{end}" for run in runs for end in ("", "__MIN", "__MAX")]
    lines = [",".join(f'"{name}"' for name in ["train/global_step", *names])]
    for step, value in enumerate(values, start=1):
        cells = [value + number for number in range(len(runs)) for _ in range(3)]
        lines.append(",".join(map(str, [step, *cells])))
    path.write_text("\n".join(lines) + "\n")


def test_charts_of_a_folder_are_one_run_or_ask_which(tmp_path: Path) -> None:
    reward, kl = [0.25, 0.5, 0.75, 0.5], [0.0, 0.125, 0.25, 0.5]
    _chart(tmp_path / "W&B Chart 1.csv", "train/reward", ["grpo - 7"], reward)
    _chart(tmp_path / "W&B Chart 2.csv", "train/kl", ["grpo - 7"], kl)
    record = run_record(tmp_path)
    assert record.steps["step"].to_list() == [1, 2, 3, 4]
    assert record.steps[record.column("reward")].to_list() == reward
    assert record.steps[record.column("kl")].to_list() == kl
    _chart(tmp_path / "W&B Chart 1.csv", "train/reward", ["grpo - 7", "grpo - 8"], reward)
    with pytest.raises(SeveralRunsError, match=r"#grpo - 7, #grpo - 8"):
        run_record(tmp_path)
    record = run_record(f"{tmp_path}#grpo - 8")
    assert record.steps[record.column("reward")].to_list() == [value + 1 for value in reward]
    # a whole table beside a chart is a log of its own
    (tmp_path / "W&B Chart 2.csv").write_text("step,reward,kl\n1,0.5,0.1\n2,0.5,0.2\n3,0.5,0.3\n")
    with pytest.raises(UnreadableRunError, match=r"which holds 2 \(W&B Chart 1.csv"):
        run_record(tmp_path)


def test_parquet_of_a_metric_a_row_with_decimal_steps(tmp_path: Path) -> None:
    # as the exporter of neptune writes it: settings stand below, without a step
    rows = [
        (f"train/{name}", step, 0.25 * step) for name in ("reward", "kl") for step in range(1, 5)
    ]
    table = pl.DataFrame(
        {
            "run_id": ["GRPO-7"] * 9,
            "attribute_path": [*(name for name, _, _ in rows), "args/seed"],
            "step": [*(Decimal(step) for _, step, _ in rows), None],
            "int_value": [None] * 8 + [3],
            "float_value": [*(value for _, _, value in rows), None],
        },
        schema_overrides={"step": pl.Decimal(18, 6)},
    )
    table.write_parquet(tmp_path / "GRPO-7_part_0.parquet")
    record = run_record(tmp_path / "GRPO-7_part_0.parquet")
    assert record.steps["step"].to_list() == [1, 2, 3, 4]
    for quantity in ("reward", "kl"):
        assert record.steps[record.column(quantity)].to_list() == [0.25, 0.5, 0.75, 1.0]
