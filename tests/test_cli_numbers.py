"""The command line with a target of numbers: fit, predict, score, summary, compare."""

import io
import json

import numpy as np
import polars as pl
import pytest

import freeenergy as fe
from freeenergy.cli import run
from freeenergy.cli._specs import number_defaults, tells_numbers

RNG = np.random.default_rng(0)
TOWN = np.array(["Bern", "Basel", "Chur"])[RNG.integers(3, size=90)]
SIZE = RNG.normal(5.0, 1.0, 90)
PRICE = 2 * SIZE + 3.0 * (TOWN == "Chur") + RNG.normal(0, 0.3, 90)
FRAME = pl.DataFrame(
    {"size": SIZE, "town": TOWN, "price": PRICE, "visits": RNG.poisson(np.exp(0.7 * SIZE))}
)


@pytest.fixture
def file(tmp_path):
    FRAME.write_csv(tmp_path / "houses.csv")
    return str(tmp_path / "houses.csv")


@pytest.fixture
def model(file, tmp_path, capsys):
    path = str(tmp_path / "m.safetensors")
    words = ["--target", "price", "--drop", "visits", "-m", "linear-regression", "-o", path, "-q"]
    assert run(["fit", file, *words]) == 0
    capsys.readouterr()
    return path


def _fitted():
    return fe.LinearRegression().fit(FRAME.select("size", "town"), FRAME["price"])


def test_a_model_is_fitted_and_kept(model):
    found = fe.load(model)
    assert isinstance(found, fe.LinearRegression)
    assert found.answer_names_ == ["price"]
    assert found.columns_ == ["size", "town=Bern", "town=Chur"]
    np.testing.assert_allclose(found.coef_, _fitted().coef_, rtol=1e-9)


def test_predictions_with_intervals(model, file, tmp_path, capsys):
    rows, expected = FRAME.select("size", "town"), _fitted()
    assert run(["predict", model, file]) == 0
    found = pl.read_csv(io.StringIO(capsys.readouterr().out))
    assert found.columns == ["mean"]
    np.testing.assert_allclose(found["mean"], expected.predict(rows), rtol=1e-6)
    output = str(tmp_path / "out.csv")
    words = ["--interval", "0.8", "--target", "price", "-o", output]
    assert run(["predict", model, file, *words]) == 0
    err = capsys.readouterr().err
    found = pl.read_csv(output)
    assert found.columns == ["mean", "low", "high"]
    low, high = map(np.asarray, expected.predict_interval(rows, 0.8))
    np.testing.assert_allclose(found["low"], low, rtol=1e-6)
    np.testing.assert_allclose(found["high"], high, rtol=1e-6)
    error = np.sqrt(np.mean((np.asarray(expected.predict(rows)) - PRICE) ** 2))
    inside = np.mean((low <= PRICE) & (high >= PRICE))
    assert err.startswith(f"Root mean square error {error:.6g} ± ")
    assert f"; {inside:.1%} of 90 answers are in their intervals of 80%." in err
    # rows without an answer, in which something is missing
    other = tmp_path / "new.csv"
    other.write_text("town,size\nBern,5\n,4\nChur,\n")
    assert run(["predict", model, str(other), "--interval", "0.9", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert set(told) == {"mean", "low", "high"}
    assert all(np.isfinite(values).all() for values in told.values())


def test_scores_are_of_the_answers(model, file, capsys):
    assert run(["score", model, file, "--target", "price"]) == 0
    out, err = capsys.readouterr()
    expected = _fitted().evidence(FRAME.select("size", "town"), FRAME["price"])
    np.testing.assert_allclose(pl.read_csv(io.StringIO(out))["nats"], expected.nats, rtol=1e-6)
    assert float(err.split("(")[1].split()[0]) == pytest.approx(-expected.mean / np.log(2), rel=1e-4)


def test_the_summary_is_given_the_answers(model, file, capsys):
    assert run(["summary", model, file, "--target", "price"]) == 0
    expected = _fitted().summary(FRAME.select("size", "town"), y=FRAME["price"])
    assert capsys.readouterr().out.strip() == repr(expected).strip()


def test_models_are_compared_and_the_best_is_kept(file, tmp_path, capsys):
    best, report = tmp_path / "best.safetensors", tmp_path / "r.html"
    words = ["--target", "price", "--drop", "visits", "--cv", "3", "--seed", "0", "-q"]
    words += ["-m", "base-rate", "-m", "linear-regression"]
    assert run(["compare", file, *words, "--report", str(report), "--best", str(best)]) == 0
    out = capsys.readouterr().out
    assert out.index("linear-regression") < out.index("base-rate")
    assert "RMSE" in out
    assert "'price'" in out
    assert isinstance(fe.load(best), fe.LinearRegression)
    assert "Predictions of held-out rows" in report.read_text("utf-8")
    # by default, what suits the target
    assert run(["compare", file, *words[:-4], "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"base-rate", "linear-regression"} <= {line["model"] for line in found["table"]}
    assert all(line["error"] is None for line in found["table"])
    assert "RMSE" in found["predictions"][0]


def test_whole_numbers_and_densities(file, capsys):
    words = ["--target", "visits", "--drop", "price", "--cv", "3", "--seed", "0", "-q"]
    words += ["-m", "base-rate", "-m", "linear-regression"]
    assert run(["compare", file, *words]) == 0
    assert "'visits' are whole numbers" in capsys.readouterr().out
    assert run(["compare", file, *words, "--continuous"]) == 0
    assert "density of 'visits'" in capsys.readouterr().out


def test_what_a_target_is():
    assert tells_numbers(PRICE)
    assert tells_numbers(np.arange(30))
    assert not tells_numbers(np.arange(30) % 20)
    assert not tells_numbers(TOWN)
    assert not tells_numbers(None)
    assert number_defaults(PRICE)[:2] == ["base-rate", "linear-regression"]
    assert not any("poisson" in words for words in number_defaults(PRICE))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["fit", "{file}", "-m", "linear-regression", "-o", "{out}"],
            "tells numbers from the other columns. Name the column that has them with --target NAME.",
        ),
        (
            ["fit", "{file}", "-m", "linear-regression", "-y", "town", "-o", "{out}"],
            "Column 'town' of --target holds labels, and linear-regression tells numbers. Use a model of ",
        ),
        (
            ["fit", "{file}", "-m", "softmax-regression", "-y", "price", "-o", "{out}"],
            "Unknown label type: continuous.",
        ),
        (
            ["score", "{model}", "{file}"],
            "LinearRegression gives the law of a number. Name the column that has it with --target NAME.",
        ),
        (["score", "{model}", "{file}", "-y", "town"], "town"),
        (
            ["predict", "{model}", "{file}", "--interval", "1.5"],
            "--interval must be between 0 and 1. Got 1.5 instead.",
        ),
        (
            ["compare", "{file}", "-y", "price", "-m", "linear-regression", "--support", "price=integer"],
            "--support and --continuous are for densities, not for models of a --target.",
        ),
        (["compare", "{file}", "-m", "linear-regression"], "tells numbers from the other columns."),
        (["sample", "{model}"], "cannot sample"),
    ],
)
def test_refuses_with_a_sentence(words, message, file, model, tmp_path, capsys):
    places = {"file": file, "model": model, "out": str(tmp_path / "x.safetensors")}
    assert run([word.format(**places) for word in words]) == 2
    assert message in capsys.readouterr().err


def test_an_interval_is_for_numbers(file, tmp_path, capsys):
    path = str(tmp_path / "k.safetensors")
    assert run(["fit", file, "--drop", "town", "-m", "k-means:2", "-o", path, "-q"]) == 0
    assert run(["predict", path, file, "--interval", "0.9"]) == 2
    assert "--interval is for models of numbers, which KMeans in" in capsys.readouterr().err
