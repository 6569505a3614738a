"""One member of an exponential family as a model of all rows."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from .._core import Kind, buffer
from ..distributions import (
    AbstractConjugatePrior,
    AbstractDistribution,
    AbstractExponentialFamily,
    cell_kind,
    log_cells,
)
from ..distributions._cells import Cells
from ._base import (
    AbstractExactModel,
    AbstractExpectationMaximisation,
    AbstractRescalable,
    AbstractWithPrior,
)
from ._units import InUnits, member_in_units


class Density(
    AbstractExactModel,
    AbstractExpectationMaximisation[Array],
    AbstractDistribution,
    AbstractWithPrior,
    AbstractRescalable,
):
    """p(x) = family(x): nothing is hidden but the entries that were not observed.

    With complete rows one M step is the maximum-likelihood (with a prior: MAP) answer; with
    incomplete rows EM fills the statistics by their expectation.
    """

    family: AbstractExponentialFamily
    prior: AbstractConjugatePrior | None = buffer(default=None)

    def log_prob(self, x: Array) -> Array:
        return self.family.log_prob(x)

    def log_prob_complete(self, x: Array) -> Array:
        """`log_prob` for an event without NaN, by one product that all rows share."""
        return jnp.vdot(self.family.coefficients(), self.family.features(x)) + self.family.log_base(x)

    def sample(self, *, key: Array) -> Array:
        return self.family.sample(key=key)

    def complete_mean(self, x: Array) -> Array:
        """`x` with each NaN replaced by its mean given what is observed."""
        return self.family.complete_mean(x)

    def complete_sample(self, x: Array, *, key: Array) -> Array:
        """`x` with the NaN entries drawn given the observed ones."""
        return self.family.complete_sample(x, key=key)

    def prepare(self) -> Array:
        return self.family.coefficients()

    def expect_prepared(
        self, prepared: Array, x: Array, weight: Array, *, temperature: Array, incomplete: bool
    ) -> tuple[Array, Array]:
        if incomplete and not self.family.masks_missing:
            features = jax.vmap(self.family.expected_features, out_axes=1)(x)
            energies = -jax.vmap(self.family.log_prob)(x)
        else:
            features = jax.vmap(self.family.features, out_axes=1)(x)
            energies = -(prepared @ features + jax.vmap(self.family.log_base)(x))
        return features @ weight, jnp.sum(jnp.where(weight > 0, weight * energies, 0))

    def maximise(self, statistics: Array) -> Density:
        source = self.family if self.prior is None else self.prior
        return Density(source.from_features(statistics), self.prior)

    def log_prior(self) -> Array:
        return jnp.zeros(()) if self.prior is None else self.prior.log_density(self.family)

    def in_units(self, shift: Array, scale: Array) -> Density | InUnits:
        """The law of shift + scale · x: of the same family where that is one in any units."""
        family = member_in_units(self.family, shift, scale)
        return InUnits(self, shift, scale) if family is None else Density(family)


@cell_kind.register
def _(model: Density, cells: Cells) -> Kind | None:
    return cell_kind(model.family, cells)


@log_cells.register
def _(
    model: Density, x: Array, width: Array, cells: Cells, *, draws: int, complete: bool = False, key: Array
) -> Array:
    return log_cells(model.family, x, width, cells, draws=draws, complete=complete, key=key)
