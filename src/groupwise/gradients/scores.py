r"""Scores of rollouts under a torch model, as inner products or sketches.

The score of rollout n is $s_n = w_n \nabla_\theta \sum_t \log \pi_\theta(y_{nt} | ...)$ over the
tokens of its completion; `aggregation` says what $w_n$ is. Scores are taken with the model in
evaluation mode (no dropout), at its present parameters and in its own precision. `hooks.py` takes
the gradients, `sketch.py` reduces them as they come.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, get_args

import numpy as np
from numpy.typing import NDArray

from groupwise.arrays import Float, Places, Whole
from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.gradients.hooks import (
    ScoreRecorder,
    loop_scores,
    only_these_differentiable,
    single_or_better,
    switched_off,
)
from groupwise.gradients.sketch import CountSketch, GramTotal, SketchTotal, StoredScores
from groupwise.parsing import JsonObject
from groupwise.plain import Words, frozen

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module, Parameter

    from groupwise.gradients.hooks import TokenBatch

Aggregation = Literal["sum", "sequence_mean", "batch_token_mean"]
ScoreMethod = Literal["auto", "loop"]
Total = GramTotal | SketchTotal
WEIGHT = "weight of the rollout"  # a key that no caller's batch has


class ScoreOptions(TypedDict, total=False):
    """How scores are taken."""

    # what a rollout's sum over tokens is multiplied with: 1 (default), 1 over its or over the mean
    # length
    aggregation: Aggregation
    temperature: float  # of the sampling, by which the logits are divided (1)
    parameters: (
        str | Sequence[str] | None
    )  # patterns of names; those that require a gradient where None
    micro_batch: int | None  # rollouts of one pass at most
    memory_limit: int | None  # bytes of one pass at most, as far as they can be told before
    # auto (default): hooks, and a loop over rollouts for what they do not cover; loop: for
    # everything
    method: ScoreMethod


@frozen
class ScoreSource:
    """What scores were taken of, and how."""

    aggregation: Aggregation  # sum, sequence_mean or batch_token_mean
    temperature: float  # that divided the logits
    parameters: Words  # names of those covered
    coordinates: int  # how many numbers these hold
    left_out: Words  # names of the parameters that were not asked for
    method: str  # hooks, loop, or both where hooks could not take all
    micro_batch: int  # rollouts of one pass
    # forward and backward passes over a micro-batch (or two, for inner products between them)
    passes: int


@frozen
class Job:
    """What is to be scored, once checked."""

    model: Module
    batch: dict[
        str, Tensor
    ]  # tensors with the rollouts as first dimension, and the weight of each; padding on the right
    parameters: dict[str, Parameter]  # those covered, by name
    source: ScoreSource  # with the method that was asked for, and no pass yet

    @property
    def rollouts(self) -> int:
        """How many there are."""
        return len(self.batch[WEIGHT])

    def parts(self) -> list[Places]:
        """Return the rollouts of each micro-batch."""
        every, size = np.arange(self.rollouts), self.source.micro_batch
        return [every[start : start + size] for start in range(0, len(every), size)]

    def pairs(self) -> list[Places]:
        """Return the rollouts of passes in which every two rollouts meet."""
        parts = self.parts()
        return [np.concatenate(pair) for pair in combinations(parts, 2)] or parts

    def part(self, rows: Places) -> dict[str, Tensor]:
        """Return some rollouts, without the columns that are padding for all of them."""
        import torch

        index = torch.from_numpy(rows).to(self.batch[WEIGHT].device)
        part = {name: item[index] for name, item in self.batch.items()}
        longest = max(2, int(part["attention_mask"].sum(1).max()))
        return {name: item if name == WEIGHT else item[:, :longest] for name, item in part.items()}

    def total(self, model: Module, batch: TokenBatch) -> Tensor:
        """Return the weighted sum of log-probabilities, whose gradient sums the scores."""
        value = (
            token_log_prob(model, batch, temperature=self.source.temperature)
            * batch[WEIGHT][:, None]
        )
        return value.masked_fill(batch["completion_mask"] == 0, 0.0).sum()


def _prepared(model: Module, batch: TokenBatch, options: ScoreOptions) -> Job:
    """Check what is to be scored and how."""
    aggregation, method = options.get("aggregation", "sum"), options.get("method", "auto")
    temperature = options.get("temperature", 1.0)
    for name, value, kind in (
        ("aggregation", aggregation, Aggregation),
        ("method", method, ScoreMethod),
    ):
        if value not in get_args(kind):
            raise InvalidArgumentError(
                f"expected {name} to be one of {', '.join(get_args(kind))}; got {value!r}"
            )
    if not (np.isfinite(temperature) and temperature > 0):
        raise InvalidArgumentError(
            f"expected a positive temperature, got {temperature}: take that of the sampling"
        )
    whole = _packed(batch)
    covered, left_out = _covered(model, options.get("parameters"))
    token_N = np.asarray(whole["completion_mask"].sum(1).cpu().numpy(), dtype=np.int64)
    first = next(iter(covered.values()))
    precision = first.dtype if first.dtype.itemsize >= 4 else None
    whole[WEIGHT] = _weights(token_N, aggregation).to(first.device, precision)
    coordinates = sum(parameter.numel() for parameter in covered.values())
    source = ScoreSource(
        aggregation, temperature, tuple(covered), coordinates, left_out, method, len(token_N), 0
    )
    job = Job(model, whole, covered, source)
    return replace(
        job,
        source=replace(
            source,
            micro_batch=_micro_batch(job, options.get("micro_batch"), options.get("memory_limit")),
        ),
    )


def _packed(batch: TokenBatch) -> dict[str, Tensor]:
    """Check ids and masks, and move all padding to the right."""
    import torch

    sizes = {name: len(item) if item.ndim else 0 for name, item in batch.items()}
    if not sizes or not max(sizes.values()):
        raise InsufficientDataError(
            "expected a batch of at least one rollout, got none: hand over tensors with the "
            "rollouts as first dimension"
        )
    if len(set(sizes.values())) > 1:
        raise InvalidArgumentError(
            f"expected tensors of equally many rollouts, got {sizes}: give every one the same "
            "first dimension"
        )
    missing = [name for name in ("input_ids", "completion_mask") if name not in batch]
    if missing:
        raise InvalidArgumentError(
            f"expected input_ids and completion_mask in the batch, got no {missing[0]}: add it"
        )
    ids, completion = batch["input_ids"], batch["completion_mask"] != 0
    attention = batch.get("attention_mask", torch.ones_like(ids)) != 0
    if not (ids.ndim == 2 and ids.shape == completion.shape == attention.shape):
        shapes = {name: tuple(item.shape) for name, item in batch.items()}
        raise InvalidArgumentError(
            f"expected ids and masks of one shape (N, L), got {shapes}: pad them alike"
        )
    if (completion & ~attention).any():
        raise InvalidArgumentError(
            "expected completions inside the attention mask, got a token outside it: leave padding "
            "out of completion_mask"
        )
    order = torch.argsort((~attention).to(torch.uint8), dim=1, stable=True)
    ids, completion, attention = (
        item.take_along_dim(order, 1) for item in (ids, completion, attention)
    )
    if completion[:, 0].any():
        raise InvalidArgumentError(
            "expected a prompt before every completion, got a row whose first token is already "
            "completion: put BOS before it"
        )
    return {
        "input_ids": ids,
        "attention_mask": attention.to(ids.dtype),
        "completion_mask": completion,
    }


def _covered(
    model: Module, patterns: str | Sequence[str] | None
) -> tuple[dict[str, Parameter], Words]:
    """Return the chosen parameters by their first name, and the names of the others."""
    every = dict(model.named_parameters())
    if patterns is None:
        covered = {name: parameter for name, parameter in every.items() if parameter.requires_grad}
    else:
        chosen = _fitting(model, [patterns] if isinstance(patterns, str) else patterns)
        covered = {name: parameter for name, parameter in every.items() if id(parameter) in chosen}
    if not covered:
        raise InvalidArgumentError(
            "expected parameters to differentiate, got a model in which none requires a gradient: "
            "name some (parameters='*')"
        )
    odd = [name for name, parameter in covered.items() if not parameter.is_floating_point()]
    if odd:
        raise InvalidArgumentError(
            f"expected floating-point parameters, got {covered[odd[0]].dtype} in {odd[0]}: leave "
            "it out with parameters="
        )
    return covered, tuple(name for name in every if name not in covered)


def _fitting(model: Module, patterns: Sequence[str]) -> set[int]:
    """Return the ids of the parameters of which a name fits one of the patterns."""
    named = list(model.named_parameters(remove_duplicate=False))
    chosen: set[int] = set()
    for pattern in patterns:
        fitting = {id(parameter) for name, parameter in named if fnmatchcase(name, pattern)}
        if not fitting:
            some = ", ".join(name for name, _ in named[:3])
            raise InvalidArgumentError(
                f"expected a pattern of parameter names, got {pattern!r} that fits none: names are "
                f"{some} ..."
            )
        chosen |= fitting
    return chosen


def _weights(token_N: Whole, aggregation: Aggregation) -> Tensor:
    """Return what each rollout's sum over tokens is multiplied with."""
    import torch

    if aggregation == "sum":
        return torch.ones(len(token_N), dtype=torch.float64)
    length = torch.from_numpy(token_N).double()
    if aggregation == "batch_token_mean":
        length = length.mean().expand(len(token_N))
    return torch.where(
        length > 0, 1 / length.clamp(min=1e-300), 0.0
    )  # an empty completion has no score


def _micro_batch(job: Job, most: int | None, memory_limit: int | None) -> int:
    """Return the rollouts of one pass."""
    if most is not None and most < 1:
        raise InvalidArgumentError(f"expected micro_batch of at least 1, got {most}")
    size = min(most or job.rollouts, job.rollouts)
    if memory_limit is None:
        return size
    least = _bytes_of_rollout(job)
    if memory_limit < least:
        raise InvalidArgumentError(
            f"expected memory for one rollout, about {least:,} bytes; got "
            f"memory_limit={memory_limit:,}: raise it, or leave layers out"
        )
    return min(size, memory_limit // least)


def _bytes_of_rollout(job: Job) -> int:
    """Return about how many bytes a pass takes for one rollout of the batch's full length.

    What the forward pass keeps for the backward pass, three times: layers hold their inputs to the
    end, and gradients come on top; with the loop, the gradient itself.
    """
    import torch

    every = job.part(np.arange(job.rollouts))
    # One rollout whose completion begins where the first of the batch does: from there on all have
    # logits.
    row = {name: item[:1] for name, item in every.items()} | {
        "completion_mask": every["completion_mask"].any(0, keepdim=True)
    }
    kept: dict[int, int] = {}

    own = {parameter.untyped_storage().data_ptr() for parameter in job.model.parameters()}

    def note(value: Tensor) -> Tensor:
        storage = value.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return value

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(note, lambda value: value):
        result = job.total(job.model, row)
        del result
    own_gradient = sum(
        parameter.numel() * parameter.element_size() for parameter in job.parameters.values()
    )
    return 3 * sum(kept.values()) + (2 * own_gradient if job.source.method == "loop" else 0)


def token_log_prob(
    model: Module, batch: TokenBatch, *, temperature: float = 1.0, entropy: bool = False
) -> Tensor:
    """Return the log-probability of every token, or it and the entropy there; 0 before the first
    completion.
    """
    import torch

    ids, completion = batch["input_ids"], batch["completion_mask"]
    # Where every row is still prompt nobody asks for logits, and those of a large vocabulary are
    # most of a small model's work.
    before = max(1, int(completion.any(0).int().argmax()))
    few = {"logits_to_keep": ids.shape[1] - before + 1} if takes_few_logits(model) else {}
    # Causal attention never looks at padding on the right; and a mask of nothing but ones is one
    # that torch.func can follow.
    output = model(
        input_ids=ids,
        attention_mask=torch.ones(ids.shape, dtype=ids.dtype, device=ids.device),
        **few,
    )
    logits = single_or_better(getattr(output, "logits", output)[:, before - 1 - ids.shape[1] : -1])
    if temperature != 1.0:
        logits = logits / temperature
    scores = log_probability(logits, ids[:, before:])
    if entropy:
        scores = torch.stack([scores, torch.special.entr(logits.softmax(-1)).sum(-1)])
    return torch.nn.functional.pad(scores, (before, 0))


def log_probability(logits_NLV: Tensor, token_NL: Tensor) -> Tensor:
    """Return the log-probability of tokens, in single precision or better.

    Over a large vocabulary torch's log_softmax and cross_entropy are ten times less exact than its
    logsumexp.
    """
    logits = single_or_better(logits_NLV)
    return logits.gather(-1, token_NL[..., None])[..., 0] - logits.logsumexp(-1)


def takes_few_logits(model: Any) -> bool:
    """Whether a model, or that beneath an adapter, can compute the last logits alone."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    return "logits_to_keep" in inspect.signature(base.forward).parameters


@frozen
class ScoreGram:
    r"""Inner products of the scores of N rollouts."""

    gram_NN: Float  # $\langle s_i, s_j \rangle$, symmetric
    source: ScoreSource
    # count-sketch of the weighted sum of the scores, where weights were given
    gradient_K: NDArray[np.floating] | None = None

    @property
    def arguments(self) -> JsonObject:
        """As `groupwise.components` takes it."""
        return {"gram_NN": self.gram_NN}


@frozen
class ScoreSketch:
    """Count-sketches of N scores, whose inner products are unbiased for the scores'."""

    sketch_NK: NDArray[
        np.floating
    ]  # sketches of the same seed, width and parameters belong together
    source: ScoreSource

    @property
    def arguments(self) -> JsonObject:
        """As `groupwise.components` takes it."""
        return {"score_ND": self.sketch_NK.astype(float)}


def score_gram(
    model: Module,
    batch: TokenBatch,
    *,
    weight_N: Float | None = None,
    sketch: CountSketch | None = None,
    **options: Unpack[ScoreOptions],
) -> ScoreGram:
    r"""Return the inner products of all scores, and a sketch of their weighted sum.

    One micro-batch costs a forward and a backward pass, and the products (N/2 multiplications a
    coordinate and rollout, where a pass takes three a token). M > 1 micro-batches cost M - 1 passes
    over all rollouts, because every pair of them is run together: for many rollouts take
    `score_sketch`, which passes over them once. The sketch of a sum costs one hash a coordinate and
    not N.

    Source: the score of arXiv 2603.01162, section 2; sums over tokens of outer products as in
    Goodfellow (2015), arXiv 1510.01799.
    """
    job = _prepared(model, batch, options)
    rollouts = job.rollouts
    gram, gradient = (
        np.zeros((rollouts, rollouts)),
        None if sketch is None else np.zeros(sketch.width),
    )
    used, passes = "", job.pairs()
    for rows in passes:
        # Where micro-batches meet in pairs, a rollout is in all passes but those of the other
        # parts.
        total = GramTotal(
            len(rows),
            None if weight_N is None else weight_N[rows] / max(1, len(job.parts()) - 1),
            sketch,
        )
        used = _pass(job, rows, total)
        gram[np.ix_(rows, rows)] = total.gram_NN.numpy()
        if gradient is not None and total.sum is not None:
            gradient += total.sum.result()[0]
    _finite(gram)
    return ScoreGram(
        (gram + gram.T) / 2, replace(job.source, method=used, passes=len(passes)), gradient
    )


def score_sketch(
    model: Module,
    batch: TokenBatch,
    *,
    width: int,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
    **options: Unpack[ScoreOptions],
) -> ScoreSketch:
    r"""Return count-sketches of the scores, in one pass over the rollouts.

    $\langle Cs, Ct\rangle$ is unbiased for $\langle s, t\rangle$, with variance at most
    $(|s|^2|t|^2 + \langle s,t\rangle^2)/K$.

    Source: Charikar, Chen, Farach-Colton (2002) for the map; layer by layer derived here.
    """
    job = _prepared(model, batch, options)
    sketch = CountSketch(width, seed)
    parts, used = [], ""
    for rows in job.parts():
        total = SketchTotal(len(rows), sketch)
        used = _pass(job, rows, total)
        parts.append(total.result())
        if progress:
            progress(int(rows[-1]) + 1, job.rollouts)
    result = np.concatenate(parts)
    _finite(result)
    return ScoreSketch(result, replace(job.source, method=used, passes=len(parts)))


SKETCH_WIDTH = 4096
"""Width of the sketches where the rollouts do not fit one pass: inner products within 2 % of a
trace, whatever the model's size.
"""

# rollouts of one pass where sketches are taken, after each of which the progress is told
_PASS = 64


def inner_products(
    model: Module,
    batch: TokenBatch,
    *,
    width: int | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
    **options: Unpack[ScoreOptions],
) -> ScoreGram | ScoreSketch:
    """Return exact inner products where all rollouts fit one pass, else sketches."""
    rollouts = len(batch["input_ids"])
    if width is None and rollouts_of_a_pass(model, batch, **options) >= rollouts:
        gram = score_gram(model, batch, **options)
        if progress:
            progress(rollouts, rollouts)
        return gram
    options["micro_batch"] = min(_PASS, options.get("micro_batch") or _PASS)
    return score_sketch(
        model, batch, width=width or SKETCH_WIDTH, seed=seed, progress=progress, **options
    )


def rollouts_of_a_pass(model: Module, batch: TokenBatch, **options: Unpack[ScoreOptions]) -> int:
    """Return how many rollouts of a batch one pass takes."""
    return _prepared(model, batch, options).source.micro_batch


def _finite(values: NDArray[np.floating]) -> None:
    """Refuse scores that are no numbers."""
    bad = np.flatnonzero(~np.isfinite(values).all(1))
    if len(bad):
        raise InvalidArgumentError(
            f"expected finite scores, got NaN or infinity for rollout {bad[0]} and {len(bad) - 1} "
            "more: check the model's weights"
        )


def _pass(job: Job, rows: Places, total: Total) -> str:
    """Give the scores of some rollouts to `total`; returns the method that was used."""
    batch = job.part(rows)
    with switched_off(job.model, "training"):  # dropout and its like
        rest = (
            list(job.parameters)
            if job.source.method == "loop"
            else _by_layers(job, batch, len(rows), total)
        )
        if rest:
            wanted = {name: job.parameters[name] for name in rest}
            for name, value in loop_scores(job.model, job.total, batch, wanted).items():
                total.add(name, StoredScores(single_or_better(value)))
    return "hooks" if not rest else "loop" if len(rest) == len(job.parameters) else "hooks+loop"


def _by_layers(job: Job, batch: TokenBatch, rollouts: int, total: Total) -> list[str]:
    """Give `total` the scores that layers' rules cover; return the other parameters."""
    import torch

    recorder = ScoreRecorder(job.parameters, rollouts, batch["input_ids"].shape[1], total.add)
    with only_these_differentiable(job.model, []), torch.enable_grad():
        with recorder.attached(job.model):
            value = job.total(job.model, batch)
        rest = recorder.uncovered()
        if value.requires_grad and len(rest) < len(job.parameters):
            torch.autograd.backward(value)
    recorder.finish()
    return rest
