"""Conditional families: members of any family whose parameters come from a function of the condition."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from .._core import AbstractSpace, Reals, buffer, constrain, learnable, unconstrain
from ._base import AbstractExponentialFamily, log_prob_at, with_mean
from ._composite import Product


class AbstractLink(eqx.Module):
    """How the output of a function of the condition stands for parameters of a member of a family.

    A member is passed to every method: its shapes say how long the output is, and what the output does not
    set comes from it.
    """

    @abc.abstractmethod
    def size(self, member: Any) -> int:
        """How many numbers the output has."""

    @abc.abstractmethod
    def learned(self, member: Any) -> Any:
        """A tree of booleans: True at what the output does not set, so that it is learned by itself."""

    @abc.abstractmethod
    def at(self, member: Any, output: Array) -> Any:
        """The member for `output`."""

    @abc.abstractmethod
    def log_prob(self, member: Any, output: Array, x: Array) -> Array:
        """log p(x | output); NaN in `x` is marginalised."""

    @abc.abstractmethod
    def unit_free(self, member: Any) -> np.ndarray:
        """For each column, whether outputs for it exist in any other unit and from any origin."""


def _nothing(member: Any) -> Any:
    return jax.tree.map(lambda _: False, member)


class Natural(AbstractLink):
    """The output is η, the natural parameters of an exponential family: the canonical link.

    log p = η·T(x) − A(η) + log h(x) is had from η itself, so that no output is too large for it.  Families
    over labels and counts take any numbers for η; in others, such as `Gamma`, some η have no member, and
    log p is NaN there.

    >>> from freeenergy.distributions import Poisson
    >>> Given(Poisson(jnp.ones(1)), Natural()).mean(jnp.array([0.0])).tolist()
    [1.0]
    """

    def size(self, member: Any) -> int:
        return eqx.filter_eval_shape(lambda m: m.natural(), member).size

    def learned(self, member: Any) -> Any:
        if not isinstance(member, AbstractExponentialFamily):
            raise TypeError(f"{type(member).__name__} is no exponential family: it has no η.")
        return _nothing(member)

    def _natural(self, member: Any, output: Array) -> Array:
        return output.reshape(eqx.filter_eval_shape(lambda m: m.natural(), member).shape)

    def at(self, member: Any, output: Array) -> Any:
        return member.from_natural(self._natural(member, output))

    def log_prob(self, member: Any, output: Array, x: Array) -> Array:
        return log_prob_at(member, self._natural(member, output), x)

    def unit_free(self, member: Any) -> np.ndarray:
        return np.zeros(member.dim, bool)


def _identity(output: Array) -> Array:
    """The output itself."""
    # that of JAX cannot be pickled
    return output


class Mean(AbstractLink):
    """The output is the mean (or location) through an inverse link, one number a column.

    What else the member has, such as the variance of a Gaussian or the shape of a Gamma, is the same for
    all conditions and is learned.

    Attributes:
        inverse: from an output to a mean: the identity, `jnp.exp`, `jax.nn.sigmoid`, …

    >>> from freeenergy.distributions import Gamma
    >>> waiting = Given(Gamma(jnp.ones(1), jnp.ones(1)), Mean(jnp.exp))
    >>> waiting.at(jnp.array([0.0])).mean().tolist()
    [1.0]
    """

    inverse: Callable[[Array], Array] = eqx.field(static=True, default=_identity)

    def size(self, member: Any) -> int:
        return member.dim

    def learned(self, member: Any) -> Any:
        found: list[Any] = []

        def probe(mean: Array) -> None:
            new = with_mean(member, mean)
            # what is still the same object does not depend on the mean
            same = [a is b for a, b in zip(jax.tree.leaves(member), jax.tree.leaves(new), strict=True)]
            found.append(jax.tree.unflatten(jax.tree.structure(member), same))

        kind = next(leaf.dtype for leaf in jax.tree.leaves(member) if eqx.is_inexact_array(leaf))
        jax.eval_shape(probe, jax.ShapeDtypeStruct((member.dim,), kind))
        return jax.tree.map(lambda same, own: same and own, found[0], learnable(member))

    def at(self, member: Any, output: Array) -> Any:
        return with_mean(member, self.inverse(output))

    def log_prob(self, member: Any, output: Array, x: Array) -> Array:
        return self.at(member, output).log_prob(x)

    def unit_free(self, member: Any) -> np.ndarray:
        return member.unit_free_columns(member.dim) & (self.inverse is _identity)


class Free(AbstractLink):
    """The output sets all parameters through their free coordinates, as steps from those of the member.

    At output zero it is the member itself.  A variance, a shape or degrees of freedom that depend on the
    condition are no more than further outputs.

    >>> from freeenergy.distributions import Beta
    >>> share = Given(Beta(jnp.ones(2), jnp.full(2, 3.0)), Free())
    >>> share.size, share.at(jnp.zeros(4)).beta.round(6).tolist()
    (4, [3.0, 3.0])
    """

    def _vector(self, member: Any) -> tuple[Array, Callable[[Array], Any]]:
        """The free coordinates of the member, and the way back to one."""
        free, kept = eqx.partition(unconstrain(member), learnable(member))
        vector, tree_of = ravel_pytree(free)
        return vector, lambda flat: constrain(eqx.combine(tree_of(flat), kept))

    def steps(self, member: Any, target: Any) -> Array:
        """The output with which `member` becomes `target`, another of its family."""
        return self._vector(target)[0] - self._vector(member)[0]

    def size(self, member: Any) -> int:
        return eqx.filter_eval_shape(lambda m: self._vector(m)[0], member).size

    def learned(self, member: Any) -> Any:
        return _nothing(member)

    def at(self, member: Any, output: Array) -> Any:
        vector, member_of = self._vector(member)
        return member_of(vector + output)

    def log_prob(self, member: Any, output: Array, x: Array) -> Array:
        return self.at(member, output).log_prob(x)

    def unit_free(self, member: Any) -> np.ndarray:
        return member.unit_free_columns(member.dim)


class Parts(AbstractLink):
    """A link for each part of a `Product`; their outputs follow each other.

    Attributes:
        links: one for each part.

    >>> from freeenergy.distributions import Bernoulli, Laplace
    >>> mixed = Product((Laplace(jnp.zeros(1), jnp.ones(1)), Bernoulli(jnp.full(1, 0.5))), sizes=(1, 1))
    >>> Given(mixed, Parts((Mean(), Natural()))).mean(jnp.array([3.0, 0.0])).tolist()
    [3.0, 0.5]
    """

    links: tuple[AbstractLink, ...]

    def _sizes(self, member: Product) -> list[int]:
        return [link.size(part) for link, part in zip(self.links, member.parts, strict=True)]

    def _each(self, member: Product, output: Array) -> list[tuple[AbstractLink, Any, Array]]:
        pieces = jnp.split(output, np.cumsum(self._sizes(member))[:-1].tolist())
        return list(zip(self.links, member.parts, pieces, strict=True))

    def size(self, member: Product) -> int:
        return sum(self._sizes(member))

    def learned(self, member: Product) -> Any:
        parts = tuple(link.learned(part) for link, part in zip(self.links, member.parts, strict=True))
        return eqx.tree_at(lambda m: m.parts, member, parts)

    def at(self, member: Product, output: Array) -> Product:
        parts = tuple(link.at(part, piece) for link, part, piece in self._each(member, output))
        return member.with_parts(parts)

    def log_prob(self, member: Product, output: Array, x: Array) -> Array:
        blocks = member.blocks(x)
        terms = [
            link.log_prob(part, piece, block)
            for (link, part, piece), block in zip(self._each(member, output), blocks, strict=True)
        ]
        return jnp.sum(jnp.stack(terms))

    def unit_free(self, member: Product) -> np.ndarray:
        free = [link.unit_free(part) for link, part in zip(self.links, member.parts)]
        return np.concatenate(free)[np.argsort(member.order)]


@functools.singledispatch
def usual_link(member: Any) -> AbstractLink:
    """The link that suits the values of a family, if nothing else is said.

    `Natural()` where they have a mass, `Mean()` where they are any real numbers, `Free()` elsewhere, and
    for a `Product` that of each part.

    >>> from freeenergy.distributions import Laplace, Poisson
    >>> usual_link(Poisson(jnp.ones(1))), usual_link(Laplace(jnp.zeros(1), jnp.ones(1)))
    (Natural(), Mean())
    """
    if member.support.has_mass(member.dim).all():
        return Natural()
    return Mean() if member.support == Reals() else Free()


@usual_link.register
def _(member: Product) -> Parts:
    return Parts(tuple(usual_link(part) for part in member.parts))


class Given(eqx.Module):
    """A conditional family p(x | c): a member of a family whose parameters are set by an output, f(c).

    f is anybody's: a decoder (the emission of a VAE), a linear map (a generalised linear model, a
    regression in a state of a chain), the head of an autoregressive or mixture-density network.  Another
    family is no other class: `Given(Poisson(…), Natural())`, `Given(StudentT(…), Free())`.

    Attributes:
        learned: those parameters that the output does not set, in the place they have in the member.
        fixed: the rest of the member, of which nothing is learned.
        link: what the output sets, and how.

    >>> from freeenergy.distributions import Diagonal, Gaussian
    >>> noisy = Given(Gaussian(jnp.zeros(2), Diagonal(jnp.ones(2))), Mean())
    >>> round(float(noisy.log_prob(jnp.zeros(2), jnp.array([0.0, jnp.nan]))), 6)
    -0.918939
    >>> wider = Given(noisy.member, Free())
    >>> noisy.size, wider.size
    (2, 4)
    """

    learned: Any
    fixed: Any = buffer()
    link: AbstractLink  # pyright: ignore[reportGeneralTypeIssues]

    def __init__(self, member: Any, link: AbstractLink | None = None) -> None:
        self.link = usual_link(member) if link is None else link
        self.learned, self.fixed = eqx.partition(member, self.link.learned(member))

    @property
    def member(self) -> Any:
        """A member of the family with what is learned so far; what the output sets is as it was passed."""
        return eqx.combine(self.learned, self.fixed)

    @property
    def support(self) -> AbstractSpace:
        """Which values an event can take."""
        return self.fixed.support

    @property
    def dim(self) -> int:
        """How many columns an event has."""
        return self.member.dim

    @property
    def common_unit(self) -> bool:
        """Whether all columns have to be in one unit."""
        return self.member.common_unit

    def unit_free_columns(self, n_features: int) -> np.ndarray:
        """Which columns are described as well in any other unit and from any origin, by other outputs."""
        return self.link.unit_free(self.member)

    @property
    def size(self) -> int:
        """How many numbers an output has."""
        return self.link.size(self.member)

    def at(self, output: Array) -> Any:
        """p(x | output), a distribution."""
        return self.link.at(self.member, output)

    def log_prob(self, output: Array, x: Array) -> Array:
        """log p(x | output); NaN in `x` is marginalised."""
        return self.link.log_prob(self.member, output, x)

    def mean(self, output: Array) -> Array:
        """E[x | output], or the location where there is no mean."""
        return self.at(output).complete_mean(jnp.full(self.dim, jnp.nan, output.dtype))

    def sample(self, output: Array, *, key: Array) -> Array:
        """A draw of x."""
        return self.at(output).sample(key=key)
