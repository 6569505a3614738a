"""Estimators made from models: they answer what the model answers, without a fit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from data import ROWS, STEPS
from scipy import stats
from sklearn.base import clone

import freeenergy as fe
from freeenergy import models
from freeenergy.distributions import Diagonal, Full, Gaussian, Poisson
from freeenergy.models import one_series

MEANS = jnp.array([[0.0, 1.0], [4.0, -2.0]])
COVARIANCES = jnp.array([[[2.0, 0.5], [0.5, 1.0]], [[1.0, 0.0], [0.0, 3.0]]])
MIXTURE = models.Mixture(jnp.array([0.3, 0.7]), Gaussian(MEANS, Full(COVARIANCES)))
CHAIN = models.HMM(
    jnp.array([0.8, 0.2]), jnp.array([[0.9, 0.1], [0.3, 0.7]]), Gaussian(MEANS, Full(COVARIANCES))
)
SYSTEM = models.LinearGaussianSSM(
    jnp.zeros(1),
    Diagonal(jnp.ones(1)),
    jnp.array([[0.9]]),
    jnp.zeros(1),
    Diagonal(jnp.array([0.5])),
    jnp.array([[1.0], [2.0]]),
    jnp.array([3.0, -1.0]),
    Diagonal(jnp.array([0.1, 0.4])),
)


def test_a_mixture_of_given_parameters(tmp_path):
    estimator = fe.GaussianMixture.from_model(MIXTURE)
    parts = [stats.multivariate_normal(m, c).pdf(ROWS) for m, c in zip(MEANS, COVARIANCES, strict=True)]
    density = 0.3 * parts[0] + 0.7 * parts[1]
    np.testing.assert_allclose(estimator.score_samples(ROWS), np.log(density), rtol=1e-9)
    np.testing.assert_allclose(estimator.predict_proba(ROWS)[:, 1], 0.7 * parts[1] / density, rtol=1e-7)
    np.testing.assert_allclose(estimator.means_, MEANS)
    np.testing.assert_allclose(estimator.covariances_, COVARIANCES)
    assert estimator.n_components == 2
    drawn = estimator.sample(2000, random_state=0)
    mean = 0.3 * MEANS[0] + 0.7 * MEANS[1]
    np.testing.assert_allclose(drawn.mean(0), mean, atol=5 * drawn.std() / np.sqrt(2000))
    estimator.save(tmp_path / "model.safetensors")
    again = fe.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.score_samples(ROWS), estimator.score_samples(ROWS))
    assert estimator.summary(ROWS).n_parameters == 11
    # it can be fitted as any other
    assert clone(estimator).set_params(random_state=0).fit(ROWS).converged_
    any_family = fe.Mixture.from_model(MIXTURE)
    np.testing.assert_allclose(any_family.score_samples(ROWS), np.log(density), rtol=1e-9)


def test_one_gaussian_and_factors_of_given_parameters():
    law = models.Density(Gaussian(MEANS[0], Full(COVARIANCES[0])))
    estimator = fe.GaussianDensity.from_model(law)
    peer = stats.multivariate_normal(MEANS[0], COVARIANCES[0])
    np.testing.assert_allclose(estimator.score_samples(ROWS), peer.logpdf(ROWS), rtol=1e-9)
    factors = models.LinearGaussian(jnp.array([[1.0], [2.0]]), MEANS[0], Diagonal(jnp.array([0.5, 1.5])))
    estimator = fe.FactorAnalysis.from_model(factors)
    peer = stats.multivariate_normal(MEANS[0], [[1.5, 2.0], [2.0, 5.5]])
    np.testing.assert_allclose(estimator.score_samples(ROWS), peer.logpdf(ROWS), rtol=1e-9)
    assert estimator.transform(ROWS).shape == (len(ROWS), 1)


@pytest.mark.parametrize(("kind", "model"), [(fe.HMM, CHAIN), (fe.LinearGaussianSSM, SYSTEM)])
def test_series_of_given_parameters(kind, model):
    estimator = kind.from_model(model)
    series = ROWS[:STEPS]
    expected = jax.jit(lambda m, x: m.log_prob(one_series(x)))(model, jnp.asarray(series))
    np.testing.assert_allclose(estimator.score_samples(series), [float(expected)], rtol=1e-9)
    assert estimator.sample(3, random_state=0, length=STEPS).shape == (3, STEPS, 2)
    np.testing.assert_allclose(
        estimator.transition_, model.transition if kind is not fe.HMM else [[0.9, 0.1], [0.3, 0.7]]
    )


def test_what_is_no_model_of_it_is_refused():
    with pytest.raises(ValueError, match=r"must be a freeenergy.models.Mixture. Got a HMM instead"):
        fe.GaussianMixture.from_model(CHAIN)
    with pytest.raises(
        ValueError, match=r"'model' of GaussianMixture.from_model must be of Gaussians. Got Pois"
    ):
        fe.GaussianMixture.from_model(models.Mixture(jnp.ones(1), Poisson(jnp.ones((1, 2)))))
    with pytest.raises(ValueError, match=r"KMeans cannot be made from a model alone. Fit it to data"):
        fe.KMeans.from_model(MIXTURE)
    with pytest.raises(ValueError, match=r"The noise of a model for PPCA must be Spherical. Got Diagonal"):
        fe.PPCA.from_model(models.LinearGaussian(jnp.ones((2, 1)), jnp.zeros(2), Diagonal(jnp.ones(2))))
    mixed = models.HMM(
        CHAIN.initial,
        CHAIN.transition,
        models.MixtureEmissions(
            models.Mixture(jnp.ones((2, 1)), Gaussian(MEANS[:, None], Full(COVARIANCES[:, None])))
        ),
    )
    with pytest.raises(
        ValueError, match=r"must have one member of a family in each state.*MixtureEmissions"
    ):
        fe.HMM.from_model(mixed)
