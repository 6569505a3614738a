"""What regressors with a kernel share: its parameters, the units in which it sees rows, rows merged."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy import optimize

from ..._core import AbstractProgress, Status, learnable, on_device, silent, waiting_for_ctrl_c
from ...kernels import RBF, AbstractKernel
from ...shell import Rows, Scaling, check_instance
from ._inputs import CompletesInputs
from ._regressor import AbstractRegressor

# kernels are asked for so many pairs at once when rows are predicted
_PAIRS = 2**22
# what parameters of a kernel and noise may be, in the units that the kernel sees
_RANGE, _NOISE_RANGE = (1e-5, 1e5), (1e-8, 1e5)
# mean and spread of the logarithm of a length in one column (Hvarfner, Hellsten & Nardi 2024), and of noise
_LENGTHS, _NOISE = (np.sqrt(2), np.sqrt(3)), (-2.0, 1.0)
# how far other starts are from the first, in logarithms
_SPREAD = 1.5


class LogParameters(NamedTuple):
    """The learnable parameters of a kernel or a family, which are all positive, as a vector of logarithms.

    >>> logs = LogParameters.of(2.0 * RBF([1.0, 3.0]))
    >>> np.exp(logs.vector).round(6).tolist()
    [1.0, 3.0, 2.0]
    """

    vector: np.ndarray
    shapes: list[tuple[int, ...]]
    moving: list[bool]
    leaves: list[np.ndarray]
    structure: Any

    @staticmethod
    def of(kernel: Any) -> LogParameters:
        """Those of a kernel, or of a conditional family; a parameter that is zero stays so."""
        leaves, structure = jax.tree.flatten(kernel)
        open_ = jax.tree.leaves(learnable(kernel))
        values = [np.asarray(leaf) for leaf in leaves]
        moving = [own and bool((value > 0).all()) for own, value in zip(open_, values, strict=True)]
        moved = [value for value, own in zip(values, moving, strict=True) if own]
        vector = np.concatenate([np.log(value).ravel() for value in moved]) if moved else np.zeros(0)
        return LogParameters(vector, [v.shape for v in moved], moving, values, structure)

    def kernel(self, vector: np.ndarray) -> Any:
        """The kernel at other logarithms, with arrays of NumPy."""
        sizes = [int(np.prod(shape)) for shape in self.shapes]
        parts = iter(np.split(np.exp(vector), np.cumsum(sizes)[:-1]) if sizes else ())
        shapes = iter(self.shapes)
        leaves = [
            next(parts).reshape(next(shapes)) if own else leaf
            for own, leaf in zip(self.moving, self.leaves, strict=True)
        ]
        return jax.tree.unflatten(self.structure, leaves)

    def slope(self, vector: np.ndarray, slopes: Sequence[Any]) -> np.ndarray:
        """The slope in the logarithms, from those in the parameters, in the order of leaves."""
        parts = [np.asarray(s) for s, own in zip(slopes, self.moving, strict=True) if own]
        return np.concatenate([p.ravel() for p in parts]) * np.exp(vector) if parts else np.zeros(0)


def merged_rows(rows: Rows) -> tuple[Rows, np.ndarray]:
    """Distinct rows in the order of their values, with summed weights, and which of them each row is.

    >>> rows, which = merged_rows(Rows(np.array([[2.0], [1.0], [2.0]]), np.ones(3), np.zeros((3, 1))))
    >>> rows.x.tolist(), rows.weight.tolist(), which.tolist()
    ([[1.0], [2.0]], [1.0, 2.0], [1, 0, 1])
    """
    assert rows.known is not None
    # NaN is not equal to itself
    whole = np.column_stack([rows.x, np.nan_to_num(rows.known), np.isnan(rows.known)])
    _, first, which = np.unique(whole, axis=0, return_index=True, return_inverse=True)
    weight = np.bincount(which.ravel(), weights=rows.weight)
    return Rows(rows.x[first], weight, rows.known[first]), which.ravel()


class DrawsInputsOnce(CompletesInputs):
    """Draws what is missing in the rows of a fit once, since the time that a kernel takes grows fast."""

    def _drawn_once(self, rows: Rows, beside: np.ndarray) -> Rows:
        completed, place = self._completed(rows, beside)
        # the first draw of each, in the order of the rows
        return rows._replace(x=completed.x[: len(rows.x)][np.argsort(place[: len(rows.x)])])


class LogPrior(NamedTuple):
    """Independent normal laws of logarithms of parameters, or nothing where the precision is zero.

    >>> LogPrior(np.zeros(2), np.array([1.0, 4.0])).log_density(np.array([2.0, 1.0]))
    (-4.0, array([-2., -4.]))
    """

    centre: np.ndarray
    precision: np.ndarray

    @staticmethod
    def none(size: int) -> LogPrior:
        """No prior."""
        return LogPrior(np.zeros(size), np.zeros(size))

    @staticmethod
    def weak(lengths: int, rest: int, outputs: int) -> LogPrior:
        """Of lengths and noise, for columns and answers of variance one; the `rest` between has none."""
        long = _LENGTHS[0] + 0.5 * np.log(max(lengths, 1))
        sizes = lengths, rest, outputs
        return LogPrior(
            np.repeat([long, 0.0, _NOISE[0]], sizes),
            np.repeat([_LENGTHS[1] ** -2, 0.0, _NOISE[1] ** -2], sizes),
        )

    def log_density(self, logs: np.ndarray) -> tuple[float, np.ndarray]:
        """Its logarithm, up to a constant, and the slope of that."""
        gap = logs - self.centre
        return -0.5 * float(self.precision @ gap**2), -self.precision * gap


class Climbed(NamedTuple):
    """Where a search ended: the place, minus the value on the way there, and why it ended."""

    place: np.ndarray
    path: list[float]
    status: Status

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended it."""
        return self.status is Status.INTERRUPTED


class Search(NamedTuple):
    """How the top of a function is climbed to, by L-BFGS; Ctrl-C ends it with what it has.

    Attributes:
        max_iter: the most iterations.
        tol: the slope for each row below which it stops.
        progress: makes the display.
        no_rise: a rise of this part of the value for each row is none.

    >>> limits = np.array([[-9.0, 9.0]] * 2)
    >>> found = Search(50, 1e-9).climb(lambda x: (-float(x @ x), -2 * x), np.ones(2), limits, 1.0)
    >>> bool(np.abs(found.place).max() < 1e-6), found.status.value
    (True, 'converged')
    """

    max_iter: int
    tol: float
    progress: Callable[[int], AbstractProgress] = silent
    no_rise: float = 1e-9

    def climb(
        self,
        value_and_slope: Callable[[np.ndarray], tuple[float, np.ndarray]],
        start: np.ndarray,
        limits: np.ndarray,
        rows: float,
    ) -> Climbed:
        """Where it ends; it works on the value for each of so many `rows`."""
        path = list[float]()
        best, place = np.inf, start

        def loss(moved: np.ndarray) -> tuple[float, np.ndarray]:
            nonlocal best, place
            value, slope = value_and_slope(moved)
            if -value / rows < best:
                best, place = -value / rows, moved.copy()
            return -value / rows, -slope / rows

        with self.progress(self.max_iter) as bar, waiting_for_ctrl_c() as pressed:

            def told(intermediate_result: Any) -> None:
                path.append(float(intermediate_result.fun) * rows)
                bar.update(len(path), {"objective": float(intermediate_result.fun)})
                if pressed.is_set():
                    raise StopIteration

            result = optimize.minimize(
                loss,
                start,
                jac=True,
                method="L-BFGS-B",
                bounds=limits,
                options={"maxiter": self.max_iter, "ftol": self.no_rise, "gtol": self.tol},
                callback=told,
            )
        # a line search that finds nothing ends anywhere
        path.append(best * rows)
        status = Status.LIMIT if result.status == 1 else Status.CONVERGED
        return Climbed(place, path, Status.INTERRUPTED if pressed.is_set() else status)

    def best(self, starts: list[np.ndarray], climb: Callable[[np.ndarray], Climbed]) -> Climbed:
        """The best of climbs from several starts."""
        found = list[Climbed]()
        for start in starts:
            found.append(climb(start))
            if found[-1].interrupted:
                break
        best = min(found, key=lambda one: one.path[-1])
        return best._replace(status=found[-1].status) if found[-1].interrupted else best


def limits_of(start: np.ndarray, kernel: int) -> np.ndarray:
    """What logarithms of parameters may be: first of a kernel, then of noise."""
    limits = np.log([_RANGE] * kernel + [_NOISE_RANGE] * (len(start) - kernel)).reshape(-1, 2)
    return np.column_stack([np.minimum(limits[:, 0], start), np.maximum(limits[:, 1], start)])


class AbstractEvidences(abc.ABC):
    """The evidence of what was seen as a function of logarithms of parameters, and its maximum.

    Attributes:
        kernel: the parameters of the kernel, which are the first of them.
        x: rows, rescaled.
        weights: how often each answer was seen, (rows, outputs).
        prior: of all of them.
    """

    kernel: LogParameters
    x: np.ndarray
    weights: np.ndarray
    prior: LogPrior

    @abc.abstractmethod
    def evidence(self, theta: np.ndarray, *, slope: bool = True) -> tuple[float, np.ndarray]:
        """log p(y | X), and its slope."""

    def maximise(self, start: np.ndarray, free: np.ndarray, search: Search) -> Climbed:
        """Where the search ends that may change what is `free`."""
        if not free.any():
            return Climbed(start, [-self.evidence(start, slope=False)[0]], Status.CONVERGED)

        def whole(moved: np.ndarray) -> np.ndarray:
            theta = start.copy()
            theta[free] = moved
            return theta

        def asked(moved: np.ndarray) -> tuple[float, np.ndarray]:
            theta = whole(moved)
            value, slope = self.evidence(theta)
            own, own_slope = self.prior.log_density(theta)
            return value + own, (slope + own_slope)[free]

        limits = limits_of(start, len(self.kernel.vector))
        found = search.climb(asked, start[free], limits[free], self.weights.sum())
        return found._replace(place=whole(found.place))

    def best(self, starts: list[np.ndarray], free: np.ndarray, search: Search) -> Climbed:
        """The best of searches from several starts."""
        return search.best(starts, lambda one: self.maximise(one, free, search))


def starts_about(start: np.ndarray, free: np.ndarray, n: int, rng: np.random.Generator) -> list[np.ndarray]:
    """The start, and others about it."""
    more = [start + _SPREAD * free * rng.standard_normal(len(start)) for _ in range(n - 1)]
    return [start, *more]


def in_parts(z: np.ndarray, seen: int) -> list[np.ndarray]:
    """Rows, few enough at a time for the pairs with what was seen."""
    return np.array_split(z, max(1, -(-len(z) * seen // _PAIRS)))


class AbstractKernelRegressor(DrawsInputsOnce, AbstractRegressor):
    """Numbers given rows by a kernel."""

    kernel: AbstractKernel | None
    standardise: bool

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_instance(self, "kernel", AbstractKernel, optional=True)
        check_instance(self, "standardise", bool)

    def _scaling(self, X: np.ndarray, weight: np.ndarray | None) -> Scaling:
        return Scaling.standardise(X, weight) if self.standardise else Scaling.identity(X.shape[1])

    def _answer_scaling(self, y: np.ndarray, weight: np.ndarray | None) -> Scaling:
        if not self.standardise:
            return Scaling.identity(y.shape[1])
        return Scaling.standardise(y, weight)

    def _start_kernel(self, columns: int) -> AbstractKernel:
        return 1.0 * RBF(on_device(np.ones(columns))) if self.kernel is None else self.kernel

    def _merged(self, rows: Rows) -> tuple[Rows, np.ndarray]:
        """Distinct complete rows, rescaled, with their weights, and which of them each row is.

        What is missing in a row is drawn once, from a density of rows and answers.
        """
        assert rows.known is not None
        rows = self._drawn_once(rows, self.answer_scaling_.invert(rows.known))
        return merged_rows(rows._replace(x=self.scaling_.apply(rows.x)))
