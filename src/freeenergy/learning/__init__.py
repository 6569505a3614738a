"""Learning: one loop, learners and objectives."""

from ._em import EM, AbstractSweep, Batch, ClosedForm, Incremental, Stepwise
from ._fit import fit
from ._gradient import Gradient, decay_weights
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
    FreeEnergy,
    ImportanceWeighted,
    negative_log_likelihood,
)

__all__ = [
    "EM",
    "MAP",
    "AbstractAnswerPhase",
    "AbstractNegativePhase",
    "AbstractObjective",
    "AbstractSweep",
    "Argmin",
    "Batch",
    "Boltzmann",
    "ClosedForm",
    "ConditionalContrastive",
    "Contrastive",
    "ExactEnumeration",
    "FreeEnergy",
    "GibbsFromData",
    "Gradient",
    "ImportanceWeighted",
    "Incremental",
    "LongChain",
    "Margin",
    "PersistentChains",
    "Stepwise",
    "decay_weights",
    "fit",
    "negative_log_likelihood",
]
