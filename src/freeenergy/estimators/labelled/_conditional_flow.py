"""A normalising flow of the answer whose maps depend on the row."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from ... import models
from ..._core import AbstractAlgorithm, map_rows
from ...bijections import AbstractTransformer, InTurn, ShiftScale, Spline
from ...evaluation import AbstractLaws
from ...learning import negative_conditional_log_likelihood
from ...models import conditional_flow
from ...shell import AbstractDensity, Rows, Scaling, check_instance
from ...shell._networks import check_networks
from ._quasi import quasi_normal
from ._trained import ROWS_AT_ONCE, AbstractNetworkRegressor

# draws of the outputs before an output, where there are several
_DRAWS = 128
# standard normal numbers over which means are integrated: of one output, and of several with their draws
_GRID = np.linspace(-9.0, 9.0, 361)
_COARSE_GRID = np.linspace(-9.0, 9.0, 61)
# random weights by one program

_Model = models.ConditionalFlow


def _log_prob(pair: tuple[Array, Array], model: _Model) -> Array:
    return model.log_prob_of(pair[1], pair[0])


def _log_prob_of_known(pair: tuple[Array, Array], model: _Model, noise: Array) -> Array:
    return model.log_prob_of_known(pair[1], pair[0], noise)


def _log_tails(pair: tuple[Array, Array], model: _Model, noise: Array) -> Array:
    return jnp.stack(model.log_tails(pair[1], pair[0], noise))


def _quantile(pair: tuple[Array, Array], model: _Model, noise: Array) -> Array:
    return model.quantile(pair[1], pair[0], noise)


def _moments(row: Array, model: _Model, noise: Array, grid: Array) -> Array:
    return jnp.stack(model.moments(row, noise, grid))


def _answer(pair: tuple[Array, Array], model: _Model) -> Array:
    return model.answer(*pair)


@dataclasses.dataclass(frozen=True)
class FlowLaws(AbstractLaws):
    """The laws that a conditional flow gives rows.

    Attributes:
        rows: rescaled.
        model: the flow of rescaled rows and answers.
        scaling: that of the answers.
        shape_of_one: that of an answer, () or (outputs,).
    """

    rows: np.ndarray
    model: _Model
    scaling: Scaling
    shape_of_one: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self.rows), *self.shape_of_one

    @property
    def discrete(self) -> bool:
        return False

    @property
    def _outputs(self) -> int:
        return len(self.scaling.scale)

    @property
    def _noise(self) -> np.ndarray:
        """Draws of the outputs before an output; the law of one has none."""
        return np.zeros((1, 1)) if self._outputs == 1 else quasi_normal(_DRAWS, self._outputs)

    def _wide(self, values: Any) -> np.ndarray:
        """(rows, outputs)."""
        whole = np.broadcast_to(np.asarray(values, float), self.shape)
        return whole.reshape(len(self.rows), self._outputs)

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        return values.reshape(self.shape)

    def _map(self, function: Any, pairs: Any, *args: Any) -> np.ndarray:
        # of several outputs each row has as many networks as draws
        block = ROWS_AT_ONCE if self._outputs == 1 else ROWS_AT_ONCE // 128
        return map_rows(function, pairs, self.model, *args, block=block)

    def log_prob(self, y: Any) -> np.ndarray:
        y = self._wide(y)
        holes = np.isnan(y)
        some, none = holes.any(axis=1), holes.all(axis=1)
        z, nats = self.scaling.apply(y), np.zeros(len(y))
        if (~some).any():
            nats[~some] = self._map(_log_prob, (self.rows[~some], z[~some]))
        partly = some & ~none
        if partly.any():
            nats[partly] = self._map(_log_prob_of_known, (self.rows[partly], z[partly]), self._noise)
        return nats - np.where(holes, 0.0, np.log(self.scaling.scale)).sum(axis=1)

    def _tails(self, y: Any) -> np.ndarray:
        """log P(answer ≤ y) and log P(answer > y)."""
        z = self.scaling.apply(self._wide(y))
        # a mean of ones may come out a rounding above one
        return np.minimum(np.moveaxis(self._map(_log_tails, (self.rows, z), self._noise), 1, 0), 0.0)

    def log_cdf(self, y: Any) -> np.ndarray:
        return self._shaped(self._tails(y)[0])

    def log_sf(self, y: Any) -> np.ndarray:
        return self._shaped(self._tails(y)[1])

    def _mean_and_variance(self) -> tuple[np.ndarray, np.ndarray]:
        grid = _GRID if self._outputs == 1 else _COARSE_GRID
        found = self._map(_moments, self.rows, self._noise, grid)
        return self.scaling.invert(found[:, 0]), found[:, 1] * self.scaling.scale**2

    def mean(self) -> np.ndarray:
        return self._shaped(self._mean_and_variance()[0])

    def variance(self) -> np.ndarray:
        return self._shaped(self._mean_and_variance()[1])

    def quantile(self, p: Any) -> np.ndarray:
        found = self._map(_quantile, (self.rows, self._wide(p)), self._noise)
        return self._shaped(self.scaling.invert(found))

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        noise = rng.standard_normal((n * len(self.rows), self._outputs))
        found = map_rows(_answer, (np.tile(self.rows, (n, 1)), noise), self.model, block=ROWS_AT_ONCE)
        return self.scaling.invert(found).reshape(n, *self.shape)

    def take(self, rows: np.ndarray) -> FlowLaws:
        return dataclasses.replace(self, rows=self.rows[rows])


class ConditionalFlow(AbstractNetworkRegressor):
    """p(y | x) by a normalising flow: y = f(ε; network(x)), ε ~ N(0, 1), f increasing.

        log p(y | x) = log N(f⁻¹(y); 0, 1) + log |∂f⁻¹/∂y|

    Also known as a conditional (autoregressive) flow: for answers of any shape (skewed, with several humps,
    with noise that depends on the row), with density, distribution function, quantiles and draws in closed
    form.  Several outputs come one after the other, y_i = f(ε_i; network_i(x, y_1 … y_{i−1})): the density
    of all together is exact, and the law of each by itself is an average over 128 quasi-random draws of
    those before it.  The networks are trained in single precision on log p(y | x), with early stopping on
    held-out rows.

    `predict_interval` has those quantiles of this law which held as many answers as they say, each by the
    law of a further fit that had not seen it: `predict_density` takes the fitted weights for known, and of
    few rows its own quantiles hold fewer.  Of more than `judged_rows` rows they are the law's own.
    `Conformal` around it sets rows aside instead, and is then best given one with `judged_rows=0`.

    Args:
        transformer: f: `InTurn(Spline(), ShiftScale())` by default, which bends the noise and then moves
            and scales it; `ShiftScale()` for normal answers whose spread depends on the row; `Shift()` for
            normal answers of one spread, which with `depth=0` are those of linear regression.
        width, depth: hidden units in a layer, and layers; depth 0 is a linear function of the row.
        learning_rate, batch_size, max_iter: of Adam; an iteration is an epoch.
        validation_fraction, patience: rows held out, and epochs without improvement before stopping.
        judged_rows: up to how many rows intervals are judged by further fits, twenty that leave out a
            twentieth of the rows each, or five a fifth from 1,000 rows on.  0 for none.
        inputs: the density of rows and answers from which missing entries of rows are drawn; None for one
            Gaussian.
        learner: replaces Adam on the likelihood.
        random_state, verbose, checkpoint: as everywhere.

    Attributes:
        model_: a `freeenergy.models.ConditionalFlow` of rescaled rows and answers.
        fold_levels_, fold_weight_: the least level whose interval holds an answer, by the law of a fit that
            has not seen it, and the weight of its row; none where nothing was left out.
        history_, n_iter_, converged_, scaling_, …: as everywhere.

    References:
        Papamakarios, Pavlakou & Murray (2017), Masked autoregressive flow for density estimation; Durkan,
        Bekasov, Murray & Papamakarios (2019), Neural spline flows; Winkler et al. (2019), Learning
        likelihoods with conditional normalizing flows.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 1))
    >>> y = np.where(rng.random(300) < 0.5, -3.0, 3.0) + 0.3 * rng.normal(size=300)
    >>> model = ConditionalFlow(width=8, max_iter=40, random_state=0).fit(X, y)
    >>> [len(pieces) for pieces in model.predict_density([[0.0]]).highest_density(0.8)]
    [2]
    """

    def __init__(
        self,
        transformer: AbstractTransformer | None = None,
        *,
        width: int = 64,
        depth: int = 1,
        learning_rate: float = 5e-3,
        batch_size: int = 128,
        max_iter: int = 300,
        validation_fraction: float = 0.1,
        patience: int = 30,
        judged_rows: int = 2000,
        inputs: AbstractDensity | None = None,
        learner: AbstractAlgorithm | None = None,
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: str | None = None,
    ) -> None:
        self.transformer = transformer
        self.width = width
        self.depth = depth
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.judged_rows = judged_rows
        self.inputs = inputs
        self.learner = learner
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_instance(self, "transformer", AbstractTransformer, optional=True)

    def _map(self) -> AbstractTransformer:
        return InTurn(Spline(), ShiftScale()) if self.transformer is None else self.transformer

    def _check_size(self, rows: int, columns: int) -> None:
        size = self._map().size
        check_networks(
            lambda key: conditional_flow(
                columns, 1, self._map(), width=self.width, depth=self.depth, key=key
            ),
            min(rows, ROWS_AT_ONCE) * size,
            f"ConditionalFlow of {columns:,} columns with {self.depth:,} layers of width {self.width:,}",
            "Use a smaller 'width', or PCA first.",
        )

    def _start(self, rows: Rows, key: Array) -> models.ConditionalFlow:
        assert rows.known is not None
        sizes = {"width": self.width, "depth": self.depth}
        return conditional_flow(rows.x.shape[1], rows.known.shape[1], self._map(), **sizes, key=key)

    def _objective(self) -> Any:
        return negative_conditional_log_likelihood

    def _laws(self, x: np.ndarray) -> AbstractLaws:
        return FlowLaws(self.scaling_.apply(x), self.model_, self.answer_scaling_, self.answer_shape_)
