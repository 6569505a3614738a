"""One question for everything: what is known of what is unknown?"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from .._core import (
    AbstractContinuous,
    AbstractFinite,
    AbstractProgress,
    AbstractSpace,
    Binary,
    Categories,
    Checkpoint,
    Counts,
    Kind,
    Reals,
    as_key,
    fold_key,
    key_of,
    learnable,
    on_device,
    parameter_space,
    silent,
    start,
)
from ..distributions import AbstractDistribution, AbstractExponentialFamily
from ..inference import (
    AbstractMethod,
    AbstractPosterior,
    DistributionPosterior,
    DrawsPosterior,
    Energy,
    Exact,
    FinitePosterior,
    LogEvidence,
    Recognise,
)
from ..inference import infer as infer_energy
from ..inference._choice import Choice, choose_method
from ..models import (
    AbstractBoundedModel,
    AbstractConditional,
    AbstractEnergy,
    AbstractExactPosterior,
    AbstractNetwork,
    AbstractSequenceModel,
    AbstractTogether,
    BayesianNetwork,
    Harmonium,
    InUnits,
    Mixture,
    OrderedModel,
    SoftmaxModel,
    one_series,
)
from ._base import Shell
from ._capabilities import Completes, PredictsDensities, Samples, ScoresLabels
from ._completion import AbstractHiddenCause, AbstractWholeEnergy, RowEnergy
from ._conjugate import ConjugatePrior, LogPrior, conjugate_posterior, member_of
from ._density import AbstractRowEstimator
from ._intake import column_names
from ._rows import Scaling
from ._schema import schema_of
from ._sequence import AbstractSequenceDensity
from ._validation import feature_names

# draws of what a model itself knows how to draw, as chains that have no memory
_CHAINS, _DRAWS = 4, 1000
# where each is chosen among weighted ones of its own
_WEIGHTED_DRAWS = 250

# how a density makes them, by the kind of its evidence
_OWN_DRAWS = {
    Kind.EXACT: "knows exactly",
    Kind.LOWER: "makes by importance sampling",
    Kind.UPPER: "makes by importance sampling",
    Kind.ESTIMATE: "makes approximately",
}

Prior = Callable[[Any], Array] | Mapping[str, AbstractDistribution] | ConjugatePrior
"""log p of a model; for some of its fields, by name, the law of what they hold; or a conjugate prior."""


def infer(
    what: Any,
    observed: Any = None,
    *,
    method: AbstractMethod | None = None,
    prior: Prior | None = None,
    unknown: Sequence[str] | str | None = None,
    key: Any,
    progress: Callable[[int], AbstractProgress] = silent,
    checkpoint: Checkpoint | None = None,
) -> AbstractPosterior:
    """What is known of an unknown: of an energy, a model or a fitted estimator.

    | `what` | `observed` | the unknown |
    |---|---|---|
    | an `Energy` | – | its argument |
    | a model with an energy | one event x | the hidden cause z |
    | a network of `models` | some variables by name, or one event with NaN | the others, by name |
    | a model, with a `prior` | events along a first axis | its parameters |
    | a fitted density | a row or series with NaN, a row by names | the missing entries, in its units |
    | a fitted density, with a `prior` | rows | the parameters of its model in these units |
    | a model of answers, with a `prior` | rows and answers, (X, y) | its parameters |
    | a regressor or classifier, with a `prior` | (X, y) | its parameters in the units of the data |
    | a fitted classifier | one row | the label |
    | a fitted model of numbers | one row | the answer |

    Args:
        what: see above.
        observed: what is known.
        method: how to infer; by default the posterior's `note` says which was taken and why.
        prior: makes the parameters the unknown: log p(model), a function; a law for each of some fields by
            their names, such as `{"weights": Dirichlet(…)}`, where fields without one have a flat prior; or
            a conjugate prior, such as `NormalInverseWishart(…)` of a Gaussian and `models.EvenTables(…)`
            of a Bayesian network, whose posterior and evidence are exact unless a method is given.
        unknown: with a `prior`, the names of the fields that are to be inferred, the others being known; by
            default all that learning may change.
        key: seed of all that is drawn, a whole number or a key of JAX.
        progress: such as `fe.progress_bar("sampling")`, for samplers.
        checkpoint: where a sampler keeps what it has, to go on from.

    A posterior that is not to be trusted says so in a `ConvergenceWarning`.

    >>> import freeenergy as fe
    >>> X = np.random.default_rng(0).multivariate_normal([0, 0], [[1, 0.8], [0.8, 1]], 200)
    >>> found = fe.infer(fe.GaussianDensity().fit(X), [[1.0, np.nan]], key=0)
    >>> list(found.mean()), bool(abs(found.mean()["x1"] - 0.8) < 0.2)
    (['x1'], True)
    """
    if method is not None and not isinstance(method, AbstractMethod):
        raise TypeError(
            "The 'method' parameter of infer must be a method of freeenergy.inference, such as NUTS(). "
            f"Got {method!r} instead."
        )
    how = _How(method, as_key(key, "infer"), progress, checkpoint)
    if isinstance(what, Energy):
        _refuse_no_number(what)
        found = how.infer(what)
    elif prior is not None:
        names = (unknown,) if isinstance(unknown, str) else unknown
        found = _parameters(what, observed, prior, names, how)
    elif isinstance(what, Shell):
        found = _of_estimator(what, observed, how)
    elif isinstance(what, AbstractNetwork):
        found = _variables(what, observed, how)
    elif isinstance(what, AbstractEnergy):
        found = _latent(what, observed, how)
    else:
        raise TypeError(
            "infer takes an Energy, which is a function with the space of its argument, a model with an "
            "energy, a fitted estimator, or any of the latter two with a 'prior'. "
            f"Got {type(what).__name__} instead."
        )
    for sentence in found.warnings:
        warnings.warn(sentence, ConvergenceWarning, stacklevel=2)
    return found


def _refuse_no_number(energy: Energy) -> None:
    """Refuses an energy that is not one number for one value of its unknown."""
    if not all(
        isinstance(leaf, AbstractContinuous | AbstractFinite) for leaf in jax.tree.leaves(energy.space)
    ):
        return
    found = jax.eval_shape(lambda key: energy(start(energy.space, key=key)), key_of(0))
    shapes = [getattr(leaf, "shape", ()) for leaf in jax.tree.leaves(found)]
    if shapes != [()]:
        got = f"the shape {shapes[0]}" if len(shapes) == 1 else f"{len(shapes)} arrays"
        raise ValueError(
            f"The 'fn' of Energy must give one number for one value of the unknown. Got {got} instead."
        )


@dataclasses.dataclass(frozen=True)
class _How:
    """What the caller says of how to infer."""

    method: AbstractMethod | None
    key: Array
    progress: Callable[[int], AbstractProgress]
    checkpoint: Checkpoint | None

    def infer(self, energy: Energy, start: Any = None, choice: Choice | None = None) -> AbstractPosterior:
        """By the method of the caller, or by `choice`, or by what suits the space."""
        if self.method is not None:
            chosen = Choice(_begun_at(self.method, start), "")
        else:
            chosen = choose_method(energy.space, start=start) if choice is None else choice
        found = infer_energy(
            energy,
            energy.space,
            chosen.method,
            key=self.key,
            progress=self.progress,
            checkpoint=self.checkpoint,
        )
        return dataclasses.replace(found, note=chosen.why)


def _begun_at(method: AbstractMethod, start: Any) -> AbstractMethod:
    """The method with its chains begun at `start`, if it begins somewhere and was not told where."""
    begins = "start" in {field.name for field in dataclasses.fields(method)}
    if start is None or not begins or getattr(method, "start") is not None:  # noqa: B009
        return method
    return dataclasses.replace(method, start=start)  # pyright: ignore[reportCallIssue]


class _OfCause(eqx.Module):
    """e(x, ·) of a model."""

    model: AbstractEnergy
    x: Any

    def __call__(self, z: Any) -> Array:
        return self.model.energy(self.x, z)


def _latent(model: AbstractEnergy, x: Any, how: _How) -> AbstractPosterior:
    if x is None:
        raise ValueError("infer needs what is 'observed' of the model. Got None instead.")
    x = jax.tree.map(on_device, x)
    energy = Energy(_OfCause(model, x), model.latent(x))
    choice = None
    if how.method is None and isinstance(model, AbstractExactPosterior):
        leaves = jax.tree.leaves(energy.space)
        if not any(getattr(leaf, "unordered", False) for leaf in leaves):
            exact = Recognise(Exact(model.posterior), x)
            choice = Choice(exact, f"the exact posterior, which {type(model).__name__} knows")
    return how.infer(energy, choice=choice)


def _variables(network: AbstractNetwork, observed: Any, how: _How) -> AbstractPosterior:
    """The variables of a network that are not observed, by their names; labels by their numbers."""
    named = observed is None or isinstance(observed, Mapping)
    x = network.event(observed or {}) if named else np.asarray(observed, float)
    holes = np.isnan(x)
    if x.shape == (len(network.names),) and not holes.any():
        raise ValueError(
            "infer asks a network for the variables that are not given: leave some out. "
            f"Got all {len(network.names)} of them instead."
        )
    if x.shape != (len(network.names),):
        raise ValueError(
            f"infer asks a network of {len(network.names)} variables for those of one event that are "
            f"missing. Got the shape {x.shape} with {int(holes.sum())} missing instead."
        )
    places = [int(v) for v in np.flatnonzero(holes)]
    spaces = {network.names[v]: _named(network.spaces[v], network.states[v]) for v in places}
    ahead = isinstance(network, BayesianNetwork) and network.is_ahead(x)
    if how.method is None and (ahead or network.exact):
        nats, drawn = _drawn_rest(network, on_device(x), how.key, ahead)
        if not float(nats) > -np.inf:
            raise ValueError("What is given must be possible. Its probability is zero.")
        return DrawsPosterior(
            {name: drawn[:, :, v] for name, v in zip(spaces, places, strict=True)},
            None,
            spaces=tuple(spaces[name] for name in sorted(spaces)),
            log_evidence=LogEvidence(nats, jnp.zeros_like(nats), Kind.EXACT),
            note="independent draws of the other variables, which the network knows exactly",
        )
    whole = RowEnergy.of(network, type(network).log_prob_complete, Scaling.identity(len(x)))
    energy = _OfMissing(
        whole, on_device(np.where(holes, 0.0, x)), tuple((v,) for v in places), tuple(spaces)
    )
    return how.infer(Energy(energy, spaces))


def _named(space: AbstractSpace, states: tuple[str, ...]) -> AbstractSpace:
    """The space of a variable, with the names of its labels."""
    return dataclasses.replace(space, labels=states) if isinstance(space, Categories) else space


@eqx.filter_jit
def _drawn_rest(network: Any, x: Array, key: Array, ahead: bool) -> tuple[Array, Array]:
    """log p of what is observed of an event, and draws of the rest."""

    def one(key: Array) -> tuple[Array, Array]:
        if ahead:
            return network.ahead(x, key=key)
        return network.log_prob(x), network.complete_sample(x, key=key)

    nats, drawn = jax.vmap(jax.vmap(one))(jax.random.split(key, (_CHAINS, _DRAWS)))
    return nats[0, 0], drawn


def named_fields(tree: Any) -> dict[str, Any]:
    """The leaves of a tree by the names of the fields on the way to them."""
    found = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        words = (str(getattr(p, "name", getattr(p, "key", getattr(p, "idx", p)))) for p in path)
        found[".".join(words)] = leaf
    return found


def _log_density(law: AbstractDistribution, value: Array) -> Array:
    """Σ log p of the events of the law that an array holds along its first axes."""
    shape = jax.eval_shape(lambda: law.sample(key=jax.random.key(0))).shape
    return jnp.sum(jax.vmap(law.log_prob)(value.reshape(-1, *shape)))


class _OfParameters(eqx.Module):
    """−log p(data; θ) − log p(θ)."""

    fixed: Any
    data: Any
    prior: Any

    def log_prior(self, model: Any, parameters: Any) -> Array:
        """log p(θ)."""
        if not isinstance(self.prior, dict):
            return self.prior(model)
        fields = named_fields(parameters)
        laws = [_log_density(law, fields[name]) for name, law in self.prior.items()]
        return sum(laws[1:], laws[0]) if laws else jnp.zeros(())

    def __call__(self, parameters: Any) -> Array:
        model = eqx.combine(parameters, self.fixed)
        log_prior = self.log_prior(model, parameters)
        if isinstance(model, AbstractTogether):
            rows, answers = self.data
            return -model.log_prob_together(answers, rows) - log_prior
        return -jnp.sum(jax.vmap(lambda x: _log_likelihood(model, x))(self.data)) - log_prior


def _log_likelihood(model: Any, x: Any) -> Array:
    if isinstance(model, AbstractConditional):
        row, answer = x
        return model.log_prob_of(answer, row)
    if isinstance(model, AbstractSequenceModel):
        return jnp.sum(model.step_evidence(one_series(x)))
    if isinstance(model, Mixture) and isinstance(x, tuple):
        row, label = x
        return jnp.log(model.weights)[label] + model.component(label).log_prob(row)
    if isinstance(model, Harmonium):
        return -model.free_energy(x) - model.log_partition()
    return model.log_prob(x)


class _OfBoth(eqx.Module):
    """Σ e(x, z; θ) − log p(θ) of the parameters θ and of the hidden cause z of each event x."""

    of_parameters: _OfParameters

    def __call__(self, both: dict[str, Any]) -> Array:
        model = eqx.combine(both["parameters"], self.of_parameters.fixed)
        energies = jax.vmap(model.energy)(self.of_parameters.data, both["causes"])
        return jnp.sum(energies) - self.of_parameters.log_prior(model, both["parameters"])


def _parameters(
    what: Any, observed: Any, prior: Prior, unknown: Sequence[str] | None, how: _How
) -> AbstractPosterior:
    if isinstance(what, Shell):
        what = _begun(what, observed)
    if isinstance(what, AbstractSequenceDensity) and what.n_inputs_in_:
        raise ValueError(
            "The parameters of a model of series are inferred from series without inputs. "
            f"Got {type(what).__name__}, which was fitted with {what.n_inputs_in_}."
        )
    model: Any = getattr(what, "model_in_units", what)
    inside = model.model if isinstance(model, InUnits) else model
    hidden = isinstance(inside, AbstractBoundedModel) and not inside.exact_if_complete
    _refuse_unknown_likelihood(what, inside)
    if isinstance(prior, ConjugatePrior):
        if how.method is None and unknown is None:
            return conjugate_posterior(model, _events_of(what, model, observed), prior, how.key)
        member_of(model, prior)
        prior = LogPrior(prior)
    events = _events(what, model, observed)
    if isinstance(inside, AbstractBoundedModel | Harmonium) and not hidden and jnp.isnan(events).any():
        raise ValueError(
            f"The parameters of {type(inside).__name__} are inferred from events that are all there, since "
            "of others it does not know log p. Got NaN instead."
        )
    known = what._known_fields if isinstance(what, Shell) else ()
    if isinstance(inside, AbstractBoundedModel):
        nested = "model." if inside is not model else ""
        known += tuple(f"{nested}{field}" for field in inside.of_recognition)
    mask = _unknown_fields(what, model, unknown, known)
    moving, fixed = eqx.partition(model, mask)
    names = named_fields(moving)
    if isinstance(prior, Mapping):
        strange = sorted(set(prior) - set(names))
        if strange:
            raise ValueError(
                f"The 'prior' must name fields of {type(model).__name__}: {', '.join(names)}. "
                f"Got {strange[0]!r} instead."
            )
        prior = dict(prior)
        for name, law in prior.items():
            _refuse_no_law_of(name, law, names[name])
    else:
        _refuse_no_log_prior(prior, model)
    target, space = _OfParameters(fixed, events, prior), parameter_space(model, mask)
    if hidden:
        return _with_causes(type(inside).__name__, model, target, space, moving, how)
    return how.infer(Energy(target, space), start=moving)


@eqx.filter_jit
def _encoded(model: Any, events: Array) -> Array:
    return jax.vmap(model.encode)(events)


def _with_causes(
    name: str, model: Any, target: _OfParameters, space: Any, start: Any, how: _How
) -> AbstractPosterior:
    """The parameters of a model that knows log p(x, z) alone: together with z, which is then left out."""
    cause: Any = model.latent(target.data[0])
    if not isinstance(cause, AbstractContinuous):
        raise TypeError(
            f"The parameters of {name} are inferred with the hidden cause of each event, which must be "
            f"continuous for that. Got {type(cause).__name__} instead."
        )
    causes = cause.with_shape((len(target.data), *(cause.shape or ())))
    begin = {"parameters": start, "causes": _encoded(model, target.data)}
    found = how.infer(Energy(_OfBoth(target), {"parameters": space, "causes": causes}), start=begin)
    if not isinstance(found, DrawsPosterior):
        raise TypeError(
            f"The parameters of {name} are inferred with the hidden cause of each event: the 'method' must "
            f"give draws of both. Got {type(how.method).__name__} instead."
        )
    own = f"the hidden causes of {name} were inferred too"
    return dataclasses.replace(
        found,
        draws=found.draws["parameters"],
        spaces=tuple(jax.tree.leaves(space)),
        note=f"{found.note}; {own}" if found.note else own,
    )


def _refuse_unknown_likelihood(what: Any, inside: Any) -> None:
    """Refuses models of which neither log p(x) nor log p(x, z) is known, and laws of other events."""
    if isinstance(what, Shell) and not what._model_is_of_rows:
        raise TypeError(
            f"The model of {type(what).__name__} is a law of other rows than those that are observed, and "
            "its parameters have no posterior given these. Pass the estimator inside of it."
        )
    known = callable(getattr(inside, "log_prob", None))
    kinds = (
        AbstractSequenceModel | AbstractConditional | AbstractTogether | AbstractBoundedModel | Harmonium
    )
    if not (known or isinstance(inside, kinds)):
        raise TypeError(
            "The parameters of a model can be inferred where it knows log p, alone or with a hidden cause. "
            f"Got {type(inside).__name__} instead, which does not."
        )


def _refuse_no_law_of(name: str, law: Any, value: Array) -> None:
    """Refuses what is no law of the values that a field holds, one or several of them."""
    if not isinstance(law, AbstractDistribution):
        raise TypeError(
            f"The 'prior' of {name!r} must be a distribution, such as Gamma(2.0, 1.0). Got {law!r} instead."
        )
    shape = jax.eval_shape(lambda: law.sample(key=jax.random.key(0))).shape
    if value.size % int(np.prod(shape)):
        raise ValueError(
            f"The 'prior' of {name!r} must be a law of its values, which have the shape {value.shape}. "
            f"Got one of the shape {shape} instead."
        )


def _refuse_no_log_prior(prior: Any, model: Any) -> None:
    """Refuses what is no function of the model with one number for its value."""
    if not callable(prior):
        raise TypeError(
            "The 'prior' parameter of infer must be distributions by the names of fields, a function of "
            f"the model that gives log p, or a conjugate prior. Got {prior!r} instead."
        )
    found = jax.eval_shape(lambda: jnp.asarray(prior(model)))
    if found.shape != ():
        raise ValueError(
            "The 'prior' parameter of infer must be a function that gives one number, log p of the model. "
            f"Got the shape {found.shape} instead."
        )


def _unknown_fields(what: Any, model: Any, unknown: Sequence[str] | None, known: tuple[str, ...]) -> Any:
    """A tree of booleans: which of the parameters are to be inferred."""
    # (a field without entries has nothing to infer)
    mask = jax.tree.map(lambda leaf, learned: learned is True and leaf.size > 0, model, learnable(model))
    names = [name for name, learned in named_fields(mask).items() if learned]
    if not names:
        raise TypeError(
            f"{type(what).__name__} has no parameters to infer: what it knows of the data is no field that "
            "learning may change."
        )
    asked = [name for name in names if not any(f"{name}.".startswith(f"{field}.") for field in known)]
    chosen = set(asked if unknown is None else unknown)
    strange = sorted(chosen - set(names))
    if strange or not chosen:
        raise ValueError(
            f"The 'unknown' must name fields of {type(model).__name__}: {', '.join(names)}. "
            f"Got {(strange or [None])[0]!r} instead."
        )
    picked = iter([learned and name in chosen for name, learned in named_fields(mask).items()])
    return jax.tree.map(lambda _: next(picked), mask)


def _begun(owner: Any, observed: Any) -> Any:
    """The estimator, fitted if it was not: a fit says what the parameters are, and where chains begin."""
    if "model_" in vars(owner):
        return owner
    pair = isinstance(observed, tuple) and len(observed) == 2
    if not pair and isinstance(owner, ScoresLabels | PredictsDensities):
        _refuse_no_pair(owner, observed)
    fresh: Any = clone(owner)
    return fresh.fit(*observed) if pair else fresh.fit(observed)


def _events_of(what: Any, model: Any, observed: Any) -> np.ndarray:
    """Rows as the estimator reads them, or series, along a first axis."""
    data = what._read(observed).x if isinstance(what, AbstractRowEstimator) else np.asarray(observed, float)
    alone = isinstance(what, AbstractSequenceDensity) and data.ndim == 2
    if isinstance(model, AbstractExponentialFamily):
        data = data[:, None] if data.ndim == 1 and model.dim == 1 else data
        if data.shape[1:] != (model.dim,):
            raise ValueError(
                f"The parameters of {type(model).__name__} with {model.dim} coordinates are inferred from "
                f"events of the shape (events, {model.dim}). Got the shape {data.shape} instead."
            )
    return data[None] if alone else data


def _refuse_no_pair(owner: Any, observed: Any) -> NoReturn:
    raise TypeError(
        f"The parameters of {type(owner).__name__} are inferred from rows and answers, a pair (X, y). "
        f"Got {type(observed).__name__} instead."
    )


def _events(what: Any, model: Any, observed: Any) -> Any:
    """What a likelihood is a sum over, along first axes: events, series, or pairs of rows and answers."""
    answered = isinstance(model, AbstractConditional | AbstractTogether)
    if not answered and not isinstance(what, ScoresLabels):
        return on_device(_events_of(what, model, observed))
    if not (isinstance(observed, tuple) and len(observed) == 2):
        _refuse_no_pair(what, observed)
    x, y = observed
    if isinstance(what, ScoresLabels):
        y = what._model_place_of(y)
    if not answered:
        return on_device(_events_of(what, model, x)), on_device(y)
    if isinstance(what, Shell):
        owner: Any = what
        x = owner._read(x).x[:, : owner._width]
    x = np.asarray(x, float)
    y = np.asarray(y) if np.asarray(y).dtype.kind == "i" else np.asarray(y, float)
    labels = isinstance(model, SoftmaxModel | OrderedModel)
    y = y if y.ndim > 1 or labels else y[:, None]
    if len(x) != len(y) or np.isnan(x).any():
        raise ValueError(
            "The parameters of a model of answers are inferred from as many answers as rows, all of them "
            f"observed. Got {len(x)} rows, {int(np.isnan(x).sum())} missing entries and {len(y)} answers."
        )
    return on_device(x), on_device(y)


def _of_estimator(owner: Any, observed: Any, how: _How) -> AbstractPosterior:
    if observed is None:
        raise ValueError(
            f"infer needs what is 'observed' of {type(owner).__name__}: a row or series. Got None instead; "
            "pass a 'prior' with rows to infer the parameters of its model."
        )
    if isinstance(owner, AbstractRowEstimator | ScoresLabels | PredictsDensities):
        observed = _as_row(observed)
    if isinstance(owner, ScoresLabels):
        return _label(owner, observed)
    if isinstance(owner, PredictsDensities):
        return _answer(owner, observed, how)
    if isinstance(owner, Completes) and isinstance(owner, Samples):
        return _missing(owner, observed, how)
    raise TypeError(
        f"infer has no unknown to ask {type(owner).__name__} for: it is no density, classifier or model of "
        "numbers. Pass a 'prior' to infer the parameters of its model."
    )


def _one(rows: np.ndarray, owner: Any) -> None:
    if len(rows) != 1:
        raise ValueError(
            f"infer asks {type(owner).__name__} of one row at a time. Got {len(rows)} rows instead."
        )


def _as_row(observed: Any) -> Any:
    """Plain values of one row as a table of it."""
    plain = isinstance(observed, list | tuple | np.ndarray) and np.ndim(np.asarray(observed, object)) == 1
    return [list(observed)] if plain else observed


def _label(owner: Any, observed: Any) -> AbstractPosterior:
    chances = np.asarray(owner.predict_proba(observed))
    _one(chances, owner)
    n = chances.shape[1]
    return FinitePosterior(
        jnp.arange(n),
        on_device(chances[0]),
        spaces=(Categories(n, (), tuple(map(str, owner.classes_))),),
        note=f"the probabilities that {type(owner).__name__} gives to labels; their numbers are those of "
        "'classes_'",
    )


def _answer(owner: Any, observed: Any, how: _How) -> AbstractPosterior:
    laws = owner.predict_density(observed)
    _one(np.empty(laws.shape[0]), owner)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(how.key)))
    drawn = np.asarray(laws.sample(_CHAINS * _DRAWS, rng))[:, 0]
    space = (Counts if laws.discrete else Reals)(drawn.shape[1:])
    return DrawsPosterior(
        on_device(drawn.reshape(_CHAINS, _DRAWS, *drawn.shape[1:])),
        None,
        spaces=(space,),
        note=f"independent draws of p(y | x), which {type(owner).__name__} knows",
    )


def _missing(owner: Any, observed: Any, how: _How) -> AbstractPosterior:
    """The missing entries of one row or series."""
    if isinstance(observed, Mapping):
        observed = _row_by_name(owner, observed)
    rows, serial = isinstance(owner, AbstractRowEstimator), isinstance(owner, AbstractSequenceDensity)
    density: Any = owner
    x = density._read(observed).x if rows else np.asarray(observed, float)
    if not serial:
        _one(x, owner)
        x = x[0]
    holes = np.isnan(x)
    if not holes.any():
        raise ValueError("infer asks for what is missing (NaN). Got nothing that is missing instead.")
    nats = density.evidence(observed)
    if nats.nats[0] == -np.inf:
        raise ValueError(
            f"What is observed has probability zero under {type(owner).__name__}: nothing can be inferred "
            "from it."
        )
    names = _entry_names(owner, holes)
    spaces = dict(zip(names, _entry_spaces(owner, holes), strict=True))
    if how.method is not None:
        return _missing_by_method(owner, x, holes, spaces, how)
    seed = int(np.asarray(jax.random.key_data(how.key)).ravel()[-1])
    exact = nats.kind is Kind.EXACT
    size = _DRAWS if exact else _WEIGHTED_DRAWS
    if rows:
        taken = density._read(observed)
        with taken.naming_cells():
            drawn = taken.back(density._fill_samples(taken.z, _CHAINS * size, key=how.key))
    else:
        drawn = np.asarray(density.sample(_CHAINS * size, seed, given=observed), float)
        drawn = drawn.reshape(_CHAINS * size, *x.shape)
    values = drawn[:, holes].reshape(_CHAINS, size, -1)
    return DrawsPosterior(
        {name: on_device(values[:, :, i]) for i, name in enumerate(names)},
        None,
        spaces=tuple(spaces[name] for name in sorted(spaces)),
        log_evidence=LogEvidence(on_device(nats.nats[0]), on_device(nats.stderr[0]), nats.kind),
        note=f"independent draws of the missing entries given the others, which {type(owner).__name__} "
        + _OWN_DRAWS[nats.kind],
    )


def _row_by_name(owner: Any, given: Mapping[Any, Any]) -> Any:
    """One row of which some columns are known, by their names."""
    if not isinstance(owner, AbstractRowEstimator):
        raise TypeError(f"infer takes values by name for rows. {type(owner).__name__} is about series.")
    known, names = {str(name): value for name, value in given.items()}, feature_names(owner)
    columns = owner.column_names if names is None else [str(name) for name in names]
    strange = [name for name in known if name not in columns]
    if strange:
        shown = ", ".join(map(repr, columns[:6])) + (", …" if len(columns) > 6 else "")
        raise ValueError(f"A column must be one of {shown}. Got {strange[0]!r} instead.")
    if names is None:
        text = any(isinstance(value, str) for value in known.values())
        return np.array([[known.get(name, np.nan) for name in columns]], object if text else float)
    import polars as pl

    return pl.DataFrame({name: [known.get(name)] for name in columns}, strict=False)


def _entry_names(owner: Any, holes: np.ndarray) -> list[str]:
    """What the missing entries are called: columns of rows, columns at time steps of series."""
    columns = column_names(owner) if isinstance(owner, AbstractRowEstimator) else None
    width = holes.shape[-1]
    names = [f"x{i}" for i in range(width)] if columns is None else [str(name) for name in columns]
    if holes.ndim == 1:
        return [names[i] for i in np.flatnonzero(holes)]
    return [f"{names[i]}[{t}]" for t, i in np.argwhere(holes)]


def _entry_spaces(owner: Any, holes: np.ndarray) -> list[AbstractSpace]:
    width = holes.shape[-1]
    roles, levels = owner.column_roles(width), owner._column_levels(width)
    schema = schema_of(owner)

    def space(column: int) -> AbstractSpace:
        known = () if schema is None else schema.modelled[column].categories
        values = len(known) or (None if levels is None else levels[column])
        if roles.labels[column] or known:
            return Categories(values, (), tuple(map(str, known)))
        if not roles.whole[column]:
            return Reals(())
        return Binary(()) if values == 2 else Counts(())

    return [space(int(at[-1])) for at in np.argwhere(holes)]


class _OfMissing(eqx.Module):
    """−log p of an event with its missing entries filled in."""

    whole: AbstractWholeEnergy
    x: Array
    places: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)

    def __call__(self, z: dict[str, Array]) -> Array:
        values = jnp.stack([z[name].astype(self.x.dtype) for name in self.names])
        return self.whole(self.x.at[tuple(np.transpose(self.places))].set(values))


def _missing_by_method(
    owner: Completes, x: np.ndarray, holes: np.ndarray, spaces: dict[str, AbstractSpace], how: _How
) -> AbstractPosterior:
    """By the method of the caller, for the missing entries or for the cause behind them."""
    known, places = owner._completion(x), tuple(map(tuple, np.argwhere(holes).tolist()))
    if isinstance(known, AbstractWholeEnergy):
        energy = _OfMissing(known, on_device(np.where(holes, 0.0, x)), places, tuple(spaces))
        return how.infer(Energy(energy, spaces))
    if isinstance(known, AbstractHiddenCause):
        found = how.infer(Energy(_OfHidden(known), known.space()))
        return _drawn_given(owner, known, found, places, spaces, how)
    raise TypeError(
        f"{type(owner).__name__} draws what is missing itself: its log p of a complete event is no "
        "energy that a 'method' could take. Leave it out."
    )


class _OfHidden(eqx.Module):
    """e(x, ·) of the cause behind an event."""

    cause: AbstractHiddenCause

    def __call__(self, z: Any) -> Array:
        return self.cause.energy(z)


class _Entries(eqx.Module):
    """The missing entries, by their names, drawn given a cause."""

    cause: AbstractHiddenCause
    places: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)

    def __call__(self, z: Any, key: Array) -> dict[str, Array]:
        whole = self.cause.complete(z, key=key)
        return {name: whole[place] for name, place in zip(self.names, self.places, strict=True)}


@eqx.filter_jit
def _given_each(entries: _Entries, causes: Any, key: Array) -> dict[str, Array]:
    n = len(jax.tree.leaves(causes)[0])
    return jax.vmap(entries)(causes, jax.random.split(key, n))


def _drawn_given(
    owner: Any,
    cause: AbstractHiddenCause,
    found: AbstractPosterior,
    places: tuple[tuple[int, ...], ...],
    spaces: dict[str, AbstractSpace],
    how: _How,
) -> AbstractPosterior:
    """p(missing | observed) = ∫ p(missing | z, observed) p(z | observed) dz, a draw for each draw of z."""
    name = type(owner).__name__
    if isinstance(found, FinitePosterior):
        listed = found.sample(_CHAINS * _DRAWS, key=fold_key(how.key, 2))
        found = DrawsPosterior(
            jax.tree.map(lambda a: a.reshape(_CHAINS, _DRAWS, *a.shape[1:]), listed),
            None,
            spaces=found.spaces,
            log_evidence=found.log_evidence,
            diagnostics=found.diagnostics,
        )
    draws = found.draws if isinstance(found, DrawsPosterior | DistributionPosterior) else None
    if draws is None:
        raise TypeError(
            f"The missing entries of {name} are drawn given its hidden cause: the 'method' must give draws "
            f"of that. Got {type(how.method).__name__} instead."
        )
    chains = isinstance(found, DrawsPosterior) and found.log_weights is None
    flat = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), draws) if chains else draws
    entries = _given_each(_Entries(cause, places, tuple(spaces)), flat, fold_key(how.key, 1))
    told = {
        "spaces": tuple(spaces[name] for name in sorted(spaces)),
        "log_evidence": found.log_evidence,
        "diagnostics": found.diagnostics,
        "note": f"draws of the missing entries given the hidden cause of {name}, which was inferred by "
        f"{type(how.method).__name__}",
    }
    if isinstance(found, DrawsPosterior):
        grid = found.grid if chains else (-1,)
        shaped = {name: values.reshape(grid) for name, values in entries.items()}
        return DrawsPosterior(shaped, found.log_weights, groups=found.groups, **told)
    assert isinstance(found, DistributionPosterior)
    law = _GivenCause(found.q, _Entries(cause, places, tuple(spaces)))
    return DistributionPosterior(law, entries, found.kind_of_q, **told)


class _GivenCause(AbstractDistribution):
    """The law of missing entries whose cause has the law q."""

    q: AbstractDistribution
    entries: _Entries

    def log_prob(self, x: Any) -> Array:
        raise NotImplementedError("Missing entries behind a hidden cause have draws, and no density.")

    def sample(self, *, key: Array) -> dict[str, Array]:
        cause, entries = jax.random.split(key)
        return self.entries(self.q.sample(key=cause), entries)
