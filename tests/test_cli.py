"""The command line: words of models, commands, bad input, exit codes."""

import inspect
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import freeenergy as fe
from freeenergy import distributions as d
from freeenergy.cli import main, run
from freeenergy.cli._files import declared_kinds
from freeenergy.cli._specs import (
    Call,
    SpecError,
    build,
    defaults,
    estimators,
    kebab,
    parse,
    parts,
    series_defaults,
)

COUNTS = np.random.default_rng(0).poisson(3.0, size=(40, 3)).astype(float)


# ---------------------------------------------------------------------------------------------
# words of models
# ---------------------------------------------------------------------------------------------


def test_words_become_the_objects_that_python_would_make():
    model = build("gaussian-mixture:n_components=8,covariance=diagonal", COUNTS)
    assert isinstance(model, fe.GaussianMixture)
    assert model.n_components == 8
    assert isinstance(model.covariance, d.Diagonal)
    model = build("GaussianMixture(4, tied(low_rank(rank=2)), tol=1e-3, init=random-rows)", COUNTS)
    assert isinstance(model.covariance, d.Tied)
    assert "rank=2" in repr(model.covariance)
    assert model.tol == 1e-3
    assert isinstance(model.init, fe.RandomRows)
    assert build("kmeans:3", COUNTS).n_clusters == 3
    assert build("factor-analysis:n_components=none", COUNTS).n_components is None
    assert np.isposinf(build("softmax-regression:C=inf", COUNTS).C)
    flow = build("normalizing-flow:transformer=shift-scale,architecture=autoregressive-flow", COUNTS)
    assert type(flow.transformer).__name__ == "ShiftScale"
    assert flow.architecture is fe.models.autoregressive_flow
    vae = build("vae:2,emission=bernoulli-emission", COUNTS)
    assert vae.emission is build("vae:2,emission=bernoulli", COUNTS).emission is fe.distributions.Bernoulli
    binomial = build("vae:2,emission=binomial(trials=9)", COUNTS).emission
    assert isinstance(binomial, fe.distributions.Binomial)
    assert binomial.trials == 9
    spread = build("vae:2,emission=given(gamma,free)", 1 + COUNTS).emission
    assert (type(spread.member).__name__, spread.dim) == ("Gamma", COUNTS.shape[1])


def test_families_take_their_sizes_from_the_data():
    assert build("mixture:2,family=poisson", COUNTS).family is d.Poisson
    family = build("mixture:2,family=binomial(trials=16)", COUNTS).family
    assert isinstance(family, d.Binomial)
    assert family.trials == 16
    assert family.probability.shape == (3,)
    assert (
        build("mixture:family=binomial(probability=0.25)", COUNTS).family.probability.tolist() == [0.25] * 3
    )
    model = build("mixture:2,family=poisson,component_prior=gamma-prior(shape=1.5,rate=0.5)", COUNTS)
    assert isinstance(model.component_prior, d.GammaPrior)
    assert model.component_prior.shape.tolist() == [1.5] * 3
    assert isinstance(model.component_prior.family, d.Poisson)
    own = build(
        "mixture:component_prior=beta-prior(binomial(trials=9),2,2),family=binomial(trials=9)", COUNTS
    )
    assert own.component_prior.family.trials == 9
    # the prior is the one that Python would make
    fitted = build("mixture:family=poisson,component_prior=gamma-prior(shape=3,rate=2)", COUNTS).fit(COUNTS)
    expected = (COUNTS.sum(axis=0) + 2) / (len(COUNTS) + 2)
    np.testing.assert_allclose(np.asarray(fitted.model_.components.rate)[0], expected)


def test_every_public_estimator_and_part_has_a_word():
    names = estimators()
    assert set(names.values()) == {
        getattr(fe.estimators, name)
        for name in fe.estimators.__all__
        if not name.startswith("Abstract") and hasattr(getattr(fe.estimators, name), "get_params")
    }
    assert {"gaussian-mixture", "ppca", "vae", "rbm", "k-means"} <= set(names)
    assert {"low-rank", "beta-prior", "poisson", "coupling-flow", "spline"} <= set(parts())
    assert kebab("NormalInverseWishart") == "normal-inverse-wishart"


def test_of_several_things_of_one_name_the_one_that_is_taken_is_meant():
    made = build("structural-time-series:cycle(11,damping=0.8)+autoregressive(0.5)+level", COUNTS).blocks
    first, second, third = made.blocks
    assert isinstance(first, fe.models.Cycle)
    assert isinstance(second, fe.models.Autoregressive)
    assert isinstance(third, fe.models.Level)
    assert (float(first.period), float(first.damping), second.partial.tolist()) == (11, 0.8, [0.5])
    alone = build("structural-time-series:cycle(11)", COUNTS).blocks
    assert isinstance(alone, fe.models.Cycle)
    assert isinstance(build("calibrated:method=sigmoid", COUNTS).method, fe.estimators.Sigmoid)
    kernel = build("gaussian-process:kernel=rbf(2)+linear", COUNTS).kernel
    assert isinstance(kernel, fe.kernels.Sum)
    # nothing is said of what `family` takes: distributions are first
    assert build("mixture:family=laplace", COUNTS).family is fe.distributions.Laplace


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("gausian-mixture", "There is no model 'gausian-mixture'. Did you mean 'gaussian-mixture'?"),
        ("zzzz", "There is no model 'zzzz'. `freeenergy models` lists what there is."),
        (
            "gaussian-mixture:n_component=3",
            "GaussianMixture has no parameter 'n_component'. Did you mean 'n_components'?",
        ),
        ("gaussian-mixture:covariance=diagnoal", "There is no name 'diagnoal'. Did you mean 'diagonal'?"),
        (
            "gaussian-mixture:1,n_components=3",
            "The parameter 'n_components' of GaussianMixture is given twice.",
        ),
        (
            "gaussian-mixture:tol=1,3",
            "The model 'gaussian-mixture:tol=1,3' must have a value without a name before those with one.",
        ),
        ("gaussian-mixture:(", "The model 'gaussian-mixture:(' must have a name where it has '('."),
        ("mixture:family=binomial(trials=2", "must have ',' where it has the end."),
        ("mixture:2 3", "must have ',' where it has '3'."),
        ("mixture:3=2", "The model 'mixture:3=2' must have a name before each '='."),
        ("mixture)", "The model 'mixture)' must have nothing more where it has ')'."),
        ("", "The model '' must have a name where it has the end."),
        ("mixture:$", "The model 'mixture:$' cannot be read from '$' on."),
        ("mixture:3x", "The model 'mixture:3x' cannot be read from '3x' on."),
        ("mixture:component_prior=beta-prior(alpha=2)", "BetaPrior needs 'family' and 'beta'."),
        ("diagonal", "There is no model 'diagonal'."),
    ],
)
def test_wrong_words_get_a_sentence(words, sentence):
    with pytest.raises(SpecError, match=r"[.?]$") as error:
        build(words, COUNTS)
    assert sentence in str(error.value)


NAMES = st.from_regex(r"[a-z][a-z-]{0,5}[a-z]", fullmatch=True)
VALUES = st.recursive(
    st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.builds(Call, NAMES, st.none()),
    lambda inner: st.builds(
        Call,
        NAMES,
        st.lists(st.tuples(NAMES, inner), max_size=3).map(tuple)
        | st.lists(st.tuples(st.none(), inner), max_size=3).map(tuple),
    ),
    max_leaves=6,
)


def written(value: object) -> str:
    if not isinstance(value, Call):
        return repr(value)
    if value.arguments is None:
        return value.name
    inside = ", ".join(written(v) if k is None else f"{k} = {written(v)}" for k, v in value.arguments)
    return f"{value.name}({inside})"


@given(name=NAMES, arguments=st.lists(st.tuples(NAMES, VALUES), max_size=4).map(tuple))
@settings(deadline=None, max_examples=80)
def test_what_was_written_is_parsed(name, arguments):
    call = Call(name, arguments)
    assert parse(written(call)) == call
    assert parse(f"{name}:" + ",".join(f"{k}={written(v)}" for k, v in arguments)) == call


@given(st.text(max_size=30) | st.text("ab-(),=:1.[] ", max_size=20))
@settings(deadline=None, max_examples=80)
def test_any_text_is_parsed_or_refused_in_a_sentence(text):
    try:
        assert isinstance(parse(text), Call)
    except SpecError as error:
        assert str(error).startswith("The model")  # noqa: PT017


@pytest.mark.parametrize(
    ("X", "family"),
    [
        (np.random.default_rng(0).normal(size=(60, 3)), "GaussianMixture"),
        (np.random.default_rng(0).normal(size=(7, 1)), "GaussianDensity"),
        ((np.random.default_rng(0).random((60, 3)) < 0.5).astype(float), "RBM"),
        (np.random.default_rng(0).poisson(900, size=(60, 2)).astype(float), "Poisson"),
        (COUNTS, "Binomial"),
    ],
)
def test_the_models_that_are_taken_when_none_is_named_suit_the_data(X, family):
    models = [build(words, X) for words in defaults(X, labelled=False)]
    kinds = {type(m).__name__ for m in models} | {
        getattr(getattr(m, "family", None), "__name__", type(getattr(m, "family", None)).__name__)
        for m in models
    }
    assert family in kinds
    assert len({type(m) for m in models}) >= 3


def test_digits_get_seven_models_of_six_families():
    X = fe.datasets.load("digits").X
    words = defaults(X[:, X.std(axis=0) > 0], labelled=False)
    assert len(words) >= 7
    assert len({type(build(text, X)) for text in words}) >= 6
    assert any("binomial(trials=16)" in text for text in words)


# ---------------------------------------------------------------------------------------------
# commands
# ---------------------------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path):
    """Three columns of which the third is the sum of the others, with holes."""
    rng = np.random.default_rng(1)
    values = rng.normal(size=(60, 2))
    values = np.column_stack([values, values.sum(axis=1) + 0.01 * rng.normal(size=60)])
    values[3, 2] = np.nan
    path = tmp_path / "table.csv"
    pl.DataFrame(values, schema=["a", "b", "sum"]).fill_nan(None).write_csv(path)
    return path, values


def test_fit_score_sample_impute_and_inspect(table, tmp_path, capsys, monkeypatch):
    path, values = table
    model = tmp_path / "model.safetensors"
    assert run(["fit", str(path), "-m", "gaussian-density", "-o", str(model), "--seed", "0", "-q"]) == 0
    assert "GaussianDensity fitted to 60 rows of 3 columns is in" in capsys.readouterr().out
    truth = fe.GaussianDensity().fit(values)
    # without a name a new file has that of the model
    monkeypatch.chdir(tmp_path)
    assert run(["fit", str(path), "-m", "gaussian-density:max_iter=50", "-q"]) == 0
    assert "is in gaussian-density.safetensors." in capsys.readouterr().out
    np.testing.assert_allclose(fe.load("gaussian-density.safetensors").mean_, truth.mean_, rtol=1e-12)
    assert run(["fit", str(path), "-m", "gaussian-density", "-q"]) == 2
    assert "'gaussian-density.safetensors' is there already" in capsys.readouterr().err

    assert run(["score", str(model), str(path)]) == 0
    out, err = capsys.readouterr()
    scores = pl.read_csv(io.StringIO(out))
    np.testing.assert_allclose(scores["nats"].to_numpy(), truth.score_samples(values), rtol=1e-9)
    assert re.match(r"Mean .* nats \(.* bits\), exact\.", err)

    assert run(["score", str(model), str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kind"] == "exact"
    assert found["mean"] == pytest.approx(truth.score(values))

    for ending in ("csv", "tsv", "parquet", "npy"):
        assert run(["sample", str(model), "-n", "5", "--seed", "3", "-o", f"{tmp_path}/out.{ending}"]) == 0
        drawn = fe.datasets.read_table(tmp_path / f"out.{ending}").values
        np.testing.assert_allclose(drawn, truth.sample(5, random_state=3), rtol=1e-9)
    assert run(["sample", str(model), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["columns"] == ["a", "b", "sum"]

    assert run(["sample", str(model), "--length", "3"]) == 2
    assert "--length is for models of series, which GaussianDensity is not." in capsys.readouterr().err

    assert run(["impute", str(model), str(path)]) == 0
    filled = fe.datasets.read_table(io.BytesIO(capsys.readouterr().out.encode()))
    assert filled.names == ["a", "b", "sum"]
    assert filled.values[3, 2] == pytest.approx(values[3, :2].sum(), abs=0.05)
    np.testing.assert_array_equal(filled.values[0], values[0])

    assert run(["inspect", str(model)]) == 0
    assert "GaussianDensity, fitted" in capsys.readouterr().out
    assert run(["inspect", str(model), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["class"] == "GaussianDensity"


@pytest.mark.slow
def test_series_go_in_and_come_out(tmp_path, capsys):
    rng = np.random.default_rng(2)
    series = rng.normal(size=(4, 12, 1)) + np.repeat(rng.integers(2, size=(4, 4)), 3, axis=1)[..., None] * 6
    data, model, out = tmp_path / "series.npy", tmp_path / "m.safetensors", tmp_path / "out.npy"
    np.save(data, series)
    assert run(["fit", str(data), "-m", "hmm:2", "-o", str(model), "--seed", "0", "-q"]) == 0
    assert "fitted to 4 series of 1 columns" in capsys.readouterr().out
    assert run(["score", str(model), str(data), "--json"]) == 0
    expected = fe.load(model).evidence(series).nats
    np.testing.assert_allclose(json.loads(capsys.readouterr().out)["nats"], expected, rtol=1e-9)
    assert run(["sample", str(model), "-n", "3", "--length", "5", "--seed", "1", "-o", str(out)]) == 0
    np.testing.assert_array_equal(np.load(out), fe.load(model).sample(3, random_state=1, length=5))
    assert run(["sample", str(model), "-n", "3", "--length", "5"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 16
    # the same series as a table with a column that tells them apart
    table = tmp_path / "table.csv"
    rows = [f"s{k},{x[0]!r}" for k, part in enumerate(series.tolist()) for x in part]
    table.write_text("\n".join(["which,x", *rows]))
    assert run(["score", str(model), str(table), "--series", "which", "--json"]) == 0
    np.testing.assert_allclose(json.loads(capsys.readouterr().out)["nats"], expected, rtol=1e-9)
    # columns are found by name in series, too
    rows = [f"{x[0]!r},{k},{-x[0]!r}" for k, part in enumerate(series.tolist()) for x in part]
    table.write_text("\n".join(["x,which,y", *rows]))
    assert run(["fit", str(table), "-m", "hmm:1", "-o", str(model), "--series", "which", "-q"]) == 0
    capsys.readouterr()
    assert run(["score", str(model), str(table), "--series", "which", "--json"]) == 0
    expected = json.loads(capsys.readouterr().out)["nats"]
    pl.read_csv(table).select("y", "which", "x").write_csv(table)
    assert run(["score", str(model), str(table), "--series", "which", "--json"]) == 0
    out, err = capsys.readouterr()
    np.testing.assert_allclose(json.loads(out)["nats"], expected)
    assert "Warning" not in err
    assert run(["score", str(model), str(table), "--series", "which", "--drop", "x"]) == 2
    assert "The model needs the column 'x', which the data has not. It has 'y'." in capsys.readouterr().err
    words = ["-m", "hmm:2", "-m", "gaussian-density"]
    assert run(["compare", str(data), *words, "--cv", "2", "--seed", "0", "-q", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["table"][0]["model"] == "hmm:2"


def test_columns_are_found_by_name(table, tmp_path, capsys):
    path, values = table
    model, other = tmp_path / "m.safetensors", tmp_path / "other.csv"
    assert run(["fit", str(path), "-m", "gaussian-density", "-o", str(model), "--drop", "b", "-q"]) == 0
    shuffled = pl.read_csv(path).select("sum", pl.lit("x").alias("text"), "a")
    shuffled.write_csv(other)
    assert run(["score", str(model), str(other), "--drop", "text"]) == 0
    scores = fe.datasets.read_table(
        io.BytesIO(capsys.readouterr().out.split("is in")[-1].partition("\n")[2].encode())
    )
    expected = fe.GaussianDensity().fit(values[:, [0, 2]]).score_samples(values[:, [0, 2]])
    np.testing.assert_allclose(scores.values[:, 0], expected, rtol=1e-9)
    shuffled.select("a").write_csv(other)
    assert run(["score", str(model), str(other)]) == 2
    assert (
        "The model needs the column 'sum', which the data has not. It has 'a'." in capsys.readouterr().err
    )


def test_labels_are_encoded_the_same_when_some_are_absent(tmp_path, capsys):
    path, part, model = tmp_path / "all.csv", tmp_path / "part.csv", tmp_path / "m.safetensors"
    path.write_text("kind,x\n" + "".join(f"{'uvw'[i % 3]},{i * 0.37 % 1}\n" for i in range(30)))
    part.write_text("kind,x\nu,0.5\n")
    words = "gaussian-density:diagonal"
    assert run(["fit", str(path), "-m", words, "-o", str(model), "--encode", "kind", "-q"]) == 0
    capsys.readouterr()
    assert run(["impute", str(model), str(part), "--encode", "kind"]) == 0
    assert capsys.readouterr().out.splitlines() == ["kind=u,kind=v,kind=w,x", "1.0,0.0,0.0,0.5"]


def test_compare_prints_a_table_and_keeps_what_is_asked_for(table, tmp_path, capsys):
    path, _ = table
    best, output, resume = tmp_path / "best.safetensors", tmp_path / "table.parquet", tmp_path / "kept"
    words = ["-m", "gaussian-density:diagonal", "-m", "gaussian-density"]
    rest = ["--cv", "2", "--seed", "0", "-q", "--resume", str(resume)]
    assert run(["compare", str(path), *words, *rest, "--best", str(best), "-o", str(output)]) == 0
    out = capsys.readouterr().out
    assert out.index("│ gaussian-density ") < out.index("gaussian-density:diagonal")
    assert pl.read_parquet(output)["model"].to_list() == ["gaussian-density", "gaussian-density:diagonal"]
    assert fe.load(best).covariance is None
    started = time.perf_counter()
    assert run(["compare", str(path), *words, *rest, "--json"]) == 0
    assert time.perf_counter() - started < 30
    found = json.loads(capsys.readouterr().out)  # standard output is pure JSON
    assert [line["model"] for line in found["table"]] == ["gaussian-density", "gaussian-density:diagonal"]
    assert found["settings"]["seed"] == 0


def test_compare_tells_labels_from_rows(tmp_path, capsys):
    words = ["-m", "softmax-regression", "-m", "softmax-regression:C=1e-6"]
    assert (
        run(["compare", "iris", "--target", "target", *words, "--cv", "2", "--seed", "0", "-q", "--json"])
        == 0
    )
    lines = json.loads(capsys.readouterr().out)["table"]
    assert [line["model"] for line in lines] == ["softmax-regression", "softmax-regression:C=1e-6"]
    assert lines[0]["bits"] < 0.5
    assert lines[1]["bits"] == pytest.approx(np.log2(3), abs=0.05)


@pytest.fixture
def flowers(tmp_path):
    """Iris with words for labels."""
    data = fe.datasets.load("iris")
    frame = pl.DataFrame(data.X, schema=list("abcd")).with_columns(
        kind=pl.Series([f"kind {label}" for label in data.y])
    )
    path = tmp_path / "flowers.csv"
    frame.write_csv(path)
    return path, data.X, np.array([f"kind {label}" for label in data.y])


@pytest.mark.parametrize("words", ["softmax-regression", "naive-bayes", "discriminant-analysis"])
def test_every_classifier_scores_and_predicts_labels(words, flowers, tmp_path, capsys):
    path, X, y = flowers
    model, labelled = tmp_path / "m.safetensors", ["--target", "kind"]
    assert run(["fit", str(path), "-m", words, "-o", str(model), *labelled, "-q"]) == 0
    fitted = build(words, X).fit(X, y)
    probabilities = fitted.predict_proba(X)
    expected = np.log(probabilities[np.arange(150), np.searchsorted(fitted.classes_, y)])
    capsys.readouterr()
    assert run(["score", str(model), str(path), *labelled]) == 0
    out, err = capsys.readouterr()
    np.testing.assert_allclose(pl.read_csv(io.StringIO(out))["nats"].to_numpy(), expected, rtol=1e-6)
    assert float(err.split("(")[1].split()[0]) == pytest.approx(-expected.mean() / np.log(2), rel=1e-4)
    assert run(["predict", str(model), str(path), *labelled]) == 0
    out, err = capsys.readouterr()
    found = pl.read_csv(io.StringIO(out))
    assert found["prediction"].to_list() == fitted.predict(X).tolist()
    np.testing.assert_allclose(found["p(kind 1)"].to_numpy(), probabilities[:, 1], rtol=1e-6)
    assert err == f"{np.sum(fitted.predict(X) == y)} of 150 labels are right.\n"
    # a label that the fit has not seen is impossible, and that is said
    strange = tmp_path / "strange.csv"
    strange.write_text("a,b,c,d,kind\n5,3,1,0,4\n5,3,1,0,7\n")
    assert run(["score", str(model), str(strange), *labelled, "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["nats"] == ["-inf", "-inf"]
    assert err.startswith("2 labels, such as '4', are none that")
    assert "2 of 2 rows are impossible under the model: their mean is −∞ nats." in err
    # without the labels
    assert run(["score", str(model), str(path), "--drop", "kind"]) == 2 * (words == "softmax-regression")
    out, err = capsys.readouterr()
    if words == "softmax-regression":
        assert "Name the column that has them with --target NAME." in err
    else:
        np.testing.assert_allclose(
            pl.read_csv(io.StringIO(out))["nats"].to_numpy(), fitted.score_samples(X), rtol=1e-9
        )


def test_rows_are_drawn_of_the_label_that_is_asked_for(flowers, tmp_path, capsys):
    path = flowers[0]
    model, words = str(tmp_path / "m.safetensors"), "class-conditional-gan:width=8,depth=1,max_iter=3"
    command = ["fit", str(path), "-m", words, "-o", model, "--seed", "0", "-q"]
    assert run([*command, "--drop", "kind"]) == 2
    assert "class-conditional-gan needs labels beside the other columns. Name the column" in (
        capsys.readouterr().err.replace(words, "class-conditional-gan")
    )
    assert run([*command, "--target", "kind"]) == 0
    capsys.readouterr()
    assert run(["sample", model, "-n", "3", "--seed", "1", "--label", "kind 2"]) == 0
    found = pl.read_csv(io.StringIO(capsys.readouterr().out))
    expected = fe.load(model).sample(3, random_state=1, labels="kind 2")
    np.testing.assert_allclose(found.to_numpy(), np.asarray(expected), rtol=1e-6)
    for options, sentence in (
        (["--label", "kind 7"], "fitted to the labels kind 0, kind 1, kind 2. Got --label kind 7 instead"),
        (["--guidance", "1"], "--guidance is for models of rows given labels, which ClassConditionalGAN"),
    ):
        assert run(["sample", model, *options]) == 2
        assert sentence in " ".join(capsys.readouterr().err.split())


def test_a_target_that_no_model_tells_is_left_out_and_that_is_said(flowers, tmp_path, capsys):
    path, X, _ = flowers
    model = tmp_path / "m.safetensors"
    command = ["fit", str(path), "-m", "gaussian-density", "-o", str(model), "-y", "kind", "-q"]
    assert run(command) == 0
    assert "Column 'kind' is left out: no model here tells it from the others." in capsys.readouterr().err
    named = pl.DataFrame(X, schema=list("abcd"))
    assert fe.load(model).score(named) == pytest.approx(fe.GaussianDensity().fit(X).score(X))


@pytest.mark.parametrize("cell", ["inf", "-inf", "1e999", "text", "", "  ", "NA", "n/a", "?", "-"])
def test_every_cell_is_read_refused_or_missing_in_every_command(cell, table, tmp_path, capsys):
    path, values = table
    model, other = tmp_path / "m.safetensors", tmp_path / "other.csv"
    assert run(["fit", str(path), "-m", "gaussian-density", "-o", str(model), "-q"]) == 0
    values = values.copy()
    values[5, 1] = np.nan
    rows = [[repr(v) for v in row] for row in values.tolist()]
    rows[5][1] = cell
    other.write_text("\n".join(["a,b,sum", *map(",".join, rows)]))
    fitting = ["-m", "gaussian-density", "-q"]
    again = str(tmp_path / "again.safetensors")
    commands = [
        ["compare", str(other), *fitting, "--cv", "2", "--seed", "0", "--json"],
        ["fit", str(other), *fitting, "-o", again],
        ["score", str(model), str(other), "--json"],
        ["impute", str(model), str(other), "--json"],
        ["inspect", str(other), "--json"],
    ]
    refused = cell in ("inf", "-inf", "1e999", "text")
    found = []
    what = "is no number: 'text'." if cell == "text" else "is infinite."
    sentence = f"Row 6 (line 7), column 'b' of '{other}' {what}"
    for command in commands:
        capsys.readouterr()
        # to look at a file is never refused
        expected = 2 * (refused and command[0] != "inspect")
        assert run(command) == expected
        out, err = capsys.readouterr()
        found.append(out)
        if expected:
            assert out == ""
            assert err.startswith(sentence)
            assert err.count("\n") == 1
    if refused:
        assert json.loads(found[4])["columns"][1]["problem"].startswith(sentence)
    if not refused:
        truth = fe.GaussianDensity().fit(np.loadtxt(path, delimiter=",", skiprows=1, converters=_number))
        np.testing.assert_allclose(json.loads(found[2])["nats"], truth.score_samples(values), rtol=1e-9)
        named = pl.DataFrame(values, schema=["a", "b", "sum"])
        assert fe.load(again).score(named) == pytest.approx(fe.GaussianDensity().fit(values).score(values))
        assert [c["missing"] for c in json.loads(found[4])["columns"]] == [0, 1, 1]


def _number(text: str) -> float:
    return float(text or "nan")


def test_how_a_file_was_read_is_said_and_can_be_changed(tmp_path, capsys):
    path = tmp_path / "years.csv"
    path.write_text("2019;2020\n3,5;4\n1,5;2\n")
    assert run(["inspect", str(path)]) == 0
    assert "has a comma: '3,5'. Say --decimal ," in capsys.readouterr().out
    assert run(["compare", str(path)]) == 2
    assert "has a comma: '3,5'. Say --decimal ," in capsys.readouterr().err
    assert run(["inspect", str(path), "--decimal", ",", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["shape"] == [3, 2]
    assert err == (
        f"'{path}' has no header: its first line is of numbers and is taken as a row. "
        "With --header it has the names.\n"
    )
    assert run(["inspect", str(path), "--decimal", ",", "--header", "--json"]) == 0
    out, err = capsys.readouterr()
    assert [c["name"] for c in json.loads(out)["columns"]] == ["2019", "2020"]
    assert [c["mean"] for c in json.loads(out)["columns"]] == [2.5, 3.0]
    assert err == ""


def test_an_index_of_pandas_and_a_separator_that_is_not_found(tmp_path, capsys):
    path = tmp_path / "rows.csv"
    frame = pd.DataFrame({"size": [1.5, 2.5, 4.0, 4.5], "kind": list("abab")})
    # some rows are gone, or in another order
    for rows in ([0, 2, 3], [3, 1, 0]):
        frame.loc[rows].to_csv(path)
        assert run(["inspect", str(path), "--json"]) == 0
        out, err = capsys.readouterr()
        assert [c["name"] for c in json.loads(out)["columns"]] == ["size", "kind"]
        assert "has no name and numbers the rows; it is left out." in err
    frame.set_axis([1990, 1991, 1992, 1993]).to_csv(path)
    assert run(["inspect", str(path), "--json"]) == 0
    assert [c["name"] for c in json.loads(capsys.readouterr().out)["columns"]] == ["x0", "size", "kind"]
    path.write_text("a:b:c\n1:2:x\n3:4:y\n5:6:z\n")
    assert run(["inspect", str(path), "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["shape"] == [3, 1]
    told = "has one column, and every line of it has ':' 2 times. Say --separator : if it stands between"
    assert told in err
    assert run(["inspect", str(path), "--separator", ":", "--json"]) == 0
    out, err = capsys.readouterr()
    assert (json.loads(out)["shape"], err) == ([3, 3], "")
    path.write_text("at\n10:20:30\n11:20:30\n")
    assert run(["inspect", str(path), "--json"]) == 0
    assert "--separator" not in capsys.readouterr().err


def test_a_model_that_fails_keeps_its_line_and_all_failing_is_an_error(table, capsys):
    path, _ = table
    bad = "gaussian-mixture:n_components=0"
    assert run(["compare", str(path), "-m", "gaussian-density", "-m", bad, "--cv", "2", "-q"]) == 0
    assert "failed" in capsys.readouterr().out
    assert run(["compare", str(path), "-m", bad, "--cv", "2", "-q"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"No model could be fitted. {bad}: The 'n_components' parameter of GaussianMixture must be an int "
        "in the range [1, inf). Got 0 instead."
    )


def test_the_support_of_columns_can_be_declared(tmp_path, capsys):
    path = tmp_path / "counts, all.csv"
    pl.DataFrame(COUNTS, schema=["u", "v", "a=b,c"]).write_csv(path)
    board = ["compare", str(path), "-m", "gaussian-density", "--cv", "2", "--seed", "0", "-q", "--json"]
    kinds, bits = [], []
    for words in (
        [],
        ["--continuous"],
        ["--support", "u=continuous,v=continuous", "--support", "a=b,c=integer"],
    ):
        assert run([*board, *words]) == 0
        found = json.loads(capsys.readouterr().out)
        kinds.append(found["support"])
        bits.append(found["table"][0]["bits"])
    assert kinds == [["integer"] * 3, ["continuous"] * 3, ["continuous", "continuous", "integer"]]
    # a density, of the same folds
    truth = fe.compare(
        [fe.GaussianDensity()], COUNTS, cv=2, random_state=0, support=fe.Support(["continuous"] * 3)
    )
    assert bits[1] == pytest.approx(truth.table()[0].bits)
    words = ["--support", "continuous, continuous, integer"]
    assert run([*board, *words]) == 0
    assert json.loads(capsys.readouterr().out)["table"][0]["bits"] == pytest.approx(bits[2])
    assert not [text for text in defaults(COUNTS, labelled=False, mass=False) if "binomial" in text]


def test_a_cell_that_a_model_refuses_is_named_as_in_the_file(tmp_path, capsys):
    path, model = tmp_path / "counts.csv", tmp_path / "m.safetensors"
    counts = COUNTS.copy()
    counts[17, 1] = -3
    rows = [",".join(f"{v:g}" for v in row) for row in counts.tolist()]
    path.write_text("\n".join(["# counts", "u,age,w", "", *rows]))
    where = "Poisson needs non-negative whole numbers. Got -3 in row 18 (line 21), column 'age'."
    assert run(["fit", str(path), "-m", "mixture:2,family=poisson", "-o", str(model), "-q"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == where
    words = ["-m", "mixture:2,family=poisson", "-m", "gaussian-density"]
    assert run(["compare", str(path), *words, "--cv", "2", "--seed", "0", "-q"]) == 0
    assert f"mixture:2,family=poisson: {where}" in capsys.readouterr().out


def test_models_and_data_are_described(table, capsys):
    assert run(["models"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(estimators())
    assert any(re.match(r"gaussian-mixture +A mixture of Gaussians", line) for line in lines)
    assert run(["models", "GaussianMixture"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split(maxsplit=2) == ["n_components", "1", "how many Gaussians."]
    assert {line.split()[0] for line in lines[2:]} == set(fe.GaussianMixture().get_params(deep=False))
    assert run(["models", "gausian-mixture"]) == 2
    assert "Did you mean 'gaussian-mixture'?" in capsys.readouterr().err
    assert run(["models", "--json"]) == 0
    found = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert found["gaussian-mixture"]["parameters"]["n_components"] == 1
    assert run(["inspect", str(table[0])]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "60 × 3."
    assert out[4].split()[:3] == ["sum", "continuous", "1.7%"]
    assert run(["inspect", "digits", "--json"]) == 0
    digits = json.loads(capsys.readouterr().out)
    assert digits["shape"] == [1797, 64]
    assert {column["kind"] for column in digits["columns"]} <= {"count", "integer", "binary", "constant"}


def test_every_parameter_of_every_model_has_a_meaning(capsys):
    for name, kind in estimators().items():
        assert run(["models", name]) == 0
        lines = capsys.readouterr().out.splitlines()[2:]
        told = {line.split()[0]: line.split(maxsplit=2)[2:] for line in lines}
        assert set(told) == set(inspect.signature(kind).parameters)
        assert all(told.values()), name


def test_standard_input_is_data(monkeypatch, capsys):
    class Stdin:
        buffer = io.BytesIO(b"a,b\n1,2\n3,5\n")

    monkeypatch.setattr(sys, "stdin", Stdin())
    assert run(["inspect", "-", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["shape"] == [2, 2]


# ---------------------------------------------------------------------------------------------
# tables of several kinds of column, and series with labels
# ---------------------------------------------------------------------------------------------

BY_COLUMN = "mixture:2,family=by-column"


@pytest.fixture
def people(tmp_path):
    """A table of every kind of column with holes, as a file and as a frame."""
    rng = np.random.default_rng(0)
    first = rng.random(120) < 0.5
    frame = pl.DataFrame(
        {
            "id": np.arange(1, 121),
            "class": np.where(first, "first", rng.choice(["second", "third"], 120)),
            "age": rng.normal(40 + 20 * first, 5.0),
            "kids": rng.poisson(1 + 2 * first),
            "since": pl.Series(rng.integers(18000, 18000 + 400 * (1 + first))).cast(pl.Int32).cast(pl.Date),
            "alive": rng.random(120) < 0.3 + 0.4 * first,
            "zip": [f"{code:05d}" for code in rng.integers(500, 503, 120)],
        }
    )
    holes = [name for name in frame.columns if name not in ("id", "zip")]
    gone = {name: pl.Series(rng.random(120) < 0.1) for name in holes}
    frame = frame.with_columns(pl.when(gone[name]).then(None).otherwise(name).alias(name) for name in holes)
    path = tmp_path / "people.csv"
    frame.write_csv(path)
    return path, frame


def test_a_mixed_table_goes_through_the_commands_in_its_own_words(people, tmp_path, capsys):
    path, frame = people
    model, out = str(tmp_path / "m.safetensors"), tmp_path / "out.csv"
    fitting = ["--schema", "zip=category", "--seed", "0", "-q"]
    with warnings.catch_warnings(action="always"):
        assert run(["fit", str(path), "-m", BY_COLUMN, "-o", model, *fitting]) == 0
    said = capsys.readouterr().err
    assert (
        "Column 'id' looks like an identifier or text and is left out of Mixture. Declare the kind" in said
    )
    assert "(--schema NAME=KIND) to have a model of it." in said
    schema = fe.Schema.recognise(frame, kinds={"zip": "category"})
    truth = fe.Mixture(2, family="by column", random_state=0)
    with pytest.warns(UserWarning, match="'id' looks like an identifier"):
        truth.fit(schema.rows(frame))
    # the columns of another file are in another order, and there are more of them
    other = tmp_path / "other.csv"
    shuffled = frame.select(
        "zip", "alive", pl.lit("").alias("remark"), "since", "kids", "age", "class", "id"
    )
    shuffled = shuffled.with_columns(remark=pl.lit("007"))
    shuffled.write_csv(other, separator=";")
    assert run(["score", model, str(other), "--json"]) == 0
    nats = json.loads(capsys.readouterr().out)["nats"]
    np.testing.assert_allclose(nats, truth.score_samples(frame), rtol=1e-6)
    assert run(["impute", model, str(other), "-o", str(out)]) == 0
    written = fe.datasets.read_table(out, text=["zip", "remark"]).frame
    assert written.columns == shuffled.columns
    expected = truth.impute(frame)
    assert written.drop("remark").null_count().sum_horizontal().item() == 0
    assert_frame_equal(written.select(frame.columns), expected)
    assert written["remark"].unique().to_list() == ["007"]
    assert run(["impute", model, str(other), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["columns"] == shuffled.columns
    assert found["rows"][0][:1] == [frame["zip"][0]]
    assert run(["sample", model, "-n", "5", "--seed", "3", "-o", str(tmp_path / "drawn.parquet")]) == 0
    assert_frame_equal(pl.read_parquet(tmp_path / "drawn.parquet"), truth.sample(5, random_state=3))
    assert run(["predict", model, str(path)]) == 0
    assert (
        pl.read_csv(io.StringIO(capsys.readouterr().out))["prediction"].to_list()
        == truth.predict(frame).to_list()
    )
    assert run(["outliers", model, str(path), "--level", "0.05", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["columns"] == ["p_value", "outlier", "column", "surprise"]
    found, nats = truth.outliers(frame, 0.05), truth.surprise(frame)
    # beside the mean of draws: days, of which there are many, are improbable in every row
    nats -= np.nanmean(truth.surprise(truth.sample(256, random_state=0)), axis=0)
    assert [row[1] for row in told["rows"]] == found.mask.tolist()
    names = truth.column_names
    assert "id" not in names
    assert [row[2] for row in told["rows"]] == [names[i] for i in np.nanargmax(nats, axis=1)]
    np.testing.assert_allclose([row[3] for row in told["rows"]], np.nanmax(nats, axis=1), rtol=1e-6)
    assert len({row[2] for row in told["rows"]}) > 4
    old = tmp_path / "old.csv"
    frame[:3].with_columns(age=pl.lit(120.0)).write_csv(old)
    assert run(["outliers", model, str(old), "--json"]) == 0
    assert [row[1:3] for row in json.loads(capsys.readouterr().out)["rows"]] == [[True, "age"]] * 3
    assert run(["summary", model, str(path)]) == 0
    # the word for the family is the only difference
    lines = capsys.readouterr().out.strip().splitlines()
    assert lines[1:] == repr(truth.summary(frame)).splitlines()[1:]
    assert run(["summary", model, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["aic"] == pytest.approx(truth.summary().aic)
    assert f"Column 'since' is in days since {frame['since'].min()}." in told["notes"]
    # what cannot be: one sentence each
    strange = tmp_path / "strange.csv"
    changed = frame.with_columns(
        pl.when(pl.int_range(120) == 7).then(pl.lit("fourth")).otherwise("class").alias("class")
    )
    changed.write_csv(strange)
    for arguments, sentence in (
        (["score", model, str(strange)], "Got 'fourth' in row 8 (line 9), column 'class'."),
        (
            ["score", model, str(path), "--drop", "kids"],
            "The model needs the column 'kids', which the data has",
        ),
        (["transform", model, str(path)], f"Mixture in '{model}' cannot transform."),
        (["forecast", model, str(path)], f"Mixture in '{model}' cannot forecast."),
        (["decode", model, str(path)], f"Mixture in '{model}' cannot decode."),
        (
            ["outliers", model, str(path), "--time", "since"],
            "--time is for models of series, which Mixture",
        ),
        (
            ["sample", model, "-o", str(tmp_path / "s.npy")],
            "cannot hold labels that are text. Write a .csv",
        ),
        (
            ["fit", str(path), "-m", "gaussian-density", "-o", model],
            "GaussianDensity has no model of column 'class', which holds labels",
        ),
        (
            ["compare", str(path), "--continuous"],
            "--continuous is for tables of numbers. Say what the columns",
        ),
    ):
        capsys.readouterr()
        assert run(arguments) == 2
        out_, err = capsys.readouterr()
        assert out_ == ""
        assert sentence in err
    # labels that are all numbers in one file, and not in the other
    numbers = frame.with_columns(pl.col("zip").str.to_integer(), pl.lit(None, pl.String).alias("class"))
    numbers.write_csv(strange)
    assert run(["score", model, str(strange)]) == 2
    assert (
        "A category must be among those that were fitted: '00500', '00501', '00502'."
        in capsys.readouterr().err
    )


def test_mixed_tables_are_compared(people, tmp_path, capsys):
    path, frame = people
    words = ["-m", "mixture:family='by column'", "-m", BY_COLUMN]
    rest = ["--drop", "id", "--schema", "zip=category", "--cv", "2", "--seed", "0", "-q"]
    best = tmp_path / "best.safetensors"
    assert run(["compare", str(path), *words, *rest, "--json", "--best", str(best)]) == 0
    found = json.loads(capsys.readouterr().out)["table"]
    schema = fe.Schema.recognise(frame.drop("id"), kinds={"zip": "category"})
    named = {
        "mixture:family='by column'": fe.Mixture(family="by column"),
        BY_COLUMN: fe.Mixture(2, family="by column"),
    }
    board = fe.compare(named, frame.drop("id"), support=schema, cv=2, random_state=0).table()
    assert [line["model"] for line in found] == [line.model for line in board]
    np.testing.assert_allclose([line["bits"] for line in found], [line.bits for line in board], rtol=1e-6)
    assert fe.load(best).schema_["zip"].categories == ("00500", "00501", "00502")
    assert run(["compare", str(path), "-y", "alive", "--drop", "since", "--cv", "2", "-q", "--json"]) == 2
    assert "Column 'alive' has" in capsys.readouterr().err
    known = tmp_path / "known.csv"
    frame.drop("id", "since").drop_nulls("alive").write_csv(known)
    assert run(["compare", str(known), "-y", "alive", "--cv", "2", "--seed", "0", "-q", "--json"]) == 0
    lines = json.loads(capsys.readouterr().out)["table"]
    words = {"base-rate", "naive-bayes:family=by-column", "softmax-regression", "softmax-regression:C=0.01"}
    assert {line["model"] for line in lines} == words
    assert not any(line["error"] for line in lines)


def test_what_is_taken_for_a_mixed_table_when_no_model_is_named():
    X = np.random.default_rng(0).integers(0, 3, size=(120, 6)).astype(float)
    words = defaults(X, labelled=False, mixed=True)
    assert len(words) >= 6
    assert len({type(build(text, X)) for text in words}) >= 5
    own = {type(build(text, X)).__name__ for text in words}
    assert {"GaussianCopula", "MixedFactorAnalysis", "KernelDensity", "BayesianMixture"} < own
    # codes of labels are for models of continuous columns where rows are many
    many = defaults(np.tile(X, (10, 1)), labelled=False, mixed=True, labels=True)
    few = defaults(X, labelled=False, mixed=True, labels=True)
    assert set(few) == {*words} - {
        "gaussian-density",
        "gaussian-mixture:n_components=2,covariance=diagonal",
    }
    assert {text.partition(":")[0] for text in many} > {text.partition(":")[0] for text in words}
    kinds = [type(build(text, X)).__name__ for text in defaults(X, labelled=True)]
    assert kinds[:4] == ["DummyClassifier", "NaiveBayes", "DiscriminantAnalysis", "SoftmaxRegression"]


def test_the_best_is_not_kept_where_it_cannot_be(tmp_path, capsys):
    path = tmp_path / "noise.csv"
    path.write_text("y,x\n" + "".join(f"{'ab'[i % 2]},{i // 2}.5\n" for i in range(20)))
    command = ["compare", str(path), "-y", "y", "-m", "base-rate", "--cv", "2", "--seed", "0", "-q"]
    assert run([*command, "--best", str(tmp_path / "m.safetensors")]) == 2
    assert "base-rate, which is best here, cannot be kept in a file." in capsys.readouterr().err


def test_inspect_shows_the_schema_of_any_file(people, tmp_path, capsys):
    path, frame = people
    assert run(["inspect", str(path), "--json", "--schema", "zip=category"]) == 0
    columns = {column["name"]: column for column in json.loads(capsys.readouterr().out)["columns"]}
    schema = fe.Schema.recognise(frame, kinds={"zip": "category"})
    assert {name: column["kind"] for name, column in columns.items()} == {
        field.name: field.kind.value for field in schema.fields
    }
    assert {name: column["missing"] for name, column in columns.items()} == {
        name: frame[name].null_count() for name in frame.columns
    }
    assert columns["class"]["categories"] == ["first", "second", "third"]
    assert columns["age"]["mean"] == pytest.approx(frame["age"].mean())
    assert (columns["since"]["first"], columns["since"]["last"]) == (
        str(frame["since"].min()),
        str(frame["since"].max()),
    )
    assert columns["id"]["treatment"] == schema["id"].treatment
    # what it says is a schema to go on with
    kinds = tmp_path / "kinds.json"
    assert run(["inspect", str(path), "--json", "--schema", "zip=category"]) == 0
    kinds.write_text(capsys.readouterr().out)
    assert (
        run(["inspect", str(path), "--schema", str(kinds), "--schema", "kids=[0,1,2,3,4,5,6,7,8,9]"]) == 0
    )
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines[2:]] == [
        *("identifier", "category", "continuous", "ordered", "date", "binary", "category")
    ]
    text = tmp_path / "text.csv"
    text.write_text(
        "word\n" + "".join(f"a sentence that no other row has: number {i}\n" for i in range(30))
    )
    assert run(["inspect", str(text)]) == 0
    assert "Many different texts: left out." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("class=colour", "--schema must have NAME=KIND, of the kinds continuous, "),
        ("nobody=category", "--schema names no column 'nobody'. There are 'id', 'class', "),
        ("kids=[few,many]", "The labels that --schema lists for column 'kids' must be numbers."),
        ("class=[first,second]", "The labels of column 'class' must list all that occur. Got 'third'"),
        ("class=count", "Column 'class' is declared count and must hold numbers. Got 'first'."),
        ("none.json", "The file of --schema 'none.json' does not exist."),
    ],
)
def test_a_wrong_schema_gets_a_sentence(words, sentence, people, capsys):
    assert run(["inspect", str(people[0]), "--schema", words]) == 2
    out, err = capsys.readouterr()
    assert (out, sentence in err) == ("", True)


def test_kinds_in_words_and_names_with_commas(tmp_path):
    assert declared_kinds(["a=b,c=integer,d=[x, y]", "e f = date"]) == {
        "a=b,c": "integer",
        "d": ["x", "y"],
        "e f": "date",
    }
    path = tmp_path / "kinds.json"
    path.write_text('{"a": "count", "b": ["low", "high"]}')
    assert declared_kinds([str(path)]) == {"a": "count", "b": ["low", "high"]}
    path.write_text('{"a": "colour"}')
    with pytest.raises(ValueError, match=r"must hold a name with its kind, or a list of labels, for each"):
        declared_kinds([str(path)])


def test_series_have_their_labels_in_the_order_of_the_file(tmp_path, capsys):
    rng = np.random.default_rng(0)
    x = np.sin(np.arange(30) / 3)[:, None] + [0.0, 4.0] + 0.1 * rng.normal(size=(30, 2))
    x[7, 1] = np.nan
    path, model = tmp_path / "panel.csv", str(tmp_path / "m.safetensors")
    # the steps of the two take turns
    rows = [f"{'ab'[s]},{'' if np.isnan(v) else repr(v)}" for row in x.tolist() for s, v in enumerate(row)]
    path.write_text("\n".join(["who,x", *rows]))
    panel = ["--series", "who"]
    assert run(["fit", str(path), "-m", "hmm:2", "-o", model, *panel, "--seed", "0", "-q"]) == 0
    fitted, series = fe.load(model), x.T[..., None]
    del fitted.feature_names_in_

    def answer(*command: str) -> pl.DataFrame:
        capsys.readouterr()
        assert run([command[0], model, str(path), *panel, *command[1:]]) == 0
        return pl.read_csv(io.StringIO(capsys.readouterr().out))

    filled = answer("impute")
    assert filled["who"].to_list() == ["a", "b"] * 30
    np.testing.assert_allclose(
        filled["x"].to_numpy().reshape(30, 2).T, fitted.impute(series)[..., 0], rtol=1e-9
    )
    path_ = answer("decode")["state"].to_numpy().reshape(30, 2).T
    np.testing.assert_array_equal(path_, np.asarray(fitted.decode(series)))
    shares = answer("predict")
    np.testing.assert_allclose(
        shares["p(1)"].to_numpy().reshape(30, 2).T,
        np.asarray(fitted.predict_proba(series))[..., 1],
        atol=1e-9,
    )
    scores = answer("score")
    assert scores["who"].to_list() == ["a", "b"]
    np.testing.assert_allclose(scores["nats"].to_numpy(), fitted.score_samples(series), rtol=1e-9)
    ahead = answer("forecast", "--steps", "3")
    assert ahead["who"].to_list() == ["a"] * 3 + ["b"] * 3
    assert ahead["step"].to_list() == [1, 2, 3] * 2
    expected = fitted.forecast(series, 3)
    expected = expected if isinstance(expected, np.ndarray) else expected.mean
    np.testing.assert_allclose(ahead["x"].to_numpy(), np.ravel(expected), rtol=1e-6)


@pytest.fixture
def shops(tmp_path):
    """Months of two shops in turns, of which one lacks a month: a file, and the frame with the time."""
    rng = np.random.default_rng(5)
    month = pd.date_range("2019-11-30", periods=48, freq="ME", name="month")
    walks = np.cumsum(rng.normal(size=(48, 2, 2)), axis=0) + 50
    frame = pd.DataFrame(
        {
            "shop": ["north", "south"] * 48,
            "month": month.repeat(2),
            "sales": walks[..., 0].ravel(),
            "visits": np.rint(walks[..., 1].ravel()).astype(int),
            "price": rng.normal(size=96),
            "remark": [f"note {i}" for i in range(96)],
        }
    )
    frame.loc[10, "sales"] = np.nan
    frame = frame.drop(index=21).reset_index(drop=True)
    path = tmp_path / "shops.csv"
    frame.to_csv(path, index=False)
    return str(path), frame


IN_TIME = ["--time", "month", "--series", "shop"]


def test_dates_of_a_panel_go_in_and_come_out(shops, tmp_path, capsys, monkeypatch):
    path, frame = shops
    model = str(tmp_path / "m.safetensors")
    targets = ["-y", "sales", "-y", "visits"]
    assert run(["inspect", path, *IN_TIME, "--drop", "remark"]) == 0
    told = capsys.readouterr().out
    assert "2 series of 48 steps, columns sales, visits, price\na step is a month, from 2019-11-30" in told
    assert "1 of 96 steps of a month is missing, the first 2020-09-30; nothing was observed there." in told
    assert run(["fit", path, *IN_TIME, *targets, "-m", "autoregression:1", "-o", model, "-q"]) == 0
    out, err = capsys.readouterr()
    assert "AutoRegression fitted to 2 series of 2 columns is in" in out
    assert "1 of 96 steps of a month is missing" in err
    # pandas knows which months come next
    indexed = frame.set_index(["shop", "month"])[["sales", "visits"]]
    with pytest.warns(UserWarning, match="1 of 96 steps of a month is missing"):
        truth = fe.AutoRegression(1).fit(indexed)
    expected = truth.forecast(indexed, 3, 0.8)

    def answer(*command: str) -> pl.DataFrame:
        capsys.readouterr()
        assert run([command[0], model, path, *IN_TIME, *command[1:]]) == 0
        return pl.read_csv(io.StringIO(capsys.readouterr().out), try_parse_dates=True)

    ahead = answer("forecast", "--steps", "3", "--level", "0.8")
    assert ahead.columns == [
        *("shop", "month", "sales", "sales low", "sales high", "visits", "visits low", "visits high")
    ]
    later = pd.date_range("2023-11-30", periods=3, freq="ME")
    assert ahead["shop"].to_list() == ["north"] * 3 + ["south"] * 3
    assert ahead["month"].to_list() == [*later.date, *later.date]
    for title, part in (("", expected.mean), (" low", expected.low), (" high", expected.high)):
        found = ahead.select(f"sales{title}", f"visits{title}").to_numpy()
        np.testing.assert_allclose(found, part.to_numpy(), rtol=1e-6)
    scores = answer("score")
    assert scores["shop"].to_list() == ["north", "south"]
    np.testing.assert_allclose(scores["nats"].to_numpy(), truth.score_samples(indexed), rtol=1e-6)
    filled = answer("impute")
    assert filled.columns == list(frame.columns)
    assert len(filled) == 96
    gap = filled.row(by_predicate=(pl.col("shop") == "south") & pl.col("remark").is_null(), named=True)
    assert str(gap["month"]) == "2020-09-30"
    whole = truth.impute(indexed).sort_index()
    found = filled.sort("shop", "month").select("sales", "visits").to_numpy()
    np.testing.assert_allclose(found, whole.to_numpy(), rtol=1e-6)
    assert run(["forecast", model, path, *IN_TIME, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0][:2] == ["north", "2023-11-30"]
    # the file of the model knows which column tells the series, and which the times
    assert run(["score", model, path, "--json"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["shop"] == ["north", "south"]
    np.testing.assert_allclose(json.loads(told.out)["nats"], scores["nats"].to_numpy(), rtol=1e-12)
    assert "With --series shop --time month, as it was fitted." in told.err
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(Path(path).read_bytes())))
    assert run(["score", model, "-"]) == 2
    assert "was fitted with --series shop --time month. Say so again" in capsys.readouterr().err


def test_inputs_of_series_are_columns_and_those_to_come_are_a_file(shops, tmp_path, capsys):
    path, frame = shops
    model, future = str(tmp_path / "m.safetensors"), str(tmp_path / "future.csv")
    whole = frame[frame["shop"] == "north"].drop(columns="shop")
    whole.to_csv(path, index=False)
    options = ["--time", "month", "--inputs", "price", "-y", "sales"]
    assert run(["fit", path, *options, "-m", "autoregression:1", "-o", model, "-q"]) == 0
    data = fe.series(whole, time="month", columns=["sales"], inputs=["price"])
    truth = fe.AutoRegression(1).fit(data)
    later = pd.date_range("2023-10-31", periods=3, freq="ME", name="month")
    known = pd.DataFrame({"month": later, "price": [9.0, 1.0, -1.0]})
    known.to_csv(future, index=False)
    lacking = str(tmp_path / "lacking.csv")
    known.drop(columns="price").to_csv(lacking, index=False)
    asked = [model, path, *options[:4]]
    capsys.readouterr()
    assert run(["forecast", *asked, "--future", future]) == 0
    found = pl.read_csv(io.StringIO(capsys.readouterr().out), try_parse_dates=True)
    # the first month of the file is no month to come
    expected = truth.forecast(data, 2, future_inputs=fe.series(known, time="month"))
    assert found["month"].to_list() == list(later[1:].date)
    np.testing.assert_allclose(found["sales"].to_numpy(), expected.mean["sales"], rtol=1e-6)
    assert run(["score", *asked, "--json"]) == 0
    nats = json.loads(capsys.readouterr().out)["nats"]
    np.testing.assert_allclose(nats, truth.score_samples(data), rtol=1e-6)
    # the file of the model knows what they are called
    assert run(["score", model, path, "--time", "month", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["nats"] == nats
    bare = str(tmp_path / "bare.safetensors")
    values = whole[["sales", "price"]].to_numpy(float)
    fe.AutoRegression(1).fit(values[:, :1], inputs=values[:, 1:]).save(bare)
    for command, sentence in (
        (["score", bare, path, "--time", "month"], "was fitted with 1 inputs. Name their columns, in"),
        (["forecast", *asked], "was fitted with inputs. Name a file that has those of the steps to come"),
        (
            ["score", model, path, "--time", "month", "--inputs", "visits"],
            "must have the column 'price', which was fitted. Got 'visits' instead.",
        ),
        (["forecast", *asked, "--future", path], "has no row after the end of the series."),
        (["forecast", *asked, "--future", lacking], "has no column 'price', which --inputs names."),
        (["outliers", *asked], f"AutoRegression in '{model}' cannot tell outliers."),
        (
            ["forecast", *asked, "--future", future, "-n", "3"],
            "must have a row for every time step. Got none for 2024-01-31.",
        ),
    ):
        assert run(command) == 2
        out, err = capsys.readouterr()
        assert (out, sentence in err, len(err.splitlines())) == ("", True, 1), err


def test_wrong_inputs_to_come_are_told_by_file_series_and_date(shops, tmp_path, capsys):
    path, frame = shops
    frame[frame["month"] > "2020-09-30"].to_csv(path, index=False)
    model, future = str(tmp_path / "m.safetensors"), str(tmp_path / "future.csv")
    options = [*IN_TIME, "--inputs", "price"]
    assert run(["fit", path, *options, "-y", "sales", "-m", "autoregression:1", "-o", model, "-q"]) == 0
    later = pd.date_range("2023-11-30", periods=2, freq="ME").strftime("%Y-%m-%d")
    known = pd.DataFrame(
        {"shop": np.repeat(["north", "south"], 2), "month": [*later] * 2, "price": [1.0, 2.0, 3.0, 4.0]}
    )
    words = known.assign(month=[*later, "soon", later[1]])
    cases = (
        (
            known[known["shop"] == "north"],
            f"The file {future!r} must have rows for series 'south'. Got none.",
        ),
        # one that ends before the others shortens no forecast
        (
            known.iloc[:3],
            f"The file {future!r} must have a row for every time step. Got none for {later[1]}",
        ),
        (known.assign(month=later[0]), f"The times of {future!r} in column 'month' must increase within"),
        (words, f"The times of {future!r} in column 'month' must be dates or numbers. Got 'soon' in row 3"),
        (
            known.assign(price=[1.0, 2.0, 3.0, np.nan]),
            f"{future!r} must hold finite numbers. Got nan in column 'price' for {later[1]} of series",
        ),
    )
    capsys.readouterr()
    for rows, sentence in cases:
        rows.to_csv(future, index=False)
        assert run(["forecast", model, path, *options, "--future", future]) == 2
        out, err = capsys.readouterr()
        assert (out, sentence in err, len(err.splitlines())) == ("", True, 1), err
    known.to_csv(future, index=False)
    twice = str(tmp_path / "twice.csv")
    Path(twice).write_text(Path(path).read_text() + Path(path).read_text().splitlines()[-1] + "\n")
    assert run(["forecast", model, twice, *options, "--future", future]) == 2
    lines = len(Path(twice).read_text().splitlines())
    assert f"and row {lines - 1} (line {lines}) of series" in capsys.readouterr().err


def test_series_with_dates_and_inputs_are_compared(shops, capsys):
    path, frame = shops
    words = ["-m", "autoregression:1", "-m", "gaussian-density", "-m", "markov-chain:2"]
    command = ["compare", path, *IN_TIME, "-y", "sales", "--inputs", "price", *words, "--cv", "2"]
    # a month that is not there has no price
    assert run([*command, "--seed", "0", "-q"]) == 2
    assert (
        "must have a row for every time step. Got none for 2020-09-30 of series 'south'."
        in capsys.readouterr().err
    )
    full = frame[frame["month"] > "2020-09-30"]
    full.to_csv(path, index=False)
    assert run([*command, "--seed", "0", "-q", "--json", "--horizon", "2"]) == 0
    found = json.loads(capsys.readouterr().out)
    lines = {line["model"]: line for line in found["table"]}
    assert lines["markov-chain:2"]["error"]
    # each shop is scored by the model of the other
    parts = {name: part.drop(columns="shop") for name, part in full.groupby("shop")}
    data = {
        name: fe.series(part, time="month", columns=["sales"], inputs=["price"])
        for name, part in parts.items()
    }
    nats = [
        fe.AutoRegression(1).fit(data[one]).score_samples(data[other])[0]
        for one, other in (("north", "south"), ("south", "north"))
    ]
    assert lines["autoregression:1"]["bits"] == pytest.approx(-np.mean(nats) / np.log(2), rel=1e-6)
    ahead = [line for line in found["forecasts"] if line["model"] == "autoregression:1"]
    assert [line["steps"] for line in ahead] == [1, 2]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--time", "nobody"], "--time names no column 'nobody'. There are 'shop', 'month', 'sales', "),
        (
            ["--time", "remark", "-y", "sales"],
            "The times in column 'remark' must be dates or numbers. Got 'note 0' in row 1",
        ),
        ([], "Column 'month' holds times. Say that it is the time (--time month) or leave"),
        (["--inputs", "price,cost"], "--inputs names no column 'cost'. There are "),
        (["--inputs", "price", "-y", "price"], "Column 'price' is named twice by --time, --inputs and"),
        (
            ["--time", "month", "-y", "sales"],
            "must increase within each series. Got 2019-11-30 twice, in row",
        ),
        (
            ["--series", "shop"],
            "Column 'month' holds times. Say that it is the time (--time month) or leave",
        ),
        ([*IN_TIME], "Column 'remark' is text, such as 'note 0'. Leave it out (--drop remark) or make"),
        (
            ["-y", "sales", "-y", "visits"],
            "Only one --target can be told from the others. Several are columns",
        ),
    ],
)
def test_a_wrong_use_of_times_gets_one_sentence(options, sentence, shops, tmp_path, capsys):
    path, _ = shops
    model = str(tmp_path / "m.safetensors")
    assert run(["fit", path, *options, "-m", "autoregression:1", "-o", model, "-q"]) == 2
    out, err = capsys.readouterr()
    assert (out, sentence in err, len(err.splitlines())) == ("", True, 1), err


def test_models_of_rows_have_no_times(shops, tmp_path, capsys):
    path, _ = shops
    model = str(tmp_path / "m.safetensors")
    numbers = ["--drop", "remark", "--drop", "month", "--drop", "shop"]
    words = ["-y", "sales", "-m", "gaussian-density", "-o", model]
    assert run(["fit", path, *IN_TIME, *words]) == 2
    assert "--series is for models of series, which GaussianDensity is not." in capsys.readouterr().err
    assert run(["compare", path, *IN_TIME, "-y", "sales", "-m", "gaussian-density"]) == 2
    assert "--series is for models of series, and none is named with --model." in capsys.readouterr().err
    assert run(["compare", "iris", "-m", "ppca", "--horizon", "2"]) == 2
    assert "--horizon is for models of series, and none is named with" in capsys.readouterr().err
    assert run(["fit", path, *numbers, "-m", "gaussian-density:diagonal", "-o", model, "-q"]) == 0
    assert run(["score", model, path, *numbers[:2], "--time", "month"]) == 2
    assert "--time is for models of series, which GaussianDensity in" in capsys.readouterr().err
    assert run(["score", model, "iris", "--time", "month"]) == 2


def test_what_is_taken_for_series_when_no_model_is_named():
    X = np.random.default_rng(0).normal(size=(60, 1))
    assert "structural-time-series:level()+seasonal(12)" in series_defaults(X, "month")
    assert not [text for text in series_defaults(X, None) if "seasonal" in text]
    assert len({type(build(text, X)) for text in series_defaults(X, "day")}) >= 4
    # with inputs every model of series has them
    models = [build(text, X) for text in series_defaults(X, "day", 2)]
    assert all(
        model.takes_inputs for model in models if isinstance(model, fe.shell.AbstractSequenceDensity)
    )
    assert len(models) == len(series_defaults(X, "day"))


def test_a_hidden_part_is_written_with_its_names(table, tmp_path, capsys):
    path, values = table
    model = str(tmp_path / "m.safetensors")
    assert run(["fit", str(path), "-m", "factor-analysis:1", "-o", model, "--seed", "0", "-q"]) == 0
    capsys.readouterr()
    assert run(["transform", model, str(path)]) == 0
    found = pl.read_csv(io.StringIO(capsys.readouterr().out))
    assert found.columns == ["factoranalysis0"]
    frame = pl.DataFrame(values, schema=["a", "b", "sum"])
    np.testing.assert_allclose(found.to_numpy(), fe.load(model).transform(frame), rtol=1e-9)


def test_sums_and_quotes_are_words_of_models():
    model = build("structural-time-series:Trend() + seasonal(12)", COUNTS)
    assert repr(model.blocks) == repr(fe.models.Trend() + fe.models.Seasonal(12))
    assert isinstance(build("gaussian-density:covariance='diagonal'", COUNTS).covariance, d.Diagonal)
    assert isinstance(build("mixture:2,family='by column'", COUNTS).family, d.ByColumn)
    with pytest.raises(SpecError, match=r"cannot be added\.$"):
        build("gaussian-density:covariance=diagonal()+full()", COUNTS)


# ---------------------------------------------------------------------------------------------
# bad input: one sentence on standard error, exit 2, nothing on standard output
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nonsense"], "No such command 'nonsense'."),
        (["compare"], "Missing argument 'DATA'."),
        (["compare", "iris", "--nope"], "No such option: --nope"),
        (["compare", "iris", "--cv", "many"], "Invalid value for '--cv'"),
        (["compare", "iris", "--cv", "1"], "Invalid value for '--cv'"),
        (["compare", "iri"], "'iri' is neither a file nor the name of a data set. Did you mean 'iris'?"),
        (["compare", "none.csv"], "'none.csv' does not exist."),
        (["compare", "iris", "-m", "gausian-density"], "Did you mean 'gaussian-density'?"),
        (["compare", "iris", "-m", "ppca", "-m", "ppca"], "The model 'ppca' is given twice."),
        (
            ["compare", "iris", "--cv", "3", "--test-size", "0.5"],
            "Only one of --cv and --test-size can be given.",
        ),
        (
            ["compare", "iris", "-m", "ppca", "--test-size", "7.5"],
            "--test-size must be a share between 0 and 1.",
        ),
        (
            ["compare", "iris", "-m", "ppca", "--final-size", "nan"],
            "--final-size must be a share between 0 and 1.",
        ),
        (["compare", "iris", "-m", "ppca", "--jobs", "0"], "--jobs must be a number of processes, or -1"),
        (["compare", "{text}", "--drop", "kind", "--resume", "{text}"], "is a file. A folder is needed."),
        (
            ["compare", "{text}", "--drop", "kind", "--encode", "kind"],
            "is named by --drop and by --encode.",
        ),
        (
            ["inspect", "{text}", "--array", "x"],
            "--array is for .npz files and workbooks, which '{text}' is not.",
        ),
        (
            ["inspect", "iris", "--array", "x"],
            "--array is for .npz files and workbooks, which 'iris' is not.",
        ),
        (
            ["score", "{fitted}", "{text}", "--encode", "x", "--drop", "kind"],
            "The model needs the column 'x', wh",
        ),
        (
            ["fit", "iris", "-m", "mixture:family=binomial(trials=9)", "-o", "m.safetensors"],
            "Binomial needs non-negative whole numbers. Got 5.1 in row 1, column 'sepal length (cm)'.",
        ),
        (["compare", "iris", "--report", "r.pdf"], "The output 'r.pdf' must end in .html."),
        (
            ["compare", "iris", "--report", "none/r.html"],
            "The folder of the output 'none/r.html' does not exist.",
        ),
        (
            ["compare", "iris", "--drop", "petal"],
            "'iris' has no column 'petal'. It has 'sepal length (cm)', ",
        ),
        (["compare", "iris", "--encode", "target"], "--encode is for files, not for the built-in 'iris'."),
        (["compare", "linnerud", "--target", "target"], "'linnerud' has no column 'target'."),
        (
            ["fit", "{text}", "-m", "hmm:2", "--series", "x", "-o", "{folder}/m.safetensors"],
            "Column 'kind' is text, such as 'cat'. Leave it out (--drop kind) or make",
        ),
        (["compare", "{text}", "--drop", "x", "--drop", "kind"], "has no column left to model."),
        (["compare", "{text}", "--target", "nope"], "has no column 'nope'. It has 'kind', 'x'."),
        (["compare", "{ragged}"], "has 1 values where the first has 2."),
        (["compare", "{empty}"], "is empty."),
        (["compare", "{junk}"], "is not a table"),
        (["compare", "{folder}"], "is a folder. A file is needed."),
        (["compare", "{constant}"], "constant"),
        (
            ["compare", "{infinite}"],
            "Row 2 (line 3), column 'a' of '{infinite}' is infinite. Write NA where",
        ),
        (
            ["fit", "{infinite}", "-m", "ppca", "-o", "m.safetensors"],
            "column 'a' of '{infinite}' is infinite.",
        ),
        (
            ["compare", "iris", "--support", "integer"],
            "--support must have a word for each of the 4 columns",
        ),
        (["compare", "iris", "--support", "whole"], "--support knows continuous, integer, "),
        (
            ["compare", "iris", "--support", "petal=integer"],
            "--support names no column 'petal'. There are 'sep",
        ),
        (
            ["compare", "iris", "-y", "target", "--continuous"],
            "are for densities, not for models of a --target.",
        ),
        (
            ["fit", "iris", "-m", "ppca", "--support", "x=integer", "-o", "m.safetensors"],
            "--support is for models that take whole numbers with noise: --model 'dequantised:ppca'.",
        ),
        (["compare", "iris", "--decimal", ";"], "--decimal must be . or a comma. Got ';' instead."),
        (
            ["fit", "iris", "-m", "softmax-regression", "-o", "{folder}/m.safetensors"],
            "softmax-regression tells labels from the other columns. Name the column that has them",
        ),
        (["compare", "iris", "-m", "ppca", "-m", "naive-bayes"], "naive-bayes tells labels from the other"),
        (["compare", "{text}", "--target", "nobody"], "has no column 'nobody'."),
        (
            ["compare", "{unlabelled}", "-y", "kind"],
            "Column 'kind' has 2 missing labels, the first in row 2 (line 3). Leave such rows out.",
        ),
        (["compare", "{infinite}", "-y", "a"], "has no column left to model."),
        (["fit", "iris", "-o", "m.safetensors"], "Missing option '--model' / '-m'."),
        (["fit", "iris", "-m", "ppca", "-o", "m.pkl"], "The output 'm.pkl' must end in .safetensors."),
        (
            ["fit", "iris", "-m", "gaussian-mixture:0", "-o", "{folder}/m.safetensors"],
            "The 'n_components' parameter of GaussianMixture must be an int in the range [1, inf)",
        ),
        (["score", "none.safetensors", "iris"], "There is no file 'none.safetensors'."),
        (["score", "{text}", "iris"], "{text}"),
        (["sample", "{junk}"], "{junk}"),
        (["sample", "none.safetensors", "-n", "0"], "Invalid value for '--number' / '-n'"),
        (["sample", "{fitted}", "-n", "99999999999999"], "The sample has"),
        (
            ["fit", "iris", "-m", "ppca:" + "9" * 99, "-o", "m.safetensors"],
            "of the model is too large: it needs 64",
        ),
        (
            ["fit", "iris", "-m", "ppca:" + "[" * 9999, "-o", "m.safetensors"],
            "has brackets inside brackets, too",
        ),
        (["inspect", "{junk}.safetensors"], "{junk}.safetensors"),
        (["sample", "{model}"], "KMeans in '{model}' cannot sample."),
        (["score", "{model}", "iris"], "KMeans in '{model}' cannot score."),
        (["inspect", "none"], "'none' is neither a file nor the name of a data set."),
    ],
)
def test_bad_input_gets_one_sentence(arguments, sentence, tmp_path, capsys):
    files = {
        "text": b"kind,x\ncat,1\ndog,2\n",
        "ragged": b"a,b\n1,2\n3\n",
        "empty": b"",
        "junk": bytes(range(256)) * 4,
        "constant": b"a\n1\n1\n1\n1\n1\n1\n",
        "infinite": b"a\n1\ninf\n2\n3\n4\n5\n",
        "unlabelled": b"kind,x\ncat,1\n?,2\ndog,3\n,4\n",
    }
    places = {"folder": str(tmp_path), "model": str(tmp_path / "model.safetensors")}
    places["fitted"] = str(tmp_path / "fitted.safetensors")
    fe.KMeans().save(places["model"])
    fe.GaussianDensity().fit(pl.DataFrame(COUNTS, schema=["x", "y", "z"])).save(places["fitted"])
    for name, content in files.items():
        places[name] = str(tmp_path / f"{name}.file")
        (tmp_path / f"{name}.file").write_bytes(content)
    filled = [re.sub(r"\{(\w+)\}", lambda m: places[m[1]], a) for a in arguments]
    before = sorted(tmp_path.iterdir())
    assert run(filled) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.sub(r"\{(\w+)\}", lambda m: places[m[1]], sentence) in err
    assert len(err.strip().splitlines()) == 1
    assert err.strip().endswith((".", "?"))
    assert "Traceback" not in err
    assert sorted(tmp_path.iterdir()) == before


# ---------------------------------------------------------------------------------------------
# the real program
# ---------------------------------------------------------------------------------------------


def program(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "freeenergy", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)


def test_the_program_runs_and_names_its_version(monkeypatch):
    found = program("--version")
    assert (found.returncode, found.stdout.strip(), found.stderr) == (0, fe.__version__, "")
    monkeypatch.setattr(sys, "argv", ["freeenergy", "--version"])
    with pytest.raises(SystemExit, match="0"):
        main()


def test_help_needs_none_of_the_models():
    code = (
        "import sys; from freeenergy.cli import run;"
        "assert run(['--help']) == run(['compare', '--help']) == 0;"
        "assert not {'jax', 'sklearn', 'numpy', 'polars'} & set(sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (found.returncode, found.stderr) == (0, "")
    assert "Usage: freeenergy compare" in found.stdout


def test_a_reader_that_leaves_is_no_error():
    command = f"{sys.executable} -m freeenergy inspect digits --json | head -c 10"
    found = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=300)
    assert found.stdout.startswith("{")
    assert "Traceback" not in found.stderr


def test_closed_streams_are_no_crash():
    for command, code in (("models --json >&-", 0), ("inspect none 2>&-", 2), ("inspect - <&-", 2)):
        found = subprocess.run(
            ["sh", "-c", f"{sys.executable} -m freeenergy {command}"],
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert found.returncode == code
        assert found.stderr in (
            "",
            "Standard input is closed. Name a file, or pass the data through a pipe.\n",
        )


@pytest.mark.usefixtures("listening_to_ctrl_c")
def test_ctrl_c_exits_with_130_and_says_what_is_kept(tmp_path):
    resume = tmp_path / "kept"
    words = ["-m", "gaussian-density", "-m", "vae:max_iter=1000000,patience=1000000"]
    command = [sys.executable, "-m", "freeenergy", "compare", "iris", *words, "--seed", "0", "--cv", "2"]
    process = subprocess.Popen(
        [*command, "--resume", str(resume)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        until = time.monotonic() + 200
        while not (resume.exists() and any(resume.iterdir())) and time.monotonic() < until:
            time.sleep(0.2)
        time.sleep(1)
        os.kill(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=200)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Traceback" not in err
    assert f"Everything finished is kept in {resume}." in err
