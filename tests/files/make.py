"""Writes the files beside it, for later versions to read: run once when the format changes, never again."""

import json
from pathlib import Path

import numpy as np
import optax

import freeenergy as fe
from freeenergy.distributions import Bernoulli, Diagonal
from freeenergy.learning import FreeEnergy, Gradient, Optimiser


def estimators():
    """Fitted estimators by name, with the rows that they are asked about."""
    rng = np.random.RandomState(0)
    rows = np.concatenate([rng.normal(0, 1, (20, 3)), rng.normal(5, 2, (20, 3))])
    bits = (rng.rand(40, 1) < 0.5) ^ (rng.rand(40, 4) < 0.2)
    learner = Gradient(Optimiser(optax.adam, 1e-2), FreeEnergy(), batch_size=32)
    holes = rows[::8].copy()
    holes[1, 0] = np.nan
    vae = fe.VAE(1, width=4, max_iter=5, learner=learner, importance_samples=20, random_state=0)
    binary = fe.VAE(1, Bernoulli, width=4, max_iter=5, importance_samples=20, random_state=0)
    return {
        "gaussian-mixture": (fe.GaussianMixture(2, Diagonal(), random_state=0).fit(rows), holes),
        "rbm": (fe.RBM(3, max_iter=5, random_state=0).fit(bits), bits[::8].astype(float)),
        "vae": (vae.fit(rows), rows[::8]),
        "vae-bernoulli": (binary.fit(bits), bits[::8].astype(float)),
    }


def main() -> None:
    """Writes an estimator, and its answer, for each name."""
    folder = Path(__file__).parent
    for name, (model, rows) in estimators().items():
        model.save(folder / f"{name}-1.safetensors")
        answer = {"rows": rows.tolist(), "score_samples": model.score_samples(rows).tolist()}
        (folder / f"{name}-1.json").write_text(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
