"""Datasets: small ones by name, synthetic ones of which the truth is known, and tables from files."""

from ._bif import bif_of, parse_bif, read_bif, write_bif
from ._builtin import DataKind, Dataset
from ._catalogue import load, names
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
from ._tables import Table, read_table

__all__ = [
    "DataKind",
    "Dataset",
    "Table",
    "bif_of",
    "checkerboard",
    "fashion_mnist",
    "gaussian_clusters",
    "gaussian_ring",
    "load",
    "names",
    "parse_bif",
    "poisson_clusters",
    "read_bif",
    "read_table",
    "regimes",
    "seasons",
    "spirals",
    "two_moons",
    "write_bif",
]
