"""Per-rollout gradients by the general methods: torch.func (vmap of grad), and autograd one rollout after another.

Both hold N gradients of the parameters asked for, and know nothing of layers: they are what the layers' rules are tested against, and what
covers the parameters that have no rule. They form no inner product.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from groupwise.errors import GroupwiseError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    Batch = Mapping[str, torch.Tensor]
    Total = Callable[["torch.nn.Module", Batch], "torch.Tensor"]


def vmap_scores(
    model: torch.nn.Module, total: Total, batch: Batch, parameters: Mapping[str, torch.nn.Parameter]
) -> dict[str, torch.Tensor]:
    """Return N gradients of each parameter by `vmap(grad)`, with attention computed the plain way."""
    import torch
    from torch.func import functional_call, grad, vmap
    from torch.nn.attention import SDPBackend, sdpa_kernel

    call = _callable(model, total)

    def of_one(values: dict[str, torch.Tensor], row: dict[str, torch.Tensor]) -> torch.Tensor:
        result: torch.Tensor = functional_call(call, values, ({name: item[None] for name, item in row.items()},))
        return result

    values = {f"model.{name}": parameter.detach() for name, parameter in parameters.items()}
    try:
        with _parameters_kept(model), torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
            found = vmap(grad(of_one), in_dims=(None, 0))(values, dict(batch))
    except GroupwiseError:
        raise
    except (RuntimeError, NotImplementedError, TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"expected a model that torch.func can follow, got {type(error).__name__} ({str(error).strip().partition(chr(10))[0][:120]}):"
            " use method='loop'"
        ) from error
    # Gradients that do not depend on the rollout come back as one, seen N times: a copy each, for they are written over.
    return {name.removeprefix("model."): value.contiguous() for name, value in found.items()}


def loop_scores(
    model: torch.nn.Module, total: Total, batch: Batch, parameters: Mapping[str, torch.nn.Parameter]
) -> dict[str, torch.Tensor]:
    """Return N gradients of each parameter by one backward pass a rollout: slow, and right for every model."""
    import torch

    rollouts = len(next(iter(batch.values())))
    found = {name: parameter.new_zeros(rollouts, *parameter.shape) for name, parameter in parameters.items()}
    wanted = list(parameters.values())
    with only_these_differentiable(model, wanted), torch.enable_grad():
        for number in range(rollouts):
            value = total(model, {name: item[number : number + 1] for name, item in batch.items()})
            if not value.requires_grad:
                continue
            for name, gradient in zip(parameters, torch.autograd.grad(value, wanted, allow_unused=True), strict=True):
                if gradient is not None:
                    found[name][number] = gradient.to_dense() if gradient.is_sparse else gradient
    return found


def _callable(model: torch.nn.Module, total: Total) -> torch.nn.Module:
    """Return `total` as a module, in which functional_call can exchange the parameters."""
    import torch

    class Call(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, batch: Any) -> torch.Tensor:
            return total(self.model, batch)

    return Call().train(model.training)


@contextmanager
def _parameters_kept(model: torch.nn.Module) -> Iterator[None]:
    """Put every parameter back where it was.

    functional_call exchanges a module that is registered under two names twice, and leaves a bare tensor in it when it undoes that.
    """
    before = [(module, dict(module._parameters)) for module in model.modules()]
    try:
        yield
    finally:
        for module, parameters in before:
            module._parameters.clear()
            module._parameters.update(parameters)


@contextmanager
def only_these_differentiable(model: torch.nn.Module, parameters: list[torch.nn.Parameter]) -> Iterator[None]:
    """Switch gradients off for all parameters of `model` but these, and back on as they were."""
    before = {parameter: parameter.requires_grad for parameter in model.parameters()}
    wanted = {id(parameter) for parameter in parameters}
    try:
        for parameter in before:
            parameter.requires_grad_(id(parameter) in wanted)
        yield
    finally:
        for parameter, required in before.items():
            parameter.requires_grad_(required)
