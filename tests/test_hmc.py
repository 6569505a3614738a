"""Hamiltonian Monte Carlo against Gaussian algebra, closed forms and its own symmetries."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from freeenergy import Checkpoint
from freeenergy._core import AbstractProgress
from freeenergy.distributions import Positive, Reals, UnitInterval
from freeenergy.inference import (
    NUTS,
    AbstractSteps,
    Energy,
    FreeTarget,
    HamiltonianMonteCarlo,
    infer,
)
from freeenergy.inference._hmc import AbstractHamiltonian, _merged, _schedule

KEY = jax.random.key(0)
FAR = 4.5
COVARIANCE = np.array([[1.0, 1.2], [1.2, 4.0]])
CENTRE = np.array([3.0, -1.0])


class Quadratic(eqx.Module):
    """The energy of a normal law."""

    centre: jax.Array
    precision: jax.Array

    def __call__(self, z):
        gap = z - self.centre
        return gap @ self.precision @ gap / 2


NORMAL = Quadratic(jnp.asarray(CENTRE), jnp.asarray(np.linalg.inv(COVARIANCE)))
METHODS = {
    "NUTS": NUTS(steps=600, burn_in=200),
    "NUTS-dense": NUTS(steps=600, burn_in=200, dense=True),
    "HMC": HamiltonianMonteCarlo(steps=600, burn_in=200),
}


@pytest.mark.parametrize("name", list(METHODS))
def test_moments_of_a_normal_law_within_the_stated_error(name):
    method = METHODS[name]
    assert isinstance(method, AbstractHamiltonian)
    assert isinstance(method, AbstractSteps)
    found = infer(NORMAL, Reals((2,)), method, key=KEY)
    mean, error = found.expect(lambda z: z)
    assert (np.abs(mean - CENTRE) < FAR * error).all()
    second, error = found.expect(lambda z: jnp.outer(z - CENTRE, z - CENTRE))
    assert (np.abs(second - COVARIANCE) < FAR * error).all()
    told = found.diagnostics
    assert told["rank_scale_reduction"] < 1.01
    assert told["bulk_effective_size"] > 700
    assert abs(told["acceptance"] - 0.85) < 0.12
    assert told["divergences"] == 0
    # of d = 2 numbers the energy e + ½ p² has mean d and variance d
    assert abs(np.mean(told["energy"]) - 2) < FAR * np.sqrt(2 / 500)
    assert found.warnings == []
    assert found.grid == (4, 600)


def test_a_leapfrog_goes_back_the_way_it_came():
    """Cho U9: with the momentum turned round, as many leaps lead back; H is nearly kept, volume exactly."""
    from blackjax.mcmc import integrators, metrics

    def energy(z):
        return jnp.sum(jnp.cosh(z))

    target = FreeTarget(energy, Reals((2,)))
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        metric = metrics.default_metric(jnp.array([1.0, 0.5]))
        leap = integrators.velocity_verlet(lambda v: -target(v), metric.kinetic_energy)
        begin = jnp.array([0.3, -0.8])

        def go(pair):
            position, momentum = pair
            value, slope = jax.value_and_grad(lambda v: -target(v))(position)
            first = integrators.IntegratorState(position, momentum, value, slope)
            last = jax.lax.fori_loop(0, 25, lambda _, s: leap(s, 0.05), first)
            return last.position, last.momentum

        go = jax.jit(go)
        momentum = jnp.array([0.7, 0.2])
        there = go((begin, momentum))
        back = go((there[0], -there[1]))

        def total(position, momentum):
            return float(target(position) + metric.kinetic_energy(momentum))

        np.testing.assert_allclose(back[0], begin, atol=1e-12)
        np.testing.assert_allclose(back[1], -momentum, atol=1e-12)
        assert abs(total(*there) - total(begin, momentum)) < 1e-3
        slopes = jax.jit(jax.jacobian(lambda v: jnp.concatenate(go((v[:2], v[2:])))))(
            jnp.concatenate([begin, momentum])
        )
    np.testing.assert_allclose(np.abs(np.linalg.det(slopes)), 1.0, rtol=1e-10)


def test_chains_over_the_weights_of_a_linear_regression():
    """Cho S6: p(w) ∝ exp(−β Σ loss) p(w), whose moments are those of ridge."""
    rng = np.random.default_rng(0)
    x, tau2, beta = rng.normal(size=(20, 2)), 0.5, 0.7
    y = x @ [1.0, -2.0] + rng.normal(size=20)
    loss = Energy(lambda w: jnp.sum((y - x @ w) ** 2) / 2, Reals((2,)))
    prior = Energy(lambda w: jnp.sum(w**2) / (2 * tau2), Reals((2,)))
    whole = loss.tempered(1 / beta) + prior
    found = infer(whole, whole.space, METHODS["HMC"], key=KEY)
    covariance = np.linalg.inv(beta * x.T @ x + np.eye(2) / tau2)
    centre = covariance @ (beta * x.T @ y)
    mean, error = found.expect(lambda w: w)
    assert (np.abs(mean - centre) < FAR * error).all()
    second, error = found.expect(lambda w: jnp.outer(w - centre, w - centre))
    assert (np.abs(second - covariance) < FAR * error).all()


def test_constrained_unknowns_of_a_tree():
    space = {"rate": Positive(()), "share": UnitInterval(())}

    def energy(z):
        return 4 * z["rate"] - 2 * jnp.log(z["rate"]) - 3 * jnp.log(z["share"]) - jnp.log1p(-z["share"])

    found = infer(energy, space, METHODS["NUTS"], key=KEY)
    mean, error = found.expect(lambda z: z)
    assert abs(mean["rate"] - 3 / 4) < FAR * error["rate"]
    assert abs(mean["share"] - 4 / 6) < FAR * error["share"]
    for name, law in (("rate", stats.gamma(3, scale=1 / 4)), ("share", stats.beta(4, 2))):
        thinned = np.asarray(found.draws[name])[:, ::6].ravel()
        assert stats.kstest(thinned, law.cdf).pvalue > 1e-4


def test_a_funnel_is_warned_of():
    def funnel(z):
        return z[0] ** 2 / 18 + jnp.sum(z[1:] ** 2) * jnp.exp(-z[0]) / 2 + 2 * z[0]

    found = infer(funnel, Reals((5,)), NUTS(steps=300, burn_in=100, doublings=6), key=KEY)
    assert found.diagnostics["divergences"] > 0
    assert any("diverged, so that a narrow part" in sentence for sentence in found.warnings)
    assert found.diagnostics["diverging"].sum() == found.diagnostics["divergences"]


class Watch(AbstractProgress):
    """Counts what it is told, and may interrupt."""

    def __init__(self, stop_after=None):
        self.seen, self.stop_after = [], stop_after

    def start(self):
        pass

    def update(self, n_iter, metrics):
        self.seen.append((n_iter, metrics))
        if self.stop_after is not None and n_iter >= self.stop_after:
            raise KeyboardInterrupt

    def stop(self):
        pass


def test_a_run_is_shown_interrupted_and_resumed(tmp_path):
    method, path = METHODS["NUTS"], tmp_path / "chains.safetensors"
    whole = infer(NORMAL, Reals((2,)), method, key=KEY)
    watch = Watch(stop_after=150)
    with pytest.raises(KeyboardInterrupt):
        infer(NORMAL, Reals((2,)), method, key=KEY, progress=lambda _: watch, checkpoint=Checkpoint(path))
    assert 150 <= watch.seen[-1][0] < 800
    assert "acceptance" in watch.seen[-1][1]
    again = Watch()
    resumed = infer(
        NORMAL, Reals((2,)), method, key=KEY, progress=lambda _: again, checkpoint=Checkpoint(path)
    )
    assert again.seen[0][0] == watch.seen[-1][0]
    np.testing.assert_array_equal(resumed.draws, whole.draws)
    with pytest.raises(ValueError, match="belongs to another fit"):
        infer(NORMAL, Reals((2,)), method, key=jax.random.key(1), checkpoint=Checkpoint(path))
    with pytest.raises(ValueError, match="belongs to another fit"):
        infer(lambda z: 2 * NORMAL(z), Reals((2,)), method, key=KEY, checkpoint=Checkpoint(path))


def test_inside_of_a_program_and_thinned():
    short = NUTS(steps=20, burn_in=20, thin=3)
    outside = infer(NORMAL, Reals((2,)), short, key=KEY)
    inside = eqx.filter_jit(lambda e, k: infer(e, Reals((2,)), short, key=k).draws)(NORMAL, KEY)
    np.testing.assert_allclose(inside, outside.draws, rtol=1e-6)
    assert inside.shape == (4, 20, 2)


def test_the_warm_up_learns_the_covariance_of_all_chains():
    rows = np.random.default_rng(0).normal(size=(7, 3, 2))
    for dense in (False, True):
        moments = METHODS["NUTS-dense" if dense else "NUTS"]._fresh(2, jnp.zeros(()).dtype)
        for part in rows:
            moments = _merged(moments, jnp.asarray(part), jnp.ones(()), dense)
        moments = _merged(moments, jnp.full((3, 2), 1e9), jnp.zeros(()), dense)
        expected = np.cov(rows.reshape(-1, 2).T, ddof=0) * 21
        np.testing.assert_allclose(moments.squares, expected if dense else np.diag(expected), rtol=1e-10)
        np.testing.assert_allclose(moments.mean, rows.reshape(-1, 2).mean(axis=0), rtol=1e-10)
    slow, ends = _schedule(500)
    assert (~slow[:75]).all()
    assert (~slow[-50:]).all()
    assert np.flatnonzero(ends).tolist() == [99, 149, 249, 449]


def test_bad_energies_and_parameters_are_refused_in_one_sentence():
    with pytest.raises(ValueError, match=r"^The posterior is improper: along free coordinate 1 of the unk"):
        infer(lambda z: z[0] ** 2, Reals((2,)), METHODS["HMC"], key=KEY)
    with pytest.raises(ValueError, match=r"must be finite where inference by HamiltonianMonteCarlo begins"):
        infer(lambda z: jnp.sum(z) * jnp.nan, Reals((2,)), METHODS["HMC"], key=KEY)
    with pytest.raises(ValueError, match=r"'steps' parameter of NUTS must be an int in the range \[1, inf"):
        NUTS(steps=0)
    with pytest.raises(ValueError, match=r"'acceptance' parameter of NUTS must be between 0 and 1\. Got 1"):
        NUTS(acceptance=1.0)


def test_tails_that_can_be_integrated_are_not_refused():
    def cauchy(z):
        return jnp.sum(jnp.log1p(z**2))

    found = infer(cauchy, Reals((2,)), HamiltonianMonteCarlo(steps=40, burn_in=40), key=KEY)
    assert np.isfinite(np.asarray(found.draws)).all()
