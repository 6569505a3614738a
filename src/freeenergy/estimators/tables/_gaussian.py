"""One Gaussian as an estimator."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..._core import AbstractAlgorithm, Data, Fit, on_device, sum_over_blocks
from ...distributions import AbstractConjugatePrior, AbstractCovariance, Full, Gaussian
from ...learning import EM, ClosedForm
from ...models import Density
from ...shell import AbstractDensity, Rows, Scaling, check_instance
from ...shell._increments import LearnsInParts, reduced_rows
from ...shell._validation import check_covariances, check_gaussian


@eqx.filter_jit
def _start(family: Gaussian, data: Data) -> Gaussian:
    def block(x: Array, w: Array) -> Array:
        return w @ jax.vmap(family.covariance.second_moments)(jnp.where(jnp.isnan(x), 0, x))

    weight = jnp.full(family.mean.shape, jnp.sum(data.weight))
    second = sum_over_blocks(block, data)
    return Gaussian(family.mean, family.covariance.from_moments(weight, family.mean, second))


class GaussianDensity(LearnsInParts, AbstractDensity):
    """One Gaussian: N(x; μ, Σ), with a covariance of any structure.

    Complete rows are fitted in closed form, incomplete ones by EM; missing entries are integrated out.

    Args:
        covariance: `Full()`, `Diagonal()`, `Spherical()` (in the units of the data) or `LowRank(rank=…)`.
        prior: a conjugate prior, in units of the standardised columns, makes the fit MAP.
        max_iter, tol: for EM with incomplete rows.
        learner: replaces closed form and EM.
        random_state: seed of draws that `fit` needs (none by default).
        verbose: 1 shows progress.

    Attributes:
        mean_, covariance_: μ and Σ, in the units of the data.
        model_: the fitted density, of rescaled rows.
        history_, n_iter_, converged_, scaling_, …: as everywhere.

    >>> import numpy as np
    >>> model = GaussianDensity().fit([[0.0, 1.0], [2.0, 3.0], [4.0, np.nan]])
    >>> model.impute([[6.0, np.nan]]).round(3).tolist()
    [[6.0, 7.0]]
    """

    _sums_rows = True
    _maximises_likelihood = True
    _made_from = Density

    @classmethod
    def _parameters_of(cls, model: Any) -> dict[str, Any]:
        check_gaussian(cls, model.family)
        return {"covariance": model.family.covariance}

    def __init__(
        self,
        covariance: AbstractCovariance | None = None,
        *,
        prior: AbstractConjugatePrior | None = None,
        max_iter: int = 1000,
        tol: float = 1e-8,
        learner: AbstractAlgorithm | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.covariance = covariance
        self.prior = prior
        self.max_iter = max_iter
        self.tol = tol
        self.learner = learner
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_instance(self, "covariance", AbstractCovariance, optional=True)
        check_instance(self, "prior", AbstractConjugatePrior, optional=True)

    def _structure(self) -> AbstractCovariance:
        return Full() if self.covariance is None else self.covariance

    def _scaling(self, X: np.ndarray, weight: np.ndarray | None) -> Scaling:
        return Scaling.standardise(X, weight, common=not self._structure().unit_free)

    def _check_size(self, rows: int, columns: int) -> None:
        check_covariances(self, self._structure(), rows, columns)

    def _learn(self, rows: Rows, key: Array) -> Fit:
        dim = rows.x.shape[1]
        data = Data.of(rows.x, rows.weight)
        family = Gaussian(on_device(np.zeros(dim)), self._structure())
        # rows are standardised: what is missing starts at the mean, zero
        start = Density(_start(family, data), self.prior)
        needs_em = not family.closed_form or (data.incomplete and not family.masks_missing)
        learner = self.learner or (EM(tol=self.tol) if needs_em else ClosedForm())
        return self._run(start, learner, data, rows, key)

    def _reduced(self, rows: Rows) -> Rows:
        return reduced_rows(self.model_.family, rows)

    @property
    def mean_(self) -> np.ndarray:
        """μ, in the units of the data."""
        return self.scaling_.invert(np.asarray(self.model_.family.mean))

    @property
    def covariance_(self) -> np.ndarray:
        """Σ as a matrix, in the units of the data."""
        matrix = np.asarray(self.model_.family.covariance.matrix())
        return matrix * np.outer(self.scaling_.scale, self.scaling_.scale)
