"""The table of the judgement against labels: what is counted, and how, on runs made by hand."""

from __future__ import annotations

import csv
import importlib
import math
from dataclasses import replace
from pathlib import Path

import diagnosis.labels
import pytest
from diagnosis.labels import (
    JudgedRun,
    Label,
    data_folder,
    families,
    labels_in,
    line_of,
    main,
    stopped,
    summary,
)
from tests.cases import each_case

from groupwise.diagnostics.judgement import Cause, Certainty, Judgement, Sign, State

COLLAPSE = Label("a.csv", "collapse", (70, 75), 85, frozenset({"length"}))
FLAT, HEALTHY = (
    replace(COLLAPSE, label="flat", first_sign=None, onset=None, causes=frozenset()),
    Label("b.csv", "healthy", None, None, frozenset()),
)


def run(
    label: Label,
    state: State = State.OK,
    *,
    at: int | None = None,
    names: tuple[str, ...] = (),
    likely: bool = True,
) -> JudgedRun:
    """A judged run of 40 rows, every five steps."""
    sign = None if at is None else Sign("reward", at, 0.9, 0.1, "reward 0.9 → 0.1")
    cause = Cause(Certainty.LIKELY if likely else Certainty.POSSIBLE, names) if names else Cause()
    judgement = Judgement(
        "demo", state, "reward 0.9 → 0.1", first_sign=sign, cause=cause, do="restart from step 70"
    )
    return JudgedRun(label, judgement, range(5, 205, 5), 0.1)


@each_case(
    ("at", "off"), [(70, 0), (75, 0), (45, 5), (40, 6), (100, 5), (105, 6), (None, math.inf)]
)
def test_rows_off_count_from_either_end_of_the_range(at: int | None, off: float) -> None:
    judged_run = run(COLLAPSE, State.FAILED, at=at)
    assert judged_run.rows_off == off
    assert judged_run.broken() == (["first sign more than five rows off"] if off > 5 else [])


def test_without_a_first_sign_the_onset_counts_and_without_both_nothing() -> None:
    assert run(replace(COLLAPSE, first_sign=None), at=90).rows_off == 1
    assert run(FLAT, at=90).rows_off is None


@each_case(
    ("label", "state", "rules"),
    [
        (HEALTHY, State.OK, []),
        (HEALTHY, State.WARNING, []),
        (HEALTHY, State.FAILED, ["alarm on a healthy run"]),
        (HEALTHY, State.CANNOT_TELL, ["cannot tell with reward and rows"]),
        (replace(HEALTHY, label="recovered"), State.FAILING, ["alarm on a healthy run"]),
        (replace(HEALTHY, label="short"), State.CANNOT_TELL, []),
        (replace(HEALTHY, label="unlabelled"), State.FAILED, []),
        (FLAT, State.WARNING, []),
        (FLAT, State.OK, ["ok on a run that is not"]),
        (replace(FLAT, label="zero reward"), State.WARNING, ["no alarm on a reward of 0"]),
    ],
)
def test_states_that_a_label_forbids(label: Label, state: State, rules: list[str]) -> None:
    assert run(label, state).broken() == rules


@each_case(
    ("label", "name", "denied"),
    [
        (COLLAPSE, "the policy ran away in length", False),
        (COLLAPSE, "a broken verifier", True),
        (HEALTHY, "a broken verifier", True),
        (HEALTHY, "overfitting", False),
        (FLAT, "reward hacking", True),
        (FLAT, "too small a group", False),
        (replace(FLAT, label="unlabelled"), "reward hacking", False),
    ],
)
def test_a_likely_cause_may_be_denied_and_a_possible_one_not(
    label: Label, name: str, denied: bool
) -> None:
    assert run(label, State.WARNING, at=70, names=(name,)).denied == denied
    assert not run(label, State.WARNING, at=70, names=(name,), likely=False).denied


def test_causes_are_compared_by_what_they_are_about() -> None:
    assert families("numerics or instability (gradient norm 1e16)") == {"numerics", "instability"}
    assert families("policy ran away in length") == {"length"}
    assert families("") == set()


def test_the_sums_count_runs() -> None:
    runs = [
        run(HEALTHY),
        run(HEALTHY, State.FAILED),
        run(COLLAPSE, State.FAILED, at=75, names=("ran away in length",)),
        run(COLLAPSE, at=75),
    ]
    demands = {what: (value, met) for what, value, _, met in summary(runs)}
    assert demands["alarm on a healthy run"] == ("1", False)
    assert demands["ok on a run that is not"] == ("1", False)
    assert demands["first sign within five rows"] == ("2 of 2", True)
    assert demands["ok of the healthy and recovered"] == ("1 of 2", False)
    assert demands["likely names the labelled cause"] == ("1 of 2", False)
    assert demands["alarms on collapses, hacks, cut-offs"] == ("1 of 2", True)


def test_a_line_holds_no_number_of_the_log_but_steps() -> None:
    line = line_of(run(COLLAPSE, State.FAILED, at=75, names=("ran away in length",)))
    assert (line["sign"], line["rows_off"], line["cause"], line["broken"]) == (
        "reward at 75",
        "0",
        "ran away in length",
        "",
    )
    assert "0.9" not in "".join(line.values())


def test_the_words_are_those_of_the_answer_in_the_terminal() -> None:
    judged_run = run(HEALTHY)
    drawn = replace(judged_run.judgement, heights=(1.0,))
    judged_run = replace(judged_run, judgement=drawn)
    assert [line.split() for line in judged_run.lines] == [
        ["✓", "OK", "demo", "reward", "0.9", "→", "0.1"],
        ["do", "restart", "from", "step", "70"],
        ["reward", "█"],
    ]
    assert judged_run.words == 3 + 4 + 1


def test_labels_are_read_with_ranges_and_families(tmp_path: Path) -> None:
    (tmp_path / "hard").mkdir()
    rows = (
        "file\tlabel\tfirst_sign\tonset\tcause\na.log\tcollapse\t70-75\t85\tpolicy ran away in "
        "length\na.config.json\t\t\t\t\n"
    )
    (tmp_path / "hard" / "LABELS.tsv").write_text(rows)
    labels = labels_in(tmp_path)
    assert labels[0] == replace(COLLAPSE, file="hard/a.log")
    assert len(labels) == 144  # and those of labels.tsv
    assert len({label.file for label in labels}) == 144


def test_without_logs_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["labels", str(tmp_path / "nowhere")])
    main()
    assert capsys.readouterr().out == f"no logs at {tmp_path / 'nowhere'}; nothing was run\n"
    monkeypatch.setenv("GROUPWISE_DATA", "/elsewhere")
    assert data_folder() == Path("/elsewhere")


def test_a_stop_waits_for_an_alarm_that_lasts() -> None:
    alarms = [(10, False), (20, True), (30, False), (40, True), (50, True), (100, True)]
    assert [stopped(alarms, lasting) for lasting in (1, 2, 3, 4)] == [0.8, 0.5, 0.0, 0.0]
    assert stopped([(10, False), (20, False)], 1) == 0.0


@pytest.mark.slow
def test_the_bands_of_the_usual_are_those_of_the_public_runs(
    shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(diagnosis.labels.__file__).parent)
    usual = importlib.import_module("usual")
    with usual.TABLE.open(encoding="utf-8", newline="") as file:
        _, *rows = csv.reader(file, delimiter="\t")
    assert list(usual.bands(shared_data)) == rows
