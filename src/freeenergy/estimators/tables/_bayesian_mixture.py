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
    AbstractExponentialFamily,
    Diagonal,
    Full,
    Gaussian,
    NormalInverseGamma,
    NormalInverseWishart,
    ProductPrior,
)
from ...learning import EM
from ...learning._em import expect_all
from ...models import BayesianMixture as BayesianMixtureModel
from ...models._mixture import MixtureStatistics
from ...shell import ColumnRoles, Field, Rows, Scaling, Schema, best_of, check_instance, check_real
from ...shell._schema import kinds_of
from ...shell._summary import Along
from ...shell._validation import check_covariances
from .._by_column import (
    by_column,
    member_by_column,
    prior_by_column,
    roles_by_column,
    scaling_by_column,
)
from ._mixture import AbstractMixture, gaussian_parts
from ._starts import AbstractStart, start_model


@eqx.filter_jit
def _start_statistics(model: Any, data: Data) -> MixtureStatistics:
    return expect_all(model, data, jnp.ones(()))[0]


@eqx.filter_jit
def _posterior_means(model: BayesianMixtureModel) -> tuple[Array, Array]:
    """Of the mean and of the covariance of each component."""
    posteriors = model.posteriors()
    return posteriors.mean, jax.vmap(lambda q: q.mean_covariance())(posteriors)


@eqx.filter_jit
def _predictive_means(model: BayesianMixtureModel) -> Array:
    nothing = jnp.full(model.family.dim, jnp.nan)
    return jax.vmap(lambda c: c.complete_mean(nothing))(model.predictive())


class BayesianMixture(AbstractMixture):
    """A mixture of Gaussians, or by column, with a distribution over its parameters, by variational Bayes.

    π ~ Dirichlet(α), (μ_k, Σ_k) ~ normal-inverse-Wishart, and a factorised posterior q over all of them.
    With a small α the components that the data do not need are left empty: start with more than enough
    and read `n_active_`.  The objective in `history_` is minus the evidence lower bound per row.

    `evidence` is the log-density of a new row under the posterior predictive, a mixture of Student's t.
    It is exact for that mixture; that q only approximates the posterior shows in `bound_`, a lower bound
    on the log evidence of all training rows together.

    Tables with columns of different kinds have the priors of `ByColumn` with `family="by column"`; the
    predictive density of a component is then a product of Student's t for numbers, negative binomials for
    counts, and the mean shares of labels.

    Args:
        n_components: the most components.
        covariance: `Full()` or `Diagonal()`, of Gaussians.
        family: None for Gaussians; `"by column"`, which is short for `ByColumn()`, gives each column the
            family of its kind (`schema_`).
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
        family: Any = None,
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
        self.family = family
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
        check_instance(self, "init", AbstractStart, np.ndarray, optional=True)
        mixed = by_column(self.family)
        if self.family is not None and (mixed is None or mixed.strength == 0):
            raise ValueError(
                "The 'family' parameter of BayesianMixture must be None, 'by column' or a ByColumn with a "
                f"positive strength. Got {self.family!r} instead."
            )
        if mixed is not None and (self.covariance is not None or self.component_prior is not None):
            raise ValueError(
                "The 'covariance' and 'component_prior' parameters of BayesianMixture must be None where "
                "the family is by column: the prior is that of ByColumn."
            )
        prior = NormalInverseGamma if self._structure().separable else NormalInverseWishart
        check_instance(self, "component_prior", prior, optional=True)

    @property
    def needs_kinds(self) -> bool:
        return self.family is not None

    def takes(self, field: Field) -> bool:
        return field.numeric or self.family is not None

    def column_roles(self, n_features: int) -> ColumnRoles:
        schema = None if self.family is None else kinds_of(self)
        return ColumnRoles.continuous(n_features) if schema is None else roles_by_column(schema)

    def roles_for(self, schema: Schema) -> ColumnRoles:
        return self.column_roles(len(schema.modelled)) if self.family is None else roles_by_column(schema)

    def _scaling(self, X: np.ndarray, weight: np.ndarray | None) -> Scaling:
        mixed = by_column(self.family)
        if mixed is None:
            return Scaling.standardise(X, weight)
        return scaling_by_column(member_by_column(mixed, self), X, weight)

    def _structure(self) -> AbstractCovariance:
        if self.family is not None:
            return Diagonal()
        return Full() if self.covariance is None else self.covariance

    def _check_size(self, rows: int, columns: int) -> None:
        check_covariances(self, self._structure(), rows, columns, self.n_components)

    def _distances(self, rows: Rows) -> Scaling:
        if self.family is not None:
            return Scaling.standardise(rows.x, rows.weight)
        # the rows are standardised already
        return Scaling.identity(rows.x.shape[1])

    def _prototype(self, rows: Rows) -> AbstractExponentialFamily:
        mixed = by_column(self.family)
        if mixed is not None:
            return member_by_column(mixed, self, rows, self.n_components)
        dim = rows.x.shape[1]
        separable = self._structure().separable
        covariance = Diagonal(on_device(np.ones(dim))) if separable else Full(on_device(np.eye(dim)))
        return Gaussian(on_device(np.zeros(dim)), covariance)

    def _prior(self, family: Any, rows: Rows) -> NormalInverseWishart | NormalInverseGamma | ProductPrior:
        if self.component_prior is not None:
            return self.component_prior
        mixed = by_column(self.family)
        if mixed is not None:
            found = prior_by_column(mixed, family, rows, self.n_components)
            assert isinstance(found, ProductPrior)
            return found
        dim = rows.x.shape[1]
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
        prior = self._prior(family, rows)
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

    def _listed(self) -> dict[str, np.ndarray]:
        found = {"weights": self.weights_, "means": self.means_}
        return found if self.family is not None else found | {"covariances": self.covariances_}

    def _along(self, name: str, shape: tuple[int, ...]) -> Along:
        return None, *(self.column_names,) * (len(shape) - 1)

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
        """The posterior mean of each μ_k, in the units of the data; by column that of a new row."""
        if self.family is not None:
            return self.scaling_.invert(np.asarray(_predictive_means(self.model_)))
        return self.scaling_.invert(np.asarray(_posterior_means(self.model_)[0]))

    @property
    def covariances_(self) -> np.ndarray:
        """The posterior mean of each Σ_k, in the units of the data, of Gaussian components."""
        if self.family is not None:
            raise AttributeError("Components by column have no covariance matrix.")
        return np.asarray(_posterior_means(self.model_)[1]) * np.outer(
            self.scaling_.scale, self.scaling_.scale
        )

    def parts(self, X: Any) -> dict[str, np.ndarray]:
        if self.family is not None:
            return {"weights": self.weights_, "means": self.means_}
        return gaussian_parts(self)
