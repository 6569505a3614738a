"""Markov chains over finitely many states, and samplers by their exact transition matrices."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from freeenergy.distributions import AbstractDistribution, Binary, Categories, Reals
from freeenergy.inference import (
    AbstractFiniteKernel,
    AbstractKernel,
    Cycle,
    Finite,
    FiniteChain,
    Gibbs,
    Metropolis,
    MetropolisHastings,
    Mixing,
    OneOf,
    SliceSampler,
    enumerate_states,
    gibbs_scan,
    gibbs_sweep,
    state_number,
    transition_matrix,
)

KEY = jax.random.key(0)
MOLES = np.array([[0.1, 0.4, 0.5], [0.4, 0.0, 0.6], [0.0, 0.6, 0.4]])
CYCLE = np.array([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.5, 0.0, 0.5]])


def random_chain(size, seed=0, zeros=0.0):
    rng = np.random.default_rng(seed)
    matrix = rng.random((size, size)) * (rng.random((size, size)) >= zeros) + 0.1 * np.eye(size)
    return matrix / matrix.sum(axis=1, keepdims=True)


def test_stationary_laws_are_left_eigenvectors_and_all_of_them():
    chain = FiniteChain(random_chain(6))
    law = chain.stationary()
    values, vectors = np.linalg.eig(chain.transition.T)
    by_hand = np.real(vectors[:, np.argmin(np.abs(values - 1))])
    np.testing.assert_allclose(law, by_hand / by_hand.sum(), rtol=1e-10)
    assert chain.classes.ergodic
    # two classes that are never left, and a state between them
    matrix = np.zeros((5, 5))
    matrix[:2, :2] = [[0.9, 0.1], [0.3, 0.7]]
    matrix[2] = [0.1, 0.2, 0.3, 0.4, 0.0]
    matrix[3:, 3:] = [[0, 1], [1, 0]]
    parted = FiniteChain(matrix)
    laws = parted.stationary_laws()
    np.testing.assert_allclose(laws, [[0.75, 0.25, 0, 0, 0], [0, 0, 0, 0.5, 0.5]], atol=1e-12)
    # as many as the eigenvalue 1 has eigenvectors
    assert np.isclose(np.linalg.eigvals(matrix), 1).sum() == 2
    assert parted.second_eigenvalue() == pytest.approx(1)
    with pytest.raises(ValueError, match="The stationary distribution is not unique"):
        parted.stationary()
    assert parted.classes.periods == (1, 1, 2)


def test_a_chain_backwards_and_detailed_balance():
    chain = FiniteChain(random_chain(5, seed=1))
    law = chain.stationary()
    back = chain.reversed()
    expected = law[None, :] * chain.transition.T / law[:, None]
    np.testing.assert_allclose(back.transition, expected, rtol=1e-12)
    np.testing.assert_allclose(back.stationary(), law, rtol=1e-12)
    np.testing.assert_allclose(back.reversed().transition, chain.transition, rtol=1e-12)
    assert chain.imbalance() > 1e-3
    # a chain and its reverse, each half of the time, is reversible
    half = FiniteChain((chain.transition + back.transition) / 2)
    assert half.imbalance() < 1e-15
    np.testing.assert_allclose(FiniteChain(CYCLE).reversed().transition, CYCLE.T, atol=1e-15)
    # chains that only step to neighbours are reversible, and so are all of two states
    line = FiniteChain([[0.5, 0.5, 0, 0], [0.2, 0.5, 0.3, 0], [0, 0.1, 0, 0.9], [0, 0, 1, 0]])
    assert line.imbalance() < 1e-15
    assert FiniteChain([[0.9, 0.1], [0.3, 0.7]]).imbalance() < 1e-15
    with pytest.raises(ValueError, match=r"give every state a probability above zero\. Got 0 at state 0"):
        FiniteChain([[0.5, 0.5], [0, 1]]).reversed()


def test_distance_from_the_law():
    chain = FiniteChain([[0.9, 0.1], [0.3, 0.7]])
    found = chain.mixing([0, 1], steps=10)
    assert isinstance(found, Mixing)
    np.testing.assert_allclose(found.total_variation, 0.75 * 0.6 ** np.arange(11), rtol=1e-12)
    assert found.total_variation[10] == pytest.approx(0.0045349632)
    assert chain.second_eigenvalue() == pytest.approx(0.6)
    # from the worst state: 0.75 · 0.6ⁿ ≤ d
    for distance in (0.9, 0.75, 0.25, 0.01, 1e-6):
        steps = max(0, int(np.ceil(np.log(distance / 0.75) / np.log(0.6) - 1e-9)))
        assert chain.mixing_time(distance) == steps
    # without reversibility both divergences fall too, from any start
    moles = FiniteChain(MOLES)
    np.testing.assert_allclose(moles.stationary(), np.array([12, 27, 37]) / 76, rtol=1e-12)
    assert moles.imbalance() > 0.01
    for start in np.random.default_rng(0).dirichlet(np.ones(3), 5):
        curve = moles.mixing(start, steps=8)
        for distances in curve:
            assert (np.diff(distances) <= 1e-15).all()
        after = start @ np.linalg.matrix_power(MOLES, 8)
        assert curve.kl_to_law[8] == pytest.approx(stats.entropy(after, moles.stationary()), abs=1e-15)
        assert curve.kl_from_law[8] == pytest.approx(stats.entropy(moles.stationary(), after), abs=1e-15)
    np.testing.assert_allclose(moles.after([1, 0, 0], 2), [0.17, 0.34, 0.49])
    assert np.isinf(moles.mixing([1, 0, 0], steps=1).kl_from_law[0])
    # a period keeps it away
    around = FiniteChain(np.roll(np.eye(3), 1, axis=1))
    assert around.mixing([1, 0, 0], steps=5).total_variation[5] == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="Got one of period 3 instead"):
        around.mixing_time()


def test_times_and_probabilities_of_visits():
    """Gambler's ruin has closed forms: i/n at even odds, and i (n − i) steps."""
    n = 6
    matrix = np.zeros((n + 1, n + 1))
    matrix[0, 0] = matrix[n, n] = 1
    for i in range(1, n):
        matrix[i, [i - 1, i + 1]] = 0.5
    ruin = FiniteChain(matrix)
    i = np.arange(n + 1)
    np.testing.assert_allclose(ruin.hitting_probabilities([n]), i / n, rtol=1e-12)
    np.testing.assert_allclose(ruin.hitting_times([0, n]), i * (n - i), rtol=1e-12)
    times = ruin.hitting_times([n])
    assert np.isinf(times[:-1]).all()
    assert times[-1] == 0
    inner = matrix[1:n, 1:n]
    np.testing.assert_allclose(
        ruin.visits()[1:n, 1:n], sum(np.linalg.matrix_power(inner, k) for k in range(400)), rtol=1e-9
    )
    assert np.isinf(ruin.visits()[3, [0, n]]).all()
    assert ruin.visits()[0, 3] == 0
    # back at the start: by a step to either side, and from there by the odds of ruin over k steps
    back = [0.5 * (k - 1) / k + 0.5 * (n - k - 1) / (n - k) for k in range(1, n)]
    np.testing.assert_allclose(ruin.return_probabilities(), [1, *back, 1], rtol=1e-12)
    # the expected time of return to a state of an irreducible chain is 1/π
    chain = FiniteChain(random_chain(5, seed=2))
    for state in range(5):
        time = 1 + chain.transition[state] @ chain.hitting_times([state])
        assert time == pytest.approx(1 / chain.stationary()[state])
    path = chain.sample([1, 0, 0, 0, 0], 40_000, random_state=0)
    assert path[0] == 0
    share = np.bincount(path, minlength=5) / len(path)
    np.testing.assert_allclose(share, chain.stationary(), atol=0.02)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: FiniteChain(np.ones((2, 3))), "must be a square matrix. Got an array of shape"),
        (
            lambda: FiniteChain([[0.5, 0.6], [0, 1]]),
            "must be non-negative with sum one",
        ),
        (lambda: FiniteChain(MOLES).after([0.5, 0.6, 0], 1), "must be 3 probabilities of sum one. Got"),
        (lambda: FiniteChain(MOLES).hitting_times([3]), "numbers of states from 0 to 2. Got"),
        (lambda: transition_matrix(lambda z, *, key: z, Categories(2)), "needs a kernel that knows its"),
        (
            lambda: transition_matrix(gibbs_sweep(jnp.sum, Binary((20,))), Binary((20,))),
            "at most 4,096 states. Got 1,048,576 instead",
        ),
        (lambda: gibbs_sweep(jnp.sum, Binary((3,)), blocks=[[0, 1]]), "must hold every entry from 0 to 2"),
        (
            lambda: gibbs_sweep(jnp.sum, Binary((20,)), blocks=[range(20)]),
            "may have 65,536 joint values. Got 1,048,576 instead",
        ),
        (lambda: gibbs_sweep(jnp.sum, Reals((2,))), "needs a tree of finite spaces. Got Reals"),
    ],
)
def test_what_has_no_answer(call, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence.replace(".", r"\.")):
        call()


# samplers -----------------------------------------------------------------------------------------

SPACE = {"bits": Binary((2,)), "label": Categories(3)}
COUPLING = np.random.default_rng(5).normal(size=(4, 3))


def energy(z):
    """Any energy over twelve states."""
    row = 2 * z["bits"][0].astype(int) + z["bits"][1].astype(int)
    return jnp.asarray(COUPLING)[row, z["label"]]


def law():
    p = np.exp(-COUPLING.reshape(-1))
    return p / p.sum()


class Lopsided(AbstractDistribution):
    """A proposal that likes later states, whatever the one before was."""

    z: dict

    def _weights(self):
        return jax.nn.softmax(0.2 * jnp.arange(12.0) + 0.1 * state_number(SPACE, self.z).astype(float))

    def log_prob(self, x):
        return jnp.log(self._weights()[state_number(SPACE, x)])

    def sample(self, *, key):
        which = jax.random.categorical(key, jnp.log(self._weights()))
        return jax.tree.map(lambda a: a[which], enumerate_states(SPACE))


KERNELS = {
    "sweep": (gibbs_sweep(energy, SPACE), False),
    "scan": (gibbs_scan(energy, SPACE), True),
    "blocks": (gibbs_sweep(energy, SPACE, blocks=[[0, 2], [1]]), False),
    "random blocks": (gibbs_scan(energy, SPACE, blocks=[[0, 2], [1, 2]]), True),
    "all at once": (gibbs_sweep(energy, SPACE, blocks=[[0, 1, 2]]), True),
    "metropolis": (MetropolisHastings()(energy, SPACE), True),
    "hastings": (MetropolisHastings(Lopsided)(energy, SPACE), True),
    "cycle": (Cycle((gibbs_scan(energy, SPACE), MetropolisHastings(Lopsided)(energy, SPACE))), False),
    "one of": (
        OneOf((gibbs_scan(energy, SPACE), MetropolisHastings()(energy, SPACE)), jnp.array([1.0, 3.0])),
        True,
    ),
}


@pytest.mark.parametrize("name", KERNELS)
def test_samplers_leave_their_target_unchanged_exactly(name):
    kernel, reversible = KERNELS[name]
    assert isinstance(kernel, AbstractFiniteKernel | AbstractKernel)
    matrix = transition_matrix(kernel, SPACE)
    np.testing.assert_allclose(matrix.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(law() @ matrix, law(), atol=1e-15)
    chain = FiniteChain(matrix)
    assert chain.classes.ergodic
    np.testing.assert_allclose(chain.stationary(), law(), rtol=1e-9)
    assert (chain.imbalance() < 1e-15) == reversible
    # what is drawn has the probabilities of the matrix: 3,000 steps from one state
    begin = {"bits": jnp.array([1.0, 0.0]), "label": jnp.array(1)}
    row = matrix[int(state_number(SPACE, begin))]
    steps = jax.jit(jax.vmap(lambda k: state_number(SPACE, kernel(begin, key=k))))
    counts = np.bincount(steps(jax.random.split(KEY, 3000)), minlength=12)
    assert not counts[row < 1e-12].any()
    possible = row > 1e-12
    if possible.sum() > 1:
        assert stats.chisquare(counts[possible], 3000 * row[possible]).pvalue > 1e-4


def test_gibbs_sampling_by_hand():
    """The matrix of one entry is the conditional of the table, and a sweep the product in order."""
    p = law().reshape(2, 2, 3)
    singles = []
    for axis in range(3):
        conditional = p / p.sum(axis=axis, keepdims=True)
        matrix = np.zeros((12, 12))
        for now, then in itertools.product(np.ndindex(2, 2, 3), repeat=2):
            if all(a == b for i, (a, b) in enumerate(zip(now, then, strict=True)) if i != axis):
                matrix[np.ravel_multi_index(now, p.shape), np.ravel_multi_index(then, p.shape)] = (
                    conditional[then]
                )
        singles.append(matrix)
    sweep = transition_matrix(KERNELS["sweep"][0], SPACE)
    np.testing.assert_allclose(sweep, singles[0] @ singles[1] @ singles[2], atol=1e-15)
    np.testing.assert_allclose(transition_matrix(KERNELS["scan"][0], SPACE), sum(singles) / 3, atol=1e-15)
    np.testing.assert_allclose(
        transition_matrix(KERNELS["all at once"][0], SPACE), np.tile(law(), (12, 1)), atol=1e-15
    )
    assert isinstance(KERNELS["sweep"][0], Gibbs)


def test_metropolis_of_a_walk_over_four_states():
    """p ∝ (1, 2, 3, 4) with steps of ±1; beyond the ends the walk stays."""
    walk = np.zeros((4, 4))
    for i, j in [(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)]:
        walk[i, j] = 0.5
    walk += np.diag(1 - walk.sum(axis=1))
    steps = jnp.asarray(walk)

    def target(z):
        return -jnp.log1p(z.astype(float))

    matrix = transition_matrix(
        MetropolisHastings(lambda z: Finite(steps[z]))(target, Categories(4)), Categories(4)
    )
    p = np.arange(1, 5) / 10
    by_hand = walk * np.minimum(1, p[None] / p[:, None])
    np.fill_diagonal(by_hand, 0)
    by_hand += np.diag(1 - by_hand.sum(axis=1))
    np.testing.assert_allclose(matrix, by_hand, atol=1e-15)
    chain = FiniteChain(matrix)
    assert chain.imbalance(p) < 1e-15
    assert chain.second_eigenvalue() == pytest.approx(0.716445886, abs=1e-9)
    # draws of the target itself are always taken
    own = MetropolisHastings(lambda z: Finite(jnp.asarray(p)))(target, Categories(4))
    np.testing.assert_allclose(transition_matrix(own, Categories(4)), np.tile(p, (4, 1)), atol=1e-15)
    chance = jax.jit(lambda z: own.acceptance(own.step(own.begin(z), key=KEY)))(0)
    assert float(chance) == pytest.approx(1)
    # a lopsided proposal needs Hastings' ratio: without it another law is left unchanged
    skew = np.array([[0.2, 0.8, 0, 0], [0.1, 0.1, 0.8, 0], [0, 0.1, 0.1, 0.8], [0, 0, 0.5, 0.5]])
    lopsided = MetropolisHastings(lambda z: Finite(jnp.asarray(skew)[z]))(target, Categories(4))
    assert isinstance(lopsided, Metropolis)
    right = FiniteChain(transition_matrix(lopsided, Categories(4)))
    np.testing.assert_allclose(right.stationary(), p, rtol=1e-12)
    without = skew * np.minimum(1, p[None] / p[:, None])
    np.fill_diagonal(without, 0)
    without += np.diag(1 - without.sum(axis=1))
    assert np.abs(FiniteChain(without).stationary() - p).max() > 0.1


def test_where_a_sampler_is_stuck():
    """Two bits that must be equal: single entries never change, a block does."""
    equal = Binary((2,))

    def stiff(z):
        return jnp.where(z[0] == z[1], 0.0, jnp.inf)

    one = FiniteChain(transition_matrix(gibbs_sweep(stiff, equal), equal))
    assert len(one.stationary_laws()) == 2
    both = FiniteChain(transition_matrix(gibbs_sweep(stiff, equal, blocks=[[0, 1]]), equal))
    np.testing.assert_allclose(both.stationary(), [0.5, 0, 0, 0.5])


def test_a_matrix_of_kernels_without_probabilities_is_refused():
    walk = SliceSampler()(lambda z: z, Reals(()))
    with pytest.raises(TypeError, match=r"must know its probabilities for a transition matrix\. Got"):
        transition_matrix(Cycle((walk,)), Categories(2))
