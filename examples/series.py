"""Hidden states of two series: which regime it is in, and what it is the sum of.

    python examples/series.py [folder]

A hidden Markov model finds three regimes in one series, whose truth is known; a structural model parts
another into level and season and says what comes next.  Both have gaps.  The pictures are written to the
folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import freeenergy as fe
from freeenergy import plots
from freeenergy.models import Level, Seasonal


def regimes(folder: Path) -> float:
    """The share of steps whose regime is found, by a model that was never told one."""
    data = fe.datasets.load("regimes")
    X = data.X[:300].copy()
    X[120:130] = np.nan
    model = fe.HMM(3, n_init=3, random_state=0).fit(X)
    path = model.decode(X)
    # numbers of states are arbitrary: each is called as the regime it is mostly in
    meaning = [np.bincount(data.y[:300][path == k], minlength=3).argmax() for k in range(3)]
    names = [data.target_names[k] for k in meaning]
    with plots.theme():
        axes = plots.decoded(X, model.smooth(X), path, names=data.feature_names, states=names)
        save(axes[0], folder / "decoded.png")
    return float(np.mean(np.array(meaning)[path] == data.y[:300]))


def seasons(folder: Path) -> float:
    """The share of twelve later months in the interval of 90 % that was forecast for them."""
    X = fe.datasets.load("seasons").X
    past, future = X[:-12].copy(), X[-12:]
    past[40:46] = np.nan
    model = fe.StructuralTimeSeries(Level() + Seasonal(12)).fit(past)
    ahead = model.forecast(past, 12, level=0.9)
    # the parts of a series that goes on with gaps are forecasts of the parts
    parts = model.decompose(np.vstack([past, np.full_like(future, np.nan)]))
    with plots.theme():
        save(plots.decomposition(past, parts, ahead, name="demand")[0], folder / "decomposition.png")
        save(plots.forecast(past, ahead, truth=future, last=48), folder / "forecast.png")
    return float(np.mean((ahead.low <= future) & (future <= ahead.high)))


def save(axes, path: Path) -> None:
    axes.figure.savefig(path, dpi=100, facecolor="white")


def main(folder: str = "demo") -> tuple[float, float]:
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    found, held = regimes(place), seasons(place)
    print(f"{found:.0%} of the steps are given the regime that made them")
    print(f"{held:.0%} of twelve later months are in their interval of 90 %")
    return found, held


if __name__ == "__main__":
    main(*sys.argv[1:])
