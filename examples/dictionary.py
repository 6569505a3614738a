"""A dictionary for patches of photographs, of which a few pieces make up each patch.

    python examples/dictionary.py [picture.png]

Patches are whitened, so that no Gaussian model has anything left to say about them.  Sparse sources find
pieces all the same: for a given noise, each patch is a sum of a third of them.
"""

from __future__ import annotations

import sys

import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_sample_images
from sklearn.feature_extraction.image import extract_patches_2d

import freeenergy as fe
from freeenergy import models
from freeenergy.learning import EM
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


def main(
    picture: str | None = None, *, patches: int = 800, size: int = 6, sources: int = 36, steps: int = 30
) -> dict[str, float]:
    X = whitened_patches(patches, size)
    source = LaplaceSource(2.0)
    # the noise stays as it is, or it would be explained away by sources that are never at rest
    shape = models.SparseCoding(jnp.zeros((size**2, sources)), jnp.zeros(size**2), jnp.array(1.0), source)
    learner = EM(tol=0.1, learnable=fe.freeze(shape, lambda m: m.precision))
    coder = fe.SparseCoding(sources, source=source, learner=learner, max_iter=steps, random_state=0).fit(X)
    codes = coder.transform(X)
    rest = X - codes @ coder.components_ - coder.scaling_.invert(np.asarray(coder.model_.mean))
    found = {"active": float(np.mean(codes != 0)), "explained": float(1 - rest.var() / X.var())}
    share, part = found.values()
    print(f"{share:.0%} of the sources are active in a patch, and explain {part:.0%} of it")
    if picture is not None:
        axes = fe.plots.atoms(coder.components_, (size, size), codes, columns=12)
        axes.figure.savefig(picture, dpi=100, facecolor="white")
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
