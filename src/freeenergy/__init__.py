"""Statistical learning with one energy, three verbs and one honest scale.

Importing the library turns JAX's 64-bit mode on and sets up a compilation cache on disk.
"""

from ._core import configure as _configure

_configure()
