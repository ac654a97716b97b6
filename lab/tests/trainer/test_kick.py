"""The stiffness of a run by one step and back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from groupwise.readers import open_run

pytest.importorskip("torch")

from groupwise_lab.cli.app import main

SETTINGS = {
    "size": "tiny",
    "steps": 1,
    "rollouts_per_step": 64,
    "optimizer": "sgd",
    "momentum": 0,
    "warm_up": 0,
    "format_reward": True,
    "evaluate_every": 0,
}


@pytest.mark.slow
def test_twice_the_rate_is_twice_as_near_to_the_edge_and_the_run_stays_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = []
    for rate in (1e-4, 2e-4):
        run, settings = tmp_path / f"{rate:g}", tmp_path / "settings.json"
        settings.write_text(json.dumps(SETTINGS | {"learning_rate": rate}))
        assert main(["train", "addition", "-o", str(run), "--settings", str(settings)]) == 0
        held = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
        capsys.readouterr()
        given = ["addition", "--settings", str(settings), "-n", "3", "--json"]
        assert main(["probe", "kick", str(run), *given]) == 0
        answer = json.loads(capsys.readouterr().out)
        result = answer["result"]
        assert answer["learning_rate"] == pytest.approx(rate)
        assert answer["safe_learning_rate"] == pytest.approx(2 * rate / result["high"])
        assert result["low"] <= result["value"] <= result["high"]
        assert {path: path.read_bytes() for path in held} == held
        probes = open_run(run).probes
        assert probes is not None
        assert [one.outcome for one in probes.results] == [result["outcome"]]
        values.append(result["value"])
    assert values[1] == pytest.approx(2 * values[0], rel=0.05)


def test_another_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "regrade", "run"]) == 2
    assert "kick" in capsys.readouterr().err
