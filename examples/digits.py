"""Fits every model of the library to the digits of scikit-learn and draws from each.

Prints the held-out code length of each model and writes a picture of samples to `demo/samples.png`
(or to the path given).  Digits are whole numbers 0 … 16; models of real numbers see them with uniform
noise added, so that their density bounds the probability of the whole number from below and all rows of
the table are bits for the same thing.  The last two models see black and white only.

    python examples/digits.py [picture] [--quick]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import jax.numpy as jnp
import matplotlib
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from sklearn.base import BaseEstimator
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import freeenergy as fe
from freeenergy.distributions import Bernoulli, Binomial, Diagonal, Full, Tied


def models(quick: bool) -> list[tuple[str, str, BaseEstimator]]:
    """Name, kind of data, estimator."""
    epochs = 2 if quick else 150
    # the number of trials is known: a pixel is a count of dark dots among sixteen
    sixteen = Binomial(jnp.full(64, 0.5), trials=16)
    flow = {"layers": 4, "width": 128, "depth": 1, "max_iter": 2 if quick else 60, "random_state": 0}
    return [
        ("Gaussian", "real", fe.GaussianDensity()),
        ("20 Gaussians, tied", "real", fe.GaussianMixture(20, Tied(Full()), random_state=0)),
        ("40 diagonal Gaussians", "real", fe.GaussianMixture(40, Diagonal(), random_state=0)),
        ("factor analysis, 16", "real", fe.FactorAnalysis(16)),
        ("probabilistic PCA, 24", "real", fe.PPCA(24)),
        ("VAE, 16 latent", "real", fe.VAE(16, width=256, max_iter=epochs, random_state=0)),
        ("spline flow", "real", fe.NormalizingFlow(**flow)),
        ("60 Binomials", "whole", fe.Mixture(60, family=sixteen, random_state=0)),
        ("60 Bernoullis", "binary", fe.Mixture(60, family=Bernoulli, random_state=0)),
        ("Boltzmann machine, 128", "binary", fe.RBM(128, max_iter=epochs, random_state=0)),
    ]


def main(picture: Path, quick: bool) -> None:
    console = Console()
    digits = load_digits().data
    noisy = digits + np.random.default_rng(0).random(digits.shape)
    seen = {"real": noisy, "whole": digits, "binary": (digits > 7).astype(float)}
    kept = {kind: train_test_split(X, test_size=0.2, random_state=0) for kind, X in seen.items()}
    table = Table(title="Held-out code length of a digit (64 pixels)")
    for title in ("model", "data", "bits", "± ", "bits per pixel", "kind", "seconds"):
        table.add_column(title, justify="left" if title in ("model", "data", "kind") else "right")
    samples = [("data", digits[:12])]
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        todo = models(quick)
        task = progress.add_task("fitting", total=len(todo))
        for name, kind, estimator in todo:
            progress.update(task, description=name)
            train, test = kept[kind]
            started = time.perf_counter()
            evidence = estimator.fit(train).evidence(test)
            seconds = time.perf_counter() - started
            bits = evidence.bits
            label = "lower bound" if kind == "real" else evidence.kind.value
            table.add_row(
                name,
                {"real": "0 … 16", "whole": "0 … 16", "binary": "0, 1"}[kind],
                f"{bits.mean():.1f}",
                f"{evidence.mean_stderr / np.log(2):.1f}",
                f"{bits.mean() / 64:.3f}",
                label,
                f"{seconds:.1f}",
            )
            samples.append((name, estimator.sample(12, random_state=0) * (16 if kind == "binary" else 1)))
            progress.advance(task)
    console.print(table)
    draw(samples, picture)
    console.print(f"Samples of each model are in {picture}.")


def draw(samples: list[tuple[str, np.ndarray]], path: Path) -> None:
    """A row of twelve images for each model."""
    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(len(samples), 12, figsize=(9.5, 0.72 * len(samples)))
    for row, (name, images) in zip(axes, samples, strict=True):
        for axis, image in zip(row, images, strict=True):
            axis.imshow(image.reshape(8, 8), cmap="gray_r", vmin=0, vmax=16)
            axis.set_xticks([])
            axis.set_yticks([])
        row[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8)
    figure.subplots_adjust(left=0.24, right=0.99, top=0.99, bottom=0.01, wspace=0.05, hspace=0.05)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    arguments = [a for a in sys.argv[1:] if a != "--quick"]
    main(Path(arguments[0] if arguments else "demo/samples.png"), "--quick" in sys.argv)
