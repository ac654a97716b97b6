"""What TRL prints, with and without progress bars."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from groupwise.errors import UnreadableRunError
from groupwise.readers import open_run
from groupwise.record import RunRecord


def values(record: RunRecord, column: str) -> list[float | None]:
    """One column of the steps."""
    return record.steps[column].to_list()


def printed(row: dict[str, float], **changes: object) -> str:
    """A row as TRL prints it: without its step."""
    return str({key: value for key, value in (row | changes).items() if key != "step"})


Row = Callable[..., dict[str, float]]


def test_the_bar_before_a_row_is_its_step(tmp_path: Path, make_row: Row) -> None:
    text = "Loading weights: 100%|####| 2/2 [00:01<00:00]\n"
    for step in (10, 20, 30):
        text += "".join(f"\r {at}%|#  | {at}/100 [00:01<00:09, 1.0s/it]" for at in range(step - 9, step + 1)) + "\r   \r\x1b[32m"
        text += printed(make_row(step), kl=float("nan")).replace("'kl': nan", "'kl': nan, 'name': 'a'") + "\x1b[0m\n"
    text += "{'train_runtime': 9.0, 'train_loss': 0.1}\n"
    (tmp_path / "train.log").write_text(text)
    record = open_run(tmp_path / "train.log")
    assert values(record, "step") == [10, 20, 30]
    assert values(record, "window") == [10.0, 10.0, 10.0]
    assert values(record, "reward") == [0.1, 0.2, 0.3]
    assert record.notes[0] == "the summary row at the end is left out"
    assert record.notes[1:] == ("the step of a row is the position of the progress bar printed before it",)


def test_rows_collected_after_all_bars_are_spaced_evenly(tmp_path: Path, make_row: Row) -> None:
    bars = "".join(f"\r{at}%|#| {at}/20 [00:01<00:09]" for at in range(21))
    rows = "\n".join(printed(make_row(step)) for step in (5, 10, 15, 20))
    (tmp_path / "train.log").write_text(f"Total train batch size (w. parallel, distributed & accumulation) = 8\n{bars}\n{rows}\n")
    record = open_run(tmp_path / "train.log", settings={"group_size": "4"})
    assert values(record, "step") == [5, 10, 15, 20]
    assert "one every 5" in record.notes[0]
    assert (record.config.value("prompts_per_step"), record.config.prompts_per_step.source) == (2, "the printed output")


def test_no_bar_at_all_counts_the_rows(tmp_path: Path, make_row: Row) -> None:
    (tmp_path / "train.log").write_text("start\n" + "\n".join(printed(make_row(step)) for step in (5, 10)))
    record = open_run(tmp_path / "train.log")
    assert values(record, "step") == [1, 2]
    assert "rows are counted" in record.notes[0]


def test_a_step_in_the_row_wins(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("go\n{'loss': '-0.03', 'reward': '0.5', 'step': 7}\n{'loss': '0.1', 'reward': '0.6', 'step': 9}\n")
    record = open_run(tmp_path / "train.log")
    assert (values(record, "step"), values(record, "loss")) == ([7, 9], [-0.03, 0.1])


def test_damaged_rows_are_counted(tmp_path: Path, make_row: Row) -> None:
    damaged = ["{'loss': 0.1, 'reward': }", "{'loss': __import__('os')}"]
    (tmp_path / "train.log").write_text("\n".join(["x", printed(make_row(1)), *damaged, printed(make_row(2)), ""]))
    record = open_run(tmp_path / "train.log")
    assert len(record.steps) == 2
    assert record.notes[0] == "2 printed rows are damaged and were left out"


@pytest.mark.parametrize("text", ["10%|# | 1/10 [00:01<00:09]\nGSM8K accuracy: 0.9\n", "INFO nothing here\n{'accuracy': 0.5}\n"])
def test_output_without_rows(tmp_path: Path, text: str) -> None:
    (tmp_path / "eval.log").write_text(text)
    with pytest.raises(UnreadableRunError, match="give the log of the training itself"):
        open_run(tmp_path / "eval.log")


def test_verls_output_is_read_by_its_own_reader(tmp_path: Path) -> None:
    (tmp_path / "verl.log").write_text("(TaskRunner pid=1) step:1 - actor/entropy:0.1 - critic/score/mean:0.5\n")
    record = open_run(tmp_path / "verl.log")
    assert (record.sources[0].reader, record.column("reward")) == ("verl_console", "critic/score/mean")
