"""Mixtures of mixed columns whose numbers depend on each other within a member: the location model."""

import jax
import numpy as np
import polars as pl
import pytest
from scipy import stats

import freeenergy as fe
from freeenergy.distributions import ByColumn, Full, Spherical

N = 120
RNG = np.random.default_rng(3)
GROUP = RNG.integers(0, 2, N)
WIDTH = RNG.normal(3.0 * GROUP, 1.0)
FRAME = pl.DataFrame(
    {
        "colour": np.array(["red", "green", "blue"])[np.where(GROUP, 2, RNG.integers(0, 2, N))],
        "width": 1e3 * WIDTH,
        "visits": RNG.poisson(1 + 5 * GROUP),
        "height": 2.0 * WIDTH + RNG.normal(0.0, 0.3, N),
    }
)
COLOURS = ["blue", "green", "red"]


def holed():
    """The table without an eighth of its entries."""
    seen = RNG.random((N, 4)) > 0.125
    return FRAME.select(
        pl.when(pl.Series(seen[:, j])).then(pl.col(name)).alias(name)
        for j, name in enumerate(FRAME.columns)
    )


@pytest.fixture(scope="module")
def model():
    return fe.Mixture(2, family=ByColumn(covariance=Full()), random_state=0).fit(FRAME)


def by_hand(model, frame):
    """log p of rows from the parameters, by SciPy; what is missing is left out of each factor."""
    gaussian, poisson, labels = jax.tree.map(np.asarray, model.model_.components.parts)
    numbers = frame.select("width", "height").to_numpy().astype(float)
    shift, scale = model.scaling_.shift[[1, 3]], model.scaling_.scale[[1, 3]]
    total = []
    for row, counts, colour in zip(numbers, frame["visits"], frame["colour"], strict=True):
        seen = ~np.isnan(row)
        logs = np.log(model.weights_)
        for k in range(2):
            mean = shift + scale * gaussian.mean[k]
            matrix = gaussian.covariance.value[k] * np.outer(scale, scale)
            if seen.any():
                law = stats.multivariate_normal(mean[seen], matrix[np.ix_(seen, seen)])
                logs[k] += law.logpdf(row[seen])
            if counts is not None:
                logs[k] += stats.poisson.logpmf(counts, float(poisson.rate[k, 0]))
            if colour is not None:
                logs[k] += np.log(float(labels.probabilities[k, 0, COLOURS.index(colour)]))
        total.append(np.logaddexp(*logs))
    return np.array(total)


def test_the_density_and_its_marginals_are_those_of_the_parameters(model):
    for frame in (FRAME, holed()):
        np.testing.assert_allclose(model.score_samples(frame), by_hand(model, frame), rtol=1e-8)


def test_a_number_is_inferred_from_the_other_of_its_member(model):
    known = FRAME.with_columns(pl.lit(None, pl.Float64).alias("height"))
    found = model.impute(known)["height"].to_numpy()
    error = np.sqrt(np.mean((found - FRAME["height"].to_numpy()) ** 2))
    # noise alone is 0.3; numbers that are independent within a member leave ±2 · 1
    assert error < 0.4
    apart = fe.Mixture(2, family="by column", random_state=0).fit(FRAME).impute(known)["height"].to_numpy()
    assert np.sqrt(np.mean((apart - FRAME["height"].to_numpy()) ** 2)) > 1.0


def test_numbers_alone_are_a_gaussian_mixture():
    numbers = FRAME.select("width", "height")
    ours = fe.Mixture(2, family=ByColumn(0.0, Full()), random_state=0, tol=1e-12, max_iter=5000).fit(
        numbers
    )
    plain = fe.GaussianMixture(2, random_state=0, tol=1e-12, max_iter=5000).fit(numbers)
    assert ours.score(numbers) == pytest.approx(plain.score(numbers), abs=1e-6)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_em_with_holes_never_lowers_the_likelihood():
    frame = holed()
    model = fe.Mixture(2, family=ByColumn(covariance=Full()), random_state=0, tol=0, max_iter=30).fit(frame)
    assert (np.diff(model.history_["objective"]) < 1e-9).all()
    # labels are labels, counts whole, and nothing that was seen has changed
    filled = model.impute(frame)
    assert filled.schema == frame.schema
    assert filled.null_count().sum_horizontal()[0] == 0
    for name in frame.columns:
        seen = frame[name].is_not_null()
        assert filled[name].filter(seen).to_list() == frame[name].filter(seen).to_list()


def test_another_covariance_is_refused():
    with pytest.raises(
        ValueError, match=r"The 'covariance' of ByColumn must be Diagonal\(\) or Full\(\)\. Got Sph"
    ):
        ByColumn(covariance=Spherical())
