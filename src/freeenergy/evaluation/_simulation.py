"""Whether posteriors are right, by data that were simulated from known parameters."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from scipy import stats

from .._core import key_of, on_device, split_key, split_key_data
from ._checks import count, fraction, numbers


@dataclasses.dataclass(frozen=True)
class SimulationCalibration:
    """The ranks of true values among draws of their posteriors: uniform if these are right.

    Attributes:
        ranks: (simulations, quantities), whole numbers from 0 to `draws`.
        draws: how many draws each posterior had.
        names: what the quantities are called.
    """

    ranks: np.ndarray
    draws: int
    names: tuple[str, ...]

    def bins(self, most: int = 20) -> int:
        """How many bins of equally many ranks a histogram has: at most `most`, of five values or more."""
        wanted = min(most, max(len(self.ranks) // 5, 1))
        return max(b for b in range(1, min(wanted, self.draws + 1) + 1) if (self.draws + 1) % b == 0)

    def counts(self) -> np.ndarray:
        """(quantities, bins), how many ranks are in each bin."""
        bins = self.bins()
        place = self.ranks * bins // (self.draws + 1)
        return np.stack([np.bincount(column, minlength=bins) for column in place.T])

    def band(self, level: float = 0.99) -> tuple[float, float]:
        """The interval that holds the number in a bin with probability `level`, if posteriors are right."""
        level = fraction("SimulationCalibration.band", "level", level)
        low, high = stats.binom.interval(level, len(self.ranks), 1 / self.bins())
        return float(low), float(high)

    @property
    def p_values(self) -> np.ndarray:
        """For each quantity the p-value of χ² that its ranks are uniform."""
        return np.array([float(stats.chisquare(row).pvalue) for row in self.counts()])

    def __str__(self) -> str:
        wide = max(map(len, self.names))
        lines = [f"{len(self.ranks)} simulations, {self.draws} draws each; ranks are uniform with p"]
        lines += [f"  {name:{wide}}  {p:.3g}" for name, p in zip(self.names, self.p_values, strict=True)]
        return "\n".join(lines)


def simulation_ranks(truths: Any, draws: Any, *, seed: int | np.random.Generator) -> np.ndarray:
    """How many draws are below each true value; ties are broken at random.

    Args:
        truths: (simulations, quantities).
        draws: (simulations, draws, quantities).
        seed: of the ties.

    >>> simulation_ranks([[0.5]], [[[0.1], [0.7], [0.2]]], seed=0).tolist()
    [[2]]
    """
    owner = "simulation_ranks"
    true = numbers(owner, "truths", truths, ndim=2)
    drawn = numbers(owner, "draws", draws, ndim=3)
    if drawn.shape[::2] != true.shape:
        raise ValueError(
            f"The 'draws' of {owner} must have the shape ({true.shape[0]}, draws, {true.shape[1]}). "
            f"Got {drawn.shape} instead."
        )
    below = (drawn < true[:, None]).sum(axis=1)
    ties = (drawn == true[:, None]).sum(axis=1)
    return below + np.random.default_rng(seed).integers(0, ties + 1)


def simulation_based_calibration(
    simulate: Callable[[jax.Array], tuple[Any, Any]],
    posterior: Callable[[Any, jax.Array], Any],
    *,
    simulations: int = 200,
    together: int | None = None,
    seed: int,
) -> SimulationCalibration:
    """Whether a method of inference is right on average over a prior (SBC, Talts et al. 2018).

    Parameters are drawn from the prior and data given them; the rank of each parameter among draws of its
    posterior is uniform, whatever the model is.  Ranks that heap at both ends say that posteriors are too
    narrow, in the middle that they are too wide, at one end that they are off.

    Args:
        simulate: `simulate(key)` gives parameters from the prior, a tree of arrays, and data given them.
        posterior: `posterior(data, key)` gives independent draws, the same tree with a first axis; those of
            a Markov chain are thinned until they are.
        simulations: how often.
        together: how many of them one program does side by side (`jax.vmap`), where both functions are made
            of JAX: thousands take seconds then.  By default each is done alone.
        seed: of the keys, and of ties.

    >>> def simulate(key):
    ...     place, noise = jax.random.normal(key, (2,))
    ...     return place, place + noise  # a priori N(0, 1); the posterior is N(y / 2, 1 / 2)
    >>> def draw(y, key):
    ...     return y / 2 + jax.random.normal(key, (19,)) * 0.5**0.5
    >>> found = simulation_based_calibration(simulate, draw, simulations=100, seed=0)
    >>> found.ranks.shape, bool(found.p_values[0] > 0.01)
    ((100, 1), True)
    """
    owner = "simulation_based_calibration"
    simulations = count(owner, "simulations", simulations)

    def one(first: jax.Array, second: jax.Array) -> tuple[Any, Any]:
        truth, data = simulate(first)
        draws = posterior(data, second)
        if jax.tree.structure(truth) != jax.tree.structure(draws):
            raise ValueError(
                f"The draws of 'posterior' of {owner} must be a tree as that of 'simulate'. "
                f"Got {jax.tree.structure(draws)} and {jax.tree.structure(truth)}."
            )
        return truth, draws

    if together is None:
        pairs = [one(*split_key(key)) for key in split_key(key_of(seed), simulations)]
    else:
        block = count(owner, "together", together)
        bits = on_device(split_key_data(key_of(seed), simulations))
        found = jax.device_get(_side_by_side(one, bits, block))
        pairs = [jax.tree.map(lambda leaf, i=i: leaf[i], found) for i in range(simulations)]
    truths = np.stack([np.concatenate([np.ravel(a) for a in jax.tree.leaves(truth)]) for truth, _ in pairs])
    drawn = np.stack([_flat(draws) for _, draws in pairs])
    ranks = simulation_ranks(truths, drawn, seed=seed)
    return SimulationCalibration(ranks, drawn.shape[1], _names(pairs[0][0]))


@partial(jax.jit, static_argnums=(0, 2))
def _side_by_side(one: Callable[..., Any], bits: jax.Array, block: int) -> Any:
    def of_bits(own: jax.Array) -> Any:
        return one(*jax.random.split(jax.random.wrap_key_data(own)))

    return jax.lax.map(of_bits, bits, batch_size=block)


def _flat(draws: Any) -> np.ndarray:
    """Draws along a first axis as rows of numbers."""
    rows = [np.asarray(leaf) for leaf in jax.tree.leaves(draws)]
    return np.concatenate([row.reshape(len(row), -1) for row in rows], axis=1)


def _names(tree: Any) -> tuple[str, ...]:
    """What the numbers in a tree are called, by their places."""
    found = []
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        name = jax.tree_util.keystr(path, simple=True, separator=".") or "value"
        places = [",".join(map(str, place)) for place in np.ndindex(np.shape(leaf))]
        found += [f"{name}[{place}]" if place else name for place in places]
    return tuple(found)


@dataclasses.dataclass(frozen=True)
class PredictiveCheck:
    """A number that the data have, beside those that replications of them have.

    Attributes:
        observed: of the data.
        replicated: of each replication.
        p_value: the share of replications with a number as large or larger, ties counted half: near zero or
            one where the model makes no such data.
    """

    observed: float
    replicated: np.ndarray = dataclasses.field(repr=False)
    p_value: float


def posterior_predictive_check(
    y: Any, replicated: Any, statistic: Callable[[np.ndarray], Any] = np.mean
) -> PredictiveCheck:
    """Whether data that a fitted model makes are like those it was fitted to, in one number.

    Args:
        y: the data.
        replicated: data drawn from p(y | data) with a first axis, such as those of `replicate`.
        statistic: from data to a number: a largest value, a share of zeros, a correlation.

    >>> check = posterior_predictive_check([0.0, 9.0], [[0.0, 1.0], [1.0, 1.0], [2.0, 0.0]], np.max)
    >>> check.observed, check.p_value
    (9.0, 0.0)
    """
    owner = "posterior_predictive_check"
    data, drawn = np.asarray(y, float), np.asarray(replicated, float)
    # an answer with one output has an axis more where it is replicated
    shape = drawn.shape[1:-1] if drawn.shape[1:] == (*data.shape, 1) else drawn.shape[1:]
    if shape != data.shape or not len(drawn):
        raise ValueError(
            f"The 'replicated' of {owner} must have the shape (draws, {', '.join(map(str, data.shape))}). "
            f"Got {drawn.shape} instead."
        )
    observed = float(statistic(data))
    values = np.array([float(statistic(own.reshape(data.shape))) for own in drawn])
    p_value = float(np.mean(values > observed) + 0.5 * np.mean(values == observed))
    return PredictiveCheck(observed, values, p_value)
