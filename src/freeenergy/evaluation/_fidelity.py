"""What a sampler makes of its data: whether its rows look real, cover the data, or repeat them."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from scipy import stats
from scipy.spatial import KDTree

from ._checks import count, numbers, two_samples
from ._forecasts import Measure


@dataclasses.dataclass(frozen=True)
class Fidelity:
    """How much of a sample looks like the data, and how much of the data it covers.

    Standard errors take the balls as given.

    Attributes:
        precision: the share of made rows that lie in the ball of a real one.
        recall: the share of real rows that lie in the ball of a made one.
        density: in how many balls of real rows a made row lies, over the number expected; one for equal
            distributions.
        coverage: the share of real rows with a made one in their ball.
    """

    precision: Measure
    recall: Measure
    density: Measure
    coverage: Measure


def fidelity(real: Any, made: Any, *, neighbours: int = 5) -> Fidelity:
    """Precision, recall, density and coverage of a sample, by balls to the k-th neighbour of its kind.

    Args:
        real, made: (rows, columns) each, in units that make distances meaningful.
        neighbours: k; for equal distributions coverage is 1 − (½)^k nearly.

    >>> x = np.random.default_rng(0).normal(size=(200, 2))
    >>> fidelity(x, x + 100).precision.value
    0.0
    """
    owner = "fidelity"
    k = count(owner, "neighbours", neighbours)
    a, b = two_samples(owner, real, made, least=k + 1)
    trees = KDTree(a), KDTree(b)
    # the nearest row of its own kind is itself
    radius_a, radius_b = (np.asarray(tree.query(tree.data, k=k + 1)[0])[:, k] for tree in trees)
    inside_a = trees[1].query_ball_point(a, radius_a)
    inside_b = trees[0].query_ball_point(b, radius_b)
    held = np.bincount(np.concatenate([np.asarray(i, int) for i in inside_a]), minlength=len(b))
    reached = np.bincount(np.concatenate([np.asarray(i, int) for i in inside_b]), minlength=len(a))
    full = np.array([len(i) > 0 for i in inside_a])
    return Fidelity(_share(held > 0), _share(reached > 0), _share(held / k), _share(full))


def _share(values: np.ndarray) -> Measure:
    return Measure(float(np.mean(values)), float(np.std(values) / np.sqrt(len(values))))


@dataclasses.dataclass(frozen=True)
class Memorisation:
    """Whether made rows lie nearer to the training rows than new rows of the data do.

    Attributes:
        nearer: P(a made row is nearer to its nearest training row than a held-out row to its own), ties
            half; ½ where nothing is memorised.
        p_value: small where made rows are too near (Mann and Whitney's test).
        copies: the share of made rows that are training rows.
    """

    nearer: Measure
    p_value: float
    copies: float


def memorisation_test(train: Any, held_out: Any, made: Any) -> Memorisation:
    """Whether a sampler repeats its training rows, by the distances to the nearest of them.

    Args:
        train: (rows, columns) what the sampler was fitted to.
        held_out: rows of the same distribution that it has not seen.
        made: rows of the sampler.

    >>> x = np.random.default_rng(0).normal(size=(300, 2))
    >>> memorisation_test(x[:100], x[100:200], x[:50]).copies
    1.0
    """
    owner = "memorisation_test"
    a = numbers(owner, "train", train, ndim=2)
    new, b = two_samples(owner, held_out, made)
    if a.shape[1] != b.shape[1]:
        raise ValueError(
            f"The samples of {owner} must have the same columns. Got {a.shape[1]} and {b.shape[1]} instead."
        )
    tree = KDTree(a)
    of_new, of_made = tree.query(new)[0], tree.query(b)[0]
    # for each row, the share of the other kind that it is nearer than
    wins = stats.rankdata(np.concatenate([of_new, of_made]))
    above_made = (wins[: len(new)] - stats.rankdata(of_new)) / len(b)
    below_new = 1 - (wins[len(new) :] - stats.rankdata(of_made)) / len(new)
    error = np.sqrt(above_made.var(ddof=1) / len(new) + below_new.var(ddof=1) / len(b))
    p = stats.mannwhitneyu(of_made, of_new, alternative="less").pvalue
    return Memorisation(
        Measure(float(below_new.mean()), float(error)), float(p), float(np.mean(of_made == 0))
    )


@dataclasses.dataclass(frozen=True)
class Modes:
    """Which modes of a known distribution a sample has found.

    Attributes:
        found: how many have a row within the radius.
        shares: (modes,) the share of the rows that is nearest to each, of those within the radius.
        astray: the share of rows that is within the radius of none.
    """

    found: int
    shares: np.ndarray
    astray: float


def modes_found(samples: Any, centres: Any, *, radius: float, least: int = 1) -> Modes:
    """How many modes a sample has found, where the truth is known.

    Args:
        samples: (rows, columns).
        centres: (modes, columns).
        radius: how near a row has to be.
        least: how many rows make a mode found.

    >>> modes_found([[0.1], [5.2], [5.1]], [[0.0], [5.0], [9.0]], radius=0.5).found
    2
    """
    owner = "modes_found"
    x, c = (
        numbers(owner, name, part, ndim=2) for name, part in (("samples", samples), ("centres", centres))
    )
    least = count(owner, "least", least)
    if x.shape[1] != c.shape[1]:
        raise ValueError(
            f"The arrays of {owner} must have the same columns. Got {x.shape[1]} and {c.shape[1]} instead."
        )
    if not isinstance(radius, int | float | np.number) or not radius > 0:
        raise ValueError(
            f"The 'radius' of {owner} must be a float in the range (0, inf). Got {radius!r} instead."
        )
    distance, nearest = map(np.asarray, KDTree(c).query(x))
    near = distance <= radius
    counts = np.bincount(nearest[near], minlength=len(c))
    return Modes(int(np.sum(counts >= least)), counts / len(x), float(1 - near.mean()))
