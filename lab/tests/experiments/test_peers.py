"""The comparison with other diagnosis tools: what it hands them, how it counts, and its page
against its tables.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from diagnosis.labels import JudgedRun, Label

from groupwise.diagnostics.judgement import Cause, Certainty, Judgement, State
from groupwise.record.run import Meaning, RunConfig, RunRecord, steps_table
from groupwise_lab.worlds.logs import run_of

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "experiments" / "diagnosis"
PAGE = ROOT / "docs" / "studies" / "diagnosis-experiments.md"
Loader = Callable[[str], ModuleType]
# A toolkit of our own making with the same entrances: it alarms at every name that it is given.
RULES = """
from dataclasses import dataclass

@dataclass
class Insight:
    type: str
    severity: str
    message: str

def run_heuristics(df, trainer_type):
    assert trainer_type == "grpo"
    return [Insight(name, "high" if name == "entropy" else "medium", name + " rises by 3") for name in df.columns if name != "step"]
"""
CALLBACK = """
import a_trainer_that_nobody_has

class Callback:
    BASE_METRIC_MAPPINGS = {"reward_mean": ["reward"], "reward_std": ["rewards/std"]}
    GRPO_METRIC_MAPPINGS = {"entropy": ["entropy"]}
"""


def checkout(
    home: Path, *, yaml_rules: str = "def run_yaml_heuristics(df, trainer_type): return []"
) -> Path:
    """A made-up checkout, whose packages cannot be imported as a whole."""
    package = home / "post_training_toolkit"
    for folder in (package, package / "models", package / "integrations", package / "heuristics"):
        folder.mkdir()
        (folder / "__init__.py").write_text(
            "" if folder.name == "heuristics" else "raise ImportError('a trainer is missing')"
        )
    (package / "models" / "heuristics.py").write_text(RULES)
    (package / "heuristics" / "executor.py").write_text(yaml_rules)
    (package / "integrations" / "trl.py").write_text(CALLBACK)
    return home


def test_a_log_goes_by_the_names_of_the_trainer(load: Loader) -> None:
    columns = {
        "approx_kl": [0.1, 0.2],
        "token_entropy": [0.3, float("nan")],
        "std_reward": [0.1, 0.2],
        "reward": [0.5, 0.6],
    }
    meanings = [
        Meaning("approx_kl", "kl", ""),
        Meaning("token_entropy", "entropy", ""),
        Meaning("std_reward", "reward_std_batch", ""),
    ]
    log = load("peers").log_of(
        RunRecord("demo", steps_table([1, 2], columns), meanings=tuple(meanings))
    )
    assert log.rows == [
        {"step": 1, "reward": 0.5, "reward_std": 0.1, "entropy": 0.3},
        {"step": 2, "reward": 0.6, "reward_std": 0.2, "entropy": None},
    ]
    assert log.more[0]["token_entropy"] == 0.3  # rldoctor also gets what the log itself says
    assert "step" not in log.more[0]


def test_settings_go_by_the_names_of_the_trainer(load: Loader) -> None:
    config = RunConfig().with_settings({"group_size": "8", "kl_weight": "0.04"}, "--set")
    log = load("peers").log_of(
        RunRecord("demo", steps_table([1], {"reward": [0.5]}), config=config)
    )
    assert log.config == {"num_generations": 8, "beta": 0.04}


def test_a_simulated_log_loses_no_column_that_a_rule_can_use(load: Loader) -> None:
    module = load("peers")
    log = module.log_of(run_of("shorter_answers", 10)[0])
    assert len(log.rows) == 150
    assert set(log.rows[0]) == {
        "step",
        *(key for keys in module.ITS_NAMES.values() for key in keys),
    } - {"completion_length"}


def test_notes_do_not_count_as_alarms(load: Loader) -> None:
    severities = [
        {"a": "info"},
        {"a": "warning", "b": "info"},
        {"b": "critical", "a": "warning"},
        {},
    ]
    line = load("peers").line_of("kind", "tool", severities)
    assert (line[:4], line[6], line[-1]) == (["kind", 4, "tool", "0.250"], "0.500", "a: 2; b: 1")


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("pandas") is None, reason="the toolkit needs pandas")
def test_the_toolkit_sees_a_log_under_both_namings(load: Loader, tmp_path: Path) -> None:
    module = load("peers")
    log = module.ToolInput(
        [
            {"step": step, "reward": 0.5, "reward_std": 0.1, "entropy": None if step == 1 else 0.3}
            for step in (1, 2)
        ]
    )
    command = (
        sys.executable,
        "-c",
        module.TOOLKIT,
        str(checkout(tmp_path)),
        module.json.dumps(module.ITS_NAMES),
    )
    answers = module.told_by(command, [log, log])
    assert [answer.severities for answer in answers["toolkit, TRL's names"]] == [
        {"reward_mean": "warning", "entropy": "critical"}
    ] * 2
    assert answers["toolkit, TRL's names"][0].words == 6  # two messages of three; a number is none
    assert set(answers["toolkit, its names"][0].severities) == {
        "reward_mean",
        "group_reward_mean",
        "reward_std",
        "group_reward_std",
        "entropy",
    }


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("pandas") is None, reason="the toolkit needs pandas")
def test_rules_that_cannot_be_loaded_stop_the_study(load: Loader, tmp_path: Path) -> None:
    module = load("peers")
    home = checkout(
        tmp_path,
        yaml_rules="def run_yaml_heuristics(df, trainer_type): import a_package_that_nobody_has",
    )
    with pytest.raises(
        SystemExit, match=r"answered for 0 of 1 logs(.|\n)*a_package_that_nobody_has"
    ):
        module.told_by(
            (sys.executable, "-c", module.TOOLKIT, str(home), "{}"),
            [module.ToolInput([{"step": 1, "reward": 0.5}])],
        )


# A rldoctor of our own making with the same entrances: it alarms at every column, gravely at one
# that no naming knows.
DOCTOR = {
    "__init__": "",
    "diagnosis": """
from types import SimpleNamespace as N

def diagnose(run):
    rows, config = run
    names = {name for row in rows for name in row if name != "step"}
    return N(findings=[N(detector=name, severity=N(name="CRITICAL" if "/" in name else "SKIPPED")) for name in sorted(names)])
""",
    "ingest/__init__": "",
    "ingest/base": "def run_from_records(rows, config): return rows, config",
    "report/__init__": "",
    "report/terminal": "def render(found, width, color): return 'CRIT one 2 three'",
}


def test_the_doctor_sees_the_own_columns_of_a_log_too(
    load: Loader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in DOCTOR.items():
        file = tmp_path / "rl_doctor" / f"{name}.py"
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    module = load("peers")
    answers = module.Tools(rldoctor=sys.executable).asked(
        [module.ToolInput([{"step": 1, "reward": 0.5}], [{"eval/reward": 0.4}])]
    )
    assert [(answer.severities, answer.words) for answer in answers["rldoctor"]] == [
        ({"eval/reward": "critical"}, 3)
    ]


def test_a_judgement_counts_by_its_state_and_says_its_cause(load: Loader) -> None:
    ours = load("peers").ours
    cause = Cause(Certainty.LIKELY, ("the policy ran away in length",))
    assert ours(Judgement("demo", State.FAILED, "", cause=cause)) == {
        "the policy ran away in length": "critical"
    }
    assert ours(Judgement("demo", State.WARNING, "")) == {"warning": "warning"}
    assert (
        ours(Judgement("demo", State.OK, ""))
        == ours(Judgement("demo", State.CANNOT_TELL, ""))
        == {}
    )


def test_a_cause_is_named_where_an_alarm_is_about_it(load: Loader) -> None:
    about = load("peers_real").about
    assert about({"gradient_norm_spike": "critical", "entropy_collapse": "info"}) == {
        "instability",
        "numerics",
    }
    assert about({"the policy ran away in length": "warning"}) == {"length"}
    assert about({"reward_mean_drift": "critical"}) == set()


def test_a_line_counts_alarms_by_label_and_medians(load: Loader) -> None:
    module = load("peers_real")
    labels = [("healthy", ""), ("recovered", ""), ("collapse", "length"), ("flat", "")]
    runs = [
        JudgedRun(
            Label("a", label, None, None, frozenset(filter(None, [cause]))),
            Judgement("a", State.OK, ""),
            [1],
            0.1,
        )
        for label, cause in labels
    ]
    severities = [{"x": "critical"}, {"x": "info"}, {"length_pathology": "warning"}, {}]
    answers = [
        module.Answer(rules, 0.1 * i, words)
        for i, (rules, words) in enumerate(zip(severities, (10, 20, 40, 0), strict=True))
    ]
    assert list(module.line_of("tool", runs, answers).values()) == [
        "tool",
        2,
        1,
        1,
        1,
        0,
        1,
        1,
        0,
        0,
        1,
        1,
        "0.15",
        "20",
        "x: 1",
    ]


def test_without_tools_nothing_is_run(printed: Callable[..., str]) -> None:
    skipped = "".join(
        f"{name} is skipped: give --{name}\n" for name in ("rlwatch", "rldoctor", "toolkit")
    )
    assert printed("peers") == skipped + "nothing was run\n"


def test_without_logs_nothing_is_run(printed: Callable[..., str], tmp_path: Path) -> None:
    assert printed("peers_real", str(tmp_path / "no")).endswith(
        f"no logs at {tmp_path / 'no'}; nothing was run\n"
    )


def test_the_page_has_the_table_of_simulated_runs(load: Loader) -> None:
    module = load("tables")
    lines = module.peers(module.RESULTS.texts("peers"))
    assert "\n".join(lines) in PAGE.read_text(encoding="utf-8")


def test_the_page_has_the_table_of_public_runs(load: Loader) -> None:
    module = load("tables")
    lines = module.peers_real(module.RESULTS.texts("peers_real"))
    assert "\n".join(lines) in PAGE.read_text(encoding="utf-8")


def test_the_page_has_the_table_of_labels(load: Loader) -> None:
    module = load("tables")
    lines = module.labels(module.RESULTS.texts("labels"))
    assert "\n".join(lines) in PAGE.read_text(encoding="utf-8")


def test_the_picture_of_the_readme_is_what_the_tools_said(load: Loader) -> None:
    module = load("one_run")
    assert module.PICTURE.read_text(encoding="utf-8") == module.drawn(
        module.the_run(), module.kept()
    ), "run one_run.py"
    assert {finding.tool for finding in module.kept()} == set(module.TOOLS.values())


def test_the_table_of_what_opens_is_what_was_counted(load: Loader) -> None:
    rows = load("tables").RESULTS.texts("peers_open")
    counted = {row["tool"]: (row["opened"], row["seconds"]) for row in rows}
    section = PAGE.read_text(encoding="utf-8").split("## What opens")[1].split("\n## ")[0]
    shown = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line.startswith("| ")
    ][1:]
    assert {
        row[0].split()[0].replace("W&B", "wandb"): (row[1], row[4])
        for row in shown
        if row[1] != "not tried"
    } == counted
