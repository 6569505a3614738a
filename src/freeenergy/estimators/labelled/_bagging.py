"""Bagging: the average of what copies of an estimator say, each fitted to rows drawn with replacement."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import Array
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp
from scipy.stats import norm
from sklearn.tree import DecisionTreeRegressor

from ..._core import Evidence, Fit, Kind, Status, generator
from ...evaluation import AbstractLaws, MixedLaws
from ...evaluation._checks import fraction
from ...evaluation._laws import averaged
from ...shell import (
    AbstractDensity,
    AbstractRowEstimator,
    PredictsDensities,
    Rows,
    Scaling,
    check_instance,
    check_int,
    check_real,
    framed_ends,
)
from ._conformal import conformal_quantile
from ._trees import LabelTree, on_grid
from ._wrapped import AbstractWrappedClassifier, AbstractWrappedRegressor, Committee, fitted_copy

_SEEDS = 2**31
# rows out of bag by which intervals are judged, at most
_JUDGES = 2000


class Bags(AbstractRowEstimator):
    """Draws rows and columns for each copy."""

    estimator: Any
    n_estimators: int
    max_features: float
    bootstrap: bool

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_int(self, "n_estimators")
        check_instance(self, "bootstrap", bool)
        check_real(self, "max_features", 0.0, 1.0 + 1e-12, closed=False)

    def _design(self, x: np.ndarray) -> np.ndarray:
        """Rows as copies are given them; trees keep single precision, so theirs are rescaled."""
        return self.scaling_.apply(x).astype(np.float32) if self.estimator is None else x

    def _counts(self, weight: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """How often each row is drawn: as many in all as there are."""
        if not self.bootstrap:
            return weight
        draws = max(round(weight.sum()), len(weight))
        return rng.multinomial(draws, weight / weight.sum()).astype(float)

    def _columns(self, width: int, rng: np.random.Generator) -> np.ndarray:
        chosen = max(1, round(self.max_features * width))
        return np.sort(rng.permutation(width)[:chosen])


class Bagging(Bags, AbstractWrappedRegressor):
    """p(y | x) = (1/M) Σ_m p_m(y | x): M copies of a regressor, each fitted to a bootstrap of the rows.

    Copies that have no law of their own, such as trees of scikit-learn, are normal about their prediction,
    with the standard deviation that makes the rows most probable which a copy has not seen (out of bag).
    The mean of the predictions is never worse than the members are on average: their squared error less
    their variance.  Also known as bootstrap aggregation; with trees and `max_features` below one it is a
    random forest whose trees have columns of their own, and with `bootstrap=False` and random features, as
    in `make_pipeline(RBFSampler(), Ridge())`, an ensemble of these.

    Args:
        estimator: a regressor of freeenergy or scikit-learn; a regression tree by default.
        n_estimators: M.
        max_features: the share of the columns that each copy is given.
        bootstrap: whether rows are drawn; else all copies have all rows, and differ by columns and seeds.
        inputs: the density from which missing entries are drawn for an estimator that takes none.
        random_state: of the draws, and of copies that have none.

    Attributes:
        members_: the copies; trees as arrays.
        member_columns_: which columns each has.
        noise_: the standard deviation about predictions, for copies without a law.
        oob_evidence_: log p of each distinct row by the copies that have not seen it; None without.
        oob_scores_, oob_weight_: of up to 2,000 such rows how far the answer is from the mean of these
            copies, in standard deviations of their mixture, and the weight.

    References:
        Breiman (1996), Bagging predictors.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, (200, 1))
    >>> y = np.sin(X[:, 0]) + 0.2 * rng.normal(size=200)
    >>> model = Bagging(n_estimators=20, random_state=0).fit(X, y)
    >>> bool(abs(model.predict([[1.5]])[0] - 1) < 0.3), len(model.oob_evidence_)
    (True, 200)
    """

    def __init__(
        self,
        estimator: Any = None,
        n_estimators: int = 50,
        *,
        max_features: float = 1.0,
        bootstrap: bool = True,
        inputs: AbstractDensity | None = None,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.n_estimators = n_estimators
        self.max_features = max_features
        self.bootstrap = bootstrap
        self.inputs = inputs
        self.random_state = random_state

    def _answer_scaling(self, y: np.ndarray, weight: np.ndarray | None) -> Scaling:
        # trees are grown by variances, which very small units have none of
        return Scaling.standardise(y, weight) if self.estimator is None else Scaling.identity(y.shape[1])

    def _learn(self, rows: Rows, key: Array) -> Fit:
        rows = self._in_order(rows)
        rng, answers = generator(key), self._shaped_answers(rows)
        inner = DecisionTreeRegressor() if self.estimator is None else self.estimator
        whole, place = self._whole_rows(rows, inner)
        x, y = self._design(whole.x), answers[place]
        if self.estimator is None:
            y = on_grid(y)
        self.members_, self.member_columns_, bags = [], [], []
        for _ in range(self.n_estimators):
            counts, columns = self._counts(rows.weight, rng), self._columns(x.shape[1], rng)
            weight = whole.weight * (counts / rows.weight)[place]
            self.members_.append(fitted_copy(inner, np.ascontiguousarray(x[:, columns]), y, weight, rng))
            self.member_columns_.append(columns)
            bags.append(counts)
        unseen = np.stack(bags) == 0
        assert rows.known is not None
        in_units = self._shaped(self.answer_scaling_.invert(rows.known))
        if isinstance(inner, PredictsDensities):
            self.noise_ = np.zeros(self.answer_shape_)
        else:
            self.noise_ = self._noise(whole, in_units[place], unseen[:, place])
        self.oob_evidence_ = self._out_of_bag(rows, in_units, unseen)
        self._judge(rows, in_units, unseen, rng)
        return Fit(Committee(self.n_estimators), {}, self.n_estimators, Status.CONVERGED)

    def _noise(self, whole: Rows, y: np.ndarray, unseen: np.ndarray) -> np.ndarray:
        """The standard deviation of each output that makes unseen rows most probable."""
        x = self._design(whole.x)
        found = np.stack(
            [
                self._predicted(member, x[:, columns]).reshape(len(x), -1)
                for member, columns in zip(self.members_, self.member_columns_, strict=True)
            ]
        )
        # without unseen rows those that were fitted have to do
        judge = unseen if unseen.any() else np.ones_like(unseen)
        answers = y.reshape(len(y), -1)
        there = judge.any(axis=0)
        noise = np.ones(answers.shape[1])
        for output in range(answers.shape[1]):
            gap = answers[:, output] - found[:, :, output]
            spread = np.sqrt(np.mean(gap[judge] ** 2))
            if spread > 0:
                noise[output] = spread * _best_scale(
                    gap[:, there] / spread, judge[:, there], whole.weight[there]
                )
        return noise.reshape(self.answer_shape_)

    def _out_of_bag(self, rows: Rows, answers: np.ndarray, unseen: np.ndarray) -> Evidence | None:
        logs = np.full(unseen.shape, -np.inf)
        for number, out in enumerate(unseen):
            if out.any():
                law = self._member_laws(number, rows.x[out])
                logs[number, out] = law.log_prob(answers[out])
        there = unseen.any(axis=0)
        if not there.any():
            return None
        nats = logsumexp(logs[:, there], axis=0) - np.log(unseen[:, there].sum(axis=0))
        kind = Kind.ESTIMATE if np.isnan(rows.x[there]).any() else Kind.EXACT
        return Evidence(np.asarray(nats), np.zeros(there.sum()), kind)

    def _judge(self, rows: Rows, answers: np.ndarray, unseen: np.ndarray, rng: np.random.Generator) -> None:
        """How far answers are from what the copies say that have not seen them, in units of its spread."""
        judges = np.flatnonzero(unseen.any(axis=0))
        if len(judges) > _JUDGES:
            judges = np.sort(rng.choice(judges, _JUDGES, replace=False))
        self.oob_scores_, self.oob_weight_ = np.empty((0, *self.answer_shape_)), rows.weight[judges]
        if not len(judges):
            return
        out, (centre, means, inner) = unseen[:, judges], self._moments(rows.x[judges])
        many = out.sum(axis=0)
        share = out / many
        parts = means, means**2, inner
        mean, square, noise = (np.einsum("mi,mi...->i...", share, part) for part in parts)
        gap, few = answers[judges] - centre - mean, many.reshape(-1, *[1] * len(self.answer_shape_))
        # by how much copies differ: of one alone what the others tell
        several = many > 1
        differ = np.zeros_like(gap)
        differ[several] = (square - mean**2)[several] / (1 - 1 / few[several])
        differ[~several] = differ[several].mean(axis=0) if several.any() else 0.0
        spread = _spread(noise + (1 - 1 / len(out)) * differ)
        # the mean of fewer copies is further from answers than that of all
        typical = differ.mean(axis=0)
        rest = np.maximum(np.mean(gap**2 - typical / few, axis=0), 0.0)
        now, then = np.broadcast_arrays(rest + typical / few, rest + typical / len(out))
        nearer = np.divide(then, now, where=now > 0, out=np.ones_like(gap))
        self.oob_scores_ = np.abs(gap) / spread * np.sqrt(nearer)

    def _moments(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The mean of each answer by all copies; by each, the mean less that, and the variance."""
        laws = [self._member_laws(number, x) for number in range(len(self.members_))]
        means = np.stack([law.mean() for law in laws])
        centre = means.mean(axis=0)
        means -= centre
        return centre, means, np.stack([law.variance() for law in laws])

    # they hold what they say of answers out of bag
    intervals_of_law = False

    @framed_ends
    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[Any, Any]:
        """Both ends of the interval that holds each answer with probability `level`, by itself.

        The mean of the copies is nearer to answers than a copy is, so that quantiles of their mixture hold
        too many.  The interval is the mean ± as many standard deviations of the mixture as held `level` of
        the answers of the fit, each by the copies that have not seen it (out of bag); these are fewer, and
        what their mean varies more than that of all is taken off.  Without rows out of bag, with too few
        of them for the level, and for copies whose answers are whole numbers it has quantiles of the
        mixture.
        """
        level, x = fraction("Bagging.predict_interval", "level", level), self._read(X).x
        laws = self._laws_of(x)
        scores = self.oob_scores_.reshape(len(self.oob_scores_), -1)
        if laws.discrete or not len(scores):
            return laws.interval(level)
        reach = np.array([conformal_quantile(own, self.oob_weight_, level) for own in scores.T])
        centre, means, inner = self._moments(x)
        far = reach.reshape(self.answer_shape_) * _spread((inner + means**2).mean(axis=0))
        ends = np.stack([centre - far, centre + far])
        low, high = np.where(np.isfinite(ends), ends, laws.interval(level))
        return low, high

    def _member_laws(self, number: int, x: np.ndarray) -> AbstractLaws:
        """What one copy says of rows, which may have holes."""
        member, columns = self.members_[number], self.member_columns_[number]

        def of(part: np.ndarray) -> AbstractLaws:
            return self._laws_by(member, self._design(part)[:, columns])

        if isinstance(member, AbstractRowEstimator) or not np.isnan(x).any():
            return of(x)
        return averaged(of, self._input_draws(x))

    def _laws(self, x: np.ndarray) -> AbstractLaws:
        size = len(self.members_)
        parts = tuple(self._member_laws(number, x) for number in range(size))
        return MixedLaws(np.full((size, len(x)), -np.log(size)), parts)

    def _laws_of_incomplete(self, x: np.ndarray) -> AbstractLaws:
        # each copy sees to what is missing itself
        return self._laws(x)

    def member_predictions(self, X: Any) -> np.ndarray:
        """What each copy predicts, (members, rows): for `evaluation.ambiguity` and the like."""
        x = self._read(X).x
        return np.stack([self._member_laws(number, x).mean() for number in range(len(self.members_))])


def _spread(variance: np.ndarray) -> np.ndarray:
    """Standard deviations; one where there is none."""
    return np.sqrt(np.where(np.isfinite(variance) & (variance > 0), variance, 1.0))


def _best_scale(gap: np.ndarray, judge: np.ndarray, weight: np.ndarray) -> float:
    """The scale of normal laws about predictions that makes answers most probable, of gaps of size one."""
    many = np.log(judge.sum(axis=0))

    def loss(log_scale: float) -> float:
        logs = np.where(judge, norm.logpdf(gap, scale=np.exp(log_scale)), -np.inf)
        return -float(np.average(np.asarray(logsumexp(logs, axis=0)) - many, weights=weight))

    found: Any = minimize_scalar(loss, bounds=(-7.0, 1.0), method="bounded")
    return float(np.exp(found.x))


class BaggingClassifier(Bags, AbstractWrappedClassifier):
    """p(y | x) = (1/M) Σ_m p_m(y | x): M copies of a classifier, each fitted to a bootstrap of the rows.

    Args:
        estimator: a classifier of freeenergy or scikit-learn; by default a tree whose shares of labels are
            drawn in a little to those of all rows, so that no label is impossible.
        n_estimators: M.
        max_features: the share of the columns that each copy is given.
        bootstrap: whether rows are drawn; else all copies have all rows, and differ by columns and seeds.
        inputs: the density from which missing entries are drawn for an estimator that takes none.
        random_state: of the draws, and of copies that have none.

    Attributes:
        classes_: the labels.
        members_: the copies; trees as arrays.
        member_columns_: which columns each has.
        oob_evidence_: log p of each distinct row by the copies that have not seen it; None without.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> y = np.where(X[:, 0] * X[:, 1] > 0, "same", "other")
    >>> model = BaggingClassifier(n_estimators=20, random_state=0).fit(X, y)
    >>> model.predict([[1.0, 1.0], [1.0, -1.0]]).tolist()
    ['same', 'other']
    """

    def __init__(
        self,
        estimator: Any = None,
        n_estimators: int = 50,
        *,
        max_features: float = 1.0,
        bootstrap: bool = True,
        inputs: AbstractDensity | None = None,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.n_estimators = n_estimators
        self.max_features = max_features
        self.bootstrap = bootstrap
        self.inputs = inputs
        self.random_state = random_state

    def _learn(self, rows: Rows, key: Array) -> Fit:
        assert rows.known is not None
        rng, labels = generator(key), rows.known[:, 0].astype(int)
        whole, place = self._whole_rows(rows, self.estimator)
        x, y = self._design(whole.x), labels[place]
        self.members_, self.member_columns_, bags = [], [], []
        for _ in range(self.n_estimators):
            counts, columns = self._counts(rows.weight, rng), self._columns(x.shape[1], rng)
            weight = whole.weight * (counts / rows.weight)[place]
            if self.estimator is None:
                member = LabelTree.grown(x[:, columns], y, weight, int(rng.integers(_SEEDS)))
            else:
                member = fitted_copy(self.estimator, x[:, columns], y, weight, rng)
            self.members_.append(member)
            self.member_columns_.append(columns)
            bags.append(counts)
        self.oob_evidence_ = self._out_of_bag(rows, labels, np.stack(bags) == 0)
        return Fit(Committee(self.n_estimators), {}, self.n_estimators, Status.CONVERGED)

    def _out_of_bag(self, rows: Rows, labels: np.ndarray, unseen: np.ndarray) -> Evidence | None:
        total, there = np.zeros(len(labels)), unseen.any(axis=0)
        if not there.any():
            return None
        for number, out in enumerate(unseen):
            if out.any():
                found = self._member_probabilities(number, rows.x[out])
                total[out] += found[np.arange(out.sum()), labels[out]]
        with np.errstate(divide="ignore"):
            nats = np.log(total[there] / unseen[:, there].sum(axis=0))
        kind = Kind.ESTIMATE if np.isnan(rows.x[there]).any() else Kind.EXACT
        return Evidence(nats, np.zeros(len(nats)), kind)

    def _member_probabilities(self, number: int, x: np.ndarray) -> np.ndarray:
        member, columns = self.members_[number], self.member_columns_[number]
        return self._probabilities(member, x, columns)

    def _average(self, x: np.ndarray) -> np.ndarray:
        found = [self._member_probabilities(number, x) for number in range(len(self.members_))]
        return np.mean(found, axis=0)
