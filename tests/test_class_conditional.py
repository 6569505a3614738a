"""Models of rows given their label: against laws that are known, Bayes' rule, and models without labels."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest
from data import ROWS
from scipy import integrate, special, stats

import freeenergy as fe
from freeenergy import testing
from freeenergy.distributions import Free, Full, Gaussian
from freeenergy.estimators.labelled._class_conditional import ByClass, summed_error
from freeenergy.learning import Batch, Denoising, FreeEnergy, Unlabelled
from freeenergy.models import (
    ByLabel,
    Diffusion,
    EachLabel,
    Guided,
    LabelledAdversaries,
    LogLinearSchedule,
    MixturePrior,
    ToldLabel,
    label_codes,
    labelled_adversaries,
    tell,
)
from freeenergy.nn import ResidualDenoiser
from freeenergy.testing._common import refitted

KEY = jax.random.key(0)
# three labels, of which the second is the most frequent
NAMES = np.array(["first", "second", "third"])
PLACES = np.repeat([0, 1, 2], [30, 60, 30])
MEANS = np.array([[-2.0, 1.0], [1.0, 0.0], [4.0, 3.0]])
SPREADS = np.array([[0.5, 1.0], [1.0, 0.6], [0.8, 0.8]])
SHARES = np.array([0.25, 0.5, 0.25])
X, Y = MEANS[PLACES] + SPREADS[PLACES] * ROWS, NAMES[PLACES]
NEW = MEANS[PLACES[::4]] + SPREADS[PLACES[::4]] * np.random.RandomState(1).normal(size=(30, 2))


class Known(eqx.Module):
    """What the best network says of data N(m, diag v), with m and v of each label, and of none."""

    means: jax.Array
    variances: jax.Array

    def __call__(self, told, log_snr):
        dim = self.means.shape[1]
        x, code = told[:dim], told[dim:]
        label = jnp.where(jnp.max(code) > 0, jnp.argmax(code), len(code))
        m, v = self.means[label], self.variances[label]
        alpha, sigma = jnp.sqrt(jax.nn.sigmoid(log_snr)), jnp.sqrt(jax.nn.sigmoid(-log_snr))
        noise = sigma * (x - alpha * m) / (alpha**2 * v + sigma**2)
        # a velocity, beyond that of N(0, I), which is zero
        return alpha * noise - sigma * (x - sigma * noise) / alpha


def known(means, variances, labels):
    """A diffusion that is told one of the labels, by the best network."""
    network = Known(jnp.asarray(means, float), jnp.asarray(variances, float))
    return Diffusion(ToldLabel(network, jnp.zeros(label_codes(labels).shape[1])), network.means.shape[1])


@pytest.fixture(scope="module")
def diffusion():
    """An estimator whose network is the best for three Gaussian labels."""
    small = {"network": ResidualDenoiser(4, 1), "max_iter": 1, "steps": 32, "importance_samples": 256}
    model = fe.ClassConditionalDiffusion(**small, random_state=0).fit(X, Y)
    shift, scale = model.scaling_
    scaled = (MEANS - shift) / scale, (SPREADS / scale) ** 2
    # told no label, N(0, I)
    means, variances = (np.concatenate([a, [[none] * 2]]) for a, none in zip(scaled, (0, 1), strict=True))
    model.model_ = dataclasses.replace(model.model_, model=known(means, variances, 3))
    return model


def truth(model, rows):
    """log p(x | y) of each row and label; NaN is left out.

    The flow takes quantiles to quantiles, from N(0, 1) where there is most noise to where there is least,
    which counts as part of the data.
    """
    shift, scale = model.scaling_
    (clean, noisy), m, v = LogLinearSchedule().ends(float), (MEANS - shift) / scale, (SPREADS / scale) ** 2
    (mean, std), (first, spread) = (
        (np.sqrt(special.expit(at)) * m, np.sqrt(special.expit(at) * v + special.expit(-at)))
        for at in (np.asarray(clean), np.asarray(noisy))
    )
    m, s = mean - std * first / spread, std / spread
    each = stats.norm.logpdf((rows[:, None] - shift) / scale, m, s) - np.log(scale)
    return np.nansum(each, axis=2)


def test_evidence_and_chances_of_labels_are_those_of_the_law(diffusion):
    logs = truth(diffusion, NEW) + np.log(SHARES)
    whole = np.logaddexp.reduce(logs, axis=1)
    np.testing.assert_allclose(diffusion.class_prior_, SHARES, rtol=1e-12)
    found = diffusion.evidence(NEW)
    assert found.kind is fe.Kind.ESTIMATE
    # the error of the solver, and no more
    assert (np.abs(found.nats - whole) < found.stderr + 1e-4).all()
    assert found.stderr.max() < 0.02
    np.testing.assert_allclose(diffusion.predict_proba(NEW), np.exp(logs - whole[:, None]), atol=2e-3)
    labels = NAMES[np.argmax(logs, axis=1)]
    sure = np.sort(logs, axis=1)[:, -1] - np.sort(logs, axis=1)[:, -2] > 0.02
    assert (diffusion.predict(NEW) == labels)[sure].all()
    told = NAMES[PLACES[::4]]
    rows = np.arange(len(NEW))
    given = diffusion.evidence_given_labels(NEW, told)
    assert (np.abs(given.nats - truth(diffusion, NEW)[rows, PLACES[::4]]) < given.stderr + 1e-4).all()
    of_labels = diffusion.evidence_of_labels(NEW, told)
    assert (
        np.abs(of_labels.nats - (logs - whole[:, None])[rows, PLACES[::4]]) < of_labels.stderr + 1e-4
    ).all()
    # the three numbers that are asked for are of one law
    np.testing.assert_allclose(
        of_labels.nats + found.nats, given.nats + np.log(SHARES[PLACES[::4]]), atol=1e-9
    )
    bound = diffusion.bound(NEW, told, draws=64)
    assert bound.kind is fe.Kind.LOWER
    assert (bound.nats < truth(diffusion, NEW)[rows, PLACES[::4]] + 5 * bound.stderr + 0.02).all()


@pytest.mark.slow
def test_missing_entries_say_less_of_the_label(diffusion):
    rows = NEW[:12].copy()
    rows[:4, 0] = rows[4:8, 1] = np.nan
    rows[8] = np.nan
    logs = truth(diffusion, rows) + np.log(SHARES)
    whole = np.logaddexp.reduce(logs, axis=1)
    found = diffusion.evidence(rows)
    assert (np.abs(found.nats - whole) < 5 * found.stderr + 1e-4).all()
    assert found.nats[8] == pytest.approx(0, abs=1e-12)
    chances = np.exp(logs - whole[:, None])
    assert np.abs(diffusion.predict_proba(rows) - chances).max() < 5 * found.stderr.max() + 2e-3
    # the mean of what is missing is that of each label, as probable as the rest makes it
    expected = np.where(np.isnan(rows), chances @ MEANS, rows)
    filled = diffusion.impute(rows)
    spread = np.sqrt(chances @ (SPREADS**2 + MEANS**2) - (chances @ MEANS) ** 2)
    # 8 paths of 16 particles, which are not independent along a path
    assert (np.abs(filled - expected) <= 5 * spread / np.sqrt(8) + 0.05).all()
    assert (filled == rows)[~np.isnan(rows)].all()
    told = diffusion.sample(40, 0, given=rows[:4], labels=["first", "second", "third", "third"])
    moved = (told[:, :, 0].mean(axis=0) - MEANS[[0, 1, 2, 2], 0]) / (SPREADS[[0, 1, 2, 2], 0] / np.sqrt(40))
    assert (np.abs(moved) < 5).all()
    free = diffusion.sample(200, 0, given=rows[8:9])[:, 0]
    assert (np.abs(free.mean(axis=0) - SHARES @ MEANS) < 5 * free.std(axis=0) / np.sqrt(200)).all()


def test_draws_have_the_labels_that_were_asked_for(diffusion):
    for place, name in enumerate(NAMES):
        drawn = diffusion.sample(500, place, labels=name)
        assert (np.abs(drawn.mean(axis=0) - MEANS[place]) < 5 * SPREADS[place] / np.sqrt(500)).all()
        np.testing.assert_allclose(drawn.std(axis=0), SPREADS[place], rtol=5 / np.sqrt(1000))
    rows, labels = diffusion.sample_with_labels(400, 3)
    np.testing.assert_array_equal(rows, diffusion.sample(400, 3))
    np.testing.assert_array_equal(rows, diffusion.sample(400, 3, labels=labels))
    counts = [np.sum(labels == name) for name in NAMES]
    assert stats.chisquare(counts, 400 * SHARES).pvalue > 1e-4
    for place, name in enumerate(NAMES):
        own = rows[labels == name]
        assert (np.abs(own.mean(axis=0) - MEANS[place]) < 5 * SPREADS[place] / np.sqrt(len(own))).all()
    # of several labels as many draws as there are
    assert diffusion.sample(labels=["first", "third"]).shape == (2, 2)
    assert diffusion.sample(0, labels="first").shape == (0, 2)


def test_guided_draws_are_where_the_guided_score_leads(diffusion):
    """In one dimension, against a linear equation that SciPy solves."""
    means, variances = np.array([[1.5], [-1.0], [0.0]]), np.array([[0.25], [0.6], [1.0]])
    model = ByLabel.of(jnp.array([0.5, 0.5]), known(means, variances, 2)).at(jnp.array(0))
    low, high = sorted(float(end) for end in model.schedule.ends(float))

    @eqx.filter_jit
    def ends(weight):
        flow: Any = Guided.of(model, weight).flow(128)
        return jax.vmap(flow.bijection.moved)(jnp.array([[0.0], [1.0]]))[:, 0]

    def slope(log_snr, x, w):
        """dx/dλ of the probability flow of the chain with α² = 1 − σ² = 1 / (1 + e^−λ)."""
        alpha2, sigma2 = special.expit(log_snr), special.expit(-log_snr)
        alpha = np.sqrt(alpha2)
        scores = [(alpha * m - x) / (alpha2 * v + sigma2) for m, v in zip(means, variances, strict=True)]
        score = (1 + w) * scores[0] - w * scores[2]
        # d log α/dλ = σ²/2, and dσ²/dλ = −α² σ², of which the noise takes −σ²
        return 0.5 * sigma2 * x + 0.5 * sigma2 * score

    moved = {}
    for w in (0.0, 1.0, 3.0):
        zero, one = np.asarray(ends(jnp.array(w)))
        again = [
            integrate.solve_ivp(slope, (low, high), [start], args=(w,), rtol=1e-10, atol=1e-12).y[0, -1]
            for start in (0.0, 1.0)
        ]
        np.testing.assert_allclose([zero, one - zero], [again[0], again[1] - again[0]], rtol=2e-4)
        moved[w] = zero, one - zero
    # without guidance that of the label itself; with it farther from the rest, and narrower
    np.testing.assert_allclose(moved[0.0], [1.5, 0.5], rtol=5e-3)
    assert moved[0.0][0] < moved[1.0][0] < moved[3.0][0]
    assert moved[0.0][1] > moved[1.0][1] > moved[3.0][1]
    # the score is what it says
    x, t = jnp.array([0.3]), jnp.array(0.4)
    untold = tell(model, jnp.zeros(2))
    guided, told, none = (
        eqx.filter_jit(lambda m: m.score(x, t))(m)
        for m in (Guided.of(model, jnp.array(3.0)), model, untold)
    )
    np.testing.assert_allclose(guided, 4 * told - 3 * none, rtol=1e-9)
    # an estimator draws along it
    far = diffusion.sample(300, 0, labels="third", guidance=2.0)
    near = diffusion.sample(300, 0, labels="third")
    assert (far.mean(axis=0) > near.mean(axis=0) + 0.5).all()
    assert (far.std(axis=0) < 0.8 * near.std(axis=0)).all()


def test_errors_of_labels_are_combined():
    found = ByClass(np.zeros((1, 2)), np.array([[0.3, 0.4]]), fe.Kind.LOWER, None)
    shares = np.array([[0.5, 0.5]])
    assert summed_error(shares, found.stderr, together=False)[0] == pytest.approx(0.25)
    assert summed_error(shares, found.stderr, together=True)[0] == pytest.approx(0.35)
    # log Σ π e^b by the delta method, against draws
    rng = np.random.default_rng(0)
    logs = np.log([0.3, 0.7]) + np.array([-1.0, -2.0])
    noisy = np.logaddexp.reduce(logs + rng.normal(0, [0.01, 0.03], (20_000, 2)), axis=1)
    spread = summed_error(special.softmax(logs)[None], np.array([[0.01, 0.03]]), together=False)
    np.testing.assert_allclose(noisy.std(), spread[0], rtol=5 / np.sqrt(40_000))


def test_labels_are_taken_away_from_a_share_of_rows():
    model = ByLabel.of(jnp.ones(3) / 3, None)
    batch: Any = Batch((np.zeros((3000, 1)), np.arange(3000.0) % 3), np.full(3000, 1 / 3000))

    def share(model, batch, key):
        return batch.mean(jnp.where(batch.x[1] == 3, 1.0, 0.0))

    found = float(eqx.filter_jit(Unlabelled(share, 0.2))(model, batch, KEY))
    assert abs(found - 0.2) < 5 * np.sqrt(0.2 * 0.8 / 3000)
    # the error of pairs is that of each label, by the same noise
    both = ByLabel.of(jnp.array([0.5, 0.5]), known([[1.0], [-1.0], [0.0]], [[0.5], [0.5], [1.0]], 2))
    rows, weight = np.linspace(-1, 1, 8)[:, None], np.full(8, 0.125)
    error: Any = eqx.filter_jit(lambda model, batch: Denoising()(model, batch, KEY))
    told = error(both, Batch((rows, np.ones(8)), weight))
    np.testing.assert_allclose(
        told, error(tell(both.model, both.codes[1]), Batch(rows, weight)), rtol=1e-12
    )


def test_what_is_missing_is_drawn_given_the_label():
    members = Gaussian(
        jnp.array([[[0.0, 0.0]], [[9.0, 9.0]]]), Full(jnp.tile(0.01 * jnp.eye(2), (2, 1, 1, 1)))
    )
    each = EachLabel(fe.models.Mixture(jnp.ones((2, 1)), members))
    row, draw = jnp.array([jnp.nan, 0.0]), eqx.filter_jit(each.complete_sample)
    for label, mean in enumerate((0.0, 9.0)):
        x, kept = draw((row, jnp.array(label)), key=KEY)
        assert abs(float(x[0]) - mean) < 0.5
        assert int(kept) == label


# -- an autoencoder whose networks are linear, which is a factor model of each label ----------------


@pytest.fixture(scope="module")
def linear():
    small = {"depth": 0, "max_iter": 100, "learning_rate": 0.02, "importance_samples": 400}
    return fe.ClassConditionalVAE(1, **small, random_state=0).fit(X, Y)


def factors(model):
    """Mean of each label and the covariance of all, by the weights of the decoder, in the units of X."""
    vae, scale = model.model_.model, model.scaling_.scale
    layer = vae.decoder.network.layers[0]
    weight, bias = np.asarray(layer.weight), np.asarray(layer.bias)
    means = (np.sqrt(3) * weight[1:] + bias) * scale + model.scaling_.shift
    noise = np.diag(np.asarray(vae.emission.member.covariance.variances()))
    return means, (weight[:1].T @ weight[:1] + noise) * np.outer(scale, scale)


def logs_of_factors(model, rows):
    """log p(x, y) of each label; NaN is left out."""
    means, covariance = factors(model)
    found = np.zeros((len(rows), 3))
    for i, row in enumerate(rows):
        seen = np.flatnonzero(~np.isnan(row))
        if len(seen):
            laws = [stats.multivariate_normal(m[seen], covariance[np.ix_(seen, seen)]) for m in means]
            found[i] = [law.logpdf(row[seen]) for law in laws]
    return found + np.log(SHARES)


def test_linear_autoencoders_of_labels_are_factor_models(linear):
    rows, told = NEW.copy(), PLACES[::4]
    rows[:4, 0] = rows[4:8, 1] = np.nan
    rows[8] = np.nan
    logs = logs_of_factors(linear, rows)
    whole, every = np.logaddexp.reduce(logs, axis=1), np.arange(len(rows))
    found = linear.evidence(rows)
    assert found.kind is fe.Kind.LOWER
    gap, spread = found.nats - whole, 5 * found.stderr + 1e-9
    assert (np.abs(gap) < spread + 5e-3).all()
    assert found.nats[8] == pytest.approx(0, abs=1e-9)
    assert found.growth is not None
    assert np.isfinite(found.growth).all()
    given = linear.evidence_given_labels(rows, NAMES[told])
    assert given.kind is fe.Kind.LOWER
    assert (np.abs(given.nats - (logs - np.log(SHARES))[every, told]) < 5 * given.stderr + 5e-3).all()
    # odds are ratios of two bounds: estimates, with the errors of both
    chances = np.exp(logs - whole[:, None])
    np.testing.assert_allclose(linear.predict_proba(rows), chances, atol=5 * found.stderr.max() + 5e-3)
    of_labels = linear.evidence_of_labels(rows, NAMES[told])
    assert of_labels.kind is fe.Kind.ESTIMATE
    gap = of_labels.nats - (logs - whole[:, None])[every, told]
    assert (np.abs(gap) < 5 * of_labels.stderr + 1e-2).all()
    # what is missing, given the rest and each label that it speaks for
    means, covariance = factors(linear)
    expected = rows.copy()
    for i in range(9):
        holes, seen = np.flatnonzero(np.isnan(rows[i])), np.flatnonzero(~np.isnan(rows[i]))
        slope = covariance[np.ix_(holes, seen)] @ np.linalg.pinv(covariance[np.ix_(seen, seen)])
        of_labels = means[:, holes] + (rows[i, seen] - means[:, seen]) @ slope.T
        expected[i, holes] = chances[i] @ of_labels
    # 200 codes of each label
    allowed = 5 * np.sqrt(np.diag(covariance) / 200) + 0.05
    assert (np.abs(linear.impute(rows) - expected) < allowed).all()
    drawn = linear.sample(200, 0, given=rows[:1], labels="third")[:, 0]
    slope = covariance[0, 1] / covariance[1, 1]
    mean, rest = (
        means[2, 0] + slope * (rows[0, 1] - means[2, 1]),
        covariance[0, 0] - slope * covariance[0, 1],
    )
    assert abs(drawn[:, 0].mean() - mean) < 5 * np.sqrt(rest / 200) + 0.05
    # draws of a label have its mean
    for place, name in enumerate(NAMES):
        drawn = linear.sample(500, place, labels=name)
        assert (np.abs(drawn.mean(axis=0) - means[place]) < 5 * np.sqrt(np.diag(covariance) / 500)).all()


def test_the_bound_given_a_label_is_below_the_density(linear):
    """E ln p(x | y, z) − KL(q(z | x, y) ‖ p(z)) ≤ ln p(x | y), with p(z | y) = N(0, I)."""
    pairs = jnp.asarray(linear.scaling_.apply(NEW)), jnp.asarray(PLACES[::4], float)
    loss = eqx.filter_jit(FreeEnergy())
    batch = Batch(pairs, jnp.full(len(NEW), 1 / len(NEW)))
    bounds = -np.array([loss(linear.model_, batch, jax.random.key(i)) for i in range(50)])
    bounds = bounds - np.log(linear.scaling_.scale).sum()
    logs = logs_of_factors(linear, NEW) - np.log(SHARES)
    density = logs[np.arange(len(NEW)), PLACES[::4]].mean()
    error = bounds.std() / np.sqrt(50)
    assert density - 1 < bounds.mean() < density + 5 * error
    # a bound of pairs is that of the model that is told the label
    one = Batch((pairs[0][:5], jnp.full(5, 2.0)), jnp.full(5, 0.2))
    told = tell(linear.model_.model, linear.model_.codes[2])
    np.testing.assert_allclose(
        loss(linear.model_, one, KEY), loss(told, Batch(one.x[0], one.weight), KEY), rtol=1e-12
    )


@pytest.mark.slow
def test_families_of_columns_by_label():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=120)
    frame = pl.DataFrame({"number": X[:, 0], "label": np.where(rng.random(120) < 0.1 + 0.8 * y, "u", "v")})
    small = {"width": 8, "max_iter": 60, "learning_rate": 0.02, "importance_samples": 50}
    model = fe.ClassConditionalVAE(1, "by column", **small, random_state=0).fit(frame, y)
    holes = pl.DataFrame({"number": X[:2, 0], "label": pl.Series([None, None], dtype=pl.String)})
    for label, likely in ((0, "v"), (1, "u")):
        assert (model.sample(100, 0, labels=label)["label"] == likely).sum() > 60
        given = model.sample(50, 0, given=holes, labels=label)
        assert sum((part["label"] == likely).sum() for part in given) > 60
    filled = model.impute(holes)["label"].to_list()
    shares = model.predict_proba(holes)
    # the most probable label of the column over those of the rows
    odds = [(model.sample(200, 1, labels=k)["label"] == "u").mean() for k in range(2)]
    sure = np.abs(shares @ odds - 0.5) > 0.15
    assert [name for name, s in zip(filled, sure, strict=True) if s] == [
        "u" if p > 0.5 else "v" for p, s in zip(shares @ odds, sure, strict=True) if s
    ]


# -- models without labels, and learned ones --------------------------------------------------------


SIBLINGS = {
    "diffusion": (
        fe.ClassConditionalDiffusion,
        fe.DiffusionModel,
        {"network": ResidualDenoiser(4, 1), "max_iter": 5, "steps": 4},
    ),
    "gan": (fe.ClassConditionalGAN, fe.GAN, {"width": 8, "depth": 1, "max_iter": 3}),
    "vae": (
        fe.ClassConditionalVAE,
        fe.VAE,
        {"latent_dim": 1, "width": 8, "max_iter": 10, "batch_size": 64, "importance_samples": 50},
    ),
}


@pytest.mark.parametrize("name", [pytest.param("diffusion", marks=pytest.mark.slow), *list(SIBLINGS)[1:]])
def test_with_one_label_it_is_the_model_without_labels(name):
    labelled, plain, small = SIBLINGS[name]
    one, other = (
        labelled(**small, random_state=0).fit(ROWS, ["a"] * len(ROWS)),
        plain(**small, random_state=0),
    )
    other.fit(ROWS)
    np.testing.assert_allclose(one.sample(5, 0), other.sample(5, 0), rtol=1e-9)
    if isinstance(one, fe.shell.Scores):
        np.testing.assert_allclose(one.score_samples(ROWS), other.score_samples(ROWS), rtol=1e-9)
        assert one.evidence(ROWS).kind is other.evidence(ROWS).kind
        np.testing.assert_array_equal(one.predict_proba(ROWS), np.ones((len(ROWS), 1)))
    for found, expected in zip(one.history_.values(), other.history_.values(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_generator_repeats_the_label_that_it_is_told():
    shares = np.array([0.2, 0.5, 0.3])
    made = labelled_adversaries(2, 3, shares, mask_input=True, width=8, depth=1, key=KEY)
    assert isinstance(made, LabelledAdversaries)
    # of the rows, of what is observed of them, and of the label
    assert made.critic.layers[0].weight.shape[0] == 2 + 2 + 3

    @eqx.filter_jit
    def draws(model, keys):
        causes = jax.vmap(lambda k: model.cause(key=k))(keys)
        rows = jax.vmap(model.make)(causes)
        slopes = jax.vmap(jax.grad(lambda x: model.judge(x, x == x)))(rows)
        return causes, rows, slopes

    causes, rows, slopes = map(np.asarray, draws(made, jax.random.split(KEY, 2000)))
    np.testing.assert_array_equal(rows[:, 2:], causes[:, 3:])
    np.testing.assert_allclose(np.sort(causes[:, 3:], axis=1), [[0, 0, np.sqrt(3)]] * 2000, rtol=1e-6)
    counts = np.bincount(np.argmax(causes[:, 3:], axis=1), minlength=3)
    assert stats.chisquare(counts, 2000 * shares).pvalue > 1e-4
    # the critic sees the label, and pays for no slope along it
    assert (slopes[:, 2:] == 0).all()
    assert (slopes[:, :2] != 0).any(axis=1).all()
    judge = eqx.filter_jit(lambda model, x: model.judge(x, x == x))
    assert float(judge(made, rows[0])) != float(judge(made, np.append(rows[0, :2], [0, 0, 0]).astype("f4")))


@pytest.mark.slow
def test_a_generator_learns_the_rows_of_each_label():
    rng = np.random.default_rng(0)
    places = rng.choice(3, 2000, p=SHARES)
    rows = MEANS[places] + SPREADS[places] * rng.normal(size=(2000, 2))
    model = fe.ClassConditionalGAN(width=64, max_iter=100, random_state=0).fit(rows, NAMES[places])
    for place, name in enumerate(NAMES):
        drawn = model.sample(2000, place, labels=name)
        # players circle about the equilibrium, and clusters come out narrow
        assert (np.abs(drawn.mean(axis=0) - MEANS[place]) < 0.4 * SPREADS[place]).all()
        assert (drawn.std(axis=0) < 1.2 * SPREADS[place]).all()
        nearest = np.argmin(((drawn[:, None] - MEANS) ** 2 / SPREADS**2).sum(axis=2), axis=1)
        assert np.mean(nearest == place) > 0.9
    with pytest.raises(AttributeError, match=r"ClassConditionalGAN has no density"):
        model.score(rows)
    with pytest.raises(ValueError, match=r"takes no 'given'"):
        model.sample(given=rows[:2])


class LabelledBySide:
    """Rows on one side of a line have one label: so contracts of densities, which know of none, fit it."""

    def fit(self, X, y=None, sample_weight=None):
        x = X.to_numpy() if hasattr(X, "to_numpy") else np.asarray(X)
        # by two rows that a change of units, of order or of weights leaves where they are
        low, high = np.nanmin(x, axis=0), np.nanmax(x, axis=0)
        return super().fit(X, ((x - low) / (high - low))[:, 0] > 0.5, sample_weight)

    def score(self, X, y=None, sample_weight=None):
        return self.evidence(X).mean


class DiffusionBySide(LabelledBySide, fe.ClassConditionalDiffusion):
    pass


class VAEBySide(LabelledBySide, fe.ClassConditionalVAE):
    pass


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "estimator",
    [
        DiffusionBySide(network=ResidualDenoiser(8, 1), max_iter=20, steps=16),
        VAEBySide(2, width=16, max_iter=60, batch_size=64, importance_samples=300),
    ],
    ids=lambda value: type(value).__name__,
)
def test_they_keep_the_contract_of_densities(estimator):
    rng = np.random.RandomState(0)
    rows = np.concatenate([rng.normal(size=(70, 2)), [3.0, -2.0] + 0.8 * rng.normal(size=(50, 2))])
    fitted = refitted(estimator, rows)
    testing.check_scores(fitted, rows, random_state=0)
    testing.check_samples(fitted, rows)
    testing.check_completes(fitted, rows)
    testing.check_repeatable(fitted, rows)
    testing.check_files(fitted, rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "short"),
    [
        (fe.ClassConditionalDiffusion(network=ResidualDenoiser(32, 2), max_iter=200, random_state=0), 0.05),
        (fe.ClassConditionalVAE(2, link=Free(), width=32, max_iter=200, random_state=0), 0.1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_gaussian_labels_are_learned(model, short):
    rng = np.random.default_rng(0)

    def simulate(n):
        places = rng.choice(3, n, p=SHARES)
        return MEANS[places] + SPREADS[places] * rng.normal(size=(n, 2)), places

    (rows, y), (held, z) = simulate(1000), simulate(2000)
    logs = stats.norm.logpdf(held[:, None], MEANS, SPREADS).sum(axis=2) + np.log(SHARES)
    model.fit(rows, y)
    found, truth = model.evidence(held).nats, np.logaddexp.reduce(logs, axis=1)
    # on average over rows no density is above the true one
    error = (found - truth).std() / np.sqrt(len(held))
    assert -short < (found - truth).mean() < 4 * error
    quadratic = fe.DiscriminantAnalysis(Full()).fit(rows, y)
    gap = np.abs(model.predict_proba(held) - quadratic.predict_proba(held))
    assert gap.mean() < 0.015
    lost = quadratic.evidence_of_labels(held, z).nats - model.evidence_of_labels(held, z).nats
    assert lost.mean() < 4 * lost.std() / np.sqrt(len(held)) + 0.01
    for place in range(3):
        own = rows[y == place]
        drawn = model.sample(1000, place, labels=place)
        error = np.hypot(own.std(axis=0) / np.sqrt(len(own)), drawn.std(axis=0) / np.sqrt(1000))
        assert (np.abs(drawn.mean(axis=0) - own.mean(axis=0)) < 5 * error).all()


def test_sentences(diffusion):
    with pytest.raises(ValueError, match=r"labels 'y' must be among those that were fitted. Got 'none'"):
        diffusion.sample(2, labels=["first", "none"])
    with pytest.raises(ValueError, match=r"'labels' of ClassConditionalDiffusion.sample must be a label"):
        diffusion.sample(3, labels=["first", "third"])
    with pytest.raises(ValueError, match=r"one for each of 4 rows. Got 2 of them"):
        diffusion.sample(given=X[:4], labels=["first", "third"])
    with pytest.raises(ValueError, match=r"'guidance' of ClassConditionalDiffusion.sample must be a float"):
        diffusion.sample(2, guidance=-1.0)
    with pytest.raises(ValueError, match=r"must be 0 with 'given'"):
        diffusion.sample(given=X[:2], guidance=1.0)
    with pytest.raises(ValueError, match=r"takes rows without missing entries"):
        diffusion.bound([[np.nan, 0.0]], ["first"])
    with pytest.raises(ValueError, match=r"'drop' parameter of ClassConditionalDiffusion must be a float"):
        fe.ClassConditionalDiffusion(1.0).fit(X, Y)
    with pytest.raises(ValueError, match=r"'drop' = 0 has no score without a label"):
        fe.ClassConditionalDiffusion(0.0, network=ResidualDenoiser(4, 1), max_iter=1).fit(X, Y).sample(
            2, guidance=1.0
        )
    with pytest.raises(
        ValueError, match=r"'prior' parameter of ClassConditionalVAE must have no components"
    ):
        fe.ClassConditionalVAE(prior=MixturePrior(2)).fit(X, Y)
    with pytest.raises(ValueError, match="Input y contains NaN"):
        fe.ClassConditionalDiffusion().fit(X, np.where(PLACES == 1, np.nan, PLACES))


def test_frames(diffusion):
    frame = pl.DataFrame(X, schema=["a", "b"])
    small = {"network": ResidualDenoiser(4, 1), "max_iter": 1, "steps": 4, "random_state": 0}
    model = fe.ClassConditionalDiffusion(**small).fit(frame, pl.Series("kind", Y))
    rows, labels = model.sample_with_labels(5, 0)
    assert rows.columns == ["a", "b"]
    assert set(labels) <= set(NAMES)
    assert model.sample(2, labels="first").columns == ["a", "b"]
