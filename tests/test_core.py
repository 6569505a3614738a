"""The core: parameters, numerics, rows, records, compilation."""

import itertools
import math
import os
import subprocess
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from freeenergy import Evidence, Kind, _settings
from freeenergy._core import (
    Data,
    Program,
    boltzmann,
    bucket,
    buffer,
    categorical_entropy,
    cholesky,
    constrain,
    count_compilations,
    fold_key,
    freeze,
    generator,
    has_nan,
    key_bits,
    key_of,
    learnable,
    least,
    log_det_cholesky,
    log_mean_exp,
    map_data,
    map_rows,
    on_device,
    parameter,
    parameter_count,
    positive,
    positive_definite,
    real,
    row_hashes,
    seed_bits,
    simplex,
    split_key,
    split_key_data,
    sum_over_blocks,
    symmetrise,
    unconstrain,
    uniform,
    uniform_on_host,
    unit_interval,
)

RNG = np.random.default_rng(0)


def _matrices(n: int, dim: int) -> Array:
    half = RNG.normal(size=(n, dim, dim))
    return on_device(half @ half.transpose(0, 2, 1) + 0.1 * np.eye(dim))


class Everything(eqx.Module):
    free: Array = parameter()
    rate: Array = parameter(positive)
    chance: Array = parameter(unit_interval)
    weights: Array = parameter(simplex)
    scatter: Array = parameter(positive_definite)
    kept: Array = buffer()
    label: str = eqx.field(static=True, default="a")


class Holder(eqx.Module):
    inside: Everything
    parts: list[Array] = parameter(positive)
    fixed: Everything | None = buffer(default=None)


def _everything(n: int) -> Everything:
    return Everything(
        on_device(RNG.normal(size=(n, 3))),
        on_device(RNG.gamma(1.0, size=(n, 3))),
        on_device(RNG.uniform(size=(n, 3))),
        on_device(RNG.dirichlet(np.ones(4), size=n)),
        _matrices(n, 3),
        on_device(np.full((n, 2), -7.0)),
    )


# ---- parameters


def test_constraints_round_trip_through_stacks_containers_and_vmap():
    stack = _everything(5)
    model = Holder(stack, [on_device([0.3]), on_device(2.0)])

    @eqx.filter_jit
    def there_and_back(model, stack):
        free = jax.vmap(unconstrain)(stack)
        return constrain(unconstrain(model)), unconstrain(stack), free, jax.vmap(constrain)(free)

    again, together, free, back = there_and_back(model, stack)
    for old, new in zip(jax.tree.leaves(model), jax.tree.leaves(again), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-12, atol=1e-14)
    # the same, member by member
    for whole, each in zip(jax.tree.leaves(together), jax.tree.leaves(free), strict=True):
        np.testing.assert_allclose(whole, each, rtol=1e-12, atol=1e-14)
    for old, new in zip(jax.tree.leaves(stack), jax.tree.leaves(back), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-12, atol=1e-14)
    assert free.kept.tolist() == stack.kept.tolist()


def test_constrain_maps_any_reals_into_the_set():
    shapes = eqx.filter_eval_shape(unconstrain, _everything(4))
    noise = jax.tree.map(lambda a: on_device(RNG.normal(size=a.shape)), shapes)
    model = eqx.filter_jit(constrain)(noise)
    named = {
        "free": real,
        "rate": positive,
        "chance": unit_interval,
        "weights": simplex,
        "scatter": positive_definite,
    }
    for name, constraint in named.items():
        assert constraint.contains(np.asarray(getattr(model, name))).all(), constraint
    assert np.linalg.eigvalsh(model.scatter).min() > 0
    assert np.array_equal(model.kept, noise.kept)


@pytest.mark.parametrize(
    ("constraint", "bad"),
    [
        (real, [jnp.inf]),
        (positive, [0.0, -1.0]),
        (unit_interval, [0.0, 1.0, 1.5]),
        (simplex, [0.5, 0.6]),
        (positive_definite, [[1.0, 2.0], [2.0, 1.0]]),
    ],
)
def test_contains_refuses(constraint, bad):
    assert not constraint.contains(np.array(bad)).all()


def test_positive_keeps_tiny_and_huge_values():
    def there_and_back(constraint, values):
        return jax.jit(lambda v: constraint.from_free(constraint.to_free(v)))(values)

    values = np.array([1e-300, 1e-30, 1e-8, 1.0, 40.0, 1e10, 1e300])
    np.testing.assert_allclose(there_and_back(positive, values), values, rtol=1e-12)
    chance = np.array([1e-300, 1e-12, 0.5, 1 - 1e-12])
    np.testing.assert_allclose(there_and_back(unit_interval, chance), chance, rtol=1e-12)
    weights = there_and_back(simplex, np.array([1.0, 0.0]))
    np.testing.assert_allclose(weights, [1.0, 0.0], atol=1e-290)


def test_learnable_buffers_cover_all_that_is_below_them():
    model = Holder(_everything(2), [jnp.ones(1)], _everything(2))
    mask = learnable(model)
    assert (mask.inside.free, mask.inside.scatter, mask.inside.kept, mask.parts) == (
        True,
        True,
        False,
        [True],
    )
    assert jax.tree.leaves(mask.fixed) == [False] * 6
    # a buffer inside is still mapped, so that a tree made by unconstrain goes back
    back = eqx.filter_jit(lambda m: constrain(unconstrain(m)))(model)
    np.testing.assert_allclose(back.fixed.rate, model.fixed.rate, rtol=1e-12)


def test_freeze():
    model = Holder(_everything(2), [jnp.ones(1)])
    mask = freeze(model, lambda m: (m.inside.free, m.parts))
    assert (mask.inside.free, mask.parts, mask.inside.rate) == (False, [False], True)
    whole = freeze(model, lambda m: m.inside)
    assert not any(jax.tree.leaves(whole.inside))
    assert whole.parts == [True]


def test_parameter_count_is_the_rank_of_the_map_from_free_reals():
    stack = _everything(2)

    @jax.jit
    def slopes(stack):
        free, unravel = jax.flatten_util.ravel_pytree(eqx.filter(unconstrain(stack), learnable(stack)))
        return jax.jacobian(lambda v: jax.flatten_util.ravel_pytree(constrain(unravel(v)))[0])(free)

    jacobian = slopes(stack)
    expected = np.linalg.matrix_rank(np.asarray(jacobian), tol=1e-9)
    assert parameter_count(stack) == expected == 2 * (3 + 3 + 3 + 3 + 6)
    assert parameter_count(Holder(stack, [jnp.ones(4)], stack)) == expected + 4
    assert parameter_count([jnp.ones((2, 2)), jnp.arange(3)]) == 4


# ---- numerics


@pytest.mark.parametrize("temperature", [1.0, 0.5, 3.0])
def test_boltzmann_is_the_least_free_energy(temperature):
    e, other = RNG.normal(size=5), RNG.dirichlet(np.ones(5))

    @jax.jit
    def answers(e, other):
        free, p = boltzmann(e, temperature)
        return free, p, categorical_entropy(p), categorical_entropy(other)

    free, p, own, entropy = map(np.asarray, answers(e, other))
    naive = np.exp(-e / temperature)
    np.testing.assert_allclose(p, naive / naive.sum(), rtol=1e-13)
    np.testing.assert_allclose(free, p @ e - temperature * own, rtol=1e-13)
    assert free < other @ e - temperature * entropy


def test_some_entry_is_the_least_whatever_is_computed_twice():
    # one product and one sum, which a compiler may round once here and twice there
    rng = np.random.default_rng(0)
    x, c = rng.normal(size=(1, 4000)), rng.normal(size=(5, 1))
    found = jax.jit(lambda x, c: least(c**2 - 2 * c * x, axis=0))(x, c)
    np.testing.assert_array_equal(found.sum(axis=0), 1)
    np.testing.assert_array_equal(np.argmax(found, axis=0), np.argmin((x - c) ** 2, axis=0))
    assert least(jnp.array([[2.0, 1.0], [1.0, 1.0]])).tolist() == [[False, True], [True, True]]


def test_boltzmann_limits_ties_and_infinite_energies():
    e = np.array([2.0, 1.0, 1.0, np.inf])

    @jax.jit
    def answers(e, one, zero):
        never = jnp.full(4, jnp.inf)
        limits = boltzmann(e, 0.0), boltzmann(e, 1e-4), boltzmann(e[:3], 1e9)
        return limits, [boltzmann(never, t) for t in (1.0, 0.0, one, zero)]

    ((cold, p), (nearly, q), (_, hot)), impossible = answers(e, 1.0, 0.0)
    assert cold == 1.0
    assert p.tolist() == [0.0, 0.5, 0.5, 0.0]
    np.testing.assert_allclose(q, p, atol=1e-12)
    np.testing.assert_allclose(nearly, 1 - 1e-4 * math.log(2), rtol=1e-12)
    np.testing.assert_allclose(hot, 1 / 3, rtol=1e-8)
    for free, even in impossible:
        assert free == jnp.inf
        assert even.tolist() == [0.25] * 4
    # energies far from zero neither overflow nor vanish
    free, p = jax.jit(boltzmann)(np.array([1e6, 1e6 + 1.0]))
    np.testing.assert_allclose(np.asarray(free) - 1e6, -math.log(1 + math.exp(-1)), rtol=1e-9)
    along = RNG.normal(size=(3, 4))
    columns, rows = jax.jit(lambda e: (boltzmann(e, axis=0)[1].T, boltzmann(e.T)[1]))(along)
    np.testing.assert_allclose(columns, rows, rtol=1e-14)


def _and_slope(e, temperature):
    def value(e):
        free, p = boltzmann(e, temperature)
        return free + jnp.array([1.0, -2.0, 0.5]) @ p

    return jax.value_and_grad(value)(e)


@pytest.mark.parametrize("temperature", [1.0, 0.5, 0.0])
@pytest.mark.parametrize("traced", [False, True])
def test_boltzmann_gradients_match_finite_differences(temperature, traced):
    e, step = np.array([0.3, -0.7, 1.1]), 1e-6
    value = jax.jit(_and_slope, static_argnums=() if traced else 1)
    ends = [
        float(value(e + sign * step * np.eye(3)[i], temperature)[0]) for i in range(3) for sign in (1, -1)
    ]
    numeric = np.subtract(ends[::2], ends[1::2]) / (2 * step)
    np.testing.assert_allclose(value(e, temperature)[1], numeric, rtol=1e-7, atol=1e-8)


def test_boltzmann_with_traced_temperatures_under_jit_and_vmap():
    e = jnp.array([[0.3, -0.7, 1.1], [0.0, 0.0, jnp.inf]])
    known = [0.0, 0.5, 1.0]

    @jax.jit
    def answers(temperatures):
        slope = jax.vmap(lambda t: jax.grad(lambda e: jnp.sum(boltzmann(e, t)[0]))(e))(temperatures)
        return jax.vmap(lambda t: boltzmann(e, t))(temperatures), slope, [boltzmann(e, t) for t in known]

    (free, p), slope, each = jax.tree.map(np.asarray, answers(np.array(known)))
    for i, expected in enumerate(each):
        np.testing.assert_allclose(free[i], expected[0], rtol=1e-14)
        np.testing.assert_allclose(p[i], expected[1], rtol=1e-14)
    # ∂F/∂e = p, also at temperature zero beside warm ones
    np.testing.assert_allclose(slope, p, rtol=1e-12)


def test_cholesky_takes_a_bounded_jitter_that_it_reports():
    @jax.jit
    def factorised(matrix):
        factor, jitter = cholesky(matrix)
        return factor, jitter, log_det_cholesky(factor)

    well = np.asarray(_matrices(1, 3))[0]
    factor, jitter, log_det = factorised(well)
    assert jitter == 0
    np.testing.assert_allclose(factor, np.linalg.cholesky(well), rtol=1e-12)
    np.testing.assert_allclose(log_det, np.linalg.slogdet(well)[1], rtol=1e-12)
    # rank one, made indefinite by rounding
    rounded = np.outer([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]) - 1e-12 * np.eye(3)
    factor, jitter, _ = map(np.asarray, factorised(rounded))
    assert 0 < jitter <= 1e-6 * np.mean(np.diagonal(rounded))
    np.testing.assert_allclose(factor @ factor.T, rounded + jitter * np.eye(3), rtol=1e-9, atol=1e-12)
    hopeless = np.array([[1.0, 2.0], [2.0, 1.0]])
    assert np.isnan(factorised(hopeless)[0]).any()
    assert np.isnan(factorised(-np.eye(2))[0]).any()
    # a bad matrix beside a good one does not touch it
    factors, jitters = map(np.asarray, jax.jit(jax.vmap(cholesky))(np.stack([hopeless, 4 * np.eye(2)])))
    assert factors[1].tolist() == [[2.0, 0.0], [0.0, 2.0]]
    assert jitters[1] == 0


def test_cholesky_is_differentiable():
    matrix = np.asarray(_matrices(1, 3))[0]
    gradient = jax.jit(jax.grad(lambda m: log_det_cholesky(cholesky(symmetrise(m))[0])))(matrix)
    np.testing.assert_allclose(gradient, np.linalg.inv(matrix), rtol=1e-9)


def test_log_mean_exp_and_entropy():
    values = RNG.normal(size=(6, 2)) + 1000.0
    expected = 1000 + np.log(np.mean(np.exp(values - 1000), axis=0))
    np.testing.assert_allclose(jax.jit(log_mean_exp)(values), expected, rtol=1e-14)
    entropy = jax.jit(categorical_entropy)
    assert entropy(np.array([1.0, 0.0])) == 0
    np.testing.assert_allclose(entropy(np.full((2, 4), 0.25)), math.log(4))


# ---- rows


def test_bucket_is_monotone_and_wastes_little():
    sizes = [*range(1, 5000), 10_000, 12_345, 99_999, 100_000, 1_000_001]
    buckets = [bucket(n) for n in sizes]
    assert all(a <= b for a, b in itertools.pairwise(buckets))
    for n, b in zip(sizes, buckets, strict=True):
        assert b >= n
        assert bucket(b) == b
        if n > 128:
            assert b - n < n / (1 if n <= 512 else 4 if n <= 4096 else 16)
    assert sorted(set(buckets[:512])) == [128, 256, 512]
    assert [bucket(n, 16) for n in (1, 17, 33)] == [16, 32, 64]
    assert len(set(buckets[:4999])) < 24


def test_data_is_padded_with_weight_zero():
    x = np.arange(40.0).reshape(20, 2)
    x[3, 1] = np.nan
    data = Data.of({"a": x, "n": np.arange(20)}, np.full(20, 2.0))
    assert data.incomplete
    assert data.size == bucket(20) == 128
    data = Data.of({"a": x[:17], "n": np.arange(17)}, np.full(17, 2.0), dtype=np.dtype(np.float32))
    assert (data.size, int(data.rows)) == (128, 17)
    assert data.weight.tolist() == [2.0] * 17 + [0.0] * 111
    assert data.x["a"].dtype == data.weight.dtype == jnp.float32
    assert data.x["n"].dtype == jnp.int64
    assert data.x["n"].tolist() == [*range(17), *[0] * 111]
    assert not Data.of(x[:2]).incomplete
    assert Data.of(np.arange(3)).weight.dtype == jnp.float64
    with pytest.raises(ValueError, match=r"must have one length. Got \[2, 3\]\."):
        Data.of((np.ones(2), np.ones(3)))


def test_data_is_prepared_on_its_way():
    x = RNG.normal(size=(9000, 3))
    turn = RNG.normal(size=(3, 2))
    plain, prepared = Data.of(x @ turn), Data.of(x, prepare=lambda part: part @ turn)
    np.testing.assert_allclose(prepared.x, plain.x, rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(prepared.weight, plain.weight)
    there, brought = Data.of(x, spread=True), Data.of(x).spread()
    assert there.mesh == brought.mesh
    np.testing.assert_array_equal(there.x, brought.x)


def test_nan_is_found_by_a_sum():
    assert has_nan(np.array([[1.0, 2.0], [np.nan, 1.0]]))
    assert not has_nan(np.full((2, 3), 1e308))
    assert not has_nan(np.array([np.inf, -np.inf, 0.0]))
    assert has_nan(np.array([np.inf, -np.inf, np.nan]))
    assert not has_nan(np.empty((0, 2)))


@pytest.mark.parametrize("n", [1, 7, 8, 9, 16, 17, 23, 24, 25, 31])
def test_sums_over_blocks_are_plain_sums(n):
    x = RNG.normal(size=(n, 2))
    w = RNG.uniform(size=n)

    def moments(rows, weight):
        return {"first": weight @ rows, "count": jnp.sum(weight), "rows": jnp.sum(weight > 0)}

    for block in (8, 5):
        # 20, 24, 28, 32 are padded sizes: five divides only one of them
        total = sum_over_blocks(moments, Data.of(x, w), block=block)
        np.testing.assert_allclose(total["first"], w @ x, rtol=1e-12)
        np.testing.assert_allclose(total["count"], w.sum(), rtol=1e-12)
        assert total["rows"] == n


def _length(row, shift):
    return jnp.sum(row**2) + shift, row[::-1]


@pytest.mark.parametrize("n", [0, 1, 15, 17, 100])
def test_map_rows_for_any_number_of_rows(n):
    x = RNG.normal(size=(n, 3))
    squares, flipped = map_rows(_length, x, jnp.array(1.0), block=4)
    assert squares.shape == (n,)
    np.testing.assert_allclose(squares, (x**2).sum(1) + 1)
    np.testing.assert_array_equal(flipped, x[:, ::-1])
    for data in (Data.of(x), Data.of(x).spread(least=16)):
        there = map_data(_length, data, jnp.array(1.0), block=4)
        np.testing.assert_array_equal(there[1], flipped)
        np.testing.assert_allclose(there[0], squares, rtol=1e-14)


def _spread(row, shift):
    return jnp.sum((row - shift) ** 2), row[::-1]


def test_some_thousand_rows_take_the_program_of_some_hundred():
    x = RNG.normal(size=(9000, 3))
    x[5] = np.nan
    for numbers, programs in (((129, 400, 512), 1), ((513, 2048, 2049, 9000), 1)):
        with count_compilations() as counter:
            for n in numbers:
                gaps, flipped = map_rows(_spread, x[:n], jnp.array(2.0))
                np.testing.assert_allclose(gaps, ((x[:n] - 2) ** 2).sum(1), rtol=1e-14)
                np.testing.assert_array_equal(flipped, x[:n, ::-1])
        assert counter.count == programs
    # rows of many numbers are padded little
    wide = RNG.normal(size=(600, 70))
    with count_compilations() as counter:
        for n in (520, 600):
            np.testing.assert_allclose(
                map_rows(_spread, wide[:n], jnp.array(2.0))[0][-1], ((wide[n - 1] - 2) ** 2).sum()
            )
    assert counter.count == 1


def test_row_hashes_depend_on_values_alone():
    payload = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
    x = np.array([[0.0, 1.0], [-0.0, 1.0], [1.0, 0.0], [payload[0], 1.0], [payload[1], 1.0], [np.nan, 1.0]])
    h = row_hashes(x)
    assert h[0] == h[1]
    assert h[3] == h[4] == h[5]
    assert len({h[0], h[2], h[3]}) == 3
    np.testing.assert_array_equal(row_hashes(x[::-1])[::-1], h)
    many = row_hashes(RNG.normal(size=(20_000, 2)))
    assert len(np.unique(many)) == 20_000
    # each bit is a fair coin
    ones = np.unpackbits(many.view(np.uint8)).reshape(20_000, 64).mean(axis=0)
    assert np.abs(ones - 0.5).max() < 5 * 0.5 / math.sqrt(20_000)
    assert row_hashes(np.zeros((0, 3))).shape == (0,)


# ---- records


def test_evidence():
    evidence = Evidence(np.array([-1.0, -2.0, -6.0]), np.array([0.1, 0.2, 0.3]), Kind.LOWER)
    assert len(evidence) == 3
    assert evidence.mean == -3.0
    np.testing.assert_allclose(evidence.mean_stderr, math.sqrt(7 / 3))
    np.testing.assert_allclose(2.0**-evidence.bits, np.exp(evidence.nats))
    assert Evidence(np.array([-1.0]), np.array([0.1]), Kind.ESTIMATE).mean_stderr == 0.1
    with pytest.raises(ValueError, match=r"must have the shape of 'nats', \(2,\)\. Got \(3,\) instead"):
        Evidence(np.zeros(2), np.zeros(3), Kind.EXACT)


def test_evidence_prints_its_mean_and_not_its_rows():
    nats = np.random.default_rng(0).normal(-3, 2, 5000)
    evidence = Evidence(nats, np.zeros(5000), Kind.LOWER)
    error = nats.std(ddof=1) / np.sqrt(5000)
    assert (
        repr(evidence)
        == f"Evidence(mean {nats.mean():.6g} ± {error:.2g} nats of 5,000 samples, lower bound)"
    )
    html = evidence._repr_html_()
    assert f"{nats.mean():.6g}" in html
    assert "lower bound" in html
    assert len(html) < 2000
    one = Evidence(np.array([-1.5]), np.zeros(1), Kind.EXACT)
    assert repr(one) == "Evidence(mean -1.5 nats of 1 sample, exact)"
    assert (
        repr(Evidence(np.zeros(0), np.zeros(0), Kind.EXACT)) == "Evidence(mean unknown of 0 samples, exact)"
    )
    impossible = Evidence(np.array([-1.0, -np.inf]), np.zeros(2), Kind.EXACT)
    assert repr(impossible) == "Evidence(mean -inf nats of 2 samples, exact)"


def test_kinds_combine_as_sums_do():
    exact, lower, upper, estimate = Kind
    for kind in Kind:
        assert kind.combine(exact) is exact.combine(kind) is kind.combine(kind) is kind
        assert kind.combine(estimate) is estimate.combine(kind) is estimate
    assert lower.combine(upper) is upper.combine(lower) is estimate


# ---- compilation


def test_little_data_are_compiled_for_with_less_care(monkeypatch):
    """What is computed is the same; who chose how programs are optimised keeps that."""
    program = Program(lambda x, y: jnp.cumsum(jnp.exp(x) + y))
    few, many = np.linspace(-1, 1, 8), np.linspace(-1, 1, 2**15 + 1)
    for flags in ("", "--xla_backend_optimization_level=0"):
        monkeypatch.setenv("XLA_FLAGS", flags)
        for x in (few, many):
            np.testing.assert_allclose(program(x, 2.0), np.cumsum(np.exp(x) + 2), rtol=1e-12)
    monkeypatch.setenv("XLA_FLAGS", "")
    with count_compilations() as counter:
        program(few, 2.0)
    assert counter.count == 0


def test_count_compilations():
    @jax.jit
    def double(x):
        return 2 * x

    three, four = jnp.ones(3), jnp.ones(4)
    with count_compilations() as outer:
        double(three)
        with count_compilations() as inner:
            double(three)
        double(four)
    assert (outer.count, inner.count) == (2, 0)
    double(jnp.ones(5))
    assert outer.count == 2


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
def test_no_home_directory_is_no_error(monkeypatch, platform):
    def nowhere():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nowhere)
    monkeypatch.setattr(sys, "platform", platform)
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    chosen = jax.config.jax_compilation_cache_dir
    try:
        jax.config.update("jax_compilation_cache_dir", None)
        _settings.configure()
        assert jax.config.jax_compilation_cache_dir is None
    finally:
        jax.config.update("jax_compilation_cache_dir", chosen)


@pytest.mark.parametrize(
    ("version", "threads"),
    [("0.10.2", "4"), ("0.11.0", "4"), ("0.11.1", None), ("0.12.0.1", None), (None, "4")],
)
def test_old_jax_gets_threads_to_spare(monkeypatch, version, threads):
    def installed(name):
        if version is None:
            raise _settings.metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(_settings.metadata, "version", installed)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.delenv("NPROC", raising=False)
    _settings.configure()
    assert os.environ.get("NPROC") == threads
    monkeypatch.setenv("NPROC", "3")
    _settings.configure()
    assert os.environ["NPROC"] == "3"


def test_cache_directory(monkeypatch, tmp_path):
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert _settings._cache_directory() == tmp_path / ".cache" / "freeenergy" / "jax"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert _settings._cache_directory() == tmp_path / "x" / "freeenergy" / "jax"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert _settings._cache_directory() == tmp_path / "Library" / "Caches" / "freeenergy" / "jax"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "y"))
    assert _settings._cache_directory() == tmp_path / "y" / "freeenergy" / "jax"


_LATER = """
import os, sys
os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)
os.environ["JAX_ENABLE_X64"] = "0"
import freeenergy as fe
assert not {"jax", "sklearn", "numpy", "matplotlib"} & set(sys.modules)
import jax, jax.numpy as jnp
assert jnp.zeros(1).dtype == jnp.float64 and len(jax.devices()) == int(sys.argv[1])
assert jax.config.jax_compilation_cache_dir.endswith(os.path.join("freeenergy", "jax"))
assert jax.config.jax_persistent_cache_min_compile_time_secs == 0.1
# other programs do not inherit what was meant for this one
assert fe.HMM is fe.estimators.HMM and "HMM" in dir(fe)
assert os.environ["JAX_ENABLE_X64"] == "0" and "JAX_COMPILATION_CACHE_DIR" not in os.environ
try:
    fe.nothing
except AttributeError as error:
    print(error)
"""


def test_jax_is_told_its_settings_before_anybody_imports_it(tmp_path):
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "XDG_CACHE_HOME": str(tmp_path)}
    environment.pop("JAX_NUM_CPU_DEVICES", None)
    devices = 1 << (min(_settings._usable_cores(), 8).bit_length() - 1)
    command = [sys.executable, "-c", _LATER, str(devices)]
    out = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert out.returncode == 0, out.stderr
    assert out.stdout.strip() == "module 'freeenergy' has no attribute 'nothing'"


_SPREAD = """
import sys, warnings
import jax, jax.numpy as jnp, numpy as np
import freeenergy as fe
from freeenergy._core import Data, sum_over_blocks

devices = int(sys.argv[1])
assert len(jax.devices()) == devices
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
X, w = rng.normal(size=(9001, 2)) + 4.0 * (rng.random((9001, 1)) < 0.5), rng.random(9001)
factor = jnp.asarray(3.0)

@jax.jit
def moments(data):
    return sum_over_blocks(lambda x, w: (factor * w @ x, jnp.sum(w > 0)), data)

spread = Data.of(X, w).spread()
assert (spread.mesh is not None) == (devices > 1) and spread.spread() is spread
total, rows = moments(spread)
np.testing.assert_allclose(total, 3.0 * w @ X, rtol=1e-12)
assert rows == 9001
# too few rows to be worth it
assert Data.of(X[:100]).spread().mesh is None
model = fe.GaussianMixture(2, init=X[:2], max_iter=5, tol=0.0).fit(X)
assert model.model_.weights.devices() == {jax.devices()[0]}
score = model.score(X)
X[::17, 1] = np.nan
print(score, fe.GaussianMixture(2, init=np.nan_to_num(X[:2]), max_iter=2, tol=0.0).fit(X).score(X))
"""


@pytest.mark.slow
def test_rows_spread_over_devices_give_the_same_sums_and_the_same_fit():
    scores = []
    for devices in ("4", "1"):
        environment = os.environ | {"JAX_NUM_CPU_DEVICES": devices, "JAX_PLATFORMS": "cpu"}
        command = [sys.executable, "-c", _SPREAD, devices]
        out = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert out.returncode == 0, out.stderr
        scores.append([float(score) for score in out.stdout.split()])
    # complete rows, and rows with missing entries
    assert scores[0] == pytest.approx(scores[1], rel=1e-12)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("shape", [(), (7,), (3, 50)])
def test_uniform_numbers_are_those_of_jax(dtype, shape):
    def both(key, dtype):
        return jax.jit(lambda k: (uniform(k, shape, dtype), jax.random.uniform(k, shape, dtype)))(key)

    key = jax.random.key(5)
    mine, reference = both(key, dtype)
    assert mine.dtype == dtype
    # JAX keeps one bit less
    np.testing.assert_allclose(mine, reference, rtol=0, atol=float(jnp.finfo(dtype).eps))
    np.testing.assert_array_equal(*both(key, jnp.float16))
    np.testing.assert_array_equal(*both(jax.random.key(5, impl="rbg"), dtype))


def test_uniform_numbers_of_many_keys_are_those_of_each():
    keys = jax.random.split(jax.random.key(1), 4)
    one = jax.jit(lambda k: uniform(k, (5,), jnp.float64))
    np.testing.assert_array_equal(jax.jit(jax.vmap(one))(keys), [one(k) for k in keys])


@pytest.mark.parametrize("seed", [0, 7, 2**31 - 2])
def test_keys_made_on_the_host_are_those_of_jax(seed):
    key, ours = jax.random.key(seed), key_of(seed)
    data = jax.random.key_data

    with count_compilations() as programs:
        parts, folded, bits = split_key(ours, 5), fold_key(ours, 77), key_bits(ours)
        numbers, rows = uniform_on_host(ours, 9), split_key_data(ours, 5)
    assert programs.count == 0
    np.testing.assert_array_equal(data(ours), data(key))
    np.testing.assert_array_equal([data(k) for k in parts], data(jax.random.split(key, 5)))
    np.testing.assert_array_equal(rows, data(jax.random.split(key, 5)))
    np.testing.assert_array_equal(data(folded), data(jax.random.fold_in(key, 77)))
    assert bits == seed_bits(seed) == jax.random.bits(key, dtype="uint32")
    np.testing.assert_allclose(numbers, jax.random.uniform(key, (9,), float), rtol=0, atol=1e-15)
    assert generator(ours).normal() == generator(key).normal() != generator(folded).normal()


def test_keys_of_other_kinds_are_split_by_jax():
    for key in (jax.random.key(0, impl="rbg"), jax.random.PRNGKey(0)):
        expected = list(jax.random.split(key))
        found = split_key(key)
        for a, b in zip(found, expected, strict=True):
            assert a.dtype == b.dtype
            assert bool(jnp.all(a == b))


def test_numbers_go_to_the_device_as_copies_and_without_a_program():
    rows = np.arange(6.0).reshape(2, 3)
    with count_compilations() as programs:
        there = on_device(rows)
        small = on_device(3, np.int32)
    rows[:] = 0
    assert programs.count == 0
    np.testing.assert_array_equal(there, np.arange(6.0).reshape(2, 3))
    assert small.dtype == np.int32
    assert on_device(there) is there
    assert on_device(there, np.float32).dtype == np.float32
