"""The Gaussian copula: columns of any kind whose scores are jointly normal."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._core import buffer, cholesky
from ..distributions import AbstractDistribution, Full, Gaussian
from ..distributions._cells import gaussian_cells, log_normal_rectangle
from ..distributions._gaussian import observed_block, regression
from ..inference import ImportanceEstimate, importance_estimate
from ._marginals import AbstractMarginals

# cells whose joint probability is had by quadrature
FEW_CELLS = 2


class _Scores(NamedTuple):
    """Where the scores of an event lie: a corner of their cell, its widths, and which are mirrored."""

    corner: Array
    width: Array
    sign: Array


class GaussianCopula(AbstractDistribution):
    """z ~ N(0, R) with ones on the diagonal of R, x_j = F_j⁻¹(Φ(z_j)): any marginals F, joined by R.

    A column that has a density fixes its score z_j; one with a mass leaves it an interval.  With A what the
    columns of numbers say and B the cell that the others leave,

        p(x) = N(z_A; 0, R_AA) Π_A dz/dx · P(z_B ∈ cell | z_A),

    which is a product of normal densities without cells, and had by quadrature for one or two of them.  For
    more it is the mean of importance weights that are drawn one coordinate after another, each given those
    before it (the simulator of Geweke, Hajivassiliou and Keane), so that its logarithm is a lower bound
    on average.  Scores that are missing are left out, which is exact.

    Attributes:
        parts: the marginals, those of numbers first.
        columns: which columns they have, one part after another.
        plain: how many columns of numbers there are.
        correlation: R, in the order of `columns`.

    References:
        P. D. Hoff, Extending the rank likelihood for semiparametric copula estimation, Annals of Applied
        Statistics 1 (2007).  J. Geweke, Efficient simulation from the multivariate normal (1991).

    >>> from freeenergy.models import LevelMarginals
    >>> coins = LevelMarginals(jnp.zeros((2, 1)), jnp.array([[0.0, 1.0]] * 2), jnp.array([[0, 1]] * 2))
    >>> model = GaussianCopula((coins,), (0, 1), 0, jnp.array([[1.0, 0.5], [0.5, 1.0]]))
    >>> log_prob = eqx.filter_jit(model.log_prob_few)
    >>> round(float(jnp.exp(log_prob(jnp.array([1.0, 1.0])))), 6)  # ¼ + asin(½) / 2π
    0.333333
    """

    parts: tuple[AbstractMarginals, ...]
    columns: tuple[int, ...] = eqx.field(static=True)
    plain: int = eqx.field(static=True)
    correlation: Array = buffer()

    @property
    def cells(self) -> tuple[bool, ...]:
        """Which scores are known but to an interval."""
        return tuple(place >= self.plain for place in range(len(self.columns)))

    def _blocks(self, x: Array) -> list[Array]:
        lengths = [len(part.values) for part in self.parts]
        return jnp.split(x[np.array(self.columns)], np.cumsum(lengths)[:-1].tolist())

    def _joined(self, blocks: list[Array]) -> Array:
        return jnp.concatenate(blocks)[np.argsort(self.columns)]

    def ends(self, x: Array) -> Array:
        """Between which scores each entry lies, in the order of `columns`, shape (2, columns)."""
        found = [part.ends(block) for part, block in zip(self.parts, self._blocks(x), strict=True)]
        return jnp.stack([jnp.concatenate(end) for end in zip(*found, strict=True)])

    def _log_slope(self, x: Array) -> Array:
        blocks = zip(self.parts, self._blocks(x), strict=True)
        return sum((jnp.sum(part.log_slopes(block)) for part, block in blocks), jnp.zeros((), x.dtype))

    def _scores(self, x: Array) -> tuple[_Scores, Array]:
        """The cell of an event, from a corner that is a number, and R for scores that are mirrored so."""
        low, high = self.ends(x)
        mirrored = jnp.isneginf(low)
        corner = jnp.where(mirrored, -high, low)
        width = jnp.where(jnp.isinf(low) | jnp.isinf(high), jnp.inf, high - low)
        width = jnp.where(jnp.isnan(low), 1.0, width)
        sign = jnp.where(mirrored, -1.0, 1.0).astype(x.dtype)
        return _Scores(corner, width, sign), self.correlation * sign[:, None] * sign[None, :]

    def log_prob_few(self, x: Array) -> Array:
        """log p of what is observed of `x`, at most two entries of which have a mass: exactly."""
        scores, sigma = self._scores(x)
        n, plain = len(self.columns), self.plain
        if n == plain:
            return Gaussian(jnp.zeros(n), Full(sigma)).log_prob(scores.corner) + self._log_slope(x)
        # the cells that are observed come first; one that is not may be anything
        seen = ~jnp.isnan(scores.corner)
        chosen = plain + jnp.argsort(~seen[plain:], stable=True)[:FEW_CELLS]
        order = jnp.concatenate([jnp.arange(plain), chosen])
        known, corner = seen[order], scores.corner[order]
        factor = cholesky(observed_block(sigma[order][:, order], known))[0]
        head = jnp.where(known, corner, 0)[:plain]
        scale, lean, total = jnp.diagonal(factor)[plain:], jnp.zeros(len(chosen)), jnp.zeros(())
        if plain:
            scaled = jax.scipy.linalg.solve_triangular(factor[:plain, :plain], head, lower=True)
            lean = factor[plain:, :plain] @ scaled
            numbers = Gaussian(jnp.zeros(plain), Full(sigma[:plain, :plain]))
            total = numbers.log_prob(scores.corner[:plain])
        low = (corner[plain:] - lean) / scale
        low = jnp.where(known[plain:], low, -_ANYTHING)
        width = jnp.where(known[plain:], scores.width[order][plain:] / scale, jnp.inf)
        if len(chosen) < FEW_CELLS:
            low, width = jnp.append(low, -_ANYTHING), jnp.append(width, jnp.inf)
            slope = jnp.zeros((), x.dtype)
        else:
            slope = factor[plain + 1, plain] / scale[1]
        return total + log_normal_rectangle(low, width, slope) + self._log_slope(x)

    def _draws(self, x: Array, samples: int, *, last: bool, key: Array) -> tuple[Array, Array]:
        """Logarithms of importance weights, and the scores that were drawn, NaN where missing."""
        scores, sigma = self._scores(x)
        n = len(self.columns)
        if n == self.plain:
            nats = Gaussian(jnp.zeros(n), Full(sigma)).log_prob(scores.corner)
            return jnp.full(samples, nats), jnp.broadcast_to(scores.corner, (samples, n))
        drawn = gaussian_cells(
            jnp.zeros(n, x.dtype),
            sigma,
            scores.corner,
            scores.width,
            self.cells,
            draws=samples,
            complete=False,
            last=last,
            key=key,
        )
        points = jnp.where(jnp.isnan(scores.corner), jnp.nan, drawn.points * scores.sign[None])
        return drawn.log_weights, points

    def evidence(self, x: Array, *, samples: int, key: Array) -> ImportanceEstimate:
        """log of the mean of `samples` weights: at most log p(x) on average."""
        found = importance_estimate(self._draws(x, samples, last=False, key=key)[0])
        return found._replace(log_mean=found.log_mean + self._log_slope(x))

    def sample(self, *, key: Array) -> Array:
        noise = jax.random.normal(key, (len(self.columns),), self.correlation.dtype)
        return self._at(cholesky(self.correlation)[0] @ noise)

    def _at(self, z: Array) -> Array:
        lengths = [len(part.values) for part in self.parts]
        blocks = jnp.split(z, np.cumsum(lengths)[:-1].tolist())
        return self._joined([part.at(block) for part, block in zip(self.parts, blocks, strict=True)])

    def complete_mean(self, x: Array, *, samples: int, key: Array) -> Array:
        """`x` with each NaN replaced by its mean given what is observed."""
        samples = samples if any(self.cells) else 1
        log_weights, scores = self._draws(x, samples, last=True, key=key)
        hidden = jnp.isnan(scores[0])
        gain, rest = regression(self.correlation, ~hidden)
        centres = jnp.where(hidden[None], 0, scores) @ gain
        spread = jnp.sqrt(jnp.where(hidden, jnp.diagonal(rest), 1.0))
        lengths = [len(part.values) for part in self.parts]
        cuts = np.cumsum(lengths)[:-1].tolist()

        def mean_of(centre: Array) -> Array:
            pieces = zip(self.parts, jnp.split(centre, cuts), jnp.split(spread, cuts), strict=True)
            return self._joined([part.mean(own, wide) for part, own, wide in pieces])

        means = jax.nn.softmax(log_weights) @ jax.vmap(mean_of)(centres)
        return jnp.where(jnp.isnan(x), means, x)

    def complete_sample(self, x: Array, *, samples: int, key: Array) -> Array:
        """`x` with the NaN entries drawn given the observed ones, from one of `samples`."""
        propose, choose, draw = jax.random.split(key, 3)
        samples = samples if any(self.cells) else 1
        log_weights, scores = self._draws(x, samples, last=True, key=propose)
        z = scores[jax.random.categorical(choose, log_weights)]
        law = Gaussian(jnp.zeros_like(z), Full(self.correlation))
        return jnp.where(jnp.isnan(x), self._at(law.complete_sample(z, key=draw)), x)

    def log_prob(self, x: Array) -> Array:
        """log p of what is observed of `x`, where at most two columns have a mass."""
        if len(self.columns) - self.plain > FEW_CELLS:
            raise TypeError(
                f"GaussianCopula knows log p exactly with at most {FEW_CELLS} columns that have a mass: "
                "use 'log_prob_few' for rows with so few observed, or 'evidence'."
            )
        return self.log_prob_few(x)


# below every score that a number can have
_ANYTHING = 1e300
