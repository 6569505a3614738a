"""Three densities for one table, judged on rows they have not seen.

    python examples/density.py [picture.png]

Every density reports the same quantity, log p(x) of a held-out row in the units of the data, and says
how it is known: exact, a bound or an estimate.
"""

from __future__ import annotations

import sys

import numpy as np
from sklearn.datasets import load_iris
from sklearn.model_selection import train_test_split

import freeenergy as fe
from freeenergy.distributions import Full, Tied


def held_out(models: dict, X: np.ndarray, *, seed: int = 0) -> dict[str, fe.Evidence]:
    """The evidence of held-out rows under each model."""
    train, test = train_test_split(X, test_size=0.3, random_state=seed)
    return {name: model.fit(train).evidence(test) for name, model in models.items()}


def main(picture: str | None = None, *, epochs: int = 150) -> dict[str, fe.Evidence]:
    X = load_iris().data
    models = {
        "GaussianDensity": fe.GaussianDensity(),
        "GaussianMixture(3)": fe.GaussianMixture(3, Tied(Full()), n_init=3),
        "VAE(2)": fe.VAE(2, width=32, learning_rate=3e-3, max_iter=epochs, importance_samples=200),
    }
    for model in models.values():
        model.set_params(random_state=0)
    evidence = held_out(models, X)
    print("held-out nats per row (more is better), bits per row (fewer is better), kind")
    for name, e in evidence.items():
        bits = e.bits.mean()
        print(f"{name:20s} {e.mean:8.3f} ± {e.mean_stderr:.3f} {bits:8.3f}   {e.kind.value}")
    # rows are the same, so the difference is known better than either number
    gain = evidence["GaussianMixture(3)"].nats - evidence["GaussianDensity"].nats
    error = gain.std(ddof=1) / np.sqrt(len(gain))
    print(f"mixture − Gaussian: {gain.mean():.3f} ± {error:.3f} nats per row")
    if picture is not None:
        draw(models["GaussianMixture(3)"], X, picture)
    return evidence


def draw(model: fe.GaussianMixture, X: np.ndarray, path: str) -> None:
    import matplotlib.pyplot as plt

    new = model.sample(500, random_state=0)
    plt.scatter(new[:, 2], new[:, 3], s=4, label="drawn")
    plt.scatter(X[:, 2], X[:, 3], s=8, label="data")
    plt.legend()
    plt.savefig(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
