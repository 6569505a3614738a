"""Layers are a test: each part imports only those above it in the list of the design."""

import ast
import gc
import importlib
import sys
import types
from pathlib import Path

import pytest

from freeenergy._layers import ENTRIES, LAYERS, SCIKIT_LEARN_FROM, TOP
from freeenergy._lazy import collector_paused, declared

SETTINGS = "_settings"  # what JAX is told before anything imports it
LIST = "_layers"
LAZY = "_lazy"  # how packages import what is asked of them
ROOT = "freeenergy"

RANKS = {
    SETTINGS: -1,
    LIST: -1,
    LAZY: -1,
    **{name: rank for rank, name in enumerate(LAYERS)},
    **dict.fromkeys(TOP, len(LAYERS)),
    ROOT: len(LAYERS) + 1,
    **dict.fromkeys(ENTRIES, len(LAYERS) + 2),
}


def part_of(module: tuple[str, ...]) -> str:
    """The part that a module of the package belongs to: `("freeenergy", "nn", "_x")` → `nn`."""
    return module[1] if len(module) > 1 else ROOT


def imports(source: str, package: tuple[str, ...]) -> list[tuple[int, tuple[str, ...]]]:
    """Line and absolute name of every module that `source` imports, inside functions too.

    In `from a import b`, `b` may be a module: it is taken for one where `a` is the root, whose
    modules are the parts.
    """
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, tuple(alias.name.split("."))) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            base += tuple(node.module.split(".")) if node.module else ()
            if base == (ROOT,):
                found += [
                    (node.lineno, (*base, alias.name) if alias.name in RANKS else base)
                    for alias in node.names
                ]
            else:
                found.append((node.lineno, base))
    return found


def violations(source: str, module: tuple[str, ...], *, is_package: bool = False) -> list[str]:
    """What is wrong with the imports of one file, a sentence each."""
    part = part_of(module)
    name = ".".join(module)
    if part not in RANKS:
        return [f"{name} has no place in the list of layers"]
    problems = []
    for line, target in imports(source, module if is_package else module[:-1]):
        if target[:1] == ("sklearn",) and RANKS[part] < RANKS[SCIKIT_LEARN_FROM]:
            problems.append(f"{name}:{line} imports scikit-learn below the shell")
        if target[:1] != (ROOT,):
            continue
        other = part_of(target)
        if other not in RANKS:
            problems.append(f"{name}:{line} imports {'.'.join(target)}, which is in no layer")
        elif RANKS[other] > RANKS[part]:
            problems.append(f"{name}:{line} imports {'.'.join(target)}, which is above it")
    return problems


def modules(source: Path) -> dict[tuple[str, ...], Path]:
    """Every file of the package by its dotted name."""
    found = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source.parent).with_suffix("").parts
        found[parts[:-1] if parts[-1] == "__init__" else parts] = path
    return found


def cycles(graph: dict[str, set[str]]) -> list[str]:
    """The nodes that can reach themselves."""

    def reachable(start: str) -> set[str]:
        seen: set[str] = set()
        frontier = set(graph[start])
        while frontier:
            seen |= frontier
            frontier = {n for m in frontier for n in graph.get(m, ())} - seen
        return seen

    return sorted(node for node in graph if node in reachable(node))


def test_each_part_imports_only_what_is_above_it_in_the_list(root):
    problems = [
        problem
        for module, path in modules(root / "src" / ROOT).items()
        for problem in violations(path.read_text("utf-8"), module, is_package=path.name == "__init__.py")
    ]
    assert not problems, "\n".join(problems)


def test_the_top_modules_do_not_import_each_other_in_a_circle(root):
    graph = {
        module[1]: {
            part_of(target)
            for _, target in imports(path.read_text("utf-8"), module[:-1])
            if target[:1] == (ROOT,) and part_of(target) in TOP
        }
        for module, path in modules(root / "src" / ROOT).items()
        if len(module) == 2 and module[1] in TOP
    }
    assert cycles(graph) == []


def test_every_layer_is_a_folder_of_the_package(root):
    assert [name for name in LAYERS if not (root / "src" / ROOT / name / "__init__.py").is_file()] == []


def when_imported(path: Path, package: tuple[str, ...], known) -> set[str]:
    """The modules of the library that are imported with a file, those behind the names of lazy packages."""
    found = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        if not isinstance(node, ast.ImportFrom):
            continue
        base = package[: len(package) - node.level + 1] if node.level else ()
        base += tuple(node.module.split(".")) if node.module else ()
        for alias in node.names:
            target = base
            while target in known and known[target].with_suffix(".pyi").is_file():
                home = declared(str(known[target])).get(alias.name)
                if home is None:
                    break
                level = len(home) - len(home.lstrip("."))
                target = (*target[: len(target) - level + 1], *home.lstrip(".").split("."))
            named = (*target, alias.name)
            found.add(".".join(named if named in known else target))
    return {name for name in found if name.startswith(ROOT)}


def test_no_module_needs_one_that_needs_it(root):
    """Packages import what is asked of them, so that any module may be the first."""
    known = modules(root / "src" / ROOT)
    graph = {
        ".".join(module): when_imported(path, module if path.name == "__init__.py" else module[:-1], known)
        for module, path in known.items()
    }
    assert len(graph) > 200
    assert "freeenergy.distributions._gaussian" in graph["freeenergy.models._linear_gaussian"]
    assert cycles(graph) == []


def test_stubs_say_what_packages_offer(root):
    for stub in (root / "src" / ROOT).rglob("__init__.pyi"):
        package = ".".join(stub.parent.relative_to(root / "src").parts)
        offered = [
            ast.literal_eval(node.value)
            for node in ast.parse(stub.read_text("utf-8")).body
            if isinstance(node, ast.Assign)
        ]
        assert [set(names) for names in offered] in ([], [set(declared(str(stub)))]), package
        module = importlib.import_module(package)
        assert set(module.__all__) <= set(dir(module))
        with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
            _ = module.nothing


def test_the_collector_is_as_it_was_after_an_import():
    for switch in (gc.disable, gc.enable):
        switch()
        before = gc.isenabled()
        with collector_paused(), collector_paused():
            assert not gc.isenabled()
        assert gc.isenabled() == before


def test_what_a_class_does_is_registered_beside_it_or_beside_the_function(root):
    """Otherwise it would be known only after a third module was imported."""
    for module in modules(root / "src" / ROOT):
        if part_of(module) not in ENTRIES:
            importlib.import_module(".".join(module))
    elsewhere, functions = set(), 0
    for name in [name for name in sys.modules if name.partition(".")[0] == ROOT]:
        for function in list(vars(sys.modules[name]).values()):
            if isinstance(function, types.FunctionType) and hasattr(function, "dispatch"):
                functions += 1
                elsewhere |= {
                    (function.__name__, kind.__name__, made.__module__)
                    for kind, made in function.registry.items()
                    if made.__module__ not in (function.__module__, kind.__module__)
                }
    assert functions > 10
    assert elsewhere == set()


BAD = """
from ..learning import fit
from .. import estimators, _core
from freeenergy.evaluation._scores import crps
import freeenergy.datasets

def late():
    from sklearn.base import BaseEstimator
    import freeenergy as fe
    from .._core import parameter          # allowed
    from ._base import AbstractEnergy      # allowed
    from ..planning import plan
"""


def test_the_checker_sees_upward_hidden_and_foreign_imports():
    found = violations(BAD, ("freeenergy", "models", "_bad"))
    assert found == [
        "freeenergy.models._bad:2 imports freeenergy.learning, which is above it",
        "freeenergy.models._bad:3 imports freeenergy.estimators, which is above it",
        "freeenergy.models._bad:4 imports freeenergy.evaluation._scores, which is above it",
        "freeenergy.models._bad:5 imports freeenergy.datasets, which is above it",
        "freeenergy.models._bad:8 imports scikit-learn below the shell",
        "freeenergy.models._bad:9 imports freeenergy, which is above it",
        "freeenergy.models._bad:12 imports freeenergy.planning, which is in no layer",
    ]


def test_the_checker_resolves_relative_imports_of_packages_and_modules():
    relative = "from ..models import Mixture"
    above = ["freeenergy.nn:1 imports freeenergy.models, which is above it"]
    assert violations(relative, ("freeenergy", "nn"), is_package=True) == above
    assert violations("from .models import Mixture", ("freeenergy", "nn")) == above
    assert violations(relative, ("freeenergy", "estimators", "_shell")) == []
    assert violations("import sklearn.utils", ("freeenergy", "estimators", "_shell")) == []
    assert violations("", ("freeenergy", "planning")) == [
        "freeenergy.planning has no place in the list of layers"
    ]


def test_the_checker_sees_a_circle():
    assert cycles({"report": {"plots"}, "plots": {"io"}, "io": set()}) == []
    assert cycles({"report": {"plots"}, "plots": {"report"}, "io": {"plots"}}) == ["plots", "report"]
