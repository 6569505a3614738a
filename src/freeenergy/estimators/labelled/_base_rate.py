"""Numbers whatever the row: what a model of them given rows has to be better than."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import Array
from scipy import stats

from ..._core import Fit, Status, on_device
from ...distributions import Diagonal, Gaussian, Given, Mean
from ...evaluation import AbstractLaws, Laws
from ...models import Conditional, Constant
from ...shell import Rows
from ...shell._summary import Along
from ._regressor import AbstractRegressor


class BaseRate(AbstractRegressor):
    """y = m + e, e ~ N(0, s²), whatever the row: the least that a model of y given x has to be better than.

    The law of an answer is a Student t of n − 1 degrees of freedom about the mean m of the answers, with
    the squared scale s² (1 + 1/n), s² their variance; of several answers to a row each is by itself.

    Attributes:
        mean_, std_: m and s of each answer, in the units of the data.
        weight_: n, the weight of all rows.
        model_: a `freeenergy.models.Conditional` of rescaled rows and answers.
        answer_names_, history_, n_iter_, converged_, scaling_, …: as everywhere.

    >>> model = BaseRate().fit([[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0])
    >>> model.predict([[7.0]]).tolist(), round(float(model.std_), 6)
    ([3.0], 2.0)
    """

    # nothing is asked of rows, so that nothing of them is completed
    inputs = None
    _exact_if_incomplete = True
    mean_: np.ndarray
    std_: np.ndarray
    weight_: float

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # it explains nothing, by design
        tags.regressor_tags.poor_score = True
        return tags

    def _listed(self) -> dict[str, np.ndarray]:
        return {"mean": np.atleast_1d(self.mean_), "std": np.atleast_1d(self.std_)}

    def _along(self, name: str, shape: tuple[int, ...]) -> Along:
        return (None if self.answer_names_ is None else list(map(str, self.answer_names_)),)

    def _learn(self, rows: Rows, key: Array) -> Fit:
        assert rows.known is not None
        y, total = rows.known, float(rows.weight.sum())
        mean = rows.weight @ y / total
        square = rows.weight @ (y - mean) ** 2
        if total <= 1 or not (square > 0).all():
            raise ValueError(
                "BaseRate needs answers that vary, in two rows at least: else they have no spread. "
                f"Got {len(y)} sample(s)."
            )
        variance = square / (total - 1)
        self.weight_ = total
        self.mean_ = self._shaped(self.answer_scaling_.invert(mean)[None])[0]
        self.std_ = self._shaped((np.sqrt(variance) * self.answer_scaling_.scale)[None])[0]
        model = Conditional(
            Constant(on_device(mean)),
            Given(Gaussian(on_device(np.zeros(len(mean))), Diagonal(on_device(variance))), Mean()),
        )
        return Fit(model, {}, 1, Status.CONVERGED)

    def _laws(self, x: np.ndarray) -> AbstractLaws:
        shape = (len(x), *self.answer_shape_)
        scale = self.std_ * np.sqrt(1 + 1 / self.weight_)
        mean = np.broadcast_to(self.mean_, shape)
        return Laws(stats.t(self.weight_ - 1, mean, np.broadcast_to(scale, shape)))

    def _laws_of_incomplete(self, x: np.ndarray) -> AbstractLaws:
        return self._laws(x)
