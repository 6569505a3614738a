"""Gaussian processes with answers of any law: their evidence, and the law of an answer, on the host."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import logsumexp

from ..._core import map_rows, on_device
from ...distributions import AbstractExponentialFamily, Given, Mean, Natural, Reals, UnitInterval
from ...evaluation import AbstractLaws, StackedLaws
from ...inference import AbstractValuesMethod, LaplaceMethod
from ...inference._latent_processes import (
    AbstractLikelihood,
    AnswerLikelihood,
    Curve,
    LatentValues,
    SiteFactor,
)
from ...kernels import AbstractKernel
from ...kernels._slopes import gram_slope
from ...models import LatentProcess
from ...shell import Scaling
from ._kernelled import AbstractEvidences, LogParameters, LogPrior
from ._members import laws_of, member_of

# how far values of f are from their mean, in standard deviations, and the fewest and most distances between
_REACH, _FEWEST, _MOST = 7.0, 28, 896
# members are made so many at once, in one program
_AT_ONCE = 4096
# the variance of the constant that f is about
_ANYWHERE = 100.0


def answer_of(family: Any, y: np.ndarray) -> Given:
    """A conditional family with one number f: as passed, or with the link that suits its values.

    Natural parameters where an exponential family has a mass; else f is the mean of real answers, its
    logarithm for positive ones, its log-odds for shares.

    >>> from freeenergy.distributions import Gamma, Poisson
    >>> one = np.ones((2, 1))
    >>> answer_of(Poisson, one).link, answer_of(Gamma, one).at(np.zeros(1)).mean().tolist()
    (Natural(), [1.0])
    """
    if isinstance(family, Given):
        return family
    member = member_of(family, y) if isinstance(family, type) else family
    if isinstance(member, AbstractExponentialFamily) and member.support.has_mass(1).all():
        return Given(member, Natural())
    if member.support == Reals():
        return Given(member, Mean())
    shares = isinstance(member.support, UnitInterval)
    return Given(member, Mean(jax.nn.sigmoid if shares else jnp.exp))


class LatentEvidences(AbstractEvidences):
    """The evidence of answers of any law, by a Gaussian for the values of a process of each output.

    The parameters are those of the kernel, then those of the likelihoods.
    """

    def __init__(
        self,
        kernel: LogParameters,
        x: np.ndarray,
        weights: np.ndarray,
        likelihoods: Callable[[np.ndarray], list[AbstractLikelihood]],
        family: LogParameters | None,
        method: AbstractValuesMethod | None,
        prior: LogPrior | None = None,
    ) -> None:
        self.kernel, self.x, self.weights = kernel, x, weights
        self.likelihoods, self.family = likelihoods, family
        self.method = LaplaceMethod() if method is None else method
        self.prior = LogPrior.none(len(self.start)) if prior is None else prior

    @property
    def start(self) -> np.ndarray:
        """The logarithms to begin with."""
        more = [] if self.family is None else [self.family.vector]
        return np.concatenate([self.kernel.vector, *more])

    def told(self, theta: np.ndarray) -> tuple[AbstractKernel, np.ndarray, list[LatentValues]]:
        """The kernel, K, and what is known of each process."""
        size = len(self.kernel.vector)
        kernel = self.kernel.kernel(theta[:size])
        gram = kernel.gram(self.x)
        return kernel, gram, [self.method(gram, own) for own in self.likelihoods(theta[size:])]

    def evidence(self, theta: np.ndarray, *, slope: bool = True) -> tuple[float, np.ndarray]:
        """log p(y | X), an estimate or a bound, and its slope."""
        kernel, gram, told = self.told(theta)
        value = sum(part.log_evidence for part in told)
        if not slope:
            return value, np.zeros(0)
        size = len(self.kernel.vector)
        parts = zip(self.likelihoods(theta[size:]), told, strict=True)
        found = [self.method.slope(gram, *pair) for pair in parts]
        total = functools.reduce(np.add, [part.gram for part in found])
        logs = self.kernel.slope(theta[:size], gram_slope(kernel, self.x, total, gram))
        if self.family is None:
            return value, logs
        more = sum(self.family.slope(theta[size:], part.parameters) for part in found)
        return value, np.concatenate([logs, more])

    def process(self, theta: np.ndarray) -> tuple[ValuesProcess, float]:
        """What is known of f, and its log p(y)."""
        kernel, _, told = self.told(theta)
        arrays = (
            self.x,
            np.stack([part.coefficients for part in told], axis=1),
            np.stack([part.factor.precision for part in told], axis=1),
        )
        model = LatentProcess(jax.tree.map(on_device, kernel), *map(on_device, arrays))
        return ValuesProcess(model, [part.factor for part in told]), sum(p.log_evidence for p in told)


class ValuesProcess:
    """f given a Gaussian for its values at the rows that were seen, on the host.

    Attributes:
        model: a `freeenergy.models.LatentProcess`.
    """

    def __init__(self, model: LatentProcess, factors: list[SiteFactor] | None = None) -> None:
        self.model, self.x = model, np.asarray(model.x)
        self.coefficients = np.asarray(model.coefficients)
        if factors is None:
            gram = model.kernel.gram(self.x)
            factors = [SiteFactor(gram, own) for own in np.asarray(model.precision).T]
        self.factors = factors

    @property
    def size(self) -> int:
        """With how many rows a row is compared."""
        return len(self.x)

    def at(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The mean and variance of f, (rows, processes)."""
        across, prior = self.model.kernel.gram(z, self.x), self.model.kernel.diagonal(z)
        explained = [factor.explained(across, each=True) for factor in self.factors]
        # a variance next to zero has rounding below it
        variance = np.maximum(prior[:, None] - np.stack(explained, axis=1), 0.0)
        return across @ self.coefficients, variance

    def together(self, z: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """The mean and covariance of the values at all rows, for each process."""
        across, prior = self.model.kernel.gram(z, self.x), self.model.kernel.gram(z)
        pairs = zip(self.coefficients.T, self.factors, strict=True)
        return [(across @ own, prior - factor.explained(across)) for own, factor in pairs]


class _Constant(AbstractLikelihood):
    """All rows with the same f."""

    def __init__(self, likelihood: AnswerLikelihood) -> None:
        self.likelihood = likelihood

    def at(self, f: np.ndarray) -> Curve:
        every = np.repeat(f, len(self.likelihood.y), axis=-1)
        return Curve(*(part.sum(axis=-1, keepdims=True) for part in self.likelihood.at(every)))

    def parameter_slope(self, f: np.ndarray, value: Any, slope: Any, bend: Any) -> Any:
        raise NotImplementedError("The parameters of a constant are not learned.")


def constant_of(likelihood: AnswerLikelihood) -> float:
    """The f that all rows together are likeliest with, kept from running away.

    >>> from freeenergy.distributions import Poisson
    >>> counts = np.array([1.0, 3.0])
    >>> seen = AnswerLikelihood(answer_of(Poisson, counts[:, None]), counts, np.ones(2), 0.0)
    >>> bool(abs(np.exp(constant_of(seen)) - 2) < 0.01)
    True
    """
    return float(LaplaceMethod()(np.array([[_ANYWHERE]]), _Constant(likelihood)).mean[0])


def _member_at(f: Array, answer: Given) -> Any:
    return answer.at(f)


def _members_at(answer: Given, f: np.ndarray) -> Any:
    """A stack of the members at numbers `f`."""
    flat = np.concatenate([f, np.zeros(-f.size % _AT_ONCE)])[:, None]
    blocks = [
        map_rows(_member_at, flat[start : start + _AT_ONCE], answer, block=_AT_ONCE)
        for start in range(0, len(flat), _AT_ONCE)
    ]
    return jax.tree.map(lambda *parts: np.concatenate(parts)[: f.size], *blocks)


def averaged_laws(
    answer: Given,
    mean: np.ndarray,
    spread: np.ndarray,
    scaling: Scaling,
    shaped: Callable[[np.ndarray], np.ndarray],
) -> AbstractLaws:
    """The law of an answer whose f is N(mean, spread²): a mixture over values of f at even distances.

    They are as near to each other as the laws of their answers are wide, so that these overlap.

    Args:
        answer: p(y | f).
        mean, spread: of each row.
        scaling, shaped: as of `laws_of`.
    """

    def laws(z: np.ndarray) -> AbstractLaws:
        return laws_of(_members_at(answer, (mean + spread * z[:, None]).ravel()), scaling, shaped)

    def by_part(values: np.ndarray) -> np.ndarray:
        return values.reshape(-1, len(mean), *values.shape[1:])

    few = laws(np.linspace(-2.0, 2.0, 5))
    middles = by_part(few.quantile(0.5))
    if few.discrete:
        widths = np.maximum(by_part(few.std()), 0.5)
    else:
        # of a normal law it is the standard deviation
        widths = by_part(few.quantile(0.75) - few.quantile(0.25)) / 1.349
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.abs(np.diff(middles, axis=0)) / np.minimum(widths[1:], widths[:-1])
    most = float(np.max(np.where(np.isnan(steps), 0.0, steps), initial=0.0))
    count = _FEWEST
    while count < min(2 * _REACH * most, _MOST):
        count *= 2
    z = np.linspace(-_REACH, _REACH, count + 1)
    logs = -0.5 * z**2
    weights = np.broadcast_to((logs - np.asarray(logsumexp(logs)))[:, None], (len(z), len(mean)))
    return StackedLaws(weights, laws(z))
