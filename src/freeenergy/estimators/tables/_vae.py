"""The variational autoencoder as an estimator."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array

from ... import models
from ..._core import AbstractAlgorithm, Fit, key_of, on_device, split_key
from ...distributions import (
    AbstractPartial,
    AbstractShaped,
    Binary,
    Diagonal,
    Gaussian,
    Given,
    Mean,
    levels,
)
from ...learning import FreeEnergy, Gradient
from ...models import mlp_vae
from ...shell import (
    AbstractDensity,
    ColumnRoles,
    Rows,
    Scaling,
    TransformsRows,
    adam,
    cast,
    check_int,
    split_rows,
)
from ...shell._networks import check_networks
from ...shell._validation import binary_rows

_COMPLETION_SAMPLES = 200
# random weights by one program
_start = eqx.filter_jit(mlp_vae)


class VAE(TransformsRows, AbstractDensity):
    """A variational autoencoder: z ~ N(0, I), x ~ emission(decoder(z)), q(z | x) from an encoder.

    Trained in single precision by lowering the free energy, with early stopping on held-out rows.
    `evidence` is the importance-weighted lower bound with `importance_samples` draws of the encoder and
    its standard error.  Missing entries are left out of the likelihood, and the encoder is told so.

    Args:
        latent_dim: entries of z.
        emission: the family of x given z: a class of `freeenergy.distributions` such as `Gaussian` (learned
            noise variance per column; the default), `Bernoulli`, `Poisson` or `Categorical`; a member, such
            as a `Product` for columns of different kinds; or a member with a link, such as
            `Given(StudentT(…), Free())`.  Its parameters are those of standardised columns, where the
            family has other units.
        width, depth: hidden units in a layer, and layers, of both networks.
        learning_rate, batch_size, max_iter: of Adam; an iteration is an epoch.
        validation_fraction, patience: rows held out, and epochs without improvement before stopping.
        importance_samples: draws for the evidence of a row.
        threshold: with `Bernoulli`, entries above it count as one, the others as zero; None
            refuses all but zeros and ones.
        learner: replaces Adam on the free energy.
        random_state, verbose, checkpoint: as everywhere.

    Attributes:
        model_: the fitted `freeenergy.models.VAE`, of rescaled rows.
        history_, n_iter_, converged_, scaling_, …: as everywhere.

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
        width: int = 128,
        depth: int = 1,
        learning_rate: float = 1e-3,
        batch_size: int = 128,
        max_iter: int = 500,
        validation_fraction: float = 0.1,
        patience: int = 30,
        importance_samples: int = 500,
        threshold: float | None = None,
        learner: AbstractAlgorithm | None = None,
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: str | None = None,
    ) -> None:
        self.latent_dim = latent_dim
        self.emission = emission
        self.width = width
        self.depth = depth
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.importance_samples = importance_samples
        self.threshold = threshold
        self.learner = learner
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint

    @property
    def _must_converge(self) -> bool:
        return False

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_int(self, "latent_dim")
        check_int(self, "importance_samples", 2)
        family = isinstance(self.emission, type) and issubclass(self.emission, AbstractShaped)
        if not (family or isinstance(self.emission, AbstractPartial | Given)):
            raise ValueError(
                "The 'emission' parameter of VAE must be a family of freeenergy.distributions, such as "
                f"Poisson, a member of one, or a Given. Got {self.emission!r} instead."
            )

    def _emission(self, x: np.ndarray) -> Given:
        """The emission for rows like `x`."""
        dim = x.shape[1]
        if self.emission is Gaussian:
            # of standardised columns half is noise at first
            return Given(Gaussian(on_device(np.zeros(dim)), Diagonal(on_device(np.full(dim, 0.5)))), Mean())
        if isinstance(self.emission, type):
            return Given(self.emission.prototype(x))
        found = self.emission if isinstance(self.emission, Given) else Given(self.emission)
        if found.dim != dim:
            raise ValueError(
                f"The 'emission' parameter of VAE must describe the {dim} columns of X. "
                f"Got one of {found.dim} columns instead."
            )
        return found

    def column_roles(self, n_features: int) -> ColumnRoles:
        return ColumnRoles.of(self.emission, n_features)

    def _column_levels(self, n_features: int) -> tuple[int, ...] | None:
        return levels(self.model_.emission.member)

    def as_modelled(self, X: np.ndarray) -> np.ndarray:
        return binary_rows(self, X, self.threshold) if self.emission.support == Binary() else X

    def _scaling(self, X: np.ndarray, weight: np.ndarray | None) -> Scaling:
        free = self.emission.unit_free_columns(X.shape[1])
        if not free.any():
            return Scaling.identity(X.shape[1])
        common = not isinstance(self.emission, type) and self.emission.common_unit
        whole = Scaling.standardise(X, weight, common=common)
        return Scaling(np.where(free, whole.shift, 0.0), np.where(free, whole.scale, 1.0))

    def _check_size(self, rows: int, columns: int) -> None:
        sizes = {"width": self.width, "depth": self.depth}
        check_networks(
            lambda: mlp_vae(
                columns,
                self.latent_dim,
                **sizes,
                # classes have a few numbers a column, whichever they are
                emission=Given(Gaussian(jnp.zeros(columns), Diagonal(jnp.ones(columns)))),
                mask_input=True,
                key=key_of(0),
            ),
            0,
            f"VAE of {columns:,} columns with {self.latent_dim:,} latent entries and layers of width "
            f"{self.width:,}",
            "Use a smaller 'width' or 'latent_dim', or PCA first.",
        )

    def _learn(self, rows: Rows, key: Array) -> Fit:
        start_key, fit_key = split_key(key)
        train, validation = split_rows(rows, self.validation_fraction, np.float32)
        dim = rows.x.shape[1]
        start = _start(
            dim,
            self.latent_dim,
            width=self.width,
            depth=self.depth,
            emission=cast(self._emission(rows.x), np.float32),
            mask_input=bool(np.isnan(rows.x).any()),
            key=start_key,
        )
        learner = self.learner or Gradient(
            adam(self.learning_rate),
            self._with_fresh_noise(FreeEnergy()),
            batch_size=self.batch_size,
            patience=self.patience,
            average=0.9,
        )
        result = self._run(start, learner, train, rows, fit_key, validation=validation)
        # evaluation is in double precision, so that rows give the same number in any company
        return dataclasses.replace(result, model=cast_model(result.model))

    @property
    def _samples(self) -> int:
        return self.importance_samples

    @property
    def _completion_samples(self) -> int:
        return _COMPLETION_SAMPLES

    @property
    def _n_features_out(self) -> int:
        return self.latent_dim


def cast_model(model: models.VAE) -> models.VAE:
    """`model` in double precision, its prior included."""
    prior = dataclasses.replace(model.prior, dtype=jnp.float64)
    return dataclasses.replace(cast(model, np.float64), prior=prior)
