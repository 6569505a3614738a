"""Autoregressive models: a product of conditionals, each of which a network makes of the entries before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from .._core import AbstractSpace, Blocks, Reals, buffer, on_device, parameter
from ..distributions import AbstractDistribution, Given, levels
from ..inference import Amortised
from ..nn import AbstractCausalNetwork
from ._base import AbstractBoundedModel
from ._missing import put_in, taken_out
from ._told import told_entry

# the largest size of an output: what a network says stays a law, whatever it is told
_LARGEST = 12.0


class Head(eqx.Module):
    """Columns with a conditional family in common, and how an entry of them is told to those after it.

    Labels are told as indicators, counts by log(1 + x), numbers as they are (cut at 20 scales).

    Attributes:
        families: of one column each, a stack: arrays have an axis for the columns in front.
        columns: which columns these are.
        size: how many numbers a network says of a column.
        labels: how many labels a column has, if it has any.
        shift, scale: of what is told of each column.

    >>> from freeenergy.distributions import Bernoulli
    >>> coins = Head.of([Given(Bernoulli(jnp.full(1, 0.5)))] * 2, (0, 1))
    >>> coins.told(jnp.array([1.0, 0.0])).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """

    families: Given
    columns: tuple[int, ...] = eqx.field(static=True)
    size: int = eqx.field(static=True)
    labels: int | None = eqx.field(static=True)
    shift: Array = buffer()
    scale: Array = buffer()

    @classmethod
    def of(
        cls, families: Sequence[Given], columns: Sequence[int], shift: Any = 0.0, scale: Any = 1.0
    ) -> Head:
        """With a family for each of the columns, all of one shape."""
        known, n = levels(families[0].member), len(columns)
        return cls(
            jax.tree.map(lambda *a: on_device(np.stack(a)), *families),
            tuple(columns),
            families[0].size,
            None if known is None else known[0],
            *(on_device(np.broadcast_to(np.asarray(v, float), n).copy()) for v in (shift, scale)),
        )

    def family(self, place: Array) -> Given:
        """That of one of the columns, the `place`-th here."""
        return jax.tree.map(lambda a: a[place], self.families)

    @property
    def features(self) -> int:
        """How many numbers an entry is told as."""
        return self.labels or 1

    def told(self, x: Float[Array, " columns"]) -> Float[Array, "columns features"]:
        """What the entries after them are told of one entry of each column; zeros for NaN."""
        return jax.vmap(self._told)(x, self.shift, self.scale)

    def told_at(self, x: Array, place: Array) -> Float[Array, " features"]:
        """The same of an entry of the `place`-th column."""
        return self._told(x, self.shift[place], self.scale[place])

    def _told(self, x: Array, shift: Array, scale: Array) -> Array:
        counts = bool(self.families.support.has_mass(1).all())
        return told_entry(x, shift, scale, labels=self.labels, counts=counts)

    def log_probs(self, outputs: Array, x: Float[Array, " columns"]) -> Float[Array, " columns"]:
        """log p of an entry of each column given outputs of a network; zero for NaN."""
        return jax.vmap(lambda family, output, entry: family.log_prob(output, entry[None]))(
            self.families, outputs[:, : self.size], x
        )

    def means(self, outputs: Array) -> Float[Array, " columns"]:
        """The mean of an entry of each column given outputs of a network."""
        return jax.vmap(lambda family, output: family.mean(output)[0])(
            self.families, outputs[:, : self.size]
        )


class _Ahead(AbstractDistribution):
    """Missing entries drawn in order, each given all before it, whatever is observed after it.

    Attributes:
        model: the conditionals.
        x: the event with NaN.
    """

    model: AutoregressiveModel
    x: Array

    def log_prob(self, z: Array) -> Array:
        terms = self.model.log_conditionals(put_in(self.x, z))
        return jnp.sum(jnp.where(jnp.isnan(self.x), terms, 0))

    def sample(self, *, key: Array) -> Array:
        return taken_out(self.x, self.model.continued(self.x, key=key))


class AutoregressiveModel(AbstractBoundedModel):
    """p(x) = Π_i p(x_{o(i)} | x_{o(1)}, …, x_{o(i−1)}) in an order o: a network makes each conditional.

    log p of a complete event is exact, and so is that of one whose missing entries come last in the order.
    Elsewhere the missing entries z are a hidden cause with energy e(x, z) = −log p(x with z put in): they
    are drawn in order, each given those before it, so that the weight of a draw is the product of the
    conditionals of what is observed,

        p(x_observed) = E_z Π_{i observed} p(x_i | x_<i),

    of which draws give a lower bound of log p.  Draws from that weight (sampling, importance, resampling)
    complete an event in any pattern of missing entries.

    Attributes:
        network: from the entries in their order to numbers for each, of which those for one do not depend
            on it or on any after it.
        heads: the conditional families of all columns.
        bias: added to the numbers of each place; the sum is kept within ±12 by 12 tanh(· / 12).
        order: the column at each place.

    References:
        Germain, Gregor, Murray and Larochelle (2015), MADE: masked autoencoder for distribution estimation.

    >>> from freeenergy.distributions import Bernoulli
    >>> from freeenergy.nn import Masked
    >>> coins = Head.of([Given(Bernoulli(jnp.full(1, 0.5)))] * 3, (0, 1, 2))
    >>> network = Masked(width=8, depth=1).build(3, 2, 1, dtype=float, key=jax.random.key(0))
    >>> model = AutoregressiveModel(network, (coins,), jnp.zeros((3, 1)), jnp.array([2, 0, 1]))
    >>> round(float(eqx.filter_jit(model.log_prob)(jnp.array([1.0, 0.0, jnp.nan])) / jnp.log(2)), 6)
    -2.0
    """

    exact_if_complete: ClassVar[bool] = True
    network: AbstractCausalNetwork
    heads: tuple[Head, ...]
    bias: Float[Array, "columns size"] = parameter()  # pyright: ignore[reportGeneralTypeIssues]
    order: Array = buffer()  # pyright: ignore[reportGeneralTypeIssues]

    @property
    def columns(self) -> int:
        """How many columns an event has."""
        return len(self.bias)

    def _features(self) -> int:
        return max(head.features for head in self.heads)

    def _ranks(self) -> Array:
        """The place of each column."""
        return jnp.argsort(self.order)

    def _tokens(self, x: Float[Array, " columns"]) -> Float[Array, "columns features"]:
        """What is told of each entry, in the order."""
        tokens = jnp.zeros((self.columns, self._features()), x.dtype)
        for head in self.heads:
            own = np.array(head.columns)
            tokens = tokens.at[own, : head.features].set(head.told(x[own]))
        return tokens[self.order]

    def _outputs(self, x: Float[Array, " columns"]) -> Float[Array, "columns size"]:
        """What is said of each column, given the entries before it."""
        return _kept(self.network(self._tokens(x)) + self.bias)[self._ranks()]

    def log_conditionals(self, x: Float[Array, " columns"]) -> Float[Array, " columns"]:
        """log p of each entry given those before it in the order; zero for NaN."""
        outputs, found = self._outputs(x), jnp.zeros(self.columns, x.dtype)
        for head in self.heads:
            own = np.array(head.columns)
            found = found.at[own].set(head.log_probs(outputs[own], x[own]))
        return found

    def conditional_means(self, x: Float[Array, " columns"]) -> Float[Array, " columns"]:
        """The mean of each entry given those before it in the order."""
        outputs, found = self._outputs(x), jnp.zeros(self.columns, x.dtype)
        for head in self.heads:
            own = np.array(head.columns)
            found = found.at[own].set(head.means(outputs[own]))
        return found

    def log_prob(self, x: Float[Array, " columns"]) -> Array:
        """log p(x) of an event that is complete, or whose missing entries come last in the order."""
        return jnp.sum(self.log_conditionals(x))

    def energy(self, x: Array, z: Array) -> Array:
        """−log p of `x` with its NaN entries taken from `z`, the first of them from the first."""
        return -self.log_prob(put_in(x, z))

    def latent(self, x: np.ndarray) -> AbstractSpace:
        """The missing entries of a row that is there, and not traced."""
        supports = {column: head.families.support for head in self.heads for column in head.columns}
        missing = tuple(supports[int(i)] for i in np.flatnonzero(np.isnan(x)))
        if all(space == Reals() for space in missing):
            return Reals((len(missing),))
        return Blocks(missing, (1,) * len(missing))

    @property
    def recognition(self) -> Amortised:
        """Draws missing entries in order, each given those before it."""
        return Amortised(lambda x: _Ahead(self, x))

    def continued(self, x: Float[Array, " columns"], *, key: Array) -> Array:
        """`x` with each NaN drawn given the entries before it.

        The network goes along the order once, with what it keeps in its state (a cache).
        """
        owner, place = np.zeros(self.columns, int), np.zeros(self.columns, int)
        for i, head in enumerate(self.heads):
            owner[list(head.columns)] = i
            place[list(head.columns)] = np.arange(len(head.columns))
        owners, places = jnp.asarray(owner), jnp.asarray(place)

        def entry_of(head: Head) -> Any:
            def entry(output: Array, known: Array, place: Array, key: Array) -> tuple[Array, Array]:
                family = head.family(place)
                drawn = family.sample(output[: head.size], key=key)[0].astype(x.dtype)
                value = jnp.where(jnp.isnan(known), drawn, known)
                told = head.told_at(value, place)
                return value, jnp.pad(told, (0, self._features() - head.features))

            return entry

        entries = [entry_of(head) for head in self.heads]

        def visit(carry: tuple[Any, Array], at: tuple[Array, Array]) -> Any:
            (state, before), (i, k) = carry, at
            column = self.order[i]
            state, output = self.network.step(state, i, before)
            output = _kept(output + self.bias[i])
            value, told = jax.lax.switch(owners[column], entries, output, x[column], places[column], k)
            return (state, told), value

        start = self.network.start(), jnp.zeros(self._features(), x.dtype)
        each = jnp.arange(self.columns), jax.random.split(key, self.columns)
        return jax.lax.scan(visit, start, each)[1][self._ranks()]

    def sample(self, *, key: Array) -> Array:
        """One draw of x."""
        return self.continued(jnp.full(self.columns, jnp.nan, self.bias.dtype), key=key)

    def completions(self, x: Array, *, samples: int, key: Array) -> tuple[Array, Array]:
        """Completed events, and the logarithms of their weights."""
        filled = jax.vmap(lambda k: self.continued(x, key=k))(jax.random.split(key, samples))
        terms = jax.vmap(self.log_conditionals)(filled)
        return filled, jnp.sum(jnp.where(jnp.isnan(x)[None], 0, terms), axis=1)

    def complete_mean(self, x: Array, *, samples: int, key: Array) -> Array:
        """`x` with each NaN replaced by its mean given what is observed, by importance samples."""
        filled, log_weights = self.completions(x, samples=samples, key=key)
        observed = ~jnp.isnan(x)[self.order]
        # what comes after all that is observed has no say in the weights: its mean is better than a draw
        free = (jnp.cumsum(observed[::-1])[::-1] == 0)[self._ranks()]
        values = jnp.where(free[None], jax.vmap(self.conditional_means)(filled), filled)
        return jnp.where(jnp.isnan(x), jax.nn.softmax(log_weights) @ values, x)

    def complete_chances(self, x: Array, column: Array, *, labels: int, samples: int, key: Array) -> Array:
        """The probabilities of the labels in a column of `x` given what is observed."""
        filled, log_weights = self.completions(x, samples=samples, key=key)
        shown = filled[:, column][:, None] == jnp.arange(labels, dtype=x.dtype)[None]
        return jax.nn.softmax(log_weights) @ shown.astype(x.dtype)

    def complete_sample(self, x: Array, *, samples: int, key: Array) -> Array:
        """`x` with the NaN entries drawn given the observed ones, one of `samples` by its weight."""
        propose, choose = jax.random.split(key)
        filled, log_weights = self.completions(x, samples=samples, key=propose)
        return filled[jax.random.categorical(choose, log_weights)]

    def complete_given(self, x: Array, z: Array, *, key: Array) -> Array:
        """`x` with its NaN entries taken from `z`, the first of them from the first: nothing is drawn."""
        return put_in(x, z)


def _kept(outputs: Array) -> Array:
    """Outputs within the largest size, hardly changed where they are small."""
    return _LARGEST * jnp.tanh(outputs / _LARGEST)


def before_bound(outputs: Array) -> Array:
    """The sum of network and bias that is kept as `outputs`."""
    return _LARGEST * jnp.arctanh(jnp.clip(outputs / _LARGEST, -0.99, 0.99))
