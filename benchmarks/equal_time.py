"""Held-out bits of images after equal time, ours beside zuko and PyTorch, with the same networks.

    python -m benchmarks.equal_time [epochs] [folder of Fashion-MNIST]

Each of ours learns for as long as it does by itself (or for so many epochs), and its peer for as many CPU
seconds of one thread, compilation included; both keep what was best on the same held-back tenth.  Pixels
have uniform noise; bits a pixel of images that were held out, by the likelihood of a flow, the bound of 200
draws of a VAE and the variational bound of a diffusion model, at the same noisy images.
"""

from __future__ import annotations

import copy
import math
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import freeenergy as fe
from freeenergy.learning import ImportanceWeighted
from freeenergy.nn import ResidualDenoiser

from .diffusion import BLOCKS, HIGH, LOW, UNITS, lacking, residual
from .flow_zuko import DEPTH, LAYERS, WIDTH, zuko_flow

LATENT, HIDDEN, DRAWS, MANY, BATCH = 16, 256, 8, 200, 64
_LOG_2PI = math.log(2 * math.pi)


def _vae(columns: int) -> Any:
    import torch
    from torch import nn

    class Peer(nn.Module):
        """Gaussian codes and a Gaussian of each pixel whose variance is learned."""

        def __init__(self) -> None:
            super().__init__()

            def network(inputs: int, outputs: int) -> Any:
                layers = nn.Linear(inputs, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU()
                return nn.Sequential(*layers, nn.Linear(HIDDEN, outputs))

            self.encoder, self.decoder = network(columns, 2 * LATENT), network(LATENT, columns)
            self.log_noise = nn.Parameter(torch.full((columns,), math.log(0.5)))

        def bound(self, x: Any, draws: int) -> Any:
            mean, log_variance = self.encoder(x).chunk(2, dim=1)
            noise = torch.randn(draws, *mean.shape)
            z = mean + torch.exp(0.5 * log_variance) * noise
            gap = (x - self.decoder(z)) ** 2 * torch.exp(-self.log_noise)
            told = -0.5 * (gap + self.log_noise + _LOG_2PI).sum(2)
            cost = 0.5 * (z**2 - noise**2 - log_variance).sum(2)
            return torch.logsumexp(told - cost, 0) - math.log(draws)

    return Peer()


def _ends(peer: Any, x: Any) -> Any:
    """The first and the last part of the bound, before and after the noise that `lacking` counts."""
    import torch

    high, low = torch.tensor(HIGH), torch.tensor(LOW)
    alpha, sigma = torch.sigmoid(high).sqrt(), torch.sigmoid(-high).sqrt()
    noisy = alpha * x + sigma * torch.randn_like(x)
    noise = sigma * noisy + alpha * peer(noisy, high.expand(len(x)))
    missed, variance = ((x - (noisy - sigma * noise) / alpha) ** 2).sum(1), sigma**2
    left, spread = torch.sigmoid(low), torch.sigmoid(-low)
    last = left * (x**2).sum(1) + x.shape[1] * (spread - 1 - spread.log())
    return 0.5 * (missed / variance + x.shape[1] * (_LOG_2PI + variance.log()) + last)


def _learned(make: Any, loss: Any, train: Any, kept: Any, scale: Any, seconds: float, rate: float) -> Any:
    """A peer after so many CPU seconds, as it was best on held-back rows."""
    import torch

    torch.manual_seed(0)
    started, least, best = time.process_time(), np.inf, None
    peer = make()
    optimiser = torch.optim.Adam(peer.parameters(), lr=rate)
    while time.process_time() - started < seconds:
        order = torch.randperm(len(train))
        for first in range(0, len(train), BATCH):
            x = train[order[first : first + BATCH]]
            lost = loss(peer, x + torch.rand_like(x) / scale).mean()
            optimiser.zero_grad()
            lost.backward()
            torch.nn.utils.clip_grad_norm_(peer.parameters(), 10.0)
            optimiser.step()
        with torch.no_grad():
            judged = loss(peer, kept).mean().item()
        if judged < least:
            least, best = judged, copy.deepcopy(peer.state_dict())
    if best is not None:
        peer.load_state_dict(best)
    return peer


def main(epochs: str = "", folder: str = "") -> None:
    import torch

    torch.set_num_threads(1)
    if folder:
        clothes = fe.datasets.fashion_mnist(folder=folder)
        X, test = clothes.X[:10_000], fe.datasets.fashion_mnist(test=True, folder=folder).X[:1000]
    else:
        X = fe.datasets.load("digits").X
        order = np.random.default_rng(0).permutation(len(X))
        X, test = X[order[297:]], X[order[:297]]
    rng, columns = np.random.default_rng(1), X.shape[1]
    noisy = test + rng.random(test.shape)
    held = np.arange(len(X)) % 10 == 0
    mean, deviation = X.mean(axis=0) + 0.5, np.sqrt(X.var(axis=0) + 1 / 12)

    def tensor(x: np.ndarray) -> Any:
        return torch.from_numpy(((x - mean) / deviation).astype(np.float32))

    scale = torch.from_numpy(deviation.astype(np.float32))
    train, kept, asked = tensor(X[~held]), tensor(X[held] + rng.random(X[held].shape)), tensor(noisy)
    unit = np.log(deviation).sum()

    def bits(nats: Any) -> float:
        return -float(np.mean(nats)) / (columns * math.log(2))

    def diffusion_bound(peer: Any) -> np.ndarray:
        with torch.no_grad():
            lost = torch.stack([lacking(peer, asked) for _ in range(256)]).mean(0)
            ends = torch.stack([_ends(peer, asked) for _ in range(16)]).mean(0)
        return -(lost + ends).numpy()

    def told(peer: Any) -> np.ndarray:
        with torch.no_grad():
            return peer.bound(asked, MANY).numpy()

    def flow(peer: Any) -> np.ndarray:
        with torch.no_grad():
            return peer().log_prob(asked).numpy()

    most: dict[str, Any] = {"max_iter": int(epochs)} if epochs else {}
    sizes = {"width": HIDDEN, "depth": 2, "importance_samples": MANY}
    contests: dict[str, tuple[Any, Any, Any, Callable[[Any], np.ndarray], float]] = {
        "spline flow (zuko)": (
            fe.NormalizingFlow(layers=LAYERS, width=WIDTH, depth=DEPTH, **most),
            lambda: zuko_flow(columns),
            lambda p, x: -p().log_prob(x),
            flow,
            2e-3,
        ),
        "VAE (PyTorch)": (
            fe.VAE(LATENT, **sizes, **most),
            lambda: _vae(columns),
            lambda p, x: -p.bound(x, 1),
            told,
            1e-3,
        ),
        f"IWAE({DRAWS}) (PyTorch)": (
            fe.VAE(LATENT, objective=ImportanceWeighted(DRAWS), **sizes, **most),
            lambda: _vae(columns),
            lambda p, x: -p.bound(x, DRAWS),
            told,
            1e-3,
        ),
        "diffusion (PyTorch)": (
            fe.DiffusionModel(network=ResidualDenoiser(UNITS, BLOCKS), **(most or {"max_iter": 300})),
            lambda: residual(columns),
            lacking,
            diffusion_bound,
            1e-3,
        ),
    }
    print("| model | CPU seconds of each | ours, bits a pixel | peer |\n|---|---|---|---|")
    for name, (model, make, loss, score, rate) in contests.items():
        model.set_params(random_state=0, batch_size=BATCH)
        started = time.process_time()
        fitted = fe.Dequantised(model, random_state=0).fit(X).estimator_
        seconds = time.process_time() - started
        diffusion = isinstance(model, fe.DiffusionModel)
        ours = fitted.bound(noisy, draws=4).nats if diffusion else fitted.score_samples(noisy)
        peer = _learned(make, loss, train, kept, scale, seconds, rate)
        theirs = score(peer) - unit
        print(f"| {name} | {seconds:.0f} | {bits(ours):.3f} | {bits(theirs):.3f} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
