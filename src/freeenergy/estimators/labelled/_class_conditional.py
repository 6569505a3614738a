"""Models of rows given their label, p(x | y), by one network for all labels."""

from __future__ import annotations

import abc
from typing import Any, NamedTuple, Self

import jax
import numpy as np
from jax import Array
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import _num_samples, check_consistent_length, check_is_fitted

from ..._core import Evidence, Kind, fold_key, generator, map_rows, on_device, split_key_data
from ...models import ByLabel, tell
from ...shell import (
    AbstractDensity,
    LabelledTable,
    Predicts,
    PredictsProbabilities,
    Rows,
    SamplesRows,
    ScoresLabels,
    check_numbers,
    framed,
    framed_chances,
)
from ...shell._base import checked
from ...shell._capabilities import places_of
from ...shell._framed import AnswerColumns
from ...shell._rows import Scaling, row_seeds
from ...shell._validation import check_count, random_key

# the labels of draws come from a key of their own
_LABELS = 23
# seeds of rows are moved by it from label to label
_ODD = 0x9E3779B1
# labels that are less probable given the rest of a row do not count when it is completed
_RARE = 1e-6


class ClassTable(LabelledTable):
    """Rows that come with a label each, in the order of unlabelled ones where there is but one label."""

    @classmethod
    def arranged(
        cls, owner: Any, x: np.ndarray, weight: np.ndarray | None, known: np.ndarray | None
    ) -> Rows:
        if len(owner.classes_) > 1:
            return super().arranged(owner, x, weight, known)
        rows = super().arranged(owner, x, weight, None)
        return rows._replace(known=np.zeros((len(rows.x), 1)))


class ByClass(NamedTuple):
    """What is known of log p(x | y) of each row and label: an array of rows and labels each.

    Attributes:
        nats, stderr: as of `Evidence`.
        kind: of all of them.
        growth: as of `Evidence`, with the labels along the second axis.
    """

    nats: np.ndarray
    stderr: np.ndarray
    kind: Kind
    growth: np.ndarray | None

    @classmethod
    def beside(cls, found: list[Evidence]) -> ByClass:
        """That of each label, in their order."""
        growth = None
        if all(own.growth is not None for own in found):
            growth = np.stack([own.growth for own in found], axis=1)  # pyright: ignore[reportArgumentType, reportCallIssue]
        kind = found[0].kind
        for own in found:
            kind = kind.combine(own.kind)
        nats, stderr = (
            np.stack([getattr(own, name) for own in found], axis=1) for name in ("nats", "stderr")
        )
        return cls(nats, stderr, kind, growth)


def summed_error(shares: np.ndarray, stderr: np.ndarray, *, together: bool) -> np.ndarray:
    """The error of a sum of terms with these derivatives: of errors that are one another's, or none's.

    >>> summed_error(np.array([[3.0, -4.0]]), np.array([[1.0, 1.0]]), together=False).tolist()
    [5.0]
    """
    terms = np.abs(shares) * stderr
    return terms.sum(axis=1) if together else np.sqrt((terms**2).sum(axis=1))


class AbstractClassConditional(SamplesRows):
    """Rows given a label: p(x | y), with the share of each label as p(y).

    Attributes:
        classes_: the labels.
        class_prior_: p(y), the share of each label.
        model_: what draws of each label come from.
    """

    intake = ClassTable
    classes_: np.ndarray
    answer_columns_: AnswerColumns | None

    def fit(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, X: Any, y: Any, sample_weight: Any = None
    ) -> Self:
        """Fits the laws of the rows of all labels.

        Args:
            X: a row per sample; NaN means not observed.
            y: the label of each row.
            sample_weight: a non-negative number per row; a weight of two counts as two rows.
        """
        self._fit(X, y=y, sample_weight=sample_weight)
        return self

    @property
    def class_prior_(self) -> np.ndarray:
        """p(y), the share of each label."""
        return np.asarray(self.model_.weights)

    def _shares(self, rows: Rows) -> np.ndarray:
        """The share of each label among the rows of a fit."""
        assert rows.known is not None
        counts = np.bincount(rows.known[:, 0].astype(int), rows.weight, minlength=len(self.classes_))
        return counts / counts.sum()

    # -- draws --------------------------------------------------------------------------------------

    def sample(self, n: int = 1, random_state: Any = None, *, given: Any = None, labels: Any = None) -> Any:
        """Draws `n` rows from the fitted model, of labels as frequent as they were, or of those asked for.

        Args:
            n: how many; of several `labels` as many as there are.
            random_state: seed.
            given: rows with NaN, of which the missing part is drawn, `n` times for each row.
            labels: a label for all draws, or one for each of them, and of `given` for each row; None draws
                them, and of `given` from what the rest of each row says of its label.

        `sample_with_labels` returns the labels, too.
        """
        return self._by_label(n, random_state, given, labels)

    def sample_with_labels(self, n: int = 1, random_state: Any = None) -> tuple[Any, np.ndarray]:
        """Draws `n` rows as `sample` does with the same seed, and the label of each."""
        check_is_fitted(self, "model_")
        key = random_key(random_state)
        n = check_count(self, "sample_with_labels", "n", n, each=self._width + 1, least=0)
        places = self._drawn_labels(n, key)
        return self._sampled(n, None, key=key, labels=places), self.classes_[places]

    def _by_label(self, n: int, random_state: Any, given: Any, labels: Any, **how: Any) -> Any:
        check_is_fitted(self, "model_")
        key = random_key(random_state)
        if labels is None:
            return self._sampled(n, given, key=key, **how)
        places = places_of(self.classes_, np.ravel(np.asarray(labels)))
        if np.ndim(labels) and given is None:
            n = len(places) if n == 1 else n
        wanted = 1 if given is None and n == 0 else n if given is None else _num_samples(given)
        if np.ndim(labels) and len(places) != wanted:
            raise ValueError(
                f"The 'labels' of {type(self).__name__}.sample must be a label, or one for each of "
                f"{wanted} rows. Got {len(places)} of them instead."
            )
        return self._sampled(n, given, key=key, labels=places, **how)

    def _drawn_labels(self, n: int, key: Array) -> np.ndarray:
        """The numbers of labels as frequent as they were."""
        shares = self.class_prior_
        return generator(fold_key(key, _LABELS)).choice(len(shares), n, p=shares / shares.sum())

    def _draw(self, n: int, *, key: Array, labels: np.ndarray | None = None, **how: Any) -> np.ndarray:
        places = self._drawn_labels(n, key) if labels is None else np.resize(labels, n)
        return map_rows(_drawn, (split_key_data(key, n), places), self.model_, *self._drawing(**how))

    def _drawing(self) -> tuple[Any, dict[str, Any]]:
        """How the model that is told a label draws a row: a method of it, and its options."""
        return type(self.model_.model).sample, {}


def _drawn(pair: tuple[Array, Array], model: ByLabel, method: Any, options: dict[str, Any]) -> Array:
    key, label = pair
    return method(model.at(label), key=jax.random.wrap_key_data(key), **options)


class AbstractClassConditionalDensity(
    ClassifierMixin,
    Predicts,
    PredictsProbabilities,
    ScoresLabels,
    AbstractClassConditional,
    AbstractDensity,
):
    """p(x) = Σ_y p(y) p(x | y), and what follows of the label of a row by Bayes' rule.

    Whoever extends it says what is known of log p(x | y), and how rows are completed given y.
    """

    # whether the errors of the terms of a row go together, as those of one solver do
    _errors_together: bool = False

    @abc.abstractmethod
    def _evidence_of_class(self, place: int, z: np.ndarray, seeds: np.ndarray) -> Evidence:
        """log p(x | y) of rescaled rows for the label of this number."""

    @abc.abstractmethod
    def _fill_mean_of_class(self, place: int, z: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        """Rescaled rows with NaN replaced by its mean given the rest and this label."""

    @abc.abstractmethod
    def _fill_sample_of_classes(self, z: np.ndarray, places: np.ndarray, *, key: Array) -> np.ndarray:
        """Rescaled rows with NaN drawn given the rest and a label for each row."""

    def _at(self, place: int) -> Any:
        """The model of rows with the label of this number."""
        # on the host, where nothing is compiled for it
        return tell(self.model_.model, on_device(np.asarray(self.model_.codes)[place]))

    # -- evidence -----------------------------------------------------------------------------------

    def _by_class(self, z: np.ndarray, seeds: np.ndarray) -> ByClass:
        found = []
        for place in range(len(self.classes_)):
            # draws of their own for each label, so that the errors have nothing in common
            own = seeds + np.uint32(_ODD * place % 2**32)
            found.append(self._evidence_of_class(place, z, own))
        return ByClass.beside(found)

    def _logs(self, found: ByClass) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """log p(x, y) of each label, log p(x), and p(y | x)."""
        logs = found.nats + np.log(self.class_prior_)
        total = np.logaddexp.reduce(logs, axis=1)
        # a row that is impossible says nothing of its label
        some = np.isfinite(total)
        shares = np.exp(logs - np.where(some, total, 0.0)[:, None])
        return logs, total, np.where(some[:, None], shares, self.class_prior_)

    def _evidence(self, z: np.ndarray, seeds: np.ndarray) -> Evidence:
        found = self._by_class(z, seeds)
        _, total, shares = self._logs(found)
        stderr = summed_error(shares, found.stderr, together=self._errors_together)
        growth = None
        if found.growth is not None:
            last = found._replace(nats=found.nats - found.growth[..., 0])
            before = last._replace(nats=last.nats - found.growth[..., 1])
            sums = [total, *(self._logs(own)[1] for own in (last, before))]
            with np.errstate(invalid="ignore"):
                growth = np.nan_to_num(-np.diff(np.stack(sums, axis=1), axis=1))
        return Evidence(total, stderr, found.kind, growth=growth)

    def evidence_given_labels(self, X: Any, y: Any) -> Evidence:
        """log p(x | y) of each row, for labels among those that were fitted; NaN is marginalised."""
        taken, places = self._read(X), self._place_of(y)
        check_consistent_length(taken.x, places)
        nats, stderr = np.zeros(len(places)), np.zeros(len(places))
        kind = Kind.EXACT
        with taken.naming_cells():
            z, seeds = taken.z, taken.seeds
            for place in np.unique(places):
                own = places == place
                found = self._evidence_of_class(int(place), z[own], seeds[own])
                nats[own], stderr[own], kind = found.nats, found.stderr, kind.combine(found.kind)
        return checked(self, Evidence(nats + taken.log_det, stderr, kind))

    # -- labels -------------------------------------------------------------------------------------

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """log p(y | x) of each label by Bayes' rule; what is missing in x is integrated out."""
        taken = self._read(X)
        with taken.naming_cells():
            logs, total, shares = self._logs(self._by_class(taken.z, taken.seeds))
        with np.errstate(divide="ignore", invalid="ignore"):
            told = np.where(np.isfinite(total)[:, None], logs - total[:, None], np.log(shares))
        return check_numbers(self, "predict_log_proba", told, logarithms=True)

    @framed_chances
    def predict_proba(self, X: Any) -> Any:
        """p(y | x) of each label by Bayes' rule; what is missing in x is integrated out."""
        return np.exp(self.predict_log_proba(X))

    @framed
    def predict(self, X: Any) -> Any:
        """The most probable label of each row."""
        log_probabilities = self.predict_log_proba(X)
        return self.classes_[np.argmax(log_probabilities, axis=1)]

    def evidence_of_labels(self, X: Any, y: Any) -> Evidence:
        """log p(y | x) of each row, for labels among those that were fitted: a ratio of estimates."""
        taken, places = self._read(X), self._place_of(y)
        with taken.naming_cells():
            found = self._by_class(taken.z, taken.seeds)
        logs, total, shares = self._logs(found)
        rows = np.arange(len(places))
        moved = np.eye(len(self.classes_))[places] - shares
        stderr = summed_error(moved, found.stderr, together=self._errors_together)
        kind = Kind.EXACT if found.kind is Kind.EXACT else Kind.ESTIMATE
        return checked(self, Evidence(logs[rows, places] - total, stderr, kind))

    # -- missing entries ----------------------------------------------------------------------------

    def _shares_of_rows(self, z: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        """p(y | x) of rescaled rows."""
        return self._logs(self._by_class(z, seeds))[2]

    def _mean_over_labels(self, z: np.ndarray, seeds: np.ndarray, of_class: Any) -> np.ndarray:
        """The mean over p(y | x) of what `of_class(number, rows, seeds)` says of rows with each label."""
        shares, total = self._shares_of_rows(z, seeds), None
        for place, share in enumerate(shares.T):
            some = share > _RARE
            if some.any():
                found = share[some, None] * of_class(place, z[some], seeds[some])
                total = np.zeros((len(z), found.shape[1])) if total is None else total
                total[some] += found
        assert total is not None
        return total

    def _fill_mean(self, z: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        return np.where(np.isnan(z), self._mean_over_labels(z, seeds, self._fill_mean_of_class), z)

    def _fill_samples(self, z: np.ndarray, n: int, *, key: Array, **how: Any) -> np.ndarray:
        # each draw has a label of its own
        return self._fill_sample(np.tile(z, (n, 1)), key=key, **how)

    def _fill_sample(self, z: np.ndarray, *, key: Array, labels: np.ndarray | None = None) -> np.ndarray:
        if labels is None:
            flat = np.ascontiguousarray(z).view(f"V{z.itemsize * z.shape[1]}").ravel()
            _, first, back = np.unique(flat, return_index=True, return_inverse=True)
            distinct = z[first]
            shares = self._shares_of_rows(distinct, row_seeds(distinct, Scaling.identity(z.shape[1])))[back]
            below = generator(fold_key(key, _LABELS)).random((len(z), 1))
            ends = np.cumsum(shares, axis=1)
            labels = np.argmax(below * ends[:, -1:] < ends, axis=1)
        places = np.resize(np.asarray(labels), len(z))
        return self._fill_sample_of_classes(z, places, key=key)
