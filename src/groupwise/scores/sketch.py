"""Count-sketches of gradients: a fixed signed hash of every coordinate into a few hundred or thousand buckets.

The map depends on the seed, the parameter's name and the coordinate's place in it alone: it is the same for every batch, every subset of
parameters and every machine, so sketches made apart can be put together. It computes no gradient.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from groupwise.errors import InvalidArgumentError

if TYPE_CHECKING:
    import torch

CACHED_COORDINATES = 1 << 23  # 9 bytes each: 72 MB; larger models have their hash made anew for every micro-batch
WIDEST = 1 << 31


def bucket_and_sign(
    name: str, coordinate: NDArray[np.integer[Any]], *, width: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
    r"""Return the bucket and the sign of some coordinates of one parameter.

    $\langle Cs, Ct\rangle$ with $(Cs)_k = \sum_{d: h(d)=k} \epsilon_d s_d$ is unbiased for $\langle s, t\rangle$, with variance at most
    $(|s|^2|t|^2 + \langle s,t\rangle^2)/K$.

    Source: Charikar, Chen, Farach-Colton (2002), "Finding frequent items in data streams"; the hash is the mixing function of splitmix64.
    """
    if not 1 <= width <= WIDEST:
        raise InvalidArgumentError(f"a sketch has between 1 and {WIDEST} buckets; got width={width}")
    key = int.from_bytes(hashlib.blake2b(f"{seed}\0{name}".encode(), digest_size=8).digest(), "little")
    mixed = (coordinate.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(key)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed ^= mixed >> np.uint64(shift)
        mixed *= np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    # The upper half chooses the bucket, the lowest bit the sign: no bit serves both.
    bucket = ((mixed >> np.uint64(32)) * np.uint64(width)) >> np.uint64(32)
    sign = (mixed & np.uint64(1)).astype(np.int8) * np.int8(2) - np.int8(1)
    return bucket.astype(np.int64), sign  # torch adds ten times faster at long integers


@dataclass(slots=True)
class CountSketch:
    """The map of one seed and width; it remembers the hash of small models."""

    width: int  # K, number of buckets
    seed: int  # of the map
    _kept: dict[tuple[str, int, int, str], tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)
    _kept_coordinates: int = 0

    def of_rows(self, name: str, rows: range | torch.Tensor, columns: int, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return bucket and sign of the coordinates of some rows of a parameter."""
        import torch

        key = (name, rows.start, rows.stop, str(like.device)) if isinstance(rows, range) else None
        if key is not None and key in self._kept:
            bucket, sign = self._kept[key]
            return bucket, sign.to(like.dtype)
        number = np.arange(rows.start, rows.stop) if isinstance(rows, range) else rows.cpu().numpy()
        coordinate = (number[:, None] * columns + np.arange(columns)).reshape(-1)
        hashed = bucket_and_sign(name, coordinate, width=self.width, seed=self.seed)
        bucket, sign = (torch.from_numpy(part).to(like.device) for part in hashed)
        if key is not None and self._kept_coordinates + len(coordinate) <= CACHED_COORDINATES:
            self._kept[key] = bucket, sign
            self._kept_coordinates += len(coordinate)
        return bucket, sign.to(like.dtype)
