"""A distribution of one's own in twenty lines, and a mixture of it for nothing.

    python examples/own_family.py

The geometric distribution counts failures before the first success.  It says only what is its own:
support, statistics, natural parameter, log-partition, base measure, fit and draw.  Missing values, EM,
evidence, imputation and the scikit-learn protocol come with `fe.Mixture`.
"""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import freeenergy as fe
from freeenergy import parameter, unit_interval
from freeenergy.distributions import AbstractFactorised, AbstractSpace, Counts


class Geometric(AbstractFactorised):
    """Failures before a success of probability s:  p(x) = (1 − s)ˣ s."""

    support: ClassVar[AbstractSpace] = Counts()

    success: Array = parameter(unit_interval)

    @classmethod
    def prototype(cls, x: np.ndarray) -> Geometric:
        return cls(jnp.full(x.shape[1], 0.5))

    def statistics(self, x):
        return x

    def natural(self):
        return jnp.log1p(-self.success)

    def log_partition(self):
        return -jnp.log(self.success)

    def log_base_terms(self, x):
        return jnp.zeros_like(x)

    def from_natural(self, natural):
        return Geometric(-jnp.expm1(natural))

    def from_statistics(self, weight, total):
        return Geometric(weight / (weight + jnp.maximum(total, 1e-9)))

    def mean(self):
        return 1 / self.success - 1

    def sample(self, *, key):
        return jax.random.geometric(key, self.success).astype(self.success.dtype) - 1


def main(*, rows: int = 600) -> fe.Mixture:
    rng = np.random.default_rng(0)
    success = np.where(rng.random((rows, 1)) < 0.4, [[0.7, 0.6, 0.8]], [[0.1, 0.2, 0.1]])
    X = rng.geometric(success) - 1.0
    X[rng.random(X.shape) < 0.1] = np.nan
    model = fe.Mixture(2, family=Geometric, random_state=0).fit(X)
    for k in np.argsort(model.weights_):
        member = model.model_.component(k)
        print(f"weight {model.weights_[k]:.3f}  success {np.round(member.success, 3)}")
    evidence = model.evidence(X)
    print(f"evidence {evidence.mean:.3f} nats per row, {evidence.kind.value}")
    print("impute [0, ?, 0] →", model.impute([[0.0, np.nan, 0.0]]).round(2)[0])
    return model


if __name__ == "__main__":
    main()
