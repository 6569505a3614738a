"""For the reference: examples in docstrings, which doctest reads, as blocks of code.

Markdown would take the three signs before each line for quotations.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

# lines that begin with the signs, and what they print, up to an empty line
_EXAMPLE = re.compile(r"^(?P<space> *)>>> .*(?:\n(?! *$).*)*", re.MULTILINE)


def _fenced(found: re.Match[str]) -> str:
    space = found["space"]
    return f"{space}```pycon\n{found[0]}\n{space}```"


class Doctests(griffe.Extension):
    """Fences the examples of every docstring."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Changes the text before it is parsed."""
        if obj.docstring is not None:
            obj.docstring.value = _EXAMPLE.sub(_fenced, obj.docstring.value)
