"""The record of a run that trains: kills, full disks, two writers, resumed and restarted runs."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from tests.cases import each_case
from tests.golden.sentences import says

from groupwise.record.journal import SecondWriterError
from groupwise.record.recorder import Recorder
from groupwise.record.run import Meaning, RecordWriter, RunRecord

GROUPS, SIZE = 4, 8


def step_of(number: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A step whose every value follows from its number, so that a torn or mixed one shows."""
    row = {
        "step": number,
        "reward": number / 7,
        "group_size": float(SIZE),
        "seconds": float(number),
    }
    rollouts = [
        {
            "prompt_id": n // SIZE,
            "prompt": f"p{n // SIZE}",
            "completion": f"{number}-{n}" * 20,
            "reward": float(number * n),
            "length": n,
        }
        for n in range(GROUPS * SIZE)
    ]
    return row, rollouts


def check(record: RunRecord, steps: int) -> None:
    """Every step from 1 to `steps` is there, once and whole."""
    assert record.steps["step"].to_list() == list(range(1, steps + 1))
    assert record.steps["reward"].to_list() == [number / 7 for number in range(1, steps + 1)]
    if not steps:
        return
    assert record.rollouts is not None
    expected = [
        (number, column["completion"], column["reward"])
        for number in range(1, steps + 1)
        for column in step_of(number)[1]
    ]
    assert record.rollouts.select("step", "completion", "reward").rows() == expected


WORKER = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_recorder import Recorder, step_of
after = int(sys.argv[2])
recorder = Recorder(Path(sys.argv[1]), say=lambda _: None)
recorder.open(after)
while True:
    after += 1
    recorder.append(*step_of(after))
    sys.stdout.write(f"{{after}}\\n")
    sys.stdout.flush()
"""


def recorded_until_killed(folder: Path, after: int, delay: float, *, fewest: int = 1) -> int:
    """Record in a process of its own, kill it a while after a number of steps, and return the
    last step that it said was done.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", WORKER, str(folder), str(after)], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    first = [process.stdout.readline() for _ in range(fewest)]  # the while begins once it records
    assert all(first)
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    said = [*first, *process.stdout]
    process.stdout.close()
    process.wait()
    whole = [line for line in said if line.endswith(b"\n")]
    return int(whole[-1])


def kills(folder: Path, count: int, seed: int, *, fewest: int = 1) -> int:
    """Kill and resume a run `count` times, now and then from a checkpoint some steps back; return
    the steps at the end.

    Each time it has done at least `fewest` steps when it is killed, on a machine however busy.
    """
    draw, done = random.Random(seed), 0
    for _ in range(count):
        after = max(done - draw.choice([0, 0, 1, 3]), 0) or done
        finished = recorded_until_killed(folder, after, draw.uniform(0, 0.03), fewest=fewest)
        record = RunRecord.load(folder)
        done = len(record.steps)
        assert done in (finished, finished + 1)  # the last one may be written and not yet said
        check(record, done)
    return done


@pytest.mark.slow
def test_killed_runs_keep_every_finished_step_once_and_whole(tmp_path: Path) -> None:
    assert (
        kills(tmp_path / "run", 2, seed=1, fewest=5) >= 7
    )  # five new steps each time, and at most three of those before repeated


@each_case("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_step_cut_off_anywhere_is_dropped_and_the_record_goes_on(
    share: float, tmp_path: Path
) -> None:
    with_steps(tmp_path / "run", 3)
    path = tmp_path / "run" / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    last = max(number for number, line in enumerate(lines) if b'"row"' in line)
    path.write_bytes(b"".join(lines[:last]) + lines[last][: int(share * len(lines[last]))])
    check(RunRecord.load(tmp_path / "run"), 2)
    recorder = Recorder(tmp_path / "run", say=lambda _: None)
    recorder.open(2)
    recorder.append(*step_of(3))
    recorder.close()
    check(RunRecord.load(tmp_path / "run"), 3)


def with_steps(folder: Path, steps: int, *, after: int = 0, said: list[str] | None = None) -> None:
    """Record steps up to `steps` and close."""
    recorder = Recorder(folder, say=(said if said is not None else []).append)
    recorder.open(after)
    for number in range(after + 1, steps + 1):
        recorder.append(*step_of(number))
    recorder.close()


class Unwritable:
    """What no text can be made of."""

    def __str__(self) -> str:
        raise KeyError("no text")


@each_case("rollout", [{"prompt_id": 0.5, "reward": 1.0}, {"prompt_id": True}, {"reward": 1.0}])
def test_a_step_that_cannot_be_recorded_is_said(rollout: dict[str, Any], tmp_path: Path) -> None:
    messages: list[str] = []
    recorder = Recorder(tmp_path / "run", say=messages.append)
    recorder.open()
    recorder.append({"step": 1}, [rollout])
    recorder.append(*step_of(1))
    recorder.close()
    check(RunRecord.load(tmp_path / "run"), 1)
    assert len(messages) == 1
    assert "a whole number for prompt_id" in messages[0]


def test_a_resumed_run_replaces_what_is_done_again(tmp_path: Path) -> None:
    said: list[str] = []
    with_steps(tmp_path / "run", 7)
    recorder = Recorder(tmp_path / "run", say=lambda _: None)
    recorder.open(4)
    assert [row["step"] for row in recorder.rows] == [1, 2, 3, 4]
    recorder.close()
    with_steps(tmp_path / "run", 9, after=4, said=said)
    record = RunRecord.load(tmp_path / "run")
    check(record, 9)
    (note,) = record.notes
    says("record/recorder/2", note)
    with_steps(tmp_path / "run", 12, after=11, said=said)
    says("record/recorder/1", said[-1])


def test_a_new_run_moves_an_older_record_aside(tmp_path: Path) -> None:
    said: list[str] = []
    with_steps(tmp_path / "run", 5)
    with_steps(tmp_path / "run", 3, said=said)
    with_steps(tmp_path / "run", 2, said=said)
    check(RunRecord.load(tmp_path / "run"), 2)
    check(RunRecord.load(tmp_path / "run.before-1"), 5)
    check(RunRecord.load(tmp_path / "run.before-2"), 3)
    assert "held the record of an earlier run" in said[0]


def test_a_saved_record_is_moved_aside_too(tmp_path: Path) -> None:
    with_steps(tmp_path / "run", 3)
    RunRecord.load(tmp_path / "run").save(tmp_path / "saved")
    with_steps(tmp_path / "saved", 1)
    check(RunRecord.load(tmp_path / "saved"), 1)
    check(RunRecord.load(tmp_path / "saved.before-1"), 3)


@pytest.mark.usefixtures("impatient")
def test_a_second_writer_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run", say=lambda _: None)
    recorder.open()
    recorder.append(*step_of(1))
    before = (tmp_path / "run" / "journal.jsonl").read_bytes()
    for after in (0, 1):
        with pytest.raises(
            SecondWriterError,
            match=r"expected to be the only writer of .*, got another writer",
        ):
            Recorder(tmp_path / "run", say=lambda _: None).open(after)
    with pytest.raises(SecondWriterError, match="only writer"):
        RecordWriter(tmp_path / "run")
    assert (tmp_path / "run" / "journal.jsonl").read_bytes() == before
    recorder.append(*step_of(2))
    recorder.close()
    check(RunRecord.load(tmp_path / "run"), 2)
    with_steps(tmp_path / "run", 3, after=2)


@pytest.mark.thinned(1)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize(
    "seconds", [0.0, 0.2], ids=["at once", "late"]
)  # a tenth of what a resumed run waits
def test_a_worker_that_outlives_a_killed_run_does_not_keep_it_from_resuming(
    tmp_path: Path, seconds: float
) -> None:
    """A data loader's worker is forked, and inherits the open record; on a busy machine it first
    runs when its parent is dead already.
    """
    code = (
        "import os, sys, time\nfrom pathlib import Path\n"
        f"os.register_at_fork(after_in_child=lambda: time.sleep({seconds}))\n"
        "from groupwise.record.recorder import Recorder\n"
        f"recorder = Recorder(Path({str(tmp_path / 'run')!r}), say=lambda _: "
        f"None)\nrecorder.open()\nrecorder.append({{'step': 1}})\n"
        "child = os.fork()\nif child == 0:\n    time.sleep(30)\n    os._exit(0)\n"
        "print(child, flush=True)\ntime.sleep(30)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    worker = int(process.stdout.readline())
    try:
        process.kill()
        process.wait()
        process.stdout.close()
        with_steps(tmp_path / "run", 2, after=1)
    finally:
        os.kill(worker, signal.SIGKILL)
    assert RunRecord.load(tmp_path / "run").steps["step"].to_list() == [1, 2]


class FullDisk:
    """Let writing fail while `full`, after half of what was asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = False
        opened = Path.open

        def watched(path: Path, *given: Any, **named: Any) -> Any:
            file = opened(path, *given, **named)
            return (
                Failing(file, self)
                if path.name == "journal.jsonl" and given and "+" in given[0]
                else file
            )

        monkeypatch.setattr(Path, "open", watched)


class Failing:
    """A file on a disk that may be full."""

    def __init__(self, file: Any, disk: FullDisk) -> None:
        self._file, self._disk = file, disk

    def write(self, data: Any) -> int:
        if self._disk.full:
            if len(data) > 40:
                written: int = self._file.write(data[: len(data) // 2])
                return written
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        count: int = self._file.write(data)
        return count

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FullDisk:
    return FullDisk(monkeypatch)


def test_a_full_disk_is_said_once_and_nothing_is_lost(disk: FullDisk, tmp_path: Path) -> None:
    said: list[str] = []
    recorder = Recorder(tmp_path / "run", say=said.append)
    recorder.open()
    for number in range(1, 31):
        disk.full = 10 <= number < 20
        recorder.append(*step_of(number))
        check(RunRecord.load(tmp_path / "run"), 9 if disk.full else number)
    recorder.close()
    check(RunRecord.load(tmp_path / "run"), 30)
    assert [sentence for sentence in said if "No space left" in sentence] == [said[0]]
    assert "training goes on, and the steps wait in memory" in said[0]
    assert "can be written again" in said[1]
    assert len(said) == 2


def five_steps_until_full(disk: FullDisk, home: Path, said: list[str]) -> Recorder:
    """A recording of five steps that has ended; the disk is full after three."""
    recorder = Recorder(home / "run", say=said.append)
    recorder.open()
    for number in range(1, 6):
        disk.full = number > 3
        recorder.append(*step_of(number))
    recorder.close()
    return recorder


def test_a_disk_that_stays_full_costs_the_steps_after_it_and_says_so(
    disk: FullDisk, tmp_path: Path
) -> None:
    said: list[str] = []
    five_steps_until_full(disk, tmp_path, said)
    check(RunRecord.load(tmp_path / "run"), 3)
    assert said[-1].startswith("2 steps could not be written to")


@pytest.mark.slow
def test_a_real_full_file_system_leaves_whole_steps(tmp_path: Path) -> None:
    """A limit on the size of files stands for the full disk: the system itself cuts the write
    off.
    """
    resource = pytest.importorskip("resource")
    code = (
        "import resource, signal, sys\nfrom pathlib import Path\nfrom test_recorder import "
        "Recorder, step_of\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nresource.setrlimit(resource.RLIMIT_FSIZE, "
        "(20_000, 20_000))\n"
        "recorder = Recorder(Path(sys.argv[1]), say=print)\nrecorder.open()\n"
        "for number in range(1, 21): recorder.append(*step_of(number))\nrecorder.close()\n"
    )
    assert resource is not None
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
    }
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "run")],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
        timeout=60,
    )
    record = RunRecord.load(tmp_path / "run")
    assert 1 <= len(record.steps) < 20
    check(record, len(record.steps))
    assert done.stdout.count("File too large") == 1
    assert f"{20 - len(record.steps)} steps could not be written" in done.stdout


def test_an_odd_cell_is_missing_and_told_once_and_holds_nothing_up(tmp_path: Path) -> None:
    said: list[str] = []
    recorder = Recorder(tmp_path / "run", say=said.append)
    recorder.open()
    for step in range(1, 5):
        odd = step in (2, 3)
        completion, reward = (Unwritable(), "much") if odd else ("x", 1.0)
        recorder.append(
            {"step": step, "reward": "high" if odd else 0.5, "kl": 0.1},
            [
                {"prompt_id": 0, "completion": "y", "reward": 0.5},
                {"prompt_id": 0, "completion": completion, "reward": reward},
            ],
        )
    recorder.close()
    record = RunRecord.load(tmp_path / "run")
    assert record.rollouts is not None
    assert record.steps.select("reward", "kl").rows() == [
        (0.5, 0.1),
        (None, 0.1),
        (None, 0.1),
        (0.5, 0.1),
    ]
    assert record.rollouts["completion"].to_list() == ["y", "x", "y", None, "y", None, "y", "x"]
    assert record.rollouts["reward"].to_list() == [0.5, 1.0, 0.5, None, 0.5, None, 0.5, 1.0]
    words = "contains values that are not numbers or texts: these cells are missing in the record"
    assert said == [f"'reward' {words}", f"'completion' {words}"]


def test_a_changed_group_size_is_noted_and_becomes_the_setting(tmp_path: Path) -> None:
    said: list[str] = []
    recorder = Recorder(tmp_path / "run", say=said.append)
    recorder.open()
    for number, size in enumerate([8, 8, 4, 4, None, 16], start=1):
        recorder.append({"step": number, "group_size": None if size is None else float(size)})
    recorder.close()
    record = RunRecord.load(tmp_path / "run")
    sentences = (
        "the group size changed from 8 to 4 at step 3",
        "the group size changed from 4 to 16 at step 6",
    )
    assert record.notes == sentences == tuple(said)
    assert record.config.value("group_size") == 16
    assert record.steps["group_size"].to_list() == [8, 8, 4, 4, None, 16]


def test_meanings_come_with_the_columns(tmp_path: Path) -> None:
    recorder = Recorder(
        tmp_path / "run",
        meanings_of=lambda columns, _: tuple(Meaning(name, name, "x") for name in columns),
        say=print,
    )
    recorder.open()
    recorder.append({"step": 1, "reward": 1.0})
    assert [meaning.column for meaning in RunRecord.load(tmp_path / "run").meanings] == ["reward"]
    recorder.append({"step": 2, "reward": 1.0, "entropy": 0.5})
    assert [meaning.column for meaning in RunRecord.load(tmp_path / "run").meanings] == [
        "reward",
        "entropy",
    ]
    lines = (tmp_path / "run" / "journal.jsonl").read_text().splitlines()
    assert sum('"about"' in line for line in lines) == 3
    recorder.close()


def test_the_snapshot_is_what_is_read_back(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run", say=print)
    recorder.open()
    for number in range(1, 6):
        recorder.append(*step_of(number))
    recorder.append(*step_of(4))
    record, read = recorder.snapshot(), RunRecord.load(tmp_path / "run")
    assert record.steps.equals(read.steps)
    assert record.rollouts is not None
    assert read.rollouts is not None
    assert record.rollouts.equals(read.rollouts)
    record.validate()
    recorder.close()


def test_a_step_that_comes_again_with_more_replaces_the_first(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run", say=print)
    recorder.open()
    row, rollouts = step_of(1)
    recorder.append(row, rollouts)
    recorder.append({**row, "eval_reward": 0.25}, rollouts)
    recorder.close()
    record = RunRecord.load(tmp_path / "run")
    check(record, 1)
    assert record.steps["eval_reward"].to_list() == [0.25]


def test_the_journal_holds_plain_json(tmp_path: Path) -> None:
    with_steps(tmp_path / "run", 1)
    for line in (tmp_path / "run" / "journal.jsonl").read_text().splitlines():
        json.loads(line.split(" ", 2)[2])


def test_what_a_full_disk_left_in_memory_goes_to_a_temporary_folder(
    disk: FullDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    (tmp_path / "other").mkdir()

    def room(**_: Any) -> str:
        disk.full = False
        return str(tmp_path / "other")

    monkeypatch.setattr(tempfile, "mkdtemp", room)
    recorder = five_steps_until_full(disk, tmp_path, said)
    assert recorder.written == 3
    assert len(recorder.rows) == 5
    says("record/recorder/3", said[-1], folder=tmp_path)
    assert RunRecord.load(tmp_path / "other" / "run").steps["step"].to_list() == [4, 5]


def test_a_step_that_comes_again_while_the_disk_is_full_waits_once(
    disk: FullDisk, tmp_path: Path
) -> None:
    said: list[str] = []
    recorder = Recorder(tmp_path / "run", say=said.append)
    recorder.open()
    for number in range(1, 6):
        disk.full = number > 3
        row, rollouts = step_of(number)
        recorder.append({"step": number}, rollouts)
        recorder.append(row, rollouts)
    assert len(recorder._waiting) == 2
    disk.full = False
    recorder.close()
    check(RunRecord.load(tmp_path / "run"), 5)
    assert not any("could not be written" in sentence for sentence in said)


def test_a_step_that_is_no_whole_number_leaves_the_others_alone(tmp_path: Path) -> None:
    said: list[str] = []
    recorder = Recorder(tmp_path / "run", say=said.append)
    recorder.open()
    for number in (1, 2):
        recorder.append(*step_of(number))
    for wrong in (1.0, True, None):
        recorder.append({"step": wrong, "reward": 0.0})
    assert [row["step"] for row in recorder.rows] == [1, 2]
    recorder.close()
    check(RunRecord.load(tmp_path / "run"), 2)
    assert len(said) == 3
    assert all("expected a whole number for step" in sentence for sentence in said)


def test_a_terminal_that_is_gone_costs_the_sentence_only(tmp_path: Path) -> None:
    def gone(_: str) -> None:
        raise BrokenPipeError

    recorder = Recorder(tmp_path / "run", say=gone)
    recorder.open()
    recorder.append({"step": "one"})
    recorder.append(*step_of(1))
    recorder.close()
    check(RunRecord.load(tmp_path / "run"), 1)
