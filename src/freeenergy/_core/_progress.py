"""Progress of a long fit, on standard error."""

from __future__ import annotations

import abc
from collections.abc import Callable
from types import TracebackType
from typing import Self

from ._words import visible

# measures of a fit that are told in other units where data are rescaled
OBJECTIVES = ("objective", "validation")


class AbstractProgress(abc.ABC):
    """Shows how far the loop is; a context manager."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @abc.abstractmethod
    def start(self) -> None: ...

    @abc.abstractmethod
    def update(self, n_iter: int, metrics: dict[str, float]) -> None: ...

    @abc.abstractmethod
    def stop(self) -> None: ...


class _Silent(AbstractProgress):
    def start(self) -> None:
        pass

    def update(self, n_iter: int, metrics: dict[str, float]) -> None:
        pass

    def stop(self) -> None:
        pass


class _Bar(AbstractProgress):
    def __init__(self, total: int, label: str, offset: float) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._rich = Progress(
            # the words are those of the user, whose brackets are no commands
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[metrics]}", markup=False),
            console=Console(stderr=True),
        )
        self._offset = offset
        self._task = self._rich.add_task(label, total=total, metrics="")

    def start(self) -> None:
        self._rich.start()

    def update(self, n_iter: int, metrics: dict[str, float]) -> None:
        shown = {name: value - self._offset * (name in OBJECTIVES) for name, value in metrics.items()}
        text = "  ".join(f"{visible(name)} {value:.5g}" for name, value in shown.items())
        self._rich.update(self._task, completed=n_iter, metrics=text)

    def stop(self) -> None:
        self._rich.stop()


def silent(total: int) -> AbstractProgress:
    """Shows nothing."""
    return _Silent()


def progress_bar(label: str, *, offset: float = 0.0) -> Callable[[int], AbstractProgress]:
    """Makes a progress bar with `label` for `iterate(progress=…)`; objectives are shown less `offset`."""
    return lambda total: _Bar(total, label, offset)
