"""Networks that are told a label."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from .._core import buffer, on_device


class ToldLabel(eqx.Module):
    """A network that is told a label: `network` of the entries of x, followed by the numbers of the label.

    Attributes:
        network: of both, and perhaps of more, such as the log-SNR.
        code: the numbers of the label; zeros tell of none.

    >>> network = ToldLabel(lambda x: 2 * x, jnp.array([1.0]))
    >>> network(jnp.array([3.0, 4.0])).tolist()
    [6.0, 8.0, 2.0]
    """

    network: Callable[..., Array]
    code: Array = buffer()

    def __call__(self, x: Float[Array, " dim"], *more: Array) -> Array:
        return self.network(jnp.concatenate([x, self.code.astype(x.dtype)]), *more)


def told_label(network: Callable[..., Array], size: int, dtype: Any) -> Callable[..., Array]:
    """A network that is told a label by `size` numbers, of none at first; `network` itself by none."""
    return ToldLabel(network, on_device(np.zeros(size, dtype))) if size else network


def tell(model: Any, code: Array) -> Any:
    """`model` with all its networks that are told a label told this one.

    >>> tell(ToldLabel(lambda x: x, jnp.zeros(1)), jnp.ones(1))(jnp.array([3.0])).tolist()
    [3.0, 1.0]
    """

    def told(part: Any) -> Any:
        return dataclasses.replace(part, code=code) if isinstance(part, ToldLabel) else part

    return jax.tree.map(told, model, is_leaf=lambda part: isinstance(part, ToldLabel))


def label_codes(labels: int) -> np.ndarray:
    """The numbers of each label, and zeros for none in the last row.

    They are indicators times √labels, whose mean square is one; a label that is the only one has none.

    >>> label_codes(2).round(4).tolist()
    [[1.4142, 0.0], [0.0, 1.4142], [0.0, 0.0]]
    >>> label_codes(1).shape
    (2, 0)
    """
    size = labels if labels > 1 else 0
    return labels**0.5 * np.eye(labels + 1, size)
