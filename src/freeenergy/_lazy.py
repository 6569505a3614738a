"""Packages whose names are imported when they are first used.

What a package offers stands in the stub beside its `__init__.py`, where readers, editors and type
checkers find it; a fit of one estimator then imports what that one needs.
"""

import ast
import contextlib
import functools
import gc
import pkgutil
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any


def declared(file: str) -> dict[str, str]:
    """Each name that the stub beside `file` imports, and the module that has it, as the package sees it."""
    stub = ast.parse(Path(file).with_suffix(".pyi").read_text("utf-8"))
    lines = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    homes = ((alias.name, line.level, line.module) for line in lines for alias in line.names)
    return {name: "." * level + (module or name) for name, level, module in homes}


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """No search for garbage meanwhile: what is imported stays, and a search takes an eighth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def lazy(package: str, file: str, scope: dict[str, Any]) -> tuple[list[str], Callable, Callable]:
    """`__all__`, `__getattr__` and `__dir__` of a package with a stub.

    Args:
        package: its `__name__`.
        file: its `__file__`.
        scope: its `globals()`, where what was found is kept.
    """
    homes = declared(file)

    def find(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with collector_paused():
            module = import_module(home, package)
        scope[name] = found = module if home == f".{name}" else getattr(module, name)
        return found

    return sorted(homes), find, lambda: sorted({*scope, *homes})


@functools.cache
def import_whole(package: str) -> None:
    """Imports every module of a package, for those who ask what there is."""
    with collector_paused():
        for found in pkgutil.walk_packages(import_module(package).__path__, f"{package}."):
            import_module(found.name)
