"""The report has its parts, in words, numbers and pictures, and opens in a browser without a complaint."""

import dataclasses
import html.parser
import os
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.base import clone

import freeenergy as fe
from freeenergy import plots, report
from freeenergy.comparison import FoldResult, Standing
from freeenergy.comparison._tasks import derived_seed
from freeenergy.distributions import Poisson
from freeenergy.report._html import NOTHING, Cell, table_of, word_cell

SECTIONS = [
    "columns",
    "table",
    "differences",
    "draws",
    "learning",
    "distributions",
    "association",
    "samples",
    "latent",
    "parts",
    "calibration",
    "unlikely",
    "wins",
    "settings",
]
OF_SERIES = [
    name for name in SECTIONS if name not in ("draws", "distributions", "association", "parts", "unlikely")
]
HOSTILE = "<script>document.title='taken'</script>"


@pytest.fixture(scope="module")
def images():
    """Whole numbers in a square: a bound (continuous models), an exact number and a failure."""
    rng = np.random.default_rng(0)
    rate = np.where(rng.random((90, 1)) < 0.5, np.linspace(2, 3, 16), np.linspace(3, 2, 16))
    X = rng.poisson(rate).astype(float)
    models = {
        "Poissons": fe.Mixture(2, family=Poisson),
        "Gaussian": fe.GaussianDensity(),
        HOSTILE: fe.KMeans(2),
    }
    return fe.compare(models, X, cv=2, random_state=0)


@pytest.fixture(scope="module")
def rows():
    """A table with labels, a hostile name and a constant column."""
    rng = np.random.default_rng(1)
    y = np.arange(80) % 2
    X = pd.DataFrame({HOSTILE: rng.normal(2 * y, 1), "b": rng.normal(-2 * y, 1), "$c": rng.normal(size=80)})
    X["always"] = 7.0
    models = {"two": fe.GaussianMixture(2), "one": fe.GaussianDensity(), "factor": fe.PPCA(1)}
    return fe.compare(models, X, y, cv=2, random_state=0)


@pytest.fixture(scope="module")
def series():
    """Paths, as a comparison of sequences has them."""
    rng = np.random.default_rng(2)

    def fold(model, shift):
        return FoldResult(
            model,
            0,
            np.arange(3),
            rng.normal(shift, 1, 3),
            np.zeros(3),
            0.0,
            fe.Kind.EXACT,
            samples=rng.normal(shift, 1, (2, 20, 2)),
        )

    lines = [
        Standing("near", 1.0, 0.1, 0.5, 0.05, fe.Kind.EXACT, 0.0, 0.0, None, 1.0, 3, None),
        Standing("far", 2.0, 0.1, 1.0, 0.05, fe.Kind.UPPER, 1.0, 0.2, None, 1.0, 0, None),
    ]
    return SimpleNamespace(
        table=lambda: lines,
        results=[fold("near", 0.0), fold("far", -2.0)],
        labels=["near", "far"],
        support=fe.Support(["continuous"] * 2),
        dimension=2,
        n_rows=3,
        settings={"seed": 0, "splits": "cv=3"},
        examples=[rng.normal(size=(length, 2)) for length in (15, 20, 9)],
        example_rows=np.arange(3),
        feature_names=["u", "v"],
        notes=[],
        finished=False,
        y=None,
        predictions=list,
    )


@pytest.fixture(scope="module")
def people():
    """A table of every kind of column with holes."""
    rng = np.random.default_rng(4)
    first = rng.random(120) < 0.5
    frame = pd.DataFrame(
        {
            "id": np.arange(120) + 17,
            "class": np.where(first, "first", rng.choice(["second <b>", "third"], 120)),
            "age": np.where(rng.random(120) < 0.2, np.nan, rng.normal(40 + 20 * first, 5.0)),
            "kids": rng.poisson(1 + 2 * first),
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 400, 120), "D"),
            "alive": rng.random(120) < 0.3 + 0.4 * first,
        }
    )
    frame.loc[7, "age"] = 200.0
    words = {
        "mixture:family=by-column": fe.Mixture(family="by column"),
        "mixture:n_components=2,family=by-column": fe.Mixture(2, family="by column"),
    }
    return fe.compare(words, frame, cv=2, random_state=0), frame


class Page(html.parser.HTMLParser):
    """What a page is made of."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.ids, self.tables, self.scripts = [], [], {}, 0
        self._cell = self._caption = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags.append((tag, attrs))
        self.scripts += tag == "script"
        if "id" in attrs:
            self.ids.append(attrs["id"])
        if tag == "table":
            self._rows = []
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("th", "td", "caption"):
            self._cell = ""

    def handle_data(self, data):
        if self._cell is not None:
            self._cell += data

    def handle_endtag(self, tag):
        if tag in ("th", "td"):
            self._rows[-1].append(self._cell)
            self._cell = None
        elif tag == "caption":
            self._caption, self._cell = self._cell, None
        elif tag == "table":
            self.tables[self._caption] = self._rows


# a page of each board, since tests read the same ones
_WRITTEN = {}


def written(board, tmp_path, **options):
    key = id(board), tuple(options.items())
    if key not in _WRITTEN:
        path = tmp_path / "report.html"
        report.to_html(board, path, **options)
        text = path.read_text("utf-8")
        # the board too, so that nothing else has its number
        _WRITTEN[key] = Page(text), text, board
    return _WRITTEN[key][:2]


def number(text):
    """The first number of a cell."""
    return float(re.sub(r"[≤≥≈\s]", "", text.split("±")[0]).replace("−", "-"))


def test_the_table_has_the_numbers_of_the_board(images, tmp_path):
    page, _ = written(images, tmp_path)
    table = next(rows for caption, rows in page.tables.items() if caption.startswith("Held-out"))
    lines = {line.model: line for line in images.table()}
    for row in table[1:]:
        line = lines[row[0]]
        if line.error is None:
            assert abs(number(row[1]) - line.bits) <= line.bits_stderr / 10
            assert abs(number(row[2]) - line.bits_per_dimension) <= line.bits_per_dimension_stderr / 10
            assert row[5] == line.kind.value
            assert row[1].startswith("≤ ") == (line.kind is fe.Kind.LOWER)
            if line.kind is fe.Kind.LOWER:
                if line.tight:
                    assert row[6] == "< 0.001"
                    assert line.gap < 0.001
                else:
                    assert abs(number(row[6]) - line.gap) <= max(line.gap_stderr / 10, 5e-4)
            else:
                assert row[6] == "–"
        else:
            assert row[1] == f"failed: {line.error}"
    assert [row[0] for row in table[1:]] == list(lines)
    assert "bits per sample± standard error" in table[0]


def test_every_section_is_there_and_shows_pictures_and_tables(images, rows, tmp_path):
    for board in (images, rows):
        page, text = written(board, tmp_path)
        assert [name for name in page.ids if name in SECTIONS] == SECTIONS
        assert len(page.ids) == len(set(page.ids))
        parts = dict(zip(SECTIONS, text.split("<section ")[1:], strict=True))
        for name in ("differences", "learning", "latent", "calibration"):
            assert "<svg" in parts[name], name
            assert "<table" in parts[name], name
        assert all(attrs.get("aria-label") for tag, attrs in page.tags if tag == "svg")
        assert all(attrs.get("alt") for tag, attrs in page.tags if tag == "img")
        assert all(caption for caption in page.tables)
        data = "X" if board.y is None else "X, y"
        assert f"\nboard = fe.compare(models, {data}, cv=2, random_state=0)\n" in parts["settings"]
        assert len(text) < 1_000_000


def test_whole_numbers_in_a_square_are_shown_as_images(images, rows, tmp_path):
    page, text = written(images, tmp_path)
    pictures = [attrs["alt"] for tag, attrs in page.tags if tag == "img"]
    assert {"Rows of the data as images", "Draws of Poissons as images"} <= set(pictures)
    # columns of an image are no pictures of their own, which both sections about columns say
    assert text.count("Rows are shown as a whole, below.") == 2
    page, _ = written(rows, tmp_path)
    assert "img" not in [tag for tag, _ in page.tags]
    page, _ = written(rows, tmp_path, image_shape=(2, 2))
    assert "img" in [tag for tag, _ in page.tags]


def test_rows_where_the_order_turns_are_those_with_the_largest_differences(rows, tmp_path):
    page, _ = written(rows, tmp_path)
    best, second = (line.model for line in rows.table()[:2])
    nats = {}
    for result in rows.results:
        nats.setdefault(result.model, np.full(80, np.nan))[result.rows] = result.nats
    gap = (nats[best] - nats[second]) / np.log(2)
    table = page.tables[f"Rows that {best} explains better than {second}, the largest first"]
    assert [int(row[0]) for row in table[1:]] == np.argsort(-gap)[: len(table) - 1].tolist()
    assert number(table[1][3]) == pytest.approx(gap.max(), abs=0.005)
    X = rows.examples[[int(row[0]) for row in table[1:]]]
    shown = np.array([[number(cell) for cell in row[4:]] for row in table[1:]])
    np.testing.assert_allclose(shown, X[:, :3], rtol=1e-3)
    won = page.tables["On how many rows each model is the best of all"]
    assert sum(number(row[1]) for row in won[1:]) == 80


def test_ranks_of_a_right_model_are_called_wrong_once_in_twenty():
    from freeenergy.evaluation import pit_ranks
    from freeenergy.report._pictures import rank_test

    rng = np.random.default_rng(0)
    found = []
    for seed in range(400):
        ranks = pit_ranks(rng.normal(size=300), rng.normal(size=200), seed=seed)
        found.append(rank_test(ranks, 200)[1])
    assert abs(np.mean(np.array(found) < 0.05) - 0.05) < 4 * np.sqrt(0.05 * 0.95 / 400)


def test_series_are_shown_as_paths_and_what_is_not_there_is_said(series, tmp_path):
    page, text = written(series, tmp_path)
    # what says nothing of series is not there
    assert [name for name in page.ids if name in SECTIONS] == OF_SERIES
    assert "2 models · 3 series · 2 dimensions" in text
    some = SimpleNamespace(**{**vars(series), "n_rows": 11})
    assert "The columns, of 44 steps of 3 of 11 series" in written(some, tmp_path)[0].tables
    table = page.tables["Draws against the data"]
    data = np.concatenate([one[:, 1] for one in series.examples])
    assert table[2][:2] == ["near", "v"]
    assert number(table[2][2]) == pytest.approx(data.mean(), rel=1e-2)
    for sentence in (
        "No model of this comparison learns by iteration.",
        "No model of this comparison has a hidden part to show.",
        "No model of this comparison has ranks of its evidence.",
        "the comparison was stopped before its end",
        "which of the two is better cannot be known",
    ):
        assert sentence in text


@pytest.fixture(scope="module")
def regimes():
    """Series that were fitted: states, parts of a sum, and rows."""
    rng = np.random.default_rng(3)
    state = np.cumsum(rng.random((6, 40)) < 0.08, axis=1) % 2
    X = rng.normal(6.0 * state[..., None], 1.0, (6, 40, 1))
    X[0, 10:13] = np.nan
    models = {
        HOSTILE: fe.HMM(2),
        "level": fe.StructuralTimeSeries(max_iter=20, tol=0.1),
        "system": fe.LinearGaussianSSM(1, max_iter=5, tol=1.0),
        "rows": fe.GaussianMixture(2),
    }
    return fe.compare(models, X, cv=2, random_state=0)


def test_pictures_are_of_the_fold_that_has_them(series, tmp_path):
    rng = np.random.default_rng(5)
    bare, drawn = (r for r in series.results)
    drawn = dataclasses.replace(
        drawn,
        model="near",
        fold=1,
        pit=rng.random(60),
        pit_draws=500,
        parts={"series": rng.normal(size=(9, 2)), "probabilities": np.full((9, 2), 0.5)},
    )
    board = SimpleNamespace(**{**vars(series), "results": [bare, drawn], "finished": True})
    page, _ = written(board, tmp_path)
    assert page.tables["Hidden parts"][1][:3] == ["near", "states", "2"]
    row = page.tables["Calibration of the evidence"][1]
    distance = stats.kstest(drawn.pit, "uniform").statistic
    assert number(row[3]) == pytest.approx(stats.kstwo.sf(distance, round(60 * 500 / 560)), abs=6e-4)


@pytest.mark.slow
def test_series_have_hidden_states_and_ranks(regimes, tmp_path):
    page, text = written(regimes, tmp_path)
    sections = dict(zip(OF_SERIES, text.split("<section ")[1:], strict=True))
    hidden = {row[0]: row[1:] for row in page.tables["Hidden parts"][1:]}
    assert [hidden[name][:3] for name in (HOSTILE, "level", "system", "rows")] == [
        ["states", "2", "40"],
        ["parts of the sum", "1", "40"],
        ["coordinates", "1", "40"],
        ["states", "2", "40"],
    ]
    assert number(hidden[HOSTILE][3].rstrip(" %")) > 90
    assert sections["latent"].count("<svg") == sections["calibration"].count("<svg") == 4
    assert "held-out steps" in sections["calibration"]
    ranks = {row[0]: row for row in page.tables["Calibration of the evidence"][1:]}
    held = sum(np.isfinite(regimes._problem.series[i]).sum() for i in regimes.results[0].rows)
    assert int(ranks[HOSTILE][1]) == held
    pit = next(r.pit for r in regimes.results if r.model == HOSTILE)
    assert number(ranks[HOSTILE][2]) == pytest.approx(stats.kstest(pit, "uniform").statistic, abs=5e-4)
    assert len(text) < 1_000_000


def test_panels_are_told_by_their_names_with_their_inputs_and_hidden_parts(tmp_path):
    rng = np.random.default_rng(6)
    firms = [f"The company with the long name of number {i} & sons" for i in range(4)]
    days = pd.date_range("2024-02-01", periods=12)
    frame = pd.DataFrame(
        {"firm": np.repeat(firms, 12), "day": list(days) * 4, "price": rng.normal(size=48)}
    )
    frame["sales of the firm"] = 3 * frame["price"] + rng.normal(0, 0.3, 48)
    panel = fe.series(frame, time="day", series="firm", inputs=["price"])
    models = {"system": fe.LinearGaussianSSM(1, max_iter=3, tol=10.0), "rows": fe.GaussianDensity()}
    board = fe.compare(models, panel, cv=2, random_state=0)
    assert (board.series_names, board.input_names) == (firms, ["price"])
    page, text = written(board, tmp_path)
    hidden = {row[0]: row[1:4] for row in page.tables["Hidden parts"][1:]}
    assert hidden == {"system": ["coordinates", "1", "12"]}
    fold = next(r for r in board.results if r.model == "system" and r.parts)
    shown, train = int(fold.rows[0]), np.setdiff1d(np.arange(4), fold.rows)
    assert f"The series {firms[shown].replace('&', '&amp;')}, which the model was not fitted to" in text
    # the hidden part is that of the model given the inputs of this very series
    X, U = (frame[[name]].to_numpy().reshape(4, 12, 1) for name in ("sales of the firm", "price"))
    seeded = clone(board.models["system"]).set_params(random_state=derived_seed(0, "system", fold.fold))
    smoothed = seeded.fit(list(X[train]), inputs=list(U[train])).smooth(X[shown], inputs=U[shown])
    np.testing.assert_allclose(fold.parts["mean"], smoothed.mean, rtol=1e-9)
    wins = [rows for caption, rows in page.tables.items() if caption.startswith("Series that")]
    assert {row[0] for rows in wins for row in rows[1:]} <= set(firms)
    assert sum(len(rows) - 1 for rows in wins) == 4
    for words in (
        "Known beside each step: price.",
        "Steps from 2024-02-01 to 2024-02-12.",
        "on the same series",
    ):
        assert words in text
    assert "X = fe.series(frame, time=&#x27;day&#x27;, series=&#x27;firm&#x27;, columns=" in text


@pytest.mark.parametrize(
    ("times", "told"),
    [
        (pd.date_range("2024-02-28", periods=12), ["2024-02-28", "2024-02-29", "2024-03-01"]),
        (1950 + np.arange(12), ["1950", "1951", "1952"]),
    ],
)
def test_hidden_parts_stand_over_the_times_of_the_steps(times, told, monkeypatch, tmp_path):
    rng = np.random.default_rng(6)
    frame = pd.DataFrame({"firm": np.repeat(list("abcd"), 12), "when": list(times) * 4})
    frame["price"], frame["sales"] = rng.normal(size=(2, 48))
    panel = fe.series(frame, time="when", series="firm", inputs=["price"])
    board = fe.compare(
        {"system": fe.LinearGaussianSSM(1, max_iter=3, tol=10.0)}, panel, cv=2, random_state=0
    )
    below, drawn = [], plots.smoothed
    monkeypatch.setattr(plots, "smoothed", lambda *a, dates: below.append(dates) or drawn(*a, dates=dates))
    written(board, tmp_path)
    assert [dates[:3] for dates in below] == [told]


def test_steps_of_one_series_are_told_by_their_dates(series, tmp_path):
    rng = np.random.default_rng(7)
    bits = [dataclasses.replace(r, rows=np.arange(3, 6), nats=rng.normal(size=3)) for r in series.results]
    days = np.datetime64("2024-02-27", "us") + np.arange(6) * np.timedelta64(1, "D")
    alone = {"results": bits, "examples": series.examples[:1], "n_rows": 6, "times": [days]}
    page, _ = written(SimpleNamespace(**{**vars(series), **alone}), tmp_path)
    wins = [rows for caption, rows in page.tables.items() if caption.startswith("Steps that")]
    assert {row[0] for rows in wins for row in rows[1:]} == {"2024-03-01", "2024-03-02", "2024-03-03"}


def test_long_words_of_tables_wrap_in_their_cells(tmp_path):
    css = (Path(report.__file__).parent / "report.css").read_text()
    assert re.search(r"td\.long \{[^}]*white-space: normal", css)
    # one cell of the first row, and one of a row that has no others, say nothing of a heading
    rows = [
        [Cell("x"), NOTHING],
        [Cell("y"), word_cell("a long label of many words which would take a line of the page")],
        [Cell("failed", span=2)],
    ]
    page = Page(table_of("t", [("a", ""), ("b", "")], rows))
    assert ("th", {"scope": "col", "class": "text"}) in page.tags
    assert [attrs.get("class") for tag, attrs in page.tags if tag == "td"][:2] == [None, "text long"]
    assert word_cell("lower bound").css == "text"


def test_parts_of_models_are_shown_with_their_shares(images, rows, tmp_path):
    page, text = written(rows, tmp_path)
    section = dict(zip(SECTIONS, text.split("<section ")[1:], strict=True))["parts"]
    assert section.count("<svg") == 2
    shares = {row[0]: row[1:] for row in page.tables["Parts of the models"][1:]}
    assert shares["two"][:2] == ["components", "2"]
    weights = next(r for r in rows.results if r.model == "two").parts["weights"]
    assert number(shares["two"][2].rstrip(" %")) == pytest.approx(100 * weights.max(), abs=0.05)
    assert shares["factor"][:2] == ["factors", "1"]
    assert "always" not in section  # a constant column
    page, _ = written(images, tmp_path)
    alts = [attrs["alt"] for tag, attrs in page.tags if tag == "img"]
    assert "Means and weights of the components of Poissons." in alts


def test_columns_are_shown_in_the_words_of_the_user(people, tmp_path):
    board, frame = people
    page, text = written(board, tmp_path)
    sections = dict(zip(SECTIONS, text.split("<section ")[1:], strict=True))
    schema = fe.Schema.recognise(frame)
    table = page.tables["The columns"]
    assert [row[:2] for row in table[1:]] == [[f.name, f.kind.value] for f in schema.fields]
    assert table[3][3] == f"{100 * frame['age'].isna().mean():.1f} %"
    assert "age  " in sections["columns"]  # the only column with holes, in the picture
    for word in ("first", "third", "second &lt;b&gt;", "False", "2020-"):
        assert word in sections["distributions"]
    assert sections["distributions"].count("<svg") == 5
    gaps = next(rows for caption, rows in page.tables.items() if caption.startswith("How far the draws"))
    assert gaps[0] == ["column", *(board_name(line.model) for line in board.table())]
    assert [row[0] for row in gaps[1:]] == ["class", "age", "kids", "since", "alive"]
    draws = next(r.samples for r in board.results if r.model == board.table()[0].model)
    codes = schema.encode(frame)
    share = [abs(np.mean(codes[:, 0] == k) - np.mean(draws[:, 0] == k)) for k in range(3)]
    assert number(gaps[1][1]) == pytest.approx(sum(share) / 2, abs=6e-4)
    known = ~np.isnan(codes[:, 1])
    assert number(gaps[2][1]) == pytest.approx(
        stats.ks_2samp(codes[known, 1], draws[:, 1]).statistic, abs=6e-4
    )
    together = page.tables["Association between columns, draws against data"]
    assert len(together) == 3
    # what the least likely row has that does not fit, and rows in labels and dates
    expects = next(rows for caption, rows in page.tables.items() if caption.endswith("expects least"))
    if 7 in next(r for r in board.results if r.unlikely).rows:
        assert expects[1][0] == "7"
        assert expects[1][2].startswith("age = 200")
    cases = next(rows for caption, rows in page.tables.items() if caption.startswith("Rows that "))
    labels = cases[0][4:]
    assert [label.removesuffix("value") for label in labels] == ["class", "age", "kids", "since", "alive"]
    row = frame.iloc[int(cases[1][0])]
    assert cases[1][4] == row["class"]
    assert cases[1][7] == str(row["since"].date())
    assert cases[1][8] == str(row["alive"])


def board_name(label):
    return "mixture 2" if "n_components" in label else "mixture"


def test_short_names_have_their_options_below(people, tmp_path):
    board, _ = people
    page, text = written(board, tmp_path)
    table = page.tables["The models with their options"]
    assert sorted(row[0] for row in table[1:]) == ["mixture", "mixture 2"]
    assert {row[1] for row in table[1:]} == set(board.labels)
    headline = text[text.index("<header") : text.index("</header>")]
    assert f">{board_name(board.table()[0].model)}</span></b> explains" in headline


def test_a_board_of_failures_says_so(series, tmp_path):
    nan = float("nan")
    failed = Standing("none", nan, nan, nan, nan, fe.Kind.EXACT, nan, nan, None, nan, 0, "It has no rows.")
    board = SimpleNamespace(**{**vars(series), "table": lambda: [failed], "results": []})
    page, text = written(board, tmp_path)
    assert "No model could be fitted" in text
    assert "There are no two models to compare." in text
    assert "No model of this comparison can draw samples." in text
    assert page.tables["Held-out code length, fewer bits are better"][1] == [
        "none",
        "failed: It has no rows.",
    ]


def test_equal_and_impossible_models_are_said_to_be_so(series, tmp_path):
    inf, nan = float("inf"), float("nan")
    lines = [
        Standing("near", 1.0, 0.1, 0.5, 0.05, fe.Kind.EXACT, 0.0, 0.0, None, 1.0, 3, None),
        Standing("twin", 1.0, 0.1, 0.5, 0.05, fe.Kind.EXACT, 0.0, 0.0, 0.5, 1.0, 3, None),
        Standing("far", inf, nan, inf, nan, fe.Kind.EXACT, inf, nan, 1.0, 1.0, 3, None),
    ]
    board = SimpleNamespace(**{**vars(series), "table": lambda: lines})
    page, text = written(board, tmp_path)
    assert "<b>twin</b> has the same bits on every row." in text
    first = page.tables["Held-out code length, fewer bits are better"]
    second = next(rows for caption, rows in page.tables.items() if caption.startswith("Bits per sample"))
    assert first[3][:5] == ["far", "∞", "∞", "∞", "> 99.9 %"]
    assert second[2][:4] == ["far", "∞", "–", "> 99.9 %"]


def test_an_order_that_is_not_settled_is_not_called_a_tie(series, tmp_path):
    chance = stats.t.cdf(0.4 / 0.3, 30)
    lines = [
        Standing("near", 1.0, 0.1, 0.5, 0.05, fe.Kind.EXACT, 0.0, 0.0, None, 1.0, 3, None),
        Standing("next", 1.4, 0.1, 0.7, 0.05, fe.Kind.EXACT, 0.4, 0.3, chance, 1.0, 3, None),
    ]
    _, text = written(SimpleNamespace(**{**vars(series), "table": lambda: lines}), tmp_path)
    assert (
        "<b>next</b> needs 0.40 ± 0.30 bits more. The order of the two is not settled: the chance that "
        f"this order is real is {100 * chance:.1f} %, and with 95 % the difference is between −0.19 and "
        "0.99 bits."
    ) in text
    assert "equal" not in text[: text.index("<main>")]


def test_commands_for_a_terminal_are_shown_and_brackets_stay(tmp_path):
    label, name = "structural([trend,seasonal(12)])\x1b[31m", "a\x9b[2J"
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(80, 4)), columns=["b", "c", "d", name])
    models = {label: fe.GaussianDensity(), "[red]other[/red]": fe.KMeans(2)}
    board = fe.compare(models, X, cv=2, random_state=0)
    _, page = written(board, tmp_path)
    for text in (str(board), page):
        assert "\x1b" not in text
        assert "\x9b" not in text
    assert "│ structural([trend,seasonal(12)])\\x1b[31m │" in str(board)
    assert "│ [red]other[/red]" in str(board)
    assert "[red]other[/red]: KMeans is no density" in str(board)
    assert "a\\x9b[2J" in page


def test_what_a_picture_leaves_out_is_said(rows, images, tmp_path):
    _, text = written(rows, tmp_path)
    draws = next(r.samples for r in rows.results if r.model == "one")
    X = np.asarray(rows.examples, float)
    margin = 0.25 * np.ptp(X, axis=0)
    shown = np.flatnonzero(np.ptp(X, axis=0) > 0)
    inside = (draws >= X.min(axis=0) - margin) & (draws <= X.max(axis=0) + margin)
    outside = np.sum(~inside[:, shown].all(axis=1))
    assert outside == 0 or f"{outside} of {len(draws)} draws lie outside" in text
    assert f"points: {min(len(X), 100)} of {len(X)} and 100 of {len(draws)} rows" in text
    _, text = written(images, tmp_path)
    assert f"<b>data</b>, 30 of {len(images.examples)} rows" in text
    draws = next(r.samples for r in images.results if r.model == "Poissons")[:30]
    limits = np.min(images.examples), np.max(images.examples)
    beyond = 100 * np.mean((draws < limits[0]) | (draws > limits[1]))
    assert beyond == 0 or f"{beyond:.1f} % of the pixels are beyond the scale of the data" in text


def test_words_of_the_user_stay_words(images, rows, tmp_path):
    for board in (images, rows):
        page, text = written(board, tmp_path)
        assert page.scripts == 1
        assert "&lt;script&gt;" in text
        assert HOSTILE not in text
    assert HOSTILE not in report.table_html(images)
    shown = images._repr_html_()
    assert shown == report.notebook_html(images)
    assert report.table_html(images) in shown
    assert all(html.escape(note) in shown for note in images.notes)
    assert HOSTILE not in shown


def test_nothing_is_fetched_and_nothing_half_written_is_left(images, tmp_path, monkeypatch):
    report.to_html(images, tmp_path / "report.html")
    page = Page((tmp_path / "report.html").read_text("utf-8"))
    for tag, attrs in page.tags:
        for name in ("src", "href", "xlink:href"):
            assert attrs.get(name, "#").startswith(("#", "data:")), (tag, attrs)
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]

    def full(*_):
        raise OSError("No space left on device")

    before = (tmp_path / "report.html").read_text("utf-8")
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        report.to_html(images, tmp_path / "report.html")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert (tmp_path / "report.html").read_text("utf-8") == before


# ---------------------------------------------------------------------------------------------
# in a browser
# ---------------------------------------------------------------------------------------------

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture
def browser(tmp_path_factory):
    """Chromium with a folder of its own; tests are skipped where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no Chromium is installed")
    with playwright.sync_playwright() as play:
        folder = tmp_path_factory.mktemp("browser")
        context = play.chromium.launch_persistent_context(
            folder, executable_path=program, headless=True, args=FLAGS
        )
        yield context
        context.close()


def opened(browser, path, complaints, width, scheme):
    page = browser.new_page()
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda r: complaints.append(r.url) if r.url.startswith("http") else None)
    page.on("requestfailed", lambda request: complaints.append(request.url))
    page.goto(path.as_uri())
    return page


def test_the_report_in_chromium(images, rows, browser, tmp_path):
    looks_well([images, rows], browser, tmp_path)


@pytest.mark.slow
def test_the_report_of_series_in_chromium(regimes, browser, tmp_path):
    looks_well([regimes], browser, tmp_path)


def looks_well(boards, browser, tmp_path):
    complaints = []
    for number_of, board in enumerate(boards):
        path = tmp_path / f"{number_of}.html"
        report.to_html(board, path)
        grounds = {}
        for width, scheme in ((1280, "light"), (390, "light"), (390, "dark")):
            page = opened(browser, path, complaints, width, scheme)
            of_rows = not isinstance(board.examples, list)
            for name in SECTIONS if of_rows else OF_SERIES:
                assert page.locator(f"#{name} h2").is_visible(), name
            assert page.title() == "Which model explains the data?"
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            # nothing sticks out but what scrolls in a box of its own
            outside = page.evaluate(
                """() => [...document.querySelectorAll("body *")].filter(
                    (e) => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".scroll, pre")
                ).map((e) => e.outerHTML.slice(0, 80))"""
            )
            assert outside == []
            assert page.evaluate("[...document.images].every((i) => i.naturalWidth > 0)")
            colours = (
                "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
            )
            line = (
                """getComputedStyle(document.querySelector("#differences svg path[style*='--c']")).stroke"""
            )
            grounds[width, scheme] = (*page.evaluate(colours), page.evaluate(line))
            page.close()
        assert grounds[1280, "light"] == grounds[390, "light"]
        assert all(a != b for a, b in zip(grounds[390, "light"], grounds[390, "dark"], strict=True))
    assert complaints == []


def test_a_click_sorts_the_table_in_chromium(rows, browser, tmp_path):
    report.to_html(rows, tmp_path / "report.html")
    complaints = []
    page = opened(browser, tmp_path / "report.html", complaints, 1280, "light")

    def names():
        return page.locator("#table tbody th").all_inner_texts()

    lines = rows.table()
    assert names() == [line.model for line in lines]
    heading = page.locator("#table thead button").nth(8)
    heading.click()
    assert names() == [line.model for line in sorted(lines, key=lambda line: line.parameters)]
    heading.click()
    assert names() == [line.model for line in sorted(lines, key=lambda line: -line.parameters)]
    assert page.locator("#table thead th").nth(8).get_attribute("aria-sort") == "descending"
    assert complaints == []


def test_the_lead_over_a_bound_tells_what_the_bound_misses():
    from freeenergy.report._numbers import _lead_over

    best = Standing("near", 1.0, 0.1, 0.5, 0.05, fe.Kind.EXACT, 0.0, 0.0, None, 1.0, 3, None)
    bound = Standing("far", 2.0, 0.1, 1.0, 0.05, fe.Kind.LOWER, 1.0, 0.2, 0.998, 1.0, 3, None, 0.25, 0.02)
    told = _lead_over(best, bound, "far")
    assert "the chance that this order is real is 99.8 %" in told
    assert "after 0.250 ± 0.020 bits that its bound is estimated to miss" in told
