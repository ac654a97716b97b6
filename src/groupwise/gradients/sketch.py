"""What the gradients of N rollouts are reduced to: inner products or count-sketches.

A weight matrix has the gradient `sum over tokens of left x right`, of which a few rows are made at
a time: neither N gradients of a model nor those of a layer are ever held. A count-sketch adds every
coordinate, with a sign, to one of a few thousand buckets. Bucket and sign depend on the seed, the
parameter's name and the coordinate's place in it alone, so that sketches made apart can be put
together.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from groupwise.arrays import Float, Whole
from groupwise.errors import InvalidArgumentError
from groupwise.plain import frozen

if TYPE_CHECKING:
    import torch
    from torch import Tensor

BLOCK_NUMBERS = 1 << 20  # of one block: 4 MB in single precision stay near the processor


class Workspace:
    """Memory that blocks share: fresh pages cost more than their arithmetic."""

    def __init__(self) -> None:
        self._buffer: Tensor | None = None

    def take(self, shape: Sequence[int], like: Tensor) -> Tensor:
        """Return uninitialised memory that the next call hands out again."""
        size = math.prod(shape)
        buffer = self._buffer
        if (
            buffer is None
            or buffer.numel() < size
            or buffer.dtype != like.dtype
            or buffer.device != like.device
        ):
            self._buffer = buffer = like.new_empty(size)
        return buffer[:size].view(*shape)


Block = tuple["range | torch.Tensor", "torch.Tensor"]
"""Some rows of the per-rollout gradients of one parameter: their numbers in it, and N x rows x
columns, the next block's memory too.
"""


@frozen
class StoredScores:
    """Gradients of N rollouts in full: those of biases, norms and the loop."""

    value_N: Tensor  # of the parameter's own shape; whoever takes the blocks may write over it

    def blocks(self, workspace: Workspace) -> Iterator[Block]:  # noqa: ARG002  (as of TokenScores)
        """Yield the rows, a few at a time."""
        value = self.value_N
        matrix = value.reshape(len(value), 1 if value.ndim < 3 else value.shape[1], -1)
        rollouts, rows, columns = matrix.shape
        step = max(1, BLOCK_NUMBERS // max(1, rollouts * columns))
        for start in range(0, rows, step):
            stop = min(start + step, rows)
            yield range(start, stop), matrix[:, start:stop]

    def combined(self, weight_N: Tensor) -> StoredScores:
        """Return the weighted sum over rollouts, as the gradient of one."""
        weight = weight_N.to(self.value_N).view(-1, *(1,) * (self.value_N.ndim - 1))
        return StoredScores((weight * self.value_N).sum(0, keepdim=True))


@frozen
class Use:
    """One use of a weight in the forward pass."""

    left: Tensor  # (N, T, rows), or (N, T) whole numbers that stand for rows of the unit matrix
    right_NTC: Tensor  # (N, T, columns); the gradient is the sum over T of the outer products

    @property
    def picks(self) -> bool:
        """Whether the left side picks rows, as an embedding does."""
        return self.left.ndim == 2


@frozen
class TokenScores:
    """Gradients of a matrix from all its uses, with their cross terms."""

    uses: tuple[Use, ...]  # one or more
    rows: int  # of the parameter

    def blocks(self, workspace: Workspace) -> Iterator[Block]:
        """Yield every row that is not zero for all rollouts, a few at a time."""
        first = self.uses[0].right_NTC
        rollouts, _, columns = first.shape
        touched, picked = self._touched()
        count = self.rows if touched is None else len(touched)
        step = max(1, BLOCK_NUMBERS // (rollouts * columns))
        for start in range(0, count, step):
            stop = min(start + step, count)
            value = workspace.take((rollouts, stop - start, columns), first)
            self._fill(value, picked, start, stop)
            yield range(start, stop) if touched is None else touched[start:stop], value

    def combined(self, weight_N: Tensor) -> TokenScores:
        """Return the weighted sum over rollouts, as the gradient of one with all tokens."""
        uses = []
        for use in self.uses:
            right = use.right_NTC * weight_N.to(use.right_NTC)[:, None, None]
            uses.append(Use(use.left.flatten(0, 1)[None], right.flatten(0, 1)[None]))
        return TokenScores(tuple(uses), self.rows)

    def _touched(self) -> tuple[Tensor | None, list[Tensor]]:
        """Return the rows that every use picks (None for all) and the uses' places among them."""
        import torch

        if not all(use.picks for use in self.uses):
            return None, [use.left for use in self.uses]
        sizes = [use.left.shape[1] for use in self.uses]
        touched, place = torch.unique(
            torch.cat([use.left for use in self.uses], dim=1), return_inverse=True
        )
        return touched, list(place.split(sizes, dim=1))

    def _fill(self, value: Tensor, picked: list[Tensor], start: int, stop: int) -> None:
        """Write the sum over uses and tokens of the outer products for rows `start` to `stop`."""
        import torch

        kept = 0  # of what the memory held before: nothing, then the sum so far
        for use in self.uses:
            if not use.picks:
                left = use.left[:, :, start:stop].transpose(1, 2)
                value.baddbmm_(left, use.right_NTC, beta=kept)
                kept = 1
        if not kept:
            value.zero_()
        flat = value.view(-1, value.shape[-1])
        for use, place in zip(self.uses, picked, strict=True):
            if use.picks:
                rollout, token = torch.nonzero((place >= start) & (place < stop), as_tuple=True)
                row = rollout * (stop - start) + place[rollout, token] - start
                flat.index_add_(0, row, use.right_NTC[rollout, token])


ParameterScores = StoredScores | TokenScores
"""The gradients of N rollouts with respect to one parameter, seen as a matrix (a vector is one
row).
"""


class GramTotal:
    """Sums inner products over parameters, in double precision whatever the model's."""

    def __init__(
        self, rollouts: int, weight_N: Float | None = None, sketch: CountSketch | None = None
    ) -> None:
        """Begin sums; with weights, also a count-sketch of the weighted sum of the scores."""
        import torch

        self.workspace = Workspace()
        self.gram_NN = torch.zeros(rollouts, rollouts, dtype=torch.float64)
        self.sum = None if sketch is None else SketchTotal(1, sketch)
        self._weight_N = torch.ones(rollouts) if weight_N is None else torch.from_numpy(weight_N)

    def add(self, name: str, scores: ParameterScores) -> None:
        """Add the inner products with respect to one parameter."""
        if self.sum is not None:
            self.sum.add(name, scores.combined(self._weight_N))
        for _, value_NRC in scores.blocks(self.workspace):
            self.gram_NN += self_products(value_NRC.flatten(1)).cpu()


class SketchTotal:
    """Sums count-sketches over parameters, in the model's precision."""

    def __init__(self, rollouts: int, sketch: CountSketch) -> None:
        self.workspace = Workspace()
        self.sketch = sketch
        self.rollouts = rollouts
        self.sketch_NK: Tensor | None = None

    def add(self, name: str, scores: ParameterScores) -> None:
        """Add the sketches of the gradients with respect to one parameter."""
        for rows, value in scores.blocks(self.workspace):
            if self.sketch_NK is None:
                self.sketch_NK = value.new_zeros(self.rollouts, self.sketch.width)
            bucket, sign = self.sketch.of_rows(name, rows, value.shape[2], value)
            home = self.sketch_NK.device  # a model may lie on several
            self.sketch_NK.index_add_(1, bucket.to(home), value.flatten(1).mul_(sign).to(home))

    def result(self) -> NDArray[np.floating]:
        """Return a sketch a rollout."""
        if self.sketch_NK is None:
            return np.zeros((self.rollouts, self.sketch.width))
        return self.sketch_NK.cpu().numpy()


def self_products(value_ND: Tensor) -> Tensor:
    """Return all inner products of the rows, with 5/8 of the work of the whole square."""
    rollouts = len(value_ND)
    strip = max(16, -(-rollouts // 4))
    gram = value_ND.new_empty(rollouts, rollouts)
    for start in range(0, rollouts, strip):
        stop = start + strip
        gram[start:stop, start:] = value_ND[start:stop] @ value_ND[start:].T
        gram[stop:, start:stop] = gram[start:stop, stop:].T
    return gram


WIDEST = 1 << 31


def bucket_and_sign(
    name: str, coordinate: NDArray[np.integer[Any]], *, width: int, seed: int
) -> tuple[Whole, NDArray[np.int8]]:
    r"""Return the bucket and the sign of some coordinates of one parameter.

    $\langle Cs, Ct\rangle$ with $(Cs)_k = \sum_{d: h(d)=k} \epsilon_d s_d$ is unbiased for $\langle
    s, t\rangle$, with variance at most $(|s|^2|t|^2 + \langle s,t\rangle^2)/K$.

    Source: Charikar, Chen, Farach-Colton (2002), "Finding frequent items in data streams"; the hash
    is the mixing function of splitmix64.
    """
    if not 1 <= width <= WIDEST:
        raise InvalidArgumentError(
            f"a sketch has between 1 and {WIDEST} buckets; got width={width}"
        )
    key = int.from_bytes(
        hashlib.blake2b(f"{seed}\0{name}".encode(), digest_size=8).digest(), "little"
    )
    mixed = (coordinate.astype(np.uint64) + np.uint64(1)) * np.uint64(
        0x9E3779B97F4A7C15
    ) + np.uint64(key)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed ^= mixed >> np.uint64(shift)
        mixed *= np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    # The upper half chooses the bucket, the lowest bit the sign: no bit serves both.
    bucket = ((mixed >> np.uint64(32)) * np.uint64(width)) >> np.uint64(32)
    sign = (mixed & np.uint64(1)).astype(np.int8) * np.int8(2) - np.int8(1)
    return bucket.astype(np.int64), sign  # torch adds ten times faster at long integers


@frozen
class CountSketch:
    """The map of one seed and width."""

    width: int  # K, number of buckets
    seed: int  # of the map

    def of_rows(
        self, name: str, rows: range | Tensor, columns: int, like: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return bucket and sign of the coordinates of some rows of a parameter."""
        import torch

        number = np.arange(rows.start, rows.stop) if isinstance(rows, range) else rows.cpu().numpy()
        coordinate = (number[:, None] * columns + np.arange(columns)).reshape(-1)
        hashed = bucket_and_sign(name, coordinate, width=self.width, seed=self.seed)
        bucket, sign = (torch.from_numpy(part).to(like.device) for part in hashed)
        return bucket, sign.to(like.dtype)
