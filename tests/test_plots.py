"""Pictures show the numbers they are given."""

from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy import stats

import freeenergy as fe
from freeenergy import plots


def line(model, difference, stderr, kind=fe.Kind.EXACT, error=None):
    return SimpleNamespace(
        model=model, difference=difference, difference_stderr=stderr, kind=kind, error=error
    )


def board(*lines):
    return SimpleNamespace(table=lambda: list(lines))


def dots(axes):
    return [float(c.lines[0].get_xdata()[0]) for c in axes.containers]


def drawn(axes):
    """Whether the figure can be drawn without a warning."""
    axes.figure.draw_without_rendering()
    return True


def test_comparison_draws_differences_intervals_and_the_side_of_a_bound():
    failed = line("failed", np.nan, np.nan, error="It has no rows.")
    lines = (line("best", 0.0, 0.0), line("$a$", 2.0, 0.5), line("bound", 3.0, 1.0, fe.Kind.LOWER), failed)
    axes = plots.comparison(board(*lines))
    assert dots(axes) == [0, 2, 3]
    ends = axes.containers[1].lines[2][0].get_segments()[0][:, 0]
    np.testing.assert_allclose(ends, [2 - 1.96 * 0.5, 2 + 1.96 * 0.5])
    (arrow,) = axes.texts
    assert arrow.xyann[0] < 0  # to fewer bits
    assert arrow.xy[0] == 3
    assert [t.get_text() for t in axes.get_yticklabels()] == ["best", r"\$a\$", "bound"]
    assert axes.get_xscale() == "linear"
    assert drawn(axes)


def test_comparison_of_one_model_far_off_keeps_the_others_apart():
    axes = plots.comparison(
        board(line("a", 0.0, 0.0), line("b", 1.0, 0.1), line("c", 2.0, 0.1), line("d", 1e6, 10.0))
    )
    assert axes.get_xscale() == "symlog"
    pixels = axes.transData.transform([(0, 0), (1, 0), (2, 0), (1e6, 0)])[:, 0]
    assert np.diff(pixels).min() > 0.04 * np.ptp(pixels)


def test_comparison_of_nothing_and_of_one():
    assert dots(plots.comparison(board())) == []
    assert dots(plots.comparison(board(line("a", 0.0, 0.0), line("never", np.inf, np.nan)))) == [0]
    assert dots(plots.comparison(board(line("alone", 0.0, np.nan)))) == [0]


def test_axes_that_are_passed_are_used():
    ax = Figure().subplots()
    assert plots.comparison(board(line("a", 0.0, 0.0)), ax) is ax
    assert plots.calibration(np.array([0.5]), ax) is ax


def test_learning_curves_are_in_bits_and_show_validation():
    history = {
        "objective": np.log(2) * np.array([3.0, 2.0]),
        "validation": np.log(2) * np.array([4.0, 3.5]),
    }
    axes = plots.learning_curves([history, {"objective": np.log(2) * np.arange(30.0, 0.0, -1)}])
    values = [curve.get_ydata() for curve in axes.lines]
    np.testing.assert_allclose(values[0], [3, 2])
    np.testing.assert_allclose(values[2], [4, 3.5])
    assert axes.get_xscale() == "log"
    assert [t.get_text() for t in axes.get_legend().get_texts()] == ["training", "validation"]
    single = plots.learning_curves([{"objective": np.array(1.0)}])
    assert single.lines[0].get_marker() == "o"


def test_telling_columns_depend_on_each_other():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 8))
    X[:, 6] = np.exp(X[:, 2])  # rank correlation one
    X[:, 4] = 3.0
    X[::7, 2] = np.nan
    assert plots.telling_columns(X, 2).tolist() == [2, 6]
    assert 4 not in plots.telling_columns(X, 7)
    assert plots.telling_columns(np.full((3, 2), 5.0)).tolist() == [0]


def test_pairs_draw_columns_against_each_other():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    X[3, 1] = np.nan
    names = ["a", "$b", "_a name that is much too long for the panel"]
    axes = plots.pairs(X, X[:10] + 1e9, names=names)
    assert axes.shape == (3, 3)
    np.testing.assert_array_equal(axes[2, 1].lines[0].get_xdata(), X[:, 1])
    np.testing.assert_array_equal(axes[2, 1].lines[0].get_ydata(), X[:, 2])
    assert not axes[0, 1].axison
    # far draws do not hide the data
    low, high = axes[2, 0].get_xlim()
    assert high - low == pytest.approx(1.5 * np.ptp(X[:, 0]))
    assert axes[2, 1].get_xlabel() == r"\$b"
    assert drawn(axes[0, 0])
    assert plots.pairs(np.ones((4, 1))).shape == (1, 1)


def test_mosaic_and_images_put_each_image_in_its_place():
    X = np.arange(5 * 6.0).reshape(5, 6)
    whole = plots.mosaic(X, (2, 3), columns=2)
    assert whole.shape == (8, 7)
    np.testing.assert_array_equal(whole[6:8, 0:3], X[4].reshape(2, 3))
    assert np.isnan(whole[2]).all()
    assert np.isnan(whole[6:, 4:]).all()
    axes = plots.images(X, (2, 3), columns=2, limits=(0, 10))
    shown = axes.images[0]
    np.testing.assert_array_equal(np.isnan(shown.get_array().filled(np.nan)), np.isnan(whole))
    assert shown.get_clim() == (0, 10)
    assert plots.images(X, (3, 2)).images[0].get_array().max() == 29


def test_paths_draw_one_feature_of_each_series():
    series = [np.arange(6.0).reshape(3, 2), np.ones((4, 2))]
    axes = plots.paths(series, np.zeros((2, 3, 2)), feature=1, labels=("seen", "$drawn"))
    assert [curve.get_ydata().tolist() for curve in axes.lines[:2]] == [[1, 3, 5], [1, 1, 1, 1]]
    assert len(axes.lines) == 4
    assert [t.get_text() for t in axes.get_legend().get_texts()] == ["seen", r"\$drawn"]
    assert plots.paths(series, labels=None).get_legend() is None


def test_latent_shows_coordinates_principal_components_or_ranks():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(50, 2))
    axes = plots.latent(z, np.arange(50) % 2)
    np.testing.assert_array_equal(axes.lines[1].get_xdata(), z[1::2, 0])
    wide = rng.normal(size=(50, 4)) * [10, 1, 0.1, 5]
    x = plots.latent(wide).lines[0].get_xdata()
    # the first principal component has the largest eigenvalue of the covariance
    assert np.var(x, ddof=1) == pytest.approx(np.linalg.eigvalsh(np.cov(wide.T)).max())
    one = plots.latent(z[:, 0]).lines[0]
    np.testing.assert_allclose(one.get_ydata(), stats.rankdata(z[:, 0]) / 50)
    bits = plots.latent(np.where(np.arange(50)[:, None] == 3, np.nan, z), z[:, 0])
    assert bits.collections[0].get_offsets().shape == (49, 2)
    assert drawn(bits)


def test_calibration_has_a_binomial_band():
    rng = np.random.default_rng(0)
    ranks = rng.uniform(size=400)
    axes = plots.calibration(ranks, bins=8)
    np.testing.assert_array_equal(axes.patches[-1].get_data().values, np.histogram(ranks, 8, (0, 1))[0])
    band = axes.patches[0]
    assert band.get_y() == stats.binom.ppf(0.025, 400, 1 / 8)
    assert band.get_y() + band.get_height() == stats.binom.ppf(0.975, 400, 1 / 8)


def test_the_band_of_ranks_among_draws_holds_19_bars_of_20():
    rng = np.random.default_rng(0)
    band = plots.calibration(rng.uniform(size=400), draws=99).patches[0]
    low, high = band.get_y(), band.get_y() + band.get_height()
    # rows between two neighbouring marks that cut 99 draws into ten parts
    inside = []
    for _ in range(2000):
        marks = np.sort(rng.uniform(size=99))
        inside.append(low <= np.sum(rng.uniform(size=400) < marks[9]) <= high)
    assert (
        abs(np.mean(inside) - 0.95) < 4 * np.sqrt(0.95 * 0.05 / 2000) + 0.01
    )  # whole numbers: a little more


def test_components_are_ellipses_of_standard_deviations():
    rng = np.random.default_rng(0)
    turn = np.array([[np.cos(0.5), -np.sin(0.5)], [np.sin(0.5), np.cos(0.5)]])
    X = rng.normal(size=(300, 2)) * [3.0, 0.5] @ turn.T + [4.0, -1.0]
    mixture = fe.GaussianMixture(1, random_state=0).fit(X)
    axes = plots.components(mixture, X, uncertainty=True)
    one, two, mean = axes.patches
    covariance = np.cov(X.T, bias=True)
    spread, directions = np.linalg.eigh(covariance)
    assert one.width == pytest.approx(2 * np.sqrt(spread[1]), rel=1e-3)
    assert two.height == pytest.approx(4 * np.sqrt(spread[0]), rel=1e-3)
    assert mean.width == pytest.approx(2 * np.sqrt(spread[1] * stats.chi2.ppf(0.95, 2) / 300), rel=1e-3)
    slope = directions[1, 1] / directions[0, 1]
    assert np.tan(np.radians(one.angle)) == pytest.approx(slope, rel=1e-3)
    np.testing.assert_allclose(one.center, X.mean(axis=0), rtol=1e-6)
    assert axes.texts[0].get_text() == "100%"
    assert drawn(plots.components(mixture))


def contrast(colour, ground):
    """Contrast of two colours, as the accessibility guidelines of the web define it."""

    def luminance(name):
        c = np.array(mpl.colors.to_rgb(name))
        return np.where(c <= 0.03928, c / 12.92, ((c + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]

    light, dark = sorted((luminance(colour), luminance(ground)))[::-1]
    return (light + 0.05) / (dark + 0.05)


def test_colours_can_be_seen_and_the_theme_leaves_nothing_behind():
    assert min(contrast(colour, "#ffffff") for colour in plots.PALETTE) > 3
    before = dict(mpl.rcParams)
    with plots.theme(dark=True):
        assert mpl.rcParams["text.color"] == plots.DARK_INK
    assert dict(mpl.rcParams) == before
    assert contrast(plots.INK, "#ffffff") > 7
    assert contrast(plots.DARK_INK, "#14171a") > 7
