"""What there is to show of a fitted model beside its numbers."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from sklearn.base import TransformerMixin

from ..distributions import AbstractIndependent, component_axes
from ..estimators import (
    HMM,
    ICA,
    BayesianMixture,
    Dequantised,
    FactorAnalysis,
    GaussianMixture,
    LatentDirichletAllocation,
    LinearGaussianSSM,
    Mixture,
    SparseCoding,
    StructuralTimeSeries,
    SwitchingLinearSystem,
    Varimax,
)
from ..estimators.tables._factor import AbstractFactorModel
from ..estimators.tables._mixture import AbstractMixture


def latent(estimator: Any, X: np.ndarray) -> np.ndarray | None:
    """The hidden part of rows, where there is one."""
    if isinstance(estimator, Dequantised):
        return latent(estimator.estimator_, estimator.centre(X))
    if isinstance(estimator, AbstractMixture):
        return estimator.predict_proba(X)
    if not isinstance(estimator, TransformerMixin):
        return None
    transformer: Any = estimator
    return np.asarray(transformer.transform(X))


def parts(estimator: Any, X: np.ndarray) -> dict[str, np.ndarray]:
    """What a model of rows such as `X` is made of: loadings, or weights, means and their spread."""
    if isinstance(estimator, Dequantised):
        # of the columns that the model inside has not, loadings and spread are zero
        found = parts(estimator.estimator_, X[:, estimator.kept_])
        wide = {name: _widened(values, estimator.kept_) for name, values in found.items()}
        return found if estimator.kept_.all() else wide
    if isinstance(estimator, FactorAnalysis) and estimator.n_components_ > 1:
        return {"loadings": _scaled(estimator.rotate(Varimax()).components, X)}
    if isinstance(estimator, (AbstractFactorModel, SparseCoding)) and len(estimator.components_):
        return {"loadings": _scaled(estimator.components_, X)}
    if isinstance(estimator, ICA):
        return {"loadings": _scaled(estimator.mixing_.T, X)}
    if isinstance(estimator, (GaussianMixture, BayesianMixture)):
        spread = np.sqrt(np.diagonal(estimator.covariances_, axis1=1, axis2=2))
        return {"weights": estimator.weights_, "means": estimator.means_, "spread": spread}
    if isinstance(estimator, LatentDirichletAllocation):
        means = estimator.length_law_.mean * estimator.components_
        return {"weights": estimator.transform(X).mean(axis=0), "means": means}
    if isinstance(estimator, Mixture):
        members = estimator.model_.components
        if isinstance(members, AbstractIndependent):
            means = jax.vmap(lambda member: member.mean(), (component_axes(members),))(members)
            return {"weights": estimator.weights_, "means": estimator.scaling_.invert(np.asarray(means))}
    return {}


def _scaled(components: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Loadings for columns of standard deviation one; signs, which are free, so that most rise."""
    spread = np.nanstd(X, axis=0)
    scaled = components / np.where(spread > 0, spread, 1.0)
    return scaled * np.where(scaled.sum(axis=1, keepdims=True) < 0, -1.0, 1.0)


def _widened(values: np.ndarray, kept: np.ndarray) -> np.ndarray:
    if values.ndim == 1:
        return values
    wide = np.zeros((len(values), len(kept)))
    wide[:, kept] = values
    return wide


def states(estimator: Any, series: np.ndarray) -> dict[str, np.ndarray]:
    """The hidden states over a series, where there are such: probabilities, or means with their spread.

    What a part of a structural series adds is called by its number and name.
    """
    if isinstance(estimator, (HMM, SwitchingLinearSystem, AbstractMixture)):
        return {"probabilities": estimator.predict_proba(series)}
    if isinstance(estimator, LinearGaussianSSM):
        found = estimator.smooth(series)
        std = np.sqrt(np.diagonal(found.covariance, axis1=1, axis2=2))
        return {"mean": found.mean, "std": std}
    if isinstance(estimator, StructuralTimeSeries):
        decomposed = enumerate(estimator.decompose(series).items())
        return {
            f"{what} {number} {name}": getattr(part, what)
            for number, (name, part) in decomposed
            for what in ("mean", "std")
        }
    return {}
