"""Pictures of predictions, and the sections of the report about them."""

import itertools
import re

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from scipy import stats

import freeenergy as fe
from freeenergy import plots
from freeenergy.evaluation import reliability

RNG = np.random.default_rng(0)
TOWN = np.array(["Bern", "Basel", "Chur"])[RNG.integers(3, size=120)]
FRAME = pd.DataFrame({"size": RNG.normal(5.0, 1.0, 120), "noise": RNG.normal(size=120), "town": TOWN})
FRAME.loc[::7, "size"] = np.nan
PRICE = pd.Series(
    2 * FRAME["size"].fillna(5.0) + 3.0 * (TOWN == "Chur") + RNG.normal(0, 0.3, 120), name="price <i>"
)


@pytest.fixture(scope="module")
def board():
    models = {"line": fe.LinearRegression(), "none": fe.BaseRate()}
    return fe.compare(models, FRAME, PRICE, cv=3, random_state=0)


def _text(board, tmp_path):
    board.to_html(tmp_path / "report.html")
    return (tmp_path / "report.html").read_text("utf-8")


def _sections(text):
    return {re.match(r'id="(\w+)"', part)[1]: part for part in text.split("<section ")[1:]}


def test_the_report_of_numbers(board, tmp_path):
    text = _text(board, tmp_path)
    sections = _sections(text)
    assert {"table", "predictions", "effects", "wins"} <= set(sections)
    # what only densities of rows have
    assert not {"samples", "latent", "parts", "calibration", "unlikely"} & set(sections)
    assert set(re.findall(r'href="#(\w+)"', text)) >= set(sections)
    for name in ("RMSE", "MAE", "pinball", "in 90%"):
        assert name in sections["table"]
    # residuals, ranks and coverage of two models
    assert sections["predictions"].count("<svg") == 6
    # the importance, and a curve for each column
    assert sections["effects"].count("<svg") == 4
    assert "Chur" in sections["effects"]
    assert "price <i>" not in text
    assert "price &lt;i&gt;" in text
    line = board.predictions()[0].measures["RMSE"]
    assert f'data-value="{line.value}"' in sections["table"]
    lost = re.findall(r'<tr><th scope="row">(\w+)</th>', sections["effects"])
    assert set(lost[:2]) == {"size", "town"}


def test_the_report_of_labels_has_the_measures(tmp_path):
    X = RNG.normal(size=(60, 2))
    board = fe.compare([fe.DiscriminantAnalysis()], X, X[:, 0] > 0, cv=2, random_state=0)
    sections = _sections(_text(board, tmp_path))
    assert "log loss" in sections["table"]
    assert "AUC" in sections["table"]
    assert sections["predictions"].count("<svg") == 1
    assert "How reliable probabilities are" in sections["predictions"]
    both = [np.concatenate([r.predicted[i] for r in board.results]) for i in (0, 2)]
    assert both[0].shape == (60,)
    error = reliability(both[1], both[0]).error
    assert f"{error:.3f}" in sections["predictions"]
    # what it looks at: the first column, the more of it the more of the second label
    assert sections["effects"].count("<svg") == 3
    assert "mean probability of labels" in sections["effects"]
    found = next(r.effects for r in board.results if r.effects)
    lost, error = found["importance"][0]
    assert lost > 4 * error
    assert found["columns"][0] == 0
    shares = found["dependence"][0]
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    assert (np.diff(shares[:, 1]) > 0).all()
    assert shares[0, 1] < 0.2 < 0.8 < shares[-1, 1]


def test_residuals_and_their_means():
    mean = np.linspace(0.0, 10.0, 400)
    truth = mean + np.where(mean > 5, 1.0, -1.0)
    axes = plots.residuals(truth, mean, name="price")
    np.testing.assert_allclose(axes.lines[0].get_ydata(), truth - mean)
    trend = axes.containers[0].lines[0]
    np.testing.assert_allclose(np.asarray(trend.get_ydata(orig=False), float), [-1.0] * 4 + [1.0] * 4)
    assert axes.get_xlabel() == "predicted price"
    with pytest.raises(ValueError, match="must have one axis and the same length"):
        plots.residuals(truth, mean[:5])
    own = Figure().subplots()
    assert plots.residuals(truth, mean, own) is own


def test_coverage_of_right_and_of_narrow_laws():
    y = RNG.normal(size=2000)
    right = plots.coverage(stats.norm.cdf(y)).lines[-1]
    np.testing.assert_allclose(right.get_ydata(), right.get_xdata(), atol=0.05)
    narrow = plots.coverage(stats.norm(0, 0.5).cdf(y)).lines[-1]
    level = narrow.get_xdata()
    # an interval of a normal that is half as wide
    np.testing.assert_allclose(
        narrow.get_ydata(), 2 * stats.norm.cdf(0.5 * stats.norm.ppf(0.5 + level / 2)) - 1, atol=0.05
    )


def test_importance_and_dependence():
    axes = plots.importance([0.1, 0.5, -0.01], [0.01, 0.1, 0.01], names=["a", "b", "c"], most=2)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["b", "a"]
    assert [bar.get_width() for bar in axes.patches] == [0.5, 0.1]
    with pytest.raises(ValueError, match=r"The names of every column in importance must be 3. Got 1"):
        plots.importance([0.1, 0.5, 0.2], names=["a"])
    curve = np.array([[1.0, 0.5, 1.5], [3.0, 2.0, 4.0]])
    axes = plots.dependence(
        [0.0, 1.0], curve, name="town", answer="price", told=lambda code: ["Bern", "Chur"][int(code)]
    )
    assert [label.get_text() for label in axes.get_xticklabels()] == ["Bern", "Chur"]
    np.testing.assert_allclose(axes.containers[0].lines[0].get_ydata(), [1.0, 3.0])


def test_ticks_of_a_crowded_scale_do_not_overlap():
    near = dict.fromkeys(["a", "b", "c"], fe.LinearRegression()) | {
        "far": fe.BaseRate(),
        "line": fe.Ridge(1e-6),
    }
    crowded = fe.compare(near, FRAME, PRICE, cv=3, random_state=0)
    axes = plots.comparison(crowded)
    assert axes.get_xscale() == "symlog"
    figure = axes.get_figure()
    figure.canvas.draw()
    low, high = axes.get_xlim()
    boxes = [
        label.get_window_extent()
        for label, place in zip(axes.get_xticklabels(), axes.get_xticks(), strict=True)
        if low <= place <= high
    ]
    assert 2 <= len(boxes) <= 4
    assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))
