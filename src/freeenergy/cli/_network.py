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
        typer.Option("--given", "-g", help="What is observed, as A=yes,B=1.5; may be repeated."),
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
                "marginals": {name: _in_words(answer) for name, answer in answers.items()},
                "most_probable": {name: beliefs.best[name] for name in names},
            }
        )
        return
    if best:
        lines = [[n, _shown(beliefs.best[n])] for n in names]
        print_table(["variable", "state"], lines, left=(0, 1))
    else:
        _print_marginals(answers)
    if beliefs.given:
        _tell_evidence(found, beliefs)


def _print_marginals(answers: dict[str, Any]) -> None:
    """A table of labels, and one of numbers, where there are any."""
    labels = {name: known for name, known in answers.items() if isinstance(known, dict)}
    lines = [
        [name if i == 0 else "", state, f"{p:.6g}"]
        for name, states in labels.items()
        for i, (state, p) in enumerate(states.items())
    ]
    if lines:
        print_table(["variable", "state", "probability"], lines, left=(0, 1))
    numbers = [
        [name, *(f"{value:.6g}" for value in _in_words(known).values())]
        for name, known in answers.items()
        if name not in labels
    ]
    if numbers:
        print_table(["variable", "mean", "std", "5 %", "95 %"], numbers)


def _tell_evidence(found: Any, beliefs: Any) -> None:
    nats, bits = beliefs.log_evidence, -beliefs.log_evidence / math.log(2)
    if all(found.states[found.names.index(name)] for name in beliefs.given):
        say(f"The probability of what is given is {math.exp(nats):.6g} ({bits:.4g} bits).")
    else:
        say(f"The log density of what is given is {nats:.6g} nats ({bits:.4g} bits).")


def _in_words(known: Any) -> dict[str, float]:
    """What is known of a variable, for a table or for JSON."""
    if isinstance(known, dict):
        return known
    low, high = known.interval(0.9)
    return {"mean": known.mean, "std": float(known.std), "low": low, "high": high}


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:.6g}"


def _read(file: Path) -> Any:
    if file.suffix.lower() == ".safetensors":
        import freeenergy as fe

        fitted = fe.load(file)
        if not isinstance(getattr(fitted, "model_", None), fe.models.AbstractNetwork):
            raise ValueError(f"'{file}' must hold a BayesianNetwork or MarkovNetwork.")
        return fitted.model_in_units
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
