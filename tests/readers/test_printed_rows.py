"""Consoles that state their steps: verl's rows in another encoding, cut off, and beside others."""

from __future__ import annotations

from pathlib import Path

import pytest

from groupwise.errors import UnreadableRunError
from groupwise.readers import open_run


def verl(step: int) -> str:
    """A row of verl."""
    return (
        f"(TaskRunner pid=1) step:{step} - critic/score/mean:{step / 100} - actor/entropy:0.5 - "
        "timing_s/step:33.1 - perf/mfu/actor:0.3\n"
    )


@pytest.mark.parametrize("quiet", [0, 2000])
def test_verl_in_utf_16(tmp_path: Path, quiet: int) -> None:
    text = "a line of the start that says nothing\n" * quiet + "".join(
        verl(step) for step in range(1, 31)
    )
    (tmp_path / "plain.log").write_text(text)
    (tmp_path / "powershell.log").write_text(text, encoding="utf-16")
    plain, other = open_run(tmp_path / "plain.log"), open_run(tmp_path / "powershell.log")
    assert other.sources[0].reader == "verl_console"
    assert other.steps.equals(plain.steps)
    assert (other.meanings, other.notes) == (plain.meanings, plain.notes)


def test_verls_rows_without_their_step_are_no_steps_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "cut.log").write_text(
        "".join(verl(step).replace(f"step:{step} ", "", 1) for step in range(1, 31))
    )
    with pytest.raises(UnreadableRunError, match="got 30 lines without their step"):
        open_run(tmp_path / "cut.log")


def test_seconds_a_step_are_no_step(tmp_path: Path) -> None:
    rows = [
        f"step: {step} | reward: {step / 10} | timing/step: 33 | time a step: 12.5"
        for step in range(1, 6)
    ]
    (tmp_path / "own.log").write_text("\n".join(rows) + "\ntiming_s/step:33.1 | reward: 9\n")
    record = open_run(tmp_path / "own.log")
    assert record.steps["step"].to_list() == [1, 2, 3, 4, 5]
