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
from ._mlp import MLP, Linear, mlp

__all__ = [
    "MLP",
    "AbstractCausal",
    "AbstractCausalNetwork",
    "CausalTransformer",
    "Linear",
    "Masked",
    "MaskedNetwork",
    "Recurrent",
    "RecurrentNetwork",
    "TransformerNetwork",
    "mlp",
]
