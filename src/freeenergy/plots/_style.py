"""Colours, words and sizes that all pictures share."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from .._core import visible

# told apart by all three kinds of colour blindness, with contrast of at least 3 to 1 on white
PALETTE = ("#0072b2", "#d55e00", "#008c66", "#b8559a", "#2e94cc", "#a87400", "#6e6e6e")
INK, DARK_INK = "#1b1f24", "#e6e8eb"


@contextlib.contextmanager
def theme(*, dark: bool = False) -> Iterator[None]:
    """The style of the report: few lines, transparent ground, ink for a light or a dark page.

    >>> with theme(dark=True):
    ...     axes = new_axes(None)
    >>> mpl.colors.to_hex(axes.xaxis.label.get_color())
    '#e6e8eb'
    """
    ink = DARK_INK if dark else INK
    colours = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    look: dict[Any, Any] = {
        **dict.fromkeys(colours, ink),
        "axes.facecolor": "none",
        "figure.facecolor": "none",
        "savefig.facecolor": "none",
        "legend.frameon": False,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.linewidth": 0.7,
        "font.size": 10,
        "axes.titlesize": 10,
        "axes.labelsize": 9.5,
        "xtick.labelsize": 9,
        "ytick.labelsize": 9,
        "legend.fontsize": 9,
        "svg.fonttype": "none",
        "svg.hashsalt": "freeenergy",
    }
    with mpl.rc_context(look):
        yield


def new_figure(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), layout="constrained")


def new_axes(ax: Axes | None, width: float = 4.3, height: float = 3.0) -> Axes:
    return new_figure(width, height).subplots() if ax is None else ax


def plain(text: Any, limit: int = 40) -> str:
    """Words of a user as they are: no mathematics between dollars, no underscore that hides them."""
    words = visible(text)
    words = words if len(words) <= limit else words[: limit - 1] + "…"
    words = words.replace("$", r"\$")
    return "\u200b" + words if words.startswith("_") else words


def wrapped(text: Any, width: int = 12, lines: int = 3) -> str:
    """Words in at most so many lines of so many letters; names may also be broken after punctuation.

    >>> print(wrapped("average_monthly_temperature", 16, 2))
    average_monthly_
    temperature
    >>> print(wrapped("teacher, nurse, writer, technician", 16, 2))
    teacher, nurse,
    writer, technic…
    """
    found = [""]
    for part in re.findall(r"\s+|[^\s_/.:+(-]+[_/.:+(-]*|[_/.:+(-]+", plain(text, width * (lines + 1))):
        if len(found) < lines and found[-1].strip() and len(found[-1] + part.rstrip()) > width:
            found.append("")
        while len(found) < lines and len(part) > width:
            found[-1], part = part[:width], part[width:]
            found.append("")
        found[-1] += part if found[-1] else part.lstrip()
    kept = [line.rstrip() for line in found]
    kept[-1] = kept[-1] if len(kept[-1]) <= width else kept[-1][: width - 1] + "…"
    return "\n".join(kept)


# arguments whose value says enough
_COUNTS = ("n_components", "n_clusters", "n_states", "n_latent", "latent_dim", "p")
_SHORT = 60


def _arguments(label: str) -> tuple[str, list[str]]:
    """`gaussian-mixture:8,covariance=diagonal`, or the same as Python has it, in a name and its options."""
    found = re.match(r"[^:(]*[^:( ]", label)
    if found is None or found.end() == len(label):
        return label, []
    rest = label[found.end() :].strip()
    inside = rest[1:].strip() if rest.startswith(":") else rest[1:-1] if rest.endswith(")") else None
    if inside is None:
        return label, []
    parts, depth = [""], 0
    for letter in inside:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return found[0], [part.strip() for part in parts if part.strip()]


def short_names(labels: Sequence[str]) -> dict[str, str]:
    """Names of models that can be read in a table, each beside its label: options only where they differ.

    >>> labels = ["ppca", "mixture:4,family=poisson", "mixture:n_components=9,family=poisson"]
    >>> list(short_names(labels).values())
    ['ppca', 'mixture 4', 'mixture 9']
    """
    split = {label: _arguments(label) for label in labels}
    found: dict[str, str] = {}
    for label, (name, options) in split.items():
        same = [set(own) for other, (word, own) in split.items() if word == name and other != label]
        words = []
        for option in options if same else []:
            if all(option in own for own in same):
                continue
            key, mark, value = option.partition("=")
            counted = not mark or key.strip() in _COUNTS or value.strip()[:1].isalpha()
            word = value.strip() if mark and counted else option
            # what a command line calls without arguments is told by its name
            words.append(re.sub(r"\b([a-z][\w-]*)\(\)", r"\1", word))
        short = " ".join([name, *words])
        if options and len(short) > _SHORT:
            short = short[: _SHORT - 1] + "…"
        taken, number = short, 1
        while taken in found.values():
            number += 1
            taken = f"{short} ({number})"
        found[label] = taken
    return found


def thin(X: np.ndarray, limit: int) -> np.ndarray:
    """At most `limit` rows, evenly spread."""
    return X if len(X) <= limit else X[np.linspace(0, len(X) - 1, limit).astype(int)]


def ink() -> str:
    """The colour of words."""
    return mpl.rcParams["text.color"]


def shade(number: int) -> str:
    """The colour of one of several things."""
    return PALETTE[number % len(PALETTE)]


def table(owner: str, name: str, values: Any) -> np.ndarray:
    """Numbers in rows and columns; one column where there is one axis."""
    array = np.asarray(values, float)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2:
        raise ValueError(
            f"The '{name}' of {owner} must have one or two axes. Got the shape {array.shape} instead."
        )
    return array


def spreads(owner: str, spread: Any, means: np.ndarray, each: str) -> np.ndarray:
    """A standard deviation for each of `means`, from as many or from a covariance for each row."""
    std = np.asarray(spread, float)
    if std.ndim == 3:
        std = np.sqrt(np.diagonal(std, axis1=1, axis2=2))
    std = table(owner, "spread", std)
    if std.shape != means.shape:
        raise ValueError(
            f"The 'spread' of {owner} must have the shape {means.shape} of the means, or a covariance for "
            f"each {each}. Got {np.shape(spread)} instead."
        )
    return std


def called(owner: str, names: Sequence[Any] | None, count: int, word: str) -> list[str]:
    """Names of `count` things: those that were passed, or `word 0`, `word 1`, …"""
    if names is None:
        return [f"{word} {number}" for number in range(count)]
    if len(names) != count:
        raise ValueError(f"The names of every {word} in {owner} must be {count}. Got {len(names)} instead.")
    return [str(name) for name in names]


def width_of(owner: str, level: float) -> float:
    """Half the width of the interval of a normal with probability `level`, in standard deviations."""
    if not 0 < level < 1:
        raise ValueError(
            f"The 'level' parameter of {owner} must be a float in the range (0, 1). Got {level!r} instead."
        )
    return float(stats.norm.ppf(0.5 + level / 2))
