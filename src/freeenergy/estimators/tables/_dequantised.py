"""A probability mass on whole and rounded numbers from a model of continuous columns."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import ndtri
from sklearn.base import clone

from ..._core import CellError, Evidence, Fit, Kind, Reals, Status, UnitInterval, map_rows, on_device
from ...distributions import AbstractExponentialFamily, cell_kind, log_cells
from ...distributions._cells import Cells
from ...inference import ImportanceEstimate, importance_estimate
from ...models import CellNoise, LearnedNoise
from ...shell import (
    AbstractDensity,
    CodedRows,
    Column,
    ColumnRoles,
    Field,
    Rows,
    Scaling,
    Support,
    check_instance,
    check_int,
    rows_at_once,
)
from ...shell._answers import bound_of, seeded
from ...shell._completion import AbstractHiddenCause, AbstractWholeEnergy
from ...shell._rows import unit_free_hashes
from ...shell._schema import kinds_of
from ._gaussian import GaussianDensity
from ._mixture import Mixture

# noisy versions of a row that was seen very often
_MOST_COPIES = 1000
# noisy versions of the observed entries from which missing ones are filled in
_COMPLETIONS = 32
# numbers that are held in memory at once
_NUMBERS_AT_ONCE = 4_000_000
# rows whose mass is known worse than this, in nats, are drawn this many times more often
_ROUGH, _MORE = 0.5, 8
# the noise of these is independent
_TRAINING, _SCORING, _FILLING, _SCORING_AGAIN = (np.uint64(salt) for salt in (1, 2, 3, 4))


def _mixed(bits: np.ndarray) -> np.ndarray:
    """64 bits that look random, a function of 64 bits one to one."""
    bits = bits ^ (bits >> np.uint64(30))
    bits = bits * np.uint64(0xBF58476D1CE4E5B9)
    bits = bits ^ (bits >> np.uint64(27))
    bits = bits * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def uniform_noise(hashes: np.ndarray, draw: np.ndarray, columns: int) -> np.ndarray:
    """Numbers in [0, 1) of the shape (rows, columns) that depend on the hash of a row and on `draw`."""
    step = np.uint64(0x9E3779B97F4A7C15)
    state = _mixed(hashes + step * draw.astype(np.uint64))
    bits = _mixed(state[:, None] + step * np.arange(1, columns + 1, dtype=np.uint64)[None])
    return (bits >> np.uint64(11)) * 2.0**-53


def _cells_of(
    pair: tuple[Array, Array],
    model: Any,
    width: Array,
    cells: Cells,
    draws: int,
    complete: bool,
    seed: Array,
) -> ImportanceEstimate:
    row, row_seed = pair
    key = seeded(seed, row_seed)
    return importance_estimate(log_cells(model, row, width, cells, draws=draws, complete=complete, key=key))


def _placed(pair: tuple[Array, Array], noise: CellNoise) -> tuple[Array, Array]:
    return noise(*pair)


class CellCause(AbstractHiddenCause):
    """The row before it was rounded down: where it lies in observed cells, and what is missing.

    Attributes:
        density: −log p of a row of the columns that are kept.
        x: these columns, with zero where something is missing.
        origins, steps: of their grids; a step of zero where a column has none.
        last: the largest code of labels, infinite for numbers.
        constants: a row of all columns, with the values of those that are left out.
        cells, missing: which of the kept columns have an observed cell, and which are missing.
        kept: which columns are kept.
    """

    density: AbstractWholeEnergy
    x: Array
    origins: Array
    steps: Array
    last: Array
    constants: Array
    cells: tuple[int, ...] = eqx.field(static=True)
    missing: tuple[int, ...] = eqx.field(static=True)
    kept: tuple[int, ...] = eqx.field(static=True)

    def space(self) -> dict[str, Any]:
        spaces = {"cells": UnitInterval((len(self.cells),)), "missing": Reals((len(self.missing),))}
        return {name: space for name, space in spaces.items() if space.shape != (0,)}

    def _row(self, z: dict[str, Array]) -> Array:
        x, cells, missing = self.x, np.array(self.cells, int), np.array(self.missing, int)
        if "cells" in z:
            x = x.at[cells].add(self.steps[cells] * z["cells"])
        return x.at[missing].set(z["missing"]) if "missing" in z else x

    def energy(self, z: dict[str, Array]) -> Array:
        return self.density(self._row(z)) - jnp.sum(jnp.log(self.steps[np.array(self.cells, int)]))

    def complete(self, z: dict[str, Array], *, key: Array) -> Array:
        x, wide = self._row(z), jnp.where(self.steps > 0, self.steps, 1.0)
        rounded = self.origins + wide * jnp.floor((x - self.origins) / wide)
        rounded = jnp.where(jnp.isinf(self.last), rounded, jnp.clip(rounded, 0.0, self.last))
        return self.constants.at[np.array(self.kept)].set(jnp.where(self.steps > 0, rounded, x))


class Dequantised(AbstractDensity):
    """A density on whole or rounded numbers made from a continuous one: P(x) = ∫_[0,1)ᵈ p(x + s u) sᵈ du.

    The continuous model p is fitted to x + s u with uniform noise u and the step s of each column (one for
    whole numbers).  P is exact where the integral can be had: for independent columns and mixtures of
    such, kernels, and any Gaussian mixture with a single column of this kind.  Where it cannot, it is
    bounded from below by K = `importance_samples` draws,

        log P(x) ≥ E log (1/K) Σ_k w_k,   E w_k = P(x),

    with its Monte Carlo error and its `growth`.  For Gaussians, factor models, mixtures of them and
    variational autoencoders the draws are made inside the cell column by column, given those before
    (`distributions.log_cells`), which is tight; for other models they are uniform in the cell.

    With `noise=LearnedNoise()` a flow is learned together with the law q(u | x) of the noise, which begins
    uniform (variational dequantisation, Ho et al. 2019):

        log P(x) ≥ E_q log (1/K) Σ_k p(x + s u_k) sᵈ / q(u_k | x),     K = 1 in learning.

    Then p need not be flat within a cell, and what it puts at steep places is found.

    Draws are rounded down to the grid.  Only columns of whole or rounded numbers get noise; continuous ones
    are left as they are, so that the evidence is a mass in the former and a density in the latter.  Columns
    that `estimator` itself gives a probability mass need no noise.  A column declared constant is left out
    of the model: its one value has probability one.

    Labels of a mixed table are whole numbers here, in the order of their codes, which may mean nothing;
    draws beyond the first or the last are taken for these.

    The noise of a row depends on its values and on the seed alone.  A row is fitted in one noisy version,
    or as many as its weight says (and at most 1000) with noise of their own, so that weights act as
    repetition and no row is ever judged by its own twin.  Gradient learners draw the noise anew for every
    batch.

    Args:
        estimator: the density of the noisy rows; `GaussianDensity()` by default.
        support: which columns hold whole or rounded numbers and which are constant; None to recognise
            whole and rounded numbers in the rows that are fitted.
        noise: None for uniform noise, or `models.LearnedNoise()` where `estimator` is a `NormalizingFlow`.
        importance_samples: K.  An estimator with importance samples of its own shares them over the
            K noisy rows, where these are uniform.
        random_state: seed of the noise, and of `estimator` if it has none.

    Attributes:
        estimator_: the fitted copy of `estimator`.
        support_: what the columns hold.
        kept_, constants_: which columns vary, and the values of those that do not.
        noisy_, steps_, noise_scaling_: which columns are on a grid, its steps, and the units of the noise.
        noise_: the learned law of the noise, for rows in the units of `estimator_.model_`; None if uniform.
        model_: the fitted model of `estimator_`.
        history_, n_iter_, converged_, scaling_, …: as everywhere.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).poisson(20, size=(300, 1))
    >>> model = Dequantised(random_state=0).fit(X)
    >>> model.evidence([[20.0]]).kind.value
    'exact'
    >>> round(float(np.exp(model.score_samples([[20.0]]))[0]), 2)
    0.09
    """

    def __init__(
        self,
        estimator: AbstractDensity | None = None,
        support: Support | None = None,
        *,
        noise: LearnedNoise | None = None,
        importance_samples: int = 64,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.support = support
        self.noise = noise
        self.importance_samples = importance_samples
        self.random_state = random_state

    _model_is_of_rows = False

    @property
    def _must_converge(self) -> bool:
        return False  # the inner estimator says it

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_instance(self, "estimator", AbstractDensity, optional=True)
        check_instance(self, "support", Support, optional=True)
        check_instance(self, "noise", LearnedNoise, optional=True)
        inner = self.estimator
        if self.noise is not None and not (inner is not None and inner._learns_noise):
            raise ValueError(
                "The 'estimator' parameter of Dequantised must be a NormalizingFlow where 'noise' is "
                f"given, which is learned with it. Got {inner!r} instead."
            )
        if self.noise is not None and inner is not None and inner.learner is not None:
            raise ValueError(
                "The 'learner' parameter of the estimator in Dequantised must be None where 'noise' is "
                f"given. Got {inner.learner!r} instead."
            )
        check_int(self, "importance_samples", 2)

    def _scaling(self, X: np.ndarray, weight: np.ndarray | None) -> Scaling:
        return Scaling.identity(X.shape[1])

    def column_roles(self, n_features: int) -> ColumnRoles:
        if "kept_" not in vars(self):
            inner: Any = GaussianDensity() if self.estimator is None else self.estimator
            roles = inner.column_roles(n_features)
            return roles if self.support is None else roles._replace(mass=~self.support.continuous)
        inside = self.estimator_.column_roles(int(self.kept_.sum()))
        mass = self._of_kept(inside.mass) if self.support is None else ~self.support.continuous
        labels = self._of_kept(inside.labels)
        schema = kinds_of(self)
        if schema is not None:
            # a mean of codes is no label
            labels |= np.array([field.kind is Column.CATEGORY for field in schema.modelled])
        # columns with a grid are on it already
        return ColumnRoles(mass, labels, self._of_kept(inside.whole))

    def takes(self, field: Field) -> bool:
        return True

    @property
    def model_in_units(self) -> Any:
        """The density of the noisy rows, of the columns that are kept, in the units of the data."""
        return self.estimator_.model_in_units

    @property
    def _event_shape(self) -> tuple[int, ...]:
        return (int(self.kept_.sum()),)

    def latent(self, X: Any) -> np.ndarray | None:
        return self.estimator_.latent(self.centre(X))

    def parts(self, X: Any) -> dict[str, np.ndarray]:
        # of the columns that the model inside has not, loadings and spread are zero
        found = self.estimator_.parts(X[:, self.kept_])
        return {name: self._widened(values) for name, values in found.items()}

    def _widened(self, values: np.ndarray) -> np.ndarray:
        if values.ndim == 1 or self.kept_.all():
            return values
        wide = np.zeros((len(values), len(self.kept_)))
        wide[:, self.kept_] = values
        return wide

    def _of_kept(self, columns: np.ndarray) -> np.ndarray:
        """Which columns of X are those kept ones that a mask of these says."""
        found = np.zeros(len(self.kept_), bool)
        found[self.kept_] = columns
        return found

    def _learn(self, rows: Rows, key: Array) -> Fit:
        schema = kinds_of(self)
        if self.support is not None:
            support = self.support
        elif schema is not None:
            support = schema.support
        else:
            support = Support.recognise(rows.x, rows.weight, constants=False)
        if len(support) != rows.x.shape[1]:
            raise ValueError(
                f"The 'support' parameter of Dequantised must have a kind for each of the "
                f"{rows.x.shape[1]} columns. Got {len(support)} instead."
            )
        inner: Any = GaussianDensity() if self.estimator is None else clone(self.estimator)
        keep = ~support.constant
        if isinstance(inner, Mixture) and not isinstance(inner.family, type):
            family = inner.family
            # a family of fixed size wants all its columns
            sized = isinstance(family, AbstractExponentialFamily) and family.dim == keep.sum()
            keep = keep if sized else np.ones(len(support), bool)
        if not keep.any():
            raise ValueError("Every column is declared constant. Declare or add one that varies.")
        self.support_, self.kept_ = support, keep
        inside = None if schema is None else schema.part(keep).coded()
        roles = inner.column_roles(int(keep.sum())) if inside is None else inner.roles_for(inside)
        self.noisy_ = support.cells[keep] & ~roles.mass
        grids = [support.grid(int(column)) for column in np.flatnonzero(keep)]
        self.steps_ = np.array([grid.step if grid and n else 0.0 for grid, n in zip(grids, self.noisy_)])
        self.constants_ = self._constants(rows.x)
        kept = Rows(self._on_grid(rows.x[:, keep]), rows.weight)
        self.noise_scaling_ = Scaling.standardise(kept.x, kept.weight)
        if inner.get_params().get("random_state", 0) is None:
            inner.set_params(random_state=int(self.seed_) % 2**31)
        noisy = kept
        if self.noisy_.any():
            noisy = self._copies(kept)
            origins = np.array([grid.origin if grid else 0.0 for grid in grids])
            # for the time of the fit; no part of the estimator
            inner._cells, inner._noise_in_cells = (origins, self.steps_), self.noise
        known = noisy.x if inside is None else CodedRows(noisy.x, inside.continuous(self.noisy_))
        try:
            self.estimator_ = inner.fit(known, sample_weight=noisy.weight)
        except CellError as error:
            raise error.moved(int(np.flatnonzero(keep)[error.column])) from None
        finally:
            for name in ("_cells", "_noise_in_cells"):
                vars(inner).pop(name, None)
        self.noise_ = vars(inner).pop("_cell_noise", None)
        status = Status.CONVERGED if inner.converged_ else Status.LIMIT
        return Fit(inner.model_, inner.history_, inner.n_iter_, status)

    def _constants(self, X: np.ndarray) -> np.ndarray:
        """The value of each column that is left out; NaN for the others."""
        values = np.full(X.shape[1], np.nan)
        for column in np.flatnonzero(~self.kept_):
            seen = np.unique(X[:, column][~np.isnan(X[:, column])])
            if len(seen) > 1:
                raise ValueError(
                    f"Column {column} is declared constant but has the values {seen[0]:g} and {seen[1]:g}."
                )
            values[column] = seen[0]
        return values

    def _grids(self) -> Iterator[tuple[int, int, Any]]:
        """The place of each noisy column among those that are kept, its number and its grid."""
        for place in np.flatnonzero(self.noisy_):
            column = int(np.flatnonzero(self.kept_)[place])
            yield int(place), column, self.support_.grid(column)

    def _on_grid(self, x: np.ndarray) -> np.ndarray:
        """The kept columns, those with a grid to all digits of it; refuses what is not on it."""
        x = x.copy()
        for place, column, grid in self._grids():
            off = ~grid.holds(x[:, place])
            if off.any():
                expected = "whole numbers" if grid.step == 1 else f"multiples of {grid.step:g}"
                expected += f" from {grid.origin:g} on" if grid.origin else ""
                problem = f"A column of {expected} must hold such everywhere."
                raise CellError(problem, float(x[np.argmax(off), place]), column)
            x[:, place] = grid.snap(x[:, place])
        return x

    def _hashes(self, x: np.ndarray, salt: np.uint64) -> np.ndarray:
        seeds = np.array([np.uint64(self.seed_) << np.uint64(8) | salt])
        return unit_free_hashes(x, self.noise_scaling_) ^ _mixed(seeds)

    def _noised(self, x: np.ndarray, hashes: np.ndarray, draw: np.ndarray) -> np.ndarray:
        x = x.copy()
        noise = uniform_noise(hashes, draw, int(self.noisy_.sum()))
        x[:, self.noisy_] += self.steps_[self.noisy_][None] * noise
        return x

    def _copies(self, rows: Rows) -> Rows:
        """A noisy version of each row, or several that share the weight of a row seen several times."""
        count = np.clip(np.ceil(rows.weight), 1, _MOST_COPIES).astype(int)
        which = np.repeat(np.arange(len(count)), count)
        number = np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count)
        noisy = self._noised(rows.x[which], self._hashes(rows.x, _TRAINING)[which], number)
        return Rows(noisy, (rows.weight / count)[which])

    def _repeated(
        self, x: np.ndarray, hashes: np.ndarray, draws: int
    ) -> Iterator[tuple[slice, np.ndarray, Any]]:
        """Slices of rows, `draws` noisy versions of each row one after another, and their log q."""
        step = max(_NUMBERS_AT_ONCE // (draws * x.shape[1]), 1)
        for start in range(0, len(x), step):
            part = slice(start, min(start + step, len(x)))
            rows, seeds = (np.repeat(a[part], draws, axis=0) for a in (x, hashes))
            number = np.tile(np.arange(draws), part.stop - start)
            if self.noise_ is None:
                yield part, self._noised(rows, seeds, number), 0.0
            else:
                noisy, log_q = self._placed(rows, uniform_noise(seeds, number, int(self.noisy_.sum())))
                yield part, noisy, log_q.reshape(-1, draws)

    def _placed(self, x: np.ndarray, uniform: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows with the learned noise that uniform numbers make, and log q of it."""
        normal = ndtri(np.maximum(uniform, 2.0**-54))
        seen = self.estimator_.scaling_.apply(x + 0.5 * self.steps_[None])
        u, log_q = map_rows(_placed, (seen, normal), self.noise_)
        x = x.copy()
        x[:, self.noisy_] += self.steps_[self.noisy_][None] * u
        return x, log_q

    def _evidence(self, z: np.ndarray, seeds: np.ndarray) -> Evidence:
        x = self._on_grid(z[:, self.kept_])
        # the value of a constant column is certain, any other is impossible
        left_out = z[:, ~self.kept_]
        wrong = ~np.isnan(left_out) & (left_out != self.constants_[~self.kept_][None])
        impossible = np.where(wrong.any(axis=1), -np.inf, 0.0)
        cells = np.asarray(~np.isnan(x[:, self.noisy_]).all(axis=1))
        if not cells.any():
            plain = self.estimator_.evidence(x)
        elif cells.all():
            plain = self._cell_evidence(x)
        else:
            parts = self.estimator_.evidence(x[~cells]), self._cell_evidence(x[cells])
            plain = _joined([(~cells, parts[0]), (cells, parts[1])])
        return dataclasses.replace(plain, nats=plain.nats + impossible)

    def _completion(self, x: np.ndarray) -> CellCause | None:
        inner = self._on_grid(x[None, self.kept_])[0]
        holes = np.isnan(inner)
        density = self.estimator_._completion(inner)
        # the model inside has to know its energy, and numbers where something is missing
        mass = self.estimator_.column_roles(len(inner)).mass
        if not isinstance(density, AbstractWholeEnergy) or (mass & holes).any():
            return None
        if not (holes | self.noisy_).any():
            return None  # only constants are missing
        schema = kinds_of(self)
        origins, last = np.zeros(len(inner)), np.full(len(inner), np.inf)
        for place, column, grid in self._grids():
            origins[place] = grid.origin
            if schema is not None and schema.modelled[column].categories:
                last[place] = len(schema.modelled[column].categories) - 1
        return CellCause(
            density,
            on_device(np.where(holes, 0.0, inner)),
            on_device(origins),
            on_device(np.where(self.noisy_, self.steps_, 0.0)),
            on_device(last),
            on_device(self.constants_),
            tuple(np.flatnonzero(self.noisy_ & ~holes).tolist()),
            tuple(np.flatnonzero(holes).tolist()),
            tuple(np.flatnonzero(self.kept_).tolist()),
        )

    def _cell_evidence(self, x: np.ndarray) -> Evidence:
        """The evidence of rows with an observed entry in a noisy column."""
        kind = cell_kind(self.estimator_.model_, tuple(self.noisy_.tolist()))
        return self._noisy_evidence(x) if kind is None else self._cell_masses(x, kind)

    def _cell_masses(self, x: np.ndarray, kind: Kind) -> Evidence:
        """By the model's own masses of cells."""
        if kind is Kind.EXACT:
            nats = np.asarray(self._cell_estimate(x, 1, _SCORING).log_mean)
            return Evidence(nats, np.zeros(len(x)), kind)
        bound = bound_of(self._cell_estimate(x, self.importance_samples, _SCORING), np.ones(len(x), bool))
        rough = bound.stderr > _ROUGH
        if not rough.any():
            return bound
        # new draws, not more of those that chose these rows
        more = self._cell_estimate(x[rough], _MORE * self.importance_samples, _SCORING_AGAIN)
        return _joined(
            [(~rough, _chosen(bound, ~rough)), (rough, bound_of(more, np.ones(rough.sum(), bool)))]
        )

    def _cell_estimate(self, x: np.ndarray, draws: int, salt: np.uint64) -> ImportanceEstimate:
        """What `draws` estimates of each mass say; rows with and without NaN take programs of their own."""
        scaling, model = self.estimator_.scaling_, self.estimator_.model_
        seeds = (self._hashes(x, salt) >> np.uint64(32)).astype(np.uint32)
        width, cells = self.steps_ / scaling.scale, tuple(self.noisy_.tolist())
        block = rows_at_once(draws, x.shape[1] * _size(model))
        holes = np.isnan(x).any(axis=1)
        parts, order = [], []
        for chosen, complete in ((np.flatnonzero(~holes), True), (np.flatnonzero(holes), False)):
            if len(chosen):
                rows = scaling.apply(x[chosen]), seeds[chosen]
                options = (model, width, cells, draws, complete, self.seed_)
                parts.append(map_rows(_cells_of, rows, *options, block=block))
                order.append(chosen)
        back = np.argsort(np.concatenate(order))
        found = jax.tree.map(lambda *values: np.concatenate(values)[back], *parts)
        # cells have no unit, the other columns have that of the data
        unit = scaling.log_det(np.where(self.noisy_[None], np.nan, x))
        return found._replace(log_mean=found.log_mean + unit)

    def _noisy_evidence(self, x: np.ndarray) -> Evidence:
        """By the density at points of the cell, uniform ones or those of the learned noise."""
        scorer, shared, kind, found = self._scorer(), 0.0, Kind.LOWER, []
        unbiased = True
        for _, rows, log_q in self._repeated(x, self._hashes(x, _SCORING), self.importance_samples):
            inner = scorer.evidence(rows)
            shared, kind = max(shared, inner.shared), kind.combine(inner.kind)
            # the mean of estimates of p is one of P, but that of bounds of another origin is not
            unbiased &= inner.kind is Kind.EXACT or inner.growth is not None
            nats = inner.nats.reshape(-1, self.importance_samples) - log_q
            found.append(map_rows(importance_estimate, nats))
        estimate = jax.tree.map(lambda *parts: np.concatenate(parts), *found)
        volume = ~np.isnan(x[:, self.noisy_]) @ np.log(self.steps_[self.noisy_])
        bound = bound_of(estimate, np.ones(len(x), bool))
        stderr = np.hypot(bound.stderr, shared)
        growth = bound.growth if unbiased else None
        return Evidence(bound.nats + volume, stderr, kind, shared, growth)

    def _scorer(self) -> Any:
        """The fitted estimator, its own importance samples shared out."""
        own = self.estimator_.get_params().get("importance_samples")
        if own is None:
            return self.estimator_
        share = max(own // self.importance_samples, 4)
        return copy.copy(self.estimator_).set_params(importance_samples=share)

    def _user_columns(self, inner: np.ndarray) -> np.ndarray:
        out = np.tile(self.constants_, (len(inner), 1))
        out[:, self.kept_] = inner
        return out

    def _rounded(self, inner: np.ndarray, shift: float) -> np.ndarray:
        """The values of the grid nearest to `inner`, moved by `shift` steps first."""
        inner = inner.copy()
        for place, _, grid in self._grids():
            inner[:, place] = grid.snap(inner[:, place] + shift * grid.step)
        return inner

    def _draw(self, n: int, *, key: Array) -> np.ndarray:
        draws = self.estimator_.sample(n, random_state=_seed(key))
        return self._user_columns(self._rounded(draws, -0.5))

    def _fill_mean(self, z: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        """The value nearest to E[x | observed], which is E[y] less half a step, by weights over noise."""
        x = self._on_grid(z[:, self.kept_])
        out = np.empty_like(x)
        for part, rows, log_q in self._repeated(x, self._hashes(x, _FILLING), _COMPLETIONS):
            weight = _softmax(self._scorer().evidence(rows).nats.reshape(-1, _COMPLETIONS) - log_q)
            filled = self.estimator_.impute(rows).reshape(-1, _COMPLETIONS, x.shape[1])
            out[part] = np.einsum("nk,nkd->nd", weight, filled)
        return self._user_columns(self._rounded(out, -0.5))

    def _fill_sample(self, z: np.ndarray, *, key: Array) -> np.ndarray:
        x = self._on_grid(z[:, self.kept_])
        choose, draw = jax.random.split(key)
        rng = np.random.default_rng(_seed(choose))
        # equal rows get different noise here
        hashes = self._hashes(x, _FILLING) + rng.integers(2**63, size=len(x), dtype=np.uint64)
        chosen = np.empty_like(x)
        for part, rows, log_q in self._repeated(x, hashes, _COMPLETIONS):
            nats = self._scorer().evidence(rows).nats.reshape(-1, _COMPLETIONS) - log_q
            best = np.argmax(nats + rng.gumbel(size=nats.shape), axis=1)
            chosen[part] = rows.reshape(-1, _COMPLETIONS, x.shape[1])[np.arange(len(best)), best]
        filled = self.estimator_.sample(1, random_state=_seed(draw), given=chosen)
        return self._user_columns(self._rounded(filled, -0.5))

    def centre(self, X: Any) -> np.ndarray:
        """The rows as `estimator_` sees them, whole and rounded numbers at the middle of their cells.

        `model.estimator_.transform(model.centre(X))` is the hidden part where there is one.
        """
        x = self._on_grid(self._read(X).x[:, self.kept_])
        return x + 0.5 * self.steps_[None]


def _seed(key: Array) -> int:
    return int(jax.random.bits(key, dtype="uint32")) % 2**31


def _softmax(nats: np.ndarray) -> np.ndarray:
    weight = np.exp(nats - nats.max(axis=1, keepdims=True))
    return weight / weight.sum(axis=1, keepdims=True)


def _size(model: Any) -> int:
    """How many components are looked at together."""
    weights = getattr(model, "weights", None)
    return 1 if weights is None else min(len(weights), 256)


def _joined(parts: list[tuple[np.ndarray, Evidence]]) -> Evidence:
    """The evidence of rows from that of parts of them, which masks tell."""
    rows = len(parts[0][0])
    nats, stderr, growth = np.empty(rows), np.empty(rows), np.zeros((rows, 2))
    for chosen, part in parts:
        nats[chosen], stderr[chosen] = part.nats, part.stderr
        if part.growth is not None:
            growth[chosen] = part.growth
    kind = functools.reduce(Kind.combine, (part.kind for _, part in parts))
    known = all(part.kind is Kind.EXACT or part.growth is not None for _, part in parts)
    shared = max(part.shared for _, part in parts)
    return Evidence(nats, stderr, kind, shared, growth if known and kind is Kind.LOWER else None)


def _chosen(evidence: Evidence, rows: np.ndarray) -> Evidence:
    growth = None if evidence.growth is None else evidence.growth[rows]
    return dataclasses.replace(
        evidence, nats=evidence.nats[rows], stderr=evidence.stderr[rows], growth=growth
    )
