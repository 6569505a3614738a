"""Networks: only what `equinox.nn` lacks."""

from ._mlp import MLP, Linear, mlp

__all__ = ["MLP", "Linear", "mlp"]
