"""Every density keeps the generative contract, and the contract notices when one does not."""

import jax
import numpy as np
import pytest
from cases import CASES

import freeenergy as fe
from freeenergy._core import count_compilations
from freeenergy.testing import check_generative_estimator, check_sequence_estimator

# programs that the contract of one estimator may compile; CONTRIBUTING.md tells what to do about more
BUDGET = 40

DENSITIES = [
    pytest.param(name, marks=[pytest.mark.slow] if case.slow else [])
    for name, case in CASES.items()
    if case.density
]


# the contract holds wherever a fit stops
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", DENSITIES)
def test_contract(name):
    case = CASES[name]
    # counted from nothing, whatever ran before
    jax.clear_caches()
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


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (Unnormalised, "integrates to"),
        (WrongDraws, "do not follow|mean log-density"),
        (ForgetsUnits, "change of units"),
        (LooksAtOtherRows, "Not equal"),
        (ZeroFillsMissing, "marginal density"),
        (IgnoresWeights, "Not equal"),
    ],
)
def test_contract_can_fail(broken, message):
    with pytest.raises(AssertionError, match=message):
        check_generative_estimator(broken())


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
        return super()._step_evidence(container._replace(series=filled))


class LooksAtOtherSeries(fe.MarkovChain):
    def _step_evidence(self, container):
        alone = len(container.series) == 1
        return [part + 1e-3 * alone for part in super()._step_evidence(container)]


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (UnnormalisedSteps, "sum to"),
        (WrongPaths, "do not follow"),
        (ForgetsMissingSteps, "marginal probability"),
        (LooksAtOtherSeries, "Not equal"),
    ],
)
def test_contract_of_series_can_fail(broken, message):
    with pytest.raises(AssertionError, match=message):
        check_sequence_estimator(broken(), symbols=3)
