"""Densities of series."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from sklearn.utils.validation import check_is_fitted

from .._core import Evidence, Kind, on_device, split_key_data
from ..models import AbstractSequenceModel, Series, series_in_units
from ._base import Shell
from ._capabilities import Completes, Samples, ScoresSteps
from ._completion import AbstractCompletion, SeriesEnergy
from ._rows import Scaling
from ._schema import kinds_of
from ._series import SeriesIntake, check_inputs, check_series_weight, draw_series, map_series, pack
from ._series_frame import AbstractContainer, Framed
from ._summary import Terms, reported, weighted
from ._validation import check_count, random_key


class AbstractSequenceDensity(ScoresSteps, Samples, Completes, Shell):
    """A fitted density of series: `fit`, `evidence`, `step_evidence`, `sample`, `impute`.

    Subclasses say how to check their parameters, and how to learn an `AbstractSequenceModel` from
    `Sequences`; the objective of what `_learn` returns is a mean per row of the packed series.

    X is one series of shape (time, features), an array (series, time, features), a list of series of any
    lengths, or a frame: one series, or several by an index of the two levels series and time, or what
    `fe.series` declares; NaN is not observed.  In a list, arrays of one dimension are series of one column;
    lists of numbers of one length are the rows of one series.  The steps of a frame with dates are regular,
    and those between its rows that it does not have are not observed; what comes back are frames.
    Series are independent of each other.  `inputs` are what is known
    beside X at each time step, in containers like those of X; a model that was fitted with inputs needs
    them ever after.  Everything here is in the units of the data that the user passed; the model works on
    `scaling_` of X and `input_scaling_` of the inputs.
    """

    intake = SeriesIntake
    n_features_in_: int
    model_: AbstractSequenceModel
    scaling_: Scaling
    input_scaling_: Scaling | None
    length_: int
    _takes_inputs: ClassVar[bool] = True
    _size_unit = "time steps"

    @property
    def needs_kinds(self) -> bool:
        """Whether columns have to be told apart: counts, truth values, labels, …"""
        return False

    def _scaling(self, X: np.ndarray, weight: np.ndarray) -> Scaling:
        return Scaling.standardise(X, weight)

    def gives_cells(self, n_features: int, *, from_start: bool) -> bool:
        """Whether `cell_evidence` has an answer for such series; `from_start` for their first steps too."""
        return False

    def _input_scaling(self, inputs: np.ndarray, weight: np.ndarray) -> Scaling:
        return Scaling.standardise(inputs, weight)

    def _free_parameters(self, n_features: int) -> int:
        """About how many numbers a fit without inputs chooses, as far as known before it; else zero."""
        return 0

    @property
    def evidence_kind(self) -> Kind:
        """In which sense its numbers are log-probabilities."""
        return Kind.EXACT

    @property
    def takes_inputs(self) -> bool:
        """Whether `fit` may be given inputs."""
        return self._takes_inputs

    def least_steps(self, n_features: int) -> int:
        """The steps that a fit needs to be of use: two numbers for each free parameter."""
        self._check_parameters()
        return -(-2 * self._free_parameters(n_features) // n_features)

    @property
    def n_inputs_in_(self) -> int:
        """How many inputs there are at each time step; zero without any."""
        scaling = self._input_units()
        return 0 if scaling is None else len(scaling.shift)

    def _input_units(self) -> Scaling | None:
        # estimators in files of earlier versions know of no inputs
        return vars(self).get("input_scaling_")

    def _input_labels(self) -> list[str]:
        """Names of the inputs, or their numbers."""
        names = vars(self).get("input_names_in_")
        return [str(name) for name in (range(self.n_inputs_in_) if names is None else names)]

    @classmethod
    def _inputs_of(cls, model: Any) -> int:
        """How many inputs a model takes at each time step."""
        return 0

    def _take(self, model: Any) -> None:
        inputs, self.length_ = self._inputs_of(model), 1
        self.input_scaling_ = Scaling.identity(inputs) if inputs else None

        def one_step(model: Any) -> Array:
            return model.sample(1, key=jax.random.key(0), inputs=jnp.zeros((1, inputs)) if inputs else None)

        columns = eqx.filter_eval_shape(one_step, model).shape[-1]
        self.n_features_in_, self.scaling_ = columns, Scaling.identity(columns)

    def fit(self, X: Any, y: Any = None, *, inputs: Any = None, series_weight: Any = None) -> Self:
        """Fits the model.

        Args:
            X: one series (time, features), an array (series, time, features), a list of series (arrays of
                one dimension are series of one column), a frame, or what `fe.series` makes of one.
            y: ignored.
            inputs: what is known beside X, finite numbers: as X, with columns of their own.
            series_weight: a non-negative number per series; a weight of two counts as two series.
        """
        self._fit(X, inputs=inputs, series_weight=series_weight)
        return self

    def _scaled_inputs(self, inputs: list[np.ndarray] | None) -> list[np.ndarray] | None:
        scaling = self._input_units()
        return None if inputs is None or scaling is None else [scaling.apply(u) for u in inputs]

    def _check_inputs(
        self,
        inputs: Any,
        lengths: list[int],
        name: str = "inputs",
        *,
        beside: AbstractContainer | None = None,
        ahead: int = 0,
    ) -> list[np.ndarray] | None:
        """Rescaled inputs of series of these lengths: as many as `fit` was given, or none."""
        kind = type(self).__name__
        if not self.n_inputs_in_:
            if inputs is not None:
                raise ValueError(f"{kind} was fitted without inputs and takes none. Got '{name}'.")
            return None
        if inputs is None:
            raise ValueError(
                f"{kind} was fitted with inputs and needs the '{name}' of every time step. Got None."
            )
        return self._scaled_inputs(
            check_inputs(self, inputs, lengths, self.n_inputs_in_, name=name, beside=beside, ahead=ahead)
        )

    def _read(self, X: Any, inputs: Any = None) -> SeriesIntake:
        """What a call of the fitted estimator is given."""
        return self.intake.reading(self, X, inputs=inputs)

    @property
    def model_in_units(self) -> AbstractSequenceModel:
        """The fitted model for series in the units of the data, where `model_` has rescaled ones.

        Hidden Markov models, linear systems and autoregressions have their own parameters in these units;
        other models are a `freeenergy.models.SeriesInUnits`.
        """
        check_is_fitted(self, "model_")
        return series_in_units(self.model_, *self._units())

    def _units(self) -> tuple[np.ndarray, ...]:
        """Shift and scale of the values, and of the inputs if there are any."""
        return *self.scaling_, *(self._input_units() or ())

    @property
    def _knows_evidence(self) -> bool:
        return self.evidence_kind is Kind.EXACT

    def _reported(self) -> tuple[Any, tuple[Array, ...]]:
        return reported(self, lambda model: series_in_units(model, *self._units()))

    def _likelihood_of(self, X: Any, given: dict[str, Any]) -> tuple[Evidence, float]:
        container, weight = self._read(X, given.get("inputs")), self._series_weight(X, given)
        nats = np.array([part.sum() for part in self._step_evidence(container)])
        found = Evidence(nats, np.zeros_like(nats), self.evidence_kind)
        return weighted(found, weight), float(weight @ [len(x) for x in container.series])

    def _series_weight(self, X: Any, given: dict[str, Any]) -> np.ndarray:
        return check_series_weight(
            self, given.get("series_weight"), self._read(X, given.get("inputs")).series
        )

    def _log_terms(self) -> Callable[[Series, Any], Array]:
        """A module-level function of a series and the model: the terms of what the fit maximised."""
        return step_terms

    def _terms(self, X: Any, given: dict[str, Any]) -> list[Terms] | str:
        if not (self._knows_evidence and self._maximises_likelihood):
            return super()._terms(X, given)
        container, weight = self._read(X, given.get("inputs")), self._series_weight(X, given)
        scaled = [self.scaling_.apply(x) for x in container.series]
        data = pack(scaled, None, container.inputs, weight, apart=True)
        return [Terms(data, self._log_terms(), 1)]

    def _future(self, future_inputs: Any, container: SeriesIntake, steps: int) -> np.ndarray | None:
        """Rescaled inputs of `steps` steps after each series: (series, steps, inputs)."""
        parts = self._check_inputs(
            future_inputs,
            [steps] * len(container.series),
            "future_inputs",
            beside=container.container,
            ahead=steps,
        )
        return None if parts is None else np.stack(parts)

    def _for_each(
        self,
        function: Callable[..., Any],
        container: SeriesIntake,
        *,
        arguments: tuple[Any, ...] = (),
        extra: Any = None,
        cut: bool = True,
    ) -> list[Any]:
        """`function(row, model, incomplete, *arguments)` for each series, rescaled, by `map_series`.

        `incomplete` says whether there is a NaN in any of them.
        """
        scaled = [self.scaling_.apply(x) for x in container.series]
        incomplete = any(bool(np.isnan(x).any()) for x in scaled)
        return map_series(
            function,
            scaled,
            self.model_,
            incomplete,
            *arguments,
            inputs=container.inputs,
            extra=extra,
            cut=cut,
        )

    def _step_evidence(self, container: SeriesIntake) -> list[np.ndarray]:
        parts = self._for_each(step_evidence_of, container)
        parts = [part + self.scaling_.log_det(x) for part, x in zip(parts, container.series, strict=True)]
        self._check_answers("evidence", container, [bool((part < np.inf).all()) for part in parts])
        return parts

    def _check_answers(self, method: str, container: SeriesIntake, good: list[bool]) -> None:
        """Refuses the first series whose answer is not good, and says which of its steps cannot occur."""
        if all(good):
            return
        number = good.index(False)
        impossible = np.isneginf(self._for_each(step_evidence_of, container.take([number]))[0])
        if impossible.any():
            reason = f"its step {impossible.argmax()} cannot occur. Check its values and units."
        else:
            reason = (
                "its numbers overflow, or no variance is left in the model. Check its values and units, "
                "and whether the fit converged."
            )
        raise ValueError(f"{type(self).__name__}.{method} has no answer for series {number} of X: {reason}")

    def _answered(self, method: str, container: SeriesIntake, parts: list[np.ndarray]) -> list[np.ndarray]:
        """`parts`, an array for each series, refused where one holds NaN or infinity."""
        self._check_answers(method, container, [bool(np.isfinite(part).all()) for part in parts])
        return parts

    def evidence(self, X: Any, *, inputs: Any = None) -> Evidence:
        """log p of each series with its standard error and kind; NaN is marginalised."""
        parts = self._step_evidence(self._read(X, inputs))
        nats = np.array([part.sum() for part in parts])
        return Evidence(nats, np.zeros_like(nats), self.evidence_kind)

    def step_evidence(self, X: Any, *, inputs: Any = None) -> np.ndarray:
        """log p(x_t | x_<t) of each time step, series one after another."""
        return np.concatenate(self._step_evidence(self._read(X, inputs)))

    def score_samples(self, X: Any, *, inputs: Any = None) -> np.ndarray:
        """log p of each series, in nats."""
        return self.evidence(X, inputs=inputs).nats

    def score(self, X: Any, y: Any = None, *, inputs: Any = None) -> float:
        """The mean of `step_evidence`: nats per time step."""
        return float(self.step_evidence(X, inputs=inputs).mean())

    def sample(
        self,
        n: int = 1,
        random_state: Any = None,
        *,
        length: int | None = None,
        given: Any = None,
        inputs: Any = None,
    ) -> Any:
        """Draws `n` series of `length` steps (by default as long as the longest that was fitted).

        A model with inputs takes `inputs` of shape (length, inputs), the same for all series, or
        (n, length, inputs).  With `given`, series with NaN, the missing part is drawn given the observed
        part, `n` times: the result is like `given`, each series with a leading axis of n unless n is 1.
        After a fit to a frame of several kinds of columns draws are frames, one or a list of n.
        """
        check_is_fitted(self, "model_")
        key = random_key(random_state)
        if given is None:
            return self._draw(n, key, length, inputs)
        container = self._read(given, inputs)
        many = len(container.series)
        n = check_count(self, "sample", "n", n, each=sum(x.size + 1 for x in container.series))
        repeated = container.take(list(range(many)) * n)
        drawn = self._for_each(complete_series_sample_of, repeated, extra=split_key_data(key, many * n))
        filled = [self._fill(x, z) for x, z in zip(repeated.series, drawn, strict=True)]
        draws = self._answered("sample", container, [np.stack(filled[i::many]) for i in range(many)])
        if n == 1:
            return container.completed([part[0] for part in draws])
        schema = kinds_of(self)
        if schema is None:
            return container.wrap(draws)
        if isinstance(container.container, Framed):
            return [container.completed([part[number] for part in draws]) for number in range(n)]
        return container.wrap([np.stack([schema.decode(one) for one in part]) for part in draws])

    def _draw(self, n: int, key: Array, length: int | None, inputs: Any) -> Any:
        shape = np.shape(inputs)
        usual = shape[-2] if len(shape) > 1 else self.length_
        columns = self.n_features_in_
        steps = check_count(self, "sample", "length", usual if length is None else length, each=columns)
        n = check_count(self, "sample", "n", n, each=steps * columns + 1)
        parts = self._check_inputs(inputs, [steps] * (n if len(shape) == 3 else 1))
        drawn = self.scaling_.invert(draw_series(sample_series_of, self.model_, n, steps, key, parts))
        schema = kinds_of(self)
        if schema is None:
            return drawn
        made = [schema.decode(part) for part in drawn]
        return np.stack(made) if schema.library == "numpy" else made[0] if n == 1 else made

    def _shares(
        self,
        method: str,
        function: Callable[..., Array],
        X: Any,
        inputs: Any,
        told: Callable[[np.ndarray], np.ndarray] = np.asarray,
    ) -> Any:
        """What is told of the probabilities of the states of each series, which `function` gives.

        In frames the columns are called by the state, or the one by "state".
        """
        container = self._read(X, inputs)
        parts = self._answered(method, container, self._for_each(function, container))
        # of sum one to the last digit, so that none is above one
        found = [told(part / part.sum(axis=1, keepdims=True)) for part in parts]
        return container.rows(found, state_names(found[0]))

    def _completion(self, x: np.ndarray) -> AbstractCompletion | None:
        if not self._knows_evidence:
            return None
        return SeriesEnergy(self.model_, *map(on_device, self.scaling_))

    def impute(self, X: Any, *, inputs: Any = None) -> Any:
        """`X` with each missing entry inferred from all that is observed of its series.

        A continuous entry has its mean, a count the whole number next to its mean, a label the most
        probable one.
        """
        container = self._read(X, inputs)
        series = list(container.series)
        holes = [i for i, x in enumerate(series) if np.isnan(x).any()]
        if holes:
            incomplete = container.take(holes)
            for i, z in zip(holes, self._for_each(complete_series_mean_of, incomplete), strict=True):
                series[i] = self._fill(series[i], z)
            self._answered("impute", container, series)
            roles = self.column_roles(self.n_features_in_)
            whole, labels = roles.whole, roles.labels
            likeliest = self._likeliest(incomplete, np.flatnonzero(labels)) if labels.any() else []
            for number, i in enumerate(holes):
                series[i][:, whole] = np.rint(series[i][:, whole])
                if labels.any():
                    series[i][:, labels] = likeliest[number]
        return container.completed(series)

    def _likeliest(self, container: SeriesIntake, columns: np.ndarray) -> list[np.ndarray]:
        """These columns of each series, the missing labels replaced by the most probable ones."""
        raise NotImplementedError(f"{type(self).__name__} has labels and must say which are probable.")

    def _fill(self, x: np.ndarray, z: np.ndarray) -> np.ndarray:
        return np.where(np.isnan(x), self.scaling_.invert(z), x)


def state_names(part: np.ndarray) -> Any:
    """What columns with something of each state are called, or the one with the state."""
    return "state" if part.ndim == 1 else [f"state {k}" for k in range(part.shape[1])]


def step_terms(series: Series, model: AbstractSequenceModel) -> Array:
    """log p of each step given those before it, whether or not something is missing."""
    return model.step_evidence(series)


def step_evidence_of(series: Series, model: AbstractSequenceModel, incomplete: bool) -> Array:
    """log p of each step given those before it."""
    return model.step_evidence(series, incomplete=incomplete)


def sample_series_of(pair: tuple[Array, Array | None], model: AbstractSequenceModel, length: int) -> Array:
    """A series, from the numbers of a key and inputs."""
    key, inputs = pair
    return model.sample(length, key=jax.random.wrap_key_data(key), inputs=inputs)


def complete_series_mean_of(series: Series, model: AbstractSequenceModel, incomplete: bool) -> Array:
    """A series with the means of what is missing."""
    return model.complete_mean(series)


def complete_series_sample_of(
    pair: tuple[Series, Array], model: AbstractSequenceModel, incomplete: bool
) -> Array:
    """A series with draws of what is missing."""
    series, key = pair
    return model.complete_sample(series, key=jax.random.wrap_key_data(key))
