"""What is known of an unknown after inference: the same questions, whatever method answers them."""

from __future__ import annotations

import abc
import dataclasses
import enum
import math
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from .._core import (
    AbstractHomogeneous,
    AbstractSpace,
    Categories,
    Kind,
    aligned,
    as_key,
    in_notebook,
    notes_in_notebook,
    on_device,
    table_in_notebook,
)
from ..distributions import AbstractDistribution, AbstractPartial
from ._densities import Pieces, highest_density_of
from ._diagnostics import (
    bulk_effective_size,
    chain_mean,
    diagnostic_warnings,
    rank_scale_reduction,
    tail_effective_size,
)
from ._importance import self_normalised_mean


class Nature(enum.Enum):
    """What a posterior is."""

    EXACT = "exact"
    VARIATIONAL = "variational"
    SAMPLES = "samples"
    WEIGHTED = "weighted samples"
    POINT = "point"


class LogEvidence(eqx.Module):
    """log Z = log ∫ exp(−e(z)) dz, how well it is known, and in which sense.

    Attributes:
        nats: the number.
        stderr: its Monte Carlo standard error, zero if nothing was drawn; of `Laplace` how far off
            it may be.
        kind: exact, a lower bound (on average), or an estimate.

    >>> LogEvidence(jnp.array(-0.42), jnp.array(0.013), Kind.LOWER)
    LogEvidence(-0.42 ± 0.013 nats, lower bound)
    """

    nats: Float[Array, ""]
    stderr: Float[Array, ""]
    kind: Kind = eqx.field(static=True)

    def __repr__(self) -> str:
        # within a program there is no number, and mapped over keys there are many
        if isinstance(self.nats, Tracer) or np.ndim(self.nats):
            return f"LogEvidence({self.kind.value})"
        return f"LogEvidence({float(self.nats):.6g} ± {float(self.stderr):.2g} nats, {self.kind.value})"


@dataclasses.dataclass(frozen=True)
class PosteriorSummary:
    """A line for each entry of an unknown.

    Attributes:
        nature: what the posterior is.
        names: of the entries.
        columns: title and numbers of each column.
        warnings: sentences that say not to trust it.
    """

    nature: Nature
    names: list[str]
    columns: dict[str, np.ndarray]
    warnings: list[str]

    def _lines(self) -> tuple[list[str], list[list[str]]]:
        most = 60
        lines = [
            [
                name,
                *(
                    "" if np.isnan(column[i]) else f"{float(column[i]):.4g}"
                    for column in self.columns.values()
                ),
            ]
            for i, name in enumerate(self.names[:most])
        ]
        if len(self.names) > most:
            lines.append([f"… {len(self.names) - most} more", *("" for _ in self.columns)])
        return [self.nature.value, *self.columns], lines

    def __str__(self) -> str:
        titles, lines = self._lines()
        return "\n".join([*aligned([titles, *lines]), *self.warnings])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The table and its warnings, for notebooks."""
        titles, lines = self._lines()
        return in_notebook(table_in_notebook(titles, lines), notes_in_notebook(self.warnings))


class AbstractPosterior(eqx.Module):
    """The distribution p(z) ∝ exp(−e(z)) of an unknown, or what stands for it.

    Attributes:
        spaces: what the leaves of z can be.
        log_evidence: log Z; None where the method gives none.
        diagnostics: numbers that say how far to trust it, such as an effective sample size.
        note: how it was inferred and why so, where that was chosen.
    """

    spaces: eqx.AbstractVar[tuple[AbstractSpace, ...]]
    log_evidence: eqx.AbstractVar[LogEvidence | None]
    diagnostics: eqx.AbstractVar[dict[str, Array]]
    note: eqx.AbstractVar[str]

    @property
    @abc.abstractmethod
    def nature(self) -> Nature:
        """What it is: exact, variational, samples, weighted samples or a point."""

    @abc.abstractmethod
    def weighted_values(self) -> tuple[PyTree, Float[Array, " values"]]:
        """Values of z along a first axis, and the weights (of sum one) with which they stand for it."""

    @abc.abstractmethod
    def sample(self, n: int, *, key: Array) -> PyTree:
        """`n` draws, stacked along a first axis."""

    @abc.abstractmethod
    def expect(self, f: Callable[[Any], PyTree]) -> tuple[PyTree, PyTree]:
        """E[f(z)], and its standard error (zero where nothing was drawn)."""

    @abc.abstractmethod
    def mean(self) -> PyTree:
        """E[z], refused for labels, whose order means nothing."""

    def covariance(self) -> Float[Array, "dim dim"]:
        """The covariance of the entries of z, in the order of `ravel_pytree`."""
        refuse_labels(self.spaces, "covariance")
        return _covariance(*self.weighted_values())

    def quantile(self, probability: float) -> PyTree:
        """Entry by entry, the least value that at least this much probability does not exceed."""
        refuse_labels(self.spaces, "quantile")
        return _quantiles(*self.weighted_values(), np.asarray(probability))

    def interval(self, level: float = 0.9) -> tuple[PyTree, PyTree]:
        """Entry by entry, a central interval of probability `level` (also known as a credible interval)."""
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)

    def highest_density(self, level: float = 0.9) -> dict[str, Pieces]:
        """For each entry by its name, the pieces of the smallest set of probability `level` (HDR, HPD).

        Two modes far apart have two pieces, each a pair (from, to).  The density of draws of a continuous
        unknown is smoothed by as much as they allow (`smooth_cells`).

        >>> from freeenergy.distributions import Binary
        >>> states, chances = jnp.array([[0.0, 1.0], [1.0, 1.0]]), jnp.array([0.25, 0.75])
        >>> FinitePosterior(states, chances, spaces=(Binary((2,)),)).highest_density(0.7)
        {'[0]': [(1.0, 1.0)], '[1]': [(1.0, 1.0)]}

        Labels among the entries have none.
        """
        if all(map(_is_unordered, self.spaces)):
            refuse_labels(self.spaces, "highest-density region")
        if not 0 < level < 1:
            raise ValueError(
                f"The 'level' of highest_density must be between 0 and 1. Got {level!r} instead."
            )
        values, weights = self.weighted_values()
        rows, names = entries_of(values)
        share, spaces = np.asarray(weights), self.entry_spaces()
        return {
            name: highest_density_of(own, share, self._worth(own), level, discrete=_is_discrete(space))
            for name, own, space in zip(names, rows.T, spaces, strict=True)
            if not _is_unordered(space)
        }

    def marginals(self) -> dict[str, dict[str, float]]:
        """For each entry that is a label or a whole number, by its name, the probability of each value.

        Labels have their own names where these are known.

        >>> states, chances = {"on": jnp.array([0.0, 1.0])}, jnp.array([0.25, 0.75])
        >>> FinitePosterior(states, chances, spaces=(Categories(2, (), ("off", "on")),)).marginals()
        {'on': {'off': 0.25, 'on': 0.75}}
        """
        spaces = self.entry_spaces()
        if not any(map(_is_discrete, spaces)):
            raise ValueError(
                "Only labels and whole numbers have a probability for each value: ask numbers for their "
                "'interval' or 'highest_density'."
            )
        values, weights = self.weighted_values()
        rows, names = entries_of(values)
        share = np.asarray(weights)
        return {
            name: {
                label: math.fsum(share[own == value]) for value, label in label_names(space, own).items()
            }
            for name, own, space in zip(names, rows.T, spaces, strict=True)
            if _is_discrete(space)
        }

    def entry_spaces(self) -> list[AbstractSpace]:
        """What each entry of z can be, in the order of their names."""
        leaves = jax.tree.leaves(self.weighted_values()[0])
        sizes = [int(np.prod(leaf.shape[1:])) for leaf in leaves]
        return [space for space, size in zip(self.spaces, sizes, strict=True) for _ in range(size)]

    def _worth(self, values: np.ndarray) -> float:
        """How many independent draws the values of one entry are worth."""
        if isinstance(self, DrawsPosterior) and self.log_weights is None:
            return float(bulk_effective_size(values.reshape(self.grid)))
        return float(1 / np.sum(np.asarray(self.weighted_values()[1]) ** 2))

    def chains(self) -> tuple[list[str], np.ndarray]:
        """The names of the entries of z, and draws of them: (chains, steps, entries).

        What is not made of Markov chains is one chain of draws by their weights.
        """
        values, weights = self.weighted_values()
        rows, names = entries_of(values)
        if isinstance(self, DrawsPosterior) and self.log_weights is None:
            return names, rows.reshape(*self.grid, -1)
        share = np.asarray(weights)
        if not np.allclose(share, share[0], rtol=1e-9):
            n = max(min(len(share), 4000), 1000)
            # the same draws whoever asks
            rows = rows[np.random.default_rng(0).choice(len(share), n, p=share / share.sum())]
        return names, rows[None]

    @property
    def warnings(self) -> list[str]:
        """A sentence for each diagnostic that says not to trust it."""
        return diagnostic_warnings(self.diagnostics)

    def summary(self, level: float = 0.9) -> PosteriorSummary:
        """Mean, spread and central interval of every entry, with what the draws of chains are worth.

        A label has a line for each of its values instead, with its probability for the mean.

        >>> from freeenergy.distributions import Binary
        >>> kinds = dict(spaces=(Binary((2,)),))
        >>> FinitePosterior(jnp.array([[0.0, 1.0], [1.0, 1.0]]), jnp.array([0.25, 0.75]), **kinds).summary()
        exact  mean     sd  5%  95%
        [0]    0.75  0.433   0    1
        [1]       1      0   1    1
        """
        values, weights = self.weighted_values()
        share = np.asarray(weights)
        rows, names, numbers = self._by_line(*entries_of(values))
        mean = share @ rows
        if numbers.all():
            # in closed form where there is one
            mean = np.concatenate([np.asarray(a, float).ravel() for a in jax.tree.leaves(self.mean())])
        columns = {"mean": mean, "sd": np.sqrt(share @ (rows - share @ rows) ** 2)}
        order = np.argsort(rows, axis=0)
        below = np.cumsum(share[order], axis=0)
        for p in ((1 - level) / 2, (1 + level) / 2):
            place = np.argmax(below >= p * below[-1] - 1e-12, axis=0)
            columns[f"{100 * p:.4g}%"] = np.take_along_axis(
                rows, np.take_along_axis(order, place[None], 0), 0
            )[0]
        if self.nature is Nature.SAMPLES and self.chains()[1].shape[1] >= 8:
            chains, steps = self.chains()[1].shape[:2]
            draws = rows.reshape(chains, steps, -1)
            columns |= {
                "error": np.asarray(chain_mean(draws)[1]),
                "R̂": rank_scale_reduction(draws),
                "bulk ESS": bulk_effective_size(draws),
                "tail ESS": tail_effective_size(draws),
            }
        # a probability has neither a spread nor an interval of its own, and what never occurs no chains
        told = {"mean": numbers | True, "error": numbers | True}
        told |= dict.fromkeys(("R̂", "bulk ESS"), numbers | (np.ptp(rows, axis=0) > 0))
        columns = {
            title: np.where(told.get(title, numbers), column, np.nan) for title, column in columns.items()
        }
        return PosteriorSummary(self.nature, names, columns, self.warnings)

    def _by_line(self, rows: np.ndarray, names: list[str]) -> tuple[np.ndarray, list[str], np.ndarray]:
        """A column for each number and for each value of a label, their names, and which are numbers."""
        columns, titles, numbers = [], [], []
        for name, own, space in zip(names, rows.T, self.entry_spaces(), strict=True):
            if not _is_unordered(space):
                columns, titles, numbers = [*columns, own], [*titles, name], [*numbers, True]
                continue
            for value, label in label_names(space, own).items():
                columns.append((own == value).astype(float))
                titles.append(f"{name} = {label}")
                numbers.append(False)
        return np.stack(columns, axis=1), titles, np.array(numbers)

    def plot(self, figure: Any = None) -> Any:
        """Histogram, trace and ranks of every entry: `freeenergy.plots.posterior`.

        Args:
            figure: of Matplotlib, to draw on.
        """
        # pictures are above inference, which does without them until somebody asks for one
        plots: Any = import_module(f"{__name__.partition('.')[0]}.plots")
        return plots.posterior(self, figure)

    def to_arviz(self) -> Any:
        """The draws as `arviz.InferenceData`, with their divergences and energies where there are any."""
        try:
            arviz: Any = import_module("arviz")
        except ImportError:
            raise ImportError(
                "'to_arviz' needs the package ArviZ. Install it, as with: pip install arviz"
            ) from None
        values = self._chains_by_name()
        shape = next(iter(values.values())).shape[:2]
        extra = {
            name: np.asarray(value) for name, value in self.diagnostics.items() if np.shape(value) == shape
        }
        groups = {"posterior": values} | ({"sample_stats": extra} if extra else {})
        if int(arviz.__version__.partition(".")[0]) >= 1:
            return arviz.from_dict(groups)
        return arviz.from_dict(**groups)

    def _chains_by_name(self) -> dict[str, np.ndarray]:
        """The leaves of z by name, (chains, steps, …)."""
        draws = self.chains()[1]
        tree = self.weighted_values()[0]
        found, at = {}, 0
        for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
            size = int(np.prod(leaf.shape[1:]))
            part = draws[:, :, at : at + size]
            found[path_name(path) or "z"] = part.reshape(*part.shape[:2], *leaf.shape[1:])
            at += size
        return found

    def __repr__(self) -> str:
        name = type(self).__name__
        leaves = jax.tree.leaves(self.weighted_values()[0]) if not self._is_traced() else []
        if not leaves:
            return f"{name}({self.nature.value})"
        numbers = sum(int(np.prod(leaf.shape[1:])) for leaf in leaves)
        words = [f"{self.nature.value}: {self._size()} of {numbers:,} number{'s' * (numbers != 1)}"]
        if self.log_evidence is not None:
            found = self.log_evidence
            error = f" ± {float(found.stderr):.2g}" if float(found.stderr) > 0 else ""
            words.append(f"log Z {float(found.nats):.6g}{error} ({found.kind.value})")
        words += [f"by {self.note}"] if self.note else []
        words += [f"! {sentence}" for sentence in self.warnings]
        return f"{name}({'; '.join(words)})"

    def _size(self) -> str:
        if isinstance(self, DrawsPosterior) and self.log_weights is None:
            chains, steps = self.grid
            return f"{chains:,} chain{'s' * (chains != 1)} of {steps:,} draws"
        return f"{len(self.weighted_values()[1]):,} values"

    def _is_traced(self) -> bool:
        return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(self))


def path_name(path: Sequence[Any]) -> str:
    """The way to a leaf in words: fields and keys with dots between."""
    words = (str(getattr(p, "name", getattr(p, "key", getattr(p, "idx", p)))) for p in path)
    return ".".join(words)


def entries_of(values: PyTree) -> tuple[np.ndarray, list[str]]:
    """Values along a first axis as rows of numbers, and the names of the columns.

    >>> entries_of({"scale": np.ones(5), "mean": np.zeros((5, 2))})[1]
    ['mean[0]', 'mean[1]', 'scale']
    """
    columns, names = [], []
    for path, leaf in jax.tree_util.tree_flatten_with_path(values)[0]:
        array = np.asarray(leaf, float)
        columns.append(array.reshape(len(array), -1))
        name = path_name(path)
        for index in np.ndindex(array.shape[1:]):
            names.append(name + (f"[{', '.join(map(str, index))}]" if index else "") or "z")
    return np.concatenate(columns, axis=1), names


def _is_unordered(space: AbstractSpace) -> bool:
    return isinstance(space, AbstractHomogeneous) and space.unordered


def _is_discrete(space: AbstractSpace) -> bool:
    """Whether each value has a probability, and not a density."""
    return isinstance(space, AbstractHomogeneous) and space.discrete


def label_names(space: AbstractSpace, values: np.ndarray) -> dict[float, str]:
    """The values of an entry that are known or occur, and what they are called."""
    if isinstance(space, Categories) and space.labels:
        return {float(value): label for value, label in enumerate(space.labels)}
    known = range(space.size) if isinstance(space, Categories) and space.size else np.unique(values)
    return {float(value): f"{value:g}" for value in known}


def refuse_labels(spaces: tuple[AbstractSpace, ...], question: str) -> None:
    """Refuses a question that has no answer for labels."""
    if any(map(_is_unordered, spaces)):
        raise ValueError(
            f"Labels have no order, and so no {question}: ask for 'marginals', or 'expect' a function."
        )


# the answers are programs of their own: asked for outside of one, every operation would be one
@eqx.filter_jit
def _covariance(values: PyTree, weights: Float[Array, " values"]) -> Float[Array, "dim dim"]:
    rows = jax.vmap(lambda z: ravel_pytree(z)[0])(values)
    gap = rows - (weights @ rows)[None]
    return (weights[:, None] * gap).T @ gap


@eqx.filter_jit
def _quantiles(values: PyTree, weights: Float[Array, " values"], probability: np.ndarray) -> PyTree:
    return jax.tree.map(lambda a: _quantile(a, weights, probability), values)


def _quantile(values: Array, weights: Float[Array, " values"], probability: Any) -> Array:
    flat = values.reshape(len(values), -1)
    order = jnp.argsort(flat, axis=0)
    below = jnp.cumsum(weights[order], axis=0)
    # rounding may leave the last sum a little below one
    place = jnp.argmax(below >= probability * below[-1:] - 1e-12, axis=0)
    return jnp.take_along_axis(flat, jnp.take_along_axis(order, place[None], 0), 0).reshape(
        values.shape[1:]
    )


@eqx.filter_jit
def _average(values: PyTree, weights: Float[Array, " values"]) -> PyTree:
    return jax.tree.map(lambda a: jnp.tensordot(weights, a.astype(weights.dtype), 1), values)


@eqx.filter_jit
def _resampled(values: PyTree, weights: Float[Array, " values"], n: int, key: Array) -> PyTree:
    """`n` of the values by their weights, found from the sums of these."""
    edges = jnp.cumsum(weights)
    place = jnp.searchsorted(edges, jax.random.uniform(key, (n,), edges.dtype) * edges[-1], side="right")
    # (what rounding lifts to the last edge is the last value that has a weight)
    which = jnp.minimum(place, jnp.searchsorted(edges, edges[-1]))
    return jax.tree.map(lambda a: a[which], values)


@eqx.filter_jit
def _drawn(q: AbstractDistribution, n: int, key: Array) -> PyTree:
    return jax.vmap(lambda k: q.sample(key=k))(jax.random.split(key, n))


@eqx.filter_jit
def _of_each(f: Callable[[Any], PyTree], draws: PyTree) -> PyTree:
    """f of each draw of (chains, steps, …)."""
    return jax.tree.map(lambda a: a.astype(float), jax.vmap(jax.vmap(f))(draws))


def _chain_means(values: PyTree) -> tuple[PyTree, PyTree]:
    """`chain_mean` of each leaf, on the host unless it is part of a program."""
    leaves, structure = jax.tree.flatten(values)
    if any(isinstance(leaf, Tracer) for leaf in leaves):
        pairs = [chain_mean(leaf) for leaf in leaves]
    else:
        # (what is no number has no mean, which is not worth a warning)
        with np.errstate(all="ignore"):
            pairs = [tuple(map(on_device, chain_mean(np.asarray(leaf)))) for leaf in leaves]
    means, errors = zip(*pairs, strict=True) if pairs else ((), ())
    return jax.tree.unflatten(structure, means), jax.tree.unflatten(structure, errors)


class FinitePosterior(AbstractPosterior):
    """Every state with its probability: exact.

    Attributes:
        states: along a first axis.
        probabilities: one a state.
    """

    states: PyTree
    probabilities: Float[Array, " states"]
    spaces: tuple[AbstractSpace, ...] = eqx.field(static=True, kw_only=True)
    log_evidence: LogEvidence | None = eqx.field(default=None, kw_only=True)
    diagnostics: dict[str, Array] = eqx.field(default_factory=dict, kw_only=True)
    note: str = eqx.field(static=True, default="", kw_only=True)

    @property
    def nature(self) -> Nature:
        return Nature.EXACT

    def weighted_values(self) -> tuple[PyTree, Float[Array, " states"]]:
        return self.states, self.probabilities

    def sample(self, n: int, *, key: Array) -> PyTree:
        return _resampled(self.states, self.probabilities, n, as_key(key, "sample"))

    @eqx.filter_jit
    def expect(self, f: Callable[[Any], PyTree]) -> tuple[PyTree, PyTree]:
        value = _average(jax.vmap(f)(self.states), self.probabilities)
        return value, jax.tree.map(jnp.zeros_like, value)

    def mean(self) -> PyTree:
        refuse_labels(self.spaces, "mean")
        return _average(self.states, self.probabilities)


class DistributionPosterior(AbstractPosterior):
    """A distribution q: the posterior itself, or the nearest of a family to it.

    Attributes:
        q: the distribution; of parameters a conjugate prior, whose draws are members of its family.
        draws: of q, along a first axis; expectations are averages over them.
        kind_of_q: exact or variational.
    """

    q: AbstractDistribution
    draws: PyTree
    kind_of_q: Nature = eqx.field(static=True)
    spaces: tuple[AbstractSpace, ...] = eqx.field(static=True, kw_only=True)
    log_evidence: LogEvidence | None = eqx.field(default=None, kw_only=True)
    diagnostics: dict[str, Array] = eqx.field(default_factory=dict, kw_only=True)
    note: str = eqx.field(static=True, default="", kw_only=True)

    @property
    def nature(self) -> Nature:
        return self.kind_of_q

    def weighted_values(self) -> tuple[PyTree, Float[Array, " values"]]:
        n = len(jax.tree.leaves(self.draws)[0])
        return self.draws, on_device(np.full(n, 1 / n))

    def sample(self, n: int, *, key: Array) -> PyTree:
        return _drawn(self.q, n, as_key(key, "sample"))

    @eqx.filter_jit
    def expect(self, f: Callable[[Any], PyTree]) -> tuple[PyTree, PyTree]:
        values = jax.vmap(f)(self.draws)
        n = len(jax.tree.leaves(self.draws)[0])
        error = jax.tree.map(lambda a: jnp.std(a.astype(float), axis=0, ddof=1) / n**0.5, values)
        return jax.tree.map(lambda a: jnp.mean(a.astype(float), axis=0), values), error

    def mean(self) -> PyTree:
        refuse_labels(self.spaces, "mean")
        if isinstance(self.q, AbstractPartial):
            # in closed form: of an event of which nothing is observed
            return self.q.complete_mean(jnp.full_like(self.draws[0], jnp.nan, dtype=float))
        return self.expect(lambda z: z)[0]


class DrawsPosterior(AbstractPosterior):
    """Draws: of several Markov chains, or independent ones with importance weights.

    Attributes:
        draws: (chains, steps, …) for Markov chains, (draws, …) where they have weights.
        log_weights: one a draw, up to a constant; None for those of Markov chains, which are equal.
        groups: how many independent groups of draws, each with one weight, stand after each other; 0 where
            the draws themselves are independent.
    """

    draws: PyTree
    log_weights: Float[Array, " draws"] | None
    groups: int = eqx.field(static=True, default=0, kw_only=True)
    spaces: tuple[AbstractSpace, ...] = eqx.field(static=True, kw_only=True)
    log_evidence: LogEvidence | None = eqx.field(default=None, kw_only=True)
    diagnostics: dict[str, Array] = eqx.field(default_factory=dict, kw_only=True)
    note: str = eqx.field(static=True, default="", kw_only=True)

    @property
    def nature(self) -> Nature:
        return Nature.SAMPLES if self.log_weights is None else Nature.WEIGHTED

    @property
    def grid(self) -> tuple[int, int]:
        """How many Markov chains there are, and how many draws each has."""
        chains, steps = jax.tree.leaves(self.draws)[0].shape[:2]
        return chains, steps

    def weighted_values(self) -> tuple[PyTree, Float[Array, " values"]]:
        if self.log_weights is not None:
            return self.draws, jax.nn.softmax(self.log_weights)
        flat = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), self.draws)
        n = len(jax.tree.leaves(flat)[0])
        return flat, on_device(np.full(n, 1 / n))

    def sample(self, n: int, *, key: Array) -> PyTree:
        return _resampled(*self.weighted_values(), n, as_key(key, "sample"))

    def expect(self, f: Callable[[Any], PyTree]) -> tuple[PyTree, PyTree]:
        return (
            self._expect_weighted(f)
            if self.log_weights is not None
            else _chain_means(_of_each(f, self.draws))
        )

    @eqx.filter_jit
    def _expect_weighted(self, f: Callable[[Any], PyTree]) -> tuple[PyTree, PyTree]:
        values = jax.vmap(f)(self.draws)
        pairs = jax.tree.map(lambda a: self._weighted_mean(a.astype(float)), values)
        return jax.tree.transpose(jax.tree.structure(values), jax.tree.structure((0, 0)), pairs)

    def _weighted_mean(self, values: Float[Array, " draws *event"]) -> tuple[Array, Array]:
        assert self.log_weights is not None
        log_weights, wider = self.log_weights, 1.0
        if self.groups:
            each = len(log_weights) // self.groups
            log_weights = log_weights[::each]
            values = jnp.mean(values.reshape(self.groups, each, *values.shape[1:]), axis=1)
            # few groups are nearer to their own mean than to the true one
            wider = (self.groups / (self.groups - 1)) ** 0.5
        mean, error = self_normalised_mean(log_weights, values.astype(log_weights.dtype))
        return mean, wider * error

    def mean(self) -> PyTree:
        refuse_labels(self.spaces, "mean")
        return _average(*self.weighted_values())


class PointPosterior(AbstractPosterior):
    """One value: the mode (MAP).  It has no spread, and says nothing of its own error.

    Attributes:
        point: the value of least energy.
        energy: the energy there.
    """

    point: PyTree
    energy: Float[Array, ""]
    spaces: tuple[AbstractSpace, ...] = eqx.field(static=True, kw_only=True)
    diagnostics: dict[str, Array] = eqx.field(default_factory=dict, kw_only=True)
    note: str = eqx.field(static=True, default="", kw_only=True)
    log_evidence: LogEvidence | None = eqx.field(default=None, kw_only=True)

    @property
    def nature(self) -> Nature:
        return Nature.POINT

    def weighted_values(self) -> tuple[PyTree, Float[Array, " values"]]:
        return jax.tree.map(lambda a: a[None], self.point), jnp.ones(1)

    def sample(self, n: int, *, key: Array) -> PyTree:
        return jax.tree.map(lambda a: jnp.broadcast_to(a, (n, *a.shape)), self.point)

    def expect(self, f: Callable[[Any], PyTree]) -> tuple[PyTree, PyTree]:
        value = f(self.point)
        return value, jax.tree.map(jnp.zeros_like, value)

    def mean(self) -> PyTree:
        refuse_labels(self.spaces, "mean")
        return self.point
