"""Learning: one loop, learners, objectives and sources of rows."""

from .._core import AbstractBatches, AbstractSource, AbstractSums
from ._em import EM, AbstractSweep, AllRows, ClosedForm, Incremental, Stepwise, expect_all
from ._fit import fit
from ._free import only
from ._gradient import Gradient
from ._inducing import InducedBatches, InducedValuesAlone
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
    Denoising,
    DoublyReparametrised,
    FreeEnergy,
    FreshNoise,
    Hardening,
    ImportanceWeighted,
    Reweighted,
    WarmUp,
    negative_conditional_log_likelihood,
    negative_log_likelihood,
    negative_log_pseudo_likelihood,
    score_matching,
)
from ._optimiser import Optimiser, decay_weights
from ._players import Game, Player
from ._reconstruction import (
    AbstractCodePenalty,
    AbstractCorruption,
    ContractiveCode,
    GaussianCorruption,
    MaskingCorruption,
    Reconstruction,
    SparseCode,
)
from ._relative import RelativeNewton
from ._scores import BIC, AbstractNumberScore, AbstractScore, BDeu
from ._simulator import Simulator
from ._structures import (
    AbstractStructure,
    ChowLiu,
    Families,
    HillClimbing,
    StructuralEM,
    graph_score,
)
from ._topics import CollapsedGibbs

__all__ = [
    "BIC",
    "EM",
    "LBFGS",
    "MAP",
    "AbstractAnswerPhase",
    "AbstractBatches",
    "AbstractCodePenalty",
    "AbstractCorruption",
    "AbstractNegativePhase",
    "AbstractNumberScore",
    "AbstractObjective",
    "AbstractScore",
    "AbstractSource",
    "AbstractStructure",
    "AbstractSums",
    "AbstractSweep",
    "AllRows",
    "Argmin",
    "BDeu",
    "Batch",
    "Boltzmann",
    "ChowLiu",
    "ClosedForm",
    "CollapsedGibbs",
    "ConditionalContrastive",
    "ContractiveCode",
    "Contrastive",
    "Denoising",
    "DoublyReparametrised",
    "ExactEnumeration",
    "Families",
    "FreeEnergy",
    "FreshNoise",
    "Game",
    "GaussianCorruption",
    "GibbsFromData",
    "Gradient",
    "Hardening",
    "HillClimbing",
    "ImportanceWeighted",
    "Incremental",
    "InducedBatches",
    "InducedValuesAlone",
    "LongChain",
    "Margin",
    "MaskingCorruption",
    "Optimiser",
    "PersistentChains",
    "Player",
    "Reconstruction",
    "RelativeNewton",
    "Reweighted",
    "Simulator",
    "SparseCode",
    "Stepwise",
    "StructuralEM",
    "WarmUp",
    "decay_weights",
    "expect_all",
    "fit",
    "graph_score",
    "negative_conditional_log_likelihood",
    "negative_log_likelihood",
    "negative_log_pseudo_likelihood",
    "only",
    "score_matching",
]
