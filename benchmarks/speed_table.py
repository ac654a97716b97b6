"""The table of lab/docs/studies/speed.md: what groupwise takes of a processor, beside a peer or the
limit of the task, with one thread and two.

    python benchmarks/speed_table.py [--turns 5] [--only WORD]

Each line comes from a process of its own that sets the threads of BLAS, torch and Polars. Both
sides take turns in it, and processor seconds count, of children too, so that others on the machine
count for less; a ratio is that of a turn. Peers that are not installed are left out: `numba`,
`tensorboard`, and TRL as in test_trainer_speed.py. It asserts nothing.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")
KINDS = (
    "steady",
    "to_the_top",
    "one_function_zero",
    "curriculum",
    "slow_learner",
    "isolated_spikes",
)
BARE = "import numpy, scipy.special, polars"
SHORTEST = 0.05  # seconds of a measurement: what is shorter is done again and again
Job = Callable[[], object]


class Took(float):
    """What a job says that it took itself."""


def judging(rows: int) -> Job:
    """Judge six healthy kinds of runs without rollouts; what one takes."""
    from dataclasses import replace

    from groupwise.diagnostics.judge import judge
    from groupwise_lab.worlds.logs import run_of

    records = [replace(run_of(kind, 9_000_000, rows=rows)[0], rollouts=None) for kind in KINDS]
    return lambda: Took(sum(seconds(partial(judge, record)) for record in records) / len(records))


def judging_one(home: Path, rows: int) -> Job:
    from benchmarks.report_time import write_log

    from groupwise.diagnostics.judge import judge
    from groupwise.readers import run_record

    return partial(judge, run_record(write_log(home, rows)))


def cold(home: Path) -> tuple[Job, Job]:
    from groupwise_lab.worlds.logs import run_of

    log = run_of("steady", 3, rows=160)[0].save(home / "run")
    commands = (
        [sys.executable, "-m", "groupwise", "diagnose", str(log)],
        [sys.executable, "-c", BARE],
    )
    ours, bare = (
        partial(subprocess.run, command, stdout=subprocess.DEVNULL, check=False)
        for command in commands
    )
    ours()  # writes bytecode
    return ours, bare


def reporting(home: Path, rows: int) -> Job:
    from benchmarks.report_time import write_log

    from groupwise.analysis.summary import summarise
    from groupwise.pages.html import render
    from groupwise.readers import run_record

    log = write_log(home, rows)
    settings = {"group_size": "8", "prompts_per_step": "8"}
    return lambda: render([summarise(run_record(log, settings=settings))])


def fitting() -> tuple[Job, Job]:
    from benchmarks.test_fit_speed import by_lmfit, series

    from groupwise.forecasting.fit import fit

    time, value = series(500)
    return lambda: fit(time, value, law="oscillator", smoothing=1), lambda: by_lmfit(time, value)


def reading(home: Path, kind: str) -> tuple[Job, Job]:
    import polars as pl
    from benchmarks import test_reader_speed as readers

    from groupwise.readers import run_record

    made: dict[str, Callable[[], tuple[Path, Callable[[Path], object]]]] = {
        "dump": lambda: (readers.dump(home / "1.jsonl", 200), pl.read_ndjson),
        "state": lambda: (
            readers.state(home / "trainer_state.json", 100_000),
            readers.by_json_and_polars,
        ),
        "lines": lambda: (readers.lines(home / "run.jsonl", 200_000), pl.read_ndjson),
        "events": lambda: (
            readers.events(home / "events.out.tfevents.1.host", 48_000),
            readers.by_tensorboard,
        ),
    }
    path, peer = made[kind]()
    return partial(run_record, path), partial(peer, path)


def live(home: Path) -> tuple[Job, Job]:
    import polars as pl
    from benchmarks.test_live_speed import written

    from groupwise.pages.live_hub import Hub, followers_of
    from groupwise.readers.follow import Follower

    paths = written(home)

    def first() -> None:
        hub = Hub(followers_of(paths, Follower), pool=None)
        for index in range(len(paths)):
            hub.update(index)

    return first, lambda: [pl.read_ndjson(path) for path in paths]


def components_of_gram() -> tuple[Job, Job]:
    from benchmarks.test_component_speed import gram_batch

    from groupwise.estimators.components import components

    gram, vector, reward, prompt = gram_batch()
    return lambda: components(reward, prompt, gram_NN=gram), lambda: gram @ vector


def gram_of_scores() -> tuple[Job, Job]:
    import torch
    from benchmarks import test_score_speed as scores

    from groupwise.gradients.scores import score_gram

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    policy, given = scores.model(), scores.batch()
    return lambda: score_gram(policy, given), lambda: scores.one_batch(policy, given)


def point_of_the_law() -> tuple[Job, Job]:
    from benchmarks.test_chi_square_speed import FAR, WEIGHT, imhof

    from groupwise_lab.theory.chi_square_mixture import ChiSquareMixture

    law = ChiSquareMixture(WEIGHT.astype(float))
    return lambda: law.sf(FAR), lambda: imhof(WEIGHT, FAR)


def bandits() -> tuple[Job, Job | None]:
    from lab.benchmarks import test_bandit_speed as bandit

    if not importlib.util.find_spec("numba"):
        return bandit.our_value, None
    numba = importlib.import_module("numba")

    numba.set_num_threads(min(int(os.environ["OMP_NUM_THREADS"]), numba.config.NUMBA_NUM_THREADS))
    loop = bandit.numba_loop(numba)
    loop(10, 1)
    return bandit.our_value, lambda: loop(bandit.REPLICATES, bandit.STEPS)


def training(home: Path) -> tuple[Job, Job | None]:
    from lab.benchmarks import test_trainer_speed as trainer

    world = trainer.made(home)
    return lambda: Took(trainer.ours(world, "ours")), (
        lambda: Took(trainer.theirs(world))
    ) if trainer.TRL.exists() else None


TASKS: dict[str, tuple[str, Callable[[Path], tuple[Job, Job | None]]]] = {
    "judgement, 150 rows": ("", lambda home: (judging(150), None)),
    "judgement, 10,000 rows": ("", lambda home: (judging(10_000), None)),
    "judgement, 160,000 rows": ("", lambda home: (judging_one(home, 160_000), None)),
    "`diagnose`, cold, 160 rows": ("the imports of NumPy, scipy.special, Polars", cold),
    "report, 10,000 rows, the second of a process": (
        "",
        lambda home: (reporting(home, 10_000), None),
    ),
    "oscillator with intervals, 500 rows": ("lmfit", lambda home: fitting()),
    "verl's dump, 200 MB": ("`polars.read_ndjson`", lambda home: reading(home, "dump")),
    "JSON lines of 24 numbers, 154 MB": (
        "`polars.read_ndjson`",
        lambda home: reading(home, "lines"),
    ),
    "trainer_state.json, 100,000 steps": ("`json` and Polars", lambda home: reading(home, "state")),
    "event file, 48,000 scalars": ("TensorBoard", lambda home: reading(home, "events")),
    "live page, first reading of 20 x 10,000 rows": ("`polars.read_ndjson`", live),
    "components, Gram matrix of 4,096 rollouts": (
        "one product with it",
        lambda home: components_of_gram(),
    ),
    "scores' Gram matrix, 64 x 24 tokens": ("forward and backward", lambda home: gram_of_scores()),
    "law of the final gap, 100 weights, one point": (
        "Imhof's integral",
        lambda home: point_of_the_law(),
    ),
    "bandit, 10,000 runs of 1,000 updates": ("Numba, single precision", lambda home: bandits()),
    "update of 512 rollouts, 0.1 M parameters": ("TRL", training),
}


def clock() -> float:
    """Processor seconds of this process and of its children that ended."""
    return sum(
        use.ru_utime + use.ru_stime
        for use in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def seconds(job: Job, times: int = 1) -> float:
    """What a job takes, or says that it took."""
    began, said = clock(), None
    for _ in range(times):
        said = job()
    return said if isinstance(said, Took) else (clock() - began) / times


def measure(name: str, turns: int) -> None:
    """Print what both sides took, turn by turn, as JSON; the first turn does not count."""
    sys.path += [str(ROOT / "lab" / "experiments"), str(ROOT)]
    with tempfile.TemporaryDirectory() as home:
        jobs = [job for job in TASKS[name][1](Path(home)) if job is not None]
        repeats = [max(1, round(SHORTEST / max(seconds(job), 1e-5))) for job in jobs]
        taken = [
            [seconds(job, times) for job, times in zip(jobs, repeats, strict=True)]
            for _ in range(turns)
        ]
    print("MEASURED", json.dumps(taken))


def of(values: Sequence[float]) -> str:
    """Minimum, median and maximum, with two digits."""
    return " ".join(
        f"{value:#.2g}".rstrip(".")
        for value in (min(values), statistics.median(values), max(values))
    )


def cells(name: str, threads: int, turns: int) -> tuple[str, str]:
    """Seconds, and times as long as the peer or limit takes."""
    environment = {**os.environ, **dict.fromkeys(THREADS, str(threads))}
    command = [sys.executable, __file__, "--measure", name, "--turns", str(turns)]
    out = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    measurement = next(
        (line for line in out.stdout.splitlines() if line.startswith("MEASURED")), None
    )
    if measurement is None:
        print(out.stderr[-500:], file=sys.stderr)
        return "not measured", ""
    taken = json.loads(measurement.split(maxsplit=1)[1])
    return of([turn[0] for turn in taken]), of([turn[0] / turn[1] for turn in taken]) if len(
        taken[0]
    ) > 1 else ""


def machine() -> str:
    """The processor and its number of cores, and who else is on it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    fields = dict(
        part.split(":", 1) for part in (line.replace("\t", "") for line in lines) if ":" in part
    )
    name = (
        f"{fields['model name'].strip()}, family {fields['cpu family'].strip()}, model "
        f"{fields['model'].strip()}"
    )
    return f"{name}, {os.cpu_count()} cores; load {os.getloadavg()[0]:.1f} at the start"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--only", default="", help="a word of the tasks to measure")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        measure(given.measure, given.turns)
        return
    print(
        (
            f"{machine()}\n\n| task | one thread, s | two threads, s | beside | one thread, its "
            "time | two threads, its time |\n|"
        )
        + "---|" * 6
    )
    for name, (beside, _) in TASKS.items():
        if given.only in name:
            single, two = (cells(name, threads, given.turns) for threads in (1, 2))
            print(
                f"| {name} | {single[0]} | {two[0]} | {beside if single[1] else '-'} | {single[1]} | "
                f"{two[1]} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
