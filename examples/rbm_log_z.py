"""The normaliser of a restricted Boltzmann machine: summed, and annealed between two bounds.

    python examples/rbm_log_z.py

log Z of a small machine can be summed over one side.  Annealed importance sampling from independent
units gives a number that is too low on average; the way back gives one that is too high.  For a large
machine only these two are had.
"""

from __future__ import annotations

import jax

from freeenergy.distributions import Bernoulli
from freeenergy.inference import Sandwich
from freeenergy.models import Harmonium, Units


def machine(visible: int, hidden: int, *, strength: float = 1.0, key: jax.Array) -> Harmonium:
    first, second, third = jax.random.split(key, 3)
    return Harmonium(
        Units(Bernoulli, 0.5 * jax.random.normal(first, (visible,))),
        Units(Bernoulli, 0.5 * jax.random.normal(second, (hidden,))),
        strength * jax.random.normal(third, (visible, hidden)),
    )


def main(*, chains: int = 100, steps: tuple[int, ...] = (10, 500)) -> tuple[float, list[Sandwich]]:
    small = machine(20, 10, key=jax.random.key(0))
    exact = float(small.log_partition())
    print(f"20 visible × 10 hidden units, summed over 2¹⁰ states: log Z = {exact:.4f}")
    found = []
    for n in steps:
        bounds = small.log_partition_annealed(chains=chains, steps=n, key=jax.random.key(1))
        found.append(bounds)
        print(
            f"  {n:5d} temperatures: {bounds.lower.log_partition:.4f} ± {bounds.lower.stderr:.4f} … "
            f"{bounds.upper.log_partition:.4f} ± {bounds.upper.stderr:.4f}, "
            f"effective sample size {bounds.lower.effective_sample_size:.0f} of {chains}"
        )
    large = machine(60, 40, strength=0.3, key=jax.random.key(2))
    bounds = large.log_partition_annealed(chains=chains, steps=steps[-1], key=jax.random.key(3))
    gap = bounds.upper.log_partition - bounds.lower.log_partition
    print(f"60 × 40 units, too many to sum: {bounds.lower.log_partition:.3f}, the gap is {gap:.3f}")
    return exact, found


if __name__ == "__main__":
    main()
