"""Inference: eliminating the unknown, over arrays and callables."""

from ._annealed import (
    Annealed,
    Sandwich,
    annealed_importance,
    geometric_path,
    linear_schedule,
    reverse_annealed_importance,
    sandwich,
    sigmoid_schedule,
)
from ._argmin import Minimum, argmin_by_gradient, argmin_over_points
from ._enumerate import (
    binary_state,
    binary_states,
    log_partition_by_enumeration,
    posterior_by_enumeration,
)
from ._expectation import AbstractExpectation, Enumeration, Pathwise, Quadratic, ScoreFunction, Split
from ._gibbs import block_gibbs, run_chain
from ._importance import (
    ImportanceEstimate,
    effective_sample_size,
    importance_estimate,
    self_normalised_mean,
)
from ._recognition import (
    AbstractRecognition,
    Amortised,
    Exact,
    Finite,
    LocalGaussian,
    Point,
    PointMass,
    free_energy,
    importance_log_weights,
    importance_weighted_bound,
)

__all__ = [
    "AbstractExpectation",
    "AbstractRecognition",
    "Amortised",
    "Annealed",
    "Enumeration",
    "Exact",
    "Finite",
    "ImportanceEstimate",
    "LocalGaussian",
    "Minimum",
    "Pathwise",
    "Point",
    "PointMass",
    "Quadratic",
    "Sandwich",
    "ScoreFunction",
    "Split",
    "annealed_importance",
    "argmin_by_gradient",
    "argmin_over_points",
    "binary_state",
    "binary_states",
    "block_gibbs",
    "effective_sample_size",
    "free_energy",
    "geometric_path",
    "importance_estimate",
    "importance_log_weights",
    "importance_weighted_bound",
    "linear_schedule",
    "log_partition_by_enumeration",
    "posterior_by_enumeration",
    "reverse_annealed_importance",
    "run_chain",
    "sandwich",
    "self_normalised_mean",
    "sigmoid_schedule",
]
