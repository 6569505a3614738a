"""The scikit-learn shell that all estimators share."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import os
import re
import warnings
from collections.abc import Callable
from typing import Any, ClassVar, Self

import jax
import numpy as np
from jax import Array
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from .._core import (
    OBJECTIVES,
    AbstractAlgorithm,
    Checkpoint,
    Evidence,
    Fit,
    Kind,
    Status,
    Stream,
    cells_of,
    key_bits,
    map_rows,
    on_device,
    progress_bar,
    silent,
    split_key_data,
    streaming,
)
from ..learning import EM, FreshNoise, fit
from ..learning._fit import check_source
from ._chunks import Chunks
from ._rows import Rows, Scaling, canonical_rows, row_seeds
from ._validation import check_count, check_numbers, check_observed, check_rows, check_weight, random_key

# labels that are tried for a missing one
_MOST_LABELS = 10_000
# rows of a stream that are fitted first, in memory
_SAMPLE = 65_536
# rescaled numbers below this have products that do not overflow, whatever they are multiplied with
_FAR = 1e100


class Shell(BaseEstimator, metaclass=abc.ABCMeta):
    """What every estimator has: tags, progress, checkpoints and what `fit` leaves behind."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    @property
    def _must_converge(self) -> bool:
        """Whether stopping at the limit of iterations deserves a warning."""
        return True

    def _discrete_columns(self, n_features: int) -> np.ndarray:
        """Which columns are modelled with a probability mass instead of a density."""
        return np.zeros(n_features, bool)

    def _label_columns(self, n_features: int) -> np.ndarray:
        """Which columns hold labels, whose order means nothing."""
        return np.zeros(n_features, bool)

    def _whole_columns(self, n_features: int) -> np.ndarray:
        """Which columns hold whole numbers that have a mean, next to which an imputed one lies."""
        return self._discrete_columns(n_features) & ~self._label_columns(n_features)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the estimator to one file, for `freeenergy.load`."""
        from ._files import save  # it knows the shell

        save(self, path)

    def _progress(self, *, offset: float = 0.0):
        if not getattr(self, "verbose", 0):
            return silent
        return progress_bar(type(self).__name__, offset=offset)

    def _checkpoint(self, rows: Any, part: int | str = 0, what: str = "") -> Checkpoint | None:
        """A file for a fit to `rows`; an estimator of several fits names them and says `what` each is."""
        path = getattr(self, "checkpoint", None)
        if path is None:
            return None
        # where a function is in memory changes from process to process
        parameters = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(self.get_params()))
        name = f"{path}.{part}" if part else path
        return Checkpoint(name, identity=f"{type(self).__name__} {parameters} {what} of {rows.identity()}")

    def _keep(self, fit: Fit) -> None:
        """Stores the result of a fit; Ctrl-C is passed on only after that."""
        self.model_ = fit.model
        self.history_ = fit.history
        self.n_iter_ = fit.n_iter
        self.converged_ = fit.converged
        if fit.interrupted:
            raise KeyboardInterrupt(fit.reason)
        failed = fit.status is Status.NON_FINITE
        if failed or (self._must_converge and not fit.converged):
            warnings.warn(f"{type(self).__name__}: {fit.reason}.", ConvergenceWarning, stacklevel=3)


def final_objective(result: Fit) -> float:
    """The objective at the end of a fit; infinite if no iteration was done."""
    objective = result.history.get("objective", [])
    return float(objective[-1]) if len(objective) else np.inf


def retold(result: Fit, *, share: float = 1.0, offset: float = 0.0) -> Fit:
    """A fit whose objectives are told in other units: `share` times what they were, less `offset`."""
    history = {
        name: values * share - offset if name in OBJECTIVES else values
        for name, values in result.history.items()
    }
    return dataclasses.replace(result, history=history)


def best_of(results: list[Fit]) -> Fit:
    """The fit that ended lowest; if the last one was interrupted, so is the whole."""
    best, last = min(results, key=final_objective), results[-1]
    return dataclasses.replace(best, status=last.status) if last.interrupted else best


def checked(owner: Shell, evidence: Evidence) -> Evidence:
    """`evidence`, refused where it is not a number, or an infinite density."""
    check_numbers(owner, "evidence", evidence.nats, logarithms=True)
    return evidence


class AbstractDensity(DensityMixin, Shell):
    """A fitted density: `fit`, `evidence`, `score_samples`, `score`, `sample`, `impute`.

    Subclasses say how to check their parameters, how to fit rescaled rows, and what their model knows
    of an event.  Everything here is in the units of the data that the user passed.
    """

    random_state: Any
    max_iter: int
    tol: float
    learner: AbstractAlgorithm | None
    n_features_in_: int
    # whether all that learning does with rows is to sum over them, so that they may come in chunks
    _sums_rows: ClassVar[bool] = False
    # origin and width of the cells of each column within which rows lie by chance, if they do
    _cells: tuple[np.ndarray, np.ndarray] | None = None

    @abc.abstractmethod
    def _check_parameters(self) -> None:
        """Refuses wrong parameters before any work."""

    @abc.abstractmethod
    def _fit_rows(self, rows: Rows, *, key: Array) -> Fit:
        """Fits rescaled rows."""

    @abc.abstractmethod
    def _evidence(self, z: np.ndarray, seeds: np.ndarray) -> Evidence:
        """The evidence of rescaled rows."""

    @abc.abstractmethod
    def _draw(self, n: int, *, key: Array) -> np.ndarray:
        """Rescaled draws."""

    @abc.abstractmethod
    def _fill_mean(self, z: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        """Rescaled rows with NaN replaced by conditional means."""

    @abc.abstractmethod
    def _fill_sample(self, z: np.ndarray, *, key: Array) -> np.ndarray:
        """Rescaled rows with NaN replaced by conditional draws."""

    def _check_size(self, rows: int, columns: int) -> None:
        """Refuses what would not fit in memory, before it is built."""

    def _scaling(self, X: np.ndarray, weight: np.ndarray | None) -> Scaling:
        return Scaling.standardise(X, weight)

    def _with_fresh_noise(self, objective: Any) -> Any:
        """The objective of a gradient learner, its noise drawn anew for every batch if rows have any."""
        if self._cells is None:
            return objective
        origin, width = self._cells
        scaled = self.scaling_.apply(origin[None])[0], width / self.scaling_.scale
        return FreshNoise(objective, *(on_device(v) for v in scaled))

    def _prepare(self, X: np.ndarray) -> np.ndarray:
        """What the model is given for validated `X`, before rescaling."""
        return X

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fits the model.

        Args:
            X: a row per sample; NaN means not observed.  Models that are learned by EM take `Chunks` too.
            y: ignored.
            sample_weight: a non-negative number per row; a weight of two counts as two rows.
        """
        return self._fit(X, sample_weight)

    def _fit(
        self,
        X: Any,
        sample_weight: Any,
        known: Callable[[np.ndarray], np.ndarray | None] | None = None,
    ) -> Self:
        """`fit`, with a function that gives what else is known of validated rows, a row of numbers each."""
        self._check_parameters()
        if isinstance(X, Chunks):
            return self._fit_chunks(X, alone=sample_weight is None and known is None)
        passed, X = X, check_rows(self, X, reset=True)
        weight = check_weight(X, sample_weight)
        check_observed(X, getattr(self, "feature_names_in_", None), weight=weight)
        self._check_size(*X.shape)
        extra = None if known is None else known(X)
        X = self._prepare(X)
        self.scaling_ = self._scaling(X, weight)
        rows = canonical_rows(X, weight, self.scaling_, extra)
        if weight is not None or len(rows.x) < len(X):
            # from the merged rows, so that weights and repetition give the same to the last digit
            self.scaling_ = self._scaling(rows.x, rows.weight)
        key = random_key(self.random_state)
        self.seed_ = np.asarray(key_bits(key), np.uint32)
        with self._cells_of(passed, X):
            result = self._fit_rows(rows._replace(x=self.scaling_.apply(rows.x)), key=key)
        # the history is the free energy per row in the units of the data
        offset = float(np.average(self.scaling_.log_det(rows.x), weights=rows.weight))
        self._keep(retold(result, offset=offset))
        return self

    def _cells_of(self, passed: Any, X: np.ndarray) -> contextlib.AbstractContextManager[None]:
        """Names cells of `X` as the user does who passed it as `passed`."""
        return cells_of(passed, X, getattr(self, "feature_names_in_", None))

    def _fit_chunks(self, chunks: Chunks, *, alone: bool) -> Self:
        """Begins where a sample of the rows ends, and goes on with all of them."""
        name = type(self).__name__
        if not self._sums_rows:
            raise ValueError(f"{name} cannot be fitted to Chunks: it needs its rows in memory.")
        if not alone:
            raise ValueError(f"{name}.fit takes neither weights nor labels with Chunks.")
        learner = EM(tol=self.tol) if self.learner is None else self.learner
        check_source(learner, Stream)
        self._check_size(*check_rows(self, chunks[0], reset=True).shape)
        key = random_key(self.random_state)
        seed = key_bits(key)
        survey = chunks.survey(lambda part: check_rows(self, part, reset=False), sample=_SAMPLE, seed=seed)
        self.fit(survey.sample)

        def read(i: int) -> np.ndarray:
            return self.scaling_.apply(self._prepare(check_rows(self, chunks[i], reset=False)))

        columns = self.n_features_in_
        with streaming(read, survey.lengths, columns, incomplete=survey.incomplete) as stream:
            result = fit(
                self.model_,
                learner,
                stream,
                key=key,
                max_iter=self.max_iter,
                progress=self._progress(),
                checkpoint=self._checkpoint(
                    Rows(survey.sample, np.ones(len(survey.sample))), "chunks", f"{survey.lengths}"
                ),
            )
        self._keep(retold(result, offset=-float(survey.observed @ np.log(self.scaling_.scale))))
        return self

    def _validated(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "model_")
        return self._prepare(check_rows(self, X, reset=False))

    def evidence(self, X: Any) -> Evidence:
        """log p(x) of each row with its standard error and kind; NaN is marginalised."""
        passed, X = X, self._validated(X)
        with self._cells_of(passed, X):
            inner = self._evidence(self.scaling_.apply(X), row_seeds(X, self.scaling_))
        return checked(self, dataclasses.replace(inner, nats=inner.nats + self.scaling_.log_det(X)))

    def score_samples(self, X: Any) -> np.ndarray:
        """log p(x) of each row, in nats."""
        return self.evidence(X).nats

    def score(self, X: Any, y: Any = None) -> float:
        """The mean of `score_samples`."""
        return self.evidence(X).mean

    def sample(self, n: int = 1, random_state: Any = None, *, given: Any = None) -> np.ndarray:
        """Draws `n` rows from the fitted model.

        With `given`, rows with NaN, the missing part is drawn given the observed part, `n` times for
        each row: the result has shape (n, rows, columns), or (rows, columns) when n is 1.
        """
        check_is_fitted(self, "model_")
        key = random_key(random_state)
        if given is None:
            # a row is made of its numbers and the key that it is drawn with
            n = check_count(self, "sample", "n", n, each=self.n_features_in_ + 1, least=0)
            return self.scaling_.invert(self._draw(n, key=key))
        X = self._validated(given)
        n = check_count(self, "sample", "n", n, each=X.size + len(X))
        X = np.tile(X, (n, 1))
        with self._cells_of(given, X):
            drawn = self.scaling_.invert(self._fill_sample(self.scaling_.apply(X), key=key))
        filled = check_numbers(self, "sample", np.where(np.isnan(X), drawn, X))
        return filled if n == 1 else filled.reshape(n, -1, X.shape[1])

    def impute(self, X: Any) -> np.ndarray:
        """`X` with each missing entry inferred from the observed ones of its row.

        A continuous entry has its mean, a count the whole number next to its mean, a label the most
        probable one.
        """
        passed, X = X, self._validated(X).copy()
        holes = np.isnan(X).any(axis=1)
        if holes.any():
            rows = X[holes]
            z = self.scaling_.apply(rows)
            with self._cells_of(passed, X):
                filled = self.scaling_.invert(self._fill_mean(z, row_seeds(rows, self.scaling_)))
            width = rows.shape[1]
            whole = self._whole_columns(width)
            filled[:, whole] = np.rint(filled[:, whole])
            for column in np.flatnonzero(self._label_columns(width)):
                missing = np.isnan(rows[:, column])
                if missing.any():
                    filled[missing, column] = self._likeliest(rows[missing], int(column))
            X[holes] = np.where(np.isnan(rows), filled, rows)
        return check_numbers(self, "impute", X)

    def _likeliest(self, rows: np.ndarray, column: int) -> np.ndarray:
        """The most probable label in a column that is missing in all `rows`."""
        whole = self.score_samples(rows)

        def chance_of(label: int) -> np.ndarray:
            tried = rows.copy()
            tried[:, column] = label
            # rows of which the rest cannot occur have no labels
            with np.errstate(invalid="ignore"):
                return np.exp(self.score_samples(tried) - whole)

        return likeliest(chance_of, len(rows))


def likeliest(chance_of: Callable[[int], np.ndarray], n: int) -> np.ndarray:
    """The most probable of the labels 0, 1, 2, … for each of `n` rows; NaN where none is possible.

    `chance_of(label)` is the probability of a label in each row.
    """
    best, most, left = np.full(n, np.nan), np.zeros(n), np.ones(n)
    label = 0
    # until what is left for all labels to come is less than the best has
    while (left > most).any() and label < _MOST_LABELS:
        own = chance_of(label)
        best, most, left = np.where(own > most, label, best), np.fmax(own, most), left - own
        label += 1
    return best


def log_prob_of(row: Array, model: Any) -> Array:
    return model.log_prob(row)


def log_prob_complete_of(row: Array, model: Any) -> Array:
    return model.log_prob_complete(row)


def _sample(key: Array, model: Any) -> Array:
    return model.sample(key=jax.random.wrap_key_data(key))


def _complete_mean(row: Array, model: Any) -> Array:
    return model.complete_mean(row)


def _complete_sample(pair: tuple[Array, Array], model: Any) -> Array:
    row, key = pair
    return model.complete_sample(row, key=jax.random.wrap_key_data(key))


def by_completeness(z: np.ndarray, model: Any, complete: Any, incomplete: Any) -> np.ndarray:
    """`complete(row, model)` for rows without NaN, `incomplete(row, model)` for the others.

    Rows of which the products overflow are left to `incomplete`, too, since `complete` sums products.
    """
    with np.errstate(invalid="ignore"):
        special = ~(np.abs(z).max(axis=1) < _FAR)
    if not special.any():
        return map_rows(complete, z, model)
    some = map_rows(incomplete, z[special], model, block=256)
    out = np.empty((len(z), *some.shape[1:]))
    out[special] = some
    if not special.all():
        out[~special] = map_rows(complete, z[~special], model)
    return out


def draw_rows(model: Any, n: int, key: Array) -> np.ndarray:
    """`n` draws from `model`."""
    return map_rows(_sample, split_key_data(key, n), model)


class AbstractExactDensity(AbstractDensity):
    """A density whose model knows log p exactly, with or without missing entries."""

    def _evidence(self, z: np.ndarray, seeds: np.ndarray) -> Evidence:
        nats = by_completeness(z, self.model_, log_prob_complete_of, log_prob_of)
        return Evidence(nats, np.zeros_like(nats), Kind.EXACT)

    def _draw(self, n: int, *, key: Array) -> np.ndarray:
        return draw_rows(self.model_, n, key)

    def _fill_mean(self, z: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        return map_rows(_complete_mean, z, self.model_, block=256)

    def _fill_sample(self, z: np.ndarray, *, key: Array) -> np.ndarray:
        return map_rows(_complete_sample, (z, split_key_data(key, len(z))), self.model_, block=256)
