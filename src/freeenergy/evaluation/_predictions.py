"""How good predictions are: of numbers, of quantiles, of whole laws, and of labels, each with its error."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from scipy import stats

from ._checks import fraction, numbers, same_length
from ._forecasts import Measure, _errors, _mean
from ._laws import AbstractLaws

# between quantiles of these levels a distribution function is integrated
_TAIL = 10.0 ** -np.arange(9, 1, -1)
_LEVELS = np.concatenate([_TAIL, np.arange(0.05, 0.96, 0.05), 1 - _TAIL[::-1]])
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(5)
# steps of a discrete law are summed one by one up to as many
_STEPS = 2000


def mae(truth: Any, forecast: Any) -> Measure:
    """The mean absolute error, mean |y − ŷ|, in the units of y; NaN in `truth` is left out.

    It is least for the median of each answer.

    >>> float(mae([1.0, 2.0, 3.0], [1.0, 4.0, 1.0]).value)
    1.3333333333333333
    """
    return _mean(np.abs(_errors("mae", truth, forecast)))


def pinball(truth: Any, forecast: Any, p: float) -> Measure:
    """The mean of max(p (y − q), (p − 1)(y − q)), also known as quantile loss; NaN in `truth` is left out.

    It is least where q is the quantile `p` of each answer; at p = ½ it is half the mean absolute error.

    >>> float(pinball([1.0, 2.0], [0.0, 4.0], 0.9).value)
    0.55
    """
    p = fraction("pinball", "p", p)
    error = _errors("pinball", truth, forecast)
    return _mean(np.maximum(p * error, (p - 1) * error))


def crps(truth: Any, laws: AbstractLaws) -> Measure:
    """The continuous ranked probability score, mean ∫ (F(t) − 1[t ≥ y])² dt, in the units of y.

    It compares a whole law with what came, and is the absolute error where the law is a point; also
    E|Y − y| − ½ E|Y − Y′|, and twice the pinball loss over all levels.  Of several outputs each counts by
    itself; NaN in `truth` is left out.

    Args:
        truth: the answers, of the shape of the laws.
        laws: the law of each answer, such as `predict_density(X)` gives.

    >>> from freeenergy.evaluation import Laws
    >>> law = Laws(stats.norm(np.zeros(2), 1.0))
    >>> float(crps([0.0, 1.0], law).value.round(6))
    0.418068
    """
    y = np.asarray(truth, float)
    if y.shape != laws.shape:
        raise ValueError(f"The 'truth' of crps must have the shape {laws.shape}. Got {y.shape} instead.")
    known = ~np.isnan(y)
    if not known.any():
        raise ValueError("The 'truth' of crps must have at least one number. Got none.")
    # any number will do where none is known, and is left out afterwards
    filled = np.where(known, y, laws.quantile(0.5))
    each = (_summed_squares if laws.discrete else _integrated_squares)(filled, laws)
    by_row, how_many = (np.where(known, part, 0.0).reshape(len(y), -1).sum(1) for part in (each, 1.0))
    there = how_many > 0
    return _mean(by_row[there] / how_many[there])


def _square(t: np.ndarray, y: np.ndarray, laws: AbstractLaws) -> np.ndarray:
    """(F(t) − 1[t ≥ y])², from the tail that does not cancel."""
    return np.exp(2 * np.where(t < y, laws.log_cdf(t), laws.log_sf(t)))


def _integrated_squares(y: np.ndarray, laws: AbstractLaws) -> np.ndarray:
    """The integral by Gauss's rule between quantiles and the answer."""
    edges = np.sort(np.concatenate([laws.knots(_LEVELS), y[None]]), axis=0)
    total = np.zeros(y.shape)
    for low, high in itertools.pairwise(edges):
        half = 0.5 * (high - low)
        for node, weight in zip(_NODES, _WEIGHTS):
            total += half * weight * _square(low + half * (1 + node), y, laws)
    return total


def _summed_squares(y: np.ndarray, laws: AbstractLaws) -> np.ndarray:
    """The same as a sum, where F is constant from a whole number to the next."""
    first = np.ceil(y)
    below = first - np.minimum(laws.quantile(_LEVELS[0]), first)
    above = np.maximum(laws.quantile(_LEVELS[-1]), first) - first + 1
    total = np.zeros(y.shape)
    for reach, side in ((below, -1), (above, 1)):
        # odd, so that the middle of a stride is a whole number: F goes through it as if it were straight
        stride = 2 * np.ceil(0.5 * (reach / _STEPS - 1)).clip(0) + 1
        for step in range(int(np.ceil(reach / stride).max(initial=0))):
            t = first + side * (stride * step + (stride - side) / 2)
            total += np.where(step * stride < reach, stride * _square(t, y, laws), 0.0)
    return total


def _columns(owner: str, truth: Any, found: Any, labels: Any) -> tuple[np.ndarray, np.ndarray]:
    """The number of each true label, and a column of `found` for each label."""
    values = np.asarray(found, float)
    values = numbers(owner, "found", values, ndim=values.ndim if values.ndim in (1, 2) else 2)
    width = values.shape[1] if values.ndim == 2 else 2
    names = np.arange(width) if labels is None else np.asarray(labels)
    if len(names) != width:
        raise ValueError(f"The 'labels' of {owner} must be {width}, one a column. Got {len(names)}.")
    truth = np.asarray(truth)
    same_length(owner, truth=truth, found=values)
    place = np.argmax(truth[:, None] == names, axis=1)
    strange = truth[names[place] != truth]
    if len(strange):
        raise ValueError(
            f"The 'truth' of {owner} must be among the labels. Got {strange.tolist()[0]!r} instead."
        )
    return place, values


def log_loss(truth: Any, found: Any, *, labels: Any = None) -> Measure:
    """The mean of −log p of the labels that came, in nats; also known as cross entropy.

    Args:
        truth: a label for each row.
        found: the probability of the second of two labels, or a column of probabilities for each label.
        labels: what the columns stand for, in order; None for 0, 1, ….

    A label that had no probability costs infinitely much.

    >>> float(log_loss([0, 1], [0.5, 0.25]).value.round(4))
    1.0397
    """
    place, p = _columns("log_loss", truth, found, labels)
    if (p < 0).any() or (p > 1 + 1e-9).any():
        raise ValueError("The 'found' of log_loss must be probabilities. Got one outside of [0, 1].")
    p = np.column_stack([1 - p, p]) if p.ndim == 1 else p
    own = p[np.arange(len(p)), place]
    with np.errstate(divide="ignore"):
        losses = -np.log(own)
    return _mean(losses) if (own > 0).all() else Measure(np.inf, np.nan)


def auc(truth: Any, found: Any, *, labels: Any = None) -> Measure:
    """The area under the receiver operating characteristic: how often the right rows come first.

    P(score of a row with the label > score of one without) + ½ P(equal), also known as the c-statistic and
    as that of Mann, Whitney and Wilcoxon.  Of more than two labels it is the mean of each against the rest.
    The standard error is DeLong's, with rows of each label independent.

    Args:
        truth: a label for each row.
        found: a score of the second of two labels, or a column of scores for each label.
        labels: what the columns stand for, in order; None for 0, 1, ….

    >>> float(auc([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]).value)
    0.75
    """
    place, scores = _columns("auc", truth, found, labels)
    count = np.bincount(place, minlength=2 if scores.ndim == 1 else scores.shape[1])
    if count.min() == 0 or len(count) < 2:
        raise ValueError("The 'truth' of auc must have rows of each label. Got none of one of them.")
    against = [(1, scores)] if scores.ndim == 1 else list(enumerate(scores.T))
    # what each row adds to the area: its part of it is a mean over rows with the label, and over the others
    value, share = 0.0, np.zeros(len(place))
    for label, score in against:
        own = place == label
        rank = stats.rankdata(score)
        inside = np.empty(len(score))
        inside[own], inside[~own] = stats.rankdata(score[own]), stats.rankdata(score[~own])
        # how many of the other side it is above, as a part of them
        above = (rank - inside) / np.where(own, (~own).sum(), own.sum())
        value += above[own].mean() / len(against)
        share += np.where(own, above / own.sum(), -above / (~own).sum()) / len(against)
    variance = sum(
        len(part) * part.var(ddof=1) if len(part) > 1 else np.nan
        for part in (share[place == label] for label in range(len(count)))
    )
    return Measure(float(value), float(np.sqrt(variance)))
