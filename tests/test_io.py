"""Files: what was saved comes back to the bit, and what was not saved by us is refused in one sentence."""

import copy
import dataclasses
import errno
import functools
import hashlib
import io as builtin_io
import json
import os
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pytest
from cases import CASES
from data import ROWS as SHARED
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save as to_bytes
from sklearn.base import TransformerMixin, clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from test_layers import LAYERS

import freeenergy as fe
from freeenergy import distributions as d
from freeenergy import io
from freeenergy._core import count_compilations, write_whole
from freeenergy._layers import PARTS
from freeenergy.cli import run
from freeenergy.learning import EM, Gradient, Incremental, Optimiser, decay_weights, negative_log_likelihood
from freeenergy.models import Mixture, autoregressive_flow
from freeenergy.nn import mlp
from freeenergy.shell._base import Shell
from freeenergy.shell._codec import Decoder, Encoder, registry

RNG = np.random.RandomState(0)
ROWS = np.concatenate([RNG.normal(0, 1, (20, 3)), RNG.normal(4, 1, (20, 3))])

quiet = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


class Holder(Shell):
    """An estimator that is nothing but what it holds."""

    def __init__(self, thing=None):
        self.thing = thing

    def _learn(self, events, key):
        raise NotImplementedError


def again(estimator, folder, **options):
    path = folder / "model.safetensors"
    estimator.save(path)
    return fe.load(path, **options)


def back(thing, folder):
    """`thing` after it was in a file."""
    return again(Holder(thing), folder, trusted=[Holder]).thing


def small_mixture():
    return fe.GaussianMixture(2, d.Diagonal(), random_state=0).fit(ROWS)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("files") / "model.safetensors"
    small_mixture().save(path)
    return path


# ---------------------------------------------------------------------------------------------
# round trips
# ---------------------------------------------------------------------------------------------

NAMES = [pytest.param(name, marks=[pytest.mark.slow] if case.slow else []) for name, case in CASES.items()]


@quiet
@pytest.mark.parametrize("name", NAMES)
def test_every_estimator_comes_back_to_the_bit(name, tmp_path):
    case = CASES[name]
    # rows of the shape that other tests of the estimator have compiled for
    rows = SHARED if case.data() is None else case.data()
    if case.symbols is not None:
        rows = np.abs(np.rint(rows)) % case.symbols
    estimator = clone(case.estimator)
    short = {key: 4 for key in estimator.get_params() if key.endswith("max_iter")}
    seeds = {key: 0 for key in estimator.get_params() if key.endswith("random_state")}
    estimator.set_params(**short, **seeds)
    assert repr(again(estimator, tmp_path)) == repr(estimator)

    frame = pd.DataFrame(rows, columns=[f"column {i}" for i in range(rows.shape[1])])
    labels = np.array(["no", "maybe"])[np.arange(len(rows)) % 2]
    answers = (
        labels if case.answers is None else case.answers(np.zeros(len(rows)), np.random.RandomState(0))
    )
    estimator.fit(frame) if case.density else estimator.fit(frame, answers)
    found = again(estimator, tmp_path)
    assert type(found) is type(estimator)
    assert repr(found.get_params()) == repr(estimator.get_params())
    # what is made again when it is asked for is in no file
    kept = [{key for key in vars(e) if not key.startswith("_")} for e in (found, estimator)]
    assert kept[0] == kept[1]
    assert found.feature_names_in_.tolist() == frame.columns.tolist()
    expected = jax.tree.leaves(estimator.model_)
    for one, two in zip(jax.tree.leaves(found.model_), expected, strict=True):
        np.testing.assert_array_equal(one, two)
        assert getattr(one, "dtype", None) == getattr(two, "dtype", None)
    # draws are compared by the contract of densities
    if case.density:
        np.testing.assert_array_equal(found.score_samples(frame), estimator.score_samples(frame))
    elif isinstance(estimator, fe.shell.Samples) and not isinstance(estimator, TransformerMixin):
        drawn = [e.sample(5, random_state=0) for e in (found, estimator)]
        pd.testing.assert_frame_equal(*drawn)
    else:
        answer = "transform" if isinstance(estimator, TransformerMixin) else "predict"
        np.testing.assert_array_equal(getattr(found, answer)(frame), getattr(estimator, answer)(frame))


def test_a_loaded_estimator_is_an_estimator(tmp_path):
    model = small_mixture()
    found = again(model, tmp_path)
    np.testing.assert_array_equal(found.fit(ROWS).score_samples(ROWS), model.score_samples(ROWS))
    np.testing.assert_array_equal(clone(found).fit(ROWS).means_, model.means_)
    found.means_[0] = 1.0
    found.scaling_.shift[0] = 1.0  # its arrays are its own
    found.save(tmp_path / "other.safetensors")
    assert fe.load(tmp_path / "other.safetensors").scaling_.shift[0] == 1.0


def test_the_same_estimator_makes_the_same_file(tmp_path):
    small_mixture().save(tmp_path / "one")
    again(small_mixture(), tmp_path).save(tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


GAMMA = d.GammaPrior(d.Poisson(jnp.ones(3)), jnp.full(3, 2.0), jnp.ones(3))
DIRICHLET = d.DirichletPrior(d.Multinomial(jnp.full(2, 0.5)), jnp.full(2, 2.0))
PRODUCT = d.Product((d.Poisson(jnp.ones(1)), d.Gaussian(jnp.zeros(2), d.Full())), (1, 2))


@quiet
@pytest.mark.parametrize(
    "estimator",
    [
        fe.Mixture(
            2, family=d.Product((d.Poisson(jnp.ones(1)), d.Gaussian(jnp.zeros(2), d.Full())), (1, 2))
        ),
        fe.Mixture(2, family=d.Poisson, component_prior=GAMMA),
        fe.GaussianMixture(2, learner=EM(temperature=2.0, sweep=Incremental(4)), init=fe.RandomRows()),
        fe.GaussianMixture(2, init=ROWS[:2], weight_prior=DIRICHLET),
        fe.GaussianMixture(
            2, learner=Gradient(Optimiser(optax.adam, 1e-2), negative_log_likelihood, batch_size=16)
        ),
    ],
    ids=["product", "family as a class", "learner and start", "array and prior", "optimiser"],
)
def test_objects_as_parameters(estimator, tmp_path):
    rows = np.abs(ROWS.round())
    estimator = clone(estimator).set_params(max_iter=3, random_state=0).fit(rows)
    found = again(estimator, tmp_path)
    assert repr(found.get_params()) == repr(estimator.get_params())
    np.testing.assert_array_equal(found.score_samples(rows), estimator.score_samples(rows))
    np.testing.assert_array_equal(found.fit(rows).score_samples(rows), estimator.score_samples(rows))


def test_estimators_in_estimators(tmp_path):
    inner = small_mixture()
    found = back({"best": inner, "others": [fe.KMeans(2), (fe.PPCA(1),)]}, tmp_path)
    np.testing.assert_array_equal(found["best"].score_samples(ROWS), inner.score_samples(ROWS))
    assert repr(found["others"]) == repr([fe.KMeans(2), (fe.PPCA(1),)])


THINGS = [
    np.arange(6, dtype=np.int16).reshape(2, 3)[:, ::2],
    np.array([1.5, np.nan, -0.0, np.inf], np.float32),
    np.array(3.0, ">f8"),
    np.empty((0, 4)),
    np.array([["a", "bcd"], ["", "ü𝄞"]]),
    np.array(["x", None, 1, 2.5], object),
    np.array([[1, 2], None], object),
    np.array("word"),
    np.float32(0.1),
    np.bool_(True),
    (1, (2.5, None), [True, "x"], {"a": {1: 2}, (0, "b"): float("nan")}),
    (float("inf"), -float("inf"), -0.0, 10**30),
    fe.Kind.LOWER,
    np.dtype(np.float32),
    np.float64,
    jnp.float32,
    float,
    d.Poisson,
    autoregressive_flow,
    jax.nn.silu,
    jnp.tanh,
    optax.adamw,
    fe.Evidence(np.zeros(2), np.ones(2), fe.Kind.EXACT, 0.5),
]


def same(one, two):
    if isinstance(one, np.ndarray | np.generic) and one.dtype != object:
        assert type(one) is type(two)
        assert one.dtype.newbyteorder("=") == two.dtype
        np.testing.assert_array_equal(one, two)
        assert one.dtype.kind == "U" or (np.signbit(one) == np.signbit(two)).all()
    elif isinstance(one, np.ndarray):
        assert one.tolist() == two.tolist()
    elif dataclasses.is_dataclass(one):
        assert repr(one) == repr(two)
    elif isinstance(one, type) or callable(one):
        assert one is two
    else:
        assert type(one) is type(two)
        assert repr(one) == repr(two)


@pytest.mark.parametrize("thing", THINGS, ids=lambda thing: f"{type(thing).__name__}-{thing!s:.20}")
def test_things_come_back(thing, tmp_path):
    same(thing, back(thing, tmp_path))


def test_arrays_of_jax_keep_their_type(tmp_path):
    key = jax.random.key(3)
    things = [
        jnp.ones(3, jnp.float32),
        jnp.asarray(1.5),
        jnp.full(2, 2.0),
        jnp.arange(3),
        jnp.array(True),
        key,
    ]
    found = back(things, tmp_path)
    for one, two in zip(things, found, strict=True):
        assert isinstance(two, jax.Array)
        assert one.aval == two.aval  # shape, type, and whether the type gives way to others
    assert (jax.random.bits(found[-1]) == jax.random.bits(key)).all()
    np.testing.assert_array_equal(found[2], [2.0, 2.0])


def test_generators_methods_and_partial_functions(tmp_path):
    generator = np.random.RandomState(5)
    generator.normal()
    assert back(generator, tmp_path).normal() == generator.normal()
    model = small_mixture().model_
    assert back(model.log_prob, tmp_path)(jnp.ones(3)) == model.log_prob(jnp.ones(3))
    partial = back(functools.partial(mlp, 2, width=3), tmp_path)
    assert (partial.func, partial.args, partial.keywords) == (mlp, (2,), {"width": 3})
    bound = back(jax.tree_util.Partial(jnp.exp), tmp_path)
    assert isinstance(bound, jax.tree_util.Partial)
    layer = eqx.nn.Linear(2, 1, key=jax.random.key(0))
    np.testing.assert_array_equal(back(layer, tmp_path)(jnp.ones(2)), layer(jnp.ones(2)))


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text() | st.integers() | st.tuples(st.booleans()), inner)
    ),
    max_leaves=12,
)


@given(PLAIN)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_plain_values_come_back(value):
    encoder = Encoder(Holder())
    node = json.loads(json.dumps(encoder.encode(value, "thing", "thing"), allow_nan=False))
    assert encoder.tensors == {}
    assert repr(Decoder({}, {}, []).decode(node)) == repr(value)


# ---------------------------------------------------------------------------------------------
# optimisers and functions without a name
# ---------------------------------------------------------------------------------------------


def test_an_optimiser_is_what_it_describes(tmp_path):
    schedule = Optimiser(optax.cosine_decay_schedule, 0.1, 10)
    record = Optimiser(
        optax.chain,
        Optimiser(optax.clip_by_global_norm, 0.5),
        Optimiser(decay_weights, 0.01),
        Optimiser(optax.adam, schedule, b1=0.8),
    )
    plain = optax.chain(
        optax.clip_by_global_norm(0.5),
        decay_weights(0.01),
        optax.adam(optax.cosine_decay_schedule(0.1, 10), b1=0.8),
    )
    found = back(record, tmp_path)
    assert found == record == copy.deepcopy(record)
    assert hash(found) == hash(record)
    assert repr(found) == repr(record)
    assert "Optimiser(adam, Optimiser(cosine_decay_schedule, 0.1, 10), b1=0.8)" in repr(record)
    params = {"w": jnp.ones((2, 2)), "b": jnp.ones(2)}
    with jax.numpy_dtype_promotion("standard"):
        state, expected = found.init(params), plain.init(params)
        for _ in range(3):
            step, state = found.update(params, state, params)
            right, expected = plain.update(params, expected, params)
            jax.tree.map(np.testing.assert_array_equal, step, right)


@quiet
def test_equal_optimisers_share_their_programs():
    def fitted():
        learner = Gradient(Optimiser(optax.sgd, 1e-3), negative_log_likelihood)
        return fe.GaussianMixture(2, learner=learner, max_iter=3, random_state=0).fit(ROWS)

    first = fitted()
    with count_compilations() as compilations:
        second = fitted()
    assert compilations.count == 0
    np.testing.assert_array_equal(first.means_, second.means_)


@quiet
def test_a_learner_of_closures_has_to_be_set_again(tmp_path):
    learner = Gradient(optax.adam(1e-2), negative_log_likelihood, batch_size=16)
    model = fe.GaussianMixture(2, learner=learner, max_iter=3, random_state=0).fit(ROWS)
    found = again(again(model, tmp_path), tmp_path)
    np.testing.assert_array_equal(found.score_samples(ROWS), model.score_samples(ROWS))
    assert found.learner.batch_size == 16
    with pytest.raises(
        ValueError,
        match=r"^The 'learner' parameter holds the function 'chain.<locals>.init_fn', which a file cannot "
        r"keep. Set 'learner' again before fitting.",
    ):
        found.fit(ROWS)
    np.testing.assert_array_equal(found.set_params(learner=learner).fit(ROWS).means_, model.means_)


def test_a_parameter_inside_another_is_called_by_both(tmp_path):
    found = back(fe.NormalizingFlow(architecture=lambda *_, **__: None), tmp_path)
    with pytest.raises(ValueError, match="Set 'thing__architecture' again"):
        found.fit(ROWS)


def test_a_place_on_this_machine_stays_here(tmp_path):
    model = fe.GaussianMixture(2, checkpoint=str(tmp_path / "fit"), random_state=0).fit(ROWS)
    assert again(model, tmp_path).checkpoint is None


# ---------------------------------------------------------------------------------------------
# what cannot be saved
# ---------------------------------------------------------------------------------------------


class Poissonlike(d.Poisson):
    """A family of the user's own."""


def own_activation(x):
    return jnp.sin(x)


def test_classes_of_others_have_to_be_trusted(tmp_path):
    rows = np.abs(ROWS.round())
    model = fe.Mixture(1, family=Poissonlike(jnp.ones(3)), random_state=0).fit(rows)
    path = tmp_path / "model.safetensors"
    model.save(path)
    with pytest.raises(
        ValueError,
        match=r"uses '\S+\.Poissonlike', which freeenergy does not define. If you trust the file, import "
        "what it uses and pass it in a list as 'trusted'.",
    ):
        fe.load(path)
    found = fe.load(path, trusted=[Poissonlike])
    np.testing.assert_array_equal(found.score_samples(rows), model.score_samples(rows))
    Holder(own_activation).save(path)
    assert fe.load(path, trusted=[Holder, own_activation]).thing is own_activation
    assert [name.rpartition(".")[2] for name in io.describe(path)["foreign"]] == [
        "Holder",
        "own_activation",
    ]


def fitted_with(thing):
    holder = Holder()
    holder.model_ = thing
    return holder


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        (
            make_pipeline(fe.KMeans(2)),
            "Only estimators of freeenergy can be saved; .* Got a Pipeline",
        ),
        (LogisticRegression(), "Got a LogisticRegression instead"),
        (
            Holder(LogisticRegression()),
            "Holder cannot be saved: its 'thing' is a LogisticRegression",
        ),
        (Holder([{"a": pd.DataFrame()}]), r"its 'thing\.0\.a' is a DataFrame"),
        (Holder({1, 2}), "is a set, for which files have no place"),
        (Holder(np.zeros(2, complex)), "is an array of type complex128"),
        (Holder(b"x"), "is a bytes"),
        (fitted_with(lambda x: x), r"its 'model_' is the function '<lambda>', which a file cannot name"),
        (fitted_with([optax.sgd(1.0)]), r"its 'model_\.0\.init' is the function 'chain.<locals>"),
    ],
)
def test_what_cannot_be_saved(thing, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        io.save(thing, tmp_path / "model.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_an_attribute_in_the_place_of_a_method(tmp_path):
    holder = fe.KMeans(2)
    holder.fit = 3
    with pytest.raises(ValueError, match="its 'fit' is set although its class KMeans has that name"):
        holder.save(tmp_path / "x")


def test_too_much_that_is_not_an_array(tmp_path):
    with pytest.raises(ValueError, match="what is not an array takes 17 MiB, of which a file holds 16"):
        Holder("x" * (17 << 20)).save(tmp_path / "x")


def test_a_write_that_fails_leaves_the_former_file(tmp_path, monkeypatch):
    path = tmp_path / "model.safetensors"
    small_mixture().save(path)
    before = path.read_bytes()

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    class Full(builtin_io.FileIO):
        write = full

    def opened(path, mode):
        return Full(path, mode)

    sentence = rf"'{path}' was not written: No space left on device. A file that was there before is unch"
    for owner, step, fault in ((os, "fsync", full), (os, "replace", full), (Path, "open", opened)):
        with monkeypatch.context() as patch:
            patch.setattr(owner, step, fault)
            with pytest.raises(OSError, match=sentence) as error:
                write_whole(path, b"other")
            assert error.value.errno == errno.ENOSPC
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(FileNotFoundError):
        fe.KMeans(2).save(tmp_path / "no" / "such" / "folder")
    with pytest.raises(IsADirectoryError):
        fe.KMeans(2).save(tmp_path)
    assert list(tmp_path.iterdir()) == [path]
    write_whole(path, b"other")
    assert path.read_bytes() == b"other"


# ---------------------------------------------------------------------------------------------
# what must not be loaded
# ---------------------------------------------------------------------------------------------


def parts(path):
    """The header of a file as a tree, and its arrays."""
    from safetensors.numpy import load_file

    raw = path.read_bytes()
    table = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    return json.loads(table["__metadata__"]["freeenergy"]), load_file(path)


def sealed(header, tensors):
    """A file with the right checksum, whatever it holds."""
    text = header if isinstance(header, str) else json.dumps(header | {"sha256": "0" * 64})
    data = to_bytes(tensors, metadata={"freeenergy": text})
    return data.replace(b"0" * 64, hashlib.sha256(data).hexdigest().encode(), 1)


def edited(change):
    """What makes a file of a good one by `change(header, parameters, attributes, tensors)`."""

    def make(path):
        header, tensors = parts(path)
        _, parameters, attributes = header["estimator"]["estimator"]
        change(header, parameters, attributes, tensors)
        return sealed(header, tensors)

    return make


def put(where, name, node):
    """A good file with `node` as a parameter or as an attribute."""

    def change(header, parameters, attributes, tensors):
        {"parameters": parameters, "attributes": attributes}[where][name] = node

    return edited(change)


def with_root(node):
    return edited(lambda header, parameters, attributes, tensors: header.__setitem__("estimator", node))


def model_field(change):
    return edited(lambda h, p, attributes, t: change(attributes["model_"]["record"][1]))


def cut(n):
    return lambda path: path.read_bytes()[:n]


def long_header(claimed, real):
    return lambda path: claimed.to_bytes(8, "little") + b" " * real


PLUS_PLUS = {"record": ["freeenergy.estimators.PlusPlus", {}]}
NONSENSE = "does not hold what its header says. Save the estimator again."

HOSTILE = {
    "empty": (lambda path: b"", "is empty. Save the estimator again."),
    "a few bytes": (cut(5), "is cut off or is no safetensors file"),
    "half a header": (cut(100), "is cut off or is no safetensors file"),
    "half the arrays": (cut(-40), "is damaged: its checksum is wrong"),
    "more than it says": (lambda path: path.read_bytes() + b"\0", "is damaged: its checksum is wrong"),
    "text": (lambda path: b"x,y\n1,2\n" * 20, "is cut off or is no safetensors file"),
    "not JSON": (lambda path: (9).to_bytes(8, "little") + b"{'a': 1} " + bytes(8), "is damaged or is no"),
    "a header that is not there": (long_header(2**40, 0), "is cut off or is no safetensors file"),
    "a large header": (long_header(2**24 + 1, 2**24 + 1), "has a header of more than 16 MiB"),
    "deep JSON": (
        lambda path: (2 * 10**5).to_bytes(8, "little") + b"[" * 10**5 + b"]" * 10**5,
        "is damaged or is no safetensors file",
    ),
    "another safetensors file": (
        lambda path: to_bytes({"weight": np.zeros(3)}, metadata={"format": "pt"}),
        "is not an estimator of freeenergy. Name a file that `save` of one has written.",
    ),
    "a checkpoint": (
        lambda path: to_bytes({"state.0": np.zeros(3)}, metadata={"freeenergy": '{"format": "x-1"}'}),
        "is not an estimator of freeenergy",
    ),
    "a newer format": (
        edited(lambda header, *_: header.update(format=2)),
        r"has the format 2, newer than freeenergy \S+. Update it.",
    ),
    "an older format than any": (edited(lambda header, *_: header.update(format=0)), "is not an estimator"),
    "no checksum": (
        lambda path: to_bytes({}, metadata={"freeenergy": '{"format": 1, "estimator": {}}'}),
        "has no checksum. Save the estimator again.",
    ),
    "a short checksum": (
        lambda path: to_bytes({}, metadata={"freeenergy": '{"format": 1, "sha256": "", "estimator": {}}'}),
        "has no checksum",
    ),
    "deep nodes": (
        lambda path: sealed(
            '{"format": 1, "sha256": "'
            + "0" * 64
            + '", "estimator": {"tuple": '
            + "[" * 900
            + "]" * 900
            + "}}",
            {},
        ),
        # how deep one may go depends on the version of Python
        f"{NONSENSE}|is not an estimator",
    ),
    "an unknown class": (
        with_root({"estimator": ["freeenergy.estimators.Oracle", {}, {}]}),
        r"names 'freeenergy.estimators.Oracle', which freeenergy \S+ does not have. Update freeenergy",
    ),
    "a class of a module": (
        with_root({"estimator": ["os._Environ", {}, {}]}),
        "names 'os._Environ'",
    ),
    "a class by its file": (
        with_root({"estimator": ["../evil.Evil", {}, {}]}),
        "names '../evil.Evil'",
    ),
    "a class that is no estimator": (
        with_root({"estimator": ["freeenergy.distributions.Diagonal", {}, {}]}),
        "takes 'freeenergy.distributions.Diagonal' for an estimator. Do not trust it.",
    ),
    "an abstract class": (
        with_root({"estimator": ["freeenergy.shell.AbstractDensity", {}, {}]}),
        "for an estimator",
    ),
    "a function as a class": (
        with_root({"estimator": ["freeenergy.models.coupling_flow", {}, {}]}),
        "for an estimator",
    ),
    "a record at the root": (
        with_root({"record": ["freeenergy.distributions.Diagonal", {"variance": None, "floor": 0.1}]}),
        "holds something that is not an estimator",
    ),
    "a list at the root": (with_root({"tuple": [1]}), "holds something that is not an estimator"),
    "two things at once": (with_root({"tuple": [], "dict": []}), NONSENSE),
    "an unknown kind of node": (
        put("parameters", "tol", {"pickle": "gASVAA=="}),
        NONSENSE,
    ),
    "a function that does not belong": (
        put("parameters", "init", {"name": "os.system"}),
        "names 'os.system'",
    ),
    "a function that writes": (
        put("parameters", "init", {"name": "freeenergy.estimators.save"}),
        "names 'freeenergy.estimators.save'",
    ),
    "an object that writes": (
        put("parameters", "init", {"record": ["freeenergy._core.Checkpoint", {"path": "/x"}]}),
        "names 'freeenergy._core.Checkpoint'",
    ),
    "a place to write": (
        put("parameters", "checkpoint", "../../x"),
        "chooses where a fit would write",
    ),
    "an extra parameter": (
        put("parameters", "magic", 1),
        "has 'magic' in GaussianMixture",
    ),
    "a method replaced": (
        put("attributes", "fit", 1),
        "replaces 'fit' of GaussianMixture",
    ),
    "a class replaced": (put("attributes", "__class__", 1), "replaces '__class__'"),
    "a parameter replaced": (put("attributes", "n_components", 1), "replaces 'n_components'"),
    "no identifier": (put("attributes", "../x", 1), r"replaces '\.\./x'"),
    "a missing field": (
        model_field(lambda f: f.pop("weights")),
        "lacks 'weights' in Mixture, unlike",
    ),
    "an extra field": (model_field(lambda f: f.update(evil=1)), "has 'evil' in Mixture, unlike freeenergy"),
    "an array that is not there": (
        model_field(lambda f: f.update(weights={"jax": "../../etc/passwd"})),
        NONSENSE,
    ),
    "an array too many": (
        edited(lambda header, p, a, tensors: tensors.update(stowaway=np.zeros(3))),
        "has the array 'stowaway', which belongs to nothing",
    ),
    "a method that is none": (
        put(
            "parameters",
            "init",
            {"method": [{"record": ["freeenergy.estimators.PlusPlus", {}]}, "__class__"]},
        ),
        "names a method '__class__' that is none",
    ),
    "a method of nothing": (
        put("parameters", "init", {"method": ["text", "format"]}),
        "method 'format'",
    ),
    "no member": (
        put("parameters", "tol", {"enum": ["freeenergy._core.Kind", "mro"]}),
        NONSENSE,
    ),
    "a class as a record": (put("parameters", "tol", {"record": ["builtins.int", {}]}), "for a record"),
    "a list as a key": (
        put("parameters", "tol", {"dict": [[[], 1]]}),
        NONSENSE,
    ),
    "a generator beyond its end": (
        edited(
            lambda header, parameters, a, tensors: (
                tensors.update(key=np.zeros(624, np.uint32)),
                parameters.update(random_state={"random": ["MT19937", {"array": "key"}, 10**6, 0, 0.0]}),
            )
        ),
        NONSENSE,
    ),
    "letters that are numbers": (
        edited(
            lambda header, parameters, a, tensors: (
                tensors.update(text=np.full((1, 3), 1e-30, np.float32)),
                parameters.update(init={"strings": "text"}),
            )
        ),
        NONSENSE,
    ),
    "a name of several lines": (put("parameters", "init", {"name": "a\nb"}), r"names 'a\\nb'"),
    "letters that are none": (
        edited(
            lambda header, parameters, a, tensors: (
                tensors.update(text=np.full((1, 3), 2**31, np.uint32)),
                parameters.update(init={"strings": "text"}),
            )
        ),
        NONSENSE,
    ),
    "a shape that is none": (
        put("parameters", "init", {"objects": [[10**12], []]}),
        NONSENSE,
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_files_are_refused_in_one_sentence(case, saved, tmp_path):
    make, message = HOSTILE[case]
    path = tmp_path / "model.safetensors"
    path.write_bytes(make(saved))
    with pytest.raises(ValueError, match=message) as error:
        fe.load(path)
    assert str(error.value).startswith(f"The file '{path}' ")
    assert "\n" not in str(error.value)
    assert error.value.__cause__ is None


def test_the_workshop_of_hostile_files_makes_good_ones(saved, tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(edited(lambda *_: None)(saved))
    np.testing.assert_array_equal(fe.load(path).means_, small_mixture().means_)


def shape_table(change):
    """A file whose table of arrays is changed, with the right checksum."""

    def make(path):
        raw = path.read_bytes()
        end = 8 + int.from_bytes(raw[:8], "little")
        table = json.loads(raw[8:end])
        digest = json.loads(table["__metadata__"]["freeenergy"])["sha256"]
        change(table)
        text = json.dumps(table).replace(digest, "0" * 64).encode()
        data = len(text).to_bytes(8, "little") + text + raw[end:]
        return data.replace(b"0" * 64, hashlib.sha256(data).hexdigest().encode(), 1)

    return make


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t["model_.weights"].update(shape=[2**40]),
        lambda t: t["model_.weights"].update(shape=[2**62, 2**62]),
        lambda t: t["model_.weights"].update(shape=[-2]),
        lambda t: t["model_.weights"].update(data_offsets=[0, 2**40]),
        lambda t: t["model_.weights"].update(dtype="F13"),
        lambda t: t["model_.weights"].update(data_offsets=t["seed_"]["data_offsets"]),
        lambda t: t.pop("model_.weights"),
    ],
    ids=["huge", "overflowing", "negative", "beyond the end", "unknown type", "overlapping", "a hole"],
)
def test_shapes_that_disagree_with_the_file(change, saved, tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(shape_table(lambda table: None)(saved))
    np.testing.assert_array_equal(fe.load(path).means_, small_mixture().means_)
    path.write_bytes(shape_table(change)(saved))
    with pytest.raises(ValueError, match=NONSENSE):
        fe.load(path)


def test_every_flipped_bit_is_found(saved, tmp_path):
    good = saved.read_bytes()
    path = tmp_path / "model.safetensors"
    for at in range(0, len(good), 3):
        damaged = bytearray(good)
        damaged[at] ^= 1 << (at // 3) % 8
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"^The file '.*' (is|has) [^\n]*\.$"):
            fe.load(path)
    for end in range(0, len(good), 97):
        path.write_bytes(good[:end])
        with pytest.raises(ValueError, match=r"^The file '.*' is [^\n]*\.$"):
            fe.load(path)


def nodes(tree, where=()):
    yield where
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, child in items:
        yield from nodes(child, (*where, key))


KINDS = [
    "tuple",
    "dict",
    "float",
    "array",
    "scalar",
    "jax",
    "weak",
    "key",
    "strings",
    "objects",
    "dtype",
    "random",
    "name",
    "enum",
    "partial",
    "method",
    "record",
    "estimator",
]


@given(st.data())
@settings(max_examples=60, deadline=None, derandomize=True)
def test_a_changed_header_gives_an_estimator_or_a_sentence(saved, tmp_path_factory, data):
    header, tensors = parts(saved)
    places = [where for where in nodes(header["estimator"]) if where]
    where = data.draw(st.sampled_from(places))
    names = [
        "freeenergy.models.Mixture",
        "freeenergy._core.Kind",
        "optax.adam",
        "model_.weights",
        "MT19937",
    ]
    json_values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.sampled_from(names),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(KINDS),
                inner,
                max_size=1,
            )
        ),
        max_leaves=6,
    )
    target = functools.reduce(lambda tree, key: tree[key], where[:-1], header["estimator"])
    target[where[-1]] = data.draw(json_values)
    path = tmp_path_factory.mktemp("changed") / "model.safetensors"
    path.write_bytes(sealed(header, tensors))
    for look in (fe.load, io.describe):
        try:
            look(path)
        except ValueError as error:
            assert str(error).startswith("The file '")  # noqa: PT017


REPLACEMENTS = ["[]", "{}", "null", "0", "-1", '""', "1e999", "true", '"' + "long" * 500 + '"', "[[]]"]


def test_every_node_of_a_header_can_be_anything(saved, tmp_path, capsys):
    """It gives one sentence, or an estimator that scores, from Python and on the command line."""
    whole, tensors = parts(saved)
    del whole["sha256"]
    path, expected, scored = tmp_path / "model.safetensors", small_mixture().score_samples(ROWS), 0
    for number, where in enumerate(w for w in nodes(whole) if w):
        for turn, replacement in enumerate(REPLACEMENTS[number % 3 :: 3]):
            header = copy.deepcopy(whole)
            functools.reduce(lambda tree, key: tree[key], where[:-1], header)[where[-1]] = json.loads(
                replacement
            )
            path.write_bytes(sealed(header, tensors))
            if turn == 0:
                assert run(["inspect", str(path)]) in (0, 2)
            found = None
            for look in (io.describe, fe.load):
                try:
                    found = look(path)
                except ValueError as error:
                    found = None
                    assert str(error).startswith(f"The file '{path}' ")  # noqa: PT017
                    assert "\n" not in str(error)  # noqa: PT017
            if found is None:
                continue
            try:
                np.testing.assert_array_equal(found.score_samples(ROWS), expected)
                scored += 1
            except ValueError as error:
                assert "features" in str(error)  # noqa: PT017
    capsys.readouterr()
    assert scored > 30


@pytest.mark.parametrize(
    ("name", "change", "sentence"),
    [
        ("model_.weights", lambda v: v * 2, "has parameters that are not non-negative with sum one along"),
        (
            "model_.weights",
            lambda v: v[:, None],
            "has parameters that are not non-negative with sum one al",
        ),
        ("model_.components.covariance.variance", np.negative, "has parameters that are not positive. Do"),
        ("model_.components.covariance.variance", lambda v: v[:, :2], NONSENSE),
        ("model_.components.mean", np.ravel, NONSENSE),
        ("model_.components.mean", lambda v: v * np.nan, "has parameters that are not real. Do not trust"),
        ("scaling_.scale", lambda v: v * 0, "has a scaling that is none. Do not trust it."),
        ("scaling_.shift", lambda v: v[:2], NONSENSE),
    ],
)
def test_arrays_that_no_fit_leaves_are_refused(name, change, sentence, saved, tmp_path):
    header, tensors = parts(saved)
    tensors[name] = np.ascontiguousarray(change(tensors[name]))
    path = tmp_path / "model.safetensors"
    path.write_bytes(sealed(header, tensors))
    with pytest.raises(ValueError, match=sentence):
        fe.load(path)


def test_the_table_of_names():
    import freeenergy.__main__  # noqa: F401  (the command line is loaded, and yet not in the table)

    assert LAYERS[: LAYERS.index("datasets")] == PARTS
    table = registry()
    assert table["freeenergy.models.Mixture"] is Mixture
    assert table["freeenergy.estimators.Mixture"] is fe.Mixture
    ours = {name.split(".")[1] for name in table if name.startswith("freeenergy.")}
    assert ours <= set(PARTS)
    short = {name.rpartition(".")[2] for name in table}
    assert not short & {"save", "load", "describe", "write_whole", "Checkpoint"}


def test_no_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"There is no file '.*nowhere'. Check the name."):
        fe.load(tmp_path / "nowhere")
    with pytest.raises(IsADirectoryError, match=r"is a folder. Name a file in it."):
        fe.load(tmp_path)
    with pytest.raises(ValueError, match="is not a regular file"):
        fe.load(os.devnull)
    for look in (fe.load, io.describe):
        with pytest.raises(FileNotFoundError, match="Check the name"):
            look(tmp_path / "nowhere")


def test_a_field_that_a_later_version_adds_has_its_default(saved, tmp_path):
    def older(header, parameters, attributes, tensors):
        del parameters["n_init"]
        del attributes["model_"]["record"][1]["weight_prior"]

    path = tmp_path / "model.safetensors"
    path.write_bytes(edited(older)(saved))
    found = fe.load(path)
    assert found.n_init == 1
    assert found.model_.weight_prior is None
    assert isinstance(found.model_, Mixture)


# ---------------------------------------------------------------------------------------------
# old files, and what is in a file
# ---------------------------------------------------------------------------------------------

OLD = sorted((Path(__file__).parent / "files").glob("*.safetensors"))


@pytest.mark.parametrize("path", OLD, ids=lambda path: path.stem)
def test_old_files_stay_readable(path):
    expected = json.loads(path.with_suffix(".json").read_text())
    found = fe.load(path)
    np.testing.assert_allclose(found.score_samples(expected["rows"]), expected["score_samples"], rtol=1e-9)
    assert io.describe(path)["versions"]["freeenergy"]
    assert len(OLD) >= 4


def test_a_former_record_with_other_fields_is_refused():
    decoder = Decoder({}, {}, [])
    with pytest.raises(ValueError, match=r"^$"):
        decoder.decode({"record": ["freeenergy.models.GaussianUnits", {"bias": None, "scale": None}]})


def test_describe(tmp_path):
    path = tmp_path / "model.safetensors"
    learner = Gradient(Optimiser(optax.adam, 1e-2), negative_log_likelihood)
    frame = pd.DataFrame(ROWS, columns=["a", "b", "c"])
    model = fe.GaussianMixture(2, d.Diagonal(), learner=learner, max_iter=2, tol=np.inf, random_state=0)
    unfitted = clone(model)
    unfitted.save(path)
    found = io.describe(path)
    assert (found["class"], found["fitted"], found["n_features_in"]) == ("GaussianMixture", False, None)
    assert found["parameters"]["n_components"] == 2
    assert found["parameters"]["tol"] == "inf"
    assert found["parameters"]["covariance"] == "Diagonal(variance=None, floor=1e-06)"
    assert "Optimiser(function=adam, arguments=(0.01), options=())" in found["parameters"]["learner"]
    assert "objective=negative_log_likelihood" in found["parameters"]["learner"]

    model = fe.GaussianMixture(2, d.Diagonal(), random_state=0).fit(frame)
    model.save(path)
    found = io.describe(path)
    assert found["fitted"]
    assert found["n_features_in"] == 3
    assert found["feature_names"] == ["a", "b", "c"]
    assert found["attributes"]["scaling_"] == "Scaling(shift=F64[3], scale=F64[3])"
    assert found["bytes"] == path.stat().st_size
    assert found["format"] == 1
    assert found["versions"].keys() == {"freeenergy", "jax", "numpy"}
    # weights, means, variances, the scaling, the history and the seed
    assert found["numbers"] == 2 + 6 + 6 + 6 + model.n_iter_ + 1
    json.dumps(found)
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    with pytest.raises(ValueError, match="is damaged"):
        io.describe(path)
