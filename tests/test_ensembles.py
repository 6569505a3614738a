"""Bagging and boosting: beside scikit-learn, enumeration and closed forms."""

import numpy as np
import pytest
from scipy import optimize, stats
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import BaggingRegressor, GradientBoostingRegressor
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeRegressor

import freeenergy as fe
from freeenergy import distributions as d
from freeenergy.estimators.labelled._losses import LOSSES, QuantileLoss
from freeenergy.estimators.labelled._trees import LabelTree, Tree

RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (120, 2))
MEAN = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
Y = MEAN + 0.3 * RNG.normal(size=120)
LABEL = np.where(X[:, 0] * X[:, 1] + 0.3 * RNG.normal(size=120) > 0, "same", "other")


def test_trees_are_those_of_scikit_learn_and_stumps_fit_steps():
    holes = np.where(RNG.random(X.shape) < 0.1, np.nan, X)
    for y in (Y, np.column_stack([Y, -Y])):
        grown = DecisionTreeRegressor(max_depth=4, random_state=0).fit(holes, y)
        np.testing.assert_array_equal(Tree.of(grown).predict(holes), grown.predict(holes))
    step = np.where(X[:, 0] < 0.3, 1.0, 5.0)
    stump = Tree.of(DecisionTreeRegressor(max_depth=1).fit(X, step))
    np.testing.assert_array_equal(stump.predict(X), step)
    shares = LabelTree.grown(X, (LABEL == "same").astype(int), np.ones(120), 0).predict_proba(X)
    assert (shares > 0).all()
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)


def test_bagging_is_the_mixture_of_its_members():
    model = fe.Bagging(n_estimators=8, random_state=0).fit(X, Y)
    tiny = fe.Bagging(n_estimators=8, random_state=0).fit(X, 1e-150 * Y)
    np.testing.assert_allclose(1e150 * tiny.predict(X), model.predict(X), rtol=1e-6)
    new = RNG.uniform(-2, 2, (30, 2))
    members = model.member_predictions(new)
    np.testing.assert_allclose(model.predict(new), members.mean(axis=0))
    logs = [stats.norm(member, model.noise_).logpdf(1.0) for member in members]
    law = model.predict_density(new)
    np.testing.assert_allclose(law.log_prob(np.ones(30)), logsumexp(logs, axis=0) - np.log(8))
    np.testing.assert_allclose(law.variance(), model.noise_**2 + members.var(axis=0))
    # the error of the mean is that of the members less their spread, exactly
    truth = np.sin(2 * new[:, 0]) + 0.5 * new[:, 1]
    own = (members.mean(axis=0) - truth) ** 2
    np.testing.assert_allclose(own, ((members - truth) ** 2).mean(axis=0) - members.var(axis=0))


def test_intervals_of_bagging_are_judged_by_rows_out_of_bag():
    x, y = X[np.lexsort(X.T[::-1])], Y[np.lexsort(X.T[::-1])]
    model = fe.Bagging(fe.LinearRegression(), 8, random_state=0).fit(x, y)
    assert len(model.oob_scores_) == np.sum(len(model.oob_evidence_))
    new = X[:3] + 0.1
    reach = np.sort(model.oob_scores_)[int(np.ceil((len(model.oob_scores_) + 1) * 0.9)) - 1]
    law, found = model.predict_density(new), model.predict_interval(new, 0.9)
    np.testing.assert_allclose(found, [law.mean() - reach * law.std(), law.mean() + reach * law.std()])
    # a shift of all answers shifts them, and loses nothing
    far = fe.Bagging(fe.LinearRegression(), 8, random_state=0).fit(x, 1e8 + y).predict_interval(new, 0.9)
    np.testing.assert_allclose(np.subtract(far, 1e8), found, atol=1e-5)
    # of few rows the mixture has to do
    few = fe.Bagging(n_estimators=8, random_state=0).fit(X[:6], Y[:6])
    np.testing.assert_array_equal(few.predict_interval(new, 0.99), few.predict_density(new).interval(0.99))


def test_scores_out_of_bag_are_those_of_a_mean_of_all_copies():
    # copies that know nothing but their own rows: their means differ by σ²/n, and answers by σ²
    rng, held = np.random.default_rng(0), []
    for _ in range(40):
        y = rng.normal(size=30)
        bags = fe.Bagging(DummyRegressor(), 4, random_state=0).fit(np.arange(30.0)[:, None], y)
        low, high = bags.predict_interval(np.zeros((1, 1)), 0.8)
        held.append(stats.norm.cdf(high[0]) - stats.norm.cdf(low[0]))
    # the 25th of at most 30 scores
    assert abs(np.mean(held) - 0.8) < 4 * np.std(held) / np.sqrt(40) + 1 / 31


def test_bagged_trees_predict_as_well_as_those_of_scikit_learn():
    new = np.random.default_rng(1).uniform(-2, 2, (500, 2))
    truth = np.sin(2 * new[:, 0]) + 0.5 * new[:, 1]
    ours = fe.Bagging(n_estimators=60, random_state=0).fit(X, Y).predict(new)
    theirs = BaggingRegressor(n_estimators=60, random_state=0).fit(X, Y).predict(new)
    alone = DecisionTreeRegressor(random_state=0).fit(X, Y).predict(new)
    errors = [np.mean((found - truth) ** 2) for found in (ours, theirs, alone)]
    assert errors[0] == pytest.approx(errors[1], rel=0.15)
    assert errors[0] < 0.8 * errors[2]
    # two runs differ by chance alone
    assert np.corrcoef(ours, theirs)[0, 1] > 0.98


def test_out_of_bag_bits_are_those_of_new_rows():
    rng = np.random.default_rng(2)
    new = rng.uniform(-2, 2, (400, 2))
    y = np.sin(2 * new[:, 0]) + 0.5 * new[:, 1] + 0.3 * rng.normal(size=400)
    for estimator in (None, fe.LinearRegression()):
        model = fe.Bagging(estimator, n_estimators=30, random_state=0).fit(X, Y)
        out, fresh = model.oob_evidence_, model.evidence(new, y)
        error = np.hypot(out.nats.std() / np.sqrt(len(out)), fresh.nats.std() / np.sqrt(400))
        assert abs(out.mean - fresh.mean) < 4 * error
    assert fe.Bagging(fe.LinearRegression(), 3, bootstrap=False).fit(X, Y).oob_evidence_ is None


def test_rows_and_columns_that_are_drawn():
    model = fe.Bagging(LinearRegression(), 50, max_features=0.5, random_state=0).fit(X, Y)
    assert {tuple(columns) for columns in model.member_columns_} == {(0,), (1,)}
    slopes = [m.coef_[0] for m, c in zip(model.members_, model.member_columns_, strict=True) if c[0] == 1]
    # the spread of bootstrapped slopes is their standard error
    line = stats.linregress(X[:, 1], Y)
    assert np.std(slopes, ddof=1) == pytest.approx(line.stderr, rel=4 / np.sqrt(2 * len(slopes)))
    features = make_pipeline(RBFSampler(gamma=0.5, n_components=40), Ridge(1e-2))
    forest = fe.Bagging(features, 10, bootstrap=False, random_state=0).fit(X, Y)
    found = forest.member_predictions(X)
    assert (found.std(axis=0) > 0).all()
    assert np.mean((forest.predict(X) - MEAN) ** 2) < np.mean((found - MEAN) ** 2)


def test_bagged_classifiers_average_probabilities():
    model = fe.BaggingClassifier(n_estimators=15, random_state=0).fit(X, LABEL)
    new = np.random.default_rng(3).uniform(-2, 2, (200, 2))
    right = np.where(new[:, 0] * new[:, 1] > 0, "same", "other")
    assert (model.predict(new) == right).mean() > 0.85
    found = model.predict_proba(new)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    by_hand = np.mean([m.predict_proba(model.scaling_.apply(new)) for m in model.members_], axis=0)
    np.testing.assert_allclose(found, by_hand)
    assert abs(model.oob_evidence_.mean - model.evidence(new, right).mean) < 0.25
    linear = fe.BaggingClassifier(LogisticRegression(), 5, random_state=0).fit(X, LABEL)
    np.testing.assert_allclose(
        linear.predict_proba(X), np.mean([m.predict_proba(X) for m in linear.members_], axis=0)
    )


# deeper trees of several columns have ties, which each breaks by chance
@pytest.mark.parametrize(("depth", "columns"), [(1, 2), (3, 1)])
def test_boosting_of_squared_error_is_that_of_scikit_learn(depth, columns):
    x, new = X[:, :columns], RNG.uniform(-2, 2, (200, columns))
    weak = DecisionTreeRegressor(max_depth=depth, random_state=0)
    ours = fe.Boosting(weak=weak, n_estimators=40, validation_fraction=0.0).fit(x, Y)
    theirs = GradientBoostingRegressor(n_estimators=40, learning_rate=0.1, max_depth=depth, random_state=0)
    np.testing.assert_allclose(ours.predict(new), theirs.fit(x, Y).predict(new), atol=1e-8)
    # the step that is best for a projection on leaves is one
    np.testing.assert_allclose(ours.stages_[0].steps, 0.1, rtol=1e-9)


def test_a_stage_lowers_squared_error_by_as_much_as_the_notes_say():
    one = fe.Boosting(weak=Ridge(50.0), n_estimators=1, learning_rate=1.0, validation_fraction=0.0).fit(
        X, Y
    )
    tiny = fe.Boosting(n_estimators=3, random_state=0).fit(X, 1e-150 * Y)
    usual = fe.Boosting(n_estimators=3, random_state=0).fit(X, Y)
    np.testing.assert_allclose(1e150 * tiny.predict(X), usual.predict(X), rtol=1e-6)
    residual = Y - Y.mean()
    g = one.stages_[0].members[0].predict(X) * one.answer_scaling_.scale[0]
    assert one.stages_[0].steps[0] == pytest.approx(residual @ g / (g @ g), rel=1e-9)
    drop = (residual**2).sum() - ((Y - one.predict(X)) ** 2).sum()
    assert drop == pytest.approx((residual @ g) ** 2 / (g @ g), rel=1e-9)


ANSWERS = {
    d.Poisson: lambda: np.random.default_rng(4).poisson(np.exp(MEAN)).astype(float),
    d.Bernoulli: lambda: (np.random.default_rng(5).random(120) < 1 / (1 + np.exp(-3 * MEAN))).astype(float),
    d.Gamma: lambda: np.random.default_rng(6).gamma(3.0, np.exp(MEAN) / 3),
    d.Laplace: lambda: MEAN + 0.2 * np.random.default_rng(7).laplace(size=120),
    d.Gaussian: lambda: Y,
}


@pytest.mark.parametrize("family", ANSWERS)
def test_every_loss_falls_and_is_that_of_its_family(family):
    y, loss = ANSWERS[family](), LOSSES[family]
    model = fe.Boosting(family, n_estimators=60, random_state=0).fit(X, y)
    losses = model.history_["objective"]
    assert (np.diff(losses) <= 1e-9 * np.abs(losses[:-1])).all()
    # better than no rows at all, on rows that were not fitted
    assert model.history_["validation"].min() < model.history_["validation"][0]
    # the loss is −log p, up to a constant and a scale
    score, weight = np.linspace(-1, 1, 120), np.ones(120)
    spread = np.array(loss.dispersion(y, score, weight))
    nats = -loss.laws(score, spread).log_prob(y)
    other = -loss.laws(score + 0.3, spread).log_prob(y)
    gap = loss.values(y, score + 0.3) - loss.values(y, score)
    size = {d.Gaussian: spread**2, d.Laplace: spread, d.Gamma: 1 / spread}.get(family, 1.0)
    np.testing.assert_allclose((other - nats) * size, gap, atol=1e-9)
    # slopes and starts, by differences and by search
    h = 1e-6
    slope = (loss.values(y, score - h) - loss.values(y, score + h)) / (2 * h)
    kink = np.abs(y - score) < 1e-5
    np.testing.assert_allclose(loss.descent(y, score)[~kink], slope[~kink], atol=1e-5)
    least = optimize.minimize_scalar(
        lambda c: loss.values(y, np.full(120, c)).sum(), bounds=(-5, 5), method="bounded"
    )
    assert loss.values(y, np.full(120, loss.start(y, weight))).sum() == pytest.approx(least.fun, abs=1e-6)
    if family is not d.Laplace:
        search = optimize.minimize_scalar(
            lambda s: -loss.laws(score, np.array(np.exp(s))).log_prob(y).sum(),
            bounds=(-4, 4),
            method="bounded",
        )
        if family in (d.Gaussian, d.Gamma):
            assert np.log(spread) == pytest.approx(search.x, abs=1e-4)


def test_quantiles_are_boosted():
    rng = np.random.default_rng(8)
    x = rng.uniform(-2, 2, (600, 1))
    y = x[:, 0] + (1 + 0.5 * x[:, 0]) * rng.normal(size=600)
    model = fe.Boosting(QuantileLoss(0.9), n_estimators=200, random_state=0).fit(x[:400], y[:400])
    below = (y[400:] <= model.predict(x[400:])).mean()
    assert abs(below - 0.9) < 4 * np.sqrt(0.09 / 200) + 0.02
    pinball = fe.evaluation.pinball(y[400:], model.predict(x[400:]), 0.9).value
    assert pinball < fe.evaluation.pinball(y[400:], np.full(200, np.quantile(y[:400], 0.9)), 0.9).value
    with pytest.raises(ValueError, match=r"'p' of QuantileLoss must be a float in the range \(0, 1\)"):
        QuantileLoss(1.0)


def test_other_weak_learners_several_outputs_and_early_stopping():
    linear = fe.Boosting(
        weak=fe.LinearRegression(), n_estimators=200, learning_rate=0.5, validation_fraction=0.0
    )
    np.testing.assert_allclose(
        linear.fit(X, Y).predict(X), LinearRegression().fit(X, Y).predict(X), atol=1e-6
    )
    both = fe.Boosting(n_estimators=30, random_state=0).fit(X, np.column_stack([Y, -2 * Y]))
    assert both.predict(X).shape == (120, 2)
    one = fe.Boosting(n_estimators=30, validation_fraction=0.0).fit(X, np.column_stack([Y, -2 * Y]))
    alone = fe.Boosting(n_estimators=30, validation_fraction=0.0).fit(X, Y)
    assert np.corrcoef(one.predict(X)[:, 0], alone.predict(X))[0, 1] > 0.999
    noise = fe.Boosting(n_estimators=300, patience=5, random_state=0).fit(
        X, np.random.default_rng(9).normal(size=120)
    )
    # of pure noise there is little to learn
    assert noise.n_iter_ < 30
    assert len(noise.history_["validation"]) == noise.n_iter_ + 5 or noise.n_iter_ == 300


@pytest.mark.parametrize(
    "model",
    [
        fe.Bagging(n_estimators=4, random_state=0),
        fe.Bagging(fe.LinearRegression(), 4, random_state=0),
        fe.Boosting(n_estimators=6, random_state=0),
    ],
    ids=["trees", "lines", "boosting"],
)
def test_files_weights_and_missing_entries(model, tmp_path):
    fitted = clone(model).fit(X, Y)
    fitted.save(tmp_path / "m.safetensors")
    again = fe.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(again.evidence(X, Y).nats, fitted.evidence(X, Y).nats)
    weight = np.arange(120) % 3
    weighted = clone(model).fit(X, Y, sample_weight=weight)
    repeated = clone(model).fit(np.repeat(X, weight, axis=0)[::-1], np.repeat(Y, weight)[::-1])
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), rtol=1e-9)
    holes = np.where(np.random.default_rng(10).random(X.shape) < 0.2, np.nan, X)
    found = clone(model).fit(holes, Y).evidence(holes, Y)
    assert found.kind is fe.Kind.ESTIMATE
    assert np.isfinite(found.nats).all()


def test_what_is_refused():
    with pytest.raises(
        ValueError, match=r"'loss' parameter of Boosting must be one of the families Gaussian"
    ):
        fe.Boosting("squared").fit(X, Y)
    with pytest.raises(ValueError, match="'y' of Boosting must be what PoissonLoss is about"):
        fe.Boosting(d.Poisson).fit(X, Y)
    with pytest.raises(
        ValueError, match="'weak' parameter of Boosting must be a regressor of freeenergy or"
    ):
        fe.Boosting(weak=LogisticRegression()).fit(X, Y)
    with pytest.raises(
        ValueError, match="'estimator' parameter of Bagging must be a regressor of freeenergy"
    ):
        fe.Bagging("tree").fit(X, Y)
    with pytest.raises(ValueError, match="'n_estimators' parameter of Bagging must be an int"):
        fe.Bagging(n_estimators=0).fit(X, Y)
    with pytest.raises(ValueError, match="'max_features' parameter of BaggingClassifier must be a float"):
        fe.BaggingClassifier(max_features=1.5).fit(X, LABEL)
