"""A generator and the critic that it is learned against: rows that can be drawn and not be scored."""

from __future__ import annotations

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import logsumexp

from .._core import LOG_2PI
from ..nn import mlp


class Codes(eqx.Module):
    """A code with a known law: labels, uniform over 0 … K − 1, and numbers, uniform over (−1, 1).

    As a vector it is the labels, each as zeros and a one, and then the numbers.  What a network says of a
    code is a logit for each value of each label, and mean and log standard deviation of each number.

    Attributes:
        labels: how many values each label has.
        numbers: how many numbers there are.

    >>> codes = Codes((3,), 1)
    >>> codes.size, codes.outputs, round(codes.entropy, 4)
    (4, 5, 1.7918)
    >>> codes.sample(key=jax.random.key(0))[:3].sum().item()
    1.0
    """

    labels: tuple[int, ...] = eqx.field(static=True, default=())
    numbers: int = eqx.field(static=True, default=0)

    @property
    def size(self) -> int:
        """Entries of the vector."""
        return sum(self.labels) + self.numbers

    @property
    def outputs(self) -> int:
        """Numbers that a network says of a code."""
        return sum(self.labels) + 2 * self.numbers

    @property
    def entropy(self) -> float:
        """H(c) in nats, of the labels and of the density of the numbers."""
        return sum(math.log(values) for values in self.labels) + self.numbers * math.log(2)

    def sample(self, *, key: Array) -> Array:
        """A code as a vector."""
        *label_keys, number_key = jax.random.split(key, len(self.labels) + 1)
        parts = [
            jax.nn.one_hot(jax.random.randint(k, (), 0, values), values, dtype=jnp.float32)
            for k, values in zip(label_keys, self.labels, strict=True)
        ]
        parts.append(jax.random.uniform(number_key, (self.numbers,), jnp.float32, -1, 1))
        return jnp.concatenate(parts)

    def _parts(self, said: Array) -> tuple[list[Array], Array, Array]:
        """Log-probabilities of each label, and mean and log standard deviation of the numbers."""
        logits, place = [], 0
        for values in self.labels:
            some = said[place : place + values]
            logits.append(some - logsumexp(some))
            place += values
        mean, log_std = jnp.split(said[place:], 2)
        return logits, mean, log_std

    def log_prob(self, code: Array, said: Array) -> Array:
        """log Q(c | x), given what the network said of x."""
        logits, mean, log_std = self._parts(said)
        numbers = code[len(code) - self.numbers :]
        gap = (numbers - mean) * jnp.exp(-log_std)
        total = -jnp.sum(0.5 * gap**2 + log_std) - 0.5 * self.numbers * LOG_2PI
        place = 0
        for values, logs in zip(self.labels, logits, strict=True):
            total = total + code[place : place + values] @ logs
            place += values
        return total

    def expected(self, said: Array) -> Array:
        """E_Q[c | x]: the probability of each value of each label, and the mean of each number."""
        logits, mean, _ = self._parts(said)
        return jnp.concatenate([*(jnp.exp(logs) for logs in logits), mean])


class Adversaries(eqx.Module):
    """z ~ N(0, I), c ~ `codes`, x = generator(z, c): a law of x from which one can draw.

    Its density is unknown, and the generator need not be invertible: E h(x) = E h(generator(z, c)) for
    every h is all that learning needs.  The critic gives a number for each x, larger for what it takes for
    data; with `mask_input` it sees zeros where nothing is observed, and which entries those are.

    Attributes:
        generator: of z followed by c.
        critic: of x (followed by a one per observed entry).
        recogniser: what Q says of the code of x, if there is one.
        noise: entries of z.
        codes: law of c; None for no code.
        mask_input: whether the critic is told what is observed.

    References:
        Goodfellow et al. (2014), Generative adversarial nets.
        Chen et al. (2016), InfoGAN.
        Bora, Price and Dimakis (2018), AmbientGAN: generative models from lossy measurements.

    >>> model = adversaries(2, 3, width=8, depth=1, key=jax.random.key(0))
    >>> model.sample(key=jax.random.key(1)).shape
    (2,)
    """

    generator: Callable[[Array], Array]
    critic: Callable[[Array], Array]
    recogniser: Callable[[Array], Array] | None
    noise: int = eqx.field(static=True)
    codes: Codes | None = None
    mask_input: bool = eqx.field(static=True, default=False)

    def cause(self, *, key: Array) -> Array:
        """z followed by c."""
        noise_key, code_key = jax.random.split(key)
        z = jax.random.normal(noise_key, (self.noise,), jnp.float32)
        return z if self.codes is None else jnp.concatenate([z, self.codes.sample(key=code_key)])

    def make(self, cause: Array) -> Array:
        """What the generator makes of z followed by c, in the precision of its weights."""
        kind = next(a.dtype for a in jax.tree.leaves(self.generator) if eqx.is_inexact_array(a))
        return self.generator(cause.astype(kind))

    def sample(self, *, key: Array) -> Array:
        """A draw of x."""
        return self.make(self.cause(key=key))

    def judge(self, x: Array, observed: Array) -> Array:
        """The critic's number for the observed part of x."""
        seen = jnp.where(observed, x, 0)
        if self.mask_input:
            seen = jnp.concatenate([seen, observed.astype(x.dtype)])
        return self.critic(seen)[0]

    def encode(self, x: Array) -> Array:
        """The code that the recogniser expects of x; entries that are not observed count as the mean."""
        if self.codes is None or self.recogniser is None:
            raise ValueError("Adversaries without codes have nothing to recognise.")
        return self.codes.expected(self.recogniser(jnp.where(jnp.isnan(x), 0, x)))


def adversaries(
    columns: int,
    noise: int,
    *,
    codes: Codes | None = None,
    mask_input: bool = False,
    width: int = 128,
    depth: int = 2,
    key: Array,
) -> Adversaries:
    """Random perceptrons of `depth` hidden layers of `width` units for each part."""
    keys = jax.random.split(key, 3)
    sizes = {"width": width, "depth": depth, "activation": leaky_relu}
    inputs = noise + (0 if codes is None else codes.size)
    return Adversaries(
        mlp(inputs, columns, **sizes, key=keys[0]),
        mlp(columns * (2 if mask_input else 1), 1, **sizes, key=keys[1]),
        None if codes is None else mlp(columns, codes.outputs, **sizes, key=keys[2]),
        noise,
        codes,
        mask_input,
    )


def leaky_relu(x: Array) -> Array:
    """max(x, x / 5): a slope everywhere, so that the generator is told even by a critic that is sure."""
    return jnp.maximum(x, 0.2 * x)
