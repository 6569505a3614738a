"""Missing values: NaN means not observed, and every density fills it in its own way.

    python examples/missing.py

A fifth of the entries of the wine table is hidden.  Each model is fitted to what is left and asked for
the mean of the hidden entries; draws of them show how sure it is.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_wine

import freeenergy as fe


def main(*, columns: int = 6, share: float = 0.2, seed: int = 0) -> dict[str, float]:
    truth = load_wine().data[:, :columns]
    hidden = np.random.default_rng(seed).random(truth.shape) < share
    X = np.where(hidden, np.nan, truth)
    scale = truth.std(axis=0)

    def error(filled: np.ndarray) -> float:
        """Root mean square error in standard deviations of the columns."""
        return float(np.sqrt(np.mean(((filled - truth) / scale)[hidden] ** 2)))

    errors = {"column means": error(np.where(hidden, np.nanmean(X, axis=0), truth))}
    models = {
        "GaussianDensity": fe.GaussianDensity(),
        "FactorAnalysis(2)": fe.FactorAnalysis(2),
        "GaussianMixture(3)": fe.GaussianMixture(3, fe.distributions.Diagonal(), n_init=3, random_state=0),
    }
    for name, model in models.items():
        filled = model.fit(X).impute(X)
        assert np.array_equal(filled[~hidden], truth[~hidden])  # what was observed is left alone
        errors[name] = error(filled)
    for name, value in errors.items():
        print(f"{name:20s} error {value:.3f} standard deviations")

    # conditional draws: how often the truth lies between the 5 % and the 95 % point of the draws
    draws = models["GaussianDensity"].sample(200, random_state=0, given=X)
    low, high = np.quantile(draws, [0.05, 0.95], axis=0)
    coverage = float(np.mean(((low <= truth) & (truth <= high))[hidden]))
    print(f"90 % intervals of GaussianDensity hold {coverage:.0%} of the hidden values")
    return errors | {"coverage": coverage}


if __name__ == "__main__":
    main()
