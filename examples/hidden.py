"""What fitted models are made of: components, factors, topics, a hidden system.

    python examples/hidden.py [folder]

Each is fitted and drawn to a picture in the folder: groups of wines, factors behind their measurements,
topics of this project's own pages, and the path of a state that is seen only through noise.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer

import freeenergy as fe
from freeenergy import plots
from freeenergy.distributions import Diagonal

PAGES = Path(__file__).resolve().parent.parent / "docs"


def wines() -> tuple[np.ndarray, list[str]]:
    data = fe.datasets.load("wine")
    return data.X, data.feature_names


def components(folder: Path) -> np.ndarray:
    """Three groups of wines; the weights are those of the growers, who are not told."""
    X, names = wines()
    model = fe.GaussianMixture(3, Diagonal(), n_init=5, random_state=0).fit(X)
    axes = plots.profiles(model.means_, model.covariances_, model.weights_, names=names, most=5)
    save(axes[0], folder / "profiles.png")
    return np.sort(model.weights_)


def factors(folder: Path) -> list[str]:
    """The column that each factor moves most."""
    X, names = wines()
    model = fe.FactorAnalysis(3, random_state=0).fit(X)
    turned = model.rotate(fe.Varimax()).components / X.std(axis=0)
    turned *= np.sign(turned.sum(axis=1, keepdims=True))  # signs are free
    axes = plots.loadings(turned, names=names)
    save(axes[0], folder / "loadings.png")
    return [names[j] for j in np.abs(turned).argmax(axis=1)]


def documents() -> tuple[sparse.csr_matrix, list[str]]:
    """Counts of words in the paragraphs of the documentation, code left out."""
    text = "\n\n".join(page.read_text("utf-8") for page in sorted(PAGES.rglob("*.md")))
    text = re.sub(r"```.*?```|`[^`\n]*`", " ", text, flags=re.DOTALL)
    counter = CountVectorizer(stop_words="english", token_pattern="[a-z]{3,}", min_df=8)
    counts = counter.fit_transform(text.split("\n\n"))
    return counts[np.asarray(counts.sum(axis=1)).ravel() >= 10], counter.get_feature_names_out().tolist()


def topics(folder: Path) -> np.ndarray:
    X, words = documents()
    model = fe.LatentDirichletAllocation(8, random_state=0).fit(X)
    share = model.transform(X).mean(axis=0)
    save(plots.topics(model.components_, words, weights=share)[0], folder / "topics.png")
    return share


def system(folder: Path) -> float:
    """A swing that is seen through noise in three channels."""
    rng = np.random.default_rng(0)
    turn = 0.98 * np.array([[np.cos(0.2), -np.sin(0.2)], [np.sin(0.2), np.cos(0.2)]])
    x = np.zeros((200, 2))
    x[0] = [3.0, 0.0]
    for t in range(1, 200):
        x[t] = turn @ x[t - 1] + 0.2 * rng.normal(size=2)
    X = x @ np.array([[1.0, 0.5, -0.5], [0.0, 1.0, 1.0]]) + rng.normal(size=(200, 3))
    X[80:100] = np.nan
    model = fe.LinearGaussianSSM(2, random_state=0, max_iter=200, tol=1e-4).fit(X)
    save(plots.smoothed(*model.smooth(X))[0], folder / "smoothed.png")
    return float(np.abs(np.linalg.eigvals(model.transition_)).max())


def save(axes, path: Path) -> None:
    axes.figure.savefig(path, dpi=85, facecolor="white")


def main(folder: str = "demo") -> dict:
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    with plots.theme():
        found = {
            "weights": components(place),
            "columns": factors(place),
            "shares": topics(place),
            "modulus": system(place),
        }
    print("weights of the three groups of wines:", found["weights"].round(2))
    print("each factor moves most:", ", ".join(found["columns"]))
    print(f"the hidden system keeps {found['modulus']:.0%} of its swing from step to step")
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
