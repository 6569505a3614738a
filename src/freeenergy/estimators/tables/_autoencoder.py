"""The autoencoder as an estimator."""

from __future__ import annotations

import dataclasses
from typing import Any, NoReturn

import equinox as eqx
import numpy as np
from jax import Array
from sklearn.utils.validation import check_array, check_is_fitted

from ..._core import AbstractAlgorithm, Fit, has_nan, split_key
from ...learning import LBFGS, AbstractCodePenalty, AbstractCorruption, Gradient, Reconstruction
from ...models import Autoencoder as AutoencoderModel
from ...models import layer_autoencoder, mlp_autoencoder, stacked
from ...shell import (
    AbstractRowEstimator,
    Rows,
    TransformsRows,
    cast,
    check_instance,
    check_int,
    check_numbers,
    check_real,
    split_rows,
)
from ...shell._answers import answers
from ...shell._networks import batch_for, check_networks, decaying_adam

_AVERAGE = 0.9
# the largest slope that counts as zero, of the mean squared error of a linear autoencoder
_FLAT = 1e-7
_stage = eqx.filter_jit(layer_autoencoder)


class Autoencoder(TransformsRows, AbstractRowEstimator):
    """A code of each row from which the row is had again:  h = f(x), x ≈ g(h), by networks f and g.

    The squared error of standardised columns is lowered in single precision, with early stopping on
    held-out rows.  `transform` gives codes and `inverse_transform` rows of codes.  With `depth=0` both are
    linear and the code spans the plane of principal components (of standardised columns).

    It is no density: it gives no probability of a row, and `evidence` says so.  The `VAE` is one.

    Args:
        latent_dim: entries of the code; with fewer than columns it is under-complete.
        corruption: noise that is put on rows and has to be taken away: `GaussianCorruption(0.3)`,
            `MaskingCorruption(0.3)` of `freeenergy.learning` (a denoising autoencoder).
        penalty: of the code: `SparseCode(0.1)` or `ContractiveCode(0.1)`.
        rectified: whether codes are max(0, ·), with exact zeros: for sparse ones.
        greedy: whether layers are trained one after the other first, each as an autoencoder of what the
            layers before it make of the rows; then all together.
        width, depth: hidden units in a layer, and layers, of both networks; depth 0 is linear.
        learning_rate, weight_decay, max_iter: of Adam; an iteration is an epoch.
        batch_size: rows a step; None for a twentieth of them, between 16 and 256.
        validation_fraction, patience: rows held out, and epochs without improvement before stopping.
        learner: replaces Adam (L-BFGS for `depth=0` without corruption or penalty).
        random_state, verbose, checkpoint: as everywhere.

    Attributes:
        model_: the fitted `freeenergy.models.Autoencoder`, of rescaled rows.
        stages_: the objectives at the end of each layer's own training, with `greedy`.
        history_, n_iter_, converged_, scaling_, …: as everywhere.

    References:
        Vincent, Larochelle, Bengio and Manzagol (2008), Extracting and composing robust features with
        denoising autoencoders; Bengio, Lamblin, Popovici and Larochelle (2007), Greedy layer-wise training
        of deep networks.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 1)) @ np.array([[3.0, 4.0]]) + 7.0
    >>> model = Autoencoder(1, depth=0, random_state=0).fit(X)
    >>> bool(np.abs(model.inverse_transform(model.transform(X)) - X).max() < 1e-3)
    True
    """

    def __init__(
        self,
        latent_dim: int = 8,
        *,
        corruption: AbstractCorruption | None = None,
        penalty: AbstractCodePenalty | None = None,
        rectified: bool = False,
        greedy: bool = False,
        width: int = 128,
        depth: int = 1,
        learning_rate: float = 3e-3,
        weight_decay: float = 0.0,
        batch_size: int | None = None,
        max_iter: int = 500,
        validation_fraction: float = 0.1,
        patience: int = 30,
        learner: AbstractAlgorithm | None = None,
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: str | None = None,
    ) -> None:
        self.latent_dim = latent_dim
        self.corruption = corruption
        self.penalty = penalty
        self.rectified = rectified
        self.greedy = greedy
        self.width = width
        self.depth = depth
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.learner = learner
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint

    _least_depth = 0
    _may_be_none = ("batch_size",)

    @property
    def _must_converge(self) -> bool:
        return False

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_int(self, "latent_dim")
        check_real(self, "weight_decay")
        check_instance(self, "corruption", AbstractCorruption, optional=True)
        check_instance(self, "penalty", AbstractCodePenalty, optional=True)
        check_instance(self, "rectified", bool)
        check_instance(self, "greedy", bool)

    def _sizes(self) -> dict[str, Any]:
        return {"width": self.width, "depth": self.depth, "rectified": self.rectified}

    def _check_size(self, rows: int, columns: int) -> None:
        check_networks(
            lambda key: mlp_autoencoder(
                columns, self.latent_dim, **self._sizes(), mask_input=True, key=key
            ),
            0,
            f"Autoencoder of {columns:,} columns with {self.latent_dim:,} entries of the code and layers "
            f"of width {self.width:,}",
            "Use a smaller 'width' or 'latent_dim', or PCA first.",
        )

    def _learner(self, rows: int, *, linear: bool) -> AbstractAlgorithm:
        objective = Reconstruction(self.corruption, self.penalty)
        if self.learner is not None:
            return self.learner
        if linear:
            return LBFGS(objective, _FLAT)
        return Gradient(
            decaying_adam(self.learning_rate, self.weight_decay),
            objective,
            batch_size=self.batch_size or batch_for(rows),
            patience=self.patience,
            average=_AVERAGE,
        )

    def _learn(self, rows: Rows, key: Array) -> Fit:
        start_key, fit_key = split_key(key)
        linear = self.depth == 0 and self.corruption is None and self.penalty is None and not self.rectified
        # nothing is random in what is linear, and nothing of it is held out
        kind, fraction = (np.float64, 0.0) if linear else (np.float32, self.validation_fraction)
        train, validation = split_rows(rows, fraction, kind)
        start = mlp_autoencoder(
            rows.x.shape[1],
            self.latent_dim,
            **self._sizes(),
            mask_input=has_nan(rows.x),
            dtype=kind,
            key=start_key,
        )
        learner = self._learner(len(rows.x), linear=linear)
        if self.greedy and self.depth > 0:
            start = self._stacked(start, learner, rows, fit_key)
        judged = validation if learner.validates else None
        result = self._run(start, learner, train, rows, fit_key, validation=judged)
        return dataclasses.replace(result, model=cast(result.model, np.float64))

    def _stacked(
        self, whole: AutoencoderModel, learner: AbstractAlgorithm, rows: Rows, key: Array
    ) -> AutoencoderModel:
        """Layers that have been trained one after the other."""
        stages, values, x = [], [], rows.x
        for place in range(self.depth + 1):
            train, validation = split_rows(Rows(x, rows.weight), self.validation_fraction, np.float32)
            found = self._run(
                _stage(whole, place),
                learner,
                train,
                Rows(x, rows.weight),
                key,
                part=f"layer{place}",
                validation=validation if learner.validates else None,
            )
            stages.append(found.model)
            values.append(found.history["objective"][-1])
            x = answers(
                cast(found.model, np.float64), AutoencoderModel.encode, x, block=self._codes_at_once
            )
        self.stages_ = np.array(values)
        return stacked(whole, stages)

    def _remarks(self) -> list[str]:
        free = self.corruption is None and self.penalty is None
        if not free or self.latent_dim < self.n_features_in_:
            return []
        return [
            f"The code has {self.latent_dim} entries for {self.n_features_in_} columns, and neither "
            "corruption nor a penalty keeps it from copying them."
        ]

    def inverse_transform(self, T: Any) -> np.ndarray:
        """The rows of codes `T`, in the units of the data."""
        check_is_fitted(self, "model_")
        T = check_array(T)
        if T.shape[1] != self.latent_dim:
            raise ValueError(
                f"The 'T' of Autoencoder.inverse_transform must have {self.latent_dim} columns. "
                f"Got {T.shape[1]} instead."
            )
        rows = answers(self.model_, AutoencoderModel.decode, T, block=self._codes_at_once)
        return check_numbers(self, "inverse_transform", self.scaling_.invert(rows))

    def evidence(self, X: Any) -> NoReturn:
        """Refuses: an autoencoder has no density."""
        raise ValueError(
            "Autoencoder is no density: it gives no probability of X. Use VAE, or compare rows with their "
            "reconstructions, inverse_transform(transform(X))."
        )

    @property
    def _n_features_out(self) -> int:
        return self.latent_dim
