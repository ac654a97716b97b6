"""A Ray cluster of one head and two workers on this machine runs the jobs that have engines: `make
cluster`.

    python scripts/cluster.py [--folder build/cluster] [--keep]

No dashboard, no usage report, half a gigabyte of object store in all, a token that only these
processes know. The scores are of a model with random weights: the numbers mean nothing, the way is
the real one. With `--keep` the cluster stays up until Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

HOST, PORT, SYMBOLS = "127.0.0.1", 6399, "0123456789+=."
MEGABYTES = (150, 175, 175)  # of the object stores of the head and of the workers
PATIENCE = 180  # seconds that one node may take to start


def main() -> None:
    """Start the cluster, run the jobs, end the cluster."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--folder", type=Path, default=Path("build/cluster"), help="where the jobs write"
    )
    parser.add_argument("--keep", action="store_true", help="stay up until Ctrl-C")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no node outlives this process
    asked.folder.mkdir(parents=True, exist_ok=True)
    os.environ |= {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
    }
    os.environ["RAY_ADDRESS"] = f"{HOST}:{PORT}"
    with tempfile.TemporaryDirectory(prefix="ray-") as home, cluster(Path(home)):
        say("A head and two workers run.")
        codes = [run(*job) for job in jobs(asked.folder)]
        if asked.keep:
            say(
                f"RAY_ADDRESS={HOST}:{PORT} RAY_AUTH_MODE=token "
                f"RAY_AUTH_TOKEN={os.environ['RAY_AUTH_TOKEN']} until Ctrl-C."
            )
            with suppress(KeyboardInterrupt):
                time.sleep(1e9)
    sys.exit(2 if 2 in codes else 0)


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


def jobs(folder: Path) -> Iterator[tuple[str, ...]]:
    """The commands."""
    import torch

    from groupwise import examples
    from groupwise_lab.trainer.checkpoints import save_policy
    from groupwise_lab.trainer.policy import Policy, policy_size
    from groupwise_lab.trainer.tasks import Vocabulary

    model = folder / "model"
    if not model.exists():
        torch.manual_seed(0)
        save_policy(
            Policy(policy_size("tiny"), vocabulary_size=len(SYMBOLS) + 2, context=64),
            model,
            Vocabulary(SYMBOLS),
        )
    run = str(examples.trl_run())
    of_scores = [
        "--engine",
        "ray",
        "--workers",
        "2",
        "--groups",
        "16",
        "--shards",
        "8",
        "--sketch-width",
        "512",
    ]
    yield (
        "groupwise",
        "components",
        run,
        "--model",
        str(model),
        *of_scores,
        "-o",
        str(folder / "components.json"),
        "--force",
    )
    yield (
        "groupwise",
        "fleet",
        run,
        "--engine",
        "ray",
        "--workers",
        "2",
        "-o",
        str(folder / "fleet.csv"),
        "--force",
    )
    sweep = folder / "sweep.yaml"
    sweep.write_text(
        "task: modular_addition\nlevel: 1\nsize: tiny\nsteps: 30\nwarm_up: 0\nsweep: "
        "{learning_rate: [0.001, 0.003]}\n"
    )
    shutil.rmtree(folder / "sweep", ignore_errors=True)
    own = ("groupwise_lab", "sweep", str(sweep), "-o", str(folder / "sweep"))
    yield (*own, "--engine", "ray", "--workers", "2")


def run(*command: str) -> int:
    """Type one command, and return what it ends with."""
    say(f"\n{' '.join(command).replace('_', '-', 1)}")
    started = time.perf_counter()
    code = subprocess.run([sys.executable, "-m", *command]).returncode
    say(f"ended with {code} after {time.perf_counter() - started:.0f} s")
    return code


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)


if __name__ == "__main__":
    main()
