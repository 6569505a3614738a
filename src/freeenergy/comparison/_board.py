"""What a comparison found, and how it is shown."""

from __future__ import annotations

import dataclasses
import io
import math
import os
from typing import Any

import numpy as np

from .._core import Kind, visible
from ..estimators import Schema, Support
from ..evaluation import Measure, coverage, mase, rmse
from ._draws import APART, MEASURES, REFERENCES, over_folds
from ._evidence import ParameterEvidence
from ._problems import AbstractGiven, AbstractProblem
from ._results import TIGHT, DrawStanding, FoldResult, ForecastStanding, PredictionStanding, Standing
from ._tally import Tally, chance_of_order
from ._tasks import FINAL, derived_seed, seeded


@dataclasses.dataclass(eq=False, repr=False)
class Comparison:
    """What `compare` found; print it.

    Attributes:
        results: one `FoldResult` for each model and fold that was done.
        labels: the models in the order in which they were passed.
        models: label → estimator, unfitted, as it was fitted.
        support: continuous, integer and constant columns.
        dimension: columns that count (for labels, one).
        n_rows: rows (for sequences series, or the time steps of a single one).
        settings: seed, splits, versions and models, to repeat it.
        examples, example_rows: some of the data, for pictures, and which rows they are.
        feature_names: of the columns.
        notes: what a reader should know.
        finished: False after Ctrl-C.
        final: the best model on the rows that `final_size` kept apart.
        references: fold → measures of what draws are to be read beside, in folds whose draws are measured.
        criteria: label → AIC and BIC of the fit to all rows, where there are such and they were asked for.
        evidences: label → the evidence over its parameters, where there are priors; else None.
        schema: what the columns of a table of several kinds are; None for numbers alone and for series.
        times: when the steps of each series were, where a frame says it; else None.
        series_names, input_names: what the series are called, and the columns known beside them, likewise.
    """

    results: list[FoldResult]
    labels: list[str]
    models: dict[str, Any]
    support: Support
    dimension: int
    n_rows: int
    settings: dict[str, Any]
    examples: Any
    example_rows: np.ndarray
    feature_names: list[str]
    notes: list[str]
    finished: bool
    final: FoldResult | None
    _problem: AbstractProblem
    _data: tuple[Any, Any]
    schema: Schema | None = None
    times: list[np.ndarray] | None = None
    series_names: list[str] | None = None
    input_names: list[str] | None = None
    _best: Any = None
    criteria: dict[str, tuple[float, float]] | None = None
    evidences: dict[str, ParameterEvidence] | None = None
    references: dict[int, list[dict[str, np.ndarray]]] = dataclasses.field(default_factory=dict)

    def table(self) -> list[Standing]:
        """A line for each model: the best first, then those that only draw, failures last."""
        folds, failures = self._common_folds()
        draws = {r.model for r in self.results if not r.scored}
        good = [label for label in self.labels if label not in failures and label not in draws]
        tallies = {label: self._tally(label, folds) for label in good}
        for label in list(good):
            nats = tallies[label].nats
            broken = int(np.sum(np.isnan(nats) | (nats == np.inf)))
            if broken:
                failures[label] = (
                    f"Its density is infinite or not a number on {broken} of {len(nats)} held-out rows."
                )
                good.remove(label)
        # infinite bits come last, and among them the model that is surprised least often
        good.sort(key=lambda label: (tallies[label].bits.mean(), np.isinf(tallies[label].bits).sum()))
        lines = [self._standing(label, tallies[label], tallies[good[0]]) for label in good]
        nan = float("nan")
        sampled = [label for label in self.labels if label in draws and label not in failures]
        for label in sorted(sampled, key=lambda label: _told_apart(self._drawn(label, folds))):
            own = [r for r in self.results if r.model == label and r.fold in folds]
            seconds, size = float(np.mean([r.seconds for r in own])), max(r.parameters for r in own)
            nothing = (nan, nan, nan, nan, Kind.EXACT, nan, nan, None)
            lines.append(Standing(label, *nothing, seconds, size, None, nan, nan, scored=False))
        for label in self.labels:
            if label in failures:
                fold = next((r for r in self.results if r.model == label), None)
                seconds = fold.seconds if fold else nan
                lines.append(
                    Standing(
                        label, nan, nan, nan, nan, Kind.EXACT, nan, nan, None, seconds, 0, failures[label]
                    )
                )
        return lines

    def _common_folds(self) -> tuple[list[int], dict[str, str]]:
        """The folds that count, and why models are left out.

        After Ctrl-C some models have fewer folds: only those that most models have are compared.
        """
        failures, done = {}, {}
        for label in self.labels:
            own = [r for r in self.results if r.model == label]
            reasons = [r.error for r in own if r.error is not None]
            if reasons:
                failures[label] = reasons[0]
            else:
                done[label] = {r.fold for r in own}
        counts = {fold: sum(fold in own for own in done.values()) for own in done.values() for fold in own}
        folds = sorted(fold for fold, count in counts.items() if count == max(counts.values()))
        for label, own in done.items():
            if not folds or not own.issuperset(folds):
                failures[label] = "It was not finished."
        return folds, failures

    def _tally(self, label: str, folds: list[int]) -> Tally:
        own = {r.fold: r for r in self.results if r.model == label}
        return Tally.of([own[fold] for fold in folds], self._problem)

    def _standing(self, label: str, own: Tally, best: Tally) -> Standing:
        mean, error, _ = own.summary(own.bits, own.shared)
        gap, gap_error = own.gap
        # bits of each observed entry
        share = len(own.bits) / max(own.entries.sum(), 1)
        if own is best:
            difference, difference_error, chance = 0.0, 0.0, None
        else:
            with np.errstate(invalid="ignore"):
                gaps = own.bits - best.bits
            shared = math.hypot(own.shared, best.shared)
            difference, difference_error, freedom = own.summary(gaps, shared)
            # the truth about a lower bound is better, by about its gap; that about an upper bound worse
            known = math.isfinite(gap) and best.kind is not Kind.UPPER
            least, error_of_least = difference - gap, math.hypot(difference_error, gap_error)
            chance = chance_of_order(least, error_of_least, freedom) if known else None
        return Standing(
            label,
            mean,
            error,
            mean * share,
            error * share,
            own.kind,
            difference,
            difference_error,
            chance,
            own.seconds,
            own.parameters,
            None,
            gap,
            gap_error,
            *(self.criteria or {}).get(label, (None, None)),
            *self._evidence_of(label),
        )

    def _evidence_of(self, label: str) -> tuple[float | None, float | None, str | None, str | None]:
        found = (self.evidences or {}).get(label)
        if found is None or found.reason is not None:
            return None, None, None, None if found is None else found.prior
        return found.nats, found.stderr, found.kind.value, found.prior

    def _drawn(self, label: str, folds: list[int]) -> dict[str, Measure]:
        return over_folds([r.drawn for r in self.results if r.model == label and r.fold in folds])

    def draws(self) -> list[DrawStanding]:
        """How near draws are to held-out rows of a table, for each model in the order of the table.

        The measures need no density, so that models which only draw are compared with others by them:

        - `told apart`: the share of rows of which a classifier (support vectors) tells rightly whether they
          were held out or drawn; one half where it cannot.
        - `distance`: the mean distance of both samples along random directions (sliced Wasserstein), in
          standard deviations of the data.
        - `precision`, `coverage`: the share of draws that lie among held-out rows, and of held-out rows
          that have a draw near, by their five nearest neighbours.
        - `nearer`: P(a draw is nearer to a row of the fit than a new row is): above one half where rows
          are repeated.

        Numbers are standardised and labels are ones among zeros; draws get the holes of held-out rows.  The
        last two lines have the same of other rows of the data, which no model can be better than, and of
        rows in which every column was drawn by itself.  Empty where no draws were measured: see `pictures`
        of `compare`.
        """
        folds, found = self._common_folds()[0], []
        for line in self.table():
            measures = {} if line.error is not None else self._drawn(line.model, folds)
            if measures:
                used = sum(bool(r.drawn) for r in self.results if r.model == line.model and r.fold in folds)
                found.append(DrawStanding(line.model, measures, False, used))
        kept = [beside for fold, beside in self.references.items() if fold in folds]
        for name, parts in zip(REFERENCES, zip(*kept)) if found else ():
            found.append(DrawStanding(name, over_folds(list(parts)), True, len(kept)))
        return found

    def forecasts(self) -> list[ForecastStanding]:
        """Errors and coverage of forecasts, for each model, column and number of steps ahead.

        Empty unless `compare` was given a `horizon`; models come in the order of the table, and those that
        do not forecast are left out.  Standard errors take forecasts for independent: those of several
        steps ahead from neighbouring origins are not, and their standard errors are too small.
        """
        found, folds = [], self._common_folds()[0]
        for line in self.table():
            parts = [r.ahead for r in self.results if r.model == line.model and r.fold in folds]
            some = [part for part in parts if part is not None]
            if line.error is not None or not some:
                continue
            both = np.concatenate(some, axis=1)
            for column, name in enumerate(self.feature_names):
                for step in range(both.shape[2]):
                    found.append(self._forecast_standing(line.model, name, step, both[:, :, step, column]))
        return found

    def _forecast_standing(self, label: str, column: str, step: int, of: np.ndarray) -> ForecastStanding:
        came, mean, low, high, scale = of[:, ~np.isnan(of[0])]
        nothing = Measure(float("nan"), float("nan"))
        square, share, scaled = nothing, nothing, nothing
        if len(came):
            square, share = rmse(came, mean), coverage(came, low, high)
            # a naive forecast of one step that is one unit off
            scaled = mase(came / scale, mean / scale, past=[0.0, 1.0]) if scale.all() else nothing
        numbers = [*square, *scaled, *share]
        level = self.settings["level"]
        return ForecastStanding(
            label, column, step + 1, *map(float, numbers), level=level, forecasts=len(came)
        )

    def predictions(self) -> list[PredictionStanding]:
        """How good predictions of labels or numbers are, for each model in the order of the table.

        Empty unless `compare` was given `y`, and models that tell it.  Standard errors take rows for
        independent.
        """
        problem = self._problem
        if not isinstance(problem, AbstractGiven):
            return []
        found, folds, level = [], self._common_folds()[0], self.settings["level"]
        for line in self.table():
            own = [r.predicted for r in self.results if r.model == line.model and r.fold in folds]
            parts = [part for part in own if part is not None]
            if line.error is None and parts:
                both = np.concatenate(parts, axis=1)
                measures = problem.measures(both, level)
                rows = both.shape[1] // problem.outputs
                found.append(PredictionStanding(line.model, measures, level, rows))
        return found

    @property
    def y(self) -> Any:
        """The labels or numbers that were passed, or None."""
        return self._data[1]

    @property
    def best_estimator(self) -> Any:
        """The best model, fitted again on all of X.

        Its line in the table is a little optimistic, since the same rows chose it: `final_size` keeps
        rows apart for one last honest score.
        """
        if self._best is None:
            best = self.table()[0]
            if best.error is not None:
                raise ValueError(f"No model could be fitted. {best.model}: {best.error}")
            self._best = self.fit_all(best.model)
        return self._best

    def fit_all(self, label: str) -> Any:
        """The model with that label, fitted to all of X."""
        seed = derived_seed(self.settings["seed"], label, FINAL)
        return self._problem.fit_all(seeded(self.models[label], seed), *self._data)

    def to_rows(self) -> list[dict[str, Any]]:
        """The table in plain types, with the measures of draws where there are such."""
        return _as_rows(self.table(), self.draws())

    def to_frame(self) -> Any:
        """The table as a data frame of pandas, or of polars where there is no pandas."""
        lines = self.to_rows()
        try:
            import pandas as frames
        except ImportError:
            import polars as frames
        return frames.DataFrame(lines)

    def to_json(self) -> dict[str, Any]:
        """Everything but the rows, in plain types; infinity is the word "inf", NaN is None."""
        folds = [
            {
                "model": r.model,
                "fold": r.fold,
                "rows": len(r.rows),
                "nats": float(np.mean(r.nats)) if len(r.nats) else None,
                "kind": r.kind.value,
                "seconds": r.seconds,
                "parameters": r.parameters,
                "n_iter": r.n_iter,
                "converged": r.converged,
                "warnings": r.warnings,
                "error": r.error,
            }
            for r in [*self.results, *([self.final] if self.final else [])]
        ]
        return _plain(
            {
                "table": _as_rows(self.table()),
                "draws": [
                    {"model": line.model, "reference": line.reference, "folds": line.folds}
                    | {name: measure._asdict() for name, measure in line.measures.items()}
                    for line in self.draws()
                ],
                "forecasts": [dataclasses.asdict(line) for line in self.forecasts()],
                "predictions": [
                    {"model": line.model, "level": line.level, "rows": line.rows}
                    | {name: measure._asdict() for name, measure in line.measures.items()}
                    for line in self.predictions()
                ],
                "folds": folds,
                "support": [kind.value for kind in self.support.kinds],
                "feature_names": self.feature_names,
                "dimension": self.dimension,
                "n_rows": self.n_rows,
                "settings": self.settings,
                "notes": self.notes,
                "finished": self.finished,
            }
        )

    def plot(self, ax: Any = None) -> Any:
        """The paired differences as a plot."""
        from .. import plots

        return plots.comparison(self, ax=ax)

    def to_html(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Writes the report, one file that needs no network."""
        from .. import report

        report.to_html(self, path, **options)

    def _repr_html_(self) -> str:
        from .. import report

        return report.notebook_html(self)

    def __str__(self) -> str:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        lines = self.table()
        table = Table(title="Held-out bits: fewer are better", title_justify="left")
        bounded = any(line.kind is Kind.LOWER and line.scored for line in lines)
        names = ["model", "bits/sample", "bits/dim", "to the best", "order real", "kind"]
        names += ["gap", "fit", "parameters"] if bounded else ["fit", "parameters"]
        names += [] if self.criteria is None else ["AIC", "BIC"]
        names += [] if self.evidences is None else ["log evidence"]
        for name in names:
            table.add_column(
                name, justify="left" if name in ("model", "kind") else "right", overflow="fold"
            )
        for line in lines:
            if line.error is not None:
                table.add_row(Text(visible(line.model)), *[""] * 4, "failed", *[""] * (len(names) - 6))
                continue
            sign = SIGNS[line.kind]
            if not line.scored:
                bits = ["–", "–", "", "", line.kind_told, *([""] if bounded else [])]
                size = [_seconds(line), f"{line.parameters:,}" if line.parameters else ""]
                table.add_row(Text(visible(line.model)), *bits, *size, *[""] * (len(names) - 3 - len(bits)))
                continue
            order = "best" if line is lines[0] else "?" if line.chance is None else _percent(line.chance)
            table.add_row(
                Text(visible(line.model)),
                sign + with_error(line.bits, line.bits_stderr),
                sign + with_error(line.bits_per_dimension, line.bits_per_dimension_stderr),
                "" if line is lines[0] else "+" + with_error(line.difference, line.difference_stderr),
                order,
                line.kind_told,
                *([gap_text(line)] if bounded else []),
                _seconds(line),
                f"{line.parameters:,}" if line.parameters else "",
                *([] if self.criteria is None else map(_criterion, (line.aic, line.bic))),
                *([] if self.evidences is None else [_evidence_text(line)]),
            )
        out = io.StringIO()
        Console(file=out, width=160, color_system=None).print(table)
        text = [row.rstrip() for row in out.getvalue().splitlines()]
        text += self._forecast_lines() + self._prediction_lines() + self._draw_lines()
        text += [visible(f"{line.model}: {line.error}") for line in lines if line.error is not None]
        text += map(visible, self.notes)
        return "\n".join(text)

    def _forecast_lines(self) -> list[str]:
        """The forecasts one step ahead and the most steps ahead, as a table."""
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        lines = self.forecasts()
        if not lines:
            return []
        ends = {1, max(line.steps for line in lines)}
        inside = f"in {lines[0].level:.0%}"
        table = Table(title="Forecasts: errors, and the share in intervals", title_justify="left")
        for name in ("model", "column", "steps ahead", "RMSE", "MASE", inside):
            table.add_column(
                name, justify="left" if name in ("model", "column") else "right", overflow="fold"
            )
        for line in (line for line in lines if line.steps in ends):
            table.add_row(
                Text(visible(line.model)),
                Text(visible(line.column)),
                str(line.steps),
                with_error(line.rmse, line.rmse_stderr),
                with_error(line.mase, line.mase_stderr),
                with_error(line.coverage, line.coverage_stderr),
            )
        out = io.StringIO()
        Console(file=out, width=160, color_system=None).print(table)
        return [row.rstrip() for row in out.getvalue().splitlines()]

    def _prediction_lines(self) -> list[str]:
        """How good predictions are, as a table."""
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        lines = self.predictions()
        if not lines:
            return []
        table = Table(title="Predictions of held-out rows", title_justify="left")
        names = list(dict.fromkeys(name for line in lines for name in line.measures))
        for name in ("model", *names):
            table.add_column(name, justify="left" if name == "model" else "right", overflow="fold")
        for line in lines:
            found = [line.measures.get(name) for name in names]
            table.add_row(
                Text(visible(line.model)), *("" if part is None else with_error(*part) for part in found)
            )
        out = io.StringIO()
        Console(file=out, width=160, color_system=None).print(table)
        return [row.rstrip() for row in out.getvalue().splitlines()]

    def _draw_lines(self) -> list[str]:
        """How near draws are to held-out rows, as a table."""
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        lines = self.draws()
        if not lines:
            return []
        table = Table(
            title="Draws beside held-out rows: as good as other rows of the data is best",
            title_justify="left",
        )
        for name in ("model", *MEASURES):
            table.add_column(name, justify="left" if name == "model" else "right", overflow="fold")
        for place, line in enumerate(lines):
            found = [line.measures.get(name) for name in MEASURES]
            ends = place + 1 < len(lines) and lines[place + 1].reference and not line.reference
            table.add_row(
                Text(visible(line.model)),
                *("" if part is None else with_error(*part) for part in found),
                end_section=ends,
            )
        out = io.StringIO()
        Console(file=out, width=160, color_system=None).print(table)
        return [row.rstrip() for row in out.getvalue().splitlines()]

    def __repr__(self) -> str:
        return str(self)


def _as_rows(lines: list[Standing], draws: list[DrawStanding] | None = None) -> list[dict[str, Any]]:
    """The lines of a table in plain types, with the measures of draws where there are such."""
    beside = {line.model: line.measures for line in draws or () if not line.reference}
    names = MEASURES if beside else ()
    found = []
    for line in lines:
        row = dataclasses.asdict(line) | {"kind": line.kind_told}
        for name in names:
            value, error = beside.get(line.model, {}).get(name, (float("nan"), float("nan")))
            column = name.replace(" ", "_")
            row |= {column: value, f"{column}_stderr": error}
        found.append(row)
    return found


def _told_apart(measures: dict[str, Measure]) -> float:
    """By which models are ordered that only draw; those that were not measured come last."""
    return measures[APART].value if measures else float("inf")


def _seconds(line: Standing) -> str:
    return f"{line.seconds:.2g} s" if line.seconds < 10 else f"{line.seconds:.0f} s"


SIGNS = {Kind.EXACT: "", Kind.LOWER: "≤ ", Kind.UPPER: "≥ ", Kind.ESTIMATE: "≈ "}


def with_error(value: float, error: float) -> str:
    """A number to the digits that its error leaves, two of the error itself."""
    if not (math.isfinite(value) and math.isfinite(error)):
        return f"{value:.4g}" if math.isfinite(value) else "∞" if value > 0 else "–"
    digits = 3 if error == 0 else max(1 - math.floor(math.log10(error)), 0)
    return f"{value:.{digits}f} ± {error:.{digits}f}"


def gap_text(line: Standing) -> str:
    """How far a bound is estimated to be from the truth."""
    if line.kind is not Kind.LOWER:
        return ""
    if not math.isfinite(line.gap):
        return "unknown"
    return f"< {TIGHT:g}" if line.tight else with_error(line.gap, line.gap_stderr)


def _evidence_text(line: Standing) -> str:
    """log ∫ p(rows | θ) p(θ) dθ with its error and the sign of its kind; a dash where there is none."""
    nats, error = line.log_evidence, line.log_evidence_stderr
    if nats is None or error is None:
        return "–"
    return line.log_evidence_sign + (with_error(nats, error) if error else f"{nats:.3f}")


def _criterion(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f}"


def _percent(chance: float) -> str:
    return "> 99.9%" if chance > 0.999 else f"{chance:.1%}"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None if math.isnan(value) else str(value)
    return value.item() if isinstance(value, np.generic) else value
