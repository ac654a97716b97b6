"""The experiment on adaptive group sizes: its arithmetic, and its page against its pieces."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "experiments" / "u_statistic"
Study = Callable[[str], ModuleType]


def run(level: float, size: int = 4) -> list[dict[str, Any]]:
    """Three looks, the last three of which are the end; measuring took a tenth of the time."""
    rows = [
        {
            "step": step,
            "held_out": level,
            "group_size": size,
            "seconds": step / 10,
            "probe_seconds": step / 100,
        }
        for step in (0, 150, 300)
    ]
    return [{**rows[0], "group_size": ""}, *rows[1:]]


def test_regret_is_paired_and_the_best_fixed_size_has_every_seed(
    study: Study, capsys: pytest.CaptureFixture[str]
) -> None:
    module = study("adaptive_group_size")
    done = {module.cell_name("from032", seed): run(level) for seed, level in enumerate((0.4, 0.5))}
    fixed = {
        module.name_of("sgd", 512, 4, seed): run(level) for seed, level in enumerate((0.5, 0.5))
    }
    fixed |= {
        module.name_of("sgd", 512, 8, seed): run(level) for seed, level in enumerate((0.4, 0.4))
    }
    fixed[module.name_of("sgd", 512, 2, 0)] = run(0.9)  # better, of one seed
    module.regret_table(done, fixed)
    line = next(line for line in capsys.readouterr().out.splitlines() if "mean of the run" in line)
    # Differences of .1 and 0: mean .05, standard error .05, and t of one degree of freedom at 97.5
    # % is 12.706.
    assert (
        line == "| from G = 32 | mean of the run | 2 | 0.4500 | 4 (0.5000) | 10.00 % ± 127.06 |  |"
    )
    assert module.same_runs(done, fixed, "from032") == ["0 (G = 8)", "1 (G = 4)"]


def test_the_cost_is_the_probes_share(study: Study, capsys: pytest.CaptureFixture[str]) -> None:
    module = study("adaptive_group_size")
    module.cost_table({module.cell_name("from032", seed): run(0.5) for seed in range(2)})
    assert (
        "| from G = 32 | 12 | 250 | 10.0 % ± 0.0 | 1,536 (1.0 %) | 0.0000 ± 0.0000 |"
        in capsys.readouterr().out
    )


@pytest.mark.slow
def test_the_page_has_the_tables_of_its_pieces(
    study: Study, capsys: pytest.CaptureFixture[str]
) -> None:
    module = study("adaptive_group_size")
    done = module.PIECES.tables()
    assert {
        module.cell_name(arm, seed) for arm in ("from032", "from004") for seed in range(5)
    } <= set(done)
    module.show()
    text = (
        (ROOT / "docs" / "studies" / "adaptive-group-size.md")
        .read_text(encoding="utf-8")
        .splitlines()
    )
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert [line for line in lines if line not in text] == [], (
        "`adaptive_group_size.py --tables` prints other tables"
    )


@pytest.mark.slow
def test_the_script_runs() -> None:
    rows = subprocess.run(
        [sys.executable, str(FOLDER / "adaptive_group_size.py"), "--quick"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert rows.returncode == 0, rows.stderr
