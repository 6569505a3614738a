"""Kernel density estimation."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.optimize import minimize, minimize_scalar
from scipy.special import expit, logit

from ..._core import Data, Fit, Program, Status, bucket, check_size, map_rows, on_device
from ...models import Kernels, MixedKernels
from ...shell import Column, Rows, check_real
from ...shell._schema import kinds_of
from .._by_column import AnyColumns

# rows × kernels that one look at a bandwidth may cost; more rows are judged by some of them
_MOST_PAIRS = 50_000_000
_FEWEST_JUDGED = 500
_ROWS_AT_ONCE = 1024
# of mixed tables, with a gradient
_BATCH = 128
# bandwidths looked at first, in standard deviations of a column
_GRID = np.geomspace(2e-3, 2.0, 10)
# the width in columns that never vary, relative to their value
_FLAT = 1e-3
# how far a label or count may speak for its neighbours, and where the search begins
_MOST_SMOOTHING, _FIRST_SMOOTHING, _FIRST_WIDTH = 0.999, 0.2, 0.3


def _left_out(pair: tuple[Array, Array], model: Kernels) -> Array:
    return model.log_prob_without(*pair)


class _Judged(NamedTuple):
    """Rows that are left out in turn: their numbers, and the weight that stays where each was."""

    x: Any
    number: Any
    left: Any


def _with_bandwidths(start: MixedKernels, width: Any, smoothing: Any) -> MixedKernels:
    """`start`, whose variances are those of what is missing, with kernels of some width."""
    return eqx.tree_at(
        lambda m: (m.variances, m.smoothing), start, (start.variances + width[None] ** 2, smoothing)
    )


@Program
def _loss_and_slope(
    data: Data, free: Any, start: MixedKernels, most: Array, flat: Array
) -> tuple[Array, Array]:
    """−L per row and its gradient, of log h and the log-odds of λ as a share of the most it may be."""

    def loss(free: Array) -> Array:
        width = jnp.where(flat, _FLAT, jnp.exp(free[0]))
        model = _with_bandwidths(start, width, most * jax.nn.sigmoid(free[1:]))

        def nats(judged: _Judged) -> Array:
            return model.log_prob_without(judged.x, judged.number, judged.left)

        found = jax.lax.map(jax.checkpoint(nats), data.x, batch_size=min(_BATCH, data.size))
        return -jnp.sum(jnp.where(data.weight > 0, data.weight * found, 0)) / data.total

    return jax.value_and_grad(loss)(free)


class KernelDensity(AnyColumns):
    """A Gaussian on every row:  p(x) = Σ_n w_n Π_d N(x_d; x_nd, (h s_d)²), with s_d the spread of column d.

    The bandwidth h is the one under which each row is most likely given all others,

        L(h) = Σ_n w_n log p_{−n}(x_n),

    where rows that are equal are left out together.  Missing entries are left out of the product,
    which is exact; a row that is fitted with a missing entry is as wide there as the whole column.
    It makes no assumption but smoothness: the baseline of every comparison.

    In a table with columns of different kinds labels have the kernel of Aitchison and Aitken, labels with
    an order and counts a geometric one (`models.MixedKernels`), each with a λ_d of its own.  They are
    chosen together with h, and none is less than that of one imagined row.  Where no column has a
    density, one row is left out, and not its equals.

    Args:
        bandwidth: h, in standard deviations of the columns; None chooses it.  For a mixed table it may be a
            list with a number for each column: h of numbers, λ of labels and counts.
        random_state: as everywhere; nothing in the fit is random.

    Attributes:
        bandwidth_: the standard deviation of the kernels in each column, in the units of the data; λ of
            labels and counts.
        history_: −L per row for each bandwidth that was looked at.
        model_, n_iter_, converged_, scaling_, …: as everywhere.

    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(-4, 1, (100, 1)), rng.normal(4, 1, (100, 1))])
    >>> model = KernelDensity().fit(X)
    >>> bool(model.score([[-4.0], [4.0]]) > model.score([[0.0]]))
    True
    """

    def __init__(self, bandwidth: Any = None, *, random_state: Any = None) -> None:
        self.bandwidth = bandwidth
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if np.ndim(self.bandwidth) == 0:
            check_real(self, "bandwidth", closed=False, optional=True)

    def _check_size(self, rows: int, columns: int) -> None:
        # of each kernel its centre, its variances and what both say of x², x and 1, and these of rows
        check_size(
            (5 * bucket(rows) + 3 * min(rows, _ROWS_AT_ONCE)) * columns,
            f"KernelDensity of {rows:,} rows and {columns:,} columns",
            "Use PCA first, or fewer rows.",
        )

    def _learn(self, rows: Rows, key: Array) -> Fit:
        given = self._given_bandwidths(rows.x.shape[1])
        if self.column_roles(rows.x.shape[1]).mass.any():
            return self._learn_mixed(rows, given)
        observed = ~np.isnan(rows.x)
        # a row of which nothing is known says nothing
        known = observed.any(axis=1)
        z, weight, observed = rows.x[known], rows.weight[known], observed[known]
        filled = np.where(observed, z, 0.0)
        spread = weight @ filled**2 / (weight @ observed)
        flat = spread < 1e-16

        def widths(h: float) -> np.ndarray:
            return np.where(flat, _FLAT, h if given is None else h * given)

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

        fixed = None if self.bandwidth is None else 1.0 if given is not None else float(self.bandwidth)
        if len(z) == 1:
            h = 1.0 if fixed is None else fixed
        elif fixed is None:
            h = float(np.exp(_minimum(loss, np.log(_GRID))))
        else:
            h = fixed
            loss(np.log(h))
        self.bandwidth_ = widths(h) * self.scaling_.scale
        history = {"objective": np.array(losses)}
        return Fit(kernels(h), history, len(losses), Status.CONVERGED)

    def _given_bandwidths(self, columns: int) -> np.ndarray | None:
        """A bandwidth for each column, where the user gives that."""
        if np.ndim(self.bandwidth) == 0:
            return None
        given = np.asarray(self.bandwidth, float)
        mass = self.column_roles(columns).mass
        right = given.shape == (columns,) and (given > 0).all() and (given[mass] < self._most()[mass]).all()
        if not right or not np.isfinite(given).all():
            raise ValueError(
                f"The 'bandwidth' parameter of KernelDensity must be one positive number, or {columns} of "
                "them, less than 1 for labels with an order and counts and than (K − 1)/K for K other "
                f"labels. Got {self.bandwidth!r} instead."
            )
        return given

    def _most(self) -> np.ndarray:
        """The largest λ of each column: with it all labels are alike."""
        schema = kinds_of(self)
        if schema is None:
            return np.full(self.n_features_in_, np.inf)
        lines = (Column.COUNT, Column.ORDERED)
        levels = np.array([max(len(field.categories), 2) for field in schema.modelled])
        ordered = np.array([field.kind in lines for field in schema.modelled])
        return np.where(ordered, _MOST_SMOOTHING, (levels - 1) / levels)

    def _learn_mixed(self, rows: Rows, given: np.ndarray | None) -> Fit:
        schema = kinds_of(self)
        assert schema is not None
        mass, kinds = self.column_roles(rows.x.shape[1]).mass, [f.kind for f in schema.modelled]
        seen = ~np.isnan(rows.x)
        known = seen.any(axis=1)
        x, weight, seen = rows.x[known], rows.weight[known], seen[known]
        numbers = np.where(seen, x, 0.0)[:, ~mass]
        spread = weight @ numbers**2 / (weight @ seen[:, ~mass])
        flat = spread < 1e-16
        centres = np.where(~mass[None] & ~seen, 0.0, x)
        levels = np.array(
            [
                np.inf if kind is Column.COUNT else max(len(field.categories), 2)
                for field, kind, own in zip(schema.modelled, kinds, mass, strict=True)
                if own
            ],
            float,
        )
        lines = tuple(
            kind in (Column.COUNT, Column.ORDERED) for kind, own in zip(kinds, mass, strict=True) if own
        )
        share = weight / weight.sum()
        extra = np.where(seen[:, ~mass], 0.0, spread[None])

        def kernels(width: np.ndarray, smoothing: np.ndarray) -> MixedKernels:
            variances = extra + width[None] ** 2
            return MixedKernels.of(
                centres, variances, weight, smoothing, levels, tuple((~mass).tolist()), lines
            )

        start = kernels(np.zeros(len(flat)), np.full(len(levels), 0.5))
        most, losses = self._most()[mass], []
        judged = np.arange(0, len(x), _stride(len(x)))
        # of a table without any density equal rows are expected: but one of them is left out
        left = np.maximum(weight - 1, 0) if mass.all() else np.zeros(len(x))
        left = left[judged] / weight.sum()
        data = Data.of(_Judged(x[judged], judged, left), weight[judged])
        lost = float(np.average(np.log1p(-(share[judged] - left)), weights=weight[judged]))
        put = on_device(most), on_device(flat)

        def loss(free: np.ndarray) -> tuple[float, np.ndarray]:
            value, slope = _loss_and_slope(data, free, start, *put)
            losses.append(float(value) + lost)
            return losses[-1], np.asarray(slope)

        if given is not None:
            width, smoothing = given[~mass], given[mass]
            status = Status.CONVERGED
        else:
            h = _FIRST_WIDTH if self.bandwidth is None else float(self.bandwidth)
            free = np.append(np.log(h), logit(np.full(len(most), _FIRST_SMOOTHING)))
            status = Status.CONVERGED
            if len(x) > 1 and (share[judged] - left < 1 - 1e-12).all():
                ends = np.log(_GRID[[0, -1]]) if self.bandwidth is None else np.full(2, np.log(h))
                # one imagined row keeps every label possible
                least = logit(1 / (max(weight.sum(), 1.0) + 1))
                bounds = [tuple(ends), *[(least, 12.0)] * len(most)]
                found = minimize(loss, free, jac=True, method="L-BFGS-B", bounds=bounds)
                free, status = found.x, Status.CONVERGED if found.success else Status.LIMIT
            width, smoothing = np.full(len(flat), np.exp(free[0])), most * expit(free[1:])
        width = np.where(flat, _FLAT, width)
        model = kernels(width, smoothing)
        self.bandwidth_ = np.empty(len(mass))
        self.bandwidth_[mass], self.bandwidth_[~mass] = smoothing, width * self.scaling_.scale[~mass]
        return Fit(model, {"objective": np.array(losses)}, len(losses), status)


def _stride(n: int) -> int:
    return max(n // max(_MOST_PAIRS // n, _FEWEST_JUDGED), 1)


def _minimum(loss: Any, grid: np.ndarray) -> float:
    """The least of `loss` near the best point of `grid`."""
    best = int(np.argmin([loss(point) for point in grid]))
    around = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    found: Any = minimize_scalar(loss, bounds=around, method="bounded", options={"xatol": 1e-6})
    return found.x
