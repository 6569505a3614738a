"""One temperature: a mixture becomes k-means, and cross entropy becomes the perceptron.

    python examples/soft_to_hard.py

q ∝ exp(−e/T) runs from uniform (T → ∞) through the posterior (T = 1) to the argmin (T = 0).  Only the
number changes; model, data and learner stay.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import freeenergy as fe
from freeenergy.learning import EM, Argmin, Boltzmann, Margin, fit
from freeenergy.models import Clusters


def clusters(temperatures: tuple[float, ...]) -> dict[float, np.ndarray]:
    """Centres that EM finds at each temperature, from one start."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(-1.0, 0.5, (60, 1)), rng.normal(1.5, 0.5, (60, 1))])
    start = Clusters(jnp.array([[-0.1], [0.1]]))
    found = {}
    print("EM on e(x, z) = ‖x − μ_z‖²")
    for temperature in temperatures:
        result = fit(start, EM(tol=1e-12, temperature=temperature), X, key=jax.random.key(0), max_iter=500)
        found[temperature] = np.sort(np.asarray(result.model.centroids)[:, 0])
        energies = jax.vmap(result.model.energies)(jnp.asarray(X))
        if temperature > 0:
            softness = jnp.mean(jnp.min(jax.nn.softmax(-energies / temperature), axis=1))
        else:
            softness = jnp.zeros(())
        centres = found[temperature].round(4)
        print(f"  T = {temperature:<6g} centres {centres}, least responsibility {softness:.4f}")
    hard = fe.KMeans(2, init=np.array([[-0.1], [0.1]])).fit(X)
    print(f"  KMeans     centres {np.sort(hard.cluster_centers_[:, 0]).round(4)}")
    found["KMeans"] = np.sort(hard.cluster_centers_[:, 0])
    return found


def answers(temperatures: tuple[float, ...]) -> dict[str, float]:
    """Loss of the right answer under one set of energies, for each negative phase."""
    energies, right = jnp.array([1.0, 0.4, 3.0]), 0
    losses = {}
    print("loss e(y) − F_ν of the answer y = 0 with energies", energies.tolist())
    phases = {f"Boltzmann({t:g})": Boltzmann(t) for t in temperatures}
    for name, phase in {**phases, "Argmin()": Argmin(), "Margin()": Margin()}.items():
        free, nu = phase(energies, right)
        losses[name] = float(energies[right] - free)
        print(f"  {name:15s} {losses[name]:.4f}   ν = {np.round(nu, 3)}")
    return losses


def main() -> tuple[dict, dict]:
    return clusters((4.0, 1.0, 0.1, 0.0)), answers((1.0, 0.1, 0.01, 0.0))


if __name__ == "__main__":
    main()
