"""Datasets: small ones by name, synthetic ones of which the truth is known, and tables from files."""

from ._builtin import DataKind, Dataset
from ._catalogue import load, names
from ._synthetic import gaussian_ring, poisson_clusters, regimes, seasons, spirals, two_moons
from ._tables import Table, read_table

__all__ = [
    "DataKind",
    "Dataset",
    "Table",
    "gaussian_ring",
    "load",
    "names",
    "poisson_clusters",
    "read_table",
    "regimes",
    "seasons",
    "spirals",
    "two_moons",
]
