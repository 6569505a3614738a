"""Evaluation: arrays in, numbers out: association, intervals, laws, splits, calibration, tests, pooling."""

from ._association import association
from ._calibration import Reliability, TestResult, pit_ranks, reliability, two_sample_test, uniformity
from ._forecasts import Measure, coverage, mase, naive_scale, rmse
from ._intervals import (
    Interval,
    PairedDifference,
    Retraining,
    beta_interval,
    bootstrap_interval,
    credible_interval,
    credible_region,
    paired_difference,
    retraining_interval,
    t_interval,
    wald_interval,
    wilson_interval,
)
from ._laws import AbstractLaws, JoinedLaws, Laws, MixedLaws, NormalLaws
from ._laws_regression import HuberLaws, QuantileLaws, StudentLaws
from ._predictions import auc, crps, log_loss, mae, pinball
from ._rubin import Pooled, pool
from ._separable import likelihood_is_unbounded
from ._splits import Split, out_of_bag, three_way_split

__all__ = [
    "AbstractLaws",
    "HuberLaws",
    "Interval",
    "JoinedLaws",
    "Laws",
    "Measure",
    "MixedLaws",
    "NormalLaws",
    "PairedDifference",
    "Pooled",
    "QuantileLaws",
    "Reliability",
    "Retraining",
    "Split",
    "StudentLaws",
    "TestResult",
    "association",
    "auc",
    "beta_interval",
    "bootstrap_interval",
    "coverage",
    "credible_interval",
    "credible_region",
    "crps",
    "likelihood_is_unbounded",
    "log_loss",
    "mae",
    "mase",
    "naive_scale",
    "out_of_bag",
    "paired_difference",
    "pinball",
    "pit_ranks",
    "pool",
    "reliability",
    "retraining_interval",
    "rmse",
    "t_interval",
    "three_way_split",
    "two_sample_test",
    "uniformity",
    "wald_interval",
    "wilson_interval",
]
