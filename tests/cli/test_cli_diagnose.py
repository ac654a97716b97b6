"""`groupwise diagnose`: exit codes, JSON and text."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from worlds.runs import simulated_run

from groupwise import examples
from groupwise.cli.app import main


def test_a_healthy_run_exits_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(examples.trl_run())]) == 0
    assert "healthy" in capsys.readouterr().out


def test_a_failing_run_exits_1_with_the_json_of_the_contract(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record, onset = simulated_run("verifier_failure", np.random.default_rng(4), steps=200)
    record.save(tmp_path / "run")
    assert main(["diagnose", str(tmp_path / "run"), "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert list(data) == ["verdict", "causes", "findings", "healthy", "unavailable"]
    assert data["verdict"] == "verifier_failure"
    worst = data["findings"][0]
    assert list(worst) == ["check", "severity", "since_step", "value", "threshold", "message", "advice"]
    assert list(worst["value"]) == ["value", "low", "high"]
    assert onset is not None
    assert abs(worst["since_step"] - onset) < 20
    assert main(["diagnose", str(tmp_path / "run"), "--until", str(onset - 5)]) == 0


def test_a_log_that_cannot_be_judged_exits_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log.csv").write_text("step,reward\n1,0.1\n2,0.2\n")
    assert main(["diagnose", str(tmp_path / "log.csv")]) == 2
    assert "no check can look" in capsys.readouterr().err
    rows = "".join(f"{step},{0.5 - 0.001 * step}\n" for step in range(1, 101))
    (tmp_path / "entropy.csv").write_text("step,entropy\n" + rows)
    assert main(["diagnose", str(tmp_path / "entropy.csv")]) == 2
    assert "the log has no reward" in capsys.readouterr().err


def test_a_dead_reward_and_numbers_that_diverge_exit_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dead = [{"step": step, "reward": 0.0, "reward_std": 0.0, "kl": 0.001 * step} for step in range(1, 61)]
    (tmp_path / "dead.jsonl").write_text("\n".join(json.dumps(row) for row in dead))
    assert main(["diagnose", str(tmp_path / "dead.jsonl"), "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert (data["verdict"], data["findings"][0]["severity"]) == ("undetermined", "critical")
    rng = np.random.default_rng(0)
    rows = [
        {"step": s, "reward": 0.3 + 0.004 * s + 0.02 * rng.standard_normal(), "loss": 0.1, "grad_norm": 0.3, "learning_rate": 1e-6}
        for s in range(1, 61)
    ]
    for row in rows[40:]:
        row.update(reward=float("nan"), loss=float("nan"), grad_norm=float("nan"))
    (tmp_path / "nan.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    assert main(["diagnose", str(tmp_path / "nan.jsonl"), "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert (data["verdict"], data["findings"][0]["since_step"]) == ("dynamical_instability", 41)
