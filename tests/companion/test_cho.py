"""Rows of the notes of Cho, each with the number or identity that shows it."""

import itertools
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import integrate, optimize, stats
from scipy.special import expit, logsumexp, softmax
from scipy.stats import multivariate_normal
from sklearn.base import BaseEstimator
from sklearn.ensemble import BaggingRegressor, GradientBoostingRegressor
from sklearn.linear_model import Ridge
from sklearn.metrics import mutual_info_score, zero_one_loss
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    LeaveOneOut,
    ParameterSampler,
    PredefinedSplit,
    cross_val_predict,
)
from sklearn.tree import DecisionTreeRegressor

import freeenergy as fe
from freeenergy import inference
from freeenergy.bijections import Affine, TriangularAffine
from freeenergy.distributions import (
    Categorical,
    Diagonal,
    Full,
    Gaussian,
    Given,
    Information,
    Reals,
    Spherical,
    affine,
    conditional,
    entropy,
    product,
)
from freeenergy.evaluation import wald_interval
from freeenergy.inference import (
    Amortised,
    Enumeration,
    Exhaustive,
    Finite,
    LocalGaussian,
    Quadratic,
    ScoreFunction,
    binary_states,
    free_energy,
    log_partition_by_enumeration,
    minimise,
    posterior_by_enumeration,
    stationary,
)
from freeenergy.learning import (
    MAP,
    Argmin,
    Batch,
    Boltzmann,
    Margin,
    negative_log_likelihood,
)
from freeenergy.models import (
    VAE,
    Clusters,
    GaussianEncoder,
    LinearGaussian,
    MarkovChain,
    Mixture,
    SoftmaxModel,
    StandardNormal,
    one_series,
    ppca_closed_form,
    stationary_covariance,
)
from freeenergy.nn import MLP, Linear

KEY = jax.random.key(0)
X = jnp.array([1.0, 2.0])
SOFTMAX = SoftmaxModel(jnp.array([[0.3, -0.2], [0.1, 0.4], [-0.5, 0.2]]), jnp.array([0.1, 0.0, -0.2]))
CENTRES = np.array([[0.0, 0.0], [3.0, 1.0], [-1.0, 2.0]])


def close(found, expected, atol=1e-10):
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


def differences(function, x, h=1e-5):
    """The gradient of a function of a NumPy array by central differences."""
    found = np.zeros(np.shape(x))
    for i in np.ndindex(*np.shape(x)):
        step = np.zeros(np.shape(x))
        step[i] = h
        found[i] = (function(x + step) - function(x - step)) / (2 * h)
    return found


def descend(optimiser, gradient, start, steps):
    """The parameters after each step of an optimiser of Optax."""
    theta, path = jnp.asarray(start), []
    state = optimiser.init(theta)

    @jax.jit
    def step(slope, state, theta):
        with jax.numpy_dtype_promotion("standard"):
            update, state = optimiser.update(slope, state, theta)
        return theta + update, state

    for t in range(steps):
        theta, state = step(gradient(np.asarray(theta), t), state, theta)
        path.append(np.asarray(theta))
    return np.array(path)


_posterior = jax.jit(
    lambda energies: (
        posterior_by_enumeration(lambda i: energies[i], jnp.arange(len(energies))).probabilities
    )
)


def masses(log_joint):
    """Probabilities of the states of which `log_joint` has the weights."""
    return np.asarray(_posterior(-np.asarray(log_joint)))


# ---- chapter 1


# E1
def test_a_constant_added_to_the_energy_changes_no_inference():
    @jax.jit
    def infer(energies):
        def energy(i):
            return energies[i]

        best = minimise(energy, jnp.arange(3), Exhaustive()).point
        p = posterior_by_enumeration(energy, jnp.arange(3)).probabilities
        return best, p, energies[0] - Boltzmann()(energies, jnp.asarray(0))[0]

    for shift in (0.0, 7.5, -1e3):
        best, p, loss = infer(jnp.array([1.0, 2.0, 3.0]) + shift)
        assert int(best) == 0
        close(p, softmax([-1.0, -2.0, -3.0]), 1e-12)
        close(loss, 0.4076059644)


# E2, R1
def test_mean_and_variance_of_the_energy_over_a_finite_cause():
    mean, energies = Enumeration(jnp.arange(2)), jnp.array([1.0, 3.0])

    @jax.jit
    def moments(p):
        centre = mean(lambda z: energies[z], Finite(p), key=KEY)
        return centre, mean(lambda z: (energies[z] - centre) ** 2, Finite(p), key=KEY)

    close(moments(np.array([0.25, 0.75])), [2.5, 0.75])
    close(moments(np.array([0.0, 1.0])), [3.0, 0.0])


# E4
def test_classification_and_regression_are_one_argmin():
    target = 0.37

    @jax.jit
    def best(grid):
        labels = minimise(lambda y: SOFTMAX.energy(X, y), jnp.arange(3), Exhaustive())
        # the same over numbers, with the energy ½(y − f(x))²
        return labels.point, minimise(lambda y: 0.5 * (y - target) ** 2, grid, Exhaustive()).point

    label, number = best(target + np.array([-0.2, -0.1, 0.0, 0.1]))
    assert int(label) == np.argmax(np.asarray(SOFTMAX.weight) @ X + np.asarray(SOFTMAX.bias))
    close(number, target)


# E5
def test_clustering_is_the_argmin_over_a_finite_cause():
    model = Clusters(jnp.asarray(CENTRES))
    nearest = jax.jit(
        lambda row: minimise(lambda z: model.energy(row, z), jnp.arange(3), Exhaustive()).point
    )
    for row in ([0.4, 0.1], [2.0, 2.0], [-1.0, 1.2]):
        assert int(nearest(np.array(row))) == np.argmin(np.linalg.norm(CENTRES - row, axis=1))


# E8
def test_lowering_the_energy_alone_never_ends():
    # each step takes η(‖x‖² + 1) = 0.6 from the energy; with the contrastive term the loss has a floor
    @jax.jit
    def step(model):
        value, slope = jax.value_and_grad(lambda m: m.energy(X, jnp.asarray(1)))(model)
        return value, jax.tree.map(lambda p, g: p - 0.1 * g, model, slope)

    model, found = SOFTMAX, []
    for _ in range(50):
        value, model = step(model)
        found.append(float(value))
    close(np.diff(found), -0.6)
    assert found[-1] < -25
    energies = np.asarray(model.energies(X))
    assert energies[1] + logsumexp(-energies) >= 0


# ---- 2.1 losses over answers


# C2, C3
def test_zero_one_loss_has_no_slope_and_black_box_search_finds_its_minimum():
    rows, labels = np.array([[1.0, 0.0], [-1.0, 0.5]]), np.array([0, 1])

    def risk(theta):
        model = theta.reshape(2, 3)
        return zero_one_loss(labels, np.argmax(rows @ model[:, :2].T + model[:, 2], axis=1))

    theta = np.array([-0.3, 1.0, -0.2, -0.55, -0.4, 0.0])
    assert risk(theta) == risk(17.0 * theta) == 0.5
    close(differences(risk, theta), 0, 0.0)
    found = optimize.differential_evolution(risk, [(-1, 1)] * 6, maxiter=5, polish=False, rng=0)
    assert found.fun == 0


# C6
def test_entropy_of_certain_even_and_softmax_probabilities():
    measure = jax.jit(lambda p: entropy(Categorical(p[None])))
    for p, expected in (([1.0, 0.0, 0.0], 0.0), ([1 / 3] * 3, np.log(3)), (softmax([-1.0, -2, -3]), None)):
        expected = 0.8323955818 if expected is None else expected
        close(measure(np.asarray(p)), expected)


# C7
def test_softmax_maximises_entropy_minus_energy():
    a = np.array([1.0, 2.0, 3.0])
    found = optimize.minimize(
        lambda p: a @ p - stats.entropy(p / p.sum()),
        np.full(3, 1 / 3),
        method="SLSQP",
        bounds=[(1e-9, 1)] * 3,
        constraints={"type": "eq", "fun": lambda p: p.sum() - 1},
        tol=1e-12,
    )
    p = masses(-a)
    close(p, found.x, 1e-5)
    close(p, [0.6652409558, 0.2447284711, 0.0900305732])
    close(a @ p - stats.entropy(p), 0.5923940356)
    close(found.fun, 0.5923940356, 1e-8)


# C11
def test_projection_on_the_simplex_is_another_map_from_energies_to_probabilities():
    scores = np.array([-1.0, -1.4, -3.0])
    with jax.numpy_dtype_promotion("standard"):
        found = np.asarray(jax.jit(optax.projections.projection_simplex)(scores))
    close(found, [0.7, 0.3, 0.0])
    near = optimize.minimize(
        lambda p: np.sum((p - scores) ** 2),
        np.full(3, 1 / 3),
        bounds=[(0, 1)] * 3,
        constraints={"type": "eq", "fun": lambda p: p.sum() - 1},
    )
    close(found, near.x, 1e-6)


# ---- 2.2 gradients


# B1
def test_the_margin_loss_has_no_gradient_once_it_is_satisfied():
    phase, answer = Margin(1.0), jnp.asarray(0)

    def loss(e):
        return e[answer] - phase(e, answer)[0]

    slope = jax.jit(jax.grad(loss))
    close(slope(jnp.array([1.0, 2.5, 3.0])), 0, 0.0)
    violated = np.array([1.0, 1.5, 3.0])
    close(slope(jnp.asarray(violated)), [1, -1, 0], 0.0)
    close(differences(lambda e: max(0, 1 + e[0] - min(e[1:])), violated), [1, -1, 0], 1e-9)


# B2
def test_slopes_of_the_linear_energy():
    weight, x = jax.jit(jax.grad(lambda m, x: m.energy(x, jnp.asarray(1)), argnums=(0, 1)))(SOFTMAX, X)
    close(weight.weight, np.outer([0, 1, 0], -np.asarray(X)), 0.0)
    close(weight.bias, [0, -1, 0], 0.0)
    close(x, -SOFTMAX.weight[1], 0.0)


# B4
def test_moving_the_input_lowers_the_perceptron_loss_too():
    def loss(x):
        energies = SOFTMAX.energies(x)
        return energies[2] - Argmin()(energies, jnp.asarray(2))[0]

    both, eta = jax.jit(jax.value_and_grad(loss)), 0.01
    before, slope = both(X)
    gap = np.asarray(SOFTMAX.weight[2] - SOFTMAX.weight[1])
    assert int(np.argmin(SOFTMAX.energies(X))) == 1
    close(slope, -gap, 1e-14)
    close(before - both(X - eta * slope)[0], eta * gap @ gap, 1e-12)


# ---- backpropagation

HIDDEN = np.array([[0.4, -0.3, 0.8], [0.1, 0.9, -0.5]])
OUTER = np.array([[0.7, 0.2], [-0.6, 0.3], [0.5, -1.0]])
OFFSET = np.array([0.1, -0.2, 0.3])


# B5, N1
def test_gradient_of_the_distance_to_a_target_of_the_hidden_layer():
    target, x = np.array([0.2, 0.0, -0.4]), np.asarray(X)

    def energy(layer):
        return 0.5 * jnp.sum((jnp.tanh(layer(X)) - jnp.asarray(target)) ** 2)

    slope = jax.jit(jax.grad(energy))(Linear(jnp.asarray(HIDDEN), jnp.asarray(OFFSET)))
    h = np.tanh(x @ HIDDEN + OFFSET)
    local = (h - target) * (1 - h**2)
    close(slope.weight, np.outer(x, local), 1e-14)
    close(slope.bias, local, 1e-14)
    close(
        slope.weight,
        differences(lambda u: 0.5 * np.sum((np.tanh(x @ u + OFFSET) - target) ** 2), HIDDEN),
        1e-9,
    )


# B6, B7
def test_backpropagation_by_hand_and_as_a_unit_step_towards_a_target():
    x, goal = np.asarray(X), np.array([1.0, -1.0])
    first, last = np.array([[0.5, -0.4], [0.2, 0.3]]), np.array([[1.0, 0.5], [-0.3, 0.8]])
    layers = tuple(Linear(jnp.asarray(w), jnp.zeros(w.shape[1])) for w in (first, HIDDEN, OUTER @ last))
    slope = jax.jit(jax.grad(lambda m: 0.5 * jnp.sum((m(X) - jnp.asarray(goal)) ** 2)))(
        MLP(layers, jnp.tanh)
    )
    z = np.tanh(x @ first)
    h = np.tanh(z @ HIDDEN)
    at_h = (OUTER @ last) @ (h @ OUTER @ last - goal)
    close(slope.layers[1].weight, np.outer(z, at_h * (1 - h**2)), 1e-12)
    at_z = HIDDEN @ (at_h * (1 - h**2))
    close(slope.layers[0].weight, np.outer(x, at_z * (1 - z**2)), 1e-12)
    # the derivative of the activation is no part of the printed form
    printed = np.outer(x, (HIDDEN @ at_h) * (1 - z**2))
    assert np.abs(slope.layers[0].weight - printed).max() > 0.1
    # one gradient step of ½‖h − ĥ‖² with ĥ = h − ∇_h L is the step of backpropagation
    towards = jnp.asarray(h - at_h)
    fitted = jax.jit(jax.grad(lambda m: 0.5 * jnp.sum((jnp.tanh(m(jnp.asarray(z))) - towards) ** 2)))(
        layers[1]
    )
    close(fitted.weight, slope.layers[1].weight, 1e-12)


# B8
def test_forward_and_backward_products_agree():
    network = MLP(
        (Linear(jnp.asarray(HIDDEN), jnp.asarray(OFFSET)), Linear(jnp.asarray(OUTER), X)), jnp.tanh
    )
    v, u = jnp.array([0.3, -1.0]), jnp.array([2.0, 0.7])
    forward, back = jax.jit(lambda x: (jax.jvp(network, (x,), (v,))[1], jax.vjp(network, x)[1](u)[0]))(X)
    close(u @ forward, back @ v, 1e-14)
    h = np.tanh(np.asarray(X) @ HIDDEN + OFFSET)
    close(back, HIDDEN @ ((OUTER @ np.asarray(u)) * (1 - h**2)), 1e-14)


# ---- 2.3 optimisation


# O2, O6
def test_sgd_is_the_running_mean_or_stays_at_its_noise_floor():
    x = np.array([0.3, -1.2, 2.0, 0.7, 0.1])
    path = descend(optax.sgd(lambda t: 1 / (t.astype(float) + 1)), lambda theta, t: theta - x[t], 5.0, 5)
    close(path, np.cumsum(x) / np.arange(1, 6), 1e-12)
    # all 2¹² orders of ±1 at once: a constant rate stalls at α/(2 − α), a falling one does not
    draws, alpha = np.array(list(itertools.product([-1.0, 1.0], repeat=12))), 0.3
    stuck = descend(optax.sgd(alpha), lambda theta, t: theta - draws[:, t], np.zeros(4096), 12)
    floor = alpha / (2 - alpha)
    close([np.mean(s**2) for s in stuck], floor * (1 - (1 - alpha) ** (2 * np.arange(1, 13))), 1e-12)
    assert floor == pytest.approx(0.1764706, abs=1e-7)
    falling = descend(
        optax.sgd(lambda t: 1 / (t.astype(float) + 1)),
        lambda theta, t: theta - draws[:, t],
        np.zeros(4096),
        12,
    )
    close(np.mean(falling[-1] ** 2), 1 / 12, 1e-12)


# O3, O5, O12
def test_steps_of_gradient_descent_on_a_quadratic():
    a, b = np.diag([1.0, 4.0]), np.array([1.0, 2.0])
    start, bound = np.array([3.0, -1.0]), 4.0

    def f(t):
        return 0.5 * t @ a @ t - b @ t

    slope = a @ start - b
    (there,) = descend(optax.sgd(1 / bound), lambda t, _: a @ t - b, start, 1)
    assert f(start) - f(there) >= slope @ slope / (2 * bound) - 1e-12
    (exact,) = descend(optax.sgd(1 / bound), lambda t, _: bound * t - b, start, 1)
    close(exact, b / bound, 1e-12)
    far = descend(optax.sgd(2.1 / bound), lambda t, _: a @ t - b, start, 60)
    assert abs(far[-1, 1] - 0.5) > 100
    # Newton's matrix rate is there at once
    hessian = jax.jit(jax.hessian(lambda t: 0.5 * t @ jnp.asarray(a) @ t - jnp.asarray(b) @ t))(start)
    close(start - np.linalg.solve(hessian, slope), np.linalg.solve(a, b), 1e-12)
    # single rows at the optimum: the expected loss rises by α² (L/2) tr Cov(g)
    rows, alpha = np.array([-1.0, 0.5, 2.0]), 0.2
    mean = rows.mean()
    after = [descend(optax.sgd(alpha), lambda t, _, r=r: t - r, mean, 1)[0] for r in rows]

    def risk(t):
        return 0.5 * np.mean((t - rows) ** 2)

    close(np.mean([risk(t) for t in after]) - risk(mean), alpha**2 / 2 * rows.var(), 1e-14)


# O9
def test_adagrad_steps_shrink_as_one_over_root_t():
    rule = optax.adagrad(1.0, initial_accumulator_value=0.0, eps=0.0)
    path = descend(rule, lambda theta, t: np.array([3.0, -1e-4, 0.0]), np.zeros(3), 100)
    close(path[0], [-1, 1, 0], 1e-12)
    close(path[-1], [-18.5896038, 18.5896038, 0], 1e-7)


# O10, O11
def test_smoothed_second_moments_and_adam_with_its_correction():
    constant = lambda theta, t: np.array([-2.0])  # noqa: E731
    smoothed = descend(optax.rmsprop(1.0, decay=0.9, eps=1e-12), constant, np.zeros(1), 300)
    close(np.diff(smoothed[-2:], axis=0), 1, 1e-6)
    close(smoothed[0], 1 / np.sqrt(0.1), 1e-9)
    inside = descend(optax.rmsprop(1.0, decay=0.9, eps=0.6, eps_in_sqrt=True), constant, np.zeros(1), 1)
    close(inside[0], 2 / np.sqrt(0.4 + 0.6), 1e-12)
    # Optax corrects for the zero start, after which the first step is α; without, it would be 3.16228 α
    corrected = descend(optax.adam(1.0, eps=0.0), constant, np.zeros(1), 1)
    close(corrected[0], 1, 1e-6)
    assert (1 - 0.9) / np.sqrt(1 - 0.999) == pytest.approx(3.16227766, abs=1e-8)


# ---- 2.4 generalisation


# G1, G9
def test_the_empirical_risk_is_right_on_average():
    p = {(1, 1): 0.4, (1, -1): 0.1, (-1, 1): 0.2, (-1, -1): 0.3}  # of answer and guess
    wrong = 0.1 + 0.2
    expected = 0.0
    for sample in itertools.product(p, repeat=3):
        truth, guess = np.array(sample).T
        losses = 0.25 * (truth - guess) ** 2
        empirical = wald_interval(losses).estimate
        assert empirical == pytest.approx(zero_one_loss(truth, guess))
        expected += np.prod([p[pair] for pair in sample]) * empirical
    assert expected == pytest.approx(wrong)


# G19
def test_different_parameters_predict_the_same():
    rows = np.array([[1.0, 2.0, 2.0], [0.3, -1.0, -1.0], [2.0, 0.1, 0.1]])  # the last two are one feature
    weight, bias = np.array([[0.2, 1.0, -0.4], [-0.1, 0.3, 0.6]]), np.array([0.0, 0.3])
    energies_of = jax.jit(lambda m, row: m.energies(row))
    model = SoftmaxModel(jnp.asarray(weight), jnp.asarray(bias))
    moved = SoftmaxModel(
        jnp.asarray(weight + np.array([[0, 5.0, -5.0], [0, -2.0, 2.0]])), jnp.asarray(bias)
    )
    larger = SoftmaxModel(jnp.asarray(9 * weight), jnp.asarray(9 * bias))
    for row in rows:
        energies = np.asarray(energies_of(model, row))
        close(energies_of(moved, row), energies, 1e-12)
        assert np.argmin(energies_of(larger, row)) == np.argmin(energies)


# ---- 2.5 tuning


class Lottery(BaseEstimator):
    """A learner whose loss is what the table says for its setting and the rows it is tested on."""

    def __init__(self, setting=0):
        self.setting = setting

    def fit(self, X, y=None):
        self.rows_ = len(X)
        return self

    def score(self, X, y=None):
        return {"lucky": [1.0, 0.0, 0.0], "robust": [0.6, 0.5, 0.6]}[self.setting][int(X[0, 0])]


# H2, H3
def test_the_setting_that_is_best_on_average_is_chosen_and_fitted_again_on_all_rows():
    rows = np.repeat([[0.0], [1.0], [2.0]], 4, axis=0)
    search = GridSearchCV(Lottery(), {"setting": ["lucky", "robust"]}, cv=KFold(3)).fit(rows)
    assert search.best_params_ == {"setting": "robust"}
    one = GridSearchCV(
        Lottery(), {"setting": ["lucky", "robust"]}, cv=PredefinedSplit([0] * 4 + [-1] * 8)
    ).fit(rows)
    assert one.best_params_ == {"setting": "lucky"}
    assert one.best_estimator_.rows_ == 12  # training and validation rows


# H4
def test_random_search_hits_the_best_fifth_with_the_known_chance():
    runs, tries = 300, 5
    best = [
        max(s["u"] for s in ParameterSampler({"u": stats.uniform()}, tries, random_state=seed))
        for seed in range(runs)
    ]
    chance = 1 - 0.8**tries
    assert abs(np.mean(np.array(best) > 0.8) - chance) < 4 * np.sqrt(chance * (1 - chance) / runs)


# H6, H7, H8
def test_expected_improvement_and_the_settings_that_it_proposes():
    def improvement(mean, spread, best):
        return stats.norm(mean, spread).expect(lambda r: np.maximum(0, best - r), ub=best)

    close([improvement(0, 1, 0), improvement(1, 2, 0.5)], [0.3989422804, 0.5726893964], 1e-7)
    close(improvement(0.2, 0.05, 0.5), 0.3, 1e-6)  # almost certain
    gains, away = np.array([improvement(m, 1, 0) for m in (0.5, -0.5, 0.0)]), np.array([0.0, 2.0, 1.0])
    close(masses(0 * gains), 1 / 3, 1e-12)  # β = 0 is random search
    close(masses(1e6 * gains), [0, 1, 0], 1e-12)  # β → ∞ is greedy
    close(masses(gains), softmax(gains), 1e-12)
    close(masses(1e6 * gains - 1e9 * away), [1, 0, 0], 1e-12)  # and stays where it is if moving costs much


# H11
def test_the_slope_of_a_fit_in_its_penalty():
    x, y = np.array([[1.0, 0.5], [0.2, -1.0], [0.7, 0.3]]), np.array([1.0, -0.5, 0.4])

    def learn(penalty):
        return jnp.linalg.solve(jnp.asarray(x.T @ x) + penalty * jnp.eye(2), jnp.asarray(x.T @ y))

    theta, slope = (np.asarray(a) for a in jax.jit(lambda p: (learn(p), jax.jacfwd(learn)(p)))(0.3))
    close(slope, -np.linalg.solve(x.T @ x + 0.3 * np.eye(2), theta), 1e-12)


# ---- chapter 3


# N2
def test_activations_and_their_slopes():
    z = np.array([-1000.0, -2.0, -0.3, 0.0, 0.4, 1000.0])
    hidden, out = Linear(jnp.eye(1), jnp.zeros(1)), Linear(jnp.eye(1), jnp.zeros(1))

    @jax.jit
    def values(z):
        ours = MLP((hidden, out))
        functions = (jax.nn.sigmoid, jnp.tanh, jax.nn.relu, lambda v: ours(v[None])[0])
        return [jax.vmap(jax.value_and_grad(f))(z) for f in functions]

    sigmoid, tanh, relu, ours = ((np.asarray(v), np.asarray(d)) for v, d in values(z))
    with np.errstate(over="ignore"):
        close(sigmoid, (expit(z), expit(z) * expit(-z)), 1e-15)
    close(tanh, (np.tanh(z), 1 - np.tanh(z) ** 2), 1e-15)
    close(relu, (np.maximum(z, 0), z > 0), 0.0)
    # the library's rectifier is half-way at its corner
    close(ours, (np.maximum(z, 0), (np.sign(z) + 1) / 2), 0.0)


# N3
def test_layers_without_an_activation_are_one_matrix():
    network = MLP(
        (Linear(jnp.asarray(HIDDEN), jnp.asarray(OFFSET)), Linear(jnp.asarray(OUTER), X)), lambda a: a
    )
    x = np.array([0.3, -0.8])
    close(eqx.filter_jit(network)(x), x @ (HIDDEN @ OUTER) + OFFSET @ OUTER + np.asarray(X), 1e-14)


# N4, N5
def test_whitened_inputs_need_one_step_of_gradient_descent():
    rng = np.random.default_rng(0)
    raw = rng.normal(size=(12, 2)) @ np.array([[3.0, 1.0], [0.0, 0.2]]) + [20.0, -5.0]
    y = raw @ [0.4, -1.0] + rng.normal(size=12)

    @jax.jit
    def curvature(rows):
        def loss(theta):
            return 0.5 * jnp.mean((rows @ theta[:2] + theta[2] - jnp.asarray(y)) ** 2)

        return jax.hessian(loss)(jnp.zeros(3)), jax.grad(loss)(jnp.zeros(3))

    def hessian(rows):
        found, slope = (np.asarray(a) for a in curvature(rows))
        mean = rows.mean(axis=0)
        expected = np.block([[rows.T @ rows / 12, mean[:, None]], [mean[None], np.ones((1, 1))]])
        close(found, expected, 1e-9)
        return found, slope

    @jax.jit
    def prepared(rows, mean, covariance):
        centre, whiten = Affine.standardise(mean, jnp.ones(2)), TriangularAffine.whiten(mean, covariance)
        return jax.vmap(lambda r: (centre.forward(r)[0], whiten.forward(r)[0]))(rows)

    centred, white = prepared(raw, raw.mean(0), np.cov(raw.T, bias=True))
    found, slope = hessian(np.asarray(white))
    close(found, np.eye(3), 1e-10)
    conditions = [np.linalg.cond(hessian(rows)[0]) for rows in (raw, np.asarray(centred))]
    assert conditions[0] > 10 * conditions[1] > 100
    design = np.column_stack([white, np.ones(12)])
    close(-slope, np.linalg.lstsq(design, y, rcond=None)[0], 1e-9)


# N7
def test_layer_normalisation_can_erase_the_class():
    norm = eqx.filter_jit(eqx.nn.LayerNorm(2, eps=0.0, dtype=jnp.float64))
    close(norm(np.array([0.9, 0.0])), [1, -1], 1e-12)
    close(norm(np.array([2.0, 0.0])), [1, -1], 1e-12)
    close(norm(np.array([0.3, -1.0]) * 7 + 4), norm(np.array([0.3, -1.0])), 1e-12)


def _convolution(kernel, mode):
    layer = eqx.nn.Conv1d(1, 1, 3, padding=1, padding_mode=mode, use_bias=False, dtype=jnp.float64, key=KEY)
    return eqx.tree_at(lambda c: c.weight, layer, jnp.asarray(kernel)[None, None])


# N8, N9, N10
def test_a_convolution_layer_is_a_correlation_that_moves_with_its_input():
    apply, x = eqx.filter_jit(lambda layer, x: layer(x)), np.array([[1.0, 2.0, 3.0, 4.0]])
    zero = partial(apply, _convolution([1.0, 0.0, -1.0], "ZEROS"))
    close(zero(x), [[-2, -2, -2, 3]])
    close(apply(_convolution([0.0, 1.0, 0.0], "ZEROS"), x), x)
    around = partial(apply, _convolution([1.0, 0.5, -1.0], "CIRCULAR"))
    moved = np.roll(x, 1, axis=1)
    close(around(moved), np.roll(around(x), 1, axis=1), 1e-14)
    padded = zero(moved) - np.roll(zero(x), 1, axis=1)
    close(padded[0, 2:3], 0)
    assert abs(padded[0, 0]) > 1


# N10, N14, N15, U24
def test_attention_without_scale_permutes_with_its_input_and_masks_the_future():
    q, k, v = (jnp.asarray(a) for a in np.random.default_rng(0).normal(size=(3, 4, 2, 3)))

    @partial(jax.jit, static_argnames="is_causal")
    def attend(q, k, v, is_causal=False):
        with jax.numpy_dtype_promotion("standard"):
            return jax.nn.dot_product_attention(q, k, v, scale=1.0, is_causal=is_causal)

    found = attend(q, k, v)
    for head in range(2):
        weights = softmax(np.asarray(q)[:, head] @ np.asarray(k)[:, head].T, axis=1)
        close(found[:, head], weights @ np.asarray(v)[:, head], 1e-6)
    order = jnp.array([2, 0, 3, 1])
    close(attend(q[order], k[order], v[order]), found[order], 1e-6)
    close(attend(q, k[order], v[order]).sum(0), found.sum(0), 1e-6)
    close(attend(0 * q, k, v), jnp.broadcast_to(v.mean(0), v.shape), 1e-6)
    chosen = np.argmax(np.einsum("hd,khd->hk", q[0], k), axis=1)
    close(attend(1e4 * q, k, v)[0], np.asarray(v)[chosen, [0, 1]], 1e-6)
    past = attend(q, k, v, is_causal=True)
    later = attend(q, k.at[3].add(5.0), v.at[3].add(-9.0), is_causal=True)
    np.testing.assert_array_equal(past[:3], later[:3])
    close(past[0], v[0], 1e-6)


# N19
def test_rotary_positions_are_relative():
    turn = eqx.nn.RotaryPositionalEmbedding(4, dtype=jnp.float64)
    q, k = (jnp.asarray(a) for a in np.random.default_rng(0).normal(size=(2, 4)))
    turned = jax.jit(lambda a: turn(jnp.broadcast_to(a, (20, 4))))
    turned_q, turned_k = np.asarray(turned(q)), np.asarray(turned(k))
    close(turned_q[3] @ turned_k[7], turned_q[13] @ turned_k[17], 1e-10)
    assert abs(float(turned_q[3] @ turned_k[7] - turned_q[3] @ turned_k[9])) > 0.01
    close(np.linalg.norm(turned_q, axis=1), np.linalg.norm(q), 1e-12)
    close(turned_q[0], q, 1e-12)


# ---- chapter 4


def spheres():
    return Mixture(jnp.full(3, 1 / 3), Gaussian(jnp.asarray(CENTRES), Spherical(jnp.ones(3), dim=2)))


ROWS = np.array([[0.4, 0.1], [2.0, 2.0], [-1.0, 1.2], [3.0, 0.0]])


def shares(rows):
    """Responsibilities of three unit spheres of equal weight."""
    return softmax(-0.5 * np.sum((rows[:, None] - CENTRES) ** 2, axis=2), axis=1)


# P2
def test_energy_from_probabilities_and_back():
    p = np.array([0.1, 0.6, 0.3])
    for log_z in (0.0, 4.0, -900.0):
        close(masses(np.log(p) + log_z), p, 1e-12)


# P4, P5, P9, P10
def test_uniform_mixture_of_spheres_its_shares_and_its_tight_bound():
    model = spheres()
    found = jax.jit(jax.vmap(lambda x: (model.posterior(x).probabilities, model.log_prob(x))))(ROWS)
    logs = np.stack([multivariate_normal(c).logpdf(ROWS) for c in CENTRES], axis=1) - np.log(3)
    close(found[0], shares(ROWS), 1e-12)
    close(found[0], np.exp(logs - logsumexp(logs, axis=1, keepdims=True)), 1e-12)
    close(found[1], logsumexp(logs, axis=1), 1e-12)
    # the bound at these shares is tight with − log M, and beyond the likelihood by 2 log M with + log M
    a = shares(ROWS)
    bound = np.sum(a * (logs - np.log(a)), axis=1)
    close(bound, found[1], 1e-12)
    close(np.sum(a * (logs + 2 * np.log(3) - np.log(a)), axis=1) - found[1], 2.1972245773)


# P11, P13
def test_the_m_step_is_a_gradient_step_of_the_right_length():
    model, batch = spheres(), Batch(jnp.asarray(ROWS), jnp.full(4, 0.25))

    @jax.jit
    def steps(rows):
        slope = jax.grad(negative_log_likelihood)(model, batch, KEY)
        statistics, _ = model.expect(rows, jnp.ones(4), temperature=jnp.array(1.0), incomplete=False)
        return slope.components.mean, model.maximise(statistics).components.mean

    slope, one = steps(ROWS)
    a = shares(ROWS)
    means = a.T @ ROWS / a.sum(axis=0)[:, None]
    close(CENTRES - 4 / a.sum(axis=0)[:, None] * slope, means, 1e-10)
    # and there the expected energy has no slope
    close(np.einsum("nk,nkd->kd", a, ROWS[:, None] - means), 0, 1e-12)
    close(one, means, 1e-10)


# P3, P14
def test_a_mixture_is_sampled_by_its_causes():
    model, n = spheres(), 4000
    draws = np.asarray(jax.jit(jax.vmap(lambda k: model.sample(key=k)))(jax.random.split(KEY, n)))
    covariance = np.eye(2) + np.cov(CENTRES.T, bias=True)
    close(draws.mean(0), CENTRES.mean(0), 4.5 * np.sqrt(covariance.max() / n))
    close(np.cov(draws.T), covariance, 4.5 * covariance.max() * np.sqrt(4 / n))


# P17
def test_bound_of_probabilistic_pca_with_a_unit_posterior():
    # z ~ N(0, σ²I), x | z ~ N(Wz + b, I), q = N(μ, I); the library's code is z/σ
    rng = np.random.default_rng(0)
    w, b, mu, x, s = (
        rng.normal(size=(3, 2)),
        rng.normal(size=3),
        rng.normal(size=2),
        rng.normal(size=3),
        1.7,
    )
    model = LinearGaussian(jnp.asarray(s * w), jnp.asarray(b), Spherical(jnp.array(1.0), dim=3))
    q = Gaussian(jnp.asarray(mu / s), Spherical(jnp.array(1 / s**2), dim=2))
    recognition = Amortised(lambda _: q, expectation=Quadratic())
    free, log_p = jax.jit(
        lambda v: (free_energy(model.energy, recognition, v, key=KEY), model.log_prob(v))
    )(x)
    gap = x - b - w @ mu
    reconstruction = -0.5 * (gap @ gap + np.trace(w.T @ w) + 3 * np.log(2 * np.pi))
    divergence = 0.5 * ((2 + mu @ mu) / s**2 - 2 + 4 * np.log(s))
    close(-free, reconstruction - divergence, 1e-10)
    z = rng.normal(size=(20_000, 2)) + mu
    terms = multivariate_normal(np.zeros(3)).logpdf(x - b - z @ w.T) - divergence
    assert abs(terms.mean() + free) < 4.5 * terms.std() / np.sqrt(20_000)
    exact = multivariate_normal(b, np.eye(3) + s**2 * w @ w.T).logpdf(x)
    close(log_p, exact, 1e-10)
    assert -free < exact


# P19
def test_a_step_of_em_for_probabilistic_pca_solves_its_normal_equations():
    rng = np.random.default_rng(0)
    x = (
        rng.normal(size=(16, 1)) @ np.array([[1.0, -0.5, 2.0]])
        + 0.5 * rng.normal(size=(16, 3))
        + [1.0, 0, -1]
    )
    start = LinearGaussian(jnp.ones((3, 1)), jnp.zeros(3), Spherical(jnp.array(1.0), dim=3))

    @jax.jit
    def step(model, rows):
        statistics, _ = model.expect(rows, jnp.ones(16), temperature=jnp.array(1.0), incomplete=False)
        return model.maximise(statistics)

    new, w = step(start, x), np.ones((3, 1))
    spread = np.linalg.inv(w.T @ w + np.eye(1))
    code = x @ w @ spread  # the posterior means under the start, whose b is 0
    # E[(x − Wz − b) z] = 0 and E[x − Wz − b] = 0 with the new W, b and the old posterior
    residual = x - code @ np.asarray(new.loading).T - np.asarray(new.mean)
    close(residual.mean(0), 0, 1e-10)
    close(residual.T @ code / 16 - np.asarray(new.loading) @ spread, 0, 1e-10)


# P20
def test_minibatches_of_probabilistic_pca_pull_to_where_em_ends():
    rng = np.random.default_rng(0)
    x = (
        rng.normal(size=(16, 1)) @ np.array([[1.0, -0.5, 2.0]])
        + 0.5 * rng.normal(size=(16, 3))
        + [1.0, 0, -1]
    )

    @jax.jit
    def slopes(rows, mean, scatter):
        best = ppca_closed_form(mean, scatter, 1)
        parts = rows.reshape(4, 4, 3)
        of = lambda part: jax.grad(negative_log_likelihood)(best, Batch(part, jnp.full(4, 1 / 4)), KEY)  # noqa: E731
        return jax.vmap(of)(parts)

    found = slopes(x, x.mean(0), np.cov(x.T, bias=True))
    for part in (found.loading, found.mean, found.noise.variance):
        assert np.abs(part).max() > 0.01  # each minibatch pulls somewhere, together nowhere
        close(np.mean(part, axis=0), 0, 1e-10)


# P23
def test_a_nonlinear_decoder_mixes_infinitely_many_gaussians():
    # z ↦ 3 tanh(50 z) is nearly ±3: the marginal has two modes
    decoder = MLP(
        (Linear(jnp.full((1, 1), 50.0), jnp.zeros(1)), Linear(jnp.full((1, 1), 3.0), jnp.zeros(1))),
        jnp.tanh,
    )
    encoder = GaussianEncoder(MLP((Linear(jnp.zeros((1, 2)), jnp.zeros(2)),)))
    model = VAE(
        encoder, decoder, Given(Gaussian(jnp.zeros(1), Diagonal(jnp.array([0.25])))), StandardNormal(1)
    )
    draws = np.asarray(jax.jit(jax.vmap(lambda k: model.sample(key=k)))(jax.random.split(KEY, 2000)))[:, 0]

    def law(x):
        z = stats.norm.ppf((np.arange(400) + 0.5) / 400)
        return stats.norm.cdf((np.asarray(x)[:, None] - 3 * np.tanh(50 * z)) / 0.5).mean(axis=1)

    assert stats.kstest(draws, law).pvalue > 1e-3
    assert np.mean(np.abs(draws) < 1) < 0.05 < 0.3 < np.mean(np.abs(draws - 3) < 1)


# ---- chapter 5


# U3
def test_a_product_of_experts_is_sharp_and_has_a_veto_and_a_mixture_has_neither():
    grid = np.linspace(-9, 11, 2001)

    @jax.jit
    def experts(grid):
        unit = Full(jnp.eye(1))
        both, _ = product(Gaussian(jnp.zeros(1), unit), Gaussian(jnp.full(1, 2.0), unit))
        mixed = Mixture(
            jnp.array([0.5, 0.5]), Gaussian(jnp.array([[0.0], [2.0]]), Full(jnp.ones((2, 1, 1))))
        )
        moments = jnp.stack([both.mean[0], both.covariance.matrix()[0, 0], entropy(both)])
        return moments, jax.vmap(mixed.log_prob)(grid[:, None])

    (mean, variance, sharp), log_p = (np.asarray(a) for a in experts(grid))
    close([mean, variance], [1.0, 0.5], 1e-12)
    spread = -integrate.trapezoid(np.exp(log_p) * log_p, grid)
    alone = 0.5 * np.log(2 * np.pi * np.e)
    assert sharp < alone < spread < alone + np.log(2)
    # one expert calls the second outcome impossible
    first, second = np.array([0.0, np.inf]), np.array([2.0, 0.1])
    assert masses(-first - second).tolist() == [1.0, 0.0]
    assert np.mean([masses(-first), masses(-second)], axis=0)[1] > 0.4


# U5, U6
def test_a_chain_can_be_stationary_without_being_reversible():
    cycle = np.array([[0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.8, 0.1, 0.1]])
    law = np.asarray(stationary(jnp.asarray(cycle)))
    close(law, 1 / 3, 1e-12)
    values, vectors = np.linalg.eig(cycle.T)
    left = np.real(vectors[:, np.argmax(np.real(values))])
    close(law, left / left.sum(), 1e-10)
    flow = law[:, None] * cycle
    assert np.abs(flow - flow.T).max() > 0.2
    with pytest.raises(ValueError, match="not unique"):
        stationary(jnp.eye(2))


# U8, and McKinzie M11, Q1 to Q4
def test_gibbs_accepts_always_and_keeps_the_target():
    coupling, field = (
        np.array([[0.0, 1.2, -0.7], [0.0, 0.0, 0.9], [0.0, 0.0, 0.0]]),
        np.array([0.3, -0.8, 0.5]),
    )
    states = np.asarray(binary_states(3))
    p = softmax(np.einsum("si,ij,sj->s", states, coupling, states) + states @ field)

    @partial(jax.jit, static_argnums=0)
    def given(site, state):
        def energy(value):
            s = state.at[site].set(value)
            return -(s @ jnp.asarray(coupling) @ s) - jnp.asarray(field) @ s

        return posterior_by_enumeration(energy, jnp.array([0.0, 1.0])).probabilities

    sites = np.zeros((3, 8, 8))
    for i, site in itertools.product(range(8), range(3)):
        chances = np.asarray(given(site, jnp.asarray(states[i])))
        # a logistic regression on the other units
        gap = coupling[site] @ states[i] + coupling[:, site] @ states[i] + field[site]
        assert chances[1] == pytest.approx(expit(gap), rel=1e-12)
        for value in (0, 1):
            there = states[i].copy()
            there[site] = value
            j = int(np.flatnonzero((states == there).all(axis=1))[0])
            sites[site, i, j] = chances[value]
            # p(x′) q(x | x′) / p(x) q(x′ | x), which Metropolis and Hastings would accept with
            back = np.asarray(given(site, jnp.asarray(there)))[int(states[i, site])]
            assert p[j] * back / (p[i] * chances[value]) == pytest.approx(1, rel=1e-12)
    # a random site keeps the target and is reversible; a sweep keeps it too and is not
    random, sweep = sites.mean(axis=0), sites[0] @ sites[1] @ sites[2]
    for kernel, most in ((random, 1e-15), (sweep, np.inf)):
        close(kernel.sum(axis=1), 1, 1e-12)
        close(p @ kernel, p, 1e-14)
        flow = p[:, None] * kernel
        assert np.abs(flow - flow.T).max() < most
    assert np.abs(flow - flow.T).max() > 0.01


class TwoModes(eqx.Module):
    """e(z) = −log of an even mixture of N(−3, ½²) and N(3, ½²)."""

    def energy(self, x, z):
        return -jnp.logaddexp(-2 * (z[0] + 3) ** 2, -2 * (z[0] - 3) ** 2) + x[0]


# U14
def test_the_reverse_divergence_seeks_one_mode():
    model, x = TwoModes(), jnp.zeros(1)
    q = jax.jit(lambda: LocalGaussian(1, learning_rate=0.2)(lambda z: model.energy(x, z), x))()
    # a start at zero is a saddle of the exact objective: the draws decide the side
    assert abs(abs(float(q.mean[0])) - 3) < 0.1
    assert float(q.covariance.variance[0]) == pytest.approx(0.25, rel=0.1)
    # −E_q log p̃ − H(q) = KL(q ‖ p) − log Z
    log_z = np.log(2 * np.sqrt(2 * np.pi * 0.25))

    def target(z):
        return np.logaddexp(-2 * (z + 3) ** 2, -2 * (z - 3) ** 2)

    grid = np.linspace(-8, 8, 4001)
    law = stats.norm(3.0, 0.6)
    free = integrate.trapezoid(law.pdf(grid) * -target(grid), grid) - law.entropy()
    divergence = integrate.trapezoid(law.pdf(grid) * (law.logpdf(grid) - target(grid) + log_z), grid)
    close(free, divergence - log_z, 1e-5)
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    exact = weights / weights.sum() @ np.array([-target(3.0 + 0.6 * n) for n in nodes]) - law.entropy()
    close(exact, free, 1e-5)


# U22, U26
def test_a_chain_has_exact_probabilities_that_its_samples_follow():
    model = MarkovChain(jnp.array([[0.7, 0.3]]), jnp.array([[[0.9, 0.1], [0.4, 0.6]]]))
    paths = np.array(list(itertools.product([0.0, 1.0], repeat=3)))
    p = np.exp(jax.jit(jax.vmap(lambda v: model.log_prob(one_series(v[:, None]))))(jnp.asarray(paths)))
    by_hand = [
        [0.7, 0.3][int(a)]
        * [[0.9, 0.1], [0.4, 0.6]][int(a)][int(b)]
        * [[0.9, 0.1], [0.4, 0.6]][int(b)][int(c)]
        for a, b, c in paths
    ]
    close(p, by_hand, 1e-12)
    close(p.sum(), 1, 1e-12)
    draws = jax.jit(jax.vmap(lambda k: model.sample(3, key=k)))(jax.random.split(KEY, 4000))
    counts = np.bincount((np.asarray(draws).reshape(4000, 3) @ [4, 2, 1]).astype(int), minlength=8)
    assert stats.chisquare(counts, 4000 * p / p.sum()).pvalue > 1e-3


# U25
def test_the_first_order_autoregression_has_its_variance_and_correlations():
    phi, s2 = 0.6, 0.8
    variance = stationary_covariance(jnp.array([[phi]]), jnp.array([[s2]]))
    close(variance, s2 / (1 - phi**2), 1e-12)
    # as AR(2) with a second coefficient of zero the neighbours have the correlation φ
    pair = stationary_covariance(jnp.array([[phi, 0.0], [1.0, 0.0]]), jnp.diag(jnp.array([s2, 0.0])))
    close(pair, s2 / (1 - phi**2) * np.array([[1, phi], [phi, 1]]), 1e-10)


# ---- chapter 6

LOGITS, REWARD = np.array([0.2, -0.3, 0.5]), np.array([1.0, 5.0, -2.0])


def policy(logits, expectation, reward, key):
    return expectation(lambda y: jnp.asarray(reward)[y], Finite(jax.nn.softmax(logits)), key=key)


# R1, R2
def test_the_exact_policy_gradient():
    exact = Enumeration(jnp.arange(3))
    value, slope = jax.jit(jax.value_and_grad(lambda v: policy(v, exact, REWARD, KEY)))(LOGITS)
    p = softmax(LOGITS)
    close(value, p @ REWARD, 1e-12)
    close(value, 0.4508660642)
    close(slope, [0.18574479, 0.93329693, -1.11904172], 1e-8)


@eqx.filter_jit
def estimates(logits, reward, baseline, keys):
    return jax.vmap(lambda k: jax.value_and_grad(policy)(logits, ScoreFunction(1, baseline), reward, k))(
        keys
    )


# R3, R4, R6, R7, R8
@pytest.mark.parametrize(
    ("logits", "reward", "baseline", "variance"),
    [
        (LOGITS, REWARD, 0.0, 3.7966578),
        (LOGITS, REWARD, 0.4508660642, 3.2047279),
        (LOGITS, REWARD, 1.2591562170, 2.7898473),
        # the mean reward as baseline can harm: two actions, of which the best baseline leaves no variance
        (np.log([0.9, 0.1, 1e-300]), np.array([1.0, 0.0, 7.0]), 0.0, 0.018 - 0.0162),
        (np.log([0.9, 0.1, 1e-300]), np.array([1.0, 0.0, 7.0]), 0.9, 0.1314 - 0.0162),
        (np.log([0.9, 0.1, 1e-300]), np.array([1.0, 0.0, 7.0]), 0.1, 0.0),
    ],
)
def test_single_draws_are_right_on_average_and_have_the_known_variance(logits, reward, baseline, variance):
    values, slopes = estimates(
        jnp.asarray(logits), jnp.asarray(reward), jnp.asarray(baseline), jax.random.split(KEY, 60)
    )
    values, slopes = np.asarray(values), np.asarray(slopes)
    p = softmax(logits)
    # which action was drawn is seen by its reward: what each gives is weighed by its probability
    each = {float(v): g for v, g in zip(values, slopes, strict=True)}
    drawn = [i for i in range(3) if p[i] > 1e-9]
    mean = sum(p[i] * each[reward[i]] for i in drawn)
    close(mean, p * (reward - p @ reward), 1e-8)
    second = sum(p[i] * each[reward[i]] @ each[reward[i]] for i in drawn)
    close(second - mean @ mean, variance, 1e-6)
    square = np.sum((np.eye(3) - p) ** 2, axis=1)  # ‖∇ log p(y)‖²
    if baseline in (1.2591562170, 0.1):
        assert (p * reward) @ square / (p @ square) == pytest.approx(baseline, abs=1e-6)


# S1
def test_the_average_prediction_loses_less_by_the_variance_of_the_predictions():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 1)), rng.normal(size=30)
    bag = BaggingRegressor(DecisionTreeRegressor(max_depth=2), 5, random_state=0).fit(x, y)
    each = np.array([tree.predict(x) for tree in bag.estimators_])
    close(bag.predict(x), each.mean(axis=0), 1e-12)
    gain = np.mean((y - each) ** 2) - np.mean((y - bag.predict(x)) ** 2)
    assert gain == pytest.approx(each.var(axis=0).mean(), rel=1e-10)
    assert gain > 0


# S3, S4
def test_tempered_posterior_of_a_mean_and_its_predictive():
    x, beta, tau2 = np.array([0.4, 1.5, -0.2]), 0.7, 2.0

    @jax.jit
    def update(shift, precision, noise, new):
        prior = Information(jnp.zeros(1), jnp.full((1, 1), 1 / tau2))
        posterior = product(prior, Information(shift, precision))[0].gaussian()
        ahead = affine(posterior, jnp.eye(1), jnp.zeros(1), Spherical(noise, dim=1))
        moments = posterior.covariance.matrix(), ahead.mean, ahead.covariance.matrix()
        return posterior.mean, *moments, ahead.log_prob(new)

    found = update(
        np.array([beta * x.sum()]), np.full((1, 1), beta * 3), np.array(1 / beta), np.array([0.9])
    )
    mean, spread, mean_ahead, spread_ahead, log_ahead = (np.asarray(a) for a in found)
    variance = 1 / (beta * 3 + 1 / tau2)
    close(mean, beta * x.sum() * variance, 1e-12)
    close(spread, variance, 1e-12)
    # the same density on a grid
    grid = np.linspace(-6, 7, 4001)
    weight = np.exp(-beta * 0.5 * np.sum((grid[:, None] - x) ** 2, axis=1) - grid**2 / (2 * tau2))
    weight /= integrate.trapezoid(weight, grid)
    close(integrate.trapezoid(weight * grid, grid), mean[0], 1e-8)
    close([mean_ahead[0], spread_ahead[0, 0]], [mean[0], variance + 1 / beta], 1e-12)
    density = integrate.trapezoid(weight * stats.norm.pdf(0.9, grid, np.sqrt(1 / beta)), grid)
    close(log_ahead, np.log(density), 1e-8)


# S3, S4
def test_any_loss_has_a_tempered_posterior_and_probabilities_are_averaged():
    x, beta, tau2 = np.array([0.4, 1.5, -0.2]), 0.7, 2.0
    loss = fe.Energy(lambda t: 0.5 * jnp.sum((jnp.asarray(x) - t) ** 2), Reals(()))
    prior = fe.Energy(lambda t: 0.5 * t**2 / tau2, Reals(()))
    found = fe.infer(loss.tempered(1 / beta) + prior, method=inference.Laplace(), key=0)
    variance = 1 / (beta * 3 + 1 / tau2)
    mean = beta * x.sum() * variance

    def told(t):
        log_density = -beta * (0.9 - t) ** 2 / 2 + 0.5 * np.log(beta / (2 * np.pi))
        return jnp.stack([t, (t - mean) ** 2, jnp.exp(log_density), log_density])

    value, error = (np.asarray(part) for part in found.expect(told))
    exact = stats.norm.pdf(0.9, mean, np.sqrt(variance + 1 / beta))
    assert (np.abs(value[:3] - np.array([mean, variance, exact])) < 4.5 * error[:3]).all()
    # the average of log-probabilities is another number, below it (Jensen)
    assert np.exp(value[3]) < exact - 4.5 * error[2]
    # the logistic loss has no such form: quadrature
    signs = np.array([1.0, 1.0, -1.0, 1.0])
    steep = fe.Energy(lambda t: jnp.sum(jnp.logaddexp(0.0, -jnp.asarray(signs) * t)), Reals(()))
    found = fe.infer(steep.tempered(1 / beta) + prior, method=inference.InverseTransform(), key=0)
    grid = np.linspace(-9, 9, 4001)
    weight = np.exp(-beta * np.logaddexp(0, -signs * grid[:, None]).sum(axis=1) - grid**2 / (2 * tau2))
    weight /= weight.sum()
    chance, error = found.expect(jax.nn.sigmoid)
    assert abs(chance - weight @ expit(grid)) < 4.5 * error


class Slopes(eqx.Module):
    """y = w·x."""

    weight: jax.Array


# S5
def test_the_mode_of_the_posterior_of_a_linear_regression_is_ridge():
    rng = np.random.default_rng(0)
    x, y, tau2 = rng.normal(size=(8, 2)), rng.normal(size=8), 0.5
    objective = MAP(
        lambda m, batch, key: batch.mean(0.5 * (batch.x[1] - batch.x[0] @ m.weight) ** 2),
        lambda m: -0.5 * jnp.sum(m.weight**2) / tau2,
        8,
    )
    batch = Batch((jnp.asarray(x), jnp.asarray(y)), jnp.full(8, 1 / 8))
    ridge = Ridge(alpha=1 / tau2, fit_intercept=False).fit(x, y).coef_
    slope = jax.jit(jax.grad(lambda weight: objective(Slopes(weight), batch, KEY)))
    close(slope(ridge), 0, 1e-12)
    close(slope(ridge + np.array([0.0, 0.1])), (x.T @ x / 8 + np.eye(2) / tau2 / 8) @ [0.0, 0.1], 1e-12)


# S9, S10, S11
def test_boosting_fits_residuals_and_a_stump_a_step():
    x = np.arange(8.0)[:, None]
    step = np.where(x[:, 0] < 3, -1.0, 2.0)
    stump = DecisionTreeRegressor(max_depth=1).fit(x, step)
    close(stump.predict(x), step, 0.0)
    y = np.array([0.3, -1.0, 0.8, 2.0, 1.1, -0.4, 0.9, 0.2])
    boost = GradientBoostingRegressor(n_estimators=4, learning_rate=1.0, max_depth=1).fit(x, y)
    path = [np.full(8, y.mean()), *boost.staged_predict(x)]
    for before, after in itertools.pairwise(path):
        r, g = y - before, after - before
        # the line search along g gives one, and the loss falls by ⟨r, g⟩² / ‖g‖²
        assert r @ g / (g @ g) == pytest.approx(1)
        assert np.sum(r**2) - np.sum((y - after) ** 2) == pytest.approx((r @ g) ** 2 / (g @ g))


# M1
def test_leaving_one_out_of_ridge_by_its_hat_matrix():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(7, 2)), rng.normal(size=7)
    out = cross_val_predict(Ridge(alpha=0.5, fit_intercept=False), x, y, cv=LeaveOneOut())
    hat = x @ np.linalg.solve(x.T @ x + 0.5 * np.eye(2), x.T)
    close(y - out, (y - hat @ y) / (1 - np.diag(hat)), 1e-12)


# D3, D4, D6
def test_two_modes_need_two_components():
    def halves(spread):
        return Mixture(
            jnp.array([0.5, 0.5]),
            Gaussian(jnp.array([[-1.0], [1.0]]), Spherical(jnp.full(2, spread**2), dim=1)),
        )

    keys = jax.random.split(KEY, 2000)
    log_p, draws = jax.jit(
        lambda y: (jax.vmap(halves(0.5).log_prob)(y), jax.vmap(lambda k: halves(0.5).sample(key=k))(keys))
    )(np.array([[0.0], [1.0]]))
    close(-log_p, [2.2257913526, 0.9186031268])
    # of answers ±1 one Gaussian makes 0 ± 1
    single = stats.norm(0.0, 1.0)
    close(-single.logpdf([-1.0, 1.0]).mean(), 1.4189385332)
    # moments: the mean of the means, and their spread beside the noise
    assert abs(draws.mean()) < 4.5 * np.sqrt(1.25 / 2000)
    assert abs(draws.var() - 1.25) < 4.5 * np.sqrt((3 * 0.25**2 + 6 * 0.25 + 1 - 1.25**2) / 2000)


# K1
def test_regression_reads_correlations():
    cov = np.array([[2.0, 0.4, 0.7], [0.4, 1.0, -0.3], [0.7, -0.3, 1.5]])
    both = Gaussian(jnp.zeros(3), Full(jnp.asarray(cov)))
    mean = jax.jit(lambda value: conditional(both, [0, 1], value).mean[0])
    slopes = [float(mean(e)) for e in np.eye(2)]
    close(slopes, np.linalg.solve(cov[:2, :2], cov[:2, 2]), 1e-12)


# K2, K4
def test_a_confounder_makes_dependence_without_a_cause():
    z, x, y = np.array(list(itertools.product([0, 1], repeat=3))).T
    agree = np.log([0.1, 0.9])
    p = masses(np.log(0.5) + agree[(z == x) * 1] + agree[(z == y) * 1])
    given = x == 1
    close(p[given] @ y[given] / p[given].sum(), 0.82, 1e-12)
    # set by hand, x has no parent: its factor is left out
    done = masses(agree[(z == y) * 1] + np.where(given, 0.0, -np.inf))
    close(done @ y, 0.5, 1e-12)


# K3, K4, K5
def test_a_collider_makes_its_causes_dependent():
    b, e = np.array(list(itertools.product([0, 1], repeat=2))).T  # burglary, earthquake
    rare = np.log([0.9, 0.1])
    prior = rare[b] + rare[e]
    alarm = prior + np.where(b + e > 0, 0.0, -np.inf)
    log_z = jax.jit(lambda e: log_partition_by_enumeration(lambda i: e[i], jnp.arange(4)))
    close(np.exp(log_z(-alarm)), 0.19, 1e-12)
    p = masses(alarm)
    close(p @ b, 0.5263158, 1e-7)
    close(p[3] / (p[1] + p[3]), 0.1, 1e-12)  # the earthquake explains the alarm
    covariance = p @ (b * e) - (p @ b) * (p @ e)
    close(covariance, -0.2243767, 1e-7)
    close(covariance / (p @ b * (1 - p @ b)), -0.9, 1e-12)
    # dependence is information: none before the alarm, some after (in a hundred nights, nineteen with one)
    before, after = np.array([[81, 9], [9, 1]]), np.array([[0, 9], [9, 1]])
    close(before / 100, np.exp(prior).reshape(2, 2), 1e-12)
    close(after / 19, p.reshape(2, 2), 1e-12)
    close(mutual_info_score(None, None, contingency=before), 0, 1e-12)
    independent = np.outer(after.sum(1), after.sum(0)).ravel()
    close(
        mutual_info_score(None, None, contingency=after), stats.entropy(after.ravel(), independent), 1e-12
    )
    # an earthquake made by hand says nothing about burglars
    close(masses(rare[b] + np.where(e == 1, 0.0, -np.inf)) @ b, 0.1, 1e-12)
