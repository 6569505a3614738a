"""Bijections: maps forward and back, with the logarithm of the change of volume."""

from ._affine import Affine, GeneralAffine, Permutation, TriangularAffine
from ._base import AbstractBijection
from ._compose import Chain, Inverse, Repeated, Shared
from ._continuous import ContinuousFlow
from ._elementwise import Exp, Identity, Sigmoid, Softplus, Tanh
from ._flows import Coupling, Elementwise, MaskedAutoregressive
from ._masked import MaskedMLP
from ._transformers import AbstractTransformer, InTurn, Shift, ShiftScale, Spline

__all__ = [
    "AbstractBijection",
    "AbstractTransformer",
    "Affine",
    "Chain",
    "ContinuousFlow",
    "Coupling",
    "Elementwise",
    "Exp",
    "GeneralAffine",
    "Identity",
    "InTurn",
    "Inverse",
    "MaskedAutoregressive",
    "MaskedMLP",
    "Permutation",
    "Repeated",
    "Shared",
    "Shift",
    "ShiftScale",
    "Sigmoid",
    "Softplus",
    "Spline",
    "Tanh",
    "TriangularAffine",
]
