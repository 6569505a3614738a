"""Rows of Chaudhari's notes, each with its own number or formula."""

import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree
from scipy import linalg, signal, special, stats
from scipy.optimize import linprog, minimize, minimize_scalar
from sklearn.decomposition import PCA
from sklearn.ensemble import AdaBoostClassifier, BaggingRegressor
from sklearn.linear_model import Lasso, LinearRegression, Ridge
from sklearn.metrics import mean_absolute_error, mean_pinball_loss, zero_one_loss
from sklearn.model_selection import KFold, LeaveOneOut, cross_val_score
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder

import freeenergy as fe
from freeenergy import Nystroem, Perceptron, SupportVectorMachine, parameter
from freeenergy.bijections import GeneralAffine, TriangularAffine
from freeenergy.distributions import (
    Categorical,
    Diagonal,
    Full,
    Gaussian,
    Given,
    Product,
    entropy,
    fisher_information,
    kl_divergence,
    wasserstein2,
)
from freeenergy.evaluation import bootstrap_interval, noise_variance, two_sample_test
from freeenergy.inference import (
    FiniteBeliefs,
    FiniteStep,
    Quadratic,
    classify_states,
    posterior_by_enumeration,
    stationary,
)
from freeenergy.kernels import Linear as LinearKernel
from freeenergy.kernels import Polynomial
from freeenergy.learning import (
    MAP,
    AbstractObjective,
    Argmin,
    Batch,
    Boltzmann,
    ConditionalContrastive,
    FreeEnergy,
    Gradient,
    Margin,
    decay_weights,
    fit,
)
from freeenergy.models import (
    VAE,
    GaussianEncoder,
    LinearGaussian,
    Mixture,
    SoftmaxModel,
    StandardNormal,
    ppca_closed_form,
    stationary_covariance,
)
from freeenergy.nn import MLP, Linear, mlp

KEY = jax.random.key(0)


def array(*values):
    return jnp.asarray(values, jnp.float64)


def steps(optimiser, slope, start, n):
    """The iterates of an Optax optimiser on a function of known slope."""

    @jax.jit
    def step(w, gradient, state):
        with jax.numpy_dtype_promotion("standard"):
            update, state = optimiser.update(gradient, state, w)
        return w + update, state

    path = [np.asarray(start, float)]
    state = optimiser.init(path[0])
    for _ in range(n):
        w, state = step(path[-1], slope(path[-1]), state)
        path.append(np.asarray(w))
    return np.stack(path)


# ---- linear classifiers: two answers, the first is +1 and the second −1, and w = w₊ − w₋


POINTS = np.array([[2.0, 1.0], [1.0, 2.5], [0.5, 1.0], [-1.0, -1.5], [-2.0, 0.2], [-0.5, -1.0]])
SIGNS = np.array([1, 1, 1, -1, -1, -1])


def two_answers(w):
    w = jnp.asarray(w, jnp.float64)
    return SoftmaxModel(jnp.stack([w, -w]) / 2, jnp.zeros(2))


@eqx.filter_jit
def _losses(phase, model, x, answers):
    def one(row, answer):
        energies = model.energies(row)
        return energies[answer] - phase(energies, answer)[0]

    return jax.vmap(one)(x, answers)


def losses(phase, w, x=POINTS, signs=SIGNS):
    answers = jnp.asarray(np.where(np.asarray(signs) > 0, 0, 1))
    return np.asarray(_losses(phase, two_answers(w), jnp.asarray(x, jnp.float64), answers))


# A6
def test_the_answer_of_least_energy_is_the_sign_of_the_score():
    w, order = np.array([0.3, -0.7]), [1, 0]
    choose = jax.jit(lambda w, x: jnp.argmax(Argmin()(two_answers(w).energies(x), 0)[1]))
    for x in (*POINTS, np.zeros(2)):
        # at a tie it is +1, the first
        assert int(choose(w, x)) == (0 if w @ x >= 0 else 1)
        assert choose(w[order], x[order]) == choose(w, x)


# A8
def test_no_weights_are_best_without_a_margin_and_not_with_one():
    w = np.array([0.3, -0.7])
    margins = SIGNS * (POINTS @ w)
    for margin in (0.0, 1.0):
        expected = np.maximum(0, margin - margins)
        np.testing.assert_allclose(losses(Margin(margin), w), expected, atol=1e-14)
    np.testing.assert_array_equal(losses(Margin(0.0), np.zeros(2)), 0)
    np.testing.assert_array_equal(losses(Margin(1.0), np.zeros(2)), 1)
    assert losses(Margin(1.0), [1.0, 1.0]).mean() < 1


# A10, D13
def test_logistic_loss_of_signs_is_that_of_zeros_and_ones():
    w = np.array([0.3, -0.7])
    score = POINTS @ w
    ours = losses(Boltzmann(), w)
    np.testing.assert_allclose(ours, np.log1p(np.exp(-SIGNS * score)), rtol=1e-12)
    y, p = (SIGNS + 1) / 2, special.expit(score)
    np.testing.assert_allclose(ours, -(y * np.log(p) + (1 - y) * np.log(1 - p)), rtol=1e-12)
    with jax.numpy_dtype_promotion("standard"):
        theirs = optax.sigmoid_binary_cross_entropy(jnp.asarray(score), jnp.asarray(y))
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    np.testing.assert_allclose(losses(Boltzmann(), np.zeros(2)), math.log(2), rtol=1e-14)
    far = losses(Boltzmann(), [1000.0, 0.0], [[1.0, 0.0]] * 6, [1, -1] * 3)
    np.testing.assert_array_equal(far, [0.0, 1000.0] * 3)


# A7
def test_surrogates_are_above_the_mistakes():
    for w in np.random.default_rng(0).normal(size=(20, 2)):
        guess = np.where(POINTS @ w > 0, 1, -1)
        mistakes = (guess != SIGNS).astype(float)
        assert zero_one_loss(SIGNS, guess) == pytest.approx(mistakes.mean())
        assert (losses(Boltzmann(), w) / math.log(2) >= mistakes).all()
        assert (losses(Margin(1.0), w) >= mistakes).all()
        assert (np.exp(-SIGNS * (POINTS @ w)) >= mistakes).all()


# A9
def test_the_exponential_loss_is_what_boosting_lowers():
    rng = np.random.default_rng(0)
    x, signs = rng.normal(size=(40, 1)), np.where(rng.random(40) < 0.5, 1, -1)
    boosted = AdaBoostClassifier(n_estimators=1).fit(x, signs)
    rule = boosted.estimators_[0].predict(x)

    def loss(weight):
        return np.exp(-signs * weight * rule).mean()

    assert loss(0.0) == 1
    # the weight of a rule of signs is half of what scikit-learn has for one of probabilities
    best = minimize_scalar(loss, (0.0, 1.0)).x
    np.testing.assert_allclose(boosted.estimator_weights_[0] / 2, best, atol=1e-6)
    mistakes = np.mean(rule != signs)
    np.testing.assert_allclose(loss(best), 2 * np.sqrt(mistakes * (1 - mistakes)), rtol=1e-10)


# A1
def test_what_only_remembers_makes_no_mistake_and_learns_nothing():
    rng = np.random.default_rng(3)
    pixel, signs = rng.permutation(600)[:, None], np.where(rng.random(600) < 0.3, 1, -1)
    # a value that was never seen has the score zero, so that its answer is −1
    memory = make_pipeline(OneHotEncoder(handle_unknown="ignore"), LinearRegression(fit_intercept=False))
    memory.fit(pixel[:200], signs[:200] + 1)
    said = np.where(memory.predict(pixel) > 1, 1, -1)
    assert (said[:200] == signs[:200]).all()
    np.testing.assert_array_equal(said[200:], -1)
    assert zero_one_loss(signs[200:], said[200:]) == np.mean(signs[200:] == 1)
    # and it loses: answers that depend on the pixel are learned by a line
    line = Perceptron(averaged=True, max_iter=20).fit(pixel[:200], pixel[:200, 0] > 300)
    assert line.score(pixel[200:], pixel[200:, 0] > 300) > 0.95


# A2
def test_nature_draws_rows_whose_noise_no_rule_takes_away():
    rng = np.random.default_rng(0)
    a, w, b, sigma, n = rng.normal(size=(3, 2)), rng.normal(size=3), 0.4, 0.3, 4000

    def nature(n, mean=0.0):
        x = rng.normal(mean, 0.5, size=(n, 2))
        truth = np.sin(x @ a.T) @ w + b
        return x, truth, truth + rng.normal(0, sigma, n)

    x, truth, y = nature(n)
    assert np.mean((y - truth) ** 2) == pytest.approx(sigma**2, rel=5 * np.sqrt(2 / n))
    noise = noise_variance(x, y)
    assert abs(noise.value - sigma**2) < 5 * noise.stderr + 0.005
    line = LinearRegression().fit(x, y)
    same, other = (np.mean((line.predict(new) - t) ** 2) for new, t, _ in (nature(n), nature(n, 2.0)))
    # rows of another law are the violation of what learning relies on
    np.testing.assert_allclose(same, np.mean((line.predict(x) - truth) ** 2), rtol=0.2)
    assert other > 5 * same


# A26
def test_boxes_of_an_image_are_very_many_features():
    def boxes(image):
        """Whether ones are in the majority, of each box of pixels."""
        n, m = image.shape
        sums = np.pad(np.cumsum(np.cumsum(image, axis=0), axis=1), ((1, 0), (1, 0)))
        i, k = np.triu_indices(n + 1, 1)
        j, o = np.triu_indices(m + 1, 1)
        inside = sums[k][:, o] - sums[i][:, o] - sums[k][:, j] + sums[i][:, j]
        return (2 * inside > (k - i)[:, None] * (o - j)).ravel()

    image = (np.random.default_rng(0).random((4, 5)) < 0.5).astype(int)
    bits = boxes(image)
    assert len(bits) == math.comb(5, 2) * math.comb(6, 2)
    by_hand = [
        image[i:k, j:o].mean() > 0.5
        for i, k in itertools.combinations(range(5), 2)
        for j, o in itertools.combinations(range(6), 2)
    ]
    np.testing.assert_array_equal(bits, by_hand)
    assert math.comb(101, 2) ** 2 == 25_502_500


# A11, A13, A14
def test_the_perceptron_makes_no_more_mistakes_than_its_margin_allows():
    best = np.array([1.0, 1.2])
    margin = (SIGNS * (POINTS @ best)).min() / np.linalg.norm(best)
    radius = np.linalg.norm(POINTS, axis=1).max()
    answers = np.where(SIGNS > 0, 0, 1)

    @jax.jit
    def slope(w, x, y):
        model = SoftmaxModel(jnp.stack([w, -w]) / 2, jnp.zeros(2))
        batch = Batch((x[None], y[None]), jnp.ones(1))
        return jax.grad(lambda m: ConditionalContrastive(Argmin())(m, batch, KEY))(model).weight

    # the tie at the start is a mistake of the second answer only
    w, counts, updates = np.zeros(2), np.zeros(6), 0
    for i in np.random.default_rng(1).integers(6, size=200):
        x, y = POINTS[i], SIGNS[i]
        rows = np.asarray(slope(jnp.asarray(w), jnp.asarray(x), jnp.asarray(answers[i])))
        step = -(rows[0] - rows[1]) / 2  # w = w₊ − w₋ with a step of one half each
        if not step.any():
            continue
        np.testing.assert_allclose(y * (w + step) @ x, y * w @ x + x @ x, rtol=1e-12)
        w, updates = w + step, updates + 1
        counts[i] += 1
        assert w @ best >= updates * margin * np.linalg.norm(best) - 1e-12
        assert w @ w <= updates * radius**2 + 1e-12
    assert 0 < updates <= radius**2 / margin**2
    assert (np.where(POINTS @ w >= 0, 1, -1) == SIGNS).all()
    # the dual: counts of mistakes and inner products of rows predict the same
    np.testing.assert_allclose(POINTS @ w, (counts * SIGNS) @ (POINTS @ POINTS.T), atol=1e-12)


# A12, H9, H24
def test_steps_on_batches_have_the_moments_of_the_gradient_noise():
    model = two_answers([0.3, -0.7])
    answers = jnp.asarray(np.where(SIGNS > 0, 0, 1))
    optimiser = optax.sgd(0.1)

    def step(rows):
        batch = Batch((jnp.asarray(POINTS)[rows], answers[rows]), jnp.full(2, 0.5))
        slope = jax.grad(lambda m: ConditionalContrastive(Boltzmann())(m, batch, KEY))(model)
        return optimiser.update(slope, optimiser.init(model))[0].weight.ravel()

    pairs = np.array(list(itertools.product(range(6), repeat=2)))
    moves = np.asarray(jax.jit(jax.vmap(step))(jnp.asarray(pairs)))
    # a row and itself are a batch of that row
    single = moves[pairs[:, 0] == pairs[:, 1]]
    p = special.expit(-SIGNS * (POINTS @ [0.3, -0.7]))
    full = 0.1 * (SIGNS * p) @ POINTS / 6
    np.testing.assert_allclose(single.mean(0), [*full, *-full], atol=1e-15)
    np.testing.assert_allclose(moves.mean(0), single.mean(0), atol=1e-15)
    noise = np.cov(single.T, bias=True)
    np.testing.assert_allclose(np.cov(moves.T, bias=True), noise / 2, atol=1e-15)
    # the second moment is that of the gradient and the noise: only the noise falls with the batch
    square = np.mean(np.sum(moves**2, axis=1))
    assert square == pytest.approx(2 * full @ full + np.trace(noise) / 2, rel=1e-12)
    # H25: a normal law with the covariance of the slopes here, η²/b Σ(w), has the moments of the step
    slopes = -(SIGNS * p)[:, None] * POINTS
    law = Gaussian(
        jnp.asarray(-0.1 * slopes.mean(0)), Full(jnp.asarray(0.01 / 2 * np.cov(slopes.T, bias=True)))
    )
    np.testing.assert_allclose(law.mean, moves.mean(0)[:2], atol=1e-15)
    np.testing.assert_allclose(law.covariance.matrix(), np.cov(moves.T, bias=True)[:2, :2], atol=1e-15)


# ---- networks


def small_network(activation, seed=0):
    rng = np.random.default_rng(seed)
    sizes = ((3, 4), (4, 2))
    return MLP(tuple(Linear(rng.normal(size=s), rng.normal(size=s[1])) for s in sizes), activation)


def identity(x):
    return x


X3 = np.array([0.3, -1.0, 2.0])
call = eqx.filter_jit(lambda network, x: network(x))


# B1, B4
def test_without_a_nonlinearity_a_network_is_one_matrix():
    network = small_network(identity)
    first, second = network.layers
    matrix, offset = first.weight @ second.weight, first.bias @ second.weight + second.bias
    np.testing.assert_allclose(call(network, X3), X3 @ matrix + offset, rtol=1e-12)
    # what a layer makes is at hand, and the rest is a model of it
    features = np.tanh(X3 @ first.weight + first.bias)
    rest = features @ second.weight + second.bias
    np.testing.assert_allclose(call(small_network(jnp.tanh), X3), rest, rtol=1e-12)


# B2
def test_activations():
    x = np.array([-1000.0, -3.0, -0.4, 0.0, 0.7, 1000.0])

    @jax.jit
    def values(x):
        nn = jax.nn
        functions = (nn.sigmoid, jnp.tanh, nn.relu, nn.silu)
        slopes = [jax.vmap(jax.grad(f))(x) for f in functions]
        leaky = nn.leaky_relu(x, 0.0), nn.leaky_relu(x, 1.0), nn.silu(1e4 * x) / 1e4, nn.sigmoid(2 * x)
        return [f(x) for f in functions], slopes, leaky

    (sigmoid, tanh, relu, silu), slopes, (none, all_, steep, half) = values(x)
    inside, safe = slice(1, 5), np.clip(x, -500, 500)
    np.testing.assert_allclose(sigmoid, special.expit(x), rtol=1e-12)
    np.testing.assert_array_equal(np.asarray(sigmoid)[[0, 5]], [0.0, 1.0])
    np.testing.assert_allclose(tanh, 2 * half - 1, atol=1e-15)
    np.testing.assert_array_equal(none, relu)
    np.testing.assert_array_equal(all_, x)
    np.testing.assert_array_equal(relu, np.maximum(x, 0))
    np.testing.assert_allclose(silu, x * special.expit(x), atol=1e-12)
    np.testing.assert_allclose(steep, relu, atol=1e-12)
    np.testing.assert_array_equal(np.heaviside(x, 1.0), [0, 0, 0, 1, 1, 1])
    p = special.expit(safe)
    expected = (p * (1 - p), 1 - np.tanh(x) ** 2, x > 0, p + x * p * (1 - p))
    for found, slope in zip(slopes, expected, strict=True):
        np.testing.assert_allclose(found[inside], slope[inside], atol=1e-12)


# B3
def test_scores_of_the_last_layer_are_log_probabilities_up_to_one_constant():
    model = SoftmaxModel(array([0.3, -0.2], [0.1, 0.4], [-0.5, 0.2]), array(0.1, 0.0, -0.2))
    x = np.array([1.0, 2.0])
    logs = jax.jit(lambda x: jax.vmap(lambda y: model.log_prob_of(y, x))(jnp.arange(3)))(x)
    scores = np.asarray(model.weight) @ x + np.asarray(model.bias)
    np.testing.assert_allclose(logs - scores, -special.logsumexp(scores), rtol=1e-12)
    # a regression has one output
    network = jax.eval_shape(lambda: mlp(3, 1, width=4, depth=1, key=KEY))
    assert network.layers[-1].weight.shape == (4, 1)


def loss_of(network):
    return jnp.sum(network(jnp.asarray(X3)) ** 2)


# B5
def test_weights_as_one_vector_take_the_same_step():
    network = small_network(jnp.tanh)
    vector, back = ravel_pytree(network)
    for a, b in zip(jax.tree.leaves(back(vector)), jax.tree.leaves(network), strict=True):
        np.testing.assert_array_equal(a, b)
    tree = jax.tree.map(lambda w, g: w - 0.1 * np.asarray(g), network, jax.jit(jax.grad(loss_of))(network))
    slope = jax.jit(jax.grad(lambda v: loss_of(back(v))))(vector)
    flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])
    np.testing.assert_allclose(flat, vector - 0.1 * slope, rtol=1e-14)


# B6, B10
def test_back_propagation_through_one_neuron():
    x, w, v, y = np.array([0.5, -1.5]), np.array([0.8, 0.3]), 1.7, 0.4

    def loss(w, v, x):
        return 0.5 * (y - v * jax.nn.sigmoid(w @ x)) ** 2

    dw, dv, dx = jax.jit(jax.grad(loss, (0, 1, 2)))(w, v, x)
    h = special.expit(w @ x)
    e = v * h
    z = -(y - e) * v * h * (1 - h)
    np.testing.assert_allclose(dv, -(y - e) * h, rtol=1e-12)
    np.testing.assert_allclose(dw, z * x, rtol=1e-12)
    np.testing.assert_allclose(dx, z * w, rtol=1e-12)
    # each weight of a sum gets its share by its input
    assert float(dw[0] / dw[1]) == pytest.approx(0.5 / -1.5, rel=1e-12)
    step = 1e-6

    def value(w):
        return 0.5 * (y - v * special.expit(w @ x)) ** 2

    numeric = [(value(w + step * d) - value(w - step * d)) / (2 * step) for d in np.eye(2)]
    np.testing.assert_allclose(dw, numeric, atol=1e-7)


# B7, B8
def test_a_layer_turns_the_slope_of_its_output_into_those_of_its_input_and_weights():
    layer = small_network(jnp.tanh).layers[0]

    def forward(h, s):
        return jnp.tanh(h @ s + layer.bias)

    bar = np.array([0.4, -1.0, 0.2, 0.9])
    dh, ds = jax.jit(lambda h, s: jax.vjp(forward, h, s)[1](bar))(X3, layer.weight)

    def value(h, s):
        return np.tanh(h @ s + layer.bias) @ bar

    eps = 1e-6
    numeric = [
        (value(X3 + eps * d, layer.weight) - value(X3 - eps * d, layer.weight)) / (2 * eps)
        for d in np.eye(3)
    ]
    np.testing.assert_allclose(dh, numeric, atol=1e-8)
    through = bar * (1 - np.tanh(X3 @ layer.weight + layer.bias) ** 2)
    np.testing.assert_allclose(ds, np.outer(X3, through), rtol=1e-12)

    # a weight that is used often sums its slopes
    def run(copies):
        h = 0.3
        for v in copies:
            h = jnp.tanh(v * h + 0.5)
        return h

    shared, apart = jax.jit(lambda w: (jax.grad(lambda v: run([v] * 4))(w), jax.grad(run)([w] * 4)))(0.7)
    assert float(shared) == pytest.approx(float(sum(np.asarray(apart))), rel=1e-12)


# B9
def test_a_small_step_along_the_signs_of_the_slope_raises_a_linear_energy_by_its_norm():
    model = SoftmaxModel(array([0.3, -0.2, 0.4], [0.1, 0.4, 0.0]), array(0.1, 0.0))
    both = jax.jit(jax.value_and_grad(lambda x: model.energy(x, 0)))
    before, slope = both(X3)
    after, _ = both(X3 + 0.01 * np.sign(slope))
    assert float(after - before) == pytest.approx(0.01 * np.abs(slope).sum(), rel=1e-10)


# B11, B12, B13
def test_symmetries_of_a_network():
    network = small_network(jax.nn.relu)
    first, second = network.layers

    def scaled(n, a):
        one, two = n.layers
        return MLP((Linear(a * one.weight, a * one.bias), Linear(two.weight / a, two.bias)), n.activation)

    np.testing.assert_allclose(call(scaled(network, 3.0), X3), call(network, X3), rtol=1e-12)
    assert not np.allclose(call(scaled(network, -3.0), X3), call(network, X3))
    smooth = small_network(jnp.tanh)
    assert not np.allclose(call(scaled(smooth, 3.0), X3), call(smooth, X3))
    # so the slope along the orbit is zero
    gradient = jax.jit(jax.grad(loss_of))
    slope = gradient(network)
    below = np.sum(first.weight * slope.layers[0].weight) + first.bias @ np.asarray(slope.layers[0].bias)
    np.testing.assert_allclose(below, np.sum(second.weight * slope.layers[1].weight), rtol=1e-10)
    order = np.array([2, 0, 3, 1])
    moved = MLP(
        (Linear(first.weight[:, order], first.bias[order]), Linear(second.weight[order], second.bias)),
        network.activation,
    )
    np.testing.assert_allclose(call(moved, X3), call(network, X3), rtol=1e-12)

    # with no weights at all nothing below the last layer has a slope
    def cross_entropy(n):
        return -jax.nn.log_softmax(n(jnp.asarray(X3)))[0]

    value, slope = jax.jit(jax.value_and_grad(cross_entropy))(jax.tree.map(np.zeros_like, smooth))
    assert float(value) == pytest.approx(math.log(2), rel=1e-12)
    np.testing.assert_array_equal(slope.layers[0].weight, 0)
    np.testing.assert_array_equal(slope.layers[1].weight, 0)


# B14
def test_slopes_shrink_or_grow_with_the_power_of_the_depth():
    deep = jax.jit(
        jax.grad(lambda x, gain: MLP((Linear(gain * jnp.eye(2), jnp.zeros(2)),) * 10, identity)(x)[0])
    )
    for gain in (0.5, 2.0):
        assert np.linalg.norm(deep(np.ones(2), gain)) == pytest.approx(gain**10, rel=1e-12)


# B15, B17, B18, B19, B20
def test_initial_weights_have_their_variance():
    start, inputs, outputs = jax.nn.initializers, 120, 180
    table = [
        (start.variance_scaling(1.0, "fan_in", "normal"), (inputs, outputs), 1 / inputs),
        (start.variance_scaling(1.0, "fan_out", "normal"), (inputs, outputs), 1 / outputs),
        (start.glorot_normal(), (inputs, outputs), 2 / (inputs + outputs)),
        (start.glorot_uniform(), (inputs, outputs), 2 / (inputs + outputs)),
        # five by five kernels of ten channels
        (start.variance_scaling(1.0, "fan_in", "normal"), (5, 5, 10, 80), 1 / 250),
    ]

    @jax.jit
    def draw(key):
        return [f(key, shape, jnp.float64) for f, shape, _ in table], start.orthogonal()(
            key, (6, 6), jnp.float64
        )

    draws, turn = draw(KEY)
    for values, (*_, variance) in zip(map(np.asarray, draws), table, strict=True):
        assert abs(values.var() / variance - 1) < 5 * np.sqrt(2 / values.size)
    assert 0.999 < np.abs(draws[3]).max() / np.sqrt(6 / (inputs + outputs)) <= 1
    # forwards the first keeps the size of what it gets, backwards the second
    rng = np.random.default_rng(0)
    assert abs((rng.normal(size=(50, inputs)) @ np.asarray(draws[0])).var() - 1) < 0.1
    assert abs((rng.normal(size=(50, outputs)) @ np.asarray(draws[1]).T).var() - 1) < 0.1
    np.testing.assert_allclose(turn.T @ turn, np.eye(6), atol=1e-12)
    far = np.linalg.matrix_power(np.asarray(turn), 1000) @ np.arange(6.0)
    assert np.linalg.norm(far) == pytest.approx(np.linalg.norm(np.arange(6.0)), rel=1e-9)


# B16
def test_uniform_initial_weights_have_a_third_of_the_variance():
    network = mlp(100, 100, width=100, depth=1, dtype=jnp.float64, key=KEY)
    for layer in network.layers:
        values = np.asarray(layer.weight).ravel()
        # the variance of a square of a uniform number is 4/5 of its squared mean
        assert abs(values.var() * 300 - 1) < 5 * np.sqrt(0.8 / len(values))
        assert np.abs(values).max() <= 0.1


# B22
def test_a_wide_network_goes_through_any_points():
    x = np.array([-1.0, 0.2, 0.9, 2.0])
    y = np.array([3.0, -1.0, 0.5, 0.4])
    slopes = np.diff(y) / np.diff(x)
    kinks = np.diff(slopes, prepend=0.0)
    network = MLP((Linear(np.ones((1, 3)), -x[:-1]), Linear(kinks[:, None], y[:1])))
    np.testing.assert_allclose([call(network, v[None])[0] for v in x], y, atol=1e-12)


# ---- convolution


# C1, C2, C3, C4, C6, C7
def test_convolution_by_its_definition_its_matrix_and_its_spectrum():
    x, w = np.array([2.0, -1.0, 1.0]), np.array([1.0, 1.0, 2.0])
    expected = [2, 1, 4, -1, 2]
    np.testing.assert_array_equal(np.convolve(x, w), expected)
    np.testing.assert_array_equal(
        linalg.convolution_matrix(w, 3), [[1, 0, 0], [1, 1, 0], [2, 1, 1], [0, 2, 1], [0, 0, 2]]
    )
    np.testing.assert_array_equal(linalg.convolution_matrix(w, 3) @ x, expected)
    np.testing.assert_allclose(signal.fftconvolve(x, w), expected, atol=1e-12)
    # without room the ends wrap around
    wrapped = np.fft.ifft(np.fft.fft(x) * np.fft.fft(w)).real
    np.testing.assert_allclose(wrapped, [2 - 1, 1 + 2, 4], atol=1e-12)
    np.testing.assert_array_equal(np.correlate(x, w, "full"), np.convolve(x, w[::-1]))
    v = np.array([0.5, -2.0])
    np.testing.assert_array_equal(np.convolve(w, x), expected)
    np.testing.assert_allclose(np.convolve(np.convolve(x, w), v), np.convolve(x, np.convolve(w, v)))
    np.testing.assert_allclose(np.convolve(x + 3 * w, v), np.convolve(x, v) + 3 * np.convolve(w, v))
    long, kernel = np.arange(10.0), np.ones(5)
    assert len(np.convolve(long, kernel, "full")) == 10 + 2 * 2
    assert len(np.convolve(long, kernel, "same")) == 10


# C5, C9, C12
def test_fixed_filters_and_their_factors():
    rng = np.random.default_rng(0)
    image, kernel = rng.normal(size=(5, 6)), rng.normal(size=(3, 3))
    loop = np.zeros((7, 8))
    for i, j in np.ndindex(*image.shape):
        loop[i : i + 3, j : j + 3] += image[i, j] * kernel
    np.testing.assert_allclose(signal.convolve2d(image, kernel), loop, atol=1e-12)
    sobel = np.outer([1.0, 2, 1], [1.0, 0, -1])
    np.testing.assert_array_equal(sobel, [[1, 0, -1], [2, 0, -2], [1, 0, -1]])
    ramp = np.tile(np.arange(6.0), (5, 1))
    np.testing.assert_array_equal(signal.convolve2d(np.ones((5, 6)), sobel, "valid"), 0)
    np.testing.assert_array_equal(signal.convolve2d(ramp, sobel, "valid"), 8.0)
    blurred = signal.convolve2d(image, np.full((3, 3), 1 / 9))
    assert blurred.sum() == pytest.approx(image.sum(), rel=1e-12)
    separable = np.array([[3.0, 6, 9], [4, 8, 12], [5, 10, 15]])
    np.testing.assert_array_equal(separable, np.outer([3, 4, 5], [1, 2, 3]))
    twice = signal.convolve2d(
        signal.convolve2d(image, np.array([[3.0], [4], [5]])), np.array([[1.0, 2, 3]])
    )
    np.testing.assert_allclose(signal.convolve2d(image, separable), twice, atol=1e-12)
    # other kernels are sums of such, and the tail of singular values is the error of leaving some out
    u, s, v = np.linalg.svd(kernel)
    left = kernel - s[0] * np.outer(u[:, 0], v[0])
    assert np.sum(left**2) == pytest.approx(np.sum(s[1:] ** 2), rel=1e-12)


# C13, C15
def test_strides_and_translations():
    x, w = np.random.default_rng(0).normal(size=5), np.array([1.0, -2.0, 0.5])
    room = np.concatenate([x, np.zeros(7)])
    for shift in range(1, 6):
        moved = np.convolve(np.roll(room, shift), w)
        np.testing.assert_allclose(moved, np.roll(np.convolve(room, w), shift), atol=1e-12)
    # a stride keeps every third output, and so sees only shifts by three
    full = signal.upfirdn(w, room)
    np.testing.assert_allclose(full, np.convolve(room, w), atol=1e-12)
    np.testing.assert_allclose(signal.upfirdn(w, room, down=3), full[::3], atol=1e-12)


# ---- losses


# D4, D6, D7, D8
def test_losses_of_a_regression_and_the_numbers_that_minimise_them():
    y, gaps = np.array([0.3, 1.0, 1.4, 2.2, 9.0]), np.array([-3.0, -0.5, 0.5, 3.0])

    @jax.jit
    def values(r):
        def huber(r, delta):
            with jax.numpy_dtype_promotion("standard"):
                return optax.huber_loss(r, delta=delta)

        def half_square(r):
            with jax.numpy_dtype_promotion("standard"):
                return optax.l2_loss(r)

        slopes = [jax.vmap(jax.grad(f))(r) for f in (half_square, lambda r: huber(r, 1.0))]
        return half_square(r), huber(r, 1.0), huber(r, 9.0), slopes

    square, huber, wide, (linear, bounded) = values(gaps)
    np.testing.assert_allclose(square, gaps**2 / 2, rtol=1e-12)
    np.testing.assert_allclose(linear, gaps, rtol=1e-12)
    np.testing.assert_allclose(huber, [2.5, 0.125, 0.125, 2.5], rtol=1e-12)
    np.testing.assert_allclose(bounded, np.clip(gaps, -1, 1), rtol=1e-12)
    np.testing.assert_allclose(wide, square, rtol=1e-12)
    for tau in (0.25, 0.5, 0.75):
        # piecewise linear with kinks at the values: one of them is best
        costs = [mean_pinball_loss(y, np.full(5, f), alpha=tau) for f in y]
        assert y[int(np.argmin(costs))] == np.quantile(y, tau, method="inverted_cdf")
    half = mean_pinball_loss(y, np.full(5, 2.0), alpha=0.5)
    assert half == pytest.approx(0.5 * mean_absolute_error(y, np.full(5, 2.0)), rel=1e-12)
    assert mean_absolute_error(y, np.full(5, np.median(y))) < mean_absolute_error(y, np.full(5, y.mean()))


# D9, E11
def test_the_lasso_shrinks_by_a_threshold():
    rng = np.random.default_rng(0)
    n = 20
    x = np.linalg.qr(rng.normal(size=(n, 3)))[0] * np.sqrt(n)  # XᵀX = n I
    y = x @ np.array([2.0, -0.3, 0.0]) + 0.1 * rng.normal(size=n)
    plain = x.T @ y / n
    shrunk = Lasso(0.5, fit_intercept=False, tol=1e-10).fit(x, y).coef_
    np.testing.assert_allclose(shrunk, np.sign(plain) * np.maximum(np.abs(plain) - 0.5, 0), atol=1e-7)
    assert not Lasso(np.abs(plain).max() * 1.001, fit_intercept=False).fit(x, y).coef_.any()


# D12, D14, D18, D19
def test_smoothed_and_several_labels():
    eps, m = 0.1, 4
    expected = np.full(m, eps / (m - 1))
    expected[1] = 1 - eps
    best = np.full(m, 0.7)
    best[1] += np.log((m - 1) * (1 - eps) / eps)
    scores, several = np.array([0.4, -1.0, 2.0, 0.1]), np.array([1.0, 0.0, 1.0, 0.0])
    split = np.log(np.where(several > 0, 0.5, 1e-12))

    @jax.jit
    def values(best, scores, several, split):
        with jax.numpy_dtype_promotion("standard"):
            one_hot = jax.nn.one_hot(1, m, dtype=jnp.float64)
            labels = optax.smooth_labels(one_hot, eps * m / (m - 1))
            slope = jax.grad(lambda s, t: optax.softmax_cross_entropy(s, t))
            each = jnp.sum(optax.sigmoid_binary_cross_entropy(scores, several))
        return one_hot, labels, slope(best, labels), jax.nn.softmax(best), each, slope(split, several / 2)

    one_hot, labels, slope, p, each, even = values(best, scores, several, split)
    np.testing.assert_array_equal(one_hot, np.eye(m)[1])
    np.testing.assert_allclose(labels, expected, rtol=1e-12)
    # the best scores of smoothed labels are finite
    np.testing.assert_allclose(slope, 0, atol=1e-12)
    np.testing.assert_allclose(p, expected, rtol=1e-12)
    # independent answers: a sum of logistic losses, where a softmax would split its mass
    assert float(each) == pytest.approx(np.log1p(np.exp(-(2 * several - 1) * scores)).sum(), rel=1e-12)
    np.testing.assert_allclose(even, 0, atol=1e-11)


# D15, D16, D17
def test_softmax_log_sum_exp_and_cross_entropy_at_a_temperature():
    scores = np.array([1.0, -0.5, 2.0])

    @jax.jit
    def values(scores, t):
        def cross_entropy(s):
            return (-s[0] - Boltzmann(t)(-s, 0)[0]) / t

        return *Boltzmann(t)(-scores, 0), cross_entropy(jnp.zeros(3)), jax.grad(cross_entropy)(scores)

    for t in (0.3, 1.0, 4.0):
        free, p, even, slope = values(scores, t)
        weight = np.exp(scores / t)
        np.testing.assert_allclose(p, weight / weight.sum(), rtol=1e-12)
        np.testing.assert_allclose(values(scores + 7.0, t)[1], p, rtol=1e-12)
        # minus the free energy is T log Σ exp(s/T), between the largest score and T log m above it
        assert float(-free) == pytest.approx(t * np.log(weight.sum()), rel=1e-12)
        assert 2 <= -free <= 2 + t * np.log(3)
        np.testing.assert_allclose(slope, (np.asarray(p) - np.eye(3)[0]) / t, atol=1e-14)
        assert float(even) == pytest.approx(math.log(3), rel=1e-12)
    np.testing.assert_allclose(values(scores, 1e-3)[1], [0, 0, 1], atol=1e-12)
    np.testing.assert_allclose(values(scores, 1e6)[1], 1 / 3, atol=1e-5)


# ---- regularisation


# A3, E9
def test_least_squares_and_ridge():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(8, 3)), rng.normal(size=8)
    plain = LinearRegression().fit(x, y)
    design = np.column_stack([x, np.ones(8)])
    np.testing.assert_allclose(design.T @ (y - plain.predict(x)), 0, atol=1e-12)
    solved = np.linalg.solve(design.T @ design, design.T @ y)
    np.testing.assert_allclose([*plain.coef_, plain.intercept_], solved, rtol=1e-10)
    sizes = []
    for alpha in (0.1, 1.0, 10.0):
        w = Ridge(alpha, fit_intercept=False).fit(x, y).coef_
        np.testing.assert_allclose(w, np.linalg.solve(x.T @ x + alpha * np.eye(3), x.T @ y), rtol=1e-10)
        sizes.append(np.linalg.norm(w))
    assert sizes == sorted(sizes, reverse=True)
    # columns that depend on each other: the shortest solution, to which a small penalty leads
    twin = np.column_stack([x[:, 0], x[:, 0]])
    shortest = np.linalg.pinv(twin) @ y
    np.testing.assert_allclose(
        LinearRegression(fit_intercept=False).fit(twin, y).coef_, shortest, atol=1e-10
    )
    near = Ridge(1e-8, fit_intercept=False, solver="svd").fit(twin, y).coef_
    np.testing.assert_allclose(near, shortest, atol=1e-7)


# E6
def test_folds_cover_all_rows_and_leaving_one_out_has_a_formula():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(10, 2)), rng.normal(size=10)
    held = np.concatenate([rows for _, rows in KFold(5, shuffle=True, random_state=0).split(x)])
    assert sorted(held.tolist()) == list(range(10))
    model = Ridge(0.7, fit_intercept=False)
    loss = -cross_val_score(model, x, y, cv=LeaveOneOut(), scoring="neg_mean_squared_error").mean()
    hat = x @ np.linalg.solve(x.T @ x + 0.7 * np.eye(2), x.T)
    residual = (y - hat @ y) / (1 - np.diag(hat))
    assert loss == pytest.approx(np.mean(residual**2), rel=1e-10)


# E8, E10
def test_weight_decay_is_the_slope_of_its_penalty_and_spares_biases():
    network, rate, alpha = small_network(jnp.tanh), 0.1, 0.3
    optimiser = optax.chain(decay_weights(alpha), optax.sgd(rate))

    @jax.jit
    def step(network):
        slope = jax.grad(loss_of)(network)
        with jax.numpy_dtype_promotion("standard"):
            return slope, optimiser.update(slope, optimiser.init(network), network)[0]

    slope, update = step(network)
    for old, g, move in zip(network.layers, slope.layers, update.layers, strict=True):
        expected = (1 - rate * alpha) * old.weight - rate * np.asarray(g.weight)
        np.testing.assert_allclose(old.weight + np.asarray(move.weight), expected, rtol=1e-12)
        np.testing.assert_allclose(move.bias, -rate * np.asarray(g.bias), rtol=1e-12)
    path = steps(optimiser, np.zeros_like, np.ones((2, 2)), 7)
    np.testing.assert_allclose(path[-1], (1 - rate * alpha) ** 7, rtol=1e-12)


class Weights(eqx.Module):
    w: jax.Array = parameter()


def half_squares(model, batch, key):
    x, y = batch.x
    return batch.mean(0.5 * (y - x @ model.w) ** 2)


# E12
def test_a_gaussian_prior_is_ridge_and_a_laplace_prior_the_lasso():
    rng = np.random.default_rng(0)
    n, alpha = 12, 0.8
    x, y = rng.normal(size=(n, 3)), rng.normal(size=n)
    batch = Batch((jnp.asarray(x), jnp.asarray(y)), jnp.full(n, 1 / n))
    ridge = MAP(half_squares, lambda m: -0.5 * alpha * jnp.sum(m.w**2), n)
    lasso = MAP(half_squares, lambda m: -alpha * jnp.sum(jnp.abs(m.w)), n)
    best = Ridge(alpha, fit_intercept=False).fit(x, y).coef_
    slope = jax.jit(jax.grad(lambda w: ridge(Weights(w), batch, KEY)))(best)
    np.testing.assert_allclose(slope, 0, atol=1e-12)
    sparse = Lasso(alpha / n, fit_intercept=False, tol=1e-12).fit(x, y).coef_
    value = jax.jit(jax.vmap(lambda w: lasso(Weights(w), batch, KEY)))
    around = value(np.concatenate([sparse[None], sparse + 1e-3 * rng.normal(size=(50, 3))]))
    assert np.argmin(around) == 0


# E13
def test_weights_of_a_regression_as_hidden_causes_have_the_posterior_and_evidence_of_bayes():
    rng = np.random.default_rng(0)
    x, y, alpha, noise = rng.normal(size=(6, 2)), rng.normal(size=6), 0.7, 0.4
    # w = z / √α with a standard normal z
    model = LinearGaussian(jnp.asarray(x / np.sqrt(alpha)), jnp.zeros(6), Diagonal(jnp.full(6, noise)))
    posterior, log_prob = jax.jit(lambda y: (model.posterior(y), model.log_prob(y)))(y)
    ridge = Ridge(alpha * noise, fit_intercept=False).fit(x, y).coef_
    np.testing.assert_allclose(np.asarray(posterior.mean) / np.sqrt(alpha), ridge, rtol=1e-9)
    spread = np.linalg.inv(alpha * np.eye(2) + x.T @ x / noise)
    np.testing.assert_allclose(np.asarray(posterior.covariance.matrix()) / alpha, spread, rtol=1e-9)
    evidence = stats.multivariate_normal(np.zeros(6), noise * np.eye(6) + x @ x.T / alpha).logpdf(y)
    assert float(log_prob) == pytest.approx(evidence, rel=1e-10)


# E14
def test_the_bootstrap_finds_the_error_of_a_mean():
    rng = np.random.default_rng(0)
    values = rng.normal(size=400)
    found = bootstrap_interval(values, resamples=4000, seed=0)
    assert found.estimate == pytest.approx(values.mean(), rel=1e-12)
    # the standard deviation of 4,000 numbers is known to √(1/8000)
    assert found.stderr == pytest.approx(values.std() / 20, rel=5 / np.sqrt(8000))
    distinct = np.mean([len(np.unique(rng.integers(400, size=400))) / 400 for _ in range(200)])
    assert distinct == pytest.approx(1 - np.exp(-1), abs=5e-3)


# E15
def test_a_committee_is_the_mean_of_its_members_and_no_worse():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 2))
    y = x @ [1.0, -2.0] + rng.normal(size=30)
    bag = BaggingRegressor(LinearRegression(), 8, random_state=0).fit(x, y)
    members = np.stack([m.predict(x) for m in bag.estimators_])
    np.testing.assert_allclose(bag.predict(x), members.mean(0), rtol=1e-12)
    assert np.mean((bag.predict(x) - y) ** 2) <= np.mean((members - y) ** 2)


# E17, E19, E21
def test_dropout_keeps_the_mean_and_is_off_outside_training():
    x, w, p, n = X3, np.array([1.0, 0.5, -0.4]), 0.3, 20_000
    layer = eqx.nn.Dropout(p)

    @jax.jit
    def draw(key):
        return jax.vmap(lambda k: layer(jnp.asarray(x), key=k))(jax.random.split(key, n))

    draws = np.asarray(draw(KEY))
    kept = np.isclose(draws, x / (1 - p))
    assert (kept | (draws == 0)).all()
    # without the factor that keeps the mean it is (1 − p) x, and each of the 2³ parts of the layer occurs
    mask = draws * (1 - p)
    assert (np.abs(mask.mean(0) - (1 - p) * x) < 5 * mask.std(0) / np.sqrt(n)).all()
    assert len(np.unique(kept, axis=0)) == 2**3
    assert (np.abs(draws.mean(0) - x) < 5 * draws.std(0) / np.sqrt(n)).all()
    variance = p / (1 - p) * np.sum(w**2 * x**2)
    assert (draws @ w).var() == pytest.approx(variance, rel=5 * np.sqrt(2 / n))
    np.testing.assert_array_equal(eqx.nn.Dropout(p, inference=True)(x), x)


# E18, E20
def test_dropout_of_a_linear_regression_is_a_ridge_of_its_own_for_each_column():
    rng = np.random.default_rng(5)
    x, y, w, p = rng.normal(size=(4, 2)), rng.normal(size=4), np.array([0.7, -1.2]), 0.3
    masks = np.array(list(itertools.product([0, 1], repeat=x.size)), float)
    chance = np.prod(np.where(masks == 1, 1 - p, p), axis=1)
    dropped = masks.reshape(-1, *x.shape) * x
    np.testing.assert_allclose(chance.sum(), 1)
    squares = np.diag((x**2).sum(axis=0))
    expected = np.sum((y - (1 - p) * x @ w) ** 2) + p * (1 - p) * w @ squares @ w
    np.testing.assert_allclose(chance @ ((y - dropped @ w) ** 2).sum(axis=1), expected, rtol=1e-12)
    # the mean prediction of all networks is that of weights scaled by 1 − p
    np.testing.assert_allclose(np.einsum("m,mni,i->n", chance, dropped, w), (1 - p) * x @ w, atol=1e-12)
    # least: the normal equations of all masked tables, each as often as it occurs
    least = np.linalg.solve(
        np.einsum("m,mni,mnj->ij", chance, dropped, dropped), np.einsum("m,mni,n->i", chance, dropped, y)
    )
    ridge = fe.Ridge(p / (1 - p), prior=np.linalg.inv(squares), fit_intercept=False).fit(x, y)
    np.testing.assert_allclose((1 - p) * least, ridge.coef_, rtol=1e-8)


# E22
def test_weights_by_the_ratio_of_two_laws_learn_for_the_other_one():
    # all there is: three values of x, of which the laws of training and of use have their shares
    x, here, there = np.array([[0.0], [1.0], [2.0]]), np.array([0.6, 0.3, 0.1]), np.array([0.1, 0.3, 0.6])
    truth = np.array([0.0, 1.0, 4.0])
    ratio = there / here

    def risk(model, share):
        return share @ (model.predict(x) - truth) ** 2

    plain = fe.LinearRegression().fit(x, truth, here * 100)
    moved = fe.LinearRegression().fit(x, truth, here * ratio * 100)
    aimed = fe.LinearRegression().fit(x, truth, there * 100)
    np.testing.assert_allclose(moved.coef_, aimed.coef_, rtol=1e-10)
    # the weighted risk of training rows is that of use, for any rule
    np.testing.assert_allclose(here @ (ratio * (plain.predict(x) - truth) ** 2), risk(plain, there))
    assert risk(moved, there) < risk(plain, there)
    assert risk(moved, here) > risk(plain, here)
    # a penalty of the way from coefficients that are known: ridge of what they leave
    known = np.array([3.0])
    for alpha, expected in ((1e-9, None), (1e9, known)):
        rest = fe.Ridge(alpha, prior=np.eye(1)).fit(x, truth - x @ known, here * ratio * 100)
        found = known + rest.coef_
        np.testing.assert_allclose(found, moved.coef_ if expected is None else expected, atol=1e-6)


# D5
def test_with_logarithms_of_inputs_another_unit_moves_the_intercept_only():
    rng = np.random.default_rng(0)
    x = rng.lognormal(size=(30, 2))
    y = 1 + np.log(x) @ [2.0, -1.0] + 0.1 * rng.normal(size=30)
    units = np.array([1000.0, 0.01])
    plain, other = (
        make_pipeline(FunctionTransformer(np.log), fe.LinearRegression()).fit(rows, y)
        for rows in (x, x * units)
    )
    np.testing.assert_allclose(other[-1].coef_, plain[-1].coef_, rtol=1e-10)
    shift = -plain[-1].coef_ @ np.log(units)
    np.testing.assert_allclose(other[-1].intercept_ - plain[-1].intercept_, shift, rtol=1e-10)
    np.testing.assert_allclose(other.predict(x * units), plain.predict(x), rtol=1e-10)


# I3, I4, I5
def test_the_best_linear_map_its_projection_and_matrices_as_vectors():
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(20, 3)), rng.normal(size=(20, 2))
    best = np.linalg.solve(x.T @ x, x.T @ y).T
    np.testing.assert_allclose(fe.LinearRegression(fit_intercept=False).fit(x, y).coef_, best, rtol=1e-9)
    np.testing.assert_allclose((y - x @ best.T).T @ x, 0, atol=1e-10)
    # the geometry: predictions are the shadow of the answers on the space of the columns
    basis = linalg.orth(x)
    projection = basis @ basis.T
    np.testing.assert_allclose(projection, x @ np.linalg.inv(x.T @ x) @ x.T, atol=1e-12)
    np.testing.assert_allclose(projection @ projection, projection, atol=1e-12)
    assert np.trace(projection) == pytest.approx(np.linalg.matrix_rank(x))
    np.testing.assert_allclose(projection @ y, x @ best.T, atol=1e-10)

    def columns_in_turn(matrix):
        return matrix.ravel(order="F")

    a, b = rng.normal(size=(2, 2)), rng.normal(size=(2, 3))
    np.testing.assert_allclose(columns_in_turn(a @ b @ x.T), np.kron(x, a) @ columns_in_turn(b), atol=1e-12)
    # the best first factor of A B with the second given, by one system of equations for its entries
    hidden = x @ b.T
    system = np.kron(hidden, np.eye(2))
    found = np.linalg.lstsq(system, columns_in_turn(y.T), rcond=None)[0].reshape(2, 2, order="F")
    np.testing.assert_allclose(found, np.linalg.solve(hidden.T @ hidden, hidden.T @ y).T, rtol=1e-9)


# E23
def test_three_ways_to_whiten():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(50, 3)) @ rng.normal(size=(3, 3)) + 5
    mean, covariance = rows.mean(0), np.cov(rows.T, bias=True)
    symmetric = linalg.inv(linalg.sqrtm(covariance))

    @jax.jit
    def whitened(rows, mean, covariance, symmetric):
        maps = GeneralAffine(-symmetric @ mean, symmetric), TriangularAffine.whiten(mean, covariance)
        return [jax.vmap(lambda x, m=m: m.forward(x)[0])(rows) for m in maps]

    by_root, by_triangle = map(np.asarray, whitened(rows, mean, covariance, symmetric))
    by_axes = PCA(whiten=True).fit_transform(rows) * np.sqrt(50 / 49)
    centred = rows - mean
    distances = []
    for white in (by_root, by_triangle, by_axes):
        np.testing.assert_allclose(np.cov(white.T, bias=True), np.eye(3), atol=1e-9)
        distances.append(np.sum((white - centred) ** 2))
    # of all of them the symmetric root moves the rows least
    assert distances[0] < min(distances[1:])


# E24, E25
def test_normalisation_over_a_batch_lets_slopes_through_its_mean_and_variance():
    x = np.random.default_rng(0).normal(size=(6, 2)) * 3 + 1
    eps, weight = 1e-2, np.random.default_rng(1).normal(size=(6, 2))

    @jax.jit
    def values(x):
        def through(v, b):
            shifted = v + jnp.broadcast_to(b, v.shape)
            return jnp.sum(weight * jax.nn.standardize(shifted, axis=0, epsilon=eps))

        return jax.nn.standardize(x, axis=0, epsilon=eps), *jax.grad(through, (0, 1))(x, jnp.zeros(2))

    normal, slope, bias = map(np.asarray, values(x))
    variance = x.var(0)
    np.testing.assert_allclose(normal.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(normal.var(0), variance / (variance + eps), rtol=1e-10)
    np.testing.assert_allclose(slope.sum(0), 0, atol=1e-12)
    # the slope is orthogonal to the rows up to ε
    assert (np.abs(np.sum(slope * normal, axis=0)) < 2 * eps).all()

    def by_hand(v):
        return np.sum(weight * (v - v.mean(0)) / np.sqrt(v.var(0) + eps))

    bump = np.zeros((6, 2))
    bump[2, 1] = 1e-6
    assert slope[2, 1] == pytest.approx((by_hand(x + bump) - by_hand(x - bump)) / 2e-6, rel=1e-6)
    # a bias before it has no effect, and so no slope
    np.testing.assert_allclose(bias, 0, atol=1e-12)


# E29
def test_layer_and_group_normalisation():
    x = np.random.default_rng(0).normal(size=(4, 3, 3)) * 2 + 1
    norms = (
        eqx.nn.GroupNorm(1, 4, channelwise_affine=False),
        eqx.nn.LayerNorm((4, 3, 3), use_weight=False, use_bias=False),
        eqx.nn.GroupNorm(4, 4, channelwise_affine=False),
    )
    one, whole, each = map(np.asarray, jax.jit(lambda x: [norm(x) for norm in norms])(x))
    np.testing.assert_allclose(one, whole, atol=1e-10)
    for found, axes in ((whole, (0, 1, 2)), (each, (1, 2))):
        mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
        np.testing.assert_allclose(found, (x - mean) / np.sqrt(variance + 1e-5), atol=1e-10)


# ---- sequences


# F1
def test_a_scalar_system_has_the_variance_of_its_geometric_sum():
    a, q = 0.8, 0.5
    found = stationary_covariance(array([a]), array([q]))
    assert float(found[0, 0]) == pytest.approx(q / (1 - a**2), rel=1e-12)


# F10, F11
def test_gradients_are_clipped_by_norm_or_by_value():
    norm, wide, always, value = (
        optax.clip_by_global_norm(1.0),
        optax.clip_by_global_norm(10.0),
        optax.normalize_by_update_norm(2.0),
        optax.clip(3.5),
    )
    clip = jax.jit(lambda g: [t.update(g, t.init(g), g)[0] for t in (norm, wide, always, value)])
    g = np.array([3.0, -4.0])
    found = clip(g)
    np.testing.assert_allclose(found[0], [0.6, -0.8], rtol=1e-12)
    np.testing.assert_allclose(found[1], g)
    np.testing.assert_allclose(found[3], [3.0, -3.5])
    # scaled always, as printed
    for v in (found[2], clip(g / 100)[2]):
        np.testing.assert_allclose(v, [1.2, -1.6], rtol=1e-4)


# F18, F26
def test_attention_is_an_average_of_values_by_the_likeness_of_keys():
    q, k, v = np.random.default_rng(0).normal(size=(3, 3, 1, 4)).astype(np.float32)
    attend = jax.jit(
        lambda q, k, v: [
            jax.nn.dot_product_attention(q, k, v, is_causal=causal)[:, 0] for causal in (False, True)
        ]
    )
    score = q[:, 0] @ k[:, 0].T / 2
    weight = np.exp(score) / np.exp(score).sum(1, keepdims=True)
    plain, causal = attend(q, k, v)
    np.testing.assert_allclose(plain, weight @ v[:, 0], atol=1e-6)
    order = np.array([2, 0, 1])
    np.testing.assert_allclose(attend(q, k[order], v[order])[0], plain, atol=1e-6)
    # rows that attend to each other come out in the order in which they came
    turned = attend(q[order], k[order], v[order])[0]
    np.testing.assert_allclose(turned, np.asarray(plain)[order], atol=1e-6)
    np.testing.assert_allclose(attend(q, 0 * k, v)[0][0], v[:, 0].mean(0), atol=1e-6)
    # keys of one length: a Gaussian kernel of variance √4
    unit = k / np.linalg.norm(k, axis=-1, keepdims=True)
    kernel = np.exp(-np.sum((q[:, None, 0] - unit[None, :, 0]) ** 2, axis=2) / (2 * 2))
    kernel /= kernel.sum(1, keepdims=True)
    np.testing.assert_allclose(attend(q, unit, v)[0], kernel @ v[:, 0], atol=1e-6)
    # causal: the past alone, and the first step sees itself
    np.testing.assert_allclose(causal[0], v[0, 0], atol=1e-6)
    last = np.array([0.0, 0.0, 5.0], np.float32)[:, None, None]
    np.testing.assert_array_equal(attend(q, k + last, v + last)[1][:2], causal[:2])


# ---- optimisation


EIGENVALUES = np.array([1.0, 10.0])


def bowl(w):
    return EIGENVALUES * w


# G8, G9, G10, G11
def test_gradient_descent_on_a_bowl():
    start = np.array([1.0, 1.0])
    path = steps(optax.sgd(0.05), bowl, start, 20)
    np.testing.assert_allclose(path[20], (1 - 0.05 * EIGENVALUES) ** 20, rtol=1e-12)
    assert np.linalg.norm(steps(optax.sgd(0.21), bowl, start, 60)[-1]) > 10
    # a step of 1/L lowers the loss by η/2 ‖∇‖² at least, and the gap falls as 1/t
    path = steps(optax.sgd(0.1), bowl, start, 20)
    loss = 0.5 * np.sum(EIGENVALUES * path**2, axis=1)
    square = np.sum((EIGENVALUES * path) ** 2, axis=1)
    assert (loss[1:] <= loss[:-1] - 0.05 * square[:-1] + 1e-15).all()
    assert (np.diff(np.sum(path**2, axis=1)) <= 0).all()
    t = np.arange(1, 21)
    assert (loss[1:] <= 2 / (2 * 0.1 * t)).all()
    # 2/(m + L): every step shortens by (κ − 1)/(κ + 1)
    path = np.linalg.norm(steps(optax.sgd(2 / 11), bowl, start, 10), axis=1)
    np.testing.assert_allclose(path[1:] / path[:-1], 9 / 11, rtol=1e-12)


# G14
def test_three_forms_of_the_heavy_ball():
    rate, rho, start = 0.05, 0.7, np.array([1.0, -2.0])
    ours = steps(optax.sgd(rate, momentum=rho), bowl, start, 30)
    before, now, second = start, start, [start]
    for _ in range(30):
        before, now = now, now - rate * bowl(now) + rho * (now - before)
        second.append(now)
    np.testing.assert_allclose(ours, second, atol=1e-12)
    speed, place = np.zeros(2), start
    for t in range(30):
        speed = rho * speed - bowl(place)
        place = place + rate * speed
        np.testing.assert_allclose(ours[t + 1], place, atol=1e-12)
    # the best step and momentum of a bowl: √ρ a step in the long run
    root = np.sqrt(EIGENVALUES)
    rho = ((root[1] - root[0]) / (root[1] + root[0])) ** 2
    rate = 4 / (root[1] + root[0]) ** 2
    for value in EIGENVALUES:
        companion = np.array([[1 + rho - rate * value, -rho], [1.0, 0.0]])
        assert np.abs(np.linalg.eigvals(companion)).max() == pytest.approx(np.sqrt(rho), rel=1e-6)
    path = np.linalg.norm(steps(optax.sgd(rate, momentum=rho), bowl, start, 60), axis=1)
    assert path[-1] < 200 * np.sqrt(rho) ** 60


def kinked(x):
    return np.where(x < 1, 25 * x, np.where(x < 2, x + 24, 25 * x - 24))


# G15
def test_the_heavy_ball_can_go_round_for_ever():
    path = steps(optax.sgd(1 / 9, momentum=4 / 9), kinked, np.array([3.3]), 300)[:, 0]
    cycle = np.array([-1.80245, 2.11592, 0.64653])
    last = path[-3:]
    np.testing.assert_allclose(np.sort(last), np.sort(cycle), atol=1e-4)
    look_ahead = steps(optax.sgd(1 / 25, momentum=4 / 6, nesterov=True), kinked, np.array([3.3]), 300)
    assert abs(look_ahead[-1, 0]) < 1e-8


# G16, G17
def test_nesterovs_step_in_two_forms_and_its_rate():
    rate, rho, start = 0.05, 0.6, np.array([1.0, -2.0])
    # Optax keeps the point at which the slope is taken: u = w + ρ (w − w₋)
    ours = steps(optax.sgd(rate, momentum=rho, nesterov=True), bowl, start, 20)
    before = now = ahead = start
    for t in range(20):
        np.testing.assert_allclose(ours[t], ahead, atol=1e-12)
        before, now = now, ahead - rate * bowl(ahead)
        ahead = now + rho * (now - before)
    np.testing.assert_allclose(
        steps(optax.sgd(rate, momentum=0.0, nesterov=True), bowl, start, 9),
        steps(optax.sgd(rate), bowl, start, 9),
    )
    for kappa, radius in ((4, 0.5), (10, 0.684), (100, 0.9)):
        rho = (np.sqrt(kappa) - 1) / (np.sqrt(kappa) + 1)
        for eta, expected in ((1 / kappa, 1 - 1 / np.sqrt(kappa)), (2 / (1 + kappa), None)):
            worst = 0.0
            for value in (1.0, float(kappa)):
                shrink = 1 - eta * value
                companion = np.array([[(1 + rho) * shrink, -rho * shrink], [1.0, 0.0]])
                worst = max(worst, np.abs(np.linalg.eigvals(companion)).max())
            if expected is None:
                assert worst > 1 or kappa == 4  # the printed step is too long
            else:
                # a double eigenvalue is known to the root of rounding
                assert worst == pytest.approx(expected, abs=1e-6)
                assert worst == pytest.approx(radius, abs=5e-4)


# H3
def test_steps_on_single_rows_stay_in_a_zone_of_known_variance():
    x, y, eta = np.array([1.0, 2.0, -1.0, 0.5]), np.array([2.0, 1.0, 0.0, 3.0]), 0.1
    best = x @ y / (x @ x)
    assert best == pytest.approx(0.88)

    def step(w, i):
        return steps(optax.sgd(eta), lambda w: x[i] * (x[i] * w - y[i]), np.array(w), 1)[1]

    error = x * (y - x * best)
    variance = eta**2 * np.mean(error**2) / (1 - np.mean((1 - eta * x**2) ** 2))
    assert variance == pytest.approx(0.055898, abs=5e-7)
    # a law of this mean and variance has them again after a step on a row drawn at random
    after = np.array([step(best + s * np.sqrt(variance), i) for s in (-1, 1) for i in range(4)])
    assert after.mean() == pytest.approx(best, rel=1e-12)
    assert np.mean((after - best) ** 2) == pytest.approx(variance, rel=1e-12)
    # outside of the zone every row pushes inwards
    zone = y / x
    for w in (zone.min() - 1, zone.max() + 1):
        assert all(abs(step(w, i) - best) < abs(w - best) for i in range(4))


# H12
def test_momentum_does_not_lower_the_noise_of_a_fixed_step():
    eta, rho, curve = 0.05, 0.9, 1.0
    optimiser = optax.sgd(eta, momentum=rho)

    def step(state):
        w, trace, noise = state
        inner = optimiser.init(w)
        inner = jax.tree.map(lambda _: trace, inner)
        with jax.numpy_dtype_promotion("standard"):
            update, after = optimiser.update(curve * w + noise, inner, w)
        return jnp.stack([w + update, jax.tree.leaves(after)[0]])

    jacobian = np.asarray(jax.jit(jax.jacfwd(step))(np.array([0.3, 0.2, 0.1])))
    stationary_law = linalg.solve_discrete_lyapunov(
        jacobian[:, :2], np.outer(jacobian[:, 2], jacobian[:, 2])
    )
    formula = eta * (1 + rho) / ((1 - rho) * curve * (2 * (1 + rho) - eta * curve))
    assert stationary_law[0, 0] == pytest.approx(formula, rel=1e-10)
    assert formula == pytest.approx(0.2533, abs=5e-5)


class Visits(eqx.Module):
    count: jax.Array = parameter()


class BatchMeans(AbstractObjective):
    """Counts the rows that are seen, and keeps the squares of the means of batches."""

    def init(self, model, batch, *, key):
        return jnp.zeros(2)

    def __call__(self, model, batch, state, *, key):
        index, value = batch.x
        gap = batch.mean(value) ** 2
        return -batch.mean(model.count[index]), state + jnp.stack([gap, jnp.ones(())])


# H2
def test_an_epoch_sees_every_row_once_and_batches_have_the_variance_of_draws_without_replacement():
    values = np.array([1.0, -2.0, 0.5, 3.0, -1.5, -1.0])
    n, size, epochs = 6, 2, 200
    learner = Gradient(optax.sgd(1.0), BatchMeans(), batch_size=size)
    data = (np.arange(n), values - values.mean())
    start = Visits(jnp.zeros(n))
    one = fit(start, learner, data, key=KEY, max_iter=1).model
    np.testing.assert_allclose(one.count, 1 / size, rtol=1e-12)
    many = fit(start, learner, data, key=KEY, max_iter=epochs)
    np.testing.assert_allclose(many.model.count, epochs / size, rtol=1e-10)
    total, batches = np.asarray(many.state.play.objective[0])
    assert batches == epochs * n / size
    expected = values.var() / size * (n - size) / (n - 1)
    assert total / batches == pytest.approx(expected, rel=0.2)
    # far from that of draws with replacement
    assert total / batches < 0.9 * values.var() / size


# H14
def test_the_best_control_variate_leaves_the_part_that_it_does_not_explain():
    # the slope of E z² by the score (z − μ)/σ², whose mean is zero, as its own control variate
    mean, variance = 0.7, 0.5
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    weights = weights / weights.sum()
    z = mean + np.sqrt(variance) * nodes
    control = (z - mean) / variance
    estimate = z**2 * control
    cross = weights @ (estimate * control)
    best = -cross / (weights @ control**2)
    # the best baseline is μ² + 3σ², and of the variance 1 − ρ² is left
    assert best == pytest.approx(-(mean**2 + 3 * variance), rel=1e-10)
    before = weights @ estimate**2 - (weights @ estimate) ** 2
    left = before * (1 - cross**2 / (weights @ control**2) / before)
    assert left == pytest.approx(8 * mean**2 + 6 * variance, rel=1e-10)


# H19
def test_adam_steps_by_its_rate_whatever_the_size_of_the_gradient():
    for size in (1e-6, 1.0, 1e6):
        path = steps(optax.adam(0.1, eps=0.0), lambda w, s=size: s * np.array([1.0, -2.0]), np.zeros(2), 5)
        np.testing.assert_allclose(path[-1], [-0.5, 0.5], rtol=1e-9)


MOLE = np.array([[0.1, 0.4, 0.5], [0.4, 0.0, 0.6], [0.0, 0.6, 0.4]])


# H20
def test_the_law_of_a_chain_step_by_step_and_in_the_long_run():
    step = jax.jit(lambda p: FiniteBeliefs(jnp.asarray(MOLE)).predict(p, FiniteStep(jnp.zeros(3))))
    laws = [np.array([1.0, 0.0, 0.0])]
    for _ in range(200):
        laws.append(np.asarray(step(laws[-1])))
    np.testing.assert_allclose(
        laws[1:4], [[0.1, 0.4, 0.5], [0.17, 0.34, 0.49], [0.153, 0.362, 0.485]], rtol=1e-12
    )
    np.testing.assert_allclose(laws[-1], np.array([12, 27, 37]) / 76, rtol=1e-10)
    assert classify_states(MOLE).ergodic
    assert classify_states(MOLE).irreducible
    np.testing.assert_allclose(stationary(array([0.5, 0.5], [0.4, 0.6])), [4 / 9, 5 / 9], rtol=1e-10)
    clock = np.roll(np.eye(12), 1, axis=1)
    assert classify_states(clock).periods == (12,)
    # a periodic chain does not forget its start, yet it is as often everywhere
    visits = sum(np.linalg.matrix_power(clock, t)[0] for t in range(24)) / 24
    np.testing.assert_allclose(visits, stationary(jnp.asarray(clock)), rtol=1e-12)


# H21
def test_a_chain_backwards_in_time():
    law = stationary(jnp.asarray(MOLE))
    beliefs, still = FiniteBeliefs(jnp.asarray(MOLE)), FiniteStep(jnp.zeros(3))
    back = np.asarray(jax.jit(lambda p: beliefs.from_kernel(beliefs.reverse(p, p, still)).kernel)(law))
    expected = MOLE.T * np.asarray(law)[None, :] / np.asarray(law)[:, None]
    np.testing.assert_allclose(back, expected, rtol=1e-10)
    np.testing.assert_allclose(back.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(law @ back, law, rtol=1e-10)
    # no detailed balance: backwards it is another chain
    assert np.abs(back - MOLE).max() > 0.05


@jax.jit
def divergence(p, q):
    return kl_divergence(Categorical(p[None]), Categorical(q[None]))


# H22
def test_a_chain_comes_nearer_to_its_law_with_every_step():
    rng = np.random.default_rng(0)
    for transition in (MOLE, rng.dirichlet(np.ones(3), 3), rng.dirichlet(np.full(3, 0.3), 3)):
        law, now = np.asarray(stationary(jnp.asarray(transition))), np.array([0.7, 0.2, 0.1])
        for _ in range(6):
            after = now @ transition
            assert divergence(law, after) <= divergence(law, now) + 1e-15
            assert divergence(after, law) <= divergence(now, law) + 1e-15
            now = after


# H23, L3
def test_divergence_of_finite_laws():
    rng = np.random.default_rng(0)
    for _ in range(10):
        p, q, r, s = rng.dirichlet(np.ones(3), 4)
        assert float(divergence(p, q)) == pytest.approx(stats.entropy(p, q), rel=1e-10)
        assert divergence(p, q) > 0
        t = rng.random()
        mixed = divergence(t * p + (1 - t) * r, t * q + (1 - t) * s)
        assert mixed <= t * divergence(p, q) + (1 - t) * divergence(r, s) + 1e-12
    assert float(divergence(p, p)) == pytest.approx(0, abs=1e-15)
    assert divergence(p, q) != divergence(q, p)
    some, other = np.array([0.5, 0.5, 0.0]), np.array([0.5, 0.0, 0.5])
    assert divergence(some, other) == np.inf
    assert float(divergence(some, np.full(3, 1 / 3))) == pytest.approx(np.log(1.5), rel=1e-12)

    # of a product it is the sum over the parts
    @jax.jit
    def parts(p, q):
        first = [Categorical(v[None]) for v in (p, q)]
        second = [Gaussian(jnp.full(1, m), Diagonal(jnp.full(1, v))) for m, v in ((0.0, 1.0), (1.0, 2.0))]
        whole = [Product((a, b), (1, 1)) for a, b in zip(first, second, strict=True)]
        return kl_divergence(*whole), kl_divergence(*second)

    both, normal = parts(p, q)
    assert float(normal) == pytest.approx(0.5 * (0.5 + 0.5 - 1 + np.log(2)), rel=1e-12)
    assert float(both) == pytest.approx(float(normal) + stats.entropy(p, q), rel=1e-10)


# H27
def test_the_law_of_noisy_descent_has_the_temperature_of_its_step():
    grid = np.linspace(-4, 4, 4001)

    @jax.jit
    def law(losses, temperature):
        return posterior_by_enumeration(
            lambda i: losses[i], jnp.arange(4001), temperature=temperature
        ).probabilities

    curve, place, rate, batch = 2.0, 0.5, 0.1, 4
    bowl_law = np.asarray(law(curve / 2 * (grid - place) ** 2, rate / (2 * batch)))
    assert bowl_law @ grid == pytest.approx(place, abs=1e-9)
    assert bowl_law @ (grid - place) ** 2 == pytest.approx(rate / (2 * batch) / curve, rel=1e-6)
    # two wells: the ratio of their masses is Laplace's, and the deeper one has all in the end
    wells = np.minimum(8 * (grid + 2) ** 2, 2 * (grid - 2) ** 2 + 0.02)
    warm, cold = (np.asarray(law(wells, t)) for t in (0.05, 0.002))
    ratio = warm[grid > 0].sum() / warm[grid < 0].sum()
    assert ratio == pytest.approx(np.exp(-0.02 / 0.05) * np.sqrt(16 / 4), rel=1e-3)
    assert cold[grid < 0].sum() > 0.9999


# ---- sloppy models


# K4
def test_fisher_information_of_a_regression_is_the_square_of_its_jacobian():
    x, w = np.array([0.0, 0.5, 1.0, 2.0]), np.array([1.3, 0.7])

    def curve(w):
        return w[0] * jnp.exp(-w[1] * jnp.asarray(x))

    def family(w):
        return Gaussian(curve(w), Diagonal(jnp.ones(4)))

    @jax.jit
    def values(w, y):
        # of the natural parameters, pulled back to the weights
        slope = jax.jacfwd(lambda v: family(v).natural())(w)
        metric = slope.T @ fisher_information(family(w)) @ slope
        return metric, jax.hessian(lambda v: 0.5 * jnp.sum((y - curve(v)) ** 2))(w)

    decay = np.exp(-w[1] * x)
    jacobian = np.stack([decay, -w[0] * x * decay], axis=1)
    for y in (w[0] * decay, np.ones(4)):
        metric, hessian = values(w, y)
        np.testing.assert_allclose(metric, jacobian.T @ jacobian, rtol=1e-9)
        residual = w[0] * decay - y
        curved = np.zeros((2, 2))
        curved[0, 1] = curved[1, 0] = residual @ (-x * decay)
        curved[1, 1] = residual @ (w[0] * x**2 * decay)
        # the Hessian has the curvature of the model besides, unless it fits
        np.testing.assert_allclose(hessian, jacobian.T @ jacobian + curved, rtol=1e-9)


# K5
def test_fisher_information_of_a_linear_classifier_is_the_hessian_of_its_loss():
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(4, 2)), rng.normal(size=(3, 2))

    def model(w):
        return SoftmaxModel(w.reshape(3, 2), jnp.zeros(3))

    @jax.jit
    def values(w):
        def one(row):
            def probabilities(v):
                return model(v).posterior(row).probabilities

            slope = jax.jacfwd(lambda v: Categorical(probabilities(v)[None]).natural().ravel())(w)
            metric = fisher_information(Categorical(probabilities(w)[None]))
            hessian = jax.hessian(lambda v: -model(v).log_prob_of(jnp.asarray(1), row))(w)
            return slope.T @ metric @ slope, hessian, jax.jacfwd(probabilities)(w), probabilities(w)

        return jax.vmap(one)(jnp.asarray(x))

    metric, hessian, slopes, p = map(np.asarray, values(w.ravel()))
    np.testing.assert_allclose(metric.mean(0), hessian.mean(0), atol=1e-12)
    over_classes = np.einsum("nci,ncj,nc->ij", slopes, slopes, 1 / p) / 4
    np.testing.assert_allclose(metric.mean(0), over_classes, atol=1e-12)
    assert np.linalg.eigvalsh(metric.mean(0)).min() > -1e-12
    # the expected score is zero
    np.testing.assert_allclose(slopes.sum(axis=1), 0, atol=1e-12)


# ---- variational inference


# L2
def test_the_slope_of_the_entropy():
    p, direction = np.array([0.2, 0.5, 0.3]), np.array([0.4, -0.1, -0.3])
    slope = jax.jit(jax.grad(lambda e: entropy(Categorical((p + e * direction)[None]))))(0.0)
    assert float(slope) == pytest.approx(direction @ (-np.log(p) - 1), rel=1e-10)


# L4, L7
def test_the_nearest_gaussian_with_independent_coordinates():
    mean, rho = np.array([0.3, -1.0]), 0.9
    target = Gaussian(jnp.asarray(mean), Full(array([1.0, rho], [rho, 1.0])))

    @jax.jit
    def both(m, variance):
        def inside(m, v):
            return kl_divergence(Gaussian(m, Diagonal(v)), target)

        def outside(m, v):
            return kl_divergence(target, Gaussian(m, Diagonal(v)))

        return [(f(m, variance), *jax.grad(f, (0, 1))(m, variance)) for f in (inside, outside)]

    # KL(q ‖ p) is least at the variances 1/Λ_ii, KL(p ‖ q) at Σ_ii
    for which, variance in enumerate((1 - rho**2, 1.0)):
        value, *slopes = both(mean, np.full(2, variance))[which]
        np.testing.assert_allclose(np.concatenate(slopes), 0, atol=1e-9)
        # and not zero, since the target is not of this family
        assert value > 0.5
    zero = jax.jit(lambda: kl_divergence(target, target))()
    assert float(zero) == pytest.approx(0, abs=1e-12)


# L8
def test_one_hump_for_two():
    grid = np.linspace(-20, 20, 401)
    target = 0.5 * (stats.norm.pdf(grid, -3, 0.8) + stats.norm.pdf(grid, 3, 0.8))
    target /= target.sum()

    @jax.jit
    def values(free):
        def hump(free):
            return jax.nn.softmax(-((grid - free[0]) ** 2) / (2 * jnp.exp(2 * free[1])))

        def inside(free):
            return kl_divergence(Categorical(hump(free)[None]), Categorical(jnp.asarray(target)[None]))

        def outside(free):
            return kl_divergence(Categorical(jnp.asarray(target)[None]), Categorical(hump(free)[None]))

        return jax.value_and_grad(inside)(free), jax.value_and_grad(outside)(free)

    def best(which, start):
        found = minimize(lambda v: tuple(map(np.asarray, values(v)[which])), start, jac=True)
        return found.x[0], np.exp(found.x[1]), found.fun

    left, right = best(0, [-2.0, 0.0]), best(0, [2.0, 0.0])
    # from inside it finds one of the two, by where it begins; half of the mass is missing
    np.testing.assert_allclose([left[0], right[0]], [-3, 3], atol=0.01)
    np.testing.assert_allclose([left[2], right[2]], np.log(2), atol=1e-3)
    # from outside it has the moments of both
    wide = best(1, [0.5, 1.0])
    np.testing.assert_allclose(wide[:2], [0, np.sqrt(target @ grid**2)], atol=1e-4)
    assert wide[2] > 0.1


def small_factor_model():
    x = np.random.default_rng(0).normal(size=(6, 3)) @ np.diag([2.0, 1.0, 0.5]) + 1
    build = jax.jit(lambda x: ppca_closed_form(jnp.mean(x, axis=0), jnp.cov(x.T, bias=True), 1))
    return x, build(x)


def as_autoencoder(exact):
    """A linear model as an autoencoder whose encoder is the exact posterior."""
    w, mean, variance = np.asarray(exact.loading), np.asarray(exact.mean), float(exact.noise.variance)
    spread = 1 / (1 + w[:, 0] @ w[:, 0] / variance)
    gain = spread * w.T / variance
    encode = Linear(
        np.concatenate([gain.T, np.zeros((3, 1))], axis=1), np.array([-gain[0] @ mean, np.log(spread)])
    )
    emission = Given(Gaussian(jnp.zeros(3), Diagonal(jnp.full(3, variance))))
    networks = GaussianEncoder(MLP((encode,))), MLP((Linear(w.T, mean),))
    return VAE(*networks, emission, StandardNormal(1), Quadratic())


# L10, L16
def test_linear_autoencoders_are_at_rest_at_probabilistic_pca():
    x, exact = small_factor_model()
    batch = Batch(jnp.asarray(x), jnp.full(6, 1 / 6))
    both = eqx.filter_jit(eqx.filter_value_and_grad(lambda m: FreeEnergy()(m, batch, KEY)))
    value, slope = both(as_autoencoder(exact))
    law = stats.multivariate_normal(
        x.mean(0), np.asarray(exact.loading) @ exact.loading.T + float(exact.noise.variance) * np.eye(3)
    )
    assert float(value) == pytest.approx(-law.logpdf(x).mean(), rel=1e-9)
    parts = [np.ravel(leaf) for leaf in jax.tree.leaves((slope.encoder, slope.decoder))]
    np.testing.assert_allclose(np.concatenate(parts), 0, atol=1e-8)
    # one variance for all entries is as good as it gets; the sum is what its slope is
    assert float(np.sum(slope.emission.learned.covariance.variance)) == pytest.approx(0, abs=1e-8)
    # an encoder that is not the best for every row has a worse bound than one that is
    worse = eqx.tree_at(
        lambda m: m.encoder.network.layers[0].weight, as_autoencoder(exact), replace_fn=lambda w: 0.5 * w
    )
    assert both(worse)[0] > value + 1e-3


# L1
def test_a_latent_variable_model_completes_rows():
    x, exact = small_factor_model()
    model = as_autoencoder(exact)
    # wider than any posterior of incomplete rows
    model = eqx.tree_at(
        lambda m: m.encoder.network.layers[0].bias, model, replace_fn=lambda b: np.array([b[0], 0.5])
    )
    row = np.array([x[0, 0], np.nan, x[0, 2]])
    filled = eqx.filter_jit(lambda m: m.complete_mean(row, samples=20_000, key=KEY))(model)
    cov = np.asarray(exact.loading) @ np.asarray(exact.loading).T + float(exact.noise.variance) * np.eye(3)
    gap = np.linalg.solve(cov[np.ix_([0, 2], [0, 2])], row[[0, 2]] - x.mean(0)[[0, 2]])
    np.testing.assert_allclose(filled, [row[0], x.mean(0)[1] + cov[1, [0, 2]] @ gap, row[2]], atol=0.02)


# ---- two samples


# M1
def test_a_permutation_test_of_means_keeps_its_level():
    pooled = np.array([0.3, -1.0, 0.8, 2.0, 0.1, -0.4, 1.7, 0.6])
    splits = [list(rows) for rows in itertools.combinations(range(8), 4)]

    def statistic(rows):
        return abs(pooled[rows].mean() - np.delete(pooled, rows).mean())

    table = np.array([statistic(rows) for rows in splits])
    p_values = np.mean(table[:, None] <= table[None, :] + 1e-12, axis=1)
    for level in (0.05, 0.1, 0.3):
        assert np.mean(p_values <= level) <= level
    rows = splits[17]
    found = stats.permutation_test(
        (pooled[rows], np.delete(pooled, rows)),
        lambda a, b: abs(a.mean() - b.mean()),
        alternative="greater",
    )
    assert found.pvalue == pytest.approx(p_values[17], rel=1e-9)
    # ours asks for any difference, and finds one of the mean the better the more rows there are
    rng = np.random.default_rng(0)
    ours = [
        two_sample_test(*rng.normal([[[0.0]], [[0.7]]], size=(2, n, 1)), seed=0).p_value for n in (8, 80)
    ]
    assert ours[1] < 0.01 < ours[0]


# M3
def test_the_best_discriminator_is_a_posterior():
    p, q = np.array([0.2, 0.5, 0.3]), np.array([0.6, 0.1, 0.3])
    mixture = Mixture(array(0.5, 0.5), Categorical(jnp.asarray(np.stack([p, q])[:, None])))
    posterior = jax.jit(jax.vmap(lambda x: mixture.posterior(x[None]).probabilities[0]))
    best = np.asarray(posterior(np.arange(3.0)))
    np.testing.assert_allclose(best, p / (p + q), rtol=1e-10)
    value = p @ np.log(best) + q @ np.log(1 - best)
    assert value == pytest.approx(-1.13609, abs=5e-6)
    middle = (p + q) / 2
    assert value == pytest.approx(
        -np.log(4) + stats.entropy(p, middle) + stats.entropy(q, middle), rel=1e-10
    )


def frechet(rows, others):
    return np.asarray(_frechet(rows, others))


@jax.jit
def _frechet(rows, others):
    start = Gaussian(jnp.zeros(rows.shape[1]), Full(jnp.eye(rows.shape[1])))
    laws = [start.from_features(jnp.sum(jax.vmap(start.features)(x), axis=0)) for x in (rows, others)]
    return wasserstein2(*laws) ** 2


# L5, M9, M11
def test_frechet_distance_of_features_and_generators_that_copy():
    signs = np.array([[-1.0], [1.0]])
    # means 1 and 2, standard deviations 1.5 and ½
    assert float(frechet(1 + 1.5 * signs, 2 + 0.5 * signs)) == pytest.approx(2.0, rel=1e-7)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(40, 2)) @ rng.normal(size=(2, 2))
    other = rng.normal(size=(40, 2)) + 1
    first, second = np.cov(rows.T, bias=True), np.cov(other.T, bias=True)
    root = linalg.sqrtm(first @ second).real
    dense = np.sum((rows.mean(0) - other.mean(0)) ** 2) + np.trace(first + second - 2 * root)
    assert float(frechet(rows, other)) == pytest.approx(dense, rel=1e-7)
    assert float(frechet(other, rows)) == pytest.approx(dense, rel=1e-7)
    # covariances that commute: the distance of their roots
    scaled = 3 * rows
    gap = np.sum((rows.mean(0) - scaled.mean(0)) ** 2) + np.trace(first) * 4
    assert float(frechet(rows, scaled)) == pytest.approx(gap, rel=1e-7)
    # a generator that copies its rows is perfect by moments; its neighbours tell
    copies = rows[rng.permutation(40)]
    assert float(frechet(rows, copies)) == pytest.approx(0, abs=1e-9)
    nearest = NearestNeighbors(n_neighbors=1).fit(rows)
    assert nearest.kneighbors(copies)[0].max() == 0
    assert nearest.kneighbors(other)[0].min() > 0


def test_one_threshold_computes_majorities_and_two_layers_exclusive_or():
    bits = np.array(list(itertools.product([0.0, 1.0], repeat=3)))
    gates = {
        "and": bits.all(axis=1),
        "or": bits.any(axis=1),
        "not": bits[:, 0] == 0,
        "majority": bits.sum(axis=1) >= 2,
    }
    for name, answers in gates.items():
        neuron = Perceptron().fit(bits, answers)
        assert (neuron.predict(bits) == answers).all(), name
        assert neuron.mistakes_ <= neuron.bound_ < np.inf
    # no threshold on a line tells the parity of two bits: the program without an aim has no solution
    pairs = bits[::2, :2]
    parity = pairs.sum(axis=1) == 1
    signs = np.where(parity, -1.0, 1.0)[:, None]
    found = linprog(
        np.zeros(3), signs * np.column_stack([pairs, np.ones(4)]), np.full(4, -1.0), bounds=(None, None)
    )
    assert found.status == 2
    # or but not and
    hidden = np.column_stack([pairs.sum(axis=1) >= 1, pairs.sum(axis=1) >= 2])
    assert ((hidden @ [1.0, -1.0] >= 1) == parity).all()


def test_a_gram_matrix_of_low_rank_by_its_columns():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    gram = Polynomial(2).gram(x)
    for size in (3, 6, 10):
        features = Nystroem(
            Polynomial(2), n_components=size, standardise=False, random_state=0
        ).fit_transform(x)
        rest = gram - features @ features.T
        assert np.linalg.eigvalsh(rest).min() > -1e-8 * np.trace(gram)
        # the monomials of two columns up to the second degree are six
        assert (np.abs(rest).max() < 1e-7 * gram.max()) == (size >= 6)


def test_more_random_features_have_no_more_hinge_loss():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(60, 2))
    answers = np.sin(2 * x[:, 0]) * x[:, 1] > 0
    waves = np.cos(x @ rng.normal(size=(2, 40)) + rng.uniform(0, 2 * np.pi, 40))
    values = [
        SupportVectorMachine(LinearKernel(), C=10.0, standardise=False)
        .fit(waves[:, :size], answers)
        .primal_[0]
        for size in (5, 10, 20, 40)
    ]
    assert (np.diff(values) <= 1e-6).all()
    assert values[-1] < 0.5 * values[0]


# A27
def test_a_network_of_two_layers_whose_first_stays_is_a_rule_of_random_features():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(60, 2))
    signs = np.where(np.sin(2 * x[:, 0]) * x[:, 1] > 0, 1.0, -1.0)
    first, phase = rng.normal(size=(40, 2)), rng.uniform(0, 2 * np.pi, 40)
    machine = SupportVectorMachine(LinearKernel(), C=10.0, standardise=False)
    machine.fit(np.cos(x @ first.T + phase), signs)
    last = Linear(jnp.asarray(machine.coef_.T), jnp.asarray(machine.intercept_))
    network = MLP((Linear(jnp.asarray(first.T), jnp.asarray(phase)), last), jnp.cos)

    def penalised(network):
        score = jax.vmap(network)(x)[:, 0]
        hinge = jnp.sum(jnp.maximum(0, 1 - signs * score))
        return 0.5 * jnp.sum(network.layers[1].weight ** 2) + 10 * hinge, score

    @jax.jit
    def trained(network):
        def step(network, _):
            (value, score), slope = jax.value_and_grad(penalised, has_aux=True)(network)
            return jax.tree.map(lambda w, g: w - 1e-4 * g, network, slope), (value, score)

        return jax.lax.scan(step, network, length=300)[1]

    values, scores = map(np.asarray, trained(network))
    known = machine.decision_function(np.cos(x @ first.T + phase))
    np.testing.assert_allclose(scores[0], known, atol=1e-8)
    np.testing.assert_allclose(values[0], machine.primal_[0], rtol=1e-6)
    # learning the first layer, too, goes below what is least for this one
    assert values.min() < 0.9 * values[0]
