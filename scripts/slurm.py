"""A real SLURM of one node on this machine, from the system's packages, runs the jobs that have
engines: `make slurm`.

    python scripts/slurm.py [--folder build/slurm] [--kills 20]

It has no accounting, as small clusters have none: nobody says that a job has ended. Results are
compared with those of processes of this machine bit by bit; then workers are killed at random,
drivers are ended and killed, and what is left is counted. Needs slurmctld, slurmd, slurm-client
and munge (Debian: apt-get install slurmctld slurmd slurm-client munge) and root, as slurmd does.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel")
SHARDS = {f"shard {number}": number for number in range(12)}
LATE = 30.0  # seconds that a killed worker may cost
PATIENCE = 60.0  # seconds that the cluster, or an end, may take
CONFIGURATION = """ClusterName=groupwise
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={home}/munge.socket
CredType=cred/munge
SlurmctldPort={port}
SlurmdPort={node_port}
StateSaveLocation={home}/state
SlurmdSpoolDir={home}/spool
SlurmctldPidFile={home}/slurmctld.pid
SlurmdPidFile={home}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=1,sched_interval=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def main() -> None:
    """Start the cluster, run the checks, end the cluster."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "slurm")
    parser.add_argument("--kills", type=int, default=20)
    options = parser.parse_args()
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing or os.geteuid():
        sys.exit(
            f"expected SLURM and root, got no {', '.join(missing) or 'root'}: apt-get install "
            "slurmctld slurmd slurm-client munge"
        )
    shutil.rmtree(options.folder, ignore_errors=True)
    options.folder.mkdir(parents=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no daemon outlives this process
    failures = 0
    with tempfile.TemporaryDirectory(prefix="slurm-") as home, cluster(Path(home)):
        os.environ["HOME"] = home  # whose .cache holds the mailboxes
        os.environ["PYTHONPATH"] = f"{ROOT / 'src'}:{ROOT / 'lab' / 'src'}:{ROOT}"
        for check in (equal_commands, equal_kills, ended_driver, killed_driver, full_disk):
            started = time.perf_counter()
            trouble = check(options.folder, options.kills)
            failures += bool(trouble)
            verdict = f"FAILED: {trouble}" if trouble else "ok"
            print(
                f"{check.__name__}: {verdict} ({time.perf_counter() - started:.0f} s)", flush=True
            )
    sys.exit(bool(failures))


@contextmanager
def cluster(home: Path) -> Iterator[None]:
    """munge, a controller and a node on ports of this machine alone, ended with this block."""
    ports = [free_port(), free_port()]
    facts = {"host": socket.gethostname().partition(".")[0], "home": home}
    configuration = home / "slurm.conf"
    configuration.write_text(CONFIGURATION.format(port=ports[0], node_port=ports[1], **facts))
    (home / "state").mkdir()
    (home / "spool").mkdir()
    key = home / "munge.key"
    key.write_bytes(secrets.token_bytes(64))
    key.chmod(0o600)
    os.environ["SLURM_CONF"] = str(configuration)
    files = {
        "key-file": key,
        "socket": home / "munge.socket",
        "pid-file": home / "munged.pid",
        "log-file": home / "munged.log",
        "seed-file": home / "munge.seed",
    }
    commands = [
        ["munged", "--foreground", "--force", *(f"--{name}={at}" for name, at in files.items())],
        ["slurmctld", "-D"],
        ["slurmd", "-D"],
    ]
    daemons = []
    try:
        for command in commands:
            log = (home / f"{command[0]}.txt").open("w")
            daemons.append(subprocess.Popen(command, stdout=log, stderr=log))
            time.sleep(1)
        if not within(PATIENCE, lambda: "idle" in said("sinfo", "--noheader", "--format=%T")):
            texts = [(home / f"{command[0]}.txt").read_text()[-800:] for command in commands]
            sys.exit("expected a node that is idle, got this:\n" + "\n".join(texts))
        yield
    finally:
        said("scancel", "--state=PENDING")
        said("scancel", "--state=RUNNING")
        within(PATIENCE, lambda: not jobs())
        for daemon in reversed(daemons):
            daemon.terminate()
        for daemon in daemons:
            with suppress(subprocess.TimeoutExpired):
                daemon.wait(20)


def free_port() -> int:
    """A port of this machine that nobody has."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def said(*command: str) -> str:
    """What a command prints."""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def within(seconds: float, is_so: Callable[[], bool]) -> bool:
    """Whether something becomes so in time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if is_so():
            return True
        time.sleep(0.2)
    return False


def jobs() -> list[str]:
    """The jobs in SLURM's queue."""
    return said("squeue", "--noheader", "--format=%i").split()


def mailboxes() -> list[Path]:
    """The folders that drivers and jobs share."""
    home = Path(os.environ["HOME"]) / ".cache" / "groupwise" / "engine"
    return list(home.iterdir()) if home.exists() else []


def workers() -> list[int]:
    """The processes of jobs of this cluster, whose command lines have its home."""
    pattern = rf"submitit\.core\._submit {re.escape(os.environ['HOME'])}/"
    return [int(number) for number in said("pgrep", "--full", pattern).split()]


def left() -> str:
    """What is still there though nothing runs, "" for nothing."""
    within(PATIENCE, lambda: not (jobs() or mailboxes() or workers()))
    counts = {"jobs": len(jobs()), "mailboxes": len(mailboxes()), "processes": len(workers())}
    return ", ".join(f"{count} {what} left" for what, count in counts.items() if count)


def equal_commands(folder: Path, _: int) -> str:
    """Components and a fleet by SLURM have the bytes that one process gives."""
    import torch

    from groupwise import examples
    from groupwise_lab.trainer.checkpoints import save_policy
    from groupwise_lab.trainer.policy import Policy, policy_size
    from groupwise_lab.trainer.tasks import Vocabulary

    torch.manual_seed(0)
    symbols = "0123456789+=."
    policy = Policy(policy_size("tiny"), vocabulary_size=len(symbols) + 2, context=64)
    save_policy(policy, folder / "model", Vocabulary(symbols))
    run = str(examples.trl_run())
    scored = ["--groups", "16", "--shards", "8", "--sketch-width", "512"]
    commands = {
        "components.json": ["components", run, "--model", str(folder / "model"), *scored],
        "fleet.csv": ["fleet", run],
    }
    for file, command in commands.items():
        written = []
        for engine in ("local", "slurm"):
            place = folder / engine / file
            place.parent.mkdir(exist_ok=True)
            whole = [*command, "--engine", engine, "--workers", "2", "-o", str(place), "--force"]
            done = subprocess.run(
                [sys.executable, "-m", "groupwise", *whole], capture_output=True, text=True
            )
            if done.returncode == 2:
                return f"{command[0]} by {engine}: {done.stderr.strip()[-300:]}"
            written.append(place.read_bytes())
        if written[0] != written[1]:
            return f"{file} differs"
    return left()


def equal_kills(_: Path, kills: int) -> str:
    """A worker killed at a random moment changes no digit and costs less than half a minute."""
    from tests.engine import work

    from groupwise.engine.engine import Engine

    expected = [outcome.value for outcome in Engine().map(work.slow_third, SHARDS)]
    started = time.monotonic()
    plain = [outcome.value for outcome in Engine("slurm", 2).map(work.slow_third, SHARDS)]
    usual = time.monotonic() - started
    if plain != expected:
        return "results differ without a kill"
    random.seed(3)
    costs, again = [], 0
    for _kill in range(kills):
        started = time.monotonic()
        killer = threading.Timer(random.uniform(0, usual), kill_one)
        killer.start()
        outcomes = Engine("slurm", 2).map(work.slow_third, SHARDS)
        killer.join()
        costs.append(time.monotonic() - started - usual)
        again += sum(outcome.tries - 1 for outcome in outcomes)
        if [outcome.value for outcome in outcomes] != expected:
            return f"results differ after a kill: {[outcome.sentence for outcome in outcomes]}"
    print(f"{kills} kills, {again} shards begun again, {usual:.1f} s without one; cost of each:")
    print(" ".join(f"{cost:.1f}" for cost in costs), flush=True)
    return f"a kill cost {max(costs):.0f} s" if max(costs, default=0) > LATE else left()


def kill_one() -> None:
    """Kill a worker, if there is one."""
    present = workers()
    if present:
        with suppress(ProcessLookupError):
            os.kill(random.choice(present), signal.SIGKILL)


DRIVER = """
from tests.engine import work
from groupwise.engine.engine import Engine
Engine("slurm", 2).map(work.slowly, {"one": 600.0, "two": 600.0})
"""


def started_driver() -> subprocess.Popen[bytes]:
    """A driver whose two jobs run."""
    driver = subprocess.Popen([sys.executable, "-c", DRIVER])
    within(PATIENCE, lambda: len([box for at in mailboxes() for box in at.glob("*/in-1")]) == 2)
    return driver


def ended_driver(_: Path, __: int) -> str:
    """A driver that SIGTERM ends leaves no job, mailbox or process."""
    driver = started_driver()
    driver.terminate()
    code = driver.wait(PATIENCE)
    return left() if code == 128 + signal.SIGTERM else f"ended with {code}"


def killed_driver(_: Path, __: int) -> str:
    """What a killed driver left is gone when the next has ended, ten minutes later, by which its
    last sign of life is set back.
    """
    from tests.engine import work

    from groupwise.engine.engine import Engine

    driver = started_driver()
    driver.kill()
    driver.wait()
    if len(jobs()) != 2:
        return f"expected two jobs of the killed driver, got {len(jobs())}"
    for box in mailboxes():
        os.utime(box / "alive", (time.time() - 601, time.time() - 601))
    Engine("slurm", 1).map(work.slow_third, {"one": 1})
    return left()


def full_disk(_: Path, __: int) -> str:
    """A disk that an answer fills ends the driver with one sentence, and leaves nothing."""
    from groupwise.engine.engine import Engine
    from groupwise.errors import GroupwiseError

    place = Path(os.environ["HOME"]) / ".cache" / "groupwise" / "engine"
    place.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "none", str(place)], check=True)
    try:
        sentence = Engine("slurm", 2).map(bytes, {"small": 1, "large": 600_000})[1].sentence
    except GroupwiseError as error:
        sentence = str(error)
    finally:
        trouble = left()
        subprocess.run(["umount", str(place)], check=True)
    print(sentence)
    return trouble if sentence else "expected a shard without room, got none"


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "src"), str(ROOT / "lab" / "src")]
    main()
