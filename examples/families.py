"""A picture for the pages of families whose density, or decision, is seen in the plane.

    python examples/families.py [folder]

Contours of densities, probabilities of classes, directions of hidden sources, bands and laws along a line:
what each family makes of a few hundred points.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse
from sklearn.datasets import load_digits

import freeenergy as fe
from freeenergy import plots


def plane(X: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The places of a grid around points, along both axes and as rows."""
    low, high = np.nanmin(X, axis=0), np.nanmax(X, axis=0)
    x, y = (np.linspace(a - 0.15 * (b - a), b + 0.15 * (b - a), 80) for a, b in zip(low, high))
    return x, y, np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)


def axes_of(width: float = 4.4, height: float = 3.4) -> Any:
    return Figure(figsize=(width, height), layout="constrained").subplots()


def contours(model: Any, X: np.ndarray) -> Any:
    """Lines of equal density that hold half, four fifths and 95 % of the points."""
    ax = axes_of()
    x, y, grid = plane(X)
    whole = X[~np.isnan(X).any(axis=1)]
    own = model.score_samples(whole)
    levels = np.unique(np.quantile(own, [0.05, 0.2, 0.5]))
    ax.plot(*whole.T, ".", color=plots.PALETTE[0], markersize=3, alpha=0.5)
    nats = model.score_samples(grid).reshape(80, 80)
    ax.contour(x, y, nats, levels, colors=plots.PALETTE[1], linestyles="solid")
    return ax


def gaussian() -> Any:
    rng = np.random.default_rng(0)
    X = rng.multivariate_normal([10.0, -3.0], [[4.0, 3.0], [3.0, 9.0]], size=300)
    X[rng.random(X.shape) < 0.2] = np.nan
    return contours(fe.GaussianDensity().fit(X), X)


def kernel() -> Any:
    X = fe.datasets.load("two-moons").X[:300]
    return contours(fe.KernelDensity().fit(X), X)


def flow() -> Any:
    X = fe.datasets.load("two-moons").X[:500]
    model = fe.NormalizingFlow(layers=6, width=32, depth=1, max_iter=150, random_state=0)
    return contours(model.fit(X), X)


def autoregressive() -> Any:
    X = fe.datasets.load("spirals").X
    return contours(fe.Autoregressive(max_iter=150, random_state=0).fit(X), X)


def diffusion() -> Any:
    X = fe.datasets.load("two-moons").X[:500]
    model = fe.DiffusionModel(
        network=fe.nn.ResidualDenoiser(64, 2, waves=3), max_iter=300, random_state=0
    ).fit(X)
    ax = contours(model, X)
    ax.plot(*model.sample(200, random_state=0).T, "x", color=plots.PALETTE[2], markersize=3)
    return ax


def gan() -> Any:
    """Eight clusters, what a generator makes of noise, and what its code says of it."""
    rng = np.random.default_rng(0)
    angle = rng.integers(8, size=4000) * np.pi / 4
    X = 3 * np.column_stack([np.cos(angle), np.sin(angle)]) + rng.normal(0, 0.3, (4000, 2))
    model = fe.InfoGAN((8,), width=64, max_iter=150, random_state=0).fit(X)
    made = model.sample(1000, random_state=0)
    ax = axes_of(4.4, 4.0)
    ax.plot(*X[:1000].T, ".", color="0.75", markersize=3, label="data")
    ax.scatter(*made.T, c=model.predict(made), cmap="tab10", vmin=0, vmax=9, s=5, label="made, by code")
    ax.legend(loc="center")
    return ax


def by_label() -> Any:
    """Digits drawn by the digit that was asked for: a column of the picture each, from three models."""
    digits = load_digits()
    network = fe.nn.ResidualDenoiser(192, 2)
    diffusion = fe.ClassConditionalDiffusion(network=network, max_iter=250, random_state=0)
    autoencoder = fe.ClassConditionalVAE(8, max_iter=400, random_state=0)
    adversarial = fe.ClassConditionalGAN(16, width=256, max_iter=400, random_state=0)
    asked = np.tile(np.arange(10), 2)
    for model in (diffusion, autoencoder, adversarial):
        model.fit(digits.data, digits.target)
    drawn = {
        "diffusion": diffusion.sample(20, random_state=0, labels=asked),
        "guided, w = 1": diffusion.sample(20, random_state=0, labels=asked, guidance=1.0),
        "autoencoder": autoencoder.sample(20, random_state=0, labels=asked),
        "adversarial": adversarial.sample(20, random_state=0, labels=asked),
    }
    # with a margin around each of them
    images = np.stack([rows.reshape(2, 10, 8, 8) for rows in drawn.values()])
    images = np.pad(images.clip(0, 16), [(0, 0)] * 3 + [(1, 1)] * 2)
    ax = axes_of(6.4, 5.4)
    ax.imshow(images.transpose(0, 1, 3, 2, 4).reshape(80, 100), cmap="gray_r", vmin=0, vmax=16)
    ax.set_xticks(np.arange(10) * 10 + 4.5, [str(digit) for digit in range(10)])
    ax.set_yticks(np.arange(4) * 20 + 9.5, list(drawn))
    ax.hlines([19.5, 39.5, 59.5], -0.5, 99.5, color="black", linewidth=0.8)
    ax.grid(visible=False)
    ax.set_xlabel("digit that was asked for")
    return ax


def vae() -> Any:
    digits = load_digits()
    model = fe.VAE(2, prior=fe.models.MixturePrior(10), max_iter=100, random_state=0).fit(digits.data)
    codes, prior = model.transform(digits.data), model.model_.prior.components
    ax = axes_of(5.6, 4.2)
    shown = ax.scatter(*codes.T, c=digits.target, cmap="tab10", vmin=-0.5, vmax=9.5, s=6, alpha=0.7)
    ax.figure.colorbar(shown, ax=ax, ticks=range(10), label="digit")
    for mean, variance in zip(prior.mean, prior.covariance.variances(), strict=True):
        size = 4 * np.sqrt(np.asarray(variance))
        ax.add_patch(Ellipse(np.asarray(mean), *size, fill=False, edgecolor="black", linewidth=1.2))
    ax.set(xlabel="first entry of the code", ylabel="second entry of the code")
    return ax


def bayesian_mixture() -> Any:
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [5.0, 1.0], [1.0, 6.0]])
    X = centres[rng.integers(0, 3, 240)] + rng.normal(size=(240, 2)) * [0.7, 1.1]
    model = fe.BayesianMixture(8, random_state=0).fit(X)
    # the others are as the prior has them
    active = np.flatnonzero(model.counts_ >= 1)
    shown = SimpleNamespace(
        weights_=model.weights_[active],
        means_=model.means_[active],
        covariances_=model.covariances_[active],
        predict=lambda rows: np.searchsorted(active, model.predict(rows)),
    )
    return plots.components(shown, X)


def wines() -> tuple[np.ndarray, np.ndarray]:
    data = fe.datasets.load("wine")
    return data.X[:, [0, 6]], data.y


def regions(model: Any, X: np.ndarray, y: np.ndarray) -> Any:
    """The ground has the colour of the likeliest class, the stronger the surer."""
    ax = axes_of()
    x, a, grid = plane(X)
    shares = model.predict_proba(grid)
    best, sure = shares.argmax(axis=1), shares.max(axis=1)
    for k in range(shares.shape[1]):
        strength = np.where(best == k, sure, np.nan).reshape(80, 80)
        levels = [1 / shares.shape[1], 0.6, 0.8, 0.95, 1.001]
        for low, high, alpha in zip(levels, levels[1:], (0.1, 0.2, 0.3, 0.4)):
            ax.contourf(x, a, strength, [low, high], colors=[plots.PALETTE[k]], alpha=alpha)
        ax.plot(*X[y == k].T, ".", color=plots.PALETTE[k], markersize=4)
    ax.set_xlabel("alcohol")
    ax.set_ylabel("flavanoids")
    return ax


def classifiers() -> Any:
    X, y = wines()
    return regions(fe.DiscriminantAnalysis(fe.distributions.Full()).fit(X, y), X, y)


def softmax() -> Any:
    X, y = wines()
    return regions(fe.SoftmaxRegression().fit(X, y), X, y)


def dots(ax: Any, x: np.ndarray, y: np.ndarray) -> None:
    ax.plot(x, y, ".", color=plots.PALETTE[0], markersize=4, alpha=0.6)
    ax.set_xlabel("x")
    ax.set_ylabel("y")


def band(model: Any, ax: Any, along: np.ndarray, colour: int = 0, **line: Any) -> None:
    """The mean along a line, and the interval that holds nine answers in ten."""
    low, high = model.predict_interval(along[:, None], 0.9)
    ax.fill_between(along, low, high, color=plots.PALETTE[colour], alpha=0.15, linewidth=0)
    ax.plot(along, model.predict(along[:, None]), color=plots.PALETTE[colour], **line)


def laws(model: Any, ax: Any, places: tuple[float, ...], values: np.ndarray, width: float) -> None:
    """The density, or the mass, of the answer at a few places."""
    for place in places:
        law = model.predict_density(np.full((len(values), 1), place))
        ax.plot(place + width * np.exp(law.log_prob(values)), values, color=plots.PALETTE[1], linewidth=1.2)
        ax.plot([place, place], values[[0, -1]], color=plots.PALETTE[6], linewidth=0.6, linestyle=":")


def regression() -> Any:
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0.0, 10.0, 60))
    y = 3.0 + 1.5 * x + rng.normal(0.0, 2.0, 60)
    model, ax = fe.LinearRegression().fit(x[:, None], y), axes_of()
    band(model, ax, np.linspace(-1.0, 11.0, 60))
    dots(ax, x, y)
    laws(model, ax, (1.0, 5.0, 9.0), np.linspace(-4.0, 24.0, 200), 5.0)
    return ax


def linear() -> Any:
    """Quantiles of answers that spread out."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0.0, 10.0, 250))
    y = 2.0 + x + (0.3 + 0.35 * x) * rng.standard_gamma(2.0, 250)
    levels = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
    model, ax = fe.QuantileRegression(levels).fit(x[:, None], y), axes_of()
    along = np.linspace(0.0, 10.0, 40)[:, None]
    law = model.predict_density(along)
    dots(ax, x, y)
    for level in levels:
        line = law.quantile(level)
        ax.plot(along[:, 0], line, color=plots.PALETTE[1], linewidth=2.2 if level == 0.5 else 1.0)
        ax.annotate(f"{level:.0%}", (10.1, line[-1]), va="center", fontsize=8, annotation_clip=False)
    return ax


def glm() -> Any:
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-2.0, 2.0, 120))
    y = rng.poisson(np.exp(1.0 + 0.7 * x))
    model = fe.GeneralisedLinearModel(fe.distributions.Poisson).fit(x[:, None], y)
    ax = axes_of()
    band(model, ax, np.linspace(-2.2, 2.4, 200))
    dots(ax, x, y)
    for place in (-1.5, 0.0, 1.5):
        values = np.arange(18.0)
        mass = np.exp(model.predict_density(np.full((18, 1), place)).log_prob(values))
        ax.hlines(values, place, place + 1.5 * mass, color=plots.PALETTE[1], linewidth=2)
    ax.set_ylabel("count")
    return ax


def gaussian_process() -> Any:
    rng = np.random.default_rng(0)
    x = np.sort(np.concatenate([rng.uniform(-3.0, 0.3, 35), rng.uniform(1.8, 3.0, 15)]))
    y = np.sin(2 * x) + 0.2 * rng.normal(size=50)
    model, ax = fe.GaussianProcess().fit(x[:, None], y), axes_of()
    along = np.linspace(-3.5, 4.5, 200)
    band(model, ax, along, linewidth=2)
    functions = model.sample_functions(along[:, None], 4, random_state=0)
    ax.plot(along, functions.T, color=plots.PALETTE[1], linewidth=0.8, alpha=0.8)
    dots(ax, x, y)
    return ax


def kernels() -> Any:
    data = fe.datasets.load("two-moons")
    X, y = data.X[:200], data.y[:200]
    model, ax = fe.SupportVectorMachine().fit(X, y), axes_of()
    low, high = X.min(axis=0) - 0.4, X.max(axis=0) + 0.4
    across, up = (np.linspace(a, b, 90) for a, b in zip(low, high))
    grid = np.stack(np.meshgrid(across, up), axis=-1).reshape(-1, 2)
    score = model.decision_function(grid).reshape(90, 90)
    ax.contourf(across, up, score, [-1e9, 0, 1e9], colors=[plots.PALETTE[0], plots.PALETTE[1]], alpha=0.12)
    ax.contour(
        across, up, score, [-1, 0, 1], colors=plots.PALETTE[6], linestyles=["--", "-", "--"], linewidths=1
    )
    for k, label in enumerate(model.classes_):
        ax.plot(*X[y == label].T, ".", color=plots.PALETTE[k], markersize=4)
    held = X[model.support_]
    ax.plot(*held.T, "o", markerfacecolor="none", markeredgecolor=plots.PALETTE[6], markersize=7)
    return ax


def mixture_density() -> Any:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, 500)
    y = np.where(rng.random(500) < 0.5 + 0.3 * x, -1, 1) * (1.5 + 1.4 * x) + 0.25 * rng.normal(size=500)
    model = fe.MixtureDensity(2, width=16, max_iter=150, random_state=0).fit(x[:, None], y)
    ax = axes_of()
    ax.plot(x, y, ".", color=plots.PALETTE[6], markersize=3, alpha=0.5)
    along = np.linspace(-1.0, 1.0, 100)
    plots.prediction_sets(model.predict_density(along[:, None]), ax, at=along, level=0.9)
    ax.set_xlabel("x")
    ax.set_ylabel("y, sets of 90 %")
    return ax


def conditional_flow() -> Any:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, 400)
    y = 2 * x + np.exp(x) * (rng.exponential(size=400) - 1)
    model = fe.ConditionalFlow(width=16, max_iter=100, random_state=0).fit(x[:, None], y)
    ax = axes_of()
    dots(ax, x, y)
    band(model, ax, np.linspace(-1.0, 1.0, 100), 1)
    laws(model, ax, (-0.8, -0.1, 0.6), np.linspace(-4.0, 8.0, 300), 0.35)
    return ax


def conditional_vae() -> Any:
    rng = np.random.default_rng(0)
    x, hidden = rng.uniform(-1.0, 1.0, (400, 1)), rng.normal(size=(400, 1))
    y = x @ [[3.0, -3.0]] + hidden @ [[1.0, 0.8]] + 0.2 * rng.normal(size=(400, 2))
    model = fe.ConditionalVAE(1, width=16, max_iter=100, random_state=0).fit(x, y)
    ax = axes_of(3.8, 3.4)
    ax.plot(*y.T, ".", color=plots.PALETTE[6], markersize=3, alpha=0.5)
    for colour, given in enumerate((-0.8, 0.0, 0.8)):
        drawn = model.predict_density([[given]]).sample(100, rng)[:, 0]
        ax.plot(*drawn.T, ".", color=plots.PALETTE[colour], markersize=4, label=f"draws at x = {given:g}")
    ax.legend(frameon=False, fontsize=8)
    ax.set_xlabel("y, first")
    ax.set_ylabel("y, second")
    return ax


def ensembles() -> Any:
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0.0, 6.0, 300))
    y = np.sin(2 * x) + (0.1 + 0.1 * x) * rng.standard_t(4, 300)
    ax = axes_of()
    safe = fe.Conformal(fe.Boosting(random_state=0), random_state=0).fit(x[:, None], y)
    band(safe, ax, np.linspace(0.0, 6.0, 250))
    dots(ax, x, y)
    return ax


def pca_ica() -> Any:
    rng = np.random.default_rng(0)
    X = rng.laplace(size=(400, 2)) @ np.array([[2.0, 0.6], [0.4, 1.2]])
    ax = axes_of()
    ax.plot(*X.T, ".", color=plots.PALETTE[6], markersize=3, alpha=0.4)
    sets = [
        ("PCA", fe.PCA(2).fit(X).components_),
        ("ICA", fe.ICA(fe.distributions.Laplace).fit(X).mixing_.T),
    ]
    for number, (name, directions) in enumerate(sets):
        for place, line in enumerate(directions):
            end = 5 * line / np.linalg.norm(line)
            label = name if place == 0 else None
            ax.plot([-end[0], end[0]], [-end[1], end[1]], color=plots.PALETTE[number], label=label)
    ax.set_aspect("equal")
    ax.legend()
    return ax


def networks() -> Any:
    """The network of Lauritzen and Spiegelhalter (1988), after an X-ray and a short breath."""
    rows = {"tub": [0.05, 0.01], "lung": [0.1, 0.01], "bronc": [0.6, 0.3], "xray": [0.98, 0.05]}
    tables = {"asia": [0.01, 0.99], "smoke": [0.5, 0.5], "either": [[[1, 0], [1, 0]], [[1, 0], [0, 1]]]}
    tables |= {name: [[p, 1 - p] for p in row] for name, row in rows.items()}
    tables["dysp"] = [[[0.9, 0.1], [0.8, 0.2]], [[0.7, 0.3], [0.1, 0.9]]]
    parents = {"tub": ["asia"], "lung": ["smoke"], "bronc": ["smoke"], "xray": ["either"]}
    parents |= {"either": ["lung", "tub"], "dysp": ["bronc", "either"]}
    states = dict.fromkeys(tables, ("yes", "no"))
    asia = fe.models.BayesianNetwork.of_tables(tables, parents, states)
    known = asia.posterior({"xray": "yes", "dysp": "yes"})
    return plots.network(asia, axes_of(5.0, 4.4), probabilities=known.marginals())


PICTURES: tuple[Callable[[], Any], ...] = (
    *(
        gaussian,
        kernel,
        flow,
        autoregressive,
        diffusion,
        gan,
        by_label,
        vae,
        bayesian_mixture,
        classifiers,
        softmax,
        pca_ica,
        networks,
    ),
    *(regression, linear, glm, gaussian_process, kernels, mixture_density, ensembles),
    *(conditional_flow, conditional_vae),
)


def main(folder: str = "demo", *only: str) -> list[str]:
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    drawn = [draw for draw in PICTURES if not only or draw.__name__ in only]
    for draw in drawn:
        with plots.theme():
            draw().figure.savefig(place / f"{draw.__name__}.png", dpi=100, facecolor="white")
    print(f"{len(drawn)} pictures are in {place}")
    return [draw.__name__ for draw in drawn]


if __name__ == "__main__":
    main(*sys.argv[1:])
