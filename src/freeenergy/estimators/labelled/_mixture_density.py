"""Mixture-density networks: a mixture for the answer, whose parameters are functions of the row."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..._core import AbstractAlgorithm, Fit, key_of, map_rows, on_device, split_key
from ...distributions import (
    AbstractPartial,
    AbstractShaped,
    Diagonal,
    Free,
    Gaussian,
    Given,
    Reals,
    with_mean,
)
from ...evaluation import AbstractLaws, MixedLaws
from ...learning import Gradient, negative_conditional_log_likelihood
from ...models import Components, Conditional
from ...nn import mlp
from ...shell import AbstractDensity, Rows, Scaling, adam, cast, check_int, split_rows
from ...shell._networks import check_networks
from ._members import check_answers, knows_law, laws_of, member_of
from ._regressor import AbstractRegressor

_ROWS_AT_ONCE = 1024
# how much of what the row says is there at the start
_FIRST = 0.1


def _parameters(row: Array, model: Conditional) -> tuple[Array, Any]:
    """The logarithms of the weights, and the stack of components, for one row."""
    link: Any = model.answer.link
    log_weights, outputs = link.split(model.function(row))
    return log_weights, jax.vmap(lambda output: link.link.at(model.answer.member, output))(outputs)


@eqx.filter_jit
def _start(
    answer: Given, columns: int, width: int, depth: int, centres: Array | None, key: Array
) -> Conditional:
    """A network whose components lie at the centres, each wide enough for all."""
    network = mlp(columns, answer.size, width=width, depth=depth, key=key)
    bias = jnp.zeros_like(network.layers[-1].bias)
    link: Any = answer.link
    if centres is not None and isinstance(link.link, Free):
        steps = jax.vmap(lambda centre: link.link.steps(answer.member, with_mean(answer.member, centre)))(
            centres
        )
        # a mean at the edge of its range has no free coordinate
        steps = jnp.where(jnp.isfinite(steps), steps, 0)
        bias = bias.at[link.number :].set(steps.astype(bias.dtype).ravel())
    last = network.layers[-1]
    network = eqx.tree_at(
        lambda n: (n.layers[-1].weight, n.layers[-1].bias), network, (_FIRST * last.weight, bias)
    )
    return Conditional(network, answer)


class MixtureDensity(AbstractRegressor):
    """p(y | x) = Σ_k π_k(x) p(y; θ_k(x)): a mixture whose weights and parameters a network makes of x.

    Also known as mixture-density network (Bishop 1994) and, with `depth=0`, as mixture of linear experts
    with a gate: for answers with several humps, skewed ones, and noise that depends on the row.  The
    network is trained in single precision on log p(y | x), with early stopping on held-out rows.

    `predict` is the mean of the mixture, which may lie where no answer is: `predict_density(X)` has
    `modes()` and, for sets in pieces, `highest_density(level)`.

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
        inputs: the density of rows and answers from which missing entries of rows are drawn; None for one
            Gaussian.
        learner: replaces Adam on the likelihood.
        random_state, verbose, checkpoint: as everywhere.

    Attributes:
        model_: a `freeenergy.models.Conditional` of rescaled rows and answers.
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

    keeps_order = False
    _least_depth = 0

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
        self.inputs = inputs
        self.learner = learner
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint

    @property
    def _must_converge(self) -> bool:
        return False

    def _family(self) -> Any:
        """The class of the components."""
        if self.family is None:
            return Gaussian
        found = self.family.member if isinstance(self.family, Given) else self.family
        return found if isinstance(found, type) else type(found)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_int(self, "n_components")
        shaped = isinstance(self.family, type) and issubclass(self.family, AbstractShaped | AbstractPartial)
        known = self.family is None or shaped or isinstance(self.family, AbstractPartial | Given)
        if not (known and knows_law(self._family())):
            raise ValueError(
                "The 'family' parameter of MixtureDensity must be a family of freeenergy.distributions "
                "with a distribution function, such as StudentT or Poisson, a member of one, a Given, or "
                "None. "
                f"Got {self.family!r} instead."
            )

    def _answer_scaling(self, y: np.ndarray, weight: np.ndarray | None) -> Scaling:
        # other families have no other unit, or no other origin
        if self._family().support == Reals():
            return Scaling.standardise(y, weight)
        return Scaling.identity(y.shape[1])

    def _member(self, y: np.ndarray) -> Any:
        """The member that components are steps from."""
        outputs = y.shape[1]
        if self.family is None:
            return Gaussian(on_device(np.zeros(outputs)), Diagonal(on_device(np.full(outputs, 0.5))))
        if isinstance(self.family, type):
            return member_of(self.family, y)
        found = self.family.member if isinstance(self.family, Given) else self.family
        if found.dim != outputs:
            raise ValueError(
                f"The 'family' parameter of MixtureDensity must describe the {outputs} outputs of y. "
                f"Got one of {found.dim} instead."
            )
        return found

    def _check_size(self, rows: int, columns: int) -> None:
        outputs = self.n_components * 4
        check_networks(
            lambda: mlp(columns, outputs, width=self.width, depth=self.depth, key=key_of(0)),
            min(rows, _ROWS_AT_ONCE) * outputs,
            f"MixtureDensity of {columns:,} columns with {self.depth:,} layers of width {self.width:,}",
            "Use a smaller 'width', or PCA first.",
        )

    def _learn(self, rows: Rows, key: Array) -> Fit:
        assert rows.known is not None
        check_answers(self, self._family(), rows.known)
        rows, _ = self._completed(rows, self.answer_scaling_.invert(rows.known))
        assert rows.known is not None
        start_key, fit_key = split_key(key)
        member = self._member(rows.known)
        link = self.family.link if isinstance(self.family, Given) else Free()
        answer = cast(Given(member, Components(self.n_components, link)), np.float32)
        centres = _centres(rows.known, rows.weight, self.n_components) if _has_mean(member) else None
        sizes = rows.x.shape[1], self.width, self.depth
        start = _start(
            answer, *sizes, None if centres is None else on_device(centres, np.float32), start_key
        )
        events = Rows(self.scaling_.apply(rows.x), rows.weight, rows.known)
        train, validation = split_rows(events, self.validation_fraction, np.float32)
        learner = self.learner or Gradient(
            adam(self.learning_rate),
            negative_conditional_log_likelihood,
            batch_size=self.batch_size,
            patience=self.patience,
        )
        result = self._run(start, learner, train, events, fit_key, validation=validation)
        # evaluation is in double precision, so that rows give the same number in any company
        return dataclasses.replace(result, model=cast(result.model, np.float64))

    def _laws(self, x: np.ndarray) -> AbstractLaws:
        z = self.scaling_.apply(x)
        log_weights, stack = map_rows(_parameters, z, self.model_, block=_ROWS_AT_ONCE)
        parts = [
            laws_of(
                jax.tree.map(lambda a, k=k: a[:, k], stack),
                self.answer_scaling_,
                self._shaped,
            )
            for k in range(self.n_components)
        ]
        return MixedLaws(np.asarray(log_weights).T, tuple(parts))


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
