"""What all checks use."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils import get_tags


def refitted(estimator: Any, X: Any, **options: Any) -> Any:
    """A clone with a seed, fitted; two labels in turn where it needs such and none are given."""
    fresh: Any = clone(estimator)
    if get_tags(fresh).target_tags.required and "y" not in options:
        options["y"] = np.arange(len(X)) % 2
    if "random_state" in fresh.get_params():
        fresh.set_params(random_state=0)
    return fresh.fit(X, **options)


def require(condition: Any, message: str) -> None:
    """Says which promise is broken."""
    if not condition:
        raise AssertionError(message)


def compare_rows(found: np.ndarray, other: np.ndarray, what: str) -> None:
    """Whether what is found of rows is the same beside other rows."""
    gap = np.abs(found - other).max()
    require(
        np.allclose(found, other, rtol=1e-6, atol=1e-8),
        f"{what} must not depend on other rows; it differs by {gap:.2g}.",
    )
