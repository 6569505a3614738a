"""What there is to show of a fitted model beside its numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..shell import Shows


def latent(estimator: Any, X: np.ndarray) -> np.ndarray | None:
    """The hidden part of rows, where there is one."""
    return estimator.latent(X) if isinstance(estimator, Shows) else None


def parts(estimator: Any, X: np.ndarray) -> dict[str, np.ndarray]:
    """What a model of rows such as `X` is made of: loadings, or weights, means and their spread."""
    return estimator.parts(X) if isinstance(estimator, Shows) else {}


def states(estimator: Any, series: np.ndarray, inputs: np.ndarray | None) -> dict[str, np.ndarray]:
    """The hidden states over a series, where there are such: probabilities, or means with their spread."""
    return estimator.states(series, inputs=inputs) if isinstance(estimator, Shows) else {}
