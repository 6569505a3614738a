"""Estimators of rows, whatever their shape, and the density among them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, NoReturn, Self

import equinox as eqx
import jax
import numpy as np
from jax import Array
from sklearn.utils.validation import check_is_fitted

from .._core import AbstractAlgorithm, Data, Evidence, Fit, Stream, generator, on_device, streaming
from ..learning import EM, FreshNoise, LearnedCells
from ..learning._fit import check_source
from ..models import AbstractBoundedModel, AbstractExactModel, CellNoise, InCells, LearnedNoise, in_units
from ._anomalies import Outliers, p_values_of, surprise_of
from ._answers import (
    answers,
    completed_draws,
    completed_means,
    draw_rows,
    evidence_of_rows,
    log_prob_complete_of,
    log_prob_of,
    shared_draws,
)
from ._base import Shell, checked
from ._capabilities import Completes, Samples, Scores, Transforms
from ._chunks import Chunks
from ._completion import AbstractCompletion, RowCause, RowEnergy
from ._field import Field
from ._intake import Table, with_history
from ._rows import Rows, Scaling, canonical_rows
from ._schema import CodedRows, Schema, schema_of
from ._spread import Spread, SpreadTable, spread_of
from ._summary import Terms, reported, weighted
from ._validation import check_count, check_numbers, check_rows, check_weight, random_key

# labels that are tried for a missing one
_MOST_LABELS = 10_000
# rows of a stream that are fitted first, in memory
_SAMPLE = 65_536


class AbstractRowEstimator(Shell):
    """An estimator of rows: how they are rescaled, and what is asked of them before.

    Attributes:
        schema_: what the columns of the data frame hold that was fitted, if it was one.
        scaling_: the map from the units of the data to those of `model_`.
        seed_: what noise depends on that is drawn after the fit.
    """

    intake = Table
    n_features_in_: int
    schema_: Schema
    scaling_: Scaling
    seed_: np.ndarray

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fits the model.

        Args:
            X: a row per sample; NaN means not observed.  Models that are learned by EM take `Chunks` too.
            y: ignored.
            sample_weight: a non-negative number per row; a weight of two counts as two rows.
        """
        self._fit(X, sample_weight=sample_weight)
        return self

    @property
    def needs_kinds(self) -> bool:
        """Whether columns of numbers have to be told apart too: counts, truth values, …"""
        return False

    def as_modelled(self, X: np.ndarray) -> np.ndarray:
        """The rows of `X` as the model is given them, before they are rescaled: `X` itself by default."""
        return X

    def _take(self, model: Any) -> None:
        columns = eqx.filter_eval_shape(lambda m: m.sample(key=jax.random.key(0)), model).shape[-1]
        self.n_features_in_, self.scaling_ = columns, Scaling.identity(columns)

    def _check_size(self, rows: int, columns: int) -> None:
        """Refuses what would not fit in memory, before it is built."""

    def _scaling(self, X: np.ndarray, weight: np.ndarray | None) -> Scaling:
        """The units in which the model works."""
        return Scaling.standardise(X, weight)

    @property
    def _width(self) -> int:
        """How many columns the model is about."""
        return len(self.scaling_.shift)

    def _read(self, X: Any) -> Table:
        """What a call of the fitted estimator is given."""
        return self.intake.reading(self, X)


class ScoresRows(Scores, AbstractRowEstimator):
    """log p of rows, in the units of the user."""

    def _evidence(self, z: np.ndarray, seeds: np.ndarray) -> Evidence:
        """The evidence of rescaled rows, whose noise comes from `seeds`."""
        return evidence_of_rows(self.model_, z, seeds, self._samples, self.seed_)

    @property
    def _samples(self) -> int:
        """How many importance samples a row gets, for models that need some."""
        return 1000

    def evidence(self, X: Any) -> Evidence:
        """log p(x) of each row with its standard error and kind; NaN is marginalised."""
        return self._evidence_of(self._read(X))

    def _evidence_of(self, taken: Table) -> Evidence:
        """The evidence of rows that were read."""
        with taken.naming_cells():
            inner = self._evidence(taken.z, taken.seeds)
        return checked(self, dataclasses.replace(inner, nats=inner.nats + taken.log_det))

    def score_samples(self, X: Any) -> np.ndarray:
        """log p(x) of each row, in nats."""
        return self.evidence(X).nats

    @property
    def _knows_evidence(self) -> bool:
        # whoever gives evidence in a way of its own does not leave it to the model
        own = type(self)._evidence is ScoresRows._evidence
        return own and isinstance(self.model_, AbstractExactModel)

    def _reported(self) -> tuple[Any, tuple[Array, ...]]:
        units = self.intake.shaped(self, np.stack(self.scaling_))
        return reported(self, lambda model: in_units(model, *units))

    def _likelihood_of(self, X: Any, given: dict[str, Any]) -> tuple[Evidence, float]:
        evidence = self.evidence(X)
        weight = check_weight(evidence.nats[:, None], given.get("sample_weight"))
        return weighted(evidence, weight), float(len(evidence) if weight is None else weight.sum())

    def _terms(self, X: Any, given: dict[str, Any]) -> list[Terms] | str:
        if not (self._knows_evidence and self._maximises_likelihood):
            return super()._terms(X, given)
        return self._terms_of_rows(self._rows_of(X, **given))

    def _rows_of(self, X: Any, sample_weight: Any = None, *, known: np.ndarray | None = None) -> Rows:
        """Rescaled rows as `fit` has them, with their weights and what else is known of them."""
        x = self._read(X).x
        rows = canonical_rows(x, check_weight(x, sample_weight), self.scaling_, known)
        return rows._replace(x=self.scaling_.apply(rows.x))

    def _terms_of_rows(self, rows: Rows) -> list[Terms]:
        """log p of rescaled rows, complete ones apart from the others."""
        holes = np.isnan(rows.x).any(axis=1)
        return [
            Terms(Data.of(self.intake.shaped(self, rows.x[chosen]), rows.weight[chosen]), log_prob)
            for chosen, log_prob in ((~holes, log_prob_complete_of), (holes, log_prob_of))
            if chosen.any()
        ]

    def score(self, X: Any, y: Any = None) -> float:
        """The mean of `score_samples`."""
        return self.evidence(X).mean


class SamplesRows(Samples, AbstractRowEstimator):
    """Draws of rows, in the units of the user."""

    def _draw(self, n: int, *, key: Array) -> np.ndarray:
        """Rescaled draws."""
        return draw_rows(self.model_, n, key)

    def sample(self, n: int = 1, random_state: Any = None, *, given: Any = None) -> Any:
        """Draws `n` rows from the fitted model.

        With `given`, rows with NaN, the missing part is drawn given the observed part, `n` times for
        each row: the result has shape (n, rows, columns), or (rows, columns) when n is 1.  Where they are
        chosen among importance samples, draws of a row share these by the hundred, eight for each.

        After a fit to a data frame draws are a data frame, with the names and types of its columns; a
        frame that is `given` comes back as one, or as a list of `n`.
        """
        check_is_fitted(self, "model_")
        return self._sampled(n, given, key=random_key(random_state))

    def _sampled(self, n: int, given: Any, *, key: Array, **how: Any) -> Any:
        """What `sample` returns; `how` is for those who draw."""
        if given is None:
            # a row is made of its numbers and the key that it is drawn with
            n = check_count(self, "sample", "n", n, each=self._width + 1, least=0)
            drawn = self.intake.flat(self, self._draw(n, key=key, **how))
            return self.intake.drawn(self, self.scaling_.invert(drawn))
        if not isinstance(self, CompletesRows):
            raise ValueError(
                f"{type(self).__name__}.sample takes no 'given': it does not infer what is missing."
            )
        once = self._read(given)
        n = check_count(self, "sample", "n", n, each=once.x.size + len(once.x))
        taken = once.take(np.tile(np.arange(len(once.x)), n))
        with taken.naming_cells():
            drawn = taken.back(self._fill_samples(once.z, n, key=key, **how))
        filled = check_numbers(self, "sample", np.where(np.isnan(taken.x), drawn, taken.x))
        tables = [once.filled(part) for part in filled.reshape(n, *once.x.shape)]
        if n == 1:
            return tables[0]
        return np.stack(tables) if isinstance(tables[0], np.ndarray) else tables


class AbstractImplicit(SamplesRows):
    """A law that can be drawn from and has no density; who asks for a score is told why there is none.

    Columns may be of any kind: models are given reals, whole numbers as places in the cell about each and
    labels as a column for each value (`Spread`), and what is drawn is a value that can occur.

    Attributes:
        spread_: what the values of columns can be.
    """

    intake = SpreadTable
    spread_: Spread

    def takes(self, field: Field) -> bool:
        return True

    @property
    def _corners(self) -> tuple[np.ndarray, np.ndarray] | None:
        """A corner and the width of the cells of what `model_` draws; None where all columns are reals."""
        spread = spread_of(self)
        return None if spread is None or spread.trivial else spread.cells(*self.scaling_)

    def _with_fresh_noise(self, objective: Any) -> Any:
        """The objective of a player who sees rows, their place in their cells drawn for every batch."""
        corners = self._corners
        return objective if corners is None else FreshNoise(objective, *map(on_device, corners))

    def _noisy(self, x: np.ndarray, key: Array) -> np.ndarray:
        """Rows of `_learn`, each at a place in its cells that is drawn once."""
        corners = self._corners
        if corners is None:
            return x
        place = generator(key).random(x.shape) - 0.5
        return x + corners[1] * place

    def __getattr__(self, name: str) -> NoReturn:
        if name in ("evidence", "score_samples", "score"):
            raise AttributeError(
                f"{type(self).__name__} has no density, so that no row has a score: it only draws. Compare "
                "its draws with rows that were held out by the measures of freeenergy.evaluation, such as "
                "classifier_two_sample_test and maximum_mean_discrepancy."
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


class CompletesRows(Completes, AbstractRowEstimator):
    """Missing entries of rows, in the units of the user."""

    # whether many draws of a row are chosen among the same importance samples
    _shares_draws: ClassVar[bool] = False

    @property
    def _completion_samples(self) -> int | None:
        """How many draws fill what is missing, for models that need some."""
        return 1000

    def _completion(self, x: np.ndarray) -> AbstractCompletion | None:
        model = self.model_
        if self._knows_evidence:
            shape = self.intake.shaped(self, self.scaling_.shift[None]).shape[1:]
            return RowEnergy.of(model, type(model).log_prob_complete, self.scaling_, shape=shape)
        if isinstance(model, AbstractBoundedModel):
            z = self.scaling_.apply(x[None])[0]
            return RowCause(model, on_device(z), *map(on_device, self.scaling_))
        return None

    def _fill_mean(self, z: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        """Rescaled rows with NaN replaced by conditional means."""
        return completed_means(self.model_, z, seeds, self._completion_samples, self.seed_)

    def _fill_sample(self, z: np.ndarray, *, key: Array) -> np.ndarray:
        """Rescaled rows with NaN replaced by conditional draws."""
        return completed_draws(self.model_, z, self._completion_samples, key)

    def _fill_samples(self, z: np.ndarray, n: int, *, key: Array, **how: Any) -> np.ndarray:
        """Rescaled rows `n` times, one time after another, with NaN replaced by conditional draws."""
        samples = self._completion_samples
        if n == 1 or not self._shares_draws or samples is None:
            # an event may have axes of its own
            times = np.tile(z, (n, *(1 for _ in z.shape[1:])))
            return self._fill_sample(times, key=key, **how)
        return shared_draws(self.model_, z, n, samples, key).reshape(-1, *z.shape[1:])

    def impute(self, X: Any) -> Any:
        """`X` with each missing entry inferred from the observed ones of its row.

        A continuous entry has its mean, a count the whole number next to its mean, a label the most
        probable one.  A data frame comes back as one, with its index, names and types; columns that are
        no part of the model are as they were.
        """
        taken = self._read(X)
        return taken.filled(self._completed(taken))

    def _completed(self, taken: Table) -> np.ndarray:
        """Rows in the units of the user with all that is missing inferred."""
        found, holes = taken.x.copy(), np.asarray(np.isnan(taken.x).any(axis=1))
        if holes.any():
            some = taken.take(holes)
            with taken.naming_cells():
                filled = taken.back(self._fill_mean(some.z, some.seeds))
            roles = self.column_roles(some.x.shape[1])
            filled[:, roles.whole] = np.rint(filled[:, roles.whole])
            for column in np.flatnonzero(roles.labels):
                missing = np.isnan(some.x[:, column])
                if missing.any():
                    filled[missing, column] = self._likeliest(some.x[missing], int(column))
            found[holes] = np.where(np.isnan(some.x), filled, some.x)
        return check_numbers(self, "impute", found)

    def _likeliest(self, rows: np.ndarray, column: int) -> np.ndarray:
        """The most probable label in a column that is missing in all `rows`."""
        if not isinstance(self, Scores):
            raise NotImplementedError(f"{type(self).__name__} has labels and must say which are probable.")
        schema = schema_of(self)
        categories = () if schema is None else schema.modelled[column].categories

        def score(rows: np.ndarray) -> np.ndarray:
            return self.score_samples(rows if schema is None else CodedRows(rows, schema))

        whole = score(rows)

        def chance_of(label: int) -> np.ndarray:
            tried = rows.copy()
            tried[:, column] = label
            # rows of which the rest cannot occur have no labels
            with np.errstate(invalid="ignore"):
                return np.exp(score(tried) - whole)

        return likeliest(chance_of, len(rows), len(categories) or _MOST_LABELS)


class TransformsRows(Transforms, AbstractRowEstimator):
    """The hidden part of rows, by `encode` of the model."""

    # how many rows are done together
    _codes_at_once: ClassVar[int] = 4096

    def _whole(self, X: Any) -> np.ndarray:
        """The rescaled rows that the model is asked about: those of `X`."""
        return self._read(X).z

    def transform(self, X: Any) -> np.ndarray:
        """The hidden part of each row."""
        model = self.model_
        codes = answers(model, type(model).encode, self._whole(X), block=self._codes_at_once)
        return check_numbers(self, "transform", codes)


class AbstractDensity(ScoresRows, SamplesRows, CompletesRows):
    """A fitted density of rows: `fit`, `evidence`, `score_samples`, `score`, `sample`, `impute`.

    Subclasses say how to check their parameters and how to learn a model from rescaled rows.  A model that
    is an `AbstractExactModel` or an `AbstractBoundedModel` of `freeenergy.models` answers the rest.
    Everything here is in the units of the data that the user passed.
    """

    max_iter: int
    tol: float
    learner: AbstractAlgorithm | None
    # whether all that learning does with rows is to sum over them, so that they may come in chunks
    _sums_rows: ClassVar[bool] = False
    # origin and width of the cells of each column within which rows lie by chance, if they do
    _cells: tuple[np.ndarray, np.ndarray] | None = None
    # whether the law of the place in a cell can be learned with the model; what to learn, and what was
    _learns_noise: ClassVar[bool] = False
    _noise_in_cells: LearnedNoise | None = None
    _cell_noise: CellNoise | None = None

    @property
    def model_in_units(self) -> Any:
        """The fitted model for rows in the units of the data, where `model_` has rescaled ones.

        `model_in_units.log_prob(x)` is `score_samples` of a row, and what is inferred from it needs no
        rescaling.  Gaussians, mixtures of them and factor models have their own parameters in these units;
        other models are a `freeenergy.models.InUnits`.
        """
        check_is_fitted(self, "model_")
        return in_units(self.model_, *self.intake.shaped(self, np.stack(self.scaling_)))

    def outliers(
        self, X: Any, level: float = 0.01, *, n_draws: int = 1000, random_state: Any = 0
    ) -> Outliers:
        """Which rows are less probable than the model expects of its own draws.

        The p-value of a row is (1 + #{draws with log p no larger}) / (1 + draws), of what is observed of
        it: rows of the model itself have p-values of every size alike, so that it calls a share `level` of
        them outliers.

        Args:
            X: a row per sample; NaN is marginalised, in the row and in the draws it is compared with.
            level: the largest p-value of an outlier.
            n_draws: how many draws; the smallest p-value is 1 / (1 + n_draws).
            random_state: seed of the draws.

        >>> import freeenergy as fe
        >>> X = np.random.default_rng(0).normal(size=(200, 2))
        >>> fe.GaussianDensity().fit(X).outliers([[0.0, 0.0], [5.0, -5.0]]).mask.tolist()
        [False, True]
        """
        taken = self._read(X)
        n = check_count(self, "outliers", "n_draws", n_draws, each=self.n_features_in_ + 1)
        if not 1 / (1 + n) <= level < 1:
            raise ValueError(
                f"The 'level' of {type(self).__name__}.outliers must be in the range "
                f"[1 / (1 + n_draws), 1), which begins at {1 / (1 + n):.3g}. Got {level!r} instead."
            )
        drawn = taken.back(self._draw(n, key=random_key(random_state)))
        p_values = p_values_of(taken.x, drawn, lambda x: self._evidence_of(taken.with_rows(x)).nats)
        return Outliers(p_values <= level, p_values, float(level))

    def surprise(self, X: Any) -> np.ndarray:
        """−log p(x_j | the rest of the row) of each entry, in nats: which cells make a row unlikely.

        Exact where the density is; where it is a bound, the difference of two bounds.  NaN for what was
        not observed; one evaluation of all rows for each column.

        >>> import freeenergy as fe
        >>> X = np.random.default_rng(0).normal(size=(200, 2))
        >>> fe.GaussianDensity().fit(X).surprise([[0.0, 5.0]]).argmax().item()
        1
        """
        taken = self._read(X)
        found = surprise_of(taken.x, lambda x: self._evidence_of(taken.with_rows(x)).nats)
        return taken.shaped(self, found)

    @property
    def _event_shape(self) -> tuple[int, ...]:
        """The shape of what `model_` is a density of."""
        return self.intake.shaped(self, self.scaling_.shift[None]).shape[1:]

    def _with_fresh_noise(self, objective: Any) -> Any:
        """The objective of a gradient learner, its noise drawn anew for every batch if rows have any."""
        if self._cells is None:
            return objective
        origin, width = self._cells
        scaled = self.scaling_.apply(origin[None])[0], width / self.scaling_.scale
        of_cells = FreshNoise if self._noise_in_cells is None else LearnedCells
        return of_cells(objective, *(on_device(v) for v in scaled))

    def _with_noise(self, start: Any, key: Array) -> Any:
        """What there is to learn: the density, and the law of the noise where that is learned too."""
        if self._noise_in_cells is None or self._cells is None:
            return start
        width = self._cells[1]
        return InCells(start, self._noise_in_cells(len(width), np.flatnonzero(width), key=key))

    def _fit(self, X: Any, **given: Any) -> Any:
        if not isinstance(X, Chunks):
            return super()._fit(X, **given)
        self._check_parameters()
        return self._fit_chunks(X, alone=all(part is None for part in given.values()))

    def _fit_chunks(self, chunks: Chunks, *, alone: bool) -> None:
        """Begins where a sample of the rows ends, and goes on with all of them."""
        name = type(self).__name__
        if not self._sums_rows:
            raise ValueError(f"{name} cannot be fitted to Chunks: it needs its rows in memory.")
        if not alone:
            raise ValueError(f"{name}.fit takes neither weights nor labels with Chunks.")
        learner = EM(tol=self.tol) if self.learner is None else self.learner
        check_source(learner, Stream)
        self._check_size(*check_rows(self, chunks[0], reset=True).shape)
        key, seed = self._key_and_seed()
        survey = chunks.survey(
            lambda part: check_rows(self, part, reset=False), sample=_SAMPLE, seed=int(seed)
        )
        self.fit(survey.sample)

        def read(i: int) -> np.ndarray:
            return self.scaling_.apply(self.as_modelled(check_rows(self, chunks[i], reset=False)))

        columns = self.n_features_in_
        with streaming(read, survey.lengths, columns, incomplete=survey.incomplete) as stream:
            sample = Rows(survey.sample, np.ones(len(survey.sample)))
            result: Fit = self._run(
                self.model_, learner, stream, sample, key, part="chunks", what=f"{survey.lengths}"
            )
        units = -float(survey.observed @ np.log(self.scaling_.scale))
        self._store(with_history(result, offset=units), float(sum(survey.lengths)))


def likeliest(chance_of: Callable[[int], np.ndarray], n: int, labels: int = _MOST_LABELS) -> np.ndarray:
    """The most probable of the `labels` 0, 1, 2, … for each of `n` rows; NaN where none is possible.

    `chance_of(label)` is the probability of a label in each row.
    """
    best, most, left = np.full(n, np.nan), np.zeros(n), np.ones(n)
    label = 0
    # until what is left for all labels to come is less than the best has
    while (left > most).any() and label < labels:
        own = chance_of(label)
        best, most, left = np.where(own > most, label, best), np.fmax(own, most), left - own
        label += 1
    return best
