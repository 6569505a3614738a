"""Pictures: functions of data and records that draw on Matplotlib axes, without pyplot and its state.

Each takes the axes (or the figure) to draw on, or makes a figure of its own
(`result.figure.savefig(…)`).  Words and axes have the colours of the style that is in force; `theme` is
the style of the report.
"""

from ._columns import association, distribution, distributions, missing
from ._fits import calibration, comparison, learning_curves, reliability
from ._generalisation import bias_variance, curve, prediction_sets
from ._networks import network
from ._parts import atoms, components, loadings, profiles, topics
from ._posteriors import marginal, posterior, ranks, trace
from ._predictions import coverage, dependence, importance, residuals
from ._rows import images, latent, mosaic, pairs, telling_columns
from ._series import decoded, decomposition, forecast, paths, smoothed
from ._simulation import calibration_ranks, predictive_check
from ._style import DARK_INK, INK, PALETTE, short_names, theme

__all__ = [
    "DARK_INK",
    "INK",
    "PALETTE",
    "association",
    "atoms",
    "bias_variance",
    "calibration",
    "calibration_ranks",
    "comparison",
    "components",
    "coverage",
    "curve",
    "decoded",
    "decomposition",
    "dependence",
    "distribution",
    "distributions",
    "forecast",
    "images",
    "importance",
    "latent",
    "learning_curves",
    "loadings",
    "marginal",
    "missing",
    "mosaic",
    "network",
    "pairs",
    "paths",
    "posterior",
    "prediction_sets",
    "predictive_check",
    "profiles",
    "ranks",
    "reliability",
    "residuals",
    "short_names",
    "smoothed",
    "telling_columns",
    "theme",
    "topics",
    "trace",
]
