"""What is to be scored: the arguments of the scores once checked, and a batch in the one layout that every model takes.

Rows are shifted so that padding stands on the right, where causal attention never sees it and positions count from the first real token.
It computes no gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from groupwise.errors import InsufficientDataError, InvalidArgumentError

if TYPE_CHECKING:
    import torch

    Batch = Mapping[str, torch.Tensor]
    LogProb = Callable[[torch.nn.Module, Batch], torch.Tensor]

Aggregation = Literal["sum", "sequence_mean", "batch_token_mean"]
Method = Literal["auto", "hooks", "vmap", "loop"]
WEIGHT = "weight of the rollout"  # a key that no caller's batch has


@dataclass(frozen=True, slots=True)
class Job:
    """The arguments of the scores, once checked."""

    model: torch.nn.Module  # scored
    batch: dict[str, torch.Tensor]  # tensors with the rollouts as first dimension, with the weight of each
    token_N: NDArray[np.int64]  # tokens of each completion
    log_prob: LogProb  # of model and batch, (n, L)
    custom: bool  # whether `log_prob` is the caller's
    parameters: dict[str, torch.nn.Parameter]  # those covered, by name
    left_out: tuple[str, ...]  # names of the others
    root_metric: dict[str, torch.Tensor]  # square roots of the metric by name; empty for none
    method: Method  # auto, hooks, vmap or loop
    aggregation: Aggregation  # of tokens
    temperature: float  # of the logits
    micro_batch: int  # rollouts a pass

    def part(self, rows: NDArray[np.intp]) -> dict[str, torch.Tensor]:
        """Return some rollouts, without the columns that are padding for all of them."""
        import torch

        index = torch.from_numpy(rows).to(self.batch[WEIGHT].device)
        part = {name: item[index] for name, item in self.batch.items()}
        if not self.custom:
            longest = max(2, int(part["attention_mask"].sum(1).max()))
            part = {name: item if name == WEIGHT else item[:, :longest] for name, item in part.items()}
        return part

    def tokens(self, batch: Batch) -> int:
        """Return the length of the batch's sequences, 1 where it has none."""
        return max((item.shape[1] for item in batch.values() if item.ndim > 1), default=1)

    def total(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        """Return the weighted sum of log-probabilities, whose gradient is the sum of the rollouts' scores."""
        given = {name: item for name, item in batch.items() if name != WEIGHT}
        value = self.log_prob(model, given)
        mask = batch.get("completion_mask")
        if value.ndim != 2 or len(value) != len(batch[WEIGHT]) or (mask is not None and mask.shape != value.shape):
            wanted = "(rollouts, tokens)" if mask is None else f"{tuple(mask.shape)}, as completion_mask"
            raise InvalidArgumentError(f"expected log_prob to return shape {wanted}, got {tuple(value.shape)}: one number a token")
        value = value * batch[WEIGHT][:, None]
        return (value if mask is None else value.masked_fill(mask == 0, 0.0)).sum()


def prepared(
    model: torch.nn.Module,
    batch: Batch,
    *,
    log_prob: LogProb | None,
    aggregation: Aggregation,
    temperature: float,
    parameters: str | Sequence[str] | None,
    metric: Mapping[str, torch.Tensor] | None,
    micro_batch: int | None,
    memory_limit: int | None,
    method: Method,
) -> Job:
    """Check the arguments of the scores."""
    for name, value, known in (("aggregation", aggregation, Aggregation), ("method", method, Method)):
        if value not in get_args(known):
            raise InvalidArgumentError(f"expected {name} to be one of {', '.join(get_args(known))}; got {value!r}")
    if not (np.isfinite(temperature) and temperature > 0):
        raise InvalidArgumentError(f"expected a positive temperature, got {temperature}: take that of the sampling")
    if log_prob is not None and temperature != 1.0:
        raise InvalidArgumentError(f"expected temperature=1 with a log_prob of your own, got {temperature}: divide the logits in log_prob")
    rollouts = _rollouts(batch)
    whole = dict(batch) if log_prob is not None else _packed(batch)
    covered, left_out = _covered(model, parameters)
    token_N = _lengths(whole, rollouts)
    first = next(iter(covered.values()))
    precision = first.dtype if first.dtype.itemsize >= 4 else None
    whole[WEIGHT] = _weights(token_N, aggregation, log_prob is not None and "completion_mask" not in whole).to(first.device, precision)
    job = Job(
        model=model,
        batch=whole,
        token_N=token_N,
        log_prob=log_prob or cast("LogProb", partial(token_log_prob, temperature=temperature)),
        custom=log_prob is not None,
        parameters=covered,
        left_out=left_out,
        root_metric=_roots(covered, metric),
        method=method,
        aggregation=aggregation,
        temperature=temperature,
        micro_batch=rollouts,
    )
    return _limited(job, micro_batch, memory_limit)


def _rollouts(batch: Batch) -> int:
    """Return N."""
    sizes = {name: len(item) if item.ndim else 0 for name, item in batch.items()}
    if not sizes or not max(sizes.values()):
        raise InsufficientDataError(
            "expected a batch of at least one rollout, got none: hand over tensors with the rollouts as first dimension"
        )
    if len(set(sizes.values())) > 1:
        raise InvalidArgumentError(f"expected tensors of equally many rollouts, got {sizes}: give every one the same first dimension")
    return next(iter(sizes.values()))


def _packed(batch: Batch) -> dict[str, torch.Tensor]:
    """Return ids and masks with all padding on the right."""
    import torch

    missing = [name for name in ("input_ids", "completion_mask") if name not in batch]
    if missing:
        raise InvalidArgumentError(
            f"expected input_ids and completion_mask in the batch, got no {missing[0]}: or give a log_prob of your own"
        )
    ids, completion = batch["input_ids"], batch["completion_mask"] != 0
    attention = batch.get("attention_mask", torch.ones_like(ids)) != 0
    if not ids.ndim == completion.ndim == attention.ndim == 2 or not ids.shape == completion.shape == attention.shape:
        shapes = {name: tuple(item.shape) for name, item in batch.items()}
        raise InvalidArgumentError(f"expected ids and masks of one shape (N, L), got {shapes}: pad them alike")
    if bool((completion & ~attention).any()):
        raise InvalidArgumentError(
            "expected completions inside the attention mask, got a token outside it: leave padding out of completion_mask"
        )
    order = torch.argsort((~attention).to(torch.uint8), dim=1, stable=True)
    ids, completion, attention = (item.take_along_dim(order, 1) for item in (ids, completion, attention))
    if bool(completion[:, 0].any()):
        raise InvalidArgumentError(
            "expected a prompt before every completion, got a completion that starts with the first token: begin with BOS"
        )
    return {"input_ids": ids, "attention_mask": attention.to(ids.dtype), "completion_mask": completion}


def _covered(model: torch.nn.Module, patterns: str | Sequence[str] | None) -> tuple[dict[str, torch.nn.Parameter], tuple[str, ...]]:
    """Return the parameters asked for, a tied one under its first name, and the names of the others."""
    every = dict(model.named_parameters())
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    if patterns is None:
        covered = {name: parameter for name, parameter in every.items() if parameter.requires_grad}
    else:
        wanted = [patterns] if isinstance(patterns, str) else list(patterns)
        for pattern in wanted:
            if not any(fnmatchcase(alias, pattern) for aliases in names.values() for alias in aliases):
                some = ", ".join(list(every)[:3])
                raise InvalidArgumentError(f"expected a pattern of parameter names, got {pattern!r} that fits none: names are {some} ...")
        covered = {
            name: parameter
            for name, parameter in every.items()
            if any(fnmatchcase(alias, pattern) for alias in names[id(parameter)] for pattern in wanted)
        }
    if not covered:
        raise InvalidArgumentError(
            "expected parameters to differentiate, got a model in which none requires a gradient: name some (parameters='*')"
        )
    odd = [name for name, parameter in covered.items() if not parameter.is_floating_point()]
    if odd:
        raise InvalidArgumentError(
            f"expected floating-point parameters, got {covered[odd[0]].dtype} in {odd[0]}: leave it out with parameters="
        )
    return covered, tuple(name for name in every if name not in covered)


def _lengths(batch: Batch, rollouts: int) -> NDArray[np.int64]:
    """Return the tokens of each completion; 0 where nobody has said."""
    mask = batch.get("completion_mask")
    if mask is None:
        return np.zeros(rollouts, dtype=np.int64)
    return np.asarray((mask != 0).flatten(1).sum(1).cpu().numpy(), dtype=np.int64)


def _weights(token_N: NDArray[np.int64], aggregation: Aggregation, unknown: bool) -> torch.Tensor:  # noqa: FBT001
    """Return what each rollout's sum over tokens is multiplied with."""
    import torch

    if aggregation == "sum":
        return torch.ones(len(token_N), dtype=torch.float64)
    if unknown:
        raise InvalidArgumentError(f"expected completion_mask for aggregation={aggregation!r}, got none: it says how long completions are")
    length = torch.from_numpy(token_N).double()
    if aggregation == "batch_token_mean":
        length = length.mean().expand(len(token_N))
    return torch.where(length > 0, 1 / length.clamp(min=1e-300), 0.0)  # an empty completion has no score


def _roots(covered: Mapping[str, torch.nn.Parameter], metric: Mapping[str, torch.Tensor] | None) -> dict[str, torch.Tensor]:
    """Return the square roots of the metric."""
    if metric is None:
        return {}
    roots = {}
    for name, parameter in covered.items():
        given = metric.get(name)
        if given is None or given.shape != parameter.shape:
            shape = "none" if given is None else f"shape {tuple(given.shape)}"
            raise InvalidArgumentError(
                f"expected a metric of shape {tuple(parameter.shape)} for {name}, got {shape}: give every covered parameter one"
            )
        if not bool((given.isfinite() & (given >= 0)).all()):
            raise InvalidArgumentError(f"expected a finite metric of no negative number, got another in {name}: take 1/(sqrt(v) + eps)")
        precise = parameter.dtype if parameter.dtype.itemsize >= 4 else None
        roots[name] = given.detach().double().sqrt().to(parameter.device, precise or given.float().dtype)
    return roots


def _limited(job: Job, micro_batch: int | None, memory_limit: int | None) -> Job:
    """Return the job with the rollouts of one pass set."""
    from dataclasses import replace

    rollouts = len(job.token_N)
    if micro_batch is not None and micro_batch < 1:
        raise InvalidArgumentError(f"expected micro_batch of at least 1, got {micro_batch}")
    size = rollouts if micro_batch is None else min(micro_batch, rollouts)
    if memory_limit is not None:
        one = bytes_of_one(job)
        if memory_limit < one:
            raise InvalidArgumentError(
                f"expected memory for one rollout, about {one:,} bytes; got memory_limit={memory_limit:,}: raise it, or leave layers out"
            )
        size = min(size, memory_limit // one)
    return replace(job, micro_batch=size)


def bytes_of_one(job: Job) -> int:
    """Return about how many bytes a pass takes for one rollout of the batch's full length.

    What the forward pass keeps for the backward pass, twice: once more for the inputs and the gradients of layers; and, with vmap or the
    loop, the gradient itself.
    """
    import torch

    row = {name: item[:1] for name, item in job.part(np.arange(len(job.token_N))).items()}
    own = {parameter.untyped_storage().data_ptr() for parameter in job.model.parameters()}
    kept: dict[int, int] = {}

    def note(value: torch.Tensor) -> torch.Tensor:
        storage = value.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return value

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(note, lambda value: value):
        result = job.total(job.model, row)
        del result
    general = sum(parameter.numel() * parameter.element_size() for parameter in job.parameters.values())
    return 2 * sum(kept.values()) + (2 * general if job.method in ("vmap", "loop") else 0)


def token_log_prob(model: torch.nn.Module, batch: Batch, *, temperature: float = 1.0) -> torch.Tensor:
    """Return the log-probability of every token of a batch under a causal language model; that of each first token is set to 0."""
    import torch

    ids = batch["input_ids"]
    # Causal attention never looks at padding on the right; and a mask of nothing but ones is one that torch.func can follow.
    output = model(input_ids=ids, attention_mask=torch.ones(ids.shape, dtype=ids.dtype, device=ids.device))
    logits = getattr(output, "logits", output)
    logits = logits[:, :-1] if logits.dtype.itemsize >= 4 else logits[:, :-1].float()
    if temperature != 1.0:
        logits = logits / temperature
    lost = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    return torch.nn.functional.pad(-lost.view(len(ids), -1), (1, 0))
