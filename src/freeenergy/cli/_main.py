"""The program.

JAX and the models are imported by the commands that need them, so that help comes at once.
"""

from __future__ import annotations

import contextlib
import io
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

import typer

from . import _answers, _described, _fitting, _network
from ._speech import in_options, say

app = typer.Typer(
    name="freeenergy",
    help="Which probabilistic model explains the data, how sure is that, and what can be done with it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in (
    _fitting.compare,
    _fitting.fit,
    _answers.score,
    _answers.predict,
    _answers.transform,
    _answers.impute,
    _answers.infer,
    _answers.outliers,
    _answers.sample,
    _answers.forecast,
    _answers.decode,
    _answers.summary,
    _network.network,
    _described.inspect,
    _described.models,
):
    app.command()(command)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(version("freeenergy"))
        raise typer.Exit


@app.callback()
def _freeenergy(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True)] = False,
) -> None:
    """Statistical learning with one energy, three verbs and one honest scale."""


@contextlib.contextmanager
def _warnings_in_a_line() -> Iterator[None]:
    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        say(f"Warning: {in_options(str(message))}")

    former: Callable[..., None] = warnings.showwarning
    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = former


def run(arguments: Sequence[str]) -> int:
    """Runs one command and returns its exit code: 0, 2 after a sentence on what is wrong, 130 after Ctrl-C.

    >>> run(["--version"])  # doctest: +ELLIPSIS
    0...
    0
    """
    try:
        with _warnings_in_a_line():
            return int(app(list(arguments), prog_name="freeenergy", standalone_mode=False) or 0)
    except typer.TyperException as error:
        say(_sentence(error.format_message()))
    except BrokenPipeError:
        # whoever read our output has seen enough
        sys.stdout = None
        return 0
    except MemoryError:
        say("There is not enough memory. Take a part of the rows, or a smaller model.")
    except OSError as error:
        what = str(error) if error.strerror is None else error.strerror
        say(_sentence(what if error.filename is None else f"'{error.filename}': {what}"))
    except (ValueError, TypeError) as error:
        say(_sentence(str(error)))
    except KeyboardInterrupt:
        return _stopped()
    return 2


def _sentence(text: str) -> str:
    text = " ".join(in_options(text).split()) or "Something is wrong."
    return text if text.endswith((".", "?", "!")) else text + "."


def _stopped() -> int:
    say("Stopped; nothing was written.")
    return 130


def main() -> None:
    """The program `freeenergy`."""
    # a stream that was closed by who called us is None: what goes there is not wanted
    sys.stdout = sys.stdout or io.StringIO()
    sys.stderr = sys.stderr or io.StringIO()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # names of columns are in any script, and what we write we read as UTF-8
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    # whoever ends it by SIGTERM gets what Ctrl-C gives: files that are whole, no processes left behind
    signal.signal(signal.SIGTERM, _end)
    sys.exit(run(sys.argv[1:]))


def _end(*_: Any) -> None:
    """What Ctrl-C does, also where a shell in the background has it ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.raise_signal(signal.SIGINT)
