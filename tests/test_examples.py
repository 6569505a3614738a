"""The examples say what they are meant to say; the code in the documentation prints what is shown."""

import contextlib
import io
import re
import runpy

import numpy as np
import pytest

import freeenergy as fe


def load(root, name):
    """The names that an example defines, without running it as a script."""
    return runpy.run_path(str(root / "examples" / f"{name}.py"), run_name="example")


# ---------------------------------------------------------------------------------------------
# examples
# ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_density(root, capsys, tmp_path):
    picture = tmp_path / "draws.png"
    evidence = load(root, "density")["main"](str(picture), epochs=5)
    kinds = [e.kind for e in evidence.values()]
    assert kinds == [fe.Kind.EXACT, fe.Kind.EXACT, fe.Kind.LOWER]
    assert evidence["GaussianMixture(3)"].mean > evidence["GaussianDensity"].mean
    assert f"{evidence['GaussianDensity'].mean:.3f} ± " in capsys.readouterr().out
    assert picture.stat().st_size > 1000


@pytest.mark.slow
def test_missing(root, capsys):
    errors = load(root, "missing")["main"]()
    assert max(errors["GaussianDensity"], errors["FactorAnalysis(2)"]) < errors["column means"]
    # binomial standard error of the coverage with about 210 hidden entries
    assert abs(errors["coverage"] - 0.9) < 4 * np.sqrt(0.09 / 210)
    assert f"{errors['coverage']:.0%} of the hidden values" in capsys.readouterr().out


def test_soft_to_hard(root, capsys):
    centres, losses = load(root, "soft_to_hard")["main"]()
    np.testing.assert_allclose(centres[0.0], centres["KMeans"], atol=1e-9)
    gaps = [np.ptp(centres[t]) for t in (4.0, 1.0, 0.1)]
    assert gaps == sorted(gaps)
    assert losses["Boltzmann(1)"] == pytest.approx(1 + np.log(np.exp([-1.0, -0.4, -3.0]).sum()))
    assert losses["Boltzmann(0)"] == losses["Argmin()"] == pytest.approx(0.6)
    assert losses["Margin()"] == pytest.approx(1.6)
    assert "Argmin()        0.6000" in capsys.readouterr().out


def test_own_family(root, capsys):
    from scipy import stats

    model = load(root, "own_family")["main"]()
    success = np.asarray(model.model_.components.success)
    order = np.argsort(success[:, 0])
    np.testing.assert_allclose(success[order], [[0.1, 0.2, 0.1], [0.7, 0.6, 0.8]], atol=0.06)
    rows = np.array([[0.0, 2.0, 1.0], [7.0, 4.0, 12.0]])
    terms = stats.geom.pmf(rows[:, None] + 1, success).prod(axis=2)
    np.testing.assert_allclose(model.score_samples(rows), np.log(terms @ model.weights_), rtol=1e-10)
    assert "exact" in capsys.readouterr().out


def test_own_family_is_compared_by_its_mass(root):
    Geometric = load(root, "own_family")["Geometric"]
    counts = np.random.default_rng(1).geometric([[0.2]] * 80) - 1.0
    models = [fe.Mixture(1, family=Geometric), fe.Mixture(1, family=fe.distributions.Poisson)]
    board = fe.compare(models, counts, cv=2)
    assert {row.kind for row in board.table()} == {fe.Kind.EXACT}
    assert isinstance(board.best_estimator, fe.Mixture)
    # (1 − s)ˣ s with the maximum-likelihood s, by hand
    success = 1 / (1 + counts.mean())
    mass = counts[:, 0] * np.log1p(-success) + np.log(success)
    np.testing.assert_allclose(board.best_estimator.evidence(counts).nats, mass, rtol=1e-6)
    every = np.arange(400.0)[:, None]
    np.testing.assert_allclose(np.exp(board.best_estimator.score_samples(every)).sum(), 1, rtol=1e-9)


@pytest.mark.slow
def test_rbm_log_z(root, capsys):
    exact, found = load(root, "rbm_log_z")["main"](chains=50, steps=(10, 100))
    last = found[-1]
    for side in last:
        assert abs(float(side.log_partition) - exact) < 5 * float(side.stderr)
    assert float(found[0].lower.stderr) > float(last.lower.stderr)
    assert f"log Z = {exact:.4f}" in capsys.readouterr().out


@pytest.mark.slow
def test_free_energy(root, capsys):
    lost = load(root, "free_energy")["main"](epochs=50)
    assert abs(lost["exact"]) < 1e-9
    assert 0 < lost["local Gaussian"] < lost["amortised"]
    # the best independent Gaussians lose ½(Σ log Λ_ii − log |Λ|), Λ the precision of the posterior
    W = np.array([[1.0, 0.8], [0.9, 1.0], [1.0, 1.2]])
    precision = np.eye(2) + W.T @ W / 0.5
    best = 0.5 * (np.log(np.diag(precision)).sum() - np.linalg.slogdet(precision)[1])
    assert lost["local Gaussian"] == pytest.approx(best, abs=5e-3)
    assert f"F + log p(x) = {lost['local Gaussian']:.4f}" in capsys.readouterr().out


@pytest.mark.slow
def test_series(root, capsys, tmp_path):
    found, held = load(root, "series")["main"](str(tmp_path))
    assert found > 0.9
    # at most a twentieth of fits would have fewer of twelve in an interval of 90 %
    assert held >= 9 / 12
    assert f"{found:.0%} of the steps" in capsys.readouterr().out
    assert {p.name for p in tmp_path.iterdir()} == {"decoded.png", "decomposition.png", "forecast.png"}


@pytest.mark.slow
def test_hidden(root, capsys, tmp_path):
    found = load(root, "hidden")["main"](str(tmp_path))
    # growers have 48, 59 and 71 of 178 wines
    np.testing.assert_allclose(found["weights"], np.array([48, 59, 71]) / 178, atol=0.06)
    assert len(set(found["columns"])) == 3
    assert found["shares"].sum() == pytest.approx(1)
    assert abs(found["modulus"] - 0.98) < 0.05
    assert f"keeps {found['modulus']:.0%} of its swing" in capsys.readouterr().out
    pictures = {"profiles.png", "loadings.png", "topics.png", "smoothed.png"}
    assert {p.name for p in tmp_path.iterdir()} == pictures


@pytest.mark.slow
def test_mixed(root, capsys, tmp_path):
    picture = tmp_path / "mixed.png"
    found = load(root, "mixed")["main"](str(picture))
    # what is drawn by one cause is said worst by independent columns
    assert found["best"] != "independent columns"
    assert (found["correlation"][0, 1:3] > 0.3).all()
    assert "scores of 'spent' correlate with" in capsys.readouterr().out
    assert picture.stat().st_size > 1000


@pytest.mark.slow
def test_dictionary(root, capsys, tmp_path):
    picture = tmp_path / "atoms.png"
    found = load(root, "dictionary")["main"](str(picture), patches=400)
    assert found["active"] < 0.5
    assert found["explained"] > 0.9
    assert f"{found['active']:.0%} of the sources" in capsys.readouterr().out
    assert picture.stat().st_size > 1000


@pytest.mark.slow
def test_images(root, capsys, tmp_path):
    picture = tmp_path / "images.png"
    found = load(root, "images")["main"](str(picture), share=0.5)
    # a Gaussian of all pixels has 2.97
    assert max(found.values()) < 2.9
    assert f"{found['patches']:.2f} (patches)" in capsys.readouterr().out
    assert picture.stat().st_size > 1000


def test_families(root, capsys, tmp_path):
    some = ("gaussian", "kernel", "classifiers", "pca_ica", "linear", "glm", "networks")
    drawn = load(root, "families")["main"](str(tmp_path), *some)
    assert {p.name for p in tmp_path.iterdir()} == {f"{name}.png" for name in drawn}
    assert "7 pictures are in" in capsys.readouterr().out


@pytest.mark.slow
def test_tutorials(root, capsys, tmp_path):
    drawn = load(root, "tutorials")["main"](str(root / "docs" / "tutorials"), str(tmp_path))
    assert {p.stem for p in (root / "docs" / "tutorials").glob("*.md")} == set(drawn)
    assert {p.name for p in tmp_path.iterdir()} == {f"{name}.png" for name in drawn}
    assert f"{len(drawn)} pictures of freeenergy" in capsys.readouterr().out


@pytest.mark.slow
def test_checkpoint(root, capsys):
    assert load(root, "checkpoint")["main"](epochs=8)
    assert "refused: The checkpoint" in capsys.readouterr().out


# ---------------------------------------------------------------------------------------------
# the documentation: a python block may be followed by a text block with what it prints
# ---------------------------------------------------------------------------------------------

BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", re.MULTILINE | re.DOTALL)

# those that take more than ten CPU seconds are left to `make test-all`
PAGES = [
    "docs/index.md",
    "docs/series.md",
    "docs/summary.md",
    pytest.param("docs/tables.md", marks=pytest.mark.slow),
    pytest.param("docs/tutorials/clusters.md", marks=pytest.mark.slow),
    pytest.param("docs/tutorials/mixed_table.md", marks=pytest.mark.slow),
    pytest.param("docs/tutorials/scikit_learn.md", marks=pytest.mark.slow),
    pytest.param("docs/tutorials/dated_series.md", marks=pytest.mark.slow),
    "docs/families/gaussian.md",
    pytest.param("docs/families/mixture.md", marks=pytest.mark.slow),
    pytest.param("docs/families/factor.md", marks=pytest.mark.slow),
    pytest.param("docs/families/rbm.md", marks=pytest.mark.slow),
    pytest.param("docs/families/vae.md", marks=pytest.mark.slow),
    pytest.param("docs/families/autoencoder.md", marks=pytest.mark.slow),
    pytest.param("docs/families/flow.md", marks=pytest.mark.slow),
    pytest.param("docs/families/autoregressive.md", marks=pytest.mark.slow),
    pytest.param("docs/families/diffusion.md", marks=pytest.mark.slow),
    "docs/families/gan.md",
    pytest.param("docs/families/softmax.md", marks=pytest.mark.slow),
    "docs/families/regression.md",
    "docs/families/classifiers.md",
    "docs/families/glm.md",
    pytest.param("docs/families/gaussian_process.md", marks=pytest.mark.slow),
    "docs/families/kernels.md",
    "docs/families/linear.md",
    "docs/families/mixture_density.md",
    "docs/families/conditional_flow.md",
    "docs/families/conditional_vae.md",
    "docs/families/ensembles.md",
    "docs/families/kernel.md",
    "docs/families/networks.md",
    pytest.param("docs/families/mixed.md", marks=pytest.mark.slow),
    "docs/families/pca_ica.md",
    pytest.param("docs/families/hmm.md", marks=pytest.mark.slow),
    pytest.param("docs/families/state_space.md", marks=pytest.mark.slow),
    pytest.param("docs/families/bayesian_mixture.md", marks=pytest.mark.slow),
    pytest.param("docs/families/topics.md", marks=pytest.mark.slow),
    pytest.param("docs/families/sparse_coding.md", marks=pytest.mark.slow),
    pytest.param("docs/extend.md", marks=pytest.mark.slow),
    "docs/files.md",
    pytest.param("docs/inference.md", marks=pytest.mark.slow),
    "docs/inference/samplers.md",
    pytest.param("docs/inference/one_call.md", marks=pytest.mark.slow),
    pytest.param("docs/inference/variational.md", marks=pytest.mark.slow),
    "docs/learning.md",
    "docs/numbers.md",
    "docs/companion/mathematics.md",
    pytest.param("docs/report.md", marks=pytest.mark.slow),
]

CONTRIBUTING_NAMES = """
from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax import Array
from jax.scipy.special import gammaln

from freeenergy._core import AbstractAlgorithm, Data, Info, parameter, positive
from freeenergy.bijections import AbstractBijection, AbstractTransformer
from freeenergy.distributions import (
    AbstractCovariance, AbstractDistribution, AbstractFactorised, AbstractSpace, Counts, Diagonal, Full,
    Gaussian
)
from freeenergy.shell import AbstractDensity, Scaling
from freeenergy.inference import (
    AbstractExpectation, AbstractMethod, AbstractRecognition, DrawsPosterior, FreeTarget, Pathwise,
    QuasiNewton, minimise
)
from freeenergy.learning import AbstractNegativePhase, Batch, ClosedForm, fit, negative_log_likelihood
from freeenergy.models import Density
"""


def run(text, names):
    """Runs the python blocks of a page in turn; returns what each printed and what it should have."""
    pairs = []
    for code, expected in BLOCK.findall(text):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, "page", "exec"), names)
        pairs.append((printed.getvalue(), expected))
    return pairs


@pytest.mark.parametrize("page", PAGES)
def test_code_of_a_page(root, page, tmp_path, monkeypatch):
    # pages may write files
    monkeypatch.chdir(tmp_path)
    pairs = run((root / page).read_text("utf-8"), {"__name__": "page"})
    assert pairs
    for printed, expected in pairs:
        assert printed == expected


def test_every_family_and_tutorial_is_run(root):
    listed = {getattr(page, "values", (page,))[0] for page in PAGES}
    for folder in ("families", "tutorials"):
        there = {str(p.relative_to(root)) for p in (root / "docs" / folder).glob("*.md")}
        assert there <= listed


def test_every_example_is_run(root):
    tests = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    # the demonstration has a test of its own
    assert {p.stem for p in (root / "examples").glob("*.py")} - {"digits"} <= tests


def test_skeletons_of_contributing_work(root):
    import jax
    import jax.numpy as jnp

    names = {"__name__": "contributing"}
    exec(CONTRIBUTING_NAMES, names)
    run((root / "CONTRIBUTING.md").read_text("utf-8"), names)
    key = jax.random.key(0)

    from scipy import stats

    poisson = names["Poisson"](jnp.array([2.0, 5.0]))
    x = jnp.array([3.0, 4.0])
    assert float(poisson.log_prob(x)) == pytest.approx(stats.poisson.logpmf([3, 4], [2, 5]).sum())
    counts = np.random.default_rng(0).poisson([2.0, 5.0], (200, 2))
    model = names["PoissonDensity"]().fit(counts)
    np.testing.assert_allclose(model.model_.family.rate, counts.mean(axis=0))
    np.testing.assert_allclose(model.impute([[np.nan, 1.0]])[0, 0], counts[:, 0].mean())

    normal = names["Gaussian"](jnp.array([1.0, -1.0]), names["Identity"](2))
    assert float(normal.log_prob(x)) == pytest.approx(stats.norm.logpdf([2.0, 5.0]).sum())
    y, log_det = names["Translation"](jnp.ones(2)).forward(x)
    assert (y.tolist(), float(log_det)) == ([4.0, 5.0], 0.0)
    back, slope = names["Scale"]().inverse(jnp.array(np.e), jnp.array([1.0]))
    assert (float(back), float(slope)) == (pytest.approx(1.0), -1.0)

    from freeenergy.distributions import Positive
    from freeenergy.inference import Quadratic, free_energy, infer
    from freeenergy.learning import Batch
    from freeenergy.models import LinearGaussian

    # half of the way to the mean of the rows, three times
    begun = names["fit"](normal, names["Descent"](0.5), np.zeros((4, 2)), key=key, max_iter=3)
    np.testing.assert_allclose(begun.model.mean, [0.125, -0.125], rtol=1e-12)
    rows = Batch(jnp.zeros((4, 2)), jnp.full(4, 0.25))
    negative, weight, _ = names["Noise"](poisson)(None, rows, (), key=key)
    assert negative.shape == (4, 2)
    assert float(weight.sum()) == pytest.approx(1.0)
    # at x = 0: ½‖μ‖² − dim
    assert float(names["score_matching"](normal, rows, key)) == pytest.approx(0.5 * 2 - 2)
    factors = LinearGaussian(jnp.ones((2, 1)), jnp.zeros(2), names["Diagonal"](jnp.ones(2)))
    laplace = names["Laplace"](jnp.zeros(1), expectation=Quadratic())
    bound = free_energy(factors.energy, laplace, x, key=key)
    assert float(bound) == pytest.approx(-float(factors.log_prob(x)))
    grid = names["Grid"](jnp.linspace(-20, 20, 4001))
    rate = infer(lambda z: 3 * z - 2 * jnp.log(z), Positive(()), grid, key=key)
    assert float(rate.mean()) == pytest.approx(1.0, abs=1e-6)
