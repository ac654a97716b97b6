"""RunRecord, RunConfig, the tables and the journal."""

from __future__ import annotations

import json
import os
import zlib
from dataclasses import fields
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from tests.cases import each_case
from tests.golden.sentences import says

from groupwise.errors import (
    GroupwiseError,
    InvalidArgumentError,
    MissingMetricError,
    OverwriteError,
    UnreadableRunError,
)
from groupwise.parsing import MOST_TIMES
from groupwise.record.journal import (
    Content,
    Journal,
    JournalGoneError,
    decode_entry,
    encode_entry,
    read_journal,
)
from groupwise.record.run import RULES, Meaning, RecordWriter, RunConfig, RunRecord, Source
from groupwise.record.table import (
    read_parquet,
    rollouts_table,
    rows_that_stand,
    steps_table,
)


def sample() -> RunRecord:
    """A record with everything in it."""
    return RunRecord(
        name="demo",
        steps=steps_table(
            [1, 2, 4],
            {"reward": [0.1, float("nan"), 0.3], "rewards / f / mean": [1, 2, 3]},
            tokens=[10, 20, None],
        ),
        rollouts=rollouts_table(
            [
                {
                    "step": 1,
                    "prompt_id": 0,
                    "prompt": "p",
                    "completion": None,
                    "reward": 1.0,
                    "reward/f": None,
                }
            ]
        ),
        config=RunConfig().with_settings(
            {"group_size": 8, "kl_weight": 0.0, "model": "tiny"}, "README.md of the output"
        ),
        meanings=(Meaning("reward", "reward", "mean total reward"),),
        sources=(Source("log.csv", "csv", 10, 3),),
        notes=("a note",),
    )


class TestConfig:
    def test_later_sources_win_and_none_changes_nothing(self) -> None:
        config = RunConfig().with_settings({"group_size": "8", "seed": 1}, "file")
        config = config.with_settings({"group_size": 4, "seed": None}, "--set")
        assert (config.value("group_size"), config.group_size.source, config.value("seed")) == (
            4,
            "--set",
            1,
        )

    def test_unknown_is_none(self) -> None:
        assert RunConfig().value("prompts_per_step") is None
        assert RunConfig().group_size.source == "unknown"

    @each_case(
        ("name", "value"),
        [
            ("group_size", "2.5"),
            ("group_size", 0),
            ("group_size", True),
            ("group_size", "many"),
            ("momentum", 1.0),
            ("learning_rate", "nan"),
            ("kl_weight", -1),
            ("scale_rewards", "half"),
            ("model", ""),
            ("model", "m" * 301),
            ("seed", 2**70),
            ("group_size", 10**400),
            ("group_size", 2**53),
            ("seed", -(2**53)),
            ("updates_per_step", 0),
            ("gpu_price", "inf"),
            ("beta2", -0.1),
            ("lag_kind", "late"),
            ("loss", ["a"]),
        ],
    )
    def test_values_outside_their_domain_are_refused(self, name: str, value: object) -> None:
        with pytest.raises(InvalidArgumentError, match=f"for {name}"):
            RunConfig().with_settings({name: value}, "--set")

    @each_case(
        ("name", "value"),
        [
            ("group_size", 1),
            ("momentum", 0.0),
            ("kl_weight", 0.0),
            ("model", "m" * 300),
            ("model", "m"),
            ("group_size", 2**53 - 1),
            ("seed", 1 - 2**53),
            ("updates_per_step", 5e-324),
            ("lag_kind", "async"),
        ],
    )
    def test_values_at_the_edge_of_their_domain_are_taken(self, name: str, value: object) -> None:
        assert RunConfig().with_settings({name: value}, "--set").value(name) == value

    def test_the_table_has_a_rule_for_each_setting_and_no_other(self) -> None:
        """In the order of the class; a column that a kind does not look at is empty."""
        assert [*RULES] == [field.name for field in fields(RunConfig)]
        columns = {"number": 3, "whole": 3, "word": 1, "text": 0}
        for rule in RULES.values():
            cells = [rule["least"], rule["above"], rule["below"], rule["words"]]
            assert len([cell for cell in cells if cell]) == columns[rule["kind"]], rule
            assert rule["expected"]
            assert rule["request"].partition("=")[0] in ("", rule["setting"])
            assert {word.partition("=")[2] for word in rule["spelled"].split()} <= {
                *rule["words"].split()
            }
            listed = all(word in rule["expected"] for word in rule["words"].split())
            assert listed, rule

    def test_an_unknown_name_lists_the_settings(self) -> None:
        with pytest.raises(InvalidArgumentError, match=r"num_generations.*group_size"):
            RunConfig().with_settings({"num_generations": 8}, "--set")

    def test_older_spelling_of_scale_rewards(self) -> None:
        assert (
            RunConfig().with_settings({"scale_rewards": True}, "x").value("scale_rewards")
            == "group"
        )
        assert (
            RunConfig().with_settings({"scale_rewards": "False"}, "x").value("scale_rewards")
            == "none"
        )


class TestTables:
    def test_nan_is_null_and_infinity_stays(self) -> None:
        table = steps_table([1, 2, 3], {"x": [float("nan"), float("inf"), None]})
        assert table["x"].to_list() == [None, float("inf"), None]

    def test_a_key_with_the_name_of_a_base_column(self) -> None:
        assert "log/window" in steps_table([1], {"window": [3.0]}).columns

    @each_case(
        ("steps", "expected"),
        [
            ([1, 2, 3], [1, 1, 1]),
            ([1, 2, 3, 2, 3, 4], [1, 0, 0, 1, 1, 1]),
            ([1, 2, 1], [0, 0, 1]),
            ([5, 5], [0, 1]),
            ([], []),
            ([3, 2, 1], [0, 0, 1]),
        ],
    )
    def test_rows_that_stand(self, steps: list[int], expected: list[int]) -> None:
        stands = rows_that_stand(np.array(steps, dtype=np.int64))
        assert stands.tolist() == [bool(flag) for flag in expected]


class TestColumn:
    record = RunRecord(
        "demo",
        steps_table(
            [1, 2],
            {
                "rewards / Check / mean": [1, 2],
                "mean_reward": [0, 0],
                "p": [0.1, 0.2],
                "Grad-Norm": [1, 1],
            },
        ),
        meanings=(
            Meaning("mean_reward", "reward", "broken", unavailable=True),
            Meaning("p", "reward", "works"),
        ),
    )

    @each_case(
        ("name", "column"),
        [
            ("mean_reward", "mean_reward"),
            ("reward", "p"),
            ("rewards/check/mean", "rewards / Check / mean"),
            ("rewards/check", "rewards / Check / mean"),
            ("grad_norm", "Grad-Norm"),
            ("REWARD", "p"),
        ],
    )
    def test_spellings(self, name: str, column: str) -> None:
        assert self.record.column(name) == column

    @each_case("name", ["", "kl", "step", "optimizer_updates"])
    def test_a_missing_metric_lists_what_is_there(self, name: str) -> None:
        with pytest.raises(MissingMetricError, match="the log has 4, nearest first: ") as refused:
            self.record.column(name)
        listed = str(refused.value).partition("first: ")[2].split(", ")
        assert sorted(listed) == ["Grad-Norm", "mean_reward", "p", "rewards / Check / mean"]

    def test_of_many_metrics_the_nearest_twelve_are_listed(self) -> None:
        names = [f"loss/{place}" for place in range(50)]
        table = steps_table([1], {key: [0.5] for key in [*names, "rewards/correct"]})
        with pytest.raises(MissingMetricError) as refused:
            RunRecord("demo", table).column("rewards/corect")
        assert "the log has 51, nearest first: rewards/correct, loss/" in str(refused.value)
        assert str(refused.value).count(", ") == 13  # of the sentence and between twelve
        with pytest.raises(MissingMetricError, match=r"the log has none$"):
            RunRecord("bare", steps_table([1], {})).column("reward")


class TestValidate:
    @pytest.mark.parametrize("steps", [[1, 1], [2, 1]])
    def test_steps_must_increase(self, steps: list[int]) -> None:
        with pytest.raises(InvalidArgumentError, match="increasing"):
            RunRecord("x", steps_table(steps, {})).validate()

    @pytest.mark.parametrize(
        ("base", "word"),
        [
            ({"window": [0.0]}, "windows"),
            ({"optimizer_updates": [float("nan")]}, "updates"),
            ({"window": [float("inf")]}, "windows"),
        ],
    )
    def test_base_columns(self, base: dict[str, list[float]], word: str) -> None:
        with pytest.raises(InvalidArgumentError, match=word):
            RunRecord("x", steps_table([1], {}, **base)).validate()

    def test_updates_never_fall(self) -> None:
        with pytest.raises(InvalidArgumentError, match="never fall"):
            RunRecord("x", steps_table([1, 2], {}, optimizer_updates=[2.0, 1.0])).validate()

    def test_types_and_order_of_columns(self) -> None:
        good = steps_table([1], {"a": [1.0]})
        missing = good.with_columns(step=pl.lit(None, dtype=pl.Int64))
        for bad in (
            good.with_columns(pl.col("a").cast(pl.Int64)),
            good.select("a", "step"),
            missing,
        ):
            with pytest.raises(InvalidArgumentError):
                RunRecord("x", bad).validate()

    def test_meanings_of_columns_that_exist(self) -> None:
        with pytest.raises(InvalidArgumentError, match="meanings"):
            RunRecord("x", steps_table([1], {}), meanings=(Meaning("gone", "", ""),)).validate()

    def test_rollouts(self) -> None:
        for bad in (
            {"step": [1]},
            {"step": [1], "prompt_id": [None]},
            {"step": [1], "prompt_id": [0], "reward": [1]},
        ):
            with pytest.raises(InvalidArgumentError):
                RunRecord("x", steps_table([1], {}), rollouts=pl.DataFrame(bad)).validate()


class TestSaveAndLoad:
    def test_round_trip(self, tmp_path: Path) -> None:
        record = sample()
        again = RunRecord.load(record.save(tmp_path / "run"))
        assert_frame_equal(again.steps, record.steps)
        assert record.rollouts is not None
        assert again.rollouts is not None
        assert_frame_equal(again.rollouts, record.rollouts)
        assert (again.name, again.config, again.meanings, again.sources, again.notes) == (
            record.name,
            record.config,
            record.meanings,
            record.sources,
            record.notes,
        )

    def test_no_rollouts(self, tmp_path: Path) -> None:
        assert (
            RunRecord.load(
                RunRecord("x", steps_table([1], {"a": [1]})).save(tmp_path / "x")
            ).rollouts
            is None
        )

    def test_an_existing_record_is_kept_without_force(self, tmp_path: Path) -> None:
        folder = sample().save(tmp_path / "run")
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        with pytest.raises(OverwriteError, match="force"):
            RunRecord("other", steps_table([1], {})).save(folder)
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
        assert (
            RunRecord.load(RunRecord("other", steps_table([1], {})).save(folder, force=True)).name
            == "other"
        )
        assert not (folder / "rollouts.parquet").exists()
        assert [path.name for path in tmp_path.iterdir()] == ["run"]

    @pytest.mark.parametrize("force", [False, True])
    def test_what_is_no_record_is_never_replaced(self, tmp_path: Path, force: bool) -> None:
        (tmp_path / "notes").mkdir()
        (tmp_path / "notes" / "thesis.tex").write_text("years of work")
        (tmp_path / "file").write_text("also work")
        (tmp_path / "link").symlink_to(tmp_path / "notes")
        for name in ("notes", "file", "link"):
            with pytest.raises(OverwriteError):
                sample().save(tmp_path / name, force=force)
        assert (tmp_path / "notes" / "thesis.tex").read_text() == "years of work"
        assert (tmp_path / "file").read_text() == "also work"

    def test_an_empty_folder_may_be_filled(self, tmp_path: Path) -> None:
        (tmp_path / "new").mkdir()
        assert RunRecord.load(sample().save(tmp_path / "new")).name == "demo"

    @pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
    def test_a_failure_leaves_nothing_half_written(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
    ) -> None:
        folder = sample().save(tmp_path / "run")

        def fail(*_: object) -> None:
            raise error

        monkeypatch.setattr(os, "fsync", fail)
        expected = GroupwiseError if isinstance(error, OSError) else KeyboardInterrupt
        for name, force in (("run", True), ("fresh", False)):
            with pytest.raises(expected):
                RunRecord("other", steps_table([1], {})).save(tmp_path / name, force=force)
        assert [path.name for path in tmp_path.iterdir()] == ["run"]
        assert RunRecord.load(folder).name == "demo"

    @each_case(
        "text",
        [
            "",
            "{",
            "[]",
            "{}",
            '{"format": "groupwise-record", "version": 99}',
            "\0\xff",
            "[" * 100_000,
            (
                '{"format": "groupwise-record", "version": 1, "name": 1, "config": {"group_size": '
                '{"value": "x"}}, "meanings": []}'
            ),
        ],
    )
    def test_a_damaged_description_is_one_sentence(self, tmp_path: Path, text: str) -> None:
        folder = sample().save(tmp_path / "run")
        (folder / "record.json").write_text(text, encoding="latin-1")
        with pytest.raises(UnreadableRunError):
            RunRecord.load(folder)

    def test_damaged_tables_are_one_sentence(self, tmp_path: Path) -> None:
        folder = sample().save(tmp_path / "run")
        whole = (folder / "steps.parquet").read_bytes()
        for damaged in (b"", b"PAR1", whole[: len(whole) // 2], whole[:-20] + b"\xff" * 20):
            (folder / "steps.parquet").write_bytes(damaged)
            with pytest.raises(UnreadableRunError):
                RunRecord.load(folder)

    def test_a_table_of_another_record_is_refused(self, tmp_path: Path) -> None:
        folder = sample().save(tmp_path / "run")
        other = RunRecord("y", steps_table([9], {"reward": [1]})).save(tmp_path / "other")
        (folder / "steps.parquet").write_bytes((other / "steps.parquet").read_bytes())
        with pytest.raises(UnreadableRunError, match="as it was saved"):
            RunRecord.load(folder)

    def test_no_record_there(self, tmp_path: Path) -> None:
        with pytest.raises(UnreadableRunError, match="got neither"):
            RunRecord.load(tmp_path)


def demo_writer(folder: Path) -> RecordWriter:
    """The writer of the record that `written` makes."""
    config = RunConfig().with_settings({"group_size": 2}, "test")
    return RecordWriter(
        folder, name="demo", config=config, meanings=(Meaning("reward", "reward", "r"),)
    )


def written(folder: Path, count: int = 5) -> bytes:
    """Append `count` steps of two rollouts each and return the journal."""
    with demo_writer(folder) as writer:
        for step in range(1, count + 1):
            rollouts = [
                {"prompt_id": 0, "completion": f"é{step}\n", "reward": float(number)}
                for number in (0, 1)
            ]
            writer.append(
                {"step": step, "reward": step / 10, "kl": None, "tokens": 100 * step}, rollouts
            )
    return (folder / "journal.jsonl").read_bytes()


class TestWriter:
    def test_a_kill_at_any_byte_shows_whole_steps_only_and_none_twice(self, tmp_path: Path) -> None:
        whole = written(tmp_path / "run", 2)
        ends = [0]
        for line in whole.splitlines(keepends=True):
            ends.append(ends[-1] + len(line))
        path = tmp_path / "run" / "journal.jsonl"
        at_ends = {end + beside for end in ends for beside in (-1, 0, 1)} & set(
            range(len(whole) + 1)
        )
        for cut in sorted({*range(0, len(whole) + 1, 5), *at_ends}):
            path.write_bytes(whole[:cut])
            record = RunRecord.load(tmp_path / "run")
            expected = max(0, sum(end <= cut for end in ends) - 2)
            assert record.steps["step"].to_list() == list(range(1, expected + 1)), cut
            assert (0 if record.rollouts is None else len(record.rollouts)) == 2 * expected, cut

    def test_a_line_feed_that_is_lost_or_flipped_costs_no_step(self, tmp_path: Path) -> None:
        whole, path = written(tmp_path / "run", 4), tmp_path / "run" / "journal.jsonl"
        for damaged in (
            whole[:-1].replace(b"\n", b"") + b"\n",
            whole[:-1].replace(b"\n", b"a") + b"\n",
        ):
            path.write_bytes(damaged)
            assert RunRecord.load(tmp_path / "run").steps["step"].to_list() == [1, 2, 3, 4]

    def test_a_reopened_writer_puts_the_torn_tail_beside_and_goes_on(self, tmp_path: Path) -> None:
        whole = written(tmp_path / "run", 4)
        path, beside, kept = (
            tmp_path / "run" / "journal.jsonl",
            tmp_path / "run" / "journal.jsonl.torn",
            b"",
        )
        for cut in range(len(whole) - 60, len(whole) + 1, 7):
            path.write_bytes(whole[:cut])
            torn = whole[whole.rfind(b"\n", 0, cut) + 1 : cut]
            had = RunRecord.load(tmp_path / "run").steps["step"].to_list()
            with demo_writer(tmp_path / "run") as writer:
                writer.append({"step": had[-1] + 1, "reward": 1.0})
            assert RunRecord.load(tmp_path / "run").steps["step"].to_list() == [*had, had[-1] + 1]
            kept += torn + b"\n" if torn else b""
            assert beside.read_bytes() == kept

    def test_a_damaged_entry_costs_itself_and_is_noted(self, tmp_path: Path) -> None:
        whole = bytearray(written(tmp_path / "run", 4))
        whole[whole.index(b'"step":3') + 7] = ord("9")
        (tmp_path / "run" / "journal.jsonl").write_bytes(whole)
        record = RunRecord.load(tmp_path / "run")
        assert record.steps["step"].to_list() == [1, 2, 4]
        size = next(len(line) for line in whole.splitlines() if b'"step":9' in line)
        (note,) = record.notes
        says("record/record/3", note, size=size)
        with demo_writer(tmp_path / "run") as writer:
            writer.append({"step": 5, "reward": 0.5})
        assert (tmp_path / "run" / "journal.jsonl").read_bytes().startswith(whole)
        assert RunRecord.load(tmp_path / "run").steps["step"].to_list() == [1, 2, 4, 5]

    def test_a_resumed_step_replaces_what_was_there(self, tmp_path: Path) -> None:
        with RecordWriter(tmp_path / "run") as writer:
            for step, reward in ((1, 0.1), (2, 0.2), (3, 0.3), (2, 0.9), (4, 0.4)):
                writer.append(
                    {"step": step, "reward": reward}, [{"prompt_id": 0, "reward": reward}]
                )
        record = RunRecord.load(tmp_path / "run")
        assert record.steps["reward"].to_list() == [0.1, 0.9, 0.4]
        assert record.rollouts is not None
        assert record.rollouts["reward"].to_list() == [0.1, 0.9, 0.4]

    def test_saved_and_appended_to_again(self, tmp_path: Path) -> None:
        written(tmp_path / "run", 3)
        RunRecord.load(tmp_path / "run").save(tmp_path / "run", force=True)
        assert not (tmp_path / "run" / "journal.jsonl").exists()
        with RecordWriter(tmp_path / "run", name="demo") as writer:
            writer.append({"step": 3, "reward": 9.0})
            writer.append({"step": 4, "reward": 0.4, "new": 1.0})
        record = RunRecord.load(tmp_path / "run")
        assert record.steps["reward"].to_list() == [0.1, 0.2, 9.0, 0.4]
        assert record.steps["new"].to_list() == [None, None, None, 1.0]
        assert record.meanings[0].column == "reward"

    @each_case(
        "row",
        [
            {},
            {"step": 1.5},
            {"step": True},
            {"step": "1"},
            {"step": 1, "reward": "high"},
            {"step": 2**70},
        ],
    )
    def test_bad_rows_write_nothing(self, tmp_path: Path, row: dict[str, object]) -> None:
        before = written(tmp_path / "run", 1)
        with demo_writer(tmp_path / "run") as writer, pytest.raises(InvalidArgumentError):
            writer.append(row)
        assert (tmp_path / "run" / "journal.jsonl").read_bytes() == before

    def test_rollouts_need_a_prompt(self, tmp_path: Path) -> None:
        with (
            RecordWriter(tmp_path / "run") as writer,
            pytest.raises(InvalidArgumentError, match="prompt_id"),
        ):
            writer.append({"step": 1}, [{"reward": 1.0}])

    def test_not_into_other_peoples_folders(self, tmp_path: Path) -> None:
        (tmp_path / "thesis.tex").write_text("years")
        with pytest.raises(OverwriteError):
            RecordWriter(tmp_path)

    def test_windows_and_updates_default_where_missing(self, tmp_path: Path) -> None:
        with RecordWriter(tmp_path / "run") as writer:
            writer.append({"step": 1, "reward": float("nan"), "window": 2})
            writer.append({"step": 2, "reward": float("inf")})
        steps = RunRecord.load(tmp_path / "run").steps
        assert steps["window"].to_list() == [2.0, 1.0]
        assert steps["reward"].to_list() == [None, float("inf")]


class TestJournal:
    def test_a_new_journals_name_is_on_the_disk_too(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        synced: list[int] = []
        real = os.fsync

        def noted(handle: int) -> None:
            synced.append(os.fstat(handle).st_ino)
            real(handle)

        monkeypatch.setattr(os, "fsync", noted)
        (tmp_path / "run").mkdir()
        Journal(tmp_path / "run" / "journal.jsonl").close()
        assert synced == [(tmp_path / "run").stat().st_ino, tmp_path.stat().st_ino]
        Journal(tmp_path / "run" / "journal.jsonl").close()
        assert len(synced) == 2

    @pytest.mark.parametrize("name", ["open", "fsync"])
    def test_a_system_that_syncs_no_folder(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        def refuse(*_: object) -> None:
            raise PermissionError(13, "Permission denied")

        with monkeypatch.context() as patched:
            patched.setattr(os, name, refuse)
            Journal(tmp_path / "journal.jsonl").close()
        with Journal(tmp_path / "journal.jsonl") as journal:
            journal.append({"step": 1})
        assert read_journal(tmp_path / "journal.jsonl").entries == [{"step": 1}]

    def test_entries_survive_the_round_trip(self) -> None:
        entry = {"a": "line\nfeed é", "b": [1.5, None]}
        assert decode_entry(encode_entry(entry)) == entry

    @each_case(
        "line",
        [
            b"",
            b"\n",
            b"x",
            b"00000000 2 {}\n",
            b"a3 99999999999999999999 {}\n",
            encode_entry({})[:-1] + b" \n",
            b"\xff" * 30 + b"\n",
        ],
    )
    def test_damaged_lines(self, line: bytes) -> None:
        assert decode_entry(line) is None

    def test_only_whole_objects_count(self, tmp_path: Path) -> None:
        body = json.dumps([1]).encode()
        assert decode_entry(b"%08x %d %s\n" % (zlib.crc32(body), len(body), body)) is None

    def test_a_folder_that_is_missing(self, tmp_path: Path) -> None:
        with pytest.raises(GroupwiseError, match="choose a folder"):
            Journal(tmp_path / "none" / "journal.jsonl")
        assert read_journal(tmp_path / "none") == Content([])


def test_of_more_rollouts_than_there_is_room_for_the_newest_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("groupwise.record.run._HELD", 200)
    with RecordWriter(tmp_path) as writer:
        for step in range(1, 11):
            writer.append(
                {"step": step, "reward": 0.5},
                [{"prompt_id": 0, "completion": f"{step:010d}", "reward": 1.0}],
            )
    whole = RunRecord.load(tmp_path)
    assert whole.rollouts is not None
    assert (len(whole.rollouts), whole.notes) == (10, ())
    monkeypatch.setattr("groupwise.parsing.MOST_TEXT", 35)
    record = RunRecord.load(tmp_path)
    assert record.rollouts is not None
    assert record.rollouts["completion"].to_list() == [
        *[None] * 7,
        *(f"{step:010d}" for step in (8, 9, 10)),
    ]
    assert record.rollouts["reward"].to_list() == [1.0] * 10
    (note,) = record.notes
    says("record/record/1", note)
    monkeypatch.setattr("groupwise.parsing.MOST_CELLS", 4 * 5)
    fewer = RunRecord.load(tmp_path)
    assert fewer.rollouts is not None
    assert fewer.rollouts["step"].to_list() == [6, 7, 8, 9, 10]
    assert fewer.steps["step"][-1] == 10
    says("record/record/2", fewer.in_part, rows=len(fewer.steps))


@pytest.mark.parametrize(
    ("own", "folder", "name"),
    [
        ("grun", "real_hack", "real_hack"),
        ("lr1e-5", "real_hack", "lr1e-5"),
        ("grun", "folder", "grun"),
    ],
)
def test_a_name_that_says_less_than_the_folder_yields_to_it(
    own: str, folder: str, name: str, tmp_path: Path
) -> None:
    with RecordWriter(tmp_path / "written", name=own) as writer:
        writer.append({"step": 0, "reward": 0.5})
    (tmp_path / "written").rename(tmp_path / folder)
    assert RunRecord.load(tmp_path / folder).name == name


def test_a_word_that_is_no_choice_is_told_all_of_them() -> None:
    with pytest.raises(InvalidArgumentError, match="expected none, reward or loss for kl_in"):
        RunConfig().with_settings({"kl_in": "both"}, "--set")


def test_of_columns_of_one_quantity_the_one_with_most_values_counts() -> None:
    columns = {"a": [None, *range(1, 8)], "b": [*range(8)]}
    record = RunRecord(
        "two",
        steps_table(range(8), columns),
        meanings=tuple(Meaning(name, "entropy", "test") for name in columns),
    )
    assert record.column("entropy") == "b"


def test_a_journal_that_was_deleted_is_said_and_not_written_on(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with Journal(path) as journal:
        journal.append({"about": {}})
        path.unlink()
        with pytest.raises(JournalGoneError, match="got none there, because it was deleted"):
            journal.append({"row": {"step": 1}})


def test_a_table_that_is_packed_well_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "steps.parquet"
    table = pl.DataFrame({"step": [7] * 2_000})
    table.write_parquet(path)
    monkeypatch.setattr("groupwise.parsing.MOST_UNFOLDED", 1000)
    assert table.estimated_size() < MOST_TIMES * path.stat().st_size
    assert_frame_equal(read_parquet(path), table)
