"""The commands that ask a fitted model: score, predict, transform, impute, outliers, sample, forecast, …"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ._options import (
    Data,
    Json,
    ModelFile,
    Output,
    Reading,
    Seed,
    Targets,
    Timing,
    reads_data,
    reads_series,
)
from ._reading import numbers, read
from ._speech import say

if TYPE_CHECKING:
    from ._files import Input

Steps = Annotated[
    int | None,
    typer.Option("--steps", "-n", min=1, help="How many steps to look ahead; else 1, or as --future has."),
]
# draws by which it is known how surprising the values of a column are on average
_USUAL = 256
Level = Annotated[
    float | None, typer.Option("--level", help="The probability of the intervals, between 0 and 1.")
]


def _asked(
    model: Path,
    method: str,
    data: str,
    reading: Reading,
    *,
    timing: Timing | None = None,
    target: list[str] | None = None,
) -> tuple[Any, Input, Any]:
    """A model that has a method, the data with its columns, and these as it takes them."""
    import numpy as np

    from freeenergy.shell import ScoresSteps

    from . import _files

    estimator: Any = _load(model, method)
    timing = Timing() if timing is None else timing
    serial = isinstance(estimator, ScoresSteps)
    if timing.option is not None and not serial:
        name = type(estimator).__name__
        raise ValueError(f"{timing.option} is for models of series, which {name} in '{model}' is not.")
    fitted = getattr(estimator, "input_names_in_", None)
    if fitted is not None and not timing.inputs:
        timing = dataclasses.replace(timing, inputs=[str(name) for name in fitted])
    found = read(data, reading, target=target, timing=timing, model=estimator)
    as_fitted = _timed_as_fitted(estimator, timing, found.table.columns) if serial else timing
    if as_fitted != timing:
        if data == "-":
            raise ValueError(
                f"{type(estimator).__name__} in '{model}' was fitted with {as_fitted.written}. "
                "Say so again for what comes from standard input."
            )
        say(f"With {as_fitted.written}, as it was fitted.")
        timing = as_fitted
        found = read(data, reading, target=target, timing=timing, model=estimator)
    found = _files.for_model(found, estimator, reading.encode or ())
    named = getattr(estimator, "feature_names_in_", None) is not None
    if not serial:
        return estimator, found, found.frame if named else found.table.values
    inputs = getattr(estimator, "n_inputs_in_", 0)
    if inputs and not timing.inputs:
        raise ValueError(
            f"{type(estimator).__name__} in '{model}' was fitted with {inputs} inputs. Name their columns, "
            "in the same order, with --inputs."
        )
    found = found.in_time()
    if found.steps is None and named:
        # the columns are in its order now, and arrays have no names to be compared again
        vars(estimator).pop("feature_names_in_")
    elif found.steps is not None and not named:
        # it was fitted to an array: columns are taken in their order
        vars(estimator)["feature_names_in_"] = np.array(found.names, object)
    return estimator, found, found.sequence


def _timed_as_fitted(estimator: Any, timing: Timing, columns: Collection[str]) -> Timing:
    """The columns of times and of series that were fitted, where they are there and no others are named."""
    names = {"series": "series_column_", "time": "time_column_"}
    fitted = {option: getattr(estimator, attribute, None) for option, attribute in names.items()}
    chosen = {
        option: name
        for option, name in fitted.items()
        if name in columns and getattr(timing, option) is None
    }
    return dataclasses.replace(timing, **chosen)


def _load(path: Path, method: str) -> Any:
    import freeenergy as fe

    estimator = fe.load(path)
    if not callable(getattr(estimator, method, None)):
        word = {"evidence": "score", "outliers": "tell outliers"}.get(method, method)
        raise ValueError(f"{type(estimator).__name__} in '{path}' cannot {word}.")
    schema = getattr(estimator, "schema_", None)
    if schema is not None and schema.library == "pandas":
        try:
            import pandas  # noqa: F401
        except ImportError:
            raise ValueError(
                f"{type(estimator).__name__} in '{path}' was fitted to a frame of pandas. Install pandas."
            ) from None
    return estimator


def _give(columns: Mapping[str, Any], output: Path | None, json: bool) -> None:
    """Columns as JSON by rows, or to a file."""
    from . import _files

    if json:
        _files.write_json({"columns": list(columns), "rows": _files.in_rows(columns)})
    else:
        _files.write_columns(columns, output)


def _by_row(found: Input, answer: Any) -> tuple[dict[str, Any], Any]:
    """What a model says of each row, or step, in rows; before it the columns of the series and the time."""
    import numpy as np

    if found.steps is not None:
        keys = {name: answer[name] for name in found.steps.keys}
        return keys, answer.drop(list(keys)).to_numpy()
    return {}, np.concatenate(list(answer)) if found.is_series else np.asarray(answer)


@reads_series
def score(
    model: ModelFile,
    data: Data,
    output: Output = None,
    target: Targets = None,
    json: Json = False,
    *,
    timing: Timing,
    reading: Reading,
) -> None:
    """Log-probability of each row under a model, in nats, with its standard error."""
    import numpy as np

    from . import _files

    _files.check_output(output)
    estimator, found, X = _asked(model, "evidence", data, reading, target=target, timing=timing)
    with found.in_words_of_the_file():
        evidence = _evidence(estimator, X, found.y, target)
    impossible = int(np.isneginf(evidence.nats).sum())
    error = np.nan if impossible else evidence.mean_stderr
    labels = found.labels
    if json:
        _files.write_json(
            {
                "mean": _files.finite(evidence.mean),
                "stderr": _files.finite(error),
                "kind": evidence.kind.value,
                **labels,
                "nats": _files.finite(np.asarray(evidence.nats, float)),
            }
        )
    else:
        _files.write_columns(labels | {"nats": evidence.nats, "stderr": evidence.stderr}, output)
    if impossible:
        say(f"{impossible} of {len(evidence)} rows are impossible under the model: their mean is −∞ nats.")
    else:
        bits = f"{-evidence.mean / np.log(2):.6g} ± {error / np.log(2):.2g} bits"
        say(f"Mean {evidence.mean:.6g} nats ({bits}), {evidence.kind.value}.")


def _evidence(estimator: Any, X: Any, y: Any, target: list[str] | None) -> Any:
    """The evidence of the labels given the rows, if there are labels; else that of the rows."""
    from sklearn.base import is_classifier

    from freeenergy.comparison._problems import evidence_of_labels
    from freeenergy.shell import PredictsDensities, Scores, ScoresLabels

    name = type(estimator).__name__
    if isinstance(estimator, PredictsDensities):
        if y is None:
            raise ValueError(
                f"{name} gives the law of a number. Name the column that has it with --target NAME."
            )
        return estimator.evidence(X, numbers(y, (target or [""])[0], name))
    if y is None:
        if isinstance(estimator, ScoresLabels) and not isinstance(estimator, Scores):
            raise ValueError(
                f"{name} gives the probability of labels. Name the column that has them with --target NAME."
            )
        return estimator.evidence(X)
    if not is_classifier(estimator):
        say(f"Column {(target or [''])[0]!r} is left out: {name} does not tell it from the others.")
        return estimator.evidence(X)
    y = _as_fitted(estimator, y)
    unknown = y[~_known(estimator, y)]
    if len(unknown):
        say(f"{len(unknown)} labels, such as {str(unknown[0])!r}, are none that {name} was fitted to.")
    return evidence_of_labels(estimator, X, y)


def _as_fitted(estimator: Any, y: Any) -> Any:
    """Labels as text where the model was fitted to text: a file in which all are numbers has them so."""
    return y.astype(str) if estimator.classes_.dtype.kind in "UO" else y


def _known(estimator: Any, y: Any) -> Any:
    import numpy as np

    return np.isin(y, estimator.classes_)


@reads_series
def predict(
    model: ModelFile,
    data: Data,
    output: Output = None,
    target: Targets = None,
    interval: Annotated[
        float | None,
        typer.Option("--interval", metavar="LEVEL", help="Of numbers, the probability of an interval."),
    ] = None,
    json: Json = False,
    *,
    timing: Timing,
    reading: Reading,
) -> None:
    """The label (component, cluster, state) of each row with probabilities, or the mean of its number."""
    import numpy as np

    from freeenergy.shell import PredictsDensities

    from . import _files

    _files.check_output(output)
    if interval is not None and not 0 < interval < 1:
        raise ValueError(f"--interval must be between 0 and 1. Got {interval:g} instead.")
    estimator, found, X = _asked(model, "predict", data, reading, target=target, timing=timing)
    if isinstance(estimator, PredictsDensities):
        with found.in_words_of_the_file():
            columns = _numbers_told(estimator, X, interval)
        _give_columns(columns, output, json)
        if found.y is not None:
            _say_errors(columns, numbers(found.y, (target or [""])[0], type(estimator).__name__), interval)
        return
    if interval is not None:
        name = f"{type(estimator).__name__} in '{model}'"
        raise ValueError(f"--interval is for models of numbers, which {name} is not.")
    with found.in_words_of_the_file():
        keys, labels = _by_row(found, estimator.predict(X))
        columns = keys | {"prediction": labels.ravel()}
        if callable(getattr(estimator, "predict_proba", None)):
            shares = _by_row(found, estimator.predict_proba(X))[1]
            names = getattr(estimator, "classes_", np.arange(shares.shape[1]))
            columns |= {f"p({name})": share for name, share in zip(names, shares.T, strict=True)}
    _give_columns(columns, output, json)
    if found.y is not None and not found.is_series:
        right = int(np.sum(columns["prediction"] == _as_fitted(estimator, found.y)))
        say(f"{right} of {len(found.y)} labels are right.")


def _give_columns(columns: Mapping[str, Any], output: Path | None, json: bool) -> None:
    """Columns as JSON, or to a file."""
    from . import _files

    if json:
        _files.write_json({name: _files.listed(values) for name, values in columns.items()})
    else:
        _files.write_columns(columns, output)


def _numbers_told(estimator: Any, X: Any, level: float | None) -> dict[str, Any]:
    """The mean of each answer and both ends of its interval, if one is wanted."""
    import numpy as np

    laws = estimator.predict_density(X)
    parts = {"mean": np.asarray(estimator.predict(X))}
    if level is not None:
        parts["low"], parts["high"] = laws.interval(level)
    if len(laws.shape) == 1:
        return parts
    names = getattr(estimator, "answer_names_", None) or [f"y{j}" for j in range(laws.shape[1])]
    return {
        f"{name} {part}": values[:, j] for j, name in enumerate(names) for part, values in parts.items()
    }


def _say_errors(columns: Mapping[str, Any], truth: Any, level: float | None) -> None:
    """How far predictions are from what came, and how often intervals hold it."""
    from freeenergy.evaluation import coverage, rmse

    if "mean" not in columns:
        return
    y = truth.to_numpy()
    error = rmse(y, columns["mean"])
    told = f"Root mean square error {error.value:.6g} ± {error.stderr:.2g}"
    if level is not None:
        share = coverage(y, columns["low"], columns["high"])
        told += f"; {share.value:.1%} of {len(y)} answers are in their intervals of {level:.0%}"
    say(f"{told}.")


@reads_data
def transform(
    model: ModelFile,
    data: Data,
    output: Output = None,
    json: Json = False,
    *,
    reading: Reading,
) -> None:
    """The hidden part of each row (factors, codes, topics) as a row of numbers."""
    import numpy as np

    from . import _files

    _files.check_output(output)
    estimator, found, X = _asked(model, "transform", data, reading)
    with found.in_words_of_the_file():
        hidden = estimator.transform(X)
    # an imputer gives the table that it was given
    framed = getattr(hidden, "columns", None)
    columns = np.asarray(hidden).T if framed is None else [np.asarray(hidden[name]) for name in framed]
    _give(dict(zip(map(str, estimator.get_feature_names_out()), columns, strict=True)), output, json)


@reads_series
def outliers(
    model: ModelFile,
    data: Data,
    level: Annotated[
        float, typer.Option("--level", help="The share of its own rows that a model would call outliers.")
    ] = 0.01,
    seed: Seed = 0,
    output: Output = None,
    json: Json = False,
    *,
    timing: Timing,
    reading: Reading,
) -> None:
    """How unlikely each row is beside draws of the model, and which of its columns makes it so."""
    import numpy as np

    from freeenergy.shell._anomalies import surprise_beside

    from . import _files

    _files.check_output(output)
    estimator, found, X = _asked(model, "outliers", data, reading, timing=timing)
    with found.in_words_of_the_file():
        told = estimator.outliers(X, level, random_state=seed)
        nats = surprise_beside(estimator, X, estimator.sample(_USUAL, random_state=seed))
    names = np.array(estimator.column_names)
    # of a row of which nothing was observed nothing is surprising
    seen = np.where(np.isnan(nats), -np.inf, nats)
    most = seen.argmax(axis=1)
    some = ~np.isnan(nats).all(axis=1)
    _give(
        {
            "p_value": told.p_values,
            "outlier": told.mask,
            "column": np.where(some, names[most], ""),
            "surprise": np.where(some, seen.max(axis=1), np.nan),
        },
        output,
        json,
    )
    say(f"{int(told.mask.sum())} of {len(told.mask)} rows have a p-value of at most {level:g}.")


@reads_series
def summary(
    model: ModelFile,
    data: Annotated[
        str | None, typer.Argument(metavar="[DATA]", help="What it was fitted to, for standard errors.")
    ] = None,
    robust: Annotated[
        bool, typer.Option("--robust", help="Standard errors that hold where the model does not.")
    ] = False,
    target: Targets = None,
    json: Json = False,
    *,
    timing: Timing,
    reading: Reading,
) -> None:
    """Likelihood, criteria and parameters of a fitted model, with standard errors given its data."""
    import dataclasses

    from . import _files

    if data is None:
        told = _load(model, "summary").summary(robust=robust)
    else:
        estimator, found, X = _asked(model, "summary", data, reading, target=target, timing=timing)
        with found.in_words_of_the_file():
            told = estimator.summary(X, robust=robust, **_beside(estimator, found.y, target))
    if not json:
        # as it is asked for here
        words = {": summary(X).": ": summary MODEL DATA.", "are in to_frame().": "are shown by --json."}
        text = repr(told)
        for python, shell in words.items():
            text = text.replace(python, shell)
        typer.echo(text)
        return
    kind = None if told.kind is None else told.kind.value
    facts = dataclasses.asdict(told) | {"kind": kind, "aic": told.aic, "bic": told.bic}
    _files.write_json({name: _files.finite(value) for name, value in facts.items()})


def _beside(estimator: Any, y: Any, target: list[str] | None) -> dict[str, Any]:
    """What a fit was given beside the rows: the numbers to be told, by models of such."""
    from freeenergy.shell import PredictsDensities

    if y is None or not isinstance(estimator, PredictsDensities):
        return {}
    return {"y": numbers(y, (target or [""])[0], type(estimator).__name__)}


@reads_series
def impute(
    model: ModelFile,
    data: Data,
    output: Output = None,
    json: Json = False,
    *,
    timing: Timing,
    reading: Reading,
) -> None:
    """The rows with what is missing inferred by a model; columns that it does not know stay as they are."""
    from . import _files

    _files.check_output(output)
    estimator, found, X = _asked(model, "impute", data, reading, timing=timing)
    with found.in_words_of_the_file():
        filled = estimator.impute(X)
    if found.table.stacked is not None and not json and output is not None and output.suffix == ".npy":
        _files.write_array(filled, output)
        return
    if found.steps is None:
        columns = _files.as_columns(filled, found.names)
        if found.whole is not None and set(found.names) <= set(found.whole.names):
            # as the file has them
            columns = {name: columns.get(name, found.whole.columns[name]) for name in found.whole.names}
    else:
        columns = _files.as_in_the_file(found, filled, getattr(estimator, "frequency_", None))
    _give(columns, output, json)


@reads_series
def infer(
    model: ModelFile,
    data: Data,
    row: Annotated[
        int | None,
        typer.Option("--row", min=1, help="Which row; else the first one with something missing."),
    ] = None,
    level: Level = None,
    picture: Annotated[
        Path | None, typer.Option("--picture", help="A file for the picture: .png, .svg or .pdf.")
    ] = None,
    report: Annotated[Path | None, typer.Option("--report", help="An .html file for a report.")] = None,
    output: Output = None,
    seed: Seed = None,
    json: Json = False,
    *,
    timing: Timing,
    reading: Reading,
) -> None:
    """What a model knows of the missing part of a row: means, intervals, probabilities of labels."""
    import numpy as np

    import freeenergy as fe
    from freeenergy.shell import ScoresSteps

    from . import _files

    _files.check_output(output)
    _files.check_output(picture, (".png", ".svg", ".pdf"))
    _files.check_output(report, (".html",))
    estimator, found, X = _asked(model, "fit", data, reading, timing=timing)
    if not isinstance(estimator, ScoresSteps):
        chosen = _row_to_infer(estimator, X) if row is None else row - 1
        if chosen >= len(X):
            raise ValueError(f"--row must be at most {len(X):,}, the rows of the data. Got {row} instead.")
        X = X[chosen : chosen + 1]
    with found.in_words_of_the_file():
        posterior = fe.infer(estimator, X, key=0 if seed is None else seed)
    say(f"{type(estimator).__name__}: by {posterior.note}.")
    if picture is not None:
        figure = np.ravel(posterior.plot())[0].figure
        figure.savefig(picture)
    if report is not None:
        fe.report.posterior_to_html(posterior, report)
    _give(_entries(posterior, 0.9 if level is None else level), output, json)


def _row_to_infer(estimator: Any, X: Any) -> int:
    """The first row in which something is missing, or the first where nothing can be."""
    import numpy as np

    from freeenergy.shell import Completes

    if not isinstance(estimator, Completes):
        return 0
    for number in range(len(X)):
        values = np.asarray(X[number : number + 1], object).ravel()
        if any(value is None or value != value for value in values):
            return number
    raise ValueError("infer asks for what is missing in a row. The data have no row with a missing entry.")


def _entries(posterior: Any, level: float) -> dict[str, Any]:
    """A line for each number and for each label of an unknown."""
    import numpy as np

    from freeenergy.inference._posterior import label_names

    if not 0 < level < 1:
        raise ValueError(f"--level must be between 0 and 1. Got {level:g} instead.")
    titles = ("entry", "label", "probability", "mean", "sd", "from", "to", "region")
    lines: list[tuple[Any, ...]] = []
    values, weights = posterior.weighted_values()
    parts = values if isinstance(values, dict) else {"answer": values}
    spaces = dict(zip(sorted(parts), posterior.spaces, strict=True))
    share = np.asarray(weights)
    for name, part in parts.items():
        own = np.asarray(part, float)
        if getattr(spaces[name], "unordered", False):
            for code, label in label_names(spaces[name], own).items():
                chance = float(share[own == code].sum())
                lines.append((name, label, chance, None, None, None, None, ""))
            continue
        own = own.reshape(len(own), -1)
        for place in range(own.shape[1]):
            entry = name if own.shape[1] == 1 else f"{name}[{place}]"
            lines.append((entry, "", None, *_told(own[:, place], share, spaces[name], level)))
    columns = zip(*lines, strict=True)
    return dict(zip(titles, (_column(column) for column in columns), strict=True))


def _column(values: Any) -> Any:
    import numpy as np

    if all(value is None or isinstance(value, float) for value in values):
        return np.array([np.nan if value is None else value for value in values])
    return np.array(list(values))


def _told(values: Any, share: Any, space: Any, level: float) -> tuple[float, float, float, float, str]:
    """Mean, spread, central interval and region of one number."""
    import numpy as np

    from freeenergy.inference._densities import highest_density_of

    mean = float(share @ values)
    order = np.argsort(values)
    below = np.cumsum(share[order])
    low, high = (
        float(values[order[min(int(np.searchsorted(below, p)), len(values) - 1)]])
        for p in ((1 - level) / 2, (1 + level) / 2)
    )
    size = float(1 / np.sum(share**2))
    pieces = highest_density_of(
        values, share, size, level, discrete=bool(getattr(space, "discrete", False))
    )
    words = " and ".join(f"{a:.4g} to {b:.4g}" for a, b in pieces)
    return mean, float(np.sqrt(share @ (values - mean) ** 2)), low, high, words


@reads_series
def decode(
    model: ModelFile,
    data: Data,
    output: Output = None,
    json: Json = False,
    *,
    timing: Timing,
    reading: Reading,
) -> None:
    """The most probable path of hidden states of each series, a state for each step."""
    from . import _files

    _files.check_output(output)
    estimator, found, X = _asked(model, "decode", data, reading, timing=timing)
    with found.in_words_of_the_file():
        keys, path = _by_row(found, estimator.decode(X))
    _give(keys | {"state": path.ravel()}, output, json)


@reads_series
def forecast(
    model: ModelFile,
    data: Data,
    steps: Steps = None,
    level: Level = None,
    future: Annotated[
        str | None,
        typer.Option("--future", help="A file with the --inputs of the steps to come, as DATA has them."),
    ] = None,
    output: Output = None,
    json: Json = False,
    *,
    timing: Timing,
    reading: Reading,
) -> None:
    """What is expected after the end of each series: the mean and an interval, at the dates to come."""
    import numpy as np

    from . import _files

    _files.check_output(output)
    if level is not None and not 0 < level < 1:
        raise ValueError(f"--level must be between 0 and 1. Got {level:g} instead.")
    estimator, found, X = _asked(model, "forecast", data, reading, timing=timing)
    inputs = getattr(estimator, "n_inputs_in_", 0)
    if (future is not None) != bool(inputs):
        name = f"{type(estimator).__name__} in '{model}'"
        raise ValueError(
            f"{name} was fitted with inputs. Name a file that has those of the steps to come with --future."
            if inputs
            else f"--future is for models with inputs, which {name} has not."
        )
    options: dict[str, Any] = {} if level is None else {"level": level}
    if future is not None:
        options["future_inputs"], longest = _files.future_inputs(future, reading, found)
        steps = longest if steps is None else steps
    steps = 1 if steps is None else steps
    about = contextlib.nullcontext() if future is None else _files.in_words_of_the_future(future)
    with about, found.in_words_of_the_file():
        answer = estimator.forecast(X, steps, **options)
    parts = {"": answer.mean, " low": answer.low, " high": answer.high}
    if found.steps is None:
        count = len(found.table.stacked)
        columns: dict[str, Any] = {"step": np.tile(np.arange(1, steps + 1), count)}
        rows = {part: np.reshape(values, (count * steps, -1)) for part, values in parts.items()}
    else:
        keys = found.steps.keys
        columns = {name: answer.mean[name] for name in keys}
        if found.steps.time is None:
            columns["step"] = np.tile(np.arange(1, steps + 1), found.count)
        rows = {part: frame.select(found.names).to_numpy() for part, frame in parts.items()}
    for place, name in enumerate(found.names):
        columns |= {name + part: values[:, place] for part, values in rows.items()}
    _give(columns, output, json)


def sample(
    model: ModelFile,
    n: Annotated[int, typer.Option("--number", "-n", min=1, help="How many rows, or series.")] = 1,
    length: Annotated[
        int | None, typer.Option("--length", min=1, help="Time steps, for models of series.")
    ] = None,
    label: Annotated[
        str | None, typer.Option("--label", help="Their label, for models of rows given labels.")
    ] = None,
    guidance: Annotated[
        float, typer.Option("--guidance", min=0.0, help="How typical of it, for diffusion given labels.")
    ] = 0.0,
    output: Output = None,
    seed: Seed = None,
    json: Json = False,
) -> None:
    """New rows from a model."""
    import numpy as np

    from freeenergy.datasets._packed import check_size

    from . import _files

    _files.check_output(output)
    estimator = _load(model, "sample")
    options = {} if length is None else {"length": length}
    if options and "length" not in inspect.signature(estimator.sample).parameters:
        raise ValueError(f"--length is for models of series, which {type(estimator).__name__} is not.")
    options |= _by_label(estimator, label, guidance)
    steps = length or getattr(estimator, "length_", 1)
    # a row of numbers and the key that it is drawn with
    check_size("The sample", 8 * n * steps * (estimator.n_features_in_ + 1))
    drawn = estimator.sample(n, random_state=seed, **options)
    if isinstance(drawn, np.ndarray) and output is not None and output.suffix == ".npy" and not json:
        _files.write_array(drawn, output)
        return
    if isinstance(drawn, np.ndarray) and json:
        _files.write_json({"columns": _names(estimator, drawn.shape[-1]), "rows": _files.finite(drawn)})
        return
    # in a table series stand one after another
    columns = drawn.shape[-1]
    _give(_files.as_columns(drawn, _names(estimator, columns)), output, json)


def _by_label(estimator: Any, label: str | None, guidance: float) -> dict[str, Any]:
    """What `sample` of a model of rows given labels is told."""
    taken, name = inspect.signature(estimator.sample).parameters, type(estimator).__name__
    asked = {"labels": ("--label", label), "guidance": ("--guidance", guidance or None)}
    for key, (option, value) in asked.items():
        if value is not None and key not in taken:
            raise ValueError(f"{option} is for models of rows given labels, which {name} is not.")
    options: dict[str, Any] = {"guidance": guidance} if guidance else {}
    if label is None:
        return options
    known = {str(own): own for own in estimator.classes_}
    if label not in known:
        raise ValueError(
            f"{name} was fitted to the labels {', '.join(known)}. Got --label {label} instead."
        )
    return {**options, "labels": known[label]}


def _names(estimator: Any, columns: int) -> list[str]:
    names = getattr(estimator, "feature_names_in_", None)
    return [f"x{j}" for j in range(columns)] if names is None else [str(name) for name in names]
