"""Rows that are made when they are needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .._core import AbstractBatches, AbstractSource, Visit


class Simulator(AbstractBatches):
    """Rows that are drawn anew for every batch, without end: none is seen twice.

    It takes the place of data in `fit`; the learner says how many rows make a batch.

    Attributes:
        draw: `key → row`, one observation (an array, or a tree of arrays).
        rows: how many make an epoch.

    >>> import optax
    >>> from freeenergy.distributions import Diagonal, Gaussian
    >>> from freeenergy.learning import Gradient, fit, negative_log_likelihood
    >>> coins = Simulator(lambda key: 3.0 + jax.random.normal(key, (1,)), rows=4096)
    >>> start = Gaussian(jnp.zeros(1), Diagonal(jnp.ones(1)))
    >>> learner = Gradient(optax.sgd(0.1), negative_log_likelihood)
    >>> found = fit(start, learner, coins, key=jax.random.key(0), max_iter=10).model
    >>> bool(abs(found.mean[0] - 3) < 0.1)
    True
    """

    words: ClassVar[str] = "rows that are made from a key"
    draw: Callable[[Array], Any]
    rows: int = eqx.field(static=True)

    @property
    def devices(self) -> None:
        return None

    def placed(self, needs: type[AbstractSource]) -> Simulator:
        return self

    def first_batch(self, size: int | None, *, key: Array) -> tuple[Any, Array]:
        count = self.rows if size is None else size
        x = jax.vmap(self.draw)(jax.random.split(key, count))
        kinds = [a.dtype for a in jax.tree.leaves(x) if jnp.issubdtype(a.dtype, jnp.floating)]
        return x, jnp.ones(count, kinds[0] if kinds else jnp.float64)

    def epoch(self, visit: Visit, carry: Any, size: int | None, *, key: Array) -> tuple[Any, Array]:
        """Visits ⌈rows / size⌉ batches, each full."""
        count = self.rows if size is None else size
        batches = -(-self.rows // count)

        def body(i: Array, carry: Any) -> Any:
            x, weight = self.first_batch(size, key=jax.random.fold_in(key, i))
            return visit(carry, x, weight / count, jnp.asarray(count, jnp.int32), i)

        return jax.lax.fori_loop(0, batches, body, carry), jnp.asarray(batches * count, float)
