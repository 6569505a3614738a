"""Gaussian processes whose values are not seen themselves: a Gaussian for them given answers of any law.

With f ~ N(0, K) and answers that depend on f alone, a Gaussian of precision K⁻¹ + W stands for what is
known, W a number for each row, and

    (K + W⁻¹)⁻¹ = W (I + K W)⁻¹ = M,      cov f = K − K M K,      mean K α.
"""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jax import Array
from scipy import linalg
from scipy.special import expit

from .._core import Kind, bucket, learnable
from ..distributions import Given
from ._processes import factorise_sites, inverse_of_sites

# averages over a Gaussian
_NODES, _SHARES = np.polynomial.hermite_e.hermegauss(32)
_SHARES = _SHARES / _SHARES.sum()
# a gain of this part of the value is none
_NO_GAIN = 1e-13
_SHORTEST = 1e-12
# a standard deviation of f over which every law is a parabola
_NARROW = 1e-3


class Curve(NamedTuple):
    """log p(y | f) of each row, with its first three derivatives in f."""

    value: np.ndarray
    slope: np.ndarray
    bend: np.ndarray
    third: np.ndarray


class AbstractLikelihood(abc.ABC):
    """Answers to rows that depend on one number each, f: log p(y | f), times the weights of the rows."""

    @abc.abstractmethod
    def at(self, f: np.ndarray) -> Curve:
        """The curves at `f`, (…, rows)."""

    @abc.abstractmethod
    def parameter_slope(self, f: np.ndarray, value: Any, slope: Any, bend: Any) -> Any:
        """How Σ value · log p + slope · (log p)′ + bend · (log p)″ changes with parameters of p, at `f`."""

    def averaged(self, mean: np.ndarray, variance: np.ndarray) -> Curve:
        """The curves averaged over f ~ N(mean, variance), by quadrature.

        The bend is twice the slope in the variance, E f′ t / √variance with t ~ N(0, 1), so that it is that
        of the quadrature, too.
        """
        spread = np.sqrt(variance)
        found = self.at(mean + spread * _NODES[:, None])
        value, slope, bend, third = (_SHARES @ part for part in found)
        wide = spread > _NARROW
        pulled = (_SHARES * _NODES) @ found.slope / np.where(wide, spread, 1.0)
        return Curve(value, slope, np.where(wide, pulled, bend), third)

    def averaged_parameter_slope(self, mean: np.ndarray, variance: np.ndarray) -> Any:
        """How the average of Σ log p changes with parameters of p."""
        f = mean + np.sqrt(variance) * _NODES[:, None]
        share = np.broadcast_to(_SHARES[:, None], f.shape)
        return self.parameter_slope(f, share, np.zeros_like(f), np.zeros_like(f))


class LabelLikelihood(AbstractLikelihood):
    """Labels ±1 with p(y | f) = 1 / (1 + exp(−y f)).

    >>> LabelLikelihood(np.ones(1), np.ones(1)).at(np.zeros(1)).slope.tolist()
    [0.5]
    """

    def __init__(self, signs: np.ndarray, weight: np.ndarray) -> None:
        self.signs, self.weight = signs, weight

    def at(self, f: np.ndarray) -> Curve:
        chance, rest = expit(f), expit(-f)
        spread = self.weight * chance * rest
        value = -self.weight * np.logaddexp(0.0, -self.signs * f)
        slope = self.weight * self.signs * expit(-self.signs * f)
        return Curve(value, slope, -spread, -spread * (rest - chance))

    def parameter_slope(self, f: np.ndarray, value: Any, slope: Any, bend: Any) -> np.ndarray:
        return np.zeros(0)


@eqx.filter_jit
def _curves(answer: Given, f: Array, y: Array) -> tuple[Array, Array, Array, Array]:
    def log_prob(f: Array, y: Array) -> Array:
        return answer.log_prob(f[None], y[None])

    first = jax.grad(log_prob)
    second = jax.grad(first)
    each = (log_prob, first, second, jax.grad(second))
    return tuple(jax.vmap(part)(f, y) for part in each)  # pyright: ignore[reportReturnType]


@eqx.filter_jit
def _parameter_slope(answer: Given, f: Array, y: Array, value: Array, slope: Array, bend: Array) -> Given:
    def total(answer: Given) -> Array:
        def log_prob(f: Array, y: Array) -> Array:
            return answer.log_prob(f[None], y[None])

        first = jax.grad(log_prob)
        parts = (log_prob, first, jax.grad(first))
        terms = [
            share @ jax.vmap(part)(f, y) for part, share in zip(parts, (value, slope, bend), strict=True)
        ]
        return terms[0] + terms[1] + terms[2]

    return eqx.filter_grad(total)(answer)


class AnswerLikelihood(AbstractLikelihood):
    """Answers of a conditional family p(y | f) with one number f.

    Attributes:
        answer: the family.
        y: a number for each row that can occur, also where its weight is zero.
        weight: how often each was seen.
        offset: what is added to f.

    >>> from freeenergy.distributions import Natural, Poisson
    >>> counts = AnswerLikelihood(Given(Poisson(np.ones(1)), Natural()), np.array([2.0]), np.ones(1), 0.0)
    >>> [part.round(6).tolist() for part in counts.at(np.zeros(1))[1:]]
    [[1.0], [-1.0], [-1.0]]
    """

    def __init__(self, answer: Given, y: np.ndarray, weight: np.ndarray, offset: float) -> None:
        self.answer, self.y, self.weight, self.offset = answer, y, weight, offset

    def _flat(self, f: np.ndarray, *shares: np.ndarray) -> tuple[np.ndarray, ...]:
        """f, the answer and shares of each pair of node and row, as many as a program takes."""
        size = f.size
        room = bucket(size) - size
        parts = f + self.offset, np.broadcast_to(self.y, f.shape), *shares
        # what fills the program is an answer at its usual place
        fill = self.offset, self.y[0], *(0.0 for _ in shares)
        return tuple(np.concatenate([np.ravel(p), np.full(room, own)]) for p, own in zip(parts, fill))

    def at(self, f: np.ndarray) -> Curve:
        found = _curves(self.answer, *self._flat(f))  # pyright: ignore[reportArgumentType]
        # what was not seen says nothing, however far its f is
        seen = self.weight > 0
        parts = (np.asarray(part)[: f.size].reshape(f.shape) for part in found)
        return Curve(*(np.where(seen, part, 0.0) * self.weight for part in parts))

    def parameter_slope(self, f: np.ndarray, value: Any, slope: Any, bend: Any) -> list[np.ndarray]:
        if not any(jax.tree.leaves(learnable(self.answer))):
            return [np.zeros(()) for _ in jax.tree.leaves(self.answer)]
        shares = (self.weight * part for part in (value, slope, bend))
        found = _parameter_slope(self.answer, *self._flat(f, *shares))  # pyright: ignore[reportArgumentType]
        return [np.asarray(leaf) for leaf in jax.tree.leaves(found)]


class SiteFactor:
    """M = (K + W⁻¹)⁻¹ for precisions W of sites, of which some may be negative.

    Attributes:
        precision: W.
        log_det: ½ log |I + K W|.

    >>> factor = SiteFactor(np.array([[1.0]]), np.array([-0.5]))
    >>> factor.explained(np.ones((1, 1))).tolist(), factor.matrix().tolist()
    ([[-1.0]], [[-1.0]])
    """

    def __init__(self, gram: np.ndarray, precision: np.ndarray) -> None:
        self.precision, self.root, self.lu = precision, None, None
        if (precision >= 0).all():
            self.sites = np.sqrt(precision)
            self.root = factorise_sites(gram, self.sites)
            self.log_det = float(np.log(np.diag(self.root)).sum())
        else:
            self.lu = linalg.lu_factor(np.eye(len(gram)) + gram * precision, check_finite=False)
            self.log_det = 0.5 * float(np.log(np.abs(np.diag(self.lu[0]))).sum())

    def matrix(self) -> np.ndarray:
        """M."""
        if self.root is not None:
            return inverse_of_sites(self.root, self.sites)
        found = self.precision[:, None] * linalg.lu_solve(self.lu, np.eye(len(self.precision)))
        return 0.5 * (found + found.T)

    def explained(self, cross: np.ndarray, *, each: bool = False) -> np.ndarray:
        """c M cᵀ for `cross` = c, by which sites lower the covariance; of `each` row its variance alone."""
        if self.root is not None:
            half = linalg.solve_triangular(
                self.root, (cross * self.sites).T, lower=True, check_finite=False
            )
            return (half**2).sum(axis=0) if each else half.T @ half
        half = linalg.lu_solve(self.lu, cross.T, check_finite=False)
        left = cross * self.precision
        return np.einsum("ij,ji->i", left, half) if each else left @ half


class LatentValues(NamedTuple):
    """A Gaussian for the values of a process at the rows that were seen.

    Attributes:
        mean, variance: of each value.
        coefficients: α, with K α the mean.
        factor: of the precisions of its sites.
        log_evidence: log p(y), an estimate or a bound.
        steps: how many were made.
    """

    mean: np.ndarray
    variance: np.ndarray
    coefficients: np.ndarray
    factor: SiteFactor
    log_evidence: float
    steps: int = 0


class ValuesSlope(NamedTuple):
    """How log p(y) changes with each entry of the Gram matrix, and with parameters of the likelihood."""

    gram: np.ndarray
    parameters: Any


class AbstractValuesMethod(eqx.Module):
    """How a Gaussian is found for the values of a process, given answers of any law."""

    @property
    @abc.abstractmethod
    def kind(self) -> Kind:
        """What its log p(y) is."""

    @abc.abstractmethod
    def __call__(self, gram: np.ndarray, likelihood: AbstractLikelihood) -> LatentValues:
        """The Gaussian, of K and the likelihood."""

    @abc.abstractmethod
    def slope(self, gram: np.ndarray, likelihood: AbstractLikelihood, found: LatentValues) -> ValuesSlope:
        """How its log p(y) changes."""


def halved(value: Any, best: float, step: float = 1.0) -> tuple[float, Any] | None:
    """The longest of halved steps that lowers nothing, with what `value` says there; or None."""
    while step > _SHORTEST:
        now, place = value(step)
        if now >= best - _NO_GAIN * abs(best):
            return now, place
        step /= 2
    return None


class LaplaceMethod(AbstractValuesMethod):
    """The Gaussian about the likeliest values f̂, with the curvature that their energy has there:

        log p(y) ≈ Σ log p(y | f̂) − ½ f̂ᵀK⁻¹f̂ − ½ log |I + K W|,    W = −(log p)″,

    an estimate.  f̂ is found by Newton's method with halved steps.  Also known as Laplace approximation.

    Attributes:
        max_iter: the most steps.

    >>> found = LaplaceMethod()(np.array([[1.0]]), LabelLikelihood(np.ones(1), np.ones(1)))
    >>> bool(abs(found.mean[0] - 1 / (1 + np.exp(found.mean[0]))) < 1e-9)
    True
    """

    max_iter: int = 100

    @property
    def kind(self) -> Kind:
        """An estimate."""
        return Kind.ESTIMATE

    def __call__(self, gram: np.ndarray, likelihood: AbstractLikelihood) -> LatentValues:
        alpha = mode = np.zeros(len(gram))
        curve = likelihood.at(mode)
        best, steps = float(curve.value.sum()), 0
        for _ in range(self.max_iter):
            steps += 1
            # a law with heavy tails bends up somewhere, where the prior alone has to say how far to go
            precision = np.maximum(-curve.bend, 0.0)
            told = precision * mode + curve.slope
            pulled = gram @ told
            factor = SiteFactor(gram, precision)
            assert factor.root is not None
            inner = linalg.cho_solve((factor.root, True), factor.sites * pulled, check_finite=False)
            new = told - factor.sites * inner
            target = gram @ new

            def tried(step: float, way: Any = (alpha, mode, new, target)) -> tuple[float, Any]:
                alpha, mode, new, target = way
                place = alpha + step * (new - alpha), mode + step * (target - mode)
                curve = likelihood.at(place[1])
                return float(curve.value.sum() - 0.5 * place[0] @ place[1]), (*place, curve)

            moved: Any = halved(tried, best)
            if moved is None:
                break
            gain, (best, (alpha, mode, curve)) = moved[0] - best, moved
            if gain < 1e-12 * max(1.0, abs(best)):
                break
        factor = SiteFactor(gram, -curve.bend)
        variance = np.maximum(np.diag(gram) - factor.explained(gram, each=True), 0.0)
        # at the mode α is the slope, which is better known
        return LatentValues(mode, variance, curve.slope, factor, best - factor.log_det, steps)

    def slope(self, gram: np.ndarray, likelihood: AbstractLikelihood, found: LatentValues) -> ValuesSlope:
        inverse = found.factor.matrix()
        # the mode moves, and the curvature with it
        moved = 0.5 * found.variance * likelihood.at(found.mean).third
        moved = moved - inverse @ (gram @ moved)
        cross = np.multiply.outer(moved, found.coefficients)
        alone = np.multiply.outer(found.coefficients, found.coefficients)
        parameters = likelihood.parameter_slope(
            found.mean, np.ones(len(gram)), gram @ moved, 0.5 * found.variance
        )
        return ValuesSlope(0.5 * (alone - inverse + cross + cross.T), parameters)


def _is_law(gram: np.ndarray, precision: np.ndarray) -> bool:
    """Whether K⁻¹ + W is a precision, where some of W are negative."""
    below = precision < 0
    if not below.any():
        return True
    rest = gram[np.ix_(below, below)] - SiteFactor(gram, np.maximum(precision, 0.0)).explained(gram[below])
    root = np.sqrt(-precision[below])
    try:
        np.linalg.cholesky(np.eye(len(root)) - root[:, None] * rest * root)
    except np.linalg.LinAlgError:
        return False
    return True


class VariationalGaussian(AbstractValuesMethod):
    """The Gaussian q of the highest lower bound, which has the precision K⁻¹ + W, a number W for each row:

        log p(y) ≥ E_q log p(y | f) − KL(q ‖ N(0, K)).

    Of laws whose logarithm is concave no other Gaussian is better; others may have several that no Gaussian
    near to them excels.  Natural gradients set W = −E_q (log p)″
    and the slope of the mean α = E_q (log p)′ step by step (Khan and Lin 2017).

    Attributes:
        max_iter: the most steps.

    >>> found = VariationalGaussian()(np.array([[1.0]]), LabelLikelihood(np.ones(1), np.ones(1)))
    >>> bool(found.log_evidence < np.log(0.5))
    True
    """

    max_iter: int = 200

    @property
    def kind(self) -> Kind:
        """A lower bound."""
        return Kind.LOWER

    def __call__(self, gram: np.ndarray, likelihood: AbstractLikelihood) -> LatentValues:
        def value(precision: np.ndarray, told: np.ndarray) -> tuple[float, Any]:
            """The bound with sites of these precisions, and precisions times means."""
            if not _is_law(gram, precision):
                return -np.inf, None
            factor, pulled = SiteFactor(gram, precision), gram @ told
            if factor.root is None:
                inner = linalg.lu_solve(factor.lu, pulled, check_finite=False)
                alpha = told - precision * inner
            else:
                inner = linalg.cho_solve((factor.root, True), factor.sites * pulled, check_finite=False)
                alpha = told - factor.sites * inner
            mean = gram @ alpha
            variance = np.maximum(np.diag(gram) - factor.explained(gram, each=True), 0.0)
            curve = likelihood.averaged(mean, variance)
            cost = 0.5 * (alpha @ mean - precision @ variance) + factor.log_det
            found = LatentValues(mean, variance, alpha, factor, float(curve.value.sum() - cost))
            return found.log_evidence, (precision, told, found, curve)

        begun = np.maximum(-likelihood.at(np.zeros(len(gram))).bend, 0.0)
        (best, (precision, told, found, curve)), steps = value(begun, np.zeros(len(gram))), 0
        for _ in range(self.max_iter):
            steps += 1
            target = -curve.bend
            aim = target * found.mean + curve.slope

            def tried(step: float, way: Any = (precision, told, target, aim)) -> tuple[float, Any]:
                precision, told, target, aim = way
                return value(precision + step * (target - precision), told + step * (aim - told))

            moved: Any = halved(tried, best)
            if moved is None:
                break
            gain, (best, (precision, told, found, curve)) = moved[0] - best, moved
            if gain < 1e-13 * max(1.0, abs(best)):
                break
        return found._replace(steps=steps)

    def slope(self, gram: np.ndarray, likelihood: AbstractLikelihood, found: LatentValues) -> ValuesSlope:
        inverse = found.factor.matrix()
        slope = 0.5 * (np.multiply.outer(found.coefficients, found.coefficients) - inverse)
        return ValuesSlope(slope, likelihood.averaged_parameter_slope(found.mean, found.variance))
