"""Collapsed Gibbs sampling for topics."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .._core import AbstractAlgorithm, AbstractSource, Data, Info
from ..models._lda import LatentDirichletAllocation, log_beta


class _State(NamedTuple):
    model: Any
    topic: Array
    in_document: Array
    in_topic: Array
    total: Array
    kept: Array
    sweeps: Array


class CollapsedGibbs(AbstractAlgorithm):
    """Draws the topic of every word in turn, with θ and φ integrated out.

        p(z_i = k | z_{−i}, w) ∝ (n_dk + α_k) (n_kw + η) / (n_k + V η),   counts without word i.

    The data are words: `Data((word, document, one entry per document), …)`.  The objective is
    −log p(w, z) per word, which wanders; the model has the counts averaged after `burn_in` sweeps.

    Attributes:
        burn_in: sweeps before counts are averaged.
    """

    needs: ClassVar[type[AbstractSource]] = Data
    burn_in: int = eqx.field(static=True, default=50)

    def init(self, model: LatentDirichletAllocation, data: Data, *, key: Array) -> _State:
        word, document, documents = data.x
        k = len(model.alpha)
        topic = jax.random.randint(key, word.shape, 0, k)
        w = data.weight
        in_document = jnp.zeros((len(documents), k), w.dtype).at[document, topic].add(w)
        in_topic = jnp.zeros((model.counts.shape[1], k), w.dtype).at[word, topic].add(w)
        return _State(
            model,
            topic,
            in_document,
            in_topic,
            jnp.zeros_like(in_topic),
            jnp.zeros((), w.dtype),
            jnp.zeros((), jnp.int32),
        )

    def step(self, state: _State, data: Data, *, key: Array) -> tuple[_State, Info]:
        word, document, _ = data.x
        alpha, eta = state.model.alpha, state.model.eta
        spread = eta * len(state.in_topic)
        noise = jax.random.uniform(key, word.shape, data.weight.dtype)

        def redraw(i: Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
            topic, in_document, in_topic, sizes = carry
            d, v, old, one = document[i], word[i], topic[i], data.weight[i]
            in_document = in_document.at[d, old].add(-one)
            in_topic = in_topic.at[v, old].add(-one)
            sizes = sizes.at[old].add(-one)
            mass = jnp.cumsum((in_document[d] + alpha) * (in_topic[v] + eta) / (sizes + spread))
            new = jnp.sum(mass < noise[i] * mass[-1], dtype=topic.dtype)
            return (
                topic.at[i].set(new),
                in_document.at[d, new].add(one),
                in_topic.at[v, new].add(one),
                sizes.at[new].add(one),
            )

        carry = (state.topic, state.in_document, state.in_topic, jnp.sum(state.in_topic, axis=0))
        topic, in_document, in_topic, _ = jax.lax.fori_loop(0, data.rows, redraw, carry)
        count = (state.sweeps >= self.burn_in).astype(data.weight.dtype)
        new = _State(
            state.model,
            topic,
            in_document,
            in_topic,
            state.total + count * in_topic,
            state.kept + count,
            state.sweeps + 1,
        )
        words = log_beta(in_topic.T + eta) - log_beta(jnp.full_like(in_topic.T, eta))
        shares = log_beta(in_document + alpha[None]) - log_beta(alpha)
        objective = -(jnp.sum(words) + jnp.sum(shares)) / jnp.sum(data.weight)
        return new, Info(jnp.zeros((), bool), objective)

    def model(self, state: _State) -> LatentDirichletAllocation:
        mean = state.total / jnp.maximum(state.kept, 1)
        return state.model.maximise(jnp.where(state.kept > 0, mean, state.in_topic).T)
