"""A change of units moves the evidence by its log-determinant and changes nothing else."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import freeenergy as fe
from freeenergy._core import key_of, on_device
from freeenergy.distributions import Diagonal, Gaussian, LowRank, Poisson, Spherical, Tied
from freeenergy.models import (
    HMM,
    InputTransition,
    InUnits,
    LogisticTransition,
    Mixture,
    RegressionEmissions,
    SeriesInUnits,
    one_series,
)

RNG = np.random.default_rng(0)
X = np.concatenate([RNG.normal(-2, 1, (30, 2)), RNG.normal(2, 0.5, (30, 2))])
X[::7, 1] = np.nan
FACTORS = st.floats(-6, 6).map(lambda power: 10.0**power) | st.floats(-6, 6).map(lambda p: -(10.0**p))
# in units of the factor: shifts much larger than the spread cost digits, which other tests measure
SHIFTS = st.floats(-1e3, 1e3)

MODELS = {
    "gaussian": fe.GaussianDensity(),
    "mixture": fe.GaussianMixture(2, Diagonal(), random_state=0, max_iter=20, tol=0.0),
    "factors": fe.FactorAnalysis(1, max_iter=20, tol=0.0),
    "kernels": fe.KernelDensity(),
}


@functools.cache
def in_plain_units(name):
    return MODELS[name].fit(X).score_samples(X)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=15, deadline=None)
@given(factors=st.tuples(FACTORS, FACTORS), shifts=st.tuples(SHIFTS, SHIFTS))
def test_unit_change_law(name, factors, shifts):
    factors, shifts = np.array(factors), np.array(shifts)
    plain = in_plain_units(name)
    Y = (X + shifts) * factors
    moved = MODELS[name].fit(Y).score_samples(Y)
    log_det = ~np.isnan(X) @ np.log(np.abs(factors))
    np.testing.assert_allclose(moved, plain - log_det, atol=1e-6, rtol=1e-9)


FAR = (X + np.array([1000.0, -3.0])) * np.array([2.0, 50.0])
IN_UNITS = {
    "gaussian": fe.GaussianDensity(),
    "low rank": fe.GaussianDensity(LowRank(rank=1), max_iter=5),
    "full": fe.GaussianMixture(2, random_state=0, max_iter=5),
    "tied": fe.GaussianMixture(2, Tied(Diagonal()), random_state=0, max_iter=5),
    "spherical": fe.GaussianMixture(2, Spherical(), random_state=0, max_iter=5),
    "tied spherical": fe.GaussianMixture(2, Tied(Spherical()), random_state=0, max_iter=5),
    "factors": fe.FactorAnalysis(1, max_iter=5),
    "ppca": fe.PPCA(1, max_iter=5),
    "kernels": fe.KernelDensity(0.3),
    "bayesian": fe.BayesianMixture(2, random_state=0, max_iter=5),
}


KEYS = jax.random.split(jax.random.key(0), 5)


@eqx.filter_jit
def of_rows(model, inner, x):
    """What a model says of rows, and draws of it and of the model inside with the same keys."""
    drawn = [jax.vmap(lambda key, m=m: m.sample(key=key))(KEYS) for m in (model, inner)]
    return jax.vmap(model.log_prob)(x), jax.vmap(model.complete_mean)(x), *drawn


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", IN_UNITS)
def test_the_model_in_units_is_one_of_the_rows_that_were_passed(name):
    fitted = IN_UNITS[name].fit(FAR)
    model = fitted.model_in_units
    found, filled, drawn, inner = of_rows(model, fitted.model_, FAR)
    np.testing.assert_allclose(found, fitted.score_samples(FAR), rtol=1e-9)
    np.testing.assert_allclose(filled, fitted.impute(FAR), rtol=1e-9)
    # the same draws, in other units
    np.testing.assert_allclose(drawn, fitted.scaling_.invert(np.asarray(inner)), rtol=1e-9)
    # a wrapper where the parameters have no other units of their own
    assert isinstance(model, InUnits) == (name in {"kernels", "bayesian"})


def test_parameters_in_units_are_those_that_the_estimator_tells():
    mixture = fe.GaussianMixture(2, random_state=0).fit(FAR)
    model = mixture.model_in_units
    assert isinstance(model, Mixture)
    np.testing.assert_allclose(model.components.mean, mixture.means_, rtol=1e-12)
    np.testing.assert_allclose(model.components.covariance.matrix(), mixture.covariances_, rtol=1e-12)
    factors = fe.FactorAnalysis(1).fit(FAR)
    np.testing.assert_allclose(factors.model_in_units.loading.T, factors.components_, rtol=1e-12)
    np.testing.assert_allclose(factors.model_in_units.noise.variance, factors.noise_variance_, rtol=1e-12)
    # what is inferred of a row needs no rescaling
    x, z = FAR[1], np.array([0.3])
    found = eqx.filter_jit(model.posterior)(x).probabilities
    np.testing.assert_allclose(found, mixture.predict_proba(FAR[1:2])[0])

    @eqx.filter_jit
    def both(model, inside):
        codes = model.encode(x), inside.encode(x), inside.posterior(x).mean
        return (model.energy(x, z), inside.energy(x, z)), codes

    inside = InUnits(factors.model_, *map(on_device, factors.scaling_))
    energies, codes = both(factors.model_in_units, inside)
    np.testing.assert_allclose(*energies, rtol=1e-9)
    np.testing.assert_allclose(codes[0], factors.transform(FAR[1:2])[0], rtol=1e-9)
    np.testing.assert_allclose(codes[2], codes[1], rtol=1e-12)


def test_counts_have_no_other_unit():
    counts = np.random.default_rng(0).poisson(3.0, (60, 2))
    fitted = fe.Mixture(2, family=Poisson, random_state=0).fit(counts)
    assert fitted.model_in_units is fitted.model_


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_bound_in_units_is_the_evidence_of_the_rows_that_were_passed():
    fitted = fe.VAE(1, width=8, max_iter=3, importance_samples=2000, random_state=0).fit(FAR)
    row = FAR[3]
    model = fitted.model_in_units
    found = eqx.filter_jit(model.evidence)(row, samples=2000, key=key_of(1))
    told = fitted.evidence(row[None])
    error = np.hypot(float(found.stderr), told.stderr[0])
    assert abs(float(found.log_mean) - told.nats[0]) < 5 * error + 1e-9
    hidden = np.array([row[0], np.nan])
    drawn = eqx.filter_jit(model.complete_sample)(hidden, samples=50, key=key_of(2))
    assert float(drawn[0]) == row[0]
    assert np.isfinite(drawn).all()


@eqx.filter_jit
def of_a_series(model, inner, chain):
    key = jax.random.key(0)
    drawn = model.sample(6, key=key), inner.sample(6, key=key)
    return (
        model.step_evidence(chain),
        model.complete_mean(chain),
        *drawn,
        model.complete_sample(chain, key=key),
    )


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "estimator",
    [fe.LinearGaussianSSM(1, max_iter=3, random_state=0), fe.HMM(2, max_iter=3, random_state=0)],
    ids=["linear", "finite"],
)
def test_a_model_of_series_in_units(estimator):
    series = FAR[:24]
    fitted = estimator.fit(series)
    model, chain = fitted.model_in_units, one_series(jnp.asarray(series))
    steps, filled, drawn, inner, completed = map(np.asarray, of_a_series(model, fitted.model_, chain))
    np.testing.assert_allclose(steps, fitted.step_evidence(series), rtol=1e-8)
    np.testing.assert_allclose(filled, fitted.impute(series), rtol=1e-8)
    np.testing.assert_allclose(drawn, fitted.scaling_.invert(inner), rtol=1e-9)
    np.testing.assert_array_equal(completed[~np.isnan(series)], series[~np.isnan(series)])
    assert type(model) is type(fitted.model_)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "estimator",
    [
        fe.LinearGaussianSSM(1, max_iter=3, random_state=0),
        fe.HMM(2, RegressionEmissions(), transition=LogisticTransition(), max_iter=3, random_state=0),
        fe.AutoRegression(2, max_iter=3),
        fe.SwitchingLinearSystem(2, max_iter=3, random_state=0),
    ],
    ids=["linear", "finite", "autoregression", "switching"],
)
def test_a_model_of_series_with_inputs_in_units(estimator):
    inputs = np.linspace(100.0, 200.0, 24)[:, None]
    fitted = estimator.fit(FAR[:24], inputs=inputs)
    chain = one_series(jnp.asarray(FAR[:24]), inputs=jnp.asarray(inputs))
    model = fitted.model_in_units
    found = eqx.filter_jit(model.step_evidence)(chain)
    np.testing.assert_allclose(found, fitted.step_evidence(FAR[:24], inputs=inputs), rtol=1e-8)
    assert type(model) is type(fitted.model_)


class Slope(eqx.Module):
    """Logits of two states that depend on an input."""

    slope: jax.Array

    def __call__(self, u):
        return jnp.eye(2) * self.slope * u[0]


def test_a_chain_in_other_units_is_one_of_its_kind_where_there_is_such():
    inputs, rows = np.linspace(100.0, 200.0, 24)[:, None], np.nan_to_num(FAR[:24])
    shift, scale = np.array([2000.0, -150.0]), np.array([3.0, 40.0])
    units = [on_device(a) for a in (shift, scale, np.array([150.0]), np.array([30.0]))]
    raw = one_series(on_device(rows), inputs=on_device(inputs))
    inside = one_series(on_device((rows - shift) / scale), inputs=on_device((inputs - 150) / 30))
    members = Gaussian(on_device(np.eye(2)), Tied(Diagonal(on_device(np.ones(2)))))
    numbers = np.arange(8.0).reshape(2, 2, 2)
    mixtures = Mixture(
        on_device(np.array([[0.3, 0.7], [0.5, 0.5]])),
        Gaussian(on_device(numbers), Diagonal(on_device(numbers + 1))),
    )
    matrix = on_device(np.array([[0.8, 0.2], [0.3, 0.7]]))
    for transition, emissions, kind in (
        (matrix, mixtures, HMM),
        (matrix, members, HMM),
        (InputTransition(Slope(on_device(np.array(0.7)))), members, SeriesInUnits),
    ):
        model = HMM(on_device(np.array([0.4, 0.6])), transition, emissions)
        moved = model.in_units(*units)
        assert type(moved) is kind
        expected = step_evidence(model, inside) - np.log(scale).sum()
        np.testing.assert_allclose(step_evidence(moved, raw), expected, rtol=1e-9)


@eqx.filter_jit
def step_evidence(model, series):
    return model.step_evidence(series, incomplete=False)
