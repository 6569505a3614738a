"""What there is to read of a fitted estimator: likelihood, criteria, parameters with their errors."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jax import Array
from scipy import stats

from .._core import (
    Evidence,
    Kind,
    aligned,
    in_notebook,
    learnable,
    notes_in_notebook,
    on_device,
    parameter_count,
    table_in_notebook,
    unconstrain,
    visible,
)
from ..bijections import MaskedMLP
from ..distributions import Product
from ..models import AbstractRescalable
from ._information import Terms, errors_of
from ._rows import Scaling
from ._schema import kinds_of, schema_of
from ._support import Column

# of more parameters than this there is no curvature, and no list
_MOST_CURVED = 400
_MOST_LISTED = 2_000
# lines of a list that are printed
_MOST_PRINTED = 60
# cells of a table that are listed after everything else
_LONG_TABLE = 20
# fields whose arrays have a column of the data along the last axis, or the last two
_OF_COLUMNS = {"family", "components", "members"}
# words of a path that say nothing to a reader
_SILENT = {"value", "family"}


def expression(model: Any) -> str:
    """The expression that makes the estimator, on one line."""
    text = " ".join(repr(model).split())
    # the numbers of an array that nobody chose say nothing by their shape
    text = re.sub(r"(?:, )?\w+=[fi]\d+\[[^\]]*\]", "", text)
    text = re.sub(r"([(\[]),? ", r"\1", re.sub(r",? ([)\]])", r"\1", text))
    text = re.sub(r"<class '(?:\w+\.)*(\w+)'>", r"\1", text)
    return re.sub(r"<function (?:\w+\.)*(\w+)[^>]*>", r"\1", text)


def named_parameters(model: Any) -> dict[str, Array]:
    """The learnable arrays of a model by the names of their fields."""
    found = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(eqx.filter(model, learnable(model)))[0]:
        words = [
            str(getattr(part, "name", getattr(part, "idx", getattr(part, "key", part)))) for part in path
        ]
        kept = [word for word in words if word not in _SILENT]
        found[".".join(kept or words)] = leaf
    return found


def _of_networks(model: Any) -> set[str]:
    """The names of the learnable arrays that are weights of networks."""
    chosen = eqx.filter(model, learnable(model))
    kept = jax.tree.map(lambda node: None if _is_network(node) else node, chosen, is_leaf=_is_network)
    return set(named_parameters(chosen)) - set(named_parameters(kept))


def _is_network(node: Any) -> bool:
    module = type(node).__module__
    return module.startswith(("equinox.nn", "freeenergy.nn")) or isinstance(node, MaskedMLP)


def named_in_units(model: Any, *units: Array) -> dict[str, Array]:
    """The same, of the model in the units of the data."""
    return named_parameters(model.in_units(*units))


def reported(
    owner: Any, in_units: Callable[[Any], Any]
) -> tuple[Callable[..., dict[str, Array]], tuple[Array, ...]]:
    """What is reported of an estimator of rescaled events: in units of the data, where the model has them.

    `in_units` turns the model into one of these units, of its own kind if there is such a one.
    """
    model = owner.model_
    if not _is_rescaled(owner) or not isinstance(model, AbstractRescalable):
        return named_parameters, ()
    # only the kind is asked for: nothing is computed
    if type(eqx.filter_eval_shape(in_units, model)) is not type(model):
        return named_parameters, ()
    return named_in_units, tuple(on_device(unit) for scaling in _scalings(owner) for unit in scaling)


def _scalings(owner: Any) -> list[Scaling]:
    """Those that the model works on: of the columns, and of the inputs."""
    found = (vars(owner).get(name) for name in ("scaling_", "input_scaling_"))
    return [scaling for scaling in found if scaling is not None]


def _is_rescaled(owner: Any) -> bool:
    return not all(scaling.is_identity for scaling in _scalings(owner))


@eqx.filter_jit
def _ask(report: Callable[..., dict[str, Array]], model: Any, args: tuple[Array, ...]) -> dict[str, Array]:
    return report(model, *args)


def _answers(
    report: Callable[..., dict[str, Array]], model: Any, args: tuple[Array, ...]
) -> dict[str, Any]:
    """What is reported, in the order of the report, where trees of JAX are in that of the names."""
    names: list[str] = []
    eqx.filter_eval_shape(lambda model: names.extend(report(model, *args)), model)
    told = _ask(report, model, args)
    return {name: np.asarray(told[name]) for name in names}


_free = eqx.filter_jit(unconstrain)


def akaike(parameters: int, nats: float) -> float:
    """2k − 2 log p."""
    return 2 * parameters - 2 * nats


def schwarz(parameters: int, nats: float, size: float) -> float:
    """k log n − 2 log p."""
    return parameters * math.log(size) - 2 * nats


class Coefficients(NamedTuple):
    """The coefficients of a regression, as its summary lists them.

    Attributes:
        names: of the coefficients, one for each number.
        values: in the units of the data.
        stderr: their standard errors, NaN where there is none; None if they are not known.
        dof: degrees of freedom of value / error, which is Student's t, or the normal z where infinite.
        facts: more numbers of the fit by their names, such as R².
        notes: what a reader should know, in sentences.

    >>> line = Coefficients(["slope"], np.array([2.0]), np.array([0.5]), 8.0, {"R²": 0.9}, [])
    >>> round(2 * float(stats.t(line.dof).sf(2.0 / 0.5)), 4)
    0.0039
    """

    names: list[str]
    values: np.ndarray
    stderr: np.ndarray | None
    dof: float | None
    facts: dict[str, float]
    notes: list[str]


@dataclasses.dataclass(frozen=True, repr=False)
class Summary:
    """What a fit found; print it.

    Attributes:
        model: the estimator as an expression.
        size: rows (documents) or time steps of the fit, counted with their weights; None if not known.
        unit: what `size` counts.
        log_likelihood: log p of all of them in nats, in the units of the data; None if not known.
        kind: in which sense it is known.
        n_parameters: numbers that the fit chose freely.
        n_iter, converged: of the fit.
        names: of the parameters, one for each number.
        values: the parameters, in the units of the data.
        stderr: their standard errors, NaN where there is none; None if none were asked for.
        notes: what a reader should know.
        robust: whether the standard errors are those of the sandwich.
        maximised: whether the parameters are those of the largest exact likelihood, as AIC and BIC need it.
        dof: of the coefficients of a regression, the degrees of freedom of value / error: Student's t, or
            the normal z where they are infinite; None where no such test is made.
        facts: more numbers of the fit by their names, such as R².

    >>> import freeenergy as fe
    >>> X = np.random.default_rng(0).normal(size=(100, 1))
    >>> found = fe.GaussianDensity().fit(X).summary(X)
    >>> found.n_parameters, found.names
    (2, ['mean[0]', 'covariance[0, 0]'])
    >>> bool(np.isclose(found.stderr[0], X.std() / 10))
    True
    """

    model: str
    size: float | None
    unit: str
    log_likelihood: float | None
    kind: Kind | None
    n_parameters: int
    n_iter: int
    converged: bool
    names: list[str]
    values: np.ndarray
    stderr: np.ndarray | None
    notes: list[str]
    robust: bool = False
    maximised: bool = True
    dof: float | None = None
    facts: dict[str, float] = dataclasses.field(default_factory=dict)

    @property
    def statistic(self) -> np.ndarray | None:
        """value / error of each coefficient, t or z; None where no such test is made."""
        if self.dof is None or self.stderr is None:
            return None
        error = np.where(self.stderr > 0, self.stderr, np.nan)
        return self.values / error

    @property
    def p_values(self) -> np.ndarray | None:
        """How probable a statistic as large is where the coefficient is zero; None where there is none."""
        found = self.statistic
        return None if found is None else 2 * self._law.sf(np.abs(found))

    @property
    def _law(self) -> Any:
        """That of value / error about the truth."""
        return stats.norm() if self.dof is None or np.isinf(self.dof) else stats.t(self.dof)

    @property
    def aic(self) -> float | None:
        """2k − 2 log p (Akaike), where log p is exact and was maximised; else None."""
        if self.log_likelihood is None or not self.maximised:
            return None
        return akaike(self.n_parameters, self.log_likelihood)

    @property
    def bic(self) -> float | None:
        """k log n − 2 log p (Schwarz), where log p is exact and was maximised; else None."""
        if self.log_likelihood is None or not self.maximised or not self.size:
            return None
        return schwarz(self.n_parameters, self.log_likelihood, self.size)

    def interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Both ends of the interval of each parameter, value ∓ z · error; NaN where there is none.

        With few degrees of freedom `dof`, z is the quantile of Student's t.
        """
        if not 0 < level < 1:
            raise ValueError(
                f"The 'level' of Summary.interval must be between 0 and 1. Got {level!r} instead."
            )
        error = np.full(len(self.values), np.nan) if self.stderr is None else self.stderr
        width = float(self._law.ppf((1 + level) / 2)) * np.where(error > 0, error, np.nan)
        return self.values - width, self.values + width

    def to_frame(self) -> Any:
        """The parameters as a Polars frame: parameter, value, stderr, lower, upper (95 %).

        Coefficients of a regression have `statistic` and `p` beside.
        """
        import polars as pl

        lower, upper = self.interval()
        error = np.full(len(self.values), np.nan) if self.stderr is None else self.stderr
        columns = {"value": self.values, "stderr": error, "lower": lower, "upper": upper}
        if self.statistic is not None:
            columns |= {"statistic": self.statistic, "p": self.p_values}
        frame = {"parameter": self.names, **{k: np.asarray(v, float) for k, v in columns.items()}}
        return pl.DataFrame(frame).with_columns(pl.col("value", *list(columns)[1:]).fill_nan(None))

    def _facts(self) -> list[tuple[str, str]]:
        facts = []
        if self.size is not None:
            facts.append((self.unit, f"{self.size:,.10g}"))
        if self.log_likelihood is not None:
            kind = "" if self.kind is None else f" ({self.kind.value})"
            facts.append(("log-likelihood", f"{self.log_likelihood:,.4f} nats{kind}"))
        facts.append(("free parameters", f"{self.n_parameters:,}"))
        for name, value in (("AIC", self.aic), ("BIC", self.bic)):
            if value is not None:
                facts.append((name, f"{value:,.4f}"))
        facts += [(name, f"{value:,.6g}") for name, value in self.facts.items()]
        facts.append(("iterations", f"{self.n_iter:,}"))
        facts.append(("converged", "yes" if self.converged else "no"))
        return facts

    def _lines(self) -> tuple[list[str], list[list[str]], int]:
        """Head and lines of the table of parameters, and how many are left out."""
        lower, upper = self.interval()
        head = ["parameter", "value"]
        error = self.stderr
        if error is not None:
            head += ["robust error" if self.robust else "std. error", "95 % from", "to"]
        statistic, p = self.statistic, self.p_values
        if statistic is not None:
            head += ["z" if np.isinf(self.dof or 0.0) else "t", "p"]
        lines = []
        for i, name in enumerate(self.names[:_MOST_PRINTED]):
            line = [visible(name), f"{self.values[i]:.5g}"]
            if error is not None:
                line += [_number(error[i]), _number(lower[i]), _number(upper[i])]
            if statistic is not None and p is not None:
                line += [_number(statistic[i], zero="0"), _number(p[i], zero="<1e-300")]
            lines.append(line)
        return head, lines, len(self.names) - len(lines)

    def _all_notes(self, left: int) -> list[str]:
        more = [f"{left:,} more parameters are in to_frame()."] if left else []
        return more + [visible(note) for note in self.notes]

    def __repr__(self) -> str:
        facts = self._facts()
        width = max(len(name) for name, _ in facts)
        out = [visible(self.model), *(f"  {name:<{width}}  {value}" for name, value in facts)]
        head, lines, left = self._lines()
        if lines:
            out += ["", *(f"  {line}" for line in aligned([head, *lines]))]
        notes = self._all_notes(left)
        return "\n".join([*out, *([""] if notes else []), *(f"  {note}" for note in notes)])

    def _repr_html_(self) -> str:
        """Two tables and the notes, for notebooks."""
        head, lines, left = self._lines()
        return in_notebook(
            table_in_notebook([], self._facts(), caption=self.model),
            table_in_notebook(head, lines) if lines else "",
            notes_in_notebook(self._all_notes(left)),
        )


def _number(value: float, *, zero: str = "held") -> str:
    return "" if math.isnan(value) else zero if value == 0 else f"{value:.4g}"


# what stands along each axis of an array: a name for each place, or None for numbers from zero
Along = tuple[Sequence[str] | None, ...]


def along_columns(columns: list[str], name: str, shape: tuple[int, ...]) -> Along:
    """The columns along the last axis of a parameter whose name says so, or the last two of a matrix."""
    words, none = name.split("."), (None,) * len(shape)
    of_columns = words[0] in _OF_COLUMNS or words[-1] in ("mean", "covariance", "lengthscale")
    of_columns |= words[-2:] == ["covariance", "variance"]
    # a volume is one of a member, and so is a variance that all columns have
    of_member = words[-1] == "size" or (words[1:] == ["covariance", "variance"] and len(shape) == 1)
    if not of_columns or of_member or not shape or shape[-1] != len(columns):
        return none
    matrix = words[-1].endswith("covariance") and len(shape) > 1
    return (*none[:-2], columns, columns) if matrix else (*none[:-1], columns)


def _entries(name: str, value: np.ndarray, along: Along) -> list[tuple[str, tuple[int, ...]]]:
    """Each number of a parameter with its name; of a symmetric matrix the lower half."""
    symmetric = (
        value.ndim > 1
        and ("covariance" in name or "correlation" in name)
        and value.shape[-1] == value.shape[-2]
        and np.allclose(value, value.swapaxes(-1, -2), rtol=1e-9, atol=0)
    )
    found = []
    for place in itertools.product(*(range(n) for n in value.shape)):
        if symmetric and (place[-1] > place[-2] or ("correlation" in name and place[-1] == place[-2])):
            continue
        words = [str(i) if names is None else names[i] for i, names in zip(place, along, strict=True)]
        found.append((f"{name}[{', '.join(words)}]" if words else name, place))
    return found


def _part_entries(
    name: str, value: np.ndarray, owner: Any, columns: list[str]
) -> list[tuple[str, tuple[int, ...]]]:
    """Each number of a part of a `Product` of columns by the column, and the label, that it is about.

    Nothing for other parameters.
    """
    part = re.fullmatch(r"(?:.*\.)?parts\.(\d+)\.(.*)", name)
    nodes = jax.tree.leaves(owner.model_, is_leaf=lambda node: isinstance(node, Product))
    products = [node for node in nodes if isinstance(node, Product)]
    if part is None or not products:
        return []
    # those of a prior are of the same columns
    number, product = int(part[1]), products[0]
    own = np.split(product.order, np.cumsum(product.sizes)[:-1])[number]
    # members of a stack, or of one for each state, then columns, then labels
    states, members = getattr(owner, "n_states", 0), getattr(owner, "n_components", 0)
    stack = (states, members) if states and members > 1 else (states or members,)
    axis = len(stack) if value.ndim > len(stack) and value.shape[: len(stack)] == stack else 0
    if value.ndim <= axis or value.shape[axis] != len(own):
        return []
    schema = schema_of(owner)
    labels: list[Sequence[Any]] = [
        () if schema is None else schema.modelled[column].categories for column in own
    ]
    found = []
    for place in itertools.product(*(range(n) for n in value.shape)):
        at, rest = place[axis], place[axis + 1 :]
        # a column of few labels has no more of them than it has
        if len(rest) == 1 and labels[at] and rest[0] >= len(labels[at]):
            continue
        words = [str(labels[at][i]) if labels[at] and len(rest) == 1 else str(i) for i in rest]
        if not rest and part[2].endswith("probability") and labels[at] and labels[at][-1] != 1:
            # of two labels that of the second; of truth values, and of 0 and 1, that goes without saying
            words = [str(labels[at][-1])]
        inside = ", ".join([*map(str, place[:axis]), columns[own[at]], *words])
        found.append((f"{part[2]}[{inside}]", place))
    return found


def criteria_of(owner: Any, X: Any) -> tuple[float, float] | None:
    """AIC and BIC of a fitted estimator; see `Shell.criteria`."""
    if not owner._maximises_likelihood:
        return None
    likelihood = owner._likelihood(None, {})
    if isinstance(likelihood, str):
        likelihood = owner._likelihood(X, {})
    if isinstance(likelihood, str) or likelihood[0].kind is not Kind.EXACT:
        return None
    evidence, size = likelihood
    size = vars(owner).get("fitted_size_") if size is None else size
    nats, count = float(evidence.nats.sum()), owner._count_parameters()
    return None if not size else (akaike(count, nats), schwarz(count, nats, size))


def summary_of(owner: Any, X: Any, robust: bool, given: dict[str, Any]) -> Summary:
    """The summary of a fitted estimator; see `Shell.summary`."""
    notes = []
    fitted = vars(owner)
    size, reason = fitted.get("fitted_size_"), fitted.get("stop_reason_", "")
    if not owner.converged_ and reason:
        notes.append(f"The fit {reason}.")
    if X is None and given:
        raise ValueError(
            f"{type(owner).__name__}.summary takes {', '.join(sorted(given))!r} only with the X of the fit."
        )
    unknown = given.keys() - inspect.signature(owner.fit).parameters.keys()
    if unknown:
        raise ValueError(
            f"{type(owner).__name__}.summary takes beside X what its fit takes. Got {min(unknown)!r}."
        )
    likelihood = owner._likelihood(X, given)
    if isinstance(likelihood, str):
        notes.append(likelihood)
        evidence = None
    else:
        evidence, size = likelihood if likelihood[1] is not None else (likelihood[0], size)
    total = None if evidence is None else float(evidence.nats.sum())
    kind = None if evidence is None else evidence.kind
    if total is not None and kind is not Kind.EXACT:
        notes.append("AIC and BIC need the exact log-likelihood, which this model does not know.")
    elif total is not None and not owner._maximises_likelihood:
        notes.append(
            "AIC and BIC need parameters of the largest likelihood, which this fit does not choose."
        )
    count = owner._count_parameters()
    table = parameters_of(owner, X, robust, given)
    return Summary(
        expression(owner),
        None if size is None else float(size),
        owner._size_unit,
        total,
        kind,
        count,
        int(owner.n_iter_),
        bool(owner.converged_),
        table.names,
        table.values,
        table.stderr,
        notes + table.notes + owner._remarks(),
        robust,
        kind is Kind.EXACT and owner._maximises_likelihood,
        table.dof,
        table.facts,
    )


def parameters_of(owner: Any, X: Any, robust: bool, given: dict[str, Any]) -> Coefficients:
    """What a summary lists of a fitted estimator."""
    table = owner._coefficient_table(X, robust, given)
    table = listed_parameters(owner, X, robust, given) if table is None else table
    schema = kinds_of(owner)
    if not table.names or schema is None:
        return table
    dated = [field for field in schema.modelled if field.kind is Column.DATE]
    return table._replace(
        notes=[f"Column {field.name!r} is in {field.looks}." for field in dated] + table.notes
    )


def listed_parameters(owner: Any, X: Any, robust: bool, given: dict[str, Any]) -> Coefficients:
    """Names, values and errors of the parameters, and what there is to say of them."""
    model, mask = owner.model_, owner._moving()
    numbers = parameter_count(model)
    if numbers > _MOST_LISTED:
        note = f"Its {numbers:,} parameters are too many to list: see model_."
        return Coefficients([], np.zeros(0), None, None, {}, [note])
    report, args = owner._reported()
    listed = owner._listed()
    found = listed or _answers(report, model, args)
    notes, errors = [], None
    woven = {name: value for name, value in found.items() if name in _of_networks(model)}
    if woven:
        found = {name: value for name, value in found.items() if name not in woven}
        notes.append(
            f"{sum(map(np.size, woven.values())):,} weights of networks are not listed: see model_."
        )
    if report is named_parameters and _is_rescaled(owner) and found and not listed:
        notes.append("Parameters are those of model_, which works on rescaled columns (scaling_).")
    if X is None:
        if found and owner._maximises_likelihood and owner._knows_evidence:
            notes.append("Standard errors need the rows of the fit: summary(X).")
    else:
        terms = owner._terms(X, given)
        if isinstance(terms, str):
            notes.append(terms)
        elif parameter_count(eqx.filter(model, mask)) > _MOST_CURVED:
            notes.append(f"There are no standard errors for more than {_MOST_CURVED} parameters.")
        elif found and not listed:
            mask, edge = _inside(model, mask)
            errors, remarks = errors_of(model, mask, terms, report, *args, robust=robust)
            notes += edge + remarks
            if any((error == 0).any() for error in errors.values()):
                notes.append("held: not fitted, or a probability at the edge of its range.")
    columns = owner.column_names
    names, values, own = [], [], []
    # long tables of counts come last
    for name, value in sorted(found.items(), key=_is_long_table):
        of_part = _part_entries(name, value, owner, columns)
        for label, place in of_part or _entries(name, value, owner._along(name, value.shape)):
            names.append(label)
            values.append(float(value[place]))
            own.append(math.nan if errors is None else float(errors[name][place]))
    stderr = None if errors is None else np.array(own, float)
    return Coefficients(names, np.array(values, float), stderr, None, {}, notes)


def _is_long_table(named: tuple[str, np.ndarray]) -> bool:
    return named[0].endswith("probabilities") and named[1].shape[-1] > _LONG_TABLE


def _inside(model: Any, mask: Any) -> tuple[Any, list[str]]:
    """`mask` without the arrays that are at the edge of their range, where no free real is; and which."""
    free = _free(model)
    inside = jax.tree.map(lambda on, u: bool(on) and bool(np.isfinite(u).all()), mask, free)
    left = eqx.filter(model, jax.tree.map(lambda on, kept: bool(on) and not kept, mask, inside))
    names = ", ".join(named_parameters(left))
    return inside, [f"At the edge of its range, and held there: {names}."] if names else []


def weighted(evidence: Evidence, weight: np.ndarray | None) -> Evidence:
    """Evidence of which each sample counts `weight` times."""
    if weight is None:
        return evidence
    # what cannot occur and counts nothing is nothing
    nats = np.where(weight > 0, evidence.nats, 0.0) * weight
    return dataclasses.replace(evidence, nats=nats, stderr=evidence.stderr * weight, growth=None)


__all__ = [
    "Coefficients",
    "Summary",
    "Terms",
    "expression",
    "named_parameters",
    "reported",
    "summary_of",
    "weighted",
]
