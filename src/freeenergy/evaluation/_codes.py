"""What a code tells of its rows, from draws of it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

# the least variance of the mean of an entry that is in use (Burda et al. 2016)
_IN_USE = 0.01


class CodeReport(NamedTuple):
    """How much a code tells of the rows, and how far all codes together are from their prior, in nats.

        F = −E log p(x | z) + rate,     rate = E KL(q(z | x) ‖ p(z)) = I(x; z) + KL(q(z) ‖ p(z)),

    where q(z) is the mean of q(z | x) over the rows, the aggregated posterior (also known as the surgery of
    the evidence lower bound).

    Attributes:
        reconstruction: −E log p(x | z) per row.
        rate: what a code costs.
        information: I(x; z), what it tells; at most the logarithm of the number of rows.
        aggregate_gap: KL(q(z) ‖ p(z)); where it is large, draws of the prior are no codes of rows.
        stderr: of these four, in this order.
        variances: of the mean of each entry of the code, over the rows.
        active: which entries are in use: those whose variance is more than 0.01.
        rows: how many rows there were.

    References:
        Hoffman and Johnson (2016), ELBO surgery.
        Burda, Grosse and Salakhutdinov (2016), Importance weighted autoencoders, for units in use.
    """

    reconstruction: float
    rate: float
    information: float
    aggregate_gap: float
    stderr: np.ndarray
    variances: np.ndarray
    active: np.ndarray
    rows: int

    @property
    def collapsed(self) -> bool:
        """Whether no entry of the code is in use."""
        return not self.active.any()

    @property
    def sentence(self) -> str:
        """What there is to say of it."""
        return code_sentence(self.active)

    def __str__(self) -> str:
        numbers = zip(
            ("reconstruction", "rate", "information", "aggregate gap"), self[:4], self.stderr, strict=True
        )
        lines = [f"  {name:<15} {value:9.3f} ± {error:.3f} nats a row" for name, value, error in numbers]
        return "\n".join([f"codes of {self.rows} rows", *lines, f"  {self.sentence}"])


def code_sentence(active: np.ndarray) -> str:
    """What there is to say of the entries of a code, of which some are in use.

    >>> code_sentence(np.array([True, True, False]))
    '2 of 3 entries of the code are in use.'
    """
    used, size = int(np.sum(active)), len(active)
    if used == 0:
        return (
            f"The posterior has collapsed: none of the {size} entries of the code depends on the rows. Try "
            "objective=WarmUp(…) or more rows; or the columns are independent."
        )
    return f"{used} of {size} entries of the code {'is' if size == used == 1 else 'are'} in use."


def entries_in_use(means: np.ndarray, weight: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The variance of each entry of the mean codes of rows, and which entries are in use.

    >>> entries_in_use(np.array([[0.0, 1.0], [2.0, 1.0]]))[1].tolist()
    [True, False]
    """
    centre = np.average(means, axis=0, weights=weight)
    variances = np.average((means - centre) ** 2, axis=0, weights=weight)
    return variances, variances > _IN_USE


def code_report(
    log_likelihood: np.ndarray, log_recognition: np.ndarray, log_prior: np.ndarray, means: np.ndarray
) -> CodeReport:
    """The report on codes z_i, one drawn for each of n rows.

    Args:
        log_likelihood: log p(x_i | z_i), (n,).
        log_recognition: log q(z_i | x_j) at [i, j].
        log_prior: log p(z_i).
        means: of q(z | x_i), (n, entries).

    >>> same = np.log(np.full((2, 2), 0.5))
    >>> report = code_report(np.zeros(2), same, np.log([0.5, 0.5]), np.zeros((2, 1)))
    >>> report.information, report.collapsed
    (0.0, True)
    """
    own, n = np.diagonal(log_recognition), len(log_prior)
    together = logsumexp(log_recognition, axis=1) - np.log(n)
    terms = np.stack([-log_likelihood, own - log_prior, own - together, together - log_prior])
    variances, active = entries_in_use(means)
    errors = terms.std(axis=1, ddof=1) / np.sqrt(n)
    reconstruction, rate, information, gap = terms.mean(axis=1).tolist()
    return CodeReport(reconstruction, rate, information, gap, errors, variances, active, n)
