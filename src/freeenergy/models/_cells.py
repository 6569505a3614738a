"""The mass of cells under models that are made of distributions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from .._core import Kind
from ..distributions import Full, Gaussian, cell_kind, component_axes, log_cells
from ..distributions._cells import Cells, normal_cell_terms
from ._bayesian_mixture import BayesianMixture
from ._density import Density
from ._kernels import Kernels
from ._linear_gaussian import LinearGaussian
from ._mixture import Mixture
from ._vae import VAE


@cell_kind.register
def _(model: Density, cells: Cells) -> Kind | None:
    return cell_kind(model.family, cells)


@log_cells.register
def _(
    model: Density, x: Array, width: Array, cells: Cells, *, draws: int, complete: bool = False, key: Array
) -> Array:
    return log_cells(model.family, x, width, cells, draws=draws, complete=complete, key=key)


@cell_kind.register
def _(model: Mixture, cells: Cells) -> Kind | None:
    return cell_kind(model.component(0), cells)


@log_cells.register
def _(
    model: Mixture, x: Array, width: Array, cells: Cells, *, draws: int, complete: bool = False, key: Array
) -> Array:
    def of_component(component) -> Array:
        return log_cells(component, x, width, cells, draws=draws, complete=complete, key=key)

    logs = jax.vmap(of_component, in_axes=(component_axes(model.components),))(model.components)
    return jax.nn.logsumexp(jnp.log(model.weights)[:, None] + logs, axis=0)


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


@cell_kind.register
def _(model: LinearGaussian, cells: Cells) -> Kind | None:
    return cell_kind(_dense(model), cells)


@log_cells.register
def _(
    model: LinearGaussian,
    x: Array,
    width: Array,
    cells: Cells,
    *,
    draws: int,
    complete: bool = False,
    key: Array,
) -> Array:
    return log_cells(_dense(model), x, width, cells, draws=draws, complete=complete, key=key)


def _dense(model: LinearGaussian) -> Gaussian:
    return Gaussian(model.mean, Full(model.covariance()))


@cell_kind.register
def _(model: Kernels, cells: Cells) -> Kind:
    return Kind.EXACT


@log_cells.register
def _(
    model: Kernels, x: Array, width: Array, cells: Cells, *, draws: int, complete: bool = False, key: Array
) -> Array:
    def visit(total: Array, kernel: tuple[Array, Array, Array]) -> tuple[Array, None]:
        log_weights, centres, variances = kernel
        scales = jnp.sqrt(variances)
        terms = jax.vmap(lambda c, s: normal_cell_terms(c, s, x, width, cells))(centres, scales)
        return jnp.logaddexp(total, jax.nn.logsumexp(log_weights + jnp.sum(terms, axis=1))), None

    total = jax.lax.scan(visit, jnp.full((), -jnp.inf, x.dtype), model.blocks())[0]
    return jnp.full(draws, total)


@cell_kind.register
def _(model: VAE, cells: Cells) -> Kind | None:
    output = jax.eval_shape(lambda: model.decoder(model.prior.sample(key=jax.random.key(0))))
    given = cell_kind(model.emission.at(jnp.zeros(output.shape, output.dtype)), cells)
    return None if given is None else Kind.LOWER


@log_cells.register
def _(
    model: VAE, x: Array, width: Array, cells: Cells, *, draws: int, complete: bool = False, key: Array
) -> Array:
    # recognised at the middle of the cell, and weighted by the mass of the whole
    q = model.recognise(x + jnp.where(jnp.asarray(cells), 0.5 * width, 0))

    def draw(key: Array) -> Array:
        latent, inside = jax.random.split(key)
        z = q.sample(key=latent)
        given = model.emission.at(model.decoder(z))
        mass = log_cells(given, x, width, cells, draws=1, complete=complete, key=inside)[0]
        return model.prior.log_prob(z) + mass - q.log_prob(z)

    return jax.vmap(draw)(jax.random.split(key, draws))
