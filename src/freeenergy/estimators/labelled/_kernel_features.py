"""Features of a kernel as transformers: what is linear in them is nearly a machine with that kernel."""

from __future__ import annotations

import abc
from typing import Any

import jax
import numpy as np
from jax import Array

from ..._core import Fit, Status, generator, has_nan, on_device
from ...kernels import RBF, AbstractKernel
from ...models import FourierFeatures, LandmarkFeatures
from ...shell import AbstractDensity, Rows, Scaling, Transforms, check_instance, check_int, check_numbers
from ._kernelled import DrawsInputsOnce
from ._told import told_of_kernel

# rows of features that are made at once, so that they stay in the cache
_BLOCK = 512
# an eigenvalue of this part of the largest is none
_NO_VALUE = 1e-12


class AbstractKernelFeatures(Transforms, DrawsInputsOnce):
    """Rows as features of a kernel.

    What is missing in a row is drawn 20 times from a density of the rows, and features are averaged.
    """

    def __init__(
        self,
        kernel: AbstractKernel | None = None,
        *,
        n_components: int = 100,
        standardise: bool = True,
        inputs: AbstractDensity | None = None,
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.n_components = n_components
        self.standardise = standardise
        self.inputs = inputs
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_instance(self, "kernel", AbstractKernel, optional=True)
        check_int(self, "n_components")
        check_instance(self, "standardise", bool)

    def _scaling(self, X: np.ndarray, weight: np.ndarray | None) -> Scaling:
        return Scaling.standardise(X, weight) if self.standardise else Scaling.identity(X.shape[1])

    def _start_kernel(self) -> AbstractKernel:
        return RBF() if self.kernel is None else self.kernel

    def _listed(self) -> dict[str, np.ndarray]:
        # frequencies have no name for each
        kernel = vars(self.model_).get("kernel")
        if kernel is None:
            return {}
        told = told_of_kernel(kernel, self.scaling_, self.column_names)
        return {name: part.value for name, part in told.items()}

    @abc.abstractmethod
    def _model(self, rows: Rows, rng: np.random.Generator) -> Any:
        """The map to features, of complete rescaled rows."""

    @abc.abstractmethod
    def _features(self, z: np.ndarray, out: np.ndarray) -> None:
        """Writes the features of complete rescaled rows."""

    def _learn(self, rows: Rows, key: Array) -> Fit:
        # rows and what is drawn for them are rescaled here
        whole = self._drawn_once(rows, np.empty((len(rows.x), 0)))
        return Fit(self._model(whole, generator(key)), {}, 1, Status.CONVERGED)

    def transform(self, X: Any) -> np.ndarray:
        """φ of each row."""
        z = self._read(X).z
        if not has_nan(z):
            return self._mapped(z)
        holes = np.isnan(z).any(axis=1)
        found = np.empty((len(z), self._n_features_out))
        found[~holes] = self._mapped(z[~holes])
        draws = self._input_draws(z[holes])
        found[holes] = (
            self._mapped(draws.reshape(-1, z.shape[1])).reshape(*draws.shape[:2], -1).mean(axis=0)
        )
        return found

    def _mapped(self, z: np.ndarray) -> np.ndarray:
        out = np.empty((len(z), self._n_features_out))
        for start in range(0, len(z), _BLOCK):
            self._features(z[start : start + _BLOCK], out[start : start + _BLOCK])
        return check_numbers(self, "transform", out)


class Nystroem(AbstractKernelFeatures):
    """φ(x) = k(x, Z) k(Z, Z)^(−½) for landmarks Z among the rows: φ(x)ᵀφ(y) is near to k(x, y).

    The inner products are those of the kernel's own features, projected on the span of those of Z, so that
    they are exact wherever one of the two rows is a landmark.

    Args:
        kernel: k, of `freeenergy.kernels`, as it is; None for a Gaussian kernel of length one.
        n_components: how many landmarks; as many as there are different rows, if these are fewer.
        standardise: whether the kernel sees columns in units of their standard deviations, from their
            means; else as they are.
        inputs: the density of rows from which missing entries are drawn; None for one Gaussian.
        random_state: for the landmarks.

    Attributes:
        components_: Z, in the units that the kernel sees.
        inputs_: the density of rows that what is missing is drawn from.
        model_: a `freeenergy.models.LandmarkFeatures` of rescaled rows.
        history_, n_iter_, converged_, scaling_, …: as everywhere.

    >>> X = np.random.default_rng(0).normal(size=(50, 2))
    >>> features = Nystroem(RBF(), n_components=50, standardise=False, random_state=0).fit_transform(X)
    >>> bool(np.allclose(features @ features.T, RBF().gram(X), atol=1e-6))
    True
    """

    def _model(self, rows: Rows, rng: np.random.Generator) -> LandmarkFeatures:
        kernel, share = self._start_kernel(), rows.weight / rows.weight.sum()
        size = min(self.n_components, len(rows.x))
        chosen = np.sort(rng.choice(len(rows.x), size, replace=False, p=share))
        self.components_ = rows.x[chosen]
        values, vectors = np.linalg.eigh(kernel.gram(self.components_))
        there = values > _NO_VALUE * max(values[-1], np.finfo(float).tiny)
        scale = np.where(there, 1 / np.sqrt(np.where(there, values, 1.0)), 0.0)
        root = (vectors * scale) @ vectors.T
        return LandmarkFeatures(
            jax.tree.map(on_device, kernel), on_device(self.components_), on_device(root)
        )

    def _features(self, z: np.ndarray, out: np.ndarray) -> None:
        model = self.model_
        np.matmul(model.kernel.gram(z, np.asarray(model.landmarks)), np.asarray(model.root), out=out)

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)


class RandomFourierFeatures(AbstractKernelFeatures):
    """φ(x) = √(2v/p) cos(ωᵀx + b), with random frequencies ω of the kernel and phases b from 0 to 2π.

    φ(x)ᵀφ(y) averages to k(x, y), with an error of order v/√p.  The kernel is one of differences: `RBF`,
    `Laplacian`, `Matern`, `RationalQuadratic`, their sums, products and multiples.

    Args:
        kernel: k, of `freeenergy.kernels`, as it is; None for a Gaussian kernel of length one.
        n_components: p, how many features.
        standardise: whether the kernel sees columns in units of their standard deviations, from their
            means; else as they are.
        inputs: the density of rows from which missing entries are drawn; None for one Gaussian.
        random_state: for frequencies and phases.

    Attributes:
        frequencies_: ω, a row for each column of the data, in the units that the kernel sees.
        phases_: b.
        inputs_: the density of rows that what is missing is drawn from.
        model_: a `freeenergy.models.FourierFeatures` of rescaled rows.
        history_, n_iter_, converged_, scaling_, …: as everywhere.

    >>> X = np.random.default_rng(0).normal(size=(5, 2))
    >>> model = RandomFourierFeatures(RBF(), n_components=4000, standardise=False, random_state=0).fit(X)
    >>> bool(np.allclose(model.transform(X) @ model.transform(X).T, RBF().gram(X), atol=0.1))
    True
    """

    def _model(self, rows: Rows, rng: np.random.Generator) -> FourierFeatures:
        kernel, columns = self._start_kernel(), rows.x.shape[1]
        self.frequencies_ = kernel.frequencies(self.n_components, columns, rng).T
        self.phases_ = rng.uniform(0, 2 * np.pi, self.n_components)
        variance = kernel.diagonal(rows.x[:1])[0]
        return FourierFeatures(*map(on_device, (self.frequencies_, self.phases_, variance)))

    def _features(self, z: np.ndarray, out: np.ndarray) -> None:
        np.matmul(z, self.frequencies_, out=out)
        out += self.phases_
        np.cos(out, out=out)
        out *= np.sqrt(2 * float(self.model_.variance) / self.n_components)

    @property
    def _n_features_out(self) -> int:
        return len(self.phases_)
