"""Regression with a continuous hidden cause: the answer is an integral over what is not seen."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ... import models
from ..._core import AbstractAlgorithm, Kind, map_rows
from ...distributions import Diagonal, Gaussian, Given
from ...evaluation import AbstractLaws, StackedLaws
from ...learning import ImportanceWeighted
from ...models import mlp_conditional_vae
from ...shell import AbstractDensity, Rows, Scaling, cast, check_int
from ...shell._networks import check_networks
from ._members import laws_of
from ._quasi import quasi_normal
from ._trained import ROWS_AT_ONCE, AbstractFamilyNetwork

_TRAINING_SAMPLES = 8
# codes over which the distribution function is averaged
_CODES = 128
# independent estimates, whose spread is the standard error
_GROUPS = 8
# random weights by one program

_Model = models.ConditionalVAE


def _members(row: Array, model: _Model, codes: Array) -> Any:
    return jax.vmap(lambda z: model.answer_of(row, z))(codes)


def _member(pair: tuple[Array, Array], model: _Model) -> Any:
    return model.answer_of(*pair)


def _log_means(pair: tuple[Array, Array], model: _Model, noise: Array) -> Array:
    return model.log_means(pair, noise)


def _log_mean(logs: np.ndarray) -> np.ndarray:
    """log of the mean of exponentials over the first axis."""
    return np.asarray(np.logaddexp.reduce(logs, axis=0)) - np.log(len(logs))


@dataclasses.dataclass(frozen=True)
class LatentLaws(AbstractLaws):
    """The laws that a regression with a hidden cause gives rows.

    Densities are importance estimates by the recognition network; distribution functions and quantiles
    are averages over codes that fill the prior evenly.

    Attributes:
        rows: rescaled.
        model: of rescaled rows and answers.
        scaling: that of the answers.
        shape_of_one: that of an answer, () or (outputs,).
        draws: how many codes a density takes.
    """

    rows: np.ndarray
    model: _Model
    scaling: Scaling
    shape_of_one: tuple[int, ...]
    draws: int

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self.rows), *self.shape_of_one

    @property
    def discrete(self) -> bool:
        return self._averaged.discrete

    def _laws_of(self, members: Any) -> AbstractLaws:
        return laws_of(
            members, self.scaling, lambda values: values.reshape(len(values), *self.shape_of_one)
        )

    @functools.cached_property
    def _averaged(self) -> StackedLaws:
        """The average over quasi-random codes."""
        codes = quasi_normal(_CODES, self.model.prior.dim)
        found = map_rows(_members, self.rows, self.model, codes, block=ROWS_AT_ONCE)
        stack = jax.tree.map(lambda a: np.swapaxes(a, 0, 1).reshape(-1, *a.shape[2:]), found)
        return StackedLaws(np.full((_CODES, len(self.rows)), -np.log(_CODES)), self._laws_of(stack))

    def log_prob(self, y: Any) -> np.ndarray:
        return self.scored(y)[0]

    def scored(self, y: Any) -> tuple[np.ndarray, np.ndarray]:
        """log p(y | x) of each row, and its standard error."""
        y = np.broadcast_to(np.asarray(y, float), self.shape).reshape(len(self.rows), -1)
        size = -(-self.draws // _GROUPS)
        noise = np.stack([quasi_normal(size, self.model.prior.dim, seed) for seed in range(_GROUPS)])
        pairs = self.rows, self.scaling.apply(y)
        logs = map_rows(_log_means, pairs, self.model, noise, block=ROWS_AT_ONCE // 8).T
        nats = _log_mean(logs)
        # what is impossible is so in every group
        share = np.exp(logs - np.where(np.isfinite(nats), nats, 0.0))
        stderr = share.std(axis=0, ddof=1) / np.sqrt(_GROUPS)
        holes = np.isnan(y)
        nats = nats - np.where(holes, 0.0, np.log(self.scaling.scale)).sum(axis=1)
        none = holes.all(axis=1)
        return np.where(none, 0.0, nats), np.where(none, 0.0, stderr)

    def log_cdf(self, y: Any) -> np.ndarray:
        return self._averaged.log_cdf(y)

    def log_sf(self, y: Any) -> np.ndarray:
        return self._averaged.log_sf(y)

    def mean(self) -> np.ndarray:
        return self._averaged.mean()

    def variance(self) -> np.ndarray:
        return self._averaged.variance()

    def quantile(self, p: Any) -> np.ndarray:
        return self._averaged.quantile(p)

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        rows = np.tile(self.rows, (n, 1))
        codes = rng.standard_normal((len(rows), self.model.prior.dim))
        found = map_rows(_member, (rows, codes), self.model, block=ROWS_AT_ONCE)
        return self._laws_of(found).sample(1, rng)[0].reshape(n, *self.shape)

    def take(self, rows: np.ndarray) -> LatentLaws:
        return dataclasses.replace(self, rows=self.rows[rows])


class ConditionalVAE(AbstractFamilyNetwork):
    """p(y | x) = ∫ p(z) p(y | x, z) dz: regression with a continuous hidden cause z ~ N(0, I).

    Also known as conditional variational autoencoder: a decoder makes the law of the answer of row and
    cause, and an encoder recognises the cause, q(z | x, y).  Trained in single precision by the
    importance-weighted bound with 8 draws, with early stopping on held-out rows.

    `evidence` is a lower bound on average, log (1/S) Σ p(y, z_s | x) / r(z_s), with half of the S codes
    from the prior and half from the encoder, r = ½ p + ½ q, and its standard error; it tends to
    log p(y | x).  Distribution functions and quantiles are averages over 128 quasi-random codes.

    `predict_interval` has those quantiles of this law which held as many answers as they say, each by the
    law of a further fit that had not seen it: `predict_density` takes the fitted weights for known, and of
    few rows its own quantiles hold fewer.  Of more than `judged_rows` rows they are the law's own.
    `Conformal` around it sets rows aside instead, and is then best given one with `judged_rows=0`.

    Args:
        latent_dim: entries of z.
        family: of the answer given row and cause, as in `MixtureDensity`; None for Gaussians whose mean and
            scale depend on both.
        width, depth: hidden units in a layer, and layers, of both networks; depth 0 is linear.
        learning_rate, batch_size, max_iter: of Adam; an iteration is an epoch.
        validation_fraction, patience: rows held out, and epochs without improvement before stopping.
        judged_rows: up to how many rows intervals are judged by further fits, twenty that leave out a
            twentieth of the rows each, or five a fifth from 1,000 rows on.  0 for none.
        importance_samples: S, draws for the evidence of a row.
        inputs: the density of rows and answers from which missing entries of rows are drawn; None for one
            Gaussian.
        learner: replaces Adam on the bound.
        random_state, verbose, checkpoint: as everywhere.

    Attributes:
        model_: a `freeenergy.models.ConditionalVAE` of rescaled rows and answers.
        fold_levels_, fold_weight_: the least level whose interval holds an answer, by the law of a fit that
            has not seen it, and the weight of its row; none where nothing was left out.
        history_, n_iter_, converged_, scaling_, …: as everywhere.

    References:
        Sohn, Lee & Yan (2015), Learning structured output representation using deep conditional
        generative models; Burda, Grosse & Salakhutdinov (2016), Importance weighted autoencoders.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 1))
    >>> y = X[:, 0] + rng.exponential(size=200)
    >>> model = ConditionalVAE(width=8, max_iter=20, random_state=0).fit(X, y)
    >>> model.evidence(X, y).kind.value
    'lower bound'
    """

    _kind_if_complete = Kind.LOWER

    def __init__(
        self,
        latent_dim: int = 1,
        family: Any = None,
        *,
        width: int = 64,
        depth: int = 1,
        learning_rate: float = 5e-3,
        batch_size: int = 128,
        max_iter: int = 300,
        validation_fraction: float = 0.1,
        patience: int = 30,
        judged_rows: int = 2000,
        importance_samples: int = 512,
        inputs: AbstractDensity | None = None,
        learner: AbstractAlgorithm | None = None,
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: str | None = None,
    ) -> None:
        self.latent_dim = latent_dim
        self.family = family
        self.width = width
        self.depth = depth
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.judged_rows = judged_rows
        self.importance_samples = importance_samples
        self.inputs = inputs
        self.learner = learner
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_int(self, "latent_dim")
        check_int(self, "importance_samples", 2 * _GROUPS)

    def _check_size(self, rows: int, columns: int) -> None:
        answer = Given(Gaussian(jnp.zeros(1), Diagonal(jnp.ones(1))))
        check_networks(
            lambda key: mlp_conditional_vae(
                columns,
                1,
                self.latent_dim,
                width=self.width,
                depth=self.depth,
                answer=answer,
                key=key,
            ),
            min(rows, ROWS_AT_ONCE) * self.importance_samples,
            f"ConditionalVAE of {columns:,} columns with {self.latent_dim:,} latent entries and layers of "
            f"width {self.width:,}",
            "Use a smaller 'width', or PCA first.",
        )

    def _start(self, rows: Rows, key: Array) -> models.ConditionalVAE:
        assert rows.known is not None
        answer = cast(Given(self._member(rows.known), self._link()), np.float32)
        sizes = rows.x.shape[1], rows.known.shape[1], self.latent_dim
        return mlp_conditional_vae(*sizes, width=self.width, depth=self.depth, answer=answer, key=key)

    def _objective(self) -> Any:
        return ImportanceWeighted(_TRAINING_SAMPLES)

    def _finished(self, model: models.ConditionalVAE) -> models.ConditionalVAE:
        whole = super()._finished(model)
        prior = dataclasses.replace(whole.prior, dtype=jnp.float64)
        return dataclasses.replace(whole, prior=prior)

    def _laws(self, x: np.ndarray) -> LatentLaws:
        return LatentLaws(
            self.scaling_.apply(x),
            self.model_,
            self.answer_scaling_,
            self.answer_shape_,
            self.importance_samples,
        )

    def _log_prob_of(self, laws: Any, y: np.ndarray) -> tuple[np.ndarray, Any]:
        return laws.scored(y)
