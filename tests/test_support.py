"""Whole numbers, constants and continuous columns: recognised, and given a probability mass."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import integrate, stats

import freeenergy as fe
from freeenergy import distributions as d
from freeenergy.estimators import Column
from freeenergy.estimators.tables._dequantised import uniform_noise
from freeenergy.models import CellNoise, LearnedNoise
from freeenergy.shell import ColumnRoles
from freeenergy.shell._support import Grid

RNG = np.random.default_rng(0)
COUNTS = RNG.poisson(20, size=(400, 1)).astype(float)


def test_support_is_recognised_column_by_column():
    X = np.array([[0.5, 1, 7, -3, np.nan], [1.5, 2, 7, np.nan, np.nan], [2.5, 1, 7, 4, np.nan]])
    found = fe.Support.recognise(X)
    words = ["continuous", "integer", "constant", "integer", "constant"]
    assert [kind.value for kind in found.kinds] == words
    assert found == fe.Support(words)
    assert len(found) == 5
    assert found.integer.tolist() == [False, True, False, True, False]
    assert found.constant.tolist() == [False, False, True, False, True]
    assert found.continuous.tolist() == [True, False, False, False, False]
    assert fe.Support.recognise(X[:, 2:3], constants=False).kinds == (Column.INTEGER,)
    assert fe.Support.recognise([[2.0**50], [2.0**51]]).kinds == (Column.CONTINUOUS,)


@settings(max_examples=50, deadline=None)
@given(
    hnp.arrays(np.int8, hnp.array_shapes(min_dims=2, max_dims=2, min_side=2, max_side=6)),
    st.floats(0.01, 0.99),
)
def test_whole_numbers_are_never_taken_for_continuous(whole, part):
    kinds = fe.Support.recognise(whole, constants=False).kinds
    assert set(kinds) == {Column.INTEGER}
    # no value twice, or a grid of whole steps
    for column in (whole + part).T:
        found = fe.Support.recognise(column[:, None], constants=False)
        tied = 1 < len(np.unique(column)) < len(column)
        assert found.kinds == ((Column.ROUNDED if tied else Column.CONTINUOUS),)
        assert not tied or abs(found.steps[0] - np.rint(found.steps[0])) < 1e-6


@pytest.mark.parametrize(
    ("values", "step", "origin"),
    [
        ([5.1, 4.9, 5.1, 6.0], 0.1, 0.0),
        (np.float32([5.1, 4.9, 5.1, 6.0]), 0.1, 0.0),
        ([0.25, 0.75, 0.25, 1.5], 0.25, 0.0),
        # the gaps are two and three steps
        ([0.2, 0.4, 0.7, 0.2], 0.1, 0.0),
        # two values of whatever size are a grid
        ([-0.0446, 0.0507, 0.0507], 0.0953, -0.0446),
        ([1e-7, 3e-7, 1e-7], 2e-7, 1e-7),
        ([100000.1, 100000.3, 100000.1, 100000.4], 0.1, 0.0),
    ],
)
def test_rounded_columns_are_found_with_their_grid(values, step, origin):
    found = fe.Support.recognise(np.array(values, float)[:, None])
    assert found.kinds == (Column.ROUNDED,)
    np.testing.assert_allclose([found.steps[0], found.origins[0]], [step, origin], rtol=1e-5)
    assert found.rounded.all()
    assert found.cells.all()
    assert found.grid(0).holds(np.array(values, float)).all()
    assert eval(repr(found), {"Support": fe.Support}) == found


def test_ties_without_a_grid_and_a_grid_without_ties_are_continuous():
    irregular = np.array([0.1, 0.1, np.sqrt(2), np.pi, np.e])
    assert fe.Support.recognise(irregular[:, None]).kinds == (Column.CONTINUOUS,)
    assert fe.Support.recognise([[0.1], [0.2], [0.7]]).kinds == (Column.CONTINUOUS,)
    assert fe.Support(["rounded", "integer"], [0.5, 0.0]).part(np.array([True, False])).steps == (0.5,)


def test_a_family_says_which_columns_have_a_mass():
    assert ColumnRoles.of(d.Poisson, 3).mass.all()
    assert not ColumnRoles.of(d.Gaussian, 3).mass.any()
    parts = (d.Bernoulli(np.array([0.5])), d.Exponential(np.array([1.0, 1.0])))
    assert ColumnRoles.of(d.Product(parts, sizes=(1, 2)), 3).mass.tolist() == [True, False, False]
    assert fe.Mixture(2, family=d.Binomial).column_roles(2).mass.all()
    assert not fe.GaussianMixture(2).column_roles(2).mass.any()
    assert fe.RBM().column_roles(2).mass.all()
    assert fe.VAE(emission=d.Bernoulli).column_roles(2).mass.all()
    assert not fe.VAE().column_roles(2).mass.any()
    assert fe.Dequantised(support=fe.Support(["integer", "continuous"])).column_roles(2).mass.tolist() == [
        True,
        False,
    ]
    assert not fe.Dequantised().column_roles(2).mass.any()


SPACES = [
    (d.Reals(), False, [-1.5, 0, 2], [np.inf, -np.inf]),
    (d.Positive(), False, [1e-300, 2], [0, -1, np.inf]),
    (d.NonNegative(), False, [0, 2.5], [-1e-300, np.inf]),
    (d.UnitInterval(), False, [0.5], [0, 1, 2, -1]),
    (d.Binary(), True, [0, 1], [0.5, 2, -1, np.inf]),
    (d.Counts(), True, [0, 1, 1e15], [0.5, -1, np.inf]),
    (d.Categories(), True, [0, 1, 7], [0.5, -1, np.inf]),
]


@pytest.mark.parametrize(("space", "discrete", "inside", "outside"), SPACES)
def test_a_space_says_what_lies_inside(space, discrete, inside, outside):
    assert isinstance(space, d.AbstractHomogeneous)
    assert space == type(space)()
    assert space.discrete is discrete
    assert space.has_mass(2).tolist() == [discrete] * 2
    found = space.contains(np.array([[*inside, np.nan, *outside]]))[0]
    assert found.tolist() == [True] * (len(inside) + 1) + [False] * len(outside)


def test_spaces_of_rows():
    parts = d.Simplex().contains(
        np.array([[0.4, 0.6], [0.5, 0.6], [0.0, 1.0], [0.4, np.nan], [1.5, np.nan]])
    )
    assert parts.tolist() == [[True] * 2, [False] * 2, [False, True], [True] * 2, [False, True]]
    assert not d.Simplex().discrete
    mixed = d.Product((d.Poisson(np.ones(1)), d.Gamma(np.ones(2), np.ones(2))), sizes=(1, 2)).support
    assert mixed == d.Blocks((d.Counts(), d.Positive()), (1, 2))
    assert isinstance(mixed, d.AbstractSpace)
    assert mixed.contains(np.array([[0.5, 0.5, 0.0]])).tolist() == [[False, True, False]]
    assert mixed.phrase == "non-negative whole numbers in 1 column; positive numbers in 2 columns"
    with pytest.raises(ValueError, match=r"The blocks have 3 columns. Got 2 instead."):
        mixed.has_mass(2)


def test_a_family_that_does_not_say_its_support_is_refused():
    with pytest.raises(
        TypeError, match=r"Silent must say which values it takes: add .* 'support', such as"
    ):

        class Silent(d.AbstractFactorised):
            @classmethod
            def prototype(cls, x):
                return cls()


def test_noise_is_uniform_and_independent_over_rows_draws_and_columns():
    hashes = RNG.integers(2**63, size=2000, dtype=np.uint64)
    first = uniform_noise(hashes, np.zeros(2000, int), 3)
    second = uniform_noise(hashes, np.ones(2000, int), 3)
    for sample in (first[:, 0], first[:, 2], second[:, 1]):
        assert stats.kstest(sample, "uniform").pvalue > 1e-3
    pairs = [(first[:, 0], first[:, 1]), (first[:, 0], second[:, 0]), (first[1:, 0], first[:-1, 0])]
    for a, b in pairs:
        assert abs(np.corrcoef(a, b)[0, 1]) < 4 / np.sqrt(len(a))
    assert (first >= 0).all()
    assert (first < 1).all()


def truth(model, x):
    """log mass of unit cells under the fitted one-dimensional Gaussian, from its distribution function."""
    inner = model.estimator_
    mean = inner.scaling_.invert(np.asarray(inner.model_.family.mean)[None])[0, 0]
    std = inner.scaling_.scale[0] * np.sqrt(np.asarray(inner.model_.family.covariance.matrix())[0, 0])
    return np.log(stats.norm.cdf(x + 1, mean, std) - stats.norm.cdf(x, mean, std))


def test_the_mass_of_a_cell_under_a_gaussian_is_the_difference_of_its_distribution_function():
    cells = np.arange(0.0, 45.0)[:, None]
    model = fe.Dequantised(random_state=0).fit(COUNTS)
    found = model.evidence(cells)
    assert found.kind is fe.Kind.EXACT
    assert (found.stderr == 0).all()
    np.testing.assert_allclose(found.nats, truth(model, cells[:, 0]), rtol=1e-9)


def test_uniform_noise_gives_a_lower_bound_that_many_samples_make_tight():
    # a Gaussian that changes much within a cell
    narrow, few = COUNTS[:50] % 2, np.arange(-2.0, 4.0)[:, None]
    rough = [fe.Dequantised(importance_samples=2, random_state=seed).fit(narrow) for seed in range(20)]
    gaps = np.array([truth(m, few[:, 0]) - m._noisy_evidence(few).nats for m in rough])
    # E log of a mean of two is below the logarithm of the mass
    assert gaps.mean() > 3 * gaps.mean(axis=1).std() / np.sqrt(len(gaps))
    fine = fe.Dequantised(importance_samples=4000, random_state=0).fit(COUNTS)
    cells = np.arange(5.0, 36.0)[:, None]
    found = fine._noisy_evidence(cells)
    assert found.kind is fe.Kind.LOWER
    assert (np.abs(found.nats - truth(fine, cells[:, 0])) < 5 * found.stderr).all()
    assert found.stderr.max() < 0.02


@pytest.mark.parametrize(
    "inner",
    [
        fe.GaussianMixture(2),
        fe.GaussianMixture(2, covariance=d.Diagonal()),
        fe.KernelDensity(),
        fe.FactorAnalysis(1),
        fe.BayesianMixture(2),
    ],
    ids=lambda model: type(model).__name__,
)
def test_cells_agree_with_uniform_points_in_them(inner):
    base = RNG.normal(size=(120, 1))
    X = np.column_stack([np.rint(2 * base[:, 0]), np.rint(3 * (base[:, 0] + RNG.normal(size=120))) / 10])
    X = np.column_stack([X, base[:, 0] ** 2 + RNG.normal(size=120)])
    model = fe.Dequantised(inner, importance_samples=1000, random_state=0).fit(X)
    rows = np.concatenate([X[:6], X[6:12], X[12:18]])
    rows[6:12, 0], rows[12:, 2] = np.nan, np.nan
    found, uniform = model.evidence(rows), model._noisy_evidence(rows)
    error = 5 * np.hypot(found.stderr, uniform.stderr) + 1e-9
    assert (np.abs(found.nats - uniform.nats) < error).all()
    # one cell given the continuous column is exact, and draws column by column are tighter
    assert found.stderr.mean() < 0.7 * uniform.stderr.mean()


def test_rounded_values_have_a_mass_that_no_floor_of_a_variance_can_raise():
    tenths = np.rint(RNG.normal(5, 0.3, size=(300, 1)) * 10) / 10
    bits = []
    for floor in (1e-9, 1e-3):
        inner = fe.GaussianMixture(3, covariance=d.Full(floor=floor), random_state=0)
        model = fe.Dequantised(inner, random_state=0).fit(tenths)
        assert model.evidence(tenths).kind is fe.Kind.EXACT
        cells = np.arange(-100, 200)[:, None] / 10
        np.testing.assert_allclose(np.exp(model.score_samples(cells)).sum(), 1, rtol=1e-6)
        bits.append(model.score(tenths))
    np.testing.assert_allclose(bits, bits[0], atol=0.01)
    draws = model.sample(50, random_state=0)
    assert model.support_.grid(0).holds(draws[:, 0]).all()
    declared = fe.Dequantised(inner, fe.Support(["rounded"], [0.1]), random_state=0).fit(tenths)
    for filled in (model.impute([[np.nan]]), declared.impute([[np.nan]])):
        assert abs(filled[0, 0] - tenths.mean()) <= 0.06
        assert model.support_.grid(0).holds(filled[:, 0]).all()
    with pytest.raises(ValueError, match=r"multiples of 0.1 must hold such everywhere. Got 5.03 in row 1"):
        model.score_samples([[5.0], [5.03]])


def test_no_row_is_judged_by_its_own_twin():
    # each row twice: twins in noise would let the kernels shrink onto the rows
    X = RNG.poisson(30, size=(80, 4)).astype(float)
    test = RNG.poisson(30, size=(400, 4)).astype(float)
    kernels = fe.Dequantised(fe.KernelDensity(), random_state=0).fit(X)
    truth = stats.poisson.logpmf(test, 30).sum(axis=1)
    lost = truth - kernels.score_samples(test)
    assert lost.mean() < 1.0
    assert (kernels.estimator_.bandwidth_ > 1).all()


def test_a_continuous_model_of_counts_is_at_most_as_good_as_the_distribution_they_come_from():
    test = RNG.poisson(20, size=(3000, 1)).astype(float)
    exact = stats.poisson.logpmf(test[:, 0], 20)
    mixture = fe.Mixture(1, family=d.Poisson).fit(COUNTS).evidence(test)
    bound = fe.Dequantised(fe.GaussianMixture(2), random_state=0).fit(COUNTS).evidence(test)
    assert mixture.kind is fe.Kind.EXACT
    gap = exact - bound.nats
    assert gap.mean() + 3 * gap.std() / np.sqrt(len(gap)) > 0
    assert gap.mean() < 0.05
    # the rate is known to 1/400 of its variance, and the rows of the test vary
    lost = exact - mixture.nats
    assert abs(lost.mean()) < 4 * (lost.std() / np.sqrt(len(lost)) + 0.5 / 400)


def test_units_of_a_continuous_column_move_the_evidence_by_their_logarithm_and_shifts_by_nothing():
    mixed = np.column_stack([COUNTS, RNG.normal(size=400)])
    model = fe.Dequantised(fe.GaussianDensity(), random_state=0)
    before = model.fit(mixed).evidence(mixed).nats
    after = model.fit(mixed * [1, 1000]).evidence(mixed * [1, 1000]).nats
    np.testing.assert_allclose(after, before - np.log(1000), atol=1e-6)
    moved = mixed + np.array([100, -3.0])
    np.testing.assert_allclose(model.fit(moved).evidence(moved).nats, before, atol=1e-6)


def test_missing_and_constant_columns():
    X = np.column_stack([COUNTS, np.full(400, 7.5), RNG.normal(size=400)])
    support = fe.Support.recognise(X)
    model = fe.Dequantised(support=support, random_state=0).fit(X)
    plain = fe.Dequantised(random_state=0).fit(X[:, [0, 2]])
    np.testing.assert_allclose(model.score_samples(X), plain.score_samples(X[:, [0, 2]]), rtol=1e-12)
    other = X[:2].copy()
    other[1, 1] = 8.0
    scores = model.score_samples(other)
    assert np.isfinite(scores[0])
    assert scores[1] == -np.inf
    # nothing observed of the integers: no noise is needed, and none is added
    rows = np.array([[np.nan, np.nan, 0.3], [np.nan, 7.5, np.nan]])
    found = model.evidence(rows)
    np.testing.assert_allclose(found.nats[0], model.estimator_.score_samples([[np.nan, 0.3]])[0])
    assert found.nats[1] == 0
    assert (found.stderr == 0).all()
    filled = model.impute(rows)
    np.testing.assert_array_equal(filled[:, 1], 7.5)
    assert abs(filled[0, 0] - COUNTS.mean()) < 1.5
    assert filled[0, 0] == np.rint(filled[0, 0])
    draws = model.sample(200, random_state=0)
    assert (draws[:, 0] == np.rint(draws[:, 0])).all()
    assert (draws[:, 1] == 7.5).all()
    np.testing.assert_allclose(model.centre(X[:3]), X[:3][:, [0, 2]] + [0.5, 0])


def test_imputed_counts_have_the_conditional_mean_of_a_known_law():
    # x and y share a Poisson part: E[y | x] = 15 + 20 (x − 35) / 35 − … is linear for a Gaussian model
    shared = RNG.poisson(20, size=3000)
    X = np.column_stack([shared + RNG.poisson(15, size=3000), shared]).astype(float)
    model = fe.Dequantised(fe.GaussianDensity(), random_state=0).fit(X)
    x = np.array([25.0, 35.0, 45.0])
    slope, intercept = np.polyfit(X[:, 0], X[:, 1], 1)
    filled = model.impute(np.column_stack([x, np.full(3, np.nan)]))
    # whole numbers, the nearest to the mean
    assert (filled == np.rint(filled)).all()
    np.testing.assert_allclose(filled[:, 1], intercept + slope * x, atol=0.5 + 0.15)


def test_a_column_that_is_only_continuous_is_left_to_the_estimator():
    X = RNG.normal(size=(60, 2))
    model, plain = fe.Dequantised(fe.GaussianDensity()).fit(X), fe.GaussianDensity().fit(X)
    np.testing.assert_allclose(model.score_samples(X), plain.score_samples(X), rtol=1e-12)
    assert model.evidence(X).kind is fe.Kind.EXACT


def test_columns_with_a_mass_of_their_own_need_no_noise():
    X = np.column_stack([COUNTS, np.full(400, 3.0)])
    model = fe.Dequantised(fe.Mixture(1, family=d.Poisson), fe.Support.recognise(X)).fit(X)
    found = model.evidence(X)
    assert found.kind is fe.Kind.EXACT
    np.testing.assert_allclose(found.nats, stats.poisson.logpmf(COUNTS[:, 0], COUNTS.mean()), rtol=1e-6)
    # a family of fixed size keeps all its columns
    fixed = fe.Mixture(1, family=d.Poisson(np.array([1.0, 1.0])))
    kept = fe.Dequantised(fixed, fe.Support.recognise(X)).fit(X)
    assert kept.estimator_.n_features_in_ == 2
    # but for one of those that vary
    varied = fe.Mixture(1, family=d.Poisson(np.array([1.0])))
    assert fe.Dequantised(varied, fe.Support.recognise(X)).fit(X).estimator_.n_features_in_ == 1
    with pytest.raises(ValueError, match=r"'family' parameter of Mixture must have .* as X, 2\. Got 1"):
        varied.fit(X)


def test_a_family_of_a_size_stands_beside_models_that_know_their_columns():
    """With and without such models beside it the same columns are left out."""
    X = np.column_stack([COUNTS[:60], np.full(60, 3.0)])
    family = d.Poisson(np.array([1.0]))
    sized, other = {"sized": fe.Mixture(1, family=family)}, {"other": fe.Mixture(2, family="by column")}
    alone, both = (fe.compare(m, X, cv=2, pictures=False, random_state=0) for m in (sized, sized | other))
    bits = {row.model: row.bits for row in both.table()}
    assert len(bits) == 2
    np.testing.assert_allclose(bits["sized"], alone.table()[0].bits, rtol=1e-9)


@pytest.mark.slow
def test_importance_samples_of_the_estimator_are_shared_over_the_noise():
    vae = fe.VAE(1, width=8, max_iter=3, importance_samples=400)
    model = fe.Dequantised(vae, importance_samples=50, random_state=0).fit(COUNTS[:60])
    assert model._scorer().importance_samples == 8
    assert model.estimator_.importance_samples == 400
    found, uniform = model.evidence(COUNTS[:5]), model._noisy_evidence(COUNTS[:5])
    assert found.kind is uniform.kind is fe.Kind.LOWER
    assert (found.stderr > 0).all()
    assert (np.abs(found.nats - uniform.nats) < 5 * np.hypot(found.stderr, uniform.stderr)).all()


def test_a_row_seen_often_gets_as_many_noisy_versions():
    X = np.repeat([[0.0], [1.0]], [300, 100], axis=0)
    model = fe.Dequantised(fe.GaussianMixture(2), random_state=0).fit(X)
    mass = np.exp(model.score_samples([[0.0], [1.0]]))
    # two narrow clusters of noise, with the shares of the rows
    np.testing.assert_allclose(mass / mass.sum(), [0.75, 0.25], atol=0.03)
    assert 0.9 < mass.sum() < 1


@pytest.mark.parametrize(
    ("make", "rows", "message"),
    [
        (lambda: fe.Support(["whole"]), None, "'kinds' parameter of Support must be of 'continuous'"),
        (
            lambda: fe.Dequantised(support=fe.Support(["integer"])),
            [[0.5], [1.0]],
            "A column of whole numbers must hold such everywhere. Got 0.5 in row",
        ),
        (
            lambda: fe.Dequantised(support=fe.Support(["constant", "integer"])),
            [[1.0, 2.0], [2.0, 3.0]],
            "Column 0 is declared constant but has the values 1 and 2",
        ),
        (
            lambda: fe.Dequantised(support=fe.Support(["integer"])),
            [[1.0, 2.0], [2.0, 3.0]],
            "must have a kind for each of the 2 columns. Got 1 instead",
        ),
        (
            lambda: fe.Dequantised(support=fe.Support(["constant"])),
            [[1.0], [1.0]],
            "Every column is declared constant",
        ),
        (
            lambda: fe.Dequantised(fe.KMeans()),
            [[1.0], [2.0]],
            "must be an instance of AbstractDensity or None",
        ),
        (
            lambda: fe.Dequantised(support="integer"),
            [[1.0], [2.0]],
            "must be an instance of Support or None",
        ),
        (lambda: fe.Dequantised(importance_samples=1), [[1.0]], r"must be an int in the range \[2, inf\)"),
        (lambda: fe.Support(["rounded"]), None, "must be positive where a column is rounded. Got 0.0"),
        (
            lambda: fe.Support(["integer"], [1.0, 2.0]),
            None,
            "must have a number for each of the 1 kinds. Got 2",
        ),
    ],
)
def test_refuses_with_a_sentence(make, rows, message):
    with pytest.raises(ValueError, match=message):
        make().fit(rows)


def test_new_rows_must_be_whole_too():
    model = fe.Dequantised().fit(COUNTS)
    with pytest.raises(ValueError, match=r"must hold such everywhere. Got 2.5 in row 1, column 0."):
        model.score_samples([[2.0], [2.5]])


def test_imputed_labels_are_the_most_probable_ones_and_counts_are_whole():
    kind = RNG.integers(2, size=300)
    labels = np.where(kind == 1, RNG.choice([0, 3], size=300), RNG.choice([1, 2], size=300, p=[0.8, 0.2]))
    X = np.column_stack([labels, kind, RNG.integers(4, size=300)]).astype(float)
    model = fe.Mixture(2, family=d.Categorical, random_state=0).fit(X)
    holes = X[:20].copy()
    holes[:10, 0], holes[5:15, 2] = np.nan, np.nan
    filled = model.impute(holes)
    tables = np.asarray(model.model_.components.probabilities)
    expected = np.einsum("nk,kdc->ndc", model.predict_proba(holes), tables).argmax(axis=2)
    np.testing.assert_array_equal(filled, np.where(np.isnan(holes), expected, holes))
    # beside a label that never occurs no label is the most probable
    holes[0, 1] = 7
    with pytest.raises(ValueError, match=r"Mixture.impute has no answer for row 0 of X"):
        model.impute(holes)
    # the mean of labels 0 and 3 is none of them
    assert set(filled[:10, 0]) <= {0.0, 1.0, 3.0}
    counts = fe.Mixture(2, family=d.Poisson, random_state=0).fit(COUNTS).impute([[np.nan]])
    assert counts[0, 0] == np.rint(COUNTS.mean())


def test_values_further_apart_than_floats_reach_are_on_no_grid():
    assert Grid.find(np.array([-1.7e308, 1.7e308, 1.7e308])) is None


SMALL_FLOW = {"layers": 2, "width": 8, "depth": 1, "max_iter": 30, "batch_size": 64}
NUMBER_AND_REAL = fe.Support(["integer", "continuous"])


def flow_in_cells(noise, samples=64, **sizes):
    return fe.Dequantised(
        fe.NormalizingFlow(**sizes), noise=noise, importance_samples=samples, random_state=0
    )


def test_learned_noise_estimates_the_mass_of_the_density():
    rng = np.random.default_rng(0)
    counts = rng.binomial(5, 0.4, size=(120, 1))
    X = np.column_stack([counts, counts + rng.normal(size=(120, 1))])
    model = flow_in_cells(LearnedNoise(8), 400, **SMALL_FLOW).set_params(support=NUMBER_AND_REAL).fit(X)
    rows = X[:4]
    found = model.evidence(rows)
    assert found.kind is fe.Kind.LOWER
    # by Simpson's rule over the cell, under the density that was learned with the noise
    u = np.linspace(0, 1, 201)
    dense = np.repeat(rows, 201, axis=0)
    dense[:, 0] += np.tile(u, 4)
    density = np.exp(model.estimator_.score_samples(dense)).reshape(4, 201)
    exact = np.log(integrate.simpson(density, x=u, axis=1))
    assert (np.abs(found.nats - exact) < 5 * found.stderr).all()
    # the noise is not uniform any more, and its law is told
    assert isinstance(model.noise_, CellNoise)
    _, log_q = jax.jit(jax.vmap(model.noise_))(jnp.zeros((50, 2)), jnp.linspace(-2, 2, 50)[:, None])
    assert np.abs(log_q).max() > 0.05


@pytest.mark.slow
def test_learned_noise_takes_missing_entries():
    rng = np.random.default_rng(0)
    counts = rng.binomial(5, 0.4, size=(300, 1))
    X = np.column_stack([counts, counts + rng.normal(size=(300, 1))])
    X[::10, 1] = np.nan
    model = flow_in_cells(LearnedNoise(8), 32, **SMALL_FLOW).set_params(support=NUMBER_AND_REAL).fit(X)
    # the masses of the first column by itself, which are a binomial's, and have sum one
    alone = np.column_stack([np.arange(-3.0, 9.0), np.full(12, np.nan)])
    masses = np.exp(model.evidence(alone).nats)
    assert 0.95 < masses.sum() < 1.05
    wanted = stats.binom(5, 0.4).pmf(alone[:, 0])
    assert np.abs(masses - wanted).max() < 0.08
    filled = model.impute(np.array([[np.nan, 4.0], [np.nan, 0.0]]))[:, 0]
    assert (filled == np.round(filled)).all()
    assert filled[0] > filled[1]


@pytest.mark.slow
def test_learned_noise_is_better_than_uniform_noise_on_few_values():
    rng = np.random.default_rng(1)

    def table(n):
        first = rng.binomial(5, 1 / (1 + np.exp(-1.5 * rng.normal(size=n))))
        second = np.where(rng.random(n) < 0.7, first, rng.integers(0, 6, n))
        return np.column_stack([first, second]).astype(float)

    X, test = table(1500), table(2000)
    sizes = {"layers": 4, "width": 32, "max_iter": 200}
    plain, learned = (flow_in_cells(noise, **sizes).fit(X) for noise in (None, LearnedNoise(32)))
    gain = learned.evidence(test).nats - plain.evidence(test).nats
    assert gain.mean() > 0.03 + 3 * gain.std() / len(gain) ** 0.5
    cells = np.stack(np.meshgrid(*[np.arange(-3.0, 9.0)] * 2), axis=-1).reshape(-1, 2)
    masses = learned.evidence(cells)
    mass, error = np.exp(masses.nats).sum(), np.linalg.norm(np.exp(masses.nats) * masses.stderr)
    assert 0.95 < mass < 1 + 5 * error
    # draws are of the table: the share of equal columns is that of the masses
    draws = learned.sample(4000, random_state=0)
    equal = np.exp(masses.nats)[cells[:, 0] == cells[:, 1]].sum() / mass
    assert abs((draws[:, 0] == draws[:, 1]).mean() - equal) < 5 * (0.5 / 4000**0.5 + error)


def test_learned_noise_refuses():
    with pytest.raises(ValueError, match=r"'estimator' parameter of Dequantised must be a NormalizingFlow"):
        fe.Dequantised(fe.GaussianDensity(), noise=LearnedNoise()).fit(COUNTS)
    with pytest.raises(ValueError, match=r"'learner' parameter .* in Dequantised must be None"):
        fe.Dequantised(fe.NormalizingFlow(learner=fe.learning.EM()), noise=LearnedNoise()).fit(COUNTS)
    with pytest.raises(ValueError, match=r"'noise' parameter of Dequantised must be .*LearnedNoise"):
        fe.Dequantised(fe.NormalizingFlow(), noise="uniform").fit(COUNTS)
    with pytest.raises(ValueError, match=r"'width' parameter of LearnedNoise .* Got 0 instead"):
        LearnedNoise(width=0)
