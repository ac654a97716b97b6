"""Files that are small and want everything: each is read as far as it may go, or refused with
one sentence, within time and memory.
"""

from __future__ import annotations

import json
import os
import pickle
import sqlite3
import time
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.cases import each_case
from tests.golden.sentences import says
from tests.readers.bounded import OPEN, opened_bounded, run_bounded
from tests.readers.writers import REWARDS, wandb_file

from groupwise import parsing
from groupwise.diagnostics.judge import judge
from groupwise.errors import UnreadableRunError
from groupwise.parsing import TooManyValuesError, parse_json
from groupwise.readers import run_record
from groupwise.readers.configs import read_settings
from groupwise.readers.follow import Follower
from groupwise.readers.source import Blocks, peek
from groupwise.record.journal import encode_entry
from groupwise.record.run import JOURNAL, RecordWriter, RunRecord
from groupwise.record.table import steps_table, thinned

LINES = [
    json.dumps({"step": step, "reward": reward}) for step, reward in enumerate(REWARDS, start=1)
]
HUGE = "9" * 401


@each_case(
    "written",
    [
        '{"steps_per_generation": 4, "gradient_accumulation_steps": 0.5}',
        '{"steps_per_generation": 4, "gradient_accumulation_steps": 1e999}',
        f'{{"steps_per_generation": {HUGE}, "gradient_accumulation_steps": 2}}',
        '{"per_device_train_batch_size": 1e999, "num_generations": 8}',
        f'{{"per_device_train_batch_size": {HUGE}, "num_generations": 8}}',
        f'{{"rollout_batch_size": {HUGE}, "num_generations": 8}}',
        '{"rollout_batch_size": NaN, "num_generations": 8}',
    ],
)
def test_settings_beside_a_log_that_are_no_counts_are_none(tmp_path: Path, written: str) -> None:
    (tmp_path / "metrics.jsonl").write_text("\n".join(LINES))
    (tmp_path / "config.json").write_text(written)
    record = run_record(tmp_path / "metrics.jsonl")
    assert record.config.value("refresh_interval") is None
    assert record.config.value("prompts_per_step") is None
    assert len(record.steps) == 8


def test_a_damaged_companion_is_said(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("\n".join(LINES))
    (tmp_path / "config.json").write_text('{"num_generations": 8, "beta"')
    notes = run_record(tmp_path / "metrics.jsonl").notes
    assert "config.json beside the log has no readable settings and was left out" in notes


@each_case("number", ["0x" + "f" * 5000, "1e999", HUGE, ".inf", "1" * 5000])
def test_yaml_numbers_of_any_size(tmp_path: Path, number: str) -> None:
    (tmp_path / "metrics.jsonl").write_text("\n".join(LINES))
    (tmp_path / "config.yaml").write_text(
        f"group_size: {number}\nsteps_per_generation: {number}\nloss_type: {number}\n{number}: 3\n"
    )
    record = run_record(tmp_path / "metrics.jsonl")
    assert record.config.value("group_size") is None
    assert len(record.steps) == 8


@pytest.mark.parametrize("ending", ["jsonl", "ndjson", "log"])
def test_a_long_first_line(tmp_path: Path, ending: str) -> None:
    first = json.dumps({"step": 1, "reward": REWARDS[0], "note": "x" * 200_000})
    path = tmp_path / f"run.{ending}"
    path.write_text("\n".join([first, *LINES[1:]]))
    record = run_record(path)
    assert record.sources[0].reader == "jsonl"
    assert record.steps["reward"].to_list() == REWARDS
    assert not any("damaged" in note for note in record.notes)


def test_a_long_header(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    names = [
        "step",
        "reward",
        *(f"a_column_with_a_long_name_of_{number}" for number in range(2500)),
    ]
    path.write_text(
        "\n".join(
            [
                ",".join(names),
                *(f"{step},{reward}" + ",0" * 2500 for step, reward in enumerate(REWARDS, start=1)),
            ]
        )
    )
    record = run_record(path)
    assert record.sources[0].reader == "csv"
    assert record.steps["reward"].to_list() == REWARDS


@each_case("separator", ["\u2028", "\u2029", "\x85", "\x1c", "\x0b"])
def test_line_separators_of_unicode_end_no_line(tmp_path: Path, separator: str) -> None:
    """JSON allows the first two in a text; the others are at home in tables."""
    first = json.dumps(
        {"step": 1, "reward": REWARDS[0], "note": f"a{8 * separator}b"}, ensure_ascii=False
    )
    if separator in "\u2028\u2029\x85":
        for path in (tmp_path / "run.jsonl", tmp_path / "events.log"):
            path.write_text("\n".join([first, *LINES[1:]]), encoding="utf-8")
            assert run_record(path).steps["reward"].to_list() == REWARDS
    table = tmp_path / "run.csv"
    rows = [
        f"{step},{reward},some words{separator}and more of them"
        for step, reward in enumerate(REWARDS, start=1)
    ]
    table.write_text("\n".join(["step,reward,note", *rows]), encoding="utf-8")
    assert run_record(table).steps["reward"].to_list() == REWARDS


def torch_file(path: Path, content: Any, method: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr(
            "archive/data.pkl",
            content if isinstance(content, bytes) else pickle.dumps(content, protocol=4),
        )
    return path


class Harmful:
    """What a pickle can do to who opens it."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (os.system, ("touch harmed",))


PICKLES = {
    "lists": b"\x80\x04(" + b"]" * 4_000_000 + b"l.",
    "marks": b"\x80\x04" + b"(" * 4_000_000,
    "memo": b"\x80\x04" + b"}\x94" * 2_000_000 + b".",
    "calls": pickle.dumps({"rollout_id": 1, "samples": [Harmful()]}, protocol=2),
    "evaluates": b"cbuiltins\neval\n(S'1'\ntR.",
}


@each_case("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@each_case("name", PICKLES)
def test_no_pickle_is_opened(
    tmp_path: Path, name: str, method: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither alone nor in the archive that PyTorch writes, whatever its size."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pickle, "Unpickler", None)
    for path in (
        torch_file(tmp_path / "rollout_1.pt", PICKLES[name], method),
        tmp_path / "rollout_2.pt",
    ):
        if not path.exists():
            path.write_bytes(PICKLES[name])
        with pytest.raises(UnreadableRunError, match=r"^expected [^\n]{20,400}\Z"):
            run_record(path)
    assert not (tmp_path / "harmed").exists()


def test_a_view_is_no_table(tmp_path: Path) -> None:
    path = tmp_path / "trackio.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute(
            "CREATE VIEW metrics AS WITH RECURSIVE n(step) AS (SELECT 1 UNION ALL SELECT step + 1 "
            "FROM n) SELECT step, 'a' AS run_name, '{\"reward\": 1}' AS metrics FROM n"
        )
        database.commit()
    printed = opened_bounded(path)[0]
    assert "an SQLite database that is neither trackio's nor MLflow's" in printed


@pytest.mark.slow
def test_a_table_with_a_computed_column(tmp_path: Path) -> None:
    path = tmp_path / "trackio.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute(
            "CREATE TABLE metrics (id INTEGER PRIMARY KEY, step, run_name, metrics AS "
            "(hex(zeroblob(400000000))))"
        )
        database.execute("INSERT INTO metrics (step, run_name) VALUES (1, 'a'), (2, 'a')")
        database.commit()
    assert "refused: expected" in opened_bounded(path)[0]


@pytest.mark.slow
def test_a_database_whose_pages_are_shared(tmp_path: Path) -> None:
    """Each page of the tree is made to point at the next one with all its pointers, so that the
    rows come again without end.
    """
    path = tmp_path / "trackio.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA page_size = 512")
        database.execute("CREATE TABLE metrics (id INTEGER PRIMARY KEY, step, run_name, metrics)")
        rows = [(step, "a", json.dumps({"reward": 0.5})) for step in range(40_000)]
        database.executemany("INSERT INTO metrics (step, run_name, metrics) VALUES (?, ?, ?)", rows)
        database.commit()
        root = database.execute("SELECT rootpage FROM sqlite_master").fetchone()[0]
    content = bytearray(path.read_bytes())
    inner = [page for page in range(root * 512, len(content), 512) if content[page] == 5]
    chain = [(root - 1) * 512, *inner[:12]]
    leaf = next(page for page in range(root * 512, len(content), 512) if content[page] == 13)
    for page, below in zip(chain, [*chain[1:], leaf], strict=True):
        number = (below // 512 + 1).to_bytes(4, "big")
        content[page + 8 : page + 12] = number
        for cell in range(int.from_bytes(content[page + 3 : page + 5], "big")):
            at = page + int.from_bytes(content[page + 12 + 2 * cell : page + 14 + 2 * cell], "big")
            content[at : at + 4] = number
    path.write_bytes(content)
    short = "import groupwise.parsing as limits; limits.seconds_for = lambda size: 1.0"
    ran = run_bounded(f"{short}\n{OPEN}", [str(path)])
    assert ran.code == 0
    assert "refused: expected a sound SQLite database" in ran.printed


def test_a_database_may_take_ten_seconds_and_one_for_each_megabyte() -> None:
    assert [parsing.seconds_for(size) for size in (0, 2_500_000)] == [10.0, 12.5]


@pytest.mark.slow
def test_a_table_of_seventy_million_cells(tmp_path: Path) -> None:
    path = tmp_path / "run.parquet"
    pl.select(step=pl.int_range(1000, dtype=pl.Int64), reward=pl.lit(0.5)).write_parquet(path)
    assert run_record(path).steps.height == 1000
    constant = pl.select(
        step=pl.repeat(1, 23_000_000, dtype=pl.Int64),
        reward=pl.repeat(0.5, 23_000_000),
        loss=pl.repeat(0.5, 23_000_000),
    )
    constant.write_parquet(path, row_group_size=1 << 20)
    del constant
    assert path.stat().st_size < 2_000_000
    assert "refused: expected a table of at most 8,388,608 cells" in opened_bounded(path)[0]


@pytest.mark.slow
def test_completions_of_seventy_million_cells(
    tmp_path: Path, write_state: Callable[..., Path]
) -> None:
    home = tmp_path / "completions"
    home.mkdir()
    rows = 14_000_000
    big = pl.select(
        step=pl.repeat(1, rows, dtype=pl.Int64),
        prompt=pl.repeat("p", rows),
        completion=pl.repeat("c", rows),
        right=pl.repeat(0.5, rows),
        advantage=pl.repeat(0.5, rows),
    )
    big.write_parquet(home / "completions_00001.parquet", row_group_size=1 << 20)
    del big
    write_state(
        tmp_path / "trainer_state.json",
        [{"step": 1, "reward": 0.5, "loss": 0.1}, {"step": 2, "reward": 0.5, "loss": 0.1}],
    )
    in_folder, alone = opened_bounded(tmp_path, home / "completions_00001.parquet")
    assert (
        "completions_00001.parquet is damaged, too large or has no completions and was left out"
        in in_folder
    )
    assert "refused: expected completions in " in alone
    assert "is damaged, too large or has no completions" in alone


def test_names_that_come_again(tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    times = []
    for width in (1000, 4000):
        path.write_text(
            "\n".join(
                ["step," + ",".join(["reward"] * width)]
                + [f"{step}" + f",{step}" * width for step in range(1, 4)]
            )
        )
        begun = time.process_time()
        record = run_record(path)
        times.append(time.process_time() - begun)
        assert "reward (2)" in record.steps.columns
    assert times[1] < 2


def test_a_log_of_too_many_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wide row amid many narrow ones would be a table of both sides: 16 GB from 20 MB."""
    monkeypatch.setattr(parsing, "MOST_CELLS", 60)
    path = tmp_path / "run.jsonl"
    wide = json.dumps({"step": 9, "reward": 0.5, **{f"k{number}": 1.0 for number in range(20)}})
    path.write_text("\n".join([*LINES, wide]))
    record = run_record(path)
    assert record.steps["reward"].to_list()[:8] == REWARDS
    assert any("exceeds 2,000 keys or 60 cells; cells left out: " in note for note in record.notes)
    path.write_text("\n".join(json.dumps({"step": step, "reward": 0.5}) for step in range(50)))
    path.with_suffix(".csv").write_text(
        "step,reward\n" + "".join(f"{step},0.5\n" for step in range(50))
    )
    for log in (path, path.with_suffix(".csv")):
        record = run_record(log)
        assert (record.sources[0].of, record.steps["step"][-1]) == (50, 49)
        says("readers/limits/3", record.in_part, rows=len(record.steps))


def test_a_row_of_too_many_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "MOST_NAMES", 5)
    monkeypatch.setattr(parsing, "MOST_KEYS", 4)
    row = {"step": 1, "reward": 0.5, **{f"k{number}": 1.0 for number in range(6)}}
    (tmp_path / "run.jsonl").write_text(
        "".join(json.dumps(row | {"step": at}) + "\n" for at in (1, 2))
    )
    (tmp_path / "run.csv").write_text(
        f"{','.join(row)}\n" + "1,0.5,1,1,1,1,1,1\n2,0.5,1,1,1,1,1,1\n"
    )
    for name in ("run.jsonl", "run.csv"):
        record = run_record(tmp_path / name)
        assert set(record.steps.columns) >= {"reward", "k0", "k1"}
        assert "k2" not in record.steps.columns
        assert any(note.endswith("cells left out: 8") for note in record.notes)


def test_rollouts_of_too_many_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "MOST_CELLS", 60)
    path = tmp_path / "rollouts.jsonl"
    rows = [
        {"step": at // 4, "prompt": "p", "completion": "c", "reward": at % 2} for at in range(50)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    record = run_record(path)
    assert record.rollouts is not None
    assert len(record.rollouts) == 30
    says("readers/limits/1", record.in_part)
    for step in range(13):
        folder = tmp_path / "dumps"
        folder.mkdir(exist_ok=True)
        own = [row for row in rows if row["step"] == step]
        (folder / f"{step}.jsonl").write_text("\n".join(map(json.dumps, own)))
    record = run_record(folder)
    assert record.steps["step"].to_list() == [0, 2, 4, 6, 8, 10, 12]
    says("readers/limits/2", record.in_part)


def test_a_line_that_is_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "LONGEST_LINE", 1000)
    for name in ("run.jsonl", "run.csv"):
        path = tmp_path / name
        if name == "run.csv":
            path.write_text("step,reward\n1,0.5\n2,0.5\n3," + "5" * 5000 + "\n4,0.5\n")
        else:
            path.write_text(
                "\n".join(
                    [
                        *LINES[:3],
                        json.dumps({"step": 4, "reward": 0.5, "note": "x" * 5000}),
                        *LINES[4:],
                    ]
                )
            )
        record = run_record(path)
        assert 4 not in record.steps["step"].to_list() or name == "run.csv"
        assert (
            "1 line of more than 1,000 bytes (half of it with 4-byte characters) was left out"
            in record.notes
        )


def test_a_yaml_file_that_would_take_minutes(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("\n".join(LINES))
    (tmp_path / "config.yaml").write_text("group_size: [" + "a," * 3_000_000 + "a]\n")
    printed = opened_bounded(tmp_path / "metrics.jsonl")[0]
    assert printed.startswith("8\n")
    assert "config.yaml beside the log has no readable settings and was left out" in printed


def test_json_of_more_than_may_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "LARGEST_WHOLE", 100)
    path = tmp_path / "run.json"
    path.write_text("[" + ",".join(LINES) + "]")
    saved = RunRecord("x", steps_table([1], {"reward": [0.5]})).save(tmp_path / "record")
    for log in (path, saved):
        with pytest.raises(UnreadableRunError, match=r"^expected JSON of at most"):
            run_record(log)


def test_what_is_too_large_says_its_megabytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parsing, "LARGEST_WHOLE", 1_000_000)
    path = tmp_path / "run.json"
    path.write_text("[" + ",".join(LINES) + "]" + " " * 2_500_000)
    with pytest.raises(UnreadableRunError, match=r"at most 1 MB, got 3 MB in "):
        run_record(path)


def test_a_journal_with_new_keys_in_every_row(tmp_path: Path) -> None:
    """A table of all rows and all keys would be a gigabyte from one megabyte, and grow with the
    square.
    """
    rows = parsing.MOST_KEYS + 100
    with RecordWriter(tmp_path) as writer:
        for step in range(1, rows + 1):
            writer.append(
                {"step": step, "reward": 0.5, f"k{step}": 1.0},
                [{"prompt_id": 0, f"r{step}": 1.0}],
                sync=False,
            )
    # beside them `reward`, `prompt_id` and the step of both tables
    left_out = parsing.left_out(2 * 100 + 4)
    assert opened_bounded(tmp_path)[0] == f"{rows}\n{left_out}\n"
    follower = Follower(tmp_path)
    follower.poll()
    assert follower.record is not None
    assert follower.record.steps["reward"].to_list() == [0.5] * rows
    assert any("cells left out" in note for note in follower.record.notes)


MANY = "[" + "[]," * 700 + "[]]"
WRITTEN: dict[str, Callable[[Path], Any]] = {
    "run.json": lambda path: path.write_text('[{"step": 1, "reward": 1}, ' + MANY[1:]),
    "object.json": lambda path: path.write_text(
        '{"rows": [{"step": 1, "reward": 1}], "x": ' + MANY + "}"
    ),
    "trainer_state.json": lambda path: path.write_text(
        '{"log_history": [{"step": 1, "reward": 1, "x": ' + MANY + "}]}"
    ),
    "run.ipynb": lambda path: path.write_text('{"nbformat": 4, "cells": ' + MANY + "}"),
    "settings.json": lambda path: path.write_text('{"num_generations": 8, "x": ' + MANY + "}"),
}


@each_case("name", WRITTEN)
def test_a_text_that_makes_too_many_values(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two characters make a hundred bytes: 60 MB of them were two gigabytes."""
    path = tmp_path / name
    WRITTEN[name](path)
    monkeypatch.setattr(parsing, "MOST_VALUES", 1000)
    opened = read_settings if name == "settings.json" else run_record
    with pytest.raises(
        UnreadableRunError,
        match=(
            r"expected JSON of at most 1,000 values, got more than 1,000 values in \S+ save the "
            r"rows"
        ),
    ):
        opened(path)


def test_a_line_that_makes_too_many_values_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parsing, "MOST_VALUES", 1000)
    hostile = json.dumps({"step": 9, "reward": 0.5, "x": json.loads(MANY)})
    (tmp_path / "run.jsonl").write_text("\n".join([*LINES, hostile]))
    with RecordWriter(tmp_path / "record") as writer:
        for step, reward in enumerate(REWARDS, start=1):
            writer.append({"step": step, "reward": reward})
    with (tmp_path / "record" / JOURNAL).open("ab") as file:
        file.write(encode_entry({"row": {"step": 9, "reward": 0.5}, "x": json.loads(MANY)}))
    with closing(sqlite3.connect(tmp_path / "trackio.db")) as database:
        database.execute("CREATE TABLE metrics (id INTEGER PRIMARY KEY, step, run_name, metrics)")
        rows = [*enumerate(LINES, start=1), (9, hostile)]
        database.executemany(
            "INSERT INTO metrics (step, run_name, metrics) VALUES (?, 'a', ?)", rows
        )
        database.commit()
    wandb_file(
        tmp_path / "run.wandb",
        [{"_step": at, "reward": reward} for at, reward in enumerate(REWARDS, start=1)],
        {"x": json.loads(MANY)},
    )
    for path in sorted(tmp_path.iterdir()):
        record = run_record(path)
        assert record.steps["reward"].to_list() == REWARDS, path.name
        assert record.notes or path.suffix == ".wandb", path.name


def test_blanks_may_stand_around_a_text_and_nothing_else() -> None:
    assert parse_json(' {"a": 1}\r\n') == {"a": 1}
    for text in ('{"a": 1} 2', '{"a": 1}\x0b', ""):
        with pytest.raises(ValueError, match=r"Extra data|Expecting value"):
            parse_json(text)


def test_the_marks_within_strings_make_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "MOST_VALUES", 100)
    for text in (
        json.dumps({"x": "[,]:{" * 500}),
        json.dumps(["\\" * 301, '"[,]\\"' * 99]),
        '"' + r"\\\"[,[,[" * 99 + '"',
        '["[[[[" , ' + "1" * 200 + "]",
    ):
        assert parse_json(text) == json.loads(text)
    for text in (
        MANY,
        '{"x": "[' + "," * 99 + '", "y": ' + MANY + "}",
        "[" + r'"\\",' * 101 + "1]",
        '{"a": ' + "{}," * 60,
        "[0" + ",0" * 101 + "]",
    ):
        with pytest.raises(TooManyValuesError):
            parse_json(text)


CONSOLES = {
    "verl.log": lambda step: f"step:{step} - critic/score/mean:0.5 - actor/entropy:0.{step}\n",
    "trl.log": lambda step: f"{{'loss': 0.1, 'reward': 0.{step}, 'epoch': {step}}}\n",
    "printed.log": lambda step: f"Step {step}/900 | loss=0.1 | reward=0.{step}\n",
    "run.jsonl": lambda step: json.dumps({"step": step, "reward": 0.5}) + "\n",
    "list.jsonl": lambda step: json.dumps({"step": step, "reward": 0.5, "x": [step]}) + "\n",
}


@each_case("name", [*CONSOLES, "run.csv", "run.ipynb", "trackio.db", "record"])
def test_a_log_of_too_many_rows(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row takes twenty microseconds: 60 MB of short ones were two million, and a minute."""
    monkeypatch.setattr(parsing, "MOST_LONG" if name == "run.csv" else "MOST_ROWS", 50)
    path = tmp_path / name
    if name in CONSOLES:
        path.write_text("".join(CONSOLES[name](step) for step in range(1, 81)))
    elif name == "run.csv":
        path.write_text("step,reward\n" + "".join(f"{step},0.5\n" for step in range(1, 81)))
    elif name == "run.ipynb":
        table = "".join(f"<tr><td>{step}<td>0.5" for step in range(1, 81))
        output = {"data": {"text/html": f"<table><tr><td>Step<td>reward{table}"}}
        path.write_text(json.dumps({"cells": [{"outputs": [output]}], "nbformat": 4}))
    elif name == "record":
        with RecordWriter(path) as writer:
            for step in range(1, 81):
                writer.append({"step": step, "reward": 0.5}, sync=False)
    else:
        with closing(sqlite3.connect(path)) as database:
            database.execute(
                "CREATE TABLE metrics (id INTEGER PRIMARY KEY, step, run_name, metrics)"
            )
            rows = [(step, '{"reward": 0.5}') for step in range(1, 81)]
            database.executemany(
                "INSERT INTO metrics (step, run_name, metrics) VALUES (?, 'a', ?)", rows
            )
            database.commit()
    record = run_record(path)
    steps = record.steps["step"].to_list()
    assert (steps[0], steps[-1]) == (1, 80)
    assert len(steps) < 50
    if name == "record":  # thinned once, though the rows that go become no cells
        assert len(steps) == thinned(80).sum()
    assert record.sources[0].of == 80
    judgement = judge(record)
    says("readers/limits/4", judgement.parts[-1], rows=len(steps))
    if name in CONSOLES:
        follower = Follower(path)
        follower.start()
        assert follower.record is not None
        assert judge(follower.record).headline == judgement.headline


def test_tables_of_lines_whose_keys_all_differ(tmp_path: Path) -> None:
    """A table of all keys and all rows grew with the square: two megabytes of lines took more
    than a minute.
    """
    path = tmp_path / "run.jsonl"
    path.write_text(
        "".join(
            json.dumps({"step": step, f"k{step}": 1, "reward": 1}) + "\n" for step in range(30_000)
        )
    )
    assert int(opened_bounded(path)[0].split("\n")[0]) > 1000


@pytest.mark.torture
@pytest.mark.parametrize("start", [b"", b"step,reward\n1,0.5\n2,0.5\n"])
def test_a_cell_that_never_ends_is_not_held(tmp_path: Path, start: bytes) -> None:
    """A quotation mark that nothing closes made one cell of all that follows it."""
    path = tmp_path / "run.csv"
    with path.open("wb") as file:
        file.write(start + b'3,"')
        for _ in range(60):
            file.write(b"1,1\n" * 250_000)
    ran = run_bounded(OPEN, [str(path)], memory=1 << 30)
    assert ran.code == 0
    assert ran.memory < 800 << 20


def test_a_hole_in_a_journal(tmp_path: Path) -> None:
    """A quarter of a gigabyte of nothing, as a lost block leaves them, are damage between two
    steps.
    """
    with RecordWriter(tmp_path) as writer:
        writer.append({"step": 1, "reward": 0.5})
    with (tmp_path / JOURNAL).open("r+b") as file:
        file.seek(1 << 28)
        file.write(b"\n" + encode_entry({"row": {"step": 2, "reward": 0.5}}))
    ran = run_bounded(OPEN, [str(tmp_path)], memory=480 << 20)
    assert ran.printed.startswith("2\n1 damaged line between steps 1 and 2")


@each_case("gap", [b"\r", b"\n", b"\r\n", b" \n"])
@each_case("encoding", ["utf-8", "utf-16-le"])
def test_a_hole_of_blank_lines_is_one_line_feed(encoding: str, gap: bytes, tmp_path: Path) -> None:
    """Millions of them make no millions of lines; a few stay, for a cell may hold them."""
    path = tmp_path / "log.txt"
    rows = ["step 1: reward=0.5"], ["step 2: reward=0.6"]
    hole, few = gap.decode() * 5000, gap.decode() * 3
    path.write_bytes(f"{rows[0][0]}\n{hole}{rows[1][0]}{few}end\n".encode(encoding))
    lines = list(Blocks(peek(path)).lines())
    assert [line.strip() for line in lines if line.strip()] == [*rows[0], *rows[1], "end"]
    assert 3 < len(lines) < 10


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_in_the_folder_of_a_run_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    record = RunRecord("run", steps_table(range(20), {"reward": np.linspace(0, 1, 20)}))
    for name in ("steps.parquet", JOURNAL):
        folder = record.save(tmp_path / name.partition(".")[0])
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)
        with pytest.raises(UnreadableRunError):
            run_record(folder)


@each_case("within", [False, True])
def test_a_cell_that_is_too_long_costs_its_row(within: bool, tmp_path: Path) -> None:
    """A completion beyond the limit before the rows that collapse; within quotation marks over
    lines what follows is not read, which the first line of a judgement says.
    """
    rows = [[step, 0.6 if step < 60 else 0.03, "x"] for step in range(120)]
    text = "ab\n" if within else "abc"
    rows[50][2] = '"' + text * (parsing.LONGEST_CELL // 2) + '"'
    path = tmp_path / "run.csv"
    lines = [f"{','.join(map(str, row))}\n" for row in rows]
    path.write_text("".join(["step,reward,completion\n", *lines]))
    run = run_record(path)
    left = range(50) if within else [step for step in range(120) if step != 50]
    assert run.steps["step"].to_list() == [*left]
    assert any("a cell of over a million characters" in note for note in run.notes)
    said = "after 50 steps a cell does not end, so the rest is not read"
    assert run.in_part == (said if within else "")
    assert (said in judge(run).headline) is within


def test_texts_that_unfold_from_a_few_bytes_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parsing, "MOST_UNFOLDED", 1 << 20)
    path = tmp_path / "run.parquet"
    frame = pl.DataFrame({"step": range(60), "reward": [0.5] * 60, "note": ["x" * 100_000] * 60})
    frame.write_parquet(path)
    with pytest.raises(UnreadableRunError, match=r"at most 1,048,576 bytes .*, got 6,0\d\d,\d\d\d"):
        run_record(path)
    frame.select("step", "reward", pl.concat_list("note", "note")).write_parquet(path)
    assert len(run_record(path).steps) == 60  # lists are not read
    frame.write_parquet(path)
    monkeypatch.setattr(parsing, "MOST_UNFOLDED", 1 << 23)
    assert len(run_record(path).steps) == 60
