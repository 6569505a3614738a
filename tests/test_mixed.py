"""Densities of tables with columns of different kinds, against enumeration, quadrature and closed forms."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import polars.testing
import pytest
import statsmodels.api as sm
from scipy import stats
from sklearn.naive_bayes import CategoricalNB, GaussianNB

import freeenergy as fe
from freeenergy import distributions as d
from freeenergy._core import count_compilations
from freeenergy.models import Mixture as MixtureModel

RNG = np.random.default_rng(0)
N = 120
GROUP = RNG.integers(0, 2, N)
# the columns of one family are not neighbours
FRAME = pl.DataFrame(
    {
        "colour": np.array(["red", "green", "blue"])[np.where(GROUP, 2, RNG.integers(0, 2, N))],
        "size": RNG.normal(3.0 * GROUP, 1.0),
        "visits": RNG.poisson(1 + 5 * GROUP),
        "smokes": RNG.random(N) < 0.2 + 0.6 * GROUP,
        "pets": RNG.choice(["cat", "dog", "none"], N),
    }
)
COLOURS, PETS = ["blue", "green", "red"], ["cat", "dog", "none"]


def fitted(n=2, frame=FRAME, **options):
    return fe.Mixture(n, family="by column", random_state=0, **options).fit(frame)


@pytest.fixture(scope="module")
def model():
    return fitted()


def rows(**columns):
    return pl.DataFrame(columns, schema={name: FRAME.schema[name] for name in FRAME.columns}, strict=False)


def test_columns_of_one_family_are_one_part(model):
    members = model.model_.components
    assert [type(part).__name__ for part in members.parts] == [
        "Gaussian",
        "Poisson",
        "Bernoulli",
        "Categorical",
    ]
    assert members.columns == (1, 2, 3, 0, 4)
    assert model.column_roles(5).mass.tolist() == [True, False, True, True, True]
    assert model.column_roles(5).labels.tolist() == [True, False, False, False, True]
    assert model.n_features_in_ == 5
    assert model.feature_names_in_.tolist() == FRAME.columns


def test_mass_and_density_sum_and_integrate_to_one(model):
    cells = list(itertools.product(COLOURS, range(40), [False, True], PETS))
    colour, visits, smokes, pets = zip(*cells, strict=True)

    def total(size):
        frame = rows(colour=colour, size=[size] * len(cells), visits=visits, smokes=smokes, pets=pets)
        return np.exp(model.score_samples(frame)).sum()

    # of a mixture of Gaussians fifty steps hold all digits that matter here
    points = np.linspace(-6, 10, 65)
    totals = np.array([total(point) for point in points])
    assert np.trapezoid(totals, points) == pytest.approx(1, abs=1e-6)
    # what is left without all other columns is the marginal density of the size
    alone = rows(**{name: points if name == "size" else [None] * 65 for name in FRAME.columns})
    np.testing.assert_allclose(totals, np.exp(model.score_samples(alone)), rtol=1e-8)


def test_missing_entries_are_summed_out(model):
    known = {"size": 0.7, "visits": 3, "smokes": True}
    each = [
        model.score_samples(rows(**{k: [v] for k, v in {**known, "colour": c, "pets": p}.items()}))[0]
        for c in COLOURS
        for p in PETS
    ]
    hidden = rows(**{k: [v] for k, v in {**known, "colour": None, "pets": None}.items()})
    assert model.score_samples(hidden)[0] == pytest.approx(np.logaddexp.reduce(each))
    nothing = rows(**{name: [None] for name in FRAME.columns})
    assert model.score_samples(nothing)[0] == pytest.approx(0)
    # the most probable label, given the rest
    colour = max(
        COLOURS,
        key=lambda c: model.score_samples(
            rows(**{k: [v] for k, v in {**known, "colour": c, "pets": None}.items()})
        )[0],
    )
    assert model.impute(hidden)["colour"][0] == colour


def test_the_density_is_that_of_its_parameters_by_scipy(model):
    gaussian, poisson, bernoulli, labels = model.model_.components.parts
    shift, scale = model.scaling_.shift[1], model.scaling_.scale[1]
    assert model.scaling_.scale.tolist()[:1] + model.scaling_.scale.tolist()[2:] == [1.0] * 4
    logs = []
    for k, weight in enumerate(model.weights_):
        mean = shift + scale * float(gaussian.mean[k, 0])
        std = scale * float(jnp.sqrt(gaussian.covariance.variance[k, 0]))
        terms = stats.norm.logpdf(FRAME["size"], mean, std)
        terms = terms + stats.poisson.logpmf(FRAME["visits"], float(poisson.rate[k, 0]))
        terms = terms + stats.bernoulli.logpmf(
            FRAME["smokes"].cast(int), float(bernoulli.probability[k, 0])
        )
        for place, (name, names) in enumerate((("colour", COLOURS), ("pets", PETS))):
            own = np.asarray(labels.probabilities[k, place])
            terms = terms + np.log(own[[names.index(v) for v in FRAME[name]]])
        logs.append(np.log(weight) + terms)
    np.testing.assert_allclose(model.score_samples(FRAME), np.logaddexp(*logs), rtol=1e-8)


def test_one_component_is_the_product_of_closed_forms():
    plain = fe.Mixture(1, family=d.ByColumn(strength=0), random_state=0).fit(FRAME)
    _, poisson, bernoulli, labels = plain.model_.components.parts
    assert float(poisson.rate[0, 0]) == pytest.approx(FRAME["visits"].mean())
    assert float(bernoulli.probability[0, 0]) == pytest.approx(FRAME["smokes"].mean())
    counts = [FRAME["colour"].to_list().count(c) for c in COLOURS]
    np.testing.assert_allclose(labels.probabilities[0, 0], np.array(counts) / N)
    expected = stats.norm(FRAME["size"].mean(), FRAME["size"].std(ddof=0)).logpdf(FRAME["size"])
    size = FRAME.select(
        "size", *(pl.lit(None, FRAME.schema[c]).alias(c) for c in FRAME.columns if c != "size")
    )
    np.testing.assert_allclose(plain.score_samples(size), expected, rtol=1e-6)
    # with one imagined row, shared by the labels; and with the mean of the counts
    frame = FRAME.with_columns(visits=pl.Series(np.random.default_rng(1).poisson(3.0, N)))
    weak = fitted(1, frame).model_.components.parts
    np.testing.assert_allclose(weak[3].probabilities[0, 0], (np.array(counts) + 1 / 3) / (N + 1))
    assert float(weak[1].rate[0, 0]) == pytest.approx(frame["visits"].mean())
    np.testing.assert_allclose(weak[2].probability[0, 0], (FRAME["smokes"].sum() + 0.5) / (N + 1))
    # the variance of the column itself, of which a hundredth of a row more moves nothing
    assert float(weak[0].covariance.variance[0, 0]) == pytest.approx(1)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_em_never_lowers_the_likelihood_and_no_label_is_impossible():
    model = fitted(3, tol=0, max_iter=30, n_init=1)
    assert (np.diff(model.history_["objective"]) < 1e-9).all()
    assert float(model.model_.components.parts[3].probabilities.min()) > 1e-4


def test_weights_are_repetition():
    weight = np.arange(N) % 3
    several = FRAME[np.repeat(np.arange(N), weight)]
    weighted = fe.Mixture(2, family="by column", random_state=0).fit(FRAME, sample_weight=weight)
    np.testing.assert_allclose(
        weighted.score_samples(FRAME), fitted(frame=several).score_samples(FRAME), rtol=1e-9
    )


def test_draws_follow_the_density_and_have_the_types_of_the_table(model):
    draws = model.sample(4000, random_state=1)
    assert draws.schema == FRAME.schema
    pairs = list(itertools.product(COLOURS, [False, True]))
    colour, smokes = zip(*pairs, strict=True)
    other = {"size": [None] * 6, "visits": [None] * 6, "pets": [None] * 6}
    chances = np.exp(model.score_samples(rows(colour=colour, smokes=smokes, **other)))
    for (colour, smokes), p in zip(pairs, chances, strict=True):
        share = ((draws["colour"] == colour) & (draws["smokes"] == smokes)).mean()
        assert abs(share - p) < 5 * np.sqrt(p * (1 - p) / 4000)
    size = draws["size"].to_numpy()
    points, weight = np.polynomial.legendre.leggauss(100)
    at = -8 + 4.75 * (points + 1)
    dense = model.score_samples(rows(**{c: at if c == "size" else [None] * 100 for c in FRAME.columns}))
    below = 4.75 * weight @ np.exp(dense)
    assert abs((size < 1.5).mean() - below) < 5 * np.sqrt(below * (1 - below) / 4000)


def test_frames_of_pandas_give_frames_of_pandas(model):
    frame = pd.DataFrame(FRAME.to_dict(as_series=False))
    frame.index = [f"row {i}" for i in range(N)]
    own = fitted(frame=frame)
    np.testing.assert_array_equal(own.score_samples(frame), model.score_samples(FRAME))
    holes = frame.copy()
    holes.loc["row 3", ["colour", "size"]] = None
    filled = own.impute(holes)
    pd.testing.assert_frame_equal(filled.drop("row 3"), frame.drop("row 3"))
    assert filled.index.equals(frame.index)
    assert filled.loc["row 3", "colour"] in COLOURS
    # the other library is taken too, and columns in any order
    turned = FRAME[FRAME.columns[::-1]].with_columns(
        pl.when(pl.int_range(N) == 3).then(None).otherwise(pl.col(c)).alias(c) for c in ("colour", "size")
    )
    assert own.impute(turned).columns == FRAME.columns[::-1]
    assert own.impute(turned)["colour"][3] == filled.loc["row 3", "colour"]
    several = own.sample(3, given=holes, random_state=0)
    assert len(several) == 3
    pd.testing.assert_frame_equal(several[1].drop("row 3"), frame.drop("row 3"))


def test_rows_without_names_and_a_file(model, tmp_path):
    listed = [list(row) for row in FRAME.iter_rows()]
    own = fitted(frame=listed)
    np.testing.assert_array_equal(own.score_samples(listed), model.score_samples(FRAME))
    assert own.sample(1, random_state=0)[0, 0] in COLOURS
    assert own.impute([[None, *listed[0][1:]]])[0, 1:].tolist() == listed[0][1:]
    model.save(tmp_path / "m.safetensors")
    again = fe.load(tmp_path / "m.safetensors")
    assert again.schema_ == model.schema_
    pl.testing.assert_frame_equal(again.sample(5, random_state=1), model.sample(5, random_state=1))


def test_identifiers_are_left_out_with_a_warning_and_passed_through(model):
    numbered = FRAME.with_columns(pl.Series("id", [f"N{i}" for i in range(N)]))
    with pytest.warns(
        UserWarning, match="Column 'id' looks like an identifier or text and is left out of Mixture"
    ):
        own = fitted(frame=numbered)
    np.testing.assert_array_equal(own.score_samples(numbered), model.score_samples(FRAME))
    holes = numbered.with_columns(pl.lit(None, pl.String).alias("pets"))
    filled = own.impute(holes)
    assert filled["id"].to_list() == numbered["id"].to_list()
    assert filled["pets"].null_count() == 0
    assert own.sample(2).columns == FRAME.columns


def test_a_declared_schema_is_fitted():
    schema = fe.Schema.recognise(FRAME, kinds={"visits": "category", "pets": "text"})
    with pytest.warns(UserWarning, match="Column 'pets'"):
        own = fitted(frame=schema.rows(FRAME))
    assert own.schema_ == schema
    assert own.model_.components.dim == 4
    assert own.sample(2, random_state=0)["visits"].dtype == pl.Int64
    with pytest.raises(ValueError, match="A category must be among those that were fitted: 0, 1, 2, 3, … "):
        own.score_samples(FRAME.with_columns(pl.lit(77).alias("visits")))


@pytest.mark.parametrize(
    ("estimator", "sentence"),
    [
        (
            fe.GaussianMixture(2),
            r"GaussianMixture has no model of column 'colour', which holds labels \('blue', 'green', 'red'"
            r"\)\. Leave it out, or use Mixture\(…, family='by column'\), or Dequantised\(GaussianMixture"
            r"\(…\)\), which takes labels for whole numbers\.$",
        ),
        (fe.Mixture(2, family=d.Poisson), "Mixture has no model of column 'colour'"),
        (fe.DiscriminantAnalysis(), r"Leave it out, or use NaiveBayes\('by column'\)\.$"),
        (fe.PCA(1), r"PCA has no model of column 'colour', .* Leave it out\.$"),
    ],
)
def test_who_has_no_model_of_labels_says_so(estimator, sentence):
    with pytest.raises(ValueError, match=sentence):
        estimator.fit(FRAME, GROUP)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: fe.Mixture(2, family="by row").fit(FRAME), "or 'by column'. Got 'by row' instead"),
        (lambda: fe.NaiveBayes("by row").fit(FRAME, GROUP), "or 'by column'. Got 'by row' instead"),
        (lambda: d.ByColumn(-1.0), "The 'strength' of ByColumn must be a number from zero on. Got -1.0"),
        (lambda: fitted(frame=FRAME[:0]), "0 sample"),
        (
            lambda: fitted(frame=FRAME.with_columns(pl.lit(None, pl.String).alias("pets"))),
            "Column 'pets' of X has no observed value",
        ),
        (
            lambda: fitted(frame=pl.DataFrame({"a": ["x"] * 9})),
            "X has no column that Mixture could be a model of: 'a' looks like a constant. Declare the kind",
        ),
        (
            lambda: fitted(frame=pl.DataFrame({"a": [f"a{i}" for i in range(30)]})),
            "Mixture could be a model of: 'a' looks like an identifier. Declare the kind, as in Schema",
        ),
        (
            lambda: d.Product((d.Poisson(jnp.ones(2)),), (2,), (0, 0)),
            "The 'columns' of Product must be each of the 2 columns once",
        ),
    ],
)
def test_what_cannot_be_is_refused(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


def test_labels_for_a_family_of_labels():
    frame = FRAME.select("colour", "pets")
    own = fe.Mixture(2, family=d.Categorical, random_state=0).fit(frame)
    codes = np.column_stack(
        [[names.index(v) for v in frame[c]] for c, names in (("colour", COLOURS), ("pets", PETS))]
    )
    coded = fe.Mixture(2, family=d.Categorical, random_state=0).fit(codes)
    np.testing.assert_array_equal(own.score_samples(frame), coded.score_samples(codes))
    assert own.sample(3, random_state=0).schema == frame.schema


def test_naive_bayes_by_column_is_that_of_scikit_learn():
    labels = FRAME.select("colour", "pets")
    codes = np.column_stack(
        [[names.index(v) for v in labels[c]] for c, names in (("colour", COLOURS), ("pets", PETS))]
    )
    ours = fe.NaiveBayes("by column").fit(labels, GROUP)
    # one imagined row, shared by three labels
    theirs = CategoricalNB(alpha=1 / 3).fit(codes, GROUP)
    np.testing.assert_allclose(ours.predict_proba(labels), theirs.predict_proba(codes), rtol=1e-9)
    sizes = FRAME.select("size")
    ours = fe.NaiveBayes(d.ByColumn(strength=0)).fit(sizes, GROUP)
    theirs = GaussianNB(var_smoothing=0).fit(sizes.to_numpy(), GROUP)
    np.testing.assert_allclose(ours.predict_proba(sizes), theirs.predict_proba(sizes.to_numpy()), rtol=1e-6)
    own = fe.NaiveBayes("by column").fit(FRAME, np.array(["a", "b"])[GROUP])
    assert (own.predict(FRAME) == np.array(["a", "b"])[GROUP]).mean() > 0.9
    assert own.impute(FRAME[:3]).equals(FRAME[:3])


def test_plain_numbers_are_told_apart_too():
    X = np.column_stack([FRAME["size"], FRAME["visits"], FRAME["smokes"]])
    own = fitted(frame=X)
    assert repr(own.schema_) == "Schema(0='continuous', 1='count', 2='binary')"
    product = d.Product(
        (
            d.Gaussian(jnp.zeros(1), d.Diagonal(jnp.ones(1))),
            d.Poisson(jnp.ones(1)),
            d.Bernoulli(jnp.full(1, 0.5)),
        ),
        (1, 1, 1),
    )
    listed = fe.NaiveBayes(product).fit(X, GROUP)
    ours = fe.NaiveBayes(d.ByColumn(strength=0)).fit(X, GROUP)
    np.testing.assert_allclose(ours.score_samples(X), listed.score_samples(X), rtol=1e-9)
    assert own.sample(2).dtype == float


def test_a_product_of_columns_in_any_order_is_the_same_density():
    parts = (d.Poisson(jnp.array([1.0, 4.0])), d.Bernoulli(jnp.array([0.3])))
    mixed = d.Product(parts, (2, 1), (2, 0, 1))
    turned = d.Product(parts, (2, 1))
    x = np.array([3.0, 1.0, 2.0])
    found, other, mean = jax.jit(
        lambda x: (mixed.log_prob(x), turned.log_prob(x[np.array([2, 0, 1])]), mixed.mean())
    )(x)
    assert float(found) == pytest.approx(float(other))
    np.testing.assert_allclose(mean, [4.0, 0.3, 1.0])
    assert mixed.support.has_labels(3).tolist() == [False] * 3
    assert mixed.statistic_columns().tolist() == [2, 0, 1]
    assert mixed.support.contains(np.array([[0.0, 7.0, 0.0]])).tolist() == [[True, False, True]]
    assert d.levels(
        d.Product((d.Bernoulli(jnp.full(1, 0.5)), d.Categorical(jnp.full((1, 4), 0.25))), (1, 1), (1, 0))
    ) == (4, 2)


def test_a_prior_of_a_product_is_that_of_its_parts():
    family = d.ByColumn().member(["count", "category", "continuous", "binary"], [0, 3, 0, 0])
    prior = d.ByColumn(2.0).prior(family, np.array([3.0, 0.0, 0.0, 0.0]), 1)
    member, density = jax.jit(lambda: (prior.mode(), prior.log_density(prior.mode())))()
    np.testing.assert_allclose(member.parts[1].rate, [3.0])
    rate, labels = np.asarray(member.parts[1].rate), np.asarray(member.parts[3].probabilities)
    gaussian = member.parts[0]
    variance = float(gaussian.covariance.variance[0])
    expected = (
        stats.gamma(7.0, scale=1 / 2.0).logpdf(rate[0])
        + stats.beta(2.0, 2.0).logpdf(0.5)
        + stats.dirichlet([5 / 3] * 3).logpdf(labels[0])
        + stats.invgamma(1.0, scale=2.5).logpdf(variance)
        + stats.norm(0, np.sqrt(variance / 0.02)).logpdf(0.0)
    )
    assert float(density) == pytest.approx(expected)
    # the evidence of one row is the density of it under members that the prior draws
    x, keys = np.array([2.0, 1.0, 0.3, 1.0]), np.random.default_rng(0).integers(2**31, size=2000)

    @jax.jit
    def both(x, keys):
        draws = jax.vmap(lambda k: prior.sample(key=jax.random.key(k)).log_prob(x))(keys)
        return draws, prior.log_evidence(family.features(x)) + family.log_base(x)

    draws, exact = map(np.exp, both(x, keys))
    mean, error = draws.mean(), draws.std() / np.sqrt(len(draws))
    assert abs(mean - exact) < 5 * error


def test_rounded_numbers_and_dates_have_a_mass_by_dequantisation():
    frame = FRAME.with_columns(
        pl.col("size").round(1), (pl.date(2020, 1, 1) + pl.duration(days=pl.col("visits"))).alias("visits")
    )
    own = fe.Dequantised(fe.Mixture(2, family="by column"), random_state=0).fit(frame)
    evidence = own.evidence(frame)
    assert evidence.kind is fe.Kind.EXACT
    # the mass of all rounded sizes is one
    sizes = np.arange(-60, 100) / 10
    alone = pl.DataFrame({"size": sizes}).with_columns(
        *(pl.lit(None, frame.schema[c]).alias(c) for c in frame.columns if c != "size")
    )
    assert np.exp(own.score_samples(alone)).sum() == pytest.approx(1, abs=1e-4)
    draws = own.sample(20, random_state=0)
    assert draws.schema == frame.schema
    np.testing.assert_allclose(draws["size"], draws["size"].round(1))


def test_a_second_fit_of_the_same_kinds_compiles_nothing(model):
    with count_compilations() as programs:
        fitted(frame=FRAME.reverse()).score_samples(FRAME)
    assert programs.count == 0


def test_a_real_table_is_explained_better_by_more_components():
    frame = sm.datasets.fair.load_pandas().data[::40].drop(columns="affairs")
    schema = fe.Schema.recognise(frame, kinds={"occupation": "category", "occupation_husb": "category"})
    scores = [fitted(n, schema.rows(frame)).score(frame) for n in (1, 3)]
    assert scores[1] > scores[0] + 0.3
    assert isinstance(fitted(3, schema.rows(frame)).model_, MixtureModel)


def test_models_of_mixed_tables_are_compared_on_one_scale(model):
    numbered = FRAME.with_columns(pl.Series("id", [f"N{i}" for i in range(N)]), pl.lit(1).alias("one"))
    models = {"mixed": fe.Mixture(2, family="by column"), "normal": fe.GaussianMixture(2)}
    board = fe.compare(models, numbered, test_size=0.5, random_state=0)
    assert [line.error for line in board.table()] == [None, None]
    # the bits of a fold are those of the model fitted to its rows, by hand
    fold = next(result for result in board.results if result.model == "mixed")
    train = np.setdiff1d(np.arange(N), fold.rows)
    schema = fe.Schema.recognise(FRAME)
    seed = board.models["mixed"].random_state
    assert seed is None
    own = fe.Mixture(2, family="by column", random_state=0).fit(schema.rows(FRAME[train]))
    np.testing.assert_allclose(fold.nats, own.score_samples(FRAME[fold.rows]), rtol=1e-4)
    text = " ".join(board.notes)
    assert "Column 'one' is constant and left out" in text
    assert "Column 'id' is taken for identifiers or text and left out" in text
    assert "Columns 'colour' and 'pets' hold labels" in text
    declared = fe.Schema.recognise(FRAME, kinds={"visits": "category"})
    other = fe.compare(models, FRAME, test_size=0.5, random_state=0, support=declared)
    assert "Columns 'colour', 'visits' and 'pets' hold labels" in " ".join(other.notes)
    assert other.best_estimator.sample(2, random_state=0).schema == FRAME.schema


def test_classifiers_of_mixed_tables_are_compared(model):
    # a label that the fold has not
    rare = FRAME.with_columns(
        pl.when(pl.int_range(N) == 0).then(pl.lit("fish")).otherwise("pets").alias("pets")
    )
    board = fe.compare({"bayes": fe.NaiveBayes("by column")}, rare, GROUP, cv=3, random_state=0)
    assert board.table()[0].error is None
    assert all(np.isfinite(result.nats).all() for result in board.results)
