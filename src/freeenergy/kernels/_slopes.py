"""How sums over a Gram matrix change with the parameters of the kernel."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._core import bucket
from ._base import AbstractKernel, Product, Scaled, Sum
from ._vectors import RBF


@jax.jit
def _by_program(kernel: AbstractKernel, x: Array, weight: Array) -> AbstractKernel:
    return jax.grad(lambda k: jnp.vdot(weight, k.gram(x)))(kernel)


@functools.singledispatch
def gram_slope(kernel: Any, x: np.ndarray, weight: np.ndarray, gram: np.ndarray) -> list[np.ndarray]:
    """The slope of Σ weight · K in each parameter of the kernel, in the order of its leaves.

    Kernels without a formula of their own have it by JAX, in a program for a few sizes.

    Args:
        kernel: k.
        x: rows, complete.
        weight: a number for each pair of rows.
        gram: K = k.gram(x), which whoever asks has.

    >>> x = np.array([[0.0], [1.0]])
    >>> kernel = 2.0 * RBF()
    >>> [round(float(slope), 4) for slope in gram_slope(kernel, x, np.ones((2, 2)), kernel.gram(x))]
    [2.4261, 3.2131]
    """
    size, rows = len(x), bucket(len(x))
    wide, square = np.zeros((rows, x.shape[1])), np.zeros((rows, rows))
    wide[:size], square[:size, :size] = x, weight
    return [np.asarray(slope) for slope in jax.tree.leaves(_by_program(kernel, wide, square))]  # pyright: ignore[reportArgumentType]


@gram_slope.register
def _(kernel: Scaled, x: np.ndarray, weight: np.ndarray, gram: np.ndarray) -> list[np.ndarray]:
    size = np.asarray(kernel.variance)
    inner = gram_slope(kernel.kernel, x, weight * size, gram / size)
    return [*inner, np.asarray(np.vdot(weight, gram) / size)]


@gram_slope.register
def _(kernel: Sum, x: np.ndarray, weight: np.ndarray, gram: np.ndarray) -> list[np.ndarray]:
    second = kernel.second.gram(x)
    first = gram_slope(kernel.first, x, weight, gram - second)
    return [*first, *gram_slope(kernel.second, x, weight, second)]


@gram_slope.register
def _(kernel: Product, x: np.ndarray, weight: np.ndarray, gram: np.ndarray) -> list[np.ndarray]:
    first, second = kernel.first.gram(x), kernel.second.gram(x)
    slopes = gram_slope(kernel.first, x, weight * second, first)
    return [*slopes, *gram_slope(kernel.second, x, weight * first, second)]


@gram_slope.register
def _(kernel: RBF, x: np.ndarray, weight: np.ndarray, gram: np.ndarray) -> list[np.ndarray]:
    # Σ w k (x − y)² / ℓ³, with the square multiplied out about a common centre
    scale, z = np.asarray(kernel.lengthscale), x - x.mean(axis=0)
    shares = weight * gram
    squares = (shares.sum(axis=0) + shares.sum(axis=1)) @ z**2 - 2 * (z * (shares @ z)).sum(axis=0)
    return [np.asarray(squares / scale**3 if scale.ndim else squares.sum() / scale**3)]
