"""Generative classifiers: naive Bayes and discriminant analysis, the supervised case of a mixture."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Sequence
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_y, check_consistent_length

from ..._core import CellError, Data, Evidence, Fit, Kind, on_device, sum_over_blocks
from ...distributions import (
    AbstractConjugatePrior,
    AbstractCovariance,
    AbstractExponentialFamily,
    AbstractShaped,
    AbstractSharing,
    Diagonal,
    DirichletPrior,
    Full,
    Gaussian,
    Product,
    Tied,
    component_axes,
)
from ...learning import EM, LBFGS, Batch, ClosedForm
from ...models import Labelled
from ...models import Mixture as MixtureModel
from ...shell import (
    AbstractDensity,
    AnswerColumns,
    ColumnRoles,
    Field,
    LabelledTable,
    Predicts,
    PredictsProbabilities,
    Rows,
    Scaling,
    Schema,
    ScoresLabels,
    check_instance,
    check_numbers,
    framed,
    framed_chances,
)
from ...shell._answers import by_completeness
from ...shell._increments import LearnsInParts, reduced_rows
from ...shell._schema import kinds_of
from ...shell._summary import Along
from ...shell._validation import check_covariances, check_weight
from .._by_column import (
    by_column,
    member_by_column,
    prior_by_column,
    roles_by_column,
    scaling_by_column,
    takes_by_family,
)

# the slope at which a fit of answers given rows ends
_SLOPE = 1e-6


@eqx.filter_jit
def _start(
    prototype: AbstractExponentialFamily, data: Data, classes: int
) -> tuple[Array, AbstractExponentialFamily]:
    """Every class with the one member that fits all rows."""

    def block(x: tuple[Array, Array], w: Array) -> Array:
        # missing entries are set to zero here: EM has the exact answer from the next step on
        rows = x[0] if prototype.masks_missing else jnp.where(jnp.isnan(x[0]), 0, x[0])
        return jax.vmap(prototype.features, out_axes=1)(rows) @ w

    total = sum_over_blocks(block, data)
    stack = jax.tree.map(
        lambda axis, a: a if axis is None else jnp.broadcast_to(a, (classes, *a.shape)),
        component_axes(prototype),
        prototype,
        is_leaf=lambda a: a is None,
    )
    members = stack.from_features(jnp.broadcast_to(total / classes, (classes, len(total))))
    return jnp.full(classes, 1 / classes), members


def _answers_given_rows(model: Labelled, batch: Batch, key: Array) -> Array:
    """−log p(y | x), of the posterior of the mixture."""
    rows, labels = batch.x
    logs = jax.vmap(model.mixture.log_posterior)(rows)
    return -batch.mean(jnp.take_along_axis(logs, labels[:, None], axis=1)[:, 0])


class AbstractGenerativeClassifier(
    ClassifierMixin, Predicts, PredictsProbabilities, ScoresLabels, LearnsInParts, AbstractDensity
):
    """p(y | x) ∝ π_y p(x; θ_y), with the class in the place of the hidden cause of a mixture."""

    intake = LabelledTable
    max_iter: int
    tol: float
    weight_prior: DirichletPrior | None
    component_prior: AbstractConjugatePrior | None
    quasi_generative: bool

    @abc.abstractmethod
    def _prototype(self, X: np.ndarray) -> AbstractExponentialFamily:
        """A member of the family of each class, with the shape that the rows need."""

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_instance(self, "weight_prior", DirichletPrior, optional=True)
        check_instance(self, "component_prior", AbstractConjugatePrior, optional=True)
        check_instance(self, "quasi_generative", bool)

    def fit(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, X: Any, y: Any, sample_weight: Any = None
    ) -> Self:
        """Fits the class-conditional densities.

        Args:
            X: a row per sample; NaN means not observed.
            y: the class of each row.
            sample_weight: a non-negative number per row; a weight of two counts as two rows.
        """
        self._fit(X, y=y, sample_weight=sample_weight)
        return self

    def partial_fit(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None
    ) -> Self:
        """Goes on with more rows, those of earlier calls being kept as a small table of their likelihood.

        What is fitted is that of a `fit` to all rows together, whatever the parts.

        Args:
            X: a row per sample; NaN means not observed.
            y: the class of each row.
            classes: which labels may occur, as scikit-learn passes them; none is needed, and a class takes
                part from its first row on.
            sample_weight: a non-negative number per row; a weight of two counts as two rows.
        """
        if self.quasi_generative:
            raise ValueError(
                f"The 'quasi_generative' parameter of {type(self).__name__} must be False for partial_fit: "
                "its objective needs all rows."
            )
        x = self._take_part(X)
        # (validate_data would forget the names of the columns)
        given, y = y, _check_y(y, estimator=self)
        check_consistent_length(x, y)
        check_classification_targets(y)
        strange = [] if classes is None else y[~np.isin(y, classes)].tolist()
        if strange:
            raise ValueError(f"The labels 'y' must be among the 'classes'. Got {strange[0]!r} instead.")
        weight, labels = check_weight(x, sample_weight), np.unique(y)
        if "kept_" in vars(self):
            before, labels = self.classes_, np.unique(np.concatenate([self.classes_, labels]))
            assert self.kept_.known is not None
            numbers = np.searchsorted(labels, before)[self.kept_.known.astype(int)]
            self.kept_ = self.kept_._replace(known=numbers.astype(float))
        self.classes_, self.answer_columns_ = labels, AnswerColumns.of(given)
        return self._learn_part(X, x, weight, np.searchsorted(labels, y)[:, None].astype(float))

    def _reduced(self, rows: Rows) -> Rows:
        return reduced_rows(self._prototype(rows.x), rows)

    def _scaling(self, X: np.ndarray, weight: np.ndarray | None) -> Scaling:
        prototype: Any = self._prototype(X)
        return scaling_by_column(prototype, X, weight)

    def _learn(self, rows: Rows, key: Array) -> Fit:
        assert rows.known is not None
        data = Data.of((rows.x, rows.known[:, 0].astype(np.int32)), rows.weight)
        prototype = self._prototype_of_classes(rows)
        weights, members = _start(prototype, data, len(self.classes_))
        prior = self._prior_of_classes(prototype, rows)
        start = Labelled(MixtureModel(weights, members, self.weight_prior, prior))
        hidden = data.incomplete and not prototype.masks_missing
        learner = EM(tol=self.tol) if hidden or not prototype.closed_form else ClosedForm()
        result = self._run(start, learner, data, rows, key)
        if self.quasi_generative and not result.interrupted:
            # from the largest likelihood of rows and answers to that of the answers
            learner = LBFGS(_answers_given_rows, _SLOPE)
            result = self._run(result.model, learner, data, rows, key, part="quasi")
        return dataclasses.replace(result, model=result.model.mixture)

    def _prototype_of_classes(self, rows: Rows) -> AbstractExponentialFamily:
        return self._prototype(rows.x)

    def _prior_of_classes(self, prototype: Any, rows: Rows) -> AbstractConjugatePrior | None:
        return self.component_prior

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """log p(y | x) of each class; what is missing in x is integrated out."""
        methods = MixtureModel.log_posterior_complete, MixtureModel.log_posterior
        logs = by_completeness(self._read(X).z, self.model_, *methods)
        return check_numbers(self, "predict_log_proba", logs, logarithms=True)

    @framed_chances
    def predict_proba(self, X: Any) -> Any:
        """p(y | x) of each class; what is missing in x is integrated out."""
        return np.exp(self.predict_log_proba(X))

    def _along(self, name: str, shape: tuple[int, ...]) -> Along:
        found = super()._along(name, shape)
        of_classes = name.split(".")[0] in ("weights", "components") and shape[:1] == (len(self.classes_),)
        # a matrix that all classes share has columns along both axes
        return (
            ([str(label) for label in self.classes_], *found[1:])
            if of_classes and found[0] is None
            else found
        )

    @framed
    def predict(self, X: Any) -> Any:
        """The most probable class of each row."""
        log_probabilities = self.predict_log_proba(X)
        return self.classes_[np.argmax(log_probabilities, axis=1)]

    def evidence_of_labels(self, X: Any, y: Any) -> Evidence:
        """log p(y | x) of each row, for labels among those that were fitted."""
        nats = self.predict_log_proba(X)[np.arange(len(y)), self._place_of(y)]
        return Evidence(nats, np.zeros_like(nats), Kind.EXACT)

    @property
    def class_prior_(self) -> np.ndarray:
        """π, the probability of each class."""
        return np.asarray(self.model_.weights)


def _is_family(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, AbstractShaped)


def _member(family: Any, X: np.ndarray) -> AbstractExponentialFamily:
    if family is Gaussian:
        return Gaussian(on_device(np.zeros(X.shape[1])), Diagonal())
    return family.prototype(X)


class NaiveBayes(AbstractGenerativeClassifier):
    """Columns that are independent given the class:  p(y | x) ∝ π_y Π_d p_d(x_d; θ_{y,d}).

    Any family serves, and columns may have different ones.  Learning is one M step of a mixture with
    the classes as responsibilities; a missing entry is left out of the product, which is exact.  The
    fitted density p(x) = Σ_y π_y p(x; θ_y) has `evidence`, `sample` and `impute`, too.

    Args:
        family: a class of `freeenergy.distributions` for all columns (a Gaussian has independent
            columns), a list with one such class a column, a member, such as a `Product`, or `"by column"`,
            short for `ByColumn()`: each column has the family of its kind, with a weak prior.
        max_iter, tol: for families that need EM because they cannot leave a missing entry out.
        weight_prior: a Dirichlet prior over π makes it MAP.
        component_prior: a conjugate prior over each θ_y; Gaussian columns are standardised.
        quasi_generative: whether the parameters, begun so, are then those of the largest likelihood of the
            answers given the rows, not of both: p(x) is none of the data any more, p(y | x) is better.

    Attributes:
        classes_: the labels.
        class_prior_: π, the probability of each class.
        model_: the fitted mixture with classes for components, of rescaled rows.
        history_, n_iter_, converged_, scaling_, …: as everywhere.

    >>> from freeenergy.distributions import Bernoulli, Poisson
    >>> X = [[0, 3], [0, 1], [1, 9], [1, 12]]
    >>> model = NaiveBayes([Bernoulli, Poisson]).fit(X, ["few", "few", "many", "many"])
    >>> model.predict([[0, 1], [float("nan"), 10]]).tolist()
    ['few', 'many']
    """

    def __init__(
        self,
        family: Any = Gaussian,
        *,
        max_iter: int = 1000,
        tol: float = 1e-8,
        weight_prior: DirichletPrior | None = None,
        component_prior: AbstractConjugatePrior | None = None,
        quasi_generative: bool = False,
    ) -> None:
        self.family = family
        self.max_iter = max_iter
        self.tol = tol
        self.weight_prior = weight_prior
        self.component_prior = component_prior
        self.quasi_generative = quasi_generative

    def _check_parameters(self) -> None:
        super()._check_parameters()
        listed = isinstance(self.family, Sequence) and all(map(_is_family, self.family))
        known = listed or _is_family(self.family) or isinstance(self.family, AbstractExponentialFamily)
        if not known and by_column(self.family) is None:
            raise ValueError(
                "The 'family' parameter of NaiveBayes must be an exponential family of "
                "freeenergy.distributions, such as Poisson, a list with one family a column, a member "
                f"of a family, or 'by column'. Got {self.family!r} instead."
            )

    @property
    def needs_kinds(self) -> bool:
        return by_column(self.family) is not None

    def takes(self, field: Field) -> bool:
        return takes_by_family(self.family, field)

    def _prototype_of_classes(self, rows: Rows) -> AbstractExponentialFamily:
        family = by_column(self.family)
        if family is None:
            return self._prototype(rows.x)
        assert rows.known is not None
        return member_by_column(family, self, rows, rows.known[:, 0])

    def _prior_of_classes(self, prototype: Any, rows: Rows) -> AbstractConjugatePrior | None:
        family = by_column(self.family)
        if family is None or self.component_prior is not None:
            return self.component_prior
        return prior_by_column(family, prototype, rows, 1, len(self.classes_))

    def _prototype(self, X: np.ndarray) -> AbstractExponentialFamily:
        family = by_column(self.family)
        if family is not None:
            return member_by_column(family, self)
        if isinstance(self.family, type):
            return _member(self.family, X)
        width = len(self.family) if isinstance(self.family, Sequence) else self.family.dim
        if width != X.shape[1]:
            raise ValueError(
                f"The 'family' parameter of NaiveBayes must describe the {X.shape[1]} columns of X. "
                f"Got {width} instead."
            )
        if isinstance(self.family, Sequence):
            parts = []
            for column, kind in enumerate(self.family):
                try:
                    parts.append(_member(kind, X[:, column : column + 1]))
                except CellError as error:
                    raise error.moved(column) from None
            return Product(tuple(parts), sizes=(1,) * width)
        return self.family

    def roles_for(self, schema: Schema) -> ColumnRoles:
        if by_column(self.family) is None:
            return self.column_roles(len(schema.modelled))
        return roles_by_column(schema)

    def column_roles(self, n_features: int) -> ColumnRoles:
        if by_column(self.family) is not None:
            schema = kinds_of(self)
            return ColumnRoles.continuous(n_features) if schema is None else roles_by_column(schema)
        if isinstance(self.family, Sequence):
            return ColumnRoles.beside([ColumnRoles.of(kind, 1) for kind in self.family])
        return ColumnRoles.of(self.family, n_features)


class DiscriminantAnalysis(AbstractGenerativeClassifier):
    """A Gaussian for each class:  log p(y | x) = log π_y + log N(x; μ_y, Σ_y) + const.

    With a shared covariance the boundaries are linear (Fisher's discriminant), with own covariances
    quadratic.  Learning is one M step of a Gaussian mixture with the classes as responsibilities;
    missing entries are integrated out exactly, by EM when fitting.  The fitted density
    p(x) = Σ_y π_y N(x; μ_y, Σ_y) has `evidence`, `sample` and `impute`, too.

    Args:
        covariance: `Tied(Full())` (the default), `Full()`, `Diagonal()`, `Spherical()`,
            `LowRank(rank=…)`, or one of them in `Tied(…)`, shared by all classes.
        max_iter, tol: of EM for incomplete rows.
        weight_prior: a Dirichlet prior over π makes it MAP.
        component_prior: a conjugate prior over each (μ_y, Σ_y), in units of the standardised columns;
            it needs covariances that are not shared.
        quasi_generative: whether the parameters, begun so, are then those of the largest likelihood of the
            answers given the rows, not of both: p(x) is none of the data any more, p(y | x) is better.

    Attributes:
        classes_: the labels.
        class_prior_: π, the probability of each class.
        means_, covariances_: of each class, in the units of the data.
        model_: the fitted mixture with classes for components, of rescaled rows.
        history_, n_iter_, converged_, scaling_, …: as everywhere.

    >>> X = [[0.0], [1.0], [4.0], [5.0]]
    >>> model = DiscriminantAnalysis().fit(X, [0, 0, 1, 1])
    >>> model.predict_proba([[2.5]]).round(6).tolist()
    [[0.5, 0.5]]
    """

    def __init__(
        self,
        covariance: AbstractCovariance | None = None,
        *,
        max_iter: int = 1000,
        tol: float = 1e-8,
        weight_prior: DirichletPrior | None = None,
        component_prior: AbstractConjugatePrior | None = None,
        quasi_generative: bool = False,
    ) -> None:
        self.covariance = covariance
        self.max_iter = max_iter
        self.tol = tol
        self.weight_prior = weight_prior
        self.component_prior = component_prior
        self.quasi_generative = quasi_generative

    def _structure(self) -> AbstractCovariance:
        return Tied(Full()) if self.covariance is None else self.covariance

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_instance(self, "covariance", AbstractCovariance, optional=True)
        if self.component_prior is not None and isinstance(self._structure(), AbstractSharing):
            raise ValueError(
                "The 'component_prior' parameter of DiscriminantAnalysis must be None where the classes "
                f"share a covariance. Got {self.component_prior!r} instead."
            )

    def _scaling(self, X: np.ndarray, weight: np.ndarray | None) -> Scaling:
        return Scaling.standardise(X, weight, common=not self._structure().unit_free)

    def _check_size(self, rows: int, columns: int) -> None:
        check_covariances(self, self._structure(), rows, columns, len(self.classes_))

    def _prototype(self, X: np.ndarray) -> AbstractExponentialFamily:
        return Gaussian(on_device(np.zeros(X.shape[1])), self._structure())

    @property
    def means_(self) -> np.ndarray:
        """The mean of each class, in the units of the data."""
        return self.scaling_.invert(np.asarray(self.model_.components.mean))

    @property
    def covariances_(self) -> np.ndarray:
        """The covariance matrix of each class, in the units of the data."""
        matrices = [
            np.asarray(self.model_.component(k).covariance.matrix()) for k in range(self.model_.size)
        ]
        return np.stack(matrices) * np.outer(self.scaling_.scale, self.scaling_.scale)
