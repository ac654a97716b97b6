"""Ten thousand mutants over all formats and the files beside a log, in processes that the kernel
bounds; a sample runs every time.
"""

from __future__ import annotations

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.readers.bounded import MEMORY, run_bounded

from groupwise import parsing

ROOT = Path(__file__).resolve().parents[2]
EACH, ALL, SAMPLE = 500, 10_000, 150
SCRIPT = (
    "import sys\nfrom tests.readers.mutants import main\ncode = main(int(sys.argv[1]), "
    "int(sys.argv[2]))\n"
)


def outcomes_of(first: int, last: int) -> str:
    """What a range of mutants did; one that is killed ends its process, whose last line tells
    which it was.
    """
    ran = run_bounded(SCRIPT, [str(first), str(last)], seconds=600, memory=MEMORY)
    assert ran.code == 0, ran.printed[-2000:]
    assert ran.memory < MEMORY
    return ran.printed


@pytest.mark.slow
def test_a_sample_of_mutants() -> None:
    assert f"{SAMPLE} mutants, 0 wrong" in outcomes_of(0, SAMPLE)


@pytest.mark.torture
def test_ten_thousand_mutants() -> None:
    with ThreadPoolExecutor(2) as both:
        printed = list(
            both.map(lambda first: outcomes_of(first, first + EACH), range(0, ALL, EACH))
        )
    slowest = max(
        float(figure) for page in printed for figure in re.findall(r"slowest ([\d.]+) s", page)
    )
    memory = max(int(figure) for page in printed for figure in re.findall(r"(\d+) MB", page))
    wrong = [line for page in printed for line in page.split("\n") if line.startswith("mutant ")]
    print(
        f"\n{ALL:,} mutants, {len(wrong)} wrong, the slowest {slowest} s of CPU, at most {memory} "
        "MB"
    )
    assert not wrong, "\n".join(wrong)


@pytest.mark.torture
def test_hostile_files(tmp_path: Path) -> None:
    """Every shape of `scripts/fuzz.py`, of its real size, within one gigabyte and ten seconds of
    a processor.
    """
    words = [
        sys.executable,
        str(ROOT / "scripts" / "fuzz.py"),
        "--only",
        "shapes",
        "--results",
        str(tmp_path / "shapes.jsonl"),
    ]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-4000:]


def test_the_limits_are_in_one_place() -> None:
    """What a table may hold at most fits into the memory that a mutant may take."""
    assert parsing.MOST_CELLS * 8 * 2 <= MEMORY
