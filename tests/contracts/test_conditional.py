"""Every model of numbers given rows keeps its contract, and the contract notices when one does not."""

import dataclasses

import numpy as np
import pytest
from cases import CASES
from scipy import stats

import freeenergy as fe
from freeenergy._core import count_compilations
from freeenergy.evaluation import JoinedLaws, Laws, MixedLaws, NormalLaws
from freeenergy.shell import PredictsDensities, Rows
from freeenergy.testing import check_conditional_estimator, check_laws

BUDGET = 40

CONDITIONAL = [
    pytest.param(name, marks=[pytest.mark.slow] if case.slow else [])
    for name, case in CASES.items()
    if case.answers is not None
]


# the contract holds wherever a fit stops
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", CONDITIONAL)
def test_contract(name):
    case = CASES[name]
    X, y = case.answered()
    with count_compilations() as programs:
        check_conditional_estimator(
            case.estimator, X, y, unit_free=case.unit_free, tolerance=case.tolerance
        )
    assert programs.count <= BUDGET


def test_every_model_of_numbers_is_among_the_cases():
    there = {type(case.estimator) for case in CASES.values() if case.answers is not None and not case.slow}
    public = (getattr(fe, name) for name in fe.__all__)
    models = {c for c in public if isinstance(c, type) and issubclass(c, PredictsDensities)}
    assert models - there == set()


@dataclasses.dataclass(frozen=True)
class ChangedLaws(Laws):
    def take(self, rows):
        return type(self)(super().take(rows).law)


@dataclasses.dataclass(frozen=True)
class UnnormalisedLaws(ChangedLaws):
    def log_prob(self, y):
        return super().log_prob(y) + 0.3


@dataclasses.dataclass(frozen=True)
class WrongDistribution(ChangedLaws):
    """Its distribution function and quantiles are of a law that is narrower than its density."""

    def _other(self):
        return stats.norm(self.law.mean(), 0.9 * self.law.std())

    def log_cdf(self, y):
        return self._other().logcdf(y)

    def log_sf(self, y):
        return self._other().logsf(y)

    def quantile(self, p):
        return self._other().ppf(p)


@dataclasses.dataclass(frozen=True)
class WrongQuantiles(ChangedLaws):
    def quantile(self, p):
        return super().quantile(p) + 0.01 * self.std()


@dataclasses.dataclass(frozen=True)
class WrongDraws(ChangedLaws):
    def sample(self, n, rng):
        return self.mean() + 1.3 * (super().sample(n, rng) - self.mean())


@dataclasses.dataclass(frozen=True)
class WrongCounts(ChangedLaws):
    def log_prob(self, y):
        return super().log_prob(y) - 0.01


@dataclasses.dataclass(frozen=True)
class CountsFromOne(ChangedLaws):
    def quantile(self, p):
        return super().quantile(p) + 1


CENTRES = np.linspace(-2.0, 5.0, 8)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (UnnormalisedLaws(stats.norm(CENTRES, 1.0)), "integrates to 1.34"),
        (WrongDistribution(stats.norm(CENTRES, 1.0)), "integrates to|must be the integral"),
        (WrongQuantiles(stats.norm(CENTRES, 1.0)), "must be where the distribution function is"),
        (WrongDraws(stats.norm(CENTRES, 1.0)), "do not follow the law"),
        (WrongDraws(stats.poisson(np.exp(CENTRES))), "must be whole numbers"),
        (WrongCounts(stats.poisson(np.exp(CENTRES))), "sum to 0.99"),
        (CountsFromOne(stats.poisson(np.exp(CENTRES))), "must be the least value"),
        ("normal", "must be AbstractLaws"),
    ],
)
def test_contract_of_laws_can_fail(broken, message):
    with pytest.raises(AssertionError, match=message):
        check_laws(broken)


def test_laws_keep_their_contract():
    two = np.stack([CENTRES, -CENTRES], axis=1)
    whole = Laws(stats.nbinom(2.5, np.linspace(0.1, 0.9, 8)))
    check_laws(Laws(stats.gamma(np.linspace(0.5, 20.0, 8), scale=3.0)))
    check_laws(whole)
    check_laws(Laws(stats.poisson(np.exp(two))))
    check_laws(NormalLaws(two, np.tile([[2.0, 0.5], [0.5, 1.0]], (8, 1, 1))))
    sides = Laws(stats.norm(CENTRES - 3, 0.5)), Laws(stats.t(4, CENTRES + 3, 1.0))
    mixed = MixedLaws(np.log(np.array([[0.3], [0.7]]) * np.ones(8)), sides)
    check_laws(mixed)
    check_laws(MixedLaws(np.full((2, 8), -np.log(2)), (whole, Laws(stats.poisson(np.full(8, 30.0))))))
    check_laws(JoinedLaws((np.arange(0, 16, 2), np.arange(1, 16, 2)), (mixed, sides[0])))


class Changed(fe.BaseRate):
    """A model of which the tests break one thing each."""

    def _moved(self, x, shift=0.0, wide=1.0):
        freedom, mean, scale = super()._laws(x).law.args
        return Laws(stats.t(freedom, mean + shift, wide * scale))


class WrongEvidence(Changed):
    def evidence(self, X, y):
        found = super().evidence(X, y)
        return fe.Evidence(found.nats + 1e-3, found.stderr, found.kind)


class ForgetsUnits(Changed):
    def _laws(self, x):
        return self._moved(x, wide=1.1 if self.answer_scaling_.scale[0] > 100 else 1.0)


class LikesLargeColumns(Changed):
    def _laws(self, x):
        return self._moved(x, wide=1.1 if self.scaling_.scale[0] > 100 else 1.0)


class LooksAtOtherRows(Changed):
    def _laws(self, x):
        return self._moved(x, 0.01 * (len(x) == 1))


class LooksAtItsNeighbours(Changed):
    def _laws(self, x):
        return self._moved(x, 1e-3 * np.arange(len(x)))


class IgnoresWeights(Changed):
    def fit(self, X, y, sample_weight=None):
        return super().fit(X, y)


class FillsWithMeans(Changed):
    """Looks at other rows for what is missing in one."""

    def _laws_of_incomplete(self, x):
        return self._moved(x, 0.01 * np.isnan(x).sum())


class ForgetsMissing(Changed):
    def _laws_of_incomplete(self, x):
        return self._moved(x, x[:, 0])


class IsTooSure(Changed):
    def predict_interval(self, X, level=0.9):
        return super().predict_interval(X, 0.8 * level)


class IsNarrow(Changed):
    def _laws(self, x):
        return self._moved(x, wide=0.3)


class PredictsTheMedian(Changed):
    def predict(self, X):
        return super().predict(X) + 0.1


class ForgetsTheSeed(Changed):
    count = 0

    def _learn(self, rows: Rows, key):
        type(self).count += 1
        return super()._learn(rows._replace(known=rows.known * (1 + 1e-9 * type(self).count)), key)


class ForgetsInFiles(Changed):
    def save(self, path):
        std, self.std_ = self.std_, 2 * self.std_
        super().save(path)
        self.std_ = std


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (WrongEvidence, "must be log_prob of predict_density"),
        (ForgetsUnits, "units of y must move the evidence by its log-determinant"),
        (LikesLargeColumns, "Other units of X must change nothing"),
        (LooksAtOtherRows, "must not depend on other rows"),
        (LooksAtItsNeighbours, "must not depend on other rows"),
        (IgnoresWeights, "must act as repetition"),
        (FillsWithMeans, "must not depend on other rows"),
        (ForgetsMissing, "NaN must be finite|no answer"),
        (IsTooSure, "must hold the answer with probability"),
        (IsNarrow, "of the answers that were fitted"),
        (PredictsTheMedian, "must be the mean"),
        (ForgetsTheSeed, "same seed"),
        (ForgetsInFiles, "must change nothing"),
        (fe.GaussianDensity, "must have the capability PredictsDensities"),
    ],
)
def test_contract_can_fail(broken, message):
    with pytest.raises((AssertionError, ValueError), match=message):
        check_conditional_estimator(broken())
