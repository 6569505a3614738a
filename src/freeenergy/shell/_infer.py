"""One question for everything: what is known of what is unknown?"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from sklearn.exceptions import ConvergenceWarning

from .._core import (
    AbstractProgress,
    AbstractSpace,
    Categories,
    Checkpoint,
    Counts,
    Kind,
    Reals,
    key_of,
    learnable,
    on_device,
    parameter_space,
    silent,
)
from ..distributions import AbstractDistribution
from ..inference import (
    AbstractMethod,
    AbstractPosterior,
    Choice,
    DrawsPosterior,
    Energy,
    Exact,
    FinitePosterior,
    LogEvidence,
    Recognise,
    choose_method,
)
from ..inference import infer as infer_energy
from ..models import (
    AbstractEnergy,
    AbstractExactModel,
    AbstractExactPosterior,
    AbstractSequenceModel,
    one_series,
)
from ._base import Shell
from ._capabilities import Completes, PredictsDensities, Samples, ScoresLabels
from ._conjugate import ConjugatePrior, LogPrior, conjugate_posterior, member_of
from ._density import AbstractRowEstimator, CompletesRows, ScoresRows
from ._intake import column_names
from ._schema import schema_of
from ._sequence import AbstractSequenceDensity

# draws of what a model itself knows how to draw, as chains that have no memory
_CHAINS, _DRAWS = 4, 1000

Prior = Callable[[Any], Array] | Mapping[str, AbstractDistribution] | ConjugatePrior
"""log p of a model; for some of its fields, by name, the law of what they hold; or a conjugate prior."""


def infer(
    what: Any,
    observed: Any = None,
    *,
    method: AbstractMethod | None = None,
    prior: Prior | None = None,
    key: Any,
    progress: Callable[[int], AbstractProgress] = silent,
    checkpoint: Checkpoint | None = None,
) -> AbstractPosterior:
    """What is known of an unknown: of an energy, a model or a fitted estimator.

    | `what` | `observed` | the unknown |
    |---|---|---|
    | an `Energy` | – | its argument |
    | a model with an energy | one event x | the hidden cause z |
    | a model, with a `prior` | events along a first axis | its parameters |
    | a fitted density | one row or series with NaN | the missing entries, in the units of the data |
    | a fitted density, with a `prior` | rows | the parameters of its model in these units |
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
    seed = key_of(int(key)) if isinstance(key, int | np.integer) else key
    how = _How(method, seed, progress, checkpoint)
    if isinstance(what, Energy):
        found = how.infer(what)
    elif prior is not None:
        found = _parameters(what, observed, prior, how)
    elif isinstance(what, Shell):
        found = _of_estimator(what, observed, how)
    elif isinstance(what, AbstractEnergy):
        found = _latent(what, observed, how)
    else:
        raise TypeError(
            "infer takes an Energy, a model with an energy, a fitted estimator, or any of the latter two "
            f"with a 'prior'. Got {type(what).__name__} instead."
        )
    for sentence in found.warnings:
        warnings.warn(sentence, ConvergenceWarning, stacklevel=2)
    return found


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
    data: Array
    prior: Any

    def __call__(self, parameters: Any) -> Array:
        model = eqx.combine(parameters, self.fixed)
        if isinstance(self.prior, dict):
            fields = named_fields(parameters)
            laws = [_log_density(law, fields[name]) for name, law in self.prior.items()]
            log_prior = sum(laws[1:], laws[0]) if laws else jnp.zeros(())
        else:
            log_prior = self.prior(model)
        return -jnp.sum(jax.vmap(lambda x: _log_likelihood(model, x))(self.data)) - log_prior


def _log_likelihood(model: Any, x: Array) -> Array:
    if isinstance(model, AbstractSequenceModel):
        return jnp.sum(model.step_evidence(one_series(x)))
    return model.log_prob(x)


def _parameters(what: Any, observed: Any, prior: Prior, how: _How) -> AbstractPosterior:
    if isinstance(what, Shell):
        model: Any = what.model_in_units  # pyright: ignore[reportAttributeAccessIssue]
        rows = isinstance(what, AbstractRowEstimator)
        data = what._read(observed).x if rows else np.asarray(observed, float)
        data = data[None] if isinstance(what, AbstractSequenceDensity) and data.ndim == 2 else data
    else:
        model, data = what, np.asarray(observed, float)
    if not isinstance(model, AbstractSequenceModel) and not callable(getattr(model, "log_prob", None)):
        raise TypeError(
            f"The parameters of a model can be inferred where it knows log p. Got {type(model).__name__} "
            "instead, which does not."
        )
    if isinstance(prior, ConjugatePrior):
        if how.method is None:
            return conjugate_posterior(model, data, prior, how.key)
        member_of(model, prior)
        prior = LogPrior(prior)
    moving, fixed = eqx.partition(model, learnable(model))
    names = named_fields(moving)
    if isinstance(prior, Mapping):
        unknown = sorted(set(prior) - set(names))
        if unknown:
            raise ValueError(
                f"The 'prior' must name fields of {type(model).__name__}: {', '.join(names)}. "
                f"Got {unknown[0]!r} instead."
            )
        prior = dict(prior)
    energy = Energy(_OfParameters(fixed, on_device(data), prior), parameter_space(model))
    return how.infer(energy, start=moving)


def _of_estimator(owner: Any, observed: Any, how: _How) -> AbstractPosterior:
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


def _label(owner: Any, observed: Any) -> AbstractPosterior:
    chances = np.asarray(owner.predict_proba(observed))
    _one(chances, owner)
    n = chances.shape[1]
    return FinitePosterior(
        jnp.arange(n),
        on_device(chances[0]),
        spaces=(Categories(n),),
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
        return _missing_by_energy(owner, x, holes, spaces, how)
    seed = int(np.asarray(jax.random.key_data(how.key)).ravel()[-1])
    if rows:
        taken = density._read(observed)
        many = taken.take(np.zeros(_CHAINS * _DRAWS, int))
        with taken.naming_cells():
            drawn = taken.back(density._fill_sample(many.z, key=how.key))
    else:
        drawn = np.asarray(density.sample(_CHAINS * _DRAWS, seed, given=observed), float)
        drawn = drawn.reshape(_CHAINS * _DRAWS, *x.shape)
    values = drawn[:, holes].reshape(_CHAINS, _DRAWS, -1)
    exact = nats.kind is Kind.EXACT
    return DrawsPosterior(
        {name: on_device(values[:, :, i]) for i, name in enumerate(names)},
        None,
        spaces=tuple(spaces[name] for name in sorted(spaces)),
        log_evidence=LogEvidence(on_device(nats.nats[0]), on_device(nats.stderr[0]), nats.kind),
        note=f"independent draws of the missing entries given the others, which {type(owner).__name__} "
        + ("knows exactly" if exact else "makes by importance sampling"),
    )


def _entry_names(owner: Any, holes: np.ndarray) -> list[str]:
    """What the missing entries are called: columns of rows, columns at time steps of series."""
    columns = column_names(owner) if isinstance(owner, AbstractRowEstimator) else None
    width = holes.shape[-1]
    names = [f"x{i}" for i in range(width)] if columns is None else [str(name) for name in columns]
    if holes.ndim == 1:
        return [names[i] for i in np.flatnonzero(holes)]
    return [f"{names[i]}[{t}]" for t, i in np.argwhere(holes)]


def _entry_spaces(owner: Any, holes: np.ndarray) -> list[AbstractSpace]:
    roles = owner.column_roles(holes.shape[-1])
    schema = schema_of(owner)

    def space(column: int) -> AbstractSpace:
        known = () if schema is None else schema.modelled[column].categories
        if roles.labels[column] or known:
            return Categories(len(known) or None, ())
        return Counts(()) if roles.whole[column] else Reals(())

    return [space(int(at[-1])) for at in np.argwhere(holes)]


class _OfMissing(eqx.Module):
    """−log p of a row with its missing entries filled in, in the units of the user."""

    model: AbstractExactModel
    x: Array
    shift: Array
    scale: Array
    places: tuple[int, ...] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)

    def __call__(self, z: dict[str, Array]) -> Array:
        values = jnp.stack([z[name] for name in self.names]).astype(self.x.dtype)
        whole = self.x.at[np.array(self.places)].set(values)
        inner = self.model.log_prob_complete((whole - self.shift) / self.scale)
        return jnp.sum(jnp.log(self.scale)) - inner


def _missing_by_energy(
    owner: Any, x: np.ndarray, holes: np.ndarray, spaces: dict[str, AbstractSpace], how: _How
) -> AbstractPosterior:
    if not (isinstance(owner, CompletesRows) and isinstance(owner, ScoresRows) and owner._knows_evidence):
        raise TypeError(
            f"{type(owner).__name__} draws what is missing itself: its log p of a complete row is no "
            "energy that a 'method' could take. Leave it out."
        )
    energy = _OfMissing(
        owner.model_,
        on_device(np.where(holes, 0.0, x)),
        on_device(owner.scaling_.shift),
        on_device(owner.scaling_.scale),
        tuple(np.flatnonzero(holes).tolist()),
        tuple(spaces),
    )
    return how.infer(Energy(energy, spaces))
