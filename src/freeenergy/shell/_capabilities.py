"""What an estimator can do, each as a small abstract class.

They do not come together: what scores need not sample, what samples need not score.  Who has a fitted
estimator asks for the smallest that serves (`isinstance(model, Samples)`), and `freeenergy.testing` has the
contract of each.
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, DensityMixin, TransformerMixin

from .._core import Evidence, Kind
from ..evaluation import AbstractLaws
from ._completion import AbstractCompletion
from ._framed import SetsOutput


class ColumnRoles(NamedTuple):
    """What a density means by each of its columns.

    Attributes:
        mass: which have a probability mass, the others a density.
        labels: which hold labels, whose order means nothing.
        whole: which hold whole numbers that have a mean, next to which an imputed one lies.

    >>> from freeenergy.distributions import Poisson
    >>> ColumnRoles.of(Poisson, 2).whole.tolist()
    [True, True]
    """

    mass: np.ndarray
    labels: np.ndarray
    whole: np.ndarray

    @staticmethod
    def continuous(n_features: int) -> ColumnRoles:
        """Columns of real numbers."""
        return ColumnRoles(*(np.zeros(n_features, bool) for _ in range(3)))

    @staticmethod
    def counts(n_features: int) -> ColumnRoles:
        """Columns of whole numbers that have a mean."""
        return ColumnRoles(np.ones(n_features, bool), np.zeros(n_features, bool), np.ones(n_features, bool))

    @staticmethod
    def symbols(n_features: int) -> ColumnRoles:
        """Columns of labels."""
        return ColumnRoles(np.ones(n_features, bool), np.ones(n_features, bool), np.zeros(n_features, bool))

    @staticmethod
    def of(family: Any, n_features: int) -> ColumnRoles:
        """Columns under a family of distributions, a class or a member."""
        mass, labels = family.support.has_mass(n_features), family.support.has_labels(n_features)
        return ColumnRoles(mass, labels, mass & ~labels)

    @staticmethod
    def beside(parts: list[ColumnRoles]) -> ColumnRoles:
        """Columns of several parts, one after another."""
        return ColumnRoles(*(np.concatenate(part) for part in zip(*parts, strict=True)))


class Scores(DensityMixin, abc.ABC):
    """Gives the log-probability of samples, in the units of the data: a density to scikit-learn."""

    @abc.abstractmethod
    def evidence(self, X: Any) -> Evidence:
        """log p of each sample with its standard error and kind; NaN is marginalised."""

    @abc.abstractmethod
    def score_samples(self, X: Any) -> np.ndarray:
        """log p of each sample, in nats."""

    @abc.abstractmethod
    def score(self, X: Any, y: Any = None) -> float:
        """The mean log-probability."""


class ScoresSteps(Scores):
    """Gives the log-probability of series step by step, each given the steps before it."""

    @property
    @abc.abstractmethod
    def evidence_kind(self) -> Kind:
        """In which sense its numbers are log-probabilities."""

    @abc.abstractmethod
    def step_evidence(self, X: Any) -> np.ndarray:
        """log p(x_t | x_<t) of each time step, series one after another."""

    @abc.abstractmethod
    def least_steps(self, n_features: int) -> int:
        """The steps of a series that a fit needs to be of use."""


def places_of(classes: np.ndarray, y: Any) -> np.ndarray:
    """The number of each label among the `classes` that were fitted; others are refused."""
    labels = np.asarray(y)
    place = np.searchsorted(classes, labels).clip(max=len(classes) - 1)
    unknown = labels[classes[place] != labels]
    if len(unknown):
        raise ValueError(
            f"The labels 'y' must be among those that were fitted. Got {unknown.tolist()[0]!r} instead."
        )
    return place


class ScoresLabels(abc.ABC):
    """Gives the log-probability of labels given rows.

    Attributes:
        classes_: the labels that were fitted, in order.
    """

    classes_: np.ndarray

    @abc.abstractmethod
    def evidence_of_labels(self, X: Any, y: Any) -> Evidence:
        """log p(y | x) of each row, for labels among `classes_`."""

    def _place_of(self, y: Any) -> np.ndarray:
        """The number of each label among those that were fitted; others are refused."""
        return places_of(self.classes_, y)

    def _model_place_of(self, y: Any) -> np.ndarray:
        """The number that the fitted model has for each label."""
        return self._place_of(y)


class Samples(abc.ABC):
    """Draws from the fitted model."""

    @abc.abstractmethod
    def sample(self, n: int = 1, random_state: Any = None, *, given: Any = None) -> Any:
        """`n` draws; with `given`, of what is missing in it, for what also `Completes`."""


class Completes(abc.ABC):
    """Infers what is missing."""

    @abc.abstractmethod
    def impute(self, X: Any) -> Any:
        """`X` with each NaN replaced by what is inferred; the observed part is untouched."""

    def _completion(self, x: np.ndarray) -> AbstractCompletion | None:
        """The missing entries of one event, in the units of the user, as what any method can infer.

        None where the estimator knows no energy of them, but only draws.
        """
        return None


class Transforms(SetsOutput, ClassNamePrefixFeaturesOutMixin, TransformerMixin, abc.ABC):
    """Gives the hidden part of each row as a row of numbers."""

    @abc.abstractmethod
    def transform(self, X: Any) -> np.ndarray:
        """The hidden part of each row."""

    @property
    @abc.abstractmethod
    def _n_features_out(self) -> int:
        """How many numbers `transform` gives for a row, as scikit-learn asks for it."""

    def latent(self, X: Any) -> np.ndarray:
        """The hidden part of each row, to plot."""
        return np.asarray(self.transform(X))


class Predicts(SetsOutput, abc.ABC):
    """Says which of finitely many things each row, or each step of a series, is.

    A method that works with arrays gives columns of frames for frames by the decorator `framed`.
    """

    @abc.abstractmethod
    def predict(self, X: Any) -> Any:
        """A label or number for each."""


class PredictsProbabilities(SetsOutput, abc.ABC):
    """Gives the probability of each of finitely many things: classes, components, states, regimes.

    A method that works with arrays gives frames where these were chosen by the decorator `framed_chances`.
    """

    @abc.abstractmethod
    def predict_proba(self, X: Any) -> Any:
        """The probability of each, with sum one, for each row or step."""


class PredictsDensities(abc.ABC):
    """Gives the law of numbers given rows: p(y | x).

    Attributes:
        intervals_of_law: whether `predict_interval` has quantiles of that law, as all but conformal
            intervals have.

    A method that works with arrays gives columns of frames for frames by the decorator `framed_ends`.
    """

    intervals_of_law: ClassVar[bool] = True

    @abc.abstractmethod
    def predict_density(self, X: Any) -> AbstractLaws:
        """The law of the answer to each row, in the units of the data."""

    @abc.abstractmethod
    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[Any, Any]:
        """Both ends of the interval that holds each answer with probability `level`."""

    @abc.abstractmethod
    def evidence(self, X: Any, y: Any) -> Evidence:
        """log p(y | x) of each row with its standard error and kind."""


class Forecasts(abc.ABC):
    """Says what comes after the end of series."""

    @abc.abstractmethod
    def forecast(self, X: Any, steps: int = 1, level: float = 0.9) -> Any:
        """What is expected at each of the `steps` after the end of each series, as a `Forecast`."""


class Shows:
    """What there is to show of a fitted model beside its numbers: nothing, unless an estimator says so."""

    def latent(self, X: Any) -> np.ndarray | None:
        """The hidden part of each row as numbers to plot; None if there is none."""
        return None

    def parts(self, X: Any) -> dict[str, np.ndarray]:
        """What a model of rows such as `X` is made of, for a picture.

        `loadings`, a row per factor for columns of standard deviation one; or `weights`, `means` and, where
        it is known, `spread` of components, in the units of the data.  Empty if there is nothing of it.
        """
        return {}

    def states(self, X: Any, *, inputs: Any = None) -> dict[str, np.ndarray]:
        """The hidden states along one series, with what is known beside it, for a picture.

        `probabilities`; or `mean` and `std`, also as `mean 0 Level` and so on for the parts of a series.
        Empty if there are no states.
        """
        return {}


def loadings_to_show(components: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Loadings for columns of standard deviation one; signs, which are free, so that most rise."""
    spread = np.nanstd(X, axis=0)
    scaled = components / np.where(spread > 0, spread, 1.0)
    return scaled * np.where(scaled.sum(axis=1, keepdims=True) < 0, -1.0, 1.0)
