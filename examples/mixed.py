"""One table with numbers, counts and labels: which model of it says most, and what it knows.

    python examples/mixed.py [picture]

The table is made up, so that the truth is known: visitors of a shop, a few of whose entries are missing.
Densities of mixed tables are compared on held-out rows, and a copula draws as many visitors again.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import polars as pl

import freeenergy as fe
from freeenergy import plots

SIZES = ["small", "middle", "large"]


def visitors(n: int = 400) -> pl.DataFrame:
    """Visitors whose spending, visits, membership and favourite go together."""
    rng = np.random.default_rng(0)
    keen = rng.normal(size=n)
    spent = np.exp(3 + 0.6 * keen + 0.4 * rng.normal(size=n))
    frame = pl.DataFrame(
        {
            "spent": spent,
            "visits": rng.poisson(np.exp(0.8 + 0.5 * keen)),
            "member": rng.logistic(size=n) < 2 * keen - 0.5,
            "basket": pl.Series(
                np.array(SIZES)[np.digitize(keen + 0.7 * rng.normal(size=n), [-0.6, 0.8])],
                dtype=pl.Enum(SIZES),
            ),
            "favourite": np.array(["tea", "coffee", "cake"])[
                np.digitize(keen + 1.2 * rng.normal(size=n), [-0.5, 0.5])
            ],
        }
    )
    hidden = rng.random((n, 5)) < 0.05
    return frame.with_columns(
        pl.when(pl.Series(hidden[:, j])).then(None).otherwise(pl.col(c)).alias(c)
        for j, c in enumerate(frame.columns)
    )


def compared(frame: pl.DataFrame) -> fe.Comparison:
    models = {
        "independent columns": fe.Mixture(1, family="by column"),
        "mixture of 4": fe.Mixture(4, family="by column"),
        "Bayesian mixture": fe.BayesianMixture(6, family="by column"),
        "copula": fe.GaussianCopula(),
        "one factor": fe.MixedFactorAnalysis(1),
        "kernels": fe.KernelDensity(),
    }
    return fe.compare(models, frame, cv=4, random_state=0)


def picture(frame: pl.DataFrame, draws: pl.DataFrame, path: str) -> None:
    """Spending against visits, the data beside the draws, members in another colour."""
    rng = np.random.default_rng(0)
    with plots.theme():
        figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharex=True, sharey=True)
        for place, (table, title) in zip(axes, ((frame, "visitors"), (draws, "draws of the copula"))):
            whole = table.drop_nulls(["spent", "visits", "member"])
            for member, colour in ((False, "tab:gray"), (True, "tab:blue")):
                some = whole.filter(pl.col("member") == member)
                jitter = rng.uniform(-0.3, 0.3, len(some))
                label = "member" if member else "no member"
                place.scatter(some["visits"] + jitter, some["spent"], s=9, color=colour, label=label)
            place.set(title=title, xlabel="visits", yscale="log")
        axes[0].set_ylabel("spent")
        axes[0].legend(frameon=False)
        figure.tight_layout()
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=85, facecolor="white")
        plt.close(figure)


def main(path: str = "demo/mixed.png") -> dict:
    frame = visitors()
    board = compared(frame)
    print(board)
    model = fe.GaussianCopula(random_state=0).fit(frame)
    draws = model.sample(len(frame), random_state=0)
    picture(frame, draws.filter(pl.col("spent") > 0), path)
    rank = dict(zip(frame.columns, model.correlation_[0].round(2).tolist(), strict=True))
    print("scores of 'spent' correlate with:", rank)
    best = board.table()[0]
    return {"best": best.model, "correlation": model.correlation_}


if __name__ == "__main__":
    main(*sys.argv[1:])
