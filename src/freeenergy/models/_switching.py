"""Linear systems that switch between regimes."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from .._core import parameter, simplex
from ..inference import Filtered, GaussianBelief, LinearGaussianBeliefs, LinearStep, measure, sample_paths
from ..inference import filter as filter_chain
from ..inference._semidefinite import root_semidefinite
from ._series import AbstractRescalableSeries, Series
from ._state_space import LinearGaussianSSM


class SwitchingBelief(NamedTuple):
    """A mixture of one Gaussian for each regime: log-probabilities, means and covariances."""

    log_weight: Float[Array, "*time regimes"]
    mean: Float[Array, "*time regimes state"]
    covariance: Float[Array, "*time regimes state state"]


class SwitchingLinearSystem(AbstractRescalableSeries):
    """Linear systems that take turns: a Markov chain s_t says which one moves and emits at step t.

        s_1 ~ initial,  s_t ~ transition[s_{t−1}],
        x_t ~ N(A_s x_{t−1} + B_s u_t + a_s, Q_s),   y_t ~ N(C_s x_t + D_s u_t + c_s, R_s).

    Exact inference takes a Gaussian for each of Kᵀ paths.  Here the K² Gaussians of a step are merged into
    K of equal mean and covariance (Kim's filter and smoother), so that every result is approximate, but
    for `log_joint` and `complete_along`, which take a path that is known.

    Also known as a switching state-space model, or jump Markov linear system; the merging as generalised
    pseudo-Bayesian filter of second order (GPB2), or assumed density filtering.

    Attributes:
        initial: p(s_1).
        transition: p(s_t = j | s_{t−1} = i) at [i, j].
        systems: K systems, stacked along a leading axis of their arrays.
    """

    initial: Float[Array, " regimes"] = parameter(simplex)
    transition: Float[Array, "regimes regimes"] = parameter(simplex)
    systems: LinearGaussianSSM  # pyright: ignore[reportGeneralTypeIssues]

    def _chains(self, series: Series) -> tuple[Any, Any]:
        """For each regime what is fixed, and the measurements of each step (time, regimes, …)."""

        def one(system: LinearGaussianSSM) -> tuple[LinearStep, LinearStep]:
            return system._steps(series, incomplete=True, packed=False)

        fixed, steps = eqx.filter_vmap(one, in_axes=eqx.if_array(0), out_axes=(0, 1))(self.systems)
        return fixed, steps

    def filter(self, series: Series) -> Filtered:
        """Kim's filter: approximate beliefs, and an approximate log p(y_t | y_{<t})."""
        fixed, steps = self._chains(series)
        log_move = jnp.log(self.transition)

        def ahead(belief: SwitchingBelief, f: LinearStep, s: LinearStep) -> GaussianBelief:
            """The state under one regime, after each regime before it."""
            return jax.vmap(lambda m, P: LinearGaussianBeliefs(f).predict(GaussianBelief(m, P), s))(
                belief.mean, belief.covariance
            )

        def seen(predicted: GaussianBelief, f: LinearStep, s: LinearStep) -> tuple[GaussianBelief, Array]:
            return jax.vmap(lambda m, P: LinearGaussianBeliefs(f).update(GaussianBelief(m, P), s))(
                *predicted
            )

        def body(carry: tuple[SwitchingBelief, Array], step: LinearStep) -> Any:
            belief, total = carry
            predicted = jax.vmap(ahead, in_axes=(None, 0, 0))(belief, fixed, step)
            updated, gain = jax.vmap(seen)(predicted, fixed, step)
            # [j, i]: regime j after regime i
            joint = belief.log_weight[None, :] + log_move.T + gain
            new = _merged(joint, updated.mean, updated.covariance)
            prior = _merged(belief.log_weight[None, :] + log_move.T, predicted.mean, predicted.covariance)
            evidence = jax.nn.logsumexp(joint)
            new = new._replace(log_weight=new.log_weight - evidence)
            return (new, total), Filtered(prior, new, evidence)

        start = SwitchingBelief(
            jnp.log(self.initial),
            self.systems.initial_mean,
            self._each(lambda s: s.initial_covariance.matrix()),
        )
        opening = jax.tree.map(lambda a: a[0], steps)

        def first(m: Array, P: Array, f: LinearStep, s: LinearStep) -> tuple[GaussianBelief, Array]:
            return LinearGaussianBeliefs(f).update(GaussianBelief(m, P), s)

        updated, gain = jax.vmap(first)(start.mean, start.covariance, fixed, opening)
        joint = start.log_weight + gain
        evidence = jax.nn.logsumexp(joint)
        begun = SwitchingBelief(joint - evidence, *updated)
        rest = jax.tree.map(lambda a: a[1:], steps)
        _, later = jax.lax.scan(body, (begun, evidence), rest)
        return jax.tree.map(
            lambda a, b: jnp.concatenate([a[None], b]), Filtered(start, begun, evidence), later
        )

    def predicted(self, series: Series) -> GaussianBelief:
        """Mean and covariance of p(y_t | y_{<t}) for each step, which is a mixture."""

        def one(log_weight: Array, means: Array, spread: Array) -> GaussianBelief:
            _, mean, covariance = _merged(log_weight[None], means[None], spread[None])
            return GaussianBelief(mean[0], covariance[0])

        return jax.vmap(one)(*self.predicted_mixture(series))

    def predicted_mixture(
        self, series: Series
    ) -> tuple[
        Float[Array, "time regimes"], Float[Array, "time regimes dim"], Float[Array, "time regimes dim dim"]
    ]:
        """p(y_t | y_{<t}) for each step: log-weight, mean and covariance under each regime."""
        ahead = self.filter(series).predicted
        length = len(series.real)
        noise = self._each(lambda s: s.emission_noise.matrix())

        def one(belief: SwitchingBelief, shift: Array) -> tuple[Array, Array, Array]:
            C = self.systems.emission
            means = jnp.einsum("kmn,kn->km", C, belief.mean) + shift
            spread = jnp.einsum("kmn,knj,klj->kml", C, belief.covariance, C) + noise
            return belief.log_weight, means, spread

        return jax.vmap(one, (0, 1))(ahead, self._each(lambda s: s._means(series.inputs, length)))

    def smooth(self, series: Series) -> SwitchingBelief:
        """Kim's smoother: for each step the approximate p(s_t, x_t | y)."""
        fixed, steps = self._chains(series)
        filtered = self.filter(series).filtered
        log_move = jnp.log(self.transition)

        def pair(m: Array, P: Array, later: GaussianBelief, f: LinearStep, s: LinearStep) -> GaussianBelief:
            chain = LinearGaussianBeliefs(f)
            belief = GaussianBelief(m, P)
            return chain.back(later, chain.reverse(belief, chain.predict(belief, s), s))[0]

        def body(later: SwitchingBelief, at: tuple[SwitchingBelief, LinearStep]) -> Any:
            belief, step = at
            # [i, k]: regime i before regime k
            joint = belief.log_weight[:, None] + log_move
            joint = joint - jax.nn.logsumexp(joint, axis=0)[None, :] + later.log_weight[None, :]
            after = GaussianBelief(later.mean, later.covariance)
            each = jax.vmap(jax.vmap(pair, in_axes=(None, None, 0, 0, 0)), in_axes=(0, 0, None, None, None))
            back = each(belief.mean, belief.covariance, after, fixed, step)
            new = _merged(joint, *back)
            return new, new

        last = jax.tree.map(lambda a: a[-1], filtered)
        past = jax.tree.map(lambda a: a[:-1], filtered)
        rest = jax.tree.map(lambda a: a[1:], steps)
        _, earlier = jax.lax.scan(body, last, (past, rest), reverse=True)
        return jax.tree.map(lambda a, b: jnp.concatenate([a, b[None]]), earlier, last)

    def step_evidence(self, series: Series, *, incomplete: bool = True) -> Float[Array, " time"]:
        logs = self.filter(series).log_evidence
        # after a step that cannot occur nothing is known, and no other one can
        impossible = jnp.cumsum(jnp.isneginf(logs)) > 0
        return jnp.where(impossible, jnp.where(series.real, -jnp.inf, 0.0), logs)

    def estimated_log_prob(self, series: Series) -> Float[Array, ""]:
        """log p(y) as Kim's filter has it: not exact."""
        return jnp.sum(self.step_evidence(series))

    def _along(
        self, series: Series, path: Int[Array, " time"]
    ) -> tuple[LinearGaussianBeliefs, Filtered, LinearStep]:
        """The algebra, what it filtered and the steps, when the regimes are known."""
        fixed, steps = self._chains(series)
        at = jnp.arange(len(path))
        own = jax.tree.map(lambda a: a[at, path], steps)
        whole = jax.vmap(lambda step, rest: step.filled(rest))(own, jax.tree.map(lambda a: a[path], fixed))
        system = self._system(path[0])
        start = GaussianBelief(system.initial_mean, system.initial_covariance.matrix())
        beliefs = LinearGaussianBeliefs(LinearStep())
        return beliefs, filter_chain(beliefs, start, whole), whole

    def log_joint(self, series: Series, path: Int[Array, " time"]) -> Float[Array, ""]:
        """log p(y, s) of a series and the regimes of its steps, missing entries summed out: exact."""
        log_path = jnp.log(self.initial)[path[0]] + jnp.sum(jnp.log(self.transition)[path[:-1], path[1:]])
        return log_path + jnp.sum(self._along(series, path)[1].log_evidence)

    def complete_along(
        self, series: Series, path: Int[Array, " time"], *, key: Array
    ) -> Float[Array, "time dim"]:
        """The series with its missing entries drawn given the others and the regimes: exact."""
        move, emit = jax.random.split(key)
        beliefs, filtered, steps = self._along(series, path)
        return self._emitted(series, path, sample_paths(beliefs, filtered, steps, key=move), emit)

    def _emitted(self, series: Series, path: Array, states: Array, key: Array) -> Float[Array, "time dim"]:
        """The series with its missing entries drawn given regimes and states."""
        G, g, spread = self._each(lambda system: system._completion(series))
        at = jnp.arange(len(series.real))
        noise = jax.random.normal(key, series.values.shape)
        roots = jax.vmap(root_semidefinite)(spread[path, at])
        return (
            jnp.einsum("tmn,tn->tm", G[path, at], states)
            + g[path, at]
            + jnp.einsum("tmk,tk->tm", roots, noise)
        )

    def sample(
        self, length: int, *, key: Array, inputs: Float[Array, "time inputs"] | None = None
    ) -> Float[Array, "time dim"]:
        first, chain, move, emit = jax.random.split(key, 4)
        n = self.systems.initial_mean.shape[-1]
        log_move = jnp.log(self.transition)
        begin, start = jax.random.split(first)
        s = jax.random.categorical(begin, jnp.log(self.initial))
        system = self._system(s)
        x = system.initial_mean + root_semidefinite(system.initial_covariance.matrix()) @ jax.random.normal(
            start, (n,)
        )

        def body(carry: tuple[Array, Array], at: Any) -> Any:
            s, x = carry
            k, w, e, begins, offsets, means = at
            s = jnp.where(begins, s, jax.random.categorical(k, log_move[s]))
            system = self._system(s)
            moved = system.transition @ x + offsets[s] + root_semidefinite(system.noise.matrix()) @ w
            x = jnp.where(begins, x, moved)
            noise = root_semidefinite(system.emission_noise.matrix()) @ e
            return (s, x), system.emission @ x + means[s] + noise

        m = self.systems.mean.shape[-1]
        drawn = (
            jax.random.split(chain, length),
            jax.random.normal(move, (length, n)),
            jax.random.normal(emit, (length, m)),
            jnp.arange(length) == 0,
            self._each(lambda s: s._offsets(inputs, length)).swapaxes(0, 1),
            self._each(lambda s: s._means(inputs, length)).swapaxes(0, 1),
        )
        return jax.lax.scan(body, (s, x), drawn)[1]

    @eqx.filter_jit
    def in_units(
        self,
        shift: Array,
        scale: Array,
        input_shift: Array | None = None,
        input_scale: Array | None = None,
    ) -> SwitchingLinearSystem:
        """The law of shift + scale · y given input_shift + input_scale · u, with the same states."""
        systems = self._each(lambda s: s.in_units(shift, scale, input_shift, input_scale))
        return SwitchingLinearSystem(self.initial, self.transition, systems)

    def _each(self, function: Any) -> Any:
        """`function(system)` for each regime, along a leading axis."""
        return eqx.filter_vmap(function, in_axes=eqx.if_array(0))(self.systems)

    def _system(self, s: Int[Array, ""]) -> LinearGaussianSSM:
        arrays, static = eqx.partition(self.systems, eqx.is_array)
        return eqx.combine(jax.tree.map(lambda a: a[s], arrays), static)

    def complete_mean(self, series: Series) -> Float[Array, "time dim"]:
        belief = self.smooth(series)

        def one(system: LinearGaussianSSM, mean: Array) -> Array:
            G, g, _ = system._completion(series)
            return jnp.einsum("tmn,tn->tm", G, mean) + g

        values = eqx.filter_vmap(one, in_axes=(eqx.if_array(0), 1))(self.systems, belief.mean)
        return jnp.einsum("tk,ktm->tm", jnp.exp(belief.log_weight), values)

    def complete_sample(self, series: Series, *, key: Array) -> Float[Array, "time dim"]:
        fixed, steps = self._chains(series)
        filtered = self.filter(series).filtered
        log_move = jnp.log(self.transition)
        choose, draw, emit = jax.random.split(key, 3)

        def take(tree: Any, s: Array) -> Any:
            return jax.tree.map(lambda a: a[s], tree)

        def body(carry: tuple[Array, Array], at: Any) -> Any:
            s, x = carry
            belief, step, k, w = at
            chain, here = LinearGaussianBeliefs(take(fixed, s)), take(step, s)

            def from_regime(m: Array, P: Array) -> tuple[Any, Array]:
                known = GaussianBelief(m, P)
                predicted = chain.predict(known, here)
                # how well x follows from this regime
                seen = measure(jnp.eye(len(x)), jnp.zeros(len(x)), predicted.covariance, x)
                none = GaussianBelief(predicted.mean, jnp.zeros_like(P))
                return chain.reverse(known, predicted, here), chain.update(none, seen)[1]

            kernels, fits = jax.vmap(from_regime)(belief.mean, belief.covariance)
            before = jax.random.categorical(k, belief.log_weight + log_move[:, s] + fits)
            kernel = take(kernels, before)
            x = kernel.gain @ x + kernel.offset + root_semidefinite(kernel.covariance) @ w
            return (before, x), (before, x)

        last = jax.tree.map(lambda a: a[-1], filtered)
        first, second = jax.random.split(choose)
        n = self.systems.initial_mean.shape[-1]
        s = jax.random.categorical(first, last.log_weight)
        x = last.mean[s] + root_semidefinite(last.covariance[s]) @ jax.random.normal(second, (n,))
        length = len(series.real) - 1
        keys, noises = jax.random.split(draw, length), jax.random.normal(emit, (length, n))
        past = jax.tree.map(lambda a: a[:-1], filtered)
        rest = jax.tree.map(lambda a: a[1:], steps)
        _, (regimes, states) = jax.lax.scan(body, (s, x), (past, rest, keys, noises), reverse=True)
        regimes, states = jnp.append(regimes, s), jnp.concatenate([states, x[None]])
        return self._emitted(series, regimes, states, jax.random.fold_in(emit, 1))


def _merged(
    joint: Float[Array, "regimes before"],
    means: Float[Array, "regimes before state"],
    covariances: Float[Array, "regimes before state state"],
) -> SwitchingBelief:
    """Mixtures along the second axis of `joint` (log-weights) as one Gaussian each of equal moments."""
    total = jax.nn.logsumexp(joint, axis=1)
    share = jnp.exp(joint - total[:, None])
    mean = jnp.einsum("ji,jin->jn", share, means)
    gap = means - mean[:, None]
    spread = covariances + gap[..., :, None] * gap[..., None, :]
    return SwitchingBelief(total, mean, jnp.einsum("ji,jinm->jnm", share, spread))
