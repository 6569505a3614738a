"""What a distribution can do, in small abstract classes.

Everything is written for one event (a vector of `dim` numbers) and batched by `jax.vmap`.
NaN in an event means *not observed*: the law of the library is that it is marginalised.
"""

import abc
import dataclasses
import functools
from typing import Any, ClassVar, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.flatten_util import ravel_pytree

from .._core import AbstractSpace, CellError, Reals, refuse_outside


class AbstractDistribution(eqx.Module):
    """A normalised density or mass over one event."""

    @abc.abstractmethod
    def log_prob(self, x: Array) -> Array:
        """log p(x), a scalar."""

    @abc.abstractmethod
    def sample(self, *, key: Array) -> Array:
        """One draw."""


class AbstractPartial(eqx.Module):
    """A distribution whose `log_prob` marginalises NaN, and that can fill it in."""

    @abc.abstractmethod
    def complete_mean(self, x: Array) -> Array:
        """`x` with each NaN replaced by its mean given the observed entries."""

    @abc.abstractmethod
    def complete_sample(self, x: Array, *, key: Array) -> Array:
        """`x` with the NaN entries drawn given the observed ones."""


class AbstractShaped(eqx.Module):
    """A family that knows which values it is about, and which shape its members need for given rows."""

    support: eqx.AbstractClassVar[AbstractSpace]

    unit_free: ClassVar[bool] = False
    """Whether (x − shift) / scale has a member of the family for every member that x has."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # whoever has a prototype is a family, and not a further abstract class
        if "prototype" in vars(cls) and not isinstance(getattr(cls, "support", None), AbstractSpace):
            raise TypeError(
                f"{cls.__name__} must say which values it takes: add a class variable 'support', such as "
                "`support: ClassVar[AbstractSpace] = Counts()`, with a space of freeenergy.distributions."
            )

    @classmethod
    @abc.abstractmethod
    def prototype(cls, x: np.ndarray) -> Self:
        """A member of the shape that rows `x` need; refuses rows outside the support."""

    @classmethod
    def unit_free_columns(cls, n_features: int) -> np.ndarray:
        """Which of `n_features` columns may have any other unit and origin."""
        return np.full(n_features, cls.unit_free)


class AbstractRay(eqx.Module):
    """A distribution whose log-density is a polynomial in the size of the event.

    Far from all that is likely log p is lower than any float, for every member of a mixture; which of the
    members it is least low for can still be said by the polynomials.
    """

    @abc.abstractmethod
    def along_ray(self, x: Array) -> Array:
        """(c₀, c₁, c₂) with log p(s·x) = c₀ + c₁ s + c₂ s² for every s > 0; NaN is marginalised."""


class AbstractExponentialFamily(AbstractDistribution, AbstractPartial):
    """p(x) = h(x) exp(η·T(x) − A(η)).

    A family says what is its own (`statistics`, `natural`, `log_partition`, `log_base`,
    `from_natural`, `from_statistics`, `sample`).  For sums over many events and components the
    same density is written as one inner product,

        log p(x) = coefficients · features(x) + log_base(x),

    where `features` are the statistics together with the indicator that they were observed, and
    `coefficients` are η together with −A.  Stacked over rows and components this is a matrix
    product, and so is the sum of features under responsibilities, from which `from_features`
    makes the maximum-likelihood member.
    """

    @property
    @abc.abstractmethod
    def support(self) -> AbstractSpace:
        """Which values an event can take, and so whether p is a mass or a density."""

    @property
    @abc.abstractmethod
    def dim(self) -> int:
        """How many columns an event has."""

    @property
    @abc.abstractmethod
    def closed_form(self) -> bool:
        """Whether `from_statistics` is the maximum itself, and not only a step towards it."""

    @property
    @abc.abstractmethod
    def common_unit(self) -> bool:
        """Whether all columns have to be in one unit, as equal variances ask for."""

    @abc.abstractmethod
    def statistics(self, x: Array) -> Array:
        """T(x), for a complete event."""

    @abc.abstractmethod
    def natural(self) -> Array:
        """η, in the shape of `statistics`."""

    @abc.abstractmethod
    def log_partition(self) -> Array:
        """A(η): a scalar, or a number per coordinate in families that factorise."""

    @abc.abstractmethod
    def inside(self) -> Self:
        """The same member, or one a rounding error away whose natural parameters are finite."""

    @abc.abstractmethod
    def from_natural(self, natural: Array) -> Self:
        """The member with natural parameters `natural`."""

    @abc.abstractmethod
    def from_statistics(self, weight: Array, total: Array) -> Self:
        """The maximum-likelihood member for Σ w T(x) = `total` and Σ w = `weight`."""

    @abc.abstractmethod
    def log_base(self, x: Array) -> Array:
        """log h(x), a scalar; unobserved entries count zero."""

    @abc.abstractmethod
    def features(self, x: Array) -> Array:
        """The vector of statistics and indicators; NaN only if `masks_missing`."""

    @abc.abstractmethod
    def expected_features(self, x: Array) -> Array:
        """E[features | the observed entries of x]; equals `features` of a complete event."""

    @abc.abstractmethod
    def coefficients(self) -> Array:
        """What `features` is multiplied with."""

    @abc.abstractmethod
    def from_features(self, total: Array) -> Self:
        """The maximum-likelihood member for Σ w features(x) = `total`.

        On a stack of members (every array with a leading axis) `total` has that axis too.
        """

    @property
    @abc.abstractmethod
    def masks_missing(self) -> bool:
        """Whether `features` of an incomplete event are exact, entry by entry."""

    @abc.abstractmethod
    def statistic_columns(self) -> np.ndarray:
        """Of which column each statistic is a function, in the order of `statistics(x).ravel()`.

        Families that do not mask what is missing have statistics of several columns, and refuse.
        """


def check_support(family: type[AbstractShaped], x: np.ndarray) -> None:
    """Refuses rows `x` with an entry outside the support of `family`; NaN is never outside."""
    inside = family.support.contains(x)
    if not inside.all():
        row, column = (int(i) for i in np.argwhere(~inside)[0])
        error = CellError(
            f"{family.__name__} needs {family.support.phrase}.", float(x[row, column]), column
        )
        raise error.placed(row, x)


@functools.singledispatch
def mean_parameters(family: AbstractExponentialFamily) -> Array:
    """E[T(x)] = ∇A(η), in the shape of the statistics.

    Families whose members can lie at the edge, where η is infinite, register the moments themselves.
    """
    return jax.grad(lambda eta: jnp.sum(family.from_natural(eta).log_partition()))(family.natural())


@functools.singledispatch
def fisher_information(family: AbstractExponentialFamily) -> Array:
    """Cov[T(x)] = ∇²A(η), the Fisher information of the natural parameters, as a matrix."""
    eta, unravel = ravel_pytree(family.natural())
    return jax.hessian(lambda e: jnp.sum(family.from_natural(unravel(e)).log_partition()))(eta)


@functools.singledispatch
def log_partition_at(family: AbstractExponentialFamily, natural: Array) -> Array:
    """A(η) at natural parameters `natural`, in the shape of `log_partition`.

    Families that keep something else than η, such as a probability that would round to one, register a
    formula in η itself, which is right wherever η is finite, in value and in slope.

    >>> from freeenergy.distributions import Bernoulli
    >>> log_partition_at(Bernoulli(jnp.array([0.5])), jnp.array([800.0])).tolist()
    [800.0]
    """
    return family.from_natural(natural).log_partition()


@functools.singledispatch
def log_prob_at(family: AbstractExponentialFamily, natural: Array, x: Array) -> Array:
    """log p(x) at natural parameters `natural`, a scalar; NaN in `x` is marginalised.

    In families with independent coordinates it is the sum of η·T(x) − A(η) + log h(x) over the observed
    ones, with A from `log_partition_at`.

    >>> from freeenergy.distributions import Bernoulli
    >>> log_prob_at(Bernoulli(jnp.array([0.5])), jnp.array([800.0]), jnp.array([0.0])).item()
    -800.0
    """
    return family.from_natural(natural).log_prob(x)


@functools.singledispatch
def levels(family: AbstractDistribution) -> tuple[int, ...] | None:
    """How many values, 0, 1, 2, …, each coordinate can take; None where there is no end of them.

    >>> from freeenergy.distributions import Binomial
    >>> levels(Binomial(jnp.array([0.5, 0.5]), trials=(2, 3)))
    (3, 4)
    """
    return None


@functools.singledispatch
def with_mean(member: Any, mean: Array) -> Any:
    """The member with the mean (or location) `mean` and the other parameters of `member`.

    >>> from freeenergy.distributions import Gamma
    >>> with_mean(Gamma(jnp.array([2.0]), jnp.array([1.0])), jnp.array([4.0])).rate.tolist()
    [0.5]
    """
    raise TypeError(
        f"{type(member).__name__} has no mean that could be set alone; its natural or free parameters can."
    )


@functools.singledispatch
def rescaled(member: Any, shift: Any, scale: Any) -> Any:
    """The law of z = (x − shift) / scale for x from `member`.

    Families of values that have no other unit, such as counts, are left as they are by shift 0 and scale 1
    and refuse the rest; those over positive numbers have another scale but no other origin.

    Args:
        member: of any family.
        shift: a number for each column.
        scale: a number for each column, or one for all, as a `common_unit` needs.

    >>> from freeenergy.distributions import Laplace
    >>> member = Laplace(jnp.array([3.0]), jnp.array([2.0]))
    >>> rescaled(member, jnp.array([1.0]), jnp.array([4.0])).loc.tolist()
    [0.5]
    """
    if _differs(shift, 0) or _differs(scale, 1):
        raise ValueError(f"{type(member).__name__} is about values that have no other unit.")
    return member


def _differs(units: Any, from_own: float) -> bool:
    """Whether units are others than one's own; of those that are traced it is for the caller to know."""
    return not isinstance(units, Tracer) and bool(np.any(np.asarray(units) != from_own))


def refuse_shift(member: Any, shift: Any) -> None:
    """Refuses another origin than zero."""
    if _differs(shift, 0):
        raise ValueError(f"{type(member).__name__} is about values that have no other origin than zero.")


def times_statistic(natural: Array, statistic: Array) -> Array:
    """η T(x), where T may be infinite at the edge of the support (log 0): η = 0 has no part in it."""
    return natural * jnp.where(jnp.isinf(statistic) & (natural == 0), 0, statistic)


def _summable(statistic: Array) -> Array:
    """T(x) for sums over rows: at the edge of the support log 0 counts as that of the smallest number.

    Of an infinite one the product with a weight of zero, such as that of a padded row, is no number.
    """
    least = jnp.log(jnp.finfo(statistic.dtype).tiny).astype(statistic.dtype)
    return jnp.where(jnp.isneginf(statistic), least, statistic)


class AbstractIndependent(AbstractExponentialFamily, AbstractShaped):
    """A family whose coordinates are independent: p(x) = Π_d p_d(x_d).

    `statistics` and `natural` have shape (dim,) or (dim, s); `log_partition` and `log_base_terms`
    have shape (dim,).  A missing coordinate is left out of every sum, which is exact.

    A member can lie at the edge of the family, such as a coin of probability one, where η is infinite.
    What people read (`log_prob`, moments, entropy, divergence) is exact there.  The linear form
    coefficients · features is that of `inside`, the member beside it with a finite η; the M step, which
    is `from_features`, never leaves the inside.
    """

    neutral: ClassVar[float] = 0.0
    """An ordinary value inside the support, put in place of NaN before it is masked."""

    def __check_init__(self) -> None:
        refuse_outside(self, closed=True)

    @abc.abstractmethod
    def log_base_terms(self, x: Array) -> Array:
        """log h_d(x_d) for each coordinate."""

    @abc.abstractmethod
    def log_prob_terms(self, x: Array) -> Array:
        """log p_d(x_d) for each coordinate of a complete event."""

    @abc.abstractmethod
    def mean(self) -> Array:
        """E[x], one number per coordinate."""

    @property
    def dim(self) -> int:
        return jax.eval_shape(self.log_partition).shape[-1]

    @property
    def closed_form(self) -> bool:
        return True

    @property
    def common_unit(self) -> bool:
        return False

    def statistic_columns(self) -> np.ndarray:
        size = jax.eval_shape(self.natural).size
        return np.repeat(np.arange(self.dim), size // self.dim)

    def _observed(self, x: Array) -> tuple[Array, Array]:
        observed = ~jnp.isnan(x)
        return observed, jnp.where(observed, x, jnp.asarray(self.neutral, x.dtype))

    def features(self, x: Array) -> Array:
        observed, filled = self._observed(x)
        t = _summable(self.statistics(filled))
        mask = observed.reshape(observed.shape + (1,) * (t.ndim - observed.ndim))
        return jnp.concatenate([jnp.where(mask, t, 0).ravel(), observed.astype(t.dtype)])

    def expected_features(self, x: Array) -> Array:
        return self.features(x)

    def coefficients(self) -> Array:
        inside = self.inside()
        return jnp.concatenate([inside.natural().ravel(), -inside.log_partition()])

    def from_features(self, total: Array) -> Self:
        if total.ndim == 2:
            return jax.vmap(lambda member, t: member.from_features(t))(self, total)
        dim = self.log_partition().shape[0]
        member = self.from_statistics(total[-dim:], total[:-dim].reshape(self.natural().shape))
        return member.inside()

    def log_base(self, x: Array) -> Array:
        observed, filled = self._observed(x)
        return jnp.sum(jnp.where(observed, self.log_base_terms(filled), 0))

    def log_prob(self, x: Array) -> Array:
        base = self.log_base(x)
        observed, filled = self._observed(x)
        terms = jnp.sum(jnp.where(observed, self.log_prob_terms(filled), 0))
        # h(x) = 0 is an impossible event, whatever the parameters
        return jnp.where(jnp.isneginf(base), base, terms)

    def complete_mean(self, x: Array) -> Array:
        return jnp.where(jnp.isnan(x), self.mean(), x)

    def complete_sample(self, x: Array, *, key: Array) -> Array:
        return jnp.where(jnp.isnan(x), self.sample(key=key), x)

    @property
    def masks_missing(self) -> bool:
        return True


@log_prob_at.register
def _(family: AbstractIndependent, natural: Array, x: Array) -> Array:
    member = family.from_natural(natural)
    observed, filled = member._observed(x)
    products = times_statistic(natural, member.statistics(filled)).reshape(len(x), -1)
    base = jnp.where(observed, member.log_base_terms(filled), 0)
    terms = jnp.sum(products, axis=-1) - log_partition_at(family, natural)
    # h(x) = 0 is an impossible event, whatever the parameters
    return jnp.sum(base) + jnp.sum(jnp.where(observed & ~jnp.isneginf(base), terms, 0))


class AbstractFactorised(AbstractIndependent):
    """A family with independent coordinates of which every member has finite natural parameters.

    It says what is its own, and the density follows:  log p_d(x_d) = η_d·T(x_d) − A(η_d) + log h_d(x_d).
    """

    def __check_init__(self) -> None:
        refuse_outside(self)

    def log_prob_terms(self, x: Array) -> Array:
        products = times_statistic(self.natural(), self.statistics(x))
        return (
            jnp.sum(products.reshape(len(x), -1), axis=-1) - self.log_partition() + self.log_base_terms(x)
        )

    def inside(self) -> Self:
        return self


class AbstractRate(AbstractIndependent):
    """A family with independent coordinates and one rate each, estimated as events over exposure."""

    rate: eqx.AbstractVar[Array]

    @abc.abstractmethod
    def events_and_exposure(self, weight: Array, total: Array) -> tuple[Array, Array]:
        """How many events Σ w = `weight` and Σ w T(x) = `total` report, over how long."""


def shared_statistics(family: AbstractExponentialFamily) -> TypeError:
    """What is raised where statistics of one column each are needed and `family` has others."""
    return TypeError(f"{type(family).__name__} has statistics of several columns together.")


class AbstractJoint(AbstractExponentialFamily, AbstractShaped):
    """A family whose coordinates depend on each other, so that a missing one cannot be masked.

    `features` are the statistics and `event_weight`, the number of events that x counts for.
    """

    def __check_init__(self) -> None:
        refuse_outside(self)

    @property
    def closed_form(self) -> bool:
        return True

    @property
    def common_unit(self) -> bool:
        return False

    def statistic_columns(self) -> np.ndarray:
        raise shared_statistics(self)

    @abc.abstractmethod
    def event_weight(self, x: Array) -> Array:
        """What −A(η) is multiplied with, a scalar (one, unless the family says more)."""

    @abc.abstractmethod
    def expected_statistics(self, x: Array) -> Array:
        """E[T | the observed entries of x]; equals `statistics` of a complete event."""

    def features(self, x: Array) -> Array:
        return jnp.concatenate([_summable(self.statistics(x)), self.event_weight(x)[None]])

    def expected_features(self, x: Array) -> Array:
        weight = self.event_weight(self.complete_mean(x))
        return jnp.concatenate([_summable(self.expected_statistics(x)), weight[None]])

    def coefficients(self) -> Array:
        inside = self.inside()
        return jnp.concatenate([inside.natural(), -inside.log_partition()[None]])

    def from_features(self, total: Array) -> Self:
        if total.ndim == 2:
            return jax.vmap(lambda member, t: member.from_features(t))(self, total)
        return self.from_statistics(total[-1], total[:-1]).inside()

    @property
    def masks_missing(self) -> bool:
        return False


class AbstractLocationScale(AbstractDistribution, AbstractPartial):
    """Independent coordinates x = loc + scale · z, with z from a fixed density symmetric about zero.

    These are no exponential families (the location enters through no finite set of statistics);
    a missing coordinate is left out of the sum, which is exact.
    """

    support: ClassVar[AbstractSpace] = Reals()

    loc: eqx.AbstractVar[Array]
    scale: eqx.AbstractVar[Array]

    def __check_init__(self) -> None:
        refuse_outside(self)

    @classmethod
    def unit_free_columns(cls, n_features: int) -> np.ndarray:
        """All of them: every member has its counterpart in any other unit."""
        return np.ones(n_features, bool)

    @property
    def dim(self) -> int:
        """How many columns an event has."""
        return self.loc.shape[-1]

    @property
    def common_unit(self) -> bool:
        """Whether all columns have to be in one unit."""
        return False

    @abc.abstractmethod
    def standard_log_prob(self, z: Array) -> Array:
        """log density of each coordinate of z."""

    def standard_total(self, z: Array) -> Array:
        """log density of z, the sum over its coordinates."""
        return jnp.sum(self.standard_log_prob(z))

    @abc.abstractmethod
    def standard_sample(self, *, key: Array) -> Array:
        """A draw of z, in the shape of `loc`."""

    @abc.abstractmethod
    def standard_entropy(self) -> Array:
        """The entropy of each coordinate of z."""

    def log_prob(self, x: Array) -> Array:
        observed = ~jnp.isnan(x)
        z = (jnp.where(observed, x, self.loc) - self.loc) / self.scale
        return jnp.sum(jnp.where(observed, self.standard_log_prob(z) - jnp.log(self.scale), 0))

    def sample(self, *, key: Array) -> Array:
        return self.loc + self.scale * self.standard_sample(key=key)

    def complete_mean(self, x: Array) -> Array:
        """`x` with each NaN replaced by its location: the mean, or the median where there is no mean."""
        return jnp.where(jnp.isnan(x), self.loc, x)

    def complete_sample(self, x: Array, *, key: Array) -> Array:
        return jnp.where(jnp.isnan(x), self.sample(key=key), x)


@with_mean.register
def _(member: AbstractLocationScale, mean: Array) -> AbstractLocationScale:
    return dataclasses.replace(member, loc=mean)


@rescaled.register
def _(member: AbstractLocationScale, shift: Array, scale: Array) -> AbstractLocationScale:
    return dataclasses.replace(member, loc=(member.loc - shift) / scale, scale=member.scale / scale)
