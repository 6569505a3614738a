"""Sections of pictures: draws, hidden parts, what models are made of, calibration."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from .. import plots
from ..evaluation import uniformity
from ..shell import Column
from ..shell._time import in_words
from ._html import NOTHING, Cell, bitmap, card, escape, table_of, value_cell, word_cell
from ._view import View

_IMAGES = 30
_PATHS = 5
_FEATURES = 3
_MOMENTS = 300
_KEY = '<span class="key"><i class="c0"></i> data <i class="c1"></i> draws of the model</span>'
_NOTHING_HIDDEN = "<p>No model of this comparison has a hidden part to show.</p>"


def samples(view: View) -> str:
    board = view.board
    drawn = [(line.model, view.first(line.model, "samples")) for line in view.fitted]
    drawn = [(model, np.asarray(samples, float)) for model, samples in drawn if samples is not None]
    if not drawn:
        return "<p>No model of this comparison can draw samples.</p>"
    if view.sequences:
        return _sample_paths(view, drawn)
    data = np.asarray(board.examples, float)
    cards = []
    if view.shape is not None:
        for name, X in [("data", data), *drawn]:
            whole = plots.mosaic(X[:_IMAGES], view.shape)
            low, high = view.limits
            beyond = float(np.mean((X[:_IMAGES] < low) | (X[:_IMAGES] > high)))
            who = "Rows of the data" if name == "data" else f"Draws of {name}"
            picture = bitmap(whole, view.limits, f"{who} as images")
            title = "<b>data</b>" if name == "data" else f"<b>{view.name(name)}</b>"
            title += f", {_IMAGES} of {len(X)} rows" if len(X) > _IMAGES else ""
            title += (
                f"; {100 * beyond:.1f} % of the pixels are beyond the scale of the data" if beyond else ""
            )
            cards.append(f"<figure><figcaption>{title}</figcaption>{picture}</figure>")
        grid = f'<div class="cards">{"".join(cards)}</div>'
    else:
        # codes of labels are no numbers: these have bars of their own
        numbers = np.flatnonzero(~view.labels)
        names = [board.feature_names[j] for j in numbers]
        dates = {
            place: view.fields[j].told
            for place, j in enumerate(numbers)
            if view.fields[j].kind is Column.DATE
        }
        for name, X in drawn if len(numbers) else []:
            axes = plots.pairs(data[:, numbers], X[:, numbers], names=names, labels=None, formats=dates)
            alt = f"Pairs of columns of the data beside draws of {name}."
            cards.append(card(axes[0, 0], f"<b>{view.name(name)}</b> {_KEY}", alt))
        grid = f'<div class="cards broad">{"".join(cards)}</div>'
        if len(numbers) < len(view.fields):
            grid = "<p>Columns of labels are bars, above.</p>" + grid
        data, drawn = data[:, numbers], [(name, X[:, numbers]) for name, X in drawn]
    return grid + _moments(view, data, drawn)


def _moments(view: View, data: np.ndarray, drawn: list[tuple[str, np.ndarray]]) -> str:
    """How far means, spreads and correlations of the draws are from those of the data."""
    if not data.shape[1]:
        return ""
    whole, spread = data, np.nanstd(data, axis=0)
    used = np.flatnonzero(spread > 0)[:_MOMENTS]
    data, spread = data[:, used], spread[used]
    if not len(used):
        return ""
    upper = np.triu_indices(data.shape[1], 1)

    def correlations(X: np.ndarray) -> np.ndarray:
        z = X - np.nanmean(X, axis=0)
        z = np.nan_to_num(z / np.maximum(np.nanstd(X, axis=0), np.finfo(float).tiny))
        return (z.T @ z / len(z))[upper]

    own = correlations(data)
    rows = []
    for name, X in drawn:
        X = X[:, used]
        shift = np.abs(np.nanmean(X, axis=0) - np.nanmean(data, axis=0)) / spread
        ratio = np.nanstd(X, axis=0) / spread
        wrong = np.sqrt(np.mean((correlations(X) - own) ** 2)) if len(own) else math.nan
        rows.append(
            [
                Cell(view.name(name)),
                value_cell(len(X), digits=0),
                value_cell(float(shift.mean()), digits=3),
                value_cell(float(shift.max()), digits=3),
                value_cell(float(np.median(ratio)), digits=3),
                value_cell(float(wrong), digits=3) if len(own) else NOTHING,
            ]
        )
    heads = [
        ("model", ""),
        ("draws", "rows"),
        ("shift of the mean", "standard deviations, mean over columns"),
        ("largest shift", "standard deviations"),
        ("spread", "model / data, median over columns"),
        ("error of correlations", "root mean square"),
    ]
    columns = len(np.flatnonzero(np.nanstd(whole, axis=0) > 0))
    part = f", {len(used)} of {columns} columns" if len(used) < columns else ""
    return table_of(f"Draws against {len(data)} rows of the data{part}", heads, rows)


def _sample_paths(view: View, drawn: list[tuple[str, np.ndarray]]) -> str:
    series = [np.asarray(one, float).reshape(len(one), -1) for one in view.board.examples][:_PATHS]
    names = view.board.feature_names
    cards, rows = [], []
    for model, samples in drawn:
        other = list(samples[:_PATHS])
        for feature in range(min(series[0].shape[1], _FEATURES)):
            axes = plots.paths(series, other, feature=feature, labels=None, dates=view.dates)
            title = f"<b>{view.name(model)}</b>: {escape(names[feature])} over time {_KEY}"
            cards.append(card(axes, title, f"Paths of the data beside draws of {model}."))
            data = np.concatenate([one[:, feature] for one in series])
            draws = np.concatenate([one[:, feature] for one in other])
            rows.append(
                [
                    Cell(view.name(model)),
                    word_cell(names[feature]),
                    *(value_cell(float(f(v))) for f in (np.nanmean, np.nanstd) for v in (data, draws)),
                ]
            )
    size = series[0].shape[1]
    note = f"<p>{_FEATURES} of {size} features are shown.</p>" if size > _FEATURES else ""
    heads = [
        ("model", ""),
        ("feature", ""),
        ("mean", "data"),
        ("mean", "draws"),
        ("standard deviation", "data"),
        ("standard deviation", "draws"),
    ]
    grid = f'<div class="cards">{"".join(cards)}</div>'
    return note + grid + table_of("Draws against the data", heads, rows)


def latent(view: View) -> str:
    if view.sequences:
        return _states(view)
    cards, rows = [], []
    for line in view.fitted:
        z = view.first(line.model, "latent")
        if z is None or len(z) == 0:
            continue
        z = np.asarray(z, float).reshape(len(z), -1)
        if not np.ptp(z, axis=0).any():
            continue  # one component, which all rows are in
        which = view.first(line.model, "latent_rows")
        shares = z.shape[1] > 1 and np.all(z >= 0) and np.allclose(z.sum(axis=1), 1, atol=1e-6)
        if view.groups is not None:
            colour, by = view.groups[which], "label"
        elif shares:
            colour, by = z.argmax(axis=1), "largest responsibility"
        elif line.scored:
            colour, by = view.bits[line.model][which], "bits of the row"
        else:
            colour, by = z[:, -1], "the last of them"
        spread = np.linalg.svd(z - z.mean(axis=0), compute_uv=False) ** 2
        kept = float(spread[:2].sum() / spread.sum()) if spread.sum() > 0 else 1.0
        alt = f"Hidden coordinates of {len(z)} held-out rows under {line.model}, coloured by {by}."
        title = f"<b>{view.name(line.model)}</b>, coloured by {by}"
        cards.append(card(plots.latent(z, colour), title, alt))
        rows.append(
            [
                Cell(view.name(line.model)),
                word_cell("responsibilities" if shares else "coordinates"),
                value_cell(z.shape[1], digits=0),
                value_cell(len(z), digits=0),
                Cell(f"{100 * kept:.0f} %"),
            ]
        )
    if not cards:
        return _NOTHING_HIDDEN
    heads = [
        ("model", ""),
        ("hidden part", ""),
        ("dimension", "numbers per row"),
        ("shown", "held-out rows"),
        ("variance in two directions", "share"),
    ]
    return f'<div class="cards">{"".join(cards)}</div>' + table_of("Hidden parts", heads, rows)


def _states(view: View) -> str:
    """Hidden states over a series that was held out."""
    cards, rows = [], []
    names = list(view.board.feature_names)
    whose = ""
    for line in view.good:
        fold = next((fold for fold in view.folds(line.model) if "series" in fold.parts), None)
        if fold is None:
            continue
        found = dict(fold.parts)
        series, times = found.pop("series"), found.pop("times", None)
        if view.units == "series" and view.unit_names is not None:
            whose = view.unit_name(int(fold.rows[0]))
        if times is not None and times.dtype.kind == "i":
            times = times.astype("M8[us]")
        dates = None if times is None else [in_words(time) for time in times]
        sure = NOTHING
        if "probabilities" in found:
            p = found["probabilities"]
            what, count, sure = "states", p.shape[1], Cell(f"{100 * p.max(axis=1).mean():.0f} %")
            drawn = [plots.decoded(series, p, names=names, dates=dates)]
        elif "mean" in found:
            what, count = "coordinates", found["mean"].shape[1]
            drawn = [plots.smoothed(found["mean"], found["std"], dates=dates)]
        else:
            order = sorted(name.split(" ", 2)[1:] for name in found if name.startswith("mean"))
            parts = {name: (found[f"mean {n} {name}"], found[f"std {n} {name}"]) for n, name in order}
            what, count = "parts of the sum", len(parts)
            drawn = [
                plots.decomposition(series, parts, column=column, name=names[column], dates=dates)
                for column in range(min(series.shape[1], _FEATURES))
            ]
        alt = f"Hidden {what} of {line.model} over {len(series)} steps of a series that was held out."
        title = f"<b>{view.name(line.model)}</b>: {what} given the whole series"
        cards += [card(axes[0], title, alt) for axes in drawn]
        rows.append(
            [
                Cell(view.name(line.model)),
                word_cell(what),
                value_cell(count, digits=0),
                value_cell(len(series), digits=0),
                sure,
            ]
        )
    if not cards:
        return _NOTHING_HIDDEN
    heads = [
        ("model", ""),
        ("hidden part", ""),
        ("number", ""),
        ("shown", "steps"),
        ("how sure", "probability of the likeliest state, mean"),
    ]
    alone = len(view.board.examples) == 1
    over = "The series, whose end was held out." if alone else "A series that the model was not fitted to."
    over = f"The series {escape(whose)}, which the model was not fitted to." if whose else over
    note = (
        f"<p>{over} Bands hold the truth with probability 95 % "
        "if the model is right; a state has a row as thick as its probability, and the series a ground "
        "of the colour of the likeliest.</p>"
    )
    return note + f'<div class="cards broad">{"".join(cards)}</div>' + table_of("Hidden parts", heads, rows)


def parts(view: View) -> str:
    """What models of rows are made of."""
    cards, rows = [], []
    kept = ~view.board.support.constant
    if not view.sequences:
        # the mean of codes says nothing
        kept = kept & ~view.labels
    names = [name for name, keep in zip(view.board.feature_names, kept) if keep]
    for line in view.good:
        found = view.first(line.model, "parts") or {}
        if not kept.any():
            break
        if len(found.get("weights", ())) == 1:
            continue  # one component, which is the whole
        if "loadings" in found:
            W = found["loadings"]
            what, share = "factors", (W**2).sum(axis=1) / max(kept.sum(), 1)
            title = "loadings of standardised columns"
            if view.shape is None:
                axes = plots.loadings(W[:, kept], names=names)[0]
            else:
                axes = plots.atoms(W[np.argsort(-share)], view.shape, most=_IMAGES)
            alt = f"Loadings of the factors of {line.model}."
            cards.append(card(axes, f"<b>{view.name(line.model)}</b>: {title}", alt))
        elif "means" in found:
            means, share = found["means"], found["weights"]
            what = "components"
            alt = f"Means and weights of the components of {line.model}."
            title = f"<b>{view.name(line.model)}</b>: the components, the heaviest first"
            if view.shape is None:
                spread = found["spread"][:, kept] if "spread" in found else None
                if spread is not None:
                    title += "; bars are one standard deviation"
                axes = plots.profiles(means[:, kept], spread, share, names=names, most=3)
                cards.append(card(axes[0], title, alt))
            else:
                whole = plots.mosaic(means[np.argsort(-share)][:_IMAGES], view.shape)
                picture = bitmap(whole, view.limits, alt)
                cards.append(f"<figure><figcaption>{title}</figcaption>{picture}</figure>")
        else:
            continue
        rows.append(
            [
                Cell(view.name(line.model)),
                word_cell(what),
                value_cell(len(share), digits=0),
                Cell(f"{100 * share.max():.1f} %", float(share.max())),
                Cell(f"{100 * share.min():.1f} %", float(share.min())),
            ]
        )
    if not cards:
        return "<p>No model of this comparison has parts to show.</p>"
    heads = [
        ("model", ""),
        ("made of", ""),
        ("number", ""),
        ("largest", "share of rows or variance"),
        ("smallest", "share of rows or variance"),
    ]
    return f'<div class="cards broad">{"".join(cards)}</div>' + table_of("Parts of the models", heads, rows)


def rank_test(ranks: np.ndarray, draws: int) -> tuple[float, float]:
    """Kolmogorov's distance of ranks from uniform and its p-value.

    All ranks share the draws they are ranked among, as in a test of two samples.
    """
    distance = uniformity(ranks).statistic
    size = max(round(len(ranks) * draws / (len(ranks) + draws)), 1)
    return distance, float(stats.kstwo.sf(distance, size))


def calibration(view: View) -> str:
    unit = "steps" if view.sequences else "rows"
    cards, rows = [], []
    for line in view.good:
        ranks = view.first(line.model, "pit")
        if ranks is None or len(ranks) == 0:
            continue
        draws = view.first(line.model, "pit_draws")
        distance, p_value = rank_test(ranks, draws)
        alt = f"Histogram of ranks for {line.model}, Kolmogorov–Smirnov p = {p_value:.2g}."
        axes = plots.calibration(ranks, draws=draws, what=f"held-out {unit}")
        cards.append(card(axes, f"<b>{view.name(line.model)}</b>", alt))
        outside = float(np.mean(np.asarray(ranks) < 0.05))
        rows.append(
            [
                Cell(view.name(line.model)),
                value_cell(len(ranks), digits=0),
                value_cell(float(distance), digits=3),
                Cell(f"{p_value:.3f}" if p_value >= 0.001 else "&lt; 0.001", float(p_value)),
                Cell(f"{100 * outside:.1f} %"),
                word_cell("agrees with its draws" if p_value >= 0.05 else "differs from its draws"),
            ]
        )
    if not cards:
        return "<p>No model of this comparison has ranks of its evidence.</p>"
    what = (
        "log p of each held-out step, given those before it,"
        if view.sequences
        else "log p of each held-out row"
    )
    note = (
        f"<p>The rank of {what} among log p of {unit} that the model draws itself. If the data came from "
        "the model, ranks would be uniform: the line would stay in the grey band, in which each bar is "
        f"with chance 95 %. High bars at the left are {unit} that it finds less likely than what it draws; "
        f"at the right, {unit} that are more likely, as when its draws are too noisy.</p>"
    )
    if view.sequences:
        note += "<p>Steps of a series depend on each other, so that p-values are a guide only.</p>"
    heads = [
        ("model", ""),
        (unit, "held out"),
        ("distance", "Kolmogorov–Smirnov"),
        ("p-value", "of a uniform rank"),
        ("least likely", f"{unit} below rank 5 %"),
        ("verdict", "at 5 %"),
    ]
    return (
        note
        + f'<div class="cards">{"".join(cards)}</div>'
        + table_of("Calibration of the evidence", heads, rows)
    )
