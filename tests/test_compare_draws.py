"""Draws beside held-out rows: models that only draw stand beside those with bits, and are judged alike."""

import json

import numpy as np
import polars as pl
import pytest
from data import ROWS
from scipy import stats
from scipy.spatial.distance import cdist

import freeenergy as fe
from freeenergy import evaluation as ev
from freeenergy.cli import run
from freeenergy.comparison import DrawStanding
from freeenergy.comparison._draws import MEASURES, Ruler, beside, beside_data, over_folds
from freeenergy.comparison._problems import Table
from freeenergy.comparison._results import decode, encode
from freeenergy.shell import CodedRows, SamplesRows

RNG = np.random.default_rng(0)
X = np.concatenate([RNG.normal(-2, 1, (150, 2)), RNG.normal(2, 0.5, (150, 2))])


class Resampled(SamplesRows):
    """Draws rows of the fit again, or each column by itself, and knows no density."""

    def __init__(self, noise=0.0, apart=False, random_state=None):
        self.noise, self.apart, self.random_state = noise, apart, random_state

    def fit(self, X, y=None):
        self.model_ = np.asarray(X.x if isinstance(X, CodedRows) else X)
        self.n_iter_, self.converged_, self.history_ = 1, True, {}
        return self

    def sample(self, n=1, random_state=None, *, given=None):
        rng = np.random.default_rng(random_state)
        columns = [
            rng.choice(x[~np.isnan(x)], n) if self.apart else x[rng.integers(len(x), size=n)]
            for x in self.model_.T
        ]
        rows = (
            np.stack(columns, axis=1) if self.apart else self.model_[rng.integers(len(self.model_), size=n)]
        )
        return rows + self.noise * rng.normal(size=rows.shape)

    def _learn(self, rows, key):
        raise NotImplementedError


MODELS = {
    "again": Resampled(),
    "wide": Resampled(2.0),
    "mixture": fe.GaussianMixture(2),
    "gauss": fe.GaussianDensity(),
    "broken": fe.KMeans(2),
}


@pytest.fixture(scope="module")
def board():
    return fe.compare(MODELS, X, cv=3, random_state=0)


def test_who_only_draws_comes_after_those_with_bits(board, tmp_path):
    lines = board.table()
    assert [line.model for line in lines] == ["mixture", "gauss", "again", "wide", "broken"]
    assert [line.scored for line in lines] == [True, True, False, False, True]
    assert np.isnan([lines[2].bits, lines[3].bits, lines[3].difference]).all()
    assert board.best_estimator.n_components == 2
    # the same order by the measures, and what to read them beside
    found = board.draws()
    names = ["mixture", "gauss", "again", "wide"]
    assert [line.model for line in found[:4]] == names
    assert [line.reference for line in found] == [False] * 4 + [True] * 2
    assert {line.folds for line in found} == {3}
    assert all(isinstance(line, DrawStanding) for line in found)
    text = str(board)
    assert "again and wide have no density" in text
    row = next(line for line in text.splitlines() if "again" in line)
    assert "only draws" in row
    assert row.count("–") == 2
    assert "every column by itself" in text
    frame = board.to_frame()
    assert list(frame["kind"])[2:4] == ["only draws"] * 2
    np.testing.assert_allclose(
        frame["told_apart"][:4], [line.measures["told apart"].value for line in found[:4]]
    )
    assert np.isnan(frame["told_apart_stderr"][4])
    told = json.loads(json.dumps(board.to_json(), allow_nan=False))
    assert told["table"][2]["bits"] is None
    assert told["draws"][4]["model"] == "other rows of the data"
    assert told["draws"][2]["nearer"]["value"] == pytest.approx(found[2].measures["nearer"].value)
    board.to_html(tmp_path / "draws.html")
    page = (tmp_path / "draws.html").read_text()
    assert "Draws beside held-out rows, the mean of 3 folds" in page
    assert "<b>again</b>" in page


def test_measures_tell_good_from_bad(board):
    found = {line.model: line.measures for line in board.draws()}
    best = found["other rows of the data"]
    for name, expected in (("told apart", 0.5), ("nearer", 0.5), ("coverage", 1 - 0.5**5)):
        assert abs(best[name].value - expected) < 4 * best[name].stderr + 0.01
    # the right model is as good as the data, the others are worse
    for name in MEASURES:
        assert abs(found["mixture"][name].value - best[name].value) < 4 * np.hypot(
            found["mixture"][name].stderr, best[name].stderr
        )
    for bad in ("gauss", "wide", "every column by itself"):
        assert found[bad]["told apart"].value > best["told apart"].value + 4 * best["told apart"].stderr
        assert found[bad]["coverage"].value < best["coverage"].value - 0.1
        assert found[bad]["distance"].value > best["distance"].value + 0.05
    # who repeats the rows of the fit looks as good, but for this
    assert found["again"]["nearer"].value == 1.0
    assert abs(found["again"]["told apart"].value - 0.5) < 4 * found["again"]["told apart"].stderr


def test_they_are_those_of_the_functions_for_two_samples(board):
    result = next(r for r in board.results if r.model == "gauss" and r.fold == 0)
    order = np.random.default_rng(0).permutation(len(result.rows))
    scale = (np.quantile(X, 0.75, axis=0) - np.quantile(X, 0.25, axis=0)) / 1.349
    z = np.arcsinh((X - np.median(X, axis=0)) / scale)
    unit = np.sqrt(z.var(axis=0).mean())
    made = np.arcsinh((result.samples[: len(order)] - np.median(X, axis=0)) / scale) / unit
    held, train = (z / unit)[result.rows[order]], np.delete(z / unit, result.rows, axis=0)
    by_hand = ev.fidelity(held, made)
    np.testing.assert_allclose(result.drawn["precision"], by_hand.precision)
    np.testing.assert_allclose(result.drawn["coverage"], by_hand.coverage)
    nearer = cdist(made, train).min(axis=1)[:, None] < cdist(held, train).min(axis=1)
    np.testing.assert_allclose(result.drawn["nearer"][0], nearer.mean())
    along = ev.sliced_wasserstein(held, made, order=1.0, seed=0)
    np.testing.assert_allclose(result.drawn["distance"], along)
    for part in board.results:
        back = decode(encode(part))
        assert back.scored == part.scored
        np.testing.assert_equal(back.drawn, part.drawn)


def test_a_ruler_has_labels_and_numbers_of_any_unit():
    frame = pl.DataFrame(
        {
            "far": RNG.standard_cauchy(400) * 1e6,
            "colour": RNG.choice(["red", "green", "blue"], 400),
            "rare": (RNG.random(400) < 0.2).astype(int),
            "one": np.ones(400),
        }
    )
    problem = Table(frame, None, None)
    points = problem.ruler(problem.X)
    assert points.shape == (400, 1 + 3 + 2)
    np.testing.assert_allclose(points.var(axis=0).mean(), 1)
    codes = problem.X[:, 1]
    far = cdist(points[:, 1:4], points[:, 1:4])
    np.testing.assert_allclose(far[codes[:, None] != codes], np.sqrt(2) / problem.ruler.unit)
    # other units, and what is missing
    other = np.array(problem.X)
    other[:, 0] = 3 - 7 * other[:, 0]
    moved = Ruler(other, problem.support, problem.schema)
    np.testing.assert_allclose(moved(other)[:, 0], -points[:, 0], atol=1e-9)
    other[0] = np.nan
    assert not moved(other)[0].any()


def test_holes_and_labels_do_not_tell_draws_from_rows():
    rng = np.random.default_rng(1)
    colour = rng.integers(3, size=600)
    frame = pl.DataFrame(
        {
            "size": np.where(rng.random(600) < 0.4, None, colour + 0.5 * rng.normal(size=600)),
            "colour": np.array(["red", "green", "blue"])[colour],
            "events": rng.poisson(1 + colour),
        },
        strict=False,
    )
    found = []
    for seed in range(8):
        problem = Table(frame, None, None)
        order = np.random.default_rng(seed).permutation(600)
        train, test = order[:400], order[400:]
        whole = problem.X[train][~np.isnan(problem.X[train]).any(axis=1)]
        # complete rows are drawn, as a right model does: holes came by chance
        right = beside(problem.ruler, problem.X[train], problem.X[test], whole[:200])
        found.append([right, *beside_data(problem.ruler, problem.X[train], problem.X[test])])
    for k, apart in enumerate((False, False, True)):
        told = np.array([parts[k]["told apart"][0] for parts in found])
        # of 200 rows of each kind one half is asked, by several splits
        error = np.std(told, ddof=1) / np.sqrt(len(told))
        assert (told.mean() > 0.6) if apart else abs(told.mean() - 0.5) < 4 * error + 0.005
        # what is claimed is no less than what samples differ by
        assert np.mean([parts[k]["told apart"][1] for parts in found]) > 0.7 * np.std(told, ddof=1)
    assert beside(problem.ruler, problem.X[:50], problem.X[:19], problem.X[:50]) == {}
    assert over_folds([{}]) == {}


def test_folds_whose_draws_are_measured(tmp_path):
    options = {"cv": 3, "random_state": 0}
    bits = {"one": fe.GaussianDensity()}
    shown = fe.compare(bits, ROWS, **options)
    assert [bool(r.drawn) for r in shown.results] == [True, False, False]
    assert "Draws beside held-out rows" in str(shown)
    bare = fe.compare(bits, ROWS, pictures=False, **options)
    assert bare.draws() == []
    assert "Draws beside" not in str(bare)
    assert "told_apart" not in bare.to_frame()
    both = fe.compare(
        {**bits, "again": Resampled()}, ROWS, pictures=False, resume=tmp_path, final_size=0.2, **options
    )
    assert all(r.drawn and r.samples is None for r in both.results)
    assert both.final.model == "one"
    again = fe.compare(
        {**bits, "again": Resampled()}, ROWS, pictures=False, resume=tmp_path, final_size=0.2, **options
    )
    assert str(again.draws()) == str(both.draws())
    only = fe.compare(
        {"again": Resampled()}, ROWS, pictures=False, final_size=0.2, criteria=True, **options
    )
    assert only.final is None
    assert isinstance(only.best_estimator, Resampled)
    only.to_html(tmp_path / "only.html")
    page = (tmp_path / "only.html").read_text()
    assert "No model gives a probability. Draws of <b>again</b> are told from held-out rows in" in page


def test_a_model_whose_draws_are_no_numbers_keeps_its_bits(monkeypatch):
    monkeypatch.setattr(fe.GaussianDensity, "sample", lambda *_, **__: np.full((300, 2), np.inf))
    board = fe.compare({"one": fe.GaussianDensity()}, ROWS, cv=2, random_state=0)
    assert np.isfinite(board.table()[0].bits)
    assert board.draws() == []
    assert any("Its draws are not measured" in note or "no pictures" in note for note in board.notes)


def test_errors_over_folds_count_what_they_differ_by():
    same = [{name: np.array([0.5, 0.1]) for name in MEASURES}] * 4
    assert over_folds(same)["distance"] == pytest.approx((0.5, 0.05))
    values = [0.1, 0.5, 0.9]
    other = [{name: np.array([value, 0.01]) for name in MEASURES} for value in values]
    assert over_folds(other)["nearer"] == pytest.approx((0.5, stats.sem(values)))


def test_a_gan_on_the_command_line(tmp_path, capsys):
    pl.DataFrame(ROWS, schema=["a", "b"]).write_csv(tmp_path / "rows.csv")
    words = ["gan:width=8,depth=1,max_iter=2", "gaussian-density"]
    asked = [part for word in words for part in ("--model", word)]
    table, report = tmp_path / "table.csv", tmp_path / "report.html"
    options = ["--cv", "2", "--seed", "0", "--quiet", "--output", str(table), "--report", str(report)]
    run(["compare", str(tmp_path / "rows.csv"), *asked, *options])
    told = capsys.readouterr().out
    assert told.index("gaussian-density") < told.index("gan:") < told.index("other rows of the data")
    frame = pl.read_csv(table)
    assert frame["kind"].to_list() == ["exact", "only draws"]
    assert frame["told_apart"][0] < 0.7 < frame["told_apart"][1]
    assert "Draws beside held-out rows" in report.read_text()
