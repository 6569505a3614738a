"""Gaussian processes whose outputs depend on each other, on the host."""

from __future__ import annotations

import jax
import numpy as np
from scipy import linalg

from ..._core import on_device
from ...inference._processes import Conditioned, condition_process, evidence_slope
from ...kernels import AbstractKernel
from ...kernels._slopes import gram_slope
from ...models import CoregionalisedProcess
from ._kernelled import AbstractEvidences, LogParameters, LogPrior

# how much of what outputs share is theirs alone at the start
_OWN = 0.2


class Parts:
    """The parameters of a process of several outputs, from one vector.

    Its order is that of the logarithms of the kernel, log κ, the loadings W, and log σ².
    """

    def __init__(self, kernel: LogParameters, theta: np.ndarray, outputs: int) -> None:
        first = len(kernel.vector)
        logs, own, loadings, noise = np.split(theta, [first, first + outputs, len(theta) - outputs])
        self.kernel: AbstractKernel = kernel.kernel(logs)
        self.own, self.noise = np.exp(own), np.exp(noise)
        self.loadings = loadings.reshape(outputs, -1)
        self.outputs = self.loadings @ self.loadings.T + np.diag(self.own)


class CoregionalisedEvidences(AbstractEvidences):
    """The evidence of outputs with the covariance B ⊗ K + noise, of those pairs that were seen."""

    def __init__(
        self,
        kernel: LogParameters,
        x: np.ndarray,
        answers: np.ndarray,
        weights: np.ndarray,
        prior: LogPrior,
    ) -> None:
        self.kernel, self.x, self.answers, self.weights, self.prior = kernel, x, answers, weights, prior
        self.row, self.output = np.nonzero(weights > 0)
        self.y, self.weight = answers[self.row, self.output], weights[self.row, self.output]

    def parts(self, theta: np.ndarray) -> Parts:
        """The parameters at a vector of them."""
        return Parts(self.kernel, theta, self.answers.shape[1])

    def told(self, gram: np.ndarray, parts: Parts) -> Conditioned:
        """The process of all outputs together."""
        whole = gram[np.ix_(self.row, self.row)] * parts.outputs[np.ix_(self.output, self.output)]
        return condition_process(whole, self.y, parts.noise[self.output], self.weight)

    def evidence(self, theta: np.ndarray, *, slope: bool = True) -> tuple[float, np.ndarray]:
        """log p(y | X), and its slope."""
        parts = self.parts(theta)
        gram = parts.kernel.gram(self.x)
        told = self.told(gram, parts)
        if not slope:
            return told.log_evidence, np.zeros(0)
        found = evidence_slope(told, parts.noise[self.output], self.weight)
        rows, outputs = self.answers.shape
        every = np.zeros((outputs * rows, outputs * rows))
        place = self.output * rows + self.row
        every[np.ix_(place, place)] = found.gram
        every = every.reshape(outputs, rows, outputs, rows)
        of_rows = np.einsum("onpm,op->nm", every, parts.outputs)
        of_outputs = np.einsum("onpm,nm->op", every, gram)
        size = len(self.kernel.vector)
        logs = self.kernel.slope(theta[:size], gram_slope(parts.kernel, self.x, of_rows, gram))
        loadings = (of_outputs + of_outputs.T) @ parts.loadings
        noise = np.bincount(self.output, weights=found.log_noise, minlength=outputs)
        return told.log_evidence, np.concatenate(
            [logs, np.diag(of_outputs) * parts.own, loadings.ravel(), noise]
        )

    def start(self, rank: int, noise: np.ndarray) -> np.ndarray:
        """The parameters to begin with: loadings are those of principal components of the answers."""
        known = np.where(self.weights > 0, self.answers, 0.0)
        second = (self.weights * known).T @ known / self.weights.sum()
        second = second / max(float(np.trace(second)) / len(second), np.finfo(float).tiny)
        values, vectors = np.linalg.eigh(second)
        values, vectors = values[::-1][:rank], vectors[:, ::-1][:, :rank]
        loadings = np.zeros((len(second), rank))
        loadings[:, : len(values)] = vectors * np.sqrt(np.maximum(values, 0.0) * (1 - _OWN))
        # a start at zero is a saddle
        loadings[:, len(values) :] = 0.1
        own = np.full(len(second), 1.0 if rank == 0 else _OWN)
        return np.concatenate([self.kernel.vector, np.log(own), loadings.ravel(), np.log(noise)])

    def process(self, theta: np.ndarray) -> CoregionalisedHost:
        """What is known of f."""
        parts = self.parts(theta)
        arrays = parts.loadings, parts.own, parts.noise, self.x, self.answers, self.weights
        model = CoregionalisedProcess(jax.tree.map(on_device, parts.kernel), *map(on_device, arrays))
        return CoregionalisedHost(model)


class CoregionalisedHost:
    """f given all answers, on the host.

    Attributes:
        model: a `freeenergy.models.CoregionalisedProcess`.
        told: the process of all outputs together.
    """

    def __init__(self, model: CoregionalisedProcess) -> None:
        arrays = model.loadings, model.own, model.noise, model.x, model.y, model.weight
        loadings, own, self.noise, self.x, y, weights = map(np.asarray, arrays)
        self.model, self.outputs = model, loadings @ loadings.T + np.diag(own)
        self.row, self.output = np.nonzero(weights > 0)
        weight, noise = weights[self.row, self.output], self.noise[self.output]
        gram = model.kernel.gram(self.x)[np.ix_(self.row, self.row)]
        self.told = condition_process(
            gram * self.outputs[np.ix_(self.output, self.output)], y[self.row, self.output], noise, weight
        )
        self.sites = np.sqrt(weight / noise)

    @property
    def size(self) -> int:
        """With how many answers a row is compared."""
        return len(self.row) * len(self.noise)

    def _halves(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The mean, (outputs, rows), and the root of what is explained, (answers, outputs, rows)."""
        across = self.model.kernel.gram(z, self.x)[:, self.row]
        cross = self.outputs[:, None, self.output] * across
        flat = (cross * self.sites).reshape(-1, len(self.row)).T
        half = linalg.solve_triangular(self.told.root, flat, lower=True, check_finite=False)
        return cross @ self.told.coefficients, half.reshape(len(self.row), len(self.noise), len(z))

    def at(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The mean and variance of f, (rows, outputs)."""
        mean, half = self._halves(z)
        prior = np.multiply.outer(np.diag(self.outputs), self.model.kernel.diagonal(z))
        # a variance next to zero has rounding below it
        return mean.T, np.maximum(prior - (half**2).sum(axis=0), 0.0).T

    def across(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The mean, and the covariance of the outputs of each row, (rows, outputs, outputs)."""
        mean, half = self._halves(z)
        prior = self.model.kernel.diagonal(z)[:, None, None] * self.outputs
        return mean.T, prior - np.einsum("aor,apr->rop", half, half)

    def together(self, z: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """The mean and covariance of the values of all outputs at all rows."""
        mean, half = self._halves(z)
        flat = half.reshape(len(half), -1)
        return [(mean.ravel(), np.kron(self.outputs, self.model.kernel.gram(z)) - flat.T @ flat)]
