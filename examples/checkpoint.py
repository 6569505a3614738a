"""Stop and go on: a fit that is killed continues from its file, to the same bits.

    python examples/checkpoint.py

The state of a fit (model, optimiser, chains, history) is written to one file now and then, and at the
end.  The same call with the same file goes on from there; a file of another fit is refused.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import jax
import numpy as np
import optax

import freeenergy as fe
from freeenergy.bijections import ShiftScale
from freeenergy.learning import Gradient, fit, negative_log_likelihood
from freeenergy.models import coupling_flow


def main(*, epochs: int = 40) -> bool:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(256, 2)).astype(np.float32)
    X[:, 1] += X[:, 0] ** 2
    start = coupling_flow(2, ShiftScale(), layers=4, width=16, key=jax.random.key(0))
    learner = Gradient(optax.adam(5e-3), negative_log_likelihood, batch_size=64)
    key = jax.random.key(1)

    whole = fit(start, learner, X, key=key, max_iter=epochs)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "flow.safetensors"
        first = fit(start, learner, X, key=key, max_iter=epochs // 4, checkpoint=fe.Checkpoint(file))
        print(f"stopped: {first.reason}; objective {first.history['objective'][-1]:.4f}")
        rest = fit(start, learner, X, key=key, max_iter=epochs, checkpoint=fe.Checkpoint(file))
        print(f"resumed: {rest.n_iter} iterations in all; objective {rest.history['objective'][-1]:.4f}")
        other = coupling_flow(2, ShiftScale(), layers=2, width=16, key=jax.random.key(0))
        try:
            fit(other, learner, X, key=key, max_iter=epochs, checkpoint=fe.Checkpoint(file))
        except ValueError as error:
            print("refused:", str(error).replace(folder, "…"))
    leaves = zip(jax.tree.leaves(whole.model), jax.tree.leaves(rest.model), strict=True)
    same = all(np.array_equal(a, b) for a, b in leaves if isinstance(a, jax.Array))
    print("the same bits as without a stop:", same)
    return same


if __name__ == "__main__":
    main()
