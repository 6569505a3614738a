"""The variational autoencoder as an estimator."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from sklearn.utils.metaestimators import available_if

from ... import models
from ..._core import (
    AbstractAlgorithm,
    Data,
    Evidence,
    Fit,
    Kind,
    generator,
    has_nan,
    on_device,
    split_key,
    split_key_data,
)
from ...distributions import (
    AbstractConjugatePrior,
    AbstractLink,
    AbstractPartial,
    AbstractShaped,
    Binary,
    Diagonal,
    Gaussian,
    Given,
    Mean,
    Natural,
    Parts,
    Product,
    Reals,
    levels,
    usual_link,
)
from ...distributions._base import rescaled
from ...evaluation import CodeReport, code_report, code_sentence, entries_in_use
from ...inference import Pathwise
from ...learning import EM, AbstractObjective, FreeEnergy, Gradient
from ...models import (
    AbstractCodePrior,
    AbstractCodeRecognition,
    Bits,
    DiagonalRecognition,
    MixturePrior,
    NormalPrior,
    Told,
    mlp_vae,
)
from ...models._codes import MOST_BITS
from ...shell import (
    AbstractDensity,
    Column,
    ColumnRoles,
    Field,
    Rows,
    Scaling,
    Schema,
    TransformsRows,
    cast,
    check_instance,
    check_int,
    check_numbers,
    check_real,
    framed,
    framed_chances,
    rows_at_once,
    split_rows,
)
from ...shell._answers import answers, evidence_of_rows, keyed_answers, seeded_answers
from ...shell._networks import batch_for, check_networks, decaying_adam, not_useless
from ...shell._schema import kinds_of
from ...shell._summary import named_parameters
from ...shell._validation import binary_rows, random_key
from .._by_column import (
    by_column,
    member_by_column,
    prior_by_column,
    roles_by_column,
    scaling_by_column,
    takes_by_family,
)
from ._starts import LLOYD_STEPS, PlusPlus, start_model

COMPLETION_SAMPLES = 200
_ROWS_AT_ONCE = 1024
# of standardised columns so much is noise at first
_FIRST_NOISE = 0.5
# rows whose codes are compared with each other
_MOST_COMPARED = 2000
# steps of EM for the components of codes
_EM_STEPS = 200
_AVERAGE = 0.9


def with_emission_in_units(model: models.VAE, scale: Array) -> models.VAE:
    """The model with what the decoder leaves of the emission in the units of the data."""
    # the decoder sets where it is
    member = rescaled(model.emission.member, jnp.zeros_like(scale), 1 / scale)
    moved = Given(member, model.emission.link)
    return eqx.tree_at(lambda m: m.emission, model, moved)


def _emission_in_units(model: models.VAE, scale: Array) -> dict[str, Array]:
    """The learnable arrays by name, those of the emission in the units of the data."""
    return named_parameters(with_emission_in_units(model, scale))


class AbstractVAE(AbstractDensity):
    """What estimators with a decoder of codes share: emissions, priors and recognitions of any kind."""

    latent_dim: int
    emission: Any
    link: AbstractLink | None
    prior: AbstractCodePrior | None
    recognition: AbstractCodeRecognition | None
    objective: Any
    width: int
    depth: int
    learning_rate: float
    weight_decay: float
    batch_size: int | None
    patience: int
    validation_fraction: float
    importance_samples: int
    refinement: int
    threshold: float | None
    active_: np.ndarray

    @property
    @abc.abstractmethod
    def _vae(self) -> models.VAE:
        """The fitted model, or that of any label."""

    _least_depth = 0
    _may_be_none = ("batch_size",)

    @property
    def _must_converge(self) -> bool:
        return False

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_int(self, "latent_dim")
        check_int(self, "importance_samples", 2)
        check_int(self, "refinement", 0)
        check_real(self, "weight_decay")
        check_instance(self, "link", AbstractLink, optional=True)
        check_instance(self, "prior", AbstractCodePrior, optional=True)
        check_instance(self, "recognition", AbstractCodeRecognition, optional=True)
        name, kind = type(self).__name__, self.emission
        family = isinstance(kind, type) and issubclass(kind, AbstractShaped)
        known = family or isinstance(self.emission, AbstractPartial | Given)
        if not known and by_column(self.emission) is None:
            raise ValueError(
                f"The 'emission' parameter of {name} must be a family of freeenergy.distributions, such as "
                f"Poisson, a member of one, a Given or 'by column'. Got {self.emission!r} instead."
            )
        if self.objective is not None and not callable(self.objective):
            raise ValueError(
                f"The 'objective' parameter of {name} must be an objective of freeenergy.learning, such as "
                f"FreeEnergy() or ImportanceWeighted(8). Got {self.objective!r} instead."
            )
        if self._prior.space != self._recognition.prior.space:
            raise ValueError(
                f"The 'prior' parameter of {name} must be about codes that the recognition recognises, "
                f"such as {type(self._recognition.prior).__name__}(). Got {self.prior!r} instead."
            )

    @property
    def _recognition(self) -> AbstractCodeRecognition:
        return DiagonalRecognition() if self.recognition is None else self.recognition

    @property
    def _prior(self) -> AbstractCodePrior:
        return self._recognition.prior if self.prior is None else self.prior

    def _link(self, part: Any) -> AbstractLink:
        """How the decoder sets what it can of a member, or of a part of one."""
        if isinstance(part, Product):
            return Parts(tuple(self._link(own) for own in part.parts))
        return usual_link(part) if self.link is None or part.support != Reals() else self.link

    def _emission(self, rows: Rows) -> tuple[Given, AbstractConjugatePrior | None]:
        """The emission for rows like these, and what makes its marginals of them."""
        dim, family = rows.x.shape[1], by_column(self.emission)
        if family is not None:
            member = member_by_column(family, self, rows)
            return Given(member, self._link(member)), prior_by_column(family, member, rows, 1)
        if self.emission is Gaussian:
            noise = Diagonal(on_device(np.full(dim, _FIRST_NOISE)))
            return Given(Gaussian(on_device(np.zeros(dim)), noise), self.link or Mean()), None
        if isinstance(self.emission, type):
            member = self.emission.prototype(rows.x)
            return Given(member, self._link(member)), None
        found = self.emission
        if not isinstance(found, Given):
            found = Given(found, self._link(found))
        if found.dim != dim:
            raise ValueError(
                f"The 'emission' parameter of {type(self).__name__} must describe the {dim} columns of X. "
                f"Got one of {found.dim} columns instead."
            )
        return found, None

    @property
    def needs_kinds(self) -> bool:
        return by_column(self.emission) is not None

    def takes(self, field: Field) -> bool:
        return takes_by_family(self.emission, field)

    def column_roles(self, n_features: int) -> ColumnRoles:
        if by_column(self.emission) is None:
            return ColumnRoles.of(self.emission, n_features)
        schema = kinds_of(self)
        return ColumnRoles.continuous(n_features) if schema is None else roles_by_column(schema)

    def roles_for(self, schema: Schema) -> ColumnRoles:
        if by_column(self.emission) is None:
            return self.column_roles(len(schema.modelled))
        return roles_by_column(schema)

    def _column_levels(self, n_features: int) -> tuple[int, ...] | None:
        return levels(self._vae.emission.member)

    def as_modelled(self, X: np.ndarray) -> np.ndarray:
        bits = by_column(self.emission) is None and self.emission.support == Binary()
        return binary_rows(self, X, self.threshold) if bits else X

    def _scaling(self, X: np.ndarray, weight: np.ndarray | None) -> Scaling:
        family = by_column(self.emission)
        if family is not None:
            return scaling_by_column(member_by_column(family, self), X, weight)
        free = self.emission.unit_free_columns(X.shape[1])
        if not free.any():
            return Scaling.identity(X.shape[1])
        common = not isinstance(self.emission, type) and self.emission.common_unit
        whole = Scaling.standardise(X, weight, common=common)
        return Scaling(np.where(free, whole.shift, 0.0), np.where(free, whole.scale, 1.0))

    def _check_size(self, rows: int, columns: int) -> None:
        self._check_size_told(columns, 1)

    def _check_size_told(self, columns: int, labels: int) -> None:
        """Refuses networks that would not fit in memory, told one of so many labels."""
        check_networks(
            lambda key: mlp_vae(
                columns,
                self.latent_dim,
                width=self.width,
                depth=self.depth,
                # classes have a few numbers a column, whichever they are
                emission=Given(Gaussian(jnp.zeros(columns), Diagonal(jnp.ones(columns)))),
                mask_input=True,
                prior=self._prior,
                recognition=self._recognition,
                labels=labels,
                key=key,
            ),
            0,
            f"{type(self).__name__} of {columns:,} columns with {self.latent_dim:,} latent entries and "
            f"layers of width {self.width:,}",
            "Use a smaller 'width' or 'latent_dim', or PCA first.",
        )

    def _told(self, rows: Rows) -> Told | None:
        """How rows are told to the encoder; None for their entries as they are."""
        if by_column(self.emission) is None:
            return None
        schema = kinds_of(self)
        assert schema is not None
        labels, counts = list[int | None](), list[bool]()
        shift, scale = np.zeros(rows.x.shape[1]), np.ones(rows.x.shape[1])
        for column, field in enumerate(schema.modelled):
            few = field.kind in (Column.CATEGORY, Column.ORDERED, Column.BINARY)
            labels.append(max(len(field.categories), 2) if few else None)
            counts.append(field.kind is Column.COUNT)
            if counts[-1]:
                seen = ~np.isnan(rows.x[:, column])
                logs, weight = np.log1p(rows.x[seen, column]), rows.weight[seen]
                shift[column] = np.average(logs, weights=weight)
                scale[column] = np.sqrt(np.average((logs - shift[column]) ** 2, weights=weight)) or 1.0
        return Told.of(labels, counts, shift, scale)

    def _start(
        self, data: Data, rows: Rows, prior: AbstractCodePrior, key: Array, labels: int = 1
    ) -> models.VAE:
        """Random weights, told one of so many labels."""
        emission, marginals = self._emission(rows)
        return _start(
            data,
            emission,
            marginals,
            self._told(rows),
            prior,
            self._recognition,
            key,
            sizes=(self.latent_dim, self.width, self.depth),
            mask_input=has_nan(rows.x),
            labels=labels,
        )

    def _learner(self, rows: int) -> AbstractAlgorithm:
        if self.learner is not None:
            return self.learner
        objective = FreeEnergy() if self.objective is None else self.objective
        # what changes from batch to batch is judged by where it ends
        judged = self._with_fresh_noise(FreeEnergy()) if isinstance(objective, AbstractObjective) else None
        return Gradient(
            decaying_adam(self.learning_rate, self.weight_decay),
            self._with_fresh_noise(objective),
            batch_size=self.batch_size or batch_for(rows),
            patience=self.patience,
            average=_AVERAGE,
            criterion=judged,
        )

    def _evidence_under(self, model: models.VAE, z: np.ndarray, seeds: np.ndarray) -> Evidence:
        """log p of rescaled rows: exact for few bits, else an importance-weighted bound."""
        if isinstance(model.prior, Bits) and self.latent_dim <= MOST_BITS:
            block = rows_at_once(2**self.latent_dim)
            nats = answers(model, models.VAE.log_prob_by_enumeration, z, block=block)
            return Evidence(nats, np.zeros_like(nats), Kind.EXACT)
        return evidence_of_rows(model, z, seeds, self._samples, self.seed_)

    def _labels_of(self, column: int) -> int | None:
        """How many labels a column has."""
        return _labels(self._vae.emission.member, column)

    def _chances_under(
        self, model: models.VAE, z: np.ndarray, seeds: np.ndarray, column: int, labels: int
    ) -> np.ndarray:
        """The probabilities of the labels in a column that is missing in rescaled rows."""
        return seeded_answers(
            model,
            models.VAE.complete_chances,
            z,
            seeds,
            self.seed_,
            block=rows_at_once(COMPLETION_SAMPLES),
            column=np.asarray(column),
            labels=labels,
            samples=COMPLETION_SAMPLES,
        )

    def _remarks(self) -> list[str]:
        return [code_sentence(self.active_)] if "active_" in vars(self) else []

    def _reported(self) -> tuple[Any, tuple[Array, ...]]:
        numbers = jax.tree.leaves(eqx.filter(self._vae.emission, eqx.is_inexact_array))
        if self.scaling_.is_identity or not numbers:
            return super()._reported()
        return _emission_in_units, (on_device(self.scaling_.scale.astype(numbers[0].dtype)),)

    @property
    def _samples(self) -> int:
        return self.importance_samples

    _shares_draws = True

    @property
    def _completion_samples(self) -> int:
        return COMPLETION_SAMPLES


class VAE(TransformsRows, AbstractVAE):
    """A variational autoencoder: z ~ prior, x ~ emission(decoder(z)), q(z | x) from an encoder.

    Trained in single precision by lowering the free energy, with early stopping on held-out rows.
    `evidence` is the importance-weighted lower bound with `importance_samples` draws of the encoder and
    its standard error; it is exact for a code of few bits.  Missing entries are left out of the likelihood,
    and the encoder is told so.

    Args:
        latent_dim: entries of z.
        emission: the family of x given z: a class of `freeenergy.distributions` such as `Gaussian` (learned
            noise variance per column; the default), `Bernoulli`, `Poisson`, `Categorical` or
            `DiscretisedLogistics`; "by column" for tables with columns of any kind, each with the family of
            its kind; a member, such as a `Product`; or a member with a link, such as `Given(StudentT(…),
            Free())`.  Its parameters are those of standardised columns, where the family has other units.
        link: what the decoder sets of columns of real numbers: `Free()` for all parameters, such as a scale
            that depends on z; None for the mean, with a scale that is learned.
        prior: of codes: `NormalPrior()`, `MixturePrior(10)` (VaDE: `predict` gives clusters),
            `FlowPrior()`, … of `freeenergy.models`; None for that which suits the recognition.
        recognition: q(z | x): `DiagonalRecognition()` (the default), `FullRecognition()`,
            `FlowRecognition()`, `BitsRecognition()` for bits, `LevelsRecognition(2)` for two levels.
        objective: what is lowered: `FreeEnergy()` (the default), `FreeEnergy(beta=4)` (β-VAE),
            `WarmUp(1000)`, `DoublyReparametrised(8)` or `ImportanceWeighted(8)` (IWAE) of
            `freeenergy.learning`.
        width, depth: hidden units in a layer, and layers, of both networks; depth 0 is linear.
        learning_rate, weight_decay, max_iter: of Adam; an iteration is an epoch.
        batch_size: rows a step; None for a twentieth of them, between 16 and 256.
        validation_fraction, patience: rows held out, and epochs without improvement before stopping.
        importance_samples: draws for the evidence of a row.
        refinement: steps by which q is improved for each row that is asked about (semi-amortised).
        threshold: with `Bernoulli`, entries above it count as one, the others as zero; None
            refuses all but zeros and ones.
        learner: replaces Adam on the objective.
        random_state, verbose, checkpoint: as everywhere.

    Attributes:
        model_: the fitted `freeenergy.models.VAE`, of rescaled rows.
        active_: which entries of the code are in use; `code_report(X)` says more.
        history_, n_iter_, converged_, scaling_, …: as everywhere.

    References:
        Kingma and Welling (2014), Auto-encoding variational Bayes.
        Nazábal, Olmos, Ghahramani and Valera (2020), Handling incomplete heterogeneous data using VAEs.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(100, 3))
    >>> model = VAE(1, width=8, max_iter=20, importance_samples=50, random_state=0).fit(X)
    >>> model.evidence(X[:2]).kind.value
    'lower bound'
    """

    def __init__(
        self,
        latent_dim: int = 8,
        emission: Any = Gaussian,
        *,
        link: AbstractLink | None = None,
        prior: AbstractCodePrior | None = None,
        recognition: AbstractCodeRecognition | None = None,
        objective: Any = None,
        width: int = 128,
        depth: int = 1,
        learning_rate: float = 3e-3,
        weight_decay: float = 1e-2,
        batch_size: int | None = None,
        max_iter: int = 500,
        validation_fraction: float = 0.1,
        patience: int = 30,
        importance_samples: int = 500,
        refinement: int = 0,
        threshold: float | None = None,
        learner: AbstractAlgorithm | None = None,
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: str | None = None,
    ) -> None:
        self.latent_dim = latent_dim
        self.emission = emission
        self.link = link
        self.prior = prior
        self.recognition = recognition
        self.objective = objective
        self.width = width
        self.depth = depth
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.importance_samples = importance_samples
        self.refinement = refinement
        self.threshold = threshold
        self.learner = learner
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint

    def _learn(self, rows: Rows, key: Array) -> Fit:
        start_key, fit_key = split_key(key)
        train, validation = split_rows(rows, self.validation_fraction, np.float32)
        clusters = isinstance(self._prior, MixturePrior)
        # components are found among codes that have been learned without them
        start = self._start(train, rows, NormalPrior() if clusters else self._prior, start_key)
        learner = self._learner(len(rows.x))
        result = self._run(start, learner, train, rows, fit_key, validation=validation)
        if isinstance(self._prior, MixturePrior) and not result.interrupted:
            start = self._clustered(result.model, rows, start_key, self._prior.n_components)
            result = self._run(
                start, learner, train, rows, fit_key, part=1, what="clusters", validation=validation
            )
        if self.learner is None and self.emission is Gaussian:
            result = not_useless(result, start, rows)
        # evaluation is in double precision, so that rows give the same number in any company
        model = dataclasses.replace(cast_model(result.model), refinement=self.refinement)
        means = answers(model, models.VAE.encode, rows.x, block=self._codes_at_once)
        self.active_ = entries_in_use(means, rows.weight)[1]
        return dataclasses.replace(result, model=model)

    def _clustered(self, model: models.VAE, rows: Rows, key: Array, size: int) -> models.VAE:
        """The model with components where its codes are."""
        keys = split_key_data(key, len(rows.x))
        codes = keyed_answers(cast_model(model), _drawn, rows.x, keys, block=self._codes_at_once)
        own = Rows(codes, rows.weight)
        centres = PlusPlus()(own, size, key=key)
        dim = self.latent_dim
        member = Gaussian(on_device(np.zeros(dim)), Diagonal(on_device(np.ones(dim))))
        data = Data.of(codes, rows.weight)
        start = start_model(member, data, centres, Scaling.identity(dim), LLOYD_STEPS)
        found = self._run(start, EM(tol=1e-4), data, own, key, part="codes", max_iter=_EM_STEPS).model
        return dataclasses.replace(model, prior=cast(found, np.float32), expectation=Pathwise())

    @property
    def _vae(self) -> models.VAE:
        return self.model_

    def _evidence(self, z: np.ndarray, seeds: np.ndarray) -> Evidence:
        return self._evidence_under(self.model_, z, seeds)

    def _likeliest(self, rows: np.ndarray, column: int) -> np.ndarray:
        labels = self._labels_of(column)
        if labels is None:
            return super()._likeliest(rows, column)
        seeds = np.zeros(len(rows), np.uint32)
        chances = self._chances_under(self.model_, self.scaling_.apply(rows), seeds, column, labels)
        return np.argmax(chances, axis=1).astype(float)

    def code_report(self, X: Any, *, random_state: Any = 0) -> CodeReport:
        """What the codes tell of rows, and how far they are from the prior together (a `CodeReport`).

        Args:
            X: a row per sample; of more than 2,000 rows as many, by chance.
            random_state: seed of one code for each row.

        >>> import numpy as np
        >>> X = np.random.default_rng(0).normal(size=(100, 3))
        >>> report = VAE(1, width=8, max_iter=20, random_state=0).fit(X).code_report(X)
        >>> bool(abs(report.rate - report.information - report.aggregate_gap) < 1e-9)
        True
        """
        key, z = random_key(random_state), self._read(X).z
        if len(z) > _MOST_COMPARED:
            z = z[np.sort(generator(key).permutation(len(z))[:_MOST_COMPARED])]
        likelihood, recognition, prior, means = map(np.asarray, _codes(self.model_, on_device(z), key))
        # the model has rescaled rows
        units = -np.where(np.isnan(z), 0.0, np.log(self.scaling_.scale)).sum(axis=1)
        return code_report(likelihood + units, recognition, prior, means)

    def _has_components(self) -> bool:
        if isinstance(self.prior, MixturePrior):
            return True
        raise AttributeError("VAE has clusters with a prior that has components: prior=MixturePrior(10).")

    @available_if(_has_components)
    @framed_chances
    def predict_proba(self, X: Any) -> Any:
        """p(c | x) of each component c of the prior, by importance sampling of the code."""
        taken = self._read(X)
        found = seeded_answers(
            self.model_,
            models.VAE.component_chances,
            taken.z,
            taken.seeds,
            self.seed_,
            block=rows_at_once(self.importance_samples),
            samples=self.importance_samples,
        )
        return check_numbers(self, "predict_proba", found)

    @available_if(_has_components)
    @framed
    def predict(self, X: Any) -> Any:
        """The most probable component of the prior for each row."""
        return np.argmax(np.asarray(self.predict_proba(X)), axis=1)

    @property
    def _n_features_out(self) -> int:
        return self.latent_dim


def _start(
    data: Data,
    emission: Given,
    marginals: AbstractConjugatePrior | None,
    told: Told | None,
    prior: AbstractCodePrior,
    recognition: AbstractCodeRecognition,
    key: Array,
    *,
    sizes: tuple[int, int, int],
    mask_input: bool,
    labels: int,
) -> models.VAE:
    """Random weights; where the marginals of the columns are known, the decoder begins there."""
    latent_dim, width, depth = sizes
    outputs = None
    if marginals is not None:
        outputs, emission = _at_marginals(data, emission, marginals)
    model = mlp_vae(
        data.x.shape[1],
        latent_dim,
        width=width,
        depth=depth,
        emission=cast(emission, np.float32),
        mask_input=mask_input,
        told=cast(told, np.float32),
        prior=prior,
        recognition=recognition,
        labels=labels,
        key=key,
    )
    if outputs is None:
        return model
    return eqx.tree_at(lambda m: _last(m.decoder).bias, model, outputs)


@eqx.filter_jit
def _at_marginals(data: Data, emission: Given, marginals: AbstractConjugatePrior) -> tuple[Array, Given]:
    """The output of the decoder that says what the columns are by themselves, and the emission there."""
    x, weight = data.x.astype(float), data.weight.astype(float)
    features = jnp.where(weight[:, None] > 0, jax.vmap(emission.member.features)(x), 0)
    member = marginals.from_features(weight @ features)
    outputs = _first_output(emission.link, member).astype(jnp.float32)
    return outputs, Given(_quieter(member), emission.link)


def _labels(member: Any, column: int) -> int | None:
    """How many labels a column has."""
    if not isinstance(member, Product):
        known = levels(member)
        return None if known is None else known[column]
    place = int(np.flatnonzero(member.order == column)[0])
    part = int(np.searchsorted(np.cumsum(member.sizes), place, side="right"))
    return _labels(member.parts[part], place - sum(member.sizes[:part]))


def _drawn(model: models.VAE, x: Array, *, key: Array) -> Array:
    """A code of a row."""
    return model.recognise(x).sample(key=key)


def _last(decoder: Any) -> Any:
    network = decoder
    # what is told less, or more, than the code
    while isinstance(network, models.FirstEntries | models.ToldLabel):
        network = network.network
    return network.layers[-1]


def _first_output(link: AbstractLink, member: Any) -> Array:
    """The output that stands for `member`, as far as the link sets it."""
    match link:
        case Parts():
            return jnp.concatenate(
                [_first_output(own, part) for own, part in zip(link.links, member.parts, strict=True)]
            )
        case Natural():
            return member.natural().ravel()
        case Mean():
            return member.mean
    return jnp.zeros(link.size(member))


def _quieter(member: Product) -> Product:
    """Gaussian parts with some of their variance left to the decoder."""

    def quieter(part: Any) -> Any:
        if not isinstance(part, Gaussian):
            return part
        return Gaussian(part.mean, Diagonal(_FIRST_NOISE * part.covariance.variances()))

    return member.with_parts(quieter(part) for part in member.parts)


@eqx.filter_jit
def _codes(model: models.VAE, x: Array, key: Array) -> tuple[Array, Array, Array, Array]:
    """Of a code for each row: log p(x | z), log q of it for every row, log p(z); and the means of q."""
    laws = jax.vmap(model.recognise)(x)
    z = jax.vmap(lambda q, k: q.sample(key=k))(laws, jax.random.split(key, len(x)))
    together = jax.lax.map(lambda own: jax.vmap(lambda q: q.log_prob(own))(laws), z)
    likelihood = jax.vmap(model.log_likelihood)(x, z)
    return likelihood, together, jax.vmap(model.prior.log_prob)(z), jax.vmap(model.encode)(x)


def cast_model(model: models.VAE) -> models.VAE:
    """`model` in double precision, its prior included."""
    prior = cast(model.prior, np.float64)
    if "dtype" in {field.name for field in dataclasses.fields(prior)}:
        prior = dataclasses.replace(prior, dtype=jnp.float64)
    return dataclasses.replace(cast(model, np.float64), prior=prior)
