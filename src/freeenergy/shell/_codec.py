"""Estimators as plain trees: what a file can hold, and what may be made of it.

A tree has plain values and objects with one entry, whose name says what to make of it:
`{"record": ["freeenergy.distributions.Diagonal", {…}]}`, `{"array": "model_.weights"}`.  Names stand for
what the library itself defines and for a list of things of JAX, Equinox and Optax; they are looked up
in a table, never imported.  Objects are put together from their declared fields; nothing is called.
"""

from __future__ import annotations

import builtins
import dataclasses
import enum
import functools
import importlib.metadata
import inspect
import math
import sys
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from .._core import broken_constraints, on_device
from .._layers import PARTS
from .._lazy import import_whole
from ..models import AbstractExactModel
from ._answers import log_prob_of
from ._base import Shell
from ._density import AbstractDensity
from ._former import FORMER_FIELDS, FORMER_NAMES, FORMER_RECORDS
from ._rows import Scaling

VERSION = importlib.metadata.version("freeenergy")

# what an estimator may hold that the library does not define
_ELSEWHERE: dict[str, tuple[Any, str]] = {
    "builtins": (builtins, "bool int float"),
    "numpy": (np, "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64"),
    "jax.numpy": (
        jnp,
        """int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 bool_
        abs arctan cos cosh exp expm1 log log1p sign sin sinh sqrt square tan tanh""",
    ),
    "jax.nn": (
        jax.nn,
        """celu elu gelu glu hard_sigmoid hard_silu hard_tanh identity leaky_relu log_sigmoid log_softmax
        mish relu relu6 selu sigmoid silu soft_sign softmax softplus sparse_plus squareplus standardize""",
    ),
    "equinox": (eqx, "Partial"),
    "equinox.nn": (eqx.nn, " ".join(name for name in vars(eqx.nn) if name[0].isupper())),
    "optax": (
        optax,
        """GradientTransformation GradientTransformationExtraArgs
        adabelief adadelta adafactor adagrad adam adamax adamaxw adamw adan amsgrad fromage lamb lars lion
        nadam nadamw noisy_sgd novograd optimistic_gradient_descent radam rmsprop rprop sgd sign_sgd sm3
        yogi add_decayed_weights add_noise adaptive_grad_clip apply_every centralize chain clip
        clip_by_block_rms clip_by_global_norm ema identity normalize_by_update_norm scale scale_by_adam
        scale_by_rms scale_by_schedule set_to_zero trace zero_nans
        constant_schedule cosine_decay_schedule cosine_onecycle_schedule exponential_decay join_schedules
        linear_onecycle_schedule linear_schedule piecewise_constant_schedule
        piecewise_interpolate_schedule polynomial_schedule sgdr_schedule warmup_constant_schedule
        warmup_cosine_decay_schedule warmup_exponential_decay_schedule""",
    ),
}
# modules of the library that read or write files: no parameter in a file can make a fit do that
_WITH_FILES = ("_checkpoints", "_chunks", "_files", "_stream")
_PARTIALS = (functools.partial, jax.tree_util.Partial)
_DTYPES = {np.dtype(name).name: np.dtype(name) for name in _ELSEWHERE["numpy"][1].split()}
_EMPTY = inspect.Parameter.empty


class UnreadableError(Exception):
    """Why a file is refused: what comes after its name in the sentence."""


@dataclasses.dataclass(frozen=True)
class Unnamed:
    """Stands in a loaded estimator for a function that its file could not name, such as a closure.

    Attributes:
        parameter: the parameter that holds it.
        function: what it was called.
    """

    parameter: str
    function: str

    def __call__(self, *arguments: Any, **options: Any) -> NoReturn:
        raise ValueError(
            f"The '{self.parameter}' parameter holds the function '{self.function}', which a file cannot "
            f"keep. Set '{self.parameter}' again before fitting."
        )


def _own_name(thing: Any) -> str:
    return f"{thing.__module__}.{thing.__qualname__}"


def registry() -> dict[str, Any]:
    """Every class and function that a file may name.

    What the library defines is called by its package, `freeenergy.models.Mixture`, so that files do not
    depend on the private module it is in.
    """
    names = {
        f"{package}.{name}": getattr(module, name)
        for package, (module, listed) in _ELSEWHERE.items()
        for name in listed.split()
    }
    library = __name__.partition(".")[0]
    for part in PARTS:
        import_whole(f"{library}.{part}")
    twice = set()
    for module in list(sys.modules.values()):
        path = getattr(module, "__name__", "").split(".")
        if path[0] != library or not set(path[1:2]) & set(PARTS) or path[-1] in _WITH_FILES:
            continue
        for name, thing in list(vars(module).items()):
            own = getattr(thing, "__module__", "") == module.__name__
            if own and callable(thing) and getattr(thing, "__qualname__", "") == name:
                known = f"{library}.{path[1]}.{name}"
                twice |= {known} if names.setdefault(known, thing) is not thing else set()
    return {name: thing for name, thing in names.items() if name not in twice}


def _fields(kind: Any) -> dict[str, Any]:
    """The declared fields of a record with their defaults, `_EMPTY` for none."""
    if not dataclasses.is_dataclass(kind):
        return {name: kind._field_defaults.get(name, _EMPTY) for name in kind._fields}

    def default(field: dataclasses.Field) -> Any:
        if field.default is dataclasses.MISSING:
            return _EMPTY
        convert = field.metadata.get("converter")
        return field.default if convert is None else convert(field.default)

    return {field.name: default(field) for field in dataclasses.fields(kind)}


def _is_record(kind: type) -> bool:
    return dataclasses.is_dataclass(kind) or (issubclass(kind, tuple) and "_fields" in dir(kind))


def _on_class(kind: type, name: str) -> Any:
    return inspect.getattr_static(kind, name, None)


def _is_attribute(kind: type, name: str) -> bool:
    """Whether an object may have the attribute `name` of its own: nothing that the class defines."""
    return name.isidentifier() and not name.startswith("__") and name not in dir(kind)


class Encoder:
    """Makes a header of an estimator, and collects its arrays."""

    def __init__(self, root: Any) -> None:
        self.root = type(root).__name__
        self.names = {id(thing): name for name, thing in registry().items()}
        self.tensors: dict[str, np.ndarray] = {}
        # what is used that is neither the library's nor in the list
        self.foreign: dict[str, Any] = {}

    def refuse(self, path: str, what: str) -> NoReturn:
        raise ValueError(f"{self.root} cannot be saved: its '{path}' is {what}.")

    def name(self, thing: Any) -> str:
        known = self.names.get(id(thing))
        if known is None:
            known = _own_name(thing)
            self.foreign[known] = thing
        return known

    def tensor(self, array: Any, path: str) -> str:
        array = np.asarray(array, order="C")
        if array.dtype.newbyteorder("=") not in _DTYPES.values():
            self.refuse(path, f"an array of type {array.dtype}, for which files have no place")
        name, number = path, 0
        while name in self.tensors:
            name, number = f"{path}#{number}", number + 1
        self.tensors[name] = array.astype(array.dtype.newbyteorder("="), copy=False)
        return name

    def encode(self, value: Any, path: str, parameter: str | None) -> Any:
        """The node of `value`, which is at `path` in the estimator, inside `parameter` if in one."""

        def each(items: Iterable[Any], names: Iterable[Any] | None = None) -> list[Any]:
            items = list(items)
            names = range(len(items)) if names is None else names
            return [
                self.encode(item, f"{path}.{name}", parameter)
                for item, name in zip(items, names, strict=True)
            ]

        if id(value) in self.names:
            return {"name": self.names[id(value)]}
        match value:
            case enum.Enum():
                return {"enum": [self.name(type(value)), value.name]}
            case np.str_():
                return str(value)
            case np.generic():
                return {"scalar": self.tensor(value, path)}
            case float():
                return value if math.isfinite(value) else {"float": str(value)}
            case None | bool() | int() | str():
                return value
            case np.ndarray():
                if value.dtype.kind == "O":
                    return {"objects": [list(value.shape), each(value.ravel())]}
                if value.dtype.kind == "U":
                    width = value.dtype.itemsize // 4
                    points = np.array(value.ravel(), f"=U{width}").view(np.uint32)
                    return {"strings": self.tensor(points.reshape(*value.shape, width), path)}
                return {"array": self.tensor(value, path)}
            case jax.Array():
                if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
                    data = self.tensor(jax.random.key_data(value), path)
                    return {"key": [data, str(jax.random.key_impl(value))]}
                # only these two can be made again
                weak = value.weak_type and value.dtype in (np.float64, np.int64)
                return {"weak" if weak else "jax": self.tensor(value, path)}
            case np.dtype() if value.name in _DTYPES:
                return {"dtype": value.name}
            case np.random.RandomState():
                return {"random": each(value.get_state(legacy=True))}
            case Unnamed():
                # the parameter may be inside another one by now
                return self.record(dataclasses.replace(value, parameter=parameter or value.parameter), each)
            case functools.partial():
                kind = int(isinstance(value, jax.tree_util.Partial))
                return {"partial": [kind, *each([value.func, value.args, value.keywords])]}
            case Shell():
                return self.estimator(value, path, parameter)
            case list():
                return each(value)
            case dict():
                pairs = zip(each(value), each(value.values(), value), strict=True)
                return {"dict": [list(pair) for pair in pairs]}
            case type():
                return {"name": self.name(value)}
        if type(value) is tuple:
            return {"tuple": each(value)}
        if isinstance(value, eqx.Module) and set(_fields(type(value))) == {"__func__", "__self__"}:
            method: Any = value
            return {"method": [self.encode(method.__self__, path, parameter), method.__func__.__name__]}
        if _is_record(type(value)):
            return self.record(value, each)
        if callable(value):
            return self.function(value, path, parameter)
        self.refuse(path, f"a {type(value).__name__}, for which files have no place")

    def record(self, value: Any, each: Callable[..., list[Any]]) -> Any:
        names = list(_fields(type(value)))
        values = each([getattr(value, name) for name in names], names)
        return {"record": [self.name(type(value)), dict(zip(names, values, strict=True))]}

    def function(self, value: Any, path: str, parameter: str | None) -> Any:
        name = getattr(value, "__qualname__", type(value).__name__)
        home = sys.modules.get(getattr(value, "__module__", None) or "")
        if getattr(home, name, None) is value:
            return {"name": self.name(value)}
        if parameter is None:
            self.refuse(path, f"the function '{name}', which a file cannot name; use one of a module")
        return self.encode(Unnamed(parameter, name), path, parameter)

    def estimator(self, value: Any, path: str, parameter: str | None) -> Any:
        kind = type(value)
        below = f"{path}." if path else ""
        inside = f"{parameter}__" if parameter else ""
        given = value.get_params(deep=False)
        # a place on this machine is no property of the estimator, and no file may choose where to write
        given |= {"checkpoint": None} if "checkpoint" in given else {}
        parameters = {
            name: self.encode(part, f"{below}{name}", f"{inside}{name}") for name, part in given.items()
        }
        attributes = {}
        for name, part in vars(value).items():
            if name in parameters or isinstance(_on_class(kind, name), functools.cached_property):
                continue
            if not _is_attribute(kind, name):
                self.refuse(f"{below}{name}", f"set although its class {kind.__name__} has that name")
            attributes[name] = self.encode(part, f"{below}{name}", None)
        return {"estimator": [self.name(kind), parameters, attributes]}


def foreign_parts(estimator: Any) -> list[Any]:
    """The classes and functions that an estimator is made of and that the library does not define."""
    encoder = Encoder(estimator)
    encoder.encode(estimator, "", None)
    return list(encoder.foreign.values())


class Decoder:
    """Makes an estimator of a header and arrays."""

    def __init__(
        self, header: dict[str, Any], tensors: dict[str, np.ndarray], trusted: Iterable[Any]
    ) -> None:
        self.header = header
        self.registry = registry() | {_own_name(thing): thing for thing in trusted}
        self.tensors = tensors
        self.used: set[str] = set()

    def named(self, name: str) -> Any:
        name = FORMER_NAMES.get(name, name)
        if name in self.registry:
            return self.registry[name]
        unknown = [n for n in self.header.get("foreign", []) if n not in self.registry]
        if name in unknown:
            raise UnreadableError(
                f"uses {', '.join(map(repr, unknown[:9]))}, which freeenergy does not define. If you trust "
                "the file, import what it uses and pass it in a list as 'trusted'."
            )
        raise UnreadableError(
            f"names {name[:80]!r}, which freeenergy {VERSION} does not have. "
            "Update freeenergy, or do not trust the file."
        )

    def kind(self, name: str, test: Callable[[type], bool], what: str) -> Any:
        """The class called `name`, which must pass `test`."""
        kind = self.named(name)
        if not isinstance(kind, type) or not test(kind) or inspect.isabstract(kind):
            raise UnreadableError(f"takes {name[:80]!r} for {what}. Do not trust it.")
        return kind

    def tensor(self, name: str) -> np.ndarray:
        self.used.add(name)
        return self.tensors[name]

    def decode(self, node: Any) -> Any:
        if isinstance(node, dict) and len(node) != 1:
            raise ValueError
        match node:
            case None | bool() | int() | float() | str():
                return node
            case list():
                return [self.decode(item) for item in node]
            case {"tuple": list(items)}:
                return tuple(self.decode(items))
            case {"dict": list(pairs)}:
                return {self.decode(key): self.decode(value) for key, value in pairs}
            case {"float": "nan" | "inf" | "-inf" as text}:
                return float(text)
            case {"array": str(name)}:
                return self.tensor(name)
            case {"scalar": str(name)}:
                return self.tensor(name)[()]
            case {"jax": str(name)}:
                return on_device(self.tensor(name))
            case {"weak": str(name)}:
                return _weak(self.tensor(name))
            case {"key": [str(name), str(kind)]}:
                return jax.random.wrap_key_data(on_device(self.tensor(name)), impl=kind)
            case {"strings": str(name)}:
                points = self.tensor(name)
                if points.dtype != np.uint32 or points.max(initial=0) > sys.maxunicode:
                    raise ValueError
                return points.view(f"=U{points.shape[-1]}")[..., 0]
            case {"objects": [list(shape), list(items)]}:
                flat = np.empty(len(items), object)
                for i, item in enumerate(items):
                    flat[i] = self.decode(item)
                return flat.reshape(shape)
            case {"dtype": str(name)}:
                return _DTYPES[name]
            case {"random": [str(kind), {"array": str(name)}, int(position), int(has), value]}:
                # NumPy takes any position, and would read beyond the end of the state
                if not 0 <= position <= 624:
                    raise ValueError
                generator = np.random.RandomState(0)
                generator.set_state((kind, self.tensor(name), position, has, self.decode(value)))
                return generator
            case {"name": str(name)}:
                return self.named(name)
            case {"enum": [str(name), str(member)]}:
                return self.kind(name, lambda k: issubclass(k, enum.Enum), "an enumeration")[member]
            case {"partial": [0 | 1 as kind, function, arguments, options]}:
                parts = self.decode([function, arguments, options])
                return _PARTIALS[int(kind)](parts[0], *parts[1], **parts[2])
            case {"method": [owner, str(name)]}:
                return self.method(self.decode(owner), name)
            case {"record": [str(name), dict(fields)]} if name in FORMER_RECORDS:
                return self.former(name, fields)
            case {"record": [str(name), dict(fields)]}:
                return self.record(self.kind(name, _is_record, "a record"), fields)
            case {"estimator": [str(name), dict(parameters), dict(attributes)]}:
                kind = self.kind(name, lambda k: issubclass(k, Shell), "an estimator")
                return self.estimator(kind, parameters, attributes)
        raise ValueError

    def method(self, owner: Any, name: str) -> Any:
        if not isinstance(owner, eqx.Module) or not inspect.isfunction(_on_class(type(owner), name)):
            raise UnreadableError(f"names a method {name[:80]!r} that is none. Do not trust it.")
        return getattr(owner, name)

    def complete(self, kind: type, declared: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        """The values of all `declared` fields: those in the file, and defaults for newer ones."""
        extra = [name for name in given if name not in declared]
        missing = [n for n, v in declared.items() if n not in given and v is _EMPTY]
        if extra or missing:
            what = f"{'has' if extra else 'lacks'} {(extra or missing)[0][:80]!r} in {kind.__name__}"
            raise UnreadableError(
                f"{what}, unlike freeenergy {VERSION}. Update freeenergy, or do not trust the file."
            )
        return {n: self.value(given[n], v) if n in given else v for n, v in declared.items()}

    def value(self, node: Any, default: Any) -> Any:
        """What `node` stands for; a plain number that is the default is that object, as `repr` expects."""
        made = self.decode(node)
        plain = type(made) in (int, float, str) and type(made) is type(default)
        return default if plain and repr(made) == repr(default) else made

    def former(self, name: str, fields: dict[str, Any]) -> Any:
        """What a record of an earlier version is now."""
        make = FORMER_RECORDS[name]
        if set(fields) != set(inspect.signature(make).parameters):
            raise ValueError
        return make(**{field: self.decode(node) for field, node in fields.items()})

    def record(self, kind: Any, fields: dict[str, Any]) -> Any:
        values = self.complete(kind, _fields(kind), fields)
        values = FORMER_FIELDS[kind](values) if kind in FORMER_FIELDS else values
        if issubclass(kind, tuple):
            return tuple.__new__(kind, values.values())
        made = object.__new__(kind)
        for name, value in values.items():
            object.__setattr__(made, name, value)
        return made

    def estimator(self, kind: Any, parameters: dict[str, Any], attributes: dict[str, Any]) -> Any:
        if parameters.get("checkpoint") is not None:
            raise UnreadableError("chooses where a fit would write. Do not trust it.")
        signature = inspect.signature(kind.__init__).parameters
        declared = {name: signature[name].default for name in kind._get_param_names()}
        wrong = [name for name in attributes if not _is_attribute(kind, name) or name in declared]
        if wrong:
            raise UnreadableError(f"replaces {wrong[0][:80]!r} of {kind.__name__}. Do not trust it.")
        made = object.__new__(kind)
        vars(made).update(self.complete(kind, declared, parameters))
        vars(made).update({name: self.decode(node) for name, node in attributes.items()})
        if "model_" in attributes:
            _check_fitted(made)
        return made


def _check_fitted(made: Any) -> None:
    """Refuses what no fit leaves behind: arrays of wrong shapes, or values that cannot be."""
    if not isinstance(made.model_, eqx.Module):
        raise ValueError
    broken = broken_constraints(made.model_)
    if broken:
        raise UnreadableError(f"has parameters that are not {broken[0]}. Do not trust it.")
    if not isinstance(made, AbstractDensity):
        return
    match made.scaling_:
        case Scaling(np.ndarray() as shift, np.ndarray() as scale) if (
            shift.shape == scale.shape == (len(shift),) and shift.dtype == scale.dtype == np.float64
        ):
            finite = np.isfinite(shift).all() and np.isfinite(scale).all()
        case _:
            raise ValueError
    if not finite or (scale <= 0).any() or type(made.n_features_in_) is not int:
        raise UnreadableError("has a scaling that is none. Do not trust it.")
    if isinstance(made.model_, AbstractExactModel):
        row = jax.ShapeDtypeStruct(made._event_shape, shift.dtype)
        if jax.eval_shape(log_prob_of, row, made.model_).shape != ():
            raise ValueError


def _weak(values: np.ndarray) -> jax.Array:
    """An array of a type that gives way to others, as those made of Python numbers do."""
    if values.ndim == 0:
        return jnp.asarray(values.item())
    return jnp.full(values.shape, values.dtype.type(0).item()).at[...].set(values)


def as_text(node: Any, tensors: dict[str, str]) -> Any:
    """A node as a person would write it; plain values as they are."""

    def shown(part: Any) -> str:
        return repr(part) if isinstance(part, str) else str(as_text(part, tensors))

    def call(name: str, options: dict[str, Any]) -> str:
        return f"{name.rpartition('.')[2]}({', '.join(f'{n}={shown(v)}' for n, v in options.items())})"

    match node:
        case list():
            return f"[{', '.join(map(shown, node))}]"
        case {"tuple": list(items)}:
            return f"({', '.join(map(shown, items))})"
        case {"dict": list(pairs)}:
            return f"{{{', '.join(f'{shown(k)}: {shown(v)}' for k, v in pairs)}}}"
        case {"array": name} | {"scalar": name} | {"jax": name} | {"weak": name} | {"strings": name}:
            return tensors[name]
        case {"name": str(name)}:
            return name.rpartition(".")[2]
        case {"enum": [str(name), str(member)]}:
            return f"{name.rpartition('.')[2]}.{member}"
        case {"record": [str(name), dict(fields)]}:
            return call(name, fields)
        case {"estimator": [str(name), dict(parameters), _]}:
            return call(name, parameters)
        case {"objects": [_, list(items)]}:
            return shown(items)
        case {"float": text} | {"dtype": text}:
            return text
        case dict():
            return next(iter(node), "")
    return node
