"""Kernel density estimation."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import Array
from scipy.optimize import minimize_scalar

from ..._core import Fit, Status, bucket, check_size, map_rows
from ...models import Kernels
from ...shell import AbstractDensity, Rows, check_real

# rows × kernels that one look at a bandwidth may cost; more rows are judged by some of them
_MOST_PAIRS = 50_000_000
_FEWEST_JUDGED = 500
_ROWS_AT_ONCE = 1024
# bandwidths looked at first, in standard deviations of a column
_GRID = np.geomspace(2e-3, 2.0, 10)
# the width in columns that never vary, relative to their value
_FLAT = 1e-3


def _left_out(pair: tuple[Array, Array], model: Kernels) -> Array:
    return model.log_prob_without(*pair)


class KernelDensity(AbstractDensity):
    """A Gaussian on every row:  p(x) = Σ_n w_n Π_d N(x_d; x_nd, (h s_d)²), with s_d the spread of column d.

    The bandwidth h is the one under which each row is most likely given all others,

        L(h) = Σ_n w_n log p_{−n}(x_n),

    where rows that are equal are left out together.  Missing entries are left out of the product,
    which is exact; a row that is fitted with a missing entry is as wide there as the whole column.
    It makes no assumption but smoothness: the baseline of every comparison.

    Args:
        bandwidth: h, in standard deviations of the columns; None chooses it.
        random_state: as everywhere; nothing in the fit is random.

    Attributes:
        bandwidth_: the standard deviation of the kernels in each column, in the units of the data.
        model_: the fitted density, of rescaled rows.
        history_, n_iter_, converged_, scaling_, …: as everywhere.

    After `fit`, `bandwidth_` has the standard deviation of the kernels in each column, in the units of
    the data, and `history_` has −L(h) per row for each h that was looked at.

    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(-4, 1, (100, 1)), rng.normal(4, 1, (100, 1))])
    >>> model = KernelDensity().fit(X)
    >>> bool(model.score([[-4.0], [4.0]]) > model.score([[0.0]]))
    True
    """

    def __init__(self, bandwidth: float | None = None, *, random_state: Any = None) -> None:
        self.bandwidth = bandwidth
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_real(self, "bandwidth", closed=False, optional=True)

    def _check_size(self, rows: int, columns: int) -> None:
        # of each kernel its centre, its variances and what both say of x², x and 1, and these of rows
        check_size(
            (5 * bucket(rows) + 3 * min(rows, _ROWS_AT_ONCE)) * columns,
            f"KernelDensity of {rows:,} rows and {columns:,} columns",
            "Use PCA first, or fewer rows.",
        )

    def _learn(self, rows: Rows, key: Array) -> Fit:
        observed = ~np.isnan(rows.x)
        # a row of which nothing is known says nothing
        known = observed.any(axis=1)
        z, weight, observed = rows.x[known], rows.weight[known], observed[known]
        filled = np.where(observed, z, 0.0)
        spread = weight @ filled**2 / (weight @ observed)
        flat = spread < 1e-16

        def widths(h: float) -> np.ndarray:
            return np.where(flat, _FLAT, h)

        def kernels(h: float) -> Kernels:
            narrow = widths(h) ** 2
            return Kernels.of(filled, np.where(observed, narrow, narrow + spread), weight)

        judged = np.arange(0, len(z), _stride(len(z)))
        share = weight[judged]
        losses: list[float] = []

        def loss(log_h: float) -> float:
            """−L(h) per row; the others share the weight of the row that is left out."""
            nats = map_rows(_left_out, (z[judged], judged), kernels(np.exp(log_h)), block=_ROWS_AT_ONCE)
            losses.append(-float(np.average(nats - np.log1p(-share / weight.sum()), weights=share)))
            return losses[-1]

        if len(z) == 1:
            h = 1.0 if self.bandwidth is None else float(self.bandwidth)
        elif self.bandwidth is None:
            h = float(np.exp(_minimum(loss, np.log(_GRID))))
        else:
            h = float(self.bandwidth)
            loss(np.log(h))
        self.bandwidth_ = widths(h) * self.scaling_.scale
        history = {"objective": np.array(losses)}
        return Fit(kernels(h), history, len(losses), Status.CONVERGED)


def _stride(n: int) -> int:
    return max(n // max(_MOST_PAIRS // n, _FEWEST_JUDGED), 1)


def _minimum(loss: Any, grid: np.ndarray) -> float:
    """The least of `loss` near the best point of `grid`."""
    best = int(np.argmin([loss(point) for point in grid]))
    around = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    return minimize_scalar(loss, bounds=around, method="bounded", options={"xatol": 1e-6}).x
