"""Options that several commands have."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

_DATA = (
    "A CSV (also .gz), Parquet, Arrow, JSON lines, .xlsx, .npy or .npz file, - for standard input, or a "
    "name such as digits or iris."
)
Data = Annotated[str, typer.Argument(metavar="DATA", help=_DATA)]
ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="A file that fit has written.")]
Models = Annotated[
    list[str] | None,
    typer.Option("--model", "-m", metavar="WORDS", help="As in gaussian-mixture:n_components=8."),
]
Targets = Annotated[
    list[str] | None,
    typer.Option(
        "--target", "-y", help="The column to be told from the others; of series those to model, repeated."
    ),
]
SupportWords = Annotated[
    list[str] | None,
    typer.Option(
        "--support",
        metavar="KINDS",
        help="What the columns hold: a word for each (integer,continuous,…) or NAME=WORD; may be repeated.",
    ),
]
Seed = Annotated[int | None, typer.Option("--seed", min=0, max=2**32 - 1, help="Same seed, same result.")]
Json = Annotated[bool, typer.Option("--json", help="JSON on standard output, for machines.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="A .csv, .tsv, .parquet or .npy file; else standard output."),
]


@dataclasses.dataclass(frozen=True)
class Reading:
    """How data are read: an option of the command line for each."""

    drop: Annotated[
        list[str] | None, typer.Option("--drop", help="A column to leave out; may be repeated.")
    ] = None
    encode: Annotated[
        list[str] | None,
        typer.Option("--encode", help="A column of labels: a column of 0 and 1 for each; may be repeated."),
    ] = None
    schema: Annotated[
        list[str] | None,
        typer.Option(
            "--schema",
            metavar="KINDS",
            help="What columns are: NAME=KIND,… (category, ordered, count, date, …), NAME=[low,mid,high], "
            "or a JSON file of these; may be repeated.",
        ),
    ] = None
    header: Annotated[
        bool | None,
        typer.Option(
            "--header/--no-header", help="Whether the first line of a CSV has names; found out else."
        ),
    ] = None
    decimal: Annotated[
        str, typer.Option("--decimal", metavar="MARK", help="The decimal mark of a CSV: . or a comma.")
    ] = "."
    separator: Annotated[
        str | None,
        typer.Option("--separator", metavar="MARK", help="What parts the fields of a CSV; found out else."),
    ] = None
    encoding: Annotated[
        str | None, typer.Option("--encoding", help="Of a CSV, such as cp1252; found out else.")
    ] = None
    array: Annotated[
        str | None, typer.Option("--array", help="Which array of an .npz, or sheet; else the first.")
    ] = None
    max_bytes: Annotated[
        int | None,
        typer.Option(
            "--max-bytes", min=1, help="What a packed file may unpack to; else 512 MiB or its size."
        ),
    ] = None

    def __post_init__(self) -> None:
        if self.decimal not in (".", ","):
            raise ValueError(f"--decimal must be . or a comma. Got {self.decimal!r} instead.")
        both = [name for name in self.encode or () if name in (self.drop or ())]
        if both:
            raise ValueError(f"Column {both[0]!r} is named by --drop and by --encode. Only one can be.")


@dataclasses.dataclass(frozen=True)
class Timing:
    """Which rows are steps of which series: an option of the command line for each."""

    series: Annotated[
        str | None, typer.Option("--series", help="The column that tells which series a row belongs to.")
    ] = None
    time: Annotated[
        str | None, typer.Option("--time", help="The column with the time of each row: dates or numbers.")
    ] = None
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--inputs",
            metavar="COLUMNS",
            help="Columns known beside the series, with commas between them; may be repeated.",
        ),
    ] = None

    @property
    def option(self) -> str | None:
        """The first of them that was given."""
        given = (name for name in ("series", "time", "inputs") if getattr(self, name))
        return next((f"--{name}" for name in given), None)

    @property
    def written(self) -> str:
        """The columns of series and times as they are written."""
        given = {"series": self.series, "time": self.time}
        return " ".join(f"--{option} {name}" for option, name in given.items() if name is not None)


def reads_data(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the options of `Reading`, which it is passed as `reading`."""
    return _with_options(command, reading=Reading)


def reads_series(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the options of `Reading` and of `Timing`, as `reading` and `timing`."""
    return _with_options(command, timing=Timing, reading=Reading)


def _with_options(command: Callable[..., None], **groups: Any) -> Callable[..., None]:
    """A command with an option for each field of some records, which it is passed by their names."""
    added = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=inspect.get_annotations(kind, eval_str=True)[field.name],
        )
        for kind in groups.values()
        for field in dataclasses.fields(kind)
    ]
    own = inspect.signature(command, eval_str=True)
    kept = [p for name, p in own.parameters.items() if name not in groups]

    @functools.wraps(command)
    def wrapped(**given: Any) -> None:
        made = {
            name: kind(**{field.name: given.pop(field.name) for field in dataclasses.fields(kind)})
            for name, kind in groups.items()
        }
        command(**given, **made)

    ordered = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in kept]
    wrapped.__signature__ = own.replace(parameters=[*ordered, *added])  # pyright: ignore[reportAttributeAccessIssue]
    wrapped.__annotations__ = {p.name: p.annotation for p in [*ordered, *added]}
    return wrapped
