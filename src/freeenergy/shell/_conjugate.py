"""Parameters whose posterior has a closed form: conjugate priors of families and of tables."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._core import Kind, learnable, on_device, parameter_space
from ..distributions import AbstractConjugatePrior, AbstractExponentialFamily
from ..inference import DistributionPosterior, LogEvidence, Nature
from ..models import BayesianNetwork, Density, EvenTables, Mixture

ConjugatePrior = AbstractConjugatePrior | EvenTables
"""A prior of the parameters of a family, or of the tables of a network, that keeps its form given rows."""

# draws that stand for the law where it is asked for a mean of something
_DRAWS = 4000


def member_of(model: Any, prior: ConjugatePrior) -> Any:
    """The part of a model that the prior is over; refused where it is over something else."""
    if isinstance(prior, EvenTables):
        if isinstance(model, BayesianNetwork):
            return model
        raise TypeError(
            f"EvenTables is a prior of a BayesianNetwork. Got a {type(model).__name__} instead."
        )
    member = model.family if isinstance(model, Density) else model
    if isinstance(model, Mixture) and model.size == 1:
        member = jax.tree.map(lambda a: a[0] if eqx.is_array(a) else a, model.components)
    like = eqx.filter_eval_shape(lambda p: p.mode(), prior)
    shapes = [jax.tree.map(np.shape, eqx.filter(m, _is_array)) for m in (like, member)]
    if not isinstance(member, AbstractExponentialFamily) or shapes[0] != shapes[1]:
        other = "of another shape" if isinstance(member, type(like)) else "which is another model"
        raise TypeError(
            f"A {type(prior).__name__} is the prior of a {type(like).__name__} of its shape, alone. Got a "
            f"{type(model).__name__}, {other}, instead."
        )
    return member


def _is_array(node: Any) -> bool:
    return eqx.is_array(node) or isinstance(node, jax.ShapeDtypeStruct)


class LogPrior(eqx.Module):
    """log p of a model under a conjugate prior, for methods that take a function.

    Attributes:
        prior: of the member, or of the tables, of the model.
    """

    prior: ConjugatePrior

    def __call__(self, model: Any) -> Array:
        member = member_of(model, self.prior)
        if isinstance(self.prior, EvenTables):
            return self.prior.of(member).log_density(member)
        return self.prior.log_density(member)


@eqx.filter_jit
def _updated(prior: AbstractConjugatePrior, member: Any, x: Array) -> tuple[AbstractConjugatePrior, Array]:
    total = jnp.sum(jax.vmap(member.features)(x), axis=0)
    after = prior.update(*prior.split(total))
    base = jnp.sum(jax.vmap(member.log_base)(x))
    return after, after.log_normaliser() - prior.log_normaliser() + base


@eqx.filter_jit
def _draws(law: Any, keys: Array) -> Any:
    def one(key: Array) -> Any:
        member = law.sample(key=key)
        return eqx.filter(member, learnable(member))

    return jax.vmap(one)(keys)


def conjugate_posterior(
    model: Any, data: np.ndarray, prior: ConjugatePrior, key: Array
) -> DistributionPosterior:
    """The law of the parameters given rows, and log ∫ p(rows | θ) p(θ) dθ, in closed form."""
    member = member_of(model, prior)
    if isinstance(prior, EvenTables):
        before = prior.of(member)
        law, nats = before.given(data), before.log_evidence(data)
    else:
        if np.isnan(data).any() and not member.masks_missing:
            raise ValueError(
                f"The parameters of {type(member).__name__} have a {type(prior).__name__} law given "
                "complete rows. Got rows with missing entries: pass a 'method'."
            )
        law, nats = _updated(prior, member, on_device(data))
    evidence = LogEvidence(on_device(np.asarray(nats, float)), on_device(np.zeros(())), Kind.EXACT)
    return DistributionPosterior(
        law,  # pyright: ignore[reportArgumentType]
        _draws(law, jax.random.split(key, _DRAWS)),
        Nature.EXACT,
        spaces=tuple(jax.tree.leaves(parameter_space(member))),
        log_evidence=evidence,
        note=f"the law of the parameters in closed form, which {type(prior).__name__} keeps",
    )
