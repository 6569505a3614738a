"""Autoregressive networks as an estimator."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..._core import (
    AbstractAlgorithm,
    Evidence,
    Fit,
    Kind,
    Status,
    generator,
    has_nan,
    on_device,
    split_key,
    split_key_data,
)
from ...distributions import (
    AbstractLocationScale,
    AbstractPartial,
    Bernoulli,
    Categorical,
    CountTable,
    Diagonal,
    Free,
    Gaussian,
    Given,
    Natural,
    Poisson,
    rescaled,
    with_mean,
)
from ...distributions._count_table import smooth_shares, table_size
from ...inference import ImportanceEstimate
from ...learning import Gradient, Reweighted, negative_log_likelihood
from ...models import AutoregressiveModel, Components, Head
from ...models._autoregressive import before_bound
from ...nn import AbstractCausal, Masked
from ...shell import Column, Rows, cast, check_instance, check_int, check_real, rows_at_once, split_rows
from ...shell._answers import answers, bound_of, keyed_answers, seeded_answers
from ...shell._completion import AbstractCompletion, RowEnergy
from ...shell._networks import batch_for, check_networks, decaying_adam
from ...shell._schema import kinds_of
from .._by_column import AnyColumns

# with few, columns seem less dependent than they are
_TRAINING_SAMPLES = 16
_ROWS_AT_ONCE = 1024
# counts up to so many cells have a probability for each number
_MOST_CELLS = 64
# how wide a component is at first, in shares of the column that it stands for
_FIRST_WIDTH = 1.5
_AVERAGE = 0.95
# of standardised numbers, where a family has further parameters than location and scale
_DEGREES = 5.0


class Autoregressive(AnyColumns):
    """p(x) = Π_i p(x_i | x_1, …, x_{i−1}) in any order of the columns: a network makes each conditional.

    Columns may be of any kind.  A number has a mixture of Gaussians, a count a probability for each number
    with a tail (or a mixture of Poissons, where numbers are large), a binary column log-odds, and a
    category, with an order or without, a softmax over its labels; all depend on the columns before it.
    The network is trained in single precision on log p(x), with early stopping on held-out rows, and begins
    with independent columns.

    Complete rows have exact evidence, and so have rows whose missing entries come last in the order.  For
    other patterns missing entries are drawn, each given those before it, and weighted by what is observed
    after it: evidence is an importance-weighted lower bound, `impute` and `sample(given=…)` choose among
    draws by weight.  Training with missing entries takes the same weights.

    Args:
        n_components: members of the mixture that a number (or a large count) has.
        family: of these members for numbers: `Gaussian`, another class of locations and scales of
            `freeenergy.distributions` such as `Logistic`, or a member of one column.
        order: columns from first to last, by number or name; "random" for an order by chance; None for
            those with the fewest missing entries first, as they come.
        network: `freeenergy.nn.Masked(width, depth)`, a masked perceptron with weights of its own for each
            column (MADE), whose width follows from the number of rows where None is given; for pixels and
            series of one kind `CausalTransformer(…)` or `Recurrent(…)`, whose weights all places share.
        learning_rate, weight_decay, max_iter: of Adam; an iteration is an epoch.
        batch_size: rows a step; None for a twentieth of them, between 16 and 256.
        validation_fraction, patience: rows held out, and epochs without improvement before stopping.
        importance_samples: draws for the evidence of a row with missing entries before observed ones, and
            for completing rows.
        learner: replaces Adam on the likelihood.
        random_state, verbose, checkpoint: as everywhere.

    Attributes:
        order_: the number of the column at each place.
        model_: the fitted `freeenergy.models.AutoregressiveModel`, of rescaled rows.
        history_, n_iter_, converged_, scaling_, …: as everywhere.

    References:
        Germain, Gregor, Murray and Larochelle (2015), MADE: masked autoencoder for distribution estimation.
        Uria, Murray and Larochelle (2013), RNADE: the real-valued neural autoregressive density-estimator.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> X[:, 1] = np.where(X[:, 0] > 0, 2.0, -2.0) + 0.1 * X[:, 1]
    >>> model = Autoregressive(2, max_iter=60, random_state=0).fit(X)
    >>> model.evidence([[1.0, 2.0], [1.0, np.nan]]).kind.value, model.evidence([[np.nan, 2.0]]).kind.value
    ('exact', 'lower bound')
    """

    def __init__(
        self,
        n_components: int = 10,
        family: Any = Gaussian,
        *,
        order: Any = None,
        network: AbstractCausal | None = None,
        learning_rate: float = 3e-3,
        weight_decay: float = 1e-2,
        batch_size: int | None = None,
        max_iter: int = 500,
        validation_fraction: float = 0.1,
        patience: int = 30,
        importance_samples: int = 500,
        learner: AbstractAlgorithm | None = None,
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: str | None = None,
    ) -> None:
        self.n_components = n_components
        self.family = family
        self.order = order
        self.network = network
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.importance_samples = importance_samples
        self.learner = learner
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint

    _may_be_none = ("batch_size",)

    @property
    def _must_converge(self) -> bool:
        return False

    @property
    def needs_kinds(self) -> bool:
        return True

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_int(self, "n_components")
        check_int(self, "importance_samples", 2)
        check_real(self, "weight_decay")
        check_instance(self, "network", AbstractCausal, optional=True)
        kind = self.family if isinstance(self.family, type) else type(self.family)
        if not issubclass(kind, Gaussian | AbstractLocationScale):
            raise ValueError(
                "The 'family' parameter of Autoregressive must be a family of locations and scales of "
                f"freeenergy.distributions, such as Gaussian or Logistic. Got {self.family!r} instead."
            )

    def _recipe(self, rows: int, columns: int) -> AbstractCausal:
        return Masked(_width(rows, columns)) if self.network is None else self.network

    def _check_size(self, rows: int, columns: int) -> None:
        outputs = 3 * self.n_components
        check_networks(
            lambda key: self._recipe(rows, columns).build(columns, 2, outputs, key=key),
            # what the network says of a block of rows
            min(rows, _ROWS_AT_ONCE) * columns * outputs,
            f"Autoregressive of {columns:,} columns with {self.n_components:,} components",
            "Use a smaller 'network', fewer components, or PCA first.",
        )

    def _places(self, rows: Rows, key: Array) -> np.ndarray:
        """The number of the column at each place."""
        columns = rows.x.shape[1]
        if self.order is None:
            missing = rows.weight @ np.isnan(rows.x)
            return np.argsort(missing, kind="stable")
        if isinstance(self.order, str) and self.order == "random":
            return generator(key).permutation(columns)
        schema = kinds_of(self)
        names = [] if schema is None else [field.name for field in schema.modelled]
        wanted = self.order if isinstance(self.order, Sequence | np.ndarray) else ()
        found = [names.index(c) if c in names else c for c in wanted] if len(wanted) == columns else []
        if sorted(map(str, found)) != sorted(map(str, range(columns))):
            raise ValueError(
                f"The 'order' parameter of Autoregressive must have each of the {columns} columns once, be "
                f"'random' or None. Got {self.order!r} instead."
            )
        return np.array(found, int)

    def _number(self) -> Any:
        """The member that the components of a standardised column are steps from."""
        if isinstance(self.family, AbstractPartial):
            return self.family
        if self.family is Gaussian:
            return Gaussian(on_device(np.zeros(1)), Diagonal(on_device(np.ones(1))))
        starts = {"loc": 0.0, "scale": 1.0}
        names = [field.name for field in dataclasses.fields(self.family)]
        return self.family(**{name: on_device(np.full(1, starts.get(name, _DEGREES))) for name in names})

    def _heads(self, rows: Rows) -> tuple[tuple[Head, ...], tuple[np.ndarray, ...]]:
        """The families of the columns, and centres of the components of each."""
        schema = kinds_of(self)
        groups: dict[tuple[str, int], list[tuple[int, Given, float, float, np.ndarray]]] = {}
        for column in range(rows.x.shape[1]):
            field = None if schema is None else schema.modelled[column]
            name, size, *parts = self._column(rows, column, field)
            groups.setdefault((name, size), []).append((column, *parts))
        heads, centres = [], []
        for _, members in sorted(groups.items(), key=lambda item: item[0]):
            columns, families, shift, scale, own = zip(*members, strict=True)
            heads.append(Head.of(families, columns, shift, scale))
            centres.append(np.stack(own))
        return tuple(heads), tuple(centres)

    def _column(self, rows: Rows, column: int, field: Any) -> tuple[Any, ...]:
        """What columns of one head share (a name, a size), the family, units to be told in, and centres."""
        seen = ~np.isnan(rows.x[:, column])
        x, weight = rows.x[seen, column], rows.weight[seen]
        kind, none = Column.CONTINUOUS if field is None else field.kind, np.zeros(0)
        if field is not None and kind in (Column.CATEGORY, Column.ORDERED):
            labels = max(len(field.categories), 2)
            shares = np.bincount(x.astype(int), weight, labels) + 1 / labels
            family = Given(Categorical(on_device(shares[None] / shares.sum())))
            return "labels", labels, family, 0.0, 1.0, none
        if kind is Column.BINARY:
            chance = (weight @ x + 0.5) / (weight.sum() + 1)
            return "binary", 0, Given(Bernoulli(on_device(np.array([chance])))), 0.0, 1.0, none
        if kind is Column.COUNT:
            logs = np.log1p(x)
            middle = np.average(logs, weights=weight)
            spread = np.sqrt(np.average((logs - middle) ** 2, weights=weight)) or 1.0
            cells = table_size(x)
            if x.max() < cells <= _MOST_CELLS:
                shares, ratio = smooth_shares(x, weight, cells)
                table = CountTable(on_device(shares[None]), on_device(np.array([ratio])))
                return "counts", cells, Given(table), middle, spread, none
            family = Given(Poisson(on_device(np.ones(1))), Components(self.n_components, Natural()))
            centres = np.maximum(_centres(x, weight, self.n_components), 0.1)
            return "many", 0, family, middle, spread, centres
        family = Given(self._number(), Components(self.n_components, Free()))
        return "numbers", 0, family, 0.0, 1.0, _centres(x, weight, self.n_components)

    def _learn(self, rows: Rows, key: Array) -> Fit:
        start_key, fit_key = split_key(key)
        self.order_ = self._places(rows, start_key)
        heads, centres = self._heads(rows)
        train, validation = split_rows(rows, self.validation_fraction, np.float32)
        start = _start(
            self._recipe(*rows.x.shape),
            cast(heads, np.float32),
            tuple(on_device(c, np.float32) for c in centres),
            self.order_,
            start_key,
        )
        objective = Reweighted(_TRAINING_SAMPLES) if has_nan(rows.x) else negative_log_likelihood
        learner = self.learner or Gradient(
            decaying_adam(self.learning_rate, self.weight_decay),
            self._with_fresh_noise(objective),
            batch_size=self.batch_size or batch_for(len(rows.x)),
            patience=self.patience,
            average=_AVERAGE,
        )
        result = self._run(start, learner, train, rows, fit_key, validation=validation)
        # evaluation is in double precision, so that rows give the same number in any company
        result = dataclasses.replace(result, model=cast(result.model, np.float64))
        return _not_worse(result, cast(start, np.float64), rows)

    def _at_once(self) -> int:
        """How many rows are asked about together, each by all its draws."""
        return rows_at_once(self.importance_samples, self.model_.bias.size)

    def _estimates(self, z: np.ndarray, seeds: np.ndarray) -> ImportanceEstimate:
        how = {"block": self._at_once(), "samples": self.importance_samples}
        return seeded_answers(self.model_, AutoregressiveModel.evidence, z, seeds, self.seed_, **how)

    def _evidence(self, z: np.ndarray, seeds: np.ndarray) -> Evidence:
        missing = np.isnan(z)[:, self.order_]
        # a missing entry with an observed one after it
        hard = (missing & (np.cumsum(~missing[:, ::-1], axis=1)[:, ::-1] > 0)).any(axis=1)
        nats, stderr, growth = np.zeros(len(z)), np.zeros(len(z)), np.zeros((len(z), 2))
        if not hard.all():
            nats[~hard] = answers(self.model_, AutoregressiveModel.log_prob, z[~hard], block=_ROWS_AT_ONCE)
        if not hard.any():
            return Evidence(nats, stderr, Kind.EXACT)
        bound = bound_of(self._estimates(z[hard], seeds[hard]), np.ones(int(hard.sum()), bool))
        nats[hard], stderr[hard] = bound.nats, bound.stderr
        if bound.growth is None:
            return Evidence(nats, stderr, Kind.LOWER)
        growth[hard] = bound.growth
        return Evidence(nats, stderr, Kind.LOWER, growth=growth)

    def effective_samples(self, X: Any) -> np.ndarray:
        """How many equal weights the draws of what is missing are worth, of `importance_samples`, per row.

        Where they are few, rows want more draws or another order.
        """
        taken = self._read(X)
        return np.asarray(self._estimates(taken.z, taken.seeds).effective_sample_size)

    def _completion(self, x: np.ndarray) -> AbstractCompletion:
        return RowEnergy.of(
            self.model_, AutoregressiveModel.log_prob, self.scaling_, shape=self._event_shape
        )

    def _fill_mean(self, z: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        how = {"block": self._at_once(), "samples": self.importance_samples}
        return seeded_answers(self.model_, AutoregressiveModel.complete_mean, z, seeds, self.seed_, **how)

    def _fill_sample(self, z: np.ndarray, *, key: Array) -> np.ndarray:
        how = {"block": self._at_once(), "samples": self.importance_samples}
        keys = split_key_data(key, len(z))
        return keyed_answers(self.model_, AutoregressiveModel.complete_sample, z, keys, **how)

    def _likeliest(self, rows: np.ndarray, column: int) -> np.ndarray:
        labels = next(head.labels for head in self.model_.heads if column in head.columns)
        chances = seeded_answers(
            self.model_,
            AutoregressiveModel.complete_chances,
            self.scaling_.apply(rows),
            np.zeros(len(rows), np.uint32),
            self.seed_,
            block=self._at_once(),
            column=np.asarray(column),
            labels=labels,
            samples=self.importance_samples,
        )
        return np.argmax(chances, axis=1).astype(float)


def _not_worse(result: Fit, start: AutoregressiveModel, rows: Rows) -> Fit:
    """`result`, or the start with a sentence where complete rows were likelier before they were learned."""
    whole = ~np.isnan(rows.x).any(axis=1)
    if not whole.any():
        return result
    nats = [
        rows.weight[whole]
        @ answers(model, AutoregressiveModel.log_prob, rows.x[whole], block=_ROWS_AT_ONCE)
        for model in (result.model, start)
    ]
    if nats[0] >= nats[1]:
        return result
    note = (
        "training left the rows less likely than independent columns do, which are kept. Try a smaller "
        "learning rate"
    )
    return dataclasses.replace(result, model=start, status=Status.NON_FINITE, note=note)


def _start(
    recipe: AbstractCausal,
    heads: tuple[Head, ...],
    centres: tuple[Array, ...],
    order: np.ndarray,
    key: Array,
) -> AutoregressiveModel:
    """A model of independent columns, and a network that is still silent."""
    columns, size = len(order), max(head.size for head in heads)
    bias = np.zeros((columns, size), np.float32)
    for head, outputs in zip(heads, _first_outputs(heads, centres), strict=True):
        bias[np.array(head.columns), : head.size] = np.asarray(outputs)
    network = recipe.build(columns, max(head.features for head in heads), size, key=key)
    return AutoregressiveModel(network, heads, on_device(bias[order]), on_device(order))


@eqx.filter_jit
def _first_outputs(heads: tuple[Head, ...], centres: tuple[Array, ...]) -> list[Array]:
    """The outputs with which the columns of each head begin."""
    return [
        before_bound(jax.vmap(_first_output)(head.families, own))
        for head, own in zip(heads, centres, strict=True)
    ]


def _first_output(family: Given, centres: Array) -> Array:
    """The output with which a column has its components at `centres`, or is what the member says."""
    member, link = family.member, family.link
    if not isinstance(link, Components):
        return member.natural().ravel()

    def part(centre: Array) -> Array:
        if not isinstance(link.link, Free):
            return with_mean(member, centre[None]).natural().ravel()
        # each is wide enough for its share of the column
        unit = jnp.full_like(centre[None], max(link.number / _FIRST_WIDTH, 1.0))
        wide = rescaled(member, jnp.zeros_like(unit), unit)
        return link.link.steps(member, with_mean(wide, centre[None]))

    return jnp.concatenate([jnp.zeros(link.number, centres.dtype), jax.vmap(part)(centres).ravel()])


def _width(rows: int, columns: int) -> int:
    """Hidden units: few for few rows, but two a column, up to 512."""
    return max(int(2 ** np.clip(np.round(np.log2(2 * np.sqrt(rows))), 4, 7)), min(2 * columns, 512))


def _centres(x: np.ndarray, weight: np.ndarray, number: int) -> np.ndarray:
    """Means of as many equal shares of the values in order."""
    order = np.argsort(x, kind="stable")
    share = (np.cumsum(weight[order]) - 0.5 * weight[order]) / weight.sum()
    group = np.minimum((share * number).astype(int), number - 1)
    total = np.bincount(group, weight[order], number)
    means = np.bincount(group, weight[order] * x[order], number) / np.where(total > 0, total, 1)
    return np.where(total > 0, means, np.average(x, weights=weight))
