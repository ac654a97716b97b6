r"""Optimisers on one flat vector of parameters: heavy ball, Adam and AdamW in a few lines each, with a state that is a few vectors.

Heavy ball has the learning rate inside the velocity, $v \leftarrow \mu v + \eta g$, as the theory of the dynamics does. No schedule here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor, nn

    from groupwise.trainer.settings import TrainSettings


class FlatParameters:
    """The trainable parameters of a module as one vector, and their gradient as another; the module's tensors are views of both."""

    def __init__(self, module: nn.Module) -> None:
        parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self.value_D = torch.cat([parameter.detach().reshape(-1) for parameter in parameters])
        self.gradient_D = torch.zeros_like(self.value_D)
        start = 0
        for parameter in parameters:
            stop = start + parameter.numel()
            parameter.data = self.value_D[start:stop].view_as(parameter)
            parameter.grad = self.gradient_D[start:stop].view_as(parameter)
            start = stop


class Optimizer:
    """Heavy ball, Adam or AdamW."""

    def __init__(self, settings: TrainSettings, like_D: Tensor) -> None:
        self.settings = settings
        names = ("velocity",) if settings.optimizer == "sgd" else ("first_moment", "second_moment")
        self.state = {name: torch.zeros_like(like_D) for name in names}

    @torch.no_grad()
    def step(self, value_D: Tensor, gradient_D: Tensor, *, learning_rate: float, update: int) -> None:
        """Change the parameters."""
        settings = self.settings
        if settings.weight_decay and settings.optimizer == "adamw":
            value_D.mul_(1 - learning_rate * settings.weight_decay)
        elif settings.weight_decay:
            gradient_D = gradient_D + settings.weight_decay * value_D
        if settings.optimizer == "sgd":
            velocity = self.state["velocity"].mul_(settings.momentum).add_(gradient_D, alpha=learning_rate)
            value_D.sub_(velocity)
            return
        first, second = self.state["first_moment"], self.state["second_moment"]
        first.mul_(settings.beta1).add_(gradient_D, alpha=1 - settings.beta1)
        second.mul_(settings.beta2).addcmul_(gradient_D, gradient_D, value=1 - settings.beta2)
        # Both moments begin at zero: divided by the share of their weights that has come.
        root = second.sqrt().div_((1 - settings.beta2**update) ** 0.5).add_(settings.epsilon)
        value_D.addcdiv_(first, root, value=-learning_rate / (1 - settings.beta1**update))
