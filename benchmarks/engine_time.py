"""What an engine costs beside a plain loop, and what a million rollouts of a 7 B model would cost:
`python benchmarks/engine_time.py`.

    python benchmarks/engine_time.py [--engines local ray slurm] [--seconds 0.5] [--shards 64]
    [--compute]

Shards sleep, so that what other processes do to the processor falls on both sides alike; with
`--compute` they hash for so many seconds of a processor, which tells something on idle cores alone.
Beside the wall clock stands the processor time of the driver. Ray is measured on the cluster that
RAY_ADDRESS names, started before.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from groupwise.engine.engine import Engine, ShardOutcome
from groupwise.estimators.components import components_of_moments
from groupwise.estimators.moments import MOMENTS, GroupMoments
from groupwise.gradients.sketch import bucket_and_sign

GROUPS, WIDTH = 4_000, 4_096
Work = Callable[[float], object]
HASH = partial(
    hashlib.pbkdf2_hmac, "sha256", b"", b""
)  # so many rounds; every worker can import it
ROUNDS = 500_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engines", nargs="*", default=["local", "slurm"])
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--shards", type=int, default=64)
    parser.add_argument("--compute", action="store_true")
    asked = parser.parse_args()
    work, size = (
        (HASH, round(asked.seconds * rounds_a_second()))
        if asked.compute
        else (time.sleep, asked.seconds)
    )
    shards = {str(number): size for number in range(asked.shards)}
    plain = loop(work, shards)
    print(f"plain loop: {plain:.2f} s for {asked.shards} shards of {asked.seconds:g} s")
    for name in asked.engines:
        single = measured(name, 1, work, shards)
        two = measured(name, 2, work, shards)
        print(
            f"{name}: one worker {single[0]:.2f} s ({single[0] / plain - 1:+.1%}), {single[1]:.2f} s of "
            "them before the first shard;",
            end=" ",
        )
        print(
            f"driver {1000 * single[2] / len(shards):.1f} ms of processor a shard; two workers "
            f"{single[0] / two[0]:.2f} times one"
        )
    paper(*pieces())


def rounds_a_second() -> float:
    start = time.process_time()
    HASH(ROUNDS)
    return ROUNDS / (time.process_time() - start)


def loop(work: Work, shards: dict[str, float]) -> float:
    start = time.perf_counter()
    for size in shards.values():
        work(size)
    return time.perf_counter() - start


def measured(
    name: str, workers: int, work: Work, shards: dict[str, float]
) -> tuple[float, float, float]:
    """Seconds in all, before the first shard began, and of the driver's processor."""
    start, own, began = time.perf_counter(), time.process_time(), []

    def each(outcome: ShardOutcome) -> None:
        began.append(time.perf_counter() - outcome.seconds)

    Engine(name, workers).map(work, shards, each=each)
    return time.perf_counter() - start, min(began) - start, time.process_time() - own


def pieces() -> tuple[float, float]:
    """Processor seconds of the driver a group, and of the hash a coordinate."""
    rng = np.random.default_rng(1)
    gradient = rng.standard_normal((GROUPS // 8, WIDTH), dtype=np.float32)
    size, zero = np.full(len(gradient), 8), np.zeros(len(gradient))
    parts = [
        GroupMoments(
            rng.random((len(gradient), len(MOMENTS))),
            zero,
            gradient,
            size,
            0,
            zero_mean=True,
        )
        for _ in range(8)
    ]
    start = time.process_time()
    components_of_moments(GroupMoments.joined(parts))
    a_group = (time.process_time() - start) / GROUPS
    coordinate = np.arange(1 << 20)
    bucket_and_sign("weight", coordinate, width=WIDTH, seed=0)
    start = time.process_time()
    for _ in range(5):
        bucket_and_sign("weight", coordinate, width=WIDTH, seed=0)
    return a_group, (time.process_time() - start) / 5 / len(coordinate)


def paper(a_group: float, a_coordinate: float) -> None:
    """A million rollouts, 125,000 groups of 8, 256 + 512 tokens each; 400 and 60 TFLOP/s are
    what bfloat16 and single precision reach.
    """
    groups, rollouts, tokens, layers = 125_000, 8, 768, 32
    weights, sides = (
        7e9,
        layers * (4 * 8_192 + 3 * 15_104),
    )  # rows and columns of all matrices of Llama 7B
    passes = rollouts * tokens * 4 * weights  # forward and back to the activations
    products = (
        rollouts * tokens * 2 * weights + (rollouts * tokens) ** 2 * sides
    )  # the group's gradient, and pairs of tokens
    gpu = passes / 400e12 + products / 60e12
    kilobytes = (4 * WIDTH + 8 * (len(MOMENTS) + 2)) / 1000
    print(
        f"measured: driver {1e6 * a_group:.0f} us a group, hash {1e9 * a_coordinate:.1f} ns a "
        "coordinate on one processor"
    )
    for what, coordinates in (("all 7e9 weights", weights), ("a LoRA adapter of 4e7", 4e7)):
        a_hash = coordinates * a_coordinate
        days = [(gpu + a_hash) * groups / cards / 86_400 for cards in (8, 64)]
        print(
            f"{what}: {gpu:.1f} s of GPU and {a_hash:.1f} s of hash a group; {days[0]:.1f} days on "
            f"8 GPUs, {days[1]:.1f} on 64"
        )
    print(
        f"a group sends {kilobytes:.1f} kB, a shard of 16 groups {16 * kilobytes:.0f} kB, all of "
        f"them {groups * kilobytes / 1e6:.1f} GB;"
    )
    print(
        "the driver holds them, in double precision while it adds up, and takes "
        f"{groups * a_group:.0f} s: it is never the limit in time"
    )


if __name__ == "__main__":
    main()
