"""A log that grows is read on, never again; what happens to its file is told; the record is the
one that `run_record` makes.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest

from groupwise import examples
from groupwise.errors import UnreadableRunError
from groupwise.readers import READERS, follow, run_record
from groupwise.readers.follow import Follower
from groupwise.readers.source import lines_of
from groupwise.record.run import Meaning, RecordWriter, RunConfig

NAMES = ("step", "reward", "entropy")


def cells(count: int) -> list[list[str]]:
    return [
        [str(step), f"{0.5 + step / 1000}", f"{1 - step / 1000}"] for step in range(1, count + 1)
    ]


def csv_lines(count: int) -> list[str]:
    return [",".join(row) + "\n" for row in [list(NAMES), *cells(count)]]


def jsonl_lines(count: int) -> list[str]:
    return [
        json.dumps(dict(zip(NAMES, map(float, row), strict=True))) + "\n" for row in cells(count)
    ]


def console_lines(count: int) -> list[str]:
    return [
        (
            f" {step}%|█ | {step}/200 [00:0{step % 10}<01:00,  1.1s/it]\r {{'loss': 0.01, "
            f"'reward': {0.5 + step / 1000}, 'kl': 0.0}}\n"
        )
        for step in range(1, count + 1)
    ]


def verl_lines(count: int) -> list[str]:
    rows = [
        (
            f"(TaskRunner pid=7) step:{step} - critic/score/mean:{0.5 + step / 1000} - "
            "actor/entropy:0.25\n"
        )
        for step in range(1, count + 1)
    ]
    return ["(TaskRunner pid=7) {'actor_rollout_ref': {'rollout': {'n': 4}},\n", *rows]


def printed_lines(count: int) -> list[str]:
    return [
        f"Step {step}/200 | loss=0.1 | reward={0.5 + step / 1000}\n" for step in range(1, count + 1)
    ]


def old(path: Path) -> None:
    """Let a file have settled: its last line is whole, with or without a line feed."""
    os.utime(path, (time.time() - 60, time.time() - 60))


def same(frame: pl.DataFrame, other: pl.DataFrame) -> bool:
    return frame.columns == other.columns and frame.equals(other, null_equal=True)


@pytest.mark.thinned(1)
@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("a.csv", csv_lines),
        ("a.jsonl", jsonl_lines),
        ("a.log", console_lines),
        ("verl.log", verl_lines),
        ("b.log", printed_lines),
    ],
)
def test_following_in_pieces_of_any_size_gives_what_reading_at_once_gives(
    name: str, make: Callable[[int], list[str]], tmp_path: Path
) -> None:
    content = "".join(make(60)).encode()
    for size in (1, 37, 1000, len(content)):
        path = tmp_path / str(size) / name
        path.parent.mkdir()
        path.touch()
        follower = Follower(path)
        for start in range(0, len(content), max(size, len(content) // 60)):
            with path.open("ab") as file:
                file.write(content[start : start + max(size, len(content) // 60)])
            follower.poll()
        assert follower.problem == ""
        assert follower.follows
        assert follower.record is not None
        assert same(follower.record.steps, run_record(path).steps), size
        assert follower.record.notes == run_record(path).notes
        assert follower.events == []


def test_nothing_is_read_twice(tmp_path: Path) -> None:
    """Each poll reads what was added; of a torn line at most that line again.

    Breaks where a poll starts from the beginning.
    """
    path = tmp_path / "run.jsonl"
    lines = jsonl_lines(350)
    path.write_text("".join(lines[:300]))
    follower = Follower(path)
    assert follower.poll()
    for line in lines[300:]:
        with path.open("a") as file:
            file.write(line)
        assert follower.poll()
        assert not follower.poll()
    assert follower.bytes_read == path.stat().st_size
    assert follower.record is not None
    assert len(follower.record.steps) == 350


def test_a_last_line_without_a_line_feed_counts_once_the_file_has_settled(tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    path.write_text("step,reward\n1,0.25\n2,0.5")
    follower = Follower(path)
    follower.poll()
    assert follower.record is not None
    assert len(follower.record.steps) == 1  # 0.5 may become 0.55
    old(path)
    assert follower.poll()
    assert follower.record.steps["reward"].to_list() == [0.25, 0.5]
    with path.open("a") as file:
        file.write("5\n3,0.75\n")
    assert follower.poll()
    assert follower.record.steps["reward"].to_list() == [0.25, 0.55, 0.75]
    assert "continued within its last line; it was read again" in follower.events[-1].said


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda path: path.write_text("step,reward\n1,0.9\n"), "was cut short"),
        (
            lambda path: path.write_text(
                "step,reward\n" + "".join(f"{t},0.9\n" for t in range(1, 99))
            ),
            "was rewritten",
        ),
        (
            lambda path: _replace(
                path, "step,reward\n" + "".join(f"{t},0.9\n" for t in range(1, 99))
            ),
            "was replaced",
        ),
    ],
    ids=["cut", "anew", "replaced"],
)
def test_a_log_that_is_no_longer_the_same_is_read_again_and_told(
    change: Callable[[Path], object], words: str, tmp_path: Path
) -> None:
    path = tmp_path / "run.csv"
    path.write_text("".join(csv_lines(20)))
    follower = Follower(path)
    follower.poll()
    change(path)
    assert follower.poll()
    assert follower.record is not None
    assert follower.record.steps["reward"][0] == 0.9
    assert words in follower.events[-1].said
    assert same(follower.record.steps, run_record(path).steps)


def _replace(path: Path, text: str) -> None:
    other = path.with_name("other")
    other.write_text(text)
    other.replace(path)


def test_a_file_that_is_gone_leaves_what_was_read_and_may_come_back(tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    path.write_text("".join(csv_lines(5)))
    follower = Follower(path)
    follower.poll()
    path.unlink()
    assert follower.poll()
    assert follower.waiting
    assert "gone" in follower.problem
    assert follower.record is not None
    assert not follower.poll() or follower.waiting
    path.write_text("".join(csv_lines(7)))
    assert follower.poll()
    assert (follower.problem, len(follower.record.steps)) == ("", 7)


def test_a_log_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    follower = Follower(path)
    follower.start()
    assert follower.waiting
    assert "does not exist" in follower.problem
    path.touch()
    follower.poll()
    assert follower.waiting
    assert "empty" in follower.problem
    path.write_text('{"step": 1, "rew')
    follower.poll()
    assert follower.waiting
    assert "incomplete" in follower.problem
    path.write_text('{"step": 1, "reward": 0.5}\n')
    follower.poll()
    assert follower.problem == ""
    assert follower.record is not None


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("run.pt", b"PK\x03\x04 0000000000", "PyTorch"),
        ("notes.md", b"nothing\nof a log\n", "none"),
        (
            "runs.csv",
            b"step,reward,seed\n"
            + b"".join(b"%d,0.5,%d\n" % (t, s) for s in (1, 2) for t in range(9)),
            "expected one run",
        ),
    ],
)
def test_what_can_never_be_followed_is_refused_at_the_start(
    name: str, content: bytes, words: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    old(path)
    follower = Follower(path)
    if (
        name == "notes.md"
    ):  # a trainer's output that has said nothing of training yet looks the same: it is waited for
        follower.start()
        assert follower.waiting
        return
    with pytest.raises(UnreadableRunError, match=words):
        follower.start()


def test_a_path_whose_folder_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableRunError, match="whose folder does not exist"):
        Follower(tmp_path / "nowhere" / "run.csv").start()


def test_one_run_of_several_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(
        "step,reward,seed\n" + "".join(f"{t},{0.1 * s},{s}\n" for s in (1, 2) for t in range(9))
    )
    follower = Follower(f"{path}#2")
    follower.start()
    assert follower.record is not None
    assert set(follower.record.steps["reward"].to_list()) == {0.2}


def write_steps(writer: RecordWriter, steps: range, *, shift: float = 0.0) -> None:
    for step in steps:
        rollouts = [
            {"prompt_id": g, "prompt": f"p{g}", "completion": f"c{step}", "reward": float(g)}
            for g in (0, 0, 1, 1)
        ]
        writer.append(
            {"step": step, "reward": 0.01 * step + shift, "seconds": 2.0 * step},
            rollouts,
            sync=False,
        )


def test_a_record_that_is_being_written_is_followed_through_a_resume(tmp_path: Path) -> None:
    """Steps that come again after a resume replace those that were there, as in
    `RunRecord.load`, without reading anything twice.
    """
    home = tmp_path / "record"
    config = RunConfig().with_settings({"group_size": 2}, "made")
    follower = Follower(home)
    follower.start()
    assert follower.waiting
    with RecordWriter(
        home, name="mine", config=config, meanings=[Meaning("reward", "reward", "mean")]
    ) as writer:
        write_steps(writer, range(1, 11))
        follower.poll()
        write_steps(writer, range(11, 21))
        follower.poll()
    with RecordWriter(home, name="mine", config=config) as writer:
        write_steps(writer, range(16, 31), shift=1.0)
    follower.poll()
    loaded = run_record(home)
    assert follower.record is not None
    assert same(follower.record.steps, loaded.steps)
    assert follower.record.name == "mine"
    assert follower.record.config == loaded.config
    assert follower.record.rollouts is not None
    assert loaded.rollouts is not None
    assert follower.record.rollouts.select(loaded.rollouts.columns).equals(loaded.rollouts)
    assert follower.bytes_read == (home / "journal.jsonl").stat().st_size


def test_texts_beyond_a_size_are_those_of_the_newest_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("groupwise.parsing.MOST_TEXT", 40)
    follower = Follower(tmp_path / "record")
    with RecordWriter(tmp_path / "record") as writer:
        for step in (1, 2, 3):
            writer.append(
                {"step": step, "reward": 0.5},
                [{"prompt_id": 0, "completion": f"{step:020}", "reward": 0.5}],
            )
    follower.poll()
    assert follower.record is not None
    assert follower.record.rollouts is not None
    assert follower.record.rollouts["completion"].to_list() == [None, f"{2:020}", f"{3:020}"]


def test_a_torn_entry_is_not_read_and_a_damaged_one_is_told(tmp_path: Path) -> None:
    home = tmp_path / "record"
    with RecordWriter(home) as writer:
        write_steps(writer, range(1, 4))
    journal = home / "journal.jsonl"
    whole = journal.read_bytes()
    journal.write_bytes(whole[:-5])
    follower = Follower(home)
    follower.poll()
    assert follower.record is not None
    assert len(follower.record.steps) == 2
    with journal.open("ab") as file:
        file.write(whole[-5:])
    follower.poll()
    assert len(follower.record.steps) == 3
    with journal.open("ab") as file:
        file.write(b"00000000 2 {}\n")
    follower.poll()
    assert "damaged" in follower.events[-1].said
    assert len(follower.record.steps) == 3
    assert not follower.poll()


def test_a_record_that_was_saved_is_read_and_one_that_is_resumed_is_followed(
    tmp_path: Path,
) -> None:
    home = tmp_path / "record"
    run_record(examples.trl_run()).save(home)
    follower = Follower(home)
    follower.start()
    assert follower.record is not None
    rows = len(follower.record.steps)
    last = int(follower.record.steps["step"][-1])
    saved = follower.follows
    with RecordWriter(home) as writer:
        write_steps(writer, range(last + 1, last + 3))
    follower.poll()
    assert (saved, follower.follows) == (False, True)
    assert len(follower.record.steps) == rows + 2


def test_a_format_without_a_feed_is_read_whole_when_it_changes(
    tmp_path: Path, write_state: Callable[..., Path], make_row: Callable
) -> None:
    home = tmp_path / "run"
    write_state(
        home / "checkpoint-5" / "trainer_state.json", [make_row(step) for step in range(1, 6)]
    )
    follower = Follower(home)
    follower.start()
    assert not follower.follows
    assert not follower.poll()
    write_state(
        home / "checkpoint-9" / "trainer_state.json", [make_row(step) for step in range(1, 10)]
    )
    assert follower.poll()
    assert follower.record is not None
    assert follower.record.steps["step"][-1] == 9


def test_a_folder_with_one_log_in_it_is_followed(tmp_path: Path) -> None:
    (tmp_path / "run.csv").write_text("".join(csv_lines(3)))
    follower = Follower(tmp_path)
    follower.start()
    assert follower.follows
    with (tmp_path / "run.csv").open("a") as file:
        file.write("4,0.9,0.1\n")
    assert follower.poll()
    assert follower.record is not None
    assert len(follower.record.steps) == 4


def test_a_long_log_is_begun_at_the_start_and_finished_at_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "_FIRST_LOOK", 1 << 20)
    path = tmp_path / "run.jsonl"
    path.write_text("".join(jsonl_lines(40_000)))
    follower = Follower(path)
    follower.start()
    assert follower.record is not None
    assert 0 < len(follower.record.steps) < 40_000
    assert follower.poll()
    assert len(follower.record.steps) == 40_000
    assert not follower.poll()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    path.write_text("".join(csv_lines(3)))
    path.chmod(0)
    with pytest.raises(UnreadableRunError, match="permission"):
        Follower(path).start()


def test_quotes_over_lines_and_text_that_only_looks_like_lines(tmp_path: Path) -> None:
    """A quoted cell may hold line feeds, and JSON may hold characters at which `str.splitlines`
    would split.
    """
    path = tmp_path / "run.csv"
    text = 'step,note,reward\n1,"two\nlines",0.5\n2,"a ""quote""",0.25\n'
    path.touch()
    follower = Follower(path)
    for piece in (text[:24], text[24:40], text[40:]):
        with path.open("a") as file:
            file.write(piece)
        follower.poll()
    assert follower.record is not None
    assert same(follower.record.steps, run_record(path).steps)
    assert follower.record.steps["reward"].to_list() == [0.5, 0.25]
    assert lines_of("a\x0bb\u2028c\r\nd\re") == ["a\x0bb\u2028c\n", "d\n", "e"]


def test_what_follows_is_what_the_registry_says() -> None:
    assert {reader.name for reader in READERS if reader.feed is not None} == {
        "groupwise",
        "jsonl",
        "csv",
        "trl_console",
        "printed_dicts",
        "verl_console",
        "printed",
    }


def test_only_a_new_row_makes_the_newest_row_newer(tmp_path: Path) -> None:
    """A line that is no row, a note, and a file that was touched leave the time of the newest
    row as it was.
    """
    path = tmp_path / "run.jsonl"
    path.write_text("".join(jsonl_lines(20)[:10]))
    os.utime(path, (1000, 1000))
    follower = Follower(path)
    follower.poll()
    assert follower.grew == 1000
    for at, line, grew in (
        (2000, "not a row\n", 1000),
        (3000, "", 1000),
        (4000, jsonl_lines(20)[10], 4000),
    ):
        with path.open("a") as file:
            file.write(line)
        os.utime(path, (at, at))
        follower.poll()
        assert follower.grew == grew


def test_a_note_in_a_journal_is_no_new_row(tmp_path: Path) -> None:
    journal = tmp_path / "record" / "journal.jsonl"
    with RecordWriter(tmp_path / "record", name="made") as writer:
        writer.append({"step": 1, "reward": 0.5})
        os.utime(journal, (1000, 1000))
        follower = Follower(tmp_path / "record")
        follower.poll()
        writer.describe(RunConfig(), notes=("something happened",))
        os.utime(journal, (2000, 2000))
        assert follower.poll()
        assert follower.grew == 1000
        writer.append({"step": 1, "reward": 0.75})  # the step again: a row all the same
        os.utime(journal, (3000, 3000))
        follower.poll()
        assert follower.grew == 3000


def test_a_file_without_a_row_more_that_is_read_whole_is_no_newer(tmp_path: Path) -> None:
    state = tmp_path / "trainer_state.json"
    state.write_text(
        json.dumps(
            {"log_history": [{"step": step, "reward": 0.5 + step / 100} for step in range(1, 9)]}
        )
    )
    os.utime(state, (1000, 1000))
    follower = Follower(tmp_path)
    follower.poll()
    follower.poll()
    assert not follower.follows
    assert follower.grew == 1000
    other = tmp_path / "scheduler.pt"
    other.write_bytes(b"x")
    os.utime(other, (2000, 2000))
    follower.poll()
    assert follower.grew == 1000


@pytest.mark.parametrize("looks", [(1,), (1, 2), (1, 2, 3, 4), (4,)])
def test_a_title_above_a_table_is_none_of_its_rows_however_the_file_grows(
    tmp_path: Path, looks: tuple[int, ...]
) -> None:
    """Nor are its names before the first row; a line with a number between commas is a row."""
    path = tmp_path / "a.csv"
    rows = [f"{step},{step / 8},0.1\n" for step in range(8)]
    written = ["My training, begun today\n", "step,reward,kl\n", *rows]
    follower = Follower(path)
    for start, end in pairwise((0, *looks, len(written))):
        with path.open("a") as file:
            file.write("".join(written[start:end]))
        follower.poll()
    assert follower.record is not None
    assert follower.record.steps["reward"].to_list() == [step / 8 for step in range(8)]
    with path.open("a") as file:
        file.write("8,1.0,none\n")
    follower.poll()
    assert follower.record.steps["reward"][-1] == 1.0
