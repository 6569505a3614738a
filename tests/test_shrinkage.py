"""Ridge and sparse regressions against dense algebra, scikit-learn and quadrature."""

import numpy as np
import pandas as pd
import pytest
from data import ROWS
from scipy import linalg, optimize, special, stats
from sklearn.linear_model import ElasticNet, Lasso, RidgeCV, enet_path
from sklearn.linear_model import Ridge as PeerRidge

import freeenergy as fe
from freeenergy.estimators.labelled._sparse import _folds, elastic_net

RNG = np.random.default_rng(8)
X = np.column_stack([ROWS, RNG.normal(size=(len(ROWS), 3)) * [1.0, 10.0, 0.1]])
Y = X @ [1.0, -2.0, 0.5, 0.0, 0.0] + 3.0 + RNG.normal(size=len(X))
TWO = np.column_stack([Y, 10 * (Y + 2 * X[:, 1] + RNG.normal(size=len(X)))])
Z = (X - X.mean(0)) / X.std(0)
V = (Y - Y.mean()) / Y.std()


@pytest.mark.parametrize("intercept", [True, False])
def test_ridge_is_that_of_standardised_columns(intercept):
    scale = X.std(0) if intercept else np.sqrt(np.mean(X**2, axis=0))
    peer = PeerRidge(3.0, fit_intercept=intercept).fit(X / scale, Y)
    model = fe.Ridge(3.0, fit_intercept=intercept).fit(X, Y)
    np.testing.assert_allclose(model.coef_, peer.coef_ / scale, rtol=1e-9)
    np.testing.assert_allclose(model.intercept_, peer.intercept_, rtol=1e-8, atol=1e-12)
    weight = RNG.integers(0, 3, len(X)).astype(float)
    heavy = fe.Ridge(3.0).fit(X, Y, weight)
    times = np.repeat(np.arange(len(X)), weight.astype(int))
    np.testing.assert_allclose(heavy.coef_, fe.Ridge(3.0).fit(X[times], Y[times]).coef_, rtol=1e-9)


def test_any_prior_covariance():
    root = RNG.normal(size=(5, 5))
    prior = root @ root.T + 0.1 * np.eye(5)
    model = fe.Ridge(2.0, prior=prior).fit(X, Y)
    centred, answers = X - X.mean(0), Y - Y.mean()
    by_hand = np.linalg.solve(centred.T @ centred + 2.0 * np.linalg.inv(prior), centred.T @ answers)
    np.testing.assert_allclose(model.coef_, by_hand, rtol=1e-8)
    # a wide prior is least squares, and with fewer rows than columns the shortest solution
    wide = fe.Ridge(1.0, prior=1e10 * np.eye(5)).fit(X, Y)
    np.testing.assert_allclose(wide.coef_, fe.LinearRegression().fit(X, Y).coef_, rtol=1e-6)
    few = fe.Ridge(1.0, prior=1e9 * np.eye(5), fit_intercept=False).fit(X[:3], Y[:3])
    np.testing.assert_allclose(few.coef_, np.linalg.pinv(X[:3]) @ Y[:3], rtol=1e-5)
    with pytest.raises(ValueError, match="'prior' parameter of Ridge must be a covariance matrix of 5 x 5"):
        fe.Ridge(prior=-np.eye(5)).fit(X, Y)


def log_marginal(y, alpha):
    """log p(y | α) with flat priors of b and log σ, by dense algebra: the law of contrasts of y."""
    n = len(y)
    contrasts = linalg.null_space(np.ones((1, n)))
    z = contrasts.T @ Z
    covariance = np.eye(n - 1) + z @ z.T / alpha
    own = contrasts.T @ y
    square = own @ np.linalg.solve(covariance, own)
    return -0.5 * np.linalg.slogdet(covariance)[1] - (n - 1) / 2 * np.log(square)


def test_evidence_chooses_the_strength():
    model = fe.Ridge().fit(X, Y)
    found = optimize.minimize_scalar(
        lambda t: -log_marginal(Y, np.exp(t)), bounds=(-5, 12), method="bounded", options={"xatol": 1e-9}
    )
    np.testing.assert_allclose(np.log(model.alpha_), found.x, atol=1e-4)
    for alpha in (0.3, 30.0):
        gap = fe.Ridge(alpha).fit(X, Y).log_evidence_ - model.log_evidence_
        np.testing.assert_allclose(gap, log_marginal(Y, alpha) - log_marginal(Y, model.alpha_), atol=1e-6)
    # answers of nothing but noise: all is prior
    assert fe.Ridge().fit(X, RNG.normal(size=len(X))).effective_dof_ < 4


def test_the_law_of_a_new_answer_is_the_ratio_of_evidences():
    alpha = 4.0
    model = fe.Ridge(alpha).fit(X[:-1], Y[:-1])
    # p(y* | y) = ∫ p(y*, y | σ, b, w): the same rescaling of columns on both sides
    shift, scale = model.scaling_

    def log_joint(rows, y):
        n = len(y)
        z = (rows - shift) / scale
        contrasts = linalg.null_space(np.ones((1, n)))
        design = contrasts.T @ z
        covariance = np.eye(n - 1) + design @ design.T / alpha
        square = contrasts.T @ y @ np.linalg.solve(covariance, contrasts.T @ y)
        nats = -0.5 * np.linalg.slogdet(covariance)[1] - (n - 1) / 2 * np.log(np.pi * square)
        return nats + special.gammaln((n - 1) / 2) - 0.5 * np.log(n)

    ratio = log_joint(X, Y) - log_joint(X[:-1], Y[:-1])
    np.testing.assert_allclose(model.evidence(X[-1:], Y[-1:]).nats, [ratio], rtol=1e-9)


def test_left_out_rows_and_generalised_cross_validation():
    alphas = np.array([0.1, 1.0, 10.0, 100.0])
    path = fe.Ridge().path(X, Y, alphas)
    for k, alpha in enumerate(alphas):
        residuals = []
        for i in range(len(X)):
            rest = np.arange(len(X)) != i
            # the penalty is in units of all rows
            peer = PeerRidge(alpha).fit(Z[rest], Y[rest])
            residuals.append(Y[i] - peer.predict(Z[i : i + 1])[0])
        np.testing.assert_allclose(path.loo[k], np.mean(np.square(residuals)), rtol=1e-8)
        model = fe.Ridge(alpha).fit(X, Y)
        np.testing.assert_allclose(path.coef[k], model.coef_, rtol=1e-9)
        np.testing.assert_allclose(path.dof[k], model.effective_dof_, rtol=1e-9)
        np.testing.assert_allclose(path.log_evidence[k], model.log_evidence_, rtol=1e-9)
        residual = Y - model.predict(X)
        gcv = np.mean(residual**2) / (1 - path.dof[k] / len(X)) ** 2
        np.testing.assert_allclose(path.gcv[k], gcv, rtol=1e-8)
    chosen = fe.Ridge(alphas).fit(X, Y)
    assert chosen.alpha_ == alphas[np.argmin(path.loo)]
    assert chosen.alpha_ == RidgeCV(alphas).fit(Z, Y).alpha_
    assert len(fe.Ridge().path(X, TWO).alphas) == 50
    with pytest.raises(ValueError, match=r"'alphas' of Ridge\.path must be positive"):
        fe.Ridge().path(X, Y, [0.0])
    with pytest.raises(ValueError, match=r"Ridge\.path takes complete rows only"):
        fe.Ridge().path(np.where(X > 2, np.nan, X), Y)


def test_correlated_outputs_solve_a_sylvester_equation():
    noise = np.array([[1.0, 8.0], [8.0, 100.0]])
    prior = np.diag([1.0, 2.0, 0.5, 0.1, 3.0])
    model = fe.Ridge(0.7, prior=prior, noise=noise).fit(X, TWO)
    centred, answers = X - X.mean(0), TWO - TWO.mean(0)
    gram, along = centred.T @ centred, answers.T @ centred
    # W G + Σ W α P⁻¹ = C, as Σ⁻¹ W G + W α P⁻¹ = Σ⁻¹ C in the rotated inputs
    by_hand = (
        np.linalg.solve(
            np.kron(gram, np.eye(2)) + np.kron(0.7 * np.linalg.inv(prior), noise), along.T.ravel()
        )
        .reshape(5, 2)
        .T
    )
    np.testing.assert_allclose(model.coef_, by_hand, rtol=1e-8)
    # the posterior, by dense algebra over all coefficients
    precision = np.kron(gram, np.linalg.inv(noise)) + np.kron(0.7 * np.linalg.inv(prior), np.eye(2))
    covariance = np.linalg.inv(precision)
    own = covariance.reshape(5, 2, 5, 2)
    np.testing.assert_allclose(model.covariance_[1][1:, 1:], own[:, 1, :, 1], rtol=1e-8, atol=1e-12)
    new = RNG.normal(size=5)
    row = new - X.mean(0)
    spread = noise * (1 + 1 / len(X)) + np.einsum("i,iajb,j->ab", row, own, row)
    law = model.predict_density(new[None])
    np.testing.assert_allclose(law.covariances[0], spread, rtol=1e-8)
    # with independent outputs of one variance, a ridge
    plain = fe.Ridge(2.0, prior=prior, noise=np.eye(2)).fit(X, TWO)
    np.testing.assert_allclose(plain.coef_, fe.Ridge(2.0, prior=prior).fit(X, TWO).coef_, rtol=1e-9)

    # the evidence: log N of centred answers, up to what does not depend on α and Σ
    def log_evidence(alpha):
        n = len(X)
        contrasts = linalg.null_space(np.ones((1, n)))
        kernel = contrasts.T @ X @ prior @ X.T @ contrasts / alpha
        covariance = np.kron(kernel, np.eye(2)) + np.kron(np.eye(n - 1), noise)
        return stats.multivariate_normal(np.zeros(2 * (n - 1)), covariance).logpdf(
            (contrasts.T @ TWO).ravel()
        )

    gap = fe.Ridge(3.0, prior=prior, noise=noise).fit(X, TWO).log_evidence_ - model.log_evidence_
    np.testing.assert_allclose(gap, log_evidence(3.0) - log_evidence(0.7), rtol=1e-6)
    with pytest.raises(ValueError, match="must be one number where 'noise' is given"):
        fe.Ridge(noise=noise).fit(X, TWO)
    with pytest.raises(ValueError, match="'noise' parameter of Ridge must be a covariance matrix of 2 x 2"):
        fe.Ridge(1.0, noise=np.eye(3)).fit(X, TWO)


def test_ridge_streams_and_tells():
    chunks = fe.Chunks(X, rows=50)
    np.testing.assert_allclose(fe.Ridge().fit(chunks, Y).coef_, fe.Ridge().fit(X, Y).coef_, rtol=1e-6)
    with pytest.raises(ValueError, match="one 'alpha', or None, with Chunks"):
        fe.Ridge([1.0, 2.0]).fit(chunks, Y)
    for wrong in (0.0, -1.0, "large", [], [1.0, np.inf]):
        with pytest.raises(
            ValueError, match=r"'alpha' parameter of Ridge must be a float in the range \(0, inf\)"
        ):
            fe.Ridge(wrong).fit(X, Y)
    with pytest.raises(ValueError, match="'fit_intercept' parameter of Ridge must be True or False"):
        fe.Ridge(fit_intercept=3).fit(X, Y)
    text = repr(fe.Ridge(1.0).fit(pd.DataFrame(X, columns=list("abcde")), Y).summary())
    for part in ("alpha", "effective coefficients", "those of the posterior", "intercept"):
        assert part in text


def binomial(hits, trials, level):
    return stats.binomtest(int(hits), trials, level).pvalue > 1e-4


@pytest.mark.parametrize("trials", [150, pytest.param(1000, marks=pytest.mark.slow)])
def test_posterior_intervals_hold_under_their_prior(trials):
    rng = np.random.default_rng(0)
    hits = np.zeros(2)
    for _ in range(trials):
        x = rng.normal(size=(15, 6))
        x /= x.std(0)
        truth = rng.normal(size=6) * 0.5 / np.sqrt(2.0)
        y = x @ truth + 0.5 * rng.normal(size=15)
        model = fe.Ridge(2.0).fit(x, y)
        new = rng.normal(size=(1, 6))
        low, high = model.predict_interval(new, 0.8)
        hits[0] += low[0] <= new[0] @ truth + 0.5 * rng.normal() <= high[0]
        low, high = model.coef_interval(0.8)
        hits[1] += low[0] <= truth[0] <= high[0]
    assert binomial(hits[0], trials, 0.8)
    assert binomial(hits[1], trials, 0.8)


@pytest.mark.parametrize("ratio", [1.0, 0.4])
@pytest.mark.parametrize("alpha", [0.02, 0.3])
def test_the_elastic_net_of_scikit_learn(ratio, alpha):
    peer = ElasticNet(alpha, l1_ratio=ratio, tol=1e-14, max_iter=100_000).fit(Z, V)
    model = fe.SparseRegression(alpha, l1_ratio=ratio).fit(X, Y)
    np.testing.assert_allclose(model.coef_, peer.coef_ * Y.std() / X.std(0), atol=1e-9)
    assert ((model.coef_ != 0) == (np.abs(peer.coef_) > 1e-10)).all()
    assert model.dual_gap_ < 1e-12
    both = fe.SparseRegression(alpha, l1_ratio=ratio).fit(X, TWO)
    np.testing.assert_allclose(both.coef_[0], model.coef_, atol=1e-10)
    residual = Y - model.predict(X)
    left = len(X) - 1 - (model.coef_ != 0).sum()
    np.testing.assert_allclose(model.noise_, np.sqrt(residual @ residual / left), rtol=1e-9)
    # the law of least squares with the columns that are kept, about these coefficients
    design = np.column_stack([np.ones(len(X)), X[:, model.coef_ != 0]])
    leverage = np.einsum("ni,ij,nj->n", design, np.linalg.inv(design.T @ design), design)
    law = stats.t(left, model.predict(X), model.noise_ * np.sqrt(1 + leverage))
    np.testing.assert_allclose(model.evidence(X, Y).nats, law.logpdf(Y), rtol=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_paths_of_wide_and_correlated_columns(seed):
    rng = np.random.default_rng(seed)
    n, p = (30, 60) if seed % 2 else (200, 40)
    x = rng.normal(size=(n, p)) + rng.normal(size=(n, 1)) * (seed > 2)
    y = x[:, :5] @ rng.normal(size=5) + rng.normal(size=n)
    z, v = (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()
    ratio = 1.0 if seed < 4 else 0.5
    found = fe.SparseRegression(l1_ratio=ratio).path(x, y)
    assert found.dual_gap.max() < 1e-9
    assert found.n_iter.max() < 200
    _, peer, _ = enet_path(z, v, l1_ratio=ratio, alphas=found.alphas, tol=1e-10, max_iter=100_000)

    def objective(w, alpha):
        return 0.5 * np.mean((v - z @ w) ** 2) + alpha * (
            ratio * np.abs(w).sum() + 0.5 * (1 - ratio) * w @ w
        )

    for k, alpha in enumerate(found.alphas):
        own = found.coef[k] * x.std(0) / y.std()
        assert objective(own, alpha) <= objective(peer[:, k], alpha) + 1e-9
    assert (found.coef[0] == 0).all()


def test_soft_thresholds_of_orthogonal_columns():
    q, _ = np.linalg.qr(RNG.normal(size=(50, 4)))
    q = np.linalg.qr(q - q.mean(0))[0] * np.sqrt(50)
    y = q @ [0.9, -0.3, 0.1, 0.0] + 0.1
    along = q.T @ (y - y.mean()) / 50
    w, _ = elastic_net(q.T @ q / 50, along, 0.2, 0.0, np.zeros(4), 100)
    np.testing.assert_allclose(w, np.sign(along) * np.maximum(np.abs(along) - 0.2, 0), atol=1e-12)
    # from any start, and columns that repeat each other
    twin = np.column_stack([q, q])
    start = RNG.normal(size=8)
    again, _ = elastic_net(twin.T @ twin / 50, np.tile(along, 2), 0.2, 0.0, start, 1000)
    np.testing.assert_allclose(again[:4] + again[4:], w, atol=1e-8)


def test_folds_choose_the_strength():
    model = fe.SparseRegression().fit(X, Y)
    peer = Lasso(model.alpha_, tol=1e-12).fit(Z, V)
    np.testing.assert_allclose(model.coef_, peer.coef_ * Y.std() / X.std(0), atol=1e-7)
    assert np.flatnonzero(model.coef_).tolist()[:3] == [0, 1, 2]
    order = np.random.default_rng(0).permutation(len(X))
    assert fe.SparseRegression().fit(X[order], Y[order]).alpha_ == pytest.approx(model.alpha_, rel=1e-9)
    # by hand: the same folds, the same loss
    z, v = model.scaling_.apply(X), model.answer_scaling_.apply(Y[:, None])
    folds = _folds(np.column_stack([z, v]))
    assert np.bincount(folds).min() > 15
    losses = []
    for alpha in (model.alpha_ / 3, model.alpha_, model.alpha_ * 3):
        total = 0.0
        for k in range(5):
            own = folds == k
            fit = Lasso(alpha, tol=1e-12, max_iter=100_000).fit(z[~own], v[~own, 0])
            total += np.sum((v[own, 0] - fit.predict(z[own])) ** 2)
        losses.append(total)
    assert losses[1] == min(losses)


def test_sparse_regression_tells():
    chunks = fe.Chunks(X, rows=50)
    np.testing.assert_allclose(
        fe.SparseRegression(0.1).fit(chunks, Y).coef_, fe.SparseRegression(0.1).fit(X, Y).coef_, atol=1e-8
    )
    with pytest.raises(ValueError, match="takes an 'alpha' with Chunks"):
        fe.SparseRegression().fit(chunks, Y)
    with pytest.raises(
        ValueError, match=r"'l1_ratio' parameter of SparseRegression must be a float in the"
    ):
        fe.SparseRegression(l1_ratio=0.0).fit(X, Y)
    with pytest.raises(ValueError, match=r"'alpha' parameter of SparseRegression must be a float in the"):
        fe.SparseRegression(0.0).fit(X, Y)
    with pytest.raises(ValueError, match=r"'alphas' of SparseRegression\.path must be positive"):
        fe.SparseRegression().path(X, Y, [])
    text = repr(fe.SparseRegression(0.1).fit(X, Y).summary())
    for part in ("dual gap", "no standard errors", "coefficients"):
        assert part in text
    # so strong that nothing is left but the mean
    none = fe.SparseRegression(1.01).fit(X, Y)
    assert (none.coef_ == 0).all()
    np.testing.assert_allclose(none.predict(X), Y.mean())
