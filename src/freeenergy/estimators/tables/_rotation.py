"""Rotations that make loadings easy to read."""

from __future__ import annotations

import abc
import dataclasses
import itertools
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
        rotation = np.eye(w.shape[1])
        for _ in range(_MOST_STEPS):
            largest = 0.0
            for i, j in itertools.combinations(range(w.shape[1]), 2):
                # Kaiser's angle, at which the criterion is largest in the plane of two factors
                x, y = (w @ rotation[:, [i, j]]).T
                u, v = x**2 - y**2, 2 * x * y
                above = 2 * (np.mean(u * v) - np.mean(u) * np.mean(v))
                angle = np.arctan2(above, np.var(u) - np.var(v)) / 4
                c, s = np.cos(angle), np.sin(angle)
                rotation[:, [i, j]] = rotation[:, [i, j]] @ np.array([[c, -s], [s, c]])
                largest = max(largest, abs(angle))
            if largest < 1e-10:
                break
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
