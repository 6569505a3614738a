"""Negative phases: gradients against enumeration and finite differences, chains against matrices."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats
from scipy.special import logsumexp

from freeenergy.distributions import Bernoulli
from freeenergy.learning import (
    AbstractAnswerPhase,
    AbstractNegativePhase,
    Argmin,
    Batch,
    Boltzmann,
    ConditionalContrastive,
    Contrastive,
    ExactEnumeration,
    GibbsFromData,
    Gradient,
    LongChain,
    Margin,
    PersistentChains,
    fit,
)
from freeenergy.models import Harmonium, SoftmaxModel, Units

STATES = np.array(list(itertools.product([0.0, 1.0], repeat=3)))
HIDDEN = np.array(list(itertools.product([0.0, 1.0], repeat=2)))
# unlike the model: two of the eight states hold most of the mass
DATA = np.array([0.4, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.3])


def parameters(seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=3), rng.normal(size=2), rng.normal(size=(3, 2))


def rbm(b, c, w):
    return Harmonium(Units(Bernoulli, jnp.asarray(b)), Units(Bernoulli, jnp.asarray(c)), jnp.asarray(w))


def table(b, c, w):
    """p(x, z), by enumeration."""
    logs = STATES @ w @ HIDDEN.T + (STATES @ b)[:, None] + (HIDDEN @ c)[None, :]
    return np.exp(logs - logsumexp(logs))


def sweep_matrix(b, c, w):
    joint = table(b, c, w)
    return (joint / joint.sum(axis=1, keepdims=True)) @ (joint / joint.sum(axis=0)).T


def phase_gradients(x_mass, b, c, w):
    """Σ_x mass(x) ∇F(x) for (b, c, W), through the moments of p(z | x)."""
    joint = table(b, c, w)
    z_mean = (joint / joint.sum(axis=1, keepdims=True)) @ HIDDEN
    return -x_mass @ STATES, -x_mass @ z_mean, -np.einsum("s,sv,sh->vh", x_mass, STATES, z_mean)


def flat(parts):
    return np.concatenate([np.ravel(p) for p in parts])


def gradient_of(objective, model, batch, key, state=()):
    loss = eqx.filter_jit(eqx.filter_grad(lambda m: objective(m, batch, state, key=key)[0]))
    gradient = loss(model)
    return flat((gradient.visible.bias, gradient.hidden.bias, gradient.coupling))


def all_states():
    return Batch(jnp.asarray(STATES), jnp.asarray(DATA))


def test_exact_enumeration_gives_the_gradient_of_the_likelihood():
    b, c, w = parameters()
    objective = Contrastive(ExactEnumeration(jnp.asarray(STATES)))
    found = gradient_of(objective, rbm(b, c, w), all_states(), jax.random.key(0))

    def loss(theta):
        joint = table(theta[:3], theta[3:5], theta[5:].reshape(3, 2))
        return -DATA @ np.log(joint.sum(axis=1))

    theta, h = flat((b, c, w)), 1e-5
    finite = [(loss(theta + h * e) - loss(theta - h * e)) / (2 * h) for e in np.eye(len(theta))]
    np.testing.assert_allclose(found, finite, atol=1e-9)
    # expected statistics under the model minus those under data and posterior
    model = table(b, c, w).sum(axis=1)
    moments = flat(phase_gradients(DATA, b, c, w)) - flat(phase_gradients(model, b, c, w))
    np.testing.assert_allclose(found, moments, atol=1e-14)


def test_exact_gradient_vanishes_at_the_model_distribution():
    b, c, w = parameters()
    batch = Batch(jnp.asarray(STATES), jnp.asarray(table(b, c, w).sum(axis=1)))
    objective = Contrastive(ExactEnumeration(jnp.asarray(STATES)))
    found = gradient_of(objective, rbm(b, c, w), batch, jax.random.key(0))
    np.testing.assert_allclose(found, 0, atol=1e-15)


def test_contrastive_divergence_approaches_the_likelihood_gradient():
    b, c, w = parameters()
    sweep, model = sweep_matrix(b, c, w), table(b, c, w).sum(axis=1)
    positive = flat(phase_gradients(DATA, b, c, w))
    exact = positive - flat(phase_gradients(model, b, c, w))
    reached = {k: DATA @ np.linalg.matrix_power(sweep, k) for k in (0, 1, 2, 5, 20)}
    expected = {k: positive - flat(phase_gradients(reached[k], b, c, w)) for k in (1, 2, 5, 20)}
    errors = [np.linalg.norm(expected[k] - exact) for k in (1, 2, 5, 20)]
    assert errors[0] > 3 * errors[1] > 9 * errors[2]
    assert errors[3] < 1e-9
    cosine = expected[1] @ exact / np.linalg.norm(expected[1]) / np.linalg.norm(exact)
    assert cosine > 0.8
    # KL(pⁿ ‖ p^∞) never grows
    divergences = [stats.entropy(reached[k], model) for k in (0, 1, 2, 5)]
    assert np.all(np.diff(divergences) < 0)

    # the objective's own gradient, over many copies of the data, is that expectation
    copies = 4000
    batch = Batch(
        jnp.asarray(np.repeat(STATES, copies, axis=0)), jnp.asarray(np.repeat(DATA / copies, copies))
    )
    harmonium = rbm(b, c, w)
    for k in (1, 2):
        run = eqx.filter_jit(lambda m, key, k=k: GibbsFromData(k)(m, batch, (), key=key))
        x, weight, _ = run(harmonium, jax.random.key(k))
        mass = np.bincount((np.asarray(x) @ [4, 2, 1]).astype(int), weights=weight, minlength=8)
        # each start contributes copies of weight DATA / copies
        arrival = np.linalg.matrix_power(sweep, k)
        stderr = np.sqrt((DATA**2) @ (arrival * (1 - arrival)) / copies)
        np.testing.assert_array_less(np.abs(mass - reached[k]), 4.5 * stderr)
        found = gradient_of(Contrastive(GibbsFromData(k)), harmonium, batch, jax.random.key(k))
        np.testing.assert_allclose(found, expected[k], atol=0.02)


def test_contrastive_gradient_is_positive_minus_negative_whatever_the_rows_weigh():
    b, c, w = parameters(1)
    weight = jnp.asarray(3 * DATA)
    batch = Batch(jnp.asarray(STATES), weight)
    negatives = np.array([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]])

    class Fixed(AbstractNegativePhase):
        def init(self, model, batch, *, key):
            return 0

        def __call__(self, model, batch, state, *, key):
            return jnp.asarray(negatives), jnp.array([0.25, 0.75]), state + 1

    objective = Contrastive(Fixed())
    state = objective.init(rbm(b, c, w), batch, key=jax.random.key(0))
    value, state = objective(rbm(b, c, w), batch, state, key=jax.random.key(0))
    assert state == 1
    nu = np.zeros(8)
    nu[[5, 1]] = 0.25, 0.75
    free = -np.log(table(b, c, w).sum(axis=1))
    np.testing.assert_allclose(value, 3 * (DATA @ free - nu @ free), rtol=1e-12)
    found = gradient_of(objective, rbm(b, c, w), batch, jax.random.key(0), 0)
    expected = 3 * (flat(phase_gradients(DATA, b, c, w)) - flat(phase_gradients(nu, b, c, w)))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


def _counts(x):
    return np.bincount((np.asarray(x) @ [4, 2, 1]).astype(int), minlength=8)


def test_persistent_chains_go_on_where_they_were():
    b, c, w = parameters()
    model, batch = rbm(b, c, w), all_states()
    phase = PersistentChains(chains=4000, k=1)
    state = phase.init(model, batch, key=jax.random.key(0))
    alone = np.prod(np.where(STATES == 1, 1 / (1 + np.exp(-b)), 1 / (1 + np.exp(b))), axis=1)
    assert stats.chisquare(_counts(state), 4000 * alone).pvalue > 1e-4
    call = eqx.filter_jit(lambda s, key: phase(model, batch, s, key=key))
    # chains that all stand in one state have after two calls the distribution of two sweeps from there
    state = jnp.ones_like(state)
    for i in range(2):
        x, weight, state = call(state, jax.random.key(10 + i))
    np.testing.assert_array_equal(x, state)
    np.testing.assert_allclose(np.sum(weight), 1, rtol=1e-12)
    twice = np.linalg.matrix_power(sweep_matrix(b, c, w), 2)[7]
    assert stats.chisquare(_counts(x), 4000 * twice).pvalue > 1e-4


def test_long_chain_draws_from_the_model():
    b, c, w = parameters()
    phase = LongChain(burn_in=50, thin=20, samples=3000)
    run = eqx.filter_jit(lambda m, key: phase(m, all_states(), (), key=key))
    x, weight, _ = run(rbm(b, c, w), jax.random.key(0))
    np.testing.assert_allclose(np.sum(weight), 1, rtol=1e-12)
    # twenty sweeps apart the draws are all but independent
    assert stats.chisquare(_counts(x), 3000 * table(b, c, w).sum(axis=1)).pvalue > 1e-4


def test_missing_entries_are_drawn_in_the_positive_phase():
    b, c, w = parameters()
    row, copies = np.array([1.0, np.nan, 0.0]), 5000
    batch = Batch(jnp.asarray(np.tile(row, (copies, 1))), jnp.full(copies, 1 / copies))
    objective = Contrastive(ExactEnumeration(jnp.asarray(STATES)), completion=30)
    found = gradient_of(objective, rbm(b, c, w), batch, jax.random.key(0))
    marginal = table(b, c, w).sum(axis=1)
    given = np.where(np.all((row == STATES) | np.isnan(row), axis=1), marginal, 0)
    given = given / given.sum()
    expected = flat(phase_gradients(given, b, c, w)) - flat(phase_gradients(marginal, b, c, w))
    # the only free entry is binary, so no statistic has a spread above one half
    np.testing.assert_allclose(found, expected, atol=4.5 * 0.5 / np.sqrt(copies))


@pytest.mark.slow
def test_persistent_chains_train_a_machine_to_the_entropy_of_the_data():
    # two pairs of units that agree: no machine without hidden units gets below 4 log 2
    patterns = np.array([[0.0, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [1, 1, 1, 1]])
    rows = np.tile(patterns, (16, 1))
    start = np.random.default_rng(0).normal(scale=0.1, size=(4, 3))
    model = Harmonium(Units(Bernoulli, jnp.zeros(4)), Units(Bernoulli, jnp.zeros(3)), jnp.asarray(start))

    def loss(model):
        return float(np.mean(jax.vmap(model.free_energy)(jnp.asarray(patterns))) + model.log_partition())

    steps = optax.adam(optax.exponential_decay(0.05, 2000, 0.03))
    losses = {}
    for phase in (PersistentChains(chains=100, k=5), GibbsFromData(1)):
        learner = Gradient(steps, Contrastive(phase), batch_size=None)
        result = fit(model, learner, rows, key=jax.random.key(0), max_iter=2000)
        losses[type(phase)] = loss(result.model)
    assert loss(model) > 2.7
    # log 4 is the entropy of the data
    assert np.log(4) < losses[PersistentChains] < np.log(4) + 0.1
    assert losses[PersistentChains] < losses[GibbsFromData]


ENERGIES = jnp.array([1.0, 2.0, 3.0])


@eqx.filter_jit
def _loss_of(phase, energies, answer):
    return energies[answer] - phase(energies, answer)[0]


def loss_of(phase, energies, answer):
    return _loss_of(phase, energies, jnp.asarray(answer))


def test_losses_over_finite_answers_have_their_known_values():
    assert loss_of(Margin(1.0), ENERGIES, 1) == 2
    assert loss_of(Margin(1.0), ENERGIES, 0) == 0
    np.testing.assert_allclose(loss_of(Margin(1.5), ENERGIES, 0), 0.5, rtol=1e-14)
    assert loss_of(Argmin(), ENERGIES, 1) == 1
    assert loss_of(Argmin(), ENERGIES, 0) == 0
    np.testing.assert_allclose(loss_of(Boltzmann(), ENERGIES, 0), 0.4076059644, atol=1e-10)
    np.testing.assert_allclose(loss_of(Boltzmann(), ENERGIES + 1e4, 0), 0.4076059644, atol=1e-10)
    free, nu = Boltzmann()(ENERGIES, jnp.asarray(0))
    np.testing.assert_allclose(free, 0.5923940356, atol=1e-10)
    np.testing.assert_allclose(nu, [0.66524, 0.24473, 0.09003], atol=1e-5)


def test_margin_dominates_mistakes_and_temperature_leads_to_the_perceptron():
    rng = np.random.default_rng(0)
    for _ in range(20):
        e = rng.normal(size=4)
        answer, margin = int(rng.integers(4)), float(rng.uniform(0.1, 2))
        others = np.delete(e, answer)
        hinge = max(0.0, margin + e[answer] - others.min())
        np.testing.assert_allclose(loss_of(Margin(margin), jnp.asarray(e), answer), hinge, atol=1e-14)
        assert hinge >= margin * (np.argmin(e) != answer)
        perceptron = e[answer] - e.min()
        np.testing.assert_allclose(loss_of(Argmin(), jnp.asarray(e), answer), perceptron, atol=1e-14)
        for beta in (0.5, 1.0, 20.0):
            smooth = loss_of(Boltzmann(1 / beta), jnp.asarray(e), answer)
            assert perceptron <= smooth <= perceptron + np.log(4) / beta + 1e-12
    np.testing.assert_allclose(loss_of(Boltzmann(1e-3), ENERGIES, 1), 1, atol=1e-12)
    np.testing.assert_allclose(Boltzmann(1e6)(ENERGIES, jnp.asarray(0))[1], 1 / 3, atol=1e-6)


@pytest.mark.parametrize("phase", [Argmin(), Margin(0.0)])
def test_a_tie_goes_to_the_first_answer_in_nu_and_in_the_slope(phase):
    tied, answer = jnp.array([1.0, 0.0, 0.0]), jnp.asarray(2)
    np.testing.assert_array_equal(phase(tied, answer)[1], [0.0, 1.0, 0.0])
    np.testing.assert_array_equal(jax.grad(lambda e: phase(e, answer)[0])(tied), [0.0, 1.0, 0.0])
    # the perceptron's update at a tie: away from the first, towards the right answer
    np.testing.assert_array_equal(jax.grad(lambda e: loss_of(phase, e, 2))(tied), [0.0, -1.0, 1.0])


@pytest.mark.parametrize("phase", [Boltzmann(0.7), Argmin(), Margin(1.3)])
def test_gradient_in_the_energies_is_one_hot_minus_nu(phase):
    assert isinstance(phase, AbstractAnswerPhase)
    gradient = jax.grad(lambda e: loss_of(phase, e, 1))(ENERGIES)
    np.testing.assert_allclose(gradient, np.eye(3)[1] - phase(ENERGIES, jnp.asarray(1))[1], atol=1e-15)
    np.testing.assert_allclose(np.sum(gradient), 0, atol=1e-15)
    h = 1e-6
    finite = [
        (loss_of(phase, ENERGIES + h * d, 1) - loss_of(phase, ENERGIES - h * d, 1)) / (2 * h)
        for d in np.eye(3)
    ]
    np.testing.assert_allclose(gradient, finite, atol=1e-9)


def test_conditional_objective_gives_each_classical_update():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(6, 2)), np.array([0, 1, 2, 2, 1, 0])
    w, b = rng.normal(size=(3, 2)), rng.normal(size=3)
    weight = rng.uniform(0.5, 2, size=6)
    batch = Batch((jnp.asarray(x), jnp.asarray(y)), jnp.asarray(weight))
    scores = x @ w.T + b
    softmax = np.exp(scores - logsumexp(scores, axis=1, keepdims=True))
    lowered = scores + 1.0 * (np.arange(3) != y[:, None])
    for phase, nu in zip(
        (Boltzmann(), Argmin(), Margin()),
        (softmax, np.eye(3)[scores.argmax(axis=1)], np.eye(3)[lowered.argmax(axis=1)]),
        strict=True,
    ):
        gradient = eqx.filter_grad(
            lambda m, p=phase: ConditionalContrastive(p)(m, batch, jax.random.key(0))
        )(SoftmaxModel(jnp.asarray(w), jnp.asarray(b)))
        residual = (nu - np.eye(3)[y]) * weight[:, None]
        np.testing.assert_allclose(gradient.weight, residual.T @ x, atol=1e-12)
        np.testing.assert_allclose(gradient.bias, residual.sum(axis=0), atol=1e-12)


def test_conditional_objective_separates_what_can_be_separated():
    rng = np.random.default_rng(2)
    y = rng.integers(0, 3, 90)
    x = rng.normal(scale=0.3, size=(90, 2)) + np.array([[0, 3], [3, 0], [-3, -3]])[y]
    for phase in (Argmin(), Margin()):
        result = fit(
            SoftmaxModel(jnp.zeros((3, 2)), jnp.zeros(3)),
            Gradient(optax.sgd(0.1), ConditionalContrastive(phase), batch_size=None),
            (x, y),
            key=jax.random.key(0),
            max_iter=200,
        )
        scores = x @ np.asarray(result.model.weight).T + np.asarray(result.model.bias)
        np.testing.assert_array_equal(scores.argmax(axis=1), y)
        # both losses reach zero and stay there
        assert result.history["objective"][-1] < 1e-8
