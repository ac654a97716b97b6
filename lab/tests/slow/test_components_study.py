"""The studies behind lab/docs/theory/gradient.md: is every component right on average, and do
the intervals cover?
"""

from __future__ import annotations

import importlib.util
import math
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REPLICATES = int(os.environ.get("GROUPWISE_REPLICATES", "2000"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["binary", "continuous", "noisy"])
@pytest.mark.parametrize("rollouts", [8, 64])
def test_components_are_right_and_their_intervals_cover(
    kind: str, rollouts: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Mean of each component within 5 %, coverage of 95 % between .93 and .98, with three standard
    errors of a proportion: upper ends are longer for what 64 prompts of a stranger's world may
    hide.

    Of 18 proportions at their level one leaves the allowance in less than one study in twenty.
    """
    path = ROOT / "experiments" / "gradient" / "components.py"
    spec = importlib.util.spec_from_file_location("components_study", path)
    assert spec is not None
    assert spec.loader is not None
    study = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(study)
    row = study.one_cell(kind, 64, rollouts, REPLICATES, 7)
    with capsys.disabled():
        study.show([row])
    for name in study.NAMES:
        assert abs(row[f"error_{name}"]) < 0.05
        covered = row[f"coverage_{name}"]
        allowance = 3 * math.sqrt(covered * (1 - covered) / REPLICATES)
        assert 0.93 - allowance < covered < 0.98 + allowance, (name, covered)
