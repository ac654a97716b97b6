"""The judgement of public runs whose end is known, rule by rule; skipped where the logs are
absent.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from diagnosis.labels import CONFIGS, JudgedRun, judged, labels_in, summary

from groupwise.cli.app import main

SWEEP, SHIBUKI, HACKED = (
    "sweeps/qwen25_7b_rho_sweep",
    "sweeps/cs336_shibuki",
    "other/tinker_reward_hacking/rl-leetcode__",
)
OTHERS = (
    "trl/imjonezz_llama31_8b_gsm8k_G6.trainer_state.json",
    "trl/juncylu_qwen25vl3b_dapo_120531.run_terminal.md",
    "trl/qwen25_7b_exp2_adabalance_seed42.log",
    "trl/qwen35_9b_rho0.70_seed42.step_logs.json",
    "trl/qwen35_9b_rho0.70_seed44.step_logs.json",
    "trl/qwen35_9b_rho1.00_seed42.step_logs.json",
    "trl/wordle_qwen05b_4090_ckpt400.trainer_state.json",
    f"{SWEEP}/rho0.10_seed42.log",
    f"{SWEEP}/rho0.10_seed43.log",
    f"{SWEEP}/rho0.30_seed42.log",
    f"{SWEEP}/rho1.00_seed42.log",
    f"{SWEEP}/rho1.50_seed42.log",
    f"{SWEEP}/rho5.00_seed42.log",
    f"{SHIBUKI}/grpo_baselines/reinforce_with_baseline.metrics.jsonl",
    f"{SHIBUKI}/grpo_off_policy_sweep/broad_e4_tb128.metrics.jsonl",
    f"{SHIBUKI}/grpo_off_policy_sweep/broad_e8_tb256.metrics.jsonl",
    "sweeps/qwen35_9b_gates_g2/rho0.70_seed42.csd_logs.json",
    f"{HACKED}llama-3.2-1b__Easy.metrics.jsonl",
    f"{HACKED}meta-llama__Llama-3.2-3B__g__Easy.metrics.jsonl",
    "other/leonopus_twinkle_qwen3_4b_run1.metrics.jsonl",
    "other/tinkerlab_cross_tool_llama-8b-inst.json",
    "other/unsloth_nb/Llama3.1__8B_-GRPO.table.csv",
    "other/unsloth_nb/Qwen3_VL__8B_-Vision-GRPO.table.csv",
    "other/unsloth_nb/gpt-oss-_20B_-GRPO.table.csv",
    "other/wangyukai_gpt2_grpo_rank.metrics.json",
    "verl/leonopus_qwen3_4b_gsm8k_G4_full125.log",
)
# What single runs still break, to the letter: whoever mends one takes it off.
# The labels have an onset alone: length and divergence had moved eight rows before it, and the
# gradient norm had exploded 170 rows before the numbers ended.
OPEN: dict[str, list[str]] = {
    "hard/agent_opd__gjvwlq13.output.log": ["first sign more than five rows off"],
    "hard/cs336_grpo_off_policy_sweep_focused_e2_tb256.metrics.jsonl": [
        "first sign more than five rows off"
    ],
}


@pytest.fixture(scope="module")
def runs(shared_data: Path) -> dict[str, JudgedRun]:
    """The labelled hard files, judged."""
    return {
        label.file: judged(shared_data, label)
        for label in labels_in(shared_data)
        if label.file.startswith("hard/") and "#" not in label.file
    }


@pytest.fixture(scope="module")
def others(shared_data: Path) -> dict[str, JudgedRun]:
    """Some others, judged."""
    return {
        label.file: judged(shared_data, label)
        for label in labels_in(shared_data)
        if label.file in OTHERS
    }


def differing(home: Path, runs: Iterable[JudgedRun]) -> list[str]:
    """The runs of which `diagnose` and `report` print different judgements."""
    return [
        run.label.file
        for run in runs
        if len({printed(home, run.label.file, name) for name in ("diagnose", "report")}) > 1
    ]


def printed(home: Path, file: str, command: str) -> str:
    """The judgement that a command prints of a run."""
    config = next(
        (str(home / name) for begin, name in CONFIGS.items() if file.startswith(begin)), None
    )
    arguments = [
        command,
        str(home / file.removesuffix("/journal.jsonl")),
        "--json",
        *(["--config", config] if config else []),
    ]
    with (
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()),
    ):
        main(arguments)
    answer = json.loads(out.getvalue() or "{}")
    said = answer["runs"][0]["judgement"] if "runs" in answer else answer
    return (
        json.dumps(said, sort_keys=True) if "state" in said else f"{command} printed no judgement"
    )


@pytest.mark.slow
def test_no_other_run_breaks_a_rule(others: dict[str, JudgedRun]) -> None:
    assert set(others) == set(OTHERS)
    assert not [file for file, run in others.items() if run.broken()]


def test_no_run_breaks_a_rule(runs: dict[str, JudgedRun]) -> None:
    assert len(runs) >= 25
    assert {file: run.broken() for file, run in runs.items() if run.broken()} == OPEN


@pytest.mark.slow
def test_together_they_meet_what_is_asked_of_all(
    runs: dict[str, JudgedRun], others: dict[str, JudgedRun]
) -> None:
    kept = [run for file, run in (runs | others).items() if file not in OPEN]
    assert [what for what, _, _, met in summary(kept) if not met] == []


@pytest.mark.slow
def test_diagnose_and_report_never_differ(
    runs: dict[str, JudgedRun], others: dict[str, JudgedRun], shared_data: Path
) -> None:
    """On four logs; `tests/test_one_voice.py` asks of all."""
    files = (
        "hard/rho0.30_seed43.log",
        "hard/rho3.00_seed44.log",
        "hard/real_hack/journal.jsonl",
        "other/wangyukai_gpt2_grpo_rank.metrics.json",
    )
    assert differing(shared_data, [(runs | others)[file] for file in files]) == []
