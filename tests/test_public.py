"""What users rely on by name: the exported names, and the exit codes of the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.cases import each_case

import groupwise
from groupwise.cli.app import main
from groupwise.examples import trl_run
from groupwise.record.run import RecordWriter, RunRecord

NAMES = (
    "Budget Components Finding GroupwiseCallback GroupwiseError GroupwiseWarning Judgement RecordWriter "
    "Run RunRecord Stability State __version__ compare components fit forecast judge "
    "load_components open_run plan plan_group_size replay report reward_statistics save_components "
    "stability"
)
# Names of version 0.1 that answer with a warning, and those that are in the laboratory.
FORMERLY = (
    "CHECKS Diagnosis FitResult Forecast GroupSizePlan Interval LAWS Law Meaning MetricSeries Outlook "
    "READERS RunComparison RunConfig RunPlan "
    "Setting Source Summary diagnose law_by_name metric_series plan_from_components render "
    "score_sums summarise wilson"
)
LABORATORY = "ADVANTAGES Backtest backtest preset"


def test_the_names_are_these_and_no_more() -> None:
    assert sorted(groupwise.__all__) == sorted(NAMES.split())
    assert len(NAMES.split()) == 27


@each_case("name", NAMES.split())
def test_a_name_that_is_exported_stays(name: str) -> None:
    assert name in groupwise.__all__
    assert getattr(groupwise, name) is not None


@each_case("name", FORMERLY.split())
def test_a_name_of_before_answers_for_one_version_and_says_where_it_is(name: str) -> None:
    assert name not in groupwise.__all__
    with pytest.warns(
        DeprecationWarning, match=rf"^groupwise\.{name} moved to groupwise\.\S+\.\w+ in"
    ):
        assert getattr(groupwise, name) is not None


@pytest.mark.parametrize("name", LABORATORY.split())
def test_a_name_of_the_laboratory_says_where_it_is(name: str) -> None:
    said = rf"groupwise_lab\.\S+\.{name} in version 0\.2: pip install groupwise-lab"
    with pytest.raises(ImportError, match=said):
        getattr(groupwise, name)
    with pytest.raises(ImportError, match=said):
        exec(f"from groupwise import {name}")


def test_a_name_that_is_gone_says_what_stands_in_for_it() -> None:
    with pytest.raises(ImportError, match=r"to groupwise_lab\.theory\.mse\.minibatch_mse in"):
        _ = groupwise.compare_baselines


def test_the_names_of_the_writers_of_records() -> None:
    from groupwise.integrations.trl import GroupwiseCallback
    from groupwise.integrations.verl import TAP, VARIABLE

    assert isinstance(GroupwiseCallback, type)
    assert (VARIABLE, TAP) == ("GROUPWISE_RECORD", None)


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
