"""Inference: eliminating the unknown, over arrays and callables."""

from .._core import (
    FreeVector,
    count_states,
    enumerate_states,
    free_size,
    free_vector,
    from_free,
    parameter_space,
    start,
    state_at,
    state_number,
    to_free,
)
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
from ._bridge import (
    Bridge,
    bridge_evidence,
)
from ._chain import (
    AbstractBeliefs,
    AbstractParallelBeliefs,
    Filtered,
    Smoothed,
    filter,
    parallel_filter,
    parallel_smooth,
    sample_paths,
    smooth,
)
from ._chain_blocks import (
    blocked_evidence,
    blocked_filter,
    blocked_smooth,
)
from ._chain_diffuse import (
    DiffuseBeliefs,
)
from ._chain_finite import (
    BestBeliefs,
    BestPaths,
    FiniteBeliefs,
    FiniteStep,
    StateClasses,
    best_paths,
    classify_states,
    stationary,
)
from ._chain_gaussian import (
    GaussianBelief,
    LinearGaussianBeliefs,
    observation_disturbance,
    state_disturbance,
)
from ._chain_root import (
    SquareRootBeliefs,
)
from ._chains import (
    AbstractTuned,
)
from ._choice import (
    Collapsed,
    Rounded,
)
from ._diagnostics import (
    bulk_effective_size,
    chain_effective_size,
    potential_scale_reduction,
    rank_scale_reduction,
    tail_effective_size,
)
from ._eliminate import (
    Eliminate,
    FactorEnergy,
)
from ._energies import (
    Energy,
)
from ._enumerate import (
    binary_states,
    log_partition_by_enumeration,
    posterior_by_enumeration,
)
from ._expectation import (
    AbstractExpectation,
    BonnetPrice,
    Enumeration,
    GumbelSoftmax,
    Pathwise,
    Quadratic,
    ScoreFunction,
    Split,
    StraightThrough,
)
from ._factors import (
    Factor,
    eliminate,
)
from ._filters import (
    AbstractLinearisation,
    AbstractResampler,
    LinearisedBeliefs,
    Multinomial,
    Observed,
    ParticleBeliefs,
    Particles,
    Residual,
    Stratified,
    Systematic,
    Taylor,
    Unscented,
)
from ._finite_chains import (
    FiniteChain,
    Mixing,
)
from ._gibbs import (
    Alternate,
    Gibbs,
    block_gibbs,
    gibbs_scan,
    gibbs_sweep,
    run_chain,
)
from ._graphs import (
    DirectedGraph,
    Triangulation,
    UndirectedGraph,
)
from ._hmc import (
    NUTS,
    HamiltonianMonteCarlo,
)
from ._importance import (
    ImportanceEstimate,
    effective_sample_size,
    importance_estimate,
    importance_mean,
    self_normalised_mean,
)
from ._junction import (
    CliqueBeliefs,
    JunctionTree,
    LoopyBeliefs,
    loopy_belief_propagation,
)
from ._kernels import (
    AbstractFiniteKernel,
    AbstractKernel,
    AbstractWalk,
    Cycle,
    OneOf,
    transition_matrix,
)
from ._langevin import (
    AdjustedLangevin,
    UnadjustedLangevin,
)
from ._laplace import (
    Laplace,
)
from ._latent_processes import (
    AbstractValuesMethod,
    LaplaceMethod,
    VariationalGaussian,
)
from ._mean_field import (
    CoordinateMeanField,
    Factors,
)
from ._measurements import (
    LinearStep,
    collapse,
    measure,
)
from ._methods import (
    AbstractMethod,
    AbstractSteps,
    Anneal,
    ArgMin,
    Enumerate,
    Importance,
    MarkovChain,
    RandomWalk,
    Recognise,
    infer,
)
from ._metropolis import (
    Metropolis,
    MetropolisHastings,
)
from ._minimise import (
    AbstractSearch,
    Damped,
    Descent,
    Exhaustive,
    Extrapolated,
    FixedPoint,
    Minimum,
    ProximalGradient,
    QuasiNewton,
    minimise,
)
from ._pareto import (
    ParetoSmoothed,
    pareto_smooth,
)
from ._pathfinder import (
    Pathfinder,
)
from ._posterior import (
    AbstractPosterior,
    DistributionPosterior,
    DrawsPosterior,
    FinitePosterior,
    LogEvidence,
    Nature,
    PointPosterior,
    PosteriorSummary,
)
from ._recognition import (
    AbstractRecognition,
    Amortised,
    Exact,
    Finite,
    LocalGaussian,
    Point,
    free_energy,
    importance_draws,
    importance_log_weights,
    importance_resample,
    importance_weighted_bound,
)
from ._rejection import (
    InverseTransform,
    Rejection,
)
from ._slice import (
    SliceSampler,
)
from ._smc import (
    SequentialMonteCarlo,
)
from ._stochastic import (
    RowsEnergy,
    StochasticLangevin,
)
from ._table_rows import (
    TableRows,
)
from ._tempering import (
    ParallelTempering,
    SimulatedAnnealing,
)
from ._variational import (
    AbstractDivergence,
    Exclusive,
    FlowVariational,
    GaussianVariational,
    Inclusive,
    MeanField,
    Refined,
    Weighted,
    nearest,
)
from ._walks import (
    FreeTarget,
    Pushforward,
    random_walk,
)

__all__ = [
    "NUTS",
    "AbstractBeliefs",
    "AbstractDivergence",
    "AbstractExpectation",
    "AbstractFiniteKernel",
    "AbstractKernel",
    "AbstractLinearisation",
    "AbstractMethod",
    "AbstractParallelBeliefs",
    "AbstractPosterior",
    "AbstractRecognition",
    "AbstractResampler",
    "AbstractSearch",
    "AbstractSteps",
    "AbstractTuned",
    "AbstractValuesMethod",
    "AbstractWalk",
    "AdjustedLangevin",
    "Alternate",
    "Amortised",
    "Anneal",
    "Annealed",
    "ArgMin",
    "BestBeliefs",
    "BestPaths",
    "BonnetPrice",
    "Bridge",
    "CliqueBeliefs",
    "Collapsed",
    "CoordinateMeanField",
    "Cycle",
    "Damped",
    "Descent",
    "DiffuseBeliefs",
    "DirectedGraph",
    "DistributionPosterior",
    "DrawsPosterior",
    "Eliminate",
    "Energy",
    "Enumerate",
    "Enumeration",
    "Exact",
    "Exclusive",
    "Exhaustive",
    "Extrapolated",
    "Factor",
    "FactorEnergy",
    "Factors",
    "Filtered",
    "Finite",
    "FiniteBeliefs",
    "FiniteChain",
    "FinitePosterior",
    "FiniteStep",
    "FixedPoint",
    "FlowVariational",
    "FreeTarget",
    "FreeVector",
    "GaussianBelief",
    "GaussianVariational",
    "Gibbs",
    "GumbelSoftmax",
    "HamiltonianMonteCarlo",
    "Importance",
    "ImportanceEstimate",
    "Inclusive",
    "InverseTransform",
    "JunctionTree",
    "Laplace",
    "LaplaceMethod",
    "LinearGaussianBeliefs",
    "LinearStep",
    "LinearisedBeliefs",
    "LocalGaussian",
    "LogEvidence",
    "LoopyBeliefs",
    "MarkovChain",
    "MeanField",
    "Metropolis",
    "MetropolisHastings",
    "Minimum",
    "Mixing",
    "Multinomial",
    "Nature",
    "Observed",
    "OneOf",
    "ParallelTempering",
    "ParetoSmoothed",
    "ParticleBeliefs",
    "Particles",
    "Pathfinder",
    "Pathwise",
    "Point",
    "PointPosterior",
    "PosteriorSummary",
    "ProximalGradient",
    "Pushforward",
    "Quadratic",
    "QuasiNewton",
    "RandomWalk",
    "Recognise",
    "Refined",
    "Rejection",
    "Residual",
    "Rounded",
    "RowsEnergy",
    "Sandwich",
    "ScoreFunction",
    "SequentialMonteCarlo",
    "SimulatedAnnealing",
    "SliceSampler",
    "Smoothed",
    "Split",
    "SquareRootBeliefs",
    "StateClasses",
    "StochasticLangevin",
    "StraightThrough",
    "Stratified",
    "Systematic",
    "TableRows",
    "Taylor",
    "Triangulation",
    "UnadjustedLangevin",
    "UndirectedGraph",
    "Unscented",
    "VariationalGaussian",
    "Weighted",
    "annealed_importance",
    "best_paths",
    "binary_states",
    "block_gibbs",
    "blocked_evidence",
    "blocked_filter",
    "blocked_smooth",
    "bridge_evidence",
    "bulk_effective_size",
    "chain_effective_size",
    "classify_states",
    "collapse",
    "count_states",
    "effective_sample_size",
    "eliminate",
    "enumerate_states",
    "filter",
    "free_energy",
    "free_size",
    "free_vector",
    "from_free",
    "geometric_path",
    "gibbs_scan",
    "gibbs_sweep",
    "importance_draws",
    "importance_estimate",
    "importance_log_weights",
    "importance_mean",
    "importance_resample",
    "importance_weighted_bound",
    "infer",
    "linear_schedule",
    "log_partition_by_enumeration",
    "loopy_belief_propagation",
    "measure",
    "minimise",
    "nearest",
    "observation_disturbance",
    "parallel_filter",
    "parallel_smooth",
    "parameter_space",
    "pareto_smooth",
    "posterior_by_enumeration",
    "potential_scale_reduction",
    "random_walk",
    "rank_scale_reduction",
    "reverse_annealed_importance",
    "run_chain",
    "sample_paths",
    "sandwich",
    "self_normalised_mean",
    "sigmoid_schedule",
    "smooth",
    "start",
    "state_at",
    "state_disturbance",
    "state_number",
    "stationary",
    "tail_effective_size",
    "to_free",
    "transition_matrix",
]
