"""A family for each column, by what the column holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import equinox as eqx
import numpy as np
from jax import Array

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
from ._count_table import CountTable, imagined_rows, poisson_serves, smooth_shares, table_size
from ._covariance import Diagonal, Full
from ._discrete import Bernoulli, Categorical, Poisson
from ._gaussian import Gaussian

_COUNT, _BINARY, _LABELS = "count", "binary", ("category", "ordered")
# families of columns, in the order in which they are parts
_NUMBERS, _COUNTS, _COINS, _CATEGORIES = range(4)


class ByColumn(eqx.Module):
    """Columns of different kinds, independent of each other (but see `covariance`):  p(x) = Π_d p_d(x_d).

    Numbers and dates have a Gaussian with a variance of their own, counts a Poisson, binary columns a
    Bernoulli, and categories, with an order or without, a Categorical with their own number of labels.
    Counts that are wider or narrower than as many Poissons as there are members (by the criterion of
    Schwarz) have a `CountTable`: a probability for each number, and a tail.
    Columns of one family are one part of a `Product`, whichever places they have.

    As the `family` of `Mixture` and `NaiveBayes` it gives each member a weak conjugate prior, so that no
    label of a column is ever impossible and no variance zero: `strength` imagined rows, shared evenly by
    the labels of a column (or with the mean of the counts); means of numbers count for a hundredth of a
    row, and variances for three rows more than `strength`, of the variance of the column over the square of
    the number of members.  A table of counts has `strength` times at least the root of the number of rows,
    shared as those of the column are, smoothed.

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

    def tables(
        self,
        kinds: Sequence[str],
        x: np.ndarray,
        weight: np.ndarray,
        groups: np.ndarray | int | None,
        like: Product | None = None,
    ) -> dict[int, CountTable]:
        """A table for each column of counts that Poissons do not describe; none without a prior.

        Args:
            kinds: of the columns.
            x, weight: rows.
            groups: how many members there are, or the number of the member of each row; None where each
                row has a rate of its own.
            like: a member whose columns with tables stay these, of the sizes that they have.
        """
        sizes = {} if like is None else _table_sizes(like)
        found = {}
        for column, kind in enumerate(kinds):
            # by maximum likelihood counts that were not seen would be impossible
            if kind != _COUNT or self.strength == 0:
                continue
            own = x[:, column]
            wanted = column in sizes if like is not None else not poisson_serves(own, weight, groups)
            if wanted:
                shares, ratio = smooth_shares(own, weight, sizes.get(column) or table_size(own))
                found[column] = CountTable(on_device(shares[None]), on_device(np.array([ratio])))
        return found

    def member(
        self, kinds: Sequence[str], levels: Sequence[int], tables: Mapping[int, CountTable] | None = None
    ) -> Product:
        """A member of the shape that columns of these kinds need.

        Args:
            kinds: of the columns.
            levels: the number of labels of each.
            tables: of counts that are no Poisson, by column.
        """
        groups: dict[tuple[int, int], list[int]] = {}
        tables = {} if tables is None else tables
        for column, (kind, size) in enumerate(zip(kinds, levels, strict=True)):
            cells = tables[column].probabilities.shape[-1] if column in tables else size
            groups.setdefault(_group(kind, cells), []).append(column)
        ordered = sorted(groups.items())
        parts = tuple(self._part(*group, columns, tables) for group, columns in ordered)
        sizes = tuple(len(columns) for _, columns in ordered)
        return Product(parts, sizes, tuple(column for _, columns in ordered for column in columns))

    def _part(
        self, family: int, size: int, columns: list[int], tables: Mapping[int, CountTable]
    ) -> Gaussian | Poisson | CountTable | Bernoulli | Categorical:
        n = len(columns)
        if family == _NUMBERS:
            alone = isinstance(self.covariance, Diagonal)
            covariance = Diagonal(on_device(np.ones(n))) if alone else Full(on_device(np.eye(n)))
            return Gaussian(on_device(np.zeros(n)), covariance)
        if family == _COUNTS and size:
            own = [tables[column] for column in columns]
            leaves = [np.concatenate([np.asarray(a) for a in field]) for field in zip(*map(_leaves, own))]
            return CountTable(*map(on_device, leaves))
        if family == _COUNTS:
            return Poisson(on_device(np.ones(n)))
        if family == _COINS:
            return Bernoulli(on_device(np.full(n, 0.5)))
        return Categorical(on_device(np.full((n, size), 1 / size)))

    def prior(
        self, member: Product, means: np.ndarray, members: int, rows: np.ndarray | None = None
    ) -> ProductPrior | None:
        """The prior of each of several `members` of the family, for columns with these means.

        Args:
            member: any, with the tables of the columns.
            means: of the columns.
            members: how many there are.
            rows: how many rows the table of each column counts for, as `imagined` says; one by default.
        """
        if self.strength == 0:
            return None
        cuts = np.cumsum(member.sizes)[:-1]
        rows = np.ones(len(means)) if rows is None else rows
        blocks = zip(np.split(means[member.order], cuts), np.split(rows[member.order], cuts), strict=True)
        parts = [self._prior(part, *own, members) for part, own in zip(member.parts, blocks, strict=True)]
        return ProductPrior(member, tuple(parts))

    def imagined(self, member: Product, x: np.ndarray, weight: np.ndarray, members: int) -> np.ndarray:
        """How many rows the table of each column counts for; one where there is none.

        Args:
            member: with the tables.
            x, weight: rows.
            members: how many there are.
        """
        found, starts = np.ones(x.shape[1]), np.cumsum((0, *member.sizes))
        for part, first, size in zip(member.parts, starts, member.sizes):
            if isinstance(part, CountTable):
                columns = member.order[first : first + size]
                for column, shares in zip(columns, np.asarray(part.probabilities), strict=True):
                    found[column] = imagined_rows(x[:, column], weight, shares, members)
        return found

    def _prior(
        self, part: object, means: np.ndarray, rows: np.ndarray, members: int
    ) -> AbstractConjugatePrior:
        s, n = self.strength, len(means)

        def full(value: float, *shape: int) -> np.ndarray:
            return np.full((n, *shape), value)

        match part:
            case Poisson():
                return GammaPrior(part, on_device(1 + s * means), on_device(full(s)))
            case CountTable():
                imagined = s * rows[:, None] * np.asarray(part.probabilities)
                return DirichletPrior(part, on_device(1 + imagined))
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


def _group(kind: str, size: int) -> tuple[int, int]:
    """Which columns have a part in common: numbers, counts (with so many cells), coins, as many labels."""
    if kind in _LABELS:
        return _CATEGORIES, max(size, 2)
    if kind == _COUNT:
        return _COUNTS, size
    return (_COINS if kind == _BINARY else _NUMBERS), 0


def _leaves(table: CountTable) -> tuple[Array, Array]:
    return table.probabilities, table.ratio


def _table_sizes(member: Product) -> dict[int, int]:
    """How many cells the table of each column has, of those that have one."""
    starts = np.cumsum((0, *member.sizes))
    return {
        int(column): part.probabilities.shape[-1]
        for part, first, size in zip(member.parts, starts, member.sizes)
        if isinstance(part, CountTable)
        for column in member.order[first : first + size]
    }
