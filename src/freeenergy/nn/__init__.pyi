"""Networks: only what `equinox.nn` lacks."""

from ._causal import (
    AbstractCausal,
    AbstractCausalNetwork,
    CausalTransformer,
    Masked,
    MaskedNetwork,
    Recurrent,
    RecurrentNetwork,
    TransformerNetwork,
)
from ._denoiser import AbstractDenoiser, AbstractDenoiserNetwork, ResidualDenoiser, ResidualNetwork
from ._mlp import MLP, Linear, mlp

__all__ = [
    "MLP",
    "AbstractCausal",
    "AbstractCausalNetwork",
    "AbstractDenoiser",
    "AbstractDenoiserNetwork",
    "CausalTransformer",
    "Linear",
    "Masked",
    "MaskedNetwork",
    "Recurrent",
    "RecurrentNetwork",
    "ResidualDenoiser",
    "ResidualNetwork",
    "TransformerNetwork",
    "mlp",
]
