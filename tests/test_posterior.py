"""What posteriors answer: regions, summaries, diagnostics, pictures."""

import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from freeenergy import plots
from freeenergy.distributions import Binary, Categories, Counts, Diagonal, Gaussian, Reals
from freeenergy.inference import (
    DistributionPosterior,
    DrawsPosterior,
    FinitePosterior,
    Nature,
    PointPosterior,
    PosteriorSummary,
    bulk_effective_size,
    potential_scale_reduction,
    rank_scale_reduction,
    tail_effective_size,
)
from freeenergy.inference._densities import highest_density_of, smooth_cells
from freeenergy.inference._diagnostics import chain_diagnostics, diagnostic_warnings, energy_fraction
from freeenergy.inference._methods import judged
from freeenergy.inference._posterior import entries_of


def correlated():
    """Chains with memory, and their exponentials on unequal scales."""
    rng = np.random.default_rng(7)
    noise = rng.normal(size=(3, 120))
    x = np.zeros((3, 120))
    x[:, 0] = noise[:, 0]
    for t in range(1, 120):
        x[:, t] = 0.6 * x[:, t - 1] + noise[:, t]
    return x, np.exp(x) * np.array([[1.0], [1.0], [1.4]])


def test_diagnostics_are_those_of_arviz():
    # computed once with arviz 0.23.4: rhat, ess(method="bulk"), ess(method="tail"), bfmi; its sums of
    # autocorrelations have one term more at their end
    for chains, rhat, bulk, tail in zip(
        correlated(),
        (1.019774342116061, 1.0566572375336145),
        (74.10928626746283, 50.405630677644),
        (102.98565368410301, 102.98565368410301),
        strict=True,
    ):
        np.testing.assert_allclose(rank_scale_reduction(chains), rhat)
        np.testing.assert_allclose(bulk_effective_size(chains), bulk, rtol=0.01)
        np.testing.assert_allclose(tail_effective_size(chains), tail, rtol=0.01)
    fractions = [0.7671714317225606, 0.8381843303773656, 0.8058831066165629]
    np.testing.assert_allclose(energy_fraction(correlated()[0]), fractions)


def test_ranks_see_what_moments_do_not():
    rng = np.random.default_rng(1)
    wide = rng.standard_cauchy((4, 1000))
    wide[3] += 2
    assert rank_scale_reduction(wide) > 1.05 > potential_scale_reduction(wide)
    told = chain_diagnostics(np.stack([wide, rng.normal(size=(4, 1000))], axis=2))
    assert told["rank_scale_reduction"] == rank_scale_reduction(wide)
    assert chain_diagnostics(wide[:, :4, None]) == {}


def test_each_warning_is_one_sentence():
    good = {"rank_scale_reduction": 1.005, "bulk_effective_size": 900.0, "tail_effective_size": 800.0}
    assert diagnostic_warnings(good | {"divergences": 0, "energy_fraction": 0.9, "draws": np.ones(3)}) == []
    bad = {
        "rank_scale_reduction": 1.3,
        "bulk_effective_size": 30.0,
        "tail_effective_size": 50.0,
        "chains": 4,
        "divergences": 1,
        "energy_fraction": 0.1,
        "longest_share": 0.4,
    }
    said = diagnostic_warnings(bad)
    assert [sentence.partition(":")[0].partition(",")[0] for sentence in said] == [
        "The chains disagree",
        "The draws are worth 30 independent ones at the worst entry",
        "1 trajectory diverged",
        "Momenta reach little of the energy (E-BFMI 0.1",
        "40% of the trajectories were cut at their longest; raise 'doublings'",
    ]
    assert all(sentence.endswith(".") and sentence.count(". ") == 0 for sentence in said)
    # digits show what is missed
    near = bad | {
        "rank_scale_reduction": 1.01004,
        "bulk_effective_size": 399.96,
        "tail_effective_size": 500,
    }
    assert "R̂ is 1.01004 where at most 1.01 is wanted" in diagnostic_warnings(near)[0]
    assert "are worth 399.96 independent" in diagnostic_warnings(near)[1]


def draws_posterior(draws, space, **options):
    return DrawsPosterior(draws, None, spaces=(space,), **options)


def test_regions_of_draws_in_one_and_two_pieces():
    rng = np.random.default_rng(0)
    normal = rng.normal(2.0, 3.0, (4, 5000))
    [(low, high)] = draws_posterior(normal, Reals(())).highest_density(0.9)["z"]
    half = 1.645 * 3
    # the ends of a region are about as uncertain as quantiles
    np.testing.assert_allclose([low, high], [2 - half, 2 + half], atol=0.35)
    away = np.where(
        rng.random((4, 5000)) < 0.4, rng.normal(-10, 1, (4, 5000)), rng.normal(10, 2, (4, 5000))
    )
    pieces = draws_posterior(away, Reals(())).highest_density(0.9)["z"]
    law = stats.norm
    assert len(pieces) == 2
    held = sum(
        0.4 * (law.cdf(b, -10, 1) - law.cdf(a, -10, 1)) + 0.6 * (law.cdf(b, 10, 2) - law.cdf(a, 10, 2))
        for a, b in pieces
    )
    np.testing.assert_allclose(held, 0.9, atol=0.01)
    # at the edges of the smallest set the density is one and the same
    heights = [0.4 * law.pdf(e, -10, 1) + 0.6 * law.pdf(e, 10, 2) for piece in pieces for e in piece]
    assert max(heights) < 1.8 * min(heights)
    skewed = rng.exponential(1.0, (4, 5000))
    [(low, high)] = draws_posterior(skewed, Reals(())).highest_density(0.9)["z"]
    np.testing.assert_allclose([low, high], [0, np.log(10)], atol=0.15)


def test_regions_of_weighted_whole_and_constant_numbers():
    rng = np.random.default_rng(0)
    wide = rng.normal(0, 3, 40_000)
    weighted = DrawsPosterior(wide, -(wide**2) * 4 / 9, spaces=(Reals(()),))
    [(low, high)] = weighted.highest_density(0.9)["z"]
    np.testing.assert_allclose([low, high], [-1.645, 1.645], atol=0.12)
    finite = FinitePosterior(
        np.array([0.0, 1.0, 2.0, 3.0, 4.0]),
        np.array([0.4, 0.02, 0.03, 0.15, 0.4]),
        spaces=(Counts(()),),
    )
    assert finite.highest_density(0.9) == {"z": [(0.0, 0.0), (3.0, 4.0)]}
    still = draws_posterior(np.full((2, 20, 1), 3.0), Reals((1,)))
    assert still.highest_density(0.5) == {"[0]": [(3.0, 3.0)]}
    assert highest_density_of(np.ones(3), np.ones(3) / 3, 3.0, 0.5, discrete=False) == [(1.0, 1.0)]
    edges, mass = smooth_cells(np.array([0.0, 1.0]), np.full(2, 0.5), 2.0, cells=64)
    assert len(edges) == 65
    assert (mass >= 0).all()
    np.testing.assert_allclose(mass.sum(), 1)
    with pytest.raises(
        ValueError, match=r"'level' of highest_density must be between 0 and 1. Got 1 instead"
    ):
        finite.highest_density(1)
    labels = FinitePosterior(np.arange(2), np.full(2, 0.5), spaces=(Categories(2),))
    for ask in (labels.highest_density, labels.mean):
        with pytest.raises(ValueError, match=r"Labels have no order"):
            ask()


def test_a_label_beside_a_number():
    rng = np.random.default_rng(0)
    draws = {"kind": rng.choice(3, (4, 50), p=[0.2, 0.8, 0]), "size": rng.normal(size=(4, 50))}
    space = Categories(3, (), ("red", "green", "blue"))
    found = DrawsPosterior(draws, None, spaces=(space, Reals(())))
    share = [float(np.mean(draws["kind"] == k)) for k in range(3)]
    chances = found.marginals()
    assert list(chances) == ["kind"]
    np.testing.assert_allclose([chances["kind"][name] for name in space.labels], share)
    assert list(found.highest_density(0.9)) == ["size"]
    table = found.summary()
    assert table.names == ["kind = red", "kind = green", "kind = blue", "size"]
    np.testing.assert_allclose(table.columns["mean"], [*share, draws["size"].mean()], rtol=1e-12)
    assert (
        np.isnan(table.columns["sd"]).tolist()
        == np.isnan(table.columns["5%"]).tolist()
        == [True] * 3 + [False]
    )
    # what never occurs has no chains to disagree
    assert np.isnan(table.columns["R̂"]).tolist() == [False, False, True, False]
    axes = found.plot()
    assert [text.get_text() for text in axes[0, 0].get_xticklabels()] == list(space.labels)
    np.testing.assert_allclose([bar.get_height() for bar in axes[0, 0].patches], share)
    # ranks of equal values are spread out: the chains together fill each bar alike
    heights = sum(step.get_data().values for step in axes[0, 2].patches[1:])
    np.testing.assert_array_equal(heights, np.full(20, 10))
    with pytest.raises(ValueError, match=r"^Labels have no order, and so no mean: ask for 'marginals"):
        found.mean()
    with pytest.raises(
        ValueError, match=r"^Only labels and whole numbers have a probability for each value"
    ):
        draws_posterior(draws["size"], Reals(())).marginals()


def test_summaries_and_how_posteriors_print():
    x, y = correlated()
    both = {"x": x, "y": y[:, :, None]}
    found = judged(DrawsPosterior(both, None, spaces=(Reals(()), Reals((1,)))))
    table = found.summary(0.8)
    assert isinstance(table, PosteriorSummary)
    assert table.names == ["x", "y[0]"] == entries_of(found.weighted_values()[0])[1]
    assert list(table.columns)[2:4] == ["10%", "90%"]
    flat = np.stack([x.ravel(), y.ravel()], axis=1)
    np.testing.assert_allclose(table.columns["mean"], flat.mean(axis=0))
    np.testing.assert_allclose(table.columns["sd"], flat.std(axis=0))
    np.testing.assert_allclose(
        table.columns["10%"], np.quantile(flat, 0.1, axis=0, method="inverted_cdf"), rtol=1e-12
    )
    np.testing.assert_allclose(table.columns["R̂"], [1.0197743, 1.0566572], rtol=1e-6)
    lines = str(table).splitlines()
    assert lines[0].split()[:3] == ["samples", "mean", "sd"]
    assert lines[-2].startswith("The chains disagree: R̂ is 1.057")
    assert "<table" in table._repr_html_()
    assert repr(found).startswith(
        "DrawsPosterior(samples: 3 chains of 120 draws of 2 numbers; ! The chains disagree"
    )
    point = PointPosterior(jnp.ones(2), jnp.zeros(()), spaces=(Reals((2,)),))
    assert repr(point) == "PointPosterior(point: 1 values of 2 numbers)"
    normal = Gaussian(jnp.zeros(1), Diagonal(jnp.ones(1)))
    drawn = DistributionPosterior(normal, np.zeros((50, 1)), Nature.EXACT, spaces=(Reals((1,)),))
    assert repr(drawn) == "DistributionPosterior(exact: 50 values of 1 number)"
    assert jax.jit(lambda p: len(repr(p)))(point) == len("PointPosterior(point)")


def test_chains_of_weighted_draws_have_their_law():
    weighted = FinitePosterior(np.array([0.0, 1.0]), np.array([0.1, 0.9]), spaces=(Binary(()),))
    names, chains = weighted.chains()
    assert names == ["z"]
    assert chains.shape == (1, 1000, 1)
    assert abs(chains.mean() - 0.9) < 4 * 0.3 / 1000**0.5


def test_pictures_of_a_posterior():
    x, y = correlated()
    found = DrawsPosterior({"x": x, "y": y}, None, spaces=(Reals(()), Reals(())))
    axes = found.plot()
    assert axes.shape == (2, 3)
    lines = axes[0, 1].lines
    np.testing.assert_array_equal(lines[1].get_ydata(), x[1])
    heights = [
        np.asarray(patch.get_data().values) for patch in axes[0, 2].patches if hasattr(patch, "get_data")
    ]
    assert sum(h.sum() for h in heights) == x.size
    finite = FinitePosterior(np.array([0.0, 1.0]), np.array([0.1, 0.9]), spaces=(Binary(()),))
    assert finite.plot().shape == (1, 1)
    assert plots.marginal([0.0, 1.0, 1.0]).get_ylabel() == "probability"
    assert plots.trace(x, name="x").get_ylabel() == "x"
    assert plots.ranks(x).get_xlim() == (0, 1)
    axes = plots.posterior(finite)[0, 0]
    assert axes.get_xlabel() == "z"
    assert axes.get_xticks().tolist() == [0.0, 1.0]
    # a point has no width
    point = PointPosterior(jnp.array(2.5), jnp.zeros(()), spaces=(Reals(()),)).plot()[0, 0]
    assert not point.patches
    np.testing.assert_array_equal(point.collections[0].get_segments(), [[[2.5, 0], [2.5, 1]]])


@pytest.mark.parametrize("version", ["0.23.4", "1.0.0"])
def test_draws_go_to_arviz(monkeypatch, version):
    module = types.ModuleType("arviz")
    module.__version__ = version
    module.from_dict = lambda *args, **groups: args[0] if args else groups
    monkeypatch.setitem(sys.modules, "arviz", module)
    x, y = correlated()
    diverging = np.zeros((3, 120), bool)
    found = DrawsPosterior(
        {"x": x, "y": y[:, :, None]},
        None,
        spaces=(Reals(()), Reals((1,))),
        diagnostics={"diverging": diverging, "divergences": np.asarray(0)},
    )
    groups = found.to_arviz()
    np.testing.assert_array_equal(groups["posterior"]["x"], x)
    assert groups["posterior"]["y"].shape == (3, 120, 1)
    assert list(groups["sample_stats"]) == ["diverging"]


def test_without_arviz_there_is_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    finite = FinitePosterior(np.array([0.0, 1.0]), np.array([0.1, 0.9]), spaces=(Binary(()),))
    with pytest.raises(ImportError, match=r"^'to_arviz' needs the package ArviZ. Install it"):
        finite.to_arviz()
