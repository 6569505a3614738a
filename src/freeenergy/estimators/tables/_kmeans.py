"""k-means: EM at temperature zero."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple, Self

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from sklearn.base import ClusterMixin

from ..._core import (
    AbstractAlgorithm,
    Data,
    Fit,
    has_nan,
    on_device,
    split_key,
    sum_over_blocks,
)
from ...learning import EM, expect_all
from ...models import Clusters
from ...models._clusters import ClusterStatistics
from ...shell import (
    AbstractRowEstimator,
    Predicts,
    Rows,
    Scaling,
    Table,
    Transforms,
    best_of,
    check_instance,
    check_int,
    check_numbers,
    framed,
    with_history,
)
from ...shell._answers import answers, answers_of_data
from ...shell._summary import Along
from ...shell._validation import check_weight
from ._starts import AbstractStart, PlusPlus

# rows from which half the bits save more than a second program costs
_MANY_ROWS = 32_768
_FAR = 1e-2


@eqx.filter_jit
def _in_32_bits(data: Data) -> Data:
    return dataclasses.replace(data, x=data.x.astype(jnp.float32), weight=data.weight.astype(jnp.float32))


@eqx.filter_jit
def _masses(model: Clusters, data: Data) -> Array:
    return expect_all(model, data, jnp.zeros(()))[0].mass


class _Points(NamedTuple):
    """Rows in the units of the user, and the same rescaled, in place."""

    rows: Rows
    data: Data


class _PointsIntake(Table):
    """Rows that are rescaled on their way to where they are learned from."""

    @classmethod
    def arranged(
        cls, owner: KMeans, x: np.ndarray, weight: np.ndarray | None, known: np.ndarray | None
    ) -> Rows:
        # the order of the rows matters only to what is drawn from them
        if isinstance(owner.init, np.ndarray):
            return Rows(x, np.ones(len(x)) if weight is None else weight)
        return super().arranged(owner, x, weight, known)

    @functools.cached_property
    def events(self) -> _Points:  # pyright: ignore[reportIncompatibleVariableOverride]
        assert self.rows is not None
        prepare = self.owner.scaling_.apply
        return _Points(
            self.rows, Data.of(self.rows.x, self.rows.weight, prepare=prepare, spread=self.in_order)
        )

    @property
    def in_order(self) -> bool:
        """Whether the rows are learned in the order in which they were passed."""
        return self.rows is not None and self.rows.x is self.x


class KMeans(Transforms, Predicts, ClusterMixin, AbstractRowEstimator):
    """Clusters around means: min Σ_n min_k ‖x_n − μ_k‖².

    The limit of a mixture of spherical Gaussians as their variance goes to zero: EM with hard
    assignments.  Entries that are NaN are left out of the distances and of the means.

    Args:
        n_clusters: how many clusters.
        n_init: starts; the lowest inertia counts.
        init: a start such as `PlusPlus()` or `RandomRows()`, or an array of centres.
        max_iter: the most iterations.
        tol: stop when inertia per row falls by less than this part of the variance of the data.
        learner: replaces EM at temperature zero.
        random_state: seed.
        verbose: 1 shows progress.
        checkpoint: a file that keeps a long fit.

    Attributes:
        cluster_centers_: the centres, in the units of the data.
        labels_: the cluster of each row of the fit.
        inertia_: the sum of squared distances of the rows to their centres, in squared units of the data.
        model_: the fitted clusters, of rescaled rows.
        history_, n_iter_, converged_, scaling_, …: as everywhere.

    >>> import numpy as np
    >>> model = KMeans(2, random_state=0).fit([[0.0], [1.0], [10.0], [11.0]])
    >>> model.inertia_
    1.0
    """

    intake = _PointsIntake

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        n_init: int = 1,
        init: AbstractStart | np.ndarray | None = None,
        max_iter: int = 300,
        tol: float = 1e-7,
        learner: AbstractAlgorithm | None = None,
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: str | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_init = n_init
        self.init = init
        self.max_iter = max_iter
        self.tol = tol
        self.learner = learner
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_int(self, "n_clusters")
        check_instance(self, "init", AbstractStart, np.ndarray, optional=True)

    def _listed(self) -> dict[str, np.ndarray]:
        return {"cluster_centers": self.cluster_centers_}

    def _along(self, name: str, shape: tuple[int, ...]) -> Along:
        return None, self.column_names

    def _check_size(self, rows: int, columns: int) -> None:
        if rows < self.n_clusters:
            raise ValueError(
                f"The 'n_clusters' parameter of KMeans must be at most the number of rows. "
                f"Got {self.n_clusters} for n_samples={rows}."
            )

    def _scaling(self, X: np.ndarray, weight: np.ndarray | None) -> Scaling:
        return Scaling.standardise(X, weight, common=True)

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Finds the clusters of the rows of `X`."""
        taken = self._fit(X, sample_weight=sample_weight)
        self.labels_, cost = self._nearest(taken.x, taken.events.data if taken.in_order else None)
        weight = check_weight(taken.x, sample_weight)
        self.inertia_ = float(cost.sum() if weight is None else weight @ cost)
        return self

    def _learn(self, points: _Points, key: Array) -> Fit:
        rows, data = points
        # at temperature zero the objective is the mean squared distance in units of the variance
        learner = EM(tol=self.tol, temperature=0.0) if self.learner is None else self.learner
        # many rows are first seen in 32 bits, which takes half the time; the last steps are in 64
        brief = self.learner is None and len(rows.x) >= _MANY_ROWS and self.max_iter > 1
        coarse = _in_32_bits(data.spread()) if brief else None
        power = float(_power(coarse)) if coarse is not None else 0.0
        results, part = [], 0
        for restart in split_key(key, self.n_init):
            start_key, fit_key = split_key(restart)
            start = model = Clusters(self._centres(rows, data, start_key))
            rounds = []
            left, seen = self.max_iter, coarse if _apart(start) else None
            while model is not None and left > 0:
                result = self._run(
                    model if seen is None else Clusters(model.centroids, relative=True),
                    learner,
                    data if seen is None else seen,
                    rows,
                    fit_key,
                    part=part,
                    what=f"part {part}",
                    offset=0.0 if seen is None else -power,
                    max_iter=left if seen is None else left - 1,
                )
                if seen is not None:
                    result = _absolute(result, power)
                rounds.append(result)
                part, left = part + 1, left - result.n_iter
                if result.interrupted:
                    break
                if seen is None:
                    model = _relocate_empty(result, data)
                elif _apart(result.model):
                    model = result.model
                else:
                    # 32 bits do not tell these clusters apart: from the start again
                    model, rounds, left = start, [], self.max_iter
                seen = None
            results.append(_joined(rounds))
            if results[-1].interrupted:
                break
        return best_of(results)

    def _centres(self, rows: Rows, data: Data, key: Array) -> Array:
        if isinstance(self.init, np.ndarray):
            expected = (self.n_clusters, data.x.shape[1])
            if self.init.shape != expected:
                raise ValueError(
                    f"The 'init' parameter of KMeans must have the shape {expected} "
                    f"(n_clusters, n_features). Got {self.init.shape} instead."
                )
            return on_device(self.scaling_.apply(self.init))
        start = PlusPlus() if self.init is None else self.init
        scaled = rows._replace(x=np.asarray(data.x)[: len(rows.x)])
        return on_device(start(scaled, self.n_clusters, key=key))

    def _nearest(self, X: np.ndarray, data: Data | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The clusters of rows and their squared distances, from `data` if those are the rows rescaled.

        The square of a distance may be infinite where the distance is not.
        """
        if data is None:
            labels, cost = answers(
                self.model_, Clusters.nearest, self.scaling_.apply(X), incomplete=has_nan(X)
            )
        else:
            labels, cost = _nearest(self.model_, data)
        with np.errstate(over="ignore"):
            return labels, cost * self.scaling_.scale[0] ** 2

    @framed
    def predict(self, X: Any) -> Any:
        """The number of the nearest centre of each row."""
        return self._nearest(self._read(X).x)[0]

    @framed
    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Fits, and gives the cluster of each row."""
        return self.fit(X, y, sample_weight).labels_

    def transform(self, X: Any) -> np.ndarray:
        """The distance of each row to each centre."""
        distances = answers(self.model_, Clusters.distances, self._read(X).z) * self.scaling_.scale[0]
        return check_numbers(self, "transform", distances)

    def score(self, X: Any, y: Any = None) -> float:
        """Minus the inertia of `X`."""
        return -float(check_numbers(self, "score", self._nearest(self._read(X).x)[1]).sum())

    @property
    def cluster_centers_(self) -> np.ndarray:
        """The centres, in the units of the data."""
        return self.scaling_.invert(np.asarray(self.model_.centroids))

    @property
    def _n_features_out(self) -> int:
        return self.n_clusters


def _nearest(model: Clusters, data: Data) -> tuple[np.ndarray, np.ndarray]:
    return answers_of_data(
        model, Clusters.nearest, data, block=Clusters.rows_at_once, incomplete=data.incomplete
    )


def _apart(model: Clusters) -> bool:
    """Whether centroids, in units of the spread of the rows, differ by much more than 32 bits resolve."""
    centroids = np.asarray(model.centroids)
    gaps = ((centroids[:, None] - centroids[None]) ** 2).sum(axis=2)
    return bool((gaps[~np.eye(len(centroids), dtype=bool)] > _FAR**2).all())


@eqx.filter_jit
def _power(data: Data) -> Array:
    """The mean of ‖x‖²."""

    def block(x: Array, weight: Array) -> Array:
        return jnp.sum(weight @ jnp.where(jnp.isnan(x), 0, x) ** 2).astype(jnp.float64)

    return sum_over_blocks(block, data, block=Clusters.rows_at_once) / data.total.astype(jnp.float64)


def _absolute(result: Fit, power: float) -> Fit:
    """A fit of relative clusters, as if those had not been relative."""
    return with_history(dataclasses.replace(result, model=Clusters(result.model.centroids)), offset=-power)


def _joined(rounds: list[Fit]) -> Fit:
    """Fits that each went on from the former, as one."""
    history = {
        name: np.concatenate([r.history[name] for r in rounds if name in r.history])
        for name in rounds[0].history
    }
    return dataclasses.replace(rounds[-1], history=history, n_iter=sum(r.n_iter for r in rounds))


def _relocate_empty(result: Fit, data: Data) -> Clusters | None:
    """Puts centres without rows on the rows farthest from theirs; None if there are no such centres."""
    model = result.model
    # EM over all rows ends with the statistics of its model
    last = getattr(result.state, "sweep", None)
    mass = last.mass if isinstance(last, ClusterStatistics) else _masses(model, data)
    empty = np.flatnonzero(np.asarray(mass) <= 0)
    if not len(empty):
        return None
    cost = _nearest(model, data)[1]
    cost = cost * np.asarray(data.weight)[: int(data.rows)]
    far = np.argsort(cost)[::-1][: len(empty)]
    far = far[cost[far] > 0]
    if not len(far):
        return None
    centroids = np.array(model.centroids)
    centroids[empty[: len(far)]] = np.nan_to_num(np.asarray(data.x)[far])
    return Clusters(on_device(centroids))
