"""What files of earlier versions hold, and what it is now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jax import Array

from .._core import on_device
from ..distributions import Bernoulli, Diagonal, Gaussian, GaussianLocation, Given, Mean, Natural
from ..models import VAE, Units

FORMER_NAMES = {
    "freeenergy.models.BernoulliEmission": "freeenergy.distributions.Bernoulli",
    "freeenergy.models.GaussianEmission": "freeenergy.distributions.Gaussian",
    "freeenergy.estimators.FlowWithMissing": "freeenergy.models.FlowWithMissing",
} | {
    f"freeenergy.estimators.{name}": f"freeenergy.shell.{name}"
    for name in ("Column", "Grid", "Scaling", "Support")
}
"""Classes and functions that had another name."""


def _bits(like: Array) -> Bernoulli:
    return Bernoulli(on_device(np.full(like.shape, 0.5), like.dtype))


def _gaussian_emission(variance: Array) -> Given:
    mean = on_device(np.zeros(variance.shape), variance.dtype)
    return Given(Gaussian(mean, Diagonal(variance)), Mean())


FORMER_RECORDS: dict[str, Callable[..., Any]] = {
    # it did not know of how many columns it was: the model around it does
    "freeenergy.models.BernoulliEmission": lambda: None,
    "freeenergy.models.GaussianEmission": _gaussian_emission,
    "freeenergy.models.BernoulliUnits": lambda bias: Units(_bits(bias), bias),
    "freeenergy.models.GaussianUnits": lambda bias: Units(GaussianLocation(bias), bias),
}
"""Records that are none any more, as functions of their former fields."""


def _with_emission(fields: dict[str, Any]) -> dict[str, Any]:
    if fields["emission"] is not None:
        return fields
    return fields | {"emission": Given(_bits(fields["decoder"].layers[-1].bias), Natural())}


FORMER_FIELDS: dict[type, Callable[[dict[str, Any]], dict[str, Any]]] = {VAE: _with_emission}
"""For classes whose fields meant something else, functions from what they were to what they are."""
