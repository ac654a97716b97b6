"""A model that FSDP2 keeps in pieces on several processes: layers are whole while they run, and
each process takes some of the scores.

Inner products and sketches are sums over parameters. Every process runs all layers on the same
rollouts, adds up what belongs to its own parameters, and the sums over processes are those of the
whole model.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from groupwise.errors import InvalidArgumentError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Pieces:
    """Which process takes which scores."""

    whole: dict[
        str, torch.nn.Parameter
    ]  # every parameter of the model as its layers use it, by name
    own: frozenset[str]  # parameters whose scores this process takes
    group: Any = (
        None  # the processes that hold the pieces of the model; None where this one holds all of it
    )

    def summed(self, value: torch.Tensor) -> torch.Tensor:
        """Return the sum over all processes."""
        if self.group is None:
            return value
        import torch

        total = value.to(next(iter(self.whole.values())).device, torch.float64, copy=True)
        torch.distributed.all_reduce(total, group=self.group)
        return total.to(value)


def pieces_of(
    model: torch.nn.Module,
    covered: Mapping[str, torch.nn.Parameter],
    options: Mapping[str, Any],
    batch: Mapping[str, torch.Tensor],
) -> Pieces:
    """Return which process takes which of the covered parameters; all of them must have been
    given the same options and rollouts.
    """
    every = dict(model.named_parameters())
    kept = next(
        (parameter for parameter in every.values() if hasattr(parameter, "device_mesh")), None
    )
    if kept is None:
        return Pieces(every, frozenset(covered))
    mesh: Any = kept.device_mesh
    group = mesh.get_group(mesh.ndim - 1)  # with copies of the pieces, those that hold one copy
    request = repr(sorted(options.items())).encode() + b"".join(
        item.cpu().numpy().tobytes() for item in batch.values()
    )
    _check_alike(request, group, kept.device)
    whole = _whole(model, every)
    load = [0] * mesh.size(mesh.ndim - 1)
    own = set()
    for name in sorted(covered, key=lambda name: covered[name].numel(), reverse=True):
        rank = load.index(min(load))
        load[rank] += covered[name].numel()
        if rank == mesh.get_local_rank(mesh.ndim - 1):
            own.add(name)
    return Pieces(whole, frozenset(own), group)


def _check_alike(request: bytes, group: Any, device: torch.device) -> None:
    """Refuse processes that were asked different things: their sums would be of nothing."""
    import torch

    number = zlib.crc32(request)
    span = torch.tensor([number, -number], device=device)
    torch.distributed.all_reduce(span, torch.distributed.ReduceOp.MAX, group=group)
    if span[0] != -span[1]:
        raise InvalidArgumentError(
            "expected the same rollouts and options on every process of a model in pieces, got "
            "different ones: give all of them to each"
        )


def _whole(
    model: torch.nn.Module, every: Mapping[str, torch.nn.Parameter]
) -> dict[str, torch.nn.Parameter]:
    """Return the parameters that FSDP2 puts in the place of its pieces while a layer runs; they
    are filled then alone.
    """
    whole = dict(every)
    for module in _in_pieces(model):
        module.unshard()
        whole |= {name: now for name, now in model.named_parameters() if now is not every[name]}
        module.reshard()
    odd = [name for name, parameter in whole.items() if hasattr(parameter, "device_mesh")]
    if odd:
        raise InvalidArgumentError(
            f"expected layers that FSDP2 puts together while they run, got {odd[0]}, of which a "
            "process has a piece alone: leave tensor parallelism out"
        )
    return whole


def _in_pieces(model: torch.nn.Module) -> list[Any]:
    """Return the modules that FSDP2 looks after."""
    return [
        module
        for module in model.modules()
        if hasattr(module, "unshard") and hasattr(module, "reshard")
    ]


def whole_of(parameter: torch.Tensor) -> torch.Tensor:
    """Return a parameter whole, of which this process may have a piece; every process must ask
    for it.
    """
    kept: Any = parameter
    whole: torch.Tensor = kept.full_tensor() if hasattr(kept, "full_tensor") else kept
    return whole


def settle(model: torch.nn.Module) -> None:
    """Let a model in pieces be in pieces: a forward pass that no backward pass has followed
    leaves some of it whole.
    """
    for module in _in_pieces(model):
        module.reshard()


def is_first() -> bool:
    """Return whether this process is the one of torchrun's that speaks; it is without torchrun."""
    return os.environ.get("RANK", "0") == "0"


def part() -> None:
    """End the exchange with the other processes."""
    import torch

    torch.distributed.destroy_process_group()


def cut(model: torch.nn.Module) -> None:
    """Meet the other processes of torchrun and leave this one its pieces of a model: layers are
    put together one at a time.
    """
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    if "RANK" not in os.environ:
        raise InvalidArgumentError(
            "expected --fsdp under torchrun, got a process alone: torchrun --nproc-per-node 2 -m "
            "groupwise components ..."
        )
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    if kind == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    mesh = init_device_mesh(kind, (int(os.environ["WORLD_SIZE"]),))
    lists = [module for module in model.modules() if isinstance(module, torch.nn.ModuleList)]
    for layer in [layer for layers in reversed(lists) for layer in layers]:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
