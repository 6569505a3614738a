"""Fits of one model to one fold: run in parallel, kept in a folder, stopped by Ctrl-C."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import math
import os
import pickle
import time
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from safetensors import SafetensorError
from sklearn.base import clone

from .._core import DamagedError, Evidence, Kind, parameter_count, progress_bar, silent, write_whole
from ..shell import Forecasts
from ..shell._base import Shell
from ._problems import AbstractGiven, AbstractProblem, AbstractSeries
from ._results import FORMAT, FoldResult, decode, encode

FINAL = -1

_VERSION = importlib.metadata.version("freeenergy")


@dataclasses.dataclass
class Task:
    """One model to fit to one part of the data and to score on another."""

    label: str
    estimator: Any
    fold: int
    train: np.ndarray
    test: np.ndarray
    seed: int
    # whether there are pictures of the fitted model
    shown: bool = False
    # whether its draws are laid beside held-out rows
    drawn: bool = False
    name: str = ""
    checkpoint: str | None = None
    # how many steps ahead series are forecast, and the probability of intervals
    horizon: int = 0
    level: float = 0.9


def derived_seed(seed: int, label: str, fold: int) -> int:
    """A seed for one model on one fold, which other models do not change."""
    parts = (seed, zlib.crc32(label.encode()), fold - FINAL)
    return int(np.random.SeedSequence(parts).generate_state(1)[0]) % 2**31


def seeded(estimator: Any, seed: int, checkpoint: str | None = None) -> Any:
    """A silent copy in which every `random_state` that is None is set."""
    estimator = clone(estimator)
    changes = {}
    for name, value in estimator.get_params().items():
        last = name.rpartition("__")[2]
        if last == "random_state" and value is None:
            changes[name] = seed
        elif last == "verbose" and value:
            changes[name] = type(value)(0)
        elif last == "checkpoint" and isinstance(estimator, Shell):
            changes[name] = checkpoint
    return estimator.set_params(**changes)


class Store:
    """A folder with a file for each finished fold, named by all that the result depends on."""

    def __init__(self, folder: str | os.PathLike[str] | None, problem: AbstractProblem) -> None:
        self.folder = None if folder is None else Path(folder)
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.data = problem.identity()

    def name(self, task: Task) -> str:
        """The name of the file, or nothing if results are not kept."""
        if self.folder is None:
            return ""
        parts = (FORMAT, _VERSION, self.data, task.fold, task.train, task.test, task.seed, task.shown)
        parts += (task.horizon, task.level, task.drawn)
        try:
            model = joblib.hash(seeded(task.estimator, task.seed))
        except (pickle.PicklingError, AttributeError, TypeError):
            raise ValueError(
                "The 'resume' parameter of compare needs models that can be pickled. "
                f"Got {task.label} instead."
            ) from None
        return str(joblib.hash((*parts, model), hash_name="sha1"))

    def checkpoint(self, task: Task) -> str | None:
        """Where an unfinished fit keeps its state."""
        return None if self.folder is None else str(self.folder / f"{task.name}.checkpoint")

    def load(self, task: Task) -> FoldResult | None:
        """The result, if it is there and whole."""
        if self.folder is None:
            return None
        path = self.folder / f"{task.name}.fold"
        if not path.exists():
            return None
        try:
            return dataclasses.replace(decode(path.read_bytes()), model=task.label)
        except (SafetensorError, ValueError, KeyError, TypeError, OSError) as error:
            reason = str(error) if isinstance(error, DamagedError) else f"cannot be read ({error})"
            warnings.warn(f"'{path}' {reason}. Its fold is fitted again.", stacklevel=4)
            return None

    def save(self, task: Task, result: FoldResult) -> None:
        """Writes the result, whole or not at all; failures are tried again the next time."""
        if self.folder is None or result.error is not None:
            return
        write_whole(self.folder / f"{task.name}.fold", encode(result))
        for leftover in self.folder.glob(f"{task.name}.checkpoint*"):
            leftover.unlink()


def _sentence(error: BaseException | str) -> str:
    """The first line of an error, or its kind if it says nothing."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else f"{type(error).__name__}."


def _pictures(estimator: Any, task: Task, problem: AbstractProblem, evidence: Evidence) -> dict[str, Any]:
    """What is drawn of the model; where that fails its numbers count all the same."""
    try:
        return problem.pictures(estimator, task.test, task.seed, evidence)
    except Exception as error:
        warnings.warn(f"There are no pictures of it: {_sentence(error)}", stacklevel=2)
        return {}


def _drawn(estimator: Any, task: Task, problem: AbstractProblem, draws: Any) -> dict[str, np.ndarray]:
    """Measures of its draws; where they fail its other numbers count all the same."""
    try:
        return problem.drawn(estimator, task.train, task.test, task.seed, draws)
    except Exception as error:
        warnings.warn(f"Its draws are not measured: {_sentence(error)}", stacklevel=2)
        return {}


_NO_EVIDENCE = Evidence(np.empty(0), np.empty(0), Kind.EXACT)


def _run(task: Task, problem: AbstractProblem) -> FoldResult:
    """Fits and scores; whatever goes wrong becomes the reason in the result."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            estimator = seeded(task.estimator, task.seed, task.checkpoint)
            start = time.perf_counter()
            with problem.cells(task.train):
                estimator = problem.fit(estimator, task.train)
            seconds = time.perf_counter() - start
            scored = problem.scores(estimator)
            with problem.cells(task.test):
                evidence = problem.evidence(estimator, task.test) if scored else _NO_EVIDENCE
            pictures = _pictures(estimator, task, problem, evidence) if task.shown else {}
            if task.drawn:
                pictures["drawn"] = _drawn(estimator, task, problem, pictures.get("samples"))
            if task.horizon and isinstance(problem, AbstractSeries) and isinstance(estimator, Forecasts):
                pictures["ahead"] = problem.ahead(
                    estimator, task.train, task.test, task.horizon, task.level
                )
            if isinstance(problem, AbstractGiven):
                pictures["predicted"] = problem.predicted(estimator, task.test, task.level, task.seed)
        except Exception as error:
            return FoldResult.failed(task.label, task.fold, _sentence(error))
    fitted = vars(estimator)
    return FoldResult(
        task.label,
        task.fold,
        task.test,
        evidence.nats,
        evidence.stderr,
        float(evidence.shared),
        evidence.kind,
        seconds,
        parameter_count(fitted["model_"]) if isinstance(estimator, Shell) else 0,
        int(fitted["n_iter_"]) if isinstance(estimator, Shell) else None,
        bool(fitted["converged_"]) if isinstance(estimator, Shell) else None,
        dict(fitted["history_"]) if isinstance(estimator, Shell) else {},
        growth=evidence.growth,
        scored=scored,
        warnings=list(
            dict.fromkeys(_sentence(w.message) for w in caught if isinstance(w.message, Warning))
        ),
        **pictures,
    )


def run_all(
    tasks: list[Task], problem: AbstractProblem, store: Store, n_jobs: int | None, verbose: int
) -> tuple[list[FoldResult], bool]:
    """The results of all tasks, or of those that were done before Ctrl-C."""
    done = [(task, store.load(task)) for task in tasks]
    results = [result for _, result in done if result is not None]
    waiting = {(task.label, task.fold): task for task, result in done if result is None}
    show = progress_bar("compare") if verbose else silent
    with show(len(tasks)) as progress:
        progress.update(len(results), {})
        try:
            for result in _parallel(list(waiting.values()), problem, n_jobs):
                store.save(waiting[result.model, result.fold], result)
                results.append(result)
                bits = -float(np.mean(result.nats)) / math.log(2) if len(result.nats) else math.nan
                progress.update(len(results), {result.model: bits})
        except KeyboardInterrupt:
            return results, False
    return results, True


def _parallel(tasks: list[Task], problem: AbstractProblem, n_jobs: int | None) -> Iterator[FoldResult]:
    if not tasks:
        return iter(())
    # one fit at a time, so that Ctrl-C loses only those that are running
    options: Any = {"n_jobs": n_jobs, "return_as": "generator_unordered", "batch_size": 1}
    parallel: Any = joblib.Parallel(**options)
    return parallel(joblib.delayed(_run)(task, problem) for task in tasks)
