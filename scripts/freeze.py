"""Freezes what every command answers, so that a change of the code shows which answers changed.

`freeze.py write` runs each command on each readable log of a data folder and keeps exit codes,
numbers, and hashes of structure, names and sentences in `tests/golden/frozen.json.gz`. `freeze.py
check` runs them again and prints what differs: numbers beyond a relative 1e-8, since processors
differ in the last digits; all else exactly. `--full DIR` keeps whole answers, to see differences in
words. It judges nothing: a difference is a question that an issue must answer.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import hashlib
import io
import json
import math
import os
import re
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT.parent / "shared" / "data"
GOLDEN = ROOT / "tests" / "golden" / "frozen.json.gz"
DATE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC")  # of the page, today's
RELATIVE, ABSOLUTE = 1e-8, 1e-11  # the second for numbers that are 0 but for rounding

# Keys and names of today -> those of the frozen answers. Applied to today's answers before they are
# compared.
RENAMED: dict[str, str] = {}

OF_ONE_RUN: dict[str, tuple[str, ...]] = {
    "diagnose": ("--why", "--json"),
    "report": ("--json", "-o", "{page}", "--force"),
    "fit": ("--json",),
    "forecast": ("--json",),
    "stability": (
        "--json",
        "--set",
        "momentum=0.9",
        "--set",
        "beta1=0.9",
        "--set",
        "learning_rate=1e-5",
        "--set",
        "lag_kind=refresh",
        "--set",
        "refresh_interval=4",
    ),
}
WITHOUT_RUN: tuple[tuple[str, ...], ...] = (
    ("fit", "{examples}", "--json"),
    ("report", "{examples}", "--json", "-o", "{page}", "--force"),
    ("diagnose", "{examples}", "--json", "--why"),
    (
        "compare",
        "{data}/sweeps/qwen25_7b_rho_sweep/rho0.10_seed42.log",
        "vs",
        "{data}/hard/rho0.30_seed43.log",
        "--json",
    ),
    (
        "compare",
        "{data}/trl/qwen35_9b_rho0.70_seed42.step_logs.json",
        "{data}/trl/qwen35_9b_rho0.70_seed44.step_logs.json",
        "vs",
        "{data}/trl/qwen35_9b_rho1.00_seed42.step_logs.json",
        "{data}/trl/qwen35_9b_rho3.00_seed42.step_logs.json",
        "--json",
    ),
    ("components", "{components}", "--json"),
    ("plan", "{components}", "--budget", "512", "--json"),
)


def cases() -> list[tuple[str, ...]]:
    """Every command line, with places in braces instead of paths."""
    runs = [
        path
        for path in sorted(DATA.rglob("*"))
        if path.is_file() and path.name != "LABELS.tsv" and path.suffix != ".md"
    ]
    runs += [path for path in sorted(DATA.rglob("*offline-run*")) if path.is_dir()]
    names = [f"{{data}}/{path.relative_to(DATA)}" for path in runs]
    return [
        *WITHOUT_RUN,
        *((command, name, *rest) for name in names for command, rest in OF_ONE_RUN.items()),
    ]


def answer(case: tuple[str, ...]) -> dict[str, Any]:
    """Exit code, plain data and error line of one command, run in this process."""
    from groupwise import examples
    from groupwise.cli.app import main

    sys.argv = ["groupwise"]  # what a page says of its making

    with tempfile.TemporaryDirectory() as folder:
        places = {
            "data": str(DATA),
            "page": f"{folder}/page.html",
            "examples": str(examples.trl_run()),
            "components": f"{folder}/components.json",
        }
        if "{components}" in case:
            save_made(Path(places["components"]))
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = exit_code(main, [part.format(**places) for part in case])
        text = out.getvalue()
        for place in sorted(places.values(), key=len, reverse=True):
            text = text.replace(place, "PLACE")
        error = err.getvalue()
        for place in sorted(places.values(), key=len, reverse=True):
            error = error.replace(place, "PLACE")
    try:
        data = json.loads(text) if text.strip() else None
    except json.JSONDecodeError:
        data = {"text": text}
    data = json.loads(DATE.sub("DATE", json.dumps(data)))
    return {"exit": code, "data": data, "error": error}


def exit_code(main: Any, arguments: list[str]) -> int:
    """What the command line ends with."""
    try:
        return int(main(arguments))
    except SystemExit as stop:
        return int(stop.code or 0)


def save_made(path: Path) -> None:
    """Components of 12 groups of 8 with known rewards, the same on every processor: integers over
    a power of two.
    """
    import numpy as np

    import groupwise as gw

    generator = np.random.Generator(np.random.PCG64(7))
    score_ND = generator.integers(-64, 65, (96, 6)) / 64.0
    reward_N = (generator.integers(0, 2, 96) + (np.arange(96) // 8 % 3 == 0)) / 2.0
    estimate = gw.components(reward_N, np.arange(96) // 8, score_ND=score_ND)
    gw.save_components(estimate, path, provenance={})


def leaves(data: Any, path: str = "") -> list[tuple[str, Any]]:
    """Every value of nested data with its place, in order."""
    if isinstance(data, dict):
        return [
            leaf
            for key in sorted(data)
            for leaf in leaves(data[key], f"{path}/{RENAMED.get(key, key)}")
        ]
    if isinstance(data, list):
        return [
            leaf for index, value in enumerate(data) for leaf in leaves(value, f"{path}/{index}")
        ]
    return [(path, RENAMED.get(data, data) if isinstance(data, str) else data)]


def frozen(result: dict[str, Any]) -> dict[str, Any]:
    """An answer as it is kept: numbers themselves, hashes of structure, names and sentences."""
    places = leaves(result["data"])
    numbers = [
        (place, value)
        for place, value in places
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    texts = [(place, value) for place, value in places if isinstance(value, str)]
    names = [item for item in texts if " " not in item[1]]
    sentences = [item for item in texts if " " in item[1]]
    kinds = [
        (place, "number" if (place, value) in set(numbers) else type(value).__name__)
        for place, value in places
    ]
    return {
        "exit": result["exit"],
        "structure": digest(kinds),
        "names": digest(names),
        "sentences": digest([*sentences, ("error", result["error"])]),
        "numbers": [value for _, value in numbers],
    }


def digest(data: Any) -> str:
    """A short hash of plain data."""
    return hashlib.sha256(json.dumps(data, ensure_ascii=True).encode()).hexdigest()[:16]


def close(first: float, other: float) -> bool:
    """Whether two numbers are the same but for rounding."""
    return (
        first == other
        or (math.isnan(first) and math.isnan(other))
        or math.isclose(first, other, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    )


def run(case: tuple[str, ...], full: Path | None) -> tuple[str, dict[str, Any]]:
    """One command line and its answer as it is kept."""
    name = " ".join(case)
    result = answer(case)
    if full is not None:
        (full / f"{re.sub('[^A-Za-z0-9.]+', '_', name)[:150]}-{digest(name)}.json").write_text(
            json.dumps({"case": name, **result}, indent=1)
        )
    return name, frozen(result)


def differences(now: dict[str, Any], then: dict[str, Any]) -> list[str]:
    """What differs between two answers, in words."""
    changes = [
        f"{part} {then[part]} -> {now[part]}"
        for part in ("exit", "structure", "names", "sentences")
        if now[part] != then[part]
    ]
    if len(now["numbers"]) != len(then["numbers"]):
        return [*changes, f"{len(then['numbers'])} -> {len(now['numbers'])} numbers"]
    pairs = [
        (a, b) for a, b in zip(then["numbers"], now["numbers"], strict=True) if not close(a, b)
    ]
    return (
        [*changes, f"{len(pairs)} numbers differ, the first {pairs[0][0]!r} -> {pairs[0][1]!r}"]
        if pairs
        else changes
    )


def main() -> int:
    """Writes the frozen answers, or prints what differs from them and ends with 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("write", "check"))
    parser.add_argument("--full", type=Path, help="a folder for whole answers")
    parser.add_argument(
        "--only", default="", help="only command lines that match this regular expression"
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument(
        "--ignore-sentences", action="store_true", help="compare all but the words of sentences"
    )
    given = parser.parse_args()
    if not DATA.is_dir():
        print(f"freeze: expected the data folder {DATA}, which is not there: nothing was compared")
        return 2
    if given.full:
        given.full.mkdir(parents=True, exist_ok=True)
    chosen = [case for case in cases() if re.search(given.only, " ".join(case))]
    with ProcessPoolExecutor(given.workers) as pool:
        answers = dict(pool.map(run, chosen, [given.full] * len(chosen), chunksize=4))
    if given.action == "write":
        old = (
            json.loads(gzip.decompress(GOLDEN.read_bytes()))
            if given.only and GOLDEN.exists()
            else {}
        )
        GOLDEN.write_bytes(
            gzip.compress(json.dumps(old | answers, sort_keys=True).encode(), mtime=0)
        )
        print(f"froze {len(answers)} answers, {GOLDEN.stat().st_size / 1e6:.2f} MB")
        return 0
    then = json.loads(gzip.decompress(GOLDEN.read_bytes()))
    wrong = {
        name: differences(now, then[name]) if name in then else ["is new"]
        for name, now in answers.items()
    }
    if given.ignore_sentences:
        wrong = {
            name: [line for line in lines if not line.startswith("sentences")]
            for name, lines in wrong.items()
        }
    for name in sorted(name for name, lines in wrong.items() if lines):
        print(f"{name}: {'; '.join(wrong[name])}")
    count = sum(bool(lines) for lines in wrong.values())
    print(f"{count} of {len(answers)} answers differ")
    return int(count > 0)


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("COLUMNS", "100")
    sys.exit(main())
