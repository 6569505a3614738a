"""The scikit-learn shell that all estimators share."""

from __future__ import annotations

import abc
import dataclasses
import os
import re
import warnings
from typing import Any, ClassVar

import numpy as np
from jax import Array
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning

from .._core import (
    AbstractAlgorithm,
    Checkpoint,
    Evidence,
    Fit,
    Status,
    key_bits,
    key_of,
    programs,
    progress_bar,
    silent,
)
from ..learning import fit
from ._capabilities import ColumnRoles, Shows
from ._schema import Field, Schema
from ._validation import check_instance, check_int, check_numbers, check_real, random_key


class Shell(Shows, BaseEstimator, metaclass=abc.ABCMeta):
    """What every estimator has: one way to be fitted, tags, progress, checkpoints, files.

    An estimator says which intake it has, how its parameters are checked, and how it learns from events;
    what it can do are further classes (`Scores`, `Samples`, …).
    """

    # a class of `AbstractIntake`
    intake: ClassVar[Any]

    def _check_parameters(self) -> None:
        """Refuses wrong parameters before any work: those of the usual names that the estimator has."""
        given = self.get_params(deep=False)
        for name in ("max_iter", "n_init", "layers", "width", "depth", "batch_size", "patience"):
            if name in given:
                check_int(self, name)
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

    @abc.abstractmethod
    def _learn(self, events: Any, key: Array) -> Fit:
        """Learns from the `events` of the intake: makes a start, and runs a learner from it."""

    def _fit(self, X: Any, **given: Any) -> Any:
        """All that `fit` does, with what the intake is given beside X; returns the intake."""
        # parameters that are arrays start JAX
        programs.check_process()
        self._check_parameters()
        taken = self.intake.fitting(self, X, **given)
        key = self._random_key()
        self.seed_ = np.asarray(key_bits(key), np.uint32)
        with taken.naming_cells():
            result = self._learn(taken.events, key)
        self._store(taken.in_units(result))
        return taken

    def _random_key(self) -> Array:
        parameters = self.get_params(deep=False)
        return random_key(parameters["random_state"]) if "random_state" in parameters else key_of(0)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    @property
    def _must_converge(self) -> bool:
        """Whether stopping at the limit of iterations deserves a warning."""
        return True

    def column_roles(self, n_features: int) -> ColumnRoles:
        """What the estimator means by each of `n_features` columns: reals, unless it says otherwise."""
        return ColumnRoles.continuous(n_features)

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

    def _store(self, fit: Fit) -> None:
        """Stores the result of a fit; Ctrl-C is passed on only after that."""
        self.model_ = fit.model
        self.history_ = fit.history
        self.n_iter_ = fit.n_iter
        self.converged_ = fit.converged
        if fit.interrupted:
            raise KeyboardInterrupt(fit.reason)
        failed = fit.status is Status.NON_FINITE
        if failed or (self._must_converge and not fit.converged):
            warnings.warn(f"{type(self).__name__}: {fit.reason}.", ConvergenceWarning, stacklevel=4)


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
