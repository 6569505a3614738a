"""Bayesian networks in files: the Bayesian interchange format (BIF 0.15)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np

from .._core import write_whole
from ..models import BayesianNetwork

_TOKEN = re.compile(r'\s+|//[^\n]*|/\*.*?\*/|"[^"\n]*"|[{}()\[\],;|]|[^\s{}()\[\],;|"]+', re.DOTALL)
# rows of a table in a file are rounded
_ROUNDED = 1e-3
_LARGEST = 2**25


class _Word(NamedTuple):
    text: str
    line: int


class _Reader:
    """The words of a file, one after another."""

    def __init__(self, text: str, source: str) -> None:
        self.source, self.last = source, 1
        self._words = self._split(text)
        self._next: _Word | None = next(self._words, None)

    def _split(self, text: str) -> Iterator[_Word]:
        line, place = 1, 0
        while place < len(text):
            found = _TOKEN.match(text, place)
            if found is None:
                self.last = line
                self.fail(f"has a quotation mark or a comment without an end: {text[place : place + 20]!r}")
            word = found[0]
            if not word.isspace() and not word.startswith(("//", "/*")):
                yield _Word(word, line)
            line += word.count("\n")
            place = found.end()

    def fail(self, what: str) -> NoReturn:
        raise ValueError(f"'{self.source}', line {self.last}, {what}.")

    @property
    def more(self) -> bool:
        return self._next is not None

    def peek(self) -> str:
        return "" if self._next is None else self._next.text

    def take(self) -> str:
        if self._next is None:
            self.fail("ends too early")
        word = self._next
        self.last = word.line
        self._next = next(self._words, None)
        return word.text.strip('"') if word.text.startswith('"') else word.text

    def expect(self, *words: str) -> None:
        for wanted in words:
            found = self.take()
            if found.lower() != wanted:
                self.fail(f"must have {wanted!r}. Got {found!r} instead")

    def until(self, end: str) -> list[str]:
        """Words up to `end`, without commas."""
        found = []
        while (word := self.take()) != end:
            if word in "{}()[];":
                self.fail(f"must have {end!r}. Got {word!r} instead")
            if word != ",":
                found.append(word)
        return found

    def numbers(self) -> list[float]:
        found = []
        for word in self.until(";"):
            try:
                found.append(float(word))
            except ValueError:
                self.fail(f"must have a number. Got {word!r} instead")
        return found


def read_bif(path: str | os.PathLike[str]) -> BayesianNetwork:
    """The Bayesian network of a BIF file, as those of the Bayesian network repository are.

    Args:
        path: the file.  Comments, properties and `default` rows are understood; a `table` of a variable
            with parents has the states of the variable itself outermost, as the format says.

    A file that is none is refused with a sentence that has the line.
    """
    text = Path(path).read_text("utf-8", errors="replace")
    return parse_bif(text, source=os.fspath(path))


def parse_bif(text: str, *, source: str = "text") -> BayesianNetwork:
    """The Bayesian network that a text in BIF describes.

    >>> network = parse_bif('''
    ... network rain {}
    ... variable rain { type discrete [ 2 ] { yes, no }; }
    ... variable wet { type discrete [ 2 ] { yes, no }; }
    ... probability ( rain ) { table 0.2, 0.8; }
    ... probability ( wet | rain ) { (yes) 0.9, 0.1; (no) 0.1, 0.9; }
    ... ''')
    >>> round(network.posterior({"wet": "yes"}).marginal("rain")["yes"], 4)
    0.6923
    """
    reader = _Reader(text, source)
    states: dict[str, list[str]] = {}
    tables: dict[str, np.ndarray] = {}
    parents: dict[str, list[str]] = {}
    while reader.more:
        word = reader.take().lower()
        if word == "network":
            while reader.peek() != "{":
                reader.take()
            reader.take()
            _skip_properties(reader)
        elif word == "variable":
            _variable(reader, states)
        elif word == "probability":
            _probability(reader, states, tables, parents)
        else:
            reader.fail(f"must begin with 'network', 'variable' or 'probability'. Got {word!r} instead")
    if not states:
        reader.fail("has no variable")
    without = [name for name in states if name not in tables]
    if without:
        reader.fail(f"ends without a probability of {without[0]!r}")
    ordered = {name: tables[name] for name in states}
    try:
        return BayesianNetwork.of_tables(ordered, parents, states)
    except ValueError as error:
        raise ValueError(f"'{source}': {error}") from None


def _skip_properties(reader: _Reader) -> None:
    """To the end of a block that has nothing but properties."""
    while (word := reader.take()) != "}":
        if word.lower() != "property":
            reader.fail(f"must have 'property' or '}}'. Got {word!r} instead")
        while reader.take() != ";":
            pass


def _variable(reader: _Reader, states: dict[str, list[str]]) -> None:
    name = reader.take()
    if name in states:
        reader.fail(f"has the variable {name!r} for a second time")
    reader.expect("{")
    labels: list[str] | None = None
    while (word := reader.take()) != "}":
        if word.lower() == "property":
            while reader.take() != ";":
                pass
            continue
        if word.lower() != "type":
            reader.fail(f"must have 'type', 'property' or '}}'. Got {word!r} instead")
        reader.expect("discrete", "[")
        size = reader.take()
        reader.expect("]", "{")
        labels = reader.until("}")
        if str(len(labels)) != size:
            reader.fail(f"must have {size} states of {name!r}. Got {len(labels)} instead")
        if len(set(labels)) != len(labels):
            reader.fail(f"must have distinct states of {name!r}")
        reader.expect(";")
    if not labels:
        reader.fail(f"ends the variable {name!r} without its type")
    states[name] = labels


def _probability(
    reader: _Reader,
    states: dict[str, list[str]],
    tables: dict[str, np.ndarray],
    parents: dict[str, list[str]],
) -> None:
    reader.expect("(")
    names = [name for name in reader.until(")") if name != "|"]
    if not names:
        reader.fail("must have the name of a variable")
    for name in names:
        if name not in states:
            reader.fail(f"has a variable {name!r} that was not declared before")
    child, above = names[0], names[1:]
    if child in tables:
        reader.fail(f"has the probability of {child!r} for a second time")
    if len(set(names)) != len(names):
        reader.fail(f"must have distinct parents of {child!r}")
    shape = tuple(len(states[name]) for name in (*above, child))
    if np.prod(np.array(shape, float)) > _LARGEST:
        reader.fail(f"has a table of {np.prod(np.array(shape, float)):.3g} numbers, too many for memory")
    table, default = np.full(shape, np.nan), None
    reader.expect("{")
    while (word := reader.take()) != "}":
        if word.lower() == "property":
            while reader.take() != ";":
                pass
        elif word.lower() == "table":
            values = reader.numbers()
            if len(values) != table.size:
                reader.fail(f"must have {table.size} numbers for {child!r}. Got {len(values)} instead")
            # the states of the variable itself are outermost
            table = np.moveaxis(np.reshape(values, (shape[-1], *shape[:-1])), 0, -1)
        elif word.lower() == "default":
            default = _row(reader, child, shape[-1])
        elif word == "(":
            given = reader.until(")")
            if len(given) != len(above):
                reader.fail(f"must have a state of each of {above}. Got {given} instead")
            place = []
            for name, state in zip(above, given, strict=True):
                if state not in states[name]:
                    reader.fail(f"must have a state of {name!r}. Got {state!r} instead")
                place.append(states[name].index(state))
            table[tuple(place)] = _row(reader, child, shape[-1])
        else:
            reader.fail(f"must have 'table', 'default', 'property', '(' or '}}'. Got {word!r} instead")
    if default is not None:
        table = np.where(np.isnan(table), default, table)
    if np.isnan(table).any():
        reader.fail(f"ends the probability of {child!r} without all rows")
    if (table < 0).any() or (np.abs(table.sum(axis=-1) - 1) > _ROUNDED).any():
        wrong = table[(table < 0).any(axis=-1) | (np.abs(table.sum(axis=-1) - 1) > _ROUNDED)][0]
        reader.fail(f"must have probabilities of sum one for {child!r}. Got {wrong.tolist()}")
    tables[child] = table / table.sum(axis=-1, keepdims=True)
    parents[child] = above


def _row(reader: _Reader, child: str, size: int) -> np.ndarray:
    values = reader.numbers()
    if len(values) != size:
        reader.fail(f"must have {size} numbers for {child!r}. Got {len(values)} instead")
    return np.array(values)


def write_bif(network: BayesianNetwork, path: str | os.PathLike[str]) -> None:
    """Writes a Bayesian network of labels to a BIF file, from which `read_bif` makes the same one."""
    write_whole(Path(path), bif_of(network).encode("utf-8"))


def bif_of(network: BayesianNetwork) -> str:
    """A Bayesian network of labels in the words of BIF.

    >>> print(bif_of(BayesianNetwork.of_tables({"a": [0.25, 0.75]}, {})))
    network unknown {
    }
    variable a {
      type discrete [ 2 ] { 0, 1 };
    }
    probability ( a ) {
      table 0.25, 0.75;
    }
    <BLANKLINE>
    """
    factors, lines = network.rows().factors, ["network unknown {", "}"]
    for name, labels in zip(network.names, network.states, strict=True):
        own = ", ".join(map(_quoted, labels))
        lines += [f"variable {_quoted(name)} {{", f"  type discrete [ {len(labels)} ] {{ {own} }};", "}"]
    for v, factor in enumerate(factors):
        table = np.exp(factor.logs)
        above = network.parents[v]
        if not above:
            lines += [f"probability ( {_quoted(network.names[v])} ) {{", f"  table {_listed(table)};", "}"]
            continue
        given = ", ".join(_quoted(network.names[p]) for p in above)
        lines.append(f"probability ( {_quoted(network.names[v])} | {given} ) {{")
        for place in np.ndindex(*table.shape[:-1]):
            own = ", ".join(_quoted(network.states[p][k]) for p, k in zip(above, place, strict=True))
            lines.append(f"  ({own}) {_listed(table[place])};")
        lines.append("}")
    return "\n".join(lines) + "\n"


def _quoted(name: str) -> str:
    if '"' in name or "\n" in name:
        raise ValueError(f"A name in a BIF file must have no quotation mark or end of line. Got {name!r}.")
    plain = name and not re.search(r'[\s{}()\[\],;|"]|//|/\*', name)
    return name if plain else f'"{name}"'


def _listed(row: np.ndarray) -> str:
    return ", ".join(repr(float(p)) for p in row)
