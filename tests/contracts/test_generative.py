"""Every estimator keeps the contract of what it can do, and the contract notices when one does not."""

import functools

import jax
import numpy as np
import pytest
from cases import CASES
from data import ROWS

import freeenergy as fe
from freeenergy import testing
from freeenergy._core import count_compilations
from freeenergy.shell import AbstractImplicit, Rows, SamplesRows
from freeenergy.testing import check_generative_estimator, check_sequence_estimator

# programs that the contract of one estimator may compile; CONTRIBUTING.md tells what to do about more
BUDGET = 40

DENSITIES = [
    pytest.param(name, marks=[pytest.mark.slow] if case.slow else [])
    for name, case in CASES.items()
    if case.density or isinstance(case.estimator, AbstractImplicit)
]


# the contract holds wherever a fit stops
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", DENSITIES)
def test_contract(name):
    case = CASES[name]
    with count_compilations() as programs:
        if case.sequence:
            check_sequence_estimator(case.estimator, symbols=case.symbols)
        else:
            check_generative_estimator(case.estimator, case.data(), points=case.points)
    assert programs.count <= BUDGET


class Unnormalised(fe.GaussianDensity):
    def _evidence(self, z, seeds):
        evidence = super()._evidence(z, seeds)
        return fe.Evidence(evidence.nats + 0.3, evidence.stderr, evidence.kind)


class WrongDraws(fe.GaussianDensity):
    def _draw(self, n, *, key):
        return 1.3 * super()._draw(n, key=key)


class ForgetsUnits(fe.GaussianDensity):
    def evidence(self, X):
        evidence = super().evidence(X)
        shift = np.log(self.scaling_.scale).sum() * (self.scaling_.scale[0] > 100)
        return fe.Evidence(evidence.nats + shift, evidence.stderr, evidence.kind)


class LooksAtOtherRows(fe.GaussianDensity):
    def _evidence(self, z, seeds):
        evidence = super()._evidence(z, seeds)
        return fe.Evidence(
            evidence.nats + 1e-3 * (len(z) == 1) * ~np.isnan(z).all(axis=1), evidence.stderr, evidence.kind
        )


class ZeroFillsMissing(fe.GaussianDensity):
    def _evidence(self, z, seeds):
        return super()._evidence(np.where(np.isnan(z), 0.0, z), seeds)


class IgnoresWeights(fe.GaussianDensity):
    def fit(self, X, y=None, sample_weight=None):
        return super().fit(X)


class ForgetsTheSeed(fe.GaussianDensity):
    def sample(self, n=1, random_state=None, *, given=None):
        return super().sample(n, given=given)


class OneDrawForAllSeeds(fe.GaussianDensity):
    def sample(self, n=1, random_state=None, *, given=None):
        return super().sample(n, 0 if n == 32 else random_state, given=given)


class ChangesWhatWasObserved(fe.GaussianDensity):
    def impute(self, X):
        return super().impute(X) + 1e-6


class FillsWithZero(fe.GaussianDensity):
    def _fill_mean(self, z, seeds):
        return np.where(np.isnan(z), 3.0, z)


class CodesLookAtOtherRows(fe.PPCA):
    def transform(self, X):
        codes = super().transform(X)
        return codes - codes[0]


class SharesBeyondOne(fe.GaussianMixture):
    def predict_proba(self, X):
        return 1.01 * super().predict_proba(X)


class PredictsTheLeast(fe.GaussianMixture):
    def predict(self, X):
        return np.argmin(self.predict_proba(X), axis=1)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (Unnormalised, "integrates to"),
        (WrongDraws, "do not follow|mean log-density"),
        (ForgetsUnits, "change of units"),
        (LooksAtOtherRows, "Not equal"),
        (ZeroFillsMissing, "marginal density"),
        (IgnoresWeights, "Not equal"),
        (ForgetsTheSeed, "not equal"),
        (OneDrawForAllSeeds, "Another seed"),
        (ChangesWhatWasObserved, "not equal"),
        (FillsWithZero, "conditional draws differ"),
        (functools.partial(CodesLookAtOtherRows, 1), "must not depend on other rows"),
        (functools.partial(SharesBeyondOne, 2), "must sum to one"),
        (functools.partial(PredictsTheLeast, 2), "the most probable"),
    ],
)
def test_contract_can_fail(broken, message):
    with pytest.raises(AssertionError, match=message):
        check_generative_estimator(broken())


def test_each_promise_has_a_check_of_its_own():
    X = np.random.RandomState(0).normal(size=(120, 2)) @ [[1.0, 0.5], [0.0, 1.0]]
    mixture = fe.GaussianMixture(2, max_iter=20, tol=1e-2, random_state=0).fit(X)
    for check in (
        testing.check_evidence,
        testing.check_scores,
        testing.check_samples,
        testing.check_predicts,
        testing.check_rows_independent,
        testing.check_units,
        testing.check_repeatable,
        testing.check_weights,
        testing.check_frames,
    ):
        check(mixture, X)
    testing.check_transforms(fe.PCA(1).fit(X), X)
    chain = [np.random.RandomState(i).randint(3, size=(30, 1)).astype(float) for i in range(3)]
    testing.check_forecasts(fe.MarkovChain().fit(chain), chain)


class Bootstrap(SamplesRows):
    """Draws rows that it has seen: an implicit model, which gives no density."""

    def __init__(self, *, max_iter=1, random_state=None):
        self.max_iter = max_iter
        self.random_state = random_state

    def _learn(self, rows: Rows, key):
        model = fe.models.Kernels.of(rows.x, np.full(rows.x.shape, 1e-6), rows.weight)
        return fe.Fit(model, {}, 1, fe.Status.CONVERGED)


class Stuck(Bootstrap):
    def _draw(self, n, *, key):
        return np.tile(super()._draw(1, key=jax.random.key(0)), (n, 1)) + np.arange(n)[:, None]


def test_what_samples_need_not_score():
    fitted = Bootstrap(random_state=0).fit(ROWS)
    assert not isinstance(fitted, fe.shell.Scores)
    assert isinstance(fitted, fe.shell.Samples)
    check_generative_estimator(Bootstrap())
    drawn = fitted.sample(50, random_state=0)
    assert np.abs(drawn[:, None] - ROWS[None]).max(axis=2).min(axis=1).max() < 0.01
    with pytest.raises(ValueError, match="takes no 'given'"):
        fitted.sample(given=ROWS[:2])
    with pytest.raises(AssertionError, match="Another seed"):
        check_generative_estimator(Stuck())


class UnnormalisedSteps(fe.MarkovChain):
    def _step_evidence(self, series):
        return [part + 0.01 for part in super()._step_evidence(series)]


class WrongPaths(fe.MarkovChain):
    def sample(self, n=1, random_state=None, *, length=None, given=None):
        drawn = super().sample(n, random_state, length=length, given=given)
        return drawn if given is not None else drawn[:, ::-1]


class ForgetsMissingSteps(fe.MarkovChain):
    def _step_evidence(self, container):
        filled = [np.where(np.isnan(x), 0.0, x) for x in container.series]
        return super()._step_evidence(container.with_series(filled, None))


class LooksAtOtherSeries(fe.MarkovChain):
    def _step_evidence(self, container):
        alone = len(container.series) == 1
        return [part + 1e-3 * alone for part in super()._step_evidence(container)]


class ForecastsFromOtherSeries(fe.MarkovChain):
    def _predictive(self, container, steps, future):
        found = super()._predictive(container, steps, future)
        other = fe.shell.MassTables(found[0].mass[..., ::-1])
        return found if len(found) == 1 else [other] * len(found)


class IsTooSure(fe.MarkovChain):
    def _predictive(self, container, steps, future):
        laws = super()._predictive(container, steps, future)
        sure = (law.mass == law.mass.max(axis=2, keepdims=True) for law in laws)
        return [fe.shell.MassTables(mass / mass.sum(axis=2, keepdims=True)) for mass in sure]


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (ForecastsFromOtherSeries, "Not equal"),
        (IsTooSure, "too rarely"),
        (UnnormalisedSteps, "sum to"),
        (WrongPaths, "do not follow"),
        (ForgetsMissingSteps, "marginal probability"),
        (LooksAtOtherSeries, "Not equal"),
    ],
)
def test_contract_of_series_can_fail(broken, message):
    with pytest.raises(AssertionError, match=message):
        check_sequence_estimator(broken(), symbols=3)
