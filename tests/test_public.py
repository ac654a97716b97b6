"""What users rely on by name: the exported names, and the exit codes of the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import groupwise
from groupwise.cli.app import main
from groupwise.examples import trl_run
from groupwise.record.run import RecordWriter, RunRecord

NAMES = (
    "Backtest Budget CHECKS Components Diagnosis Finding FitResult Forecast "
    "GroupSizePlan GroupwiseError GroupwiseWarning Interval LAWS Law Meaning MetricSeries READERS "
    "RecordWriter RunConfig RunRecord Setting Source Summary __version__ backtest compare "
    "compare_baselines components diagnose fit forecast law_by_name load_components metric_series "
    "open_run plan_from_components plan_group_size preset render reward_statistics save_components "
    "score_sums summarise wilson Outlook Run RunComparison RunPlan judge plan report "
)


@pytest.mark.parametrize("name", NAMES.split())
def test_a_name_that_was_exported_once_stays(name: str) -> None:
    assert name in groupwise.__all__
    assert getattr(groupwise, name) is not None


def test_the_names_of_the_writers_of_records() -> None:
    from groupwise.integrations.probe import ProbeSettings
    from groupwise.integrations.trl import GroupwiseCallback
    from groupwise.integrations.verl import TAP, VARIABLE

    assert isinstance(GroupwiseCallback, type)
    assert (ProbeSettings().every, VARIABLE, TAP) == (10, "GROUPWISE_RECORD", None)


def test_exit_codes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stuck, nothing = str(tmp_path / "stuck"), str(tmp_path / "nothing")
    for folder, reward in ((stuck, 0.5), (nothing, 0.0)):
        with RecordWriter(folder) as writer:
            for step in range(1, 61):
                writer.append({"step": step, "reward": reward}, sync=False)
    assert main(["diagnose", str(trl_run())]) == 0
    assert main(["diagnose", nothing]) == 1  # nothing is earned
    assert main(["diagnose", stuck]) == 3  # one number in all rows tells nothing apart
    assert main(["diagnose", str(tmp_path / "nowhere")]) == 2
    assert main(["no-such-command"]) == 2

    def broken(error: BaseException) -> Any:
        def load(cls: type[RunRecord], folder: object) -> RunRecord:
            raise error

        return classmethod(load)

    for error, code in (
        (KeyboardInterrupt(), 130),
        (ZeroDivisionError(), 70),
        (groupwise.GroupwiseError("no"), 2),
    ):
        monkeypatch.setattr(RunRecord, "load", broken(error))
        assert main(["fit", stuck]) == code
    capsys.readouterr()
