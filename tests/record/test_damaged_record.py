"""What of a damaged record is read, and the page that says what a journal is."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest
from tests.golden.sentences import says

from groupwise.errors import UnreadableRunError
from groupwise.readers.follow import Follower
from groupwise.record.journal import decode_entry, encode_entry, read_journal
from groupwise.record.run import RecordWriter, RunRecord

ROOT = Path(__file__).resolve().parents[2]
DAMAGED = ROOT / "tests" / "fixtures" / "journals" / "v1-damaged"
"""Seven steps: of step 3 a bit is flipped, of step 4 the line feed, of step 6 the checksum is
wrong, and step 7 is torn.
"""
SAID = (
    "1 damaged line between steps 2 and 4, 155 bytes",
    "1 damaged line between steps 4 and 5, 1 byte",
    "1 damaged line after step 5, 153 bytes",
)


def test_a_damaged_journal_gives_all_that_is_sound_in_it() -> None:
    record = RunRecord.load(DAMAGED)
    assert record.name == "damaged run"
    assert record.config.value("group_size") == 2
    assert record.steps["step"].to_list() == [1, 2, 4, 5]
    assert record.steps["reward"].to_list() == [1 / 8, 2 / 8, 4 / 8, 5 / 8]
    assert record.rollouts is not None
    assert record.rollouts["completion"].to_list() == [
        "c1",
        None,
        "c2",
        None,
        "c4",
        None,
        "c5",
        None,
    ]
    assert record.notes == SAID


def test_one_that_is_followed_gives_the_same_and_tells_it() -> None:
    follower = Follower(DAMAGED)
    follower.poll()
    assert follower.record is not None
    assert follower.record.steps.equals(RunRecord.load(DAMAGED).steps)
    assert follower.record.notes == SAID
    assert [event.said.split(" is damaged: ")[1] for event in follower.events] == [
        f"{line}." for line in SAID
    ]


@pytest.mark.parametrize(
    ("file", "lost"),
    [
        (
            "rollouts.parquet",
            ("rollouts.parquet is missing or was changed later, so its completions were left out"),
        ),
        ("steps.parquet", ""),
        ("record.json", ""),
    ],
)
def test_saved_tables_are_checked_too(file: str, lost: str, tmp_path: Path) -> None:
    with RecordWriter(tmp_path / "run") as writer:
        writer.append({"step": 1, "reward": 0.5}, [{"prompt_id": 0, "reward": 0.5}])
    saved = RunRecord.load(tmp_path / "run").save(tmp_path / "saved")
    (saved / file).write_bytes((saved / file).read_bytes()[:-9])
    if lost:
        record = RunRecord.load(saved)
        assert (record.steps["reward"].to_list(), record.rollouts) == ([0.5], None)
        assert record.notes == (lost,)
    else:
        with pytest.raises(UnreadableRunError, match=file):
            RunRecord.load(saved)


def test_the_page_shows_a_line_that_is_one() -> None:
    page = (ROOT / "docs" / "reference" / "journal.md").read_text(encoding="utf-8")
    example = re.findall(r"```text\n(.*\n)```", page)
    assert [decode_entry(line.encode()) for line in example] == [
        {"row": {"reward": 0.5, "step": 1}}
    ]
    assert all(
        f"`{name}`" in page
        for name in ("row", "rollouts", "about", "optimizer_updates", "window", "tokens", "seconds")
    )
    with_note = SAID[0].replace("2 and 4", "33 and 35").replace("155", "212")
    assert with_note in page


def test_more_damage_than_a_person_reads_is_summed(tmp_path: Path) -> None:
    with RecordWriter(tmp_path) as writer:
        for step in range(1, 22):
            writer.append({"step": step})
    lines = (tmp_path / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "journal.jsonl").write_bytes(
        b"".join(b"?" + line[1:] if n % 2 == 0 and n else line for n, line in enumerate(lines))
    )
    record = RunRecord.load(tmp_path)
    assert record.steps["step"].to_list() == list(range(1, 22, 2))
    assert len(record.notes) == 6
    says("record/damaged_record/1", record.notes[-1])


def test_a_line_made_to_be_slow_is_given_up_in_time() -> None:
    import time

    from groupwise.record.journal import LineReader

    line = b"00000000 900000 {" * 100_000 + b"\n"
    reader, began = LineReader(), time.process_time()
    assert reader.take(line) == []
    assert (reader.damage[0].lines, reader.damage[0].bytes) == (1, len(line) - 1)
    assert time.process_time() - began < 5


@pytest.mark.parametrize("end", [b"", b"x", encode_entry({"row": {"step": 2, "reward": 1.0}})])
@pytest.mark.parametrize("can_tell", [True, False])
def test_a_hole_is_passed_over_and_what_stands_behind_it_is_read(
    end: bytes, can_tell: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.jsonl"
    first = encode_entry({"row": {"step": 1, "reward": 0.5}})
    with path.open("wb") as file:
        file.write(first)
        file.truncate((1 << 32) + 100 if can_tell else (1 << 24) + 100)
        file.seek(0, os.SEEK_END)
        file.write(b"\n" * bool(end) + end)
    if not can_tell:
        monkeypatch.delattr(os, "SEEK_DATA")
    begun = time.process_time()
    content = read_journal(path)
    assert time.process_time() - begun < 5
    assert [entry["row"]["step"] for entry in content.entries] == [1, 2][: 1 + (len(end) > 1)]
    assert content.end + content.torn == path.stat().st_size
    assert content.damage[0].bytes >= path.stat().st_size - len(first) - len(end) - 1
