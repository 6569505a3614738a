"""Factor analysis of tables with columns of different kinds."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from sklearn.utils.validation import check_is_fitted

from ..._core import AbstractAlgorithm, Data, Evidence, Fit, Kind, check_size, on_device, parameter_count
from ...distributions import (
    AbstractLink,
    Bernoulli,
    ByColumn,
    Categorical,
    CountTable,
    Diagonal,
    Gaussian,
    Given,
    Parts,
    Poisson,
    Product,
    Tilted,
    usual_link,
)
from ...learning import LBFGS, MAP, Batch
from ...models import MixedFactors
from ...shell import (
    Column,
    Rows,
    TransformsRows,
    check_int,
)
from ...shell._answers import answers, evidence_of_rows
from ...shell._schema import kinds_of
from ...shell._summary import Along
from .._by_column import AnyColumns, member_by_column

# rows whose integrals are had together
_ROWS_AT_ONCE = 256
# the least noise of a column of numbers, as a share of its variance
_LEAST_NOISE = 1e-6
# standard deviations of the prior of loadings and biases of columns that are no numbers
_LOADING, _BIAS = 3.0, 10.0
# the slope of a logistic curve in units of that of a normal one
_LOGISTIC = 1.7


def _loss(model: MixedFactors, batch: Batch, key: Array) -> Array:
    """−log p(x), and a barrier that keeps noise from vanishing, which no likelihood forbids."""

    def nats(x: Array) -> Array:
        return model.log_prob_by_quadrature(x, coarse=True)

    if len(batch.x) <= _ROWS_AT_ONCE:
        found = jax.vmap(nats)(batch.x)  # one block, of which nothing need be forgotten and had again
    else:
        found = jax.lax.map(jax.checkpoint(nats), batch.x, batch_size=_ROWS_AT_ONCE)
    noise = _noise(model.emission.member)
    return batch.mean(-found) + 0.5 * _LEAST_NOISE * jnp.sum(1 / noise)


def _noise(member: Product) -> Any:
    """The variance of each column of numbers given the factors."""
    first = member.parts[0]
    return first.covariance.variances() if isinstance(first, Gaussian) else jnp.zeros(0)


def _log_prior(model: MixedFactors) -> Array:
    """A wide normal law of what labels and counts have, so that no label becomes impossible."""
    numbers = _noise(model.emission.member).shape[0]
    loading, bias = model.loading[numbers:] / _LOADING, model.bias[numbers:] / _BIAS
    return -0.5 * (jnp.sum(loading**2) + jnp.sum(bias**2))


class MixedFactorAnalysis(TransformsRows, AnyColumns):
    """Few normal factors behind columns of any kind:  z ~ N(0, I), x_j | z of the family of its kind.

    Numbers and dates are Gaussian with noise of their own, x_j = w_j·z + b_j + ε_j; counts are Poisson with
    log λ_j = w_j·z + b_j; where a Poisson with a log-normal rate does not describe a column of counts, it
    has a table p of its own, tilted by the factors, p(x_j) exp((w_j·z + b_j) s(x_j)) / Z (see
    `distributions.Tilted`).  Binary columns have log-odds w_j·z + b_j, and categories, with an order or
    without, a softmax of w_jc·z + b_jc over their labels.  Columns are independent given z.  With numbers
    alone it is `FactorAnalysis`, with binary columns alone the item-response model with two parameters.

    The likelihood is integrated over z by adaptive quadrature and maximised by L-BFGS, with fewer points
    than `evidence` takes; loadings and biases of labels and counts have a wide normal prior.  With one or
    two factors `evidence` is exact but for the quadrature (an error of log p below 1e-6 for loadings of
    labels up to two, below 1e-4 up to four); with more the fit takes fixed draws in place of points, and
    `evidence` is a lower bound by importance samples.

    Args:
        n_components: how many factors.
        importance_samples: draws for the evidence of a row with more than two factors.
        max_iter, tol: the most iterations, and the largest entry of the gradient that counts as zero.
        learner: replaces L-BFGS.
        random_state, verbose, checkpoint: as everywhere; nothing in the fit is random.

    Attributes:
        components_: Wᵀ, a row per factor.
        intercept_: b; of numbers in the units of the data.
        noise_variance_: of the noise of each column of numbers, by its name, in the units of the data.
        output_names_: what each column of `components_` is about: a column of numbers (in the units of the
            data) or counts, or the log-odds of a label against the last one.
        model_: the fitted model, of rescaled rows.
        history_, n_iter_, converged_, scaling_, …: as everywhere.

    >>> import polars as pl
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=200)
    >>> calls, slept = rng.poisson(np.exp(1 + 0.5 * z)), rng.logistic(size=200) < 2 * z
    >>> frame = pl.DataFrame({"mood": z + 0.5 * rng.normal(size=200), "calls": calls, "slept": slept})
    >>> model = MixedFactorAnalysis(1).fit(frame)
    >>> model.output_names_, model.transform(frame).shape
    (['mood', 'calls', 'slept'], (200, 1))
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        importance_samples: int = 500,
        max_iter: int = 1000,
        tol: float = 1e-5,
        learner: AbstractAlgorithm | None = None,
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: str | None = None,
    ) -> None:
        self.n_components = n_components
        self.importance_samples = importance_samples
        self.max_iter = max_iter
        self.tol = tol
        self.learner = learner
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_int(self, "n_components")
        check_int(self, "importance_samples", 2)

    @property
    def needs_kinds(self) -> bool:
        return True

    def _check_size(self, rows: int, columns: int) -> None:
        check_size(
            rows * (columns + self.n_components**2) + columns * self.n_components,
            f"MixedFactorAnalysis of {columns:,} columns with {self.n_components:,} factors",
            "Use fewer factors or columns.",
        )

    def _learn(self, rows: Rows, key: Array) -> Fit:
        member, outputs, crude = _marginals(member_by_column(ByColumn(), self, rows, None), rows)
        loading = _principal_loadings(crude, rows.weight, outputs, self.n_components)
        numbers = member.sizes[0] if isinstance(member.parts[0], Gaussian) else 0
        if numbers:
            noise = np.clip(1 - np.sum(loading[:numbers] ** 2, axis=1), 0.1, 1.0)
            normal = Gaussian(on_device(np.zeros(numbers)), Diagonal(on_device(noise)))
            member = member.with_parts((normal, *member.parts[1:]))
        start = MixedFactors(
            on_device(loading),
            on_device(np.concatenate([o[1] for o in outputs])),
            Given(member, Parts(tuple(map(_link, member.parts)))),
        )
        learner = self.learner
        if learner is None:
            objective = MAP(_loss, _log_prior, on_device(float(rows.weight.sum())))
            learner = LBFGS(objective, self.tol)
        return self._run(start, learner, Data.of(rows.x, rows.weight), rows, key)

    def _evidence(self, z: np.ndarray, seeds: np.ndarray) -> Evidence:
        if not self.model_.by_quadrature:
            return evidence_of_rows(self.model_, z, seeds, self._samples, self.seed_)
        nats = answers(self.model_, MixedFactors.log_prob_by_quadrature, z, block=_ROWS_AT_ONCE)
        # of what nothing is known there is nothing to integrate
        nats = np.where(np.isnan(z).all(axis=1), 0.0, nats)
        return Evidence(nats, np.zeros_like(nats), Kind.EXACT)

    @property
    def _samples(self) -> int:
        return self.importance_samples

    _shares_draws = True

    @property
    def _completion_samples(self) -> int:
        return self.importance_samples

    # points of many outputs are held for each row
    _codes_at_once = _ROWS_AT_ONCE

    def _count_parameters(self) -> int:
        k = self.n_components
        return parameter_count(self.model_) - k * (k - 1) // 2

    @property
    def components_(self) -> np.ndarray:
        """Wᵀ, a row per factor, those of numbers in the units of the data; known up to a rotation."""
        member = self.model_.emission.member
        columns = _columns_of_outputs(member)
        return (np.asarray(self.model_.loading) * self.scaling_.scale[columns][:, None]).T

    @property
    def output_names_(self) -> list[str]:
        """What each column of `components_` is about."""
        check_is_fitted(self, "model_")
        schema = kinds_of(self)
        assert schema is not None
        fields, names = schema.modelled, []
        for column in dict.fromkeys(_columns_of_outputs(self.model_.emission.member).tolist()):
            field = fields[column]
            labels = field.kind in (Column.CATEGORY, Column.ORDERED)
            several = [f"{field.name} = {label}" for label in field.categories[:-1]]
            names += several if labels and several else [str(field.name)]
        return names

    @property
    def intercept_(self) -> np.ndarray:
        """b, a number for each of `output_names_`: means in the units of the data, log λ, or log-odds."""
        columns = _columns_of_outputs(self.model_.emission.member)
        shift, scale = self.scaling_
        return np.asarray(self.model_.bias) * scale[columns] + shift[columns]

    @property
    def noise_variance_(self) -> dict[str, float]:
        """The variance of ε of each column of numbers, in its squared units, by the name of the column."""
        member = self.model_.emission.member
        if not isinstance(member.parts[0], Gaussian):
            return {}
        columns = np.asarray(member.order[: member.sizes[0]])
        variances = member.parts[0].covariance.variances() * self.scaling_.scale[columns] ** 2
        names = self.column_names
        return {names[column]: float(v) for column, v in zip(columns, np.asarray(variances), strict=True)}

    def _listed(self) -> dict[str, np.ndarray]:
        found = {"components": self.components_, "intercept": self.intercept_}
        noise = np.array([*self.noise_variance_.values()])
        return found | {"noise_variance": noise} if len(noise) else found

    def _along(self, name: str, shape: tuple[int, ...]) -> Along:
        if name == "noise_variance":
            return ([*self.noise_variance_],)
        return (self.output_names_,) if len(shape) == 1 else (None, self.output_names_)

    @property
    def _n_features_out(self) -> int:
        return self.n_components


def _link(part: Any) -> AbstractLink:
    return Tilted() if isinstance(part, CountTable) else usual_link(part)


def _columns_of_outputs(member: Product) -> np.ndarray:
    """The column that each output is about."""
    repeats = [
        part.probabilities.shape[-1] - 1 if isinstance(part, Categorical) else 1
        for part, size in zip(member.parts, member.sizes, strict=True)
        for _ in range(size)
    ]
    return np.repeat(member.order, repeats)


def _marginals(
    member: Product, rows: Rows
) -> tuple[Product, list[tuple[np.ndarray, np.ndarray]], np.ndarray]:
    """The member with its marginals; for each part columns of `crude` that an output adds up, and biases.

    `crude` has numbers of mean zero and variance one that stand for the columns.
    """
    blocks = np.split(rows.x[:, member.order], np.cumsum(member.sizes)[:-1], axis=1)
    outputs: list[tuple[np.ndarray, np.ndarray]] = []
    crude: list[np.ndarray] = []
    for part, block in zip(member.parts, blocks, strict=True):
        for x in block.T:
            seen = ~np.isnan(x)
            weight = np.where(seen, rows.weight, 0.0)
            total, filled = weight.sum(), np.where(seen, x, 0.0)
            at = sum(c.shape[1] for c in crude)
            match part:
                case Gaussian():
                    crude.append(filled[:, None])
                    outputs.append((np.array([[at, 1.0, -1, 0.0]]), np.zeros(1)))
                case Poisson():
                    mean = (weight @ filled + 0.5) / (total + 0.5)
                    logs = np.where(seen, np.log(filled + 0.5), 0.0)
                    crude.append(_standard(logs, seen, weight)[:, None])
                    spread = np.sqrt(weight @ np.where(seen, logs - weight @ logs / total, 0) ** 2 / total)
                    outputs.append((np.array([[at, min(spread, 1.0), -1, 0.0]]), np.array([np.log(mean)])))
                case CountTable():
                    crude.append(_standard(filled, seen, weight)[:, None])
                    outputs.append((np.array([[at, 1.0, -1, 0.0]]), np.zeros(1)))
                case Bernoulli():
                    p = (weight @ filled + 0.5) / (total + 1)
                    crude.append(_standard(filled, seen, weight)[:, None])
                    outputs.append((np.array([[at, _LOGISTIC, -1, 0.0]]), np.array([np.log(p / (1 - p))])))
                case Categorical():
                    labels = part.probabilities.shape[-1]
                    hot = (filled[:, None] == np.arange(labels)[None]) & seen[:, None]
                    p = (weight @ hot + 1 / labels) / (total + 1)
                    crude.append(
                        np.column_stack([_standard(column.astype(float), seen, weight) for column in hot.T])
                    )
                    places = np.array(
                        [
                            [at + c, _LOGISTIC / 2, at + labels - 1, -_LOGISTIC / 2]
                            for c in range(labels - 1)
                        ]
                    )
                    outputs.append((places, np.log(p[:-1] / p[-1])))
                case _:
                    raise TypeError(f"{type(part).__name__} is no family of a column.")
    return member, outputs, np.concatenate(crude, axis=1)


def _standard(x: np.ndarray, seen: np.ndarray, weight: np.ndarray) -> np.ndarray:
    total = max(weight.sum(), np.finfo(float).tiny)
    gap = np.where(seen, x - weight @ x / total, 0.0)
    spread = np.sqrt(weight @ gap**2 / total)
    return gap / (spread if spread > 0 else 1.0)


def _principal_loadings(
    crude: np.ndarray, weight: np.ndarray, outputs: list[tuple[np.ndarray, np.ndarray]], k: int
) -> np.ndarray:
    """Loadings of the outputs from the principal components of `crude`."""
    scatter = (crude * weight[:, None]).T @ crude / weight.sum()
    values, vectors = np.linalg.eigh(scatter)
    order = np.argsort(values)[::-1][:k]
    vectors = vectors * np.sign(vectors[np.argmax(np.abs(vectors), axis=0), np.arange(len(vectors))])[None]
    rest = np.sum(np.delete(values, order)) / max(len(values) - len(order), 1)
    found = vectors[:, order] * np.sqrt(np.maximum(values[order] - rest, 0.0))[None]
    # a factor without any loading would stay so
    spare = 0.1 * np.cos(np.outer(np.arange(len(values)), 1 + np.arange(k)))
    found = np.concatenate([found, np.zeros((len(values), k - len(order)))], axis=1)
    found = np.where(np.abs(found).max(axis=0, keepdims=True) > 1e-6, found, spare)
    rows = np.concatenate([places for places, _ in outputs])
    one, other = rows[:, 0].astype(int), rows[:, 2].astype(int)
    return rows[:, 1:2] * found[one] + rows[:, 3:4] * found[other]
