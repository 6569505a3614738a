"""The pictures of the tutorials, drawn from what the code on their pages makes.

    python examples/tutorials.py docs/tutorials [folder]

The pages are run as the tests run them; the pictures are written beside them, or to the folder.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import freeenergy as fe
from freeenergy import plots


def names_of(page: Path) -> dict[str, Any]:
    """What the python blocks of a page define."""
    names: dict[str, Any] = {"__name__": "page"}
    with contextlib.redirect_stdout(io.StringIO()):
        for code in re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL):
            exec(compile(code, str(page), "exec"), names)
    return names


def mixed_table(names: dict[str, Any]) -> Any:
    holes, schema = names["holes"], names["schema"]
    return plots.distributions(holes, names["model"].sample(400, random_state=0), schema=schema)[0]


def dated_series(names: dict[str, Any]) -> Any:
    truth = names["future"].to_numpy()[:, None]
    return names["ahead"].plot(names["data"], truth=truth, last=48, name="CO₂ in parts per million")


def clusters(names: dict[str, Any]) -> Any:
    axes = plots.components(names["model"], names["X"], columns=(0, 1))
    axes.set_xlabel("alcohol")
    axes.set_ylabel("flavanoids")
    return axes


def scikit_learn(names: dict[str, Any]) -> Any:
    return plots.comparison(names["board"])


PICTURES: tuple[Callable[[dict[str, Any]], Any], ...] = (mixed_table, dated_series, clusters, scikit_learn)


def main(pages: str = "docs/tutorials", folder: str | None = None, only: str | None = None) -> list[str]:
    place = Path(pages if folder is None else folder)
    place.mkdir(parents=True, exist_ok=True)
    drawn = [draw for draw in PICTURES if only in (None, draw.__name__)]
    for draw in drawn:
        names = names_of(Path(pages) / f"{draw.__name__}.md")
        with plots.theme():
            axes = draw(names)
        axes.figure.savefig(place / f"{draw.__name__}.png", dpi=100, facecolor="white")
    print(f"{len(drawn)} pictures of freeenergy {fe.__version__} are in {place}")
    return [draw.__name__ for draw in drawn]


if __name__ == "__main__":
    main(*sys.argv[1:])
