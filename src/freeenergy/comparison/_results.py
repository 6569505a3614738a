"""What one model did on one fold, and one line of the table."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Iterable
from typing import Any

import numpy as np
from safetensors.numpy import load

from .._core import DamagedError, Kind, read_sealed, sealed
from ..evaluation import Measure

FORMAT = "freeenergy-fold-5"


@dataclasses.dataclass(frozen=True)
class FoldResult:
    """One model on one fold.

    Attributes:
        model: its label.
        fold: the number of the fold.
        rows: indices of the held-out rows (of series; of time steps of a single series).
        nats, stderr, shared, kind, growth: their evidence.
        seconds: time to fit.
        parameters: free numbers of the fitted model; 0 where that is not known.
        n_iter, converged, history: of the fit, where it has them.
        samples: draws of the model (of one fold only, as what follows: the first, or of a single series
            the last).
        latent, latent_rows: the hidden part of some held-out rows, where the model has one.
        pit: where log p of complete held-out rows (of series: of steps given those before them) ranks
            among log p of so many of the model's own, `pit_draws`, in [0, 1].
            Uniform if the rows are as probable as the model expects.
        parts: what the fitted model is made of (loadings, or means, spread and weights), or its states
            over a held-out series, where it has them.
        unlikely: the least probable of the held-out rows: their `rows`, the `nats` of each, their `values`
            and the `surprise` of each value given the rest of its row, in nats beyond what its column has
            on average in draws.
        warnings: what the fit warned of.
        error: why there are no numbers, in a sentence.
        ahead: (5, origins, steps, columns) of forecasts within a series: what came, mean, low, high, and by
            how much a column changes from step to step.
        predicted: of rows with labels or numbers to be told, what came and what was predicted, a column for
            each row: of numbers the answer, its mean, median, both ends of its interval and its rank among
            what was expected; of labels the number of the label and the probability of each.
        drawn: measures of draws of the model beside held-out rows, as `Comparison.draws` tells them: each
            with its standard error.
        scored: whether the model gives a probability; the evidence of one that only draws is empty.
        effects: how the prediction depends on columns: `importance`, the bits that are lost when a column
            is shuffled and their standard error; and for the `columns` that matter most their `values` and
            the `dependence`: of numbers the mean prediction at each and a tenth and nine tenths of those of
            rows, of labels the mean probability of each.
    """

    model: str
    fold: int
    rows: np.ndarray
    nats: np.ndarray
    stderr: np.ndarray
    shared: float
    kind: Kind
    seconds: float = 0.0
    parameters: int = 0
    n_iter: int | None = None
    converged: bool | None = None
    history: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    samples: np.ndarray | None = None
    latent: np.ndarray | None = None
    latent_rows: np.ndarray | None = None
    pit: np.ndarray | None = None
    pit_draws: int = 0
    parts: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    growth: np.ndarray | None = None
    warnings: list[str] = dataclasses.field(default_factory=list)
    error: str | None = None
    ahead: np.ndarray | None = None
    unlikely: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    predicted: np.ndarray | None = None
    effects: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    drawn: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    scored: bool = True

    @staticmethod
    def failed(model: str, fold: int, error: str, warned: Iterable[str] = ()) -> FoldResult:
        """A fold without numbers."""
        none = np.empty(0)
        return FoldResult(
            model, fold, none.astype(int), none, none, 0.0, Kind.EXACT, warnings=list(warned), error=error
        )


# bits that a bound may miss without a word
TIGHT = 0.001


@dataclasses.dataclass(frozen=True)
class Standing:
    """One line of the table.  Bits are −log₂ p(x): fewer are better.

    Attributes:
        model: its label.
        bits, bits_stderr: mean over held-out samples, and its standard error.
        bits_per_dimension, bits_per_dimension_stderr: the same for each observed entry.
        kind: how the probabilities are known.  With a lower bound on log p the true bits are fewer.
        difference, difference_stderr: to the best model on the same rows, in bits per sample.
        chance: that the order against the best is real, also after the estimated gap of this model is
            taken off the difference; None for the best itself and where a bound makes it unknowable.
        seconds: time to fit, the mean over folds.
        parameters: free numbers of the model; 0 where that is not known.
        error: why there are no numbers.
        gap, gap_stderr: by how many bits per sample a bound is estimated to miss the truth, and the error
            of that; zero where the bits are exact, NaN or infinite where it cannot be said.
        aic, bic: Akaike's and Schwarz's criteria of the fit to all rows; None unless they were asked for,
            and where the likelihood is not exact or was not maximised.
        log_evidence, log_evidence_stderr, log_evidence_kind: log ∫ p(rows | θ) p(θ) dθ of all rows, in
            nats, its standard error and how it is known; None without a prior, and where it cannot be had.
        prior: what is told of the prior of the parameters.
        scored: whether the model gives a probability; one that only draws has no bits (NaN), and what its
            draws are worth stands in `Comparison.draws`.
    """

    model: str
    bits: float
    bits_stderr: float
    bits_per_dimension: float
    bits_per_dimension_stderr: float
    kind: Kind
    difference: float
    difference_stderr: float
    chance: float | None
    seconds: float
    parameters: int
    error: str | None
    gap: float = 0.0
    gap_stderr: float = 0.0
    aic: float | None = None
    bic: float | None = None
    log_evidence: float | None = None
    log_evidence_stderr: float | None = None
    log_evidence_kind: str | None = None
    prior: str | None = None
    scored: bool = True

    @property
    def kind_told(self) -> str:
        """The kind in a word, or that there is no probability."""
        return self.kind.value if self.scored else "only draws"

    @property
    def log_evidence_sign(self) -> str:
        """What the true log evidence is to the number: nothing, ≥, ≤ or ≈."""
        signs = {Kind.LOWER.value: "≥ ", Kind.UPPER.value: "≤ ", Kind.ESTIMATE.value: "≈ "}
        return signs.get(self.log_evidence_kind or "", "")

    @property
    def tight(self) -> bool:
        """Whether it is a lower bound that misses less than 0.001 bits, about which nobody asks."""
        return self.kind is Kind.LOWER and abs(self.gap) + 2 * self.gap_stderr < TIGHT


@dataclasses.dataclass(frozen=True)
class ForecastStanding:
    """How far the forecasts of a model are from what came, so many steps ahead.

    Attributes:
        model: its label.
        column: of the series.
        steps: how many steps ahead.
        rmse: root mean square error, in the units of the column.
        mase: mean absolute error, in units of how much the column changes from step to step.
        coverage: the share of values in their interval.
        rmse_stderr, mase_stderr, coverage_stderr: their standard errors.
        level: the probability of the intervals.
        forecasts: how many were made.
    """

    model: str
    column: str
    steps: int
    rmse: float
    rmse_stderr: float
    mase: float
    mase_stderr: float
    coverage: float
    coverage_stderr: float
    level: float
    forecasts: int


@dataclasses.dataclass(frozen=True)
class DrawStanding:
    """How near the draws of a model are to held-out rows.

    Attributes:
        model: its label, or what the draws are to be read beside.
        measures: each with its standard error: the share of rows of which a classifier tells rightly
            whether they were drawn (`told apart`), the `distance` of both samples, how many draws lie among
            the rows (`precision`) and rows among the draws (`coverage`), and the share of draws that is
            `nearer` to a row of the fit than new rows are.
        reference: whether it is no model, but rows of the data.
        folds: of how many folds it is the mean.
    """

    model: str
    measures: dict[str, Measure]
    reference: bool
    folds: int


@dataclasses.dataclass(frozen=True)
class PredictionStanding:
    """How good the predictions of a model are, on all held-out rows.

    Attributes:
        model: its label.
        measures: by their usual names, each with its standard error: of numbers `RMSE`, `MAE` (of the
            median), `pinball` (of both ends of the intervals) and the share in the intervals; of labels
            `log loss` (in nats), `AUC` and the share that is `right`.
        level: the probability of the intervals.
        rows: how many were predicted.
    """

    model: str
    measures: dict[str, Measure]
    level: float
    rows: int


_ARRAYS = (
    "rows",
    "nats",
    "stderr",
    "growth",
    "samples",
    "latent",
    "latent_rows",
    "pit",
    "ahead",
    "predicted",
)
_DICTIONARIES = ("history", "parts", "unlikely", "effects", "drawn")


def encode(result: FoldResult) -> bytes:
    """A `FoldResult` as safetensors, with a checksum of all in it."""
    tensors = {name: getattr(result, name) for name in _ARRAYS if getattr(result, name) is not None}
    for kind in _DICTIONARIES:
        tensors |= {f"{kind}.{name}": np.asarray(v) for name, v in getattr(result, kind).items()}
    tensors = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    plain = {
        f.name: getattr(result, f.name)
        for f in dataclasses.fields(result)
        if f.name not in (*_ARRAYS, *_DICTIONARIES)
    }
    return sealed(tensors, {"format": FORMAT, "fold": plain | {"kind": result.kind.name}})


def _check_format(header: Any) -> None:
    match header:
        case {"format": str(version), "fold": dict()} if version == FORMAT:
            return
    raise DamagedError("is not a fold of this version")


def decode(data: bytes) -> FoldResult:
    """What `encode` made bytes of; `DamagedError` if they were changed since."""
    plain = read_sealed(io.BytesIO(data), _check_format)["fold"]
    tensors = load(data)
    dictionaries = {
        kind: {k.removeprefix(f"{kind}."): v for k, v in tensors.items() if k.startswith(f"{kind}.")}
        for kind in _DICTIONARIES
    }
    arrays = {name: tensors[name] for name in _ARRAYS if name in tensors}
    return FoldResult(**(plain | {"kind": Kind[plain["kind"]]} | arrays | dictionaries))
