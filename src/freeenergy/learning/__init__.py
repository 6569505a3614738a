"""Learning: one loop, learners and objectives."""

from ._em import EM, AbstractSweep, AllRows, ClosedForm, Incremental, Stepwise, expect_all
from ._fit import fit
from ._gradient import Gradient, Optimiser, decay_weights
from ._lbfgs import LBFGS
from ._negative import (
    AbstractAnswerPhase,
    AbstractNegativePhase,
    Argmin,
    Boltzmann,
    ConditionalContrastive,
    Contrastive,
    ExactEnumeration,
    GibbsFromData,
    LongChain,
    Margin,
    PersistentChains,
)
from ._objectives import (
    MAP,
    AbstractObjective,
    Batch,
    FreeEnergy,
    FreshNoise,
    ImportanceWeighted,
    negative_log_likelihood,
    score_matching,
)
from ._relative import RelativeNewton
from ._topics import CollapsedGibbs

__all__ = [
    "EM",
    "LBFGS",
    "MAP",
    "AbstractAnswerPhase",
    "AbstractNegativePhase",
    "AbstractObjective",
    "AbstractSweep",
    "AllRows",
    "Argmin",
    "Batch",
    "Boltzmann",
    "ClosedForm",
    "CollapsedGibbs",
    "ConditionalContrastive",
    "Contrastive",
    "ExactEnumeration",
    "FreeEnergy",
    "FreshNoise",
    "GibbsFromData",
    "Gradient",
    "ImportanceWeighted",
    "Incremental",
    "LongChain",
    "Margin",
    "Optimiser",
    "PersistentChains",
    "RelativeNewton",
    "Stepwise",
    "decay_weights",
    "expect_all",
    "fit",
    "negative_log_likelihood",
    "score_matching",
]
