"""How the program speaks."""

from __future__ import annotations

import typer


def _visible(text: str) -> str:
    """`text` as a terminal may have it; names in the data may hold commands for it."""
    if text.isprintable():
        return text
    from freeenergy._core import visible

    return visible(text)


def in_options(sentence: str) -> str:
    """A sentence of the library that names what Python would call, with the option that does the same.

    >>> in_options("Declare the kind, as in Schema.recognise(X, kinds=…).rows(X), to have a model of it.")
    'Declare the kind (--schema NAME=KIND) to have a model of it.'
    """
    return sentence.replace(", as in Schema.recognise(X, kinds=…).rows(X),", " (--schema NAME=KIND)")


def tell(text: str) -> None:
    """Lines on standard output."""
    typer.echo("\n".join(map(_visible, text.split("\n"))))


def say(sentence: str) -> None:
    """A sentence on standard error."""
    typer.echo(_visible(" ".join(sentence.split())), err=True)


def print_table(titles: list[str], lines: list[list[str]], *, left: tuple[int, ...] = (0,)) -> None:
    """Columns side by side; those of the places `left` begin on the left, the others end on the right."""
    widths = [max(map(len, column)) for column in zip(titles, *lines, strict=True)]
    for line in [titles, *lines]:
        cells = [
            cell.ljust(width) if place in left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths))
        ]
        tell("  ".join(cells).rstrip())
