"""What is missing in rows that something is predicted from: drawn from a density of the rows."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from ..._core import has_nan, map_rows
from ...models import AbstractExactModel
from ...shell import AbstractDensity, AbstractRowEstimator, Rows, Scaling, check_instance
from ...shell._answers import seeded
from ...shell._rows import row_seeds
from ..tables._gaussian import GaussianDensity

# completions of a row with missing entries
DRAWS = 20
# a direction of this part of the largest variance has none
_NO_VARIANCE = 1e-12
_PART = 2048


class GaussianInputs(NamedTuple):
    """The mean and covariance of rows and answers together, for what is missing in a row.

    The covariance may be singular, as that of columns which repeat each other.
    """

    mean: np.ndarray
    covariance: np.ndarray

    @staticmethod
    def of(x: np.ndarray, weight: np.ndarray, beside: np.ndarray | None = None) -> GaussianInputs:
        """The weighted moments of complete rows, with the columns `beside` them if there are any."""
        beside = x[:, :0] if beside is None else beside
        share, width = weight / weight.sum(), x.shape[1]
        mean = np.concatenate([share @ x, share @ beside])
        covariance = np.zeros((len(mean), len(mean)))
        room, even = np.empty((min(len(x), _PART), len(mean))), bool((weight == weight[:1]).all())
        for start in range(0, len(x), _PART):
            part = slice(start, start + _PART)
            # what is in work stays in the cache, and a product with itself is half the work
            gap = room[: len(x[part])]
            np.subtract(x[part], mean[:width], out=gap[:, :width])
            np.subtract(beside[part], mean[width:], out=gap[:, width:])
            if not even:
                gap *= np.sqrt(share[part])[:, None]
            covariance += gap.T @ gap
        if even:
            covariance *= share[0]
        return GaussianInputs(mean, covariance)

    def conditional(self, missing: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The means of the missing columns for each row, and their common covariance.

        >>> pair = GaussianInputs(np.zeros(2), np.array([[1.0, 0.5], [0.5, 1.0]]))
        >>> mean, rest = pair.conditional(np.array([False, True]), np.array([[2.0, np.nan]]))
        >>> mean.tolist(), rest.tolist()
        ([[1.0]], [[0.75]])
        """
        seen = ~missing
        across = self.covariance[np.ix_(missing, seen)]
        # columns have units: what repeats another is found by correlations
        scale = np.sqrt(np.diag(self.covariance)[seen])
        scale = np.where(scale > 0, scale, 1.0)
        inverse = np.linalg.pinv(
            self.covariance[np.ix_(seen, seen)] / np.outer(scale, scale), rcond=_NO_VARIANCE, hermitian=True
        )
        gain = across @ (inverse / np.outer(scale, scale))
        mean = self.mean[missing] + (x[:, seen] - self.mean[seen]) @ gain.T
        return mean, self.covariance[np.ix_(missing, missing)] - gain @ across.T


def _completions(pair: tuple[Array, Array], model: Any, seed: Array) -> Array:
    """Draws of a row whose NaN are filled."""
    row, row_seed = pair
    keys = jax.random.split(seeded(seed, row_seed), DRAWS)
    return jax.vmap(lambda key: model.complete_sample(row, key=key))(keys)


class CompletesInputs(AbstractRowEstimator):
    """Draws what is missing in rows from a density of rows and answers together.

    A fit learns from all draws of a row, each with its share of the weight; predictions are averaged over
    them.  Answers take part, so that what is drawn goes with them: without them effects would come out too
    small.

    Attributes:
        inputs_: the density of rows and answers: their moments, or the density that `inputs` asks for.
    """

    inputs: AbstractDensity | None
    inputs_: Any

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_instance(self, "inputs", AbstractDensity, optional=True)

    def _completed(self, rows: Rows, beside: np.ndarray) -> tuple[Rows, np.ndarray]:
        """Rows without NaN and which of the rows each is of; `beside` are numbers that go with the rows.

        Remembers the density of rows and `beside`.
        """
        if self.inputs is None and not has_nan(rows.x) and not has_nan(beside):
            self.inputs_ = GaussianInputs.of(rows.x, rows.weight, beside)
            return rows, np.arange(len(rows.x))
        joint = np.column_stack([rows.x, beside])
        if self.inputs is not None:
            density: Any = clone(self.inputs)
            self.inputs_ = density.fit(joint, sample_weight=rows.weight)
            if not isinstance(self.inputs_.model_, AbstractExactModel):
                raise ValueError(
                    f"The 'inputs' parameter of {type(self).__name__} must be a density with exact "
                    f"conditionals, such as GaussianMixture. Got {self.inputs!r} instead."
                )
        else:
            with warnings.catch_warnings():
                # a density that is nearly there does for what is drawn
                warnings.simplefilter("ignore", ConvergenceWarning)
                found = GaussianDensity().fit(joint, sample_weight=rows.weight)
            self.inputs_ = GaussianInputs(found.mean_, found.covariance_)
        if not has_nan(rows.x):
            return rows, np.arange(len(rows.x))
        holes = np.asarray(np.isnan(rows.x).any(axis=1))
        whole, part = np.flatnonzero(~holes), np.flatnonzero(holes)
        # rows that share what is known of them have noise of their own
        both = np.column_stack(
            [self.scaling_.apply(rows.x), Scaling.standardise(beside, rows.weight).apply(beside)]
        )
        seeds = row_seeds(both[part], Scaling.identity(both.shape[1]))
        draws = self._draws(joint[part], seeds)[:, :, : rows.x.shape[1]]
        place = np.concatenate([whole, np.tile(part, DRAWS)])
        x = np.concatenate([rows.x[whole], draws.reshape(-1, rows.x.shape[1])])
        weight = rows.weight[place] / np.where(holes[place], DRAWS, 1)
        return Rows(x, weight, None if rows.known is None else rows.known[place]), place

    def _draws(self, joint: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        """Rows (and answers) with draws for their NaN, whose noise comes from `seeds`.

        They have the shape (draws, rows, columns), and no other row changes them.
        """
        if not isinstance(self.inputs_, GaussianInputs):
            z = self.inputs_._read(joint).z
            draws = map_rows(_completions, (z, seeds), self.inputs_.model_, self.seed_, block=256)
            return np.stack([self.inputs_.scaling_.invert(draws[:, k]) for k in range(DRAWS)])
        found = np.repeat(joint[None], DRAWS, axis=0)
        patterns, which = np.unique(np.isnan(joint), axis=0, return_inverse=True)
        for number, missing in enumerate(patterns):
            rows = np.flatnonzero(which.ravel() == number)
            if not missing.any():
                continue
            mean, rest = self.inputs_.conditional(missing, joint[rows])
            values, vectors = np.linalg.eigh(rest)
            root = vectors * np.sqrt(np.maximum(values, 0.0))
            for row, centre in zip(rows, mean, strict=True):
                noise = np.random.Generator(np.random.Philox(key=[int(self.seed_), int(seeds[row])]))
                found[:, row, missing] = centre + noise.standard_normal((DRAWS, missing.sum())) @ root.T
        return found

    def _input_draws(self, x: np.ndarray) -> np.ndarray:
        """Rows with draws for their NaN, where answers are not known: (draws, rows, columns)."""
        width = len(self.inputs_.mean) if isinstance(self.inputs_, GaussianInputs) else self.inputs_._width
        unknown = np.full((len(x), width - x.shape[1]), np.nan)
        seeds = row_seeds(x, self.scaling_)
        return self._draws(np.column_stack([x, unknown]), seeds)[:, :, : x.shape[1]]
