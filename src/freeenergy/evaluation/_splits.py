"""Which rows to learn from, which to choose with, and which to report."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ._checks import count, same_length


@dataclasses.dataclass(frozen=True)
class Split:
    """Row numbers of three disjoint parts, sorted.

    Attributes:
        train: to fit.
        validation: to choose between models and settings; its score of the chosen one is too good.
        test: to report, once.
    """

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


def three_way_split(
    n: int,
    *,
    validation: float = 0.2,
    test: float = 0.2,
    groups: Any = None,
    labels: Any = None,
    seed: int | np.random.Generator,
) -> Split:
    """Rows to train, to choose and to report with.

    Args:
        n: how many rows there are.
        validation, test: their shares of the rows (of the groups, if there are groups).
        groups: labels of rows that belong together and stay in one part.
        labels: each part gets the same share of each label; not together with `groups`.
        seed: of the shuffle.

    >>> split = three_way_split(10, seed=0)
    >>> len(split.train), len(split.validation), len(split.test)
    (6, 2, 2)
    """
    owner = "three_way_split"
    n = count(owner, "n", n, 3)
    if min(validation, test) <= 0 or validation + test >= 1:
        raise ValueError(
            f"The 'validation' and 'test' of {owner} must be positive and sum to less than 1. "
            f"Got {validation!r} and {test!r} instead."
        )
    if groups is not None and labels is not None:
        raise ValueError(f"Only one of 'groups' and 'labels' of {owner} can be given. Got both instead.")
    rng = np.random.default_rng(seed)
    same_length(owner, n=np.empty(n), groups=_listed(groups), labels=_listed(labels))
    if labels is None:
        # units that stay together: each row for itself, or a group
        _, unit = np.unique(np.arange(n) if groups is None else np.asarray(groups), return_inverse=True)
        units = int(unit.max()) + 1
        if units < 3:
            raise ValueError(f"The 'groups' of {owner} must name at least 3 groups. Got {units} instead.")
        part = _shares(units, validation, test, rng)[unit]
    else:
        _, label = np.unique(np.asarray(labels), return_inverse=True)
        # rows in an order that has each label's rows together: equal steps through it share out each label
        order = np.lexsort((rng.permutation(n), label))
        part = np.empty(n, int)
        part[order] = _spread(n, validation, test)
    return Split(*(np.flatnonzero(part == k) for k in range(3)))


def _listed(values: Any) -> np.ndarray | None:
    return None if values is None else np.asarray(values)


def _sizes(n: int, validation: float, test: float) -> tuple[int, int]:
    """Sizes of the validation and test parts: rounded, at least one, and one left to train."""
    b, c = max(1, round(n * validation)), max(1, round(n * test))
    while b + c > n - 1:
        b, c = (b - 1, c) if b >= c else (b, c - 1)
    return b, c


def _shares(n: int, validation: float, test: float, rng: np.random.Generator) -> np.ndarray:
    b, c = _sizes(n, validation, test)
    return rng.permutation(np.repeat([0, 1, 2], [n - b - c, b, c]))


def _spread(n: int, validation: float, test: float) -> np.ndarray:
    """Parts 0, 1, 2 in the wanted numbers, spread as evenly as can be along n places."""
    b, c = _sizes(n, validation, test)
    wanted = np.array([n - b - c, b, c]) / n
    part = np.empty(n, int)
    given = np.zeros(3)
    for place in range(n):
        part[place] = np.argmax(wanted * (place + 1) - given)
        given[part[place]] += 1
    return part


def out_of_bag(
    n: int, *, resamples: int, seed: int | np.random.Generator
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Pairs (rows drawn with replacement, rows not drawn): to train and to test a learner many times.

    The spread of the scores is that of the learner on the *problem*, not on one data set.  To resample
    first and split afterwards would put copies of a row on both sides.

    >>> train, test = out_of_bag(5, resamples=1, seed=0)[0]
    >>> len(train), set(train) & set(test)
    (5, set())
    """
    n, resamples = count("out_of_bag", "n", n, 2), count("out_of_bag", "resamples", resamples)
    rng = np.random.default_rng(seed)
    pairs = []
    while len(pairs) < resamples:
        train = rng.integers(n, size=n)
        test = np.setdiff1d(np.arange(n), train)
        if len(test):
            pairs.append((train, test))
    return pairs
