"""What regressions by networks share: their training, and the family of their answers."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
from jax import Array
from sklearn.utils.validation import check_is_fitted

from ..._core import AbstractAlgorithm, Fit, generator, on_device, split_key
from ...distributions import AbstractPartial, AbstractShaped, Diagonal, Free, Gaussian, Given, Reals
from ...learning import Gradient
from ...models import AbstractConditional, ConditionalInUnits
from ...shell import Rows, Scaling, adam, cast, check_int, split_rows
from ._conformal import JudgedByFolds, least_levels
from ._members import check_answers, knows_law, member_of

ROWS_AT_ONCE = 1024
# parts of the rows, each of which is left out once: so many, or fewer, whose fits see so many rows together
_MOST_FOLDS, _LEAST_FOLDS, _FOLD_ROWS = 20, 5, 5_000


class AbstractNetworkRegressor(JudgedByFolds):
    """Numbers given rows by networks: trained in single precision, with early stopping on held-out rows."""

    keeps_order = False
    _least_depth = 0
    width: int
    depth: int
    learning_rate: float
    batch_size: int
    max_iter: int
    validation_fraction: float
    patience: int
    judged_rows: int
    learner: AbstractAlgorithm | None

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_int(self, "judged_rows", 0)

    @property
    def _must_converge(self) -> bool:
        return False

    def _start(self, rows: Rows, key: Array) -> Any:
        """The model before it has learned, of rescaled rows and answers, in single precision."""
        raise NotImplementedError

    def _objective(self) -> Any:
        """What is lowered, a function of the model and of pairs of rows and answers."""
        raise NotImplementedError

    def _finished(self, model: Any) -> Any:
        """The model in double precision, so that rows give the same number in any company."""
        return cast(model, np.float64)

    def _learn(self, rows: Rows, key: Array) -> Fit:
        assert rows.known is not None
        self._check_answers(rows.known)
        whole, place = self._completed(rows, self.answer_scaling_.invert(rows.known))
        start_key, fit_key = split_key(key)
        start, x = self._start(whole, start_key), self.scaling_.apply(whole.x)
        learner = self.learner or Gradient(
            adam(self.learning_rate), self._objective(), batch_size=self.batch_size, patience=self.patience
        )

        def learned(owner: AbstractNetworkRegressor, weight: np.ndarray) -> Fit:
            events = Rows(x, weight, whole.known)
            train, validation = split_rows(events, self.validation_fraction, np.float32)
            found = owner._run(start, learner, train, events, fit_key, validation=validation)
            return dataclasses.replace(found, model=self._finished(found.model))

        result, n = learned(self, whole.weight), len(rows.x)
        judged = 1 < n <= self.judged_rows and not result.interrupted
        self.fold_levels_ = np.empty((n if judged else 0, *self.answer_shape_))
        self.fold_weight_ = rows.weight[: len(self.fold_levels_)]
        if not judged:
            return result
        answers = self._shaped(self.answer_scaling_.invert(rows.known))
        # one that is silent, and has the law of a fit without some rows
        other: Any = copy.copy(self)
        vars(other).update(verbose=0, checkpoint=None)
        fold = generator(key).permutation(n) % min(max(_FOLD_ROWS // n, _LEAST_FOLDS), _MOST_FOLDS)
        for part in np.unique(fold):
            # rows without weight, so that nothing has another shape
            found = learned(other, np.where(fold[place] == part, 0.0, whole.weight))
            if found.interrupted:
                self.fold_levels_, self.fold_weight_ = self.fold_levels_[:0], self.fold_weight_[:0]
                return dataclasses.replace(result, status=found.status)
            other.model_, out = found.model, fold == part
            self.fold_levels_[out] = least_levels(other._laws_of(rows.x[out]), answers[out])
        return result

    def _check_answers(self, y: np.ndarray) -> None:
        """Refuses answers that cannot occur."""

    @property
    def model_in_units(self) -> ConditionalInUnits:
        """p(y | x) in the units of the data, where `model_` has rescaled rows and answers."""
        check_is_fitted(self, "model_")
        if not isinstance(self.model_, AbstractConditional):
            raise TypeError(
                f"{type(self).__name__} knows log p(y | x) only from below: its model has no other units, "
                "and its parameters no posterior."
            )
        units = (*self.scaling_, *self.answer_scaling_)
        return ConditionalInUnits(self.model_, *map(on_device, units))


class AbstractFamilyNetwork(AbstractNetworkRegressor):
    """A regression by networks in which the answers have a family of `freeenergy.distributions`."""

    family: Any

    def _family(self) -> Any:
        """The class of the family."""
        if self.family is None:
            return Gaussian
        found = self.family.member if isinstance(self.family, Given) else self.family
        return found if isinstance(found, type) else type(found)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        shaped = isinstance(self.family, type) and issubclass(self.family, AbstractShaped | AbstractPartial)
        known = self.family is None or shaped or isinstance(self.family, AbstractPartial | Given)
        if not (known and knows_law(self._family())):
            raise ValueError(
                f"The 'family' parameter of {type(self).__name__} must be a family of "
                "freeenergy.distributions with a distribution function, such as StudentT or Poisson, a "
                f"member of one, a Given, or None. Got {self.family!r} instead."
            )

    def _answer_scaling(self, y: np.ndarray, weight: np.ndarray | None) -> Scaling:
        # other families have no other unit, or no other origin
        if self._family().support == Reals():
            return Scaling.standardise(y, weight)
        return Scaling.identity(y.shape[1])

    def _member(self, y: np.ndarray) -> Any:
        """The member that others are steps from."""
        outputs = y.shape[1]
        if self.family is None:
            return Gaussian(on_device(np.zeros(outputs)), Diagonal(on_device(np.full(outputs, 0.5))))
        if isinstance(self.family, type):
            return member_of(self.family, y)
        found = self.family.member if isinstance(self.family, Given) else self.family
        if found.dim != outputs:
            raise ValueError(
                f"The 'family' parameter of {type(self).__name__} must describe the {outputs} outputs of "
                f"y. Got one of {found.dim} instead."
            )
        return found

    def _link(self) -> Any:
        return self.family.link if isinstance(self.family, Given) else Free()

    def _check_answers(self, y: np.ndarray) -> None:
        check_answers(self, self._family(), y)
