"""Markov chains over finitely many states: their classes, laws, times, and how soon they forget.

All of it is linear algebra on the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Float
from scipy.special import rel_entr

from ._chain_finite import StateClasses, classify_states, stationary, stationary_law


class Mixing(NamedTuple):
    """How far a chain is from its stationary law π after 0, 1, 2, … steps, with p the law it has then.

    Attributes:
        total_variation: ½ Σ |p − π|, which never grows.
        kl_to_law: KL(p ‖ π), which never grows.
        kl_from_law: KL(π ‖ p), which never grows; infinite while a state of π cannot have been reached.
    """

    total_variation: Float[np.ndarray, " times"]
    kl_to_law: Float[np.ndarray, " times"]
    kl_from_law: Float[np.ndarray, " times"]


def _as_transition(transition: object) -> np.ndarray:
    matrix = np.asarray(transition, float)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(
            "The 'transition' of FiniteChain must be a square matrix. "
            f"Got an array of shape {matrix.shape} instead."
        )
    return matrix


class FiniteChain(eqx.Module):
    """A Markov chain over finitely many states:  p(next = j | now = i) at [i, j].

    Attributes:
        transition: the matrix P; rows sum to one.

    >>> chain = FiniteChain([[0.9, 0.1], [0.3, 0.7]])
    >>> chain.stationary_laws().round(4).tolist(), round(chain.second_eigenvalue(), 4)
    ([[0.75, 0.25]], 0.6)
    >>> chain.mixing([0, 1], steps=2).total_variation.round(4).tolist()
    [0.75, 0.45, 0.27]
    """

    transition: Float[np.ndarray, "states states"] = eqx.field(converter=_as_transition)

    def __check_init__(self) -> None:
        # refuses what is no table of probabilities
        _ = self.classes

    @property
    def classes(self) -> StateClasses:
        """Which states reach each other, which are left for good, and with which period they return."""
        return classify_states(self.transition)

    def after(self, law: Sequence[float] | np.ndarray, steps: int) -> Float[np.ndarray, " states"]:
        """The law after `steps` steps from `law`:  p Pⁿ.

        >>> moles = FiniteChain([[0.1, 0.4, 0.5], [0.4, 0, 0.6], [0, 0.6, 0.4]])
        >>> moles.after([1, 0, 0], 3).round(3).tolist()
        [0.153, 0.362, 0.485]
        """
        return self._law(law) @ np.linalg.matrix_power(self.transition, steps)

    def stationary_laws(self) -> Float[np.ndarray, "laws states"]:
        """The laws that a step does not change:  π P = π, one for each class that is never left.

        Every mixture of them is one too, and there are no others.

        >>> FiniteChain([[1, 0, 0], [0.5, 0, 0.5], [0, 0, 1]]).stationary_laws().tolist()
        [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
        """
        found = []
        for states, left in zip(self.classes.classes, self.classes.transient, strict=True):
            if not left:
                law = np.zeros(len(self.transition))
                law[list(states)] = stationary_law(self.transition[np.ix_(states, states)])
                found.append(law)
        return np.stack(found)

    def stationary(self) -> Float[np.ndarray, " states"]:
        """The stationary law, refused where there are several."""
        return np.asarray(stationary(self.transition))

    def reversed(self, law: Sequence[float] | np.ndarray | None = None) -> FiniteChain:
        """The chain backwards in time:  q(j, i) = π(i) p(i, j) / π(j).

        Args:
            law: π, which every state must have a part of; the stationary law by default.
        """
        pi = self._stationary_or(law)
        if not (pi > 0).all():
            raise ValueError(
                "The law under which a chain is reversed must give every state a probability above zero. "
                f"Got 0 at state {int(np.argmin(pi))} instead."
            )
        backwards = (pi[:, None] * self.transition).T
        return FiniteChain(backwards / backwards.sum(axis=1, keepdims=True))

    def imbalance(self, law: Sequence[float] | np.ndarray | None = None) -> float:
        """max |π(i) p(i, j) − π(j) p(j, i)|: zero where detailed balance holds (a reversible chain).

        >>> cycle = FiniteChain([[0.5, 0.5, 0], [0, 0.5, 0.5], [0.5, 0, 0.5]])
        >>> round(cycle.imbalance(), 4)
        0.1667
        """
        flow = self._stationary_or(law)[:, None] * self.transition
        return float(np.abs(flow - flow.T).max())

    def second_eigenvalue(self) -> float:
        """The largest modulus of the eigenvalues but for a first 1: the rate of forgetting the start.

        One where the chain never forgets it: because of a period, or of several classes.
        """
        sizes = np.sort(np.abs(np.linalg.eigvals(self.transition)))
        return float(sizes[-2]) if len(sizes) > 1 else 0.0

    def mixing(
        self,
        start: Sequence[float] | np.ndarray,
        *,
        steps: int,
        law: Sequence[float] | np.ndarray | None = None,
    ) -> Mixing:
        """How far from the stationary law the chain is after 0, 1, …, `steps` steps from `start`."""
        pi, p = self._stationary_or(law), self._law(start)
        laws = [p]
        for _ in range(steps):
            laws.append(laws[-1] @ self.transition)
        path = np.stack(laws)
        return Mixing(
            0.5 * np.abs(path - pi).sum(axis=1),
            rel_entr(path, pi).sum(axis=1),
            rel_entr(pi, path).sum(axis=1),
        )

    def mixing_time(self, distance: float = 0.25) -> int:
        """After how many steps the total variation is at most `distance` from whichever state.

        >>> FiniteChain([[0.9, 0.1], [0.3, 0.7]]).mixing_time()
        3
        """
        pi = self.stationary()
        if any(
            period != 1 and not left
            for period, left in zip(self.classes.periods, self.classes.transient, strict=True)
        ):
            raise ValueError(
                f"The chain must come near its law to have a mixing time. Got one of period "
                f"{max(self.classes.periods)} instead."
            )

        def far(power: np.ndarray) -> bool:
            return bool((0.5 * np.abs(power - pi).sum(axis=1) > distance).any())

        # the distance never grows: double the time until it is too long, and then halve the gap
        powers = [self.transition]
        while far(powers[-1]):
            powers.append(powers[-1] @ powers[-1])
        reached, steps = np.eye(len(pi)), 0
        if not far(reached):
            return 0
        for i in reversed(range(len(powers))):
            longer = reached @ powers[i]
            if far(longer):
                reached, steps = longer, steps + 2**i
        return steps + 1

    def hitting_probabilities(self, targets: Sequence[int]) -> Float[np.ndarray, " states"]:
        """From each state the probability that one of the states `targets` is ever visited.

        >>> ruin = FiniteChain([[1, 0, 0], [0.5, 0.25, 0.25], [0, 0, 1]])
        >>> ruin.hitting_probabilities([0]).round(4).tolist()
        [1.0, 0.6667, 0.0]
        """
        goal = self._goal(targets)
        open_ = self._reaching(goal) & ~goal
        found = goal.astype(float)
        inside = self.transition[np.ix_(open_, open_)]
        into = self.transition[np.ix_(open_, goal)].sum(axis=1)
        found[open_] = np.linalg.solve(np.eye(len(inside)) - inside, into)
        return found

    def hitting_times(self, targets: Sequence[int]) -> Float[np.ndarray, " states"]:
        """From each state the expected number of steps to the first of the states `targets`.

        Infinite from where they may never be visited.

        >>> FiniteChain([[0, 1], [0.25, 0.75]]).hitting_times([0]).tolist()
        [0.0, 4.0]
        """
        goal = self._goal(targets)
        # a state from which a place without return to the goal can be reached before the goal
        stopped = np.where(goal[:, None], np.eye(len(goal)), self.transition)
        lost = _reaching(stopped, ~self._reaching(goal))
        open_ = ~lost & ~goal
        inside = self.transition[np.ix_(open_, open_)]
        found = np.where(lost, np.inf, 0.0)
        found[open_] = np.linalg.solve(np.eye(len(inside)) - inside, np.ones(len(inside)))
        return found

    def visits(self) -> Float[np.ndarray, "states states"]:
        """From state i the expected number of visits to state j, the beginning included.

        Over states that are left for good it is the fundamental matrix (I − Q)⁻¹; a recurrent state is
        visited without end, or never.

        >>> FiniteChain([[0.5, 0.5], [0, 1]]).visits().tolist()
        [[2.0, inf], [0.0, inf]]
        """
        size = len(self.transition)
        passing = np.zeros(size, bool)
        for states, left in zip(self.classes.classes, self.classes.transient, strict=True):
            passing[list(states)] = left
        found = np.zeros((size, size))
        inside = self.transition[np.ix_(passing, passing)]
        found[np.ix_(passing, passing)] = np.linalg.inv(np.eye(len(inside)) - inside)
        for j in np.flatnonzero(~passing):
            found[_reaching(self.transition, np.arange(size) == j), j] = np.inf
        return found

    def return_probabilities(self) -> Float[np.ndarray, " states"]:
        """The probability to come back to each state: one where it is recurrent.

        >>> FiniteChain([[0.5, 0.5], [0, 1]]).return_probabilities().tolist()
        [0.5, 1.0]
        """
        return 1 - 1 / np.diagonal(self.visits())

    def sample(
        self, law: Sequence[float] | np.ndarray, steps: int, *, random_state: int | np.random.Generator
    ) -> np.ndarray:
        """A path: a state from `law`, and `steps` more.

        >>> FiniteChain([[0, 1], [1, 0]]).sample([1, 0], 3, random_state=0).tolist()
        [0, 1, 0, 1]
        """
        rng = np.random.default_rng(random_state)
        edges = np.cumsum(self.transition, axis=1)
        points = rng.random(steps + 1)
        path = [int(np.searchsorted(np.cumsum(self._law(law)), points[0], side="right"))]
        for point in points[1:]:
            row = edges[path[-1]]
            path.append(int(np.searchsorted(row, point * row[-1], side="right")))
        return np.array(path)

    def _law(self, law: Sequence[float] | np.ndarray) -> Float[np.ndarray, " states"]:
        p = np.asarray(law, float)
        if p.shape != (len(self.transition),) or (p < 0).any() or abs(p.sum() - 1) > 1e-6:
            raise ValueError(
                f"A law of the chain must be {len(self.transition)} probabilities of sum one. "
                f"Got {np.array2string(p, threshold=6)} instead."
            )
        return p

    def _stationary_or(self, law: Sequence[float] | np.ndarray | None) -> np.ndarray:
        return self.stationary() if law is None else self._law(law)

    def _goal(self, targets: Sequence[int]) -> np.ndarray:
        size = len(self.transition)
        places = np.asarray(targets, int).reshape(-1)
        if not len(places) or (places < 0).any() or (places >= size).any():
            raise ValueError(
                f"The 'targets' must be numbers of states from 0 to {size - 1}. Got {targets} instead."
            )
        return np.isin(np.arange(size), places)

    def _reaching(self, goal: np.ndarray) -> np.ndarray:
        return _reaching(self.transition, goal)


def _reaching(transition: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """From which states one of `goal` can be reached, in any number of steps."""
    found = goal
    while True:
        more = found | (transition[:, found] > 0).any(axis=1)
        if (more == found).all():
            return found
        found = more
