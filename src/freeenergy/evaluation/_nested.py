"""Tests of nested models, and what single rows do to a fit."""

from __future__ import annotations

import dataclasses

import numpy as np
from scipy import stats

from ._calibration import TestResult


def likelihood_ratio_test(smaller: float, larger: float, degrees: int) -> TestResult:
    """Whether more parameters are worth it: 2 (log p̂ of the larger − that of the smaller) against χ².

    If the smaller model is the law of the data, the statistic is χ² of as many degrees of freedom as it has
    parameters less (Wilks), for many rows.

    Args:
        smaller, larger: largest log-likelihoods of two models of the same rows, of which the larger has the
            smaller as a special case.
        degrees: how many parameters the larger has more.

    >>> found = likelihood_ratio_test(-105.0, -100.0, 2)
    >>> found.statistic, round(found.p_value, 5)
    (10.0, 0.00674)
    """
    if degrees < 1:
        raise ValueError(
            f"The 'degrees' of likelihood_ratio_test must be an int in the range [1, inf). Got {degrees!r} "
            "instead: the larger model has no more parameters."
        )
    statistic = 2 * (larger - smaller)
    return TestResult(float(statistic), float(stats.chi2.sf(max(statistic, 0.0), degrees)))


@dataclasses.dataclass(frozen=True)
class Influence:
    """What each row does to the fit of a regression.

    Attributes:
        leverage: the diagonal of the hat matrix, between 0 and 1, of sum the number of coefficients.
        pearson: residuals in units of the standard deviation of an answer.
        deviance: residuals whose squares have the deviance as their sum.
        studentised: Pearson's, divided by √(dispersion · (1 − leverage)).
        cooks_distance: how far the coefficients would move without the row, in units of their errors.
    """

    leverage: np.ndarray
    pearson: np.ndarray
    deviance: np.ndarray
    studentised: np.ndarray
    cooks_distance: np.ndarray
