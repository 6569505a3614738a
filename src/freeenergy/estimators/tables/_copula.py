"""Gaussian copulas as estimators."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import Array
from scipy.optimize import minimize_scalar
from scipy.special import log_ndtr, ndtr, ndtri

from ..._core import Evidence, Fit, Kind, Status, check_size, on_device
from ...models import CountMarginals, LevelMarginals, SmoothMarginals
from ...models import GaussianCopula as GaussianCopulaModel
from ...models._copula import FEW_CELLS
from ...shell import (
    Column,
    Rows,
    check_int,
    check_real,
    rows_at_once,
)
from ...shell._answers import answers, bound_of, seeded_answers
from ...shell._completion import AbstractCompletion, RowEnergy
from ...shell._schema import kinds_of
from ...shell._summary import Along
from .._by_column import AnyColumns

# kernels of a column; more values than that share them
_KERNELS = 64
# values of a column that are left out in turn to choose a bandwidth, and those that are kernels then
_JUDGED, _LEFT = 400, 1000
# widths of the tails of numbers, in standard deviations, and their shares
_WIDE = 2.0 ** np.arange(4)
_WIDE_SHARES = (1 / _WIDE) / np.sum(1 / _WIDE)
# bandwidths looked at first, in standard deviations
_GRID = np.append(np.geomspace(0.02, 0.9, 12), 1.0)
# the width of numbers that never vary, and the least of counts, which leaves them as they are
_FLAT, _SHARP = 1e-3, 0.05
# bins of a column, and the scores between which they lie
_BINS, _OUTERMOST = 512, 8.0
# of the search for the value of a score; some ten do, unless there is a gap between rows
_MOST_STEPS, _NEAR = 64, 1e-13
# the largest correlation of two columns
_LARGEST = 0.99
# Gauss–Legendre on [0, 1], for the correlation of two columns with masses
_NODES, _NODE_WEIGHTS = (0.5 * (v + shift) for v, shift in zip(np.polynomial.legendre.leggauss(24), (1, 0)))
# the smallest eigenvalue of a correlation matrix, and steps to the nearest one that has it
_LEAST, _MOST_PROJECTIONS, _STILL = 1e-3, 1000, 1e-9


class GaussianCopula(AnyColumns):
    """Columns of any kind, joined by normal scores:  z ~ N(0, R), x_j = F_j⁻¹(Φ(z_j)).

    Each column has the law F_j of its kind, smoothed by one imagined row, so that nothing it may be is
    impossible: numbers a mixture of normal kernels with wide tails, counts kernels on whole numbers with
    a geometric tail, labels their shares.  Labels without an order are put in the one in which they best
    line up with the other columns; what no order can say, such as a middle label that goes with both
    extremes of another column, is lost.

    Each entry of R is the maximum of the likelihood of its two columns (Pearson, polyserial or polychoric
    correlation) over rows that have both; R is the correlation matrix nearest to these, if they are none.
    Entries should be missing for reasons that have nothing to do with the values.

    `evidence` is exact for rows with at most two observed entries that have a mass (counts and labels); for
    others it is a lower bound by importance samples, with its standard error.

    Args:
        bandwidth: of the kernels of numbers and counts, in standard deviations of a column, up to 1, with
            which numbers have a normal law and no other tails; None chooses it for each column by leaving
            values out.
        strength: how many rows without any correlation are imagined beside those that were seen, which
            shrinks R by n / (n + strength), n being the mean number of rows in which two columns are
            observed together.  As many as there are columns keep what is inferred from nearly dependent
            columns from being noise where rows are few.
        importance_samples: draws for the evidence of a row with more than two such entries.
        random_state: seed of these; nothing in the fit is random.

    Attributes:
        correlation_: R.
        bandwidth_: the bandwidth of each column, zero for labels.
        model_: the fitted `freeenergy.models.GaussianCopula`, of rescaled rows.
        history_, n_iter_, converged_, scaling_, …: as everywhere.

    References:
        U. Olsson, Maximum likelihood estimation of the polychoric correlation coefficient, Psychometrika 44
        (1979).  N. J. Higham, Computing the nearest correlation matrix, IMA J. Numer. Anal. 22 (2002).

    >>> import polars as pl
    >>> rng = np.random.default_rng(0)
    >>> size = rng.gamma(2.0, 3.0, 300)
    >>> member = size + rng.normal(size=300) > 5
    >>> frame = pl.DataFrame({"size": size, "visits": rng.poisson(size), "member": member})
    >>> model = GaussianCopula(random_state=0).fit(frame)
    >>> bool((model.correlation_ > 0.7).all()), model.evidence(frame).kind.value
    (True, 'exact')
    >>> hidden = pl.DataFrame({"size": [20.0], "visits": [None], "member": [None]}, schema=frame.schema)
    >>> model.impute(hidden)["member"][0]
    True
    """

    def __init__(
        self,
        bandwidth: float | None = None,
        *,
        strength: float = 0.0,
        importance_samples: int = 256,
        random_state: Any = None,
    ) -> None:
        self.bandwidth = bandwidth
        self.strength = strength
        self.importance_samples = importance_samples
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_real(self, "bandwidth", closed=False, optional=True)
        if self.bandwidth is not None and self.bandwidth > 1:
            raise ValueError(
                "The 'bandwidth' parameter of GaussianCopula must be a float in the range (0, 1] or None. "
                f"Got {self.bandwidth!r} instead."
            )
        check_real(self, "strength")
        check_int(self, "importance_samples", 2)

    @property
    def needs_kinds(self) -> bool:
        return True

    def _check_size(self, rows: int, columns: int) -> None:
        check_size(4 * columns**2, f"GaussianCopula of {columns:,} columns", "Use fewer columns.")

    # -- the fit ----------------------------------------------------------------------------------

    def _learn(self, rows: Rows, key: Array) -> Fit:
        schema = kinds_of(self)
        assert schema is not None
        kinds = [field.kind for field in schema.modelled]
        mass = self.column_roles(len(kinds)).mass
        counts = [j for j, kind in enumerate(kinds) if kind is Column.COUNT]
        numbers = [int(j) for j in np.flatnonzero(~mass)]
        labels = [j for j in range(len(kinds)) if mass[j] and j not in counts]
        self.bandwidth_ = np.zeros(len(kinds))
        parts: list[Any] = []
        if numbers:
            parts.append(self._numbers(rows, numbers))
        if counts:
            parts.append(self._counts(rows, counts))
        if labels:
            ordered = [kinds[j] is not Column.CATEGORY for j in labels]
            sizes = [max(len(schema.modelled[j].categories), 2) for j in labels]
            found = _levels(rows, labels, sizes)
            orders = [np.arange(size) for size in sizes]
            if not all(ordered):
                outside = [j for j in range(len(kinds)) if j not in labels]
                seen = _features(rows, outside, labels, sizes, ordered, found)
                orders = [
                    order if has else _best_order(rows, j, share, [f for k, f in seen if k != j])
                    for j, order, has, share in zip(labels, orders, ordered, found, strict=True)
                ]
            parts.append(_level_marginals(found, orders))
        columns = tuple(numbers + counts + labels)
        free = GaussianCopulaModel(tuple(parts), columns, len(numbers), on_device(np.eye(len(columns))))
        ends = answers(free, GaussianCopulaModel.ends, rows.x)
        pairs = pairwise_correlations(ends[:, 0], ends[:, 1], rows.weight)
        correlation, changes = nearest_correlation(pairs)
        share = _seen_together(rows)
        share = share / (share + self.strength) if share > 0 else 1.0
        correlation = share * correlation + (1 - share) * np.eye(len(columns))
        model = GaussianCopulaModel(tuple(parts), columns, len(numbers), on_device(correlation))
        status = Status.CONVERGED if len(changes) < _MOST_PROJECTIONS else Status.LIMIT
        return Fit(model, {"change": changes}, len(changes), status)

    def _chosen(self, losses: Any) -> float:
        """The bandwidth of least loss, or that of the user."""
        if self.bandwidth is not None:
            return float(self.bandwidth)
        best = int(np.argmin([losses(h) for h in _GRID]))
        if best == len(_GRID) - 1:
            return 1.0
        around = np.log(_GRID[max(best - 1, 0)]), np.log(_GRID[best + 1])
        found: Any = minimize_scalar(lambda t: losses(np.exp(t)), bounds=around, method="bounded")
        return float(np.exp(found.x))

    def _numbers(self, rows: Rows, columns: list[int]) -> SmoothMarginals:
        kernels = []
        for j in columns:
            value, weight = _distinct(rows, j)
            h = self._chosen(lambda h, v=value, w=weight: _left_out(v, w, h)) if len(value) > 2 else 1.0
            flat = np.average((value - np.average(value, weights=weight)) ** 2, weights=weight) < 1e-16
            self.bandwidth_[j] = (_FLAT if flat else h) * self.scaling_.scale[j]
            centre, spread, share = _grouped(value, weight)
            keep, tail = (0.0 if flat else 1 - h**2), _tail(weight, 1.0 if flat else h)
            widths = np.full_like(centre, _FLAT) if flat else np.sqrt(keep * spread + h**2)
            parts = (1 - tail) * share, (centre if flat else np.sqrt(keep) * centre), widths
            wide = tail * _WIDE_SHARES, np.zeros_like(_WIDE), _WIDE
            kernels.append([np.append(own, more) for own, more in zip(parts, wide, strict=True)])
        weights, centres, widths = (np.stack(part) for part in zip(*kernels, strict=True))
        edges, values = _bins_of_numbers(weights, centres, widths)
        return SmoothMarginals(*map(on_device, (edges, values, weights, centres, widths)))

    def _counts(self, rows: Rows, columns: list[int]) -> CountMarginals:
        kernels, tails = [], []
        for j in columns:
            value, weight = _distinct(rows, j)
            total = weight.sum()
            mean = weight @ value / total
            deviation = np.sqrt(weight @ (value - mean) ** 2 / total)
            share, ratio = 1 / (total + 1), (weight @ value + 1) / (weight @ value + 1 + total + 1)
            log_tail = np.log(share), np.log(ratio)

            def width(h: float, deviation: float = deviation) -> float:
                return max(h * deviation, _SHARP)

            def loss(
                h: float, v: Any = value, w: Any = weight, tail: Any = (share, ratio), of: Any = width
            ) -> float:
                return _left_out_counts(v, w, of(h), *tail)

            h = width(self._chosen(loss)) if total > 1 and len(value) > 1 else width(1.0)
            self.bandwidth_[j] = h
            centre, spread, own = _grouped(value, weight)
            kernels.append((own, centre, np.sqrt(spread + h**2)))
            tails.append(log_tail)
        arrays = [np.stack(part) for part in zip(*kernels, strict=True)]
        arrays += [np.array(part) for part in zip(*tails, strict=True)]
        bins = _bins_of_counts(*arrays)
        return CountMarginals(*map(on_device, (*bins, *arrays)))

    def _count_parameters(self) -> int:
        columns = len(self.model_.columns)
        return columns * (columns - 1) // 2

    def _listed(self) -> dict[str, np.ndarray]:
        return {"correlation": self.correlation_}

    def _along(self, name: str, shape: tuple[int, ...]) -> Along:
        return self.column_names, self.column_names

    # -- what is asked of it ----------------------------------------------------------------------

    @property
    def correlation_(self) -> np.ndarray:
        """R, the correlation of the scores, in the order of the columns."""
        back = np.argsort(self.model_.columns)
        return np.asarray(self.model_.correlation)[np.ix_(back, back)]

    def _evidence(self, z: np.ndarray, seeds: np.ndarray) -> Evidence:
        cells = np.sum(~np.isnan(z[:, self.column_roles(z.shape[1]).mass]), axis=1)
        few, many = np.flatnonzero(cells <= FEW_CELLS), np.flatnonzero(cells > FEW_CELLS)
        nats, stderr, growth = np.zeros(len(z)), np.zeros(len(z)), np.zeros((len(z), 2))
        if len(few):
            known = ~np.isnan(z[few]).all(axis=1)
            found = answers(self.model_, GaussianCopulaModel.log_prob_few, z[few], block=1024)
            # of what nothing is known there is nothing to integrate
            nats[few] = np.where(known, found, 0.0)
        if not len(many):
            return Evidence(nats, stderr, Kind.EXACT)
        found = seeded_answers(
            self.model_,
            GaussianCopulaModel.evidence,
            z[many],
            seeds[many],
            self.seed_,
            block=rows_at_once(self.importance_samples, z.shape[1]),
            samples=self.importance_samples,
        )
        bound = bound_of(found, np.ones(len(many), bool))
        nats[many], stderr[many] = bound.nats, bound.stderr
        if bound.growth is not None:
            growth[many] = bound.growth
        return Evidence(nats, stderr, Kind.LOWER, growth=None if bound.growth is None else growth)

    def _completion(self, x: np.ndarray) -> AbstractCompletion | None:
        if self.column_roles(len(x)).mass.sum() > FEW_CELLS:
            return None
        return RowEnergy.of(self.model_, GaussianCopulaModel.log_prob_few, self.scaling_)

    @property
    def _completion_samples(self) -> int:
        return self.importance_samples


# -- columns ----------------------------------------------------------------------------------------


def _distinct(rows: Rows, column: int) -> tuple[np.ndarray, np.ndarray]:
    """The values of a column in order, with their weights."""
    x = rows.x[:, column]
    seen = ~np.isnan(x)
    value, place = np.unique(x[seen], return_inverse=True)
    return value, np.bincount(place, weights=rows.weight[seen])


def _grouped(value: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """At most so many centres as there are kernels, the variance within each, and their shares."""
    below = (np.cumsum(weight) - 0.5 * weight) / weight.sum()
    group = np.arange(len(value)) if len(value) <= _KERNELS else (below * _KERNELS).astype(int)
    share = np.bincount(group, weights=weight, minlength=_KERNELS)
    full = share > 0
    total = np.bincount(group, weights=weight * value, minlength=_KERNELS)
    mean = np.divide(total, share, out=np.full(_KERNELS, value.mean()), where=full)
    gaps = np.bincount(group, weights=weight * (value - mean[group]) ** 2, minlength=_KERNELS)
    spread = np.divide(gaps, share, out=np.zeros_like(gaps), where=full)
    return mean, spread, share / weight.sum()


def _some(value: np.ndarray, weight: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """An even part of values that are in order."""
    stride = max(-(-len(value) // most), 1)
    return value[::stride], weight[::stride]


def _tail(weight: np.ndarray, h: float) -> float:
    """The share of the tails: that of one imagined row, and none of a normal law."""
    return (1 - h**2) / (weight.sum() + 1)


def _left_out(value: np.ndarray, weight: np.ndarray, h: float) -> float:
    """Minus the mean of log f(x) without the kernels of x itself, in units of the column."""
    centre, share = _some(value, weight, _LEFT)
    judged, counts = _some(value, weight, _JUDGED)
    gap = (judged[:, None] - np.sqrt(1 - h**2) * centre[None]) / h
    own = judged[:, None] == centre[None]
    logs = np.where(own, -np.inf, np.log(share)[None] - 0.5 * gap**2)
    top = logs.max(axis=1)
    nats = top + np.log(np.exp(logs - top[:, None]).sum(axis=1)) - np.log(h)
    rest = share.sum() - np.where(own, share[None], 0.0).sum(axis=1)
    tail = _tail(weight, h)
    wide = np.exp(-0.5 * (judged[:, None] / _WIDE[None]) ** 2) @ (_WIDE_SHARES / _WIDE)
    with np.errstate(divide="ignore"):
        both = np.logaddexp(np.log1p(-tail) + nats - np.log(rest), np.log(tail * wide))
    return -float(np.average(both, weights=counts))


def _count_masses(
    value: np.ndarray, centre: np.ndarray, width: Any, share: float, ratio: float
) -> np.ndarray:
    """The mass that the kernel at each centre gives each value, and that of the tail in the last column."""
    low, high = ((value[:, None] + side - centre[None]) / width for side in (-0.5, 0.5))
    upper = low + high > 0
    mass = np.where(upper, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low)) / ndtr((centre + 0.5) / width)
    tail = (1 - ratio) * ratio**value
    return np.column_stack([(1 - share) * mass, share * tail])


def _left_out_counts(
    value: np.ndarray, weight: np.ndarray, width: float, share: float, ratio: float
) -> float:
    """Minus the mean of log p(x) where one row with the value x is left out."""
    judged, counts = _some(value, weight, _JUDGED)
    mass = _count_masses(judged, value, width, share, ratio)
    own = np.where(judged[:, None] == value[None], mass[:, :-1], 0.0).sum(axis=1)
    rest = np.maximum(mass[:, :-1] @ weight - own * np.minimum(1.0, counts), 0.0)
    return -float(np.average(np.log(rest / (weight.sum() - 1) + mass[:, -1]), weights=counts))


def _values_of_scores(
    scores: np.ndarray, weights: np.ndarray, centres: np.ndarray, widths: np.ndarray
) -> np.ndarray:
    """Where the distribution function of each column is Φ(score), (columns, scores).

    By Newton's rule for the logarithm of the lighter tail, halving where it leaves what is known to hold
    the value.
    """
    each = centres[:, :, None] + widths[:, :, None] * scores
    low, high = each.min(axis=1), each.max(axis=1)
    side = np.where(scores < 0, 1.0, -1.0)
    wanted = log_ndtr(-np.abs(scores))
    x = 0.5 * (low + high)
    for _ in range(_MOST_STEPS):
        u = (x[:, None, :] - centres[:, :, None]) / widths[:, :, None]
        tail = np.einsum("jk,jke->je", weights, ndtr(side * u))
        density = np.einsum("jk,jke->je", weights / widths, np.exp(-0.5 * u**2)) / np.sqrt(2 * np.pi)
        with np.errstate(divide="ignore", invalid="ignore"):
            gap = side * (wanted - np.log(tail))
            step = gap * tail / density
        low, high = np.where(gap > 0, x, low), np.where(gap > 0, high, x)
        exact = np.abs(step) <= _NEAR * np.maximum(np.abs(x), widths.min(axis=1, keepdims=True))
        inside = (low < x + step) & (x + step < high)
        x = np.where(inside | exact, x + np.where(exact, 0.0, step), 0.5 * (low + high))
        if exact.all():
            break
    return x


def _bins_of_numbers(
    weights: np.ndarray, centres: np.ndarray, widths: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Scores between bins, the same for all columns, and the mean of each column within each bin."""
    scores = np.linspace(-_OUTERMOST, _OUTERMOST, _BINS - 1)
    ends = _values_of_scores(scores, weights, centres, widths)
    u = (ends[:, None, :] - centres[:, :, None]) / widths[:, :, None]
    # ∫ x f(x) dx up to each end
    bell = np.exp(-0.5 * u**2) / np.sqrt(2 * np.pi)
    moment = np.einsum("jk,jke->je", weights, centres[:, :, None] * ndtr(u) - widths[:, :, None] * bell)
    mass = np.diff(ndtr(scores))
    # what is rounding in the difference of two integrals is in the middle of its bin
    inner = np.where(mass > 1e-9, np.diff(moment, axis=1) / mass, 0.5 * (ends[:, 1:] + ends[:, :-1]))
    inner = np.clip(inner, ends[:, :-1], ends[:, 1:])
    values = np.concatenate([ends[:, :1], inner, ends[:, -1:]], axis=1)
    return np.tile(scores, (len(weights), 1)), values


def _bins_of_counts(
    weights: np.ndarray,
    centres: np.ndarray,
    widths: np.ndarray,
    log_share: np.ndarray,
    log_ratio: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Scores between bins of counts, each count in its own where there are not too many."""
    edges, values = [], []
    for own, centre, width, share, ratio in zip(
        weights, centres, widths, np.exp(log_share), np.exp(log_ratio), strict=True
    ):
        # what the tail holds beyond is less than can be told
        top = max(centre.max() + 9 * width.max(), np.log(1e-15 / share) / np.log(ratio))
        last = np.unique(np.rint(np.linspace(0, np.ceil(top), _BINS - 1)))
        last = np.append(last, np.full(_BINS - 1 - len(last), last[-1]))
        zero = ndtr((centre + 0.5) / width)
        above = ndtr((centre[None] - last[:, None] - 0.5) / width) / zero @ own
        above = (1 - share) * above + share * ratio ** (last + 1)
        below = (ndtr((last[:, None] + 0.5 - centre[None]) / width) - (1 - zero)) / zero @ own
        below = (1 - share) * below + share * -np.expm1((last + 1) * np.log(ratio))
        score = np.where(below < above, ndtri(np.clip(below, 0, 1)), -ndtri(np.clip(above, 0, 1)))
        edges.append(np.maximum.accumulate(score))
        first = np.append(0.0, last[:-1] + 1)
        values.append(np.append(0.5 * (first + np.maximum(last, first)), last[-1] + 1))
    return np.stack(edges), np.stack(values)


# -- labels -----------------------------------------------------------------------------------------


def _levels(rows: Rows, columns: list[int], sizes: list[int]) -> list[np.ndarray]:
    """The share of each label of each column, with one imagined row."""
    found = []
    for j, size in zip(columns, sizes, strict=True):
        value, weight = _distinct(rows, j)
        counts = np.bincount(value.astype(int), weights=weight, minlength=size)
        found.append((counts + 1 / size) / (counts.sum() + 1))
    return found


def _features(
    rows: Rows,
    others: list[int],
    labels: list[int],
    sizes: list[int],
    ordered: list[bool],
    shares: list[np.ndarray],
) -> list[tuple[int, np.ndarray]]:
    """Columns as numbers of mean zero: middle scores, and for labels without an order one for each."""
    found: list[tuple[int, np.ndarray]] = []
    for j in others:
        value, weight = _distinct(rows, j)
        middle = ndtri((np.cumsum(weight) - 0.5 * weight) / weight.sum())
        found.append((j, _looked_up(rows.x[:, j], value, middle[:, None])))
    for j, size, has, share in zip(labels, sizes, ordered, shares, strict=True):
        table = ndtri(np.cumsum(share) - 0.5 * share)[:, None] if has else np.eye(size) - share[None]
        found.append((j, _looked_up(rows.x[:, j], np.arange(size), table)))
    return found


def _looked_up(x: np.ndarray, value: np.ndarray, table: np.ndarray) -> np.ndarray:
    place = np.searchsorted(value, np.where(np.isnan(x), value[0], x))
    return np.where(np.isnan(x)[:, None], 0.0, table[place])


def _best_order(rows: Rows, column: int, share: np.ndarray, others: list[np.ndarray]) -> np.ndarray:
    """Labels in the order of their place on the axis along which they differ most in the other columns."""
    x = rows.x[:, column]
    if not others or not len(x):
        return np.arange(len(share))
    seen = ~np.isnan(x)
    features = np.concatenate(others, axis=1)[seen]
    code = x[seen].astype(int)
    sums = np.zeros((len(share), features.shape[1]))
    np.add.at(sums, code, rows.weight[seen][:, None] * features)
    counts = np.bincount(code, weights=rows.weight[seen], minlength=len(share))
    means = sums / (counts + 1)[:, None]
    axis = np.linalg.svd(np.sqrt(share)[:, None] * (means - share @ means))[2][0]
    # of an axis only the line is known
    axis = axis * np.sign(axis[np.argmax(np.abs(axis))])
    return np.argsort(np.round(means @ axis, 9), kind="stable")


def _level_marginals(shares: list[np.ndarray], orders: list[np.ndarray]) -> LevelMarginals:
    most = max(map(len, shares))
    places = np.zeros((len(shares), most), int)
    edges, values = np.full((len(shares), most - 1), np.inf), np.zeros((len(shares), most))
    for j, (share, order) in enumerate(zip(shares, orders, strict=True)):
        n = len(share)
        places[j, order] = np.arange(n)
        below = np.cumsum(share[order])[:-1]
        above = np.cumsum(share[order][::-1])[::-1][1:]
        edges[j, : n - 1] = np.where(below < above, ndtri(below), -ndtri(above))
        values[j] = np.append(order, np.full(most - n, order[-1]))
    return LevelMarginals(*map(on_device, (edges, values, places)))


# -- correlations -----------------------------------------------------------------------------------


def pairwise_correlations(low: np.ndarray, high: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The correlation of each two columns of scores that are known to lie in intervals, by likelihood.

    Args:
        low, high: the ends of the intervals, shape (rows, columns); equal where a score is known, NaN where
            nothing is.
        weight: of the rows.

    >>> z = np.array([[-1.0, -1.0], [1.0, 1.0], [-1.0, 1.0], [1.0, 1.0]])
    >>> pairwise_correlations(z, z, np.ones(4)).round(3).tolist()  # of scores with variance one
    [[1.0, 0.5], [0.5, 1.0]]
    """
    columns = low.shape[1]
    found = np.eye(columns)
    for i in range(columns):
        for j in range(i):
            both = ~(np.isnan(low[:, i]) | np.isnan(low[:, j]))
            if weight[both].sum() > 0:
                one, other = ((low[both, k], high[both, k]) for k in (i, j))
                found[i, j] = found[j, i] = _pair(one, other, weight[both])
    return found


_Ends = tuple[np.ndarray, np.ndarray]


def _pair(first: _Ends, second: _Ends, weight: np.ndarray) -> float:
    known = [bool((low == high).all()) for low, high in (first, second)]
    if all(known):
        return _of_scores(first[0], second[0], weight)
    if any(known):
        score, cell = (first[0], second) if known[0] else (second[0], first)

        def loss(r: float) -> float:
            low, high = ((end - r * score) / np.sqrt(1 - r**2) for end in cell)
            return -float(weight @ _log_interval(low, high))
    else:
        one, other = _cells(first), _cells(second)
        table = np.zeros((len(one[0]), len(other[0])))
        np.add.at(table, (one[2], other[2]), weight)
        below, above = ndtr(one[0]), ndtr(-one[1])
        inside = 1 - above - below
        # points within each cell of the first, by the side on which they have their digits
        u = below[:, None] + inside[:, None] * _NODES[None]
        v = above[:, None] + inside[:, None] * (1 - _NODES)[None]
        y = np.where(u < v, ndtri(u), -ndtri(v))[:, :, None]

        def loss(r: float) -> float:
            low, high = ((end[None, None] - r * y) / np.sqrt(1 - r**2) for end in other[:2])
            upper = low + high > 0
            share = np.where(upper, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))
            mass = np.einsum("q,aqb->ab", _NODE_WEIGHTS, share)
            return -float(np.sum(table * np.log(np.maximum(mass, np.finfo(float).tiny))))

    edge = np.arctanh(_LARGEST)
    best: Any = minimize_scalar(
        lambda t: loss(np.tanh(t)), bounds=(-edge, edge), method="bounded", options={"xatol": 1e-7}
    )
    return float(np.tanh(best.x))


def _cells(ends: _Ends) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The different intervals, and which of them each row has."""
    pairs, place = np.unique(np.column_stack(ends), axis=0, return_inverse=True)
    return pairs[:, 0], pairs[:, 1], place.ravel()


def _log_interval(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        upper = low + high > 0
    top, bottom = log_ndtr(np.where(upper, -low, high)), log_ndtr(np.where(upper, -high, low))
    return top + np.log(-np.expm1(np.minimum(bottom - top, -np.finfo(float).eps)))


def _of_scores(first: np.ndarray, second: np.ndarray, weight: np.ndarray) -> float:
    """The r of largest likelihood for pairs of scores: a root of r³ − c r² + (a + b − 1) r − c."""
    a, b, c = (float(np.average(v, weights=weight)) for v in (first**2, second**2, first * second))
    if min(a, b) < 1e-16:
        return 0.0
    roots = np.roots([1.0, -c, a + b - 1, -c])
    real = roots.real[np.abs(roots.imag) < 1e-9]
    # of scores that vary too little the likelihood has a maximum at both ends too
    nearest = real[np.argmin(np.abs(real - c / np.sqrt(a * b)))]
    return float(np.clip(nearest, -_LARGEST, _LARGEST))


def _seen_together(rows: Rows) -> float:
    """In how many rows two columns are both observed, on average over pairs; zero if there is no pair."""
    seen = (~np.isnan(rows.x)).astype(float)
    both = (seen * rows.weight[:, None]).T @ seen
    d = len(both)
    return float((both.sum() - np.trace(both)) / (d * (d - 1))) if d > 1 else 0.0


def nearest_correlation(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The nearest symmetric matrix with ones on its diagonal whose eigenvalues are positive.

    By projections on both sets in turn, with the correction of Dykstra (Higham 2002).

    Returns:
        The matrix, and by how much each step moved an entry at most.

    >>> wrong = np.array([[1.0, 0.9, -0.9], [0.9, 1.0, 0.9], [-0.9, 0.9, 1.0]])
    >>> nearest_correlation(wrong)[0].round(2).tolist()
    [[1.0, 0.5, -0.5], [0.5, 1.0, 0.5], [-0.5, 0.5, 1.0]]
    """
    found, correction = matrix, np.zeros_like(matrix)
    changes = []
    for _ in range(_MOST_PROJECTIONS):
        before, open_ = found, found - correction
        values, vectors = np.linalg.eigh(open_)
        if not changes and values[0] >= _LEAST:
            return matrix, np.zeros(1)
        inside = (vectors * np.maximum(values, _LEAST)) @ vectors.T
        correction = inside - open_
        found = inside.copy()
        np.fill_diagonal(found, 1.0)
        changes.append(float(np.abs(found - before).max()))
        if changes[-1] < _STILL:
            break
    # what is left of an eigenvalue that is too small
    least = np.linalg.eigvalsh(found)[0]
    share = max(0.0, (0.5 * _LEAST - least) / (1 - least))
    return (1 - share) * (found + found.T) / 2 + share * np.eye(len(found)), np.array(changes)
