"""Objectives: what learning lowers.

An objective is a function `(model, batch, key) → scalar`; one that carries something between batches,
such as Markov chains, is an `AbstractObjective`.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .._core import log_mean_exp
from ..inference import AbstractRecognition, importance_draws, importance_weighted_bound
from ..inference import free_energy as _free_energy
from ..models import ByLabel, EachLabel, Mixture, likelihood_weight


class Batch(NamedTuple):
    """Rows and their weights; the weights are scaled so that Σ weight · loss is the mean loss."""

    x: Any
    weight: Array

    def mean(self, losses: Array) -> Array:
        """The weighted mean of a number per row; rows of weight zero do not count, even if NaN."""
        return jnp.sum(jnp.where(self.weight > 0, self.weight * losses.astype(self.weight.dtype), 0))


class AbstractObjective(eqx.Module):
    """An objective with a state that is carried from batch to batch."""

    @abc.abstractmethod
    def init(self, model: Any, batch: Batch, *, key: Array) -> Any:
        """The first state."""

    @abc.abstractmethod
    def __call__(self, model: Any, batch: Batch, state: Any, *, key: Array) -> tuple[Array, Any]:
        """The objective and the next state."""


class _Stateless(AbstractObjective):
    function: Callable[[Any, Batch, Array], Array]

    def init(self, model: Any, batch: Batch, *, key: Array) -> Any:
        return ()

    def __call__(self, model: Any, batch: Batch, state: Any, *, key: Array) -> tuple[Array, Any]:
        return self.function(model, batch, key), state


def as_objective(objective: Callable[..., Any]) -> AbstractObjective:
    """`objective` itself if it carries a state, else wrapped to carry none."""
    return objective if isinstance(objective, AbstractObjective) else _Stateless(objective)


def negative_log_likelihood(model: Any, batch: Batch, key: Array) -> Array:
    """−log p(x), for models with an exact `log_prob`."""
    return batch.mean(-jax.vmap(model.log_prob)(batch.x))


def negative_conditional_log_likelihood(model: Any, batch: Batch, key: Array) -> Array:
    """−log p(y | x) of pairs (x, y), for models with an exact `log_prob_of`; also known as log loss."""
    x, y = batch.x
    return batch.mean(-jax.vmap(model.log_prob_of)(y, x))


def negative_log_pseudo_likelihood(model: Any, batch: Batch, key: Array) -> Array:
    """−Σ_v log p(x_v | all others), for models with `log_conditionals`: none needs Z (Besag 1975)."""
    return batch.mean(-jax.vmap(lambda x: model.log_conditionals(x).sum())(batch.x))


def score_matching(model: Any, batch: Batch, key: Array) -> Array:
    """½‖s‖² + tr ∇s with s(x) = ∇ log p(x), which needs no normaliser (implicit score matching).

    Up to a constant it is Fisher's divergence ½ E‖∇ log p_data − s‖² where the density of the data falls to
    zero at the ends of its support.  `model.log_prob` may lack any constant; rows are complete, and columns
    should be alike in scale.

    References:
        Hyvärinen (2005), Estimation of non-normalized statistical models by score matching.

    >>> from freeenergy.distributions import Diagonal, Gaussian
    >>> batch = Batch(jnp.array([[1.0], [2.0], [4.0], [5.0]]), jnp.full(4, 0.25))
    >>> normal = Gaussian(jnp.array([3.0]), Diagonal(jnp.array([2.5])))
    >>> round(float(eqx.filter_jit(score_matching)(normal, batch, jax.random.key(0))), 6)
    -0.2
    """

    def loss(x: Array) -> Array:
        score = jax.grad(model.log_prob)
        return 0.5 * jnp.sum(score(x) ** 2) + jnp.trace(jax.jacfwd(score)(x))

    return batch.mean(jax.vmap(loss)(batch.x))


class SlicedScoreMatching(eqx.Module):
    """`score_matching` along random directions: one slope for each of these instead of one a column.

        ½‖s‖² + vᵀ (∇s) v,      s(x) = ∇ log p(x),    E vᵀ (∇s) v = tr ∇s    for random signs v

    Attributes:
        directions: how many v a row has, anew in every batch.

    References:
        Song, Garg, Shi and Ermon (2019), Sliced score matching: a scalable approach to density and score
        estimation.

    >>> from freeenergy.distributions import Diagonal, Gaussian
    >>> batch = Batch(jnp.array([[1.0], [2.0], [4.0], [5.0]]), jnp.full(4, 0.25))
    >>> normal = Gaussian(jnp.array([3.0]), Diagonal(jnp.array([2.5])))
    >>> round(float(eqx.filter_jit(SlicedScoreMatching())(normal, batch, jax.random.key(0))), 6)
    -0.2
    """

    directions: int = eqx.field(static=True, default=1)

    def __call__(self, model: Any, batch: Batch, key: Array) -> Array:
        def loss(x: Array, key: Array) -> Array:
            score, push = jax.linearize(jax.grad(model.log_prob), x)
            signs = jax.random.rademacher(key, (self.directions, *x.shape), x.dtype)
            traces = jnp.sum(jax.vmap(push)(signs) * signs, axis=1)
            return 0.5 * jnp.sum(score**2) + jnp.mean(traces)

        return batch.mean(jax.vmap(loss)(batch.x, jax.random.split(key, batch.weight.shape[0])))


class FreeEnergy(eqx.Module):
    """E_q[e(x, z)] − H[q] with q from `recognition(model)`, or from `model.recognition` when None.

    Also known as the negative evidence lower bound (ELBO).  With another β than one it is that of a β-VAE,

        F_β = E_q[−log p(x | z)] + β KL(q ‖ p(z)) = F + (β − 1) KL(q ‖ p(z)),

    for a model with a `prior`: no bound below β = 1, and a looser one above.

    Attributes:
        recognition: gives q.
        beta: β.

    References:
        Higgins et al. (2017), β-VAE: learning basic visual concepts with a constrained variational
        framework.
    """

    recognition: Callable[[Any], AbstractRecognition] | None = None
    beta: float = eqx.field(static=True, default=1.0)

    def __call__(self, model: Any, batch: Batch, key: Array) -> Array:
        return self.at(self.beta, model, batch, key)

    def at(self, beta: float | Array, model: Any, batch: Batch, key: Array) -> Array:
        """The objective for another β."""
        recognition = model.recognition if self.recognition is None else self.recognition(model)

        def loss(x: Array, k: Array) -> Array:
            whole = _free_energy(model.energy, recognition, x, key=k)
            if isinstance(beta, float) and beta == 1:
                return whole
            # by the same draws, so that what is known in closed form stays free of noise
            divergence = _free_energy(lambda x, z: -model.prior.log_prob(z), recognition, x, key=k)
            return whole + (jnp.asarray(beta, whole.dtype) - 1) * divergence

        return batch.mean(jax.vmap(loss)(batch.x, jax.random.split(key, batch.weight.shape[0])))


class WarmUp(AbstractObjective):
    """The free energy of a model with a `prior`, with a β that rises from zero to `beta` batch by batch.

    Codes are of use before they have to be near the prior, so that fewer of them collapse.  Also known as
    KL annealing.

    Attributes:
        steps: batches until β is `beta`.
        beta: the last β.

    References:
        Bowman et al. (2016), Generating sentences from a continuous space.

    >>> WarmUp(500, beta=4.0).steps
    500
    """

    steps: int = eqx.field(static=True, default=1000)
    beta: float = eqx.field(static=True, default=1.0)

    def init(self, model: Any, batch: Batch, *, key: Array) -> Array:
        return jnp.zeros((), jnp.int32)

    def __call__(self, model: Any, batch: Batch, state: Array, *, key: Array) -> tuple[Array, Array]:
        share = jnp.minimum(state.astype(batch.weight.dtype) / self.steps, 1)
        return FreeEnergy().at(self.beta * share, model, batch, key), state + 1


class Hardening(AbstractObjective):
    """An objective of a model whose `expectation` has a softness, which falls batch by batch.

    Gradients through soft bits have little noise where these are soft, and little bias where they are hard:
    the softness falls from `first` to `last` by the same factor in each of `steps` batches.

    Attributes:
        objective: of the model, such as `FreeEnergy()`.
        first, last: the softness at the beginning and at the end.
        steps: batches from one to the other.

    References:
        Jang, Gu and Poole (2017), Categorical reparameterization with Gumbel-softmax.

    >>> Hardening(first=1.0, last=0.1, steps=500).last
    0.1
    """

    objective: Callable[[Any, Batch, Array], Array] = FreeEnergy()
    first: float = eqx.field(static=True, default=1.0)
    last: float = eqx.field(static=True, default=0.2)
    steps: int = eqx.field(static=True, default=1000)

    def init(self, model: Any, batch: Batch, *, key: Array) -> Array:
        return jnp.zeros((), jnp.int32)

    def __call__(self, model: Any, batch: Batch, state: Array, *, key: Array) -> tuple[Array, Array]:
        share = jnp.minimum(state.astype(batch.weight.dtype) / self.steps, 1)
        softness = self.first * jnp.asarray(self.last / self.first, share.dtype) ** share
        softened = eqx.tree_at(lambda m: m.expectation.softness, model, softness)
        return self.objective(softened, batch, key), state + 1


class ImportanceWeighted(eqx.Module):
    """Minus the importance-weighted bound with `samples` draws (IWAE); one draw is the free energy."""

    samples: int = eqx.field(static=True, default=8)
    recognition: Callable[[Any], AbstractRecognition] | None = None

    def __call__(self, model: Any, batch: Batch, key: Array) -> Array:
        recognition = model.recognition if self.recognition is None else self.recognition(model)
        keys = jax.random.split(key, batch.weight.shape[0])

        def loss(x: Array, k: Array) -> Array:
            return -importance_weighted_bound(model.energy, recognition, x, samples=self.samples, key=k)

        return batch.mean(jax.vmap(loss)(batch.x, keys))


class DoublyReparametrised(eqx.Module):
    """Minus the importance-weighted bound, with a gradient for q that has less noise (DReG).

        ∇_φ = −Σ_s w̃_s² ∂/∂z (log p(x, z_s) − log q(z_s)) ∂z_s/∂φ,     w̃_s = w_s / Σ_t w_t,

    where φ acts through the draws z_s alone; that of the model is Σ_s w̃_s ∇ log p(x, z_s), as ever.  Both
    are without bias.  The noise of the gradient of φ falls as draws are added, where that of
    `ImportanceWeighted` rises in relation to it.  With one draw it is the free energy by its path
    derivative ("sticking the landing").  Causes are numbers, with draws that are differentiable.

    Attributes:
        samples: how many draws a row has.

    References:
        Tucker, Lawson, Gu and Maddison (2019), Doubly reparameterized gradient estimators for Monte Carlo
        objectives; Roeder, Wu and Duvenaud (2017), Sticking the landing.
    """

    samples: int = eqx.field(static=True, default=8)

    def __call__(self, model: Any, batch: Batch, key: Array) -> Array:
        still = _still(model)

        def loss(x: Array, k: Array) -> Array:
            q, at_rest = (m.recognition(lambda z: still.energy(x, z), x) for m in (model, still))
            z = jax.vmap(lambda k: q.sample(key=k))(jax.random.split(k, self.samples))
            log_weights = jax.vmap(lambda z: -still.energy(x, z) - at_rest.log_prob(z))(z)
            shares = jax.lax.stop_gradient(jax.nn.softmax(log_weights))
            energies = jax.vmap(lambda z: model.energy(x, z))(jax.lax.stop_gradient(z))
            moved = shares @ energies - shares**2 @ log_weights
            # the bound in value, the slopes of `moved` in derivative
            return moved - jax.lax.stop_gradient(moved + log_mean_exp(log_weights))

        keys = jax.random.split(key, batch.weight.shape[0])
        return batch.mean(jax.vmap(loss)(batch.x, keys))


def _still(model: Any) -> Any:
    """`model`, of which nothing is differentiated."""
    return jax.tree.map(lambda a: jax.lax.stop_gradient(a) if eqx.is_array(a) else a, model)


class Reweighted(eqx.Module):
    """−log p(x) by draws of the hidden cause whose own law depends on the model, and is not differentiated.

        ∇ log p(x) = E_{z|x} ∇ log p(x, z) ≈ Σ_s w_s ∇ log p(x, z_s) / Σ_s w_s,    w_s = p(x, z_s) / q(z_s),

    with draws z_s of `model.recognition`: for causes that are labels or counts, too.  Its value is minus
    the importance-weighted bound.  Also known as the wake phase of reweighted wake–sleep.

    Attributes:
        samples: how many draws a row has; with more, the gradient has less bias.

    References:
        Bornschein and Bengio (2015), Reweighted wake-sleep.
    """

    samples: int = eqx.field(static=True, default=8)

    def __call__(self, model: Any, batch: Batch, key: Array) -> Array:
        still = _still(model)

        def loss(x: Array, k: Array) -> Array:
            draws, log_weights = importance_draws(
                still.energy, still.recognition, x, samples=self.samples, key=k
            )
            energies = jax.vmap(lambda z: model.energy(x, z))(draws)
            mean = jax.nn.softmax(log_weights) @ energies
            return mean - jax.lax.stop_gradient(mean + log_mean_exp(log_weights))

        keys = jax.random.split(key, batch.weight.shape[0])
        return batch.mean(jax.vmap(loss)(batch.x, keys))


class Denoising(eqx.Module):
    """The squared error of the noise that a `models.Diffusion` sees in noisy rows, at times by chance.

    With `likelihood_weight` it is minus the continuous-time bound on log p(x), up to the ends of the
    schedule; with `simple_weight` the simple loss, with `flow_matching_weight` flow matching.  Times are
    spread evenly over the rows of a batch, which takes away most of their noise.

    Attributes:
        weight: a function of the stage and the slope of the log-SNR.
        draws: times, each with noise of its own, for every row.
        proposal: draws what is missing, anew for every batch, given the rest of a row; None if nothing is.

    Of a `models.ByLabel` of diffusions rows are pairs of an event and a label.

    >>> from freeenergy.models import Diffusion
    >>> still = Diffusion(lambda x, log_snr: jnp.zeros_like(x), 1)
    >>> batch = Batch(jnp.zeros((4, 1)), jnp.full(4, 0.25))
    >>> bool(eqx.filter_jit(Denoising(draws=50))(still, batch, jax.random.key(0)) > 0)
    True
    """

    weight: Callable[[Any, Array], Array] = eqx.field(static=True, default=likelihood_weight)
    draws: int = eqx.field(static=True, default=1)
    proposal: Mixture | EachLabel | None = None

    def __call__(self, model: Any, batch: Batch, key: Array) -> Array:
        fill, shift, spread = jax.random.split(key, 3)
        x, rows = batch.x, batch.weight.shape[0]
        # rows may come with what the model is told of them, such as a label
        first = jax.tree.leaves(x)[0]
        if self.proposal is not None:
            proposal = self.proposal
            x = jax.vmap(lambda x, k: proposal.complete_sample(x, key=k))(x, jax.random.split(fill, rows))
        number = jnp.arange(self.draws * rows, dtype=first.dtype)
        times = (jax.random.uniform(shift, (), first.dtype) + number / number.size) % 1
        noise = jax.random.normal(spread, (number.size, *first.shape[1:]), first.dtype)
        # one axis for draws and rows: products of more axes are copied into another order first
        tiled = jax.tree.map(lambda a: jnp.tile(a, (self.draws, *(1 for _ in a.shape[1:]))), x)
        errors = jax.vmap(lambda x, t, e: model.error(x, t, e, self.weight))(tiled, times, noise)
        return batch.mean(jnp.mean(errors.reshape(self.draws, rows), axis=0))


class Unlabelled(eqx.Module):
    """An objective of pairs (x, y) for a `models.ByLabel`, from a share of which the label is taken away.

    So the networks learn what rows are like whose label they are not told, too, as `models.Guided` needs.

    Attributes:
        objective: of pairs.
        share: how many pairs, of all, have no label.

    >>> from freeenergy.models import ByLabel
    >>> def labels(model, batch, key):
    ...     return batch.mean(batch.x[1])
    >>> batch = Batch((jnp.zeros((4, 1)), jnp.zeros(4)), jnp.full(4, 0.25))
    >>> Unlabelled(labels, 1.0)(ByLabel.of(jnp.ones(3) / 3, None), batch, jax.random.key(0)).item()
    3.0
    """

    objective: Callable[[Any, Batch, Array], Array]
    share: float = eqx.field(static=True, default=0.1)

    def __call__(self, model: ByLabel, batch: Batch, key: Array) -> Array:
        x, labels = batch.x
        # by a key of its own, so that the objective draws what it draws of all labels
        none = jax.random.uniform(jax.random.fold_in(key, 17), labels.shape) < self.share
        labels = jnp.where(none, jnp.asarray(model.size, labels.dtype), labels)
        return self.objective(model, Batch((x, labels), batch.weight), key)


class MAP(eqx.Module):
    """An objective plus −log p(θ) / rows, where `log_prior(model)` is a log-density of parameters."""

    objective: Callable[[Any, Batch, Array], Array]
    log_prior: Callable[[Any], Array]
    rows: float | Array

    def __call__(self, model: Any, batch: Batch, key: Array) -> Array:
        return self.objective(model, batch, key) - self.log_prior(model) / self.rows


class FreshNoise(AbstractObjective):
    """An objective of rows whose place within a cell is drawn anew for every batch.

    Whole or rounded numbers are fitted with uniform noise (also known as dequantisation).  Noise that is
    drawn once would be learned by heart; validation rows keep theirs, since `Gradient` judges them by one
    key.

    Attributes:
        objective: of the noisy rows.
        origin: a corner of a cell, for each column.
        width: of the cells; zero where a column has none.

    >>> noisy = FreshNoise(lambda model, batch, key: batch.mean(batch.x[:, 0]), jnp.zeros(1), jnp.ones(1))
    >>> batch = Batch(jnp.array([[3.0], [3.5]]), jnp.full(2, 0.5))
    >>> bool(3 <= noisy(None, batch, (), key=jax.random.key(0))[0] < 4)
    True
    """

    objective: Callable[..., Any]
    origin: Array
    width: Array

    def init(self, model: Any, batch: Batch, *, key: Array) -> Any:
        return as_objective(self.objective).init(model, batch, key=key)

    def __call__(self, model: Any, batch: Batch, state: Any, *, key: Array) -> tuple[Array, Any]:
        place, rest = jax.random.split(key)
        x = batch.x
        width = jnp.asarray(self.width, x.dtype)
        noise = jax.random.uniform(place, x.shape, x.dtype)
        noisy = batch._replace(x=_corners(x, self.origin, self.width) + width[None] * noise)
        return as_objective(self.objective)(model, noisy, state, key=rest)


class LearnedCells(AbstractObjective):
    """An objective of rows whose place within a cell is drawn from a law that is learned with the model:

        E_q [loss(x + s u) + log q(u | x)],

    with `models.InCells` for the model.  Where the loss is −log p it bounds −log P(x) from above, P being
    the mass of the cell in units of its volume (variational dequantisation, Ho et al. 2019); uniform
    noise, `FreshNoise`, is the bound with log q = 0.

    Attributes:
        objective: of the density and the noisy rows.
        origin: a corner of a cell, for each column.
        width: of the cells; zero where a column has none.

    >>> import numpy as np
    >>> from freeenergy.models import InCells, LearnedNoise
    >>> noise = LearnedNoise(width=4)(1, np.array([0]), dtype=float, key=jax.random.key(0))
    >>> first = lambda model, batch, key: batch.mean(batch.x[:, 0])
    >>> objective = LearnedCells(first, jnp.zeros(1), jnp.ones(1))
    >>> batch = Batch(jnp.array([[3.0], [3.5]]), jnp.full(2, 0.5))
    >>> bool(3 <= objective(InCells(None, noise), batch, (), key=jax.random.key(0))[0] < 4)
    True
    """

    objective: Callable[..., Any]
    origin: Array
    width: Array

    def init(self, model: Any, batch: Batch, *, key: Array) -> Any:
        return as_objective(self.objective).init(model.density, batch, key=key)

    def __call__(self, model: Any, batch: Batch, state: Any, *, key: Array) -> tuple[Array, Any]:
        place, rest = jax.random.split(key)
        columns, dtype = model.noise.columns, batch.x.dtype
        width = jnp.asarray(self.width, dtype)
        corner = _corners(batch.x, self.origin, self.width)
        noise = jax.random.normal(place, (len(corner), len(columns)), dtype)
        u, log_q = jax.vmap(model.noise)(corner + 0.5 * width[None], noise)
        noisy = batch._replace(x=corner.at[:, columns].add(width[columns][None] * u))
        loss, state = as_objective(self.objective)(model.density, noisy, state, key=rest)
        return loss + batch.mean(log_q), state


def _corners(x: Array, origin: Array, width: Array) -> Array:
    """Rows with the corner of the cell in place of a number that has one."""
    origin, width = (jnp.asarray(v, x.dtype)[None] for v in (origin, width))
    cells = width > 0
    number = jnp.floor((x - origin) / jnp.where(cells, width, 1))
    return jnp.where(cells, origin + width * number, x)
