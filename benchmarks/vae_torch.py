"""One epoch of a VAE 784-400-20 with Adam, beside the same network in PyTorch.

Both in 32 bit, in one process, warm, in turn; the ratio is of the median seconds.

    python benchmarks/vae_torch.py
"""

from __future__ import annotations

import statistics
import time

import jax
import numpy as np
import optax
import torch

from freeenergy._core import Data
from freeenergy.learning import FreeEnergy, Gradient, fit
from freeenergy.models import BernoulliEmission, mlp_vae

ROWS, DIM, WIDTH, LATENT, BATCH, REPEATS = 20_000, 784, 400, 20, 128, 3


class Peer(torch.nn.Module):
    """The same network and the same objective."""

    def __init__(self) -> None:
        super().__init__()
        linear, relu = torch.nn.Linear, torch.nn.ReLU
        self.encoder = torch.nn.Sequential(linear(DIM, WIDTH), relu(), linear(WIDTH, 2 * LATENT))
        self.decoder = torch.nn.Sequential(linear(LATENT, WIDTH), relu(), linear(WIDTH, DIM))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean, log_variance = self.encoder(x).chunk(2, dim=1)
        z = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)
        misfit = torch.nn.functional.binary_cross_entropy_with_logits(self.decoder(z), x, reduction="sum")
        divergence = 0.5 * torch.sum(mean**2 + log_variance.exp() - 1 - log_variance)
        return (misfit + divergence) / len(x)


def main() -> None:
    x = (np.random.default_rng(0).random((ROWS, DIM)) < 0.3).astype(np.float32)

    model = mlp_vae(DIM, LATENT, width=WIDTH, depth=1, emission=BernoulliEmission(), key=jax.random.key(0))
    data = Data.of(x)
    learner = Gradient(optax.adam(1e-3), FreeEnergy(), batch_size=BATCH)

    def ours(seed: int) -> float:
        result = fit(model, learner, data, key=jax.random.key(seed), max_iter=1)
        return float(result.history["objective"][-1])

    tensor = torch.from_numpy(x)

    def theirs(seed: int) -> float:
        torch.manual_seed(seed)
        peer = Peer()
        optimiser = torch.optim.Adam(peer.parameters(), lr=1e-3)
        total = 0.0
        order = torch.randperm(ROWS)
        for start in range(0, ROWS, BATCH):
            batch = tensor[order[start : start + BATCH]]
            optimiser.zero_grad()
            loss = peer(batch)
            loss.backward()
            optimiser.step()
            total += loss.item() * len(batch)
        return total / ROWS

    seconds: dict[str, list[float]] = {"freeenergy": [], "torch": []}
    values = {}
    for seed in range(REPEATS + 1):
        for name, epoch in (("freeenergy", ours), ("torch", theirs)):
            started = time.perf_counter()
            values[name] = epoch(seed)
            if seed > 0:  # the first is warming up
                seconds[name].append(time.perf_counter() - started)
    for name, times in seconds.items():
        print(f"{name:12s} {statistics.median(times):7.3f} s   mean free energy {values[name]:.1f} nats")
    ratio = statistics.median(seconds["torch"]) / statistics.median(seconds["freeenergy"])
    print(f"ratio        {ratio:7.2f}   (at least 1.7 wanted)")


if __name__ == "__main__":
    main()
