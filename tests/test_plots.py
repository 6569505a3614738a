"""Pictures show the numbers they are given."""

import dataclasses
from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from scipy import stats

import freeenergy as fe
from freeenergy import plots
from freeenergy.shell import Column, Field


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


def test_pairs_say_how_many_draws_lie_outside_and_how_many_rows_are_drawn():
    rng = np.random.default_rng(5)
    X, other = rng.normal(size=(150, 3)), rng.normal(size=(120, 3))
    other[:7, 1] = 1e6
    other[3, 2] = np.nan
    low, high = X.min(axis=0) - 0.25 * np.ptp(X, axis=0), X.max(axis=0) + 0.25 * np.ptp(X, axis=0)
    outside = int(np.sum(~((other >= low) & (other <= high)).all(axis=1)))
    assert outside >= 7
    figure = plots.pairs(X, other)[0, 0].figure
    expected = f"points: 100 of 150 and 100 of 120 rows; {outside} of 120 draws lie outside"
    assert figure.get_supxlabel().replace("\n", " ") == expected
    assert plots.pairs(X[:50], X[:50])[0, 0].figure.get_supxlabel() == ""
    assert plots.latent(X, points=60).get_title() == "60 of 150 rows"
    assert plots.latent(X, points=150).get_title() == ""


def test_pairs_leave_no_gaps_between_whole_numbers():
    counts = np.arange(15.0)[:, None].repeat(2, axis=1)
    heights = plots.pairs(counts)[0, 0].patches[0].get_xy()[:, 1]
    # each number is there once: the bars of those that were seen are equally high
    assert len(np.unique(heights[heights > 0].round(12))) == 1


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


def test_curves_that_leap_do_not_hide_the_others():
    calm = np.linspace(3.0, 2.0, 30)
    leaping = calm.copy()
    leaping[2:4] = [900.0, 400.0]
    ax = plots.learning_curves([{"objective": calm}, {"objective": leaping}])
    assert 3.0 / np.log(2) < ax.get_ylim()[1] < 6.0
    assert ax.get_title(loc="right") == "2 of 60 steps above, up to 1.3e+03"
    ax = plots.learning_curves([{"objective": calm}])
    assert ax.get_title(loc="right") == ""


def test_long_labels_have_two_lines_and_the_room_for_them():
    words = (
        "farming, semi-skilled or unskilled worker",
        "managerial",
        "professional with an advanced degree",
    )
    field = Field("occupation of the husband as it was told at the interview", Column.CATEGORY, words)
    ax = plots.distribution([0, 1, 2], field=field)
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        "farming, semi-skilled\nor unskilled worker",
        "managerial",
        "professional with an\nadvanced degree",
    ]
    assert ax.get_title(loc="left") == "occupation of the husband as it was\ntold at the interview"
    many = dataclasses.replace(field, categories=tuple(f"the label with the number {i}" for i in range(9)))
    tall = plots.distribution([0, 1, 2], field=many)
    assert tall.figure.get_figheight() > ax.figure.get_figheight()


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


def corners(collection):
    """Left and right end of each rectangle or line of a collection."""
    return [tuple(path.vertices[:, 0][[0, 1, 2]].tolist()) for path in collection.get_paths()]


def edges(band, time):
    """Lower and upper edge of a band at a whole time."""
    vertices = band.get_paths()[0].vertices
    there = vertices[np.isclose(vertices[:, 0], time), 1]
    return there.min(), there.max()


def test_decoded_colours_each_stay_and_gives_states_rows_as_thick_as_their_probability():
    X = np.array([[1.0, 0.0], [np.nan, 0.0], [3.0, 0.0], [np.nan, 0.0], [5.0, 0.0]])
    p = np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.3, 0.7], [1.0, 0.0]])
    axes = plots.decoded(X, p, [0, 0, 1, 1, 0], names=["$a", "b"], states=["calm", "wild"])
    assert len(axes) == 3
    calm, wild = axes[0].collections
    assert [(c[0], c[-1]) for c in map(sorted, corners(calm))] == [(-0.5, 1.5), (3.5, 4.5)]
    assert [(c[0], c[-1]) for c in map(sorted, corners(wild))] == [(1.5, 3.5)]
    line, dots_ = axes[0].lines
    np.testing.assert_array_equal(line.get_ydata(), X[:, 0])
    np.testing.assert_array_equal(dots_.get_xdata(), [0, 2, 4])  # their neighbours are missing
    assert axes[0].get_title(loc="left") == r"\$a"
    rows = axes[-1].collections
    for state in range(2):
        for step in (0, 2):
            half = 0.42 * p[step, state]
            shape = rows[2 * state].get_paths()[0]
            inside = [
                shape.contains_point((step + 0.1, state + side * half)) for side in (-0.99, 0.99, 1.01)
            ]
            assert inside == [True, True, False]
    assert rows[1].get_segments()[1].tolist() == [
        [3.5, 0.0],
        [4.5, 0.0],
    ]  # the path, in the row of its state
    assert [t.get_text() for t in axes[-1].get_yticklabels()] == ["calm", "wild"]
    assert drawn(axes[0])


def test_decoded_of_many_states_marks_changes_and_shows_the_likeliest():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.full(30, 0.1), size=50)
    axes = plots.decoded(rng.normal(size=(50, 6)), p)
    assert len(axes) == 4  # three of six columns
    assert axes[-1].get_title(loc="left") == "20 of 30 states"
    path = p.argmax(axis=1)
    marks = axes[0].collections[0].get_segments()
    assert [m[0, 0] + 0.5 for m in marks] == (np.flatnonzero(np.diff(path)) + 1).tolist()
    least = np.argsort(p.sum(axis=0))[:10]
    shown = {t.get_text() for t in axes[-1].get_yticklabels()}
    assert not shown & {f"state {k}" for k in least}
    one = plots.decoded([1.0, 2.0], [[1.0], [1.0]], columns=[0])
    assert drawn(one[0])


def test_smoothed_has_bands_of_the_chance_that_was_asked_for():
    mean, std = np.arange(6.0).reshape(3, 2), np.full((3, 2), 2.0)
    axes = plots.smoothed(mean, std, mean + 0.5, level=0.5, names=["a name " * 9, "b"])
    half = 2.0 * stats.norm.ppf(0.75)
    assert edges(axes[1].collections[0], 1) == pytest.approx((3 - half, 3 + half))
    np.testing.assert_array_equal(axes[1].lines[1].get_ydata(), mean[:, 1] + 0.5)
    covariance = np.einsum("ti,ij->tij", std**2, np.eye(2))
    again = plots.smoothed(mean, covariance, level=0.5)
    assert edges(again[1].collections[0], 1) == pytest.approx((3 - half, 3 + half))
    assert len(plots.smoothed(np.zeros((4, 9)), np.ones((4, 9)))) == 6
    assert drawn(axes[0])


def test_forecast_goes_on_where_the_series_ends():
    X = np.column_stack([np.arange(10.0), 2 * np.arange(10.0)])
    ahead = tuple(np.full((3, 2), value) for value in (5.0, 4.0, 7.0))
    axes = plots.forecast(X, ahead, column=1, truth=X[:3], last=4, name="_demand")
    np.testing.assert_array_equal(axes.lines[0].get_xdata(), [6, 7, 8, 9])
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), [12, 14, 16, 18])
    np.testing.assert_array_equal(axes.lines[2].get_xdata(), [10, 11, 12])
    assert edges(axes.collections[0], 11) == (4, 7)
    np.testing.assert_array_equal(axes.lines[3].get_ydata(), [0, 2, 4])
    assert axes.get_ylabel() == "\u200b_demand"
    assert drawn(axes)


def test_decomposition_shows_every_part_with_its_band_also_after_the_end():
    X = np.arange(4.0)
    parts = {"Level": (np.arange(6.0), np.full(6, 0.5)), "Seasonal": (np.zeros(6), np.ones(6))}
    axes = plots.decomposition(X, parts, ([4.0, 5.0], [3.0, 3.0], [5.0, 7.0]), level=0.9)
    half = stats.norm.ppf(0.95)
    assert edges(axes[1].collections[0], 5) == pytest.approx((5 - 0.5 * half, 5 + 0.5 * half))
    assert edges(axes[2].collections[0], 0) == pytest.approx((-half, half))
    assert edges(axes[0].collections[0], 5) == (3, 7)
    assert all(ax.lines[-1].get_xdata()[0] == 3.5 for ax in axes)  # where the series ends
    assert len(plots.decomposition(X, {})) == 1
    assert drawn(axes[0])


def test_profiles_show_the_heaviest_first_and_the_columns_that_tell_components_apart():
    means = np.array([[0.0, 1.0, 5.0], [0.0, 2.0, -5.0]])
    covariances = np.stack([np.diag([1.0, 4.0, 9.0])] * 2)
    axes = plots.profiles(means, covariances, [0.25, 0.75], names=["same", "close", "apart"], most=2)
    bars, close, apart = axes
    assert [patch.get_width() for patch in bars.patches] == [0.75, 0.25]
    assert [t.get_text() for t in bars.texts] == ["75%", "25%"]
    assert [t.get_text() for t in bars.get_yticklabels()] == ["component 1", "component 0"]
    assert (close.get_xlabel(), apart.get_xlabel()) == ("close", "apart")
    first = apart.containers[0]
    assert first.lines[0].get_xdata()[0] == -5
    np.testing.assert_allclose(first.lines[2][0].get_segments()[0][:, 0], [-8, -2])
    long = plots.profiles(means, names=["a", "b", "total_phenols"])
    assert long[2].get_xlabel() == "total_\nphenols"
    assert drawn(plots.profiles(np.zeros((40, 1)))[0])


def test_loadings_are_bars_in_the_order_of_the_factor_that_moves_a_column_most():
    W = np.array([[0.2, -0.9, 0.1, 0.6], [0.8, 0.0, 0.3, -0.1]])
    axes = plots.loadings(2 * W, scale=np.full(4, 2.0), names=["a", "b", "c", "d" * 50])
    labels = [t.get_text() for t in axes[0].get_yticklabels()]
    assert labels == ["b", "d" * 35 + "…", "a", "c"]
    np.testing.assert_allclose([p.get_width() for p in axes[0].patches], [-0.9, 0.6, 0.2, 0.1])
    np.testing.assert_allclose([p.get_width() for p in axes[1].patches], [0.0, -0.1, 0.8, 0.3])
    signs = {mpl.colors.to_hex(p.get_facecolor()) for p in axes[0].patches[:2]}
    assert signs == {plots.PALETTE[0], plots.PALETTE[1]}
    many = plots.loadings(np.eye(9, 40) * np.arange(1, 10)[:, None])
    assert [ax.get_title() for ax in many] == [f"factor {k}" for k in range(3, 9)]
    assert many[0].figure.get_supxlabel() == "loading (6 of 9 factors, 24 of 40 columns)"
    assert drawn(many[0])
    assert drawn(plots.loadings([[0.0, 0.0]])[0])


def test_topics_have_their_most_probable_words():
    phi = np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]])
    axes = plots.topics(phi, ["sea", "sky", "land"], weights=[0.2, 0.8], words=2)
    assert [ax.get_title(loc="left") for ax in axes] == ["topic 1 (80%)", "topic 0 (20%)"]
    assert [t.get_text() for t in axes[0].get_yticklabels()] == ["land", "sky"]
    assert [p.get_width() for p in axes[0].patches] == [0.7, 0.2]
    many = plots.topics(np.full((30, 4), 0.25), words=9)
    assert len(many) == 12
    assert [t.get_text() for t in many[0].get_yticklabels()] == [f"word {w}" for w in range(4)]
    assert many[0].figure.get_supxlabel() == "probability of the word (12 of 30 topics)"
    assert drawn(many[0])


def test_atoms_are_in_the_order_of_what_they_do():
    C = np.array([[1.0, -2.0, 0.0, 0.0], [0.0, 0.0, 0.0, 10.0], [0.0, 0.0, 0.0, 0.0]])
    codes = np.array([[1.0, 0.0, 5.0], [-1.0, 0.1, 5.0]])
    picture = plots.atoms(C, (2, 2), codes).images[0]
    whole = picture.get_array().filled(np.nan)
    np.testing.assert_array_equal(whole[:, :2], [[0.5, -1], [0, 0]])
    np.testing.assert_array_equal(whole[:, 3:5], [[0, 0], [0, 1]])
    colours = picture.cmap([0.0, 0.5, 1.0])
    assert mpl.colors.to_hex(colours[0]) == plots.PALETTE[1]
    assert mpl.colors.to_hex(colours[2]) == plots.PALETTE[0]
    assert colours[1, 3] < 0.01  # nothing is transparent
    assert plots.atoms(C, (1, 4), most=1).images[0].get_array().shape == (1, 4)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: plots.decoded(np.zeros((3, 1)), np.ones((2, 1))),
            "The series, probabilities and path of decoded must have the same number of steps. "
            "Got 3, 2 and 2 instead.",
        ),
        (
            lambda: plots.decoded(np.zeros((2, 3, 1)), np.ones((3, 1))),
            "The 'X' of decoded must be one series, of shape (time, features).",
        ),
        (
            lambda: plots.decoded([1.0], [[1.0]], states=["a", "b"]),
            "The names of every state in decoded must be 1. Got 2 instead.",
        ),
        (
            lambda: plots.smoothed(np.zeros((3, 2)), np.ones((3, 1))),
            "The 'spread' of smoothed must have the shape (3, 2) of the means, or a covariance for each "
            "step. "
            "Got (3, 1) instead.",
        ),
        (
            lambda: plots.smoothed([0.0], [1.0], level=1.5),
            "The 'level' parameter of smoothed must be a float in the range (0, 1). Got 1.5 instead.",
        ),
        (
            lambda: plots.profiles(np.zeros((2, 2)), np.ones(2)),
            "The 'spread' of profiles must have the shape (2, 2) of the means, or a covariance for each "
            "component. Got (2,) instead.",
        ),
        (
            lambda: plots.loadings(np.zeros((1, 2, 3))),
            "The 'components' of loadings must have one or two axes. Got the shape (1, 2, 3) instead.",
        ),
        (
            lambda: plots.atoms(np.zeros((2, 5)), (2, 2)),
            "The 'components' of atoms must have 4 columns for images of 2 × 2. "
            "Got the shape (2, 5) instead.",
        ),
    ],
)
def test_what_cannot_be_drawn_gets_a_sentence(call, sentence):
    with pytest.raises(ValueError, match="must") as caught:
        call()
    assert str(caught.value) == sentence


def test_pictures_of_states_have_the_ink_of_the_theme():
    with plots.theme(dark=True):
        axes = plots.decoded([1.0, 2.0], [[1.0, 0.0], [0.0, 1.0]], [0, 1])
        assert axes[0].lines[0].get_color() == plots.DARK_INK
        assert drawn(axes[0])


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


# ---------------------------------------------------------------------------------------------
# columns of tables
# ---------------------------------------------------------------------------------------------


def test_holes_are_marked_where_they_are():
    X = np.arange(30.0).reshape(10, 3)
    X[2:5, 1] = X[9, 1] = np.nan
    X[0, 2] = np.nan
    ax = plots.missing(X, names=["whole", "half", "first"])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["half  40%", "first  10%"]
    spans = [path.get_extents() for path in ax.collections[0].get_paths()]
    assert [(box.x0, box.x1) for box in spans] == [(1.5, 4.5), (8.5, 9.5)]
    many = np.full((3000, 50), np.nan)
    many[:, ::2] = 1.0
    words = plots.missing(many, most=10).get_xlabel()
    assert "200 of 3000 rows are drawn" in words
    assert "10 of 25 columns with holes" in words


def test_a_column_is_drawn_as_what_it_is():

    labels = Field("port", Column.CATEGORY, ("Cork", "Southampton", "Cherbourg"))
    ax = plots.distribution([0, 0, 1, np.nan], [2.2, 5.0, -1.0, 1.0], field=labels)
    assert [label.get_text() for label in ax.get_yticklabels()] == list(labels.categories)
    widths = [bar.get_width() for bar in ax.patches]
    # a draw beyond the codes comes back to users as the nearest label
    np.testing.assert_allclose(widths, [2 / 3, 1 / 3, 0, 0.25, 0.25, 0.5])
    ax = plots.distribution(np.repeat([0.0, 1, 3], [5, 3, 2]), np.array([0.0, 7.0]))
    assert [round(bar.get_height(), 3) for bar in ax.patches[:4]] == [0.5, 0.3, 0.0, 0.2]
    assert len(ax.patches) == 16
    x = np.linspace(0, 1, 50)
    ax = plots.distribution(x, np.append(x, [9.0, -9.0]))
    assert ax.get_title(loc="right") == f"{2 / 52:.1%} of draws beyond"
    np.testing.assert_allclose(ax.get_xlim(), (-0.25, 1.25))
    day = fe.Schema.recognise(pd.DataFrame({"day": pd.date_range("2024-01-01", periods=60)})).fields[0]
    ax = plots.distribution(np.arange(60.0), field=day)
    ax.figure.canvas.draw()
    assert "2024-01-01" in [label.get_text() for label in ax.get_xticklabels()]
    many = Field("word", Column.CATEGORY, tuple(f"w{k}" for k in range(30)))
    ax = plots.distribution(np.arange(30.0), field=many)
    assert ax.get_yticklabels()[-1].get_text() == "21 others"
    assert ax.patches[-1].get_width() == pytest.approx(21 / 30)


def test_all_columns_of_a_frame_are_drawn_beside_draws():
    frame = pd.DataFrame({"a": np.linspace(0.1, 2.7, 30), "b": ["x", "y", "z"] * 10, "c": [1.0] * 30})
    axes = plots.distributions(frame, frame[:5])
    assert [ax.get_title(loc="left") for ax in axes] == ["a", "b"]
    assert plots.distributions(frame, most=1)[0].figure.get_supxlabel() == "1 more columns are not shown"


def test_association_of_data_and_model_stand_on_two_sides():
    rng = np.random.default_rng(0)
    data, model = rng.normal(size=(40, 3)), rng.normal(size=(50, 3))
    ax = plots.association(data, model, names=["a", "b", "c"])
    shown = {text.xy: text.get_text() for text in ax.texts}
    assert shown[0, 2] == f"{fe.evaluation.association(data)[2, 0]:.2f}"
    assert shown[2, 0] == f"{fe.evaluation.association(model)[2, 0]:.2f}"
    assert len(ax.texts) == 6


def test_words_about_small_pictures_are_not_cut_off():
    rng = np.random.default_rng(1)
    X, other = rng.normal(size=(150, 2)), 3 * rng.normal(size=(120, 2))
    long = ["temperature of the water", "humidity of the air"]
    for names in (["a", "b"], long):
        figures = [
            plots.association(X, other, names=names).figure,
            plots.pairs(X, other, names=names)[0, 0].figure,
        ]
        for figure in figures:
            figure.draw_without_rendering()
            tight, whole = figure.get_tightbbox(), figure.bbox_inches
            # half a letter is no word
            assert tight.xmin > -0.03
            assert tight.ymin > -0.03
            assert tight.xmax < whole.xmax + 0.03
            assert tight.ymax < whole.ymax + 0.03


@pytest.mark.parametrize(
    ("labels", "short"),
    [
        (["ppca:4", "vae:2"], ["ppca", "vae"]),
        (["mixture:family=by-column", "mixture:n_components=4,family=by-column"], ["mixture", "mixture 4"]),
        (
            ["GaussianMixture(8, covariance=Diagonal())", "GaussianMixture(8)"],
            ["GaussianMixture Diagonal()", "GaussianMixture"],
        ),
        (["softmax-regression:C=0.01", "softmax-regression"], ["softmax-regression C=0.01", "softmax-reg"]),
        (["structural-time-series:trend()+seasonal(12)"], ["structural-time-series"]),
        (
            [
                "structural-time-series:trend()+regressors(1)",
                "structural-time-series:level()+regressors(1)",
            ],
            ["structural-time-series trend+regressors(1)", "structural-time-series level+regressors(1)"],
        ),
        (["my own", "another one (2)"], ["my own", "another one"]),
        (["a:1,x", "a:1,x "], ["a", "a (2)"]),
    ],
)
def test_names_of_models_are_short_and_told_apart(labels, short):
    found = list(plots.short_names(labels).values())
    assert len(set(found)) == len(labels)
    assert all(one.startswith(other) for one, other in zip(found, short, strict=True))


def test_dates_stand_below_series():
    days = [f"2024-01-{day:02d}" for day in range(1, 21)]
    x = np.arange(20.0)[:, None]
    drawn = [
        plots.paths([x], dates=days),
        plots.decoded(x, np.full((20, 2), 0.5), dates=days)[-1],
        plots.smoothed(x, np.ones((20, 1)), dates=days)[-1],
        plots.decomposition(x, {"Level": (x, np.ones((20, 1)))}, dates=days)[-1],
    ]
    for ax in drawn:
        ax.figure.canvas.draw()
        words = {label.get_text() for label in ax.get_xticklabels()} - {""}
        assert words
        assert words <= set(days)
