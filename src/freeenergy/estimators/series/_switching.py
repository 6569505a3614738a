"""Switching linear systems as estimators."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ... import models
from ..._core import AbstractAlgorithm, Categories, Fit, Kind, on_device
from ...distributions import Diagonal
from ...learning import LBFGS, Batch
from ...models import Series, one_series
from ...shell import PredictsProbabilities, Sequences, check_int
from ...shell._completion import AbstractHiddenCause
from ...shell._series import LEAST_VARIANCE
from ...shell._summary import Along
from ._state_space import AbstractStateSpace, apart, per_packed_row, start_system


def _regimes(series: Series, model: models.SwitchingLinearSystem, incomplete: bool) -> Array:
    return jnp.exp(model.smooth(series).log_weight)


def _mixtures(
    series: Series, model: models.SwitchingLinearSystem, incomplete: bool
) -> tuple[Array, Array, Array]:
    log_weight, mean, covariance = model.predicted_mixture(series)
    return jnp.exp(log_weight), mean, jnp.diagonal(covariance, axis1=2, axis2=3)


def _bounded(model: models.SwitchingLinearSystem) -> models.SwitchingLinearSystem:
    """The model with a least variance of what is observed, without which a likelihood has no bound."""
    return eqx.tree_at(
        lambda m: m.systems.emission_noise.variance, model, replace_fn=lambda v: v + LEAST_VARIANCE
    )


def _bounded_objective(model: models.SwitchingLinearSystem, batch: Batch, key: Array) -> Array:
    return batch.mean(-jax.vmap(_bounded(model).estimated_log_prob)(batch.x))


class RegimeCause(AbstractHiddenCause):
    """The regimes of the steps of a series, given which all is Gaussian.

    Attributes:
        model: of rescaled series.
        x: the rescaled series, with NaN.
        shift, scale: the units of the user.
    """

    model: models.SwitchingLinearSystem
    x: Array
    shift: Array
    scale: Array

    def space(self) -> Categories:
        return Categories(len(self.model.initial), (len(self.x),))

    def energy(self, z: Array) -> Array:
        seen = jnp.where(jnp.isnan(self.x), 0.0, jnp.log(self.scale)[None])
        return jnp.sum(seen) - self.model.log_joint(one_series(self.x), z)

    def complete(self, z: Array, *, key: Array) -> Array:
        drawn = self.model.complete_along(one_series(self.x), z, key=key)
        return self.shift[None] + self.scale[None] * drawn


class SwitchingLinearSystem(PredictsProbabilities, AbstractStateSpace):
    """Linear systems that take turns: a hidden Markov chain says which one moves the state at each step.

    Inference is approximate (Kim's filter merges the Gaussians of all pasts into one for each regime), and
    so is the evidence: its kind is `ESTIMATE`.  Fitted by L-BFGS on it.

    Args:
        n_regimes: how many systems there are.
        n_latent: the size of the state.
        max_iter, tol, learner, random_state, verbose, checkpoint: as everywhere.

    Attributes:
        model_: the fitted model, of rescaled series.
        n_inputs_in_, length_, history_, n_iter_, converged_, …: as everywhere.
    """

    model_: models.SwitchingLinearSystem

    def __init__(
        self,
        n_regimes: int = 2,
        n_latent: int = 1,
        *,
        max_iter: int = 100,
        tol: float = 1e-3,
        learner: AbstractAlgorithm | None = None,
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: str | None = None,
    ) -> None:
        self.n_regimes = n_regimes
        self.n_latent = n_latent
        self.max_iter = max_iter
        self.tol = tol
        self.learner = learner
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint

    @property
    def evidence_kind(self) -> Kind:
        return Kind.ESTIMATE

    def _free_parameters(self, n_features: int) -> int:
        regimes = self.n_regimes**2 - 1 + 2 * self.n_regimes * self.n_latent * n_features
        return regimes + 2 * n_features

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_int(self, "n_regimes")
        check_int(self, "n_latent")

    def _learn(self, sequences: Sequences, key: Array) -> Fit:
        own = apart(sequences)
        n, k = self.n_latent, self.n_regimes
        system = start_system(sequences, n, Diagonal(), Diagonal(), key)
        # regimes begin with different speeds and sizes of shocks
        persistence = np.linspace(0.9, 0.3, k) if k > 1 else np.full(1, 0.8)
        arrays, static = eqx.partition(system, eqx.is_array)
        arrays = jax.tree.map(lambda a: on_device(np.broadcast_to(np.asarray(a), (k, *a.shape))), arrays)
        stacked = eqx.combine(arrays, static)
        stacked = eqx.tree_at(
            lambda s: (s.transition, s.noise.variance),
            stacked,
            (
                on_device(persistence[:, None, None] * np.eye(n)),
                on_device((1 - persistence**2)[:, None] * np.ones(n)),
            ),
        )
        stay = 0.9 * np.eye(k) + 0.1 / k
        start = models.SwitchingLinearSystem(
            on_device(np.full(k, 1 / k)), on_device(stay / stay.sum(axis=1, keepdims=True)), stacked
        )
        learner = LBFGS(_bounded_objective, self.tol) if self.learner is None else self.learner
        result = self._run(start, learner, own, sequences, key)
        if self.learner is None:
            result = dataclasses.replace(result, model=_bounded(result.model))
        return per_packed_row(sequences, result, own)

    _predictions: ClassVar[Any] = staticmethod(_mixtures)

    def _completion(self, x: np.ndarray) -> RegimeCause:
        z = self.scaling_.apply(x)
        return RegimeCause(self.model_, on_device(z), *map(on_device, self.scaling_))

    def predict_proba(self, X: Any, *, inputs: Any = None) -> Any:
        """The probability of each regime at each step, given the whole series; approximate."""
        return self._shares("predict_proba", _regimes, X, inputs)

    def _along(self, name: str, shape: tuple[int, ...]) -> Along:
        if not name.startswith("systems."):
            return (None,) * len(shape)
        return None, *self._along_system(name.removeprefix("systems."), shape[1:])

    def states(self, X: Any, *, inputs: Any = None) -> dict[str, np.ndarray]:
        return {"probabilities": np.asarray(self.predict_proba(X, inputs=inputs))}
