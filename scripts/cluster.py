"""A Ray cluster of one head and two workers on this machine runs the jobs that have engines: `make
cluster`.

    python scripts/cluster.py [--folder build/cluster] [--kills 20] [--late 60] [--keep]

No dashboard, no usage report, half a gigabyte of object store in all, a token that only these
processes know. The scores are of a model with random weights: the numbers mean nothing, the way is
the real one. A driver waits for a head that starts a minute late; files are compared with those of
processes of this machine byte by byte; then workers are killed at random, drivers are ended and
killed, disks are full, and the processes that are left are counted. With `--keep` the cluster stays
up until Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import random
import secrets
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOST, PORT, SYMBOLS = "127.0.0.1", 6399, "0123456789+=."
MEGABYTES = (150, 175, 175)  # of the object stores of the head and of the workers
PATIENCE = 180  # seconds that one node may take to start, or an end
SHARDS = {f"shard {number}": number for number in range(12)}
COST = 30.0  # seconds that a killed worker may cost


def main() -> None:
    """Start the cluster, run the jobs and the checks, end the cluster."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "build" / "cluster", help="where the jobs write"
    )
    parser.add_argument("--kills", type=int, default=20, help="of workers, at random")
    parser.add_argument("--late", type=float, default=60.0, help="seconds until the head starts")
    parser.add_argument("--keep", action="store_true", help="stay up until Ctrl-C")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no node outlives this process
    asked.folder.mkdir(parents=True, exist_ok=True)
    os.environ |= {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'lab' / 'src'}:{ROOT}",
    }
    os.environ["RAY_ADDRESS"] = f"{HOST}:{PORT}"
    troubles = []
    with (
        tempfile.TemporaryDirectory(prefix="ray-") as home,
        small_disk(Path(home), "256m") as asked.fill,
    ):
        early = started(fleet(asked.folder / "early.csv", "ray"))
        time.sleep(asked.late)
        with cluster(Path(home)):
            say(f"A head and two workers run, the head {asked.late:.0f} s after a driver.")
            troubles += [f"ended with {code}" for code in map(run, jobs(asked.folder)) if code == 2]
            for check in (
                *(late_head, equal_commands, equal_kills, ended, killed),
                *(full_disk, full_disk_of_ray),
            ):
                began = time.perf_counter()
                trouble = check(asked, early)
                troubles += [trouble] if trouble else []
                verdict = f"FAILED: {trouble}" if trouble else "ok"
                say(f"{check.__name__}: {verdict} ({time.perf_counter() - began:.0f} s)")
            if asked.keep:
                say(
                    f"RAY_ADDRESS={HOST}:{PORT} RAY_AUTH_MODE=token "
                    f"RAY_AUTH_TOKEN={os.environ['RAY_AUTH_TOKEN']} until Ctrl-C."
                )
                with suppress(KeyboardInterrupt):
                    time.sleep(1e9)
        still = processes(home)
        say(f"processes of the cluster after its end: {len(still)}")
        troubles += ["processes outlive the cluster"] if still else []
    sys.exit(2 if troubles else 0)


@contextmanager
def cluster(home: Path) -> Iterator[None]:
    """A head without work of its own and two workers of one processor each, ended with this
    block.
    """
    own = [
        [
            "--head",
            "--num-cpus=0",
            f"--port={PORT}",
            f"--node-ip-address={HOST}",
            "--include-dashboard=false",
            f"--temp-dir={home}",
        ],
        *[[f"--address={HOST}:{PORT}", "--num-cpus=1"]] * 2,
    ]
    nodes = []
    try:
        for number, (options, size) in enumerate(zip(own, MEGABYTES, strict=True)):
            log = home / f"node-{number}.txt"
            command = [
                sys.executable,
                "-m",
                "ray.scripts.scripts",
                "start",
                "--block",
                "--disable-usage-stats",
                *options,
            ]
            with log.open("w") as out:
                nodes.append(
                    subprocess.Popen(
                        [*command, f"--object-store-memory={size * 10**6}"], stdout=out, stderr=out
                    )
                )
            await_node(nodes[-1], log)
        yield
    finally:
        for node in reversed(nodes):
            node.terminate()
        for node in nodes:
            with suppress(subprocess.TimeoutExpired):
                node.wait(20)


def await_node(node: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a node runs; one after another, for a slow machine starts no two in time."""
    until = time.monotonic() + PATIENCE
    while "Ray runtime started" not in log.read_text():
        if node.poll() is not None or time.monotonic() > until:
            sys.exit(f"expected a node of Ray to start, got this:\n{log.read_text()[-2000:]}")
        time.sleep(0.2)


def model_of(folder: Path) -> Path:
    """A tiny policy of random weights on the disk."""
    import torch

    from groupwise_lab.trainer.checkpoints import save_policy
    from groupwise_lab.trainer.policy import Policy, policy_size
    from groupwise_lab.trainer.tasks import Vocabulary

    model = folder / "model"
    if not model.exists():
        torch.manual_seed(0)
        policy = Policy(policy_size("tiny"), vocabulary_size=len(SYMBOLS) + 2, context=64)
        save_policy(policy, model, Vocabulary(SYMBOLS))
    return model


def components(folder: Path, place: Path, engine: str) -> list[str]:
    """The command that scores rollouts."""
    of_scores = ["--groups", "16", "--shards", "8", "--sketch-width", "512"]
    command = ["groupwise", "components", run_of_trl(), "--model", str(model_of(folder))]
    engines = ["--engine", engine, "--workers", "2"]
    return [*command, *engines, *of_scores, "-o", str(place), "--force"]


def fleet(place: Path, engine: str) -> list[str]:
    """The command that judges runs."""
    command = ["groupwise", "fleet", run_of_trl(), "--engine", engine, "--workers", "2"]
    return [*command, "-o", str(place), "--force"]


def run_of_trl() -> str:
    """The embedded run."""
    from groupwise import examples

    return str(examples.trl_run())


def jobs(folder: Path) -> Iterator[list[str]]:
    """The commands that are shown."""
    yield components(folder, folder / "components.json", "ray")
    yield fleet(folder / "fleet.csv", "ray")
    sweep = folder / "sweep.yaml"
    sweep.write_text(
        "task: modular_addition\nlevel: 1\nsize: tiny\nsteps: 30\nwarm_up: 0\nsweep: "
        "{learning_rate: [0.001, 0.003]}\n"
    )
    shutil.rmtree(folder / "sweep", ignore_errors=True)
    own = ["groupwise_lab", "sweep", str(sweep), "-o", str(folder / "sweep")]
    yield [*own, "--engine", "ray", "--workers", "2"]


Started = subprocess.Popen[str]


def started(command: list[str]) -> Started:
    """One command that runs beside this one."""
    whole = [sys.executable, "-m", *command]
    return subprocess.Popen(whole, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def run(command: list[str]) -> int:
    """Type one command, and return what it ends with."""
    say(f"\n{' '.join(command).replace('_', '-', 1)}")
    began = time.perf_counter()
    code = subprocess.run([sys.executable, "-m", *command]).returncode
    say(f"ended with {code} after {time.perf_counter() - began:.0f} s")
    return code


def late_head(asked: argparse.Namespace, early: Started) -> str:
    """The driver that began before the head has waited for it."""
    out, _ = early.communicate(timeout=PATIENCE)
    say(out.splitlines()[0])
    waited = f"groupwise: waiting for {HOST}:{PORT}"
    if early.returncode == 2 or waited not in out:
        return out.strip()[-300:]
    same = (asked.folder / "early.csv").read_bytes() == (asked.folder / "fleet.csv").read_bytes()
    return "" if same else "fleet differs after a late head"


def equal_commands(asked: argparse.Namespace, _: Started) -> str:
    """Files by Ray have the bytes that processes of this machine give."""
    place = asked.folder / "local"
    place.mkdir(exist_ok=True)
    for command in (
        components(asked.folder, place / "components.json", "local"),
        fleet(place / "fleet.csv", "local"),
    ):
        if run(command) == 2:
            return f"{command[1]} by processes failed"
    differ = [
        file.name
        for file in sorted(place.iterdir())
        if file.read_bytes() != (asked.folder / file.name).read_bytes()
    ]
    return f"{', '.join(differ)} differ" if differ else left()


def equal_kills(asked: argparse.Namespace, _: Started) -> str:
    """A worker killed at a random moment changes no digit, and half of them cost less than half a
    minute: a single cost is also that of what else this machine does.
    """
    from tests.engine import work

    from groupwise.engine.engine import Engine

    expected = [outcome.value for outcome in Engine().map(work.slow_third, SHARDS)]
    began = time.monotonic()
    plain = [outcome.value for outcome in Engine("ray", 2).map(work.slow_third, SHARDS)]
    usual = time.monotonic() - began
    if plain != expected:
        return "results differ without a kill"
    random.seed(3)
    costs, again = [], 0
    for _kill in range(asked.kills):
        began = time.monotonic()
        killer = threading.Timer(random.uniform(0, usual), kill_one)
        killer.start()
        outcomes = Engine("ray", 2).map(work.slow_third, SHARDS)
        killer.join()
        costs.append(time.monotonic() - began - usual)
        again += sum(outcome.tries - 1 for outcome in outcomes)
        if [outcome.value for outcome in outcomes] != expected:
            return f"results differ after a kill: {[outcome.sentence for outcome in outcomes]}"
    say(
        f"{asked.kills} kills, {again} shards begun again, {usual:.1f} s without one; cost of each:"
    )
    say(" ".join(f"{cost:.1f}" for cost in costs))
    middle = statistics.median(costs) if costs else 0.0
    return f"a kill cost {middle:.0f} s" if middle > COST else left()


DRIVER = """
from tests.engine import work
from groupwise.engine.engine import Engine
Engine("ray", 2).map(work.slowly, {"one": 600.0, "two": 600.0})
"""


def started_driver() -> subprocess.Popen[bytes]:
    """A driver whose two workers are at work."""
    driver = subprocess.Popen([sys.executable, "-c", DRIVER])
    within(PATIENCE, lambda: len(processes("ray::Work.answer")) == 2)
    return driver


def ended(_: argparse.Namespace, __: Started) -> str:
    """A driver that SIGTERM ends leaves no worker."""
    driver = started_driver()
    driver.terminate()
    driver.wait(PATIENCE)
    return left()


def killed(_: argparse.Namespace, __: Started) -> str:
    """A driver that is killed leaves no worker."""
    driver = started_driver()
    driver.kill()
    driver.wait()
    return left()


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[Callable[[], Path] | None]:
    """A disk of a few bytes mounted at a place, and what fills it with one file; None without
    root.
    """
    if os.geteuid():
        yield None
        return
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(place)], check=True)

    def fill() -> Path:
        with suppress(OSError), (place / "filler").open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        return place / "filler"

    try:
        yield fill
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def full_disk(asked: argparse.Namespace, _: Started) -> str:
    """A driver whose disk is full ends with one sentence and leaves no worker; needs root."""
    place = asked.folder / "full"
    place.mkdir(exist_ok=True)
    with small_disk(place, "16k") as fill:
        return without_room(fleet(place / "fleet.csv", "ray"), fill)


def full_disk_of_ray(asked: argparse.Namespace, _: Started) -> str:
    """Where the disk of Ray's own folder is full the driver ends with one sentence that names it,
    and leaves no worker; the next one goes on once there is room.
    """
    place = asked.folder / "after.csv"
    if trouble := without_room(fleet(place, "ray"), asked.fill):
        return trouble
    if place.exists():
        return f"{place} is half a file"
    run(fleet(place, "ray"))
    same = place.read_bytes() == (asked.folder / "fleet.csv").read_bytes()
    return "" if same else "fleet differs after a full disk"


def without_room(command: list[str], fill: Callable[[], Path] | None) -> str:
    """What is wrong with a driver that finds no room, "" for nothing."""
    if fill is None:
        say("a small disk needs root")
        return ""
    filler = fill()
    driver = started(command)
    out, _ = driver.communicate(timeout=PATIENCE)
    filler.unlink()
    own = [line for line in out.splitlines() if line.startswith("groupwise:")]
    say("\n".join(own))
    good = driver.returncode == 2 and len(own) == 1 and "space" in own[0]
    return left() if good else f"ended with {driver.returncode}: {out.strip()[-300:]}"


def kill_one() -> None:
    """Kill a worker, as soon as there is one."""
    within(COST, lambda: bool(processes("ray::Work")))
    present = processes("ray::Work")
    if present:
        with suppress(ProcessLookupError):
            os.kill(random.choice(present), signal.SIGKILL)


def processes(words: str) -> list[int]:
    """The processes with these words in their command."""
    processes = subprocess.run(
        ["pgrep", "--full", words], capture_output=True, text=True, check=False
    )
    return [int(number) for number in processes.stdout.split()]


def left() -> str:
    """What still works though no driver runs, "" for nothing."""
    gone = within(PATIENCE, lambda: not processes("ray::Work"))
    return "" if gone else f"{len(processes('ray::Work'))} workers left"


def within(seconds: float, is_so: Callable[[], bool]) -> bool:
    """Whether something becomes so in time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if is_so():
            return True
        time.sleep(0.2)
    return False


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "src"), str(ROOT / "lab" / "src")]
    main()
