"""`groupwise check`: what of a record is sound, a repaired copy of it, and the page that says
what a journal is.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from groupwise.cli.app import main
from groupwise.readers.follow import Follower
from groupwise.record.journal import decode_entry
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


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


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
        f"{one}." for one in SAID
    ]


def test_it_is_said_and_a_copy_repaired(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files_in(DAMAGED)
    assert main(["check", str(DAMAGED)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "The record is damaged: 4 steps can be read.",
        *(f"In the journal: {one}." for one in SAID),
        "The last line was not finished (50 bytes), as a kill leaves it: that is no damage.",
        "--repair FOLDER writes a copy of all that is sound.",
    ]
    assert (
        main(["check", str(DAMAGED / "journal.jsonl"), "--repair", str(tmp_path / "new"), "--json"])
        == 1
    )
    told = json.loads(capsys.readouterr().out)
    assert (told["sound"], told["steps"], told["torn_bytes"], told["repaired"]) == (
        False,
        4,
        50,
        str(tmp_path / "new"),
    )
    assert [one["bytes"] for one in told["damage"]] == [155, 1, 153]
    assert files_in(DAMAGED) == before
    record, old = RunRecord.load(tmp_path / "new"), RunRecord.load(DAMAGED)
    assert record.steps.equals(old.steps)
    assert record.rollouts is not None
    assert old.rollouts is not None
    assert record.rollouts.equals(old.rollouts)
    assert record.notes == tuple(f"repaired: {one}" for one in SAID)
    assert main(["check", str(tmp_path / "new")]) == 0
    assert capsys.readouterr().out.startswith("The record is sound: 4 steps can be read.\n")
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_nothing_is_written_in_place_or_over_anything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with RecordWriter(tmp_path / "run") as writer:
        writer.append({"step": 1})
    before = files_in(tmp_path / "run")
    for target in (tmp_path / "run", tmp_path, tmp_path / "run" / "inside"):
        assert main(["check", str(tmp_path / "run"), "--repair", str(target)]) == 2
        assert capsys.readouterr().err.startswith("groupwise: expected a ")
    assert files_in(tmp_path / "run") == before


@pytest.mark.parametrize(
    ("file", "code"), [("rollouts.parquet", 1), ("steps.parquet", 2), ("record.json", 2)]
)
def test_saved_tables_are_checked_too(
    file: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with RecordWriter(tmp_path / "run") as writer:
        writer.append({"step": 1, "reward": 0.5}, [{"prompt_id": 0, "reward": 0.5}])
    saved = RunRecord.load(tmp_path / "run").save(tmp_path / "saved")
    assert main(["check", str(saved)]) == 0
    (saved / file).write_bytes((saved / file).read_bytes()[:-9])
    capsys.readouterr()
    assert main(["check", str(saved), "--repair", str(tmp_path / "new")]) == code
    out, err = capsys.readouterr()
    assert file in out + err
    if code == 1:
        again = RunRecord.load(tmp_path / "new")
        assert (again.steps["reward"].to_list(), again.rollouts) == ([0.5], None)
        lost = "rollouts.parquet is missing or not as it was saved, so its completions are left out"
        assert out.splitlines()[1] == f"In the tables: {lost}."
        assert again.notes == (f"repaired: {lost}",)
        read = RunRecord.load(saved)  # as every command does
        assert (read.steps["reward"].to_list(), read.rollouts, read.notes) == ([0.5], None, (lost,))
    # steps that a journal holds are sound whatever became of the tables
    with RecordWriter(saved) as writer:
        writer.append({"step": 2, "reward": 0.25})
    assert main(["check", str(saved)]) == 1


def test_what_cannot_be_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "journal.jsonl").write_bytes(b"\0" * 5000)
    for path, said in (
        (tmp_path, "got 1 damaged line without a sound step, 5,000 bytes: give an older copy"),
        (tmp_path / "none", "got neither"),
    ):
        assert main(["check", str(path)]) == 2
        assert said in capsys.readouterr().err
    (tmp_path / "journal.jsonl").unlink()
    RecordWriter(tmp_path).close()
    assert main(["check", str(tmp_path)]) == 2
    assert "got none: nothing has been recorded yet" in capsys.readouterr().err


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
    assert record.notes[-1] == "and 5 more damaged lines, 155 bytes"


def test_a_line_made_to_be_slow_is_given_up_in_time() -> None:
    import time

    from groupwise.record.journal import LineReader

    line = b"00000000 900000 {" * 100_000 + b"\n"
    reader, began = LineReader(), time.process_time()
    assert reader.take(line) == []
    assert (reader.damage[0].lines, reader.damage[0].bytes) == (1, len(line) - 1)
    assert time.process_time() - began < 5
