"""Words of a user inside our sentences and tables."""

from __future__ import annotations

import unicodedata
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
