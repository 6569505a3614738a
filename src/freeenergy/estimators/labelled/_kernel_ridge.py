"""Ridge regression in the features of a kernel: the mean of a Gaussian process whose noise is chosen."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import Array
from scipy import stats

from ..._core import Fit, Status
from ...evaluation import AbstractLaws, Laws
from ...kernels import RBF, AbstractKernel
from ...shell import AbstractDensity, Rows, Scaling, check_real, framed_ends
from ._exact_process import Evidences
from ._gaussian_process import AbstractProcess
from ._told import Told, told_of_kernel

# penalties that are tried, in units of the mean of k(x, x)
_PENALTIES = np.logspace(-8, 3, 45)


class KernelRidge(AbstractProcess):
    """f(x) = k(x, X) (K + λI)⁻¹ y: least squares in the features of a kernel, with the penalty λ‖w‖².

    It is the mean of a Gaussian process N(0, τ²k) with noise τ²λ, whose scale τ² is that of greatest
    evidence, yᵀ(K + λI)⁻¹y / n; this gives the normal law of an answer.  The residuals are λ times the
    dual coefficients.

    Args:
        kernel: k, of `freeenergy.kernels`, as it is; None for a Gaussian kernel of length one.
        alpha: λ; None for that of the least squared error of leaving one row out, which is had for all λ
            from one eigendecomposition.
        standardise: whether the kernel sees columns and answers in units of their standard deviations, from
            their means; else as they are, as scikit-learn's estimator of the same name does.
        inputs: the density of rows and answers from which missing entries of rows are drawn; None for one
            Gaussian.  In fit they are drawn once.

    Attributes:
        alpha_: λ.
        dual_coef_: (K + λI)⁻¹ y for each row of the fit, in the units of the data; equal rows share theirs.
        noise_: τ²λ of each output, in the units of the data.
        log_evidence_: log p(y | X), in the units of the data.
        kernel_: the kernel.
        places_: which row of `model_.x` each row of the fit is; equal ones are merged.
        loo_: the law of the answer to each row of the fit given all others.
        columns_, inputs_, answer_shape_, answer_names_, answer_scaling_: as of every regressor.
        model_: a `freeenergy.models.GaussianProcess` of rescaled rows and answers.
        history_, n_iter_, converged_, scaling_, …: as everywhere.

    >>> x = np.linspace(0.0, 6.0, 25)[:, None]
    >>> model = KernelRidge(alpha=None).fit(x, np.sin(x[:, 0]))
    >>> model.predict([[1.0], [4.0]]).round(2).tolist()
    [0.84, -0.76]
    """

    def __init__(
        self,
        kernel: AbstractKernel | None = None,
        *,
        alpha: float | None = 1.0,
        standardise: bool = True,
        inputs: AbstractDensity | None = None,
    ) -> None:
        self.kernel = kernel
        self.alpha = alpha
        self.standardise = standardise
        self.inputs = inputs

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_real(self, "alpha", closed=False, optional=True)

    def _start_kernel(self, columns: int) -> AbstractKernel:
        return RBF() if self.kernel is None else self.kernel

    def _learn(self, rows: Rows, key: Array) -> Fit:
        seen = self._seen(rows)
        kernel = seen.kernel.kernel(seen.kernel.vector)
        gram = kernel.gram(seen.x)
        self.alpha_ = _best_penalty(gram, seen) if self.alpha is None else float(self.alpha)
        noise = np.full(seen.answers.shape[1], self.alpha_)
        told = seen.told(gram, noise)
        squares = np.array([part.coefficients @ y for part, y in zip(told, seen.answers.T, strict=True)])
        # answers in units of τ, so that the prior is the kernel itself; of nothing but zeros it is one
        scale = np.sqrt(np.maximum(squares, 0.0) / seen.weights.sum(axis=0))
        scale = np.where(scale > 0, scale, 1.0)
        self.answer_scaling_ = Scaling(self.answer_scaling_.shift, self.answer_scaling_.scale * scale)
        seen.answers = seen.answers / scale
        theta = np.concatenate([seen.kernel.vector, np.log(noise)])
        return self._keep(seen, theta, [-seen.evidence(theta, slope=False)[0]], Status.CONVERGED)

    # they know that the scale is an estimate, as the law does not
    intervals_of_law = False

    @framed_ends
    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[Any, Any]:
        """Both ends of the interval that holds each answer with probability `level`, by itself.

        τ² is unknown, with the density 1/τ²: given the answers an answer then has Student's law, with as
        many degrees of freedom as there are rows, less one where the mean of the answers was taken off.
        """
        x = self._read(X).x
        holes = np.isnan(x).any(axis=1)
        ends = np.empty((2, len(x), *self.answer_shape_))
        if holes.any():
            ends[:, holes] = self._laws_of(x[holes]).interval(level)
        if not holes.all():
            ends[:, ~holes] = self._student(x[~holes]).interval(level)
        return ends[0], ends[1]

    def _student(self, x: np.ndarray) -> AbstractLaws:
        rows = np.asarray(self.model_.weight).sum(axis=0)
        freedom = rows - self.standardise
        if (freedom <= 0).any():
            return self._laws(x)
        mean, variance = self._function(x)
        spread = np.sqrt((variance + self.noise_) * rows / freedom)
        freedom = np.broadcast_to(freedom, mean.shape)
        return Laws(stats.t(*map(self._shaped, (freedom, mean, spread))))

    def _told(self) -> dict[str, Told]:
        names = self.answer_names_
        factors = self.answer_scaling_.scale**2
        found = told_of_kernel(self.kernel_, self.scaling_, self.columns_, factors, names)
        return found | {"noise": Told(self.noise_, (names,))} if found else found

    @property
    def dual_coef_(self) -> np.ndarray:
        """(K + λI)⁻¹ y for each row of the fit, in the units of the data; equal rows share theirs."""
        weight = np.asarray(self.model_.weight)
        whole = (
            np.stack([told.coefficients for told in self._whole("dual_coef_").told], axis=1)
            * self.answer_scaling_.scale
        )
        shared = np.divide(whole, weight, out=np.zeros_like(whole), where=weight > 0)
        return self._shaped(shared[self.places_])


def _best_penalty(gram: np.ndarray, seen: Evidences) -> float:
    """λ of the least squared error of leaving one row out."""
    penalties = _PENALTIES * max(float(np.mean(np.diag(gram))), np.finfo(float).tiny)
    errors = np.zeros(len(penalties))
    for y, weight in zip(seen.answers.T, seen.weights.T, strict=True):
        root = np.sqrt(weight)
        values, vectors = np.linalg.eigh(gram * root[:, None] * root)
        inner, squares = vectors.T @ (root * y), vectors**2
        for number, penalty in enumerate(penalties):
            inverse = 1 / (np.maximum(values, 0.0) + penalty)
            # y − f without the row is α/q; the roots of weights cancel but for one
            residual = (vectors @ (inverse * inner)) / (squares @ inverse)
            errors[number] += residual @ residual
    return float(penalties[np.argmin(errors)])
