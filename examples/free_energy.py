"""One free energy, four recognitions: exact, a point, a Gaussian for each row, a network.

    python examples/free_energy.py

F(q) = E_q[e(x, z)] − H[q] = −log p(x) + KL(q ‖ p(z|x)).  The model is a linear-Gaussian one, where −log
p(x) is known, so that what each recognition loses can be read off: it is its KL from the posterior.
"""

from __future__ import annotations

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from freeenergy.distributions import Diagonal, kl_divergence
from freeenergy.inference import (
    Amortised,
    Exact,
    LocalGaussian,
    Point,
    Quadratic,
    QuasiNewton,
    free_energy,
)
from freeenergy.learning import Gradient, fit
from freeenergy.models import GaussianEncoder, LinearGaussian
from freeenergy.nn import mlp


class Pair(eqx.Module):
    """A model and a recognition network that are learned together."""

    model: LinearGaussian
    encoder: GaussianEncoder


def objective(pair: Pair, batch, key):
    """The mean free energy, with E_q[e] in closed form: e is quadratic in z."""
    recognition = Amortised(pair.encoder, expectation=Quadratic())
    return batch.mean(jax.vmap(lambda x: free_energy(pair.model.energy, recognition, x, key=key))(batch.x))


def main(*, epochs: int = 200) -> dict[str, float]:
    # two factors that are correlated in the posterior, so that independent coordinates lose something
    loading = jnp.array([[1.0, 0.8], [0.9, 1.0], [1.0, 1.2]])
    model = LinearGaussian(loading, jnp.zeros(3), Diagonal(jnp.full(3, 0.5)))
    key = jax.random.key(0)
    X = jax.vmap(lambda k: model.sample(key=k))(jax.random.split(key, 200))

    network = mlp(3, 4, width=32, depth=1, dtype=float, key=jax.random.key(1))
    pair = Pair(model, GaussianEncoder(network))
    only_encoder = eqx.tree_at(
        lambda p: p.model, jax.tree.map(eqx.is_inexact_array, pair), jax.tree.map(lambda _: False, model)
    )
    learner = Gradient(optax.adam(3e-3), objective, batch_size=64, learnable=only_encoder)
    encoder = fit(pair, learner, X, key=key, max_iter=epochs).model.encoder

    recognitions = {
        "exact": Exact(model.posterior, expectation=Quadratic()),
        "local Gaussian": LocalGaussian(2, samples=512, expectation=Quadratic()),
        "amortised": Amortised(encoder, expectation=Quadratic()),
        "point": Point(jnp.zeros(2), QuasiNewton()),
    }
    x = X[0]
    evidence = -float(model.log_prob(x))
    print(f"−log p(x) = {evidence:.4f}")
    lost = {}
    for name, recognition in recognitions.items():
        value = float(free_energy(model.energy, recognition, x, key=key))
        lost[name] = value - evidence
        note = ""
        if name in ("local Gaussian", "amortised"):
            gap = float(kl_divergence(recognition(partial(model.energy, x), x), model.posterior(x)))
            note = f", KL from the posterior {gap:.4f}"
        print(f"{name:15s} F = {value:.4f}, F + log p(x) = {lost[name]:.4f}{note}")
    print("(the entropy of a point is left out: its F is the least energy, which bounds nothing)")
    return lost


if __name__ == "__main__":
    main()
