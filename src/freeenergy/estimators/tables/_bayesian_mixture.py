"""Bayesian mixtures as estimators."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..._core import AbstractAlgorithm, Data, Fit, on_device, split_key
from ...distributions import (
    AbstractCovariance,
    Diagonal,
    Full,
    Gaussian,
    NormalInverseGamma,
    NormalInverseWishart,
)
from ...learning import EM
from ...learning._em import expect_all
from ...models import BayesianMixture as BayesianMixtureModel
from ...models._mixture import MixtureStatistics
from ...shell import Rows, Scaling, best_of, check_instance, check_real
from ...shell._validation import check_covariances
from ._mixture import AbstractMixture, gaussian_parts
from ._starts import AbstractStart, start_model


@eqx.filter_jit
def _start_statistics(model: Any, data: Data) -> MixtureStatistics:
    return expect_all(model, data, jnp.ones(()))[0]


class BayesianMixture(AbstractMixture):
    """A mixture of Gaussians with a distribution over its parameters, by variational Bayes.

    π ~ Dirichlet(α), (μ_k, Σ_k) ~ normal-inverse-Wishart, and a factorised posterior q over all of them.
    With a small α the components that the data do not need are left empty: start with more than enough
    and read `n_active_`.  The objective in `history_` is minus the evidence lower bound per row.

    `evidence` is the log-density of a new row under the posterior predictive, a mixture of Student's t.
    It is exact for that mixture; that q only approximates the posterior shows in `bound_`, a lower bound
    on the log evidence of all training rows together.

    Args:
        n_components: the most Gaussians.
        covariance: `Full()` or `Diagonal()`.
        weight_concentration: α of every component; 1 / n_components by default.
        component_prior: a `NormalInverseWishart` (for `Full()`) or `NormalInverseGamma` (for
            `Diagonal()`) in units of the standardised columns; by default one whose mean covariance is
            that of the whole data without correlations.
        n_init: starts; the best bound counts.
        init: a start such as `PlusPlus()` or `RandomRows()`, or an array of centres.
        max_iter, tol: the most iterations, and the improvement in nats per row below which they stop.
        learner: replaces EM, for example by `EM(sweep=Stepwise(…))`.
        random_state: seed.
        verbose: 1 shows progress.
        checkpoint: a file that keeps a long fit.

    Attributes:
        weights_, means_, covariances_: posterior means, in the units of the data.
        counts_: the expected number of training rows of each component.
        n_active_: how many components explain a training row or more.
        bound_: the evidence lower bound, at most the log evidence of all training rows together.
        model_: the fitted model, with posteriors of its parameters, of rescaled rows.
        history_, n_iter_, converged_, scaling_, …: as everywhere.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(0, 1, (200, 1)), rng.normal(8, 1, (200, 1))])
    >>> BayesianMixture(6, weight_concentration=0.01, random_state=0).fit(X).n_active_
    2
    """

    component_prior: NormalInverseWishart | NormalInverseGamma | None  # pyright: ignore

    _maximises_likelihood = False
    _made_from = None

    def __init__(
        self,
        n_components: int = 10,
        covariance: Full | Diagonal | None = None,
        *,
        weight_concentration: float | None = None,
        component_prior: NormalInverseWishart | NormalInverseGamma | None = None,
        n_init: int = 1,
        init: AbstractStart | np.ndarray | None = None,
        max_iter: int = 1000,
        tol: float = 1e-5,
        learner: AbstractAlgorithm | None = None,
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: str | None = None,
    ) -> None:
        self.n_components = n_components
        self.covariance = covariance
        self.weight_concentration = weight_concentration
        self.component_prior = component_prior
        self.n_init = n_init
        self.init = init
        self.max_iter = max_iter
        self.tol = tol
        self.learner = learner
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_instance(self, "covariance", Full, Diagonal, optional=True)
        check_real(self, "weight_concentration", closed=False, optional=True)
        prior = NormalInverseGamma if self._structure().separable else NormalInverseWishart
        check_instance(self, "component_prior", prior, optional=True)
        check_instance(self, "init", AbstractStart, np.ndarray, optional=True)

    def _structure(self) -> AbstractCovariance:
        return Full() if self.covariance is None else self.covariance

    def _check_size(self, rows: int, columns: int) -> None:
        check_covariances(self, self._structure(), rows, columns, self.n_components)

    def _distances(self, rows: Rows) -> Scaling:
        # the rows are standardised already
        return Scaling.identity(rows.x.shape[1])

    def _prototype(self, rows: Rows) -> Gaussian:
        dim = rows.x.shape[1]
        separable = self._structure().separable
        covariance = Diagonal(on_device(np.ones(dim))) if separable else Full(on_device(np.eye(dim)))
        return Gaussian(on_device(np.zeros(dim)), covariance)

    def _prior(self, dim: int) -> NormalInverseWishart | NormalInverseGamma:
        if self.component_prior is not None:
            return self.component_prior
        mean, one = on_device(np.zeros(dim)), np.ones(dim)
        if self._structure().separable:
            return NormalInverseGamma(mean, *map(on_device, (one, 1.5 * one, 0.5 * one)))
        return NormalInverseWishart(mean, *map(on_device, (1.0, np.eye(dim), dim + 2.0)))

    def _learn(self, rows: Rows, key: Array) -> Fit:
        data = self._data(rows)
        near = self._distances(rows)
        family = self._prototype(rows)
        alpha = self.weight_concentration or 1 / self.n_components
        concentration = on_device(np.full(self.n_components, float(alpha)))
        prior = self._prior(rows.x.shape[1])
        steps = self._lloyd_steps(rows)
        learner = EM(tol=self.tol) if self.learner is None else self.learner
        results = []
        for number, restart in enumerate(split_key(key, self.n_init)):
            start_key, fit_key = split_key(restart)
            centres = self._centres(rows, near, start_key)
            begin = start_model(family, data, centres, near, steps)
            start = BayesianMixtureModel(concentration, prior, family, *_start_statistics(begin, data))
            result = self._run(start, learner, data, rows, fit_key, part=number, what=f"start {number}")
            results.append(result)
            if result.interrupted:
                break
        return best_of(results)

    @property
    def bound_(self) -> float:
        """The evidence lower bound: at most the log evidence of all training rows together."""
        return float(-self.history_["objective"][-1] * self.counts_.sum())

    @property
    def counts_(self) -> np.ndarray:
        """The expected number of training rows of each component."""
        return np.asarray(self.model_.counts)

    @property
    def n_active_(self) -> int:
        """How many components explain a training row or more."""
        return int(np.sum(self.counts_ >= 1.0 - 1e-6))

    @property
    def means_(self) -> np.ndarray:
        """The posterior mean of each μ_k, in the units of the data."""
        return self.scaling_.invert(np.asarray(self.model_.posteriors().mean))

    @property
    def covariances_(self) -> np.ndarray:
        """The posterior mean of each Σ_k, in the units of the data."""
        matrices = jax.vmap(lambda q: q.mean_covariance())(self.model_.posteriors())
        return np.asarray(matrices) * np.outer(self.scaling_.scale, self.scaling_.scale)

    def parts(self, X: Any) -> dict[str, np.ndarray]:
        return gaussian_parts(self)
