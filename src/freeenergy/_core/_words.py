"""Words of a user inside our sentences and tables."""

from __future__ import annotations

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
