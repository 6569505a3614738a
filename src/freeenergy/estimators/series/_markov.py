"""Markov chains as estimators."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any, ClassVar, Self

import jax
import numpy as np
from jax import Array

from ... import models
from ..._core import Fit, check_size, on_device, programs
from ...distributions import Categorical, DirichletPrior
from ...learning import EM
from ...learning._em import expect_all
from ...models import Series
from ...models._markov import MarkovStatistics
from ...shell import (
    AbstractPredictive,
    ColumnRoles,
    ForecastsSeries,
    MassTables,
    Scaling,
    Sequences,
    SeriesIntake,
    check_count,
    check_instance,
    check_int,
)
from ...shell._summary import Along


def concentration(prior: DirichletPrior | None) -> Array | None:
    return None if prior is None else on_device(prior.concentration)


def _symbols(series: Series, model: models.MarkovChain, incomplete: bool) -> Array:
    return model.symbols(series)


def _forecast_symbols(series: Series, model: models.MarkovChain, incomplete: bool, steps: int) -> Array:
    return model.forecast(series, steps)


def _grown(counts: MarkovStatistics, symbols: int) -> MarkovStatistics:
    """Counts among more symbols, of which the new ones have not been seen."""
    more = symbols - counts.starts.shape[1]
    grown: Any = (
        np.pad(counts.starts, ((0, 0), (0, more))),
        np.pad(counts.pairs, ((0, 0), (0, more), (0, more))),
    )
    return MarkovStatistics(*grown)


class MarkovChain(ForecastsSeries):
    """A Markov chain of symbols 0, 1, 2, … in each column, independent of the other columns.

    p(x) = π(x_1) Π_t A(x_{t−1}, x_t).  Counts give the answer at once; where symbols are missing EM
    does.  transition_[d, i, j] = p(next = j | now = i) in column d.

    Args:
        n_symbols: how many symbols there are; by default those up to the largest that is seen.
        transition_prior, initial_prior: Dirichlet priors of each row and of the first symbol.
        max_iter, tol: for EM, where symbols are missing.
        random_state: seed; a fit has nothing random.
        verbose: 1 shows progress.

    Attributes:
        initial_: the probabilities of the first symbol, for each column.
        transition_: p(next = j | now = i) at [column, i, j].
        model_: the fitted `freeenergy.models.MarkovChain`.
        kept_: after `partial_fit`, how often each symbol came first, and each after each, in all parts.
        n_inputs_in_, length_, history_, n_iter_, converged_, …: as everywhere.

    >>> import numpy as np
    >>> chain = MarkovChain().fit(np.array([[0], [1], [0], [1], [1]]))
    >>> chain.transition_[0].tolist()
    [[0.0, 1.0], [0.5, 0.5]]
    """

    model_: models.MarkovChain
    _takes_inputs: ClassVar[bool] = False

    _maximises_likelihood = True

    def __init__(
        self,
        n_symbols: int | None = None,
        *,
        transition_prior: DirichletPrior | None = None,
        initial_prior: DirichletPrior | None = None,
        max_iter: int = 1000,
        tol: float = 1e-6,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_symbols = n_symbols
        self.transition_prior = transition_prior
        self.initial_prior = initial_prior
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.verbose = verbose

    def partial_fit(self, X: Any, y: Any = None, *, series_weight: Any = None) -> Self:
        """Goes on with more series, of which only the counts are kept.

        What is fitted is that of a `fit` to all series together, whatever the parts; where symbols are
        missing, those of earlier parts stay as they were inferred.  A part begins with new series, and may
        have symbols that those before have not.  After `fit` it begins anew.

        Args:
            X: series, as in `fit`, with the columns of the first part.
            y: ignored.
            series_weight: a non-negative number per series; a weight of two counts as two series.

        >>> import numpy as np
        >>> first, second = np.array([[0], [1], [0]]), np.array([[1], [1], [0]])
        >>> chain = MarkovChain().partial_fit(first).partial_fit(second)
        >>> chain.transition_.tolist() == MarkovChain().fit([first, second]).transition_.tolist()
        True
        """
        programs.check_process()
        self._check_parameters()
        before = vars(self).get("kept_")
        if before is not None:
            # the columns are those of the parts before
            self._read(X)
        elif "model_" in vars(self):
            warnings.warn(
                "MarkovChain.fit keeps no series to go on from: partial_fit begins anew.",
                UserWarning,
                stacklevel=2,
            )
        steps, length = (self.fitted_size_ or 0.0, self.length_) if before is not None else (0.0, 0)
        taken = self._learn_from(self.intake.fitting(self, X, series_weight=series_weight))
        self.fitted_size_, self.length_ = steps + (self.fitted_size_ or 0.0), max(length, self.length_)
        found, _ = expect_all(self.model_, taken.events.packed, on_device(1.0))
        counts = jax.tree.map(np.asarray, found)
        if before is not None:
            earlier = _grown(before, counts.starts.shape[1])
            counts = MarkovStatistics(*(old + new for old, new in zip(earlier, counts, strict=True)))
        self.kept_ = counts
        return self

    def _fitted_likelihood(self) -> float | None:
        # the objective of a part has the counts of those before in its prior
        return None if "kept_" in vars(self) else super()._fitted_likelihood()

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = True
        tags.input_tags.positive_only = True
        return tags

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_int(self, "n_symbols", optional=True)
        check_instance(self, "transition_prior", DirichletPrior, optional=True)
        check_instance(self, "initial_prior", DirichletPrior, optional=True)

    def _scaling(self, X: np.ndarray, weight: np.ndarray) -> Scaling:
        return Scaling.identity(X.shape[1])

    def column_roles(self, n_features: int) -> ColumnRoles:
        return ColumnRoles.symbols(n_features)

    def _column_levels(self, n_features: int) -> tuple[int, ...]:
        return (self.model_.initial.shape[1],) * n_features

    def _likeliest(self, container: SeriesIntake, columns: np.ndarray) -> list[np.ndarray]:
        return [shares[:, columns].argmax(axis=2) for shares in self._for_each(_symbols, container)]

    def _learn(self, sequences: Sequences, key: Array) -> Fit:
        rows = sequences.rows
        if np.nanmin(rows) < 0:
            raise ValueError("Negative values in data passed to MarkovChain. Symbols are 0, 1, 2, ….")
        columns, symbols = rows.shape[1], self.n_symbols or int(np.nanmax(rows)) + 1
        words = str(symbols) if symbols < 2**63 else f"{symbols:g}"
        check_size(
            # a product may be infinite, a power must not
            columns * float(symbols) * symbols,
            f"MarkovChain with the transitions of {words} symbols in {columns} columns",
            "Number the symbols that occur 0, 1, 2, …",
        )
        columns, symbols = Categorical.prototype(rows).probabilities.shape
        if self.n_symbols is not None:
            if np.nanmax(rows) >= self.n_symbols:
                raise ValueError(
                    f"The 'n_symbols' parameter of MarkovChain must be more than every symbol of X. "
                    f"Got {self.n_symbols} and the symbol {np.nanmax(rows):g}."
                )
            symbols = self.n_symbols
        kept = vars(self).get("kept_")
        if kept is not None:
            symbols = max(symbols, kept.starts.shape[1])
        priors = concentration(self.transition_prior), concentration(self.initial_prior)
        start = models.MarkovChain(
            on_device(np.full((columns, symbols), 1 / symbols)),
            on_device(np.full((columns, symbols, symbols), 1 / symbols)),
            *priors,
            None if kept is None else MarkovStatistics(*map(on_device, _grown(kept, symbols))),
        )
        learner = EM(tol=sequences.per_row(self.tol))
        result = self._run(start, learner, sequences.packed, sequences, key)
        found = models.MarkovChain(result.model.initial, result.model.transition, *priors)
        return dataclasses.replace(result, model=found)

    def _predictive(
        self, container: SeriesIntake, steps: int, future: np.ndarray | None
    ) -> list[AbstractPredictive]:
        check_count(
            self, "forecast", "steps", steps, each=len(container.series) * self.transition_[:, 0].size
        )
        shares = self._for_each(_forecast_symbols, container, arguments=(steps,), cut=False)
        return [MassTables(part) for part in self._answered("forecast", container, shares)]

    def _along(self, name: str, shape: tuple[int, ...]) -> Along:
        return self.column_names, *(None,) * (len(shape) - 1)

    @property
    def transition_(self) -> np.ndarray:
        """p(next = j | now = i) at [column, i, j]."""
        return np.asarray(self.model_.transition)

    @property
    def initial_(self) -> np.ndarray:
        """The probabilities of the first symbol, for each column."""
        return np.asarray(self.model_.initial)
