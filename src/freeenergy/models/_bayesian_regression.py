"""Regressions whose parameters are unknown: energies of coefficients, spreads and group effects."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from .._core import LOG_2PI, Positive, Reals, on_device, parameter_space
from ..distributions import AbstractLink, Given
from ..inference import AbstractPosterior


def _normal(x: Array, scale: Any) -> Float[Array, ""]:
    """−log N(x; 0, scale²), summed."""
    return jnp.sum(0.5 * (x / scale) ** 2 + jnp.log(scale) + 0.5 * LOG_2PI)


def _half_normal(x: Array, scale: Any) -> Float[Array, ""]:
    """−log of the law of |x| for normal x of this scale, summed."""
    return jnp.sum(0.5 * (x / scale) ** 2 + jnp.log(scale) + 0.5 * (LOG_2PI - np.log(4.0)))


class BayesianRegression(eqx.Module):
    """What a generalised linear model does not know, as an energy: e(z) = −log p(y, z | X).

        y_i ~ p(y | b + W x_i + u_{g(i)}),   b ~ N(0, β²),   w ~ N(0, ω²),   u_g = τ η_g,   η_g ~ N(0, 1)

    It is called with an unknown in `space`, a dict, so that any method infers it: `infer(energy,
    energy.space, method, key=key)`.  With groups it is a hierarchical model (varying intercepts, random
    effects, partial pooling), written in the coordinates η in which it is no funnel (non-centred).  Linear,
    logistic, Poisson and other regressions differ in `answer` alone.

    Attributes:
        x: a row per sample, complete; best with columns of standard deviation about one.
        y: the answers, (rows, outputs); NaN is not observed.
        answer: p(y | output), a `freeenergy.distributions.Given`.
        group: the number of the group of each row, or None.
        groups: how many groups there are.
        intercept: β, the deviation of the intercept before any data.
        slope: ω, that of each slope.
        rest: the mean of exponential laws of what else the answer has, such as a variance.
        spread: the scale of the half-normal law of τ.

    >>> from freeenergy.distributions import Bernoulli
    >>> from freeenergy.inference import Laplace, infer
    >>> x = np.random.default_rng(0).normal(size=(50, 1))
    >>> logistic = BayesianRegression.of(x, (x[:, 0] > 0.3).astype(float), Bernoulli(jnp.full(1, 0.5)))
    >>> found = infer(logistic, logistic.space, Laplace(), key=jax.random.key(0))
    >>> sorted(found.mean()), bool(found.mean()["slopes"][0, 0] > 1)
    (['intercept', 'slopes'], True)
    """

    x: Float[Array, "rows columns"]
    y: Float[Array, "rows outputs"]
    answer: Given
    group: Int[Array, " rows"] | None = None
    groups: int = eqx.field(static=True, default=0)
    intercept: float | Array = 10.0
    slope: float | Array = 2.5
    rest: float | Array = 1.0
    spread: float | Array = 1.0

    @staticmethod
    def of(
        x: Any,
        y: Any,
        family: Any,
        link: AbstractLink | None = None,
        *,
        group: Any = None,
        intercept: float = 10.0,
        slope: float = 2.5,
        rest: float = 1.0,
        spread: float = 1.0,
    ) -> BayesianRegression:
        """The energy of rows and answers as arrays.

        Args:
            x: (rows, columns), complete.
            y: (rows,) or (rows, outputs).
            family: a member of the family of answers, such as `Poisson(jnp.ones(1))`.
            link: from the output to the parameters of the answer; the usual one of the family if None.
            group: a label for each row, of which there is an intercept each; None for one for all.
            intercept, slope, rest, spread: the scales of the priors.
        """
        rows, answers = np.asarray(x, float), np.asarray(y, float)
        if rows.ndim != 2 or not np.isfinite(rows).all():
            raise ValueError(
                "The 'x' of BayesianRegression must be rows of finite numbers. "
                f"Got the shape {rows.shape} with {int((~np.isfinite(rows)).sum())} others."
            )
        answers = answers.reshape(len(answers), -1)
        given = Given(family, link)
        if len(answers) != len(rows) or answers.shape[1] != given.dim:
            raise ValueError(
                f"The 'y' of BayesianRegression must have the shape ({len(rows)}, {given.dim}). "
                f"Got {answers.shape} instead."
            )
        scales = {"intercept": intercept, "slope": slope, "rest": rest, "spread": spread}
        for name, value in scales.items():
            if not 0 < value < np.inf:
                raise ValueError(
                    f"The '{name}' of BayesianRegression must be a float in the range (0, inf). "
                    f"Got {value!r} instead."
                )
        labels, numbers = (), None
        if group is not None:
            labels, numbers = np.unique(np.asarray(group), return_inverse=True)
            if len(numbers) != len(rows):
                raise ValueError(
                    f"The 'group' of BayesianRegression must have a label for each of {len(rows)} rows. "
                    f"Got {len(numbers)} instead."
                )
        return BayesianRegression(
            on_device(rows),
            on_device(answers),
            given,
            None if numbers is None else on_device(numbers),
            len(labels),
            **{name: float(value) for name, value in scales.items()},
        )

    @property
    def space(self) -> dict[str, PyTree]:
        """What is unknown: `intercept`, `slopes`, what else the `answer` has, `spread` τ, `effects` η."""
        outputs = self.answer.size
        found: dict[str, PyTree] = {
            "intercept": Reals((outputs,)),
            "slopes": Reals((outputs, self.x.shape[1])),
        }
        rest = parameter_space(self.answer)
        if jax.tree.leaves(rest):
            found["answer"] = rest
        if self.group is not None:
            found |= {"spread": Positive((outputs,)), "effects": Reals((self.groups, outputs))}
        return found

    def _answer(self, z: dict[str, Any]) -> Given:
        return eqx.combine(z["answer"], self.answer) if "answer" in z else self.answer

    def _outputs(self, z: dict[str, Any], x: Array, group: Array | None) -> Float[Array, "rows outputs"]:
        found = x @ z["slopes"].T + z["intercept"][None]
        return found if group is None else found + z["spread"][None] * z["effects"][group]

    def energy_of_prior(self, z: dict[str, Any]) -> Float[Array, ""]:
        """−log p(z)."""
        total = _normal(z["intercept"], self.intercept) + _normal(z["slopes"], self.slope)
        for leaf in jax.tree.leaves(z.get("answer")):
            total = total + jnp.sum(leaf / self.rest + jnp.log(self.rest))
        if self.group is not None:
            total = total + _half_normal(z["spread"], self.spread) + _normal(z["effects"], 1.0)
        return total

    def __call__(self, z: dict[str, Any]) -> Float[Array, ""]:
        answer, outputs = self._answer(z), self._outputs(z, self.x, self.group)
        return self.energy_of_prior(z) - jnp.sum(jax.vmap(answer.log_prob)(outputs, self.y))

    def log_predictive(
        self, posterior: AbstractPosterior, x: Any, y: Any, group: Any = None
    ) -> Float[Array, " rows"]:
        """log p(y | x, data) of new rows: the mean of p(y | x, z) over what is known of z.

        Args:
            posterior: of z, by any method.
            x, y: rows and their answers.
            group: the number of the group of each row, among the sorted labels of `of`.
        """
        rows, groups = self._new(x, group)
        answers = on_device(np.asarray(y, float).reshape(len(rows), -1))
        return _log_predictive(self, *posterior.weighted_values(), rows, answers, groups)

    def replicate(
        self, posterior: AbstractPosterior, draws: int, *, x: Any = None, group: Any = None, key: Array
    ) -> Array:
        """Answers drawn from p(y | x, data), (draws, rows, outputs), for those of the fit without `x`."""
        rows, groups = (self.x, self.group) if x is None else self._new(x, group)
        return _replicate(self, posterior.sample(draws, key=jax.random.fold_in(key, 0)), rows, groups, key)

    def _new(self, x: Any, group: Any) -> tuple[Array, Array | None]:
        rows = np.asarray(x, float)
        if (group is None) != (self.group is None):
            raise ValueError(
                "New rows of BayesianRegression must have a 'group' if those of the fit have one."
            )
        return on_device(rows), None if group is None else on_device(np.asarray(group, int))


@eqx.filter_jit
def _log_predictive(
    energy: BayesianRegression, values: PyTree, weights: Array, x: Array, y: Array, group: Array | None
) -> Float[Array, " rows"]:
    def one(z: Any) -> Array:
        return jax.vmap(energy._answer(z).log_prob)(energy._outputs(z, x, group), y)

    logs = jax.lax.map(one, values, batch_size=256)
    return jax.nn.logsumexp(logs, axis=0, b=weights[:, None])


@eqx.filter_jit
def _replicate(
    energy: BayesianRegression, values: PyTree, x: Array, group: Array | None, key: Array
) -> Array:
    def one(z: Any, key: Array) -> Array:
        answer, outputs = energy._answer(z), energy._outputs(z, x, group)
        keys = jax.random.split(key, len(x))
        return jax.vmap(lambda output, k: answer.at(output).sample(key=k))(outputs, keys)

    keys = jax.random.split(jax.random.fold_in(key, 1), len(jax.tree.leaves(values)[0]))
    return jax.vmap(one)(values, keys)


class HierarchicalNormal(eqx.Module):
    """Several means that are like each other: y_j ~ N(θ_j, s_j²), θ_j = μ + τ η_j, η_j ~ N(0, 1).

    An energy e(z) = −log p(y, z) over `space`, in the coordinates η in which it is no funnel (non-centred);
    also known as the model of eight schools, or of random-effects meta-analysis.

    Attributes:
        y: an estimate for each group.
        error: s, the standard error of each.
        location: the deviation of the normal law of μ before any data.
        spread: the scale of the half-normal law of τ.

    >>> schools = HierarchicalNormal.of([28.0, 8.0, -3.0], [15.0, 10.0, 16.0], spread=10.0)
    >>> sorted(schools.space)
    ['effects', 'mean', 'spread']
    """

    y: Float[Array, " groups"]
    error: Float[Array, " groups"]
    location: float | Array = 100.0
    spread: float | Array = 10.0

    @staticmethod
    def of(y: Any, error: Any, *, location: float = 100.0, spread: float = 10.0) -> HierarchicalNormal:
        """The energy of estimates and their standard errors."""
        estimates, errors = np.asarray(y, float), np.asarray(error, float)
        if estimates.ndim != 1 or estimates.shape != errors.shape or not (errors > 0).all():
            raise ValueError(
                "The 'error' of HierarchicalNormal must have a positive number for each of 'y'. "
                f"Got the shapes {errors.shape} and {estimates.shape}."
            )
        return HierarchicalNormal(on_device(estimates), on_device(errors), location, spread)

    @property
    def space(self) -> dict[str, PyTree]:
        """What is unknown: μ as `mean`, τ as `spread`, η as `effects`."""
        return {"mean": Reals(()), "spread": Positive(()), "effects": Reals(self.y.shape)}

    def means(self, z: dict[str, Any]) -> Float[Array, " groups"]:
        """θ."""
        return z["mean"] + z["spread"] * z["effects"]

    def __call__(self, z: dict[str, Any]) -> Float[Array, ""]:
        prior = _normal(z["mean"], self.location) + _half_normal(z["spread"], self.spread)
        seen = ~jnp.isnan(self.y)
        gap = jnp.where(seen, (self.y - self.means(z)) / self.error, 0)
        misfit = jnp.sum(0.5 * gap**2 + jnp.where(seen, jnp.log(self.error) + 0.5 * LOG_2PI, 0))
        return prior + _normal(z["effects"], 1.0) + misfit
