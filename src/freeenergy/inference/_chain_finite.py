"""Chains with finitely many hidden states."""

from __future__ import annotations

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jaxtyping import Bool, Float, Int
from scipy.sparse.csgraph import connected_components

from ._chain import AbstractBeliefs, AbstractParallelBeliefs, filter, sample_paths


class FiniteStep(NamedTuple):
    """A time step of a chain with K states.

    Attributes:
        log_likelihood: log p(y_t | x_t) for each state; zero where nothing was observed.
        transition: p(x_t = j | x_{t−1} = i) at [i, j], if it differs from step to step.
    """

    log_likelihood: Float[Array, "*time states"]
    transition: Float[Array, "*time states states"] | None = None


class FiniteKernel(NamedTuple):
    """p(x_{t−1} = i | x_t = j) = belief_i A_ij / predicted_j, kept as its factors."""

    belief: Float[Array, "*time states"]
    predicted: Float[Array, "*time states"]
    transition: Float[Array, "*time states states"]


class FiniteElement(NamedTuple):
    """p(x_t = j | x_s = i, y) at [i, j], and log p(y | x_s = i) up to a constant."""

    kernel: Float[Array, "*time states states"]
    log_weight: Float[Array, "*time states"]


def _ratio(part: Float[Array, "*shape"], whole: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """part / whole, where 0 / 0 is 0."""
    return jnp.where(whole > 0, part / jnp.where(whole > 0, whole, 1), 0)


def normalise(
    weights: Float[Array, "*rows states"], log_weights: Float[Array, "*rows states"]
) -> tuple[Float[Array, "*rows states"], Float[Array, "*rows"]]:
    """w_k exp(l_k) / Z and log Z along the last axis; all-zero and −∞ where nothing is possible.

    The largest exponent among possible states is taken out first: Z neither overflows nor vanishes.
    """
    possible = (weights > 0) & (log_weights > -jnp.inf)
    shift = jnp.max(jnp.where(possible, log_weights, -jnp.inf), axis=-1, keepdims=True)
    some = shift > -jnp.inf
    shift = jax.lax.stop_gradient(jnp.where(some, shift, 0))
    mass = weights * jnp.exp(jnp.where(possible, log_weights - shift, -jnp.inf))
    total = jnp.sum(mass, axis=-1, keepdims=True)
    safe = jnp.where(some, total, 1)
    log_total = jnp.where(some, jnp.log(safe) + shift, -jnp.inf)
    return mass / safe, log_total[..., 0]


def nan_if_impossible(belief: Float[Array, "*rows states"]) -> Float[Array, "*rows states"]:
    """A belief along the last axis; NaN where it is all zero, after what cannot occur."""
    return jnp.where(jnp.sum(belief, axis=-1, keepdims=True) > 0, belief, jnp.nan)


class FiniteBeliefs(AbstractParallelBeliefs):
    """Beliefs are K probabilities: the scaled forward recursion and the α–γ smoother.

    Also known as the forward–backward algorithm, and as Hamilton's filter with Kim's smoother.

    An impossible observation has evidence −∞ and leaves a belief of zeros behind.

    Attributes:
        transition: p(x_t = j | x_{t−1} = i) at [i, j]; None if every step brings its own.

    >>> chain = FiniteBeliefs(jnp.array([[0.6, 0.4], [0.5, 0.5]]))
    >>> likelihoods = jnp.array([[0.4, 0.1], [0.2, 0.5], [0.4, 0.1]])
    >>> result = filter(chain, jnp.array([0.8, 0.2]), FiniteStep(jnp.log(likelihoods)))
    >>> round(float(jnp.exp(result.log_evidence.sum())), 6)
    0.028562
    """

    transition: Float[Array, "states states"] | None = None

    def _transition(self, step: FiniteStep) -> Float[Array, "states states"]:
        transition = self.transition if step.transition is None else step.transition
        if transition is None:
            raise ValueError("A transition must be given by FiniteBeliefs or by every step. Got none.")
        return transition

    def predict(self, belief: Float[Array, " states"], step: FiniteStep) -> Float[Array, " states"]:
        return belief @ self._transition(step)

    def update(
        self, predicted: Float[Array, " states"], step: FiniteStep
    ) -> tuple[Float[Array, " states"], Float[Array, ""]]:
        return normalise(predicted, step.log_likelihood)

    def reverse(
        self, belief: Float[Array, " states"], predicted: Float[Array, " states"], step: FiniteStep
    ) -> FiniteKernel:
        return FiniteKernel(belief, predicted, self._transition(step))

    def back(
        self, smoothed: Float[Array, " states"], kernel: FiniteKernel
    ) -> tuple[Float[Array, " states"], Float[Array, "states states"]]:
        later = _ratio(smoothed, kernel.predicted)
        pair = kernel.belief[:, None] * kernel.transition * later[None, :]
        return kernel.belief * (kernel.transition @ later), pair

    def forward(self, pair: Float[Array, "states states"]) -> Float[Array, "states states"]:
        total = jnp.sum(pair, axis=-1, keepdims=True)
        return _ratio(pair, jnp.broadcast_to(total, pair.shape))

    def sample(self, belief: Float[Array, " states"], *, key: Array) -> Int[Array, ""]:
        return jax.random.categorical(key, jnp.log(belief))

    def sample_back(self, state: Int[Array, ""], kernel: FiniteKernel, *, key: Array) -> Int[Array, ""]:
        return jax.random.categorical(key, jnp.log(kernel.belief * kernel.transition[:, state]))

    def element(self, step: FiniteStep, observed: Bool[Array, ""]) -> FiniteElement:
        logs = jnp.where(observed, step.log_likelihood, 0)
        transition = self._transition(step)
        return FiniteElement(*normalise(transition, jnp.broadcast_to(logs[None, :], transition.shape)))

    def certain(self, belief: Float[Array, " states"]) -> FiniteElement:
        return FiniteElement(jnp.broadcast_to(belief[None, :], (len(belief),) * 2), jnp.zeros_like(belief))

    def from_kernel(self, kernel: FiniteKernel) -> FiniteElement:
        joint = kernel.belief[:, None] * kernel.transition
        matrix = _ratio(joint, jnp.broadcast_to(kernel.predicted[None, :], joint.shape)).T
        return FiniteElement(matrix, jnp.zeros_like(kernel.belief))

    def combine(self, first: FiniteElement, second: FiniteElement) -> FiniteElement:
        weights = jnp.broadcast_to(second.log_weight[None, :], first.kernel.shape)
        middle, gain = normalise(first.kernel, weights)
        return FiniteElement(middle @ second.kernel, first.log_weight + gain)

    def belief(self, element: FiniteElement) -> Float[Array, " states"]:
        return element.kernel[0]


class BestKernel(NamedTuple):
    """For each state and rank, where the path that ends there came from; and as for `FiniteKernel`."""

    origin: Int[Array, "*time paths"]
    belief: Float[Array, "*time states n"]
    predicted: Float[Array, "*time states n"]
    log_transition: Float[Array, "*time states states"]


class BestBeliefs(AbstractBeliefs):
    """The zero-temperature limit: maxima in place of sums, over the `n` best paths into each state.

    A belief holds, for each state, the log-probabilities of the n most probable paths that end in it,
    best first and relative to the best of all.  `smooth` gives the same for whole paths (the
    max-marginals).  The reverse kernel is a pointer, so that a draw of the path is the path itself:
    `sample_paths` is the backtrace of Viterbi's algorithm, of n paths at once.  Its states are numbers
    state × n + rank.  Also known as max-product, or min-sum, messages.

    Attributes:
        log_transition: log p(x_t = j | x_{t−1} = i) at [i, j].
        n: how many paths are kept.
    """

    log_transition: Float[Array, "states states"]
    n: int = eqx.field(static=True, default=1)

    def _candidates(
        self, belief: Float[Array, "states n"], step: FiniteStep
    ) -> tuple[Float[Array, "states paths"], Float[Array, "states states"]]:
        logs = self.log_transition if step.transition is None else jnp.log(step.transition)
        # [j, (i, r)]: the r-th path into i, extended to j
        extended = belief[None] + logs.T[:, :, None]
        return extended.reshape(len(logs), -1), logs

    def predict(self, belief: Float[Array, "states n"], step: FiniteStep) -> Float[Array, "states n"]:
        return jax.lax.top_k(self._candidates(belief, step)[0], self.n)[0]

    def update(
        self, predicted: Float[Array, "states n"], step: FiniteStep
    ) -> tuple[Float[Array, "states n"], Float[Array, ""]]:
        scores = predicted + step.log_likelihood[:, None]
        best = jnp.max(scores)
        return scores - jnp.where(best > -jnp.inf, best, 0), best

    def reverse(
        self, belief: Float[Array, "states n"], predicted: Float[Array, "states n"], step: FiniteStep
    ) -> BestKernel:
        candidates, logs = self._candidates(belief, step)
        return BestKernel(jax.lax.top_k(candidates, self.n)[1].ravel(), belief, predicted, logs)

    def back(
        self, smoothed: Float[Array, "states n"], kernel: BestKernel
    ) -> tuple[Float[Array, "states n"], Float[Array, "states states"]]:
        possible = kernel.predicted[:, 0] > -jnp.inf
        rest = smoothed[:, 0] - jnp.where(possible, kernel.predicted[:, 0], 0)
        onward = kernel.log_transition + rest[None, :]
        pair = kernel.belief[:, :1] + onward
        return kernel.belief + jnp.max(onward, axis=1)[:, None], pair

    def forward(self, pair: Float[Array, "states states"]) -> Float[Array, "states states"]:
        best = jnp.max(pair, axis=1, keepdims=True)
        return pair - jnp.where(best > -jnp.inf, best, 0)

    def sample(self, belief: Float[Array, "states n"], *, key: Array) -> Int[Array, " n"]:
        return jax.lax.top_k(belief.ravel(), self.n)[1]

    def sample_back(self, state: Int[Array, " n"], kernel: BestKernel, *, key: Array) -> Int[Array, " n"]:
        return kernel.origin[state]


class BestPaths(NamedTuple):
    """The most probable paths, best first.

    Attributes:
        states: a path in each column.
        log_prob: log p(path, y) of each; −∞ where there are fewer than n paths.
    """

    states: Int[Array, "time n"]
    log_prob: Float[Array, " n"]


def best_paths(
    initial: Float[Array, " states"],
    transition: Float[Array, "states states"] | None,
    steps: FiniteStep,
    n: int = 1,
    starts: Bool[Array, " time"] | None = None,
    real: Bool[Array, " time"] | None = None,
) -> BestPaths:
    """The `n` most probable paths of hidden states: Viterbi's algorithm for n = 1, list Viterbi for more.

    Args:
        initial: p(x_1).
        transition: p(x_t = j | x_{t−1} = i) at [i, j]; None if every step brings its own.
        steps: log-likelihoods of each time step.
        n: how many paths.
        starts, real: as for `filter`; with several series, n must be one.

    >>> likelihoods = jnp.array([[0.4, 0.1], [0.2, 0.5], [0.4, 0.1]])
    >>> transition = jnp.array([[0.6, 0.4], [0.5, 0.5]])
    >>> best = best_paths(jnp.array([0.8, 0.2]), transition, FiniteStep(jnp.log(likelihoods)))
    >>> best.states[:, 0].tolist(), round(float(jnp.exp(best.log_prob[0])), 6)
    ([0, 1, 0], 0.0128)
    """
    if transition is None:
        transition = jnp.ones((len(initial),) * 2, initial.dtype)
    beliefs = BestBeliefs(jnp.log(transition), n)
    first = jnp.full((len(initial), n), -jnp.inf, initial.dtype).at[:, 0].set(jnp.log(initial))
    result = filter(beliefs, first, steps, None, starts, real)
    # nothing is drawn at temperature zero: the key has no effect
    path = sample_paths(beliefs, result, steps, starts, real, key=jax.random.key(0))
    ends = jax.lax.top_k(result.filtered[-1].ravel(), n)[0]
    return BestPaths(path // n, jnp.sum(result.log_evidence) + ends)


def tempered(
    probabilities: Float[Array, "*shape"], temperature: Float[Array, ""]
) -> Float[Array, "*shape"]:
    """p^(1/T), not normalised; zero stays zero."""
    positive = probabilities > 0
    return jnp.where(positive, jnp.where(positive, probabilities, 1) ** (1 / temperature), 0)


def stationary(transition: Float[Array | np.ndarray, "states states"]) -> Float[Array, " states"]:
    """The distribution π = π A of a chain that has only one, be it periodic or with states that it leaves.

    States that reach each other form a class, and a class that is never left has a law of its own.  Where
    there are several of these the stationary law is not unique, which is refused; inside compiled code,
    which cannot refuse, the answer is NaN.

    Args:
        transition: A, with p(next = j | now = i) at [i, j].

    >>> [round(float(p), 4) for p in stationary(jnp.array([[0.5, 0.5], [0.4, 0.6]]))]
    [0.4444, 0.5556]
    """
    if isinstance(transition, Tracer):
        return _stationary_by_solving(transition)
    found = classify_states(transition)
    closed = [list(states) for states, left in zip(found.classes, found.transient, strict=True) if not left]
    if len(closed) > 1:
        classes = " and ".join("{" + ", ".join(str(state) for state in states) + "}" for states in closed)
        raise ValueError(
            f"The stationary distribution is not unique: the chain never leaves {classes} once it is "
            "there. Take the transition of one of these classes."
        )
    matrix = np.asarray(transition, float)
    law = np.zeros(len(matrix))
    law[closed[0]] = stationary_law(matrix[np.ix_(closed[0], closed[0])])
    return jnp.asarray(law, transition.dtype)


class StateClasses(NamedTuple):
    """The communicating classes of a Markov chain, in the order of their first states.

    Attributes:
        classes: the states of each class, which reach each other.
        transient: whether a class is left for good sooner or later; its states are recurrent if not.
        periods: the greatest common divisor of the times of return to a class; 0 if there is no return.
    """

    classes: tuple[tuple[int, ...], ...]
    transient: tuple[bool, ...]
    periods: tuple[int, ...]

    @property
    def irreducible(self) -> bool:
        """Whether every state reaches every other."""
        return len(self.classes) == 1

    @property
    def ergodic(self) -> bool:
        """Whether all states are recurrent and of period one."""
        return not any(self.transient) and set(self.periods) == {1}


def classify_states(transition: Float[Array | np.ndarray, "states states"]) -> StateClasses:
    """Which states of a chain reach each other, which are left for good, and with what period they return.

    An irreducible and ergodic chain forgets where it began: its law tends to the stationary one.

    Args:
        transition: A, with p(next = j | now = i) at [i, j].

    >>> classify_states(jnp.array([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]]))
    StateClasses(classes=((0,), (1, 2)), transient=(True, False), periods=(1, 2))
    """
    matrix = np.asarray(transition, float)
    if (matrix < 0).any() or not np.allclose(matrix.sum(axis=1), 1, rtol=0, atol=1e-5):
        raise ValueError("The rows of 'transition' must be non-negative with sum one.")
    edges = matrix > 0
    count, label = connected_components(edges, directed=True, connection="strong")
    members = sorted((np.flatnonzero(label == k) for k in range(count)), key=lambda states: states[0])
    return StateClasses(
        tuple(tuple(states.tolist()) for states in members),
        tuple(bool(np.delete(edges[states], states, axis=1).any()) for states in members),
        tuple(_period(edges[np.ix_(states, states)]) for states in members),
    )


def _period(edges: Bool[np.ndarray, "states states"]) -> int:
    """The greatest common divisor of the lengths of all cycles of a strongly connected graph."""
    level, divisor, queue = {0: 0}, 0, [0]
    for state in queue:
        for after in np.flatnonzero(edges[state]).tolist():
            if after not in level:
                level[after] = level[state] + 1
                queue.append(after)
            # an edge that leads not one level down closes a cycle of this length, or of its multiples
            divisor = math.gcd(divisor, level[state] + 1 - level[after])
    return divisor


def stationary_law(transition: Float[np.ndarray, "states states"]) -> Float[np.ndarray, " states"]:
    """The law of an irreducible chain by leaving out one state after another, without a subtraction.

    Also known as the GTH algorithm.

    References:
        Grassmann, Taksar & Heyman (1985), Regenerative analysis and steady state distributions for Markov
        chains.
    """
    a = transition.copy()
    for n in range(len(a) - 1, 0, -1):
        a[:n, n] /= a[n, :n].sum()
        a[:n, :n] += np.outer(a[:n, n], a[n, :n])
    law = np.ones(len(a))
    for n in range(1, len(a)):
        law[n] = law[:n] @ a[:n, n]
    return law / law.sum()


def _stationary_by_solving(transition: Float[Array, "states states"]) -> Float[Array, " states"]:
    """(Aᵀ − I) π = 0 and Σ π = 1 together, differentiable in A."""
    size = len(transition)
    eye = jnp.eye(size, dtype=transition.dtype)
    system = jnp.concatenate([(transition.T - eye)[:-1], jnp.ones((1, size), transition.dtype)])
    law = jnp.linalg.solve(system, jnp.zeros(size, transition.dtype).at[-1].set(1))
    rounding = jnp.sqrt(jnp.finfo(law.dtype).eps)
    # a state that is never visited has a rounding error of either sign; more than that is no law
    return jnp.where(jnp.all(law > -rounding), jnp.where(law > 0, law, 0), jnp.nan)
