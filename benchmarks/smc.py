from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from freeenergy.distributions import Diagonal, Gaussian, Reals
from freeenergy.inference import SequentialMonteCarlo, infer

from ._race import Outcome, Workload, race

ROWS, COLUMNS, PARTICLES, MOVES = 500, 8, 10_000, 5
# by 20,000 importance draws of Student's t about the mode, to 0.003
EVIDENCE = -294.494


def table(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(ROWS), rng.normal(size=(ROWS, COLUMNS - 1))])
    y = rng.random(ROWS) < 1 / (1 + np.exp(-X @ rng.normal(size=COLUMNS)))
    return X, y


class _Posterior:
    """−log p(y, w | X) of a logistic regression, with a standard normal prior of the weights."""

    def __init__(self, X: np.ndarray, y: np.ndarray) -> None:
        self.signed = jnp.asarray(X * np.where(y, 1, -1)[:, None])

    def __call__(self, w: Any) -> Any:
        # (JAX's softplus asks after NaN too, which keeps the compiler from making one loop of it all)
        margin = self.signed @ w
        loss = jnp.sum(jnp.log1p(jnp.exp(-jnp.abs(margin))) - jnp.minimum(margin, 0))
        return loss + jnp.sum(w**2) / 2 + COLUMNS / 2 * np.log(2 * np.pi)


def run(quick: bool) -> Outcome:
    import particles
    from particles import distributions, smc_samplers
    from scipy.special import log_expit

    count = 1_000 if quick else PARTICLES
    X, y = table()
    signed = X * np.where(y, 1, -1)[:, None]

    class Peer(smc_samplers.StaticModel):
        # all rows at once: its own loop over the rows is slower, and so is np.logaddexp
        def loglik(self, theta: Any, t: int | None = None) -> np.ndarray:
            return log_expit(theta["w"] @ signed.T).sum(axis=1)

    prior = distributions.StructDist({"w": distributions.MvNormal(cov=np.eye(COLUMNS))})

    def theirs() -> float:
        # as many moves as ours, and it holds only the last of them, as ours does
        path = smc_samplers.AdaptiveTempering(
            Peer(data=signed, prior=prior), wastefree=False, len_chain=MOVES + 1
        )
        sampler = particles.SMC(fk=path, N=count, ESSrmin=1.0, resampling="systematic")
        sampler.run()
        return float(sampler.logLt)

    energy, space = _Posterior(X, y), Reals((COLUMNS,))
    base = Gaussian(jnp.zeros(COLUMNS), Diagonal(jnp.ones(COLUMNS)))
    method = SequentialMonteCarlo(base=base, particles=count, groups=10, moves=MOVES)

    def ours() -> tuple[float, float]:
        found = infer(energy, space, method, key=jax.random.key(0)).log_evidence
        assert found is not None
        return float(found.nats), float(found.stderr)

    def judge(a: tuple[float, float], b: float) -> tuple[bool, str]:
        gap, other = abs(a[0] - EVIDENCE), abs(b - EVIDENCE)
        return gap < max(4 * a[1], other), f"evidence off by {gap:.2f} (± {a[1]:.2f}) and {other:.2f} nats"

    return race(ours, theirs, judge, repeats=1 if quick else 3)


WORKLOAD = Workload(
    f"sequential Monte Carlo, {PARTICLES:,} particles, logistic regression {ROWS} × {COLUMNS}",
    "particles",
    5,
    run,
)
