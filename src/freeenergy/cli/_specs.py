"""Models in words: `gaussian-mixture:n_components=8,covariance=low-rank(rank=2)`.

The words are those of Python: names of public classes, in any spelling of case and hyphens, and of their
arguments.  They are found by walking the public packages.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import re
import typing
from typing import Any

import numpy as np

_TOKEN = re.compile(
    r"\s*(?:(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.]))"
    r"|(?P<name>[A-Za-z_][\w-]*)|(?P<text>'[^']*'|\"[^\"]*\")|(?P<mark>[(),=:\[\]+])|(?P<end>$))"
)
# what earlier versions called by another name
_FORMER_NAMES = {"bernoulliemission": "bernoulli", "gaussianemission": "gaussian"}
# the share of each label, or the law of numbers, whatever the row: what a model has to be better than
BASE_RATE = "base-rate"
_CONSTANTS = {"none": None, "true": True, "false": False, "inf": float("inf")}


class SpecError(ValueError):
    """A sentence on what is wrong with the words of a model."""


@dataclasses.dataclass(frozen=True)
class Call:
    """A name with what stands in its parentheses; without parentheses `arguments` is None."""

    name: str
    arguments: tuple[tuple[str | None, Any], ...] | None


@dataclasses.dataclass(frozen=True)
class Sum:
    """Values with a plus between them."""

    terms: tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class Text:
    """What stands in quotes: the name of something, or text."""

    text: str


def parse(text: str) -> Call:
    """The words of a model as a tree; nothing is looked up.

    >>> parse("mixture:2,family=poisson").arguments
    ((None, 2), ('family', Call(name='poisson', arguments=None)))
    >>> parse("mixture:family=by column").arguments  # several words need no quotes
    (('family', Text(text='by column')),)
    """
    try:
        parser = _Parser(text)
        call = parser.call(outermost=True)
        parser.expect("end")
    except RecursionError:
        raise SpecError(
            f"The model '{text[:30]}…' has brackets inside brackets, too many of them."
        ) from None
    return call


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0
        self._read()

    def _read(self) -> None:
        found = _TOKEN.match(self.text, self.place)
        if found is None:
            rest = self.text[self.place :].strip()
            raise SpecError(f"The model {self.text!r} cannot be read from {rest!r} on.")
        self.kind = str(found.lastgroup)
        self.token = found[self.kind]
        self.place = found.end()

    def take(self, kind: str, token: str | None = None) -> str | None:
        """The next token, if it is of that kind."""
        if self.kind != kind or (token is not None and self.token != token):
            return None
        taken = self.token
        if kind != "end":
            self._read()
        return taken

    def expect(self, kind: str, token: str | None = None) -> str:
        taken = self.take(kind, token)
        if taken is None:
            wanted = {"end": "nothing more", "name": "a name"}.get(kind, f"{token!r}")
            got = repr(self.token) if self.token else "the end"
            raise SpecError(f"The model {self.text!r} must have {wanted} where it has {got}.")
        return taken

    def call(self, *, outermost: bool = False) -> Call:
        name = self.expect("name")
        if outermost and self.take("mark", ":"):
            return Call(name, self.arguments("end"))
        if self.take("mark", "("):
            arguments = self.arguments("mark", ")")
            self.expect("mark", ")")
            return Call(name, arguments)
        return Call(name, None)

    def arguments(self, kind: str, token: str | None = None) -> tuple[tuple[str | None, Any], ...]:
        found: list[tuple[str | None, Any]] = []
        while not (self.kind == kind and (token is None or self.token == token)):
            if found:
                self.expect("mark", ",")
            value = self.value()
            if self.take("mark", "="):
                if not isinstance(value, Call) or value.arguments is not None:
                    raise SpecError(f"The model {self.text!r} must have a name before each '='.")
                found.append((value.name, self.value()))
            elif found and found[-1][0] is not None:
                raise SpecError(
                    f"The model {self.text!r} must have a value without a name before those with one."
                )
            else:
                found.append((None, value))
        return tuple(found)

    def value(self) -> Any:
        terms = [self.term()]
        while self.take("mark", "+"):
            terms.append(self.term())
        return terms[0] if len(terms) == 1 else Sum(tuple(terms))

    def term(self) -> Any:
        text = self.take("text")
        if text is not None:
            return Text(text[1:-1])
        number = self.take("number")
        if number is not None:
            return int(number) if re.fullmatch(r"[+-]?\d+", number) else float(number)
        if self.take("mark", "["):
            return self.sequence()
        call = self.call()
        words = [call.name]
        while call.arguments is None and (word := self.take("name")):
            words.append(word)
        return Text(" ".join(words)) if len(words) > 1 else call

    def sequence(self) -> list[Any]:
        found: list[Any] = []
        while not self.take("mark", "]"):
            if found:
                self.expect("mark", ",")
            found.append(self.value())
        return found


# ---------------------------------------------------------------------------------------------
# names
# ---------------------------------------------------------------------------------------------


def kebab(name: str) -> str:
    """`GaussianMixture` → `gaussian-mixture`, `PPCA` → `ppca`, `coupling_flow` → `coupling-flow`.

    >>> kebab("KMeans"), kebab("StudentT")
    ('k-means', 'student-t')
    """
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", name)
    return name.replace("_", "-").lower()


def _canonical(name: str) -> str:
    return name.replace("-", "").replace("_", "").replace(" ", "").lower()


@functools.cache
def estimators() -> dict[str, type]:
    """Every public estimator by its name on the command line."""
    from freeenergy import estimators as package
    from freeenergy.estimators import AbstractDensity

    base = next(kind for kind in AbstractDensity.__mro__ if kind.__name__ == "BaseEstimator")
    found = {name: getattr(package, name) for name in package.__all__ if not name.startswith("Abstract")}
    return {
        kebab(name): thing
        for name, thing in sorted(found.items(), key=lambda pair: kebab(pair[0]))
        if isinstance(thing, type) and issubclass(thing, base)
    }


@functools.cache
def parts() -> dict[str, tuple[Any, ...]]:
    """Every public class or function that can be part of a model, by its name on the command line.

    Packages have names in common: the first is meant where nothing is said of what is taken.
    """
    from freeenergy import bijections, distributions, estimators, inference, kernels, learning, models, nn

    found: dict[str, tuple[Any, ...]] = {}
    for package in (distributions, bijections, estimators, learning, inference, models, nn, kernels):
        for name in package.__all__:
            if not name.startswith("Abstract") and callable(getattr(package, name)):
                found[kebab(name)] = (*found.get(kebab(name), ()), getattr(package, name))
    return found


def _taken(kind: Any, parameter: str) -> tuple[type, ...]:
    """The classes that the parameter is annotated with."""
    try:
        hints = typing.get_type_hints(kind.__init__ if isinstance(kind, type) else kind)
    except NameError:
        return ()
    hint = hints.get(parameter)
    return tuple(part for part in typing.get_args(hint) or (hint,) if isinstance(part, type))


def _look_up(name: str, known: dict[str, Any], what: str) -> Any:
    table = {_canonical(key): thing for key, thing in known.items()}
    word = _FORMER_NAMES.get(_canonical(name), _canonical(name))
    if word in table:
        return table[word]
    close = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    hint = f"Did you mean {close[0]!r}?" if close else "`freeenergy models` lists what there is."
    raise SpecError(f"There is no {what} {name!r}. {hint}")


# ---------------------------------------------------------------------------------------------
# objects
# ---------------------------------------------------------------------------------------------


def model_called(name: str) -> type:
    """The estimator of that name, in any spelling."""
    return _look_up(name, estimators(), "model")


def build(text: str, X: np.ndarray, *, labels: bool = True) -> Any:
    """The estimator that `text` describes, for data like `X` (which fixes sizes that are left open).

    Whether `labels` are to be told, and not numbers, decides what the base rate is of.
    """
    call = parse(text)
    if labels and _canonical(call.name) == _canonical(BASE_RATE) and not call.arguments:
        from sklearn.dummy import DummyClassifier

        return DummyClassifier(strategy="prior")
    kind = model_called(call.name)
    return _construct(kind, call, X, {})


def _construct(kind: Any, call: Call, X: np.ndarray, around: dict[str, Any]) -> Any:
    """`kind(…)` with the arguments of `call`; `around` are the arguments that it is one of."""
    given = _bind(kind, call, X)
    fields = inspect.signature(kind).parameters
    required = [
        name
        for name, field in fields.items()
        if field.default is field.empty and field.kind in (field.POSITIONAL_OR_KEYWORD, field.KEYWORD_ONLY)
    ]
    missing = [name for name in required if name not in given]
    if _has_prototype(kind):
        # the sizes and arrays of a member of a family come from the data
        start = kind.prototype(X)
        return dataclasses.replace(start, **{n: _like(getattr(start, n), v) for n, v in given.items()})
    if "family" in missing and "family" in around:
        given["family"] = _member(around["family"], X)
        missing.remove("family")
    if missing:
        raise SpecError(f"{kind.__name__} needs {' and '.join(map(repr, missing))}.")
    if "family" in fields and "family" in required:
        # a prior: its numbers are one for each number of the family
        given["family"] = _member(given["family"], X)
        shape = _first_array(given["family"]).shape
        given = {n: np.full(shape, float(v)) if _is_number(v) else v for n, v in given.items()}
        given = {n: _as_jax(v) for n, v in given.items()}
    if "member" in given:
        given["member"] = _member(given["member"], X)
    try:
        return kind(**given)
    except TypeError as error:
        raise SpecError(f"{kind.__name__} cannot be made so: {error}.") from None


def _bind(kind: Any, call: Call, X: np.ndarray) -> dict[str, Any]:
    """The arguments by name, each built in sight of those before it."""
    fields = list(inspect.signature(kind).parameters)
    given: dict[str, Any] = {}
    for place, (name, value) in enumerate(call.arguments or ()):
        if name is None:
            if place >= len(fields):
                raise SpecError(f"{kind.__name__} takes {len(fields)} values. Got more instead.")
            name = fields[place]
        key = next((field for field in fields if _canonical(field) == _canonical(name)), None)
        if key is None:
            close = difflib.get_close_matches(name, fields, n=1, cutoff=0.5)
            hint = f"Did you mean {close[0]!r}?" if close else f"It has {', '.join(fields) or 'none'}."
            raise SpecError(f"{kind.__name__} has no parameter {name!r}. {hint}")
        if key in given:
            raise SpecError(f"The parameter {key!r} of {kind.__name__} is given twice.")
        given[key] = _value(value, X, given, _taken(kind, key))
    return given


def _value(value: Any, X: np.ndarray, around: dict[str, Any], taken: tuple[type, ...] = ()) -> Any:
    """The object of these words; of several of its name one of a class that is `taken`."""
    if isinstance(value, list):
        return tuple(_value(part, X, around) for part in value)
    if isinstance(value, Text):
        known = {_canonical(name) for name in parts()}
        named = _canonical(value.text) in known
        return _value(Call(value.text, None), X, around, taken) if named else value.text
    if isinstance(value, Sum):
        return _added(value, X, around, taken)
    if not isinstance(value, Call):
        if isinstance(value, int) and abs(value) >= 2**63:
            raise SpecError(
                f"The number {str(value)[:30]}… of the model is too large: it needs 64 bits or more."
            )
        return value
    if value.arguments is None and value.name.lower() in _CONSTANTS:
        return _CONSTANTS[value.name.lower()]
    meant = _look_up(value.name, parts(), "name")
    thing = next((one for one in meant if isinstance(one, type) and issubclass(one, taken)), meant[0])
    if value.arguments is not None:
        return _construct(thing, value, X, around)
    # without parentheses: an object that is made without arguments, else the class or function itself
    if isinstance(thing, type) and not _needs_arguments(thing, around):
        return _construct(thing, Call(value.name, ()), X, around)
    return thing


def _added(value: Sum, X: np.ndarray, around: dict[str, Any], taken: tuple[type, ...]) -> Any:
    total, *rest = (_value(term, X, around, taken) for term in value.terms)
    for term in rest:
        try:
            total = total + term
        except TypeError:
            raise SpecError(f"{total} and {term} cannot be added.") from None
    return total


def _needs_arguments(kind: type, around: dict[str, Any]) -> bool:
    fields = inspect.signature(kind).parameters.items()
    open_ = {name for name, field in fields if field.default is field.empty}
    return bool(open_ - ({"family"} & set(around)))


def _has_prototype(kind: Any) -> bool:
    from freeenergy.distributions import AbstractShaped

    return isinstance(kind, type) and issubclass(kind, AbstractShaped)


def _member(family: Any, X: np.ndarray) -> Any:
    return family.prototype(X) if _has_prototype(family) else family


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _like(old: Any, new: Any) -> Any:
    """A number in the shape of the array that it replaces."""
    if hasattr(old, "shape") and _is_number(new):
        return _as_jax(np.full(old.shape, float(new)))
    return new


def _as_jax(value: Any) -> Any:
    import jax.numpy as jnp

    return jnp.asarray(value) if isinstance(value, np.ndarray) else value


def _first_array(family: Any) -> Any:
    import jax

    return jax.tree_util.tree_leaves(family)[0]


# ---------------------------------------------------------------------------------------------
# when no model is named
# ---------------------------------------------------------------------------------------------


def defaults(
    X: np.ndarray, *, labelled: bool, mass: bool = True, mixed: bool = False, labels: bool = False
) -> list[str]:
    """Models that suit the values and the size of `X` (rows and columns, without constant columns).

    Without `mass` whole numbers get models of densities, too.  A `mixed` table has columns of different
    kinds, and `labels` if some of them are codes, of which Gaussian classes have no model.
    """
    if labelled:
        found = [BASE_RATE, "naive-bayes:family=by-column" if mixed else "naive-bayes"]
        return [*found, *([] if labels else ["discriminant-analysis"]), *_SOFTMAX]
    n, columns = X.shape
    if mixed:
        return _mixed_defaults(n, columns, labels)
    seen = X[~np.isnan(X)]
    whole = mass and bool((np.rint(seen) == seen).all() and (seen >= 0).all())
    top = int(seen.max()) if whole and len(seen) else 0
    few = int(np.clip(n // 50, 1, 10))
    many = int(np.clip(n // 30, 2, 60))
    latent = int(np.clip(columns // 4, 1, 16))
    codes = f"latent_dim={latent},width={128 if columns < 32 else 256}"
    if whole and top <= 1:
        return [
            "mixture:family=bernoulli",
            f"mixture:n_components={few},family=bernoulli,component_prior=beta-prior(alpha=1.1,beta=1.1)",
            f"mixture:n_components={many},family=bernoulli,component_prior=beta-prior(alpha=1.1,beta=1.1)",
            f"rbm:n_components={8 * latent}",
            f"vae:{codes},emission=bernoulli",
        ]
    found = [
        "gaussian-density",
        f"gaussian-mixture:n_components={few}" + (",covariance=tied(full)" if columns > 20 else ""),
        f"gaussian-mixture:n_components={many},covariance=diagonal",
    ]
    if columns > 1:
        found += [f"factor-analysis:n_components={latent}", f"ppca:n_components={latent}"]
    found += [
        f"vae:{codes},batch_size=128,max_iter=300",
        "normalizing-flow:layers=4,width=128,depth=1,max_iter=40",
    ]
    if columns > 1:
        found.append("autoregressive")
    if columns > 20 and n in _FOR_DIFFUSION:
        network = "network=residual-denoiser(width=256,depth=2)"
        found.append(f"diffusion-model:{network},probes=2,steps=12,max_iter=150")
    if whole and top <= 100:
        prior = "component_prior=beta-prior(alpha=1.1,beta=1.1)"
        found.append(f"mixture:n_components={many},family=binomial(trials={top}),{prior}")
    elif whole:
        prior = "component_prior=gamma-prior(shape=1.1,rate=0.1)"
        found.append(f"mixture:n_components={many},family=poisson,{prior}")
    return found


# rows of images and the like of which a diffusion model learns something, and not for long
_FOR_DIFFUSION = range(1000, 20_000)
# numbers of fewer values than this are taken for labels, if they are whole
_FEW = 20
# rows up to which a Gaussian process is fitted without being asked for
_MOST_OF_PROCESS = 500
# models of numbers given rows, those of counts first
_OF_COUNTS = (
    "generalised-linear-model:family=poisson",
    "generalised-linear-model:family=negative-binomial",
)
_OF_NUMBERS = ("linear-regression", "ridge", "sparse-regression")


def tells_numbers(y: np.ndarray | None) -> bool:
    """Whether what is to be told are numbers, and no labels: with fractions, or of many values.

    >>> tells_numbers(np.arange(50)), tells_numbers(np.arange(50) % 3), tells_numbers(np.array(["a", "b"]))
    (True, False, False)
    """
    if y is None or y.dtype.kind not in "iuf":
        return False
    return bool((np.rint(y) != y).any()) or len(np.unique(y)) > _FEW


def number_defaults(y: np.ndarray) -> list[str]:
    """Models of numbers such as `y` given rows, of those that there are."""
    counts = bool((np.rint(y) == y).all() and (y >= 0).all())
    words = [BASE_RATE, *_OF_NUMBERS, *(_OF_COUNTS if counts else ())]
    if len(y) <= _MOST_OF_PROCESS:
        words.append("gaussian-process")
    return [text for text in words if text.partition(":")[0] in estimators()]


# rows of a mixed table that each speak for their neighbourhood: to look at all of them takes n² kernels
_MOST_KERNELS = 5000
# rows of a mixed table from which on networks and mixtures of more components are tried
_MANY_ROWS = 1000
# how many steps of a unit of time make a season
_SEASONS = {"hour": 24, "day": 7, "weekday": 5, "month": 12, "quarter": 4}


def series_defaults(X: np.ndarray, frequency: str | None, inputs: int = 0) -> list[str]:
    """Models of series: of independent steps, of steps that follow others, with a season, with states."""
    beside = f"+regressors({inputs})" if inputs else ""
    found = ["gaussian-density", "autoregression:1", f"structural-time-series:level(){beside}"]
    season = _SEASONS.get(frequency or "", 0)
    if season and len(X) >= 4 * season:
        found.append(f"structural-time-series:level()+seasonal({season}){beside}")
    states = "hmm:2,family=regression-emissions()" if inputs else "hmm:2"
    return [*found, f"structural-time-series:trend(){beside}", states]


_SOFTMAX = ("softmax-regression:C=0.01", "softmax-regression")


def _mixed_defaults(n: int, columns: int, labels: bool) -> list[str]:
    """Models of columns of any kind, and of continuous ones, which take codes with noise.

    Of few rows one number of components, which the Bayesian mixture lowers where it is too large, one
    factor and no networks; and no models of codes of labels, whose order means nothing.
    """
    few, many = int(np.clip(n // 100, 2, 10)), int(np.clip(n // 30, 4, 60))
    latent, several = int(np.clip(columns // 4, 1, 16)), n >= _MANY_ROWS
    found = ["mixture:family=by-column", f"mixture:n_components={few},family=by-column"]
    if several:
        found.append(f"mixture:n_components={many},family=by-column")
    found.append("bayesian-mixture:n_components=10,family=by-column")
    if columns > 1:
        # integrals over two factors take ten times those over one
        factors = min(latent, 2) if several else 1
        found += ["gaussian-copula", f"mixed-factor-analysis:n_components={factors}"]
    if n <= _MOST_KERNELS:
        found.append("kernel-density")
    if several or not labels:
        found += ["gaussian-density", f"gaussian-mixture:n_components={few},covariance=diagonal"]
    if several:
        codes = f"latent_dim={latent},width={128 if columns < 32 else 256}"
        found += [
            f"vae:{codes},emission=by-column,max_iter=200",
            "normalizing-flow:layers=4,width=128,depth=1,max_iter=40",
        ]
    return found
