"""Whether a matrix can be the Gram matrix of a kernel."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Definiteness(NamedTuple):
    """What the eigenvalues of a matrix say.

    Attributes:
        holds: whether it is symmetric and no eigenvalue is below zero by more than rounding.
        smallest: the smallest eigenvalue.
        largest: the largest.
        asymmetry: the largest difference of an entry and its mirror image.
    """

    holds: bool
    smallest: float
    largest: float
    asymmetry: float


def positive_definiteness(gram: Any, tol: float = 1e-10) -> Definiteness:
    """Whether cᵀKc ≥ 0 for all c, and K = Kᵀ, as Mercer's theorem asks of every Gram matrix of a kernel.

    One matrix can refute a kernel, and never prove it: other rows may have a negative eigenvalue.

    Args:
        gram: a square matrix.
        tol: what is taken for rounding, as a part of the largest eigenvalue.

    >>> positive_definiteness([[2.0, 1.0], [1.0, 2.0]])
    Definiteness(holds=True, smallest=1.0, largest=3.0, asymmetry=0.0)
    >>> positive_definiteness([[1.0, 2.0], [2.0, 1.0]]).holds
    False
    """
    matrix = np.asarray(gram, float)
    if matrix.ndim != 2 or len(matrix) != matrix.shape[1] or not len(matrix):
        raise ValueError(f"A Gram matrix has as many columns as rows. Got the shape {matrix.shape}.")
    if not np.isfinite(matrix).all():
        raise ValueError("A Gram matrix must hold finite numbers.")
    asymmetry = float(np.abs(matrix - matrix.T).max())
    values = np.linalg.eigvalsh(0.5 * (matrix + matrix.T))
    smallest, largest = float(values[0]), float(values[-1])
    room = tol * max(np.abs(values).max(), np.finfo(float).tiny)
    return Definiteness(bool(smallest >= -room and asymmetry <= room), smallest, largest, asymmetry)
