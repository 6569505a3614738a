"""Chains with finitely many states, against every path written out."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from freeenergy._core import on_device
from freeenergy.inference import (
    AbstractBeliefs,
    AbstractParallelBeliefs,
    BestBeliefs,
    BestPaths,
    Filtered,
    FiniteBeliefs,
    FiniteStep,
    Smoothed,
    StateClasses,
    best_paths,
    classify_states,
    filter,
    parallel_filter,
    parallel_smooth,
    sample_paths,
    smooth,
    stationary,
)

K, T = 3, 5


def problem(seed=0, steps=T, zeros=True):
    rng = np.random.default_rng(seed)
    initial = rng.dirichlet(np.ones(K))
    transition = rng.dirichlet(np.ones(K), K)
    if zeros:
        transition[0, 2] = 0.0
        transition /= transition.sum(axis=1, keepdims=True)
    return initial, transition, rng.normal(size=(steps, K)) * 2


def paths_of(initial, transition, logs):
    """Every path and log p(path, y)."""
    paths = np.array(list(itertools.product(range(K), repeat=len(logs))))
    with np.errstate(divide="ignore"):
        score = np.log(initial)[paths[:, 0]] + logs[np.arange(len(logs)), paths].sum(axis=1)
        score = score + np.log(transition)[paths[:, :-1], paths[:, 1:]].sum(axis=1)
    return paths, score


@pytest.fixture(scope="module")
def exact():
    initial, transition, logs = problem()
    paths, score = paths_of(initial, transition, logs)
    p = np.exp(score)
    posterior = p / p.sum()
    marginals = np.array([[posterior[paths[:, t] == k].sum() for k in range(K)] for t in range(T)])
    pairs = np.zeros((T - 1, K, K))
    for t in range(T - 1):
        np.add.at(pairs[t], (paths[:, t], paths[:, t + 1]), posterior)
    arrays = (on_device(initial), on_device(transition), FiniteStep(on_device(logs)))
    return arrays, np.log(p.sum()), marginals, pairs, paths, score, posterior


@eqx.filter_jit
def run(initial, transition, steps, forward=filter, backward=smooth, **options):
    beliefs = FiniteBeliefs(transition)
    result = forward(beliefs, initial, steps, **options)
    return result, backward(beliefs, result, steps, options.get("starts"))


filtered_by = eqx.filter_jit(filter)
smoothed_by = eqx.filter_jit(smooth)
decoded = eqx.filter_jit(best_paths)


@pytest.mark.parametrize(
    ("forward", "backward"),
    [(filter, smooth), (parallel_filter, parallel_smooth)],
    ids=["scan", "parallel"],
)
def test_equals_enumeration(exact, forward, backward):
    arrays, evidence, marginals, pairs, *_ = exact
    filtered, smoothed = run(*arrays, forward, backward)
    assert isinstance(filtered, Filtered)
    assert isinstance(smoothed, Smoothed)
    filtered, smoothed = jax.tree.map(np.asarray, (filtered, smoothed))
    np.testing.assert_allclose(filtered.log_evidence.sum(), evidence, rtol=1e-12)
    np.testing.assert_allclose(smoothed.marginals, marginals, atol=1e-12)
    np.testing.assert_allclose(smoothed.pairs, pairs, atol=1e-12)
    # filtered and predicted beliefs are posteriors of shorter series
    _, transition, steps = arrays
    for t in range(1, T):
        paths, score = paths_of(*problem()[:2], np.asarray(steps.log_likelihood)[:t])
        p = np.exp(score - score.max())
        now = np.array([p[paths[:, -1] == k].sum() for k in range(K)]) / p.sum()
        np.testing.assert_allclose(filtered.filtered[t - 1], now, atol=1e-12)
        np.testing.assert_allclose(filtered.predicted[t], now @ np.asarray(transition), atol=1e-12)


def test_posterior_is_a_chain_again(exact):
    """The product of the forward kernels is the posterior of every whole path."""
    arrays, _, marginals, _, paths, _, posterior = exact
    _, smoothed = run(*arrays)
    kernels = np.asarray(jax.jit(jax.vmap(FiniteBeliefs(arrays[1]).forward))(smoothed.pairs))
    product = marginals[0][paths[:, 0]]
    for t in range(T - 1):
        product = product * kernels[t][paths[:, t], paths[:, t + 1]]
    np.testing.assert_allclose(product, posterior, atol=1e-12)


def test_sampled_paths_follow_the_posterior(exact):
    arrays, *_, posterior = exact
    beliefs = FiniteBeliefs(arrays[1])
    filtered = filtered_by(beliefs, arrays[0], arrays[2])
    n = 20_000
    keys = jax.random.split(jax.random.key(1), n)
    draws = jax.jit(jax.vmap(lambda k: sample_paths(beliefs, filtered, arrays[2], key=k)))(keys)
    codes = np.asarray(draws) @ K ** np.arange(T)[::-1]
    counts = np.bincount(codes, minlength=K**T)
    assert counts[posterior == 0].sum() == 0
    big = posterior * n > 5
    chi2 = ((counts - posterior * n)[big] ** 2 / (posterior * n)[big]).sum()
    assert chi2 < big.sum() + 5 * np.sqrt(2 * big.sum())


def test_best_paths(exact):
    arrays, *_, paths, score, _ = exact
    n = 6
    found = decoded(*arrays, n=n)
    assert isinstance(found, BestPaths)
    order = np.argsort(score)[::-1][:n]
    np.testing.assert_array_equal(np.asarray(found.states).T, paths[order])
    np.testing.assert_allclose(found.log_prob, score[order], rtol=1e-12)
    one = decoded(*arrays)
    np.testing.assert_array_equal(np.asarray(one.states)[:, 0], paths[order[0]])
    # with more paths asked for than there are, the rest is impossible
    short = FiniteStep(np.asarray(arrays[2].log_likelihood)[:1])
    few = decoded(arrays[0], arrays[1], short, n=5)
    assert np.isneginf(np.asarray(few.log_prob)[3:]).all()
    assert np.isfinite(np.asarray(few.log_prob)[:3]).all()


def test_max_marginals_and_the_zero_temperature_limit(exact):
    """`smooth` at temperature zero is the best path through each state, the limit of T log γ."""
    (initial, transition, steps), *_, paths, score, _ = exact
    initial, transition, logs = (np.asarray(a) for a in (initial, transition, steps.log_likelihood))
    with np.errstate(divide="ignore"):
        beliefs = BestBeliefs(on_device(np.log(transition)))
    filtered = filtered_by(beliefs, np.log(initial)[:, None], steps)
    smoothed = smoothed_by(beliefs, filtered, steps)
    for t in range(T):
        through = np.array([score[paths[:, t] == k].max() for k in range(K)]) - score.max()
        np.testing.assert_allclose(np.asarray(smoothed.marginals)[t, :, 0], through, atol=1e-10)
    temperature = 0.01
    power = on_device(transition ** (1 / temperature))
    limit = filtered_by(FiniteBeliefs(power), initial ** (1 / temperature), FiniteStep(logs / temperature))
    best = temperature * np.sum(limit.log_evidence)
    # T log Σ exp(score / T) lies between the maximum and T log(number of paths) above it
    assert score.max() - 1e-9 <= best <= score.max() + temperature * np.log(len(score))
    kernel = np.asarray(eqx.filter_jit(lambda b, pairs: b.forward(pairs[0]))(beliefs, smoothed.pairs))
    assert (kernel.max(axis=1) == 0).all()


def test_ice_cream():
    """Jurafsky and Martin's example: 3, 1 and 3 ice creams in hot or cold weather."""
    initial, transition = on_device([0.8, 0.2]), on_device([[0.6, 0.4], [0.5, 0.5]])
    likelihoods = np.array([[0.4, 0.1], [0.2, 0.5], [0.4, 0.1]])
    filtered, smoothed = run(initial, transition, FiniteStep(on_device(np.log(likelihoods))))
    scale = np.exp(np.cumsum(filtered.log_evidence))
    alpha = np.asarray(filtered.filtered) * scale[:, None]
    np.testing.assert_allclose(alpha, [[0.32, 0.02], [0.0404, 0.069], [0.023496, 0.005066]], rtol=1e-12)
    np.testing.assert_allclose(np.asarray(smoothed.marginals)[0], [0.936629, 0.063371], atol=5e-7)


def test_pointwise_decoding_can_be_impossible_but_viterbi_is_not():
    transition = on_device([[1.0, 0, 0], [0, 0, 1], [0, 0, 1]])
    initial = on_device([0.4, 0.3, 0.3])
    steps = FiniteStep(on_device(np.zeros((2, 3))))
    _, smoothed = run(initial, transition, steps)
    assert np.argmax(smoothed.marginals, axis=1).tolist() == [0, 2]
    best = decoded(initial, transition, steps)
    assert np.asarray(best.states)[:, 0].tolist() == [0, 0]
    np.testing.assert_allclose(np.exp(np.asarray(best.log_prob)[0]), 0.4)


@pytest.mark.parametrize("forward", [filter, pytest.param(parallel_filter, marks=pytest.mark.slow)])
def test_underflow_and_impossible_observations(forward):
    """Tiny likelihoods are not zero, and states that cannot be reached do not set the scale."""
    initial = np.array([1.0, 0.0])
    transition = on_device([[1.0, 0.0], [0.5, 0.5]])
    logs = np.array([[-5000.0, 0.0], [-3.0, 2000.0]])

    @jax.jit
    def total_and_slopes(logs, initial):
        def total(logs, initial):
            steps = forward(FiniteBeliefs(transition), initial, FiniteStep(logs)).log_evidence
            return steps.sum(), steps

        return jax.value_and_grad(total, (0, 1), has_aux=True)(logs, initial)

    (_, steps), (in_logs, _) = total_and_slopes(logs, initial)
    np.testing.assert_allclose(steps, [-5000.0, -3.0], rtol=1e-12)
    np.testing.assert_allclose(in_logs, [[1.0, 0.0], [1.0, 0.0]])
    (total, _), gradients = total_and_slopes(np.array([[-5000.0, 0.0], [-np.inf, 2000.0]]), initial)
    assert np.isneginf(total)
    assert all(np.isfinite(np.asarray(g)).all() for g in gradients)


@pytest.mark.slow
def test_long_series_in_parallel_and_in_order():
    initial, transition, logs = map(jnp.asarray, problem(3, 200))
    steps = FiniteStep(logs * 20)
    (one, back_one), (two, back_two) = (
        run(initial, transition, steps),
        run(initial, transition, steps, parallel_filter, parallel_smooth),
    )
    for a, b in zip(jax.tree.leaves((one, back_one)), jax.tree.leaves((two, back_two)), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize(
    ("forward", "backward"),
    [(filter, smooth), (parallel_filter, parallel_smooth)],
    ids=["scan", "parallel"],
)
def test_several_series_in_one_and_steps_without_observation(forward, backward):
    initial, transition, logs = map(on_device, problem(4, 9))
    observed = np.array([True, False, True, True, True, False, True, True, False])
    starts = np.array([True, False, False, False, True, False, False, False, False])
    filtered, smoothed = run(
        initial, transition, FiniteStep(logs), forward, backward, observed=observed, starts=starts
    )
    filtered, smoothed = jax.tree.map(np.asarray, (filtered, smoothed))
    known = np.where(observed[:, None], np.asarray(logs), 0)
    for part in (slice(0, 4), slice(4, 9)):
        # not observed is the same as likelihood one
        paths, score = paths_of(*problem(4, 9)[:2], known[part])
        p = np.exp(score)
        np.testing.assert_allclose(filtered.log_evidence[part].sum(), np.log(p.sum()), rtol=1e-10)
        marginals = [[p[paths[:, t] == k].sum() / p.sum() for k in range(K)] for t in range(paths.shape[1])]
        np.testing.assert_allclose(smoothed.marginals[part], marginals, atol=1e-12)
    best = decoded(initial, transition, FiniteStep(known), starts=starts)
    parts = [decoded(initial, transition, FiniteStep(known[p])) for p in (slice(0, 4), slice(4, 9))]
    np.testing.assert_array_equal(best.states, np.concatenate([p.states for p in parts]))


def test_time_stands_still_in_padding():
    """Nothing changes when padding is appended, not even the n best paths."""
    initial, transition, logs = problem(8, 6)
    real = np.arange(6) < 4
    longer, shorter = FiniteStep(logs), FiniteStep(logs[:4])

    @jax.jit
    def asked(steps, real):
        # rows that do not sum to one, as at a temperature: padding must not count them either
        beliefs = FiniteBeliefs(transition**0.5)
        filtered = filter(beliefs, initial, steps, None, None, real)
        smoothed = smooth(beliefs, filtered, steps, None, real).marginals
        return filtered, smoothed, best_paths(initial, transition, steps, 4, None, real)

    padded, smoothed, one = jax.tree.map(np.asarray, asked(longer, real))
    plain, alone, two = jax.tree.map(np.asarray, asked(shorter, None))
    np.testing.assert_allclose(padded.log_evidence.sum(), plain.log_evidence.sum(), rtol=1e-12)
    np.testing.assert_allclose(smoothed[:4], alone, atol=1e-12)
    np.testing.assert_allclose(smoothed[5], plain.filtered[-1], atol=1e-12)
    np.testing.assert_array_equal(one.states[:4], two.states)
    np.testing.assert_allclose(one.log_prob, two.log_prob, rtol=1e-12)


def test_transitions_that_change_with_time():
    initial, _, logs = problem(5)
    rng = np.random.default_rng(6)
    transitions = rng.dirichlet(np.ones(K), (T, K))
    steps = FiniteStep(logs, transitions)
    paths = np.array(list(itertools.product(range(K), repeat=T)))
    score = np.log(initial)[paths[:, 0]] + logs[np.arange(T), paths].sum(axis=1)
    for t in range(1, T):
        score = score + np.log(transitions[t])[paths[:, t - 1], paths[:, t]]
    result = filtered_by(FiniteBeliefs(), initial, steps)
    np.testing.assert_allclose(np.sum(result.log_evidence), np.log(np.exp(score).sum()), rtol=1e-12)
    best = decoded(initial, None, steps)
    np.testing.assert_array_equal(np.asarray(best.states)[:, 0], paths[np.argmax(score)])
    with pytest.raises(ValueError, match="A transition must be given by FiniteBeliefs or by every step"):
        filtered_by(FiniteBeliefs(), initial, FiniteStep(logs))


def test_gradient_is_the_finite_difference():
    initial, transition, logs = problem(7, zeros=False)

    @jax.jit
    def total_and_slopes(transition, logs):
        def total(transition, logs):
            return filter(FiniteBeliefs(transition), initial, FiniteStep(logs)).log_evidence.sum()

        return jax.value_and_grad(total, (0, 1))(transition, logs)

    slopes = [np.asarray(slope) for slope in total_and_slopes(transition, logs)[1]]
    h = 1e-6
    for which in range(2):
        for index in [(0, 1), (2, 2), (1, 0)]:
            ends = []
            for step in (h, -h):
                arrays = [transition.copy(), logs.copy()]
                arrays[which][index] += step
                ends.append(float(total_and_slopes(*arrays)[0]))
            np.testing.assert_allclose(slopes[which][index], (ends[0] - ends[1]) / (2 * h), rtol=1e-6)


def test_stationary_distribution():
    whack = np.array([[0.1, 0.4, 0.5], [0.4, 0.0, 0.6], [0.0, 0.6, 0.4]])
    np.testing.assert_allclose(stationary(whack), np.array([12, 27, 37]) / 76, rtol=1e-10)
    # periodic: the powers of A do not converge, the law is unique
    around = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    # reducible with one closed class: states 0 and 1 are left for good
    leaving = np.array([[0.5, 0.5, 0, 0], [0.25, 0.25, 0.5, 0], [0, 0, 0, 1.0], [0, 0, 0.5, 0.5]])
    # nearly apart: π = (b, a) / (a + b) for rates a and b of leaving
    slow = np.array([[1 - 1e-12, 1e-12], [3e-12, 1 - 3e-12]])
    laws = [(around, [1 / 3] * 3), (leaving, [0, 0, 1 / 3, 2 / 3]), (slow, [0.75, 0.25])]
    for transition, law in laws:
        np.testing.assert_allclose(stationary(transition), law, rtol=1e-4 if transition is slow else 1e-12)
        if transition is not slow:
            np.testing.assert_allclose(jax.jit(stationary)(transition), law, atol=1e-12)


def test_a_stationary_distribution_that_is_not_unique_is_refused():
    with pytest.raises(ValueError, match=r"not unique: the chain never leaves \{0\} and \{1\} once it is"):
        stationary(jnp.eye(2))
    blocks = np.zeros((4, 4))
    blocks[:2, :2], blocks[2, [1, 3]], blocks[3, 3] = 0.5, 0.5, 1
    with pytest.raises(ValueError, match=r"never leaves \{0, 1\} and \{3\}"):
        stationary(jnp.asarray(blocks))
    assert np.isnan(jax.jit(stationary)(jnp.eye(2))).all()
    with pytest.raises(ValueError, match=r"rows of 'transition' must be non-negative with sum one"):
        stationary(jnp.ones((2, 2)))


def test_classes_of_states_against_powers_of_the_matrix():
    rng = np.random.default_rng(0)
    for _ in range(40):
        n = int(rng.integers(1, 6))
        edges = rng.random((n, n)) < 0.35
        edges[np.arange(n), rng.integers(n, size=n)] = True
        found = classify_states(edges / edges.sum(axis=1, keepdims=True))
        assert isinstance(found, StateClasses)
        walks = [np.linalg.matrix_power(edges.astype(float), t) > 0 for t in range(1, 41)]
        reach = np.any(walks, axis=0) | np.eye(n, dtype=bool)
        for states, transient, period in zip(*found, strict=True):
            i = states[0]
            assert states == tuple(np.flatnonzero(reach[i] & reach[:, i]))
            assert transient == bool(np.any(reach[i] & ~reach[:, i]))
            returns = [t for t, walk in enumerate(walks, 1) if walk[i, i]]
            assert period == np.gcd.reduce(returns or [0])
        assert found.irreducible == bool(reach.all())
        assert found.ergodic == (not any(found.transient) and all(p == 1 for p in found.periods))
    around = classify_states(np.roll(np.eye(5), 1, axis=1))
    assert around == StateClasses(((0, 1, 2, 3, 4),), (False,), (5,))
    with pytest.raises(ValueError, match=r"rows of 'transition' must be non-negative with sum one"):
        classify_states(np.ones((2, 2)))


def test_capabilities():
    assert issubclass(FiniteBeliefs, AbstractParallelBeliefs)
    assert issubclass(BestBeliefs, AbstractBeliefs)
