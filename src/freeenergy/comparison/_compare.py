"""`compare`: models, data and folds in, a `Comparison` out."""

from __future__ import annotations

import importlib.metadata
import math
import numbers
import os
import platform
import time
import warnings
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length

from .._core import Evidence
from ..estimators import Schema, Support
from ..shell import Shell
from ..shell._series_frame import SeriesFrame
from ..shell._summary import expression
from ._board import SIGNS, Comparison, with_error
from ._evidence import NOTE, parameter_evidence, priors_of
from ._problems import AbstractGiven, AbstractProblem, AbstractSeries, problem_of
from ._results import FoldResult, Standing
from ._tasks import FINAL, Store, Task, derived_seed, run_all

_EXAMPLES = 500


def _labelled(models: Any) -> dict[str, Any]:
    """Label → estimator; estimators in a list are called by their expression."""
    if isinstance(models, BaseEstimator):
        models = [models]
    if not isinstance(models, (dict, list, tuple)) or not len(models):
        raise ValueError(
            "The 'models' parameter of compare must be a list of estimators, or a dict with labels. "
            f"Got {models!r} instead."
        )
    named = {}
    for label, model in models.items() if isinstance(models, dict) else ((None, m) for m in models):
        if not isinstance(model, BaseEstimator):
            raise ValueError(
                f"The 'models' parameter of compare must hold estimators. Got {model!r} instead."
            )
        base = expression(model) if label is None else str(label)
        name, number = base, 1
        while name in named:
            number += 1
            name = f"{base} ({number})"
        named[name] = model
    return named


def compare(
    models: Any,
    X: Any,
    y: Any = None,
    *,
    cv: Any = 5,
    test_size: float | int | None = None,
    final_size: float | int | None = None,
    groups: Any = None,
    support: Support | Schema | None = None,
    horizon: int | None = None,
    level: float = 0.9,
    criteria: bool = False,
    prior: Any = None,
    evidence: Any = None,
    n_jobs: int | None = 1,
    random_state: Any = None,
    resume: str | os.PathLike[str] | None = None,
    pictures: bool = True,
    verbose: int = 0,
) -> Comparison:
    """Held-out bits of several models on the same rows, with how sure the order is.

    Args:
        models: a list of estimators, or a dict label → estimator: densities, or with `y` classifiers, or
            regressors that give the law of a number.  Of tables models that only draw (`GAN`) are compared
            by their draws, which stand in `draws`.
        X: a row per sample; NaN is not observed and marginalised.  Of tables with columns of other kinds
            than numbers (`Schema`) models of continuous columns take codes, as `Dequantised` does.
        y: labels, of which classifiers give the probability given the row, or numbers, of which regressors
            give the law, one or several for each row; densities ignore them.  How good predictions are
            stands in `predictions`.
        cv: how many folds, or a splitter of scikit-learn.
        test_size: one split instead of folds; the share (or number) of rows to hold out.
        final_size: the share (or number) of rows to keep apart; only the winner is scored on them, once,
            so that `final` is not optimistic as the numbers that chose it are.
        groups: labels of rows that belong together and are held out together.
        support: which columns are whole numbers, constant or continuous, or a `Schema`; None to recognise
            it.  Of numbers to be told it is that of `y`, one column.
        horizon: for series, so many steps from some of the held-out ones on are forecast, too: their errors
            and the coverage of their intervals stand in `forecasts`.
        level: the probability of these intervals.
        criteria: whether each model is fitted to all rows, too, for AIC and BIC: of those whose likelihood
            is exact and was maximised.
        prior: of parameters, as `infer` takes it, or a dict label → prior.  Adds log ∫ p(rows | θ) p(θ) dθ
            of all rows for each model that has one (marginal likelihood), which is no held-out number.
        evidence: how that is had where it has no closed form: a method of `inference` that gives evidence,
            such as `Bridge(NUTS())` or `Anneal(…)`; `SequentialMonteCarlo()` by default.
        n_jobs: processes of joblib, or whatever backend it was given.
        random_state: seed of splits, and of models that have none.  With `resume`, None means 0.
        resume: a folder that keeps every finished fold and the state of running fits.  The same call goes
            on where it was stopped; a fold is fitted again only if its data, model, split or seed changed.
        pictures: whether draws, hidden parts and unlikely rows of one fold are kept for a report, and draws
            of that fold are measured; without them it has numbers only, and a comparison of small data
            takes about half of the time.  If some model only draws, draws of every fold are measured.
        verbose: 1 shows progress on standard error.

    Ctrl-C returns what is finished.

    >>> import freeenergy as fe
    >>> X = np.random.default_rng(0).normal(size=(200, 2)) ** 3
    >>> board = fe.compare({"one": fe.GaussianDensity(), "four": fe.GaussianMixture(4)}, X, random_state=0)
    >>> [line.model for line in board.table()]
    ['four', 'one']
    >>> y = X[:, 0] + np.random.default_rng(1).normal(size=200)
    >>> board = fe.compare({"line": fe.LinearRegression(), "none": fe.BaseRate()}, X, y, random_state=0)
    >>> [line.model for line in board.table()], list(board.predictions()[0].measures)
    (['line', 'none'], ['RMSE', 'MAE', 'pinball', 'in 90%'])
    """
    named = _labelled(models)
    groups = None if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1].ravel()
    problem = problem_of(named, X, y, support, groups)
    _check_horizon(problem, horizon)
    _check_level(level)
    priors = priors_of(prior, evidence, list(named))
    if groups is not None:
        check_consistent_length(np.empty(problem.n_rows), groups)
    seed = 0 if random_state is None and resume is not None else random_state
    seed = int(seed) if isinstance(seed, numbers.Integral) else check_random_state(seed).randint(2**31 - 1)
    units, final_units = np.arange(problem.n_rows), None
    if final_size is not None:
        units, final_units = problem.apart(units, final_size, groups, seed)
    results, admitted = [], {}
    for label, model in named.items():
        try:
            admitted[label] = problem.admit(model)
        except ValueError as error:
            results.append(FoldResult.failed(label, 0, str(error)))
    own_groups = None if groups is None else groups[units]
    if test_size is not None:
        pairs = [problem.apart(units, test_size, own_groups, seed)]
    else:
        pairs = problem.splits(units, cv, own_groups, seed, list(admitted.values()))
    store = Store(resume, problem)
    shown_fold = range(len(pairs))[problem.shown_fold] if pictures else None
    # fold by fold, so that what is finished after Ctrl-C is paired
    only_draws = not all(map(problem.scores, admitted.values()))
    beside = [fold for fold in range(len(pairs)) if only_draws or fold == shown_fold]
    tasks = [
        _task(
            label,
            model,
            fold,
            train,
            test,
            seed,
            store,
            fold == shown_fold,
            horizon or 0,
            level,
            fold in beside,
        )
        for fold, (train, test) in enumerate(pairs)
        for label, model in admitted.items()
    ]
    found, finished = run_all(tasks, problem, store, n_jobs, verbose)
    order = {label: place for place, label in enumerate(named)}
    results += sorted(found, key=lambda r: (r.fold, order[r.model]))
    rng = np.random.default_rng(seed)
    shown = np.sort(rng.permutation(problem.n_rows)[:_EXAMPLES])
    board = Comparison(
        results=results,
        labels=list(named),
        models={label: admitted.get(label, model) for label, model in named.items()},
        support=problem.support,
        dimension=problem.dimension,
        n_rows=problem.n_rows,
        settings=_settings(named, seed, pairs, cv, test_size, final_size)
        | ({"X": X.declaration} if isinstance(X, SeriesFrame) and X.declared else {})
        | ({} if horizon is None else {"horizon": int(horizon)})
        | ({"level": level} if horizon is not None or isinstance(problem, AbstractGiven) else {}),
        examples=problem.examples(shown),
        example_rows=shown,
        feature_names=problem.feature_names,
        notes=list(problem.notes),
        finished=finished,
        final=None,
        _problem=problem,
        _data=(X, y),
        schema=problem.columns,
        times=problem.times,
        series_names=problem.series_names,
        input_names=problem.input_names,
        references={fold: problem.beside_data(*pairs[fold]) for fold in beside},
    )
    if final_units is not None and finished:
        board.final, board.finished = _score_final(board, problem, store, units, final_units, n_jobs)
    if criteria and finished:
        board.criteria = {}
        board.finished = board.finished and _add_criteria(board)
    if prior is not None and finished:
        board.evidences = {}
        board.finished = board.finished and _add_evidence(board, priors, evidence)
    board.notes += _remarks(board, len(tasks))
    return board


def _add_evidence(board: Comparison, priors: dict[str, Any], method: Any) -> bool:
    """The evidence of every model that was scored and has a prior; False after Ctrl-C."""
    assert board.evidences is not None
    board.notes.append(NOTE)
    try:
        for line in [line for line in _scored(board) if line.model in priors]:
            with warnings.catch_warnings():
                # what there is to warn of was told of the folds
                warnings.simplefilter("ignore")
                fitted = board.fit_all(line.model)
            seed = derived_seed(board.settings["seed"], line.model, FINAL)
            found = parameter_evidence(fitted, board._data[0], priors[line.model], method, seed)
            board.evidences[line.model] = found
            board.notes += found.notes(line.model)
    except KeyboardInterrupt:
        return False
    return True


def _add_criteria(board: Comparison) -> bool:
    """AIC and BIC of every model that was scored, of its fit to all rows; False after Ctrl-C."""
    assert board.criteria is not None
    lines = _scored(board)
    try:
        for line in lines:
            with warnings.catch_warnings():
                # what there is to warn of was told of the folds
                warnings.simplefilter("ignore")
                fitted = board.fit_all(line.model)
            if line is lines[0]:
                board._best = fitted
            found = fitted.criteria(board._data[0]) if isinstance(fitted, Shell) else None
            if found is not None:
                board.criteria[line.model] = found
    except KeyboardInterrupt:
        return False
    board.notes.append(
        "AIC and BIC are of the fit to all rows, of models whose likelihood is exact and was maximised."
    )
    return True


def _scored(board: Comparison) -> list[Standing]:
    """The lines of models that have bits."""
    return [line for line in board.table() if line.error is None and line.scored]


def _check_horizon(problem: AbstractProblem, horizon: int | None) -> None:
    if horizon is None:
        return
    if not isinstance(problem, AbstractSeries):
        raise ValueError("The 'horizon' parameter of compare needs models of series. Got none.")
    if not isinstance(horizon, numbers.Integral) or isinstance(horizon, bool) or horizon < 1:
        raise ValueError(
            "The 'horizon' parameter of compare must be an int in the range [1, inf) or None. "
            f"Got {horizon!r} instead."
        )


def _check_level(level: float) -> None:
    if not isinstance(level, numbers.Real) or not 0 < level < 1:
        raise ValueError(
            f"The 'level' parameter of compare must be a float in the range (0, 1). Got {level!r} instead."
        )


def _task(
    label: str,
    model: Any,
    fold: int,
    train: np.ndarray,
    test: np.ndarray,
    seed: int,
    store: Store,
    shown: bool = False,
    horizon: int = 0,
    level: float = 0.9,
    drawn: bool = False,
) -> Task:
    own = derived_seed(seed, label, fold)
    task = Task(label, model, fold, train, test, own, shown, drawn, horizon=horizon, level=level)
    task.name = store.name(task)
    task.checkpoint = store.checkpoint(task)
    return task


def _score_final(
    board: Comparison,
    problem: AbstractProblem,
    store: Store,
    units: np.ndarray,
    final: np.ndarray,
    n_jobs: int | None,
) -> tuple[FoldResult | None, bool]:
    """The winner, fitted to all rows that were compared on and scored on those kept apart."""
    best = board.table()[0]
    if best.error is not None or not best.scored:
        return None, True
    model, seed = board.models[best.model], board.settings["seed"]
    task = _task(best.model, model, FINAL, units, final, seed, store)
    results, finished = run_all([task], problem, store, 1, 0)
    return (results[0] if results else None), finished


def _settings(
    models: dict[str, Any], seed: int, pairs: list[Any], cv: Any, test_size: Any, final_size: Any
) -> dict[str, Any]:
    """What somebody needs to repeat it."""
    split = f"test_size={test_size}" if test_size is not None else f"cv={cv}"
    versions = {
        name: importlib.metadata.version(name) for name in ("freeenergy", "jax", "scikit-learn", "numpy")
    }
    return {
        "seed": seed,
        "splits": split if final_size is None else f"{split}, final_size={final_size}",
        "folds": len(pairs),
        "time": time.strftime("%Y-%m-%d %H:%M:%S%z"),
        "python": platform.python_version(),
        **versions,
        **{f"model {label}": expression(model) for label, model in models.items()},
    }


def _remarks(board: Comparison, tasks: int) -> list[str]:
    """What a reader should know about the results."""
    lines = []
    for label in board.labels:
        own = [r for r in board.results if r.model == label]
        rows, impossible = sum(len(r.nats) for r in own), sum(int(np.isneginf(r.nats).sum()) for r in own)
        if impossible:
            lines.append(
                f"{label} calls {impossible} of {rows} held-out rows impossible: its bits are infinite."
            )
        lines += list(dict.fromkeys(f"{label} warned: {text}" for r in own for text in r.warnings))[:1]
    if not board.finished:
        done = sum(r.error is None for r in board.results)
        lines.append(f"Stopped before the end: {done} of {tasks} fits are done.")
    good = _scored(board)
    drawing = [line.model for line in board.table() if not line.scored]
    if drawing:
        *others, last = drawing
        names = f"{', '.join(others)} and {last} have" if others else f"{last} has"
        lines.append(f"{names} no density: there are no bits, and draws are laid beside held-out rows.")
    if board.final is not None and board.final.error is None:
        kept = Evidence(board.final.nats, board.final.stderr, board.final.kind, board.final.shared)
        bits = with_error(-kept.mean / math.log(2), kept.mean_stderr / math.log(2))
        lines.append(
            f"On {len(kept)} rows kept apart {board.final.model} has {SIGNS[kept.kind]}{bits} bits."
        )
    elif len(good) > 1:
        lines.append(
            f"The best of {len(good)} was chosen by these numbers, which makes its own a little "
            "optimistic; final_size=0.2 keeps rows apart for one last score."
        )
    return lines
