"""Words of a user inside our sentences and tables."""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Sequence
from typing import Any


def visible(text: Any) -> str:
    r"""`text` with every character that a terminal would obey, and not show, as its escape.

    >>> visible("a\x1b[2Jb [bold]")
    'a\\x1b[2Jb [bold]'
    """
    words = str(text)
    if words.isprintable():
        return words
    obeyed = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
    return "".join(
        c.encode("unicode_escape").decode() if unicodedata.category(c) in obeyed else c for c in words
    )


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of words as lines of a table: the first column flush left, the others flush right.

    >>> aligned([["name", "value"], ["a", "1"]])
    ['name  value', 'a         1']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        rest = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        lines.append("  ".join([row[0].ljust(widths[0]), *rest]).rstrip())
    return lines


def html_table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """The same table for notebooks.

    >>> "&lt;1&gt;" in html_table(["a"], [["<1>"]])
    True
    """

    def row(cells: Sequence[str], tag: str) -> str:
        sides = ("right" if i else "left" for i in range(len(cells)))
        return "".join(
            f"<{tag} style='text-align:{side}'>{html.escape(cell)}</{tag}>"
            for cell, side in zip(cells, sides, strict=True)
        )

    body = "".join(f"<tr>{row(line, 'td')}</tr>" for line in lines)
    return f"<table><thead><tr>{row(head, 'th')}</tr></thead><tbody>{body}</tbody></table>"
