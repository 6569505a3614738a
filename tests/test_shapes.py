"""The shapes in the annotations of chains and of models of series are those of what goes in and comes out.

Programs are traced, with sizes that are all different, and never compiled.
"""

import functools
import inspect
import types
import typing

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from jaxtyping import AbstractArray, Float, jaxtyped

import freeenergy.distributions as fd
import freeenergy.inference as fi
import freeenergy.models as fm
from freeenergy.inference import (
    _chain,
    _chain_blocks,
    _chain_diffuse,
    _chain_finite,
    _chain_gaussian,
    _chain_root,
    _filters,
    _measurements,
    _semidefinite,
)
from freeenergy.models import (
    _autoregression,
    _hmm,
    _markov,
    _regressions,
    _series,
    _state_space,
    _structural,
    _switching,
    _transitions,
)

CHAINS = [_chain, _chain_blocks, _chain_diffuse, _chain_finite, _chain_gaussian, _chain_root, _filters]
MODELS = [_autoregression, _hmm, _markov, _regressions, _series, _state_space, _structural, _switching]
MODULES = [*CHAINS, _measurements, _semidefinite, *MODELS, _transitions]


hints_of = functools.cache(typing.get_type_hints)


def conforms(value, hint) -> bool:
    """Whether the arrays of a value, or of the parts of a record, have the shapes that the hint says."""
    if not isinstance(hint, type) or hint is typing.Any:
        options = typing.get_args(hint)
        if typing.get_origin(hint) is tuple and Ellipsis not in options:
            return all(conforms(*pair) for pair in zip(value, options, strict=True))
        union = isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
        return any(conforms(value, option) for option in options) if union else True
    if not issubclass(hint, AbstractArray) and hasattr(hint, "_fields") and isinstance(value, hint):
        return parts_conform(value, hint._fields)
    return isinstance(value, hint)


def parts_conform(record, names) -> bool:
    hints = hints_of(type(record))
    # on their own: a function may take the record of one step and that of all
    with jaxtyped("context"):
        return all(conforms(getattr(record, name), hints[name]) for name in names)


def checked(function, called: set[str]):
    """The function, with its arguments and its result compared with its annotations."""
    hints, signature = typing.get_type_hints(function), inspect.signature(function)

    @functools.wraps(function)
    def call(*args, **kwargs):
        called.add(function.__qualname__)
        with jaxtyped("context"):
            for name, value in signature.bind(*args, **kwargs).arguments.items():
                if name == "self" and isinstance(value, eqx.Module):
                    assert parts_conform(value, value.__dataclass_fields__), (function, value)
                assert conforms(value, hints.get(name)), (function, name, value)
            result = function(*args, **kwargs)
            assert conforms(result, hints.get("return")), (function, "return", result)
        return result

    return call


@pytest.fixture
def called(monkeypatch):
    """The names of the functions and methods that were called, each with its shapes compared."""
    names: set[str] = set()
    for module in MODULES:
        for thing in list(vars(module).values()):
            if getattr(thing, "__module__", "") != module.__name__:
                continue
            if inspect.isfunction(thing):
                for place in [*MODULES, fi, fm]:
                    if vars(place).get(thing.__name__) is thing:
                        monkeypatch.setattr(place, thing.__name__, checked(thing, names))
            elif inspect.isclass(thing):
                for name, method in list(vars(thing).items()):
                    method = getattr(method, "method", method)  # as equinox keeps it
                    if inspect.isfunction(method) and not name.startswith("__"):
                        monkeypatch.setattr(thing, name, checked(method, names))
    return names


def test_a_wrong_shape_is_seen():
    def double(x: Float[jax.Array, "time dim"]) -> Float[jax.Array, "time dim"]:
        return jnp.concatenate([x, x])

    with pytest.raises(AssertionError, match="return"):
        checked(double, set())(jnp.ones((2, 3)))
    with pytest.raises(AssertionError, match="'x'"):
        checked(double, set())(jnp.ones(3))
    assert not conforms(fi.GaussianBelief(jnp.ones(2), jnp.ones((2, 3))), fi.GaussianBelief)


TIME, DIM, STATE, INPUTS, STATES, KEY = 6, 2, 3, 4, 5, jax.random.key(0)


def linear_system(**options):
    return fm.LinearGaussianSSM(
        jnp.zeros(STATE),
        fd.Full(jnp.eye(STATE)),
        jnp.eye(STATE) / 2,
        jnp.zeros(STATE),
        fd.Full(jnp.eye(STATE)),
        jnp.ones((DIM, STATE)),
        jnp.zeros(DIM),
        fd.Full(jnp.eye(DIM)),
        jnp.ones((STATE, INPUTS)),
        jnp.ones((DIM, INPUTS)),
        **options,
    )


def a_series(dim=DIM):
    return fm.one_series(jnp.zeros((TIME, dim)), inputs=jnp.zeros((TIME, INPUTS)))


def by_em(model, series):
    rows = jax.tree.map(lambda a: a[None], series)
    options = {"temperature": jnp.ones(()), "incomplete": True}
    return model.maximise(model.expect(rows, jnp.ones(1), **options)[0])


def completed(model, series, inputs=True):
    model.sample(TIME, key=KEY, inputs=series.inputs if inputs else None)
    model.step_evidence(series, incomplete=True)
    return model.complete_mean(series), model.complete_sample(series, key=KEY)


def hidden_markov():
    series = a_series(1)
    slopes, intercept = jnp.ones((STATES, STATES, INPUTS)), jnp.zeros((STATES, STATES))
    even = jnp.full(STATES, 1 / STATES)
    for transition in (jnp.tile(even, (STATES, 1)), fm.LogisticTransition(slopes, intercept)):
        model = fm.HMM(even, transition, fd.Poisson(jnp.ones((STATES, 1))))
        completed(model, series)
        by_em(model, series)
        model.decode(series, 3)
        model.forecast(series, 2, inputs=series.inputs[:2])
    tied = fm.TiedTransition(jnp.array([0.2, 0.8]), jnp.eye(STATES, dtype=int))
    by_em(fm.HMM(None, tied, fd.Poisson(jnp.ones((STATES, 1)))), series)


def markov():
    rows = jnp.full((DIM, STATES, STATES), 1 / STATES)
    model = fm.MarkovChain(rows[:, 0], rows)
    completed(model, a_series())
    by_em(model, a_series())
    model.forecast(a_series(), 3)


def linear():
    series = a_series()
    for options in ({"square_root": True}, {"diffuse": jnp.eye(STATE, 2)}):
        linear_system(**options).smooth(series)
        linear_system(**options).sample_states(series, key=KEY)
    completed(linear_system(), series)
    linear_system().predicted(series)
    by_em(linear_system(), series)
    later = fi.GaussianBelief(jnp.zeros(STATE), jnp.eye(STATE))
    pair = _chain_gaussian.GaussianPair(later, later, jnp.eye(STATE))
    fi.state_disturbance(pair, jnp.eye(STATE), jnp.zeros(STATE))
    fi.observation_disturbance(later, jnp.ones((DIM, STATE)), jnp.zeros(DIM), jnp.ones(DIM))


def in_blocks():
    fixed, steps = linear_system()._steps(a_series(), incomplete=True, packed=False)
    beliefs, initial = linear_system()._beliefs(fixed)
    fi.blocked_evidence(beliefs, initial, steps, blocks=2)
    fi.blocked_filter(beliefs, initial, steps, blocks=2)
    fi.blocked_smooth(beliefs, initial, steps, blocks=2)
    filtered = fi.parallel_filter(beliefs, initial, steps)
    fi.parallel_smooth(beliefs, filtered, steps)
    fi.collapse(jax.tree.map(lambda a: a[0], steps).filled(fixed))


def others():
    series = a_series(1)
    blocks = fm.Trend() + fm.Seasonal(4) + fm.Cycle(6.0) + fm.Autoregressive([0.5, 0.1])
    structural = blocks + fm.Regressors(INPUTS)
    structural.components(series)
    structural.complete_mean(series)
    lagged = fm.AutoRegression(
        jnp.zeros((STATE, DIM, DIM)),
        jnp.zeros(DIM),
        fd.Full(jnp.eye(DIM)),
        jnp.zeros(STATE * DIM),
        jnp.eye(STATE * DIM),
        jnp.zeros((DIM, INPUTS)),
    )
    completed(lagged, a_series())
    by_em(lagged, a_series())
    noise = fd.Full(jnp.eye(DIM))
    stationary = _autoregression.StationaryAutoRegression(
        jnp.zeros((STATE, DIM, DIM)), jnp.zeros(DIM), noise
    )
    stationary.log_prob(a_series()._replace(inputs=None))
    stacked = jax.tree.map(lambda a: jnp.stack([a] * STATES) if eqx.is_array(a) else a, linear_system())
    even = jnp.full((STATES, STATES), 1 / STATES)
    completed(fm.SwitchingLinearSystem(even[0], even, stacked), a_series())


def not_linear():
    steps = fi.Observed(jnp.zeros((TIME, DIM)))
    start = fi.GaussianBelief(jnp.zeros(STATE), jnp.eye(STATE))
    for linearisation in (fi.Taylor(), fi.Unscented()):
        beliefs = fi.LinearisedBeliefs(
            lambda x, u: jnp.sin(x), jnp.eye(STATE), lambda x, u: x[:DIM] ** 2, jnp.eye(DIM), linearisation
        )
        fi.smooth(beliefs, fi.filter(beliefs, start, steps), steps)
    for resampler in (fi.Systematic(), fi.Stratified(), fi.Multinomial(), fi.Residual()):
        points = fi.ParticleBeliefs(
            lambda x, u, key: x + jax.random.normal(key, x.shape),
            lambda x, u, y: -jnp.sum((y - x[:DIM]) ** 2),
            lambda new, old, u: -jnp.sum((new - old) ** 2),
            resampler,
        )
        filtered = fi.filter(points, points.start(jnp.zeros((STATES, STATE)), key=KEY), steps)
        fi.smooth(points, filtered, steps)
        fi.sample_paths(points, filtered, steps, key=KEY)


EXAMPLES = [hidden_markov, markov, linear, in_blocks, others, not_linear]


def test_shapes_are_as_annotated(called):
    for example in EXAMPLES:
        jax.eval_shape(lambda example=example: jax.tree.map(jnp.asarray, example()))
    homes = {module.__name__ for module in MODULES}
    # all of them, whether or not something has asked for them before
    everything = {name: getattr(fi, name) for name in fi.__all__}
    functions = {name: f for name, f in everything.items() if inspect.isfunction(f)}
    # it reads numbers, and is not for programs
    assert {name for name, f in functions.items() if f.__module__ in homes} - called == {"classify_states"}
