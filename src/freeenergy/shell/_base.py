"""The scikit-learn shell that all estimators share."""

from __future__ import annotations

import abc
import copy
import dataclasses
import functools
import os
import re
import warnings
from collections.abc import Callable
from typing import Any, ClassVar, Self

import equinox as eqx
import numpy as np
from jax import Array
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from .._core import (
    AbstractAlgorithm,
    Checkpoint,
    Evidence,
    Fit,
    Kind,
    Status,
    key_of,
    learnable,
    parameter_count,
    programs,
    progress_bar,
    seed_bits,
    silent,
)
from ..learning import EM, LBFGS, ClosedForm, Gradient, fit
from ..models import AbstractRegularised
from ._capabilities import ColumnRoles, Scores, Shows
from ._field import Field
from ._schema import Schema, kinds_of
from ._summary import (
    Along,
    Coefficients,
    Summary,
    Terms,
    along_columns,
    criteria_of,
    named_parameters,
    summary_of,
)
from ._validation import check_instance, check_int, check_numbers, check_real, feature_names, random_number


@functools.cache
def _parameter_names(kind: Any) -> frozenset[str]:
    """Those of a class of estimators, which scikit-learn reads from its signature anew each time."""
    return frozenset(kind._get_param_names())


@functools.lru_cache(maxsize=32)
def _key_and_bits(seed: int) -> tuple[Array, int]:
    """The key of a seed, and its bits: the last ones are kept, since to make a key takes long."""
    return key_of(seed), seed_bits(seed)


class Shell(Shows, BaseEstimator, metaclass=abc.ABCMeta):
    """What every estimator has: one way to be fitted, tags, progress, checkpoints, files.

    An estimator says which intake it has, how its parameters are checked, and how it learns from events;
    what it can do are further classes (`Scores`, `Samples`, …).

    Attributes:
        model_: the fitted model, a pytree; where columns are rescaled inside, of rescaled data.
        history_: what the learner told at each iteration: `objective` and others, an array each.
        n_iter_: how many iterations there were.
        converged_: whether they ended by themselves; `stop_reason_` says why they ended.
        stop_reason_: converged, out of iterations, interrupted, or what went wrong.
        seed_: the numbers of the key that answers with chance in them begin with.
        fitted_size_: how many rows, or time steps, were fitted, with their weights.
        scaling_: how columns are shifted and scaled inside; evidence is in the units of the data.
        n_features_in_, feature_names_in_: how many columns were fitted, and their names in a frame.
        schema_: what the columns of a frame are.
        frequency_: how far apart the steps of series in a frame with times are.
        n_inputs_in_, input_scaling_: how many inputs series have, and how they are scaled inside.
        input_names_in_: the names of inputs that came in a frame.
        time_column_, series_column_: what a frame called the times of its rows, and their series.
        length_: how many steps the longest series of the fit has.
        classes_: the labels that were fitted.
        answer_columns_: what a frame, or a column of one, called the answers, and their types.
    """

    # a class of `AbstractIntake`
    intake: ClassVar[Any]

    def _check_parameters(self) -> None:
        """Refuses wrong parameters before any work: those of the usual names that the estimator has."""
        given = _parameter_names(type(self))
        for name in ("max_iter", "n_init", "layers", "width", "depth", "batch_size", "patience"):
            if name in given:
                least = self._least_depth if name == "depth" else 1
                check_int(self, name, least, optional=name in self._may_be_none)
        if "tol" in given:
            check_real(self, "tol")
        if "learning_rate" in given:
            check_real(self, "learning_rate", closed=False)
        if "validation_fraction" in given:
            check_real(self, "validation_fraction", 0.0, 1.0)
        if "threshold" in given:
            check_real(self, "threshold", -np.inf, optional=True)
        if "learner" in given:
            check_instance(self, "learner", AbstractAlgorithm, optional=True)

    # whether a network may have no hidden layer, and be linear
    _least_depth: ClassVar[int] = 1
    # which of the usual parameters may be None
    _may_be_none: ClassVar[tuple[str, ...]] = ()

    @abc.abstractmethod
    def _learn(self, events: Any, key: Array) -> Fit:
        """Learns from the `events` of the intake: makes a start, and runs a learner from it."""

    def _fit(self, X: Any, **given: Any) -> Any:
        """All that `fit` does, with what the intake is given beside X; returns the intake."""
        # parameters that are arrays start JAX
        programs.check_process()
        self._check_parameters()
        # what earlier parts left, for estimators that take such
        vars(self).pop("kept_", None)
        return self._learn_from(self.intake.fitting(self, X, **given))

    def _learn_from(self, taken: Any) -> Any:
        """Learns what an intake has taken, and returns it."""
        key, self.seed_ = self._key_and_seed()
        with taken.naming_cells():
            result = self._learn(taken.events, key)
        self._store(taken.in_units(result), taken.size)
        return taken

    def _key_and_seed(self) -> tuple[Array, np.ndarray]:
        """The key of a fit, and from it the number that later calls draw with."""
        chosen = "random_state" in _parameter_names(type(self))
        key, bits = _key_and_bits(random_number(vars(self)["random_state"]) if chosen else 0)
        return key, np.asarray(bits, np.uint32)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    @property
    def _must_converge(self) -> bool:
        """Whether stopping at the limit of iterations deserves a warning."""
        return True

    # the class of models that `from_model` takes; None where an estimator needs more than a model
    _made_from: ClassVar[type | None] = None

    @classmethod
    def from_model(cls, model: Any, **parameters: Any) -> Self:
        """An estimator that has this model, and is used without a fit.

        Args:
            model: of `freeenergy.models`, for data in the units of the user.
            parameters: more of the estimator; what the model says of them (how many components, …) is set.

        >>> import freeenergy as fe, jax.numpy as jnp
        >>> from freeenergy.distributions import Full, Gaussian
        >>> law = fe.models.Density(Gaussian(jnp.zeros(2), Full(jnp.eye(2))))
        >>> fe.GaussianDensity.from_model(law).score_samples([[0.0, 0.0]]).round(4).tolist()
        [-1.8379]
        """
        if cls._made_from is None:
            raise ValueError(f"{cls.__name__} cannot be made from a model alone. Fit it to data.")
        if not isinstance(model, cls._made_from):
            raise ValueError(
                f"The 'model' of {cls.__name__}.from_model must be a freeenergy.models."
                f"{cls._made_from.__name__}. Got a {type(model).__name__} instead."
            )
        made = cls(**{**cls._parameters_of(model), **parameters})
        made._check_parameters()
        made.seed_ = made._key_and_seed()[1]
        made._take(model)
        made.model_, made.history_, made.n_iter_, made.converged_ = model, {}, 0, True
        made.fitted_size_, made.stop_reason_ = None, "was made from a model"
        return made

    @classmethod
    def _parameters_of(cls, model: Any) -> dict[str, Any]:
        """The parameters of the estimator that a model has: refuses what the estimator never makes."""
        return {}

    def _take(self, model: Any) -> None:
        """Remembers of a model what an intake remembers of data: columns and units."""
        raise NotImplementedError(f"{type(self).__name__} must say what it remembers of a model.")

    def column_roles(self, n_features: int) -> ColumnRoles:
        """What the estimator means by each of `n_features` columns: reals, unless it says otherwise."""
        return ColumnRoles.continuous(n_features)

    # whether `model_in_units` is a law of the rows that the user passes
    _model_is_of_rows: ClassVar[bool] = True

    @property
    def _known_fields(self) -> tuple[str, ...]:
        """Fields of `model_in_units` that were not learned, though models like it learn them."""
        return ()

    def _column_levels(self, n_features: int) -> tuple[int, ...] | None:
        """How many values each of `n_features` columns has, 0, 1, 2, …; None where there is no end."""
        return None

    def roles_for(self, schema: Schema) -> ColumnRoles:
        """What the estimator means by columns of which it is known what they hold."""
        return self.column_roles(len(schema.modelled))

    def takes(self, field: Field) -> bool:
        """Whether the estimator has a model of such a column: numbers and dates, unless it says more."""
        return field.numeric

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the estimator to one file, for `freeenergy.load`."""
        from ._files import save  # it knows the shell

        save(self, path)

    # what a fit learns from
    _size_unit: ClassVar[str] = "rows"
    # whether the objective of a fit is −log p per row, with the prior of the parameters if they have one
    _maximises_likelihood: ClassVar[bool] = False

    def summary(self, X: Any = None, *, robust: bool = False, **given: Any) -> Summary:
        """What the fit found: likelihood, criteria, parameters; print it, or look at it in a notebook.

        Args:
            X: the rows (series) of the fit, for standard errors and 95 % intervals of the parameters, and
                the log-likelihood of models that keep none; without it what is known from the fit.
            robust: whether standard errors are those of the sandwich, which hold also where the model is
                not the law of the data; else they come from the observed information.
            given: what `fit` was given beside X, such as `sample_weight`, `labels` or `inputs`.

        AIC and BIC are there where the log-likelihood is exact; where something does not exist, such as
        standard errors at the edge of the range of a parameter, a note says why.

        >>> import freeenergy as fe
        >>> X = [[0.0], [1.0], [2.0], [3.0]]
        >>> print(fe.GaussianDensity().fit(X).summary(X))
        GaussianDensity()
          rows             4
          log-likelihood   -6.1220 nats (exact)
          free parameters  2
          AIC              16.2441
          BIC              15.0167
          iterations       1
          converged        yes
        <BLANKLINE>
          parameter         value  std. error  95 % from     to
          mean[0]             1.5       0.559     0.4043  2.596
          covariance[0, 0]   1.25      0.8839    -0.4824  2.982
        """
        check_is_fitted(self, "model_")
        return summary_of(self, X, robust, given)

    def criteria(self, X: Any) -> tuple[float, float] | None:
        """AIC and BIC of the fit to X; None where the likelihood is not exact, or was not maximised.

        >>> import freeenergy as fe
        >>> X = [[0.0], [1.0], [2.0], [3.0]]
        >>> aic, bic = fe.GaussianDensity().fit(X).criteria(X)
        >>> round(aic, 4), round(bic, 4)
        (16.2441, 15.0167)
        """
        check_is_fitted(self, "model_")
        return criteria_of(self, X)

    @property
    def _knows_evidence(self) -> bool:
        """Whether log p of all that is fitted is known exactly, by the model alone."""
        return False

    def _moving(self) -> Any:
        """A tree of booleans: which arrays of the model the fit chose."""
        learner = self.get_params(deep=False).get("learner")
        mask = learner.learnable if isinstance(learner, EM | Gradient | LBFGS) else None
        return learnable(self.model_) if mask is None else mask

    def _count_parameters(self) -> int:
        """How many numbers the fit chose freely."""
        return parameter_count(eqx.filter(self.model_, self._moving()))

    def _reported(self) -> tuple[Callable[..., dict[str, Array]], tuple[Array, ...]]:
        """The parameters to show: a module-level function of the model, and what else it takes.

        It gives a dict of arrays by name, in the units of the data, through which standard errors are
        carried; by default what is learnable in the model, by the names of its fields.
        """
        return named_parameters, ()

    def _listed(self) -> dict[str, np.ndarray]:
        """What a summary lists in place of the arrays of the model, which say little, in units of the data.

        Such have no standard errors.
        """
        return {}

    def _along(self, name: str, shape: tuple[int, ...]) -> Along:
        """What stands along each axis of something that a summary lists, by its name."""
        return along_columns(self.column_names, name, shape)

    def _coefficient_table(self, X: Any, robust: bool, given: dict[str, Any]) -> Coefficients | None:
        """The coefficients that a summary lists, of a regression that knows their errors by itself.

        None where the parameters of the model are listed, whose errors come from its curvature.  X and
        `given` are those of `summary`, and may be missing.
        """
        return None

    def _remarks(self) -> list[str]:
        """What else a summary says of the fit, in sentences."""
        return []

    @property
    def column_names(self) -> list[str]:
        """Names of the columns that are modelled, or their numbers."""
        if "_columns" in vars(self):
            return vars(self)["_columns"]
        schema = kinds_of(self)
        if schema is not None:
            return [str(field.name) for field in schema.modelled]
        columns = vars(self).get("n_features_in_", 0)
        names = feature_names(self)
        return [str(i) for i in range(columns)] if names is None else [str(name) for name in names]

    def _calling(self, columns: list[str]) -> Self:
        """The same estimator, which calls its columns as another one does that is made of it."""
        named = copy.copy(self)
        vars(named)["_columns"] = columns
        return named

    def _likelihood(self, X: Any, given: dict[str, Any]) -> tuple[Evidence, float | None] | str:
        """Evidence whose sum is log p of the fit, and how many rows that are; or why there is none."""
        name = type(self).__name__
        if not isinstance(self, Scores):
            return f"{name} is no density of X: it has no log-likelihood."
        if X is not None:
            return self._likelihood_of(X, given)
        total = self._fitted_likelihood()
        if total is None:
            return "The log-likelihood needs the rows of the fit: summary(X)."
        return Evidence(np.array([total]), np.zeros(1), Kind.EXACT), None

    def _fitted_likelihood(self) -> float | None:
        """log p of what was fitted, from the last objective of the fit; None if that does not tell."""
        size, learner = vars(self).get("fitted_size_"), self.get_params(deep=False).get("learner")
        told = self._maximises_likelihood and self._knows_evidence
        if not told or size is None or not isinstance(learner, EM | LBFGS | ClosedForm | None):
            return None
        objective = self.history_.get("objective", [])
        if not len(objective):
            return None
        prior = 0.0
        if isinstance(self.model_, AbstractRegularised):
            prior = float(_free_energy_of_parameters(self.model_))
        return prior - size * float(objective[-1])

    def _likelihood_of(self, X: Any, given: dict[str, Any]) -> tuple[Evidence, float]:
        """The evidence of what was fitted, and how many rows that are."""
        evidence = self.evidence(X)  # pyright: ignore[reportAttributeAccessIssue]
        return evidence, float(len(evidence))

    def _terms(self, X: Any, given: dict[str, Any]) -> list[Terms] | str:
        """The terms of the log-likelihood that the fit maximised; or why there are no standard errors."""
        return (
            f"{type(self).__name__} does not maximise an exact likelihood of its parameters: they have no "
            "standard errors."
        )

    def _run(
        self,
        start: Any,
        learner: AbstractAlgorithm,
        data: Any,
        events: Any,
        key: Array,
        *,
        part: int | str = 0,
        what: str = "",
        validation: Any = None,
        offset: float = 0.0,
        max_iter: int | None = None,
    ) -> Fit:
        """Runs a learner with the limit, the progress and the checkpoint that the parameters ask for.

        Args:
            start, learner, data, key, validation: for `freeenergy.learning.fit`.
            events: what `data` was made of, which names a checkpoint.
            part, what: the name of this fit, where an estimator makes several, and what it is.
            offset: what the progress has to be lowered by.
            max_iter: instead of the parameter of that name.
        """
        parameters: dict[str, Any] = self.get_params(deep=False)
        return fit(
            start,
            learner,
            data,
            validation=validation,
            key=key,
            max_iter=parameters["max_iter"] if max_iter is None else max_iter,
            progress=self._progress(offset=offset),
            checkpoint=self._checkpoint(parameters.get("checkpoint"), events, part, what),
        )

    def _progress(self, *, offset: float = 0.0) -> Any:
        verbose = self.get_params(deep=False).get("verbose")
        return progress_bar(type(self).__name__, offset=offset) if verbose else silent

    def _checkpoint(self, path: str | None, events: Any, part: int | str, what: str) -> Checkpoint | None:
        if path is None:
            return None
        # where a function is in memory changes from process to process
        parameters = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(self.get_params()))
        name = f"{path}.{part}" if part else path
        return Checkpoint(
            name, identity=f"{type(self).__name__} {parameters} {what} of {events.identity()}"
        )

    def _store(self, fit: Fit, size: float | None) -> None:
        """Stores the result of a fit to so many rows; Ctrl-C is passed on only after that."""
        self.model_ = fit.model
        self.history_ = fit.history
        self.n_iter_ = fit.n_iter
        self.converged_ = fit.converged
        self.fitted_size_, self.stop_reason_ = size, fit.reason
        if fit.interrupted:
            raise KeyboardInterrupt(fit.reason)
        failed = fit.status is Status.NON_FINITE
        if failed or (self._must_converge and not fit.converged):
            warnings.warn(f"{type(self).__name__}: {fit.reason}.", ConvergenceWarning, stacklevel=5)


@eqx.filter_jit
def _free_energy_of_parameters(model: AbstractRegularised) -> Array:
    return model.parameter_free_energy()


def final_objective(result: Fit) -> float:
    """The objective at the end of a fit; infinite if no iteration was done."""
    objective = result.history.get("objective", [])
    return float(objective[-1]) if len(objective) else np.inf


def best_of(results: list[Fit]) -> Fit:
    """The fit that ended lowest; if the last one was interrupted, so is the whole."""
    best, last = min(results, key=final_objective), results[-1]
    return dataclasses.replace(best, status=last.status) if last.interrupted else best


def checked(owner: Shell, evidence: Evidence) -> Evidence:
    """`evidence`, refused where it is not a number, or an infinite density."""
    check_numbers(owner, "evidence", evidence.nats, logarithms=True)
    return evidence
