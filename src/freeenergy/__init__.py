"""Statistical learning with one energy, three verbs and one honest scale.

Importing the library turns JAX's 64-bit mode on and sets up a compilation cache on disk.  JAX and the
models themselves are imported when a name is first used.
"""

import ast as _ast
from importlib import import_module as _import_module
from importlib import metadata as _metadata
from pathlib import Path as _Path
from typing import Any

from ._settings import configure as _configure

_configure()


def _declared() -> dict[str, str]:
    """Each public name and the module that defines it, as the stub beside this file declares them."""
    stub = _ast.parse(_Path(__file__).with_suffix(".pyi").read_text("utf-8"))
    lines = [node for node in stub.body if isinstance(node, _ast.ImportFrom)]
    return {alias.name: line.module or alias.name for line in lines for alias in line.names}


_HOMES = _declared()
__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _metadata.version("freeenergy")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _import_module(f"{__name__}.{home}")
    globals()[name] = found = module if home == name else getattr(module, name)
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, "__version__"])
