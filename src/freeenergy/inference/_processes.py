"""Gaussian processes by dense algebra on the host: conditioning, evidence and its slope, leaving one out.

What is known of the values f of a process at n rows is a Gaussian site for each, of precision s²:

    (K + S⁻²)⁻¹ = S B⁻¹ S,      B = I + S K S,

so that no eigenvalue of B is below one, a row with s = 0 is left out, and no covariance is inverted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import linalg
from scipy.special import expit

_LOG_2PI = float(np.log(2 * np.pi))
# so many rows are too few for several cores
_FEW = 128
_potrf, _potri, _trtri = linalg.get_lapack_funcs(("potrf", "potri", "trtri"), dtype=np.float64)
(_syr,) = linalg.get_blas_funcs(("syr",), dtype=np.float64)


def factorise_sites(gram: np.ndarray, sites: np.ndarray) -> np.ndarray:
    """L with L Lᵀ = I + S K S, of a Gram matrix and the square roots of the precisions of the sites.

    >>> factorise_sites(np.array([[3.0]]), np.array([1.0])).tolist()
    [[2.0]]
    """
    inner = _between(gram.copy(), sites)
    inner.flat[:: len(inner) + 1] += 1.0
    root, problem = _potrf(inner.T, lower=0, clean=1, overwrite_a=1)
    if problem:
        raise ValueError(
            "The Gram matrix has a negative eigenvalue beyond rounding. Use a kernel that is positive "
            "definite, or more noise."
        )
    return root.T


def _between(matrix: np.ndarray, sites: np.ndarray) -> np.ndarray:
    """S M S, in the place of M."""
    if len(sites) and (sites == sites[0]).all():
        matrix *= sites[0] ** 2
        return matrix
    matrix *= sites[:, None]
    matrix *= sites
    return matrix


class Conditioned(NamedTuple):
    """A Gaussian process that was told noisy values.

    Attributes:
        root: L, with L Lᵀ = I + S K S.
        coefficients: α = (K + S⁻²)⁻¹ y, the weights of the kernels in the mean.
        log_evidence: log p(y), with the noise integrated in.
    """

    root: np.ndarray
    coefficients: np.ndarray
    log_evidence: float


def condition_process(gram: np.ndarray, y: np.ndarray, noise: float, weight: np.ndarray) -> Conditioned:
    """Conditions f ~ N(0, K) on y = f + e, e ~ N(0, σ²), and says log p(y) = log N(y; 0, K + σ²I).

    Args:
        gram: K.
        y: a number for each row.
        noise: σ².
        weight: how often each row was seen, which may be a fraction; zero leaves it out.

    >>> one = np.ones(1)
    >>> found = condition_process(np.array([[1.0]]), one, 1.0, one)
    >>> found.coefficients.round(6).tolist(), round(found.log_evidence, 4)
    ([0.5], -1.5155)
    """
    sites = np.sqrt(weight / noise)
    root = factorise_sites(gram, sites)
    half = linalg.solve_triangular(root, sites * y, lower=True, check_finite=False)
    inner = linalg.solve_triangular(root, half, lower=True, trans=1, check_finite=False)
    log_evidence = (
        -0.5 * half @ half - np.log(np.diag(root)).sum() - 0.5 * weight.sum() * (_LOG_2PI + np.log(noise))
    )
    return Conditioned(root, sites * inner, float(log_evidence))


def _inverse(root: np.ndarray) -> np.ndarray:
    """(L Lᵀ)⁻¹, of which only the triangle with the diagonal and below is there."""
    if len(root) <= _FEW:
        # LAPACK would spread even few rows over all cores
        half, _ = _trtri(root.T, lower=0)
        return np.tril(half @ half.T)
    inverse, _ = _potri(root.T, lower=0)
    return inverse.T


class EvidenceSlope(NamedTuple):
    """How log p(y) changes.

    Attributes:
        gram: with each entry of the Gram matrix; what belongs to an entry above the diagonal is added to
            that below.
        log_noise: with log σ².
    """

    gram: np.ndarray
    log_noise: float


def evidence_slope(found: Conditioned, noise: float, weight: np.ndarray) -> EvidenceSlope:
    """∂ log p(y) / ∂K = ½ (ααᵀ − (K + S⁻²)⁻¹), and the slope in log σ².

    >>> one = np.ones(1)
    >>> slope = evidence_slope(condition_process(np.array([[1.0]]), one, 1.0, one), 1.0, one)
    >>> slope.gram.round(6).tolist(), round(slope.log_noise, 6)
    ([[-0.125]], -0.125)
    """
    inverse = _between(_inverse(found.root), np.sqrt(weight / noise))
    slope = _syr(-1.0, found.coefficients, a=inverse.T, lower=0, overwrite_a=1).T
    slope *= -1.0
    each = np.diag(slope).copy()
    # entries below the diagonal stand for two
    slope.flat[:: len(slope) + 1] *= 0.5
    spread = np.divide(noise, weight, out=np.zeros_like(weight), where=weight > 0)
    repeats = (weight[weight > 0] - 1).sum()
    return EvidenceSlope(slope, float(0.5 * each @ spread - 0.5 * repeats))


def leave_one_out(
    found: Conditioned, y: np.ndarray, noise: float, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The mean and variance of each value of f given all others but its own: y − α/q, 1/q − S⁻².

    q is the diagonal of (K + S⁻²)⁻¹; a row is left out with all its weight.  Rows without weight have NaN.

    >>> gram, y, one = np.eye(2), np.array([1.0, 2.0]), np.ones(2)
    >>> mean, variance = leave_one_out(condition_process(gram, y, 1.0, one), y, 1.0, one)
    >>> bool(np.allclose(mean, 0.0)), variance.round(6).tolist()
    (True, [1.0, 1.0])
    """
    inverse, _ = _trtri(found.root.T, lower=0)
    # the diagonal of B⁻¹
    inner = (inverse.T**2).sum(axis=0)
    spread = np.divide(noise, weight, out=np.full_like(weight, np.nan), where=weight > 0)
    return y - found.coefficients * spread / inner, spread * np.maximum(1 / inner - 1, 0.0)


def process_at(
    cross: np.ndarray, diagonal: np.ndarray, root: np.ndarray, sites: np.ndarray, coefficients: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The mean and variance of f at other rows.

    Args:
        cross: k of each of them with each row that was seen.
        diagonal: k of each of them with itself.
        root, sites, coefficients: of the rows that were seen.

    >>> one = np.ones(1)
    >>> seen = condition_process(np.array([[1.0]]), one, 1.0, one)
    >>> mean, variance = process_at(np.ones((1, 1)), one, seen.root, one, seen.coefficients)
    >>> mean.round(6).tolist(), variance.round(6).tolist()
    ([0.5], [0.5])
    """
    half = linalg.solve_triangular(root, (cross * sites).T, lower=True, check_finite=False)
    # a variance next to zero has rounding below it
    return cross @ coefficients, np.maximum(diagonal - (half**2).sum(axis=0), 0.0)


class LaplaceSites(NamedTuple):
    """A Gaussian process that was told labels, by Laplace's method: a Gaussian about the likeliest f.

    Attributes:
        mode: f̂, the likeliest values.
        coefficients: α = K⁻¹ f̂, which are the slopes of log p(y | f) there.
        sites: the square roots of minus its curvatures.
        root: L, with L Lᵀ = I + S K S.
        log_evidence: log p(y), an estimate.
    """

    mode: np.ndarray
    coefficients: np.ndarray
    sites: np.ndarray
    root: np.ndarray
    log_evidence: float


def laplace_of_labels(
    gram: np.ndarray, signs: np.ndarray, weight: np.ndarray, *, most: int = 100
) -> LaplaceSites:
    """f ~ N(0, K) given labels ±1 of p(y | f) = 1 / (1 + exp(−y f)), by Newton's method with halved steps.

    Args:
        gram: K.
        signs: +1 or −1 for each row.
        weight: how often each row was seen.
        most: steps.

    >>> found = laplace_of_labels(np.array([[1.0]]), np.ones(1), np.ones(1))
    >>> bool(abs(found.mode[0] - 1 / (1 + np.exp(found.mode[0]))) < 1e-9)
    True
    """
    alpha, mode = np.zeros(len(signs)), np.zeros(len(signs))

    def value(alpha: np.ndarray, mode: np.ndarray) -> float:
        return float(-weight @ np.logaddexp(0.0, -signs * mode) - 0.5 * alpha @ mode)

    best, sites, root = value(alpha, mode), np.zeros(len(signs)), np.eye(len(signs))
    for _ in range(most):
        chance = expit(mode)
        sites = np.sqrt(weight * chance * (1 - chance))
        slope = weight * signs * expit(-signs * mode)
        root = factorise_sites(gram, sites)
        told = sites**2 * mode + slope
        inner = linalg.cho_solve((root, True), sites * (gram @ told), check_finite=False)
        new = told - sites * inner
        step, target = 1.0, gram @ new
        while step > 1e-6:
            tried = alpha + step * (new - alpha), mode + step * (target - mode)
            now = value(*tried)
            if now >= best - 1e-13 * abs(best):
                break
            step /= 2
        else:
            break
        gain, best, (alpha, mode) = now - best, now, tried
        if gain < 1e-12 * max(1.0, abs(best)):
            break
    chance = expit(mode)
    sites = np.sqrt(weight * chance * (1 - chance))
    root = factorise_sites(gram, sites)
    # at the mode α is the slope, which is better known
    alpha = weight * signs * expit(-signs * mode)
    return LaplaceSites(mode, alpha, sites, root, best - float(np.log(np.diag(root)).sum()))


def laplace_slope(gram: np.ndarray, found: LaplaceSites) -> np.ndarray:
    """∂ log p(y) / ∂K of Laplace's method, which moves the mode, too."""
    inverse = _inverse(found.root)
    inverse = _between(inverse + np.tril(inverse, -1).T, found.sites)
    half = linalg.solve_triangular(found.root, found.sites[:, None] * gram, lower=True, check_finite=False)
    spread = np.diag(gram) - (half**2).sum(axis=0)
    chance = expit(found.mode)
    # how the curvature changes with f
    third = -(found.sites**2) * (1 - 2 * chance)
    moved = 0.5 * spread * third
    moved = moved - inverse @ (gram @ moved)
    cross = np.multiply.outer(moved, found.coefficients)
    alone = np.multiply.outer(found.coefficients, found.coefficients)
    return 0.5 * (alone - inverse + cross + cross.T)
