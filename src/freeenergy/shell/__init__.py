"""What all estimators share: what goes in, what they can do, files.  No model is in it."""

from ._base import AbstractDensity, AbstractExactDensity, Shell
from ._chunks import Chunks
from ._rows import Rows, Scaling
from ._sequence import AbstractSequenceDensity
from ._support import Column, Support

__all__ = [
    "AbstractDensity",
    "AbstractExactDensity",
    "AbstractSequenceDensity",
    "Chunks",
    "Column",
    "Rows",
    "Scaling",
    "Shell",
    "Support",
]
