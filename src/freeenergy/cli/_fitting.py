"""The commands that look for a model: compare, fit."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

from ._options import (
    Data,
    Json,
    Models,
    Quiet,
    Reading,
    Seed,
    SupportWords,
    Targets,
    Timing,
    reads_series,
)
from ._reading import answers_for, read
from ._speech import say, tell

# a comparison has folds up to this many numbers, and one split beyond
_FOLDS_UP_TO = 20_000


@reads_series
def compare(
    data: Data,
    model: Models = None,
    target: Targets = None,
    cv: Annotated[int | None, typer.Option("--cv", min=2, help="How many folds.")] = None,
    test_size: Annotated[
        float | None, typer.Option("--test-size", help="One split instead of folds: the share held out.")
    ] = None,
    final_size: Annotated[
        float | None, typer.Option("--final-size", help="The share kept apart to score the winner once.")
    ] = None,
    groups: Annotated[
        str | None, typer.Option("--groups", help="The column of rows to be held out together.")
    ] = None,
    horizon: Annotated[
        int | None, typer.Option("--horizon", min=1, help="Of series, how many steps to forecast, too.")
    ] = None,
    continuous: Annotated[
        bool, typer.Option("--continuous", help="Whole numbers, too, have a density and no mass.")
    ] = False,
    support: SupportWords = None,
    report: Annotated[
        Path | None, typer.Option("--report", help="An .html file for the whole report.")
    ] = None,
    best: Annotated[
        Path | None, typer.Option("--best", help="A .safetensors file for the best model, fitted to all.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A .csv or .parquet file for the table.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option("--resume", help="A folder that keeps what is done, to go on from.")
    ] = None,
    criteria: Annotated[
        bool, typer.Option("--criteria", help="AIC and BIC of the fits to all rows, where there are such.")
    ] = False,
    seed: Seed = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="Processes; -1 for one per core.")] = 1,
    json: Json = False,
    quiet: Quiet = False,
    *,
    timing: Timing,
    reading: Reading,
) -> None:
    """Score models on held-out data: bits, standard errors, and how sure the order is."""
    from . import _files

    if cv is not None and test_size is not None:
        raise ValueError("Only one of --cv and --test-size can be given.")
    for name, share in (("test", test_size), ("final", final_size)):
        if share is not None and not 0 < share < 1:
            raise ValueError(f"--{name}-size must be a share between 0 and 1. Got {share:g} instead.")
    if jobs == 0:
        raise ValueError("--jobs must be a number of processes, or -1 for one per core. Got 0 instead.")
    if resume is not None and resume.exists() and not resume.is_dir():
        raise ValueError(f"The place to --resume from, '{resume}', is a file. A folder is needed.")
    _files.check_output(report, (".html",))
    _files.check_output(best, (".safetensors",))
    _files.check_output(output, (".csv", ".parquet"))
    found = read(data, reading, target=target, groups=groups, timing=timing)

    import freeenergy as fe
    from freeenergy.shell import ScoresSteps

    # with a target it depends on the models what it is about
    declared = None if found.y is not None else _support(found, support, continuous)
    with found.in_words_of_the_file():
        models = _models(model, found, declared)
    answers = answers_for(models, found, target)
    serial = any(isinstance(estimator, ScoresSteps) for estimator in models.values())
    found = found.in_time() if serial else found
    given = timing.option or (None if horizon is None else "--horizon")
    if given is not None and not serial:
        raise ValueError(f"{given} is for models of series, and none is named with --model.")
    if found.y is not None and (support or continuous):
        declared = _support_of_answers(models, support) if answers else _support(found, support, continuous)
    if cv is None and test_size is None:
        test_size = 0.2 if found.size > _FOLDS_UP_TO else None
        cv = None if test_size else min(5, found.units)
    ahead = {} if horizon is None else {"horizon": horizon}
    with found.in_words_of_the_file():
        board = fe.compare(
            models,
            found.fitted,
            *answers,
            cv=cv,
            test_size=test_size,
            final_size=final_size,
            groups=_groups(found, groups),
            support=declared,
            criteria=criteria,
            **ahead,
            random_state=seed,
            n_jobs=jobs,
            resume=resume,
            pictures=report is not None,
            verbose=int(not quiet),
        )
    board.results = [
        r if r.error is None else dataclasses.replace(r, error=found.told(r.error)) for r in board.results
    ]
    lines = board.table()
    if json:
        _files.write_json(board.to_json())
    else:
        tell(str(board).rstrip())
    if output is not None:
        _write_standings(board, output)
    solved = [line for line in lines if line.error is None]
    if report is not None and solved:
        board.to_html(report)
        say(f"The report is in {report}.")
    if not board.finished:
        kept = (
            f"Everything finished is kept in {resume}" if resume else "With --resume FOLDER it would go on"
        )
        say(f"Stopped: {len(board.results)} fits are done. {kept}.")
        raise typer.Exit(130)
    if not solved:
        raise ValueError(f"No model could be fitted. {lines[0].model}: {lines[0].error}")
    if best is not None:
        winner = board.best_estimator
        if not callable(getattr(winner, "save", None)):
            raise ValueError(f"{solved[0].model}, which is best here, cannot be kept in a file.")
        winner.save(best)
        say(f"{solved[0].model}, fitted to all rows, is in {best}.")


def _support_of_answers(models: dict[str, Any], words: list[str] | None) -> Any:
    """That numbers to be told have a density, which is all that can be declared of them."""
    from sklearn.base import is_classifier

    from freeenergy import Support

    if words or any(is_classifier(model) for model in models.values()):
        raise ValueError("--support and --continuous are for densities, not for models of a --target.")
    return Support(["continuous"])


def _groups(found: Any, title: str | None) -> Any:
    """Labels of rows, or of series, that are held out together."""
    import numpy as np

    if found.groups is None or found.steps is None or found.steps.series is None:
        return found.groups
    own = [np.unique(found.groups[rows]) for rows in found.sequence.members[1]]
    several = next((number for number, part in enumerate(own) if len(part) > 1), None)
    if several is not None:
        label = found.sequence.labels[several]
        raise ValueError(
            f"Column {title!r} of --groups must have one label for each series. {label!r} has several."
        )
    return np.concatenate(own)


def _write_standings(board: Any, path: Path) -> None:
    import io

    import polars as pl

    from freeenergy._core import write_whole

    frame = pl.DataFrame(board.to_rows())
    out = io.BytesIO()
    if path.suffix.lower() == ".parquet":
        frame.write_parquet(out)
    else:
        frame.write_csv(out)
    write_whole(path, out.getvalue())


def _support(found: Any, words: list[str] | None, continuous: bool) -> Any:
    """What the columns are declared to hold, or None; what is not declared is recognised."""
    from freeenergy import Support
    from freeenergy.shell import Column

    if not words and not continuous:
        return None
    if found.schema is not None:
        option = "--support" if words else "--continuous"
        raise ValueError(
            f"{option} is for tables of numbers. Say what the columns are with --schema NAME=KIND."
        )
    recognised = Support.recognise(found.rows)
    kinds = list(recognised.kinds)
    if continuous:
        kinds = [kind if kind is Column.CONSTANT else Column.CONTINUOUS for kind in kinds]
    known = {kind.value: kind for kind in Support.possible}
    for text in words or []:
        # a name may have a comma or an equals sign in it
        whole = text.rpartition("=")[0] in found.names
        parts = [text] if whole else text.split(",")
        named = [part.rpartition("=") for part in parts]
        wrong = next((word for _, _, word in named if word.strip() not in known), None)
        if wrong is not None:
            raise ValueError(f"--support knows {', '.join(known)}. Got {wrong.strip()!r} instead.")
        if not any(mark for _, mark, _ in named):
            if len(named) != len(found.names):
                raise ValueError(
                    f"--support must have a word for each of the {len(found.names)} columns, or NAME=WORD. "
                    f"Got {len(named)} instead."
                )
            kinds = [known[word.strip()] for _, _, word in named]
            continue
        for name, _, word in named:
            if name.strip() not in found.names:
                listed = ", ".join(map(repr, found.names[:10]))
                raise ValueError(f"--support names no column {name.strip()!r}. There are {listed}.")
            kinds[found.names.index(name.strip())] = known[word.strip()]
    return Support(kinds, recognised.steps, recognised.origins)


def _models(words: list[str] | None, found: Any, support: Any = None) -> dict[str, Any]:
    """Label → estimator."""
    from sklearn.base import is_regressor
    from sklearn.dummy import DummyClassifier

    from freeenergy import Support

    from . import _specs

    rows = found.rows
    if not words:
        if found.is_series:
            frequency = None if found.steps is None else found.sequence.frequency
            beside = 0 if found.steps is None else len(found.steps.inputs)
            words = _specs.series_defaults(rows, None if frequency is None else str(frequency), beside)
            return {text: _specs.build(text, rows) for text in words}
        if _specs.tells_numbers(found.y):
            return {
                text: _specs.build(text, rows, labels=False) for text in _specs.number_defaults(found.y)
            }
        support = Support.recognise(rows) if support is None else support
        varied, mass = ~support.constant, not support.continuous.any()
        mixed = found.schema is not None
        labels = mixed and not all(field.numeric for field in found.schema.modelled)
        words = _specs.defaults(
            rows[:, varied], labelled=found.y is not None, mass=mass, mixed=mixed, labels=labels
        )
    twice = [text for text in words if words.count(text) > 1]
    if twice:
        raise ValueError(f"The model {twice[0]!r} is given twice.")
    if not found.is_series and found.y is None:
        # densities are not asked about columns that do not vary
        constant = (Support.recognise(rows) if support is None else support).constant
        rows = rows if constant.all() else rows[:, ~constant]
    models = {text: _specs.build(text, rows) for text in words}
    # a base rate is of what the others tell; alone it goes by the values
    others = [estimator for estimator in models.values() if not isinstance(estimator, DummyClassifier)]
    numeric = any(map(is_regressor, others)) or (not others and _specs.tells_numbers(found.y))
    return {text: _specs.build(text, rows, labels=False) for text in words} if numeric else models


@reads_series
def fit(
    data: Data,
    model: Annotated[
        str, typer.Option("--model", "-m", metavar="WORDS", help="As in gaussian-mixture:n_components=8.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The .safetensors file for the fitted model; else a new one here, with the model's name.",
        ),
    ] = None,
    target: Targets = None,
    support: SupportWords = None,
    seed: Seed = None,
    json: Json = False,
    quiet: Quiet = False,
    *,
    timing: Timing,
    reading: Reading,
) -> None:
    """Fit one model to all of the data and keep it in a file."""
    import numpy as np

    from freeenergy.shell import ScoresSteps

    from . import _files, _specs

    if output is None:
        output = Path(f"{model.split(':')[0].split('(')[0]}.safetensors")
        if output.exists():
            raise ValueError(f"The file '{output}' is there already. Name another one, or it, by --output.")
    _files.check_output(output, (".safetensors",))
    found = read(data, reading, target=target, timing=timing)
    with found.in_words_of_the_file():
        estimator = _specs.build(model, found.rows, labels=not _specs.tells_numbers(found.y))
    serial = isinstance(estimator, ScoresSteps)
    if serial:
        found = found.in_time()
    elif timing.option is not None:
        raise ValueError(
            f"{timing.option} is for models of series, which {type(estimator).__name__} is not."
        )
    known = estimator.get_params(deep=False)
    if support and "support" not in known:
        raise ValueError(
            f"--support is for models that take whole numbers with noise: --model 'dequantised:{model}'. "
            f"{type(estimator).__name__} does not."
        )
    declared = _support(found, support, continuous=False)
    wanted = {"random_state": seed, "verbose": None if quiet else 1, "support": declared}
    estimator.set_params(**{k: v for k, v in wanted.items() if v is not None and k in known})
    answers = answers_for({model: estimator}, found, target)
    try:
        with found.in_words_of_the_file():
            for note in found.sequence.notes if found.steps is not None else ():
                say(note)
            estimator.fit(found.fitted, *answers)
    except KeyboardInterrupt:
        if getattr(estimator, "model_", None) is None:
            raise
        estimator.save(output)
        say(f"Stopped before the end; the model as it was then is in {output}.")
        raise typer.Exit(130) from None
    if found.table.stacked is not None and found.names != [f"x{j}" for j in range(len(found.names))]:
        # so that columns are found by name in other files, too
        estimator.feature_names_in_ = np.array(found.names, object)
    estimator.save(output)
    schema = getattr(estimator, "schema_", None)
    summary = {
        "model": type(estimator).__name__,
        "file": str(output),
        "rows": found.count,
        "columns": len(found.names) if schema is None else len(schema.modelled),
        "n_iter": getattr(estimator, "n_iter_", None),
        "converged": getattr(estimator, "converged_", None),
    }
    if json:
        _files.write_json(summary)
    else:
        what = f"{summary['rows']} {'series' if found.is_series else 'rows'}"
        tell(f"{summary['model']} fitted to {what} of {summary['columns']} columns is in {output}.")
