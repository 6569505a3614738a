"""Mixtures as estimators."""

from __future__ import annotations

import abc
from typing import Any, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..._core import (
    AbstractAlgorithm,
    Data,
    Evidence,
    Fit,
    Kind,
    learnable,
    map_data,
    on_device,
    split_key,
    sum_over_blocks,
)
from ...distributions import (
    AbstractConjugatePrior,
    AbstractCovariance,
    AbstractExponentialFamily,
    AbstractIndependent,
    AbstractShaped,
    Diagonal,
    DirichletPrior,
    Full,
    Gaussian,
    Product,
    component_axes,
    levels,
    rescaled_stack,
)
from ...learning import EM
from ...models import Mixture as MixtureModel
from ...models import Supervised
from ...models._mixture import rows_and_shares
from ...shell import (
    AbstractDensity,
    ColumnRoles,
    Field,
    Predicts,
    PredictsProbabilities,
    Rows,
    Scaling,
    Schema,
    best_of,
    check_instance,
    check_int,
    check_numbers,
    framed,
    framed_chances,
)
from ...shell._answers import by_completeness, log_prob_of, log_probs
from ...shell._increments import LearnsInParts, reduced_rows
from ...shell._information import Terms, standard_errors
from ...shell._schema import kinds_of
from ...shell._summary import weighted
from ...shell._validation import check_covariances, check_gaussian
from .._by_column import (
    by_column,
    member_by_column,
    prior_by_column,
    roles_by_column,
    scaling_by_column,
    takes_by_family,
)
from ._starts import LLOYD_STEPS, AbstractStart, PlusPlus, at_known, start_model

# how often components that hold less than a row and a half are given something else to explain
_REPAIRS = 3
_LEAST_ROWS = 1.5


@eqx.filter_jit
def _means(members: Any) -> Array:
    return jax.vmap(lambda member: member.mean(), (component_axes(members),))(members)


@eqx.filter_jit
def _reseeded(
    model: MixtureModel, prototype: AbstractExponentialFamily, data: Data, chosen: Array, broken: Array
) -> MixtureModel:
    """`model` with its `broken` components fitted to the rows of weight `chosen`."""

    def block(x: Array, w: Array) -> Array:
        rows, share = x
        # missing entries are set to zero here: EM has the exact answer from the next step on
        filled = rows if prototype.masks_missing else jnp.where(jnp.isnan(rows), 0, rows)
        features = jax.vmap(prototype.features, out_axes=1)(filled)
        return features @ (w * (share + 1e-3))

    rows = rows_and_shares(data.x)[0]
    total = sum_over_blocks(block, Data((rows, chosen), data.weight, data.rows, data.incomplete))
    fresh = model.components.from_features(jnp.broadcast_to(total, (model.size, len(total))))
    components = jax.tree.map(
        lambda axis, new, old: (
            jnp.where(broken.reshape((-1,) + (1,) * (new.ndim - 1)), new, old) if axis == 0 else old
        ),
        component_axes(model.components),
        fresh,
        model.components,
        is_leaf=lambda a: a is None,
    )
    weights = jnp.where(broken, 1 / model.size, model.weights)
    return eqx.tree_at(lambda m: (m.weights, m.components), model, (weights / weights.sum(), components))


class GaussianMixtureParameters(NamedTuple):
    """The parameters of a mixture of Gaussians, or the standard error of each."""

    weights: Any
    means: Any
    covariances: Any


class MixtureParameters(NamedTuple):
    """The parameters of a mixture, or the standard error of each."""

    weights: Any
    components: Any


def _gaussian_parameters(model: MixtureModel, scale: Array) -> GaussianMixtureParameters:
    members: Any = model.components
    units = scale[:, None] * scale[None, :]
    axes = component_axes(members)
    matrices = jax.vmap(lambda c: c.covariance.matrix() * units, in_axes=(axes,))(members)
    return GaussianMixtureParameters(model.weights, members.mean * scale[None], matrices)


def _parameters(model: MixtureModel) -> MixtureParameters:
    return MixtureParameters(model.weights, eqx.filter(model.components, learnable(model.components)))


def _kinds(members: Any) -> list[type]:
    """The family, and the kinds of what its members are made of, such as a covariance."""
    nodes = [members]
    for node in nodes:
        nodes += [part for part in vars(node).values() if isinstance(part, eqx.Module)]
    return [type(node) for node in nodes]


class AbstractMixture(Predicts, PredictsProbabilities, AbstractDensity):
    """What mixtures share, whatever the family of their components."""

    _sums_rows = True
    _maximises_likelihood = True
    _made_from = MixtureModel

    @classmethod
    def _parameters_of(cls, model: Any) -> dict[str, Any]:
        return {"n_components": model.size}

    n_components: int
    n_init: int
    init: AbstractStart | np.ndarray | MixtureModel | None
    max_iter: int
    tol: float
    weight_prior: DirichletPrior | None
    component_prior: AbstractConjugatePrior | None
    learner: AbstractAlgorithm | None
    # model and units from which a part goes on, while it is learned
    _begun: tuple[MixtureModel, Scaling] | None = None

    @abc.abstractmethod
    def _prototype(self, rows: Rows) -> AbstractExponentialFamily:
        """A member of the family with the shape that the rows need."""

    @abc.abstractmethod
    def _distances(self, rows: Rows) -> Scaling:
        """The units in which distances between rows are taken for the start."""

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_int(self, "n_components")

    def _check_start_and_priors(self) -> None:
        check_instance(self, "init", AbstractStart, np.ndarray, MixtureModel, optional=True)
        check_instance(self, "weight_prior", DirichletPrior, optional=True)
        check_instance(self, "component_prior", AbstractConjugatePrior, optional=True)

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, labels: Any = None) -> Self:
        """Fits the model.

        Args:
            X: a row per sample; NaN means not observed.
            y: ignored.
            sample_weight: a non-negative number per row; a weight of two counts as two rows.
            labels: the component of each row where it is known, −1 where not; or a row of numbers for
                each row of X, one per component: probabilities are responsibilities that stay as they
                are, NaN is not known, and a zero beside NaN says that the component is impossible (an
                array of booleans says which are possible).
        """
        known = None if labels is None else lambda X: self._shares(labels, X)
        self._fit(X, sample_weight=sample_weight, known=known)
        return self

    def _shares(self, labels: Any, X: np.ndarray) -> np.ndarray | None:
        """What is known of the components of the rows, as in `Supervised`; None if nothing is."""
        n, k = len(X), self.n_components
        known, name = np.asarray(labels), f"'labels' of {type(self).__name__}.fit"
        if known.dtype.kind not in "biuf":
            raise ValueError(f"The {name} must be numbers or booleans. Got {known.dtype} instead.")
        if known.shape not in ((n,), (n, k)):
            raise ValueError(
                f"The {name} must have a number per row of X, or one per row and component: the shape "
                f"{(n,)} or {(n, k)}. Got {known.shape} instead."
            )
        if known.ndim == 1:
            wrong = ~np.isin(known, np.arange(-1, k))
            if wrong.any():
                raise ValueError(
                    f"The {name} must be whole numbers from -1 (not known) to {k - 1}. "
                    f"Got {known[wrong][0].item()!r} instead."
                )
            known = np.where(known[:, None] < 0, np.nan, known[:, None] == np.arange(k))
        elif known.dtype == bool:
            known = np.where(known, np.nan, 0.0)
        known = np.asarray(known, float)
        total = known.sum(axis=1)
        good = np.where(np.isnan(total), np.nansum(np.abs(known), axis=1) == 0, np.abs(total - 1) <= 1e-6)
        good &= ~(known < 0).any(axis=1)
        if not good.all():
            raise ValueError(
                f"Each row of the {name} must be probabilities of sum one, or NaN (not known) and zeros. "
                f"Got {known[~good][0].tolist()} instead."
            )
        hidden = np.isnan(known)
        if hidden.all():
            return None
        # one possible component is a known one
        known = np.where(hidden.sum(axis=1, keepdims=True) == 1, hidden, known)
        return np.where(np.isnan(known), -1.0, known)

    def _data(self, rows: Rows) -> Data:
        return Data.of(rows.x if rows.known is None else Supervised(rows.x, rows.known), rows.weight)

    def _lloyd_steps(self, rows: Rows) -> int:
        # centres that the user gives, or that labels give, are where the fit begins
        given = isinstance(self.init, np.ndarray) or rows.known is not None
        return 0 if given else LLOYD_STEPS

    def _learn(self, rows: Rows, key: Array) -> Fit:
        data = self._data(rows)
        near = self._distances(rows)
        steps = self._lloyd_steps(rows)
        prototype = self._prototype(rows)
        learner = EM(tol=self.tol) if self.learner is None else self.learner
        prior = self._prior_of_components(prototype, rows)
        results = []
        given = self._begun is not None or isinstance(self.init, MixtureModel)
        for number, restart in enumerate(split_key(key, 1 if self._begun else self.n_init)):
            start_key, fit_key = split_key(restart)
            if self._begun is not None:
                start = self._carried_over(*self._begun, prototype)
            elif isinstance(self.init, MixtureModel):
                start = self._in_units_of_the_fit(self.init, prototype, rows.x.shape[1])
            else:
                centres = self._centres(rows, near, start_key)
                start = start_model(prototype, data, centres, near, steps)
            start = MixtureModel(start.weights, start.components, self.weight_prior, prior)
            for attempt in range(1 + _REPAIRS):
                part, what = number * (1 + _REPAIRS) + attempt, f"start {number}, repair {attempt}"
                result = self._run(start, learner, data, rows, fit_key, part=part, what=what)
                # weights that are shares of a whole still mean the rows
                least = _LEAST_ROWS * min(1.0, rows.weight.mean())
                broken = np.asarray(result.model.weights) * rows.weight.sum() < least
                if rows.known is not None:
                    # few rows are all there is of it, if they are known to be of it
                    broken &= ~(rows.known > 0).any(axis=0)
                few = len(rows.x) < 2 * self.n_components
                if result.interrupted or not broken.any() or few or given:
                    break
                start = self._repaired(result.model, prototype, rows, data, broken)
            results.append(result)
            if result.interrupted:
                break
        return best_of(results)

    def _prior_of_components(self, prototype: Any, rows: Rows) -> AbstractConjugatePrior | None:
        return self.component_prior

    def _in_units_of_the_fit(
        self, model: MixtureModel, prototype: AbstractExponentialFamily, columns: int
    ) -> MixtureModel:
        """A start that the user gives, checked and rescaled."""
        members = model.components
        width = model.component(0).dim
        found = (model.size, width, _kinds(members))
        if found != (self.n_components, columns, _kinds(prototype)):
            names = "(".join(kind.__name__ for kind in found[2])
            raise ValueError(
                f"The 'init' parameter of {type(self).__name__} must be a mixture of {self.n_components} "
                f"members of the family and covariance that is fitted, of {columns} columns. Got "
                f"{found[0]} of {names + ')' * (len(found[2]) - 1)}, of {width} columns, instead."
            )
        shift, scale = map(on_device, self.scaling_)
        rescaled = rescaled_stack(members, shift, scale[0] if prototype.common_unit else scale)
        return MixtureModel(model.weights, rescaled)

    def _carried_over(
        self, model: MixtureModel, units: Scaling, prototype: AbstractExponentialFamily
    ) -> MixtureModel:
        """A model of rows in earlier units, in those of this fit."""
        shift = (self.scaling_.shift - units.shift) / units.scale
        scale = self.scaling_.scale / units.scale
        moved = rescaled_stack(
            model.components,
            on_device(shift),
            on_device(scale[0] if prototype.common_unit else scale),
        )
        return MixtureModel(model.weights, moved)

    def _known_rows(self, X: Any, sample_weight: Any = None, labels: Any = None) -> Rows:
        """Rescaled rows as `fit` has them."""
        shares = None if labels is None else self._shares(labels, self._read(X).x)
        return self._rows_of(X, sample_weight, known=shares)

    def _terms_of_rows(self, rows: Rows) -> list[Terms]:
        known = rows.known is not None
        return [Terms(self._data(rows), log_prob_of)] if known else super()._terms_of_rows(rows)

    def _terms(self, X: Any, given: dict[str, Any]) -> list[Terms] | str:
        if given.get("labels") is None or not self._maximises_likelihood:
            return super()._terms(X, {name: part for name, part in given.items() if name != "labels"})
        return self._terms_of_rows(self._known_rows(X, **given))

    def _likelihood_of(self, X: Any, given: dict[str, Any]) -> tuple[Evidence, float]:
        if given.get("labels") is None:
            return super()._likelihood_of(X, given)
        # of rows and labels together, which is what the fit maximised
        rows = self._known_rows(X, **given)
        nats = map_data(log_prob_of, self._data(rows), self.model_)[: len(rows.x)]
        nats = nats + self.scaling_.log_det(self.scaling_.invert(rows.x))
        found = Evidence(nats, np.zeros_like(nats), Kind.EXACT)
        return weighted(found, rows.weight), float(rows.weight.sum())

    def _standard_errors(self, X: Any, sample_weight: Any, labels: Any, report: Any, *args: Array) -> Any:
        parts = self._terms_of_rows(self._known_rows(X, sample_weight, labels))
        return standard_errors(self.model_, self._moving(), parts, report, *args)

    def _repaired(
        self,
        model: MixtureModel,
        prototype: AbstractExponentialFamily,
        rows: Rows,
        data: Data,
        broken: np.ndarray,
    ) -> MixtureModel:
        """Empty and collapsed components moved to the rows that the others explain worst."""
        nats = log_probs(model, rows.x)
        worst = np.argsort(nats)[: max(len(nats) // (2 * self.n_components), 2)]
        chosen = np.zeros(data.size)
        chosen[worst] = 1.0
        return _reseeded(model, prototype, data, on_device(chosen), on_device(broken))

    def _centres(self, rows: Rows, near: Scaling, key: Array) -> np.ndarray:
        if isinstance(self.init, np.ndarray):
            expected = (self.n_components, rows.x.shape[1])
            if self.init.shape != expected:
                raise ValueError(
                    f"The 'init' parameter of {type(self).__name__} must have the shape {expected} "
                    f"(n_components, n_features). Got {self.init.shape} instead."
                )
            return near.apply(self.scaling_.apply(self.init))
        start = self.init if isinstance(self.init, AbstractStart) else PlusPlus()
        scaled = rows._replace(x=near.apply(rows.x))
        centres = start(scaled, self.n_components, key=key)
        if rows.known is None:
            return centres
        return at_known(centres, scaled.x, rows.weight[:, None] * np.maximum(rows.known, 0))

    @framed_chances
    def predict_proba(self, X: Any) -> Any:
        """p(component | row), the responsibilities."""
        return check_numbers(self, "predict_proba", self._responsibilities(self._read(X).z))

    def _responsibilities(self, z: np.ndarray) -> np.ndarray:
        """p(component | row) of rescaled rows."""
        kind = type(self.model_)
        methods = kind.responsibilities_complete, kind.responsibilities
        return by_completeness(z, self.model_, *methods)

    @framed
    def predict(self, X: Any) -> Any:
        """The most probable component of each row."""
        return np.argmax(np.asarray(self.predict_proba(X)), axis=1)

    def latent(self, X: Any) -> np.ndarray:
        return np.asarray(self.predict_proba(X))

    def states(self, X: Any, *, inputs: Any = None) -> dict[str, np.ndarray]:
        return {"probabilities": np.asarray(self.predict_proba(X))}

    @property
    def weights_(self) -> np.ndarray:
        """The probabilities of the components."""
        return np.asarray(self.model_.weights)


class AbstractIncrementalMixture(LearnsInParts, AbstractMixture):
    """A mixture that goes on with more rows: the components of those before stay as they were found.

    Each part is learned by EM from the model so far, together with a small table of the rows before, of
    which the responsibilities are held.  No step raises the free energy of all rows, so that it is EM with
    a partial E step (Neal and Hinton 1998): what comes early is assigned by a model that knew less.
    """

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Goes on with more rows, by EM in which the rows of earlier calls keep their components.

        It is incremental EM (Neal and Hinton 1998), and not the fit to all rows together: how the rows are
        divided, and what comes first, matters.  The first call is a `fit`.

        Args:
            X: a row per sample; NaN means not observed.
            y: ignored.
            sample_weight: a non-negative number per row; a weight of two counts as two rows.
        """
        return self._go_on(X, sample_weight)

    def _learn_part(
        self, passed: Any, x: np.ndarray, weight: np.ndarray | None, known: np.ndarray | None
    ) -> Self:
        if "kept_" in vars(self):
            size = 0 if self.kept_.known is None else self.kept_.known.shape[1]
            if size != self.n_components:
                raise ValueError(
                    f"The 'n_components' parameter of {type(self).__name__} must stay {size} between calls "
                    f"of partial_fit. Got {self.n_components} instead."
                )
            self._begun = self.model_, self.scaling_
            known = np.full((len(x), size), -1.0)
        try:
            return super()._learn_part(passed, x, weight, known)
        finally:
            vars(self).pop("_begun", None)

    def _reduced(self, rows: Rows) -> Rows:
        shares = self._responsibilities(self.scaling_.apply(rows.x))
        if rows.known is not None:
            shares = np.where(rows.known < 0, shares, rows.known)
        parts = []
        for share, known in zip(shares.T, np.eye(self.n_components), strict=True):
            own = share > 0
            parts.append(Rows(rows.x[own], (rows.weight * share)[own], np.tile(known, (own.sum(), 1))))
        whole = Rows(*(np.concatenate(part) for part in zip(*parts)))
        return reduced_rows(self._prototype(rows), whole)

    def _fitted_likelihood(self) -> float | None:
        # the objective of a part is of components that are held
        return None if "kept_" in vars(self) else super()._fitted_likelihood()


class Mixture(AbstractIncrementalMixture):
    """A mixture of members of any exponential family.

    p(x) = Σ_k π_k p(x; θ_k), learned by EM from k-means++ starts.

    Args:
        n_components: how many members.
        family: the family: a class of `freeenergy.distributions` such as `Poisson`, or an instance
            whose shape and fixed parts are used; for tables with columns of different kinds
            `"by column"`, which is short for `ByColumn()`: each column has the family of its kind
            (`schema_`), and components have a weak prior, of one imagined row.
        n_init: starts; the best end counts.
        init: a start such as `PlusPlus()` or `RandomRows()`, an array of centres, or a
            `freeenergy.models.Mixture` in the units of the data.
        max_iter, tol: the most iterations, and the improvement in nats per row below which EM stops.
        weight_prior, component_prior: conjugate priors make the fit MAP.
        learner: replaces EM, for example by `Gradient(…)`.
        random_state: seed.
        verbose: 1 shows progress.
        checkpoint: a file that keeps a long fit.

    Attributes:
        weights_: the probabilities of the components.
        model_: the fitted `freeenergy.models.Mixture`; `model_.components` are the members.
        history_, n_iter_, converged_, scaling_, …: as everywhere.

    >>> import numpy as np
    >>> from freeenergy.distributions import Poisson
    >>> counts = np.random.default_rng(0).poisson([[2.0]] * 50 + [[20.0]] * 50)
    >>> model = Mixture(2, family=Poisson, random_state=0).fit(counts)
    >>> sorted(model.predict([[1], [25]]).tolist())
    [0, 1]

    A table with columns of different kinds, and what is missing in it:

    >>> import polars as pl
    >>> pets = pl.DataFrame({"kind": ["cat", "dog"] * 30, "weight": [4.1, 20.3, 3.8, 31.7, 4.4, 25.2] * 10})
    >>> model = Mixture(2, family="by column", random_state=0).fit(pets)
    >>> model.impute(pl.DataFrame({"kind": [None], "weight": [28.0]}, schema=pets.schema))["kind"][0]
    'dog'
    """

    def __init__(
        self,
        n_components: int = 1,
        family: Any = Gaussian,
        *,
        n_init: int = 1,
        init: AbstractStart | np.ndarray | MixtureModel | None = None,
        max_iter: int = 1000,
        tol: float = 1e-4,
        weight_prior: DirichletPrior | None = None,
        component_prior: AbstractConjugatePrior | None = None,
        learner: AbstractAlgorithm | None = None,
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: str | None = None,
    ) -> None:
        self.n_components = n_components
        self.family = family
        self.n_init = n_init
        self.init = init
        self.max_iter = max_iter
        self.tol = tol
        self.weight_prior = weight_prior
        self.component_prior = component_prior
        self.learner = learner
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._check_start_and_priors()
        shaped = isinstance(self.family, type) and issubclass(self.family, AbstractShaped)
        known = shaped or isinstance(self.family, AbstractExponentialFamily)
        if not known and by_column(self.family) is None:
            raise ValueError(
                "The 'family' parameter of Mixture must be an exponential family of "
                "freeenergy.distributions, such as Poisson, a member of one, or 'by column'. "
                f"Got {self.family!r} instead."
            )

    @property
    def needs_kinds(self) -> bool:
        return by_column(self.family) is not None

    def takes(self, field: Field) -> bool:
        return takes_by_family(self.family, field)

    @classmethod
    def _parameters_of(cls, model: Any) -> dict[str, Any]:
        return super()._parameters_of(model) | {"family": model.component(0)}

    def _is_gaussian(self) -> bool:
        return self.family is Gaussian or isinstance(self.family, Gaussian)

    def _scaling(self, X: np.ndarray, weight: np.ndarray | None) -> Scaling:
        family = by_column(self.family)
        if family is not None:
            return scaling_by_column(member_by_column(family, self), X, weight)
        if not self.family.unit_free_columns(X.shape[1]).all():
            return Scaling.identity(X.shape[1])
        common = not isinstance(self.family, type) and self.family.common_unit
        return Scaling.standardise(X, weight, common=common)

    def _structure(self) -> AbstractCovariance:
        """The covariance of Gaussian members."""
        return self.family.covariance if isinstance(self.family, Gaussian) else Full()

    def _check_size(self, rows: int, columns: int) -> None:
        structure = self._structure() if self._is_gaussian() else Diagonal()
        check_covariances(self, structure, rows, columns, self.n_components)

    def _column_levels(self, n_features: int) -> tuple[int, ...] | None:
        return levels(self.model_.components)

    def column_roles(self, n_features: int) -> ColumnRoles:
        if by_column(self.family) is None:
            return ColumnRoles.of(self.family, n_features)
        schema = kinds_of(self)
        return ColumnRoles.continuous(n_features) if schema is None else roles_by_column(schema)

    def roles_for(self, schema: Schema) -> ColumnRoles:
        if by_column(self.family) is None:
            return self.column_roles(len(schema.modelled))
        return roles_by_column(schema)

    def parts(self, X: Any) -> dict[str, np.ndarray]:
        members = self.model_.components
        if not isinstance(members, AbstractIndependent | Product):
            return {}
        return {"weights": self.weights_, "means": self.scaling_.invert(np.asarray(_means(members)))}

    def _distances(self, rows: Rows) -> Scaling:
        return Scaling.standardise(rows.x, rows.weight)

    def _prior_of_components(self, prototype: Any, rows: Rows) -> AbstractConjugatePrior | None:
        family = by_column(self.family)
        if family is None or self.component_prior is not None:
            return self.component_prior
        return prior_by_column(family, prototype, rows, self.n_components)

    def _prototype(self, rows: Rows) -> AbstractExponentialFamily:
        family = by_column(self.family)
        if family is not None:
            like = self._begun[0].component(0) if self._begun else None
            return member_by_column(family, self, rows, self.n_components, like)
        if isinstance(self.family, type):
            return self.family.prototype(rows.x)
        if self.family.dim != rows.x.shape[1]:
            raise ValueError(
                f"The 'family' parameter of {type(self).__name__} must have as many columns as X, "
                f"{rows.x.shape[1]}. Got {self.family.dim} instead."
            )
        return self.family

    def standard_errors(
        self, X: Any, sample_weight: Any = None, *, labels: Any = None
    ) -> MixtureParameters | GaussianMixtureParameters:
        """Standard errors of the parameters, from the observed information of the rows of the fit.

        As `GaussianMixture.standard_errors`, and for Gaussians the same; for other families the result has
        `weights` and `components`, a member of the family with standard errors in place of parameters.
        """
        if self._is_gaussian():
            scale = on_device(self.scaling_.scale)
            return self._standard_errors(X, sample_weight, labels, _gaussian_parameters, scale)
        return self._standard_errors(X, sample_weight, labels, _parameters)


class GaussianMixture(AbstractIncrementalMixture):
    """A mixture of Gaussians with a covariance of any structure.

    p(x) = Σ_k π_k N(x; μ_k, Σ_k), learned by EM from k-means++ starts on standardised columns.
    Missing entries are integrated out exactly.

    Args:
        n_components: how many Gaussians.
        covariance: `Full()`, `Diagonal()`, `Spherical()`, `LowRank(rank=…)`, or one of them in
            `Tied(…)`, shared by all components; or `Shared(volume=, shape=, orientation=)`, of which the
            components share some parts.  `Shared(…)` and the equal variances of `Spherical()` are in the
            units of the data.  Its `floor` bounds variances from below, in units of the variance of the
            columns.
        n_init: starts; the best end counts.
        init: a start such as `PlusPlus()` or `RandomRows()`, an array of centres, or a
            `freeenergy.models.Mixture` in the units of the data.
        max_iter, tol: the most iterations, and the improvement in nats per row below which EM stops.
        weight_prior, component_prior: conjugate priors make the fit MAP; the component prior is in
            units of the standardised columns.
        learner: replaces EM, for example by `Gradient(…)`.
        random_state: seed.
        verbose: 1 shows progress.
        checkpoint: a file that keeps a long fit.

    Attributes:
        weights_: the probabilities of the components.
        means_, covariances_: of each component, in the units of the data.
        model_: the fitted `freeenergy.models.Mixture`, of rescaled rows.
        history_, n_iter_, converged_, scaling_, …: as everywhere.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(0, 1, (200, 1)), rng.normal(8, 1, (200, 1))])
    >>> model = GaussianMixture(2, random_state=0).fit(X)
    >>> sorted(np.round(model.means_[:, 0]).tolist())
    [0.0, 8.0]
    """

    def __init__(
        self,
        n_components: int = 1,
        covariance: AbstractCovariance | None = None,
        *,
        n_init: int = 1,
        init: AbstractStart | np.ndarray | MixtureModel | None = None,
        max_iter: int = 1000,
        tol: float = 1e-4,
        weight_prior: DirichletPrior | None = None,
        component_prior: AbstractConjugatePrior | None = None,
        learner: AbstractAlgorithm | None = None,
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: str | None = None,
    ) -> None:
        self.n_components = n_components
        self.covariance = covariance
        self.n_init = n_init
        self.init = init
        self.max_iter = max_iter
        self.tol = tol
        self.weight_prior = weight_prior
        self.component_prior = component_prior
        self.learner = learner
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._check_start_and_priors()
        check_instance(self, "covariance", AbstractCovariance, optional=True)

    @classmethod
    def _parameters_of(cls, model: Any) -> dict[str, Any]:
        check_gaussian(cls, model.components)
        return super()._parameters_of(model) | {"covariance": model.component(0).covariance}

    def _structure(self) -> AbstractCovariance:
        return Full() if self.covariance is None else self.covariance

    def _scaling(self, X: np.ndarray, weight: np.ndarray | None) -> Scaling:
        return Scaling.standardise(X, weight, common=not self._structure().unit_free)

    def _check_size(self, rows: int, columns: int) -> None:
        check_covariances(self, self._structure(), rows, columns, self.n_components)

    def _distances(self, rows: Rows) -> Scaling:
        # the rows are rescaled already
        return Scaling.identity(rows.x.shape[1])

    def _prototype(self, rows: Rows) -> AbstractExponentialFamily:
        return Gaussian(on_device(np.zeros(rows.x.shape[1])), self._structure())

    def standard_errors(
        self, X: Any, sample_weight: Any = None, *, labels: Any = None
    ) -> GaussianMixtureParameters:
        """Standard errors of the parameters, from the observed information of the rows of the fit.

        The inverse of minus the second derivative of the log-likelihood (with the prior, if there is
        one), carried over to the units of the data; missing entries are accounted for exactly.  It
        holds for many rows, at a maximum (fit with a small `tol`) inside the range of the parameters.

        Args:
            X, sample_weight, labels: as in `fit`.

        Returns:
            `weights`, `means` and `covariances`; NaN, with a warning, where X does not determine the
            parameter.
        """
        scale = on_device(self.scaling_.scale)
        return self._standard_errors(X, sample_weight, labels, _gaussian_parameters, scale)

    @property
    def means_(self) -> np.ndarray:
        """The mean of each component, in the units of the data."""
        return self.scaling_.invert(np.asarray(self.model_.components.mean))

    @property
    def covariances_(self) -> np.ndarray:
        """The covariance matrix of each component, in the units of the data."""
        matrices = [
            np.asarray(self.model_.component(k).covariance.matrix()) for k in range(self.n_components)
        ]
        return np.stack(matrices) * np.outer(self.scaling_.scale, self.scaling_.scale)

    def parts(self, X: Any) -> dict[str, np.ndarray]:
        return gaussian_parts(self)


def gaussian_parts(estimator: Any) -> dict[str, np.ndarray]:
    """Weights, means and standard deviations of Gaussian components, for a picture."""
    spread = np.sqrt(np.diagonal(estimator.covariances_, axis1=1, axis2=2))
    return {"weights": estimator.weights_, "means": estimator.means_, "spread": spread}
