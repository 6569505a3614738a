"""Gaussian processes with Gaussian noise and all rows: evidence and laws by dense algebra, on the host."""

from __future__ import annotations

import functools

import numpy as np
from scipy import linalg

from ...inference._processes import Conditioned, condition_process, evidence_slope, process_at
from ...kernels import AbstractKernel
from ...kernels._slopes import gram_slope
from ...models import GaussianProcess
from ._kernelled import AbstractEvidences, LogParameters, LogPrior


class Evidences(AbstractEvidences):
    """The evidence of rows and answers with Gaussian noise: the parameters end with σ² of each output."""

    def __init__(
        self,
        kernel: LogParameters,
        x: np.ndarray,
        answers: np.ndarray,
        weights: np.ndarray,
        prior: LogPrior | None = None,
    ) -> None:
        self.kernel, self.x, self.answers, self.weights = kernel, x, answers, weights
        self.prior = LogPrior.none(len(kernel.vector) + answers.shape[1]) if prior is None else prior

    def parts(self, theta: np.ndarray) -> tuple[AbstractKernel, np.ndarray]:
        """The kernel and σ² at logarithms."""
        size = len(self.kernel.vector)
        return self.kernel.kernel(theta[:size]), np.exp(theta[size:])

    def some(self, rows: np.ndarray) -> Evidences:
        """The same of some of the rows."""
        return Evidences(self.kernel, self.x[rows], self.answers[rows], self.weights[rows], self.prior)

    def told(self, gram: np.ndarray, noise: np.ndarray) -> list[Conditioned]:
        """The process of each output."""
        parts = zip(self.answers.T, noise, self.weights.T, strict=True)
        return [condition_process(gram, y, float(own), weight) for y, own, weight in parts]

    def evidence(self, theta: np.ndarray, *, slope: bool = True) -> tuple[float, np.ndarray]:
        """log p(y | X), and its slope."""
        kernel, noise = self.parts(theta)
        gram = kernel.gram(self.x)
        told = self.told(gram, noise)
        value = sum(part.log_evidence for part in told)
        if not slope:
            return value, np.zeros(0)
        parts = zip(told, noise, self.weights.T, strict=True)
        found = [evidence_slope(part, float(own), weight) for part, own, weight in parts]
        size = len(self.kernel.vector)
        total = functools.reduce(np.add, [part.gram for part in found])
        slopes = gram_slope(kernel, self.x, total, gram)
        logs = self.kernel.slope(theta[:size], slopes)
        return value, np.concatenate([logs, [part.log_noise.sum() for part in found]])


class ExactProcess:
    """f given all answers, on the host.

    Attributes:
        model: a `freeenergy.models.GaussianProcess`.
        told: the process of each output.
    """

    def __init__(self, model: GaussianProcess, told: list[Conditioned] | None = None) -> None:
        self.model = model
        self.told = (
            self.seen.told(model.kernel.gram(np.asarray(model.x)), np.asarray(model.noise))
            if told is None
            else told
        )
        self.x = np.asarray(model.x)
        self.sites = np.sqrt(np.asarray(model.weight) / np.asarray(model.noise)).T

    @property
    def seen(self) -> Evidences:
        """What was fitted."""
        x, y, weight = map(np.asarray, (self.model.x, self.model.y, self.model.weight))
        return Evidences(LogParameters.of(self.model.kernel), x, y, weight)

    @property
    def size(self) -> int:
        """With how many rows a row is compared."""
        return len(self.x)

    def at(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The mean and variance of f, (rows, outputs)."""
        across, diagonal = self.model.kernel.gram(z, self.x), self.model.kernel.diagonal(z)
        found = [
            process_at(across, diagonal, told.root, sites, told.coefficients)
            for told, sites in zip(self.told, self.sites, strict=True)
        ]
        mean, variance = zip(*found, strict=True)
        return np.stack(mean, axis=1), np.stack(variance, axis=1)

    def together(self, z: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """The mean and covariance of the values at all rows, for each output."""
        across, prior = self.model.kernel.gram(z, self.x), self.model.kernel.gram(z)
        laws = []
        for told, sites in zip(self.told, self.sites, strict=True):
            half = linalg.solve_triangular(told.root, (across * sites).T, lower=True)
            laws.append((across @ told.coefficients, prior - half.T @ half))
        return laws
