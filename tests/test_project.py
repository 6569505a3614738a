"""What has to hold for the project as a whole: style, types, names, versions, links."""

import ast
import functools
import importlib
import importlib.metadata
import importlib.util
import inspect
import pkgutil
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import freeenergy

# ---------------------------------------------------------------------------------------------
# style and types
# ---------------------------------------------------------------------------------------------


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments], cwd=cwd, capture_output=True, text=True, timeout=300
    )


def need(tool: str) -> None:
    if importlib.util.find_spec(tool) is None:
        pytest.skip(f"{tool} is not installed")


@pytest.mark.parametrize("command", [("check",), ("format", "--check")], ids=" ".join)
def test_ruff_has_nothing_to_say(root, command):
    need("ruff")
    outcome = run("ruff", *command, "--no-cache", ".", cwd=root)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


@pytest.mark.slow
def test_pyright_has_nothing_to_say(root):
    need("pyright")
    if run("pyright", "--version", cwd=root).returncode != 0:
        pytest.skip("pyright is installed, but there is no Node.js for it to run on")
    outcome = run("pyright", "--pythonpath", sys.executable, cwd=root)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


# ---------------------------------------------------------------------------------------------
# public names
# ---------------------------------------------------------------------------------------------


def public_modules() -> list[ModuleType]:
    """The package and every module of it without an underscore in its path."""
    names = [
        info.name
        for info in pkgutil.walk_packages(freeenergy.__path__, "freeenergy.")
        if not any(part.startswith("_") for part in info.name.split("."))
    ]
    return [freeenergy, *map(importlib.import_module, names)]


def public_names() -> dict[str, object]:
    """Every name in an `__all__`, with its module, and what it stands for."""
    return {
        f"{module.__name__}.{name}": getattr(module, name)
        for module in public_modules()
        for name in getattr(module, "__all__", ())
    }


def own_docstring(thing: object) -> str:
    """The docstring as written: not inherited, and not the signature that dataclasses put in."""
    if not isinstance(thing, type):
        return inspect.getdoc(thing) or ""
    text = thing.__dict__.get("__doc__") or ""
    return "" if text.startswith(f"{thing.__name__}(") else text


def undocumented(name: str, thing: object) -> list[str]:
    """`name`, or the public methods of it, that have no docstring (a method may inherit one)."""
    if not (isinstance(thing, type) or inspect.isroutine(thing) or inspect.ismodule(thing)):
        return []  # a constant is explained where it is defined
    missing = [] if own_docstring(thing) else [name]
    if isinstance(thing, type):
        for method in vars(thing):
            value = getattr(thing, method)
            if method.startswith("_") or not (inspect.isroutine(value) or isinstance(value, property)):
                continue
            if not any(getattr(base, method).__doc__ for base in thing.__mro__ if hasattr(base, method)):
                missing.append(f"{name}.{method}")
    return missing


def exercised(tests: dict[str, str], source: dict[str, str]) -> set[str]:
    """Every word in the text of the tests and in the examples of the docstrings."""
    examples = (
        line
        for text in source.values()
        for line in text.splitlines()
        if re.match(r"\s*(>>>|\.\.\.) ", line)
    )
    return set(re.findall(r"\w+", "\n".join([*tests.values(), *examples])))


def in_use(name: str, thing: object, words: set[str]) -> bool:
    """Whether `name` is among the words; for an abstract class, whether a subclass is."""
    last = name.rsplit(".", 1)[1]
    if last in words:
        return True
    subclasses = thing.__subclasses__() if isinstance(thing, type) and last.startswith("Abstract") else []
    return any(in_use(f".{child.__name__}", child, words) for child in subclasses)


def test_every_public_name_has_a_docstring():
    missing = [gap for name, thing in public_names().items() for gap in undocumented(name, thing)]
    assert not missing, "without a docstring:\n" + "\n".join(missing)


def test_every_public_name_is_exercised_by_a_test(root):
    here = Path(__file__).name
    tests = {str(p): p.read_text("utf-8") for p in (root / "tests").rglob("*.py") if p.name != here}
    source = {str(p): p.read_text("utf-8") for p in (root / "src").rglob("*.py")}
    words = exercised(tests, source)
    missing = [name for name, thing in public_names().items() if not in_use(name, thing, words)]
    assert not missing, "in no test:\n" + "\n".join(missing)


# classes have many bases in common, and Python finds a class by reading its whole file
@functools.cache
def stored(kind: type) -> set[str]:
    """The names with an underscore at their end that the methods of a class store in an estimator."""
    text = textwrap.dedent(inspect.getsource(kind))
    targets = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute))
    return {
        node.attr
        for node in targets
        if isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id in ("self", "owner")
        and re.fullmatch(r"[a-z]\w*_", node.attr)
    }


def fitted_attributes(kind: type) -> set[str]:
    """What a fitted estimator has: properties, and what `fit` stores."""
    own = [
        base for base in (*kind.__mro__, *kind.intake.__mro__) if base.__module__.startswith("freeenergy")
    ]
    properties = {
        name
        for base in own
        for name, value in vars(base).items()
        if isinstance(value, property) and re.fullmatch(r"[a-z]\w*_", name)
    }
    return properties.union(*map(stored, own))


def described(kind: type) -> set[str]:
    """The names in the list of attributes of a docstring."""
    block = inspect.cleandoc(kind.__dict__.get("__doc__") or "").partition("Attributes:\n")[2]
    lines = [line for line in block.partition("\n\n")[0].splitlines() if re.match(r"    \w", line)]
    return {name.strip() for line in lines for name in line.partition(":")[0].split(",")}


def test_every_fitted_attribute_is_described():
    everywhere = described(freeenergy.shell.Shell) | described(freeenergy.shell.LearnsInParts)
    # those of all that predicts numbers
    everywhere |= described(freeenergy.estimators.AbstractRegressor)
    assert {"model_", "history_", "n_iter_", "converged_"} <= everywhere
    kinds = [
        thing
        for name, thing in public_names().items()
        if name.startswith("freeenergy.estimators.")
        and isinstance(thing, type)
        and issubclass(thing, freeenergy.shell.Shell)
        and not thing.__name__.startswith("Abstract")
    ]
    assert len(kinds) > 20
    missing = {kind.__name__: fitted_attributes(kind) - described(kind) - everywhere for kind in kinds}
    assert not {name: gap for name, gap in missing.items() if gap}
    strange = {kind.__name__: described(kind) - fitted_attributes(kind) - everywhere for kind in kinds}
    assert {name for gap in strange.values() for name in gap} <= {"…", "feature_names_in_"}


def test_the_page_to_choose_by_has_every_estimator(root):
    from freeenergy.cli._specs import estimators

    page = (root / "docs" / "which.md").read_text("utf-8")
    for part in page.split("\n## ")[1:3]:
        named = set(re.findall(r"\b[A-Z]\w+", part))
        assert {kind.__name__ for kind in estimators().values()} <= named, part[:20]


def test_the_first_pages_have_every_estimator_and_every_family(root):
    from freeenergy.cli._specs import estimators

    table = (root / "README.md").read_text("utf-8").split("\n## ")[2]
    assert {kind.__name__ for kind in estimators().values()} <= set(re.findall(r"\b[A-Z]\w+", table))
    start = (root / "docs" / "index.md").read_text("utf-8")
    pages = {f"families/{page.name}" for page in (root / "docs" / "families").glob("*.md")}
    assert pages <= set(re.findall(r"\((families/\w+\.md)\)", start))


def test_all_lists_name_what_is_there_once():
    for module in public_modules():
        names = list(getattr(module, "__all__", ()))
        assert len(names) == len(set(names)), module.__name__
        assert all(hasattr(module, name) for name in names), module.__name__


def test_the_checks_of_names_can_fail():
    class Parent:
        """Has one."""

        def inherited(self):
            """Has one."""

    class AbstractParent:
        """Used through its subclass."""

    class Used(AbstractParent):
        """Used."""

    class Child(Parent):
        def inherited(self): ...
        def bare(self): ...

    assert undocumented("Parent", Parent) == []
    assert undocumented("Child", Child) == ["Child", "Child.bare"]
    assert undocumented("three", 3) == []
    words = exercised({"t.py": "fit(model)"}, {"s.py": "def hidden(): ...\n    >>> shown(1)\n"})
    assert {"fit", "shown"} <= words
    assert "hidden" not in words
    assert in_use("x.AbstractParent", AbstractParent, {"Used"})
    assert not in_use("x.AbstractParent", AbstractParent, words)
    assert not in_use("x.Parent", Parent, {"Child"})


# ---------------------------------------------------------------------------------------------
# versions
# ---------------------------------------------------------------------------------------------


def test_the_version_is_the_same_everywhere(root):
    version = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    citation = re.search(r"^version: (.+)$", (root / "CITATION.cff").read_text("utf-8"), re.MULTILINE)
    assert citation is not None
    assert citation[1].strip("\"'") == version
    assert importlib.metadata.version("freeenergy") == version
    assert getattr(freeenergy, "__version__", version) == version
    assert f"## [{version}]" in (root / "CHANGELOG.md").read_text("utf-8")


def requirements(root: Path) -> list[Requirement]:
    """What the package, its extras and its build ask for, itself left out.

    The peers of the studies have an environment of their own, with other versions.
    """
    content = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    project = content["project"]
    extras = {name: lines for name, lines in project["optional-dependencies"].items() if name != "studies"}
    groups = [project["dependencies"], *extras.values()]
    groups += [content["build-system"]["requires"], *content["dependency-groups"].values()]
    asked = [Requirement(line) for group in groups for line in group]
    return [requirement for requirement in asked if requirement.name != project["name"]]


def pins(path: Path) -> dict[str, str]:
    """The version of each package of a list; comments, hashes and conditions left out."""
    lines = path.read_text("utf-8").splitlines()
    named = [re.split(r" [;\\]", line)[0] for line in lines if line and line[0] not in "# "]
    assert [line for line in named if not re.fullmatch(r"[a-z0-9-]+==[\w.]+", line)] == []
    return dict(line.split("==") for line in named)


def unlimited(requirement: Requirement) -> bool:
    """Whether any later version would do."""
    return requirement.specifier.contains("999999", prereleases=True)


def test_every_requirement_has_a_lower_and_an_upper_limit(root):
    asked = requirements(root)
    assert [str(r) for r in asked if unlimited(r) or r.specifier.contains("0.0.0")] == []
    assert unlimited(Requirement("jax>=0.10"))
    assert not unlimited(Requirement("jax==0.10"))


def test_the_constraints_are_exact_and_meet_every_requirement(root):
    exact = pins(root / "constraints.txt")
    asked = requirements(root)
    assert [str(r) for r in asked if r.name not in exact or exact[r.name] not in r.specifier] == []
    assert [name for name, version in exact.items() if Version(version).is_prerelease] == []


@pytest.mark.parametrize("name", ["base", "test", "docs"])
def test_the_lists_of_hashes_are_those_of_the_constraints(root, name):
    path = root / "requirements" / f"{name}.txt"
    listed = pins(path)
    exact = pins(root / "constraints.txt")
    assert {package: exact.get(package) for package in listed} == listed
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = project["dependencies"] + project["optional-dependencies"].get(name, [])
    assert {Requirement(line).name for line in [*wanted, "hatchling", "editables"]} - set(listed) == set()
    # each name is followed by one hash or more, and nothing else, such as an address, is in the list
    entry = r"[a-z0-9-]+==[^\\\n]+\\\n(    --hash=sha256:[0-9a-f]{64}( \\\n|\n))+"
    assert re.fullmatch(f"({entry})+", path.read_text("utf-8"))


# ---------------------------------------------------------------------------------------------
# files and links
# ---------------------------------------------------------------------------------------------

MACHINE_PATH = re.compile(r"(?<![\w.~:/-])(?:/(?:home|Users|root|work|tmp|opt|mnt)/\w|[A-Z]:\\Users)")
LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
CODE = re.compile(r"^(```|~~~).*?^\1|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def project_files(root: Path) -> list[Path]:
    """The files that belong to the project: what git tracks or would track."""
    listing = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=root, capture_output=True, text=True
    )
    if listing.returncode != 0:
        pytest.skip("not a git checkout")
    return [root / line for line in listing.stdout.splitlines() if (root / line).is_file()]


def machine_paths(text: str) -> list[str]:
    """The lines that name a place on somebody's machine."""
    return [line for line in text.splitlines() if MACHINE_PATH.search(line)]


def broken_links(page: Path) -> list[str]:
    """The relative links of a page that lead nowhere."""
    targets = LINK.findall(CODE.sub("", page.read_text("utf-8")))
    relative = [t for t in targets if not re.match(r"[a-z]+:|#", t)]
    return [t for t in relative if not (page.parent / t.partition("#")[0]).exists()]


def test_no_file_names_a_place_on_a_machine(root):
    found = []
    for path in project_files(root):
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue  # not text
        found += [f"{path.relative_to(root)}: {line.strip()}" for line in machine_paths(text)]
    assert not found, "\n".join(found)


def test_every_relative_link_leads_somewhere(root):
    pages = [*root.glob("*.md"), *(root / "docs").rglob("*.md")]
    broken = [f"{page.relative_to(root)}: {link}" for page in pages for link in broken_links(page)]
    assert not broken, "\n".join(broken)


def test_the_checks_of_files_can_fail(tmp_path):
    assert machine_paths("a\nopen('/" + "home/me/x')\n") == ["open('/" + "home/me/x')"]
    assert machine_paths("see https://example.org/" + "home/me and src/" + "work/x") == []
    page = tmp_path / "page.md"
    page.write_text(
        "[a](page.md#top) [b](gone.md) [c](https://x.org) `[d](code.md)`\n```\n[e](in.md)\n```\n"
    )
    assert broken_links(page) == ["gone.md"]
