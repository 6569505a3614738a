"""What every model of numbers given rows promises."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats
from sklearn.utils import get_tags
from sklearn.utils.validation import has_fit_parameter

from .._core import Evidence, Kind
from ..evaluation import AbstractLaws
from ..io import load
from ..shell import PredictsDensities
from ..shell._codec import foreign_parts
from ._common import compare_rows, refitted, require
from ._framed import check_predictions_of_frames, frames_of

# rows whose laws are looked at, from the least to the greatest answer
_ROWS = 5
# between these quantiles densities are integrated, part by part with so many points
_TAIL, _PARTS, _POINTS = 1e-4, 96, 12
# whole numbers whose probabilities are summed
_MOST_VALUES = 20_000
_LEVEL = 0.9
_UNLIKELY = 1e-5


def check_conditional_estimator(
    estimator: Any,
    X: Any = None,
    y: Any = None,
    *,
    unit_free: bool = True,
    tolerance: float = 1e-5,
    samples: int = 1000,
    random_state: int = 0,
) -> None:
    """Checks that `estimator` keeps the promises of a model of numbers given rows.

    Args:
        estimator: an unfitted estimator; it is cloned, never changed.
        X: rows to fit; by default 120 of two columns.
        y: a number for each; by default linear in the row, with Gaussian noise.
        unit_free: whether other units change nothing; of answers that are all positive the factor alone is
            changed, and that of whole numbers that have a probability is not.
        tolerance: by how many nats fits to the same data in other units may differ.
        samples: how many draws to compare with the law of each row.
        random_state: seed of draws.

    The checks: densities integrate, or probabilities sum, to the distribution function and that to one;
    quantiles are its inverse; draws follow it; intervals have the probability that they say, and hold the
    answers that were fitted not much more rarely; `evidence` is the logarithm of the law at the answer, and
    `predict` its mean; other units of X change nothing, those of y move the evidence by exactly their
    log-determinant; weights act as repetition; rows do not influence each other; rows with missing entries
    have laws, too; the same seed gives the same result, also after saving and loading; frames give what
    arrays give, as columns of frames with the index of the rows and the names of the answers.

    >>> import freeenergy as fe
    >>> check_conditional_estimator(fe.LinearRegression())
    """
    rng = np.random.RandomState(random_state)
    X = _default_rows(rng) if X is None else np.asarray(X, float)
    y = _default_answers(X, rng) if y is None else np.asarray(y, float)
    fitted = refitted(estimator, X, y=y)
    require(
        isinstance(fitted, PredictsDensities),
        f"{type(fitted).__name__} must have the capability PredictsDensities.",
    )
    laws = fitted.predict_density(X)
    _check_evidence(fitted, X, y)
    check_laws(laws, samples=samples, random_state=random_state)
    _check_intervals(fitted, X, y, laws)
    _check_independent(fitted, X, y)
    if has_fit_parameter(fitted, "sample_weight"):
        _check_weights(fitted, X, y, tolerance)
    if unit_free:
        _check_units(fitted, X, y, laws.discrete, tolerance)
    if get_tags(fitted).input_tags.allow_nan:
        _check_missing(fitted, X, y)
    _check_repeatable(fitted, X, y)
    _check_files(fitted, X, y)
    _check_frames(fitted, X, y)


def _default_rows(rng: np.random.RandomState) -> np.ndarray:
    return rng.multivariate_normal([1.0, -2.0], [[1.0, 0.6], [0.6, 2.0]], 120)


def _default_answers(X: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
    return 3 + X @ np.linspace(1.5, -1.0, X.shape[1]) + rng.normal(0, 0.7, len(X))


def check_laws(laws: Any, *, samples: int = 1000, random_state: int = 0) -> None:
    """The contract of `AbstractLaws`: density, distribution function, quantiles and draws are of one law.

    Of several outputs each is looked at by itself, and the density of all together is not.

    >>> from scipy import stats
    >>> from freeenergy.evaluation import Laws
    >>> check_laws(Laws(stats.poisson(np.array([0.5, 20.0]))))
    """
    require(isinstance(laws, AbstractLaws), f"Laws of answers must be AbstractLaws, got {type(laws)}.")
    require(len(laws.shape) in (1, 2), f"Answers must have one axis, or two. Got the shape {laws.shape}.")
    middle = laws.quantile(0.5)
    require(np.shape(middle) == laws.shape, "quantile() must have the shape of the answers.")
    order = np.argsort(middle.reshape(len(middle), -1)[:, 0])
    some = laws.take(order[np.linspace(0, len(order) - 1, min(_ROWS, len(order))).astype(int)])
    if laws.discrete:
        _check_mass(some)
    else:
        _check_density(some)
    _check_draws(some, samples, random_state)
    low, high = some.interval(_LEVEL)
    np.testing.assert_allclose(low, some.quantile((1 - _LEVEL) / 2))
    np.testing.assert_allclose(high, some.quantile((1 + _LEVEL) / 2))


def _check_density(laws: AbstractLaws) -> None:
    levels = np.concatenate(
        [
            np.geomspace(_TAIL, 0.02, 9)[:-1],
            np.linspace(0.02, 0.98, _PARTS - 15),
            1 - np.geomspace(0.02, _TAIL, 9)[1:],
        ]
    )
    edges = np.stack([laws.quantile(p) for p in levels])
    for p, place in zip(levels, edges, strict=True):
        gap = np.abs(laws.cdf(place) - p).max()
        require(
            gap < 1e-5,
            f"The quantile {p:.4g} must be where the distribution function is; it is off by {gap:.2g}.",
        )
    if len(laws.shape) == 2:
        return
    nodes, weights = np.polynomial.legendre.leggauss(_POINTS)
    half = np.diff(edges, axis=0)[:, None] / 2
    # (parts, points, rows)
    points = edges[:-1, None] + half * (1 + nodes[:, None])
    which = np.broadcast_to(np.arange(laws.shape[0]), points.shape).ravel()
    density = np.exp(laws.take(which).log_prob(points.ravel())).reshape(points.shape)
    mass = np.sum(half * weights[:, None] * density, axis=1)
    total, whole = mass.sum(axis=0), levels[-1] - levels[0]
    worst = int(np.argmax(np.abs(total - whole)))
    require(
        abs(total[worst] - whole) < 5e-3,
        f"The density of an answer integrates to {total[worst] / whole:.4f}, not to one.",
    )
    gap = np.abs(mass.cumsum(axis=0) - (levels[1:] - levels[0])[:, None]).max()
    require(
        gap < 5e-3,
        f"The distribution function must be the integral of the density; it is off by {gap:.2g}.",
    )


def _check_mass(laws: AbstractLaws) -> None:
    low, high = float(laws.quantile(_TAIL**2).min()), float(laws.quantile(1 - _TAIL**2).max())
    values = np.arange(low, min(high, low + _MOST_VALUES) + 1)
    points = np.broadcast_to(values.reshape(-1, *(1,) * len(laws.shape)), (len(values), *laws.shape))
    which = np.tile(np.arange(laws.shape[0]), len(values))
    flat = laws.take(which)
    require((points == np.rint(points)).all(), "Discrete answers must be whole numbers.")
    own = points.reshape(-1, *laws.shape[1:])
    cdf = flat.cdf(own).reshape(points.shape)
    if len(laws.shape) == 1:
        mass = np.exp(flat.log_prob(own)).reshape(points.shape)
        total = mass.sum(axis=0)
        missing = 1 - (cdf[-1] - (cdf[0] - mass[0]))
        worst = int(np.argmax(np.abs(total + missing - 1)))
        require(
            abs(total[worst] + missing[worst] - 1) < 1e-6,
            f"The probabilities of an answer sum to {total[worst]:.6f}, not to one.",
        )
        gap = np.abs(mass.cumsum(axis=0) - mass[0] + cdf[0] - cdf).max()
        require(
            gap < 1e-6,
            f"The distribution function must be the sum of the probabilities; it is off by {gap:.2g}.",
        )
    for p in (0.01, 0.1, 0.5, 0.9, 0.99):
        found = laws.quantile(p)
        require((found == np.rint(found)).all(), "Quantiles of whole numbers must be whole numbers.")
        enough = (laws.cdf(found) >= p - 1e-9) & (laws.cdf(found - 1) < p + 1e-9)
        require(
            enough.all(),
            f"The quantile {p} must be the least value whose distribution function reaches it.",
        )


def _check_draws(laws: AbstractLaws, samples: int, seed: int) -> None:
    draws = laws.sample(samples, np.random.default_rng(seed))
    require(
        draws.shape == (samples, *laws.shape), "sample(n) must have the shape (n, *shape of the answers)."
    )
    require(np.isfinite(draws).all(), "Draws must be finite.")
    np.testing.assert_array_equal(
        laws.sample(3, np.random.default_rng(3)), laws.sample(3, np.random.default_rng(3))
    )
    which = np.tile(np.arange(laws.shape[0]), samples)
    flat, own = laws.take(which), draws.reshape(-1, *laws.shape[1:])
    ranks = flat.cdf(own)
    if laws.discrete:
        require((draws == np.rint(draws)).all(), "Draws of whole numbers must be whole numbers.")
        below = flat.cdf(own - 1)
        ranks = below + np.random.default_rng(seed + 1).random(below.shape) * (ranks - below)
    for column in ranks.reshape(samples, -1).T:
        p = stats.kstest(column, "uniform").pvalue
        require(
            p > _UNLIKELY,
            f"Draws do not follow the law of their row (Kolmogorov–Smirnov test, p = {p:.2g}).",
        )


def _check_evidence(fitted: Any, X: np.ndarray, y: np.ndarray) -> None:
    laws, evidence = fitted.predict_density(X), fitted.evidence(X, y)
    require(isinstance(evidence, Evidence), f"evidence() must return Evidence, got {type(evidence)}.")
    require(np.shape(evidence.nats) == (len(X),), "evidence().nats must hold a number per row.")
    require(np.isfinite(evidence.nats).all(), "The evidence of answers that were fitted must be finite.")
    require((evidence.stderr >= 0).all(), "Standard errors must not be negative.")
    if evidence.kind is Kind.EXACT:
        require((evidence.stderr == 0).all(), "Exact evidence must have no standard error.")
    require(laws.shape == y.shape, f"Laws must have the shape {y.shape} of the answers, got {laws.shape}.")
    gap = np.abs(evidence.nats - laws.log_prob(y))
    require(
        (gap <= 1e-8 * (1 + np.abs(evidence.nats)) + 5 * evidence.stderr).all(),
        "evidence() must be log_prob of predict_density() at the answers; it is off by up to "
        f"{gap.max():.3g} nats.",
    )
    answers, mean = fitted.predict(X), laws.mean()
    require(np.shape(answers) == y.shape, f"predict() must have the shape {y.shape} of the answers.")
    require(np.isfinite(answers).all(), "Predictions must be finite.")
    there = np.isfinite(mean)
    require(
        np.allclose(answers[there], mean[there], rtol=1e-6, atol=1e-6 * float(y.std())),
        "predict() must be the mean of predict_density().",
    )


def _check_intervals(fitted: Any, X: np.ndarray, y: np.ndarray, laws: AbstractLaws) -> None:
    low, high = fitted.predict_interval(X, _LEVEL)
    require(
        np.shape(low) == y.shape == np.shape(high), "predict_interval() must give two ends for each answer."
    )
    require((low <= high).all(), "Intervals must not end before they begin.")
    inside = laws.cdf(high) - laws.cdf(np.nextafter(low, -np.inf))
    require(
        (inside > _LEVEL - 1e-3).all() or not fitted.intervals_of_law,
        f"Intervals must hold the answer with probability {_LEVEL}; one does with {inside.min():.3f}.",
    )
    narrow = fitted.predict_interval(X, 0.5)
    require(
        ((narrow[0] >= low) & (narrow[1] <= high)).all(), "An interval of less probability must be inside."
    )
    share = float(np.mean((low <= y) & (y <= high)))
    error = np.sqrt(_LEVEL * (1 - _LEVEL) / len(y))
    require(
        share > _LEVEL - 5 * error - 0.02,
        f"Intervals of {_LEVEL:.0%} hold {share:.0%} of the answers that were fitted.",
    )


def _check_independent(fitted: Any, X: np.ndarray, y: np.ndarray) -> None:
    scores = fitted.evidence(X, y).nats
    compare_rows(scores, fitted.evidence(X[::-1], y[::-1]).nats[::-1], "The evidence of a row")
    compare_rows(scores[3:4], fitted.evidence(X[3:4], y[3:4]).nats, "The evidence of a row")
    compare_rows(fitted.predict(X), fitted.predict(X[::-1])[::-1], "The prediction for a row")
    low = fitted.predict_interval(X[3:4], _LEVEL)[0]
    compare_rows(fitted.predict_interval(X, _LEVEL)[0][3:4], low, "The interval of a row")


def _check_weights(fitted: Any, X: np.ndarray, y: np.ndarray, tolerance: float) -> None:
    weight = np.arange(len(X)) % 3
    weighted = refitted(fitted, X, y=y, sample_weight=weight).evidence(X, y).nats
    order = np.random.RandomState(0).permutation(int(weight.sum()))
    repeated = np.repeat(X, weight, axis=0)[order], np.repeat(y, weight, axis=0)[order]
    gap = np.abs(refitted(fitted, repeated[0], y=repeated[1]).evidence(X, y).nats - weighted).max()
    require(
        gap < tolerance, f"A weight must act as repetition; the evidence differs by up to {gap:.3g} nats."
    )


def _check_units(fitted: Any, X: np.ndarray, y: np.ndarray, discrete: bool, tolerance: float) -> None:
    before = fitted.evidence(X, y)
    rows = X * 1000.0 + np.linspace(5.0, -300.0, X.shape[1])
    after = refitted(fitted, rows, y=y).evidence(rows, y)
    slack = tolerance + 5 * (before.stderr + after.stderr)
    gap = np.abs(after.nats - before.nats)
    require(
        (gap < slack).all(),
        f"Other units of X must change nothing; the evidence differs by up to {gap.max():.3g} nats.",
    )
    if discrete:
        return
    answers = y * 1000.0 - (0.0 if (y > 0).all() else 300.0)
    other = refitted(fitted, X, y=answers).evidence(X, answers)
    outputs = y[0].size
    gap = np.abs(other.nats - before.nats + outputs * np.log(1000.0))
    require(
        (gap < slack).all(),
        "A change of units of y must move the evidence by its log-determinant; it is off by up to "
        f"{gap.max():.3g} nats.",
    )


def _check_missing(fitted: Any, X: np.ndarray, y: np.ndarray) -> None:
    holes = X.copy()
    holes[::3, 0] = holes[1::7, -1] = np.nan
    asked = holes[:12].copy()
    asked[5] = np.nan
    own = y[:12]
    for model in (fitted, refitted(fitted, holes, y=y)):
        evidence, laws = model.evidence(asked, own), model.predict_density(asked)
        require(
            np.isfinite(evidence.nats).all(), "The evidence of answers to rows with NaN must be finite."
        )
        gap = np.abs(laws.log_prob(own) - evidence.nats)
        require(
            (gap <= 1e-8 + 5 * evidence.stderr).all(),
            "evidence() of rows with NaN must be that of their laws.",
        )
        compare_rows(
            evidence.nats[3:4], model.evidence(asked[3:4], own[3:4]).nats, "The evidence of a row with NaN"
        )
        whole = ~np.isnan(asked).any(axis=1)
        compare_rows(
            evidence.nats[whole], model.evidence(asked[whole], own[whole]).nats, "The evidence of a row"
        )
        low, high = model.predict_interval(asked, _LEVEL)
        require(np.isfinite(model.predict(asked)).all(), "Predictions for rows with NaN must be finite.")
        require(
            np.isfinite(low).all() and (low <= high).all(), "Intervals of rows with NaN must be finite."
        )
        if fitted.intervals_of_law and not laws.discrete:
            inside = laws.cdf(high) - laws.cdf(low)
            require(
                np.abs(inside - _LEVEL).max() < 1e-5,
                "Intervals of rows with NaN must have their probability.",
            )


def _said(fitted: Any, X: Any, y: Any) -> list[np.ndarray]:
    """What an estimator says."""
    laws = fitted.predict_density(X)
    draws = laws.sample(2, np.random.default_rng(3))
    return [fitted.predict(X), fitted.evidence(X, y).nats, *fitted.predict_interval(X, _LEVEL), draws]


def _check_repeatable(fitted: Any, X: np.ndarray, y: np.ndarray) -> None:
    holes = X.copy()
    holes[::5, 0] = np.nan if get_tags(fitted).input_tags.allow_nan else 0.0
    for again, before in zip(
        _said(refitted(fitted, X, y=y), holes, y), _said(fitted, holes, y), strict=True
    ):
        np.testing.assert_array_equal(again, before, "The same seed must give the same numbers.")


def _check_files(fitted: Any, X: np.ndarray, y: np.ndarray) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        fitted.save(path)
        again = load(path, trusted=foreign_parts(fitted))
    require(repr(again) == repr(fitted), f"The file of {fitted!r} must not hold {again!r}.")
    for loaded, before in zip(_said(again, X, y), _said(fitted, X, y), strict=True):
        # the order of numbers in memory decides on their last digits
        np.testing.assert_allclose(
            loaded, before, rtol=1e-8, atol=1e-10, err_msg="A file must change nothing."
        )


def _check_frames(fitted: Any, X: np.ndarray, y: np.ndarray) -> None:
    for frame, answers in frames_of(X, y):
        names = list(frame.columns)
        again = refitted(fitted, frame, y=answers)
        require(list(again.feature_names_in_) == names, "feature_names_in_ must have the names of a frame.")
        for found, before in zip(_said(again, frame, answers), _said(fitted, X, y), strict=True):
            np.testing.assert_allclose(
                found, before, rtol=1e-8, atol=1e-10, err_msg="Frames must give what arrays give."
            )
        check_predictions_of_frames(again, frame, answers)
