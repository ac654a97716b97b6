"""`make demo` on the smallest task: what a newcomer sees, and that it needs only what it
installs.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from groupwise.record.run import RunRecord

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def demo() -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("demo", ROOT / "scripts" / "demo.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shown(
    demo: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    *words: str,
) -> str:
    """What the demo prints on addition modulo 10."""
    pytest.importorskip("torch")
    for library in ("trl", "verl"):
        monkeypatch.setitem(sys.modules, library, None)  # an import of it fails
    monkeypatch.setattr(demo, "LEVEL", 1)
    monkeypatch.setattr(demo, "SIZE", "tiny")
    monkeypatch.setattr(sys, "argv", ["demo.py", *words])
    demo.main()
    return capfd.readouterr().out


@pytest.mark.slow
def test_the_demo_trains_forecasts_plans_and_reports(
    demo: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    out = shown(demo, monkeypatch, capfd, "--steps", "60", "--folder", "d", "--page", "page.html")
    assert re.search(r"20 of 60  reward 0\.\d\d [▁▂▃▄▅▆▇█]+", out)
    assert (
        len(
            re.findall(
                r"^ +\d+ to \d+ +\d\.\d\d +\d\.\d\d to \d\.\d\d +\d\.\d\d", out, re.MULTILINE
            )
        )
        == 3
    )
    assert len(out.splitlines()) <= 40, out
    commands = [line.split()[2] for line in out.splitlines() if line.startswith("$ groupwise")]
    assert commands == ["components", "plan", "report"]
    assert re.search(r"Of 512 rollouts that is \d+ rollouts of each of \d+ prompts", out)
    assert out.rstrip().endswith(f"The report: {(tmp_path / 'page.html').as_uri()}")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<h2>Group size</h2>" in page
    assert page.index('class="banner') < page.index("<h2")
    # The forecast saw the first 24 rows, and the run that went on is one run.
    rows = RunRecord.load("d/addition").steps
    assert rows["step"].to_list() == list(range(1, 61))
    came = rows["reward"].to_numpy()[40:60].mean()
    assert re.search(rf"^ +41 to 60 .* {came:.2f}(  outside)?$", out, re.MULTILINE)


def test_a_demo_of_too_few_steps_is_refused(
    demo: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["demo.py", "--steps", "20"])
    with pytest.raises(SystemExit):
        demo.main()
    assert "at least 60 steps, got 20" in capsys.readouterr().err


def test_a_curve_in_a_line(demo: ModuleType) -> None:
    assert demo.curve([0.0, 0.5, 1.0]) == "▁▅█"
    assert demo.curve([0.0] * 100 + [1.0] * 100, width=4) == "▁▁██"


def test_make_demo_installs_what_it_needs() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(
        r"^demo: \$\(VENV\)/\.installed-lab .*\n\t@\$\(BIN\)/python scripts/demo\.py$",
        makefile,
        re.MULTILINE,
    )
    text = (ROOT / "README.md").read_text(encoding="utf-8") + (
        ROOT / "lab" / "docs" / "how-to" / "train.md"
    ).read_text(encoding="utf-8")
    for option in ("--folder", "--page", "--steps"):
        assert f"`{option}" in text, option
