"""What the critic and the generator of a game over samples play for.

The critic f tells data from what is made; a value function says what it lowers at each, and what the
generator lowers at what it made.  Penalties keep the critic smooth.
"""

from __future__ import annotations

import abc
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from ..models import Adversaries, LabelledAdversaries
from ._entropy import AbstractEntropy
from ._objectives import Batch


class AbstractValue(eqx.Module):
    """A value function, as what is lowered of the critic's number f at a datum and at what is made."""

    @abc.abstractmethod
    def real(self, f: Array) -> Array:
        """What the critic lowers at a datum."""

    @abc.abstractmethod
    def made(self, f: Array) -> Array:
        """What the critic lowers at what was made."""

    @abc.abstractmethod
    def fooled(self, f: Array) -> Array:
        """What the generator lowers at what it made."""


class Minimax(AbstractValue):
    """E log D(x) + E log(1 − D(G(z))) with D = 1 / (1 + e^−f): the original game, a saddle point.

    Against the best critic, D = p / (p + q), its value is 2 JSD(p, q) − log 4.

    References:
        Goodfellow et al. (2014), Generative adversarial nets.

    >>> value, f = Minimax(), jnp.array(0.0)
    >>> round(float(-value.real(f) - value.made(f)), 6), round(-math.log(4), 6)
    (-1.386294, -1.386294)
    """

    def real(self, f: Array) -> Array:
        return jax.nn.softplus(-f)

    def made(self, f: Array) -> Array:
        return jax.nn.softplus(f)

    def fooled(self, f: Array) -> Array:
        return -jax.nn.softplus(f)


class NonSaturating(AbstractValue):
    """The critic of `Minimax`; the generator raises E log D(G(z)), whose slope does not vanish where D = 0.

    >>> slope = jax.grad(NonSaturating().fooled)(jnp.array(-20.0))
    >>> round(float(slope), 6), round(float(jax.grad(Minimax().fooled)(jnp.array(-20.0))), 6)
    (-1.0, -0.0)
    """

    def real(self, f: Array) -> Array:
        return jax.nn.softplus(-f)

    def made(self, f: Array) -> Array:
        return jax.nn.softplus(f)

    def fooled(self, f: Array) -> Array:
        return jax.nn.softplus(-f)


class Wasserstein(AbstractValue):
    """E f(x) − E f(G(z)), the distance W₁ over critics of slope one: needs `GradientPenalty` or `within`.

    References:
        Arjovsky, Chintala and Bottou (2017), Wasserstein GAN.

    >>> float(Wasserstein().real(jnp.array(2.0)))
    -2.0
    """

    def real(self, f: Array) -> Array:
        return -f

    def made(self, f: Array) -> Array:
        return f

    def fooled(self, f: Array) -> Array:
        return -f


class Hinge(AbstractValue):
    """The critic lowers max(0, 1 − f(x)) + max(0, 1 + f(G(z))), the generator −f(G(z)).

    References:
        Lim and Ye (2017), Geometric GAN.

    >>> [float(Hinge().real(jnp.array(f))) for f in (-1.0, 0.5, 3.0)]
    [2.0, 0.5, 0.0]
    """

    def real(self, f: Array) -> Array:
        return jnp.maximum(1 - f, 0)

    def made(self, f: Array) -> Array:
        return jnp.maximum(1 + f, 0)

    def fooled(self, f: Array) -> Array:
        return -f


class AbstractFDivergence(eqx.Module):
    """D_φ(p, q) = E_q φ(p/q), by its dual: the largest E_p t(f) − E_q φ*(t(f)) over functions f.

    The map t takes any number to where φ* is finite.
    """

    @abc.abstractmethod
    def output(self, f: Array) -> Array:
        """t(f)."""

    @abc.abstractmethod
    def conjugate(self, f: Array) -> Array:
        """φ*(t(f)), as a function of f."""


class KullbackLeibler(AbstractFDivergence):
    """KL(p ‖ q): φ(u) = u log u.

    >>> float(KullbackLeibler().conjugate(jnp.array(1.0)))
    1.0
    """

    def output(self, f: Array) -> Array:
        return f

    def conjugate(self, f: Array) -> Array:
        return jnp.exp(f - 1)


class ReverseKullbackLeibler(AbstractFDivergence):
    """KL(q ‖ p): φ(u) = −log u.

    >>> float(ReverseKullbackLeibler().output(jnp.array(0.0)))
    -1.0
    """

    def output(self, f: Array) -> Array:
        return -jnp.exp(-f)

    def conjugate(self, f: Array) -> Array:
        return f - 1


class PearsonChiSquared(AbstractFDivergence):
    """Σ (p − q)² / q: φ(u) = (u − 1)².

    >>> float(PearsonChiSquared().conjugate(jnp.array(2.0)))
    3.0
    """

    def output(self, f: Array) -> Array:
        return f

    def conjugate(self, f: Array) -> Array:
        return f**2 / 4 + f


class SquaredHellinger(AbstractFDivergence):
    """Σ (√p − √q)²: φ(u) = (√u − 1)².

    >>> float(SquaredHellinger().output(jnp.array(0.0)))
    0.0
    """

    def output(self, f: Array) -> Array:
        return -jnp.expm1(-f)

    def conjugate(self, f: Array) -> Array:
        return jnp.expm1(f)


class JensenShannon(AbstractFDivergence):
    """2 JSD(p, q): φ(u) = u log u − (u + 1) log((u + 1) / 2); `Minimax` and log 4.

    >>> float(JensenShannon().conjugate(jnp.array(0.0)))
    0.0
    """

    def output(self, f: Array) -> Array:
        return math.log(2) - jax.nn.softplus(-f)

    def conjugate(self, f: Array) -> Array:
        return jax.nn.softplus(f) - math.log(2)


class FDivergence(AbstractValue):
    """The game for an f-divergence: both play for E t(f(x)) − E φ*(t(f(G(z)))) (f-GAN).

    References:
        Nowozin, Cseke and Tomioka (2016), f-GAN.

    >>> float(FDivergence(PearsonChiSquared()).real(jnp.array(1.5)))
    -1.5
    """

    divergence: AbstractFDivergence

    def real(self, f: Array) -> Array:
        return -self.divergence.output(f)

    def made(self, f: Array) -> Array:
        return self.divergence.conjugate(f)

    def fooled(self, f: Array) -> Array:
        return -self.divergence.conjugate(f)


class AbstractPenalty(eqx.Module):
    """What a critic pays for its slopes."""

    @abc.abstractmethod
    def __call__(self, slope: Any, x: Array, made: Array, *, key: Array) -> Array:
        """What is paid for a datum and something made; `slope` has ∇f at a point."""


def _length(v: Array) -> Array:
    """‖v‖, of slope zero at zero."""
    square = jnp.sum(v**2)
    positive = square > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, square, 1)), 0)


class GradientPenalty(AbstractPenalty):
    """λ E (‖∇f(x̂)‖ − 1)² at points x̂ between data and what is made, for `Wasserstein`.

    The penalised value lies above the distance: for a linear critic and a shift θ it is θ + θ²/4λ.

    References:
        Gulrajani et al. (2017), Improved training of Wasserstein GANs.

    >>> penalty = GradientPenalty(10.0)
    >>> float(penalty(lambda x: 3 * x, jnp.array([1.0]), jnp.array([1.0]), key=jax.random.key(0)))
    40.0
    """

    weight: float = eqx.field(static=True, default=10.0)

    def __call__(self, slope: Any, x: Array, made: Array, *, key: Array) -> Array:
        share = jax.random.uniform(key, (), x.dtype)
        return self.weight * (_length(slope(share * x + (1 - share) * made)) - 1) ** 2


class ZeroCentred(AbstractPenalty):
    """λ/2 E ‖∇f(x)‖² at data: with it the game converges near its equilibrium (R1).

    References:
        Mescheder, Geiger and Nowozin (2018), Which training methods for GANs do actually converge?

    >>> float(ZeroCentred(0.5)(lambda x: 2 * x, jnp.array([1.0]), jnp.array([0.0]), key=jax.random.key(0)))
    1.0
    """

    weight: float = eqx.field(static=True, default=1.0)

    def __call__(self, slope: Any, x: Array, made: Array, *, key: Array) -> Array:
        return 0.5 * self.weight * jnp.sum(slope(x) ** 2)


def within(bound: float) -> optax.GradientTransformation:
    """Keeps every parameter in ±`bound`: the last link of an optimiser (weight clipping of WGAN).

    >>> step, _ = within(1.0).update(jnp.array(0.7), optax.EmptyState(), jnp.array(0.5))
    >>> float(step)
    0.5
    """

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        return jax.tree.map(lambda u, p: jnp.clip(p + u, -bound, bound) - p, updates, params), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def _made(model: Adversaries | LabelledAdversaries, count: int, key: Array) -> tuple[Array, Array]:
    """Causes, and what the generator makes of them."""
    causes = jax.vmap(lambda k: model.cause(key=k))(jax.random.split(key, count))
    return causes, jax.vmap(model.make)(causes)


class CriticLoss(eqx.Module):
    """What the critic lowers: to tell data from what is made, and what its slopes cost.

    Entries of data that are not observed are hidden from the critic, and those of what is made with the
    same holes: where holes come by chance alone, the generator learns the law of complete rows.
    """

    value: AbstractValue
    penalty: AbstractPenalty | None = None

    def __call__(self, model: Adversaries | LabelledAdversaries, batch: Batch, key: Array) -> Array:
        noise_key, penalty_key = jax.random.split(key)
        observed = ~jnp.isnan(batch.x)
        x = jnp.where(observed, batch.x, 0)
        _, made = _made(model, len(x), noise_key)
        made = jnp.where(observed, made, 0)
        judge = jax.vmap(model.judge)
        losses = self.value.real(judge(x, observed)) + self.value.made(judge(made, observed))
        if self.penalty is not None:
            penalty = self.penalty

            def paid(x: Array, made: Array, seen: Array, key: Array) -> Array:
                return penalty(jax.grad(lambda point: model.judge(point, seen)), x, made, key=key)

            keys = jax.random.split(penalty_key, len(x))
            losses = losses + jax.vmap(paid)(x, made, observed, keys)
        return batch.mean(losses)


class GeneratorLoss(eqx.Module):
    """What the generator lowers: the value function, and −λ I for a bound I of what x tells of its code.

        I(c; x) ≥ H(c) + E log Q(c | x)

    It needs no draws of the posterior: x is made of a code that is drawn first.  With an `entropy` the
    generator pays for draws that are too much alike.  With `Wasserstein()` the critic is then −e for an
    energy e, and the generator learns to draw from it (energy-based GAN).
    """

    value: AbstractValue
    information: float = eqx.field(static=True, default=1.0)
    entropy: AbstractEntropy | None = None

    def __call__(self, model: Adversaries | LabelledAdversaries, batch: Batch, key: Array) -> Array:
        causes, made = _made(model, len(batch.x), key)
        observed = ~jnp.isnan(batch.x)
        loss = batch.mean(self.value.fooled(jax.vmap(model.judge)(made, observed)))
        if self.entropy is not None:
            loss = loss + self.entropy(made, key=jax.random.fold_in(key, 1))
        if model.codes is None:
            return loss
        return loss - self.information * (model.codes.entropy + jnp.mean(_log_q(model, causes, made)))


def _log_q(model: Adversaries, causes: Array, made: Array) -> Array:
    """log Q(c | x) of each code and what was made of it."""
    if model.codes is None or model.recogniser is None:
        raise ValueError("Only Adversaries with codes have information about them.")
    said = jax.vmap(model.recogniser)(made)
    return jax.vmap(model.codes.log_prob)(causes[:, model.noise :].astype(said.dtype), said)


def information_bound(model: Adversaries, draws: int, *, key: Array) -> tuple[Array, Array]:
    """H(c) + E log Q(c | x), a lower bound of the mutual information in nats, and its standard error.

    References:
        Barber and Agakov (2003), The IM algorithm.
    """
    terms = _log_q(model, *_made(model, draws, key))
    entropy = 0.0 if model.codes is None else model.codes.entropy
    return entropy + jnp.mean(terms), jnp.std(terms) / math.sqrt(draws)
