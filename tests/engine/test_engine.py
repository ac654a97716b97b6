"""The contract of engines, on processes of this machine: order, names, second tries, limits,
cancellation, sums in one order.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.engine import work
from tests.golden.sentences import says

from groupwise.engine.engine import Engine, EngineError, Limits, ShardOutcome, ShardStatus
from groupwise.engine.on_ray import RayCrew, RayWorker, _await_head
from groupwise.errors import GroupwiseError, InvalidArgumentError

NUMBERS = {f"number {number}": number for number in range(8)}


def values(shard_outcomes: list[ShardOutcome]) -> list[object]:
    return [outcome.value for outcome in shard_outcomes]


@pytest.mark.thinned(1)
@pytest.mark.parametrize("workers", [2, 1])
def test_results_come_in_the_order_of_the_shards(workers: int) -> None:
    names: list[str] = []
    outcomes = Engine(workers=workers).map(
        work.square, NUMBERS, each=lambda outcome: names.append(outcome.name)
    )
    assert values(outcomes) == [number**2 for number in range(8)]
    assert [outcome.name for outcome in outcomes] == list(NUMBERS)
    assert sorted(names) == sorted(NUMBERS)
    assert all(outcome.done and outcome.tries == 1 and outcome.size > 0 for outcome in outcomes)


@pytest.mark.usefixtures("forked")
def test_a_shard_that_raises_is_named_and_tried_again_and_one_that_is_refused_is_not() -> None:
    shards = {"one": 1, "none": 0, "two": 2}
    outcomes = Engine().map(work.divide, shards)
    assert values(outcomes) == [1.0, None, 0.5]
    assert outcomes[1].status is ShardStatus.FAILED
    assert outcomes[1].tries == 2
    assert outcomes[1].sentence.startswith("shard none: ZeroDivisionError at work.py:")
    refused = Engine().map(work.refuse, {"three": 3})[0]
    assert refused.tries == 1
    says("engine/engine/5", refused.sentence)


@pytest.mark.usefixtures("forked")
@pytest.mark.thinned(1)
@pytest.mark.parametrize("workers", [2, 1])
def test_a_worker_that_dies_costs_its_shard_a_try_and_not_the_job(
    tmp_path: Path, workers: int
) -> None:
    outcomes = Engine(workers=workers).map(work.DieOnce(tmp_path, always=(5,)), NUMBERS)
    assert values(outcomes) == [None if number == 5 else number**2 for number in range(8)]
    assert [outcome.tries for outcome in outcomes] == [1, 2, 1, 1, 2, 2, 1, 2]
    assert outcomes[5].status is ShardStatus.DIED
    says("engine/engine/1", outcomes[5].sentence)


def test_a_function_is_loaded_once_a_worker(tmp_path: Path) -> None:
    assert values(Engine().map(work.Loading(tmp_path), NUMBERS)) == [
        number + 7 for number in range(8)
    ]
    assert len(list(tmp_path.glob("loaded-*"))) == 1


@pytest.mark.usefixtures("forked")
def test_a_limit_of_time_costs_the_worker_and_not_the_job() -> None:
    start = time.monotonic()
    outcomes = Engine().map(
        work.slowly, {"short": 0.0, "long": 60.0, "last": 0.01}, limits=Limits(seconds=0.5, tries=1)
    )
    assert time.monotonic() - start < 20
    assert [outcome.status for outcome in outcomes] == [
        ShardStatus.DONE,
        ShardStatus.LATE,
        ShardStatus.DONE,
    ]
    says("engine/engine/2", outcomes[1].sentence)


@pytest.mark.slow
def test_a_limit_of_memory_costs_the_worker_and_not_the_job() -> None:
    outcomes = Engine().map(
        work.eat,
        {"small": 1 << 20, "large": 1 << 29, "last": 1},
        limits=Limits(memory=1 << 28, tries=1),
    )
    assert [outcome.status for outcome in outcomes] == [
        ShardStatus.DONE,
        ShardStatus.DIED,
        ShardStatus.DONE,
    ]
    says("engine/engine/3", outcomes[1].sentence)


@pytest.mark.usefixtures("forked")
def test_what_the_callback_raises_ends_the_job_and_its_workers() -> None:
    def full(_: ShardOutcome) -> None:
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space"):
        Engine(workers=2).map(work.slowly, {"first": 0.0, "second": 60.0}, each=full)


def test_threads_of_libraries_are_those_of_the_worker() -> None:
    before = os.environ.get("OMP_NUM_THREADS")
    assert values(Engine().map(work.own_threads, {"one": 1}, cpus=3)) == ["3"]
    assert os.environ.get("OMP_NUM_THREADS") == before


def test_workers_that_never_start_are_one_sentence() -> None:
    with pytest.raises(EngineError, match="3 in a row that did not: OSError at work"):
        Engine().map(work.Unloadable(), NUMBERS)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"name": "dask"}, "expected one of the engines local, ray, slurm, got 'dask'"),
        ({"workers": 0}, "expected at least one worker, got 0"),
    ],
)
def test_what_is_no_engine_is_refused(settings: dict, sentence: str) -> None:
    with pytest.raises(InvalidArgumentError, match=sentence):
        Engine(**settings)


def test_no_shards_need_no_workers() -> None:
    assert Engine().map(work.square, {}) == []


@pytest.mark.slow
def test_a_worker_killed_at_a_random_moment_changes_nothing() -> None:
    """Twenty jobs of twelve shards, a worker of each killed from outside at some time: same
    bits, every shard told once.
    """
    expected = values(Engine().map(work.third, NUMBERS))
    start = time.monotonic()
    assert values(Engine(workers=2).map(work.third, NUMBERS)) == expected
    whole = time.monotonic() - start
    random, tries = np.random.default_rng(3), []
    for _ in range(20):
        names: list[str] = []
        killer = threading.Timer(random.uniform(0, whole), _kill_one, [int(random.integers(2))])
        killer.start()
        outcomes = Engine(workers=2).map(work.third, NUMBERS, each=_names_into(names))
        killer.join()
        assert values(outcomes) == expected
        assert sorted(names) == sorted(NUMBERS)
        tries.append(sum(outcome.tries for outcome in outcomes) - len(NUMBERS))
    print(f"shards begun again in 20 jobs: {tries}")
    assert sum(tries) > 3


def _names_into(names: list[str]) -> Callable[[ShardOutcome], None]:
    return lambda outcome: names.append(outcome.name)


def _kill_one(number: int) -> None:
    children = sorted(multiprocessing.active_children(), key=lambda outcome: outcome.pid or 0)
    if children:
        children[number % len(children)].kill()


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # submitit never waits for its local processes
@pytest.mark.parametrize("name", ["slurm", "ray"])
def test_the_contract_holds_on_other_engines(name: str, tmp_path: Path) -> None:
    """Ray where RAY_ADDRESS names a cluster; submitit's own processes where there is no SLURM."""
    pytest.importorskip({"slurm": "submitit", "ray": "ray"}[name])
    if name == "ray" and "RAY_ADDRESS" not in os.environ:
        pytest.skip("RAY_ADDRESS names no cluster")
    engine = Engine(name, 2)
    outcomes = engine.map(work.DieOnce(tmp_path, always=(5,)), NUMBERS)
    assert values(outcomes) == [None if number == 5 else number**2 for number in range(8)]
    assert outcomes[5].status is ShardStatus.DIED
    late = engine.map(
        work.slowly, {"short": 0.0, "long": 60.0, "last": 0.01}, limits=Limits(seconds=2, tries=1)
    )
    assert [outcome.status for outcome in late] == [
        ShardStatus.DONE,
        ShardStatus.LATE,
        ShardStatus.DONE,
    ]
    raised = engine.map(work.divide, {"one": 1, "none": 0})
    assert raised[1].sentence.startswith("shard none: ZeroDivisionError at work.py:")
    assert values(engine.map(work.third, NUMBERS)) == values(Engine().map(work.third, NUMBERS))


@pytest.mark.slow
def test_what_ray_says_of_dead_workers_stays_off_our_answers(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    if "RAY_ADDRESS" not in os.environ:
        pytest.skip("RAY_ADDRESS names no cluster")
    code = f"work.DieOnce(Path({str(tmp_path)!r}), always=(5,)), {{'five': 5}}"
    code = (
        "from pathlib import Path; from tests.engine import work; from groupwise.engine.engine "
        f"import Engine; Engine('ray').map({code})"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; import time; time.sleep(2)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize(
    ("name", "module", "sentence"),
    [
        ("ray", "ray", "expected ray to be installed for --engine ray: pip install ray$"),
        (
            "slurm",
            "submitit",
            "expected submitit to be installed for --engine slurm: pip install submitit$",
        ),
    ],
)
def test_an_engine_that_is_not_installed_is_one_sentence(
    name: str, module: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda wanted: None if wanted == module else real(wanted)
    )
    with pytest.raises(GroupwiseError, match=sentence):
        Engine(name).map(work.square, NUMBERS)


def test_a_head_that_starts_late_is_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as head:
        head.bind(("127.0.0.1", 0))
        port = head.getsockname()[1]
        start = threading.Timer(0.5, head.listen)
        start.start()
        _await_head("127.0.0.1", port)
        start.join()
    assert capsys.readouterr().err == f"groupwise: waiting for 127.0.0.1:{port}\n"


def test_a_head_that_never_starts_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("groupwise.engine.on_ray._STARTS_WITHIN", 0.0)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectionRefusedError):
            _await_head(*nobody.getsockname())


class StandIn:
    """What a crew asks of Ray: a cluster whose nodes join one after another, and whose actors
    die.
    """

    class exceptions:  # noqa: N801
        class RayError(Exception):
            """What Ray raises."""

    def __init__(self, *resources: dict[str, float]) -> None:
        self._resources = iter(resources)
        self.ready = self
        self.remote = lambda: None

    def cluster_resources(self) -> dict[str, float]:
        return next(self._resources)

    def get(self, _: object) -> None:
        raise self.exceptions.RayError


def crew_of(ray: StandIn, needs: dict[str, int]) -> RayCrew:
    crew = object.__new__(RayCrew)
    vars(crew).update(_ray=ray, _needs=needs)
    return crew


def test_nodes_that_join_after_their_head_are_waited_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = StandIn({"memory": 1e9}, {"CPU": 3.0}, {"CPU": 3.0})
    assert crew_of(ray, {"CPU": 1}).most(2) == 2
    assert capsys.readouterr().err == "groupwise: waiting for a node with room for a worker\n"
    monkeypatch.setattr("groupwise.engine.on_ray._STARTS_WITHIN", 0.0)
    lacking = r"with 1 CPU and 2 GPUs for a worker, got 3 CPUs and 0 GPUs in all: ask for less"
    with pytest.raises(GroupwiseError, match=lacking):
        crew_of(ray, {"CPU": 1, "GPU": 2}).most(None)


def test_an_actor_that_ends_says_where_to_look() -> None:
    ray: Any = StandIn()
    worker = RayWorker(ray, ray)
    assert worker.answer() is None
    says("engine/engine/4", worker.ending())


def test_an_address_that_does_not_answer_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.setattr("groupwise.engine.on_ray._STARTS_WITHIN", 0.0)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(
            GroupwiseError,
            match=f"expected a Ray cluster at {address}, got Connection refused: start one",
        ):
            Engine("ray").map(work.square, NUMBERS)
