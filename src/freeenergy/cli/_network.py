"""The command that asks a Bayesian network."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from ._options import Json
from ._speech import print_table, say


def network(
    file: Annotated[Path, typer.Argument(help="A Bayesian network: a .bif file, or a fitted model.")],
    given: Annotated[
        list[str] | None,
        typer.Option("--given", "-g", help="What is observed, as A=yes,B=no; may be repeated."),
    ] = None,
    query: Annotated[
        list[str] | None,
        typer.Option("--query", "-q", help="Variables to tell about, with commas; else all."),
    ] = None,
    best: Annotated[bool, typer.Option("--best", help="The most probable joint state instead.")] = False,
    picture: Annotated[
        Path | None, typer.Option("--picture", help="Draws the graph to a .png, .svg or .pdf file.")
    ] = None,
    json: Json = False,
) -> None:
    """What a Bayesian network knows of each variable, given some of them."""
    from . import _files

    found = _read(file)
    beliefs = found.posterior(_pairs(given or []))
    names = [name for part in query or [] for name in part.split(",") if name] or list(found.names)
    answers = {name: beliefs.marginal(name) for name in names}
    if picture is not None:
        from freeenergy.plots import network as draw

        figure: Any = draw(found, probabilities=answers if given else None).figure
        figure.savefig(picture, dpi=150)
    if json:
        _files.write_json(
            {
                "given": beliefs.given,
                "log_evidence": beliefs.log_evidence,
                "marginals": answers,
                "most_probable": {name: beliefs.best[name] for name in names},
            }
        )
        return
    if best:
        print_table(["variable", "state"], [[n, beliefs.best[n]] for n in names], left=(0, 1))
    else:
        lines = [
            [name if i == 0 else "", state, f"{p:.6g}"]
            for name, states in answers.items()
            for i, (state, p) in enumerate(states.items())
        ]
        print_table(["variable", "state", "probability"], lines, left=(0, 1))
    if given:
        bits = -beliefs.log_evidence / math.log(2)
        say(f"The probability of what is given is {math.exp(beliefs.log_evidence):.6g} ({bits:.4g} bits).")


def _read(file: Path) -> Any:
    if file.suffix.lower() == ".safetensors":
        import freeenergy as fe

        model = getattr(fe.load(file), "model_", None)
        if not isinstance(model, fe.models.AbstractNetwork):
            raise ValueError(f"'{file}' must hold a BayesianNetwork or MarkovNetwork.")
        return model
    from freeenergy.datasets import read_bif

    return read_bif(file)


def _pairs(given: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in (piece for words in given for piece in words.split(",") if piece.strip()):
        name, equals, state = part.partition("=")
        if not equals:
            raise ValueError(f"--given must be pairs such as A=yes,B=no. Got {part!r} instead.")
        if found.setdefault(name.strip(), state.strip()) != state.strip():
            raise ValueError(
                f"--given has two states of {name.strip()!r}: {found[name.strip()]} and {state}."
            )
    return found
