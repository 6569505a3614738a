"""What estimators are given: events of any shape; and an estimator that is made of public names alone."""

import pickle
import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from scipy import stats
from sklearn.utils.estimator_checks import check_estimator

import freeenergy as fe
from freeenergy import parameter, positive
from freeenergy.learning import LBFGS, negative_log_likelihood
from freeenergy.models import AbstractExactModel
from freeenergy.shell import AbstractDensity, Arrays, Scaling
from freeenergy.testing import check_files, check_generative_estimator

IMAGES = np.random.RandomState(0).normal(3.0, np.arange(1.0, 7.0).reshape(2, 3), (40, 2, 3))


class Pixels(AbstractExactModel):
    """A Gaussian for each pixel of an image."""

    mean: Array = parameter()
    variance: Array = parameter(positive)

    def log_prob(self, x):
        seen = ~jnp.isnan(x)
        gap = jnp.where(seen, x - self.mean, 0)
        return -0.5 * jnp.sum(
            jnp.where(seen, gap**2 / self.variance + jnp.log(2 * jnp.pi * self.variance), 0)
        )

    def log_prob_complete(self, x):
        return self.log_prob(x)

    def sample(self, *, key):
        return self.mean + jnp.sqrt(self.variance) * jax.random.normal(key, self.mean.shape)

    def complete_mean(self, x):
        return jnp.where(jnp.isnan(x), self.mean, x)

    def complete_sample(self, x, *, key):
        return jnp.where(jnp.isnan(x), self.sample(key=key), x)


class PixelDensity(AbstractDensity):
    """Images, of which the model sees both axes."""

    intake = Arrays

    def __init__(self, *, max_iter=200, random_state=None):
        self.max_iter = max_iter
        self.random_state = random_state

    def _scaling(self, X, weight):
        return Scaling.standardise(X, weight, common=True)

    def _learn(self, rows, key):
        shape = rows.x.shape[1:]
        start = Pixels(jnp.zeros(shape), jnp.ones(shape))
        learner = LBFGS(negative_log_likelihood, 1e-8)
        return self._run(start, learner, fe.Data.of(rows.x, rows.weight), rows, key)


def test_images_keep_their_shape_and_their_units():
    fitted = PixelDensity(random_state=0).fit(IMAGES)
    assert fitted.event_shape_ == (2, 3)
    mean, std = IMAGES.mean(axis=0), IMAGES.std(axis=0)
    expected = stats.norm(mean, std).logpdf(IMAGES)
    np.testing.assert_allclose(fitted.score_samples(IMAGES), expected.sum(axis=(1, 2)), rtol=1e-5)
    holes = IMAGES.copy()
    holes[0, 1, 2] = np.nan
    some = np.where(np.isnan(holes), 0.0, expected).sum(axis=(1, 2))
    np.testing.assert_allclose(fitted.score_samples(holes), some, rtol=1e-5)
    filled = fitted.impute(holes)
    np.testing.assert_allclose(filled[0, 1, 2], mean[1, 2], rtol=1e-5)
    np.testing.assert_array_equal(filled[1:], IMAGES[1:])
    draws = fitted.sample(4000, random_state=0)
    assert draws.shape == (4000, 2, 3)
    assert (np.abs(draws.mean(axis=0) - mean) < 5 * std / np.sqrt(4000)).all()
    assert fitted.sample(3, random_state=0, given=holes[:2]).shape == (3, 2, 2, 3)
    # the history is in the units of the data, too
    np.testing.assert_allclose(fitted.history_["objective"][-1], -fitted.score(IMAGES), rtol=1e-6)
    np.testing.assert_allclose(
        jax.vmap(fitted.model_in_units.log_prob)(jnp.asarray(holes)),
        fitted.score_samples(holes),
        rtol=1e-12,
    )


def test_images_of_weight_two_are_two_images():
    weight = np.arange(40) % 3
    weighted = PixelDensity(random_state=0).fit(IMAGES, sample_weight=weight)
    repeated = PixelDensity(random_state=0).fit(np.repeat(IMAGES, weight, axis=0)[::-1])
    np.testing.assert_array_equal(weighted.score_samples(IMAGES), repeated.score_samples(IMAGES))
    check_files(weighted, IMAGES)


def test_images_that_cannot_be_are_refused():
    fitted = PixelDensity(random_state=0).fit(IMAGES)
    with pytest.raises(ValueError, match=r"events of the shape \(2, 3\), as that of fit. Got \(3, 2\)"):
        fitted.score_samples(IMAGES.transpose(0, 2, 1))
    with pytest.raises(ValueError, match="must have an axis for samples"):
        fitted.fit(np.zeros(3))
    with pytest.raises(ValueError, match="not infinity"):
        fitted.fit(np.full((3, 2, 3), np.inf))
    with pytest.raises(ValueError, match="0 sample"):
        fitted.fit(np.zeros((0, 2, 3)))


@pytest.fixture(scope="module")
def outside(root):
    """The estimator of docs/extend.md, from its text alone."""
    section = (root / "docs/extend.md").read_text("utf-8").split("\n## An estimator\n")[1]
    code = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert code is not None
    # whatever it needs it imports, and nothing that is private
    assert not re.search(r"(from|import) [\w.]*\._|\bfe\._", code[1])
    assert 30 <= len(code[1].splitlines()) <= 70
    names = {"__name__": "outside"}
    exec(code[1], names)
    return names["LogisticDensity"]


def test_an_estimator_outside_the_library_keeps_the_contract(outside):
    check_generative_estimator(outside())


def test_an_estimator_outside_the_library_fits_what_scipy_fits(outside):
    X = stats.logistic(5.0, 2.0).rvs((400, 1), random_state=0)
    loc, scale = stats.logistic.fit(X)
    fitted = outside(tol=1e-8).fit(X)
    np.testing.assert_allclose(fitted.score(X), stats.logistic(loc, scale).logpdf(X).mean(), atol=1e-4)
    np.testing.assert_allclose(fitted.centre_, [loc], atol=1e-2)


@pytest.mark.slow
def test_an_estimator_outside_the_library_passes_the_checks_of_scikit_learn(outside):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(outside(), on_fail=None)
    wrong = {r["check_name"]: repr(r["exception"]) for r in results if r["status"] == "failed"}
    # a class of a text has no module to be found in
    assert {name for name, why in wrong.items() if pickle.PicklingError.__name__ not in why} == set()
