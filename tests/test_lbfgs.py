"""L-BFGS: as few evaluations as SciPy's, the same minima, and a plain answer where there is none."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

from freeenergy.inference import QuasiNewton
from freeenergy.inference._lbfgs import LBFGSState, begin_lbfgs
from freeenergy.inference._minimise import QuasiNewtonState

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(200, 4))
ANSWERS = (RNG.random(200) < 1 / (1 + np.exp(-ROWS @ np.array([1.0, -2.0, 0.5, 0.0])))).astype(float)


def rosenbrock(x):
    return jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def logistic(x):
    z = jnp.asarray(ROWS, x.dtype) @ x
    return jnp.mean(jnp.logaddexp(0, z) - jnp.asarray(ANSWERS, x.dtype) * z) + 1e-3 * jnp.vdot(x, x)


def singular(x):
    # the second derivative at the minimum has rank two
    far = (x[1] - 2 * x[2]) ** 4 + 10 * (x[0] - x[3]) ** 4
    return (x[0] + 10 * x[1]) ** 2 + 5 * (x[2] - x[3]) ** 2 + far


def barrier(x):
    # infinite where any entry is not positive; least, 4, at one
    inside = jnp.all(x > 0)
    return jnp.where(inside, jnp.sum(x - jnp.log(jnp.where(x > 0, x, 1))), jnp.inf)


FUNCTIONS = (rosenbrock, logistic, singular, barrier)


@jax.jit
def run(number, start, tol):
    """Until the gradient is small, or nothing is left to do; how many evaluations that took."""

    def value_and_gradient(x):
        return jax.lax.switch(number, [jax.value_and_grad(f) for f in FUNCTIONS], x)

    def proceed(carry):
        state, count = carry
        settled = ~jnp.isinf(state.value) & (jnp.max(jnp.abs(state.gradient)) <= tol)
        return (count < 1000) & ~settled & ~state.stuck

    def advance(carry):
        state, count = carry
        return state.tell(*value_and_gradient(state.ask())), count + 1

    return jax.lax.while_loop(proceed, advance, (begin_lbfgs(start), jnp.zeros((), jnp.int32)))


@pytest.mark.parametrize(
    ("number", "start", "slack"),
    [(0, [-1.2, 1.0, -1.2, 1.0], 1e-12), (1, [0.0] * 4, 1e-14), (2, [3.0, -1.0, 0.0, 1.0], 1e-10)],
    ids=["rosenbrock", "logistic", "singular"],
)
def test_finds_the_minimum_with_as_few_evaluations_as_scipy(number, start, slack):
    function = jax.jit(jax.value_and_grad(FUNCTIONS[number]))
    peer = optimize.minimize(
        lambda x: tuple(np.asarray(v) for v in function(jnp.asarray(x))),
        start,
        jac=True,
        method="L-BFGS-B",
        options={"gtol": 1e-8, "ftol": 0, "maxcor": 10},
    )
    state, count = run(number, jnp.asarray(start), 1e-8)
    assert np.abs(state.gradient).max() <= 1e-8
    assert float(state.value) == pytest.approx(peer.fun, abs=slack)
    assert int(count) <= 1.5 * peer.nfev + 5


def test_points_without_a_value_are_stepped_back_from():
    state, _ = run(3, jnp.full(4, 8.0), 1e-8)
    np.testing.assert_allclose(state.point, 1.0, atol=1e-8)
    assert float(state.value) == pytest.approx(4.0, abs=1e-14)


def test_at_the_minimum_it_asks_once():
    state, count = run(3, jnp.ones(4), 1e-8)
    assert int(count) == 1
    assert np.array_equal(state.point, np.ones(4))


def test_a_gradient_that_rounding_keeps_from_zero_ends_stuck():
    state, count = run(0, jnp.array([-1.2, 1.0, -1.2, 1.0]), 0.0)
    assert bool(state.stuck) or np.abs(state.gradient).max() == 0
    assert int(count) < 1000
    np.testing.assert_allclose(state.point, 1.0, atol=1e-6)


def test_every_point_taken_is_lower_and_bends_upwards():
    value_and_gradient = jax.jit(jax.value_and_grad(rosenbrock))
    tell = jax.jit(lambda state, value, gradient: state.tell(value, gradient))
    state, values = begin_lbfgs(jnp.array([-1.2, 1.0, -1.2, 1.0])), []
    for _ in range(40):
        state = tell(state, *value_and_gradient(state.ask()))
        values += [float(state.value)] if state.moved else []
    assert isinstance(state, LBFGSState)
    assert len(values) > 20
    assert (np.diff(values) < 0).all()
    assert (np.asarray(state.curvatures) > 0).all()


def test_rows_of_a_batch_are_searched_apart():
    starts = jnp.array([[-1.2, 1.0, -1.2, 1.0], [0.5, 0.5, 0.5, 0.5], [1.0, 1.0, 1.0, 1.0]])
    together, counts = jax.vmap(run, in_axes=(None, 0, None))(0, starts, 1e-8)
    alone = [run(0, start, 1e-8) for start in starts]
    np.testing.assert_allclose(together.point, np.stack([s.point for s, _ in alone]), atol=1e-9)
    assert counts.tolist() == [int(n) for _, n in alone]


def test_single_precision():
    state, _ = run(0, jnp.array([-1.2, 1.0, -1.2, 1.0], jnp.float32), jnp.float32(1e-3))
    assert state.point.dtype == jnp.float32
    np.testing.assert_allclose(state.point, 1.0, atol=1e-2)


def test_a_search_over_a_tree_is_one_over_its_entries():
    search, start = QuasiNewton(1e-8), {"a": jnp.array([3.0]), "b": jnp.array(-4.0)}

    def parabola(z):
        return jnp.sum(z["a"] ** 2) + (z["b"] - 1) ** 2

    state = search.init(parabola, start)
    assert isinstance(state, QuasiNewtonState)
    assert float(state.steepest) == np.inf
    for _ in range(12):
        state = search.step(parabola, state)
    assert float(state.point["a"][0]) == pytest.approx(0, abs=1e-8)
    assert float(state.point["b"]) == pytest.approx(1, abs=1e-8)
    assert bool(search.terminate(state)[1])
