"""A dictionary for patches of photographs: sparse sources find edges, Gaussian sources do not.

    python examples/dictionary.py [picture.png]

Patches are whitened, so that no Gaussian model has anything left to say about them.  What sparse coding
finds all the same is what photographs are made of: edges of few pixels, each at a place of its own.
"""

from __future__ import annotations

import sys

import numpy as np
from sklearn.datasets import load_sample_images
from sklearn.feature_extraction.image import extract_patches_2d

import freeenergy as fe
from freeenergy.models import LaplaceSource


def whitened_patches(n: int, size: int, *, seed: int = 0) -> np.ndarray:
    """Patches of two photographs without their means, all directions but the faintest of variance one."""
    greys = [image.mean(axis=2)[::2, ::2] / 255 for image in load_sample_images().images]
    rows = np.concatenate(
        [extract_patches_2d(grey, (size, size), max_patches=n // 2, random_state=seed) for grey in greys]
    ).reshape(-1, size**2)
    rows -= rows.mean(axis=1, keepdims=True)
    values, vectors = np.linalg.eigh(np.cov(rows.T))
    # the faintest directions are noise of the camera
    kept = values > np.quantile(values, 0.3)
    return rows @ (vectors[:, kept] / np.sqrt(values[kept])) @ vectors[:, kept].T


def concentration(fields: np.ndarray) -> np.ndarray:
    """How few pixels hold a field: 1 for a single one, 1 / pixels where all are equal."""
    power = fields**2
    return (power**2).sum(axis=1) / power.sum(axis=1) ** 2


def main(
    picture: str | None = None, *, patches: int = 1200, size: int = 8, sources: int = 64, steps: int = 20
) -> dict[str, float]:
    X = whitened_patches(patches, size)
    coder = fe.SparseCoding(sources, source=LaplaceSource(2.0), max_iter=steps, tol=0.05, random_state=0)
    coder.fit(X)
    codes = coder.transform(X)
    active = float(np.mean(codes != 0))
    found = {
        "active": active,
        "sparse": float(np.median(concentration(coder.components_))),
        "patches": float(np.median(concentration(X))),
    }
    print(f"{active:.0%} of the sources are active in a patch")
    print(
        f"concentration of a column of the dictionary {found['sparse']:.3f}, of a patch {found['patches']:.3f}"
    )
    if picture is not None:
        axes = fe.plots.atoms(coder.components_, (size, size), codes, columns=16)
        axes.figure.savefig(picture, dpi=100, facecolor="white")
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
