"""A change of units moves the evidence by its log-determinant and changes nothing else."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import freeenergy as fe
from freeenergy.distributions import Diagonal

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
