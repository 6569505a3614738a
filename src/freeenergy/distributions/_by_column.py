"""A family for each column, by what the column holds."""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import numpy as np

from .._core import on_device
from ._composite import Product
from ._conjugate import (
    AbstractConjugatePrior,
    BetaPrior,
    DirichletPrior,
    GammaPrior,
    NormalInverseGamma,
    NormalInverseWishart,
    ProductPrior,
)
from ._covariance import Diagonal, Full
from ._discrete import Bernoulli, Categorical, Poisson
from ._gaussian import Gaussian

_COUNT, _BINARY, _LABELS = "count", "binary", ("category", "ordered")


class ByColumn(eqx.Module):
    """Columns of different kinds, independent of each other (but see `covariance`):  p(x) = Π_d p_d(x_d).

    Numbers and dates have a Gaussian with a variance of their own, counts a Poisson, binary columns a
    Bernoulli, and categories, with an order or without, a Categorical with their own number of labels.
    Columns of one family are one part of a `Product`, whichever places they have.

    As the `family` of `Mixture` and `NaiveBayes` it gives each member a weak conjugate prior, so that no
    label of a column is ever impossible and no variance zero: `strength` imagined rows, shared evenly by
    the labels of a column (or with the mean of the counts); means of numbers count for a hundredth of a
    row, and variances for three rows more than `strength`, of the variance of the column over the square of
    the number of members.

    Attributes:
        strength: how many rows are imagined; with 0 there is no prior, and fits are maximum likelihood.
        covariance: `Diagonal()`, or `Full()` for numbers that depend on each other within a member too, as
            in the general location model.

    References:
        C. Fraley and A. E. Raftery, Bayesian regularization for normal mixture estimation and model-based
        clustering, Journal of Classification 24 (2007), for the prior of numbers.
        I. Olkin and R. F. Tate, Multivariate correlation models with mixed discrete and continuous
        variables, Annals of Mathematical Statistics 32 (1961), for the location model.

    >>> ByColumn().member(["count", "category", "count"], [0, 3, 0]).columns
    (0, 2, 1)
    """

    strength: float = eqx.field(static=True, default=1.0)
    covariance: Diagonal | Full = Diagonal()

    def __check_init__(self) -> None:
        if not isinstance(self.covariance, Diagonal | Full):
            raise ValueError(
                "The 'covariance' of ByColumn must be Diagonal() or Full(). "
                f"Got {self.covariance!r} instead."
            )
        if not 0 <= self.strength < np.inf:
            raise ValueError(
                f"The 'strength' of ByColumn must be a number from zero on. Got {self.strength!r} instead."
            )

    def member(self, kinds: Sequence[str], levels: Sequence[int]) -> Product:
        """A member of the shape that columns of these kinds need, with the number of labels of each."""
        groups: dict[int, list[int]] = {}
        for column, (kind, size) in enumerate(zip(kinds, levels, strict=True)):
            groups.setdefault(_group(kind, size), []).append(column)
        ordered = sorted(groups.items())
        parts = tuple(self._part(group, len(columns)) for group, columns in ordered)
        sizes = tuple(len(columns) for _, columns in ordered)
        return Product(parts, sizes, tuple(column for _, columns in ordered for column in columns))

    def _part(self, group: int, n: int) -> Gaussian | Poisson | Bernoulli | Categorical:
        if group < 0:
            alone = isinstance(self.covariance, Diagonal)
            covariance = Diagonal(on_device(np.ones(n))) if alone else Full(on_device(np.eye(n)))
            return Gaussian(on_device(np.zeros(n)), covariance)
        if group == 0:
            return Poisson(on_device(np.ones(n)))
        if group == 1:
            return Bernoulli(on_device(np.full(n, 0.5)))
        return Categorical(on_device(np.full((n, group), 1 / group)))

    def prior(self, member: Product, means: np.ndarray, members: int) -> ProductPrior | None:
        """The prior of each of several `members` of the family, for columns with these means."""
        if self.strength == 0:
            return None
        blocks = np.split(means[member.order], np.cumsum(member.sizes)[:-1])
        parts = [self._prior(part, own, members) for part, own in zip(member.parts, blocks)]
        return ProductPrior(member, tuple(parts))

    def _prior(self, part: object, means: np.ndarray, members: int) -> AbstractConjugatePrior:
        s, n = self.strength, len(means)

        def full(value: float, *shape: int) -> np.ndarray:
            return np.full((n, *shape), value)

        match part:
            case Poisson():
                return GammaPrior(part, on_device(1 + s * means), on_device(full(s)))
            case Bernoulli():
                return BetaPrior(part, on_device(full(1 + s / 2)), on_device(full(1 + s / 2)))
            case Categorical():
                labels = part.probabilities.shape[-1]
                return DirichletPrior(part, on_device(full(1 + s / labels, labels)))
            case Gaussian(covariance=Full()):
                # the least degrees of freedom that a prior has, and so many rows as numbers alone have
                scatter = (s + 3) / members ** (2 / n) * np.eye(n)
                numbers = means, np.array(0.01 * s), scatter, np.array(n - 1 + s)
                return NormalInverseWishart(*map(on_device, numbers))
            case _:
                spread = full((s + 3) / (2 * members**2))
                return NormalInverseGamma(*map(on_device, (means, full(0.01 * s), full(s / 2), spread)))


def _group(kind: str, labels: int) -> int:
    """Which columns have a part in common: numbers (−1), counts, binary ones, those with as many labels."""
    if kind in _LABELS:
        return max(labels, 2)
    return {_COUNT: 0, _BINARY: 1}.get(kind, -1)
