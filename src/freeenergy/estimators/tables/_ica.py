"""Independent component analysis."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..._core import (
    AbstractAlgorithm,
    Data,
    Fit,
    Status,
    check_size,
    generator,
    key_bits,
    on_device,
    split_key,
)
from ...distributions import AbstractLocationScale, Full, Gaussian, HyperbolicSecant, StudentT
from ...learning import RelativeNewton, fit
from ...models import FlowWithMissing, independent_components, spread_sources
from ...models import Mixture as MixtureModel
from ...shell import Rows, with_history
from ...shell._answers import answers
from ...shell._capabilities import loadings_to_show
from ...shell._summary import named_parameters
from ._flow import AbstractFlowDensity
from ._gaussian import GaussianDensity

_IMPUTATIONS = 10
# directions with less of the variance of the columns are taken as flat, and given this much
_LEAST_VARIANCE = 1e-6
# many rows begin where this many end
_FIRST_ROWS = 4096
_DEGREES = 5.0


class ICA(AbstractFlowDensity):
    """Independent component analysis:  s = D x + b,  log p(x) = Σ_k log p(s_k) + log |det D|.

    As many sources as columns.  It is a flow of one linear layer, and InfoMax: the density of the
    sources is the slope of the squashing function.  Learned by quasi-Newton steps in the natural
    gradient from a random rotation of the whitened rows.  Directions with less than a millionth of the
    variance of the columns are taken as flat, and given this much.

    Complete rows have exact evidence; that of rows with missing entries is an importance-weighted lower
    bound.  Fitting averages over ten draws of what is missing from a Gaussian.

    Args:
        source: the density of the sources, one of `HyperbolicSecant` (the default), `Laplace`,
            `Logistic` (InfoMax), `StudentT`, `Cauchy`, or a member of one for one or for all sources.
        max_iter, tol: the most iterations, and the largest entry of the gradient at which they stop.
        learner: replaces `learning.RelativeNewton`.
        random_state, verbose: as everywhere.

    Attributes:
        components_: D, a row per source, for rows in the units of the data.
        mixing_: D⁻¹, a column per source, in the units of the data.
        mean_: the row whose sources are all zero, in the units of the data.
        model_: the fitted model, of rescaled rows.
        history_, n_iter_, converged_, scaling_, …: as everywhere.

    >>> rng = np.random.default_rng(0)
    >>> S = rng.laplace(size=(2000, 2))
    >>> model = ICA(random_state=0).fit(S @ np.array([[1.0, 1.0], [1.0, -2.0]]))
    >>> matches = np.abs(np.corrcoef(S.T, model.transform(S @ np.array([[1.0, 1.0], [1.0, -2.0]])).T))
    >>> bool(matches[:2, 2:].max(axis=1).min() > 0.99)
    True
    """

    def __init__(
        self,
        source: Any = HyperbolicSecant,
        *,
        max_iter: int = 500,
        tol: float = 1e-4,
        learner: AbstractAlgorithm | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.source = source
        self.max_iter = max_iter
        self.tol = tol
        self.learner = learner
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self) -> None:
        super()._check_parameters()
        known = isinstance(self.source, type) and issubclass(self.source, AbstractLocationScale)
        if not known and not isinstance(self.source, AbstractLocationScale):
            raise ValueError(
                "The 'source' parameter of ICA must be a density of freeenergy.distributions with location "
                f"and scale, such as Laplace, or a member of one. Got {self.source!r} instead."
            )

    def _sources(self, dim: int) -> AbstractLocationScale:
        zero, one = on_device(np.zeros(dim)), on_device(np.ones(dim))
        if self.source is StudentT:
            return StudentT(zero, one, on_device(np.full(dim, _DEGREES)))
        if isinstance(self.source, type):
            return self.source(zero, one)
        size = self.source.loc.shape
        if size not in ((1,), (dim,)):
            raise ValueError(
                f"The 'source' parameter of ICA must be for 1 or for all {dim} sources. "
                f"Got {size[0] if size else 0} instead."
            )
        return spread_sources(self.source, dim)

    def _check_size(self, rows: int, columns: int) -> None:
        check_size(4 * columns**2, f"ICA of {columns:,} columns", "Use PCA to reduce them first.")

    def _learn(self, rows: Rows, key: Array) -> Fit:
        fill_key, turn_key, fit_key = split_key(key, 3)
        x, weight = _completed(rows, fill_key)
        dim = x.shape[1]
        mean = weight @ x / weight.sum()
        centred = x - mean
        scatter = (centred.T * weight) @ centred / weight.sum()
        values, vectors = np.linalg.eigh(scatter)
        order = np.argsort(-values)
        values, vectors = values[order], vectors[:, order]
        rank = int(np.sum(values > _LEAST_VARIANCE))
        values = np.maximum(values, _LEAST_VARIANCE)
        whitening = vectors.T / np.sqrt(values)[:, None]
        sources = self._sources(dim)
        # (s − loc) / scale: neither the unit of the sources nor where they are changes how they are found
        standard = dataclasses.replace(sources, loc=on_device(np.zeros(dim)), scale=on_device(np.ones(dim)))
        part = _part(standard, slice(0, rank))
        result = self._separate(rows, centred, whitening[:rank], weight, part, turn_key, fit_key)
        layer = result.model.bijection.bijection
        unmixing = np.eye(dim)
        unmixing[:rank, :rank] = layer.matrix
        unmixing = unmixing @ whitening
        # the sign of a source is free: the largest entry of its row is positive
        largest = unmixing[np.arange(dim), np.argmax(np.abs(unmixing), axis=1)]
        sign = np.where(largest < 0, -1.0, 1.0)
        unmixing *= sign[:, None]
        offset = sign * np.append(layer.shift, np.zeros(dim - rank)) - unmixing @ mean
        loc, scale = np.asarray(sources.loc), np.asarray(sources.scale)
        model = independent_components(
            sources, on_device(scale[:, None] * unmixing), on_device(scale * offset + loc)
        )
        # the objective was that of the whitened directions that vary
        gap = 0.5 * np.sum(np.log(values))
        if rank < dim:
            flat = centred @ whitening[rank:].T
            left = _part(standard, slice(rank, dim))
            rest = answers(left, type(left).log_prob, flat)
            gap -= np.average(rest, weights=weight)
        flow = FlowWithMissing(model, _proposal(mean, vectors * np.sqrt(values)))
        return with_history(dataclasses.replace(result, model=flow), offset=-gap)

    def _separate(
        self,
        rows: Rows,
        centred: np.ndarray,
        whitening: np.ndarray,
        weight: np.ndarray,
        sources: AbstractLocationScale,
        turn_key: Array,
        key: Array,
    ) -> Fit:
        """Fits whitened rows, a part of them first where there are many."""
        rank = len(whitening)
        turn = np.linalg.qr(generator(turn_key).normal(size=(rank, rank)))[0]
        model = independent_components(sources, on_device(turn), on_device(np.zeros(rank)))
        if rank == 0:
            return Fit(model, {"objective": np.zeros(0)}, 0, Status.CONVERGED)

        def whitened(n: int, *, spread: bool) -> Data:
            return Data.of(centred[:n], weight[:n], prepare=lambda part: part @ whitening.T, spread=spread)

        if self.learner is None and len(centred) > 8 * _FIRST_ROWS:
            some = whitened(_FIRST_ROWS, spread=False)
            model = fit(model, RelativeNewton(tol=5e-3), some, key=key, max_iter=self.max_iter).model
        learner = RelativeNewton(tol=self.tol) if self.learner is None else self.learner
        data = whitened(len(centred), spread=self.learner is None)
        return self._run(model, learner, data, rows, key)

    def parts(self, X: Any) -> dict[str, np.ndarray]:
        return {"loadings": loadings_to_show(self.mixing_.T, X)}

    def _reported(self) -> tuple[Any, tuple[Array, ...]]:
        return _parameters, (on_device(self.scaling_.shift), on_device(self.scaling_.scale))

    @property
    def components_(self) -> np.ndarray:
        """D, a row per source, for rows in the units of the data."""
        return np.asarray(self.model_.flow.bijection.bijection.matrix) / self.scaling_.scale

    @property
    def mean_(self) -> np.ndarray:
        """The row whose sources are all zero, in the units of the data."""
        layer = self.model_.flow.bijection.bijection
        return self.scaling_.invert(-np.linalg.solve(layer.matrix, layer.shift))

    @property
    def mixing_(self) -> np.ndarray:
        """D⁻¹, a column per source, in the units of the data."""
        return np.linalg.inv(self.components_ * self.scaling_.scale) * self.scaling_.scale[:, None]


def _parameters(model: Any, shift: Array, scale: Array) -> dict[str, Array]:
    """Mean and rows of D in the units of the data, and the laws of the sources."""
    layer, base = model.flow.bijection.bijection, model.flow.base
    mean = shift - scale * jnp.linalg.solve(layer.matrix, layer.shift)
    sources = {f"sources.{name}": value for name, value in named_parameters(base).items()}
    return {"mean": mean, "components": layer.matrix / scale, **sources}


def _part(sources: AbstractLocationScale, which: slice) -> AbstractLocationScale:
    return jax.tree.map(lambda a: a[which], sources)


def _completed(rows: Rows, key: Array) -> tuple[np.ndarray, np.ndarray]:
    """Rows without NaN: each incomplete one several times, as a Gaussian of all would have it."""
    holes = np.isnan(rows.x).any(axis=1)
    if not holes.any():
        return rows.x, rows.weight
    seed = key_bits(key) % 2**31
    cover = GaussianDensity().fit(rows.x, sample_weight=rows.weight)
    drawn = cover.sample(_IMPUTATIONS, random_state=seed, given=rows.x[holes]).reshape(-1, rows.x.shape[1])
    share = np.tile(rows.weight[holes] / _IMPUTATIONS, _IMPUTATIONS)
    return np.concatenate([rows.x[~holes], drawn]), np.concatenate([rows.weight[~holes], share])


def _proposal(mean: np.ndarray, root: np.ndarray) -> MixtureModel:
    """Gaussians of the same centre, one as wide as the rows and others narrower and wider."""
    widths = np.array([0.25, 1.0, 3.0, 9.0])
    covariance = widths[:, None, None] * (root @ root.T)
    stack = Gaussian(on_device(np.tile(mean, (len(widths), 1))), Full(on_device(covariance)))
    return MixtureModel(on_device(np.full(len(widths), 1 / len(widths))), stack)
