"""Diffusion models: data as what is left when noise is taken away, step by step."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from .._core import LOG_2PI
from ..bijections import ContinuousFlow
from ..distributions import Transformed
from ..inference import Systematic
from ._base import AbstractVariationalBound
from ._codes import StandardNormal
from ._noising import (
    DATA,
    AbstractParametrisation,
    AbstractPath,
    AbstractSchedule,
    LogLinearSchedule,
    PredictsVelocity,
    Stage,
    VariancePreserving,
    likelihood_weight,
    noising_posterior,
    noising_step,
    reverse_variance,
)

# times at which the continuous-time bound looks, and steps of a chain, where nothing else is said
_TIMES = 64


def _normal(x: Array, mean: Array, variance: Any) -> Array:
    """log N(x; mean, variance I)."""
    return -0.5 * (jnp.sum((x - mean) ** 2) / variance + x.size * (LOG_2PI + jnp.log(variance)))


class Diffusion(AbstractVariationalBound):
    """A chain from noise to data whose hidden causes are the data with more and more noise.

        q(x_t | x) = N(α_t x, σ_t² I),      p(x_1) = N(0, (α_1² + σ_1²) I),
        p(x_s | x_t) = N(mean of q(x_s | x_t, x̂), v I),      x̂ = what the network makes of x_t

    Nothing is learned of q, and the free energy of the hidden chain is a weighted error of denoising.
    Data should have mean zero and about unit variance in every entry.

    Attributes:
        network: of x_t, scaled to unit variance, and the log-SNR: what is to be added to what would be said
            of data N(0, I), whose datum and noise are α x_t and σ x_t, over α² + σ².
        dim: entries of an event.
        schedule, path: how much noise there is at which time, and at which scale.
        parametrisation: what the network is asked for.
        share: of `reverse_variance`, which variance the steps back have.

    References:
        Sohl-Dickstein et al. (2015), Deep unsupervised learning using nonequilibrium thermodynamics.
        Ho, Jain and Abbeel (2020), Denoising diffusion probabilistic models.
        Kingma, Salimans, Poole and Ho (2021), Variational diffusion models.
        Song et al. (2021), Score-based generative modeling through stochastic differential equations.

    >>> still = Diffusion(lambda x, log_snr: jnp.zeros_like(x), 2)   # with nothing added, data are N(0, I)
    >>> round(float(still.flow().log_prob(jnp.zeros(2))), 6)
    -1.837877
    """

    network: Callable[[Array, Array], Array]
    dim: int = eqx.field(static=True)
    schedule: AbstractSchedule = LogLinearSchedule()
    path: AbstractPath = VariancePreserving()
    parametrisation: AbstractParametrisation = PredictsVelocity()
    share: float = eqx.field(static=True, converter=float, default=1.0)

    # -- noise, and what is seen through it ---------------------------------------------------------

    def stage(self, t: Float[Array, ""]) -> Stage:
        """Log-SNR, α and σ at a time."""
        log_snr = self.schedule.log_snr(t)
        return Stage(log_snr, *self.path.scales(log_snr))

    def denoised(self, x: Float[Array, " dim"], stage: Stage) -> tuple[Array, Array]:
        """The datum and the noise that the network sees in `x`, which has so much noise."""
        unit = x / stage.size**2
        still = self.parametrisation.target(stage.alpha * unit, stage.sigma * unit, stage)
        output = still + self.network(x / stage.size, stage.log_snr)
        return self.parametrisation.datum(output, x, stage), self.parametrisation.noise(output, x, stage)

    def score(self, x: Float[Array, " dim"], t: Float[Array, ""]) -> Float[Array, " dim"]:
        """∇ log p_t(x) = (α E[x_0 | x] − x) / σ² (Tweedie's formula)."""
        stage = self.stage(t)
        return -self.denoised(x, stage)[1] / stage.sigma

    def back(self, x: Array, noisy: Stage, clean: Stage, share: float) -> tuple[Array, Array]:
        """Mean and variance of the step p(x_s | x_t) from `noisy` to `clean`."""
        a, b, _ = noising_posterior(clean, noisy)
        return a * x + b * self.denoised(x, noisy)[0], reverse_variance(clean, noisy, share)

    # -- the bound ----------------------------------------------------------------------------------

    def error(self, x: Array, t: Array, noise: Array, weight: Callable[[Stage, Array], Array]) -> Array:
        """The squared error of the noise at a time, times `weight(stage, λ′)`: what training lowers."""
        stage = self.stage(t)
        found = self.denoised(stage.alpha * x + stage.sigma * noise, stage)[1]
        return weight(stage, self.schedule.slope(t)) * jnp.sum((noise - found) ** 2)

    def prior_cost(self, x: Array) -> Array:
        """KL(q(x_1 | x) ‖ p(x_1)): what is left of the datum at the end."""
        last = self.stage(jnp.ones((), x.dtype))
        shrunk = (last.sigma / last.size) ** 2
        far = (last.alpha / last.size) ** 2 * jnp.sum(x**2)
        return 0.5 * (far + x.size * (shrunk - 1 - jnp.log(shrunk)))

    def data_cost(self, x: Array, noise: Array) -> Array:
        """−log p(x | x_0) with x_0 = α_0 x + σ_0 ε, the last step back, of the wider variance."""
        first = self.stage(jnp.zeros((), x.dtype))
        mean, variance = self.back(first.alpha * x + first.sigma * noise, first, DATA, 1.0)
        return -_normal(x, mean, variance)

    def step_cost(self, x: Array, noise: Array, noisy: Stage, clean: Stage) -> Array:
        """KL(q(x_s | x_t, x) ‖ p(x_s | x_t)) with x_t = α_t x + σ_t ε.

        With the narrower variance it is (SNR_s − SNR_t) ‖x − x̂‖² / 2.
        """
        there = noisy.alpha * x + noisy.sigma * noise
        a, b, narrow = noising_posterior(clean, noisy)
        mean, variance = self.back(there, noisy, clean, self.share)
        ratio = narrow / variance
        gap = jnp.sum((a * there + b * x - mean) ** 2)
        return 0.5 * (gap / variance + x.size * (ratio - 1 - jnp.log(ratio)))

    def _times(self, steps: int, dtype: Any) -> tuple[Array, Array]:
        """Times of the noisier and the cleaner end of each step, from noise to data."""
        times = jnp.linspace(1, 0, steps + 1, dtype=dtype)
        return times[:-1], times[1:]

    def bound(self, x: Array, *, key: Array, steps: int | None = None) -> Array:
        """An unbiased estimate of a number that is at most log p(x), by noise of its own for each term.

        With `steps` that of the chain of so many steps, a sum of divergences:

            log p(x) ≥ E log p(x | x_0) − KL(q(x_1 | x) ‖ p(x_1)) − Σ E KL(q(x_s | x_t, x) ‖ p(x_s | x_t)).

        Without, the limit of ever more steps, ½ ∫ E‖ε − ε̂‖² dλ in place of the sum, by evenly spread times.
        """
        first, rest, shift = jax.random.split(key, 3)
        ends = self.prior_cost(x) + self.data_cost(x, jax.random.normal(first, x.shape, x.dtype))
        noise = jax.random.normal(rest, (steps or _TIMES, *x.shape), x.dtype)
        if steps is None:
            times = _spread(_TIMES, shift, x.dtype)
            errors = jax.vmap(lambda t, e: self.error(x, t, e, likelihood_weight))(times, noise)
            return -ends - jnp.mean(errors)

        def cost(t: Array, s: Array, e: Array) -> Array:
            return self.step_cost(x, e, self.stage(t), self.stage(s))

        return -ends - jnp.sum(jax.vmap(cost)(*self._times(steps, x.dtype), noise))

    def path_bound(self, x: Array, *, key: Array, steps: int) -> Array:
        """The same bound from one path of the chain: log p(x, x_0, …, x_1) − log q(x_0, …, x_1 | x)."""
        first, rest = jax.random.split(key)
        times, cleaner = (v[::-1] for v in self._times(steps, x.dtype))
        begin = self.stage(jnp.zeros((), x.dtype))
        z = begin.alpha * x + begin.sigma * jax.random.normal(first, x.shape, x.dtype)
        mean, variance = self.back(z, begin, DATA, 1.0)
        total = _normal(x, mean, variance) - _normal(z, begin.alpha * x, begin.sigma**2)

        def visit(carry: tuple[Array, Array], at: tuple[Array, Array, Array]) -> tuple[Any, None]:
            (z, total), (t, s, k) = carry, at
            noisy, clean = self.stage(t), self.stage(s)
            factor, spread = noising_step(clean, noisy)
            there = factor * z + jnp.sqrt(spread) * jax.random.normal(k, z.shape, z.dtype)
            mean, variance = self.back(there, noisy, clean, self.share)
            return (there, total + _normal(z, mean, variance) - _normal(there, factor * z, spread)), None

        keys = jax.random.split(rest, steps)
        (z, total), _ = jax.lax.scan(visit, (z, total), (times, cleaner, keys))
        return total + _normal(z, jnp.zeros_like(z), self.stage(jnp.ones((), x.dtype)).size ** 2)

    # -- the probability flow -----------------------------------------------------------------------

    def drift(self, u: Array, log_snr: Array) -> Array:
        """du/dλ of u = x_t / √(α² + σ²), which moves as the marginals of the chain do, without noise:

            du/dλ = −½ α σ v,      v = α ε̂ − σ x̂,      α² + σ² = 1.

        It is the same for all schedules and paths.
        """
        scales = VariancePreserving().scales(log_snr)
        own = Stage(log_snr, *self.path.scales(log_snr))
        datum, noise = self.denoised(own.size * u, own)
        unit = Stage(log_snr, *scales)
        return -0.5 * unit.alpha * unit.sigma * (unit.alpha * noise - unit.sigma * datum)

    def flow(self, steps: int = 32, probes: Array | None = None, dtype: Any = jnp.float64) -> Transformed:
        """The density of data by the probability flow: N(0, I) through an ordinary differential equation.

        The little noise that is left at t = 0 counts as part of the data.

        Args:
            steps: of the solver, from noise to data.
            probes: random signs that estimate the change of volume; None for the exact one.
            dtype: of events.
        """
        high, low = self.schedule.ends(dtype)
        solver = ContinuousFlow(_Drift(self), low, high, steps, probes)
        return Transformed(StandardNormal(self.dim, dtype), solver)

    # -- draws --------------------------------------------------------------------------------------

    def sample(self, *, key: Array, sampler: AbstractSampler | None = None, steps: int = _TIMES) -> Array:
        """One draw: from noise to data in `steps` steps of a `sampler`, ancestral ones by default."""
        sampler = Ancestral(self.share) if sampler is None else sampler
        begin, walk, last = jax.random.split(key, 3)
        dtype = jax.eval_shape(lambda: self.stage(jnp.ones(()))).log_snr.dtype
        x = self.stage(jnp.ones((), dtype)).size * jax.random.normal(begin, (self.dim,), dtype)

        def visit(x: Array, at: tuple[Array, Array, Array]) -> tuple[Array, None]:
            t, s, k = at
            return sampler.step(self, x, self.stage(t), self.stage(s), key=k), None

        keys = jax.random.split(walk, steps)
        x, _ = jax.lax.scan(visit, x, (*self._times(steps, dtype), keys))
        return sampler.step(self, x, self.stage(jnp.zeros((), dtype)), DATA, key=last)

    def completions(self, x: Array, *, particles: int, steps: int, key: Array) -> tuple[Array, Array]:
        """Draws of what is missing in `x` given the rest: completed events, and their log-weights.

        The observed entries get noise as the chain says.  From noise to data, particles take steps back
        with these entries put in, are weighted by how well they foresaw them, and drawn anew by weight.
        As they become many this is the law of the chain itself, given the observed entries.

        References:
            Trippe et al. (2023), Diffusion probabilistic modeling of protein backbones in 3D for the
            motif-scaffolding problem (SMCDiff).
        """
        seen, known = ~jnp.isnan(x), jnp.where(jnp.isnan(x), 0, x)
        begin, noise, walk, last = jax.random.split(key, 4)
        noisier, cleaner = self._times(steps, x.dtype)
        path = self._noisy_path(known, steps, noise)
        first = self.stage(jnp.ones((), x.dtype)).size
        z = first * jax.random.normal(begin, (particles, *x.shape), x.dtype)
        z, logs = jnp.where(seen[None], path[0][None], z), jnp.zeros(particles, x.dtype)

        def moved(carry: tuple[Array, Array], noisy: Stage, clean: Stage, there: Array, key: Array) -> Any:
            (z, logs), (choose, draw) = carry, jax.random.split(key)
            mean, variance = jax.vmap(lambda z: self.back(z, noisy, clean, 1.0))(z)
            gaps = jnp.where(seen[None], (there[None] - mean) ** 2 / variance[:, None], 0)
            logs = jax.nn.log_softmax(logs - 0.5 * jnp.sum(gaps, axis=1))
            few = 2 * jnp.sum(jnp.exp(2 * logs)) * particles > 4
            drawn = Systematic()(logs, key=choose)
            parents = jnp.where(few, drawn, jnp.arange(particles, dtype=drawn.dtype))
            spread = jnp.sqrt(variance)[:, None] * jax.random.normal(draw, z.shape, x.dtype)
            z = jnp.where(seen[None], there[None], (mean + spread)[parents])
            return z, jnp.where(few, -jnp.log(float(particles)).astype(x.dtype), logs)

        def visit(carry: tuple[Array, Array], at: tuple[Array, ...]) -> tuple[Any, None]:
            t, s, there, k = at
            return moved(carry, self.stage(t), self.stage(s), there, k), None

        keys = jax.random.split(walk, steps)
        carry, _ = jax.lax.scan(visit, (z, logs), (noisier, cleaner, path[1:], keys))
        return moved(carry, self.stage(jnp.zeros((), x.dtype)), DATA, known, last)

    def complete_mean(self, x: Array, *, particles: int, paths: int, steps: int, key: Array) -> Array:
        """`x` with each NaN replaced by its mean given what is observed, by particles along `paths`."""
        keys = jax.random.split(key, paths)
        draw = lambda k: self.completions(x, particles=particles, steps=steps, key=k)  # noqa: E731
        filled, logs = jax.vmap(draw)(keys)
        means = jnp.einsum("pn,pnd->pd", jax.nn.softmax(logs, axis=1), filled)
        return jnp.where(jnp.isnan(x), jnp.mean(means, axis=0), x)

    def complete_sample(self, x: Array, *, particles: int, steps: int, key: Array) -> Array:
        """`x` with its NaN entries drawn given the observed ones: one of the `particles` by its weight."""
        propose, choose = jax.random.split(key)
        filled, logs = self.completions(x, particles=particles, steps=steps, key=propose)
        return jnp.where(jnp.isnan(x), filled[jax.random.categorical(choose, logs)], x)

    def _noisy_path(self, x: Array, steps: int, key: Array) -> Array:
        """A path of q(x_0, …, x_1 | x), from noise to data."""
        noisier, cleaner = (v[::-1] for v in self._times(steps, x.dtype))
        keys = jax.random.split(key, steps + 1)

        def visit(z: Array, at: tuple[Array, Array, Array]) -> tuple[Array, Array]:
            t, s, k = at
            factor, variance = noising_step(self.stage(s), self.stage(t))
            there = factor * z + jnp.sqrt(variance) * jax.random.normal(k, z.shape, z.dtype)
            return there, there

        first = self.stage(jnp.zeros((), x.dtype))
        z = first.alpha * x + first.sigma * jax.random.normal(keys[0], x.shape, x.dtype)
        _, path = jax.lax.scan(visit, z, (noisier, cleaner, keys[1:]))
        return jnp.concatenate([z[None], path])[::-1]


def flow_log_prob(
    flow: Transformed, x: Array, *, probes: int | None = None, key: Array | None = None
) -> tuple[Array, Array]:
    """log p(x) of a `Diffusion.flow`, and its error: of the solver, and of random signs if there are any.

    That of the solver is what half as many steps would change, which is far more than what twice as many
    would.

    Args:
        flow: as made by `Diffusion.flow`.
        x: a complete event.
        probes: how many random signs estimate the change of volume; None for the exact one.
        key: makes them.

    >>> still = Diffusion(lambda x, log_snr: jnp.zeros_like(x), 2)
    >>> [round(float(v), 6) for v in flow_log_prob(still.flow(), jnp.zeros(2))]
    [-1.837877, 0.0]
    """
    solver = flow.bijection
    assert isinstance(solver, ContinuousFlow)
    if probes is not None:
        assert key is not None
        signs = jax.random.rademacher(key, (probes, *x.shape), x.dtype)
        solver = dataclasses.replace(solver, probes=signs)

    def solved(steps: int) -> tuple[Array, Array]:
        z, traces = solver.solve(x, solver.end, solver.begin, steps)
        return flow.base.log_prob(z) + jnp.mean(traces), jnp.std(traces)

    (nats, spread), (rough, _) = solved(solver.steps), solved(max(solver.steps // 2, 1))
    # of a row that is impossible that much is certain
    error = jnp.where(jnp.isfinite(nats), jnp.abs(nats - rough), 0)
    return nats, error if probes is None else jnp.hypot(error, spread / max(probes - 1, 1) ** 0.5)


class _Drift(eqx.Module):
    """`Diffusion.drift` as the field of a flow."""

    diffusion: Diffusion

    def __call__(self, u: Array, log_snr: Array) -> Array:
        return self.diffusion.drift(u, log_snr)


def _spread(number: int, key: Array, dtype: Any) -> Array:
    """Times at even distances, moved by chance: each is uniform, and their mean has little noise."""
    return (jax.random.uniform(key, (), dtype) + jnp.arange(number, dtype=dtype) / number) % 1


# -- samplers ---------------------------------------------------------------------------------------


class AbstractSampler(eqx.Module):
    """How a draw goes from a noisier stage to a cleaner one."""

    @abc.abstractmethod
    def step(self, model: Diffusion, x: Array, noisy: Stage, clean: Stage, *, key: Array) -> Array:
        """x at `clean`, given x at `noisy`."""


class Ancestral(AbstractSampler):
    """Draws from p(x_s | x_t), as the chain is defined (DDPM, Ho et al. 2020).

    Attributes:
        share: of `reverse_variance`: 1 for β (exact for Gaussian data of unit variance), 0 for that of
            q(x_s | x_t, x) (exact for a single datum).

    >>> still = Diffusion(lambda x, log_snr: jnp.zeros_like(x), 2)
    >>> still.sample(sampler=Ancestral(), steps=4, key=jax.random.key(0)).shape
    (2,)
    """

    share: float = eqx.field(static=True, converter=float, default=1.0)

    def step(self, model: Diffusion, x: Array, noisy: Stage, clean: Stage, *, key: Array) -> Array:
        mean, variance = model.back(x, noisy, clean, self.share)
        return mean + jnp.sqrt(variance) * jax.random.normal(key, x.shape, x.dtype)


class Implicit(AbstractSampler):
    """x_s = α_s x̂ + √(σ_s² − v) ε̂ + √v z with v = η² times that of q(x_s | x_t, x).

    Also known as DDIM (Song, Meng and Ermon 2021).  Without noise (η = 0) it is deterministic given its
    start, and good with few steps; with η = 1 it is `Ancestral(0)`.

    Attributes:
        noise: η, between 0 and 1.

    >>> still = Diffusion(lambda x, log_snr: jnp.zeros_like(x), 2)
    >>> still.sample(sampler=Implicit(), steps=4, key=jax.random.key(0)).shape
    (2,)
    """

    noise: float = eqx.field(static=True, converter=float, default=0.0)

    def step(self, model: Diffusion, x: Array, noisy: Stage, clean: Stage, *, key: Array) -> Array:
        datum, noise = model.denoised(x, noisy)
        variance = self.noise**2 * noising_posterior(clean, noisy)[2]
        kept = jnp.sqrt(clean.sigma**2 - variance) * noise
        return clean.alpha * datum + kept + jnp.sqrt(variance) * jax.random.normal(key, x.shape, x.dtype)


class FlowSteps(AbstractSampler):
    """The probability flow, by a step of the Runge–Kutta method of fourth order: no noise but the first.

    >>> still = Diffusion(lambda x, log_snr: jnp.zeros_like(x), 2)
    >>> still.sample(sampler=FlowSteps(), steps=4, key=jax.random.key(0)).shape
    (2,)
    """

    def step(self, model: Diffusion, x: Array, noisy: Stage, clean: Stage, *, key: Array) -> Array:
        if clean is DATA:
            # of unit variance where data are
            return x / noisy.size
        solver = ContinuousFlow(_Drift(model), noisy.log_snr, clean.log_snr, 1)
        return clean.size * solver.moved(x / noisy.size)


class Corrected(AbstractSampler):
    """Steps of another sampler, each followed by Langevin dynamics at the stage that it came to.

        x ← x + (ε/2) ∇ log p_s(x) + √ε z,      ε = rate · σ_s²

    Also known as predictor and corrector (Song et al. 2021).

    Attributes:
        sampler: the predictor.
        steps: of Langevin dynamics.
        rate: their size.

    >>> still = Diffusion(lambda x, log_snr: jnp.zeros_like(x), 2)
    >>> still.sample(sampler=Corrected(Implicit()), steps=4, key=jax.random.key(0)).shape
    (2,)
    """

    sampler: AbstractSampler
    steps: int = eqx.field(static=True, default=1)
    rate: float = eqx.field(static=True, converter=float, default=0.1)

    def step(self, model: Diffusion, x: Array, noisy: Stage, clean: Stage, *, key: Array) -> Array:
        first, rest = jax.random.split(key)
        x = self.sampler.step(model, x, noisy, clean, key=first)
        if clean is DATA:
            # without noise there is no score
            return x
        size = jnp.sqrt(self.rate) * clean.sigma

        def visit(x: Array, key: Array) -> tuple[Array, None]:
            force = -model.denoised(x, clean)[1] / clean.sigma
            return x + 0.5 * size**2 * force + size * jax.random.normal(key, x.shape, x.dtype), None

        return jax.lax.scan(visit, x, jax.random.split(rest, self.steps))[0]
