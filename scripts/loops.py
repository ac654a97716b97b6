"""Trainers and trackers, each in an environment of its own, run or log; what groupwise reads is
compared with what they computed: `make loops`.

    python scripts/loops.py [--only NAME ...] [--again]

`loops.tsv` says what is installed and how it is run: `loop` is the trainer's own loop on a tiny
model, `logger` its own logger driven with numbers of ours, `source` lines made after its source's
formats. A driver leaves its files and `truth.json` in a folder; `loops_results.tsv` has what was
equal, and `docs/reference/trainers.md` is made from it. Environments stand on top of the one that
runs this script and stay in build/loops; what has not changed is not run again, and the results of
what was not run here stay as they were, with their dates. What could not be run, or not installed,
says so behind the date of its last run (its output.txt says why), and the exit code is 1 until it
runs again.
"""

from __future__ import annotations

import argparse
import csv
import datetime as dt
import hashlib
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise.errors import GroupwiseError
from groupwise.files import table_rows
from groupwise.prompts import Prompt, prompt_of, prompt_text
from groupwise.readers import run_record
from groupwise.record.run import RunRecord
from groupwise.series.staleness import UnknownSettingError, lag_of

ROOT = Path(__file__).resolve().parent.parent
HOME, DRIVERS = ROOT / "build" / "loops", ROOT / "scripts" / "loop_drivers"
TABLE, RESULTS = ROOT / "scripts" / "loops.tsv", ROOT / "scripts" / "loops_results.tsv"
KEYS, FACTS = ("name", "system", "version", "how", "log"), ("equal", "unknown", "different")
COLUMNS = (*KEYS, *FACTS, "trouble", "date")
PATIENCE = 3600  # seconds that a driver may take
NOT_INSTALLED, NOT_RUN = "could not be installed", "could not be run"
CLOSE = 1e-6  # beside half a unit of the last digit that a log prints
Row = Mapping[str, str]


def main() -> None:
    """Run what has changed, and write the table of all results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    rows = list(table_rows(TABLE))
    names = [row["name"] for row in rows]
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help="of loops.tsv")
    parser.add_argument("--again", action="store_true", help="also what has not changed")
    options = parser.parse_args()
    troubles: dict[str, str] = {}
    for row in rows:
        stamp = HOME / row["name"] / "done"
        if (options.only and row["name"] not in options.only) or (
            not options.again and stamp.exists() and stamp.read_text() == fingerprint(row)
        ):
            continue
        print(f"{row['name']}: ", end="", flush=True)
        stamp.unlink(missing_ok=True)
        troubles[row["name"]] = ran(row, HOME / row["name"]) if prepared(row) else NOT_INSTALLED
        print(troubles[row["name"]] or "ran", flush=True)
    results = list(collected(rows, troubles))
    with RESULTS.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, delimiter="\t", lineterminator="\n")
        table.writeheader()
        table.writerows(results)
    different = sum(bool(result["different"]) for result in results)
    missing = [
        len({result["name"] for result in results if result["trouble"].startswith(how)})
        for how in (NOT_INSTALLED, NOT_RUN)
    ]
    logs = sum(bool(result["log"]) for result in results)
    print(
        f"{logs} logs, {different} with something different; of {len(rows)} programs "
        f"{missing[0]} could not be installed and {missing[1]} not be run: {RESULTS.name}"
    )
    sys.exit(bool(different or any(missing)))


def collected(rows: Sequence[Row], troubles: Mapping[str, str]) -> Iterator[Row]:
    """The results of what stands in the folders, unless it ran elsewhere since, and the last ones
    of what does not; what did not run now keeps those, with its trouble and today's date.
    """
    before = list(table_rows(RESULTS))
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    for row in rows:
        trouble = troubles.get(row["name"], "")
        now = {"trouble": f"{trouble}, {today}"} if trouble else {}
        last = [old | now for old in before if old["name"] == row["name"]]
        if not trouble and (HOME / row["name"] / "done").exists():
            here = list(compared(row, HOME / row["name"] / "run"))
            newest = max((result["date"] for result in (*here, *last)), default="")
            if any(result["date"] == newest for result in here):
                yield from here
                continue
        never = {name: row.get(name, "") for name in COLUMNS} | now
        yield from last or ([never] if now else [])


def fingerprint(row: Row) -> str:
    """What a result depends on: the row, its driver and those that it imports."""
    driver = DRIVERS / shlex.split(row["driver"])[0]
    parts = [json.dumps(dict(row)), driver.read_text(encoding="utf-8")]
    for path in sorted(DRIVERS.glob("*.py")):
        if re.search(rf"^(?:from|import) {path.stem}\b", parts[1], re.MULTILINE):
            parts.append(path.read_text(encoding="utf-8"))
    return hashlib.sha256("".join(parts).encode()).hexdigest()


def python_of(row: Row) -> Path:
    """The interpreter of a row's environment; rows that name one environment share it."""
    return HOME / "env" / row["environment"] / "bin" / "python"


def prepared(row: Row) -> bool:
    """Whether the environment stands: made once, on top of the packages of this interpreter."""
    python = python_of(row)
    home = python.parent.parent
    stamp = home / "installed"
    if stamp.exists() and stamp.read_text() == row["packages"]:
        return True
    home.parent.mkdir(parents=True, exist_ok=True)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    inner = next((home / "lib").glob("python3*")) / "site-packages"
    (inner / "base.pth").write_text(sysconfig.get_path("purelib") + "\n")
    for packages in filter(None, row["packages"].split("; ")):
        command = [str(python), "-m", "pip", "install", "--quiet", *shlex.split(packages)]
        if subprocess.run(command, check=False, **quiet).returncode:  # type: ignore[call-overload]
            return False
    stamp.write_text(row["packages"])
    return True


def ran(row: Row, folder: Path) -> str:
    """Run a driver in its environment, and leave a stamp; what went wrong, "" for nothing."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "run").mkdir(parents=True)
    driver, *arguments = shlex.split(row["driver"])
    command = [str(python_of(row)), str(DRIVERS / driver), str(folder / "run"), *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    with (folder / "output.txt").open("w") as out:
        try:
            done = subprocess.run(
                command,
                stdout=out,
                stderr=out,
                env=environment,
                cwd=folder,
                timeout=PATIENCE,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"{NOT_RUN} (longer than {PATIENCE} s)"
    if done.returncode:
        return f"{NOT_RUN} (exit code {done.returncode})"
    if not (folder / "run" / "truth.json").exists():
        return f"{NOT_RUN} (it left no truth.json)"
    (folder / "done").write_text(fingerprint(row))
    return ""


def compared(row: Row, folder: Path) -> Iterator[dict[str, str]]:
    """The result of each log that a driver left."""
    truth = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
    written = (folder / "truth.json").stat().st_mtime
    for what, log in truth["logs"].items():
        own = log if isinstance(log, dict) else {"place": log}
        try:
            right, unknown, wrong = facts(run_record(folder / own["place"]), truth | own)
        except GroupwiseError as error:
            right, unknown, wrong = [], [], [str(error).replace(str(folder), "")]
        yield {
            "name": row["name"],
            "system": row["system"],
            "version": truth["version"],
            "how": row["how"],
            "log": what,
            "equal": ", ".join(right),
            "unknown": ", ".join(unknown),
            "different": "; ".join(wrong),
            "trouble": "",
            "date": dt.datetime.fromtimestamp(written, tz=dt.UTC).date().isoformat(),
        }


def facts(record: RunRecord, truth: Mapping[str, Any]) -> tuple[list[str], list[str], list[str]]:
    """The facts that are as the program has them, those that the log does not tell, and those that
    differ with both values.
    """
    right: list[str] = []
    unknown: list[str] = []
    wrong: list[str] = []

    def held(name: str, wanted: Any, came: Any, *, is_same: bool) -> None:
        if is_same:
            right.append(name)
        else:
            wrong.append(f"{name}: {came} for {wanted}")

    held("rows", truth["rows"], len(record.steps), is_same=len(record.steps) == truth["rows"])
    for name, wanted in truth["quantities"].items():
        try:
            column = record.column(name)
        except GroupwiseError:
            wrong.append(f"{name}: not read")
            continue
        meaning = record.meaning(column)
        came = record.steps[column].to_list()
        different = unlike(wanted, came, meaning.resolution if meaning else 0.0)
        some = [(wanted[at], came[at]) for at in different[:2] if at < min(len(wanted), len(came))]
        held(name, [pair[0] for pair in some], [pair[1] for pair in some], is_same=not different)
    for name, wanted in truth.get("settings", {}).items():
        came = record.config.value(name)
        if came is None:
            unknown.append(name)
        else:
            held(name, wanted, came, is_same=came == wanted)
    if truth.get("completions"):
        texts = [] if record.rollouts is None else record.rollouts["completion"].to_list()
        if any(texts):
            sampled, came = (sorted(map(canonical, part)) for part in (truth["completions"], texts))
            held("completions", len(sampled), len(came), is_same=sampled == came)
        else:
            unknown.append("completions")
    if "lag" in truth:
        try:
            lag = lag_of(record)
            came_lag = [lag.kind, lag.refresh_interval]
            held("lag", truth["lag"], came_lag, is_same=came_lag == truth["lag"])
        except UnknownSettingError:
            unknown.append("lag")
    return right, unknown, wrong


def canonical(completion: Prompt) -> str:
    """A text, or a chat as a text, whatever the order of its keys."""
    return json.dumps(prompt_of(prompt_text(completion)), sort_keys=True)


def unlike(
    wanted: Sequence[float | None], came: Sequence[float | None], resolution: float
) -> list[int]:
    """The places at which two columns differ; where the program has no number, any may stand."""
    if len(wanted) != len(came):
        return list(range(max(len(wanted), len(came))))
    return [
        place
        for place, (number, read) in enumerate(zip(wanted, came, strict=True))
        if number is not None
        and not math.isclose(
            number, math.inf if read is None else read, rel_tol=CLOSE, abs_tol=1.01 * resolution
        )
    ]


if __name__ == "__main__":
    main()
