"""Columns of any kind as columns of reals with a density, and back: for models that only draw."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np

from ._intake import Table
from ._schema import kinds_of, schema_of
from ._support import Column, Grid, Support

# a label is ±1 in each of its columns, and lies anywhere in the half of the line about that
_WIDTH = 2.0


class Spread(NamedTuple):
    """What the values of each column can be, and how they are spread over reals.

    A whole or rounded number stands for the cell about it.  A label with K values has K columns, of which
    that of its value lies above zero and the others below (argmax dequantisation), so that it is read off
    from the largest.

    Attributes:
        steps, origins: of the grid of each column; a step of zero where there is none.
        low, high: the least and the largest value that can occur.
        labels: how many values the label in a column has; zero for numbers.

    References:
        Hoogeboom et al. (2021), Argmax flows and multinomial diffusion.
    """

    steps: np.ndarray
    origins: np.ndarray
    low: np.ndarray
    high: np.ndarray
    labels: np.ndarray

    @staticmethod
    def of(owner: Any, x: np.ndarray, weight: np.ndarray) -> Spread:
        """What the columns hold that an estimator is fitted to: as a frame says it, or as it looks."""
        schema, columns = kinds_of(owner), x.shape[1]
        support = Support.recognise(x, weight) if schema is None else schema.support
        grids = [support.grid(column) for column in range(columns)]
        steps = np.array([0.0 if grid is None else grid.step for grid in grids])
        origins = np.array([0.0 if grid is None else grid.origin for grid in grids])
        least, most = np.nanmin(x, axis=0), np.nanmax(x, axis=0)
        low, high, labels = np.full(columns, -np.inf), np.full(columns, np.inf), np.zeros(columns, int)
        for column, field in enumerate([None] * columns if schema is None else schema.modelled):
            if support.constant[column]:
                low[column] = high[column] = least[column]
            elif field is not None and field.categories:
                low[column], high[column] = 0.0, len(field.categories) - 1
                # not every library of frames says whether labels have an order
                labels[column] = 0 if field.kind is Column.BINARY else len(field.categories)
            elif steps[column] and least[column] >= 0:
                # what was never seen below zero is no difference, but an amount
                low[column] = origins[column] + steps[column] * np.ceil(-origins[column] / steps[column])
                # zeros and ones alone are truth values
                high[column] = 1.0 if steps[column] == 1 and most[column] <= 1 else np.inf
        return Spread(steps, origins, low, high, labels)

    @property
    def _sizes(self) -> np.ndarray:
        return np.maximum(self.labels, 1)

    @property
    def width(self) -> int:
        """How many columns of reals there are."""
        return int(self._sizes.sum())

    @property
    def trivial(self) -> bool:
        """Whether all columns are reals already."""
        return not (self.steps.any() or self.labels.any())

    def widened(self, z: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Rescaled rows with columns for labels, of which `codes` are the rows before that."""
        if not self.labels.any():
            return z
        parts = [
            np.where(np.isnan(code)[:, None], np.nan, np.where(code[:, None] == np.arange(size), 1.0, -1.0))
            if size
            else column[:, None]
            for column, code, size in zip(z.T, codes.T, self.labels, strict=True)
        ]
        return np.concatenate(parts, axis=1)

    def narrowed(self, wide: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rescaled rows from those with columns for labels, and which of them are codes of labels."""
        ends = np.cumsum(self._sizes)
        parts = np.split(wide, ends[:-1], axis=1)
        narrow = [
            part.argmax(axis=1).astype(float) if size else part[:, 0]
            for part, size in zip(parts, self.labels, strict=True)
        ]
        return np.stack(narrow, axis=1), self.labels > 0

    def possible(self, x: np.ndarray) -> np.ndarray:
        """The values nearest to `x` that can occur, in the units of the user."""
        x = x.copy()
        for column in np.flatnonzero(self.steps):
            grid = Grid(float(self.origins[column]), float(self.steps[column]))
            x[:, column] = grid.snap(x[:, column])
        return np.clip(x, self.low, self.high)

    def cells(self, shift: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A corner and the width of the cells of each column of rescaled, widened rows; zero for none."""
        labels = self.labels > 0
        corner = np.where(labels, -_WIDTH, (self.origins - self.steps / 2 - shift) / scale)
        width = np.where(labels, _WIDTH, self.steps / scale)
        return np.repeat(corner, self._sizes), np.repeat(width, self._sizes)


class SpreadTable(Table):
    """A row for each sample, of columns of any kind, that models are given as reals.

    `spread_` of the estimator says what can occur; draws come back as such values.
    """

    @classmethod
    def _fitting(cls, owner: Any, passed: Any, x: np.ndarray, sample_weight: Any, known: Any) -> Self:
        taken = super()._fitting(owner, passed, x, sample_weight, known)
        assert taken.rows is not None
        owner.spread_ = Spread.of(owner, taken.rows.x, taken.rows.weight)
        owner._check_size(len(x), owner.spread_.width)
        return taken

    @classmethod
    def shaped(cls, owner: Any, rows: np.ndarray) -> np.ndarray:
        """Rescaled rows as the model has them."""
        spread = spread_of(owner)
        return rows if spread is None else spread.widened(rows, np.rint(owner.scaling_.invert(rows)))

    @classmethod
    def flat(cls, owner: Any, events: np.ndarray) -> np.ndarray:
        """Rescaled rows from those of the model."""
        spread = spread_of(owner)
        if spread is None:
            return super().flat(owner, events)
        narrow, labels = spread.narrowed(events)
        return np.where(labels, owner.scaling_.apply(np.where(labels, narrow, 0.0)), narrow)

    @classmethod
    def drawn(cls, owner: Any, x: np.ndarray) -> Any:
        schema, spread = schema_of(owner), spread_of(owner)
        x = x if spread is None else spread.possible(x)
        return x if schema is None else schema.decode(x)


def spread_of(owner: Any) -> Spread | None:
    """How an estimator spreads its columns; None of one that did not, such as one from an older file."""
    return vars(owner).get("spread_")
