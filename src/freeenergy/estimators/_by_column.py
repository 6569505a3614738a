"""Estimators of tables whose columns have each a family of their own."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..distributions import AbstractConjugatePrior, ByColumn, Product
from ..shell import AbstractDensity, Column, ColumnRoles, Field, Rows, Scaling, Schema
from ..shell._schema import kinds_of

WORD = "by column"


def by_column(family: Any) -> ByColumn | None:
    """The family of columns of different kinds, where `family` is one or the word for it."""
    if isinstance(family, str):
        return ByColumn() if family == WORD else None
    return family if isinstance(family, ByColumn) else None


def roles_by_column(schema: Schema) -> ColumnRoles:
    """What is meant by columns that have each a family of their own."""
    fields = schema.modelled
    labels = np.array([field.kind in (Column.CATEGORY, Column.ORDERED) for field in fields], bool)
    whole = np.array([field.kind in (Column.COUNT, Column.BINARY) for field in fields], bool)
    return ColumnRoles(labels | whole, labels, whole)


class AnyColumns(AbstractDensity):
    """A density of columns of any kind: what each of them means follows from its kind."""

    def takes(self, field: Field) -> bool:
        return True

    def column_roles(self, n_features: int) -> ColumnRoles:
        schema = kinds_of(self)
        return ColumnRoles.continuous(n_features) if schema is None else roles_by_column(schema)

    def roles_for(self, schema: Schema) -> ColumnRoles:
        return roles_by_column(schema)

    def _scaling(self, X: np.ndarray, weight: np.ndarray | None) -> Scaling:
        """Standardised numbers; what has a mass has no other unit."""
        whole, mass = Scaling.standardise(X, weight), self.column_roles(X.shape[1]).mass
        return Scaling(np.where(mass, 0.0, whole.shift), np.where(mass, 1.0, whole.scale))


def takes_by_family(family: Any, field: Field) -> bool:
    """Whether a family is about such columns: labels have to be its own, or two of them truth values."""
    if field.numeric or by_column(family) is not None:
        return True
    # where columns have several families, whoever listed these has to see to the codes
    if isinstance(family, (list, tuple)) or not isinstance(family, type):
        return False
    space = family.support
    return bool(space.has_labels(1).all() or (field.kind is Column.BINARY and space.has_mass(1).all()))


def member_by_column(
    family: ByColumn,
    owner: Any,
    rows: Rows | None = None,
    groups: np.ndarray | int | None = 1,
    like: Any = None,
) -> Product:
    """A member for the columns that were fitted.

    Args:
        family: of the columns.
        owner: the estimator, which knows their kinds.
        rows: what is fitted, for counts that are no Poisson.
        groups: how many members there are, or the number of the member of each row; None where each row has
            a rate of its own.
        like: a member that the fit goes on from, of whose shape it has to be.
    """
    schema = kinds_of(owner)
    assert schema is not None
    kinds = [field.kind.value for field in schema.modelled]
    tables = None if rows is None else family.tables(kinds, rows.x, rows.weight, groups, like)
    return family.member(kinds, [len(field.categories) for field in schema.modelled], tables)


def scaling_by_column(member: Product, X: np.ndarray, weight: np.ndarray | None) -> Scaling:
    """Standardised numbers; columns of other families have no other unit."""
    whole = Scaling.standardise(X, weight)
    plain = ~member.unit_free_columns(X.shape[1])
    return Scaling(np.where(plain, 0.0, whole.shift), np.where(plain, 1.0, whole.scale))


def prior_by_column(
    family: ByColumn, member: Product, rows: Rows, members: int, groups: int | None = None
) -> AbstractConjugatePrior | None:
    """The weak prior of each of several `members`; of known ones there are as many as `groups`."""
    seen = ~np.isnan(rows.x)
    total = rows.weight @ np.where(seen, rows.x, 0.0)
    tables = family.imagined(member, rows.x, rows.weight, members if groups is None else groups)
    return family.prior(member, total / (rows.weight @ seen), members, tables)
