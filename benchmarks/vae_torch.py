from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from freeenergy._core import Data
from freeenergy.distributions import Bernoulli, Given
from freeenergy.learning import FreeEnergy, Gradient, ImportanceWeighted, fit
from freeenergy.models import mlp_vae
from freeenergy.shell._networks import flat_adam

from ._race import Outcome, Workload, race

DIM, WIDTH, LATENT, BATCH, RATE, DRAWS = 784, 400, 20, 128, 1e-3, 50


def _race(objective: Any, rows: int, draws: int) -> Outcome:
    """One epoch on so many rows, with a bound of so many draws for each."""
    import torch
    from torch import Tensor, nn

    class Peer(nn.Module):
        """The same network and the same objective."""

        def __init__(self) -> None:
            super().__init__()
            relu = nn.ReLU
            self.encoder = nn.Sequential(nn.Linear(DIM, WIDTH), relu(), nn.Linear(WIDTH, 2 * LATENT))
            self.decoder = nn.Sequential(nn.Linear(LATENT, WIDTH), relu(), nn.Linear(WIDTH, DIM))

        def forward(self, x: Tensor) -> Tensor:
            mean, log_variance = self.encoder(x).chunk(2, dim=1)
            if draws == 1:
                z = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)
                misfit = nn.functional.binary_cross_entropy_with_logits(self.decoder(z), x, reduction="sum")
                divergence = 0.5 * torch.sum(mean**2 + log_variance.exp() - 1 - log_variance)
                return (misfit + divergence) / len(x)
            noise = torch.randn(draws, *mean.shape)
            z = mean + torch.exp(0.5 * log_variance) * noise
            said = self.decoder(z)
            # −softplus(o) + x o, whose second part is one product of matrices
            misfit = nn.functional.softplus(said).sum(2) - torch.einsum("krd,rd->kr", said, x)
            divergence = 0.5 * (z**2 - noise**2 - log_variance).sum(2)
            bound = torch.logsumexp(-misfit - divergence, 0) - math.log(draws)
            return -bound.mean()

    x = (np.random.default_rng(0).random((rows, DIM)) < 0.3).astype(np.float32)
    bits = Given(Bernoulli(jnp.full(DIM, 0.5)))
    model = mlp_vae(DIM, LATENT, width=WIDTH, depth=1, emission=bits, key=jax.random.key(0))
    data, learner = Data.of(x), Gradient(flat_adam(RATE), objective, batch_size=BATCH)
    tensor = torch.from_numpy(x)

    def ours() -> float:
        result = fit(model, learner, data, key=jax.random.key(0), max_iter=1)
        return float(result.history["objective"][-1])

    def theirs() -> float:
        torch.manual_seed(0)
        peer = Peer()
        optimiser = torch.optim.Adam(peer.parameters(), lr=RATE)
        total = 0.0
        order = torch.randperm(rows)
        for first in range(0, rows, BATCH):
            batch = tensor[order[first : first + BATCH]]
            optimiser.zero_grad()
            loss = peer(batch)
            loss.backward()
            optimiser.step()
            total += loss.item() * len(batch)
        return total / rows

    def judge(a: float, b: float) -> tuple[bool, str]:
        return abs(a - b) < 0.01 * b, f"free energy {a:.1f} and {b:.1f} nats on average"

    return race(ours, theirs, judge)


def vae(quick: bool) -> Outcome:
    return _race(FreeEnergy(), 2_000 if quick else 20_000, 1)


def iwae(quick: bool) -> Outcome:
    return _race(ImportanceWeighted(DRAWS), 256 if quick else 1_280, DRAWS)


PEER = "PyTorch, same network"
WORKLOADS = {
    "vae_torch": Workload(
        f"VAE {DIM}-{WIDTH}-{LATENT}, one epoch of Adam in batches of {BATCH}, 20,000 rows", PEER, 1.3, vae
    ),
    "iwae_torch": Workload(
        f"IWAE({DRAWS}) {DIM}-{WIDTH}-{LATENT}, 10 train steps of {BATCH} rows", PEER, 1.3, iwae
    ),
}
