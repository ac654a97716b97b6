"""What becomes of per-rollout gradients as they come, parameter by parameter: a Gram matrix or a sketch.

Both take the inner product of an optimiser's diagonal metric. Neither keeps a gradient.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from groupwise.scores.blocks import Block, ParameterScores, Workspace
from groupwise.scores.sketch import CountSketch

if TYPE_CHECKING:
    import torch


class GramTotal:
    """Sums inner products over parameters, in double precision whatever the model's."""

    def __init__(self, rollouts: int, metric: Mapping[str, torch.Tensor]) -> None:
        import torch

        self.metric = metric
        self.workspace = Workspace()
        self.gram_NN = torch.zeros(rollouts, rollouts, dtype=torch.float64)

    def add(self, name: str, scores: ParameterScores) -> None:
        """Add the inner products with respect to one parameter, by the cheaper of the two ways."""
        if name not in self.metric and scores.pair_cost() < scores.direct_cost():
            self.gram_NN += scores.pair_gram().cpu()
            return
        for block in scores.blocks(self.workspace):
            weigh(block, name, self.metric)
            self.gram_NN += self_products(block.value_NRC.flatten(1)).cpu()


class SketchTotal:
    """Sums count-sketches over parameters, in the model's precision."""

    def __init__(self, rollouts: int, metric: Mapping[str, torch.Tensor], sketch: CountSketch) -> None:
        self.metric = metric
        self.workspace = Workspace()
        self.sketch = sketch
        self.rollouts = rollouts
        self.sketch_NK: torch.Tensor | None = None

    def add(self, name: str, scores: ParameterScores) -> None:
        """Add the sketches of the gradients with respect to one parameter."""
        for block in scores.blocks(self.workspace):
            weigh(block, name, self.metric)
            value = block.value_NRC
            if self.sketch_NK is None:
                self.sketch_NK = value.new_zeros(self.rollouts, self.sketch.width)
            bucket, sign = self.sketch.of_rows(name, block.rows, value.shape[2], value)
            self.sketch_NK.index_add_(1, bucket, value.flatten(1).mul_(sign))


def weigh(block: Block, name: str, metric: Mapping[str, torch.Tensor]) -> None:
    """Multiply a block by the square root of the metric, where the parameter has one."""
    if name in metric:
        root = metric[name]
        matrix = root.reshape(1 if root.ndim < 2 else root.shape[0], -1)
        rows = slice(block.rows.start, block.rows.stop) if isinstance(block.rows, range) else block.rows
        block.value_NRC.mul_(matrix[rows])


def self_products(value_ND: torch.Tensor) -> torch.Tensor:
    """Return all inner products of the rows, in strips from the diagonal on: 5/8 of the work of the whole square."""
    rollouts = len(value_ND)
    strip = max(16, -(-rollouts // 4))
    gram = value_ND.new_empty(rollouts, rollouts)
    for start in range(0, rollouts, strip):
        stop = start + strip
        gram[start:stop, start:] = value_ND[start:stop] @ value_ND[start:].T
        gram[stop:, start:stop] = gram[start:stop, stop:].T
    return gram
