"""Speed and memory of the readers: verl's dumps beside pandas, consoles by their size, and three
formats beside their usual readers.

`python benchmarks/test_reader_speed.py --turns 5` prints how many times the speed of its usual
reader each format is read with (minimum, median, maximum of the ratio within a turn) and how many
times the time of its limit that takes, the least that does the same work: a dump of verl's beside
`polars.read_ndjson`, its limit `json` line by line and a Polars frame, since each row is looked at;
a trainer_state.json beside `json` and a Polars frame, which is its limit too; an event file beside
TensorBoard where it is installed; and JSON lines beside `polars.read_ndjson` of the whole file,
their limit the same in blocks of 4 MB, each quotation mark accounted for.

`python benchmarks/test_reader_speed.py [MEGABYTES]` prints the table, each line from a process of
its own; consoles are a tenth of that. pandas is given at most 200 MB, for it takes ten times a
file's size in memory, and its time is scaled up.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import polars as pl
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from groupwise.readers import run_record

PANDAS_MEGABYTES = 200


def dump(path: Path, megabytes: float) -> Path:
    """A dump of verl's: 8 rollouts of 32 prompts a step, texts of some thousand characters, with
    line feeds, quotes and a few non-ASCII.
    """
    draw = random.Random(1)
    words = [
        "so",
        "we",
        "add",
        "12\n",
        'the "sum"',
        "x²",
        "equals",
        "\\frac{1}{2}",
        "and",
        "therefore",
        "=",
        "42",
    ]
    text = " ".join(draw.choice(words) for _ in range(40_000))
    size = step = 0
    with path.open("w", encoding="utf-8") as file:
        while size < megabytes * 1e6:
            step += 1
            for prompt in range(32):
                for rollout in range(8):
                    at = draw.randrange(len(text) - 6000)
                    row = {
                        "input": f"user\n{step} {prompt} {text[97 * prompt : 97 * prompt + 400]}",
                        "gts": "42",
                        "step": step,
                        "output": text[at : at + 1000 + draw.randrange(5000)],
                        "score": float(draw.random() < 0.5),
                        "uid": f"{step:08x}-{prompt}_{rollout}_0",
                    }
                    size += file.write(json.dumps(row, ensure_ascii=False) + "\n")
    return path


def console(path: Path, megabytes: float, kind: str) -> Path:
    """A console of verl's or of TRL's: rows of some 70 keys, or 30 between progress bars."""
    size = step = 0
    with path.open("w", encoding="utf-8") as file:
        while size < megabytes * 1e6:
            step += 1
            if kind == "verl":
                cells = " - ".join(
                    f"part{number % 7}/metric_{number}/mean:{step / (number + 1)!r}"
                    for number in range(70)
                )
                size += file.write(
                    f"\x1b[36m(TaskRunner pid=1)\x1b[0m step:{step} - "
                    f"critic/score/mean:np.float64({step % 7 / 7!r}) - {cells}\n"
                )
            else:
                row = {
                    "loss": 0.1,
                    "reward": step % 7 / 7,
                    "reward_std": 0.3,
                    "completions/mean_length": 9.0,
                }
                row |= {f"rewards/f{number}/mean": step / (number + 1) for number in range(26)}
                size += file.write(f"\r {step % 100}%|## | {step}/999999 [00:01<00:09]\r{row}\n")
    return path


WORK = {
    "verl dump, groupwise": "from groupwise.readers import run_record; assert run_record(PATH).rollouts is not None",
    "verl dump, pandas": "import pandas; assert len(pandas.read_json(PATH, lines=True))",
    "verl console, groupwise": "from groupwise.readers import run_record; assert len(run_record(PATH).steps)",
    "TRL console, groupwise": "from groupwise.readers import run_record; assert len(run_record(PATH).steps)",
}


def measured(name: str, path: Path) -> tuple[float, float]:
    """Processor seconds and peak memory in MB of one reading in a process of its own, imports
    included.
    """
    code = f"PATH = {str(path)!r}\n{WORK[name]}\n"
    code += (
        "import resource; use = resource.getrusage(resource.RUSAGE_SELF); print(use.ru_utime + "
        "use.ru_stime, use.ru_maxrss / 1e3)"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    return float(out[0]), float(out[1])


def main(megabytes: float) -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as home:
        print(
            "| what | MB | processor seconds | peak MB |\n|---|---|---|---|  (Python "
            f"{sys.version.split()[0]})"
        )
        seconds: dict[str, float] = {}
        for name in WORK:
            size = (
                min(megabytes, PANDAS_MEGABYTES)
                if "pandas" in name
                else megabytes
                if "dump" in name
                else megabytes / 10
            )
            path = Path(home, re.sub(r"\W+", "_", name) + (".jsonl" if "dump" in name else ".log"))
            if "dump" in name:
                dump(path, size)
            else:
                console(path, size, name.split()[0])
            seconds[name], peak = measured(name, path)
            seconds[name] *= megabytes / size if "pandas" in name else 1.0
            scaled = f" (of {size:.0f} MB, scaled)" if "pandas" in name and size < megabytes else ""
            print(
                f"| {name} | {path.stat().st_size / 1e6:.0f} | {seconds[name]:.1f}{scaled} | "
                f"{peak:.0f} |",
                flush=True,
            )
            path.unlink()
        print(
            f"pandas takes {seconds['verl dump, pandas'] / seconds['verl dump, groupwise']:.1f} "
            "times as long"
        )


def state(path: Path, rows: int) -> Path:
    """A trainer_state.json of so many rows with 24 keys."""
    draw = random.Random(2)
    keys = [
        "loss",
        "reward",
        "reward_std",
        "learning_rate",
        *(f"rewards/f{number}/mean" for number in range(19)),
    ]
    history = [
        dict.fromkeys(keys, 0.0) | {key: draw.random() for key in keys} | {"step": step}
        for step in range(1, rows + 1)
    ]
    path.write_text(
        json.dumps(
            {"global_step": rows, "log_history": history, "logging_steps": 1, "max_steps": rows},
            indent=2,
        )
    )
    return path


def events(path: Path, scalars: int) -> Path:
    """An event file with 24 tags a step."""
    sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "readers"))
    write = importlib.import_module("writers").event_file
    draw = random.Random(3)
    tags = ["train/reward", *(f"train/metric_{number}/mean" for number in range(23))]
    return Path(
        write(
            path,
            [
                {"step": step} | {tag: draw.random() for tag in tags}
                for step in range(1, scalars // 24 + 1)
            ],
        )
    )


def lines(path: Path, rows: int) -> Path:
    """JSON lines of 24 numbers."""
    draw = random.Random(4)
    keys = ["reward", *(f"metric_{number}" for number in range(22))]
    path.write_text(
        "".join(
            json.dumps({"step": step} | {key: draw.random() for key in keys}) + "\n"
            for step in range(1, rows + 1)
        )
    )
    return path


def by_json_and_polars(path: Path) -> Any:
    """The usual way to a frame of a trainer's state."""
    return pl.DataFrame(json.loads(path.read_text())["log_history"], infer_schema_length=None)


def by_json_lines(path: Path) -> Any:
    """A dump line by line: what reading it costs at least where each row is looked at."""
    columns: dict[str, list[Any]] = {}
    with path.open(encoding="utf-8") as file:
        for line in file:
            for key, value in json.loads(line).items():
                columns.setdefault(key, []).append(value)
    return pl.DataFrame(columns)


def by_checked_blocks(path: Path) -> Any:
    """JSON lines of numbers in bounded memory, where nothing may be dropped unseen."""
    schema, tables, rest = None, [], b""
    with path.open("rb") as file:
        while piece := file.read(1 << 22):
            block, _, rest = (rest + piece).rpartition(b"\n")
            schema = schema or dict.fromkeys(json.loads(block.partition(b"\n")[0]), pl.Float64)
            table = pl.read_ndjson(block, schema=schema)
            assert block.count(b'"') == 2 * sum(column.count() for column in table)
            tables.append(table)
    return [column.to_numpy() for column in pl.concat(tables)]


def by_tensorboard(path: Path) -> Any:
    """TensorBoard's own reader, every scalar kept."""
    reader = importlib.import_module(
        "tensorboard.backend.event_processing.event_accumulator"
    ).EventAccumulator
    return reader(str(path), size_guidance={"scalars": 0}).Reload()


def taken(read: Callable[[Path], Any], path: Path) -> float:
    """Processor seconds of one reading."""
    began = time.process_time()
    read(path)
    return time.process_time() - began


def beside_their_usual_readers(turns: int) -> None:
    """Print the ratios."""
    with tempfile.TemporaryDirectory() as home:
        formats: list[tuple[str, Path, Callable[[Path], Any], Callable[[Path], Any]]] = [
            (
                "verl's dump, polars",
                dump(Path(home, "1.jsonl"), 200),
                pl.read_ndjson,
                by_json_lines,
            ),
            (
                "trainer_state.json, json and polars",
                state(Path(home, "trainer_state.json"), 60_000),
                by_json_and_polars,
                by_json_and_polars,
            ),
            (
                "JSON lines, polars",
                lines(Path(home, "run.jsonl"), 200_000),
                pl.read_ndjson,
                by_checked_blocks,
            ),
        ]
        if importlib.util.find_spec("tensorboard"):
            formats.append(
                (
                    "event file, tensorboard",
                    events(Path(home, "events.out.tfevents.1.host"), 48_000),
                    by_tensorboard,
                    Path.read_bytes,
                )
            )
        print(
            "| format, its usual reader | MB | times its speed | times the time of its limit |\n"
            "|---|---|---|---|"
        )
        for name, path, peer, least_work in formats:
            measured = [
                [taken(read, path) for read in (run_record, peer, least_work)]
                for _ in range(turns + 1)
            ][1:]
            speed, limit = ([turn[a] / turn[b] for turn in measured] for a, b in ((1, 0), (0, 2)))
            least, most = (
                [form(f(number)) for f in (min, statistics.median, max)]
                for number, form in ((speed, "{:.2f}".format), (limit, "{:.2f}".format))
            )
            print(
                f"| {name} | {path.stat().st_size / 1e6:.0f} | {' '.join(least)} | "
                f"{' '.join(most)} |",
                flush=True,
            )


@pytest.mark.benchmark(group="20 MB of verl's dumps")
def test_groupwise(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    path = dump(tmp_path / "1.jsonl", 20)
    record = benchmark.pedantic(lambda: run_record(path), rounds=2)  # type: ignore[no-untyped-call]
    assert record.config.value("group_size") == 8


@pytest.mark.benchmark(group="20 MB of verl's dumps")
def test_pandas(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    """The peer: the same file as a frame, without groups, steps or meanings."""
    pandas = pytest.importorskip("pandas")
    path = dump(tmp_path / "1.jsonl", 20)
    assert len(benchmark.pedantic(lambda: pandas.read_json(path, lines=True), rounds=2))  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("kind", ["verl", "TRL"])
def test_ten_megabytes_of_console_in_a_second(tmp_path: Path, kind: str) -> None:
    path = console(tmp_path / "x.log", 10, kind)
    began = time.process_time()
    assert len(run_record(path).steps) > 1000
    assert time.process_time() - began < 1.0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--turns"]:
        beside_their_usual_readers(int(sys.argv[2]))
    else:
        main(float(sys.argv[1]) if len(sys.argv) > 1 else 100.0)
