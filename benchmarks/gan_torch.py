from __future__ import annotations

import itertools
from typing import Any

import jax
import numpy as np
import optax

from freeenergy._core import Data
from freeenergy.learning import CriticLoss, Game, GeneratorLoss, NonSaturating, Player, fit, only
from freeenergy.models import adversaries

from ._race import Outcome, Workload, race

DIM, NOISE, WIDTH, DEPTH, BATCH, RATE = 64, 32, 256, 2, 256, 2e-4


def run(quick: bool) -> Outcome:
    import torch
    from torch import nn

    rows = 2_560 if quick else 25_600
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(rows, 8)) @ rng.normal(size=(8, DIM)) / 3).astype(np.float32)
    data, tensor = Data.of(x), torch.from_numpy(x)
    start = adversaries(DIM, NOISE, width=WIDTH, depth=DEPTH, key=jax.random.key(0))
    value, adam = NonSaturating(), optax.adam(RATE, b1=0.5)
    players = (
        Player("critic", adam, CriticLoss(value), only(start, lambda m: m.critic)),
        Player("generator", adam, GeneratorLoss(value), only(start, lambda m: m.generator)),
    )
    game = Game(players, batch_size=BATCH)

    def network(inputs: int, outputs: int) -> Any:
        sizes = [inputs, *[WIDTH] * DEPTH]
        hidden = [(nn.Linear(a, b), nn.LeakyReLU(0.2)) for a, b in itertools.pairwise(sizes)]
        return nn.Sequential(*itertools.chain(*hidden), nn.Linear(WIDTH, outputs))

    def ours() -> tuple[float, float]:
        history = fit(start, game, data, key=jax.random.key(0), max_iter=1).history
        return float(history["critic"][-1]), float(history["generator"][-1])

    def theirs() -> tuple[float, float]:
        torch.manual_seed(0)
        generator, critic = network(NOISE, DIM), network(DIM, 1)
        optimisers = [
            torch.optim.Adam(p.parameters(), lr=RATE, betas=(0.5, 0.999)) for p in (critic, generator)
        ]
        soft, order, totals = nn.functional.softplus, torch.randperm(rows), np.zeros(2)
        for first in range(0, rows, BATCH):
            batch = tensor[order[first : first + BATCH]]
            with torch.no_grad():
                made = generator(torch.randn(len(batch), NOISE))
            optimisers[0].zero_grad()
            lost = (soft(-critic(batch)) + soft(critic(made))).mean()
            lost.backward()
            optimisers[0].step()
            optimisers[1].zero_grad()
            fooled = soft(-critic(generator(torch.randn(len(batch), NOISE)))).mean()
            fooled.backward()
            optimisers[1].step()
            totals += lost.item(), fooled.item()
        return tuple(totals / (rows / BATCH))

    def judge(a: tuple[float, float], b: tuple[float, float]) -> tuple[bool, str]:
        close = abs(a[0] - b[0]) < 0.15 and abs(a[1] - b[1]) < 0.3
        return close, f"critic {a[0]:.2f} and {b[0]:.2f}, generator {a[1]:.2f} and {b[1]:.2f} on average"

    return race(ours, theirs, judge)


WORKLOAD = Workload(
    f"GAN of {DIM} columns, {DEPTH} layers of {WIDTH}, an epoch of both in batches of {BATCH}, 25,600 rows",
    "PyTorch, same networks",
    1.2,
    run,
)
