"""A mixture whose hidden causes are known: the supervised case."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from ._base import AbstractExpectationMaximisation, AbstractWithPrior
from ._mixture import Mixture, MixtureStatistics


class Labelled(AbstractExpectationMaximisation[MixtureStatistics], AbstractWithPrior):
    """p(x, y) = π_y p(x; θ_y) for rows that come with the number y of their component.

    The responsibilities of the mixture are one-hot, and its M step is all there is to learn: naive
    Bayes and discriminant analysis.  Rows are pairs of an event and a label; what is missing in the
    event is expected under the component that the label names.

    Attributes:
        mixture: p(x) = Σ_y p(x, y).

    >>> from freeenergy.distributions import Poisson
    >>> model = Labelled(Mixture(jnp.array([0.5, 0.5]), Poisson(jnp.array([[1.0], [2.0]]))))
    >>> rows = jnp.array([[1.0], [3.0], [8.0]]), jnp.array([0, 0, 1])
    >>> one = jnp.ones(())
    >>> counted, _ = model.expect(rows, jnp.ones(3), temperature=one, incomplete=False)
    >>> model.maximise(counted).mixture.components.rate.tolist()
    [[2.0], [8.0]]
    """

    mixture: Mixture

    def prepare(self) -> Array:
        return self.mixture.prepare()

    def expect_prepared(
        self,
        prepared: Array,
        x: tuple[Array, Array],  # pyright: ignore[reportIncompatibleMethodOverride]
        weight: Array,
        *,
        temperature: Array,
        incomplete: bool,
    ) -> tuple[MixtureStatistics, Array]:
        rows, labels = x
        if incomplete and not self.mixture.components.masks_missing:
            features, log_prob = jax.vmap(self._moments, out_axes=(1, 0))(rows, labels)
        else:
            member = self.mixture.component(0)
            features = jax.vmap(member.features, out_axes=1)(rows)
            # the coefficients of the label of each row
            log_prob = jnp.sum(prepared[labels].T * features, axis=0) + jax.vmap(member.log_base)(rows)
        r = weight[None] * jax.nn.one_hot(labels, self.mixture.size, axis=0, dtype=weight.dtype)
        energy = -jnp.log(self.mixture.weights)[labels] - log_prob
        statistics = MixtureStatistics(jnp.sum(r, axis=1), r @ features.T)
        return statistics, jnp.sum(jnp.where(weight > 0, weight * energy, 0))

    def _moments(self, row: Array, label: Array) -> tuple[Array, Array]:
        member = self.mixture.component(label)
        return member.expected_features(row), member.log_prob(row)

    def maximise(self, statistics: MixtureStatistics) -> Labelled:
        return Labelled(self.mixture.maximise(statistics))

    def log_prior(self) -> Array:
        return self.mixture.log_prior()
