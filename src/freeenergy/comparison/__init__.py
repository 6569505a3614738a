"""Any set of models on one honest scale: held-out bits, paired, with how they are known."""

from ._board import Comparison
from ._compare import compare
from ._results import DrawStanding, FoldResult, ForecastStanding, PredictionStanding, Standing

__all__ = [
    "Comparison",
    "DrawStanding",
    "FoldResult",
    "ForecastStanding",
    "PredictionStanding",
    "Standing",
    "compare",
]
