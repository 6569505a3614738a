"""Models in the units of the data: a rescaling composed with a model of rescaled events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from .._core import buffer, on_device
from ..bijections import Affine
from ..distributions import Transformed, rescaled
from ..inference import ImportanceEstimate
from ._base import AbstractConditional, AbstractRescalable
from ._series import AbstractRescalableSeries, AbstractSequenceModel, Series


def _log_scales(x: Array, scale: Array) -> Array:
    """log of the scales of the entries of an event that are observed."""
    return jnp.where(jnp.isnan(x), 0, jnp.log(scale))


class InUnits(eqx.Module):
    """The law of x = shift + scale · z for z from a model, entry by entry, missing entries included.

    It answers what the model answers: `log_prob`, `evidence`, `energy`, `latent`, `posterior`, `encode`,
    `sample`, `complete_mean` and `complete_sample`.

    Attributes:
        model: the model of z.
        shift, scale: the units.

    >>> from freeenergy.distributions import Diagonal, Gaussian
    >>> from freeenergy.models import Density
    >>> normal = Density(Gaussian(jnp.zeros(1), Diagonal(jnp.ones(1))))
    >>> InUnits(normal, jnp.array([3.0]), jnp.array([2.0])).log_prob(jnp.array([3.0])).round(6).item()
    -1.612086
    """

    model: Any
    shift: Array = buffer()
    scale: Array = buffer()

    def _inside(self, x: Array) -> Array:
        return (x - self.shift) / self.scale

    def _outside(self, z: Array) -> Array:
        return z * self.scale + self.shift

    def _volume(self, x: Array) -> Array:
        return jnp.sum(_log_scales(x, self.scale))

    def log_prob(self, x: Array) -> Array:
        """log p of what is observed of `x`, where the model knows it exactly."""
        return self.model.log_prob(self._inside(x)) - self._volume(x)

    def evidence(self, x: Array, **options: Any) -> ImportanceEstimate:
        """log p of what is observed of `x`, with how well the model knows it."""
        found = self.model.evidence(self._inside(x), **options)
        return found._replace(log_mean=found.log_mean - self._volume(x))

    def energy(self, x: Array, z: Array) -> Array:
        """−log p(x, z)."""
        return self.model.energy(self._inside(x), z) + self._volume(x)

    def latent(self, x: Array) -> Any:
        """What z can be."""
        return self.model.latent(self._inside(x))

    def posterior(self, x: Array) -> Any:
        """p(z | x)."""
        return self.model.posterior(self._inside(x))

    def encode(self, x: Array) -> Array:
        """The hidden vector that is inferred of `x`."""
        return self.model.encode(self._inside(x))

    def sample(self, *, key: Array) -> Array:
        """A draw."""
        return self._outside(self.model.sample(key=key))

    def complete_mean(self, x: Array, **options: Any) -> Array:
        """`x` with each NaN replaced by its mean given what is observed."""
        return jnp.where(
            jnp.isnan(x), self._outside(self.model.complete_mean(self._inside(x), **options)), x
        )

    def complete_sample(self, x: Array, *, key: Array, **options: Any) -> Array:
        """`x` with the NaN entries drawn given the observed ones."""
        drawn = self.model.complete_sample(self._inside(x), key=key, **options)
        return jnp.where(jnp.isnan(x), self._outside(drawn), x)


class SeriesInUnits(AbstractSequenceModel):
    """A model of series for values, and inputs, in the units of the data.

    Attributes:
        model: the model of rescaled series.
        shift, scale: the units of the values.
        input_shift, input_scale: those of the inputs; None without inputs.
    """

    model: AbstractSequenceModel
    shift: Array = buffer()
    scale: Array = buffer()
    input_shift: Array | None = buffer(default=None)
    input_scale: Array | None = buffer(default=None)

    def _inputs(self, inputs: Array | None) -> Array | None:
        if inputs is None or self.input_shift is None or self.input_scale is None:
            return inputs
        return (inputs - self.input_shift[None]) / self.input_scale[None]

    def _inside(self, series: Series) -> Series:
        values = (series.values - self.shift[None]) / self.scale[None]
        return series._replace(values=values, inputs=self._inputs(series.inputs))

    def _outside(self, values: Array) -> Array:
        return values * self.scale[None] + self.shift[None]

    def step_evidence(self, series: Series, *, incomplete: bool = True) -> Array:
        steps = self.model.step_evidence(self._inside(series), incomplete=incomplete)
        volume = jnp.sum(_log_scales(series.values, self.scale[None]), axis=1)
        return steps - jnp.where(series.real, volume, 0)

    def sample(self, length: int, *, key: Array, inputs: Array | None = None) -> Array:
        return self._outside(self.model.sample(length, key=key, inputs=self._inputs(inputs)))

    def complete_mean(self, series: Series) -> Array:
        found = self._outside(self.model.complete_mean(self._inside(series)))
        return jnp.where(jnp.isnan(series.values), found, series.values)

    def complete_sample(self, series: Series, *, key: Array) -> Array:
        found = self._outside(self.model.complete_sample(self._inside(series), key=key))
        return jnp.where(jnp.isnan(series.values), found, series.values)


class ConditionalInUnits(AbstractConditional):
    """p(y | x) of y = shift + scale · z for z from a model of rescaled rows and answers.

    Attributes:
        model: the model of z given rescaled rows.
        row_shift, row_scale: the units of the rows.
        shift, scale: the units of the answers.

    >>> from freeenergy.distributions import Diagonal, Gaussian, Given, Mean
    >>> from freeenergy.models import Affine, Conditional
    >>> normal = Given(Gaussian(jnp.zeros(1), Diagonal(jnp.ones(1))), Mean())
    >>> line, one = Conditional(Affine(jnp.ones((1, 1)), jnp.zeros(1)), normal), jnp.ones(1)
    >>> units = ConditionalInUnits(line, 0 * one, 2 * one, 3 * one, 4 * one)
    >>> units.log_prob_of(jnp.array([5.0]), one).round(6).item()  # N(5; 3 + 4/2, 4²)
    -2.305233
    """

    model: Any
    row_shift: Array = buffer()
    row_scale: Array = buffer()
    shift: Array = buffer()
    scale: Array = buffer()

    def _inside(self, x: Array) -> Array:
        return (x - self.row_shift) / self.row_scale

    def log_prob_of(self, y: Array, x: Array) -> Array:
        """log p(y | x)."""
        z = (y - self.shift) / self.scale
        return self.model.log_prob_of(z, self._inside(x)) - jnp.sum(_log_scales(y, self.scale))

    def energy(self, x: Array, y: Array) -> Array:
        """−log p(y | x)."""
        return -self.log_prob_of(y, x)

    def latent(self, x: Array) -> Any:
        """What y can be."""
        return self.model.latent(self._inside(x))

    def posterior(self, x: Array) -> Transformed:
        """p(y | x), a distribution."""
        return Transformed(self.model.posterior(self._inside(x)), Affine(self.shift, self.scale))


def member_in_units(member: Any, shift: Array, scale: Array, rescale: Callable[..., Any] = rescaled) -> Any:
    """The member of a family for shift + scale · x; None where it has no such one.

    With `rescale=rescaled_stack` a stack of members.  Of units that are traced it is not known, and for the
    caller to know, whether there is one.
    """
    if not isinstance(scale, Tracer):
        kept = (np.asarray(shift) == 0) & (np.asarray(scale) == 1)
        if not (member.unit_free_columns(len(kept)) | kept).all():
            return None
    return _rescaled(member, shift, scale, rescale)


@eqx.filter_jit
def _rescaled(member: Any, shift: Array, scale: Array, rescale: Callable[..., Any]) -> Any:
    factor = scale[0] if member.common_unit else scale
    return rescale(member, -shift / scale, 1 / factor)


def in_units_of_inputs(
    weights: Any, constant: Any, shift: Array | None, scale: Array | None
) -> tuple[Any, Any]:
    """W and c with W u + c = `weights` z + `constant` at u = shift + scale · z, along the last axis of W.

    Without `weights` there is nothing to multiply, and without units they stay what they are.

    >>> W, c = in_units_of_inputs(jnp.array([[6.0]]), jnp.array([1.0]), jnp.array([5.0]), jnp.array([2.0]))
    >>> W.tolist(), c.tolist()
    ([[3.0]], [-14.0])
    """
    if weights is None or shift is None or scale is None:
        return weights, constant
    moved = weights / scale.reshape((1,) * (weights.ndim - 1) + (-1,))
    return moved, constant - moved @ shift


def in_units(model: Any, shift: np.ndarray, scale: np.ndarray) -> Any:
    """`model`, of rescaled events, as one of events in the units of the data, x = shift + scale · z.

    Of its own kind where that is one in any units; else an `InUnits`.

    >>> from freeenergy.distributions import Diagonal, Gaussian
    >>> from freeenergy.models import Density
    >>> normal = Density(Gaussian(jnp.zeros(1), Diagonal(jnp.ones(1))))
    >>> in_units(normal, np.array([3.0]), np.array([2.0])).family.covariance.variance.tolist()
    [4.0]
    """
    if not shift.any() and (scale == 1).all():
        return model
    units = on_device(shift), on_device(scale)
    return model.in_units(*units) if isinstance(model, AbstractRescalable) else InUnits(model, *units)


def series_in_units(
    model: AbstractSequenceModel,
    shift: np.ndarray,
    scale: np.ndarray,
    input_shift: np.ndarray | None = None,
    input_scale: np.ndarray | None = None,
) -> AbstractSequenceModel:
    """`model`, of rescaled series, as one of values and inputs in the units of the data.

    Of its own kind where that is one in any units; else a `SeriesInUnits`.

    >>> from freeenergy.models import MarkovChain
    >>> chain = MarkovChain(jnp.ones((1, 2)) / 2, jnp.ones((1, 2, 2)) / 2)
    >>> series_in_units(chain, np.zeros(1), np.ones(1)) is chain
    True
    """
    given = [shift, scale]
    if input_shift is not None and input_scale is not None:
        given += [input_shift, input_scale]
    if not any(move.any() for move in given[::2]) and all((unit == 1).all() for unit in given[1::2]):
        return model
    units = [on_device(unit) for unit in given]
    if isinstance(model, AbstractRescalableSeries):
        return model.in_units(*units)
    return SeriesInUnits(model, *units)
