"""What is known of the variables of a network given some of them, by their names."""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import Array
from scipy.optimize import brentq
from scipy.special import ndtr

from .._core import as_key, generator
from ..inference import CliqueBeliefs, Factor
from ..inference._junction import draw_on_host
from ..inference._mixed_rows import CompletedRows, MixedRows


def place_of(names: tuple[str, ...], name: Any) -> int:
    """The number of a variable."""
    if name not in names:
        shown = ", ".join(map(repr, names[:6])) + (", …" if len(names) > 6 else "")
        raise ValueError(f"A variable of the network must be one of {shown}. Got {name!r} instead.")
    return names.index(name)


def value_of(names: tuple[str, ...], states: tuple[tuple[str, ...], ...], name: Any, value: Any) -> float:
    """A label as its number, or a number as it is."""
    labels = states[place_of(names, name)]
    if str(value) in labels:
        return float(labels.index(str(value)))
    if labels:
        raise ValueError(
            f"The state of {name!r} must be one of {', '.join(map(repr, labels))}. Got {value!r} instead."
        )
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = np.nan
    if not np.isfinite(found):
        raise ValueError(f"The value of {name!r} must be a finite number. Got {value!r} instead.")
    return found


@dataclasses.dataclass(frozen=True)
class NumberBelief:
    """What is known of a number of a network: a mixture of normal laws,  p(x) = Σ_k π_k N(x; m_k, v_k).

    There is a part for each joint state of labels on which numbers depend.  One that was observed has the
    variance zero.

    Attributes:
        weights, means, variances: π, m and v.

    >>> two = NumberBelief(np.array([0.5, 0.5]), np.array([-1.0, 1.0]), np.array([1.0, 1.0]))
    >>> two.mean, two.std.round(3).item(), [round(end, 3) for end in two.interval(0.5)]
    (0.0, 1.414, [-1.051, 1.051])
    """

    weights: np.ndarray
    means: np.ndarray
    variances: np.ndarray

    @property
    def mean(self) -> float:
        """E[x]."""
        return float(self.weights @ self.means)

    @property
    def std(self) -> np.ndarray:
        """The standard deviation."""
        return np.sqrt(self.weights @ (self.variances + (self.means - self.mean) ** 2))

    def density(self, x: Any) -> np.ndarray:
        """p(x) of each number."""
        gap = np.asarray(x, float)[..., None] - self.means
        each = np.exp(-0.5 * gap**2 / self.variances) / np.sqrt(2 * np.pi * self.variances)
        return each @ self.weights

    def cdf(self, x: Any) -> np.ndarray:
        """P(X ≤ x) of each number."""
        return ndtr((np.asarray(x, float)[..., None] - self.means) / np.sqrt(self.variances)) @ self.weights

    def quantile(self, share: float) -> float:
        """The number below which a share of the mass lies."""
        if not self.variances.any():
            return self.mean
        far = 40 * np.sqrt(self.variances)
        ends = float((self.means - far).min()), float((self.means + far).max())
        return float(brentq(lambda x: float(self.cdf(x)) - share, *ends, xtol=1e-12 * (ends[1] - ends[0])))  # pyright: ignore[reportArgumentType]

    def interval(self, level: float = 0.9) -> tuple[float, float]:
        """The central interval that holds a share `level` of the mass."""
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)


def _in_words(known: Any) -> str:
    if isinstance(known, NumberBelief):
        return f"{known.mean:.4g} ± {float(known.std):.2g}"
    return ", ".join(f"{state} {chance:.4g}" for state, chance in known.items())


class AbstractNetworkBeliefs(abc.ABC):
    """What is known of the variables of a network given some of them, by their names.

    Attributes:
        names: of the variables.
        states: the labels of each; none for numbers.
        given: what was observed.
        log_evidence: log p of what was observed.
    """

    names: tuple[str, ...]
    states: tuple[tuple[str, ...], ...]
    given: dict[str, Any]
    log_evidence: float

    @abc.abstractmethod
    def marginal(self, name: str) -> Any:
        """The probability of each state of a variable, or the law of a number."""

    def marginals(self) -> dict[str, Any]:
        """The probability of each state, or the law, of each variable."""
        return {name: self.marginal(name) for name in self.names}

    def __repr__(self) -> str:
        """A line for each variable: its probabilities, or the mean and deviation of a number."""
        given = ", ".join(f"{name} = {value}" for name, value in self.given.items())
        lines = [
            f"  {name.ljust(max(map(len, self.names)))}  {_in_words(self.marginal(name))}"
            for name in self.names
            if name not in self.given
        ]
        return "\n".join([f"{type(self).__name__}(given {given or 'nothing'})", *lines])

    # (a cached property in both classes)
    best: Any

    @abc.abstractmethod
    def sample(self, n: int, *, key: Array) -> dict[str, np.ndarray]:
        """`n` exact draws of all variables given what was observed."""


@dataclasses.dataclass(frozen=True, repr=False)
class NetworkBeliefs(AbstractNetworkBeliefs):
    """What is known of the variables of a network of labels given some of them, by their names.

    Attributes:
        names: of the variables.
        states: the labels of each.
        given: what was observed.
        beliefs: the junction tree that knows the rest, over the numbers of the variables.
        factors: the tables, and what was observed, that it was made of.
        log_evidence: log p of what was observed.
    """

    names: tuple[str, ...]
    states: tuple[tuple[str, ...], ...]
    given: dict[str, str]
    beliefs: CliqueBeliefs
    factors: tuple[Factor, ...]
    log_evidence: float

    def marginal(self, name: str) -> dict[str, float]:
        """The probability of each state of a variable."""
        place = place_of(self.names, name)
        found = self.beliefs.marginal(place)
        return dict(zip(self.states[place], map(float, found), strict=True))

    @functools.cached_property
    def best(self) -> dict[str, str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The most probable joint state of all variables (MAP, MPE)."""
        codes = self.beliefs.tree.maximise(self.factors)[0]
        return {self.names[v]: self.states[v][int(code)] for v, code in codes.items()}

    def sample(self, n: int, *, key: Array) -> dict[str, np.ndarray]:
        """`n` exact draws of all variables given what was observed: the labels of each."""
        codes = self.beliefs.tree.sample(self.factors, (n,), draw_on_host(generator(as_key(key, "sample"))))
        return {self.names[v]: np.array(self.states[v])[code] for v, code in codes.items()}

    def joint(self, names: Sequence[str]) -> np.ndarray:
        """P of several variables, an axis each."""
        return np.asarray(self.beliefs.joint([place_of(self.names, name) for name in names]))


@dataclasses.dataclass(frozen=True, repr=False)
class MixedBeliefs(AbstractNetworkBeliefs):
    """What is known of labels and linear Gaussian numbers given some of them, by their names.

    Labels on which numbers depend are summed over, the other labels are eliminated, and numbers are
    integrated out by Gaussian algebra.

    Attributes:
        names: of the variables.
        states: the labels of each; none for numbers.
        given: what was observed.
        rows: the laws of the network.
        row: what was observed, NaN for the rest.
        log_evidence: log p of what was observed, a density where numbers are among it.
    """

    names: tuple[str, ...]
    states: tuple[tuple[str, ...], ...]
    given: dict[str, Any]
    rows: MixedRows
    row: np.ndarray
    log_evidence: float

    @functools.cached_property
    def _parts(self) -> CompletedRows:
        return self.rows.completed(self.row[None], np.ones(1))

    def marginal(self, name: str) -> dict[str, float] | NumberBelief:
        """The probability of each state of a label, or the law of a number."""
        place, parts = place_of(self.names, name), self._parts
        if self.states[place]:
            found = self.rows.marginals(self.row[None], place)[0]
            return dict(zip(self.states[place], map(float, found), strict=True))
        if not np.isnan(self.row[place]):
            return NumberBelief(np.ones(1), self.row[[place]], np.zeros(1))
        own = self.rows.numbers.index(place)
        return NumberBelief(parts.weight, parts.x[:, place], parts.spread[:, own, own])

    def moments(self, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance of some numbers."""
        places, parts = [place_of(self.names, name) for name in names], self._parts
        labels = [name for name, place in zip(names, places, strict=True) if self.states[place]]
        if labels:
            raise ValueError(f"Only numbers have moments. Got the labels {labels[0]!r}.")
        own = [self.rows.numbers.index(place) for place in places]
        means = parts.x[:, places]
        gap = means - parts.weight @ means
        within = np.tensordot(parts.weight, parts.spread, 1)[np.ix_(own, own)]
        return parts.weight @ means, within + (parts.weight[:, None] * gap).T @ gap

    @functools.cached_property
    def best(self) -> dict[str, Any]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The joint state of all labels, with the numbers, whose density is largest (MAP)."""
        parts, labels = self._parts, list(self.rows.labels)
        with np.errstate(divide="ignore"):
            nats = np.log(parts.weight)
        codes: dict[Any, Any] = {}
        if self.rows.tables is not None:
            # other labels at their best, where the weight has their sum
            coded = parts.x[:, labels]
            codes, peak = self.rows.tables.tree.maximise(self.rows.tables.given(coded))
            nats = nats + peak - self.rows.tables.tree.log_partition(self.rows.tables.given(coded))
        free = np.isnan(self.row[list(self.rows.numbers)])
        nats = nats - 0.5 * np.linalg.slogdet(parts.spread[:, free][:, :, free])[1]
        top = int(np.argmax(nats))
        found: dict[str, Any] = {}
        for v, name in enumerate(self.names):
            if self.states[v]:
                code = np.broadcast_to(codes[v], len(nats))[top]
                found[name] = self.states[v][int(code)]
            else:
                found[name] = float(parts.x[top, v])
        return found

    def sample(self, n: int, *, key: Array) -> dict[str, np.ndarray]:
        """`n` exact draws of all variables given what was observed: labels, or numbers."""
        drawn = self.rows.draw(np.tile(self.row, (n, 1)), generator(as_key(key, "sample")))
        return {
            name: np.array(self.states[v])[drawn[:, v].astype(int)] if self.states[v] else drawn[:, v]
            for v, name in enumerate(self.names)
        }
