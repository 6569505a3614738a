"""What every density promises, for rows and for series."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats
from sklearn.base import is_classifier
from sklearn.utils import check_random_state

from .._core import Evidence, Kind
from ..io import load
from ..shell import (
    AbstractRowEstimator,
    Completes,
    Forecast,
    Forecasts,
    LabelledTable,
    Predicts,
    PredictsProbabilities,
    Samples,
    Scores,
    Table,
    Transforms,
)
from ..shell._codec import foreign_parts
from ._common import compare_rows, refitted, require
from ._framed import check_predictions_of_frames, frames_of

_PARTS = 8
# points along a column, as many in each part; as many in all as there are draws, or nearly, so that few
# programs are compiled
_GRID = 64
# along a column of a step, in all as many as half of the draws
_SERIES_GRID = 45
# draws of what comes after a series
_FUTURES = 256
# half the range of draws in units of the distance between their quartiles: 3.3 for a Gaussian
_LONG_TAILS = 5.0


def check_generative_estimator(
    estimator: Any, X: Any = None, *, points: Any = None, samples: int = 4000, random_state: int = 0
) -> None:
    """Checks that `estimator` keeps the promises of what it can do with rows.

    Args:
        estimator: an unfitted estimator; it is cloned, never changed.
        X: two columns to fit; by default 120 rows from two correlated clusters.  What needs labels, too,
            is fitted with two of them in turn.
        points: for discrete models every row that can occur; probabilities are then summed instead of
            integrated.
        samples: how many draws to compare with the density.
        random_state: seed for draws and for the choice of test rows.

    The checks: mass sums or integrates to one; draws follow the density; NaN equals the marginal; a
    change of units moves the evidence by exactly its log-determinant; the same seed gives the same
    result, also after saving and loading; weights act as repetition; rows do not influence each other;
    imputation leaves what was observed alone; frames in, frames out; hidden parts and predictions are well
    formed.

    >>> import freeenergy as fe
    >>> check_generative_estimator(fe.GaussianDensity())
    """
    rng = np.random.RandomState(random_state)
    X = _default_data(rng) if X is None else np.asarray(X, float)
    points = None if points is None else np.asarray(points, float)
    fitted = refitted(estimator, X)
    if _can(fitted, Scores):
        check_scores(fitted, X, points=points, samples=samples, random_state=rng)
        check_weights(estimator, X)
    if _can(fitted, Samples):
        check_samples(fitted, X)
    if _can(fitted, Completes):
        check_completes(fitted, X)
    if _can(fitted, Transforms):
        check_transforms(fitted, X)
    if _can(fitted, Predicts, PredictsProbabilities):
        check_predicts(fitted, X)
    if isinstance(fitted, AbstractRowEstimator) and fitted.intake in (Table, LabelledTable):
        check_frames(fitted, X)
    check_repeatable(fitted, X)
    check_files(fitted, X)


def _default_data(rng: np.random.RandomState) -> np.ndarray:
    first = rng.multivariate_normal([0.0, 0.0], [[1.0, 0.6], [0.6, 1.0]], 70)
    second = rng.multivariate_normal([3.0, -2.0], [[0.5, -0.2], [-0.2, 0.8]], 50)
    return np.concatenate([first, second])


def _can(fitted: Any, *capabilities: type) -> bool:
    """Whether an estimator has one of the capabilities."""
    return isinstance(fitted, capabilities)


def check_scores(
    fitted: Any, X: np.ndarray, *, points: Any = None, samples: int = 4000, random_state: Any = 0
) -> None:
    """The contract of `Scores`: a density that sums or integrates to one, whatever the units.

    NaN is marginalised, rows do not influence each other, and what also `Samples` draws from this density.
    """
    rng = check_random_state(random_state)
    check_evidence(fitted, X)
    if points is None:
        _check_continuous(fitted, X, samples, rng)
        check_units(fitted, X)
    else:
        _check_discrete(fitted, points, samples)
    check_rows_independent(fitted, X)


def check_evidence(fitted: Any, X: np.ndarray) -> None:
    """`evidence`, `score_samples` and `score` agree and are well formed."""
    evidence = fitted.evidence(X)
    require(isinstance(evidence, Evidence), f"evidence() must return Evidence, got {type(evidence)}.")
    require(np.shape(evidence.nats) == (len(X),), "evidence().nats must hold a number per row.")
    require(np.isfinite(evidence.nats).all(), "The evidence of training rows must be finite.")
    require((evidence.stderr >= 0).all(), "Standard errors must not be negative.")
    if evidence.kind is Kind.EXACT:
        require((evidence.stderr == 0).all(), "Exact evidence must have no standard error.")
    np.testing.assert_array_equal(fitted.score_samples(X), evidence.nats)
    np.testing.assert_allclose(fitted.score(X), evidence.nats.mean(), rtol=1e-12)


def _tolerance(kind: Kind) -> float:
    return 2e-3 if kind is Kind.EXACT else 6e-2


class _Axis(NamedTuple):
    """Points along a column, the width that each stands for, and the edges between parts of them."""

    points: np.ndarray
    widths: np.ndarray
    edges: np.ndarray

    @classmethod
    def of(cls, draws: np.ndarray, size: int) -> _Axis:
        """Points that hold nearly all mass: evenly spaced, or denser in the middle where tails are long."""
        low, high = draws.min(), draws.max()
        half = 1.4 * (high - low) / 2
        lower, middle, upper = np.quantile(draws, [0.25, 0.5, 0.75])
        reach = half / max(upper - lower, 1e-9 * half)
        # a few far draws would make an even grid too coarse for the bulk
        bend = np.arcsinh(reach) if reach > _LONG_TAILS else 1e-6
        centre = middle if reach > _LONG_TAILS else (low + high) / 2

        def place(t: np.ndarray) -> np.ndarray:
            return centre + half * np.sinh(bend * t) / np.sinh(bend)

        # in the middles of cells, so that each cell lies within one part
        t = (2 * np.arange(size) + 1) / size - 1
        widths = half * bend * np.cosh(bend * t) / np.sinh(bend) * (t[1] - t[0])
        return cls(place(t), widths, place(np.linspace(-1, 1, _PARTS + 1)))


def _check_continuous(fitted: Any, X: np.ndarray, samples: int, rng: np.random.RandomState) -> None:
    kind = fitted.evidence(X[:1]).kind
    draws = fitted.sample(samples, random_state=rng) if _can(fitted, Samples) else np.empty((0, 2))
    near = np.concatenate([draws[: samples // 4], X])
    first, second = (_Axis.of(column, _GRID) for column in near.T)
    mesh = np.stack(np.meshgrid(first.points, second.points, indexing="ij"), axis=-1).reshape(-1, 2)
    density = np.exp(fitted.score_samples(mesh)).reshape(_GRID, _GRID)
    mass = density * np.outer(first.widths, second.widths)
    require(
        abs(mass.sum() - 1) < max(_tolerance(kind), 5e-3),
        f"The density integrates to {mass.sum():.4f}, not to one.",
    )
    if len(draws):
        require(draws.shape == (samples, 2), f"sample({samples}) must have the shape ({samples}, 2).")
        _compare_counts(draws, first, second, mass * samples)
        entropy = -np.sum(mass * np.log(np.maximum(density, 1e-300)))
        scores = fitted.score_samples(draws)
        error = scores.std() / np.sqrt(samples) + _tolerance(kind) * (1 + abs(entropy))
        require(
            abs(scores.mean() + entropy) < 5 * error,
            f"The mean log-density of draws is {scores.mean():.4f}, the density says {-entropy:.4f}.",
        )

    # the marginal of each column, by summing the other out
    for column, (axis, other) in enumerate(((first, second), (second, first))):
        marginal = np.tensordot(density, other.widths, (1 - column, 0))
        fifth = len(marginal) // 5
        chosen = np.linspace(fifth, len(marginal) - 1 - fifth, 7).astype(int)
        chosen = chosen[marginal[chosen] > 1e-3 * marginal.max()]
        rows = np.full((len(chosen), 2), np.nan)
        rows[:, column] = axis.points[chosen]
        found = fitted.evidence(rows)
        allowed = 5 * found.stderr + 3 * _tolerance(kind)
        gap = np.abs(found.nats - np.log(marginal[chosen]))
        require(
            (gap < allowed).all(),
            f"A row with NaN in column {1 - column} must have the marginal density of the other column; "
            f"it differs by up to {gap.max():.4f} nats.",
        )
    nothing = fitted.evidence(np.full((1, 2), np.nan))
    require(
        abs(nothing.nats[0]) <= 1e-9 + 5 * nothing.stderr[0],
        f"A row of NaN has probability one; its evidence is {nothing.nats[0]:.4f}, not 0.",
    )


def _compare_counts(draws: np.ndarray, first: _Axis, second: _Axis, expected: np.ndarray) -> None:
    """A χ² test of draws against their expected number at each point of a grid, on a coarser grid."""
    counts, *_ = np.histogram2d(draws[:, 0], draws[:, 1], bins=[first.edges, second.edges])
    size = len(expected) // _PARTS
    coarse = expected.reshape(_PARTS, size, _PARTS, size).sum(axis=(1, 3))
    big = coarse > 20
    statistic = ((counts - coarse)[big] ** 2 / coarse[big]).sum()
    p = stats.chi2.sf(statistic, big.sum())
    require(p > 1e-5, f"Draws do not follow the density (χ² test on a grid, p = {p:.2g}).")


def _check_discrete(fitted: Any, points: np.ndarray, samples: int) -> None:
    evidence = fitted.evidence(points)
    mass = np.exp(evidence.nats)
    slack = 1e-8 if evidence.kind is Kind.EXACT else 5 * float(np.max(evidence.stderr)) + 2e-2
    require(abs(mass.sum() - 1) < slack, f"The probabilities sum to {mass.sum():.6f}, not to one.")
    if _can(fitted, Samples):
        draws = fitted.sample(samples, random_state=1)
        code = {tuple(point): i for i, point in enumerate(points)}
        counts = np.bincount([code[tuple(row)] for row in draws], minlength=len(points))
        big = mass * samples > 5
        statistic = ((counts - mass * samples)[big] ** 2 / (mass * samples)[big]).sum()
        p = stats.chi2.sf(statistic, big.sum())
        require(p > 1e-5, f"Draws do not follow the probabilities (χ² test, p = {p:.2g}).")
    hidden = points.copy()
    hidden[:, 0] = np.nan
    rest, inverse = np.unique(points[:, 1:], axis=0, return_inverse=True)
    marginal = np.bincount(inverse.ravel(), weights=mass, minlength=len(rest))
    squares = np.bincount(inverse.ravel(), weights=(mass * evidence.stderr) ** 2, minlength=len(rest))
    error = (np.sqrt(squares) / marginal)[inverse.ravel()]
    found = fitted.evidence(hidden)
    gap = np.abs(found.nats - np.log(marginal[inverse.ravel()]))
    exact = evidence.kind is found.kind is Kind.EXACT
    require(
        (gap <= 1e-6 + 6 * (found.stderr + error) + (0 if exact else 2e-2)).all(),
        f"A row with NaN must have the marginal probability; it differs by up to {gap.max():.4f} nats.",
    )


def check_units(fitted: Any, X: np.ndarray) -> None:
    """Other units move the evidence by −log of the factor for each column, and nothing else."""
    factor, shift = 1000.0, np.array([5.0, -300.0])
    before = fitted.evidence(X)
    after = refitted(fitted, X * factor + shift).evidence(X * factor + shift)
    moved = after.nats - before.nats + X.shape[1] * np.log(factor)
    slack = 1e-5 if before.kind is Kind.EXACT else 1e-2
    require(
        np.abs(moved).max() < slack + 5 * (before.stderr + after.stderr).max(),
        f"A change of units must move the evidence by its log-determinant; it is off by up to "
        f"{np.abs(moved).max():.3g} nats.",
    )


def _answers(fitted: Any, X: Any) -> list[np.ndarray]:
    """What an estimator says, as far as it can."""
    found = []
    if _can(fitted, Scores):
        found.append(fitted.score_samples(X))
    if _can(fitted, Samples):
        found.append(fitted.sample(5, random_state=3))
    if _can(fitted, Transforms):
        found.append(fitted.transform(X))
    if _can(fitted, PredictsProbabilities):
        found += _listed(fitted.predict_proba(X))
    elif _can(fitted, Predicts):
        found += _listed(fitted.predict(X))
    return found


def _listed(found: Any) -> list[np.ndarray]:
    return found if isinstance(found, list) else [found]


def check_repeatable(fitted: Any, X: Any) -> None:
    """The same seed gives the same numbers, in a clone too."""
    for again, before in zip(_answers(refitted(fitted, X), X), _answers(fitted, X), strict=True):
        np.testing.assert_array_equal(again, before)


def check_files(fitted: Any, X: Any) -> None:
    """Saving and loading change nothing."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        fitted.save(path)
        again = load(path, trusted=foreign_parts(fitted))
    require(repr(again) == repr(fitted), f"The file of {fitted!r} must not hold {again!r}.")
    for loaded, before in zip(_answers(again, X), _answers(fitted, X), strict=True):
        np.testing.assert_array_equal(loaded, before)


def check_frames(fitted: Any, X: np.ndarray) -> None:
    """Frames in, frames out, of Polars and of pandas where it is there, with the numbers of arrays."""
    import polars as pl

    names = [f"column {i}" for i in range(X.shape[1])]
    again = refitted(fitted, pl.DataFrame(X, schema=names))
    require(list(again.feature_names_in_) == names, "feature_names_in_ must have the names of a frame.")
    holes = X[:4].copy()
    holes[0, 0] = holes[1, -1] = np.nan
    frames: dict[Any, Any] = {pl.DataFrame: pl.DataFrame(holes, schema=names)}
    with contextlib.suppress(ImportError):
        import pandas as pd

        frames[pd.DataFrame] = pd.DataFrame(holes, columns=pd.Index(names), index=pd.Index(list("wxyz")))
    if _can(fitted, Samples):
        drawn = again.sample(5, random_state=3)
        require(isinstance(drawn, pl.DataFrame), "Draws after a fit to a frame must be a frame.")
        require(drawn.columns == names, "Draws must have the columns of the frame that was fitted.")
        np.testing.assert_array_equal(drawn.to_numpy(), fitted.sample(5, random_state=3))
    if _can(fitted, Predicts):
        for frame, _ in frames_of(X, X):
            np.testing.assert_array_equal(again.predict(frame), fitted.predict(X))
            check_predictions_of_frames(again, frame)
    if not _can(fitted, Completes):
        return
    filled = fitted.impute(holes)
    for kind, frame in frames.items():
        found = again.impute(frame)
        require(isinstance(found, kind), f"impute() of a {kind.__module__} frame must be one.")
        require(list(found.columns) == names, "impute() must keep the names of columns.")
        np.testing.assert_array_equal(found.to_numpy(), filled)
        if getattr(frame, "index", None) is not None:
            require(found.index.equals(frame.index), "impute() must keep the index.")


def check_samples(fitted: Any, X: np.ndarray) -> None:
    """The contract of `Samples`: as many draws as asked for, shaped like the rows, and the seed decides."""
    draws = fitted.sample(5, random_state=3)
    require(np.shape(draws) == (5, *X.shape[1:]), "sample(5) must have five rows such as those of X.")
    require(np.isfinite(draws).all(), "Draws must be finite.")
    np.testing.assert_array_equal(fitted.sample(5, random_state=3), draws)
    many = [fitted.sample(32, random_state=seed) for seed in (3, 4)]
    same = (many[0] == many[1]).all() and (many[0] != many[0][:1]).any()
    require(not same, "Another seed must give other draws.")


def check_transforms(fitted: Any, X: np.ndarray) -> None:
    """The contract of `Transforms`: a row of finite numbers for each row, whatever the others are."""
    codes = fitted.transform(X)
    size = len(fitted.get_feature_names_out())
    require(np.shape(codes) == (len(X), size), f"transform() must give {size} numbers for each row.")
    require(np.isfinite(codes).all(), "The hidden part must be finite numbers.")
    compare_rows(codes, fitted.transform(X[::-1])[::-1], "The hidden part of a row")


def check_predicts(fitted: Any, X: np.ndarray) -> None:
    """The contract of `Predicts` and `PredictsProbabilities`: one answer a row, the most probable one."""
    shares = None
    if _can(fitted, PredictsProbabilities):
        shares = fitted.predict_proba(X)
        require(np.shape(shares)[0] == len(X), "predict_proba() must have a row for each row.")
        require((shares >= 0).all(), "Probabilities must not be negative.")
        gap = np.abs(shares.sum(axis=1) - 1).max()
        require(gap < 1e-9, f"The probabilities of a row must sum to one; they are off by {gap:.2g}.")
        compare_rows(shares, fitted.predict_proba(X[::-1])[::-1], "The probabilities of a row")
    if _can(fitted, Predicts):
        answers = fitted.predict(X)
        require(np.shape(answers) == (len(X),), "predict() must give one answer for each row.")
        np.testing.assert_array_equal(fitted.predict(X[::-1])[::-1], answers)
        if shares is not None:
            # labels, where there are such, come in the order of the probabilities
            numbers = np.searchsorted(fitted.classes_, answers) if is_classifier(fitted) else answers
            chosen = shares[np.arange(len(X)), numbers.astype(int)]
            require((chosen >= shares.max(axis=1) - 1e-12).all(), "predict() must be the most probable.")


def check_weights(estimator: Any, X: np.ndarray) -> None:
    """A row of weight two counts as two rows, a row of weight zero as none; order does not matter.

    Nor does it matter what was fitted before.
    """
    weight = np.arange(len(X)) % 3
    fitted = refitted(estimator, X, sample_weight=weight)
    weighted = fitted.score_samples(X)
    order = np.random.RandomState(0).permutation(int(weight.sum()))
    repeated = fitted.fit(np.repeat(X, weight, axis=0)[order]).score_samples(X)
    np.testing.assert_allclose(weighted, repeated, rtol=1e-6, atol=1e-6)


def check_rows_independent(fitted: Any, X: np.ndarray) -> None:
    """The evidence of a row depends on no other row."""
    scores = fitted.score_samples(X)
    np.testing.assert_allclose(fitted.score_samples(X[::-1])[::-1], scores, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(fitted.score_samples(X[3:4]), scores[3:4], rtol=1e-6, atol=1e-8)


def check_completes(fitted: Any, X: np.ndarray) -> None:
    """The contract of `Completes`: missing entries are filled, and observed ones are left alone.

    Of what also `Samples` a continuous entry is the mean of conditional draws, a whole number next to it or
    the most frequent draw.
    """
    rows = X[:4].copy()
    rows[0, 0] = rows[1, 1] = np.nan
    rows[2] = np.nan
    filled = fitted.impute(rows)
    known = ~np.isnan(rows)
    require(np.isfinite(filled).all(), "impute() must leave no NaN.")
    np.testing.assert_array_equal(filled[known], rows[known])
    if not _can(fitted, Samples):
        return
    draws = fitted.sample(200, random_state=5, given=rows)
    require(
        draws.shape == (200, 4, X.shape[1]), "sample(n, given=X) must have the shape (n, rows, columns)."
    )
    np.testing.assert_array_equal(draws[7][known], rows[known])
    kind = fitted.evidence(X).kind if _can(fitted, Scores) else Kind.ESTIMATE
    _check_like_draws(filled, draws, kind)


def _check_like_draws(filled: np.ndarray, draws: np.ndarray, kind: Kind) -> None:
    """What is imputed is what many conditional draws are like."""
    error = draws.std(axis=0) / np.sqrt(len(draws))
    gap = np.abs(draws.mean(axis=0) - filled)
    rough = 0.0 if kind is Kind.EXACT else 0.25 * draws.std(axis=0).max()
    near = gap <= 5 * error + rough + 1e-9
    whole = (draws == np.rint(draws)).all(axis=(0, 1))
    share = (draws == filled[None]).mean(axis=0)
    for row, column in np.argwhere(~near & whole[None]):
        most = np.unique(draws[:, row, column], return_counts=True)[1].max() / len(draws)
        rounded = gap[row, column] <= 0.5 + 5 * error[row, column] + rough
        near[row, column] = (rounded and filled[row, column] % 1 == 0) or share[row, column] > most - 0.18
    require(
        near.all(), f"What is imputed and the mean of conditional draws differ by up to {gap.max():.4f}."
    )


def check_sequence_estimator(
    estimator: Any, X: Any = None, *, symbols: int | None = None, samples: int = 4000, random_state: int = 0
) -> None:
    """Checks that `estimator` keeps the promises of what it can do with series.

    Args:
        estimator: an unfitted estimator of sequences; it is cloned, never changed.
        X: a list of series to fit; by default three of unequal length that switch between two levels,
            with two columns, or one column of symbols.
        symbols: for discrete models, how many values the one column can take; probabilities of all
            short series are then summed.
        samples: how many draws to compare with the density.
        random_state: seed.

    The checks: probabilities of all short series sum to one, or draws have the log-density that they
    should have; step and series evidence agree; a step of NaN equals the marginal; other units move
    the evidence by exactly their log-determinant; the same seed gives the same result, also after saving
    and loading; series do not influence each other, nor does their order; imputation and conditional
    draws agree; forecasts and probabilities of states are well formed.

    >>> import freeenergy as fe
    >>> check_sequence_estimator(fe.MarkovChain(), symbols=3)
    """
    rng = np.random.RandomState(random_state)
    series = _default_series(rng, symbols) if X is None else [np.asarray(x, float) for x in X]
    fitted = refitted(estimator, series)
    if _can(fitted, Scores):
        _check_series_evidence(fitted, series)
        if symbols is None:
            _check_series_density(fitted, series, samples, rng)
            _check_series_units(fitted, series)
        else:
            _check_series_mass(fitted, symbols, samples)
        _check_series_independent(fitted, series)
    if _can(fitted, Completes):
        _check_series_imputation(fitted, series[0][:8])
    if _can(fitted, Forecasts):
        check_forecasts(fitted, series)
    if _can(fitted, PredictsProbabilities):
        _check_series_shares(fitted, series)
    check_repeatable(fitted, series)
    check_files(fitted, series)


def _default_series(rng: np.random.RandomState, symbols: int | None) -> list[np.ndarray]:
    series = []
    for length in (60, 25, 40):
        level = np.cumsum(rng.rand(length) < 0.15) % 2
        if symbols is None:
            mixing = np.array([[1.0, 0.5], [0.0, 0.8]])
            series.append(np.outer(level, [3.0, -2.0]) + rng.normal(size=(length, 2)) @ mixing)
        else:
            noise = rng.randint(symbols, size=length)
            series.append(np.where(rng.rand(length) < 0.3, noise, level * (symbols - 1.0))[:, None])
    return series


def _check_series_evidence(fitted: Any, series: list[np.ndarray]) -> None:
    evidence = fitted.evidence(series)
    require(isinstance(evidence, Evidence), f"evidence() must return Evidence, got {type(evidence)}.")
    require(np.shape(evidence.nats) == (len(series),), "evidence().nats must hold a number per series.")
    require(np.isfinite(evidence.nats).all(), "The evidence of training series must be finite.")
    np.testing.assert_array_equal(fitted.score_samples(series), evidence.nats)
    steps = fitted.step_evidence(series)
    lengths = [len(x) for x in series]
    require(steps.shape == (sum(lengths),), "step_evidence() must hold a number per time step.")
    sums = np.add.reduceat(steps, np.cumsum([0, *lengths[:-1]]))
    slack = 1e-9 + 5 * evidence.stderr
    require((np.abs(sums - evidence.nats) <= slack * (1 + np.abs(sums))).all(), "Steps must add up.")
    np.testing.assert_allclose(fitted.score(series), evidence.nats.sum() / sum(lengths), rtol=1e-6)


def _check_series_mass(fitted: Any, symbols: int, samples: int) -> None:
    grids = np.meshgrid(*[np.arange(float(symbols))] * 3, indexing="ij")
    every = np.stack(grids, axis=-1).reshape(-1, 3, 1)
    mass = np.exp(fitted.score_samples(every))
    require(abs(mass.sum() - 1) < 1e-8, f"The probabilities sum to {mass.sum():.6f}, not to one.")
    draws = fitted.sample(samples, random_state=1, length=3)
    codes = (draws[..., 0] @ symbols ** np.arange(3)[::-1]).astype(int)
    counts = np.bincount(codes, minlength=len(mass))
    big = mass * samples > 5
    statistic = ((counts - mass * samples)[big] ** 2 / (mass * samples)[big]).sum()
    p = stats.chi2.sf(statistic, big.sum())
    require(p > 1e-5, f"Draws do not follow the probabilities (χ² test, p = {p:.2g}).")
    hidden = every.copy()
    hidden[:, 1] = np.nan
    marginal = mass.reshape(symbols, symbols, symbols).sum(axis=1)
    found = np.exp(fitted.score_samples(hidden)).reshape(symbols, symbols, symbols)
    gap = np.abs(found - marginal[:, None]).max()
    require(gap < 1e-8, f"A step of NaN must have the marginal probability; it is off by {gap:.2g}.")


def _check_series_density(
    fitted: Any, series: list[np.ndarray], samples: int, rng: np.random.RandomState
) -> None:
    kind = fitted.evidence(series).kind
    width = series[0].shape[1]
    draws = fitted.sample(samples, random_state=rng, length=2)
    require(draws.shape == (samples, 2, width), f"sample({samples}, length=2) has a wrong shape.")
    # r, a density made from half of the draws: the mean of r/p over the others is one if p is their density
    half = draws.reshape(samples, -1)[: samples // 2].T
    others = draws[samples // 2 :]
    r = stats.gaussian_kde(half, bw_method=0.25).logpdf(others.reshape(len(others), -1).T)
    ratio = np.exp(r - fitted.score_samples(others))
    error = ratio.std() / np.sqrt(len(others))
    require(
        abs(ratio.mean() - 1) < 5 * error + _tolerance(kind),
        f"Draws do not follow the density: a mean that should be one is {ratio.mean():.3f} ± {error:.3f}.",
    )
    # the marginal of a step of which nothing is observed, by a sum over a grid
    hidden = series[0][:3].copy()
    columns = min(width, 2)
    hidden[1, :columns] = np.nan
    inside = fitted.sample(400, random_state=rng, given=hidden)[:, 1, :columns]
    low, high = inside.min(axis=0), inside.max(axis=0)
    axes = [
        np.linspace(a - (b - a) / 2, b + (b - a) / 2, _SERIES_GRID) for a, b in zip(low, high, strict=True)
    ]
    cells = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, columns)
    every = np.tile(hidden, (len(cells), 1, 1))
    every[:, 1, :columns] = cells
    volume = np.sum([np.log(axis[1] - axis[0]) for axis in axes])
    summed = np.logaddexp.reduce(fitted.score_samples(every)) + volume
    gap = abs(float(fitted.score_samples(hidden)[0]) - summed)
    require(
        gap < 3 * _tolerance(kind) + 5 * fitted.evidence(hidden).stderr[0],
        f"A step of NaN must have the marginal density; it is off by {gap:.4f} nats.",
    )
    nothing = fitted.evidence(np.full((1, 3, width), np.nan))
    require(abs(nothing.nats[0]) <= 1e-9 + 5 * nothing.stderr[0], "A series of NaN has probability one.")


def _check_series_units(fitted: Any, series: list[np.ndarray]) -> None:
    factor = 1000.0
    shift = np.linspace(5.0, -300.0, series[0].shape[1])
    moved = [x * factor + shift for x in series]
    before = fitted.evidence(series)
    after = refitted(fitted, moved).evidence(moved)
    sizes = np.array([x.size for x in series])
    gap = np.abs(after.nats - before.nats + sizes * np.log(factor)).max()
    slack = 1e-4 if before.kind is Kind.EXACT else 1e-2 * sizes.max()
    require(
        gap < slack + 5 * (before.stderr + after.stderr).max(),
        f"A change of units must move the evidence by its log-determinant; it is off by {gap:.3g} nats.",
    )


def check_forecasts(fitted: Any, series: list[np.ndarray]) -> None:
    """The contract of `Forecasts`: what comes after each series, whatever the others are.

    Intervals are in order, hold draws of the future with their probability, and hold what comes after the
    first steps of draws of the model with it, too; means are those of draws.
    """
    both, alone = fitted.forecast(series, 3), fitted.forecast(series[1], 3)
    require(isinstance(both, Forecast), f"forecast() must return a Forecast, got {type(both)}.")
    for part, own in zip(both, alone, strict=True):
        require(len(part) == len(series), "forecast() must return the container it was given.")
        require(all(len(x) == 3 for x in part), "forecast(X, 3) must have three steps for each series.")
        require(all(np.isfinite(x).all() for x in part), "Forecasts must be finite.")
        np.testing.assert_allclose(own, part[1], rtol=1e-6, atol=1e-8)
    require((alone.low <= alone.high).all(), "Intervals must not end before they begin.")
    roles = fitted.column_roles(series[0].shape[1])
    ahead = fitted.forecast(series[1], 3, level=0.8, draws=_FUTURES, random_state=7)
    require(
        np.shape(ahead.draws) == (_FUTURES, *np.shape(ahead.mean)),
        "draws of a forecast must have the shape (draws, steps, features).",
    )
    rough = 0.0 if fitted.evidence(series).kind is Kind.EXACT else 0.1
    spread = ahead.draws.std(axis=0)
    gap = np.abs(ahead.draws.mean(axis=0) - ahead.mean)
    near = gap <= (5 / np.sqrt(_FUTURES) + rough) * spread + 1e-9
    require(near[:, ~roles.labels].all(), "The mean of a forecast must be that of its draws.")
    _check_covered(ahead, ahead.draws, roles.mass, rough, "draws of the future")
    paths = fitted.sample(_FUTURES, random_state=8, length=8)
    found = fitted.forecast(paths[:, :7], 1, level=0.8)
    _check_covered(found, paths[:, 7:], roles.mass, rough, "the next step")


def _check_covered(ahead: Any, truth: np.ndarray, mass: np.ndarray, rough: float, what: str) -> None:
    """Intervals hold the truth as often as they say, or more often where values are whole numbers."""
    share = ((ahead.low <= truth) & (truth <= ahead.high)).mean(axis=0)
    allowed = 5 * np.sqrt(ahead.level * (1 - ahead.level) / len(truth)) + rough
    require((share >= ahead.level - allowed).all(), f"Intervals hold {what} too rarely: {share.min():.2f}.")
    often = share[:, ~mass] > ahead.level + allowed
    require(not often.any(), f"Intervals hold {what} too often: {share.max():.2f}.")


def _check_series_shares(fitted: Any, series: list[np.ndarray]) -> None:
    for shares, x in zip(fitted.predict_proba(series), series, strict=True):
        require(len(shares) == len(x), "predict_proba() must have a row for each step.")
        gap = np.abs(shares.sum(axis=1) - 1).max()
        require(gap < 1e-9, f"The probabilities of a step must sum to one; they are off by {gap:.2g}.")


def _check_series_independent(fitted: Any, series: list[np.ndarray]) -> None:
    scores = fitted.score_samples(series)
    np.testing.assert_allclose(fitted.score_samples(series[::-1])[::-1], scores, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(fitted.score_samples(series[1]), scores[1:2], rtol=1e-6, atol=1e-8)
    turned = refitted(fitted, series[::-1])
    np.testing.assert_allclose(turned.score_samples(series), scores, rtol=1e-5, atol=1e-5)


def _check_series_imputation(fitted: Any, x: np.ndarray) -> None:
    hidden = x.copy()
    hidden[2, 0] = np.nan
    hidden[4:6] = np.nan
    filled = fitted.impute(hidden)
    known = ~np.isnan(hidden)
    require(np.isfinite(filled).all(), "impute() must leave no NaN.")
    np.testing.assert_array_equal(filled[known], x[known])
    require(isinstance(fitted.impute([hidden]), list), "impute() must return the container it was given.")
    draws = fitted.sample(400, random_state=5, given=hidden)
    require(draws.shape == (400, *x.shape), "sample(n, given=X) must have a leading axis of n.")
    np.testing.assert_array_equal(draws[7][known], x[known])
    _check_like_draws(filled, draws, fitted.evidence([x]).kind)
