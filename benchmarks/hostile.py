"""Every public estimator against hostile data: each answer is right, refused by a sentence, or listed.

python -m benchmarks.hostile [--only NAME] [--quick] [--log FILE]

Each row of `tests/cases.py` is fitted to tables (or series, weights and labels) that hold what data should
not, and each fitted model is asked for everything it can answer, of ordinary rows, of its own, of far rows
and of rows without any observation.  A try is one call, and its outcome one of

    RIGHT      numbers where numbers have to be: no NaN, no +∞, −∞ only for rows that cannot occur,
               probabilities that sum to one, the observed part of an imputation as it was
    WARNED     the same, and a warning
    SENTENCE   a ValueError or TypeError that the library (or scikit-learn's validation) raises, in up to
               three sentences
    SILENT     a number that is none, a shape that is wrong, probabilities that do not sum to one
    CRASH      any other exception, or one from the inside of NumPy, JAX, pandas …
    SLOW       more than a minute of the processor

The tables have few shapes, so that little is compiled.  It ends with 1 if anything is SILENT, CRASH or
SLOW.  It measures no speed, and `python -m benchmarks` leaves it out.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import inspect
import linecache
import os
import re
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import pandas as pd
import polars as pl
import scipy.sparse as sp
from rich.console import Console
from rich.table import Table
from sklearn.base import clone, is_classifier
from sklearn.exceptions import ConvergenceWarning

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from cases import CASES, Case

OUTCOMES = ("RIGHT", "WARNED", "SENTENCE", "SILENT", "CRASH", "SLOW")
BAD = OUTCOMES[3:]
ROWS, COLUMNS = 40, 3
SECONDS = 60
# more than this is no message for a person
MOST_SENTENCES = 3
SMALL = {"max_iter": 20, "importance_samples": 20}
HALF = np.arange(ROWS) % 2


class Try(NamedTuple):
    """One call and what came of it."""

    estimator: str
    call: str
    outcome: str
    note: str = ""


class WrongError(Exception):
    """What is wrong with an answer."""


# ------------------------------------------------------------------------------------------ data


def ordinary(case: Case, columns: int = COLUMNS) -> np.ndarray:
    """Rows of the kind that the estimator is for."""
    rng = np.random.default_rng(0)
    if case.symbols:
        return rng.integers(0, case.symbols, (ROWS, columns)).astype(float)
    if case.counts:
        return rng.poisson(2.0, (ROWS, columns)).astype(float)
    normal = rng.normal(size=(ROWS, columns)) + 3.0 * HALF[:, None]
    if case.points is None:
        return normal
    return np.rint(normal) if np.max(case.points) > 1 else (normal > 1.5).astype(float)


def put(x: np.ndarray, where: Any, value: Any) -> np.ndarray:
    x = x.copy()
    x[where] = value
    return x


def columns_scaled(scale: float, *, only: bool) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: x * (np.array([scale] + [1.0] * (x.shape[1] - 1)) if only else scale)


def objects(x: np.ndarray, column: Any) -> np.ndarray:
    return put(x.astype(object), (slice(None), 0), column)


def named(x: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(x, columns=[f"c{i}" for i in range(x.shape[1])])


def with_gap(frame: pd.DataFrame) -> pd.DataFrame:
    frame = frame.round().astype("Int64")
    frame.iloc[3, 0] = pd.NA
    return frame


TABLES: dict[str, Callable[[np.ndarray], Any]] = {
    "ordinary": lambda x: x,
    "nan cells": lambda x: put(x, (slice(3, 9), 1), np.nan),
    "nan row": lambda x: put(x, 5, np.nan),
    "nan column": lambda x: put(x, (slice(None), 1), np.nan),
    "nan but one row": lambda x: put(x, slice(1, None), np.nan),
    "all nan": lambda x: np.full_like(x, np.nan),
    "+inf cell": lambda x: put(x, (2, 1), np.inf),
    "-inf cell": lambda x: put(x, (2, 1), -np.inf),
    "one row": lambda x: x[:1],
    "one column": lambda x: x[:, :1],
    "constant column": lambda x: put(x, (slice(None), 1), 1.0),
    "all constant": np.ones_like,
    "all zero": np.zeros_like,
    "rows equal": lambda x: np.tile(x[0], (len(x), 1)),
    "rows twice": lambda x: np.repeat(x[::2], 2, axis=0),
    "columns equal": lambda x: np.repeat(x[:, :1], x.shape[1], axis=1),
    "x 1e300": columns_scaled(1e300, only=False),
    "x 1e150": columns_scaled(1e150, only=False),
    "x 1e-150": columns_scaled(1e-150, only=False),
    "x 1e-300": columns_scaled(1e-300, only=False),
    "a column x 1e300": columns_scaled(1e300, only=True),
    "a column x 1e150": columns_scaled(1e150, only=True),
    "a column x 1e-300": columns_scaled(1e-300, only=True),
    "a column x 1e12": columns_scaled(1e12, only=True),
    "subnormal": lambda x: np.rint(np.abs(x)) * 5e-324,
    "a cell of 1e300": lambda x: put(x, (4, 0), 1e300),
    "a cell of 1e150": lambda x: put(x, (4, 0), 1e150),
    "a cell of 1e20": lambda x: put(x, (4, 0), 1e20),
    "largest floats": lambda x: np.where(x > x.mean(), 1.7e308, -1.7e308),
    "+ 1e8": lambda x: x + 1e8,
    "+ 1e16": lambda x: x + 1e16,
    "beyond 2^53": lambda x: np.rint(x).astype(np.int64) * 7 + 2**53 + 1,
    "unsigned 2^64 - 1": lambda x: put(np.rint(np.abs(x)).astype(np.uint64), (4, 0), 2**64 - 1),
    "label 2^60": lambda x: put(np.rint(np.abs(x)), (4, 0), 2.0**60),
    "label 1e12": lambda x: put(np.rint(np.abs(x)), (4, 0), 1e12),
    "label 1.5": lambda x: put(np.rint(np.abs(x)), (4, 0), 1.5),
    "label -1": lambda x: put(np.rint(np.abs(x)), (4, 0), -1.0),
    "strings": lambda x: np.full(x.shape, "word"),
    "a column of strings": lambda x: objects(x, "word"),
    "numbers as strings": lambda x: x.astype(str),
    "a column of None": lambda x: objects(x, None),
    "a cell of None": lambda x: put(x.astype(object), (3, 0), None),
    "a column of dicts": lambda x: objects(x, {}),
    "bool": lambda x: x > x.mean(),
    "complex": lambda x: x + 1j,
    "float16": lambda x: x.astype(np.float16),
    "float32": lambda x: x.astype(np.float32),
    "int8": lambda x: x.astype(np.int8),
    "dates": lambda x: x.astype(int).astype("datetime64[D]"),
    "no rows": lambda x: x[:0],
    "no columns": lambda x: x[:, :0],
    "1-d": lambda x: x[:, 0],
    "3-d": lambda x: x[None],
    "a number": lambda x: 3.0,
    "None": lambda x: None,
    "a word": lambda x: "word",
    "lists": lambda x: x.tolist(),
    "ragged lists": lambda x: [*x.tolist(), [1.0]],
    "sparse": sp.csr_matrix,
    "frame": named,
    "frame with text": lambda x: named(x).assign(c1="word"),
    "frame with NA": lambda x: with_gap(named(x)),
    "frame with categories": lambda x: named(x).assign(c1=pd.Categorical(np.where(HALF, "a", "b"))),
    "frame with dates": lambda x: named(x).assign(c1=pd.Timestamp("2020-01-01")),
    "frame with equal names": lambda x: pd.DataFrame(x, columns=["c"] * x.shape[1]),
    "polars": lambda x: pl.DataFrame(x, schema=list(named(x).columns)),
    "polars with null": lambda x: pl.DataFrame(x).with_columns(column_1=None),
    "polars with text": lambda x: pl.DataFrame(x).with_columns(column_1=pl.lit("word")),
}
SERIES: dict[str, Callable[[np.ndarray], Any]] = {
    "list": lambda x: [x[:20], x[20:]],
    "unequal lengths": lambda x: [x[:3], x[3:]],
    "one step each": lambda x: [x[:1], x[1:2]],
    "a series of one step": lambda x: [x, x[:1]],
    "empty list": lambda x: [],
    "an empty series": lambda x: [x, x[:0]],
    "only empty series": lambda x: [x[:0]],
    "a series of nan": lambda x: [x, np.full_like(x, np.nan)],
    "only series of nan": lambda x: [np.full_like(x, np.nan)] * 2,
    "infinite series": lambda x: [x, np.full_like(x, np.inf)],
    "constant series": lambda x: [np.ones_like(x)] * 2,
    "series of strings": lambda x: [x, np.full(x.shape, "word")],
    "unequal columns": lambda x: [x, x[:, :1]],
    "a series of None": lambda x: [x, None],
    "1-d series": lambda x: [x[:, 0], x[:, 0]],
    "3-d with nan": lambda x: put(np.stack([x, x]), (0, slice(10, 20)), np.nan),
    "frames": lambda x: [named(x), named(x)],
    "unequal frames": lambda x: [named(x), named(x).rename(columns={"c0": "other"})],
}
WEIGHTS: dict[str, Callable[[int], Any]] = {
    "one": lambda n: np.ones(n),
    "0 for some": lambda n: np.arange(n) % 2,
    "0 for all but one": lambda n: np.arange(n) == 1,
    "0": lambda n: np.zeros(n),
    "1e300": lambda n: np.full(n, 1e300),
    "1e-300": lambda n: np.full(n, 1e-300),
    "1 and 1e300": lambda n: np.where(np.arange(n) % 2, 1.0, 1e300),
    "subnormal": lambda n: np.full(n, 5e-324),
    "nan": lambda n: np.full(n, np.nan),
    "inf": lambda n: np.full(n, np.inf),
    "negative": lambda n: np.where(np.arange(n) % 2, 1.0, -1.0),
    "too short": lambda n: np.ones(n - 1),
    "2-d": lambda n: np.ones((n, 2)),
    "words": lambda n: np.full(n, "word"),
    "complex": lambda n: np.full(n, 1j),
}
LABELS: dict[str, Callable[[], Any]] = {
    "one class": lambda: np.zeros(ROWS),
    "nan": lambda: np.where(HALF, 1.0, np.nan),
    "inf": lambda: np.where(HALF, 1.0, np.inf),
    "strings": lambda: np.where(HALF, "yes", "no"),
    "None among strings": lambda: np.where(HALF, "yes", None),
    "a class of one row": lambda: np.arange(ROWS) == 0,
    "each row a class": lambda: np.arange(ROWS),
    "fractions": lambda: np.arange(ROWS) / 7,
    "huge": lambda: np.where(HALF, 2**60, -(2**60)),
    "too short": lambda: HALF[:-1],
    "empty": lambda: HALF[:0],
    "2-d": lambda: np.stack([HALF, HALF], axis=1),
    "complex": lambda: HALF * 1j,
    "None": lambda: None,
}


def far(x: np.ndarray) -> np.ndarray:
    """Rows at ±1e300, and one with a gap."""
    signs = np.where(np.add.outer(np.arange(len(x)), np.arange(x.shape[1])) % 3, 1.0, -1.0)
    return put(1e300 * signs, (0, 0), np.nan)


# -------------------------------------------------------------------------------------- outcomes


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    def late(*_: Any) -> None:
        raise TimeoutError

    # of the processor, since what else the machine does is no fault of ours
    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def is_sentence(error: Exception) -> bool:
    """Whether somebody wrote the message for this case: the library, or scikit-learn's validation."""
    if not isinstance(error, (ValueError, TypeError)):
        return False
    last = traceback.extract_tb(error.__traceback__)[-1]
    # what C code raises ends in a line that calls it
    raised = "raise" in linecache.getline(last.filename, last.lineno or 0)
    place = Path(last.filename).parts
    if not raised or not {"freeenergy", "sklearn"} & set(place):
        return False
    ends = re.findall(r"[.?!](?=\s|$)", str(error).split("\n\n")[0])
    return "sklearn" in place or len(ends) <= MOST_SENTENCES


def attempt(name: str, call: str, run: Callable[[], Any], check: Callable[[Any], None]) -> tuple[Try, Any]:
    """Calls, judges the answer, and hands it on where there is one."""
    began = time.process_time()
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        # the settings are small on purpose
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            with time_limit(SECONDS):
                answer = run()
        except TimeoutError:
            return Try(name, call, "SLOW"), None
        except Exception as error:
            words = f"{type(error).__name__}: {' '.join(str(error).split())}"
            return Try(name, call, "SENTENCE" if is_sentence(error) else "CRASH", words), None
    if time.process_time() - began > SECONDS:
        return Try(name, call, "SLOW"), answer
    said = "; ".join(dict.fromkeys(f"{w.category.__name__}: {w.message}" for w in heard))
    try:
        check(answer)
    except WrongError as wrong:
        return Try(name, call, "SILENT", f"{wrong} {said}".strip()), answer
    return Try(name, call, "WARNED" if said else "RIGHT", said), answer


# ---------------------------------------------------------------------------------------- checks


def require(condition: Any, what: str) -> None:
    if not condition:
        raise WrongError(what)


# a number for each label and date that was met, so that tables of them can be compared
_LABELS: dict[str, float] = {}


def _number(entry: Any) -> float:
    if isinstance(entry, (int, float, np.number)):
        return float(entry)
    if pd.isna(entry):
        return np.nan
    return _LABELS.setdefault(str(entry), float(len(_LABELS)))


def numbers(answer: Any) -> np.ndarray | None:
    """The numbers of a table of any kind, with one for each label, or None where there are none."""
    if sp.issparse(answer):
        return answer.toarray()
    if isinstance(answer, pl.DataFrame):
        answer = np.array(answer.rows(), dtype=object).reshape(answer.shape)
    if isinstance(answer, pd.DataFrame):
        answer = answer.astype(object).to_numpy()
    try:
        return np.asarray(answer, dtype=float)
    except (TypeError, ValueError):
        pass
    table = np.asarray(answer, dtype=object)
    if table.ndim not in (1, 2, 3) or any(np.ndim(entry) for entry in table.ravel()):
        return None
    return np.vectorize(_number, otypes=[float])(table)


def parts(answer: Any) -> list[Any]:
    """The tables or series of a list, of a record of some, or the one that it is."""
    if (
        isinstance(answer, (list, tuple))
        and len(answer)
        and isinstance(answer[0], np.ndarray | pd.DataFrame | pl.DataFrame)
    ):
        return list(answer)
    return [answer]


def check_scores(nats: Any, rows: Any, *, finite: bool) -> None:
    require(np.ndim(nats) == 1, f"has the shape {np.shape(nats)}")
    if rows is not None:
        require(len(nats) == rows, f"has {len(nats)} numbers for {rows} rows")
    require(not np.isnan(nats).any(), "holds NaN")
    require(not np.isposinf(nats).any(), "holds +inf")
    require(not finite or np.isfinite(nats).all(), "holds -inf for rows of the fit")


def check_evidence(evidence: Any, rows: Any, *, finite: bool) -> None:
    check_scores(np.asarray(evidence.nats), rows, finite=finite)
    stderr = np.asarray(evidence.stderr)
    require(not np.isnan(stderr).any(), "has a standard error of NaN")
    require((stderr >= 0).all(), "has a negative standard error")


def check_finite(answer: Any, rows: Any = None) -> None:
    for part in parts(answer):
        found = numbers(part)
        require(found is not None, f"is {type(part).__name__}")
        require(np.isfinite(found).all(), "holds NaN" if np.isnan(found).any() else "holds infinity")
        if rows is not None:
            require(len(found) == rows, f"has {len(found)} rows for {rows}")


def check_shares(answer: Any, rows: Any) -> None:
    check_finite(answer, rows)
    for part in parts(answer):
        found = numbers(part)
        require((found >= 0).all() and (found <= 1).all(), "holds what is no probability")
        require(np.allclose(found.sum(axis=-1), 1.0, rtol=1e-9), "has probabilities that do not sum to one")


def check_imputed(answer: Any, X: Any) -> None:
    check_finite(answer)
    # series that were passed as lists come back as arrays
    before, after = (list(map(numbers, a if isinstance(answer, list) else [a])) for a in (X, answer))
    require(len(before) == len(after), f"has {len(after)} tables for {len(before)}")
    for old, new in zip(before, after, strict=True):
        # series of one column come back with it
        old = old[:, None] if isinstance(answer, list) and np.ndim(old) == 1 else old
        require(old is not None and old.shape == new.shape, f"has the shape {np.shape(new)}")
        require((np.isnan(old) | (old == new)).all(), "changes what was observed")


def check_classes(answer: Any, rows: Any, classes: Any) -> None:
    for part in parts(answer):
        if rows is not None:
            require(len(part) == rows, f"has {len(part)} rows for {rows}")
        if classes is not None:
            require(np.isin(part, classes).all(), "holds what is no class")
        else:
            check_finite(part)


# ------------------------------------------------------------------------------------------ runs


def questions(model: Any, X: Any, *, own: bool) -> Iterator[tuple[str, Callable, Callable]]:
    """Whatever a fitted model can be asked of `X`: a name, the call, and the check of its answer."""
    series = "series_weight" in inspect.signature(model.fit).parameters
    shape = np.shape(X) if isinstance(X, (np.ndarray, sp.spmatrix, pd.DataFrame)) else ()
    rows = shape[0] if len(shape) == 2 and not series else None
    labels = getattr(model, "classes_", None) if is_classifier(model) else None
    checks: dict[str, Callable[[Any], None]] = {
        "score_samples": lambda a: check_scores(a, rows, finite=own),
        "evidence": lambda a: check_evidence(a, rows, finite=own),
        "impute": lambda a: check_imputed(a, X),
        "predict": lambda a: check_classes(a, rows, labels),
        "predict_proba": lambda a: check_shares(a, rows),
        "transform": lambda a: check_finite(a, rows),
    }
    for method, check in checks.items():
        ask = getattr(model, method, None)
        if ask is None:
            continue
        if method == "evidence" and "y" in inspect.signature(ask).parameters:
            if rows == ROWS:
                yield method, lambda ask=ask: ask(X, model.classes_[HALF % len(model.classes_)]), check
            continue
        yield method, lambda ask=ask: ask(X), check


def check_draws(answer: Any, model: Any) -> None:
    check_finite(answer)
    found = numbers(answer)
    require(len(found) == 3, f"has {len(found)} draws, not 3")
    require(found.shape[-1] == model.n_features_in_, f"has the shape {found.shape}")


class Run:
    """The tries of one row of the table of cases."""

    def __init__(self, name: str, case: Case, *, quick: bool, log: IO[str]):
        self.name, self.case, self.quick, self.log = name, case, quick, log
        self.tries: list[Try] = []
        options = case.estimator.get_params()
        small = {k: min(v, options[k]) for k, v in SMALL.items() if isinstance(options.get(k), int)}
        self.estimator: Any = clone(case.estimator).set_params(**small)
        if "random_state" in options:
            self.estimator.set_params(random_state=0)
        self.base = ordinary(case)
        self.labelled = is_classifier(self.estimator)

    def attempt(self, call: str, run: Callable[[], Any], check: Callable[[Any], None]) -> Any:
        result, answer = attempt(self.name, call, run, check)
        self.tries.append(result)
        print(*result, sep="\t", file=self.log, flush=True)
        if result.outcome in BAD:
            print(f"{result.outcome} {self.name}: {call}: {result.note[:300]}", flush=True)
        return answer

    def fitted(self, what: str, X: Any, y: Any = None, **options: Any) -> Any:
        if y is None and self.labelled:
            rows = len(X) if isinstance(X, list) else (*getattr(X, "shape", ()), ROWS)[0]
            y = np.arange(rows) % 2
        positional = (X,) if y is None else (X, y)
        model = clone(self.estimator)
        return self.attempt(f"fit({what})", lambda: model.fit(*positional, **options), lambda _: None)

    def ask(self, model: Any, fit: str, what: str, X: Any, *, own: bool = False) -> None:
        for method, call, check in questions(model, X, own=own):
            self.attempt(f"fit({fit}).{method}({what})", call, check)

    def ask_all(self, model: Any, fit: str, X: Any, *, own: bool = True) -> None:
        """Whatever the model can be asked, of ordinary rows, its own, far and unknown ones."""
        if model is None:
            return
        if hasattr(model, "sample"):
            self.attempt(
                f"fit({fit}).sample(3)",
                lambda: model.sample(3, random_state=0),
                lambda a: check_draws(a, model),
            )
        width = getattr(model, "n_features_in_", COLUMNS)
        plain = ordinary(self.case, width)
        self.ask(model, fit, fit, X, own=own)
        self.ask(model, fit, "far", far(plain))
        if not self.quick:
            self.ask(model, fit, "ordinary", plain)
            self.ask(model, fit, "nan", np.full_like(plain, np.nan))

    def run(self) -> list[Try]:
        tables = TABLES | (SERIES if self.case.sequence else {})
        made = {}
        for what, make in tables.items():
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                made[what] = make(self.base)
        model = self.fitted("ordinary", self.base)
        self.ask_all(model, "ordinary", self.base)
        for what, X in made.items():
            if model is not None:
                self.ask(model, "ordinary", what, X)
        for what, X in made.items():
            self.ask_all(self.fitted(what, X), what, X)
        weight = "series_weight" if self.case.sequence else "sample_weight"
        X = list(self.base.reshape(4, -1, COLUMNS)) if self.case.sequence else self.base
        for what, weights in WEIGHTS.items():
            given = weights(len(X))
            model = self.fitted(f"ordinary, {weight}={what}", X, **{weight: given})
            # what counts nothing need not be possible
            self.ask_all(model, f"ordinary, {weight}={what}", X, own=np.all(given != 0))
        if self.labelled:
            for what, labels in LABELS.items():
                y = labels()
                fresh = clone(self.estimator)
                model = self.attempt(
                    f"fit(ordinary, y={what})", lambda m=fresh, y=y: m.fit(self.base, y), lambda _: None
                )
                self.ask_all(model, f"ordinary, y={what}", self.base)
        return self.tries


def report(tries: list[Try]) -> None:
    counts = collections.Counter((t.estimator, t.outcome) for t in tries)
    table = Table("estimator", *OUTCOMES, "tries")
    for name in dict.fromkeys(t.estimator for t in tries):
        found = [counts[name, outcome] for outcome in OUTCOMES]
        table.add_row(name, *map(str, found), str(sum(found)))
    total = collections.Counter(t.outcome for t in tries)
    table.add_section()
    table.add_row("all", *(str(total[outcome]) for outcome in OUTCOMES), str(len(tries)))
    Console(width=108).print(table)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.hostile", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--only", choices=CASES, action="append", help="one estimator; may be repeated")
    parser.add_argument("--quick", action="store_true", help="ask fitted models of fewer rows")
    parser.add_argument("--log", help="write every try to this file")
    options = parser.parse_args()
    tries: list[Try] = []
    with open(options.log or os.devnull, "w") as log:
        for name in options.only or CASES:
            began = time.process_time()
            tries += Run(name, CASES[name], quick=options.quick, log=log).run()
            print(f"{name}: {time.process_time() - began:.0f} s", flush=True)
    report(tries)
    return 1 if any(t.outcome in BAD for t in tries) else 0


if __name__ == "__main__":
    sys.exit(main())
