"""The command line: `freeenergy compare data.csv --report report.html`."""

from ._main import main, run

__all__ = ["main", "run"]
