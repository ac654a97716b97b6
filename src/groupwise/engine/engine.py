"""The contract: workers apply a function to named shards; results come in the shards' order.

A worker that dies, hangs or grows too large costs its shard one try and not the job: the shard is
tried again elsewhere, and after its last try it is named and left out. Which engine runs -
processes, Ray or SLURM - is known here and nowhere else.
"""

import math
import pickle
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Protocol

from groupwise.engine.worker import MessageKind, WorkerMessage
from groupwise.errors import GroupwiseError, InvalidArgumentError
from groupwise.plain import frozen

NAMES = ("local", "ray", "slurm")
_LOOK = 0.1  # seconds between looks at the clock
_FAILED_STARTS = 3  # in a row, without a worker that got ready in between

Function = Callable[[Any], Any]


class EngineError(GroupwiseError):
    """The engine cannot run: it is not installed, does not answer, or its workers do not start."""


class ShardStatus(Enum):
    """How a shard ended."""

    DONE = "done"
    FAILED = "failed"  # the function raised
    DIED = "died"  # its worker ended
    LATE = "late"  # it took longer than it may, and its worker was ended


@frozen
class ShardOutcome:
    """What came of one shard."""

    name: str  # of the shard
    status: ShardStatus  # how it ended
    value: Any = None  # what the function returned, where it is done
    sentence: str = ""  # why it is not
    tries: int = 0  # how often it was begun
    size: int = 0  # bytes of the value on its way
    seconds: float = 0.0  # of the last try

    @property
    def done(self) -> bool:
        """Whether there is a value."""
        return self.status is ShardStatus.DONE


@frozen
class Limits:
    """What a shard may take before it costs its worker, and how often it is begun."""

    seconds: float | None = None  # of one try, on the wall clock
    memory: int | None = None  # bytes that the worker may hold
    # in all; a shard that the function refused with one of our errors is not begun again
    tries: int = 2


_NO_LIMITS = Limits()


class Crew(Protocol):
    """Where workers come from.

    A worker sends a shard, answers (None where it has ended), and says how it ended.
    """

    def most(self, wanted: int | None) -> int:
        """Return how many workers there can be at once."""

    def hire(self) -> Any:
        """Start a worker; its first answer says that it is ready."""

    def dismiss(self, worker: Any) -> None:
        """End a worker at once."""

    def wait(self, workers: Sequence[Any], seconds: float) -> Sequence[Any]:
        """Return the workers that say something or have ended, after a while none."""

    def close(self) -> None:
        """Give back what the crew took."""


@frozen
class Engine:
    """Applies functions to shards."""

    name: str = "local"  # local, ray or slurm
    workers: int | None = 1  # at once; as many as there is room for where None

    def __post_init__(self) -> None:
        """Refuse what is no engine."""
        if self.name not in NAMES:
            raise InvalidArgumentError(
                f"expected one of the engines {', '.join(NAMES)}, got {self.name!r}"
            )
        if self.workers is not None and self.workers < 1:
            raise InvalidArgumentError(f"expected at least one worker, got {self.workers}")

    def map(
        self,
        function: Function,
        shards: Mapping[str, Any],
        *,
        gpus: int = 0,  # of each worker
        cpus: int = 1,  # of each worker; libraries there take as many threads
        limits: Limits = _NO_LIMITS,  # what a shard may take
        # is told every outcome; what it raises ends the job
        each: Callable[[ShardOutcome], None] = lambda _: None,
    ) -> list[ShardOutcome]:
        """Apply a function to every shard; the outcomes come in the order of the shards."""
        outcomes: dict[str, ShardOutcome] = {}

        def keep(outcome: ShardOutcome) -> None:
            each(outcome)
            outcomes[outcome.name] = outcome

        if shards:
            pickled = pickle.dumps(function, protocol=pickle.HIGHEST_PROTOCOL)
            crew = self._crew()(pickled, cpus=cpus, gpus=gpus, memory=limits.memory)
            try:
                _ShardQueue(crew, crew.most(self.workers), list(shards.items()), limits, keep).run()
            finally:
                crew.close()
        return [outcomes[name] for name in shards]

    def _crew(self) -> Callable[..., Crew]:
        """Return what makes the crew of this engine; its library is imported there and nowhere
        else.
        """
        if self.name == "ray":
            from groupwise.engine.on_ray import RayCrew

            return RayCrew
        if self.name == "slurm":
            from groupwise.engine.on_slurm import SlurmCrew

            return SlurmCrew
        from groupwise.engine.local import LocalCrew

        return LocalCrew


class _ShardQueue:
    """Gives shards to workers until every one has an outcome."""

    def __init__(
        self,
        crew: Crew,
        most: int,
        shards: Sequence[tuple[str, Any]],
        limits: Limits,
        each: Callable[[ShardOutcome], None],
    ) -> None:
        """Begin nothing yet."""
        self._crew, self._most, self._shards = crew, most, shards
        self._limits, self._each = limits, each
        self._waiting = deque(range(len(shards)))
        self._tries = [0] * len(shards)
        self._failed_with: dict[int, Any] = {}  # the worker with which a shard failed
        self._starting: list[Any] = []
        self._idle: list[Any] = []
        self._busy: dict[
            Any, tuple[int, float]
        ] = {}  # the place of the shard that a worker has, and when it was begun
        self._failed_starts = 0

    def run(self) -> None:
        """Run the job, and end all workers whatever happens."""
        try:
            while self._waiting or self._busy:
                free = len(self._starting) + len(self._idle)
                for _ in range(min(self._most - len(self._busy), len(self._waiting)) - free):
                    self._starting.append(self._crew.hire())
                self._give()
                for worker in self._crew.wait([*self._busy, *self._starting], _LOOK):
                    self._hear(worker)
                self._end_late()
        finally:
            for worker in [*self._busy, *self._starting, *self._idle]:
                self._crew.dismiss(worker)

    def _give(self) -> None:
        """Give a shard to every idle worker; one that failed with this very worker gets another."""
        while self._idle and self._waiting:
            shard, worker = self._waiting.popleft(), self._idle.pop()
            if self._failed_with.get(shard) is worker:
                self._waiting.appendleft(shard)
                self._crew.dismiss(worker)
                continue
            self._tries[shard] += 1
            self._busy[worker] = shard, time.monotonic()
            worker.send(pickle.dumps(self._shards[shard][1], protocol=pickle.HIGHEST_PROTOCOL))

    def _hear(self, worker: Any) -> None:
        """Take what a worker says."""
        answer = worker.answer()
        if worker in self._starting:
            self._started(worker, answer)
            return
        given = self._busy.pop(worker)
        if answer is None:
            how = f"its worker {worker.ending()}"
            self._crew.dismiss(worker)
            self._failed(given, ShardStatus.DIED, how, worker)
            return
        self._idle.append(worker)
        if answer.kind is MessageKind.VALUE:
            # from a worker that this process started
            value = pickle.loads(answer.value)  # noqa: S301
            self._close(given, ShardStatus.DONE, value=value, size=len(answer.value))
        else:
            self._failed(
                given,
                ShardStatus.FAILED,
                answer.sentence,
                worker,
                again=answer.kind is MessageKind.RAISED,
            )

    def _started(self, worker: Any, answer: WorkerMessage | None) -> None:
        """Take the first words of a worker."""
        self._starting.remove(worker)
        if answer and answer.kind is MessageKind.READY:
            self._failed_starts = 0
            self._idle.append(worker)
            return
        how = f"a worker {worker.ending()}" if answer is None else answer.sentence
        self._crew.dismiss(worker)
        self._failed_starts += 1
        if self._failed_starts >= _FAILED_STARTS:
            raise EngineError(
                f"expected workers that start, got {self._failed_starts} in a row that did not: "
                f"{how}"
            )

    def _end_late(self) -> None:
        """End the workers whose shard takes longer than it may."""
        limit = math.inf if self._limits.seconds is None else self._limits.seconds
        for worker, given in list(self._busy.items()):
            if time.monotonic() - given[1] > limit:
                del self._busy[worker]
                self._crew.dismiss(worker)
                how = f"the task took longer than {limit:g} s"
                self._failed(given, ShardStatus.LATE, how, worker)

    def _failed(
        self,
        given: tuple[int, float],
        status: ShardStatus,
        how: str,
        worker: Any,
        *,
        again: bool = True,
    ) -> None:
        """Put a shard back, or leave it out after its last try."""
        shard, _ = given
        if again and self._tries[shard] < self._limits.tries:
            self._failed_with[shard] = worker
            self._waiting.append(shard)
        else:
            self._close(given, status, sentence=f"shard {self._shards[shard][0]}: {how}")

    def _close(self, given: tuple[int, float], status: ShardStatus, **facts: Any) -> None:
        """Tell of an outcome."""
        shard, begun = given
        self._each(
            ShardOutcome(
                self._shards[shard][0],
                status,
                tries=self._tries[shard],
                seconds=time.monotonic() - begun,
                **facts,
            )
        )
