"""Mixture-density networks: a mixture for the answer, whose parameters are functions of the row."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax import Array

from ..._core import AbstractAlgorithm, map_rows, on_device
from ...distributions import Free, Given, with_mean
from ...evaluation import AbstractLaws, StackedLaws
from ...learning import negative_conditional_log_likelihood
from ...models import Components, Conditional
from ...nn import mlp
from ...shell import AbstractDensity, Rows, cast, check_int
from ...shell._networks import check_networks
from ._members import laws_of
from ._trained import ROWS_AT_ONCE, AbstractFamilyNetwork

# how much of what the row says is there at the start
_FIRST = 0.1


def _parameters(row: Array, model: Conditional) -> tuple[Array, Any]:
    """The logarithms of the weights, and the stack of components, for one row."""
    link: Any = model.answer.link
    log_weights, outputs = link.split(model.function(row))
    return log_weights, jax.vmap(lambda output: link.link.at(model.answer.member, output))(outputs)


def _start(
    answer: Given, columns: int, width: int, depth: int, centres: Array | None, key: Array
) -> Conditional:
    """A network whose components lie at the centres, each wide enough for all."""
    network = mlp(columns, answer.size, width=width, depth=depth, last=_FIRST, key=key)
    link: Any = answer.link
    if centres is not None and isinstance(link.link, Free):
        steps = np.asarray(_steps(answer, centres))
        bias = np.array(network.layers[-1].bias)
        # a mean at the edge of its range has no free coordinate
        bias[link.number :] = np.where(np.isfinite(steps), steps, 0).ravel()
        network = eqx.tree_at(lambda n: n.layers[-1].bias, network, on_device(bias))
    return Conditional(network, answer)


@eqx.filter_jit
def _steps(answer: Given, centres: Array) -> Array:
    """The outputs that put a component at each centre."""
    link: Any = answer.link
    return jax.vmap(lambda centre: link.link.steps(answer.member, with_mean(answer.member, centre)))(
        centres
    )


class MixtureDensity(AbstractFamilyNetwork):
    """p(y | x) = Σ_k π_k(x) p(y; θ_k(x)): a mixture whose weights and parameters a network makes of x.

    Also known as mixture-density network (Bishop 1994) and, with `depth=0`, as mixture of linear experts
    with a gate: for answers with several humps, skewed ones, and noise that depends on the row.  The
    network is trained in single precision on log p(y | x), with early stopping on held-out rows.

    `predict` is the mean of the mixture, which may lie where no answer is: `predict_density(X)` has
    `modes()` and, for sets in pieces, `highest_density(level)`.

    `predict_interval` has those quantiles of this law which held as many answers as they say, each by the
    law of a further fit that had not seen it: `predict_density` takes the fitted weights for known, and of
    few rows its own quantiles hold fewer.  Of more than `judged_rows` rows they are the law's own.
    `Conformal` around it sets rows aside instead, and is then best given one with `judged_rows=0`.

    Args:
        n_components: K.
        family: of each component: a class of `freeenergy.distributions`, such as `StudentT` or `Poisson`; a
            member, such as `Gaussian(jnp.zeros(2), Full(jnp.eye(2)))` for outputs that depend on each
            other; or a member with a link, such as `Given(…, Mean())`, whose other parameters do not depend
            on x.  None for Gaussians with a scale that depends on x.  Parameters are those of standardised
            answers, where the family has other units.
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
        model_: a `freeenergy.models.Conditional` of rescaled rows and answers.
        fold_levels_, fold_weight_: the least level whose interval holds an answer, by the law of a fit that
            has not seen it, and the weight of its row; none where nothing was left out.
        history_, n_iter_, converged_, scaling_, …: as everywhere.

    References:
        Bishop (1994), Mixture density networks.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 1))
    >>> y = np.where(rng.random(300) < 0.5, -3.0, 3.0) + 0.3 * rng.normal(size=300)
    >>> model = MixtureDensity(2, width=8, max_iter=40, random_state=0).fit(X, y)
    >>> [len(pieces) for pieces in model.predict_density([[0.0]]).highest_density(0.8)]
    [2]
    """

    def __init__(
        self,
        n_components: int = 3,
        family: Any = None,
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
        self.n_components = n_components
        self.family = family
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
        check_int(self, "n_components")

    def _check_size(self, rows: int, columns: int) -> None:
        outputs = self.n_components * 4
        check_networks(
            lambda key: mlp(columns, outputs, width=self.width, depth=self.depth, key=key),
            min(rows, ROWS_AT_ONCE) * outputs,
            f"MixtureDensity of {columns:,} columns with {self.depth:,} layers of width {self.width:,}",
            "Use a smaller 'width', or PCA first.",
        )

    def _start(self, rows: Rows, key: Array) -> Conditional:
        assert rows.known is not None
        member = self._member(rows.known)
        answer = cast(Given(member, Components(self.n_components, self._link())), np.float32)
        centres = None
        if _has_mean(member):
            centres = on_device(_centres(rows.known, rows.weight, self.n_components), np.float32)
        return _start(answer, rows.x.shape[1], self.width, self.depth, centres, key)

    def _objective(self) -> Any:
        return negative_conditional_log_likelihood

    def _laws(self, x: np.ndarray) -> AbstractLaws:
        z = self.scaling_.apply(x)
        log_weights, stack = map_rows(_parameters, z, self.model_, block=ROWS_AT_ONCE)
        by_part = jax.tree.map(lambda a: np.swapaxes(a, 0, 1).reshape(-1, *a.shape[2:]), stack)
        laws = laws_of(by_part, self.answer_scaling_, self._shaped)
        return StackedLaws(np.asarray(log_weights).T, laws)


def _has_mean(member: Any) -> bool:
    """Whether a mean, or location, can be set alone."""
    return with_mean.dispatch(type(member)) is not with_mean.dispatch(object)


def _centres(y: np.ndarray, weight: np.ndarray, number: int) -> np.ndarray:
    """Means of as many equal shares of the answers in order, drawn in a little to the mean of all."""
    mean, spread = np.average(y, axis=0, weights=weight), y.std(axis=0)
    height = ((y - mean) / np.where(spread > 0, spread, 1.0)).sum(axis=1)
    order = np.argsort(height, kind="stable")
    share = (np.cumsum(weight[order]) - 0.5 * weight[order]) / weight.sum()
    group = np.minimum((share * number).astype(int), number - 1)
    found = np.repeat(mean[None], number, axis=0)
    for k in range(number):
        own = order[group == k]
        if len(own):
            found[k] = np.average(y[own], axis=0, weights=weight[own])
    return 0.9 * found + 0.1 * mean
