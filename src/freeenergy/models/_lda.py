"""Topics: latent Dirichlet allocation with a distribution over its topics."""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import digamma, gammaln, polygamma

from .._core import Simplex, buffer, parameter, positive
from ..distributions import AbstractDistribution, Dirichlet
from ..inference import (
    Amortised,
    Damped,
    Extrapolated,
    FixedPoint,
    ImportanceEstimate,
    importance_draws,
    importance_estimate,
    importance_log_weights,
    importance_resample,
    minimise,
    self_normalised_mean,
)
from ._base import (
    AbstractExpectationMaximisation,
    AbstractRecognised,
    AbstractRegularised,
    AbstractVariationalBound,
)

Document = tuple[Array, Array]
"""Numbers of distinct words and how often each occurs; zero is padding, NaN was not observed."""

# during learning γ need not stand still: the bound holds for any
_MOST_STEPS_LEARNING = 30
# below this a negative binomial distribution is a Poisson distribution to rounding
LEAST_EXCESS = 1e-12
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


class _Shares(AbstractDistribution):
    """A Dirichlet with draws off zero.

    Of a small concentration many shares are too small for a number.  The smallest one stands for all of
    them: at zero both densities of an importance weight would be infinite.
    """

    law: Dirichlet

    def log_prob(self, x: Array) -> Array:
        return self.law.log_prob(x)

    def sample(self, *, key: Array) -> Array:
        drawn = self.law.sample(key=key)
        return jnp.maximum(drawn, jnp.finfo(drawn.dtype).tiny)


class LatentDirichletAllocation(
    AbstractExpectationMaximisation[Array],
    AbstractRegularised,
    AbstractRecognised,
    AbstractVariationalBound,
):
    """φ_k ~ Dirichlet(η); for each document θ ~ Dirichlet(α), for each word z ~ θ, w ~ φ_z.

    The posterior is approximated by q(φ) q(θ) q(z).  Conjugacy keeps q(φ_k) a Dirichlet(η + S_k), with
    S_k the expected count of each word in topic k, so that the state of learning is S alone; each q(θ)
    is a Dirichlet(γ) found by iterating γ = α + Σ_w n_w q(z | w), which never lowers the bound

        Σ_w n_w log Σ_k exp(E[log θ_k] + E[log φ_kw]) − KL(q(θ) ‖ p(θ))

    on log p(words).  EM with all documents is batch variational Bayes, EM with `Stepwise` online.

    Which words are missing matters only together with how long documents are: given θ and a rate λ, a
    Gamma variable with mean μ and variance εμ², counts are independent Poisson variables with means
    λ Σ_k θ_k φ_kw.  So with n words observed, and the mass s = Σ_k θ_k Σ_{w missing} φ_kw unobserved,

        log p(observed words | θ) = Σ_w n_w log Σ_k θ_k φ_kw − (1/ε + n) log(1 − εμs/(1 + εμ))

    but for what `variational_bound` leaves out anyway: the law of n if all words had been observed.

    Attributes:
        alpha: α, a number per topic.
        eta: η.
        counts: S, (topics, words).
        tol: the mean change of γ at which its iteration ends during learning.
        mean_length: μ.
        excess: ε, zero if lengths are Poisson variables.

    >>> model = LatentDirichletAllocation(jnp.ones(2), jnp.array(0.5), jnp.array([[9.0, 0.0], [0.0, 9.0]]))
    >>> [round(float(p), 2) for p in model.topics()[0]]
    [0.95, 0.05]
    """

    alpha: Array = buffer()
    eta: Array = buffer()
    counts: Array = parameter(positive)
    tol: float | Array = buffer(default=1e-3)
    mean_length: float | Array = buffer(default=1.0)
    excess: float | Array = buffer(default=0.0)

    rows_at_once = 64

    def topics(self) -> Array:
        """E[φ], a row per topic."""
        total = self.counts + self.eta
        return total / jnp.sum(total, axis=1, keepdims=True)

    def _rate(self, n: Array, unseen: Array) -> Array:
        """E[λ | n observed words, the mass of the others]: what a missing word counts, per probability."""
        mean, excess = self.mean_length, self.excess
        return mean * (1 + excess * n) / (1 + excess * mean * (1 - unseen))

    def _log_unseen(self, n: Array, unseen: Array) -> Array:
        """−(1/ε + n) log(1 − εμs/(1 + εμ)): what it says of θ that a mass s was not observed."""
        mean, excess = self.mean_length, self.excess
        v = excess * mean / (1 + excess * mean) * unseen
        # −log(1 − v)/ε, which is μs where ε is zero
        over = jnp.where(v > 0, -jnp.log1p(-v) / jnp.where(v > 0, v, 1), 1)
        return (over * mean / (1 + excess * mean) * unseen) - n * jnp.log1p(-v)

    def _responses(self, seen: Array, counts: Array, incomplete: bool) -> Array:
        """n_w / p_w for each word, with what is expected of those that are missing."""
        if not incomplete:
            return counts / seen
        missing = jnp.isnan(counts)
        rate = self._rate(jnp.nansum(counts), jnp.sum(jnp.where(missing, seen, 0)))
        return jnp.where(missing, rate, jnp.where(missing, 0, counts) / seen)

    def recognise(
        self,
        factors: Array,
        counts: Array,
        tol: float | Array,
        *,
        learning: bool = False,
        incomplete: bool = False,
    ) -> Array:
        """γ of one document, given exp log φ of its words as (words, topics).

        Missing words have a q of their own here, which is how learning counts them.  In long documents
        with topics that are alike, thousands of updates would be needed, so that they are extrapolated.
        During `learning` a few plain updates do.
        """
        total = (jnp.nansum if incomplete else jnp.sum)(counts)
        # of so many words a change below rounding cannot be asked for
        rest = tol + 8 * jnp.finfo(total.dtype).eps * total
        start = self.alpha + total / len(self.alpha)

        def update(gamma: Array) -> Array:
            theta = jnp.exp(expected_log(gamma))
            return self.alpha + theta * (self._responses(factors @ theta, counts, incomplete) @ factors)

        def energy(gamma: Array) -> Array:
            return -self._bound(gamma, factors, counts, incomplete)

        if learning:
            return minimise(energy, start, FixedPoint(update, rest, max_steps=_MOST_STEPS_LEARNING)).point
        return minimise(energy, start, Extrapolated(update, rest, lambda gamma: gamma > 0)).point

    def _bound(self, gamma: Array, factors: Array, counts: Array, incomplete: bool = False) -> Array:
        """The bound on log p of the words of one document, in the order they came."""
        log_theta = expected_log(gamma)
        seen = factors @ jnp.exp(log_theta)
        divergence = jnp.vdot(gamma - self.alpha, log_theta) - log_beta(gamma) + log_beta(self.alpha)
        if not incomplete:
            return jnp.vdot(counts, jnp.log(seen)) - divergence
        missing = jnp.isnan(counts)
        known = jnp.where(missing, 0, counts)
        unseen = self._log_unseen(jnp.sum(known), jnp.sum(jnp.where(missing, seen, 0)))
        return jnp.vdot(known, jnp.log(seen)) + unseen - divergence

    def _recognise_incomplete(self, factors: Array, counts: Array, tol: float) -> tuple[Array, Array]:
        """γ and the bound of one document, with its missing words summed out.

        −log(1 − cs) is convex in s, so that its mean is not below its value at E[s]: a bound closer than
        that of learning.  Its gradient in γ, times the inverse of the Fisher information, joins the update
        of γ, of which only as much is taken as raises the bound.
        """
        missing = jnp.isnan(counts)
        known = jnp.where(missing, 0, counts)
        n, mass = jnp.sum(known), jnp.where(missing, 1.0, 0.0) @ factors

        def energy(gamma: Array) -> Array:
            unseen = jnp.vdot(gamma, mass) / jnp.sum(gamma)
            return -self._bound(gamma, factors, known) - self._log_unseen(n, unseen)

        def update(gamma: Array) -> Array:
            theta = jnp.exp(expected_log(gamma))
            total = jnp.sum(gamma)
            unseen = jnp.vdot(gamma, mass) / total
            slope = self._rate(n, unseen) * (mass - unseen) / total
            inverse = 1 / polygamma(1, gamma)
            shared = jnp.vdot(inverse, slope) / (1 / polygamma(1, total) - jnp.sum(inverse))
            moved = (
                self.alpha + theta * ((known / (factors @ theta)) @ factors) + inverse * (slope + shared)
            )
            # γ is positive
            return jnp.maximum(moved, 0.1 * gamma)

        # for a document with nothing observed this is where it ends
        start = self.alpha + n / len(self.alpha)
        found = minimise(energy, start, Damped(update, tol))
        return found.point, -found.energy

    def _recognised(self, document: Document, tol: float, incomplete: bool) -> tuple[Array, Array]:
        words, counts = document
        factors = self.topics().T[words]
        if incomplete:
            return self._recognise_incomplete(factors, counts, tol)
        gamma = self.recognise(factors, counts, tol)
        return gamma, self._bound(gamma, factors, counts)

    def variational_concentration(
        self, document: Document, tol: float = 1e-6, *, incomplete: bool = False
    ) -> Array:
        """γ of q(θ) for a new document, with the topics at their means."""
        return self._recognised(document, tol, incomplete)[0]

    def variational_bound(
        self, document: Document, tol: float = 1e-6, *, incomplete: bool = False
    ) -> Array:
        """A lower bound on log p(words in their order), with the topics at their means."""
        return self._recognised(document, tol, incomplete)[1]

    def bound(self, x: Document, *, key: Array) -> Array:
        """`variational_bound` of any document; nothing is drawn."""
        return self.variational_bound(x, incomplete=True)

    def latent(self, x: Document) -> Simplex:
        """θ, the shares of the topics."""
        return Simplex(self.alpha.shape)

    def energy(self, document: Document, theta: Array) -> Array:
        """−log p(words in their order, θ), with the topics at their means.

        Where some θ_k is zero, it is what it tends to: ∞ if a word has no other topic or α_k > 1, and −∞ if
        α_k < 1.
        """
        words, counts = document
        missing = jnp.isnan(counts)
        known = jnp.where(missing, 0, counts)
        seen = self.topics().T[words] @ theta
        unseen = self._log_unseen(jnp.sum(known), jnp.sum(jnp.where(missing, seen, 0)))
        flat = self.alpha == 1
        powers = jnp.where(flat, 0, (self.alpha - 1) * jnp.log(jnp.where(flat, 1, theta)))
        prior = jnp.sum(powers) - log_beta(self.alpha)
        # a word that does not occur may be impossible
        likelihood = jnp.vdot(known, jnp.log(jnp.where(known > 0, seen, 1)))
        return jnp.where(jnp.isneginf(likelihood), jnp.inf, -likelihood - unseen - prior)

    @property
    def recognition(self) -> Amortised:
        """What makes q(θ) of a document, for importance sampling."""
        return Amortised(lambda document: self._shares(document, incomplete=True))

    @property
    def recognition_complete(self) -> Amortised:
        """`recognition` of documents without NaN, which is faster."""
        return Amortised(lambda document: self._shares(document, incomplete=False))

    def _shares(self, document: Document, *, incomplete: bool) -> _Shares:
        return _Shares(Dirichlet(self.variational_concentration(document, incomplete=incomplete)))

    def evidence(
        self, document: Document, *, incomplete: bool = True, samples: int, key: Array
    ) -> ImportanceEstimate:
        """log of the mean of `samples` importance weights, with θ drawn from the q of the bound."""
        recognition = self.recognition if incomplete else self.recognition_complete
        weights = importance_log_weights(self.energy, recognition, document, samples=samples, key=key)
        return importance_estimate(weights)

    def complete_mean(self, document: Document, *, samples: int, key: Array) -> Array:
        """The counts, each missing one replaced by its mean given the others, by importance sampling."""
        words, counts = document
        factors = self.topics().T[words]
        thetas, log_weights = importance_draws(
            self.energy, self.recognition, document, samples=samples, key=key
        )
        means = jax.vmap(lambda seen: seen * self._responses(seen, counts, True))(thetas @ factors.T)
        return jnp.where(jnp.isnan(counts), self_normalised_mean(log_weights, means)[0], counts)

    def complete_sample(self, document: Document, *, samples: int, key: Array) -> Array:
        """The counts, the missing ones drawn given the others, with θ by importance resampling."""
        share_key, rate_key, count_key = jax.random.split(key, 3)
        theta = importance_resample(self.energy, self.recognition, document, samples=samples, key=share_key)
        return self._missing_counts(document, theta, rate_key, count_key)

    def complete_given(self, document: Document, theta: Array, *, key: Array) -> Array:
        """The counts, the missing ones drawn given the others and the shares θ of the topics."""
        return self._missing_counts(document, theta, *jax.random.split(key))

    def _missing_counts(self, document: Document, theta: Array, rate_key: Array, count_key: Array) -> Array:
        words, counts = document
        missing = jnp.isnan(counts)
        n, seen = jnp.nansum(counts), self.topics().T[words] @ theta
        # a Gamma variable of this mean and shape; nearly none of its variance is left where ε is zero
        shape = 1 / jnp.maximum(self.excess, LEAST_EXCESS) + n
        noise = jax.random.gamma(rate_key, shape) / shape
        rate = self._rate(n, jnp.sum(jnp.where(missing, seen, 0))) * noise
        drawn = jax.random.poisson(count_key, rate * seen).astype(seen.dtype)
        return jnp.where(missing, drawn, counts)

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
            gamma = self.recognise(factors, counts, self.tol, learning=True, incomplete=incomplete)
            theta = jnp.exp(expected_log(gamma))
            responses = self._responses(factors @ theta, counts, incomplete)
            return responses, theta, -self._bound(gamma, factors, counts, incomplete)

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
        longest = jnp.max(jnp.sum(x[1] != 0, axis=1))
        which = sum(((longest > w).astype(jnp.int32) for w in widths), jnp.zeros((), jnp.int32))
        return jax.lax.switch(which, [partial(narrow, w) for w in (*widths, widest)])

    def maximise(self, statistics: Array) -> LatentDirichletAllocation:
        return dataclasses.replace(self, counts=statistics)

    def parameter_free_energy(self) -> Array:
        """KL(q(φ) ‖ p(φ))."""
        after = self.counts + self.eta
        before = jnp.full_like(self.counts, self.eta)
        return jnp.vdot(self.counts, expected_log(after)) - jnp.sum(log_beta(after) - log_beta(before))

    def sample(self, length: Array, *, key: Array) -> tuple[Array, Array]:
        """Topic shares and word counts of a document of `length` words, with the topics at their means."""
        share_key, word_key = jax.random.split(key)
        theta = jax.random.dirichlet(share_key, self.alpha)
        n = jnp.asarray(length, theta.dtype)
        return theta, jax.random.multinomial(word_key, n, theta @ self.topics(), dtype=theta.dtype)
