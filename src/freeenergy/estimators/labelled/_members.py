"""Members of the families of the library, one for each row, as laws of SciPy."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import stats

from ..._core import on_device
from ...distributions import (
    AbstractLocationScale,
    AbstractShaped,
    Bernoulli,
    Beta,
    Cauchy,
    Diagonal,
    Exponential,
    Full,
    Gamma,
    Gaussian,
    HyperbolicSecant,
    Laplace,
    Logistic,
    NegativeBinomial,
    Poisson,
    StudentT,
)
from ...evaluation import AbstractLaws, Laws, NormalLaws
from ...shell import Scaling

Shaped = Callable[[np.ndarray], np.ndarray]


@functools.singledispatch
def laws_of(member: Any, scaling: Scaling, shaped: Shaped) -> AbstractLaws:
    """The laws of a member whose arrays have an axis of rows in front, in the units of the data.

    Args:
        member: of any family that SciPy has a law for.
        scaling: from the units of the data to those of the member.
        shaped: from (rows, outputs) to the shape of the answers.

    >>> import jax.numpy as jnp
    >>> laws_of(Poisson(jnp.ones((3, 1))), Scaling.identity(1), lambda a: a[:, 0]).mean().tolist()
    [1.0, 1.0, 1.0]
    """
    raise ValueError(
        f"{type(member).__name__} cannot be the family of an answer here: its distribution function is not "
        "known. Take one such as Gaussian, StudentT, Laplace, Poisson, NegativeBinomial or Gamma."
    )


def knows_law(family: Any) -> bool:
    """Whether `laws_of` has the law of a family, a class."""
    return laws_of.dispatch(family) is not laws_of.dispatch(object)


# of standardised answers, where a family has no member of its own to start from
_STARTS = {"scale": 0.7, "df": 5.0, "shape": 1.0, "rate": 1.0}


def member_of(family: Any, y: np.ndarray) -> Any:
    """A member of a family, a class, for the outputs that `y` has.

    >>> member_of(StudentT, np.zeros((3, 1))).df.tolist()
    [5.0]
    """
    if issubclass(family, AbstractShaped):
        return family.prototype(y)
    names = [field.name for field in dataclasses.fields(family)]
    return family(
        **{name: on_device(np.full(y.shape[1], 0.0 if name == "loc" else _STARTS[name])) for name in names}
    )


def check_answers(owner: Any, family: Any, y: np.ndarray) -> None:
    """Refuses answers that are known and cannot be of a family, a class."""
    inside = family.support.contains(y) | np.isnan(y)
    if not inside.all():
        row = int(np.argwhere(~inside)[0][0])
        raise ValueError(
            f"The 'y' of {type(owner).__name__} with the family {family.__name__} must be in "
            f"{type(family.support).__name__}. Got {y[row].ravel()[0]:g} instead."
        )


@laws_of.register
def _(member: Gaussian, scaling: Scaling, shaped: Shaped) -> AbstractLaws:
    mean = scaling.invert(np.asarray(member.mean))
    if isinstance(member.covariance, Diagonal):
        scale = np.sqrt(np.asarray(member.covariance.variances())) * scaling.scale
        return Laws(stats.norm(shaped(mean), shaped(np.broadcast_to(scale, mean.shape))))
    if not isinstance(member.covariance, Full):
        raise ValueError(
            "The covariance of a Gaussian answer must be Diagonal or Full. "
            f"Got {type(member.covariance).__name__} instead."
        )
    covariance = np.asarray(member.covariance.matrix()) * np.outer(scaling.scale, scaling.scale)
    if shaped(mean).ndim == 1:
        return Laws(stats.norm(shaped(mean), np.sqrt(covariance[:, 0, 0])))
    return NormalLaws(mean, np.broadcast_to(covariance, (*mean.shape, mean.shape[1])))


# standard laws of SciPy, and how wide they are for a scale of one
_STANDARD: dict[type, tuple[Any, float]] = {
    Laplace: (stats.laplace, 1.0),
    Cauchy: (stats.cauchy, 1.0),
    Logistic: (stats.logistic, 1.0),
    HyperbolicSecant: (stats.hypsecant, 2 / np.pi),
}


@laws_of.register
def _(member: AbstractLocationScale, scaling: Scaling, shaped: Shaped) -> AbstractLaws:
    loc = shaped(scaling.invert(np.asarray(member.loc)))
    scale = shaped(np.asarray(member.scale) * scaling.scale)
    if isinstance(member, StudentT):
        return Laws(stats.t(shaped(np.asarray(member.df)), loc, scale))
    law, width = _STANDARD[type(member)]
    return Laws(law(loc, width * scale))


@laws_of.register
def _(member: Poisson, scaling: Scaling, shaped: Shaped) -> AbstractLaws:
    return Laws(stats.poisson(shaped(np.asarray(member.rate))))


@laws_of.register
def _(member: Bernoulli, scaling: Scaling, shaped: Shaped) -> AbstractLaws:
    return Laws(stats.bernoulli(shaped(np.asarray(member.probability))))


@laws_of.register
def _(member: NegativeBinomial, scaling: Scaling, shaped: Shaped) -> AbstractLaws:
    rate = np.asarray(member.rate)
    return Laws(stats.nbinom(shaped(np.asarray(member.shape)), shaped(rate / (1 + rate))))


@laws_of.register
def _(member: Exponential, scaling: Scaling, shaped: Shaped) -> AbstractLaws:
    return Laws(stats.expon(0.0, shaped(scaling.scale / np.asarray(member.rate))))


@laws_of.register
def _(member: Gamma, scaling: Scaling, shaped: Shaped) -> AbstractLaws:
    shape, rate = np.asarray(member.shape), np.asarray(member.rate)
    return Laws(stats.gamma(shaped(shape), 0.0, shaped(scaling.scale / rate)))


@laws_of.register
def _(member: Beta, scaling: Scaling, shaped: Shaped) -> AbstractLaws:
    return Laws(stats.beta(shaped(np.asarray(member.alpha)), shaped(np.asarray(member.beta))))
