"""The companion tells the truth: its rows are rows of the notes, and what they name is there and is run.

A line of a table is one row of the notes: its id (`ids.json` has all of them), the section, what it says,
the object that serves it, which may be a dependency's, and the tests that assert it.  "partly: …" tells
what is missing.
"""

import ast
import functools
import importlib
import json
import re
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
PAGES = HERE.parents[1] / "docs" / "companion"
IDS = json.loads((HERE / "ids.json").read_text("utf-8"))
# a dotted name of a package, or a file and perhaps what is in it
PACKAGES = "freeenergy|jax|numpy|scipy|sklearn|equinox|optax|pandas"
TARGET = re.compile(rf"`((?:{PACKAGES})(?:\.\w+)+|(?:tests|examples|docs)/[^`\s]+)`")
CELLS = 5


def lines(page: str) -> list[list[str]]:
    """The cells of each line of the tables of a page, without the heads."""
    tables = [line.strip()[1:-1] for line in page.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in re.split(r"(?<= )\|(?= )", line)] for line in tables]
    return [line for line in cells if line[0] != "row"]


@functools.cache
def parsed(path: Path) -> ast.AST:
    """The syntax tree of a file, which many lines name."""
    return ast.parse(path.read_text("utf-8"))


def definition(tree: ast.AST, names: list[str]) -> ast.AST | None:
    """The function or class `names[0]` of a syntax tree, of it `names[1]`, …"""
    if not names:
        return tree
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == names[0]:
            return definition(node, names[1:])
    return None


def is_slow(node: ast.AST) -> bool:
    """Whether a test is marked slow as a whole."""
    marks = [ast.unparse(mark) for mark in getattr(node, "decorator_list", ())]
    return "pytest.mark.slow" in marks


def object_exists(name: str) -> bool:
    """Whether `package.module.Thing.attribute` is there."""
    first, *rest = name.split(".")
    thing, path = importlib.import_module(first), first
    for part in rest:
        path = f"{path}.{part}"
        if part in getattr(thing, "__dataclass_fields__", {}):
            return True
        if not hasattr(thing, part):
            try:
                importlib.import_module(path)
            except ImportError:
                return False
        thing = getattr(thing, part)
    return True


def faults(cells: list[str], ids: list[str], root: Path) -> list[str]:
    """What is wrong with a line."""
    if len(cells) != CELLS:
        return [f"has {len(cells)} cells, not {CELLS}"]
    row, section, what, served, shown = cells
    found = [] if row in ids else [f"{row} is no row of these notes"]
    found += [] if section and what else ["does not say what it is about"]
    runs = False
    for target in TARGET.findall(f"{served} {shown}"):
        if "/" not in target:
            found += [] if object_exists(target) else [f"{target} is not there"]
            continue
        file, *names = target.split("[")[0].split("::")
        path = root / file
        if not path.exists():
            found.append(f"{target} is not there")
        elif names:
            node = definition(parsed(path), names)
            found += [] if node else [f"{target} is not there"]
            runs |= node is not None and names[-1].startswith("test_") and not is_slow(node)
    return found + ([] if runs else ["names no test that every run of the tests holds"])


@pytest.mark.parametrize("name", sorted(IDS))
def test_every_line_of_a_page_is_true(name, root):
    table = lines((PAGES / f"{name}.md").read_text("utf-8"))
    assert table
    rows = [cells[0] for cells in table]
    assert sorted(rows) == sorted(set(rows)), "a row has one line"
    wrong = [f"{cells[0]}: {fault}" for cells in table for fault in faults(cells, IDS[name], root)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("| U1 | 2 | what | `optax.sgd` | `HERE::test_every_line_of_a_page_is_true` |", None),
        ("| U1–U3 | 2 | what | `optax.sgd` | `HERE::test_every_line_of_a_page_is_true` |", "no row"),
        ("| U1 | 2 | what | `optax.sdg` | `HERE::test_every_line_of_a_page_is_true` |", "not there"),
        ("| U1 | 2 | what | `freeenergy.nope` | `HERE::test_every_line_of_a_page_is_true` |", "not there"),
        ("| U1 | 2 | what | `optax.sgd` | `HERE::test_nope` |", "not there"),
        ("| U1 | 2 | what | `optax.sgd` | `HERE::lines` |", "no test"),
        ("| U1 | 2 | what | `optax.sgd` | `tests/test_examples.py` |", "no test"),
        ("| U1 | 2 | what | `optax.sgd` | `examples/nope.py` |", "not there"),
        ("| U1 | 2 | `optax.sgd` | `HERE::test_every_line_of_a_page_is_true` |", "cells"),
        ("| U1 | 2 | | `optax.sgd` | `HERE::test_every_line_of_a_page_is_true` |", "about"),
    ],
)
def test_a_fault_of_a_line_is_found(line, fault, root):
    (cells,) = lines(line.replace("HERE", "tests/companion/test_pages.py"))
    found = faults(cells, ["U1"], root)
    assert any(fault in text for text in found) if fault else not found


def test_a_slow_test_does_not_count():
    tree = ast.parse("@pytest.mark.slow\ndef test_a(): ...\ndef test_b(): ...")
    slow, fast = (definition(tree, [name]) for name in ("test_a", "test_b"))
    assert is_slow(slow)
    assert not is_slow(fast)
