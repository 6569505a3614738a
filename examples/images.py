"""Diffusion models of small images, by a network that sees them in patches and by one that knows no places.

    python examples/images.py [picture] [share of the time]

Handwritten digits of 8 × 8 pixels, draws of both models, and the bits that they need for held-out images.
Both learn for about the same time.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_digits

import freeenergy as fe

SIDE, SHOWN, COLUMNS = 8, 60, 10
# networks, and epochs that take about as long
NETWORKS = {
    "patches": (fe.nn.PatchDenoiser((SIDE, SIDE), patch=2, width=64, depth=3), 60),
    "no places": (fe.nn.ResidualDenoiser(256, 3), 400),
}


def tiled(images: np.ndarray) -> np.ndarray:
    """Images side by side, with a line between them."""
    framed = np.pad(images.reshape(-1, COLUMNS, SIDE, SIDE), [(0, 0), (0, 0), (0, 1), (0, 1)])
    return framed.transpose(0, 2, 1, 3).reshape(-1, COLUMNS * (SIDE + 1))[:-1, :-1]


def drawing(panels: dict[str, np.ndarray]) -> Figure:
    """Images under their titles."""
    figure = Figure(figsize=(9.0, 2.2), layout="constrained")
    for ax, (title, images) in zip(figure.subplots(1, len(panels)), panels.items(), strict=True):
        ax.imshow(tiled(images), cmap="gray_r", vmin=0, vmax=16)
        ax.set_title(title, fontsize=10)
        ax.set_axis_off()
    return figure


def main(picture: str = "demo/images.png", share: float = 1.0) -> dict[str, float]:
    X = load_digits().data
    order = np.random.default_rng(0).permutation(len(X))
    held, train = X[order[:297]], X[order[297:]]
    noisy = held + np.random.default_rng(1).uniform(size=held.shape)
    panels, found = {"data": train[:SHOWN]}, {}
    for name, (network, epochs) in NETWORKS.items():
        learned = fe.DiffusionModel(
            network=network, batch_size=128, max_iter=round(share * epochs), probes=4, random_state=0
        )
        model = fe.Dequantised(learned).fit(train)
        nats = model.estimator_.bound(noisy, draws=8).mean
        found[name] = -nats / (SIDE**2 * np.log(2))
        panels[f"{name}: {found[name]:.2f} bits a pixel"] = model.sample(SHOWN, random_state=0)
    place = Path(picture)
    place.parent.mkdir(parents=True, exist_ok=True)
    drawing(panels).savefig(place, dpi=110, facecolor="white")
    told = " and ".join(f"{bits:.2f} ({name})" for name, bits in found.items())
    print(f"{told} bits a pixel of images that were held out; the picture is {place}")
    return found


if __name__ == "__main__":
    main(*sys.argv[1:2], *map(float, sys.argv[2:3]))
