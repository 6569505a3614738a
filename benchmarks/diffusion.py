from __future__ import annotations

import itertools
import math
from typing import Any

import equinox as eqx
import jax
import numpy as np

from freeenergy._core import Data
from freeenergy.learning import Denoising, Gradient, fit
from freeenergy.models import Ancestral, Diffusion, LogLinearSchedule
from freeenergy.nn import PatchDenoiser, ResidualDenoiser
from freeenergy.shell import cast
from freeenergy.shell._answers import draw_rows
from freeenergy.shell._networks import decaying_adam

from ._race import Outcome, Workload, race

RATE, DECAY, AVERAGE, CLIP = 1e-3, 1e-3, 0.99, 10.0
SIDE, PATCH, PLACES, WIDTH, DEPTH, HEADS = 28, 4, 49, 64, 4, 4
COLUMNS, UNITS, BLOCKS = 20, 256, 3
DRAWS, STEPS = 1000, 1000
LOW, HIGH = (float(v) for v in LogLinearSchedule().ends(float)[::-1])


def _start(recipe: Any, columns: int) -> Diffusion:
    return cast(Diffusion(recipe.build(columns, key=jax.random.key(0)), columns), np.float32)


def _patches() -> Any:
    """The network of `PatchDenoiser` in PyTorch."""
    import torch
    from torch import Tensor, nn

    def scaled(h: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        return nn.functional.layer_norm(h, (WIDTH,)) * (1 + scale) + shift

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.told = nn.Linear(32, 6 * WIDTH)
            self.attend = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
            self.mix = nn.Linear(WIDTH, WIDTH, bias=False)
            self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH, bias=False)

        def forward(self, h: Tensor, waves: Tensor) -> Tensor:
            s, r, g, t, u, v = self.told(waves)[:, None].chunk(6, -1)
            asked = self.attend(scaled(h, s, r)).view(len(h), PLACES, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
            found = nn.functional.scaled_dot_product_attention(*asked)
            h = h + g * self.mix(found.transpose(1, 2).reshape(h.shape))
            return h + v * self.narrow(nn.functional.silu(self.wide(scaled(h, t, u))))

    class Peer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Linear(PATCH**2, WIDTH, bias=False)
            self.position = nn.Parameter(2 * torch.rand(PLACES, WIDTH) - 1)
            self.blocks = nn.ModuleList([Block() for _ in range(DEPTH)])
            self.ending = nn.Linear(32, 2 * WIDTH)
            self.last = nn.Linear(WIDTH, PATCH**2, bias=False)
            nn.init.zeros_(self.last.weight)

        def forward(self, x: Tensor, log_snr: Tensor) -> Tensor:
            waves, side = _waves(log_snr), SIDE // PATCH
            x = x.clamp(-20, 20).view(-1, side, PATCH, side, PATCH).transpose(2, 3)
            h = self.embed(x.reshape(-1, PLACES, PATCH**2)) + self.position
            for block in self.blocks:
                h = block(h, waves)
            said = self.last(scaled(h, *self.ending(waves)[:, None].chunk(2, -1)))
            return said.view(-1, side, side, PATCH, PATCH).transpose(2, 3).reshape(-1, SIDE**2)

    return Peer()


def residual(columns: int = COLUMNS) -> Any:
    """The network of `ResidualDenoiser` in PyTorch."""
    from torch import Tensor, nn

    class Peer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(columns, UNITS)
            self.told = nn.ModuleList([nn.Linear(32, 2 * UNITS) for _ in range(BLOCKS)])
            self.inner = nn.ModuleList([nn.Linear(UNITS, UNITS) for _ in range(BLOCKS)])
            self.outer = nn.ModuleList([nn.Linear(UNITS, UNITS, bias=False) for _ in range(BLOCKS)])
            self.last = nn.Linear(UNITS, columns, bias=False)
            nn.init.zeros_(self.last.weight)

        def forward(self, x: Tensor, log_snr: Tensor) -> Tensor:
            waves, silu = _waves(log_snr), nn.functional.silu
            h = self.first(x.clamp(-20, 20))
            for told, inner, outer in zip(self.told, self.inner, self.outer, strict=True):
                scale, shift = told(waves).chunk(2, -1)
                h = h + outer(silu((1 + scale) * inner(silu(h)) + shift))
            return self.last(h)

    return Peer()


def _waves(log_snr: Any) -> Any:
    import torch

    lengths = torch.from_numpy(np.geomspace(64.0, 2.0, 16).astype(np.float32))
    angles = 2 * math.pi * log_snr[:, None] / lengths
    return torch.cat([angles.sin(), angles.cos()], 1)


def lacking(peer: Any, x: Any) -> Any:
    """What the continuous-time bound of each row lacks, by one time each, evenly spread over the rows."""
    import torch

    times = (torch.rand(()) + torch.arange(len(x)) / len(x)) % 1
    log_snr = HIGH + (LOW - HIGH) * times
    alpha, sigma = (torch.sigmoid(s * log_snr).sqrt()[:, None] for s in (1, -1))
    noise = torch.randn_like(x)
    noisy = alpha * x + sigma * noise
    found = sigma * noisy + alpha * peer(noisy, log_snr)
    return 0.5 * (HIGH - LOW) * ((noise - found) ** 2).sum(1)


def _epoch(make: Any, tensor: Any, batch: int) -> float:
    """An epoch as `DiffusionModel` learns: the variational bound, Adam with decay, averaged weights."""
    import torch

    torch.manual_seed(0)
    peer = make()
    weights = list(peer.parameters())
    mean = [w.detach().clone() for w in weights]
    optimiser, total = torch.optim.AdamW(weights, lr=RATE, weight_decay=DECAY), 0.0
    order = torch.randperm(len(tensor))
    for first in range(0, len(tensor), batch):
        x = tensor[order[first : first + batch]]
        lost = lacking(peer, x).mean()
        optimiser.zero_grad()
        lost.backward()
        torch.nn.utils.clip_grad_norm_(weights, CLIP)
        optimiser.step()
        torch._foreach_lerp_(mean, [w.detach() for w in weights], 1 - AVERAGE)
        total += lost.item() * len(x)
    return total / len(tensor)


def _learning(recipe: Any, make: Any, columns: int, batch: int, rows: int) -> Outcome:
    import torch

    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 8)) @ rng.normal(size=(8, columns)) / 3 + 0.3 * rng.normal(
        size=(rows, columns)
    )
    x = x.astype(np.float32)
    start, data, tensor = _start(recipe, columns), Data.of(x), torch.from_numpy(x)
    learner = Gradient(decaying_adam(RATE, DECAY), Denoising(), batch_size=batch, average=AVERAGE)

    def ours() -> float:
        history = fit(start, learner, data, key=jax.random.key(0), max_iter=1).history
        return float(history["objective"][-1])

    def judge(a: float, b: float) -> tuple[bool, str]:
        return abs(a - b) < 0.1 * b, f"bound lacks {a:.1f} and {b:.1f} nats on average"

    return race(ours, lambda: _epoch(make, tensor, batch), judge)


def images(quick: bool) -> Outcome:
    recipe = PatchDenoiser((SIDE, SIDE), PATCH, WIDTH, DEPTH, HEADS)
    return _learning(recipe, _patches, SIDE**2, 64, 640 if quick else 2560)


def tables(quick: bool) -> Outcome:
    return _learning(ResidualDenoiser(UNITS, BLOCKS), residual, COLUMNS, 256, 5120 if quick else 51_200)


def draws(quick: bool) -> Outcome:
    import torch

    steps = 100 if quick else STEPS
    model = _start(ResidualDenoiser(UNITS, BLOCKS), COLUMNS)
    # of networks that say something; in the mean both say nothing
    rng = np.random.default_rng(0)
    loud = (0.01 * rng.normal(size=(UNITS, COLUMNS))).astype(np.float32)
    model = eqx.tree_at(lambda m: m.network.last, model, loud)
    peer = residual()
    torch.nn.init.normal_(peer.last.weight, std=0.01)

    def ours() -> np.ndarray:
        return draw_rows(
            model, DRAWS, jax.random.key(0), Diffusion.sample, sampler=Ancestral(), steps=steps
        )

    @torch.no_grad()
    def theirs() -> np.ndarray:
        torch.manual_seed(0)
        x = torch.randn(DRAWS, COLUMNS)
        values = torch.linspace(LOW, HIGH, steps + 1)
        for noisy, clean in itertools.pairwise(values):
            (a, s), (b, r) = ((torch.sigmoid(v).sqrt(), torch.sigmoid(-v).sqrt()) for v in (noisy, clean))
            said = peer(x, noisy.expand(DRAWS))
            datum = a * x - s * said
            factor = a / b
            spread = s**2 - factor**2 * r**2
            mean = factor * r**2 / s**2 * x + b * spread / s**2 * datum
            x = mean + spread.sqrt() * torch.randn_like(x)
        return x.numpy()

    def judge(a: np.ndarray, b: np.ndarray) -> tuple[bool, str]:
        spreads = float(a.std()), float(b.std())
        return abs(spreads[0] - spreads[1]) < 0.1, f"draws of spread {spreads[0]:.2f} and {spreads[1]:.2f}"

    return race(ours, theirs, judge)


PEER = "PyTorch, same network"
WORKLOADS = {
    "diffusion_images": Workload(
        f"patch-attention denoiser, {SIDE} × {SIDE}, {DEPTH} blocks of {WIDTH}: 40 train steps of 64",
        PEER,
        1,
        images,
    ),
    "diffusion_tables": Workload(
        f"diffusion on a table of {COLUMNS} columns, {BLOCKS} blocks of {UNITS}: 200 train steps of 256",
        PEER,
        1.2,
        tables,
    ),
    "diffusion_draws": Workload(
        f"diffusion on a table of {COLUMNS} columns: {DRAWS:,} draws in {STEPS:,} steps", PEER, 2, draws
    ),
}
