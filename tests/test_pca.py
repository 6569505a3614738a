"""Principal components, their iterative form for missing entries, and rotations of factors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn import decomposition
from statsmodels.multivariate.factor_rotation import rotate_factors

import freeenergy as fe
from freeenergy.estimators import Rotated
from freeenergy.learning import EM, fit
from freeenergy.models import LinearGaussian

RNG = np.random.RandomState(0)
X = RNG.normal(size=(80, 2)) @ RNG.normal(size=(2, 5)) * 10 + RNG.normal(size=(80, 5)) + 50


@pytest.mark.parametrize("rows", [X, X[:4]], ids=["many rows", "fewer rows than columns"])
def test_is_scikit_learns(rows):
    ours, theirs = fe.PCA(2).fit(rows), decomposition.PCA(2).fit(rows)
    sign = np.sign(np.sum(ours.components_ * theirs.components_, axis=1))
    np.testing.assert_allclose(ours.components_, theirs.components_ * sign[:, None], atol=1e-8)
    np.testing.assert_allclose(ours.explained_variance_ratio_, theirs.explained_variance_ratio_)
    n = len(rows)
    np.testing.assert_allclose(ours.explained_variance_, theirs.explained_variance_ * (n - 1) / n)
    np.testing.assert_allclose(ours.transform(rows), theirs.transform(rows) * sign, atol=1e-7)
    again = ours.inverse_transform(ours.transform(rows))
    np.testing.assert_allclose(again, theirs.inverse_transform(theirs.transform(rows)), atol=1e-7)
    assert fe.PCA().fit(rows).n_components_ == min(len(rows) - 1, 5)


def test_is_probabilistic_pca_without_noise():
    # no noise in the data: what PPCA finds is the plane
    flat = RNG.normal(size=(60, 2)) @ RNG.normal(size=(2, 4))
    plane, soft = fe.PCA(2).fit(flat), fe.PPCA(2).fit(flat)
    np.testing.assert_allclose(
        plane.transform(flat) @ plane.components_, soft.transform(flat) @ soft.components_, atol=1e-4
    )
    np.testing.assert_allclose(plane.explained_variance_ratio_.sum(), 1)


def test_temperature_zero_is_iterative_pca():
    Z = (X - X.mean(axis=0)) / 10
    start = LinearGaussian(
        jnp.asarray(RNG.normal(size=(5, 2))),
        jnp.zeros(5),
        fe.distributions.Spherical(jnp.asarray(1e-9), 0.0, 5),
    )
    learner = EM(tol=0.0, temperature=0.0, learnable=fe.freeze(start, lambda m: m.noise))
    found = fit(start, learner, Z, key=jax.random.key(0), max_iter=200).model
    basis = np.linalg.qr(np.asarray(found.loading))[0]
    closed = fe.PCA(2).fit(X).components_
    np.testing.assert_allclose(basis @ basis.T, closed.T @ closed, atol=1e-5)


def test_missing_entries_are_left_out_of_the_squares():
    holes = np.where(RNG.rand(*X.shape) < 0.15, np.nan, X)
    seen = ~np.isnan(holes)
    model = fe.PCA(2, tol=1e-12, max_iter=5000).fit(holes)

    def squares(free):
        codes, loading, mean = np.split(free, [160, 170])
        plane = codes.reshape(80, 2) @ loading.reshape(2, 5) + mean
        left = np.where(seen, plane - X, 0.0)
        gradient = [left @ loading.reshape(2, 5).T, codes.reshape(80, 2).T @ left, left.sum(axis=0)]
        return 0.5 * np.sum(left**2), np.concatenate([g.ravel() for g in gradient])

    places = model.transform(holes)
    ours = np.concatenate([places.ravel(), model.components_.ravel(), model.mean_])
    value, _ = squares(ours)
    best = minimize(squares, ours, jac=True, method="L-BFGS-B", options={"maxiter": 2000})
    assert value < best.fun * (1 + 1e-3)
    truth = fe.PCA(2).fit(X)
    np.testing.assert_allclose(
        model.components_.T @ model.components_, truth.components_.T @ truth.components_, atol=0.05
    )
    np.testing.assert_allclose(model.explained_variance_ratio_, truth.explained_variance_ratio_, atol=0.05)
    np.testing.assert_allclose(model.components_ @ model.components_.T, np.eye(2), atol=1e-10)
    filled = model.impute(holes)
    np.testing.assert_array_equal(filled[seen], X[seen])
    assert np.abs(filled - X)[~seen].std() < 3.0
    assert (np.diff(model.history_["objective"]) < 1e-9).all()


def test_places_of_incomplete_rows_are_least_squares():
    model = fe.PCA(2).fit(X)
    row = X[:1].copy()
    row[0, 3:] = np.nan
    expected = np.linalg.lstsq(model.components_[:, :3].T, (row - model.mean_)[0, :3], rcond=None)[0]
    np.testing.assert_allclose(model.transform(row)[0], expected, rtol=1e-4)
    nothing = model.impute(np.full((1, 5), np.nan))
    np.testing.assert_allclose(nothing[0], model.mean_)


def test_weights_are_repetition():
    weight = np.arange(80) % 3
    one = fe.PCA(2).fit(X, sample_weight=weight)
    two = fe.PCA(2).fit(np.repeat(X, weight, axis=0))
    np.testing.assert_allclose(one.transform(X), two.transform(X), rtol=1e-8)


def test_a_linear_network_learns_the_plane():
    # min ‖Z − Z B A‖² / 2n has the leading eigenvectors as the rows of A, and the other eigenvalues as loss
    Z = X - X.mean(axis=0)

    def loss(free):
        encode, decode = free[:10].reshape(5, 2), free[10:].reshape(2, 5)
        codes = Z @ encode
        left = codes @ decode - Z
        gradient = [Z.T @ (left @ decode.T), codes.T @ left]
        return 0.5 * np.sum(left**2) / len(Z), np.concatenate([g.ravel() for g in gradient]) / len(Z)

    found = minimize(
        loss,
        0.1 * RNG.normal(size=20),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 5000, "ftol": 1e-15},
    )
    model = fe.PCA(2).fit(X)
    basis = np.linalg.qr(found.x[10:].reshape(2, 5).T)[0]
    np.testing.assert_allclose(basis @ basis.T, model.components_.T @ model.components_, atol=1e-4)
    whole = fe.PCA().fit(X)
    np.testing.assert_allclose(found.fun, whole.explained_variance_[2:].sum() / 2, rtol=1e-6)
    np.testing.assert_allclose(
        model.history_["objective"][-1] * model.scaling_.scale[0] ** 2, 2 * found.fun, rtol=1e-6
    )


def test_refuses():
    with pytest.raises(
        ValueError, match=r"'n_components' parameter of PCA must be an int in the range \[1, inf\)"
    ):
        fe.PCA(0).fit(X)
    with pytest.raises(ValueError, match=r"must have 2 columns. Got 3 instead"):
        fe.PCA(2).fit(X).inverse_transform(np.zeros((1, 3)))


def simple_structure(noise=0.5):
    loadings = np.array([[1.0, 0.9, 0.8, 0.1, 0.0, 0.05], [0.0, 0.1, 0.05, 0.7, 0.9, 1.0]])
    rng = np.random.RandomState(1)
    return rng.normal(size=(400, 2)) @ loadings + noise * rng.normal(size=(400, 6))


def criterion(loadings):
    return np.var(loadings**2, axis=0).sum()


def test_varimax_against_all_angles():
    model = fe.FactorAnalysis(2).fit(simple_structure())
    loadings = np.asarray(model.model_.loading)
    for rotation in (fe.Varimax(), fe.Varimax(normalise=False)):
        w = loadings
        if rotation.normalise:
            w = w / np.linalg.norm(w, axis=1, keepdims=True)
        angles = np.linspace(0, np.pi / 2, 2001)
        best = max(
            criterion(w @ np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]])) for a in angles
        )
        r = rotation(loadings)
        np.testing.assert_allclose(r.T @ r, np.eye(2), atol=1e-12)
        np.testing.assert_allclose(criterion(w @ r), best, rtol=1e-5)
    theirs, _ = rotate_factors(loadings, "varimax")
    np.testing.assert_allclose(criterion(loadings @ r), criterion(theirs), rtol=1e-5)


def test_rotated_factors_have_the_same_density():
    X = simple_structure() * [1, 10, 100, 1, 1, 1]
    model = fe.FactorAnalysis(2).fit(X)
    turned = model.rotate(fe.Varimax())
    assert isinstance(turned, Rotated)
    np.testing.assert_allclose(turned.covariance, np.eye(2), atol=1e-10)
    np.testing.assert_allclose(
        turned.components.T @ turned.components,
        model.components_.T @ model.components_,
        rtol=1e-8,
        atol=1e-8,
    )
    # each factor belongs to its own three columns
    share = (turned.components / X.std(axis=0)) ** 2
    assert (np.sort(share[:, :3].sum(axis=1) / share[:, :3].sum()) > [-1, 0.95]).all()


def test_promax():
    X = simple_structure()
    X[:, :3] += 0.4 * X[:, 3:].mean(axis=1, keepdims=True)
    model = fe.FactorAnalysis(2).fit(X)
    oblique = model.rotate(fe.Promax())
    np.testing.assert_allclose(np.diagonal(oblique.covariance), 1, atol=1e-10)
    np.testing.assert_allclose(
        oblique.components.T @ oblique.covariance @ oblique.components,
        model.components_.T @ model.components_,
        atol=1e-8,
    )
    assert abs(oblique.covariance[0, 1]) > 0.1
    # small loadings become smaller than under varimax
    straight = model.rotate(fe.Varimax()).components
    assert np.sort(np.abs(oblique.components), axis=0)[0].sum() < np.sort(np.abs(straight), axis=0)[0].sum()
    np.testing.assert_allclose(model.rotate(fe.Promax(power=1.0)).components, straight, atol=1e-10)


def test_heywood_cases_stay_at_the_floor():
    # one column is the factor itself: its noise would go to zero and the likelihood to infinity
    X = simple_structure()
    X[:, 5] = X[:, 4]
    model = fe.FactorAnalysis(2).fit(X)
    relative = model.noise_variance_ / X.var(axis=0)
    assert relative.min() == pytest.approx(1e-6, rel=0.5)
    assert np.isfinite(model.score_samples(X)).all()
