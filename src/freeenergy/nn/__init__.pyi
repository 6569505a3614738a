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
from ._patches import ConvolutionalDenoiser, ConvolutionalNetwork, PatchDenoiser, PatchNetwork
from ._windows import WindowNetwork

__all__ = [
    "MLP",
    "AbstractCausal",
    "AbstractCausalNetwork",
    "AbstractDenoiser",
    "AbstractDenoiserNetwork",
    "CausalTransformer",
    "ConvolutionalDenoiser",
    "ConvolutionalNetwork",
    "Linear",
    "Masked",
    "MaskedNetwork",
    "PatchDenoiser",
    "PatchNetwork",
    "Recurrent",
    "RecurrentNetwork",
    "ResidualDenoiser",
    "ResidualNetwork",
    "TransformerNetwork",
    "WindowNetwork",
    "mlp",
]
