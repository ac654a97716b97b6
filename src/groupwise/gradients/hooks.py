"""Gradients of every rollout, by hooks on layers or one rollout after another.

One forward and one backward pass leave the factors of these layers behind: Linear, Hugging Face's
Conv1D, Embedding, and any other layer without children (LayerNorm, RMSNorm ...) by torch.func on
that layer alone. A parameter that is used outside its layer, or in a layer whose first dimension is
not the rollouts, is not covered; the error names it. `loop_scores` covers it and holds N gradients
of each parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from groupwise.errors import InvalidArgumentError
from groupwise.gradients.sketch import ParameterScores, StoredScores, TokenScores, Use

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch.nn import Module, Parameter

    Contribution = Use | torch.Tensor
    ScoreRule = Callable[
        ["torch.nn.Module", "torch.Tensor", "torch.Tensor"], Mapping[str, "Contribution"]
    ]
    Consume = Callable[[str, ParameterScores], None]
    TokenBatch = Mapping[str, torch.Tensor]
    ScoreTotal = Callable[["torch.nn.Module", TokenBatch], "torch.Tensor"]

_CONV1D = ("transformers.pytorch_utils", "Conv1D")  # GPT-2's linear layer, turned


@dataclass(slots=True)
class ScoreRecorder:
    """What one pass has left behind so far."""

    selected: Mapping[str, Parameter]  # parameters whose scores are wanted, by name
    rollouts: int  # N
    tokens: int  # L of the batch
    consume: Consume  # is handed each parameter's scores as soon as all its uses are known
    captured: dict[str, int] = field(default_factory=dict)
    elsewhere: set[str] = field(default_factory=set)
    arrived: dict[str, list[Contribution]] = field(default_factory=dict)
    inside: list[frozenset[str]] = field(default_factory=list)
    outputs: list[tuple[Tensor, int, tuple[str, ...]]] = field(default_factory=list)

    @contextmanager
    def attached(self, model: Module) -> Iterator[None]:
        """Watch the layers of `model`, and other uses of its parameters, as it runs forward."""
        name_of = {id(parameter): name for name, parameter in self.selected.items()}
        handles = []
        for module in model.modules():
            own = {
                local: name_of[id(p)]
                for local, p in module._parameters.items()
                if p is not None and id(p) in name_of
            }
            rule = rule_of(module) if own else None
            if rule:
                names = frozenset(own.values())
                handles.append(
                    module.register_forward_pre_hook(
                        lambda *_, names=names: self.inside.append(names)
                    )
                )
                hook = _hook(self, own, rule)
                handles.append(module.register_forward_hook(hook, with_kwargs=True))
        try:
            # Activations and the like make a new tensor.
            with watching_parameters(name_of, self._used), switched_off(model, "inplace"):
                yield
            # A hook on a tensor that was changed in place afterwards is not reliably told the
            # gradient from before the change.
            for output, version, changed in self.outputs:
                self.elsewhere.update(changed if output._version != version else ())
        finally:
            self.outputs.clear()
            for handle in handles:
                handle.remove()

    def _used(self, name: str) -> None:
        """Note a use of a parameter, unless its own layer is running."""
        if not any(name in names for names in self.inside):
            self.elsewhere.add(name)

    def uncovered(self) -> list[str]:
        """Return the parameters that no rule covers in full; known after the forward pass."""
        return [
            name for name in self.selected if name in self.elsewhere or not self.captured.get(name)
        ]

    def receive(self, contributions: Mapping[str, Contribution]) -> None:
        """Take what a layer's backward pass left, and hand on the complete parameters."""
        for name, contribution in contributions.items():
            if name in self.elsewhere:
                continue
            self.arrived.setdefault(name, []).append(contribution)
            if len(self.arrived[name]) == self.captured[name]:
                self._hand_on(name)

    def finish(self) -> None:
        """Hand on the parameters of which some use had no influence on the result."""
        for name in list(self.arrived):
            self._hand_on(name)

    def _hand_on(self, name: str) -> None:
        """Put the uses of one parameter together."""
        import torch

        parts = self.arrived.pop(name)
        uses = tuple(part for part in parts if isinstance(part, Use))
        if uses:
            self.consume(name, TokenScores(uses, self.selected[name].shape[0]))
            return
        home = self.selected[name].device
        stored = (part.to(home) for part in parts if isinstance(part, torch.Tensor))
        self.consume(name, StoredScores(sum(stored, start=torch.zeros(()))))


def _hook(recorder: ScoreRecorder, own: Mapping[str, str], rule: ScoreRule) -> Callable[..., Any]:
    """Return the forward hook of one layer."""

    def after(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        recorder.inside.pop()
        seen = _aligned(recorder, module, [*args, *kwargs.values()], output)
        if seen is None:
            recorder.elsewhere.update(own.values())
            return output
        source, output, lifted = seen
        for name in own.values():
            recorder.captured[name] = recorder.captured.get(name, 0) + 1
        if (
            not output.requires_grad
        ):  # the first layers: the copy is no leaf, so that it may be changed in place
            output = output.detach().requires_grad_().clone()
        recorder.outputs.append((output, output._version, tuple(own.values())))
        version = source._version

        def before(gradient: Tensor) -> None:
            if source._version != version:
                raise InvalidArgumentError(
                    "expected layers that do not change their input, but the input of "
                    f"{type(module).__name__} ({', '.join(own.values())}) was changed: use "
                    "method='loop'"
                )
            gradient = single_or_better(gradient.detach())
            parts = rule(module, source, gradient[None] if lifted else gradient)
            recorder.receive({own[local]: part for local, part in parts.items() if local in own})

        output.register_hook(before)
        return output

    return after


def _aligned(
    recorder: ScoreRecorder, module: Module, given: list[Any], output: Any
) -> tuple[Tensor, Tensor, bool] | None:
    """Return input and output of a layer, rollouts first; None where that is unknown.

    The flag says that the input had to be given that dimension, and that the output's gradient must
    be given it too.
    """
    import torch

    if (
        len(given) != 1
        or not isinstance(given[0], torch.Tensor)
        or not isinstance(output, torch.Tensor)
    ):
        return None
    source, rollouts = given[0].detach(), recorder.rollouts
    plain = 2 if isinstance(module, torch.nn.Embedding) else 3
    if rollouts == 1:
        lifted = source.ndim < plain or len(source) != 1
        return source[None] if lifted else source, output, lifted
    if (
        plain == 2 and source.ndim == 1 and len(source) == recorder.tokens
    ):  # positions, shared by all rollouts
        if recorder.tokens == rollouts:
            return None
        source, output = source[None], output[None]
    if (
        source.ndim < plain
        or source.shape[0] not in (1, rollouts)
        or output.shape[0] != source.shape[0]
    ):
        return None
    source = source.to(
        output.device
    )  # where a model lies on several devices, its layers fetch their inputs themselves
    # What is shared by all rollouts becomes one copy for each, so that each has a gradient of its
    # own.
    return (
        source.expand(rollouts, *source.shape[1:]),
        output.expand(rollouts, *output.shape[1:]),
        False,
    )


def single_or_better(value: Tensor) -> Tensor:
    """Half precision is computed with in single precision."""
    return value if value.dtype.itemsize >= 4 else value.float()


def rule_of(module: Module) -> ScoreRule | None:
    """Return how a layer's parameters get their gradients, or None where only the loop knows."""
    import torch

    nn, layer = torch.nn, cast("Any", module)
    rules: dict[Any, ScoreRule] = {nn.Linear.forward: _linear, nn.Embedding.forward: _embedding}
    rule = rules.get(type(module).forward)
    if rule is _embedding:
        odd = layer.max_norm is not None or layer.scale_grad_by_freq or layer.sparse
        return None if odd else rule
    if rule:
        return rule
    if (type(module).__module__, type(module).__name__) == _CONV1D:
        return _linear
    alone = next(module.children(), None) is None
    mixing = isinstance(module, nn.RNNBase | nn.modules.batchnorm._BatchNorm)
    return _layer_alone if alone and not mixing else None


def _tokens(value: Tensor) -> Tensor:
    """(N, ..., features) with all middle dimensions as one of tokens."""
    return value.reshape(len(value), -1, value.shape[-1])


def _linear(module: Module, source: Tensor, gradient: Tensor) -> dict[str, Contribution]:
    """Weight (out, in): output gradient times input, of Conv1D (in, out); bias: output gradient."""
    outward, inward = _tokens(gradient), _tokens(source).to(gradient.dtype)
    turned = type(module).__name__ == _CONV1D[1]
    weight = {"weight": Use(inward, outward) if turned else Use(outward, inward)}
    return weight if module.bias is None else {**weight, "bias": outward.sum(1)}


def _embedding(module: Any, source: Tensor, gradient: Tensor) -> dict[str, Contribution]:
    """Weight (vocabulary, width): rows of tokens take the output gradient, but for padding."""
    number = source.reshape(len(source), -1)
    right = _tokens(gradient)
    if module.padding_idx is not None:
        right = right * (number != module.padding_idx)[..., None]
    return {"weight": Use(number, right)}


def _layer_alone(module: Module, source: Tensor, gradient: Tensor) -> dict[str, Contribution]:
    """Any layer without children: its forward pass anew, one rollout at a time."""
    import torch
    from torch.func import functional_call, vjp, vmap

    own = {
        name: parameter.detach()
        for name, parameter in module._parameters.items()
        if parameter is not None
    }

    def of_rollout(tokens: Tensor, slope: Tensor) -> Any:
        output, pull, *_ = vjp(
            lambda parameters: functional_call(module, parameters, (tokens[None],)), own
        )
        return pull(slope[None].to(output.dtype))[0]

    with torch.enable_grad():
        values: dict[str, Tensor] = vmap(of_rollout)(source, gradient)
    return {name: single_or_better(value) for name, value in values.items()}


@contextmanager
def switched_off(model: Module, flag: str) -> Iterator[None]:
    """Switch a flag of layers off, and back on where it was on."""
    changed = [module for module in model.modules() if getattr(module, flag, False) is True]
    for module in changed:
        setattr(module, flag, False)
    try:
        yield
    finally:
        for module in changed:
            setattr(module, flag, True)


@contextmanager
def watching_parameters(name_of: Mapping[int, str], used: Callable[[str], None]) -> Iterator[None]:
    """Report every torch function that takes one of some parameters and returns a tensor."""
    import torch
    from torch.overrides import TorchFunctionMode

    def mentioned(values: Any) -> Iterator[str]:
        for value in values:
            if isinstance(value, list | tuple):
                yield from mentioned(value)
            elif id(value) in name_of:
                yield name_of[id(value)]

    class Watch(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            result = func(*args, **kwargs)
            computed = isinstance(result, torch.Tensor | list | tuple) and not isinstance(
                result, torch.Size
            )
            if computed:
                for name in mentioned([*args, *kwargs.values()]):
                    used(name)
            return result

    with Watch():
        yield


def loop_scores(
    model: Module, total: ScoreTotal, batch: TokenBatch, parameters: Mapping[str, Parameter]
) -> dict[str, Tensor]:
    """Return N gradients of each parameter by one backward pass a rollout."""
    import torch

    rollouts = len(next(iter(batch.values())))
    wanted = list(parameters.values())
    gradients = {name: own.new_zeros(rollouts, *own.shape) for name, own in parameters.items()}
    with only_these_differentiable(model, wanted), torch.enable_grad():
        for number in range(rollouts):
            value = total(model, {name: item[number : number + 1] for name, item in batch.items()})
            if not value.requires_grad:
                continue
            for name, gradient in zip(
                parameters, torch.autograd.grad(value, wanted, allow_unused=True), strict=True
            ):
                if gradient is not None:
                    gradients[name][number] = gradient.to_dense()
    return gradients


@contextmanager
def only_these_differentiable(model: Module, parameters: list[Parameter]) -> Iterator[None]:
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
