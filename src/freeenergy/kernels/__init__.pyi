"""Kernels: similarity of pairs as objects that add, multiply and are learned."""

from ._base import AbstractKernel, AbstractVectorKernel, Product, Scaled, Sum
from ._checks import Definiteness, positive_definiteness
from ._strings import Spectrum, Subsequences
from ._vectors import (
    RBF,
    Box,
    Constant,
    Laplacian,
    Linear,
    Matern,
    Periodic,
    Polynomial,
    RationalQuadratic,
    White,
)

__all__ = [
    "RBF",
    "AbstractKernel",
    "AbstractVectorKernel",
    "Box",
    "Constant",
    "Definiteness",
    "Laplacian",
    "Linear",
    "Matern",
    "Periodic",
    "Polynomial",
    "Product",
    "RationalQuadratic",
    "Scaled",
    "Spectrum",
    "Subsequences",
    "Sum",
    "White",
    "positive_definiteness",
]
