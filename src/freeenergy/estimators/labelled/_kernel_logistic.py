"""Logistic regression in the features of a kernel."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from scipy import linalg
from scipy.special import log_softmax

from ..._core import Fit, Status, on_device
from ...inference import LaplaceMethod
from ...inference._latent_processes import LabelLikelihood, halved
from ...inference._processes import factorise_sites, inverse_of_sites
from ...kernels import AbstractKernel
from ...models import KernelMachine
from ...shell import AbstractDensity, Rows, check_real
from ._kernel_classifier import AbstractKernelClassifier, check_classes, for_answers


class Fitted(NamedTuple):
    """Scores of each answer, f = K a, with their coefficients, and the likelihood less the penalty."""

    coefficients: np.ndarray
    scores: np.ndarray
    value: float
    steps: int
    done: bool


def softmax_in_features(
    gram: np.ndarray, labels: np.ndarray, weight: np.ndarray, answers: int, max_iter: int, tol: float
) -> Fitted:
    """max Σ w log softmax(f)_y − ½ Σ aᵀK a over f = K a, by Newton's method with halved steps.

    A step has one system of equations for each answer and one for all (Rasmussen and Williams 2006,
    algorithm 3.3), since the curvature is a diagonal less a part that answers share.

    >>> found = softmax_in_features(np.eye(3), np.arange(3), np.ones(3), 3, 50, 1e-12)
    >>> bool(np.allclose(found.scores.sum(axis=1), 0)), found.done
    (True, True)
    """
    target = weight[:, None] * (labels[:, None] == np.arange(answers))
    a = f = np.zeros((len(gram), answers))

    def value(a: np.ndarray, f: np.ndarray) -> float:
        return float((target * log_softmax(f, axis=1)).sum() - 0.5 * (a * f).sum())

    best = value(a, f)
    for step in range(max_iter):
        chance = np.exp(log_softmax(f, axis=1))
        spread = weight[:, None] * chance
        told = spread * (f - (chance * f).sum(axis=1, keepdims=True)) + target - spread
        parts = [inverse_of_sites(factorise_sites(gram, sites), sites) for sites in np.sqrt(spread).T]
        pulled = np.stack([own @ (gram @ b) for own, b in zip(parts, told.T, strict=True)], axis=1)
        shared = linalg.solve(sum(parts), pulled.sum(axis=1), assume_a="pos", check_finite=False)
        new = told - pulled + np.stack([own @ shared for own in parts], axis=1)

        def tried(step: float, way: Any = (a, f, new, gram @ new)) -> tuple[float, Any]:
            a, f, new, target = way
            place = a + step * (new - a), f + step * (target - f)
            return value(*place), place

        moved = halved(tried, best)
        if moved is None:
            return Fitted(a, f, best, step + 1, True)
        gain, (best, (a, f)) = moved[0] - best, moved
        if gain <= tol * max(1.0, abs(best)):
            return Fitted(a, f, best, step + 1, True)
    return Fitted(a, f, best, max_iter, False)


class KernelLogisticRegression(AbstractKernelClassifier):
    """p(y | x) ∝ exp(f_y(x)) with f_y in the features of a kernel: max Σ log p(y | x) − ‖f‖² / 2C.

    The best f is a sum over rows, f_y(x) = k(x, X) a_y, found by Newton's method.  Two labels have one f,
    p = 1/(1 + exp(−f)); of more each has its own.  With `kernels.Linear` it is logistic regression without
    a constant, and a Gaussian process classifier has the same f̂ for its likeliest function.

    Args:
        kernel: k, of `freeenergy.kernels`, as it is; None for a Gaussian kernel of length one.
        C: one over the penalty.
        standardise: whether the kernel sees columns in units of their standard deviations, from their
            means; else as they are.
        max_iter, tol: the most steps, and the gain, as a part of the value, with which it stops.
        inputs: the density of rows and labels from which missing entries of rows are drawn; None for one
            Gaussian.  In fit they are drawn once.

    Attributes:
        classes_: the labels.
        objective_: Σ log p(y | x) − ‖f‖² / 2C.
        kernel_: the kernel.
        columns_, inputs_: what columns are called, and the density that what is missing is drawn from.
        model_: a `freeenergy.models.KernelMachine` of rescaled rows.
        history_, n_iter_, converged_, scaling_, …: as everywhere.

    >>> x = np.linspace(0.0, 6.0, 30)[:, None]
    >>> model = KernelLogisticRegression(C=10.0).fit(x, np.sin(x[:, 0]) > 0)
    >>> model.predict([[1.0], [4.0]]).tolist()
    [True, False]
    """

    def __init__(
        self,
        kernel: AbstractKernel | None = None,
        *,
        C: float = 1.0,
        standardise: bool = True,
        max_iter: int = 100,
        tol: float = 1e-12,
        inputs: AbstractDensity | None = None,
    ) -> None:
        self.kernel = kernel
        self.C = C
        self.standardise = standardise
        self.max_iter = max_iter
        self.tol = tol
        self.inputs = inputs

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_real(self, "C", closed=False)

    def _learn(self, rows: Rows, key: Array) -> Fit:
        kernel, (rows, _) = self._start_kernel(), self._merged(rows)
        assert rows.known is not None
        labels = rows.known[:, 0].astype(int)
        check_classes(self, labels)
        gram = self.C * kernel.gram(rows.x)
        answers = len(self.classes_)
        slope = 1.0
        if answers == 2:
            found = LaplaceMethod(self.max_iter)(gram, LabelLikelihood(2.0 * labels - 1, rows.weight))
            self.objective_ = found.log_evidence + found.factor.log_det
            coefficients, offset = for_answers(found.coefficients[:, None], np.zeros(1))
            # odds are those of f and −f
            slope, steps, done = 0.5, found.steps, found.steps < self.max_iter
        else:
            fitted = softmax_in_features(gram, labels, rows.weight, answers, self.max_iter, self.tol)
            coefficients, offset, self.objective_ = fitted.coefficients, np.zeros(answers), fitted.value
            steps, done = fitted.steps, fitted.done
        arrays = self.C * coefficients, offset, slope, rows.x
        model = KernelMachine(jax.tree.map(on_device, kernel), *map(on_device, arrays))
        history = {"objective": np.array([-self.objective_ / rows.weight.sum()])}
        return Fit(model, history, steps, Status.CONVERGED if done else Status.LIMIT)

    @property
    def kernel_(self) -> AbstractKernel:
        """The kernel."""
        return self.model_.kernel
