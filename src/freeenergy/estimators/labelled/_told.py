"""What summaries list of estimators that work in other units: kernels in those of the data, and members."""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...kernels import AbstractKernel
from ...shell import Coefficients, Scaling
from ...shell._base import Shell
from ...shell._schema import kinds_of
from ...shell._summary import Along, named_parameters, parameters_of
from ._design import TakesAnyColumns


class Told(NamedTuple):
    """Something that a summary lists.

    Attributes:
        value: its numbers, in the units of the data.
        along: what stands along each of its axes.
    """

    value: np.ndarray
    along: Along


class TellsInUnits(TakesAnyColumns):
    """Lists parameters in the units of the data, which are not those of its model."""

    @abc.abstractmethod
    def _told(self) -> dict[str, Told]:
        """What is listed, by name; nothing if the parameters of the model are."""

    def _listed(self) -> dict[str, np.ndarray]:
        return {name: part.value for name, part in self._told().items()}

    def _along(self, name: str, shape: tuple[int, ...]) -> Along:
        found = self._told().get(name)
        return super()._along(name, shape) if found is None else found.along


def told_of_kernel(
    kernel: AbstractKernel,
    scaling: Scaling,
    columns: list[str],
    factors: np.ndarray | None = None,
    answers: Sequence[str] | None = None,
) -> dict[str, Told]:
    """The parameters of a kernel of rescaled columns in the units of the data; nothing if it has no others.

    Args:
        kernel: as the model has it.
        scaling: of the columns.
        columns: what they are called.
        factors: how many times as large the kernel is for each output in the units of the answers; None
            for a kernel without such units.
        answers: what the outputs are called.

    >>> from freeenergy.kernels import RBF
    >>> units = Scaling(np.array([5.0]), np.array([10.0]))
    >>> told = told_of_kernel(2.0 * RBF(3.0), units, ["a"], np.array([4.0]))
    >>> {name: part.value.tolist() for name, part in told.items()}
    {'kernel.kernel.lengthscale': [30.0], 'kernel.variance': 8.0}
    """
    own = kernel if scaling.is_identity else kernel.in_units(scaling.scale)
    if own is None:
        return {}
    if factors is None:
        return {name: Told(value, _per_column(value, columns)) for name, value in _named(own).items()}
    each, other = (
        [_named(own.times(float(factor))) for factor in factors],
        _named(own.times(2 * factors[0])),
    )
    found = {}
    for name, value in each[0].items():
        along = _per_column(value, columns)
        # outputs share what has no unit of theirs
        if len(factors) > 1 and (other[name] != value).any():
            found[name] = Told(np.stack([part[name] for part in each]), (answers, *along))
        else:
            found[name] = Told(value, along)
    return found


def about_means(**scalings: Scaling) -> list[str]:
    """Says what is counted from its means, of columns and answers, where that is so.

    >>> about_means(columns=Scaling.identity(2), answers=Scaling(np.array([3.0]), np.array([1.0])))
    ['The kernel is of answers less their means.']
    """
    moved = [name for name, scaling in scalings.items() if (scaling.shift != 0).any()]
    return [f"The kernel is of {' and '.join(moved)} less their means."] if moved else []


def _named(kernel: AbstractKernel) -> dict[str, np.ndarray]:
    return {f"kernel.{name}": np.asarray(value) for name, value in named_parameters(kernel).items()}


def _per_column(value: np.ndarray, columns: list[str]) -> Along:
    """A parameter of a kernel is one number, or one for each column."""
    return tuple(columns if size == len(columns) else None for size in value.shape)


class Member(NamedTuple):
    """One of the estimators that another one is made of.

    Attributes:
        estimator: it.
        columns: what its columns are called.
        prefix: what the names of its parameters begin with.
        answers: what its answers are called, if they are.
    """

    estimator: Any
    columns: list[str]
    prefix: str = ""
    answers: list[str] | None = None


def told_of_members(members: list[Member], robust: bool) -> Coefficients:
    """The parameters of members as their own summaries list them, one after another."""
    tables = [_table_of(member) for member in members]
    notes = list(dict.fromkeys(note for table in tables for note in table.notes))
    stderr = None
    if robust:
        notes.append("Robust standard errors are in the summaries of the members, with their rows.")
    elif any(table.stderr is not None for table in tables):
        stderr = np.concatenate(
            [np.full(len(t.values), math.nan) if t.stderr is None else t.stderr for t in tables]
        )
    alike = len({table.dof for table in tables}) == 1
    return Coefficients(
        [name for table in tables for name in table.names],
        np.concatenate([table.values for table in tables]),
        stderr,
        tables[0].dof if alike else None,
        tables[0].facts if len(tables) == 1 else {},
        notes,
    )


def _table_of(member: Member) -> Coefficients:
    estimator, name = member.estimator, type(member.estimator).__name__
    if not isinstance(estimator, Shell):
        note = f"{name} is of another library, which has its parameters."
        return Coefficients([], np.zeros(0), None, None, {}, [note])
    if kinds_of(estimator) is None:
        # it was given rows without names
        estimator = estimator._calling(member.columns)
    if member.answers is not None:
        vars(estimator)["answer_names_"] = member.answers
    table = parameters_of(estimator, None, False, {})
    names = [f"{member.prefix}{own}" for own in table.names]
    return table._replace(names=names, notes=[f"Parameters are those of a fitted {name}.", *table.notes])
