r"""Inner products and sketches of the scores of rollouts under a torch model: what the variance components are computed from.

The score of rollout n is $s_n = w_n \nabla_\theta \sum_t \log \pi_\theta(y_{nt} | ...)$ over the tokens of its completion; `aggregation`
says what $w_n$ is. Scores are taken with the model in evaluation mode (no dropout), at its present parameters and in its own precision.
This module loads no model, reads no run and estimates no component.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from groupwise.arrays import Float
from groupwise.errors import InvalidArgumentError
from groupwise.scores.batch import Aggregation, Job, Method, prepared
from groupwise.scores.blocks import ParameterScores, StoredScores
from groupwise.scores.layers import Recorder
from groupwise.scores.samples import loop_scores, only_these_differentiable, vmap_scores
from groupwise.scores.sketch import CountSketch
from groupwise.scores.totals import GramTotal, SketchTotal

if TYPE_CHECKING:
    import torch

    Batch = Mapping[str, torch.Tensor]
    LogProb = Callable[[torch.nn.Module, Batch], torch.Tensor]


@dataclass(frozen=True, slots=True)
class ScoreSource:
    """What scores were taken of, and how."""

    aggregation: Aggregation  # sum, sequence_mean or batch_token_mean
    temperature: float  # that divided the logits
    metric: str  # "identity" or "diagonal"
    parameters: tuple[str, ...]  # names of those covered
    coordinates: int  # how many numbers these hold
    left_out: tuple[str, ...]  # names of the parameters that were not asked for
    method: str  # hooks, vmap, loop, or hooks and the one that took what hooks could not
    micro_batch: int  # rollouts of one pass
    passes: int  # forward and backward passes over a micro-batch (or two, for inner products between them)
    token_N: NDArray[np.int64]  # tokens of each completion


@dataclass(frozen=True, slots=True)
class ScoreGram:
    r"""Inner products of the scores of N rollouts."""

    gram_NN: Float  # $\langle s_i, s_j \rangle$, symmetric
    source: ScoreSource  # what they were taken of

    @property
    def norm_N(self) -> Float:  # noqa: N802
        """The length of each score."""
        length: Float = np.sqrt(np.diag(self.gram_NN))
        return length


@dataclass(frozen=True, slots=True)
class ScoreSketch:
    """Count-sketches of the scores of N rollouts: their inner products are unbiased for those of the scores."""

    sketch_NK: NDArray[np.floating]  # a row a rollout
    seed: int  # of the map; sketches of the same seed, width and parameters belong together
    source: ScoreSource  # what they were taken of

    @property
    def width(self) -> int:
        """K."""
        return int(self.sketch_NK.shape[1])


class _Total(Protocol):
    """What takes the scores, parameter by parameter."""

    def add(self, name: str, scores: ParameterScores) -> None: ...


def score_gram(
    model: torch.nn.Module,
    batch: Batch,
    *,
    log_prob: LogProb | None = None,
    aggregation: Aggregation = "sum",
    temperature: float = 1.0,
    parameters: str | Sequence[str] | None = None,
    metric: Mapping[str, torch.Tensor] | None = None,
    micro_batch: int | None = None,
    memory_limit: int | None = None,
    method: Method = "auto",
) -> ScoreGram:
    r"""Return the inner products of the scores of all pairs of rollouts.

    $K_{ij} = \sum_d m_d s_{id} s_{jd}$, with $m = 1$ where no metric is given.

    One micro-batch costs a forward and a backward pass, and the products (N/2 multiplications a coordinate and rollout, where a pass takes
    three a token). M > 1 micro-batches cost M - 1 passes over all rollouts, because every pair of them is run together; for many rollouts
    take `score_sketch`, whose cost is one pass.

    Source: the score of arXiv 2603.01162, section 2; sums over tokens of outer products as in Goodfellow (2015), arXiv 1510.01799.
    """
    job = prepared(
        model,
        batch,
        log_prob=log_prob,
        aggregation=aggregation,
        temperature=temperature,
        parameters=parameters,
        metric=metric,
        micro_batch=micro_batch,
        memory_limit=memory_limit,
        method=method,
    )
    blocks = list(_slices(len(job.token_N), job.micro_batch))
    gram = np.zeros((len(job.token_N), len(job.token_N)))
    used = ""
    jobs = [(blocks[0],)] if len(blocks) == 1 else list(combinations(blocks, 2))
    for parts in jobs:
        rows = np.concatenate([np.arange(part.start, part.stop) for part in parts])
        total = GramTotal(len(rows), job.root_metric)
        used = _pass(job, rows, total)
        gram[np.ix_(rows, rows)] = total.gram_NN.numpy()
    _finite(gram)
    return ScoreGram((gram + gram.T) / 2, _source(job, used, len(jobs)))


def score_sketch(
    model: torch.nn.Module,
    batch: Batch,
    *,
    width: int,
    seed: int = 0,
    log_prob: LogProb | None = None,
    aggregation: Aggregation = "sum",
    temperature: float = 1.0,
    parameters: str | Sequence[str] | None = None,
    metric: Mapping[str, torch.Tensor] | None = None,
    micro_batch: int | None = None,
    memory_limit: int | None = None,
    method: Method = "auto",
) -> ScoreSketch:
    r"""Return count-sketches of the scores: each about one pass, in memory that does not grow with the number of rollouts.

    $\langle Cs, Ct\rangle$ is unbiased for $\langle s, t\rangle$, with variance at most $(|s|^2|t|^2 + \langle s,t\rangle^2)/K$.

    Source: Charikar, Chen, Farach-Colton (2002) for the map; layer by layer derived here.
    """
    job = prepared(
        model,
        batch,
        log_prob=log_prob,
        aggregation=aggregation,
        temperature=temperature,
        parameters=parameters,
        metric=metric,
        micro_batch=micro_batch,
        memory_limit=memory_limit,
        method=method,
    )
    sketch = CountSketch(width, seed)
    parts, used, passes = [], "", 0
    for block in _slices(len(job.token_N), job.micro_batch):
        rows = np.arange(block.start, block.stop)
        total = SketchTotal(len(rows), job.root_metric, sketch)
        used = _pass(job, rows, total)
        parts.append(np.zeros((len(rows), width)) if total.sketch_NK is None else total.sketch_NK.cpu().numpy())
        passes += 1
    result = np.concatenate(parts)
    _finite(result)
    return ScoreSketch(result, seed, _source(job, used, passes))


def _slices(rollouts: int, size: int) -> Iterator[slice]:
    """Yield the micro-batches."""
    for start in range(0, rollouts, size):
        yield slice(start, min(start + size, rollouts))


def _finite(values: NDArray[np.floating]) -> None:
    """Refuse scores that are no numbers."""
    bad = np.flatnonzero(~np.isfinite(values).all(1))
    if len(bad):
        raise InvalidArgumentError(
            f"expected finite scores, got NaN or infinity for rollout {bad[0]} and {len(bad) - 1} more: check the model's weights"
        )


def _source(job: Job, method: str, passes: int) -> ScoreSource:
    """Return what is said of the scores."""
    return ScoreSource(
        aggregation=job.aggregation,
        temperature=job.temperature,
        metric="diagonal" if job.root_metric else "identity",
        parameters=tuple(job.parameters),
        coordinates=sum(parameter.numel() for parameter in job.parameters.values()),
        left_out=job.left_out,
        method=method,
        micro_batch=job.micro_batch,
        passes=passes,
        token_N=job.token_N,
    )


@contextmanager
def _evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Switch dropout and its like off, and back on where they were on."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _pass(job: Job, rows: NDArray[np.intp], total: _Total) -> str:
    """Give the scores of some rollouts to `total`; returns the method that was used."""
    batch = job.part(rows)
    with _evaluating(job.model):
        if job.method in ("vmap", "loop"):
            _general(job, batch, job.parameters, total, job.method)
            return job.method
        rest = _by_layers(job, batch, len(rows), total)
        if not rest:
            return "hooks"
        if job.method == "hooks":
            raise InvalidArgumentError(
                f"expected parameters that layers' rules cover, got {len(rest)} that none does ({', '.join(rest[:3])}): use method='auto'"
            )
        method = _general(job, batch, {name: job.parameters[name] for name in rest}, total, "auto")
    return method if len(rest) == len(job.parameters) else f"hooks+{method}"


def _general(job: Job, batch: Batch, parameters: Mapping[str, torch.nn.Parameter], total: _Total, method: str) -> str:
    """Give the scores by a general method; "auto" is vmap, and the loop where torch.func cannot follow the model."""
    found, used = None, "loop"
    if method != "loop":
        try:
            found, used = vmap_scores(job.model, job.total, batch, parameters), "vmap"
        except InvalidArgumentError:
            if method == "vmap":
                raise
    if found is None:
        found = loop_scores(job.model, job.total, batch, parameters)
    for name, value in found.items():
        total.add(name, StoredScores(value if value.dtype.itemsize >= 4 else value.float()))
    return used


def _by_layers(job: Job, batch: Batch, rollouts: int, total: _Total) -> list[str]:
    """Give the scores of all parameters that layers' rules cover; returns the names of the others."""
    import torch

    recorder = Recorder(job.parameters, rollouts, job.tokens(batch), total.add, flat_allowed=job.custom)
    with only_these_differentiable(job.model, []), torch.enable_grad():
        with recorder.attached(job.model):
            value = job.total(job.model, batch)
        rest = recorder.uncovered()
        again = GramTotal(rollouts, {}) if recorder.flat_seen else None
        if again is not None:
            recorder.consume = _both(again, total)
        if value.requires_grad and len(rest) < len(job.parameters):
            torch.autograd.backward(value)
    recorder.finish()
    if again is not None:
        _check_one(job, batch, {name: job.parameters[name] for name in job.parameters if name not in rest}, again.gram_NN)
    return rest


def _both(first: _Total, second: _Total) -> Callable[[str, ParameterScores], None]:
    """Give scores to two totals, the first of which leaves them as they are."""

    def consume(name: str, scores: ParameterScores) -> None:
        first.add(name, scores)
        second.add(name, scores)

    return consume


def _check_one(job: Job, batch: Batch, parameters: dict[str, torch.nn.Parameter], gram_NN: torch.Tensor) -> None:
    """Hold the layers' rules against autograd for the rollout with the longest score.

    Where a layer sees (N, features), only the number says that its rows are the rollouts: an expert that is sent N tokens looks alike.
    """
    number = int(gram_NN.diagonal().argmax())
    row = {name: item[number : number + 1] for name, item in batch.items()}
    truth = sum(float(value.double().square().sum()) for value in loop_scores(job.model, job.total, row, parameters).values())
    found = float(gram_NN[number, number])
    if abs(found - truth) > 1e-3 * max(found, truth):
        raise InvalidArgumentError(
            f"expected layers whose rows are rollouts, but |score|^2 of rollout {number} is {truth:.6g} by autograd and {found:.6g} by"
            " layers: use method='vmap' or 'loop'"
        )
