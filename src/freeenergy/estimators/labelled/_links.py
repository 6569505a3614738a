"""Links on the host: what a linear predictor says of the mean, with slopes, so that edges are right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from ...distributions import Mean, gumbel_cdf, normal_cdf, reciprocal, reciprocal_root

# a value and its first two derivatives, numbers where they are the same for all
Jet = tuple[np.ndarray, Any, Any]
_LOG_ROOT_OF_TAU = 0.5 * np.log(2 * np.pi)


def _unchanged(eta: np.ndarray) -> Jet:
    return eta, 1.0, 0.0


class HostLink(NamedTuple):
    """μ = h(η) through a coordinate u of the mean in which nothing cancels at the edge of its range.

    Attributes:
        mean: from η to μ, h' and h''; NaN where η has no mean.
        predictor: from μ to η.
        inverse: h on the device, as `Mean` takes it.
        log_mean: from η to log μ with its derivatives, where there is a better formula than by μ.
        log_odds: the same for log μ − log(1 − μ).
    """

    mean: Callable[[np.ndarray], Jet]
    predictor: Callable[[np.ndarray], np.ndarray]
    inverse: Any
    log_mean: Callable[[np.ndarray], Jet] | None = None
    log_odds: Callable[[np.ndarray], Jet] | None = None

    def real(self, eta: np.ndarray) -> Jet:
        """μ itself, for means that are any numbers."""
        return self.mean(eta)

    def positive(self, eta: np.ndarray) -> Jet:
        """log μ."""
        if self.log_mean is not None:
            return self.log_mean(eta)
        mu, slope, bend = self.mean(eta)
        mu = np.where(mu > 0, mu, np.nan)
        ratio = slope / mu
        return np.log(mu), ratio, bend / mu - ratio**2

    def unit(self, eta: np.ndarray) -> Jet:
        """log μ − log(1 − μ)."""
        if self.log_odds is not None:
            return self.log_odds(eta)
        mu, slope, bend = self.mean(eta)
        mu = np.where((mu > 0) & (mu < 1), mu, np.nan)
        spread = mu * (1 - mu)
        ratio = slope / spread
        return special.logit(mu), ratio, bend / spread - ratio**2 * (1 - 2 * mu)


def _exp(eta: np.ndarray) -> Jet:
    mu = np.exp(eta)
    return mu, mu, mu


def _sigmoid(eta: np.ndarray) -> Jet:
    mu = special.expit(eta)
    slope = mu * special.expit(-eta)
    return mu, slope, slope * (1 - 2 * mu)


def _normal(eta: np.ndarray) -> Jet:
    slope = np.exp(-0.5 * eta**2 - _LOG_ROOT_OF_TAU)
    return special.ndtr(eta), slope, -eta * slope


def _normal_odds(eta: np.ndarray) -> Jet:
    above, below = special.log_ndtr(eta), special.log_ndtr(-eta)
    ratio = np.exp(-0.5 * eta**2 - _LOG_ROOT_OF_TAU - above - below)
    return above - below, ratio, -eta * ratio - ratio**2 * (1 - 2 * special.ndtr(eta))


def _gumbel(eta: np.ndarray) -> Jet:
    rate = np.exp(eta)
    slope = rate * np.exp(-rate)
    return -np.expm1(-rate), slope, slope * (1 - rate)


def _gumbel_odds(eta: np.ndarray) -> Jet:
    rate = np.exp(eta)
    mu = -np.expm1(-rate)
    # rate / μ, which is one where both vanish
    ratio = np.where(rate > 1e-300, rate / np.where(rate > 1e-300, mu, 1.0), 1.0)
    log_odds = np.where(rate > 1e-10, np.log(np.where(rate > 1e-10, mu, 1.0)), eta) + rate
    return log_odds, ratio, ratio * (1 - rate) - ratio**2 * (1 - 2 * mu)


def _square(eta: np.ndarray) -> Jet:
    return eta**2, 2 * eta, 2.0


def _power(eta: np.ndarray, exponent: float) -> Jet:
    """η to a negative power, for η > 0."""
    eta = np.where(eta > 0, eta, np.nan)
    mu = eta**exponent
    return mu, exponent * mu / eta, exponent * (exponent - 1) * mu / eta**2


IDENTITY = HostLink(_unchanged, lambda mu: mu, Mean().inverse)
LOG = HostLink(_exp, np.log, jnp.exp, log_mean=_unchanged)
LOGIT = HostLink(_sigmoid, special.logit, jax.nn.sigmoid, log_odds=_unchanged)
RECIPROCAL = HostLink(lambda eta: _power(eta, -1.0), lambda mu: 1 / mu, reciprocal)
RECIPROCAL_ROOT = HostLink(lambda eta: _power(eta, -0.5), lambda mu: mu**-2.0, reciprocal_root)
_KNOWN = {
    link.inverse: link
    for link in (
        IDENTITY,
        LOG,
        LOGIT,
        RECIPROCAL,
        RECIPROCAL_ROOT,
        HostLink(_normal, special.ndtri, normal_cdf, log_odds=_normal_odds),
        HostLink(_gumbel, lambda mu: np.log(-np.log1p(-mu)), gumbel_cdf, log_odds=_gumbel_odds),
        HostLink(_square, np.sqrt, jnp.square),
    )
}


@eqx.filter_jit
def _with_slopes(inverse: Callable[..., Any], eta: Any) -> Any:
    slope = jax.grad(inverse)
    return tuple(jax.vmap(part)(eta) for part in (inverse, slope, jax.grad(slope)))


def host_link(inverse: Callable[..., Any]) -> HostLink:
    """The link of an inverse that `Mean` has: one of those with formulas here, or any function of JAX.

    Of another the slopes are those of JAX, and a fit starts from the predictor zero.
    """
    if inverse in _KNOWN:
        return _KNOWN[inverse]

    def mean(eta: np.ndarray) -> Jet:
        mu, slope, bend = map(np.asarray, _with_slopes(inverse, np.asarray(eta, float)))
        return mu, slope, bend

    return HostLink(mean, np.zeros_like, inverse)
