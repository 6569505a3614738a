"""Pictures of graphs of variables."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch

from ..inference import DirectedGraph, UndirectedGraph
from ..models import AbstractNetworkBeliefs, NumberBelief
from ._style import PALETTE, ink, new_axes, plain

# points from the middle of a name to where arrows end, and more for each line below it
_ROOM, _LINE = 12, 6


def network(
    model: Any,
    ax: Axes | None = None,
    *,
    probabilities: Mapping[str, Any] | AbstractNetworkBeliefs | None = None,
) -> Axes:
    """The graph of a Bayesian or Markov network: parents above their children, arrows down.

    Columns are in layers by the longest way to them, and in each layer near their parents and children;
    a Markov network is drawn on a circle.

    Args:
        model: a fitted `BayesianNetwork` or `MarkovNetwork`, one of `freeenergy.models`, or a graph.
        ax: axes of Matplotlib to draw on.
        probabilities: what is written below a name, such as `model.posterior(given)`.

    >>> from freeenergy.models import BayesianNetwork
    >>> tables = {"rain": [0.8, 0.2], "wet": [[0.9, 0.1], [0.2, 0.8]]}
    >>> wet = BayesianNetwork.of_tables(tables, {"wet": ["rain"]})
    >>> [text.get_text() for text in network(wet).texts]
    ['rain', 'wet']
    """
    graph = model if isinstance(model, DirectedGraph | UndirectedGraph) else _graph_of(model)
    if isinstance(graph, DirectedGraph):
        layers = graph.layers()
        widest = max(map(len, layers), default=1)
        places = {
            node: ((i + 0.5) / len(layer), -float(depth))
            for depth, layer in enumerate(layers)
            for i, node in enumerate(layer)
        }
        size = (max(3.0, 1.1 * widest), max(2.0, 0.9 * len(layers)))
    else:
        n = len(graph.nodes)
        turn = {node: 2 * math.pi * i / max(n, 1) for i, node in enumerate(graph.nodes)}
        places = {node: (math.sin(angle), math.cos(angle)) for node, angle in turn.items()}
        size = (max(3.0, 0.45 * n), max(3.0, 0.45 * n))
    ax = new_axes(ax, *size)
    beliefs = isinstance(probabilities, AbstractNetworkBeliefs)
    known = probabilities.marginals() if beliefs else probabilities or {}
    words = {node: _words(node, known.get(node)) for node in graph.nodes}
    style = "-|>" if isinstance(graph, DirectedGraph) else "-"
    for a, b in graph.edges:
        ax.add_patch(
            FancyArrowPatch(
                places[a],
                places[b],
                arrowstyle=style,
                mutation_scale=10,
                shrinkA=_ROOM + _LINE * words[a].count("\n"),
                shrinkB=_ROOM + _LINE * words[b].count("\n"),
                color=ink(),
                linewidth=0.8,
                # a way over several layers bends past the columns between
                connectionstyle="arc3,rad=0.12" if abs(places[a][1] - places[b][1]) > 1.5 else "arc3",
            )
        )
    for node, (x, y) in places.items():
        box = {"boxstyle": "round,pad=0.35", "facecolor": PALETTE[0], "edgecolor": "none"}
        ax.text(x, y, words[node], ha="center", va="center", fontsize=8, color="white", bbox=box, zorder=3)
    xs, ys = [x for x, _ in places.values()] or [0.0], [y for _, y in places.values()] or [0.0]
    margin = 0.15 if isinstance(graph, DirectedGraph) else 0.35
    ax.set_xlim(min(min(xs) - margin, 0.0), max(max(xs) + margin, 1.0))
    ax.set_ylim(min(ys) - 0.6, max(ys) + 0.6)
    ax.set_axis_off()
    return ax


def _words(node: Any, known: Mapping[str, float] | NumberBelief | None) -> str:
    if isinstance(known, NumberBelief):
        return f"{plain(node, 16)}\n{known.mean:.3g} ± {known.std:.2g}"
    lines = [f"{plain(label, 10)} {p:.0%}" for label, p in list((known or {}).items())[:4]]
    return "\n".join([plain(node, 16), *lines])


def _graph_of(model: Any) -> Any:
    return getattr(model, "model_", model).graph
