"""The likelihood of linear predictors, in blocks of rows."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import numpy as np

from ._links import HostLink, Jet
from ._newton import BLOCK, Point, diagonal_of
from ._responses import AbstractResponse, Terms


@dataclasses.dataclass(frozen=True)
class Predictors:
    """Answers with one or several linear predictors: of the mean, and of what else a family has.

    Coefficients are one vector: those of the mean (the constant first), then for each further coordinate
    those of all columns where it varies with the row, else one number.

    Attributes:
        response, link: the family, and the link of its mean.
        design: rows, with a column of ones for the constant.
        y, weight, offset, trials: a number for each row.
        varying: which further coordinates depend on the row.
        fixed: further coordinates that are not fitted, as they are; None if they are.
        ridge: the penalty of each coefficient.
    """

    response: AbstractResponse
    link: HostLink
    design: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    offset: np.ndarray | None
    trials: np.ndarray
    varying: tuple[bool, ...]
    fixed: np.ndarray | None
    ridge: np.ndarray

    @property
    def _sizes(self) -> list[int]:
        width = self.design.shape[1]
        return [width] if self.fixed is not None else [width, *(width if v else 1 for v in self.varying)]

    @property
    def size(self) -> int:
        """How many coefficients there are."""
        return sum(self._sizes)

    def parts(self, coefficients: np.ndarray) -> list[np.ndarray]:
        """The coefficients of each predictor."""
        if self.fixed is not None:
            return [coefficients]
        return np.split(coefficients, np.cumsum(self._sizes)[:-1])

    @functools.cached_property
    def _coordinate(self) -> Callable[[np.ndarray], Jet]:
        """From the predictor to the coordinate of the mean that the family has."""
        return self.response.coordinate_by(self.link)

    def _block(self, parts: list[np.ndarray], rows: slice) -> tuple[Terms, Jet, np.ndarray]:
        x = self.design[rows]
        eta = x @ parts[0]
        if self.offset is not None:
            eta = eta + self.offset[rows]
        jet = self._coordinate(eta)
        if self.fixed is not None:
            other = self.fixed
        else:
            other = np.empty((len(self.varying), len(x)))
            for place, (varies, own) in enumerate(zip(self.varying, parts[1:], strict=True)):
                other[place] = x @ own if varies else own[0]
        return self.response.terms(self.y[rows], jet[0], other, self.trials[rows]), jet, x

    def predictors(self, coefficients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The predictor of the mean of each row, and its further coordinates."""
        parts = self.parts(coefficients)
        eta = self.design @ parts[0]
        if self.offset is not None:
            eta = eta + self.offset
        if self.fixed is not None:
            return eta, self.fixed
        others = [
            self.design @ own if varies else np.full(len(eta), own[0])
            for varies, own in zip(self.varying, parts[1:], strict=True)
        ]
        return eta, np.stack(others)

    def blocks(self) -> list[slice]:
        """Rows part by part."""
        return [slice(start, start + BLOCK) for start in range(0, len(self.y), BLOCK)]

    @functools.cached_property
    def _base(self) -> float:
        """What the log-likelihood has that no coefficient changes."""
        return float(self.weight @ self.response.base(self.y, self.trials))

    def sample(self, rows: np.ndarray) -> Predictors:
        """Some of the rows."""
        offset = None if self.offset is None else self.offset[rows]
        return dataclasses.replace(
            self,
            design=self.design[rows],
            y=self.y[rows],
            weight=self.weight[rows],
            offset=offset,
            trials=self.trials[rows],
        )

    def at(self, coefficients: np.ndarray, *, observed: bool = False) -> Point:
        """The penalised log-likelihood; its information is the expected one where that is known.

        That of several predictors is the observed one, and with `observed` always.
        """
        parts = self.parts(coefficients)
        k = len(parts)
        bounds = [0, len(coefficients)] if k == 1 else [0, *np.cumsum(self._sizes).tolist()]
        value, slope = self._base, np.zeros(len(coefficients))
        information = np.zeros((len(coefficients), len(coefficients)))
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            for rows in self.blocks():
                terms, (_, ratio, bend), x = self._block(parts, rows)
                w = self.weight[rows]
                value += float(w @ terms.value)
                own = w * terms.slope[0] * ratio
                slope[: bounds[1]] += own @ x
                if k == 1 and terms.expected is not None and not observed:
                    root = x * np.sqrt(w * terms.expected * ratio**2)[:, None]
                    information += root.T @ root
                    continue
                curved = terms.curvature[0, 0] * ratio**2 - terms.slope[0] * bend
                information[: bounds[1], : bounds[1]] += (x * (w * curved)[:, None]).T @ x
                ones = np.ones((len(x), 1))
                designs = [x, *(x if varies else ones for varies in self.varying)]
                for i in range(1, k):
                    here = slice(bounds[i], bounds[i + 1])
                    slope[here] += (w * terms.slope[i]) @ designs[i]
                    for j in range(i + 1):
                        there = slice(bounds[j], bounds[j + 1])
                        factor = w * terms.curvature[i, j] * (ratio if j == 0 else 1.0)
                        part = (designs[i] * factor[:, None]).T @ designs[j]
                        information[here, there] += part
                        if i != j:
                            information[there, here] += part.T
        value -= 0.5 * float(self.ridge @ coefficients**2)
        slope -= self.ridge * coefficients
        diagonal_of(information)[:] += self.ridge
        return Point(value if np.isfinite(value) else -np.inf, slope, information)
