"""A probability mass on whole numbers from a model of continuous columns."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax import Array
from sklearn.base import clone

from .._core import CellError, Evidence, Fit, Kind, map_rows
from ..inference import importance_estimate
from ._base import AbstractDensity
from ._gaussian import GaussianDensity
from ._mixture import Mixture
from ._rows import Rows, Scaling, unit_free_hashes
from ._support import Support
from ._validation import check_instance, check_int

# noisy copies of a row that was seen very often
_MOST_COPIES = 1000
# noisy versions of the observed entries from which missing ones are filled in
_COMPLETIONS = 32
# numbers that are held in memory at once
_NUMBERS_AT_ONCE = 4_000_000
# the noise of these three is independent
_TRAINING, _SCORING, _FILLING = (np.uint64(salt) for salt in (1, 2, 3))


def _mixed(bits: np.ndarray) -> np.ndarray:
    """64 bits that look random, a function of 64 bits one to one."""
    bits = bits ^ (bits >> np.uint64(30))
    bits = bits * np.uint64(0xBF58476D1CE4E5B9)
    bits = bits ^ (bits >> np.uint64(27))
    bits = bits * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def uniform_noise(hashes: np.ndarray, draw: np.ndarray, columns: int) -> np.ndarray:
    """Numbers in [0, 1) of the shape (rows, columns) that depend on the hash of a row and on `draw`."""
    step = np.uint64(0x9E3779B97F4A7C15)
    state = _mixed(hashes + step * draw.astype(np.uint64))
    bits = _mixed(state[:, None] + step * np.arange(1, columns + 1, dtype=np.uint64)[None])
    return (bits >> np.uint64(11)) * 2.0**-53


class Dequantised(AbstractDensity):
    """A density on whole numbers made from a continuous one: P(x) = ∫_[0,1)ᵈ p(x + u) du.

    The continuous model p is fitted to x + u with uniform noise u.  The evidence is the lower bound

        log P(x) ≥ E log (1/K) Σ_k p(x + u_k),

    which K = `importance_samples` makes tight, with its Monte Carlo error.  Draws are rounded down.
    Only columns of whole numbers get noise; continuous ones are left as they are, so that the evidence
    is a mass in the former and a density in the latter.  Columns that `estimator` itself gives a
    probability mass need no noise.  A column declared constant is left out of the model: its one
    value has probability one.

    The noise of a row depends on its values and on the seed alone.  A row is fitted in `copies` noisy
    versions that share its weight, or as many as it was seen if that is more (and at most 1000), so
    that weights act as repetition.

    Args:
        estimator: the density of the noisy rows; `GaussianDensity()` by default.
        support: which columns hold whole numbers and which are constant; None to recognise whole
            numbers in the rows that are fitted.
        importance_samples: K.  An estimator with importance samples of its own shares them over the
            K noisy rows.
        copies: noisy versions of each distinct row to fit.
        random_state: seed of the noise, and of `estimator` if it has none.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).poisson(20, size=(300, 1))
    >>> model = Dequantised(random_state=0).fit(X)
    >>> model.evidence([[20.0]]).kind.value
    'lower bound'
    >>> round(float(np.exp(model.score_samples([[20.0]]))[0]), 2)
    0.09
    """

    def __init__(
        self,
        estimator: AbstractDensity | None = None,
        support: Support | None = None,
        *,
        importance_samples: int = 64,
        copies: int = 2,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.support = support
        self.importance_samples = importance_samples
        self.copies = copies
        self.random_state = random_state

    @property
    def _must_converge(self) -> bool:
        return False  # the inner estimator says it

    def _check_parameters(self) -> None:
        check_instance(self, "estimator", AbstractDensity, optional=True)
        check_instance(self, "support", Support, optional=True)
        check_int(self, "importance_samples", 2)
        check_int(self, "copies")

    def _scaling(self, X: np.ndarray, weight: np.ndarray | None) -> Scaling:
        return Scaling.identity(X.shape[1])

    def _discrete_columns(self, n_features: int) -> np.ndarray:
        if self.support is not None:
            return ~self.support.continuous
        inner = GaussianDensity() if self.estimator is None else self.estimator
        return inner._discrete_columns(n_features)

    def _fit_rows(self, rows: Rows, *, key: Array) -> Fit:
        support = self.support or Support.recognise(rows.x, constants=False)
        if len(support) != rows.x.shape[1]:
            raise ValueError(
                f"The 'support' parameter of Dequantised must have a kind for each of the "
                f"{rows.x.shape[1]} columns. Got {len(support)} instead."
            )
        inner: Any = GaussianDensity() if self.estimator is None else clone(self.estimator)
        # a family of fixed size wants all its columns
        fixed = isinstance(inner, Mixture) and not isinstance(inner.family, type)
        keep = np.ones(len(support), bool) if fixed else ~support.constant
        if not keep.any():
            raise ValueError("Every column is declared constant. Declare or add one that varies.")
        self.support_, self.kept_ = support, keep
        self.noisy_ = (support.integer & keep)[keep] & ~inner._discrete_columns(int(keep.sum()))
        self.constants_ = self._constants(rows.x)
        kept = Rows(self._whole(rows.x[:, keep]), rows.weight)
        self.noise_scaling_ = Scaling.standardise(kept.x, kept.weight)
        if inner.get_params().get("random_state", 0) is None:
            inner.set_params(random_state=int(self.seed_) % 2**31)
        noisy = self._copies(kept) if self.noisy_.any() else kept
        try:
            self.estimator_ = inner.fit(noisy.x, sample_weight=noisy.weight)
        except CellError as error:
            raise error.moved(int(np.flatnonzero(keep)[error.column])) from None
        return Fit(inner.model_, inner.history_, inner.n_iter_, inner.converged_, "")

    def _constants(self, X: np.ndarray) -> np.ndarray:
        """The value of each column that is left out; NaN for the others."""
        values = np.full(X.shape[1], np.nan)
        for column in np.flatnonzero(~self.kept_):
            seen = np.unique(X[:, column][~np.isnan(X[:, column])])
            if len(seen) > 1:
                raise ValueError(
                    f"Column {column} is declared constant but has the values {seen[0]:g} and {seen[1]:g}."
                )
            values[column] = seen[0]
        return values

    def _whole(self, x: np.ndarray) -> np.ndarray:
        """The kept columns, after a check that those of whole numbers hold such."""
        part = x[:, self.noisy_]
        with np.errstate(invalid="ignore"):
            bad = ~np.isnan(part) & (np.rint(part) != part)
        if bad.any():
            row, at = (int(i) for i in np.argwhere(bad)[0])
            column = int(np.flatnonzero(self.kept_)[np.flatnonzero(self.noisy_)[at]])
            problem = "A column of whole numbers must hold such everywhere."
            raise CellError(problem, float(part[row, at]), column)
        return x

    def _hashes(self, x: np.ndarray, salt: np.uint64) -> np.ndarray:
        seeds = np.array([np.uint64(self.seed_) << np.uint64(8) | salt])
        return unit_free_hashes(x, self.noise_scaling_) ^ _mixed(seeds)

    def _noised(self, x: np.ndarray, hashes: np.ndarray, draw: np.ndarray) -> np.ndarray:
        x = x.copy()
        x[:, self.noisy_] += uniform_noise(hashes, draw, int(self.noisy_.sum()))
        return x

    def _copies(self, rows: Rows) -> Rows:
        """Noisy copies that share the weight of their row."""
        count = np.clip(np.ceil(rows.weight), self.copies, max(_MOST_COPIES, self.copies)).astype(int)
        which = np.repeat(np.arange(len(count)), count)
        number = np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count)
        noisy = self._noised(rows.x[which], self._hashes(rows.x, _TRAINING)[which], number)
        return Rows(noisy, (rows.weight / count)[which])

    def _repeated(
        self, x: np.ndarray, hashes: np.ndarray, draws: int
    ) -> Iterator[tuple[slice, np.ndarray]]:
        """Slices of rows, and `draws` noisy versions of each row one after another."""
        step = max(_NUMBERS_AT_ONCE // (draws * x.shape[1]), 1)
        for start in range(0, len(x), step):
            part = slice(start, min(start + step, len(x)))
            rows, seeds = (np.repeat(a[part], draws, axis=0) for a in (x, hashes))
            yield part, self._noised(rows, seeds, np.tile(np.arange(draws), part.stop - start))

    def _evidence(self, z: np.ndarray, seeds: np.ndarray) -> Evidence:
        x = self._whole(z[:, self.kept_])
        # the value of a constant column is certain, any other is impossible
        left_out = z[:, ~self.kept_]
        wrong = ~np.isnan(left_out) & (left_out != self.constants_[~self.kept_][None])
        impossible = np.where(wrong.any(axis=1), -np.inf, 0.0)
        noisy = ~np.isnan(x[:, self.noisy_]).all(axis=1)
        if not noisy.any():
            plain = self.estimator_.evidence(x)
            return Evidence(plain.nats + impossible, plain.stderr, plain.kind, plain.shared)
        nats, stderr, shared, kind = np.empty(len(x)), np.empty(len(x)), 0.0, Kind.LOWER
        if not noisy.all():
            plain = self.estimator_.evidence(x[~noisy])
            nats[~noisy], stderr[~noisy], shared = plain.nats, plain.stderr, plain.shared
            kind = kind.combine(plain.kind)
        scorer = self._scorer()
        found = []
        for _, rows in self._repeated(x[noisy], self._hashes(x[noisy], _SCORING), self.importance_samples):
            inner = scorer.evidence(rows)
            shared, kind = max(shared, inner.shared), kind.combine(inner.kind)
            found.append(_log_mean(inner.nats.reshape(-1, self.importance_samples)))
        nats[noisy], stderr[noisy] = np.concatenate(found, axis=1)
        return Evidence(nats + impossible, np.hypot(stderr, shared), kind, shared)

    def _scorer(self) -> Any:
        """The fitted estimator, its own importance samples shared out."""
        own = self.estimator_.get_params().get("importance_samples")
        if own is None:
            return self.estimator_
        share = max(own // self.importance_samples, 2)
        return copy.copy(self.estimator_).set_params(importance_samples=share)

    def _user_columns(self, inner: np.ndarray) -> np.ndarray:
        out = np.tile(self.constants_, (len(inner), 1))
        out[:, self.kept_] = inner
        return out

    def _rounded(self, inner: np.ndarray) -> np.ndarray:
        return np.where(self.noisy_[None], np.floor(inner), inner)

    def _draw(self, n: int, *, key: Array) -> np.ndarray:
        draws = self.estimator_.sample(n, random_state=_seed(key))
        return self._user_columns(self._rounded(draws))

    def _fill_mean(self, z: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        """E[x | observed], with E[⌊y⌋] = E[y] − ½ for the noisy y, by importance weights over noise."""
        x = self._whole(z[:, self.kept_])
        out, half = np.empty_like(x), 0.5 * (np.isnan(x) & self.noisy_[None])
        for part, rows in self._repeated(x, self._hashes(x, _FILLING), _COMPLETIONS):
            weight = _softmax(self._scorer().evidence(rows).nats.reshape(-1, _COMPLETIONS))
            filled = self.estimator_.impute(rows).reshape(-1, _COMPLETIONS, x.shape[1])
            out[part] = np.einsum("nk,nkd->nd", weight, filled)
        return self._user_columns(out - half)

    def _fill_sample(self, z: np.ndarray, *, key: Array) -> np.ndarray:
        x = self._whole(z[:, self.kept_])
        choose, draw = jax.random.split(key)
        rng = np.random.default_rng(_seed(choose))
        # equal rows get different noise here
        hashes = self._hashes(x, _FILLING) + rng.integers(2**63, size=len(x), dtype=np.uint64)
        chosen = np.empty_like(x)
        for part, rows in self._repeated(x, hashes, _COMPLETIONS):
            nats = self._scorer().evidence(rows).nats.reshape(-1, _COMPLETIONS)
            best = np.argmax(nats + rng.gumbel(size=nats.shape), axis=1)
            chosen[part] = rows.reshape(-1, _COMPLETIONS, x.shape[1])[np.arange(len(best)), best]
        filled = self.estimator_.sample(1, random_state=_seed(draw), given=chosen)
        return self._user_columns(self._rounded(filled))

    def centre(self, X: Any) -> np.ndarray:
        """The rows as `estimator_` sees them, whole numbers at the middle of their cells.

        `model.estimator_.transform(model.centre(X))` is the hidden part where there is one.
        """
        x = self._whole(self._validated(X)[:, self.kept_])
        return x + 0.5 * self.noisy_[None]


def _seed(key: Array) -> int:
    return int(jax.random.bits(key, dtype="uint32")) % 2**31


def _softmax(nats: np.ndarray) -> np.ndarray:
    weight = np.exp(nats - nats.max(axis=1, keepdims=True))
    return weight / weight.sum(axis=1, keepdims=True)


def _log_mean(nats: np.ndarray) -> np.ndarray:
    """log mean exp along rows, and its standard error."""
    estimate = map_rows(importance_estimate, nats)
    # a row that is impossible under every noise is certainly so
    return np.stack([estimate.log_mean, np.where(np.isfinite(estimate.log_mean), estimate.stderr, 0.0)])
