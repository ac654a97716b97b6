"""Files that are small and want everything: each is read as far as it may go, or refused with
one sentence, within time and memory.
"""

from __future__ import annotations

import json
import pickle
import sqlite3
import time
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.readers.bounded import OPEN, opened_bounded, run_bounded
from tests.readers.writers import REWARDS, slime_samples

from groupwise import limits
from groupwise.errors import UnreadableRunError
from groupwise.readers import open_run
from groupwise.readers.follow import Follower
from groupwise.record.run import RecordWriter, RunRecord
from groupwise.record.table import steps_table

LINES = [
    json.dumps({"step": step, "reward": reward}) for step, reward in enumerate(REWARDS, start=1)
]
HUGE = "9" * 401


@pytest.mark.parametrize(
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
    record = open_run(tmp_path / "metrics.jsonl")
    assert record.config.value("refresh_interval") is None
    assert record.config.value("prompts_per_step") is None
    assert len(record.steps) == 8


def test_a_damaged_companion_is_said(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("\n".join(LINES))
    (tmp_path / "config.json").write_text('{"num_generations": 8, "beta"')
    notes = open_run(tmp_path / "metrics.jsonl").notes
    assert "config.json beside the log holds no settings that can be read and was left out" in notes


@pytest.mark.parametrize("number", ["0x" + "f" * 5000, "1e999", HUGE, ".inf", "1" * 5000])
def test_yaml_numbers_of_any_size(tmp_path: Path, number: str) -> None:
    (tmp_path / "metrics.jsonl").write_text("\n".join(LINES))
    (tmp_path / "config.yaml").write_text(
        f"group_size: {number}\nsteps_per_generation: {number}\nloss_type: {number}\n{number}: 3\n"
    )
    record = open_run(tmp_path / "metrics.jsonl")
    assert record.config.value("group_size") is None
    assert len(record.steps) == 8


@pytest.mark.parametrize("ending", ["jsonl", "ndjson", "log"])
def test_a_long_first_line(tmp_path: Path, ending: str) -> None:
    first = json.dumps({"step": 1, "reward": REWARDS[0], "note": "x" * 200_000})
    path = tmp_path / f"run.{ending}"
    path.write_text("\n".join([first, *LINES[1:]]))
    record = open_run(path)
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
    record = open_run(path)
    assert record.sources[0].reader == "csv"
    assert record.steps["reward"].to_list() == REWARDS


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x1c", "\x0b"])
def test_line_separators_of_unicode_end_no_line(tmp_path: Path, separator: str) -> None:
    """JSON allows the first two in a text; the others are at home in tables."""
    first = json.dumps(
        {"step": 1, "reward": REWARDS[0], "note": f"a{8 * separator}b"}, ensure_ascii=False
    )
    if separator in "\u2028\u2029\x85":
        for path in (tmp_path / "run.jsonl", tmp_path / "events.log"):
            path.write_text("\n".join([first, *LINES[1:]]), encoding="utf-8")
            assert open_run(path).steps["reward"].to_list() == REWARDS
    table = tmp_path / "run.csv"
    rows = [
        f"{step},{reward},some words{separator}and more of them"
        for step, reward in enumerate(REWARDS, start=1)
    ]
    table.write_text("\n".join(["step,reward,note", *rows]), encoding="utf-8")
    assert open_run(table).steps["reward"].to_list() == REWARDS


def torch_file(path: Path, content: Any, method: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr(
            "archive/data.pkl",
            content if isinstance(content, bytes) else pickle.dumps(content, protocol=4),
        )
    return path


def doubled(value: Any, times: int, of: Callable[[Any], Any]) -> Any:
    for _ in range(times):
        value = of(value)
    return value


def bombs() -> dict[str, Any]:
    sample = slime_samples(1)["samples"][0]
    message = {"role": "user", "content": "x" * 100}
    deep = doubled("x", 40, lambda inner: [inner] * 10)
    wide = doubled(1.0, 12, lambda inner: {str(at): inner for at in range(20)})
    endless: list[Any] = []
    endless.append(endless)
    return {
        "prompt": {**sample, "prompt": [{**message, "content": deep}]},
        "reward": {**sample, "reward": wide},
        "other": {**sample, "metadata": deep},
        "endless": {**sample, "prompt": [{"role": "user", "content": endless}]},
    }


def test_a_dump_that_shares_its_parts(tmp_path: Path) -> None:
    paths = [
        torch_file(tmp_path / f"{name}_1.pt", {"rollout_id": 1, "samples": [bomb] * 8})
        for name, bomb in bombs().items()
    ]
    assert max(path.stat().st_size for path in paths) < 4000
    for name, printed in zip(bombs(), opened_bounded(*paths), strict=True):
        if name == "other":  # what is not read is not unfolded
            assert printed.startswith("1\n")
        else:
            assert "refused: expected at most 2,000,000 values in the samples of" in printed, name


def test_a_dump_that_is_compressed(tmp_path: Path) -> None:
    """PyTorch stores its pickle as it is; one that unpacks to a hundred million lists is none of
    PyTorch's.
    """
    content = b"\x80\x04(" + b"]" * 60_000_000 + b"l."
    path = torch_file(tmp_path / "rollout_1.pt", content + b"samples", zipfile.ZIP_DEFLATED)
    assert "refused: expected" in opened_bounded(path)[0]


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
    short = "import groupwise.limits as limits; limits.seconds_for = lambda size: 1.0"
    ran = run_bounded(f"{short}\n{OPEN}", [str(path)])
    assert ran.code == 0
    assert "refused: expected a sound SQLite database" in ran.printed


def test_a_database_may_take_ten_seconds_and_one_for_each_megabyte() -> None:
    assert [limits.seconds_for(size) for size in (0, 2_500_000)] == [10.0, 12.5]


def test_a_table_of_seventy_million_cells(tmp_path: Path) -> None:
    path = tmp_path / "run.parquet"
    pl.select(step=pl.int_range(1000, dtype=pl.Int64), reward=pl.lit(0.5)).write_parquet(path)
    assert open_run(path).steps.height == 1000
    constant = pl.select(
        step=pl.repeat(1, 23_000_000, dtype=pl.Int64),
        reward=pl.repeat(0.5, 23_000_000),
        loss=pl.repeat(0.5, 23_000_000),
    )
    constant.write_parquet(path, row_group_size=1 << 20)
    del constant
    assert path.stat().st_size < 2_000_000
    assert "refused: expected a table of at most 67,108,864 cells" in opened_bounded(path)[0]


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
        "completions_00001.parquet is damaged, too large or holds no completions and was left out"
        in in_folder
    )
    assert "refused: expected completions in " in alone
    assert "is damaged, too large or holds no completions" in alone


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
        record = open_run(path)
        times.append(time.process_time() - begun)
        assert "reward (2)" in record.steps.columns
    assert times[1] < 2


def test_a_log_of_too_many_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wide row amid many narrow ones would be a table of both sides: 16 GB from 20 MB."""
    monkeypatch.setattr(limits, "MOST_CELLS", 60)
    path = tmp_path / "run.jsonl"
    wide = json.dumps({"step": 9, "reward": 0.5, **{f"k{number}": 1.0 for number in range(20)}})
    path.write_text("\n".join([*LINES, wide]))
    record = open_run(path)
    assert record.steps["reward"].to_list()[:8] == REWARDS
    assert any(
        "more than 2,000 keys or 60 cells:" in note and "of the later keys left out" in note
        for note in record.notes
    )
    path.write_text("\n".join(json.dumps({"step": step, "reward": 0.5}) for step in range(50)))
    record = open_run(path)
    assert len(record.steps) == 30
    assert "the log has more than 60 cells: the last 20 rows left out" in record.notes
    path.with_suffix(".csv").write_text(
        "step,reward\n" + "".join(f"{step},0.5\n" for step in range(50))
    )
    assert (
        "the log has more than 60 cells: the last 20 rows left out"
        in open_run(path.with_suffix(".csv")).notes
    )


def test_rollouts_of_too_many_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_CELLS", 60)
    path = tmp_path / "rollouts.jsonl"
    rows = [
        {"step": at // 4, "prompt": "p", "completion": "c", "reward": at % 2} for at in range(50)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    record = open_run(path)
    assert record.rollouts is not None
    assert len(record.rollouts) == 30
    assert any("more than 60 cells" in note for note in record.notes)


def test_a_line_that_is_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LONGEST_LINE", 1000)
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
        record = open_run(path)
        assert 4 not in record.steps["step"].to_list() or name == "run.csv"
        assert "1 line of more than 1000 characters was left out" in record.notes


def test_a_yaml_file_that_would_take_minutes(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("\n".join(LINES))
    (tmp_path / "config.yaml").write_text("group_size: [" + "a," * 3_000_000 + "a]\n")
    printed = opened_bounded(tmp_path / "metrics.jsonl")[0]
    assert printed.startswith("8\n")
    assert (
        "config.yaml beside the log holds no settings that can be read and was left out" in printed
    )


def test_json_of_more_than_may_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LARGEST_WHOLE", 100)
    path = tmp_path / "run.json"
    path.write_text("[" + ",".join(LINES) + "]")
    saved = RunRecord("x", steps_table([1], {"reward": [0.5]})).save(tmp_path / "record")
    for log in (path, saved):
        with pytest.raises(UnreadableRunError, match=r"^expected JSON of at most"):
            open_run(log)


def test_a_journal_with_new_keys_in_every_row(tmp_path: Path) -> None:
    """A table of all rows and all keys would be a gigabyte from one megabyte, and grow with the
    square.
    """
    with RecordWriter(tmp_path) as writer:
        for step in range(1, 3_001):
            writer.append(
                {"step": step, "reward": 0.5, f"k{step}": 1.0},
                [{"prompt_id": 0, f"r{step}": 1.0}],
                sync=False,
            )
    left_out = limits.left_out(2 * (3_000 - limits.MOST_KEYS) + 3)
    assert opened_bounded(tmp_path)[0] == f"3000\n{left_out}\n"
    follower = Follower(tmp_path)
    follower.poll()
    assert follower.record is not None
    assert follower.record.steps["reward"].to_list() == [0.5] * 3_000
    assert any("of the later keys left out" in note for note in follower.record.notes)
