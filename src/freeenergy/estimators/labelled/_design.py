"""Columns of a table as the numbers that a function of the row is given."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...shell import AbstractRowEstimator, Field
from ...shell._schema import kinds_of


def _is_number(field: Field) -> bool:
    """Whether a column is taken as it is: numbers, and two labels, which are 0 and 1."""
    return field.numeric or len(field.categories) <= 2


class TakesAnyColumns(AbstractRowEstimator):
    """Takes columns of any kind: one of labels is a column of 0 and 1 for each label but the first."""

    def takes(self, field: Field) -> bool:
        return True

    def as_modelled(self, X: np.ndarray) -> np.ndarray:
        schema = kinds_of(self)
        if schema is None:
            return X
        parts = []
        for field, codes in zip(schema.modelled, X.T, strict=True):
            column = codes[:, None]
            if not _is_number(field):
                ones = column == np.arange(1, len(field.categories))
                column = np.where(np.isnan(column), np.nan, ones)
            parts.append(column)
        return np.concatenate(parts, axis=1)

    @property
    def columns_(self) -> list[str]:
        """What the columns of `coef_` are called: those of X, or NAME=LABEL."""
        schema: Any = kinds_of(self)
        if "_columns" in vars(self):
            return vars(self)["_columns"]
        if schema is None:
            names = getattr(self, "feature_names_in_", None)
            return [f"x{j}" for j in range(self.n_features_in_)] if names is None else list(map(str, names))
        labels = [
            [""] if _is_number(field) else [f"={label}" for label in field.categories[1:]]
            for field in schema.modelled
        ]
        return [f"{field.name}{label}" for field, own in zip(schema.modelled, labels) for label in own]
