"""A generator and the critic that it is learned against: rows that can be drawn and not be scored."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import logsumexp

from .._core import LOG_2PI, buffer, on_device, split_key
from ..nn import mlp
from ._told_label import label_codes


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


class LabelledAdversaries(eqx.Module):
    """y ~ p(y), z ~ N(0, I), x = generator(z, y): a law of rows given a label from which one can draw.

    Its events are rows followed by the numbers of their label.  The critic sees both, the generator is told
    the label and repeats it, so that each learns the other's x given y, in the game of `Adversaries`.

    Attributes:
        generator: of z followed by the numbers of the label.
        critic: of x and the numbers of the label (followed by a one per observed entry of x).
        noise: entries of z.
        weights: p(y).
        table: the numbers of each label, as made by `label_codes`.
        mask_input: whether the critic is told what is observed.

    References:
        Mirza and Osindero (2014), Conditional generative adversarial nets.

    >>> made = labelled_adversaries(2, 3, np.array([0.5, 0.5]), width=8, depth=1, key=jax.random.key(0))
    >>> made.sample(key=jax.random.key(1)).shape
    (2,)
    """

    generator: Callable[[Array], Array]
    critic: Callable[[Array], Array]
    noise: int = eqx.field(static=True)
    weights: Array = buffer()
    table: Array = buffer()
    mask_input: bool = eqx.field(static=True, default=False)
    codes: ClassVar[None] = None

    def cause(self, *, key: Array) -> Array:
        """z followed by the numbers of a label."""
        # the noise of the model without labels
        noise_key, label_key = jax.random.split(key)
        z = jax.random.normal(noise_key, (self.noise,), jnp.float32)
        label = jax.random.choice(label_key, len(self.weights), p=self.weights)
        return jnp.concatenate([z, self.table[label].astype(z.dtype)])

    def make(self, cause: Array) -> Array:
        """What the generator makes of z and the numbers of a label, followed by these."""
        kind = next(a.dtype for a in jax.tree.leaves(self.generator) if eqx.is_inexact_array(a))
        cause = cause.astype(kind)
        return jnp.concatenate([self.generator(cause), cause[self.noise :]])

    def sample(self, *, key: Array) -> Array:
        """A draw of x, with any label."""
        made = self.make(self.cause(key=key))
        return made[: len(made) - self.table.shape[1]]

    def sample_of(self, label: Array, *, key: Array) -> Array:
        """A draw of x with a label."""
        z = self.cause(key=key)[: self.noise]
        return self.generator(
            jnp.concatenate([z, self.table[label].astype(z.dtype)]).astype(self.table.dtype)
        )

    def judge(self, x: Array, observed: Array) -> Array:
        """The critic's number for the observed part of a row and the numbers of its label.

        Nothing is paid for its slope along the label, which is no place where data could be.
        """
        size = self.table.shape[1]
        columns = len(x) - size
        code = jax.lax.stop_gradient(x[columns:])
        parts = [jnp.where(observed[:columns], x[:columns], 0), code]
        if self.mask_input:
            parts.append(observed[:columns].astype(x.dtype))
        return self.critic(jnp.concatenate(parts))[0]


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
    keys = split_key(key, 3)
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


def labelled_adversaries(
    columns: int,
    noise: int,
    weights: np.ndarray,
    *,
    mask_input: bool = False,
    width: int = 128,
    depth: int = 2,
    key: Array,
) -> LabelledAdversaries:
    """Random perceptrons of `depth` hidden layers of `width` units, told a label of these shares."""
    keys, table = split_key(key, 3), label_codes(len(weights))[:-1]
    sizes = {"width": width, "depth": depth, "activation": leaky_relu}
    size = table.shape[1]
    return LabelledAdversaries(
        mlp(noise + size, columns, **sizes, key=keys[0]),
        mlp(columns * (2 if mask_input else 1) + size, 1, **sizes, key=keys[1]),
        noise,
        weights=on_device(weights, np.float32),
        table=on_device(table, np.float32),
        mask_input=mask_input,
    )


def leaky_relu(x: Array) -> Array:
    """max(x, x / 5): a slope everywhere, so that the generator is told even by a critic that is sure."""
    return jnp.maximum(x, 0.2 * x)
