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

    What is missing must be so at random: whether an entry is missing may depend on the observed entries of
    its row, but not on the entry itself.

    Args:
        density: what infers the missing part, such as `Mixture(5, family="by column")` for tables with
            columns of different kinds; `GaussianDensity()` by default.
        draws: how many completed tables `imputations` makes; `transform` gives the first of them.  None
            fills in means and the most probable labels.
        proper: whether each draw has a density of its own, so that the tables differ by what is not known
            of the parameters too; with `draws` only.  It takes `draws` more fits.
        random_state: seed of the draws, and of `density` if it has none.

    Attributes:
        density_: the density, fitted to all rows.
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

    def _inner(self) -> Any:
        return GaussianDensity() if self.density is None else self.density

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_instance(self, "density", Completes, optional=True)
        check_instance(self, "density", AbstractRowEstimator, optional=True)
        check_int(self, "draws", optional=True)
        check_instance(self, "proper", bool)
        if self.draws is not None and not isinstance(self._inner(), Samples):
            raise ValueError(
                f"The 'draws' parameter of Imputer must be None for {type(self.density).__name__}, which "
                f"does not sample. Got {self.draws!r} instead."
            )

    @property
    def _must_converge(self) -> bool:
        return False  # the density says it

    @property
    def needs_kinds(self) -> bool:
        return self._inner().needs_kinds

    def takes(self, field: Field) -> bool:
        return self._inner().takes(field)

    def column_roles(self, n_features: int) -> ColumnRoles:
        return vars(self).get("density_", self._inner()).column_roles(n_features)

    def _scaling(self, X: np.ndarray, weight: np.ndarray | None) -> Scaling:
        # the density has one of its own
        return Scaling.identity(X.shape[1])

    def _learn(self, rows: Rows, key: Array) -> Fit:
        known, rng = self._coded(rows.x), generator(key)
        density: Any = clone(self._inner())
        if density.get_params().get("random_state", 0) is None:
            density.set_params(random_state=int(rng.integers(_SEEDS)))
        self.density_ = density.fit(known, sample_weight=rows.weight)
        vars(self).pop("densities_", None)
        if self.draws is not None:
            self.densities_ = [self._of_its_own(known, rows.weight, rng) for _ in range(self.draws)]
        status = Status.CONVERGED if density.converged_ else Status.LIMIT
        return Fit(density.model_, density.history_, density.n_iter_, status)

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
        return self.density_.summary(rows, robust=robust, **given)

    def latent(self, X: Any) -> None:
        """Nothing: what was missing is no picture of the rows."""

    @property
    def _n_features_out(self) -> int:
        return self.n_features_in_


def _bootstrapped(weight: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Weights of a Bayesian bootstrap, with the same sum: a row of weight two is two rows.

    They are Gamma(weight), whose logarithms are numbers however small the weights are.
    """
    logs = np.log(rng.gamma(weight + 1)) - rng.exponential(size=len(weight)) / weight
    drawn = np.exp(logs - logs.max())
    return drawn * (weight.sum() / drawn.sum())
