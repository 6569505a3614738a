"""The restricted Boltzmann machine as an estimator."""

from __future__ import annotations

import dataclasses
from typing import Any

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
    check_size,
    generator,
    key_of,
    on_device,
    split_key,
    split_key_data,
)
from ...distributions import Bernoulli
from ...learning import AbstractNegativePhase, Contrastive, Gradient, PersistentChains
from ...models import Harmonium, Units
from ...shell import (
    AbstractDensity,
    ColumnRoles,
    Rows,
    Scaling,
    TransformsRows,
    adam,
    cast,
    check_instance,
    check_int,
)
from ...shell._answers import answers, draw_rows, keyed_answers, seeded_answers
from ...shell._completion import AbstractCompletion, RowEnergy
from ...shell._summary import Along
from ...shell._validation import binary_rows

# up to this many units on the smaller side log Z and draws are exact
_EXACT_UNITS = 14
_COMPLETION_SWEEPS = 10


def _minus_free_energy(model: Harmonium, x: Array) -> Array:
    return -model.free_energy(x)


@eqx.filter_jit
def _hidden_distribution(model: Harmonium) -> Array:
    def energy(index: Array) -> Array:
        return model.free_energy_hidden(model.hidden.state(index))

    states = jnp.arange(int(model.hidden.states()))
    energies = jax.lax.map(energy, states, batch_size=1024)
    return jnp.cumsum(jax.nn.softmax(-energies))


def _binary_units(bias: np.ndarray) -> Units:
    family = Bernoulli(on_device(np.full(len(bias), 0.5), np.float32))
    return Units(family, on_device(bias, np.float32))


class RBM(TransformsRows, AbstractDensity):
    """A restricted Boltzmann machine over binary columns: p(x) ∝ exp(−F(x)).

        F(x) = −bᵀx − Σ_j log(1 + exp(c_j + w_jᵀx))

    The posterior of the hidden units is exact, the normaliser Z is not: it is summed when one side has
    at most 14 units, and otherwise estimated by annealed importance sampling with its standard error.

    Args:
        n_components: hidden units.
        threshold: entries above it count as one, the others as zero; None refuses all but zeros and ones.
        phase: where the negative phase comes from: `PersistentChains(…)` (the default),
            `GibbsFromData(k)` for CD-k, `LongChain(…)` or `ExactEnumeration(…)`.
        learning_rate, batch_size, max_iter: of Adam; an iteration is an epoch.
        learner: replaces all of these.
        random_state, verbose, checkpoint: as everywhere.

    Attributes:
        base_rate_: the log-odds of a one in each column, from which annealing starts.
        model_: the fitted `freeenergy.models.Harmonium`.
        history_, n_iter_, converged_, scaling_, …: as everywhere.

    >>> import numpy as np
    >>> X = np.repeat([[0, 0, 1], [1, 1, 0]], 50, axis=0)
    >>> model = RBM(2, random_state=0, max_iter=300, learning_rate=0.05).fit(X)
    >>> bool(model.score([[1, 1, 0]]) > model.score([[1, 0, 0]]))
    True
    """

    def __init__(
        self,
        n_components: int = 64,
        *,
        threshold: float | None = None,
        phase: AbstractNegativePhase | None = None,
        learning_rate: float = 0.005,
        batch_size: int = 64,
        max_iter: int = 50,
        learner: AbstractAlgorithm | None = None,
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: str | None = None,
    ) -> None:
        self.n_components = n_components
        self.threshold = threshold
        self.phase = phase
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.learner = learner
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint

    @property
    def _must_converge(self) -> bool:
        return False

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_int(self, "n_components")
        check_instance(self, "phase", AbstractNegativePhase, optional=True)

    def column_roles(self, n_features: int) -> ColumnRoles:
        return ColumnRoles.counts(n_features)

    def as_modelled(self, X: np.ndarray) -> np.ndarray:
        return binary_rows(self, X, self.threshold)

    def _check_size(self, rows: int, columns: int) -> None:
        # with its gradient and the two moments of Adam
        check_size(
            4 * columns * self.n_components,
            f"RBM of {columns:,} columns and {self.n_components:,} hidden units",
            "Use fewer hidden units.",
        )

    def _scaling(self, X: np.ndarray, weight: np.ndarray | None) -> Scaling:
        return Scaling.identity(X.shape[1])

    def _learn(self, rows: Rows, key: Array) -> Fit:
        self._log_partition = None
        start_key, fit_key = split_key(key)
        dim = rows.x.shape[1]
        data = Data.of(rows.x, rows.weight, dtype=np.float32)
        known = rows.weight[:, None] * ~np.isnan(rows.x)
        # half a count of each value keeps the log-odds of constant columns finite
        share = (np.nansum(rows.x * rows.weight[:, None], axis=0) + 0.5) / (known.sum(axis=0) + 1)
        self.base_rate_ = np.log(share) - np.log1p(-share)
        start = Harmonium(
            _binary_units(self.base_rate_),
            _binary_units(np.zeros(self.n_components)),
            on_device(generator(start_key).normal(0, 0.01, (dim, self.n_components)), np.float32),
        )
        phase = PersistentChains(self.batch_size) if self.phase is None else self.phase
        objective = Contrastive(phase, completion=_COMPLETION_SWEEPS if data.incomplete else 0)
        learner = self.learner or Gradient(adam(self.learning_rate), objective, batch_size=self.batch_size)
        result = self._run(start, learner, data, rows, fit_key)
        # evidence is a difference of large numbers: it is taken in double precision
        return dataclasses.replace(result, model=cast(result.model, np.float64))

    def _exact(self) -> bool:
        return min(self.n_components, self._width) <= _EXACT_UNITS

    def log_partition(self) -> tuple[float, float]:
        """log Z and its standard error, which is zero where it is summed exactly."""
        if self._log_partition is None:
            if self._exact():
                self._log_partition = (float(self.model_.log_partition()), 0.0)
            else:
                annealed = self.model_.log_partition_annealed(
                    base=on_device(self.base_rate_), key=key_of(int(self.seed_))
                ).lower
                self._log_partition = (float(annealed.log_partition), float(annealed.stderr))
        return self._log_partition

    def _along(self, name: str, shape: tuple[int, ...]) -> Along:
        if name in ("visible.bias", "coupling"):
            return self.column_names, *(None,) * (len(shape) - 1)
        return super()._along(name, shape)

    def _evidence(self, z: np.ndarray, seeds: np.ndarray) -> Evidence:
        log_z, log_z_error = self.log_partition()
        holes = np.isnan(z).any(axis=1)
        free, error = np.empty(len(z)), np.zeros(len(z))
        if (~holes).any():
            free[~holes] = answers(self.model_, Harmonium.free_energy, z[~holes])
        if holes.any():
            most = int(np.isnan(z).sum(axis=1).max())
            most = 12 if 8 < most <= 12 else 1 << (most - 1).bit_length()
            free[holes], error[holes] = seeded_answers(
                self.model_,
                Harmonium.marginal_free_energy,
                z[holes],
                seeds[holes],
                self.seed_,
                block=16,
                most_missing=min(most, z.shape[1]),
            )
        stderr = np.hypot(error, log_z_error)
        kind = Kind.ESTIMATE if stderr.any() else Kind.EXACT
        return Evidence(-free - log_z, stderr, kind, shared=log_z_error)

    def _completion(self, x: np.ndarray) -> AbstractCompletion:
        return RowEnergy.of(
            self.model_, _minus_free_energy, self.scaling_, log_partition=self.log_partition()[0]
        )

    def _column_levels(self, n_features: int) -> tuple[int, ...]:
        return (2,) * n_features

    def _draw(self, n: int, *, key: Array) -> np.ndarray:
        if self.n_components <= _EXACT_UNITS:
            cumulative = _hidden_distribution(self.model_)
            return draw_rows(self.model_, n, key, Harmonium.sample_exactly, cumulative=cumulative)
        return draw_rows(self.model_, n, key, Harmonium.sample_by_chain, steps=1000)

    def _fill_mean(self, z: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        return seeded_answers(self.model_, Harmonium.complete_mean, z, seeds, self.seed_, block=256)

    def _fill_sample(self, z: np.ndarray, *, key: Array) -> np.ndarray:
        keys = split_key_data(key, len(z))
        return keyed_answers(self.model_, Harmonium.complete_sample, z, keys, block=256, steps=200)

    def _whole(self, X: Any) -> np.ndarray:
        return self._completed(self._read(X))

    @property
    def _n_features_out(self) -> int:
        return self.n_components
