"""Smoothing by a kernel: the law of an answer is a mixture of those of similar rows."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
from jax import Array
from scipy import optimize
from scipy.special import log_ndtr

from ..._core import Fit, Status, check_size, generator, on_device
from ...evaluation import AbstractLaws
from ...evaluation._laws import quantile_between
from ...kernels import RBF, AbstractKernel
from ...models import KernelSmoother
from ...shell import AbstractDensity, Rows, check_real, framed_ends
from ...shell._summary import named_parameters
from ._conformal import calibrated_interval, least_levels
from ._kernelled import AbstractKernelRegressor
from ._told import TellsInUnits, Told

# rows whose answers judge a bandwidth
_JUDGES = 1000
# of so few rows each part is left out of a search of its own, no finer than intervals need
_FEW = 300
_FOLDS, _FOLD_ACCURACY = 10, 1e-2
_LOG_2PI = float(np.log(2 * np.pi))


def _log_mean(logs: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """log Σ share · exp(log) along the last axis."""
    # a search asks some thousand times, and for arrays of this size scipy's takes three times as long
    with np.errstate(divide="ignore"):
        terms = logs + np.log(shares)
        most = terms.max(axis=-1, keepdims=True)
        most = np.where(np.isneginf(most), 0.0, most)
        return np.asarray(np.log(np.exp(terms - most).sum(axis=-1)) + most[..., 0])


@dataclasses.dataclass(frozen=True)
class SmoothedLaws(AbstractLaws):
    """Mixtures of one set of normal components, with shares of their own for each row.

    Attributes:
        shares: (rows, components), of sum one.
        centres: (components, outputs).
        widths: a number per output.
        answer_shape: that of an answer.
    """

    shares: np.ndarray
    centres: np.ndarray
    widths: np.ndarray
    answer_shape: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self.shares), *self.answer_shape

    @property
    def discrete(self) -> bool:
        return False

    def _flat(self, y: Any) -> np.ndarray:
        return np.broadcast_to(np.asarray(y, float), self.shape).reshape(len(self.shares), -1)

    def log_prob(self, y: Any) -> np.ndarray:
        logs = np.zeros_like(self.shares)
        for answer, centre, width in zip(self._flat(y).T, self.centres.T, self.widths, strict=True):
            known = ~np.isnan(answer)
            gap = (answer[known, None] - centre) / width
            logs[known] -= 0.5 * gap**2 + 0.5 * _LOG_2PI + np.log(width)
        return _log_mean(logs, self.shares)

    def _tail(self, y: Any, sign: float) -> np.ndarray:
        found = [
            _log_mean(log_ndtr(sign * (answer[:, None] - centre) / width), self.shares)
            for answer, centre, width in zip(self._flat(y).T, self.centres.T, self.widths, strict=True)
        ]
        return np.minimum(np.stack(found, axis=1), 0.0).reshape(self.shape)

    def log_cdf(self, y: Any) -> np.ndarray:
        return self._tail(y, 1.0)

    def log_sf(self, y: Any) -> np.ndarray:
        return self._tail(y, -1.0)

    def mean(self) -> np.ndarray:
        return (self.shares @ self.centres).reshape(self.shape)

    def variance(self) -> np.ndarray:
        # about the mean of all, so that less is lost in the difference
        gap = self.centres - self.centres.mean(axis=0)
        inner = self.shares @ gap**2 - (self.shares @ gap) ** 2
        return (np.maximum(inner, 0.0) + self.widths**2).reshape(self.shape)

    def quantile(self, p: Any) -> np.ndarray:
        # within reach of every component
        reach = 40.0 * self.widths
        shape = len(self.shares), len(self.widths)
        low = np.broadcast_to(self.centres.min(axis=0) - reach, shape).reshape(self.shape)
        high = np.broadcast_to(self.centres.max(axis=0) + reach, shape).reshape(self.shape)
        return quantile_between(self, p, low, high)

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        cumulative = np.cumsum(self.shares, axis=1)
        level = rng.random((n, len(self.shares), 1)) * cumulative[:, -1:]
        chosen = np.argmax(cumulative > level, axis=2)
        drawn = self.centres[chosen] + self.widths * rng.standard_normal((*chosen.shape, len(self.widths)))
        return drawn.reshape(n, *self.shape)

    def take(self, rows: np.ndarray) -> SmoothedLaws:
        return dataclasses.replace(self, shares=self.shares[rows])


class NadarayaWatson(TellsInUnits, AbstractKernelRegressor):
    """f(x) = Σ w_i(x) y_i, w_i(x) ∝ k(x/h, x_i/h): the average of the answers to similar rows.

    The law of an answer is the mixture Σ w_i(x) N(y; y_i, s²).  The bandwidth h and the width s maximise
    the likelihood of each answer given the other rows.  Attention is the same with learned rows.

    Args:
        kernel: k, of `freeenergy.kernels`, without negative values; None for a Gaussian kernel.
        bandwidth: h; None for one that is learned.
        standardise: whether the kernel sees columns and answers in units of their standard deviations; else
            as they are.
        max_iter: the most steps of the search.
        inputs: the density of rows and answers from which missing entries of rows are drawn; None for one
            Gaussian.  In fit they are drawn once.

    Attributes:
        bandwidth_: h, in the units that the kernel sees; `summary` has that of each column.
        width_: s of each output, in the units of the data.
        log_likelihood_: of the answers, each given all other rows, in the units of the data.
        loo_levels_, loo_weight_: the least level whose interval holds an answer, by its law given all other
            rows, and the weight of its row; of the rows that judge.  Bandwidth and width are those that
            nine tenths of the rows find without it; of more than 300 rows, where that hardly matters,
            those of all.
        columns_, inputs_, answer_shape_, answer_names_, answer_scaling_: as of every regressor.
        model_: a `freeenergy.models.KernelSmoother` of rescaled rows and answers.
        history_, n_iter_, converged_, scaling_, …: as everywhere.

    Where no row is within reach of the kernel, the answer is that of the nearest.  With more than 1,000
    rows, the answers of 1,000 of them judge the bandwidth.

    >>> x = np.linspace(0.0, 6.0, 60)[:, None]
    >>> model = NadarayaWatson().fit(x, np.sin(x[:, 0]))
    >>> bool(np.abs(model.predict([[1.0], [4.0]]) - np.sin([1.0, 4.0])).max() < 0.1)
    True
    """

    def __init__(
        self,
        kernel: AbstractKernel | None = None,
        *,
        bandwidth: float | None = None,
        standardise: bool = True,
        max_iter: int = 200,
        inputs: AbstractDensity | None = None,
    ) -> None:
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.standardise = standardise
        self.max_iter = max_iter
        self.inputs = inputs

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_real(self, "bandwidth", closed=False, optional=True)

    def _start_kernel(self, columns: int) -> AbstractKernel:
        return RBF() if self.kernel is None else self.kernel

    def _learn(self, rows: Rows, key: Array) -> Fit:
        rows, _ = self._merged(rows)
        y, kernel = rows.known, self._start_kernel(rows.x.shape[1])
        assert y is not None
        first = len(rows.x) ** (-1 / (rows.x.shape[1] + 4)) if self.bandwidth is None else self.bandwidth
        judges = np.unique(np.linspace(0, len(rows.x) - 1, min(len(rows.x), _JUDGES)).astype(int))
        # all outputs have one width in units of their spread, which is one where they are standardised
        spread = np.ones(y.shape[1]) if self.standardise else np.maximum(y.std(axis=0), 1e-300)
        gaps = (((y[judges, None] - y[None]) / spread) ** 2).sum(axis=2)
        share = rows.weight[judges] / rows.weight[judges].sum()
        path = list[float]()

        def shares_of(logs: np.ndarray, x: np.ndarray, weight: np.ndarray, own: np.ndarray) -> np.ndarray:
            bandwidth = first if self.bandwidth is not None else float(np.exp(logs[1]))
            return _shares(self, kernel, bandwidth, x[own], x, weight, leave=own)

        def energy(logs: np.ndarray, shares: np.ndarray, gaps: np.ndarray, share: np.ndarray) -> float:
            terms = _log_mean(-0.5 * gaps / np.exp(2 * logs[0]), shares)
            return y.shape[1] * (logs[0] + 0.5 * _LOG_2PI) - float(share @ terms)

        def loss(logs: np.ndarray) -> float:
            value = energy(logs, shares_of(logs, rows.x, rows.weight, judges), gaps, share)
            path.append(min(value, path[-1]) if path else value)
            return value

        def without(fold: np.ndarray) -> np.ndarray:
            """What other rows than those of a fold find, of rows all of which judge."""
            x, weight, own = rows.x[~fold], rows.weight[~fold], np.arange((~fold).sum())
            inner, part = gaps[np.ix_(~fold, ~fold)], weight / weight.sum()
            return optimize.minimize(
                lambda logs: energy(logs, shares_of(logs, x, weight, own), inner, part),
                found,
                method="Nelder-Mead",
                bounds=limits,
                options={"maxiter": self.max_iter, "xatol": _FOLD_ACCURACY, "fatol": _FOLD_ACCURACY**2},
            ).x

        alone = len(rows.x) == 1
        start = np.log([0.3, first])[: 1 if self.bandwidth is not None else 2]
        limits = [(-12.0, 5.0), (np.log(first) - 12, np.log(first) + 12)][: len(start)]
        if alone:
            # nothing is left to judge by
            found, status = start, Status.CONVERGED
        else:
            result = optimize.minimize(
                loss,
                start,
                method="Nelder-Mead",
                bounds=limits,
                options={"maxiter": self.max_iter, "xatol": 1e-4, "fatol": 1e-8},
            )
            found, status = result.x, Status.CONVERGED if result.success else Status.LIMIT
        self.bandwidth_ = float(np.exp(found[1])) if self.bandwidth is None else float(self.bandwidth)
        width = np.exp(found[0]) * spread
        self.width_ = width * self.answer_scaling_.scale
        levels, self.loo_weight_ = np.empty((0, y.shape[1])), rows.weight[judges][:0]
        if not alone:
            levels, self.loo_weight_ = np.empty((len(judges), y.shape[1])), rows.weight[judges]
            # of three rows two are left; of many the bandwidth is nearly the same without some
            several = 2 < len(rows.x) <= _FEW
            fold = generator(key).permutation(len(judges)) % (_FOLDS if several else 1)
            for number in np.unique(fold):
                own = fold == number
                logs = without(own) if several else found
                left = shares_of(logs, rows.x, rows.weight, judges[own])
                others = SmoothedLaws(left, y, np.exp(logs[0]) * spread, y.shape[1:])
                levels[own] = least_levels(others, y[judges[own]])
        self.loo_levels_ = self._shaped(levels)
        units = float(np.log(self.width_ / np.exp(found[0])).sum())
        self.log_likelihood_ = -rows.weight.sum() * (path[-1] + units) if path else np.nan
        arrays = self.bandwidth_, width, rows.x, y, rows.weight
        model = KernelSmoother(jax.tree.map(on_device, kernel), *map(on_device, arrays))
        return Fit(model, {"objective": np.array(path) + units}, max(len(path), 1), status)

    # they hold what they say of answers that were left out
    intervals_of_law = False

    @framed_ends
    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[Any, Any]:
        """Both ends of the interval that holds each answer with probability `level`, by itself.

        The law is wider than that of the answers, by the width of the kernel.  The intervals are those
        quantiles of it that held `level` of the answers of the fit, each left out of its own law and, of
        up to 300 rows, of the search for the bandwidth.
        """
        return calibrated_interval(self.predict_density(X), level, self.loo_levels_, self.loo_weight_)

    def _told(self) -> dict[str, Told]:
        found = {
            f"kernel.{name}": Told(np.asarray(value), (None,) * np.ndim(value))
            for name, value in named_parameters(self.model_.kernel).items()
        }
        found["bandwidth"] = Told(self.bandwidth_ * self.scaling_.scale, (self.columns_,))
        return found | {"width": Told(self.width_, (self.answer_names_,))}

    def _remarks(self) -> list[str]:
        return ["The kernel is of columns in units of the bandwidth."]

    def _laws(self, x: np.ndarray) -> AbstractLaws:
        model = self.model_
        seen, weight = np.asarray(model.x), np.asarray(model.weight)
        check_size(
            len(x) * len(seen),
            f"The shares of {len(seen):,} rows in the answers to {len(x):,}",
            "Predict fewer rows at a time.",
        )
        z, bandwidth = self.scaling_.apply(x), float(model.bandwidth)
        shares = _shares(self, model.kernel, bandwidth, z, seen, weight)
        centres = self.answer_scaling_.invert(np.asarray(model.y))
        return SmoothedLaws(shares, centres, self.width_, self.answer_shape_)


def _shares(
    owner: NadarayaWatson,
    kernel: AbstractKernel,
    bandwidth: float,
    x: np.ndarray,
    seen: np.ndarray,
    weight: np.ndarray,
    leave: np.ndarray | None = None,
) -> np.ndarray:
    """w_i(x), of sum one for each row of `x`; `leave` are their own places, which are left out."""
    near = kernel.gram(x / bandwidth, seen / bandwidth)
    if (near < 0).any():
        raise ValueError(
            f"The 'kernel' parameter of {type(owner).__name__} must be one without negative values, such "
            f"as RBF or Box. Got {kernel!r} instead."
        )
    near = near * weight
    if leave is not None:
        near[np.arange(len(x)), leave] = 0.0
    total = near.sum(axis=1)
    for row in np.flatnonzero(total == 0):
        # the nearest alone; distances of far rows have no squares
        gap = seen - x[row]
        gap = np.linalg.norm(gap / max(np.abs(gap).max(), np.finfo(float).tiny), axis=1)
        if leave is not None:
            gap[leave[row]] = np.inf
        near[row] = (gap == gap.min()) * weight
        total[row] = near[row].sum()
    return near / total[:, None]
