"""Topics: latent Dirichlet allocation with a distribution over its topics."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import digamma, gammaln

from .._core import buffer, parameter, positive
from ._base import AbstractExpectationMaximisation, AbstractRegularised

Document = tuple[Array, Array]
"""Numbers of distinct words and how often each occurs; a count of zero is padding."""

_MOST_STEPS = 200
# during learning γ need not stand still: the bound holds for any
_MOST_STEPS_LEARNING = 30
_TOGETHER = 8
# words per column up to which a product with a dense matrix is faster than a sum at scattered places
_DENSE = 64
# documents narrower than this are not worth a program of their own
_NARROW = 32


def log_beta(alpha: Array) -> Array:
    """log ∫ Π p_k^{α_k − 1} dp, the normaliser of a Dirichlet, along the last axis."""
    return jnp.sum(gammaln(alpha), axis=-1) - gammaln(jnp.sum(alpha, axis=-1))


def expected_log(alpha: Array) -> Array:
    """E[log p] of a Dirichlet, along the last axis."""
    return digamma(alpha) - digamma(jnp.sum(alpha, axis=-1, keepdims=True))


class LatentDirichletAllocation(AbstractExpectationMaximisation[Array], AbstractRegularised):
    """φ_k ~ Dirichlet(η); for each document θ ~ Dirichlet(α), for each word z ~ θ, w ~ φ_z.

    The posterior is approximated by q(φ) q(θ) q(z).  Conjugacy keeps q(φ_k) a Dirichlet(η + S_k), with
    S_k the expected count of each word in topic k, so that the state of learning is S alone; each q(θ)
    is a Dirichlet(γ) found by iterating γ = α + Σ_w n_w q(z | w), which never lowers the bound

        Σ_w n_w log Σ_k exp(E[log θ_k] + E[log φ_kw]) − KL(q(θ) ‖ p(θ))

    on log p(words).  EM with all documents is batch variational Bayes, EM with `Stepwise` online.

    Attributes:
        alpha: α, a number per topic.
        eta: η.
        counts: S, (topics, words).
        tol: the mean change of γ at which its iteration ends during learning.

    >>> model = LatentDirichletAllocation(jnp.ones(2), jnp.array(0.5), jnp.array([[9.0, 0.0], [0.0, 9.0]]))
    >>> [round(float(p), 2) for p in model.topics()[0]]
    [0.95, 0.05]
    """

    alpha: Array = buffer()
    eta: Array = buffer()
    counts: Array = parameter(positive)
    tol: float | Array = buffer(default=1e-3)

    rows_at_once = 64

    def topics(self) -> Array:
        """E[φ], a row per topic."""
        total = self.counts + self.eta
        return total / jnp.sum(total, axis=1, keepdims=True)

    def recognise(
        self, factors: Array, counts: Array, tol: float | Array, most_steps: int = _MOST_STEPS
    ) -> Array:
        """γ of one document, given exp log φ of its words as (words, topics)."""

        def proceed(state: tuple[Array, Array, Array]) -> Array:
            return (state[1] > tol) & (state[2] < most_steps)

        def step(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            gamma, _, i = state
            theta = jnp.exp(expected_log(gamma))
            new = self.alpha + theta * ((counts / (factors @ theta)) @ factors)
            return new, jnp.mean(jnp.abs(new - gamma)), i + 1

        start = self.alpha + jnp.sum(counts) / len(self.alpha)
        return jax.lax.while_loop(
            proceed, step, (start, jnp.asarray(jnp.inf, start.dtype), jnp.zeros((), jnp.int32))
        )[0]

    def _bound(self, gamma: Array, factors: Array, counts: Array) -> Array:
        """The bound on log p of the words of one document, in the order they came."""
        log_theta = expected_log(gamma)
        words = jnp.vdot(counts, jnp.log(factors @ jnp.exp(log_theta)))
        divergence = jnp.vdot(gamma - self.alpha, log_theta) - log_beta(gamma) + log_beta(self.alpha)
        return words - divergence

    def posterior_concentration(self, document: Document, tol: float = 1e-6) -> Array:
        """γ of a new document, with the topics at their means."""
        words, counts = document
        return self.recognise(self.topics().T[words], counts, tol)

    def bound(self, document: Document, tol: float = 1e-6) -> Array:
        """A lower bound on log p(words in their order), with the topics at their means."""
        words, counts = document
        factors = self.topics().T[words]
        return self._bound(self.recognise(factors, counts, tol), factors, counts)

    def left_to_right(self, words: Array, real: Array, particles: int, *, key: Array) -> Array:
        """Logs of `particles` independent unbiased estimates of p(words in their order).

        The words are taken up one by one.  Before each, the topics of those before it are redrawn, one
        after the other given the rest, which leaves their posterior as it is; then the estimate is
        multiplied by p(word | those topics), and a topic of the word is drawn.

        Args:
            words: the number of each word, padded at the end.
            real: which of them are no padding.
            particles: how many estimates.
            key: seeds the draws.
        """
        factors = self.topics().T[words]
        numbers = jnp.arange(len(self.alpha))

        def one(topic: Array) -> Array:
            return (numbers == topic).astype(self.alpha.dtype)

        def draw(counts: Array, i: Array, noise: Array) -> tuple[Array, Array]:
            mass = jnp.cumsum((counts + self.alpha) * factors[i])
            return jnp.sum(mass < noise * mass[-1]), mass[-1]

        def take_up(n: Array, state: tuple[Array, Array, Array], key: Array) -> tuple[Array, Array, Array]:
            topics, counts, total = state
            noise = jax.random.uniform(jax.random.fold_in(key, n), words.shape, counts.dtype)

            def redraw(i: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
                topics, counts = state
                counts = counts - one(topics[i])
                topic = draw(counts, i, noise[i])[0]
                return topics.at[i].set(topic), counts + one(topic)

            topics, counts = jax.lax.fori_loop(0, n, redraw, (topics, counts))
            topic, mass = draw(counts, n, noise[n])
            share = mass / (jnp.sum(counts) + jnp.sum(self.alpha))
            return (
                topics.at[n].set(topic),
                counts + jnp.where(real[n], one(topic), 0),
                total + jnp.where(real[n], jnp.log(share), 0),
            )

        def particle(key: Array) -> Array:
            zero = jnp.zeros_like(self.alpha)
            start = jnp.zeros(words.shape, numbers.dtype), zero, zero[0]
            return jax.lax.fori_loop(0, len(words), lambda n, s: take_up(n, s, key), start)[2]

        return jax.vmap(particle)(jax.random.split(key, particles))

    def prepare(self) -> Array:
        """exp E[log φ], (words, topics)."""
        return jnp.exp(expected_log(self.counts + self.eta)).T

    def expect_prepared(
        self, prepared: Array, x: Document, weight: Array, *, temperature: Array, incomplete: bool
    ) -> tuple[Array, Array]:
        """Expected word counts of each topic; the temperature must be one."""
        table = prepared

        def one(words: Array, counts: Array) -> tuple[Array, Array, Array]:
            factors = table[words]
            gamma = self.recognise(factors, counts, self.tol, _MOST_STEPS_LEARNING)
            theta = jnp.exp(expected_log(gamma))
            return counts / (factors @ theta), theta, -self._bound(gamma, factors, counts)

        def narrow(width: int) -> tuple[Array, Array]:
            words, counts = x[0][:, :width], x[1][:, :width]
            # so few documents at a time stay in the cache while γ is iterated
            shares, theta, free = jax.lax.map(lambda d: one(*d), (words, counts), batch_size=_TOGETHER)
            shares = shares * weight[:, None]
            if len(table) <= _DENSE * width:
                documents = jnp.arange(len(words))[:, None]
                dense = jnp.zeros((len(table), len(words)), table.dtype).at[words, documents].add(shares)
                per_word = dense @ theta
            else:
                per_word = jnp.zeros_like(table).at[words].add(shares[:, :, None] * theta[:, None, :])
            return (per_word * table).T, jnp.vdot(weight, free)

        # counts of zero come last: no more columns than the longest document needs
        widest = x[0].shape[1]
        widths = [w for w in (widest // 8, widest // 4, widest // 2) if w >= _NARROW]
        longest = jnp.max(jnp.sum(x[1] > 0, axis=1))
        which = sum(((longest > w).astype(jnp.int32) for w in widths), jnp.zeros((), jnp.int32))
        return jax.lax.switch(which, [partial(narrow, w) for w in (*widths, widest)])

    def maximise(self, statistics: Array) -> LatentDirichletAllocation:
        return LatentDirichletAllocation(self.alpha, self.eta, statistics, self.tol)

    def log_prior(self) -> Array:
        """−KL(q(φ) ‖ p(φ))."""
        after = self.counts + self.eta
        before = jnp.full_like(self.counts, self.eta)
        divergence = jnp.vdot(self.counts, expected_log(after)) - jnp.sum(
            log_beta(after) - log_beta(before)
        )
        return -divergence

    def sample(self, length: Array, *, key: Array) -> tuple[Array, Array]:
        """Topic shares and word counts of a document of `length` words, with the topics at their means."""
        share_key, word_key = jax.random.split(key)
        theta = jax.random.dirichlet(share_key, self.alpha)
        n = jnp.asarray(length, theta.dtype)
        return theta, jax.random.multinomial(word_key, n, theta @ self.topics(), dtype=theta.dtype)
