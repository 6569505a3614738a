"""Hidden Markov models as estimators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from sklearn.utils.validation import check_is_fitted

from ... import models
from ..._core import (
    AbstractAlgorithm,
    Data,
    Fit,
    fold_key,
    map_rows,
    on_device,
    parameter_count,
    split_key,
    split_key_data,
    stacked,
)
from ...distributions import (
    AbstractConjugatePrior,
    AbstractCovariance,
    AbstractExponentialFamily,
    AbstractShaped,
    DirichletPrior,
    Gaussian,
    Product,
    component_axes,
    levels,
)
from ...inference._chain_finite import nan_if_impossible
from ...learning import EM
from ...models import (
    AbstractEmissions,
    AbstractTransition,
    FamilyEmissions,
    LogisticTransition,
    MixtureEmissions,
    RegressionEmissions,
    Series,
    Transition,
)
from ...models._regressions import clusterwise_regressions
from ...shell import (
    AbstractPredictive,
    ColumnLaws,
    ColumnRoles,
    Field,
    ForecastsSeries,
    MassTables,
    NormalMixtures,
    Predicts,
    PredictsProbabilities,
    Rows,
    Scaling,
    Schema,
    Sequences,
    SeriesFrame,
    SeriesIntake,
    best_of,
    check_count,
    check_instance,
    check_int,
)
from ...shell._answers import answers
from ...shell._density import likeliest
from ...shell._information import Terms
from ...shell._rows import canonical_rows
from ...shell._schema import kinds_of
from ...shell._summary import Along, named_parameters
from ...shell._validation import random_key
from .._by_column import (
    by_column,
    member_by_column,
    prior_by_column,
    roles_by_column,
    scaling_by_column,
    takes_by_family,
)
from ..tables._starts import LLOYD_STEPS, AbstractStart, PlusPlus, at_known, start_model
from ._markov import concentration

# values of a column whose probabilities are listed at first, and at most; what may be left to others
_FIRST_VALUES, _MOST_VALUES, _LITTLE = 64, 2**18, 1e-9


def _filter(series: Series, model: models.HMM, incomplete: bool) -> Array:
    return nan_if_impossible(model.filter(series, incomplete=incomplete).filtered)


def _smooth(series: Series, model: models.HMM, incomplete: bool) -> Array:
    return nan_if_impossible(model.smooth(series, incomplete=incomplete).marginals)


def _decode(series: Series, model: models.HMM, incomplete: bool, n: int) -> Array:
    best = model.decode(series, n, incomplete=incomplete)
    return jnp.where(best.log_prob[None] > -jnp.inf, best.states, -1)


@eqx.filter_jit
def _of_each(structure: AbstractCovariance, roots: Any, states: int) -> AbstractCovariance:
    """A stack of one covariance for all states, of which `roots` is a square root."""
    second = jnp.sum(jax.vmap(structure.second_moments)(roots.T), axis=0)
    ones = jnp.ones((states, len(roots)))
    return structure.from_moments(ones, 0 * ones, jnp.tile(second, (states, 1)))


@eqx.filter_jit
def _means(model: models.HMM, inputs: Any) -> Array:
    return model.means(inputs)


@eqx.filter_jit
def _covariances(emissions: Any, inputs: Any) -> Array:
    here = emissions.at(inputs) if isinstance(emissions, RegressionEmissions) else emissions
    axes = component_axes(here.members)
    return jax.vmap(lambda member: member.covariance.matrix(), (axes,))(here.members)


@eqx.filter_jit
def _transitions(transition: AbstractTransition, inputs: Any) -> Array:
    return jax.vmap(transition.matrix)(inputs)


def _label_chance(pair: tuple[Array, Array], model: models.HMM, column: Array, label: Array) -> Array:
    return model.label_probability(*pair, column, label)


def _forecast(pair: tuple[Series, Array], model: models.HMM, incomplete: bool) -> tuple[Array, Array, Any]:
    """Beliefs, means, and the normal parts of the emissions of each step, if they are such."""
    series, future = pair
    steps, width = future.shape
    inputs = future if width else None
    beliefs, means = model.forecast(series, steps, incomplete=incomplete, inputs=inputs)
    if inputs is None:
        normal = model.emissions.normals(None)
        if normal is not None:
            normal = tuple(jnp.broadcast_to(a, (steps, *a.shape)) for a in normal)
        return beliefs, means, normal
    return beliefs, means, jax.vmap(model.emissions.normals)(inputs)


def _ahead_of_each(series: Series, model: models.HMM, incomplete: bool) -> Any:
    """Weights, means and variances of the normal laws of each step given those before it."""
    length = len(series.real)
    each: Any = jnp.zeros((length, 0)) if series.inputs is None else series.inputs
    driven = series.inputs is not None
    laws: Any = jax.vmap(lambda u: model.emissions.normals(u if driven else None))(each)
    weights, means, variances = laws
    belief = model.filter(series, incomplete=incomplete).predicted
    shares = (belief[:, :, None] * weights).reshape(length, -1)
    return shares, *(a.reshape(length, -1, a.shape[-1]) for a in (means, variances))


def _state_log_probs(row: Array, model: models.HMM) -> Array:
    emissions = model.emissions
    return emissions.log_probs(emissions.prepare(), row[None], True, None)[0]


def _normal_columns(emissions: Any, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Means and variances of these columns in each state, of members that are normal there; or None."""
    if not isinstance(emissions, FamilyEmissions) or not isinstance(emissions.members, Product):
        return None
    members, found = emissions.members, {}
    places = np.split(members.order, np.cumsum(members.sizes)[:-1])
    for part, own in zip(members.parts, places, strict=True):
        if isinstance(part, Gaussian) and part.covariance.separable:
            law = np.asarray(part.mean), np.asarray(part.covariance.variances())
            found |= {int(column): [a[:, i] for a in law] for i, column in enumerate(own)}
    wanted = np.flatnonzero(columns)
    if any(int(column) not in found for column in wanted):
        return None
    means, variances = zip(*(found[int(column)] for column in wanted), strict=True)
    return np.stack(means, axis=1), np.stack(variances, axis=1)


def _sample_states(pair: tuple[Series, Array], model: models.HMM, incomplete: bool) -> Array:
    series, key = pair
    return model.sample_states(series, key=jax.random.wrap_key_data(key))


def _parameters(model: models.HMM, shift: Array, scale: Array, *of_inputs: Array) -> dict[str, Array]:
    """Probabilities of the states, and the emissions in the units of the data.

    Of transitions that depend on inputs the parameters, in the units of these where there are such.
    """
    units = of_inputs or (None, None)
    emissions: Any = model.emissions.in_units(shift, scale, *units)
    parts: dict[str, Any] = {"emissions": emissions}
    if isinstance(emissions, FamilyEmissions):
        parts = {"members": emissions.members}
    elif isinstance(emissions, MixtureEmissions):
        parts = {"components": emissions.mixtures.components}
    found = {"initial": model.start()}
    if model.transition.varies:
        transition = model.transition.in_units(*units) or model.transition
        # what is added to all numbers of a row changes no probability
        logistic = isinstance(transition, LogisticTransition)
        parts = {"transition": transition.against_staying() if logistic else transition} | parts
    else:
        found["transition"] = model.transition.matrix()
    if isinstance(emissions, MixtureEmissions):
        found["weights"] = emissions.mixtures.weights
    named = {part: named_parameters(member) for part, member in parts.items()}
    return found | {f"{part}.{name}": value for part in named for name, value in named[part].items()}


class HMM(Predicts, PredictsProbabilities, ForecastsSeries):
    """A hidden Markov model with emissions of any exponential family.

    p(y) = Σ_x π(x_1) Π_t A(x_{t−1}, x_t) Π_t p(y_t | x_t), learned by EM (Baum–Welch) from k-means++
    starts.  Row i of `transition_` says where state i goes: transition_[i, j] = p(next = j | now = i),
    with rows that sum to one (some texts print the transpose).

    Args:
        n_states: how many hidden states.
        family: of the emissions: a class of `freeenergy.distributions` such as `Poisson`, or an instance
            whose shape and fixed parts are used, such as `Gaussian(jnp.zeros(2), Diagonal())`; for series
            with columns of different kinds `"by column"`, which is short for `ByColumn()`: each column has
            the family of its kind (`schema_`), with a weak prior; or `RegressionEmissions()`, Gaussians
            whose means are linear in the inputs.
        n_components: members of the family in each state; above one its emissions are mixtures.
        n_init: starts; the best end counts.
        init: a start such as `PlusPlus()` or `RandomRows()`, or an array of centres.
        max_iter, tol: the most iterations, and the improvement in nats per time step below which EM
            stops.
        transition: where the transitions start: an array, whose zeros stay zero, or an
            `AbstractTransition` such as `TiedTransition(…)`, or `LogisticTransition()` for transitions that
            depend on the inputs.
        stationary: whether series start from the stationary distribution of the transitions instead of
            a distribution of their own.
        transition_prior, initial_prior, emission_prior: conjugate priors make the fit MAP; that of the
            emissions is in units of the standardised columns if the family is Gaussian.
        learner: replaces EM, for example by `EM(temperature=0.0)`, which is Viterbi training, or by
            `Gradient(…)`.
        random_state: seed.
        verbose: 1 shows progress.
        checkpoint: a file that keeps a long fit.

    Attributes:
        initial_: the probabilities of the first state.
        transition_: p(next = j | now = i) at [i, j]; `transitions` if it depends on inputs.
        means_, covariances_: of the emissions of each state, in the units of the data.
        coefficients_, intercept_: with `RegressionEmissions` what one of an input adds to the means of
            each state, (states, features, inputs), and the means where inputs are zero, in the units of the
            data.
        model_: the fitted `freeenergy.models.HMM`, of rescaled series.
        n_inputs_in_, length_, history_, n_iter_, converged_, …: as everywhere.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> states = np.repeat([0, 1, 0, 1], 50)
    >>> X = rng.normal(4.0 * states[:, None], 1.0)
    >>> model = HMM(2, random_state=0).fit(X)
    >>> sorted(np.round(model.means_[:, 0]).tolist())
    [0.0, 4.0]
    >>> path = model.decode(X)
    >>> int(np.sum(path[1:] != path[:-1]))
    3
    """

    model_: models.HMM

    _maximises_likelihood = True
    _made_from = models.HMM

    @classmethod
    def _parameters_of(cls, model: Any) -> dict[str, Any]:
        if not isinstance(model.emissions, FamilyEmissions) or model.transition.varies:
            found = f"{type(model.emissions).__name__} and {type(model.transition).__name__}"
            raise ValueError(
                "The 'model' of HMM.from_model must have one member of a family in each state, and no "
                f"inputs. Got {found} instead."
            )
        parameters = {"n_states": model.size, "family": model.emissions.member(0)}
        return parameters | {"transition": model.transition, "stationary": model.initial is None}

    def __init__(
        self,
        n_states: int = 2,
        family: Any = Gaussian,
        *,
        n_components: int = 1,
        n_init: int = 1,
        init: AbstractStart | np.ndarray | None = None,
        max_iter: int = 1000,
        tol: float = 1e-5,
        transition: AbstractTransition | np.ndarray | None = None,
        stationary: bool = False,
        transition_prior: DirichletPrior | None = None,
        initial_prior: DirichletPrior | None = None,
        emission_prior: AbstractConjugatePrior | None = None,
        learner: AbstractAlgorithm | None = None,
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: str | None = None,
    ) -> None:
        self.n_states = n_states
        self.family = family
        self.n_components = n_components
        self.n_init = n_init
        self.init = init
        self.max_iter = max_iter
        self.tol = tol
        self.transition = transition
        self.stationary = stationary
        self.transition_prior = transition_prior
        self.initial_prior = initial_prior
        self.emission_prior = emission_prior
        self.learner = learner
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint

    def _check_parameters(self) -> None:
        super()._check_parameters()
        for name in ("n_states", "n_components"):
            check_int(self, name)
        check_instance(self, "init", AbstractStart, np.ndarray, optional=True)
        check_instance(self, "transition", AbstractTransition, np.ndarray, optional=True)
        check_instance(self, "stationary", bool)
        check_instance(self, "transition_prior", DirichletPrior, optional=True)
        check_instance(self, "initial_prior", DirichletPrior, optional=True)
        check_instance(self, "emission_prior", AbstractConjugatePrior, optional=True)
        shaped = isinstance(self.family, type) and issubclass(self.family, AbstractShaped)
        member = isinstance(self.family, AbstractExponentialFamily | RegressionEmissions)
        if not shaped and not member and by_column(self.family) is None:
            raise ValueError(
                "The 'family' parameter of HMM must be an exponential family of "
                "freeenergy.distributions, such as Poisson, a member of one, or 'by column'. "
                f"Got {self.family!r} instead."
            )
        if isinstance(self.family, RegressionEmissions):
            unusual = {
                "n_components": self.n_components > 1,
                "init": self.init is not None,
                "emission_prior": self.emission_prior is not None,
            }
            for name in (name for name, refused in unusual.items() if refused):
                raise ValueError(
                    f"The '{name}' parameter of HMM must have its default with RegressionEmissions. "
                    f"Got {getattr(self, name)!r} instead."
                )
        if self.stationary and self._varies():
            raise ValueError(
                "The 'stationary' parameter of HMM must be False if transitions depend on inputs. "
                "Got True instead."
            )
        expected = (self.n_states, self.n_states)
        if isinstance(self.transition, np.ndarray) and (
            self.transition.shape != expected
            or not np.allclose(self.transition.sum(axis=1), 1)
            or (self.transition < 0).any()
        ):
            raise ValueError(
                f"The 'transition' parameter of HMM must have the shape {expected} and rows of "
                f"probabilities. Got {self.transition!r} instead."
            )

    def _varies(self) -> bool:
        """Whether transitions depend on inputs."""
        return isinstance(self.transition, AbstractTransition) and self.transition.varies

    @property
    def needs_kinds(self) -> bool:
        return by_column(self.family) is not None

    def takes(self, field: Field) -> bool:
        return takes_by_family(self.family, field)

    def _scaling(self, X: np.ndarray, weight: np.ndarray) -> Scaling:
        family = by_column(self.family)
        if family is not None:
            return scaling_by_column(member_by_column(family, self), X, weight)
        if not self.family.unit_free_columns(X.shape[1]).all():
            return Scaling.identity(X.shape[1])
        common = not isinstance(self.family, type) and self.family.common_unit
        return Scaling.standardise(X, weight, common=common)

    def column_roles(self, n_features: int) -> ColumnRoles:
        if by_column(self.family) is None:
            return ColumnRoles.of(self.family, n_features)
        schema = kinds_of(self)
        return ColumnRoles.continuous(n_features) if schema is None else roles_by_column(schema)

    def roles_for(self, schema: Schema) -> ColumnRoles:
        if by_column(self.family) is None:
            return self.column_roles(len(schema.modelled))
        return roles_by_column(schema)

    def _column_levels(self, n_features: int) -> tuple[int, ...] | None:
        emissions = self.model_.emissions
        return levels(emissions.members) if isinstance(emissions, FamilyEmissions) else None

    def _likeliest(self, container: SeriesIntake, columns: np.ndarray) -> list[np.ndarray]:
        # columns of labels are never rescaled, those beside them may be
        rows = self.scaling_.apply(np.concatenate(container.series))
        shares = np.concatenate(self._for_each(_smooth, container))
        found = rows[:, columns]
        for place, column in enumerate(columns):
            missing = np.isnan(rows[:, column])

            def chance_of(
                label: int, own: Any = (rows[missing], shares[missing]), column: Any = column
            ) -> Any:
                return map_rows(
                    _label_chance, own, self.model_, jnp.asarray(column), jnp.asarray(float(label))
                )

            if missing.any():
                found[missing, place] = likeliest(chance_of, int(missing.sum()))
        return np.split(found, np.cumsum([len(x) for x in container.series])[:-1])

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        states: Any = None,
        inputs: Any = None,
        series_weight: Any = None,
    ) -> Self:
        """Fits the model.

        Args:
            X: one series (time, features), an array (series, time, features), a list of series (arrays of
                one dimension are series of one column), a frame, or what `fe.series` makes of one.
            y: ignored.
            states: the hidden state of each time step where it is known, −1 where not; a number per
                time step in the same containers as X.
            inputs: what is known beside X, finite numbers: as X, with columns of their own.  What depends
                on them (`RegressionEmissions()`, `LogisticTransition()`) is given them standardised.
            series_weight: a non-negative number per series; a weight of two counts as two series.
        """
        known = None if states is None else lambda series: self._known(states, series)
        given = inputs is not None or (isinstance(X, SeriesFrame) and X.inputs is not None)
        if self.takes_inputs != given:
            raise ValueError(
                "An HMM has inputs if and only if something depends on them, such as "
                "transition=models.LogisticTransition() or family=models.RegressionEmissions(). "
                f"Got {'inputs' if given else 'no inputs'}."
            )
        self._fit(X, inputs=inputs, series_weight=series_weight, states=known)
        return self

    @property
    def takes_inputs(self) -> bool:
        return self._varies() or isinstance(self.family, RegressionEmissions)

    def _free_parameters(self, n_features: int) -> int:
        # a location and a spread for each column, whatever the family
        return self.n_states**2 - 1 + 2 * self.n_states * self.n_components * n_features

    def _known(self, states: Any, series: list[np.ndarray]) -> list[np.ndarray]:
        many = isinstance(states, (list, tuple)) and len(states) and np.ndim(states[0]) == 1
        parts = list(states) if many or np.ndim(states) == 2 else [states]
        parts = [np.asarray(part) for part in parts]
        if [part.shape for part in parts] != [(len(x),) for x in series]:
            raise ValueError(
                "The 'states' of HMM.fit must have a number per time step of each series of X. "
                f"Got the shapes {[part.shape for part in parts][:3]}."
            )
        flat = np.concatenate(parts)
        if not np.isin(flat, np.arange(-1, self.n_states)).all():
            raise ValueError(
                "The 'states' of HMM.fit must be whole numbers from -1 (not known) to "
                f"{self.n_states - 1}. "
                f"Got {flat[~np.isin(flat, np.arange(-1, self.n_states))][0].item()!r} instead."
            )
        return [part.astype(np.int32) for part in parts]

    def _learn(self, sequences: Sequences, key: Array) -> Fit:
        data, learner = sequences.packed, self.learner
        if learner is None:
            learner = EM(tol=sequences.per_row(self.tol))
        regression = isinstance(self.family, RegressionEmissions)
        starts = self._starts_of_regressions if regression else self._starts
        results = []
        for number, (fit_key, model) in enumerate(starts(sequences, data, key)):
            what = f"start {number}"
            result = self._run(model, learner, data, sequences, fit_key, part=number, what=what)
            results.append(result)
            if result.interrupted:
                break
        return best_of(results)

    def _starts(self, sequences: Sequences, data: Data, key: Array) -> Iterator[tuple[Array, models.HMM]]:
        """Models to start from, each with a key for its fit: mixtures of the time steps as chains."""
        rows = canonical_rows(
            sequences.rows, sequences.row_weight, Scaling.identity(sequences.series[0].shape[1])
        )
        flat = Data.of(rows.x, rows.weight)
        near = Scaling.standardise(rows.x, rows.weight)
        kinds, prior = by_column(self.family), self.emission_prior
        if kinds is not None:
            prototype = member_by_column(kinds, self, rows, self.n_states)
            prior = prior_by_column(kinds, prototype, rows, self.n_states) if prior is None else prior
        else:
            prototype = self.family.prototype(rows.x) if isinstance(self.family, type) else self.family
        # centres that the user gives are where the fit begins
        lloyd = 0 if isinstance(self.init, np.ndarray) else LLOYD_STEPS
        for restart in split_key(key, self.n_init):
            start_key, fit_key = split_key(restart)
            centres = self._centres(rows, near, data, start_key)
            mixture = start_model(prototype, flat, centres, near, lloyd)
            emissions: AbstractEmissions = FamilyEmissions(mixture.components, prior)
            if self.n_components > 1:
                emissions = self._mixtures(mixture, prototype, prior, rows, near, start_key)
            yield fit_key, self._chain(mixture.weights, emissions, sequences)

    def _starts_of_regressions(
        self, sequences: Sequences, data: Data, key: Array
    ) -> Iterator[tuple[Array, models.HMM]]:
        """The same with regressions that explain stretches of the series."""
        y, weight = np.nan_to_num(sequences.rows), sequences.row_weight
        z = np.column_stack([np.concatenate(sequences.inputs or [y]), np.ones(len(y))])
        for restart in split_key(key, self.n_init):
            start_key, fit_key = split_key(restart)
            W, owner, spread = clusterwise_regressions(
                y, z, weight, self.n_states, LLOYD_STEPS, key=start_key
            )
            spread = spread + 1e-3 * np.eye(y.shape[1])
            roots = np.linalg.cholesky(spread)
            emissions = RegressionEmissions(
                on_device(W[..., :-1]),
                on_device(W[..., -1]),
                _of_each(self.family.covariance, roots, self.n_states),
            )
            share = np.bincount(owner, weight, self.n_states) + 1
            yield fit_key, self._chain(on_device(share / share.sum()), emissions, sequences)

    def _centres(self, rows: Rows, near: Scaling, data: Data, key: Array) -> np.ndarray:
        """First centres of the states, in units of `near`."""
        if isinstance(self.init, np.ndarray):
            expected = (self.n_states, rows.x.shape[1])
            if self.init.shape != expected:
                raise ValueError(
                    f"The 'init' parameter of HMM must have the shape {expected} (n_states, n_features). "
                    f"Got {self.init.shape} instead."
                )
            return near.apply(self.scaling_.apply(self.init))
        start = PlusPlus() if self.init is None else self.init
        centres = start(rows._replace(x=near.apply(rows.x)), self.n_states, key=key)
        states = data.x.states
        if states is not None:
            # a state that is known somewhere starts there
            known, values = np.asarray(states).ravel(), np.asarray(data.x.values)
            share = (known[:, None] == np.arange(self.n_states)).astype(float)
            centres = at_known(centres, near.apply(values.reshape(len(known), -1)), share)
        return centres

    def _chain(self, weights: Array, emissions: AbstractEmissions, sequences: Sequences) -> models.HMM:
        """Rank-one transitions: the mixture as a chain, from which the first step finds the order."""
        transition = self.transition
        even = np.tile(np.asarray(weights), (self.n_states, 1))
        if isinstance(transition, LogisticTransition):
            slopes, intercept = transition.weights, transition.intercept
            transition = LogisticTransition(
                on_device(np.zeros((*even.shape, sequences.n_inputs)) if slopes is None else slopes),
                on_device(np.log(even) if intercept is None else intercept),
                transition.penalty,
            )
        if not isinstance(transition, AbstractTransition):
            rows = even if transition is None else np.asarray(transition, float)
            transition = Transition(on_device(rows), concentration(self.transition_prior))
        initial = None if self.stationary else weights
        return models.HMM(initial, transition, emissions, concentration(self.initial_prior))

    def _mixtures(
        self,
        mixture: models.Mixture,
        prototype: AbstractExponentialFamily,
        prior: AbstractConjugatePrior | None,
        rows: Rows,
        near: Scaling,
        key: Array,
    ) -> MixtureEmissions:
        """Each state's share of the rows, parted again."""
        x = near.apply(rows.x)
        parts = []
        for number, share in enumerate(answers(mixture, models.Mixture.responsibilities, rows.x).T):
            own = Rows(x, share * rows.weight)
            centres = PlusPlus()(own, self.n_components, key=fold_key(key, number))
            data = Data.of(rows.x, own.weight)
            parts.append(start_model(prototype, data, centres, near, LLOYD_STEPS))
        # what the components of a state share, a number too, is each state's own
        whole = stacked(parts)
        return MixtureEmissions(models.Mixture(whole.weights, whole.components, None, prior))

    def filter(self, X: Any, *, inputs: Any = None) -> Any:
        """p(state | what was observed until then) for each time step."""
        return self._shares("filter", _filter, X, inputs)

    def smooth(self, X: Any, *, inputs: Any = None) -> Any:
        """p(state | the whole series) for each time step."""
        return self._shares("smooth", _smooth, X, inputs)

    def predict_proba(self, X: Any, *, inputs: Any = None) -> Any:
        """The same as `smooth`."""
        return self._shares("predict_proba", _smooth, X, inputs)

    def _along(self, name: str, shape: tuple[int, ...]) -> Along:
        if name in ("emissions.weights", "emissions.intercept"):
            return (None, self.column_names, self._input_labels())[: len(shape)]
        if name == "transition.weights":
            return None, None, self._input_labels()
        if name.startswith("components."):
            return None, *super()._along(name, shape[1:])
        # the law of the residuals is a member for each state
        return super()._along(name.replace("emissions.", "members.", 1), shape)

    def _count_parameters(self) -> int:
        count = super()._count_parameters()
        if not isinstance(self.model_.transition, LogisticTransition):
            return count
        # of each row one softmax is the same for any number that is added to all
        chosen = eqx.filter(self.model_.transition, self._moving().transition)
        return count - parameter_count(chosen) // self.n_states

    def _remarks(self) -> list[str]:
        transition = self.model_.transition
        if isinstance(transition, LogisticTransition):
            return [
                "transition.weights[a, b, u] is what one of u adds to the log-odds of going from a to b "
                "rather than staying in a (rather than to the first possible state where none stays)."
            ]
        if transition.varies:
            return [
                "The transition is given inputs in standard deviations from their means (input_scaling_)."
            ]
        return []

    def states(self, X: Any, *, inputs: Any = None) -> dict[str, np.ndarray]:
        return {"probabilities": np.asarray(self.predict_proba(X, inputs=inputs))}

    def predict(self, X: Any, *, inputs: Any = None) -> Any:
        """The most probable state of each time step on its own; see `decode` for the best path."""
        return self._shares("predict", _smooth, X, inputs, told=lambda part: np.argmax(part, axis=1))

    def decode(self, X: Any, n: int = 1, *, inputs: Any = None) -> Any:
        """The most probable path of states; for n > 1 the n best, along a leading axis.

        A series with fewer than n possible paths is refused.
        """
        container = self._read(X, inputs)
        # each step keeps where every one of the paths to every state came from
        each = self.n_states * max(len(x) for x in container.series)
        n = check_count(self, "decode", "n", n, each=each)
        paths = self._for_each(_decode, container, arguments=(n,))
        self._check_answers("decode", container, [bool(path[0, 0] >= 0) for path in paths])
        for number, path in enumerate(paths):
            possible = int(np.sum(path[0] >= 0))
            if possible < n:
                raise ValueError(
                    "The 'n' parameter of HMM.decode must be at most the number of possible paths. "
                    f"Got {n} for series {number} of X, which has {possible}."
                )
        return (
            container.rows([path[:, 0] for path in paths], "state")
            if n == 1
            else container.wrap([path.T for path in paths])
        )

    def sample_states(self, X: Any, n: int = 1, random_state: Any = None, *, inputs: Any = None) -> Any:
        """Draws of the whole path of states given the series; for n > 1 along a leading axis."""
        container = self._read(X, inputs)
        many = len(container.series)
        n = check_count(self, "sample_states", "n", n, each=sum(len(x) + 1 for x in container.series))
        keys = split_key_data(random_key(random_state), many * n)
        drawn = self._for_each(_sample_states, container.take(list(range(many)) * n), extra=keys)
        self._check_answers("sample_states", container, [bool(drawn[i][0] >= 0) for i in range(many)])
        if n == 1:
            return container.rows(drawn, "state")
        return container.wrap([np.stack(drawn[i::many]) for i in range(many)])

    def _predictive(
        self, container: SeriesIntake, steps: int, future: np.ndarray | None
    ) -> list[AbstractPredictive]:
        """Mixtures of the emissions: exact if these are normal or have a mass, and else from draws."""
        ahead = np.zeros((len(container.series), steps, 0)) if future is None else future
        parts = self._for_each(_forecast, container, extra=ahead, cut=False)
        self._answered("forecast", container, [means for _, means, _ in parts])
        if parts[0][2] is not None:
            return [
                NormalMixtures(
                    (beliefs[:, :, None] * weights).reshape(steps, -1),
                    *(a.reshape(steps, -1, a.shape[-1]) for a in (locations, variances)),
                )
                for beliefs, _, (weights, locations, variances) in parts
            ]
        own = self.column_roles(self.n_features_in_).mass
        laws = None if own.all() else _normal_columns(self.model_.emissions, ~own)
        if not own.all() and laws is None:
            return self._drawn(container, steps, future, [means for _, means, _ in parts])
        masses = self._masses(np.concatenate([beliefs for beliefs, _, _ in parts]), own)
        tables = [
            MassTables(np.einsum("tk,dvk->tdv", beliefs, masses), np.array(means))
            for beliefs, means, _ in parts
        ]
        if laws is None:
            return list(tables)
        normals = [
            NormalMixtures(beliefs, *(np.tile(a, (steps, 1, 1)) for a in laws)) for beliefs, _, _ in parts
        ]
        return [ColumnLaws(np.flatnonzero(~own), *pair) for pair in zip(normals, tables, strict=True)]

    def gives_cells(self, n_features: int, *, from_start: bool) -> bool:
        family = self.family if isinstance(self.family, type) else type(self.family)
        return n_features == 1 and issubclass(family, Gaussian)

    def _step_laws(self, container: SeriesIntake) -> list[NormalMixtures]:
        return [NormalMixtures(*part) for part in self._for_each(_ahead_of_each, container)]

    def _masses(self, beliefs: np.ndarray, own: np.ndarray) -> np.ndarray:
        """p(value of a column | state) at [column, value, state], of all values that have some.

        For the columns with a mass, as a mask of them says; zero for the others.
        """
        columns, size = self.n_features_in_, _FIRST_VALUES
        while True:
            rows = np.full((columns, size, columns), np.nan)
            for column in range(columns):
                rows[column, :, column] = np.arange(size) if own[column] else np.nan
            flat = rows.reshape(-1, columns)
            found = np.exp(map_rows(_state_log_probs, flat, self.model_)).reshape(columns, size, -1)
            found[~own] = 0.0
            left = 1 - np.einsum("tk,dvk->td", beliefs, found)[:, own]
            if left.max(initial=0.0) < _LITTLE or size >= _MOST_VALUES:
                return found
            size *= 4

    def transitions(self, inputs: Any) -> np.ndarray:
        """p(next = j | now = i) at [t, i, j], for rows of inputs, if transitions depend on inputs."""
        check_is_fitted(self, "model_")
        if not self._varies():
            raise ValueError("The transitions of this HMM do not depend on inputs. See 'transition_'.")
        rows = (self._check_inputs(inputs, [len(inputs)]) or [])[0]
        return np.asarray(_transitions(self.model_.transition, rows))

    def _terms(self, X: Any, given: dict[str, Any]) -> list[Terms] | str:
        if given.get("states") is not None:
            return "There are no standard errors of a fit to known states."
        return super()._terms(X, given)

    def _reported(self) -> tuple[Any, tuple[Array, ...]]:
        return _parameters, tuple(on_device(unit) for unit in self._units())

    @property
    def transition_(self) -> np.ndarray:
        """p(next = j | now = i) at [i, j]; see `transitions` if it depends on inputs."""
        if self._varies():
            raise AttributeError("HMM has no 'transition_' if it depends on inputs. See 'transitions'.")
        return np.asarray(self.model_.transition.matrix())

    @property
    def initial_(self) -> np.ndarray:
        """The probabilities of the first state."""
        return np.asarray(self.model_.start())

    @property
    def means_(self) -> np.ndarray:
        """The mean of the emissions of each state, in the units of the data; at the mean of the inputs."""
        average = np.zeros(self.n_inputs_in_) if self.n_inputs_in_ else None
        return self.scaling_.invert(np.asarray(_means(self.model_, average)))

    @property
    def coefficients_(self) -> np.ndarray:
        """What one of an input adds to the means of each state: (states, features, inputs)."""
        return np.asarray(self._regressions("coefficients_").weights)

    @property
    def intercept_(self) -> np.ndarray:
        """The means of each state where all inputs are zero: (states, features)."""
        return np.asarray(self._regressions("intercept_").intercept)

    def _regressions(self, name: str) -> RegressionEmissions:
        """Those of the states, in the units of the data, which an attribute is taken from."""
        emissions = self.model_.emissions
        if not isinstance(emissions, RegressionEmissions):
            raise AttributeError(f"HMM has '{name}' only with RegressionEmissions.")
        return emissions.in_units(*map(on_device, self._units()))

    @property
    def covariances_(self) -> np.ndarray:
        """The covariance matrix of each state, in the units of the data; for Gaussian emissions."""
        emissions = self.model_.emissions
        gaussian = isinstance(emissions, FamilyEmissions) and isinstance(emissions.members, Gaussian)
        if not (gaussian or isinstance(emissions, RegressionEmissions)):
            raise AttributeError("HMM has 'covariances_' only with one Gaussian in each state.")
        matrices = np.asarray(_covariances(emissions, np.zeros(self.n_inputs_in_)))
        return matrices * np.outer(self.scaling_.scale, self.scaling_.scale)
