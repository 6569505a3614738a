"""Gaussian processes by dense algebra on the host: conditioning, evidence and its slope, leaving one out.

What is known of the values f of a process at n rows is a Gaussian site for each, of precision s²:

    (K + S⁻²)⁻¹ = S B⁻¹ S,      B = I + S K S,

so that no eigenvalue of B is below one, a row with s = 0 is left out, and no covariance is inverted.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import linalg

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


def condition_process(gram: np.ndarray, y: np.ndarray, noise: Any, weight: np.ndarray) -> Conditioned:
    """Conditions f ~ N(0, K) on y = f + e, e ~ N(0, σ²), and says log p(y) = log N(y; 0, K + σ²I).

    Args:
        gram: K.
        y: a number for each row.
        noise: σ², one number, or one for each row.
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
        -0.5 * half @ half - np.log(np.diag(root)).sum() - 0.5 * np.sum(weight * (_LOG_2PI + np.log(noise)))
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


def inverse_of_sites(root: np.ndarray, sites: np.ndarray) -> np.ndarray:
    """(K + S⁻²)⁻¹ = S (L Lᵀ)⁻¹ S, all of it.

    >>> inverse_of_sites(np.array([[2.0]]), np.ones(1)).tolist()
    [[0.25]]
    """
    half = _inverse(root)
    return _between(half + np.tril(half, -1).T, sites)


class EvidenceSlope(NamedTuple):
    """How log p(y) changes.

    Attributes:
        gram: with each entry of the Gram matrix; what belongs to an entry above the diagonal is added to
            that below.
        log_noise: with log σ² of each row.
    """

    gram: np.ndarray
    log_noise: np.ndarray


def evidence_slope(found: Conditioned, noise: Any, weight: np.ndarray) -> EvidenceSlope:
    """∂ log p(y) / ∂K = ½ (ααᵀ − (K + S⁻²)⁻¹), and the slope in log σ².

    >>> one = np.ones(1)
    >>> slope = evidence_slope(condition_process(np.array([[1.0]]), one, 1.0, one), 1.0, one)
    >>> slope.gram.round(6).tolist(), slope.log_noise.round(6).tolist()
    ([[-0.125]], [-0.125])
    """
    inverse = _between(_inverse(found.root), np.sqrt(weight / noise))
    slope = _syr(-1.0, found.coefficients, a=inverse.T, lower=0, overwrite_a=1).T
    slope *= -1.0
    each = np.diag(slope).copy()
    # entries below the diagonal stand for two
    slope.flat[:: len(slope) + 1] *= 0.5
    spread = np.divide(noise, weight, out=np.zeros_like(weight), where=weight > 0)
    repeats = np.where(weight > 0, weight - 1, 0.0)
    return EvidenceSlope(slope, 0.5 * (each * spread - repeats))


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
