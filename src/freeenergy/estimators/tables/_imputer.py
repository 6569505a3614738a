"""What is missing in a table filled in by a density: once, or several times for Rubin's rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jax import Array
from sklearn.base import OneToOneFeatureMixin, clone
from sklearn.utils._set_output import _get_output_config
from sklearn.utils.validation import check_is_fitted

from ..._core import Fit, Status, generator
from ...evaluation import Pooled, pool
from ...shell import (
    AbstractRowEstimator,
    CodedRows,
    ColumnRoles,
    Completes,
    Field,
    Rows,
    Samples,
    Scaling,
    Summary,
    Table,
    Transforms,
    check_instance,
    check_int,
)
from ...shell._frames import in_library
from ...shell._schema import kinds_of, schema_of
from ._gaussian import GaussianDensity

_SEEDS = 2**31
# the share of what is observed that is hidden where one of several densities is to be chosen
_HIDDEN = 0.2
# how many entries are hidden at least, in several turns where a table is small, and in how many at most
_ENOUGH, _MOST_TURNS = 300, 10


class Imputer(OneToOneFeatureMixin, Transforms, AbstractRowEstimator):
    """Fills in what is missing in tables by a density of their rows, as a step of a pipeline.

    Each missing entry is inferred from what is observed of its row, by p(x_missing | x_observed) of the
    density: by default its mean, next whole number or most probable label, as `impute` does; with `draws`
    by draws, which keep the spread that means take away.

    **Multiple imputation.**  Several completed tables, each with draws of its own, show how much an
    analysis depends on what is missing: `imputations(X)` has them, and `pooled(X, statistic)` puts their
    answers together by Rubin's rules.  For these the parameters have to vary too: with `proper` each table
    is drawn from a density of its own, fitted to a Bayesian bootstrap of the rows (random weights of their
    sum; Rubin 1981), which stands for a draw from the posterior of the parameters.

    **Which density.**  Of several, the one is taken that best fills in what it has not seen: a fifth of the
    observed entries is hidden from all of them, and each is fitted to the rest; in several turns where a
    table is small, until some 300 entries have been hidden.  The error of a column is
    the root of the mean square over the spread of the column, or the share of wrong labels over that of
    the most frequent label; the mean over columns decides.  The density with the fewest bits is another
    question: it may describe each column well, and say little of one by the others.

    What is missing must be so at random: whether an entry is missing may depend on the observed entries of
    its row, but not on the entry itself.

    Args:
        density: what infers the missing part, such as `Mixture(5, family="by column")` for tables with
            columns of different kinds, or a list of several to choose from; `GaussianDensity()` by default.
        draws: how many completed tables `imputations` makes; `transform` gives the first of them.  None
            fills in means and the most probable labels.
        proper: whether each draw has a density of its own, so that the tables differ by what is not known
            of the parameters too; with `draws` only.  It takes `draws` more fits.
        random_state: seed of the draws, and of `density` if it has none.

    Attributes:
        density_: the density, fitted to all rows.
        hidden_errors_: of each of several densities, the error of what was hidden from it; one is that of
            means and most frequent labels.
        densities_: with `draws`, that of each completed table.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 1)) @ np.ones((1, 2)) + 0.5 * rng.normal(size=(100, 2))
    >>> X[:40, 1] = np.nan
    >>> Imputer().fit_transform(X)[0].round(2).tolist()
    [0.38, 0.52]
    >>> imputer = Imputer(draws=10, random_state=0).fit(X)
    >>> len(imputer.imputations(X))
    10
    >>> mean = imputer.pooled(X, lambda x: (x[:, 1].mean(), x[:, 1].var(ddof=1) / len(x)), complete_df=99)
    >>> bool(0 < mean.fraction_missing < 0.4)  # of the entries two fifths are missing
    True
    """

    def __init__(
        self,
        density: Any = None,
        *,
        draws: int | None = None,
        proper: bool = True,
        random_state: Any = None,
    ) -> None:
        self.density = density
        self.draws = draws
        self.proper = proper
        self.random_state = random_state

    def _several(self) -> list[Any]:
        if self.density is None:
            return [GaussianDensity()]
        return list(self.density) if isinstance(self.density, (list, tuple)) else [self.density]

    def _check_parameters(self) -> None:
        super()._check_parameters()
        several = self._several()
        if not several or not all(
            isinstance(d, Completes) and isinstance(d, AbstractRowEstimator) for d in several
        ):
            raise ValueError(
                "The 'density' parameter of Imputer must be a density of rows that imputes, a list of such "
                f"or None. Got {self.density!r} instead."
            )
        check_int(self, "draws", optional=True)
        check_instance(self, "proper", bool)
        without = [type(density).__name__ for density in several if not isinstance(density, Samples)]
        if self.draws is not None and without:
            raise ValueError(
                f"The 'draws' parameter of Imputer must be None for {without[0]}, which does not sample. "
                f"Got {self.draws!r} instead."
            )

    @property
    def _must_converge(self) -> bool:
        return False  # the density says it

    @property
    def needs_kinds(self) -> bool:
        return any(density.needs_kinds for density in self._several())

    def takes(self, field: Field) -> bool:
        return all(density.takes(field) for density in self._several())

    def column_roles(self, n_features: int) -> ColumnRoles:
        return vars(self).get("density_", self._several()[0]).column_roles(n_features)

    def _scaling(self, X: np.ndarray, weight: np.ndarray | None) -> Scaling:
        # the density has one of its own
        return Scaling.identity(X.shape[1])

    def _learn(self, rows: Rows, key: Array) -> Fit:
        known, rng = self._coded(rows.x), generator(key)
        several: list[Any] = [clone(density) for density in self._several()]
        for density in several:
            if density.get_params().get("random_state", 0) is None:
                density.set_params(random_state=int(rng.integers(_SEEDS)))
        density = several[0]
        vars(self).pop("hidden_errors_", None)
        if len(several) > 1:
            turns = [_hidden(rows.x, rng)]
            while sum(hidden.sum() for hidden in turns) < _ENOUGH and len(turns) < _MOST_TURNS:
                turns.append(_hidden(rows.x, rng))
            errors = [[self._error(d, rows, hidden) for hidden in turns] for d in several]
            self.hidden_errors_ = np.mean(errors, axis=1)
            density = several[int(np.argmin(self.hidden_errors_))]
        self.density_ = density.fit(known, sample_weight=rows.weight)
        vars(self).pop("densities_", None)
        if self.draws is not None:
            self.densities_ = [self._of_its_own(known, rows.weight, rng) for _ in range(self.draws)]
        status = Status.CONVERGED if density.converged_ else Status.LIMIT
        return Fit(density.model_, density.history_, density.n_iter_, status)

    def _error(self, density: Any, rows: Rows, hidden: np.ndarray) -> float:
        """The mean over columns of the error of what is hidden, over that of the mean or the mode."""
        x, known = rows.x, self._coded(np.where(hidden, np.nan, rows.x))
        filled = np.asarray(density.fit(known, sample_weight=rows.weight).impute(known), float)
        schema = kinds_of(self)
        numeric = [True] * x.shape[1] if schema is None else [field.numeric for field in schema.modelled]
        found = []
        for j in range(x.shape[1]):
            at, seen = hidden[:, j], ~hidden[:, j] & ~np.isnan(x[:, j])
            if not at.any():
                continue
            true, weight = x[at, j], rows.weight[at]
            if numeric[j]:
                plain = np.average(x[seen, j], weights=rows.weight[seen])
                own, base = (
                    np.sqrt(np.average((v - true) ** 2, weights=weight)) for v in (filled[at, j], plain)
                )
            else:
                labels, place = np.unique(x[seen, j], return_inverse=True)
                plain = labels[np.argmax(np.bincount(place, rows.weight[seen]))]
                own, base = (np.average(v != true, weights=weight) for v in (filled[at, j], plain))
            if base > 0:
                found.append(own / base)
        return float(np.mean(found)) if found else 1.0

    def _of_its_own(self, known: Any, weight: np.ndarray, rng: np.random.Generator) -> Any:
        """The density of one completed table."""
        if not self.proper:
            return self.density_
        density: Any = clone(self.density_)
        return density.fit(known, sample_weight=_bootstrapped(weight, rng))

    def _coded(self, x: np.ndarray) -> Any:
        """Rows as the density is given them: with what the columns hold, where that is known."""
        schema = kinds_of(self)
        return x if schema is None else CodedRows(x, schema.coded())

    def transform(self, X: Any) -> Any:
        """`X` with what is missing filled in, and what was observed as it is.

        A data frame comes back as one, with its index, names and types, in the order of the columns that
        were fitted; `set_output` chooses another library.
        """
        taken = self._read(X)
        density = self.density_ if self.draws is None else self.densities_[0]
        filled = self._table(taken, density, 0)
        wanted = _get_output_config("transform", self)["dense"]
        return filled if wanted == "default" else in_library(filled, wanted)

    def imputations(self, X: Any) -> list[Any]:
        """As many completed tables as there are `draws`, in the library of `X`.

        The same rows give the same tables.
        """
        taken = self._read(X)
        if self.draws is None:
            raise ValueError("Imputer.imputations needs 'draws', how many tables to make. Got None.")
        return [self._table(taken, density, number) for number, density in enumerate(self.densities_)]

    def pooled(
        self, X: Any, statistic: Callable[[Any], Any], *, complete_df: float | None = None
    ) -> Pooled:
        """What the completed tables say together of a statistic, by Rubin's rules.

        Args:
            X: the table.
            statistic: a function of a completed table to its estimate and the variance of that; numbers,
                arrays of them, or an array and a covariance matrix; or to a fitted result as those of
                statsmodels.
            complete_df: the degrees of freedom of the statistic if nothing were missing, such as n − 1 of a
                mean, for those of Barnard and Rubin.
        """
        return pool([statistic(table) for table in self.imputations(X)], complete_df=complete_df)

    def _table(self, taken: Table, density: Any, number: int) -> Any:
        found, holes = taken.x.copy(), np.asarray(np.isnan(taken.x).any(axis=1))
        if holes.any():
            some = self._coded(found[holes])
            with taken.naming_cells():
                if self.draws is None:
                    filled = density.impute(some)
                else:
                    seed = np.random.default_rng([int(self.seed_), number]).integers(_SEEDS)
                    filled = density.sample(1, random_state=int(seed), given=some)
            found[holes] = np.where(np.isnan(found[holes]), filled, found[holes])
        table, schema = taken.filled(found), schema_of(self)
        return table if schema is None else schema.in_order(table)

    def summary(self, X: Any = None, *, robust: bool = False, **given: Any) -> Summary:
        """The summary of `density_`."""
        check_is_fitted(self, "model_")
        rows = None if X is None else self._coded(self._read(X).x)
        density = self.density_._calling(self.column_names)
        return density.summary(rows, robust=robust, **given)

    def latent(self, X: Any) -> None:
        """Nothing: what was missing is no picture of the rows."""

    @property
    def _n_features_out(self) -> int:
        return self.n_features_in_


def _hidden(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Which of the observed entries are hidden: a fifth, and never all of a row or of a column."""
    observed = ~np.isnan(x)
    order = np.where(observed, rng.random(x.shape), -1.0)
    hidden = order > 1 - _HIDDEN
    # the least of a row and of a column stays, as long as there is one
    least = np.where(observed, order, np.inf)
    hidden[np.arange(len(x)), least.argmin(axis=1)] = False
    hidden[least.argmin(axis=0), np.arange(x.shape[1])] = False
    return hidden


def _bootstrapped(weight: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Weights of a Bayesian bootstrap, with the same sum: a row of weight two is two rows.

    They are Gamma(weight), whose logarithms are numbers however small the weights are.
    """
    logs = np.log(rng.gamma(weight + 1)) - rng.exponential(size=len(weight)) / weight
    drawn = np.exp(logs - logs.max())
    return drawn * (weight.sum() / drawn.sum())
