"""One call for every unknown: energies, causes, missing entries, labels, answers, parameters."""

import dataclasses
import functools
import itertools
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import CASES
from data import STEPS
from scipy import stats
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import freeenergy as fe
from freeenergy.distributions import (
    Bernoulli,
    Beta,
    Binary,
    Blocks,
    Categorical,
    Categories,
    Counts,
    Diagonal,
    Dirichlet,
    Gamma,
    GammaPrior,
    Gaussian,
    Given,
    Poisson,
    Positive,
    Reals,
)
from freeenergy.inference import (
    NUTS,
    ArgMin,
    Collapsed,
    DrawsPosterior,
    Enumerate,
    Importance,
    InverseTransform,
    Laplace,
    MarkovChain,
    Nature,
    RandomWalk,
    Rejection,
    RowsEnergy,
    SequentialMonteCarlo,
    StochasticLangevin,
    gibbs_sweep,
    infer,
)
from freeenergy.inference._choice import Choice, choose_method
from freeenergy.inference._walks import FreeTarget, first_improper, slopes_near
from freeenergy.models import (
    HMM,
    ConditionalInUnits,
    Harmonium,
    LinearGaussian,
    LinearGaussianSSM,
    MixedFactors,
    Mixture,
    Units,
)
from freeenergy.shell import named_fields

FAR = 4.5
SHORT = NUTS(steps=500, burn_in=200)
# of several modes that are walked between slowly
LONG = NUTS(steps=1500, burn_in=300)


def test_what_is_chosen_for_an_energy_and_why():
    coin = fe.infer(fe.Energy(lambda z: -jnp.sum(z), Binary((2,))), key=0)
    assert coin.nature is Nature.EXACT
    np.testing.assert_allclose(coin.mean(), 1 / (1 + np.exp(-1)))
    assert "by Enumerate, since the unknown has 4 states" in repr(coin)
    assert choose_method(Categories(3, (20,))).why.startswith("Gibbs sampling, since the unknown is finite")
    assert choose_method(Counts(())).why == "slices of whole numbers, since the unknown has 1 count"
    with pytest.raises(TypeError, match=r"No method serves an unknown in Blocks\(.*\) by itself\. P"):
        choose_method(Blocks((Counts(),), (1,)))
    with pytest.raises(TypeError, match=r"with counts and a finite part of 1\.02e\+03 states by itself"):
        choose_method((Counts(()), Binary((10,))))
    with pytest.raises(TypeError, match=r"a finite part of 1\.02e\+03 states by itself"):
        choose_method((Reals(()), Binary((10,))))


def test_a_finite_part_is_summed_out():
    weights, means = np.array([0.3, 0.7]), np.array([-2.0, 1.5])

    def energy(z):
        log_w = jnp.log(jnp.asarray(weights))[z["which"]]
        return (z["x"] - jnp.asarray(means)[z["which"]]) ** 2 / 2 - log_w + (z["x"] - 1) ** 2 / 2

    space = {"x": Reals(()), "which": Categories(2)}
    choice = choose_method(space)
    assert isinstance(choice, Choice)
    assert isinstance(choice.method, Collapsed)
    found = fe.infer(fe.Energy(energy, space), method=Collapsed(SHORT), key=0)
    # the product of two normal laws, for each component
    share = weights * stats.norm.pdf(1.0, means, np.sqrt(2))
    share /= share.sum()
    (which, x), (which_error, x_error) = found.expect(lambda z: (z["which"], z["x"]))
    assert abs(which - share[1]) < FAR * which_error
    assert abs(x - share @ ((means + 1) / 2)) < FAR * x_error
    with pytest.raises(TypeError, match=r"'method' of Collapsed must give draws\. Got ArgMin instead"):
        fe.infer(fe.Energy(energy, space), method=Collapsed(ArgMin()), key=0)


def test_hidden_causes_of_models():
    factors = LinearGaussian(jnp.array([[1.0], [0.5]]), jnp.zeros(2), Diagonal(jnp.ones(2)))
    x = np.array([1.0, 2.0])
    exact = fe.infer(factors, x, key=0)
    drawn = fe.infer(factors, x, method=SHORT, key=0)
    mean = (x @ [1.0, 0.5]) / 2.25
    np.testing.assert_allclose(exact.mean(), [mean])
    value, error = drawn.expect(lambda z: z)
    assert (np.abs(value - mean) < FAR * error).all()
    assert exact.note == "the exact posterior, which LinearGaussian knows"
    mixture = Mixture(jnp.array([0.5, 0.5]), Poisson(jnp.array([[1.0], [6.0]])))
    label = fe.infer(mixture, np.array([3.0]), key=0)
    odds = stats.poisson.pmf(3, [1, 6])
    np.testing.assert_allclose(label.probabilities, odds / odds.sum())
    with pytest.raises(ValueError, match=r"infer needs what is 'observed' of the model"):
        fe.infer(mixture, key=0)


@functools.cache
def _fitted(name):
    case = CASES[name]
    X = case.data()
    if X is None:
        X = np.random.RandomState(0).multivariate_normal([1.0, -2.0], [[1.0, 0.6], [0.6, 2.0]], 120)
    return _learned(case.estimator, X), X


def _learned(estimator, X):
    with warnings.catch_warnings():
        # the fits of tests are short
        warnings.simplefilter("ignore", ConvergenceWarning)
        estimator = clone(estimator)
        if "random_state" in estimator.get_params():
            estimator.set_params(random_state=0)
        return estimator.fit(X)


@functools.cache
def _completed(name):
    """A fitted density, a row without its last entry, and what the density itself says of that."""
    model, X = _fitted(name)
    row = X[:1].copy()
    row[0, -1] = np.nan
    return model, row, fe.infer(model, row, key=0)


ROWS = [
    name
    for name, case in CASES.items()
    if case.density and not case.sequence and not case.slow and name != "Dequantised"
]


@pytest.mark.parametrize("name", ROWS)
def test_the_missing_entry_of_every_density_by_two_methods(name):
    """Draws of the density itself, and its log p along the missing entry, which nothing else has made."""
    model, row, found = _completed(name)
    [column] = found.draws
    values = np.asarray(found.draws[column]).ravel()
    space = found.spaces[0]
    if isinstance(space, Reals):
        half = 0.8 * np.ptp(values)
        grid = np.median(values) + np.linspace(-half, half, 121)
    else:
        grid = np.arange(0.0, 2.0 if CASES[name].points is not None and not CASES[name].counts else 40.0)
    rows = np.tile(row, (len(grid), 1))
    rows[:, -1] = grid
    with np.errstate(under="ignore"):
        density = np.exp(model.score_samples(rows) - model.score_samples(row))
    density /= density.sum()
    mean = density @ grid
    spread = np.sqrt(density @ (grid - mean) ** 2)
    rough = 0.0 if found.log_evidence.kind is fe.Kind.EXACT else 0.15 * spread
    assert abs(values.mean() - mean) < FAR * spread / len(values) ** 0.5 + rough
    assert abs(values.std() - spread) < 0.1 * spread + rough
    np.testing.assert_allclose(found.log_evidence.nats, model.score_samples(row)[0])
    if isinstance(space, Reals):
        filled = model.impute(row)[0, -1]
        # the mean of so many draws, with weights where the posterior of the hidden part is approximate
        draws = getattr(model, "importance_samples", None) or 1000
        assert abs(filled - mean) < FAR * spread / draws**0.5 + rough
    assert found.note.startswith("independent draws of the missing entries given the others, which")


WALK = RandomWalk(chains=4, steps=1000, burn_in=500, thin=4)
# of densities that know log p of whole rows, and of those with a hidden cause that they sum out by draws
BY = {
    "GaussianMixture": LONG,
    "FactorAnalysis": SHORT,
    "KernelDensity": SHORT,
    "GaussianCopula": WALK,
    "RBM": Enumerate(),
    "Mixture-bernoulli": Enumerate(),
    "BayesianNetwork": Enumerate(),
    "VAE": SHORT,
    "SparseCoding": WALK,
    "MixedFactorAnalysis": Importance(Gaussian(jnp.zeros(1), Diagonal(jnp.ones(1)))),
}
BY_SLOWLY = {"NormalizingFlow": WALK, "LatentDirichletAllocation": SHORT}


@pytest.mark.parametrize("name", [*BY, *(pytest.param(name, marks=pytest.mark.slow) for name in BY_SLOWLY)])
def test_missing_entries_by_a_method_agree_with_the_density(name):
    model, row, own = _completed(name)
    found = fe.infer(model, row, method=(BY | BY_SLOWLY)[name], key=0)
    [column] = own.draws
    (a, a_error), (b, b_error) = (one.expect(lambda z: z[column]) for one in (own, found))
    assert abs(a - b) < FAR * np.hypot(a_error, b_error)
    if found.log_evidence is not None:
        error = np.hypot(found.log_evidence.stderr, own.log_evidence.stderr)
        assert abs(found.log_evidence.nats - own.log_evidence.nats) < FAR * error + 1e-9


def test_missing_units_of_a_harmonium_are_those_of_its_table():
    model, X = _fitted("RBM")
    row = X[:1].copy()
    row[0, 1:3] = np.nan
    inner = model.model_
    w, b, c = (np.asarray(v) for v in (inner.coupling, inner.visible.bias, inner.hidden.bias))
    hidden = np.array(list(itertools.product([0.0, 1.0], repeat=len(c))))
    tried = np.array([np.where(np.isnan(row[0]), [0, i, j, 0], row[0]) for i in (0, 1) for j in (0, 1)])
    table = np.exp(tried @ w @ hidden.T + (tried @ b)[:, None] + hidden @ c).sum(axis=1)
    table /= table.sum()
    exact = fe.infer(model, row, method=Enumerate(), key=0)
    np.testing.assert_allclose(exact.probabilities, table, rtol=1e-9)
    np.testing.assert_allclose(exact.log_evidence.nats, model.score_samples(row)[0])
    walked = fe.infer(model, row, method=MarkovChain(gibbs_sweep), key=0)
    both, error = walked.expect(lambda z: z["x1"] * z["x2"])
    assert abs(both - table[3]) < FAR * error
    with pytest.raises(TypeError, match=r"^Free reals need a tree of continuous spaces\. Got Binary"):
        fe.infer(model, row, method=SHORT, key=0)


def test_a_missing_number_of_sparse_codes_is_that_of_quadrature():
    model, X = _fitted("SparseCoding")
    inner, scaling = model.model_, model.scaling_
    z = (X[0, 0] - scaling.shift[0]) / scaling.scale[0]
    place = np.linspace(-14, 14, 561)
    sources = np.stack(np.meshgrid(place, place), axis=-1)
    clean = sources @ np.asarray(inner.dictionary).T + np.asarray(inner.mean)
    # a Laplace prior, and noise of the same precision in both columns
    log_joint = -np.abs(sources).sum(axis=-1) - float(inner.precision) / 2 * (z - clean[..., 0]) ** 2
    weight = np.exp(log_joint - log_joint.max())
    mean = (weight * clean[..., 1]).sum() / weight.sum()
    second = (weight * (clean[..., 1] ** 2 + 1 / float(inner.precision))).sum() / weight.sum()
    found = fe.infer(model, [[X[0, 0], np.nan]], method=WALK, key=1)
    moments, error = found.expect(
        lambda e: ((e["x1"] - scaling.shift[1]) / scaling.scale[1]) ** jnp.arange(1.0, 3.0)
    )
    assert (np.abs(moments - np.array([mean, second])) < FAR * error).all()
    assert found.note.endswith("the hidden cause of SparseCoding, which was inferred by RandomWalk")
    with pytest.raises(TypeError, match=r"'method' must give draws of that\. Got ArgMin instead"):
        fe.infer(model, [[X[0, 0], np.nan]], method=ArgMin(), key=0)


def test_a_missing_count_of_topics_is_that_of_its_sum():
    model, X = _fitted("LatentDirichletAllocation")
    first = X[0, 0]
    # p(counts) = p(length) Multinomial(counts | θφ) with θ ~ Dirichlet(α), by sums over θ and the count
    alpha, topics = np.asarray(model.model_.alpha), model.components_
    edge = (np.arange(4000) + 0.5) / 4000
    share = stats.beta(*alpha).ppf(edge)
    seen = np.outer(share, topics[0]) + np.outer(1 - share, topics[1])
    counts = np.arange(80)
    pairs = np.stack([np.full(80, first), counts], axis=1)
    chances = np.exp(
        model.length_law_.log_prob(pairs.sum(axis=1))
        + stats.multinomial.logpmf(pairs[None], pairs.sum(axis=1)[None], seen[:, None])
    ).mean(axis=0)
    found = fe.infer(model, [[first, np.nan]], method=LONG, key=1)
    mean, error = found.expect(lambda e: e["x1"])
    assert abs(mean - chances @ counts / chances.sum()) < FAR * error
    none, error = found.expect(lambda e: e["x1"] == 0)
    assert abs(none - chances[0] / chances.sum()) < FAR * error


@pytest.mark.parametrize(
    "name", [n for n, case in CASES.items() if case.sequence and not case.slow and case.density]
)
@pytest.mark.slow
def test_missing_entries_of_every_density_of_series(name):
    case = CASES[name]
    rng = np.random.RandomState(0)
    if case.symbols:
        X = rng.randint(0, case.symbols, (STEPS, 1)).astype(float)
    else:
        X = np.cumsum(rng.normal(size=(STEPS, 2)), axis=0)
    if name == "StructuralTimeSeries":
        X = X[:, :1]
    model = _learned(case.estimator, X)
    short = X.copy()
    short[5, 0] = np.nan
    found = fe.infer(model, short, key=0)
    assert list(found.draws) == ["x0[5]"]
    values = np.asarray(found.draws["x0[5]"]).ravel()
    if case.symbols:
        share = np.array([np.mean(values == v) for v in range(case.symbols)])
        tried = np.stack([np.where(np.isnan(short), v, short) for v in range(case.symbols)])
        chances = np.exp([model.evidence(one).nats[0] for one in tried])
        chances /= chances.sum()
        assert np.abs(share - chances).max() < FAR * 0.5 / len(values) ** 0.5
        listed = fe.infer(model, short, method=Enumerate(), key=0)
        np.testing.assert_allclose(listed.probabilities, chances, rtol=1e-9)
        np.testing.assert_allclose(listed.log_evidence.nats, found.log_evidence.nats)
        return
    filled = model.impute(short)[5, 0]
    rough = 0.0 if found.log_evidence.kind is fe.Kind.EXACT else 0.2
    assert abs(values.mean() - filled) < (FAR / len(values) ** 0.5 + rough) * values.std()
    if found.log_evidence.kind is not fe.Kind.EXACT:
        return
    # of Gaussian models the energy is a parabola: Laplace's method against the smoother
    gaussian = name != "HMM"
    again = fe.infer(model, short, method=Laplace() if gaussian else LONG, key=0)
    mean, error = again.expect(lambda z: z["x0[5]"])
    assert abs(mean - filled) < FAR * error
    if gaussian:
        np.testing.assert_allclose(again.log_evidence.nats, found.log_evidence.nats, rtol=1e-6)
        np.testing.assert_allclose(np.std(again.draws["x0[5]"]), values.std(), rtol=0.1)


def _level(noise):
    """A local level, seen with noise of variance one."""
    one = jnp.ones((1, 1))
    return LinearGaussianSSM(
        jnp.zeros(1),
        Diagonal(jnp.array([2.0])),
        one,
        jnp.zeros(1),
        Diagonal(jnp.array([noise])),
        one,
        jnp.zeros(1),
        Diagonal(jnp.ones(1)),
    )


def test_missing_entries_of_a_linear_system_are_those_of_its_covariance():
    """Two entries at once, against the joint Gaussian of all steps, written out."""
    steps = np.arange(8)
    covariance = 2.0 + 0.5 * np.minimum.outer(steps, steps) + np.eye(8)
    x = np.array([0.3, 1.0, np.nan, 0.5, np.nan, 2.0, 1.5, 1.0])
    holes = np.isnan(x)
    across = covariance[np.ix_(holes, ~holes)] @ np.linalg.inv(covariance[np.ix_(~holes, ~holes)])
    mean = across @ x[~holes]
    left = covariance[np.ix_(holes, holes)] - across @ covariance[np.ix_(~holes, holes)]
    system = fe.LinearGaussianSSM.from_model(_level(0.5))
    found = fe.infer(system, x[:, None], method=Laplace(), key=0)
    whole = stats.multivariate_normal(cov=covariance[np.ix_(~holes, ~holes)])
    np.testing.assert_allclose(found.log_evidence.nats, whole.logpdf(x[~holes]), rtol=1e-6)
    both = left[0, 1] + mean[0] * mean[1]
    for one in (found, fe.infer(system, x[:, None], method=WALK, key=0)):
        moments, error = one.expect(lambda z: jnp.stack([z["x0[2]"], z["x0[4]"], z["x0[2]"] * z["x0[4]"]]))
        assert (np.abs(moments - np.array([*mean, both])) < FAR * error).all()


def _shares(logs):
    """Weights of sum one."""
    return np.exp(logs - np.logaddexp.reduce(logs))


@pytest.mark.slow
def test_missing_entries_behind_regimes_are_those_of_all_paths():
    """Each of the 2⁶ paths is a Gaussian of all steps, written out: Kim's filter has none of it."""
    rng = np.random.RandomState(0)
    own = _learned(CASES["SwitchingLinearSystem"].estimator, np.cumsum(rng.normal(size=(60, 1)), axis=0))
    x = np.array([0.2, 0.0, np.nan, 4.0, 4.5, np.nan])
    # regimes that change often, so that many paths count
    own.model_ = eqx.tree_at(
        lambda m: (m.initial, m.transition),
        own.model_,
        (jnp.array([0.6, 0.4]), jnp.array([[0.7, 0.3], [0.4, 0.6]])),
    )
    inner, scaling = own.model_, own.scaling_
    systems = inner.systems
    A, a, C, c = (
        np.asarray(v).ravel() for v in (systems.transition, systems.offset, systems.emission, systems.mean)
    )
    start, P, Q, R = (
        np.asarray(v).ravel()
        for v in (
            systems.initial_mean,
            systems.initial_covariance.value,
            systems.noise.variance,
            systems.emission_noise.variance,
        )
    )
    chance = np.log(np.asarray(inner.transition))
    holes = np.isnan(x)
    terms = []
    for path in itertools.product([0, 1], repeat=6):
        s = np.array(path)
        # the state is a sum of what came in before, each times the transitions since
        mean, loads = [start[s[0]]], [np.eye(6)[0] * np.sqrt(P[s[0]])]
        for t in range(1, 6):
            mean.append(A[s[t]] * mean[-1] + a[s[t]])
            loads.append(A[s[t]] * loads[-1] + np.eye(6)[t] * np.sqrt(Q[s[t]]))
        loads = scaling.scale[0] * C[s, None] * np.array(loads)
        mean = scaling.shift[0] + scaling.scale[0] * (C[s] * mean + c[s])
        cov = loads @ loads.T + np.diag(scaling.scale[0] ** 2 * R[s])
        seen = stats.multivariate_normal(mean[~holes], cov[np.ix_(~holes, ~holes)])
        gain = cov[np.ix_(holes, ~holes)] @ np.linalg.inv(cov[np.ix_(~holes, ~holes)])
        centre = mean[holes] + gain @ (x - mean)[~holes]
        left = cov[np.ix_(holes, holes)] - gain @ cov[np.ix_(~holes, holes)]
        log_path = np.log(np.asarray(inner.initial)[s[0]]) + chance[s[:-1], s[1:]].sum()
        moments = [*centre, *(np.diag(left) + centre**2), left[0, 1] + centre[0] * centre[1]]
        terms.append((log_path + seen.logpdf(x[~holes]), moments))
    logs, moments = np.array([log for log, _ in terms]), np.array([m for _, m in terms])
    exact = _shares(logs) @ moments

    def powers(z):
        a, b = z["x0[2]"], z["x0[5]"]
        return jnp.stack([a, b, a**2, b**2, a * b])

    listed = fe.infer(own, x[:, None], method=Enumerate(), key=0)
    np.testing.assert_allclose(listed.log_evidence.nats, np.logaddexp.reduce(logs), rtol=1e-9)
    value, error = listed.expect(powers)
    assert (np.abs(value - exact) < FAR * error).all()
    assert listed.note.endswith("SwitchingLinearSystem, which was inferred by Enumerate")
    # Kim's filter and smoother are near
    near = fe.infer(own, x[:, None], key=0)
    assert near.note.endswith("which SwitchingLinearSystem makes approximately")
    rough, error = near.expect(powers)
    assert (np.abs(rough - exact) < FAR * error + 0.1 * np.abs(exact)).all()


def test_a_missing_whole_number_is_that_of_its_cells():
    model, X = _fitted("Dequantised")
    inner = model.estimator_.model_in_units.family
    law = stats.multivariate_normal(inner.mean, inner.covariance.matrix())
    first, values = X[0, 0], np.arange(-3.0, 5.0)

    def below(a, b):
        return law.cdf(np.stack(np.broadcast_arrays(a, b), axis=-1))

    mass = below(first + 1, values + 1) - below(first, values + 1)
    mass = mass - below(first + 1, values) + below(first, values)
    found = fe.infer(model, [[first, np.nan]], method=SHORT, key=0)
    drawn = np.asarray(found.draws["x1"])
    assert (drawn == np.rint(drawn)).all()
    powers, error = found.expect(
        lambda z: jnp.stack([z["x1"], z["x1"] ** 2, (z["x1"] == values[4]).astype(float)])
    )
    share = mass / mass.sum()
    exact = np.array([share @ values, share @ values**2, share[4]])
    assert (np.abs(powers - exact) < FAR * error).all()
    own, error = fe.infer(model, [[first, np.nan]], key=0).expect(lambda z: z["x1"])
    assert abs(own - share @ values) < FAR * error + 0.02


def _moments(values, log_weights):
    """E[v] and E[v²] by a sum over a grid."""
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    return np.array([(weights * values).sum(), (weights * values**2).sum()])


def test_the_variance_of_a_level_is_that_of_quadrature():
    y = np.array([0.3, 1.0, 2.2, 1.5, 3.0, 2.5])
    grid = np.linspace(1e-4, 12, 6001)
    m, v, log_prob = np.zeros_like(grid), np.full_like(grid, 2.0), np.zeros_like(grid)
    for t, value in enumerate(y):
        v = v + grid * (t > 0)
        log_prob += stats.norm.logpdf(value, m, np.sqrt(v + 1))
        gain = v / (v + 1)
        m, v = m + gain * (value - m), v * (1 - gain)
    log_prob += stats.gamma(2.0, scale=0.5).logpdf(grid)
    prior = {"noise.variance": Gamma(jnp.array([2.0]), jnp.array([2.0]))}
    found = fe.infer(
        _level(1.0), y[None, :, None], prior=prior, unknown=["noise.variance"], method=WALK, key=0
    )
    assert list(named_fields(found.mean())) == ["noise.variance"]
    moments, error = found.expect(lambda own: own.noise.variance[0] ** jnp.arange(1.0, 3.0))
    assert (np.abs(moments - _moments(grid, log_prob)) < FAR * error).all()


def test_the_transitions_of_a_hidden_chain_are_those_of_quadrature():
    symbols = np.array([0, 0, 1, 1, 1, 0, 2, 2, 1, 0, 0, 0])
    initial, emission = np.array([0.6, 0.4]), np.array([[0.7, 0.2, 0.1], [0.1, 0.4, 0.5]])
    place = (np.arange(120) + 0.5) / 120
    stay, leave = np.meshgrid(place, place, indexing="ij")
    log_prob = stats.beta(2, 1).logpdf(stay) + stats.beta(2, 1).logpdf(leave)
    first, second = initial[0] * emission[0, 0], initial[1] * emission[1, 0]
    for symbol in symbols[1:]:
        first, second = (
            (first * stay + second * (1 - leave)) * emission[0, symbol],
            (first * (1 - stay) + second * leave) * emission[1, symbol],
        )
    log_prob += np.log(first + second)
    chain = HMM(
        jnp.asarray(initial),
        jnp.array([[0.5, 0.5], [0.5, 0.5]]),
        Categorical(jnp.asarray(emission)[:, None]),
    )

    def log_prior(model):
        return jnp.sum(jnp.log(jnp.diagonal(model.transition.rows)))

    found = fe.infer(
        chain,
        symbols[None, :, None],
        prior=log_prior,
        unknown=["transition.rows"],
        method=SHORT,
        key=0,
    )
    for k, values in enumerate((stay, leave)):
        moments, error = found.expect(lambda m, k=k: m.transition.rows[k, k] ** jnp.arange(1.0, 3.0))
        assert (np.abs(moments - _moments(values, log_prob)) < FAR * error).all()
    with pytest.raises(
        ValueError, match=r"The 'unknown' must name fields of HMM: initial, .* Got 'matrix' in"
    ):
        fe.infer(chain, symbols[None, :, None], prior=log_prior, unknown=["matrix"], key=0)


def test_coefficients_with_a_conjugate_prior_are_those_of_bayesian_regression():
    rng = np.random.RandomState(0)
    X = rng.normal(size=(20, 2)) * [1.0, 3.0] + [0.0, 2.0]
    y = X @ [1.0, -0.5] + rng.normal(size=20)
    closed = fe.BayesianLinearRegression(0.5, prior=np.eye(2), noise=(3.0, 2.0), fit_intercept=False)
    closed.fit(X, y)
    precision = X.T @ X + 0.5 * np.eye(2)
    mean = np.linalg.solve(precision, X.T @ y)
    np.testing.assert_allclose(closed.coef_, mean)
    a, b = 3 + len(y) / 2, 2 + (y @ y - mean @ precision @ mean) / 2

    def log_prior(model):
        variance, w = model.answer.learned.covariance.variance[0], model.function.weight[0]
        return -4 * jnp.log(variance) - 2 / variance - jnp.log(variance) - 0.25 * w @ w / variance

    # without an intercept, which is no unknown then
    found = fe.infer(fe.LinearRegression(fit_intercept=False), (X, y), prior=log_prior, method=SHORT, key=0)
    assert list(named_fields(found.mean())) == ["function.weight", "answer.learned.covariance.variance"]
    w, error = found.expect(lambda m: m.function.weight[0])
    assert (np.abs(w - mean) < FAR * error).all()
    variance, error = found.expect(lambda m: m.answer.learned.covariance.variance[0])
    assert abs(variance - b / (a - 1)) < FAR * error
    spread, error = found.expect(lambda m: (m.function.weight[0] - jnp.asarray(mean)) ** 2)
    exact = b / (a - 1) * np.diag(np.linalg.inv(precision))
    assert (np.abs(spread - exact) < FAR * error).all()
    with pytest.raises(
        TypeError, match=r"inferred from rows and answers, a pair \(X, y\)\. Got ndarray in"
    ):
        fe.infer(closed, X, prior=log_prior, key=0)
    with pytest.raises(
        ValueError, match=r"all of them observed\. Got 20 rows, 0 missing entries and 19 ans"
    ):
        fe.infer(closed, (X, y[1:]), prior=log_prior, key=0)


def test_coefficients_of_labels_are_those_of_quadrature():
    rng = np.random.RandomState(1)
    x = rng.normal(2.0, 3.0, 12)
    y = (rng.rand(12) < 1 / (1 + np.exp(1 - 0.7 * x))).astype(float)
    place = np.linspace(-6, 6, 241)
    slope, bias = np.meshgrid(place, place, indexing="ij")
    # normal priors of variance two: of the difference of two numbers with variance one, too
    log_prob = -(slope**2 + bias**2) / 4
    log_prob += sum(
        v * (slope * u + bias) - np.logaddexp(0, slope * u + bias) for u, v in zip(x, y, strict=True)
    )
    exact = np.concatenate([_moments(slope, log_prob), _moments(bias, log_prob)])
    two = Gaussian(jnp.zeros(1), Diagonal(jnp.full(1, 2.0)))
    one = Gaussian(jnp.zeros(1), Diagonal(jnp.ones(1)))
    names = np.where(y == 1, "yes", "no")
    odds = fe.infer(
        fe.GeneralisedLinearModel(Bernoulli),
        (x[:, None], y),
        prior={"function.weight": two, "function.bias": two},
        method=WALK,
        key=0,
    )
    shares = fe.infer(
        fe.SoftmaxRegression().fit(x[:, None], names),
        (x[:, None], names),
        prior={"weight": one, "bias": one},
        method=WALK,
        key=0,
    )
    powers = jnp.arange(1.0, 3.0)
    for found, pair in (
        (odds, lambda m: (m.function.weight[0, 0], m.function.bias[0])),
        (shares, lambda m: (m.weight[1, 0] - m.weight[0, 0], m.bias[1] - m.bias[0])),
    ):
        moments, error = found.expect(lambda m, pair=pair: jnp.concatenate([v**powers for v in pair(m)]))
        assert (np.abs(moments - exact) < FAR * error).all()
    with pytest.raises(ValueError, match=r"among those that were fitted\. Got 'perhaps' instead"):
        fe.infer(
            fe.SoftmaxRegression().fit(x[:, None], names),
            (x[:1, None], ["perhaps"]),
            prior={"weight": one},
            key=0,
        )


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_parameters_of_networks_and_thresholds():
    rng = np.random.default_rng(0)
    x, walk = rng.normal(5.0, 3.0, (40, 1)), RandomWalk(steps=10, burn_in=1)
    y = 100 * np.sin(x[:, 0]) + rng.normal(size=40)
    network = fe.MixtureDensity(2, width=3, max_iter=2, random_state=0).fit(x, y)
    scores = network.predict_density(x).log_prob(y)
    inside = network.model_in_units
    assert isinstance(inside, ConditionalInUnits)
    law = eqx.filter_jit(lambda model, x, y: model.posterior(x).log_prob(y))
    np.testing.assert_allclose(law(inside, x[0], y[:1]), scores[0], rtol=1e-9)

    def small(model, xp=jnp):
        layers = model.model.function.layers
        return -sum(xp.sum(xp.square(a)) for layer in layers for a in (layer.weight, layer.bias)) / 2

    # chains begin at the fit
    found = fe.infer(network, (x, y), prior=small, method=walk, key=0)
    np.testing.assert_allclose(
        found.diagnostics["start_energy"], -scores.sum() - small(inside, np), rtol=1e-9
    )
    # labels have the numbers of their order, which is not that of their letters
    labels = np.array(["low", "mid", "high"])[np.digitize(x[:, 0] + rng.logistic(size=40), [4.0, 6.0])]
    ordered = fe.OrderedRegression(order=["low", "mid", "high"]).fit(x, labels)
    found = fe.infer(ordered, (x, labels), prior=lambda m: -(m.weight @ m.weight), method=walk, key=0)
    np.testing.assert_allclose(
        found.diagnostics["start_energy"],
        ordered.coef_ @ ordered.coef_ - ordered.evidence_of_labels(x, labels).nats.sum(),
        rtol=1e-9,
    )


def test_labels_and_answers():
    rng = np.random.RandomState(0)
    X = rng.normal(size=(80, 2))
    classifier = fe.NaiveBayes().fit(X, np.where(X[:, 0] > 0, "yes", "no"))
    found = fe.infer(classifier, X[:1], key=0)
    np.testing.assert_allclose(found.probabilities, classifier.predict_proba(X[:1])[0])
    assert found.spaces == (Categories(2, (), ("no", "yes")),)
    assert list(found.marginals()["z"].values()) == list(map(float, found.probabilities))
    ridge = fe.Ridge().fit(X, X @ [1.0, 2.0] + rng.normal(size=80))
    answer = fe.infer(ridge, X[:1], key=0)
    law = ridge.predict_density(X[:1])
    mean, error = answer.expect(lambda y: y)
    assert abs(mean - law.mean()[0]) < FAR * error
    low, high = answer.interval(0.9)
    np.testing.assert_allclose([low, high], np.ravel(law.interval(0.9)), atol=0.2)


def test_parameters_with_a_prior_on_a_field():
    counts = np.array([[2.0], [0.0], [3.0], [1.0], [4.0]])
    prior = {"rate": Gamma(jnp.array([2.0]), jnp.array([1.0]))}
    found = fe.infer(Poisson(jnp.ones(1)), counts, prior=prior, method=SHORT, key=0)
    a, b = 2 + counts.sum(), 1 + len(counts)
    mean, error = found.expect(lambda m: m.rate[0])
    assert abs(mean - a / b) < FAR * error
    thinned = np.asarray(found.draws.rate)[:, ::5].ravel()
    assert stats.kstest(thinned, stats.gamma(a, scale=1 / b).cdf).pvalue > 1e-4
    assert list(named_fields(found.mean())) == ["rate"]
    with pytest.raises(
        ValueError, match=r"The 'prior' must name fields of Poisson: rate\. Got 'mean' inst"
    ):
        fe.infer(Poisson(jnp.ones(1)), counts, prior={"mean": prior["rate"]}, key=0)


def test_parameters_of_a_fitted_mixture():
    rng = np.random.RandomState(0)
    X = np.concatenate([rng.normal(-3, 1, (30, 1)), rng.normal(3, 1, (60, 1))])
    model = fe.GaussianMixture(2, random_state=0).fit(X)

    def log_prior(m):
        spread = jnp.diagonal(m.components.covariance.value, axis1=-2, axis2=-1)
        logs = jnp.log(spread)
        return jnp.sum(jnp.log(m.weights)) - jnp.sum(m.components.mean**2) / 200 - jnp.sum(logs**2)

    found = fe.infer(model, X, prior=log_prior, method=NUTS(steps=300, burn_in=200), key=0)
    weights, error = found.expect(lambda m: jnp.sort(m.weights))
    # two far components: the labels are as good as known, and Dirichlet(2, 2) meets 30 and 60
    np.testing.assert_allclose(weights, np.array([32, 62]) / 94, atol=FAR * np.max(error) + 0.01)


def test_the_parameters_of_a_classifier_are_those_of_each_class():
    X = np.array([[0.0, 1.0], [0.0, 0.0], [1.0, np.nan], [1.0, 1.0], [1.0, 1.0]])
    y = np.array(["a", "a", "b", "b", "b"])
    flat = Beta([1.0, 1.0], [1.0, 1.0])
    prior = {"weights": Dirichlet([2.0, 2.0]), "components.probability": flat}
    found = fe.infer(fe.NaiveBayes(Bernoulli), (X, y), prior=prior, method=SHORT, key=0)
    (weights, chances), error = found.expect(lambda m: (m.weights, m.components.probability))
    # of each class Beta(1 + ones, 1 + zeros), where NaN is neither
    assert (np.abs(weights - np.array([4, 5]) / 9) < FAR * error[0]).all()
    assert (np.abs(chances - np.array([[1 / 4, 1 / 2], [4 / 5, 3 / 4]])) < FAR * error[1]).all()
    with pytest.raises(
        TypeError, match=r"of NaiveBayes are inferred from rows and answers, a pair \(X, y\)"
    ):
        fe.infer(fe.NaiveBayes(Bernoulli).fit(X, y), X, prior=prior, key=0)


def test_the_coupling_of_a_harmonium_is_that_of_a_grid():
    rows = np.array([[1.0, 1.0], [1.0, 1.0], [0.0, 0.0], [1.0, 0.0], [1.0, 1.0]])
    b, c, steps = np.array([0.3, -0.2]), -0.5, np.linspace(-9, 9, 181)
    first, second = np.meshgrid(steps, steps, indexing="ij")
    # p(x) ∝ Σ_z exp(bᵀx + cz + z Wᵀx), by all states
    states = list(itertools.product([0.0, 1.0], repeat=2))
    logs = {x: b @ x + np.logaddexp(0, c + first * x[0] + second * x[1]) for x in states}
    log_prob = sum(logs[tuple(row)] for row in rows) - len(rows) * np.logaddexp.reduce(list(logs.values()))
    log_prob += stats.norm(0, 2).logpdf(first) + stats.norm(0, 2).logpdf(second)
    model = Harmonium(Units(Bernoulli, jnp.asarray(b)), Units(Bernoulli, jnp.array([c])), jnp.zeros((2, 1)))
    prior = {"coupling": Gaussian(0.0, Diagonal(4.0))}
    found = fe.infer(model, rows, prior=prior, unknown="coupling", method=SHORT, key=0)
    for k, values in enumerate((first, second)):
        moments, error = found.expect(lambda m, k=k: m.coupling[k, 0] ** jnp.arange(1.0, 3.0))
        assert (np.abs(moments - _moments(values, log_prob)) < FAR * error).all()
    with pytest.raises(
        ValueError, match=r"of Harmonium are inferred from events that are all there, since"
    ):
        fe.infer(model, [[1.0, np.nan]], prior=prior, unknown="coupling", key=0)


def test_parameters_behind_hidden_causes_are_those_of_quadrature():
    """Counts of mean exp(b + z / 2) with a factor z of each row, summed out by hand."""
    counts = np.array([[0.0], [3.0], [np.nan], [7.0], [1.0]])
    place, weight = np.polynomial.hermite_e.hermegauss(60)
    grid = np.linspace(-6, 6, 601)
    rates = np.exp(grid[:, None] + 0.5 * place)
    log_prob = stats.norm.logpdf(grid) + sum(
        np.log(stats.poisson.pmf(count, rates) @ weight / weight.sum()) for count in (0, 3, 7, 1)
    )
    model = MixedFactors(jnp.array([[0.5]]), jnp.zeros(1), Given(Poisson(jnp.ones(1))))
    found = fe.infer(model, counts, prior={"bias": Gaussian(0.0, Diagonal(1.0))}, unknown="bias", key=0)
    assert list(named_fields(found.mean())) == ["bias"]
    assert found.spaces == (Reals((1,)),)
    assert found.note.endswith("with 6 free reals; the hidden causes of MixedFactors were inferred too")
    moments, error = found.expect(lambda m: m.bias[0] ** jnp.arange(1.0, 3.0))
    assert (np.abs(moments - _moments(grid, log_prob)) < FAR * error).all()
    with pytest.raises(
        TypeError, match=r"hidden cause of each event: the 'method' must give draws of both"
    ):
        fe.infer(model, counts, prior={}, unknown="bias", method=ArgMin(), key=0)


def test_parameters_behind_bits_are_refused_in_a_sentence():
    case = CASES["VAE-bits"]
    model, rows = _learned(clone(case.estimator).set_params(max_iter=1), case.data()), case.data()[:3]
    with pytest.raises(TypeError, match=r"of VAE are .* must be continuous for that. Got Binary instead"):
        fe.infer(model, rows, prior=_weak_prior, key=0)


def _weak_prior(model):
    """Normal laws about zero of all numbers, wide ones."""
    return (
        -sum(jnp.sum(jnp.square(v)) for v in named_fields(model).values() if eqx.is_inexact_array(v)) / 200
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["HMM", "LinearGaussianSSM"])
def test_parameters_of_models_of_series(name):
    rng = np.random.RandomState(0)
    X = np.where(np.arange(60)[:, None] // 10 % 2, 3.0, -3.0) + rng.normal(size=(60, 1))
    model = _learned(CASES[name].estimator, X)
    with warnings.catch_warnings():
        # short chains, to see that they run
        warnings.simplefilter("ignore", ConvergenceWarning)
        short = NUTS(steps=40, burn_in=40, doublings=5)
        found = fe.infer(model, X, prior=_weak_prior, method=short, key=0)
    assert found.note == ""
    names, chains = found.chains()
    assert np.isfinite(chains).all()
    assert len(names) == chains.shape[2]
    # chains are where the data leave them: about the fit
    assert np.mean(found.diagnostics["energy"]) < -model.score_samples([X])[0] + 30


def test_unknowns_that_are_not_there_are_refused():
    X = np.random.RandomState(0).normal(size=(50, 2))
    model = fe.GaussianDensity().fit(X)
    with pytest.raises(
        ValueError, match=r"^infer asks for what is missing \(NaN\)\. Got nothing that is m"
    ):
        fe.infer(model, X[:1], key=0)
    with pytest.raises(ValueError, match=r"asks GaussianDensity of one row at a time. Got 2 rows instead"):
        fe.infer(model, X[:2], key=0)
    with pytest.raises(
        TypeError, match=r"infer takes an Energy, .* a model with an energy, .* Got int instead"
    ):
        fe.infer(3, X, key=0)
    with pytest.raises(TypeError, match=r"infer has no unknown to ask KMeans for"):
        fe.infer(fe.KMeans(2).fit(X), X[:1], key=0)
    with pytest.raises(ValueError, match=r"must give one number .* Got the shape \(2,\) instead"):
        fe.infer(fe.Energy(lambda z: z, Reals((2,))), key=0)


def test_parameters_of_what_needs_inputs_are_refused():
    pushed = dataclasses.replace(_level(0.5), input_emission=jnp.ones((1, 1)))
    system, y = fe.LinearGaussianSSM.from_model(pushed), np.zeros((6, 1))
    with pytest.raises(
        ValueError, match=r"from series without inputs. Got LinearGaussianSSM, .* fitted with 1"
    ):
        fe.infer(system, y, prior=_weak_prior, key=0)
    with pytest.raises(ValueError, match=r"with inputs needs those of every time step. Got None"):
        fe.infer(pushed, y[None], prior=_weak_prior, key=0)


def _flat(z):
    return 0.0 * jnp.sum(z)


class _Power(eqx.Module):
    """−log of z^−p exp(−b (log z)²/2)."""

    power: np.ndarray
    bend: np.ndarray

    def __call__(self, z):
        return self.power * jnp.log(z[0]) + self.bend * jnp.log(z[0]) ** 2 / 2


_NORMAL = Gaussian(np.zeros(2), Diagonal(np.ones(2)))


@pytest.mark.parametrize(
    "method", [SHORT, Importance(_NORMAL, 64), Rejection(_NORMAL, 0.0, 16), StochasticLangevin(0.1, 2)]
)
def test_what_has_no_integral_is_refused(method):
    energy = RowsEnergy(lambda z, row: _flat(z), np.zeros(3))
    with pytest.raises(ValueError, match=r"^The posterior is improper: along free coordinate 0 of the unk"):
        infer(energy, Reals((2,)), method, key=jax.random.key(0))


def _one(z):
    """One, and no number far out."""
    return jnp.where(jnp.sum(jnp.abs(z)) > 1e4, jnp.nan, 1.0)


def _apart(z):
    return (z[0] - z[1]) ** 2


# energy, and the number of the coordinate along which it has no integral, 2 for a direction that is none
_LEVEL = {
    "x − y alone": (_apart, 2),
    "its fourth power": (lambda z: _apart(z) ** 2, 2),
    "a coordinate too": (lambda z: z[1] ** 2, 0),
    "a wide prior": (lambda z: _apart(z) + 1e-12 * z[0] ** 2, -1),
    "Cauchy along it": (lambda z: _apart(z) + jnp.log1p((z[0] + z[1]) ** 2), -1),
    "quartic along it": (lambda z: _apart(z) + (z[0] + z[1]) ** 4, -1),
    "shares": (lambda z: -jnp.sum(jax.nn.log_softmax(z)), 2),
    "downhill": (lambda z: z[1] ** 2 - z[0], 0),
    # no number far out, and rounding before that
    "a rugged height": (lambda z: jnp.sum(z**2) * jnp.where(jnp.abs(z[0]) > 500, 1e-3, 1.0) * _one(z), -1),
    "no number at all": (lambda z: z[1] ** 2 * _one(z), 0),
    # what iterates until it is done has no slopes, and so nothing is known
    "without slopes": (
        lambda z: jax.lax.while_loop(lambda n: n[0] < 1, lambda n: (1, n[1] + _apart(z)), (0, 0.0))[1],
        -1,
    ),
}


@pytest.mark.parametrize("name", _LEVEL)
def test_directions_without_an_integral_that_are_no_coordinate(name):
    energy, number = _LEVEL[name]
    target, begin = FreeTarget(energy, Reals((2,))), jnp.array([0.3, -0.2])

    @jax.jit
    def found(begin):
        return first_improper(target, begin, None, slopes_near(target, begin))

    assert found(begin) == number


@pytest.mark.parametrize("method", [SHORT, SequentialMonteCarlo(particles=64, groups=2)])
def test_what_has_no_integral_along_no_coordinate_is_refused(method):
    pair = fe.Energy(lambda z: (z["a"] - z["b"]) ** 2, {"a": Reals(()), "b": Reals(())})
    with pytest.raises(ValueError, match=r"^The posterior is improper: along a direction that is no coord"):
        fe.infer(pair, method=method, key=0)


def test_a_coordinate_without_an_integral_is_named():
    pair = fe.Energy(lambda z: z["a"] ** 2, {"a": Reals(()), "b": Reals((3,))})
    with pytest.raises(ValueError, match=r"improper: along free coordinate 0 of 'b' of the unknown"):
        fe.infer(pair, method=SHORT, key=0)


def test_what_has_no_integral_near_zero_is_refused():
    # 1/z and 1/z², of which a log-normal factor makes a law
    method, space = InverseTransform(reach=(-60.0, 800.0)), Positive((1,))
    for power in (1.0, 2.0):
        with pytest.raises(ValueError, match=r"^The posterior is improper"):
            fe.infer(fe.Energy(_Power(np.array(power), np.zeros(())), space), method=method, key=0)
    found = fe.infer(fe.Energy(_Power(np.ones(()), np.ones(())), space), method=method, key=0)
    assert "improper" not in found.diagnostics
    assert found.log_evidence is not None
    np.testing.assert_allclose(found.log_evidence.nats, np.log(2 * np.pi) / 2, rtol=1e-6)
    # beside a label, which stays as it is
    pair = fe.Energy(lambda z: z["on"] + _flat(z["x"]), {"x": Reals((2,)), "on": Binary(())})
    with pytest.raises(ValueError, match=r"^The posterior is improper"):
        fe.infer(pair, method=Collapsed(RandomWalk(steps=20, burn_in=20)), key=0)


def test_what_is_not_to_be_trusted_is_warned_of():
    far = fe.Energy(lambda z: -jnp.logaddexp(-((z[0] - 30) ** 2), -((z[0] + 30) ** 2)), Reals((1,)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = fe.infer(far, method=NUTS(steps=400, burn_in=50), key=0)
    assert isinstance(found, DrawsPosterior)
    assert {w.category for w in caught} == {ConvergenceWarning}
    assert str(caught[0].message).startswith("The chains disagree")
    assert found.warnings == [str(w.message) for w in caught]


def test_a_row_of_probability_zero_is_refused():
    # what never occurred has no probability
    model = fe.Mixture.from_model(
        Mixture(jnp.ones(1), Bernoulli(jnp.array([[0.0, 0.5]]))), family=Bernoulli
    )
    with pytest.raises(ValueError, match=r"What is observed has probability zero under Mixture"):
        fe.infer(model, [[1.0, np.nan]], key=0)


PAIR = Poisson([1.0, 2.0])
EVENTS = np.ones((4, 2))
RAIN = fe.models.BayesianNetwork.of_tables(
    {"rain": [0.8, 0.2], "wet": [[0.9, 0.1], [0.2, 0.8]]}, {"wet": ["rain"]}
)
# what people pass by mistake, and the sentence that says what to do
MISTAKES = {
    "a word for a method": (
        lambda: fe.infer(PAIR, EVENTS, prior={}, method="nuts", key=0),  # pyright: ignore
        r"^The 'method' parameter of infer must be a method .* such as NUTS\(\)\. Got 'nuts' instead\.$",
    ),
    "a class for a method": (
        lambda: fe.infer(PAIR, EVENTS, prior={}, method=NUTS, key=0),  # pyright: ignore
        r"^The 'method' parameter of infer must be a method .* Got <class",
    ),
    "a word for a key": (
        lambda: fe.infer(RAIN, {"wet": "1"}, key="a"),
        r"^The 'key' parameter of infer must be a whole number from zero on or a key of JAX\. Got 'a' inst",
    ),
    "a negative key": (lambda: fe.infer(RAIN, {"wet": "1"}, key=-1), r"^The 'key' .* Got -1 instead"),
    "a function": (
        lambda: fe.infer(lambda z: z**2, key=0),
        r"an Energy, which is a function with the space",
    ),
    "a list for a prior": (
        lambda: fe.infer(PAIR, EVENTS, prior=[1, 2], key=0),  # pyright: ignore
        r"^The 'prior' parameter of infer must be distributions by .* Got \[1, 2\] instead\.$",
    ),
    "a prior of many numbers": (
        lambda: fe.infer(PAIR, EVENTS, prior=lambda m: m.rate, key=0),
        r"must be a function that gives one number, log p of the model\. Got the shape \(2,\) instead\.$",
    ),
    "a number for a law": (
        lambda: fe.infer(PAIR, EVENTS, prior={"rate": 3.0}, key=0),  # pyright: ignore
        r"^The 'prior' of 'rate' must be a distribution, such as Gamma\(2\.0, 1\.0\)\. Got 3\.0 instead\.$",
    ),
    "a law of other values": (
        lambda: fe.infer(PAIR, EVENTS, prior={"rate": Gamma([1.0] * 3, [1.0] * 3)}, key=0),
        r"^The 'prior' of 'rate' must be a law .* shape \(2,\)\. Got one of the shape \(3,\) instead\.$",
    ),
    "other events": (
        lambda: fe.infer(PAIR, np.ones((4, 3)), prior={"rate": Gamma(1.0, 1.0)}, key=0),
        r"from events of the shape \(events, 2\)\. Got the shape \(4, 3\) instead\.$",
    ),
    "a conjugate prior of another shape": (
        lambda: fe.infer(PAIR, EVENTS, prior=GammaPrior(PAIR, 1.0, 1.0), key=0),
        r"Got a Poisson, of another shape, instead\.$",
    ),
    "rows without answers": (
        lambda: fe.infer(fe.LinearRegression(), EVENTS, prior={}, key=0),
        r"^The parameters of LinearRegression are inferred from rows and answers, a pair \(X, y\)\. Got ",
    ),
    "what has no parameters": (
        lambda: fe.infer(fe.KernelDensity(), EVENTS + np.eye(4, 2), prior={}, key=0),
        r"^KernelDensity has no parameters to infer: what it knows of the data is no field",
    ),
    "a law of other rows": (
        lambda: fe.infer(fe.Dequantised(random_state=0), EVENTS + np.eye(4, 2), prior={}, key=0),
        r"^The model of Dequantised is a law of other rows .* Pass the estimator inside of it\.$",
    ),
    "a loss": (
        lambda: fe.infer(fe.RobustRegression(), (EVENTS + np.eye(4, 2), np.arange(4.0)), prior={}, key=0),
        r"^RobustRegression lowers a loss that is no −log p of answers: its parameters have no",
    ),
    "answers of a family without a model": (
        lambda: fe.infer(
            fe.GeneralisedLinearModel(Beta),
            (np.arange(4.0)[:, None], [0.2, 0.4, 0.3, 0.6]),
            prior={},
            key=0,
        ),
        r"^GeneralisedLinearModel has a model in .* Got <class .*Beta'> with varying=False instead",
    ),
    "what knows no log p": (
        lambda: fe.infer(fe.KMeans(1), EVENTS + np.eye(4, 2), prior={}, key=0),
        r"where it knows log p, alone or with a hidden cause\. Got KMeans instead, which does not\.$",
    ),
    "nothing observed": (
        lambda: fe.infer(fe.LinearRegression(), key=0),
        r"^infer needs what is 'observed' of LinearRegression: a row or series\. Got None instead; pass a ",
    ),
    "everything given": (
        lambda: fe.infer(RAIN, {"wet": "1", "rain": "0"}, key=0),
        r"^infer asks a network for the variables that are not given: leave some out\. Got all 2",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_answered_in_a_sentence(name):
    call, sentence = MISTAKES[name]
    with pytest.raises((TypeError, ValueError), match=sentence):
        call()


def test_what_is_not_given_of_a_network_is_none_or_nan():
    for nothing in (None, np.nan):
        known = RAIN.posterior({"wet": "1", "rain": nothing})
        assert known.given == {"wet": "1"}
        np.testing.assert_allclose(known.marginal("rain")["1"], 0.16 / 0.24)
    assert repr(known) == "NetworkBeliefs(given wet = 1)\n  rain  0 0.3333, 1 0.6667"
    assert set(known.sample(50, key=0)["rain"]) == {"0", "1"}
    found = fe.infer(RAIN, {"wet": "1", "rain": None}, key=0)
    share = found.marginals()["rain"]["1"]
    # a share of 4000 draws, without the rounding of as many sums
    assert share == round(share * 4000) / 4000
    assert np.array_equal(found.sample(3, key=7)["rain"], found.sample(3, key=jax.random.key(7))["rain"])


def test_a_row_of_plain_values_is_one_row():
    X = np.random.default_rng(0).normal(size=(50, 2))
    density = fe.GaussianDensity().fit(X)
    found = fe.infer(density, [[1.0, np.nan]], key=0).mean()["x1"]
    assert fe.infer(density, [1.0, np.nan], key=0).mean()["x1"] == found
    assert fe.infer(density, np.array([1.0, np.nan]), key=0).mean()["x1"] == found


def test_scalar_laws_are_those_of_each_entry():
    single = fe.infer(Poisson(1.0), [2.0, 0.0, 3.0], prior=GammaPrior(Poisson(1.0), 2.0, 1.0), key=0)
    np.testing.assert_allclose(single.q.mode().rate, [(2 + 5 - 1) / 4])
    with pytest.raises(ValueError, match=r"from events of the shape \(events, 2\)\. Got the shape \(3,\)"):
        fe.infer(PAIR, [2.0, 0.0, 3.0], prior={"rate": Gamma(2.0, 1.0)}, key=0)
