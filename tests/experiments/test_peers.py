"""The comparison with other diagnosis tools: what it hands them, how it counts, and its page against its tables."""

from __future__ import annotations

import csv
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from worlds.runs import simulated_run

from groupwise.record.run import Meaning, RunRecord, steps_table

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

def run_heuristics(df, trainer_type):
    assert trainer_type == "grpo"
    return [Insight(name, "high" if name == "entropy" else "medium") for name in df.columns if name != "step"]
"""
CALLBACK = """
import a_trainer_that_nobody_has

class Callback:
    BASE_METRIC_MAPPINGS = {"reward_mean": ["reward"], "reward_std": ["rewards/std"]}
    GRPO_METRIC_MAPPINGS = {"entropy": ["entropy"]}
"""


def checkout(home: Path, *, yaml_rules: str = "def run_yaml_heuristics(df, trainer_type): return []") -> Path:
    """A made-up checkout, whose packages cannot be imported as a whole."""
    package = home / "post_training_toolkit"
    for folder in (package, package / "models", package / "integrations", package / "heuristics"):
        folder.mkdir()
        (folder / "__init__.py").write_text("" if folder.name == "heuristics" else "raise ImportError('a trainer is missing')")
    (package / "models" / "heuristics.py").write_text(RULES)
    (package / "heuristics" / "executor.py").write_text(yaml_rules)
    (package / "integrations" / "trl.py").write_text(CALLBACK)
    return home


def test_a_log_goes_by_the_names_of_the_trainer(load: Loader) -> None:
    columns = {"approx_kl": [0.1, 0.2], "token_entropy": [0.3, float("nan")], "std_reward": [0.1, 0.2], "reward": [0.5, 0.6]}
    meanings = [Meaning("approx_kl", "kl", ""), Meaning("token_entropy", "entropy", ""), Meaning("std_reward", "reward_std_batch", "")]
    log = load("peers").log_of(RunRecord("demo", steps_table([1, 2], columns), meanings=tuple(meanings)))
    assert log == [
        {"step": 1, "reward": 0.5, "reward_std": 0.1, "entropy": 0.3},
        {"step": 2, "reward": 0.6, "reward_std": 0.2, "entropy": None},
    ]


def test_a_simulated_log_loses_no_column_that_a_rule_can_use(load: Loader) -> None:
    module = load("peers")
    record, _ = simulated_run("trending", np.random.default_rng(0), steps=80)
    log = module.log_of(record)
    assert len(log) == 80
    assert set(log[0]) == {"step", *(key for keys in module.ITS_NAMES.values() for key in keys)} - {"kl", "loss", "completion_length"}


def test_the_entropy_at_the_end_is_that_of_the_last_rows(load: Loader) -> None:
    columns = {"reward": [0.5] * 40, "entropy": [9.0] * 10 + [0.25] * 29 + [float("nan")]}
    steps = list(range(1, 41))
    runs = [RunRecord("with", steps_table(steps, columns)), RunRecord("without", steps_table(steps, {"reward": [0.5] * 40}))]
    # Of the 39 known rows the last 30 are one of 9 nats and 29 of a quarter.
    assert load("peers").last_entropies(runs) == [pytest.approx((9 + 29 * 0.25) / 30)]


def test_notes_do_not_count_as_alarms(load: Loader) -> None:
    told = [{"a": "info"}, {"a": "warning", "b": "info"}, {"b": "critical", "a": "warning"}, {}]
    line = load("peers").line_of("kind", "tool", told)
    assert (line[:4], line[6], line[-1]) == (["kind", 4, "tool", "0.250"], "0.500", "a:2 b:1")


@pytest.mark.skipif(importlib.util.find_spec("pandas") is None, reason="the toolkit needs pandas")
def test_the_toolkit_sees_a_log_under_both_namings(load: Loader, tmp_path: Path) -> None:
    module = load("peers")
    log = [{"step": step, "reward": 0.5, "reward_std": 0.1, "entropy": None if step == 1 else 0.3} for step in (1, 2)]
    command = (sys.executable, "-c", module.TOOLKIT, str(checkout(tmp_path)), module.json.dumps(module.ITS_NAMES))
    told = module.told_by(command, [log, log])
    assert told["toolkit, TRL's names"] == [{"reward_mean": "warning", "entropy": "critical"}] * 2
    assert set(told["toolkit, its names"][0]) == {"reward_mean", "group_reward_mean", "reward_std", "group_reward_std", "entropy"}


@pytest.mark.skipif(importlib.util.find_spec("pandas") is None, reason="the toolkit needs pandas")
def test_rules_that_cannot_be_loaded_stop_the_study(load: Loader, tmp_path: Path) -> None:
    module = load("peers")
    home = checkout(tmp_path, yaml_rules="def run_yaml_heuristics(df, trainer_type): import a_package_that_nobody_has")
    with pytest.raises(SystemExit, match=r"answered for 0 of 1 logs(.|\n)*a_package_that_nobody_has"):
        module.told_by((sys.executable, "-c", module.TOOLKIT, str(home), "{}"), [[{"step": 1, "reward": 0.5}]])


def test_without_an_environment_nothing_is_run(printed: Callable[..., str]) -> None:
    assert printed("peers") == "give --python of an environment with rlwatch; nothing was run\n"


def test_without_a_checkout_the_toolkit_is_skipped_and_said(printed: Callable[..., str]) -> None:
    assert printed("peers", "--python", "unused", "--runs", "0").startswith("post-training-toolkit is skipped")


@pytest.mark.parametrize("name", ["peers.csv", "peers_real.csv"])
def test_the_page_has_the_tables(load: Loader, name: str) -> None:
    with (FOLDER / name).open(newline="") as file:
        lines = load("tables").peers(list(csv.DictReader(file)))
    assert "\n".join(lines) in PAGE.read_text(encoding="utf-8")
