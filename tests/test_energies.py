"""Energies made of energies, against tables of their values and quadrature."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from freeenergy.distributions import Binary, Categories, Positive, Reals
from freeenergy.inference import Energy, Enumerate, infer

KEY = jax.random.key(0)
TABLE = np.random.default_rng(0).normal(size=(2, 3))
PAIR = {"on": Binary(()), "what": Categories(3)}


class Table(eqx.Module):
    """An energy that is read off a table."""

    values: jax.Array

    def __call__(self, z):
        return self.values[z["on"].astype(int), z["what"]]


ENERGY = Energy(Table(jnp.asarray(TABLE)), PAIR)


def law(energy, space):
    found = infer(energy, space, Enumerate(), key=KEY)
    return np.asarray(found.probabilities), float(found.log_evidence.nats)


def normalised(weights):
    return weights.ravel() / weights.sum()


def test_a_sum_is_a_product_of_experts_and_a_temperature_a_power():
    other = Energy(Table(jnp.asarray(TABLE[::-1].copy())), PAIR)
    both = ENERGY + other
    p, log_z = law(both, both.space)
    weights = np.exp(-TABLE) * np.exp(-TABLE[::-1])
    np.testing.assert_allclose(p, normalised(weights))
    np.testing.assert_allclose(log_z, np.log(weights.sum()))
    hot = ENERGY.tempered(3.0)
    np.testing.assert_allclose(law(hot, hot.space)[0], normalised(np.exp(-TABLE / 3)))


def test_conditioning_takes_a_row_and_marginalising_sums_over_it():
    row = ENERGY.given(lambda z: z["on"], 1.0)
    p, log_z = law(row, row.space)
    np.testing.assert_allclose(p, normalised(np.exp(-TABLE[1])))
    np.testing.assert_allclose(log_z, np.log(np.exp(-TABLE[1]).sum()))
    summed = ENERGY.marginal(lambda z: z["on"])
    p, log_z = law(summed, summed.space)
    np.testing.assert_allclose(p, normalised(np.exp(-TABLE).sum(axis=0)))
    np.testing.assert_allclose(log_z, np.log(np.exp(-TABLE).sum()))


def test_a_mixture_of_normalised_energies_is_a_mixture_of_densities():
    parts = [stats.norm(-1, 0.5), stats.norm(2, 1.5)]
    energies = [
        Energy(lambda z, m=m, s=s: -jax.scipy.stats.norm.logpdf(z, m, s), Reals(()))
        for m, s in ((-1.0, 0.5), (2.0, 1.5))
    ]
    mixed = Energy.mixture(energies, [0.3, 0.7])
    grid = np.linspace(-12, 14, 4001)
    density = np.exp(-np.asarray(jax.jit(jax.vmap(mixed))(grid)))
    np.testing.assert_allclose(density, 0.3 * parts[0].pdf(grid) + 0.7 * parts[1].pdf(grid), rtol=1e-9)
    np.testing.assert_allclose(integrate.simpson(density, x=grid), 1.0, atol=1e-8)


def test_one_program_serves_all_values_of_a_module():
    calls = []

    class Counted(eqx.Module):
        at: jax.Array

        def __call__(self, z):
            calls.append(1)
            return jnp.abs(z - self.at)

    for at in (0.0, 1.0):
        whole = Energy(Counted(jnp.asarray(at)), Binary(())).tempered(2.0)
        found = infer(whole, whole.space, Enumerate(), key=KEY)
        weights = np.exp(-np.abs(np.array([0.0, 1.0]) - at) / 2)
        np.testing.assert_allclose(found.probabilities, weights / weights.sum())
    assert len(calls) <= 2


def test_evidence_of_probability_zero_is_refused():
    never = Energy(lambda z: jnp.inf + z, Binary(()))
    with pytest.raises(ValueError, match=r"^What is observed has probability zero: the energy is infinite"):
        infer(never, never.space, Enumerate(), key=KEY)


def test_bad_parts_are_refused_in_one_sentence():
    with pytest.raises(TypeError, match=r"'fn' of Energy must be a function of the unknown. Got 3 instead"):
        Energy(3, Reals(()))  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"must be a space or a tree of spaces. Got 'a' instead"):
        Energy(jnp.sum, {"x": "a"})
    with pytest.raises(TypeError, match=r"Got an empty tree instead"):
        Energy(jnp.sum, ())
    with pytest.raises(ValueError, match=r"must have one space. Got"):
        ENERGY + Energy(jnp.sum, Reals(()))
    with pytest.raises(TypeError, match=r"unsupported operand"):
        ENERGY + 1  # pyright: ignore[reportOperatorIssue]
    with pytest.raises(ValueError, match=r"'temperature' of an energy must be a positive number. Got 0 in"):
        ENERGY.tempered(0.0)
    with pytest.raises(ValueError, match=r"'where' must name a part of the unknown"):
        ENERGY.given(lambda z: z["off"], 1.0)
    with pytest.raises(ValueError, match=r"'where' must leave a part of the unknown"):
        Energy(jnp.sum, Reals(())).given(lambda z: z, 1.0)
    with pytest.raises(ValueError, match=r"must have the shape \(\). Got \(2,\) instead"):
        ENERGY.given(lambda z: z["on"], np.zeros(2))
    with pytest.raises(ValueError, match=r"must have entries 0 or 1. Got 0.5 instead"):
        ENERGY.given(lambda z: z["on"], 0.5)
    with pytest.raises(TypeError, match=r"States are numbered in a tree of finite spaces"):
        Energy(lambda z: z["x"] + z["y"], {"x": Reals(()), "y": Positive(())}).marginal(lambda z: z["x"])
    with pytest.raises(ValueError, match=r"'weights' of a mixture of 1 energies must be as many"):
        Energy.mixture([ENERGY], [0.0])
