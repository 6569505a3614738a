"""One answer from the answers of several completed tables: Rubin's rules."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import special

from .._core import aligned, in_notebook, table_in_notebook, visible
from ._checks import count, fraction


@dataclasses.dataclass(frozen=True, repr=False)
class Pooled:
    """What completed tables say together of one quantity, or several; print it.

    With the estimates Q_i of m tables and their variances U_i,

        Q̄ = Σ Q_i / m,   Ū = Σ U_i / m,   B = Σ (Q_i − Q̄)² / (m − 1),   T = Ū + (1 + 1/m) B.

    Everything is a number for a statistic of one number, and else an array with an entry for each.

    Attributes:
        estimate: Q̄.
        within: Ū, the variance if nothing were missing.
        between: B, the variance for what is missing.
        tables: m.
        names: what the entries are about.
        complete_df: the degrees of freedom if nothing were missing, where they are known.
        covariance: T as a matrix, where the statistic gave matrices; else None.

    References: Rubin, *Multiple Imputation for Nonresponse in Surveys* (1987); Barnard and Rubin,
    *Small-sample degrees of freedom with multiple imputation* (1999).

    >>> pool([(10.0, 4.0), (12.0, 4.0), (11.0, 4.0)])
    3 completed tables, by Rubin's rules
      quantity  estimate  std. error     df  95 % from    to  missing information
      0               11       2.309  32.00      6.296  15.7               0.2929
    """

    estimate: Any
    within: Any
    between: Any
    tables: int
    names: list[str]
    complete_df: float | None = None
    covariance: np.ndarray | None = None

    @property
    def variance(self) -> Any:
        """T, the total variance."""
        return self.within + (1 + 1 / self.tables) * self.between

    @property
    def stderr(self) -> Any:
        """√T."""
        return np.sqrt(self.variance)

    @property
    def share_missing(self) -> Any:
        """λ = (1 + 1/m) B / T, the share of the variance that comes of what is missing."""
        total = np.asarray(self.variance, float)
        part = np.asarray((1 + 1 / self.tables) * self.between, float)
        return np.divide(part, total, out=np.zeros_like(total), where=total > 0)[()]

    @property
    def df_rubin(self) -> Any:
        """ν = (m − 1) / λ², infinite where all tables agree."""
        share = np.asarray(self.share_missing)
        return np.divide(self.tables - 1, share**2, out=np.full(share.shape, np.inf), where=share > 0)[()]

    @property
    def df_barnard_rubin(self) -> Any:
        """ν ν_o / (ν + ν_o) with ν_o = (ν_c + 1) / (ν_c + 3) ν_c (1 − λ), given ν_c; None without it."""
        if self.complete_df is None:
            return None
        whole, rubin = self.complete_df, np.asarray(self.df_rubin)
        # what is left of the degrees of freedom of complete data; all, where those are infinite
        ratio = (whole + 1) / (whole + 3) if math.isfinite(whole) else 1.0
        share = np.asarray(self.share_missing)
        # complete data that know a quantity exactly need none
        known = np.asarray(self.within) > 0
        observed = np.multiply(ratio * whole, 1 - share, out=np.full(share.shape, np.inf), where=known)
        # by reciprocals, of which that of infinity is zero
        return (1 / (1 / rubin + 1 / observed))[()] if known.any() else rubin[()]

    @property
    def df(self) -> Any:
        """Those of Barnard and Rubin where the complete ones are known, else those of Rubin."""
        found = self.df_barnard_rubin
        return self.df_rubin if found is None else found

    @property
    def fraction_missing(self) -> Any:
        """γ = λ + 2 (1 − λ) / (ν + 3), the fraction of missing information."""
        share = self.share_missing
        return share + (1 - share) * 2 / (self.df + 3)

    def interval(self, level: float = 0.95) -> tuple[Any, Any]:
        """Both ends of Student's interval Q̄ ∓ t_ν √T."""
        level = fraction("Pooled.interval", "level", level)
        reach = special.stdtrit(self.df, (1 + level) / 2) * self.stderr
        return self.estimate - reach, self.estimate + reach

    def to_frame(self) -> Any:
        """A Polars frame with a row for each entry."""
        import polars as pl

        lower, upper = self.interval()
        columns = {
            "estimate": self.estimate,
            "stderr": self.stderr,
            "lower": lower,
            "upper": upper,
            "df": self.df,
            "within": self.within,
            "between": self.between,
            "fraction_missing": self.fraction_missing,
        }
        values = {name: np.atleast_1d(np.asarray(value, float)) for name, value in columns.items()}
        return pl.DataFrame({"quantity": self.names, **values})

    def _table(self) -> tuple[list[str], list[list[str]]]:
        head = ["quantity", "estimate", "std. error", "df", "95 % from", "to", "missing information"]
        lower, upper = self.interval()
        columns = (self.estimate, self.stderr, self.df, lower, upper, self.fraction_missing)
        lines = []
        for name, *values in zip(self.names, *map(np.atleast_1d, columns), strict=True):
            shown = [f"{value:.4g}" for value in values]
            shown[2] = f"{values[2]:.2f}"
            lines.append([visible(name), *shown])
        return head, lines

    def _title(self) -> str:
        return f"{self.tables} completed tables, by Rubin's rules"

    def __repr__(self) -> str:
        head, lines = self._table()
        return "\n".join([self._title(), *(f"  {line}" for line in aligned([head, *lines]))])

    def _repr_html_(self) -> str:
        """For notebooks."""
        return in_notebook(table_in_notebook(*self._table(), caption=self._title()))


def pool(
    results: Sequence[Any], *, names: Sequence[str] | None = None, complete_df: float | None = None
) -> Pooled:
    """Rubin's rules: one estimate, with its error, from those of two or more completed tables.

    Args:
        results: for each table a pair of the estimate (a number, or one for each quantity) and its variance
            (as many, or a covariance matrix); or a fitted result as those of statsmodels, with `params` and
            `cov_params()`, and `df_resid` if it has any.
        names: of the quantities; by default those of a fitted result, or their numbers.
        complete_df: the degrees of freedom of the estimate if nothing were missing, such as n − 1 of a
            mean; by default the `df_resid` of a fitted result.

    >>> pooled = pool([(1.0, 0.5), (3.0, 0.5)], complete_df=20)
    >>> float(pooled.estimate), float(pooled.variance)
    (2.0, 3.5)
    """
    owner, found = "pool", [_read(result) for result in results]
    count(owner, "number of tables", len(found), 2)
    shapes = {(q.shape, u.shape) for q, u, *_ in found}
    if len(shapes) > 1:
        raise ValueError(f"The results of {owner} must have one shape. Got {sorted(shapes)} instead.")
    estimates, variances = np.stack([q for q, *_ in found]), np.stack([u for _, u, *_ in found])
    own_names, own_df = found[0][2], found[0][3]
    whole = own_df if complete_df is None else complete_df
    if whole is not None and not whole > 0:
        raise ValueError(f"The 'complete_df' of {owner} must be greater than zero. Got {whole!r} instead.")
    quantities = [str(i) for i in range(estimates[0].size)] if own_names is None else own_names
    quantities = quantities if names is None else [str(name) for name in names]
    if len(quantities) != estimates[0].size:
        raise ValueError(
            f"The 'names' of {owner} must be one for each quantity. Got {len(quantities)} instead of "
            f"{estimates[0].size}."
        )
    within, matrix = variances.mean(axis=0), None
    if variances.ndim == 3:
        between = np.cov(estimates, rowvar=False, ddof=1).reshape(within.shape)
        matrix = within + (1 + 1 / len(found)) * between
        within = np.diagonal(within).copy()
    return Pooled(
        estimates.mean(axis=0)[()],
        within[()],
        estimates.var(axis=0, ddof=1)[()],
        len(found),
        quantities,
        None if whole is None else float(whole),
        matrix,
    )


def _read(result: Any) -> tuple[np.ndarray, np.ndarray, list[str] | None, float | None]:
    """Estimate, variance, names and degrees of freedom of what a statistic gave."""
    params = getattr(result, "params", None)
    if params is not None:
        labels = getattr(params, "index", None)
        names = None if labels is None else [str(label) for label in labels]
        freedom = getattr(result, "df_resid", None)
        pair = params, result.cov_params()
        return *_numbers(pair), names, None if freedom is None else float(freedom)
    return *_numbers(result), None, None


def _numbers(pair: Any) -> tuple[np.ndarray, np.ndarray]:
    try:
        estimate, variance = (np.asarray(part, float) for part in pair)
    except (TypeError, ValueError):
        raise ValueError(
            "A statistic of a completed table must be an estimate and its variance, or a fitted result "
            f"with params and cov_params(). Got {type(pair).__name__} instead."
        ) from None
    size = estimate.shape
    if estimate.ndim > 1 or variance.shape not in (size, (*size, *size)):
        raise ValueError(
            "A statistic must have a variance for each estimate, or a covariance matrix. "
            f"Got the shapes {size} and {variance.shape} instead."
        )
    least = np.diagonal(variance) if variance.ndim == 2 else variance
    if not (np.isfinite(estimate).all() and np.isfinite(variance).all() and (least >= 0).all()):
        raise ValueError(
            "A statistic must give finite estimates with variances that are not negative. "
            f"Got {estimate.tolist()} with {least.tolist()} instead."
        )
    return estimate, variance
