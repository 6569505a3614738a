"""Methods of inference: each makes a posterior of an energy and a space.

A method is a small frozen object with a `__call__`; another one is one more class.  Samplers of continuous
unknowns work on `FreeTarget(energy, space)`, an energy over a vector of reals.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int, PyTree

from .._core import (
    AbstractAlgorithm,
    AbstractContinuous,
    AbstractFinite,
    AbstractProgress,
    AbstractSource,
    AbstractSpace,
    Checkpoint,
    Info,
    Kind,
    boltzmann,
    count_states,
    enumerate_states,
    free_size,
    iterate,
    on_device,
    programs,
    silent,
    start,
    to_free,
)
from ..distributions import AbstractDistribution, Diagonal, Gaussian
from ._annealed import annealed_importance, geometric_path, linear_schedule, sandwich
from ._chains import chain_of
from ._diagnostics import (
    chain_diagnostics,
    chain_effective_size,
    potential_scale_reduction,
)
from ._gibbs import run_chain
from ._importance import effective_sample_size, importance_estimate
from ._kernels import Kernel
from ._minimise import AbstractSearch, EnergyFunction, Exhaustive, QuasiNewton, minimise
from ._pareto import pareto_smooth
from ._posterior import (
    AbstractPosterior,
    DistributionPosterior,
    DrawsPosterior,
    FinitePosterior,
    LogEvidence,
    Nature,
    PointPosterior,
    path_name,
)
from ._recognition import AbstractRecognition, weighted_draws
from ._spaces import FrozenSpace
from ._walks import FreeTarget, Pushforward, WalkState, first_improper, metropolis_step, slopes_near

# starts that are tried where states may be impossible
_STARTS = 64

KernelMaker = Callable[[EnergyFunction, Any], Kernel]
"""`maker(energy, space)` is a Markov kernel that leaves exp(−energy) over the space unchanged."""


class AbstractMethod(eqx.Module):
    """A way to infer an unknown from its energy."""

    @abc.abstractmethod
    def __call__(
        self, energy: EnergyFunction, space: PyTree[AbstractSpace], *, key: Array
    ) -> AbstractPosterior:
        """The posterior p(z) ∝ exp(−e(z)) over `space`.

        Its diagnostics have the energy at which the method began as `start_energy`, if it began anywhere:
        `infer` refuses one that is no number.
        """


class AbstractSteps(AbstractMethod):
    """A method that goes step by step: `infer` can show how far it is, save it and go on from there."""

    @property
    @abc.abstractmethod
    def n_steps(self) -> int:
        """How many steps it takes."""

    @abc.abstractmethod
    def init(self, energy: EnergyFunction, space: PyTree, *, key: Array) -> Any:
        """The first state."""

    @abc.abstractmethod
    def step(self, state: Any, energy: EnergyFunction, space: PyTree, *, key: Array) -> tuple[Any, Any]:
        """The next state, and what is kept of the step."""

    @abc.abstractmethod
    def begun(self, state: Any) -> dict[str, Array]:
        """What `infer` looks at before it goes on: `start_energy`, and `improper` where that is known."""

    @abc.abstractmethod
    def told(self, kept: Any) -> dict[str, Array]:
        """Numbers of a step for whoever watches."""

    @abc.abstractmethod
    def posterior(self, kept: Any, state: Any, energy: EnergyFunction, space: PyTree) -> AbstractPosterior:
        """The posterior of what was kept of all steps, along a first axis, and of the last state."""

    def __call__(self, energy: EnergyFunction, space: PyTree, *, key: Array) -> AbstractPosterior:
        begin, run = jax.random.split(key)

        def step(state: Any, i: Array) -> tuple[Any, Any]:
            return self.step(state, energy, space, key=jax.random.fold_in(run, i))

        first = self.init(energy, space, key=begin)
        last, kept = jax.lax.scan(step, first, jnp.arange(self.n_steps, dtype=jnp.int32))
        return self.posterior(kept, last, energy, space)


class _Stepping(AbstractAlgorithm):
    """Such a method in the loop of the library; what it is given for data is the energy."""

    method: AbstractSteps
    space: PyTree

    @property
    def needs(self) -> type[AbstractSource]:
        return AbstractSource

    def init(self, model: Any, data: Any, *, key: Array) -> Any:
        return self.method.init(data, self.space, key=key)

    def step(self, state: Any, data: Any, *, key: Array) -> tuple[Any, Info]:
        begun = self.method.begun(state)
        hopeless = ~jnp.isfinite(begun["start_energy"]) | (begun.get("improper", jnp.full((), -1)) >= 0)
        state, kept = self.method.step(state, data, self.space, key=key)
        return state, Info(hopeless, metrics=self.method.told(kept), trace=kept)

    def model(self, state: Any) -> Any:
        return state


@eqx.filter_jit
def _finish(
    method: AbstractSteps, kept: Any, state: Any, energy: EnergyFunction, space: Any
) -> AbstractPosterior:
    return method.posterior(kept, state, energy, space)


@eqx.filter_jit
def _energy_at(energy: EnergyFunction, space: Any, place: Array) -> Array:
    return FreeTarget(energy, space)(place)


def _by_steps(
    method: AbstractSteps,
    energy: EnergyFunction,
    space: Any,
    key: Array,
    progress: Callable[[int], AbstractProgress],
    checkpoint: Checkpoint | None,
) -> AbstractPosterior:
    if checkpoint is not None and not checkpoint.identity:
        bits = np.asarray(jax.random.key_data(key)).tolist()
        place = np.random.default_rng(0).normal(size=free_size(space))
        # what tells energies apart that are functions of the same shape
        value = float(_energy_at(energy, space, on_device(place)))
        named = f"{method!r} over {space!r} from {bits}, with the energy {value:.9g} at a place"
        checkpoint = dataclasses.replace(checkpoint, identity=named)
    fit = iterate(
        _Stepping(method, space),
        None,
        energy,
        key=key,
        max_iter=method.n_steps,
        progress=progress,
        checkpoint=checkpoint,
    )
    if fit.interrupted:
        raise KeyboardInterrupt
    _refuse_hopeless(method, method.begun(fit.state), space, finite=False)
    return _finish(method, fit.trace, fit.state, energy, space)


class AbstractChecked(AbstractMethod):
    """A method that can tell from its answer that it must not be believed."""

    @abc.abstractmethod
    def check(self, posterior: AbstractPosterior) -> None:
        """Refuses a posterior, on the host, that the method knows to be wrong."""


def infer(
    energy: EnergyFunction,
    space: PyTree[AbstractSpace],
    method: AbstractMethod,
    *,
    key: Array,
    progress: Callable[[int], AbstractProgress] = silent,
    checkpoint: Checkpoint | None = None,
) -> AbstractPosterior:
    """What is known of an unknown z with p(z) ∝ exp(−e(z)).

    Args:
        energy: a function of the unknown alone, such as `lambda z: model.energy(x, z)`.
        space: what the unknown can be, such as `model.latent(x)`: a tree of spaces.
        method: how it is inferred.
        key: seeds the method.
        progress: such as `progress_bar("sampling")`, for methods that go step by step.
        checkpoint: where such a method keeps what it has; called again, it goes on from there.

    >>> from freeenergy.distributions import Binary
    >>> found = infer(lambda z: -jnp.sum(z), Binary((2,)), Enumerate(), key=jax.random.key(0))
    >>> [round(float(p), 4) for p in found.mean()], round(float(found.log_evidence.nats), 4)
    ([0.7311, 0.7311], 2.6265)
    """
    programs.make_room()
    traced = any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((method, energy, key)))
    if isinstance(method, AbstractSteps) and not traced:
        posterior = _by_steps(method, energy, space, key, progress, checkpoint)
    else:
        posterior = _run(method, energy, space, key)
    told = dict(posterior.diagnostics)
    _refuse_hopeless(method, told, space, finite=isinstance(posterior, FinitePosterior))
    if "improper" in told:
        del told["improper"]
        posterior = dataclasses.replace(posterior, diagnostics=told)
    if isinstance(method, AbstractChecked) and not isinstance(jax.tree.leaves(posterior)[0], Tracer):
        method.check(posterior)
    _refuse_what_is_no_law(posterior, type(method).__name__)
    return judged(posterior)


def _refuse_hopeless(
    method: AbstractMethod, told: dict[str, Array], space: PyTree, *, finite: bool
) -> None:
    begun, coordinate = told.get("start_energy"), told.get("improper")
    if begun is not None and not isinstance(begun, Tracer) and not np.isfinite(begun):
        if finite and begun == np.inf:
            raise ValueError(
                "What is observed has probability zero: the energy is infinite in every state of the "
                "unknown."
            )
        raise ValueError(
            f"The energy must be finite where inference by {type(method).__name__} begins. "
            f"Got {float(begun):g} instead; give it another start, or look at the energy there."
        )
    if coordinate is not None and not isinstance(coordinate, Tracer) and coordinate >= 0:
        where = _named_coordinate(space, int(coordinate))
        raise ValueError(
            f"The posterior is improper: along {where} of the unknown "
            "exp(−energy) falls too slowly to be integrated; give the unknown a prior."
        )


def _named_coordinate(space: PyTree, number: int) -> str:
    """A free coordinate of the continuous part of an unknown, with the name of what it belongs to."""
    for path, leaf in jax.tree_util.tree_flatten_with_path(space)[0]:
        size = free_size(leaf) if isinstance(leaf, AbstractContinuous) else 0
        if number < size:
            name = path_name(path)
            return f"free coordinate {number}" + (f" of '{name}'" if name else "")
        number -= size
    return "a direction that is no coordinate"


def judged(posterior: AbstractPosterior) -> AbstractPosterior:
    """A posterior of Markov chains with what its draws are worth by their ranks, on the host."""
    if posterior.nature is not Nature.SAMPLES or any(
        isinstance(leaf, Tracer) for leaf in jax.tree.leaves(posterior)
    ):
        return posterior
    told = posterior.diagnostics | chain_diagnostics(posterior.chains()[1])
    return dataclasses.replace(posterior, diagnostics=told)


def _refuse_what_is_no_law(posterior: AbstractPosterior, method: str) -> None:
    """Refuses an approximation that is none."""
    told = posterior.diagnostics
    curvature, k = told.get("least_curvature"), told.get("pareto_k")
    if curvature is not None and not isinstance(curvature, Tracer) and not curvature > 0:
        raise ValueError(
            f"{method} needs an energy that bends upwards in every direction where it is least. Got a "
            f"curvature of {float(curvature):g} instead; give it another start, or use GaussianVariational."
        )
    if not isinstance(posterior, DistributionPosterior) or k is None or isinstance(k, Tracer):
        return
    if posterior.nature is Nature.EXACT or posterior.log_evidence is None:
        return
    if np.isnan(told["spread"]):
        raise ValueError(
            f"{method} must end at a law with finite energy. Got draws whose energy is no number; give it "
            "another start, shorter steps, or look at the energy there."
        )


@eqx.filter_jit
def _run(method: AbstractMethod, energy: EnergyFunction, space: Any, key: Array) -> AbstractPosterior:
    found = method(energy, space, key=key)
    # a mode needs no integral, and what is exact has one
    if found.nature in (Nature.EXACT, Nature.POINT) or "improper" in found.diagnostics:
        return found
    told = found.diagnostics | {"improper": _improper_near(found, energy, space, key)}
    return eqx.tree_at(lambda p: p.diagnostics, found, told)


def _improper_near(
    found: AbstractPosterior, energy: EnergyFunction, space: PyTree, key: Array
) -> Int[Array, ""]:
    """`first_improper` at a start of the space, or at the draw that weighs most where that is impossible.

    What is finite stays as it is in that draw.
    """
    values, weights = found.weighted_values()
    heaviest = jax.tree.map(lambda a: a[jnp.argmax(weights)], values)
    mask = jax.tree.map(lambda leaf: isinstance(leaf, AbstractContinuous), space)
    smooth = eqx.filter(space, mask)
    moving, fixed = eqx.partition(heaviest, mask)
    target = FreeTarget(lambda z: energy(eqx.combine(z, fixed)), smooth)
    begin = to_free(smooth, start(smooth, key=key))
    # what is proposed may be more than the unknown, such as a row with what is known of it
    alike = all(
        jnp.shape(value) == own.unknown_shape()
        for own, value in zip(leaves_of(smooth), jax.tree.leaves(moving), strict=True)
    )
    other = to_free(smooth, moving) if alike else begin
    return first_improper(target, begin, other, slopes_near(target, begin))


def leaves_of(space: PyTree) -> tuple[AbstractSpace, ...]:
    """The spaces of the leaves of an unknown."""
    return tuple(jax.tree.leaves(space))


def _is_finite(space: PyTree) -> bool:
    return all(isinstance(leaf, AbstractFinite) for leaf in leaves_of(space))


class Enumerate(AbstractMethod):
    """Visits every state of a finite unknown: exact.

    Attributes:
        batch_size: how many states are visited at once.
    """

    batch_size: int = eqx.field(static=True, default=1024)

    def __call__(self, energy: EnergyFunction, space: PyTree, *, key: Array) -> FinitePosterior:
        states = enumerate_states(space)
        energies = jax.lax.map(energy, states, batch_size=self.batch_size)
        free, probabilities = boltzmann(energies)
        evidence = LogEvidence(-free, jnp.zeros_like(free), Kind.EXACT)
        return FinitePosterior(
            states,
            probabilities,
            spaces=leaves_of(space),
            log_evidence=evidence,
            diagnostics={"start_energy": jnp.min(energies)},
        )


class Recognise(AbstractMethod):
    """Takes q from a recognition: an exact posterior that a model knows, a network, a Gaussian for this x.

    The evidence is E_q[−e(z) − log q(z)] over the draws.  Where q is exact every one of these numbers is
    log Z (also known as the candidate's formula), and their `spread` says whether it is.

    Attributes:
        recognition: makes q of the energy and of x, such as `model.recognition`.
        x: the observation, where the recognition looks at it.
        draws: how many draws answer questions that have no closed form.

    >>> from freeenergy.distributions import Diagonal, Gaussian, Reals
    >>> from freeenergy.inference import Exact
    >>> normal = Gaussian(jnp.ones(1), Diagonal(jnp.ones(1)))
    >>> known = Recognise(Exact(lambda x: normal))
    >>> found = infer(lambda z: jnp.sum((z - 1) ** 2) / 2, Reals((1,)), known, key=jax.random.key(0))
    >>> found.mean().tolist(), round(float(found.log_evidence.nats), 6), found.log_evidence.kind.value
    ([1.0], 0.918939, 'exact')
    """

    recognition: AbstractRecognition
    x: PyTree = None
    draws: int = eqx.field(static=True, default=4000)

    def __call__(self, energy: EnergyFunction, space: PyTree, *, key: Array) -> DistributionPosterior:
        q = self.recognition(energy, self.x)
        return from_distribution(
            q,
            space,
            self.recognition.evidence_kind,
            weighted_draws(energy, q, samples=self.draws, key=key),
        )


def from_distribution(
    q: AbstractDistribution,
    space: PyTree,
    kind: Kind | None,
    drawn: tuple[PyTree, Float[Array, " draws"]],
) -> DistributionPosterior:
    """The posterior that q stands for, of draws of it and their log-weights."""
    draws, log_weights = drawn
    # a draw that cannot be makes the bound −∞, and is no error
    spread = jnp.where(jnp.any(jnp.isneginf(log_weights)), jnp.inf, jnp.std(log_weights))
    spread = jnp.where(jnp.any(jnp.isnan(log_weights)), jnp.nan, spread)
    exact = kind is Kind.EXACT
    # (draws of an exact posterior have one and the same weight)
    error = jnp.zeros_like(spread) if exact else spread / len(log_weights) ** 0.5
    return DistributionPosterior(
        q,
        draws,
        Nature.EXACT if exact else Nature.VARIATIONAL,
        spaces=leaves_of(space),
        log_evidence=None if kind is None else LogEvidence(jnp.mean(log_weights), error, kind),
        diagnostics={
            "spread": spread,
            "effective_share": effective_sample_size(log_weights) / len(log_weights),
            # (weights of finitely many states have no tail)
            "pareto_k": jnp.full((), jnp.nan) if _is_finite(space) else pareto_smooth(log_weights).pareto_k,
        },
    )


class ArgMin(AbstractMethod):
    """The value of least energy: the mode (MAP).

    A finite unknown is searched exhaustively, a continuous one by `search` in its free coordinates, whose
    log-determinant does not count: the mode is that of the density of z.

    Attributes:
        search: from `start`, or from a start of the space.
    """

    search: AbstractSearch = QuasiNewton()
    start: PyTree = None

    def __call__(self, energy: EnergyFunction, space: PyTree, *, key: Array) -> PointPosterior:
        if _is_finite(space):
            found = minimise(energy, enumerate_states(space), Exhaustive())
            point, begun = found.point, found.energy
        else:
            target = FreeTarget(energy, space)
            begin = to_free(space, start(space, key=key) if self.start is None else self.start)
            found = minimise(lambda v: energy(target.value(v)), begin, self.search)
            point, begun = target.value(found.point), energy(target.value(begin))
        told = {"converged": found.converged, "steps": found.steps, "start_energy": begun}
        return PointPosterior(point, found.energy, spaces=leaves_of(space), diagnostics=told)


class Importance(AbstractMethod):
    """Independent draws of a proposal, weighted by exp(−e(z)) / q(z).

    Attributes:
        proposal: q, which must be wider than the posterior.
        samples: how many draws.
        smooth: whether the largest weights are smoothed (PSIS); the evidence is that of the weights as
            they are, which is unbiased.  Where `pareto_k` of the diagnostics is above 0.7 the answer is not
            to be believed.
    """

    proposal: AbstractDistribution
    samples: int = eqx.field(static=True, default=4000)
    smooth: bool = eqx.field(static=True, default=True)

    def __call__(self, energy: EnergyFunction, space: PyTree, *, key: Array) -> DrawsPosterior:
        draws, log_weights = weighted_draws(energy, self.proposal, samples=self.samples, key=key)
        return _from_weights(draws, log_weights, space, smooth=self.smooth)


def _from_weights(
    draws: PyTree, log_weights: Float[Array, " draws"], space: PyTree, *, smooth: bool = False
) -> DrawsPosterior:
    estimate, smoothed = importance_estimate(log_weights), pareto_smooth(log_weights)
    return DrawsPosterior(
        draws,
        smoothed.log_weights if smooth else log_weights,
        spaces=leaves_of(space),
        log_evidence=LogEvidence(estimate.log_mean, estimate.stderr, Kind.LOWER),
        diagnostics={
            "effective_sample_size": estimate.effective_sample_size,
            "effective_share": estimate.effective_sample_size / len(log_weights),
            "pareto_k": smoothed.pareto_k,
            "start_energy": -jnp.max(log_weights),
        },
    )


class Anneal(AbstractMethod):
    """Annealed importance sampling: draws of a base, led to the posterior along a path of energies.

    Attributes:
        kernel: makes the Markov kernel of each energy on the way, such as `random_walk` or `gibbs_sweep`.
        base: where the path begins, a normalised distribution; by default the standard normal of the free
            coordinates.
        chains: how many draws.
        steps: how many energies there are on the way.
        settle: where it is a number, the way back is gone too, from the ends of the chains after so many
            steps of the kernel (bidirectional Monte Carlo): `above` and `above_stderr` of the diagnostics
            are then an estimate of log Z that is too high on average, for a kernel that is reversible.
    """

    kernel: KernelMaker
    base: AbstractDistribution | None = None
    chains: int = eqx.field(static=True, default=400)
    steps: int = eqx.field(static=True, default=100)
    settle: int | None = eqx.field(static=True, default=None)

    def __call__(self, energy: EnergyFunction, space: PyTree, *, key: Array) -> DrawsPosterior:
        begin, run = jax.random.split(key)
        base = standard_base(space) if self.base is None else self.base
        path = geometric_path(lambda z: -base.log_prob(z), energy)
        arguments = (
            path,
            lambda beta, z, *, key: self.kernel(lambda y: path(beta, y), space)(z, key=key),
            jax.vmap(lambda k: base.sample(key=k))(jax.random.split(begin, self.chains)),
        )
        ends = {"log_partition": jnp.zeros(()), "schedule": linear_schedule(self.steps)}
        if self.settle is None:
            found = annealed_importance(*arguments, **ends, key=run)
            return _from_weights(found.states, found.log_weights, space)
        found, above = sandwich(*arguments, **ends, settle=self.settle, key=run)
        posterior = _from_weights(found.states, found.log_weights, space)
        told = posterior.diagnostics | {"above": above.log_partition, "above_stderr": above.stderr}
        return eqx.tree_at(lambda p: p.diagnostics, posterior, told)


class EvenStates(AbstractDistribution):
    """Every state of a finite space alike."""

    space: FrozenSpace = eqx.field(static=True, converter=FrozenSpace.of)

    def log_prob(self, x: PyTree) -> Float[Array, ""]:
        return jnp.full((), -np.log(float(count_states(self.space.tree))))

    def sample(self, *, key: Array) -> PyTree:
        return start(self.space.tree, key=key)


def standard_base(space: PyTree) -> AbstractDistribution:
    """Where a path begins by default: the standard normal of free coordinates, or all states alike."""
    if all(isinstance(leaf, AbstractFinite) for leaf in leaves_of(space)):
        return EvenStates(space)
    size = FreeTarget(jnp.sum, space).size
    return Pushforward(Gaussian(jnp.zeros(size), Diagonal(jnp.ones(size))), space)


class MarkovChain(AbstractMethod):
    """Draws of any Markov kernel (MCMC): `MarkovChain(gibbs_sweep)` is Gibbs sampling.

    Attributes:
        kernel: makes the Markov kernel of the energy and the space: `gibbs_sweep`, `gibbs_scan`,
            `MetropolisHastings(…)`, `SliceSampler()`, `AdjustedLangevin()`, `Alternate(…)`.
        start: where all chains begin; by default each somewhere in the space.
        chains, steps: how many draws each of how many chains keeps.
        burn_in: how many each drops at the beginning.
        thin: one in how many it keeps after that.
    """

    kernel: KernelMaker
    start: PyTree = None
    chains: int = eqx.field(static=True, default=4)
    steps: int = eqx.field(static=True, default=1000)
    burn_in: int = eqx.field(static=True, default=500)
    thin: int = eqx.field(static=True, default=1)

    def __call__(self, energy: EnergyFunction, space: PyTree, *, key: Array) -> DrawsPosterior:
        count = {"steps": self.steps, "burn_in": self.burn_in, "thin": self.thin}

        def chain(key: Array) -> tuple[PyTree, dict[str, Array], Array]:
            begin, run = jax.random.split(key)
            first = _possible_start(energy, space, begin) if self.start is None else self.start
            kept, told = chain_of(self.kernel, energy, space, first, **count, key=run)
            return kept, told, energy(first)

        draws, told, begun = jax.vmap(chain)(jax.random.split(key, self.chains))
        averages = {name: jnp.mean(numbers) for name, numbers in told.items()}
        told = worth_of(draws, begun) | averages
        return DrawsPosterior(draws, None, spaces=leaves_of(space), diagnostics=told)


def _possible_start(energy: EnergyFunction, space: PyTree, key: Array) -> PyTree:
    """A start of the space; of a finite one the first of several that is possible, if one is."""
    if not _is_finite(space):
        return start(space, key=key)
    keys = jnp.concatenate([key[None], jax.random.split(key, _STARTS - 1)])
    tried = jax.vmap(lambda k: start(space, key=k))(keys)
    place = jnp.argmax(jnp.isfinite(jax.vmap(energy)(tried)))
    return jax.tree.map(lambda a: a[place], tried)


def worth_of(draws: PyTree, begun: Float[Array, " *chains"]) -> dict[str, Array]:
    """What the draws (chains, steps, …) are worth, at the worst entry."""
    chains, steps = jax.tree.leaves(draws)[0].shape[:2]
    entries = [a.reshape(chains, steps, -1).astype(float) for a in jax.tree.leaves(draws)]
    flat = jnp.concatenate(entries, axis=2)
    return {
        "effective_sample_size": jnp.min(chain_effective_size(flat)),
        "potential_scale_reduction": jnp.max(potential_scale_reduction(flat)),
        "start_energy": jnp.max(begun),
    }


class RandomWalk(AbstractMethod):
    """Random-walk Metropolis over the free coordinates of any tree of continuous spaces.

    During the burn-in each chain adapts the shape of its steps, a Cholesky factor S, until the wanted share
    of them is taken (robust adaptive Metropolis, Vihola 2012),

        S Sᵀ ← S (I + η (α − α*) uuᵀ/‖u‖²) Sᵀ,    η = min(1, d n^{−2/3}),

    and keeps it from then on.  No gradient is needed.

    Attributes:
        start: where all chains begin; by default each somewhere in the space.
        chains, steps, burn_in, thin: as in `MarkovChain`.
        scale: the size of the first steps.
        acceptance: α*, the share of steps to take.
    """

    start: PyTree = None
    chains: int = eqx.field(static=True, default=4)
    steps: int = eqx.field(static=True, default=2000)
    burn_in: int = eqx.field(static=True, default=2000)
    thin: int = eqx.field(static=True, default=1)
    scale: float = eqx.field(static=True, default=1.0)
    acceptance: float = eqx.field(static=True, default=0.3)

    def __call__(self, energy: EnergyFunction, space: PyTree, *, key: Array) -> DrawsPosterior:
        target = FreeTarget(energy, space)

        def chain(key: Array) -> tuple[Array, Array, Array, Array]:
            begin, warm, run = jax.random.split(key, 3)
            free = to_free(space, start(space, key=begin) if self.start is None else self.start)
            first = WalkState(free, target(free), jnp.zeros((), free.dtype))

            def kernel(walk: _Walk, *, key: Array) -> _Walk:
                # one loop for the warm-up and for what is kept has the energy in it once; each has its keys
                del key
                warms = walk.number < self.burn_in
                number = jnp.where(warms, walk.number, walk.number - self.burn_in)
                draw, choose = jax.random.split(jax.random.fold_in(jnp.where(warms, warm, run), number))
                u = jax.random.normal(draw, free.shape, free.dtype)
                accepted = jnp.where(walk.number == self.burn_in, 0, walk.state.accepted)
                here = walk.state._replace(accepted=accepted)
                state, chance = metropolis_step(target, here, walk.factor @ u, choose)
                factor = jax.lax.cond(
                    warms, lambda: self._adapted(walk.factor, u, chance, number), lambda: walk.factor
                )
                return _Walk(walk.number + 1, state, factor)

            eye = jnp.eye(free.size, dtype=free.dtype)
            free, accepted, scale = run_chain(
                kernel,
                _Walk(jnp.zeros((), int), first, self.scale / free.size**0.5 * eye),
                steps=self.steps,
                burn_in=self.burn_in,
                thin=self.thin,
                keep=lambda w: (
                    w.state.free,
                    w.state.accepted,
                    jnp.sqrt(jnp.mean(w.factor**2) * len(eye)),
                ),
                key=run,
            )
            return free, accepted[-1] / (self.steps * self.thin), first.energy, scale[-1]

        free, share, begun, scale = jax.vmap(chain)(jax.random.split(key, self.chains))
        draws = jax.vmap(jax.vmap(target.value))(free)
        told = worth_of(free, begun) | {"acceptance": jnp.mean(share), "scale": jnp.mean(scale)}
        return DrawsPosterior(draws, None, spaces=leaves_of(space), diagnostics=told)

    def _adapted(
        self, factor: Float[Array, "size size"], u: Float[Array, " size"], chance: Array, number: Array
    ) -> Float[Array, "size size"]:
        """The shape of the steps after a step of the warm-up, factor @ u, with that chance to be taken."""
        eye = jnp.eye(len(u), dtype=u.dtype)
        rate = jnp.minimum(1, len(u) * (number.astype(u.dtype) + 1.0) ** (-2 / 3))
        change = eye + rate * (chance - self.acceptance) * jnp.outer(u, u) / jnp.vdot(u, u)
        return jnp.linalg.cholesky(factor @ change @ factor.T)


class _Walk(NamedTuple):
    """A random walk with the number of its next step and the shape of its steps."""

    number: Int[Array, ""]
    state: WalkState
    factor: Float[Array, "size size"]
