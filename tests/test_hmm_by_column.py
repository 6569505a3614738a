"""Hidden Markov models of series with columns of several kinds."""

import itertools

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import stats

import freeenergy as fe
from freeenergy.distributions import Bernoulli, ByColumn, Categorical, Gaussian, Poisson

RNG = np.random.default_rng(0)
STATES = np.repeat([0, 1, 0, 1, 0], [30, 25, 20, 25, 20])
LABELS = np.array(["calm", "windy", "storm"])


def weather(library, seed=0, states=STATES):
    rng = np.random.default_rng(seed)
    n = len(states)
    columns = {
        "wind": rng.normal(2 + 9 * states, 1.5),
        "calls": rng.poisson(1 + 8 * states),
        "open": rng.random(n) < 0.9 - 0.8 * states,
        "sky": LABELS[np.where(rng.random(n) < 0.8, 2 * states, 1)],
    }
    if library is pl:
        return pl.DataFrame(columns)
    return pd.DataFrame(columns, index=pd.date_range("2024-01-01", periods=n, name="day"))


@pytest.fixture(scope="module")
def model():
    return fe.HMM(2, "by column", random_state=0).fit(weather(pd))


def with_holes(frame):
    """Some entries missing, and three days of which nothing is known."""
    holes = frame.astype({"calls": "Int64", "open": "boolean"})
    holes.iloc[5, 0] = np.nan
    holes.iloc[6, 1] = holes.iloc[40, 2] = pd.NA
    holes.iloc[41, 3] = None
    holes.iloc[60:63] = None
    return holes


def test_the_likelihood_is_the_sum_over_all_paths(model):
    """Four days, two of them with something missing: sixteen paths, with the laws of SciPy."""
    day = with_holes(weather(pd)).iloc[[4, 5, 40, 41]]
    day.index = pd.date_range("2024-02-01", periods=4)
    parts = {type(part): part for part in model.model_.emissions.members.parts}
    scale, shift = model.scaling_.scale[0], model.scaling_.shift[0]
    normal, counts, coin, labels = (parts[kind] for kind in (Gaussian, Poisson, Bernoulli, Categorical))
    order = model.schema_["sky"].categories

    def law(k, row):
        total = 0.0
        if not pd.isna(row["wind"]):
            spread = np.sqrt(normal.covariance.variance[k, 0]) * scale
            total += stats.norm(normal.mean[k, 0] * scale + shift, spread).logpdf(row["wind"])
        total += stats.poisson(counts.rate[k, 0]).logpmf(row["calls"])
        if not pd.isna(row["open"]):
            total += stats.bernoulli(np.asarray(coin.mean())[k, 0]).logpmf(int(row["open"]))
        if not pd.isna(row["sky"]):
            total += np.log(labels.probabilities[k, 0, order.index(row["sky"])])
        return total

    rows = [row for _, row in day.iterrows()]
    paths = []
    for path in itertools.product(range(2), repeat=4):
        log = np.log(model.initial_[path[0]]) + sum(law(k, row) for k, row in zip(path, rows))
        paths.append(log + sum(np.log(model.transition_[a, b]) for a, b in itertools.pairwise(path)))
    expected = np.logaddexp.reduce(paths)
    np.testing.assert_allclose(model.score_samples(day)[0], expected, rtol=1e-10)
    # what the states are, from the same sum
    best = list(itertools.product(range(2), repeat=4))[int(np.argmax(paths))]
    assert model.decode(day).tolist() == list(best)
    share = np.exp(np.array(paths) - expected)
    first = share.reshape(2, 8).sum(axis=1)
    np.testing.assert_allclose(model.smooth(day).to_numpy()[0], first, rtol=1e-9)


def test_states_are_found(model):
    path = model.decode(weather(pd)).to_numpy()
    assert (
        np.mean(path == STATES) in (0.0, 1.0)
        or min(np.mean(path == STATES), np.mean(path != STATES)) < 0.03
    )
    assert repr(model.schema_) == "Schema(wind='continuous', calls='count', open='binary', sky='category')"


def test_what_is_missing_comes_back_in_its_kind(model):
    holes = with_holes(weather(pd))
    filled = model.impute(holes)
    assert filled.columns.tolist() == holes.columns.tolist()
    assert filled.index.equals(holes.index)
    assert not filled.isna().any().any()
    assert filled["calls"].dtype == "Int64"
    assert filled["open"].dtype == "boolean"
    assert set(filled["sky"]) <= set(LABELS)
    assert (filled["sky"] == holes["sky"])[holes["sky"].notna()].all()
    # a windy spell, whose most probable labels are known
    assert filled["sky"].iloc[41] == "storm"
    drawn = model.sample(given=holes, random_state=0)
    assert not drawn.isna().any().any()
    assert set(drawn["sky"]) <= set(LABELS)
    several = model.sample(3, given=holes, random_state=0)
    assert [type(frame) for frame in several] == [pd.DataFrame] * 3
    assert len({frame["wind"].iloc[5] for frame in several}) == 3


def test_steps_to_come_are_in_their_kinds(model):
    ahead = model.forecast(weather(pd), 3, draws=5, random_state=0)
    assert ahead.mean.index[0] == pd.Timestamp("2024-04-30")
    assert set(ahead.mean["sky"]) <= set(LABELS)
    assert set(ahead.mean["open"]) <= {False, True}
    # labels without an order have no interval
    assert ahead.low["sky"].isna().all()
    assert (ahead.low["wind"] < ahead.mean["wind"]).all()
    assert "2024-04-30    wind" in repr(ahead)
    long = ahead.to_frame()
    assert set(long["mean"][long["column"] == "sky"]) <= set(LABELS)
    assert len(long) == 12
    # the laws of each column: a mixture of those of the states, by their probability
    belief = np.asarray(model.filter(weather(pd)))[-1] @ model.transition_
    parts = {type(part): part for part in model.model_.emissions.members.parts}
    share = belief @ np.asarray(parts[Categorical].probabilities)[:, 0]
    assert np.shape(ahead.probabilities)[:2] == (3, 1)
    np.testing.assert_allclose(np.asarray(ahead.probabilities)[0, 0, :3], share, rtol=1e-9)
    np.testing.assert_allclose(ahead.mean["wind"].iloc[0], belief @ model.means_[:, 0], rtol=1e-9)
    calls = belief @ stats.poisson(np.asarray(parts[Poisson].rate)[:, :1]).cdf(np.arange(40))
    assert ahead.high["calls"].iloc[0] == np.argmax(calls >= 0.95)
    # numbers are in the units of the data: the chain ends in the calm state
    assert abs(ahead.mean["wind"].iloc[0] - 2) < 3


def test_draws_are_frames_of_the_kinds(model):
    drawn = model.sample(2, random_state=0, length=20)
    assert [len(frame) for frame in drawn] == [20, 20]
    assert drawn[0].columns.tolist() == ["wind", "calls", "open", "sky"]
    assert (drawn[0]["calls"] >= 0).all()
    assert drawn[0]["calls"].dtype == "int64"
    assert set(drawn[0]["sky"]) <= set(LABELS)
    assert isinstance(model.sample(random_state=0, length=5), pd.DataFrame)


def test_frames_of_polars_and_several_series(tmp_path):
    frame = pl.concat(
        [
            weather(pl, seed).with_columns(place=pl.lit(name), day=pl.int_range(120))
            for seed, name in ((1, "a"), (2, "b"))
        ]
    )
    series = fe.series(frame, time="day", series="place")
    model = fe.HMM(2, "by column", random_state=0, max_iter=20, tol=1e-3).fit(series)
    assert len(model.score_samples(series)) == 2
    holes = frame.with_columns(sky=pl.when(pl.col("day") == 40).then(None).otherwise(pl.col("sky")))
    filled = model.impute(fe.series(holes, time="day", series="place"))
    assert filled["sky"].null_count() == 0
    assert filled["calls"].dtype == frame["calls"].dtype
    model.save(tmp_path / "model.safetensors")
    again = fe.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.score_samples(series), model.score_samples(series))
    assert again.impute(fe.series(holes, time="day", series="place")).equals(filled)


def test_arrays_of_numbers_have_kinds_too():
    rows = np.column_stack([weather(pl)["wind"], weather(pl)["calls"]])
    model = fe.HMM(2, "by column", random_state=0, max_iter=20, tol=1e-3).fit(rows)
    assert repr(model.schema_) == "Schema(0='continuous', 1='count')"
    holes = rows.copy()
    holes[50] = np.nan
    filled = model.impute(holes)
    assert filled[50, 1] == np.rint(filled[50, 1])
    np.testing.assert_array_equal(filled[:50], rows[:50])
    assert model.sample(3, length=4, random_state=0).shape == (3, 4, 2)


def test_the_prior_keeps_labels_possible():
    """A label that a state never has is not impossible there; without a prior it is."""
    frame = weather(pl).with_columns(sky=pl.Series(np.where(STATES == 1, "storm", "calm")))
    strict = fe.HMM(2, ByColumn(strength=0), random_state=0, max_iter=30, tol=1e-3).fit(frame)
    weak = fe.HMM(2, "by column", random_state=0, max_iter=30, tol=1e-3).fit(frame)
    odd = frame[:3].with_columns(sky=pl.lit("storm"), calls=pl.lit(0, frame["calls"].dtype))
    assert weak.score_samples(odd)[0] > strict.score_samples(odd)[0]


def test_what_has_no_model_is_refused_with_a_sentence(model):
    frame = weather(pl)
    with pytest.raises(ValueError, match="HMM has no model of column 'id', which looks like an identifier"):
        fe.HMM(2, "by column").fit(frame.with_columns(id=pl.Series([f"d{i}" for i in range(120)])))
    with pytest.raises(ValueError, match="no model of column 'one', which has one value"):
        fe.HMM(2, "by column").fit(frame.with_columns(one=pl.lit("x")))
    with pytest.raises(ValueError, match=r"must be an exponential family .* or 'by column'"):
        fe.HMM(2, "by row").fit(frame)
    with pytest.raises(ValueError, match="X must have the columns of the fit in their order"):
        model.score_samples(weather(pd)[["calls", "wind", "open", "sky"]])
    with pytest.raises(ValueError, match="A category must be among those that were fitted"):
        model.score_samples(weather(pd).assign(sky="snow"))


def test_models_of_series_with_several_kinds_are_compared(model):
    """The last fold by hand; steps that are drawn together are better told by two states than by one."""
    frame = with_holes(weather(pd)).iloc[:60]
    models = {
        "two": fe.HMM(2, "by column", random_state=0),
        "one": fe.HMM(1, "by column", random_state=0),
        "rows": fe.Mixture(2, family="by column", random_state=0),
        "numbers": fe.HMM(2),
    }
    board = fe.compare(models, frame, test_size=20, random_state=0)
    lines = {line.model: line for line in board.table()}
    assert {line.model for line in board.table()[:2]} == {"two", "rows"}
    assert (
        "gives a density where other models give whole numbers a probability mass" in lines["numbers"].error
    )
    assert any("'sky' holds labels" in note for note in board.notes)
    past = fe.HMM(2, "by column", random_state=0).fit(frame[:40])
    nats = past.step_evidence(frame)
    assert lines["two"].bits == pytest.approx(-nats[40:].mean() / np.log(2), rel=1e-6)
    assert board.fit_all("two").forecast(frame, 2).mean.columns.tolist() == frame.columns.tolist()
    assert set(board.fit_all("rows").sample(50, random_state=0)["sky"]) <= set(LABELS)


def test_several_series_and_plain_numbers_are_compared_by_column():
    panel = fe.series(
        pd.concat([weather(pd, seed).iloc[:16].assign(site=f"s{seed}") for seed in range(4)]).reset_index(),
        time="day",
        series="site",
    )
    board = fe.compare(
        {"a": fe.HMM(2, "by column"), "b": fe.HMM(1, "by column")}, panel, cv=2, random_state=0
    )
    assert all(line.error is None for line in board.table())
    # of numbers alone it is an HMM of Gaussians with a prior
    numbers = weather(pl).select("wind").to_numpy()
    board = fe.compare([fe.HMM(2, "by column"), fe.HMM(2)], numbers, test_size=20, random_state=0)
    first, second = (line.bits for line in board.table())
    assert first == pytest.approx(second, abs=0.5)
