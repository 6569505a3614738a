"""`freeenergy infer`: what a model in a file knows of the missing part of a row in another."""

import io
import json

import numpy as np
import polars as pl
import pytest

import freeenergy as fe
from freeenergy.cli import run
from freeenergy.distributions import Categories, Reals
from freeenergy.inference import DrawsPosterior, FinitePosterior
from freeenergy.report import posterior_to_html


@pytest.fixture
def people(tmp_path):
    """Heights, and a label that depends on them."""
    rng = np.random.default_rng(0)
    tall = rng.random(120) < 0.5
    frame = pl.DataFrame(
        {"height": rng.normal(150 + 30 * tall, 5.0), "team": np.where(tall, "red", "blue")}
    )
    model = fe.Mixture(2, family="by column", random_state=0).fit(frame)
    path = tmp_path / "model.safetensors"
    model.save(path)
    return model, path, tmp_path


def test_infer_tells_of_numbers_and_labels(people, capsys):
    model, path, folder = people
    rows = folder / "row.csv"
    rows.write_text("height,team\n181.0,red\n181.0,\n,red\n")
    assert run(["infer", str(path), str(rows)]) == 0
    out, err = capsys.readouterr()
    told = pl.read_csv(io.StringIO(out))
    assert err.startswith("Mixture: by independent draws of the missing entries given the others, which")
    assert dict(zip(told["label"], told["probability"], strict=True))["red"] > 0.99
    picture = folder / "height.png"
    page = folder / "height.html"
    wanted = ["--row", "3", "--json", "--picture", str(picture), "--report", str(page)]
    assert run(["infer", str(path), str(rows), *wanted]) == 0
    found = json.loads(capsys.readouterr().out)
    [line] = [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]
    red = pl.DataFrame({"height": [None], "team": ["red"]}, schema_overrides={"height": pl.Float64})
    expected = model.impute(red)
    assert line["entry"] == "height"
    assert line["mean"] == pytest.approx(expected["height"][0], abs=4.5 * line["sd"] / 4000**0.5)
    assert line["from"] < line["mean"] < line["to"]
    assert " to " in line["region"]
    text = page.read_text("utf-8")
    assert [f'id="{name}"' in text for name in ("table", "marginals", "traces", "ranks", "pairs")] == [
        *[True] * 4,
        False,
    ]
    assert "which Mixture knows exactly" in text
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_report_of_any_posterior(tmp_path):
    draws = np.random.default_rng(0).normal(size=(2, 200, 3))
    found = DrawsPosterior(draws, None, spaces=(Reals((3,)),), diagnostics={"divergences": np.asarray(3)})
    posterior_to_html(found, tmp_path / "page.html", title="What is known of <z>")
    text = (tmp_path / "page.html").read_text("utf-8")
    assert "<h1>What is known of &lt;z&gt;</h1>" in text
    assert 'id="pairs"' in text
    assert "<strong>3 trajectories diverged" in text
    label = FinitePosterior(np.arange(2), np.array([0.25, 0.75]), spaces=(Categories(2),))
    posterior_to_html(label, tmp_path / "label.html")
    assert "probability" in (tmp_path / "label.html").read_text("utf-8")


def test_infer_refuses_in_one_sentence(people, capsys):
    _, path, folder = people
    rows = folder / "row.csv"
    rows.write_text("height,team\n181.0,red\n")
    assert run(["infer", str(path), str(rows)]) == 2
    assert "The data have no row with a missing entry." in capsys.readouterr().err
    assert run(["infer", str(path), str(rows), "--row", "4"]) == 2
    assert "--row must be at most 1, the rows of the data. Got 4 instead." in capsys.readouterr().err
    assert run(["infer", str(path), str(rows), "--picture", "a.txt"]) == 2
    assert "must end in .png or .svg or .pdf" in capsys.readouterr().err
    rows.write_text("height,team\n,red\n")
    assert run(["infer", str(path), str(rows), "--level", "1.5"]) == 2
    assert "--level must be between 0 and 1. Got 1.5 instead." in capsys.readouterr().err
