"""Independent components: the likelihood, its natural gradient, and what can be unmixed."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats
from sklearn.decomposition import FastICA

import freeenergy as fe
from freeenergy import distributions as d
from freeenergy.bijections import GeneralAffine
from freeenergy.distributions import AbstractLocationScale, Transformed
from freeenergy.learning import LBFGS, Gradient, RelativeNewton, fit, negative_log_likelihood
from freeenergy.models import independent_components, spread_sources

RNG = np.random.RandomState(0)
MIXING = np.array([[1.0, 2.0, -1.0], [0.5, -1.0, 3.0], [2.0, 0.3, 1.0]])
SOURCES = RNG.laplace(size=(1500, 3))
X = SOURCES @ MIXING.T + [5.0, 0.0, -100.0]


def amari(unmixing, mixing):
    """Zero if and only if `unmixing` undoes `mixing` up to order and scale."""
    p = np.abs(unmixing @ mixing)
    rows = p / p.max(axis=1, keepdims=True)
    columns = p / p.max(axis=0, keepdims=True)
    n = len(p)
    return (rows.sum() + columns.sum() - 2 * n) / (2 * n * (n - 1))


class Normal(AbstractLocationScale):
    loc: jax.Array = fe.parameter()
    scale: jax.Array = fe.parameter(fe.positive)

    def standard_log_prob(self, z):
        return -0.5 * z**2 - 0.5 * jnp.log(2 * jnp.pi)

    def standard_sample(self, *, key):
        return jax.random.normal(key, self.loc.shape)

    def standard_entropy(self):
        return jnp.full_like(self.loc, 0.5 * jnp.log(2 * jnp.pi * jnp.e))


@pytest.fixture(scope="module")
def fitted():
    return fe.ICA(random_state=0).fit(X)


def test_is_a_linear_flow(fitted):
    flow = fitted.model_.flow
    mixed = Transformed(
        d.HyperbolicSecant(jnp.zeros(3), jnp.ones(3)),
        GeneralAffine(jnp.asarray(fitted.mean_), jnp.asarray(fitted.mixing_)),
    )
    rows = jnp.asarray(X[:20])
    expected = jax.jit(jax.vmap(mixed.log_prob))(rows)
    evidence = fitted.evidence(X[:20])
    assert evidence.kind is fe.Kind.EXACT
    np.testing.assert_allclose(evidence.nats, expected, rtol=1e-9)
    # and by hand
    s = (X[:20] - fitted.mean_) @ fitted.components_.T
    np.testing.assert_allclose(fitted.transform(X[:20]), s, atol=1e-8)
    by_hand = stats.hypsecant(scale=2 / np.pi).logpdf(s).sum(axis=1)
    np.testing.assert_allclose(evidence.nats, by_hand + np.linalg.slogdet(fitted.components_)[1], rtol=1e-9)
    np.testing.assert_allclose(fitted.components_ @ fitted.mixing_, np.eye(3), atol=1e-9)
    assert isinstance(flow, Transformed)
    np.testing.assert_allclose(fitted.history_["objective"][-1], -fitted.score(X), atol=1e-8)


def one_linear_layer(dim, transformer, *, key, **sizes):
    """An architecture: one matrix, and sources that are not Gaussian."""
    zeros, ones = jnp.zeros(dim, jnp.float32), jnp.ones(dim, jnp.float32)
    return independent_components(d.HyperbolicSecant(zeros, ones), jnp.eye(dim, dtype=jnp.float32), zeros)


def test_a_flow_of_one_linear_layer_learns_the_same(fitted):
    # by gradient steps on batches, as any flow
    schedule = optax.cosine_decay_schedule(2e-2, 12 * 120)
    adam = Gradient(optax.adam(schedule), negative_log_likelihood, batch_size=128)
    flow = fe.NormalizingFlow(
        architecture=one_linear_layer, learner=adam, validation_fraction=0, max_iter=120, random_state=0
    ).fit(X)
    # ICA is at the maximum: no flow of this kind is above it, and this one comes near
    assert fitted.score(X) - 1e-4 < flow.score(X) < fitted.score(X) + 1e-9
    unmixing = np.asarray(flow.model_.flow.bijection.bijection.matrix) / flow.scaling_.scale
    assert amari(unmixing, fitted.mixing_) < 0.005


def test_unmixes_at_least_as_well_as_fast_ica(fitted):
    theirs = FastICA(whiten="unit-variance", random_state=0).fit(X)
    assert amari(fitted.components_, MIXING) < 0.05
    assert amari(fitted.components_, MIXING) < amari(theirs.components_, MIXING) + 0.01
    assert fitted.converged_


@pytest.mark.parametrize("source", [d.Laplace, d.Logistic, d.StudentT])
def test_other_sources(source):
    model = fe.ICA(source, random_state=0).fit(X)
    assert amari(model.components_, MIXING) < 0.05


def test_the_right_density_has_the_best_likelihood(fitted):
    assert fe.ICA(d.Laplace, random_state=0).fit(X).score(X) > fitted.score(X)


def test_gaussian_sources_whiten_and_no_more():
    # D is known up to a rotation: DᵀD = ⟨YYᵀ⟩⁻¹, and nothing is unmixed
    model = fe.ICA(Normal(jnp.zeros(1), jnp.ones(1)), random_state=0, tol=1e-8).fit(X)
    inverse = np.linalg.inv(np.cov(X.T, bias=True))
    np.testing.assert_allclose(model.components_.T @ model.components_, inverse, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(
        model.score(X), stats.multivariate_normal(X.mean(0), np.cov(X.T, bias=True)).logpdf(X).mean()
    )
    assert amari(model.components_, MIXING) > 0.1


def test_infomax_fixed_point():
    # with logistic units D^{−T} = ⟨tanh(DY/2) Yᵀ⟩ where E[Y] = 0; without the transpose it is false
    model = fe.ICA(d.Logistic, random_state=0, tol=1e-9).fit(X)
    Y = X - model.mean_
    found = np.tanh(Y @ model.components_.T / 2).T @ Y / len(Y)
    np.testing.assert_allclose(np.linalg.inv(model.components_).T, found, atol=1e-6)
    assert np.abs(np.linalg.inv(model.components_) - found).max() > 0.1


def test_infomax_maximises_the_entropy_of_squashed_sources():
    # H[ψ(DY)] = −KL: for one source the squashed values of the best D are nearest to uniform
    y = RNG.logistic(scale=3.0, size=(4000, 1))
    model = fe.ICA(d.Logistic, random_state=0).fit(y)
    u = 1 / (1 + np.exp(-model.transform(y)[:, 0]))
    assert stats.kstest(u, "uniform").pvalue > 0.01
    assert abs(abs(model.components_[0, 0]) - 1 / 3) < 0.03


def test_logistic_is_scipys():
    member = d.Logistic(jnp.array([1.0, 0.0]), jnp.array([2.0, 0.5]))
    x = np.array([0.3, -40.0])
    expected = stats.logistic.logpdf(x, [1.0, 0.0], [2.0, 0.5]).sum()
    keys = jax.random.split(jax.random.key(0), 2000)

    @jax.jit
    def answers(x):
        return member.log_prob(x), jax.vmap(lambda k: member.sample(key=k))(keys)

    log_prob, draws = map(np.asarray, answers(x))
    np.testing.assert_allclose(log_prob, expected, rtol=1e-12)
    assert stats.kstest(draws[:, 0], stats.logistic(1.0, 2.0).cdf).pvalue > 0.01
    np.testing.assert_allclose(member.standard_entropy(), stats.logistic.entropy(), rtol=1e-12)


def test_relative_gradient_is_a_derivative():
    from freeenergy._core import Data
    from freeenergy.learning._relative import _look, _moved

    sources = d.StudentT(jnp.array([0.0, 0.5]), jnp.array([1.0, 2.0]), jnp.array([3.0, 5.0]))
    model = independent_components(sources, jnp.array([[1.0, 0.2], [-0.4, 2.0]]), jnp.array([0.1, -0.3]))
    data = Data.of(RNG.normal(size=(40, 2)), RNG.rand(40))

    @jax.jit
    def loss(bump):
        return _look(_moved(model, bump), data).loss

    look = jax.tree.map(np.asarray, jax.jit(_look)(model, data))
    each = np.asarray(jax.jit(jax.vmap(model.log_prob))(data.x))
    mean = -np.average(each[:40], weights=np.asarray(data.weight)[:40])
    np.testing.assert_allclose(look.loss, mean, rtol=1e-12)
    for i, j in np.ndindex(2, 3):
        bump = np.zeros((2, 3))
        bump[i, j] = 1e-6
        up, down = (float(loss(t * bump)) for t in (1, -1))
        np.testing.assert_allclose((up - down) / 2e-6, look.slope[i, j], atol=1e-8)


def test_relative_newton_finds_what_lbfgs_finds():
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    start = independent_components(
        spread_sources(d.Logistic(jnp.zeros(1), jnp.ones(1)), 3), jnp.eye(3), jnp.zeros(3)
    )
    mask = fe.freeze(start, lambda m: m.base)
    plain = fit(start, LBFGS(negative_log_likelihood, 1e-7, mask), Z, key=jax.random.key(0), max_iter=500)
    quick = fit(start, RelativeNewton(1e-7), Z, key=jax.random.key(0), max_iter=100)
    np.testing.assert_allclose(quick.history["objective"][-1], plain.history["objective"][-1], atol=1e-9)
    assert quick.n_iter < plain.n_iter
    assert (np.diff(quick.history["objective"]) <= 0).all()
    with pytest.raises(
        TypeError, match=r"RelativeNewton learns models of independent_components. Got a flow from Logistic"
    ):
        fit(
            Transformed(start.base, GeneralAffine(jnp.zeros(3), jnp.eye(3))),
            RelativeNewton(),
            Z,
            key=jax.random.key(0),
        )


def test_many_rows_begin_with_a_part(monkeypatch):
    from freeenergy.estimators.tables import _ica

    whole = fe.ICA(random_state=0, tol=1e-7).fit(X)
    monkeypatch.setattr(_ica, "_FIRST_ROWS", 128)
    part = fe.ICA(random_state=0, tol=1e-7).fit(X)
    np.testing.assert_allclose(part.score(X), whole.score(X), atol=1e-8)
    assert part.n_iter_ < whole.n_iter_


def test_flat_directions():
    # the third column is the sum of the others
    flat = np.column_stack([X[:, :2], X[:, 0] + X[:, 1]])
    model = fe.ICA(random_state=0).fit(flat)
    assert np.isfinite(model.score(flat))
    assert np.isfinite(model.history_["objective"]).all()
    np.testing.assert_allclose(model.history_["objective"][-1], -model.score(flat), atol=1e-6)
    assert model.sample(5, random_state=0).shape == (5, 3)


@pytest.mark.slow
def test_missing_entries():
    holes = np.where(RNG.rand(*X.shape) < 0.1, np.nan, X)
    model = fe.ICA(random_state=0).fit(holes)
    assert amari(model.components_, MIXING) < 0.1
    # the marginal of two columns, by quadrature over the third
    row = X[:1].copy()
    row[0, 2] = np.nan
    evidence = model.evidence(row)
    assert evidence.kind is fe.Kind.LOWER
    grid = np.linspace(X[:, 2].min() - 20, X[:, 2].max() + 20, 4001)
    rows = np.tile(row, (4001, 1))
    rows[:, 2] = grid
    density = np.exp(model.score_samples(rows))
    exact = np.log(np.trapezoid(density, grid))
    assert abs(evidence.nats[0] - exact) < 5 * evidence.stderr[0] + 1e-3
    mean = np.trapezoid(density * grid, grid) / np.trapezoid(density, grid)
    assert abs(model.impute(row)[0, 2] - mean) < 0.5


def test_refuses():
    with pytest.raises(ValueError, match="'source' parameter of ICA must be a density of freeenergy"):
        fe.ICA("laplace").fit(X)
    with pytest.raises(ValueError, match=r"must be for 1 or for all 3 sources. Got 2 instead"):
        fe.ICA(d.Laplace(jnp.zeros(2), jnp.ones(2))).fit(X)
