"""Synthetic data of which the truth is known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import gammaln, logsumexp

from ._builtin import DataKind, Dataset

# nodes of the integral over a curve: exact to rounding for the noise used here
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(200)

Curve = Callable[[np.ndarray], np.ndarray]


def _along_curves(
    curves: list[Curve], n: int, noise: float, seed: int, names: list[str], text: str
) -> Dataset:
    """Points spread evenly in t along curves c_k(t), t ∈ [0, 1], with normal noise.

    p(x) = 1/K Σ_k ∫ N(x; c_k(t), σ²I) dt, the integral by Gauss' rule.
    """
    rng = np.random.default_rng(seed)
    y = rng.integers(len(curves), size=n)
    t = rng.random(n)
    X = np.choose(y[:, None], [curve(t) for curve in curves]) + noise * rng.normal(size=(n, 2))
    nodes = np.concatenate([curve((_NODES + 1) / 2) for curve in curves])
    weights = np.tile(_WEIGHTS / 2 / len(curves), len(curves))

    def log_density(x: np.ndarray) -> np.ndarray:
        x = np.asarray(x, float)
        squares = ((x[:, None, :] - nodes[None]) ** 2).sum(axis=-1)
        return logsumexp(-0.5 * squares / noise**2, axis=1, b=weights) - np.log(2 * np.pi * noise**2)

    return Dataset(X, y, ["x", "y"], names, text, log_density=log_density)


def two_moons(n: int = 1000, *, noise: float = 0.1, seed: int = 0) -> Dataset:
    """Two half circles that reach into each other, with normal noise.

    >>> two_moons(5).X.shape
    (5, 2)
    """

    def upper(t: np.ndarray) -> np.ndarray:
        return np.stack([np.cos(np.pi * t), np.sin(np.pi * t)], axis=-1)

    def lower(t: np.ndarray) -> np.ndarray:
        return np.array([1.0, 0.5]) - upper(t)

    text = "Two half circles that reach into each other; the density is known."
    return _along_curves([upper, lower], n, noise, seed, ["upper", "lower"], text)


def spirals(n: int = 1000, *, noise: float = 0.1, seed: int = 0) -> Dataset:
    """Two spirals around each other, with normal noise.

    >>> spirals(5).target_names
    ['first', 'second']
    """

    def first(t: np.ndarray) -> np.ndarray:
        angle, radius = 3 * np.pi * t, 0.5 + 2.5 * t
        return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=-1)

    def second(t: np.ndarray) -> np.ndarray:
        return -first(t)

    text = "Two spirals around each other; the density is known."
    return _along_curves([first, second], n, noise, seed, ["first", "second"], text)


def gaussian_ring(n: int = 1000, *, components: int = 8, spread: float = 0.3, seed: int = 0) -> Dataset:
    """Round Gaussians of equal weight on a circle of radius 3.

    >>> ring = gaussian_ring(3, components=1, spread=1.0)
    >>> ring.log_density(np.array([[3.0, 0.0]])).round(6).item()   # −log 2π
    -1.837877
    """
    rng = np.random.default_rng(seed)
    angle = 2 * np.pi * np.arange(components) / components
    centres = 3 * np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    y = rng.integers(components, size=n)
    X = centres[y] + spread * rng.normal(size=(n, 2))

    def log_density(x: np.ndarray) -> np.ndarray:
        squares = ((np.asarray(x, float)[:, None, :] - centres[None]) ** 2).sum(axis=-1)
        joint = logsumexp(-0.5 * squares / spread**2, axis=1)
        return joint - np.log(components * 2 * np.pi * spread**2)

    names = [str(k) for k in range(components)]
    text = f"{components} round Gaussians on a circle; the density is known."
    return Dataset(X, y, ["x", "y"], names, text, log_density=log_density)


def checkerboard(n: int = 1000, *, seed: int = 0) -> Dataset:
    """Points spread evenly over the eight dark squares of a board of four by four, each of side one.

    >>> float(checkerboard(3).log_density(np.array([[0.5, 0.5]]))[0])   # −log 8
    -2.0794415416798357
    """
    rng = np.random.default_rng(seed)
    y = rng.integers(8, size=n)
    row, column = y // 2, 2 * (y % 2) + y // 2 % 2
    X = np.stack([column, row], axis=-1) - 2 + rng.random((n, 2))

    def log_density(x: np.ndarray) -> np.ndarray:
        square = np.floor(np.asarray(x, float)) + 2
        dark = (square.sum(axis=-1) % 2 == 0) & ((square >= 0) & (square < 4)).all(axis=-1)
        return np.where(dark, -np.log(8), -np.inf)

    names = [str(k) for k in range(8)]
    text = "Eight squares of a board of four by four; the density is known."
    return Dataset(X, y, ["x", "y"], names, text, log_density=log_density)


def gaussian_clusters(
    n: int = 1000, *, columns: int = 16, components: int = 5, separation: float = 5.0, seed: int = 0
) -> Dataset:
    """A mixture of Gaussians in many columns, with weights, means and full covariances of their own.

    The law is the same for every seed.  The covariances are about the identity, and means are about
    `separation` apart.

    >>> gaussian_clusters(5).X.shape
    (5, 16)
    """
    law = np.random.default_rng(17)
    weights = law.dirichlet(np.full(components, 5.0))
    means = separation * law.normal(size=(components, columns)) / np.sqrt(2 * columns)
    factors = law.normal(size=(components, columns, columns)) / np.sqrt(2 * columns)
    covariances = factors @ factors.transpose(0, 2, 1) + 0.5 * np.eye(columns)
    roots = np.linalg.cholesky(covariances)
    rng = np.random.default_rng(seed)
    y = rng.choice(components, size=n, p=weights)
    X = means[y] + np.einsum("nij,nj->ni", roots[y], rng.normal(size=(n, columns)))

    def log_density(x: np.ndarray) -> np.ndarray:
        z = np.linalg.solve(roots, np.asarray(x, float).T[None] - means[:, :, None])
        log_dets = np.log(np.diagonal(roots, axis1=1, axis2=2)).sum(axis=1)
        joint = np.log(weights) - log_dets - 0.5 * columns * np.log(2 * np.pi)
        return np.asarray(logsumexp(joint[:, None] - 0.5 * (z**2).sum(axis=1), axis=0))

    features, names = [f"x{j}" for j in range(columns)], [str(k) for k in range(components)]
    text = f"{components} Gaussians in {columns} columns; the density is known."
    return Dataset(X, y, features, names, text, log_density=log_density)


def poisson_clusters(n: int = 1000, *, seed: int = 0) -> Dataset:
    """Whole numbers in five columns: a mixture of three groups with Poisson rates of their own.

    >>> poisson_clusters(4).X.dtype
    dtype('float64')
    """
    rng = np.random.default_rng(seed)
    weights = np.array([0.5, 0.3, 0.2])
    rates = np.array([[1.0, 2, 8, 4, 1], [6, 1, 1, 3, 10], [3, 12, 4, 0.5, 5]])
    y = rng.choice(3, size=n, p=weights)
    X = rng.poisson(rates[y]).astype(float)

    def log_density(x: np.ndarray) -> np.ndarray:
        x = np.asarray(x, float)
        terms = x[:, None, :] * np.log(rates)[None] - rates[None] - gammaln(x + 1)[:, None, :]
        return np.asarray(logsumexp(terms.sum(axis=-1) + np.log(weights)[None], axis=1))

    text = "Counts from three groups with Poisson rates of their own; the probabilities are known."
    return Dataset(X, y, [f"count{j}" for j in range(5)], ["a", "b", "c"], text, log_density=log_density)


def regimes(n: int = 400, *, seed: int = 0) -> Dataset:
    """A series of two columns that is calm, busy or stormy for a while; rows are time steps.

    A hidden Markov chain stays in its state with probability 0.96; the state sets the means and the
    spread.

    >>> regimes(10).target_names
    ['calm', 'busy', 'stormy']
    """
    rng = np.random.default_rng(seed)
    transition = np.full((3, 3), 0.02) + 0.94 * np.eye(3)
    y = np.zeros(n, int)
    for t in range(1, n):
        y[t] = rng.choice(3, p=transition[y[t - 1]])
    means = np.array([[2.0, 10.0], [6.0, 14.0], [9.0, 7.0]])
    X = means[y] + np.array([0.7, 1.2, 2.2])[y, None] * rng.normal(size=(n, 2))
    text = "A series with three hidden regimes, which are known."
    names = ["calm", "busy", "stormy"]
    return Dataset(X, y, ["speed", "temperature"], names, text, DataKind.SERIES)


def seasons(n: int = 120, *, seed: int = 0) -> Dataset:
    """A monthly series: a level that wanders, a season of twelve months, and noise; rows are months.

    >>> seasons(24).target_names
    ['level']
    """
    rng = np.random.default_rng(seed)
    level = 50 + np.cumsum(0.15 + 0.5 * rng.normal(size=n))
    season = np.array([-6.0, -5, -2, 1, 3, 5, 7, 6, 2, -1, -4, -6])[np.arange(n) % 12]
    X = (level + season + rng.normal(size=n))[:, None]
    text = "A monthly series of level, season and noise; the level is known."
    return Dataset(X, level, ["demand"], ["level"], text, DataKind.SERIES)
