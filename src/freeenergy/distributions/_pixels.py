"""Whole numbers of a range, such as grey values, by mixtures of logistic laws."""

from __future__ import annotations

from typing import ClassVar, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.nn import log_sigmoid

from .._core import AbstractSpace, Counts, on_device, parameter, positive
from ._base import AbstractDistribution, AbstractPartial, AbstractShaped, check_support, levels
from ._given import Free, usual_link

# how many a column has, if nothing else is said
_COMPONENTS = 5


class DiscretisedLogistics(AbstractDistribution, AbstractPartial, AbstractShaped):
    """Whole numbers 0 … n − 1, each the mass of a mixture of logistic laws within half a step of it:

        p(x) = Σ_k π_k [σ((x + ½ − μ_k) / s_k) − σ((x − ½ − μ_k) / s_k)],

    in each coordinate, where the first and the last number have all mass beyond them.  Grey values and
    other counts of a known range, whose neighbours are alike.  Also known as the discretised logistic
    mixture of PixelCNN++.

    Attributes:
        scores: π = softmax(scores), (dim, components).
        loc: μ.
        scale: s.
        number: n.

    References:
        Salimans, Karpathy, Chen and Kingma (2017), PixelCNN++.

    >>> law = DiscretisedLogistics(jnp.zeros((1, 1)), jnp.zeros((1, 1)), jnp.ones((1, 1)), 2)
    >>> round(float(law.log_prob(jnp.array([0.0]))), 6)  # log σ(½)
    -0.474077
    """

    support: ClassVar[AbstractSpace] = Counts()

    scores: Array = parameter()
    loc: Array = parameter()
    scale: Array = parameter(positive)
    number: int = eqx.field(static=True)  # pyright: ignore[reportGeneralTypeIssues]

    @classmethod
    def prototype(cls, x: np.ndarray) -> Self:
        check_support(cls, x)
        number = int(np.nanmax(x)) + 1
        shape = (x.shape[1], _COMPONENTS)
        places = np.broadcast_to(np.linspace(0, number - 1, _COMPONENTS), shape)
        width = np.full(shape, number / _COMPONENTS)
        scores, loc, scale = map(on_device, (np.zeros(shape), places.copy(), width))
        return cls(scores, loc, scale, number)

    @property
    def dim(self) -> int:
        """How many columns an event has."""
        return self.loc.shape[-2]

    @property
    def common_unit(self) -> bool:
        """Whether all columns have to be in one unit."""
        return False

    def log_prob(self, x: Array) -> Array:
        observed = ~jnp.isnan(x)
        filled = jnp.where(observed, x, 0)
        above = (filled[:, None] + 0.5 - self.loc) / self.scale
        below = (filled[:, None] - 0.5 - self.loc) / self.scale
        first, last = filled[:, None] <= 0, filled[:, None] >= self.number - 1
        # σ(b) − σ(a) = σ(b) σ(−a) (1 − e^{a − b}), and b − a is 1 / s
        inside = jnp.log(-jnp.expm1(-1 / self.scale))
        logs = (
            jnp.where(last, 0, log_sigmoid(above))
            + jnp.where(first, 0, log_sigmoid(-below))
            + jnp.where(first | last, 0, inside)
        )
        terms = jax.nn.logsumexp(jax.nn.log_softmax(self.scores, axis=-1) + logs, axis=-1)
        possible = (filled >= 0) & (filled <= self.number - 1) & (jnp.floor(filled) == filled)
        terms = jnp.where(possible, terms, -jnp.inf)
        return jnp.sum(jnp.where(observed, terms, 0))

    def mean(self) -> Array:
        """E[x] = Σ_{x < n − 1} P(X > x), one number per coordinate."""
        steps = jnp.arange(self.number - 1, dtype=self.loc.dtype)[None, None] + 0.5
        tails = jax.nn.sigmoid((self.loc[..., None] - steps) / self.scale[..., None]).sum(-1)
        return jnp.sum(jax.nn.softmax(self.scores, axis=-1) * tails, axis=-1)

    def sample(self, *, key: Array) -> Array:
        choose, draw = jax.random.split(key)
        place = jax.random.categorical(choose, self.scores)[:, None]
        loc, scale = (jnp.take_along_axis(a, place, axis=-1)[:, 0] for a in (self.loc, self.scale))
        drawn = loc + scale * jax.random.logistic(draw, loc.shape, loc.dtype)
        return jnp.clip(jnp.round(drawn), 0, self.number - 1)

    def complete_mean(self, x: Array) -> Array:
        return jnp.where(jnp.isnan(x), self.mean(), x)

    def complete_sample(self, x: Array, *, key: Array) -> Array:
        return jnp.where(jnp.isnan(x), self.sample(key=key), x)


@levels.register
def _(family: DiscretisedLogistics) -> tuple[int, ...]:
    return (family.number,) * family.dim


@usual_link.register
def _(member: DiscretisedLogistics) -> Free:
    return Free()
