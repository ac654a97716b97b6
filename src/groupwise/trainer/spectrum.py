"""Leading eigenvalues of a symmetric matrix that is known by its products, and the products with minus a policy's Hessian.

Lanczos with restarts, as ARPACK does it. It knows no task and no reward but the world it is handed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from groupwise.arrays import Float
from groupwise.errors import InvalidArgumentError

if TYPE_CHECKING:
    from torch import Tensor

    from groupwise.trainer.exact import ExactWorld


@dataclass(frozen=True, slots=True)
class Spectrum:
    """Leading eigenvalues of a symmetric matrix that is known by its products."""

    value_K: Float  # largest first
    vector_DK: Float  # orthonormal
    residual_K: Float  # $|Av - wv|$: an eigenvalue of the matrix lies within that of each value
    products: int  # how many products with the matrix it took


def leading_modes(
    product: Callable[[Float], Float], size: int, count: int, *, which: Literal["largest", "magnitude"] = "largest", tolerance: float = 1e-8
) -> Spectrum:
    """Return the leading eigenvalues of a symmetric matrix by Lanczos (ARPACK, through SciPy).

    Source: Lehoucq, Sorensen, Yang (1998), ARPACK Users' Guide.
    """
    from scipy.sparse.linalg import LinearOperator, eigsh

    if not 0 < count < size:
        raise InvalidArgumentError(f"expected a number of eigenvalues between 1 and {size - 1}, got {count}")
    made = 0

    def counted(vector: Any) -> Float:
        nonlocal made
        made += 1
        return product(np.array(vector, dtype=np.float64).ravel())

    operator = LinearOperator((size, size), matvec=counted, dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(size)  # the same start gives the same signs of the vectors
    found, vectors = eigsh(operator, k=count, which="LA" if which == "largest" else "LM", tol=tolerance, v0=start)
    order = np.argsort(-found if which == "largest" else -np.abs(found))
    value_K, vector_DK = found[order], vectors[:, order]
    images = np.stack([product(column) for column in vector_DK.T], axis=1)
    return Spectrum(value_K, vector_DK, np.linalg.norm(images - vector_DK * value_K, axis=0), made)


def curvature(world: ExactWorld, parameter_D: Tensor) -> Callable[[Float], Float]:
    """Return products with minus the Hessian of the regularised objective, whose eigenvalues are stiffnesses at its maximum."""
    import torch

    from groupwise.trainer.exact import twice_differentiable

    def product(vector: Float) -> Float:
        point_D = parameter_D.detach().clone().requires_grad_()
        with twice_differentiable():
            (slope_D,) = torch.autograd.grad(world.objective(point_D), point_D, create_graph=True)
            (found_D,) = torch.autograd.grad(slope_D @ torch.as_tensor(vector).to(slope_D), point_D)
        return -np.asarray(found_D.double().numpy())

    return product
