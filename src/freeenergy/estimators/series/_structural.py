"""Structural time series as estimators."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from sklearn.utils.validation import check_is_fitted

from ..._core import (
    AbstractAlgorithm,
    AbstractSource,
    Data,
    Evidence,
    Fit,
    Info,
    Kind,
    held_at_zero,
    inadmissible,
    on_device,
    parameter_count,
)
from ...learning import EM, LBFGS, Gradient, negative_log_likelihood
from ...models import AbstractBlock, Columns, Level, Regressors, Series, Structural
from ...shell import Coefficients, Scaling, Sequences, check_instance, with_history
from ...shell._series import LEAST_VARIANCE
from ...shell._series_frame import Framed
from ...shell._summary import Along, listed_parameters, named_parameters
from ._state_space import AbstractStateSpace, apart, per_packed_row


class Component(NamedTuple):
    """What a part adds to a series at each step: mean and standard deviation, in the units of the data."""

    mean: Any
    std: Any


# parameters of which the slopes are carried along a series; with more, one walk back is faster
_FEW = 8
# coefficients that a summary lists
_MOST_COEFFICIENTS = 60


class _EachColumn(AbstractAlgorithm):
    """A learner for each column, side by side; a column that is done waits for the others."""

    needs: ClassVar[type[AbstractSource]] = Data
    learner: AbstractAlgorithm

    def _columns(self, data: Data) -> Data:
        """The data of each column along a leading axis."""
        values = jnp.moveaxis(data.x.values, 2, 0)[..., None]
        columns = len(values)

        def repeat(a: Array) -> Array:
            return jnp.broadcast_to(a, (columns, *a.shape))

        rest = jax.tree.map(repeat, data.x._replace(values=None))
        return Data(rest._replace(values=values), repeat(data.weight), repeat(data.rows), data.incomplete)

    def init(self, model: Any, data: Data, *, key: Array) -> Any:
        state = eqx.filter_vmap(lambda m, d: self.learner.init(m, d, key=key))(
            model.models, self._columns(data)
        )
        return state, jnp.full(data.x.values.shape[2], jnp.inf), jnp.zeros(data.x.values.shape[2], bool)

    def step(self, state: Any, data: Data, *, key: Array) -> tuple[Any, Info]:
        inner, objectives, done = state
        new, info = eqx.filter_vmap(lambda s, d: self.learner.step(s, d, key=key))(
            inner, self._columns(data)
        )
        # a column that fails, or cannot be improved, keeps what it had
        better = ~done & jnp.isfinite(info.objective) & (info.objective <= objectives)

        def choose(a: Any, b: Any) -> Any:
            return jnp.where(better.reshape(-1, *(1,) * (a.ndim - 1)), a, b) if eqx.is_array(a) else a

        kept = jax.tree.map(choose, new, inner)
        values = jnp.where(better, info.objective, objectives)
        stopped = done | info.done | ~better | (objectives - values <= 1e-10 * jnp.abs(values))
        return (kept, values, stopped), Info(jnp.all(stopped), jnp.sum(values))

    def model(self, state: Any) -> Any:
        return Columns(eqx.filter_vmap(self.learner.model)(state[0]))


@eqx.filter_jit
def _with_start(columns: Columns, data: Data, alone: bool) -> Columns:
    return columns.with_start(data.x, data.weight, alone)


def _diffuse_terms(series: Series, model: Columns) -> Array:
    return Columns(dataclasses.replace(model.models, begin=None, first=None)).step_evidence(series)


def _variances(model: Columns, scale: Array, input_scale: Array) -> dict[str, Array]:
    """The numbers of the parts by name, a column each, variances in the squared units of the data."""
    found = {}
    blocks = model.models.blocks  # pyright: ignore[reportAttributeAccessIssue]
    for path, value in named_parameters(model.models).items():
        words = path.split(".")
        unit = scale.reshape(-1, *(1,) * (value.ndim - 1))
        if words[0] == "blocks":
            block = blocks[int(words[1])]
            words[:2] = [type(block).__name__]
            if isinstance(block, Regressors):
                # a variance of rescaled inputs is one for each in their own units
                value, unit = value[:, None], scale[:, None] / input_scale[None]
            if ".".join(words) in found:
                words[0] += f" {path.split('.')[1]}"
        found[".".join(words)] = value * unit**2 if words[-1].endswith("variance") else value
    return found


def _components(series: Series, model: Columns, incomplete: bool) -> tuple[Array, Array]:
    mean, variance = model.components(series)
    return mean, jnp.sqrt(jnp.maximum(variance, 0))


def _predicted_columns(series: Series, model: Columns, incomplete: bool) -> tuple[Array, Array, Array]:
    mean, variance = model.predicted(series)
    return jnp.ones((len(mean), 1)), mean[:, None], variance[:, None]


def _last_coefficients(series: Series, model: Columns, incomplete: bool) -> tuple[Array, Array]:
    """The last coefficients of regressors, (dim, inputs): means and deviations, from a diffuse start."""

    def one(model: Structural, column: Series) -> tuple[Array, Array]:
        state = model.last_state(column)
        pairs = zip(model.blocks, model.parts(), strict=True)
        places = np.concatenate([np.arange(p.start, p.stop) for b, p in pairs if isinstance(b, Regressors)])
        return state.mean[places], jnp.sqrt(jnp.diagonal(state.covariance)[places])

    diffuse = dataclasses.replace(model.models, begin=None, first=None)
    return Columns(diffuse).each(one, series)


class StructuralTimeSeries(AbstractStateSpace):
    """Each column as a sum of parts (level, trend, season, cycle, autoregression, regressors) and noise.

    The variances and other numbers of the parts have the largest likelihood, with an exact diffuse start
    of what is not stationary; columns are independent of each other and fitted side by side.  After that
    the first states that the series had, and one more of the variance of the data, replace the diffuse
    start, so that the model is a density.  Draws of a model of one series start in the state in which that
    series started, as far as it is known: they are paths like it.

    Args:
        blocks: the parts, such as `Trend() + Seasonal(12)`; by default a `Level()`.  Their values, for data
            of unit variance, are where the fit starts; a variance of zero stays zero, so that
            `Trend(0.0, 0.01)` is a smooth trend.  `Regressors(k)` takes k inputs from `fit`.
        max_iter, tol: of L-BFGS; `tol` is the largest slope that counts as zero.
        learner: replaces L-BFGS, for each column.
        random_state, verbose, checkpoint: as everywhere.

    Attributes:
        model_: the fitted parts of each column, of rescaled series; `summary()` has their variances in
            units.
        n_inputs_in_, length_, history_, n_iter_, converged_, …: as everywhere.

    >>> import numpy as np
    >>> from freeenergy.models import Level, Seasonal
    >>> rng = np.random.default_rng(0)
    >>> t = np.arange(48)
    >>> x = (0.1 * t + np.tile([1.0, 0.0, -1.0, 0.0], 12) + 0.1 * rng.normal(size=48))[:, None]
    >>> model = StructuralTimeSeries(Level() + Seasonal(4), max_iter=20, tol=0.1).fit(x)
    >>> sorted(model.decompose(x))
    ['Level', 'Seasonal']
    """

    model_: Columns
    _maximises_likelihood = True

    def __init__(
        self,
        blocks: AbstractBlock | Structural | None = None,
        *,
        max_iter: int = 200,
        tol: float = 1e-3,
        learner: AbstractAlgorithm | None = None,
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: str | None = None,
    ) -> None:
        self.blocks = blocks
        self.max_iter = max_iter
        self.tol = tol
        self.learner = learner
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_instance(self, "blocks", AbstractBlock, Structural, optional=True)
        structure = self._structure()
        moving = held_at_zero(structure)
        wrong = inadmissible(eqx.filter(structure, moving))
        if wrong is not None:
            raise ValueError(
                f"The numbers in the 'blocks' parameter of StructuralTimeSeries must be {wrong[0].name}. "
                f"Got {np.asarray(wrong[1]).tolist()!r} instead."
            )
        if not any(jax.tree.leaves(moving)):
            raise ValueError(
                "The 'blocks' parameter of StructuralTimeSeries must have a variance above zero, or there "
                f"is nothing to fit. Got {structure!r} instead."
            )

    def _structure(self) -> Structural:
        blocks = Level() if self.blocks is None else self.blocks
        return blocks if isinstance(blocks, Structural) else Structural((blocks,), on_device(0.5))

    def _scaling(self, X: np.ndarray, weight: np.ndarray) -> Scaling:
        usual = Scaling.standardise(X, weight)
        regressors = [block for block in self._structure().blocks if isinstance(block, Regressors)]
        if all(block.intercept for block in regressors):
            return usual
        # nothing but the parts says where the series is
        return Scaling(np.zeros(X.shape[1]), usual.scale)

    def _input_scaling(self, inputs: np.ndarray, weight: np.ndarray) -> Scaling:
        # a coefficient that varies is one of the inputs themselves, not of their distance to a mean
        return Scaling(np.zeros(inputs.shape[1]), Scaling.standardise(inputs, weight).scale)

    def _free_parameters(self, n_features: int) -> int:
        structure = self._structure()
        return n_features * parameter_count(eqx.filter(structure, held_at_zero(structure)))

    @property
    def takes_inputs(self) -> bool:
        return any(isinstance(block, Regressors) for block in self._structure().blocks)

    def least_steps(self, n_features: int) -> int:
        # each unknown number of a diffuse start takes one observed value
        return super().least_steps(n_features) + self._structure().directions().shape[1]

    def _check_steps(self, sequences: Sequences, structure: Structural) -> None:
        """Refuses columns of which a diffuse start leaves nothing that could have a likelihood."""
        diffuse = structure.directions().shape[1]
        observed = np.max([np.sum(~np.isnan(x), axis=0) for x in sequences.series], axis=0)
        if observed.min() <= diffuse:
            raise ValueError(
                f"StructuralTimeSeries with these 'blocks' starts from {diffuse} unknown numbers, so that "
                f"a series must have {diffuse + 1} observed values or more in each column. "
                f"Got {observed.min()} in column {observed.argmin()} (n_samples = {len(sequences.rows)})."
            )

    def _learn(self, sequences: Sequences, key: Array) -> Fit:
        structure, columns = self._structure(), sequences.series[0].shape[1]
        sizes = [block.size for block in structure.blocks if isinstance(block, Regressors)]
        if sizes != [sequences.n_inputs] * len(sizes) or bool(sizes) != bool(sequences.n_inputs):
            advice = "" if sizes else f" Add Regressors({sequences.n_inputs}) to them."
            raise ValueError(
                "The Regressors in the 'blocks' of StructuralTimeSeries must have as many inputs as fit is "
                f"given. Got {sizes} and {sequences.n_inputs} inputs.{advice}"
            )
        self._check_steps(sequences, structure)
        own = apart(sequences)
        arrays, static = eqx.partition(structure, eqx.is_array)
        stacked = jax.tree.map(lambda a: jnp.broadcast_to(a, (columns, *a.shape)), arrays)
        start = eqx.combine(stacked, static)
        start = dataclasses.replace(start, floor=jnp.where(sequences.constant, LEAST_VARIANCE, 0.0))
        moving = held_at_zero(structure)
        few = parameter_count(eqx.filter(structure, moving)) <= _FEW
        learner = self.learner or LBFGS(negative_log_likelihood, self.tol, moving, few)
        result = self._run(Columns(start), _EachColumn(learner), own, sequences, key)
        alone = bool(sequences.weight.sum() <= 1)
        # a diffuse start has no units: each of its directions takes one log-determinant away
        units = structure.directions().shape[1] * np.log(self.scaling_.scale).sum()
        if self.input_scaling_ is not None:
            units -= len(sizes) * columns * np.log(self.input_scaling_.scale).sum()
        result = dataclasses.replace(result, model=_with_start(result.model, own, alone))
        return per_packed_row(sequences, with_history(result, offset=units), own)

    def _moving(self) -> Any:
        mask = self.learner.learnable if isinstance(self.learner, EM | Gradient | LBFGS) else None
        return Columns(held_at_zero(self.model_.models)) if mask is None else Columns(mask)

    def _count_parameters(self) -> int:
        # each unknown number of a diffuse start counts (Durbin and Koopman, 2012, section 7.4)
        unknown = self._structure().directions().shape[1]
        return self._free_parameters(self.n_features_in_) + unknown * self.n_features_in_

    def _log_terms(self) -> Any:
        return _diffuse_terms

    def _likelihood_of(self, X: Any, given: dict[str, Any]) -> tuple[Evidence, float]:
        # the start of the fitted model is taken from the series: what was maximised has a diffuse one
        total = self._fitted_likelihood()
        if total is None:
            return super()._likelihood_of(X, given)
        return Evidence(np.array([total]), np.zeros(1), Kind.EXACT), vars(self)["fitted_size_"]

    def _reported(self) -> tuple[Any, tuple[Array, ...]]:
        inputs = self._input_units()
        units = self.scaling_.scale, np.ones(0) if inputs is None else inputs.scale
        return _variances, tuple(on_device(unit) for unit in units)

    def _along(self, name: str, shape: tuple[int, ...]) -> Along:
        # a column each, and of regressions an input each
        inputs = self._input_labels()
        return tuple(
            self.column_names if axis == 0 else inputs if size == len(inputs) else None
            for axis, size in enumerate(shape)
        )

    _predictions: ClassVar[Any] = staticmethod(_predicted_columns)

    def gives_cells(self, n_features: int, *, from_start: bool) -> bool:
        # a diffuse start has no law
        return n_features == 1 and not from_start

    def decompose(self, X: Any, *, inputs: Any = None) -> dict[str, Component]:
        """What each part adds at each step, given the whole series, by the name of its class.

        A constant of the series is in the first part.
        """
        container = self._read(X, inputs)
        parts = self._for_each(_components, container)
        for number in (0, 1):
            self._answered("decompose", container, [pair[number] for pair in parts])
        names: list[str] = []
        for block in self._structure().blocks:
            name = type(block).__name__
            names.append(name if name not in names else f"{name} {len(names) + 1}")
        return {
            name: Component(
                container.rows(
                    [m[:, k] * self.scaling_.scale + (k == 0) * self.scaling_.shift for m, _ in parts]
                ),
                container.rows([s[:, k] * self.scaling_.scale for _, s in parts]),
            )
            for k, name in enumerate(names)
        }

    def coefficients(self, X: Any, *, inputs: Any = None) -> Component:
        """What one more of each input adds to each column: the coefficients of `Regressors`.

        They are those of generalised least squares, with the fitted variances and nothing known before the
        series, and their standard errors, in the units of the data; of a random walk those at the end.

        Args:
            X: one series or several.
            inputs: what is known beside them.

        Returns:
            `mean` and `std`, (columns, inputs); a list of them, one for each series, of several.
        """
        check_is_fitted(self, "model_")
        if not self.takes_inputs:
            raise ValueError(
                "StructuralTimeSeries.coefficients needs Regressors among the 'blocks'. "
                f"Got {self._structure().blocks!r} instead."
            )
        container = self._read(X, inputs)
        found = self._regressions(container)
        return Component(*(container.wrap([pair[number] for pair in found]) for number in (0, 1)))

    def _regressions(self, container: Any) -> list[tuple[np.ndarray, np.ndarray]]:
        """Coefficients of each series and their errors, (columns, inputs)."""
        found = self._for_each(_last_coefficients, container, cut=False)
        units = self._input_units()
        inputs = 1.0 if units is None else np.tile(units.scale, found[0][0].shape[1] // len(units.scale))
        scale = self.scaling_.scale[:, None] / inputs
        return [(mean * scale, error * scale) for mean, error in found]

    def _coefficient_table(self, X: Any, robust: bool, given: dict[str, Any]) -> Coefficients | None:
        if X is None or not self.takes_inputs:
            return None
        table = listed_parameters(self, X, robust, given)
        container = self._read(X, given.get("inputs"))
        means, errors = (np.stack(each) for each in zip(*self._regressions(container), strict=True))
        if means.size > _MOST_COEFFICIENTS:
            note = f"There are {means.size:,} coefficients of regressors: see coefficients(X)."
            return table._replace(notes=[*table.notes, note])
        own = container.container
        labels = own.source.labels if isinstance(own, Framed) else None
        inputs = self._input_labels() * (means.shape[2] // self.n_inputs_in_)
        names = []
        for series, column, number in np.ndindex(means.shape):
            place = f"series {series}" if labels is None else str(labels[series])
            words = [*([place] if len(means) > 1 else []), self.column_names[column], inputs[number]]
            names.append(f"Regressors[{', '.join(words)}]")
        known = np.full(len(table.values), np.nan) if table.stderr is None else table.stderr
        return table._replace(
            names=[*table.names, *names],
            values=np.append(table.values, means),
            stderr=np.append(known, errors),
        )

    def states(self, X: Any, *, inputs: Any = None) -> dict[str, np.ndarray]:
        shown = {}
        for number, (name, part) in enumerate(self.decompose(X, inputs=inputs).items()):
            shown[f"mean {number} {name}"] = np.asarray(part.mean)
            shown[f"std {number} {name}"] = np.asarray(part.std)
        return shown
