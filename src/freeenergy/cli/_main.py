"""The commands.

JAX and the models are imported by the commands that need them, so that help comes at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(
    name="freeenergy",
    help="Which probabilistic model explains the data, how sure is that, and what can be done with it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

# a comparison has folds up to this many numbers, and one split beyond
_FOLDS_UP_TO = 20_000

DATA = (
    "A CSV (also .gz), Parquet, .npy or .npz file, - for standard input, or a name such as digits or iris."
)
Data = Annotated[str, typer.Argument(metavar="DATA", help=DATA)]
ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="A file that fit has written.")]
Models = Annotated[
    list[str] | None,
    typer.Option("--model", "-m", metavar="WORDS", help="As in gaussian-mixture:n_components=8."),
]
Target = Annotated[
    str | None, typer.Option("--target", "-y", help="The column to be told from the others.")
]
Drop = Annotated[list[str] | None, typer.Option("--drop", help="A column to leave out; may be repeated.")]
Encode = Annotated[
    list[str] | None,
    typer.Option("--encode", help="A column of labels: a column of 0 and 1 for each; may be repeated."),
]
Header = Annotated[
    bool | None,
    typer.Option("--header/--no-header", help="Whether the first line of a CSV has names; found out else."),
]
Decimal = Annotated[
    str, typer.Option("--decimal", metavar="MARK", help="The decimal mark of a CSV: . or a comma.")
]
Array = Annotated[str | None, typer.Option("--array", help="Which array of an .npz; else the first.")]
MaxBytes = Annotated[
    int | None,
    typer.Option("--max-bytes", min=1, help="What a packed file may unpack to; else 512 MiB or its size."),
]
SupportWords = Annotated[
    list[str] | None,
    typer.Option(
        "--support",
        metavar="KINDS",
        help="What the columns hold: a word for each (integer,continuous,…) or NAME=WORD; may be repeated.",
    ),
]
Series = Annotated[
    str | None, typer.Option("--series", help="The column that tells which series a row belongs to.")
]
Seed = Annotated[int | None, typer.Option("--seed", min=0, max=2**32 - 1, help="Same seed, same result.")]
Json = Annotated[bool, typer.Option("--json", help="JSON on standard output, for machines.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="A .csv, .tsv, .parquet or .npy file; else standard output."),
]


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


@app.command()
def compare(
    data: Data,
    model: Models = None,
    target: Target = None,
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
    series: Series = None,
    continuous: Annotated[
        bool, typer.Option("--continuous", help="Whole numbers, too, have a density and no mass.")
    ] = False,
    support: SupportWords = None,
    drop: Drop = None,
    encode: Encode = None,
    header: Header = None,
    decimal: Decimal = ".",
    array: Array = None,
    max_bytes: MaxBytes = None,
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
    seed: Seed = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="Processes; -1 for one per core.")] = 1,
    json: Json = False,
    quiet: Quiet = False,
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
    options = {"drop": drop, "encode": encode, "header": header, "decimal": decimal, "array": array}
    options |= {"max_bytes": max_bytes}
    found = _read(data, target=target, groups=groups, series=series, **options)

    import freeenergy as fe

    X = found.values if _is_series(found.values) else found.frame()
    declared = _support(found, support, continuous)
    with found.in_words_of_the_file():
        models = _models(model, found, declared)
    labels = _labels_for(models, found, target)
    if labels and declared is not None:
        raise ValueError("--support and --continuous are for densities, not for models of a --target.")
    if cv is None and test_size is None:
        test_size = 0.2 if _size(found.values) > _FOLDS_UP_TO else None
        cv = None if test_size else min(5, len(found.values))
    with found.in_words_of_the_file():
        board = fe.compare(
            models,
            X,
            *labels,
            cv=cv,
            test_size=test_size,
            final_size=final_size,
            groups=found.groups,
            support=declared,
            random_state=seed,
            n_jobs=jobs,
            resume=resume,
            verbose=int(not quiet),
        )
    board.results = [
        r if r.error is None else dataclasses.replace(r, error=found.told(r.error)) for r in board.results
    ]
    lines = board.table()
    if json:
        _files.write_json(board.to_json())
    else:
        _tell(str(board).rstrip())
    if output is not None:
        _write_standings(lines, output)
    solved = [line for line in lines if line.error is None]
    if report is not None and solved:
        board.to_html(report)
        _say(f"The report is in {report}.")
    if not board.finished:
        kept = (
            f"Everything finished is kept in {resume}" if resume else "With --resume FOLDER it would go on"
        )
        _say(f"Stopped: {len(board.results)} fits are done. {kept}.")
        raise typer.Exit(130)
    if not solved:
        raise ValueError(f"No model could be fitted. {lines[0].model}: {lines[0].error}")
    if best is not None:
        board.best_estimator.save(best)
        _say(f"{solved[0].model}, fitted to all rows, is in {best}.")


def _write_standings(lines: list[Any], path: Path) -> None:
    import io

    import polars as pl

    from freeenergy._core import write_whole

    frame = pl.DataFrame([dataclasses.asdict(line) | {"kind": line.kind.value} for line in lines])
    out = io.BytesIO()
    if path.suffix.lower() == ".parquet":
        frame.write_parquet(out)
    else:
        frame.write_csv(out)
    write_whole(path, out.getvalue())


def _read(data: str, **options: Any) -> Any:
    """The data, after a word on how they were read if they could be read otherwise."""
    from . import _files

    options |= {name: options.get(name) or () for name in ("drop", "encode")}
    if options["decimal"] not in (".", ","):
        raise ValueError(f"--decimal must be . or a comma. Got {options['decimal']!r} instead.")
    found = _files.read(data, **options)
    for note in found.notes:
        _say(note)
    return found


def _labels_for(models: dict[str, Any], found: Any, target: str | None) -> list[Any]:
    """The labels, if there are any; classifiers cannot do without, and no other model takes them."""
    from sklearn.base import is_classifier

    classifiers = [words for words, model in models.items() if is_classifier(model)]
    if found.y is None:
        if classifiers:
            raise ValueError(
                f"{classifiers[0]} tells labels from the other columns. Name the column that has them with "
                "--target NAME."
            )
        return []
    if not classifiers:
        _say(f"Column {target!r} is left out: no model here tells it from the others.")
        return []
    return [found.y]


def _is_series(values: Any) -> bool:
    return isinstance(values, list) or values.ndim == 3


def _size(values: Any) -> int:
    return sum(part.size for part in values) if isinstance(values, list) else values.size


def _support(found: Any, words: list[str] | None, continuous: bool) -> Any:
    """What the columns are declared to hold, or None; what is not declared is recognised."""
    import numpy as np

    from freeenergy import Support
    from freeenergy.shell import Column

    if not words and not continuous:
        return None
    rows = np.concatenate(list(found.values)) if _is_series(found.values) else found.values
    recognised = Support.recognise(rows)
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
    import numpy as np

    from freeenergy import Support

    from . import _specs

    rows = np.concatenate(list(found.values)) if _is_series(found.values) else found.values
    if not words:
        if _is_series(found.values):
            raise ValueError("For series name the models to compare with --model.")
        support = Support.recognise(rows) if support is None else support
        varied, mass = ~support.constant, not support.continuous.any()
        words = _specs.defaults(rows[:, varied], labelled=found.y is not None, mass=mass)
    twice = [text for text in words if words.count(text) > 1]
    if twice:
        raise ValueError(f"The model {twice[0]!r} is given twice.")
    return {text: _specs.build(text, rows) for text in words}


@app.command()
def fit(
    data: Data,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The .safetensors file for the fitted model.")
    ],
    model: Annotated[
        str, typer.Option("--model", "-m", metavar="WORDS", help="As in gaussian-mixture:n_components=8.")
    ],
    target: Target = None,
    series: Series = None,
    support: SupportWords = None,
    drop: Drop = None,
    encode: Encode = None,
    header: Header = None,
    decimal: Decimal = ".",
    array: Array = None,
    max_bytes: MaxBytes = None,
    seed: Seed = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fit one model to all of the data and keep it in a file."""
    import numpy as np

    from . import _files, _specs

    _files.check_output(output, (".safetensors",))
    options = {"drop": drop, "encode": encode, "header": header, "decimal": decimal, "array": array}
    options |= {"max_bytes": max_bytes}
    found = _read(data, target=target, series=series, **options)
    rows = found.values if not _is_series(found.values) else found.values[0]
    with found.in_words_of_the_file():
        estimator = _specs.build(model, rows)
    known = estimator.get_params(deep=False)
    if support and "support" not in known:
        raise ValueError(
            f"--support is for models that take whole numbers with noise: --model 'dequantised:{model}'. "
            f"{type(estimator).__name__} does not."
        )
    declared = _support(found, support, continuous=False)
    wanted = {"random_state": seed, "verbose": None if quiet else 1, "support": declared}
    estimator.set_params(**{k: v for k, v in wanted.items() if v is not None and k in known})
    X = found.values if _is_series(found.values) else found.frame()
    labels = _labels_for({model: estimator}, found, target)
    try:
        with found.in_words_of_the_file():
            estimator.fit(X, *labels)
    except KeyboardInterrupt:
        if getattr(estimator, "model_", None) is None:
            raise
        estimator.save(output)
        _say(f"Stopped before the end; the model as it was then is in {output}.")
        raise typer.Exit(130) from None
    if _is_series(found.values) and found.names != [f"x{j}" for j in range(len(found.names))]:
        # so that columns are found by name in other files, too
        estimator.feature_names_in_ = np.array(found.names, object)
    estimator.save(output)
    summary = {
        "model": type(estimator).__name__,
        "file": str(output),
        "rows": len(found.values),
        "columns": len(found.names),
        "n_iter": getattr(estimator, "n_iter_", None),
        "converged": getattr(estimator, "converged_", None),
    }
    if json:
        _files.write_json(summary)
    else:
        what = f"{summary['rows']} {'series' if _is_series(found.values) else 'rows'}"
        _tell(f"{summary['model']} fitted to {what} of {summary['columns']} columns is in {output}.")


@app.command()
def score(
    model: ModelFile,
    data: Data,
    output: Output = None,
    target: Target = None,
    series: Series = None,
    drop: Drop = None,
    encode: Encode = None,
    header: Header = None,
    decimal: Decimal = ".",
    array: Array = None,
    max_bytes: MaxBytes = None,
    json: Json = False,
) -> None:
    """Log-probability of each row under a model, in nats, with its standard error."""
    import numpy as np

    from . import _files

    _files.check_output(output)
    estimator = _load(model, "evidence")
    options = {"drop": drop, "encode": encode, "header": header, "decimal": decimal, "array": array}
    options |= {"max_bytes": max_bytes}
    found = _read(data, target=target, series=series, **options)
    found, X = _for_model(found, estimator, encode)
    with found.in_words_of_the_file():
        evidence = _evidence(estimator, X, found.y, target)
    impossible = int(np.isneginf(evidence.nats).sum())
    error = np.nan if impossible else evidence.mean_stderr
    if json:
        _files.write_json(
            {
                "mean": _files.finite(evidence.mean),
                "stderr": _files.finite(error),
                "kind": evidence.kind.value,
                "nats": _files.finite(np.asarray(evidence.nats, float)),
            }
        )
    else:
        _files.write(["nats", "stderr"], np.column_stack([evidence.nats, evidence.stderr]), output)
    if impossible:
        _say(f"{impossible} of {len(evidence)} rows are impossible under the model: their mean is −∞ nats.")
    else:
        bits = f"{-evidence.mean / np.log(2):.6g} ± {error / np.log(2):.2g} bits"
        _say(f"Mean {evidence.mean:.6g} nats ({bits}), {evidence.kind.value}.")


def _evidence(estimator: Any, X: Any, y: Any, target: str | None) -> Any:
    """The evidence of the labels given the rows, if there are labels; else that of the rows."""
    from sklearn.base import is_classifier

    from freeenergy.comparison._problems import evidence_of_labels
    from freeenergy.shell import Scores, ScoresLabels

    name = type(estimator).__name__
    if y is None:
        if isinstance(estimator, ScoresLabels) and not isinstance(estimator, Scores):
            raise ValueError(
                f"{name} gives the probability of labels. Name the column that has them with --target NAME."
            )
        return estimator.evidence(X)
    if not is_classifier(estimator):
        _say(f"Column {target!r} is left out: {name} does not tell it from the others.")
        return estimator.evidence(X)
    y = _as_fitted(estimator, y)
    unknown = y[~_known(estimator, y)]
    if len(unknown):
        _say(f"{len(unknown)} labels, such as {str(unknown[0])!r}, are none that {name} was fitted to.")
    return evidence_of_labels(estimator, X, y)


def _as_fitted(estimator: Any, y: Any) -> Any:
    """Labels as text where the model was fitted to text: a file in which all are numbers has them so."""
    return y.astype(str) if estimator.classes_.dtype.kind in "UO" else y


def _known(estimator: Any, y: Any) -> Any:
    import numpy as np

    return np.isin(y, estimator.classes_)


@app.command()
def predict(
    model: ModelFile,
    data: Data,
    output: Output = None,
    target: Target = None,
    series: Series = None,
    drop: Drop = None,
    encode: Encode = None,
    header: Header = None,
    decimal: Decimal = ".",
    array: Array = None,
    max_bytes: MaxBytes = None,
    json: Json = False,
) -> None:
    """The label (component, cluster, state) of each row and, where the model has them, probabilities."""
    import numpy as np

    from . import _files

    _files.check_output(output)
    estimator = _load(model, "predict")
    options = {"drop": drop, "encode": encode, "header": header, "decimal": decimal, "array": array}
    options |= {"max_bytes": max_bytes}
    found = _read(data, target=target, series=series, **options)
    found, X = _for_model(found, estimator, encode)
    several = _is_series(found.values)
    columns = {"prediction": np.concatenate(estimator.predict(X)) if several else estimator.predict(X)}
    if callable(getattr(estimator, "predict_proba", None)):
        shares = estimator.predict_proba(X)
        shares = np.concatenate(shares) if several else shares
        names = getattr(estimator, "classes_", np.arange(shares.shape[1]))
        columns |= {f"p({name})": share for name, share in zip(names, shares.T, strict=True)}
    if json:
        _files.write_json({name: _files.finite(values) for name, values in columns.items()})
    else:
        _files.write_columns(columns, output)
    if found.y is not None and not several:
        right = int(np.sum(columns["prediction"] == _as_fitted(estimator, found.y)))
        _say(f"{right} of {len(found.y)} labels are right.")


@app.command()
def sample(
    model: ModelFile,
    n: Annotated[int, typer.Option("--number", "-n", min=1, help="How many rows, or series.")] = 1,
    length: Annotated[
        int | None, typer.Option("--length", min=1, help="Time steps, for models of series.")
    ] = None,
    output: Output = None,
    seed: Seed = None,
    json: Json = False,
) -> None:
    """New rows from a model."""
    import inspect as python

    from freeenergy.datasets._tables import check_size

    from . import _files

    _files.check_output(output)
    estimator = _load(model, "sample")
    options = {} if length is None else {"length": length}
    if options and "length" not in python.signature(estimator.sample).parameters:
        raise ValueError(f"--length is for models of series, which {type(estimator).__name__} is not.")
    steps = length or getattr(estimator, "length_", 1)
    # a row of numbers and the key that it is drawn with
    check_size("The sample", 8 * n * steps * (estimator.n_features_in_ + 1))
    drawn = estimator.sample(n, random_state=seed, **options)
    _give(_names(estimator, drawn.shape[-1]), drawn, output, json)


@app.command()
def impute(
    model: ModelFile,
    data: Data,
    output: Output = None,
    drop: Drop = None,
    encode: Encode = None,
    header: Header = None,
    decimal: Decimal = ".",
    array: Array = None,
    max_bytes: MaxBytes = None,
    json: Json = False,
) -> None:
    """The rows with what is missing inferred by a model."""
    from . import _files

    _files.check_output(output)
    estimator = _load(model, "impute")
    options = {"drop": drop, "encode": encode, "header": header, "decimal": decimal, "array": array}
    options |= {"max_bytes": max_bytes}
    found, X = _for_model(_read(data, **options), estimator, encode)
    with found.in_words_of_the_file():
        filled = estimator.impute(X)
    _give(found.names, filled, output, json)


def _give(names: list[str], values: Any, output: Path | None, json: bool) -> None:
    from . import _files

    if getattr(values, "to_numpy", None) is not None:
        # a model of a frame gives frames, of which the left-out columns may be missing
        names, values = [str(name) for name in values.columns], values.to_numpy()
    if json:
        _files.write_json({"columns": names, "rows": _files.finite(values)})
    elif output is not None and output.suffix == ".npy":
        _files.write(names, values, output)
    else:
        # in a table series stand one after another
        _files.write(names, values.reshape(-1, values.shape[-1]), output)


def _load(path: Path, method: str) -> Any:
    import freeenergy as fe

    estimator = fe.load(path)
    if not callable(getattr(estimator, method, None)):
        raise ValueError(
            f"{type(estimator).__name__} in '{path}' cannot {method.replace('evidence', 'score')}."
        )
    return estimator


def _names(estimator: Any, columns: int) -> list[str]:
    names = getattr(estimator, "feature_names_in_", None)
    return [f"x{j}" for j in range(columns)] if names is None else [str(name) for name in names]


def _for_model(found: Any, estimator: Any, encode: list[str] | None) -> tuple[Any, Any]:
    """The data with the columns of the model, and as it takes them."""
    from . import _files

    found = _files.align(found, estimator, encode or ())
    named = getattr(estimator, "feature_names_in_", None) is not None
    if _is_series(found.values):
        if named:
            # the columns are in its order now, and series have no names to be compared again
            del estimator.feature_names_in_
        return found, found.values
    return found, found.frame() if named else found.values


@app.command()
def inspect(
    path: Annotated[str, typer.Argument(metavar="FILE", help="A model file, or data as for the others.")],
    header: Header = None,
    decimal: Decimal = ".",
    array: Array = None,
    max_bytes: MaxBytes = None,
    json: Json = False,
) -> None:
    """What is in a model file or in a data file."""
    if _is_model(path):
        _inspect_model(path, json)
    else:
        _inspect_data(_read(path, header=header, decimal=decimal, array=array, max_bytes=max_bytes), json)


def _is_model(path: str) -> bool:
    """Whether a file begins as safetensors do: the length of a header, and the header."""
    file = Path(path)
    if file.suffix == ".safetensors":
        return True
    if path == "-" or not file.is_file():
        return False
    with file.open("rb") as opened:
        return opened.read(9)[8:] == b"{"


def _inspect_model(path: str, json: bool) -> None:
    from freeenergy import io

    from . import _files

    found = io.describe(path)
    if json:
        _files.write_json(found)
        return
    state = "fitted" if found["fitted"] else "not fitted"
    _tell(f"{found['class']}, {state}, {found['numbers']} numbers, {found['bytes']} bytes")
    if found["n_features_in"] is not None:
        names = found["feature_names"]
        listed = f": {', '.join(names[:10])}{', …' if len(names) > 10 else ''}" if names else ""
        _tell(f"columns: {found['n_features_in']}{listed}")
    for name, value in found["parameters"].items():
        _tell(f"  {name} = {value}")
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    _tell(f"format {found['format']}, written by {versions}")


def _inspect_data(found: Any, json: bool) -> None:
    import numpy as np

    from freeenergy import Support

    from . import _files

    rows = found.values.reshape(-1, found.values.shape[-1])
    support = Support.recognise(rows)
    columns = []
    for name, kind, column in zip(found.names, support.kinds, rows.T, strict=True):
        seen = column[~np.isnan(column)]
        low, mean, high = (seen.min(), seen.mean(), seen.max()) if len(seen) else (None, None, None)
        columns.append(
            {
                "name": name,
                "kind": kind.value,
                "missing": int(len(column) - len(seen)),
                "min": low,
                "mean": mean,
                "max": high,
            }
        )
    if json:
        columns = [{key: _files.finite(value) for key, value in line.items()} for line in columns]
        _files.write_json({"shape": found.values.shape, "columns": columns})
        return
    shape = " × ".join(map(str, found.values.shape))
    _tell(f"{shape}. {found.description}".strip())
    _print_table(list(columns[0]), [["" if v is None else _short(v) for v in c.values()] for c in columns])


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _print_table(titles: list[str], lines: list[list[str]]) -> None:
    """Columns side by side; the first is on the left, the others on the right."""
    widths = [max(map(len, column)) for column in zip(titles, *lines, strict=True)]
    for line in [titles, *lines]:
        cells = [line[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(line[1:], widths[1:]))]
        _tell("  ".join(cells).rstrip())


@app.command()
def models(json: Json = False) -> None:
    """The models that there are, with their parameters."""
    import inspect as python

    from . import _files, _specs

    found = []
    for name, kind in _specs.estimators().items():
        parameters = {
            key: None if field.default is None else _word(field.default)
            for key, field in python.signature(kind).parameters.items()
        }
        sentence = (python.getdoc(kind) or "").strip().splitlines()[0]
        found.append({"name": name, "class": kind.__name__, "summary": sentence, "parameters": parameters})
    if json:
        _files.write_json(found)
        return
    width = max(len(entry["name"]) for entry in found)
    for entry in found:
        _tell(f"{entry['name'].ljust(width)}  {entry['summary']}")


def _word(value: Any) -> Any:
    """A default as it would be written on the command line."""
    from . import _specs

    if isinstance(value, bool | int | float | str):
        return value
    return _specs.kebab(getattr(value, "__name__", type(value).__name__))


# ---------------------------------------------------------------------------------------------
# the way in
# ---------------------------------------------------------------------------------------------


def _visible(text: str) -> str:
    """`text` as a terminal may have it; names in the data may hold commands for it."""
    if text.isprintable():
        return text
    from freeenergy._core import visible

    return visible(text)


def _tell(text: str) -> None:
    """Lines on standard output."""
    typer.echo("\n".join(map(_visible, text.split("\n"))))


def _say(sentence: str) -> None:
    """A sentence on standard error."""
    typer.echo(_visible(" ".join(sentence.split())), err=True)


@contextlib.contextmanager
def _warnings_in_a_line() -> Iterator[None]:
    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        _say(f"Warning: {message}")

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
        _say(_sentence(error.format_message()))
    except BrokenPipeError:
        # whoever read our output has seen enough
        sys.stdout = None
        return 0
    except MemoryError:
        _say("There is not enough memory. Take a part of the rows, or a smaller model.")
    except OSError as error:
        what = str(error) if error.strerror is None else error.strerror
        _say(_sentence(what if error.filename is None else f"'{error.filename}': {what}"))
    except (ValueError, TypeError) as error:
        _say(_sentence(str(error)))
    except KeyboardInterrupt:
        return _stopped()
    return 2


def _sentence(text: str) -> str:
    text = " ".join(text.split()) or "Something is wrong."
    return text if text.endswith((".", "?", "!")) else text + "."


def _stopped() -> int:
    _say("Stopped; nothing was written.")
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
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    sys.exit(run(sys.argv[1:]))
