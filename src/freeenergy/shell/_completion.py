"""What is missing as an unknown that any method can infer: its energy, or that of a cause behind it."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, Self

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._core import AbstractSpace, on_device
from ..models import AbstractBoundedModel, AbstractSequenceModel, one_series
from ._rows import Scaling


class AbstractCompletion(eqx.Module):
    """How the missing entries of one event can be inferred by a method of the user's choice."""


class AbstractWholeEnergy(AbstractCompletion):
    """A density that knows −log p of events without NaN: the missing entries are the unknown."""

    @abc.abstractmethod
    def __call__(self, x: Array) -> Array:
        """−log p(x) of a complete event, in the units of the user."""


class AbstractHiddenCause(AbstractCompletion):
    """A density of which only −log p(x, z) is known: its cause z is the unknown, and x is drawn given z."""

    @abc.abstractmethod
    def space(self) -> Any:
        """What z can be: a space, or a tree of spaces."""

    @abc.abstractmethod
    def energy(self, z: Any) -> Array:
        """−log p of z and of what is observed, in the units of the user; what is missing is summed out."""

    @abc.abstractmethod
    def complete(self, z: Any, *, key: Array) -> Array:
        """The event with its missing entries drawn given z and the others, in the units of the user."""


class RowEnergy(AbstractWholeEnergy):
    """−log p of a complete row.

    Attributes:
        model: of rescaled rows.
        log_prob: a function of the model and a rescaled row, such as a method of its class.
        shift, scale: the units of the user.
        log_partition: what log p has less than `log_prob`.
        shape: of a row, as the model takes it.
    """

    model: Any
    log_prob: Callable[[Any, Array], Array] = eqx.field(static=True)
    shift: Array
    scale: Array
    log_partition: Array
    shape: tuple[int, ...] = eqx.field(static=True)

    @classmethod
    def of(
        cls,
        model: Any,
        log_prob: Callable[[Any, Array], Array],
        scaling: Scaling,
        *,
        log_partition: float = 0.0,
        shape: tuple[int, ...] = (-1,),
    ) -> Self:
        """With arrays on the device."""
        shift, scale = map(on_device, scaling)
        return cls(model, log_prob, shift, scale, on_device(np.asarray(log_partition)), shape)

    def __call__(self, x: Array) -> Array:
        inner = self.log_prob(self.model, ((x - self.shift) / self.scale).reshape(self.shape))
        return jnp.sum(jnp.log(self.scale)) + self.log_partition - inner


class SeriesEnergy(AbstractWholeEnergy):
    """−log p of a complete series."""

    model: AbstractSequenceModel
    shift: Array
    scale: Array

    def __call__(self, x: Array) -> Array:
        series = one_series((x - self.shift[None]) / self.scale[None])
        steps = self.model.step_evidence(series, incomplete=False)
        return len(x) * jnp.sum(jnp.log(self.scale)) - jnp.sum(steps)


class RowCause(AbstractHiddenCause):
    """The cause of a row.

    Attributes:
        model: of rescaled rows.
        x: the rescaled row, with NaN.
        shift, scale: the units of the user.
    """

    model: AbstractBoundedModel
    x: Array
    shift: Array
    scale: Array

    def space(self) -> AbstractSpace:
        return self.model.latent(self.x)

    def energy(self, z: Array) -> Array:
        seen = jnp.where(jnp.isnan(self.x), 0.0, jnp.log(self.scale))
        return jnp.sum(seen) + self.model.energy(self.x, z)

    def complete(self, z: Array, *, key: Array) -> Array:
        return self.shift + self.scale * self.model.complete_given(self.x, z, key=key)
