"""What `load` knows."""

from __future__ import annotations

from collections.abc import Callable

from ._builtin import DataKind, Dataset, bundled, nearest
from ._fashion import fashion_mnist
from ._synthetic import (
    checkerboard,
    gaussian_clusters,
    gaussian_ring,
    poisson_clusters,
    regimes,
    seasons,
    spirals,
    two_moons,
)


def _digits() -> Dataset:
    from sklearn.datasets import load_digits

    text = "1797 handwritten digits of 8 × 8 pixels with whole numbers 0 … 16."
    return bundled(load_digits(), text, DataKind.IMAGES)


def _iris() -> Dataset:
    from sklearn.datasets import load_iris

    return bundled(load_iris(), "Lengths and widths of 150 flowers of three kinds of iris.")


def _wine() -> Dataset:
    from sklearn.datasets import load_wine

    return bundled(load_wine(), "13 chemical measurements of 178 wines from three growers.")


def _breast_cancer() -> Dataset:
    from sklearn.datasets import load_breast_cancer

    return bundled(load_breast_cancer(), "30 measurements of cell nuclei in 569 images of breast masses.")


def _diabetes() -> Dataset:
    from sklearn.datasets import load_diabetes

    text = "10 measurements of 442 patients and how far their diabetes went in a year."
    return bundled(load_diabetes(scaled=False), text)


def _linnerud() -> Dataset:
    from sklearn.datasets import load_linnerud

    return bundled(load_linnerud(), "Three exercises and three body measurements of 20 men.")


_CATALOGUE: dict[str, Callable[[], Dataset]] = {
    "breast-cancer": _breast_cancer,
    "checkerboard": checkerboard,
    "diabetes": _diabetes,
    "digits": _digits,
    "fashion-mnist": fashion_mnist,
    "gaussian-clusters": gaussian_clusters,
    "gaussian-ring": gaussian_ring,
    "iris": _iris,
    "linnerud": _linnerud,
    "poisson-clusters": poisson_clusters,
    "regimes": regimes,
    "seasons": seasons,
    "spirals": spirals,
    "two-moons": two_moons,
    "wine": _wine,
}


def names() -> list[str]:
    """The names that `load` knows.

    >>> "digits" in names()
    True
    """
    return list(_CATALOGUE)


def load(name: str) -> Dataset:
    """A data set by name.

    >>> load("iris").X.shape
    (150, 4)
    """
    if name not in _CATALOGUE:
        raise ValueError(f"There is no data set {name!r}. {nearest(name, names())}")
    return _CATALOGUE[name]()
