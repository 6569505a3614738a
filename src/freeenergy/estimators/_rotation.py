"""Rotations that make loadings easy to read."""

from __future__ import annotations

import abc
import dataclasses
from typing import NamedTuple

import numpy as np

_MOST_STEPS = 1000


class Rotated(NamedTuple):
    """Factors seen along other axes: x = μ + W z + ε = μ + (W R)(R⁻¹ z) + ε.

    Attributes:
        components: (W R)ᵀ, a row per factor.
        rotation: R.
        covariance: of the factors R⁻¹z; the identity if the rotation is orthogonal.
    """

    components: np.ndarray
    rotation: np.ndarray
    covariance: np.ndarray


class AbstractRotation(abc.ABC):
    """Chooses R for loadings W."""

    @abc.abstractmethod
    def __call__(self, loadings: np.ndarray) -> np.ndarray:
        """R, for `loadings` with a row per column of the data."""


@dataclasses.dataclass(frozen=True)
class Varimax(AbstractRotation):
    """The orthogonal R under which the squared loadings of each factor vary most.

        max over R of Σ_j var_d (Λ_dj²),   Λ = W R

    Args:
        normalise: whether rows of W count with length one (Kaiser), so that columns of the data
            with little in common with the others have a say.
    """

    normalise: bool = True

    def __call__(self, loadings: np.ndarray) -> np.ndarray:
        length = np.linalg.norm(loadings, axis=1, keepdims=True)
        w = loadings / np.where(length > 0, length, 1.0) if self.normalise else loadings
        rotation, reached = np.eye(w.shape[1]), 0.0
        for _ in range(_MOST_STEPS):
            turned = w @ rotation
            # the gradient of the criterion, and the rotation nearest to it
            gradient = w.T @ (turned**3 - turned * np.mean(turned**2, axis=0))
            left, lengths, right = np.linalg.svd(gradient)
            rotation = left @ right
            if lengths.sum() <= reached * (1 + 1e-12):
                break
            reached = lengths.sum()
        return rotation


@dataclasses.dataclass(frozen=True)
class Promax(AbstractRotation):
    """An oblique R: from varimax towards its loadings with small ones made smaller.

    The target is |Λ|^power with the signs of Λ; R is its least-squares regression on Λ, scaled so
    that the factors, which may now be correlated, have variance one.

    Args:
        power: 4 by custom; 1 leaves varimax as it is.
        normalise: as in `Varimax`.
    """

    power: float = 4.0
    normalise: bool = True

    def __call__(self, loadings: np.ndarray) -> np.ndarray:
        rotation = Varimax(self.normalise)(loadings)
        turned = loadings @ rotation
        target = np.sign(turned) * np.abs(turned) ** self.power
        oblique = np.linalg.lstsq(turned, target, rcond=None)[0]
        spread = np.sqrt(np.diagonal(np.linalg.inv(oblique.T @ oblique)))
        return rotation @ oblique * spread
