"""Whether a run goes on: its journal is held by whoever writes it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from groupwise.readers import run_record
from groupwise.record.journal import being_written
from groupwise.record.run import JOURNAL, RecordWriter, RunRecord, has_ended

WRITE_AND_WAIT = """
import sys
from groupwise.record.run import RecordWriter
with RecordWriter(sys.argv[1]) as writer:
    writer.append({"step": 1, "reward": 0.5})
    print("written", flush=True)
    sys.stdin.readline()
"""


def test_a_run_goes_on_while_its_writer_lives(tmp_path: Path) -> None:
    home = tmp_path / "run"
    with subprocess.Popen(
        [sys.executable, "-c", WRITE_AND_WAIT, str(home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdin is not None
        assert writer.stdout.readline() == b"written\n"
        assert not has_ended(RunRecord.load(home))
        assert not has_ended(run_record(home))
        writer.stdin.write(b"\n")
        writer.stdin.flush()
        writer.wait(timeout=60)
    assert has_ended(RunRecord.load(home))
    with RecordWriter(home) as again:  # to look does not keep a writer out
        again.append({"step": 2, "reward": 0.6})
        assert being_written(home / JOURNAL)
    assert not being_written(home / JOURNAL)


def test_every_other_log_has_ended(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("step,reward\n1,0.1\n2,0.2\n3,0.3\n")
    assert has_ended(run_record(tmp_path / "log.csv"))
    assert not being_written(tmp_path / "nowhere")
