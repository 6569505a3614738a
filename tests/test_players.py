"""Several players in one loop: games with a known course, a GAN, wake and sleep."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from freeenergy._core import parameter, positive
from freeenergy.inference import binary_states
from freeenergy.learning import Game, Gradient, Player, Simulator, fit, only
from freeenergy.nn import MLP, Linear, mlp

# ---- a game with a known course: min over x, max over y of x y


class Point(eqx.Module):
    x: jax.Array = parameter()
    y: jax.Array = parameter()


def product(model, batch, key):
    return model.x * model.y


def minus_product(model, batch, key):
    return -model.x * model.y


RATE = 0.2
SGD = optax.sgd(RATE)
POINT = Point(jnp.array(1.0), jnp.array(0.5))
PLAYERS = (
    Player("x", SGD, product, only(POINT, lambda m: m.x)),
    Player("y", SGD, minus_product, only(POINT, lambda m: m.y)),
)
ROWS = np.zeros((4, 1))
KEYS = jax.random.split(jax.random.key(0))


def course(matrix, n):
    return np.linalg.matrix_power(np.array(matrix), n) @ np.array([1.0, 0.5])


@pytest.mark.parametrize(
    ("simultaneous", "matrix"),
    [
        # both see where the round began: a rotation by arctan η that grows by √(1 + η²)
        (True, [[1.0, -RATE], [RATE, 1.0]]),
        # y sees the new x: the determinant is one, a rotation by arccos(1 − η²/2) on an ellipse
        (False, [[1.0, -RATE], [RATE, 1.0 - RATE**2]]),
    ],
)
def test_a_bilinear_game_turns_as_its_matrix_does(simultaneous, matrix, key):
    game = Game(PLAYERS, simultaneous=simultaneous)
    result = fit(POINT, game, ROWS, key=key, max_iter=50)
    np.testing.assert_allclose([result.model.x, result.model.y], course(matrix, 50), rtol=1e-11)
    turns = np.abs(np.linalg.eigvals(matrix))
    np.testing.assert_allclose(turns, np.sqrt(1 + RATE**2) if simultaneous else 1.0)
    # each player tells its own objective, and nobody invents one for all
    assert set(result.history) == {"x", "y"}
    before = np.stack([course(matrix, n) for n in range(50)])
    np.testing.assert_allclose(result.history["x"], before.prod(axis=1), rtol=1e-9, atol=1e-12)
    seen = np.append(before[1:, 0], result.model.x) if not simultaneous else before[:, 0]
    np.testing.assert_allclose(result.history["y"], -seen * before[:, 1], rtol=1e-9, atol=1e-12)


class Rates(eqx.Module):
    fast: jax.Array = parameter(positive)
    slow: jax.Array = parameter(positive)
    rest: jax.Array = parameter()


def quadratic(model, batch, key):
    return 0.5 * (model.fast - 2.0) ** 2 + 0.5 * (model.slow - 3.0) ** 2 + model.rest


def test_a_player_moves_its_own_parameters_as_often_as_it_says(key):
    start = Rates(jnp.array(1.0), jnp.array(1.0), jnp.array(4.0))
    fast = Player("fast", SGD, quadratic, only(start, lambda m: m.fast), steps=3)
    slow = Player("slow", SGD, quadratic, only(start, lambda m: m.slow))
    found = fit(start, Game((fast, slow)), ROWS, key=key, max_iter=2)
    # by hand, on the free reals log(exp(v) − 1)
    u = v = float(np.log(np.expm1(1.0)))
    told = []
    for _ in range(2):
        values = []
        for _ in range(3):
            a, b = np.logaddexp(0, u), np.logaddexp(0, v)
            values.append(0.5 * (a - 2) ** 2 + 0.5 * (b - 3) ** 2 + 4)
            u -= RATE * (a - 2) / (1 + np.exp(-u))
        told.append(np.mean(values))
        v -= RATE * (np.logaddexp(0, v) - 3) / (1 + np.exp(-v))
    np.testing.assert_allclose(found.model.fast, np.logaddexp(0, u), rtol=1e-12)
    np.testing.assert_allclose(found.model.slow, np.logaddexp(0, v), rtol=1e-12)
    np.testing.assert_allclose(found.history["fast"], told, rtol=1e-12)
    # nobody plays with the rest, which stays to the bit
    assert found.model.rest == 4.0


def test_one_player_alone_is_gradient(key):
    rows = np.random.default_rng(0).normal(size=(40, 1))

    def noisy(model, batch, key):
        return batch.mean((batch.x[:, 0] - model.x + jax.random.normal(key, batch.weight.shape)) ** 2)

    player = Player("objective", SGD, noisy)
    game = fit(POINT, Game((player,), batch_size=16, average=0.9), rows, key=key, max_iter=5)
    plain = fit(POINT, Gradient(SGD, noisy, batch_size=16, average=0.9), rows, key=key, max_iter=5)
    assert game.model.x == plain.model.x
    np.testing.assert_array_equal(game.history["objective"], plain.history["objective"])


def test_players_that_cannot_be_told_apart_are_refused():
    with pytest.raises(ValueError, match=r"must have names of their own\. Got \['x', 'x'\] instead\."):
        Game((PLAYERS[0], PLAYERS[0]))
    with pytest.raises(
        ValueError, match=r"The 'steps' parameter of Player must be an int in the range \[1"
    ):
        Player("x", SGD, product, steps=0)


# ---- a GAN on a ring of eight Gaussians

RADIUS, SPREAD = 2.0, 0.1


def ring(key):
    place, noise = jax.random.split(key)
    angle = jax.random.randint(place, (), 0, 8).astype(jnp.float32) * (jnp.pi / 4)
    centre = RADIUS * jnp.stack([jnp.cos(angle), jnp.sin(angle)])
    return centre + SPREAD * jax.random.normal(noise, (2,), jnp.float32)


class GAN(eqx.Module):
    generator: MLP
    critic: MLP

    def sample(self, n, key):
        return jax.vmap(self.generator)(jax.random.normal(key, (n, 8), jnp.float32))


def criticise(model, batch, key):
    """Cross entropy of real and made, with the penalty ½·0.1·‖∇D‖² on real rows that makes it converge."""

    def loss(real, made):
        value, slope = jax.value_and_grad(lambda x: model.critic(x)[0])(real)
        return jax.nn.softplus(-value) + jax.nn.softplus(model.critic(made)[0]) + 0.05 * jnp.sum(slope**2)

    return batch.mean(jax.vmap(loss)(batch.x, model.sample(len(batch.x), key)))


def deceive(model, batch, key):
    made = jax.vmap(model.critic)(model.sample(len(batch.x), key))
    return batch.mean(jax.nn.softplus(-made[:, 0]))


@pytest.mark.slow
def test_a_gan_finds_the_modes_of_a_ring(key):
    generator, critic = (
        mlp(i, o, width=64, depth=2, key=k) for i, o, k in [(8, 2, KEYS[0]), (2, 1, KEYS[1])]
    )
    start, adam = GAN(generator, critic), optax.adam(2e-3, b1=0.0, b2=0.9)
    game = Game(
        (
            Player("critic", adam, criticise, only(start, lambda m: m.critic)),
            Player("generator", adam, deceive, only(start, lambda m: m.generator)),
        ),
        batch_size=128,
        average=0.99,
    )
    result = fit(start, game, Simulator(ring, rows=12_800), key=key, max_iter=20)
    x = np.asarray(jax.jit(lambda model: model.sample(1000, key))(result.model))
    mode = np.round(np.arctan2(x[:, 1], x[:, 0]) / (np.pi / 4)).astype(int)
    centres = RADIUS * np.stack([np.cos(mode * np.pi / 4), np.sin(mode * np.pi / 4)], axis=1)
    near = np.hypot(*(x - centres).T) < 4 * SPREAD
    # 125 to a mode if all is well, of which nine in ten are within four deviations of its centre
    assert (np.bincount(mode[near] % 8, minlength=8) > 60).sum() >= 7
    assert near.mean() > 0.8
    radius = np.hypot(*x.T)
    assert abs(np.median(radius) / RADIUS - 1) < 0.02
    # at its end the critic knows no better than chance
    assert abs(result.history["critic"][-1] - np.log(4)) < 0.05


# ---- wake and sleep in a machine small enough to be enumerated


class Helmholtz(eqx.Module):
    """One hidden bit, four visible ones; a logistic unit recognises the hidden one, as it can exactly."""

    prior: jax.Array = parameter()
    bias: jax.Array = parameter()
    loading: jax.Array = parameter()
    recognition: Linear

    def log_joint(self, x, z):
        return _log_bit(self.prior, z) + jnp.sum(_log_bit(self.bias + self.loading * z, x))

    def guess(self, x):
        return self.recognition(x)[0]

    def dream(self, key):
        first, second = jax.random.split(key)
        z = _bit(first, self.prior)
        return _bit(second, self.bias + self.loading * z), z


def _bit(key, logit):
    return jax.random.bernoulli(key, jax.nn.sigmoid(logit)).astype(jnp.float64)


def _log_bit(logit, bit):
    return -jax.nn.softplus(jnp.where(bit > 0, -logit, logit))


def wake(model, batch, key):
    def loss(x, k):
        return -model.log_joint(x, _bit(k, model.guess(x)))

    return batch.mean(jax.vmap(loss)(batch.x, jax.random.split(key, len(batch.x))))


def sleep(model, batch, key):
    x, z = jax.vmap(model.dream)(jax.random.split(key, len(batch.x)))
    return batch.mean(-jax.vmap(lambda x, z: _log_bit(model.guess(x), z))(x, z))


def test_wake_and_sleep_end_at_the_likelihood_and_at_the_posterior(key):
    nobody = Linear(jnp.zeros((4, 1)), jnp.zeros(1))
    truth = Helmholtz(
        jnp.array(0.4), jnp.array([-1.5, 1.5, -1.0, 1.0]), jnp.array([3.0, -3.0, 2.0, 0.0]), nobody
    )
    start = Helmholtz(jnp.array(0.0), jnp.zeros(4), jnp.array([0.3, -0.1, 0.2, 0.1]), nobody)
    states = np.asarray(binary_states(4))

    @jax.jit
    def told(model):
        joint = jax.vmap(lambda x: jnp.stack([model.log_joint(x, z) for z in (0.0, 1.0)]))(states)
        return joint, jax.nn.sigmoid(jax.vmap(model.guess)(states))

    def joint(model):
        return np.asarray(told(model)[0])

    def cross_entropy(model):
        return -np.exp(np.logaddexp(*joint(truth).T)) @ np.logaddexp(*joint(model).T)

    slower = optax.adam(optax.exponential_decay(0.05, 240, 0.5))
    generative = only(start, lambda m: (m.prior, m.bias, m.loading))
    game = Game(
        (
            Player("wake", slower, wake, generative),
            Player("sleep", slower, sleep, only(start, lambda m: m.recognition)),
        ),
        batch_size=128,
    )
    result = fit(start, game, Simulator(lambda k: truth.dream(k)[0], rows=12_800), key=key, max_iter=12)
    least = cross_entropy(truth)
    assert cross_entropy(start) > least + 0.2
    assert cross_entropy(result.model) < least + 0.003
    # the recognition is the posterior of the model that was learned
    exact = joint(result.model)
    posterior = 1 / (1 + np.exp(exact[:, 0] - exact[:, 1]))
    guessed = told(result.model)[1]
    gap = np.exp(np.logaddexp(*exact.T)) @ np.abs(np.asarray(guessed) - np.asarray(posterior))
    assert gap < 0.02
