"""The laws of single variables of a Bayesian network, given their parents."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .._core import (
    LOG_2PI,
    AbstractSpace,
    Categories,
    Reals,
    log_probability,
    parameter,
    positive,
    refuse_outside,
    simplex,
)
from ..distributions import Given


class AbstractNode(eqx.Module):
    """p(x | parents) of one variable of a Bayesian network."""

    @property
    @abc.abstractmethod
    def size(self) -> int | None:
        """How many labels x can be; None for numbers."""

    @property
    @abc.abstractmethod
    def space(self) -> AbstractSpace:
        """What x can be."""

    @abc.abstractmethod
    def problem(self, sizes: tuple[int | None, ...]) -> str | None:
        """What is wrong with parents of these sizes, if anything."""

    @abc.abstractmethod
    def log_prob(self, x: Array, labels: Array, numbers: Array) -> Array:
        """log p(x | parents), of which some are labels and some numbers."""

    @abc.abstractmethod
    def sample(self, labels: Array, numbers: Array, *, key: Array) -> Array:
        """A draw of x."""

    @abc.abstractmethod
    def mean(self, labels: Array, numbers: Array) -> Array:
        """E[x | parents], of labels that of their codes."""


class TableNode(AbstractNode):
    """A label given labels:  p(x = k | parents = i, j, …) = table[i, j, …, k].

    Attributes:
        probabilities: an axis for each parent, and the last for the label itself.

    >>> TableNode(jnp.array([[0.9, 0.1], [0.3, 0.7]])).size
    2
    """

    probabilities: Array = parameter(simplex)

    def __check_init__(self) -> None:
        refuse_outside(self, closed=True)

    @property
    def size(self) -> int:
        return self.probabilities.shape[-1]

    @property
    def space(self) -> Categories:
        return Categories(self.size)

    def problem(self, sizes: tuple[int | None, ...]) -> str | None:
        if None in sizes:
            return "has a table, and so labels alone as parents"
        if self.probabilities.shape[:-1] == sizes:
            return None
        return f"must have a table of the shape {(*sizes, self.size)}: {self.probabilities.shape} is none"

    def _row(self, labels: Array) -> Array:
        return self.probabilities[tuple(labels)] if len(labels) else self.probabilities

    def log_prob(self, x: Array, labels: Array, numbers: Array) -> Array:
        chosen = x == jnp.arange(self.size, dtype=x.dtype)
        return log_probability(jnp.sum(jnp.where(chosen, self._row(labels), 0)))

    def sample(self, labels: Array, numbers: Array, *, key: Array) -> Array:
        drawn = jax.random.categorical(key, log_probability(self._row(labels)))
        return drawn.astype(self.probabilities.dtype)

    def mean(self, labels: Array, numbers: Array) -> Array:
        return jnp.vdot(self._row(labels), jnp.arange(self.size, dtype=self.probabilities.dtype))


class GaussianNode(AbstractNode):
    """A number given labels l and numbers u:  N(x; b_l + w_l · u, v_l) (linear Gaussian).

    Attributes:
        intercept: b, an axis for each parent that is a label.
        weights: w, the same axes and one for the parents that are numbers.
        variance: v, as b.

    >>> line = GaussianNode(jnp.array(1.0), jnp.array([2.0]), jnp.array(1.0))
    >>> float(line.mean(jnp.zeros(0, int), jnp.array([3.0])))
    7.0
    """

    intercept: Array = parameter()
    weights: Array = parameter()
    variance: Array = parameter(positive)

    def __check_init__(self) -> None:
        refuse_outside(self)

    @property
    def size(self) -> None:
        return None

    @property
    def space(self) -> Reals:
        return Reals(())

    def problem(self, sizes: tuple[int | None, ...]) -> str | None:
        labels = tuple(size for size in sizes if size is not None)
        shape = (*labels, sizes.count(None))
        if self.weights.shape == shape and self.intercept.shape == self.variance.shape == labels:
            return None
        return f"must have weights of the shape {shape}: {self.weights.shape} is none"

    def at(self, labels: Array) -> tuple[Array, Array, Array]:
        """b, w and v for some labels."""
        if not len(labels):
            return self.intercept, self.weights, self.variance
        place = tuple(labels)
        return self.intercept[place], self.weights[place], self.variance[place]

    def mean(self, labels: Array, numbers: Array) -> Array:
        b, w, _ = self.at(labels)
        return b + jnp.vdot(w, numbers)

    def log_prob(self, x: Array, labels: Array, numbers: Array) -> Array:
        v = self.at(labels)[2]
        return -0.5 * ((x - self.mean(labels, numbers)) ** 2 / v + jnp.log(v) + LOG_2PI)

    def sample(self, labels: Array, numbers: Array, *, key: Array) -> Array:
        v = self.at(labels)[2]
        return self.mean(labels, numbers) + jnp.sqrt(v) * jax.random.normal(key, (), v.dtype)


class GivenNode(AbstractNode):
    """Any conditional family:  p(x | f(parents)), of one column.

    Attributes:
        given: the family, such as `Given(Poisson(…))`.
        function: from the vector of parents, labels before numbers, to the output that sets it.

    >>> from freeenergy.distributions import Poisson
    >>> visits = GivenNode(Given(Poisson(jnp.ones(1))), lambda u: jnp.log(1 + u))
    >>> round(float(visits.mean(jnp.array([1]), jnp.zeros(0))), 6)
    2.0
    """

    given: Given
    function: Callable[[Array], Array]

    @property
    def size(self) -> None:
        return None

    @property
    def space(self) -> AbstractSpace:
        support: Any = self.given.support
        return dataclasses.replace(support, shape=())

    def problem(self, sizes: tuple[int | None, ...]) -> str | None:
        return (
            None if self.given.dim == 1 else f"must have a family of one column: {self.given.dim} are not"
        )

    def _output(self, labels: Array, numbers: Array) -> Array:
        return self.function(jnp.concatenate([labels.astype(numbers.dtype), numbers]))

    def log_prob(self, x: Array, labels: Array, numbers: Array) -> Array:
        return self.given.log_prob(self._output(labels, numbers), x[None])

    def sample(self, labels: Array, numbers: Array, *, key: Array) -> Array:
        return self.given.sample(self._output(labels, numbers), key=key)[0]

    def mean(self, labels: Array, numbers: Array) -> Array:
        return self.given.mean(self._output(labels, numbers))[0]
