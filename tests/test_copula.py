"""Gaussian copulas against SciPy's rectangles, quadrature, enumeration and Gaussians."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest
from scipy import stats
from scipy.integrate import dblquad, quad
from scipy.optimize import minimize_scalar
from scipy.special import log_ndtr, ndtr, ndtri

import freeenergy as fe
from freeenergy.distributions._cells import log_normal_interval, log_normal_rectangle
from freeenergy.estimators.tables._copula import nearest_correlation, pairwise_correlations
from freeenergy.inference import Laplace
from freeenergy.models import CountMarginals, GaussianCopula, LevelMarginals, SmoothMarginals
from freeenergy.models._marginals import normal_score

RNG = np.random.default_rng(0)
N = 120
LATENT = RNG.multivariate_normal(
    np.zeros(5),
    [
        [1.0, 0.6, -0.5, 0.4, 0.5],
        [0.6, 1.0, -0.3, 0.5, 0.3],
        [-0.5, -0.3, 1.0, -0.2, -0.4],
        [0.4, 0.5, -0.2, 1.0, 0.2],
        [0.5, 0.3, -0.4, 0.2, 1.0],
    ],
    N,
)
SIZES = ["small", "middle", "large"]
FRAME = pl.DataFrame(
    {
        "visits": stats.poisson.ppf(ndtr(LATENT[:, 1]), 3.0).astype(int),
        "income": np.exp(1 + 0.5 * LATENT[:, 0]),
        "smokes": LATENT[:, 2] > 0.3,
        "size": pl.Series(np.array(SIZES)[np.digitize(LATENT[:, 3], [-0.5, 0.6])], dtype=pl.Enum(SIZES)),
        # of which the order of the alphabet is none
        "colour": np.array(["red", "green", "blue"])[np.digitize(LATENT[:, 4], [-0.4, 0.4])],
    }
)


@pytest.fixture(scope="module")
def model():
    return fe.GaussianCopula(random_state=0).fit(FRAME)


def rows(**columns):
    return pl.DataFrame(columns, schema=FRAME.schema, strict=False)


def row(**known):
    return rows(**{name: [known.get(name)] for name in FRAME.columns})


def test_scores_of_very_small_probabilities():
    z = np.array([-1e3, -60.0, -36.0, -8.0, -0.1, 0.0, 2.0, 9.0, 40.0])
    found = jax.jit(normal_score)(log_ndtr(z), log_ndtr(-z))
    np.testing.assert_allclose(found, z, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("slope", [0.0, 0.7, -3.0, 60.0])
def test_rectangles_of_two_cells(slope):
    first = [(0.2, 1.1), (-0.4, np.inf), (-40.0, 80.0), (3.0, 0.01)]
    second = [(-1.0, 0.5), (0.3, np.inf), (2.0, 1.0)]
    low = np.array([[a[0], b[0]] for a in first for b in second])
    width = np.array([[a[1], b[1]] for a in first for b in second])
    found = jax.jit(jax.vmap(lambda a, w: log_normal_rectangle(a, w, jnp.asarray(slope))))(low, width)
    for (a, b), (w, v), nats in zip(low, width, found, strict=True):

        def inside(y, b=b, v=v):
            return stats.norm.pdf(y) * (ndtr(b - slope * y + v) - ndtr(b - slope * y))

        kinks = [] if slope == 0 else [k for k in (b / slope, (b + v) / slope) if a < k < min(a + w, 9.0)]
        edges = [max(a, -9.0), *sorted(k for k in kinks if k > -9), min(a + w, 9.0)]
        expected = sum(quad(inside, *pair, epsabs=1e-14)[0] for pair in itertools.pairwise(edges))
        if expected > 1e-10:
            assert nats == pytest.approx(np.log(expected), abs=1e-6 if abs(slope) < 10 else 1e-4)
        else:
            assert nats < -20


def test_wide_cells_are_half_lines():
    low = jnp.array([-50.0, -3.0, 0.0, 4.0, 30.0])
    found = jax.jit(log_normal_interval)(low, jnp.full(5, jnp.inf))
    np.testing.assert_allclose(found, log_ndtr(-np.asarray(low)), rtol=1e-12, atol=1e-300)


def test_evidence_is_scipys_rectangles(model):
    """Densities of the numbers times the mass of the cell given them, by SciPy."""
    own, parts = model.model_, model.model_.parts
    ends = np.asarray(jax.jit(lambda x: own.ends(x))(model._read(FRAME[:1]).z[0]))
    r = np.asarray(own.correlation)
    z = ends[0, 0]
    mean, cov = r[1:, 0] * z, r[1:, 1:] - np.outer(r[1:, 0], r[1:, 0])
    corners = []
    for choice in itertools.product((0, 1), repeat=4):
        at = ends[choice, np.arange(1, 5)]
        sign = (-1) ** (4 - sum(choice))
        low = stats.multivariate_normal.cdf(np.clip(at, -9, 9), mean, cov, rng=np.random.default_rng(0))
        corners.append(sign * low)
    weights, centres, widths = (
        np.asarray(a[0]) for a in (parts[0].weights, parts[0].centres, parts[0].widths)
    )
    x = model.scaling_.apply(model._read(FRAME[:1]).x)[0, 1]
    density = weights @ stats.norm.pdf(x, centres, widths) / model.scaling_.scale[1]
    assert z == pytest.approx(ndtri(weights @ ndtr((x - centres) / widths)))
    found = model.evidence(FRAME[:1])
    assert found.kind is fe.Kind.LOWER
    expected = np.log(density * sum(corners))
    assert found.nats[0] == pytest.approx(expected, abs=5 * found.stderr[0] + 1e-3)
    # without two of the cells nothing is left to chance
    some = model.evidence(FRAME[:5].with_columns(smokes=None, colour=None).cast(FRAME.schema))
    assert some.kind is fe.Kind.EXACT


def test_masses_and_densities_sum_and_integrate_to_one(model):
    labels = list(itertools.product([False, True], SIZES, ["blue", "green", "red"]))
    smokes, size, colour = zip(*labels, strict=True)
    none = [None] * len(labels)
    found = model.evidence(rows(visits=none, income=none, smokes=smokes, size=size, colour=colour))
    mass = np.exp(found.nats)
    assert mass.sum() == pytest.approx(1, abs=5 * np.sqrt(np.sum((mass * found.stderr) ** 2)) + 1e-9)
    # two cells, exactly
    pairs = list(itertools.product(range(200), [False, True]))
    visits, smokes = zip(*pairs, strict=True)
    none = [None] * len(pairs)
    both = np.exp(
        model.score_samples(rows(visits=visits, income=none, smokes=smokes, size=none, colour=none))
    )
    assert both.sum() == pytest.approx(1, abs=1e-6)
    # and of each count the mass of all that may go with it
    alone = np.exp(
        model.score_samples(
            rows(visits=range(20), **{c: [None] * 20 for c in FRAME.columns if c != "visits"})
        )
    )
    np.testing.assert_allclose(both.reshape(-1, 2)[:20].sum(axis=1), alone, rtol=2e-6)
    # a number beside a count
    points = np.linspace(-6, 40, 400)
    known = {"visits": [4] * 400, "income": points}
    dense = np.exp(model.score_samples(rows(**{c: known.get(c, [None] * 400) for c in FRAME.columns})))
    assert np.trapezoid(dense, points) == pytest.approx(alone[4], rel=1e-3)
    assert model.score_samples(row())[0] == 0


def test_far_rows_and_large_counts_have_a_number(model):
    far = model.score_samples(
        rows(
            visits=[10**6, None, 3, 10**9],
            income=[None, 1e9, -1e200, 1e3],
            smokes=[True, False, True, None],
            size=[None, "small", None, None],
            colour=[None] * 4,
        )
    )
    assert (far < -100).all()
    assert not np.isnan(far).any()
    assert np.isfinite(far[[0, 1, 3]]).all()


def test_a_missing_number_is_integrated_out_in_the_tails_too():
    X = LATENT[:, :2] * [1.0, 3.0]
    found = fe.GaussianCopula().fit(X)
    # the wide tails reach so far
    other, step = np.linspace(-90, 90, 2048, retstep=True)
    for value in (0.0, 2.0, -4.0):
        joint = found.score_samples(np.column_stack([np.full(len(other), value), other]))
        marginal = found.score_samples([[value, np.nan]])[0]
        assert np.log(np.exp(joint).sum() * step) == pytest.approx(marginal, abs=1e-4)


def test_normal_marginals_are_a_gaussian():
    X = RNG.multivariate_normal([1.0, -20.0, 300.0], [[1, 5, 0], [5, 100, -30], [0, -30, 900]], 90)
    ours, theirs = fe.GaussianCopula(bandwidth=1.0).fit(X), fe.GaussianDensity().fit(X)
    holes = np.where(RNG.random(X.shape) < 0.3, np.nan, X)
    np.testing.assert_allclose(ours.score_samples(X), theirs.score_samples(X), atol=1e-6)
    np.testing.assert_allclose(ours.score_samples(holes), theirs.score_samples(holes), atol=1e-6)
    np.testing.assert_allclose(ours.impute(holes), theirs.impute(holes), rtol=1e-3)
    np.testing.assert_allclose(ours.correlation_, np.corrcoef(X.T), atol=1e-9)


def by_dblquad(low, high, r):
    rest = 1 - r**2

    def density(v, u):
        return math.exp(-(u * u - 2 * r * u * v + v * v) / (2 * rest)) / (2 * math.pi * math.sqrt(rest))

    clipped = [np.clip(end, -7, 7) for end in (low, high)]
    return dblquad(density, clipped[0][0], clipped[1][0], clipped[0][1], clipped[1][1], epsabs=1e-8)[0]


def test_the_correlation_of_labels_is_polychoric():
    counts = np.array([[30.0, 12.0, 3.0], [8.0, 25.0, 20.0]])
    rows_, columns = (
        np.append(-np.inf, ndtri(np.cumsum(s)[:-1] / s.sum())) for s in (counts.sum(1), counts.sum(0))
    )
    rows_, columns = np.append(rows_, np.inf), np.append(columns, np.inf)
    low = np.array([[rows_[i], columns[j]] for i in range(2) for j in range(3)])
    high = np.array([[rows_[i + 1], columns[j + 1]] for i in range(2) for j in range(3)])
    found = pairwise_correlations(low, high, counts.ravel())[0, 1]

    def loss(r):
        return -sum(
            w * np.log(by_dblquad(a, b, r)) for a, b, w in zip(low, high, counts.ravel(), strict=True)
        )

    best = minimize_scalar(
        loss, bounds=(found - 0.02, found + 0.02), method="bounded", options={"xatol": 1e-5}
    )
    assert found == pytest.approx(best.x, abs=2e-4)


def test_the_correlation_of_a_number_and_a_label_is_polyserial():
    z = RNG.multivariate_normal([0, 0], [[1, -0.7], [-0.7, 1]], 4000)
    above = z[:, 1] > 0.4
    low = np.column_stack([z[:, 0], np.where(above, 0.4, -np.inf)])
    high = np.column_stack([z[:, 0], np.where(above, np.inf, 0.4)])
    found = pairwise_correlations(low, high, np.ones(4000))[0, 1]
    assert found == pytest.approx(-0.7, abs=0.05)

    def slope(r):
        s = np.sqrt(1 - r**2)
        log = np.where(above, log_ndtr((r * z[:, 0] - 0.4) / s), log_ndtr((0.4 - r * z[:, 0]) / s))
        return log.sum()

    assert abs(slope(found + 1e-4) - slope(found - 1e-4)) / 2e-4 < 1.0


def test_correlations_that_contradict_each_other_are_moved_to_the_nearest():
    wrong = np.array([[1.0, 0.9, -0.9], [0.9, 1.0, 0.9], [-0.9, 0.9, 1.0]])
    found, changes = nearest_correlation(wrong)
    assert np.linalg.eigvalsh(found)[0] > 0
    np.testing.assert_allclose(np.diag(found), 1.0)
    assert changes[-1] < 1e-8
    # no matrix of its kind is nearer
    gap = np.sum((found - wrong) ** 2)
    for _ in range(200):
        other = found + 1e-2 * np.triu(RNG.normal(size=(3, 3)), 1)
        other = np.triu(other, 1) + np.triu(other, 1).T + np.eye(3)
        if np.linalg.eigvalsh(other)[0] >= 1e-3:
            assert np.sum((other - wrong) ** 2) > gap - 1e-9


def test_imagined_rows_shrink_the_correlations():
    """By n / (n + strength), n the mean over pairs of columns of the rows that have both."""
    frame = FRAME.with_columns(
        pl.when(pl.int_range(N) < 30).then(None).otherwise(pl.col("income")).alias("income")
    )
    one, other = (fe.GaussianCopula(strength=s, random_state=0).fit(frame) for s in (0.0, 6.0))
    # of ten pairs four are with the income
    n = (6 * N + 4 * (N - 30)) / 10
    expected = one.correlation_ * n / (n + 6)
    np.fill_diagonal(expected, 1)
    np.testing.assert_allclose(other.correlation_, expected, rtol=1e-12, atol=1e-15)


def test_the_structure_that_made_the_rows_is_found():
    z = RNG.multivariate_normal([0, 0, 0], [[1, 0.7, 0.5], [0.7, 1, -0.2], [0.5, -0.2, 1]], 3000)
    frame = pl.DataFrame(
        {
            "count": stats.nbinom.ppf(ndtr(z[:, 0]), 2, 0.3).astype(int),
            "label": np.array(["b", "c", "a", "d"])[np.digitize(z[:, 1], [-1, 0, 1])],
            "yes": z[:, 2] > 0.5,
        }
    )
    frame = frame.with_columns(yes=pl.when(pl.int_range(3000) % 7 == 0).then(None).otherwise("yes"))
    found = fe.GaussianCopula().fit(frame).correlation_
    # a line of labels has two directions
    sign = np.sign(found[0, 1])
    expected = [0.7 * sign, 0.5, -0.2 * sign]
    np.testing.assert_allclose([found[0, 1], found[0, 2], found[1, 2]], expected, atol=0.07)


def test_draws_follow_the_density_and_have_the_types_of_the_table(model):
    draws = model.sample(2000, random_state=1)
    assert draws.schema == FRAME.schema
    assert (draws["visits"] >= 0).all()
    pairs = list(itertools.product([False, True], SIZES))
    smokes, size = zip(*pairs, strict=True)
    chances = np.exp(
        model.score_samples(
            rows(visits=[None] * 6, income=[None] * 6, smokes=smokes, size=size, colour=[None] * 6)
        )
    )
    for (smokes, size), p in zip(pairs, chances, strict=True):
        share = ((draws["smokes"] == smokes) & (draws["size"] == size)).mean()
        assert abs(share - p) < 5 * np.sqrt(p * (1 - p) / 2000)
    # and of numbers given a label
    points, weight = np.polynomial.legendre.leggauss(400)
    known = {"income": 0.5 + 2.5 * points, "smokes": [True] * 400}
    dense = np.exp(model.score_samples(rows(**{c: known.get(c, [None] * 400) for c in FRAME.columns})))
    below = 2.5 * weight @ dense
    share = np.mean((draws["income"].to_numpy() < 3.0) & draws["smokes"].to_numpy())
    assert abs(share - below) < 5 * np.sqrt(below / 2000)


def test_what_is_missing_is_filled_as_the_density_says(model):
    asked = rows(
        visits=[5, 2, None],
        income=[4.0, None, 9.0],
        smokes=[None, False, None],
        size=[None] * 3,
        colour=[None] * 3,
    )
    filled = model.impute(asked)
    assert filled.schema == FRAME.schema
    draws = [
        (part["income"][1], part["visits"][2]) for part in model.sample(128, given=asked, random_state=0)
    ]
    incomes, counts = np.array(draws).T
    # by the probability of each label
    colours, none = ["blue", "green", "red"], [None] * 3
    scores = model.score_samples(
        rows(visits=[5] * 3, income=[4.0] * 3, smokes=none, size=none, colour=colours)
    )
    assert filled["colour"][0] == colours[np.argmax(scores)]
    # by the mean of the density along the column, which the mean of draws is too
    points, none = np.linspace(-2, 25, 400), [None] * 400
    dense = np.exp(
        model.score_samples(
            rows(visits=[2] * 400, income=points, smokes=[False] * 400, size=none, colour=none)
        )
    )
    mean = dense @ points / dense.sum()
    assert filled["income"][1] == pytest.approx(mean, rel=0.03)
    assert abs(incomes.mean() - mean) < 5 * incomes.std() / np.sqrt(128)
    none = [None] * 30
    masses = np.exp(
        model.score_samples(rows(visits=range(30), income=[9.0] * 30, smokes=none, size=none, colour=none))
    )
    expected = masses @ np.arange(30) / masses.sum()
    assert abs(counts.mean() - expected) < 5 * counts.std() / np.sqrt(128)
    assert filled["visits"][2] == np.rint(expected)


def test_weights_are_repetition_and_units_a_jacobian(model):
    weight = np.arange(N) % 3
    several = FRAME[np.repeat(np.arange(N), weight)]
    weighted = fe.GaussianCopula(random_state=0).fit(FRAME, sample_weight=weight)
    again = fe.GaussianCopula(random_state=0).fit(several)
    np.testing.assert_allclose(weighted.score_samples(FRAME), again.score_samples(FRAME), atol=1e-6)
    other = FRAME.with_columns(income=pl.col("income") * 1000 - 7)
    moved = fe.GaussianCopula(random_state=0).fit(other).score_samples(other)
    np.testing.assert_allclose(moved, model.score_samples(FRAME) - np.log(1000), atol=1e-4)


def test_labels_of_each_column_are_those_of_the_density():
    edges, values = jnp.array([[-1.0, 0.5]]), jnp.array([[1.0, 0.0, 2.0]])
    marginals = LevelMarginals(edges, values, jnp.array([[1, 0, 2]]))
    model = GaussianCopula((marginals,), (0,), 0, jnp.eye(1))
    found = np.exp(jax.jit(jax.vmap(model.log_prob))(np.arange(3.0)[:, None]))
    np.testing.assert_allclose(found, [ndtr(0.5) - ndtr(-1.0), ndtr(-1.0), ndtr(-0.5)], rtol=1e-6)


def test_marginals_are_laws(model):
    numbers, counts, _ = model.model_.parts
    assert isinstance(numbers, SmoothMarginals)
    assert isinstance(counts, CountMarginals)
    # there and back
    z = np.array([-6.0, -1.0, 0.3, 5.0])
    back = jax.jit(jax.vmap(lambda v: numbers.scores(numbers.at(v[None]))[0]))(z)
    np.testing.assert_allclose(back, z, atol=1e-7)
    ends = np.asarray(jax.jit(jax.vmap(lambda k: counts.thresholds(k[None])[0]))(np.arange(-1.0, 300.0)))
    assert ends[0] == -np.inf
    assert (np.diff(ends[1:]) > 0).all()
    middle = np.where(np.isinf(ends[:-1]), ends[1:] - 1, (ends[:-1] + ends[1:]) / 2)[:40]
    found = jax.jit(jax.vmap(lambda v: counts.at(v[None])[0]))(middle)
    np.testing.assert_array_equal(found, np.arange(40))
    # smoothed, but with about the mean and the variance of the column
    draws = np.asarray(
        jax.jit(jax.vmap(lambda v: numbers.at(v[None])[0]))(ndtri((np.arange(512) + 0.5) / 512))
    )
    np.testing.assert_allclose([draws.mean(), draws.std()], [0, 1], atol=0.1)


def test_what_cannot_be_is_refused(model):
    with pytest.raises(ValueError, match=r"must be a float in the range \(0, 1\] or None. Got 1.5 instead"):
        fe.GaussianCopula(1.5).fit(FRAME)
    with pytest.raises(
        ValueError, match=r"'strength' parameter of GaussianCopula must be a float in the ra"
    ):
        fe.GaussianCopula(strength=-1.0).fit(FRAME)
    with pytest.raises(ValueError, match="'importance_samples' parameter of GaussianCopula must be an int"):
        fe.GaussianCopula(importance_samples=1).fit(FRAME)
    with pytest.raises(TypeError, match="GaussianCopula knows log p exactly with at most 2 columns"):
        model.model_.log_prob(jnp.zeros(5))
    with pytest.raises(TypeError, match=r"^GaussianCopula draws what is missing itself: its log p of a co"):
        fe.infer(model, FRAME[:1].with_columns(income=None), method=Laplace(), key=0)
    with pytest.raises(ValueError, match="A category must be among those that were fitted"):
        model.score_samples(FRAME.with_columns(colour=pl.lit("grey")))


def test_a_file_keeps_it(model, tmp_path):
    model.save(tmp_path / "m.safetensors")
    again = fe.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(again.score_samples(FRAME), model.score_samples(FRAME))
    assert repr(again) == repr(model)
