"""Per-rollout gradients of one parameter, a few rows at a time, from the token factors that one backward pass leaves behind.

A weight matrix has the gradient `sum over tokens of left x right`: neither N gradients of a model nor those of a whole layer are ever held.
It runs no model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch

BLOCK_NUMBERS = 1 << 20  # of one block: 4 MB in single precision stay near the processor


class Workspace:
    """Memory that blocks share one after another: fresh pages cost more than the arithmetic done in them."""

    def __init__(self) -> None:
        self._buffer: torch.Tensor | None = None

    def take(self, shape: Sequence[int], like: torch.Tensor) -> torch.Tensor:
        """Return uninitialised memory that the next call hands out again."""
        import math

        size = math.prod(shape)
        buffer = self._buffer
        if buffer is None or buffer.numel() < size or buffer.dtype != like.dtype or buffer.device != like.device:
            self._buffer = buffer = like.new_empty(size)
        return buffer[:size].view(*shape)


@dataclass(frozen=True, slots=True)
class Block:
    """Some rows of the per-rollout gradients of one parameter; its memory is the next block's too."""

    rows: range | torch.Tensor  # their numbers in the parameter
    value_NRC: torch.Tensor  # N rollouts, the rows, the columns; may be written over


class ParameterScores(Protocol):
    """The gradients of N rollouts with respect to one parameter, seen as a matrix (a vector is one row)."""

    def blocks(self, workspace: Workspace) -> Iterator[Block]:
        """Yield every row that is not zero for all rollouts, a few at a time."""
        ...

    def direct_cost(self) -> float:
        """Multiplications of the Gram matrix by way of the blocks."""
        ...

    def pair_cost(self) -> float:
        """Multiplications of the Gram matrix by way of pairs of tokens."""
        ...

    def pair_gram(self) -> torch.Tensor:
        """Return the N x N inner products by way of pairs of tokens."""
        ...


@dataclass(frozen=True, slots=True)
class StoredScores:
    """Gradients that are there already, as those of biases, norms and of the general fallback."""

    value_N: torch.Tensor  # N gradients of the parameter's own shape; written over by whoever takes the blocks

    def blocks(self, workspace: Workspace) -> Iterator[Block]:  # noqa: ARG002  (of the protocol)
        """Yield the rows."""
        value = self.value_N
        matrix = value.reshape(len(value), 1 if value.ndim < 3 else value.shape[1], -1)
        rollouts, rows, columns = matrix.shape
        step = max(1, BLOCK_NUMBERS // max(1, rollouts * columns))
        for start in range(0, rows, step):
            stop = min(start + step, rows)
            yield Block(range(start, stop), matrix[:, start:stop])

    def direct_cost(self) -> float:
        """Return zero: there is no other way."""
        return 0.0

    def pair_cost(self) -> float:
        """Return infinity: there are no tokens."""
        return float("inf")

    def pair_gram(self) -> torch.Tensor:
        """Never called: the cost says so."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Use:
    """One use of a weight in the forward pass."""

    left: torch.Tensor  # (N, T, rows), or (N, T) whole numbers that stand for rows of the unit matrix
    right_NTC: torch.Tensor  # (N, T, columns); the gradient is the sum over T of the outer products

    @property
    def picks(self) -> bool:
        """Whether the left side picks rows, as an embedding does."""
        return self.left.ndim == 2


@dataclass(frozen=True, slots=True)
class TokenScores:
    """Gradients of a matrix from all its uses: a tied weight has several, and their sum has cross terms."""

    uses: tuple[Use, ...]  # one or more
    rows: int  # of the parameter

    def blocks(self, workspace: Workspace) -> Iterator[Block]:
        """Yield the rows that some rollout touches."""
        first = self.uses[0].right_NTC
        rollouts, _, columns = first.shape
        touched, picked = self._touched()
        count = self.rows if touched is None else len(touched)
        step = max(1, BLOCK_NUMBERS // (rollouts * columns))
        for start in range(0, count, step):
            stop = min(start + step, count)
            value = workspace.take((rollouts, stop - start, columns), first)
            self._fill(value, picked, start, stop)
            yield Block(range(start, stop) if touched is None else touched[start:stop], value)

    def _touched(self) -> tuple[torch.Tensor | None, list[torch.Tensor]]:
        """Where every use picks rows: those picked, and the uses' places among them; otherwise all rows count."""
        import torch

        if not all(use.picks for use in self.uses):
            return None, [use.left for use in self.uses]
        sizes = [use.left.shape[1] for use in self.uses]
        touched, place = torch.unique(torch.cat([use.left for use in self.uses], dim=1), return_inverse=True)
        return touched, list(place.split(sizes, dim=1))

    def _fill(self, value: torch.Tensor, picked: list[torch.Tensor], start: int, stop: int) -> None:
        """Write the sum over uses and tokens of the outer products for rows `start` to `stop`."""
        import torch

        written = False
        for use in self.uses:
            if use.picks:
                continue
            left = use.left[:, :, start:stop].transpose(1, 2)
            if written:
                value.baddbmm_(left, use.right_NTC)
            else:
                torch.bmm(left, use.right_NTC, out=value)
            written = True
        if not written:
            value.zero_()
        flat = value.view(-1, value.shape[-1])
        for use, place in zip(self.uses, picked, strict=True):
            if use.picks:
                rollout, token = torch.nonzero((place >= start) & (place < stop), as_tuple=True)
                row = rollout * (stop - start) + place[rollout, token] - start
                flat.index_add_(0, row, use.right_NTC[rollout, token])

    def direct_cost(self) -> float:
        """Forming the gradients, and half the products of all pairs of them."""
        rollouts, _, columns = self.uses[0].right_NTC.shape
        rows = min(self.rows, sum(use.left.numel() for use in self.uses)) if all(use.picks for use in self.uses) else self.rows
        formed = sum(use.right_NTC.shape[1] for use in self.uses if not use.picks)
        return rollouts * rows * columns * (formed + rollouts / 2)

    def pair_cost(self) -> float:
        """Two products a pair of tokens, half of all pairs, and what going through them costs besides."""
        tokens = sum(use.left.shape[0] * use.left.shape[1] for use in self.uses)
        rows = sum(0 if use.picks else self.rows for use in self.uses) / len(self.uses)
        return tokens**2 / 2 * (rows + self.uses[0].right_NTC.shape[2] + 64)

    def pair_gram(self) -> torch.Tensor:
        r"""Return $\sum_{t,u} (l_{nt} \cdot l_{mu})(r_{nt} \cdot r_{mu})$ over all pairs of tokens of all uses."""
        rollouts, tokens, _ = self.uses[0].right_NTC.shape
        gram = self.uses[0].right_NTC.new_zeros(rollouts, rollouts)
        step = max(1, int((BLOCK_NUMBERS / 2) ** 0.5) // tokens)
        for start in range(0, rollouts, step):
            for other in range(start, rollouts, step):
                here, there = slice(start, start + step), slice(other, other + step)
                part = sum(pair_products(one, two, here, there) for one in self.uses for two in self.uses)
                gram[here, there] = part
                if start != other:
                    gram[there, here] = part.T  # type: ignore[union-attr]
        return gram


def pair_products(one: Use, two: Use, here: slice, there: slice) -> torch.Tensor:
    """Return the inner products of one use's gradients with another's."""
    right, other_right = one.right_NTC[here], two.right_NTC[there]
    product = right.flatten(0, 1) @ other_right.flatten(0, 1).T
    product *= left_products(one.left[here].flatten(0, 1), two.left[there].flatten(0, 1))
    shape = (len(right), right.shape[1], len(other_right), other_right.shape[1])
    return product.view(shape).sum((1, 3))


def left_products(one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
    """Return all inner products of left factors, where a whole number stands for a row of the unit matrix."""
    if one.ndim == 1 and two.ndim == 1:
        return one[:, None] == two[None, :]
    if one.ndim == 1:
        return two[:, one].T
    if two.ndim == 1:
        return one[:, two]
    return one @ two.T
