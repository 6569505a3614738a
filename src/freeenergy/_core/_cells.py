"""Sentences about one entry of the data, which say where it is."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Self

import numpy as np


class CellError(ValueError):
    """An entry that cannot be: what is wrong, the value, and where it stands.

    Who finds it knows the column of the array at hand, often of rows in another order; who was called by
    the user names the row and the column as the user has them: `CellError.placed`, `cells_of`.  In Python
    a row has the label of the frame's index, or its position from zero.

    >>> str(CellError("Poisson needs counts.", -3.0, 1))
    'Poisson needs counts. Got -3 in column 1.'
    >>> str(CellError("Poisson needs counts.", -3.0, 1).placed(5, [[1, 2]], names=["size", "age"]))
    "Poisson needs counts. Got -3 in row 5, column 'age'."
    """

    def __init__(
        self,
        problem: str,
        value: Any,
        column: int,
        row: str | None = None,
        name: str | int | None = None,
        position: int | None = None,
    ) -> None:
        # all of it, so that an error comes back whole from another process
        super().__init__(problem, value, column, row, name, position)
        self.problem, self.value, self.column = problem, value, column
        self.row, self.name, self.position = row, name, position

    def __str__(self) -> str:
        value = repr(self.value) if isinstance(self.value, str) else f"{self.value:g}"
        row = "" if self.row is None else f"{self.row}, "
        name = self.column if self.name is None else repr(self.name)
        return f"{self.problem} Got {value} in {row}column {name}."

    def moved(self, column: int) -> Self:
        """The same of an array in which the column at hand is `column`."""
        return type(self)(self.problem, self.value, column, self.row, self.name, self.position)

    def named(self, names: Any) -> Self:
        """The same with the name of the column, and without the row."""
        name = None if names is None else names[self.column]
        name = name if isinstance(name, int | None) else str(name)
        return type(self)(self.problem, self.value, self.column, None, name)

    def placed(self, position: int, X: Any, *, names: Any = None) -> Self:
        """The same in the row `position` of `X`, as the user passed it, with the names of its columns.

        Several series count their steps one after another.
        """
        found = self.named(names)
        row = _row_in_words(position, X)
        return type(self)(self.problem, self.value, self.column, row, found.name, position)


def _row_in_words(position: int, X: Any) -> str:
    # of a frame with dates no array could be made
    if (isinstance(X, (list, tuple)) and np.ndim(X[0]) > 1) or getattr(X, "ndim", 2) == 3:
        ends = np.cumsum([len(part) for part in X])
        number = int(np.searchsorted(ends, position, side="right"))
        return f"step {position - int(ends[number] - len(X[number]))} of series {number}"
    index = getattr(X, "index", None)
    # a list has a method of that name
    label = position if index is None or callable(index) else index[position]
    return f"row {label.item() if isinstance(label, np.generic) else label!r}"


@contextlib.contextmanager
def cells_of(X: Any, rows: np.ndarray, names: Any = None) -> Iterator[None]:
    """Where something goes wrong in a cell, says in which of `rows`, which are those of `X`.

    It is the first row with the same value in the same column, since learning has an order of its own.
    """
    try:
        yield
    except CellError as error:
        found = np.flatnonzero(rows[:, error.column] == error.value)
        if not len(found):
            raise error.named(names) from None
        raise error.placed(int(found[0]), X, names=names) from None
