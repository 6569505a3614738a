"""Boosting: a sum of weak learners, each fitted to the slope of the loss at the sum so far."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jax import Array
from scipy.optimize import brentq
from sklearn.base import is_regressor
from sklearn.tree import DecisionTreeRegressor

from ..._core import Fit, Status, generator
from ...evaluation import AbstractLaws
from ...shell import AbstractDensity, Rows, Scaling, check_int, check_numbers, check_real, framed
from ._losses import LOSSES, AbstractScoreLoss, QuantileLoss, SquaredLoss
from ._regressor import AbstractRegressor
from ._trees import on_grid
from ._wrapped import Committee, check_wrapped, fitted_copy

# doublings of a step before a line search gives up
_DOUBLINGS = 40
_FEWEST = 5
# from how many rows that were not fitted a dispersion is learned, and in how many parts rows are left out
_UNSEEN, _FOLDS = 50, 5


class Stages(NamedTuple):
    """The sum for one output: start + Σ steps · members.

    Attributes:
        start: the constant.
        steps: how far each member is followed, the learning rate included.
        members: weak learners; trees as arrays.
        dispersion: what else the law of the loss has.
        losses, held_out: mean loss of the rows, and bits of those held out, after each stage.
    """

    start: float
    steps: list[float]
    members: list[Any]
    dispersion: float
    losses: list[float]
    held_out: list[float]

    def scores(self, x: np.ndarray) -> np.ndarray:
        """The sum for each row."""
        total = np.full(len(x), self.start)
        for step, member in zip(self.steps, self.members, strict=True):
            total += step * np.asarray(member.predict(x), float)
        return total


class Boosting(AbstractRegressor):
    """f = f₀ + ν Σ_m γ_m g_m: each weak learner g is fitted to −∂l/∂f, and l is least along g at γ ≥ 0.

    Functional gradient descent on any convex loss of a score f, for any weak learner; for squared error g
    is fitted to the residuals and γ = ⟨r, g⟩/⟨g, g⟩.  No stage raises the loss of the rows that are fitted;
    when to stop is seen by the bits of rows that are held out.  How wide the law of an answer is, is seen
    by rows that were not fitted, since stages follow the noise of those that were: the rows held out, or if
    these are few, fifths that further fits leave out.  Also known as gradient boosting.

    Args:
        loss: a family of `freeenergy.distributions`, whose −log p is lowered: `Gaussian` (the default),
            `Laplace`, `Poisson`, `Gamma` and `Exponential` (of mean eᶠ), `Bernoulli` (zeros and ones); or
            an object such as `QuantileLoss(0.9)`, whose `predict` is that quantile.
        weak: a regressor of freeenergy or scikit-learn; a regression tree of depth three by default.
        n_estimators: the most stages.
        learning_rate: ν.
        validation_fraction, patience: rows held out, and stages without improvement before stopping; with
            fewer than 50 rows, or a fraction of 0, all stages are made.
        inputs: the density of rows and answers from which missing entries of rows are drawn; None for one
            Gaussian.
        random_state: of the rows held out, and of a weak learner that has none.

    Attributes:
        stages_: the sum, for each output, of rescaled answers where the loss has other units.
        history_: `objective`, the mean loss after each stage, and `validation`, nats of the rows held out.
        n_iter_: how many stages there are.

    References:
        Friedman (2001), Greedy function approximation: a gradient boosting machine.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, (300, 1))
    >>> y = rng.poisson(np.exp(np.sin(X[:, 0])))
    >>> from freeenergy.distributions import Poisson
    >>> model = Boosting(Poisson, random_state=0).fit(X, y)
    >>> bool(abs(model.predict([[1.5]])[0] - np.exp(np.sin(1.5))) < 0.7)
    True
    """

    keeps_order = False

    def __init__(
        self,
        loss: Any = None,
        weak: Any = None,
        *,
        n_estimators: int = 300,
        learning_rate: float = 0.1,
        validation_fraction: float = 0.1,
        patience: int = 20,
        inputs: AbstractDensity | None = None,
        random_state: Any = None,
    ) -> None:
        self.loss = loss
        self.weak = weak
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.inputs = inputs
        self.random_state = random_state

    @property
    def _must_converge(self) -> bool:
        return False

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_int(self, "n_estimators")
        check_real(self, "learning_rate", closed=False)
        check_wrapped(self, "weak", is_regressor, "regressor")
        known = self.loss is None or isinstance(self.loss, AbstractScoreLoss)
        if not known and not (isinstance(self.loss, type) and self.loss in LOSSES):
            names = ", ".join(family.__name__ for family in LOSSES)
            raise ValueError(
                f"The 'loss' parameter of Boosting must be one of the families {names}, a loss such as "
                f"QuantileLoss(0.9), or None. Got {self.loss!r} instead."
            )

    def _score_loss(self) -> AbstractScoreLoss:
        if self.loss is None:
            return SquaredLoss()
        return LOSSES[self.loss] if isinstance(self.loss, type) else self.loss

    def _answer_scaling(self, y: np.ndarray, weight: np.ndarray | None) -> Scaling:
        # other losses know the values that can occur
        return (
            Scaling.standardise(y, weight) if self._score_loss().unit_free else Scaling.identity(y.shape[1])
        )

    def _design(self, x: np.ndarray) -> np.ndarray:
        """Rows as learners are given them; trees keep single precision, so theirs are rescaled."""
        return np.ascontiguousarray(self.scaling_.apply(x), np.float32) if self.weak is None else x

    def _learn(self, rows: Rows, key: Array) -> Fit:
        assert rows.known is not None
        loss = self._score_loss()
        wrong = loss.refuses(rows.known)
        if wrong.any():
            raise ValueError(
                f"The 'y' of Boosting must be what {type(loss).__name__} is about. "
                f"Got {rows.known[wrong][0]:g} instead."
            )
        rng, known = generator(key), rows.known
        held = np.zeros(len(rows.x), bool)
        size = round(len(rows.x) * self.validation_fraction)
        if size >= _FEWEST:
            held[rng.permutation(len(rows.x))[:size]] = True
        whole, place = self._completed(rows, self.answer_scaling_.invert(known))
        x = self._design(whole.x)
        folds = rng.permutation(len(rows.x)) % _FOLDS
        self.stages_ = [
            self._with_dispersion(
                loss, x, known[place, output], whole.weight, held[place], folds[place], rng
            )
            for output in range(known.shape[1])
        ]
        first, history = self.stages_[0], {}
        if len(self.stages_) == 1:
            history = {"objective": np.array(first.losses)}
            history |= {"validation": np.array(first.held_out)} if first.held_out else {}
        size = max(len(part.steps) for part in self.stages_)
        return Fit(Committee(size), history, size, Status.CONVERGED)

    def _with_dispersion(
        self,
        loss: AbstractScoreLoss,
        x: np.ndarray,
        y: np.ndarray,
        weight: np.ndarray,
        held: np.ndarray,
        folds: np.ndarray,
        rng: np.random.Generator,
    ) -> Stages:
        """All stages for one output, with a dispersion of rows that were not fitted."""
        found = self._boosted(loss, x, y, weight, held, self.n_estimators, rng)
        if not loss.dispersed:
            return found
        unseen, scores = held, found.scores(x)
        if held.sum() < _UNSEEN:
            unseen = np.zeros(len(y), bool)
            for fold in range(_FOLDS):
                out = folds == fold
                if unseen.sum() >= _UNSEEN or not (weight[~out] > 0).any():
                    break
                rest, none = np.where(out, 0.0, weight), np.zeros(len(y), bool)
                # as many stages as are kept, of the other rows
                part = self._boosted(loss, x, y, rest, none, len(found.steps), rng)
                scores[out] = part.scores(x[out])
                unseen = unseen | out
        there = unseen & (weight > 0)
        if not there.any():
            return found
        return found._replace(dispersion=loss.dispersion(y[there], scores[there], weight[there]))

    def _boosted(
        self,
        loss: AbstractScoreLoss,
        x: np.ndarray,
        y: np.ndarray,
        weight: np.ndarray,
        held: np.ndarray,
        most: int,
        rng: np.random.Generator,
    ) -> Stages:
        """All stages for one output, up to the one that was best for the rows held out."""
        weak = DecisionTreeRegressor(max_depth=3) if self.weak is None else self.weak
        own = np.where(held, 0.0, weight)
        fitted = own > 0
        found = Stages(loss.start(y[fitted], own[fitted]), [], [], 1.0, [], [])
        score = np.full(len(y), found.start)

        def dispersion() -> float:
            return loss.dispersion(y[fitted], score[fitted], own[fitted])

        def unseen() -> float:
            law = loss.laws(score[held], np.array(dispersion()))
            return float(-np.average(law.log_prob(y[held]), weights=weight[held]))

        least, best, spread = (unseen() if held.any() else np.inf), 0, dispersion()
        for stage in range(1, most + 1):
            slopes = loss.descent(y, score)
            member = fitted_copy(weak, x, slopes if self.weak is not None else on_grid(slopes), own, rng)
            direction = np.asarray(member.predict(x), float)
            step = self.learning_rate * _line_search(loss, y, score, direction, own)
            if step == 0:
                break
            score = score + step * direction
            found.members.append(member)
            found.steps.append(step)
            found.losses.append(float(np.average(loss.values(y, score), weights=own)))
            if not held.any():
                best = stage
                continue
            found.held_out.append(unseen())
            if found.held_out[-1] < least:
                least, best, spread = found.held_out[-1], stage, dispersion()
            elif stage - best >= self.patience:
                break
        if not held.any():
            spread = dispersion()
        # what came after the best stage is left out
        return found._replace(steps=found.steps[:best], members=found.members[:best], dispersion=spread)

    def _scores(self, x: np.ndarray) -> np.ndarray:
        """f of each row and output, in the units of the data."""
        design = self._design(x)
        found = np.stack([part.scores(design) for part in self.stages_], axis=1)
        return self._shaped(self.answer_scaling_.invert(found))

    def _laws(self, x: np.ndarray) -> AbstractLaws:
        spread = np.array([part.dispersion for part in self.stages_]) * self.answer_scaling_.scale
        return self._score_loss().laws(self._scores(x), spread.reshape(self.answer_shape_))

    @framed
    def predict(self, X: Any) -> Any:
        """The mean of the answer to each row; with `QuantileLoss` its quantile."""
        law, loss = self.predict_density(X), self._score_loss()
        found = law.quantile(loss.p) if isinstance(loss, QuantileLoss) else law.mean()
        return check_numbers(self, "predict", found)


def _line_search(
    loss: AbstractScoreLoss, y: np.ndarray, score: np.ndarray, direction: np.ndarray, weight: np.ndarray
) -> float:
    """γ ≥ 0 at which the loss is least along a direction: where its slope changes sign."""

    def slope(step: float) -> float:
        with np.errstate(over="ignore"):
            found = float(weight @ (loss.descent(y, score + step * direction) * direction))
        return found if np.isfinite(found) else -1.0

    if not slope(0.0) > 0:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(_DOUBLINGS):
        if slope(high) <= 0:
            found: Any = brentq(slope, low, high, xtol=1e-13)
            return float(found)
        low, high = high, 2 * high
    # without a least value, as for zeros and ones that can be told apart
    return high
