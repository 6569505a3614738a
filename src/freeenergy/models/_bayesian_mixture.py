"""A mixture with a distribution over its parameters, learned by variational Bayes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import gammaln

from .._core import Kind, boltzmann, buffer, parameter, positive
from ..distributions import (
    AbstractDistribution,
    AbstractExponentialFamily,
    AbstractPartial,
    NormalInverseGamma,
    NormalInverseWishart,
    ProductPrior,
    cell_kind,
    log_cells,
)
from ..distributions._cells import Cells
from ..inference import Finite
from ._base import AbstractExactModel, AbstractExpectationMaximisation, AbstractRegularised
from ._mixture import Mixture, MixtureStatistics


class BayesianMixture(
    AbstractExactModel,
    AbstractExpectationMaximisation[MixtureStatistics],
    AbstractDistribution,
    AbstractPartial,
    AbstractRegularised,
):
    """π ~ Dirichlet(α), θ_k ~ a conjugate prior, z ~ π, x ~ p(x; θ_z), with q(z) q(π) Π_k q(θ_k).

    Conjugacy keeps q(π) and q(θ_k) in the form of their priors, so that they are known from the
    expected counts N_k and summed features S_k alone.  With log Z_k(S) the evidence of summed features
    under the prior, which is what `log_evidence` of the prior gives,

        E_q[coefficients] = ∇ log Z_k(S_k),     KL(q(θ_k) ‖ p(θ_k)) = S_k · ∇ log Z_k(S_k) − log Z_k(S_k).

    EM with the expected coefficients in place of coefficients raises the evidence lower bound, and the
    bound is what the objective of EM is here, with KL(q(π, θ) ‖ p(π, θ)) as `parameter_free_energy`.  As a
    density, the model is the posterior predictive under q, a mixture of Student's t; of columns of
    different kinds a mixture of products of what each has.

    Attributes:
        concentration: α, a number per component.
        prior: over the member of each component.
        family: any member of the family: a Gaussian with the covariance structure of the components, or a
            `Product` whose parts have independent coordinates.
        counts: N, the expected number of rows of each component.
        features: S, their summed features.

    >>> from freeenergy.distributions import Full, Gaussian
    >>> prior = NormalInverseWishart(jnp.zeros(1), jnp.array(1.0), jnp.eye(1), jnp.array(3.0))
    >>> family = Gaussian(jnp.zeros(1), Full(jnp.eye(1)))
    >>> model = BayesianMixture(jnp.ones(2), prior, family, jnp.zeros(2), jnp.zeros((2, 3)))
    >>> model.weights.tolist()
    [0.5, 0.5]
    """

    concentration: Array = buffer()
    prior: NormalInverseWishart | NormalInverseGamma | ProductPrior = buffer()
    family: AbstractExponentialFamily = buffer()
    counts: Array = parameter(positive)
    features: Array = parameter()

    @property
    def size(self) -> int:
        """The number of components."""
        return len(self.counts)

    @property
    def weights(self) -> Array:
        """E_q[π]."""
        alpha = self.concentration + self.counts
        return alpha / jnp.sum(alpha)

    def posteriors(self) -> Any:
        """q(θ_k) for every k: a stack."""
        return jax.vmap(lambda total: self.prior.update(*self.prior.split(total)))(self.features)

    def _expected_coefficients(self) -> tuple[Array, Array]:
        """log Z_k and its gradient, for every k."""
        return jax.vmap(jax.value_and_grad(self.prior.log_evidence))(self.features)

    def _expected_log_weights(self) -> tuple[Array, Array]:
        """The log evidence of the counts, and its gradient E_q[log π]."""

        def log_evidence(counts: Array) -> Array:
            before, after = self.concentration, self.concentration + counts
            return _log_beta(after) - _log_beta(before)

        return jax.value_and_grad(log_evidence)(self.counts)

    def parameter_free_energy(self) -> Array:
        """KL(q(π, θ) ‖ p(π, θ)): what the bound has besides Σ_n log Σ_k exp E_q[log p(x_n, k)]."""
        weight_evidence, log_weights = self._expected_log_weights()
        evidence, coefficients = self._expected_coefficients()
        weights = jnp.vdot(self.counts, log_weights) - weight_evidence
        return weights + jnp.vdot(self.features, coefficients) - jnp.sum(evidence)

    def prepare(self) -> tuple[Mixture, Array, Array]:
        """exp E_q[log p(x, k)] as a mixture, the logarithms of its weights, and its coefficients.

        A component without rows has a weight that may be too small for a number.
        """
        log_weights = self._expected_log_weights()[1]
        coefficients = self._expected_coefficients()[1]
        if self.family.masks_missing:
            # of the members themselves nothing but their features is asked
            members = jax.vmap(lambda _: self.family)(self.counts)
            return Mixture(self.weights, members), log_weights, coefficients
        members = jax.vmap(self.family.from_natural)(coefficients[:, :-1])
        mixture = Mixture(self.weights, members)
        # E[log |Λ|] is less than log |E[Λ]|: what the member has too much is taken from its weight
        normalised = mixture.prepare()
        return mixture, log_weights + coefficients[:, -1] - normalised[:, -1], normalised

    def expect_prepared(
        self,
        prepared: tuple[Mixture, Array, Array],
        x: Array,
        weight: Array,
        *,
        temperature: Array,
        incomplete: bool,
    ) -> tuple[MixtureStatistics, Array]:
        mixture, log_weights, coefficients = prepared
        return mixture.expect_weighted(
            log_weights, coefficients, x, weight, temperature=temperature, incomplete=incomplete
        )

    def maximise(self, statistics: MixtureStatistics) -> BayesianMixture:
        return BayesianMixture(self.concentration, self.prior, self.family, *statistics)

    def predictive(self) -> Any:
        """p(x | z=k, the data) for every k: a stack."""
        return jax.vmap(lambda q: q.predictive())(self.posteriors())

    def _over_components(self, function) -> Array:
        return jnp.log(self.weights) + jax.vmap(function)(self.predictive())

    def log_joint(self, x: Array) -> Array:
        """log p(x, z=k) under the posterior predictive, for every k; NaN is marginalised."""
        return self._over_components(lambda c: c.log_prob(x))

    def log_joint_complete(self, x: Array) -> Array:
        """`log_joint` for an event without NaN."""
        if self.family.masks_missing:
            return self.log_joint(x)
        return self._over_components(lambda c: c.log_prob_complete(x))

    def log_prob(self, x: Array) -> Array:
        return jax.nn.logsumexp(self.log_joint(x))

    def log_prob_complete(self, x: Array) -> Array:
        """`log_prob` for an event without NaN."""
        return jax.nn.logsumexp(self.log_joint_complete(x))

    def posterior(self, x: Array) -> Finite:
        """p(z | x) under the posterior predictive."""
        return Finite(boltzmann(-self.log_joint(x))[1])

    def responsibilities(self, x: Array) -> Array:
        """p(k | x) for every component k."""
        return self.posterior(x).probabilities

    def responsibilities_complete(self, x: Array) -> Array:
        """The same for an event without NaN."""
        return boltzmann(-self.log_joint_complete(x))[1]

    def sample(self, *, key: Array) -> Array:
        return self.complete_sample(jnp.full(self.family.dim, jnp.nan, self.features.dtype), key=key)

    def complete_mean(self, x: Array) -> Array:
        means = jax.vmap(lambda c: c.complete_mean(x))(self.predictive())
        return jnp.where(jnp.isnan(x), self.posterior(x).probabilities @ means, x)

    def complete_sample(self, x: Array, *, key: Array) -> Array:
        choose, draw = jax.random.split(key)
        k = self.posterior(x).sample(key=choose)
        member = jax.tree.map(lambda a: a[k], self.predictive())
        return member.complete_sample(x, key=draw)


def _log_beta(alpha: Array) -> Array:
    return jnp.sum(gammaln(alpha)) - gammaln(jnp.sum(alpha))


@cell_kind.register
def _(model: BayesianMixture, cells: Cells) -> Kind | None:
    return None if model.family.masks_missing else Kind.LOWER


@log_cells.register
def _(
    model: BayesianMixture,
    x: Array,
    width: Array,
    cells: Cells,
    *,
    draws: int,
    complete: bool = False,
    key: Array,
) -> Array:
    logs = jax.vmap(lambda t: log_cells(t, x, width, cells, draws=draws, complete=complete, key=key))(
        model.predictive()
    )
    return jax.nn.logsumexp(jnp.log(model.weights)[:, None] + logs, axis=0)
