"""Statistical learning with one energy, three verbs and one honest scale.

Importing the library turns JAX's 64-bit mode on and sets up a compilation cache on disk.  JAX and the
models themselves are imported when a name is first used.
"""

from importlib import metadata as _metadata
from typing import Any

from ._lazy import lazy as _lazy
from ._settings import configure as _configure

_configure()

__all__, _find, _names = _lazy(__name__, __file__, globals())


def __getattr__(name: str) -> Any:
    return _metadata.version("freeenergy") if name == "__version__" else _find(name)


def __dir__() -> list[str]:
    return [*_names(), "__version__"]
