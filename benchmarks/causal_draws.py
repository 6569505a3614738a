from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from freeenergy.distributions import Bernoulli, Given
from freeenergy.models import AutoregressiveModel, Head
from freeenergy.nn import CausalTransformer

from ._race import Outcome, Workload, race

PIXELS, WIDTH, DEPTH, HEADS, IMAGES = 256, 64, 2, 4, 4


def run(quick: bool) -> Outcome:
    pixels = 64 if quick else PIXELS
    network = CausalTransformer(WIDTH, DEPTH, HEADS).build(pixels, 2, 1, key=jax.random.key(0))
    # a network that says something; a new one says nothing
    loud = np.random.default_rng(0).normal(size=network.last.shape).astype(np.float32)
    network = eqx.tree_at(lambda n: n.last, network, jnp.asarray(loud))
    coins = Head.of([Given(Bernoulli(jnp.full(1, 0.5, jnp.float32)))] * pixels, tuple(range(pixels)))
    coins = jax.tree.map(
        lambda a: a.astype(jnp.float32) if eqx.is_inexact_array(a) else a, coins, is_leaf=eqx.is_array
    )
    model = AutoregressiveModel(network, (coins,), jnp.zeros((pixels, 1), jnp.float32), jnp.arange(pixels))
    keys = jax.random.split(jax.random.key(1), IMAGES)

    def anew(model: AutoregressiveModel, *, key: Array) -> Array:
        """A draw for each pixel of which all pixels are looked at again."""

        def visit(x: Array, at: Any) -> tuple[Array, None]:
            place, k = at
            chance = model.conditional_means(x)[place]
            return x.at[place].set(jax.random.bernoulli(k, chance).astype(x.dtype)), None

        start = jnp.zeros(pixels, jnp.float32)
        return jax.lax.scan(visit, start, (jnp.arange(pixels), jax.random.split(key, pixels)))[0]

    @eqx.filter_jit
    def cached(model: AutoregressiveModel, keys: Array) -> Array:
        return jax.vmap(lambda k: model.sample(key=k))(keys)

    @eqx.filter_jit
    def uncached(model: AutoregressiveModel, keys: Array) -> Array:
        return jax.vmap(lambda k: anew(model, key=k))(keys)

    def judge(a: np.ndarray, b: np.ndarray) -> tuple[bool, str]:
        same = np.array_equal(a, b)
        return same, "the same draws" if same else f"{(a != b).mean():.0%} of the pixels differ"

    return race(lambda: np.asarray(cached(model, keys)), lambda: np.asarray(uncached(model, keys)), judge)


WORKLOAD = Workload(
    f"causal transformer, {DEPTH} blocks of {WIDTH}: {IMAGES} draws of {PIXELS} binary pixels",
    "itself without a cache",
    10,
    run,
)
