"""What is known and said of the columns of a comparison, and which densities may take them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...estimators import Dequantised, Support
from ...shell import AbstractRowEstimator, AbstractSequenceDensity, CodedRows, Column, Schema, ScoresRows
from ...shell._frames import table_library
from ...shell._schema import recognised

# the share of one value from which on a column is hardly continuous
_TIED = 0.05


def named_columns(names: list[str], columns: np.ndarray) -> str:
    """The names of some columns in a sentence."""
    chosen = [repr(names[i]) for i in np.flatnonzero(columns)]
    if len(chosen) > 6:
        chosen = [*chosen[:5], f"{len(chosen) - 5} more"]
    listed = chosen[0] if len(chosen) == 1 else f"{', '.join(chosen[:-1])} and {chosen[-1]}"
    return f"{'Column' if len(chosen) == 1 else 'Columns'} {listed}"


def constant_note(names: list[str], support: Support) -> list[str]:
    """What a reader should know of columns that do not vary."""
    if not support.constant.any():
        return []
    verb = "is constant and" if support.constant.sum() == 1 else "are constant and"
    return [f"{named_columns(names, support.constant)} {verb} left out for every model."]


def schema_notes(names: list[str], schema: Schema, labels: np.ndarray) -> list[str]:
    """What a reader should know of columns that are left out, and of labels."""
    notes = []
    for kinds, what in (
        ((Column.CONSTANT,), "constant"),
        ((Column.IDENTIFIER, Column.TEXT), "taken for identifiers or text"),
    ):
        chosen = np.array([field.kind in kinds for field in schema.fields])
        if chosen.any():
            verb = "is" if chosen.sum() == 1 else "are"
            everything = [str(name) for name in schema.names]
            notes.append(f"{named_columns(everything, chosen)} {verb} {what} and left out for every model.")
    if labels.any():
        verb = "hold" if labels.sum() > 1 else "holds"
        notes.append(
            f"{named_columns(names, labels)} {verb} labels. Models of continuous columns take their codes "
            "for whole numbers, of which the order means nothing."
        )
    return notes


def cell_notes(
    names: list[str], support: Support, X: np.ndarray, labels: np.ndarray | None = None
) -> list[str]:
    """What a reader should know of columns whose values occur again and again."""
    notes = []
    whole = support.integer if labels is None else support.integer & ~labels
    if whole.any():
        verb = "hold" if whole.sum() > 1 else "holds"
        notes.append(f"{named_columns(names, whole)} {verb} whole numbers.")
    if support.rounded.any():
        several = support.rounded.sum() > 1
        steps = sorted({f"{step:.3g}" for step in np.array(support.steps)[support.rounded]}, key=float)
        shown = ", ".join(steps) if len(steps) <= 3 else f"{steps[0]} to {steps[-1]}"
        notes.append(
            f"{named_columns(names, support.rounded)} {'are' if several else 'is'} rounded "
            f"(to steps of {shown})."
        )
    if support.cells.any():
        notes.append(
            "Bits are of the probability mass of such values; models of continuous columns are fitted to "
            "them with uniform noise. A continuous support gives densities instead."
        )
    tied = np.zeros(len(support), bool)
    for column in np.flatnonzero(support.continuous):
        seen = X[:, column][~np.isnan(X[:, column])]
        tied[column] = np.unique(seen, return_counts=True)[1].max() > _TIED * len(seen)
    if tied.any():
        notes.append(
            f"{named_columns(names, tied)}: one value is more than {_TIED:.0%} of all, but there is no "
            "grid of values. Densities can be made higher there the narrower a model may get; do not trust "
            "them."
        )
    return notes


def checked_support(support: Any, X: np.ndarray) -> Support:
    """The support that was declared, or that of `X`; refused if no column varies."""
    support = Support.recognise(X) if support is None else support
    if not isinstance(support, Support) or len(support) != X.shape[1]:
        raise ValueError(
            f"The 'support' parameter of compare must be a Support of {X.shape[1]} columns or None. "
            f"Got {support!r} instead."
        )
    if support.constant.all():
        raise ValueError("Every column of X is constant: there is nothing to compare models on.")
    return support


def mass_columns(estimator: Any, support: Support, schema: Schema | None = None) -> np.ndarray:
    """The columns to which the estimator gives a probability mass, none of which may be continuous."""
    roles = estimator.column_roles(len(support)) if schema is None else estimator.roles_for(schema)
    name, mass = type(estimator).__name__, roles.mass
    if len(mass) == len(support):
        if (mass & support.continuous).any():
            raise ValueError(
                f"{name} gives a probability mass to columns that are continuous, which has no common unit "
                "with the densities of the other models."
            )
        if (mass & support.rounded).any():
            raise ValueError(
                f"{name} gives a probability mass to whole numbers, but some columns are rounded to "
                "others. Rescale them to whole numbers to compare it."
            )
    return mass


def admitted_density(
    estimator: Any, support: Support, X: np.ndarray, schema: Schema | None = None
) -> ScoresRows:
    """The estimator with a probability mass where columns are whole, and without constant columns."""
    name = type(estimator).__name__
    if isinstance(estimator, Dequantised):
        if estimator.support is None:
            options: Any = estimator.get_params(deep=False) | {"support": support}
            return Dequantised(**options)
        if estimator.support != support:
            raise ValueError(f"The 'support' of {name} is not that of the comparison.")
        return estimator
    kept = X[:, ~support.constant]
    if not np.array_equal(estimator.as_modelled(kept), kept, equal_nan=True):
        raise ValueError(
            f"{name} turns X into zeros and ones, of which the evidence is not that of X. "
            "Pass X as zeros and ones to compare it."
        )
    mass = mass_columns(estimator, support, schema)
    if (support.cells & ~mass).any() or support.constant.any():
        return Dequantised(estimator, support)
    return estimator


def needs_kinds(model: Any) -> bool:
    """Whether a density has to know what columns hold."""
    inner = model.estimator if isinstance(model, Dequantised) else model
    return isinstance(inner, AbstractRowEstimator | AbstractSequenceDensity) and inner.needs_kinds


def schema_of(X: Any, support: Any, models: Any) -> tuple[Schema, np.ndarray] | None:
    """What the columns hold, and their numbers; None for numbers of which models need to know no more."""
    if isinstance(support, Schema):
        return support, support.encode(X)
    if isinstance(X, CodedRows):
        return X.schema, X.x
    library = table_library(X)
    if support is not None or library is None:
        return None
    wanted = any(map(needs_kinds, models))
    return recognised(X, library=library) if not library.plain(X) or wanted else None
