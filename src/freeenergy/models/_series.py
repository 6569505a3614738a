"""Series as models of sequences see them."""

from __future__ import annotations

import abc
from typing import NamedTuple

import equinox as eqx
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int

from .._core import on_device
from ._base import AbstractRescalable


class Series(NamedTuple):
    """One series, or several stored one after another, with padding at the end.

    Attributes:
        values: the observation at each time step; NaN is not observed.
        starts: whether a series starts at a time step.
        real: whether a time step belongs to a series; False is padding.
        states: the hidden state of each time step where it is known, −1 where not; or None.
        inputs: what is known beside the observation at each time step, and has no distribution (a
            control, a regressor); or None.

    Learning takes these arrays with a leading axis of rows, as the `x` of `Data`.
    """

    values: Float[Array, "*rows time dim"]
    starts: Bool[Array, "*rows time"]
    real: Bool[Array, "*rows time"]
    states: Int[Array, "*rows time"] | None = None
    inputs: Float[Array, "*rows time inputs"] | None = None


class AbstractSequenceModel(eqx.Module):
    """A model of series: what the estimators of sequences ask for."""

    @abc.abstractmethod
    def step_evidence(self, series: Series, *, incomplete: bool = True) -> Float[Array, " time"]:
        """log p(y_t | y_{<t}) for each time step, exactly or as the model estimates it; zero for padding.

        `incomplete` says whether the values may hold NaN, for models that are faster without.
        """

    @abc.abstractmethod
    def sample(
        self, length: int, *, key: Array, inputs: Float[Array, "time inputs"] | None = None
    ) -> Float[Array, "time dim"]:
        """The values of one series of `length` time steps, given the inputs of each."""

    @abc.abstractmethod
    def complete_mean(self, series: Series) -> Float[Array, "time dim"]:
        """The values with each NaN replaced by its mean given everything observed."""

    @abc.abstractmethod
    def complete_sample(self, series: Series, *, key: Array) -> Float[Array, "time dim"]:
        """The values with the NaN entries drawn, jointly, given everything observed."""


class AbstractRescalableSeries(AbstractSequenceModel, AbstractRescalable):
    """A model of series that is of the same kind in other units of the values, and of the inputs."""

    @abc.abstractmethod
    def in_units(
        self,
        shift: Array,
        scale: Array,
        input_shift: Array | None = None,
        input_scale: Array | None = None,
    ) -> AbstractSequenceModel:
        """The law of shift + scale · y given input_shift + input_scale · u.

        Of its own kind where that is one in these units; without units of inputs these stay what they are.
        """


def one_series(
    values: Float[Array, "time dim"],
    states: Int[Array, " time"] | None = None,
    inputs: Float[Array, "time inputs"] | None = None,
) -> Series:
    """One series without padding.

    >>> import jax.numpy as jnp
    >>> one_series(jnp.zeros((3, 1))).starts.tolist()
    [True, False, False]
    """
    length = len(values)
    starts, real = on_device(np.arange(length) == 0), on_device(np.ones(length, bool))
    return Series(values, starts, real, states, inputs)
